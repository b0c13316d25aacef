package stockade.open_test

import data.stockade.open

# One request that is allowed and one that is denied, beside each rule.
test_a_session_with_the_label_is_allowed if {
	decision := open.decision with input as changed(base, {"/request/open/labels": {"ticket": "OPS-1"}})
		with data.local.required_labels as ["ticket"]
	decision.allow == true
}

test_a_session_without_the_label_is_denied if {
	decision := open.decision with input as base with data.local.required_labels as ["ticket"]
	{deny.code | some deny in decision.deny} == {"label_required"}
}
