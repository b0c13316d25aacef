package cgroup_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stockade-dev/stockade/sandbox"
	"github.com/stockade-dev/stockade/sandbox/cgroup"
)

// spinning has 64 threads busy in a leaf of a session with so much of a processor.
func spinning(t *testing.T, millis int64) (*cgroup.Session, *cgroup.Leaf) {
	t.Helper()
	tree := open(t)
	l := limits
	l.PIDs, l.CPUMillis = 128, millis
	s := create(t, tree, "clock", l)
	stand(t, s)
	leaf, err := s.Leaf()
	if err != nil {
		t.Fatal(err)
	}
	_, told := in(t, s, leaf, "spin")
	told.Close()
	return s, leaf
}

// R053: processor time that is used up is told of once, and not long after: what is used beyond the limit is the least
// time between two looks on each processor, at the best of a few times, because a busy machine looks later.
func TestClock(t *testing.T) {
	s, leaf := spinning(t, 500)
	const most = 50 * time.Millisecond
	least := time.Hour
	for range 5 {
		used, err := leaf.CPUTime()
		if err != nil {
			t.Fatal(err)
		}
		limit := used + 100*time.Millisecond
		over := make(chan time.Duration, 2) // more than the one that there is to be
		c := leaf.Clock(limit, func() {
			used, err := leaf.CPUTime()
			if err != nil {
				t.Error(err)
			}
			over <- used - limit
		})
		session := make(chan struct{})
		c2 := s.Clock(limit, func() { close(session) }) // twice would panic
		beyond := <-over
		<-session
		time.Sleep(50 * time.Millisecond)
		c.Stop()
		c2.Stop()
		t.Logf("%v beyond", beyond)
		if beyond < 0 || len(over) > 0 {
			t.Errorf("%v beyond, and told %d times more", beyond, len(over))
		}
		if least = min(least, beyond); least < most {
			break
		}
	}
	if least > most {
		t.Errorf("%v beyond at least", least)
	}
	// What an execution has used that is over, the session has used.
	was, err := s.CPUTime()
	if err != nil {
		t.Fatal(err)
	}
	if err := leaf.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := leaf.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := leaf.Remove(); err != nil {
		t.Fatal(err)
	}
	if now, err := s.CPUTime(); err != nil || now < was {
		t.Errorf("%v, and before the execution ended %v: %v", now, was, err)
	}
}

// R053: what is frozen uses nothing and is not told of; the rest of its time is there when it goes on. A Clock that is
// stopped tells nobody.
func TestClockStandsWhileFrozen(t *testing.T) {
	s, leaf := spinning(t, 1000)
	var told atomic.Bool
	stopped := leaf.Clock(time.Millisecond, func() { told.Store(true) })
	stopped.Stop()
	at := told.Load()
	if err := s.Freeze(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	used, err := leaf.CPUTime()
	if err != nil {
		t.Fatal(err)
	}
	out := make(chan struct{})
	c := leaf.Clock(used+20*time.Millisecond, func() { close(out) })
	defer c.Stop()
	select {
	case <-out:
		t.Error("a frozen execution ran out of time")
	case <-time.After(300 * time.Millisecond):
	}
	if err := s.Freeze(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	select {
	case <-out:
	case <-time.After(5 * time.Second):
		t.Error("it went on, and nobody looked")
	}
	if told.Load() != at {
		t.Error("told after Stop")
	}
}

// A Clock ends with its group, and says nothing then.
func TestClockOfNothing(t *testing.T) {
	tree := open(t)
	s := create(t, tree, "clock", limits)
	stand(t, s)
	leaf, err := s.LeafWith(sandbox.ExecLimits{CPUTime: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	c := leaf.Clock(time.Second, func() { t.Error("told") })
	if err := leaf.Remove(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(200 * time.Millisecond)
	c.Stop()
}
