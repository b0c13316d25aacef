package supervisor

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"runtime/debug"
	"time"

	"github.com/stockade-dev/stockade/internal/failpoint"
	"github.com/stockade-dev/stockade/rego"
	"github.com/stockade-dev/stockade/supervisor/api"
	"github.com/stockade-dev/stockade/supervisor/ledger"
	"github.com/stockade-dev/stockade/supervisor/telemetry"
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
	c, err := s.begin(ctx, req, brought{})
	if err != nil {
		return nil, err
	}
	return s.await(ctx, c, emit)
}

// Start is Do for a host.exec that is not waited for, or for so long only as its WaitMS says:
// the answer is the receipt, or where the execution is by then. Of any other operation it is the receipt, or that it
// waits for somebody's leave.
func (s *Supervisor) Start(ctx context.Context, req *api.Request) (*api.Pending, *api.Receipt, error) {
	c, err := s.begin(ctx, req, brought{})
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
	switch waits := c.leave != nil && !isClosed(c.leave.over); {
	case c.execution != nil:
		p, err := s.pending(c.execution, cursor{}, pendingBytes)
		if err == nil && waits {
			p.Approval = c.leave.id
		}
		return p, nil, err
	case waits:
		return &api.Pending{IntentID: c.intent, Approval: c.leave.id, State: api.StateQueued, Cursor: cursor{}.String()}, nil, nil
	}
	r, err := s.await(ctx, c, nil) // it is no execution; there is nothing to tell but its end
	return nil, r, err
}

// PutBlob is Do for blob.put, whose content is not part of the request. content is not
// read any more when PutBlob returns; so it does not return when ctx ends, but when the
// content does.
func (s *Supervisor) PutBlob(ctx context.Context, req *api.Request, content io.Reader) (*api.Receipt, error) {
	c, err := s.begin(ctx, req, brought{content: content})
	if err != nil {
		return nil, err
	}
	return s.await(context.WithoutCancel(ctx), c, nil)
}

// begin is the pipeline up to the intent, and has the rest done. Nothing starts before its
// intent is durable, and nothing is reported before its receipt is. With a key that is known it
// returns the call that has it. ctx says what it is part of, and ends nothing.
func (s *Supervisor) begin(ctx context.Context, req *api.Request, with brought) (*call, error) {
	c, err := s.newCall(req)
	if err != nil {
		return nil, err
	}
	earlier, err := s.claim(c)
	if err != nil || earlier != nil {
		c.giveUp()
		s.admission.leave()
		return earlier, err
	}
	c.brought, c.parent = with, telemetry.ParentOf(ctx)
	s.policies.enter()
	defer s.policies.entered()
	why := s.permit(c)
	if why == nil {
		why = s.withhold(c)
	}
	if why != nil {
		defer s.admission.leave()
		s.refuse(c, why)
		return c, nil
	}
	s.registry.carry(c) // before the record: whoever finds that, finds what it is of
	if _, err := s.record(s.ctx, s.writer(c), s.records(c)...); err != nil {
		defer s.admission.leave()
		s.registry.drop(c) // while it knows its execution
		if c.leave != nil {
			s.registry.awaited(c.req.Principal.UID)
		}
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
		s.carry(c)
	}()
	return c, nil
}

// writer gives what ends something that lives the journal's reserve: on a disk that is full sessions can
// still be closed and commands ended. Nobody gets at it more often than he has something to end.
func (s *Supervisor) writer(c *call) writer {
	ends := false
	switch c.req.Op {
	case api.OpSessionClose:
		ends = !c.session.over()
	case api.OpSessionSignal:
		ends = !c.session.over() && (c.req.Signal.Signal == "TERM" || c.req.Signal.Signal == "KILL")
	case api.OpProcessCancel:
		ends = !c.subject.State.Final()
	case api.OpProcessStop:
		ends = len(s.registry.executions(c.req.Principal)) > 0
	}
	if ends {
		return s.journal.Settle
	}
	return s.journal.Append
}

