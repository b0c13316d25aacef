package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	devices "github.com/opencontainers/cgroups/devices/config"
	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/internal/cleanup"
	"github.com/stockade-dev/stockade/sandbox"
)

// Trial is what came of [Hierarchies.Try]: nil is that it worked.
type Trial struct {
	Kill     error  // killing a group by one write (5.14)
	Clone    error  // cloning into one by a descriptor that leads nowhere else (5.7)
	Ceilings error  // ceilings of one execution, below a session's
	Devices  error  // device rules
	How      string // they are held: see [Session.Devices]
}

// Try does in empty groups, which are gone when it returns, what sessions rest on.
func (h Hierarchies) Try() Trial {
	var undo cleanup.Stack
	defer undo.Run()
	s := &Session{tree: &Tree{host: h}, bounded: make(map[*Leaf]bool)}
	for _, x := range append([]hierarchy{h.unified}, h.v1...) {
		g, err := x.scratch(&undo)
		if err != nil {
			return Trial{Kill: err, Clone: err, Ceilings: err, Devices: err}
		}
		if x.controller == "" {
			s.unified = g
		} else {
			s.v1 = append(s.v1, g)
		}
	}
	t := Trial{Ceilings: s.tryCeilings()}
	if t.How, t.Devices = s.tryDevices(); t.Devices != nil {
		t.How = ""
	}
	t.Clone = s.unified.tryClone()
	t.Kill = s.unified.write("cgroup.kill", "1") // last: nothing is born in it any more
	return t
}

// scratch makes a group where sessions' are to stand.
func (h hierarchy) scratch(undo *cleanup.Stack) (group, error) {
	at := group{h, h.existing()}
	for name := range strings.FieldsFuncSeq(strings.TrimPrefix(h.parent, at.rel), func(r rune) bool { return r == '/' }) {
		at = at.child(name)
		made := at.dir()
		if err := at.mkdir(); err != nil && !errors.Is(err, os.ErrExist) { // another instance's, meanwhile
			return group{}, fmt.Errorf("cgroup: %w", err)
		}
		undo.Add(func() { os.Remove(made) }) // fails, rightly, where somebody has built in it
	}
	g := at.child("stockade-try-" + strconv.Itoa(os.Getpid()))
	if err := g.mkdir(); err != nil {
		return group{}, fmt.Errorf("cgroup: %w", err)
	}
	undo.Add(func() { remove(g.dir()) })
	return g, nil
}

func (g group) tryClone() error {
	fd, err := unix.OpenTree(unix.AT_FDCWD, g.dir(), unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return fmt.Errorf("open_tree: %w", err)
	}
	defer unix.Close(fd)
	// A program that does not exist: the child is born in the group, and that is all.
	_, err = syscall.ForkExec("", nil, &syscall.ProcAttr{Sys: &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: fd}})
	if !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("clone3: %w", err)
	}
	return nil
}

// tryCeilings bounds groups below the scratch ones. On v2, where the runner has handed nothing down
// yet, every group has the files.
func (s *Session) tryCeilings() error {
	s.limits = sandbox.Limits{MemoryBytes: 64 << 20, CPUMillis: 1000, PIDs: 64}
	l := &Leaf{session: s, group: s.unified.child("1"), groups: make(map[string]group), limits: sandbox.ExecLimits{MemoryBytes: 32 << 20, CPUMillis: 500, PIDs: 1}}
	for _, c := range controllers {
		if s.tree.host.Version[c] != "v1" {
			continue
		}
		if c == "pids" {
			if err := s.group(c).child("x").mkdir(); err != nil {
				return fmt.Errorf("cgroup: %w", err)
			}
		}
		if err := l.make(c); err != nil {
			return err
		}
		if err := l.bound(c); err != nil {
			return err
		}
	}
	return nil
}

// tryDevices holds scratch groups to the empty list of devices.
func (s *Session) tryDevices() (how string, err error) {
	for _, name := range []string{"init", "x"} {
		if err := s.unified.child(name).mkdir(); err != nil {
			return "", fmt.Errorf("cgroup: %w", err)
		}
	}
	return s.Devices([]*devices.Rule{{Type: devices.WildcardDevice, Major: devices.Wildcard, Minor: devices.Wildcard, Permissions: "rwm"}})
}

// existing is the parent, or what there is above one that the operator named and nobody has
// made yet.
func (h hierarchy) existing() string {
	at := h.parent
	for at != "" && !exists(h.mount+at) {
		at = strings.TrimSuffix(path.Dir(at), "/")
	}
	return at
}

// AccountsSwap reports whether the groups of this host account swap, so that it can be
// bounded.
func (h Hierarchies) AccountsSwap() bool {
	for _, x := range h.v1 {
		if x.controller == "memory" {
			return exists(x.mount + x.existing() + memsw)
		}
	}
	// The root of a v2 hierarchy has no such file; every other group of a kernel that accounts has.
	above := h.unified.existing()
	return above == "" || exists(h.unified.mount+above+"/memory.swap.max")
}

// Peak is the file in which this kernel keeps the most that a group has had at once, of "pids" or "memory"; "" if it keeps
// none. Where no group is there yet to tell by, it is not known.
func (h Hierarchies) Peak(controller string) (file string, known bool) {
	at, bound, peak := h.unified, map[string]string{"pids": "pids.max", "memory": "memory.max"}[controller], controller+".peak"
	for _, x := range h.v1 {
		if x.controller == controller {
			at = x
			if controller == "memory" {
				bound, peak = "memory.limit_in_bytes", "memory.max_usage_in_bytes"
			}
		}
	}
	// The root of a hierarchy has neither, its children have.
	groups, err := filepath.Glob(at.mount + at.existing() + "/*/" + bound)
	if err != nil {
		return "", false
	}
	for _, dir := range append(groups, at.mount+at.existing()+"/"+bound) {
		dir = path.Dir(dir)
		switch {
		case exists(dir + "/" + peak):
			return peak, true
		case exists(dir + "/" + bound):
			known = true
		}
	}
	return "", known
}
