package supervisor

import (
	"bytes"
	"io"
	"sync"
	"unicode/utf8"

	"github.com/stockade-dev/stockade/internal/blob"
	"github.com/stockade-dev/stockade/supervisor/api"
)

// A stream is the append-only byte log of one output of one execution (C13). The
// process writes it through a pipe that is always being read; followers read it by
// offset and never hold the process up (R154). Past limit, bytes are counted and
// dropped. Small output stays in memory; large output is already in the file that
// becomes its blob.
type stream struct {
	name  string // "stdout" or "stderr"
	limit int64  // bytes that are kept
	store *blob.Store
	wake  *wake

	mu        sync.Mutex
	content   *blob.Writer // what is kept, until sealed
	kept      int64
	total     int64 // what the process wrote
	failed    error // of the store; the process is drained nevertheless
	sealed    bool
	final     io.ReaderAt // what is kept, after sealing, while there are followers
	followers int
}

// Write appends what fits below the limit. It never fails and never waits for a
// reader, so that copying a pipe into it always drains the pipe.
func (s *stream) Write(p []byte) (int, error) {
	s.mu.Lock()
	if !s.sealed {
		s.total += int64(len(p))
		if fit := p[:min(int64(len(p)), s.limit-s.kept)]; len(fit) > 0 && s.failed == nil {
			s.keep(fit)
		}
	}
	s.mu.Unlock()
	s.wake.all()
	return len(p), nil
}

func (s *stream) keep(p []byte) {
	if s.content == nil {
		if s.content, s.failed = s.store.Create(); s.failed != nil {
			return
		}
	}
	if _, s.failed = s.content.Write(p); s.failed == nil {
		s.kept += int64(len(p))
	}
}

// ReadFrom drains r with one pooled buffer. Without it, io.Copy would take a fresh one.
func (s *stream) ReadFrom(r io.Reader) (n int64, err error) {
	buf := buffers.Get().(*[]byte)
	defer buffers.Put(buf)
	for {
		m, err := r.Read(*buf)
		if m > 0 {
			n += int64(m)
			s.Write((*buf)[:m])
		}
		if err == io.EOF {
			return n, nil
		}
		if err != nil {
			return n, err
		}
	}
}

var buffers = sync.Pool{New: func() any { b := make([]byte, 64<<10); return &b }}

// follow registers a reader. It reports false when the stream is sealed and its bytes
// are in the receipt.
func (s *stream) follow() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sealed {
		return false
	}
	s.followers++
	return true
}

// readAt copies kept bytes from offset on into p. n is 0 when there are none yet; end
// means that there will never be more.
func (s *stream) readAt(p []byte, offset int64) (n int, end bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if offset >= s.kept {
		return 0, s.sealed, nil
	}
	var from io.ReaderAt = s.content
	if s.sealed {
		from = s.final
	}
	n, err = from.ReadAt(p[:min(int64(len(p)), s.kept-offset)], offset)
	if err == io.EOF {
		err = nil
	}
	return n, false, err
}

// leave ends a follower. The last one gives up what only followers needed.
func (s *stream) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.followers--; s.followers > 0 || !s.sealed {
		return
	}
	if c, ok := s.final.(io.Closer); ok {
		c.Close()
	}
	s.final = nil
}

// outputForm decides the form of an output (R058–R068).
type outputForm struct {
	inline  int64 // largest inline output, in bytes
	preview int64 // bytes of a blob that the receipt shows
	require bool  // require_inline: never a blob
	blob    bool  // policy wants a blob: never inline
}

// seal ends the stream and returns its final form: absent when empty (R049), text or
// bytes when it fits inline, a blob otherwise; a blob is durable when seal returns. An
// Overflow in place of an Output means that inline was required. Bytes that arrive
// later are dropped, and sealing again does nothing.
func (s *stream) seal(f outputForm) (*api.Output, *api.Overflow, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sealed {
		return nil, nil, nil
	}
	s.sealed = true
	defer s.wake.all()
	out, over, err := s.settle(f)
	if err != nil {
		s.kept = 0 // followers see the end
	}
	if over != nil && s.followers > 0 {
		s.final = uncommitted{s.content} // no receipt has the bytes; who follows gets them to the end
	} else if s.content != nil {
		s.content.Abort() // no effect after Commit
	}
	return out, over, err
}

// settle gives the content its form.
func (s *stream) settle(f outputForm) (*api.Output, *api.Overflow, error) {
	if s.failed != nil {
		return nil, nil, s.failed
	}
	out := &api.Output{}
	if s.total > s.kept {
		out.Truncated, out.TotalBytes = true, s.total
	}
	switch chooseForm(s.kept, f) {
	case formAbsent:
		return nil, nil, nil
	case formTooLarge:
		return nil, &api.Overflow{Stream: s.name, SizeBytes: s.total, LimitBytes: f.inline}, nil
	case formInline:
		b, err := s.bytes(s.kept)
		if err != nil {
			return nil, nil, err
		}
		if s.followers > 0 {
			s.final = bytes.NewReader(b)
		}
		if utf8.Valid(b) {
			out.InlineText = &api.InlineText{Text: string(b)}
		} else {
			out.InlineBytes = &api.InlineBytes{Bytes: b}
		}
		return out, nil, nil
	}
	preview, err := s.bytes(min(f.preview, s.kept))
	if err != nil {
		return nil, nil, err
	}
	ref, size, err := s.content.Commit()
	if err == nil && s.followers > 0 {
		s.final, _, err = s.store.Open(ref)
	}
	if err != nil {
		return nil, nil, err
	}
	out.Blob = &api.BlobOutput{BlobRef: ref, SizeBytes: size, PreviewBytes: preview}
	return out, nil, nil
}

// uncommitted is content that only followers still need.
type uncommitted struct{ *blob.Writer }

func (u uncommitted) Close() error { u.Abort(); return nil }

// bytes returns the first n kept bytes.
func (s *stream) bytes(n int64) ([]byte, error) {
	b := make([]byte, n)
	if _, err := s.content.ReadAt(b, 0); err != nil && err != io.EOF {
		return nil, err
	}
	return b, nil
}

// form is the arm of an output, before its encoding is looked at.
type form int

const (
	formAbsent   form = iota
	formInline        // inline_text when valid UTF-8, else inline_bytes
	formBlob          // blob
	formTooLarge      // inline was required and does not fit
)

// chooseForm is a function of the size and the limits only, so that the same output
// always has the same form (R062).
func chooseForm(size int64, f outputForm) form {
	switch {
	case size == 0:
		return formAbsent
	case f.blob:
		return formBlob
	case size <= f.inline:
		return formInline
	case f.require:
		return formTooLarge
	}
	return formBlob
}

// wake tells any number of readers that something changed. Without readers it costs
// one uncontended lock.
type wake struct {
	mu sync.Mutex
	ch chan struct{}
}

// next returns a channel that is closed at the next change. Take it before looking.
func (w *wake) next() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ch == nil {
		w.ch = make(chan struct{})
	}
	return w.ch
}

func (w *wake) all() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ch != nil {
		close(w.ch)
		w.ch = nil
	}
}
