package supervisor

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/mod/sumdb/note"

	"github.com/stockade-dev/stockade/internal/journal"
	"github.com/stockade-dev/stockade/sandbox"
	"github.com/stockade-dev/stockade/supervisor/api"
	"github.com/stockade-dev/stockade/supervisor/ledger"
)

// recorded is any record, as far as tests look at it.
type recorded struct {
	ledger.Header
	SessionID string       `json:"session_id"`
	State     string       `json:"state"`
	Reason    string       `json:"reason"`
	Usage     api.Usage    `json:"usage"`
	Receipt   *api.Receipt `json:"receipt"`
	Frame     *api.Frame   `json:"frame"`
}

// records reads the journal from the disk, as an auditor would while it is open.
func (b *bench) records() []recorded {
	b.t.Helper()
	var all []recorded
	err := journal.Scan(filepath.Join(b.state, "journal"), func(_ int64, rec []byte) error {
		var r recorded
		err := json.Unmarshal(rec, &r)
		all = append(all, r)
		return err
	})
	if err != nil {
		b.t.Error(err)
	}
	return all
}

func types(records []recorded) []string {
	var out []string
	for _, r := range records {
		out = append(out, r.Type)
	}
	return out
}

// R247: intents are durable before side effects, receipts before the caller sees them.
func TestIntentBeforeActBeforeReceipt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t)
		defer b.stop()
		seen := map[string][]string{}
		b.fake.hook = func(call string) { seen[call] = types(b.records()) }
		id := b.session()
		want := []string{"start", "intent", "decision"}
		if diff := cmp.Diff(want, seen["open"]); diff != "" {
			t.Errorf("durable when the session was built: %s", diff)
		}
		want = append(want, "receipt")
		if diff := cmp.Diff(want, types(b.records())); diff != "" {
			t.Errorf("durable when the open was answered: %s", diff)
		}
		b.exec(id, "true")
		want = append(want, "intent", "decision")
		if diff := cmp.Diff(want, seen["start true"]); diff != "" {
			t.Errorf("durable when the command was started: %s", diff)
		}
		want = append(want, "frame", "receipt") // that it has started is said with how it ended
		if diff := cmp.Diff(want, types(b.records())); diff != "" {
			t.Errorf("durable when the exec was answered: %s", diff)
		}
		b.close(id)
		want = append(want, "intent", "decision", "session_end", "receipt")
		if diff := cmp.Diff(want, types(b.records())); diff != "" {
			t.Errorf("durable when the close was answered: %s", diff)
		}
	})
}

// R081, R107: a denial starts nothing, has a code and names the policy; it is recorded.
func TestDenialStartsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t)
		defer b.stop()
		r := b.open(func(o *api.SessionOpen) { o.Profile = "forbidden" })
		if r.Outcome != api.OutcomeDenied || r.Deny[0].Code != "no" || r.ErrorCode != "no" || r.SessionID != "" {
			t.Errorf("%s %v", r.Outcome, r.Deny)
		}
		if r.Policy.Digest == "" || r.Policy.Entrypoint == "" || r.Payload.Open.Status != "error" {
			t.Errorf("%+v", r)
		}
		if n := b.fake.called("open"); n != 0 {
			t.Errorf("%d sessions were built", n)
		}
		if diff := cmp.Diff([]string{"start", "intent", "decision", "receipt"}, types(b.records())); diff != "" {
			t.Error(diff)
		}
		id := b.session()
		if r := b.exec(id, "true", "forbidden"); r.Outcome != api.OutcomeDenied || r.Status != "error" || r.ExecID != "" {
			t.Errorf("%+v", r)
		}
		if n := b.fake.called("start"); n != 0 {
			t.Errorf("%d commands were started", n)
		}
		if d := b.registry.all()[0].document(); d.Executions != 0 || d.Live != 0 {
			t.Errorf("a denied execution counts: %+v", d)
		}
	})
}

// A journal that cannot be written stops everything before it begins.
func TestNoJournalNoAct(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t)
		defer b.stop()
		id := b.session()
		b.journal.Close()
		_, err := b.Do(t.Context(), &api.Request{Op: api.OpExec, Principal: alice, Exec: &api.Exec{SessionID: id, Argv: []string{"true"}}}, nil)
		if e, ok := errors.AsType[*api.Error](err); !ok || e.Code != api.CodeJournalFailed {
			t.Errorf("%v", err)
		}
		if n := b.fake.called("start"); n != 0 {
			t.Errorf("%d commands were started", n)
		}
	})
}

