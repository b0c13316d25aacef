package supervisor

import (
	"context"

	"github.com/stockade-dev/stockade/supervisor/api"
)

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
