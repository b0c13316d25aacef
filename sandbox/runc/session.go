package runc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/sandbox"
	"github.com/stockade-dev/stockade/sandbox/cgroup"
	"github.com/stockade-dev/stockade/sandbox/guest"
	"github.com/stockade-dev/stockade/sandbox/network"
	"github.com/stockade-dev/stockade/sandbox/notify"
	"github.com/stockade-dev/stockade/sandbox/workspace"
)

// session is a built session and everything that has to be given back.
type session struct {
	spec    sandbox.Spec
	base    uint32 // host id of inside id 0
	groups  *cgroup.Session
	box     *box
	init    *guest.Conn
	network *network.Session
	paused  bool                             // network is, to be somebody else's
	notify  *notify.Server                   // of the filter; nil where its refusals are not told, and while
	unheard *os.File                         // its listener waits for somebody else
	disks   []disk                           // the private ones
	spaces  map[string]*workspace.Space      // overlays by target
	clock   *cgroup.Clock                    // of the session's processor time; nil without a ceiling
	tell    func(format string, args ...any) // the operator

	life context.Context // ends when the session is closed
	die  context.CancelFunc

	freezing sync.Mutex    // one Freeze at a time
	guarding chan struct{} // capacity 1: one renew at a time, and none after the end

	mu       sync.Mutex
	closed   bool
	frozen   bool                  // as a whole: nothing is started
	spent    bool                  // its processor time is: nothing is started any more
	execs    map[string]*execution // by name: until nothing of it is left, and it is forgotten
	leaves   map[string]*execution // by the name of the leaf: until nothing of it is left
	stray    denials               // of no execution
	started  int                   // how many there were
	counted  *cgroup.Events        // since none of them runs any more; nil if that has not been read
	ended    int                   // of execs, those that are kept for their result only
	starting int                   // of execs, those that have not been started
	idle     chan struct{}         // if not nil, closed when starting comes to 0
	live     sync.WaitGroup        // of execs that are not over: entered while not closed
}

// newSession returns a session of which nothing has been built.
func (r *Runner) newSession(spec sandbox.Spec) *session {
	life, die := context.WithCancel(context.Background())
	return &session{spec: spec, life: life, die: die, guarding: make(chan struct{}, 1), tell: r.options.Tell, execs: map[string]*execution{}, leaves: map[string]*execution{}, spaces: map[string]*workspace.Space{}}
}

// hostUID and hostGID are what executions run as outside.
func (s *session) hostUID() int { return int(s.base + s.spec.Identity.UID) }
func (s *session) hostGID() int { return int(s.base + s.spec.Identity.GID) }

// add enters an execution that is being started, unless the session is being closed, is frozen,
// or the name is taken. It is followed by hold or drop.
func (s *session) add(x *execution) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return sandbox.Errorf(sandbox.CodeNoSession, "session %s is closing", s.spec.Session)
	case s.frozen:
		return sandbox.Errorf(sandbox.CodeFrozen, "session %s is frozen", s.spec.Session)
	case s.spent:
		return sandbox.Errorf(sandbox.CodeCPUTime, "session %s has used its processor time of %v", s.spec.Session, s.spec.Limits.CPUTime)
	case s.execs[x.id] != nil:
		return sandbox.Errorf(sandbox.CodeInvalidSpec, "execution %s exists", x.id)
	}
	s.execs[x.id] = x
	s.leaves[x.leaf.Name()] = x
	s.starting++
	s.live.Add(1)
	return nil
}

// drop takes an execution out that was not started.
func (s *session) drop(x *execution) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.execs, x.id)
	delete(s.leaves, x.leaf.Name())
	s.settled()
	s.live.Done()
}

// settled counts one execution less that is being started. The caller holds mu.
func (s *session) settled() {
	if s.starting--; s.starting == 0 && s.idle != nil {
		close(s.idle)
		s.idle = nil
	}
}

