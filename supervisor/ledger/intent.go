package ledger

import (
	"errors"
	"math"
	"strconv"
	"time"

	"github.com/stockade-dev/stockade/supervisor/api"
)

// intent is an operation with effect.
type intent struct {
	api.Intent // without the RFC 3339 twins
	owner      *owner
	receipt    int64    // number of its receipt's record, once it is settled
	blob       string   // that a blob.put has stored
	open       *opening // of an open in flight
	approval   *approval
}

// opening is what the request of an open says about the session.
type opening struct {
	Labels   map[string]string `json:"labels,omitempty"`
	EnvNames []string          `json:"env_names,omitempty"`
}

// origin is the module whose frames these are: it has no other.
const origin = "stockade"

// key is what an idempotency key was used for.
type key struct {
	name        keyName
	intent      string
	digest      string // of the request
	seq         int64  // number of the intent's record
	receipt     int64  // and of the receipt's; 0 while it is in flight
	settledAtNS int64
}

type keyName struct {
	owner *owner
	key   string
}

// admit takes an intent in, and with one of an execution its record.
func (s *State) admit(seq int64, r *Intent) error {
	ask, err := r.asked()
	if err != nil {
		return err
	}
	if r.IntentID == "" {
		return errors.New("an intent without an id")
	}
	if s.intents[r.IntentID] != nil {
		s.refuse()
		return nil
	}
	it := &intent{
		Intent: api.Intent{
			IntentID:      r.IntentID,
			Op:            ask.Op,
			RequestedKind: ask.RequestedKind,
			Principal:     ask.Principal,
			SessionID:     r.SessionID,
			ExecID:        r.ExecID,
			Key:           r.Key,
			EmittedAtSeq:  seq,
			AdmittedAtNS:  r.AtNS,
		},
		owner: s.owner(ask.Principal),
		open:  ask.opening(),
	}
	s.intents[it.IntentID] = it
	s.admitted.add(seq, it)
	s.claim(it, r, ask)
	if ask.Exec != nil && r.ExecID != "" {
		s.enqueue(it, r, ask.Exec)
	}
	return nil
}

// claim gives the key to the first intent that names it. Others that do are conflicts, and
// have a receipt that says so.
func (s *State) claim(it *intent, r *Intent, ask *request) {
	name := keyName{it.owner, r.Key}
	if r.Key == "" || s.keys[name] != nil {
		return
	}
	s.keys[name] = &key{name: name, intent: it.IntentID, digest: ask.digest, seq: it.EmittedAtSeq}
}

// claimed returns the key that an intent has.
func (s *State) claimed(it *intent) *key {
	if it.Key == "" {
		return nil
	}
	if k := s.keys[keyName{it.owner, it.Key}]; k != nil && k.intent == it.IntentID {
		return k
	}
	return nil
}

// settle takes a receipt in. There is one for each intent (R115, R116).
func (s *State) settle(seq int64, rec *Settled) {
	r := rec.Receipt
	it := s.intents[r.IntentID]
	if it == nil {
		s.refuse()
		return
	}
	if it.Outcome != "" {
		s.refuse()
		s.diagnose(it, rec.AtNS, diagnosis{duplicateReceipt, "outcome " + string(r.Outcome) + " after " + string(it.Outcome)})
		return
	}
	it.Outcome, it.SettledAtNS, it.receipt = r.Outcome, rec.AtNS, seq
	s.settled.add(it.owner.UID, seq, it)
	if k := s.claimed(it); k != nil {
		k.receipt, k.settledAtNS = seq, rec.AtNS
		s.usedKeys.add(it.owner.UID, seq, k)
	}
	if a := it.approval; a != nil && a.State == api.ApprovalWaiting { // nobody decides any more
		s.decided(seq, a, api.ApprovalCanceled, rec.AtNS)
	}
	if r.Outcome == api.OutcomeDenied {
		s.violation(it, rec)
	}
	switch {
	case r.Payload.Open != nil && r.Outcome == api.OutcomeOK:
		s.openSession(seq, it, rec)
	case s.startedBy[it.IntentID] != nil:
		s.conclude(seq, s.startedBy[it.IntentID], rec)
	case it.Op == api.OpProcessDelete && r.Payload.Control != nil && r.Payload.Control.Status == api.ControlDeleted:
		s.delete(it, r.Payload.Control.ExecID)
	}
	it.open = nil
	if put := r.Payload.Blob; put != nil {
		it.blob = put.BlobRef
	}
}

func (s *State) violation(it *intent, rec *Settled) {
	r := rec.Receipt
	n := api.Notice{
		Kind:      api.NoticeViolation,
		AtNS:      rec.AtNS,
		SessionID: it.SessionID,
		ExecID:    it.ExecID,
		IntentID:  it.IntentID,
		Op:        it.Op,
		Reason:    shorten(string(r.ErrorCode), keptText),
	}
	if len(r.Deny) > 0 {
		n.Detail = shorten(r.Deny[0].Subject, keptText)
	}
	s.note(it.owner, n)
}

