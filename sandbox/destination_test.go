package sandbox_test

import (
	"testing"

	"github.com/stockade-dev/stockade/sandbox"
)

// R009 R084: what a destination holds, each row with a twin that looks like it and is more.
func TestDestinationWithin(t *testing.T) {
	name := func(s string, ports ...uint16) sandbox.Destination { return sandbox.Destination{Name: s, Ports: ports} }
	cidr := func(s string, ports ...uint16) sandbox.Destination { return sandbox.Destination{CIDR: s, Ports: ports} }
	tcp := func(d sandbox.Destination) sandbox.Destination { d.Protocol = "tcp"; return d }
	egress := func(d sandbox.Destination) sandbox.Network {
		return sandbox.Network{Mode: "egress", Allow: []sandbox.Destination{d}}
	}
	for _, row := range []struct {
		what     string
		d, other sandbox.Destination
		want     bool
	}{
		{"itself", name("example.org"), name("example.org"), true},
		{"another name", name("example.org"), name("example.com"), false},
		{"a name below a name", name("example.org"), name("a.example.org"), false},
		{"a star covers below", name("*.example.org"), name("a.example.org"), true},
		{"a star covers far below", name("*.example.org"), name("a.b.example.org"), true},
		{"a star covers a deeper star", name("*.example.org"), name("*.b.example.org"), true},
		{"a star covers itself", name("*.example.org"), name("*.example.org"), true},
		{"a star does not cover what it is below of", name("*.example.org"), name("example.org"), false},
		{"a star goes by labels", name("*.example.org"), name("badexample.org"), false},
		{"a deeper star is less", name("*.b.example.org"), name("*.example.org"), false},
		{"a name is less than a star", name("a.example.org"), name("*.example.org"), false},
		{"a longer name that ends otherwise", name("*.example.org"), name("example.org.evil.net"), false},
		{"a prefix", cidr("192.0.2.0/24"), cidr("192.0.2.0/24"), true},
		{"a smaller prefix", cidr("192.0.2.0/24"), cidr("192.0.2.128/25"), true},
		{"a larger prefix", cidr("192.0.2.128/25"), cidr("192.0.2.0/24"), false},
		{"the prefix beside", cidr("192.0.2.0/25"), cidr("192.0.2.128/25"), false},
		{"everything of IPv4", cidr("0.0.0.0/0"), cidr("8.0.0.0/8"), true},
		{"everything does not reach into what is private", cidr("0.0.0.0/0"), cidr("10.0.0.0/8"), false},
		{"IPv6 is not IPv4", cidr("0.0.0.0/0"), cidr("::/0"), false},
		{"IPv4 is not IPv6", cidr("::/0"), cidr("0.0.0.0/0"), false},
		{"IPv6", cidr("2001:db8::/32"), cidr("2001:db8:1::/48"), true},
		{"a name is no prefix", cidr("0.0.0.0/0"), name("example.org"), false},
		{"a prefix is no name", name("*.example.org"), cidr("192.0.2.0/24"), false},
		{"every port covers one", name("a.b"), name("a.b", 443), true},
		{"one port does not cover every", name("a.b", 443), name("a.b"), false},
		{"ports in another order", name("a.b", 80, 443), name("a.b", 443, 80), true},
		{"a port more", name("a.b", 80), name("a.b", 80, 443), false},
		{"by address alone is wider", tcp(name("a.b")), name("a.b"), true},
		{"by name is less", name("a.b"), tcp(name("a.b")), false},
		{"by address alone, twice", tcp(name("a.b")), tcp(name("a.b", 1)), true},
	} {
		if got := egress(row.other).Within(egress(row.d)); got != row.want {
			t.Errorf("%s: %+v within %+v: %v", row.what, row.other, row.d, got)
		}
	}
}

// What is left of a network after a part was taken away is within it; anything else is not.
func TestNetworkWithin(t *testing.T) {
	a, b := sandbox.Destination{Name: "a.example.org"}, sandbox.Destination{Name: "*.example.org"}
	private, half := sandbox.Destination{CIDR: "10.0.0.0/8"}, sandbox.Destination{CIDR: "10.128.0.0/9"}
	network := func(mode string, allow ...sandbox.Destination) sandbox.Network {
		return sandbox.Network{Mode: mode, Allow: allow}
	}
	for _, row := range []struct {
		what string
		m, n sandbox.Network
		want bool
	}{
		{"none in none", network("none"), network("none"), true},
		{"none in egress", network("none"), network("egress", a), true},
		{"egress in none", network("egress"), network("none"), false},
		{"egress in itself", network("egress", b, private), network("egress", b, private), true},
		{"less of it", network("egress", a, half), network("egress", b, private), true},
		{"more of it", network("egress", b), network("egress", a), false},
		{"one of two is more", network("egress", a, private), network("egress", b), false},
		{"a name of everything", network("egress", a), network("full"), true},
		{"a private range of everything", network("egress", private), network("full"), false},
		{"a private range that was granted", network("egress", half), network("full", private), true},
		{"everything without its private range", network("full"), network("full", private), true},
		{"a public range of everything", network("egress", sandbox.Destination{CIDR: "8.8.8.0/24"}), network("full"), true},
		{"all of IPv4 of everything", network("egress", sandbox.Destination{CIDR: "0.0.0.0/0"}), network("full"), true},
		{"everything, and a private range", network("full", private), network("full", half), false},
		{"everything in a part", network("full"), network("egress", b), false},
	} {
		if got := row.m.Within(row.n); got != row.want {
			t.Errorf("%s: %v", row.what, got)
		}
	}
}
