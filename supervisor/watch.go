package supervisor

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/stockade-dev/stockade/internal/spool"
	"github.com/stockade-dev/stockade/supervisor/api"
)

const (
	readAtOnce   = 64 << 10  // bytes of one output event
	pendingBytes = 256 << 10 // bytes of output in one answer, if the caller does not say
	mostPending  = 1 << 20   // and if he does
	chunkCost    = 128       // of each chunk beside its bytes: a command can write them one by one
	framesAtOnce = 64        // frames that are read together: an execution can have a million
	farBehind    = 1 << 20   // bytes that a reader may be behind without being told
)

// Watch hands the frames and the output of an execution to emit, from the cursor Read.After on,
// until it has ended, and returns its receipt. It serves executions that live and those that
// ended; of the latter it gives what is kept.
func (s *Supervisor) Watch(ctx context.Context, req *api.Request, emit func(api.Event)) (receipt, denial *api.Receipt, err error) {
	x, at, denial, err := s.permitFollow(req)
	if denial != nil || err != nil {
		return nil, denial, err
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

// permitFollow asks whether the caller may read what an execution writes from the cursor Read.After on, and
// returns it if it lives.
func (s *Supervisor) permitFollow(req *api.Request) (x *execution, at cursor, denial *api.Receipt, err error) {
	at, bad := parseCursor(req.Read.After)
	if bad != nil {
		return nil, at, nil, bad
	}
	ref := api.ProcessRef{ExecID: req.Read.ExecID, IntentID: req.Read.IntentID}
	denial, err = s.permitRead(req, func(c *call) *api.Error {
		if record, ok := s.chronicle.process(req.Principal, ref); ok {
			c.subject = &record
		}
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
	if denial != nil || err != nil {
		return nil, at, denial, err
	}
	if bad := s.reached(req, x, at); bad != nil {
		return nil, at, nil, bad
	}
	return x, at, nil, nil
}

// reached refuses a cursor beyond the output that an execution has so far, or had.
func (s *Supervisor) reached(req *api.Request, x *execution, at cursor) *api.Error {
	if x != nil && x.follow() {
		defer x.leave()
		return within(at, x.log.Kept(spool.Stdout), x.log.Kept(spool.Stderr))
	}
	record, ok := s.chronicle.process(req.Principal, api.ProcessRef{ExecID: req.Read.ExecID, IntentID: req.Read.IntentID})
	if !ok || !record.State.Final() {
		return nil // its receipt is on its way, or all that there is
	}
	return within(at, record.StdoutBytes, record.StderrBytes)
}

// within refuses a cursor that says more than there is: none that was given out does, and waiting
// for the process to come there would be waiting for another stream.
func within(at cursor, stdout, stderr int64) *api.Error {
	if at.stdout > stdout || at.stderr > stderr {
		return invalidCursor(at.String())
	}
	return nil
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

// watch hands the frames and the output of a live execution to emit, from the cursor on, until
// it has been settled or ctx ends. It moves the cursor, and reports whether nothing is left: of one that
// had ended before, what is kept has to be read.
func (s *Supervisor) watch(ctx context.Context, x *execution, at *cursor, emit func(api.Event)) (end bool) {
	if !x.follow() {
		return false
	}
	defer x.leave()
	lag := logSource{x.log}
	lagging := false
	for ctx.Err() == nil {
		output, frames := x.log.Changed(), x.wake.next()
		settled := isClosed(x.call.done)
		in, _ := s.intent(x.session.principal, x.call.intent)
		moved, err := s.emitFrames(x.call.intent, x.id, in.FrameSeq, at, emit)
		if err != nil {
			return false // it is in the log
		}
		for ctx.Err() == nil {
			if behind := lag.behind(*at); (behind != nil) != lagging {
				if lagging = behind != nil; lagging {
					emit(api.Event{Kind: "lagged", Cursor: at.String(), IntentID: x.call.intent, ExecID: x.id, Lagged: behind})
				}
			}
			src := x.source()
			skip(x.call.intent, x.id, at, src.first(*at), emit)
			chunk, err := src.next(at, readAtOnce)
			if err != nil {
				s.log.Warn("output cannot be read", "exec_id", x.id, "error", err)
				return false
			}
			if len(chunk.Bytes) == 0 {
				break
			}
			emit(outputEvent(x.call.intent, x.id, chunk, *at))
			moved = true
		}
		switch {
		case moved:
		case settled:
			return true
		default:
			select {
			case <-output:
			case <-frames:
			case <-x.call.done:
			case <-ctx.Done():
			}
		}
	}
	return false
}

func outputEvent(intent, exec string, c api.Chunk, at cursor) api.Event {
	return api.Event{Kind: "output", Cursor: at.String(), IntentID: intent, ExecID: exec, Stream: c.Stream, Offset: c.Offset, Bytes: c.Bytes, AtNS: c.AtNS}
}

// emitKept hands out what is kept of an execution that has ended.
func (s *Supervisor) emitKept(ctx context.Context, r *api.Receipt, at cursor, emit func(api.Event)) error {
	for more := true; more && ctx.Err() == nil; {
		var err error
		if more, err = s.emitFrames(r.IntentID, r.ExecID, r.FrameSeq, &at, emit); err != nil {
			return err
		}
	}
	src, done, err := s.keptOutput(r)
	if err != nil {
		return err
	}
	defer done()
	skip(r.IntentID, r.ExecID, &at, src.first(at), emit)
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

// Output returns output of an execution after the cursor Read.After, at most MaxBytes of it, nor more than 1 MiB. Where
// there is none yet it waits for WaitMS.
func (s *Supervisor) Output(ctx context.Context, req *api.Request) (*api.Pending, *api.Receipt, error) {
	x, at, denial, err := s.permitFollow(req)
	if denial != nil || err != nil {
		return nil, denial, err
	}
	most := min(cmp.Or(req.Read.MaxBytes, pendingBytes), mostPending)
	if x == nil {
		p, err := s.endedOutput(req, at, most)
		return p, nil, err
	}
	deadline := time.NewTimer(time.Duration(req.Read.WaitMS) * time.Millisecond)
	defer deadline.Stop()
	for {
		// Between the end of the log and the receipt there is neither: that is a moment to wait in.
		var changed <-chan struct{}
		if x.follow() {
			changed = x.log.Changed()
			x.leave()
		}
		p, err := s.pending(x, at, most)
		if err != nil || len(p.Output) > 0 || p.Gone != nil {
			return p, nil, err
		}
		select {
		case <-changed:
		case <-x.call.done:
			if x.call.err != nil { // it goes on, but not with this supervisor
				return nil, nil, x.call.err
			}
			p, err := s.endedOutput(req, at, most)
			return p, nil, err
		case <-deadline.C:
			return p, nil, nil
		case <-ctx.Done():
			return nil, nil, context.Cause(ctx)
		}
	}
}

// endedOutput is Output of an execution that has ended.
func (s *Supervisor) endedOutput(req *api.Request, at cursor, most int64) (*api.Pending, error) {
	r, err := s.receiptOf(req)
	if err != nil {
		return nil, err
	}
	p := &api.Pending{IntentID: r.IntentID, ExecID: r.ExecID, SessionID: r.SessionID, Receipt: r}
	if record, ok := s.chronicle.process(req.Principal, api.ProcessRef{ExecID: r.ExecID}); ok {
		p.State = record.State
	}
	src, done, err := s.keptOutput(r)
	if err != nil {
		return nil, err
	}
	defer done()
	if first := src.first(at); first != at {
		p.Gone = &api.Gone{From: at.String(), FirstAvailable: first.String()}
		p.Cursor = first.String()
		return p, nil
	}
	if p.Output, err = chunks(src, &at, most); err != nil {
		return nil, missing(err)
	}
	rest := at
	next, err := src.next(&rest, 1)
	p.End = err == nil && len(next.Bytes) == 0
	p.Cursor = at.String()
	return p, nil
}

// pending says where an execution is, with its output after the cursor.
func (s *Supervisor) pending(x *execution, at cursor, most int64) (*api.Pending, error) {
	record, _ := s.chronicle.process(x.session.principal, api.ProcessRef{ExecID: x.id})
	p := &api.Pending{IntentID: x.call.intent, ExecID: x.id, SessionID: x.session.id, State: record.State}
	if x.follow() {
		defer x.leave()
		src := x.source()
		if first := src.first(at); first != at {
			p.Gone = &api.Gone{From: at.String(), FirstAvailable: first.String()}
			p.Cursor = first.String()
			return p, nil
		}
		var err error
		if p.Output, err = chunks(src, &at, most); err != nil {
			return nil, api.Errorf(api.CodeBlobFailed, "output: %v", err)
		}
	}
	p.Cursor = at.String()
	return p, nil
}

// chunks reads up to most bytes, and what it costs to say where they belong.
func chunks(src outputSource, at *cursor, most int64) ([]api.Chunk, error) {
	var all []api.Chunk
	for most > 0 {
		c, err := src.next(at, most)
		if err != nil || len(c.Bytes) == 0 {
			return all, err
		}
		most -= int64(len(c.Bytes)) + chunkCost
		all = append(all, c)
	}
	return slices.Clip(all), nil
}
