// Package edit finds text in text: exactly, or, where it is nowhere exactly, by rules that always give
// the same answer. It opens no file.
//
// The fuzzy rules: typographic quotes and dashes are the ASCII ones, a line ending is a line ending, and a run of white space
// is any other run of white space. White space at the two ends of what is looked for does not count, and then that of the replacement does not
// either: what is there stays. Matches do not overlap; the leftmost come first.
package edit

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Match is one place, in bytes.
type Match struct{ Start, End int }

// Matches is what was found.
type Matches struct {
	Places  []Match
	Fuzzy   bool
	trimmed bool // the places are without white space at their ends
}

// Find looks for old, which is not empty. exact leaves the fuzzy rules out.
func Find(text, old string, exact bool) Matches {
	if places := all(text, old); len(places) > 0 || exact {
		return Matches{Places: places}
	}
	// Only line endings, quotes and dashes first: every other byte counts.
	if places := folded(text, old, false); len(places) > 0 {
		return Matches{Places: places, Fuzzy: true}
	}
	core := strings.TrimSpace(old)
	if core == "" {
		return Matches{}
	}
	return Matches{Places: folded(text, core, true), Fuzzy: true, trimmed: true}
}

func all(text, old string) (places []Match) {
	for at := 0; ; {
		i := strings.Index(text[at:], old)
		if i < 0 {
			return places
		}
		places = append(places, Match{at + i, at + i + len(old)})
		at += i + len(old)
	}
}

func folded(text, old string, space bool) (places []Match) {
	want, _ := fold(old, space, false)
	have, from := fold(text, space, true)
	for _, m := range all(have, want) {
		places = append(places, Match{int(from[m.Start]), int(from[m.End])})
	}
	return places
}

// fold gives a text as the rules see it and, when asked for, where in the text each of its bytes begins, with one more for the end.
func fold(s string, space, index bool) (string, []int32) {
	var b strings.Builder
	b.Grow(len(s))
	var from []int32 // a file that is edited has less than 2 GiB
	if index {
		from = make([]int32, 0, len(s)+1)
	}
	put := func(c string, at int) {
		b.WriteString(c)
		for range c {
			if index {
				from = append(from, int32(at))
			}
		}
	}
	for i := 0; i < len(s); {
		if c := s[i]; c < utf8.RuneSelf && c != '\r' && (!space || c > ' ') {
			b.WriteByte(c)
			if index {
				from = append(from, int32(i))
			}
			i++
			continue
		}
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case space && unicode.IsSpace(r):
			end := i + n
			for end < len(s) {
				r, n := utf8.DecodeRuneInString(s[end:])
				if !unicode.IsSpace(r) {
					break
				}
				end += n
			}
			put(" ", i)
			i = end
			continue
		case strings.HasPrefix(s[i:], "\r\n"):
			put("\n", i)
			i += 2
			continue
		}
		if c, ok := ascii(r); ok {
			put(c, i)
		} else {
			for j := range n {
				b.WriteByte(s[i+j])
				if index {
					from = append(from, int32(i))
				}
			}
		}
		i += n
	}
	if index {
		from = append(from, int32(len(s)))
	}
	return b.String(), from
}

// ascii is what a typographic quote or dash stands for.
func ascii(r rune) (string, bool) {
	switch r {
	case '\u2018', '\u2019', '\u201A', '\u201B', '\u02BC':
		return "'", true
	case '\u201C', '\u201D', '\u201E', '\u201F':
		return `"`, true
	case '\u2010', '\u2011', '\u2012', '\u2013', '\u2014', '\u2015', '\u2212':
		return "-", true
	case '\u00A0':
		return " ", true
	}
	return "", false
}

// Fold gives a line with typographic quotes, dashes and spaces as the ASCII ones.
func Fold(s string) string {
	out, _ := fold(s, false, false)
	return out
}

// Replace puts fresh in the place of the matches. Line endings in it become those of the text around. It answers false, and makes
// nothing, when that has more than so many bytes.
func (m Matches) Replace(text, fresh string, most int64) (string, bool) {
	if m.trimmed {
		fresh = strings.TrimSpace(fresh)
	}
	lf, crlf := fresh, fresh
	if strings.Contains(fresh, "\n") && !strings.Contains(fresh, "\r\n") {
		crlf = strings.ReplaceAll(fresh, "\n", "\r\n")
	}
	otherwise := lf // the text's first line ending decides, where a match has none
	if endsCRLF(text) {
		otherwise = crlf
	}
	put := make([]string, len(m.Places))
	size := int64(len(text))
	for i, p := range m.Places {
		put[i] = otherwise
		if around := text[p.Start:p.End]; strings.Contains(around, "\n") {
			if put[i] = lf; endsCRLF(around) {
				put[i] = crlf
			}
		}
		size += int64(len(put[i]) - (p.End - p.Start))
	}
	if size > most {
		return "", false
	}
	var b strings.Builder
	b.Grow(int(size))
	at := 0
	for i, p := range m.Places {
		b.WriteString(text[at:p.Start])
		b.WriteString(put[i])
		at = p.End
	}
	b.WriteString(text[at:])
	return b.String(), true
}

// endsCRLF reports whether the first line that ends, ends so.
func endsCRLF(text string) bool {
	i := strings.IndexByte(text, '\n')
	return i > 0 && text[i-1] == '\r'
}

// Line is the number of the line that an offset lies in, from 1.
func Line(text string, offset int) int64 { return int64(strings.Count(text[:offset], "\n")) + 1 }
