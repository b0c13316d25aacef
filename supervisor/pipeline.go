package supervisor

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"time"

	"github.com/stockade-dev/stockade/internal/failpoint"
	"github.com/stockade-dev/stockade/internal/journal"
	"github.com/stockade-dev/stockade/rego"
	"github.com/stockade-dev/stockade/sandbox"
	"github.com/stockade-dev/stockade/supervisor/api"
	"github.com/stockade-dev/stockade/supervisor/ledger"
)

// Do carries out one operation with effect and returns its receipt, whatever the
// outcome: a denial and a fault have receipts too. An error means that there is none,
// because the supervisor is shutting down, the journal cannot be written, or ctx ended:
// ctx ends the waiting, never the work.
//
// emit, if not nil, is called in order: with the acceptance once the intent is durable,
// then with the frames and the output of an execution while it runs. It may be slow; nothing
// waits for it but the caller.
//
// Principal must be complete, the scope included. With a Key that was used before, nothing happens
// again: the receipt is the one that there is, or is going to be.
func (s *Supervisor) Do(ctx context.Context, req *api.Request, emit func(api.Event)) (*api.Receipt, error) {
	c, err := s.begin(req, nil)
	if err != nil {
		return nil, err
	}
	return s.await(ctx, c, emit)
}

// Start is Do for a host.exec that is not waited for, or for so long only as its WaitMS says:
// the answer is the receipt, or where the execution is by then.
func (s *Supervisor) Start(ctx context.Context, req *api.Request) (*api.Pending, *api.Receipt, error) {
	c, err := s.begin(req, nil)
	if err != nil {
		return nil, nil, err
	}
	if err := c.admission(ctx); err != nil {
		return nil, nil, err
	}
	if req.Exec != nil && req.Exec.WaitMS > 0 {
		t := time.NewTimer(time.Duration(req.Exec.WaitMS) * time.Millisecond)
		defer t.Stop()
		select {
		case <-c.done:
		case <-t.C:
		case <-ctx.Done():
			return nil, nil, context.Cause(ctx)
		}
	}
	select {
	case <-c.done:
		return nil, c.receipt, c.err
	default:
	}
	if c.execution == nil { // it is no execution; there is nothing to tell but its end
		r, err := s.await(ctx, c, nil)
		return nil, r, err
	}
	p, err := s.pending(c.execution, cursor{}, pendingBytes)
	return p, nil, err
}

// PutBlob is Do for blob.put, whose content is not part of the request. content is not
// read any more when PutBlob returns; so it does not return when ctx ends, but when the
// content does.
func (s *Supervisor) PutBlob(ctx context.Context, req *api.Request, content io.Reader) (*api.Receipt, error) {
	c, err := s.begin(req, content)
	if err != nil {
		return nil, err
	}
	return s.await(context.WithoutCancel(ctx), c, nil)
}

// begin is the pipeline up to the intent, and has the rest done. Nothing starts before its
// intent is durable, and nothing is reported before its receipt is. With a key that is known it
// returns the call that has it.
func (s *Supervisor) begin(req *api.Request, content io.Reader) (*call, error) {
	c, err := s.newCall(req)
	if err != nil {
		return nil, err
	}
	earlier, err := s.claim(c)
	if err != nil || earlier != nil {
		s.admission.leave()
		return earlier, err
	}
	c.content = content
	if why := s.permit(c); why != nil {
		defer s.admission.leave()
		s.refuse(c, why)
		return c, nil
	}
	s.registry.carry(c) // before the record: whoever finds that, finds what it is of
	if _, err := s.record(s.ctx, s.journal.Append, s.records(c)...); err != nil {
		defer s.admission.leave()
		c.operation.abandon(s, c)
		c.err = err
		s.over(c)
		return c, nil
	}
	failpoint.Hit("supervisor.intent.durable")
	c.watch.lap("intent")
	close(c.admitted)
	go func() {
		defer s.admission.leave()
		s.act(c)
	}()
	return c, nil
}

