package cgroup

import (
	"fmt"
	"path"

	"github.com/containerd/cgroups/v3/cgroup1"

	"github.com/stockade-dev/stockade/sandbox"
)

// SessionState is what a Session knows that the kernel does not, as plain data: another
// program that stands where this one stood opens the same groups by it.
type SessionState struct {
	Name     string
	Limits   sandbox.Limits
	Owned    bool // Chown has been called, with
	UID, GID int
	Leaves   int // made so far
}

// Save returns the state of a bounded session. Leaves that are ready are given back first;
// the session remains usable.
func (s *Session) Save() (SessionState, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.clearStock(); err != nil {
		return SessionState{}, err
	}
	st := SessionState{Name: s.Name(), Limits: s.limits, Leaves: s.leaves}
	if s.owner != nil {
		st.Owned, st.UID, st.GID = true, s.owner.uid, s.owner.gid
	}
	return st, nil
}

// Reopen returns a session that was saved. Its groups must be there; their
// ceilings are the kernel's, and have not changed hands.
func (t *Tree) Reopen(st SessionState) (*Session, error) {
	if !plainName(st.Name) {
		return nil, fmt.Errorf("cgroup session %q: not a plain name", st.Name)
	}
	s := t.session(st.Name)
	s.limits, s.leaves = st.Limits, st.Leaves
	if st.Owned {
		s.owner = &owner{st.UID, st.GID}
	}
	if len(s.v1) > 0 {
		var err error
		if s.legacy, err = cgroup1.Load(s.path1, cgroup1.WithHierarchy(s.subsystems)); err != nil {
			return nil, fmt.Errorf("cgroup %s: %w", s.unified.rel, err)
		}
	}
	for _, g := range append([]group{s.unified, s.unified.child("init"), s.unified.child("x")}, s.v1...) {
		if !exists(g.file("cgroup.procs")) {
			return nil, fmt.Errorf("cgroup %s: is gone", g.dir())
		}
	}
	return s, nil
}

// Name is what the leaf is called in its session.
func (l *Leaf) Name() string { return path.Base(l.group.rel) }

// Reopen returns a leaf in which an execution was born; one that is gone is empty. Nothing else
// can be born in it any more: it has no FD. The caller removes it.
func (s *Session) Reopen(leaf string) (*Leaf, error) {
	if !plainName(leaf) {
		return nil, fmt.Errorf("cgroup leaf %q: not a plain name", leaf)
	}
	return &Leaf{session: s, group: s.unified.child("x").child(leaf)}, nil
}
