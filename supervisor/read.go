package supervisor

import (
	"cmp"
	"context"
	"errors"
	"io"
	"strings"

	"github.com/go-json-experiment/json"

	"github.com/stockade-dev/stockade/internal/blob"
	"github.com/stockade-dev/stockade/rego"
	"github.com/stockade-dev/stockade/supervisor/api"
	"github.com/stockade-dev/stockade/supervisor/ledger"
)

// reads are the operations without effect. Policy is asked about each. One that is
// allowed leaves no record; one that is denied returns its receipt as the second result
// and nothing else. An error is an *api.Error, or the context's of a caller that waited.
var reads = []api.Op{
	api.OpSessionGet, api.OpSessionList, api.OpOutput, api.OpBlobGet,
	api.OpReceiptGet, api.OpReceiptList, api.OpCheckpoint, api.OpDecide, api.OpHostInfo,
}

// page is how many elements a list returns when the caller does not say.
// [api.Request.Validate] bounds what he says.
const page = 100

func limit(asked int64) int { return int(cmp.Or(asked, page)) }

// Session returns one session of the caller's.
func (s *Supervisor) Session(ctx context.Context, req *api.Request) (*api.Session, *api.Receipt, error) {
	var ses *session
	denial, err := s.permitRead(req, func(c *call) *api.Error {
		var err *api.Error
		ses, err = s.registry.find(req.Principal, req.Read.SessionID)
		if err == nil {
			c.session = ses
		}
		return err
	})
	if denial != nil || err != nil {
		return nil, denial, err
	}
	d := ses.document()
	return &d, nil, nil
}

// Sessions lists the caller's sessions, newest first; Labels, State and Limit of the
// request's Read filter.
func (s *Supervisor) Sessions(ctx context.Context, req *api.Request) (*api.SessionList, *api.Receipt, error) {
	if denial, err := s.permitRead(req, nil); denial != nil || err != nil {
		return nil, denial, err
	}
	list := &api.SessionList{Sessions: []api.Session{}}
	all := s.registry.all()
	for i := len(all) - 1; i >= 0 && len(list.Sessions) < limit(req.Read.Limit); i-- {
		ses := all[i]
		if !owns(ses.principal, req.Principal) || !ses.visible() || !labelled(ses.labels, req.Read.Labels) {
			continue
		}
		if d := ses.document(); fits(req.Read.State, d.State) {
			list.Sessions = append(list.Sessions, d)
		}
	}
	return list, nil, nil
}

func labelled(labels, filter map[string]string) bool {
	for name, value := range filter {
		if got, ok := labels[name]; !ok || got != value {
			return false
		}
	}
	return true
}

// Receipt returns the receipt of one of the caller's intents.
func (s *Supervisor) Receipt(ctx context.Context, req *api.Request) (*api.Receipt, *api.Receipt, error) {
	if denial, err := s.permitRead(req, nil); denial != nil || err != nil {
		return nil, denial, err
	}
	e, ok := s.receipts.intent(req.Principal, req.Read.IntentID)
	if !ok {
		return nil, nil, api.Errorf(api.CodeNotFound, "there is no receipt of %.80s", req.Read.IntentID)
	}
	r, err := s.receiptAt(e.seq)
	return r, nil, err
}

// Receipts lists the caller's receipts, newest first; SessionID, ExecID, IntentID, Op,
// Outcome and Limit of the request's Read filter.
func (s *Supervisor) Receipts(ctx context.Context, req *api.Request) (*api.ReceiptList, *api.Receipt, error) {
	if denial, err := s.permitRead(req, nil); denial != nil || err != nil {
		return nil, denial, err
	}
	list := &api.ReceiptList{Receipts: []api.Receipt{}}
	for _, seq := range s.receipts.list(req.Principal, req.Read, limit(req.Read.Limit)) {
		r, err := s.receiptAt(seq)
		if err != nil {
			return nil, nil, err
		}
		list.Receipts = append(list.Receipts, *r)
	}
	return list, nil, nil
}