// permit finds out whether, and as what exactly, an operation may take place. It
// changes nothing but the registry, which operation.abandon puts right again.
func (s *Supervisor) permit(c *call) (why *refusal) {
	defer func() {
		if p := recover(); p != nil {
			why = faulted(s.bug(c, p))
		}
	}()
	for _, stage := range []struct {
		name string
		do   func(*Supervisor, *call) *refusal
	}{
		{"admit", c.operation.admit}, // is it well formed, does it belong to the caller, is there room
		{"resolve", resolveFacts},    // what do its host paths lead to, under the caller's identity
		{"policy", decide},           // may it
		{"plan", c.operation.plan},   // as what exactly: the meet of request, grant and ceiling
	} {
		why := stage.do(s, c)
		c.watch.lap(stage.name)
		if why != nil {
			return why
		}
	}
	return nil
}

// A call is one operation on its way through the pipeline.
type call struct {
	operation
	req      *api.Request  // as asked, with its secrets
	redacted api.Request   // what policy, journal and logs may see
	request  []byte        // redacted, canonical
	large    *ledger.Large // recorded in its place
	nonce    string
	intent   string
	at       time.Time // of its admission
	watch    stopwatch
	content  io.Reader // of a blob

	session   *session
	execution *execution
	subject   *api.Process // of an operation on an execution: its record
	control   control
	facts     rego.Facts
	decision  *rego.Decision        // nil until policy was asked
	judged    *rego.Process         // what policy saw of subject
	counts    *ledger.SessionCounts // as policy saw them
	grant     *api.Grant            // of an open: effective
	spec      sandbox.Spec
	clamped   []api.Clamp

	admitted chan struct{} // closed when the intent is durable; never, if it is refused

	done    chan struct{} // closed when receipt or err is set
	receipt *api.Receipt
	err     error
}

// refusal is why an operation does not take place: reasons of a denial, or a fault.
type refusal struct {
	deny  []api.Deny
	fault *api.Error
}

func denied(deny ...api.Deny) *refusal { return &refusal{deny: deny} }

func faulted(err error) *refusal { return &refusal{fault: faultOf(err)} }

// faultOf gives any error a code that a caller can act on.
func faultOf(err error) *api.Error {
	if e, ok := errors.AsType[*api.Error](err); ok {
		return e
	}
	if e, ok := errors.AsType[*sandbox.Error](err); ok {
		return runnerError(e)
	}
	return api.Errorf(api.CodeInternalError, "%v", err)
}

// runnerError is an error of the launcher as the caller sees it.
func runnerError(err error) *api.Error {
	if e, ok := errors.AsType[*sandbox.Error](err); ok {
		return api.Errorf(api.Code(e.Code), "%s", e.Msg)
	}
	return api.Errorf(api.CodeRunnerUnavailable, "%v", err)
}

// newCall begins an operation with effect.
func (s *Supervisor) newCall(req *api.Request) (*call, error) {
	op, ok := operations[req.Op]
	if !ok {
		return nil, api.Errorf(api.CodeUnknownMethod, "there is no operation %.80q", string(req.Op))
	}
	return s.enter(req, op)
}

// enter begins a call; whoever ends it leaves the gate.
func (s *Supervisor) enter(req *api.Request, op operation) (*call, error) {
	c := &call{operation: op, req: req, at: s.now(), admitted: make(chan struct{}), done: make(chan struct{})}
	c.watch.start()
	c.redacted = req.Redact(s.salt)
	var err error
	if c.request, err = api.Encode(&c.redacted); err != nil {
		return nil, api.Errorf(api.CodeDecodeError, "%v", err)
	}
	c.nonce = rand.Text()
	c.intent = ledger.IntentID(c.nonce, c.request)
	if !s.admission.enter() {
		return nil, api.Errorf(api.CodeShuttingDown, "the supervisor is shutting down")
	}
	return c, nil
}

// resolveLimit is how long the look at host paths may take. A path on a file system that
// hangs (FUSE, NFS) never answers.
const resolveLimit = 5 * time.Second

// resolveFacts looks at every host path that the request names.
func resolveFacts(s *Supervisor, c *call) *refusal {
	paths := rego.HostPaths(c.req)
	if len(paths) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(s.ctx, resolveLimit)
	defer cancel()
	found, err := s.launcher.Resolve(ctx, caller(c.req.Principal), paths)
	if errors.Is(err, context.DeadlineExceeded) {
		return faulted(api.Errorf(api.CodeMountSource, "a host path did not answer within %v", resolveLimit))
	}
	if err != nil {
		return faulted(runnerError(err))
	}
	c.facts.Sources = make(map[string]rego.Source, len(paths))
	for i, f := range found {
		if f.Err != nil {
			c.facts.Sources[paths[i]] = rego.Source{Error: api.Code(f.Err.Code)}
			continue
		}
		c.facts.Sources[paths[i]] = rego.Source{Found: &rego.Found{
			Resolved: f.Source.Resolved,
			Kind:     f.Source.Kind,
			Dev:      f.Source.Dev,
			Ino:      f.Source.Ino,
			OwnerUID: f.Source.OwnerUID,
			Mode:     f.Source.Mode,
		}}
	}
	return nil
}

