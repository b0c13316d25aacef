package filetool

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/internal/filetool/tree"
	"github.com/stockade-dev/stockade/sandbox/file"
)

func (t *Tools) read(ctx context.Context, r *file.Request, res *file.Result) *file.Fault {
	ask, out := r.Read, res.Read
	var l limits
	limit := l.of("max_bytes", ask.MaxBytes, t.config.Caps.MaxReadBytes, t.config.Runtime.ReadBytes)
	out.Clamped = l.clamped
	p, fault := t.find(ask.Name(), tree.Options{})
	if fault != nil {
		return fault
	}
	defer p.Close()
	if !p.Exists {
		return absent(file.Quote(p.Path))
	}
	f, st, fault := p.Open(unix.O_RDONLY)
	if fault != nil {
		return fault
	}
	defer f.Close()
	out.Path, out.SizeBytes, out.MtimeNS = file.Quote(p.Path), ptr(st.Size), st.Mtim.Nano()
	out.Mode = st.Mode & 0o7777
	text := ask.Encoding != "bytes"
	if ask.StartLine > 0 || ask.MaxLines > 0 {
		return t.readLines(ctx, f, ask, out, limit, text)
	}
	return t.readBytes(ctx, f, st.Size, ask, out, limit, text)
}

func (t *Tools) readBytes(ctx context.Context, f *os.File, size int64, ask *file.Read, out *file.ReadResult, limit int64, text bool) *file.Fault {
	inline := t.inlineLimit()
	n := limit
	if size > 0 { // 0 is also the size of what procfs makes while it is read
		n = min(limit, max(size-ask.OffsetBytes, 0))
	}
	if n > inline {
		// More than can be inline: is it there at all?
		head := make([]byte, inline+1)
		got, err := readFull(f, head, ask.OffsetBytes)
		if err != nil {
			return failed(file.CodeReadFailed, "%v", err)
		}
		if int64(got) > inline {
			return t.readLarge(ctx, f, size, head[:got], n, ask, out, text)
		}
		n = int64(got)
	}
	// One byte more says whether there is more; three more finish a character.
	buf := make([]byte, n+utf8.UTFMax)
	got, err := readFull(f, buf, ask.OffsetBytes)
	if err != nil {
		return failed(file.CodeReadFailed, "%v", err)
	}
	buf = buf[:got]
	content := buf[:min(int64(got), n)]
	out.Truncated = int64(got) > n
	valid := false
	if text {
		if content, valid, err = characters(f, content, buf, ask.OffsetBytes); err != nil {
			return failed(file.CodeInvalidUTF8, "%v", err)
		}
	}
	end := ask.OffsetBytes + int64(len(content))
	out.Truncated = out.Truncated || len(content) < got
	if size == 0 && got > 0 {
		out.SizeBytes = nil // it has none that is known
		if !out.Truncated {
			out.SizeBytes = ptr(end)
		}
	}
	if out.Truncated {
		out.NextOffset = end
	} else if ask.OffsetBytes == 0 {
		sum := sha256.Sum256(content)
		out.SHA256 = hex.EncodeToString(sum[:])
	}
	var fault *file.Fault
	out.Content, out.Overflow, fault = t.output(content, ask.OutputMode, valid)
	return fault
}

var errNotUTF8 = errors.New("the range is not UTF-8: ask for encoding bytes")

