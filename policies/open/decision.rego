# METADATA
# title: Opening a session
# description: |
#   The answer to host.session.open is a whole grant, or every reason against it. Each
#   concern has a file: it says what it grants and adds to deny what it does not. A rule
#   of your own in this package joins them (see README.md).
# labels: {concern: open}
package stockade.open

import data.stockade.approval.required
import data.stockade.exceptions

# METADATA
# title: No answer is a denial
# labels: {concern: decision}
default decision := {"allow": false, "deny": [{"code": "policy.undefined", "subject": "session", "message": "no rule of the policy applies"}]}

# METADATA
# title: Nothing speaks against it, or only what is lifted for now, and there is a grant
# labels: {concern: decision}
decision := {"allow": true, "deny": [], "grant": grant, "warn": warn, "obligations": required.obligations} if standing == set()

# METADATA
# title: Something speaks against it
# labels: {concern: decision}
decision := {"allow": false, "deny": (standing | lapsed), "warn": warn} if standing != set()

# METADATA
# title: The denials that no exception lifts
standing := {denial | some denial in against; not exceptions.lifted(denial)}

# METADATA
# title: All that speaks against it
against := deny

# METADATA
# title: Only the operation that this package is about
# labels: {concern: open, requirement: R081}
deny contains {
	"code": "operation_not_allowed",
	"subject": "operation",
	"message": "this entry point decides host.session.open only",
} if {
	not input.request.op == "host.session.open" # and not !=, which is undefined where there is no operation
}

# METADATA
# title: The target is one that this library knows
# labels: {concern: open, requirement: R082}
deny contains {
	"code": "target_not_allowed",
	"subject": "target",
	"message": "target.local is the only target that is granted",
} if {
	not local
}

# METADATA
# title: The target is one of the profile's
# labels: {concern: target, requirement: R082}
deny contains {
	"code": "target_not_allowed",
	"subject": "target:local",
	"message": sprintf("profile %s builds on %s", [profile_name, concat(", ", profile.targets)]),
} if {
	profile.targets
	not "local" in profile.targets
}

# METADATA
# title: The target, as asked
local := input.request.open.target.local
