package cgroup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/containerd/cgroups/v3/cgroup1"
	"github.com/containerd/cgroups/v3/cgroup2"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/sandbox"
)

// Session is the groups of one session.
type Session struct {
	tree    *Tree
	unified group
	v1      []group
	limits  sandbox.Limits // since Bound: as asked, memory in whole pages
	owner   *owner         // of cgroup.procs, once Chown has been called

	disks     []string // numbers of those that are bounded
	throttled bool     // since BoundIO
	program   uint32   // id of the one that Devices has attached; 0 after Reopen

	mu          sync.Mutex
	leaves      int            // made so far
	stock       []*Leaf        // ready, and never used
	bounded     map[*Leaf]bool // those that have groups on v1
	legacyKills Events         // what v1 has counted in such groups that are gone
}

type owner struct{ uid, gid int }

// Name is what the session's groups are called.
func (s *Session) Name() string { return path.Base(s.unified.rel) }

// Bound writes the ceilings. It is called once.
func (s *Session) Bound(limits sandbox.Limits) error {
	if limits.IOBytesPerSecond != 0 {
		if err := s.tree.host.IO(); err != nil {
			return sandbox.Errorf(sandbox.CodeUnsupported, "io ceiling: %v", err)
		}
	}
	limits.MemoryBytes = pages(limits.MemoryBytes)
	s.limits = limits
	quota, micros := turns(limits)
	period := uint64(micros)
	pids := limits.PIDs + sandbox.InitPIDs
	swap, err := s.swapFile()
	if err != nil {
		return err
	}

	if s.legacy() {
		r := &specs.LinuxResources{
			Memory: &specs.LinuxMemory{Limit: &s.limits.MemoryBytes},
			CPU:    &specs.LinuxCPU{Quota: &quota, Period: &period},
			Pids:   &specs.LinuxPids{Limit: &pids},
		}
		if strings.HasSuffix(swap, memsw) {
			r.Memory.Swap = &s.limits.MemoryBytes // memory and swap together: no swap
		}
		if limits.CPUWeight != 0 {
			r.CPU.Shares = new(uint64(shares(limits.CPUWeight)))
		}
		if _, err := cgroup1.New(s.path1, r, cgroup1.WithHierarchy(s.subsystems)); err != nil {
			return fmt.Errorf("cgroup %s: %w", s.unified.rel, err)
		}
	}
	if len(s.tree.host.onV2) > 0 {
		r := new(cgroup2.Resources)
		for _, c := range s.tree.host.onV2 {
			switch c {
			case "memory":
				r.Memory = &cgroup2.Memory{Max: &s.limits.MemoryBytes}
				if swap != "" {
					r.Memory.Swap = new(int64)
				}
			case "cpu":
				r.CPU = &cgroup2.CPU{Max: cgroup2.NewCPUMax(&quota, &period)}
				if limits.CPUWeight != 0 {
					r.CPU.Weight = new(uint64(limits.CPUWeight))
				}
			case "pids":
				r.Pids = &cgroup2.Pids{Max: pids}
			}
		}
		// Load and Update, not NewManager: that one writes into the groups above ours.
		unified, err := cgroup2.Load(s.unified.rel, cgroup2.WithMountpoint(s.unified.mount))
		if err != nil {
			return fmt.Errorf("cgroup %s: %w", s.unified.rel, err)
		}
		if err := unified.Update(r); err != nil {
			return fmt.Errorf("cgroup %s: %w", s.unified.rel, err)
		}
	}
	if s.tree.host.Version["pids"] == "v1" { // on v2, JoinInit can
		return s.boundForks()
	}
	return nil
}

// legacy reports whether a ceiling of the session's stands on v1.
func (s *Session) legacy() bool {
	return slices.ContainsFunc(s.v1, func(g group) bool { return slices.Contains(controllers, g.controller) })
}

// boundForks bounds all executions together. It is this ceiling that they meet, and that counts it: the session's
// own leaves room for init, whose runtime ends the process when it gets no thread.
func (s *Session) boundForks() error {
	return s.group("pids").child("x").raise("pids", sandbox.Limits{PIDs: s.forks()}, s.tree.host)
}

const memsw = "/memory.memsw.limit_in_bytes"

