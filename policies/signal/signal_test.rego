package stockade.signal_test

import data.stockade.signal

session := {"principal": {"uid": 1000}, "grant": {"exec": {"signals": ["TERM"]}}}

base := {
	"request": {"op": "host.session.signal", "principal": {"uid": 1000}, "signal": {"session_id": "s", "signal": "TERM"}},
	"session": session,
}

closing := {
	"request": {"op": "host.session.close", "principal": {"uid": 1000}, "close": {"session_id": "s"}},
	"session": {"principal": {"uid": 1000}, "grant": {"exec": {"signals": []}}},
}

# An operation on an execution, with its parameters as they come.
control(op, parameters) := {
	"request": object.union({"op": op, "principal": {"uid": 1000}}, parameters),
	"session": session,
	"process": {"exec_id": "x", "intent_id": "i", "state": "running", "argv": ["sleep", "60"], "labels": {"role": "server"}},
}

delivering := control("host.process.signal", {"deliver": {"exec_id": "x", "signal": "TERM"}})

controls := {
	control("host.process.input", {"input": {"exec_id": "x", "data": {"inline_text": {"text": "y\n"}}}}),
	delivering,
	control("host.process.modify", {"modify": {"exec_id": "x", "timeout_ns": 1}}),
	control("host.process.pause", {"process": {"exec_id": "x"}}),
	control("host.process.resume", {"process": {"exec_id": "x"}}),
	control("host.process.cancel", {"cancel": {"exec_id": "x"}}),
	control("host.process.delete", {"process": {"exec_id": "x"}}),
}

stopping := {"request": {"op": "host.process.stop", "principal": {"uid": 1000}, "stop": {"labels": {"role": "server"}}}}

stopping_in_session := {
	"request": {"op": "host.process.stop", "principal": {"uid": 1000}, "stop": {"session_id": "s"}},
	"session": session,
}

logging(uid) := {"request": {"op": "admin.log.level", "principal": {"uid": uid}, "log": {"level": "debug"}}}

draining(uid) := {"request": {"op": "admin.drain", "principal": {"uid": uid}, "drain": {}}}

activating(uid) := {"request": {"op": "admin.policy.activate", "principal": {"uid": uid}, "activate": {}}}

codes(document) := {deny.code | some deny in decision.deny} if {
	decision := signal.decision with input as document
}

allowed(document) if {
	decision := signal.decision with input as document
	decision.allow == true
}

replaced(document, path, value) := json.patch(document, [{"op": "replace", "path": path, "value": value}])

test_a_granted_signal_is_allowed if allowed(base)

test_another_signal_is_denied if codes(replaced(base, "/request/signal/signal", "USR1")) == {"signal_not_allowed"}

test_absent_signals_mean_any if allowed(json.remove(base, ["/session/grant/exec/signals"]))

test_a_session_may_always_be_closed if allowed(closing)

narrowing := {
	"request": {"op": "host.session.narrow", "principal": {"uid": 1000}, "narrow": {"session_id": "s", "network": {"mode": "none"}}},
	"session": {"principal": {"uid": 1000}, "grant": {"exec": {"signals": []}}},
}

test_ones_own_network_may_be_narrowed if allowed(narrowing)

test_another_principals_network_may_not if {
	codes(replaced(narrowing, "/request/principal/uid", 1)) == {"operation_not_allowed"}
}

test_what_is_not_there_is_not_narrowed if not allowed(json.remove(narrowing, ["/session"]))

test_a_session_may_be_paused_and_resumed if {
	every op in ["host.session.pause", "host.session.resume"] {
		allowed({"request": {"op": op, "principal": {"uid": 1000}, "session": {"session_id": "s"}}, "session": session})
	}
}

test_another_principals_session_is_denied if {
	every document in {base, closing, stopping_in_session} | controls {
		codes(replaced(document, "/request/principal/uid", 1)) == {"operation_not_allowed"}
	}
}

test_another_operation_is_denied if codes(replaced(base, "/request/op", "host.exec")) == {"operation_not_allowed"}

test_without_a_session_nothing_in_one_is_allowed if {
	every document in {base, closing, stopping_in_session} | controls {
		not allowed(json.remove(document, ["/session"]))
		not allowed(json.remove(document, ["/session/grant"]))
	}
}

# R243
test_ones_own_execution_is_controlled if {
	every document in controls {
		allowed(document)
	}
}

