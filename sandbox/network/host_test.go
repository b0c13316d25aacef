package network

import (
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/stockade-dev/stockade/sandbox"
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
