package cgroup

import (
	"context"
	"errors"
	"fmt"
	"os"
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
	fd      *os.File // nil after Reopen
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
	return &Leaf{s, g, os.NewFile(uintptr(fd), g.dir())}, nil
}

// clearStock removes the leaves that are ready. The caller holds mu.
func (s *Session) clearStock() error {
	var errs []error
	for _, l := range s.stock {
		errs = append(errs, l.Remove())
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

// Wait returns when the leaf has no process any more, or with ctx.
func (l *Leaf) Wait(ctx context.Context) error { return l.session.tree.watch.empty(ctx, l.group) }

// Empty reports whether the leaf has no process now.
func (l *Leaf) Empty() (bool, error) { return l.group.empty() }

// Usage is what the whole tree of the execution has used so far. Memory figures are there
// on v2 only.
func (l *Leaf) Usage() (sandbox.Usage, error) { return l.group.usage() }

// Remove takes the leaf away; see [Session.Remove].
func (l *Leaf) Remove() error {
	l.fd.Close() // of a nil *os.File: an error, and nothing else
	return remove(l.group.dir())
}

// Clear takes the leaf away with whatever is in it, and with what comes into it meanwhile: a
// process that is being cloned into it is born before the group goes, and killed, or not at all.
func (l *Leaf) Clear(ctx context.Context) error {
	l.fd.Close() // as in Remove
	for pause := 100 * time.Microsecond; ; pause = min(2*pause, 10*time.Millisecond) {
		err := rmdirs(l.group.dir())
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
