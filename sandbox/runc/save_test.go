package runc

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/internal/reexec"
	"github.com/stockade-dev/stockade/sandbox"
)

// stateTypes are digests of what a state of each version consists of. A change of the types
// is a change of the version: an older runner must not be replaced by one that would misunderstand it.
var stateTypes = map[int]string{
	1: "515b673cf2b8e9ca",
	2: "26b9625941706343",
	3: "c8ab0d6f6e2febde",
}

func TestStateVersion(t *testing.T) {
	var b strings.Builder
	describe(&b, reflect.TypeFor[saved](), map[reflect.Type]bool{})
	sum := sha256.Sum256([]byte(b.String()))
	if got := hex.EncodeToString(sum[:8]); got != stateTypes[stateVersion] {
		t.Errorf("what is saved has changed: raise stateVersion, and note %s for it\n%s", got, b.String())
	}
}

// describe writes a type out, with every type that it is made of.
func describe(b *strings.Builder, t reflect.Type, seen map[reflect.Type]bool) {
	fmt.Fprintf(b, "%s %s\n", t, t.Kind())
	if seen[t] {
		return
	}
	seen[t] = true
	switch t.Kind() {
	case reflect.Struct:
		if t == reflect.TypeFor[time.Time]() {
			return
		}
		for f := range t.Fields() {
			fmt.Fprintf(b, "%s %q ", f.Name, f.Tag)
			describe(b, f.Type, seen)
		}
	case reflect.Map:
		describe(b, t.Key(), seen)
		describe(b, t.Elem(), seen)
	case reflect.Slice, reflect.Pointer, reflect.Array:
		describe(b, t.Elem(), seen)
	}
}

