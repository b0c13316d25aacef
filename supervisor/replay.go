package supervisor

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/stockade-dev/stockade/supervisor/api"
	"github.com/stockade-dev/stockade/supervisor/ledger"
)

// replay reads the journal from its beginning: it rebuilds the index of receipts and
// the sessions that ended, and settles, once, what a crash left in flight (R255). It
// never carries anything out (R248).
func (s *Supervisor) replay(ctx context.Context) error {
	h := history{index: s.receipts, intents: map[string]*ledger.Intent{}, sessions: map[string]*session{}}
	if err := s.journal.Read(0, h.read); err != nil {
		return fmt.Errorf("replay: %w", err)
	}
	now := s.now()
	var records []ledger.Record
	var settled []*api.Receipt
	for _, id := range h.pending {
		if intent := h.intents[id]; intent != nil {
			r, err := interrupted(intent, now)
			if err != nil {
				return fmt.Errorf("replay: %w", err)
			}
			settled = append(settled, r)
			records = append(records, &ledger.Settled{Header: s.header(), Receipt: r})
		}
	}
	for _, ses := range h.order {
		if ses.ended.IsZero() {
			ses.end = endRestarted
			ses.finish(now, api.Usage{})
			records = append(records, &ledger.SessionEnd{
				Header:    s.header(),
				SessionID: ses.id,
				State:     ses.state,
				Reason:    ses.end.reason,
				Usage:     ses.usage,
			})
		}
		close(ses.closed)
		s.registry.restore(ses)
	}
	// In parts, because one Append has a limit and a crash may have left many. A crash
	// between two of them leaves the rest for the next replay.
	for at := 0; at < len(records); at += appendAtOnce {
		part := records[at:min(at+appendAtOnce, len(records))]
		first, err := s.record(ctx, s.journal.Settle, part...)
		if err != nil {
			return fmt.Errorf("replay: %w", err)
		}
		for i := range part {
			if n := at + i; n < len(settled) {
				s.receipts.add(first+int64(i), settled[n])
			}
		}
	}
	if len(records) > 0 {
		s.log.Warn("settled what an earlier supervisor left", "operations", len(settled), "records", len(records))
	}
	return nil
}

// appendAtOnce is how many records of replay go into one Append.
const appendAtOnce = 256

// history is what replay learns from the journal.
type history struct {
	index    *index
	intents  map[string]*ledger.Intent // without a receipt
	pending  []string                  // their ids, and of some that were settled since
	sessions map[string]*session
	order    []*session
}

// replayed is any record: the members of all types that replay looks at.
type replayed struct {
	ledger.Header
	SessionID string       `json:"session_id"`
	State     string       `json:"state"`
	Reason    string       `json:"reason"`
	Usage     api.Usage    `json:"usage"`
	Receipt   *api.Receipt `json:"receipt"`
}

// decisionPrefix begins the records that say nothing about the state of anything. They
// are a third of a journal, and the largest.
var decisionPrefix = []byte(`{"type":"decision",`)

func (h *history) read(seq int64, b []byte) error {
	if bytes.HasPrefix(b, decisionPrefix) {
		return nil
	}
	var r replayed
	if err := json.Unmarshal(b, &r); err != nil {
		return fmt.Errorf("record %d: %w", seq, err)
	}
	switch r.Type {
	case ledger.TypeIntent:
		intent := new(ledger.Intent)
		if err := json.Unmarshal(b, intent); err != nil {
			return fmt.Errorf("record %d: %w", seq, err)
		}
		h.intents[intent.IntentID] = intent
		h.pending = append(h.pending, intent.IntentID)
	case ledger.TypeReceipt:
		if r.Receipt == nil {
			return fmt.Errorf("record %d: a receipt record without a receipt", seq)
		}
		h.receipt(seq, r.Receipt)
	case ledger.TypeSessionEnd:
		if ses := h.sessions[r.SessionID]; ses != nil {
			ses.end = ending{reason: r.Reason, state: r.State}
			if r.Reason == endExpired.reason {
				ses.end = endExpired
			}
			ses.finish(time.Unix(0, r.AtNS), r.Usage)
		}
	}
	return nil
}

func (h *history) receipt(seq int64, r *api.Receipt) {
	h.index.add(seq, r)
	intent := h.intents[r.IntentID]
	delete(h.intents, r.IntentID)
	switch {
	case r.Payload.Open != nil && r.Outcome == api.OutcomeOK:
		ses := restoreSession(r, intent)
		h.sessions[ses.id] = ses
		h.order = append(h.order, ses)
	case r.ExecID != "" && h.sessions[r.SessionID] != nil:
		h.sessions[r.SessionID].executions++
	}
	if len(h.pending) > 1024 && len(h.pending) > 2*len(h.intents) {
		h.pending = slices.DeleteFunc(h.pending, func(id string) bool { return h.intents[id] == nil })
	}
}

// restoreSession gives a session as its open left it; that it ended is certain.
func restoreSession(r *api.Receipt, intent *ledger.Intent) *session {
	open := r.Payload.Open
	ses := &session{
		id:        open.SessionID,
		principal: r.Principal,
		intent:    r.IntentID,
		policy:    r.Policy.Digest,
		grant:     open.Grant,
		state:     stateReady,
		started:   time.Unix(0, open.StartedAtNS),
		live:      map[string]*execution{},
		closed:    make(chan struct{}),
	}
	if open.ExpiresAtNS != 0 {
		ses.expires = time.Unix(0, open.ExpiresAtNS)
	}
	var req api.Request
	if intent != nil && json.Unmarshal(intent.Request, &req) == nil && req.Open != nil {
		ses.labels = req.Open.Labels
	}
	return ses
}

// interrupted is the receipt of an operation that a crash cut off. Whether it took
// effect is unknown; what is certain is that nothing of it is left.
func interrupted(intent *ledger.Intent, now time.Time) (*api.Receipt, error) {
	var req api.Request
	if err := json.Unmarshal(intent.Request, &req); err != nil {
		return nil, fmt.Errorf("intent %s: %w", intent.IntentID, err)
	}
	const message = "the supervisor restarted while the operation was in flight"
	r := &api.Receipt{
		Version:       1,
		IntentID:      intent.IntentID,
		Op:            req.Op,
		RequestedKind: req.RequestedKind,
		Principal:     req.Principal,
		SessionID:     intent.SessionID,
		ExecID:        intent.ExecID,
		Outcome:       api.OutcomeFaulted,
		Status:        "error",
		ErrorCode:     api.CodeSupervisorRestarted,
		ErrorMessage:  message,
	}
	if op, ok := operations[req.Op]; ok {
		r.Payload = op.failed(api.CodeSupervisorRestarted, message)
	}
	r.AdmittedAtNS, r.AdmittedAt = stamp(time.Unix(0, intent.AtNS))
	r.SettledAtNS, r.SettledAt = stamp(now)
	return r, nil
}
