package stockade.read_test

import data.stockade.read

test_reads_are_allowed if {
	every op in read.operations {
		decision := read.decision with input as {"request": {"op": op}}
		decision.allow == true
	}
}

test_another_operation_is_denied if {
	decision := read.decision with input as {"request": {"op": "host.exec"}}
	decision.allow == false
}

test_another_principals_session_is_denied if {
	decision := read.decision with input as {
		"request": {"op": "host.session.get", "principal": {"uid": 1}},
		"session": {"principal": {"uid": 2}},
	}
	decision.allow == false
}
