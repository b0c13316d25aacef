// Package search finds the lines of files that a pattern matches. Its semantics are the one semantics of grep, whatever
// engine finds them:
//
//   - a pattern is RE2 as package regexp reads it, and is held against each line without its ending, LF or CRLF; a byte
//     that is no UTF-8 is U+FFFD to it. With multiline it is held against the whole file, ^ and $ are the ends of lines, . matches line
//     endings too, and every line that a match touches is a matching one;
//   - a file with a NUL byte is binary, and has no matching lines;
//   - of a line its first 16 MiB count, as if it ended there; with multiline a file of more than that is not searched, which is told;
//   - files come in the order of their paths, component by component, in bytes; lines in theirs.
//
// It opens no file: lines come from a reader.
package search

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"regexp/syntax"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Options is a pattern and how it is meant.
type Options struct {
	Pattern   string
	Fold      bool // case does not count
	Fixed     bool // the pattern is a string
	Multiline bool
	Before    int
	After     int
	PerFile   int64 // matching lines of one file that count; 0 is all
}

// Matcher is a compiled pattern.
type Matcher struct {
	Options
	re       *regexp.Regexp
	tree     *syntax.Regexp
	required []needle // one of them is in every matching line; none says nothing
	whole    bool     // and where one is, the line matches
}

// maxNeedles bounds the strings that are looked for at once.
const maxNeedles = 8

// Compile reads a pattern.
func Compile(o Options) (*Matcher, error) {
	expr := o.Pattern
	if o.Fixed {
		expr = regexp.QuoteMeta(expr)
	}
	flags := syntax.Perl
	prefix := ""
	if o.Fold {
		flags |= syntax.FoldCase
		prefix += "i"
	}
	if o.Multiline {
		flags = flags&^syntax.OneLine | syntax.DotNL
		prefix += "ms"
	}
	tree, err := syntax.Parse(expr, flags)
	if err != nil {
		return nil, err
	}
	if prefix != "" {
		expr = "(?" + prefix + ":" + expr + ")"
	}
	m := &Matcher{Options: o, tree: tree}
	if m.re, err = regexp.Compile(expr); err != nil {
		return nil, err
	}
	lits, whole := required(tree.Simplify())
	if len(lits) <= maxNeedles {
		for _, l := range lits {
			m.required = append(m.required, newNeedle(l))
		}
		m.whole = whole && len(lits) > 0
	}
	return m, nil
}

// lit is a string that a match must have in it.
type lit struct {
	text string
	fold bool
}

// required gives strings of which every match has one, and whether having one is enough. Nothing is no such
// strings.
func required(re *syntax.Regexp) (lits []lit, whole bool) {
	switch re.Op {
	case syntax.OpLiteral:
		fold := re.Flags&syntax.FoldCase != 0
		text, all := string(re.Rune), true
		if strings.ContainsRune(text, utf8.RuneError) {
			return nil, false // it matches bytes that are no UTF-8 as well
		}
		if fold {
			text, all = foldable(re.Rune)
		}
		if text == "" || strings.Contains(text, "\n") {
			return nil, false
		}
		return []lit{{text, fold}}, all
	case syntax.OpCapture:
		return required(re.Sub[0])
	case syntax.OpPlus:
		return required(re.Sub[0])
	case syntax.OpRepeat:
		if re.Min > 0 {
			lits, whole = required(re.Sub[0])
			return lits, whole && re.Min == 1
		}
	case syntax.OpConcat:
		best := 0
		for _, sub := range re.Sub {
			if l, _ := required(sub); len(l) > 0 {
				if n := shortest(l)*16 - len(l); n > best || lits == nil {
					lits, best = l, n
				}
			}
		}
		return lits, false
	case syntax.OpAlternate:
		whole = true
		for _, sub := range re.Sub {
			l, w := required(sub)
			if len(l) == 0 {
				return nil, false
			}
			lits, whole = append(lits, l...), whole && w
		}
		return lits, whole
	}
	return nil, false
}

func shortest(lits []lit) int {
	n := len(lits[0].text)
	for _, l := range lits[1:] {
		n = min(n, len(l.text))
	}
	return n
}

