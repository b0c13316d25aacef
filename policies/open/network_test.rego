package stockade.open_test

test_no_network_is_granted if granted(base).network == {"mode": "none"}

test_no_network_may_be_asked_for if granted(local({"/network_mode": "none"})).network == {"mode": "none"}

# R009
test_full_is_refused_until_it_exists if codes(local({"/network_mode": "full"})) == {"network_full_unsupported"}

test_egress_is_refused_until_it_exists if codes(local({"/network_mode": "egress"})) == {"network_egress_unsupported"}

# R084
test_an_unknown_mode_is_denied if codes(local({"/network_mode": "host"})) == {"network_mode_not_allowed"}
