// Package integration tells the users' stories on the real binaries, as root: what a
// person, an agent host or a CI job does with the command line and the socket, what a
// session must refuse, and that nothing is left behind. Every supervisor that it starts
// has a directory and an instance of its own, and a leak check around it.
package integration

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stockade-dev/stockade/internal/testbox"
	"github.com/stockade-dev/stockade/supervisor/api"
)

// bin is where the commands are: STOCKADE_BIN, or built for this run.
var bin string

func TestMain(m *testing.M) {
	status, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "integration:", err)
		os.Exit(1)
	}
	os.Exit(status)
}

func run(m *testing.M) (int, error) {
	if os.Geteuid() != 0 {
		return m.Run(), nil // every test says why it is skipped
	}
	if bin = os.Getenv("STOCKADE_BIN"); bin == "" {
		dir, err := os.MkdirTemp("", "stockade-bin-*")
		if err != nil {
			return 0, err
		}
		defer os.RemoveAll(dir)
		if err := os.Chmod(dir, 0o755); err != nil { // ordinary users run the command line too
			return 0, err
		}
		if err := testbox.Build(dir); err != nil {
			return 0, err
		}
		bin = dir
	}
	return m.Run(), nil
}

// needRoot skips what cannot be done without privilege.
func needRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		skip(t, "needs root: the runner builds namespaces, mounts and cgroups")
	}
}

// skip skips a test with its reason; where nothing may be skipped, it fails.
func skip(t testing.TB, reason string) {
	t.Helper()
	if os.Getenv("STOCKADE_NOSKIP") == "1" {
		t.Fatal("not skipped: ", reason)
	}
	t.Skip(reason)
}

// start starts a supervisor for one test, with a leak check around everything that the
// test does: before it is stopped, it holds what it held before the test; afterwards,
// nothing.
func start(t testing.TB, args ...string) *testbox.Daemon {
	t.Helper()
	needRoot(t)
	return startIn(t, bin, args...)
}

// startIn is start with the commands from somewhere else.
func startIn(t testing.TB, bin string, args ...string) *testbox.Daemon {
	t.Helper()
	return startWithin(t, bin, nil, args...)
}

// initPolicy writes the shipped policy to dir, without its tests: a daemon that sees them for the first time runs them before it
// serves, which is a matter of seconds here and of a minute on a slow machine.
func initPolicy(bin, dir string) error {
	if out, err := exec.Command(filepath.Join(bin, "stockaded"), "policy", "init", dir).CombinedOutput(); err != nil {
		return fmt.Errorf("policy init: %w\n%s", err, out)
	}
	return filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, "_test.rego") {
			err = os.Remove(path)
		}
		return err
	})
}

// startWithin is startIn with the daemon in other namespaces.
func startWithin(t testing.TB, bin string, within func(func() error) error, args ...string) *testbox.Daemon {
	t.Helper()
	return startWith(t, bin, testbox.Options{Args: args, Within: within})
}

// startWith is start with all that can be said.
func startWith(t testing.TB, bin string, o testbox.Options) *testbox.Daemon {
	t.Helper()
	o.Env = append(o.Env, "CANARY=of-the-daemon")
	dir, err := os.MkdirTemp("", "stockade-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	d, err := testbox.Start(bin, dir, o)
	if err != nil {
		t.Fatal(err)
	}
	before, err := d.Used(t.Context(), func(ctx context.Context) error { return once(ctx, d) })
	if err != nil {
		d.Kill()
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the end of the daemon's log:\n%s", tail(d.Log()))
		}
		for _, line := range finish(d, before) {
			t.Errorf("left behind: %s", line)
		}
	})
	return d
}

// tail is the last lines of a log.
func tail(s string) string {
	const most = 4 << 10
	return s[max(0, len(s)-most):]
}

