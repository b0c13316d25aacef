package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strconv"

	"github.com/coder/websocket"

	"github.com/stockade-dev/stockade/internal/carry"
	"github.com/stockade-dev/stockade/supervisor/api"
)

// Forwarding is a port on the loopback of a session that its owner can reach, as long as he has it open. Its methods may be
// called at the same time. The caller closes it; then what it carries is cut off.
type Forwarding struct {
	client  *Client
	conn    *websocket.Conn
	session string
	intent  string
	over    context.Context
}

// Forward opens a port. A refusal is an *api.Error; its receipt is among the others.
func (c *Client) Forward(ctx context.Context, sessionID string, port uint16) (*Forwarding, error) {
	conn, err := c.converse(ctx, "forward", forwarding(sessionID)+"?port="+strconv.Itoa(int(port)))
	if err != nil {
		return nil, err
	}
	_, b, err := conn.Read(ctx)
	if err == nil {
		var m *api.ForwardMessage
		if m, err = decode[api.ForwardMessage](b); err == nil {
			return &Forwarding{client: c, conn: conn, session: sessionID, intent: m.IntentID, over: conn.CloseRead(context.WithoutCancel(ctx))}, nil
		}
	}
	conn.CloseNow()
	return nil, &lost{fmt.Errorf("forward: %w", err)}
}

func forwarding(sessionID string) string {
	return "/v1/sessions/" + url.PathEscape(sessionID) + "/forward"
}

// IntentID names the operation, whose receipt is there when the forwarding has ended.
func (f *Forwarding) IntentID() string { return f.intent }

// Done is closed when the forwarding has ended: it was closed or cut, or the supervisor is gone.
func (f *Forwarding) Done() <-chan struct{} { return f.over.Done() }

// Close ends it.
func (f *Forwarding) Close() error { return leave(f.conn) }

// Local is the end of a connection that [Forwarding.Carry] has.
type Local interface {
	io.ReadWriteCloser
	CloseWrite() error
}

// Carry makes a connection inside and relays between the two, until both directions have ended or either end is gone. It closes
// local. An *api.Error says why there is none inside: CodeNotListening, for one.
func (f *Forwarding) Carry(ctx context.Context, local Local) error {
	defer local.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(f.over, cancel)()
	conn, err := f.client.converse(ctx, "forward", forwarding(f.session)+"?of="+url.QueryEscape(f.intent))
	if err != nil {
		return err
	}
	defer conn.CloseNow()
	conn.SetReadLimit(carry.Longest)
	defer context.AfterFunc(ctx, func() { local.Close() })()
	sent := make(chan error, 1)
	go func() {
		err := carry.Send(ctx, conn, local)
		if err != nil {
			cancel()
		}
		sent <- err
	}()
	err = carry.Take(ctx, conn, local)
	if err != nil {
		cancel()
	}
	// Where both directions fail, the first was for the other's sake.
	return errors.Join(<-sent, err)
}
