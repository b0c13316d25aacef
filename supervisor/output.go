package supervisor

import (
	"io"
	"unicode/utf8"

	"github.com/stockade-dev/stockade/internal/blob"
	"github.com/stockade-dev/stockade/internal/spool"
	"github.com/stockade-dev/stockade/supervisor/api"
)

// outputForm decides the form of an output (R058–R068).
type outputForm struct {
	inline  int64 // largest inline output, in bytes
	preview int64 // bytes of a blob that the receipt shows
	require bool  // require_inline: never a blob
	blob    bool  // policy wants a blob: never inline
}

// materialize returns the final form of one stream of a log that is sealed: absent when empty
// (R049), text or bytes when it fits inline, a blob otherwise; a blob is durable when it returns.
// An Overflow in place of an Output means that inline was required.
func materialize(log *spool.Log, st spool.Stream, f outputForm, blobs *blob.Store) (*api.Output, *api.Overflow, error) {
	if err := log.Err(st); err != nil {
		return nil, nil, err
	}
	first := log.First(st)
	kept, total := log.Kept(st)-first, log.Total(st)
	out := &api.Output{Offset: first}
	if total > kept {
		out.Truncated, out.TotalBytes = true, total
	}
	switch chooseForm(kept, f) {
	case formAbsent:
		return nil, nil, nil
	case formTooLarge:
		return nil, &api.Overflow{Stream: st.String(), SizeBytes: total, LimitBytes: f.inline}, nil
	case formInline:
		b, err := beginning(log, st, first, kept)
		if err != nil {
			return nil, nil, err
		}
		if utf8.Valid(b) {
			out.InlineText = &api.InlineText{Text: string(b)}
		} else {
			out.InlineBytes = &api.InlineBytes{Bytes: b}
		}
		return out, nil, nil
	}
	preview, err := beginning(log, st, first, min(f.preview, kept))
	if err != nil {
		return nil, nil, err
	}
	var ref string
	var size int64
	if first > 0 { // the file is longer than what is left of it
		ref, size, err = blobs.Put(io.NewSectionReader(streamReader{log, st}, first, kept), "")
	} else {
		ref, size, err = log.Commit(st, blobs)
	}
	if err != nil {
		return nil, nil, err
	}
	out.Blob = &api.BlobOutput{BlobRef: ref, SizeBytes: size, PreviewBytes: preview}
	return out, nil, nil
}

// streamReader reads one stream of a log.
type streamReader struct {
	log *spool.Log
	st  spool.Stream
}

func (r streamReader) ReadAt(p []byte, off int64) (int, error) { return r.log.ReadAt(r.st, p, off) }

// beginning returns the first n kept bytes.
func beginning(log *spool.Log, st spool.Stream, first, n int64) ([]byte, error) {
	b := make([]byte, n)
	if _, err := log.ReadAt(st, b, first); err != nil && err != io.EOF {
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
