package runc

import (
	"context"
	"time"

	"github.com/stockade-dev/stockade/sandbox"
)

// stopping bounds a freeze. It takes as long as the slowest process is in the kernel.
const stopping = 5 * time.Second

// Freeze stops the processes of an execution, or with exec "" of the session but init, where
// they are, or lets them go on. What is frozen can be killed, and its session closed.
func (r *Runner) Freeze(ctx context.Context, session, exec string, frozen bool) error {
	s, err := r.session(session)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, stopping)
	defer cancel()
	s.freezing.Lock()
	defer s.freezing.Unlock()
	if exec == "" {
		return s.freeze(ctx, frozen)
	}
	x, err := s.exec(exec)
	if err != nil {
		return err
	}
	if x.process.Load() == nil {
		return sandbox.Errorf(sandbox.CodeNoExec, "%s has not been started", exec)
	}
	return x.leaf.Freeze(ctx, frozen)
}

// freeze freezes or thaws a session. It waits for what is being started first: init waits for a
// new process until it executes, and would wait for one that was born frozen. The caller holds
// freezing.
func (s *session) freeze(ctx context.Context, frozen bool) error {
	s.mu.Lock()
	before := s.frozen
	if before == frozen {
		s.mu.Unlock()
		return nil
	}
	s.frozen = true // until the thaw is done, too
	if s.starting > 0 {
		s.idle = make(chan struct{})
	}
	idle := s.idle
	s.mu.Unlock()

	err := wait(ctx, idle)
	if err == nil {
		err = s.groups.Freeze(ctx, frozen)
	}
	if err != nil {
		frozen = before
	}
	s.mu.Lock()
	s.frozen = frozen
	s.mu.Unlock()
	return err
}

// wait waits for a channel to be closed, if there is one.
func wait(ctx context.Context, closed <-chan struct{}) error {
	if closed == nil {
		return nil
	}
	select {
	case <-closed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Load returns what a session uses now.
func (r *Runner) Load(session string) (sandbox.Load, error) {
	s, err := r.session(session)
	if err != nil {
		return sandbox.Load{}, err
	}
	load, err := s.groups.Load()
	load.NetworkLost = s.network.Lost()
	take := func(bytes, inodes sandbox.Fill) {
		load.DiskBytes, load.DiskInodes = load.DiskBytes.Fuller(bytes), load.DiskInodes.Fuller(inodes)
	}
	for _, d := range s.disks {
		take(d.fill())
	}
	for _, space := range s.spaces {
		take(space.Fill())
	}
	return load, err
}