// swapFile is the file that bounds swap, or empty where the kernel accounts none; that is
// as good as a bound as long as there is no swap.
func (s *Session) swapFile() (string, error) {
	file := s.unified.file("memory.swap.max")
	for _, g := range s.v1 {
		if g.controller == "memory" {
			file = g.dir() + memsw
		}
	}
	if exists(file) {
		return file, nil
	}
	swaps, err := os.ReadFile("/proc/swaps")
	if err != nil {
		return "", err
	}
	if strings.Count(string(swaps), "\n") > 1 { // more than the heading
		return "", errors.New("cgroup: swap is in use and this kernel does not account it: boot with swapaccount=1 or swapoff")
	}
	return "", nil
}

// path1 is where containerd/cgroups finds a controller's group, below its mount.
func (s *Session) path1(name cgroup1.Name) (string, error) {
	for _, g := range s.v1 {
		if g.controller == string(name) {
			return g.rel, nil
		}
	}
	return "", cgroup1.ErrControllerNotActive
}

// subsystems are the v1 controllers that we found by asking the file systems. The
// library's own search takes any directory with the right name.
func (s *Session) subsystems() ([]cgroup1.Subsystem, error) {
	var list []cgroup1.Subsystem
	for _, g := range s.v1 {
		root := strings.TrimSuffix(g.mount, "/"+g.controller)
		switch g.controller {
		case "memory":
			// The modules' files come and go with kernel options; nothing here reads them.
			list = append(list, cgroup1.NewMemory(root, cgroup1.IgnoreModules("memsw", "kmem", "kmem.tcp")))
		case "cpu":
			list = append(list, cgroup1.NewCpu(root))
		case "pids":
			list = append(list, cgroup1.NewPids(root))
		}
	}
	return list, nil
}

// Paths are the directories of S: per v1 controller, and "" for the unified hierarchy.
func (s *Session) Paths() map[string]string {
	paths := map[string]string{"": s.unified.dir()}
	for _, g := range s.v1 {
		paths[g.controller] = g.dir()
	}
	return paths
}

// Chown gives the right to move processes within the session to init's host ids:
// CLONE_INTO_CGROUP from a user namespace needs it for the source, the leaf and their
// common ancestor. Nothing else in the groups changes hands. It comes before the first Leaf.
func (s *Session) Chown(uid, gid int) error {
	for _, g := range []group{s.unified, s.unified.child("init"), s.unified.child("x")} {
		if err := os.Lchown(g.file("cgroup.procs"), uid, gid); err != nil {
			return fmt.Errorf("cgroup: %w", err)
		}
	}
	s.owner = &owner{uid, gid}
	return nil
}

// JoinRoot moves a process into S in every hierarchy: under every ceiling, and where a
// cgroup namespace made now has its root. The unified hierarchy first, because it is the
// one that can kill.
func (s *Session) JoinRoot(pid int) error {
	if err := s.unified.write("cgroup.procs", strconv.Itoa(pid)); err != nil {
		return fmt.Errorf("move process %d to cgroup %s: %w", pid, s.unified.dir(), err)
	}
	return s.JoinV1(pid)
}

// JoinV1 moves a process into S of the v1 hierarchies only: one that was cloned into the
// unified group that it belongs to.
func (s *Session) JoinV1(pid int) error {
	for _, g := range s.v1 {
		if err := g.write("cgroup.procs", strconv.Itoa(pid)); err != nil {
			return fmt.Errorf("move process %d to cgroup %s: %w", pid, g.dir(), err)
		}
	}
	return nil
}

// JoinInit moves a process on from S to S/init. Once it has left, S hands its controllers
// down on v2 (a group that holds processes cannot), so that an execution's leaf has group
// OOM and figures of its own.
func (s *Session) JoinInit(pid int) error {
	in := s.unified.child("init")
	if err := in.write("cgroup.procs", strconv.Itoa(pid)); err != nil {
		return fmt.Errorf("move process %d to cgroup %s: %w", pid, in.dir(), err)
	}
	for _, g := range []group{s.unified, s.unified.child("x")} {
		if err := enable(g.dir(), s.tree.host.onV2); err != nil {
			return err
		}
	}
	if s.tree.host.Version["pids"] == "v2" {
		return s.boundForks()
	}
	return nil
}

