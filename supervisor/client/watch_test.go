package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stockade-dev/stockade/supervisor/api"
)

// hurried is a client without patience.
func hurried(c *Client, attempts int) *Client {
	c.pause = make([]time.Duration, attempts)
	return c
}

// cut breaks the connection off.
func cut() { panic(http.ErrAbortHandler) }

// events begins a stream of lines.
func events(w http.ResponseWriter, lines ...string) {
	w.Header().Set("Content-Type", ndjson)
	for _, line := range lines {
		io.WriteString(w, line+"\n")
	}
	http.NewResponseController(w).Flush()
}

// What has an effect is sent once, whatever becomes of its answer.
func TestEffectsAreSentOnce(t *testing.T) {
	var sent atomic.Int64
	c := hurried(serve(t, func(http.ResponseWriter, *http.Request) { sent.Add(1); cut() }), 5)
	for name, call := range map[string]func(context.Context) error{
		"exec":   func(ctx context.Context) error { _, err := c.Exec(ctx, api.Exec{}); return err },
		"start":  func(ctx context.Context) error { _, _, err := c.Start(ctx, api.Exec{}); return err },
		"open":   func(ctx context.Context) error { _, err := c.Open(ctx, api.SessionOpen{}); return err },
		"input":  func(ctx context.Context) error { _, err := c.Input(ctx, api.ProcessInput{}); return err },
		"cancel": func(ctx context.Context) error { _, err := c.Cancel(ctx, api.ProcessCancel{}); return err },
		"stream": func(ctx context.Context) error { // nothing of it was accepted yet
			_, err := c.ExecStream(ctx, api.Exec{}, func(api.Event) error { return nil })
			return err
		},
	} {
		sent.Store(0)
		if err := call(t.Context()); err == nil || sent.Load() != 1 {
			t.Errorf("%s: sent %d times, %v", name, sent.Load(), err)
		}
	}
}

// What is followed goes on after the last thing that arrived, gives up when nothing arrives any
// more, and at once when the supervisor says why.
func TestFollowedGoesOn(t *testing.T) {
	var asked atomic.Int64
	var after atomic.Value
	var steps atomic.Int64 // of progress before there is none
	c := hurried(serve(t, func(w http.ResponseWriter, r *http.Request) {
		n := int(asked.Add(1))
		after.Store(r.URL.Query().Get("after"))
		if n <= int(steps.Load()) {
			events(w, fmt.Sprintf(`{"kind":"output","cursor":"c%d","exec_id":"x"}`, n))
		}
		cut()
	}), 3)
	for _, row := range []struct{ steps, asked int }{{0, 4}, {1, 4}, {10, 13}} {
		asked.Store(0)
		steps.Store(int64(row.steps))
		seen := 0
		_, err := c.Watch(t.Context(), "x", "", func(api.Event) error { seen++; return nil })
		want := ""
		if row.steps > 0 {
			want = fmt.Sprintf("c%d", row.steps)
		}
		if err == nil || seen != row.steps || int(asked.Load()) != row.asked || after.Load() != want {
			t.Errorf("%d steps: seen %d, asked %d times, at last after %q: %v", row.steps, seen, asked.Load(), after.Load(), err)
		}
	}
	enough := errors.New("enough")
	asked.Store(0)
	if _, err := c.Watch(t.Context(), "x", "", func(api.Event) error { return enough }); !errors.Is(err, enough) || asked.Load() != 1 {
		t.Errorf("the reader had enough: asked %d times, %v", asked.Load(), err)
	}
}

// Answers that another attempt would not change are final; those of a supervisor that is about to
// be another one are not.
func TestFinalAnswers(t *testing.T) {
	for _, row := range []struct {
		code   api.Code
		status int
		asked  int64
	}{{api.CodeExecNotFound, 404, 1}, {api.CodeInvalidCursor, 400, 1}, {api.CodeGone, 410, 1}, {api.CodeInternalError, 500, 1},
		{api.CodeShuttingDown, 503, 3}, {api.CodeTooManyConnections, 503, 3}} {
		var asked atomic.Int64
		c := hurried(serve(t, func(w http.ResponseWriter, _ *http.Request) {
			asked.Add(1)
			w.WriteHeader(row.status)
			fmt.Fprintf(w, `{"error":{"code":%q,"message":"m"}}`, row.code)
		}), 2)
		_, err := c.Watch(t.Context(), "x", "", func(api.Event) error { return nil })
		if e, ok := errors.AsType[*api.Error](err); !ok || e.Code != row.code || asked.Load() != row.asked {
			t.Errorf("%s: asked %d times, %v", row.code, asked.Load(), err)
		}
	}
}

// A command that was accepted is followed to its end over a lost connection, and started once.
func TestExecStreamGoesOn(t *testing.T) {
	var started, followed atomic.Int64
	c := hurried(serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			started.Add(1)
			events(w, `{"kind":"accepted","cursor":"0.0.0","exec_id":"x-1"}`, `{"kind":"output","cursor":"0.3.0","exec_id":"x-1","stream":"stdout","bytes":"b25l"}`)
			cut()
		}
		followed.Add(1)
		if r.URL.Path != "/v1/executions/x-1/output" || r.URL.Query().Get("after") != "0.3.0" {
			t.Errorf("followed by %s", r.URL)
		}
		events(w, `{"kind":"output","cursor":"0.6.0","exec_id":"x-1","stream":"stdout","offset":3,"bytes":"dHdv"}`, `{"kind":"receipt","receipt":{"intent_id":"i","outcome":"ok"}}`)
	}), 3)
	out := ""
	r, err := c.ExecStream(t.Context(), api.Exec{}, func(e api.Event) error { out += string(e.Bytes); return nil })
	if err != nil || r.IntentID != "i" || out != "onetwo" || started.Load() != 1 || followed.Load() != 1 {
		t.Errorf("%+v %v: %q, started %d times, followed %d times", r, err, out, started.Load(), followed.Load())
	}
}

// Who leaves while a connection is being taken up again does not wait for it.
func TestLeaveBetweenAttempts(t *testing.T) {
	c := serve(t, func(http.ResponseWriter, *http.Request) { cut() })
	c.pause = []time.Duration{time.Hour}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := c.FollowEvents(ctx, "", 0, func(api.Notice) error { return nil }); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}

// A wait takes as many questions as it needs, and ends when it is over.
func TestWaitProcess(t *testing.T) {
	var asked atomic.Int64
	c := hurried(serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch n := asked.Add(1); {
		case n == 2:
			cut()
		case n < 4:
			io.WriteString(w, `{"exec_id":"x","state":"running"}`)
		default:
			io.WriteString(w, `{"exec_id":"x","state":"completed"}`)
		}
	}), 1)
	if p, err := c.WaitProcess(t.Context(), "x", 0); err != nil || p.State != api.StateCompleted || asked.Load() != 4 {
		t.Errorf("%+v %v, asked %d times", p, err, asked.Load())
	}
	asked.Store(-1000)
	if p, err := c.WaitProcess(t.Context(), "x", time.Nanosecond); err != nil || p.State != api.StateRunning || asked.Load() > -990 {
		t.Errorf("%+v %v", p, err)
	}
}
