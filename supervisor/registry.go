package supervisor

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/stockade-dev/stockade/sandbox"
	"github.com/stockade-dev/stockade/supervisor/api"
	"github.com/stockade-dev/stockade/supervisor/ledger"
)

// registry knows the sessions, the live ones and the last that ended, and the calls that are
// in flight.
type registry struct {
	history int // ended sessions that are kept
	now     func() time.Time

	mu       sync.Mutex
	sessions map[string]*session
	order    []*session // as they were added, oldest first
	live     int
	perUID   map[uint32]int
	calls    map[string]*call   // whose intent is durable, or about to be, by it
	execs    map[string]*call   // of them the executions, by their id
	running  map[uint32]running // live executions by uid
	doomed   map[string]bool    // executions whose record is about to go from view
	keys     map[ownedKey]*call // of calls that have an idempotency key
	asking   map[uint32]asking  // for leave, by uid
	changed  wake               // calls became fewer
}

func newRegistry(history int, now func() time.Time) *registry {
	return &registry{
		history: history, now: now, sessions: map[string]*session{}, perUID: map[uint32]int{},
		calls: map[string]*call{}, execs: map[string]*call{}, keys: map[ownedKey]*call{},
		running: map[uint32]running{}, doomed: map[string]bool{}, asking: map[uint32]asking{},
	}
}

// carry takes in a call whose intent is about to be durable.
func (r *registry) carry(c *call) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls[c.intent] = c
	if c.execution != nil {
		r.execs[c.execution.id] = c
	}
}

// drop takes out a call that is over, or that never came to be.
func (r *registry) drop(c *call) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.calls, c.intent)
	if c.execution != nil {
		delete(r.execs, c.execution.id)
	}
	if key := (ownedKey{ledger.OwnerOf(c.req.Principal), c.req.Key}); c.req.Key != "" && r.keys[key] == c {
		delete(r.keys, key)
	}
	r.changed.all()
}

// execution returns a live execution of p's.
func (r *registry) execution(p api.Principal, ref api.ProcessRef) *execution {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.execs[ref.ExecID]
	if ref.IntentID != "" {
		c = r.calls[ref.IntentID]
	}
	if c == nil || c.execution == nil || !owns(c.execution.session.principal, p) {
		return nil
	}
	return c.execution
}

// call returns a call of p's that is in flight.
func (r *registry) call(p api.Principal, intent string) *call {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.calls[intent]; c != nil && owns(c.req.Principal, p) {
		return c
	}
	return nil
}

// executions returns the live executions of p's.
func (r *registry) executions(p api.Principal) []*execution {
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []*execution
	for _, c := range r.execs {
		if owns(c.execution.session.principal, p) {
			list = append(list, c.execution)
		}
	}
	return list
}

// underway is what lives: the executions, and how many operations wait for leave.
func (r *registry) underway() (live []*execution, waiting int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.execs {
		live = append(live, c.execution)
	}
	for _, a := range r.asking {
		waiting += a.waiting
	}
	return live, waiting
}

// enlist counts one more execution of a user's, if there is room for it under the ceiling, and for its request in
// memory. As for sessions, a scope does not count (R090).
func (r *registry) enlist(c *call, ceiling sandbox.Ceiling) *api.Error {
	uid, size := c.req.Principal.UID, int64(len(c.request))
	r.mu.Lock()
	defer r.mu.Unlock()
	switch l := r.running[uid]; {
	case ceiling.ExecutionsPerPrincipal > 0 && l.executions >= ceiling.ExecutionsPerPrincipal:
		return api.Errorf(api.CodeExecLimit, "user %d has %d live executions, which is the limit", uid, l.executions)
	case l.bytes+size > requestsMemory:
		return api.Errorf(api.CodeExecLimit, "the requests of user %d's live executions have %d bytes, and may have %d with this one's %d", uid, l.bytes, requestsMemory, size)
	}
	r.count(uid, 1, size)
	return nil
}

// requestsMemory is how many bytes the requests of one user's live executions may have, those that wait for their turn
// included. They are in memory for as long, some of them three times: as asked, as recorded, and as stdin.
const requestsMemory = 64 << 20

// relist is enlist of one that lives already.
func (r *registry) relist(c *call) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.count(c.req.Principal.UID, 1, int64(len(c.request)))
}

// delist is the end of what enlist began.
func (r *registry) delist(c *call) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.count(c.req.Principal.UID, -1, -int64(len(c.request)))
}

func (r *registry) count(uid uint32, executions, bytes int64) {
	l := r.running[uid]
	l.executions += executions
	l.bytes += bytes
	if r.running[uid] = l; l.executions == 0 {
		delete(r.running, uid)
	}
}

// running is what one user has live of executions.
type running struct {
	executions int64
	bytes      int64 // of their requests
}

// asking is how much leave one user asks for. Whoever is to give it is a person, or has one's attention.
type asking struct {
	waiting int64
	budget  float64   // how often he may ask at once
	at      time.Time // when that was so; zero: it is all there
}

// await counts one more operation of a user's that waits for leave, if there is room for it.
func (r *registry) await(uid uint32, now time.Time, most, perMinute int64) *api.Error {
	r.mu.Lock()
	defer r.mu.Unlock()
	a := r.asking[uid]
	if budget := float64(perMinute); a.at.IsZero() {
		a.budget = budget
	} else {
		a.budget = min(budget, a.budget+budget*now.Sub(a.at).Minutes())
	}
	a.at = now
	switch {
	case a.waiting >= most:
		return api.Errorf(api.CodeApprovalLimit, "%d operations of user %d wait for leave, which is the limit", a.waiting, uid)
	case a.budget < 1:
		return api.Errorf(api.CodeApprovalLimit, "user %d asks for leave more than %d times a minute", uid, perMinute)
	}
	a.waiting++
	a.budget--
	r.asking[uid] = a
	return nil
}

