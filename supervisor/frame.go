package supervisor

import (
	"github.com/go-json-experiment/json"

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

// framesAfter reads the frames of an intent from the journal, those after number after, of which there are
// total by now. The error is of code gone when they are not all there any more.
func (s *Supervisor) framesAfter(intent string, after, total int64, most int) ([]api.Frame, error) {
	places, gone := s.chronicle.framePlaces(intent, after, most)
	if len(places) == 0 {
		gone = max(0, total-after)
	}
	if gone > 0 {
		return nil, api.Errorf(api.CodeGone, "frames up to %d are not kept any more", after+gone)
	}
	var frames []api.Frame
	for _, at := range places {
		b, err := s.journal.Get(at)
		var record ledger.Frame
		if err == nil {
			err = json.Unmarshal(b, &record)
		}
		if err != nil {
			s.log.Error("frame cannot be read", "seq", at, "error", err)
			return frames, api.Errorf(api.CodeJournalFailed, "a frame cannot be read")
		}
		frames = append(frames, record.Frame)
	}
	return frames, nil
}
