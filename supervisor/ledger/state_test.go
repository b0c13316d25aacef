package ledger

import (
	"bytes"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/stockade-dev/stockade/supervisor/api"
)

// teller writes records as a supervisor would, one nanosecond apart.
type teller struct {
	t testing.TB
	*State
	at int64
}

func tell(t testing.TB) *teller { return &teller{t, New(), 100} }

func (l *teller) head() Header {
	l.at++
	return Header{AtNS: l.at}
}

// apply takes a record in twice: as it is, and as its bytes, which must be the same.
func (l *teller) apply(r Record) {
	l.t.Helper()
	b, err := Encode(r)
	if err != nil {
		l.t.Fatal(err)
	}
	before, err := l.Snapshot()
	if err != nil {
		l.t.Fatal(err)
	}
	other, err := Restore(before)
	if err != nil {
		l.t.Fatalf("%v\n%s", err, before)
	}
	decoded, err := Decode(b)
	if err != nil {
		l.t.Fatal(err)
	}
	seq := l.Records()
	if err := l.Apply(seq, r); err != nil {
		l.t.Fatal(err)
	}
	if err := other.Apply(seq, decoded); err != nil {
		l.t.Fatal(err)
	}
	want, _ := l.Snapshot()
	got, _ := other.Snapshot()
	if string(got) != string(want) {
		l.t.Fatalf("%s\nin memory\n%s\nread again", want, got)
	}
}

func (l *teller) intent(id string, req api.Request, change ...func(*Intent)) int64 {
	l.t.Helper()
	b, err := api.Encode(&req)
	if err != nil {
		l.t.Fatal(err)
	}
	r := &Intent{Header: l.head(), IntentID: id, Nonce: "n", Key: req.Key, Request: b}
	for _, f := range change {
		f(r)
	}
	seq := l.Records()
	l.apply(r)
	return seq
}

func (l *teller) settle(id string, outcome api.Outcome, p api.Payload, change ...func(*api.Receipt)) {
	l.t.Helper()
	rec := &Settled{Header: l.head(), Receipt: &api.Receipt{IntentID: id, Outcome: outcome, Payload: p}}
	for _, f := range change {
		f(rec.Receipt)
	}
	l.apply(rec)
}

func (l *teller) open(who api.Principal, session string) {
	l.t.Helper()
	l.intent("i-"+session, api.Request{Op: api.OpSessionOpen, Principal: who, Open: &api.SessionOpen{
		Labels: map[string]string{"team": "red"},
		Target: api.Target{Local: &api.Local{Env: map[string]api.EnvValue{"B": {Text: "never shown"}, "A": {Text: "nor this"}}}},
	}})
	l.settle("i-"+session, api.OutcomeOK, api.Payload{Open: &api.OpenResult{
		SessionID: session, Status: "ready", StartedAtNS: l.at, Grant: &api.Grant{Profile: "agent", Workdir: "/w"},
	}})
}

func (l *teller) exec(who api.Principal, session, exec string, queued bool) {
	l.t.Helper()
	l.intent("i-"+exec, api.Request{Op: api.OpExec, Principal: who, Exec: &api.Exec{SessionID: session, Argv: []string{"sleep"}, StdinOpen: true, Labels: map[string]string{"n": exec}}},
		func(r *Intent) { r.SessionID, r.ExecID, r.Queued = session, exec, queued })
}

func (l *teller) frame(intent string, kind api.FrameKind, p api.FramePayload) {
	l.t.Helper()
	f, ok := l.NextFrame(intent)
	if !ok {
		l.t.Fatalf("intent %s takes no frame", intent)
	}
	r := &Frame{Header: l.head(), Frame: f}
	r.Frame.Kind, r.Frame.AtNS, r.Frame.Payload = kind, r.AtNS, p
	if wrong, ok := l.judge(&r.Frame); wrong.code != "" || !ok {
		l.t.Fatalf("the next frame is not taken: %+v", wrong)
	}
	l.apply(r)
}

func (l *teller) process(exec string) api.Process {
	l.t.Helper()
	p, ok := l.Process(exec)
	if !ok {
		l.t.Fatalf("there is no %s", exec)
	}
	return p
}

// states are what the events say about an execution.
func (l *teller) states(who api.Principal, exec string) (states []string) {
	list, _, _ := l.Notices(OwnerOf(who), "", 0, 1<<20)
	for _, n := range list {
		if n.Kind == api.NoticeProcess && n.ExecID == exec {
			states = append(states, strings.TrimSuffix(n.State+" "+n.Reason, " "))
		}
	}
	return states
}

// diagnoses are what the events say was wrong.
func (l *teller) diagnoses(who api.Principal) (wrong []string) {
	list, _, _ := l.Notices(OwnerOf(who), "", 0, 1<<20)
	for _, n := range list {
		if n.Kind == api.NoticeDiagnostic {
			wrong = append(wrong, n.Reason+": "+n.Detail)
		}
	}
	return wrong
}

