package supervisor

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/stockade-dev/stockade/internal/failpoint"
	"github.com/stockade-dev/stockade/supervisor/api"
	"github.com/stockade-dev/stockade/supervisor/ledger"
)

// An operation that policy allows and somebody has to give leave for waits between its intent and its act (R091):
//
//	intent, decision, waiting (durable) ──▶ awaitLeave ──▶ verdict, second decision (durable) ──▶ act
//	                                             └─────────▶ verdict, receipt (durable together)
//
// awaitLeave runs in the goroutine that would carry the operation out, and is the only one that ends the wait. Whoever
// decides, cancels or ends the session tells it so, and so there is one outcome.

// waiting is the wait of a call for leave.
type waiting struct {
	id       string
	require  api.RequireApproval
	reviewed *api.Reviewed
	review   string // digest of reviewed
	deadline time.Time
	bound    bool // it is in a session, and does not go on when that ends

	opinions chan opinion  // taken by awaitLeave
	over     chan struct{} // closed when the verdict is durable, or the supervisor waits no more

	// Of awaitLeave, and those who come after it.
	verdict *ledger.Verdict // nil: not yet
	noted   bool            // it is durable
	second  bool            // policy was asked again
	heard   *opinion        // that is to be answered
	said    sync.Once
}

// withhold has a call wait if policy says so. It follows permit, and precedes the records.
func (s *Supervisor) withhold(c *call) *refusal {
	require := c.decision.Obligations.RequireApproval
	if require == nil {
		return nil
	}
	if err := s.registry.await(c.req.Principal.UID, s.now(), s.defaults.Approvals, s.defaults.ApprovalsPerMinute); err != nil {
		return faulted(err)
	}
	c.leave = newWaiting(newID("a-"), *require, c.at.Add(time.Duration(require.TimeoutNS)))
	c.leave.bound = c.session != nil && c.req.Open == nil && c.session.usable(c.at) == nil
	if err := c.leave.binds(s.reviewOf(c)); err != nil {
		s.registry.awaited(c.req.Principal.UID)
		return faulted(err)
	}
	if c.execution != nil {
		c.session.withhold(c.execution)
	}
	s.release(c)
	return nil
}

// release gives back what an operation on something took of it, as long as it waits: its place in the queue of inputs.
// The place of a session, and of an execution in its own, is kept.
func (s *Supervisor) release(c *call) {
	if c.execution == nil && c.req.Open == nil {
		c.operation.abandon(s, c)
	}
}

func newWaiting(id string, require api.RequireApproval, deadline time.Time) *waiting {
	return &waiting{id: id, require: require, deadline: deadline, opinions: make(chan opinion), over: make(chan struct{})}
}

// binds says what leave is asked for.
func (w *waiting) binds(r *api.Reviewed) error {
	b, err := api.Encode(r)
	if err != nil {
		return err
	}
	w.reviewed, w.review = r, ledger.Digest(b)
	return nil
}

// isOver tells whoever waits for the verdict that there is one, or never will be here.
func (w *waiting) isOver() { w.said.Do(func() { close(w.over) }) }

// record is what says that the call waits.
func (w *waiting) record(c *call) *ledger.Waiting {
	return &ledger.Waiting{Header: ledger.At(c.at), Grant: c.grant, Approval: api.Approval{
		ApprovalID: w.id,
		IntentID:   c.intent,
		Op:         c.req.Op,
		Principal:  c.req.Principal,
		SessionID:  c.sessionID(),
		ExecID:     c.execID(),
		State:      api.ApprovalWaiting,
		Reason:     w.require.Reason,
		Review:     w.review,
		Approvers:  w.require.Approvers,
		Own:        w.require.Own,
		DeadlineNS: w.deadline.UnixNano(),
	}}
}

// carry carries a call out, once leave has been given if it needs that.
func (s *Supervisor) carry(c *call) {
	if c.leave == nil {
		s.act(c)
		return
	}
	failpoint.Hit("supervisor.approval.waiting")
	why, goes := s.awaitLeave(c)
	s.registry.awaited(c.req.Principal.UID)
	switch {
	case goes:
		c.watch.lap("approval")
		s.act(c)
	case why == nil: // it goes on waiting, for the next supervisor
		c.err = errLeft
		s.over(c)
	default:
		s.turnAway(c, why)
	}
	c.leave.conclude(c)
}

