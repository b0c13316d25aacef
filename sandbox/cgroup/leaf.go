package cgroup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/internal/cleanup"
	"github.com/stockade-dev/stockade/sandbox"
)

// Leaf is the group of one execution. It is used once: a kernel that has written
// cgroup.kill to a group may kill every later child at its birth there (6.18 compares the
// kill count of the group that it is cloned from with that of the group it is cloned into).
type Leaf struct {
	session *Session
	group   group
	groups  map[string]group   // by controller: where it counts, and bounds, this execution alone; of v1, those that were made for it
	limits  sandbox.ExecLimits // since LeafWith
	fd      *os.File           // nil after Reopen
}

// stocked is how many leaves a session keeps ready: one for the next execution, and one
// more for its neighbour.
const stocked = 2

// Leaf returns the group of an execution, from the stock or made now. The caller removes it.
func (s *Session) Leaf() (*Leaf, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if last := len(s.stock) - 1; last >= 0 {
		l := s.stock[last]
		s.stock = s.stock[:last]
		return l, nil
	}
	return s.newLeaf()
}

// Restock makes leaves ahead, so that an execution does not wait for its own.
func (s *Session) Restock() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.stock) < stocked {
		l, err := s.newLeaf()
		if err != nil {
			return // an execution that needs one will say what is wrong
		}
		s.stock = append(s.stock, l)
	}
}

// newLeaf makes a leaf, named by a number of the session. The caller holds mu.
func (s *Session) newLeaf() (*Leaf, error) {
	s.leaves++
	g := s.unified.child("x").child(strconv.Itoa(s.leaves))
	if err := g.mkdir(); err != nil {
		return nil, fmt.Errorf("cgroup leaf: %w", err)
	}
	var undo cleanup.Stack
	defer undo.Run()
	undo.Add(func() { os.Remove(g.dir()) })
	if s.owner != nil {
		if err := os.Lchown(g.file("cgroup.procs"), s.owner.uid, s.owner.gid); err != nil {
			return nil, fmt.Errorf("cgroup leaf: %w", err)
		}
	}
	// On v2 only: half an execution is of no use to anybody.
	if err := g.write("memory.oom.group", "1"); err != nil && !gone(err) {
		return nil, fmt.Errorf("cgroup leaf: %w", err)
	}
	fd, err := unix.OpenTree(unix.AT_FDCWD, g.dir(), unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_SYMLINK_NOFOLLOW)
	if err != nil {
		return nil, fmt.Errorf("open_tree %s: %w", g.dir(), err)
	}
	undo.Release()
	return &Leaf{session: s, group: g, groups: s.counting(g), fd: os.NewFile(uintptr(fd), g.dir())}, nil
}

// counting are the groups of a leaf that come with it: where a controller is on v2.
func (s *Session) counting(leaf group) map[string]group {
	groups := make(map[string]group)
	for _, c := range s.tree.host.onV2 {
		groups[c] = leaf
	}
	return groups
}

// LeafWith returns the group of an execution that has ceilings of its own, below its session's.
// Its command is cloned parked, handed to [Leaf.Place], and only then released: before, it is
// under the session's ceilings only. That is so on v2 too, where nothing is moved: what parks has threads, of which
// the ceiling of pids may leave no room, and the command has one.
//
// Every ceiling is read back. Files and CPUTime are no group's matter: see [Leaf.Clock].
func (s *Session) LeafWith(limits sandbox.ExecLimits) (*Leaf, error) {
	limits.MemoryBytes = pages(limits.MemoryBytes)
	if err := s.tighter(limits); err != nil {
		return nil, err
	}
	l, err := s.Leaf()
	if err != nil {
		return nil, err
	}
	var undo cleanup.Stack
	defer undo.Run()
	undo.Add(func() { l.Remove() })
	l.limits = limits
	ceilings := l.ceilings()
	for _, c := range controllers {
		if len(settings[s.tree.host.Version[c]][c](ceilings)) == 0 {
			continue
		}
		if s.tree.host.Version[c] == "v1" {
			if err := l.make(c); err != nil {
				return nil, err
			}
		}
		if c == "pids" {
			continue // Place
		}
		if err := l.bound(c); err != nil {
			return nil, err
		}
	}
	undo.Release()
	return l, nil
}

