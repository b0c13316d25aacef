package cgroup

import (
	"context"
	"fmt"
	"time"
)

// Freeze stops every process of every execution where it is, and leaves init alone; with
// frozen false they go on. It returns when they have stopped. If they have not when ctx ends,
// they go on and that is an error: a process in the kernel that waits for a dead file system cannot be
// stopped.
func (s *Session) Freeze(ctx context.Context, frozen bool) error {
	return s.unified.child("x").freeze(ctx, frozen)
}

// Freeze is [Session.Freeze] for one execution. What is frozen from above stays so.
func (l *Leaf) Freeze(ctx context.Context, frozen bool) error { return l.group.freeze(ctx, frozen) }

// freeze ignores a group that has been removed: nothing in it runs.
func (g group) freeze(ctx context.Context, frozen bool) error {
	value := "0"
	if frozen {
		value = "1"
	}
	if err := g.write("cgroup.freeze", value); err != nil && !gone(err) {
		return fmt.Errorf("freeze cgroup %s: %w", g.dir(), err)
	}
	// What goes on does so by itself, and only when nothing above is frozen.
	for pause := 50 * time.Microsecond; frozen; pause = min(2*pause, 10*time.Millisecond) {
		stopped, err := keyed(g.file("cgroup.events"), "frozen")
		if stopped == 1 || gone(err) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("freeze cgroup %s: %w", g.dir(), err)
		}
		select {
		case <-ctx.Done():
			_ = g.write("cgroup.freeze", "0")
			return fmt.Errorf("freeze cgroup %s: %w", g.dir(), ctx.Err())
		case <-time.After(pause):
		}
	}
	return nil
}