// conclude answers whoever decided, once the outcome is durable, and lets the others look.
func (w *waiting) conclude(c *call) {
	if o := w.heard; o != nil {
		w.heard = nil
		result := outcome{state: w.verdict.State}
		switch {
		case !w.noted:
			result.fault = faultOf(c.err)
		case o.approve && w.verdict.State == api.ApprovalVoid:
			result.fault = api.Errorf(api.CodeApprovalStale, "it could not be carried out as it was reviewed any more; the receipt of the operation says why")
		case o.approve && w.verdict.State != api.ApprovalApproved, !o.approve && w.verdict.State == api.ApprovalTimedOut:
			result.fault = api.Errorf(api.CodeApprovalSettled, "it was too late: %s", w.verdict.State)
		}
		o.answer <- result
	}
	w.isOver()
}

// awaitLeave waits for leave. goes reports whether the call is to be carried out: its act knows itself of a cancel and of an
// execution's session that ends. Without that, why is nil when only this supervisor ends.
func (s *Supervisor) awaitLeave(c *call) (why *refusal, goes bool) {
	w := c.leave
	limit := time.NewTimer(w.deadline.Sub(s.now()))
	defer limit.Stop()
	var changed, ended <-chan struct{}
	leaving := s.closing.Done()
	if c.execution != nil {
		changed, leaving = c.execution.changed, s.left // what closes the supervisor ends its sessions
	} else if w.bound {
		ended = c.session.closed
	}
	for {
		select {
		case o := <-w.opinions:
			if why, goes, decided := s.opined(c, o); decided {
				return why, goes
			}
		case <-limit.C:
			w.decide(s.now(), api.ApprovalTimedOut, nil)
			return denied(api.Deny{Code: api.CodeApprovalTimeout, Subject: "approval:" + w.id, Message: "nobody gave leave in time"}), false
		case <-changed:
			if cause, _ := c.execution.stopping(); cause != "" {
				c.execution.notify() // the run is to see it too
				w.decide(s.now(), api.ApprovalCanceled, nil)
				return nil, true
			}
		case <-ended:
			w.decide(s.now(), api.ApprovalCanceled, nil)
			return faulted(c.session.usable(s.now())), false
		case <-leaving:
			return nil, false
		}
	}
}

// opined is what becomes of a call by an opinion.
func (s *Supervisor) opined(c *call, o opinion) (why *refusal, goes, decided bool) {
	w := c.leave
	w.heard = &o
	switch {
	case !s.now().Before(w.deadline):
		w.decide(s.now(), api.ApprovalTimedOut, nil)
		return denied(api.Deny{Code: api.CodeApprovalTimeout, Subject: "approval:" + w.id, Message: "nobody gave leave in time"}), false, true
	case o.withdraw:
		w.decide(s.now(), api.ApprovalCanceled, &o)
		if c.execution != nil {
			c.execution.stop(api.CodeCanceled, 0, s.now())
			return nil, true, true
		}
		return faulted(api.Errorf(api.CodeCanceled, "it was withdrawn while it waited for leave")), false, true
	case !o.approve:
		w.decide(s.now(), api.ApprovalDenied, &o)
		message := o.comment
		if message == "" {
			message = "leave was denied"
		}
		return denied(api.Deny{Code: api.CodeApprovalDenied, Subject: "approval:" + w.id, Message: message}), false, true
	}
	if why := s.again(c); why != nil {
		w.decide(s.now(), api.ApprovalVoid, &o)
		if w.bound && c.session.usable(s.now()) != nil {
			w.verdict.State = api.ApprovalCanceled
		}
		return why, false, true
	}
	w.decide(s.now(), api.ApprovalApproved, &o)
	failpoint.Hit("supervisor.approval.due")
	if _, err := s.record(s.ctx, s.journal.Append, c.unrecorded(s)...); err != nil {
		// Without a record of it there is no leave. The disk may be full: it goes on waiting.
		w.verdict, w.heard, w.second = nil, nil, false
		s.release(c)
		o.answer <- outcome{fault: faultOf(err)}
		return nil, false, false
	}
	w.noted = true
	failpoint.Hit("supervisor.approval.given")
	if c.execution != nil {
		c.session.readmit(c.execution)
	}
	w.conclude(c)
	return nil, true, true
}

// decide notes how the wait ends.
func (w *waiting) decide(now time.Time, state api.ApprovalState, o *opinion) {
	w.verdict = &ledger.Verdict{Header: ledger.At(now), ApprovalID: w.id, IntentID: w.reviewed.IntentID, State: state}
	if o != nil {
		by := o.by
		w.verdict.By, w.verdict.In, w.verdict.Comment = &by, o.in, o.comment
	}
}

// unrecorded is what a call that waited has to have recorded before anything else, once.
func (c *call) unrecorded(s *Supervisor) []ledger.Record {
	w := c.leave
	if w == nil || w.verdict == nil || w.noted {
		return nil
	}
	if !w.second {
		return []ledger.Record{w.verdict}
	}
	return []ledger.Record{s.decisionRecord(c), w.verdict}
}

