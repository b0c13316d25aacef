package runc

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/internal/failpoint"
	"github.com/stockade-dev/stockade/sandbox"
	"github.com/stockade-dev/stockade/sandbox/guest"
	"github.com/stockade-dev/stockade/sandbox/launch"
)

// held is what is kept of an execution for whoever asks, whichever daemon that is.
type held struct {
	started        time.Time
	stdin          *os.File               // the end that is written; nil unless it is open
	stdout, stderr *os.File               // the ends that are read; nil once released
	outlet         *os.File               // of a terminal: where what comes out of stdin, its master, is pumped to stdout; nil once it has ended
	pumped         chan struct{}          // closed when nobody pumps; nil of what has no terminal
	moving         sync.Mutex             // held while output of a terminal moves
	result         *sandbox.Result        // once it has ended
	watchers       []func(sandbox.Result) // of the daemon that is connected, told when it ends
	told           bool                   // its end, to all of them; only its leaf may be left of it
	forgotten      bool                   // nobody will ask for it any more
	over           bool                   // nothing of it is left: it has ended, and its leaf is gone
}

// maxEnded bounds how many ended executions a session keeps the results and pipes of. A
// daemon forgets each when its receipt is durable; this is for one that does not.
const maxEnded = 4096

// streams are duplicates for a daemon.
func (h *held) streams() (launch.Streams, error) {
	out := launch.Streams{Started: h.started}
	for _, p := range []struct {
		held *os.File
		dup  **os.File
	}{{h.stdin, &out.Stdin}, {h.stdout, &out.Stdout}, {h.stderr, &out.Stderr}} {
		if p.held == nil {
			continue
		}
		var err error
		if *p.dup, err = duplicate(p.held); err != nil {
			out.Close()
			return launch.Streams{}, err
		}
	}
	return out, nil
}

func duplicate(f *os.File) (*os.File, error) {
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("duplicate pipe: %w", err)
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}

// release closes our ends of the pipes. Of a nil *os.File that is an error, and nothing else.
func (h *held) release() {
	for _, f := range []**os.File{&h.stdin, &h.stdout, &h.stderr} {
		(*f).Close()
		*f = nil
	}
	if h.pumped == nil { // or who pumps closes it, since he finds the others closed
		h.outlet.Close()
		h.outlet = nil
	}
}

// hold keeps an execution that has been started.
func (s *session) hold(x *execution, process *guest.Process, exited func(sandbox.Result)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	x.process.Store(process)
	x.watchers = append(x.watchers, exited)
	s.settled()
}

// end keeps the result of an execution, and tells who wants to know.
func (s *session) end(x *execution, result sandbox.Result) {
	s.mu.Lock()
	result.Denials, result.Dropped = slices.Clone(x.denials.Kinds), x.denials.Dropped
	x.result = &result
	watchers := x.watchers
	x.watchers = nil
	if !x.forgotten {
		s.ended++
	}
	if s.ended > maxEnded {
		s.forget(s.oldest())
	}
	s.mu.Unlock()
	failpoint.Hit("runner.exited")
	for _, exited := range watchers {
		exited(result)
	}
}

// oldest is the execution that ended first of those that are kept. The caller holds mu.
func (s *session) oldest() (first *execution) {
	for _, x := range s.execs {
		if x.result != nil && !x.forgotten && (first == nil || x.result.Ended.Before(first.result.Ended)) {
			first = x
		}
	}
	return first
}

// forget gives up what is kept of an execution. The caller holds mu.
func (s *session) forget(x *execution) {
	x.forgotten = true
	x.release()
	if x.result != nil {
		s.ended--
	}
	if x.over {
		delete(s.execs, x.id)
	}
}

// finish notes that nothing of an execution is left.
func (s *session) finish(x *execution) {
	s.mu.Lock()
	defer s.mu.Unlock()
	x.over = true
	delete(s.leaves, x.leaf.Name())
	if x.forgotten {
		delete(s.execs, x.id)
	}
	s.live.Done()
}

