package network

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/sandbox"
)

func newNamespace() (ns *os.File, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		if err = unix.Unshare(unix.CLONE_NEWNET); err == nil {
			ns, err = os.Open("/proc/thread-self/ns/net")
		}
	}()
	<-done
	return ns, err
}

func name(n string, ports ...uint16) sandbox.Destination {
	return sandbox.Destination{Name: n, Ports: ports}
}

func tcp(n string, ports ...uint16) sandbox.Destination {
	return sandbox.Destination{Name: n, Ports: ports, Protocol: "tcp"}
}

func cidr(p string, ports ...uint16) sandbox.Destination {
	return sandbox.Destination{CIDR: p, Ports: ports}
}

func egress(allow ...sandbox.Destination) sandbox.Network {
	return sandbox.Network{Mode: "egress", Allow: allow}
}

var full = sandbox.Network{Mode: "full"}

// T031: what is granted is reached, and nothing else, whatever leads there. Every address answers outside, as the
// control below shows.
func TestEgress(t *testing.T) {
	for _, row := range []struct {
		network        sandbox.Network
		what, to, name string
		want, rule     string
	}{
		{egress(cidr("11.0.0.0/24", 7)), "raw", "11.0.0.1:7", "", "ok 11.0.0.1:7", ""},
		{egress(cidr("11.0.0.0/24", 7)), "raw", "11.0.0.1:22", "", "ECONNRESET", RuleNotGranted},
		{egress(cidr("11.0.0.0/24", 7)), "raw", "11.0.1.1:7", "", "ECONNRESET", RuleNotGranted},
		{egress(cidr("2600::/64")), "raw", "[2600::1]:7", "", "ok [2600::1]:7", ""},
		{egress(cidr("2600::/64")), "raw", "[2600:0:0:1::1]:7", "", "ECONNRESET", RuleNotGranted},
		{egress(cidr("0.0.0.0/0")), "raw", "10.0.0.1:7", "", "ECONNRESET", RuleDenied},
		{egress(cidr("10.0.0.0/24")), "raw", "10.0.0.1:7", "", "ok 10.0.0.1:7", ""},
		{egress(cidr("0.0.0.0/0")), "raw", metadata + ":80", "", "ECONNRESET", RuleDenied},
		{egress(cidr("::/0")), "raw", "[fd00:ec2::254]:7", "", "ECONNRESET", RuleDenied},
		{egress(cidr("::/0")), "raw", "[::ffff:169.254.169.254]:7", "", "ECONNRESET", RuleDenied},
		{egress(cidr("::/0")), "raw", "[64:ff9b::a9fe:a9fe]:7", "", "ECONNRESET", RuleDenied},
		{egress(cidr("64:ff9b::/96")), "raw", "[64:ff9b::a9fe:a9fe]:7", "", "ECONNRESET", RuleDenied},
		{egress(cidr("::/0")), "raw", "[2002:a9fe:a9fe::1]:7", "", "ECONNRESET", RuleDenied},
		{full, "raw", "11.9.9.9:7", "", "ok 11.9.9.9:7", ""},
		{full, "raw", "[2600:9::9]:22", "", "ok [2600:9::9]:22", ""},
		{full, "raw", "192.168.1.1:7", "", "ECONNRESET", RuleDenied},
		{full, "raw", metadata + ":7", "", "ECONNRESET", RuleDenied},
		{full, "raw", "11.66.0.1:7", "", "ECONNRESET", RuleDenied}, // the operator's
		{egress(cidr("11.66.0.0/16")), "raw", "11.66.0.1:7", "", "ECONNRESET", RuleDenied},

		// By name: what the first bytes say counts, and where to is found by the relay.
		{egress(name("alpha.test", 443)), "tls", alpha + ":443", "alpha.test", "ok alpha.test 11.0.0.1:443 0", ""},
		{egress(name("alpha.test", 443)), "tls", "[2600::1]:443", "alpha.test", "ok alpha.test [2600::1]:443 0", ""},
		{egress(name("alpha.test", 443)), "tls", "11.99.99.99:443", "alpha.test", "ok alpha.test 11.0.0.1:443 0", ""},
		{egress(name("alpha.test", 443)), "tls", alpha + ":443", "shared.test", "ECONNRESET", RuleNotGranted},
		{egress(name("alpha.test", 443)), "tls", alpha + ":443", "", "ECONNRESET", RuleNoName},
		{egress(name("alpha.test", 443)), "http", alpha + ":80", "alpha.test", "ECONNRESET", RuleNotGranted},
		{egress(name("alpha.test", 80)), "http", alpha + ":80", "alpha.test", "ok alpha.test 11.0.0.1:80 0", ""},
		{egress(name("alpha.test", 80)), "http", beta + ":80", "alpha.test", "ok alpha.test 11.0.0.1:80 0", ""},
		{egress(name("alpha.test", 80)), "http", alpha + ":80", "shared.test", "ECONNRESET", RuleNotGranted},
		{egress(name("alpha.test", 80)), "http", alpha + ":80", "11.0.0.1", "ECONNRESET", RuleNoName},
		{egress(name("alpha.test", 80)), "http", metadata + ":80", "alpha.test", "ECONNRESET", RuleDenied},
		{egress(name("*.wild.test", 80)), "http", beta + ":80", "sub.wild.test", "ok sub.wild.test 11.0.0.2:80 0", ""},
		{egress(name("*.wild.test", 80)), "http", beta + ":80", "wild.test", "ECONNRESET", RuleNotGranted},
		{egress(name("alias.test", 80)), "http", beta + ":80", "alias.test", "ok alias.test 11.0.0.2:80 0", ""},
		// Rebinding: the name is granted, and whoever owns it says that it is the host's.
		{egress(name("rebound.test", 80)), "http", beta + ":80", "rebound.test", "ECONNRESET", RuleDenied},
		{egress(name("loop.test", 80)), "http", beta + ":80", "loop.test", "ECONNRESET", RuleDenied},
		{egress(name("half.test", 80)), "http", beta + ":80", "half.test", "ok half.test 11.0.0.2:80 0", ""},
		{egress(name("half.test", 80), cidr("10.1.2.3/32", 80)), "http", beta + ":80", "half.test", "ok half.test 11.0.0.2:80 0", ""},
	} {
		t.Run(fmt.Sprintf("%s %s %s", row.what, row.to, row.name), func(t *testing.T) {
			b := open(t, row.network, "11.66.0.0/16")
			begun := time.Now()
			got := b.try(row.what, row.to, row.name)
			if got != row.want {
				t.Errorf("got %q, want %q", got, row.want)
			}
			if took := time.Since(begun); took > 3*time.Second {
				t.Errorf("it took %v", took)
			}
			refused := slices.DeleteFunc(b.told(), func(e Event) bool { return e.Allowed })
			if row.rule == "" && len(refused) > 0 || row.rule != "" && (len(refused) != 1 || refused[0].Rule != row.rule) {
				t.Errorf("events %+v, want rule %q", refused, row.rule)
			}
		})
	}
}

