package sandbox

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Validate reports what makes a destination not well formed.
func (d Destination) Validate() error {
	switch {
	case (d.Name == "") == (d.CIDR == ""):
		return fmt.Errorf("destination %.100q %.100q: names neither or both of name and cidr", d.Name, d.CIDR)
	case d.Name != "" && !validName(d.Name):
		return fmt.Errorf("destination %.100q: not a DNS name in lower case, or *. before one", d.Name)
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

// Within reports whether everything that n reaches is reached by wide too. Both are valid. It compares
// destination by destination: what only several of wide's cover together is not within.
func (n Network) Within(wide Network) bool {
	if rank(n.Mode) > rank(wide.Mode) {
		return false
	}
	return !slices.ContainsFunc(n.Allow, func(d Destination) bool { return !wide.admits(d) })
}

// rank is the place of a mode among the modes; what is none of them reaches nothing.
func rank(mode string) int { return max(0, slices.Index(NetworkModes, mode)) }

func (n Network) admits(d Destination) bool {
	return n.Mode == "full" && d.public() || slices.ContainsFunc(n.Allow, func(w Destination) bool { return w.Covers(d) })
}

// Covers reports whether all that other allows is allowed by d too: names by their labels, prefixes by
// containment, ports as sets. A name says nothing about addresses, so neither kind covers the other.
func (d Destination) Covers(other Destination) bool {
	return (d.Name != "" && coversName(d.Name, other.Name) || d.CIDR != "" && coversPrefix(d.CIDR, other.CIDR)) &&
		(d.Protocol == other.Protocol || d.Protocol == "tcp") && // "" wants more of a connection, so it is less
		(len(d.Ports) == 0 || len(other.Ports) > 0 && !slices.ContainsFunc(other.Ports, func(p uint16) bool { return !slices.Contains(d.Ports, p) }))
}

// coversName: *.example.org covers a.example.org, a.b.example.org and *.a.example.org, but neither
// example.org nor badexample.org.
func coversName(name, other string) bool {
	below, wild := strings.CutPrefix(name, "*")
	return name == other || wild && strings.HasSuffix(other, below)
}

// coversPrefix: what is wider than a reserved prefix does not reach into it.
func coversPrefix(cidr, other string) bool {
	wide, err := ParsePrefix(cidr)
	p, wrong := ParsePrefix(other)
	return err == nil && wrong == nil && holds(wide, p) &&
		!slices.ContainsFunc(reserved, func(r netip.Prefix) bool { return holds(r, p) && r.Bits() > wide.Bits() })
}

// public reports whether a destination is part of what "full" reaches without being named.
func (d Destination) public() bool {
	if d.Name != "" {
		return true
	}
	p, err := ParsePrefix(d.CIDR)
	return err == nil && !slices.ContainsFunc(reserved, func(r netip.Prefix) bool { return holds(r, p) })
}

// holds reports whether all of p lies in wide.
func holds(wide, p netip.Prefix) bool { return wide.Bits() <= p.Bits() && wide.Contains(p.Addr()) }
