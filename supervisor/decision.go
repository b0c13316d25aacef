package supervisor

import (
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/stockade-dev/stockade/internal/journal"
	"github.com/stockade-dev/stockade/rego"
	"github.com/stockade-dev/stockade/rego/bundle"
	"github.com/stockade-dev/stockade/sandbox"
	"github.com/stockade-dev/stockade/supervisor/api"
	"github.com/stockade-dev/stockade/supervisor/ledger"
)

// Recorded is a decision as the journal has it: what was asked, and what policy said.
type Recorded struct {
	IntentID     string
	Entrypoint   string
	PolicyDigest string
	Input        rego.Input // its canonical bytes have InputDigest
	InputDigest  string
	Decision     rego.Decision // without Input and Elapsed
	Receipt      *api.Receipt  // nil while the operation is in flight

	Seq      int64 // of the record
	Revision api.PolicyRevision
	Clamped  []api.Clamp
	Elapsed  time.Duration
}

// ReadDecision rebuilds the decision about an intent from the files of a state
// directory, whether or not a supervisor has it open. Asked again with the same policy,
// [rego.Engine.Decide] gives the same answer. The caller compares digests: a policy
// that changed since has another one. When what is missing may have been trimmed, the error is a
// [*journal.TrimmedError].
func ReadDecision(stateDir, intentID string) (*Recorded, error) {
	d := reading{intentID: intentID, first: -1, ceilings: map[string]sandbox.Ceiling{}, policies: map[string]api.PolicyRevision{}, opens: map[string]opening{}}
	if err := journal.Scan(filepath.Join(stateDir, "journal"), d.read); err != nil {
		return nil, err
	}
	switch {
	case d.large != nil:
		return nil, fmt.Errorf("the request of intent %s was too large to be kept: %d bytes, %s; what became of it: %s",
			intentID, d.large.SizeBytes, d.large.Digest, d.why())
	case d.request == nil:
		return nil, d.missing("no intent %s in the journal", intentID)
	case d.decision == nil:
		return nil, fmt.Errorf("policy was not asked about intent %s: %s", intentID, d.why())
	}
	return d.rebuild()
}

// EachDecision rebuilds every decision of a state directory, in the order of the journal, whether or not a
// supervisor has it open, and calls fn with each; an error of fn ends it. Left out, and counted, are those whose
// request was too large to be kept or whose records are trimmed.
func EachDecision(stateDir string, fn func(*Recorded) error) (left int64, err error) {
	dir := filepath.Join(stateDir, "journal")
	starts := reading{first: -1, ceilings: map[string]sandbox.Ceiling{}, policies: map[string]api.PolicyRevision{}}
	// Of a journal whose beginning is trimmed, the ceiling and the policy of a decision may be told of after it.
	if err := journal.Scan(dir, func(seq int64, b []byte) error {
		var r ledger.Header
		if err := json.Unmarshal(b, &r); err != nil || r.Type != ledger.TypeStart && r.Type != ledger.TypePolicy {
			return err
		}
		return starts.read(seq, b)
	}); err != nil {
		return 0, err
	}
	d := reading{first: -1, ceilings: starts.ceilings, policies: starts.policies, opens: map[string]opening{}}
	asked := map[string]*api.Request{} // intents whose decision has not come yet
	err = journal.Scan(dir, func(seq int64, b []byte) error {
		var r struct {
			ledger.Header
			IntentID string `json:"intent_id"`
		}
		if err := json.Unmarshal(b, &r); err != nil {
			return fmt.Errorf("record %d: %w", seq, err)
		}
		d.intentID, d.request, d.decision, d.large, d.receipt = r.IntentID, asked[r.IntentID], nil, nil, nil
		if err := d.read(seq, b); err != nil {
			return err
		}
		switch r.Type {
		case ledger.TypeIntent:
			if d.request != nil {
				asked[r.IntentID] = d.request
			}
			return nil
		case ledger.TypeReceipt:
			delete(asked, r.IntentID) // policy was not asked
			return nil
		case ledger.TypeDecision:
			delete(asked, r.IntentID)
		default:
			return nil
		}
		if d.request == nil {
			left++
			return nil
		}
		recorded, err := d.rebuild()
		if trimmed := (*journal.TrimmedError)(nil); errors.As(err, &trimmed) {
			left++
			return nil
		}
		if err != nil {
			return fmt.Errorf("record %d: %w", seq, err)
		}
		return fn(recorded)
	})
	return left, err
}

// KeptPolicy is a revision of the policy that a state directory keeps, by its digest: the last that were active, and those
// by which sessions are judged.
func KeptPolicy(stateDir, digest string) (*bundle.Revision, error) {
	return bundle.Kept(filepath.Join(stateDir, "policy"), digest)
}

// reading collects what belongs to one intent. What a session is known by is in its
// open, which comes before everything in the session.
type reading struct {
	intentID string
	first    int64 // number of the first record; -1 before it
	ceilings map[string]sandbox.Ceiling
	policies map[string]api.PolicyRevision
	opens    map[string]opening // by session
	request  *api.Request
	large    *ledger.Large // in its place
	decision *ledger.Decision
	at       int64 // number of its record
	receipt  *api.Receipt
}

type opening struct {
	receipt  *api.Receipt
	labels   map[string]string
	narrowed []api.GrantNetwork // what was left of the network, each time
}

