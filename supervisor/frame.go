package supervisor

import (
	"context"
	"strconv"
	"time"

	"github.com/stockade-dev/stockade/supervisor/api"
	"github.com/stockade-dev/stockade/supervisor/ledger"
)

// frame journals a milestone of the execution, and shows it when it is durable. One that
// cannot be recorded is not shown.
func (x *execution) frame(s *Supervisor, kind api.FrameKind, payload api.FramePayload) {
	x.framing.Lock()
	defer x.framing.Unlock()
	x.recordFrame(s, kind, payload)
}

// recordFrame is frame, with framing held.
func (x *execution) recordFrame(s *Supervisor, kind api.FrameKind, payload api.FramePayload) {
	if f := x.newFrame(s, kind, payload); f != nil {
		if _, err := s.record(s.ctx, s.journal.Settle, f); err == nil {
			x.wake.all()
		}
	}
}

// newFrame returns the next frame of the execution's intent, or nil when the intent takes no
// more. framing is held until it is recorded.
func (x *execution) newFrame(s *Supervisor, kind api.FrameKind, payload api.FramePayload) *ledger.Frame {
	payload.ExecID, payload.SessionID = x.id, x.session.id
	now := s.now()
	var f api.Frame
	var ok bool
	s.chronicle.read(func(state *ledger.State) {
		if f, ok = state.NextFrame(x.call.intent); ok {
			f.Kind, f.Payload = kind, payload
			f.AtNS, f.At = stamp(now)
		}
	})
	if !ok {
		return nil
	}
	return &ledger.Frame{Header: ledger.At(now), Frame: f}
}

// totals are what a frame says of the output.
func (x *execution) totals() api.FramePayload {
	out, err := x.written()
	return api.FramePayload{StdoutBytes: out, StderrBytes: err}
}

// emitFrames hands out the next frames after the cursor, of which there are total by now, and says which are not
// kept any more. It reports whether there were any.
func (s *Supervisor) emitFrames(intent, exec string, total int64, at *cursor, emit func(api.Event)) (moved bool, err error) {
	frames, gone, err := s.framesAfter(intent, at.frame, total, framesAtOnce)
	if gone > 0 {
		skip(intent, exec, at, cursor{at.frame + gone, at.stdout, at.stderr}, emit)
	}
	for i := range frames {
		at.frame = frames[i].Seq
		emit(api.Event{Kind: "frame", Cursor: at.String(), IntentID: intent, ExecID: exec, Frame: &frames[i]})
	}
	return gone > 0 || len(frames) > 0, err
}

// skip moves the cursor over what is not kept any more, and says so.
func skip(intent, exec string, at *cursor, to cursor, emit func(api.Event)) {
	if from := *at; from != to {
		*at = to
		emit(api.Event{Kind: "gone", Cursor: to.String(), IntentID: intent, ExecID: exec, Gone: &api.Gone{From: from.String(), FirstAvailable: to.String()}})
	}
}

// framesAfter reads the frames of an intent from the journal, those after number after, of which there are
// total by now; the first gone of them are not kept any more.
func (s *Supervisor) framesAfter(intent string, after, total int64, most int) (frames []api.Frame, gone int64, err error) {
	places, gone := s.chronicle.framePlaces(intent, after, most)
	if len(places) == 0 {
		gone = max(0, total-after)
	}
	for _, at := range places {
		var record ledger.Frame
		if err := s.recordAt(at, &record); err != nil {
			s.log.Error("frame cannot be read", "error", err)
			return frames, gone, api.Errorf(api.CodeJournalFailed, "a frame cannot be read")
		}
		frames = append(frames, record.Frame)
	}
	return frames, gone, nil
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
		c := s.registry.call(req.Principal, in.IntentID)
		var changed, done <-chan struct{}
		over := true
		if c != nil {
			done = c.done
			over = isClosed(done)
			if c.execution != nil {
				changed = c.execution.wake.next()
			}
		}
		list := &api.FrameList{}
		var gone int64
		list.Frames, gone, err = s.framesAfter(in.IntentID, after, in.FrameSeq, limit(req.Read.Limit))
		if gone > 0 {
			list.Frames = nil
			list.Gone = &api.Gone{From: strconv.FormatInt(after, 10), FirstAvailable: strconv.FormatInt(after+gone, 10)}
		}
		if err != nil || gone > 0 || len(list.Frames) > 0 {
			return list, nil, err
		}
		if over && c != nil && c.err != nil { // it goes on, but not with this supervisor
			return nil, nil, c.err
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
		return list, nil, nil // its receipt could not be recorded
	}
	r, err := s.receiptAt(place.seq)
	list.Receipt = r
	return list, nil, err
}
