package supervisor

import (
	"cmp"
	"context"
	"errors"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/stockade-dev/stockade/internal/blob"
	"github.com/stockade-dev/stockade/rego"
	"github.com/stockade-dev/stockade/sandbox"
	"github.com/stockade-dev/stockade/supervisor/api"
	"github.com/stockade-dev/stockade/supervisor/ledger"
)

// operation is what differs between operations in the pipeline.
type operation struct {
	// admit finds the session and takes what the operation needs of the registry.
	admit func(*Supervisor, *call) *refusal
	// plan turns the decision into what is going to be done.
	plan func(*Supervisor, *call) *refusal
	// abandon gives back what admit and plan took. It follows every refusal.
	abandon func(*Supervisor, *call)
	// act does it. A fault may come with a payload.
	act func(context.Context, *Supervisor, *call) (api.Payload, *api.Error)
	// settled follows the receipt; c.receipt is nil if it could not be recorded.
	settled func(*Supervisor, *call)
	// failed is the payload when nothing was done.
	failed func(code api.Code, message string) api.Payload
}

// operations with effect. Reads are in reads.
var operations = map[api.Op]operation{
	api.OpSessionOpen:   {admitOpen, planOpen, abandonOpen, actOpen, settledOpen, failedOpen},
	api.OpExec:          {admitExec, planExecution, abandonExec, actExec, settledExec, failedExec},
	api.OpSessionSignal: {admitSignal, planSignal, nothing, actSignal, nil, failedSignal},
	api.OpSessionPause:  {admitSession, noPlan, nothing, actSessionPause, nil, failedControl},
	api.OpSessionResume: {admitSession, noPlan, nothing, actSessionResume, nil, failedControl},
	api.OpSessionClose:  {admitClose, noPlan, nothing, actClose, nil, failedClose},
	api.OpProcessInput:  {admitControl, planInput, abandonInput, actInput, nil, failedControl},
	api.OpProcessSignal: {admitControl, planDeliver, nothing, actDeliver, nil, failedControl},
	api.OpProcessModify: {admitControl, planModify, nothing, actModify, nil, failedControl},
	api.OpProcessPause:  {admitControl, noPlan, nothing, actPause, nil, failedControl},
	api.OpProcessResume: {admitControl, noPlan, nothing, actResume, nil, failedControl},
	api.OpProcessCancel: {admitControl, noPlan, nothing, actCancel, nil, failedControl},
	api.OpProcessDelete: {admitControl, noPlan, nothing, actDelete, settledDelete, failedControl},
	api.OpProcessStop:   {admitStop, noPlan, nothing, actStop, nil, failedControl},
	api.OpDrain:         {admitDrain, noPlan, nothing, actDrain, nil, failedControl},
	api.OpBlobPut:       {admitBlob, noPlan, nothing, actBlob, nil, failedBlob},
}

func noPlan(*Supervisor, *call) *refusal { return nil }
func nothing(*Supervisor, *call)         {}

// host.session.open

func admitOpen(s *Supervisor, c *call) *refusal {
	if err := c.req.Validate(); err != nil {
		return faulted(err)
	}
	if s.draining.Load() {
		return faulted(errDraining)
	}
	ses := newSession(c.req.Principal, c.req.Open)
	ses.intent, ses.policy = c.intent, s.policy.Digest()
	if err := s.registry.add(ses, s.ceiling); err != nil {
		return faulted(err)
	}
	c.session = ses
	return nil
}

func planOpen(s *Supervisor, c *call) *refusal {
	grant, clamped, deny := rego.Meet(c.req.Open, *c.decision.Grant, s.ceiling)
	c.clamped = clamped
	if len(deny) > 0 {
		return denied(deny...)
	}
	grant.Hostname = cmp.Or(grant.Hostname, "stockade")
	grant.Workdir = cmp.Or(grant.Workdir, "/")
	if end := expiry(&grant, c.at); !end.IsZero() && !end.After(c.at) {
		return denied(api.Deny{Code: api.CodeExpired, Subject: "grant"})
	}
	spec, err := plan(c.req, &grant, c.facts, s.host)
	if err != nil {
		return faulted(err)
	}
	spec.Session = c.session.id
	spec.WithDaemon = grant.OnRestart == "terminate"
	if spec.Keep, err = c.session.keep(); err != nil {
		return faulted(err)
	}
	if err := spec.Validate(); err != nil {
		return faulted(invalid(err))
	}
	c.grant, c.spec = &grant, spec
	return nil
}

func abandonOpen(s *Supervisor, c *call) {
	if c.session != nil {
		s.registry.remove(c.session)
		c.session = nil
	}
}

