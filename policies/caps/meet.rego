package stockade.caps

import data.stockade.env
import data.stockade.network
import data.stockade.paths

# METADATA
# title: A member of a layer, or a word that is no value of any
# description: An absent member is not an empty one, and not null either.
at(layer, path) := object.get(layer, path, "(absent)")

has(layer, path) if at(layer, path) != "(absent)"

# METADATA
# title: The numbers that any layer has, each the least
numbers(layers, parent, members) := {member: least |
	some member in members
	least := min({number | some layer in layers; number := at(layer, array.concat(parent, [member])); number != "(absent)"})
}

# METADATA
# title: The lists that any layer has, each what all of them have
common(layers, parent, members) := {member: kept |
	some member in members
	path := array.concat(parent, [member])
	some layer in layers
	has(layer, path)
	kept := {element | some each in layers; some element in object.get(each, path, []); not withheld(layers, path, element)}
}

withheld(layers, path, element) if {
	some layer in layers
	has(layer, path)
	not element in at(layer, path)
}

# METADATA
# title: The lists of directories that any layer has, each the longest of those that lie in one another
prefixes(layers, parent, members) := {member: kept |
	some member in members
	path := array.concat(parent, [member])
	some layer in layers
	has(layer, path)
	kept := {paths.slashed(dir) | some each in layers; some dir in object.get(each, path, []); not outside(layers, path, dir)}
}

outside(layers, path, dir) if {
	some layer in layers
	has(layer, path)
	not paths.inside(dir, paths.dirs(at(layer, path)))
}

# METADATA
# title: The lists of names that any layer has, each what all of them admit
names(layers, parent, members) := {member: kept |
	some member in members
	path := array.concat(parent, [member])
	some layer in layers
	has(layer, path)
	kept := {name | some each in layers; some name in object.get(each, path, []); not unnamed(layers, path, name)}
}

unnamed(layers, path, name) if {
	some layer in layers
	has(layer, path)
	not env.among(name, at(layer, path))
}

# METADATA
# title: A member that has its strict value where any layer has it so
strictest(layers, parent, member, value) := {member: value} if {
	some layer in layers
	at(layer, array.concat(parent, [member])) == value
} else := {}

# METADATA
# title: The ceilings of who asks for none
# description: A cap's maximum bounds the default as well, and sets one where the profile has none.
usual(layers) := {member: least |
	some member in (names_in(layers, ["ceilings", "default"]) | capped(layers))
	least := min({number |
		some layer in layers
		some part in ["default", "max"]
		number := at(layer, ["ceilings", part, member])
		number != "(absent)"
	})
}

capped(layers) := {member | some layer in layers; layer in applied; some member, _ in object.get(layer, ["ceilings", "max"], {})}

names_in(layers, path) := {member | some layer in layers; some member, _ in object.get(layer, path, {})}

# METADATA
# title: A time that is bounded where any layer bounds it
# description: 0 sets no bound, as in a profile.
lifetime(layers, member) := {"default_ns": shortest(usual_times(layers, member)), "max_ns": shortest(longest_times(layers, member))}

usual_times(layers, member) := {layer[member].default_ns | some layer in layers} | {layer[member].max_ns | some layer in applied}

longest_times(layers, member) := {layer[member].max_ns | some layer in layers}

shortest(times) := min(times - {0}) if {
	count(times - {0}) > 0
} else := 0

# METADATA
# title: The network that all layers have
# description: |
#   Of the destinations those that each list holds. full reaches what no list names, so it is not granted where a cap
#   has a list.
network(profile, layers) := {"networks": modes, "egress": destinations} if {
	lists := [layer.egress | some layer in applied; has(layer, ["egress"])]
	modes := {mode | some mode in common(layers, [], {"networks"}).networks; not unlisted(mode, lists)}
	destinations := {wanted |
		some list in array.concat(lists, [object.get(profile, "egress", [])])
		some wanted in list
		every each in array.concat(lists, [object.get(profile, "egress", [])]) {
			held(each, wanted)
		}
	}
}

unlisted("full", lists) if count(lists) > 0

held(list, wanted) if {
	some entry in list
	network.covers(entry, wanted)
}

# METADATA
# title: The ports that all layers open to the owner
# description: A profile that opens none has none, whatever a cap says.
forward(profile, layers) := {"forward": common(layers, ["forward"], {"ports"})} if {
	profile.forward
} else := {}

# METADATA
# title: The file tools that all layers have
# description: A layer without fs bounds none of them; a profile without it has none, whatever a cap says.
fs(layers) := {"fs": object.union_n([
	common(layers, ["fs"], {"ops", "patch_formats"}),
	prefixes(layers, ["fs"], {"roots", "write_roots"}),
	numbers(layers, ["fs"], {member | some member in names_in(layers, ["fs"]); startswith(member, "max_")}),
	{"follow_symlinks": least_links(layers)},
])} if {
	every layer in layers - applied { layer.fs.ops }
} else := {}

least_links(layers) := [way |
	some way in ["deny", "within_root_only", "allow"]
	some layer in layers
	has(layer, ["fs"])
	way == links(layer)
][0]

links(layer) := object.get(layer, ["fs", "follow_symlinks"], "allow") if layer in applied

links(layer) := object.get(layer, ["fs", "follow_symlinks"], "within_root_only") if not layer in applied
