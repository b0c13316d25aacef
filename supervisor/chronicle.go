package supervisor

import (
	"slices"
	"sync"

	"github.com/stockade-dev/stockade/supervisor/api"
	"github.com/stockade-dev/stockade/supervisor/ledger"
)

// chronicle is what the journal amounts to so far: the state that its records make, applied
// in their order, and the places of receipts and frames. Appends return in any order; whoever
// brings a record here is answered when it, and all before it, are applied.
type chronicle struct {
	mu      sync.Mutex
	state   *ledger.State
	next    int64                   // number of the record that is applied next
	early   map[int64]ledger.Record // durable, and waiting for one with a smaller number
	moved   *sync.Cond              // next has grown
	readers map[ledger.Owner]*readers

	receipts *index
	frames   frameIndex
	names    *names
	waits    wake // what waits for leave has changed
}

// readers wait for the events of one principal.
type readers struct {
	wake  wake
	count int
	last  int64 // event that they were woken for
}

func newChronicle(state *ledger.State, next int64) *chronicle {
	c := &chronicle{
		state:    state,
		next:     next,
		early:    map[int64]ledger.Record{},
		readers:  map[ledger.Owner]*readers{},
		receipts: newIndex(),
		frames:   newFrameIndex(),
		names:    newNames(),
	}
	c.moved = sync.NewCond(&c.mu)
	return c
}

// add applies records that are durable, the first of which has that number, and returns when
// they are applied.
func (c *chronicle) add(first int64, records []ledger.Record) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, r := range records {
		c.early[first+int64(i)] = r
	}
	var failed error
	for r, ok := c.early[c.next]; ok; r, ok = c.early[c.next] {
		delete(c.early, c.next)
		if err := c.apply(c.next, r); err != nil {
			failed = err
		}
		c.next++
	}
	c.moved.Broadcast()
	c.tell()
	for c.next < first+int64(len(records)) {
		c.moved.Wait()
	}
	return failed
}

func (c *chronicle) apply(seq int64, r ledger.Record) error {
	switch r := r.(type) {
	case *ledger.Settled:
		if r.Receipt != nil {
			c.settled(entryOf(seq, r.Receipt), r.Receipt)
		}
	case *ledger.Waiting, *ledger.Verdict:
		defer c.waits.all()
	case *ledger.Frame:
		c.frames.add(r.Frame.IntentID, r.Frame.Seq, seq)
	}
	return c.state.Apply(seq, r)
}

// settled notes where a receipt is. What is deleted is found no more (C10).
func (c *chronicle) settled(e entry, r *api.Receipt) {
	c.receipts.add(e)
	if done := r.Payload.Control; e.op == api.OpProcessDelete && done != nil && done.Status == api.ControlDeleted {
		c.receipts.delete(done.ExecID)
	}
}

// place notes where a record is that the state has from a snapshot.
func (c *chronicle) place(seq int64, g *ledger.Glance) {
	switch g.Type {
	case ledger.TypeReceipt:
		c.receipts.add(entry{
			seq: seq, intent: g.IntentID, owner: &owner{g.Owner.UID, g.Owner.Scope}, op: g.Op, outcome: g.Outcome, session: g.SessionID, exec: g.ExecID,
		})
	case ledger.TypeFrame:
		c.frames.add(g.IntentID, g.FrameSeq, seq)
	}
}

// trim forgets where records before first were.
func (c *chronicle) trim(first int64) {
	c.receipts.trim(first)
	c.names.trim(first)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.frames.trim(first)
}

// tell wakes the readers for whom there is an event.
func (c *chronicle) tell() {
	for owner, r := range c.readers {
		if _, _, last := c.state.Notices(owner, "", 0, 0); last > r.last {
			r.last = last
			r.wake.all()
		}
	}
}

// listen registers a reader of owner's events.
func (c *chronicle) listen(owner ledger.Owner) (w *wake, leave func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.readers[owner]
	if r == nil {
		_, _, last := c.state.Notices(owner, "", 0, 0)
		r = &readers{last: last}
		c.readers[owner] = r
	}
	r.count++
	return &r.wake, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if r.count--; r.count == 0 {
			delete(c.readers, owner)
		}
	}
}

// read looks at the state. look must not keep it, nor wait for anything.
func (c *chronicle) read(look func(*ledger.State)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	look(c.state)
}

// process returns the record of an execution of p's.
func (c *chronicle) process(p api.Principal, ref api.ProcessRef) (api.Process, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var found api.Process
	var ok bool
	if ref.ExecID != "" {
		found, ok = c.state.Process(ref.ExecID)
	} else {
		found, ok = c.state.ProcessOf(ref.IntentID)
	}
	return found, ok && owns(found.Principal, p)
}

// frameIndex finds the frames of the latest intents that have any.
type frameIndex struct {
	places map[string]framed // by intent
	order  []string          // intents, oldest first
}

// framed is where the frames of one intent are, from number first on: those before it are not kept, or
// not found any more.
type framed struct {
	first int64
	at    []int64
}

// framedIntents is how many intents' frames are found without reading the journal through.
const framedIntents = 8192

func newFrameIndex() frameIndex { return frameIndex{places: map[string]framed{}} }

func (x *frameIndex) add(intent string, number, seq int64) {
	f, ok := x.places[intent]
	if !ok {
		f.first = number
		x.order = append(x.order, intent)
		if len(x.order) > 2*framedIntents { // in bulk, so that it costs nothing each
			for _, old := range x.order[:framedIntents] {
				delete(x.places, old)
			}
			x.order = append([]string(nil), x.order[framedIntents:]...)
		}
	}
	f.at = append(f.at, seq)
	x.places[intent] = f
}

func (x *frameIndex) trim(first int64) {
	x.order = slices.DeleteFunc(x.order, func(intent string) bool {
		f := x.places[intent]
		gone, _ := slices.BinarySearch(f.at, first)
		if gone == len(f.at) {
			delete(x.places, intent)
			return true
		}
		x.places[intent] = framed{f.first + int64(gone), slices.Clone(f.at[gone:])}
		return false
	})
}

// framePlaces returns where up to most frames of an intent are in the journal, from the one after
// number after on, and how many of these are not found any more.
func (c *chronicle) framePlaces(intent string, after int64, most int) (places []int64, gone int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f, ok := c.frames.places[intent]
	if !ok {
		return nil, 0
	}
	skip := after + 1 - f.first
	rest := f.at[min(max(0, skip), int64(len(f.at))):]
	return slices.Clone(rest[:min(len(rest), most)]), max(0, -skip)
}
