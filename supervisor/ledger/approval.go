package ledger

import (
	"errors"
	"slices"

	"github.com/stockade-dev/stockade/supervisor/api"
)

// approval is the wait of an intent for leave. It is in view as long as its intent is.
type approval struct {
	api.Approval // without the RFC 3339 twins
	it           *intent
	seq          int64 // number of the record that began it
	changed      int64 // and of the one that changed it last
}

// wait has an intent wait for leave (R091). That is told to whose it is, and to those who are named as approvers.
func (s *State) wait(seq int64, r *Waiting) error {
	if r.Approval.ApprovalID == "" {
		return errors.New("an approval without an id")
	}
	it := s.intents[r.Approval.IntentID]
	if it == nil || it.Outcome != "" || it.approval != nil || s.approvals[r.Approval.ApprovalID] != nil {
		s.refuse()
		return nil
	}
	a := &approval{Approval: r.Approval, it: it, seq: seq, changed: seq}
	a.Op, a.Principal, a.SessionID, a.ExecID = it.Op, it.Principal, it.SessionID, it.ExecID
	a.State, a.AskedAtNS = api.ApprovalWaiting, r.AtNS
	it.approval, it.ApprovalID, it.State = a, a.ApprovalID, api.StateQueued
	s.approvals[a.ApprovalID] = a
	s.asked.add(seq, a)
	if p := s.startedBy[it.IntentID]; p != nil {
		p.ApprovalID = a.ApprovalID
		a.Argv = p.Argv
	}
	s.tellApproval(a, r.AtNS)
	return nil
}

// decide ends the wait. Of two decisions the first counts.
func (s *State) decide(seq int64, r *Verdict) error {
	a := s.approvals[r.ApprovalID]
	switch {
	case r.State == api.ApprovalWaiting || r.State == "":
		return errors.New("a decision that is none")
	case a == nil || a.State != api.ApprovalWaiting:
		s.refuse()
		return nil
	}
	a.DecidedBy, a.DecidedIn, a.Comment = r.By, r.In, r.Comment
	s.decided(seq, a, r.State, r.AtNS)
	return nil
}

func (s *State) decided(seq int64, a *approval, state api.ApprovalState, at int64) {
	a.State, a.DecidedAtNS, a.it.State = state, at, ""
	s.asked.remove(a.changed)
	a.changed = seq
	s.asked.add(seq, a)
	s.tellApproval(a, at)
}

// tellApproval tells of an approval and its state: once in the log of whose it is, and once in that of each user who is
// named as an approver and is not the same.
func (s *State) tellApproval(a *approval, at int64) {
	n := api.Notice{
		Kind: api.NoticeApproval, AtNS: at, SessionID: a.SessionID, ExecID: a.ExecID, IntentID: a.IntentID, Approval: a.ApprovalID, Op: a.Op,
		State: string(a.State), Reason: shorten(a.Reason, keptText), Detail: a.it.owner.Instance(),
	}
	if a.DecidedBy != nil {
		n.Detail = OwnerOf(*a.DecidedBy).Instance()
	}
	n.Detail = shorten(n.Detail, keptText)
	s.note(a.it.owner, n)
	if a.Approvers == nil {
		return
	}
	for _, uid := range unique(slices.Clone(a.Approvers.UIDs)) {
		if o := s.owner(api.Principal{UID: uid}); o != a.it.owner {
			s.note(o, n)
		}
	}
}

func (s *State) dropApproval(a *approval) {
	delete(s.approvals, a.ApprovalID)
	s.asked.remove(a.changed)
}

// Approval returns an approval by its id, and the number of the record that began it.
func (s *State) Approval(id string) (a api.Approval, seq int64, ok bool) {
	found := s.approvals[id]
	if found == nil {
		return a, 0, false
	}
	return found.document(), found.seq, true
}

// ApprovalOf returns the approval that an intent waits for, or waited for.
func (s *State) ApprovalOf(intent string) (a api.Approval, ok bool) {
	if it := s.intents[intent]; it != nil && it.approval != nil {
		return it.approval.document(), true
	}
	return a, false
}

// Approvals returns those that last changed after a record, in this order, as far as they are wanted. last is the
// record that the last look was at: with it the next page begins.
func (s *State) Approvals(after int64, limit int, wanted func(*api.Approval) bool) (page []api.Approval, last int64) {
	last = after
	for a := range s.asked.upwardFrom(after + 1) {
		if len(page) == limit {
			return page, last
		}
		last = a.changed
		if wanted(&a.Approval) {
			page = append(page, a.document())
		}
	}
	return page, last
}

func (a *approval) document() api.Approval {
	d := a.Approval
	d.AskedAt, d.Deadline, d.DecidedAt = rfc3339(d.AskedAtNS), rfc3339(d.DeadlineNS), rfc3339(d.DecidedAtNS)
	return d
}
