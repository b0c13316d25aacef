package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stockade-dev/stockade/internal/testbox"
	"github.com/stockade-dev/stockade/supervisor/api"
)

// policyWorkers are the processes that evaluate policy for a daemon, by their own word.
func policyWorkers(t testing.TB, d *testbox.Daemon) (pids []int) {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		line, err := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		if err == nil && slices.Equal(strings.Split(strings.TrimRight(string(line), "\x00"), "\x00")[1:], []string{"policy-worker", d.State}) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// TestPolicyWorkers (R109): the daemon's decisions come out of confined processes. One that is killed is replaced, and nobody
// notices; none of them outlives the daemon, whether it is killed, replaced in place or stopped.
func TestPolicyWorkers(t *testing.T) {
	d := start(t)
	c := d.Client()
	works := func() {
		t.Helper()
		r, err := c.Open(t.Context(), api.SessionOpen{Profile: "workspace", Target: api.Target{Local: &api.Local{}}})
		if err := happened(r, err); err != nil {
			t.Fatal(err)
		}
		if len(r.Policy.Rules) == 0 {
			t.Error("the receipt names no rule")
		}
		r, err = c.Close(t.Context(), api.SessionClose{SessionID: r.SessionID, Mode: "force"})
		if err := happened(r, err); err != nil {
			t.Fatal(err)
		}
	}
	info, err := c.Host(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if w := info.Workers; w == nil || !slices.Contains(w.Walls, "seccomp") || !slices.Contains(w.Walls, "own uid") || w.Trouble != "" {
		t.Fatalf("%+v", w)
	}
	full := func() bool {
		info, err := c.Host(t.Context())
		return err == nil && len(policyWorkers(t, d)) == int(info.Workers.Processes) && info.Workers.Processes > 1
	}
	eventually(t, "all workers are there", full)
	// The leak check, on which the rest and many other tests rely, sees them.
	if now, err := d.Remains().Take(); err != nil || now["process stockade-policy"] == 0 {
		t.Errorf("the leak check sees %v, %v", now, err)
	}

	before := policyWorkers(t, d)
	for _, pid := range before {
		if status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid)); err != nil || !strings.Contains(string(status), "\nSeccomp:\t2\n") || !strings.Contains(string(status), "\nCapEff:\t0000000000000000\n") {
			t.Errorf("%d: %v\n%s", pid, err, status)
		}
		syscall.Kill(pid, syscall.SIGKILL)
		eventually(t, "it has ended", func() bool { return syscall.Kill(pid, 0) != nil })
		works()
	}
	eventually(t, "they are replaced", func() bool {
		now := policyWorkers(t, d)
		return full() && !slices.ContainsFunc(now, func(pid int) bool { return slices.Contains(before, pid) })
	})

	before = policyWorkers(t, d)
	gone := func() bool {
		return !slices.ContainsFunc(before, func(pid int) bool { return syscall.Kill(pid, 0) == nil })
	}
	d.Kill()
	eventually(t, "none outlives a daemon that is killed", gone)
	if err := d.Start(); err != nil {
		t.Fatal(err)
	}
	works()

	// In place: the successor has the predecessor's children, and does not know them.
	before = policyWorkers(t, d)
	if err := d.Hangup(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a successor has others", func() bool { return gone() && full() })
	works()
	before = policyWorkers(t, d)
	if err := d.Stop(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "none outlives one that is stopped", gone)
	if left, err := d.Left(); err != nil || len(left) > 0 {
		t.Errorf("left behind: %q, %v", left, err)
	}
	if err := d.Start(); err != nil { // for the leak check around this test
		t.Fatal(err)
	}
}
