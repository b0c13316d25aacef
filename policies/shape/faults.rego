# METADATA
# title: What is wrong with the data
# description: |
#   A policy in which this set is not empty does not load. A rule of your own in this package joins it: what your
#   rules want of your data.
# labels: {concern: shape}
package stockade

import data.stockade.shape

# METADATA
# title: Profiles are complete, and have no member that nothing reads
# labels: {concern: shape}
faults contains fault if {
	some name, profile in data.profiles
	where := sprintf("profiles.%s", [name])
	some fault in (shape.faults(where, profile, shape.profile) | shape.lacking(where, profile, shape.needed))
}

# METADATA
# title: A default is one of what is listed
# labels: {concern: shape}
faults contains sprintf("profiles.%s: %s is none of its roots", [name, profile.default_root]) if {
	some name, profile in data.profiles
	not profile.default_root in profile.roots
}

# METADATA
# title: Principals name profiles and tenants that are there
# labels: {concern: shape}
faults contains fault if {
	some where, principal in shape.principals
	some fault in (shape.faults(where, principal, shape.principal) | shape.lacking(where, principal, ["profiles", "profile", "require_scope"]))
}

# METADATA
# title: A principal's profiles are there
# labels: {concern: shape}
faults contains sprintf("%s: there is no profile %s", [where, name]) if {
	some where, principal in shape.principals
	some name in array.concat(principal.profiles, [principal.profile])
	not data.profiles[name]
}

# METADATA
# title: A principal's tenant is there
# labels: {concern: shape}
faults contains sprintf("%s: there is no tenant %s", [where, principal.tenant]) if {
	some where, principal in shape.principals
	not data.tenants[principal.tenant]
}

# METADATA
# title: There is a default, and the rest of principals are maps of ids
# labels: {concern: shape}
faults contains "principals has no default" if not data.principals["default"]

# METADATA
# title: What is said of principals has five parts
# labels: {concern: shape}
faults contains sprintf("principals.%s is not known", [name]) if {
	some name, _ in data.principals
	not name in {"administrators", "approvers", "default", "uid", "gid"}
}

# METADATA
# title: Administrators are uids
# labels: {concern: shape}
faults contains "principals.administrators is no list of ids" if {
	not shape.fits("list of ids", data.principals.administrators)
}

# METADATA
# title: Principals go by number
# labels: {concern: shape}
faults contains sprintf("principals.%s.%s is no id", [part, id]) if {
	some part in ["uid", "gid"]
	some id, _ in data.principals[part]
	not regex.match(`^(0|[1-9][0-9]{0,9})$`, id)
}

# METADATA
# title: Tenants and rules about labels have no member that nothing reads
# labels: {concern: shape}
faults contains fault if {
	some name, tenant in data.tenants
	some fault in shape.faults(sprintf("tenants.%s", [name]), tenant, shape.tenant)
}

# METADATA
# title: Rules about labels have no member that nothing reads
# labels: {concern: shape}
faults contains fault if {
	some i, rule in data.labels.rules
	where := sprintf("labels.rules.%d", [i])
	some fault in (shape.faults(where, rule, shape.label_rule) | shape.lacking(where, rule, ["match"]))
}

# METADATA
# title: What is said of labels are rules
# labels: {concern: shape}
faults contains sprintf("labels.%s is not known", [name]) if {
	some name, _ in data.labels
	name != "rules"
}

# METADATA
# title: Exceptions lift what may be lifted, for somebody, until an instant
# labels: {concern: shape}
faults contains fault if {
	some name, exception in data.exceptions.granted
	where := sprintf("exceptions.granted.%s", [name])
	some fault in (shape.faults(where, exception, shape.exception) | shape.lacking(where, exception, ["code", "subjects", "until_ns", "reason"]))
}

# METADATA
# title: An exception lifts only what may be lifted
# labels: {concern: shape}
faults contains sprintf("exceptions.granted.%s: %s is not overridable", [name, exception.code]) if {
	some name, exception in data.exceptions.granted
	not exception.code in data.exceptions.overridable
}

# METADATA
# title: An exception is for somebody
# labels: {concern: shape}
faults contains sprintf("exceptions.granted.%s is for nobody: it has neither uids nor tenants", [name]) if {
	some name, exception in data.exceptions.granted
	not exception.uids
	not exception.tenants
}

# METADATA
# title: What is said of exceptions has two parts
# labels: {concern: shape}
faults contains sprintf("exceptions.%s is not known", [name]) if {
	some name, _ in data.exceptions
	not name in {"overridable", "granted"}
}
