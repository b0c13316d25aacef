package supervisor

import (
	"cmp"
	"context"
	"strconv"
	"time"

	"github.com/stockade-dev/stockade/supervisor/api"
	"github.com/stockade-dev/stockade/supervisor/ledger"
)

// Process returns one execution of the caller's, live or in view.
func (s *Supervisor) Process(ctx context.Context, req *api.Request) (*api.Process, *api.Receipt, error) {
	p, denial, err := s.permitProcess(req)
	if denial != nil || err != nil {
		return nil, denial, err
	}
	return s.current(p), nil, nil
}

// permitProcess asks whether the caller may look at an execution, and returns its record.
func (s *Supervisor) permitProcess(req *api.Request) (p api.Process, denial *api.Receipt, err error) {
	ref := api.ProcessRef{ExecID: req.Read.ExecID, IntentID: req.Read.IntentID}
	denial, err = s.permitRead(req, func(c *call) *api.Error {
		var ok bool
		if p, ok = s.chronicle.process(req.Principal, ref); !ok {
			return unknownExecution(ref)
		}
		c.subject = &p
		c.session, _ = s.registry.find(req.Principal, p.SessionID) // nil once it is history
		return nil
	})
	return p, denial, err
}

// current adds to a record what no journal has: how much the command has written by now.
func (s *Supervisor) current(p api.Process) *api.Process {
	if x := s.registry.execution(p.Principal, api.ProcessRef{ExecID: p.ExecID}); x != nil {
		p.StdoutBytes, p.StderrBytes = x.written()
		if p.StartedAtNS != 0 {
			p.DurationNS = s.now().UnixNano() - p.StartedAtNS
		}
	}
	return &p
}

// Processes lists the caller's executions, newest first, a page at a time (R239).
func (s *Supervisor) Processes(ctx context.Context, req *api.Request) (*api.ProcessList, *api.Receipt, error) {
	if denial, err := s.permitRead(req, nil); denial != nil || err != nil {
		return nil, denial, err
	}
	list := &api.ProcessList{}
	var err error
	s.chronicle.read(func(state *ledger.State) {
		list.Processes, list.Next, err = state.Processes(ledger.OwnerOf(req.Principal), req.Read, limit(req.Read.Limit))
	})
	if err != nil {
		return nil, nil, err
	}
	for i, p := range list.Processes {
		list.Processes[i] = *s.current(p)
	}
	return list, nil, nil
}

// Wait waits until an execution has ended, for as long as WaitMS says or else for the longest
// that a caller may ask for, and says where it is then.
func (s *Supervisor) Wait(ctx context.Context, req *api.Request) (*api.Process, *api.Receipt, error) {
	p, denial, err := s.permitProcess(req)
	if denial != nil || err != nil {
		return nil, denial, err
	}
	if x := s.registry.execution(req.Principal, api.ProcessRef{ExecID: p.ExecID}); x != nil {
		if err := patiently(ctx, x.call.done, req.Read.WaitMS); err != nil {
			return nil, nil, err
		}
	}
	if now, ok := s.chronicle.process(req.Principal, api.ProcessRef{ExecID: p.ExecID}); ok {
		p = now // it may have been deleted meanwhile
	}
	return s.current(p), nil, nil
}

// longestWait is how long an answer is waited for when the caller does not say.
const longestWait = 30_000 // ms

