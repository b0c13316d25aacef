# METADATA
# title: Questions about destinations
# labels: {concern: network}
package stockade.network

# METADATA
# title: One destination holds another
covers(entry, wanted) if {
	same_place(entry, wanted)
	same_ports(entry, wanted)
	same_words(entry, wanted)
}

same_place(entry, wanted) if entry.name == wanted.name

same_place(entry, wanted) if {
	startswith(entry.name, "*.")
	endswith(wanted.name, trim_prefix(entry.name, "*"))
}

same_place(entry, wanted) if entry.cidr == wanted.cidr

same_place(entry, wanted) if {
	net.cidr_contains(entry.cidr, wanted.cidr)
	not beneath_reserved(entry.cidr, wanted.cidr)
}

# METADATA
# title: A range that is not of the public internet lies between the two
# description: |
#   Who lists 0.0.0.0/0 means the internet, and not the machines next door: those are reached by a
#   destination that lies among them, here as in a session (data.network.reserved).
beneath_reserved(listed, wanted) if {
	some range in data.network.reserved
	net.cidr_contains(range, wanted)
	not net.cidr_contains(range, listed)
}

# METADATA
# title: No more ports than are listed
same_ports(entry, _) if not entry.ports

same_ports(entry, wanted) if {
	count(wanted.ports) > 0
	every port in wanted.ports {
		port in entry.ports
	}
}

# METADATA
# title: A destination that goes by its address alone is more than one that says its name
same_words(entry, _) if entry.protocol == "tcp"

same_words(entry, wanted) if object.get(entry, "protocol", "") == object.get(wanted, "protocol", "")
