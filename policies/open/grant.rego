package stockade.open

# METADATA
# title: The grant, all that the session may be
# description: Defined only when every part is; a part that is missing refuses the session.
# labels: {concern: grant, requirement: R080}
grant := {
	"profile": profile_name,
	"root": granted_root,
	"mounts": granted_mounts,
	"scratch": scratch,
	"identity": profile.identity,
	"ceilings": ceilings,
	"seccomp": profile.seccomp,
	"network": granted_network,
	"env": granted_env,
	"exec": granted_exec,
	"fs": object.get(profile, "fs", null),
	"workdir": workdir,
	"hostname": hostname,
	"ttl_ns": ttl_ns,
	"idle_timeout_ns": idle_ns,
	"on_restart": on_restart,
	"accept_degraded": granted_degraded,
	"verify": verify,
	"expires_at_ns": expires,
}

# METADATA
# title: What the caller should know although it is granted
# labels: {concern: grant}
warn contains sprintf("limits.%s: the profile grants at most %d", [name, granted]) if {
	some name, wanted in limits
	granted := ceilings[name]
	wanted > granted
}

# METADATA
# title: The session ends with its supervisor although the caller wants it to be kept
# labels: {concern: grant}
warn contains "on_restart: the profile grants terminate" if {
	on_restart == "terminate"
	input.request.open.on_restart == "adopt"
}
