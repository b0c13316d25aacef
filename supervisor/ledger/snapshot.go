package ledger

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/go-json-experiment/json"

	"github.com/stockade-dev/stockade/supervisor/api"
)

// snapshotVersion is that of the documents below. A change of what Apply makes of records changes
// it too. Documents since oldestSnapshot are taken up: where the journal has been trimmed, nothing else stands for
// what is gone. Version 2 knew no narrowed network and summed up nothing until a session had ended; its
// sums begin with the records behind it. Before version 4 nothing waited for leave.
const (
	snapshotVersion = 4
	oldestSnapshot  = 2
)

// snapshot is a State as a document. Owners are named by their place in the list of owners. Every list
// has one order, so that equal states have equal bytes.
type snapshot struct {
	Version   int                `json:"version"`
	Records   int64              `json:"records"`
	Limits    Limits             `json:"limits"`
	Refused   int64              `json:"refused"`
	Owners    []ownerSnapshot    `json:"owners"`              // by uid and scope
	Intents   []intentSnapshot   `json:"intents"`             // oldest first, as what follows
	Keys      []keySnapshot      `json:"keys"`                //
	Approvals []approvalSnapshot `json:"approvals,omitempty"` // by the record that changed them last
	Sessions  []sessionSnapshot  `json:"sessions"`            //
	Processes []processSnapshot  `json:"processes"`           //
	Events    []eventSnapshot    `json:"events"`              // by uid, and then so
}

type ownerSnapshot struct {
	Owner
	Events int64 `json:"events"` // number of the last one
}

type intentSnapshot struct {
	Owner   int        `json:"owner"`
	Intent  api.Intent `json:"intent"`
	Receipt int64      `json:"receipt,omitzero"`
	Blob    string     `json:"blob,omitempty"`
	Open    *opening   `json:"open,omitzero"`
}

type keySnapshot struct {
	Owner       int    `json:"owner"`
	Key         string `json:"key"`
	Intent      string `json:"intent"`
	Digest      string `json:"digest"`
	Seq         int64  `json:"seq"`
	Receipt     int64  `json:"receipt,omitzero"`
	SettledAtNS int64  `json:"settled_at_ns,omitzero"`
}

type approvalSnapshot struct {
	Approval api.Approval `json:"approval"`
	Seq      int64        `json:"seq"`
	Changed  int64        `json:"changed"`
}

type sessionSnapshot struct {
	Owner   int         `json:"owner"`
	Session api.Session `json:"session"`
	Seq     int64       `json:"seq"`
	Receipt int64       `json:"receipt"`
	End     int64       `json:"end,omitzero"`
}

type processSnapshot struct {
	Owner    int         `json:"owner"`
	Process  api.Process `json:"process"`
	Seq      int64       `json:"seq"`
	Opened   int64       `json:"opened"`
	Receipt  int64       `json:"receipt,omitzero"`
	Blobs    []string    `json:"blobs,omitempty"`
	Told     int64       `json:"told,omitzero"`
	Progress Progress    `json:"progress,omitzero"`
}

type eventSnapshot struct {
	Owner     int        `json:"owner"`
	Notice    api.Notice `json:"notice"`
	InSession int64      `json:"in_session,omitzero"`
}

// Capture is a copy of a State, as a document. Records that are applied later do not change it.
type Capture struct{ doc snapshot }