// reawait counts one that waited already before this supervisor began.
func (r *registry) reawait(uid uint32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	a := r.asking[uid]
	a.waiting++
	r.asking[uid] = a
}

// awaited is the end of what await began.
func (r *registry) awaited(uid uint32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	a := r.asking[uid]
	a.waiting--
	r.asking[uid] = a
}

// held returns the wait of a call in flight, if it waits for leave or did.
func (r *registry) held(intent string) *waiting {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.calls[intent]; c != nil {
		return c.leave
	}
	return nil
}

// doom reserves the deletion of an execution. It reports false when somebody else is about to.
func (r *registry) doom(exec string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.doomed[exec] {
		return false
	}
	r.doomed[exec] = true
	return true
}

// spare gives the reservation back.
func (r *registry) spare(exec string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.doomed, exec)
}

// others counts the calls in flight but one.
func (r *registry) others(own *call) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := len(r.calls)
	if own != nil && r.calls[own.intent] == own {
		n--
	}
	return n
}

// quiet waits until only executions are in flight, or ctx ends.
func (r *registry) quiet(ctx context.Context) {
	for {
		next := r.changed.next()
		r.mu.Lock()
		short := len(r.calls) - len(r.execs)
		r.mu.Unlock()
		if short == 0 {
			return
		}
		select {
		case <-next:
		case <-ctx.Done():
			return
		}
	}
}

// leave ends the timers of sessions that go on without us.
func (r *registry) leave() {
	for _, s := range r.all() {
		s.leave()
	}
}

// add takes a session in, if there is room for one more (R020). Live sessions are
// counted per user, not per scope: a scope is what the caller says, and saying more of
// them must not give more (R090).
func (r *registry) add(s *session, c sandbox.Ceiling) *api.Error {
	r.mu.Lock()
	defer r.mu.Unlock()
	uid := s.principal.UID
	switch {
	case c.Sessions > 0 && int64(r.live) >= c.Sessions:
		return api.Errorf(api.CodeSessionLimit, "there are %d live sessions, which is the limit", r.live)
	case c.SessionsPerPrincipal > 0 && int64(r.perUID[uid]) >= c.SessionsPerPrincipal:
		return api.Errorf(api.CodeSessionLimit, "user %d has %d live sessions, which is the limit", uid, r.perUID[uid])
	}
	r.insert(s)
	r.live++
	r.perUID[uid]++
	return nil
}

// adopt takes in a session that lived before this supervisor began: it is there, whatever the
// ceiling says by now.
func (r *registry) adopt(s *session) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.insert(s)
	r.live++
	r.perUID[s.principal.UID]++
}

// restore takes in a session that ended before this supervisor began.
func (r *registry) restore(s *session) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.insert(s)
	r.forget()
}

func (r *registry) insert(s *session) {
	r.sessions[s.id] = s
	r.order = append(r.order, s)
}

// retire stops counting a session that has ended; it can still be looked at.
func (r *registry) retire(s *session) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.uncount(s)
	r.forget()
}

// remove drops a session that never came to be.
func (r *registry) remove(s *session) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.uncount(s)
	delete(r.sessions, s.id)
	r.order = slices.DeleteFunc(r.order, func(o *session) bool { return o == s })
}

func (r *registry) uncount(s *session) {
	r.live--
	if r.perUID[s.principal.UID]--; r.perUID[s.principal.UID] == 0 {
		delete(r.perUID, s.principal.UID)
	}
}

// forget drops the oldest ended sessions beyond the history, of the users who have the most of them: as what the
// ledger keeps in view, the history is everybody's (R090).
func (r *registry) forget() {
	excess := len(r.sessions) - r.live - r.history
	if excess <= 0 {
		return
	}
	ended, drop := map[uint32]int{}, map[uint32]int{}
	for _, s := range r.order {
		if s.over() {
			ended[s.principal.UID]++
		}
	}
	for ; excess > 0 && len(ended) > 0; excess-- {
		most := slices.MaxFunc(slices.Sorted(maps.Keys(ended)), func(a, b uint32) int { return cmp.Compare(ended[a], ended[b]) })
		drop[most]++
		if ended[most]--; ended[most] == 0 {
			delete(ended, most)
		}
	}
	r.order = slices.DeleteFunc(r.order, func(s *session) bool {
		if drop[s.principal.UID] == 0 || !s.over() {
			return false
		}
		drop[s.principal.UID]--
		delete(r.sessions, s.id)
		return true
	})
}

// retireBefore drops the sessions that ended before an instant.
func (r *registry) retireBefore(at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.order = slices.DeleteFunc(r.order, func(s *session) bool {
		gone := s.endedBefore(at)
		if gone {
			delete(r.sessions, s.id)
		}
		return gone
	})
}

// find returns the session of that id, if p may know of it: one that is still being built
// has no grant to be judged by, and nobody was told its id. Who asks for a session is active in it
// (R021).
func (r *registry) find(p api.Principal, id string) (*session, *api.Error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s := r.sessions[id]; s != nil && owns(s.principal, p) && s.visible() {
		s.touch(r.now())
		return s, nil
	}
	return nil, unknownSession(id)
}

// all returns every session, oldest first.
func (r *registry) all() []*session {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.order)
}
