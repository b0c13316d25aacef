package server

import (
	"context"
	"net"

	"github.com/coder/websocket"

	"github.com/stockade-dev/stockade/internal/carry"
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

// joined is a connection into a session.
type joined = interface {
	net.Conn
	carry.Half
}

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
	conn.SetReadLimit(carry.Longest)
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
		whole := carry.Send(ctx, conn, inside) == nil
		if !whole {
			cancel() // ends the other direction, too
		}
		out <- whole
	}()
	whole := carry.Take(ctx, conn, inside) == nil
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
