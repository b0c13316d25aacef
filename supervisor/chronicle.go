package supervisor

import (
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
		c.receipts.add(seq, r.Receipt)
		if done := r.Receipt.Payload.Control; r.Receipt.Op == api.OpProcessDelete && done != nil && done.Status == api.ControlDeleted {
			c.receipts.delete(done.ExecID)
		}
	case *ledger.Frame:
		c.frames.add(r.Frame.IntentID, seq)
	}
	return c.state.Apply(seq, r)
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
	places map[string][]int64 // by intent, in order
	order  []string           // intents, oldest first
}

// framedIntents is how many intents' frames are found without reading the journal through.
const framedIntents = 8192

func newFrameIndex() frameIndex { return frameIndex{places: map[string][]int64{}} }

func (x *frameIndex) add(intent string, seq int64) {
	if x.places[intent] == nil {
		x.order = append(x.order, intent)
		if len(x.order) > 2*framedIntents { // in bulk, so that it costs nothing each
			for _, old := range x.order[:framedIntents] {
				delete(x.places, old)
			}
			x.order = append([]string(nil), x.order[framedIntents:]...)
		}
	}
	x.places[intent] = append(x.places[intent], seq)
}

// framePlaces returns where the frames of an intent are in the journal, from the one after
// seq on.
func (c *chronicle) framePlaces(intent string, after int64) []int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	places := c.frames.places[intent]
	if after >= int64(len(places)) {
		return nil
	}
	return append([]int64(nil), places[max(0, after):]...)
}
