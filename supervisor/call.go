package supervisor

import (
	"context"
	"io"
	"time"

	"github.com/stockade-dev/stockade/internal/journal"
	"github.com/stockade-dev/stockade/rego"
	"github.com/stockade-dev/stockade/sandbox"
	"github.com/stockade-dev/stockade/supervisor/api"
	"github.com/stockade-dev/stockade/supervisor/ledger"
	"github.com/stockade-dev/stockade/supervisor/telemetry"
)

// A call is one operation on its way through the pipeline.
type call struct {
	operation
	req      *api.Request  // as asked, with its secrets
	redacted api.Request   // what policy, journal and logs may see
	request  []byte        // redacted, canonical
	digest   string        // of request, if there is a key
	large    *ledger.Large // recorded in its place
	nonce    string
	intent   string
	at       time.Time // of its admission
	judging  time.Time // at which policy is asked: once, or again when leave is given
	watch    stopwatch
	brought  brought
	parent   telemetry.Parent // what it is part of, for traces
	release  func()           // of its secrets; nil where nobody holds any

	session   *session
	execution *execution
	subject   *api.Process // of an operation on an execution: its record
	control   control
	file      fileCall
	approval  *api.Approval // that the operation is about
	leave     *waiting      // nil unless it has to wait for somebody's
	facts     rego.Facts
	decision  *rego.Decision        // nil until policy was asked
	judged    *rego.Process         // what policy saw of subject
	seen      *rego.Waiting         // and of approval
	counts    *ledger.SessionCounts // as policy saw them
	grant     *api.Grant            // of an open: effective
	spec      sandbox.Spec
	clamped   []api.Clamp

	admitted chan struct{} // closed when the intent is durable; never, if it is refused

	done    chan struct{} // closed when receipt or err is set
	receipt *api.Receipt
	err     error
}

// brought is what comes with an operation and is not part of its request.
type brought struct {
	content io.Reader // of a blob
	hand    *hand     // of who attaches to a shell
	door    *door     // of who forwards
}

func (c *call) sessionID() string {
	if c.session == nil {
		return ""
	}
	return c.session.id
}

func (c *call) execID() string {
	if c.execution == nil {
		return ""
	}
	return c.execution.id
}

// newReceipt is the receipt without how it went.
func (c *call) newReceipt() *api.Receipt {
	r := &api.Receipt{
		Version:       1,
		IntentID:      c.intent,
		Op:            c.req.Op,
		RequestedKind: c.req.RequestedKind,
		Key:           c.req.Key,
		Principal:     c.req.Principal,
		Clamped:       c.clamped,
	}
	r.AdmittedAtNS, r.AdmittedAt = stamp(c.at)
	r.SessionID, r.ExecID = c.sessionID(), c.execID()
	if c.decision != nil {
		r.Policy, r.Warn = c.decision.Policy, c.decision.Warn
	}
	return r
}

// unfit says of a payload that no record can hold what its receipt says instead. A thousand long names of artifacts are
// enough for one that is too large, each byte of them written as \u0001.
var unfit = map[error]*api.Error{
	errTooLarge: api.Errorf(api.CodeOutputStoreFailed, "with all that is to be returned the receipt is larger than %d bytes", journal.MaxRecord),
	errNoRecord: api.Errorf(api.CodeInvalidPayload, "what the operation returned is no text that a receipt can hold"),
}

// withoutPayload is the receipt of an operation that returns what cannot be recorded: it is faulted, and there all the
// same (R115, R253). How a command ended it says.
func (c *call) withoutPayload(r *api.Receipt, why *api.Error) *api.Receipt {
	less := *r
	less.Payload = c.operation.failed(why.Code, why.Message)
	if r.Payload.Exec != nil {
		x := *r.Payload.Exec
		x.Stdout, x.Stderr, x.Outputs = nil, nil, nil
		x.Status, x.ErrorCode, x.ErrorMessage = "error", why.Code, why.Message
		less.Payload.Exec = &x
	}
	less.Outcome, less.Status = api.OutcomeFaulted, "error"
	less.ErrorCode, less.ErrorMessage = why.Code, why.Message
	return &less
}

// admission waits until it is certain whether the operation takes place.
func (c *call) admission(ctx context.Context) error {
	select {
	case <-c.admitted:
	case <-c.done:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}

// wait returns the receipt.
func (c *call) wait(ctx context.Context) (*api.Receipt, error) {
	select {
	case <-c.done:
		return c.receipt, c.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// stopwatch measures the stages of a call.
type stopwatch struct {
	last time.Time
	laps []api.Timing
}

func (w *stopwatch) start() { w.last = time.Now() }

// lap ends a stage. A stage that did nothing is not worth a line.
func (w *stopwatch) lap(stage string) {
	now := time.Now()
	if d := now.Sub(w.last); d > 0 {
		w.laps = append(w.laps, api.Timing{Stage: stage, NS: int64(d)})
	}
	w.last = now
}
