package network

import (
	"os"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/internal/packet"
	"github.com/stockade-dev/stockade/sandbox"
	"github.com/stockade-dev/stockade/sandbox/relay"
)

// T031, T032: an address that the host has got after the session was opened is the host's all the same: by a range, by a name, with
// everything granted; not by itself.
func TestAddressOfHost(t *testing.T) {
	const fresh, by = "11.0.9.9", "11.0.9.9/32"
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		needRoot(t)
		t.Fatal(err)
	}
	for _, row := range []struct {
		network sandbox.Network
		want    string
	}{
		{full, "ECONNRESET"},
		{egress(cidr("11.0.0.0/8")), "ECONNRESET"},
		{egress(cidr(by, 22)), "ECONNRESET"}, // another port of it
		{egress(cidr(by, 7)), "ok " + fresh + ":7"},
	} {
		b := open(t, row.network)
		if got := b.try("raw", fresh+":7", ""); row.network.Mode == "full" && got != "ok "+fresh+":7" {
			t.Fatalf("before: %s", got)
		}
		addr, err := netlink.ParseAddr(by)
		if err != nil {
			t.Fatal(err)
		}
		if err := netlink.AddrAdd(lo, addr); err != nil {
			t.Fatal(err)
		}
		got := b.try("raw", fresh+":7", "")
		if err := netlink.AddrDel(lo, addr); err != nil {
			t.Fatal(err)
		}
		if got != row.want {
			t.Errorf("%+v: %s, not %s", row.network, got, row.want)
		}
	}
}

// A relay that has been taken over says what no relay says, as much as a message holds. It is ended, and none of that gets into a receipt.
func TestRelaySaysTooMuch(t *testing.T) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pair[1])
	told := make(chan Event, 4)
	p, err := converse(nil, os.NewFile(uintptr(pair[0]), "relay"), os.Stderr, func(e Event) { told <- e })
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range []string{"short", strings.Repeat("x", 1<<20)} {
		b, err := relay.Encode(relay.Notice{Event: &Event{Object: object, Rule: RuleDenied}})
		if err == nil {
			err = packet.Send(pair[1], b)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	<-p.ended
	if first, second := <-told, <-told; first.Object != "short" || second.Rule != RuleEnded {
		t.Errorf("%.100v %.100v", first, second)
	}
}
