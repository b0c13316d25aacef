package supervisor

import (
	"cmp"
	"context"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/stockade-dev/stockade/internal/journal"
	"github.com/stockade-dev/stockade/supervisor/api"
	"github.com/stockade-dev/stockade/supervisor/ledger"
)

// rounds is how many rounds of races are run, by all together.
func rounds(t *testing.T) int {
	n, err := strconv.Atoi(os.Getenv("STOCKADE_ROUNDS"))
	if os.Getenv("STOCKADE_ROUNDS") == "" {
		n, err = 5000, nil
	}
	if err != nil || n < 1 {
		t.Fatalf("STOCKADE_ROUNDS: %q", os.Getenv("STOCKADE_ROUNDS"))
	}
	return n
}

// roundsOfOne is how many a supervisor lives through.
const roundsOfOne = 1000

// R116, R227, R232, R234, R235, R238, R241: operations that come together have one outcome, and tell it to
// everybody. Afterwards each intent has one receipt, no record asked for what cannot be, and nothing is left:
// no entry, no goroutine, no descriptor, nothing in the runner.
func TestRaces(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	before, open := runtime.NumGoroutine(), descriptors(t)
	policy := loadPolicy(t)
	for left := rounds(t); left > 0 && !t.Failed(); left -= roundsOfOne {
		raceOne(t, func(c *Config) { c.Policy = policy }, min(left, roundsOfOne), seed+uint64(left))
	}
	policy.Close()
	for limit := time.Now().Add(10 * time.Second); runtime.NumGoroutine() > before; time.Sleep(time.Millisecond) {
		if time.Now().After(limit) {
			stacks := make([]byte, 1<<20)
			t.Fatalf("%d goroutines, and before %d\n%s", runtime.NumGoroutine(), before, stacks[:runtime.Stack(stacks, true)])
		}
	}
	if now := descriptors(t); now > open {
		t.Errorf("%d descriptors, and before %d", now, open)
	}
}

// descriptors is how many the process has open.
func descriptors(t *testing.T) int {
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// raceOne has one supervisor live through so many rounds.
func raceOne(t *testing.T, change func(*Config), rounds int, seed uint64) {
	// What is raced for is the order of things, not of disks.
	dir, err := os.MkdirTemp("/dev/shm", "stockade-races-")
	if err != nil {
		dir = t.TempDir()
	}
	defer os.RemoveAll(dir)
	b := startOn(t, newFake(), filepath.Join(dir, "state"), func(c *Config) {
		change(c)
		c.Log = slog.New(slog.NewTextHandler(io.Discard, nil))
		c.Defaults.History = ledger.Limits{History: 1 << 20, Notices: 1 << 22}
	})
	kinds := []func(*racer){(*racer).cancelAndComplete, (*racer).deleteAndFinish, (*racer).closeAndExec, (*racer).cancelQueued}
	var next atomic.Int64
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			r := &racer{bench: b, rand: rand.New(rand.NewPCG(seed, uint64(i))), id: b.session()}
			for n := next.Add(1); n <= int64(rounds) && !t.Failed(); n = next.Add(1) {
				kinds[n%int64(len(kinds))](r)
			}
		})
	}
	all.Wait()
	b.nothingLeft()
	b.stop()
	b.settledOnce()
	if n := len(b.fake.execs) + len(b.fake.specs); n != 0 {
		t.Errorf("the runner has %d of executions and sessions", n)
	}
}

// nothingLeft looks for what a call, an execution or a deletion has left behind.
func (b *bench) nothingLeft() {
	b.t.Helper()
	for _, ses := range b.registry.all() {
		for limit := time.Now().Add(10 * time.Second); len(ses.executing()) > 0 && time.Now().Before(limit); {
			time.Sleep(time.Millisecond)
		}
		ses.mu.Lock()
		if len(ses.live) != 0 || ses.running != 0 || len(ses.waiting) != 0 || len(ses.pipes) != 0 {
			b.t.Errorf("session %s: live %d, running %d, waiting %d, pipes %d", ses.id, len(ses.live), ses.running, len(ses.waiting), len(ses.pipes))
		}
		ses.mu.Unlock()
	}
	r := b.registry
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.calls)+len(r.execs)+len(r.keys)+len(r.running)+len(r.doomed) != 0 {
		b.t.Errorf("calls %d, executions %d, keys %d, counted %v, doomed %v", len(r.calls), len(r.execs), len(r.keys), r.running, r.doomed)
	}
	b.chronicle.read(func(s *ledger.State) {
		if n := s.Refused(); n != 0 {
			b.t.Errorf("%d records asked for what cannot be", n)
		}
	})
}

