package stockade.labels_test

import data.stockade.labels
import data.stockade.open

asking(labelled) := {
	"request": {"op": "host.session.open", "principal": {"uid": 1000, "gid": 1000}, "facade": "http", "open": object.union({"target": {"local": {}}}, labelled)},
	"facts": {},
	"ceiling": {"uids": [1, 65534]},
	"now_ns": 1000,
}

rules := [
	{"match": {"purpose": "review"}, "profile": "readonly-review"},
	{"match": {"data": "secret", "env": "prod"}, "cap": {"networks": ["none"]}},
]

decided(open) := decision if {
	decision := data.stockade.open.decision with input as asking(open) with data.labels.rules as rules
}

test_a_label_chooses_a_profile if {
	decided({"labels": {"purpose": "review"}}).grant.profile == "readonly-review"
	decided({"labels": {"purpose": "work"}}).grant.profile == "workspace"
	decided({}).grant.profile == "workspace"
}

test_who_names_a_profile_gets_that if decided({"labels": {"purpose": "review"}, "profile": "locked"}).grant.profile == "locked"

# R090: a label chooses nothing that the caller may not use.
test_a_label_opens_no_profile if {
	decision := open.decision with input as asking({"labels": {"purpose": "review"}})
		with data.labels.rules as rules
		with data.principals.uid as {"1000": {"profiles": ["workspace"], "profile": "workspace", "require_scope": []}}
	{deny.code | some deny in decision.deny} == {"profile_not_allowed"}
}

test_all_labels_of_a_rule_have_to_fit if {
	asked := {"target": {"local": {"network_mode": "egress"}}}
	decided(object.union(asked, {"labels": {"data": "secret"}})).allow == true
	decided(object.union(asked, {"labels": {"data": "secret", "env": "prod", "other": "x"}})).allow == false
}

test_labels_are_compared_as_they_are if {
	every value in ["Secret", "secret ", "sеcret", "SECRET", ""] { # the third has a Cyrillic letter
		not labels.matches({"match": {"data": "secret"}}) with input as asking({"labels": {"data": value}})
	}
}

# So what must not be left out is required.
test_a_label_can_be_required if {
	every principal in [{"require_labels": ["data"]}, {"tenant": "blue"}] {
		needed := {"1000": object.union(data.principals["default"], principal)}
		tenants := {"blue": {"require_labels": ["data"]}}
		without := open.decision with input as asking({}) with data.principals.uid as needed with data.tenants as tenants
		{deny.code | some deny in without.deny} == {"label_required"}
		empty := open.decision with input as asking({"labels": {"data": ""}}) with data.principals.uid as needed with data.tenants as tenants
		{deny.subject | some deny in empty.deny} == {"label:data"}
		there := open.decision with input as asking({"labels": {"data": "public"}}) with data.principals.uid as needed with data.tenants as tenants
		there.allow == true
	}
}

test_a_running_sessions_labels_are_its_own if {
	labels.asked == {"a": "b"} with input as {"request": {"op": "host.exec"}, "session": {"labels": {"a": "b"}}}
}
