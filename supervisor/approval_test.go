package supervisor

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stockade-dev/stockade/internal/durable"
	"github.com/stockade-dev/stockade/internal/journal"
	"github.com/stockade-dev/stockade/rego"
	"github.com/stockade-dev/stockade/rego/bundle"
	"github.com/stockade-dev/stockade/sandbox"
	"github.com/stockade-dev/stockade/supervisor/api"
	"github.com/stockade-dev/stockade/supervisor/ledger"
)

// askingPolicy is that of the tests, and wants leave for what says "ask". Bob and the members of group 50 can give it; carol is
// named too, and the policy of approvals has something against her. After an instant it gives commands less.
func askingPolicy(t *testing.T, changesAt int64) *rego.Engine {
	t.Helper()
	e, err := rego.Load(askingFiles(changesAt), rego.Options{Deadline: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func askingFiles(changesAt int64) fstest.MapFS {
	files := maps.Clone(testPolicy)
	files["ask.rego"] = &fstest.MapFile{Data: []byte(`package ask

import rego.v1

timeout := to_number(object.get(input.request, ["exec", "labels", "timeout"], object.get(input.request, ["open", "labels", "timeout"], "8000000000")))

required := {"reason": "because", "timeout_ns": timeout, "approvers": {"uids": [1001, 1002], "gids": [50]}}
`)}
	for name, rule := range map[string]string{
		"exec": `decision := {"allow": true, "deny": [], "obligations": {"require_approval": data.ask.required}, "limits": limits} if word == "ask"

default limits := {}

limits := {"timeout_ns": 3000000000} if input.now_ns > data.changes_at_ns`,
		"signal": `decision := {"allow": true, "deny": [], "obligations": {"require_approval": data.ask.required}} if asks

asks if input.session.labels.ask == "yes"`,
		"workspace": `decision := {"allow": true, "deny": [], "obligations": {"require_approval": data.ask.required}} if asks

asks if "ask" in object.get(input.request.workspace, "paths", [])`,
		"open": `decision := {"allow": true, "deny": [], "grant": grant, "obligations": {"require_approval": data.ask.required}} if input.request.open.profile == "ask"`,
	} {
		text := string(files[name+".rego"].Data)
		text = strings.Replace(text, `"lengthy", "forbidden"}`, `"lengthy", "forbidden", "ask"}`, 1)
		text = strings.Replace(text, `if not kept`, `if {
	not kept
	not asks
}`, 1)
		text = strings.Replace(text, `if not "secret" in object.get(input.request.workspace, "paths", [])`, `if {
	not "secret" in object.get(input.request.workspace, "paths", [])
	not asks
}`, 1)
		text = strings.Replace(text, `"profile", "") != "forbidden"`, `"profile", "") in {"", "test"}`, 1)
		files[name+".rego"] = &fstest.MapFile{Data: []byte(text + "\n" + rule + "\n")}
	}
	files["approval.rego"] = &fstest.MapFile{Data: []byte(`package stockade.approval

import rego.v1

default decision := {"allow": false, "deny": [{"code": "no"}]}

decision := {"allow": true, "deny": []} if input.request.principal.uid != 1002
`)}
	files["changes.json"] = &fstest.MapFile{Data: fmt.Appendf(nil, `{"changes_at_ns": %d}`, changesAt)}
	return files
}

var (
	bob    = api.Principal{UID: 1001, GID: 1001}
	carol  = api.Principal{UID: 1002, GID: 1002}
	dave   = api.Principal{UID: 1003, GID: 1003}
	member = api.Principal{UID: 1004, GID: 1004, Groups: []uint32{7, 50}}
)

// leave is a supervisor under the policy that asks for it.
func leave(t *testing.T, change ...func(*Config)) *bench {
	t.Helper()
	policy := askingPolicy(t, math.MaxInt64)
	b := startOn(t, newFake(), t.TempDir()+"/state", func(c *Config) {
		c.Policy = policy
		for _, f := range change {
			f(c)
		}
	})
	b.closers = append(b.closers, policy.Close)
	return b
}

// asked begins an operation that has to wait for leave, and returns what it waits for.
func (b *bench) asked(req api.Request) *api.Approval {
	b.t.Helper()
	if req.Principal.UID == 0 {
		req.Principal = alice
	}
	if req.Exec != nil && req.Exec.Wait == nil {
		no := false
		req.Exec.Wait = &no
	}
	p, r, err := b.Start(context.Background(), &req)
	if err != nil || r != nil {
		b.t.Fatalf("%s: %+v %v", req.Op, r, err)
	}
	if p.State != api.StateQueued || p.Approval == "" || p.IntentID == "" {
		b.t.Fatalf("%+v", p)
	}
	return b.approvalOf(req.Principal, p.Approval)
}

func (b *bench) approvalOf(p api.Principal, id string) *api.Approval {
	b.t.Helper()
	a, denial, err := b.Approval(context.Background(), &api.Request{Op: api.OpApprovalGet, Principal: p, Read: &api.Read{Approval: id}})
	if err != nil || denial != nil {
		b.t.Fatalf("%s: %+v %v", id, denial, err)
	}
	return a
}

func (b *bench) askExec(session string, argv ...string) *api.Approval {
	b.t.Helper()
	return b.asked(api.Request{Op: api.OpExec, Exec: &api.Exec{SessionID: session, Argv: argv}})
}

func (b *bench) verdict(op api.Op, by api.Principal, a *api.Approval, comment string) *api.Receipt {
	b.t.Helper()
	return b.do(api.Request{Op: op, Principal: by, Verdict: &api.Verdict{ApprovalID: a.ApprovalID, Review: a.Review, Comment: comment}})
}

// receipt waits for the receipt of what waited.
func (b *bench) receipt(a *api.Approval) *api.Receipt {
	b.t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
		r, _, err := b.Receipt(context.Background(), &api.Request{Op: api.OpReceiptGet, Principal: a.Principal, Read: &api.Read{IntentID: a.IntentID}})
		if err == nil {
			return r
		}
		if time.Now().After(deadline) {
			b.t.Fatalf("intent %s of %s is not settled: %v", a.IntentID, a.Op, err)
		}
	}
}

type ask struct {
	req  api.Request
	call string // of the launcher, without which it has not taken place
}

// asks are one of each kind of operation that can wait, and what says that it took place.
func asks(b *bench) map[string]ask {
	id := b.session(func(o *api.SessionOpen) { o.Labels = map[string]string{"ask": "yes"} }, withOverlay("/work"))
	plain := b.session()
	long := b.background(id)
	return map[string]ask{
		"open":   {api.Request{Op: api.OpSessionOpen, Open: &api.SessionOpen{Profile: "ask", Target: api.Target{Local: &api.Local{}}}}, "open"},
		"exec":   {api.Request{Op: api.OpExec, Exec: &api.Exec{SessionID: plain, Argv: []string{"echo", "ask"}}}, "start echo"},
		"commit": {api.Request{Op: api.OpWorkspaceCommit, Space: &api.Workspace{SessionID: id, Paths: []string{"ask"}}}, "commit"},
		"pause":  {api.Request{Op: api.OpSessionPause, Session: &api.SessionTarget{SessionID: id}}, "freeze"},
		"signal": {api.Request{Op: api.OpSessionSignal, Signal: &api.SessionSignal{SessionID: id, Signal: "HUP"}}, "signal 1"},
		"close":  {api.Request{Op: api.OpSessionClose, Close: &api.SessionClose{SessionID: id}}, "close"},
		"cancel": {api.Request{Op: api.OpProcessCancel, Cancel: &api.ProcessCancel{ProcessRef: api.ProcessRef{ExecID: long}}}, "signal 15"},
	}
}

// background starts a command that goes on, and returns its id.
func (b *bench) background(session string) string {
	b.t.Helper()
	no := false
	p, r, err := b.Start(context.Background(), &api.Request{Op: api.OpExec, Principal: alice, Exec: &api.Exec{SessionID: session, Argv: []string{"sleep"}, Wait: &no}})
	if err != nil || p == nil {
		b.t.Fatalf("%+v %v", r, err)
	}
	return p.ExecID
}

// R091: each operation with effect can be made to wait. Nothing happens before leave is given; then it happens, and the
// receipt says who gave it, when, and what he said. What is denied, or not decided in time, never happens.
func TestNothingHappensBeforeLeave(t *testing.T) {
	for _, verdict := range []string{"approve", "deny", "withdraw", "timeout"} {
		for _, what := range []string{"open", "exec", "commit", "pause", "signal", "cancel", "close"} {
			t.Run(what+" "+verdict, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					b := leave(t)
					defer b.stop()
					c := asks(b)[what]
					before := b.fake.called(c.call)
					a := b.asked(c.req)
					time.Sleep(4 * time.Second)
					if n := b.fake.called(c.call); n != before {
						t.Fatalf("it happened: %v", b.fake.calls)
					}
					in, ok := b.intent(alice, a.IntentID)
					if !ok || in.State != api.StateQueued || in.ApprovalID != a.ApprovalID || in.Outcome != "" {
						t.Errorf("%+v", in)
					}
					outcome, state, code := api.OutcomeOK, api.ApprovalApproved, api.Code("")
					by := &bob
					switch verdict {
					case "approve":
						r := b.verdict(api.OpApprove, bob, a, "go on")
						if r.Outcome != api.OutcomeOK || r.Payload.Verdict.State != state || r.Payload.Verdict.Again {
							t.Errorf("%+v %+v", r, r.Payload.Verdict)
						}
					case "deny":
						outcome, state, code = api.OutcomeDenied, api.ApprovalDenied, api.CodeApprovalDenied
						if r := b.verdict(api.OpDeny, bob, a, "go on"); r.Outcome != api.OutcomeOK || r.Payload.Verdict.State != state {
							t.Errorf("%+v %+v", r, r.Payload.Verdict)
						}
					case "withdraw":
						outcome, state, code, by = api.OutcomeFaulted, api.ApprovalCanceled, api.CodeCanceled, &alice
						if what == "exec" {
							outcome = api.OutcomeOK // as of any that is canceled
						}
						if r := b.verdict(api.OpDeny, alice, a, "go on"); r.Outcome != api.OutcomeOK || r.Payload.Verdict.State != state {
							t.Errorf("%+v %+v", r, r.Payload.Verdict)
						}
					case "timeout":
						outcome, state, code, by = api.OutcomeDenied, api.ApprovalTimedOut, api.CodeApprovalTimeout, nil
						time.Sleep(3 * time.Second)
						if in, _ := b.intent(alice, a.IntentID); in.Outcome != "" {
							t.Errorf("too soon: %+v", in)
						}
						time.Sleep(2 * time.Second)
					}
					r := b.receipt(a)
					if r.Outcome != outcome || r.ErrorCode != code {
						t.Errorf("%s %s %s", r.Outcome, r.ErrorCode, r.ErrorMessage)
					}
					got := r.Approval
					if got == nil || got.State != state || got.ApprovalID != a.ApprovalID || got.DecidedAtNS == 0 || got.DecidedAt == "" || got.AskedAtNS == 0 || got.Review != a.Review {
						t.Fatalf("%+v", got)
					}
					if diff := cmp.Diff(by, got.DecidedBy); diff != "" {
						t.Error(diff)
					}
					if by != nil && (got.Comment != "go on" || got.DecidedIn == "") {
						t.Errorf("%+v", got)
					}
					if happened := b.fake.called(c.call) > before; happened != (verdict == "approve") {
						t.Errorf("it happened: %t", happened)
					}
					if in, _ := b.intent(alice, a.IntentID); in.State != "" || in.Outcome != outcome {
						t.Errorf("%+v", in)
					}
				})
			})
		}
	}
}

