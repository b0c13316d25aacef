package runc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/sandbox"
	"github.com/stockade-dev/stockade/sandbox/guest"
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
	var done sandbox.Committed
	made := workspace.Reservation{Placeholders: r.placeholders, Session: session, Caller: s.spec.Caller, Source: s.spec.Mounts[i].Source}
	err = s.still(ctx, func(ctx context.Context) (err error) {
		done, err = space.Commit(ctx, s.spec.Caller, source, paths, made.Commit())
		return err
	})
	return done, err
}

// still does something while every execution stands still, so that no file is caught half written. It ends
// with the session.
func (s *session) still(ctx context.Context, do func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.life, cancel)()
	s.freezing.Lock()
	defer s.freezing.Unlock()
	s.mu.Lock()
	frozen := s.frozen
	s.mu.Unlock()
	stopping, done := context.WithTimeout(ctx, stopping)
	defer done()
	if err := s.freeze(stopping, true); err != nil {
		return err
	}
	// Of a session that is being closed there is nothing left to thaw: its groups may be another's.
	defer func() {
		if s.life.Err() == nil {
			_ = s.freeze(context.WithoutCancel(ctx), frozen)
		}
	}()
	return do(ctx)
}

// Discard empties an overlay.
func (r *Runner) Discard(ctx context.Context, session, target string) error {
	s, space, err := r.overlay(session, target)
	if err != nil {
		return err
	}
	ns, err := s.mountNamespace()
	if err != nil {
		return err
	}
	defer ns.Close()
	if err := space.Discard(ns); err != nil {
		return err
	}
	return s.allow(ctx, space.Target())
}

// allow has Landlock let executions write at a place on which something else is mounted since init was set up. If executions
// would be counted nowhere from then on, the session has ended.
func (s *session) allow(ctx context.Context, target string) error {
	root, err := s.root()
	if err != nil {
		return err
	}
	defer root.Close()
	fd, err := view{root}.open(target)
	if err != nil {
		return fmt.Errorf("open %s: %w", target, err)
	}
	tree := os.NewFile(uintptr(fd), target)
	defer tree.Close()
	moved := func() error {
		return s.box.alive(func(pid int) error { return s.groups.ReplaceSpawner(pid, guest.SpawnerName) })
	}
	err = s.init.Allow(ctx, tree, moved, s.cut)
	if err != nil {
		return refused(err)
	}
	return nil
}

// cut ends a session whose executions would be counted nowhere. One that is being closed has ended: its groups may be
// another's.
func (s *session) cut() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	err := s.groups.Kill()
	if err != nil { // nothing inside outlives init
		err = errors.Join(err, s.box.alive(func(pid int) error { return unix.Kill(pid, unix.SIGKILL) }))
	}
	return err
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

// maxRenews is how many of a user's directories are looked at at a time: each that hangs keeps a thread.
const maxRenews = 16

// renew sees to it that what is protected in shared directories is protected when a command starts, whatever the host
// has done to it since the last one did. Over an overlay there is nothing that it could do. It looks at callers' directories: where
// those do not answer, it ends with ctx or with the session, and goes on by itself, with its turn.
func (r *Runner) renew(ctx context.Context, s *session) error {
	shared := func(m sandbox.Mount) bool { return len(m.Protected) > 0 && m.Overlay == nil }
	if !slices.ContainsFunc(s.spec.Mounts, shared) {
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.life, cancel)()
	over := func() error {
		if s.life.Err() != nil {
			return errEnded
		}
		return ctx.Err()
	}
	select {
	case s.guarding <- struct{}{}:
	case <-ctx.Done():
		return over()
	}
	leave, err := r.renewing.Join(ctx, s.spec.Caller.UID, maxRenews)
	if err != nil {
		<-s.guarding
		return over()
	}
	renewed := make(chan error, 1)
	go func() {
		var err error
		for _, m := range s.spec.Mounts {
			if shared(m) && err == nil {
				err = r.renewMount(s, m)
			}
		}
		<-s.guarding
		leave()
		renewed <- err
	}()
	select {
	case err := <-renewed:
		return err
	case <-ctx.Done():
		return over()
	}
}

func (r *Runner) renewMount(s *session, m sandbox.Mount) error {
	root, err := s.root()
	if err != nil {
		return err
	}
	defer root.Close()
	ns, err := s.mountNamespace()
	if err != nil {
		return err
	}
	defer ns.Close()
	return r.protection(s.spec, s.base, m).Renew(root, ns, m.Target)
}

// mountNamespace opens the session's.
func (s *session) mountNamespace() (*os.File, error) {
	ns, err := s.box.open("ns/mnt", os.O_RDONLY)
	if err != nil {
		return nil, errEnded
	}
	return ns, nil
}

// closeSpaces lets go of the overlays, once nobody looks at them any more. What was written in them and not committed goes with the
// session's mounts.
func (s *session) closeSpaces() {
	for _, space := range s.spaces {
		space.Close()
	}
}
