# METADATA
# title: Host paths that requests name
# description: |
#   Judged is never the path as asked but what it led to, as the runner resolved it
#   under the caller's own identity (facts.sources).
# labels: {concern: paths}
package stockade.paths.host

import data.stockade.paths

# METADATA
# title: The resolved paths that may be read inside a session
# description: |
#   One look at all of them together answers the usual case; only when something is
#   amiss is each looked at by itself.
readable := resolved if not suspicious

readable := {path | some path in resolved; permitted(path); not sensitive(path)} if suspicious

resolved := {path | path := input.facts.sources[_].resolved}

all := stockade.slashed(resolved)

together := lower(concat("", all))

# METADATA
# title: Something may be wrong with one of the paths
suspicious if stockade.below(resolved, input.ceiling.mount_roots) != resolved

suspicious if resolved["/"]

suspicious if strings.any_prefix_match(all, input.ceiling.mount_denied)

suspicious if strings.any_prefix_match(input.ceiling.mount_denied, all)

suspicious if strings.any_prefix_match(all, data.host_paths.denied)

suspicious if strings.any_prefix_match(data.host_paths.denied, all)

suspicious if stockade.any_contains([together], data.host_paths.denied_names)

suspicious if stockade.any_contains([together], data.host_paths.holders)

suspicious if strings.any_prefix_match(data.host_paths.homes, all)

suspicious if stockade.parents(resolved) & stockade.slashed(data.host_paths.homes) != set()

# METADATA
# title: The path of the request led to one that may be read
# description: |
#   Ask "not may_read(path)", not "not readable[…]": what is inside a negation is evaluated
#   before it, and a source that was not found would make the denial itself vanish.
may_read(path) if readable[input.facts.sources[path].resolved]

# METADATA
# title: The operator permits sources below this path
permitted(path) if {
	not input.ceiling.mount_roots
	not ruled_out(path)
}

permitted(path) if {
	paths.inside(path, mount_roots)
	not ruled_out(path)
}

mount_roots := paths.dirs(input.ceiling.mount_roots)

mount_denied := paths.dirs(input.ceiling.mount_denied)

# METADATA
# title: The operator rules the path out, itself or something below it
ruled_out(path) if paths.inside(path, mount_denied)

ruled_out(path) if paths.covers(path, mount_denied)

# METADATA
# title: The path holds secrets or the host's own state
# description: |
#   It is below a denied directory and not below a public one, or a denied directory is
#   below it, or one of its components is a name under which people keep credentials, or
#   it is where those names are: a whole home.
sensitive(path) if {
	paths.inside(path, data.host_paths.denied)
	not paths.inside(path, data.host_paths.public)
}

sensitive(path) if {
	paths.covers(path, data.host_paths.denied)
	not paths.inside(path, data.host_paths.denied)
}

sensitive(path) if {
	some name in data.host_paths.denied_names
	contains(lower(paths.slashed(path)), name)
}

# METADATA
# title: The path is where such a name is, two or more components of it
sensitive(path) if strings.any_suffix_match(lower(paths.slashed(path)), data.host_paths.holders)

sensitive(path) if home(path)

# METADATA
# title: The path is somebody's home, or holds homes
home(path) if {
	some dir in data.host_paths.homes
	startswith(paths.slashed(path), dir)
	count(split(trim_prefix(paths.slashed(path), dir), "/")) <= 2
}

home(path) if paths.covers(path, data.host_paths.homes)

# METADATA
# title: The resolved paths that may be written
# description: |
#   Where the operator permits it, and nowhere among the host's own programs: a command
#   that could write there would be whoever runs them next.
writable := permitted_to_write if not near_programs

writable := {path | some path in permitted_to_write; not programs(path)} if near_programs

permitted_to_write := resolved if not input.ceiling.read_write

permitted_to_write := stockade.below(resolved, input.ceiling.read_write)

near_programs if strings.any_prefix_match(all, data.host_paths.programs)

near_programs if strings.any_prefix_match(data.host_paths.programs, all)

near_programs if stockade.any_contains(all, data.host_paths.started_names)

programs(path) if paths.inside(path, data.host_paths.programs)

programs(path) if paths.covers(path, data.host_paths.programs)

# METADATA
# title: What a shell, a desktop or git runs by itself is a program as well
programs(path) if {
	some name in data.host_paths.started_names
	contains(paths.slashed(path), name)
}

# METADATA
# title: Why a path may not be read inside, for a person
# description: Always defined, so that a denial that quotes it cannot vanish.
default reason(_) := "is not granted"

reason(path) := sprintf("cannot be reached as the caller (%s)", [code]) if {
	code := input.facts.sources[path].error
} else := "was not resolved" if {
	not input.facts.sources[path].resolved
} else := sprintf("resolves to %s, which the operator's ceiling rules out", [resolved]) if {
	resolved := input.facts.sources[path].resolved
	not permitted(resolved)
} else := sprintf("resolves to %s, which holds secrets or the host's own state", [resolved]) if {
	resolved := input.facts.sources[path].resolved
	sensitive(resolved)
}
