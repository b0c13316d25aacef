package supervisor

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/go-json-experiment/json"
	"pgregory.net/rapid"

	"github.com/stockade-dev/stockade/internal/journal"
	"github.com/stockade-dev/stockade/policies"
	"github.com/stockade-dev/stockade/rego"
	"github.com/stockade-dev/stockade/supervisor/api"
	"github.com/stockade-dev/stockade/supervisor/ledger"
)

// TestOneReceipt (R107, R115, R253): whatever is asked under the shipped library, each intent has one decision at most and exactly
// one receipt, a denial has reasons and a policy, and nothing was built without an allowance.
func TestOneReceipt(t *testing.T) {
	policy, err := rego.Load(policies.FS, rego.Options{})
	if err != nil {
		t.Fatal(err)
	}
	b := startOn(t, newFake(), t.TempDir()+"/state", func(c *Config) { c.Policy = policy })
	b.closers = append(b.closers, policy.Close)
	defer b.stop()
	outcomes := map[api.Outcome]int{}
	asked := 0
	sessions := map[uint32][]string{}
	rapid.Check(t, func(t *rapid.T) {
		sample := func(what string, values ...string) string { return rapid.SampledFrom(values).Draw(t, what) }
		req := api.Request{Principal: api.Principal{UID: rapid.SampledFrom([]uint32{1000, 1000, 1000, 1001, 0}).Draw(t, "uid"), GID: 1000}, Facade: "test"}
		session := sample("session", append([]string{"none"}, sessions[req.Principal.UID]...)...)
		req.Op = rapid.SampledFrom([]api.Op{api.OpSessionOpen, api.OpSessionOpen, api.OpExec, api.OpSessionSignal, api.OpSessionClose, api.OpDrain}).Draw(t, "op")
		body := map[api.Op]string{
			api.OpSessionOpen: fmt.Sprintf(`{"target":{"local":{"network_mode":%q,"workdir":%q,"env":{%q:"x"}}},"profile":%q,"limits":{"memory_bytes":%d}}`,
				sample("network", "none", "none", "egress", "full"), sample("workdir", "/tmp", "/tmp", "/tmp", "/proc", "/a/../b"), sample("env", "A", "A", "A", "LD_PRELOAD"),
				sample("profile", "workspace", "workspace", "readonly-review", "hermetic", "nobody's"), rapid.SampledFrom([]int64{0, 0, 1 << 24, 1 << 62, -1}).Draw(t, "memory")),
			api.OpExec:          fmt.Sprintf(`{"session_id":%q,"argv":[%q],"cwd":%q}`, session, sample("argv", "true", "true", "true", ""), sample("cwd", "", "/tmp", "/tmp", "../..")),
			api.OpSessionSignal: fmt.Sprintf(`{"session_id":%q,"signal":%q}`, session, sample("signal", "INT", "INT", "PWR")),
			api.OpSessionClose:  fmt.Sprintf(`{"session_id":%q}`, session),
			api.OpDrain:         `{"undo":true}`,
		}[req.Op]
		if _, err := req.SetParameters([]byte(body)); err != nil {
			t.Fatal(err)
		}
		r, err := b.Do(context.Background(), &req, nil)
		if err != nil {
			t.Fatal(err)
		}
		asked++
		if req.Op == api.OpSessionOpen && r.Outcome == api.OutcomeOK {
			sessions[req.Principal.UID] = append(sessions[req.Principal.UID], r.SessionID)
		}
		outcomes[r.Outcome]++
		if r.Outcome == api.OutcomeDenied && (len(r.Deny) == 0 || r.ErrorCode == "" || r.Policy.Digest != policy.Digest()) {
			t.Fatalf("a denial without its reasons: %+v", r)
		}
	})
	intents, decisions, receipts := map[string]bool{}, map[string]int{}, map[string]int{}
	err = journal.Scan(filepath.Join(b.state, "journal"), func(_ int64, text []byte) error {
		var r struct {
			ledger.Header
			IntentID string       `json:"intent_id"`
			Receipt  *api.Receipt `json:"receipt"`
		}
		err := json.Unmarshal(text, &r)
		switch r.Type {
		case ledger.TypeIntent:
			intents[r.IntentID] = true
		case ledger.TypeDecision:
			decisions[r.IntentID]++
		case ledger.TypeReceipt:
			receipts[r.Receipt.IntentID]++
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(intents) != asked || len(receipts) != asked {
		t.Errorf("%d were asked, with %d intents and receipts of %d", asked, len(intents), len(receipts))
	}
	for id := range intents {
		if receipts[id] != 1 || decisions[id] > 1 {
			t.Errorf("%s has %d decisions and %d receipts", id, decisions[id], receipts[id])
		}
	}
	if outcomes[api.OutcomeOK] < 3 || outcomes[api.OutcomeDenied] < 5 || outcomes[api.OutcomeFaulted] < 5 {
		t.Errorf("%v: the requests are no test", outcomes)
	}
}
