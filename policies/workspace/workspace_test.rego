package stockade.workspace_test

import data.stockade.workspace

asking(op) := {
	"request": {"op": op, "principal": {"uid": 1000}, "workspace": {"session_id": "s", "guest_path": "/workspace"}},
	"session": {"principal": {"uid": 1000}, "profile": "workspace", "grant": {"mounts": [{"guest_path": "/workspace", "mode": "overlay"}]}},
	"now_ns": 100,
}

commit := asking("host.workspace.commit")

discard := asking("host.workspace.discard")

codes(document) := {deny.code | some deny in decision.deny} if {
	decision := workspace.decision with input as document
}

allowed(document) if {
	decision := workspace.decision with input as document
	decision.allow == true
}

test_ones_own_overlay_is_committed if allowed(commit)

test_ones_own_overlay_is_discarded if allowed(discard)

test_another_principals_overlay_is_not if {
	every document in [commit, discard] {
		codes(json.patch(document, [{"op": "replace", "path": "/request/principal/uid", "value": 1001}])) == {"operation_not_allowed"}
	}
}

test_another_operation_is_denied if {
	every op in ["host.workspace.diff", "host.exec", ""] {
		codes(asking(op)) == {"operation_not_allowed"}
	}
}

# R108
test_what_is_not_said_allows_nothing if {
	every document in [commit, discard] {
		every path in ["/request", "/request/op", "/request/principal", "/request/workspace", "/session", "/session/principal", "/session/grant"] {
			not allowed(json.remove(document, [path]))
		}
	}
	codes({}) == {"operation_not_allowed"}
}

# R109: what a grant no longer permits is not made permanent; to forget it is always right.
test_an_ended_grant_commits_nothing if {
	ended := {"op": "add", "path": "/session/grant/expires_at_ns", "value": 100}
	codes(json.patch(commit, [ended])) == {"expired"}
	allowed(json.patch(discard, [ended]))
	allowed(json.patch(commit, [object.union(ended, {"value": 101})]))
}

test_a_profile_can_keep_its_overlays_apart if {
	decision := workspace.decision with input as commit with data.profiles.workspace.commit as false
	{deny.subject | some deny in decision.deny} == {"commit"}
	forgotten := workspace.decision with input as discard with data.profiles.workspace.commit as false
	forgotten.allow == true
}

# R090, R092: a cap of the caller, its tenant or the session's labels keeps a session from committing.
test_a_cap_commits_nothing if {
	labelled := json.patch(commit, [{"op": "add", "path": "/session/labels", "value": {"trial": "yes"}}])
	decision := workspace.decision with input as labelled with data.labels.rules as [{"match": {"trial": "yes"}, "cap": {"commit": false}}]
	{deny.subject | some deny in decision.deny} == {"commit"}
	other := workspace.decision with input as commit with data.labels.rules as [{"match": {"trial": "yes"}, "cap": {"commit": false}}]
	other.allow == true
	tenant := workspace.decision with input as commit
		with data.principals.uid as {"1000": object.union(data.principals["default"], {"tenant": "blue"})}
		with data.tenants as {"blue": {"cap": {"commit": false}}}
	tenant.allow == false
}
