package supervisor

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stockade-dev/stockade/supervisor/api"
	"github.com/stockade-dev/stockade/supervisor/ledger"
)

// with asks for an execution under an idempotency key.
func (b *bench) with(key string, x api.Exec) (*api.Receipt, error) {
	return b.Do(context.Background(), &api.Request{Op: api.OpExec, Principal: alice, Key: key, Exec: &x}, nil)
}

// A key makes an operation happen once: the answer is the same receipt, while it is in flight
// and afterwards, from the next supervisor too; another request under the key is a conflict.
func TestKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t)
		id := b.session()
		x := api.Exec{SessionID: id, Argv: []string{"for", "3s"}}
		var receipts [3]*api.Receipt
		var all sync.WaitGroup
		for i := range receipts {
			all.Go(func() {
				time.Sleep(time.Duration(i) * time.Second) // before, in the middle of and at the end of the run
				var err error
				if receipts[i], err = b.with("k", x); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		again, err := b.with("k", x)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range append(receipts[1:], again) {
			if diff := cmp.Diff(receipts[0], r); diff != "" {
				t.Error(diff)
			}
		}
		if n := b.fake.called("start for"); n != 1 {
			t.Errorf("%d commands were started", n)
		}
		other := x
		other.Argv = []string{"true"}
		if _, err := b.with("k", other); code(err) != api.CodeKeyConflict {
			t.Errorf("another request: %v", err)
		}
		mallory := api.Principal{UID: 1001, GID: 1001}
		if r, err := b.Do(t.Context(), &api.Request{Op: api.OpExec, Principal: mallory, Key: "k", Exec: &x}, nil); err != nil || r.ErrorCode != api.CodeSessionNotFound {
			t.Errorf("somebody else's key of the same name: %+v %v", r, err)
		}
		refused, err := b.with("no", api.Exec{SessionID: id, Argv: []string{"true", "forbidden"}})
		if err != nil || refused.Outcome != api.OutcomeDenied {
			t.Fatalf("%+v %v", refused, err)
		}

		b = b.restart()
		defer b.stop()
		for key, want := range map[string]*api.Receipt{"k": receipts[0], "no": refused} {
			ask := x
			if key == "no" {
				ask.Argv = []string{"true", "forbidden"}
			}
			r, err := b.with(key, ask)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, r); diff != "" {
				t.Errorf("after a restart: %s", diff)
			}
		}
		if _, err := b.with("k", other); code(err) != api.CodeKeyConflict {
			t.Errorf("another request after a restart: %v", err)
		}
	})
}

func code(err error) api.Code {
	if e, ok := errors.AsType[*api.Error](err); ok {
		return e.Code
	}
	return ""
}

// Many at once under one key: one command, one receipt.
func TestKeyAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t)
		defer b.stop()
		x := api.Exec{SessionID: b.session(), Argv: []string{"echo", "once"}}
		intents := make(chan string, 64)
		var all sync.WaitGroup
		for range cap(intents) {
			all.Go(func() {
				r, err := b.with("k", x)
				if err != nil {
					t.Error(err)
					return
				}
				intents <- r.IntentID
			})
		}
		all.Wait()
		close(intents)
		first := <-intents
		for other := range intents {
			if other != first {
				t.Errorf("%s and %s", first, other)
			}
		}
		if n := b.fake.called("start echo"); n != 1 {
			t.Errorf("%d commands were started", n)
		}
	})
}

// A key that is used again holds nobody else up: the receipt, which can be large, is not read while the
// registry is held, but by who was told where it is.
func TestKeyHoldsNothingUp(t *testing.T) {
	b := start(t)
	defer b.stop()
	x := api.Exec{SessionID: b.session(), Argv: []string{"true"}}
	first, err := b.with("k", x)
	if err != nil {
		t.Fatal(err)
	}
	c, err := b.newCall(&api.Request{Op: api.OpExec, Principal: alice, Key: "k", Exec: &x})
	if err != nil {
		t.Fatal(err)
	}
	defer b.admission.leave()
	c.digest = ledger.Digest(c.request)
	if earlier, entry, err := b.registry.claim(c, b.chronicle); err != nil || earlier != nil || entry.Intent != first.IntentID {
		t.Errorf("%+v %+v %v", earlier, entry, err)
	}
}