// R091: what waits is not what runs: it takes no place that another could have, and takes one when leave is given.
func TestWaitingTakesNoPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := leave(t)
		defer b.stop()
		id := b.session() // four may run
		var waits []*api.Approval
		for range 6 {
			waits = append(waits, b.askExec(id, "sleep", "ask"))
		}
		for range 4 {
			if r := b.exec(id, "true"); r.Outcome != api.OutcomeOK {
				t.Errorf("%+v", r)
			}
		}
		for _, a := range waits {
			b.verdict(api.OpApprove, bob, a, "")
		}
		synctest.Wait()
		if n := b.fake.called("start sleep"); n != 4 {
			t.Errorf("%d run", n)
		}
		b.control(api.OpProcessCancel, waits[0].ExecID)
		synctest.Wait()
		if n := b.fake.called("start sleep"); n != 5 {
			t.Errorf("%d have run", n)
		}
		a := b.askExec(id, "sleep", "ask")
		b.control(api.OpProcessCancel, a.ExecID)
		if r := b.receipt(a); r.ErrorCode != api.CodeCanceled || r.Approval.State != api.ApprovalCanceled || r.Payload.Exec.StartedAtNS != 0 {
			t.Errorf("%+v", r)
		}
		b.close(id)
		b.nothingLeft()
	})
}

