# METADATA
# title: Giving leave
# description: |
#   Who may see what waits for leave, and decide about it. The supervisor shows a principal its own requests and
#   those for which it was named as an approver; these rules say who may look and decide at all.
#   Who gives leave to his own request is refused by the supervisor too, unless the request's policy said allow_own.
# labels: {concern: approval}
package stockade.approval

import data.stockade.principals

# METADATA
# title: No answer is a denial
# labels: {concern: approval}
default decision := {"allow": false, "deny": [{"code": "policy.undefined", "subject": "approval", "message": "no rule of the policy applies"}]}

# METADATA
# title: Nothing speaks against it, and what it is about is there
# labels: {concern: approval}
decision := {"allow": true, "deny": [], "warn": []} if {
	deny == set()
	present
}

# METADATA
# title: Something speaks against it
# labels: {concern: approval}
decision := {"allow": false, "deny": deny, "warn": []} if deny != set()

op := object.get(input, ["request", "op"], "")

# METADATA
# title: The operations on one approval
# labels: {concern: approval}
on_one := {"host.approval.get", "host.approval.approve", "host.approval.deny"}

present if op == "host.approval.list"

present if {
	op in on_one
	input.approval.principal
}

# METADATA
# title: Only the operations that this package is about
# labels: {concern: approval}
deny contains {
	"code": "operation_not_allowed",
	"subject": "operation",
	"message": "this entry point decides about approvals only",
} if {
	not op in on_one
	op != "host.approval.list"
}

# METADATA
# title: What the operation is about is there
# labels: {concern: approval}
deny contains {
	"code": "operation_not_allowed",
	"subject": "object",
	"message": "the supervisor named no approval that this could be about",
} if {
	not present
}

# METADATA
# title: Another's request is for the approvers
# description: data.principals lists them as approvers; administrators are approvers too.
# labels: {concern: approval}
deny contains {
	"code": "approver_not_allowed",
	"subject": "principal",
	"message": "the caller is none of the approvers",
} if {
	op in on_one
	not own_request
	not principals.approver
}

# METADATA
# title: Four eyes
# description: Who asks takes his request back, and does not give himself leave; an administrator does.
# labels: {concern: approval}
deny contains {
	"code": "approval_own_request",
	"subject": "principal",
	"message": "nobody gives himself leave",
} if {
	op == "host.approval.approve"
	own_request
	not principals.administrator
}

own_request if input.approval.principal.uid == input.request.principal.uid
