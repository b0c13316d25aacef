package supervisor

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/stockade-dev/stockade/sandbox"
	"github.com/stockade-dev/stockade/supervisor/api"
	"github.com/stockade-dev/stockade/supervisor/ledger"
)

// named makes the request of an operation on an execution, without parameters of its own.
func named(op api.Op, exec string) api.Request {
	ref := api.ProcessRef{ExecID: exec}
	req := api.Request{Op: op}
	switch op {
	case api.OpProcessInput:
		req.Input = &api.ProcessInput{ProcessRef: ref, Data: textInput("x")}
	case api.OpProcessSignal:
		req.Deliver = &api.ProcessSignal{ProcessRef: ref, Signal: "HUP"}
	case api.OpProcessModify:
		req.Modify = &api.ProcessModify{ProcessRef: ref, TimeoutNS: int64(30 * time.Second)}
	case api.OpProcessCancel:
		req.Cancel = &api.ProcessCancel{ProcessRef: ref}
	default:
		req.Process = &api.ProcessTarget{ProcessRef: ref}
	}
	return req
}

func textInput(text string) *api.Stdin { return &api.Stdin{InlineText: &api.InlineText{Text: text}} }

// control carries an operation on an execution out.
func (b *bench) control(op api.Op, exec string) *api.Receipt {
	b.t.Helper()
	return b.do(named(op, exec))
}

func (b *bench) input(exec string, in api.ProcessInput) *api.Receipt {
	b.t.Helper()
	in.ExecID = exec
	return b.do(api.Request{Op: api.OpProcessInput, Input: &in})
}

func (b *bench) cancelling(exec string, grace time.Duration) *api.Receipt {
	b.t.Helper()
	ns := int64(grace)
	return b.do(api.Request{Op: api.OpProcessCancel, Cancel: &api.ProcessCancel{ProcessRef: api.ProcessRef{ExecID: exec}, GraceNS: &ns}})
}

// stateOf is the state in the record of an execution; "" without one.
func (b *bench) stateOf(exec string) api.State {
	p, _ := b.chronicle.process(alice, api.ProcessRef{ExecID: exec})
	return p.State
}

// frames are the kinds of an intent's frames, after the first.
func (b *bench) frames(intent string) string {
	b.t.Helper()
	list, _, err := b.framesAfter(intent, 0, 0, 100)
	if err != nil {
		b.t.Error(err)
	}
	var kinds []string
	for _, f := range list {
		kinds = append(kinds, strings.TrimPrefix(string(f.Kind), "host.exec."))
	}
	return strings.Join(kinds, " ")
}

// notices are the events of a session that are not about what runs in it.
func (b *bench) notices(session string) []string {
	b.t.Helper()
	var out []string
	b.chronicle.read(func(s *ledger.State) {
		list, _, _ := s.Notices(ledger.OwnerOf(alice), session, 0, 1000)
		for _, n := range list {
			if n.Kind != api.NoticeProcess && n.Kind != api.NoticeOutput {
				out = append(out, strings.TrimSpace(string(n.Kind)+" "+cmp.Or(n.State, n.Reason)))
			}
		}
	})
	return out
}

