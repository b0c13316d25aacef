package ledger

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/stockade-dev/stockade/supervisor/api"
)

// Limits bound what a State keeps of what is over. What lives is never dropped (R240). 0 means
// the default.
type Limits struct {
	History  int `json:"history,omitzero"`  // executions that have ended; 2000
	Sessions int `json:"sessions,omitzero"` // sessions that have ended; 2000
	Intents  int `json:"intents,omitzero"`  // intents that are settled; 10000
	Notices  int `json:"notices,omitzero"`  // events, of all logs; 65536
	Keys     int `json:"keys,omitzero"`     // idempotency keys of settled intents; 100000
}

func (l Limits) orDefault() Limits {
	return Limits{
		History:  cmp.Or(l.History, 2000),
		Sessions: cmp.Or(l.Sessions, 2000),
		Intents:  cmp.Or(l.Intents, 10000),
		Notices:  cmp.Or(l.Notices, 65536),
		Keys:     cmp.Or(l.Keys, 100000),
	}
}

func (l Limits) valid() bool {
	return min(l.History, l.Sessions, l.Intents, l.Notices, l.Keys) >= 0
}

// Owner is a principal as far as ownership goes. Groups do not count; they may change while
// what it owns lives.
type Owner struct {
	UID   uint32    `json:"uid"`
	Scope api.Scope `json:"scope,omitzero"`
}

// OwnerOf returns whose p's things are.
func OwnerOf(p api.Principal) Owner { return Owner{p.UID, p.Scope} }

// Instance is the owner as the origin of a frame names it: the uid, and the scope if there is one.
func (o Owner) Instance() string {
	name := strconv.FormatUint(uint64(o.UID), 10)
	if o.Scope == (api.Scope{}) {
		return name
	}
	return name + "/" + strings.Join([]string{url.PathEscape(o.Scope.AgentID), url.PathEscape(o.Scope.WorldID), url.PathEscape(o.Scope.ChatID)}, "/")
}

func (o Owner) compare(p Owner) int {
	return cmp.Or(
		cmp.Compare(o.UID, p.UID),
		strings.Compare(o.Scope.AgentID, p.Scope.AgentID),
		strings.Compare(o.Scope.WorldID, p.Scope.WorldID),
		strings.Compare(o.Scope.ChatID, p.Scope.ChatID),
	)
}

// State is the fold.
type State struct {
	limits  Limits
	next    int64
	refused int64

	owners map[Owner]*owner

	intents  map[string]*intent
	admitted roll[intent]   // by the record of the intent
	settled  shared[intent] // by that of the receipt

	keys     map[keyName]*key
	usedKeys shared[key] // of settled intents, by the record of the receipt

	approvals map[string]*approval
	asked     roll[approval] // all of them, by the record that changed them last

	processes map[string]*process
	startedBy map[string]*process // by intent
	queue     roll[process]       // all of them, by the record of the intent
	ended     shared[process]     // by that of the receipt

	sessions map[string]*session
	opened   roll[session]   // all of them, by the receipt of the open
	closed   shared[session] // by the record of the end

	events events
}

// owner is an Owner that has something here.
type owner struct {
	Owner
	log log
}

// New returns the state before the first record.
func New() *State {
	return &State{
		limits:    Limits{}.orDefault(),
		owners:    map[Owner]*owner{},
		intents:   map[string]*intent{},
		keys:      map[keyName]*key{},
		approvals: map[string]*approval{},
		processes: map[string]*process{},
		startedBy: map[string]*process{},
		sessions:  map[string]*session{},
	}
}

// Records is the number of the record that comes next: so many has the state seen, or left to
// the snapshot that it came from.
func (s *State) Records() int64 { return s.next }

// Refused is how often, since the first record, a record asked for what cannot be.
func (s *State) Refused() int64 { return s.refused }

// Apply takes record seq of the journal in. Records come in order; the caller must not change r, nor
// what it points to, afterwards. It fails only for a record that contradicts the format, and then
// nothing has changed.
func (s *State) Apply(seq int64, r Record) error {
	if seq < s.next || seq == math.MaxInt64 {
		return fmt.Errorf("record %d: the next one is %d", seq, s.next)
	}
	if err := s.apply(seq, r); err != nil {
		return fmt.Errorf("record %d: %w", seq, err)
	}
	s.next = seq + 1
	s.evict()
	return nil
}

func (s *State) apply(seq int64, r Record) error {
	switch r := r.(type) {
	case *Start:
		if !r.Limits.valid() {
			return errors.New("a limit is negative")
		}
		s.limits = r.Limits.orDefault()
	case *Intent:
		return s.admit(seq, r)
	case *Waiting:
		return s.wait(seq, r)
	case *Verdict:
		return s.decide(seq, r)
	case *Frame:
		s.frame(r)
	case *Settled:
		if r.Receipt == nil || r.Receipt.Outcome == "" {
			return errors.New("a receipt record without a receipt, or one without an outcome")
		}
		s.settle(seq, r)
	case *Notice:
		s.notice(r)
	case *Narrowed:
		s.narrow(r)
	case *SessionEnd:
		if r.State != sessionClosed && r.State != sessionError {
			return fmt.Errorf("a session cannot end as %q", r.State)
		}
		s.endSession(seq, r)
	case *Adopted:
		s.adopt(r)
	case *Retired:
		s.retire(r)
	case *Policy:
		s.policy(r)
	case *Reload:
		s.note(s.owner(r.Principal), api.Notice{
			Kind: api.NoticeConfiguration, AtNS: r.AtNS, State: PolicyRefused, Reason: r.Trigger, Detail: shorten(r.Message, maxDetail),
		})
	case *Decision, *SnapshotTaken: // they change nothing
	default:
		return fmt.Errorf("%T is no record", r)
	}
	return nil
}

