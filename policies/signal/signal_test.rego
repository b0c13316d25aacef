package stockade.signal_test

import data.stockade.signal

base := {
	"request": {"op": "host.session.signal", "principal": {"uid": 1000}, "signal": {"session_id": "s", "signal": "TERM"}},
	"session": {"principal": {"uid": 1000}, "grant": {"exec": {"signals": ["TERM"]}}},
}

closing := {
	"request": {"op": "host.session.close", "principal": {"uid": 1000}, "close": {"session_id": "s"}},
	"session": {"principal": {"uid": 1000}, "grant": {"exec": {"signals": []}}},
}

codes(document) := {deny.code | some deny in decision.deny} if {
	decision := signal.decision with input as document
}

test_a_granted_signal_is_allowed if codes(base) == set()

test_another_signal_is_denied if codes(json.patch(base, [{"op": "replace", "path": "/request/signal/signal", "value": "USR1"}])) == {"signal_not_allowed"}

test_absent_signals_mean_any if codes(json.remove(base, ["/session/grant/exec/signals"])) == set()

test_a_session_may_always_be_closed if codes(closing) == set()

test_another_principals_session_is_denied if codes(json.patch(closing, [{"op": "replace", "path": "/request/principal/uid", "value": 1}])) == {"operation_not_allowed"}

test_another_operation_is_denied if codes(json.patch(base, [{"op": "replace", "path": "/request/op", "value": "host.exec"}])) == {"operation_not_allowed"}

test_without_a_session_nothing_is_allowed if {
	decision := signal.decision with input as json.remove(base, ["/session"])
	decision.allow == false
}
