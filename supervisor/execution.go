package supervisor

import (
	"cmp"
	"context"
	"io"
	"math"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/stockade-dev/stockade/internal/failpoint"
	"github.com/stockade-dev/stockade/internal/prompt"
	"github.com/stockade-dev/stockade/internal/spool"
	"github.com/stockade-dev/stockade/sandbox"
	"github.com/stockade-dev/stockade/supervisor/api"
	"github.com/stockade-dev/stockade/supervisor/ledger"
)

// How long the end of an execution may take.
const (
	// drainLimit is how long output may follow the end of a command whose leftovers
	// were killed: the pipes then end with the last of them.
	drainLimit = time.Second
	// drainBackground is the same where leftovers may live: what the command wrote is
	// in the pipe already, and the end of the pipe may never come.
	drainBackground = 50 * time.Millisecond
	// reapLimit is how long a killed tree may stay: a process that waits for a dead
	// disk or a hung file system does not die, and its caller has a right to an answer. Output that the
	// command has written, and nobody has come to take out of its pipe yet, has as long.
	reapLimit = 10 * time.Second
	// startLimit is how long a command may take to start, which takes milliseconds. What
	// runs in the session already has its identity, and can stop it before it executes; init
	// waits for it then, and serves nobody else meanwhile.
	startLimit = 10 * time.Second
)

// startedAfter is how long a command runs before that is worth a write of its own to the journal;
// of one that ends sooner it is written with the receipt.
const startedAfter = 5 * time.Millisecond

// An execution is one command in one session, from its admission to its receipt.
type execution struct {
	id       string
	session  *session
	req      *api.Exec
	plan     execPlan
	stdin    *stdin
	log      *spool.Log
	call     *call           // that carries it out
	turn     chan struct{}   // closed when it may start; nil if it need not wait (R052)
	held     bool            // the runner has it already: it is gone on with, not started
	withheld bool            // it waits for leave; guarded by its session's lock
	input    *input          // nil unless it was started with its stdin open
	shell    *shell          // nil unless it has a terminal
	drained  <-chan struct{} // closed when both its pipes have ended; nil before it has some

	progressed ledger.Progress // of one that is held: what was done to it so far

	wake wake // of those who wait for frames and for the end

	framing sync.Mutex // one frame at a time
	told    bool       // that it has started; guarded by framing

	mu      sync.Mutex
	cause   api.Code  // why the supervisor ended it: the first reason counts
	signal  string    // by what: TERM, then perhaps KILL
	killAt  time.Time // when TERM becomes KILL; the earliest counts
	started time.Time // zero until it has
	timeout time.Duration
	paused  bool
	readers int                            // of log
	counted struct{ stdout, stderr int64 } // of its output, by the metrics
	over    bool                           // nobody follows from here on
	changed chan struct{}
	freezer chan struct{} // held, with capacity 1, while the execution is frozen or thawed
}

func newExecution(c *call, ses *session, req *api.Exec) *execution {
	x := &execution{
		id:      newID("x-"),
		call:    c,
		session: ses,
		req:     req,
		changed: make(chan struct{}, 1),
		freezer: make(chan struct{}, 1),
	}
	if req.StdinOpen {
		x.input = newInput()
	}
	return x
}

// onTerminal makes it a shell, if that was asked for. It has its id by now.
func (x *execution) onTerminal(s *Supervisor) {
	if x.req.Terminal != nil {
		x.shell = newShell(prompt.Nonce(s.salt, x.id), x.req.Terminal)
		var hooks prompt.Hooks
		hooks, x.shell.hooked = prompt.HooksOf(x.plan.exec.Argv, nil, x.shell.nonce, sandbox.ScriptFD)
		x.shell.starts = hooks.Begins
	}
}

