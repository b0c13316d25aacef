package stockade.caps_test

import data.stockade.caps
import data.stockade.open

asking(open) := {
	"request": {"op": "host.session.open", "principal": {"uid": 1000, "gid": 100}, "facade": "http", "open": object.union({"target": {"local": {}}}, open)},
	"facts": {},
	"ceiling": {"uids": [1, 65534]},
	"now_ns": 1000,
}

someone := {"profiles": ["workspace", "readonly-review"], "profile": "workspace", "require_scope": []}

granted(open, principal, tenants, rules) := decision.grant if {
	decision := data.stockade.open.decision with input as asking(open)
		with data.principals.uid as {"1000": principal}
		with data.tenants as tenants
		with data.labels.rules as rules
}

capped(cap) := granted({}, object.union(someone, {"cap": cap}), {}, [])

test_nothing_narrows_a_profile_without_caps if {
	count(caps.applied) == 0 with input as asking({})
	granted({}, someone, {}, []).ceilings.memory_bytes == 1073741824
}

test_a_cap_without_members_bounds_nothing if {
	flat(capped({})) == flat(granted({}, someone, {}, []))
}

# What a document holds, whatever the order of its lists.
flat(document) := {[[part | some part in path; is_string(part)], value] | walk(json.unmarshal(json.marshal(document)), [path, value]); not is_object(value); not is_array(value)}

# R082 to R087: each part of a cap bounds what it names and nothing else.
test_a_cap_bounds_what_it_names if {
	plain := capped({})
	every cap, changed in caps_and_parts {
		got := capped(json.unmarshal(cap))
		every member, value in changed {
			object.get(got, split(member, "."), "(absent)") == value
		}
		parts := {split(member, ".")[0] | some member, _ in changed}
		object.remove(got, parts) == object.remove(plain, parts)
	}
}

caps_and_parts := {
	`{}`: {},
	`{"ceilings": {"max": {"memory_bytes": 7}}}`: {"ceilings.memory_bytes": 7},
	`{"ceilings": {"default": {"pids": 5}}}`: {"ceilings.pids": 5},
	`{"ceilings": {"max": {"cpu_time_ns": 9}}}`: {"ceilings.cpu_time_ns": 9},
	`{"ceilings": {"max": {"memory_bytes": 99999999999}}}`: {"ceilings.memory_bytes": 1073741824},
	`{"ttl": {"max_ns": 60}}`: {"ttl_ns": 60},
	`{"idle": {"max_ns": 60}}`: {"idle_timeout_ns": 60},
	`{"env": {"max": 3, "allow": ["A"]}}`: {"env.max": 3, "env.allow": {"A"}},
	`{"exec": {"max_timeout_ns": 5, "default_timeout_ns": 4}}`: {"exec.max_timeout_ns": 5, "exec.default_timeout_ns": 4},
	`{"exec": {"max_argv": 2, "signals": ["TERM", "ABRT"], "output_modes": [], "cwd_prefixes": ["/workspace/"], "output_prefixes": ["/tmp/"]}}`: {"exec.max_argv": 2, "exec.signals": {"TERM"}, "exec.output_modes": set(), "exec.cwd_prefixes": {"/workspace/"}, "exec.output_prefixes": {"/tmp/"}},
	`{"fs": {"ops": ["read", "write"], "roots": ["/workspace/"], "max_read_bytes": 10, "follow_symlinks": "deny"}}`: {"fs.ops": {"read", "write"}, "fs.roots": {"/workspace/"}, "fs.max_read_bytes": 10, "fs.follow_symlinks": "deny"},
	`{"verify": "canary"}`: {"verify": "canary"},
	`{"on_restart": "terminate"}`: {"on_restart": "terminate"},
	`{"expires_at_ns": 1500}`: {"expires_at_ns": 1500, "ttl_ns": 500},
}

