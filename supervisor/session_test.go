package supervisor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stockade-dev/stockade/sandbox"
	"github.com/stockade-dev/stockade/supervisor/api"
)

// R010, R012, R013, R017–R019: what an open returns, and get and list show.
func TestSessionDocument(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t)
		defer b.stop()
		r := b.open(func(o *api.SessionOpen) {
			o.Labels = map[string]string{"team": "a"}
			o.Target.Local.Env = map[string]api.EnvValue{"S": {Text: "secret", Secret: true}}
		})
		open := r.Payload.Open
		if open.ExpiresAtNS != open.StartedAtNS+int64(time.Hour) || open.Status != "ready" || open.Enforced == nil {
			t.Errorf("%+v", open)
		}
		time.Sleep(time.Second)
		other := b.session()
		read := func(f api.Read) []string {
			list, denial, err := b.Sessions(t.Context(), &api.Request{Op: api.OpSessionList, Principal: alice, Read: &f})
			if err != nil || denial != nil {
				t.Fatal(denial, err)
			}
			ids := []string{}
			for _, s := range list.Sessions {
				ids = append(ids, s.SessionID)
			}
			return ids
		}
		for _, tt := range []struct {
			f    api.Read
			want []string
		}{
			{api.Read{}, []string{other, r.SessionID}},
			{api.Read{Limit: 1}, []string{other}},
			{api.Read{Labels: map[string]string{"team": "a"}}, []string{r.SessionID}},
			{api.Read{State: "closed"}, []string{}},
		} {
			if diff := cmp.Diff(tt.want, read(tt.f)); diff != "" {
				t.Errorf("%+v: %s", tt.f, diff)
			}
		}
		d, _, err := b.Session(t.Context(), &api.Request{Op: api.OpSessionGet, Principal: alice, Read: &api.Read{SessionID: r.SessionID}})
		if err != nil || d.State != "ready" || d.OpenIntent != r.IntentID || d.PolicyDigest == "" || d.Workdir != "/work" || d.EnvNames[0] != "S" {
			t.Errorf("%+v %v", d, err)
		}
	})
}

// R033, R243: another principal's session answers exactly like one that does not exist.
func TestForeignSessionIsUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t)
		defer b.stop()
		id := b.session()
		exec := b.exec(id, "echo", "mine")
		for _, mallory := range []api.Principal{{UID: 1001}, {UID: 1000, Scope: api.Scope{AgentID: "other"}}} {
			for _, op := range []func(id string) api.Request{
				func(id string) api.Request {
					return api.Request{Op: api.OpExec, Exec: &api.Exec{SessionID: id, Argv: []string{"true"}}}
				},
				func(id string) api.Request {
					return api.Request{Op: api.OpSessionSignal, Signal: &api.SessionSignal{SessionID: id, Signal: "KILL"}}
				},
				func(id string) api.Request {
					return api.Request{Op: api.OpSessionClose, Close: &api.SessionClose{SessionID: id}}
				},
			} {
				got := map[string]*api.Receipt{}
				for _, id := range []string{id, "s-unknown"} {
					req := op(id)
					req.Principal = mallory
					r := b.do(req)
					r.IntentID, r.ErrorMessage, r.Timings = "", "", nil
					if r.Payload.Exec != nil {
						r.Payload.Exec.ErrorMessage = ""
					}
					got[id] = r
				}
				if diff := cmp.Diff(got["s-unknown"], got[id]); diff != "" {
					t.Errorf("differs from unknown: %s", diff)
				}
				if got[id].ErrorCode != api.CodeSessionNotFound {
					t.Errorf("%s", got[id].ErrorCode)
				}
			}
			is := func(err error, code api.Code) {
				t.Helper()
				if e, ok := errors.AsType[*api.Error](err); !ok || e.Code != code {
					t.Errorf("%v", err)
				}
			}
			_, _, err := b.Session(t.Context(), &api.Request{Op: api.OpSessionGet, Principal: mallory, Read: &api.Read{SessionID: id}})
			is(err, api.CodeSessionNotFound)
			_, _, err = b.Receipt(t.Context(), &api.Request{Op: api.OpReceiptGet, Principal: mallory, Read: &api.Read{IntentID: exec.IntentID}})
			is(err, api.CodeNotFound)
			_, _, err = b.Watch(t.Context(), &api.Request{Op: api.OpProcessWatch, Principal: mallory, Read: &api.Read{ExecID: exec.ExecID}}, nil)
			is(err, api.CodeExecNotFound)
			list, _, err := b.Receipts(t.Context(), &api.Request{Op: api.OpReceiptList, Principal: mallory, Read: &api.Read{SessionID: id}})
			if err != nil || len(list.Receipts) != 0 {
				t.Errorf("%v %v", list, err)
			}
		}
	})
}

