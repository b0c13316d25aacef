package sandbox

import (
	"net/netip"
	"slices"
)

// reserved are the prefixes that are nobody's on the public internet (IANA's registries of special purposes), and
// those in which an IPv4 address travels as IPv6. What is granted by name, or by a prefix that is larger,
// reaches none of them: only a destination that lies within one (T031).
var reserved = prefixes(
	"0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12",
	"192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24",
	"203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4",
	"168.63.129.16/32", // public by number only: on Azure the machine's own platform, with its secrets, as 169.254.169.254 is elsewhere
	// All of IPv6 but 2000::/3, in pieces: only the last five are in use.
	"::/8", "100::/8", "200::/7", "400::/6", "800::/5", "1000::/4",
	"4000::/2", "8000::/2", "c000::/3", "e000::/4", "f000::/5", "f800::/6", "fe00::/9",
	"64:ff9b::/96", "fc00::/7", "fe80::/10", "fec0::/10", "ff00::/8",
	"2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20", // Teredo and other tunnels, documentation, 6to4
)

func prefixes(texts ...string) []netip.Prefix {
	out := make([]netip.Prefix, len(texts))
	for i, s := range texts {
		out[i] = netip.MustParsePrefix(s)
	}
	return out
}

// Reserved returns the prefixes that only a destination reaches that lies within one of them.
func Reserved() []netip.Prefix { return slices.Clone(reserved) }