// turnAway settles a call that waited in vain.
func (s *Supervisor) turnAway(c *call, why *refusal) {
	if x := c.execution; x != nil {
		x.abandon()
		s.settleExecution(c, c.refused(why))
		return
	}
	c.operation.abandon(s, c)
	s.settle(c, c.refused(why), s.journal.Settle)
}

// waitingCall is an operation in flight that waits for leave, as the call that goes on waiting, or why there is none.
// Its deadline stays what it was.
func (s *Supervisor) waitingCall(in api.Intent) (*call, error) {
	var a api.Approval
	s.chronicle.read(func(state *ledger.State) { a, _ = state.ApprovalOf(in.IntentID) })
	if a.State != api.ApprovalWaiting {
		return nil, errors.New("it does not wait for leave")
	}
	c, err := s.askedAt(a)
	if err != nil {
		return nil, err
	}
	if c.req.Redacted() {
		return nil, errors.New("it has secrets, which no record has")
	}
	switch {
	case c.req.Open != nil:
		c.session = newSession(c.req.Principal, c.req.Open)
		c.session.id, c.session.intent, c.session.policy = in.SessionID, in.IntentID, c.decision.Policy.Digest
		if err := s.policies.repin(c.session); err != nil {
			s.policies.unpin(c.session)
			return nil, err
		}
		s.registry.adopt(c.session)
	case in.SessionID != "":
		ses, gone := s.registry.find(in.Principal, in.SessionID)
		if gone != nil {
			return nil, gone
		}
		// Its timers do not run yet. Operations on what had ended when they were asked for do not care.
		if c.session, c.leave.bound = ses, !ses.over(); !c.leave.bound && in.ExecID != "" {
			return nil, errors.New("its session has ended")
		}
		if ses.over() && !ses.ended.Before(c.at) {
			return nil, errors.New("its session has ended")
		}
	}
	if in.ExecID != "" {
		if err := s.executionAgain(c, in.ExecID); err != nil {
			return nil, err
		}
	}
	close(c.admitted)
	c.watch.start()
	s.registry.reawait(in.Principal.UID)
	s.registry.carry(c)
	s.registry.rekey(c)
	return c, nil
}

// executionAgain prepares an execution that has not been started, as it was when it was asked for.
func (s *Supervisor) executionAgain(c *call, id string) error {
	p, deny, err := planExec(c.req.Exec, c.session.granted(), c.session.env, *c.decision, s.defaults, c.session.left(c.at), s.host)
	if len(deny) > 0 || err != nil {
		return fmt.Errorf("bug: what was allowed is not any more: %v %v", deny, err)
	}
	c.clamped = p.clamped
	x := newExecution(c, c.session, c.req.Exec)
	x.id = id
	if err := x.prepare(p, s); err != nil {
		x.abandon()
		return err
	}
	s.chronicle.read(func(state *ledger.State) { x.progressed, _ = state.Progress(id) })
	if t := x.progressed.TimeoutNS; t > 0 {
		x.timeout = time.Duration(t)
	}
	x.progressed = ledger.Progress{} // of a command that runs
	c.execution = x
	s.registry.relist(c)
	c.session.adoptWithheld(x)
	return nil
}

// decidedBefore says in the receipt of what a restart cut off how the wait for leave had ended. One that had been
// denied, of which a crash kept the verdict and not the receipt, is denied.
func (s *Supervisor) decidedBefore(in api.Intent, r *api.Receipt) {
	var a api.Approval
	var ok bool
	s.chronicle.read(func(state *ledger.State) { a, ok = state.ApprovalOf(in.IntentID) })
	if !ok {
		return
	}
	code, deny := map[api.ApprovalState]api.Code{
		api.ApprovalDenied: api.CodeApprovalDenied, api.ApprovalTimedOut: api.CodeApprovalTimeout, api.ApprovalVoid: api.CodeApprovalStale,
	}[a.State]
	if deny {
		r.Outcome, r.ErrorCode, r.ErrorMessage = api.OutcomeDenied, code, code.Text()
		r.Deny = []api.Deny{{Code: code, Subject: "approval:" + a.ApprovalID, Message: a.Comment}}
		r.Payload = operations[in.Op].failed(code, r.ErrorMessage)
	}
	if a.State == api.ApprovalWaiting { // with this receipt
		a.State = api.ApprovalCanceled
		a.DecidedAtNS, a.DecidedAt = stamp(s.now())
	}
	r.Approval = &a
}