// patiently waits for done, for ms milliseconds (0: the longest) at most. It fails when the caller has gone.
func patiently(ctx context.Context, done <-chan struct{}, ms int64) error {
	t := time.NewTimer(time.Duration(cmp.Or(ms, longestWait)) * time.Millisecond)
	defer t.Stop()
	select {
	case <-done:
	case <-t.C:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}

// Output returns output of an execution after the cursor Read.After, at most MaxBytes of it, nor more than 1 MiB. Where
// there is none yet it waits for WaitMS.
func (s *Supervisor) Output(ctx context.Context, req *api.Request) (*api.Pending, *api.Receipt, error) {
	at, bad := parseCursor(req.Read.After)
	if bad != nil {
		return nil, nil, bad
	}
	x, denial, err := s.permitFollow(req)
	if denial != nil || err != nil {
		return nil, denial, err
	}
	if bad := s.reached(req, x, at); bad != nil {
		return nil, nil, bad
	}
	most := min(cmp.Or(req.Read.MaxBytes, pendingBytes), mostPending)
	if x == nil {
		p, err := s.endedOutput(req, at, most)
		return p, nil, err
	}
	deadline := time.NewTimer(time.Duration(req.Read.WaitMS) * time.Millisecond)
	defer deadline.Stop()
	for {
		// Between the end of the log and the receipt there is neither: that is a moment to wait in.
		var changed <-chan struct{}
		if x.follow() {
			changed = x.log.Changed()
			x.leave()
		}
		p, err := s.pending(x, at, most)
		if err != nil || len(p.Output) > 0 {
			return p, nil, err
		}
		select {
		case <-changed:
		case <-x.call.done:
			if x.call.err != nil { // it goes on, but not with this supervisor
				return nil, nil, x.call.err
			}
			p, err := s.endedOutput(req, at, most)
			return p, nil, err
		case <-deadline.C:
			return p, nil, nil
		case <-ctx.Done():
			return nil, nil, context.Cause(ctx)
		}
	}
}

// endedOutput is Output of an execution that has ended.
func (s *Supervisor) endedOutput(req *api.Request, at cursor, most int64) (*api.Pending, error) {
	r, err := s.receiptOf(req)
	if err != nil {
		return nil, err
	}
	p := &api.Pending{IntentID: r.IntentID, ExecID: r.ExecID, SessionID: r.SessionID, Receipt: r}
	if record, ok := s.chronicle.process(req.Principal, api.ProcessRef{ExecID: r.ExecID}); ok {
		p.State = record.State
	}
	src, done, err := s.keptOutput(r)
	if err != nil {
		return nil, err
	}
	defer done()
	if first := src.first(at); first != at {
		p.Gone = &api.Gone{From: at.String(), FirstAvailable: first.String()}
		p.Cursor = first.String()
		return p, nil
	}
	if p.Output, err = chunks(src, &at, most); err != nil {
		return nil, missing(err)
	}
	rest := at
	next, err := src.next(&rest, 1)
	p.End = err == nil && len(next.Bytes) == 0
	p.Cursor = at.String()
	return p, nil
}

// Intent returns one intent of the caller's, in flight or settled.
func (s *Supervisor) Intent(ctx context.Context, req *api.Request) (*api.Intent, *api.Receipt, error) {
	if denial, err := s.permitRead(req, nil); denial != nil || err != nil {
		return nil, denial, err
	}
	in, ok := s.intent(req.Principal, req.Read.IntentID)
	if !ok {
		return nil, nil, api.Errorf(api.CodeNotFound, "there is no intent %.80s", req.Read.IntentID)
	}
	return &in, nil, nil
}

func (s *Supervisor) intent(p api.Principal, id string) (in api.Intent, ok bool) {
	s.chronicle.read(func(state *ledger.State) { in, ok = state.Intent(id) })
	return s.aged(in), ok && owns(in.Principal, p)
}

// aged says how long an intent has been in flight.
func (s *Supervisor) aged(in api.Intent) api.Intent {
	if in.SettledAtNS == 0 {
		in.AgeNS = s.now().UnixNano() - in.AdmittedAtNS
	}
	return in
}

// Intents lists the caller's intents, newest first.
func (s *Supervisor) Intents(ctx context.Context, req *api.Request) (*api.IntentList, *api.Receipt, error) {
	if denial, err := s.permitRead(req, nil); denial != nil || err != nil {
		return nil, denial, err
	}
	list := &api.IntentList{Intents: []api.Intent{}}
	s.chronicle.read(func(state *ledger.State) {
		for _, in := range state.Intents(ledger.OwnerOf(req.Principal), req.Read, limit(req.Read.Limit)) {
			list.Intents = append(list.Intents, s.aged(in))
		}
	})
	return list, nil, nil
}

// Frames returns the frames of an intent after the one with number Read.After. Where there is
// none yet it waits for WaitMS.
func (s *Supervisor) Frames(ctx context.Context, req *api.Request) (*api.FrameList, *api.Receipt, error) {
	after, bad := parseSeq(req.Read.After)
	if bad != nil {
		return nil, nil, bad
	}
	denial, err := s.permitRead(req, nil)
	if denial != nil || err != nil {
		return nil, denial, err
	}
	in, ok := s.intent(req.Principal, req.Read.IntentID)
	if !ok {
		return nil, nil, api.Errorf(api.CodeNotFound, "there is no intent %.80s", req.Read.IntentID)
	}
	deadline := time.NewTimer(time.Duration(req.Read.WaitMS) * time.Millisecond)
	defer deadline.Stop()
	for {
		x := s.registry.execution(req.Principal, api.ProcessRef{IntentID: in.IntentID})
		var changed, done <-chan struct{}
		over := true
		if x != nil {
			changed, done = x.wake.next(), x.call.done
			over = isClosed(done)
		}
		list := &api.FrameList{}
		if list.Frames, err = s.framesAfter(in.IntentID, after, in.FrameSeq, limit(req.Read.Limit)); err != nil || len(list.Frames) > 0 {
			return list, nil, err
		}
		if over && x != nil && x.call.err != nil { // it goes on, but not with this supervisor
			return nil, nil, x.call.err
		}
		if over {
			return s.settledFrames(req.Principal, in.IntentID, list)
		}
		select {
		case <-changed:
		case <-done:
		case <-deadline.C:
			return list, nil, nil
		case <-ctx.Done():
			return nil, nil, context.Cause(ctx)
		}
	}
}

// settledFrames adds the receipt to a page behind which there can be no more.
func (s *Supervisor) settledFrames(p api.Principal, intent string, list *api.FrameList) (*api.FrameList, *api.Receipt, error) {
	place, ok := s.chronicle.receipts.intent(p, intent)
	if !ok {
		return list, nil, nil // another operation, which has no frames and is not settled yet
	}
	r, err := s.receiptAt(place.seq)
	list.Receipt = r
	return list, nil, err
}

// parseSeq reads the cursor of a list that is numbered; "" is the beginning.
func parseSeq(text string) (int64, *api.Error) {
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return 0, invalidCursor(text)
	}
	return n, nil
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
			return nil, api.Errorf(api.CodeGone, "events up to %s are not kept any more", list.Gone.FirstAvailable)
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

// Quiescence says what is in flight, of every principal (R134, R135).
func (s *Supervisor) Quiescence(ctx context.Context, req *api.Request) (*api.Quiescence, *api.Receipt, error) {
	if denial, err := s.permitRead(req, nil); denial != nil || err != nil {
		return nil, denial, err
	}
	q := &api.Quiescence{Draining: s.draining.Load(), Intents: []api.Intent{}}
	s.chronicle.read(func(state *ledger.State) {
		for _, in := range state.InFlight() {
			q.Intents = append(q.Intents, s.aged(in))
		}
		q.Sessions = int64(len(state.LiveSessions()))
	})
	for _, ses := range s.registry.all() {
		q.Executions += int64(len(ses.executing()))
	}
	q.Quiet = len(q.Intents) == 0
	return q, nil, nil
}

// Snapshot says what the journal amounts to now.
func (s *Supervisor) Snapshot(ctx context.Context, req *api.Request) (*api.Snapshot, *api.Receipt, error) {
	if denial, err := s.permitRead(req, nil); denial != nil || err != nil {
		return nil, denial, err
	}
	var c ledger.Capture
	s.chronicle.read(func(state *ledger.State) { c = state.Capture() })
	content, err := c.Encode()
	if err != nil {
		return nil, nil, api.Errorf(api.CodeInternalError, "%v", err)
	}
	return &api.Snapshot{Records: c.Records(), Digest: ledger.Digest(content), SizeBytes: int64(len(content))}, nil, nil
}
