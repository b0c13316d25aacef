package main

import (
	"bufio"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stockade-dev/stockade/rego/worker"
	"github.com/stockade-dev/stockade/sandbox"
	"github.com/stockade-dev/stockade/sandbox/launch"
	"github.com/stockade-dev/stockade/supervisor/api"
	"github.com/stockade-dev/stockade/supervisor/client"
)

// The workers of the daemons of these tests are this program again.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == worker.Argument {
		if err := worker.Main(); err != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// The daemon on a runner that is already there, without privilege: it says ready when it
// serves, ends when it is told to, and leaves no socket behind.
func TestServe(t *testing.T) {
	dir := shortDir(t)
	leave := startRunner(t, filepath.Join(dir, "runner"))
	real, link := dir, dir+"-link"
	if err := os.Symlink(real, link); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(link)
	c := config{state: filepath.Join(link, "state"), socket: filepath.Join(link, "s"), runner: filepath.Join(dir, "runner"), drain: 5 * time.Second}
	ctx, stop := context.WithCancel(t.Context())
	ended := start(t, ctx, &c)
	r, err := client.New(c.socket).Open(t.Context(), api.SessionOpen{Target: api.Target{Local: &api.Local{}}})
	if err != nil || r.Outcome != api.OutcomeFaulted || r.ErrorCode != "unsupported_by_host" {
		t.Errorf("open: %+v %v", r, err)
	}
	// Neither the state nor the socket, where links lead, can be the source of a mount.
	if info, err := client.New(c.socket).Host(t.Context()); err != nil {
		t.Error(err)
	} else if denied := info.Ceiling.MountDenied; !slices.Contains(denied, filepath.Join(real, "state")) || !slices.Contains(denied, filepath.Join(real, "s")) {
		t.Errorf("sources that are denied: %q", denied)
	}
	second := c
	if err := second.serve(t.Context(), io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("a second one on the same state: %v", err)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(c.socket); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is left: %v", err)
	}

	// Without its runner it is of no use, and says so by ending.
	ended = start(t, t.Context(), &c)
	leave()
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "runner is gone") {
		t.Errorf("without its runner: %v", err)
	}
}

// start runs the daemon until it is ready.
func start(t *testing.T, ctx context.Context, c *config) <-chan error {
	t.Helper()
	r, w := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := c.serve(ctx, w, io.Discard)
		w.CloseWithError(io.EOF)
		ended <- err
	}()
	if line, err := bufio.NewReader(r).ReadString('\n'); err != nil || line != "ready\n" {
		t.Fatalf("%q %v %v", line, err, <-ended)
	}
	return ended
}

// What is wrong with the flags is said before anything is started.
func TestRefusesToStart(t *testing.T) {
	dir := shortDir(t)
	broken := filepath.Join(dir, "broken")
	os.Mkdir(broken, 0o700)
	os.WriteFile(filepath.Join(broken, "a.rego"), []byte("package stockade.open\nno"), 0o600)
	ceiling := filepath.Join(dir, "ceiling.json")
	os.WriteFile(ceiling, []byte(`{"memory":1}`), 0o600)
	for name, c := range map[string]config{
		"policy":  {policy: broken},
		"time":    {policyTime: -1},
		"ceiling": {ceiling: ceiling},
		"runner":  {runner: filepath.Join(dir, "none")},
	} {
		c.state, c.socket = filepath.Join(dir, "state"), filepath.Join(dir, "s")
		if err := c.serve(t.Context(), io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Two state directories are two instances, and one is always the same.
func TestInstance(t *testing.T) {
	a, b, again := instance("/a"), instance("/b"), instance("/a")
	if a == b || a != again {
		t.Error("instances are mixed up")
	}
}

// T153: our runner listens where nobody else could have put a socket, and what is found there is not repaired.
func TestMakeDir(t *testing.T) {
	for name, row := range map[string]struct {
		prepare func(parent, dir string) error
		refused bool
	}{
		"nothing is there": {func(string, string) error { return nil }, false},
		"it is there":      {func(parent, dir string) error { return os.MkdirAll(dir, 0o711) }, false},
		"others may write": {func(parent, dir string) error { return errors.Join(os.Mkdir(parent, 0o755), os.Chmod(parent, 0o777)) }, true},
		"so may a group":   {func(parent, dir string) error { return errors.Join(os.MkdirAll(dir, 0o755), os.Chmod(dir, 0o775)) }, true},
		"a link to one": {func(parent, dir string) error {
			return errors.Join(os.Mkdir(parent, 0o755), os.Symlink(os.TempDir(), dir))
		}, true},
		"a file": {func(parent, dir string) error { return os.WriteFile(parent, nil, 0o600) }, true},
		"somebody else's": {func(parent, dir string) error {
			return errors.Join(os.Mkdir(parent, 0o755), os.Lchown(parent, 1001, 0))
		}, true},
		"a link of a parent": {func(parent, dir string) error { return os.Symlink("/usr", parent) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			parent := filepath.Join(t.TempDir(), "run")
			dir := filepath.Join(parent, "instance")
			if err := row.prepare(parent, dir); errors.Is(err, os.ErrPermission) {
				return // only root can give a directory away
			} else if err != nil {
				t.Fatal(err)
			}
			if err := makeDir(dir); (err != nil) != row.refused {
				t.Errorf("%v", err)
			}
		})
	}
}

func TestFind(t *testing.T) {
	if p, err := find("x/stockade-run", "stockade-run"); err != nil || !filepath.IsAbs(p) {
		t.Errorf("%s %v", p, err)
	}
	t.Setenv("PATH", t.TempDir())
	if _, err := find("", "stockade-run"); err == nil {
		t.Error("found what is nowhere")
	}
	os.WriteFile(filepath.Join(os.Getenv("PATH"), "stockade-run"), nil, 0o700)
	if p, err := find("", "stockade-run"); err != nil || filepath.Dir(p) != os.Getenv("PATH") {
		t.Errorf("%s %v", p, err)
	}
}

// A runner that cannot be started, or ends at once, leaves nothing of its directory.
func TestRunnerDoesNotStart(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("starting a runner takes root")
	}
	state := t.TempDir()
	for _, program := range []string{filepath.Join(state, "nothing"), "/bin/false"} {
		c := config{runnerBinary: program, initBinary: program}
		if _, err := c.connect(t.Context(), state, io.Discard); err == nil {
			t.Errorf("%s: connected", program)
		}
		dir := filepath.Join(runtimeDir, instance(state))
		if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %s: %v", program, dir, err)
		}
	}
}

// shortDir is a directory whose name leaves room for that of a socket.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "stockade-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// startRunner answers at socket for a machine that can do nothing. leave ends it.
func startRunner(t *testing.T, socket string) (leave func()) {
	t.Helper()
	ln, err := launch.Listen(socket, uint32(os.Geteuid()))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	serving.Go(func() { ln.Serve(ctx, unable{}, launch.Succession{}) })
	leave = func() { cancel(); serving.Wait() }
	t.Cleanup(leave)
	return leave
}

// unable is a runner on a machine that lacks what sessions need.
type unable struct{ launch.Handler }

func (unable) Host() sandbox.Host {
	return sandbox.Host{Layers: []sandbox.Layer{{Name: "user namespaces", State: "missing", Required: true}}}
}

func (unable) Resolve(context.Context, sandbox.Caller, []string) ([]launch.Resolved, error) {
	return nil, nil
}

func (unable) Sessions() []sandbox.Held { return nil }

func (unable) Disconnected() {}

func (unable) Abandoned() {}
