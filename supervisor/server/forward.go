package server

import (
	"context"
	"io"

	"github.com/coder/websocket"

	"github.com/stockade-dev/stockade/supervisor/api"
)

// The conversation of who reaches a port of a session (GET /v1/sessions/{session_id}/forward):
//
//	client                                       server
//	  │  ?port=N                                    │
//	  ├────────────────────────────────────────────▶│  policy, intent
//	  │◀──────── text: a ForwardMessage ────────────┤  it is open
//	  │  ?of=INTENT                                 │  once for each connection
//	  ├────────────────────────────────────────────▶│  it is made inside, or refused (not_listening)
//	  │◀─────────── binary: bytes ─────────────────▶│  an empty message is the end of that direction
//	  ╳  close                                      │  of the first: all of it ends, and has its receipt

// forwardPart is how much of a connection is in one message, at most.
const forwardPart = 64 << 10

// forward serves both.
func forward(c *call) {
	if c.query.Has("of") {
		c.join()
		return
	}
	req, err := c.request(api.OpSessionForward)
	var port int64
	if err == nil {
		port, err = c.number("port")
	}
	if err == nil && port > 0xffff {
		err = api.Errorf(api.CodeInvalidParams, "port is not a number up to 65535")
	}
	if err != nil {
		c.fail(err)
		return
	}
	req.Forward = &api.SessionForward{SessionID: c.r.PathValue("session_id"), Port: uint16(port)}
	ctx, cancel := context.WithCancel(c.r.Context())
	defer cancel()
	closed, opened, done := make(chan struct{}), make(chan string, 1), make(chan struct{})
	var receipt *api.Receipt
	var failed error
	go func() {
		defer close(done)
		receipt, failed = c.server.sup.Forward(ctx, req, closed, func(intent string) { opened <- intent })
	}()
	select {
	case <-done:
	case intent := <-opened:
		defer func() { <-done }()
		defer close(closed)
		c.keepOpen(intent, done)
		return
	}
	select {
	case intent := <-opened: // and ended at once
		c.keepOpen(intent, done)
	default: // refused
		c.failBriefly(receipt, failed)
	}
}

// keepOpen is the time in which a forwarding is.
func (c *call) keepOpen(intent string, ended <-chan struct{}) {
	conn, err := c.upgrade()
	if err != nil {
		return
	}
	defer conn.CloseNow()
	// Not the request's: that ends when the connection is taken over.
	ctx := conn.CloseRead(context.WithoutCancel(c.r.Context()))
	told, cancel := context.WithTimeout(ctx, c.server.options.WriteTimeout)
	defer cancel()
	b, err := api.Encode(api.ForwardMessage{IntentID: intent})
	if err != nil {
		panic(err) // as in writeJSON
	}
	if conn.Write(told, websocket.MessageText, b) != nil {
		return
	}
	select {
	case <-ended:
		conn.Close(api.ForwardEnded, "the forwarding has ended")
	case <-ctx.Done():
	}
}

// join carries one connection.
func (c *call) join() {
	req, refused := c.request(api.OpSessionForward)
	if refused == nil {
		refused = c.unkeyed()
	}
	if refused != nil {
		c.fail(refused)
		return
	}
	inside, cut, err := c.server.sup.Join(c.r.Context(), req.Principal, c.query.Get("of"))
	if err != nil {
		c.fail(err)
		return
	}
	defer inside.Close()
	conn, err := c.upgrade()
	if err != nil {
		return
	}
	defer conn.CloseNow()
	conn.SetReadLimit(1 << 20)
	ctx, cancel := context.WithCancel(context.WithoutCancel(c.r.Context()))
	defer cancel()
	go func() { // a client that reads nothing is not waited for
		select {
		case <-cut:
			cancel()
		case <-ctx.Done():
		}
	}()
	out := make(chan bool, 1)
	go func() {
		whole := sendParts(ctx, conn, inside)
		if !whole {
			cancel() // ends the other direction, too
		}
		out <- whole
	}()
	whole := takeParts(ctx, conn, inside)
	if whole { // a client that leaves is to be heard of
		defer context.AfterFunc(conn.CloseRead(ctx), func() { inside.Close() })()
	} else {
		cancel()
		inside.Close()
	}
	if <-out && whole {
		conn.Close(websocket.StatusNormalClosure, "")
	}
}

// sendParts sends what comes out of the session, and an empty message behind the last of it.
func sendParts(ctx context.Context, conn *websocket.Conn, from io.Reader) (whole bool) {
	buf := make([]byte, forwardPart)
	for {
		n, err := from.Read(buf)
		if n > 0 && conn.Write(ctx, websocket.MessageBinary, buf[:n]) != nil {
			return false
		}
		if err == io.EOF {
			return conn.Write(ctx, websocket.MessageBinary, nil) == nil
		}
		if err != nil {
			return false
		}
	}
}

// takeParts takes what is for the session, up to an empty message. Behind that nothing is expected but the end.
func takeParts(ctx context.Context, conn *websocket.Conn, to io.Writer) (whole bool) {
	for {
		kind, b, err := conn.Read(ctx)
		switch {
		case err != nil:
			return false
		case kind != websocket.MessageBinary:
			conn.Close(websocket.StatusPolicyViolation, "a connection has binary messages only")
			return false
		case len(b) == 0:
			half, ok := to.(interface{ CloseWrite() error })
			return ok && half.CloseWrite() == nil
		}
		if _, err := to.Write(b); err != nil {
			return false
		}
	}
}
