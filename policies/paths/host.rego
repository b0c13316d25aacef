# METADATA
# title: Host paths that requests name
# description: |
#   Judged is never the path as asked but what it led to, as the runner resolved it
#   under the caller's own identity (facts.sources).
package stockade.paths.host

import data.stockade.paths

denied := paths.dirs(data.host_paths.denied)

public := paths.dirs(data.host_paths.public)

mount_roots := paths.dirs(input.ceiling.mount_roots)

mount_denied := paths.dirs(object.get(input.ceiling, "mount_denied", []))

read_write := paths.dirs(input.ceiling.read_write)

# METADATA
# title: What a path led to
# description: Undefined when it led nowhere; nothing that needs a source is then granted.
source(path) := found if {
	found := input.facts.sources[path]
	found.resolved
}

# METADATA
# title: The path may be read inside a session
# description: It was resolved, lies below the operator's mount roots, and is not sensitive.
readable(path) if {
	resolved := source(path).resolved
	within_roots(resolved)
	not sensitive(resolved)
}

# METADATA
# title: The operator permits sources below this path
within_roots(resolved) if {
	not input.ceiling.mount_roots
	not ruled_out(resolved)
}

within_roots(resolved) if {
	paths.inside(resolved, mount_roots)
	not ruled_out(resolved)
}

# METADATA
# title: The operator rules the path out, itself or something below it
ruled_out(resolved) if paths.inside(resolved, mount_denied)

ruled_out(resolved) if paths.covers(resolved, mount_denied)

# METADATA
# title: The operator permits writing below this path
within_read_write(_) if not input.ceiling.read_write

within_read_write(resolved) if paths.inside(resolved, read_write)

# METADATA
# title: The path holds secrets or the host's own state
# description: |
#   It is below a denied directory and not below a public one, or a denied directory is
#   below it, or one of its components is a name under which people keep credentials.
sensitive(resolved) if {
	paths.inside(resolved, denied)
	not paths.inside(resolved, public)
}

sensitive(resolved) if paths.covers(resolved, denied)

sensitive(resolved) if {
	some name in split(resolved, "/")
	name in data.host_paths.denied_names
}

# METADATA
# title: Why a path may not be used, for a person
# description: Always defined, so that a denial that quotes it cannot vanish.
default reason(_) := "is not granted"

reason(path) := sprintf("cannot be reached as the caller: %s", [code]) if {
	code := input.facts.sources[path].error
} else := "was not resolved" if {
	not source(path)
} else := sprintf("resolves to %s, outside the operator's mount roots", [source(path).resolved]) if {
	not within_roots(source(path).resolved)
} else := sprintf("resolves to %s, which holds secrets or the host's own state", [source(path).resolved]) if {
	sensitive(source(path).resolved)
}
