package search

import (
	"fmt"
	"regexp/syntax"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Ripgrep is a pattern of ripgrep's language that matches in every file in which a line matches this one, and in few others. ok is
// false where there is none.
//
// The two languages agree on no more than the shape of a pattern: \w, \d and (?i) are Unicode there and ASCII here, no
// byte that is not UTF-8 matches a class there, and a carriage return is a part of the line. So the pattern is
// written anew from its syntax tree, with every class spelled out, and a little wider where the languages differ.
func (m *Matcher) Ripgrep() (pattern string, ok bool) {
	var b strings.Builder
	if m.Multiline || !rust(&b, m.tree) {
		return "", false
	}
	return b.String(), true
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