// decide asks policy, with the secrets already gone.
func decide(s *Supervisor, c *call) *refusal {
	entrypoint, _ := rego.Entrypoint(c.req.Op) // every served operation has one: see preflight
	in := rego.Input{Request: &c.redacted, Facts: c.facts, Ceiling: s.ceiling, NowNS: c.at.UnixNano()}
	if c.subject != nil {
		in.Process = rego.ProcessOf(*c.subject)
		c.judged = in.Process
	}
	if c.session != nil && c.req.Open == nil {
		in.Session = c.session.judged(c.execution)
		c.counts = &ledger.SessionCounts{SessionID: in.Session.SessionID, Executions: in.Session.Executions, LiveExecutions: in.Session.LiveExecutions}
	}
	d := s.policy.Decide(s.ctx, entrypoint, in)
	c.decision = &d
	switch {
	case d.Allow:
		return nil
	case len(d.Deny) == 0: // rego never says so; if it ever did, it would still be a no
		return denied(api.Deny{Code: api.CodePolicyDenied})
	}
	return denied(d.Deny...)
}

// records are the intent and, once there is one, the decision.
func (s *Supervisor) records(c *call) []ledger.Record {
	at := c.at.UnixNano()
	intent := &ledger.Intent{
		Header:   ledger.At(c.at),
		IntentID: c.intent,
		Nonce:    c.nonce,
		Key:      c.req.Key,
		Request:  c.request,
	}
	if c.large != nil {
		intent.Request, intent.Large = nil, c.large
	}
	if c.session != nil {
		intent.SessionID = c.session.id
	}
	if c.execution != nil {
		intent.ExecID, intent.Queued = c.execution.id, c.execution.turn != nil
	}
	if c.decision == nil {
		return []ledger.Record{intent}
	}
	d := c.decision
	return []ledger.Record{intent, &ledger.Decision{
		Header:        ledger.At(c.at),
		IntentID:      c.intent,
		Policy:        d.Policy,
		InputDigest:   d.InputDigest,
		CeilingDigest: s.ceilingDigest,
		NowNS:         at,
		Facts:         c.facts,
		Session:       c.counts,
		Process:       c.judged,
		Allow:         d.Allow,
		Deny:          d.Deny,
		Warn:          d.Warn,
		Grant:         d.Grant,
		Limits:        d.Limits,
		Obligations:   d.Obligations,
	}}
}

// refuse settles an operation that does not take place. Its intent, its decision and
// its receipt become durable together.
func (s *Supervisor) refuse(c *call, why *refusal) {
	c.operation.abandon(s, c)
	if len(c.request) > keptRequest {
		why = c.abridge(why)
	}
	r := c.newReceipt()
	var code api.Code
	switch {
	case why.fault != nil:
		r.Outcome, code, r.ErrorMessage = api.OutcomeFaulted, why.fault.Code, why.fault.Message
	default:
		r.Outcome, r.Deny, code = api.OutcomeDenied, why.deny, why.deny[0].Code
		r.ErrorMessage = why.deny[0].Message
	}
	r.ErrorCode, r.Status = code, "error"
	r.Payload = c.operation.failed(code, r.ErrorMessage)
	s.settle(c, r, s.journal.Append, s.records(c)...) // nothing is under way: it may wait for room on the disk
}

// abridge keeps the records and the receipt of a refusal small, whatever was asked. What
// policy was asked cannot be rebuilt from them; its digest stays.
func (c *call) abridge(why *refusal) *refusal {
	c.large = &ledger.Large{Op: c.req.Op, Principal: c.req.Principal, Key: c.req.Key, SizeBytes: int64(len(c.request)), Digest: ledger.Digest(c.request)}
	c.facts = rego.Facts{}
	if c.decision != nil {
		d := *c.decision
		d.Grant = nil
		d.Deny, _ = fewer(d.Deny)
		d.Warn = nil
		c.decision = &d
	}
	if why.fault != nil {
		return faulted(api.Errorf(why.fault.Code, "%s", short(why.fault.Message)))
	}
	deny, left := fewer(why.deny)
	if left > 0 && c.decision != nil {
		c.decision.Warn = []string{fmt.Sprintf("%d more reasons are not kept: the request has %d bytes", left, len(c.request))}
	}
	return denied(deny...)
}

