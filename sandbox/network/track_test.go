package network

import (
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// T073, T074: what the kernel notes of connections is charged to nobody. Datagrams inside, and questions to every server there is, leave no
// more notes than a session may cause.
func TestNotesOfConnections(t *testing.T) {
	for _, row := range []struct {
		name string
		to   func(i int) *unix.SockaddrInet4
		most int
	}{
		{"inside", func(i int) *unix.SockaddrInet4 {
			return &unix.SockaddrInet4{Port: 1024 + i%50_000, Addr: [4]byte{127, 1, byte(i / 50_000), 1}}
		}, 0},
		{"questions", func(i int) *unix.SockaddrInet4 {
			return &unix.SockaddrInet4{Port: portDNS, Addr: [4]byte{11, byte(i >> 16), byte(i >> 8), byte(i)}}
		}, 2048},
	} {
		t.Run(row.name, func(t *testing.T) {
			b := open(t, full)
			begun := time.Now()
			if err := within(b.ns, func() error {
				c, err := net.ListenUDP("udp4", nil)
				if err != nil {
					return err
				}
				defer c.Close()
				raw, err := c.SyscallConn()
				if err != nil {
					return err
				}
				return raw.Control(func(fd uintptr) {
					for i := range 20_000 {
						_ = unix.Sendto(int(fd), []byte("?"), 0, row.to(i)) // EPERM beyond the bound
					}
				})
			}); err != nil {
				t.Fatal(err)
			}
			most := row.most
			if most > 0 {
				most += 500 * (1 + int(time.Since(begun).Seconds()))
			}
			if n := notes(t, b); n > most || row.most > 0 && n < row.most {
				t.Errorf("%d notes, at most %d", n, most)
			}
		})
	}
}

// notes is how many connections the kernel has taken down in the session's namespace.
func notes(t *testing.T, b *box) (n int) {
	t.Helper()
	if err := within(b.ns, func() error {
		data, err := os.ReadFile("/proc/sys/net/netfilter/nf_conntrack_count")
		if err == nil {
			n, err = strconv.Atoi(strings.TrimSpace(string(data)))
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return n
}
