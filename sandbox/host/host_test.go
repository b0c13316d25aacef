package host_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stockade-dev/stockade/sandbox/host"
)

// T037: every layer is found, says what it costs to miss it, and probing leaves nothing:
// no group, no mount, no descriptor, no process.
func TestProbe(t *testing.T) {
	if os.Geteuid() != 0 {
		if os.Getenv("STOCKADE_NOSKIP") == "1" {
			t.Fatal("needs root")
		}
		t.Skip("needs root")
	}
	host.Probe() // what the runtime opens once, it opens now
	before := traces(t)
	h := host.Probe()
	if after := traces(t); after != before {
		t.Errorf("left behind: before %s, after %s", before, after)
	}

	if h.Kernel == "" || h.Arch == "" || h.Cgroup == "" || h.CPUs < 1 || h.Memory < 1<<20 {
		t.Errorf("%+v", h)
	}
	seen := make(map[string]bool)
	for _, l := range h.Layers {
		t.Logf("%-38s %-8s %-5v %s", l.Name, l.State, l.Required, l.Detail)
		if seen[l.Name] {
			t.Errorf("%s is there twice", l.Name)
		}
		seen[l.Name] = true
		if (l.Remedy == "") != (l.State == "present") || l.State != "present" && l.Detail == "" {
			t.Errorf("%+v", l)
		}
	}
	for _, l := range h.Missing() { // where the tests run, sessions can be opened
		t.Errorf("%s: %s: %s", l.Name, l.Detail, l.Remedy)
	}
}

func traces(t *testing.T) string {
	t.Helper()
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	children, err := filepath.Glob("/proc/self/task/*/children")
	if err != nil {
		t.Fatal(err)
	}
	var pids string
	for _, c := range children {
		data, _ := os.ReadFile(c) // a thread may have ended
		pids += string(data)
	}
	groups, _ := exec.Command("find", "/sys/fs/cgroup", "-name", fmt.Sprintf("stockade-try-%d", os.Getpid())).Output()
	return fmt.Sprintf("%d mounts, %d descriptors, children %q, groups %q", strings.Count(string(mounts), "\n"), len(fds), pids, groups)
}

// T037: a layer that cannot be had here is a value, not a failure.
func TestIDMappedRefuses(t *testing.T) {
	if detail, err := host.IDMapped("/proc"); err == nil {
		t.Errorf("proc maps ids: %s", detail)
	}
}
