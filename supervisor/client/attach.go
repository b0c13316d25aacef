package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"

	"github.com/coder/websocket"

	"github.com/stockade-dev/stockade/supervisor/api"
)

// Attachment is somebody's place at a shell. Its methods may be called at the same time, Next by one goroutine. The
// caller closes it; the shell goes on.
type Attachment struct {
	conn *websocket.Conn
}

// Seat is how somebody attaches.
type Seat struct {
	After      string // token of the output that is wanted; "" is the last lines of it
	Observe    bool   // nothing is typed
	Takeover   bool   // where somebody else types, he becomes an observer
	Cols, Rows int    // of the terminal from here on; 0 leaves it
}

// Screen is what comes next to who is attached.
type Screen struct {
	Bytes  []byte
	Output *api.ShellOutput // without bytes; nil with News
	News   string           // "observer": somebody else types from here on
}

// Attach sits down at a shell. A refusal is an *api.Error; its receipt is among the others.
func (c *Client) Attach(ctx context.Context, execID string, s Seat) (*Attachment, error) {
	q := url.Values{}
	for name, value := range map[string]string{"after": s.After, "cols": number(s.Cols), "rows": number(s.Rows), "observe": flag(s.Observe), "takeover": flag(s.Takeover)} {
		if value != "" {
			q.Set(name, value)
		}
	}
	conn, err := c.converse(ctx, "attach", shell(execID)+"/attach?"+q.Encode())
	if err != nil {
		return nil, err
	}
	conn.SetReadLimit(4 << 20)
	return &Attachment{conn: conn}, nil
}

// converse opens a WebSocket, for an operation that errors are to name. A refusal is an *api.Error.
func (c *Client) converse(ctx context.Context, op, path string) (*websocket.Conn, error) {
	h := http.Header{}
	if c.scope != (api.Scope{}) {
		scope, err := api.Encode(c.scope)
		if err != nil {
			return nil, err
		}
		h.Set("Stockade-Scope", string(scope))
	}
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return c.dial(ctx) }, DisableKeepAlives: true}
	conn, resp, err := websocket.Dial(ctx, "http://"+host+path, &websocket.DialOptions{
		HTTPClient: &http.Client{Transport: transport}, HTTPHeader: h, CompressionMode: websocket.CompressionDisabled,
	})
	if err != nil && resp != nil && resp.StatusCode != http.StatusSwitchingProtocols {
		body, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<20)) // as much of it as came
		if e := refusal(resp, body); e != nil {
			return nil, e
		}
	}
	if err != nil {
		return nil, &lost{fmt.Errorf("%s: %w", op, err)}
	}
	return conn, nil
}

func number(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

func flag(b bool) string {
	if b {
		return "true"
	}
	return ""
}

// Keys types.
func (a *Attachment) Keys(ctx context.Context, b []byte) error {
	return a.conn.Write(ctx, websocket.MessageBinary, b)
}

// Act does what a hand does beside typing.
func (a *Attachment) Act(ctx context.Context, action api.ShellAction) error {
	b, err := api.Encode(action)
	if err != nil {
		return err
	}
	return a.conn.Write(ctx, websocket.MessageText, b)
}

// Next returns what comes next. io.EOF is the end of the shell.
func (a *Attachment) Next(ctx context.Context) (*Screen, error) {
	kind, b, err := a.conn.Read(ctx)
	switch {
	case websocket.CloseStatus(err) == api.ShellEnded:
		return nil, io.EOF
	case err != nil:
		return nil, &lost{fmt.Errorf("attached: %w", err)}
	case kind == websocket.MessageBinary:
		return &Screen{Bytes: b}, nil
	}
	m, err := decode[api.ShellMessage](b)
	switch {
	case err != nil:
		return nil, err
	case m.Denied != nil:
		return nil, api.Errorf(m.Denied.ErrorCode, "%s", m.Denied.ErrorMessage)
	}
	return &Screen{Output: m.Output, News: m.News}, nil
}

// Close leaves.
func (a *Attachment) Close() error { return leave(a.conn) }

// leave closes a conversation, which may be over.
func leave(conn *websocket.Conn) error {
	err := conn.Close(websocket.StatusNormalClosure, "")
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}
