package server

import (
	"context"

	"github.com/coder/websocket"

	"github.com/stockade-dev/stockade/supervisor/api"
)

// The conversation of who is attached to a shell (GET /v1/shells/{exec_id}/attach):
//
//	client                                       server
//	  │  binary: keys, as they are                  │
//	  ├────────────────────────────────────────────▶│
//	  │  text: {"type": "RESIZE", "cols": …}, …     │  a ShellAction
//	  ├────────────────────────────────────────────▶│
//	  │◀──────── binary: output, as it came out ────┤
//	  │◀──────── text: a ShellMessage ──────────────┤  of the binary message before it, without the bytes: token,
//	  │                                             │  state, prompts, exit codes; or that somebody else types now
//	  ╳  close                                      │  the shell goes on, unless the server closes with ShellEnded
//
// Whoever is slow is not waited for: what is overwritten meanwhile is said to be (truncated).

// longestMessage is how many bytes of keys, or of an action, come in one message.
const longestMessage = 256 << 10

// attach serves a shell over a WebSocket.
func attach(c *call) {
	watch, err := c.request(api.OpShellOutput)
	if err != nil {
		c.fail(err)
		return
	}
	watch.Read = &api.Read{ExecID: c.r.PathValue("exec_id"), After: c.query.Get("after")}
	if watch.Read.After == "" {
		watch.Read.After = watch.Read.ExecID + "~tail"
	}
	observe, err := c.flag("observe")
	if err != nil {
		c.fail(err)
		return
	}
	if observe {
		c.observe(watch)
		return
	}
	req, err := c.request(api.OpShellAttach)
	if err == nil {
		req.Attach = &api.ShellAttach{ProcessRef: api.ProcessRef{ExecID: watch.Read.ExecID}}
		req.Attach.Takeover, err = c.flag("takeover")
	}
	for name, field := range map[string]*int{"cols": &req.Attach.Cols, "rows": &req.Attach.Rows} {
		if err == nil {
			var n int64
			n, err = c.number(name)
			*field = int(n)
		}
	}
	if err != nil {
		c.fail(err)
		return
	}
	moves, news, done := make(chan *api.ShellInput), make(chan string, 4), make(chan struct{})
	var receipt *api.Receipt
	var failed error
	ctx, cancel := context.WithCancel(c.r.Context())
	defer cancel()
	go func() {
		defer close(done)
		receipt, failed = c.server.sup.AttachShell(ctx, req, moves, func(n string) { news <- n })
	}()
	select {
	case <-done: // refused
		c.failBriefly(receipt, failed)
		return
	case <-news:
	}
	defer func() { <-done }()
	defer close(moves)
	c.converse(watch, moves, news, done)
}

// failBriefly answers who wanted a WebSocket: its clients read a kilobyte of a refusal, and a receipt is more.
func (c *call) failBriefly(receipt *api.Receipt, failed error) {
	if failed == nil {
		failed = api.Errorf(receipt.ErrorCode, "%.500s", receipt.ErrorMessage)
	}
	c.fail(failed)
}

// upgrade takes the connection over. Where it cannot, it has answered.
func (c *call) upgrade() (*websocket.Conn, error) {
	return websocket.Accept(c.w, c.r, &websocket.AcceptOptions{CompressionMode: websocket.CompressionDisabled})
}

// observe serves a shell to who only watches.
func (c *call) observe(watch *api.Request) { c.converse(watch, nil, nil, nil) }

// flag reads a parameter that is true or false.
func (c *call) flag(name string) (bool, *api.Error) {
	switch c.query.Get(name) {
	case "", "false":
		return false, nil
	case "true":
		return true, nil
	}
	return false, api.Errorf(api.CodeInvalidHeader, "%s is true or false", name)
}

// converse carries out the conversation. Without moves nothing is typed.
func (c *call) converse(watch *api.Request, moves chan<- *api.ShellInput, news <-chan string, ended <-chan struct{}) {
	conn, err := c.upgrade()
	if err != nil {
		return
	}
	defer conn.CloseNow()
	conn.SetReadLimit(longestMessage)
	// Not the request's: that ends when the connection is taken over.
	ctx, cancel := context.WithCancel(context.WithoutCancel(c.r.Context()))
	defer cancel()
	reading := make(chan struct{})
	go func() {
		defer close(reading)
		defer cancel()
		c.hear(ctx, conn, moves, ended)
	}()
	defer func() { <-reading }()
	out := &listener{c: c, conn: conn, cancel: cancel}
	go func() {
		for {
			select {
			case n, ok := <-news:
				if !ok {
					return
				}
				out.text(ctx, api.ShellMessage{News: n})
			case <-ctx.Done():
				return
			}
		}
	}()
	denial, failed := c.server.sup.FollowShell(ctx, watch, func(o *api.ShellOutput) { out.output(ctx, o) })
	switch {
	case denial != nil:
		out.text(ctx, api.ShellMessage{Denied: denial})
	case failed == nil:
		conn.Close(api.ShellEnded, "the shell has ended")
	}
	cancel()
}

// hear reads what the client sends, until it leaves.
func (c *call) hear(ctx context.Context, conn *websocket.Conn, moves chan<- *api.ShellInput, ended <-chan struct{}) {
	for {
		kind, b, err := conn.Read(ctx)
		if err != nil {
			return
		}
		in := &api.ShellInput{}
		switch {
		case kind == websocket.MessageBinary:
			in.Data = &api.Stdin{InlineBytes: &api.InlineBytes{Bytes: b}}
		default:
			a, err := api.Decode[api.ShellAction](b)
			if err == nil {
				in.Actions = []api.ShellAction{a}
				err = (&api.Request{Op: api.OpShellInput, Principal: api.Principal{}, Keys: &api.ShellInput{ProcessRef: api.ProcessRef{ExecID: "x"}, Actions: in.Actions}}).Validate()
			}
			if err != nil {
				conn.Close(websocket.StatusPolicyViolation, "not an action of a shell")
				return
			}
		}
		if moves == nil {
			conn.Close(websocket.StatusPolicyViolation, "an observer does not type")
			return
		}
		select {
		case moves <- in:
		case <-ended: // typed to nobody; to leave now would cut off what the shell wrote last
		case <-ctx.Done():
			return
		}
	}
}

// listener is who is sent output.
type listener struct {
	c      *call
	conn   *websocket.Conn
	cancel func()
}

func (l *listener) output(ctx context.Context, o *api.ShellOutput) {
	var b []byte
	told := *o
	told.Chunks = make([]api.ShellChunk, 0, len(o.Chunks))
	for _, c := range o.Chunks {
		b = append(b, c.Bytes...)
		c.Bytes = nil
		if c.Prompt != nil || c.ExitCode != nil || c.Truncated {
			told.Chunks = append(told.Chunks, c)
		}
	}
	if len(b) > 0 {
		l.send(ctx, websocket.MessageBinary, b)
	}
	l.text(ctx, api.ShellMessage{Output: &told})
}

func (l *listener) text(ctx context.Context, v api.ShellMessage) {
	b, err := api.Encode(v)
	if err != nil {
		panic(err) // as in writeJSON
	}
	l.send(ctx, websocket.MessageText, b)
}

func (l *listener) send(ctx context.Context, kind websocket.MessageType, b []byte) {
	ctx, cancel := context.WithTimeout(ctx, l.c.server.options.WriteTimeout)
	defer cancel()
	if l.conn.Write(ctx, kind, b) != nil {
		l.cancel()
	}
}
