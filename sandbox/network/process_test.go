package network

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/internal/packet"
)

// imposter is a session whose relay does nothing of what relays do. What it says is said here, by its end of the socket.
func imposter(t *testing.T) (s *Session, theirs *packet.Conn) {
	t.Helper()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var ends [2]*os.File
	for i, fd := range pair {
		if ends[i], err = pollable(fd, "imposter"); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("sleep", "60")
	cmd.ExtraFiles = []*os.File{ends[1]}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if err := unix.SetNonblock(pair[1], true); err != nil { // which to start a process has undone
		t.Fatal(err)
	}
	if theirs, err = packet.NewConn(ends[1]); err != nil {
		t.Fatal(err)
	}
	p, err := converse(cmd.Process, ends[0], nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	s = &Session{relay: p, network: full}
	t.Cleanup(func() {
		theirs.Close()
		s.Close()
	})
	return s, theirs
}

// mustBeKilled waits for the end of the process.
func (p *process) mustBeKilled(t *testing.T) {
	t.Helper()
	select {
	case <-p.ended:
	case <-time.After(10 * time.Second):
		t.Fatal("the relay lives")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if status, ok := p.state.Sys().(syscall.WaitStatus); !ok || status.Signal() != unix.SIGKILL {
		t.Errorf("the relay has ended: %v", p.state)
	}
}

// T033: a relay that was taken over is a process without privilege that talks to one with all of them. An answer
// that is none to what was asked is its end, and an error.
func TestNonsense(t *testing.T) {
	for _, row := range []struct {
		name, answer string
		ask          func(ctx context.Context, s *Session) error
		nonsense     bool
	}{
		{"traffic without traffic", `{"call":1}`, askTraffic, true},
		{"traffic of an order to narrow", `{"call":1,"traffic":{}}`, askNarrow, true},
		{"less than nothing cut", `{"call":1,"cut":-1}`, askNarrow, true},
		{"no notice", `{"call":1,"more":1}`, askTraffic, true},
		{"the control", `{"call":1,"traffic":{}}`, askTraffic, false},
		{"the control, narrowing", `{"call":1}`, askNarrow, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			s, theirs := imposter(t)
			go func() {
				_, _, err := theirs.Receive()
				if err = errors.Join(err, theirs.Send([]byte(row.answer))); err != nil {
					t.Error(err)
				}
				if row.nonsense {
					theirs.Close() // the process has it, too
				}
			}()
			if err := row.ask(t.Context(), s); (err != nil) != row.nonsense {
				t.Errorf("%v", err)
			}
			if row.nonsense {
				s.relay.mustBeKilled(t)
			} else if s.Lost() {
				t.Error("the relay has ended")
			}
		})
	}
}

func askTraffic(ctx context.Context, s *Session) error {
	_, err := s.Traffic(ctx, 1)
	return err
}

func askNarrow(ctx context.Context, s *Session) error {
	_, err := s.Narrow(ctx, egress())
	return err
}

// T033: a relay that takes no orders holds nobody up: it is killed, and then nothing is reached.
func TestDeaf(t *testing.T) {
	s, theirs := imposter(t)
	theirs.Close() // the process has it, too, and does not read
	done := make(chan error)
	go func() {
		for group := range uint64(2000) { // more than there is room for
			s.Forget(group)
		}
		done <- askNarrow(t.Context(), s)
	}()
	select {
	case err := <-done:
		if err != nil {
			t.Errorf("narrowed: %v", err)
		}
	case <-time.After(5 * takenWithin):
		t.Fatal("who gives an order waits")
	}
	s.relay.mustBeKilled(t)
	if !s.Lost() {
		t.Error("not lost")
	}
}

// T033: what could not be said is an error, and no end of the relay: it goes on as before, and so does what is known of it.
func TestUnsaid(t *testing.T) {
	s, _ := imposter(t)
	much := egress()
	for n := range 18_000 {
		much.Allow = append(much.Allow, name(strconv.Itoa(n)+strings.Repeat(".long", 200)))
	}
	if _, err := s.Narrow(t.Context(), much); err == nil || s.Lost() || s.Network().Mode != "full" {
		t.Errorf("narrowed by more than a message holds: %v, lost %t, %s", err, s.Lost(), s.Network().Mode)
	}
}
