# METADATA
# title: What the data of this library looks like
# description: |
#   A member that is misspelt bounds nothing, and nobody would see it: an absent list is unconstrained. So data is
#   closed, and looked through once, when a policy is loaded (data.stockade.faults).
# labels: {concern: shape}
package stockade.shape

# METADATA
# title: What is wrong with a document, by a table of its members
# description: A table has the path of each member that is a value, and its kind.
faults(where, document, table) := unknown(where, document, table) | unfit(where, document, table)

unfit(where, document, table) := {sprintf("%s.%s is no %v", [where, name, table[name]]) |
	some [path, value] in members(document)
	name := dotted(path)
	table[name]
	not fits(table[name], value)
}

unknown(where, document, table) := {sprintf("%s.%s is not known", [where, name]) |
	some [path, value] in members(document)
	name := dotted(path)
	not table[name]
	not within(name, table)
	not around(name, value, table)
}

# METADATA
# title: What a document lacks
lacking(where, document, required) := {sprintf("%s has no %s", [where, name]) |
	some name in required
	object.get(document, split(name, "."), "(absent)") == "(absent)"
}

members(document) := {[path, value] | walk(document, [path, value]); count(path) > 0}

dotted(path) := concat(".", [sprintf("%v", [part]) | some part in path])

within(name, table) if {
	some member, _ in table
	startswith(name, sprintf("%s.", [member]))
}

around(name, value, table) if {
	is_object(value)
	some member, _ in table
	startswith(member, sprintf("%s.", [name]))
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

fits("list of directories that end in a slash", value) if {
	is_array(value)
	every element in value { regex.match(`^/([^/]+/)*$`, element) }
}

fits("list of places with bytes and inodes", value) if {
	is_array(value)
	every element in value {
		object.keys(element) == {"guest_path", "bytes", "inodes"}
		counts(element.bytes)
		counts(element.inodes)
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