// Capture copies what a snapshot holds. That takes a fraction of the time that writing it down takes,
// and who waits for the state need wait no longer.
func (s *State) Capture() Capture {
	owners := slices.SortedFunc(maps.Values(s.owners), func(a, b *owner) int { return a.compare(b.Owner) })
	at := make(map[*owner]int, len(owners))
	doc := snapshot{
		Version:   snapshotVersion,
		Records:   s.next,
		Limits:    s.limits,
		Refused:   s.refused,
		Intents:   slices.Grow([]intentSnapshot(nil), s.admitted.len()),
		Keys:      slices.Grow([]keySnapshot(nil), len(s.keys)),
		Sessions:  slices.Grow([]sessionSnapshot(nil), s.opened.len()),
		Processes: slices.Grow([]processSnapshot(nil), s.queue.len()),
		Events:    slices.Grow([]eventSnapshot(nil), s.events.size),
	}
	for i, o := range owners {
		at[o] = i
		doc.Owners = append(doc.Owners, ownerSnapshot{o.Owner, o.log.last})
	}
	for it := range s.admitted.upward() {
		doc.Intents = append(doc.Intents, intentSnapshot{at[it.owner], it.Intent, it.receipt, it.blob, it.open})
	}
	for _, k := range s.keys {
		doc.Keys = append(doc.Keys, keySnapshot{at[k.name.owner], k.name.key, k.intent, k.digest, k.seq, k.receipt, k.settledAtNS})
	}
	for a := range s.asked.upward() {
		doc.Approvals = append(doc.Approvals, approvalSnapshot{a.Approval, a.seq, a.changed})
	}
	for ses := range s.opened.upward() {
		d := ses.Session
		d.Events = ses.log.last
		doc.Sessions = append(doc.Sessions, sessionSnapshot{at[ses.owner], d, ses.seq, ses.receipt, ses.end})
	}
	for p := range s.queue.upward() {
		doc.Processes = append(doc.Processes, processSnapshot{at[p.owner], p.Process, p.seq, p.opened, p.receipt, p.blobs, p.told, p.progress})
	}
	for _, uid := range slices.Sorted(maps.Keys(s.events.byUser)) {
		u := s.events.byUser[uid]
		for i := range u.kept.len {
			e := u.kept.at(i)
			doc.Events = append(doc.Events, eventSnapshot{at[e.owner], e.Notice, e.inSession})
		}
	}
	return Capture{doc}
}

// Records is how many records the capture covers.
func (c Capture) Records() int64 { return c.doc.Records }

// Write writes the canonical bytes, a piece at a time, and names them: equal states have equal bytes.
func (c Capture) Write(w io.Writer) (ref string, size int64, err error) {
	slices.SortFunc(c.doc.Keys, func(a, b keySnapshot) int { return cmp.Compare(a.Seq, b.Seq) })
	h, n := sha256.New(), new(count)
	if err := api.Write(io.MultiWriter(w, h, n), &c.doc); err != nil {
		return "", 0, fmt.Errorf("snapshot: %w", err)
	}
	return digest(h), int64(*n), nil
}

// count is how many bytes were written to it.
type count int64

func (n *count) Write(b []byte) (int, error) {
	*n += count(len(b))
	return len(b), nil
}

// Snapshot returns the canonical bytes of the state.
func (s *State) Snapshot() ([]byte, error) {
	var b bytes.Buffer
	_, _, err := s.Capture().Write(&b)
	return b.Bytes(), err
}

// Restore returns the state of which b is the snapshot, of this version of it or one before. What Snapshot cannot have made is an
// error; whether b is the right one, only the journal knows: see [SnapshotTaken].
func Restore(b []byte) (*State, error) {
	var doc snapshot
	if err := json.Unmarshal(b, &doc, json.RejectUnknownMembers(true)); err != nil {
		return nil, fmt.Errorf("snapshot: %w", err)
	}
	s, err := doc.state()
	if err != nil {
		return nil, fmt.Errorf("snapshot: %w", err)
	}
	return s, nil
}