// R091, four eyes: whose leave counts, and who may know that it is asked for.
func TestWhoGivesLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := leave(t)
		defer b.stop()
		id := b.session()
		scoped := alice
		scoped.Scope.AgentID = "another"
		for _, c := range []struct {
			name string
			op   api.Op
			by   api.Principal
			code api.Code
		}{
			{"who asked", api.OpApprove, alice, api.CodeApproverNotAllowed},
			{"the same user, in another scope", api.OpApprove, scoped, api.CodeApprovalNotFound},
			{"whom policy does not let", api.OpApprove, carol, "no"},
			{"whom nobody named", api.OpApprove, dave, api.CodeApprovalNotFound},
			{"whom nobody named, to deny", api.OpDeny, dave, api.CodeApprovalNotFound},
			{"a member of the group", api.OpApprove, member, ""},
			{"one who is named", api.OpApprove, bob, ""},
			{"one who is named, to deny", api.OpDeny, bob, ""},
			{"who asked, to take it back", api.OpDeny, alice, ""},
		} {
			a := b.askExec(id, "true", "ask")
			r := b.verdict(c.op, c.by, a, "")
			if r.ErrorCode != c.code || (c.code == "") != (r.Outcome == api.OutcomeOK) {
				t.Errorf("%s: %s %s", c.name, r.Outcome, r.ErrorCode)
			}
			if c.code != "" {
				if now := b.approvalOf(alice, a.ApprovalID); now.State != api.ApprovalWaiting {
					t.Errorf("%s: %+v", c.name, now)
				}
				b.verdict(api.OpDeny, alice, a, "")
			}
			b.receipt(a)
		}
		// Who is named, and asks himself, is another's to answer.
		own := b.asked(api.Request{Op: api.OpSessionOpen, Principal: bob, Open: &api.SessionOpen{Profile: "ask", Target: api.Target{Local: &api.Local{}}}})
		if r := b.verdict(api.OpApprove, bob, own, ""); r.ErrorCode != api.CodeApprovalOwn || r.Outcome != api.OutcomeDenied {
			t.Errorf("%+v", r)
		}
		b.verdict(api.OpApprove, member, own, "")
		if r := b.receipt(own); r.Outcome != api.OutcomeOK || r.Approval.DecidedBy.UID != member.UID {
			t.Errorf("%+v", r)
		}
		a := b.askExec(id, "true", "ask")
		for who, sees := range map[*api.Principal]bool{&alice: true, &bob: true, &carol: false, &dave: false, &scoped: false, &member: true} {
			list, denial, err := b.Approvals(t.Context(), &api.Request{Op: api.OpApprovalList, Principal: *who, Read: &api.Read{State: "waiting"}})
			if who == &carol {
				if denial == nil {
					t.Error("carol's policy says no")
				}
				continue
			}
			if err != nil || denial != nil {
				t.Fatal(denial, err)
			}
			if (len(list.Approvals) == 1) != sees {
				t.Errorf("%+v sees %d", who, len(list.Approvals))
			}
		}
		// A token of something else is no review.
		r := b.do(api.Request{Op: api.OpApprove, Principal: bob, Verdict: &api.Verdict{ApprovalID: a.ApprovalID, Review: ledger.Digest(nil)}})
		if r.ErrorCode != api.CodeApprovalReview {
			t.Errorf("%+v", r)
		}
	})
}

