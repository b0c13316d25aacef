# METADATA
# title: Opening a session
# description: |
#   The answer to host.session.open is a whole grant, or every reason against it. Each
#   concern has a file: it says what it grants and adds to deny what it does not. A rule
#   of your own in this package joins them (see README.md).
package stockade.open

import data.stockade.approval.required

# METADATA
# title: No answer is a denial
default decision := {"allow": false, "deny": [{"code": "policy.undefined", "subject": "session", "message": "no rule of the policy applies"}]}

# METADATA
# title: Nothing speaks against it, and there is a grant
decision := {"allow": true, "deny": [], "grant": grant, "warn": warn, "obligations": required.obligations} if count(deny) == 0

# METADATA
# title: Something speaks against it
decision := {"allow": false, "deny": deny, "warn": warn} if count(deny) > 0

op := object.get(input, ["request", "op"], "")

# METADATA
# title: Only the operation that this package is about
deny contains {
	"code": "operation_not_allowed",
	"subject": "operation",
	"message": "this entry point decides host.session.open only",
} if {
	op != "host.session.open"
}

# METADATA
# title: The target is one that this library knows
deny contains {
	"code": "target_not_allowed",
	"subject": "target",
	"message": "target.local is the only target that is granted",
} if {
	not local
}

# METADATA
# title: The target, as asked
local := input.request.open.target.local
