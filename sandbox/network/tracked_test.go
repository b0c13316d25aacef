package network

import (
	"encoding/binary"
	"errors"
	"os"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// tracked is how many connections the kernel keeps track of, in the namespace of the thread.
func tracked(t *testing.T) int {
	t.Helper()
	data, err := os.ReadFile("/proc/sys/net/netfilter/nf_conntrack_count")
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// The table of connections is the host's, and its memory nobody's: one socket inside could fill it in a second. What stays inside
// has no entry there, and what is led to the relay, or refused, few. Without the rules that see to it, the same flood has an
// entry for each packet.
func TestTracked(t *testing.T) {
	const packets, most = 20_000, 5000 + 3*500 // the burst, and some seconds
	flood := func(b *box, first byte, port int) (n int) {
		err := within(b.ns, func() error {
			fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				return err
			}
			defer unix.Close(fd)
			before := tracked(t)
			for i := range packets {
				to := &unix.SockaddrInet4{Port: port}
				binary.BigEndian.PutUint32(to.Addr[:], uint32(first)<<24|uint32(i+2))
				if err := unix.Sendto(fd, nil, 0, to); err != nil && !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.ECONNREFUSED) {
					return err
				}
			}
			n = tracked(t) - before
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	b := open(t, full)
	for _, row := range []struct {
		name  string
		first byte
		port  int
		most  int
	}{
		{"to the loopback", 127, 9, 0}, {"refused", 11, 9, 0}, {"questions", 11, 53, most}, {"questions to the loopback", 127, 53, most},
	} {
		if n := flood(b, row.first, row.port); n > row.most {
			t.Errorf("%s: %d entries", row.name, n)
		}
	}
	whole := chains
	defer func() { chains = whole }()
	chains = nil
	for _, c := range whole {
		switch c.name {
		case "spare":
			continue
		case "lead":
			c.rules = c.rules[1:]
		}
		chains = append(chains, c)
	}
	unbounded := open(t, full)
	for _, row := range []struct {
		first byte
		port  int
	}{{127, 9}, {11, 53}} {
		if n := flood(unbounded, row.first, row.port); n < packets*9/10 {
			t.Errorf("port %d without the rules: %d entries", row.port, n)
		}
	}
}
