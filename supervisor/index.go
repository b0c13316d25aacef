package supervisor

import (
	"cmp"
	"slices"
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
	dropped  int     // entries there were before these
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

func entryOf(seq int64, r *api.Receipt) entry {
	return entry{
		seq:     seq,
		intent:  r.IntentID,
		owner:   &owner{r.Principal.UID, r.Principal.Scope},
		op:      r.Op,
		outcome: r.Outcome,
		session: r.SessionID,
		exec:    r.ExecID,
	}
}

func (x *index) add(e entry) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if known := x.owners[*e.owner]; known != nil {
		e.owner = known
	} else {
		x.owners[*e.owner] = e.owner
	}
	at := x.dropped + len(x.entries)
	x.entries = append(x.entries, e)
	x.byIntent[e.intent] = at
	if e.exec != "" {
		x.byExec[e.exec] = at
	}
}

// trim forgets the receipts before record first, and whom only they were of.
func (x *index) trim(first int64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	n, _ := slices.BinarySearchFunc(x.entries, first, func(e entry, seq int64) int { return cmp.Compare(e.seq, seq) })
	for i := range x.entries[:n] {
		e := &x.entries[i]
		for _, of := range []struct {
			at map[string]int
			id string
		}{{x.byIntent, e.intent}, {x.byExec, e.exec}} {
			if of.at[of.id] == x.dropped+i {
				delete(of.at, of.id)
			}
		}
	}
	x.entries = slices.Clone(x.entries[n:])
	x.dropped += n
	clear(x.owners)
	for i := range x.entries {
		x.owners[*x.entries[i].owner] = x.entries[i].owner
	}
}

// delete hides an execution whose record is gone from view (C10). Its receipts stay.
func (x *index) delete(exec string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if at, ok := x.byExec[exec]; ok {
		x.entries[at-x.dropped].deleted = true
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
	if !ok || *x.entries[at-x.dropped].owner != (owner{p.UID, p.Scope}) {
		return entry{}, false
	}
	return x.entries[at-x.dropped], true
}

// stretch is a part of the index that was looked through.
type stretch struct {
	seqs []int64 // places of what may fit
	last int64   // place of the last that was looked at
	more bool    // there is something behind it
	head int64   // place of the newest of all
}

// How much one look goes through.
const (
	lookedAt  = 1 << 18 // entries, none of which need fit
	lookedFor = 512     // places of what may fit
)

// list goes through the receipts of an owner, or of everybody when there is none, behind place after (0 is the beginning), in the order
// that the filter wants.
func (x *index) list(who *owner, f *api.Read, after int64, limit int) stretch {
	x.mu.RLock()
	defer x.mu.RUnlock()
	out := stretch{last: after}
	if n := len(x.entries); n > 0 {
		out.head = x.entries[n-1].seq
	}
	known := who
	if who != nil {
		known = x.owners[*who]
	}
	at, step, end := len(x.entries)-1, -1, -1
	if after > 0 || f.Order == api.OldestFirst {
		at, _ = slices.BinarySearchFunc(x.entries, after, func(e entry, seq int64) int { return cmp.Compare(e.seq, seq) })
		if f.Order == api.OldestFirst {
			step, end = 1, len(x.entries)
			if at < end && x.entries[at].seq == after {
				at++
			}
		} else {
			at--
		}
	}
	for looked := 0; at != end; at, looked = at+step, looked+1 {
		if looked == lookedAt || len(out.seqs) == limit {
			out.more = true
			break
		}
		e := &x.entries[at]
		out.last = e.seq
		if (who == nil || e.owner == known) && fits(f.SessionID, e.session) && fits(f.ExecID, e.exec) && fits(f.IntentID, e.intent) &&
			fits(f.Op, e.op) && fits(f.Outcome, e.outcome) {
			out.seqs = append(out.seqs, e.seq)
		}
	}
	return out
}

// fits compares with a filter, of which the zero value fits everything.
func fits[T comparable](filter, value T) bool {
	var any T
	return filter == any || filter == value
}
