# METADATA
# title: What needs somebody's leave
# description: |
#   data.approval lists it; shipped, the lists are empty. The operation is allowed all the same, or it would be denied:
#   leave adds nothing to a grant.
# labels: {concern: approval}
package stockade.approval.required

import data.stockade.paths
import data.stockade.principals

# METADATA
# title: The operation waits for leave, if something of the lists says so
# description: |
#   Four eyes: who asks is not who gives leave, unless he administers the supervisor. As shipped the lists are empty; each
#   decision sees that, and looks no further.
# labels: {concern: approval}
obligations := {"require_approval": requirement |
	listed
	count(reasons) > 0
}

listed if data.approval[_][_] # data alone say so: asked once

# METADATA
# title: What cannot be said is no obligation, and the supervisor denies it
# labels: {concern: approval}
default requirement := {}

requirement := {
	"reason": substring(concat("; ", reasons), 0, 500),
	"timeout_ns": data.approval.timeout_ns,
	"approvers": {"uids": principals.approvers},
	"allow_own": own,
}

default own := false

own if principals.administrator

# METADATA
# title: A command that begins like one of the list
# description: |
#   argv is compared word by word; "*" is any word, and a first word without a slash is the
#   name of the program wherever it is. It is a question asked in time, not a wall: what a session can reach
#   is what it was granted.
# labels: {concern: approval}
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
# labels: {concern: approval}
reasons contains reason(rule) if {
	some rule in data.approval.mounts
	some mount in input.request.open.target.local.mounts
	in_modes(rule, mount.mode)
	paths.inside(input.facts.sources[mount.host_path].resolved, {paths.slashed(rule.host_path)})
}

# METADATA
# title: A mount that a directory of the list lies below
# labels: {concern: approval}
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
# labels: {concern: approval}
reasons contains reason(rule) if {
	some rule in data.approval.networks
	input.request.open.target.local.network_mode == rule.mode
}

# METADATA
# title: A file tool on what lies at or below a directory of the list
# description: What its paths lead to is compared. Without ops, only what is changed needs leave.
# labels: {concern: approval}
reasons contains reason(rule) if {
	some rule in data.approval.files
	in_profile(rule)
	some file in input.file.paths
	for_op(rule, file)
	paths.inside(file.resolved, {paths.slashed(rule.path)})
}

for_op(rule, file) if {
	not rule.ops
	file.write == true
}

for_op(rule, _) if input.file.op in rule.ops

# METADATA
# title: An operation of the list, whatever it is on
# labels: {concern: approval}
reasons contains reason(rule) if {
	some rule in data.approval.operations
	input.request.op == rule.op
}

reason(rule) := object.get(rule, "reason", "policy wants somebody's leave")
