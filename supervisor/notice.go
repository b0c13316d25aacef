package supervisor

import (
	"context"
	"strconv"
	"time"

	"github.com/stockade-dev/stockade/supervisor/api"
	"github.com/stockade-dev/stockade/supervisor/ledger"
)

// notice records an event of a session that nothing else says.
func (s *Supervisor) notice(ses *session, n *ledger.Notice) error {
	n.Header, n.SessionID = ledger.At(s.now()), ses.id
	_, err := s.record(s.ctx, s.journal.Settle, n)
	return err
}

// Events returns the events of a session, or of the caller, after the one with number Read.After.
// Where there is none yet it waits for WaitMS.
func (s *Supervisor) Events(ctx context.Context, req *api.Request) (*api.NoticeList, *api.Receipt, error) {
	after, bad := parseSeq(req.Read.After)
	if bad != nil {
		return nil, nil, bad
	}
	denial, err := s.permitEvents(req)
	if denial != nil || err != nil {
		return nil, denial, err
	}
	changed, leave := s.chronicle.listen(ledger.OwnerOf(req.Principal))
	defer leave()
	deadline := time.NewTimer(time.Duration(req.Read.WaitMS) * time.Millisecond)
	defer deadline.Stop()
	for {
		next := changed.next()
		list := s.eventsAfter(req, after)
		if len(list.Events) > 0 || list.Gone != nil {
			return list, nil, nil
		}
		select {
		case <-next:
		case <-s.left:
			return nil, nil, api.Errorf(api.CodeShuttingDown, "the supervisor is shutting down")
		case <-deadline.C:
			return list, nil, nil
		case <-s.ctx.Done():
			return list, nil, nil
		case <-ctx.Done():
			return nil, nil, context.Cause(ctx)
		}
	}
}

// FollowEvents hands events to emit as they come, from the one after Read.After on, until ctx
// ends, or the session has ended and its last event has been handed out.
func (s *Supervisor) FollowEvents(ctx context.Context, req *api.Request, emit func(api.Notice)) (denial *api.Receipt, err error) {
	after, bad := parseSeq(req.Read.After)
	if bad != nil {
		return nil, bad
	}
	if denial, err = s.permitEvents(req); denial != nil || err != nil {
		return denial, err
	}
	changed, leave := s.chronicle.listen(ledger.OwnerOf(req.Principal))
	defer leave()
	for {
		next := changed.next()
		over := req.Read.SessionID != "" && s.sessionOver(req.Read.SessionID)
		list := s.eventsAfter(req, after)
		if list.Gone != nil {
			return nil, list.Gone.Error("events")
		}
		for _, n := range list.Events {
			emit(n)
		}
		after = list.Next
		switch {
		case len(list.Events) > 0:
		case over:
			return nil, nil
		default:
			select {
			case <-next:
			case <-s.ctx.Done():
				return nil, api.Errorf(api.CodeShuttingDown, "the supervisor is shutting down")
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
		}
	}
}

func (s *Supervisor) permitEvents(req *api.Request) (denial *api.Receipt, err error) {
	return s.permitRead(req, func(c *call) *api.Error {
		if req.Read.SessionID == "" {
			return nil
		}
		ses, err := s.registry.find(req.Principal, req.Read.SessionID)
		if err == nil {
			c.session = ses
		}
		return err
	})
}

func (s *Supervisor) eventsAfter(req *api.Request, after int64) *api.NoticeList {
	list := &api.NoticeList{}
	s.chronicle.read(func(state *ledger.State) {
		var first, last int64
		list.Events, first, last = state.Notices(ledger.OwnerOf(req.Principal), req.Read.SessionID, after, limit(req.Read.Limit))
		if after+1 < first && last > after {
			list.Events = nil
			list.Gone = &api.Gone{From: strconv.FormatInt(after, 10), FirstAvailable: strconv.FormatInt(first-1, 10)}
		}
	})
	list.Next = after
	if n := len(list.Events); n > 0 {
		list.Next = list.Events[n-1].Seq
	}
	return list
}

func (s *Supervisor) sessionOver(id string) bool {
	s.registry.mu.Lock()
	ses := s.registry.sessions[id]
	s.registry.mu.Unlock()
	return ses == nil || ses.over()
}