// exec returns an execution of which something can be signalled, killed or frozen.
func (s *session) exec(id string) (*execution, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if x := s.execs[id]; x != nil && !x.over {
		return x, nil
	}
	return nil, noExec(id)
}

func noExec(id string) error {
	return sandbox.Errorf(sandbox.CodeNoExec, "no execution %s", strings.ToValidUTF8(id, "?"))
}

// dying bounds the wait for killed processes. They have no say in it; what takes time
// is the kernel's freeing of their memory, or a file system that does not answer.
const dying = 5 * time.Second

// Close destroys a session with everything in it, and returns what it used. Whatever
// the processes do, stopped, frozen or forking, they are killed as one group. A process
// that even that does not end (it waits in the kernel for a dead file system) is
// reported, and its session's name and ids stay taken.
func (r *Runner) Close(_ context.Context, id string) (sandbox.Usage, error) {
	r.mu.Lock()
	s := r.sessions[id]
	if s == nil {
		r.mu.Unlock()
		return sandbox.Usage{}, sandbox.Errorf(sandbox.CodeNoSession, "no session %s", id)
	}
	// Of two closes one wins. The name stays taken until its groups are gone.
	r.sessions[id] = nil
	r.mu.Unlock()

	usage, err := s.destroy()
	closed := make(chan struct{})
	r.closing.Add(1)
	go func() {
		s.closeSpaces()
		r.closing.Add(-1)
		close(closed)
	}()
	if err != nil {
		return usage, fmt.Errorf("close session %s: %w", id, err)
	}
	// Who looks at a file system that does not answer, for a command or for an overlay, is not waited for longer.
	patience, cancel := context.WithTimeout(context.Background(), dying)
	defer cancel()
	_ = wait(patience, closed)
	select {
	case s.guarding <- struct{}{}:
	case <-patience.Done(): // what is reserved from here on is the next runner's to remove
	}
	if err := r.placeholders.Release(id); err != nil {
		s.tell("session %s: %v", id, err)
	}
	r.ids.give(s.base)
	r.unreserve(id)
	return usage, nil
}

// destroy ends everything. What fails does not keep the rest from being done.
func (s *session) destroy() (sandbox.Usage, error) {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.die()
	s.network.Close() // before its relay is killed with the rest, which would be news
	errs := []error{s.groups.Kill()}
	ctx, cancel := context.WithTimeout(context.Background(), dying)
	defer cancel()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.init.Close()
		s.box.kill()
		s.letGo()
		s.live.Wait() // each execution has reported its end, and its leaf is gone
		s.release()
	}()
	select {
	case <-ended:
	case <-ctx.Done():
		return sandbox.Usage{}, errors.Join(append(errs, errors.New("processes that a kill does not end"))...)
	}
	errs = append(errs, s.groups.Wait(ctx))
	usage, err := s.groups.Stats()
	errs = append(errs, err, s.groups.Remove())
	return usage, errors.Join(errs...)
}

// hear takes a listener over, and hears from it what the filter refuses. nil is none.
func (s *session) hear(listener *os.File) (err error) {
	if listener == nil {
		return nil
	}
	s.notify, err = notify.Serve(listener, s.judge)
	s.unheard = nil
	return err
}

// deafen stops hearing, and keeps the listener for whoever hears next: calls that are refused wait for him.
func (s *session) deafen() (err error) {
	if s.notify == nil {
		return nil
	}
	if s.unheard, err = s.notify.File(); err != nil {
		return err
	}
	s.notify.Close()
	s.notify = nil
	return nil
}

// letGo ends what looks at the session: nobody is left in it.
func (s *session) letGo() {
	if s.notify != nil {
		s.notify.Close()
	}
	if s.clock != nil {
		s.clock.Stop()
	}
	s.closeDisks()
}

// root opens the session's root directory, as init sees it.
func (s *session) root() (*os.File, error) {
	root, err := s.box.open("root", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC)
	if err != nil {
		return nil, errEnded
	}
	return root, nil
}

var errEnded = sandbox.Errorf(sandbox.CodeNoSession, "the session has ended")
