# What is wrong with the lists of what needs leave: a rule that is misspelt would ask for nobody's leave, and nobody
# would see it.
package stockade

import data.stockade.shape

# METADATA
# title: The members of each list
# labels: {concern: shape}
approval_rules := {
	"exec": {"table": shape.closed({"argv": "list of texts", "reason": "text", "profiles": "list of texts"}), "needed": ["argv"]},
	"mounts": {"table": shape.closed({"host_path": "text", "reason": "text", "modes": "list of texts"}), "needed": ["host_path"]},
	"files": {"table": shape.closed({"path": "text", "reason": "text", "ops": "list of texts", "profiles": "list of texts"}), "needed": ["path"]},
	"networks": {"table": shape.closed({"mode": "text", "reason": "text"}), "needed": ["mode"]},
	"operations": {"table": shape.closed({"op": "text", "reason": "text"}), "needed": ["op"]},
}

# METADATA
# title: Each list is there, and is one
# labels: {concern: shape}
faults contains sprintf("approval.%s is no list", [name]) if {
	some name, _ in approval_rules
	not listed(name)
}

listed(name) if is_array(data.approval[name])

# METADATA
# title: Nothing else is said of approvals
# labels: {concern: shape}
faults contains sprintf("approval.%s is not known", [name]) if {
	some name, _ in data.approval
	not approval_rules[name]
	name != "timeout_ns"
}

# METADATA
# title: A wait has an end
# labels: {concern: shape}
faults contains "approval.timeout_ns is no instant" if not shape.fits("instant", object.get(data.approval, "timeout_ns", 0))

# METADATA
# title: Each rule of a list has what it needs, and no member that nothing reads
# labels: {concern: shape}
faults contains fault if {
	some name, kind in approval_rules
	some i, rule in data.approval[name]
	is_object(rule)
	where := sprintf("approval.%s.%v", [name, i])
	some fault in (shape.faults(where, rule, kind.table) | shape.lacking(where, rule, kind.needed))
}

# METADATA
# title: Each rule of a list is an object
# labels: {concern: shape}
faults contains sprintf("approval.%s.%v is no rule", [name, i]) if {
	some name, _ in approval_rules
	some i, rule in data.approval[name]
	not is_object(rule)
}

# METADATA
# title: A command has words
# labels: {concern: shape}
faults contains sprintf("approval.exec.%v: argv is empty", [i]) if {
	some i, rule in data.approval.exec
	rule.argv == []
}

# METADATA
# title: A command is of profiles that are there
# labels: {concern: shape}
faults contains sprintf("approval.exec.%v: there is no profile %s", [i, name]) if {
	some i, rule in data.approval.exec
	some name in rule.profiles
	not data.profiles[name]
}

# METADATA
# title: A mount is of a host directory, and of modes that there are
# labels: {concern: shape}
faults contains sprintf("approval.mounts.%v: %v is no absolute path", [i, rule.host_path]) if {
	some i, rule in data.approval.mounts
	not startswith(rule.host_path, "/")
}

# METADATA
# title: What file tools touch is named by an absolute path
# labels: {concern: shape}
faults contains sprintf("approval.files.%v: %v is no absolute path", [i, rule.path]) if {
	some i, rule in data.approval.files
	not startswith(rule.path, "/")
}

# METADATA
# title: What file tools do is of classes that there are
# labels: {concern: shape}
faults contains sprintf("approval.files.%v: there is no class %s", [i, op]) if {
	some i, rule in data.approval.files
	some op in rule.ops
	not op in {"read", "write", "edit", "patch", "search", "list", "stat"}
}

# METADATA
# title: A mount is of modes that there are
# labels: {concern: shape}
faults contains sprintf("approval.mounts.%v: there is no mode %s", [i, mode]) if {
	some i, rule in data.approval.mounts
	some mode in rule.modes
	not mode in {"ro", "rw", "overlay"}
}

# METADATA
# title: Approvers are uids
# labels: {concern: shape}
faults contains "principals.approvers is no list of ids" if {
	not shape.fits("list of ids", data.principals.approvers)
}
