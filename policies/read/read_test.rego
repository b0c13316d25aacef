package stockade.read_test

import data.stockade.read

by(uid, op) := {"request": {"op": op, "principal": {"uid": uid}}}

allowed(document) if {
	decision := read.decision with input as document
	decision.allow == true
}

codes(document) := {deny.code | some deny in decision.deny} if {
	decision := read.decision with input as document
}

test_reads_are_allowed if {
	every op in read.operations {
		allowed(by(1000, op))
	}
}

test_another_operation_is_denied if codes(by(1000, "host.exec")) == {"operation_not_allowed"}

# R135
test_what_is_everybodys_is_for_administrators if {
	every op in read.administration {
		allowed(by(0, op))
		codes(by(1000, op)) == {"operation_not_allowed"}
	}
}

test_another_principals_session_is_denied if {
	codes({
		"request": {"op": "host.session.get", "principal": {"uid": 1}},
		"session": {"principal": {"uid": 2}},
	}) == {"operation_not_allowed"}
}
