package main

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/stockade-dev/stockade/supervisor/api"
)

// follows has the output of execRuns followed: each connection gets the next script. The positions
// from which it was asked for are returned.
func (f *fake) follows(scripts ...[]any) (positions func() []string) {
	var n atomic.Int64
	f.mux.HandleFunc("GET /v1/executions/"+execRuns+"/output", func(w http.ResponseWriter, r *http.Request) {
		i := int(n.Add(1)) - 1
		stream(w, scripts[min(i, len(scripts)-1)]...)
	})
	return func() (at []string) {
		for _, call := range f.said("GET /v1/executions/" + execRuns + "/output") {
			_, after, _ := strings.Cut(call, "?after=")
			at = append(at, after)
		}
		return at
	}
}

// stdout goes to stdout and stderr to stderr, in order of arrival, over a connection that breaks;
// nothing is left out and nothing comes twice (R230, item 6 of restarts).
func TestLogsFollow(t *testing.T) {
	f := newFake(t)
	at := f.follows(
		append(outputs([2]int64{}, "stdout one\n", "stderr two\n", "stdout thr"), cut),
		append(outputs([2]int64{7, 4}, "stdout ee\n", "stderr four\n"), theEnd(7)),
	)
	got := f.run(t, "", "logs", "-f", execRuns)
	ours := slices.DeleteFunc(got.order, func(s string) bool { return strings.HasPrefix(s, "stderr stockade: ") })
	want := []string{"stdout one\n", "stderr two\n", "stdout thr", "stdout ee\n", "stderr four\n"}
	if diff := cmp.Diff(want, ours); diff != "" || got.status != 0 {
		t.Errorf("status %d, %s", got.status, diff)
	}
	if n := strings.Count(got.stderr, "stockade: the connection to the supervisor was lost"); n != 1 {
		t.Errorf("told %d times: %q", n, got.stderr)
	}
	if diff := cmp.Diff([]string{"", "0.7.4"}, at()); diff != "" {
		t.Error(diff)
	}

	if got := f.run(t, "", "logs", "-f", "--exit-status", "--since-cursor", "0.7.4", execRuns); got.status != 7 || got.stdout != "ee\n" {
		t.Errorf("%+v", got)
	}
}

// Each line has the time of its arrival, whatever pieces it came in.
func TestLogsTimestamps(t *testing.T) {
	f := newFake(t)
	f.follows(append(outputs([2]int64{}, "stdout a\nb", "stderr x\n", "stdout c\n"), theEnd(0)))
	got := f.run(t, "", "logs", "-ft", execRuns)
	if want := "2023-11-14T22:13:20.000000Z a\n2023-11-14T22:13:20.000000Z bc\n"; got.stdout != want {
		t.Errorf("%q, want %q", got.stdout, want)
	}
	if want := "2023-11-14T22:13:20.001000Z x\n"; got.stderr != want {
		t.Errorf("%q, want %q", got.stderr, want)
	}
}

// Progress is told apart from output and receipt, and only to who wants it (S2).
func TestProgress(t *testing.T) {
	f := newFake(t)
	f.follows([]any{
		api.Event{Kind: "frame", Cursor: "1.0.0", ExecID: execRuns, Frame: &api.Frame{Seq: 1, Kind: api.FrameProgress, Payload: api.FramePayload{StdoutBytes: 2048, ElapsedNS: 5e9}}},
		api.Event{Kind: "keepalive"},
		api.Event{Kind: "frame", Cursor: "2.0.0", ExecID: execRuns, Frame: &api.Frame{Seq: 2, Kind: api.FramePaused}},
		theEnd(0),
	})
	got := f.run(t, "", "logs", "-f", "--progress", execRuns)
	if want := "stockade: running  5s  stdout 2KiB, stderr 0B\nstockade: paused  \n"; got.stderr != want || got.stdout != "" {
		t.Errorf("%+v", got)
	}
	if got := f.run(t, "", "logs", "-f", execRuns); got.stderr != "" {
		t.Errorf("%+v", got)
	}
	got = f.run(t, "", "logs", "-f", "--json", execRuns)
	if lines := strings.Split(strings.TrimSpace(got.stdout), "\n"); len(lines) != 3 || !strings.Contains(lines[0], `"frame"`) || !strings.Contains(lines[2], `"kind":"receipt"`) {
		t.Errorf("%q", got.stdout)
	}
}

// pages has the output of execRuns read in pages of two chunks, of which live goes on.
func (f *fake) pages(live bool, texts ...string) {
	events := outputs([2]int64{}, texts...)
	f.mux.HandleFunc("GET /v1/executions/"+execRuns+"/output", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Accept") != "" {
			stream(w, append(outputs([2]int64{100, 0}, "stdout more\n"), theEnd(0))...)
			return
		}
		from := 0
		for i, e := range events {
			if e.(api.Event).Cursor == r.URL.Query().Get("after") {
				from = i + 1
			}
		}
		p := api.Pending{IntentID: intentRuns, ExecID: execRuns, State: api.StateRunning, Cursor: r.URL.Query().Get("after")}
		for i, e := range events[from:min(from+2, len(events))] {
			e := e.(api.Event)
			p.Output = append(p.Output, api.Chunk{Seq: int64(from + i + 1), Stream: e.Stream, Offset: e.Offset, Bytes: e.Bytes, AtNS: e.AtNS})
			p.Cursor = e.Cursor
		}
		if !live && from+2 >= len(events) {
			r := receipt(3)
			p.End, p.State, p.Receipt = true, api.StateFailed, &r
		}
		reply(w, 200, p)
	})
}

