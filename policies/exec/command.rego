package stockade.exec

import data.stockade.env as names
import data.stockade.paths

# METADATA
# title: The number of arguments
# labels: {concern: command, requirement: R087}
deny contains {
	"code": "argv_limit_exceeded",
	"subject": "argv",
	"message": sprintf("%d arguments, at most %d are granted", [count(input.request.exec.argv), input.session.grant.exec.max_argv]),
} if {
	count(input.request.exec.argv) > input.session.grant.exec.max_argv
}

# METADATA
# title: The length of one argument
# description: max_arg_bytes counts bytes, count of a string characters, of which UTF-8 makes up to four bytes. So bytes are counted where they could be too many.
# labels: {concern: command, requirement: R087}
deny contains {
	"code": "arg_length_exceeded",
	"subject": sprintf("argv:%d", [i]),
	"message": sprintf("longer than the %d bytes that are granted", [input.session.grant.exec.max_arg_bytes]),
} if {
	count(concat("", input.request.exec.argv)) * 4 > input.session.grant.exec.max_arg_bytes # or none is
	some i, arg in input.request.exec.argv
	count(hex.encode(arg)) > input.session.grant.exec.max_arg_bytes * 2
}

# METADATA
# title: The working directory is below a granted prefix and does not climb
# labels: {concern: command, requirement: R095}
deny contains {
	"code": "cwd_not_allowed",
	"subject": sprintf("cwd:%s", [cwd]),
	"message": "the directory must be below a granted prefix, without ..",
} if {
	cwd := input.request.exec.cwd
	not cwd_granted(cwd)
}

# METADATA
# title: A relative directory is below the session's own, which the prefixes have to hold as well
cwd_granted(cwd) if {
	not startswith(cwd, "/")
	not paths.climbs(cwd)
	below_granted(concat("/", [object.get(input.session.grant, "workdir", "/"), cwd]))
}

cwd_granted(cwd) if {
	startswith(cwd, "/")
	not paths.climbs(cwd)
	below_granted(cwd)
}

below_granted(_) if not input.session.grant.exec.cwd_prefixes

below_granted(path) if paths.inside(path, paths.dirs(input.session.grant.exec.cwd_prefixes))

# METADATA
# title: The number of variables in a patch
# labels: {concern: command, requirement: R087}
deny contains {
	"code": "env_patch_limit_exceeded",
	"subject": "env_patch",
	"message": sprintf("%d variables, at most %d are granted", [count(input.request.exec.env_patch), input.session.grant.env.max]),
} if {
	count(input.request.exec.env_patch) > input.session.grant.env.max
}

# METADATA
# title: The names in a patch
# labels: {concern: command, requirement: R087}
deny contains {
	"code": "env_var_not_allowed",
	"subject": sprintf("env:%s", [name]),
	"message": env_reason(name),
} if {
	some name, value in input.request.exec.env_patch
	not env_granted(name, value)
}

env_granted(name, _) if {
	not data.stockade.env.denied(name)
	not input.session.grant.env.set[name]
	named(name)
}

# METADATA
# title: The value is the one that policy set anyway
env_granted(name, value) if input.session.grant.env.set[name] == value

named(_) if not input.session.grant.env.allow

named(name) if names.among(name, input.session.grant.env.allow)

default env_reason(_) := "the name is not among those that are granted"

env_reason(name) := sprintf("policy set it to %s when the session was opened", [input.session.grant.env.set[name]])

# METADATA
# title: The output mode
# labels: {concern: command, requirement: R087}
deny contains {
	"code": "output_mode_not_allowed",
	"subject": sprintf("output_mode:%s", [mode]),
	"message": sprintf("one of %s is granted", [concat(", ", input.session.grant.exec.output_modes)]),
} if {
	mode := object.get(input.request.exec, "output_mode", "auto")
	granted := input.session.grant.exec.output_modes
	not mode in granted
}

# METADATA
# title: The paths that come back as artifacts
# labels: {concern: command, requirement: R095}
deny contains {
	"code": "output_not_allowed",
	"subject": sprintf("output:%s", [path]),
	"message": "the path must be below a granted prefix, without ..",
} if {
	some path in input.request.exec.outputs
	not output_granted(path)
}

output_granted(path) if {
	not input.session.grant.exec.output_prefixes
	not paths.climbs(path)
}

output_granted(path) if {
	not paths.climbs(path)
	paths.inside(path, paths.dirs(input.session.grant.exec.output_prefixes))
}
