package ledger

import (
	"bytes"
	"flag"
	"os"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/stockade-dev/stockade/rego"
	"github.com/stockade-dev/stockade/sandbox"
	"github.com/stockade-dev/stockade/supervisor/api"
)

var update = flag.Bool("update", false, "write the golden files")

// samples is one record of each type, with every member.
func samples() []Record {
	at := Header{AtNS: 1700000000000000001}
	return []Record{
		&Start{Header: at, Version: "1.0", PolicyDigest: "sha256:p", Ceiling: sandbox.Ceiling{Sessions: 4}, CeilingDigest: "sha256:c",
			Limits: Limits{History: 1, Sessions: 2, Intents: 3, Notices: 4, Keys: 5}},
		&Intent{Header: at, IntentID: "sha256:i", Nonce: "n", SessionID: "s-1", ExecID: "x-1", Key: "k", Queued: true,
			Request: []byte(`{"op":"host.exec","principal":{"uid":1000,"gid":1000},"facade":"http","exec":{"session_id":"s-1","argv":["true"]}}`)},
		&Intent{Header: at, IntentID: "sha256:l", Nonce: "n",
			Large: &Large{Op: api.OpExec, Principal: alice, Key: "k", SizeBytes: 70000, Digest: "sha256:r"}},
		&Decision{Header: at, IntentID: "sha256:i", Policy: api.PolicyRef{Digest: "sha256:p", Entrypoint: "data.stockade.exec.decision"},
			InputDigest: "sha256:in", CeilingDigest: "sha256:c", NowNS: 7, Session: &SessionCounts{"s-1", 2, 1, 1}, Allow: true,
			Warn: []string{"w"}, Limits: rego.ExecLimits{TimeoutNS: 9}, Obligations: rego.Obligations{Output: "blob"}},
		&Waiting{Header: at, Approval: api.Approval{ApprovalID: "a-1", IntentID: "sha256:i", Op: api.OpExec, Principal: alice, SessionID: "s-1", ExecID: "x-1",
			State: api.ApprovalWaiting, Reason: "r", Review: "sha256:v", Approvers: &api.Approvers{UIDs: []uint32{0}, GIDs: []uint32{4}}, Own: true, DeadlineNS: 9},
			Grant: &api.Grant{Profile: "p", Mounts: []api.GrantMount{}, Scratch: []api.GrantScratch{}}},
		&Verdict{Header: at, ApprovalID: "a-1", IntentID: "sha256:i", State: api.ApprovalDenied, By: &alice, In: "sha256:d", Comment: "no"},
		&Frame{Header: at, Frame: api.Frame{OriginModule: "stockade", OriginInstance: "1000", IntentID: "sha256:i", EffectKind: api.OpExec, EmittedAtSeq: 1, Seq: 1,
			Kind: api.FrameProgress, AtNS: at.AtNS, At: "2023-11-14T22:13:20.000000001Z", Payload: api.FramePayload{ExecID: "x-1", SessionID: "s-1", StdoutBytes: 3}}},
		&Settled{Header: at, Receipt: &api.Receipt{Version: 1, IntentID: "sha256:i", Op: api.OpExec, Principal: alice, SessionID: "s-1", ExecID: "x-1", FrameSeq: 1,
			Outcome: api.OutcomeOK, Status: "ok", Payload: api.Payload{Exec: &api.ExecResult{Status: "ok", Stdout: &api.Output{InlineText: &api.InlineText{Text: "a\n"}}}},
			AdmittedAtNS: 1, AdmittedAt: "1970-01-01T00:00:00.000000001Z", SettledAtNS: 2, SettledAt: "1970-01-01T00:00:00.000000002Z"}},
		&Notice{Header: at, SessionID: "s-1", ExecID: "x-1", Kind: api.NoticeSession, State: "quiesced", Reason: "paused", Detail: "d"},
		&Narrowed{Header: at, SessionID: "s-1", Network: api.GrantNetwork{Mode: "egress", Allow: []api.Destination{{Name: "example.org", Ports: []uint16{443}}}}},
		&SessionEnd{Header: at, SessionID: "s-1", State: "closed", Reason: "expired", Usage: api.Usage{Executions: 1}},
		&Adopted{Header: at, Sessions: []string{"s-1"}, Executions: []string{"x-1"}},
		&Retired{Header: at, BeforeNS: 3, Executions: []string{"x-1"}, Sessions: []string{"s-1"}},
		&SnapshotTaken{Header: at, Records: 12, Digest: "sha256:s"},
		&Reload{Header: at, Principal: api.Principal{UID: 7}, Trigger: "signal", Message: "m"},
		&Policy{Header: at, State: PolicyActive, Trigger: "api", Revision: api.PolicyRevision{Digest: "sha256:p", Number: 7}, Previous: "sha256:o"},
	}
}

