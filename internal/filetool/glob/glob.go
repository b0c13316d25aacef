// Package glob matches paths with patterns: * is anything in one component, ** as a component is any number of them, ? one
// character, [a-z] and [!a-z] a class, {a,b} either, \ takes a character literally. It is the language of
// doublestar, except that a class never matches a slash.
//
// Matching takes time proportional to pattern times path, whatever both are; a pattern whose braces stand for more than a few
// thousand patterns is refused.
package glob

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Pattern is a compiled pattern.
type Pattern struct {
	alts [][]component
	fold bool
}

// component is a pattern for one component; nil tokens are **.
type component struct {
	any    bool // **
	tokens []token
	exact  string // all of it, when it is literal
	plain  bool
}

type token struct {
	kind   byte // 'c' a character, '?' any, '*' any number, '[' a class
	r      rune
	ranges []rune // pairs
	negate bool
}

// Bounds of a pattern.
const (
	maxAlternatives = 4096
	maxExpanded     = 1 << 20 // bytes of all alternatives
)

// ErrBad is a pattern that is none.
var ErrBad = errors.New("malformed pattern")

// Compile reads a pattern. fold has upper and lower case be the same.
func Compile(pattern string, fold bool) (*Pattern, error) {
	expanded, err := expand(pattern)
	if err != nil {
		return nil, err
	}
	p := &Pattern{fold: fold}
	for _, alt := range expanded {
		comps, err := components(alt, fold)
		if err != nil {
			return nil, err
		}
		p.alts = append(p.alts, comps)
	}
	return p, nil
}

// expand gives the patterns without braces that a pattern stands for.
func expand(pattern string) ([]string, error) {
	list := []string{pattern}
	for size := 0; ; {
		var next []string
		again := false
		size = 0
		for _, p := range list {
			open, end, commas, err := braces(p)
			if err != nil {
				return nil, err
			}
			if open < 0 {
				next = append(next, p)
				size += len(p)
				continue
			}
			again = true
			from := open + 1
			for _, to := range append(commas, end) {
				alt := p[:open] + p[from:to] + p[end+1:]
				next = append(next, alt)
				if size += len(alt); len(next) > maxAlternatives || size > maxExpanded {
					return nil, fmt.Errorf("%w: its braces stand for too many patterns", ErrBad)
				}
				from = to + 1
			}
		}
		if list = next; !again {
			return list, nil
		}
	}
}

// braces finds the first brace, its end, and the commas that are its own.
func braces(p string) (open, end int, commas []int, err error) {
	open = -1
	depth := 0
	for i := 0; i < len(p); i++ {
		switch p[i] {
		case '\\':
			if i++; i == len(p) {
				return 0, 0, nil, fmt.Errorf("%w: it ends with a backslash", ErrBad)
			}
		case '[':
			n, err := classEnd(p[i:])
			if err != nil {
				return 0, 0, nil, err
			}
			i += n - 1
		case '{':
			if depth++; depth == 1 && open < 0 {
				open = i
			}
		case ',':
			if depth == 1 && end == 0 && open >= 0 {
				commas = append(commas, i)
			}
		case '}':
			if depth--; depth < 0 {
				return 0, 0, nil, fmt.Errorf("%w: } without {", ErrBad)
			}
			if depth == 0 && end == 0 {
				end = i
			}
		}
	}
	if depth > 0 {
		return 0, 0, nil, fmt.Errorf("%w: { without }", ErrBad)
	}
	return open, end, commas, nil
}

// classEnd is the length of the class that s begins with.
func classEnd(s string) (int, error) {
	i := 1
	if i < len(s) && (s[i] == '!' || s[i] == '^') {
		i++
	}
	for start := i; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case ']':
			if i == start {
				return 0, fmt.Errorf("%w: an empty class", ErrBad)
			}
			return i + 1, nil
		}
	}
	return 0, fmt.Errorf("%w: [ without ]", ErrBad)
}

func components(p string, fold bool) (out []component, err error) {
	for _, part := range split(p) {
		if part == "**" {
			if len(out) == 0 || !out[len(out)-1].any { // two are one
				out = append(out, component{any: true})
			}
			continue
		}
		c, err := compile(part, fold)
		if err != nil {
			return nil, err
		}
		out = append(out, c)
	}
	return out, nil
}

// split cuts at slashes outside of classes.
func split(p string) (out []string) {
	from := 0
	for i := 0; i < len(p); i++ {
		switch p[i] {
		case '\\':
			if i+1 < len(p) && p[i+1] == '/' {
				continue
			}
			i++
		case '[':
			if n, err := classEnd(p[i:]); err == nil {
				i += n - 1
			}
		case '/':
			out = append(out, p[from:i])
			from = i + 1
		}
	}
	return append(out, p[from:])
}

