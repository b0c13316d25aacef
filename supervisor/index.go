package supervisor

import (
	"sync"

	"github.com/stockade-dev/stockade/supervisor/api"
)

// index finds receipts in the journal. It holds places, not receipts: what is answered
// is what was made durable.
type index struct {
	mu       sync.RWMutex
	byIntent map[string]int // to entries
	byExec   map[string]int
	entries  []entry // oldest first
	owners   map[owner]*owner
}

// owner is a principal as far as ownership goes.
type owner struct {
	uid   uint32
	scope api.Scope
}

// entry is the place of one receipt, and what lists filter by.
type entry struct {
	seq     int64
	intent  string
	owner   *owner // shared by all entries of one owner
	op      api.Op
	outcome api.Outcome
	session string
	exec    string
	deleted bool // its caller did away with the execution: its receipt is all that there is
}

func newIndex() *index {
	return &index{byIntent: map[string]int{}, byExec: map[string]int{}, owners: map[owner]*owner{}}
}

func (x *index) add(seq int64, r *api.Receipt) {
	x.mu.Lock()
	defer x.mu.Unlock()
	who := owner{r.Principal.UID, r.Principal.Scope}
	if x.owners[who] == nil {
		x.owners[who] = &who
	}
	at := len(x.entries)
	x.entries = append(x.entries, entry{
		seq:     seq,
		intent:  r.IntentID,
		owner:   x.owners[who],
		op:      r.Op,
		outcome: r.Outcome,
		session: r.SessionID,
		exec:    r.ExecID,
	})
	x.byIntent[r.IntentID] = at
	if r.ExecID != "" {
		x.byExec[r.ExecID] = at
	}
}

// delete hides an execution whose record is gone from view (C10). Its receipts stay.
func (x *index) delete(exec string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if at, ok := x.byExec[exec]; ok {
		x.entries[at].deleted = true
		delete(x.byExec, exec)
	}
}

// intent returns the entry of an intent of p's.
func (x *index) intent(p api.Principal, id string) (entry, bool) { return x.find(p, x.byIntent, id) }

// exec returns the entry of an execution of p's.
func (x *index) exec(p api.Principal, id string) (entry, bool) { return x.find(p, x.byExec, id) }

func (x *index) find(p api.Principal, by map[string]int, id string) (entry, bool) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	at, ok := by[id]
	if !ok || *x.entries[at].owner != (owner{p.UID, p.Scope}) {
		return entry{}, false
	}
	return x.entries[at], true
}

// list returns the places of p's receipts that fit the filter, newest first.
func (x *index) list(p api.Principal, f *api.Read, limit int) []int64 {
	x.mu.RLock()
	defer x.mu.RUnlock()
	who := x.owners[owner{p.UID, p.Scope}]
	var seqs []int64
	for at := len(x.entries) - 1; at >= 0 && len(seqs) < limit; at-- {
		e := &x.entries[at]
		if e.owner == who && fits(f.SessionID, e.session) && fits(f.ExecID, e.exec) && fits(f.IntentID, e.intent) &&
			fits(f.Op, e.op) && fits(f.Outcome, e.outcome) {
			seqs = append(seqs, e.seq)
		}
	}
	return seqs
}

// fits compares with a filter, of which the zero value fits everything.
func fits[T comparable](filter, value T) bool {
	var any T
	return filter == any || filter == value
}