// R225, R226, R233, R237, R238, R243, R244: what each operation on an execution answers, by where that
// is in its life.
func TestControlStatuses(t *testing.T) {
	type answer struct {
		outcome api.Outcome
		code    api.Code
		status  string
		state   api.State // in the payload
	}
	unknown := answer{"faulted", "exec_not_found", "not_found", ""}
	ended := func(s api.State) answer { return answer{"faulted", "exec_ended", "already_finished", s} }
	waits := answer{"faulted", "exec_not_started", "error", "queued"}
	for op, want := range map[api.Op]map[string]answer{
		api.OpProcessInput: {
			"running": {"ok", "", "accepted", "running"}, "deaf": {"faulted", "stdin_closed", "error", "running"},
			"queued": {"faulted", "stdin_full", "error", "queued"}, "ended": ended("completed"), "canceled": ended("canceled"),
		},
		api.OpProcessSignal: {
			"running": {"ok", "", "signaled", "running"}, "queued": waits,
			"ended": {"ok", "", "already_finished", "completed"}, "canceled": {"ok", "", "already_finished", "canceled"},
		},
		api.OpProcessModify: {
			"running": {"ok", "", "accepted", "running"}, "queued": {"ok", "", "accepted", "queued"},
			"ended": ended("completed"), "canceled": ended("canceled"),
		},
		api.OpProcessPause: {
			"running": {"ok", "", "paused", "running"}, "queued": waits, "ended": ended("completed"), "canceled": ended("canceled"),
		},
		api.OpProcessResume: {
			"running": {"ok", "", "resumed", "running"}, "queued": waits, "ended": ended("completed"), "canceled": ended("canceled"),
		},
		api.OpProcessCancel: {
			"running": {"ok", "", "canceled", "canceled"}, "queued": {"ok", "", "canceled", "canceled"},
			"ended": {"ok", "", "already_finished", "completed"}, "canceled": {"ok", "", "canceled", "canceled"},
			"undead": {"ok", "", "not_cancellable", "failed"},
		},
		api.OpProcessDelete: {
			"running": {"faulted", "active_process_conflict", "active_process_conflict", "running"},
			"queued":  {"faulted", "active_process_conflict", "active_process_conflict", "queued"},
			"ended":   {"ok", "", "deleted", "completed"}, "canceled": {"ok", "", "deleted", "canceled"},
		},
	} {
		for _, foreign := range []string{"unknown", "foreign", "other scope", "deleted"} {
			want[foreign] = unknown
		}
		for where, want := range want {
			t.Run(string(op)+" "+where, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					b := start(t)
					defer b.stop()
					if where == "undead" {
						defer b.fake.lose()
					}
					exec, who := b.somewhere(where)
					req := named(op, exec)
					req.Principal = who
					r := b.do(req)
					got := r.Payload.Control
					if got == nil {
						t.Fatalf("%+v", r)
					}
					if diff := gocmp.Diff(want, answer{r.Outcome, r.ErrorCode, got.Status, got.State}, gocmp.AllowUnexported(answer{})); diff != "" {
						t.Error(diff)
					}
					if known := want != unknown; r.ExecID != "" || known != (got.ExecID == exec) || known != (r.SessionID != "") {
						t.Errorf("exec %q, in the payload %q, session %q", r.ExecID, got.ExecID, r.SessionID)
					}
					if where == "queued" && b.fake.called("start for") != 0 {
						t.Error("what was queued has been started")
					}
				})
			})
		}
	}
}

// somewhere makes an execution of alice's and brings it to a place in its life. Its principal is the one
// who is going to ask.
func (b *bench) somewhere(where string) (exec string, who api.Principal) {
	b.t.Helper()
	id := b.session()
	x := api.Exec{SessionID: id, Argv: []string{"read"}, StdinOpen: true, TimeoutNS: int64(time.Minute)}
	who = alice
	switch where {
	case "unknown":
		return "x-unknown", who
	case "foreign":
		who.UID++
	case "other scope":
		who.Scope.AgentID = "other"
	case "deaf":
		x.StdinOpen = false
		x.Argv = []string{"sleep"}
	case "queued":
		for range 4 {
			b.launch(api.Exec{SessionID: id, Argv: []string{"sleep"}, TimeoutNS: int64(time.Minute)})
		}
		x.Argv = []string{"for", "1s"}
	case "ended", "deleted":
		x.Argv = []string{"true"}
		exec = b.execute(x).ExecID // it may have ended before who does not wait for that is answered
	case "undead":
		x.Argv = []string{"undead"}
	}
	if exec == "" {
		exec = b.launch(x).ExecID
	}
	switch where {
	case "canceled":
		b.control(api.OpProcessCancel, exec)
	case "deleted":
		b.control(api.OpProcessDelete, exec)
	}
	time.Sleep(2 * startedAfter)
	synctest.Wait()
	return exec, who
}

// R129: policy is asked about each, and sees the execution and its session, also when both have ended.
func TestControlIsJudged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t)
		defer b.stop()
		keep := map[string]string{"keep": "this"}
		id := b.session(func(o *api.SessionOpen) { o.Labels = keep })
		running := b.launch(api.Exec{SessionID: id, Argv: []string{"read"}, StdinOpen: true, Labels: keep})
		for _, op := range []api.Op{
			api.OpProcessInput, api.OpProcessSignal, api.OpProcessModify, api.OpProcessPause, api.OpProcessResume, api.OpProcessCancel, api.OpProcessDelete,
		} {
			if r := b.control(op, running.ExecID); r.Outcome != api.OutcomeDenied || r.ErrorCode != "kept" || r.Payload.Control.Status != api.ControlError {
				t.Errorf("%s: %+v", op, r)
			}
			// What would become of it, without its becoming.
			req := named(op, running.ExecID)
			req.Principal = alice
			if d, _, err := b.Decide(t.Context(), &req); err != nil || d.Allow || d.Deny[0].Code != "kept" {
				t.Errorf("%s: %+v %v", op, d, err)
			}
		}
		b.close(id)
		r := b.control(api.OpProcessDelete, running.ExecID)
		if r.Outcome != api.OutcomeDenied {
			t.Errorf("ended: %+v", r)
		}
		rec, err := ReadDecision(b.state, r.IntentID)
		if err != nil || rec.Input.Process == nil || rec.Input.Process.State != api.StateCanceled || rec.Input.Session == nil {
			t.Errorf("%+v %v", rec, err)
		}
		if again := b.policies.current.Decide(t.Context(), rec.Entrypoint, rec.Input); again.InputDigest != rec.InputDigest {
			t.Error("the question cannot be asked again")
		}
	})
}

