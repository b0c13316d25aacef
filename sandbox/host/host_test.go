package host_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/moby/sys/mountinfo"

	"github.com/stockade-dev/stockade/sandbox"
	"github.com/stockade-dev/stockade/sandbox/cgroup"
	"github.com/stockade-dev/stockade/sandbox/host"
)

// T037: every layer is found, says what it costs to miss it, and probing leaves nothing:
// no group, no mount, no descriptor, no process.
func TestProbe(t *testing.T) {
	needsRoot(t)
	host.Probe(cgroup.Options{}) // what the runtime opens once, it opens now
	var h sandbox.Host
	var before, after string
	for range 3 { // the host mounts things of its own at times; what a probe leaves, every probe leaves
		before = traces(t)
		h = host.Probe(cgroup.Options{})
		if after = traces(t); after == before {
			break
		}
	}
	if after != before {
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

// A runner's start waits for this. It is said in small programs in namespaces of their own: 40 of them take 40 ms on a machine that has
// nothing else to do, and that is what a start may wait.
func BenchmarkProbe(b *testing.B) {
	needsRoot(b)
	for b.Loop() {
		host.Probe(cgroup.Options{})
	}
	began := time.Now()
	for range b.N {
		cmd := exec.Command("/bin/true")
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET}
		if err := cmd.Run(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed())/float64(time.Since(began)), "programs")
}

// T037: the control of every trial: whoever may not ask is not told that it is there, and not that it is
// missing either, and the layers that can be done without are required all the same.
func TestProbeUnprivileged(t *testing.T) {
	needsRoot(t)
	if os.Getenv("HOST_TEST_UNPRIVILEGED") != "" {
		for _, l := range host.Probe(cgroup.Options{}).Layers {
			fmt.Printf("%s|%s|%v|%s\n", l.Name, l.State, l.Required, l.Remedy)
		}
		return
	}
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestProbeUnprivileged$")
	cmd.Env = append(os.Environ(), "HOST_TEST_UNPRIVILEGED=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	layers := map[string][]string{}
	for line := range strings.Lines(string(out)) {
		if f := strings.Split(strings.TrimSpace(line), "|"); len(f) == 4 {
			layers[f[0]] = f[1:]
		}
	}
	for _, name := range []string{"cgroup kill", "clone into cgroup", "device rules", sandbox.LayerExecLimits, "mounts by descriptor", sandbox.LayerOverlay, "nftables"} {
		if f := layers[name]; len(f) == 0 || f[0] != "unknown" || f[2] != "ask again as root" {
			t.Errorf("%s: %q", name, f)
		}
	}
	for _, name := range sandbox.Degradable { // asking for these takes no privilege
		if f := layers[name]; len(f) == 0 || f[0] != "present" || f[1] != "true" {
			t.Errorf("%s: %q", name, f)
		}
	}
}

// T037: groups are tried where sessions' are to stand, which need not exist yet, and not in
// the group that we happen to be in: here it is one that lets nobody build.
func TestProbeNamedParent(t *testing.T) {
	needsRoot(t)
	if parent := os.Getenv("HOST_TEST_PARENT"); parent != "" {
		for _, l := range host.Probe(cgroup.Options{Parent: parent}).Layers {
			if l.Name == "cgroup kill" || l.Name == "clone into cgroup" {
				fmt.Printf("%s: %s %s\n", l.Name, l.State, l.Detail)
			}
		}
		return
	}
	unified, err := mountinfo.GetMounts(mountinfo.FSTypeFilter("cgroup2"))
	if err != nil || len(unified) == 0 {
		t.Fatalf("no unified hierarchy: %v", err)
	}
	at := fmt.Sprintf("%s/stockade-host-test-%d", unified[0].Mountpoint, os.Getpid())
	closed := filepath.Join(at, "closed")
	if err := os.MkdirAll(closed, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(closed); os.Remove(at) })
	if err := os.WriteFile(closed+"/cgroup.max.descendants", []byte("0"), 0); err != nil {
		t.Fatal(err)
	}
	group, err := os.Open(closed)
	if err != nil {
		t.Fatal(err)
	}
	defer group.Close()
	below := strings.TrimPrefix(at, unified[0].Mountpoint)
	for parent, state := range map[string]string{below: "present", below + "/not/yet": "present", below + "/closed": "missing"} {
		cmd := exec.Command("/proc/self/exe", "-test.run=^TestProbeNamedParent$")
		cmd.Env = append(os.Environ(), "HOST_TEST_PARENT="+parent)
		cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(group.Fd())}
		out, err := cmd.CombinedOutput()
		if err != nil || strings.Count(string(out), ": "+state+" ") != 2 {
			t.Errorf("below %s: want both %s: %v\n%s", parent, state, err, out)
		}
		if left, err := filepath.Glob(at + "/*/cgroup.procs"); err != nil || len(left) != 1 {
			t.Errorf("below %s: left %q, %v", parent, left, err)
		}
	}
}

func needsRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() == 0 || os.Getenv("HOST_TEST_UNPRIVILEGED") != "" {
		return
	}
	if os.Getenv("STOCKADE_NOSKIP") == "1" {
		t.Fatal("needs root")
	}
	t.Skip("needs root")
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
	return fmt.Sprintf("%d descriptors, children %q, groups %q, mounts\n%s", len(fds), pids, groups, mounts)
}

// T037: a layer that cannot be had here is a value, not a failure.
func TestIDMappedRefuses(t *testing.T) {
	if detail, err := host.IDMapped("/proc"); err == nil {
		t.Errorf("proc maps ids: %s", detail)
	}
}
