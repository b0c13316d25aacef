package supervisor

import (
	"log/slog"
	"testing"

	"github.com/stockade-dev/stockade/rego"
	"github.com/stockade-dev/stockade/supervisor/api"
)

// BenchmarkExec is what the supervisor itself adds to an execution: policy, two durable
// appends, and the bookkeeping. Nothing is spawned.
func BenchmarkExec(b *testing.B) {
	policy, err := rego.Load(testPolicy, rego.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer policy.Close()
	s, err := New(b.Context(), Config{State: b.TempDir() + "/state", Policy: policy, Launcher: newFake(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close(b.Context())
	open, err := s.Do(b.Context(), &api.Request{Op: api.OpSessionOpen, Principal: alice, Open: &api.SessionOpen{Target: api.Target{Local: &api.Local{}}}}, nil)
	if err != nil {
		b.Fatal(err)
	}
	req := api.Request{Op: api.OpExec, Principal: alice, Facade: "test", Exec: &api.Exec{SessionID: open.SessionID, Argv: []string{"true"}}}
	b.ReportAllocs()
	for b.Loop() {
		r, err := s.Do(b.Context(), &req, nil)
		if err != nil || r.Outcome != api.OutcomeOK {
			b.Fatal(r, err)
		}
	}
}
