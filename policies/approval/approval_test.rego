package stockade.approval_test

import data.stockade.approval

by(uid, op) := {
	"request": {"op": op, "principal": {"uid": uid, "gid": uid}, "verdict": {"approval_id": "a-1"}},
	"approval": {"approval_id": "a-1", "op": "host.exec", "principal": {"uid": 1000, "gid": 1000}, "state": "waiting"},
}

allowed(document) if {
	decision := approval.decision with input as document with data.principals.approvers as [1001] with data.principals.administrators as [0]
	decision.allow == true
}

codes(document) := {deny.code | some deny in decision.deny} if {
	decision := approval.decision with input as document with data.principals.approvers as [1001] with data.principals.administrators as [0]
}

test_an_approver_decides if {
	allowed(by(1001, "host.approval.approve"))
	allowed(by(1001, "host.approval.deny"))
	allowed(by(1001, "host.approval.get"))
}

test_an_administrator_is_an_approver if allowed(by(0, "host.approval.approve"))

test_another_decides_nothing if {
	codes(by(1002, "host.approval.approve")) == {"approver_not_allowed"}
	codes(by(1002, "host.approval.deny")) == {"approver_not_allowed"}
	codes(by(1002, "host.approval.get")) == {"approver_not_allowed"}
}

test_nobody_gives_himself_leave if {
	codes(by(1000, "host.approval.approve")) == {"approval_own_request"}
	codes(json.patch(by(1001, "host.approval.approve"), [{"op": "replace", "path": "/approval/principal/uid", "value": 1001}])) == {"approval_own_request"}
}

test_an_administrator_may if allowed(json.patch(by(0, "host.approval.approve"), [{"op": "replace", "path": "/approval/principal/uid", "value": 0}]))

test_who_asks_sees_it_and_takes_it_back if {
	allowed(by(1000, "host.approval.get"))
	allowed(by(1000, "host.approval.deny"))
}

test_everybody_lists_what_is_his if allowed(json.remove(by(1002, "host.approval.list"), ["/approval"]))

test_without_an_object_nothing_is_decided if {
	codes(json.remove(by(0, "host.approval.approve"), ["/approval"])) == {"operation_not_allowed"}
	not allowed(json.remove(by(0, "host.approval.approve"), ["/approval/principal"]))
}

test_another_operation_is_denied if "operation_not_allowed" in codes(by(0, "host.exec"))

test_an_empty_request_is_denied if not allowed({})