func (d *reading) read(seq int64, b []byte) error {
	if d.first < 0 {
		d.first = seq
	}
	var r struct {
		ledger.Header
		IntentID string `json:"intent_id"`
	}
	if err := json.Unmarshal(b, &r); err != nil {
		return fmt.Errorf("record %d: %w", seq, err)
	}
	var err error
	switch {
	case r.Type == ledger.TypeStart:
		var start ledger.Start
		err = json.Unmarshal(b, &start)
		d.ceilings[start.CeilingDigest] = start.Ceiling
	case r.Type == ledger.TypePolicy:
		var record ledger.Policy
		if err = json.Unmarshal(b, &record); err == nil && record.State != ledger.PolicyRefused {
			d.policies[record.Revision.Digest] = record.Revision
		}
	case r.Type == ledger.TypeIntent:
		err = d.intent(b)
	case r.Type == ledger.TypeDecision && r.IntentID == d.intentID:
		d.decision, d.at = new(ledger.Decision), seq
		err = json.Unmarshal(b, d.decision)
	case r.Type == ledger.TypeNarrowed:
		var record ledger.Narrowed
		if err = json.Unmarshal(b, &record); err == nil {
			open := d.opens[record.SessionID]
			open.narrowed = append(open.narrowed, record.Network)
			d.opens[record.SessionID] = open
		}
	case r.Type == ledger.TypeReceipt:
		var record ledger.Settled
		if err = json.Unmarshal(b, &record); err == nil && record.Receipt != nil {
			d.settled(record.Receipt)
		}
	}
	if err != nil {
		return fmt.Errorf("record %d: %w", seq, err)
	}
	return nil
}

func (d *reading) intent(b []byte) error {
	var record ledger.Intent
	if err := json.Unmarshal(b, &record); err != nil {
		return err
	}
	if record.Large != nil {
		if record.IntentID == d.intentID {
			d.large = record.Large
		}
		return nil // it was refused: no session is of it
	}
	var req api.Request
	if err := json.Unmarshal(record.Request, &req); err != nil {
		return err
	}
	if record.IntentID == d.intentID {
		d.request = &req
	}
	if req.Open != nil && record.SessionID != "" {
		d.opens[record.SessionID] = opening{labels: req.Open.Labels}
	}
	return nil
}

func (d *reading) settled(r *api.Receipt) {
	if r.IntentID == d.intentID {
		d.receipt = r
	}
	if open, ok := d.opens[r.SessionID]; ok && r.Payload.Open != nil {
		open.receipt = r
		d.opens[r.SessionID] = open
	}
}

func (d *reading) why() string {
	if d.receipt == nil {
		return "it is in flight"
	}
	why := fmt.Sprintf("%s (%s)", d.receipt.ErrorMessage, d.receipt.ErrorCode)
	for _, deny := range d.receipt.Deny[min(1, len(d.receipt.Deny)):] {
		why += fmt.Sprintf("; %s %s", deny.Code, deny.Subject)
	}
	return why
}

// missing is the error when a record is not there: it may have been, once.
func (d *reading) missing(format string, args ...any) error {
	err := fmt.Errorf(format, args...)
	if d.first > 0 {
		return fmt.Errorf("%v: %w", err, &journal.TrimmedError{First: d.first})
	}
	return err
}

func (d *reading) rebuild() (*Recorded, error) {
	record := d.decision
	ceiling, ok := d.ceilings[record.CeilingDigest]
	if !ok {
		return nil, d.missing("intent %s: no record of the ceiling %s", d.intentID, record.CeilingDigest)
	}
	in := rego.Input{Request: d.request, Process: record.Process, Approval: record.Approval, File: record.File, Facts: record.Facts, Ceiling: ceiling, NowNS: record.NowNS}
	if record.Session != nil {
		open := d.opens[record.Session.SessionID]
		if open.receipt == nil || open.receipt.Payload.Open.Grant == nil {
			return nil, d.missing("intent %s: no record of the open of session %s", d.intentID, record.Session.SessionID)
		}
		if n := record.Session.Narrowed; n > int64(len(open.narrowed)) {
			return nil, d.missing("intent %s: no record of how session %s was narrowed", d.intentID, record.Session.SessionID)
		}
		in.Session = open.judged(record.Session)
	}
	return &Recorded{
		IntentID:     d.intentID,
		Entrypoint:   record.Policy.Entrypoint,
		PolicyDigest: record.Policy.Digest,
		Input:        in,
		InputDigest:  record.InputDigest,
		Decision: rego.Decision{
			Allow:       record.Allow,
			Deny:        record.Deny,
			Warn:        record.Warn,
			Grant:       record.Grant,
			Limits:      record.Limits,
			Obligations: record.Obligations,
			Policy:      record.Policy,
			InputDigest: record.InputDigest,
		},
		Receipt:  d.receipt,
		Seq:      d.at,
		Revision: d.policies[record.Policy.Digest],
		Clamped:  record.Clamped,
		Elapsed:  time.Duration(record.ElapsedNS),
	}, nil
}

// judged is the session as policy was told of it.
func (o opening) judged(counts *ledger.SessionCounts) *rego.Session {
	open := o.receipt.Payload.Open
	grant := *open.Grant
	if n := counts.Narrowed; n > 0 {
		grant.Network = o.narrowed[n-1]
	}
	return &rego.Session{
		SessionID:      open.SessionID,
		Profile:        grant.Profile,
		Labels:         o.labels,
		Principal:      o.receipt.Principal,
		Grant:          &grant,
		Executions:     counts.Executions,
		LiveExecutions: counts.LiveExecutions,
		StartedAtNS:    open.StartedAtNS,
		ExpiresAtNS:    open.ExpiresAtNS,
	}
}