// foldable is the longest run of runes whose other cases are all ASCII (k and s have others), in lower case, and
// whether that is all of them.
func foldable(runes []rune) (text string, all bool) {
	from, best, end := 0, 0, 0
	for i, r := range runes {
		ok := r < utf8.RuneSelf
		for f := unicode.SimpleFold(r); ok && f != r; f = unicode.SimpleFold(f) {
			ok = f < utf8.RuneSelf
		}
		if !ok {
			from = i + 1
			continue
		}
		if i+1-from > end-best {
			best, end = from, i+1
		}
	}
	return strings.ToLower(string(runes[best:end])), end-best == len(runes)
}

// needle is a string that is looked for.
type needle struct {
	lower []byte
	fold  bool
	rare  int // index of the byte that is looked for first, when case does not count
}

func newNeedle(l lit) needle {
	n := needle{lower: []byte(l.text), fold: l.fold}
	const common = " etaoinsrhldcumfpgwybvkxjqz" // the later, the rarer; what is not in it is rarer still
	best := -1
	for i, c := range n.lower {
		rank := strings.IndexByte(common, c)
		if rank < 0 {
			rank = len(common)
		}
		if rank > best {
			n.rare, best = i, rank
		}
	}
	return n
}

// index finds the needle at or behind from; -1 is nowhere.
func (n *needle) index(buf []byte, from int) int {
	if !n.fold {
		if i := bytes.Index(buf[from:], n.lower); i >= 0 {
			return from + i
		}
		return -1
	}
	lo := n.lower[n.rare]
	up := upper(lo)
	nextLo, nextUp := -2, -2
	for pos := from + n.rare; pos < len(buf); {
		if nextLo != -1 && nextLo < pos {
			nextLo = indexFrom(buf, lo, pos)
		}
		if up != lo && nextUp != -1 && nextUp < pos {
			nextUp = indexFrom(buf, up, pos)
		}
		at := nextLo
		if up != lo && nextUp >= 0 && (at < 0 || nextUp < at) {
			at = nextUp
		}
		if at < 0 {
			return -1
		}
		if start := at - n.rare; start+len(n.lower) <= len(buf) && foldEqual(buf[start:start+len(n.lower)], n.lower) {
			return start
		}
		pos = at + 1
	}
	return -1
}

func indexFrom(buf []byte, c byte, from int) int {
	if i := bytes.IndexByte(buf[from:], c); i >= 0 {
		return from + i
	}
	return -1
}

func upper(c byte) byte {
	if 'a' <= c && c <= 'z' {
		return c - 32
	}
	return c
}

func foldEqual(buf, lower []byte) bool {
	for i, c := range buf {
		if 'A' <= c && c <= 'Z' {
			c += 32
		}
		if c != lower[i] {
			return false
		}
	}
	return true
}

// Line is one line of the answer.
type Line struct {
	Number int64
	Match  bool
	Text   string // without its ending; UTF-8, shortened
}

// MaxLine is how much of a line an answer has.
const MaxLine = 4096

// MaxWindow is how much of a file is held at a time: of a line that is longer the beginning counts, and lines of context
// that do not fit are left out.
const MaxWindow = 16 << 20

// ErrTooLarge is of a file that a pattern cannot be held against as a whole.
var ErrTooLarge = errors.New("search: the file is too large to be matched across its lines")

// Buffer is what a search reads into; it is used again.
type Buffer struct{ b []byte }

