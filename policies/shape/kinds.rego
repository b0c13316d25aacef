# METADATA
# title: What the data of this library looks like
# description: |
#   A member that is misspelt bounds nothing, and nobody would see it: an absent list is unconstrained. So data is
#   closed, and looked through once, when a policy is loaded (data.stockade.faults).
# labels: {concern: shape}
package stockade.shape

# METADATA
# title: A table of members
# description: Each member that is a value has its path and its kind; what leads to them are the parts, with the names in each.
closed(kinds) := {
	"leaves": [{"name": name, "path": split(name, "."), "kind": kind} | some name, kind in kinds],
	"parts": [{"name": concat(".", part), "path": part, "names": {names[count(part)] |
		some name, _ in kinds
		names := split(name, ".")
		array.slice(names, 0, count(part)) == part
	}} |
		some part in {array.slice(names, 0, n) | some name, _ in kinds; names := split(name, "."); some n, _ in names}
	],
}

# METADATA
# title: What is wrong with a document, by a table of its members
faults(where, document, table) := unknown(where, document, table) | unfit(where, document, table)

unknown(where, document, table) := {fault |
	some part in table.parts
	members := object.get(document, part.path, {})
	fault := stranger(where, part, members)[_]
}

stranger(where, part, members) := [sprintf("%s: %s is not known in %q", [where, name, part.name]) | some name, _ in members; not part.names[name]] if is_object(members)

stranger(where, part, members) := [sprintf("%s: %q is no object", [where, part.name])] if not is_object(members)

unfit(where, document, table) := {sprintf("%s: %s is no %v", [where, leaf.name, leaf.kind]) |
	some leaf in table.leaves
	value := object.get(document, leaf.path, "(absent)")
	value != "(absent)"
	not fits(leaf.kind, value)
}

# METADATA
# title: What a document lacks
lacking(where, document, required) := {sprintf("%s: %s is missing", [where, name]) |
	some name in required
	object.get(document, split(name, "."), "(absent)") == "(absent)"
}

# METADATA
# title: A value is of a kind, or one of a few words
fits(words, value) if {
	is_array(words)
	value in words
}

fits("boolean", value) if is_boolean(value)

fits("text", value) if is_string(value)

fits("count", value) if counts(value)

fits("instant", value) if {
	counts(value)
	value > 0
}

fits("list of texts", value) if {
	is_array(value)
	every element in value { is_string(element) }
}

fits("list of ids", value) if {
	is_array(value)
	every element in value { counts(element) }
}

fits("list of ports", value) if {
	is_array(value)
	every element in value {
		counts(element)
		element > 0
		element < 65536
	}
}

fits("list of directories that end in a slash", value) if {
	is_array(value)
	every element in value {
		is_string(element)
		regex.match(`^/([^/]+/)*$`, element)
	}
}

fits("list of places with bytes and inodes", value) if {
	is_array(value)
	every element in value {
		object.keys(element) == {"guest_path", "bytes", "inodes"}
		counts(element.bytes)
		counts(element.inodes)
		is_string(element.guest_path)
		regex.match(`^(/[^/]+)+$`, element.guest_path)
	}
}

fits("list of destinations", value) if {
	is_array(value)
	every element in value {
		count(object.keys(element) & {"name", "cidr"}) == 1
		count(object.keys(element) - {"name", "cidr", "ports", "protocol"}) == 0
		every port in object.get(element, "ports", [443]) { counts(port) }
		count(object.get(element, "ports", [443])) > 0
	}
}

fits("object of texts", value) if {
	is_object(value)
	every element in value { is_string(element) }
}

fits("object of ceilings", value) if {
	is_object(value)
	every name, number in value {
		name in ceilings
		counts(number)
	}
}

counts(value) if {
	is_number(value)
	value >= 0
	floor(value) == value
	value <= 9223372036854775807
}

ceilings := {
	"memory_bytes", "cpu_millis", "pids", "files", "output_bytes", "executions", "queued",
	"cpu_weight", "cpu_time_ns", "io_bytes_per_second", "disk_bytes", "disk_inodes",
}