// The control of TestEgress: from the host's side everything that it refuses answers.
func TestEgressControl(t *testing.T) {
	needRoot(t)
	outside()
	for _, to := range []string{"11.0.0.1:22", "11.0.1.1:7", "10.0.0.1:7", metadata + ":80", "[fd00:ec2::254]:7", "[64:ff9b::a9fe:a9fe]:7", "[2002:a9fe:a9fe::1]:7", "11.66.0.1:7", "192.168.1.1:7"} {
		c, err := net.DialTimeout("tcp", to, 2*time.Second)
		if err != nil {
			t.Errorf("%s: %v", to, err)
			continue
		}
		c.Close()
	}
}

// T031: names that are not granted are not asked for, names that lead where nothing may go have no answer, and it does
// not matter whom a program asks.
func TestNames(t *testing.T) {
	b := open(t, egress(name("alpha.test", 443), tcp("beta.test", 7), name("rebound.test", 443), name("half.test", 443)))
	for _, row := range []struct {
		network, server, name string
		kind                  dnsmessage.Type
		want                  string
	}{
		{"udp", "8.8.8.8:53", "alpha.test", dnsmessage.TypeA, alpha},
		{"udp", "8.8.8.8:53", "ALPHA.test", dnsmessage.TypeA, alpha},
		{"udp", "127.0.0.53:53", "alpha.test", dnsmessage.TypeAAAA, alpha6},
		{"udp", "[2001:4860:4860::8888]:53", "alpha.test", dnsmessage.TypeA, alpha},
		{"tcp", "8.8.8.8:53", "alpha.test", dnsmessage.TypeA, alpha},
		{"tcp", "[::1]:53", "alpha.test", dnsmessage.TypeA, alpha},
		{"udp", "10.0.0.1:53", "alpha.test", dnsmessage.TypeHTTPS, ""},
		{"udp", "8.8.8.8:53", "secret-bytes.evil.test", dnsmessage.TypeA, "RCodeRefused"},
		{"udp", "8.8.8.8:53", "sub.alpha.test", dnsmessage.TypeTXT, "RCodeRefused"},
		{"udp", "8.8.8.8:53", "rebound.test", dnsmessage.TypeA, "RCodeRefused"},
		{"udp", "8.8.8.8:53", "half.test", dnsmessage.TypeA, beta},
	} {
		if got, err := b.resolve(row.network, row.server, row.name, row.kind); err != nil || got != row.want {
			t.Errorf("%s %s %s %v: got %q %v, want %q", row.network, row.server, row.name, row.kind, got, err, row.want)
		}
	}
	if outside().wasAsked("secret-bytes.evil.test") || !outside().wasAsked("alpha.test") {
		t.Errorf("a name that is not granted left the relay, or none did")
	}
	// By address alone: only one that was given out for the name.
	if got := b.try("raw", beta+":7", ""); got != "ECONNRESET" {
		t.Errorf("beta.test by an address that was never asked for: %q", got)
	}
	if got, err := b.resolve("udp", "8.8.8.8:53", "beta.test", dnsmessage.TypeA); err != nil || got != beta {
		t.Errorf("beta.test: %q %v", got, err)
	}
	if got := b.try("raw", beta+":7", ""); got != "ok 11.0.0.2:7" {
		t.Errorf("beta.test by its address: %q", got)
	}
	if got := b.try("raw", beta+":22", ""); got == "ok 11.0.0.2:22" {
		t.Errorf("beta.test on another port: %q", got)
	}
}