// tighter refuses what is no ceiling below the session's: v2 would accept a higher one, and say so
// when it is read back.
func (s *Session) tighter(l sandbox.ExecLimits) error {
	for _, c := range []struct {
		name         string
		own, session int64
	}{
		{"memory", l.MemoryBytes, s.limits.MemoryBytes},
		{"cpu", l.CPUMillis, s.limits.CPUMillis},
		{"pids", l.PIDs, s.limits.PIDs},
	} {
		if c.own < 0 || c.own > c.session {
			return fmt.Errorf("%s ceiling of an execution: %d is not within the session's %d", c.name, c.own, c.session)
		}
	}
	return nil
}

// ceilings are what groups hold of the execution's limits.
func (l *Leaf) ceilings() sandbox.Limits {
	return sandbox.Limits{MemoryBytes: l.limits.MemoryBytes, CPUMillis: l.limits.CPUMillis, PIDs: l.limits.PIDs}
}

// make makes a group for a controller that is on v1, below the session's.
func (l *Leaf) make(controller string) error {
	s := l.session
	above := s.group(controller)
	if controller == "memory" {
		// Before 5.11 a group could be exempt from the ceilings above it.
		nested, err := number(above.file("memory.use_hierarchy"))
		switch {
		case errors.Is(err, os.ErrNotExist):
		case err != nil:
			return fmt.Errorf("cgroup of an execution: %w", err)
		case nested == 0:
			return sandbox.Errorf(sandbox.CodeUnsupported, "memory ceiling of an execution: cgroup %s is not hierarchical", above.rel)
		}
	}
	g := s.ownGroup(controller, l.Name())
	if err := g.mkdir(); err != nil {
		return fmt.Errorf("cgroup of an execution: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	l.groups[controller] = g
	s.bounded[l] = true
	return nil
}

// ownGroup is where the v1 group of an execution stands: what is bounded with all others there,
// below that.
func (s *Session) ownGroup(controller, leaf string) group {
	g := s.group(controller)
	if controller == "pids" {
		g = g.child("x")
	}
	return g.child(leaf)
}

// bound raises the ceilings of one controller, and reads them back.
func (l *Leaf) bound(controller string) error {
	g, host := l.groups[controller], l.session.tree.host
	if err := g.raise(controller, l.ceilings(), host); err != nil {
		return sandbox.Errorf(sandbox.CodeUnsupported, "%s ceiling of an execution: %v", controller, err)
	}
	_, err := g.files("", controller, l.ceilings(), host)
	return err
}

// Place puts a parked command under the ceilings of its execution: it is moved to the groups that
// were made on v1, and the ceiling of pids is raised, which holds for what is born from then on. A
// ceiling below what there is, the threads of what parks, is no error to the kernel.
//
// Pid was read before, and another execution of the same uid may have killed it since: whoever has the number by now would be
// moved. So it has to be the one process in the leaf, before and after; that it lived in between, and kept its number, a pidfd tells.
func (l *Leaf) Place(pid int) error {
	process, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return fmt.Errorf("parked process %d: %w", pid, err)
	}
	defer unix.Close(process)
	if err := l.alone(pid); err != nil {
		return err
	}
	for c, g := range l.groups {
		if g.controller == "" {
			continue
		}
		if err := g.write("cgroup.procs", strconv.Itoa(pid)); err != nil {
			return fmt.Errorf("move process %d to cgroup %s: %w", pid, g.dir(), err)
		}
		if in, err := members(g.dir()); err != nil || !slices.Contains(in, pid) {
			return fmt.Errorf("process %d is not in the %s cgroup %s: %v", pid, c, g.dir(), err)
		}
	}
	// What parks is not believed either: another execution may write to its memory at its start, and have it fork. What was
	// born before the move is under the session's ceilings only.
	if err := l.alone(pid); err != nil {
		return err
	}
	if err := unix.PidfdSendSignal(process, 0, nil, 0); err != nil {
		return fmt.Errorf("parked process %d: %w", pid, err)
	}
	if l.limits.PIDs == 0 {
		return nil
	}
	return l.bound("pids")
}

// alone makes sure that a process is in the leaf, and no other.
func (l *Leaf) alone(pid int) error {
	in, err := members(l.group.dir())
	if err != nil {
		return err
	}
	if !slices.Equal(in, []int{pid}) {
		return fmt.Errorf("cgroup %s: holds %v, and not only the parked process %d", l.group.dir(), in, pid)
	}
	return nil
}

// Kept says whether what was released is within the ceiling of pids, which what parks need not be: execve ends its threads. One that
// keeps them has not become the command.
func (l *Leaf) Kept() error {
	if l.limits.PIDs == 0 {
		return nil
	}
	now, err := number(l.groups["pids"].file("pids.current"))
	if err != nil {
		return missing(err)
	}
	if now > l.limits.PIDs {
		return fmt.Errorf("cgroup %s: has %d processes, more than %d", l.group.dir(), now, l.limits.PIDs)
	}
	return nil
}

// Files reads the ceilings of the execution back, and compares them with what was asked for.
func (l *Leaf) Files() ([]sandbox.CgroupFile, error) {
	var files []sandbox.CgroupFile
	for _, c := range controllers {
		g, ok := l.groups[c]
		if !ok {
			continue
		}
		some, err := g.files("", c, l.ceilings(), l.session.tree.host)
		if err != nil {
			return nil, err
		}
		files = append(files, some...)
	}
	return files, nil
}

// removeOwn takes the groups away that were made for the execution on v1, when nothing is in
// them any more. What they have counted stays with the session.
func (l *Leaf) removeOwn() error {
	s := l.session
	s.mu.Lock()
	if s.bounded[l] {
		l.bequeath()
		delete(s.bounded, l)
	}
	s.mu.Unlock()
	var errs []error
	for _, g := range l.groups {
		if g.controller != "" {
			errs = append(errs, remove(g.dir()))
		}
	}
	return errors.Join(errs...)
}

// clearStock removes the leaves that are ready. The caller holds mu.
func (s *Session) clearStock() error {
	var errs []error
	for _, l := range s.stock { // none has groups on v1
		l.fd.Close()
		errs = append(errs, remove(l.group.dir()))
	}
	s.stock = nil
	return errors.Join(errs...)
}

// FD is the leaf for CLONE_INTO_CGROUP: a detached clone of the directory, mounted nowhere.
// Its ".." is itself, so that whoever holds it cannot walk to a sibling. Remove closes it,
// off everybody's path: the last close of such a clone waits for all processors (an
// expedited RCU grace period, 150 µs).
func (l *Leaf) FD() *os.File { return l.fd }

// Kill kills every process in the leaf, those that fork meanwhile included.
func (l *Leaf) Kill() error { return l.session.kill(l.group) }

// Wait returns nil when the leaf has no process any more, and else with ctx.
func (l *Leaf) Wait(ctx context.Context) error { return l.session.tree.watch.empty(ctx, l.group) }

// Empty reports whether the leaf has no process now.
func (l *Leaf) Empty() (bool, error) { return l.group.empty() }

// Usage is what the whole tree of the execution has used so far. Memory figures are there
// on v2, and where it has a memory ceiling of its own.
func (l *Leaf) Usage() (sandbox.Usage, error) {
	cpu, err := l.group.cpuTime()
	if err != nil {
		return sandbox.Usage{}, err
	}
	e, err := l.memoryEvents()
	return sandbox.Usage{CPU: cpu, PeakMemory: e.MemoryPeak, OOMKills: e.OOMKills}, err
}

// Remove takes the leaf away; see [Session.Remove].
func (l *Leaf) Remove() error {
	l.fd.Close() // of a nil *os.File: an error, and nothing else
	return errors.Join(remove(l.group.dir()), l.removeOwn())
}

// Clear takes the leaf away with whatever is in it, and with what comes into it meanwhile: a
// process that is being cloned into it is born before the group goes, and killed, or not at all.
func (l *Leaf) Clear(ctx context.Context) error {
	l.fd.Close() // as in Remove
	for pause := 100 * time.Microsecond; ; pause = min(2*pause, 10*time.Millisecond) {
		err := rmdirs(l.group.dir())
		if err == nil {
			return l.removeOwn()
		}
		if !errors.Is(err, unix.EBUSY) {
			return err
		}
		if err := l.Kill(); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(pause):
		}
	}
}
