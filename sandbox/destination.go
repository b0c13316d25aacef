package sandbox

import (
	"fmt"
	"net/netip"
	"strings"
)

// Validate reports what makes a destination not well formed.
func (d Destination) Validate() error {
	switch {
	case (d.Name == "") == (d.CIDR == ""):
		return fmt.Errorf("destination %.100q %.100q: names neither or both of name and cidr", d.Name, d.CIDR)
	case d.Name != "" && !validName(d.Name):
		return fmt.Errorf("destination %.100q: not a DNS name in lower case, or one after *.", d.Name)
	case d.Protocol != "" && (d.Protocol != "tcp" || d.CIDR != ""):
		return fmt.Errorf("destination %.100q: protocol %.100q", d.Name+d.CIDR, d.Protocol)
	case len(d.Ports) > maxPorts:
		return fmt.Errorf("destination %.100q: more than %d ports", d.Name+d.CIDR, maxPorts)
	}
	for _, p := range d.Ports {
		if p == 0 {
			return fmt.Errorf("destination %.100q: port 0", d.Name+d.CIDR)
		}
	}
	if d.CIDR != "" {
		if _, err := ParsePrefix(d.CIDR); err != nil {
			return fmt.Errorf("destination: %w", err)
		}
	}
	return nil
}

const maxPorts = 256

// ParsePrefix reads a prefix in its one form: masked, and never IPv4 in the clothes of IPv6.
func ParsePrefix(s string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(s)
	if err != nil || p != p.Masked() || p.String() != s || p.Addr().Is4In6() {
		return netip.Prefix{}, fmt.Errorf("%.100q is not a masked prefix", s)
	}
	return p, nil
}

// validName admits what RFC 1123 does, of two labels at least or of one, without a trailing dot. What looks
// like an address is none: 127.1 is an address to many programs.
func validName(s string) bool {
	s = strings.TrimPrefix(s, "*.")
	if len(s) > 253 {
		return false
	}
	last := ""
	for label := range strings.SplitSeq(s, ".") {
		if len(label) == 0 || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' ||
			!only(label, func(b byte) bool { return 'a' <= b && b <= 'z' || '0' <= b && b <= '9' || b == '-' || b == '_' }) {
			return false
		}
		last = label
	}
	return !only(last, func(b byte) bool { return '0' <= b && b <= '9' })
}