// R231, R236, C9: the whole tree ends, by TERM or by KILL after the grace; who does not wait is told so; the
// execution's own caller reads the same.
// Pitfall 15 of part 4: a cancel escalates.
func TestCancel(t *testing.T) {
	for _, tt := range []struct {
		name, command string
		grace         time.Duration
		signal        string
		took          time.Duration
	}{
		{"TERM", "sleep", time.Second, "TERM", 0},
		{"exits 0 on TERM", "polite", time.Second, "TERM", 0},
		{"ignores TERM", "stubborn", time.Second, "KILL", time.Second},
		{"no grace", "sleep", 0, "KILL", 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := start(t)
				defer b.stop()
				x := b.launch(api.Exec{SessionID: b.session(), Argv: []string{tt.command}, TimeoutNS: int64(time.Minute)})
				time.Sleep(time.Second)
				began := time.Now()
				r := b.cancelling(x.ExecID, tt.grace)
				if took := time.Since(began); r.Payload.Control.Status != api.ControlCanceled || took != tt.took {
					t.Errorf("%+v after %v", r.Payload.Control, took)
				}
				if r := b.ends(x.ExecID); r.ErrorCode != api.CodeCanceled || r.Payload.Exec.Signal != tt.signal || r.Payload.Exec.Status != "signaled" {
					t.Errorf("%+v", r.Payload.Exec)
				}
			})
		})
	}
}

// C5: a grace is the time between TERM and KILL, and what the caller says. It gives neither an execution more than its
// time limit, nor a session more than its life.
func TestGraceIsNoMoreTime(t *testing.T) {
	hour := int64(time.Hour)
	for _, tt := range []struct {
		name string
		ask  func(session, exec string) api.Request
		at   time.Duration // when the execution ends
	}{
		{"cancel", func(_, exec string) api.Request {
			return api.Request{Op: api.OpProcessCancel, Cancel: &api.ProcessCancel{ProcessRef: api.ProcessRef{ExecID: exec}, GraceNS: &hour}}
		}, 10 * time.Second},
		{"stop", func(session, _ string) api.Request {
			return api.Request{Op: api.OpProcessStop, Stop: &api.ProcessStop{SessionID: session, GraceNS: &hour}}
		}, 10 * time.Second},
		{"close", func(session, _ string) api.Request {
			return api.Request{Op: api.OpSessionClose, Close: &api.SessionClose{SessionID: session, GraceNS: &hour}}
		}, 10 * time.Second},
		{"close, and the session's life is shorter", func(session, _ string) api.Request {
			return api.Request{Op: api.OpSessionClose, Close: &api.SessionClose{SessionID: session, GraceNS: &hour}}
		}, 5 * time.Second},
		{"signal", func(session, _ string) api.Request {
			return api.Request{Op: api.OpSessionSignal, Signal: &api.SessionSignal{SessionID: session, Signal: "TERM", GraceNS: &hour}}
		}, 5 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := start(t)
				defer b.stop()
				began := time.Now()
				id := b.session(func(o *api.SessionOpen) {
					if tt.at == 5*time.Second {
						o.SessionTTLNS = int64(tt.at)
					}
				})
				x := b.launch(api.Exec{SessionID: id, Argv: []string{"stubborn"}, TimeoutNS: int64(10 * time.Second)})
				time.Sleep(time.Second)
				b.do(tt.ask(id, x.ExecID))
				r := b.ends(x.ExecID)
				if took := time.Since(began); took != tt.at+b.defaults.Grace || r.Payload.Exec.Signal != "KILL" {
					t.Errorf("%+v after %v", r.Payload.Exec, took)
				}
			})
		})
	}
}

