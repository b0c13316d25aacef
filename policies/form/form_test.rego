package stockade.form_test

import data.stockade.form

base := {"now_ns": 1, "session": {"grant": {"exec": {"max_argv": 3}, "env": {"set": {"A": "b"}}, "expires_at_ns": 2}}}

with_value(path, value) := json.patch(base, [{"op": "add", "path": path, "value": value}])

test_a_grant_is_bounded if {
	form.bounded with input as base
	form.named with input as base
}

test_another_form_is_none if {
	every path in ["/session/grant", "/session/grant/exec", "/session/grant/exec/max_argv", "/session/grant/exec/signals", "/session/grant/expires_at_ns", "/now_ns"] {
		every value in [null, "x"] {
			not form.bounded with input as with_value(path, value)
		}
	}
	every path in ["/session/grant/env", "/session/grant/env/set", "/session/grant/env/set/A", "/session/grant/env/max"] {
		not form.named with input as with_value(path, null)
	}
}

test_without_an_end_no_time_is_needed if form.timed with input as {"session": {"grant": {}}}

test_an_end_needs_a_time if not form.timed with input as json.remove(base, ["/now_ns"])
