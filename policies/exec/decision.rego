# METADATA
# title: Running a command
# description: |
#   The session's grant is the bound that was fixed at the open (R088); these rules keep a
#   command inside it. Timeouts and output sizes are clamped by the supervisor, not refused (C17).
# labels: {concern: exec}
package stockade.exec

import data.stockade.approval.required
import data.stockade.exceptions

# METADATA
# title: No answer is a denial
# labels: {concern: decision}
default decision := {"allow": false, "deny": [{"code": "policy.undefined", "subject": "exec", "message": "no rule of the policy applies"}]}

# METADATA
# title: Nothing speaks against it, and there is a session whose grant bounds it
# labels: {concern: decision}
decision := {"allow": true, "deny": [], "warn": [], "obligations": required.obligations} if {
	against == set()
	input.session.grant
	input.request.exec.argv[0]
}

# METADATA
# title: What speaks against it is lifted for now, and the command ends before that does
# description: A grant is not widened by it (R088); what can be lifted here are rules of your own whose codes are overridable.
# labels: {concern: exceptions}
decision := {"allow": true, "deny": [], "warn": {exceptions.told(name) | some name in needed}, "limits": {"timeout_ns": left}, "obligations": required.obligations} if {
	against != set()
	standing == set()
	input.session.grant
	input.request.exec.argv[0]
}

# METADATA
# title: Something speaks against it
# labels: {concern: decision}
decision := {"allow": false, "deny": (standing | lapsed), "warn": []} if {
	against != set()
	standing != set()
}

# METADATA
# title: All that speaks against it
against := deny

# METADATA
# title: The denials that no exception lifts
standing := {denial | some denial in against; not exceptions.lifted(denial)}

# METADATA
# title: The exceptions that this command needs, and the time that is left of them
needed := {name | some denial in against; some name in exceptions.lifting(denial.code, denial.subject)}

left := min({input.session.grant.exec.max_timeout_ns} | {time | some name in needed; time := data.exceptions.granted[name].until_ns - input.now_ns})

# METADATA
# title: An exception that would have lifted a denial has ended
lapsed := {denial |
	some stands in standing
	some name in exceptions.lapsed(stands.code, stands.subject)
	denial := {"code": "expired", "subject": sprintf("exception:%s", [name]), "message": sprintf("%s stands: the exception that lifted it has ended", [stands.code])}
}

# METADATA
# title: Only the operation that this package is about
# labels: {concern: exec, requirement: R081}
deny contains {
	"code": "operation_not_allowed",
	"subject": "operation",
	"message": "this entry point decides host.exec and host.shell.open only",
} if {
	not decided_here # by a rule: without an operation the reference itself would be undefined
}

decided_here if input.request.op in {"host.exec", "host.shell.open"}

# METADATA
# title: The session is the caller's own
# labels: {concern: exec, requirement: R090}
deny contains {
	"code": "operation_not_allowed",
	"subject": "session",
	"message": "the session belongs to another principal",
} if {
	not input.session.principal.uid == input.request.principal.uid
}

# METADATA
# title: The grant has not ended
# labels: {concern: exec, requirement: R109}
deny contains {
	"code": "expired",
	"subject": "grant",
	"message": "the grant of the session has ended",
} if {
	input.session.grant.expires_at_ns <= input.now_ns
}
