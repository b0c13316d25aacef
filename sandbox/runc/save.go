package runc

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/go-json-experiment/json"
	jsonv1 "github.com/go-json-experiment/json/v1"

	"github.com/stockade-dev/stockade/sandbox"
	"github.com/stockade-dev/stockade/sandbox/cgroup"
	"github.com/stockade-dev/stockade/sandbox/guest"
	"github.com/stockade-dev/stockade/sandbox/launch"
	"github.com/stockade-dev/stockade/sandbox/network"
	"github.com/stockade-dev/stockade/sandbox/workspace"
)

// A runner is replaced by another program in the same process (execve): init processes stay
// its children, and descriptors stay open, with the locks that belong to them. What is only in
// memory is saved:
//
//	runner                  other program
//	  │  launch: Suspend      │   no call in progress, and none read
//	  │  Save                 │   inits suspended, every end that was reported noted
//	  │  launch: Save         │   who has yet to be told of which end
//	  ├── execve ────────────▶│
//	  │                       │   Resume
//	  │                       │   launch: Resume, Serve
//
// Until execve everything can be undone (Continue). What is not handed over is made anew:
// the stock, the user namespaces of id mappings, the watches on groups.

// Format says what a program can take over from another, and hand to it: both must have
// the same State, Guest and Relay, and while a daemon is connected the same Launch.
type Format struct {
	State  int // of what Save returns
	Guest  int // version that the inits speak
	Relay  int // and the relays
	Launch int // version that the daemon speaks
}

// CurrentFormat is that of this program.
func CurrentFormat() Format {
	return Format{State: stateVersion, Guest: guest.Version, Relay: network.Version, Launch: launch.Version}
}

// stateVersion changes with every change of the types below, those of package sandbox
// among them.
const stateVersion = 3

// saved is a Runner. Files are meant by their place among those that are handed over; -1 is none.
type saved struct {
	Version  int
	Lock     int      // the state directory
	IDs      int      // the file of the id ranges
	Swept    []int    // see sweepBoxes
	Ranges   []uint32 // that are taken
	Lost     []string // names of sessions that a close could not end
	Sessions []savedSession
}

type savedSession struct {
	Spec   sandbox.Spec
	Base   uint32
	Frozen bool
	Spent  bool
	Groups cgroup.SessionState
	PID    int // of init, outside
	Init   int // our end of its socket
	Conn   guest.State
	Notify int // listener of the filter's notifications
	Net    network.State
	Relay  []int // files of Net
	Stray  denials
	Spaces []savedSpace
	Execs  []savedExec
}

type savedSpace struct {
	State workspace.State
	Files []int
}

type savedExec struct {
	ID                    string
	Background            bool
	Leaf                  string
	Call                  uint64 // of its spawn
	Group                 uint64
	Limits                sandbox.ExecLimits
	Before                cgroup.Events
	Killed                bool
	Spent                 *string
	Denials               denials
	Started               time.Time
	Stdin, Stdout, Stderr int
	Outlet                int
	Result                *sandbox.Result // nil as long as it runs
	Forgotten, Over       bool
}

// stateOptions say how a state is written and read: the format has been compared before,
// so that what is not known is damage.
var stateOptions = json.JoinOptions(
	json.RejectUnknownMembers(true),
	jsonv1.FormatDurationAsNano(true),
)