// R091: leave is for what was reviewed. What has changed since is not done: host paths, what policy says, the session.
func TestLeaveIsForWhatWasReviewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		changes := time.Now().Add(4 * time.Second).UnixNano()
		policy := askingPolicy(t, changes)
		defer policy.Close()
		ino := uint64(1)
		f := newFake()
		f.resolve = func(p string) (sandbox.Source, *sandbox.Error) {
			return sandbox.Source{Path: p, Resolved: p, Dev: 1, Ino: ino, Kind: "dir", Mode: 0o755}, nil
		}
		b := startOn(t, f, t.TempDir()+"/state", func(c *Config) { c.Policy = policy })
		defer b.stop()
		open := api.Request{Op: api.OpSessionOpen, Open: &api.SessionOpen{Profile: "ask", Target: api.Target{Local: &api.Local{
			Mounts: []api.Mount{{HostPath: "/src", GuestPath: "/work", Mode: "rw"}}}}}}
		a := b.asked(open)
		if a.Reviewed == nil || a.Reviewed.Grant == nil || a.Reviewed.Sources["/src"].Ino != 1 || a.Reviewed.Request.Open.Profile != "ask" {
			t.Fatalf("%+v", a.Reviewed)
		}
		ino = 2
		r := b.verdict(api.OpApprove, bob, a, "")
		if r.ErrorCode != api.CodeApprovalStale || r.Payload.Verdict.State != "" && r.Payload.Verdict.State != api.ApprovalVoid {
			t.Errorf("%+v %+v", r, r.Payload.Verdict)
		}
		done := b.receipt(a)
		if done.Outcome != api.OutcomeDenied || done.ErrorCode != api.CodeApprovalStale || done.Deny[0].Subject != "sources" || done.Approval.State != api.ApprovalVoid {
			t.Errorf("%+v %+v", done, done.Approval)
		}
		if f.called("open") != 0 {
			t.Error("it was opened")
		}

		a = b.asked(open)
		if r := b.verdict(api.OpApprove, bob, a, ""); r.Outcome != api.OutcomeOK {
			t.Errorf("%+v", r)
		}
		if done := b.receipt(a); done.Outcome != api.OutcomeOK || f.called("open") != 1 {
			t.Errorf("%+v", done)
		}

		id := b.session()
		a = b.askExec(id, "true", "ask")
		time.Sleep(5 * time.Second)
		b.verdict(api.OpApprove, bob, a, "")
		if done := b.receipt(a); done.ErrorCode != api.CodeApprovalStale || done.Deny[0].Subject != "limits" || f.called("start") != 0 {
			t.Errorf("%+v", done)
		}

		a = b.askExec(id, "true", "ask")
		b.close(id)
		done = b.receipt(a)
		if done.ErrorCode != api.CodeSessionClosed || done.Approval.State != api.ApprovalCanceled {
			t.Errorf("%+v", done)
		}
		if r := b.verdict(api.OpApprove, bob, a, ""); r.ErrorCode != api.CodeApprovalSettled || r.Payload.Verdict.State != api.ApprovalCanceled {
			t.Errorf("%+v %+v", r, r.Payload.Verdict)
		}
	})
}