// R020, R090: limits of sessions; scopes do not multiply them.
func TestSessionLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := startOn(t, newFake(), t.TempDir()+"/state", func(c *Config) {
			c.Ceiling = sandbox.Ceiling{Sessions: 3, SessionsPerPrincipal: 2}
		})
		defer b.stop()
		as := func(p api.Principal) *api.Receipt {
			return b.do(api.Request{Op: api.OpSessionOpen, Principal: p, Open: &api.SessionOpen{Target: api.Target{Local: &api.Local{}}}})
		}
		first := as(alice)
		as(api.Principal{UID: 1000, Scope: api.Scope{AgentID: "a"}})
		if r := as(api.Principal{UID: 1000, Scope: api.Scope{AgentID: "b"}}); r.ErrorCode != api.CodeSessionLimit || r.Outcome != api.OutcomeFaulted {
			t.Errorf("third of a user: %+v", r)
		}
		as(api.Principal{UID: 1001})
		if r := as(api.Principal{UID: 1002}); r.ErrorCode != api.CodeSessionLimit {
			t.Errorf("fourth of all: %+v", r)
		}
		b.close(first.SessionID)
		if r := as(alice); r.Outcome != api.OutcomeOK {
			t.Errorf("after a close: %+v", r)
		}
	})
}

// R051, R052: up to the grant's limit executions do not wait for each other; beyond it they wait for
// their turn, first come, first served, and beyond the queue they are refused.
func TestExecutionLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := startOn(t, newFake(), t.TempDir()+"/state", func(c *Config) { c.Defaults.Queue = 2 })
		defer b.stop()
		id := b.session()
		began := time.Now()
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() { b.exec(id, "for", "5s") })
		}
		synctest.Wait()
		for i := range 2 {
			all.Go(func() {
				r := b.exec(id, "for", "1s")
				if took := time.Since(began); r.Outcome != api.OutcomeOK || took != 6*time.Second {
					t.Errorf("waiting %d: %v, %+v", i, took, r)
				}
			})
		}
		synctest.Wait()
		if r := b.exec(id, "true"); r.ErrorCode != api.CodeQueueFull || r.Outcome != api.OutcomeFaulted {
			t.Errorf("%+v", r)
		}
		all.Wait()
		if r := b.exec(id, "true"); r.Outcome != api.OutcomeOK {
			t.Errorf("%+v", r)
		}
	})
}

// R024, R025, C6: the deadline is enforced when it comes, also on what runs.
func TestExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t)
		defer b.stop()
		id := b.session(func(o *api.SessionOpen) { o.SessionTTLNS = int64(3 * time.Second) })
		r := b.exec(id, "sleep")
		if x := r.Payload.Exec; r.Status != "timeout" || x.Status != "timeout" || x.ErrorCode != api.CodeSessionExpired || x.ExitCode != -1 || x.Usage.WallNS != int64(3*time.Second) {
			t.Errorf("%+v", x)
		}
		synctest.Wait()
		if b.fake.called("close") != 1 {
			t.Error("nobody ended the session")
		}
		if r := b.exec(id, "true"); r.ErrorCode != api.CodeSessionExpired {
			t.Errorf("%s", r.ErrorCode)
		}
		if r := b.close(id); r.Payload.Close.Reason != "expired" || r.Payload.Close.FinalState != "closed" {
			t.Errorf("%+v", r.Payload.Close)
		}
	})
}

// R024: without any call at all.
// Pitfall 17 of part 4: nobody has to call, and the end is that nanosecond, not the one after.
func TestExpiryIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t)
		defer b.stop()
		id := b.session()
		time.Sleep(time.Hour - 1)
		if r := b.exec(id, "true"); r.Outcome != api.OutcomeOK {
			t.Errorf("one nanosecond before: %s", r.ErrorCode)
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if b.fake.called("close") != 1 {
			t.Error("nobody ended the session")
		}
	})
}