// prepare gives the execution its plan, its log and its stdin.
func (x *execution) prepare(p execPlan, s *Supervisor) error {
	x.follows(p)
	x.onTerminal(s)
	if x.shell != nil {
		x.log = s.spool.CreateRing(x.id, p.output)
		x.plan.exec.Terminal.Script = x.hook()
	} else {
		x.log = s.spool.Create(x.id, p.output)
	}
	var err error
	if x.stdin, err = openStdin(x.req, s.blobs, &s.stdins); err != nil {
		return err
	}
	if x.input != nil {
		x.input.begins(x.stdin.detach())
	}
	x.plan.exec.StdinOpen = x.input != nil || x.stdin.isFed()
	return nil
}

func (x *execution) follows(p execPlan) {
	x.plan = p
	x.plan.exec.Session, x.plan.exec.ID = x.session.id, x.id
	x.timeout = p.timeout
}

// abandon gives up an execution that is not going to start.
func (x *execution) abandon() {
	if x.stdin != nil {
		_ = x.stdin.end() // nothing was fed
	}
	x.retire()
}

// stop ends the execution: TERM now and KILL after grace, or KILL at once when there is
// no grace (R076). Later calls can only make it sooner.
func (x *execution) stop(cause api.Code, grace time.Duration, now time.Time) {
	x.mu.Lock()
	x.cause = cmp.Or(x.cause, cause)
	if at := now.Add(grace); x.killAt.IsZero() || at.Before(x.killAt) {
		x.killAt = at
	}
	x.mu.Unlock()
	if x.shell != nil {
		x.shell.close()
	}
	x.notify()
}

// notify has the run look again at what stop or modify said.
func (x *execution) notify() {
	select {
	case x.changed <- struct{}{}:
	default: // the run has been told and has not looked yet
	}
}

func (x *execution) stopping() (cause api.Code, killAt time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.cause, x.killAt
}

// run carries the execution out: start, drain, wait, and end it when its time is up or
// the session ends. It always returns a result; the error says what the result cannot.
func (x *execution) run(ctx context.Context, s *Supervisor, watch *stopwatch) (*api.ExecResult, *api.Error) {
	defer x.stdin.end()
	defer x.retire()
	if x.turn != nil {
		if !x.queue(s) {
			return nil, errLeft
		}
		watch.lap("queue")
	}
	proc, result, fault := x.begun(ctx, s, watch)
	if proc == nil {
		return result, fault
	}
	failpoint.Hit("supervisor.exec.started")
	x.stdin.feed(proc.Stdin, func() { x.closeStdin(s) })
	return x.finish(ctx, s, proc, watch)
}

// begun starts the command, unless there is a reason not to by now: then there is a result.
func (x *execution) begun(ctx context.Context, s *Supervisor, watch *stopwatch) (*sandbox.Process, *api.ExecResult, *api.Error) {
	x.session.space.RLock() // it would be refused in a session that stands still for a commit
	defer x.session.space.RUnlock()
	switch cause, _ := x.stopping(); cause {
	case "":
	case api.CodeCanceled:
		return nil, &api.ExecResult{Status: "signaled", ExitCode: -1, ErrorCode: cause, ErrorMessage: "canceled before it was started"}, nil
	default:
		return nil, execFailed(cause), api.Errorf(cause, "the session ended before the command was started")
	}
	if e := x.record(s); e != nil {
		return nil, execFailed(e.Code), e
	}
	proc, err := x.start(ctx, s)
	x.stdin.handed()
	watch.lap("spawn")
	if err != nil {
		e := runnerError(err)
		return nil, execFailed(e.Code), e
	}
	return proc, nil, nil
}

// queue waits for the execution's turn, or for a reason not to start it. It reports false when
// the supervisor leaves.
func (x *execution) queue(s *Supervisor) bool {
	for {
		select {
		case <-x.turn:
			x.frame(s, api.FrameStarting, api.FramePayload{})
			return true
		case <-x.changed:
			if cause, _ := x.stopping(); cause != "" {
				return true
			}
		case <-s.left:
			return false
		}
	}
}