// A runner that was stopped, and not replaced, goes on with everything.
func TestSaveContinue(t *testing.T) {
	r := newRunner(t)
	before := residueOf(t, r)
	open(t, r, hostSpec("s"))
	long := start(t, r, sandbox.Exec{Session: "s", ID: "long", Argv: []string{"/bin/sh", "-c", "sleep 0.5; echo done; exit 3"}}, nil)
	for range 3 {
		short := start(t, r, sandbox.Exec{Session: "s", Argv: []string{"/bin/sh", "-c", "exit 4"}}, nil)
		state, files, err := r.Save(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if len(state) == 0 || len(files) < 4 { // lock, ranges, socket, pipes
			t.Errorf("%d bytes, %d files", len(state), len(files))
		}
		r.Continue()
		if o := short.wait(); o.ExitCode != 4 {
			t.Errorf("%+v", o)
		}
		if o := shell(t, r, "s", "echo on"); o.stdout != "on\n" {
			t.Errorf("%+v", o)
		}
	}
	if o := long.wait(); o.ExitCode != 3 || o.stdout != "done\n" {
		t.Errorf("%+v", o)
	}
	closeSession(t, r, "s")
	before.mustLeaveNothing(t, r)
}

const (
	relayEnv  = "STOCKADE_TEST_RELAY"  // state directory: be a runner that is replaced
	damageEnv = "STOCKADE_TEST_DAMAGE" // done to what is handed over
)

// damages are what a state must not be believed with.
var damages = map[string]func(*saved, *[]*os.File){
	"none":                   func(*saved, *[]*os.File) {},
	"another version":        func(s *saved, _ *[]*os.File) { s.Version++ },
	"a file that is not":     func(s *saved, _ *[]*os.File) { s.Sessions[0].Init = 1000 },
	"a file twice":           func(s *saved, _ *[]*os.File) { s.IDs = s.Lock },
	"a file of nobody":       func(s *saved, _ *[]*os.File) { s.Sessions[0].Execs[0].Stderr = -1 },
	"another directory":      func(s *saved, f *[]*os.File) { (*f)[s.Lock], _ = os.Open("/") },
	"no child":               func(s *saved, _ *[]*os.File) { s.Sessions[0].PID = 1 },
	"another group":          func(s *saved, _ *[]*os.File) { s.Sessions[0].Groups.Name = "s1" },
	"a name that leads away": func(s *saved, _ *[]*os.File) { s.Sessions[0].Groups.Name = ".." },
	"another guest":          func(s *saved, _ *[]*os.File) { s.Sessions[0].Conn.Version++ },
	"an execution twice":     func(s *saved, _ *[]*os.File) { s.Sessions[0].Execs[1].ID = s.Sessions[0].Execs[0].ID },
	"a range that is none":   func(s *saved, _ *[]*os.File) { s.Ranges[0] = 5 },
}

// relay is a runner in a process of its own, in two lives.
func relay(dir string) int {
	initBinary = os.Getenv(orphanInitEnv)
	relayBinary = filepath.Join(filepath.Dir(initBinary), "stockade-relay")
	err := func() error {
		state, files, second, err := reexec.Inherited()
		if err != nil {
			return err
		}
		o := options(dir, "runcrelay"+filepath.Base(filepath.Dir(dir)))
		o.Ceiling.Networks = []string{"egress", "none"}
		if second {
			return relaySecond(o, state, files)
		}
		return relayFirst(o)
	}()
	if err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}

func relayFirst(o Options) error {
	r, err := New(o)
	if err != nil {
		return err
	}
	ctx := context.Background()
	spec := hostSpec("s")
	spec.Network.Mode = "egress"
	if _, err := r.Open(ctx, spec); err != nil {
		return err
	}
	ended := make(chan sandbox.Result, 1)
	const refused = "(unshare -n true; bash -c 'exec 3<>/dev/tcp/192.0.2.1/80 && cat <&3') 2>/dev/null;"
	for id, script := range map[string]string{"ended": "echo over; exit 3", "runs": "echo one;" + refused + "sleep 0.5;" + refused + "echo two; exit 4"} {
		e := sandbox.Exec{Session: "s", ID: id, Argv: []string{"/bin/sh", "-c", script}, Env: []string{"PATH=/usr/bin:/bin"}, Cwd: "/tmp"}
		streams, err := r.Start(ctx, e, nil, func(r sandbox.Result) { ended <- r })
		if err != nil {
			return err
		}
		streams.Close() // the runner has duplicates
	}
	<-ended
	state, files, err := r.Save(ctx)
	if err != nil {
		return err
	}
	var s saved
	if err := json.Unmarshal(state, &s); err != nil {
		return err
	}
	damages[os.Getenv(damageEnv)](&s, &files)
	if state, err = json.Marshal(s); err != nil {
		return err
	}
	exe, err := os.Open("/proc/self/exe")
	if err != nil {
		return err
	}
	return reexec.Exec(exe, os.Args, os.Environ(), state, files)
}

// relaySecond goes on, or finds that nothing is left to go on with.
func relaySecond(o Options, state []byte, files []*os.File) error {
	r, lost, err := Resume(o, state, files)
	if err != nil {
		return err
	}
	if os.Getenv(damageEnv) != "none" {
		if lost == nil {
			return errors.New("resumed")
		}
		fmt.Println(lost)
		if _, err := unix.Wait4(-1, nil, unix.WNOHANG, nil); !errors.Is(err, unix.ECHILD) {
			return errors.New("a child is left")
		}
		if held := r.Sessions(); len(held) > 0 {
			return fmt.Errorf("held: %+v", held)
		}
		if _, err := r.Open(context.Background(), hostSpec("s")); err != nil {
			return err
		}
		return r.Shutdown()
	}
	if lost != nil {
		return lost
	}
	for _, want := range []struct {
		id, out string
		code    int
	}{{"ended", "over\n", 3}, {"runs", "one\ntwo\n", 4}} {
		ended := make(chan sandbox.Result, 1)
		streams, err := r.Attach("s", want.id, func(r sandbox.Result) { ended <- r })
		if err != nil {
			return err
		}
		out, err := io.ReadAll(streams.Stdout)
		streams.Close()
		res := <-ended
		if err != nil || string(out) != want.out || res.ExitCode != want.code {
			return fmt.Errorf("%s: %q %+v %v", want.id, out, res, err)
		}
		// What is refused is told and counted on by whoever goes on.
		if n := len(res.Denials); want.id == "runs" && (n != 2 || res.Denials[0].Count != 2 || res.Denials[1].Count != 2 || res.Network.Refused != 2) {
			return fmt.Errorf("%s: %+v", want.id, res)
		}
	}
	if _, err := r.Close(context.Background(), "s"); err != nil {
		return err
	}
	return r.Shutdown()
}

// What was held before execve is there after it, and what does not fit together is taken
// up by nobody: then nothing is left of it (R015).
func TestResume(t *testing.T) {
	needRoot(t)
	for name := range damages {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			cmd := exec.Command("/proc/self/exe")
			cmd.Env = append(os.Environ(), relayEnv+"="+dir, orphanInitEnv+"="+initBinary, damageEnv+"="+name)
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Errorf("%v: %s", err, out)
			}
			t.Logf("%s", bytes.TrimSpace(out))
			if left := groupsOf("runcrelay" + filepath.Base(filepath.Dir(dir))); len(left) > 0 {
				t.Errorf("groups left: %q", left)
			}
			if left, _ := os.ReadDir(dir); len(left) > 0 {
				t.Errorf("files left: %v", left)
			}
		})
	}
}