// characters looks at a range as text. buf is the range and up to a character more. A range that would end inside of a character ends
// before it; one that begins inside of one is bytes (valid is false).
func characters(f *os.File, content, buf []byte, offset int64) (out []byte, valid bool, err error) {
	if utf8.Valid(content) {
		return content, true, nil
	}
	// What is cut at the end, if the character is whole in the file.
	if cut := tail(content); cut > 0 && len(buf) > len(content) {
		start := len(content) - cut
		if r, n := utf8.DecodeRune(buf[start:]); r != utf8.RuneError && start+n > len(content) {
			if start > 0 {
				content = content[:start]
			} else { // less than one character was asked for
				return content, false, nil
			}
		}
	}
	if utf8.Valid(content) {
		return content, true, nil
	}
	// What is cut at the beginning, likewise.
	head := 0
	for head < len(content) && head < utf8.UTFMax-1 && !utf8.RuneStart(content[head]) {
		head++
	}
	if head == 0 || offset == 0 || !utf8.Valid(content[head:]) {
		return nil, false, errNotUTF8
	}
	back := min(offset, utf8.UTFMax-1)
	before := make([]byte, back)
	if n, err := readFull(f, before, offset-back); err != nil || int64(n) != back {
		return nil, false, errNotUTF8
	}
	whole := append(before, buf[:min(len(buf), utf8.UTFMax)]...)
	for i := range before {
		if r, n := utf8.DecodeRune(whole[i:]); r != utf8.RuneError && i+n == len(before)+head {
			return content, false, nil
		}
	}
	return nil, false, errNotUTF8
}

// tail is how many bytes at the end begin a character that does not end.
func tail(b []byte) int {
	for i := 1; i < utf8.UTFMax && i <= len(b); i++ {
		if c := b[len(b)-i]; utf8.RuneStart(c) {
			if c >= utf8.RuneSelf && !utf8.FullRune(b[len(b)-i:]) {
				return i
			}
			return 0
		}
	}
	return 0
}

// readLarge gives a range to the store while it is read.
func (t *Tools) readLarge(ctx context.Context, f *os.File, size int64, head []byte, n int64, ask *file.Read, out *file.ReadResult, text bool) *file.Fault {
	if ask.OutputMode == "require_inline" {
		out.Overflow = &file.Overflow{SizeBytes: n, LimitBytes: t.inlineLimit()}
		return failed(file.CodeInlineTooLarge, "the range has up to %d bytes, inline are at most %d", n, t.inlineLimit())
	}
	end := ask.OffsetBytes + n
	if text && size > end { // end between two characters
		edge := make([]byte, 2*utf8.UTFMax)
		from := max(end-utf8.UTFMax, ask.OffsetBytes)
		got, err := readFull(f, edge, from)
		if err != nil {
			return failed(file.CodeReadFailed, "%v", err)
		}
		if cut := tail(edge[:min(int64(got), end-from)]); cut > 0 {
			end -= int64(cut)
		}
	}
	w := &watched{ctx: ctx, r: io.NewSectionReader(f, ask.OffsetBytes, end-ask.OffsetBytes), sum: sha256.New(), text: text, start: ask.OffsetBytes > 0}
	content, _, fault := t.store(w, head[:min(len(head), file.PreviewLimit)])
	if fault != nil {
		return fault
	}
	if w.bad || w.text && len(w.rest) > 0 {
		return failed(file.CodeInvalidUTF8, "%v", errNotUTF8)
	}
	out.Content = content
	done := ask.OffsetBytes + content.Blob.SizeBytes
	if one := make([]byte, 1); size > done || size == 0 {
		if n, _ := readFull(f, one, done); n > 0 {
			out.Truncated, out.NextOffset = true, done
		}
	}
	if !out.Truncated && ask.OffsetBytes == 0 {
		out.SHA256 = hex.EncodeToString(w.sum.Sum(nil))
	}
	if size == 0 {
		out.SizeBytes = nil
	}
	return nil
}

// watched is a reader that digests, can be canceled, and looks whether what passes is UTF-8.
type watched struct {
	ctx context.Context
	r   io.Reader
	sum interface {
		io.Writer
		Sum([]byte) []byte
	}
	text  bool
	start bool // the range begins inside of the file, perhaps of a character
	bad   bool
	rest  []byte
}

func (w *watched) Read(b []byte) (int, error) {
	if w.ctx.Err() != nil {
		return 0, canceled(w.ctx)
	}
	n, err := w.r.Read(b)
	w.sum.Write(b[:n])
	if w.text && !w.bad {
		part := append(w.rest, b[:n]...)
		for w.start && len(part) > 0 && !utf8.RuneStart(part[0]) {
			part = part[1:]
		}
		if len(part) > 0 {
			w.start = false
		}
		cut := tail(part)
		if !utf8.Valid(part[:len(part)-cut]) {
			w.bad = true
			return n, &file.Fault{Status: file.Error, Code: file.CodeInvalidUTF8, Message: errNotUTF8.Error()}
		}
		w.rest = bytes.Clone(part[len(part)-cut:])
	}
	return n, err
}

