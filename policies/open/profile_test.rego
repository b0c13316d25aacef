package stockade.open_test

import data.stockade.open

test_a_profile_may_be_named if granted(changed(base, {"/request/open/profile": "workspace"})).profile == "workspace"

test_the_principal_has_a_profile_of_its_own if granted(base).profile == "workspace"

test_an_unknown_profile_is_denied if {
	"profile_not_allowed" in codes(changed(base, {"/request/open/profile": "everything"}))
}

test_a_profile_that_is_not_the_principals_is_denied if {
	decision := open.decision with input as changed(base, {"/request/open/profile": "hermetic"})
		with data.principals.uid as {"1000": {"profiles": ["workspace"], "profile": "workspace", "require_scope": []}}
	"profile_not_allowed" in {deny.code | some deny in decision.deny}
}

# R090
test_a_scope_can_be_required if {
	required := {"1000": {"profiles": ["workspace"], "profile": "workspace", "require_scope": ["agent_id"]}}
	without := open.decision with input as base with data.principals.uid as required
	{deny.code | some deny in without.deny} == {"scope_required"}
	with_scope := open.decision with input as changed(base, {"/request/open/scope": {"agent_id": "a"}}) with data.principals.uid as required
	with_scope.allow == true
}