// release gives up what is kept of all executions: the session has ended.
func (s *session) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, x := range s.execs {
		x.release()
	}
}

// kept finds an execution that has been started and not forgotten, and does with it what is
// to be done under mu.
func (r *Runner) kept(id, exec string, do func(*session, *execution) error) error {
	s, err := r.session(id)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.execs[exec]
	if x == nil || x.forgotten || x.process.Load() == nil || s.closed {
		return noExec(exec)
	}
	return do(s, x)
}

// Sessions tells what stands, for a daemon that comes into it.
func (r *Runner) Sessions() []sandbox.Held {
	var out []sandbox.Held
	for _, s := range r.standing() {
		h := sandbox.Held{Session: s.spec.Session, Keep: s.spec.Keep}
		s.mu.Lock()
		for _, x := range s.execs {
			if x.process.Load() != nil && !x.forgotten {
				h.Execs = append(h.Execs, sandbox.HeldExec{ID: x.id, Started: x.started, Ended: x.result != nil})
			}
		}
		s.mu.Unlock()
		slices.SortFunc(h.Execs, func(a, b sandbox.HeldExec) int {
			return cmp.Or(a.Started.Compare(b.Started), strings.Compare(a.ID, b.ID))
		})
		out = append(out, h)
	}
	return out
}

// Owner is the user whose session it is.
func (r *Runner) Owner(session string) (uid uint32, err error) {
	s, err := r.session(session)
	if err != nil {
		return 0, err
	}
	return s.spec.Caller.UID, nil
}

// standing are the sessions that have been built and are not being closed, in order of names.
func (r *Runner) standing() []*session {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []*session
	for _, s := range r.sessions {
		if s != nil {
			out = append(out, s)
		}
	}
	slices.SortFunc(out, func(a, b *session) int { return strings.Compare(a.spec.Session, b.spec.Session) })
	return out
}

// Attach gives the pipes of an execution to a daemon that did not start it, and its result
// as soon as there is one.
func (r *Runner) Attach(id, exec string, exited func(sandbox.Result)) (streams launch.Streams, err error) {
	var result *sandbox.Result
	err = r.kept(id, exec, func(_ *session, x *execution) error {
		if streams, err = x.streams(); err != nil {
			return err
		}
		if result = x.result; result == nil {
			x.watchers = append(x.watchers, exited)
		}
		return nil
	})
	if result != nil {
		exited(*result)
	}
	return streams, err
}

// Forget gives up the result and the pipes of an execution. What is left of it can still be killed by
// its name.
func (r *Runner) Forget(id, exec string) {
	// One that is not there is forgotten.
	_ = r.kept(id, exec, func(s *session, x *execution) error {
		s.forget(x)
		return nil
	})
}

// CloseStdin closes our end of a stdin that is open. Of a terminal that is to hang up, once the daemon has closed its own.
func (r *Runner) CloseStdin(id, exec string) error {
	return r.kept(id, exec, func(_ *session, x *execution) error {
		x.stdin.Close() // of a nil *os.File: an error, and nothing else
		x.stdin = nil
		return nil
	})
}

// Disconnected ends the sessions that end with their daemon. The others go on: a full pipe
// holds its writer up, and nothing in it is lost.
func (r *Runner) Disconnected() {
	var over []*session
	for _, s := range r.standing() {
		if s.spec.WithDaemon {
			over = append(over, s)
			continue
		}
		s.mu.Lock()
		for _, x := range s.execs {
			x.watchers = nil
		}
		s.mu.Unlock()
	}
	r.closeAll(over)
}

// Abandoned destroys every session: nobody is left who could use or close them.
func (r *Runner) Abandoned() { r.closeAll(r.standing()) }

func (r *Runner) closeAll(sessions []*session) {
	var all sync.WaitGroup
	for _, s := range sessions {
		all.Go(func() { _, _ = r.Close(context.Background(), s.spec.Session) })
	}
	all.Wait()
}