// JoinSpawner moves the thread that executions are cloned from, and no other of init's, to the pids group of all
// executions, in which they then are born. It is for v1, where a process cannot be cloned into a group but threads of
// one process can be in several; on v2 it does nothing. It comes when init has made its threads: a thread is
// born in the group of the one that makes it.
func (s *Session) JoinSpawner(tid int) error {
	if s.tree.host.Version["pids"] != "v1" {
		return nil
	}
	g := s.group("pids").child("x")
	if err := g.write("tasks", strconv.Itoa(tid)); err != nil {
		return fmt.Errorf("move thread %d to cgroup %s: %w", tid, g.dir(), err)
	}
	return nil
}

// ReplaceSpawner is for when another thread of init, by its name, has taken the main thread's place: it is moved
// where that was, and the main thread back to the rest of init. One that it has replaced in its turn, and that is
// about to end, may have the name as well.
func (s *Session) ReplaceSpawner(pid int, name string) error {
	if s.tree.host.Version["pids"] != "v1" {
		return nil
	}
	tasks := fmt.Sprintf("/proc/%d/task", pid)
	entries, err := os.ReadDir(tasks)
	if err != nil {
		return fmt.Errorf("threads of init: %w", err)
	}
	found := false
	for _, e := range entries {
		comm, err := os.ReadFile(tasks + "/" + e.Name() + "/comm")
		tid, nerr := strconv.Atoi(e.Name())
		if err != nil || nerr != nil || tid == pid || strings.TrimSpace(string(comm)) != name {
			continue // other threads end
		}
		if err := s.JoinSpawner(tid); err != nil && !errors.Is(err, unix.ESRCH) {
			return err
		}
		found = true
	}
	if !found {
		return fmt.Errorf("process %d has no thread called %s", pid, name)
	}
	if err := s.group("pids").write("tasks", strconv.Itoa(pid)); err != nil {
		return fmt.Errorf("move thread %d: %w", pid, err)
	}
	return nil
}

// group is S in the hierarchy of a controller.
func (s *Session) group(controller string) group {
	for _, g := range s.v1 {
		if g.controller == controller {
			return g
		}
	}
	return s.unified
}

// Stats is what the session has used so far, init included.
func (s *Session) Stats() (sandbox.Usage, error) {
	cpu, err := s.unified.cpuTime()
	if err != nil {
		return sandbox.Usage{}, err
	}
	e, err := s.memoryEvents()
	return sandbox.Usage{CPU: cpu, PeakMemory: e.MemoryPeak, OOMKills: e.OOMKills}, err
}

// OOMKills is how many processes of the session were killed for want of memory.
func (s *Session) OOMKills() int64 {
	e, _ := s.memoryEvents()
	return e.OOMKills
}

// KillExecutions kills every process of every execution, and leaves init alone. What is in
// stock has been killed with the rest, and is of no use any more: see [Leaf].
func (s *Session) KillExecutions() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return errors.Join(s.kill(s.unified.child("x")), s.clearStock())
}

// Kill kills every process of the session. After it the session can only be removed.
func (s *Session) Kill() error { return s.kill(s.unified) }

func (s *Session) kill(g group) error {
	if err := g.write("cgroup.kill", "1"); err != nil && !gone(err) {
		return fmt.Errorf("kill cgroup %s: %w", g.dir(), err)
	}
	return nil
}

// Wait returns nil when the session has no process any more, and else with ctx.
func (s *Session) Wait(ctx context.Context) error { return s.tree.watch.empty(ctx, s.unified) }

// Remove takes the session's groups away in every hierarchy. A dying process holds a group
// for a moment: it tries again, within bounds. Removing twice is no error.
func (s *Session) Remove() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	errs := []error{s.clearStock()}
	// From below, by the names that are known: it works without a free descriptor, too.
	for _, g := range slices.Backward(s.all()) {
		errs = append(errs, remove(g.dir()))
	}
	return errors.Join(errs...)
}

func number(file string) (int64, error) {
	data, err := readFile(file)
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(strings.TrimSpace(data), 10, 64)
}