// A session whose receipt cannot be recorded is torn down again.
func TestUnrecordedSessionDies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t)
		defer b.stop()
		b.fake.hook = func(call string) {
			if call == "open" {
				b.journal.Close()
			}
		}
		_, err := b.Do(t.Context(), &api.Request{Op: api.OpSessionOpen, Principal: alice, Open: &api.SessionOpen{Target: api.Target{Local: &api.Local{}}}}, nil)
		if e, ok := errors.AsType[*api.Error](err); !ok || e.Code != api.CodeJournalFailed {
			t.Errorf("%v", err)
		}
		if n := b.fake.called("close"); n != 1 || len(b.fake.specs) != 0 {
			t.Errorf("closed %d times, %d sessions left", n, len(b.fake.specs))
		}
	})
}

// R034, R044, R003…: what is wrong whatever policy says is faulted, with a receipt and
// without a question.
func TestInvalidRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t)
		defer b.stop()
		id := b.session()
		for _, tt := range []struct {
			code api.Code
			req  api.Request
		}{
			{api.CodeUnsupportedTarget, api.Request{Op: api.OpSessionOpen, Open: &api.SessionOpen{}}},
			{api.CodeArgvEmpty, api.Request{Op: api.OpExec, Exec: &api.Exec{SessionID: id}}},
			{api.CodeInvalidOutputMode, api.Request{Op: api.OpExec, Exec: &api.Exec{SessionID: id, Argv: []string{"true"}, OutputMode: "x"}}},
			{api.CodeInvalidStdinRef, api.Request{Op: api.OpExec, Exec: &api.Exec{SessionID: id, Argv: []string{"true"}, StdinRef: "x"}}},
			{api.CodeStdinRefNotFound, api.Request{Op: api.OpExec, Exec: &api.Exec{SessionID: id, Argv: []string{"true"}, StdinRef: "sha256:" + strings.Repeat("0", 64)}}},
			{api.CodeInvalidSignal, api.Request{Op: api.OpSessionSignal, Signal: &api.SessionSignal{SessionID: id, Signal: "NOPE"}}},
			{api.CodeInvalidMode, api.Request{Op: api.OpSessionClose, Close: &api.SessionClose{SessionID: id, Mode: "x"}}},
			{api.CodeSessionNotFound, api.Request{Op: api.OpExec, Exec: &api.Exec{SessionID: "s-none", Argv: []string{"true"}}}},
			{api.CodeInvalidParams, api.Request{Op: api.OpExec, Exec: &api.Exec{SessionID: id, Argv: []string{"true"}, Limits: api.Limits{DiskBytes: 1}}}},
		} {
			before := len(b.records())
			r := b.do(tt.req)
			if r.Outcome != api.OutcomeFaulted || r.ErrorCode != tt.code || r.Status != "error" {
				t.Errorf("%s: %s %s %s", tt.code, r.Outcome, r.ErrorCode, r.ErrorMessage)
			}
			if after := b.records(); len(after) == before || after[len(after)-1].Receipt.IntentID != r.IntentID {
				t.Errorf("%s: no record", tt.code)
			}
		}
		if n := b.fake.called("start"); n != 0 {
			t.Errorf("%d commands were started", n)
		}
	})
}

// R117, R138: both ids are known at the acceptance; output comes in order, each byte
// once, and the receipt is last.
func TestEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t)
		defer b.stop()
		id := b.session()
		var events []api.Event
		got := map[string]string{}
		r, err := b.Do(t.Context(), &api.Request{Op: api.OpExec, Principal: alice, Exec: &api.Exec{SessionID: id, Argv: []string{"flood", "100000"}}}, func(e api.Event) {
			events = append(events, e)
			if e.Kind == "output" {
				if int(e.Offset) != len(got[e.Stream]) {
					t.Errorf("offset %d after %d bytes", e.Offset, len(got[e.Stream]))
				}
				got[e.Stream] += string(e.Bytes)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		if e := events[0]; e.Kind != "accepted" || e.IntentID != r.IntentID || e.ExecID != r.ExecID || r.ExecID == "" {
			t.Errorf("%+v", e)
		}
		if got["stdout"] != string(pattern(100000)) {
			t.Errorf("%d bytes arrived", len(got["stdout"]))
		}
	})
}