func compile(part string, fold bool) (component, error) {
	c := component{plain: !fold}
	var exact strings.Builder
	for i := 0; i < len(part); {
		switch part[i] {
		case '*':
			for i < len(part) && part[i] == '*' {
				i++
			}
			c.tokens, c.plain = append(c.tokens, token{kind: '*'}), false
			continue
		case '?':
			c.tokens, c.plain = append(c.tokens, token{kind: '?'}), false
			i++
			continue
		case '[':
			n, err := classEnd(part[i:])
			if err != nil {
				return c, err
			}
			c.tokens, c.plain = append(c.tokens, class(part[i+1:i+n-1], fold)), false
			i += n
			continue
		case '\\':
			if i++; i == len(part) {
				return c, fmt.Errorf("%w: it ends with a backslash", ErrBad)
			}
		}
		r, n := utf8.DecodeRuneInString(part[i:])
		exact.WriteString(part[i : i+n])
		if fold {
			r = unicode.ToLower(r)
		}
		c.tokens = append(c.tokens, token{kind: 'c', r: r})
		i += n
	}
	if c.plain {
		c.exact = exact.String()
	}
	return c, nil
}

func class(s string, fold bool) token {
	t := token{kind: '['}
	if s[0] == '!' || s[0] == '^' {
		t.negate, s = true, s[1:]
	}
	next := func() rune {
		if s[0] == '\\' && len(s) > 1 {
			s = s[1:]
		}
		r, n := utf8.DecodeRuneInString(s)
		s = s[n:]
		return r
	}
	for s != "" {
		lo := next()
		hi := lo
		if len(s) > 1 && s[0] == '-' {
			s = s[1:]
			hi = next()
		}
		if fold {
			lo, hi = unicode.ToLower(lo), unicode.ToLower(hi)
		}
		t.ranges = append(t.ranges, lo, hi)
	}
	return t
}

func (t *token) fits(r rune) bool {
	switch t.kind {
	case '?':
		return true
	case 'c':
		return t.r == r
	}
	in := false
	for i := 0; i < len(t.ranges); i += 2 {
		in = in || t.ranges[i] <= r && r <= t.ranges[i+1]
	}
	return in != t.negate
}

// Match reports whether a relative, clean path is one of the pattern's.
func (p *Pattern) Match(path string) bool {
	parts := strings.Split(path, "/")
	for _, alt := range p.alts {
		if p.match(alt, parts, false) {
			return true
		}
	}
	return false
}

// Leads reports whether something below a directory can be one of the pattern's.
func (p *Pattern) Leads(dir string) bool {
	parts := strings.Split(dir, "/")
	for _, alt := range p.alts {
		if p.match(alt, parts, true) {
			return true
		}
	}
	return false
}

// match is a walk over the components with one place to come back to: the last **. leads is content when all parts fit and
// pattern is left.
func (p *Pattern) match(alt []component, parts []string, leads bool) bool {
	ai, pi := 0, 0
	backA, backP := -1, 0
	for pi < len(parts) {
		switch {
		case ai < len(alt) && alt[ai].any:
			if leads {
				return true
			}
			backA, backP = ai, pi
			ai++
			continue
		case ai < len(alt) && alt[ai].match(parts[pi], p.fold):
			ai++
			pi++
			continue
		case backA >= 0:
			backP++
			ai, pi = backA+1, backP
			continue
		}
		return false
	}
	if leads {
		return ai < len(alt)
	}
	for ai < len(alt) && alt[ai].any {
		ai++
	}
	return ai == len(alt)
}

func (c *component) match(name string, fold bool) bool {
	if c.plain {
		return c.exact == name
	}
	ti, ni := 0, 0
	backT, backN := -1, 0
	for ni < len(name) {
		if ti < len(c.tokens) {
			if c.tokens[ti].kind == '*' {
				backT, backN = ti, ni
				ti++
				continue
			}
			r, n := utf8.DecodeRuneInString(name[ni:])
			if fold {
				r = unicode.ToLower(r)
			}
			if c.tokens[ti].fits(r) {
				ti++
				ni += n
				continue
			}
		}
		if backT < 0 {
			return false
		}
		_, n := utf8.DecodeRuneInString(name[backN:])
		backN += n
		ti, ni = backT+1, backN
	}
	for ti < len(c.tokens) && c.tokens[ti].kind == '*' {
		ti++
	}
	return ti == len(c.tokens)
}

// Filter is a pattern for files anywhere below a directory: without a slash it means the name, at any depth; with one, the path. "!"
// before it means every other file.
type Filter struct {
	pattern *Pattern
	base    bool
	negate  bool
}

// CompileFilter reads a filter.
func CompileFilter(s string, fold bool) (*Filter, error) {
	f := &Filter{}
	s, f.negate = strings.CutPrefix(s, "!")
	f.base = !strings.Contains(s, "/")
	s = strings.TrimPrefix(strings.TrimPrefix(s, "./"), "/")
	var err error
	f.pattern, err = Compile(s, fold)
	return f, err
}

// Match reports whether a relative path passes.
func (f *Filter) Match(path string) bool {
	if f.base {
		path = path[strings.LastIndexByte(path, '/')+1:]
	}
	return f.pattern.Match(path) != f.negate
}