// R232: cancels that come together, and again, say the same; the TERM is sent once.
func TestCancelRepeatedly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t)
		defer b.stop()
		x := b.launch(api.Exec{SessionID: b.session(), Argv: []string{"stubborn"}, TimeoutNS: int64(time.Minute)})
		time.Sleep(time.Second)
		no := false
		r := b.do(api.Request{Op: api.OpProcessCancel, Cancel: &api.ProcessCancel{ProcessRef: api.ProcessRef{IntentID: x.IntentID}, Wait: &no}})
		if got := r.Payload.Control; got.Status != api.ControlCancelRequested || got.State != api.StateRunning || got.ExecID != x.ExecID {
			t.Errorf("%+v", got)
		}
		var all sync.WaitGroup
		for range 5 {
			all.Go(func() {
				if r := b.cancelling(x.ExecID, 5*time.Second); r.Payload.Control.Status != api.ControlCanceled || r.Payload.Control.State != api.StateCanceled {
					t.Errorf("%+v", r.Payload.Control)
				}
			})
		}
		began := time.Now()
		all.Wait()
		if took := time.Since(began); took != b.defaults.Grace {
			t.Errorf("the grace of the first counts: %v", took)
		}
		if r := b.control(api.OpProcessCancel, x.ExecID); r.Payload.Control.Status != api.ControlCanceled {
			t.Errorf("%+v", r.Payload.Control)
		}
		if n := b.fake.called("signal 15"); n != 1 {
			t.Errorf("TERM was sent %d times", n)
		}
	})
}

// R234: what is canceled while it waits for its turn never starts, and its place is another's.
func TestCancelQueued(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t)
		defer b.stop()
		exec, _ := b.somewhere("queued")
		if r := b.control(api.OpProcessCancel, exec); r.Payload.Control.Status != api.ControlCanceled {
			t.Errorf("%+v", r.Payload.Control)
		}
		r := b.ends(exec)
		if x := r.Payload.Exec; r.Outcome != api.OutcomeOK || x.ErrorCode != api.CodeCanceled || x.StartedAtNS != 0 || x.ExitCode != -1 {
			t.Errorf("%+v", x)
		}
		time.Sleep(time.Minute)
		if n := b.fake.called("start for"); n != 0 {
			t.Error("it was started")
		}
		if f := b.frames(r.IntentID); f != "" {
			t.Errorf("frames %s", f)
		}
	})
}

// A cancel of what is paused, and of what its session keeps paused, works.
func TestCancelPaused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t)
		defer b.stop()
		id := b.session()
		x := b.launch(api.Exec{SessionID: id, Argv: []string{"sleep"}, TimeoutNS: int64(time.Minute)})
		time.Sleep(time.Second)
		b.control(api.OpProcessPause, x.ExecID)
		began := time.Now()
		if r := b.cancelling(x.ExecID, time.Second); r.Payload.Control.Status != api.ControlCanceled || time.Since(began) != 0 {
			t.Errorf("%+v after %v", r.Payload.Control, time.Since(began))
		}
		x = b.launch(api.Exec{SessionID: id, Argv: []string{"sleep"}, TimeoutNS: int64(time.Minute)})
		time.Sleep(time.Second)
		b.do(api.Request{Op: api.OpSessionPause, Session: &api.SessionTarget{SessionID: id}})
		began = time.Now()
		if r := b.cancelling(x.ExecID, time.Second); r.Payload.Control.Status != api.ControlCanceled || time.Since(began) != time.Second {
			t.Errorf("%+v after %v", r.Payload.Control, time.Since(began))
		}
		if r := b.close(id); r.Outcome != api.OutcomeOK {
			t.Errorf("%+v", r)
		}
	})
}