// act does what was permitted. It runs on the supervisor's own context: a caller that
// goes away changes nothing.
func (s *Supervisor) act(c *call) {
	payload, fault := s.guarded(c)
	if fault == errLeft {
		c.err = fault
		s.over(c)
		return
	}
	r := c.newReceipt()
	r.Payload = payload
	r.Outcome, r.Status = api.OutcomeOK, "ok"
	switch {
	case fault != nil:
		r.Outcome, r.Status = api.OutcomeFaulted, "error"
		r.ErrorCode, r.ErrorMessage = fault.Code, fault.Message
	case payload.Exec != nil:
		r.ErrorCode = payload.Exec.ErrorCode
		if payload.Exec.Status == "timeout" {
			r.Status = "timeout"
		}
	}
	if c.execution != nil {
		s.settleExecution(c, r)
		return
	}
	s.settle(c, r, s.journal.Settle)
}

// settleExecution says that the command ran, if that has not been said, and how it ended.
func (s *Supervisor) settleExecution(c *call, r *api.Receipt) {
	x := c.execution
	x.framing.Lock()
	defer x.framing.Unlock()
	var before []ledger.Record
	if !x.told && r.Payload.Exec != nil && r.Payload.Exec.StartedAtNS != 0 {
		x.told = true
		if f := x.newFrame(s, api.FrameStarted, api.FramePayload{}); f != nil {
			before = append(before, f)
		}
	}
	s.chronicle.read(func(state *ledger.State) {
		if next, ok := state.NextFrame(c.intent); ok {
			r.FrameSeq = next.Seq - 1 + int64(len(before))
		}
	})
	s.settle(c, r, s.journal.Settle, before...)
	s.spilled.add(x.kept(), s.defaults.OutputPerSession)
	x.wake.all()
	if x.drained == nil || isClosed(x.drained) {
		s.launcher.Forget(c.session.id, x.id)
		return
	}
	s.background.Go(func() { // what it left in the background keeps its pipes, whoever the supervisor is
		<-x.drained
		if !isClosed(s.left) {
			s.launcher.Forget(c.session.id, x.id)
		}
	})
}

// guarded keeps a bug in one operation from being the end of all of them.
func (s *Supervisor) guarded(c *call) (payload api.Payload, fault *api.Error) {
	defer func() {
		if p := recover(); p != nil {
			fault = s.bug(c, p)
			payload = c.operation.failed(fault.Code, fault.Message)
		}
	}()
	return c.operation.act(s.ctx, s, c)
}

func (s *Supervisor) bug(c *call, panicked any) *api.Error {
	s.log.Error("bug: operation panicked", "op", c.req.Op, "intent_id", c.intent, "panic", panicked, "stack", string(debug.Stack()))
	return api.Errorf(api.CodeInternalError, "the supervisor failed; its log says more")
}

// newReceipt is the receipt without how it went.
func (c *call) newReceipt() *api.Receipt {
	r := &api.Receipt{
		Version:       1,
		IntentID:      c.intent,
		Op:            c.req.Op,
		RequestedKind: c.req.RequestedKind,
		Key:           c.req.Key,
		Principal:     c.req.Principal,
		Clamped:       c.clamped,
	}
	r.AdmittedAtNS, r.AdmittedAt = stamp(c.at)
	if c.session != nil {
		r.SessionID = c.session.id
	}
	if c.execution != nil {
		r.ExecID = c.execution.id
	}
	if c.decision != nil {
		r.Policy, r.Warn = c.decision.Policy, c.decision.Warn
	}
	return r
}

