package integration

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/internal/testbox"
	"github.com/stockade-dev/stockade/supervisor/api"
	"github.com/stockade-dev/stockade/supervisor/client"
)

// TestDaemonWithoutDescriptors leaves the daemon 128 descriptors, of which strangers get half by connecting: who comes then
// is told to come again, and whoever is connected is served. Then it has none at all, and the runner after it: what is asked is refused, with a code. A
// command that is running goes on all the time, and all that it writes arrives. With descriptors again, the same daemon
// serves everybody, and its journal, whose small segments have it open files all the time, is whole (T073). Control: the same open works before.
func TestDaemonWithoutDescriptors(t *testing.T) {
	t.Parallel()
	d := start(t, "--segment-bytes", "65536", "--snapshot-every", "100")
	over := shared(t)
	r, err := d.Client().Open(t.Context(), api.SessionOpen{Profile: "workspace", Target: api.Target{Local: &api.Local{
		Mounts: []api.Mount{{HostPath: over, GuestPath: "/mnt/over", Mode: "ro"}},
	}}})
	session := settled(t, r, err).SessionID
	heard, ended := counting(t, d, session)
	if err := stranger(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	there := client.New(d.Socket)
	defer there.CloseIdle()
	command := func() error {
		return happened(there.Exec(t.Context(), api.Exec{SessionID: session, Argv: []string{"true"}}))
	}
	if err := command(); err != nil {
		t.Fatal(err)
	}

	usual := leave(t, d.PID(), 128)
	var strangers []net.Conn
	for range 200 {
		conn, err := net.Dial("unix", d.Socket)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		strangers = append(strangers, conn)
	}
	for range 20 {
		err := stranger(t.Context(), d)
		if e, ok := errors.AsType[*api.Error](err); !ok || e.Code != api.CodeTooManyConnections {
			t.Errorf("beside 200 strangers: %v, want %s", err, api.CodeTooManyConnections)
		}
		if err := command(); err != nil {
			t.Errorf("who was connected before 200 strangers: %v", err)
		}
	}

	for _, who := range []struct {
		name string
		pid  int
	}{{"daemon", d.PID()}, {"runner", d.Runner()}} {
		before := leave(t, who.pid, free(t, who.pid))
		refused := 0
		for range 100 {
			r, err := there.Exec(t.Context(), api.Exec{SessionID: session, Argv: []string{"true"}})
			if err == nil && r.Outcome == api.OutcomeOK {
				continue // somebody has closed one
			}
			refused++
			if e, told := errors.AsType[*api.Error](err); err == nil && r.ErrorCode == "" || err != nil && (!told || e.Code == "") {
				t.Errorf("the %s without any descriptor: %+v, %v", who.name, r, err)
			}
		}
		if t.Logf("the %s without any descriptor: %d of 100 commands were refused", who.name, refused); refused == 0 {
			t.Errorf("the %s without any descriptor: no command was refused: the limit does not bite", who.name)
		}
		hears(t, heard)
		leave(t, who.pid, before)
		if err := command(); err != nil {
			t.Errorf("the %s with descriptors again: %v", who.name, err)
		}
	}

	for _, s := range strangers {
		s.Close()
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		if err = stranger(t.Context(), d); err == nil {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("after the strangers had gone: %v", err)
		}
	}
	leave(t, d.PID(), usual)
	if err := os.WriteFile(filepath.Join(over, "over"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	lines := strings.Fields(<-ended)
	for i, line := range lines {
		if want := strconv.Itoa(i); line != want && (line != "over" || i < len(lines)-1) {
			t.Fatalf("line %d is %q", i, line)
		}
	}
	if !strings.HasSuffix(strings.Join(lines, " "), " over") {
		t.Errorf("the end of %d lines is missing", len(lines))
	}
	verified(t, d)
	settledOnce(t, d.State)
}

// counting runs a command that counts until it is over: how many bytes of it have been heard, and all of them.
func counting(t *testing.T, d *testbox.Daemon, session string) (heard *atomic.Int64, ended chan string) {
	heard, ended = new(atomic.Int64), make(chan string, 1)
	script := "i=0; while [ ! -e /mnt/over/over ]; do echo $i; i=$((i+1)); sleep 0.01; done; echo over"
	go func() {
		var all strings.Builder
		r, err := d.Client().ExecStream(context.Background(), api.Exec{SessionID: session, Argv: []string{"sh", "-c", script}}, func(e api.Event) error {
			all.Write(e.Bytes)
			heard.Store(int64(all.Len()))
			return nil
		})
		if err := happened(r, err); err != nil {
			t.Errorf("the command that ran meanwhile: %v", err)
		} else if r.Payload.Exec.ExitCode != 0 {
			t.Errorf("the command that ran meanwhile: %+v", r.Payload.Exec)
		}
		ended <- all.String()
	}()
	return heard, ended
}

// hears waits until more has been heard.
func hears(t *testing.T, heard *atomic.Int64) {
	t.Helper()
	before := heard.Load()
	for end := time.Now().Add(time.Minute); heard.Load() == before; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d bytes of output have arrived, and no more do without descriptors", before)
		}
	}
}

// leave sets the limit on a process's descriptors, and returns what it was.
func leave(t *testing.T, pid int, files uint64) (usual uint64) {
	t.Helper()
	var limit unix.Rlimit
	if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, nil, &limit); err != nil {
		t.Fatal(err)
	}
	if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: files, Max: limit.Max}, nil); err != nil {
		t.Fatal(err)
	}
	return limit.Cur
}