func TestLogsSoFar(t *testing.T) {
	texts := []string{"stdout 1\n2\n", "stderr a\nb", "stdout 3", "stderr c\n", "stdout 4\n5"}
	for _, row := range []struct {
		args           string
		live           bool
		stdout, stderr string
	}{
		{"", false, "1\n2\n34\n5", "a\nbc\n"},
		{"", true, "1\n2\n34\n5", "a\nbc\n"},
		{"--tail 3", false, "34\n5", "bc\n"},
		{"--tail 3", true, "34\n5", "bc\n"},
		{"--tail 1", true, "5", ""},
		{"--tail 0", true, "", ""},
		{"--tail 100", false, "1\n2\n34\n5", "a\nbc\n"},
		{"--since-cursor 0.4.0", false, "34\n5", "a\nbc\n"},
		{"--tail 1 -f", true, "5more\n", ""},
		{"--tail 1 -f", false, "5", ""},
	} {
		f := newFake(t)
		f.pages(row.live, texts...)
		got := f.run(t, "", append(append([]string{"logs"}, strings.Fields(row.args)...), execRuns)...)
		if got.status != 0 || got.stdout != row.stdout || got.stderr != row.stderr {
			t.Errorf("logs %s: %+v, want %q %q", row.args, got, row.stdout, row.stderr)
		}
	}
	f := newFake(t)
	f.pages(false, texts...)
	got := f.run(t, "", "logs", "--json", "-n", "1", execRuns)
	want := fmt.Sprintf(`{"kind":"output","intent_id":%q,"exec_id":%q,"stream":"stdout","offset":7,"bytes":"NQ==","at_ns":1700000000004000000}`, intentRuns, execRuns)
	if lines := strings.Split(got.stdout, "\n"); len(lines) != 3 || lines[0] != want || !strings.Contains(lines[1], `"kind":"receipt"`) {
		t.Errorf("%q", got.stdout)
	}
}

// What is not kept is said, never papered over, and the rest is shown.
func TestLogsGone(t *testing.T) {
	f := newFake(t)
	f.mux.HandleFunc("GET /v1/executions/"+execRuns+"/output", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("after") == "" {
			reply(w, http.StatusGone, api.Pending{ExecID: execRuns, Gone: &api.Gone{From: "0.0.0", FirstAvailable: "0.9.0"}})
			return
		}
		end := receipt(0)
		reply(w, 200, api.Pending{ExecID: execRuns, Output: []api.Chunk{{Stream: "stdout", Offset: 9, Bytes: []byte("rest\n")}}, Cursor: "0.14.0", End: true, Receipt: &end})
	})
	got := f.run(t, "", "logs", execRuns)
	if got.stdout != "rest\n" || !strings.Contains(got.stderr, `between "0.0.0" and "0.9.0" is not kept`) {
		t.Errorf("%+v", got)
	}
}

// wait ends as exec would have.
func TestWait(t *testing.T) {
	f := newFake(t)
	var asked atomic.Int64
	f.mux.HandleFunc("GET /v1/executions/{id}/wait", func(w http.ResponseWriter, r *http.Request) {
		p := api.Process{ExecID: r.PathValue("id"), IntentID: intentRuns, State: api.StateFailed, ExitCode: new(7), Reason: "non_zero_exit"}
		switch {
		case p.ExecID == execRust:
			p.State, p.ExitCode, p.Reason = api.StateRunning, nil, ""
		case asked.Add(1) == 1:
			panic(http.ErrAbortHandler) // the supervisor goes away and comes back
		}
		reply(w, 200, p)
	})
	f.answers("GET /v1/receipts/"+intentRuns, receipt(7))
	if got := f.run(t, "", "wait", execRuns); got.status != 7 || got.stdout != execRuns+" failed (7)\n" {
		t.Errorf("%+v", got)
	}
	if got := f.run(t, "", "wait", "--timeout", "20ms", execRust); got.status != exitRunning || got.stdout != execRust+" running\n" {
		t.Errorf("%+v", got)
	}
	if got := f.run(t, "", "wait", "--json", execRuns); got.status != 7 || !strings.Contains(got.stdout, `"state": "failed"`) {
		t.Errorf("%+v", got)
	}
}