// judge says whether a frame is taken, and what is wrong with it (R123 to R128, R133).
func (s *State) judge(f *api.Frame) (wrong diagnosis, ok bool) {
	found := func(code, expected, observed string) diagnosis {
		return diagnosis{code, "expected " + expected + ", observed " + observed}
	}
	it := s.intents[f.IntentID]
	if it == nil {
		return diagnosis{code: unknownIntent}, false
	}
	if it.Outcome != "" {
		return diagnosis{late, "frame " + itoa(f.Seq)}, false
	}
	for _, identity := range []struct{ want, got string }{
		{itoa(it.EmittedAtSeq), itoa(f.EmittedAtSeq)},
		{string(it.Op), string(f.EffectKind)},
		{origin, f.OriginModule},
		{it.owner.Instance(), f.OriginInstance},
	} {
		if identity.got != identity.want {
			return found(identityMismatch, identity.want, identity.got), false
		}
	}
	next := it.FrameSeq + 1
	switch {
	case f.Seq < next:
		return found(nonMonotonic, itoa(next), itoa(f.Seq)), false
	case f.Seq > next:
		return found(gap, itoa(next), itoa(f.Seq)), true
	}
	return diagnosis{}, true
}

// NextFrame begins the frame that comes next of an intent in flight: everything but its kind, time
// and payload. ok is false when there is no such intent, or no longer.
func (s *State) NextFrame(intent string) (f api.Frame, ok bool) {
	it := s.intents[intent]
	if it == nil || it.Outcome != "" {
		return f, false
	}
	return api.Frame{
		OriginModule:   origin,
		OriginInstance: it.owner.Instance(),
		IntentID:       it.IntentID,
		EffectKind:     it.Op,
		EmittedAtSeq:   it.EmittedAtSeq,
		Seq:            it.FrameSeq + 1,
	}, true
}

// frame takes a frame in, or tells why it does not.
func (s *State) frame(r *Frame) {
	f := &r.Frame
	wrong, ok := s.judge(f)
	it := s.intents[f.IntentID]
	if wrong.code != "" && it != nil {
		s.diagnose(it, r.AtNS, wrong)
	}
	if !ok {
		s.refuse()
		return
	}
	it.FrameSeq = f.Seq
	if p := s.startedBy[it.IntentID]; p != nil {
		s.milestone(p, r)
	}
}

func (s *State) dropIntent(it *intent) {
	delete(s.intents, it.IntentID)
	if it.approval != nil {
		s.dropApproval(it.approval)
	}
	s.admitted.remove(it.EmittedAtSeq)
	s.settled.remove(it.owner.UID, it.receipt)
}

func (s *State) dropKey(k *key) {
	delete(s.keys, k.name)
	s.usedKeys.remove(k.name.owner.UID, k.receipt)
}

// Intent returns an intent, in flight or among the last that were settled.
func (s *State) Intent(id string) (api.Intent, bool) {
	it := s.intents[id]
	if it == nil {
		return api.Intent{}, false
	}
	return it.document(), true
}

// Intents returns an owner's intents that fit f (session, execution, intent, operation, outcome, active),
// newest first.
func (s *State) Intents(o Owner, f *api.Read, limit int) []api.Intent {
	var list []api.Intent
	who := s.owners[o]
	for it := range s.admitted.downward(math.MaxInt64) {
		if len(list) >= limit {
			break
		}
		if it.owner == who && fits(f.SessionID, it.SessionID) && fits(f.ExecID, it.ExecID) && fits(f.IntentID, it.IntentID) &&
			fits(f.Op, it.Op) && fits(f.Outcome, it.Outcome) && (!f.Active || it.Outcome == "") {
			list = append(list, it.document())
		}
	}
	return list
}

// InFlight returns every intent without a receipt, oldest first. EmittedAtSeq finds its record.
func (s *State) InFlight() []api.Intent {
	var list []api.Intent
	for it := range s.admitted.upward() {
		if it.Outcome == "" {
			list = append(list, it.document())
		}
	}
	return list
}

func (it *intent) document() api.Intent {
	d := it.Intent
	d.AdmittedAt, d.SettledAt = rfc3339(d.AdmittedAtNS), rfc3339(d.SettledAtNS)
	return d
}

// KeyEntry is what an idempotency key was used for.
type KeyEntry struct {
	Intent        string
	RequestDigest string // of the redacted request's canonical bytes
}

// Key returns what an owner used an idempotency key for.
func (s *State) Key(o Owner, name string) (KeyEntry, bool) {
	who := s.owners[o]
	if who == nil {
		return KeyEntry{}, false
	}
	k := s.keys[keyName{who, name}]
	if k == nil {
		return KeyEntry{}, false
	}
	return KeyEntry{k.intent, k.digest}, true
}

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

// rfc3339 is the twin of an instant; "" of 0, which is none.
func rfc3339(ns int64) string {
	if ns == 0 {
		return ""
	}
	return time.Unix(0, ns).UTC().Format(time.RFC3339Nano)
}
