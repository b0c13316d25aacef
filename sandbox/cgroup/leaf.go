package cgroup

import (
	"context"
	"fmt"
	"os"

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
}

// Leaf makes the group of an execution. The caller removes it.
func (s *Session) Leaf(execID string) (*Leaf, error) {
	if !plainName(execID) {
		return nil, fmt.Errorf("cgroup leaf %q: not a plain name", execID)
	}
	l := &Leaf{s, s.unified.child("x").child(execID)}
	if err := l.group.mkdir(); err != nil {
		return nil, fmt.Errorf("cgroup leaf %s: %w", execID, err)
	}
	var undo cleanup.Stack
	defer undo.Run()
	undo.Add(func() { os.Remove(l.group.dir()) })
	if s.owner != nil {
		if err := os.Lchown(l.group.file("cgroup.procs"), s.owner.uid, s.owner.gid); err != nil {
			return nil, fmt.Errorf("cgroup leaf %s: %w", execID, err)
		}
	}
	// On v2 only: half an execution is of no use to anybody.
	if err := l.group.write("memory.oom.group", "1"); err != nil && !gone(err) {
		return nil, fmt.Errorf("cgroup leaf %s: %w", execID, err)
	}
	undo.Release()
	return l, nil
}

// FD opens the leaf for CLONE_INTO_CGROUP. It is a detached clone of the directory, mounted
// nowhere: its ".." is itself, so that whoever holds it cannot walk to a sibling. The caller
// closes it.
func (l *Leaf) FD() (*os.File, error) {
	fd, err := unix.OpenTree(unix.AT_FDCWD, l.group.dir(), unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_SYMLINK_NOFOLLOW)
	if err != nil {
		return nil, fmt.Errorf("open_tree %s: %w", l.group.dir(), err)
	}
	return os.NewFile(uintptr(fd), l.group.dir()), nil
}

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
func (l *Leaf) Remove() error { return remove(l.group.dir()) }
