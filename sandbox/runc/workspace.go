package runc

import (
	"context"
	"fmt"
	"os"
	"slices"

	"github.com/stockade-dev/stockade/sandbox"
	"github.com/stockade-dev/stockade/sandbox/workspace"
)

// Changes tells what an overlay has that its source has not.
func (r *Runner) Changes(ctx context.Context, session, target, after string, limit int) ([]sandbox.Change, bool, error) {
	_, space, err := r.overlay(session, target)
	if err != nil {
		return nil, false, err
	}
	return space.Changes(ctx, after, limit)
}

// Commit makes the changes of an overlay to its source, which must still be the directory that was judged, and
// writable for the caller.
func (r *Runner) Commit(ctx context.Context, session, target string, paths []string) (sandbox.Committed, error) {
	s, space, err := r.overlay(session, target)
	if err != nil {
		return sandbox.Committed{}, err
	}
	i := slices.IndexFunc(s.spec.Mounts, func(m sandbox.Mount) bool { return m.Target == space.Target() })
	var source *os.File
	err = as(s.spec.Caller, func() (err error) {
		source, err = reopen(s.spec.Mounts[i].Source, true)
		return err
	})
	if err != nil {
		return sandbox.Committed{}, err
	}
	defer source.Close()
	return space.Commit(ctx, s.spec.Caller, source, paths)
}

// Discard empties an overlay.
func (r *Runner) Discard(_ context.Context, session, target string) error {
	s, space, err := r.overlay(session, target)
	if err != nil {
		return err
	}
	// Init is our child and not yet reaped, so its number is its own.
	ns, err := os.Open(fmt.Sprintf("/proc/%d/ns/mnt", s.box.pid))
	if err != nil {
		return sandbox.Errorf(sandbox.CodeNoSession, "the session has ended")
	}
	defer ns.Close()
	return space.Discard(ns)
}

// overlay finds an overlay of a session; an empty target is the only one that it has.
func (r *Runner) overlay(id, target string) (*session, *workspace.Space, error) {
	s, err := r.session(id)
	if err != nil {
		return nil, nil, err
	}
	if target == "" && len(s.spaces) == 1 {
		for target = range s.spaces {
		}
	}
	if space := s.spaces[target]; space != nil {
		return s, space, nil
	}
	return nil, nil, sandbox.Errorf(sandbox.CodeNoOverlay, "%q is no overlay of the session", target)
}

// closeSpaces lets go of the overlays. What was written in them and not committed goes with the session's mounts.
func (s *session) closeSpaces() {
	for _, space := range s.spaces {
		space.Close()
	}
}

// Narrow takes a part of a session's network away.
func (r *Runner) Narrow(_ context.Context, session string, _ sandbox.Network) (int64, error) {
	if _, err := r.session(session); err != nil {
		return 0, err
	}
	return 0, sandbox.Errorf(sandbox.CodeNetwork, "session %s has no network", session)
}
