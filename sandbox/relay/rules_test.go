package relay

import (
	"encoding/binary"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

var testReserved = []netip.Prefix{
	netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("169.254.0.0/16"),
	netip.MustParsePrefix("::/8"), netip.MustParsePrefix("64:ff9b::/96"), netip.MustParsePrefix("fc00::/7"), netip.MustParsePrefix("2002::/16"), netip.MustParsePrefix("2001::/23"),
}

func mustCompile(t testing.TB, r Rules, denied ...string) *policy {
	t.Helper()
	var d []netip.Prefix
	for _, s := range denied {
		d = append(d, netip.MustParsePrefix(s))
	}
	p, err := compile(r, d, testReserved)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func egress(allow ...Destination) Rules { return Rules{Mode: "egress", Allow: allow} }

// T031: addresses, one row per way to call one that must not be reached.
func TestAddresses(t *testing.T) {
	for _, row := range []struct {
		rules    Rules
		addr     string
		port     uint16
		want     bool
		reaching bool // by name
	}{
		{Rules{Mode: "none"}, "8.8.8.8", 443, false, true},
		{Rules{Mode: "full"}, "8.8.8.8", 443, true, true},
		{Rules{Mode: "full"}, "10.0.0.1", 443, false, false},
		{Rules{Mode: "full"}, "::ffff:10.0.0.1", 443, false, false},
		{Rules{Mode: "full"}, "::10.0.0.1", 443, false, false},
		{Rules{Mode: "full"}, "64:ff9b::10.0.0.1", 443, false, false},
		{Rules{Mode: "full"}, "2002:a00:1::", 443, false, false},
		{Rules{Mode: "full"}, "2001:0:0a00:1::", 443, false, false},
		{Rules{Mode: "full"}, "fd00:ec2::254", 80, false, false},
		{Rules{Mode: "full"}, "2600::1", 80, true, true},
		{Rules{Mode: "full"}, "8.8.4.4", 80, false, false}, // the operator's
		{Rules{Mode: "full"}, "64:ff9b::8.8.4.4", 80, false, false},
		{egress(Destination{CIDR: "8.8.8.0/24", Ports: []uint16{443}}), "8.8.8.8", 443, true, true},
		{egress(Destination{CIDR: "8.8.8.0/24", Ports: []uint16{443}}), "::ffff:8.8.8.8", 443, true, true},
		{egress(Destination{CIDR: "8.8.8.0/24", Ports: []uint16{443}}), "8.8.8.8", 80, false, true},
		{egress(Destination{CIDR: "0.0.0.0/0"}), "10.0.0.1", 80, false, false},
		{egress(Destination{CIDR: "10.0.0.0/8"}), "10.0.0.1", 80, true, true},
		{egress(Destination{CIDR: "10.0.0.0/8", Ports: []uint16{443}}), "10.0.0.1", 80, false, false},
		{egress(Destination{CIDR: "10.0.0.0/8"}), "64:ff9b::10.0.0.1", 80, false, false},
		{egress(Destination{CIDR: "64:ff9b::/96"}), "64:ff9b::10.0.0.1", 80, false, false},
		{egress(Destination{CIDR: "64:ff9b::/96"}), "64:ff9b::8.8.8.8", 80, true, true},
		{egress(Destination{CIDR: "10.0.0.0/8"}, Destination{CIDR: "64:ff9b::/96"}), "64:ff9b::10.0.0.1", 80, true, true},
		{egress(Destination{CIDR: "8.8.4.0/24"}), "8.8.4.4", 80, false, false},
	} {
		p, addr := mustCompile(t, row.rules, "8.8.4.4/32"), netip.MustParseAddr(row.addr)
		if got := p.addressed(addr, row.port); got != row.want {
			t.Errorf("%+v %s:%d is addressed: %v", row.rules, row.addr, row.port, got)
		}
		if got := p.reaches(addr, row.port); got != row.reaching {
			t.Errorf("%+v %s:%d is reached by name: %v", row.rules, row.addr, row.port, got)
		}
	}
}

// Names are compared by labels, in one spelling.
func TestNamesOfRules(t *testing.T) {
	p := mustCompile(t, egress(Destination{Name: "a.test", Ports: []uint16{443}}, Destination{Name: "*.w.test"}, Destination{Name: "raw.test", Protocol: "tcp"}))
	for _, row := range []struct {
		name       string
		port       uint16
		sniff, raw bool
	}{
		{"a.test", 443, true, false}, {"a.test", 80, false, false}, {"b.a.test", 443, false, false}, {"ba.test", 443, false, false},
		{"x.w.test", 1, true, false}, {"x.y.w.test", 1, true, false}, {"w.test", 1, false, false}, {"xw.test", 1, false, false},
		{"raw.test", 9, true, true},
	} {
		if p.named(row.name, row.port, false) != row.sniff || p.named(row.name, row.port, true) != row.raw {
			t.Errorf("%s:%d", row.name, row.port)
		}
	}
	for in, want := range map[string]string{
		"Example.ORG.": "example.org", "a_b.test": "a_b.test", "xn--a.test": "xn--a.test", "1.2.3.4": "", "127.1": "", "0x7f.1": "", "": "", ".": "",
		"a..b": "", "-a.test": "", "a-.test": "", "a-": "", "a b": "", "a\x00.test": "", "ä.test": "", "a.test..": "", "[::1]": "", "7up.test": "7up.test",
	} {
		if got := hostname(in); got != want {
			t.Errorf("hostname %q: %q, want %q", in, got, want)
		}
	}
}

// Whatever comes as a question, nothing but an answer to it goes back, and nothing of it to the resolver, which
// is not there.
func FuzzAnswer(f *testing.F) {
	r, err := newRelay(Config{Rules: egress(Destination{Name: "a.test"}), Reserved: testReserved}, nobody{})
	if err != nil {
		f.Fatal(err)
	}
	for _, seed := range []struct {
		name string
		kind dnsmessage.Type
	}{{"a.test", dnsmessage.TypeA}, {"a.test", dnsmessage.TypeHTTPS}, {"b.test", dnsmessage.TypeAAAA}, {"b.test", dnsmessage.TypeTXT}} {
		q, err := questionFor(7, seed.name, seed.kind)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(q)
	}
	f.Fuzz(func(t *testing.T, q []byte) {
		a := r.answer(q, func() uint64 { return 1 })
		if a == nil {
			return
		}
		var msg dnsmessage.Message
		if err := msg.Unpack(a); err != nil || !msg.Response || len(a) > 512 || msg.ID != binary.BigEndian.Uint16(q) || len(msg.Answers) > 0 {
			t.Fatalf("%x: %+v %v", q, msg, err)
		}
	})
}

type nobody struct{}

func (nobody) tcp(netip.AddrPort, netip.AddrPort) uint64 { return 0 }
func (nobody) udp(netip.AddrPort) uint64                 { return 0 }

// What has been resolved is bounded, is good for its time, and goes with an address a while longer.
func TestNamesRemembered(t *testing.T) {
	now := time.Unix(1000, 0)
	n := newNames()
	n.now = func() time.Time { return now }
	addr := netip.MustParseAddr("8.8.8.8")
	key := nameKey{"a.test", dnsmessage.TypeA}
	n.put(key, []netip.Addr{addr}, 10)
	now = now.Add(4 * time.Second)
	if addrs, ttl, ok := n.get(key); !ok || ttl != 6 || len(addrs) != 1 {
		t.Errorf("%v %d %v", addrs, ttl, ok)
	}
	now = now.Add(7 * time.Second)
	if _, _, ok := n.get(key); ok {
		t.Error("an answer is good beyond its time")
	}
	if names := n.of(addr); len(names) != 1 || names[0] != "a.test" {
		t.Errorf("%q", names)
	}
	now = now.Add(grace)
	if names := n.of(addr); len(names) != 0 {
		t.Errorf("after the grace: %q", names)
	}
	for i := range 2 * maxNames {
		n.put(nameKey{string(rune('a' + i)), dnsmessage.TypeA}, nil, 10)
	}
	if len(n.known) != maxNames || n.order.Len() != maxNames {
		t.Errorf("%d names", len(n.known))
	}
}