// stranger opens a session and closes it, on a connection of its own.
func stranger(ctx context.Context, d *testbox.Daemon) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	c := client.New(d.Socket)
	defer c.CloseIdle()
	r, err := c.Open(ctx, api.SessionOpen{Profile: "workspace", Target: api.Target{Local: &api.Local{}}})
	if err := happened(r, err); err != nil {
		return err
	}
	return happened(c.Close(ctx, api.SessionClose{SessionID: r.SessionID, Mode: "force"}))
}

// TestOpenWithoutDescriptors lets the runner run out of descriptors at the first step of
// an open, at the second, and so on until one succeeds. Whatever it had built by then must
// be gone, and the next open must work (T036, T077). The limit is inherited by what the runner
// starts, so that the steps inside the new namespaces fail too.
func TestOpenWithoutDescriptors(t *testing.T) {
	d := start(t)
	runner := d.Runner()
	failed := 0
	for n := free(t, runner); ; n++ {
		usual := leave(t, runner, n)
		err := tried(d)
		leave(t, runner, usual)
		if !d.Running() {
			t.Fatalf("the daemon ended at a limit of %d descriptors", n)
		}
		if err == nil {
			break
		}
		if failed++; failed > 200 {
			t.Fatalf("still failing at a limit of %d: %v", n, err)
		}
		if err := once(t.Context(), d); err != nil {
			t.Fatalf("after a failure at a limit of %d: %v", n, err)
		}
	}
	t.Logf("failed at %d different steps", failed)
	if failed < 5 {
		t.Errorf("failed at %d steps only: the limit does not bite", failed)
	}
}

// tried opens a session with a mount and says whether that worked.
func tried(d *testbox.Daemon) error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	r, err := d.Client().Open(ctx, api.SessionOpen{Profile: "workspace", Target: api.Target{Local: &api.Local{
		Mounts: []api.Mount{{HostPath: d.Bin, GuestPath: "/mnt/bin", Mode: "ro"}},
	}}})
	if err := happened(r, err); err != nil {
		return err
	}
	return happened(d.Client().Close(ctx, api.SessionClose{SessionID: r.SessionID, Mode: "force"}))
}

// free is the lowest descriptor that a process does not use: it gets no other at that limit.
func free(t *testing.T, pid int) uint64 {
	for n := uint64(0); ; n++ {
		_, err := os.Lstat(fmt.Sprintf("/proc/%d/fd/%d", pid, n))
		if errors.Is(err, os.ErrNotExist) {
			return n
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}
