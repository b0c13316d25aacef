package supervisor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/stockade-dev/stockade/internal/failpoint"
	"github.com/stockade-dev/stockade/rego"
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

// opinion is what somebody says about an operation that waits.
type opinion struct {
	approve  bool
	withdraw bool // it is the own of who says so
	by       api.Principal
	in       string // intent of the opinion
	comment  string
	answer   chan outcome // with room for one
}

// outcome is what an opinion came to.
type outcome struct {
	state api.ApprovalState
	fault *api.Error // nil: it was taken
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

// reviewOf is all that leave is asked for: the request, what its paths lead to, and what policy would give.
func (s *Supervisor) reviewOf(c *call) *api.Reviewed {
	r := &api.Reviewed{
		IntentID:      c.intent,
		Request:       &c.redacted,
		Policy:        c.decision.Policy.Digest,
		CeilingDigest: s.ceilingDigest,
		Grant:         c.grant,
		Limits:        limitsOf(c.decision.Limits),
		Output:        c.decision.Obligations.Output,
		Require:       c.leave.require,
	}
	for path, source := range c.facts.Sources {
		if r.Sources == nil {
			r.Sources = map[string]api.Source{}
		}
		told := api.Source{Error: source.Error}
		if f := source.Found; f != nil {
			told = api.Source{Resolved: f.Resolved, Kind: f.Kind, Dev: f.Dev, Ino: f.Ino, OwnerUID: f.OwnerUID, Mode: f.Mode}
		}
		r.Sources[path] = told
	}
	if f := c.file.facts; f != nil {
		for _, p := range f.Paths {
			r.Files = append(r.Files, api.ReviewedFile{Path: p.Path, Resolved: p.Resolved, Link: p.Link, Write: p.Write})
		}
	}
	return r
}

// limitsOf is what an exec decision tightens, by name.
func limitsOf(l rego.ExecLimits) (limits map[string]int64) {
	b, err := api.Encode(l)
	if err == nil {
		err = json.Unmarshal(b, &limits)
	}
	if err != nil || len(limits) == 0 {
		return nil // eight numbers can be written down
	}
	return limits
}

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

// again looks once more at what was reviewed, when somebody gives leave: at what the paths lead to by now, at policy,
// and at the session. What would be done must be what was reviewed, to the byte.
func (s *Supervisor) again(c *call) (why *refusal) {
	defer func() {
		if p := recover(); p != nil {
			why = faulted(s.bug(c, p))
		}
	}()
	if c.leave.bound {
		if fault := c.session.usable(s.now()); fault != nil {
			return faulted(fault)
		}
	}
	admit, plan := c.operation.admit, c.operation.plan
	switch {
	case c.execution != nil:
		admit, plan = noRefusal, replan
	case c.req.Open != nil:
		if s.policies.digest() != c.session.policy { // it is judged by the one of then, and another one decides now
			return stale("policy")
		}
		admit = noRefusal // it has its place
	}
	first := c.decision
	defer func() { c.leave.second = c.decision != first }()
	c.judging = s.now()
	for _, stage := range []func(*Supervisor, *call) *refusal{admit, resolveFacts, decide, plan} {
		if why := stage(s, c); why != nil {
			return why
		}
	}
	if asked := c.decision.Obligations.RequireApproval; asked != nil && !sameRequirement(*asked, c.leave.require) {
		return stale("approvers")
	}
	if part := difference(c.leave.reviewed, s.reviewOf(c)); part != "" {
		return stale(part)
	}
	return nil
}

func stale(part string) *refusal {
	return denied(api.Deny{Code: api.CodeApprovalStale, Subject: part, Message: "it is not what was reviewed any more; ask again"})
}

func sameRequirement(a, b api.RequireApproval) bool {
	x, xerr := api.Encode(a)
	y, yerr := api.Encode(b)
	return xerr == nil && yerr == nil && slices.Equal(x, y)
}

// difference names what is not the same in two reviews of one intent; "" is nothing.
func difference(a, b *api.Reviewed) string {
	for _, part := range []struct {
		name string
		a, b any
	}{
		{"policy", a.Policy, b.Policy}, {"ceiling", a.CeilingDigest, b.CeilingDigest}, {"sources", a.Sources, b.Sources}, {"files", a.Files, b.Files},
		{"grant", a.Grant, b.Grant}, {"limits", a.Limits, b.Limits}, {"output", a.Output, b.Output}, {"review", a, b},
	} {
		x, xerr := api.Encode(part.a)
		y, yerr := api.Encode(part.b)
		if xerr != nil || yerr != nil || !slices.Equal(x, y) {
			return part.name
		}
	}
	return ""
}

// replan makes the plan of an execution again: its session's life has become shorter meanwhile. A time limit that was
// modified while it waited stays.
func replan(s *Supervisor, c *call) *refusal {
	p, deny, err := planExec(c.req.Exec, c.session.granted(), c.session.env, *c.decision, s.defaults, c.session.left(c.judging), s.host)
	switch {
	case len(deny) > 0:
		return denied(deny...)
	case err != nil:
		return faulted(err)
	}
	x := c.execution
	p.exec.StdinOpen = x.plan.exec.StdinOpen
	x.mu.Lock()
	modified := x.timeout != x.plan.timeout
	timeout := x.timeout
	x.follows(p)
	if modified {
		x.timeout = timeout
	}
	x.mu.Unlock()
	c.clamped = p.clamped
	return nil
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

// approvalIn is the approval of a call as its receipt tells of it.
func (s *Supervisor) approvalIn(c *call) *api.Approval {
	if c.leave == nil && (c.decision == nil || c.decision.Obligations.RequireApproval == nil) {
		return nil
	}
	var a api.Approval
	var ok bool
	s.chronicle.read(func(state *ledger.State) { a, ok = state.ApprovalOf(c.intent) })
	if !ok {
		return nil // it was refused before it waited
	}
	if w := c.leave; w != nil && w.verdict != nil && !w.noted {
		v := w.verdict
		a.State, a.DecidedBy, a.DecidedIn, a.Comment = v.State, v.By, v.In, v.Comment
		a.DecidedAtNS, a.DecidedAt = stamp(time.Unix(0, v.AtNS))
	}
	return &a
}

// host.approval.approve and deny

// admitVerdict finds the approval that a verdict is about. One that is not for the caller to see is not there.
func admitVerdict(s *Supervisor, c *call) *refusal {
	a, err := s.approval(c.req.Principal, c.req.Verdict.ApprovalID)
	if err != nil {
		return faulted(err)
	}
	c.approval = &a
	return nil
}

// approval returns an approval that p may know of: his own, or one that he is a candidate for.
func (s *Supervisor) approval(p api.Principal, id string) (a api.Approval, err *api.Error) {
	var ok bool
	s.chronicle.read(func(state *ledger.State) { a, _, ok = state.Approval(id) })
	if !ok || !mayKnow(&a, p) {
		return a, api.Errorf(api.CodeApprovalNotFound, "there is no approval %.80s", id)
	}
	return a, nil
}

func mayKnow(a *api.Approval, p api.Principal) bool {
	return owns(a.Principal, p) || leaveCounts(a.Approvers, p)
}

// leaveCounts reports whether p is one of those whose leave counts, as far as the operation's policy said.
func leaveCounts(a *api.Approvers, p api.Principal) bool {
	return a == nil || slices.Contains(a.UIDs, p.UID) || slices.Contains(a.GIDs, p.GID) ||
		slices.ContainsFunc(p.Groups, func(gid uint32) bool { return slices.Contains(a.GIDs, gid) })
}

// planVerdict holds what no policy of approvals can lift: four eyes, and whom the operation's policy named.
func planVerdict(_ *Supervisor, c *call) *refusal {
	a, p, ask := c.approval, c.req.Principal, c.req.Verdict
	approve := c.req.Op == api.OpApprove
	switch {
	case !approve && owns(a.Principal, p): // he takes it back
	case !leaveCounts(a.Approvers, p):
		return denied(api.Deny{Code: api.CodeApproverNotAllowed, Subject: "approval:" + a.ApprovalID, Message: "the policy named others, whose leave it needs"})
	case approve && p.UID == a.Principal.UID && !a.Own:
		return denied(api.Deny{Code: api.CodeApprovalOwn, Subject: "approval:" + a.ApprovalID, Message: "it is the request of the same user"})
	}
	if ask.Review != "" && ask.Review != a.Review {
		return faulted(api.Errorf(api.CodeApprovalReview, "what waits is %s", a.Review))
	}
	return nil
}

// actVerdict tells the one who waits, and says what came of it. A verdict that is there already is not changed.
func actVerdict(_ context.Context, s *Supervisor, c *call) (api.Payload, *api.Error) {
	a, ask := c.approval, c.req.Verdict
	o := opinion{
		approve: c.req.Op == api.OpApprove, by: c.req.Principal, in: c.intent, comment: ask.Comment, answer: make(chan outcome, 1),
	}
	o.withdraw = !o.approve && owns(a.Principal, o.by)
	if w := s.registry.held(a.IntentID); w != nil {
		select {
		case w.opinions <- o:
			return s.verdictGiven(c, <-o.answer)
		case <-w.over:
		}
	}
	now, err := s.approval(c.req.Principal, a.ApprovalID)
	switch {
	case err != nil: // it has gone from view meanwhile
		return failedVerdict(err.Code, ""), err
	case now.State == api.ApprovalWaiting && isClosed(s.closing.Done()):
		return api.Payload{}, errLeft
	case now.State == api.ApprovalWaiting: // its receipt is on its way
		err := api.Errorf(api.CodeApprovalSettled, "it is not waited for any more")
		return failedVerdict(err.Code, ""), err
	}
	r := &api.VerdictResult{ApprovalID: now.ApprovalID, IntentID: now.IntentID, State: now.State, Again: true, DecidedBy: now.DecidedBy}
	if want := map[bool]api.ApprovalState{true: api.ApprovalApproved, false: api.ApprovalDenied}[o.approve]; now.State == want ||
		o.withdraw && now.State == api.ApprovalCanceled {
		return api.Payload{Verdict: r}, nil
	}
	r.Again = false
	settled := api.Errorf(api.CodeApprovalSettled, "it has been decided already: %s", now.State)
	r.Error = settled.Code
	return api.Payload{Verdict: r}, settled
}

func (s *Supervisor) verdictGiven(c *call, got outcome) (api.Payload, *api.Error) {
	r := &api.VerdictResult{ApprovalID: c.approval.ApprovalID, IntentID: c.approval.IntentID, State: got.state}
	if got.fault == errLeft {
		return api.Payload{}, errLeft
	}
	if got.fault != nil {
		r.Error = got.fault.Code
		return api.Payload{Verdict: r}, got.fault
	}
	by := c.req.Principal
	r.DecidedBy = &by
	return api.Payload{Verdict: r}, nil
}

func failedVerdict(code api.Code, _ string) api.Payload {
	return api.Payload{Verdict: &api.VerdictResult{Error: code}}
}

// host.approval.get and list

// Approval returns an approval, and what is to be reviewed as long as the records have it.
func (s *Supervisor) Approval(ctx context.Context, req *api.Request) (*api.Approval, *api.Receipt, error) {
	var a api.Approval
	denial, err := s.permitRead(req, func(c *call) (err *api.Error) {
		if a, err = s.approval(req.Principal, req.Read.Approval); err == nil {
			c.approval = &a
		}
		return err
	})
	if denial != nil || err != nil {
		return nil, denial, err
	}
	if w := s.registry.held(a.IntentID); w != nil {
		a.Reviewed = w.reviewed
		return &a, nil, nil
	}
	a.Reviewed, err = s.reviewedAt(a)
	if err != nil && !isGone(err) {
		s.log.Warn("what was reviewed cannot be read", "approval_id", a.ApprovalID, "error", err)
	}
	return &a, nil, nil
}

// reviewedAt makes again what leave was asked for, from the records, and proves it by the token.
func (s *Supervisor) reviewedAt(a api.Approval) (*api.Reviewed, error) {
	c, err := s.askedAt(a)
	if err != nil {
		return nil, err
	}
	return c.leave.reviewed, nil
}

// askedAt is as much of the call that waited as its records have.
func (s *Supervisor) askedAt(a api.Approval) (*call, error) {
	var in api.Intent
	var seq int64
	var ok bool
	s.chronicle.read(func(state *ledger.State) {
		in, ok = state.Intent(a.IntentID)
		_, seq, _ = state.Approval(a.ApprovalID)
	})
	if !ok {
		return nil, api.Errorf(api.CodeGone, "the intent is not kept any more")
	}
	req, decision, err := s.intentAt(in.EmittedAtSeq)
	if err != nil {
		return nil, err
	}
	var began ledger.Waiting
	if err := s.recordAt(seq, &began); err != nil {
		return nil, err
	}
	if decision == nil || decision.Obligations.RequireApproval == nil {
		return nil, errors.New("the record of its decision is not there")
	}
	c := &call{
		operation: operations[in.Op],
		req:       req,
		redacted:  *req,
		intent:    in.IntentID,
		at:        time.Unix(0, in.AdmittedAtNS),
		facts:     decision.Facts,
		file:      fileCall{facts: decision.File},
		grant:     began.Grant,
		decision: &rego.Decision{
			Allow: true, Warn: decision.Warn, Grant: decision.Grant, Limits: decision.Limits, Obligations: decision.Obligations,
			Policy: decision.Policy, InputDigest: decision.InputDigest,
		},
		admitted: make(chan struct{}),
		done:     make(chan struct{}),
	}
	c.judging = c.at
	if c.request, err = api.Encode(req); err != nil {
		return nil, err
	}
	c.leave = newWaiting(a.ApprovalID, *decision.Obligations.RequireApproval, time.Unix(0, a.DeadlineNS))
	review := s.reviewOf(c)
	review.CeilingDigest = decision.CeilingDigest
	if err := c.leave.binds(review); err != nil {
		return nil, err
	}
	if c.leave.review != a.Review {
		return nil, errors.New("bug: the records do not make what was reviewed")
	}
	return c, nil
}

// Approvals lists what the caller waits for, or may decide: State and Limit filter, After and WaitMS wait for what
// changes. Who may see one of another's is policy's to say, for each.
func (s *Supervisor) Approvals(ctx context.Context, req *api.Request) (*api.ApprovalList, *api.Receipt, error) {
	after, bad := parseSeq(req.Read.After)
	if bad != nil {
		return nil, nil, bad
	}
	denial, err := s.permitRead(req, nil)
	if denial != nil || err != nil {
		return nil, denial, err
	}
	deadline := time.NewTimer(time.Duration(req.Read.WaitMS) * time.Millisecond)
	defer deadline.Stop()
	for {
		next := s.chronicle.waits.next()
		list := s.approvalsAfter(req, after)
		if len(list.Approvals) > 0 {
			return list, nil, nil
		}
		after, _ = parseSeq(list.Next)
		select {
		case <-next:
		case <-deadline.C:
			return list, nil, nil
		case <-s.closing.Done():
			return list, nil, nil
		case <-ctx.Done():
			return nil, nil, context.Cause(ctx)
		}
	}
}

func (s *Supervisor) approvalsAfter(req *api.Request, after int64) *api.ApprovalList {
	var page []api.Approval
	s.chronicle.read(func(state *ledger.State) {
		page, after = state.Approvals(after, limit(req.Read.Limit), func(a *api.Approval) bool {
			return fits(req.Read.State, string(a.State)) && mayKnow(a, req.Principal)
		})
	})
	page = slices.DeleteFunc(page, func(a api.Approval) bool { return !s.shows(req, a) })
	if page == nil {
		page = []api.Approval{}
	}
	return &api.ApprovalList{Approvals: page, Next: strconv.FormatInt(after, 10)}
}

// shows asks policy whether the caller of a list may see another's approval in it, as if he had named it.
func (s *Supervisor) shows(req *api.Request, a api.Approval) bool {
	if owns(a.Principal, req.Principal) {
		return true
	}
	one := *req
	one.Op, one.Read = api.OpApprovalGet, &api.Read{Approval: a.ApprovalID}
	c := &call{req: &one, redacted: one, judging: s.now(), approval: &a}
	return decide(s, c) == nil
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
