package supervisor

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/stockade-dev/stockade/rego"
	"github.com/stockade-dev/stockade/supervisor/api"
	"github.com/stockade-dev/stockade/supervisor/ledger"
)

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
