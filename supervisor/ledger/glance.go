package ledger

import (
	"fmt"

	"github.com/go-json-experiment/json"

	"github.com/stockade-dev/stockade/supervisor/api"
)

// Glance is what finds a record again: so much of a receipt and of a frame, all that a snapshot's
// record says, and the type of any other. A journal of which a snapshot tells the rest is gone through in
// a fraction of the time that [Decode] takes.
type Glance struct {
	Type      string
	IntentID  string
	FrameSeq  int64 // of a frame: its own
	Op        api.Op
	Owner     Owner
	SessionID string
	ExecID    string
	Outcome   api.Outcome
	Snapshot  *SnapshotTaken
}

// GlanceOf looks at a record of ours, as far as it must.
func GlanceOf(b []byte) (g Glance, err error) {
	t, _ := typed(b)
	g.Type = string(t)
	switch {
	case g.Type == TypeReceipt || g.Type == TypeFrame:
		s := scan{rest: b}
		for s.member() {
			switch string(s.name) {
			case "receipt":
				g.receipt(&s)
				return g, s.failure()
			case "frame":
				g.frame(&s)
				return g, s.failure()
			default:
				s.skip()
			}
		}
		err = s.failure()
	case g.Type == TypeSnapshot:
		g.Snapshot = new(SnapshotTaken)
		err = json.Unmarshal(b, g.Snapshot, lax)
	case decoders[g.Type] == nil:
		err = fmt.Errorf("record: no type %.40q", t)
	}
	return g, err
}

func (s *scan) failure() error {
	if s.err != nil {
		return fmt.Errorf("record: %w", s.err)
	}
	return nil
}

// receipt reads up to the outcome: what follows is for who wants the receipt.
func (g *Glance) receipt(s *scan) {
	for s.member() {
		switch string(s.name) {
		case "intent_id":
			g.IntentID = s.text()
		case "op":
			g.Op = api.Op(s.text())
		case "principal":
			g.owner(s)
		case "session_id":
			g.SessionID = s.text()
		case "exec_id":
			g.ExecID = s.text()
		case "outcome":
			g.Outcome = api.Outcome(s.text())
			return
		default:
			s.skip()
		}
	}
}

func (g *Glance) owner(s *scan) {
	for s.member() {
		switch string(s.name) {
		case "uid":
			g.Owner.UID = uint32(s.number())
		case "scope":
			s.into(&g.Owner.Scope)
		default:
			s.skip()
		}
	}
}

func (g *Glance) frame(s *scan) {
	for s.member() {
		switch string(s.name) {
		case "intent_id":
			g.IntentID = s.text()
		case "seq":
			g.FrameSeq = s.number()
			return
		default:
			s.skip()
		}
	}
}