// A caller that goes away ends its waiting, not the work.
func TestDisconnectKillsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t)
		defer b.stop()
		id := b.session()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var intent string
		_, err := b.Do(ctx, &api.Request{Op: api.OpExec, Principal: alice, Exec: &api.Exec{SessionID: id, Argv: []string{"for", "5s"}}}, func(e api.Event) { intent = e.IntentID })
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		r, denial, err := b.Receipt(t.Context(), &api.Request{Op: api.OpReceiptGet, Principal: alice, Read: &api.Read{IntentID: intent}})
		if err != nil || denial != nil || r.Payload.Exec.Status != "ok" || r.Payload.Exec.Usage.WallNS != int64(5*time.Second) {
			t.Errorf("%+v %v %v", r, denial, err)
		}
	})
}

// A bug in one operation is a faulted receipt, not the end of the supervisor.
func TestPanicIsFaulted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t)
		defer b.stop()
		id := b.session()
		b.fake.hook = func(call string) {
			if call == "start true" {
				panic("injected")
			}
		}
		if r := b.exec(id, "true"); r.Outcome != api.OutcomeFaulted || r.ErrorCode != api.CodeInternalError {
			t.Errorf("%+v", r)
		}
		if r := b.exec(id, "echo", "on"); r.Outcome != api.OutcomeOK {
			t.Errorf("%+v", r)
		}
		b.fake.hook = func(string) { panic("injected") }
		r := b.open(func(o *api.SessionOpen) {
			o.Target.Local.Mounts = []api.Mount{{HostPath: "/x", GuestPath: "/x", Mode: "ro"}}
		})
		if r.Outcome != api.OutcomeFaulted || r.ErrorCode != api.CodeInternalError || len(b.registry.all()) != 1 {
			t.Errorf("%+v", r)
		}
		if r := b.open(); r.Outcome != api.OutcomeFaulted || len(b.registry.all()) != 1 {
			t.Errorf("%+v", r)
		}
		b.fake.hook = nil
	})
}

// C1: an alias is recorded beside the canonical name.
func TestRequestedKind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t)
		defer b.stop()
		r := b.do(api.Request{Op: api.OpExec, RequestedKind: "process.exec", Exec: &api.Exec{SessionID: "s-none", Argv: []string{"x"}}})
		if r.Op != api.OpExec || r.RequestedKind != "process.exec" {
			t.Errorf("%s %s", r.Op, r.RequestedKind)
		}
	})
}

// R014, R015: a failed build is faulted, with the runner's code, and leaves no session.
func TestOpenFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t)
		defer b.stop()
		b.fake.openErr = sandbox.Errorf(sandbox.CodeNotEnforced, "seccomp is off")
		r := b.open()
		if r.Outcome != api.OutcomeFaulted || r.ErrorCode != api.CodeNotEnforced || r.Payload.Open.Status != "error" || r.SessionID != "" {
			t.Errorf("%+v", r)
		}
		if len(b.registry.all()) != 0 {
			t.Error("the session is in the registry")
		}
	})
}

// An open that hangs is given up: at a host path, and at the runner. Nothing of it is left.
func TestOpenHangs(t *testing.T) {
	for _, tt := range []struct {
		name   string
		mounts []api.Mount
		code   api.Code
		took   time.Duration
		closes int
	}{
		{"path", []api.Mount{{HostPath: "/fuse", GuestPath: "/work", Mode: "ro"}}, api.CodeMountSource, resolveLimit, 0},
		{"build", nil, api.CodeRunnerFailed, buildLimit, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := start(t)
				defer b.stop()
				b.fake.hang = true
				began := time.Now()
				r := b.open(func(o *api.SessionOpen) { o.Target.Local.Mounts = tt.mounts })
				if took := time.Since(began); r.Outcome != api.OutcomeFaulted || r.ErrorCode != tt.code || took != tt.took {
					t.Errorf("%s %s after %v, want %s after %v", r.Outcome, r.ErrorCode, took, tt.code, tt.took)
				}
				if len(b.registry.all()) != 0 || b.fake.called("close") != tt.closes {
					t.Errorf("%d sessions, %d closes", len(b.registry.all()), b.fake.called("close"))
				}
				b.fake.hang = false
				if r := b.open(); r.Outcome != api.OutcomeOK {
					t.Errorf("the next: %s %s", r.Outcome, r.ErrorCode)
				}
			})
		})
	}
}

