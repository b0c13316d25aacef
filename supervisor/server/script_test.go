package server

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stockade-dev/stockade/supervisor/api"
)

// script is a supervisor that says what a test wants it to; what it was not told to say, it
// cannot be asked.
type script struct {
	Supervisor
	do     func(*api.Request) (*api.Receipt, error)
	start  func(*api.Request) (*api.Pending, *api.Receipt, error)
	watch  func(context.Context, *api.Request, func(api.Event)) (*api.Receipt, *api.Receipt, error)
	follow func(context.Context, *api.Request, func(api.Notice)) (*api.Receipt, error)
	output func(context.Context, *api.Request) (*api.Pending, *api.Receipt, error)
	events func(context.Context, *api.Request) (*api.NoticeList, *api.Receipt, error)
	frames func(context.Context, *api.Request) (*api.FrameList, *api.Receipt, error)
	wait   func(context.Context, *api.Request) (*api.Process, *api.Receipt, error)
	list   func(context.Context, *api.Request) (*api.ProcessList, *api.Receipt, error)
	shell  func(*api.Request) (*api.Shell, *api.Receipt, error)
}

func (s *script) Do(_ context.Context, req *api.Request, _ func(api.Event)) (*api.Receipt, error) {
	return s.do(req)
}

func (s *script) Start(_ context.Context, req *api.Request) (*api.Pending, *api.Receipt, error) {
	return s.start(req)
}

func (s *script) Watch(ctx context.Context, req *api.Request, emit func(api.Event)) (*api.Receipt, *api.Receipt, error) {
	return s.watch(ctx, req, emit)
}

func (s *script) FollowEvents(ctx context.Context, req *api.Request, emit func(api.Notice)) (*api.Receipt, error) {
	return s.follow(ctx, req, emit)
}

func (s *script) Output(ctx context.Context, req *api.Request) (*api.Pending, *api.Receipt, error) {
	return s.output(ctx, req)
}

func (s *script) Events(ctx context.Context, req *api.Request) (*api.NoticeList, *api.Receipt, error) {
	return s.events(ctx, req)
}

func (s *script) Frames(ctx context.Context, req *api.Request) (*api.FrameList, *api.Receipt, error) {
	return s.frames(ctx, req)
}

func (s *script) Wait(ctx context.Context, req *api.Request) (*api.Process, *api.Receipt, error) {
	return s.wait(ctx, req)
}

func (s *script) Processes(ctx context.Context, req *api.Request) (*api.ProcessList, *api.Receipt, error) {
	return s.list(ctx, req)
}

func (s *script) Shell(_ context.Context, req *api.Request) (*api.Shell, *api.Receipt, error) {
	return s.shell(req)
}

// settled is a receipt of nothing in particular.
func settled() *api.Receipt { return &api.Receipt{Version: 1, IntentID: "i", Outcome: api.OutcomeOK} }

// Server-sent events carry the cursor as id, lines carry it themselves, and an event without a
// cursor leaves the reader's alone.
func TestCursors(t *testing.T) {
	b := serve(t, &script{watch: func(_ context.Context, _ *api.Request, emit func(api.Event)) (*api.Receipt, *api.Receipt, error) {
		emit(api.Event{Kind: "output", Cursor: "0.1.0", Stream: "stdout", Bytes: []byte("a")})
		emit(api.Event{Kind: "lagged", Lagged: &api.Lagged{Stream: "stdout", From: 1, To: 9}})
		emit(api.Event{Kind: "frame", Cursor: "1.1.0", Frame: &api.Frame{Seq: 1}})
		return settled(), nil, nil
	}}, Options{})
	_, sse := b.do(t, "GET", "/v1/executions/x-1/output", "", "Accept", "text/event-stream")
	var shape []string
	for line := range strings.Lines(sse) {
		if name, _, _ := strings.Cut(line, ":"); name == "data" {
			line = "data\n"
		}
		shape = append(shape, strings.TrimSuffix(line, "\n"))
	}
	want := "retry: 1000||id: 0.1.0|event: output|data||event: lagged|data||id: 1.1.0|event: frame|data||event: receipt|data|"
	if got := strings.Join(shape, "|"); got != want {
		t.Errorf("\n got %s\nwant %s", got, want)
	}
	_, lines := b.do(t, "GET", "/v1/executions/x-1/output", "", "Accept", "application/x-ndjson")
	if strings.Count(lines, "\n") != 4 || !strings.HasPrefix(lines, `{"kind":"output","cursor":"0.1.0",`) {
		t.Error(lines)
	}
}

