package ledger

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/stockade-dev/stockade/supervisor/api"
)

// A glance sees what decoding the record gives.
func TestGlance(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		y := &story{t: t, state: New()}
		for seq := range int64(rapid.IntRange(1, 40).Draw(t, "records")) {
			r := y.draw()
			b, err := Encode(r)
			if err != nil {
				t.Fatal(err)
			}
			want := Glance{Type: r.head().Type}
			switch r := r.(type) {
			case *Settled:
				p := r.Receipt
				want.IntentID, want.Op, want.Owner, want.SessionID, want.ExecID, want.Outcome = p.IntentID, p.Op, OwnerOf(p.Principal), p.SessionID, p.ExecID, p.Outcome
			case *Frame:
				want.IntentID, want.FrameSeq = r.Frame.IntentID, r.Frame.Seq
			case *SnapshotTaken:
				want.Snapshot = r
			}
			got, err := GlanceOf(b)
			if err != nil {
				t.Fatal(err)
			}
			if got.Snapshot != nil && want.Snapshot != nil && *got.Snapshot == *want.Snapshot {
				got.Snapshot = want.Snapshot
			}
			if got != want {
				t.Fatalf("%+v of %s", got, b)
			}
			if err := y.state.Apply(seq, r); err != nil {
				t.Fatal(err)
			}
		}
	})
	for _, b := range []string{``, `{}`, `{"type":"other"}`, `{"type":"receipt","receipt":{"intent_id":1}}`, `{"type":"receipt","receipt":[]}`,
		`{"type":"frame","frame":{"seq":"1"}}`, `{"type":"frame","frame":{`, `{"type":"snapshot","records":"1"}`} {
		if g, err := GlanceOf([]byte(b)); err == nil {
			t.Errorf("%s: %+v", b, g)
		}
	}
}

func BenchmarkGlance(b *testing.B) {
	rec, err := Encode(&Settled{Receipt: &api.Receipt{Version: 1, IntentID: Digest(nil), Op: api.OpExec, Principal: agent, SessionID: "s-aaaaaaaaaaaaaaaaaaaaaaaaaa",
		ExecID: "x-aaaaaaaaaaaaaaaaaaaaaaaaaa", Outcome: api.OutcomeOK, Status: "ok", Payload: api.Payload{Exec: &api.ExecResult{Stdout: &api.Output{InlineText: &api.InlineText{Text: string(make([]byte, 500))}}}}}})
	if err != nil {
		b.Fatal(err)
	}
	b.Run("glance", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := GlanceOf(rec); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("decode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := Decode(rec); err != nil {
				b.Fatal(err)
			}
		}
	})
}
