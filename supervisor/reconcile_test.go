package supervisor

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"

	"github.com/stockade-dev/stockade/internal/durable"
	"github.com/stockade-dev/stockade/internal/journal"
	"github.com/stockade-dev/stockade/sandbox"
	"github.com/stockade-dev/stockade/supervisor/api"
	"github.com/stockade-dev/stockade/supervisor/ledger"
)

// scenario leaves a journal with something of everything, and returns its records.
func scenario(t *testing.T, state string) [][]byte {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := startOn(t, newFake(), state, nil)
		defer b.stop()
		id := b.session(func(o *api.SessionOpen) { o.Labels = map[string]string{"n": "1"} })
		b.exec(id, "echo", "hello")
		b.exec(id, "nope")
		b.exec(id, "true", "forbidden")
		b.open(func(o *api.SessionOpen) { o.Profile = "forbidden" })
		var all sync.WaitGroup
		all.Go(func() { b.exec(id, "for", "1s") })
		synctest.Wait()
		b.signal(id, "HUP")
		all.Wait()
		b.signal(b.session(), "KILL")
		b.exec(b.session(), "true")
		space := b.session(withOverlay("/work"), withNetwork("egress"))
		b.space(api.OpWorkspaceCommit, api.Workspace{SessionID: space})
		b.space(api.OpWorkspaceDiscard, api.Workspace{SessionID: space})
		b.narrow(space, "none")
		b.close(id)
	})
	var all [][]byte
	if err := journal.Scan(filepath.Join(state, "journal"), func(_ int64, rec []byte) error {
		all = append(all, rec)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return all
}

// R254, R255, R248: the supervisor is killed after each record; the next one gives every
// intent exactly one receipt and every session one end, starts nothing, and a third one
// finds nothing left to do.
func TestRestartSettlesOnce(t *testing.T) {
	all := scenario(t, t.TempDir()+"/state")
	if len(all) < 20 {
		t.Fatalf("only %d records", len(all))
	}
	policy := loadPolicy(t)
	defer policy.Close()
	for cut := range len(all) + 1 {
		state := filepath.Join(t.TempDir(), fmt.Sprint(cut))
		if err := durable.PrivateDir(state); err != nil {
			t.Fatal(err)
		}
		j, err := journal.Open(filepath.Join(state, "journal"), journal.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if cut > 0 {
			if _, err := j.Append(t.Context(), all[:cut]...); err != nil {
				t.Fatal(err)
			}
		}
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
		var settled int
		for restart := range 2 {
			b := startOn(t, newFake(), state, func(c *Config) { c.Policy = policy })
			// A start, a snapshot and what was retired settle nothing.
			records := slices.DeleteFunc(b.records(), func(r recorded) bool {
				return slices.Contains([]string{ledger.TypeStart, ledger.TypeSnapshot, ledger.TypeRetired}, r.Type)
			})
			receipts, ends, opened := map[string]int{}, map[string]int{}, map[string]bool{}
			for _, r := range records {
				switch {
				case r.Receipt != nil:
					receipts[r.Receipt.IntentID]++
					if open := leftOpen(r.Receipt.Op, false); r.Receipt.ErrorCode == api.CodeSupervisorRestarted && !strings.HasSuffix(r.Receipt.ErrorMessage, "; "+open) {
						t.Errorf("cut %d: %s does not say what is open: %s", cut, r.Receipt.Op, r.Receipt.ErrorMessage)
					}
					if r.Receipt.Payload.Open != nil && r.Receipt.Outcome == api.OutcomeOK {
						opened[r.Receipt.SessionID] = true
					}
				case r.Type == ledger.TypeSessionEnd:
					ends[r.SessionID]++
				}
			}
			intents := 0
			for _, rec := range all[:cut] {
				if strings.HasPrefix(string(rec), `{"type":"intent"`) {
					intents++
				}
			}
			if len(receipts) != intents {
				t.Errorf("cut %d: %d receipts for %d intents", cut, len(receipts), intents)
			}
			for id, n := range receipts {
				if n != 1 {
					t.Errorf("cut %d: intent %s has %d receipts", cut, id, n)
				}
			}
			for id := range opened {
				if ends[id] != 1 {
					t.Errorf("cut %d: session %s has %d ends", cut, id, ends[id])
				}
			}
			for _, ses := range b.registry.all() {
				if d := ses.document(); d.State != "closed" || d.EndedAtNS == 0 {
					t.Errorf("cut %d: %+v", cut, d)
				}
			}
			if restart == 0 {
				settled = len(records)
			} else if len(records) != settled {
				t.Errorf("cut %d: the second restart wrote %d records", cut, len(records)-settled)
			}
			if len(b.fake.calls) != 0 {
				t.Errorf("cut %d: replay called %v", cut, b.fake.calls)
			}
			b.stop()
		}
	}
}

// What was settled by a restart says so; what had ended before is as it was.
func TestAfterRestart(t *testing.T) {
	state := t.TempDir() + "/state"
	var open, exec *api.Receipt
	var before api.Session
	synctest.Test(t, func(t *testing.T) {
		b := startOn(t, newFake(), state, nil)
		defer b.stop()
		open = b.open(func(o *api.SessionOpen) { o.Labels = map[string]string{"n": "1"} })
		exec = b.exec(open.SessionID, "echo", "hello")
		b.close(open.SessionID)
		before = b.registry.all()[0].document()
	})
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(24 * time.Hour)
		b := startOn(t, newFake(), state, nil)
		defer b.stop()
		if diff := cmp.Diff(encode(t, before), encode(t, b.registry.all()[0].document())); diff != "" {
			t.Error(diff)
		}
		if r := b.exec(open.SessionID, "true"); r.ErrorCode != api.CodeSessionClosed {
			t.Errorf("%s", r.ErrorCode)
		}
		r, _, err := b.Receipt(t.Context(), &api.Request{Op: api.OpReceiptGet, Principal: alice, Read: &api.Read{IntentID: exec.IntentID}})
		if diff := cmp.Diff(encode(t, exec), encode(t, r)); diff != "" || err != nil {
			t.Error(diff, err)
		}
		list, _, err := b.Receipts(t.Context(), &api.Request{Op: api.OpReceiptList, Principal: alice, Read: &api.Read{Op: api.OpSessionOpen}})
		if err != nil || len(list.Receipts) != 1 || list.Receipts[0].IntentID != open.IntentID {
			t.Errorf("%v %v", list, err)
		}
	})
}