// Where a reader wants to go on, in every way of saying it. What says nothing is the beginning.
func TestPositions(t *testing.T) {
	var after atomic.Pointer[string]
	seen := func(req *api.Request) { after.Store(&req.Read.After) }
	b := serve(t, &script{
		watch: func(_ context.Context, req *api.Request, _ func(api.Event)) (*api.Receipt, *api.Receipt, error) {
			seen(req)
			return settled(), nil, nil
		},
		output: func(_ context.Context, req *api.Request) (*api.Pending, *api.Receipt, error) {
			seen(req)
			return &api.Pending{}, nil, nil
		},
		follow: func(_ context.Context, req *api.Request, _ func(api.Notice)) (*api.Receipt, error) {
			seen(req)
			return nil, nil
		},
	}, Options{})
	const output, events = "/v1/executions/x-1/output", "/v1/events"
	stream := []string{"Accept", "text/event-stream"}
	for _, row := range []struct {
		name, path string
		header     []string
		after      string
		code       api.Code // "" is none
	}{
		{"nothing", output, stream, "", ""},
		{"query", output + "?after=1.2.3", stream, "1.2.3", ""},
		{"header", output, append(stream, "Last-Event-ID", "1.2.3"), "1.2.3", ""},
		{"both: the reader has come further since", output + "?after=1.2.3", append(stream, "Last-Event-ID", "4.5.6"), "4.5.6", ""},
		{"header without a value", output + "?after=1.2.3", append(stream, "Last-Event-ID", ""), "1.2.3", ""},
		{"two headers", output, append(stream, "Last-Event-ID", "1.2.3", "Last-Event-ID", "1.2.3"), "", api.CodeInvalidHeader},
		{"header not utf-8", output, append(stream, "Last-Event-ID", "\xff"), "", api.CodeInvalidCursor},
		{"offsets", output + "?stdout=2&stderr=3", stream, "0.2.3", ""},
		{"one offset", output + "?stderr=3", stream, "0.0.3", ""},
		{"offsets of a page", output + "?stdout=2", nil, "0.2.0", ""},
		{"page", output + "?after=1.2.3", nil, "1.2.3", ""},
		{"page with the header of a stream", output + "?after=1.2.3", []string{"Last-Event-ID", "4.5.6"}, "1.2.3", ""},
		{"offsets and cursor", output + "?stdout=2&after=1.2.3", stream, "", api.CodeInvalidHeader},
		{"negative offset", output + "?stdout=-2", stream, "", api.CodeInvalidHeader},
		{"offset too large", output + "?stdout=9223372036854775808", stream, "", api.CodeInvalidHeader},
		{"events", events + "?after=7", stream, "7", ""},
		{"events with the header", events + "?after=7", append(stream, "Last-Event-ID", "9"), "9", ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			status, body := b.do(t, "GET", row.path, "", row.header...)
			switch {
			case row.code != "":
				if status != 400 || !strings.Contains(body, `"code":"`+string(row.code)+`"`) {
					t.Errorf("%d %s", status, body)
				}
			case status != 200 || *after.Load() != row.after:
				t.Errorf("%d, after %q", status, *after.Load())
			}
		})
	}
}