// Pausing is said once however often it is asked for, does not stop the clock of the time limit, and holds
// signals back until the execution goes on.
func TestPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t)
		defer b.stop()
		x := b.launch(api.Exec{SessionID: b.session(), Argv: []string{"polite"}, TimeoutNS: int64(time.Minute)})
		time.Sleep(time.Second) // until it has started
		for range 2 {
			b.control(api.OpProcessPause, x.ExecID)
		}
		if p, _ := b.chronicle.process(alice, api.ProcessRef{ExecID: x.ExecID}); !p.Paused || p.State != api.StateRunning {
			t.Errorf("%+v", p)
		}
		b.control(api.OpProcessSignal, x.ExecID)
		time.Sleep(time.Second)
		if s := b.stateOf(x.ExecID); s != api.StateRunning {
			t.Errorf("a signal has reached what is paused: %s", s)
		}
		for range 2 {
			b.control(api.OpProcessResume, x.ExecID)
		}
		r := b.ends(x.ExecID)
		if r.Payload.Exec.ExitCode != 0 || r.ErrorCode != "" {
			t.Errorf("%+v", r.Payload.Exec)
		}
		if f := b.frames(r.IntentID); f != "started paused resumed" {
			t.Errorf("frames %s", f)
		}

		x = b.launch(api.Exec{SessionID: r.SessionID, Argv: []string{"sleep"}, TimeoutNS: int64(5 * time.Second)})
		time.Sleep(time.Second)
		b.control(api.OpProcessPause, x.ExecID)
		if r := b.ends(x.ExecID); r.ErrorCode != api.CodeTimeout || r.Payload.Exec.Usage.WallNS != int64(5*time.Second) || r.Payload.Exec.Signal != "TERM" {
			t.Errorf("%+v", r.Payload.Exec)
		}
	})
}

// R129, C17: a time limit can be longer and shorter, within the grant, what policy said of the command, and
// the session's life.
func TestModify(t *testing.T) {
	for _, tt := range []struct {
		name, word      string
		ttl, ask        time.Duration
		effective, ends time.Duration
		code            api.Code
		clamps          []api.Clamp
	}{
		{name: "longer", ask: 30 * time.Second, effective: 30 * time.Second, ends: 30 * time.Second, code: "timeout"},
		{name: "shorter", ask: 5 * time.Second, effective: 5 * time.Second, ends: 5 * time.Second, code: "timeout"},
		{name: "over already", ask: time.Second, effective: time.Second, ends: 2 * time.Second, code: "timeout"},
		{name: "beyond the grant", ask: time.Hour, effective: time.Minute, ends: time.Minute, code: "timeout",
			clamps: []api.Clamp{{Field: "timeout_ns", Requested: int64(time.Hour), Effective: int64(time.Minute), Source: "policy"}}},
		{name: "beyond the decision", word: "lengthy", ask: time.Minute, effective: 20 * time.Second, ends: 20 * time.Second, code: "timeout",
			clamps: []api.Clamp{{Field: "timeout_ns", Requested: int64(time.Minute), Effective: int64(20 * time.Second), Source: "policy"}}},
		{name: "beyond the session", ttl: 30 * time.Second, ask: 50 * time.Second, effective: 30 * time.Second, ends: 30 * time.Second, code: "session_expired",
			clamps: []api.Clamp{{Field: "timeout_ns", Requested: int64(50 * time.Second), Effective: int64(30 * time.Second), Source: "runtime"}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := start(t)
				defer b.stop()
				id := b.session(func(o *api.SessionOpen) { o.SessionTTLNS = int64(tt.ttl) })
				x := b.launch(api.Exec{SessionID: id, Argv: []string{"sleep", tt.word}})
				time.Sleep(2 * time.Second)
				r := b.do(api.Request{Op: api.OpProcessModify, Modify: &api.ProcessModify{ProcessRef: api.ProcessRef{ExecID: x.ExecID}, TimeoutNS: int64(tt.ask)}})
				if r.Payload.Control.TimeoutNS != int64(tt.effective) || r.Payload.Control.Status != api.ControlAccepted {
					t.Errorf("%+v", r.Payload.Control)
				}
				if diff := gocmp.Diff(tt.clamps, r.Clamped); diff != "" {
					t.Error(diff)
				}
				r = b.ends(x.ExecID)
				if r.ErrorCode != tt.code || time.Duration(r.Payload.Exec.Usage.WallNS).Round(time.Second) != tt.ends {
					t.Errorf("%s after %v", r.ErrorCode, time.Duration(r.Payload.Exec.Usage.WallNS))
				}
				if f := b.frames(r.IntentID); !strings.HasPrefix(f, "started modified") {
					t.Errorf("frames %s", f)
				}
			})
		})
	}
}

