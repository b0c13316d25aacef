# METADATA
# title: Who asks
# description: |
#   By the kernel's word for the peer of the socket and by nothing else: what a caller says of itself, its scope and its
#   labels, is in no rule of this package (R090).
# labels: {concern: principal}
package stockade.principals

# METADATA
# title: What is said of this caller
# description: The entry of its uid, else of its first gid, else the default. Exactly one applies; none is merged with another.
entry := data.principals.uid[uid] if {
	data.principals.uid[uid]
} else := data.principals.gid[gid] if {
	data.principals.gid[gid]
} else := data.principals["default"] if {
	is_number(input.request.principal.uid)
}

uid := sprintf("%d", [input.request.principal.uid])

gid := sprintf("%d", [input.request.principal.gid])

# METADATA
# title: The tenant that the caller belongs to
# description: An entry that names a tenant which is not there is refused by open/profile.rego; nothing is left out.
tenant := data.tenants[entry.tenant]

# METADATA
# title: The profiles that the caller may use
may_use(name) if {
	name in entry.profiles
	not elsewhere(name)
}

elsewhere(name) if {
	tenant.profiles
	not name in tenant.profiles
}

# METADATA
# title: The caller runs the supervisor, and not only sessions in it
# description: |
#   data.principals.administrators lists the uids. What is left to them concerns every
#   principal: to drain the supervisor, and to see what everybody has in flight.
administrator if input.request.principal.uid in data.principals.administrators

# METADATA
# title: Whose leave counts
# description: data.principals.approvers lists uids; the administrators are approvers too.
approvers := {uid | some uid in data.principals.approvers} | {uid | some uid in data.principals.administrators}

# METADATA
# title: The caller is one of them
approver if input.request.principal.uid in approvers
