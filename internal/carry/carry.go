// Package carry relays one connection over a WebSocket: bytes in binary messages, of which an empty one is the end of that direction.
// Both ends of a forwarding do it, the client and the server.
//
// It promises that a direction that was sent whole is taken whole, and that nothing else looks as if it was. It has no say in when a
// connection begins, and closes neither of the two.
package carry

import (
	"context"
	"errors"
	"io"

	"github.com/coder/websocket"
)

// Part is how much of a connection is in one message, at most.
const Part = 64 << 10

// Longest is how much a message may have that is taken: more than Part, which an end of another version may have larger.
const Longest = 1 << 20

// Send sends what comes from a connection, and an empty message behind the last of it.
func Send(ctx context.Context, conn *websocket.Conn, from io.Reader) error {
	buf := make([]byte, Part)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			if err := conn.Write(ctx, websocket.MessageBinary, buf[:n]); err != nil {
				return err
			}
		}
		if err == io.EOF {
			return conn.Write(ctx, websocket.MessageBinary, nil)
		}
		if err != nil {
			return err
		}
	}
}

// Half is a connection that can be told that nothing follows.
type Half interface {
	io.Writer
	CloseWrite() error
}

var errKind = errors.New("a connection has binary messages only")

// Take takes what is for a connection, up to an empty message, and closes that direction of it. Behind that nothing is expected but the end.
func Take(ctx context.Context, conn *websocket.Conn, to Half) error {
	for {
		kind, b, err := conn.Read(ctx)
		switch {
		case err != nil:
			return err
		case kind != websocket.MessageBinary:
			conn.Close(websocket.StatusPolicyViolation, errKind.Error())
			return errKind
		case len(b) == 0:
			return to.CloseWrite()
		}
		if _, err := to.Write(b); err != nil {
			return err
		}
	}
}
