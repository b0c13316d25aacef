package stockade.exec_test

import data.stockade.exec

base := {
	"request": {
		"op": "host.exec",
		"principal": {"uid": 1000, "gid": 1000},
		"exec": {"session_id": "s", "argv": ["true"]},
	},
	"session": {
		"principal": {"uid": 1000, "gid": 1000},
		"grant": {
			"workdir": "/workspace",
			"env": {"set": {"TZ": "UTC"}, "max": 2},
			"exec": {
				"max_argv": 3,
				"max_arg_bytes": 5,
				"output_modes": ["auto"],
				"cwd_prefixes": ["/workspace"],
				"output_prefixes": ["/workspace"],
			},
		},
	},
	"now_ns": 100,
}

exec_with(changes) := json.patch(base, [{"op": "add", "path": concat("", ["/request/exec", path]), "value": value} | some path, value in changes])

codes(document) := {deny.code | some deny in decision.deny} if {
	decision := exec.decision with input as document
}

allowed(document) if {
	decision := exec.decision with input as document
	decision.allow == true
}

test_a_command_is_allowed if allowed(base)

# R175
test_shells_may_be_switched_off if {
	without := json.patch(base, [{"op": "add", "path": "/session/grant/exec/shells", "value": false}])
	allowed(without)
	codes(json.patch(without, [{"op": "replace", "path": "/request/op", "value": "host.shell.open"}])) == {"shell_not_allowed"}
	allowed(json.patch(base, [
		{"op": "add", "path": "/session/grant/exec/shells", "value": true},
		{"op": "replace", "path": "/request/op", "value": "host.shell.open"},
	]))
}

test_a_shell_is_a_command if allowed(json.patch(base, [{"op": "replace", "path": "/request/op", "value": "host.shell.open"}]))

test_without_an_operation_nothing_is_allowed if not allowed(json.remove(base, ["/request/op"]))

test_without_a_session_nothing_is_allowed if not allowed(json.remove(base, ["/session"]))

test_without_a_grant_nothing_is_allowed if not allowed(json.remove(base, ["/session/grant"]))

test_without_a_command_nothing_is_allowed if not allowed(json.remove(base, ["/request/exec/argv"]))

test_another_operation_is_denied if codes(json.patch(base, [{"op": "replace", "path": "/request/op", "value": "blob.get"}])) == {"operation_not_allowed"}

test_another_principals_session_is_denied if {
	codes(json.patch(base, [{"op": "replace", "path": "/request/principal/uid", "value": 1001}])) == {"operation_not_allowed"}
}

# R109
test_an_ended_grant_is_denied if {
	codes(json.patch(base, [{"op": "add", "path": "/session/grant/expires_at_ns", "value": 100}])) == {"expired"}
	allowed(json.patch(base, [{"op": "add", "path": "/session/grant/expires_at_ns", "value": 101}]))
}

# R087
test_arguments_are_counted if {
	allowed(exec_with({"/argv": ["a", "b", "c"]}))
	codes(exec_with({"/argv": ["a", "b", "c", "d"]})) == {"argv_limit_exceeded"}
}

test_arguments_are_measured if {
	allowed(exec_with({"/argv": ["12345"]}))
	codes(exec_with({"/argv": ["a", "123456"]})) == {"arg_length_exceeded"}
}

# R037, R095
test_the_directory_is_below_a_granted_one if {
	allowed(exec_with({"/cwd": "/workspace/a"}))
	allowed(exec_with({"/cwd": "a/b"}))
	every cwd in ["/workspacex", "/", "/workspace/../etc", "..", "a/../../b"] {
		codes(exec_with({"/cwd": cwd})) == {"cwd_not_allowed"}
	}
}

# R041
test_names_of_a_patch if {
	allowed(exec_with({"/env_patch": {"A": "x", "B": null}}))
	codes(exec_with({"/env_patch": {"LD_PRELOAD": "x"}})) == {"env_var_not_allowed"}
	codes(exec_with({"/env_patch": {"A": "x", "B": "x", "C": "x"}})) == {"env_patch_limit_exceeded"}
}

