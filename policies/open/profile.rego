package stockade.open

import data.stockade.caps
import data.stockade.exceptions
import data.stockade.labels
import data.stockade.principals

# METADATA
# title: What this principal may use
# description: Of data.principals, by the uid and gid that the kernel names; nothing that the caller says is in it.
principal := principals.entry

# METADATA
# title: The name of the profile, as asked, or what the labels call for, or the principal's own
profile_name := object.get(input.request.open, "profile", usual_profile)

usual_profile := labels.profile if {
	labels.profile
} else := principal.profile

# METADATA
# title: The profile, with all that narrows it
# description: Undefined when there is none of this name or the principal may not use it.
profile := caps.narrowed(data.profiles[profile_name]) if may_use_profile

may_use_profile if principals.may_use(profile_name)

may_use_profile if {
	principal
	exceptions.lifted({"code": "profile_not_allowed", "subject": sprintf("profile:%s", [profile_name])})
}

# METADATA
# title: The profile exists and may be used
# labels: {concern: profile, requirement: R089}
deny contains {
	"code": "profile_not_allowed",
	"subject": sprintf("profile:%s", [profile_name]),
	"message": sprintf("one of %s may be used", [concat(", ", principal.profiles)]),
} if {
	not principals.may_use(profile_name)
}

# METADATA
# title: A profile that may be used is there
# labels: {concern: profile, requirement: R108}
deny contains {
	"code": "profile_not_allowed",
	"subject": "profile",
	"message": "there is no such profile, or its data cannot be used",
} if {
	may_use_profile
	not profile
}

# METADATA
# title: The principal's tenant is there
# description: A tenant that is misspelt would bound nothing.
# labels: {concern: tenant, requirement: R108}
deny contains {
	"code": "profile_not_allowed",
	"subject": sprintf("tenant:%s", [principal.tenant]),
	"message": "the tenant of this principal is not in the data",
} if {
	principal.tenant
	not principals.tenant
}

# METADATA
# title: The scope is declared where it is required
# description: A scope never grants anything (R090); it can be required.
# labels: {concern: scope, requirement: R090}
deny contains {
	"code": "scope_required",
	"subject": sprintf("scope:%s", [member]),
	"message": "sessions of this principal must say whom they serve",
} if {
	some member in principal.require_scope
	not declared_scope[member]
}

# METADATA
# title: The members of the scope that are declared
# labels: {concern: scope}
declared_scope contains member if {
	some member, value in object.get(input.request.open, "scope", object.get(input.request.principal, "scope", {}))
	value != ""
}

# METADATA
# title: The labels are there that are required
# description: What labels narrow, nobody escapes by leaving the label out.
# labels: {concern: labels, requirement: R090}
deny contains {
	"code": "label_required",
	"subject": sprintf("label:%s", [name]),
	"message": "sessions of this principal must have this label",
} if {
	some name in required_labels
	object.get(labels.asked, name, "") == ""
}

# METADATA
# title: The labels that the principal must give its sessions
# labels: {concern: labels}
required_labels contains name if some name in principal.require_labels

# METADATA
# title: The labels that the tenant wants of all its callers
# labels: {concern: labels}
required_labels contains name if some name in principals.tenant.require_labels