// File searches one file. It reads at most size bytes, so that a file that grows has an end; keep says whether lines are wanted or
// only their number. A binary file has none.
func (m *Matcher) File(r io.Reader, size int64, buf *Buffer, keep bool) (lines []Line, count int64, err error) {
	s := scan{m: m, keep: keep, number: 1, begun: -1}
	if buf.b == nil {
		buf.b = make([]byte, 128<<10)
	}
	b := buf.b
	from, have := 0, 0 // of b: what has been searched, what is there
	for done := false; !done; {
		if have == len(b) && size > 0 {
			cut := s.kept(b[:from])
			full := len(b) >= MaxWindow
			if full && cut <= len(b)/2 && from > 0 {
				cut = min(from, lineEnd(b, len(b)/2))
			}
			switch {
			case full && m.Multiline:
				return nil, 0, ErrTooLarge
			case !m.Multiline && cut > len(b)/2 || full && cut > 0:
				copy(b, b[cut:have])
				s.shift(cut)
				from, have = from-cut, have-cut
			case full:
				have = s.begin(b)
				from = have
			default:
				grown := make([]byte, 2*len(b))
				copy(grown, b[:have])
				b = grown
				if len(b) <= 1<<20 {
					buf.b = b
				}
			}
		}
		room := b[have:]
		if int64(len(room)) > size {
			room = room[:size]
		}
		n, err := 0, error(io.EOF)
		if len(room) > 0 {
			n, err = r.Read(room)
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, 0, err
		}
		if bytes.IndexByte(b[have:have+n], 0) >= 0 {
			return nil, 0, nil
		}
		size -= int64(n)
		if s.passing {
			end := bytes.IndexByte(b[have:have+n], '\n') + 1
			if s.passing = end == 0; s.passing {
				end = n
			}
			n = copy(b[have:], b[have+end:have+n])
		}
		have += n
		done = err != nil
		if done || m.Multiline {
			if done {
				if m.Multiline {
					s.multiline(b[:have])
				} else {
					s.lines(b[:have], from)
				}
			}
			continue
		}
		if i := bytes.LastIndexByte(b[from:have], '\n'); i >= 0 {
			s.lines(b[:from+i+1], from)
			from += i + 1
		}
	}
	return s.out, s.count, nil
}

// scan is the search of one file.
type scan struct {
	m      *Matcher
	keep   bool
	out    []Line
	count  int64
	number int64 // of the line at counted
	at     int   // offset up to which lines are counted
	shown  int   // offset behind the last line in out
	after  int   // lines of context that are still due

	passing bool // what comes belongs to a line whose beginning has been searched
	begun   int  // offset of the line of which the window has the beginning only; below 0 is none
}

// kept is where in searched the part begins that later context may need.
func (s *scan) kept(searched []byte) int {
	at := len(searched)
	for range s.m.Before {
		if at == 0 {
			break
		}
		at = bytes.LastIndexByte(searched[:at-1], '\n') + 1
	}
	return at
}

// shift says that so many bytes have gone from the beginning of the window.
func (s *scan) shift(n int) {
	// Lines are counted up to at, which is never behind what goes.
	s.at -= n
	s.shown -= n
	s.begun -= n
}

// begin searches a line that fills the window, without an end, and leaves in the window as much of it as an answer may have. It returns the
// offset behind that.
func (s *scan) begin(window []byte) int {
	s.begun, s.passing = 0, true
	s.lines(window, 0)
	end := MaxLine + utf8.UTFMax
	window[end] = '\n'
	end++
	s.number++
	s.at, s.shown = end, min(s.shown, end)
	return end
}

// lines searches the lines of window from an offset on, which is the beginning of one.
func (s *scan) lines(window []byte, from int) {
	pos := from
	for pos < len(window) {
		start, end := s.m.next(window, pos)
		if start < 0 {
			break
		}
		s.due(window, start)
		s.matched(window, start, end)
		pos = end
	}
	s.due(window, len(window))
	s.advance(window, len(window))
}

// next finds the first matching line at or behind pos; its end is behind its newline.
func (m *Matcher) next(b []byte, pos int) (start, end int) {
	if len(m.required) == 0 {
		for pos < len(b) {
			end = lineEnd(b, pos)
			if m.re.Match(trim(b[pos:end])) {
				return pos, end
			}
			pos = end
		}
		return -1, -1
	}
	var found [maxNeedles]int
	for i := range found {
		found[i] = -2
	}
	for pos < len(b) {
		at := -1
		for i := range m.required {
			if found[i] == -1 {
				continue
			}
			if found[i] < pos {
				found[i] = m.required[i].index(b, pos)
			}
			if found[i] >= 0 && (at < 0 || found[i] < at) {
				at = found[i]
			}
		}
		if at < 0 {
			return -1, -1
		}
		start = pos + bytes.LastIndexByte(b[pos:at], '\n') + 1
		end = lineEnd(b, at)
		line := trim(b[start:end])
		if m.whole && at-start < len(line) || m.re.Match(line) {
			return start, end
		}
		pos = end
	}
	return -1, -1
}

