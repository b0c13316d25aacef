package cgroup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/containerd/cgroups/v3/cgroup1"
	"github.com/containerd/cgroups/v3/cgroup2"
	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/stockade-dev/stockade/sandbox"
)

// Session is the groups of one session.
type Session struct {
	tree    *Tree
	unified group
	v1      []group
	limits  sandbox.Limits // since Bound: as asked, memory in whole pages
	legacy  cgroup1.Cgroup // since Bound: S in the v1 hierarchies; nil without any
	owner   *owner         // of cgroup.procs, once Chown has been called

	mu     sync.Mutex
	leaves int     // made so far
	stock  []*Leaf // ready, and never used
}

type owner struct{ uid, gid int }

// cpuPeriod is the kernel's default, in microseconds; a thousandth of it is what one
// thousandth of a CPU may use in each.
const cpuPeriod = 100_000

// Name is what the session's groups are called.
func (s *Session) Name() string { return path.Base(s.unified.rel) }

// Bound writes the ceilings. It is called once.
func (s *Session) Bound(limits sandbox.Limits) error {
	limits.MemoryBytes -= limits.MemoryBytes % int64(os.Getpagesize()) // as the kernel would
	s.limits = limits
	quota := s.limits.CPUMillis * (cpuPeriod / 1000)
	period := uint64(cpuPeriod)
	pids := s.limits.PIDs + sandbox.InitPIDs
	swap, err := s.swapFile()
	if err != nil {
		return err
	}

	if len(s.v1) > 0 {
		r := &specs.LinuxResources{
			Memory: &specs.LinuxMemory{Limit: &s.limits.MemoryBytes},
			CPU:    &specs.LinuxCPU{Quota: &quota, Period: &period},
			Pids:   &specs.LinuxPids{Limit: &pids},
		}
		if strings.HasSuffix(swap, memsw) {
			r.Memory.Swap = &s.limits.MemoryBytes // memory and swap together: no swap
		}
		if s.legacy, err = cgroup1.New(s.path1, r, cgroup1.WithHierarchy(s.subsystems)); err != nil {
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
	return nil
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
	return nil
}

// Limits reads the ceilings back from the kernel, and swap beyond memory. What is not as it
// was asked for is an error. Files is no group's matter and stays 0.
func (s *Session) Limits() (limits sandbox.Limits, swap int64, err error) {
	want := s.limits
	want.Files = 0
	for _, c := range controllers {
		read := readers[s.tree.host.Version[c]][c]
		if err := read(s, &limits); err != nil {
			return limits, 0, fmt.Errorf("read back %s of cgroup %s: %w", c, s.unified.rel, err)
		}
	}
	if limits != want {
		return limits, 0, fmt.Errorf("cgroup %s: the kernel holds %+v, not %+v", s.unified.rel, limits, want)
	}
	file, err := s.swapFile()
	if err != nil || file == "" {
		return limits, 0, err
	}
	if swap, err = number(file); err != nil {
		return limits, 0, err
	}
	if strings.HasSuffix(file, memsw) {
		swap -= limits.MemoryBytes
	}
	if swap != 0 {
		return limits, swap, fmt.Errorf("cgroup %s: %d bytes of swap beyond memory", s.unified.rel, swap)
	}
	return limits, 0, nil
}

// readers know the file of each ceiling by version and controller.
var readers = map[string]map[string]func(*Session, *sandbox.Limits) error{
	"v1": {
		"memory": func(s *Session, l *sandbox.Limits) (err error) {
			l.MemoryBytes, err = number(s.Paths()["memory"] + "/memory.limit_in_bytes")
			return err
		},
		"cpu": func(s *Session, l *sandbox.Limits) error {
			quota, err := number(s.Paths()["cpu"] + "/cpu.cfs_quota_us")
			if err != nil {
				return err
			}
			period, err := number(s.Paths()["cpu"] + "/cpu.cfs_period_us")
			if err != nil {
				return err
			}
			l.CPUMillis = quota * 1000 / max(period, 1)
			return nil
		},
		"pids": func(s *Session, l *sandbox.Limits) error { return readPIDs(s.Paths()["pids"], l) },
	},
	"v2": {
		"memory": func(s *Session, l *sandbox.Limits) (err error) {
			l.MemoryBytes, err = number(s.unified.file("memory.max"))
			return err
		},
		"cpu": func(s *Session, l *sandbox.Limits) error {
			data, err := os.ReadFile(s.unified.file("cpu.max"))
			if err != nil {
				return err
			}
			var quota, period int64
			if _, err := fmt.Sscan(string(data), &quota, &period); err != nil {
				return fmt.Errorf("cpu.max: %w", err)
			}
			l.CPUMillis = quota * 1000 / max(period, 1)
			return nil
		},
		"pids": func(s *Session, l *sandbox.Limits) error { return readPIDs(s.unified.dir(), l) },
	},
}

func readPIDs(dir string, l *sandbox.Limits) error {
	n, err := number(dir + "/pids.max")
	l.PIDs = n - sandbox.InitPIDs
	return err
}

func number(file string) (int64, error) {
	data, err := readFile(file)
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(strings.TrimSpace(data), 10, 64)
}

// Stats is what the session has used so far, init included.
func (s *Session) Stats() (sandbox.Usage, error) {
	u, err := s.unified.usage()
	if err != nil {
		return u, err
	}
	if s.legacy != nil && s.tree.host.Version["memory"] == "v1" {
		m, err := s.legacy.Stat()
		if err != nil {
			return u, fmt.Errorf("cgroup %s: %w", s.unified.rel, err)
		}
		u.PeakMemory = int64(m.Memory.Usage.Max)
		u.OOMKills = int64(m.MemoryOomControl.OomKill)
	}
	return u, nil
}

// OOMKills is how many processes of the session its memory ceiling has killed, where the
// controller is on v1. On v2 the leaf knows it more exactly, and this is 0.
func (s *Session) OOMKills() int64 {
	for _, g := range s.v1 {
		if g.controller == "memory" {
			n, _ := keyed(g.file("memory.oom_control"), "oom_kill")
			return n
		}
	}
	return 0
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

// Wait returns when the session has no process any more, or with ctx.
func (s *Session) Wait(ctx context.Context) error { return s.tree.watch.empty(ctx, s.unified) }

// Remove takes the session's groups away in every hierarchy. A dying process holds a group
// for a moment: it tries again, within bounds. Removing twice is no error.
func (s *Session) Remove() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	errs := []error{s.clearStock()}
	// From below, by the names that are known: it works without a free descriptor, too.
	for _, g := range append([]group{s.unified.child("x"), s.unified.child("init"), s.unified}, s.v1...) {
		errs = append(errs, remove(g.dir()))
	}
	return errors.Join(errs...)
}

// usage reads what the unified hierarchy knows: CPU always, memory where it has the controller.
func (g group) usage() (sandbox.Usage, error) {
	var u sandbox.Usage
	micros, err := keyed(g.file("cpu.stat"), "usage_usec")
	if err != nil {
		return u, fmt.Errorf("cgroup %s: %w", g.dir(), err)
	}
	u.CPU = time.Duration(micros) * time.Microsecond
	u.OOMKills, err = keyed(g.file("memory.events"), "oom_kill")
	if gone(err) { // the controller is on v1
		return u, nil
	}
	if err != nil {
		return u, fmt.Errorf("cgroup %s: %w", g.dir(), err)
	}
	if u.PeakMemory, err = number(g.file("memory.peak")); err != nil {
		return u, fmt.Errorf("cgroup %s: %w", g.dir(), err)
	}
	return u, nil
}