// R110: a revision that is activated meanwhile does not decide about what waits in a session, which has its own. An open that
// waits was reviewed by another one than decides now, and is void. A strict activation waits for neither.
func TestLeaveAndAnotherRevision(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		there := askingFiles(math.MaxInt64)
		b := startOn(t, newFake(), t.TempDir()+"/state", func(c *Config) {
			c.Policies = Policies{
				Source: "there", Live: api.LiveKeep,
				Open: func() (*bundle.Revision, error) { return bundle.Of(there) },
				Load: func(r *bundle.Revision) (Policy, error) { return rego.Load(r.FS, rego.Options{Deadline: time.Minute}) },
			}
		})
		defer b.stop()
		id := b.session()
		inSession := b.askExec(id, "true", "ask")
		open := b.asked(api.Request{Op: api.OpSessionOpen, Open: &api.SessionOpen{Profile: "ask", Target: api.Target{Local: &api.Local{}}}})
		there = askingFiles(math.MaxInt64 - 1)
		strict := b.do(api.Request{Op: api.OpPolicyActivate, Activate: &api.PolicyActivate{Strict: true}})
		if strict.ErrorCode != api.CodePolicyBlocked || len(strict.Payload.Policy.Blocking.Intents) != 2 {
			t.Errorf("%+v %+v", strict, strict.Payload.Policy)
		}
		if r, err := b.Reload(t.Context(), TriggerSignal); err != nil || r.Status != api.PolicyActivated {
			t.Fatalf("%+v %v", r, err)
		}
		if r := b.verdict(api.OpApprove, bob, inSession, ""); r.Outcome != api.OutcomeOK {
			t.Errorf("%+v", r)
		}
		if r := b.receipt(inSession); r.Outcome != api.OutcomeOK || r.Policy.Digest != inSession.Reviewed.Policy {
			t.Errorf("%+v", r)
		}
		b.verdict(api.OpApprove, bob, open, "")
		if r := b.receipt(open); r.ErrorCode != api.CodeApprovalStale || r.Deny[0].Subject != "policy" || b.fake.called("open") != 1 {
			t.Errorf("%+v", r)
		}
		b.close(id)
		b.nothingLeft()
	})
}

// The same verdict again is the same; another is a conflict.
func TestVerdictsAreIdempotent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := leave(t)
		defer b.stop()
		id := b.session()
		a := b.askExec(id, "true", "ask")
		b.verdict(api.OpApprove, bob, a, "")
		b.receipt(a)
		for _, by := range []api.Principal{bob, member} {
			r := b.verdict(api.OpApprove, by, a, "")
			if v := r.Payload.Verdict; r.Outcome != api.OutcomeOK || !v.Again || v.State != api.ApprovalApproved || v.DecidedBy.UID != bob.UID {
				t.Errorf("%+v %+v", r, v)
			}
		}
		if r := b.verdict(api.OpDeny, bob, a, ""); r.ErrorCode != api.CodeApprovalSettled || r.Payload.Verdict.State != api.ApprovalApproved {
			t.Errorf("%+v", r)
		}
		if n := b.fake.called("start"); n != 1 {
			t.Errorf("started %d times", n)
		}
	})
}