// The bytes of every type are what they were: journals are kept for long.
func TestRecordsOnDisk(t *testing.T) {
	var got []byte
	for _, r := range samples() {
		b, err := Encode(r)
		if err != nil {
			t.Fatal(err)
		}
		got = append(append(got, b...), '\n')
	}
	const golden = "testdata/records.ndjson"
	if *update {
		if err := os.WriteFile(golden, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (-update writes it anew): %s", golden, diff)
	}
	for line := range bytes.Lines(got) {
		r, err := Decode(bytes.TrimSpace(line))
		if err != nil {
			t.Errorf("%v\n%s", err, line)
			continue
		}
		name, err := typeOf(r)
		if err != nil || name != r.head().Type {
			t.Errorf("%T says that it is %q: %v", r, r.head().Type, err)
		}
	}
}

// What Decode leaves out, it leaves out of decisions, requests and receipts alone.
func TestDecodeIsWhole(t *testing.T) {
	for _, want := range samples() {
		b, err := Encode(want)
		if err != nil {
			t.Fatal(err)
		}
		got, err := Decode(b)
		if err != nil {
			t.Fatal(err)
		}
		switch got := got.(type) {
		case *Decision:
		case *Intent:
			kept := *want.(*Intent)
			if kept.ask = got.ask; kept.Large == nil && got.ask.Exec.Argv[0] != "true" {
				t.Errorf("%+v", got.ask)
			}
			if kept.Request = nil; !reflect.DeepEqual(got, &kept) {
				t.Errorf("%+v", got)
			}
		case *Settled:
			r := got.Receipt
			if r.IntentID != "sha256:i" || r.Outcome != api.OutcomeOK || r.Principal.UID != 1000 || r.ExecID != "x-1" || size(r.Payload.Exec.Stdout) != 2 {
				t.Errorf("%+v", r)
			}
		default:
			if !reflect.DeepEqual(got, want) {
				t.Errorf("%s", cmp.Diff(want, got))
			}
		}
	}
}

func TestDecodeRefuses(t *testing.T) {
	for _, b := range []string{``, `{`, `[]`, `{"type":"else"}`, `{"at_ns":1}`, `{"type":"intent","at_ns":"1"}`, `{"type":"receipt","receipt":[]}`, `{"type":"frame"`,
		`{"type":"intent","intent_id":"i","request":{"op":"host.exec"}} x`, `{"type":"intent","request":{"principal":{"uid":"1"}}}`, `{"type":"receipt",}`,
		`{"type":"receipt","receipt":{"payload":{"exec":{"exit_code":1.5}}}}`, `{"type":"intent","nonce":"\x"}`, "{\"type\":\"intent\",\"nonce\":\"\xff\"}"} {
		if r, err := Decode([]byte(b)); err == nil {
			t.Errorf("%s is %T", b, r)
		}
	}
	if r, err := Decode([]byte(`{"at_ns":1,"type":"notice"}`)); err != nil || r.(*Notice).AtNS != 1 {
		t.Errorf("type need not come first: %v", err)
	}
}

// An intent's id is the digest of what it stands for, so that neither part can be replaced.
func TestIntentID(t *testing.T) {
	request := []byte(`{"op":"host.exec"}`)
	if id := IntentID("n", request); id != Digest([]byte(`{"nonce":"n","request":{"op":"host.exec"}}`)) {
		t.Error(id)
	}
}

// FuzzDecode: no bytes make Decode panic, or a State that took them in unable to be kept.
func FuzzDecode(f *testing.F) {
	for _, r := range samples() {
		b, err := Encode(r)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := Decode(b)
		if err != nil {
			return
		}
		s := told(t)
		if err := s.Apply(s.Records(), r); err != nil {
			return
		}
		roundTrip(t, s)
	})
}

// FuzzRestore: no bytes make Restore panic, and what it takes is a state like any other.
func FuzzRestore(f *testing.F) {
	b, err := told(f).Snapshot()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := Restore(b)
		if err != nil {
			return
		}
		roundTrip(t, s)
		for _, r := range []Record{
			&Start{Limits: Limits{History: 1, Sessions: 1, Intents: 1, Notices: 1, Keys: 1}},
			&SessionEnd{SessionID: "s-1", State: "closed"},
			&Settled{Receipt: &api.Receipt{IntentID: "i-exec", Outcome: api.OutcomeOK, Payload: api.Payload{Exec: &api.ExecResult{}}}},
			&Retired{BeforeNS: 1 << 60},
		} {
			if err := s.Apply(s.Records(), r); err != nil {
				t.Skip(err) // the last number there is
			}
		}
		roundTrip(t, s)
	})
}

func roundTrip(t testing.TB, s *State) {
	t.Helper()
	b, err := s.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	again, err := Restore(b)
	if err != nil {
		t.Fatalf("%v\n%s", err, b)
	}
	c, err := again.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(b, c) {
		t.Fatalf("%s\nbecame\n%s", b, c)
	}
}