func (doc *snapshot) state() (*State, error) {
	if doc.Version < oldestSnapshot || doc.Version > snapshotVersion {
		return nil, fmt.Errorf("version %d, this program knows %d to %d", doc.Version, oldestSnapshot, snapshotVersion)
	}
	if doc.Records < 0 || doc.Limits != doc.Limits.orDefault() || !doc.Limits.valid() {
		return nil, errors.New("records or limits cannot be")
	}
	s := New()
	s.next, s.limits, s.refused = doc.Records, doc.Limits, doc.Refused
	owners := make([]*owner, len(doc.Owners))
	for i, d := range doc.Owners {
		if i > 0 && d.compare(owners[i-1].Owner) <= 0 || d.Events < 0 {
			return nil, fmt.Errorf("owner %d cannot be", i)
		}
		owners[i] = &owner{Owner: d.Owner, log: log{last: d.Events}}
		s.owners[d.Owner] = owners[i]
	}
	r := restoring{State: s, owners: owners}
	for _, part := range []struct {
		name    string
		len     int
		restore func(i int) bool
	}{
		{"intent", len(doc.Intents), func(i int) bool { return r.intent(&doc.Intents[i]) }},
		{"key", len(doc.Keys), func(i int) bool { return r.key(&doc.Keys[i]) }},
		{"approval", len(doc.Approvals), func(i int) bool { return r.approval(&doc.Approvals[i]) }},
		{"session", len(doc.Sessions), func(i int) bool { return r.session(&doc.Sessions[i]) }},
		{"execution", len(doc.Processes), func(i int) bool { return r.process(&doc.Processes[i]) }},
		{"event", len(doc.Events), func(i int) bool { return r.event(&doc.Events[i]) }},
	} {
		r.last = -1
		for i := range part.len {
			if !part.restore(i) {
				return nil, fmt.Errorf("%s %d cannot be", part.name, i)
			}
		}
	}
	if !r.over() {
		return nil, errors.New("numbers that cannot be")
	}
	return s, nil
}

// restoring is a State that is being made of a document.
type restoring struct {
	*State
	owners []*owner
	last   int64 // number of the one before

	settled []ending[intent]
	used    []ending[key]
	closed  []ending[session]
	ended   []ending[process]
}

// ending is something that is over, and the record that ended it.
type ending[T any] struct {
	uid  uint32
	seq  int64
	item *T
}

// next reports whether an item with an owner can follow the one before.
func (r *restoring) next(owner int, seq int64) bool {
	ok := owner >= 0 && owner < len(r.owners) && seq > r.last && seq < r.State.next
	r.last = seq
	return ok
}

func (r *restoring) intent(d *intentSnapshot) bool {
	it := &intent{Intent: d.Intent, receipt: d.Receipt, blob: d.Blob, open: d.Open}
	if !r.next(d.Owner, it.EmittedAtSeq) || r.intents[it.IntentID] != nil || it.IntentID == "" ||
		it.FrameSeq < 0 || (it.Outcome != "") != (it.receipt != 0) || OwnerOf(it.Principal) != r.owners[d.Owner].Owner {
		return false
	}
	it.owner = r.owners[d.Owner]
	r.intents[it.IntentID] = it
	r.admitted.add(it.EmittedAtSeq, it)
	if it.receipt != 0 {
		r.settled = append(r.settled, ending[intent]{it.owner.UID, it.receipt, it})
	}
	return true
}

func (r *restoring) key(d *keySnapshot) bool {
	if !r.next(d.Owner, d.Seq) || d.Key == "" {
		return false
	}
	k := &key{keyName{r.owners[d.Owner], d.Key}, d.Intent, d.Digest, d.Seq, d.Receipt, d.SettledAtNS}
	if it := r.intents[k.intent]; r.keys[k.name] != nil || k.receipt == 0 && (it == nil || it.Outcome != "") {
		return false
	}
	r.keys[k.name] = k
	if k.receipt != 0 {
		r.used = append(r.used, ending[key]{k.name.owner.UID, k.receipt, k})
	}
	return true
}

func (r *restoring) approval(d *approvalSnapshot) bool {
	it := r.intents[d.Approval.IntentID]
	if d.Changed <= r.last || d.Changed >= r.State.next || d.Seq > d.Changed || d.Approval.ApprovalID == "" || r.approvals[d.Approval.ApprovalID] != nil ||
		it == nil || it.approval != nil || it.ApprovalID != d.Approval.ApprovalID || d.Seq <= it.EmittedAtSeq ||
		(d.Approval.State == api.ApprovalWaiting) != (it.State == api.StateQueued) || d.Approval.State == api.ApprovalWaiting && it.Outcome != "" {
		return false
	}
	r.last = d.Changed
	a := &approval{Approval: d.Approval, it: it, seq: d.Seq, changed: d.Changed}
	it.approval, r.approvals[a.ApprovalID] = a, a
	r.asked.add(a.changed, a)
	return true
}

