package stockade.open

# METADATA
# title: The network, as asked or none
network_mode := object.get(local, "network_mode", "none")

# METADATA
# title: The network that is granted
granted_network := network_mode if {
	network_mode in profile.networks
	not network_mode in {"full", "egress"}
}

# METADATA
# title: There is no way out of a session in this version
deny contains {
	"code": sprintf("network_%s_unsupported", [network_mode]),
	"subject": sprintf("network:%s", [network_mode]),
	"message": "this version builds sessions with network_mode none only",
} if {
	network_mode in {"full", "egress"}
}

# METADATA
# title: The network mode is one of the profile's
deny contains {
	"code": "network_mode_not_allowed",
	"subject": sprintf("network:%s", [network_mode]),
	"message": sprintf("profile %s grants %s", [profile_name, concat(", ", profile.networks)]),
} if {
	not network_mode in {"full", "egress"}
	not network_mode in profile.networks
}