// readLines gives lines. Those before the first are read past.
func (t *Tools) readLines(ctx context.Context, f *os.File, ask *file.Read, out *file.ReadResult, limit int64, text bool) *file.Fault {
	first := max(ask.StartLine, 1)
	whole := t.config.Runtime.WholeBytes
	limit = min(limit, whole)
	var content []byte
	line, offset := int64(1), int64(0) // of what is next
	buf := make([]byte, 64<<10)
	taken := int64(0)
	more := false
scan:
	for {
		if ctx.Err() != nil {
			return canceled(ctx)
		}
		n, err := readFull(f, buf, offset)
		if err != nil {
			return failed(file.CodeReadFailed, "%v", err)
		}
		if n == 0 {
			break
		}
		if offset > t.config.Runtime.ReadBytes {
			return failed(file.CodeTooLarge, "line %d is behind the first %d bytes: ask for bytes", first, t.config.Runtime.ReadBytes)
		}
		for rest := buf[:n]; len(rest) > 0; {
			if line >= first && (ask.MaxLines > 0 && taken == ask.MaxLines || int64(len(content)) == limit) {
				more = true
				break scan
			}
			i := bytes.IndexByte(rest, '\n')
			part := rest
			if i >= 0 {
				part = rest[:i+1]
			}
			if line >= first {
				if room := limit - int64(len(content)); int64(len(part)) > room {
					content, more = append(content, part[:room]...), true
					offset += room
					out.LastLine = line
					break scan
				}
				content = append(content, part...)
				out.LastLine = line
			}
			offset += int64(len(part))
			rest = rest[len(part):]
			if i >= 0 {
				line++
				if line > first {
					taken++
				}
			}
		}
	}
	out.Truncated = more
	if len(content) > 0 {
		out.FirstLine = first
	}
	valid := utf8.Valid(content)
	if text && !valid {
		if cut := tail(content); more && cut > 0 && utf8.Valid(content[:len(content)-cut]) {
			content, offset, valid = content[:len(content)-cut], offset-int64(cut), true
		} else {
			return failed(file.CodeInvalidUTF8, "%v", errNotUTF8)
		}
	}
	if more {
		out.NextOffset = offset
	}
	var fault *file.Fault
	out.Content, out.Overflow, fault = t.output(content, ask.OutputMode, text && valid)
	return fault
}

// readFull reads at an offset until the buffer is full or the file ends.
func readFull(f *os.File, buf []byte, offset int64) (n int, err error) {
	for n < len(buf) {
		m, err := unix.Pread(int(f.Fd()), buf[n:], offset+int64(n))
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EINVAL) && offset > 1<<62: // past any file
			return n, nil
		case err != nil:
			return n, err
		case m == 0:
			return n, nil
		}
		n += m
	}
	return n, nil
}

// whole reads a file that a tool needs as a whole, with its digest.
func (t *Tools) whole(f *os.File, size int64) ([]byte, string, *file.Fault) {
	limit := t.config.Runtime.WholeBytes
	if size > limit {
		return nil, "", failed(file.CodeTooLarge, "the file has %d bytes, more than %d", size, limit)
	}
	buf := make([]byte, size+1)
	for n := 0; ; {
		m, err := readFull(f, buf[n:], int64(n))
		if err != nil {
			return nil, "", failed(file.CodeReadFailed, "%v", err)
		}
		if n += m; n < len(buf) {
			sum := sha256.Sum256(buf[:n])
			return buf[:n], hex.EncodeToString(sum[:]), nil
		}
		if int64(n) > limit {
			return nil, "", failed(file.CodeTooLarge, "the file has more than %d bytes", limit)
		}
		buf = append(buf, make([]byte, n)...)
	}
}
