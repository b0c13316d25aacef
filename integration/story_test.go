package integration

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/stockade-dev/stockade/internal/testbox"
)

// TestStories runs testdata/*.txtar. Each has a supervisor of its own, whose socket is
// STOCKADE_SOCKET, and a leak check at its end. Beyond the commands of testscript:
//
//	exits N PROGRAM ARG…   run it; its status must be N
//	capture NAME           keep the last stdout, trimmed, as $NAME
//	daemon start|stop|kill|look ARG…   start takes flags of stockaded; look has it look at its policy
//	flip FILE OFFSET       change one bit of a file
//	[!] contains DIR WORD… some file below DIR contains a word
//	owned UID FILE…        files belong to UID
//	internet               what is started from now on is in one of its own, where every address answers
//	[!] met WORD…          it was reached so: tcp:ADDRESS:PORT, dns:NAME
func TestStories(t *testing.T) {
	needRoot(t)
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata",
		RequireExplicitExec: true,
		Setup:               setup,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits":    exits,
			"capture":  capture,
			"daemon":   manage,
			"flip":     flip,
			"contains": contains,
			"owned":    owned,
			"internet": internet,
			"met":      met,
		},
	})
}

type daemonKey struct{}

// story is the supervisor of one script.
type story struct {
	*testbox.Daemon
	before  testbox.Residue
	outside *testbox.Internet
}

func setup(env *testscript.Env) error {
	dir, err := os.MkdirTemp("", "stockade-")
	if err != nil {
		return err
	}
	env.Defer(func() { os.RemoveAll(dir) })
	// The scripts' ordinary users have to reach the socket and the work directory.
	for _, d := range []string{dir, filepath.Dir(env.WorkDir), env.WorkDir} {
		if err := os.Chmod(d, 0o755); err != nil {
			return err
		}
	}
	d, err := testbox.Start(bin, dir, testbox.Options{Env: []string{"CANARY=of-the-daemon"}})
	if err != nil {
		return err
	}
	s := &story{Daemon: d}
	env.Values[daemonKey{}] = s
	env.Defer(func() {
		if s.outside != nil {
			s.outside.Close()
		}
	})
	env.Defer(func() {
		if left := finish(s.Daemon, s.before); len(left) > 0 {
			env.T().Log("left behind:\n  " + strings.Join(left, "\n  ") + "\nthe end of the daemon's log:\n" + tail(d.Log()))
			env.T().FailNow()
		}
	})
	s.before, err = d.Used(context.Background(), func(ctx context.Context) error { return once(ctx, d) })
	env.Setenv("PATH", bin+string(os.PathListSeparator)+os.Getenv("PATH"))
	env.Setenv("STOCKADE_SOCKET", d.Socket)
	env.Setenv("STATE", d.State)
	env.Setenv("BIN", bin)
	env.Setenv("INSTANCE", d.Instance())
	return err
}

func theStory(ts *testscript.TestScript) *story { return ts.Value(daemonKey{}).(*story) }

func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits N PROGRAM ARG…")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		exit, ok := errors.AsType[*exec.ExitError](err)
		if !ok {
			ts.Fatalf("%v", err)
		}
		got = exit.ExitCode()
	}
	if got != want {
		ts.Fatalf("status %d, want %d", got, want)
	}
}

func capture(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: capture NAME")
	}
	ts.Setenv(args[0], strings.TrimSpace(ts.ReadFile("stdout")))
}

func manage(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 1 {
		ts.Fatalf("usage: daemon start|stop|kill|look ARG…")
	}
	s := theStory(ts)
	switch args[0] {
	case "start":
		s.Args = args[1:]
		ts.Check(s.Start())
	case "stop":
		ts.Check(s.Stop())
	case "kill":
		s.Kill()
	case "look":
		ts.Check(syscall.Kill(s.PID(), syscall.SIGUSR1))
	default:
		ts.Fatalf("daemon %s: unknown", args[0])
	}
}

func flip(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: flip FILE OFFSET")
	}
	name := ts.MkAbs(args[0])
	offset, err := strconv.ParseInt(args[1], 10, 64)
	ts.Check(err)
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	ts.Check(err)
	defer f.Close()
	b := make([]byte, 1)
	_, err = f.ReadAt(b, offset)
	ts.Check(err)
	b[0] ^= 1
	_, err = f.WriteAt(b, offset)
	ts.Check(err)
}

func contains(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) < 2 {
		ts.Fatalf("usage: [!] contains DIR WORD…")
	}
	found, err := grep(ts.MkAbs(args[0]), args[1:]...)
	ts.Check(err)
	if neg != (len(found) == 0) {
		ts.Fatalf("contains: found %q", found)
	}
}

func owned(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: owned UID FILE…")
	}
	for _, name := range args[1:] {
		info, err := os.Lstat(ts.MkAbs(name))
		ts.Check(err)
		if uid := strconv.FormatUint(uint64(info.Sys().(*syscall.Stat_t).Uid), 10); uid != args[0] {
			ts.Fatalf("%s belongs to %s, not to %s", name, uid, args[0])
		}
	}
}

func internet(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) > 0 {
		ts.Fatalf("usage: internet")
	}
	s := theStory(ts)
	var err error
	s.outside, err = testbox.NewInternet(names)
	ts.Check(err)
	s.Within = s.outside.Within
}

func met(ts *testscript.TestScript, neg bool, args []string) {
	s := theStory(ts)
	if len(args) == 0 || s.outside == nil {
		ts.Fatalf("usage: internet, and then [!] met WORD…")
	}
	all := s.outside.Met()
	for _, word := range args {
		if slices.Contains(all, strings.Replace(word, ":", " ", 1)) == neg {
			ts.Fatalf("met %q", all)
		}
	}
}
