package supervisor

import (
	"errors"
	"io"
	"math"
	"strings"

	"github.com/stockade-dev/stockade/internal/blob"
	"github.com/stockade-dev/stockade/internal/spool"
	"github.com/stockade-dev/stockade/supervisor/api"
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

// keptOutput opens the output of an execution that has ended: in the order in which it came, if
// that is still known, and otherwise as its receipt has it, stdout first.
func (s *Supervisor) keptOutput(r *api.Receipt) (outputSource, func(), error) {
	if r.Payload.Exec == nil {
		return &receiptSource{}, func() {}, nil
	}
	if r.Op == api.OpShellOpen {
		t, done, err := s.keptTape(r)
		if err != nil {
			return nil, nil, err
		}
		return unmarked{t}, done, nil
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