# R090: the caller's own word, with the tenant's and the label's, is the least of all, in whatever order.
test_caps_meet if {
	bound := {"ceilings": {"max": {"memory_bytes": 3}}}
	lower := {"ceilings": {"max": {"memory_bytes": 2}}}
	some first, second in {bound: lower, lower: bound}
	got := granted(
		{"labels": {"data": "secret"}}, object.union(someone, {"tenant": "blue", "cap": first}),
		{"blue": {"cap": second}}, [{"match": {"data": "secret"}, "cap": {"ceilings": {"max": {"memory_bytes": 4}}}}],
	)
	got.ceilings.memory_bytes == 2
}

test_prefixes_meet_by_components if {
	layers := {{"exec": {"cwd_prefixes": ["/a/", "/b/c/"]}}, {"exec": {"cwd_prefixes": ["/a/x/", "/ab/", "/b/"]}}}
	caps.prefixes(layers, ["exec"], {"cwd_prefixes"}) == {"cwd_prefixes": {"/a/x/", "/b/c/"}}
}

test_names_meet_by_patterns if {
	layers := {{"env": {"allow": ["LC_*", "A", "B*"]}}, {"env": {"allow": ["LC_ALL", "B*", "C"]}}}
	caps.names(layers, ["env"], {"allow"}) == {"allow": {"LC_ALL", "B*"}}
}

test_an_empty_list_is_nothing_and_an_absent_one_any if {
	layers := {{"networks": ["none"]}, {"networks": []}, {}}
	caps.common(layers, [], {"networks"}) == {"networks": set()}
	caps.common({{}, {"x": 1}}, [], {"networks"}) == {}
}

# R083, R084, R112
test_caps_refuse_what_is_asked_for if {
	every cap, code in {
		`{"networks": ["none"]}`: "network_mode_not_allowed",
		`{"networks": []}`: "network_mode_not_allowed",
		`{"targets": []}`: "target_not_allowed",
		`{"roots": ["dir"]}`: "root_not_allowed",
		`{"workdir_prefixes": ["/workspace/"]}`: "workdir_not_allowed",
		`{"background": {"allowed": false}}`: "background_not_allowed",
		`{"env": {"allow": ["A"]}}`: "env_var_not_allowed",
		`{"env": {"max": 0}}`: "env_limit_exceeded",
		`{"degradable": []}`: "degraded_not_allowed",
	} {
		decision := data.stockade.open.decision with input as asking({
			"accept_degraded": ["landlock"], "allow_background_processes": true,
			"target": {"local": {"network_mode": "egress", "env": {"B": "x"}}},
		})
			with data.principals.uid as {"1000": object.union(someone, {"cap": json.unmarshal(cap)})}
		decision.allow == false
		code in {deny.code | some deny in decision.deny}
	}
}

test_a_profile_that_forbids_background_by_a_cap_is_silent_about_it if capped({"background": {"allowed": false}}).exec.background == false

# A list of destinations in a cap is all that is reached, also where everything would be.
test_destinations_meet if {
	asked := asking({"target": {"local": {"network_mode": "egress"}}})
	got := open.decision.grant.network.allow with input as asked
		with data.profiles.workspace.egress as [{"name": "*.a.org"}, {"name": "b.org"}, {"cidr": "8.8.0.0/16", "ports": [53, 443]}]
		with data.principals.uid as {"1000": object.union(someone, {"cap": {"egress": [{"name": "x.a.org"}, {"name": "c.org"}, {"cidr": "8.8.8.0/24", "ports": [53]}]}})}
	{d | some d in got} == {{"name": "x.a.org"}, {"cidr": "8.8.8.0/24", "ports": [53]}}
}

test_full_is_more_than_a_list if {
	decision := open.decision with input as asking({"target": {"local": {"network_mode": "full"}}})
		with data.profiles.workspace.networks as ["full"]
		with data.principals.uid as {"1000": object.union(someone, {"cap": {"egress": [{"name": "x.a.org"}]}})}
	"network_mode_not_allowed" in {deny.code | some deny in decision.deny}
}

test_a_cap_gives_no_file_tools if {
	got := open.decision.grant with input as asking({})
		with data.profiles.workspace as json.remove(data.profiles.workspace, ["/fs"])
		with data.principals.uid as {"1000": object.union(someone, {"cap": {"fs": {"ops": ["read"]}}})}
	got.fs == null
}
