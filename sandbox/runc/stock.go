package runc

import (
	"context"
	"fmt"
	"time"

	"github.com/stockade-dev/stockade/internal/cleanup"
	"github.com/stockade-dev/stockade/sandbox"
	"github.com/stockade-dev/stockade/sandbox/cgroup"
)

// slot is what a session needs and its Spec has no say in. It is what takes longest to
// make, because moving a process to a group waits for all processors (an RCU grace
// period, 5 to 15 ms).
type slot struct {
	base       uint32          // host id of inside id 0
	groups     *cgroup.Session // not bounded yet, and empty
	namespaces *namespaces
}

// prepare makes a slot, for the stock or for an open that waits: there is no other way to
// one. The receiver discards it, or builds a session on it.
//
// The ids come first: two sessions share no uid, so that neither can signal, trace or count
// against the other even if a wall between them falls. The groups are called after them:
// as long as the range is ours, the name is. The namespaces are made last, inside the
// groups: the user namespace for the ceiling on nested ones in it, and the cgroup
// namespace, whose root is the group of whoever makes it: S, where init will not be.
func (r *Runner) prepare(ctx context.Context) (_ *slot, err error) {
	var undo cleanup.Stack
	defer undo.Run()
	s := new(slot)
	if s.base, err = r.ids.take(); err != nil {
		return nil, err
	}
	undo.Add(func() { r.discard(s) })
	if s.groups, err = r.tree.Create(slotName(s.base)); err != nil {
		return nil, err
	}
	init := int(s.base + sandbox.InitUID)
	if err := s.groups.Chown(init, init); err != nil {
		return nil, err
	}
	if s.namespaces, err = r.makeNamespaces(ctx, s.base, s.groups); err != nil {
		return nil, err
	}
	undo.Release()
	return s, nil
}

// slotName is what the groups of an id range are called.
func slotName(base uint32) string { return fmt.Sprintf("s%d", base/sandbox.IDs) }

// discard gives back what a slot consists of, as far as it was made. Where the groups do
// not go away, the range stays taken, and with it their name.
func (r *Runner) discard(s *slot) {
	if s.namespaces != nil {
		s.namespaces.close()
	}
	if s.groups != nil {
		_ = s.groups.Kill() // by now there should be nobody
		if err := s.groups.Remove(); err != nil {
			return
		}
	}
	r.ids.give(s.base)
}

// stock keeps slots ready, so that an open does not wait for one. It changes nothing but
// how long an open takes: one that finds it empty prepares its own.
type stock struct {
	slots chan *slot    // those that are ready; its capacity is the size of the stock
	taken chan struct{} // wakes the worker
	stop  context.CancelFunc
	done  chan struct{} // closed when the worker has ended
}

// respite is how long the stock waits before it makes up for what was taken. An open is
// seldom the last that its caller wants, and a slot costs a processor a few milliseconds.
const respite = 25 * time.Millisecond

// newStock fills a stock of a size in the background. The caller closes it.
func (r *Runner) newStock(size int) *stock {
	ctx, stop := context.WithCancel(context.Background())
	s := &stock{slots: make(chan *slot, size), taken: make(chan struct{}, 1), stop: stop, done: make(chan struct{})}
	go func() {
		defer close(s.done)
		for {
			s.fill(ctx, r.prepare)
			select {
			case <-ctx.Done():
				return
			case <-s.taken:
			}
			select {
			case <-ctx.Done():
				return
			case <-time.After(respite):
			}
		}
	}()
	return s
}

// fill gives up at the first failure: an open that needs a slot will say what is wrong.
func (s *stock) fill(ctx context.Context, prepare func(context.Context) (*slot, error)) {
	for len(s.slots) < cap(s.slots) && ctx.Err() == nil {
		slot, err := prepare(ctx)
		if err != nil {
			return
		}
		s.slots <- slot // nobody else sends
	}
}

// claim returns a slot that is ready, or nil.
func (s *stock) claim() *slot {
	select {
	case slot := <-s.slots:
		return slot
	default:
		return nil
	}
}

// refill lets the worker make up for what was claimed.
func (s *stock) refill() {
	select {
	case s.taken <- struct{}{}:
	default: // it will look
	}
}

// close ends the worker and returns what was left.
func (s *stock) close() []*slot {
	s.stop()
	<-s.done
	close(s.slots)
	var left []*slot
	for slot := range s.slots {
		left = append(left, slot)
	}
	return left
}