// finish follows a command that was started to its end.
func (x *execution) finish(ctx context.Context, s *Supervisor, proc *sandbox.Process, watch *stopwatch) (*api.ExecResult, *api.Error) {
	x.begin(proc)
	if x.input != nil {
		x.input.open(proc.Stdin, x.progressed)
		x.input.feed(x, s)
	}
	x.drained = x.drain(s, proc)
	unfollow := x.followShell(s)
	res, how := x.wait(ctx, s, proc)
	if how == left {
		// Our ends first: what is in the pipes is for the successor, and a closed log would drop it.
		x.session.release(proc)
		<-x.drained
		unfollow()
		return nil, errLeft
	}
	unfed := x.stdin.end()
	if x.input != nil {
		x.input.end()
	}
	x.await(x.drained, proc)
	if !x.plan.exec.Background {
		// Nothing of it is left. Who still holds its pipe was handed it by a process, and could
		// collect those of any number of executions.
		x.session.release(proc)
	}
	watch.lap("run")
	unfollow()
	result, fault := x.conclude(res, how, s)
	if slices.ContainsFunc(res.Denials, func(d sandbox.Denial) bool { return d.Rule == sandbox.RuleNetworkLost }) {
		s.networkLost(x.session)
	}
	if unfed != nil && fault == nil { // the command took a part for the whole
		fault = api.Errorf(api.CodeBlobFailed, "stdin: %v", unfed)
		result.Status, result.ErrorCode, result.ErrorMessage = "error", fault.Code, fault.Message
	}
	if how == reaped {
		if e := x.collect(ctx, s, result); e != nil && fault == nil {
			result.Status, result.ErrorCode, result.ErrorMessage = "error", e.Code, e.Message
			fault = e
		}
	}
	watch.lap("store")
	return result, fault
}

// errLeft stands for the result of an execution that goes on without this supervisor.
var errLeft = api.Errorf(api.CodeShuttingDown, "the supervisor leaves the execution to its successor")

// begin notes what can only be known once there is a process.
func (x *execution) begin(proc *sandbox.Process) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.started = proc.Started
}

// start starts the command. What has not started when its time is up, or the session's, is
// killed: then there is a process that was killed, or an error.
func (x *execution) start(ctx context.Context, s *Supervisor) (*sandbox.Process, error) {
	starting, cancel := context.WithCancel(ctx)
	defer cancel()
	started := make(chan struct{})
	var hurry sync.WaitGroup
	hurry.Go(func() { x.hurry(starting, cancel, s, started) })
	defer hurry.Wait()
	defer close(started)
	proc, err := s.launcher.Start(starting, x.plan.exec, x.stdin.file)
	if err != nil && starting.Err() != nil && ctx.Err() == nil {
		return nil, sandbox.Errorf(string(api.CodeWaitFailed), "the command did not start, and killing it had no effect within %v", reapLimit)
	}
	return proc, err
}

// hurry kills what does not start in time, and cancels the start when that has no effect.
func (x *execution) hurry(ctx context.Context, cancel func(), s *Supervisor, started <-chan struct{}) {
	cause, patience := api.CodeSpawnFailed, startLimit
	if t := x.plan.timeout; 0 < t && t < patience {
		cause, patience = api.CodeTimeout, t
	}
	limit := time.NewTimer(patience)
	defer limit.Stop()
	stopped := false
	var reap <-chan time.Time
	for {
		select {
		case <-started:
			if stopped {
				x.notify() // what was received here is for the wait to see
			}
			return
		case <-x.changed:
			stopped = true
			if cause, at := x.stopping(); cause != "" && reap == nil {
				limit.Reset(max(0, min(patience, at.Sub(s.now()))))
			}
		case <-limit.C:
			x.stop(cause, 0, s.now())
			reap = x.kill(ctx, s)
		case <-reap:
			cancel()
		}
	}
}

