package tools

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/stockade-dev/stockade/internal/escape"
	"github.com/stockade-dev/stockade/sandbox/file"
)

// clip keeps the beginning and the end of what is written to it, within a budget. What is in the middle of a long output is what
// a model misses least.
type clip struct {
	limit      int64
	head, tail []byte
	total      int64
}

func (c *clip) Write(b []byte) (int, error) {
	n := len(b)
	c.total += int64(n)
	if room := c.limit/2 - int64(len(c.head)); room > 0 {
		take := min(room, int64(len(b)))
		c.head = append(c.head, b[:take]...)
		b = b[take:]
	}
	most := int(c.limit - c.limit/2)
	c.tail = append(c.tail, b...)
	if extra := len(c.tail) - most; extra > most { // not at each write: that would copy the tail every time
		c.tail = append(c.tail[:0], c.tail[extra:]...)
	}
	return n, nil
}

// text is what is kept, as a model reads it, and whether that leaves something out.
func (c *clip) text() (string, bool) {
	most := int(c.limit - c.limit/2)
	tail := c.tail[max(0, len(c.tail)-most):]
	left := c.total - int64(len(c.head)) - int64(len(tail))
	if left == 0 {
		return legible(append(bytes.Clone(c.head), tail...)), false
	}
	return fmt.Sprintf("%s\n… %d bytes left out …\n%s", legible(wholeRunes(c.head)), left, legible(tail)), true
}

// wholeRunes ends before a character that is cut.
func wholeRunes(b []byte) []byte {
	for i := 1; i < utf8.UTFMax && i <= len(b); i++ {
		if utf8.RuneStart(b[len(b)-i]) {
			if !utf8.FullRune(b[len(b)-i:]) {
				return b[:len(b)-i]
			}
			break
		}
	}
	return b
}

// legible is text for a model: valid UTF-8 without terminal escapes and control characters. What is no text shows as U+FFFD.
func legible(b []byte) string {
	return strings.Map(func(c rune) rune {
		if c < ' ' && !strings.ContainsRune("\t\n\r", c) || c == 0x7f {
			return utf8.RuneError
		}
		return c
	}, strings.ToValidUTF8(escape.Strip(string(b)), "\uFFFD"))
}

// content is what a file tool gave, up to a budget from its beginning, and whether it was cut. An output that is a blob is asked for;
// where it is not given, its first bytes are all there is.
func (r *run) content(out *file.Output, limit int64) (text string, cut bool) {
	switch {
	case out == nil:
		return "", false
	case out.InlineText != nil:
		return shorten(out.InlineText.Text, limit)
	case out.InlineBytes != nil:
		return shorten(strings.ToValidUTF8(string(out.InlineBytes.Bytes), "\uFFFD"), limit)
	case out.Blob == nil:
		return "", false
	}
	b := out.Blob.PreviewBytes
	if blob, _, err := r.host.Blob(r.ctx, out.Blob.BlobRef); err == nil {
		all, err := io.ReadAll(io.LimitReader(blob, limit))
		blob.Close()
		if err == nil {
			b = all
		}
	}
	return strings.ToValidUTF8(string(wholeRunes(b)), "\uFFFD"), int64(len(b)) < out.Blob.SizeBytes
}

func shorten(s string, limit int64) (string, bool) {
	if int64(len(s)) <= limit {
		return s, false
	}
	return string(wholeRunes([]byte(s[:limit]))), true
}

// numbered puts the number of its line before each line, as far as the budget goes, and says how many there are.
func numbered(text string, first int64, format string, budget int64) (out string, told int64) {
	var b strings.Builder
	for line := range strings.Lines(text) {
		line = fmt.Sprintf(format, first+told, line)
		if told > 0 && int64(b.Len()+len(line)) > budget {
			break
		}
		b.WriteString(line)
		told++
	}
	return b.String(), told
}
