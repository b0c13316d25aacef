package stockade.principals_test

import data.stockade.open
import data.stockade.principals

by(uid) := {"request": {"principal": {"uid": uid}}}

test_the_superuser_is_an_administrator if principals.administrator with input as by(0)

test_another_is_none if not principals.administrator with input as by(1000)

test_data_names_others if {
	principals.administrator with input as by(1000) with data.principals.administrators as [1000]
	not principals.administrator with input as by(0) with data.principals.administrators as [1000]
}

test_nobody_is_no_administrator if not principals.administrator with input as {}

entries := {
	"default": {"profiles": ["d"]},
	"uid": {"1000": {"profiles": ["u"]}},
	"gid": {"2000": {"profiles": ["g"]}},
}

found(principal) := entry.profiles[0] if {
	entry := principals.entry with input as {"request": {"principal": principal}} with data.principals as entries
}

test_exactly_one_entry_applies if {
	found({"uid": 1000, "gid": 2000}) == "u"
	found({"uid": 1001, "gid": 2000}) == "g"
	found({"uid": 1001, "gid": 2001, "groups": [2000]}) == "d"
}

# R090: what a caller says of itself is nobody's entry.
test_claims_are_no_identity if {
	found({"uid": 1001, "gid": 2001, "scope": {"agent_id": "1000"}}) == "d"
}

test_nobody_has_no_entry if {
	every principal in [{}, {"uid": null}, {"uid": "1000"}, {"uid": [1000]}, {"uid": true}] {
		not found(principal)
	}
}

asking := {
	"request": {"op": "host.session.open", "principal": {"uid": 1000, "gid": 100}, "facade": "http", "open": {"target": {"local": {}}}},
	"facts": {},
	"ceiling": {"uids": [1, 65534]},
	"now_ns": 1000,
}

someone := {"profiles": ["workspace", "locked"], "profile": "workspace", "require_scope": []}

decided(principal, tenants) := decision if {
	decision := open.decision with input as asking with data.principals.uid as {"1000": principal} with data.tenants as tenants
}

test_a_tenant_bounds_its_callers if {
	decided(object.union(someone, {"tenant": "blue"}), {"blue": {"cap": {"ceilings": {"max": {"pids": 3}}}}}).grant.ceilings.pids == 3
	decided(object.union(someone, {"tenant": "blue"}), {"blue": {"profiles": ["locked"]}}).allow == false
	decided(object.union(someone, {"tenant": "blue", "profile": "locked"}), {"blue": {"profiles": ["locked", "interactive"]}}).grant.profile == "locked"
	decided(object.union(someone, {"tenant": "blue", "profile": "interactive"}), {"blue": {"profiles": ["locked", "interactive"]}}).allow == false
}

# R108: a tenant that is not there bounds nothing, so nothing is allowed.
test_a_tenant_that_is_misspelt_denies if {
	decision := decided(object.union(someone, {"tenant": "bleu"}), {"blue": {}})
	{deny.subject | some deny in decision.deny} == {"tenant:bleu"}
}

# R109
test_what_grants_can_end if {
	every principal, tenants in {
		object.union(someone, {"expires_at_ns": 1001}): {},
		object.union(someone, {"tenant": "blue"}): {"blue": {"expires_at_ns": 1001}},
		object.union(someone, {"cap": {"expires_at_ns": 1001}}): {},
	} {
		decision := decided(principal, tenants)
		decision.grant.expires_at_ns == 1001
		decision.grant.ttl_ns == 1
		after := open.decision with input as json.patch(asking, [{"op": "replace", "path": "/now_ns", "value": 1001}])
			with data.principals.uid as {"1000": principal} with data.tenants as tenants
		{deny.code | some deny in after.deny} == {"expired"}
	}
	decided(someone, {}).grant.expires_at_ns == 0
}
