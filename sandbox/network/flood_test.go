package network

import (
	"context"
	"fmt"
	"net"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"
)

// A flood of connections and questions costs so much and no more, and another session does not notice.
func TestFlood(t *testing.T) {
	b, other := open(t, full), open(t, full)
	connections := min(4_000, descriptors(t)/2) // twice what the rules let through at once; all stay open, so that none makes room for another
	begun := time.Now()
	var wait sync.WaitGroup
	next := make(chan int, connections)
	for i := range connections {
		next <- i
	}
	close(next)
	var mu sync.Mutex
	var all []net.Conn
	for range 16 {
		wait.Go(func() {
			within(b.ns, func() error {
				for range next {
					if time.Since(begun) > 20*time.Second { // an emulated machine: it is a flood nevertheless
						return nil
					}
					c, err := net.Dial("tcp", "11.0.0.1:7")
					if err != nil {
						continue
					}
					mu.Lock()
					all = append(all, c)
					mu.Unlock()
				}
				return nil
			})
		})
	}
	wait.Go(func() {
		for range 500 {
			b.resolve("udp", "8.8.8.8:53", "alpha.test", dnsmessage.TypeA)
		}
	})
	wait.Wait()
	resident, threads := status(t, b.relay.os.Pid, "VmRSS:")<<10, status(t, b.relay.os.Pid, "Threads:")
	t.Logf("%d connections, resident set %d KiB, %d threads", len(all), resident>>10, threads)
	if threads > 12 {
		t.Errorf("the relay has %d threads, which count as the session's processes", threads)
	}
	if resident > 64<<20 && !raceDetector() { // which takes more for itself
		t.Errorf("the relay has %d bytes", resident)
	}
	// What the kernel has connected waits for the relay to take it, and is counted then.
	got, err := b.Traffic(context.Background(), 0)
	for until := time.Now().Add(20 * time.Second); err == nil && got.Connections+got.Refused < int64(len(all)) && time.Now().Before(until); {
		time.Sleep(20 * time.Millisecond)
		got, err = b.Traffic(context.Background(), 0)
	}
	if err != nil || got.Connections < min(900, int64(len(all))*9/10) || got.Connections > 1024 || got.Refused < int64(len(all))-1024 {
		t.Errorf("%+v %v", got, err)
	}
	if n := len(b.told()); n > 300+70*int(time.Since(begun).Seconds()) {
		t.Errorf("%d events", n)
	}
	if got := other.try("raw", "11.0.0.1:7", ""); got != "ok 11.0.0.1:7" {
		t.Errorf("another session: %s", got)
	}
	for _, c := range all {
		c.Close()
	}
	for range 100 {
		if got := b.try("raw", "11.0.0.1:7", ""); got == "ok 11.0.0.1:7" {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Error("after the flood there is no connection to be had")
}

// descriptors is how many this process may have.
func descriptors(t *testing.T) int {
	t.Helper()
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	return int(min(limit.Cur, 1<<20))
}

func raceDetector() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}

// status is a number of /proc/PID/status.
func status(t testing.TB, pid int, name string) (n int64) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "\n"+name)
	if _, err := fmt.Sscan(rest, &n); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// A connection and its first bytes: through the relay, beside one from the host, and one from inside to the session's own
// loopback, which takes a thread of that namespace too.
func BenchmarkConnect(b *testing.B) {
	x := open(b, full)
	within(x.ns, func() error {
		l, err := net.Listen("tcp", "127.0.0.1:7")
		if err != nil {
			return err
		}
		b.Cleanup(func() { l.Close() })
		go outside().echo(l)
		return nil
	})
	for _, row := range []struct {
		name string
		dial func() (net.Conn, error)
	}{
		{"direct", func() (net.Conn, error) { return net.Dial("tcp", "11.0.0.1:7") }},
		{"loopback", func() (net.Conn, error) { return x.dial("tcp", "127.0.0.1:7") }},
		{"relay", func() (net.Conn, error) { return x.dial("tcp", "11.0.0.1:7") }},
	} {
		b.Run(row.name, func(b *testing.B) {
			for range b.N {
				c, err := row.dial()
				if err != nil {
					b.Fatal(err)
				}
				if _, err := line(c, ""); err != nil {
					b.Fatal(err)
				}
				c.Close()
			}
		})
	}
}

// What a session waits for its network, and what the relay then takes.
func BenchmarkOpen(b *testing.B) {
	for b.Loop() {
		x := open(b, full)
		b.ReportMetric(float64(status(b, x.relay.os.Pid, "VmRSS:")), "relay-KiB")
		x.Close()
	}
}

func BenchmarkEvidence(b *testing.B) {
	x := open(b, full)
	for b.Loop() {
		if _, err := x.Evidence(); err != nil {
			b.Fatal(err)
		}
	}
}