test_what_policy_set_is_not_patched if {
	allowed(exec_with({"/env_patch": {"TZ": "UTC"}}))
	codes(exec_with({"/env_patch": {"TZ": "CET"}})) == {"env_var_not_allowed"}
	codes(exec_with({"/env_patch": {"TZ": null}})) == {"env_var_not_allowed"}
}

test_names_that_the_grant_lists if {
	listed := json.patch(base, [{"op": "add", "path": "/session/grant/env/allow", "value": ["GO*", "CC"]}])
	allowed(json.patch(listed, [{"op": "add", "path": "/request/exec/env_patch", "value": {"GOFLAGS": "x", "CC": "cc"}}]))
	codes(json.patch(listed, [{"op": "add", "path": "/request/exec/env_patch", "value": {"CCX": "x"}}])) == {"env_var_not_allowed"}
	none := json.patch(base, [{"op": "add", "path": "/session/grant/env/allow", "value": []}])
	codes(json.patch(none, [{"op": "add", "path": "/request/exec/env_patch", "value": {"A": "x"}}])) == {"env_var_not_allowed"}
}

test_output_modes if {
	allowed(exec_with({"/output_mode": "auto"}))
	codes(exec_with({"/output_mode": "require_inline"})) == {"output_mode_not_allowed"}
}

test_artifacts_come_from_granted_places if {
	allowed(exec_with({"/outputs": ["/workspace/out"]}))
	codes(exec_with({"/outputs": ["/home/x"]})) == {"output_not_allowed"}
	codes(exec_with({"/outputs": ["/workspace/../x"]})) == {"output_not_allowed"}
}

# R087: bytes, not characters.
test_arguments_are_measured_in_bytes if {
	allowed(exec_with({"/argv": ["ééa"]}))
	codes(exec_with({"/argv": ["ééé"]})) == {"arg_length_exceeded"}
	codes(exec_with({"/argv": ["a", "😀😀"]})) == {"arg_length_exceeded"}
}

# R037: what is relative is below the session's directory, and that has to be below a granted one.
test_a_relative_directory_is_no_way_around if {
	codes(json.patch(exec_with({"/cwd": "a"}), [{"op": "replace", "path": "/session/grant/workdir", "value": "/tmp"}])) == {"cwd_not_allowed"}
}

exception := {"code": "mine", "subjects": ["argv"], "uids": [1000], "until_ns": 130, "reason": "r"}

# A rule of one's own, as an author writes it, is lifted for a while, and the command ends before that does.
test_a_rule_of_ones_own_can_be_lifted if {
	marked := ["argv_limit_exceeded"]
	lifting := {"x": object.union(exception, {"code": "argv_limit_exceeded"})}
	document := json.patch(exec_with({"/argv": ["a", "b", "c", "d"]}), [{"op": "add", "path": "/session/grant/exec/max_timeout_ns", "value": 1000}])
	decision := exec.decision with input as document with data.exceptions.overridable as marked with data.exceptions.granted as lifting
	decision.allow == true
	decision.limits == {"timeout_ns": 30}
	leave := exec.decision with input as document with data.exceptions.overridable as marked with data.exceptions.granted as lifting
		with data.approval.exec as [{"argv": ["a"]}]
	leave.obligations.require_approval # an exception is nobody's leave
	count(decision.warn) == 1
	after := exec.decision with input as json.patch(document, [{"op": "replace", "path": "/now_ns", "value": 130}])
		with data.exceptions.overridable as marked
		with data.exceptions.granted as lifting
	{deny.code | some deny in after.deny} == {"argv_limit_exceeded", "expired"}
	unmarked := exec.decision with input as document with data.exceptions.granted as lifting
	unmarked.allow == false
	nothing := exec.decision with input as json.remove(document, ["/session/grant/exec/max_timeout_ns"])
		with data.exceptions.overridable as marked
		with data.exceptions.granted as lifting
	nothing.allow == false
}
