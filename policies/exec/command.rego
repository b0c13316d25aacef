package stockade.exec

import data.stockade.env as names
import data.stockade.paths

# METADATA
# title: Shells, where the grant has them
# labels: {concern: command, requirement: R175}
deny contains {
	"code": "shell_not_allowed",
	"subject": "shell",
	"message": "the grant has commands, and no shells",
} if {
	input.request.op == "host.shell.open"
	object.get(input.session.grant, ["exec", "shells"], true) != true
}

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
# description: Bytes, and not characters, of which UTF-8 makes up to four bytes.
# labels: {concern: command, requirement: R087}
deny contains {
	"code": "arg_length_exceeded",
	"subject": sprintf("argv:%d", [i]),
	"message": sprintf("longer than the %d bytes that are granted", [input.session.grant.exec.max_arg_bytes]),
} if {
	some i in stockade.longer(input.request.exec.argv, input.session.grant.exec.max_arg_bytes)
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
# title: Names that change how programs are loaded
# labels: {concern: command, requirement: R087}
deny contains {
	"code": "env_var_not_allowed",
	"subject": sprintf("env:%s", [name]),
	"message": "the name is not among those that are granted",
} if {
	some name in stockade.named(input.request.exec.env_patch, names.denied)
	not input.session.grant.env.set[name]
}

# METADATA
# title: The names in a patch
# labels: {concern: command, requirement: R087}
deny contains {
	"code": "env_var_not_allowed",
	"subject": sprintf("env:%s", [name]),
	"message": "the name is not among those that are granted",
} if {
	some name in (object.keys(input.request.exec.env_patch) - stockade.named(input.request.exec.env_patch, input.session.grant.env.allow))
	not input.session.grant.env.set[name]
}

# METADATA
# title: What policy set when the session was opened, but to the same value
# labels: {concern: command, requirement: R087}
deny contains {
	"code": "env_var_not_allowed",
	"subject": sprintf("env:%s", [name]),
	"message": sprintf("policy set it to %s when the session was opened", [set_to]),
} if {
	some name, value in input.request.exec.env_patch
	set_to := input.session.grant.env.set[name]
	value != set_to
}

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
