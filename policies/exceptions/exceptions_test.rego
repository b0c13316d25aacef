package stockade.exceptions_test

import data.stockade.exceptions
import data.stockade.open

asking := {
	"request": {
		"op": "host.session.open", "principal": {"uid": 1000, "gid": 100}, "facade": "http",
		"open": {"target": {"local": {"network_mode": "egress", "egress": [{"name": "api.example.org", "ports": [443]}]}}},
	},
	"facts": {},
	"ceiling": {"uids": [1, 65534]},
	"now_ns": 1000,
}

exception := {
	"code": "destination_not_allowed", "subjects": ["egress:api.example.org:443"],
	"uids": [1000], "until_ns": 5000, "reason": "the migration",
}

decided(document, exceptions) := decision if {
	decision := open.decision with input as document with data.exceptions.granted as exceptions
}

codes(decision) := {deny.code | some deny in decision.deny}

test_without_one_it_is_denied if codes(decided(asking, {})) == {"destination_not_allowed"}

# An exception lifts the denial, is in the record, and the session ends with it.
test_an_exception_lifts_is_told_and_ends_the_session if {
	decision := decided(asking, {"move": exception})
	decision.allow == true
	decision.grant.network == {"mode": "egress", "allow": [{"name": "api.example.org", "ports": [443]}], "forward": {}}
	decision.grant.ttl_ns == 4000
	decision.grant.expires_at_ns == 5000
	decision.warn == {"exception move lifts destination_not_allowed until 5000: the migration"}
}

test_one_that_is_not_needed_changes_nothing if {
	plain := json.remove(asking, ["/request/open/target/local/egress"])
	decided(plain, {"move": exception}) == decided(plain, {})
}

# R109
test_an_ended_one_denies_and_says_so if {
	every now in [5000, 5001, 9223372036854775807] {
		codes(decided(json.patch(asking, [{"op": "replace", "path": "/now_ns", "value": now}]), {"move": exception})) == {"destination_not_allowed", "expired"}
	}
}

test_one_that_has_not_begun_lifts_nothing if {
	codes(decided(asking, {"move": object.union(exception, {"from_ns": 1001})})) == {"destination_not_allowed"}
	decided(asking, {"move": object.union(exception, {"from_ns": 1000})}).allow == true
}

# R090, R108: for another, about something else, of another code, without an end, for nobody: nothing is lifted.
test_one_that_does_not_fit_lifts_nothing if {
	every other in [
		{"uids": [1001]}, {"uids": ["1000"]}, {"uids": []}, {"subjects": ["egress:api.example.org"]}, {"subjects": ["egress:*"]},
		{"subjects": []}, {"subjects": "egress:api.example.org:443"}, {"code": "mount_host_path_not_allowed"}, {"code": "x"}, {"until_ns": 1000},
	] {
		decision := decided(asking, {"move": object.union(exception, other)})
		decision.allow == false
	}
	every member in ["code", "subjects", "uids", "until_ns"] {
		decision := decided(asking, {"move": object.remove(exception, [member])})
		decision.allow == false
	}
}

test_one_for_a_tenant_is_for_its_callers if {
	theirs := {"move": object.union(object.remove(exception, ["uids"]), {"tenants": ["blue"]})}
	blue := {"1000": object.union(data.principals["default"], {"tenant": "blue"})}
	decision := open.decision with input as asking with data.exceptions.granted as theirs with data.principals.uid as blue with data.tenants as {"blue": {}}
	decision.allow == true
	decided(asking, theirs).allow == false
}

# What leads where, and who owns it, is nobody's to lift.
test_what_is_not_overridable_is_not_lifted if {
	document := json.patch(asking, [
		{"op": "remove", "path": "/request/open/target/local/egress"},
		{"op": "add", "path": "/request/open/target/local/mounts", "value": [{"host_path": "/etc", "guest_path": "/workspace", "mode": "ro"}]},
		{"op": "add", "path": "/facts/sources", "value": {"/etc": {"resolved": "/etc", "kind": "dir", "owner_uid": 1000}}},
	])
	some subject in ["mount:/etc", "mounts"]
	lifting := {"x": object.union(exception, {"code": "mount_host_path_not_allowed", "subjects": [subject]})}
	decided(document, lifting).allow == false
	forced := open.decision with input as document with data.exceptions.granted as lifting
		with data.exceptions.overridable as ["mount_host_path_not_allowed"]
	not forced.grant.mounts[0]
}

