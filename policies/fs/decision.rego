# METADATA
# title: What file tools do
# description: |
#   What is decided here is data: the fs of a session's grant against what a tool is about to do (input.file). A tool works
#   inside, as the session's identity; these rules take away from that.
# labels: {concern: fs}
package stockade.fs

import data.stockade.approval.required

# METADATA
# title: No answer is a denial
# labels: {concern: decision}
default decision := {"allow": false, "deny": [{"code": "policy.undefined", "subject": "fs", "message": "no rule of the policy applies"}]}

# METADATA
# title: Nothing speaks against it, there is a grant, and every path is within it
# labels: {concern: decision}
decision := {"allow": true, "deny": [], "warn": [], "obligations": required.obligations} if {
	deny == set()
	input.file.op in granted.ops
	count(input.file.paths) > 0
}

# METADATA
# title: Something speaks against it
# labels: {concern: decision}
decision := {"allow": false, "deny": deny, "warn": []} if deny != set()

# METADATA
# title: What file tools may do in this session
granted := input.session.grant.fs

# METADATA
# title: The session is the caller's own
# labels: {concern: principal, requirement: R090}
deny contains {"code": "operation_not_allowed", "subject": "session", "message": "the session belongs to another principal"} if not own_session

own_session if input.session.principal.uid == input.request.principal.uid

# METADATA
# title: The grant has not ended
# labels: {concern: expiry, requirement: R109}
deny contains {"code": "expired", "subject": "grant", "message": "the grant of the session has ended"} if {
	input.session.grant.expires_at_ns <= input.now_ns
}