// What is not kept any more is said with a status of its own and with what is kept, in a page;
// in a stream it is an event.
func TestGone(t *testing.T) {
	gone := &api.Gone{From: "0.1.0", FirstAvailable: "0.5.0"}
	b := serve(t, &script{
		output: func(context.Context, *api.Request) (*api.Pending, *api.Receipt, error) {
			return &api.Pending{IntentID: "i", ExecID: "x-1", Cursor: "0.5.0", Gone: gone}, nil, nil
		},
		events: func(context.Context, *api.Request) (*api.NoticeList, *api.Receipt, error) {
			return &api.NoticeList{Gone: gone}, nil, nil
		},
		frames: func(context.Context, *api.Request) (*api.FrameList, *api.Receipt, error) {
			return &api.FrameList{Gone: gone}, nil, nil
		},
		watch: func(_ context.Context, _ *api.Request, emit func(api.Event)) (*api.Receipt, *api.Receipt, error) {
			emit(api.Event{Kind: "gone", Cursor: "0.5.0", Gone: gone})
			return settled(), nil, nil
		},
		follow: func(context.Context, *api.Request, func(api.Notice)) (*api.Receipt, error) {
			return nil, gone.Error("events")
		},
	}, Options{})
	if status, body := b.do(t, "GET", "/v1/executions/x-1/output", ""); status != 410 || !strings.Contains(body, `"first_available":"0.5.0"`) {
		t.Errorf("output: %d %s", status, body)
	}
	if p, err := b.Output(t.Context(), "x-1", api.Read{}); err != nil || p.Gone == nil || *p.Gone != *gone {
		t.Errorf("output: %+v %v", p, err)
	}
	if status, body := b.do(t, "GET", "/v1/events", ""); status != 410 || !strings.Contains(body, `"gone":{`) {
		t.Errorf("events: %d %s", status, body)
	}
	if l, err := b.Events(t.Context(), api.Read{}); err != nil || l.Gone == nil {
		t.Errorf("events: %+v %v", l, err)
	}
	if status, body := b.do(t, "GET", "/v1/intents/i/frames", ""); status != 410 || !strings.Contains(body, `"first_available":"0.5.0"`) {
		t.Errorf("frames: %d %s", status, body)
	}
	if l, err := b.Frames(t.Context(), "i", api.Read{}); err != nil || l.Gone == nil {
		t.Errorf("frames: %+v %v", l, err)
	}
	_, err := b.FollowFrames(t.Context(), "i", 1, func(api.Frame) error { return nil })
	if e, ok := errors.AsType[*api.Error](err); !ok || e.Code != api.CodeGone {
		t.Errorf("follow frames: %v", err)
	}
	var kinds []string
	_, err = b.Watch(t.Context(), "x-1", "0.1.0", func(e api.Event) error { kinds = append(kinds, string(e.Kind)); return nil })
	if err != nil || fmt.Sprint(kinds) != "[gone receipt]" {
		t.Errorf("watch: %v %v", kinds, err)
	}
	for _, path := range []string{"/v1/events?after=1", "/v1/intents/i/frames?after=1"} {
		for _, f := range formats {
			status, body := b.do(t, "GET", path, "", "Accept", f.media)
			if status != 410 || !strings.Contains(body, `{"error":{"code":"gone",`) || !strings.Contains(body, `"first_available":"0.5.0"`) {
				t.Errorf("%s as %s: %d %s", path, f.media, status, body)
			}
		}
	}
	err = b.FollowEvents(t.Context(), "", 1, func(api.Notice) error { return nil })
	if e, ok := errors.AsType[*api.Error](err); !ok || e.Code != api.CodeGone {
		t.Errorf("follow: %v", err)
	}
}

// A stream that the supervisor cannot finish is broken off, and the client takes it up again where
// it stopped: every event arrives once, in order.
func TestResumeAfterCut(t *testing.T) {
	const all = 20
	cut := func(from, most int, emit func(i int)) error {
		for i := from + 1; i <= all; i++ {
			if emit(i); i-from == most {
				return errors.New("the daemon stops")
			}
		}
		return nil
	}
	number := func(after string) (n int) { fmt.Sscan(after, &n); return n }
	b := serve(t, &script{
		watch: func(_ context.Context, req *api.Request, emit func(api.Event)) (*api.Receipt, *api.Receipt, error) {
			err := cut(number(req.Read.After), 3, func(i int) {
				emit(api.Event{Kind: "output", Cursor: fmt.Sprint(i), IntentID: "i", ExecID: "x-1", Offset: int64(i)})
			})
			if err != nil {
				return nil, nil, err
			}
			return settled(), nil, nil
		},
		follow: func(_ context.Context, req *api.Request, emit func(api.Notice)) (*api.Receipt, error) {
			return nil, cut(number(req.Read.After), 7, func(i int) { emit(api.Notice{Seq: int64(i), Kind: api.NoticeProcess}) })
		},
		frames: func(_ context.Context, req *api.Request) (*api.FrameList, *api.Receipt, error) {
			page := &api.FrameList{}
			from := number(req.Read.After)
			if from%2 == 1 {
				return nil, nil, errors.New("the daemon stops")
			}
			for i := from + 1; i <= min(from+3, all); i++ {
				page.Frames = append(page.Frames, api.Frame{IntentID: "i", Seq: int64(i)})
			}
			if len(page.Frames) == 0 {
				page.Receipt = settled()
			}
			return page, nil, nil
		},
	}, Options{})
	check := func(name string, got []int64, err error) {
		t.Helper()
		for i, n := range got {
			if n != int64(i+1) {
				t.Errorf("%s: %v", name, got)
				return
			}
		}
		if len(got) != all || err != nil {
			t.Errorf("%s: %d of them, %v", name, len(got), err)
		}
	}
	var offsets, seqs, frames []int64
	_, err := b.Watch(t.Context(), "x-1", "", func(e api.Event) error {
		if e.Kind == "output" {
			offsets = append(offsets, e.Offset)
		}
		return nil
	})
	check("watch", offsets, err)
	err = b.FollowEvents(t.Context(), "", 0, func(n api.Notice) error { seqs = append(seqs, n.Seq); return nil })
	check("events", seqs, err)
	_, err = b.FollowFrames(t.Context(), "i", 0, func(f api.Frame) error {
		frames = append(frames, f.Seq)
		if f.Seq == 3 || f.Seq == 9 || f.Seq == 15 { // an odd place, from where the script goes on no further
			return errStop
		}
		return nil
	})
	if !errors.Is(err, errStop) {
		t.Errorf("an error of the reader's is tried again: %v", err)
	}
}

