# METADATA
# title: Running a command
# description: |
#   The session's grant is the bound that was fixed at the open (R088); these rules keep a
#   command inside it. Timeouts and output sizes are clamped by the supervisor, not refused (C17).
package stockade.exec

import data.stockade.approval.required

# METADATA
# title: No answer is a denial
default decision := {"allow": false, "deny": [{"code": "policy.undefined", "subject": "exec", "message": "no rule of the policy applies"}]}

# METADATA
# title: Nothing speaks against it, and there is a session whose grant bounds it
decision := {"allow": true, "deny": [], "warn": [], "obligations": required.obligations} if {
	count(deny) == 0
	input.session.grant
	count(input.request.exec.argv) > 0
}

# METADATA
# title: Something speaks against it
decision := {"allow": false, "deny": deny, "warn": []} if count(deny) > 0

op := object.get(input, ["request", "op"], "")

# METADATA
# title: Only the operation that this package is about
deny contains {
	"code": "operation_not_allowed",
	"subject": "operation",
	"message": "this entry point decides host.exec only",
} if {
	op != "host.exec"
}

# METADATA
# title: The session is the caller's own
deny contains {
	"code": "operation_not_allowed",
	"subject": "session",
	"message": "the session belongs to another principal",
} if {
	not own_session
}

own_session if input.session.principal.uid == input.request.principal.uid

# METADATA
# title: The grant has not ended
deny contains {
	"code": "expired",
	"subject": "grant",
	"message": "the grant of the session has ended",
} if {
	input.session.grant.expires_at_ns <= input.now_ns
}