func (r *restoring) session(d *sessionSnapshot) bool {
	ses := &session{Session: d.Session, seq: d.Seq, receipt: d.Receipt, end: d.End}
	_, moves := moves[ses.State]
	if !r.next(d.Owner, ses.receipt) || r.sessions[ses.SessionID] != nil || ses.SessionID == "" || ses.Events < 0 ||
		ses.over() != (ses.end != 0) || !ses.over() && !moves && ses.State != sessionClosing || ses.seq < 0 || ses.seq >= ses.receipt {
		return false
	}
	ses.owner = r.owners[d.Owner]
	ses.log.last, ses.Events = ses.Events, 0
	r.sessions[ses.SessionID] = ses
	r.opened.add(ses.receipt, ses)
	if ses.end != 0 {
		r.closed = append(r.closed, ending[session]{ses.owner.UID, ses.end, ses})
	}
	return true
}

func (r *restoring) process(d *processSnapshot) bool {
	p := &process{Process: d.Process, seq: d.Seq, opened: d.Opened, receipt: d.Receipt, blobs: d.Blobs, told: d.Told, progress: d.Progress}
	_, lives := follows[p.State]
	if !r.next(d.Owner, p.seq) || r.processes[p.ExecID] != nil || p.ExecID == "" || r.startedBy[p.IntentID] != nil ||
		!lives && !p.State.Final() || lives != (p.receipt == 0) || p.opened < 0 || p.opened >= p.seq {
		return false
	}
	p.owner = r.owners[d.Owner]
	r.processes[p.ExecID], r.startedBy[p.IntentID] = p, p
	r.queue.add(p.seq, p)
	if p.receipt != 0 {
		r.ended = append(r.ended, ending[process]{p.owner.UID, p.receipt, p})
		return true
	}
	if it := r.intents[p.IntentID]; it == nil || it.Outcome != "" {
		return false
	}
	if ses := r.sessions[p.SessionID]; ses != nil && ses.seq == p.opened {
		p.session = ses
	}
	return true
}

func (r *restoring) event(d *eventSnapshot) bool {
	if d.Owner < 0 || d.Owner >= len(r.owners) {
		return false
	}
	e := event{Notice: d.Notice, owner: r.owners[d.Owner], inSession: d.InSession}
	uid := int64(e.owner.UID)
	if uid < r.last {
		return false
	}
	r.last = uid
	u := r.events.of(e.owner.UID)
	at := int64(u.kept.len)
	e.owner.log.at = append(e.owner.log.at, at)
	if e.inSession != 0 {
		ses := r.sessions[e.SessionID]
		if ses == nil || ses.owner != e.owner {
			return false
		}
		ses.log.at = append(ses.log.at, at)
	}
	u.kept.push(e)
	r.events.size++
	return true
}

// over puts what is over in the order in which it ended, and checks the numbers of events.
func (r *restoring) over() bool {
	ok := ended(&r.State.settled, r.settled, r.State.next) && ended(&r.State.usedKeys, r.used, r.State.next) &&
		ended(&r.State.closed, r.closed, r.State.next) && ended(&r.State.ended, r.ended, r.State.next)
	for _, o := range r.owners {
		ok = ok && o.log.unbroken(func(at int64) int64 { return r.events.byUser[o.UID].at(at).Seq })
	}
	for _, ses := range r.sessions {
		ok = ok && ses.log.unbroken(func(at int64) int64 { return r.events.byUser[ses.owner.UID].at(at).inSession })
	}
	return ok
}

func ended[T any](to *shared[T], list []ending[T], next int64) bool {
	slices.SortFunc(list, func(a, b ending[T]) int { return cmp.Compare(a.seq, b.seq) })
	last := int64(0)
	for _, e := range list {
		if e.seq <= last || e.seq >= next {
			return false
		}
		to.add(e.uid, e.seq, e.item)
		last = e.seq
	}
	return true
}

// unbroken reports whether the events that are kept have numbers without gaps, up to the last.
func (l *log) unbroken(number func(at int64) int64) bool {
	seq := l.last - int64(len(l.at))
	if seq < 0 {
		return false
	}
	for _, at := range l.at {
		if seq++; number(at) != seq {
			return false
		}
	}
	return true
}
