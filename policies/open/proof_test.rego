package stockade.open_test

import data.stockade.open

test_nothing_is_left_out_unless_asked if granted(base).accept_degraded == []

test_a_second_wall_may_be_left_out if {
	granted(changed(base, {"/request/open/accept_degraded": ["landlock"]})).accept_degraded == ["landlock"]
}

test_another_wall_may_not if {
	codes(changed(base, {"/request/open/accept_degraded": ["landlock", "seccomp filter"]})) == {"degraded_not_allowed"}
}

test_a_hermetic_session_keeps_all_walls if {
	codes(changed(hermetic, {"/request/open/accept_degraded": ["landlock"]})) == {"degraded_not_allowed"}
}

test_proof_is_the_callers_to_ask_for if {
	granted(base).verify == ""
	granted(changed(base, {"/request/open/verify": "canary"})).verify == "canary"
}

test_proof_that_the_profile_wants_is_not_the_callers_to_refuse if {
	every document in [base, changed(base, {"/request/open/verify": ""})] {
		decision := open.decision with input as document with data.profiles.workspace.verify as "canary"
		decision.grant.verify == "canary"
	}
}
