package supervisor

import (
	"cmp"
	"context"
	"io"
	"sync"
	"time"

	"github.com/stockade-dev/stockade/internal/blob"
	"github.com/stockade-dev/stockade/sandbox"
	"github.com/stockade-dev/stockade/supervisor/api"
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
	// disk or a hung file system does not die, and its caller has a right to an answer.
	reapLimit = 10 * time.Second
	// startLimit is how long a command may take to start, which takes milliseconds. What
	// runs in the session already has its identity, and can stop it before it executes; init
	// waits for it then, and serves nobody else meanwhile.
	startLimit = 10 * time.Second
)

// An execution is one command in one session, from its admission to its receipt.
type execution struct {
	id      string
	session *session
	req     *api.Exec
	plan    execPlan
	stdin   *stdin
	stdout  *stream
	stderr  *stream
	wake    *wake
	call    *call // that carries it out

	mu      sync.Mutex
	cause   api.Code  // why the supervisor ended it: the first reason counts
	signal  string    // by what: TERM, then perhaps KILL
	killAt  time.Time // when TERM becomes KILL; the earliest counts
	changed chan struct{}
}

func newExecution(c *call, ses *session, req *api.Exec) *execution {
	return &execution{
		id:      newID("x-"),
		call:    c,
		session: ses,
		req:     req,
		wake:    &wake{},
		changed: make(chan struct{}, 1),
	}
}

// prepare gives the execution its plan, its streams and its stdin.
func (x *execution) prepare(p execPlan, store *blob.Store, memory *budget) error {
	x.plan = p
	x.plan.exec.Session, x.plan.exec.ID = x.session.id, x.id
	x.stdout = &stream{name: "stdout", limit: p.output, store: store, wake: x.wake}
	x.stderr = &stream{name: "stderr", limit: p.output, store: store, wake: x.wake}
	var err error
	x.stdin, err = openStdin(x.req, store, memory)
	return err
}

// abandon gives up an execution that is not going to start.
func (x *execution) abandon() {
	if x.stdin != nil {
		_ = x.stdin.end() // nothing was fed
	}
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
	x.notify()
}

// notify has the run look again at what stop said.
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
	defer x.discard() // no effect after conclude
	if cause, _ := x.stopping(); cause != "" {
		return execFailed(cause), api.Errorf(cause, "the session ended before the command was started")
	}
	x.stdin.feed()
	proc, err := x.start(ctx, s)
	x.stdin.handed()
	watch.lap("spawn")
	if err != nil {
		e := runnerError(err)
		return execFailed(e.Code), e
	}
	drained := x.drain(s, proc)
	res, how := x.wait(ctx, s, proc)
	unfed := x.stdin.end()
	x.await(drained)
	if !x.plan.exec.Background {
		// Nothing of it is left. Who still holds its pipe was handed it by a process, and could
		// collect those of any number of executions.
		x.session.release(proc)
	}
	watch.lap("run")
	result, fault := x.conclude(res, how)
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
			if _, at := x.stopping(); reap == nil {
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
	both.Go(func() { x.stdout.ReadFrom(proc.Stdout) })
	s.background.Go(func() {
		x.stderr.ReadFrom(proc.Stderr)
		both.Wait()
		close(done)
		x.session.release(proc)
	})
	return done
}

// fate is how the wait for a command came to its end.
type fate int

const (
	reaped fate = iota // there is a result
	lost               // the runner is gone
	stuck              // killed, and still there
)

// wait returns the result of the command, having ended it if it had to be ended.
func (x *execution) wait(ctx context.Context, s *Supervisor, proc *sandbox.Process) (sandbox.Result, fate) {
	var timeout, kill, reap <-chan time.Time
	if x.plan.timeout > 0 {
		t := time.NewTimer(x.plan.timeout)
		defer t.Stop()
		timeout = t.C
	}
	for {
		select {
		case res, ok := <-proc.Done:
			if !ok {
				return res, lost
			}
			return res, reaped
		case <-timeout:
			x.stop(api.CodeTimeout, s.defaults.Grace, s.now())
			timeout = nil
		case <-x.changed:
			if reap != nil {
				continue // killed already
			}
			_, at := x.stopping()
			if rest := at.Sub(s.now()); rest > 0 {
				x.deliver(ctx, s, "TERM", rest)
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
		}
	}
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
	x.mark(string(name))
	if err := s.launcher.Signal(ctx, x.session.id, x.id, name.Number()); err != nil {
		s.log.Debug("signal", "session_id", x.session.id, "exec_id", x.id, "signal", name, "error", err)
	}
}

func (x *execution) mark(signal string) {
	x.mu.Lock()
	x.signal = signal
	x.mu.Unlock()
}

// await gives output its time to arrive.
func (x *execution) await(drained <-chan struct{}) {
	select {
	case <-drained: // the common case costs no timer
		return
	default:
	}
	limit := drainLimit
	if x.plan.exec.Background {
		limit = drainBackground
	}
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case <-drained:
	case <-t.C:
	}
}

