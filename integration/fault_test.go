package integration

import (
	"context"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/internal/testbox"
	"github.com/stockade-dev/stockade/supervisor/api"
)

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
