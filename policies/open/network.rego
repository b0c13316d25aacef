package stockade.open

import data.stockade.exceptions
import data.stockade.network

# METADATA
# title: The network, as asked or none
network_mode := object.get(local, "network_mode", "none")

# METADATA
# title: The destinations, as asked
egress := object.get(local, "egress", [])

# METADATA
# title: The network that is granted
# description: |
#   What the profile lists when the caller names nothing; otherwise each destination that is named,
#   when one of the profile's holds it. full is the public internet, and what the profile lists besides.
granted_network := object.union(outward, inward)

# METADATA
# title: What the owner of the session may reach inside, by stockade forward
# description: Nothing, where the profile does not say otherwise.
inward := {"forward": profile.forward} if {
	profile.forward
} else := {}

outward := {"mode": network_mode} if {
	network_mode == "none"
	known_network
}

outward := {"mode": network_mode, "allow": listed_egress} if {
	network_mode in {"egress", "full"}
	known_network
	count(egress) == 0
}

outward := {"mode": network_mode, "allow": granted_egress} if {
	network_mode in {"egress", "full"}
	known_network
	count(egress) > 0
}

known_network if network_mode in profile.networks

known_network if {
	profile
	exceptions.lifted({"code": "network_mode_not_allowed", "subject": sprintf("network:%s", [network_mode])})
}

# METADATA
# title: The destinations that the profile lists
listed_egress := object.get(profile, "egress", [])

granted_egress := [wanted | some wanted in egress; granted_destination(wanted)]

granted_destination(wanted) if reachable(wanted)

granted_destination(wanted) if {
	not reachable(wanted)
	exceptions.lifted({"code": "destination_not_allowed", "subject": sprintf("egress:%s", [place(wanted)])})
}

# METADATA
# title: A destination that was asked for is one of those that are listed, or a part of one
reachable(wanted) if {
	some entry in listed_egress
	network.covers(entry, wanted)
}

# METADATA
# title: A name of the public internet needs no listing where everything is granted
# description: It reaches public addresses only, whatever it resolves to. A prefix has to be listed.
reachable(wanted) if {
	network_mode == "full"
	wanted.name
}

# METADATA
# title: The network mode is one of the profile's
# labels: {concern: network, requirement: R084}
deny contains {
	"code": "network_mode_not_allowed",
	"subject": sprintf("network:%s", [network_mode]),
	"message": sprintf("profile %s grants %s", [profile_name, concat(", ", profile.networks)]),
} if {
	not network_mode in profile.networks
}

# METADATA
# title: Every destination that was asked for is granted
# labels: {concern: network, requirement: R084}
deny contains {
	"code": "destination_not_allowed",
	"subject": sprintf("egress:%s", [place(wanted)]),
	"message": sprintf("profile %s does not list it, or not with these ports", [profile_name]),
} if {
	known_network
	some wanted in egress
	not reachable(wanted)
}

# METADATA
# title: How a destination is called in a reason
# description: Always defined, so that a denial that quotes it cannot vanish.
default place(_) := "?"

place(wanted) := sprintf("%s%s%s", [object.get(wanted, "name", object.get(wanted, "cidr", "?")), ports_of(wanted), words_of(wanted)])

default ports_of(_) := ""

ports_of(wanted) := sprintf(":%s", [concat(",", [sprintf("%d", [port]) | some port in wanted.ports])]) if count(wanted.ports) > 0

# METADATA
# title: A destination that goes by its address alone is called another
# description: An exception for a name does not lift the denial of the same name without its word.
words_of(wanted) := sprintf("/%s", [wanted.protocol]) if {
	wanted.protocol
} else := ""