// told is a state with something of everything.
func told(t testing.TB) *State {
	l := tell(t)
	l.open(alice, "s-1")
	l.open(bob, "s-2")
	l.exec(alice, "s-1", "x-1", false)
	l.frame("i-x-1", api.FrameStarted, api.FramePayload{})
	l.settle("i-x-1", api.OutcomeOK, api.Payload{Exec: &api.ExecResult{ExitCode: 3, StartedAtNS: 5, EndedAtNS: 9, Stdout: &api.Output{Blob: &api.BlobOutput{BlobRef: "sha256:o", SizeBytes: 9}}}})
	l.intent("i-exec", api.Request{Op: api.OpExec, Principal: alice, Key: "k", Exec: &api.Exec{SessionID: "s-1", Argv: []string{"sleep"}}},
		func(r *Intent) { r.SessionID, r.ExecID = "s-1", "x-2" })
	l.frame("i-exec", api.FrameStarted, api.FramePayload{})
	l.frame("i-exec", api.FrameInput, api.FramePayload{InputID: "in", InputBytes: 3})
	l.intent("i-put", api.Request{Op: api.OpBlobPut, Principal: bob, Key: "k", Blob: &api.BlobPut{SizeBytes: 1}})
	l.settle("i-put", api.OutcomeOK, api.Payload{Blob: &api.BlobResult{BlobRef: "sha256:b", SizeBytes: 1}})
	l.apply(&SessionEnd{Header: l.head(), SessionID: "s-2", State: "closed", Reason: "closed"})
	return l.State
}

// R225, R226, R228, R229, C11, C12, C21: every way in which an execution ends, from each state that it can
// end in.
func TestExecutionsEnd(t *testing.T) {
	ran := func(x api.ExecResult) api.ExecResult { x.StartedAtNS, x.EndedAtNS = 150, 160; return x }
	for _, c := range []struct {
		name   string
		result api.ExecResult
		code   api.Code // of the receipt, when it faulted
		want   string
	}{
		{"exit 0", ran(api.ExecResult{Status: "ok"}), "", "completed"},
		{"exit n", ran(api.ExecResult{Status: "ok", ExitCode: 3}), "", "failed non_zero_exit"},
		{"signal", ran(api.ExecResult{Status: "signaled", ExitCode: -1, Signal: "SEGV"}), "", "failed signal"},
		{"memory", ran(api.ExecResult{Status: "signaled", ExitCode: -1, Signal: "KILL", ErrorCode: api.CodeOOMKilled}), "", "failed oom"},
		{"memory of a child", ran(api.ExecResult{Status: "ok", ExitCode: 137, ErrorCode: api.CodeOOMKilled}), "", "failed oom"},
		{"timeout", ran(api.ExecResult{Status: "timeout", ExitCode: -1, ErrorCode: api.CodeTimeout}), "", "timed_out timeout"},
		{"expired", ran(api.ExecResult{Status: "timeout", ExitCode: -1, ErrorCode: api.CodeSessionExpired}), "", "timed_out session_expired"},
		{"idle", ran(api.ExecResult{Status: "timeout", ExitCode: -1, ErrorCode: api.CodeSessionIdle}), "", "timed_out session_idle"},
		{"canceled", ran(api.ExecResult{Status: "signaled", ExitCode: -1, Signal: "TERM", ErrorCode: api.CodeCanceled}), "", "canceled canceled"},
		{"closed", ran(api.ExecResult{Status: "signaled", ExitCode: -1, ErrorCode: api.CodeSessionClosed}), "", "canceled session_closed"},
		{"too large, exit 0", ran(api.ExecResult{Status: "error"}), api.CodeInlineRequiredTooLarge, "completed"},
		{"too large, exit n", ran(api.ExecResult{Status: "error", ExitCode: 2}), api.CodeInlineRequiredTooLarge, "failed non_zero_exit"},
		{"not stored", ran(api.ExecResult{Status: "error"}), api.CodeOutputStoreFailed, "failed output_store_failed"},
		{"lost", ran(api.ExecResult{Status: "error", ExitCode: -1}), api.CodeLost, "failed lost"},
		{"runner gone", api.ExecResult{Status: "error", ExitCode: -1}, api.CodeRunnerUnavailable, "failed lost"},
		{"stuck", api.ExecResult{Status: "error", ExitCode: -1}, api.CodeWaitFailed, "failed lost"},
		{"restarted", api.ExecResult{Status: "error", ExitCode: -1}, api.CodeSupervisorRestarted, "failed lost"},
		{"not started", api.ExecResult{Status: "error", ExitCode: -1}, api.CodeSpawnFailed, "failed spawn"},
		{"canceled before it ran", api.ExecResult{Status: "signaled", ExitCode: -1, ErrorCode: api.CodeCanceled}, "", "canceled canceled"},
	} {
		for _, from := range []api.State{api.StateQueued, api.StateStarting, api.StateRunning} {
			t.Run(c.name+" from "+string(from), func(t *testing.T) {
				l := tell(t)
				l.open(alice, "s")
				l.exec(alice, "s", "x", from == api.StateQueued)
				want := []string{"queued"}
				ran := c.result.StartedAtNS != 0
				if from != api.StateQueued || ran {
					want = append(want, "starting")
				}
				if from == api.StateRunning {
					l.frame("i-x", api.FrameStarted, api.FramePayload{})
				}
				if from == api.StateRunning || ran {
					want = append(want, "running")
				}
				if got := l.process("x").State; got != from {
					t.Fatalf("state %s", got)
				}
				outcome := api.OutcomeOK
				if c.code != "" {
					outcome = api.OutcomeFaulted
				}
				l.settle("i-x", outcome, api.Payload{Exec: &c.result}, func(r *api.Receipt) { r.ErrorCode = c.code })
				want = append(want, c.want)
				if diff := cmp.Diff(want, l.states(alice, "x")); diff != "" {
					t.Error(diff)
				}
				p := l.process("x")
				if state, reason, _ := strings.Cut(c.want, " "); string(p.State) != state || p.Reason != reason {
					t.Errorf("%s %s", p.State, p.Reason)
				}
				if exited := ran && c.result.ExitCode >= 0; exited != (p.ExitCode != nil) || exited && *p.ExitCode != c.result.ExitCode {
					t.Errorf("exit code %v", p.ExitCode)
				}
				if ran && (p.StartedAtNS != 150 || p.EndedAtNS != 160 || p.DurationNS != 10 || p.EndedAt == "" || p.StartedAt == "") {
					t.Errorf("%+v", p)
				}
				if ses, _ := l.Session("s"); ses.Executions != 1 || ses.Live != 0 {
					t.Errorf("%d executions, %d live", ses.Executions, ses.Live)
				}
			})
		}
	}
}