// Save stops the runner and returns what [Resume] needs. The files stay the runner's. No call may be in
// progress, and none may follow but Continue. If ctx ends first, or something fails, the runner
// goes on.
func (r *Runner) Save(ctx context.Context) (state []byte, files []*os.File, err error) {
	// Their threads would keep execve, and with it everybody, waiting. Nothing has been stopped yet.
	if n := r.renewing.In() + int(r.closing.Load()) + r.placeholders.Hanging(); n > 0 {
		return nil, nil, fmt.Errorf("save: %d look at a file system that does not answer", n)
	}
	defer func() {
		if err != nil {
			r.Continue()
		}
	}()
	for _, slot := range r.stock.close() {
		r.discard(slot)
	}
	var handed bundle
	out := saved{Version: stateVersion, Lock: handed.add(r.state), IDs: handed.add(r.ids.file), Ranges: r.ids.all()}
	for _, f := range r.swept {
		out.Swept = append(out.Swept, handed.add(f))
	}
	for _, s := range r.standing() {
		saved, err := s.save(ctx, &handed)
		if err != nil {
			return nil, nil, fmt.Errorf("save session %s: %w", s.spec.Session, err)
		}
		out.Sessions = append(out.Sessions, saved)
	}
	r.mu.Lock()
	for id, s := range r.sessions {
		if s == nil {
			out.Lost = append(out.Lost, id)
		}
	}
	r.mu.Unlock()
	if state, err = json.Marshal(out, stateOptions, json.Deterministic(true)); err != nil {
		return nil, nil, fmt.Errorf("save: %w", err)
	}
	return state, handed, nil
}

// Continue undoes Save.
func (r *Runner) Continue() {
	for _, s := range r.standing() {
		s.init.Continue()
		if s.paused {
			s.network.Continue()
			s.paused = false
		}
		for _, x := range s.terminals() {
			x.goOn()
		}
		if err := s.hear(s.unheard); err != nil {
			s.tell("session %s: refusals are not told any more: %v", s.spec.Session, err)
		}
	}
	r.stock = r.newStock(r.options.Stock)
}

// bundle is what is handed over, in order.
type bundle []*os.File

// add returns the place of a file.
func (b *bundle) add(f *os.File) int {
	if f == nil {
		return -1
	}
	*b = append(*b, f)
	return len(*b) - 1
}

// save suspends the conversation with init first: from then on nothing happens to executions but
// what has been reported, and that is waited for.
func (s *session) save(ctx context.Context, handed *bundle) (out savedSession, err error) {
	socket, conn, err := s.init.Suspend(ctx)
	if err != nil {
		return out, err
	}
	if err := s.rest(ctx, conn.Live); err != nil {
		return out, err
	}
	// What is refused from here on waits for its answer.
	if err := s.deafen(); err != nil {
		return out, err
	}
	out = savedSession{Spec: s.spec, Base: s.base, PID: s.box.pid, Init: handed.add(socket), Conn: conn, Notify: handed.add(s.unheard)}
	if out.Groups, err = s.groups.Save(); err != nil {
		return out, err
	}
	var files []*os.File
	if out.Net, files, err = s.network.Save(); err != nil {
		return out, err
	}
	s.paused = true
	for _, x := range s.terminals() {
		x.stopPump()
	}
	for _, f := range files {
		out.Relay = append(out.Relay, handed.add(f))
	}
	for _, space := range s.spaces {
		state, files := space.Save()
		saved := savedSpace{State: state}
		for _, f := range files {
			saved.Files = append(saved.Files, handed.add(f))
		}
		out.Spaces = append(out.Spaces, saved)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	out.Frozen, out.Spent, out.Stray = s.frozen, s.spent, s.stray
	for _, x := range s.execs {
		out.Execs = append(out.Execs, savedExec{
			ID: x.id, Background: x.background, Leaf: x.leaf.Name(), Call: x.process.Load().Call(),
			Group: x.group, Limits: x.limits, Before: x.before, Killed: x.killed.Load(), Spent: x.spent.Load(), Denials: x.denials, Started: x.started,
			Stdin: handed.add(x.stdin), Stdout: handed.add(x.stdout), Stderr: handed.add(x.stderr), Outlet: handed.add(x.outlet),
			Result: x.result, Forgotten: x.forgotten, Over: x.over,
		})
	}
	return out, nil
}

// rest waits until every execution runs, by the word of init, or its end has been noted, and
// told to whom it concerns.
func (s *session) rest(ctx context.Context, live map[uint64]int) error {
	for {
		busy := 0
		s.mu.Lock()
		for _, x := range s.execs {
			if p := x.process.Load(); !x.told && (p == nil || live[p.Call()] == 0) {
				busy++
			}
		}
		s.mu.Unlock()
		if busy == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d executions are about to end: %w", busy, ctx.Err())
		case <-time.After(500 * time.Microsecond):
		}
	}
}