// R029–R031, R050, R078: close ends what runs, in order, once, and says the same every time.
func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t)
		defer b.stop()
		id := b.session()
		b.exec(id, "true")
		var running *api.Receipt
		var all sync.WaitGroup
		all.Go(func() { running = b.exec(id, "stubborn") })
		time.Sleep(time.Second)
		var first, second *api.Receipt
		all.Go(func() { first = b.close(id) })
		all.Go(func() { second = b.close(id) })
		all.Wait()
		third := b.close(id)
		if x := running.Payload.Exec; x.Status != "signaled" || x.ErrorCode != api.CodeSessionClosed || x.Signal != "KILL" {
			t.Errorf("%+v", x)
		}
		want := &api.CloseResult{
			Status: "closed", FinalState: "closed", Reason: "closed", Summary: "2 executions in 3s; ended: closed",
			Usage: api.Usage{WallNS: int64(3 * time.Second), CPUNS: int64(time.Second), PeakMemoryBytes: 1 << 20, Executions: 2},
		}
		want.EndedAtNS, want.EndedAt = stamp(time.Now())
		for _, r := range []*api.Receipt{first, second, third} {
			if diff := cmp.Diff(want, r.Payload.Close); diff != "" {
				t.Error(diff)
			}
		}
		if n := b.fake.called("close"); n != 1 {
			t.Errorf("closed %d times", n)
		}
		if r := b.exec(id, "true"); r.ErrorCode != api.CodeSessionClosed {
			t.Errorf("%s", r.ErrorCode)
		}
	})
}

// C7: force shortens a graceful close that is under way.
func TestForceShortensGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t)
		defer b.stop()
		id := b.session()
		began := time.Now()
		var all sync.WaitGroup
		all.Go(func() { b.exec(id, "stubborn") })
		synctest.Wait()
		all.Go(func() { b.signal(id, "TERM", time.Minute) })
		time.Sleep(time.Second)
		b.do(api.Request{Op: api.OpSessionClose, Close: &api.SessionClose{SessionID: id, Mode: "force"}})
		all.Wait()
		if took := time.Since(began); took != time.Second {
			t.Errorf("took %v", took)
		}
	})
}

// R070–R077. A signal to a session that has ended is answered alike, with the same
// ended_at_ns, whenever and whichever it is (R074).
// Pitfall 6 of part 4: signals reach processes, by their names, with their grace.
func TestSignal(t *testing.T) {
	for _, tt := range []struct {
		name   string
		argv   []string
		sig    api.SignalName
		grace  []time.Duration
		status string
		took   time.Duration
		exec   string // signal that ended the execution
		ends   bool   // the session
	}{
		{"term", []string{"sleep"}, "TERM", nil, "signaled", 0, "TERM", true},
		{"term ignored, default grace", []string{"stubborn"}, "TERM", nil, "signaled", 2 * time.Second, "KILL", true},
		{"term ignored, own grace", []string{"stubborn"}, "TERM", []time.Duration{5 * time.Second}, "signaled", 5 * time.Second, "KILL", true},
		{"term without grace", []string{"sleep"}, "TERM", []time.Duration{0}, "signaled", 0, "KILL", true},
		{"kill", []string{"sleep"}, "KILL", nil, "signaled", 0, "KILL", true},
		{"int", []string{"sleep"}, "INT", nil, "signaled", 0, "INT", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := start(t)
				defer b.stop()
				id := b.session()
				var running *api.Receipt
				var all sync.WaitGroup
				all.Go(func() { running = b.exec(id, tt.argv...) })
				synctest.Wait()
				began := time.Now()
				r := b.signal(id, tt.sig, tt.grace...)
				if s := r.Payload.Signal; r.Outcome != api.OutcomeOK || s.Status != tt.status || s.Signal != string(tt.sig) || (s.EndedAtNS != 0) != tt.ends {
					t.Errorf("%+v", s)
				}
				if took := time.Since(began); took != tt.took {
					t.Errorf("took %v", took)
				}
				all.Wait()
				x := running.Payload.Exec
				if x.Status != "signaled" || x.Signal != tt.exec || (x.ErrorCode == api.CodeSessionClosed) != tt.ends {
					t.Errorf("%+v", x)
				}
				again := b.signal(id, tt.sig, tt.grace...)
				if !tt.ends {
					if r := b.exec(id, "true"); r.Outcome != api.OutcomeOK {
						t.Errorf("the session is not usable: %+v", r)
					}
					return
				}
				time.Sleep(time.Second)
				third := b.signal(id, "INT")
				if a, c := again.Payload.Signal, third.Payload.Signal; a.Status != "already_exited" || c.Status != "already_exited" ||
					a.EndedAtNS != r.Payload.Signal.EndedAtNS || c.EndedAtNS != a.EndedAtNS {
					t.Errorf("%+v %+v", a, c)
				}
			})
		})
	}
}

// R075: a signal outside the grant; R070: an unknown session.
func TestSignalRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t)
		defer b.stop()
		if r := b.signal(b.session(), "USR1"); r.Outcome != api.OutcomeDenied || r.Deny[0].Code != api.CodeSignalNotAllowed || r.Payload.Signal.Status != "error" {
			t.Errorf("%+v", r)
		}
		if r := b.signal("s-none", "TERM"); r.Payload.Signal.Status != "not_found" || r.ErrorCode != api.CodeSessionNotFound {
			t.Errorf("%+v", r)
		}
	})
}

