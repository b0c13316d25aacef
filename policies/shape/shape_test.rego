package stockade.shape_test

import data.stockade
import data.stockade.shape

test_the_shipped_data_is_without_fault if count(stockade.faults) == 0

workspace := data.profiles.workspace

faults_with(patches) := shape.faults("profiles.workspace", changed, shape.profile) | shape.lacking("profiles.workspace", changed, shape.needed) if {
	changed := json.patch(workspace, patches)
}

# A member that is misspelt bounds nothing, so it is a fault.
test_unknown_members_are_faults if {
	every path, fault in {
		"/cwd_prefixes": "profiles.workspace: cwd_prefixes is not known in \"\"",
		"/exec/cwd_prefix": "profiles.workspace: cwd_prefix is not known in \"exec\"",
		"/ceilings/maximum": "profiles.workspace: maximum is not known in \"ceilings\"",
		"/fs/max_reads": "profiles.workspace: max_reads is not known in \"fs\"",
	} {
		fault in faults_with([{"op": "add", "path": path, "value": ["x"]}])
	}
}

test_values_have_their_kind if {
	every path, values in {
		"/exec/max_argv": [-1, 1.5, "7", null, 9223372036854775808, true],
		"/exec/cwd_prefixes": ["/", ["/a"], ["a/"], ["//"], [7], null],
		"/ceilings/max": [{"memory": 1}, {"pids": -1}, []],
		"/mounts/rw_is": ["overlays", true],
		"/mounts/owner": ["anybody"],
		"/networks": ["none", [1], {"none": true}],
		"/egress": [[{}], [{"name": "a", "cidr": "b"}], [{"name": "a", "port": 1}], [{"name": "a", "ports": []}], [{"name": "a", "ports": [-1]}]],
		"/scratch": [[{"guest_path": "/tmp", "bytes": 1}], [{"guest_path": "tmp", "bytes": 1, "inodes": 1}]],
		"/verify": ["canari"],
		"/commit": ["false", null],
		"/mounts": [[], null, 7],
		"/fs/follow_symlinks": ["never"],
		"/fs/ops": ["read"],
		"/mounts/protect": [{"x": 1}, ["x"]],
		"/env/allow": ["*", null],
		"/expires_at_ns": [0, -1],
	} {
		every value in values {
			count(faults_with([{"op": "add", "path": path, "value": value}])) > 0
		}
	}
}

test_a_profile_is_complete if {
	every path in ["/mounts/max", "/env/max", "/exec/max_timeout_ns", "/networks", "/identity/uid", "/ttl/max_ns"] {
		count(faults_with([{"op": "remove", "path": path}])) > 0
	}
}

test_a_default_is_listed if {
	found := stockade.faults with data.profiles.workspace.default_root as "image"
	found == {"profiles.workspace: image is none of its roots"}
}

someone := {"profiles": ["workspace"], "profile": "workspace", "require_scope": []}

test_principals_are_looked_through if {
	every change in [{"profiles": ["work"]}, {"profile": "work"}, {"tenant": "nobody-has-this-name"}, {"capp": {}}, {"cap": {"network": []}}, {"cap": {"commit": "no"}}, {"require_label": ["x"]}] {
		found := stockade.faults with data.principals.uid as {"1000": object.union(someone, change)}
		count(found) > 0
	}
	fine := stockade.faults with data.principals.uid as {"1000": object.union(someone, {"cap": {"networks": []}})}
	count(fine) == 0
	named := stockade.faults with data.principals.uid as {"alice": someone, "01": someone}
	named == {"principals.uid.alice is no id", "principals.uid.01 is no id"}
	typo := stockade.faults with data.principals.uids as {}
	typo == {"principals.uids is not known"}
	administrators := stockade.faults with data.principals.administrators as ["root"]
	administrators == {"principals.administrators is no list of ids"}
}

test_tenants_and_labels_are_looked_through if {
	tenants := stockade.faults with data.tenants as {"blue": {"caps": {}}}
	tenants == {"tenants.blue: caps is not known in \"\""}
	rules := stockade.faults with data.labels.rules as [{"match": {"a": 1}}, {"cap": {}}, {"match": {}, "profil": "x"}]
	count(rules) == 3
}

exception := {"code": "scope_required", "subjects": ["scope:agent_id"], "uids": [1], "until_ns": 5, "reason": "r"}

test_exceptions_are_looked_through if {
	every change in [{"code": "mount_host_path_not_allowed"}, {"until_ns": "tomorrow"}, {"subjects": "x"}, {"forever": true}, {"uids": ["1"]}] {
		found := stockade.faults with data.exceptions.granted as {"x": object.union(exception, change)}
		count(found) > 0
	}
	every member in ["code", "subjects", "until_ns", "reason", "uids"] {
		found := stockade.faults with data.exceptions.granted as {"x": object.remove(exception, [member])}
		count(found) > 0
	}
	fine := stockade.faults with data.exceptions.granted as {"x": exception}
	count(fine) == 0
}

test_an_unknown_kind_fits_nothing if not shape.fits("colour", "red")
