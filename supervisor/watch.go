package supervisor

import (
	"context"
	"io"
	"slices"

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

// outputSource is where the output of an execution is read: the log of one that lives or is
// remembered, or the receipt of one that is not.
type outputSource interface {
	// next gives what follows the cursor, in order of arrival, and moves the cursor. No bytes and no
	// error is the end, for now or for good.
	next(at *cursor, most int64) (api.Chunk, error)

	// first gives the first position from the cursor on behind which nothing is left out.
	first(at cursor) cursor
}

// logSource reads a spooled log.
type logSource struct{ log *spool.Log }

func (l logSource) next(at *cursor, most int64) (api.Chunk, error) {
	for _, c := range l.log.Chunks(l.log.Position(at.stdout, at.stderr), 16) {
		offset := at.offset(c.Stream.String())
		left := c.Offset + c.Length - *offset
		if c.Dropped || left <= 0 {
			continue
		}
		buf := make([]byte, min(left, most, readAtOnce))
		n, err := l.log.ReadAt(c.Stream, buf, *offset)
		if err == io.EOF {
			err = nil
		}
		if err != nil || n == 0 {
			return api.Chunk{}, err
		}
		out := api.Chunk{Seq: c.Seq, Stream: c.Stream.String(), Offset: *offset, Bytes: buf[:n], AtNS: c.AtNS}
		*offset += int64(n)
		return out, nil
	}
	return api.Chunk{}, nil
}

func (logSource) first(at cursor) cursor { return at }

// behind says how far a reader is behind the process.
func (l logSource) behind(at cursor) *api.Lagged {
	for _, st := range []spool.Stream{spool.Stdout, spool.Stderr} {
		if kept, has := l.log.Kept(st), *at.offset(st.String()); kept-has > farBehind {
			return &api.Lagged{Stream: st.String(), From: has, To: kept}
		}
	}
	return nil
}

// watch hands the frames and the output of a live execution to emit, from the cursor on, until
// it has been settled or ctx ends. It moves the cursor, and reports whether nothing is left: of one that
// had ended before, what is kept has to be read.
func (s *Supervisor) watch(ctx context.Context, x *execution, at *cursor, emit func(api.Event)) (end bool) {
	if !x.follow() {
		return false
	}
	defer x.leave()
	src := logSource{x.log}
	lagging := false
	for ctx.Err() == nil {
		output, frames := x.log.Changed(), x.wake.next()
		settled := isClosed(x.call.done)
		moved := s.emitFrames(x, at, emit)
		for ctx.Err() == nil {
			if lag := src.behind(*at); (lag != nil) != lagging {
				if lagging = lag != nil; lagging {
					emit(api.Event{Kind: "lagged", Cursor: at.String(), IntentID: x.call.intent, ExecID: x.id, Lagged: lag})
				}
			}
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

func isClosed(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}

func outputEvent(intent, exec string, c api.Chunk, at cursor) api.Event {
	return api.Event{Kind: "output", Cursor: at.String(), IntentID: intent, ExecID: exec, Stream: c.Stream, Offset: c.Offset, Bytes: c.Bytes, AtNS: c.AtNS}
}

// emitFrames hands out the frames after the cursor.
func (s *Supervisor) emitFrames(x *execution, at *cursor, emit func(api.Event)) (moved bool) {
	frames, err := s.framesAfter(x.call.intent, at.frame, 0, framesAtOnce)
	if err != nil {
		return false // it is in the log
	}
	for i := range frames {
		at.frame = frames[i].Seq
		emit(api.Event{Kind: "frame", Cursor: at.String(), IntentID: x.call.intent, ExecID: x.id, Frame: &frames[i]})
	}
	return len(frames) > 0
}

// reached refuses a cursor that says more than there is: none that was given out does, and waiting
// for the process to come there would be waiting for another stream.
func reached(at cursor, stdout, stderr int64) *api.Error {
	if at.stdout > stdout || at.stderr > stderr {
		return invalidCursor(at.String())
	}
	return nil
}

// pending says where an execution is, with its output after the cursor.
func (s *Supervisor) pending(x *execution, at cursor, most int64) (*api.Pending, error) {
	record, _ := s.chronicle.process(x.session.principal, api.ProcessRef{ExecID: x.id})
	p := &api.Pending{IntentID: x.call.intent, ExecID: x.id, SessionID: x.session.id, State: record.State}
	if x.follow() {
		defer x.leave()
		var err error
		if p.Output, err = chunks(logSource{x.log}, &at, most); err != nil {
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