// R229: whose it is, and those who are named, are told in their logs; the list can be waited at.
func TestApprovalEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := leave(t)
		defer b.stop()
		id := b.session()
		list := func(p api.Principal, after string) *api.ApprovalList {
			l, denial, err := b.Approvals(t.Context(), &api.Request{Op: api.OpApprovalList, Principal: p, Read: &api.Read{After: after, WaitMS: 10_000}})
			if err != nil || denial != nil {
				t.Fatal(denial, err)
			}
			return l
		}
		began := time.Now()
		if l := list(bob, ""); len(l.Approvals) != 0 || time.Since(began) != 10*time.Second {
			t.Errorf("%+v after %v", l, time.Since(began))
		}
		got := make(chan *api.ApprovalList)
		go func() { got <- list(bob, "") }()
		time.Sleep(time.Second)
		a := b.askExec(id, "true", "ask")
		l := <-got
		if len(l.Approvals) != 1 || l.Approvals[0].ApprovalID != a.ApprovalID || l.Approvals[0].Argv[1] != "ask" {
			t.Fatalf("%+v", l)
		}
		go func() { got <- list(bob, l.Next) }()
		time.Sleep(time.Second)
		b.verdict(api.OpApprove, bob, a, "")
		if l := <-got; len(l.Approvals) != 1 || l.Approvals[0].State != api.ApprovalApproved {
			t.Errorf("%+v", l)
		}
		for who, session := range map[*api.Principal]string{&alice: id, &bob: "", &carol: ""} {
			var states []string
			b.chronicle.read(func(s *ledger.State) {
				notices, _, _ := s.Notices(ledger.OwnerOf(*who), session, 0, 100)
				for _, n := range notices {
					if n.Kind == api.NoticeApproval && n.Approval == a.ApprovalID && n.ExecID == a.ExecID {
						states = append(states, n.State)
					}
				}
			})
			if !slices.Equal(states, []string{"waiting", "approved"}) {
				t.Errorf("%d was told %v", who.UID, states)
			}
		}
	})
}

// One user cannot have everybody's attention: so many wait, and so often is asked.
func TestApprovalLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := leave(t, func(c *Config) { c.Defaults.Approvals, c.Defaults.ApprovalsPerMinute = 3, 6 })
		defer b.stop()
		id := b.session()
		for range 3 {
			b.askExec(id, "true", "ask")
		}
		scoped := alice
		scoped.Scope.AgentID = "more"
		r := b.do(api.Request{Op: api.OpSessionOpen, Principal: scoped, Open: &api.SessionOpen{Profile: "ask", Target: api.Target{Local: &api.Local{}}}})
		if r.ErrorCode != api.CodeApprovalLimit || r.Outcome != api.OutcomeFaulted {
			t.Errorf("%+v", r)
		}
		a := b.asked(api.Request{Op: api.OpSessionOpen, Principal: bob, Open: &api.SessionOpen{Profile: "ask", Target: api.Target{Local: &api.Local{}}}})
		b.verdict(api.OpDeny, bob, a, "")
		time.Sleep(61 * time.Second) // all of them are over
		for range 6 {
			a := b.askExec(id, "true", "ask")
			b.verdict(api.OpDeny, alice, a, "")
			b.receipt(a)
		}
		if r := b.exec(id, "true", "ask"); r.ErrorCode != api.CodeApprovalLimit {
			t.Errorf("%+v", r)
		}
		time.Sleep(10 * time.Second)
		b.askExec(id, "true", "ask")
	})
}