// R227, R116: a state that does not follow is not taken, nor is a second receipt, and the owner is told.
func TestIllegalTransitions(t *testing.T) {
	l := tell(t)
	l.open(alice, "s")
	l.exec(alice, "s", "x", true)
	l.frame("i-x", api.FrameStarted, api.FramePayload{}) // it waits
	l.frame("i-x", api.FramePaused, api.FramePayload{})
	l.frame("i-x", api.FrameStarting, api.FramePayload{})
	l.frame("i-x", api.FrameStarting, api.FramePayload{})
	l.frame("i-x", api.FrameStarted, api.FramePayload{})
	l.frame("i-x", api.FrameResumed, api.FramePayload{})
	l.frame("i-x", api.FramePaused, api.FramePayload{})
	if p := l.process("x"); !p.Paused || p.State != api.StateRunning || p.FrameSeq != 7 {
		t.Errorf("%+v", p)
	}
	l.settle("i-x", api.OutcomeOK, api.Payload{Exec: &api.ExecResult{}})
	l.settle("i-x", api.OutcomeFaulted, api.Payload{Exec: &api.ExecResult{ExitCode: 1}}) // R116
	if p := l.process("x"); p.State != api.StateCompleted || p.Paused {
		t.Errorf("%+v", p)
	}
	if want := []string{"queued", "starting", "running", "completed"}; !slices.Equal(l.states(alice, "x"), want) {
		t.Error(l.states(alice, "x"))
	}
	if n := l.Refused(); n != 5 {
		t.Errorf("%d were refused", n)
	}
	want := []string{
		"illegal_transition: running while queued", "illegal_transition: host.exec.paused while queued",
		"illegal_transition: starting while starting", "illegal_transition: host.exec.resumed while running",
		"receipt.duplicate: outcome faulted after ok",
	}
	if diff := cmp.Diff(want, l.diagnoses(alice)); diff != "" {
		t.Error(diff)
	}
	if it, _ := l.Intent("i-x"); it.Outcome != api.OutcomeOK || it.SettledAt == "" || it.FrameSeq != 7 {
		t.Errorf("%+v", it)
	}
}

// What is refused before its session took it in leaves an intent and a receipt, and no execution.
func TestRefusedExecution(t *testing.T) {
	l := tell(t)
	l.open(alice, "s")
	l.intent("i", api.Request{Op: api.OpExec, Principal: alice, Exec: &api.Exec{SessionID: "s", Argv: []string{"true"}}},
		func(r *Intent) { r.SessionID = "s" })
	l.settle("i", api.OutcomeDenied, api.Payload{Exec: &api.ExecResult{Status: "error", ExitCode: -1}}, func(r *api.Receipt) {
		r.ErrorCode, r.Deny = "no_sleep", []api.Deny{{Code: "no_sleep", Subject: "argv:" + strings.Repeat("z", 300)}}
	})
	if page, _, _ := l.Processes(OwnerOf(alice), &api.Read{}, 10); len(page) != 0 {
		t.Error(page)
	}
	if ses, _ := l.Session("s"); ses.Executions != 0 {
		t.Errorf("%d executions", ses.Executions)
	}
	list, _, last := l.Notices(OwnerOf(alice), "s", 1, 10)
	if len(list) != 1 || last != 2 || list[0].Kind != api.NoticeViolation || list[0].Reason != "no_sleep" || list[0].IntentID != "i" || len(list[0].Detail) > 300 {
		t.Errorf("%+v", list)
	}
}

// R120, R123, R124, R125, R126, R127, R128, R133: what becomes of a frame. Nothing but the intent in flight says where
// it belongs.
func TestFrames(t *testing.T) {
	for _, c := range []struct {
		name         string
		change       func(*api.Frame)
		settled      bool
		taken        bool
		code, detail string
	}{
		{"next", func(f *api.Frame) {}, false, true, "", ""},
		{"unknown intent", func(f *api.Frame) { f.IntentID = "else" }, false, false, unknownIntent, ""},
		{"fence", func(f *api.Frame) { f.EmittedAtSeq-- }, false, false, identityMismatch, "expected 2, observed 1"},
		{"effect", func(f *api.Frame) { f.EffectKind = api.OpBlobPut }, false, false, identityMismatch, "expected host.exec, observed blob.put"},
		{"module", func(f *api.Frame) { f.OriginModule = "m" }, false, false, identityMismatch, "expected stockade, observed m"},
		{"instance", func(f *api.Frame) { f.OriginInstance = "1001" }, false, false, identityMismatch, "expected 1000/a%2F1//c, observed 1001"},
		{"again", func(f *api.Frame) { f.Seq = 1 }, false, false, nonMonotonic, "expected 2, observed 1"},
		{"zero", func(f *api.Frame) { f.Seq = 0 }, false, false, nonMonotonic, "expected 2, observed 0"},
		{"gap", func(f *api.Frame) { f.Seq = 5 }, false, true, gap, "expected 2, observed 5"},
		{"late", func(f *api.Frame) {}, true, false, late, "frame 2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := tell(t)
			l.open(agent, "s")
			l.exec(agent, "s", "x", false)
			l.frame("i-x", api.FrameStarted, api.FramePayload{})
			f, _ := l.NextFrame("i-x")
			f.Kind = api.FrameProgress
			if c.settled {
				l.settle("i-x", api.OutcomeOK, api.Payload{Exec: &api.ExecResult{}})
				if _, ok := l.NextFrame("i-x"); ok {
					t.Error("a settled intent takes frames")
				}
			}
			c.change(&f)
			before, _ := l.Intent("i-x")
			refused := l.Refused()
			l.apply(&Frame{Header: l.head(), Frame: f})
			after, _ := l.Intent("i-x")
			if moved := after.FrameSeq != before.FrameSeq; moved != c.taken || c.taken && after.FrameSeq != f.Seq {
				t.Errorf("cursor %d after %d", after.FrameSeq, before.FrameSeq)
			}
			if c.taken != (l.Refused() == refused) {
				t.Errorf("%d were refused, and %d before", l.Refused(), refused)
			}
			want := []string{c.code + ": " + c.detail}
			if c.code == "" || c.code == unknownIntent {
				want = nil // nobody's
			}
			if got := l.diagnoses(agent); !slices.Equal(got, want) {
				t.Errorf("%q, not %q", got, want)
			}
		})
	}
}