// settledOnce reads the journal as an auditor would: each intent has one receipt, and each execution came
// to one end.
func (b *bench) settledOnce() {
	b.t.Helper()
	receipts, execs, ends := map[string]int{}, map[string]int{}, map[string]int{}
	err := journal.Scan(filepath.Join(b.state, "journal"), func(_ int64, rec []byte) error {
		var r recorded
		var intent struct {
			IntentID string `json:"intent_id"`
		}
		if err := json.Unmarshal(rec, &r); err != nil {
			return err
		}
		switch r.Type {
		case ledger.TypeIntent:
			if err := json.Unmarshal(rec, &intent); err != nil {
				return err
			}
			receipts[intent.IntentID] += 0
		case ledger.TypeReceipt:
			receipts[r.Receipt.IntentID]++
			if r.Receipt.ExecID != "" {
				execs[r.Receipt.ExecID]++
			}
		case ledger.TypeSessionEnd:
			ends[r.SessionID]++
		}
		return nil
	})
	if err != nil {
		b.t.Error(err)
	}
	for what, counted := range map[string]map[string]int{"intent": receipts, "execution": execs, "session": ends} {
		for id, n := range counted {
			if n != 1 {
				b.t.Errorf("%s %s has %d ends", what, id, n)
			}
		}
	}
}

// A racer runs one round after the other, in a session of its own.
type racer struct {
	*bench
	rand *rand.Rand
	id   string
}

// together runs all at once, each after a short while.
func (r *racer) together(acts ...func()) {
	var all sync.WaitGroup
	start := make(chan struct{})
	for _, act := range acts {
		pause := r.pause()
		all.Go(func() {
			<-start
			time.Sleep(pause)
			act()
		})
	}
	close(start)
	all.Wait()
}

// pause is about as long as a command of a round runs, or nothing.
func (r *racer) pause() time.Duration {
	return max(0, time.Duration(r.rand.IntN(1500)-500)*time.Microsecond)
}

// brief begins a command that ends by itself soon, or has ended already.
func (r *racer) brief() *api.Pending {
	no := false
	ask := &api.Exec{SessionID: r.id, Argv: []string{"for", r.pause().String()}, TimeoutNS: int64(time.Minute), Wait: &no}
	p, done, err := r.Start(context.Background(), &api.Request{Op: api.OpExec, Principal: alice, Exec: ask})
	if err != nil {
		r.t.Fatal(err)
	}
	if done != nil {
		p = &api.Pending{IntentID: done.IntentID, ExecID: done.ExecID}
	}
	return p
}

// cancel returns a cancel, of one of the kinds that there are, that stores its receipt.
func (r *racer) cancel(exec string, into **api.Receipt) func() {
	grace, wait := int64(r.rand.IntN(2))*int64(5*time.Millisecond), r.rand.IntN(4) > 0
	return func() {
		*into = r.do(api.Request{Op: api.OpProcessCancel, Cancel: &api.ProcessCancel{ProcessRef: api.ProcessRef{ExecID: exec}, GraceNS: &grace, Wait: &wait}})
	}
}

// receiptOf waits for the receipt of an execution.
func (r *racer) receiptOf(p *api.Pending) *api.Receipt {
	if c := r.registry.execution(alice, api.ProcessRef{ExecID: p.ExecID}); c != nil {
		select {
		case <-c.call.done:
		case <-time.After(30 * time.Second):
			r.t.Errorf("execution %s does not end", p.ExecID)
			return nil
		}
	}
	got, _, err := r.Receipt(context.Background(), &api.Request{Op: api.OpReceiptGet, Principal: alice, Read: &api.Read{IntentID: p.IntentID}})
	if err != nil {
		r.t.Errorf("execution %s: %v", p.ExecID, err)
		return nil
	}
	return got
}

// agree checks that who canceled and who ran it were told the same, and that the record says so too.
func (r *racer) agree(x *api.Receipt, cancels ...*api.Receipt) {
	if x == nil {
		return
	}
	state := ledger.FinalState(x)
	want := map[api.State]string{api.StateCanceled: api.ControlCanceled, api.StateCompleted: api.ControlFinished}[state]
	if want == "" || (state == api.StateCanceled) != (x.ErrorCode == api.CodeCanceled) {
		r.t.Errorf("it ended %s: %+v", state, x.Payload.Exec)
	}
	for _, c := range cancels {
		switch got := c.Payload.Control; {
		case got.Status == api.ControlCancelRequested:
		case c.Outcome != api.OutcomeOK || got.Status != want || got.State != state:
			r.t.Errorf("it ended %s, and a cancel says %+v", state, got)
		}
	}
	if p, ok := r.chronicle.process(alice, api.ProcessRef{ExecID: x.ExecID}); !ok || p.State != state {
		r.t.Errorf("it ended %s, and its record says %+v", state, p)
	}
	final := 0
	r.chronicle.read(func(s *ledger.State) {
		_, _, last := s.Notices(ledger.OwnerOf(alice), x.SessionID, 0, 0)
		list, _, _ := s.Notices(ledger.OwnerOf(alice), x.SessionID, max(0, last-200), 200)
		for _, n := range list {
			if n.ExecID == x.ExecID && api.State(n.State).Final() {
				final++
			}
		}
	})
	if final != 1 {
		r.t.Errorf("%d events of its end", final)
	}
}

