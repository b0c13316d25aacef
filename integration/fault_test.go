package integration

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
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

// TestSetupFaults has the kernel refuse the first, the second, … call of every kind that the building of a session
// consists of, in every process and thread of it, until none is reached any more (T036, T077). Whatever fails: the open
// says so, nothing ran, nothing is left, and the next open works. It is strace that refuses, from outside. Control: an open of which nothing
// is refused works, after each that failed; and fifteen kinds of calls at least are reached.
func TestSetupFaults(t *testing.T) {
	t.Parallel()
	d := start(t)
	if _, err := exec.LookPath("strace"); err != nil {
		skip(t, "needs strace, which refuses the calls")
	}
	most := 2
	switch {
	case os.Getenv("STOCKADE_SOAK") != "":
		most = 1000
	case os.Getenv("STOCKADE_MACHINE") != "": // where an open takes a second
		most = 1
	}
	calls := map[string]string{ // and the error that each may really have
		"bpf": "EPERM", "capset": "EPERM", "chdir": "EACCES", "execve": "EACCES", "fchdir": "EACCES", "fchown": "EPERM", "fchownat": "EPERM",
		"fsconfig": "EPERM", "fsmount": "EPERM", "fsopen": "EPERM", "landlock_add_rule": "EINVAL", "landlock_create_ruleset": "EOPNOTSUPP",
		"landlock_restrict_self": "E2BIG", "memfd_create": "EMFILE", "mkdirat": "ENOSPC", "mknodat": "ENOSPC", "mount": "EPERM", "mount_setattr": "EPERM",
		"move_mount": "EPERM", "open_tree": "EMFILE", "openat2": "EMFILE", "pipe2": "EMFILE", "pivot_root": "EPERM", "prlimit64": "EPERM", "seccomp": "EINVAL", "setgroups": "EPERM",
		"sethostname": "EPERM", "setns": "EPERM", "setresgid": "EPERM", "setresuid": "EPERM", "socketpair": "EMFILE", "symlinkat": "ENOSPC", "umount2": "EBUSY", "unshare": "ENOSPC",
	}
	reached := 0
	for _, call := range slices.Sorted(maps.Keys(calls)) {
		n := 0
		for k := 1; k <= most; k++ {
			stop := refuse(t, d, call, calls[call], k)
			err := soon(t, d) // without mounts of the caller's: their id mappings are made by means of ptrace, of which a process has one user
			stop()
			if !d.Running() {
				t.Fatalf("%s %d: the daemon has ended", call, k)
			}
			if testing.Verbose() {
				t.Logf("%s %d: %v", call, k, err)
			}
			if err == nil {
				break // not reached, or made up for
			}
			n++
			time.Sleep(50 * time.Millisecond) // for the stock, which is made by means of it, too
			if err := soon(t, d); err != nil {
				t.Fatalf("after %s %d had failed: %v", call, k, err)
			}
		}
		if n > 0 {
			reached++
		}
	}
	t.Logf("%d of %d kinds of calls made an open fail", reached, len(calls))
	if reached < 15 {
		t.Errorf("%d of %d kinds of calls are reached: the refusals do not arrive", reached, len(calls))
	}
}

// soon is once, which must not take for ever.
func soon(t *testing.T, d *testbox.Daemon) error {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	return once(ctx, d)
}

// refuse has strace refuse the nth call of a kind to the runner and whatever it starts.
func refuse(t *testing.T, d *testbox.Daemon, call, errno string, nth int) (stop func()) {
	t.Helper()
	runner := d.Runner()
	cmd := exec.Command("strace", "-f", "-qq", "-o", os.DevNull, "-e", "trace="+call, "-e", fmt.Sprintf("inject=%s:error=%s:when=%d", call, errno, nth), "-p", fmt.Sprint(runner))
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(5 * time.Second); !traced(runner); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			_ = cmd.Process.Kill()
			t.Fatalf("strace does not attach to process %d", runner)
		}
	}
	return func() {
		_ = cmd.Process.Signal(unix.SIGINT) // it detaches, and ends
		late := time.AfterFunc(10*time.Second, func() { _ = cmd.Process.Kill() })
		defer late.Stop()
		_ = cmd.Wait()
	}
}

// traced reports whether every thread of a process has a tracer.
func traced(pid int) bool {
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	for _, file := range tasks {
		status, err := os.ReadFile(file)
		if err == nil && strings.Contains(string(status), "TracerPid:\t0\n") {
			return false
		}
	}
	return err == nil && len(tasks) > 0
}
