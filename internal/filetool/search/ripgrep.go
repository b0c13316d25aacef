package search

import (
	"bytes"
	"fmt"
	"regexp/syntax"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Ripgrep gives the arguments with which ripgrep (13 or later), run in the directory that is searched, finds at least
// the lines that the pattern matches, and the context around them. What it prints, [Results] brings to
// the bytes of the native engine. ok is false for what only the native engine does.
//
// The two engines agree on no more than the shape of a pattern: \w, \d and (?i) are Unicode there and ASCII here, no
// byte that is not UTF-8 matches a class there, and a carriage return is a part of the line. So the pattern is
// written anew from its syntax tree, with every class spelled out, and a little wider where the languages differ; each
// line that comes back is held against the original. Files are sorted and chosen as here: hidden ones and
// those of ignore files included, no configuration, no decoding, binaries left at their first NUL.
func (m *Matcher) Ripgrep() (args []string, ok bool) {
	if m.Multiline {
		return nil, false // it looks for NUL in the first 64 KiB only
	}
	var b strings.Builder
	if !rust(&b, m.tree) {
		return nil, false
	}
	args = []string{"--no-config", "--no-ignore", "--hidden", "--no-messages", "--no-follow",
		"--color=never", "--no-heading", "--with-filename", "--line-number", "--no-column", "--null",
		"--sort=path", "--no-mmap", "--encoding=none", "--max-columns=0", "--no-trim", "--context-separator=",
		"--before-context=" + strconv.Itoa(m.Before), "--after-context=" + strconv.Itoa(m.After),
		"--regexp=" + b.String(), "--", "./"}
	return args, true
}

// rust writes a pattern in the syntax of the regex crate; false when it cannot be.
func rust(b *strings.Builder, re *syntax.Regexp) bool {
	switch re.Op {
	case syntax.OpEmptyMatch:
		b.WriteString("(?:)")
	case syntax.OpLiteral:
		for _, r := range re.Rune {
			ranges := []rune{r, r}
			if re.Flags&syntax.FoldCase != 0 {
				for f := unicode.SimpleFold(r); f != r; f = unicode.SimpleFold(f) {
					ranges = append(ranges, f, f)
				}
			}
			if !rustClass(b, ranges) {
				return false
			}
		}
	case syntax.OpCharClass:
		return rustClass(b, re.Rune)
	case syntax.OpAnyCharNotNL, syntax.OpAnyChar:
		return rustClass(b, []rune{0, unicode.MaxRune})
	case syntax.OpBeginLine, syntax.OpBeginText:
		b.WriteString("^")
	case syntax.OpEndLine, syntax.OpEndText:
		b.WriteString(`(?:\r?$)`)
	case syntax.OpWordBoundary, syntax.OpNoWordBoundary:
		b.WriteString("(?:)") // beside a byte that is no UTF-8 they differ
	case syntax.OpCapture:
		return rustSub(b, re, "")
	case syntax.OpStar:
		return rustSub(b, re, "*")
	case syntax.OpPlus:
		return rustSub(b, re, "+")
	case syntax.OpQuest:
		return rustSub(b, re, "?")
	case syntax.OpRepeat:
		limit := fmt.Sprintf("{%d,%d}", re.Min, re.Max)
		if re.Max < 0 {
			limit = fmt.Sprintf("{%d,}", re.Min)
		}
		return rustSub(b, re, limit)
	case syntax.OpConcat:
		for _, sub := range re.Sub {
			if !rust(b, sub) {
				return false
			}
		}
	case syntax.OpAlternate:
		b.WriteString("(?:")
		for i, sub := range re.Sub {
			if i > 0 {
				b.WriteByte('|')
			}
			if !rust(b, sub) {
				return false
			}
		}
		b.WriteByte(')')
	default:
		return false
	}
	return b.Len() < 1<<16 // a class of all letters, many times over, is slower to compile than to do without
}

func rustSub(b *strings.Builder, re *syntax.Regexp, suffix string) bool {
	b.WriteString("(?:")
	ok := rust(b, re.Sub[0])
	b.WriteString(")" + suffix)
	return ok
}

// rustClass writes a class, without the newline, which no line has.
func rustClass(b *strings.Builder, ranges []rune) bool {
	var class strings.Builder
	invalid := false
	put := func(lo, hi rune) {
		if lo <= hi {
			fmt.Fprintf(&class, `\x{%X}-\x{%X}`, lo, hi)
		}
	}
	for i := 0; i < len(ranges); i += 2 {
		lo, hi := ranges[i], ranges[i+1]
		invalid = invalid || lo <= utf8.RuneError && utf8.RuneError <= hi
		for _, hole := range [][2]rune{{'\n', '\n'}, {0xD800, 0xDFFF}} {
			if lo < hole[0] && hole[0] <= hi {
				put(lo, min(hi, hole[0]-1))
			}
			if lo <= hole[1] && hole[0] <= hi {
				lo = hole[1] + 1
			}
		}
		put(lo, hi)
	}
	if class.Len() == 0 {
		return false
	}
	if invalid {
		b.WriteString("(?:[" + class.String() + `]|(?-u:[\x80-\xFF]))`)
	} else {
		b.WriteString("[" + class.String() + "]")
	}
	return true
}

// File is the answer of one file.
type File struct {
	Path  string // relative
	Lines []Line
	Count int64
}

// warning is what ripgrep prints behind the lines of a file in which it then found a NUL.
const warning = ": WARNING: stopped searching binary file after match"

// Results reads what ripgrep has printed. keep says which paths count.
func (m *Matcher) Results(out []byte, keep func(path string) bool) ([]File, error) {
	var files []File
	var raw []rawLine
	current := ""
	flush := func(binary bool) {
		if current != "" && !binary && keep(current) {
			if f := m.settle(current, raw); f.Count > 0 {
				files = append(files, f)
			}
		}
		raw = nil
	}
	for len(out) > 0 {
		if out[0] == '\n' { // between groups of context
			out = out[1:]
			continue
		}
		if rest, ok := bytes.CutPrefix(out, []byte("./"+current+warning)); ok && current != "" {
			end := lineEnd(rest, 0)
			flush(true)
			current, out = "", rest[end:]
			continue
		}
		zero := bytes.IndexByte(out, 0)
		if zero < 0 {
			return nil, fmt.Errorf("ripgrep: %.200q is no line of a result", out)
		}
		name := strings.TrimPrefix(string(out[:zero]), "./")
		if name != current {
			flush(false)
			current = name
		}
		out = out[zero+1:]
		digits := 0
		for digits < len(out) && '0' <= out[digits] && out[digits] <= '9' {
			digits++
		}
		number, err := strconv.ParseInt(string(out[:digits]), 10, 64)
		if err != nil || digits == len(out) {
			return nil, fmt.Errorf("ripgrep: %.200q has no line number", out)
		}
		end := lineEnd(out, digits)
		raw = append(raw, rawLine{number, trim(out[digits+1 : end])})
		out = out[end:]
	}
	flush(false)
	return files, nil
}

type rawLine struct {
	number int64
	text   []byte
}

// settle holds the lines of one file against the pattern, and gives those that match their context.
func (m *Matcher) settle(path string, raw []rawLine) File {
	f := File{Path: path}
	shown, until := 0, int64(-1) // index behind the last line given; number of the last line that is context of the one before
	for i, l := range raw {
		if m.PerFile > 0 && f.Count == m.PerFile || !m.re.Match(l.text) {
			continue
		}
		f.Count++
		for j := shown; j < i; j++ {
			if n := raw[j].number; n <= until || n >= l.number-int64(m.Before) {
				f.Lines = append(f.Lines, Line{Number: n, Text: Shorten(raw[j].text)})
			}
		}
		f.Lines = append(f.Lines, Line{Number: l.number, Match: true, Text: Shorten(l.text)})
		shown, until = i+1, l.number+int64(m.After)
	}
	for j := shown; f.Count > 0 && j < len(raw) && raw[j].number <= until; j++ {
		f.Lines = append(f.Lines, Line{Number: raw[j].number, Text: Shorten(raw[j].text)})
	}
	return f
}
