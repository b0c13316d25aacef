package supervisor

import (
	"maps"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stockade-dev/stockade/rego"
	"github.com/stockade-dev/stockade/sandbox"
	"github.com/stockade-dev/stockade/supervisor/api"
	"github.com/stockade-dev/stockade/supervisor/ledger"
)

var (
	example = api.Destination{Name: "example.org", Ports: []uint16{443}}
	subnet  = api.Destination{CIDR: "192.0.2.0/24"}
)

func withNetwork(mode string, allow ...api.Destination) func(*api.SessionOpen) {
	return func(o *api.SessionOpen) { o.Target.Local.NetworkMode, o.Target.Local.Egress = mode, allow }
}

func (b *bench) narrow(id, mode string, allow ...api.Destination) *api.Receipt {
	b.t.Helper()
	return b.do(api.Request{Op: api.OpSessionNarrow, Narrow: &api.SessionNarrow{SessionID: id, Network: api.GrantNetwork{Mode: mode, Allow: allow}}})
}

// A network only ever becomes less: in the runner, in the grant that policy judges by, in the journal, and for the
// supervisor that comes next. What is more is denied, and nothing is told to the runner.
func TestNarrow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t)
		id := b.session(withNetwork("egress", example, subnet))
		before := b.exec(id, "true")
		if r := b.narrow(id, "full"); r.Outcome != api.OutcomeDenied || r.ErrorCode != api.CodeNotNarrower || r.Deny[0].Subject != "network:full" {
			t.Errorf("%+v", r)
		}
		if r := b.narrow(id, "egress", api.Destination{Name: "example.org"}); r.ErrorCode != api.CodeNotNarrower || r.Deny[0].Subject != "destination:example.org" {
			t.Errorf("%+v", r)
		}
		if b.fake.called("narrow") != 0 {
			t.Error("the runner was told")
		}
		r := b.narrow(id, "egress", example)
		if c := r.Payload.Control; r.Outcome != api.OutcomeOK || c.Status != api.ControlNarrowed || c.Count != 2 {
			t.Errorf("%+v %+v", r, c)
		}
		want := sandbox.Network{Mode: "egress", Allow: []sandbox.Destination{{Name: "example.org", Ports: []uint16{443}}}}
		if diff := cmp.Diff(want, b.fake.networks[id]); diff != "" {
			t.Error(diff)
		}
		if r := b.narrow(id, "egress", subnet); r.ErrorCode != api.CodeNotNarrower {
			t.Errorf("what was taken away came back: %+v", r)
		}
		between := b.exec(id, "true")
		b = b.restart()
		defer b.stop()
		if d := b.shown(id); d.Grant.Network.Mode != "egress" || len(d.Grant.Network.Allow) != 1 || d.Narrowed != 1 {
			t.Errorf("after the restart: %+v", d.Grant.Network)
		}
		if r := b.narrow(id, "egress", subnet); r.ErrorCode != api.CodeNotNarrower {
			t.Errorf("it came back with the restart: %+v", r)
		}
		b.narrow(id, "none")
		after := b.exec(id, "true")
		if r := b.narrow(id, "none"); r.Outcome != api.OutcomeOK {
			t.Errorf("none again: %+v", r)
		}
		for receipt, allow := range map[*api.Receipt]int{before: 2, between: 1, after: 0} {
			got, err := ReadDecision(b.state, receipt.IntentID)
			if err != nil {
				t.Fatal(err)
			}
			if n := len(got.Input.Session.Grant.Network.Allow); n != allow {
				t.Errorf("%d destinations, not %d", n, allow)
			}
			if again := b.policies.current.Decide(t.Context(), got.Entrypoint, got.Input); again.InputDigest != got.InputDigest {
				t.Errorf("input %s, recorded %s", again.InputDigest, got.InputDigest)
			}
		}
		b.close(id)
		if r := b.narrow(id, "none"); r.ErrorCode != api.CodeSessionClosed {
			t.Errorf("%+v", r)
		}
	})
}

// Of two that narrow at the same time, the one that comes later is held against what the other left.
func TestNarrowTwice(t *testing.T) {
	b := start(t)
	defer b.stop()
	id := b.session(withNetwork("egress", example, subnet))
	telling, told := make(chan struct{}), make(chan struct{})
	first := true
	b.fake.hook = func(call string) {
		if call == "narrow egress" && first {
			first = false
			close(telling)
			<-told
		}
	}
	done := make(chan *api.Receipt, 2)
	go func() { done <- b.narrow(id, "egress", example) }()
	<-telling
	go func() { done <- b.narrow(id, "egress", subnet) }() // permitted by what the grant is now
	b.waitFor(func() bool { return b.inFlight() == 2 })
	close(told)
	outcomes := map[api.Outcome]api.Code{}
	for range 2 {
		r := <-done
		outcomes[r.Outcome] = r.ErrorCode
	}
	if want := map[api.Outcome]api.Code{api.OutcomeOK: "", api.OutcomeFaulted: api.CodeNotNarrower}; !maps.Equal(outcomes, want) {
		t.Errorf("%v", outcomes)
	}
	if d := b.shown(id); len(d.Grant.Network.Allow) != 1 || d.Grant.Network.Allow[0].Name != "example.org" {
		t.Errorf("%+v", d.Grant.Network)
	}
}

func (b *bench) inFlight() (n int) {
	b.chronicle.read(func(state *ledger.State) { n = len(state.InFlight()) })
	return n
}

func (b *bench) waitFor(is func() bool) {
	b.t.Helper()
	for range 2000 {
		if is() {
			return
		}
		time.Sleep(time.Millisecond)
	}
	b.t.Fatal("it does not come")
}

func cloneWithout(policy fstest.MapFS, file string) fstest.MapFS {
	less := maps.Clone(policy)
	delete(less, file)
	return less
}

// startWith starts with a policy of the test's.
func startWith(t *testing.T, files fstest.MapFS) *bench {
	t.Helper()
	policy, err := rego.Load(files, rego.Options{Deadline: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	b := startOn(t, newFake(), t.TempDir()+"/state", func(c *Config) { c.Policy = policy })
	b.closers = append(b.closers, policy.Close)
	return b
}