// How long a session may take to be built, which takes milliseconds: and with inputs to be
// digested, which can be whole file systems.
const (
	buildLimit  = 30 * time.Second
	digestLimit = 30 * time.Minute
)

func actOpen(ctx context.Context, s *Supervisor, c *call) (api.Payload, *api.Error) {
	limit := buildLimit
	if digests(&c.spec) {
		limit = digestLimit
	}
	building, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	enforced, err := s.launcher.Open(building, c.spec)
	if errors.Is(err, context.DeadlineExceeded) {
		err = sandbox.Errorf(sandbox.CodeInternal, "the session was not built within %v", limit)
		// It may have been finished at the last moment.
		if _, cerr := s.launcher.Close(ctx, c.session.id); cerr != nil && !gone(cerr) {
			s.log.Warn("close session", "session_id", c.session.id, "error", cerr)
		}
	}
	c.watch.lap("build")
	for _, t := range enforced.Timings {
		c.watch.laps = append(c.watch.laps, api.Timing{Stage: "build." + t.Step, NS: int64(t.Took)})
	}
	if err != nil {
		fault := runnerError(err)
		abandonOpen(s, c)
		return failedOpen(fault.Code, fault.Message), fault
	}
	started := s.now()
	r := &api.OpenResult{
		SessionID: c.session.id,
		Status:    "ready",
		Grant:     c.grant,
		Enforced:  evidence(enforced),
	}
	for _, d := range enforced.Inputs {
		r.Inputs = append(r.Inputs, api.Digest{Path: d.Path, Digest: d.Digest, Files: d.Files, SizeBytes: d.Bytes})
	}
	r.StartedAtNS, r.StartedAt = stamp(started)
	r.ExpiresAtNS, r.ExpiresAt = stamp(expiry(c.grant, started))
	c.session.started = started // nobody else knows the session yet
	return api.Payload{Open: r}, nil
}

// digests reports whether the content of inputs is read while the session is built.
func digests(spec *sandbox.Spec) bool {
	return len(spec.Root.Paths) > 0 || slices.ContainsFunc(spec.Mounts, func(m sandbox.Mount) bool { return m.Digest })
}

// settledOpen puts the session into service once its receipt is durable, or tears it
// down: a session that no record knows must not live.
func settledOpen(s *Supervisor, c *call) {
	ses := c.session
	if ses == nil {
		return
	}
	if ses.started.IsZero() { // it was not built, by a bug
		abandonOpen(s, c)
		return
	}
	s.serve(ses, c.grant)
	if c.receipt == nil {
		s.endSession(ses, endUnrecorded, 0)
		return
	}
	select {
	case <-s.launcher.Done(): // after watchRunner had looked for sessions to end
		s.endSession(ses, endRunnerGone, 0)
	default:
	}
}

// serve puts a session into service, and ends it when its time is over.
func (s *Supervisor) serve(ses *session, grant *api.Grant) {
	// What a timer begins is work like any other: it is not begun when the supervisor closes, and
	// waited for otherwise.
	timed := func(work func()) func() {
		return func() {
			if s.admission.enter() {
				defer s.admission.leave()
				work()
			}
		}
	}
	idle := idleClock{
		after: time.Duration(grant.IdleNS),
		grace: cmp.Or(s.defaults.IdleGrace, min(30*time.Second, time.Duration(grant.IdleNS)/2)),
		fire:  timed(func() { s.idle(ses) }),
	}
	load := loadWatch{interval: s.defaults.LoadInterval, fire: timed(func() { s.lookAtLoad(ses) })}
	ses.ready(grant, s.now(), timed(func() { s.endSession(ses, endExpired, s.defaults.Grace) }), idle, load)
}

var errDraining = api.Errorf(api.CodeDraining, "the supervisor is being drained and takes no new work")

func failedOpen(code api.Code, message string) api.Payload {
	return api.Payload{Open: &api.OpenResult{Status: "error", ErrorCode: code, ErrorMessage: message}}
}

func evidence(e sandbox.Enforced) *api.Enforced {
	return &api.Enforced{
		Namespaces:   e.Namespaces,
		NoNewPrivs:   e.NoNewPrivs,
		Seccomp:      e.Seccomp,
		Capabilities: strconv.FormatUint(e.Capabilities, 16),
		MemoryBytes:  e.MemoryBytes,
		SwapBytes:    e.SwapBytes,
		CPUMillis:    e.CPUMillis,
		PIDs:         e.PIDs,
		Mounts:       e.Mounts,
		Cgroup:       e.Cgroup,
	}
}

// host.exec

