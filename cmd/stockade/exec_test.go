package main

import (
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stockade-dev/stockade/supervisor/api"
)

var running = api.Pending{IntentID: intentRuns, ExecID: execRuns, SessionID: sessionOne, State: api.StateRunning, Cursor: "0.0.0"}

// executes has POST /v1/exec answered, as a stream if the caller accepts one.
func (f *fake) executes(pending any, events ...any) {
	f.mux.HandleFunc("POST /v1/exec", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Accept") != "" {
			stream(w, events...)
			return
		}
		status := http.StatusOK
		if _, ok := pending.(api.Pending); ok {
			status = http.StatusAccepted
		}
		reply(w, status, pending)
	})
}

func accepted() api.Event {
	return api.Event{Kind: "accepted", IntentID: intentRuns, ExecID: execRuns, Cursor: "0.0.0"}
}

// The end of a connection is not the end of a command: we go on where we were.
func TestExecGoesOn(t *testing.T) {
	f := newFake(t)
	f.executes(nil, append(append([]any{accepted()}, outputs([2]int64{}, "stdout one\n", "stderr two\n")...), cut)...)
	at := f.follows([]any{cut}, append(outputs([2]int64{4, 4}, "stdout three\n"), theEnd(7)))
	got := f.run(t, "", "exec", sessionOne, "--", "make")
	if got.status != 7 || got.stdout != "one\nthree\n" || !strings.HasPrefix(got.stderr, "two\nstockade: ") || strings.Count(got.stderr, "stockade: ") != 1 {
		t.Errorf("%+v", got)
	}
	if diff := cmp.Diff([]string{"0.4.4", "0.4.4"}, at()); diff != "" {
		t.Error(diff)
	}
}

// --detach prints the id, and says what can be done with it.
func TestExecDetach(t *testing.T) {
	f := newFake(t)
	f.executes(running)
	got := f.run(t, "", "exec", "-d", "--stdin-open", "--label", "a=b", "--key", "k", sessionOne, "--", "make")
	if got.status != 0 || got.stdout != execRuns+"\n" || !strings.Contains(got.stderr, intentRuns) || !strings.Contains(got.stderr, followUps) {
		t.Errorf("%+v", got)
	}
	if len(f.said("POST /v1/exec", `"labels":{"a":"b"}`, `"stdin_open":true`, `"wait":false`)) != 1 {
		t.Errorf("%q", f.calls)
	}
	if got := f.run(t, "", "exec", "-d", sessionOne, "make"); strings.Contains(got.stderr, "input") {
		t.Errorf("input of what has none: %q", got.stderr)
	}
	if got := f.run(t, "", "exec", "-d", "--json", sessionOne, "make"); !strings.Contains(got.stdout, `"exec_id": "`+execRuns) || got.status != 0 {
		t.Errorf("%+v", got)
	}
}

// What is refused is refused in every form.
func TestExecRefused(t *testing.T) {
	for _, args := range []string{"", "--detach", "--wait 1s", "--wait 1s --json"} {
		f := newFake(t)
		f.mux.HandleFunc("POST /v1/exec", func(w http.ResponseWriter, _ *http.Request) {
			reply(w, 403, api.Receipt{Op: api.OpExec, IntentID: intentRuns, Outcome: api.OutcomeDenied, Deny: []api.Deny{{Code: api.CodeArgvLimit}}})
		})
		got := f.run(t, "", append(append([]string{"exec"}, strings.Fields(args)...), sessionOne, "--", "make")...)
		if got.status != exitDenied || !strings.Contains(got.stderr, "argv_limit_exceeded") {
			t.Errorf("exec %s: %+v", args, got)
		}
	}
}

// --wait shows what comes meanwhile, and leaves the command alone when the time is over.
func TestExecWait(t *testing.T) {
	f := newFake(t)
	f.executes(running)
	f.mux.HandleFunc("GET /v1/executions/"+execRuns+"/output", func(w http.ResponseWriter, r *http.Request) {
		stream(w, outputs([2]int64{}, "stdout one\n")...)
		<-r.Context().Done()
	})
	got := f.run(t, "", "exec", "--wait", "100ms", sessionOne, "--", "make")
	if got.status != exitRunning || got.stdout != "one\n" || !strings.Contains(got.stderr, execRuns+" goes on after 100ms") || len(f.said("cancel")) != 0 {
		t.Errorf("%+v", got)
	}
	if got := f.run(t, "", "exec", "--wait", "100ms", "--json", sessionOne, "--", "make"); got.status != exitRunning ||
		!strings.Contains(got.stdout, `"state": "running"`) || len(f.said("POST /v1/exec", `"wait_ms":100`)) != 1 {
		t.Errorf("%+v %q", got, f.calls)
	}

	f = newFake(t)
	f.executes(running)
	f.follows(append(outputs([2]int64{}, "stdout one\n"), theEnd(7)))
	if got := f.run(t, "", "exec", "--wait", "1m", sessionOne, "--", "make"); got.status != 7 || got.stdout != "one\n" {
		t.Errorf("%+v", got)
	}
}