// receiptAt reads a receipt where it is durable.
func (s *Supervisor) receiptAt(seq int64) (*api.Receipt, error) {
	b, err := s.journal.Get(seq)
	if err == nil {
		var record ledger.Settled
		if err = json.Unmarshal(b, &record); err == nil && record.Receipt != nil {
			return record.Receipt, nil
		}
	}
	s.log.Error("receipt cannot be read", "seq", seq, "error", err)
	return nil, api.Errorf(api.CodeJournalFailed, "the receipt cannot be read")
}

// OpenBlob returns the content of a blob and its size. Content that does not match its
// name ends in an error instead of the end. The caller closes it.
func (s *Supervisor) OpenBlob(ctx context.Context, req *api.Request) (io.ReadCloser, int64, *api.Receipt, error) {
	if denial, err := s.permitRead(req, nil); denial != nil || err != nil {
		return nil, 0, denial, err
	}
	content, size, err := s.blobs.Reader(req.Read.BlobRef)
	switch {
	case errors.Is(err, blob.ErrNotFound):
		return nil, 0, nil, api.Errorf(api.CodeNotFound, "there is no blob %s", req.Read.BlobRef)
	case errors.Is(err, blob.ErrMalformed):
		return nil, 0, nil, api.Errorf(api.CodeInvalidBlobRef, "%v", err)
	case err != nil:
		return nil, 0, nil, api.Errorf(api.CodeBlobFailed, "%v", err)
	}
	return content, size, nil, nil
}

// Output hands the output of an execution to emit, from the offsets on, until the
// execution has ended, and returns its receipt. It serves executions that run and those
// that ended; of the latter it gives what their receipts hold.
func (s *Supervisor) Output(ctx context.Context, req *api.Request, from api.Offsets, emit func(api.Event)) (*api.Receipt, *api.Receipt, error) {
	var running *call
	denial, err := s.permitRead(req, func(c *call) *api.Error {
		if running = s.registry.running(req.Principal, req.Read.ExecID); running != nil {
			c.session = running.session
			return nil
		}
		ended, ok := s.receipts.exec(req.Principal, req.Read.ExecID)
		if !ok {
			return api.Errorf(api.CodeExecNotFound, "there is no execution %s", req.Read.ExecID)
		}
		c.session, _ = s.registry.find(req.Principal, ended.session) // nil once it is history
		return nil
	})
	if denial != nil || err != nil {
		return nil, denial, err
	}
	if running != nil {
		if f := running.execution.follow(running.intent, from); f != nil {
			f.run(ctx, emit)
			r, err := running.wait(ctx, nil)
			return r, nil, err
		}
		if _, err := running.wait(ctx, nil); err != nil {
			return nil, nil, err
		}
	}
	e, ok := s.receipts.exec(req.Principal, req.Read.ExecID)
	if !ok {
		return nil, nil, api.Errorf(api.CodeExecNotFound, "there is no execution %s", req.Read.ExecID)
	}
	r, err := s.receiptAt(e.seq)
	if err != nil {
		return nil, nil, err
	}
	return r, nil, s.emitRecorded(ctx, r, from, emit)
}

// emitRecorded hands out what a receipt holds of the output.
func (s *Supervisor) emitRecorded(ctx context.Context, r *api.Receipt, from api.Offsets, emit func(api.Event)) error {
	if r.Payload.Exec == nil {
		return nil
	}
	for _, o := range []struct {
		name   string
		output *api.Output
		offset int64
	}{{"stdout", r.Payload.Exec.Stdout, from.Stdout}, {"stderr", r.Payload.Exec.Stderr, from.Stderr}} {
		content, err := s.recorded(o.output)
		if err != nil {
			return api.Errorf(api.CodeBlobFailed, "%s: %v", o.name, err)
		}
		offset := o.offset
		for ctx.Err() == nil {
			buf := make([]byte, 32<<10)
			n, err := content.ReadAt(buf, offset)
			if n > 0 {
				emit(api.Event{Kind: "output", IntentID: r.IntentID, ExecID: r.ExecID, Stream: o.name, Offset: offset, Bytes: buf[:n]})
				offset += int64(n)
			}
			if err != nil || n == 0 {
				break
			}
		}
		content.Close()
	}
	return nil
}

// content is output wherever it is kept.
type content interface {
	io.ReaderAt
	io.Closer
}

