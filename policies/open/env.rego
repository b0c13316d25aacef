package stockade.open

# METADATA
# title: The environment, as asked
env := object.get(local, "env", {})

# METADATA
# title: The environment that is granted
# description: |
#   What the profile fixes wins over the caller; its defaults stand where the caller is
#   silent. Absent env.allow means every name; the names below are refused all the same.
granted_env := object.union(object.filter(profile.env, ["allow", "max"]), {"set": object.union(object.remove(profile.env["default"], object.keys(env)), profile.env.fixed)})

# METADATA
# title: The number of variables
# labels: {concern: env, requirement: R087}
deny contains {
	"code": "env_limit_exceeded",
	"subject": "env",
	"message": sprintf("%d variables, at most %d are granted", [count(env), profile.env.max]),
} if {
	count(env) > profile.env.max
}

# METADATA
# title: The names are the profile's
# labels: {concern: env, requirement: R087}
deny contains {
	"code": "env_var_not_allowed",
	"subject": sprintf("env:%s", [name]),
	"message": sprintf("profile %s takes %s", [profile_name, concat(", ", profile.env.allow)]),
} if {
	some name in (object.keys(env) - stockade.named(env, profile.env.allow))
}

# METADATA
# title: Names that change how programs are loaded
# labels: {concern: env, requirement: R087}
deny contains {
	"code": "env_var_not_allowed",
	"subject": sprintf("env:%s", [name]),
	"message": "variables that change how programs are loaded are not granted",
} if {
	some name in stockade.named(env, data.stockade.env.denied)
}

# METADATA
# title: Variables that the profile fixes
# labels: {concern: env, requirement: R087}
deny contains {
	"code": "env_var_not_allowed",
	"subject": sprintf("env:%s", [name]),
	"message": sprintf("profile %s fixes it to %s", [profile_name, fixed]),
} if {
	some name, value in env
	fixed := profile.env.fixed[name]
	value != fixed
}

# METADATA
# title: A caller's SOURCE_DATE_EPOCH is a number of seconds
# description: The caller may choose the time of a build; it is in the request, and so in the receipt.
# labels: {concern: env, requirement: R087}
deny contains {
	"code": "env_var_not_allowed",
	"subject": "env:SOURCE_DATE_EPOCH",
	"message": "must be a plain number of seconds, because it is part of what a hermetic build is made from",
} if {
	profile.hermetic == true
	value := env.SOURCE_DATE_EPOCH
	not plain_seconds(value)
}

plain_seconds(value) if {
	is_string(value) # a secret is shown as an object
	regex.match(`^[0-9]{1,11}$`, value)
}
