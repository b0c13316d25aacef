package stockade.open_test

import data.stockade.open

# R007
test_no_network_is_granted if granted(base).network == {"mode": "none", "forward": {}}

test_no_network_may_be_asked_for if granted(local({"/network_mode": "none"})).network == {"mode": "none", "forward": {}}

# R008, R009: what a profile does not list is not granted.
test_full_needs_a_profile_that_lists_it if {
	codes(local({"/network_mode": "full"})) == {"network_mode_not_allowed"}
	with_networks(["none", "full"], [], local({"/network_mode": "full"})).grant.network == {"mode": "full", "allow": [], "forward": {}}
}

test_egress_without_a_list_reaches_nothing if {
	with_networks(["egress"], [], local({"/network_mode": "egress"})).grant.network == {"mode": "egress", "allow": [], "forward": {}}
}

test_a_hermetic_session_has_no_network if {
	every mode in ["egress", "full"] {
		codes(changed(hermetic, {"/request/open/target/local/network_mode": mode})) == {"network_mode_not_allowed"}
	}
}

# R084
test_an_unknown_mode_is_denied if codes(local({"/network_mode": "host"})) == {"network_mode_not_allowed"}

test_who_names_nothing_gets_what_is_listed if {
	with_networks(["egress"], list, local({"/network_mode": "egress"})).grant.network == {"mode": "egress", "allow": list, "forward": {}}
}

test_who_names_something_gets_no_more if {
	wanted := [{"name": "example.org", "ports": [443]}]
	asking("egress", wanted).grant.network == {"mode": "egress", "allow": wanted, "forward": {}}
}

# T178: one row per destination, each allowed one with a twin that looks like it.
test_destinations[description] if {
	some description, row in destinations
	decision := asking(row.mode, [row.wanted])
	decision.allow == row.allowed
	{deny.code | some deny in decision.deny} == {code | not row.allowed; code := "destination_not_allowed"}
}

test_a_denial_names_the_destination if {
	wanted := [{"name": "a.test"}, {"name": "b.test", "ports": [80, 443]}, {"cidr": "203.0.113.0/24"}]
	{deny.subject | some deny in asking("egress", wanted).deny} == {"egress:a.test", "egress:b.test:80,443", "egress:203.0.113.0/24"}
}

test_every_row_of_the_destinations_ran if count(test_destinations) == count(destinations)

list := [
	{"name": "example.org", "ports": [80, 443]},
	{"name": "*.example.net"},
	{"name": "db.example.com", "ports": [5432], "protocol": "tcp"},
	{"cidr": "198.51.100.0/24", "ports": [443]},
	{"cidr": "0.0.0.0/0", "ports": [8443]},
	{"cidr": "2001:db8::/32"},
]

destinations := {
	"as it is listed": {"mode": "egress", "wanted": list[0], "allowed": true},
	"one of two ports": {"mode": "egress", "wanted": {"name": "example.org", "ports": [443]}, "allowed": true},
	"a port more": {"mode": "egress", "wanted": {"name": "example.org", "ports": [443, 8080]}, "allowed": false},
	"every port where some are listed": {"mode": "egress", "wanted": {"name": "example.org"}, "allowed": false},
	"no port": {"mode": "egress", "wanted": {"name": "example.org", "ports": []}, "allowed": false},
	"a name below": {"mode": "egress", "wanted": {"name": "a.b.example.net"}, "allowed": true},
	"a narrower star": {"mode": "egress", "wanted": {"name": "*.b.example.net"}, "allowed": true},
	"the star itself": {"mode": "egress", "wanted": {"name": "*.example.net"}, "allowed": true},
	"what the star is below of": {"mode": "egress", "wanted": {"name": "example.net"}, "allowed": false},
	"a name that ends alike": {"mode": "egress", "wanted": {"name": "badexample.net"}, "allowed": false},
	"a name that begins alike": {"mode": "egress", "wanted": {"name": "a.example.net.evil.org"}, "allowed": false},
	"a wider star": {"mode": "egress", "wanted": {"name": "*.net"}, "allowed": false},
	"a name below one without a star": {"mode": "egress", "wanted": {"name": "www.example.org", "ports": [443]}, "allowed": false},
	"by address alone": {"mode": "egress", "wanted": {"name": "a.example.net", "protocol": "tcp"}, "allowed": false},
	"by address alone where it is listed": {"mode": "egress", "wanted": list[2], "allowed": true},
	"by name where the address is enough": {"mode": "egress", "wanted": {"name": "db.example.com", "ports": [5432]}, "allowed": true},
	"a part of a prefix": {"mode": "egress", "wanted": {"cidr": "198.51.100.128/25", "ports": [443]}, "allowed": true},
	"a wider prefix": {"mode": "egress", "wanted": {"cidr": "198.51.0.0/16", "ports": [443]}, "allowed": false},
	"the prefix beside": {"mode": "egress", "wanted": {"cidr": "198.51.101.0/24", "ports": [443]}, "allowed": false},
	"a part of everything": {"mode": "egress", "wanted": {"cidr": "8.8.8.0/24", "ports": [8443]}, "allowed": true},
	"a private part of everything": {"mode": "egress", "wanted": {"cidr": "10.0.0.0/8", "ports": [8443]}, "allowed": false},
	"the machine's own addresses": {"mode": "egress", "wanted": {"cidr": "169.254.169.254/32", "ports": [8443]}, "allowed": false},
	"IPv6 of a listed range": {"mode": "egress", "wanted": {"cidr": "2001:db8:1::/48"}, "allowed": true},
	"all of IPv6": {"mode": "egress", "wanted": {"cidr": "::/0"}, "allowed": false},
	"any name of everything": {"mode": "full", "wanted": {"name": "other.example.com"}, "allowed": true},
	"a prefix of everything": {"mode": "full", "wanted": {"cidr": "10.0.0.0/8"}, "allowed": false},
	"a listed prefix beside everything": {"mode": "full", "wanted": {"cidr": "2001:db8::/32"}, "allowed": true},
}

with_networks(networks, egress, document) := decision if {
	decision := open.decision with input as document
		with data.profiles.workspace.networks as networks
		with data.profiles.workspace.egress as egress
}

asking(mode, wanted) := with_networks(["none", "egress", "full"], list, local({"/network_mode": mode, "/egress": wanted}))

# What a profile opens to the owner of the session, and a cap takes away.
test_ports_are_opened_by_the_profile if {
	granted(base).network.forward == {}
	opening({"ports": [8000]}).grant.network.forward == {"ports": [8000]}
	opening(null).grant.network.forward == null
}

opening(forward) := decision if {
	decision := open.decision with input as base with data.profiles.workspace.forward as forward
}