func TestEvents(t *testing.T) {
	f := newFake(t)
	notices := []api.Notice{
		{Seq: 3, Kind: api.NoticeProcess, AtNS: begun, SessionID: sessionOne, ExecID: execRuns, State: "running"},
		{Seq: 4, Kind: api.NoticeOutput, AtNS: begun, SessionID: sessionOne, ExecID: execRuns, Stdout: 2048},
		{Seq: 5, Kind: api.NoticeViolation, AtNS: begun, SessionID: sessionOne, Op: api.OpProcessSignal, Reason: "signal_not_allowed", Detail: "x\x1b[2J"},
	}
	f.mux.HandleFunc("GET /v1/sessions/{id}/events", func(w http.ResponseWriter, r *http.Request) {
		after := r.URL.Query().Get("after")
		switch {
		case r.Header.Get("Accept") != "":
			stream(w, api.Event{Kind: "keepalive"}, api.Notice{Seq: 6, Kind: api.NoticeSession, AtNS: begun, SessionID: sessionOne, State: "closed"})
		case after == "":
			reply(w, http.StatusGone, api.NoticeList{Gone: &api.Gone{From: "0", FirstAvailable: "2"}})
		case after == "2":
			reply(w, 200, api.NoticeList{Events: notices, Next: 5})
		default:
			reply(w, 200, api.NoticeList{Next: 5})
		}
	})
	const (
		three = "     3  2023-11-14T22:13:20.000000Z  PROCESS_STATE       x-runsbbbbbbbbbbbbbbbbbbbbbb  running\n"
		four  = "     4  2023-11-14T22:13:20.000000Z  OUTPUT_AVAILABLE    x-runsbbbbbbbbbbbbbbbbbbbbbb  stdout 2KiB, stderr 0B\n"
		five  = "     5  2023-11-14T22:13:20.000000Z  POLICY_VIOLATION    s-oneaaaaaaaaaaaaaaaaaaaaaaa  host.process.signal  signal_not_allowed  x\uFFFD[2J\n"
		six   = "     6  2023-11-14T22:13:20.000000Z  SESSION_STATE       s-oneaaaaaaaaaaaaaaaaaaaaaaa  closed\n"
	)
	for args, want := range map[string]string{
		"":                               three + four + five,
		"--tail 1":                       five,
		"--kind process_state":           three,
		"--follow":                       three + four + five + six,
		"-f -n 0":                        six,
		"-f --kind SESSION_STATE":        six,
		"--after 2 --kind SESSION_STATE": "",
	} {
		got := f.run(t, "", append(append([]string{"events"}, strings.Fields(args)...), sessionOne)...)
		if diff := cmp.Diff(want, got.stdout); got.status != 0 || diff != "" {
			t.Errorf("events %s: %d %s%s", args, got.status, got.stderr, diff)
		}
		if strings.Contains(got.stderr, `between "0" and "2" is not kept`) == strings.Contains(args, "--after") {
			t.Errorf("events %s: %q", args, got.stderr)
		}
	}
	if got := f.run(t, "", "events", "--json", "-n", "1", sessionOne); !strings.HasPrefix(got.stdout, `{"seq":5,"kind":"POLICY_VIOLATION",`) || strings.Count(got.stdout, "\n") != 1 {
		t.Errorf("%q", got.stdout)
	}
}

func TestFrames(t *testing.T) {
	f := newFake(t)
	end := receipt(7)
	one := api.Frame{Seq: 1, Kind: api.FrameStarted, AtNS: begun, IntentID: intentRuns, Payload: api.FramePayload{ExecID: execRuns}}
	two := api.Frame{Seq: 2, Kind: api.FrameInput, AtNS: begun, IntentID: intentRuns, Payload: api.FramePayload{ExecID: execRuns, InputID: "a", InputBytes: 3, InputClosed: true}}
	f.answers("GET /v1/executions/"+execRuns, api.Process{ExecID: execRuns, IntentID: intentRuns})
	f.mux.HandleFunc("GET /v1/intents/"+intentRuns+"/frames", func(w http.ResponseWriter, r *http.Request) {
		switch after := r.URL.Query().Get("after"); {
		case r.Header.Get("Accept") != "":
			stream(w, api.Event{Kind: "frame", Cursor: "1", Frame: &one}, api.Event{Kind: "frame", Cursor: "2", Frame: &two}, theEnd(7))
		case after == "":
			reply(w, 200, api.FrameList{Frames: []api.Frame{one, two}})
		default:
			reply(w, 200, api.FrameList{Receipt: &end})
		}
	})
	want := "   1  2023-11-14T22:13:20.000000Z  host.exec.started   \n" +
		"   2  2023-11-14T22:13:20.000000Z  host.exec.input     3B of input  end of input  input a\n"
	for _, args := range []string{"", "-f"} {
		got := f.run(t, "", append(append([]string{"frames"}, strings.Fields(args)...), execRuns)...)
		if diff := cmp.Diff(want, got.stdout); diff != "" || got.stderr != "stockade: receipt: ok  ok 7\n" || got.status != 0 {
			t.Errorf("frames %s: %+v%s", args, got, diff)
		}
	}
	if got := f.run(t, "", "frames", "--json", intentRuns); strings.Count(got.stdout, "\n") != 3 {
		t.Errorf("%q", got.stdout)
	}
}