// T031 T032: nothing but TCP and questions leads out, and the loopback is the session's own. What fails does so at once.
func TestOtherWays(t *testing.T) {
	b := open(t, full)
	// Where a header is asked for, it is one: a packet that is none would be refused for that.
	datagram := make([]byte, 64)
	datagram[0], datagram[8], datagram[9] = 0x45, 64, unix.IPPROTO_UDP
	copy(datagram[16:], []byte{11, 0, 0, 1})
	sendTo := func(domain, kind, protocol int, to unix.Sockaddr) (err error) {
		werr := within(b.ns, func() error {
			fd, serr := unix.Socket(domain, kind|unix.SOCK_CLOEXEC, protocol)
			if serr != nil {
				err = serr
				return nil
			}
			defer unix.Close(fd)
			err = unix.Sendto(fd, datagram, 0, to)
			return nil
		})
		return errors.Join(err, werr)
	}
	v4, v6 := [4]byte{11, 0, 0, 1}, [16]byte{0x26, 0, 15: 1}
	for _, row := range []struct {
		name                   string
		domain, kind, protocol int
		to                     unix.Sockaddr
		want                   error
	}{
		{"UDP", unix.AF_INET, unix.SOCK_DGRAM, 0, &unix.SockaddrInet4{Port: 443, Addr: v4}, unix.EPERM},
		{"UDP over IPv6", unix.AF_INET6, unix.SOCK_DGRAM, 0, &unix.SockaddrInet6{Port: 443, Addr: v6}, unix.EPERM},
		{"UDP multicast", unix.AF_INET, unix.SOCK_DGRAM, 0, &unix.SockaddrInet4{Port: 5353, Addr: [4]byte{224, 0, 0, 251}}, unix.EPERM},
		{"UDP-Lite", unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_UDPLITE, &unix.SockaddrInet4{Port: 53, Addr: v4}, unix.EPERM},
		{"ICMP", unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP, &unix.SockaddrInet4{Addr: v4}, unix.EPERM},
		{"ICMPv6", unix.AF_INET6, unix.SOCK_RAW, unix.IPPROTO_ICMPV6, &unix.SockaddrInet6{Addr: v6}, unix.EPERM},
		{"raw IP", unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_RAW, &unix.SockaddrInet4{Addr: v4}, unix.EPERM},
		{"GRE", unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_GRE, &unix.SockaddrInet4{Addr: v4}, unix.EPERM},
	} {
		err := sendTo(row.domain, row.kind, row.protocol, row.to)
		if err == nil || !errors.Is(err, row.want) && !errors.Is(err, unix.EPROTONOSUPPORT) {
			t.Errorf("%s: %v, want %v", row.name, err, row.want)
		}
	}
	// The control: the same datagram on the session's own loopback.
	if err := sendTo(unix.AF_INET, unix.SOCK_DGRAM, 0, &unix.SockaddrInet4{Port: 443, Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Errorf("UDP on the loopback: %v", err)
	}
	// And without the rules, which are therefore what refuses; there is still nowhere to go.
	if err := within(b.ns, flushRules); err != nil {
		t.Fatal(err)
	}
	if err := sendTo(unix.AF_INET, unix.SOCK_DGRAM, 0, &unix.SockaddrInet4{Port: 443, Addr: v4}); err != nil {
		t.Errorf("UDP without rules: %v", err)
	}
	b = open(t, full)
	// Its own services are its own, and the host's of the same address are not there.
	host, err := net.Listen("tcp", "127.0.0.1:8080")
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	if c, err := b.dial("tcp", "127.0.0.1:8080"); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("the host's loopback: %v %v", c, err)
	}
	for _, at := range []string{"127.0.0.1:8080", "[::1]:8080"} {
		var own net.Listener
		within(b.ns, func() error { own, err = net.Listen("tcp", at); return err })
		if err != nil {
			t.Fatal(err)
		}
		defer own.Close()
		if c, err := b.dial("tcp", at); err != nil {
			t.Errorf("the session's own %s: %v", at, err)
		} else {
			c.Close()
		}
	}
	// The relay's listener, called by its own name, leads nowhere.
	if got := b.try("raw", "127.0.0.1:1", ""); got != "ECONNRESET" {
		t.Errorf("the relay's own port: %s", got)
	}
}