func (s *Supervisor) recorded(o *api.Output) (content, error) {
	switch {
	case o == nil:
	case o.InlineText != nil:
		return inline{strings.NewReader(o.InlineText.Text)}, nil
	case o.InlineBytes != nil:
		return inline{strings.NewReader(string(o.InlineBytes.Bytes))}, nil
	case o.Blob != nil:
		f, _, err := s.blobs.Open(o.Blob.BlobRef)
		if err != nil {
			return nil, err
		}
		return f, nil
	}
	return inline{strings.NewReader("")}, nil
}

type inline struct{ io.ReaderAt }

func (inline) Close() error { return nil }

// Decide says what would become of an operation, and changes nothing. req is the
// operation itself; whether the caller may ask is policy's too.
func (s *Supervisor) Decide(ctx context.Context, req *api.Request) (*api.Decision, *api.Receipt, error) {
	question := &api.Request{Op: api.OpDecide, Principal: req.Principal, Facade: req.Facade, Read: &api.Read{}}
	if denial, err := s.permitRead(question, nil); denial != nil || err != nil {
		return nil, denial, err
	}
	c, err := s.newCall(req)
	if err != nil {
		return nil, nil, err
	}
	defer s.admission.leave()
	why := s.permit(c)
	c.operation.abandon(s, c)
	if why != nil && why.fault != nil {
		return nil, nil, why.fault
	}
	d := &api.Decision{Op: req.Op, Allow: why == nil, Warn: c.decision.Warn, Policy: c.decision.Policy, Grant: c.grant, Clamped: c.clamped}
	if why != nil {
		d.Deny = why.deny
	}
	return d, nil, nil
}

// Checkpoint signs all that the journal has so far. It says how much that is, and nothing
// of what.
func (s *Supervisor) Checkpoint(ctx context.Context, req *api.Request) (*api.Checkpoint, *api.Receipt, error) {
	if denial, err := s.permitRead(req, nil); denial != nil || err != nil {
		return nil, denial, err
	}
	msg, err := s.journal.Checkpoint()
	if err != nil {
		s.log.Error("checkpoint", "error", err)
		return nil, nil, api.Errorf(api.CodeJournalFailed, "the checkpoint cannot be stored")
	}
	return &api.Checkpoint{Note: string(msg)}, nil, nil
}

// HostInfo returns the machine, the ceiling and the policy in force.
func (s *Supervisor) HostInfo(ctx context.Context, req *api.Request) (*api.HostInfo, *api.Receipt, error) {
	if denial, err := s.permitRead(req, nil); denial != nil || err != nil {
		return nil, denial, err
	}
	return &api.HostInfo{
		Version:      s.Version(),
		Host:         s.host,
		Ceiling:      s.ceiling,
		PolicyDigest: s.policy.Digest(),
		JournalKey:   s.journal.PublicKey(),
	}, nil, nil
}

// Version says who answers. It asks no policy.
func (s *Supervisor) Version() api.Version {
	return api.Version{Version: s.version, API: 1, Operations: Operations()}
}

// permitRead asks policy about a read. find, if not nil, looks for the object first: one
// that the caller may not know of is not a question for policy.
func (s *Supervisor) permitRead(req *api.Request, find func(*call) *api.Error) (denial *api.Receipt, err error) {
	if err := req.Validate(); err != nil {
		return nil, err
	}
	c, err := s.newRead(req)
	if err != nil {
		return nil, err
	}
	defer s.admission.leave()
	if find != nil {
		if err := find(c); err != nil {
			return nil, err
		}
	}
	if why := decide(s, c); why != nil {
		return s.refuse(c, why)
	}
	return nil, nil
}

var readOperation = operation{
	abandon: nothing,
	failed:  func(api.Code, string) api.Payload { return api.Payload{} },
}

func (s *Supervisor) newRead(req *api.Request) (*call, error) {
	if _, ok := rego.Entrypoint(req.Op); !ok || operations[req.Op].act != nil {
		return nil, api.Errorf(api.CodeUnknownMethod, "%.80q is not a read", string(req.Op))
	}
	return s.enter(req, readOperation)
}
