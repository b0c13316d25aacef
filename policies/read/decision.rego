# METADATA
# title: Reading
# description: |
#   Operations without effect. The supervisor shows a principal its own sessions,
#   executions, intents, events and receipts only; these rules say that it may look at
#   all. Some reads show what belongs to every principal: they are the administrators'.
# labels: {concern: read}
package stockade.read

import data.stockade.principals

# METADATA
# title: No answer is a denial
# labels: {concern: decision}
default decision := {"allow": false, "deny": [{"code": "policy.undefined", "subject": "read", "message": "no rule of the policy applies"}]}

# METADATA
# title: Every principal may look at what is its own
# labels: {concern: decision}
decision := {"allow": true, "deny": [], "warn": []} if {
	deny == set()
	served
}

# METADATA
# title: Something speaks against it
# labels: {concern: decision}
decision := {"allow": false, "deny": deny, "warn": []} if deny != set()

# METADATA
# title: The operations that show a principal what is its own, or nobody's
operations := {
	"host.session.get",
	"host.session.list",
	"host.session.events",
	"host.workspace.diff",
	"host.process.get",
	"host.process.list",
	"host.process.wait",
	"host.process.watch",
	"host.process.output",
	"host.shell.get",
	"host.shell.output",
	"host.shell.recording",
	"host.events",
	"intent.get",
	"intent.list",
	"intent.frames",
	"receipt.get",
	"receipt.list",
	"receipt.checkpoint",
	"host.info",
	"host.capabilities",
	"policy.decide",
}

# METADATA
# title: The operations that show what is everybody's
administration := {"admin.quiescence", "admin.snapshot", "admin.receipts", "admin.policy.status", "admin.policy.preview", "admin.settings"}

op := object.get(input, ["request", "op"], "")

served if op in operations

served if op in administration

# METADATA
# title: Only the operations that this package is about
# labels: {concern: read, requirement: R081}
deny contains {
	"code": "operation_not_allowed",
	"subject": "operation",
	"message": "this entry point decides reads only",
} if {
	not served
}

# METADATA
# title: Only an administrator sees what is everybody's
# labels: {concern: read, requirement: R090}
deny contains {
	"code": "operation_not_allowed",
	"subject": "principal",
	"message": "only the administrators of the supervisor may do this",
} if {
	op in administration
	not principals.administrator
}

# METADATA
# title: The session is the caller's own
# description: The supervisor tells of none when the session has ended; it has found before whose it was.
# labels: {concern: read, requirement: R090}
# custom: {audit: {/session: there is none when the session has ended}}
deny contains {
	"code": "operation_not_allowed",
	"subject": "session",
	"message": "the session belongs to another principal",
} if {
	input.session
	not own_session
}

own_session if input.session.principal.uid == input.request.principal.uid
