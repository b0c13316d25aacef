package supervisor

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/internal/journal"
	"github.com/stockade-dev/stockade/rego"
	"github.com/stockade-dev/stockade/supervisor/api"
	"github.com/stockade-dev/stockade/supervisor/ledger"
)

// past is a state directory to which executions are told: a real one's records, again and again under
// other ids.
type past struct {
	state string
	told  [][]byte // the records of one execution
	ids   []string // in them
	first int64    // number of the first of them
	n     int
}

func newPast(tb testing.TB) *past {
	tb.Helper()
	dir, err := os.MkdirTemp("", "stockade-past-") // TempDir is removed when the benchmark's first run ends
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { os.RemoveAll(dir) })
	p := &past{state: filepath.Join(dir, "state")}
	s := p.start(tb)
	do := func(req api.Request) *api.Receipt {
		req.Principal, req.Facade = alice, "http"
		r, err := s.Do(tb.Context(), &req, nil)
		if err != nil || r.Outcome != api.OutcomeOK {
			tb.Fatal(r, err)
		}
		return r
	}
	open := do(api.Request{Op: api.OpSessionOpen, Open: &api.SessionOpen{Target: api.Target{Local: &api.Local{}}}})
	p.first = s.journal.Next()
	exec := do(api.Request{Op: api.OpExec, Exec: &api.Exec{SessionID: open.SessionID, Argv: []string{"echo", "hello"}}})
	p.ids = []string{exec.IntentID, exec.ExecID, fmt.Sprintf(`"emitted_at_seq":%d`, p.first)}
	err = s.journal.Read(p.first, func(_ int64, rec []byte) error {
		p.told = append(p.told, bytes.Clone(rec))
		return nil
	})
	s.die()
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

// tell adds n executions to the journal.
func (p *past) tell(tb testing.TB, n int) {
	tb.Helper()
	j, err := journal.Open(filepath.Join(p.state, "journal"), journal.Options{})
	if err != nil {
		tb.Fatal(err)
	}
	defer j.Close()
	var batch [][]byte
	for i := range n {
		p.n++
		ids := []string{ledger.Digest(fmt.Append(nil, p.n)), fmt.Sprintf("x-%026d", p.n), fmt.Sprintf(`"emitted_at_seq":%d`, j.Next()+int64(len(batch)))}
		for _, rec := range p.told {
			for k, id := range p.ids {
				rec = bytes.ReplaceAll(rec, []byte(id), []byte(ids[k]))
			}
			batch = append(batch, rec)
		}
		if len(batch) >= 1000 || i == n-1 {
			if _, err := j.Append(tb.Context(), batch...); err != nil {
				tb.Fatal(err)
			}
			batch = nil
		}
	}
}

func (p *past) start(tb testing.TB) *Supervisor {
	tb.Helper()
	policy, err := rego.Load(testPolicy, rego.Options{})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(policy.Close)
	s, err := New(tb.Context(), Config{State: p.state, Policy: policy, Launcher: newFake(), Defaults: Defaults{SnapshotEvery: 1 << 40}, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// die ends a supervisor as a kill does, as far as its files go: nothing more is recorded.
func (s *Supervisor) die() {
	s.cancel(errors.New("killed"))
	s.background.Wait()
	s.undo.Run()
}

// cpu is the processor time of this process.
func cpu(tb testing.TB) time.Duration {
	var ru unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &ru); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(ru.Utime.Nano() + ru.Stime.Nano())
}

// BenchmarkStart is how long a start takes behind 100,000 executions: from the first record, from a snapshot
// of everything, and from one that is as old as it gets. Between them, what a snapshot costs: those
// who wait for the state, and in the background.
func BenchmarkStart(b *testing.B) {
	p := newPast(b)
	p.tell(b, 100_000)
	start := func(b *testing.B) {
		var next, size int64
		var used time.Duration
		for b.Loop() {
			before := cpu(b)
			s := p.start(b)
			used += cpu(b) - before
			b.StopTimer()
			next, size = s.journal.Next(), s.journal.Size()
			s.die()
			b.StartTimer()
		}
		b.ReportMetric(float64(next), "records")
		b.ReportMetric(float64(size), "bytes")
		b.ReportMetric(float64(used)/float64(b.N), "cpu-ns/op")
	}
	b.Run("genesis", start)
	s := p.start(b)
	b.Run("capture", func(b *testing.B) {
		for b.Loop() {
			s.chronicle.read(func(state *ledger.State) { state.Capture() })
		}
	})
	b.Run("store", func(b *testing.B) {
		for b.Loop() {
			if _, err := s.record(b.Context(), s.journal.Append, &ledger.Retired{Header: ledger.At(time.Now())}); err != nil {
				b.Fatal(err)
			}
			if err := s.take(b.Context()); err != nil {
				b.Fatal(err)
			}
		}
	})
	s.die()
	b.Run("snapshot", start)
	p.tell(b, 12_500)
	b.Run("snapshot+50000", start)
}
