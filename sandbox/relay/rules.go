package relay

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// policy is Rules with the prefixes that bound them, ready to be asked. It does not change.
type policy struct {
	full             bool
	names            []nameRule
	prefixes         []prefixRule
	denied, reserved []netip.Prefix
}

type nameRule struct {
	name  string // with the dot of "*." when below
	below bool
	raw   bool // by address: the name need not be in the first bytes
	ports []uint16
}

type prefixRule struct {
	prefix netip.Prefix
	ports  []uint16
}

func compile(r Rules, denied, reserved []netip.Prefix) (*policy, error) {
	p := &policy{denied: denied, reserved: reserved}
	switch r.Mode {
	case "none":
		return p, nil
	case "full":
		p.full = true
	case "egress":
	default:
		return nil, fmt.Errorf("mode %q", r.Mode)
	}
	for _, d := range r.Allow {
		if d.CIDR != "" {
			prefix, err := netip.ParsePrefix(d.CIDR)
			if err != nil {
				return nil, err
			}
			p.prefixes = append(p.prefixes, prefixRule{prefix, d.Ports})
			continue
		}
		name, below := strings.CutPrefix(d.Name, "*")
		p.names = append(p.names, nameRule{name, below, d.Protocol == "tcp", d.Ports})
	}
	return p, nil
}

func hasPort(ports []uint16, port uint16) bool {
	return len(ports) == 0 || port == 0 || slices.Contains(ports, port)
}

func (n nameRule) matches(name string) bool {
	if n.below {
		return len(name) > len(n.name) && strings.HasSuffix(name, n.name)
	}
	return name == n.name
}

// resolves reports whether a name may be asked for.
func (p *policy) resolves(name string) bool {
	return p.full || slices.ContainsFunc(p.names, func(n nameRule) bool { return n.matches(name) })
}

// named reports whether a name is granted with a port: raw by its addresses alone, otherwise when the first bytes have it.
func (p *policy) named(name string, port uint16, raw bool) bool {
	return slices.ContainsFunc(p.names, func(n nameRule) bool {
		return (n.raw || !raw) && hasPort(n.ports, port) && n.matches(name)
	})
}

// sniffs reports whether the first bytes of a connection to a port can make it granted.
func (p *policy) sniffs(port uint16) bool {
	return slices.ContainsFunc(p.names, func(n nameRule) bool { return !n.raw && hasPort(n.ports, port) })
}

// reaches reports whether an address is one that a name can lead to: not denied, and public, or made reachable by a prefix that lies within the range
// that makes it not public. Port 0 is any.
func (p *policy) reaches(addr netip.Addr, port uint16) bool {
	for _, form := range forms(addr) {
		if slices.ContainsFunc(p.denied, func(d netip.Prefix) bool { return d.Contains(form) }) {
			return false
		}
		for _, r := range p.reserved {
			if r.Contains(form) && !p.opens(r, form, port) {
				return false
			}
		}
	}
	return true
}

// opens reports whether a granted prefix that lies within a reserved one has the address.
func (p *policy) opens(reserved netip.Prefix, addr netip.Addr, port uint16) bool {
	return slices.ContainsFunc(p.prefixes, func(r prefixRule) bool {
		return r.prefix.Contains(addr) && reserved.Bits() <= r.prefix.Bits() && hasPort(r.ports, port)
	})
}

// addressed reports whether an address is granted as an address.
func (p *policy) addressed(addr netip.Addr, port uint16) bool {
	granted := p.full || slices.ContainsFunc(p.prefixes, func(r prefixRule) bool {
		return r.prefix.Contains(addr.Unmap()) && hasPort(r.ports, port)
	})
	return granted && p.reaches(addr, port)
}

// forms are the addresses that one stands for: itself, and the IPv4 address that it carries.
func forms(addr netip.Addr) []netip.Addr {
	addr = addr.Unmap().WithZone("")
	if addr.Is4() {
		return []netip.Addr{addr}
	}
	b := addr.As16()
	v4 := func(at int) netip.Addr { return netip.AddrFrom4([4]byte(b[at : at+4])) }
	switch {
	case compatible.Contains(addr) && addr != netip.IPv6Unspecified() && addr != netip.IPv6Loopback(),
		nat64.Contains(addr), nat64Local.Contains(addr):
		return []netip.Addr{addr, v4(12)}
	case sixToFour.Contains(addr):
		return []netip.Addr{addr, v4(2)}
	case teredo.Contains(addr):
		client := v4(12).As4()
		for i := range client {
			client[i] ^= 0xff
		}
		return []netip.Addr{addr, v4(4), netip.AddrFrom4(client)}
	}
	return []netip.Addr{addr}
}

// IPv4 as IPv6: RFC 4291, 6052, 8215, 3056, 4380.
var (
	compatible = netip.MustParsePrefix("::/96")
	nat64      = netip.MustParsePrefix("64:ff9b::/96")
	nat64Local = netip.MustParsePrefix("64:ff9b:1::/48")
	sixToFour  = netip.MustParsePrefix("2002::/16")
	teredo     = netip.MustParsePrefix("2001::/32")
)

// hostname returns a DNS name in its one form, lower case and without the last dot, or "" for what is
// none: an address above all (127.1 is one to many programs).
func hostname(s string) string {
	s = strings.TrimSuffix(s, ".")
	if len(s) == 0 || len(s) > 253 {
		return ""
	}
	b := []byte(s)
	label, digits := 0, true
	for i, c := range b {
		switch {
		case c == '.':
			if label == 0 || b[i-1] == '-' {
				return ""
			}
			label, digits = 0, true
			continue
		case 'A' <= c && c <= 'Z':
			b[i] = c + 'a' - 'A'
		case 'a' <= c && c <= 'z', c == '_', c == '-' && label > 0, '0' <= c && c <= '9':
		default:
			return ""
		}
		digits = digits && '0' <= c && c <= '9'
		if label++; label > 63 {
			return ""
		}
	}
	if label == 0 || digits || b[len(b)-1] == '-' {
		return ""
	}
	return string(b)
}
