package ledger

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

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
		l := looking{Decoder: jsontext.NewDecoder(bytes.NewBuffer(b), lax)}
		if err = l.object(&g, record); err == errSeen {
			err = nil
		}
	case g.Type == TypeSnapshot:
		g.Snapshot = new(SnapshotTaken)
		err = json.Unmarshal(b, g.Snapshot, lax)
	case decoders[g.Type] == nil:
		err = fmt.Errorf("no type %.40q", t)
	}
	if err != nil {
		return g, fmt.Errorf("record: %w", err)
	}
	return g, nil
}

// looking reads a record from its beginning.
type looking struct{ *jsontext.Decoder }

// members says what is read of an object, by name. What is not here is passed over.
type members map[string]func(l *looking, g *Glance) error

// errSeen ends the look: nothing that follows is of interest.
var errSeen = errors.New("seen")

var (
	record = members{"receipt": inside(receiptMembers), "frame": inside(frameMembers)}

	receiptMembers = members{
		"intent_id": text(func(g *Glance) *string { return &g.IntentID }),
		"op":        text(func(g *Glance) *string { return (*string)(&g.Op) }),
		"principal": inside(members{
			"uid": func(l *looking, g *Glance) error {
				n, err := l.number()
				g.Owner.UID = uint32(n)
				return err
			},
			"scope": inside(members{
				"agent_id": text(func(g *Glance) *string { return &g.Owner.Scope.AgentID }),
				"world_id": text(func(g *Glance) *string { return &g.Owner.Scope.WorldID }),
				"chat_id":  text(func(g *Glance) *string { return &g.Owner.Scope.ChatID }),
			}),
		}),
		"session_id": text(func(g *Glance) *string { return &g.SessionID }),
		"exec_id":    text(func(g *Glance) *string { return &g.ExecID }),
		"outcome":    last(text(func(g *Glance) *string { return (*string)(&g.Outcome) })),
	}

	frameMembers = members{
		"intent_id": text(func(g *Glance) *string { return &g.IntentID }),
		"seq": last(func(l *looking, g *Glance) (err error) {
			g.FrameSeq, err = l.number()
			return err
		}),
	}
)

func inside(m members) func(*looking, *Glance) error {
	return func(l *looking, g *Glance) error { return l.object(g, m) }
}

func text(to func(*Glance) *string) func(*looking, *Glance) error {
	return func(l *looking, g *Glance) error {
		tok, err := l.ReadToken()
		if err == nil && tok.Kind() != '"' {
			err = fmt.Errorf("%v where a text belongs", tok.Kind())
		}
		if err == nil {
			*to(g) = tok.String()
		}
		return err
	}
}

func last(read func(*looking, *Glance) error) func(*looking, *Glance) error {
	return func(l *looking, g *Glance) error {
		if err := read(l, g); err != nil {
			return err
		}
		return errSeen
	}
}

func (l *looking) number() (int64, error) {
	tok, err := l.ReadToken()
	if err == nil && tok.Kind() != '0' {
		err = fmt.Errorf("%v where a number belongs", tok.Kind())
	}
	if err != nil {
		return 0, err
	}
	return tok.Int()
}

func (l *looking) object(g *Glance, m members) error {
	tok, err := l.ReadToken()
	if err == nil && tok.Kind() != '{' {
		err = fmt.Errorf("%v where an object belongs", tok.Kind())
	}
	for err == nil && l.PeekKind() != '}' {
		if tok, err = l.ReadToken(); err != nil {
			break
		}
		if read := m[tok.String()]; read != nil {
			err = read(l, g)
		} else {
			err = l.SkipValue()
		}
	}
	if err == nil {
		_, err = l.ReadToken()
	}
	return err
}
