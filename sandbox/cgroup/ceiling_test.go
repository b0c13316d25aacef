package cgroup_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/sandbox"
	"github.com/stockade-dev/stockade/sandbox/cgroup"
)

func init() {
	roles["parked"] = parked
	roles["spin"] = spin
}

// parked waits as a command does that has been cloned and not released, and becomes the
// program that it was given. It waits as a shell, which wants no thread under the ceiling.
func parked() error {
	argv := strings.Split(os.Getenv("CGROUP_TEST_ARGV"), "\x1f")
	return unix.Exec("/bin/sh", append([]string{"sh", "-c", `echo ready; read -r _; exec "$@"`, "sh"}, argv...), os.Environ())
}

// spin keeps 64 threads busy until it is killed.
func spin() error {
	fmt.Println("ready")
	io.Copy(io.Discard, os.Stdin)
	for range 64 {
		go func() {
			runtime.LockOSThread()
			for n := 0; ; n++ {
			}
		}()
	}
	time.Sleep(time.Hour)
	return nil
}

// stand has a process for init in a session's groups, as the runner does, so that every
// ceiling stands.
func stand(t *testing.T, s *cgroup.Session) *exec.Cmd {
	t.Helper()
	cmd, _ := start(t, "wait", nil)
	if err := errors.Join(s.JoinRoot(cmd.Process.Pid), s.JoinInit(cmd.Process.Pid)); err != nil {
		t.Fatal(err)
	}
	return cmd
}

// in has a role in a leaf and under the session's v1 ceilings, as if init had cloned it.
func in(t *testing.T, s *cgroup.Session, l *cgroup.Leaf, name string, env ...string) (*exec.Cmd, io.Closer) {
	t.Helper()
	for _, e := range env {
		name, value, _ := strings.Cut(e, "=")
		t.Setenv(name, value)
	}
	cmd, told := start(t, name, &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(l.FD().Fd())})
	if err := s.JoinV1(cmd.Process.Pid); err != nil {
		t.Fatal(err)
	}
	return cmd, told
}

// R014 R053: each file of each ceiling is evidence, and each that does not hold what was
// asked for is a refusal.
func TestFiles(t *testing.T) {
	tree := open(t)
	l := limits
	l.CPUWeight = 30
	s := create(t, tree, "s1", l)
	stand(t, s)
	files, err := s.Files()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range files {
		got = append(got, f.Controller+" "+f.File+" "+f.Value)
	}
	want := map[string][]string{
		"v2": {
			"memory memory.max 67108864", "memory memory.swap.max 0", "cpu cpu.max 30000 20000", "cpu cpu.weight 30", "pids pids.max " + strconv.Itoa(32+sandbox.InitPIDs), "pids x/pids.max 32",
		},
		"hybrid": {
			"memory memory.limit_in_bytes 67108864", "memory memory.memsw.limit_in_bytes 67108864", "cpu cpu.cfs_period_us 20000", "cpu cpu.cfs_quota_us 30000", "cpu cpu.shares 307",
			"pids pids.max " + strconv.Itoa(32+sandbox.InitPIDs), "pids x/pids.max 33",
		},
	}[tree.Layout()]
	want = slices.DeleteFunc(want, func(w string) bool { // a kernel without swap accounting
		return (strings.Contains(w, "swap.max") || strings.Contains(w, "memsw")) && !slices.Contains(got, w)
	})
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	for _, f := range files {
		dir := s.Paths()[f.Controller]
		if dir == "" {
			dir = s.Paths()[""]
		}
		other := map[string]string{"cpu.max": "200000 100000", "cpu.cfs_period_us": "200000", "memory.memsw.limit_in_bytes": "134217728", "memory.swap.max": "4096"}[f.File]
		if other == "" {
			other = "1000"
		}
		if strings.HasPrefix(f.File, "memory.") && other == "1000" {
			other = "33554432"
		}
		if err := os.WriteFile(dir+"/"+f.File, []byte(other), 0); err != nil {
			t.Fatal(err)
		}
		if _, _, err := s.Limits(); err == nil {
			t.Errorf("%s holds %s, and reads back as %s", f.File, other, f.Value)
		}
		if err := os.WriteFile(dir+"/"+f.File, []byte(f.Value), 0); err != nil {
			t.Fatal(err)
		}
	}
	if got, swap, err := s.Limits(); err != nil || swap != 0 || got.CPUWeight != 30 {
		t.Errorf("put right again: %+v, %v", got, err)
	}
}

