package runc

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stockade-dev/stockade/sandbox"
)

// stocked gives the runner of the tests a full stock until the test ends.
func stocked(t testing.TB, r *Runner, size int) {
	t.Helper()
	restock := func(size int) {
		for _, slot := range r.stock.close() {
			r.discard(slot)
		}
		r.stock = r.newStock(size)
	}
	restock(size)
	t.Cleanup(func() { restock(0) })
	full(t, r, size)
}

// full waits until the stock is.
func full(t testing.TB, r *Runner, size int) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); len(r.stock.slots) < size; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d of %d slots after 10 s", len(r.stock.slots), size)
		}
	}
}

// TestStock opens sessions with and without a stock: they are the same but for their
// numbers, the stock is made up for, and nothing of it is left (R024, T036).
func TestStock(t *testing.T) {
	r := newRunner(t)
	before := residueOf(t, r)
	bare := open(t, r, hostSpec("bare"))
	closeSession(t, r, "bare")

	t.Run("in use", func(t *testing.T) {
		r.options.Ceiling.Sessions = 3
		stocked(t, r, 2)
		var all sync.WaitGroup
		for _, id := range []string{"a", "b", "c"} { // one more than there are
			all.Go(func() {
				e, err := r.Open(context.Background(), hostSpec(id))
				if err != nil {
					t.Error(err)
					return
				}
				if len(e.Timings) != len(steps) {
					t.Errorf("timings %v", e.Timings)
				}
				if e.MemoryBytes != bare.MemoryBytes || e.PIDs != bare.PIDs || e.CPUMillis != bare.CPUMillis || !slices.Equal(e.Mounts, bare.Mounts) {
					t.Errorf("%+v, without a stock %+v", e, bare)
				}
			})
		}
		all.Wait()
		full(t, r, 2)
		if _, err := r.Open(context.Background(), hostSpec("d")); codeOf(err) != sandbox.CodeBusy {
			t.Errorf("a fourth of three sessions: %v", err) // and the stock counts for none
		}
		for _, id := range []string{"a", "b", "c"} {
			// Each hierarchy, whichever there are, begins at the session.
			contains(t, "output", shell(t, r, id, "id -u; grep -c stockade- /proc/self/cgroup; cat /proc/self/cgroup").stdout, "1000\n0\n", "0::/x/")
			closeSession(t, r, id)
		}
	})
	before.mustLeaveNothing(t, r)

	t.Run("claimed and given up", func(t *testing.T) {
		stocked(t, r, 1)
		for _, step := range []string{"slot", "bound", "evidence"} {
			r.meddle = func(s string, _ *opening) error {
				if s == step {
					return errors.New("injected")
				}
				return nil
			}
			_, err := r.Open(context.Background(), hostSpec("fails"))
			r.meddle = nil
			if err == nil || !strings.Contains(err.Error(), "injected") {
				t.Errorf("%s: %v", step, err)
			}
			full(t, r, 1)
		}
	})
	before.mustLeaveNothing(t, r)
}

// TestStockFails has no ids left for the stock: an open that needs some says so, and the
// stock fills up when there are again.
func TestStockFails(t *testing.T) {
	r := newRunner(t)
	before := residueOf(t, r)
	t.Run("no ids", func(t *testing.T) {
		// For this runner only: the file is every runner's of the machine.
		r.ids.mu.Lock()
		before := r.ids.taken
		for i := range r.ids.taken {
			r.ids.taken[i] = true
		}
		r.ids.mu.Unlock()
		stock := r.newStock(1)
		r.stock, stock = stock, r.stock
		_, err := r.Open(context.Background(), hostSpec("s"))
		if codeOf(err) != sandbox.CodeBusy {
			t.Errorf("got %v", err)
		}
		r.ids.mu.Lock()
		r.ids.taken = before
		r.ids.mu.Unlock()
		open(t, r, hostSpec("s"))
		closeSession(t, r, "s")
		full(t, r, 1)
		r.stock, stock = stock, r.stock
		for _, slot := range stock.close() {
			r.discard(slot)
		}
	})
	before.mustLeaveNothing(t, r)
}
