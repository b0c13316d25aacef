package cgroup

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"time"
)

// CPUTime is the user and system time that all executions have used, those that are over
// included.
func (s *Session) CPUTime() (time.Duration, error) { return s.unified.child("x").cpuTime() }

// CPUTime is the user and system time that the whole tree of the execution has used.
func (l *Leaf) CPUTime() (time.Duration, error) { return l.group.cpuTime() }

// cpuTime reads what the unified hierarchy counts without any controller.
func (g group) cpuTime() (time.Duration, error) {
	micros, err := keyed(g.file("cpu.stat"), "usage_usec")
	if err != nil {
		return 0, fmt.Errorf("cgroup %s: %w", g.dir(), err)
	}
	return time.Duration(micros) * time.Microsecond, nil
}

// Clock tells that a group has used up the processor time that it may have. The kernel has no such
// ceiling; what it has is a count. The Clock looks at it at the earliest moment at which the rest can be used up on
// the processors that the group may have, and not in between: beyond the limit is what they do in
// [shortest] and a tick, or in [longest] after a time without any use.
type Clock struct {
	stop context.CancelFunc
	done sync.WaitGroup
}

// shortest is the least time between two looks. A group that uses nothing is looked at ever less
// often, down to [longest]; one that is frozen, when that ends.
const (
	shortest = 10 * time.Millisecond
	longest  = 80 * time.Millisecond
)

// Clock calls out, on a goroutine of its own, when the executions of the session have used the limit
// together, and again until it succeeds. The caller stops it.
func (s *Session) Clock(limit time.Duration, out func() error) *Clock {
	return s.clock(s.unified.child("x"), limit, s.limits.CPUMillis, out)
}

// Clock is [Session.Clock] for one execution. It ends by itself with the leaf.
func (l *Leaf) Clock(limit time.Duration, out func() error) *Clock {
	millis := l.session.limits.CPUMillis
	if l.limits.CPUMillis != 0 {
		millis = l.limits.CPUMillis
	}
	return l.session.clock(l.group, limit, millis, out)
}

func (s *Session) clock(g group, limit time.Duration, millis int64, out func() error) *Clock {
	ctx, stop := context.WithCancel(context.Background())
	c := &Clock{stop: stop}
	c.done.Go(func() {
		if s.tree.watch.usedUp(ctx, g, limit, min(millis, 1000*int64(runtime.NumCPU()))) {
			for out() != nil && ctx.Err() == nil { // the kernel has no descriptor left, or no memory
				time.Sleep(shortest)
			}
		}
	})
	return c
}

// Stop ends the Clock and waits for out, if it has been called. Out does not call Stop.
func (c *Clock) Stop() {
	c.stop()
	c.done.Wait()
}

// usedUp returns true when the group has used the limit, and false when ctx ends or the group goes before
// that.
func (w *watcher) usedUp(ctx context.Context, g group, limit time.Duration, millis int64) bool {
	woken, leave, err := w.join(g.file("cgroup.events"))
	if err != nil { // gone, or no watches left: then what is frozen is looked at, too
		leave = func() {}
	}
	defer leave()
	timer := time.NewTimer(0)
	defer timer.Stop()
	idle, before := shortest, time.Duration(-1)
	for {
		select {
		case <-ctx.Done():
			return false
		case <-timer.C:
		case <-woken:
		}
		used, err := g.cpuTime()
		switch {
		case err != nil && gone(err):
			return false
		case err != nil: // it goes on all the same
			timer.Reset(shortest)
			continue
		case used >= limit:
			return ctx.Err() == nil
		case used == before && woken != nil && g.frozen():
			timer.Stop() // woken when it goes on
			continue
		case used == before:
			idle = min(2*idle, longest)
		default:
			idle, before = shortest, used
		}
		timer.Reset(max((limit-used)*1000/time.Duration(millis), idle))
	}
}

func (g group) frozen() bool {
	n, err := keyed(g.file("cgroup.events"), "frozen")
	return err == nil && n == 1
}
