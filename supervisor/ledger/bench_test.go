package ledger

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/stockade-dev/stockade/supervisor/api"
)

// journalOf is what n executions in ten sessions leave: with each its intent, decision and receipt, as
// a supervisor writes them.
func journalOf(t testing.TB, n int) [][]byte {
	var journal [][]byte
	add := func(r Record) {
		b, err := Encode(r)
		if err != nil {
			t.Fatal(err)
		}
		journal = append(journal, b)
	}
	now := time.Unix(1700000000, 0)
	for i := range 10 {
		ses := fmt.Sprintf("s-%026d", i)
		req, _ := api.Encode(&api.Request{Op: api.OpSessionOpen, Principal: alice, Facade: "http", Open: &api.SessionOpen{Target: api.Target{Local: &api.Local{}}}})
		id := IntentID(ses, req)
		add(&Intent{Header: At(now), IntentID: id, Nonce: ses, SessionID: ses, Request: req})
		add(&Settled{Header: At(now), Receipt: &api.Receipt{IntentID: id, Op: api.OpSessionOpen, Principal: alice, SessionID: ses, Outcome: api.OutcomeOK,
			Payload: api.Payload{Open: &api.OpenResult{SessionID: ses, Grant: &api.Grant{Profile: "p"}}}}})
	}
	for i := range n {
		ses, exec, nonce := fmt.Sprintf("s-%026d", i%10), fmt.Sprintf("x-%026d", i), fmt.Sprintf("%026d", i)
		req, _ := api.Encode(&api.Request{Op: api.OpExec, Principal: alice, Facade: "http", Exec: &api.Exec{SessionID: ses,
			Argv: []string{"sh", "-c", "make -j2 test && echo all is well"}, Cwd: "/workspace", EnvPatch: map[string]api.EnvValue{"LANG": {Text: "C.UTF-8"}}, TimeoutNS: 60e9}})
		id := IntentID(nonce, req)
		at := now.Add(time.Duration(i) * time.Millisecond)
		add(&Intent{Header: At(at), IntentID: id, Nonce: nonce, SessionID: ses, ExecID: exec, Request: req})
		add(&Decision{Header: At(at), IntentID: id, Policy: api.PolicyRef{Digest: id, Entrypoint: "data.stockade.exec.decision"}, InputDigest: id, Allow: true})
		r := &api.Receipt{Version: 1, IntentID: id, Op: api.OpExec, Principal: alice, SessionID: ses, ExecID: exec, Outcome: api.OutcomeOK, Status: "ok",
			Policy: api.PolicyRef{Digest: id, Entrypoint: "data.stockade.exec.decision", Rules: []string{"exec.rego:12 stockade.exec.decision", "exec.rego:30 stockade.exec.allow"}},
			Payload: api.Payload{Exec: &api.ExecResult{Status: "ok", Stdout: &api.Output{InlineText: &api.InlineText{Text: "all is well\n"}},
				Usage: api.Usage{WallNS: 1e6, CPUNS: 1e6, PeakMemoryBytes: 1 << 20}, StartedAtNS: at.UnixNano(), StartedAt: at.Format(time.RFC3339Nano), EndedAtNS: at.UnixNano() + 1e6, EndedAt: at.Format(time.RFC3339Nano)}},
			AdmittedAtNS: at.UnixNano(), AdmittedAt: at.Format(time.RFC3339Nano), SettledAtNS: at.UnixNano(), SettledAt: at.Format(time.RFC3339Nano)}
		for _, stage := range []string{"admit", "policy", "plan", "intent", "spawn", "run"} {
			r.Timings = append(r.Timings, api.Timing{Stage: stage, NS: 12345})
		}
		add(&Settled{Header: At(at), Receipt: r})
	}
	return journal
}

func replayed(t testing.TB, journal [][]byte) *State {
	s := New()
	for seq, b := range journal {
		r, err := Decode(b)
		if err == nil {
			err = s.Apply(int64(seq), r)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// 100,000 executions are read again in about a second, and what is kept of them does not grow
// with their number.
func BenchmarkReplay(b *testing.B) {
	journal := journalOf(b, 100_000)
	bytes := 0
	for _, r := range journal {
		bytes += len(r)
	}
	b.ReportMetric(float64(bytes)/float64(len(journal)), "B/record")
	for b.Loop() {
		replayed(b, journal)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(journal)), "ns/record")
	before := heap()
	s := replayed(b, journal)
	b.ReportMetric(float64(heap()-before)/(1<<20), "MiB")
	runtime.KeepAlive(s)
	runtime.KeepAlive(journal)
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func BenchmarkSnapshot(b *testing.B) {
	s := replayed(b, journalOf(b, 20_000))
	var snapshot []byte
	for b.Loop() {
		snapshot, _ = s.Snapshot()
	}
	b.SetBytes(int64(len(snapshot)))
}

func BenchmarkRestore(b *testing.B) {
	snapshot, err := replayed(b, journalOf(b, 20_000)).Snapshot()
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := Restore(snapshot); err != nil {
			b.Fatal(err)
		}
	}
	b.SetBytes(int64(len(snapshot)))
}