// policy tells who brought a policy, or the supervisor's own user, what became of it. At a start the user sees that himself,
// unless it was refused.
func (s *State) policy(r *Policy) {
	if r.Trigger == TriggerDeclared || r.Trigger == TriggerStart && r.State != PolicyRefused {
		return
	}
	n := api.Notice{Kind: api.NoticePolicy, AtNS: r.AtNS, State: r.State, Reason: r.Trigger, Detail: r.Revision.Digest}
	if r.State == PolicyRefused {
		n.Detail = shorten(string(r.ErrorCode)+": "+r.Message, maxDetail)
	}
	s.note(s.owner(r.Principal), n)
}

// maxDetail is how much of a reason an event has.
const maxDetail = 512

// refuse counts what a record asks for and cannot be.
func (s *State) refuse() { s.refused++ }

func (s *State) owner(p api.Principal) *owner {
	o := OwnerOf(p)
	if s.owners[o] == nil {
		s.owners[o] = &owner{Owner: o}
	}
	return s.owners[o]
}

// evict drops what is over and too much, the oldest first, of the user who has the most.
func (s *State) evict() {
	for s.ended.len() > s.limits.History {
		s.dropProcess(s.ended.excess())
	}
	for s.closed.len() > s.limits.Sessions {
		s.dropSession(s.closed.excess())
	}
	for s.settled.len() > s.limits.Intents {
		s.dropIntent(s.settled.excess())
	}
	for s.usedKeys.len() > s.limits.Keys {
		s.dropKey(s.usedKeys.excess())
	}
	for s.events.size > s.limits.Notices {
		s.dropEvent(largest(s.events.byUser, (*userEvents).len, (*userEvents).since))
	}
}

// retire drops what ended before an instant, and what is named and has ended.
func (s *State) retire(r *Retired) {
	before := r.BeforeNS
	for p := range s.ended.all() {
		if p.EndedAtNS < before || slices.Contains(r.Executions, p.ExecID) {
			s.dropProcess(p)
		}
	}
	for ses := range s.closed.all() {
		if ses.EndedAtNS < before || slices.Contains(r.Sessions, ses.SessionID) {
			s.dropSession(ses)
		}
	}
	for it := range s.settled.all() {
		if it.SettledAtNS < before {
			s.dropIntent(it)
		}
	}
	for k := range s.usedKeys.all() {
		if k.settledAtNS < before {
			s.dropKey(k)
		}
	}
	for uid, u := range s.events.byUser {
		for u.kept.len > 0 && u.kept.at(0).AtNS < before {
			s.dropEvent(uid)
		}
	}
	s.dropOwners()
}

// Overdue reports whether the first that ended, of any kind, ended before an instant: then a [Retired] with
// it has something to take out of view.
func (s *State) Overdue(beforeNS int64) bool {
	for p := range s.ended.oldest() {
		if p.EndedAtNS < beforeNS {
			return true
		}
	}
	for ses := range s.closed.oldest() {
		if ses.EndedAtNS < beforeNS {
			return true
		}
	}
	for it := range s.settled.oldest() {
		if it.SettledAtNS < beforeNS {
			return true
		}
	}
	for k := range s.usedKeys.oldest() {
		if k.settledAtNS < beforeNS {
			return true
		}
	}
	for _, u := range s.events.byUser {
		if u.kept.at(0).AtNS < beforeNS {
			return true
		}
	}
	return false
}

// dropOwners forgets who has nothing left here. A scope is what the caller says, so there can
// be any number of them. Who comes back has a log that begins with 1 again.
func (s *State) dropOwners() {
	used := map[*owner]bool{}
	for it := range s.admitted.upward() {
		used[it.owner] = true
	}
	for p := range s.queue.upward() {
		used[p.owner] = true
	}
	for ses := range s.opened.upward() {
		used[ses.owner] = true
	}
	for name := range s.keys {
		used[name.owner] = true
	}
	for _, u := range s.events.byUser {
		for i := range u.kept.len {
			used[u.kept.at(i).owner] = true
		}
	}
	for name, o := range s.owners {
		if !used[o] {
			delete(s.owners, name)
		}
	}
}

// shorten cuts text for a record.
func shorten(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}

// fits compares with a filter, of which the zero value fits everything.
func fits[T comparable](filter, value T) bool {
	var any T
	return filter == any || filter == value
}

// labelled reports whether labels has everything that filter has.
func labelled(filter, labels map[string]string) bool {
	for name, want := range filter {
		if got, ok := labels[name]; !ok || got != want {
			return false
		}
	}
	return true
}

func unique[T cmp.Ordered](names []T) []T {
	slices.Sort(names)
	return slices.Compact(names)
}
