package stockade.open

# METADATA
# title: What this principal may use
# description: An entry of data.principals.uid for the caller's uid, or the default.
principal := object.get(data.principals.uid, sprintf("%d", [input.request.principal.uid]), data.principals["default"])

# METADATA
# title: The name of the profile, as asked or the principal's own
profile_name := object.get(input.request.open, "profile", principal.profile)

# METADATA
# title: The profile
# description: Undefined when there is none of this name or the principal may not use it.
profile := data.profiles[profile_name] if profile_name in principal.profiles

# METADATA
# title: The profile exists and may be used
deny contains {
	"code": "profile_not_allowed",
	"subject": sprintf("profile:%s", [profile_name]),
	"message": sprintf("one of %s may be used", [concat(", ", principal.profiles)]),
} if {
	not profile
}

# METADATA
# title: The scope is declared where it is required
# description: A scope never grants anything (R090); it can be required.
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
declared_scope contains member if {
	some member, value in object.get(input.request.open, "scope", object.get(input.request.principal, "scope", {}))
	value != ""
}
