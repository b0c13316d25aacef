package cgroup

import (
	"fmt"
	"path"

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

	Disks     []string // that are bounded
	Throttled bool

	LegacyKills Events // of executions that are gone
}

// Save returns the state of a bounded session. Leaves that are ready are given back first;
// the session remains usable.
func (s *Session) Save() (SessionState, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.clearStock(); err != nil {
		return SessionState{}, err
	}
	st := SessionState{Name: s.Name(), Limits: s.limits, Leaves: s.leaves, Disks: s.disks, Throttled: s.throttled, LegacyKills: s.legacyKills}
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
	s.limits, s.leaves, s.disks, s.throttled, s.legacyKills = st.Limits, st.Leaves, st.Disks, st.Throttled, st.LegacyKills
	if st.Owned {
		s.owner = &owner{st.UID, st.GID}
	}
	for _, g := range s.all() {
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
	g := s.unified.child("x").child(leaf)
	l := &Leaf{session: s, group: g, groups: s.counting(g)}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range controllers {
		if s.tree.host.Version[c] != "v1" {
			continue
		}
		if own := s.ownGroup(c, leaf); exists(own.dir()) {
			l.groups[c] = own
			s.bounded[l] = true
		}
	}
	return l, nil
}
