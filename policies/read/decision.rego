# METADATA
# title: Reading
# description: |
#   Operations without effect. The supervisor shows a principal its own sessions and
#   receipts only; these rules say that it may look at all.
package stockade.read

# METADATA
# title: No answer is a denial
default decision := {"allow": false, "deny": [{"code": "policy.undefined", "subject": "read", "message": "no rule of the policy applies"}]}

# METADATA
# title: Every principal may look at what is its own
decision := {"allow": true, "deny": [], "warn": []} if {
	count(deny) == 0
	op in operations
}

# METADATA
# title: Something speaks against it
decision := {"allow": false, "deny": deny, "warn": []} if count(deny) > 0

# METADATA
# title: The operations that this package is about
operations := {
	"host.session.get",
	"host.session.list",
	"host.process.output",
	"receipt.get",
	"receipt.list",
	"receipt.checkpoint",
	"host.info",
	"policy.decide",
}

op := object.get(input, ["request", "op"], "")

# METADATA
# title: Only the operations that this package is about
deny contains {
	"code": "operation_not_allowed",
	"subject": "operation",
	"message": "this entry point decides reads only",
} if {
	not op in operations
}

# METADATA
# title: The session is the caller's own
deny contains {
	"code": "operation_not_allowed",
	"subject": "session",
	"message": "the session belongs to another principal",
} if {
	input.session
	not own_session
}

own_session if input.session.principal.uid == input.request.principal.uid