// settle makes the receipt durable, after the records that belong before it, and only
// then lets anybody see it. An operation whose receipt cannot be recorded has none.
func (s *Supervisor) settle(c *call, r *api.Receipt, write writer, before ...ledger.Record) {
	r.SettledAtNS, r.SettledAt = stamp(s.now())
	r.Timings = c.watch.laps
	failpoint.Hit("supervisor.receipt.due")
	record := func() error {
		_, err := s.record(s.ctx, write, append(before, &ledger.Settled{Header: ledger.At(s.now()), Receipt: r})...)
		return err
	}
	err := record()
	if why, ok := unfit[err]; ok {
		r = c.withoutPayload(r, why)
		err = record()
	}
	failpoint.Hit("supervisor.receipt.durable")
	if err == nil {
		c.receipt = r
	} else {
		c.err = err
	}
	if c.operation.settled != nil {
		c.operation.settled(s, c)
	}
	s.over(c)
	s.logReceipt(r)
}

// unfit says of a payload that no record can hold what its receipt says instead. A thousand long names of artifacts are
// enough for one that is too large, each byte of them written as \u0001.
var unfit = map[error]*api.Error{
	errTooLarge: api.Errorf(api.CodeOutputStoreFailed, "with all that is to be returned the receipt is larger than %d bytes", journal.MaxRecord),
	errNoRecord: api.Errorf(api.CodeInvalidPayload, "what the operation returned is no text that a receipt can hold"),
}

// withoutPayload is the receipt of an operation that returns what cannot be recorded: it is faulted, and there all the
// same (R115, R253). How a command ended it says.
func (c *call) withoutPayload(r *api.Receipt, why *api.Error) *api.Receipt {
	less := *r
	less.Payload = c.operation.failed(why.Code, why.Message)
	if r.Payload.Exec != nil {
		x := *r.Payload.Exec
		x.Stdout, x.Stderr, x.Outputs = nil, nil, nil
		x.Status, x.ErrorCode, x.ErrorMessage = "error", why.Code, why.Message
		less.Payload.Exec = &x
	}
	less.Outcome, less.Status = api.OutcomeFaulted, "error"
	less.ErrorCode, less.ErrorMessage = why.Code, why.Message
	return &less
}

// over ends a call, with its receipt or without one.
func (s *Supervisor) over(c *call) {
	s.registry.drop(c)
	close(c.done)
}

// logReceipt says what happened without saying with what: no argument, no
// environment, no content.
func (s *Supervisor) logReceipt(r *api.Receipt) {
	log := s.log.Debug
	if r.Outcome != api.OutcomeOK {
		log = s.log.Info
	}
	log("settled", "op", r.Op, "intent_id", r.IntentID, "session_id", r.SessionID, "exec_id", r.ExecID,
		"uid", r.Principal.UID, "outcome", r.Outcome, "error_code", r.ErrorCode)
}

// admission waits until it is certain whether the operation takes place.
func (c *call) admission(ctx context.Context) error {
	select {
	case <-c.admitted:
	case <-c.done:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}

// await returns the receipt, and hands out events until then.
func (s *Supervisor) await(ctx context.Context, c *call, emit func(api.Event)) (*api.Receipt, error) {
	if err := c.admission(ctx); err != nil {
		return nil, err
	}
	if emit == nil {
		return c.wait(ctx)
	}
	if !isClosed(c.admitted) { // refused, or settled under its key by whoever asked first
		r, err := c.wait(ctx)
		if err == nil && r.ExecID != "" {
			err = s.emitKept(ctx, r, cursor{}, emit)
		}
		return r, err
	}
	accepted := api.Event{Kind: "accepted", IntentID: c.intent}
	if c.execution == nil {
		emit(accepted)
		return c.wait(ctx)
	}
	var at cursor
	accepted.ExecID, accepted.Cursor = c.execution.id, at.String()
	emit(accepted)
	end := s.watch(ctx, c.execution, &at, emit)
	r, err := c.wait(ctx)
	if err == nil && !end { // it was over before it could be followed
		err = s.emitKept(ctx, r, at, emit)
	}
	return r, err
}

// wait returns the receipt.
func (c *call) wait(ctx context.Context) (*api.Receipt, error) {
	select {
	case <-c.done:
		return c.receipt, c.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// stopwatch measures the stages of a call.
type stopwatch struct {
	last time.Time
	laps []api.Timing
}

func (w *stopwatch) start() { w.last = time.Now() }

// lap ends a stage. A stage that did nothing is not worth a line.
func (w *stopwatch) lap(stage string) {
	now := time.Now()
	if d := now.Sub(w.last); d > 0 {
		w.laps = append(w.laps, api.Timing{Stage: stage, NS: int64(d)})
	}
	w.last = now
}