// R237, R238, R243, C10: delete takes what has ended, of its owner's, out of view; the intents stay.
func TestDelete(t *testing.T) {
	l := tell(t)
	l.open(alice, "s")
	l.exec(alice, "s", "x", false)
	remove := func(id string, who api.Principal) {
		l.intent(id, api.Request{Op: api.OpProcessDelete, Principal: who, Process: &api.ProcessTarget{ProcessRef: api.ProcessRef{ExecID: "x"}}},
			func(r *Intent) { r.ExecID = "x" })
		l.settle(id, api.OutcomeOK, api.Payload{Control: &api.ControlResult{ExecID: "x", Status: api.ControlDeleted}})
	}
	remove("d1", alice) // it lives
	l.process("x")
	l.settle("i-x", api.OutcomeOK, api.Payload{Exec: &api.ExecResult{}})
	remove("d2", bob)
	l.process("x")
	remove("d3", alice)
	if _, ok := l.Process("x"); ok {
		t.Error("it is still there")
	}
	if _, ok := l.ProcessOf("i-x"); ok {
		t.Error("it is still there, by its intent")
	}
	if it, ok := l.Intent("i-x"); !ok || it.ExecID != "x" || it.Outcome != api.OutcomeOK {
		t.Errorf("%+v", it)
	}
	if n := l.Refused(); n != 2 {
		t.Errorf("%d were refused", n)
	}
}

// Keys are an owner's own; the first to use one has it, also across a restart.
func TestKeys(t *testing.T) {
	l := tell(t)
	l.apply(&Start{Header: l.head(), Limits: Limits{Keys: 1}})
	put := func(id string, who api.Principal, size int64) []byte {
		req := api.Request{Op: api.OpBlobPut, Principal: who, Key: "k", Blob: &api.BlobPut{SizeBytes: size}}
		b, _ := api.Encode(&req)
		l.intent(id, req)
		return b
	}
	b := put("i1", alice, 1)
	put("i2", alice, 2)
	l.settle("i2", api.OutcomeFaulted, api.Payload{}, func(r *api.Receipt) { r.ErrorCode = api.CodeKeyConflict })
	if k, ok := l.Key(OwnerOf(alice), "k"); !ok || k != (KeyEntry{"i1", Digest(b)}) {
		t.Errorf("%+v", k)
	}
	if _, ok := l.Key(OwnerOf(agent), "k"); ok {
		t.Error("the key is another scope's too")
	}
	put("i3", bob, 1)
	l.settle("i3", api.OutcomeOK, api.Payload{})
	l.settle("i1", api.OutcomeOK, api.Payload{})
	if k, ok := l.Key(OwnerOf(alice), "k"); !ok || k.Intent != "i1" {
		t.Errorf("%+v", k)
	}
	if _, ok := l.Key(OwnerOf(bob), "k"); ok {
		t.Error("two keys are kept")
	}
	l.apply(&Retired{Header: l.head(), BeforeNS: l.at})
	if _, ok := l.Key(OwnerOf(alice), "k"); ok {
		t.Error("the key outlived its time")
	}
}

// R090: what one user does, under however many scopes, takes nothing of another's out of view: neither the keys that
// keep it from happening twice, nor executions with their output, nor events.
func TestViewIsShared(t *testing.T) {
	l := tell(t)
	const most = 8
	l.apply(&Start{Header: l.head(), Limits: Limits{History: most, Sessions: most, Intents: 2 * most, Notices: 40, Keys: most}})
	mine := func(id string, who api.Principal) {
		l.open(who, "s-"+id)
		l.exec(who, "s-"+id, "x-"+id, false)
		l.settle("i-x-"+id, api.OutcomeOK, api.Payload{Exec: &api.ExecResult{}})
		l.apply(&SessionEnd{Header: l.head(), SessionID: "s-" + id, State: "closed"})
		l.intent("k-"+id, api.Request{Op: api.OpBlobPut, Principal: who, Key: "key-" + id, Blob: &api.BlobPut{}})
		l.settle("k-"+id, api.OutcomeOK, api.Payload{})
	}
	mine("alice", alice)
	events, _, _ := l.Notices(OwnerOf(alice), "", 0, 99)
	for i := range 20 * most {
		who := bob
		who.Scope.AgentID = strconv.Itoa(i)
		mine("bob"+strconv.Itoa(i), who)
	}
	if _, ok := l.Key(OwnerOf(alice), "key-alice"); !ok {
		t.Error("her key is gone")
	}
	if _, ok := l.Process("x-alice"); !ok {
		t.Error("her execution is gone")
	}
	if _, ok := l.Session("s-alice"); !ok {
		t.Error("her session is gone")
	}
	if _, ok := l.Intent("k-alice"); !ok {
		t.Error("her intent is gone")
	}
	if now, _, _ := l.Notices(OwnerOf(alice), "", 0, 99); len(now) != len(events) {
		t.Errorf("%d of her %d events are there", len(now), len(events))
	}
	last := strconv.Itoa(20*most - 1)
	if _, ok := l.Process("x-bob" + last); !ok {
		t.Error("his last execution is gone")
	}
}

