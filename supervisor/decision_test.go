package supervisor

import (
	"errors"
	"path/filepath"
	"testing"
	"testing/synctest"

	"github.com/stockade-dev/stockade/internal/durable"
	"github.com/stockade-dev/stockade/internal/journal"
	"github.com/stockade-dev/stockade/supervisor/ledger"
)

// Of a journal whose beginning is gone, what is asked for is rebuilt if its records are there, wherever
// the ceiling stands among them; if they are not, the error says where the journal begins.
func TestReadDecisionAfterTrim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t)
		defer b.stop()
		old := b.exec(b.session(), "true")
		id := b.session()
		r := b.exec(id, "true")
		var start []byte
		var all [][]byte
		opened := 0
		if err := journal.Scan(filepath.Join(b.state, "journal"), func(seq int64, rec []byte) error {
			record, err := ledger.Decode(rec)
			if err != nil {
				return err
			}
			switch record := record.(type) {
			case *ledger.Start:
				start = append([]byte(nil), rec...)
			case *ledger.Intent:
				if record.SessionID == id && opened == 0 {
					opened = int(seq)
				}
			}
			all = append(all, append([]byte(nil), rec...))
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		state := t.TempDir() + "/trimmed"
		if err := durable.PrivateDir(state); err != nil {
			t.Fatal(err)
		}
		// A record that fills a segment stands before the open, so that what is older can go.
		j, err := journal.Open(filepath.Join(state, "journal"), journal.Options{SegmentBytes: 16 << 10})
		if err != nil {
			t.Fatal(err)
		}
		defer j.Close()
		add := func(rec []byte) {
			t.Helper()
			if _, err := j.Append(t.Context(), rec); err != nil {
				t.Fatal(err)
			}
		}
		filler, err := ledger.Encode(&ledger.Notice{Detail: string(make([]byte, 2600))})
		if err != nil {
			t.Fatal(err)
		}
		for i, rec := range all {
			if i == opened {
				add(filler)
			}
			add(rec)
		}
		first, err := j.Trim(int64(opened))
		if err != nil || first == 0 || first > int64(opened)+1 {
			t.Fatalf("trimmed to %d of %d: %v", first, opened, err)
		}
		for _, intent := range []string{old.IntentID, r.IntentID} {
			if _, err := ReadDecision(state, intent); !errors.Is(err, journal.ErrTrimmed) {
				t.Errorf("%v", err)
			}
		}
		add(start)
		got, err := ReadDecision(state, r.IntentID)
		if err != nil {
			t.Fatal(err)
		}
		if again := b.policies.current.Decide(t.Context(), got.Entrypoint, got.Input); again.InputDigest != got.InputDigest {
			t.Errorf("input %s, recorded %s", again.InputDigest, got.InputDigest)
		}
	})
}