var errStop = errors.New("enough")

// A read that waits ends when its caller leaves.
func TestCallerLeaves(t *testing.T) {
	left := make(chan string, 10)
	until := func(ctx context.Context, name string) error {
		select {
		case <-ctx.Done():
			left <- name
		case <-time.After(10 * time.Second):
			left <- name + " stays"
		}
		return ctx.Err()
	}
	b := serve(t, &script{
		output: func(ctx context.Context, _ *api.Request) (*api.Pending, *api.Receipt, error) {
			return nil, nil, until(ctx, "output")
		},
		watch: func(ctx context.Context, _ *api.Request, _ func(api.Event)) (*api.Receipt, *api.Receipt, error) {
			return nil, nil, until(ctx, "watch")
		},
		wait: func(ctx context.Context, _ *api.Request) (*api.Process, *api.Receipt, error) {
			return nil, nil, until(ctx, "wait")
		},
		events: func(ctx context.Context, _ *api.Request) (*api.NoticeList, *api.Receipt, error) {
			return nil, nil, until(ctx, "events")
		},
		frames: func(ctx context.Context, _ *api.Request) (*api.FrameList, *api.Receipt, error) {
			return nil, nil, until(ctx, "frames")
		},
	}, Options{Keepalive: 5 * time.Millisecond})
	for name, call := range map[string]func(context.Context) error{
		"output": func(ctx context.Context) error {
			_, err := b.Output(ctx, "x-1", api.Read{WaitMS: 60_000})
			return err
		},
		"watch": func(ctx context.Context) error {
			_, err := b.Watch(ctx, "x-1", "", func(api.Event) error { return nil })
			return err
		},
		"wait":   func(ctx context.Context) error { _, err := b.WaitProcess(ctx, "x-1", 0); return err },
		"events": func(ctx context.Context) error { _, err := b.Events(ctx, api.Read{WaitMS: 60_000}); return err },
		"frames": func(ctx context.Context) error {
			_, err := b.FollowFrames(ctx, "i", 0, func(api.Frame) error { return nil })
			return err
		},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		if err := call(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", name, err)
		}
		cancel()
		if got := <-left; got != name {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// A stream that has nothing to say yet shows that it lives all the same.
func TestIdleRead(t *testing.T) {
	b := serve(t, &script{follow: func(ctx context.Context, _ *api.Request, _ func(api.Notice)) (*api.Receipt, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}}, Options{Keepalive: 5 * time.Millisecond})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	req, _ := http.NewRequestWithContext(ctx, "GET", "http://localhost/v1/events", nil)
	req.Header.Set("Accept", "text/event-stream")
	resp, err := b.raw.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		if lines.Text() == ": keepalive" {
			return
		}
	}
	t.Error(lines.Err())
}

// A log that has ended ends its stream, so that a reader can tell it from one that was cut.
func TestEndOfEvents(t *testing.T) {
	for _, row := range []struct {
		name string
		err  error
		ends bool
	}{{"ended", nil, true}, {"cut", errors.New("the daemon stops"), false}} {
		b := serve(t, &script{follow: func(_ context.Context, _ *api.Request, emit func(api.Notice)) (*api.Receipt, error) {
			emit(api.Notice{Seq: 1, Kind: api.NoticeSession})
			return nil, row.err
		}}, Options{})
		req, _ := http.NewRequestWithContext(t.Context(), "GET", "http://localhost/v1/sessions/s-1/events", nil)
		req.Header.Set("Accept", "application/x-ndjson")
		resp, err := b.raw.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		lines := bufio.NewScanner(resp.Body)
		n := 0
		for lines.Scan() {
			n++
		}
		if n != 1 || (lines.Err() == nil) != row.ends {
			t.Errorf("%s: %d lines, %v", row.name, n, lines.Err())
		}
	}
}

// How long an exec waits is in its body, whatever the caller accepts; what goes on is 202.
func TestStart(t *testing.T) {
	b := serve(t, &script{
		start: func(req *api.Request) (*api.Pending, *api.Receipt, error) {
			switch req.Exec.Argv[0] {
			case "quick":
				return nil, settled(), nil
			case "denied":
				return nil, &api.Receipt{IntentID: "i", Outcome: api.OutcomeDenied}, nil
			}
			return &api.Pending{IntentID: "i", ExecID: "x-1", State: api.StateRunning, Cursor: "0.0.0"}, nil, nil
		},
		do: func(*api.Request) (*api.Receipt, error) { return settled(), nil },
	}, Options{})
	for _, row := range []struct {
		argv, wait string
		status     int
	}{
		{"slow", `,"wait":false`, 202}, {"slow", `,"wait_ms":5`, 202}, {"quick", `,"wait_ms":5`, 200}, {"denied", `,"wait":false`, 403},
		{"slow", `,"wait":true`, 200}, {"slow", ``, 200},
	} {
		for _, accept := range []string{"application/json", "application/json, text/event-stream"} {
			status, body := b.do(t, "POST", "/v1/exec", `{"session_id":"s","argv":["`+row.argv+`"]`+row.wait+`}`, "Accept", accept)
			if status != row.status || (status == 202) != strings.Contains(body, `"state":"running"`) {
				t.Errorf("%s%s, accept %s: %d %s", row.argv, row.wait, accept, status, body)
			}
		}
	}
	if p, r, err := b.Start(t.Context(), api.Exec{SessionID: "s", Argv: []string{"slow"}}); err != nil || r != nil || p.ExecID != "x-1" {
		t.Errorf("%+v %+v %v", p, r, err)
	}
	if p, r, err := b.Start(t.Context(), api.Exec{SessionID: "s", Argv: []string{"denied"}}); err != nil || p != nil || r.Outcome != api.OutcomeDenied {
		t.Errorf("%+v %+v %v", p, r, err)
	}
	if _, err := b.Exec(t.Context(), api.Exec{SessionID: "s", Argv: []string{"slow"}, Wait: new(bool)}); err == nil || !strings.Contains(err.Error(), "202") {
		t.Errorf("an answer that is not a receipt is taken for one: %v", err)
	}
}

// The path names the object; a body that names another one, or the same in another way, is
// refused before it is an operation (R129, R244).
func TestPathAndBody(t *testing.T) {
	var last atomic.Pointer[api.Request]
	b := serve(t, &script{do: func(req *api.Request) (*api.Receipt, error) {
		last.Store(req)
		return settled(), nil
	}}, Options{})
	for _, row := range []struct {
		method, path, body string
		op                 api.Op // "" is refused
		header             string // Content-Type
	}{
		{"POST", "/v1/executions/x-1/input", `{"data":{"inline_text":{"text":"a"}}}`, api.OpProcessInput, ""},
		{"POST", "/v1/executions/x-1/input", `{"exec_id":"x-1","close":true}`, api.OpProcessInput, ""},
		{"POST", "/v1/executions/x-1/input", `{"exec_id":"x-2","close":true}`, "", ""},
		{"POST", "/v1/executions/x-1/input", `{"intent_id":"sha256:00","close":true}`, "", ""},
		{"POST", "/v1/executions/x-1/signal", `{"signal":"INT"}`, api.OpProcessSignal, ""},
		{"POST", "/v1/executions/x-1/signal", `{"session_id":"s-1","signal":"INT"}`, "", ""},
		{"POST", "/v1/executions/x-1/signal", `{"pid":1,"signal":"INT"}`, "", ""},
		{"POST", "/v1/executions/x-1/modify", `{"timeout_ns":1}`, api.OpProcessModify, ""},
		{"POST", "/v1/executions/x-1/pause", `{}`, api.OpProcessPause, ""},
		{"POST", "/v1/executions/x-1/pause", ``, api.OpProcessPause, ""},
		{"POST", "/v1/executions/x-1/pause", ``, "", "text/plain"},
		{"POST", "/v1/executions/x-1/resume", `{"exec_id":"x-1"}`, api.OpProcessResume, ""},
		{"POST", "/v1/executions/x-1/resume", `{"exec_id":""}`, api.OpProcessResume, ""},
		{"POST", "/v1/executions/x-1/cancel", `{"wait":false,"grace_timeout_ns":0}`, api.OpProcessCancel, ""},
		{"POST", "/v1/executions/x-1/cancel", ``, api.OpProcessCancel, ""},
		{"POST", "/v1/executions/x-1/cancel", `{"exec_id":"x-10"}`, "", ""},
		{"DELETE", "/v1/executions/x-1", ``, api.OpProcessDelete, ""},
		{"DELETE", "/v1/executions/x-1", `{"exec_id":"x-2"}`, "", ""},
		{"DELETE", "/v1/executions/stop", ``, "", ""},
		{"POST", "/v1/executions/stop", `{"session_id":"s-1"}`, api.OpProcessStop, ""},
		{"POST", "/v1/executions/stop", ``, "", ""}, // that would be all of them
		{"GET", "/v1/executions/stop", ``, "", ""},
		{"POST", "/v1/executions", `{}`, "", ""},
		{"POST", "/v1/sessions/s-1/pause", ``, api.OpSessionPause, ""},
		{"POST", "/v1/sessions/s-1/pause", `{"session_id":"s-2"}`, "", ""},
		{"POST", "/v1/sessions/s-1/resume", `{"session_id":"s-1"}`, api.OpSessionResume, ""},
		{"POST", "/v1/sessions/s-1/resume", `{"exec_id":"x-1"}`, "", ""},
		{"POST", "/v1/drain", `{"undo":true}`, api.OpDrain, ""},
		{"POST", "/v1/log/level", `{"level":"debug"}`, api.OpLogLevel, ""},
		{"POST", "/v1/log/level", ``, "", ""},
		{"POST", "/v1/policy/activate", `{"strict":true,"live":"narrow"}`, api.OpPolicyActivate, ""},
		{"POST", "/v1/policy/activate", ``, "", ""},
		{"POST", "/v1/ops/admin.policy.activate", `{}`, api.OpPolicyActivate, ""},
		{"POST", "/v1/ops/effect.cancel", `{"intent_id":"sha256:00"}`, api.OpProcessCancel, ""},
		{"POST", "/v1/ops/effect.close", `{"intent_id":"sha256:00"}`, api.OpProcessInput, ""},
		{"POST", "/v1/ops/host.process.pause", `{"exec_id":"x-1"}`, api.OpProcessPause, ""},
	} {
		last.Store(nil)
		if row.header == "" {
			row.header = "application/json"
		}
		status, body := b.do(t, row.method, row.path, row.body, "Content-Type", row.header)
		req := last.Load()
		name := row.method + " " + row.path + " " + row.body
		if row.op == "" {
			if status < 400 || status >= 500 || req != nil || !strings.HasPrefix(body, `{"error":`) {
				t.Errorf("%s: %d %s", name, status, body)
			}
			continue
		}
		if status != 200 || req == nil || req.Op != row.op {
			t.Errorf("%s: %d %s", name, status, body)
			continue
		}
		if ref := req.Ref(); ref != nil && !strings.HasPrefix(row.path, "/v1/ops/") && *ref != (api.ProcessRef{ExecID: "x-1"}) {
			t.Errorf("%s: names %+v", name, ref)
		}
		if req.Session != nil && req.Session.SessionID != "s-1" {
			t.Errorf("%s: names %+v", name, req.Session)
		}
	}
}

// One printable key makes an operation with effect happen once; reads have none.
func TestKeys(t *testing.T) {
	var last atomic.Pointer[api.Request]
	b := serve(t, &script{
		do: func(req *api.Request) (*api.Receipt, error) { last.Store(req); return settled(), nil },
		start: func(req *api.Request) (*api.Pending, *api.Receipt, error) {
			last.Store(req)
			return nil, settled(), nil
		},
		list: func(context.Context, *api.Request) (*api.ProcessList, *api.Receipt, error) {
			return &api.ProcessList{Processes: []api.Process{}}, nil, nil
		},
	}, Options{})
	exec := `{"session_id":"s","argv":["echo"]}`
	longest := strings.Repeat("k", 128)
	for _, row := range []struct {
		name, method, path, body string
		keys                     []string
		key                      string // "" is refused
	}{
		{"one", "POST", "/v1/exec", exec, []string{"a key, printable"}, "a key, printable"},
		{"longest", "POST", "/v1/exec", exec, []string{longest}, longest},
		{"without waiting", "POST", "/v1/exec", `{"session_id":"s","argv":["echo"],"wait":false}`, []string{"k"}, "k"},
		{"by path", "DELETE", "/v1/executions/x-1", "", []string{"k"}, "k"},
		{"by name", "POST", "/v1/ops/effect.cancel", `{"intent_id":"i"}`, []string{"k"}, "k"},
		{"too long", "POST", "/v1/exec", exec, []string{longest + "k"}, ""},
		{"empty", "POST", "/v1/exec", exec, []string{""}, ""},
		{"two", "POST", "/v1/exec", exec, []string{"a", "b"}, ""},
		{"the same twice", "POST", "/v1/exec", exec, []string{"a", "a"}, ""},
		{"tab", "POST", "/v1/exec", exec, []string{"a\tb"}, ""},
		{"not ascii", "POST", "/v1/exec", exec, []string{"é"}, ""},
		{"not utf-8", "POST", "/v1/exec", exec, []string{"\xff"}, ""},
		{"read", "GET", "/v1/executions", "", []string{"k"}, ""},
		{"read by name", "POST", "/v1/ops/host.process.list", `{}`, []string{"k"}, ""},
		{"question", "POST", "/v1/decide", `{"op":"host.exec","exec":` + exec + `}`, []string{"k"}, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			last.Store(nil)
			header := []string{"Content-Type", "application/json"}
			for _, k := range row.keys {
				header = append(header, "Idempotency-Key", k)
			}
			status, body := b.do(t, row.method, row.path, row.body, header...)
			req := last.Load()
			if row.key == "" {
				if status != 400 || req != nil || !strings.Contains(body, `"code":"invalid_header"`) {
					t.Errorf("%d %s", status, body)
				}
			} else if status != 200 || req == nil || req.Key != row.key {
				t.Errorf("%d %s", status, body)
			}
		})
	}
	keyed := b.WithKey("k")
	if _, err := keyed.Exec(t.Context(), api.Exec{SessionID: "s", Argv: []string{"echo"}}); err != nil || last.Load().Key != "k" {
		t.Errorf("%+v %v", last.Load(), err)
	}
	if _, err := keyed.Processes(t.Context(), api.Read{}); err != nil {
		t.Errorf("a read with a keyed client: %v", err)
	}
}

// Every filter of a list reaches the supervisor, and nothing that is no filter does.
func TestListFilters(t *testing.T) {
	var last atomic.Pointer[api.Request]
	b := serve(t, &script{list: func(_ context.Context, req *api.Request) (*api.ProcessList, *api.Receipt, error) {
		last.Store(req)
		return &api.ProcessList{Processes: []api.Process{}, Next: "n"}, nil, nil
	}}, Options{})
	filter := api.Read{SessionID: "s-1", State: "running", Active: true, Labels: map[string]string{"a": "b=c", "d": ""}, Limit: 7, After: "c&d"}
	page, err := b.Processes(t.Context(), filter)
	if err != nil || page.Next != "n" || fmt.Sprintf("%+v", *last.Load().Read) != fmt.Sprintf("%+v", filter) {
		t.Errorf("%+v %v\n%+v", page, err, last.Load().Read)
	}
	for _, q := range []string{"active=1", "active=yes", "active=true&active=true", "limit=-1", "limit=1e3", "wait_ms=1", "exec_id=x", "label=a", "after=%ff"} {
		if status, body := b.do(t, "GET", "/v1/executions?"+q, ""); status != 400 || !strings.Contains(body, `"code":"invalid_header"`) {
			t.Errorf("%s: %d %s", q, status, body)
		}
	}
}