// R134, R135: what is in flight is known, oldest first, with the place of its record and of its last frame.
func TestInFlight(t *testing.T) {
	l := tell(t)
	l.open(alice, "s")
	l.exec(alice, "s", "x", false)
	put := l.intent("put", api.Request{Op: api.OpBlobPut, Principal: bob, RequestedKind: "alias", Blob: &api.BlobPut{}})
	l.frame("i-x", api.FrameStarted, api.FramePayload{})
	list := l.InFlight()
	if len(list) != 2 || list[0].IntentID != "i-x" || list[0].FrameSeq != 1 || list[0].ExecID != "x" || list[0].AdmittedAt == "" ||
		list[1].EmittedAtSeq != put || list[1].RequestedKind != "alias" {
		t.Errorf("%+v", list)
	}
	l.settle("i-x", api.OutcomeOK, api.Payload{Exec: &api.ExecResult{}})
	l.settle("put", api.OutcomeOK, api.Payload{})
	if list := l.InFlight(); len(list) != 0 {
		t.Errorf("%+v", list)
	}
	if got := l.Intents(OwnerOf(bob), &api.Read{Outcome: api.OutcomeOK}, 9); len(got) != 1 || got[0].IntentID != "put" {
		t.Errorf("%+v", got)
	}
}

// R240: history is bounded, and holds the newest; what lives stays.
func TestHistory(t *testing.T) {
	l := tell(t)
	l.apply(&Start{Header: l.head(), Limits: Limits{History: 2, Sessions: 1, Intents: 3, Notices: 6}})
	l.open(alice, "s")
	l.exec(alice, "s", "old", false)
	for i := range 5 {
		x := fmt.Sprint("x", i)
		l.exec(alice, "s", x, false)
		l.settle("i-"+x, api.OutcomeOK, api.Payload{Exec: &api.ExecResult{}})
	}
	page, _, _ := l.Processes(OwnerOf(alice), &api.Read{}, 10)
	if ids := execIDs(page); !slices.Equal(ids, []string{"x4", "x3", "old"}) {
		t.Error(ids)
	}
	if got := l.Intents(OwnerOf(alice), &api.Read{}, 10); len(got) != 4 || got[3].IntentID != "i-old" {
		t.Errorf("%+v", got)
	}
	list, first, last := l.Notices(OwnerOf(alice), "s", 0, 10)
	if len(list) != 6 || list[0].Seq != first || first != last-5 || list[5].State != "completed" {
		t.Errorf("%d to %d: %+v", first, last, list)
	}
	for i := range 3 {
		ses := fmt.Sprint("s", i)
		l.open(alice, ses)
		l.apply(&SessionEnd{Header: l.head(), SessionID: ses, State: "closed", Reason: "closed"})
	}
	live, over := l.LiveSessions(), l.EndedSessions()
	if len(live) != 1 || live[0].SessionID != "s" || len(over) != 1 || over[0].SessionID != "s2" || over[0].Reason != "closed" {
		t.Errorf("%+v %+v", live, over)
	}
	l.apply(&Retired{Header: l.head(), BeforeNS: l.at + 10, Executions: []string{"old"}, Sessions: []string{"s"}})
	page, _, _ = l.Processes(OwnerOf(alice), &api.Read{}, 10)
	if live, over := l.LiveSessions(), l.EndedSessions(); len(live) != 1 || len(over) != 0 || !slices.Equal(execIDs(page), []string{"old"}) {
		t.Errorf("%+v %+v %+v", live, over, page)
	}
	if _, first, last := l.Notices(OwnerOf(alice), "s", 0, 10); first != last+1 || last == 0 {
		t.Errorf("%d to %d", first, last)
	}
}