lifting(code, subject) := {"x": {"code": code, "subjects": [subject], "uids": [1000], "until_ns": 5000, "reason": "r"}}

with_open(changes) := json.patch(asking, array.concat(
	[{"op": "remove", "path": "/request/open/target/local/egress"}, {"op": "remove", "path": "/request/open/target/local/network_mode"}],
	[{"op": "add", "path": concat("", ["/request/open", path]), "value": value} | some path, value in changes],
))

# Each overridable code of this library is lifted, and what it stood before is granted.
test_each_overridable_code_is_lifted if {
	network := decided(with_open({"/target/local/network_mode": "full"}), lifting("network_mode_not_allowed", "network:full"))
	network.grant.network.mode == "full"
	network.grant.ttl_ns == 4000

	walls := decided(with_open({"/profile": "hermetic", "/target/local/root": {"dir": {"path": "/srv"}}, "/accept_degraded": ["landlock"]}), lifting("degraded_not_allowed", "degraded:landlock"))
		with input.facts.sources as {}
	"degraded_not_allowed" in {deny.code | some deny in decided(with_open({"/profile": "locked", "/accept_degraded": ["landlock"]}), {}).deny}
	decided(with_open({"/profile": "locked", "/accept_degraded": ["landlock"]}), lifting("degraded_not_allowed", "degraded:landlock")).grant.accept_degraded == ["landlock"]
	walls.allow == false

	decided(with_open({"/profile": "locked", "/allow_background_processes": true}), lifting("background_not_allowed", "allow_background_processes")).grant.exec.background == true

	profile := open.decision with input as with_open({"/profile": "interactive"})
		with data.exceptions.granted as lifting("profile_not_allowed", "profile:interactive")
		with data.principals.uid as {"1000": {"profiles": ["workspace"], "profile": "workspace", "require_scope": []}}
	profile.grant.profile == "interactive"

	every requirement, denial in {"require_scope": ["scope_required", "scope:x"], "require_labels": ["label_required", "label:x"]} {
		principal := object.union(data.principals["default"], {requirement: ["x"]})
		without := open.decision with input as with_open({}) with data.principals.uid as {"1000": principal}
		without.allow == false
		lifted := open.decision with input as with_open({}) with data.principals.uid as {"1000": principal}
			with data.exceptions.granted as lifting(denial[0], denial[1])
		lifted.allow == true
	}
}

# A profile that is not there is not made by an exception.
test_an_unknown_profile_is_not_lifted if {
	decided(with_open({"/profile": "root"}), lifting("profile_not_allowed", "profile:root")).allow == false
}

# A rule of one's own is lifted by an exception when its code is marked; a denial without a code or a subject never is.
test_denials_without_a_code_stand if {
	every denial in [{}, {"code": "mine"}, {"subject": "s"}, "mine", 7, {"code": "mine", "subject": null}] {
		not exceptions.lifted(denial) with input as asking
			with data.exceptions.overridable as ["mine"]
			with data.exceptions.granted as lifting("mine", "s")
	}
	exceptions.lifted({"code": "mine", "subject": "s"}) with input as asking
		with data.exceptions.overridable as ["mine"]
		with data.exceptions.granted as lifting("mine", "s")
}

# R084: who may reach a name for a while may not reach it without its word.
test_an_exception_for_a_name_wants_the_name if {
	every other in [{"protocol": "tcp"}, {"ports": [443, 22]}, {"name": "*.example.org"}] {
		wanted := object.union({"name": "api.example.org", "ports": [443]}, other)
		document := json.patch(asking, [{"op": "replace", "path": "/request/open/target/local/egress", "value": [wanted]}])
		decision := decided(document, {"move": exception})
		decision.allow == false
	}
}