// Cancels, and whatever else can be done to it, against its own end.
func (r *racer) cancelAndComplete() {
	x := r.brief()
	var cancels [2]*api.Receipt
	r.together(
		r.cancel(x.ExecID, &cancels[0]),
		r.cancel(x.ExecID, &cancels[1]),
		func() { r.control(api.OpProcessPause, x.ExecID) },
		func() { r.control(api.OpProcessModify, x.ExecID) },
		func() { r.control(api.OpProcessResume, x.ExecID) },
	)
	r.agree(r.receiptOf(x), cancels[:]...)
}

// Deletes against its end: none takes what lives, and one takes it.
func (r *racer) deleteAndFinish() {
	x := r.brief()
	var deletes [3]*api.Receipt
	acts := make([]func(), len(deletes))
	for i := range deletes {
		acts[i] = func() { deletes[i] = r.control(api.OpProcessDelete, x.ExecID) }
	}
	r.together(acts...)
	done := r.receiptOf(x)
	last := r.control(api.OpProcessDelete, x.ExecID)
	count := map[string]int{}
	for _, d := range append(deletes[:], last) {
		count[d.Payload.Control.Status]++
	}
	if count[api.ControlDeleted] != 1 || last.Payload.Control.Status == api.ControlConflict ||
		count[api.ControlDeleted]+count[api.ControlNotFound]+count[api.ControlConflict] != 4 {
		r.t.Errorf("%v, at last %s", count, last.Payload.Control.Status)
	}
	if done == nil || done.Payload.Exec.Status != "ok" || done.Payload.Exec.ExitCode != 0 {
		r.t.Errorf("it ran: %+v", done)
	}
	if count[api.ControlNotFound] > 0 && !was(deletes[:], api.ControlDeleted) {
		r.t.Errorf("it was not to be found, and nobody had deleted it: %v", count)
	}
	if p, ok := r.chronicle.process(alice, api.ProcessRef{ExecID: x.ExecID}); ok {
		r.t.Errorf("it is there: %+v", p)
	}
}

func was(answers []*api.Receipt, status string) bool {
	return slices.ContainsFunc(answers, func(r *api.Receipt) bool { return r.Payload.Control.Status == status })
}

// The end of a session against what begins in it: each exec has a true end, or never was.
func (r *racer) closeAndExec() {
	id := r.session()
	var execs [3]*api.Receipt
	var closed [2]*api.Receipt
	acts := []func(){
		func() { closed[0] = r.close(id) },
		func() { closed[1] = r.signal(id, "KILL") },
	}
	for i := range execs {
		lasts := r.pause().String()
		acts = append(acts, func() { execs[i] = r.exec(id, "for", lasts) })
	}
	r.together(acts...)
	for _, x := range execs {
		_, known := r.chronicle.process(alice, api.ProcessRef{ExecID: cmp.Or(x.ExecID, "x-none")})
		switch {
		case x.Outcome == api.OutcomeOK && x.ErrorCode == "" && x.Payload.Exec.ExitCode == 0: // it was quicker
		case x.Outcome == api.OutcomeOK && x.ErrorCode == api.CodeSessionClosed && x.Payload.Exec.Status == "signaled":
		case x.Outcome == api.OutcomeFaulted && x.ErrorCode == api.CodeSessionClosed:
			continue // refused, or not started any more
		default:
			r.t.Errorf("%s %s %+v", x.Outcome, x.ErrorCode, x.Payload.Exec)
		}
		if !known {
			r.t.Errorf("no record of %+v", x)
		}
	}
	if c := closed[0]; c.Outcome != api.OutcomeOK || c.Payload.Close.FinalState != "closed" {
		r.t.Errorf("close: %+v", c)
	}
	if c := closed[1]; c.Outcome != api.OutcomeOK || c.Payload.Signal.EndedAtNS != closed[0].Payload.Close.EndedAtNS {
		r.t.Errorf("signal: %+v, close: %+v", c.Payload.Signal, closed[0].Payload.Close)
	}
	var end api.Session
	r.chronicle.read(func(s *ledger.State) { end, _ = s.Session(id) })
	if end.State != "closed" || end.Live != 0 {
		r.t.Errorf("%+v", end)
	}
}

// A cancel against the turn: what was canceled before it was started never is.
func (r *racer) cancelQueued() {
	var before []*api.Pending
	for range 4 {
		before = append(before, r.brief())
	}
	x := r.brief()
	var canceled *api.Receipt
	r.together(r.cancel(x.ExecID, &canceled))
	done := r.receiptOf(x)
	r.agree(done, canceled)
	if done != nil && done.Payload.Exec.StartedAtNS == 0 && r.fake.process(x.ExecID) != nil {
		r.t.Error("it was started, and nobody was told")
	}
	for _, p := range before {
		r.agree(r.receiptOf(p))
	}
}