// A modified time limit outlives the supervisor that granted it, and so does a pause.
func TestControlOutlivesRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t)
		x := b.launch(api.Exec{SessionID: b.session(), Argv: []string{"sleep"}, TimeoutNS: int64(5 * time.Second)})
		time.Sleep(time.Second)
		b.do(api.Request{Op: api.OpProcessModify, Modify: &api.ProcessModify{ProcessRef: api.ProcessRef{ExecID: x.ExecID}, TimeoutNS: int64(20 * time.Second)}})
		b.control(api.OpProcessPause, x.ExecID)
		b = b.restart()
		defer b.stop()
		time.Sleep(time.Second)
		b.control(api.OpProcessPause, x.ExecID)
		if n := b.fake.called("freeze true"); n != 1 {
			t.Errorf("frozen %d times", n)
		}
		if r := b.ends(x.ExecID); r.ErrorCode != api.CodeTimeout || r.Payload.Exec.Signal != "TERM" || r.Payload.Exec.Usage.WallNS != int64(20*time.Second) {
			t.Errorf("%s %+v", r.ErrorCode, r.Payload.Exec)
		}
	})
}

// C10, R237: what is deleted is gone from every view but the audit, with its output, and stays so.
func TestDelete(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t)
		id := b.session()
		exec := b.exec(id, "flood", "20000")
		kept, err := b.spool.List()
		if err != nil || len(kept) != 1 {
			t.Fatalf("%+v %v", kept, err)
		}
		var all sync.WaitGroup
		statuses := make(chan string, 2)
		for range 2 {
			all.Go(func() { statuses <- b.control(api.OpProcessDelete, exec.ExecID).Payload.Control.Status })
		}
		all.Wait()
		if got := map[string]bool{<-statuses: true, <-statuses: true}; !got[api.ControlDeleted] || !got[api.ControlNotFound] {
			t.Errorf("%v", got)
		}
		for range 2 {
			if kept, _ = b.spool.List(); len(kept) != 0 {
				t.Errorf("%+v", kept)
			}
			read := &api.Read{ExecID: exec.ExecID}
			if _, _, err := b.Process(t.Context(), &api.Request{Op: api.OpProcessGet, Principal: alice, Read: read}); err == nil {
				t.Error("get finds it")
			}
			if _, _, err := b.Output(t.Context(), &api.Request{Op: api.OpOutput, Principal: alice, Read: read}); err == nil {
				t.Error("output finds it")
			}
			byIntent := &api.Read{IntentID: exec.IntentID}
			if _, _, err := b.Watch(t.Context(), &api.Request{Op: api.OpProcessWatch, Principal: alice, Read: byIntent}, func(api.Event) {}); err == nil {
				t.Error("watch finds it")
			}
			if r, _, err := b.Receipt(t.Context(), &api.Request{Op: api.OpReceiptGet, Principal: alice, Read: byIntent}); err != nil || r.ExecID != exec.ExecID {
				t.Errorf("its receipt: %+v %v", r, err)
			}
			b = b.restart()
		}
		b.stop()
	})
}

// R246: what fits is ended, and counted; other scopes' and sessions' is not touched.
func TestStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t)
		defer b.stop()
		one, two := b.session(), b.session()
		web := map[string]string{"role": "web"}
		run := func(session string, labels map[string]string) string {
			return b.launch(api.Exec{SessionID: session, Argv: []string{"sleep"}, Labels: labels, TimeoutNS: int64(time.Minute)}).ExecID
		}
		execs := []string{run(one, web), run(one, nil), run(two, web), run(two, nil)}
		time.Sleep(time.Second)
		stop := func(ask api.ProcessStop, who api.Principal) *api.Receipt {
			return b.do(api.Request{Op: api.OpProcessStop, Principal: who, Stop: &ask})
		}
		for _, tt := range []struct {
			ask   api.ProcessStop
			who   api.Principal
			count int64
			left  int
		}{
			{api.ProcessStop{}, api.Principal{UID: 1000, Scope: api.Scope{AgentID: "other"}}, 0, 4},
			{api.ProcessStop{SessionID: one, Labels: web}, alice, 1, 3},
			{api.ProcessStop{SessionID: one, Labels: web}, alice, 0, 3},
			{api.ProcessStop{Labels: web}, alice, 1, 2},
			{api.ProcessStop{SessionID: one}, alice, 1, 1},
			{api.ProcessStop{}, alice, 1, 0},
		} {
			r := stop(tt.ask, tt.who)
			left := 0
			for _, x := range execs {
				if b.stateOf(x) == api.StateRunning {
					left++
				}
			}
			if got := r.Payload.Control; got.Status != api.ControlStopped || got.Count != tt.count || left != tt.left {
				t.Errorf("%+v: %+v, %d are left", tt.ask, got, left)
			}
		}
		if r := stop(api.ProcessStop{SessionID: "s-none"}, alice); r.ErrorCode != api.CodeSessionNotFound || r.Payload.Control.Status != api.ControlNotFound {
			t.Errorf("%+v", r)
		}
	})
}

