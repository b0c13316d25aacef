package stockade.open_test

test_the_caller_wins_over_a_default if not "LANG" in object.keys(granted(local({"/env": {"LANG": "de_DE.UTF-8"}})).env.set)

# The supervisor has a PATH for who names none; set here, no command could extend it.
test_path_is_left_to_the_caller if not "PATH" in object.keys(granted(base).env.set)

test_defaults_stand_where_the_caller_is_silent if granted(base).env.set.HOME == "/home/sandbox"

# R087
test_loader_variables_are_denied if codes(local({"/env": {"LD_PRELOAD": "/x.so"}})) == {"env_var_not_allowed"}

test_too_many_variables_are_denied if {
	many := {sprintf("V%d", [i]): "x" | some i, _ in split(sprintf("%257s", [""]), "")}
	codes(local({"/env": many})) == {"env_limit_exceeded"}
}

test_what_the_profile_fixes_is_fixed if {
	granted(hermetic).env.set.TZ == "UTC"
	codes(changed(hermetic, {"/request/open/target/local/env": {"TZ": "Europe/Berlin"}})) == {"env_var_not_allowed"}
}

test_the_same_value_as_fixed_is_no_change if granted(changed(hermetic, {"/request/open/target/local/env": {"TZ": "UTC"}}))

test_the_time_of_a_build_is_a_constant if granted(hermetic).env.set.SOURCE_DATE_EPOCH == "315532800"

test_the_caller_may_choose_the_time_of_a_build if {
	grant := granted(changed(hermetic, {"/request/open/target/local/env": {"SOURCE_DATE_EPOCH": "1700000000"}}))
	not grant.env.set.SOURCE_DATE_EPOCH
}

test_the_time_of_a_build_is_a_plain_number if {
	every value in ["now", {"secret_digest": "hmac-sha256:00"}, "-1"] {
		codes(changed(hermetic, {"/request/open/target/local/env": {"SOURCE_DATE_EPOCH": value}})) == {"env_var_not_allowed"}
	}
}