// drain reads both pipes to their end, whatever becomes of the execution meanwhile:
// background processes must not be stopped by a pipe that nobody reads. The channel is
// closed when both have ended; the end of the session ends them at the latest.
func (x *execution) drain(s *Supervisor, proc *sandbox.Process) <-chan struct{} {
	done := make(chan struct{})
	x.session.hold(proc)
	var both sync.WaitGroup
	both.Go(func() { drain(x.log, spool.Stdout, proc.Stdout) }) // ends with the pipe, or by release
	s.background.Go(func() {
		drain(x.log, spool.Stderr, proc.Stderr)
		both.Wait()
		close(done)
		x.session.release(proc)
	})
	return done
}

// drain moves what comes out of a pipe into the log, and for a launcher that has no kernel below it
// copies it.
func drain(log *spool.Log, st spool.Stream, from io.Reader) {
	if pipe, ok := from.(*os.File); ok {
		_ = log.Drain(st, pipe)
		return
	}
	_ = log.Copy(st, from)
}

// fate is how the wait for a command came to its end.
type fate int

const (
	reaped fate = iota // there is a result
	lost               // the runner is gone
	stuck              // killed, and still there
	left               // it goes on, and the supervisor does not
)

// wait returns the result of the command, having ended it if it had to be ended.
func (x *execution) wait(ctx context.Context, s *Supervisor, proc *sandbox.Process) (sandbox.Result, fate) {
	var kill, reap <-chan time.Time
	limit := time.NewTimer(x.rest(s.now()))
	defer limit.Stop()
	told := time.NewTimer(startedAfter)
	defer told.Stop()
	progress := time.NewTicker(s.defaults.Progress)
	defer progress.Stop()
	for {
		select {
		case res, ok := <-proc.Done:
			if !ok {
				return res, lost
			}
			return res, reaped
		case <-told.C:
			x.tell(s)
		case <-progress.C:
			x.progress(s)
		case <-limit.C:
			x.stop(api.CodeTimeout, s.defaults.Grace, s.now())
		case <-x.changed:
			cause, at := x.stopping()
			if cause == "" { // its time limit is another one
				limit.Reset(x.rest(s.now()))
				continue
			}
			// The limit stays: a grace is what the caller says, and no way beyond it (C5).
			if reap != nil {
				continue // killed already
			}
			if rest := at.Sub(s.now()); rest > 0 {
				if kill == nil { // it is told once, however many want its end
					x.deliver(ctx, s, "TERM", rest)
				}
				t := time.NewTimer(rest)
				defer t.Stop()
				kill = t.C
				continue
			}
			reap = x.kill(ctx, s)
		case <-kill:
			kill = nil
			reap = x.kill(ctx, s)
		case <-reap:
			return sandbox.Result{}, stuck
		case <-s.left:
			return sandbox.Result{}, left
		}
	}
}

// rest is how long the execution may still run.
func (x *execution) rest(now time.Time) time.Duration {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.timeout <= 0 {
		return math.MaxInt64 // its session's end is its own
	}
	return max(0, x.timeout-now.Sub(x.started))
}

// tell says that the command runs, once.
func (x *execution) tell(s *Supervisor) {
	x.framing.Lock()
	defer x.framing.Unlock()
	if !x.told {
		x.told = true
		x.recordFrame(s, api.FrameStarted, api.FramePayload{})
	}
}

// progress says how far it is (R136).
func (x *execution) progress(s *Supervisor) {
	p := x.totals()
	x.mu.Lock()
	p.ElapsedNS = int64(s.now().Sub(x.started))
	x.mu.Unlock()
	x.frame(s, api.FrameProgress, p)
}

func (x *execution) kill(ctx context.Context, s *Supervisor) (reap <-chan time.Time) {
	x.mark("KILL")
	if err := s.launcher.Kill(ctx, x.session.id, x.id); err != nil {
		s.log.Warn("kill", "session_id", x.session.id, "exec_id", x.id, "error", err)
	}
	return time.After(reapLimit)
}