// T064: a refusal records little, however much was asked: by policy, by its plan, and by what
// cannot be meant. It is told that the request was not kept, and the reasons are.
func TestLargeRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t)
		defer b.stop()
		id := b.session()
		big := strings.Repeat("x", 4<<20)
		mounts := make([]api.Mount, 200)
		for i := range mounts {
			mounts[i] = api.Mount{HostPath: fmt.Sprintf("/%04d/%s", i, strings.Repeat("p", 1000)), GuestPath: fmt.Sprintf("/work/%d", i), Mode: "ro"}
		}
		env := map[string]api.EnvValue{}
		for i := range 100 {
			env[fmt.Sprintf("E%d", i)] = api.EnvValue{Text: strings.Repeat("v", 1000)}
		}
		for _, tt := range []struct {
			name string
			ask  api.Request
			code api.Code
		}{
			{"policy", api.Request{Op: api.OpExec, Exec: &api.Exec{SessionID: id, Argv: []string{"echo", "forbidden"}, Stdin: &api.Stdin{InlineText: &api.InlineText{Text: big}}}}, api.CodePolicyInputTooLarge},
			{"meaning", api.Request{Op: api.OpExec, Exec: &api.Exec{SessionID: "s-unknown", Argv: []string{"echo", big}}}, api.CodeArgvInvalid},
			{"facts", api.Request{Op: api.OpSessionOpen, Open: &api.SessionOpen{Profile: "forbidden", Target: api.Target{Local: &api.Local{Mounts: mounts}}}}, "no"},
			{"plan", api.Request{Op: api.OpSessionOpen, Open: &api.SessionOpen{Target: api.Target{Local: &api.Local{Env: env}}}}, api.CodeEnvVarNotAllowed},
		} {
			from := b.journal.Next()
			r := b.do(tt.ask)
			if r.Outcome == api.OutcomeOK || r.ErrorCode != tt.code {
				t.Errorf("%s: %s %s %s", tt.name, r.Outcome, r.ErrorCode, r.ErrorMessage)
			}
			size := 0
			b.journal.Read(from, func(_ int64, rec []byte) error { size += len(rec); return nil })
			if size == 0 || size > keptRequest {
				t.Errorf("%s: %d bytes in the journal", tt.name, size)
			}
			got, _, err := b.Receipt(t.Context(), &api.Request{Op: api.OpReceiptGet, Principal: alice, Read: &api.Read{IntentID: r.IntentID}})
			if diff := cmp.Diff(r, got); err != nil || diff != "" {
				t.Errorf("%s: the receipt answered is not the one recorded: %v %s", tt.name, err, diff)
			}
			if _, err := ReadDecision(b.state, r.IntentID); err == nil || !strings.Contains(err.Error(), "too large to be kept") || !strings.Contains(err.Error(), string(tt.code)) {
				t.Errorf("%s: why: %v", tt.name, err)
			}
		}
		// Others can still be asked about, and a restart reads them.
		if _, err := ReadDecision(b.state, b.exec(id, "echo", "forbidden").IntentID); err != nil {
			t.Error(err)
		}
		b.Supervisor.Close(t.Context())
		startOn(t, newFake(), b.state, func(c *Config) { c.Policy = b.cfg.Policy }).Supervisor.Close(t.Context())
	})
}

// The first record of every start is signed before anything else happens, and with it what
// was unsigned before.
func TestStartIsSigned(t *testing.T) {
	for run := range 2 {
		state := t.TempDir() + "/state"
		for range run {
			startOn(t, newFake(), state, nil).stop()
		}
		b := startOn(t, newFake(), state, nil)
		known, err := journal.ReadPublicKey(state + "/journal/key.pub")
		if err != nil {
			t.Fatal(err)
		}
		report, err := journal.Verify(state+"/journal", note.VerifierList(known))
		if err != nil || report.Records == 0 || report.Unsigned != 0 {
			t.Errorf("run %d: %+v, %v", run, report, err)
		}
		b.open()
		c, denial, err := b.Checkpoint(t.Context(), &api.Request{Op: api.OpCheckpoint, Principal: alice, Read: &api.Read{}})
		if err != nil || denial != nil {
			t.Fatal(denial, err)
		}
		report, err = journal.Verify(state+"/journal", note.VerifierList(known), []byte(c.Note))
		if err != nil || report.Unsigned != 0 {
			t.Errorf("run %d: %+v, %v", run, report, err)
		}
		b.stop()
	}
}