func admitExec(s *Supervisor, c *call) *refusal {
	if err := c.req.Validate(); err != nil {
		return faulted(err)
	}
	ses, err := s.registry.find(c.req.Principal, c.req.Exec.SessionID)
	if err != nil {
		return faulted(err)
	}
	c.session = ses
	if s.draining.Load() {
		return faulted(errDraining)
	}
	if err := s.registry.enlist(c, s.ceiling); err != nil {
		return faulted(err)
	}
	x := newExecution(c, ses, c.req.Exec)
	if err := ses.admit(x, c.at, s.defaults.Queue); err != nil {
		s.registry.delist(c)
		return faulted(err)
	}
	c.execution = x
	return nil
}

func planExecution(s *Supervisor, c *call) *refusal {
	ses := c.session
	p, deny, err := planExec(c.req.Exec, ses.grant, ses.env, *c.decision, s.defaults, ses.left(c.at))
	switch {
	case len(deny) > 0:
		return denied(deny...)
	case err != nil:
		return faulted(err)
	}
	c.clamped = p.clamped
	if err := c.execution.prepare(p, s); err != nil {
		return faulted(err)
	}
	if err := c.execution.plan.exec.Validate(); err != nil {
		return faulted(invalid(err))
	}
	return nil
}

// invalid is a Spec or Exec that is not well formed, before the runner sees it: it is
// what the caller asked for that no kernel can bear.
func invalid(err error) *api.Error {
	if e, ok := errors.AsType[*sandbox.Error](err); ok {
		return api.Errorf(api.CodeInvalidParams, "%s", e.Msg)
	}
	return api.Errorf(api.CodeInvalidParams, "%v", err)
}

func abandonExec(s *Supervisor, c *call) {
	if c.execution != nil {
		c.execution.abandon()
		s.dismiss(c.execution, true)
		c.execution = nil
	}
}

func actExec(ctx context.Context, s *Supervisor, c *call) (api.Payload, *api.Error) {
	carry := c.execution.run
	if c.execution.held {
		carry = c.execution.resume
	}
	result, fault := carry(ctx, s, &c.watch)
	if fault != nil && result != nil {
		result.ErrorMessage = fault.Message
	}
	return api.Payload{Exec: result}, fault
}

func settledExec(s *Supervisor, c *call) {
	if c.execution != nil {
		s.dismiss(c.execution, false)
	}
}

func (s *Supervisor) dismiss(x *execution, refused bool) {
	x.session.dismiss(x, refused, s.now())
	s.registry.delist(x.call)
}

func failedExec(code api.Code, message string) api.Payload {
	return api.Payload{Exec: &api.ExecResult{Status: "error", ExitCode: -1, ErrorCode: code, ErrorMessage: message}}
}

// host.session.signal

func admitSignal(s *Supervisor, c *call) *refusal {
	if err := c.req.Validate(); err != nil {
		return faulted(err)
	}
	ses, err := s.registry.find(c.req.Principal, c.req.Signal.SessionID)
	if err != nil {
		return faulted(err)
	}
	c.session = ses
	return nil
}

func planSignal(_ *Supervisor, c *call) *refusal { return signalGranted(c, c.req.Signal.Signal) }

// actSignal delivers to every live execution; term and kill also end the session (C7).
func actSignal(ctx context.Context, s *Supervisor, c *call) (api.Payload, *api.Error) {
	ask, ses := c.req.Signal, c.session
	r := &api.SignalResult{Status: "signaled", Signal: string(ask.Signal)}
	over := ses.usable(s.now()) != nil
	if over {
		r.Status = "already_exited"
	}
	switch {
	case ask.Signal == "TERM":
		s.endSession(ses, endSignal, s.grace(ask.GraceNS))
	case ask.Signal == "KILL":
		s.endSession(ses, endSignal, 0)
	case over:
		<-ses.closed
	default:
		for _, x := range ses.executing() {
			if err := s.launcher.Signal(ctx, ses.id, x.id, ask.Signal.Number()); err != nil && !gone(err) {
				fault := runnerError(err)
				return failedSignal(fault.Code, ""), fault
			}
		}
		return api.Payload{Signal: r}, nil
	}
	end := ses.result()
	r.EndedAtNS, r.EndedAt = end.EndedAtNS, end.EndedAt
	return api.Payload{Signal: r}, nil
}

// gone reports that the execution ended, or has not begun, as the signal came.
func gone(err error) bool {
	e, ok := errors.AsType[*sandbox.Error](err)
	return ok && (e.Code == sandbox.CodeNoExec || e.Code == sandbox.CodeNoSession)
}

func (s *Supervisor) grace(asked *int64) time.Duration {
	if asked == nil {
		return s.defaults.Grace
	}
	return time.Duration(*asked)
}