// T068 R053: an io ceiling that would not hold is refused, before anything stands; where the
// io controller is on v2, it is written and read back.
func TestIOCeiling(t *testing.T) {
	tree := open(t)
	layout, err := cgroup.Discover(cgroup.Options{})
	if err != nil {
		t.Fatal(err)
	}
	l := limits
	l.IOBytesPerSecond = 1 << 20
	s, err := tree.Create("io")
	if err != nil {
		t.Fatal(err)
	}
	var refusal *sandbox.Error
	err = s.Bound(l)
	if layout.IO() != nil {
		if !errors.As(err, &refusal) || refusal.Code != sandbox.CodeUnsupported {
			t.Errorf("without an io controller on v2: %v", err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	stand(t, s)
	if _, err := s.Files(); err == nil {
		t.Error("an io ceiling that was not raised reads back")
	}
	if err := s.BoundIO([]uint64{unix.Mkdev(0, 21)}, l.IOBytesPerSecond); !errors.As(err, &refusal) || refusal.Code != sandbox.CodeUnsupported {
		t.Errorf("a device that is no disk: %v", err)
	}
	disk := aDisk(t)
	if err := s.BoundIO([]uint64{disk, disk}, l.IOBytesPerSecond); err != nil {
		t.Fatal(err)
	}
	files, err := s.Files()
	if err != nil {
		t.Fatal(err)
	}
	last := files[len(files)-1]
	if last.File != "io.max" || !strings.Contains(last.Value, "rbps=1048576 wbps=1048576") {
		t.Errorf("%+v", last)
	}
	number, _, _ := strings.Cut(last.Value, " ")
	if err := os.WriteFile(s.Paths()[""]+"/io.max", []byte(number+" wbps=max"), 0); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.Limits(); err == nil {
		t.Error("a loosened io ceiling reads back as in force")
	}
}

// aDisk is the number of some block device of this machine, a partition where there is one.
func aDisk(t *testing.T) uint64 {
	t.Helper()
	entries, err := os.ReadDir("/sys/dev/block")
	if err != nil || len(entries) == 0 {
		t.Fatalf("no block devices: %v", err)
	}
	var major, minor uint32
	fmt.Sscanf(entries[0].Name(), "%d:%d", &major, &minor)
	return unix.Mkdev(major, minor)
}

// T067: 64 threads get what one tenth of a processor gives.
func TestCPUCeiling(t *testing.T) {
	tree := open(t)
	l := limits
	l.PIDs, l.CPUMillis = 128, 100
	s := create(t, tree, "cpu", l)
	stand(t, s)
	leaf, err := s.Leaf()
	if err != nil {
		t.Fatal(err)
	}
	_, told := in(t, s, leaf, "spin")
	told.Close()
	time.Sleep(200 * time.Millisecond)
	rate := func() float64 {
		before, err := leaf.CPUTime()
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		time.Sleep(time.Second)
		after, err := leaf.CPUTime()
		if err != nil {
			t.Fatal(err)
		}
		return float64(after-before) / float64(time.Since(began))
	}
	r := rate()
	// Where a processor of the machine's was itself not run for a while, that is charged to whom it ran last, who gives it back
	// before anything else.
	for n := 0; n < 9 && r < 0.02; n++ {
		r = rate()
	}
	if r > 0.15 || r < 0.02 {
		t.Errorf("%.2f processors of 0.10", r)
	}
	// The control: the same threads without the ceiling take all they get.
	dir, file, free := s.Paths()["cpu"], "/cpu.cfs_quota_us", "-1"
	if dir == "" {
		dir, file, free = s.Paths()[""], "/cpu.max", "max 100000"
	}
	if err := os.WriteFile(dir+file, []byte(free), 0); err != nil {
		t.Fatal(err)
	}
	var most float64
	for range 10 { // others' work takes its share
		if most = max(most, rate()); most > 0.2 {
			return
		}
	}
	t.Errorf("without a ceiling %.2f processors: the machine is too busy to tell", most)
}

// R053: an execution's own ceilings hold it and nobody else, on every layout; they are read back, and go
// with it.
func TestLeafWith(t *testing.T) {
	tree := open(t)
	s := create(t, tree, "s1", limits)
	stand(t, s)
	own := sandbox.ExecLimits{MemoryBytes: 16<<20 + 7, CPUMillis: 500, PIDs: 3}
	before, err := s.Events()
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := s.LeafWith(own)
	if err != nil {
		t.Fatal(err)
	}
	other, err := s.Leaf()
	if err != nil {
		t.Fatal(err)
	}
	neighbour, _ := in(t, s, other, "wait")
	eater, told := in(t, s, leaf, "eat")
	if _, err := leaf.Files(); err == nil {
		t.Error("a ceiling of pids that is not raised yet reads back")
	}
	if err := leaf.Place(eater.Process.Pid); err != nil {
		t.Fatal(err)
	}
	files, err := leaf.Files()
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]string{}
	for _, f := range files {
		values[f.File] = f.Value
	}
	if tree.Layout() == "v2" && (values["memory.max"] != "16777216" || values["cpu.max"] != "10000 20000" || values["pids.max"] != "3") ||
		tree.Layout() != "v2" && (values["memory.limit_in_bytes"] != "16777216" || values["cpu.cfs_quota_us"] != "10000" || values["pids.max"] != "3") {
		t.Errorf("%v", values)
	}
	told.Close()
	eater.Wait()
	if sig := eater.ProcessState.Sys().(syscall.WaitStatus).Signal(); sig != syscall.SIGKILL {
		t.Errorf("the eater: %v", eater.ProcessState)
	}
	if err := neighbour.Process.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("the neighbour: %v", err)
	}
	hits, err := leaf.Hits(before)
	if err != nil {
		t.Fatal(err)
	}
	if len(hits) != 1 || hits[0].Ceiling != sandbox.HitMemory || hits[0].Scope != "execution" || hits[0].Limit != 16<<20 || hits[0].Peak < 15<<20 || hits[0].Peak > 17<<20 || hits[0].Count < 1 {
		t.Errorf("hits %+v", hits)
	}
	if hits, err := other.Hits(before); err != nil || len(hits) > 0 {
		t.Errorf("the neighbour's hits: %+v, %v", hits, err)
	}
	if u, err := leaf.Usage(); err != nil || u.OOMKills < 1 || u.PeakMemory < 15<<20 {
		t.Errorf("usage %+v, %v", u, err)
	}
	name := leaf.Name()
	if err := leaf.Remove(); err != nil {
		t.Fatal(err)
	}
	for c, dir := range s.Paths() {
		for _, at := range []string{dir + "/" + name, dir + "/x/" + name} {
			if _, err := os.Stat(at); err == nil {
				t.Errorf("%s: %s is left", c, at)
			}
		}
	}
	// What was counted in a group that is gone is counted on.
	after, err := s.Events()
	if err != nil {
		t.Fatal(err)
	}
	if after.OOMKills <= before.OOMKills || after.OOMs != before.OOMs { // 6.1 counts the victim of a group's kill twice
		t.Errorf("the session: before %+v, after %+v", before, after)
	}

	for _, looser := range []sandbox.ExecLimits{{MemoryBytes: limits.MemoryBytes + 4096}, {CPUMillis: limits.CPUMillis + 1}, {PIDs: limits.PIDs + 1}, {PIDs: -1}} {
		if l, err := s.LeafWith(looser); err == nil {
			l.Remove()
			t.Errorf("%+v was accepted", looser)
		}
	}
}

// R053 R014: a file of a leaf that does not hold what was asked for is a refusal.
func TestLeafReadsBack(t *testing.T) {
	tree := open(t)
	s := create(t, tree, "s1", limits)
	stand(t, s)
	leaf, err := s.LeafWith(sandbox.ExecLimits{MemoryBytes: 16 << 20})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := leaf.Files(); err != nil {
		t.Fatal(err)
	}
	file := s.Paths()[""] + "/x/" + leaf.Name() + "/memory.max"
	if dir := s.Paths()["memory"]; dir != "" {
		file = dir + "/" + leaf.Name() + "/memory.limit_in_bytes"
	}
	if err := os.WriteFile(file, []byte("8388608"), 0); err != nil {
		t.Fatal(err)
	}
	if _, err := leaf.Files(); err == nil {
		t.Error("another ceiling reads back as in force")
	}
}

// R053 T061: what the session's ceiling kills in an execution that has one of its own is the
// session's hit.
func TestSessionCeilingFirst(t *testing.T) {
	tree := open(t)
	s := create(t, tree, "s1", limits)
	stand(t, s)
	before, err := s.Events()
	if err != nil {
		t.Fatal(err)
	}
	// Two that are each within their own ceilings, and not together within the session's.
	var leaves []*cgroup.Leaf
	for range 2 {
		leaf, err := s.LeafWith(sandbox.ExecLimits{MemoryBytes: 60 << 20})
		if err != nil {
			t.Fatal(err)
		}
		cmd, told := in(t, s, leaf, "eat", "CGROUP_TEST_EAT=40")
		if err := leaf.Place(cmd.Process.Pid); err != nil {
			t.Fatal(err)
		}
		leaves = append(leaves, leaf)
		told.Close()
	}
	deadline := time.Now().Add(20 * time.Second)
	for {
		var session int
		for _, l := range leaves {
			hits, err := l.Hits(before)
			if err != nil {
				t.Fatal(err)
			}
			for _, h := range hits {
				if h.Scope != "session" || h.Ceiling != sandbox.HitMemory || h.Limit != limits.MemoryBytes {
					t.Fatalf("hit %+v", h)
				}
				session++
			}
		}
		if session == 2 { // it ran out while both ran
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("no hit")
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// R053 T059: a ceiling of one process is one: what parks has threads, what it becomes can fork
// nothing.
func TestOnePID(t *testing.T) {
	tree := open(t)
	s := create(t, tree, "s1", limits)
	stand(t, s)
	before, err := s.Events()
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		pids int64
		want string
	}{{1, "alone"}, {2, "two"}} { // the second is the control
		leaf, err := s.LeafWith(sandbox.ExecLimits{PIDs: row.pids})
		if err != nil {
			t.Fatal(err)
		}
		cmd, told := in(t, s, leaf, "parked", "CGROUP_TEST_ARGV="+strings.Join([]string{"/bin/sh", "-c", "{ /bin/true && echo two; } 2>/dev/null || echo alone"}, "\x1f"))
		if err := leaf.Place(cmd.Process.Pid); err != nil {
			t.Fatal(err)
		}
		told.Close()
		out := cmd.Stdout.(*lines)
		line, _ := out.r.ReadString('\n')
		cmd.Wait()
		// A shell that cannot fork gives up without a word.
		if got := strings.TrimSpace(line); (got == "two") != (row.want == "two") {
			t.Errorf("%d: %q, want %s", row.pids, got, row.want)
		}
		hits, err := leaf.Hits(before)
		if err != nil {
			t.Fatal(err)
		}
		if row.pids == 1 && (len(hits) != 1 || hits[0].Ceiling != sandbox.HitPIDs || hits[0].Scope != "execution" || hits[0].Limit != 1 || hits[0].Peak > 1 || hits[0].Count < 1) ||
			row.pids == 2 && len(hits) != 0 {
			t.Errorf("%d: hits %+v", row.pids, hits)
		}
		if err := leaf.Remove(); err != nil {
			t.Fatal(err)
		}
	}
}

// R053: what parks is under its session's ceilings only, and so is what it has born by then: nothing is let go with that. Nor
// is what stays more than the ceiling allows: here it is two threads and more, which no execve has ended.
func TestPlaceOneAlone(t *testing.T) {
	tree := open(t)
	s := create(t, tree, "s1", limits)
	stand(t, s)
	for _, own := range []sandbox.ExecLimits{{MemoryBytes: 16 << 20}, {CPUMillis: 100}, {PIDs: 2}} {
		leaf, err := s.LeafWith(own)
		if err != nil {
			t.Fatal(err)
		}
		hijacked, _ := in(t, s, leaf, "wait")
		child, _ := in(t, s, leaf, "wait")
		if err := leaf.Place(hijacked.Process.Pid); err == nil {
			t.Errorf("%+v: placed with another process beside it", own)
		}
		child.Process.Kill()
		child.Wait()
		if err := leaf.Place(hijacked.Process.Pid); err != nil {
			t.Errorf("%+v: the control: %v", own, err)
		}
		if err := leaf.Kept(); (err != nil) != (own.PIDs == 2) {
			t.Errorf("%+v: kept: %v", own, err)
		}
		hijacked.Process.Kill()
		hijacked.Wait()
		if err := leaf.Kept(); err != nil {
			t.Errorf("%+v: when it has gone: %v", own, err)
		}
		if err := leaf.Remove(); err != nil {
			t.Fatal(err)
		}
	}
}

// R053: the number of a parked process that has been killed meanwhile is somebody else's by now, for all we know: who is not in the
// leaf is not moved to its groups.
func TestPlaceNobodyElse(t *testing.T) {
	tree := open(t)
	s := create(t, tree, "s1", limits)
	stand(t, s)
	leaf, err := s.LeafWith(sandbox.ExecLimits{MemoryBytes: 16 << 20, CPUMillis: 100, PIDs: 2})
	if err != nil {
		t.Fatal(err)
	}
	parked, _ := in(t, s, leaf, "wait")
	other, _ := start(t, "wait", nil)
	groups := func() string {
		data, err := os.ReadFile("/proc/" + strconv.Itoa(other.Process.Pid) + "/cgroup")
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	before := groups()
	for _, killed := range []bool{false, true} {
		if killed {
			parked.Process.Kill()
			parked.Wait()
		}
		if err := leaf.Place(other.Process.Pid); err == nil || groups() != before {
			t.Errorf("killed %t: another is placed: %v, %s", killed, err, groups())
		}
		if err := leaf.Place(parked.Process.Pid); (err != nil) != killed {
			t.Errorf("killed %t: placed: %v", killed, err)
		}
	}
	if err := leaf.Remove(); err != nil {
		t.Fatal(err)
	}
}

// R242 T091: groups of executions on v1 go with a session that nobody ended, and what is in them.
func TestSweepLeaves(t *testing.T) {
	tree := open(t)
	s := create(t, tree, "s1", limits)
	stand(t, s)
	leaf, err := s.LeafWith(sandbox.ExecLimits{MemoryBytes: 16 << 20, CPUMillis: 100, PIDs: 8})
	if err != nil {
		t.Fatal(err)
	}
	cmd, _ := in(t, s, leaf, "wait")
	if err := leaf.Place(cmd.Process.Pid); err != nil {
		t.Fatal(err)
	}
	if tree.Layout() != "v2" { // in those groups only
		if err := put(filepath.Dir(tree.Dir()), cmd.Process.Pid); err != nil {
			t.Fatal(err)
		}
	}
	if err := tree.Sweep(); err != nil { // open() sees that nothing is left
		t.Fatal(err)
	}
	cmd.Wait()
	if cmd.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Errorf("%v", cmd.ProcessState)
	}
}

// What one program bounded, the next one measures and removes.
func TestReopenLeafWith(t *testing.T) {
	tree := open(t)
	s := create(t, tree, "s1", limits)
	stand(t, s)
	leaf, err := s.LeafWith(sandbox.ExecLimits{MemoryBytes: 16 << 20, PIDs: 8})
	if err != nil {
		t.Fatal(err)
	}
	before, err := s.Events()
	if err != nil {
		t.Fatal(err)
	}
	cmd, told := in(t, s, leaf, "eat")
	if err := leaf.Place(cmd.Process.Pid); err != nil {
		t.Fatal(err)
	}
	state, err := s.Save()
	if err != nil {
		t.Fatal(err)
	}
	if s, err = tree.Reopen(state); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Files(); err != nil {
		t.Fatal(err)
	}
	if leaf, err = s.Reopen(leaf.Name()); err != nil {
		t.Fatal(err)
	}
	told.Close()
	cmd.Wait()
	hits, err := leaf.Hits(before)
	if err != nil {
		t.Fatal(err)
	}
	if len(hits) != 1 || hits[0].Limit != 16<<20 || hits[0].Scope != "execution" {
		t.Errorf("hits %+v", hits)
	}
	if err := leaf.Remove(); err != nil {
		t.Fatal(err)
	}
	if e, err := s.Events(); err != nil || e.OOMKills <= before.OOMKills {
		t.Errorf("the session: %+v, %v", e, err)
	}
}

// A ceiling of processor time is given in short turns, and in longer ones where the kernel would find its part too small.
func TestTurns(t *testing.T) {
	tree := open(t)
	for millis, want := range map[int64]string{10: "1000 of 100000", 49: "4900 of 100000", 50: "1000 of 20000", 4000: "80000 of 20000"} {
		l := limits
		l.CPUMillis = millis
		s := create(t, tree, "t"+strconv.FormatInt(millis, 10), l)
		stand(t, s)
		files, err := s.Files()
		if err != nil {
			t.Errorf("%d: %v", millis, err)
		}
		values := map[string]string{}
		for _, f := range files {
			values[f.File] = f.Value
		}
		got := values["cpu.cfs_quota_us"] + " of " + values["cpu.cfs_period_us"]
		if tree.Layout() == "v2" {
			got = strings.Replace(values["cpu.max"], " ", " of ", 1)
		}
		if got != want {
			t.Errorf("%d: %s, want %s", millis, got, want)
		}
	}
}
