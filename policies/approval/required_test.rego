package stockade.approval.required_test

import data.stockade
import data.stockade.approval.required
import data.stockade.exec
import data.stockade.fs

command(argv) := {
	"request": {"op": "host.exec", "principal": {"uid": 1000, "gid": 1000}, "exec": {"session_id": "s", "argv": argv}},
	"session": {"profile": "workspace", "principal": {"uid": 1000, "gid": 1000}, "grant": {"env": {}, "exec": {"max_argv": 9, "max_arg_bytes": 99}}},
	"now_ns": 1,
}

open(host_path, mode, network) := {
	"request": {
		"op": "host.session.open",
		"principal": {"uid": 1000, "gid": 1000},
		"open": {"target": {"local": {"network_mode": network, "mounts": [{"host_path": host_path, "guest_path": "/work", "mode": mode}]}}},
	},
	"facts": {"sources": {"/link": {"resolved": "/srv/prod/data"}, "/srv": {"resolved": "/srv"}, "/srv/production": {"resolved": "/srv/production"}}},
}

lists := {
	"timeout_ns": 60000000000,
	"exec": [
		{"argv": ["git", "push"], "reason": "it publishes"},
		{"argv": ["kubectl", "*", "delete"]},
		{"argv": ["make"], "profiles": ["hermetic"]},
	],
	"mounts": [{"host_path": "/srv/prod", "modes": ["rw"], "reason": "it is production"}],
	"files": [{"path": "/work/deploy", "reason": "it is deployed"}, {"path": "/work/keys", "ops": ["read"], "profiles": ["workspace"]}],
	"networks": [{"mode": "full", "reason": "it reaches everything"}],
	"operations": [{"op": "host.workspace.commit", "reason": "it is for good"}],
}

reasons(document) := result if {
	result := required.reasons with input as document with data.approval as lists
}

none := {"timeout_ns": 1, "exec": [], "mounts": [], "files": [], "networks": [], "operations": []}

tool(op, resolved, write) := {
	"request": {"op": "host.fs.x", "principal": {"uid": 1000, "gid": 1000}},
	"session": {"profile": "workspace", "principal": {"uid": 1000, "gid": 1000}, "grant": {"fs": {"ops": [op]}}},
	"file": {"op": op, "paths": [{"path": "x", "resolved": resolved, "write": write}]},
	"now_ns": 1,
}

# R091
test_a_file_of_the_list if {
	reasons(tool("edit", "/work/deploy/x", true)) == {"it is deployed"}
	reasons(tool("write", "/work/deploy", true)) == {"it is deployed"}
	reasons(tool("read", "/work/keys/a", false)) == {"policy wants somebody's leave"}
	fs.decision.obligations.require_approval.reason == "it is deployed" with input as tool("edit", "/work/deploy/x", true) with data.approval as lists
}

test_another_file if {
	reasons(tool("read", "/work/deploy/x", false)) == set()
	reasons(tool("edit", "/work/deployed", true)) == set()
	reasons(tool("write", "/work/keys/a", true)) == set()
	reasons(json.patch(tool("read", "/work/keys/a", false), [{"op": "replace", "path": "/session/profile", "value": "x"}])) == set()
}

test_without_a_list_nothing_needs_leave if {
	required.obligations == {} with input as command(["git", "push"]) with data.approval as none
	required.obligations == {} with input as open("/link", "rw", "full") with data.approval as none
}

test_a_command_that_begins_so if {
	reasons(command(["git", "push"])) == {"it publishes"}
	reasons(command(["/usr/bin/git", "push", "--force"])) == {"it publishes"}
	reasons(command(["kubectl", "-n=x", "delete", "pod"])) == {"policy wants somebody's leave"}
}

test_another_command if {
	reasons(command(["git", "pull"])) == set()
	reasons(command(["git"])) == set()
	reasons(command(["mygit", "push"])) == set()
	reasons(command(["make"])) == set()
}

test_a_profile_of_the_rule if {
	reasons(json.patch(command(["make"]), [{"op": "replace", "path": "/session/profile", "value": "hermetic"}])) == {"policy wants somebody's leave"}
}

test_a_mount_by_what_it_led_to if {
	reasons(open("/link", "rw", "none")) == {"it is production"}
	reasons(open("/srv", "rw", "none")) == {"it is production"}
	reasons(open("/link", "ro", "none")) == set()
	reasons(open("/srv/production", "rw", "none")) == set()
}

test_a_network if reasons(open("/srv/production", "rw", "full")) == {"it reaches everything"}

test_an_operation if reasons({"request": {"op": "host.workspace.commit"}}) == {"it is for good"}

test_the_lists_are_looked_through if {
	every change in [
		{"op": "replace", "path": "/exec/0", "value": {"args": ["git"]}},
		{"op": "replace", "path": "/exec/0", "value": {"argv": []}},
		{"op": "replace", "path": "/exec/0", "value": {"argv": ["git"], "profiles": ["work"]}},
		{"op": "replace", "path": "/exec", "value": {"git": "push"}},
		{"op": "remove", "path": "/exec"},
		{"op": "remove", "path": "/timeout_ns"},
		{"op": "replace", "path": "/timeout_ns", "value": 0},
		{"op": "replace", "path": "/mounts/0", "value": {"path": "/srv"}},
		{"op": "replace", "path": "/mounts/0", "value": {"host_path": "srv"}},
		{"op": "replace", "path": "/mounts/0", "value": {"host_path": "/srv", "modes": ["write"]}},
		{"op": "replace", "path": "/networks/0", "value": "full"},
		{"op": "replace", "path": "/operations/0", "value": {}},
		{"op": "add", "path": "/operation", "value": []},
	] {
		found := stockade.faults with data.approval as json.patch(lists, [change])
		count(found) > 0
	}
	fine := stockade.faults with data.approval as lists
	count(fine) == 0
}

test_approvers_are_looked_through if {
	found := stockade.faults with data.principals.approvers as ["root"]
	found == {"principals.approvers is no list of ids"}
}

test_it_is_an_obligation_of_the_decision if {
	decision := exec.decision with input as command(["git", "push"]) with data.approval as lists with data.principals.approvers as [1001] with data.principals.administrators as [0]
	decision.allow == true
	decision.obligations.require_approval == {"reason": "it publishes", "timeout_ns": 60000000000, "approvers": {"uids": {0, 1001}}, "allow_own": false}
}

# {} is no obligation that the supervisor takes: it denies.
test_what_cannot_be_said_is_not_left_out if {
	required.obligations == {"require_approval": {}} with input as command(["git", "push"]) with data.approval as object.remove(lists, ["timeout_ns"])
}

test_an_administrator_may_give_himself_leave if {
	decision := exec.decision with input as json.patch(command(["git", "push"]), [
		{"op": "replace", "path": "/request/principal/uid", "value": 0},
		{"op": "replace", "path": "/session/principal/uid", "value": 0},
	])
		with data.approval as lists
		with data.principals.administrators as [0]
	decision.obligations.require_approval.allow_own == true
}

test_what_is_denied_does_not_wait if {
	decision := exec.decision with input as json.remove(command(["git", "push"]), ["/session/grant"]) with data.approval as lists
	not decision.allow
}