// once opens a session, runs a command and closes it.
func once(ctx context.Context, d *testbox.Daemon) error {
	c := d.Client()
	open, err := c.Open(ctx, api.SessionOpen{Profile: "workspace", Target: api.Target{Local: &api.Local{}}, Degraded: degraded()})
	if err != nil {
		return err
	}
	if open.Outcome != api.OutcomeOK {
		return fmt.Errorf("open: %s %s %s %v", open.Outcome, open.ErrorCode, open.ErrorMessage, open.Deny)
	}
	if _, err := c.Exec(ctx, api.Exec{SessionID: open.SessionID, Argv: []string{"true"}}); err != nil {
		return err
	}
	_, err = c.Close(ctx, api.SessionClose{SessionID: open.SessionID, Mode: "force"})
	return err
}

// finish closes every session that a test left open, compares with what was held before,
// stops the daemon and looks at what then remains.
func finish(d *testbox.Daemon, before testbox.Residue) (left []string) {
	fail := func(err error) {
		if err != nil {
			left = append(left, err.Error())
		}
	}
	if d.Running() {
		more, err := rest(d, before)
		fail(err)
		left = append(left, more...)
		fail(d.Stop())
	}
	more, err := d.Left()
	fail(err)
	return append(left, more...)
}

// rest closes sessions until the daemon holds what it held before, and returns what it
// holds too much when that takes too long. One close may not be enough: a session that is
// being opened for a caller who is gone is in no list yet, and a hundred of them take their time beside other tests.
func rest(d *testbox.Daemon, before testbox.Residue) ([]string, error) {
	for end := time.Now().Add(time.Minute); ; {
		if err := closeAll(d); err != nil || before == nil || d.Restarted() {
			return nil, err
		}
		left, err := d.Scope().Settle(before, time.Second)
		if err != nil || len(left) == 0 || time.Now().After(end) {
			return left, err
		}
	}
}

// closeAll closes what a test left open.
func closeAll(d *testbox.Daemon) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	defer d.Client().CloseIdle()
	sessions, err := live(ctx, d)
	if err != nil {
		return err
	}
	for _, s := range sessions {
		r, err := d.Client().Close(ctx, api.SessionClose{SessionID: s.SessionID, Mode: "force"})
		if err != nil {
			return err
		}
		if r.Outcome != api.OutcomeOK {
			return fmt.Errorf("close %s: %s %s", s.SessionID, r.ErrorCode, r.ErrorMessage)
		}
	}
	return nil
}

// live are the sessions that a daemon has, those that are paused too.
func live(ctx context.Context, d *testbox.Daemon) (sessions []api.Session, err error) {
	for _, state := range []string{"ready", "quiesced"} {
		some, err := d.Client().Sessions(ctx, api.Read{State: state, Limit: 1000})
		if err != nil {
			return nil, err
		}
		sessions = append(sessions, some...)
	}
	return sessions, nil
}

// build builds a program of this tree statically. Where there is no compiler, it lies
// built beside the commands.
func build(t testing.TB, dest, pkg string) {
	t.Helper()
	if built, err := os.ReadFile(filepath.Join(bin, filepath.Base(pkg))); err == nil {
		if err := os.WriteFile(dest, built, 0o755); err != nil {
			t.Fatal(err)
		}
		return
	}
	cmd := exec.Command("go", "build", "-trimpath", "-o", dest, pkg)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", pkg, err, out)
	}
}

// settled fails a test when an operation did not take place.
func settled(t testing.TB, r *api.Receipt, err error) *api.Receipt {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	if r.Outcome != api.OutcomeOK {
		t.Fatalf("%s: %s %s %s %v", r.Op, r.Outcome, r.ErrorCode, r.ErrorMessage, r.Deny)
	}
	return r
}

// text is the inline output of an execution.
func text(o *api.Output) string {
	switch {
	case o == nil:
		return ""
	case o.InlineText != nil:
		return o.InlineText.Text
	case o.InlineBytes != nil:
		return string(o.InlineBytes.Bytes)
	}
	return "(blob)"
}

// grep names the files below dir that contain any of the words.
func grep(dir string, words ...string) ([]string, error) {
	var out []string
	err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, w := range words {
			if strings.Contains(string(b), w) {
				out = append(out, path+": "+w)
			}
		}
		return nil
	})
	return out, err
}
