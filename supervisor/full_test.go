package supervisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/supervisor/api"
)

// T191, issue item 7: on a disk that is full nothing new is begun, and the answer says why; what lives is ended with its
// receipts, over a restart too; when there is room again, everything is as it was.
func TestFullDisk(t *testing.T) {
	const inChild, size = "SUPERVISOR_FULL_DISK", 24 << 20
	dir := os.Getenv(inChild)
	if dir == "" {
		child := exec.Command(os.Args[0], "-test.run=^TestFullDisk$", "-test.v")
		child.Env = append(os.Environ(), inChild+"="+t.TempDir())
		child.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS} // nobody else sees the mount
		out, err := child.CombinedOutput()
		if errors.Is(err, unix.EPERM) {
			if os.Getenv("STOCKADE_NOSKIP") == "1" {
				t.Fatal(err)
			}
			t.Skipf("a mount namespace needs CAP_SYS_ADMIN: %v", err)
		}
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d,mode=0700", size)); err != nil {
		t.Fatal(err)
	}
	defer unix.Unmount(dir, unix.MNT_DETACH)

	a := &aging{bench: &bench{t: t, fake: newFake(), state: filepath.Join(dir, "state")}, ahead: new(atomic.Int64)}
	limits := func(c *Config) { c.Defaults.SegmentBytes = 1 << 20 }
	a = a.startAgain(limits)
	id, other := a.session(), a.session()
	kept := a.exec(id, "flood", "50000")
	running := a.launch(api.Exec{SessionID: id, Argv: []string{"sleep"}})
	alsoRunning := a.launch(api.Exec{SessionID: other, Argv: []string{"sleep"}})
	for limit := time.Now().Add(10 * time.Second); a.stateOf(alsoRunning.ExecID) != api.StateRunning && time.Now().Before(limit); {
		time.Sleep(time.Millisecond)
	}

	ballast := func() {
		t.Helper()
		f, err := os.OpenFile(filepath.Join(dir, "ballast"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		for chunk := make([]byte, 4<<10); err == nil; _, err = f.Write(chunk) {
		}
		if !errors.Is(err, unix.ENOSPC) {
			t.Fatal(err)
		}
	}
	try := func(req api.Request) error {
		req.Principal = alice
		_, err := a.Do(context.Background(), &req, nil)
		return err
	}
	refused := func(when string) {
		t.Helper()
		begun := func() int { return a.fake.called("open") + a.fake.called("start") }
		before := begun()
		for what, req := range map[string]api.Request{
			"open": {Op: api.OpSessionOpen, Open: &api.SessionOpen{Target: api.Target{Local: &api.Local{}}}},
			"exec": {Op: api.OpExec, Exec: &api.Exec{SessionID: other, Argv: []string{"true"}}},
		} {
			if err := try(req); code(err) != api.CodeJournalFailed || !strings.Contains(err.Error(), "the disk is full") {
				t.Errorf("%s, %s: %v", when, what, err)
			}
		}
		if begun() != before {
			t.Errorf("%s: something was done", when)
		}
	}
	ballast()
	var err error
	for n := 0; err == nil; n++ { // what is allocated is used up
		err = try(api.Request{Op: api.OpExec, Exec: &api.Exec{SessionID: id, Argv: []string{"true", "forbidden"}}})
		if n > 5000 {
			t.Fatal("there is no end to the room")
		}
	}
	refused("full")
	a.round() // a snapshot does not fit, and nothing is lost by it
	if err := a.take(t.Context()); err == nil {
		t.Error("a snapshot was stored on a full disk")
	}
	if r := a.control(api.OpProcessCancel, running.ExecID); r.Outcome != api.OutcomeOK || r.Payload.Control.Status != api.ControlCanceled {
		t.Errorf("cancel: %+v", r)
	}
	if r := a.ends(running.ExecID); r == nil || r.ErrorCode != api.CodeCanceled {
		t.Errorf("the canceled: %+v", r)
	}
	if r := a.close(id); r.Outcome != api.OutcomeOK || r.Payload.Close.Status != "closed" {
		t.Errorf("close: %+v", r)
	}

	// Its successor finds no room either, and goes on with what lives.
	if err := a.Leave(context.Background()); err != nil {
		t.Error(err)
	}
	a.stopPolicy()
	a = a.startAgain(limits)
	refused("still full")
	if p, ok := a.chronicle.process(alice, api.ProcessRef{ExecID: alsoRunning.ExecID}); !ok || p.State != api.StateRunning {
		t.Errorf("%+v", p)
	}
	if r := a.close(other); r.Outcome != api.OutcomeOK {
		t.Errorf("close: %+v", r)
	}
	if r := a.ends(alsoRunning.ExecID); r == nil || r.ErrorCode != api.CodeSessionClosed {
		t.Errorf("%+v", r)
	}

	if err := os.Remove(filepath.Join(dir, "ballast")); err != nil {
		t.Fatal(err)
	}
	if r := a.exec(a.session(), "echo", "again"); text(r.Payload.Exec.Stdout) != "again" {
		t.Errorf("%+v", r)
	}
	if got, _ := a.outputOf(kept.ExecID, cursor{}); got["stdout"] != string(pattern(50000)) {
		t.Errorf("%d bytes", len(got["stdout"]))
	}
	a.stop()
	a.sound()
}
