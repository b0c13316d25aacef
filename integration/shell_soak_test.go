package integration

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stockade-dev/stockade/internal/testbox"
	"github.com/stockade-dev/stockade/supervisor/api"
)

// The memory of a daemon: what is in view is bounded, and of every receipt in the journal the place is known, in 300 bytes.
const (
	mostGrowth = 64 << 20
	mostMemory = 256 << 20
)

// TestShellsMany: shells that come and go, and a terminal that changes its size all the time, leave no terminal, descriptor or
// memory behind (T107, T110). STOCKADE_SOAK=1 has 10,000 shells and 100,000 sizes.
func TestShellsMany(t *testing.T) {
	shells, sizes := 10, 200
	if os.Getenv("STOCKADE_SOAK") == "1" {
		shells, sizes = 10_000, 100_000
	}
	d := start(t)
	c := d.Client()
	session := opened(t, c, nil).SessionID
	round := func() {
		s := openShell(t, c, api.Exec{SessionID: session, Argv: []string{"/bin/bash", "--norc", "-i"}})
		s.idle()
		s.close("force")
	}
	round()
	terminals, descriptors := terminalsOf(t, d), descriptorsOf(t, d)
	for range shells / 2 { // until as much is in view as there may be
		round()
	}
	memory := memoryOf(t, d)
	for range shells / 2 {
		round()
	}
	s := openShell(t, c, api.Exec{SessionID: session, Argv: []string{"cat"}})
	for i := range sizes {
		r, err := c.ResizeShell(t.Context(), api.ShellResize{ProcessRef: api.ProcessRef{ExecID: s.exec}, Cols: 10 + i%200, Rows: 10 + i%50})
		if err != nil || !r.Payload.Shell.Accepted {
			t.Fatalf("%+v, %v", r, err)
		}
	}
	if now := terminalsOf(t, d); now <= terminals {
		t.Errorf("%d ends of terminals with a shell, %d before", now, terminals)
	}
	s.close("force")
	eventually(t, "no terminal is left", func() bool { return terminalsOf(t, d) <= terminals })
	eventually(t, "no descriptor is left", func() bool { return descriptorsOf(t, d) <= descriptors+3 })
	if now := memoryOf(t, d); now > memory+mostGrowth || now > mostMemory {
		t.Errorf("the daemon came to have %d MiB, and had %d", now>>20, memory>>20)
	}
}

// terminalsOf are the ends of terminals that daemon and runner have, and everything that the runner has started.
func terminalsOf(t *testing.T, d *testbox.Daemon) (n int) {
	t.Helper()
	for _, pid := range append(family(d.Runner()), d.PID()) {
		dir := "/proc/" + strconv.Itoa(pid) + "/fd"
		list, _ := os.ReadDir(dir) // it may have ended
		for _, fd := range list {
			if to, err := os.Readlink(dir + "/" + fd.Name()); err == nil && (strings.HasPrefix(to, "/dev/pts/") || to == "/dev/ptmx") {
				n++
			}
		}
	}
	return n
}

// family is a process and its descendants.
func family(pid int) []int {
	all := []int{pid}
	tasks, _ := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/*/children")
	for _, file := range tasks {
		b, _ := os.ReadFile(file)
		for child := range strings.FieldsSeq(string(b)) {
			if n, err := strconv.Atoi(child); err == nil {
				all = append(all, family(n)...)
			}
		}
	}
	return all
}

// descriptorsOf are those of daemon and runner.
func descriptorsOf(t *testing.T, d *testbox.Daemon) (n int) {
	d.Client().CloseIdle()
	time.Sleep(20 * time.Millisecond)
	for _, pid := range []int{d.PID(), d.Runner()} {
		list, err := os.ReadDir("/proc/" + strconv.Itoa(pid) + "/fd")
		if err != nil {
			t.Fatal(err)
		}
		n += len(list)
	}
	return n
}

// memoryOf is the most that the daemon had.
func memoryOf(t *testing.T, d *testbox.Daemon) int64 {
	n, err := d.Memory()
	if err != nil {
		t.Fatal(err)
	}
	return n
}