# R108
test_what_is_not_said_allows_nothing if {
	every document in {base, closing, stopping_in_session} | controls {
		every path in ["/request/op", "/request/principal", "/session/principal", "/session"] {
			not allowed(json.remove(document, [path]))
		}
	}
	every document in [{}, {"request": {}}, json.remove(stopping, ["/request/op"]), json.remove(draining(0), ["/request/principal"])] {
		not allowed(document)
	}
}

test_without_an_execution_nothing_on_one_is_allowed if {
	every document in controls {
		not allowed(json.remove(document, ["/process"]))
	}
}

# R087
test_a_signal_for_one_execution_is_the_grants if {
	allowed(delivering)
	codes(replaced(delivering, "/request/deliver/signal", "USR1")) == {"signal_not_allowed"}
	codes(replaced(delivering, "/session/grant/exec/signals", [])) == {"signal_not_allowed"}
}

test_to_cancel_needs_no_signal if {
	every op in ["host.process.cancel", "host.process.delete"] {
		allowed(replaced(control(op, {}), "/session/grant/exec/signals", []))
	}
}

# R246
test_ones_own_executions_are_stopped if {
	allowed(stopping)
	allowed(stopping_in_session)
}

test_to_stop_what_no_session_bounds_says_so if {
	codes(json.remove(stopping, ["/request/stop"])) == {"operation_not_allowed"}
}

# R135
test_only_an_administrator_drains if {
	allowed(draining(0))
	codes(draining(1000)) == {"operation_not_allowed"}
	codes(json.remove(draining(0), ["/request/drain"])) == {"operation_not_allowed"}
}

test_only_an_administrator_activates_a_policy if {
	allowed(activating(0))
	codes(activating(1000)) == {"operation_not_allowed"}
	codes(json.remove(activating(0), ["/request/activate"])) == {"operation_not_allowed"}
}

test_only_an_administrator_changes_the_log if {
	allowed(logging(0))
	codes(logging(1000)) == {"operation_not_allowed"}
	codes(json.remove(logging(0), ["/request/log"])) == {"operation_not_allowed"}
}

test_data_names_the_administrators if {
	decision := signal.decision with input as draining(1000) with data.principals.administrators as [1000]
	decision.allow == true
}

# R109: what has ended is not gone on with; to end something is always right.
test_an_ended_grant_ends_and_does_not_go_on if {
	every document in controls {
		ended := json.patch(document, [{"op": "add", "path": "/session/grant/expires_at_ns", "value": 100}, {"op": "add", "path": "/now_ns", "value": 100}])
		decision := signal.decision with input as ended
		decision.allow == not_going_on[document.request.op] == true
	}
}

not_going_on := {
	"host.process.input": false, "host.process.modify": false, "host.process.resume": false,
	"host.process.signal": true, "host.process.pause": true, "host.process.cancel": true, "host.process.delete": true,
}

forwarding(port, network) := {
	"request": {"op": "host.session.forward", "principal": {"uid": 1000}, "forward": {"session_id": "s", "port": port}},
	"session": {"principal": {"uid": 1000}, "grant": {"exec": {}, "network": network}},
	"now_ns": 100,
}

forwarded(document) := {deny.code | some deny in decision.deny} if {
	decision := signal.decision with input as document
}

test_a_port_is_forwarded_where_the_grant_opens_it if {
	every network in [{"mode": "none", "forward": {}}, {"mode": "none", "forward": {"ports": [80, 8000]}}] {
		decision := signal.decision with input as forwarding(8000, network)
		decision.allow == true
	}
}

test_a_port_is_forwarded_nowhere_else if {
	every network in [{"mode": "none"}, {"mode": "full", "forward": null}, {"mode": "none", "forward": {"ports": []}}, {"mode": "none", "forward": {"ports": [80]}}] {
		forwarded(forwarding(8000, network)) == {"forward_not_allowed"}
	}
	forwarded(forwarding(0, {"mode": "none", "forward": {}})) == {"forward_not_allowed"}
}

test_a_forwarding_ends_with_the_grant if {
	ended := json.patch(forwarding(80, {"mode": "none", "forward": {}}), [{"op": "add", "path": "/session/grant/expires_at_ns", "value": 99}])
	forwarded(ended) == {"expired"}
}

test_nobody_forwards_into_anothers_session if {
	"operation_not_allowed" in forwarded(json.patch(forwarding(80, {"mode": "none", "forward": {}}), [{"op": "replace", "path": "/request/principal/uid", "value": 1001}]))
}
