package cgroup_test

import (
	"errors"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

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
		c := leaf.Clock(limit, func() error {
			used, err := leaf.CPUTime()
			if err != nil {
				t.Error(err)
			}
			over <- used - limit
			return nil
		})
		session := make(chan struct{})
		c2 := s.Clock(limit, func() error { close(session); return nil }) // twice would panic
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
	stopped := leaf.Clock(time.Millisecond, func() error { told.Store(true); return nil })
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
	c := leaf.Clock(used+20*time.Millisecond, func() error { close(out); return nil })
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

// T073: who has no descriptor for the moment has one later, and the time is up all the same: the Clock looks again, and tells
// again who could not act.
func TestClockGoesOn(t *testing.T) {
	_, leaf := spinning(t, 1000)
	used, err := leaf.CPUTime()
	if err != nil {
		t.Fatal(err)
	}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	told := make(chan int, 10)
	tries := 0
	c := leaf.Clock(used+50*time.Millisecond, func() error {
		tries++
		told <- tries
		if tries < 3 {
			return errors.New("not now")
		}
		return nil
	})
	defer c.Stop()
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 3, Max: limit.Max}); err != nil {
		t.Fatal(err)
	}
	time.Sleep(200 * time.Millisecond) // it looks at least once
	_, none := os.Open("/dev/null")
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if !errors.Is(none, unix.EMFILE) {
		t.Fatalf("there were descriptors: %v", none)
	}
	for want := range 3 {
		select {
		case got := <-told:
			if got != want+1 {
				t.Errorf("told %d, want %d", got, want+1)
			}
		case <-time.After(time.Minute):
			t.Fatalf("told %d times", want)
		}
	}
	c.Stop()
	if len(told) > 0 {
		t.Error("told after it was done")
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
	c := leaf.Clock(time.Second, func() error { t.Error("told"); return nil })
	if err := leaf.Remove(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(200 * time.Millisecond)
	c.Stop()
}