// R239: pages show everything once, whatever begins and ends meanwhile.
func TestPages(t *testing.T) {
	l := tell(t)
	l.open(alice, "s")
	l.open(bob, "other")
	for i := range 7 {
		l.exec(alice, "s", fmt.Sprint("x", i), false)
		l.exec(bob, "other", fmt.Sprint("y", i), false)
	}
	l.settle("i-x2", api.OutcomeOK, api.Payload{Exec: &api.ExecResult{}})
	var seen []string
	f := api.Read{}
	for n := 0; ; n++ {
		page, next, err := l.Processes(OwnerOf(alice), &f, 3)
		if err != nil {
			t.Fatal(err)
		}
		seen = append(seen, execIDs(page)...)
		if next == "" {
			break
		}
		f.After = next
		l.exec(alice, "s", fmt.Sprint("new", n), false)
	}
	if want := []string{"x6", "x5", "x4", "x3", "x2", "x1", "x0"}; !slices.Equal(seen, want) {
		t.Error(seen)
	}
	for _, c := range []struct {
		filter api.Read
		want   int
	}{
		{api.Read{State: "completed"}, 1}, {api.Read{Active: true}, 8}, {api.Read{SessionID: "s"}, 9}, {api.Read{SessionID: "other"}, 0},
		{api.Read{ExecID: "x1"}, 1}, {api.Read{IntentID: "i-x1"}, 1}, {api.Read{Labels: map[string]string{"n": "x1"}}, 1}, {api.Read{Labels: map[string]string{"n": "x", "m": ""}}, 0},
	} {
		if page, next, err := l.Processes(OwnerOf(alice), &c.filter, 9); len(page) != c.want || next != "" || err != nil {
			t.Errorf("%+v: %d, next %q, %v", c.filter, len(page), next, err)
		}
	}
	for _, after := range []string{"x", "-1", "1e3"} {
		if _, _, err := l.Processes(OwnerOf(alice), &api.Read{After: after}, 1); err == nil {
			t.Errorf("%q is a cursor", after)
		}
	}
	if page, _, _ := l.Processes(OwnerOf(agent), &api.Read{}, 9); len(page) != 0 {
		t.Errorf("another scope sees %v", execIDs(page))
	}
}

func execIDs(page []api.Process) (ids []string) {
	for _, p := range page {
		ids = append(ids, p.ExecID)
	}
	return ids
}

