# METADATA
# title: What needs somebody's leave
# description: |
#   data.approval lists it; shipped, the lists are empty. The operation is allowed all the same, or it would be denied:
#   leave adds nothing to a grant. A list that cannot be read makes everything need leave.
package stockade.approval.required

import data.stockade.paths
import data.stockade.principals

# METADATA
# title: The operation needs nobody's leave
default obligations := {}

# METADATA
# title: The operation waits for leave
# description: |
#   Four eyes: who asks is not who gives leave, unless he administers the supervisor.
obligations := {"require_approval": {
	"reason": substring(concat("; ", reasons), 0, 500),
	"timeout_ns": data.approval.timeout_ns,
	"approvers": {"uids": principals.approvers},
	"allow_own": own,
}} if {
	not idle
	count(reasons) > 0
}

# METADATA
# title: Nothing is listed
# description: As shipped; each decision asks this, and looks no further.
idle if {
	object.remove(data.approval, ["timeout_ns"]) == {"exec": [], "mounts": [], "networks": [], "operations": []}
}

default own := false

own if principals.administrator

# METADATA
# title: A command that begins like one of the list
# description: |
#   argv is compared word by word; "*" is any word, and a first word without a slash is the
#   name of the program wherever it is. It is a question asked in time, not a wall: what a session can reach
#   is what it was granted.
reasons contains reason(rule) if {
	some rule in data.approval.exec
	begins_like(rule)
	in_profile(rule)
}

begins_like(rule) if {
	count(rule.argv) <= count(input.request.exec.argv)
	every i, want in rule.argv {
		same_word(i, want)
	}
}

same_word(_, "*")

same_word(i, want) if input.request.exec.argv[i] == want

same_word(0, want) if {
	not contains(want, "/")
	endswith(input.request.exec.argv[0], concat("", ["/", want]))
}

in_profile(rule) if not rule.profiles

in_profile(rule) if input.session.profile in rule.profiles

# METADATA
# title: A mount of a host directory of the list
# description: What the path led to is compared. Without modes, every mode needs leave.
reasons contains reason(rule) if {
	some rule in data.approval.mounts
	some mount in input.request.open.target.local.mounts
	in_modes(rule, mount.mode)
	paths.inside(input.facts.sources[mount.host_path].resolved, {paths.slashed(rule.host_path)})
}

# METADATA
# title: A mount that a directory of the list lies below
reasons contains reason(rule) if {
	some rule in data.approval.mounts
	some mount in input.request.open.target.local.mounts
	in_modes(rule, mount.mode)
	paths.covers(input.facts.sources[mount.host_path].resolved, {paths.slashed(rule.host_path)})
}

in_modes(rule, _) if not rule.modes

in_modes(rule, mode) if mode in rule.modes

# METADATA
# title: A network of a mode of the list
reasons contains reason(rule) if {
	some rule in data.approval.networks
	input.request.open.target.local.network_mode == rule.mode
}

# METADATA
# title: An operation of the list, whatever it is on
reasons contains reason(rule) if {
	some rule in data.approval.operations
	input.request.op == rule.op
}

# METADATA
# title: A list that cannot be read
reasons contains "the list of what needs leave is malformed" if {
	count(malformed) > 0
}

reason(rule) := object.get(rule, "reason", "policy wants somebody's leave")

# METADATA
# title: Each list is one
malformed contains name if {
	some name in ["exec", "mounts", "networks", "operations"]
	not list(name)
}

# METADATA
# title: A command of the list has words
malformed contains ["exec", i] if {
	some i, rule in data.approval.exec
	not names_words(rule)
}

# METADATA
# title: A mount of the list has an absolute host path
malformed contains ["mounts", i] if {
	some i, rule in data.approval.mounts
	not names_path(rule)
}

# METADATA
# title: A network of the list has a mode
malformed contains ["networks", i] if {
	some i, rule in data.approval.networks
	not names_mode(rule)
}

# METADATA
# title: An operation of the list has a name
malformed contains ["operations", i] if {
	some i, rule in data.approval.operations
	not names_operation(rule)
}

list(name) if is_array(data.approval[name])

names_words(rule) if {
	is_array(rule.argv)
	count(rule.argv) > 0
	every word in rule.argv {
		is_string(word)
	}
}

names_path(rule) if startswith(rule.host_path, "/")

names_mode(rule) if is_string(rule.mode)

names_operation(rule) if is_string(rule.op)
