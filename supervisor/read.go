package supervisor

import (
	"cmp"
	"context"
	"errors"
	"io"
	"math"
	"strings"

	"github.com/go-json-experiment/json"

	"github.com/stockade-dev/stockade/internal/blob"
	"github.com/stockade-dev/stockade/internal/journal"
	"github.com/stockade-dev/stockade/internal/spool"
	"github.com/stockade-dev/stockade/rego"
	"github.com/stockade-dev/stockade/supervisor/api"
	"github.com/stockade-dev/stockade/supervisor/ledger"
)

// reads are the operations without effect. Policy is asked about each. One that is
// allowed leaves no record; one that is denied returns its receipt as the second result
// and nothing else. An error is an *api.Error, or the context's of a caller that waited.
var reads = []api.Op{
	api.OpSessionGet, api.OpSessionList, api.OpSessionEvents, api.OpEvents,
	api.OpProcessGet, api.OpProcessList, api.OpProcessWait, api.OpProcessWatch, api.OpOutput,
	api.OpIntentGet, api.OpIntentList, api.OpIntentFrames,
	api.OpBlobGet, api.OpReceiptGet, api.OpReceiptList, api.OpCheckpoint, api.OpDecide, api.OpHostInfo,
	api.OpQuiescence, api.OpSnapshot,
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
	e, ok := s.chronicle.receipts.intent(req.Principal, req.Read.IntentID)
	if !ok {
		return nil, nil, s.absent(api.Errorf(api.CodeNotFound, "there is no receipt of %.80s", req.Read.IntentID))
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
	room := pageBytes
	for _, seq := range s.chronicle.receipts.list(req.Principal, req.Read, limit(req.Read.Limit)) {
		r, size, err := s.sizedReceipt(seq)
		if isGone(err) {
			break // trimmed since, and so are those that follow
		}
		if err != nil {
			return nil, nil, err
		}
		if room -= size; room < 0 && len(list.Receipts) > 0 {
			return nil, nil, api.Errorf(api.CodeTooLarge, "these receipts have more than %d bytes, with the output in them: ask for %d with limit", pageBytes, len(list.Receipts))
		}
		list.Receipts = append(list.Receipts, *r)
	}
	return list, nil, nil
}

// pageBytes is how large a page of receipts may be: one alone can have megabytes of output in it.
const pageBytes = 32 << 20

// receiptAt reads a receipt where it is durable.
func (s *Supervisor) receiptAt(seq int64) (*api.Receipt, error) {
	r, _, err := s.sizedReceipt(seq)
	return r, err
}

// sizedReceipt is receiptAt, with the size of the record.
func (s *Supervisor) sizedReceipt(seq int64) (*api.Receipt, int, error) {
	b, err := s.journal.Get(seq)
	if err == nil {
		var record ledger.Settled
		if err = json.Unmarshal(b, &record); err == nil && record.Receipt != nil {
			return record.Receipt, len(b), nil
		}
	}
	if errors.Is(err, journal.ErrTrimmed) {
		return nil, 0, api.Errorf(api.CodeGone, "the receipt is not kept any more")
	}
	s.log.Error("receipt cannot be read", "seq", seq, "error", err)
	return nil, 0, api.Errorf(api.CodeJournalFailed, "the receipt cannot be read")
}

// absent is the answer to an id that neither the view nor the journal has. Of a journal that was trimmed nobody
// can say whether it had it; that is the same for everybody's ids.
func (s *Supervisor) absent(err *api.Error) *api.Error {
	first := s.journal.First()
	if first == 0 {
		return err
	}
	return api.Errorf(api.CodeGone, "%s, unless it was before record %d: those are not kept any more", err.Message, first)
}

func isGone(err error) bool {
	e, ok := errors.AsType[*api.Error](err)
	return ok && e.Code == api.CodeGone
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

// Watch hands the frames and the output of an execution to emit, from the cursor Read.After on,
// until it has ended, and returns its receipt. It serves executions that live and those that
// ended; of the latter it gives what is kept.
func (s *Supervisor) Watch(ctx context.Context, req *api.Request, emit func(api.Event)) (receipt, denial *api.Receipt, err error) {
	at, bad := parseCursor(req.Read.After)
	if bad != nil {
		return nil, nil, bad
	}
	x, denial, err := s.permitFollow(req)
	if denial != nil || err != nil {
		return nil, denial, err
	}
	if bad := s.reached(req, x, at); bad != nil {
		return nil, nil, bad
	}
	if x != nil {
		end := s.watch(ctx, x, &at, emit)
		if receipt, err = x.call.wait(ctx); err != nil || end {
			return receipt, nil, err
		}
	} else if receipt, err = s.receiptOf(req); err != nil {
		return nil, nil, err
	}
	return receipt, nil, s.emitKept(ctx, receipt, at, emit)
}

// permitFollow asks whether the caller may read what an execution writes, and returns it if it
// lives.
func (s *Supervisor) permitFollow(req *api.Request) (x *execution, denial *api.Receipt, err error) {
	ref := api.ProcessRef{ExecID: req.Read.ExecID, IntentID: req.Read.IntentID}
	denial, err = s.permitRead(req, func(c *call) *api.Error {
		if x = s.registry.execution(req.Principal, ref); x != nil {
			c.session = x.session
			return nil
		}
		ended, ok := s.receiptPlace(req)
		if !ok {
			return s.absent(unknownExecution(ref))
		}
		c.session, _ = s.registry.find(req.Principal, ended.session) // nil once it is history
		return nil
	})
	return x, denial, err
}

// reached refuses a cursor beyond the output that an execution has so far, or had.
func (s *Supervisor) reached(req *api.Request, x *execution, at cursor) *api.Error {
	if x != nil && x.follow() {
		defer x.leave()
		return reached(at, x.log.Kept(spool.Stdout), x.log.Kept(spool.Stderr))
	}
	record, ok := s.chronicle.process(req.Principal, api.ProcessRef{ExecID: req.Read.ExecID, IntentID: req.Read.IntentID})
	if !ok || !record.State.Final() {
		return nil // its receipt is on its way, or all that there is
	}
	return reached(at, record.StdoutBytes, record.StderrBytes)
}

// unknownExecution is the answer to an id that does not exist, and to one of somebody else's.
func unknownExecution(ref api.ProcessRef) *api.Error {
	return api.Errorf(api.CodeExecNotFound, "there is no execution %.80s", cmp.Or(ref.ExecID, ref.IntentID))
}

func (s *Supervisor) receiptPlace(req *api.Request) (entry, bool) {
	if req.Read.ExecID != "" {
		return s.chronicle.receipts.exec(req.Principal, req.Read.ExecID)
	}
	e, ok := s.chronicle.receipts.intent(req.Principal, req.Read.IntentID)
	return e, ok && e.exec != "" && !e.deleted
}

// receiptOf returns the receipt of an execution that has ended.
func (s *Supervisor) receiptOf(req *api.Request) (*api.Receipt, error) {
	e, ok := s.receiptPlace(req)
	if !ok {
		return nil, s.absent(unknownExecution(api.ProcessRef{ExecID: req.Read.ExecID, IntentID: req.Read.IntentID}))
	}
	return s.receiptAt(e.seq)
}

// emitKept hands out what is kept of an execution that has ended.
func (s *Supervisor) emitKept(ctx context.Context, r *api.Receipt, at cursor, emit func(api.Event)) error {
	skip := func(to cursor) {
		if from := at; from != to {
			at = to
			emit(api.Event{Kind: "gone", Cursor: at.String(), IntentID: r.IntentID, ExecID: r.ExecID, Gone: &api.Gone{From: from.String(), FirstAvailable: at.String()}})
		}
	}
	for more := true; more && ctx.Err() == nil; {
		frames, err := s.framesAfter(r.IntentID, at.frame, r.FrameSeq, framesAtOnce)
		if isGone(err) {
			skip(cursor{max(at.frame, r.FrameSeq), at.stdout, at.stderr})
		} else if err != nil {
			return err
		}
		for i := range frames {
			at.frame = frames[i].Seq
			emit(api.Event{Kind: "frame", Cursor: at.String(), IntentID: r.IntentID, ExecID: r.ExecID, Frame: &frames[i]})
		}
		more = len(frames) > 0
	}
	src, done, err := s.keptOutput(r)
	if err != nil {
		return err
	}
	defer done()
	skip(src.first(at))
	for ctx.Err() == nil {
		chunk, err := src.next(&at, readAtOnce)
		if err != nil {
			return api.Errorf(api.CodeBlobFailed, "output: %v", err)
		}
		if len(chunk.Bytes) == 0 {
			return nil
		}
		emit(outputEvent(r.IntentID, r.ExecID, chunk, at))
	}
	return nil
}

// keptOutput opens the output of an execution that has ended: in the order in which it came, if
// that is still known, and otherwise as its receipt has it, stdout first.
func (s *Supervisor) keptOutput(r *api.Receipt) (outputSource, func(), error) {
	if r.Payload.Exec == nil {
		return &receiptSource{}, func() {}, nil
	}
	// What is open when the supervisor closes can be read to its end; nothing is opened behind it.
	if !s.admission.enter() {
		return nil, nil, api.Errorf(api.CodeShuttingDown, "the supervisor is shutting down")
	}
	log, err := s.spool.Recover(r.ExecID, math.MaxInt64)
	s.admission.leave()
	if err == nil {
		if holds(log, r.Payload.Exec) {
			log.Seal()
			return logSource{log}, log.Close, nil
		}
		log.Close()
	}
	src := &receiptSource{}
	for i, o := range outputsOf(r.Payload.Exec) {
		if o.output == nil {
			src.lost[i] = o.total
			continue
		}
		var err error
		if src.content[i], err = s.recorded(o.output); err != nil {
			src.close()
			return nil, nil, missing(err)
		}
	}
	return src, src.close, nil
}

// outputOf is what a receipt says of one stream.
type outputOf struct {
	output *api.Output // nil: there was none, or it is not in the receipt
	total  int64       // bytes that the command wrote
}

func outputsOf(x *api.ExecResult) [2]outputOf {
	return [2]outputOf{{x.Stdout, x.StdoutBytes}, {x.Stderr, x.StderrBytes}}
}

// holds reports whether a log has all that there ever was to read: a crash can have left a part of one that
// was being removed.
func holds(log *spool.Log, x *api.ExecResult) bool {
	some := false
	for i, o := range outputsOf(x) {
		kept := log.Kept(spool.Stream(i))
		some = some || kept > 0
		if kept < o.output.Kept() || o.output == nil && o.total > 0 && kept == 0 {
			return false
		}
	}
	return some
}

// missing is an error of content that a receipt names.
func missing(err error) *api.Error {
	if errors.Is(err, blob.ErrNotFound) {
		return api.Errorf(api.CodeMissingDependency, "%v", err)
	}
	return api.Errorf(api.CodeBlobFailed, "%v", err)
}

// receiptSource reads what a receipt holds.
type receiptSource struct {
	content [2]content
	lost    [2]int64 // bytes of a stream that were kept beside the receipt, and are not any more
}

func (r *receiptSource) first(at cursor) cursor {
	at.stdout, at.stderr = max(at.stdout, r.lost[0]), max(at.stderr, r.lost[1])
	return at
}

func (r *receiptSource) next(at *cursor, most int64) (api.Chunk, error) {
	for i, name := range []string{"stdout", "stderr"} {
		if r.content[i] == nil {
			continue
		}
		offset := at.offset(name)
		buf := make([]byte, min(most, readAtOnce))
		n, err := r.content[i].ReadAt(buf, *offset)
		if err != nil && err != io.EOF {
			return api.Chunk{}, err
		}
		if n > 0 {
			out := api.Chunk{Seq: int64(i + 1), Stream: name, Offset: *offset, Bytes: buf[:n]}
			*offset += int64(n)
			return out, nil
		}
	}
	return api.Chunk{}, nil
}

func (r *receiptSource) close() {
	for _, c := range r.content {
		if c != nil {
			c.Close()
		}
	}
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
		s.refuse(c, why)
		return c.receipt, c.err
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
