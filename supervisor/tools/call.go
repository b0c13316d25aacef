package tools

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/stockade-dev/stockade/sandbox/file"
	"github.com/stockade-dev/stockade/supervisor/api"
)

// Host carries operations out for one caller: the supervisor that a call has come to, or a client of one. An operation that
// was denied or has faulted is a receipt; an *api.Error is one that never became an operation.
type Host interface {
	Do(ctx context.Context, op api.Op, parameters any) (*api.Receipt, error)
	Start(ctx context.Context, exec api.Exec) (*api.Pending, *api.Receipt, error)
	Output(ctx context.Context, execID string, page api.Read) (*api.Pending, error)
	Process(ctx context.Context, execID string) (*api.Process, error)
	Processes(ctx context.Context, filter api.Read) (*api.ProcessList, error)
	Session(ctx context.Context, id string) (*api.Session, error)
	Blob(ctx context.Context, ref string) (io.ReadCloser, int64, error)
}

// Call is one call of a tool in a session.
type Call struct {
	Profile   *Profile
	Tool      *Tool
	SessionID string
	Caller    string // who calls, for a desk that serves more than one
	Arguments []byte // JSON
	// Cancel has what the call started ended when the context is. Otherwise it goes on: a caller who is gone is no reason.
	Cancel bool
	// Progress is told of a command that runs, if not nil.
	Progress func(Progress)
}

// Progress is how far a command has come.
type Progress struct {
	ExecID string
	Bytes  int64  // of output so far
	Line   string // the last whole one, without escapes
}

// Answer is what a model is told, and what that is made of.
type Answer struct {
	Text      string
	OK        bool     // what was asked for was done
	Status    string   // ok, or what it is instead: denied, error, not_found, timeout, …
	Code      api.Code // of what went wrong; "" when OK
	Message   string
	Truncated bool // Text leaves something out
	ExecID    string
	Running   bool   // the execution goes on
	Cursor    string // of its output: what follows Text
	ExitCode  *int
	Deny      []api.Deny
	Allowed   map[string]any // what of the grant would have let it pass, by member; nil where that cannot be said
	Receipts  []api.Receipt
}

// Desk answers calls. It knows how far the output of a running command has been told, which nobody else does, and nothing that
// could not be lost: what it does not know is told from the beginning.
type Desk struct {
	mu    sync.Mutex
	told  map[string]string         // execution to cursor
	order []string                  // of told: the oldest first
	held  chan struct{}             // a place for each file that is held whole
	turns map[turnKey]chan struct{} // who has the shell of a session
}

// keptCursors is how many running commands a desk remembers.
const keptCursors = 4096

// Call carries a call out. An error is one of the host's that says nothing about the call: it could not be reached.
func (d *Desk) Call(ctx context.Context, host Host, call Call) (*Answer, error) {
	r := &run{ctx: ctx, host: host, desk: d, call: call}
	v, fault := decode(orEmpty(call.Arguments), call.Tool.Args)
	var a *Answer
	if fault != nil {
		a = r.failed(failure{status: "error", code: fault.Code, message: fault.Message})
	} else {
		a = call.Tool.do(r, v)
	}
	if r.lost != nil {
		return nil, r.lost
	}
	a.Receipts = r.receipts
	return a, nil
}

// run is a call under way.
type run struct {
	ctx      context.Context
	host     Host
	desk     *Desk
	call     Call
	receipts []api.Receipt
	lost     error         // the host failed; nothing more is asked of it
	turn     time.Duration // how long one look at an output may take; 0 is the usual
}

// failure is why something was not done.
type failure struct {
	status  string
	code    api.Code
	message string
	deny    []api.Deny
	result  *file.Result // of a file tool that says no
}

// do carries one operation out, and keeps its receipt.
func (r *run) do(op api.Op, parameters any) (*api.Receipt, *failure) {
	receipt, err := r.host.Do(r.ctx, op, parameters)
	if err != nil {
		return nil, r.refused(err)
	}
	return receipt, r.settled(receipt)
}

// settled keeps a receipt, and says why its operation did not take place.
func (r *run) settled(receipt *api.Receipt) *failure {
	if !slices.ContainsFunc(r.receipts, func(have api.Receipt) bool { return have.IntentID == receipt.IntentID }) {
		r.receipts = append(r.receipts, *receipt)
	}
	switch receipt.Outcome {
	case api.OutcomeOK:
		return nil
	case api.OutcomeDenied:
		f := &failure{status: "denied", code: receipt.ErrorCode, message: receipt.ErrorMessage, deny: receipt.Deny}
		if len(f.deny) > 0 {
			f.code, f.message = f.deny[0].Code, f.deny[0].Message
		}
		return f
	}
	f := &failure{status: "error", code: receipt.ErrorCode, message: receipt.ErrorMessage}
	if x := receipt.Payload.Exec; x != nil && x.Status != "ok" && x.Status != "" {
		f.status = x.Status
	}
	return f
}

// refused is an operation, or a read, that the host did not carry out.
func (r *run) refused(err error) *failure {
	if e, ok := errors.AsType[*api.Error](err); ok {
		return &failure{status: "error", code: e.Code, message: e.Message}
	}
	r.lost = err
	return &failure{status: "error", code: api.CodeInternalError, message: err.Error()}
}

// inFile carries a file operation out.
func (r *run) inFile(op api.Op, parameters any) (*file.Result, *failure) {
	receipt, f := r.do(op, parameters)
	if f != nil {
		if receipt != nil && receipt.Payload.File != nil {
			f.result = receipt.Payload.File
		}
		return nil, f
	}
	res := receipt.Payload.File
	if res == nil || res.Outcome() == nil {
		return nil, &failure{status: "error", code: api.CodeInvalidPayload, message: "the receipt has no result"}
	}
	if out := res.Outcome(); out.Status != file.OK {
		return nil, &failure{status: string(out.Status), code: api.Code(out.Code), message: out.Message, result: res}
	}
	return res, nil
}

func isFile(op api.Op) bool { return file.Op(op).Class() != "" }

// done is an answer of what was asked for.
func done(text string) *Answer { return &Answer{OK: true, Status: "ok", Text: text} }

// orEmpty are arguments as a call has them that names none.
func orEmpty(doc []byte) []byte {
	if len(doc) == 0 {
		return []byte("{}")
	}
	return doc
}

// hold waits for a place for a file that is held whole.
func (d *Desk) hold(r *run) (leave func(), f *failure) {
	d.mu.Lock()
	if d.held == nil {
		d.held = make(chan struct{}, inserts)
	}
	places := d.held
	d.mu.Unlock()
	select {
	case places <- struct{}{}:
		return func() { <-places }, nil
	case <-r.ctx.Done():
		r.lost = context.Cause(r.ctx)
		return nil, &failure{status: "canceled", code: api.CodeCanceled, message: "nobody waits any more"}
	}
}