func failedSignal(code api.Code, _ string) api.Payload {
	status := "error"
	if code == api.CodeSessionNotFound {
		status = "not_found"
	}
	return api.Payload{Signal: &api.SignalResult{Status: status, ErrorCode: code}}
}

// host.session.close

func admitClose(s *Supervisor, c *call) *refusal {
	if err := c.req.Validate(); err != nil {
		return faulted(err)
	}
	ses, err := s.registry.find(c.req.Principal, c.req.Close.SessionID)
	if err != nil {
		return faulted(err)
	}
	c.session = ses
	return nil
}

// actClose ends the session, or reports how it ended: the answer is the same every
// time (R030).
func actClose(_ context.Context, s *Supervisor, c *call) (api.Payload, *api.Error) {
	grace := s.grace(c.req.Close.GraceNS)
	if c.req.Close.Mode == "force" {
		grace = 0
	}
	s.endSession(c.session, endClosed, grace)
	return api.Payload{Close: c.session.result()}, nil
}

func failedClose(code api.Code, _ string) api.Payload {
	status := "error"
	if code == api.CodeSessionNotFound {
		status = "not_found"
	}
	return api.Payload{Close: &api.CloseResult{Status: status}}
}

// endSession ends a session in the one order that leaves nothing behind: executions
// first, then the sandbox, then the record. It returns when the end is recorded,
// whoever began it; a call that comes later can only shorten the grace.
func (s *Supervisor) endSession(ses *session, why ending, grace time.Duration) {
	live, first := ses.close(why)
	for _, x := range live {
		x.stop(why.cause, grace, s.now())
	}
	if !first {
		if ses.visible() {
			<-ses.closed
		}
		return // a session that is still being built is ended by whoever builds it
	}
	s.thawToEnd(ses)
	s.finishSession(ses)
}

// finishSession is the rest of the end, for whom it is to do: there is one.
func (s *Supervisor) finishSession(ses *session) {
	defer close(ses.closed)
	ses.settling.Wait()
	used, err := s.launcher.Close(s.ctx, ses.id)
	if err != nil && !gone(err) {
		s.log.Warn("close session", "session_id", ses.id, "error", err)
	}
	ses.releaseAll()
	ses.finish(s.now(), usage(used))
	s.registry.retire(ses)
	d := ses.document()
	_, err = s.record(s.ctx, s.journal.Settle, &ledger.SessionEnd{
		Header:    ledger.At(s.now()),
		SessionID: ses.id,
		State:     d.State,
		Reason:    d.Reason,
		Usage:     d.Usage,
	})
	s.log.Info("session ended", "session_id", ses.id, "reason", d.Reason, "executions", d.Executions, "recorded", err == nil)
}

// blob.put

func admitBlob(s *Supervisor, c *call) *refusal {
	if err := c.req.Validate(); err != nil {
		return faulted(err)
	}
	if c.content == nil {
		return faulted(api.Errorf(api.CodeInvalidParams, "a blob needs content"))
	}
	return nil
}

// actBlob stores exactly the size that policy judged.
func actBlob(_ context.Context, s *Supervisor, c *call) (api.Payload, *api.Error) {
	ask := c.req.Blob
	content := &exactly{r: c.content, rest: ask.SizeBytes}
	ref, size, err := s.blobs.Put(content, ask.BlobRef)
	c.watch.lap("store")
	if err == nil {
		return api.Payload{Blob: &api.BlobResult{BlobRef: ref, SizeBytes: size}}, nil
	}
	if e, ok := errors.AsType[*api.Error](err); ok { // the content's own: it did not arrive
		return api.Payload{}, e
	}
	fault := api.Errorf(api.CodeBlobFailed, "%v", err)
	if errors.Is(err, blob.ErrMismatch) || errors.Is(err, errSize) {
		fault.Code = api.CodeBlobMismatch
	}
	return api.Payload{}, fault
}

func failedBlob(api.Code, string) api.Payload { return api.Payload{} }

var errSize = errors.New("the content does not have the size that was announced")

// exactly fails unless r has exactly rest bytes.
type exactly struct {
	r    io.Reader
	rest int64
}

func (e *exactly) Read(p []byte) (int, error) {
	n, err := e.r.Read(p)
	e.rest -= int64(n)
	if e.rest < 0 || err == io.EOF && e.rest != 0 {
		return n, errSize
	}
	return n, err
}

// Operations returns every operation that is served, in order of name.
func Operations() []api.Op {
	ops := slices.Clone(reads)
	for op := range operations {
		ops = append(ops, op)
	}
	slices.Sort(ops)
	return ops
}