// R079: a session that is paused starts nothing, says so, can be closed, and goes on where it was.
func TestSessionPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t)
		id := b.session()
		pause := func(op api.Op) *api.Receipt {
			return b.do(api.Request{Op: op, Session: &api.SessionTarget{SessionID: id}})
		}
		var waiting []string
		for range 5 {
			waiting = append(waiting, b.launch(api.Exec{SessionID: id, Argv: []string{"for", "1s"}}).ExecID)
		}
		time.Sleep(time.Second / 2)
		for range 2 {
			if r := pause(api.OpSessionPause); r.Outcome != api.OutcomeOK || r.Payload.Control.Status != api.ControlPaused || r.SessionID != id {
				t.Errorf("%+v", r)
			}
		}
		b = b.restart()
		defer b.stop()
		if r := b.exec(id, "true"); r.ErrorCode != api.CodeSessionPaused || r.Outcome != api.OutcomeFaulted {
			t.Errorf("%+v", r)
		}
		read := func() *api.Session {
			d, _, err := b.Session(t.Context(), &api.Request{Op: api.OpSessionGet, Principal: alice, Read: &api.Read{SessionID: id}})
			if err != nil {
				t.Fatal(err)
			}
			return d
		}
		if d := read(); d.State != "quiesced" {
			t.Errorf("%+v", d)
		}
		for range 2 {
			if r := pause(api.OpSessionResume); r.Outcome != api.OutcomeOK || r.Payload.Control.Status != api.ControlResumed {
				t.Errorf("%+v", r)
			}
		}
		for _, x := range waiting {
			b.ends(x)
		}
		if r := b.exec(id, "true"); r.Outcome != api.OutcomeOK || read().State != "ready" {
			t.Errorf("%+v %+v", r, read())
		}
		if r := pause(api.OpSessionPause); r.Outcome != api.OutcomeOK {
			t.Errorf("%+v", r)
		}
		b.close(id)
		if r := pause(api.OpSessionResume); r.ErrorCode != api.CodeSessionClosed || r.Outcome != api.OutcomeFaulted {
			t.Errorf("%+v", r)
		}
		want := []string{
			"SESSION_STATE ready", "SESSION_STATE quiesced", "SESSION_STATE quiesced", "SESSION_STATE ready", "SESSION_STATE quiesced", "SESSION_STATE closed",
		}
		if diff := gocmp.Diff(want, b.notices(id)); diff != "" {
			t.Error(diff)
		}
	})
}

// What is in a paused session hears that the session ends: it is not killed for having been paused.
func TestPausedSessionEndsPolitely(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t)
		defer b.stop()
		id := b.session()
		x := b.launch(api.Exec{SessionID: id, Argv: []string{"polite"}})
		time.Sleep(time.Second)
		b.do(api.Request{Op: api.OpSessionPause, Session: &api.SessionTarget{SessionID: id}})
		began := time.Now()
		b.close(id)
		if r := b.ends(x.ExecID); r.Payload.Exec.Signal != "TERM" || time.Since(began) != 0 {
			t.Errorf("%+v after %v", r.Payload.Exec, time.Since(began))
		}
	})
}

// R134, C23: a supervisor that is being drained takes nothing new; what runs goes on, and can be controlled.
func TestDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t)
		defer b.stop()
		id := b.session()
		x := b.launch(api.Exec{SessionID: id, Argv: []string{"read"}, StdinOpen: true})
		drain := func(undo bool) string {
			return b.do(api.Request{Op: api.OpDrain, Drain: &api.Drain{Undo: undo}}).Payload.Control.Status
		}
		for range 2 {
			if got := drain(false); got != api.ControlDraining {
				t.Error(got)
			}
		}
		for _, r := range []*api.Receipt{b.open(), b.exec(id, "true")} {
			if r.ErrorCode != api.CodeDraining || r.Outcome != api.OutcomeFaulted {
				t.Errorf("%+v", r)
			}
		}
		if r := b.input(x.ExecID, api.ProcessInput{Data: textInput("end"), Close: true}); r.Outcome != api.OutcomeOK {
			t.Errorf("%+v", r)
		}
		if r := b.ends(x.ExecID); text(r.Payload.Exec.Stdout) != "end" {
			t.Errorf("%+v", r.Payload.Exec)
		}
		if got := drain(true); got != api.ControlServing {
			t.Error(got)
		}
		if r := b.exec(id, "true"); r.Outcome != api.OutcomeOK {
			t.Errorf("%+v", r)
		}
	})
}

