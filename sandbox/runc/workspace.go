package runc

import (
	"context"

	"github.com/stockade-dev/stockade/sandbox"
)

// Changes tells what an overlay has that its source has not.
func (r *Runner) Changes(_ context.Context, session, target, _ string, _ int) ([]sandbox.Change, bool, error) {
	return nil, false, r.overlay(session, target)
}

// Commit makes the changes of an overlay to its source.
func (r *Runner) Commit(_ context.Context, session, target string, _ []string) (sandbox.Committed, error) {
	return sandbox.Committed{}, r.overlay(session, target)
}

// Discard empties an overlay.
func (r *Runner) Discard(_ context.Context, session, target string) error {
	return r.overlay(session, target)
}

// overlay finds an overlay of a session.
func (r *Runner) overlay(session, target string) error {
	if _, err := r.session(session); err != nil {
		return err
	}
	return sandbox.Errorf(sandbox.CodeNoOverlay, "%q is no overlay", target)
}

// Narrow takes a part of a session's network away.
func (r *Runner) Narrow(_ context.Context, session string, _ sandbox.Network) (int64, error) {
	if _, err := r.session(session); err != nil {
		return 0, err
	}
	return 0, sandbox.Errorf(sandbox.CodeNetwork, "session %s has no network", session)
}