// R248, R254, R255: killed after each record. What waited goes on waiting with its deadline, and can be decided; what
// had been decided is settled once. Nothing that was denied is done, and nothing twice.
func TestApprovalsOutliveTheSupervisor(t *testing.T) {
	first := t.TempDir() + "/state"
	var opened string
	synctest.Test(t, func(t *testing.T) {
		policy := askingPolicy(t, math.MaxInt64)
		defer policy.Close()
		b := startOn(t, newFake(), first, func(c *Config) { c.Policy = policy })
		defer b.stop()
		opened = b.session(withOverlay("/work"))
		ask := api.Request{Op: api.OpSessionOpen, Open: &api.SessionOpen{Profile: "ask", Target: api.Target{Local: &api.Local{}}}}
		b.verdict(api.OpApprove, bob, b.asked(ask), "")
		b.verdict(api.OpDeny, bob, b.asked(ask), "")
		b.verdict(api.OpApprove, bob, b.askExec(opened, "true", "ask"), "")
		b.verdict(api.OpDeny, bob, b.askExec(opened, "true", "ask"), "")
		b.verdict(api.OpApprove, bob, b.asked(api.Request{Op: api.OpWorkspaceCommit, Space: &api.Workspace{SessionID: opened, Paths: []string{"ask"}}}), "")
		b.asked(ask)
		b.askExec(opened, "true", "ask")
		time.Sleep(9 * time.Second)
		secret := &api.Exec{SessionID: opened, Argv: []string{"true", "ask"}, EnvPatch: map[string]api.EnvValue{"S": {Text: "s", Secret: true}}}
		b.asked(api.Request{Op: api.OpExec, Exec: secret})
	})
	var all [][]byte
	if err := journal.Scan(filepath.Join(first, "journal"), func(_ int64, rec []byte) error {
		all = append(all, rec)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	waited := 0
	for cut := range len(all) + 1 {
		state := filepath.Join(t.TempDir(), "state")
		if err := durable.PrivateDir(state); err != nil {
			t.Fatal(err)
		}
		j, err := journal.Open(filepath.Join(state, "journal"), journal.Options{})
		if err == nil && cut > 0 {
			_, err = j.Append(t.Context(), all[:cut]...)
		}
		if err == nil {
			err = j.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
		salt, _ := loadSalt(filepath.Join(first, "salt"))
		if err := durable.Create(filepath.Join(state, "salt"), salt, 0o600); err != nil {
			t.Fatal(err)
		}
		synctest.Test(t, func(t *testing.T) {
			policy := askingPolicy(t, math.MaxInt64)
			defer policy.Close()
			// The runner still has the session.
			f := newFake()
			f.specs[opened] = sandbox.Spec{Session: opened, Keep: []byte(`{"env":{}}`)}
			now := time.Now()
			b := startOn(t, f, state, func(c *Config) { c.Policy = policy })
			list, denial, err := b.Approvals(t.Context(), &api.Request{Op: api.OpApprovalList, Principal: alice, Read: &api.Read{State: "waiting"}})
			if err != nil || denial != nil {
				t.Fatal(denial, err)
			}
			waited += len(list.Approvals)
			for i := range list.Approvals {
				a := b.approvalOf(alice, list.Approvals[i].ApprovalID)
				if left := a.DeadlineNS - a.AskedAtNS; left != int64(8*time.Second) {
					t.Errorf("cut %d: its deadline has moved: %v", cut, time.Duration(left))
				}
				if a.Reviewed == nil {
					t.Fatalf("cut %d: nobody can see what it is", cut)
				}
				r := b.verdict(api.OpApprove, bob, a, "")
				done := b.receipt(a)
				late := now.UnixNano() >= a.DeadlineNS
				if late != (done.ErrorCode == api.CodeApprovalTimeout) || late != (r.Outcome != api.OutcomeOK) {
					t.Errorf("cut %d: %s %s, receipt %s %s", cut, r.Outcome, r.ErrorCode, done.ErrorCode, done.ErrorMessage)
				}
				if !late && done.Outcome != api.OutcomeOK {
					t.Errorf("cut %d: %s %s: %s", cut, done.Op, done.ErrorCode, done.ErrorMessage)
				}
			}
			b.nothingLeft()
			b.stop()
			for _, r := range b.records() {
				if r.Receipt != nil && r.Receipt.Approval != nil && r.Receipt.Approval.State == api.ApprovalWaiting {
					t.Errorf("cut %d: a receipt of what waits: %+v", cut, r.Receipt)
				}
			}
			b.settledOnce()
		})
		if t.Failed() {
			t.Fatalf("cut %d of %d", cut, len(all))
		}
	}
	if waited < 7 {
		t.Errorf("%d were found waiting", waited)
	}
}

// R091, R116: leave, time, cancel, withdrawal and the end of the session come together. There is one outcome, told to everybody,
// and one receipt; what was not approved never began, and what was began at most once.
func TestLeaveRaces(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	policy := askingPolicy(t, math.MaxInt64)
	defer policy.Close()
	dir, err := os.MkdirTemp("/dev/shm", "stockade-races-")
	if err != nil {
		dir = t.TempDir()
	}
	defer os.RemoveAll(dir)
	b := startOn(t, newFake(), filepath.Join(dir, "state"), func(c *Config) {
		c.Policy = policy
		c.Log = slog.New(slog.NewTextHandler(io.Discard, nil))
		c.Defaults.Approvals, c.Defaults.ApprovalsPerMinute = 1<<20, 1<<30
		c.Defaults.History = ledger.Limits{History: 1 << 20, Notices: 1 << 22, Intents: 1 << 20}
	})
	outcomes := map[api.ApprovalState]int{}
	var mu sync.Mutex
	var next atomic.Int64
	var all sync.WaitGroup
	total := int64(min(rounds(t), 1200))
	for i := range 4 {
		all.Go(func() {
			r := &racer{bench: b, rand: rand.New(rand.NewPCG(seed, uint64(i)))}
			for n := next.Add(1); n <= total && !t.Failed(); n = next.Add(1) {
				state := r.leaveRound(n)
				mu.Lock()
				outcomes[state]++
				mu.Unlock()
			}
		})
	}
	all.Wait()
	b.nothingLeft()
	b.stop()
	b.settledOnce()
	t.Logf("%d rounds: %v", total, outcomes)
	for _, state := range []api.ApprovalState{api.ApprovalApproved, api.ApprovalDenied, api.ApprovalTimedOut, api.ApprovalCanceled} {
		if outcomes[state] == 0 && total >= 400 {
			t.Errorf("nothing was %s", state)
		}
	}
}

// leaveRound has everything that can end one wait happen at once.
func (r *racer) leaveRound(n int64) api.ApprovalState {
	r.id = r.session()
	within := 10 * time.Second
	if r.rand.IntN(2) == 0 {
		within = 3*time.Millisecond + time.Duration(r.rand.IntN(3000))*time.Microsecond
	}
	labels := map[string]string{"timeout": strconv.FormatInt(int64(within), 10)}
	req := api.Request{Op: api.OpExec, Principal: alice, Exec: &api.Exec{SessionID: r.id, Argv: []string{"true", "ask"}, Labels: labels, Wait: new(bool)}}
	if n%3 == 0 {
		req = api.Request{Op: api.OpSessionOpen, Principal: alice, Open: &api.SessionOpen{Profile: "ask", Labels: labels, Target: api.Target{Local: &api.Local{}}}}
	}
	p, r0, err := r.Start(context.Background(), &req)
	if err != nil {
		r.t.Errorf("%v", err)
		return ""
	}
	if r0 != nil || p.Approval == "" { // its time is over already
		r.close(r.id)
		return api.ApprovalTimedOut
	}
	a := r.approvalOf(alice, p.Approval)
	var verdicts [4]*api.Receipt
	say := func(i int, op api.Op, by api.Principal) func() {
		return func() { verdicts[i] = r.verdict(op, by, a, "") }
	}
	acts := []func(){say(0, api.OpApprove, bob), say(1, api.OpDeny, member), say(2, api.OpApprove, member)}
	if r.rand.IntN(2) == 0 {
		acts = append(acts, say(3, api.OpDeny, alice))
	}
	if a.ExecID != "" && r.rand.IntN(2) == 0 {
		acts = append(acts, func() { r.control(api.OpProcessCancel, a.ExecID) })
	}
	if r.rand.IntN(2) == 0 {
		acts = append(acts, func() { r.close(r.id) })
	}
	r.together(acts...)
	done := r.receipt(a)
	state := done.Approval.State
	for i, v := range verdicts {
		if v == nil {
			continue
		}
		got := v.Payload.Verdict
		want := map[int]api.ApprovalState{0: api.ApprovalApproved, 1: api.ApprovalDenied, 2: api.ApprovalApproved, 3: api.ApprovalCanceled}[i]
		if i == 3 && state == api.ApprovalDenied {
			want = state // what he wants to take back is denied: so be it
		}
		if v.Outcome == api.OutcomeOK && (got.State != state || state != want) || v.Outcome != api.OutcomeOK && state == want && v.ErrorCode != api.CodeApprovalSettled {
			r.t.Errorf("it was %s, and verdict %d: %s %s %+v", state, i, v.Outcome, v.ErrorCode, got)
		}
	}
	began := r.fake.process(a.ExecID) != nil || done.Payload.Exec != nil && done.Payload.Exec.StartedAtNS != 0
	switch state {
	case api.ApprovalApproved: // and then it may have been canceled, or its session closed
		if done.Outcome == api.OutcomeDenied {
			r.t.Errorf("approved: %+v", done)
		}
	case api.ApprovalDenied, api.ApprovalTimedOut:
		if code := map[api.ApprovalState]api.Code{api.ApprovalDenied: api.CodeApprovalDenied, api.ApprovalTimedOut: api.CodeApprovalTimeout}[state]; done.Outcome != api.OutcomeDenied || done.ErrorCode != code || began {
			r.t.Errorf("%s: %+v", state, done)
		}
	default:
		if began || done.Outcome == api.OutcomeDenied && state != api.ApprovalVoid {
			r.t.Errorf("%s: %+v", state, done)
		}
	}
	if a.ExecID == "" && done.SessionID != "" {
		r.close(done.SessionID)
	}
	r.close(r.id)
	if now := r.approvalOf(alice, a.ApprovalID); now.State != state || now.DecidedAtNS != done.Approval.DecidedAtNS {
		r.t.Errorf("the receipt says %+v, and the record %+v", done.Approval, now)
	}
	return state
}
