# METADATA
# title: What becomes of an overlay
# description: |
#   host.workspace.commit makes the changes of an overlay to the caller's directory, under the
#   caller's own identity; discard forgets them. What an overlay has is shown by host.workspace.diff, which is a read.
#   An overlay was granted only where rw would have been, so its owner may commit it, unless
#   the profile leaves that to somebody else. A rule of your own in this package can deny by
#   input.request.workspace.paths, for example.
# labels: {concern: workspace}
package stockade.workspace

import data.stockade.approval.required
import data.stockade.caps

# METADATA
# title: No answer is a denial
# labels: {concern: decision}
default decision := {"allow": false, "deny": [{"code": "policy.undefined", "subject": "workspace", "message": "no rule of the policy applies"}]}

# METADATA
# title: Nothing speaks against it, and there is a session whose grant bounds it
# labels: {concern: decision}
decision := {"allow": true, "deny": [], "warn": [], "obligations": required.obligations} if {
	deny == set()
	input.session.grant
	input.request.workspace
}

# METADATA
# title: Something speaks against it
# labels: {concern: decision}
decision := {"allow": false, "deny": deny, "warn": []} if deny != set()

op := object.get(input, ["request", "op"], "")

# METADATA
# title: Only the operations that this package is about
# labels: {concern: workspace, requirement: R081}
deny contains {
	"code": "operation_not_allowed",
	"subject": "operation",
	"message": "this entry point decides host.workspace.commit and host.workspace.discard only",
} if {
	not op in {"host.workspace.commit", "host.workspace.discard"}
}

# METADATA
# title: The session is the caller's own
# labels: {concern: workspace, requirement: R090}
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
# labels: {concern: workspace, requirement: R109}
deny contains {
	"code": "expired",
	"subject": "grant",
	"message": "the grant of the session has ended",
} if {
	op == "host.workspace.commit"
	input.session.grant.expires_at_ns <= input.now_ns
}

# METADATA
# title: The profile lets the caller commit
# description: |
#   commit false in a profile keeps what is written from the caller's directory for good: such
#   sessions try things out, and what they should keep is collected as outputs.
# labels: {concern: workspace, requirement: R092}
deny contains {
	"code": "operation_not_allowed",
	"subject": "commit",
	"message": sprintf("profile %s commits nothing", [input.session.profile]),
} if {
	op == "host.workspace.commit"
	data.profiles[input.session.profile].commit == false
}

# METADATA
# title: No cap of the caller, its tenant or the session's labels keeps it from committing
# labels: {concern: caps}
deny contains {
	"code": "operation_not_allowed",
	"subject": "commit",
	"message": "a cap of the caller, its tenant or the labels commits nothing",
} if {
	op == "host.workspace.commit"
	some cap in caps.applied
	cap.commit == false
}
