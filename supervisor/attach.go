package supervisor

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"

	"github.com/stockade-dev/stockade/supervisor/api"
)

// hand is somebody who is attached to a shell, as he moves.
type hand struct {
	moves <-chan *api.ShellInput // closed when he leaves
	tell  func(news string)      // SeatTaken, then perhaps SeatLost
}

// What who is attached is told.
const (
	SeatTaken = "attached" // from here on what he types is typed
	SeatLost  = "observer" // from here on it is not: somebody else types
)

// AttachShell is Do of a host.shell.attach: what comes from moves is typed, one after the other, until moves is closed or the shell ends;
// the end of ctx is neither. tell says when that begins; it must not wait. Output is read like anybody's.
func (s *Supervisor) AttachShell(ctx context.Context, req *api.Request, moves <-chan *api.ShellInput, tell func(news string)) (*api.Receipt, error) {
	c, err := s.begin(ctx, req, brought{hand: &hand{moves, tell}})
	if err != nil {
		return nil, err
	}
	return s.await(context.WithoutCancel(ctx), c, nil) // it ends with moves, which is the caller's
}

// planAttach refuses what nobody's hand came with.
func planAttach(_ *Supervisor, c *call) *refusal {
	switch x := c.control.target; {
	case x != nil && x.shell == nil:
		return faulted(errNoShell)
	case c.brought.hand == nil:
		return faulted(api.Errorf(api.CodeInvalidParams, "who attaches keeps a connection for it"))
	}
	return nil
}

// actAttach types what a hand types. Each move takes its turn with other requests, and is no record: it may be a key.
func actAttach(ctx context.Context, s *Supervisor, c *call) (api.Payload, *api.Error) {
	ask, x, h := c.req.Attach, c.control.target, c.brought.hand
	if s.hasEnded(c) {
		return s.shellEnded(c)
	}
	seat, err := x.shell.sit(fmt.Sprintf("uid %d", c.req.Principal.UID), true, ask.Takeover)
	if err != nil {
		return s.faultedShell(c, err)
	}
	defer x.shell.rise(seat)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.closing, cancel)()
	t := &attachment{typing: typing{s: s, x: x}, sum: sha256.New()}
	if ask.Cols > 0 {
		t.move(ctx, &api.ShellInput{Actions: []api.ShellAction{{Type: api.ActionResize, Cols: ask.Cols, Rows: ask.Rows}}}, seat)
	}
	h.tell(SeatTaken)
	for lost := (<-chan struct{})(seat.demoted); ; {
		select {
		case in, ok := <-h.moves:
			if ok {
				t.move(ctx, in, seat)
				continue
			}
		case <-lost:
			h.tell(SeatLost)
			lost = nil
			continue
		case <-x.input.ended:
		case <-s.left:
		case <-ctx.Done():
		}
		break
	}
	r := s.shellResult(c)
	r.Accepted, r.Bytes, r.Actions = true, t.bytes, t.actions
	r.Typed = "sha256:" + hex.EncodeToString(t.sum.Sum(nil))
	return api.Payload{Shell: r}, nil
}

// attachment is what one hand has typed.
type attachment struct {
	typing
	sum hash.Hash
}

// move types, unless somebody else does by now. What the terminal does not take in its time is lost, as keys are.
func (t *attachment) move(ctx context.Context, in *api.ShellInput, p *seat) {
	turn := t.x.input.take()
	defer t.x.input.give(turn)
	ctx, cancel := context.WithTimeout(ctx, inputLimit)
	defer cancel()
	if t.x.input.await(ctx, turn) != nil || isClosed(p.demoted) {
		return
	}
	b, before := inputBytes(in.Data), t.bytes
	_ = t.all(ctx, in)
	t.sum.Write(b[:min(int64(len(b)), t.bytes-before)])
	t.x.session.touch(t.s.now())
}