// T033, CVE-2020-15257: an abstract socket of the host is not there in a namespace of its own.
func TestAbstractSocket(t *testing.T) {
	b := open(t, full)
	at := fmt.Sprintf("@stockade-canary-%d", os.Getpid())
	l, err := net.Listen("unix", at)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if c, err := b.dial("unix", at); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("the host's abstract socket: %v %v", c, err)
	}
	c, err := net.Dial("unix", at) // the control
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
}

// R007: with mode none there is a loopback and nothing else.
func TestNone(t *testing.T) {
	b := open(t, sandbox.Network{Mode: "none"})
	if _, err := b.dial("tcp", "11.0.0.1:7"); !errors.Is(err, syscall.ENETUNREACH) {
		t.Errorf("connect: %v", err)
	}
	if _, err := b.dial("tcp", "127.0.0.1:7"); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("connect to the loopback: %v", err)
	}
	lines, err := b.Evidence()
	if err != nil || !slices.Contains(lines, "link lo up") || strings.Contains(strings.Join(lines, "\n"), "0.0.0.0/0") {
		t.Errorf("evidence: %q %v", lines, err)
	}
}

// What the kernel holds is what was set up, and anything else is found.
func TestEvidence(t *testing.T) {
	b := open(t, full)
	lines, err := b.Evidence()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"link lo up", "route local 0.0.0.0/0 table 254 src 127.0.0.1", "route local ::/0 table 254",
		"chain keep: type filter hook output priority 0; policy drop", "rule lead 6: meta l4proto tcp redirect to :1",
	} {
		if !slices.Contains(lines, want) {
			t.Errorf("evidence lacks %q: %q", want, lines)
		}
	}
	for _, row := range []struct {
		name   string
		change func() error
	}{
		{"no rules", flushRules},
		{"a rule more", addRule},
		{"an interface that is up", func() error {
			return netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "v0", Flags: net.FlagUp}, PeerName: "v1"})
		}},
		{"a route elsewhere", func() error {
			return netlink.RouteAdd(&netlink.Route{Dst: &net.IPNet{IP: net.IPv4(11, 0, 0, 0), Mask: net.CIDRMask(8, 32)}, Type: unix.RTN_BLACKHOLE})
		}},
		{"no default route", func() error {
			return netlink.RouteDel(&netlink.Route{LinkIndex: 1, Dst: defaults[0].dst, Type: unix.RTN_LOCAL, Scope: netlink.SCOPE_HOST, Table: unix.RT_TABLE_MAIN})
		}},
		{"an address of its own", func() error {
			addr, err := netlink.ParseAddr("11.0.0.9/32")
			if err != nil {
				return err
			}
			return netlink.AddrAdd(&netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Name: "lo", Index: 1}}, addr)
		}},
		{"loopback down", func() error {
			return netlink.LinkSetDown(&netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Name: "lo", Index: 1}})
		}},
	} {
		b := open(t, full)
		if err := within(b.ns, row.change); err != nil {
			t.Fatalf("%s: %v", row.name, err)
		}
		var e *sandbox.Error
		if lines, err := b.Evidence(); !errors.As(err, &e) || e.Code != sandbox.CodeNotEnforced {
			t.Errorf("%s: %v %q", row.name, err, lines)
		}
	}
}

