package supervisor

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stockade-dev/stockade/sandbox"
	"github.com/stockade-dev/stockade/supervisor/api"
)

// Issue 8: a session says what it uses when it is asked for, and whoever asks often costs the runner no more.
func TestSessionLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := startOn(t, newFake(), t.TempDir()+"/state", func(c *Config) { c.Defaults.LoadInterval = time.Hour })
		defer b.stop()
		id := b.session()
		use := func(l sandbox.Load) {
			b.fake.mu.Lock()
			defer b.fake.mu.Unlock()
			b.fake.load = l
		}
		readings := func() (n int) {
			b.fake.mu.Lock()
			defer b.fake.mu.Unlock()
			for _, call := range b.fake.calls {
				if call == "load" {
					n++
				}
			}
			return n
		}
		look := func() *api.Load {
			t.Helper()
			s, denial, err := b.Session(t.Context(), &api.Request{Op: api.OpSessionGet, Principal: alice, Read: &api.Read{SessionID: id}})
			if err != nil || denial != nil {
				t.Fatal(denial, err)
			}
			list, _, err := b.Sessions(t.Context(), &api.Request{Op: api.OpSessionList, Principal: alice, Read: &api.Read{}})
			if err != nil || len(list.Sessions) != 1 {
				t.Fatal(list, err)
			}
			if diff := cmp.Diff(s.Load, list.Sessions[0].Load); diff != "" {
				t.Error(diff)
			}
			return s.Load
		}
		time.Sleep(time.Second)
		use(sandbox.Load{MemoryBytes: 4096, PIDs: 2, CPUNS: 7})
		x := b.launch(api.Exec{SessionID: id, Argv: []string{"sleep"}, TimeoutNS: int64(10 * time.Minute)})
		synctest.Wait()
		l, at := look(), time.Now().UnixNano()
		if diff := cmp.Diff(&api.Load{SampledAtNS: at, MemoryBytes: 4096, PIDs: 2, CPUNS: 7, OutputBytes: 8}, l); diff != "" || readings() != 1 {
			t.Errorf("%s%d readings", diff, readings())
		}
		use(sandbox.Load{MemoryBytes: 8192, PIDs: 2, CPUNS: 9})
		time.Sleep(loadAge / 2)
		if l := look(); l.MemoryBytes != 4096 || l.SampledAtNS != at {
			t.Errorf("too soon: %+v", l)
		}
		time.Sleep(loadAge / 2)
		if l := look(); l.MemoryBytes != 8192 || l.SampledAtNS == at || readings() != 2 {
			t.Errorf("anew: %+v, %d readings", l, readings())
		}
		b.control(api.OpProcessCancel, x.ExecID)
		r := b.execute(api.Exec{SessionID: id, Argv: []string{"true"}, EnvPatch: map[string]api.EnvValue{"LD_PRELOAD": {Text: "/x"}}})
		if r.Outcome != api.OutcomeDenied {
			t.Fatalf("%+v", r)
		}
		use(sandbox.Load{MemoryBytes: 1})
		time.Sleep(time.Second)
		if l := look(); l.Denied != 1 || l.MemoryBytes != 1 || readings() != 3 {
			t.Errorf("%+v, %d readings", l, readings())
		}
		// A list is no activity, and does not read again what stands still.
		for _, want := range []int{4, 4, 4} {
			time.Sleep(time.Second)
			if _, _, err := b.Sessions(t.Context(), &api.Request{Op: api.OpSessionList, Principal: alice, Read: &api.Read{}}); err != nil || readings() != want {
				t.Errorf("%d readings, want %d, %v", readings(), want, err)
			}
		}
		b.close(id)
		if s, _, _ := b.Session(t.Context(), &api.Request{Op: api.OpSessionGet, Principal: alice, Read: &api.Read{SessionID: id}}); s == nil || s.Load != nil {
			t.Errorf("closed: %+v", s)
		}
	})
}
