package stockade.open_test

import data.stockade.open

test_the_usual_session_is_allowed if granted(base)

test_a_hermetic_session_is_allowed if granted(hermetic)

# R108: whatever is missing, the answer is a denial.
test_without_a_request_nothing_is_allowed if {
	every document in [{}, {"request": {}}, {"request": {"op": "host.session.open"}}, json.remove(base, ["/request/open"])] {
		decision := open.decision with input as document
		decision.allow == false
		count(decision.deny) > 0
	}
}

test_another_operation_is_denied if {
	codes(changed(base, {"/request/op": "host.exec"})) == {"operation_not_allowed"}
}

# R082
test_another_target_is_denied if {
	"target_not_allowed" in codes(changed(base, {"/request/open/target": {}}))
}

# Any member of the request may be missing: that never opens more than was asked for.
test_a_request_without_one_of_its_members_gets_no_more if {
	every path in ["/request/op", "/request/principal", "/facts", "/request/open/target/local/mounts/0/mode", "/request/open/target/local/mounts/0/host_path", "/request/open/target/local/mounts/0/guest_path", "/facts/sources/~1home~1alice~1project/resolved", "/facts/sources/~1home~1alice~1project/owner_uid"] {
		decision := open.decision with input as json.patch(base, [{"op": "remove", "path": path}])
		decision.allow == false
	}
}
