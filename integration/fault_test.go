package integration

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/internal/testbox"
	"github.com/stockade-dev/stockade/supervisor/api"
)

// TestOpenWithoutDescriptors lets the runner run out of descriptors at the first step of
// an open, at the second, and so on until one succeeds. Whatever it had built by then must
// be gone, and the next open must work (T036, T077). The limit is inherited by what the runner
// starts, so that the steps inside the new namespaces fail too.
func TestOpenWithoutDescriptors(t *testing.T) {
	d := start(t)
	runner := d.Runner()
	var usual unix.Rlimit
	if err := unix.Prlimit(runner, unix.RLIMIT_NOFILE, nil, &usual); err != nil {
		t.Fatal(err)
	}
	failed := 0
	for n := free(t, runner); ; n++ {
		if err := unix.Prlimit(runner, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: n, Max: usual.Max}, nil); err != nil {
			t.Fatal(err)
		}
		err := tried(d)
		if err := unix.Prlimit(runner, unix.RLIMIT_NOFILE, &usual, nil); err != nil {
			t.Fatal(err)
		}
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

// TestInitIsKilled kills a session's init from outside while a command runs: the command
// is settled, everything inside is gone, and the session does not pretend to live (T086).
func TestInitIsKilled(t *testing.T) {
	d := start(t)
	c := d.Client()
	r, err := c.Open(t.Context(), api.SessionOpen{Profile: "workspace", Target: api.Target{Local: &api.Local{}}})
	session := settled(t, r, err).SessionID
	pidns := r.Payload.Open.Enforced.Namespaces["pid"]
	begun := make(chan struct{})
	ended := make(chan *api.Receipt, 1)
	go func() {
		r, _ := c.ExecStream(context.Background(), api.Exec{SessionID: session, Argv: []string{"sh", "-c", "echo begun; sleep 1000"}}, func(e api.Event) error {
			if e.Kind == "output" {
				close(begun)
			}
			return nil
		})
		ended <- r
	}()
	<-begun
	init, err := testbox.Init(pidns)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Kill(init, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	select {
	case r := <-ended:
		if r == nil || r.Outcome == api.OutcomeOK && r.Payload.Exec.ExitCode == 0 {
			t.Errorf("receipt %+v of a command whose session died", r)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("the command was not settled")
	}
	r, err = c.Exec(t.Context(), api.Exec{SessionID: session, Argv: []string{"true"}})
	if err == nil && r.Outcome == api.OutcomeOK && r.Payload.Exec.ExitCode == 0 {
		t.Error("a command ran in a session without init")
	}
	if _, err := c.Close(t.Context(), api.SessionClose{SessionID: session, Mode: "force"}); err != nil {
		t.Error(err)
	}
}

// settledOnce looks into the journal itself: what a supervisor shows is its index, in
// which a second receipt would not be seen. It returns how many operations a kill interrupted.
func settledOnce(t testing.TB, state string) (interrupted int) {
	t.Helper()
	facts, err := audit(state, nil)
	if err != nil {
		t.Error(err)
	}
	t.Logf("%d intents, %d of them interrupted", facts.intents, facts.interrupted)
	return facts.interrupted
}

// verified checks the journal as anybody can who has the key.
func verified(t testing.TB, d *testbox.Daemon) {
	t.Helper()
	if out, err := exec.Command(filepath.Join(d.Bin, "stockade"), "receipts", "verify", "--state", d.State).CombinedOutput(); err != nil {
		t.Errorf("verify: %v\n%s", err, out)
	}
}