// deliver signals the command. Init delivers, and can be kept from it (see startLimit): what
// comes next does not wait longer than its time.
func (x *execution) deliver(ctx context.Context, s *Supervisor, name api.SignalName, within time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	if x.shell != nil {
		name = "HUP" // an interactive shell does not end of TERM, and whatever has a terminal of its hanging up
	}
	x.mark(string(name))
	x.thaw(ctx, s) // or it would never hear it
	if x.shell != nil {
		_ = s.launcher.Foreground(ctx, x.session.id, x.id, name.Number()) // who is there holds the shell up; often it is the shell
		defer s.launcher.Signal(ctx, x.session.id, x.id, api.SignalName("CONT").Number())
	}
	if err := s.launcher.Signal(ctx, x.session.id, x.id, name.Number()); err != nil {
		s.log.Debug("signal", "session_id", x.session.id, "exec_id", x.id, "signal", name, "error", err)
	}
}

func (x *execution) mark(signal string) {
	x.mu.Lock()
	x.signal = signal
	x.mu.Unlock()
}

// await gives output its time to arrive: to the end of the pipes or, where that does not come, until what was in them when the command ended
// is out of them, however busy the machine is.
func (x *execution) await(drained <-chan struct{}, proc *sandbox.Process) {
	select {
	case <-drained: // the common case costs no timer
		return
	default:
	}
	follows := drainLimit
	if x.plan.exec.Background {
		follows = drainBackground
	}
	stdoutDue, stderrDue := x.ahead(spool.Stdout, proc.Stdout), x.ahead(spool.Stderr, proc.Stderr)
	look, limit := time.NewTimer(follows), time.NewTimer(reapLimit)
	defer look.Stop()
	defer limit.Stop()
	for {
		select {
		case <-drained:
			return
		case <-limit.C: // nobody takes it out
			return
		case <-look.C:
			if stdout, stderr := x.written(); stdout >= stdoutDue && stderr >= stderrDue {
				return
			}
			look.Reset(time.Millisecond)
		}
	}
}

// ahead is what written will be of a stream when all has been taken out of its pipe that is in it now.
func (x *execution) ahead(st spool.Stream, from io.Reader) int64 {
	pipe, ok := from.(*os.File)
	if !ok || x.log == nil {
		return 0
	}
	return x.log.Ahead(st, pipe)
}

// written is what the command has written so far, kept or not.
func (x *execution) written() (stdout, stderr int64) {
	if x.log == nil {
		return 0, 0
	}
	return x.log.Total(spool.Stdout), x.log.Total(spool.Stderr)
}

// kept is how much of its output is in files.
func (x *execution) kept() int64 {
	if x.log == nil {
		return 0
	}
	recorded, _ := x.log.Recorded()
	return x.log.Kept(spool.Stdout) - x.log.First(spool.Stdout) + min(recorded, x.log.First(spool.Stdout)) + x.log.Kept(spool.Stderr)
}

// follow takes the log for a reader, or reports false when there is none any more: what it held
// is in the store, and in the receipt.
func (x *execution) follow() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.over || x.log == nil {
		return false
	}
	x.readers++
	return true
}

// leave gives the log back.
func (x *execution) leave() {
	x.mu.Lock()
	x.readers--
	last := x.over && x.readers == 0
	x.mu.Unlock()
	if last {
		x.log.Close()
	}
}

// retire closes the log to new readers, and with the last reader altogether. Nobody writes its stdin
// from here on.
func (x *execution) retire() {
	if x.input != nil {
		x.input.end()
	}
	x.mu.Lock()
	first := !x.over
	x.over = true
	last := first && x.readers == 0 && x.log != nil
	x.mu.Unlock()
	if last {
		x.log.Close()
	}
}