// A command that its key found finished has its output in the receipt.
func TestExecKey(t *testing.T) {
	f := newFake(t)
	r := receipt(0)
	r.Payload.Exec.Stdout = &api.Output{InlineText: &api.InlineText{Text: "kept\n"}}
	r.Payload.Exec.Stderr = &api.Output{Blob: &api.BlobOutput{BlobRef: "sha256:b"}}
	f.mux.HandleFunc("POST /v1/exec", func(w http.ResponseWriter, q *http.Request) {
		if q.Header.Get("Idempotency-Key") != "k" {
			t.Errorf("%v", q.Header)
		}
		stream(w, api.Event{Kind: "receipt", Receipt: &r})
	})
	f.mux.HandleFunc("GET /v1/blobs/sha256:b", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "much\n") })
	got := f.run(t, "", "exec", "--key", "k", sessionOne, "--", "make")
	if got.status != 0 || got.stdout != "kept\n" || got.stderr != "much\n" {
		t.Errorf("%+v", got)
	}
}

// Our stdin reaches the command whole, in parts that have names, however slowly it reads and
// whatever becomes of an answer; its end is the end of the command's.
func TestExecInteractive(t *testing.T) {
	f := newFake(t)
	closed := make(chan struct{})
	f.mux.HandleFunc("POST /v1/exec", func(w http.ResponseWriter, _ *http.Request) {
		stream(w, accepted())
		select {
		case <-closed:
		case <-time.After(10 * time.Second):
		}
		stream(w, theEnd(0))
	})
	var n atomic.Int64
	ids := map[string]int{}
	var all strings.Builder
	f.mux.HandleFunc("POST /v1/ops/host.process.input", func(w http.ResponseWriter, q *http.Request) {
		body, _ := io.ReadAll(q.Body)
		in, err := api.Decode[api.ProcessInput](body)
		if err != nil {
			t.Error(err)
		}
		ids[in.InputID]++
		r := api.Receipt{Op: api.OpProcessInput, IntentID: intentOpen, Outcome: api.OutcomeOK, Payload: api.Payload{Control: &api.ControlResult{Status: "accepted"}}}
		switch n.Add(1) {
		case 1: // the answer is lost
			panic(http.ErrAbortHandler)
		case 2: // it was written the first time
			all.WriteString("he")
			r.Outcome, r.ErrorCode, r.Payload.Control.Bytes = api.OutcomeFaulted, api.CodeStdinFull, 2
			reply(w, 429, r)
			return
		}
		if in.Data != nil {
			all.Write(in.Data.InlineBytes.Bytes)
			r.Payload.Control.Bytes = int64(len(in.Data.InlineBytes.Bytes))
		}
		reply(w, 200, r)
		if in.Close {
			close(closed)
		}
	})
	got := f.run(t, "hello", "exec", "-i", sessionOne, "--", "cat")
	if got.status != 0 || got.stderr != "" || all.String() != "hello" {
		t.Errorf("%+v, passed on %q", got, all.String())
	}
	if len(f.said("POST /v1/exec", `"stdin_open":true`)) != 1 || len(ids) != 3 || n.Load() != 4 {
		t.Errorf("%d calls with %d names", n.Load(), len(ids))
	}
}

// Signals of ours reach this one execution; TERM, and impatience, end it.
func TestExecSignals(t *testing.T) {
	f := newFake(t)
	delivered := make(chan string, 8)
	f.mux.HandleFunc("POST /v1/exec", func(w http.ResponseWriter, _ *http.Request) {
		stream(w, accepted())
		for _, step := range []struct {
			sig  syscall.Signal
			want string
		}{
			{syscall.SIGUSR1, `"signal":"USR1"`},
			{syscall.SIGINT, `"signal":"INT"`},
			{syscall.SIGINT, `"signal":"INT"`},
			{syscall.SIGINT, `"grace_timeout_ns":0`},
			{syscall.SIGTERM, `"wait":false`},
		} {
			time.Sleep(20 * time.Millisecond) // the event has to arrive; before that, signals wait
			syscall.Kill(syscall.Getpid(), step.sig)
			select {
			case got := <-delivered:
				if !strings.Contains(got, step.want) || !strings.Contains(got, execRuns) {
					t.Errorf("%v: %s, want %s", step.sig, got, step.want)
				}
			case <-time.After(5 * time.Second):
				t.Errorf("%v: nothing", step.sig)
			}
		}
		stream(w, theEnd(0))
	})
	take := func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		delivered <- string(b)
		reply(w, 200, api.Receipt{Op: api.OpProcessSignal, IntentID: intentOpen, Outcome: api.OutcomeOK, Payload: api.Payload{Control: &api.ControlResult{Status: "signaled"}}})
	}
	f.mux.HandleFunc("POST /v1/ops/host.process.signal", take)
	f.mux.HandleFunc("POST /v1/ops/host.process.cancel", take)
	if got := f.run(t, "", "exec", sessionOne, "--", "make"); got.status != 0 || got.stderr != "" {
		t.Errorf("%+v", got)
	}
}

// Who interrupts twice before the supervisor has answered is not kept.
func TestExecGivesUp(t *testing.T) {
	f := newFake(t)
	f.mux.HandleFunc("POST /v1/exec", func(_ http.ResponseWriter, r *http.Request) {
		for range 2 {
			syscall.Kill(syscall.Getpid(), syscall.SIGINT)
			time.Sleep(50 * time.Millisecond)
		}
		<-r.Context().Done()
	})
	got := f.run(t, "", "exec", sessionOne, "--", "make")
	if got.status != exitSignal+int(syscall.SIGINT) || !strings.Contains(got.stderr, "interrupted before the supervisor answered") {
		t.Errorf("%+v", got)
	}
}