// Narrowing cuts what is not allowed any more, at once, and nothing else; and it only narrows.
func TestNarrow(t *testing.T) {
	b := open(t, egress(cidr("11.0.0.0/24", 7), cidr("11.0.1.0/24", 7), name("alpha.test", 80)))
	stays, goes := b.connect("11.0.0.1:7"), b.connect("11.0.1.1:7")
	cut, err := b.Narrow(context.Background(), egress(cidr("11.0.0.0/25", 7)))
	if err != nil || cut != 1 {
		t.Fatalf("narrow: %d %v", cut, err)
	}
	if _, err := line(goes, "x\n"); !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
		t.Errorf("the connection that is not granted any more: %v", err)
	}
	if got, err := line(stays, "x\n"); err != nil || got != "x" {
		t.Errorf("the other one: %q %v", got, err)
	}
	if got := b.try("raw", "11.0.1.1:7", ""); got != "ECONNRESET" {
		t.Errorf("a new connection: %s", got)
	}
	var e *sandbox.Error
	if _, err := b.Narrow(context.Background(), egress(cidr("11.0.0.0/24", 7))); !errors.As(err, &e) || e.Code != sandbox.CodeInvalidSpec {
		t.Errorf("widened: %v", err)
	}
	if cut, err := b.Narrow(context.Background(), sandbox.Network{Mode: "none"}); err != nil || cut != 1 {
		t.Errorf("none: %d %v", cut, err)
	}
	if got := b.try("raw", "11.0.0.1:7", ""); got != "ECONNRESET" {
		t.Errorf("a connection with none: %s", got)
	}
	if !slices.ContainsFunc(b.told(), func(e Event) bool { return e.Rule == RuleNarrowed && e.Object == "11.0.1.1:7" }) {
		t.Errorf("events: %+v", b.told())
	}
}

func (b *box) connect(to string) net.Conn {
	b.t.Helper()
	c, err := b.dial("tcp", to)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { c.Close() })
	if got, err := line(c, ""); err != nil || got != to {
		b.t.Fatalf("%s: %q %v", to, got, err)
	}
	return c
}