func encode(t *testing.T, v any) string {
	b, err := api.Encode(v)
	if err != nil {
		t.Error(err)
	}
	return string(b)
}

// Two supervisors never share a state directory.
func TestStateIsLocked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t)
		defer b.stop()
		if _, err := New(t.Context(), b.cfg); err == nil {
			t.Error("a second supervisor opened the directory")
		}
	})
}

// A recorded decision can be asked again: the input is the same to the byte, and so is
// the answer.
func TestReadDecision(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := startOn(t, newFake(), t.TempDir()+"/state", func(c *Config) {
			c.Ceiling = sandbox.Ceiling{PIDs: 20, MemoryBytes: 64 << 20, CPUMillis: 1000, Files: 256, OutputBytes: 262144, Executions: 4}
		})
		defer b.stop()
		receipts := []*api.Receipt{
			b.open(func(o *api.SessionOpen) { o.Profile = "forbidden" }),
			b.open(func(o *api.SessionOpen) { o.Limits.PIDs = 50 }), // the policy grants more than the ceiling
		}
		b.ceiling.PIDs = 32
		id := b.session(func(o *api.SessionOpen) {
			o.Labels = map[string]string{"a": "b"}
			o.Target.Local.Mounts = []api.Mount{{HostPath: "/srv/x", GuestPath: "/work/x", Mode: "rw"}}
			o.Target.Local.Env = map[string]api.EnvValue{"S": {Text: "canary", Secret: true}}
		})
		b.ceiling.PIDs = 20
		receipts = append(receipts, b.exec(id, "true"), b.exec(id, "true", "forbidden"), b.signal(id, "HUP"), b.close(id))
		for _, r := range receipts {
			got, err := ReadDecision(b.state, r.IntentID)
			if err != nil {
				t.Errorf("%s: %v", r.Op, err)
				continue
			}
			again := b.policies.current.Decide(t.Context(), got.Entrypoint, got.Input)
			if again.InputDigest != got.InputDigest {
				t.Errorf("%s: input %s, recorded %s", r.Op, again.InputDigest, got.InputDigest)
			}
			again.Input, again.Elapsed = nil, 0
			if diff := cmp.Diff(got.Decision, again); diff != "" {
				t.Errorf("%s: %s", r.Op, diff)
			}
			if got.Receipt == nil || got.Receipt.IntentID != r.IntentID || got.PolicyDigest != b.policies.digest() {
				t.Errorf("%s: %+v", r.Op, got.Receipt)
			}
		}
		all := map[string]*Recorded{}
		left, err := EachDecision(b.state, func(r *Recorded) error {
			all[r.IntentID] = r
			return nil
		})
		if err != nil || left != 0 {
			t.Errorf("every decision: %d left out, %v", left, err)
		}
		for _, r := range receipts {
			alone, err := ReadDecision(b.state, r.IntentID)
			if err != nil {
				t.Fatal(err)
			}
			alone.Receipt = nil // it comes after the decision
			if diff := cmp.Diff(alone, all[r.IntentID]); diff != "" {
				t.Errorf("%s among all: %s", r.Op, diff)
			}
		}
		if _, err := ReadDecision(b.state, "sha256:none"); err == nil {
			t.Error("a decision about an intent that never was")
		}
		invalid := b.exec("s-none", "true")
		if _, err := ReadDecision(b.state, invalid.IntentID); err == nil || !strings.Contains(err.Error(), "session_not_found") {
			t.Errorf("%v", err)
		}
	})
}

