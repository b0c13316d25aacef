package stockade.exec

import data.stockade.paths

# METADATA
# title: The number of arguments
deny contains {
	"code": "argv_limit_exceeded",
	"subject": "argv",
	"message": sprintf("%d arguments, at most %d are granted", [count(argv), grant.exec.max_argv]),
} if {
	count(argv) > grant.exec.max_argv
}

# METADATA
# title: The length of one argument
# description: max_arg_bytes counts bytes; count of a string counts characters, of which UTF-8 makes up to four bytes.
deny contains {
	"code": "arg_length_exceeded",
	"subject": sprintf("argv:%d", [i]),
	"message": sprintf("longer than the %d bytes that are granted", [grant.exec.max_arg_bytes]),
} if {
	some i, arg in argv
	count(arg) > grant.exec.max_arg_bytes
}

# METADATA
# title: The working directory is below a granted prefix and does not climb
deny contains {
	"code": "cwd_not_allowed",
	"subject": sprintf("cwd:%s", [exec.cwd]),
	"message": "the directory must be below a granted prefix, without ..",
} if {
	exec.cwd
	not cwd_granted
}

cwd_granted if {
	not startswith(exec.cwd, "/")
	not paths.climbs(exec.cwd)
}

cwd_granted if {
	startswith(exec.cwd, "/")
	not paths.climbs(exec.cwd)
	below_granted(exec.cwd)
}

below_granted(_) if not grant.exec.cwd_prefixes

below_granted(path) if paths.inside(path, paths.dirs(grant.exec.cwd_prefixes))

# METADATA
# title: The number of variables in a patch
deny contains {
	"code": "env_patch_limit_exceeded",
	"subject": "env_patch",
	"message": sprintf("%d variables, at most %d are granted", [count(exec.env_patch), grant.env.max]),
} if {
	count(exec.env_patch) > grant.env.max
}

# METADATA
# title: The names in a patch
deny contains {
	"code": "env_var_not_allowed",
	"subject": sprintf("env:%s", [name]),
	"message": env_reason(name),
} if {
	some name, value in exec.env_patch
	not env_granted(name, value)
}

env_granted(name, _) if {
	not data.stockade.env.denied(name)
	not name in object.keys(object.get(grant.env, "set", {}))
	named(name)
}

# METADATA
# title: The value is the one that policy set anyway
env_granted(name, value) if grant.env.set[name] == value

named(_) if not grant.env.allow

named(name) if name in grant.env.allow

named(name) if {
	some pattern in grant.env.allow
	endswith(pattern, "*")
	startswith(name, trim_suffix(pattern, "*"))
}

default env_reason(_) := "the name is not among those that are granted"

env_reason(name) := sprintf("policy set it to %s when the session was opened", [grant.env.set[name]])

# METADATA
# title: The output mode
deny contains {
	"code": "output_mode_not_allowed",
	"subject": sprintf("output_mode:%s", [mode]),
	"message": sprintf("one of %s is granted", [concat(", ", grant.exec.output_modes)]),
} if {
	mode := object.get(exec, "output_mode", "auto")
	not mode in grant.exec.output_modes
	grant.exec.output_modes
}

# METADATA
# title: The paths that come back as artifacts
deny contains {
	"code": "output_not_allowed",
	"subject": sprintf("output:%s", [path]),
	"message": "the path must be below a granted prefix, without ..",
} if {
	some path in exec.outputs
	not output_granted(path)
}

output_granted(path) if {
	not grant.exec.output_prefixes
	not paths.climbs(path)
}

output_granted(path) if {
	not paths.climbs(path)
	paths.inside(path, paths.dirs(grant.exec.output_prefixes))
}