// A session that is still being built answers every operation as one that does not exist.
func TestSessionBeingBuilt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t)
		defer b.stop()
		b.fake.hook = func(call string) {
			if call != "open" {
				return
			}
			id := b.registry.all()[0].id
			for _, r := range []*api.Receipt{b.exec(id, "true"), b.signal(id, "KILL"), b.close(id)} {
				if r.ErrorCode != api.CodeSessionNotFound || r.SessionID != "" {
					t.Errorf("%s: %s %s", r.Op, r.ErrorCode, r.ErrorMessage)
				}
			}
			_, _, err := b.Session(t.Context(), &api.Request{Op: api.OpSessionGet, Principal: alice, Read: &api.Read{SessionID: id}})
			if e, ok := errors.AsType[*api.Error](err); !ok || e.Code != api.CodeSessionNotFound {
				t.Errorf("get: %v", err)
			}
		}
		b.session()
	})
}

// Of the sessions that ended the last few can still be looked at; one that lives is never forgotten.
// Pitfalls 14 and 15 of part 4: what has ended is kept for a while, and what lives is never evicted.
func TestHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := startOn(t, newFake(), filepath.Join(t.TempDir(), "state"), func(cfg *Config) { cfg.Defaults.History.Sessions = 2 })
		defer b.stop()
		live := b.session()
		want := []string{live}
		for i := range 4 {
			id := b.session()
			b.close(id)
			if i >= 2 {
				want = slices.Insert(want, 0, id)
			}
		}
		list, _, err := b.Sessions(t.Context(), &api.Request{Op: api.OpSessionList, Principal: alice, Read: &api.Read{}})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, s := range list.Sessions {
			got = append(got, s.SessionID)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	})
}

// When the runner is gone, so is every session, and executions do not end in a made-up exit.
func TestRunnerGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t)
		defer b.stop()
		id := b.session()
		var running *api.Receipt
		var all sync.WaitGroup
		all.Go(func() { running = b.exec(id, "sleep") })
		synctest.Wait()
		b.fake.lose()
		all.Wait()
		if x := running.Payload.Exec; running.Outcome != api.OutcomeFaulted || running.ErrorCode != api.CodeRunnerUnavailable || x.ExitCode != -1 {
			t.Errorf("%+v", x)
		}
		synctest.Wait()
		d, _, err := b.Session(t.Context(), &api.Request{Op: api.OpSessionGet, Principal: alice, Read: &api.Read{SessionID: id}})
		if err != nil || d.State != "error" || d.Reason != "runner_unavailable" {
			t.Errorf("%+v %v", d, err)
		}
	})
}

// An orderly end: new work is refused, sessions are closed, what runs is settled.
func TestShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t)
		defer b.stop()
		id := b.session()
		var running *api.Receipt
		var all sync.WaitGroup
		all.Go(func() { running = b.exec(id, "sleep") })
		synctest.Wait()
		if err := b.Supervisor.Close(context.Background()); err != nil {
			t.Error(err)
		}
		all.Wait()
		if x := running.Payload.Exec; x.ErrorCode != api.CodeSessionClosed || x.Signal != "TERM" {
			t.Errorf("%+v", x)
		}
		_, err := b.Do(t.Context(), &api.Request{Op: api.OpSessionOpen, Principal: alice, Open: &api.SessionOpen{}}, nil)
		if e, ok := errors.AsType[*api.Error](err); !ok || e.Code != api.CodeShuttingDown {
			t.Errorf("%v", err)
		}
		last := b.records()
		if types := types(last[len(last)-3:]); !slices.Equal(types, []string{"receipt", "session_end", "snapshot"}) {
			t.Errorf("%v", types)
		}
	})
}

// R090: one user's sessions take nothing of another's out of the history, whatever their number.
func TestHistoryIsShared(t *testing.T) {
	r := newRegistry(4, time.Now)
	ended := func(uid uint32, id string) {
		s := newSession(api.Principal{UID: uid}, &api.SessionOpen{Target: api.Target{Local: &api.Local{}}})
		s.id, s.state = id, stateClosed
		r.restore(s)
	}
	ended(1, "hers")
	for i := range 20 {
		ended(2, fmt.Sprint("his", i))
	}
	if len(r.sessions) != 4 || len(r.order) != 4 || r.sessions["hers"] == nil || r.sessions["his19"] == nil {
		t.Errorf("%v", slices.Sorted(maps.Keys(r.sessions)))
	}
}