// R255: each operation that a restart may cut off says what that leaves open.
func TestEveryOperationSaysWhatIsOpen(t *testing.T) {
	for op := range operations {
		for _, stands := range []bool{true, false} {
			if leftOpen(op, stands) == "" {
				t.Errorf("%s, stands %v: nothing", op, stands)
			}
		}
	}
	for op := range torn {
		if _, ok := operations[op]; !ok || tellsItself[op] != nil {
			t.Errorf("%s: it is no operation, or tells itself", op)
		}
	}
}

// R255: of a session that was being opened or closed, the receipt says whether that had begun: the runner knows. What was built for nobody
// is closed.
func TestInterruptedSessionTellsWhetherItBegan(t *testing.T) {
	policy := loadPolicy(t)
	defer policy.Close()
	all := scenario(t, t.TempDir()+"/state")
	for _, row := range []struct {
		op     api.Op
		stands bool
		closed int
	}{{op: api.OpSessionOpen, stands: true, closed: 1}, {op: api.OpSessionOpen}, {op: api.OpSessionClose, stands: true}, {op: api.OpSessionClose}} {
		t.Run(fmt.Sprint(row.op, " ", row.stands), func(t *testing.T) {
			at := slices.IndexFunc(all, func(rec []byte) bool {
				return strings.HasPrefix(string(rec), `{"type":"intent"`) && strings.Contains(string(rec), `"op":"`+string(row.op)+`"`)
			})
			if at < 0 {
				t.Fatal("the scenario has none")
			}
			state := filepath.Join(t.TempDir(), "state")
			if err := durable.PrivateDir(state); err != nil {
				t.Fatal(err)
			}
			j, err := journal.Open(filepath.Join(state, "journal"), journal.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := j.Append(t.Context(), all[:at+2]...); err != nil { // the intent and its decision
				t.Fatal(err)
			}
			if err := j.Close(); err != nil {
				t.Fatal(err)
			}
			var intent ledger.Intent
			if err := json.Unmarshal(all[at], &intent); err != nil || intent.SessionID == "" {
				t.Fatal(intent, err)
			}
			f := newFake()
			if row.stands {
				f.specs[intent.SessionID] = sandbox.Spec{Session: intent.SessionID, Keep: []byte(`{"env":{},"secret":[]}`)}
			}
			b := startOn(t, f, state, func(c *Config) { c.Policy = policy })
			defer b.stop()
			place, ok := b.chronicle.receipts.intent(alice, intent.IntentID)
			if !ok {
				t.Fatal("no receipt")
			}
			r, err := b.receiptAt(place.seq)
			if err != nil || r.ErrorCode != api.CodeSupervisorRestarted || !strings.HasSuffix(r.ErrorMessage, "; "+tellsItself[row.op][row.stands]) {
				t.Errorf("%v %+v", err, r)
			}
			// That of a close goes on, and has expired: the scenario is of another year.
			if got := f.called("close"); row.op == api.OpSessionOpen && got != row.closed {
				t.Errorf("the runner was asked %d times to close it: %v", got, f.calls)
			}
		})
	}
}