// permit finds out whether, and as what exactly, an operation may take place. It
// changes nothing but the registry, which operation.abandon puts right again.
func (s *Supervisor) permit(c *call) (why *refusal) {
	defer func() {
		if p := recover(); p != nil {
			why = faulted(s.bug(c, p))
		}
	}()
	if err := c.req.Validate(); err != nil {
		return faulted(err)
	}
	for _, stage := range []struct {
		name string
		do   func(*Supervisor, *call) *refusal
	}{
		{"admit", c.operation.admit}, // does what it is on belong to the caller, is there room
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
	c.judging = c.at
	c.watch.start()
	c.redacted = req.Redact(s.salt)
	var err error
	if c.request, err = api.Encode(&c.redacted); err != nil {
		return nil, api.Errorf(api.CodeDecodeError, "%v", err)
	}
	c.release = s.secrets.Hold(req.Secrets()...)
	c.nonce = rand.Text()
	c.intent = ledger.IntentID(c.nonce, c.request)
	if !s.admission.enter() {
		c.giveUp()
		return nil, api.Errorf(api.CodeShuttingDown, "the supervisor is shutting down")
	}
	return c, nil
}

// giveUp lets go of the secrets of a call: nobody writes about it any more.
func (c *call) giveUp() {
	if c.release != nil {
		c.release()
	}
}

// resolveLimit is how long the look at host paths may take. A path on a file system that
// hangs (FUSE, NFS) never answers.
const resolveLimit = 5 * time.Second

// resolveFacts looks at every host path that the request names, or at every path inside that a file tool does.
func resolveFacts(s *Supervisor, c *call) *refusal {
	if c.req.File != nil {
		return lookFile(s, c)
	}
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
	in := rego.Input{Request: &c.redacted, File: c.file.facts, Facts: c.facts, Ceiling: s.ceiling, NowNS: c.judging.UnixNano()}
	if c.approval != nil {
		in.Approval = rego.WaitingOf(*c.approval)
		c.seen = in.Approval
	}
	if c.subject != nil {
		in.Process = rego.ProcessOf(*c.subject)
		c.judged = in.Process
	}
	if c.session != nil && c.req.Open == nil {
		var narrowed int64
		in.Session, narrowed = c.session.judged(c.execution)
		c.counts = &ledger.SessionCounts{
			SessionID: in.Session.SessionID, Executions: in.Session.Executions, LiveExecutions: in.Session.LiveExecutions, Narrowed: narrowed,
		}
	}
	policy, number := s.policies.of(c.session)
	defer s.policies.leave(policy)
	d := policy.Decide(s.ctx, entrypoint, in)
	s.metrics.Decided(entrypoint, d.Elapsed)
	d.Policy.Revision = number
	c.decision = &d
	switch {
	case d.Allow:
		return nil
	case len(d.Deny) == 0: // rego never says so; if it ever did, it would still be a no
		return denied(api.Deny{Code: api.CodePolicyDenied})
	}
	return denied(d.Deny...)
}

// records are the intent, the decision once there is one, and that it waits for leave if it does.
func (s *Supervisor) records(c *call) []ledger.Record {
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
	intent.SessionID, intent.ExecID = c.sessionID(), c.execID()
	intent.Queued = c.execution != nil && c.execution.turn != nil
	records := []ledger.Record{intent}
	if c.decision != nil {
		records = append(records, s.decisionRecord(c))
	}
	if c.leave != nil {
		records = append(records, c.leave.record(c))
	}
	return records
}

func (s *Supervisor) decisionRecord(c *call) *ledger.Decision {
	d := c.decision
	return &ledger.Decision{
		Header:        ledger.At(c.judging),
		IntentID:      c.intent,
		Policy:        d.Policy,
		InputDigest:   d.InputDigest,
		CeilingDigest: s.ceilingDigest,
		NowNS:         c.judging.UnixNano(),
		Facts:         c.facts,
		Session:       c.counts,
		Process:       c.judged,
		Approval:      c.seen,
		File:          c.file.facts,
		Allow:         d.Allow,
		Deny:          d.Deny,
		Warn:          d.Warn,
		Grant:         d.Grant,
		Limits:        d.Limits,
		Obligations:   d.Obligations,
		Clamped:       c.clamped,
		ElapsedNS:     int64(d.Elapsed),
	}
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
	case payload.File != nil:
		out := payload.File.Outcome()
		r.ErrorCode, r.ErrorMessage = api.Code(out.Code), out.Message
	case payload.Exec != nil:
		r.ErrorCode, r.ErrorMessage = payload.Exec.ErrorCode, payload.Exec.ErrorMessage
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

// settle makes the receipt durable, after the records that belong before it, and only
// then lets anybody see it. An operation whose receipt cannot be recorded has none.
func (s *Supervisor) settle(c *call, r *api.Receipt, write writer, before ...ledger.Record) {
	r.SettledAtNS, r.SettledAt = stamp(s.now())
	r.Timings = c.watch.laps
	r.Approval = s.approvalIn(c)
	before = append(c.unrecorded(s), before...)
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
		if c.leave != nil {
			c.leave.noted = true
		}
	} else {
		c.err = err
	}
	if c.operation.settled != nil {
		c.operation.settled(s, c)
	}
	s.countFor(c, r)
	s.over(c)
	s.account(c, r) // nobody waits for it any more
	s.logReceipt(r)
}

// over ends a call, with its receipt or without one.
func (s *Supervisor) over(c *call) {
	s.registry.drop(c)
	c.giveUp()
	close(c.done)
}

// logReceipt says what happened without saying with what: no argument, no
// environment, no content.
func (s *Supervisor) logReceipt(r *api.Receipt) {
	log := s.log.Debug
	if r.Outcome != api.OutcomeOK {
		log = s.log.Info
	}
	about := []any{"op", r.Op, "intent_id", r.IntentID, "session_id", r.SessionID, "exec_id", r.ExecID,
		"uid", r.Principal.UID, "outcome", r.Outcome, "error_code", r.ErrorCode}
	if sh := r.Payload.Shell; sh != nil && sh.CommandID != "" {
		about = append(about, "command_id", sh.CommandID)
	}
	log("settled", about...)
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
	if c.leave != nil {
		accepted.Approval = c.leave.id
	}
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