// What the host lacks is refused, not downgraded.
func TestUnsupportedHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.host.Layers = append(f.host.Layers, sandbox.Layer{Name: "seccomp", State: "missing", Required: true})
		b := startOn(t, f, t.TempDir()+"/state", nil)
		defer b.stop()
		if r := b.open(); r.ErrorCode != api.CodeUnsupportedByHost || !strings.Contains(r.ErrorMessage, "seccomp") {
			t.Errorf("%+v", r)
		}
		info, _, err := b.HostInfo(t.Context(), &api.Request{Op: api.OpHostInfo, Principal: alice, Read: &api.Read{}})
		if err != nil || len(info.Host.Missing()) != 1 {
			t.Errorf("%+v %v", info, err)
		}
	})
}

// R111: a dry run says what would happen, with the effective grant, and changes nothing.
func TestDecide(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t)
		defer b.stop()
		open := &api.SessionOpen{Target: api.Target{Local: &api.Local{}}, Limits: api.Limits{PIDs: 1000}}
		before := len(b.records())
		d, denial, err := b.Decide(t.Context(), &api.Request{Op: api.OpSessionOpen, Principal: alice, Open: open})
		if err != nil || denial != nil || !d.Allow || d.Grant.Ceilings.PIDs != 32 || d.Clamped[0].Field != "limits.pids" {
			t.Errorf("%+v %v %v", d, denial, err)
		}
		open.Profile = "forbidden"
		d, _, err = b.Decide(t.Context(), &api.Request{Op: api.OpSessionOpen, Principal: alice, Open: open})
		if err != nil || d.Allow || d.Deny[0].Code != "no" {
			t.Errorf("%+v %v", d, err)
		}
		if len(b.records()) != before || b.fake.called("open") != 0 || len(b.registry.all()) != 0 {
			t.Error("a dry run left something")
		}
	})
}

// R115, R253, T208: what a command returns can be larger than a record, or no text. Its receipt says how it ended nevertheless,
// once, and with the next supervisor too; its output can still be read.
func TestUnfitPayload(t *testing.T) {
	for outputs, want := range map[string]api.Code{"/work/names": api.CodeOutputStoreFailed, "/work/latin1": api.CodeInvalidPayload} {
		t.Run(string(want), func(t *testing.T) {
			b := start(t)
			ask := api.Exec{SessionID: b.session(), Argv: []string{"echo", "hello"}, Outputs: []string{outputs}}
			r, err := b.with("k", ask)
			if err != nil {
				t.Fatal(err)
			}
			x := r.Payload.Exec
			if r.Outcome != api.OutcomeFaulted || r.ErrorCode != want || x.ErrorCode != want || x.ExitCode != 0 || x.EndedAtNS == 0 || len(x.Outputs) > 0 {
				t.Errorf("%s %s %+v", r.Outcome, r.ErrorCode, x)
			}
			if out, _ := b.outputOf(r.ExecID, cursor{}); out["stdout"] != "hello" {
				t.Errorf("%q", out)
			}
			if again, err := b.with("k", ask); err != nil || again.IntentID != r.IntentID {
				t.Errorf("%+v, %v", again, err)
			}
			b = b.restart()
			defer b.stop()
			if s := b.stateOf(r.ExecID); s != api.StateFailed {
				t.Errorf("%s", s)
			}
			var flying []api.Intent
			b.chronicle.read(func(state *ledger.State) { flying = state.InFlight() })
			if len(flying) > 0 {
				t.Errorf("in flight: %+v", flying)
			}
		})
	}
}

// The same of a session: one whose receipt does not say that it was opened is not left.
func TestUnfitSession(t *testing.T) {
	b := start(t)
	defer b.stop()
	b.fake.mounted = []string{"/caf\xe9 tmpfs rw"}
	r := b.open()
	if r.Outcome != api.OutcomeFaulted || r.ErrorCode != api.CodeInvalidPayload || r.Payload.Open.Grant != nil {
		t.Errorf("%+v", r)
	}
	if len(b.fake.specs) != 0 || b.registry.live != 0 {
		t.Errorf("%d sessions are left, and %d counted", len(b.fake.specs), b.registry.live)
	}
}