// R020, R090: a user's executions are limited over all sessions and scopes.
func TestExecutionsPerPrincipal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := startOn(t, newFake(), t.TempDir()+"/state", func(c *Config) { c.Ceiling = sandbox.Ceiling{ExecutionsPerPrincipal: 2} })
		defer b.stop()
		one, two := b.session(), b.session()
		x := b.launch(api.Exec{SessionID: one, Argv: []string{"sleep"}})
		b.launch(api.Exec{SessionID: two, Argv: []string{"sleep"}})
		if r := b.exec(one, "true"); r.ErrorCode != api.CodeExecLimit || r.Outcome != api.OutcomeFaulted {
			t.Errorf("%+v", r)
		}
		if r := b.exec(one, "true", "forbidden"); r.ErrorCode != api.CodeExecLimit {
			t.Errorf("%+v", r)
		}
		b.control(api.OpProcessCancel, x.ExecID)
		for range 3 {
			if r := b.exec(one, "true", "forbidden"); r.Outcome != api.OutcomeDenied {
				t.Errorf("%+v", r)
			}
			if r := b.exec(one, "true"); r.Outcome != api.OutcomeOK {
				t.Errorf("%+v", r)
			}
		}
	})
}

// R052: a grant can say that nothing waits.
func TestNoQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t)
		defer b.stop()
		id := b.session(func(o *api.SessionOpen) { o.Labels = map[string]string{"queue": "no"} })
		for range 4 {
			b.launch(api.Exec{SessionID: id, Argv: []string{"sleep"}})
		}
		if r := b.exec(id, "true"); r.ErrorCode != api.CodeExecLimit {
			t.Errorf("%+v", r)
		}
	})
}

// A wait ends with the supervisor: what it is for goes on, and so does the execution.
func TestLeaveWhileCancelling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t)
		x := b.launch(api.Exec{SessionID: b.session(), Argv: []string{"stubborn"}, TimeoutNS: int64(time.Minute)})
		time.Sleep(time.Second)
		answered := make(chan error, 1)
		go func() {
			grace := int64(time.Hour)
			_, err := b.Do(context.Background(), &api.Request{Op: api.OpProcessCancel, Principal: alice, Cancel: &api.ProcessCancel{
				ProcessRef: api.ProcessRef{ExecID: x.ExecID}, GraceNS: &grace,
			}}, nil)
			answered <- err
		}()
		synctest.Wait()
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := b.Leave(ctx); err != nil {
			t.Error(err)
		}
		if err := <-answered; err == nil || time.Since(began) != time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		next := startOn(t, b.fake, b.state, func(c *Config) { c.Policy = b.cfg.Policy })
		next.closers = b.closers
		defer next.stop()
		if s := next.stateOf(x.ExecID); s != api.StateRunning {
			t.Errorf("%s", s)
		}
	})
}

// R090: what the requests of live executions hold in memory is bounded for each user, over all sessions and scopes: one that
// waits for its turn is not waited for by anybody, and there can be a thousand.
func TestRequestsMemory(t *testing.T) {
	asked := func(uid uint32, agent string, size int) *call {
		return &call{
			req:     &api.Request{Principal: api.Principal{UID: uid, Scope: api.Scope{AgentID: agent}}},
			request: make([]byte, size),
		}
	}
	r := newRegistry(1, time.Now)
	const parts = 8
	var live []*call
	for i := range parts {
		c := asked(7, fmt.Sprint(i), requestsMemory/parts)
		if err := r.enlist(c, sandbox.Ceiling{}); err != nil {
			t.Fatal(err)
		}
		live = append(live, c)
	}
	small := asked(7, "another", 1)
	if err := r.enlist(small, sandbox.Ceiling{}); err == nil || err.Code != api.CodeExecLimit {
		t.Errorf("one byte more: %v", err)
	}
	if err := r.enlist(asked(8, "0", requestsMemory), sandbox.Ceiling{}); err != nil {
		t.Errorf("another user: %v", err)
	}
	r.relist(small) // it lives: it has to be counted
	r.delist(live[0])
	if err := r.enlist(asked(7, "0", requestsMemory/parts), sandbox.Ceiling{}); err == nil {
		t.Error("what was adopted does not count")
	}
	for _, c := range append(live[1:], small) {
		r.delist(c)
	}
	if _, left := r.running[7]; left {
		t.Errorf("left: %+v", r.running[7])
	}
}