// When the relay dies the session has no network, what lived is cut, and somebody is told.
func TestRelayDies(t *testing.T) {
	b := open(t, full)
	c := b.connect("11.0.0.1:7")
	b.relay.os.Kill()
	<-b.relay.ended
	if _, err := line(c, "x\n"); err == nil {
		t.Error("the connection lives")
	}
	if _, err := b.dial("tcp", "11.0.0.1:7"); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("connect: %v", err)
	}
	if got, err := b.resolve("udp", "8.8.8.8:53", "alpha.test", dnsmessage.TypeA); got != "ECONNREFUSED" {
		t.Errorf("resolve: %q %v", got, err)
	}
	var e *sandbox.Error
	if _, err := b.Evidence(); !errors.As(err, &e) || e.Code != sandbox.CodeNotEnforced {
		t.Errorf("evidence: %v", err)
	}
	if _, err := b.Narrow(context.Background(), sandbox.Network{Mode: "none"}); err != nil {
		t.Errorf("narrow: %v", err)
	}
	if !b.Lost() {
		t.Error("it is not lost")
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if n := len(b.events); n == 0 || b.events[n-1].Rule != RuleEnded {
		t.Errorf("events: %+v", b.events)
	}
}

// A close does not wait, whatever is going on.
func TestClose(t *testing.T) {
	b := open(t, full)
	var all []net.Conn
	for range 100 {
		all = append(all, b.connect("11.0.0.1:7"))
	}
	begun := time.Now()
	b.Close()
	if took := time.Since(begun); took > time.Second {
		t.Errorf("it took %v", took)
	}
	<-b.relay.silent()
	for _, c := range all {
		if _, err := line(c, "x\n"); err == nil {
			t.Fatal("a connection lives")
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if slices.ContainsFunc(b.events, func(e Event) bool { return e.Rule == RuleEnded }) {
		t.Error("a close was told as a death")
	}
}

// The relay has nothing that it does not need.
func TestRelayPrivilege(t *testing.T) {
	b := open(t, full)
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", b.relay.os.Pid))
	if err != nil {
		t.Fatal(err)
	}
	id := fmt.Sprint(relayUID)
	ids := strings.Join([]string{id, id, id, id}, "\t")
	for _, want := range []string{"Uid:\t" + ids, "Gid:\t" + ids, "Groups:\t \n", "CapInh:\t0000000000000000", "CapPrm:\t0000000000000000", "CapBnd:\t0000000000000000", "CapAmb:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2\n"} {
		if !strings.Contains(string(status), want) {
			t.Errorf("status lacks %q:\n%s", want, status)
		}
	}
	env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", b.relay.os.Pid))
	if err != nil || len(env) != 0 {
		t.Errorf("environment: %q %v", env, err)
	}
	fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", b.relay.os.Pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		to, _ := os.Readlink(fmt.Sprintf("/proc/%d/fd/%s", b.relay.os.Pid, fd.Name()))
		if !strings.HasPrefix(to, "socket:") && !strings.HasPrefix(to, "anon_inode:") && to != "/dev/null" && !strings.HasPrefix(to, "/memfd:stockade-relay") {
			t.Errorf("descriptor %s is %s", fd.Name(), to)
		}
	}
	limits, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", b.relay.os.Pid))
	if err != nil || !strings.Contains(string(limits), "Max core file size        0                    0 ") {
		t.Errorf("limits: %v\n%s", err, limits)
	}
}

// Who it was is the group in which the socket was made.
func TestAttribution(t *testing.T) {
	b := open(t, egress(cidr("11.0.0.0/24", 7), name("alpha.test", 80)))
	group := ownGroup(t)
	c := b.connect("11.0.0.1:7")
	fmt.Fprint(c, "hello\n")
	buf := make([]byte, 6)
	if _, err := c.Read(buf); err != nil {
		t.Fatal(err)
	}
	live, err := b.Traffic(context.Background(), group)
	if err != nil || live.Connections != 1 || live.Sent != 6 || live.Received < 12 {
		t.Errorf("while it lives: %+v %v", live, err)
	}
	c.Close()
	b.try("raw", "11.0.0.1:22", "")
	b.try("raw", "[2600::1]:22", "")
	b.resolve("udp", "8.8.8.8:53", "evil.test", dnsmessage.TypeA)
	b.resolve("udp", "[2001:4860:4860::8888]:53", "evil.test", dnsmessage.TypeA)
	b.resolve("tcp", "8.8.8.8:53", "evil.test", dnsmessage.TypeA)
	b.resolve("udp", "8.8.8.8:53", "alpha.test", dnsmessage.TypeA)
	for _, e := range b.told() {
		if e.Group != group {
			t.Errorf("event of group %d, want %d: %+v", e.Group, group, e)
		}
	}
	got, err := b.Traffic(context.Background(), group)
	want := sandbox.Traffic{Connections: 1, Refused: 5, Questions: 4, Sent: 6, Received: int64(len("11.0.0.1:7\nhello\n"))}
	if err != nil || got != want {
		t.Errorf("traffic %+v %v, want %+v", got, err, want)
	}
	b.Forget(group)
	if got, err := b.Traffic(context.Background(), group); err != nil || got != (sandbox.Traffic{}) {
		t.Errorf("forgotten: %+v %v", got, err)
	}
	if got, err := b.Traffic(context.Background(), 0); err != nil || got != want {
		t.Errorf("all: %+v %v", got, err)
	}
}

// ownGroup is the cgroup id of this process in the unified hierarchy.
func ownGroup(t *testing.T) uint64 {
	t.Helper()
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	for l := range strings.Lines(string(text)) {
		path, ok := strings.CutPrefix(strings.TrimSpace(l), "0::")
		if !ok {
			continue
		}
		for _, root := range []string{"/sys/fs/cgroup/unified", "/sys/fs/cgroup"} {
			var st unix.Stat_t
			var fs unix.Statfs_t
			if unix.Statfs(root+path, &fs) == nil && fs.Type == unix.CGROUP2_SUPER_MAGIC && unix.Stat(root+path, &st) == nil {
				return st.Ino
			}
		}
	}
	t.Fatal("no unified hierarchy")
	return 0
}

// A runner that is replaced goes on with its relays, and learns what they said meanwhile.
func TestSave(t *testing.T) {
	b := open(t, egress(cidr("11.0.0.0/24", 7)))
	c := b.connect("11.0.0.1:7")
	if _, _, err := b.Save(); err != nil {
		t.Fatal(err)
	}
	if got := b.try("raw", "11.0.9.9:7", ""); got != "ECONNRESET" { // nobody listens to the relay now
		t.Error(got)
	}
	// Undone, everything goes on.
	b.Continue()
	if n := len(b.told()); n != 1 {
		t.Errorf("%d events", n)
	}
	state, files, err := b.Save()
	if err != nil {
		t.Fatal(err)
	}
	var own []*os.File
	for _, f := range files {
		d, err := duplicate(f)
		if err != nil {
			t.Fatal(err)
		}
		own = append(own, d)
	}
	next := &box{t: t, ns: b.ns}
	if next.Session, err = Restore(state, own, Options{Report: next.report}); err != nil {
		t.Fatal(err)
	}
	defer next.Close()
	b.try("raw", "11.0.9.9:7", "")
	if got, err := line(c, "x\n"); err != nil || got != "x" {
		t.Errorf("the connection: %q %v", got, err)
	}
	if _, err := next.Evidence(); err != nil {
		t.Error(err)
	}
	if cut, err := next.Narrow(context.Background(), sandbox.Network{Mode: "none"}); err != nil || cut != 1 {
		t.Errorf("narrow: %d %v", cut, err)
	}
	if told := next.told(); len(told) < 2 || told[0].Object != "11.0.9.9:7" {
		t.Errorf("events: %+v", told)
	}
	// A relay that ended while nobody listened is found out.
	if state, files, err = next.Save(); err != nil {
		t.Fatal(err)
	}
	b.relay.os.Kill()
	<-b.relay.silent()
	state.PID = reaped
	again := &box{t: t, ns: b.ns}
	own = nil
	for _, f := range files {
		d, _ := duplicate(f)
		own = append(own, d)
	}
	if again.Session, err = Restore(state, own, Options{Report: again.report}); err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	<-again.relay.ended
	if _, err := again.Evidence(); err == nil {
		t.Error("a relay that has ended is evidence")
	}
}