// conclude is the verdict with the outputs filled in.
func (x *execution) conclude(res sandbox.Result, how fate) (*api.ExecResult, *api.Error) {
	x.mu.Lock()
	cause, sent := x.cause, x.signal
	x.mu.Unlock()
	r, fault := verdict(res, how, cause, sent)
	for _, s := range []struct {
		stream *stream
		output **api.Output
	}{{x.stdout, &r.Stdout}, {x.stderr, &r.Stderr}} {
		out, over, err := s.stream.seal(x.plan.form)
		*s.output = out
		switch {
		case err != nil:
			fault = api.Errorf(api.CodeOutputStoreFailed, "%s: %v", s.stream.name, err)
		case over != nil && fault == nil:
			r.Overflow = over
			fault = api.Errorf(api.CodeInlineRequiredTooLarge, "%s has %d bytes, inline are at most %d", over.Stream, over.SizeBytes, over.LimitBytes)
		}
	}
	if fault != nil {
		r.Status, r.ErrorCode, r.ErrorMessage = "error", fault.Code, fault.Message
	}
	return r, fault
}

// verdict says how a command ended. cause is why the supervisor ended it,
// sent the last signal that it used.
func verdict(res sandbox.Result, how fate, cause api.Code, sent string) (*api.ExecResult, *api.Error) {
	if sent == "" {
		cause = "" // it ended by itself before the reason could take effect
	}
	r := &api.ExecResult{Status: "ok", ExitCode: res.ExitCode, Usage: usage(res.Usage)}
	r.StartedAtNS, r.StartedAt = stamp(res.Started)
	r.EndedAtNS, r.EndedAt = stamp(res.Ended)
	if how == reaped {
		r.Usage.WallNS = int64(res.Ended.Sub(res.Started))
	}
	if res.Signal != 0 {
		name, _ := api.SignalOf(res.Signal)
		r.Status, r.ExitCode, r.Signal = "signaled", -1, string(name)
	}
	switch {
	case how == stuck:
		r.ExitCode = -1
		return r, api.Errorf(api.CodeWaitFailed, "the tree was killed and did not end within %v", reapLimit)
	case how == lost:
		r.ExitCode = -1
		return r, api.Errorf(api.CodeRunnerUnavailable, "the runner was lost while the command ran; how it ended is unknown")
	case cause == api.CodeSpawnFailed:
		r.ExitCode = -1
		return r, api.Errorf(api.CodeSpawnFailed, "the command was kept from starting for %v and was killed", startLimit)
	case cause == api.CodeTimeout, cause == api.CodeSessionExpired:
		r.Status, r.ExitCode, r.ErrorCode = "timeout", -1, cause
		r.Signal = cmp.Or(r.Signal, sent)
	case cause != "":
		r.Status, r.ExitCode, r.ErrorCode = "signaled", -1, cause
		r.Signal = cmp.Or(r.Signal, sent)
	case res.OOM && (res.Signal != 0 || res.ExitCode != 0):
		// A command that died of its child's death by the memory ceiling exits by
		// itself: its exit code stays, and the reason is named (R054).
		r.ErrorCode = api.CodeOOMKilled
	}
	return r, nil
}

func usage(u sandbox.Usage) api.Usage {
	return api.Usage{CPUNS: int64(u.CPU), PeakMemoryBytes: u.PeakMemory, OOMKills: u.OOMKills}
}

// execFailed is the result of a command that was not started.
func execFailed(code api.Code) *api.ExecResult {
	return &api.ExecResult{Status: "error", ExitCode: -1, ErrorCode: code}
}

// collect stores the files that the caller wants back. A path that cannot be had is
// said in its artifact; only a failing store is a fault. All of them together are no more
// than one stream may be: a file costs a session nothing to make large, and us its size.
func (x *execution) collect(ctx context.Context, s *Supervisor, r *api.ExecResult) *api.Error {
	if len(x.req.Outputs) == 0 {
		return nil
	}
	paths := make([]string, len(x.req.Outputs))
	for i, p := range x.req.Outputs {
		paths[i] = resolve(x.session.grant.Workdir, p)
	}
	files, err := s.launcher.Collect(ctx, x.session.id, paths)
	defer func() {
		for _, f := range files {
			if f.File != nil {
				f.File.Close()
			}
		}
	}()
	if err != nil {
		return runnerError(err)
	}
	room := x.plan.output
	for _, f := range files {
		a := api.Artifact{Path: f.Path, SizeBytes: f.Size, Mode: f.Mode, ErrorCode: api.Code(f.Err)}
		if a.ErrorCode == "not_found" {
			a.ErrorCode = api.CodePathNotFound
		}
		switch {
		case f.File == nil:
		case f.Size > room:
			a.ErrorCode = api.CodeTooLarge
		default:
			room -= f.Size
			// Not beyond the size that it had: something inside may be writing it for ever.
			if a.BlobRef, a.SizeBytes, err = s.blobs.Put(io.LimitReader(f.File, f.Size), ""); err != nil {
				return api.Errorf(api.CodeBlobFailed, "store %s: %v", f.Path, err)
			}
		}
		r.Outputs = append(r.Outputs, a)
	}
	return nil
}

// discard ends both streams of an execution that did not start.
func (x *execution) discard() {
	x.stdout.seal(outputForm{require: true})
	x.stderr.seal(outputForm{require: true})
}
