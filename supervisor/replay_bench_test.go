package supervisor

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stockade-dev/stockade/internal/durable"
	"github.com/stockade-dev/stockade/internal/journal"
	"github.com/stockade-dev/stockade/rego"
	"github.com/stockade-dev/stockade/supervisor/api"
	"github.com/stockade-dev/stockade/supervisor/ledger"
)

// past makes a state directory with the journal of n executions in one session, as a supervisor
// writes them: a real one's records, told n times under other ids.
func past(tb testing.TB, n int) (state string) {
	tb.Helper()
	dir, err := os.MkdirTemp("", "stockade-past-")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { os.RemoveAll(dir) })
	state = filepath.Join(dir, "state")
	s := benchSupervisor(tb, state)
	open, err := s.Do(tb.Context(), &api.Request{Op: api.OpSessionOpen, Principal: alice, Open: &api.SessionOpen{Target: api.Target{Local: &api.Local{}}}}, nil)
	if err != nil {
		tb.Fatal(err)
	}
	first := s.journal.Next()
	r, err := s.Do(tb.Context(), &api.Request{Op: api.OpExec, Principal: alice, Facade: "http", Exec: &api.Exec{SessionID: open.SessionID, Argv: []string{"echo", "hello"}}}, nil)
	if err != nil {
		tb.Fatal(err)
	}
	var told [][]byte
	if err := s.journal.Read(first, func(_ int64, rec []byte) error {
		told = append(told, bytes.Clone(rec))
		return nil
	}); err != nil {
		tb.Fatal(err)
	}
	if err := s.Close(context.Background()); err != nil {
		tb.Fatal(err)
	}
	j, err := journal.Open(filepath.Join(state, "journal"), journal.Options{})
	if err != nil {
		tb.Fatal(err)
	}
	defer j.Close()
	fence := fmt.Sprintf(`"emitted_at_seq":%d`, first)
	var batch [][]byte
	for i := range n {
		id := ledger.Digest(fmt.Appendf(nil, "%d", i))
		at := j.Next() + int64(len(batch))
		for _, rec := range told {
			rec = bytes.ReplaceAll(rec, []byte(r.IntentID), []byte(id))
			rec = bytes.ReplaceAll(rec, []byte(r.ExecID), fmt.Appendf(nil, "x-%026d", i))
			rec = bytes.ReplaceAll(rec, []byte(fence), fmt.Appendf(nil, `"emitted_at_seq":%d`, at))
			batch = append(batch, rec)
		}
		if len(batch) > 1000 || i == n-1 {
			if _, err := j.Append(tb.Context(), batch...); err != nil {
				tb.Fatal(err)
			}
			batch = batch[:0]
		}
	}
	return state
}

func benchSupervisor(tb testing.TB, state string) *Supervisor {
	tb.Helper()
	policy, err := rego.Load(testPolicy, rego.Options{})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(policy.Close)
	s, err := New(tb.Context(), Config{State: state, Policy: policy, Launcher: newFake(), Log: slog.New(slog.NewTextHandler(io.Discard, nil))})
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

var _ = durable.SyncDir
var _ = time.Now

// BenchmarkStart is how long a start takes behind 100,000 executions, with and without a snapshot.
func BenchmarkStart(b *testing.B) {
	state := past(b, 100_000)
	for b.Loop() {
		s := benchSupervisor(b, state)
		b.ReportMetric(float64(s.journal.Next()), "records")
		b.StopTimer()
		t0 := time.Now()
		var snap []byte
		s.chronicle.read(func(st *ledger.State) { snap, _ = st.Snapshot() })
		b.Log("snapshot", len(snap), time.Since(t0))
		t0 = time.Now()
		ledger.Restore(snap)
		b.Log("restore", time.Since(t0))
		s.journal.Close()
		s.undo.Run()
		b.StartTimer()
	}
}
