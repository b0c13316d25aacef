package supervisor

import (
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