func lineEnd(b []byte, pos int) int {
	if i := bytes.IndexByte(b[pos:], '\n'); i >= 0 {
		return pos + i + 1
	}
	return len(b)
}

// trim takes a line's ending away.
func trim(line []byte) []byte {
	line = bytes.TrimSuffix(line, []byte("\n"))
	return bytes.TrimSuffix(line, []byte("\r"))
}

// advance counts lines up to an offset.
func (s *scan) advance(window []byte, to int) {
	if to > s.at {
		s.number += int64(bytes.Count(window[s.at:to], []byte("\n")))
		s.at = to
	}
}

// due gives the lines of context after a match, up to an offset.
func (s *scan) due(window []byte, to int) {
	for s.after > 0 && s.shown < to {
		end := lineEnd(window, s.shown)
		s.advance(window, s.shown)
		s.put(window, s.shown, end, false)
		s.shown, s.after = end, s.after-1
	}
}

// matched gives a matching line and what comes before it.
func (s *scan) matched(window []byte, start, end int) {
	if s.m.PerFile > 0 && s.count >= s.m.PerFile {
		return
	}
	s.count++
	if !s.keep {
		return
	}
	from := start
	for range s.m.Before {
		if from <= s.shown || from == 0 {
			break
		}
		from = bytes.LastIndexByte(window[:from-1], '\n') + 1
	}
	if from < s.at { // lines that were counted already
		s.number -= int64(bytes.Count(window[from:s.at], []byte("\n")))
		s.at = from
	}
	for from < start {
		next := lineEnd(window, from)
		s.advance(window, from)
		s.put(window, from, next, false)
		from = next
	}
	s.advance(window, start)
	s.put(window, start, end, true)
	s.shown, s.after = end, s.m.After
}

func (s *scan) put(window []byte, start, end int, match bool) {
	text, cut := shorten(trim(window[start:end]))
	switch {
	case start == s.begun:
		text += fmt.Sprintf("[… more than %d bytes]", MaxWindow-MaxLine)
	case cut > 0:
		text += fmt.Sprintf("[… %d bytes]", cut)
	}
	s.out = append(s.out, Line{Number: s.number, Match: match, Text: text})
}

// shorten makes of a line what an answer has of it, and says how many bytes that leaves out.
func shorten(line []byte) (text string, cut int) {
	if len(line) > MaxLine {
		cut = len(line) - MaxLine
		line = line[:MaxLine]
		for i := 0; i < utf8.UTFMax-1 && len(line) > 0; i++ { // not in the middle of a character
			if r, n := utf8.DecodeLastRune(line); r != utf8.RuneError || n != 1 {
				break
			}
			line, cut = line[:len(line)-1], cut+1
		}
	}
	return strings.ToValidUTF8(string(line), "\uFFFD"), cut
}

// multiline searches a whole file.
func (s *scan) multiline(b []byte) {
	for _, n := range s.m.required {
		if len(s.m.required) == 1 && n.index(b, 0) < 0 {
			return
		}
	}
	covered := 0 // offset behind the last matching line
	for pos := 0; pos <= len(b); {
		loc := s.m.re.FindIndex(b[pos:])
		if loc == nil {
			break
		}
		from, to := pos+loc[0], pos+loc[1]
		if from >= len(b) && len(b) > 0 && b[len(b)-1] == '\n' || len(b) == 0 {
			break // an empty match behind the last line
		}
		last := max(from, to-1)
		for start := max(lineStart(b, from), covered); start <= last; {
			end := lineEnd(b, start)
			s.due(b, start)
			s.matched(b, start, end)
			if start, covered = end, end; end == len(b) {
				break
			}
		}
		pos = max(to, from+1)
		if covered > pos && to == from {
			pos = covered
		}
	}
	s.due(b, len(b))
}

func lineStart(b []byte, at int) int { return bytes.LastIndexByte(b[:at], '\n') + 1 }