// What a session is known by, through its life.
func TestSession(t *testing.T) {
	l := tell(t)
	l.open(alice, "s")
	ses, _ := l.Session("s")
	if ses.State != "ready" || ses.Profile != "agent" || ses.Workdir != "/w" || ses.Labels["team"] != "red" || !slices.Equal(ses.EnvNames, []string{"A", "B"}) || ses.StartedAt == "" {
		t.Errorf("%+v", ses)
	}
	if live := l.LiveSessions(); len(live) != 1 || live[0].SessionID != "s" {
		t.Errorf("%+v", live)
	}
	move := func(state string) {
		l.apply(&Notice{Header: l.head(), SessionID: "s", Kind: api.NoticeSession, State: state})
	}
	move("ready") // it is
	move("quiesced")
	move("ready")
	l.apply(&Notice{Header: l.head(), SessionID: "s", Kind: api.NoticeIdle, Detail: "1m left"})
	l.apply(&Adopted{Header: l.head(), Sessions: []string{"s", "gone"}})
	move("closing")
	move("ready")
	l.apply(&SessionEnd{Header: l.head(), SessionID: "s", State: "closed", Reason: "signal", Usage: api.Usage{WallNS: 3}})
	l.apply(&SessionEnd{Header: l.head(), SessionID: "s", State: "error", Reason: "again"})
	move("ready")
	list, _, _ := l.Notices(OwnerOf(alice), "s", 0, 100)
	var got []string
	for i, n := range list {
		got = append(got, string(n.Kind)+" "+n.State+" "+n.Reason)
		if n.Seq != int64(i+1) || n.At == "" || n.SessionID != "s" {
			t.Errorf("%+v", n)
		}
	}
	want := []string{"SESSION_STATE ready opened", "SESSION_STATE quiesced paused", "SESSION_STATE ready resumed", "IDLE_WARNING  ",
		"SESSION_STATE ready adopted", "SESSION_STATE closing ", "SESSION_STATE closed signal"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	ses, _ = l.Session("s")
	if ses.State != "closed" || ses.Reason != "signal" || ses.Usage.WallNS != 3 || ses.EndedAt == "" || ses.Events != 7 || len(l.LiveSessions()) != 0 || len(l.EndedSessions()) != 1 {
		t.Errorf("%+v", ses)
	}
	if n := l.Refused(); n != 5 {
		t.Errorf("%d were refused", n)
	}
}

// What is left of a session's network is its grant's, and what a capture holds stays as it was; a session that has ended is
// not narrowed any more. What its executions used, reached and were refused is summed and told (R054, R113).
func TestNarrowedAndAccounted(t *testing.T) {
	l := tell(t)
	l.open(alice, "s")
	before := l.Capture()
	var taken bytes.Buffer
	if _, _, err := before.Write(&taken); err != nil {
		t.Fatal(err)
	}
	narrow := func(mode string) {
		l.apply(&Narrowed{Header: l.head(), SessionID: "s", Network: api.GrantNetwork{Mode: mode}})
	}
	narrow("egress")
	narrow("none")
	ses, _ := l.Session("s")
	if ses.Grant.Network.Mode != "none" || ses.Narrowed != 2 || ses.Grant.Profile != "agent" {
		t.Errorf("%+v", ses)
	}
	var again bytes.Buffer
	if _, _, err := before.Write(&again); err != nil || !bytes.Equal(again.Bytes(), taken.Bytes()) {
		t.Errorf("a capture has changed: %v", err)
	}
	for _, x := range []string{"x", "y"} {
		l.exec(alice, "s", x, false)
		l.settle("i-"+x, api.OutcomeOK, api.Payload{Exec: &api.ExecResult{
			Status: "ok", ExitCode: 137, ErrorCode: api.CodeOOMKilled, StartedAtNS: 150, EndedAtNS: 160,
			Usage:     api.Usage{CPUNS: 5, PeakMemoryBytes: 7, OOMKills: 1},
			LimitsHit: []api.LimitHit{{Ceiling: "memory", Code: api.CodeOOMKilled, Scope: "execution"}, {Ceiling: "pids", Code: api.CodePIDsExceeded, Scope: "session"}, {Ceiling: "timeout", Code: api.CodeTimeout}},
			Denials:   []api.Denial{{Layer: "seccomp", Rule: "mount", Syscall: "mount", Errno: "EPERM", Count: 3}, {Layer: "network"}},
			Network:   &api.Traffic{Connections: 1, Sent: 10},
		}})
	}
	ses, _ = l.Session("s")
	if ses.Usage != (api.Usage{CPUNS: 10, PeakMemoryBytes: 7, OOMKills: 2}) || ses.Network == nil || *ses.Network != (api.Traffic{Connections: 2, Sent: 20}) {
		t.Errorf("%+v %+v", ses.Usage, ses.Network)
	}
	list, _, _ := l.Notices(OwnerOf(alice), "s", 0, 100)
	var got []string
	for _, n := range list {
		if n.ExecID == "x" && (n.Kind == api.NoticeThreshold || n.Kind == api.NoticeViolation) || n.Reason == "narrowed" {
			got = append(got, strings.TrimSpace(string(n.Kind)+" "+n.Reason+" "+n.Detail))
		}
	}
	want := []string{"SESSION_STATE narrowed egress", "SESSION_STATE narrowed none",
		"RESOURCE_THRESHOLD oom_killed execution memory", "RESOURCE_THRESHOLD pids_exceeded session pids", "POLICY_VIOLATION seccomp mount  mount"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	l.apply(&SessionEnd{Header: l.head(), SessionID: "s", State: "closed", Reason: "closed", Usage: api.Usage{CPUNS: 30}})
	narrow("none")
	if ses, _ = l.Session("s"); ses.Narrowed != 2 || ses.Usage.CPUNS != 30 || ses.Network.Sent != 20 || l.Refused() != 1 {
		t.Errorf("%+v, %d refused", ses, l.Refused())
	}
}

// Output, input and limits of a live execution are known to who goes on with it (R132).
func TestProgress(t *testing.T) {
	l := tell(t)
	l.open(alice, "s")
	l.exec(alice, "s", "x", false)
	l.frame("i-x", api.FrameStarted, api.FramePayload{})
	l.frame("i-x", api.FrameProgress, api.FramePayload{})
	l.frame("i-x", api.FrameProgress, api.FramePayload{StdoutBytes: 5})
	l.frame("i-x", api.FrameProgress, api.FramePayload{StdoutBytes: 5})
	for i := range KeptInputs + 2 {
		f, _ := l.NextFrame("i-x")
		f.Kind, f.Payload = api.FrameInput, api.FramePayload{InputID: fmt.Sprint(i), InputBytes: int64(i)}
		if err := l.Apply(l.Records(), &Frame{Frame: f}); err != nil {
			t.Fatal(err)
		}
	}
	l.frame("i-x", api.FrameModified, api.FramePayload{TimeoutNS: 9})
	l.frame("i-x", api.FrameInput, api.FramePayload{InputClosed: true})
	g, ok := l.Progress("x")
	if !ok || g.TimeoutNS != 9 || g.InputBytes != KeptInputs+1 || len(g.InputIDs) != KeptInputs || g.InputIDs[0] != "2" {
		t.Errorf("%v, %d inputs from %q", ok, len(g.InputIDs), g.InputIDs[0])
	}
	if p := l.process("x"); p.StdinOpen || p.StdoutBytes != 5 {
		t.Errorf("%+v", p)
	}
	l.settle("i-x", api.OutcomeOK, api.Payload{Exec: &api.ExecResult{ExitCode: -1, Signal: "KILL", ErrorCode: api.CodeOOMKilled, Stdout: &api.Output{InlineBytes: &api.InlineBytes{Bytes: make([]byte, 8)}}}})
	if _, ok := l.Progress("x"); ok {
		t.Error("it has ended")
	}
	list, _, _ := l.Notices(OwnerOf(alice), "s", 0, 100)
	var outputs []int64
	var kinds []api.NoticeKind
	for _, n := range list {
		kinds = append(kinds, n.Kind)
		if n.Kind == api.NoticeOutput {
			outputs = append(outputs, n.Stdout)
		}
	}
	if !slices.Equal(outputs, []int64{5, 8}) {
		t.Error(outputs)
	}
	if end := kinds[len(kinds)-3:]; !slices.Equal(end, []api.NoticeKind{api.NoticeOutput, api.NoticeThreshold, api.NoticeProcess}) {
		t.Error(end)
	}
}

// R251: what lives or is in view keeps its records and its blobs.
func TestRetained(t *testing.T) {
	l := tell(t)
	check := func(oldest int64, blobs ...string) {
		t.Helper()
		got, refs := l.Retained()
		if got != oldest || !slices.Equal(refs, blobs) {
			t.Errorf("from %d with %v, not from %d with %v", got, refs, oldest, blobs)
		}
	}
	check(0)
	l.apply(&Start{Header: l.head(), Limits: Limits{History: 1, Sessions: 1}})
	check(1)
	l.open(alice, "s")
	l.intent("i", api.Request{Op: api.OpExec, Principal: alice, Exec: &api.Exec{SessionID: "s", Argv: []string{"cat"}, Stdin: &api.Stdin{BlobRef: &api.BlobRef{BlobRef: "sha256:in"}}}},
		func(r *Intent) { r.SessionID, r.ExecID = "s", "x" })
	check(1, "sha256:in")
	l.settle("i", api.OutcomeOK, api.Payload{Exec: &api.ExecResult{Stderr: &api.Output{Blob: &api.BlobOutput{BlobRef: "sha256:err"}}, Outputs: []api.Artifact{{BlobRef: "sha256:art"}, {Path: "/none"}}}})
	check(1, "sha256:art", "sha256:err", "sha256:in")
	l.apply(&SessionEnd{Header: l.head(), SessionID: "s", State: "closed"})
	put := l.intent("p", api.Request{Op: api.OpBlobPut, Principal: bob, Key: "k", Blob: &api.BlobPut{}})
	l.settle("p", api.OutcomeOK, api.Payload{Blob: &api.BlobResult{BlobRef: "sha256:put"}})
	check(1, "sha256:art", "sha256:err", "sha256:in", "sha256:put")
	l.apply(&Retired{Header: l.head(), Executions: []string{"x"}, Sessions: []string{"s"}})
	check(put, "sha256:put")
	l.apply(&Retired{Header: l.head(), BeforeNS: l.at})
	check(l.Records())
	if len(l.owners) != 0 {
		t.Errorf("%d owners have nothing left", len(l.owners))
	}
}

// Of a command, the record has its beginning; of an environment, names.
func TestRecordsAreShort(t *testing.T) {
	l := tell(t)
	l.open(alice, "s")
	argv := append([]string{strings.Repeat("é", 1000)}, make([]string, 40)...)
	l.intent("i", api.Request{Op: api.OpExec, Principal: alice, Exec: &api.Exec{SessionID: "s", Argv: argv}}, func(r *Intent) { r.SessionID, r.ExecID = "s", "x" })
	p := l.process("x")
	if len(p.Argv) != keptArgs || p.Argv[0] != strings.Repeat("é", keptArgument/2)+"…" {
		t.Errorf("%d, %q", len(p.Argv), p.Argv[0])
	}
	b, err := l.Snapshot()
	if err != nil || strings.Contains(string(b), "never shown") || strings.Contains(string(b), "nor this") {
		t.Errorf("%v: the snapshot has an environment", err)
	}
}

func TestApplyRefuses(t *testing.T) {
	l := tell(t)
	l.open(alice, "s")
	before, _ := l.Snapshot()
	for _, r := range []Record{
		&Settled{}, &Settled{Receipt: &api.Receipt{IntentID: "i-s"}}, &Intent{IntentID: "i"}, &Intent{IntentID: "i", Request: []byte(`{"op":1}`)},
		&Intent{Request: []byte(`{}`)}, &SessionEnd{SessionID: "s", State: "ready"}, &Start{Limits: Limits{Keys: -1}}, nil,
	} {
		if err := l.Apply(l.Records(), r); err == nil {
			t.Errorf("%+v was taken", r)
		}
	}
	if err := l.Apply(0, &Decision{}); err == nil {
		t.Error("a record of the past was taken")
	}
	if after, _ := l.Snapshot(); !reflect.DeepEqual(before, after) {
		t.Errorf("%s\nbecame\n%s", before, after)
	}
	// After a trim, and a snapshot that came first, numbers can be left out.
	if err := l.Apply(1000, &Decision{}); err != nil || l.Records() != 1001 {
		t.Errorf("%d, %v", l.Records(), err)
	}
}

// A changed snapshot is refused where it contradicts itself.
func TestRestoreRefuses(t *testing.T) {
	b, err := told(t).Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ from, to string }{
		{`"version":4`, `"version":5`},
		{`"version":4`, `"version":1`},
		{`"records":`, `"records":-`},
		{`"history":2000,`, ``},
		{`"owner":1`, `"owner":7`},
		{`"owners":[`, `"owners":[{"uid":5000,"events":0},`},
		{`"state":"running"`, `"state":"completed"`},
		{`"state":"running"`, `"state":"lost"`},
		{`"state":"ready"`, `"state":"open"`},
		{`"process":{"exec_id":"x-2"`, `"process":{"exec_id":"x-1"`},
		{`"key":"k"`, `"key":""`},
		{`"seq":2,"kind"`, `"seq":3,"kind"`},
		{`"in_session":1`, `"in_session":9`},
		{`"version":4`, `"version":4,"more":1`},
		{`}]}`, `}]`},
	} {
		changed := strings.Replace(string(b), c.from, c.to, 1)
		if changed == string(b) {
			t.Errorf("there is no %s in %s", c.from, b)
			continue
		}
		if _, err := Restore([]byte(changed)); err == nil {
			t.Errorf("%s instead of %s was taken", c.to, c.from)
		}
	}
}

// T205: what a program of the version before has stored, byte for byte, is the same state now, and goes on by today's rules.
func TestRestoreOlder(t *testing.T) {
	older, err := os.ReadFile("testdata/snapshot-2.json")
	if err != nil {
		t.Fatal(err)
	}
	s, err := Restore(older)
	if err != nil {
		t.Fatal(err)
	}
	l := &teller{t, s, 1000}
	got, err := l.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Replace(string(older), `"version":2`, `"version":4`, 1)
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Error(diff)
	}
	l.apply(&Narrowed{Header: l.head(), SessionID: "s-1", Network: api.GrantNetwork{Mode: "none"}})
	l.settle("i-exec", api.OutcomeOK, api.Payload{Exec: &api.ExecResult{Usage: api.Usage{CPUNS: 7}, Network: &api.Traffic{Sent: 8}}})
	ses, ok := l.Session("s-1")
	if !ok || ses.Narrowed != 1 || ses.Usage.CPUNS != 7 || ses.Network == nil || ses.Network.Sent != 8 || ses.Live != 0 {
		t.Errorf("%+v", ses)
	}
	if p := l.process("x-2"); p.State != api.StateCompleted {
		t.Errorf("%+v", p)
	}
}
