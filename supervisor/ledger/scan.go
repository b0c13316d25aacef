package ledger

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// scan goes through a JSON object once, from its first member to its last. Every value is read
// or skipped before the next member:
//
//	for s.member() {
//		switch string(s.name) {
//		case "type":
//			r.Type = s.text()
//		default:
//			s.skip()
//		}
//	}
//
// An object in it is read by the same loop in place of a value, an array with element. It is for what we have written
// ourselves, strictly, and the journal knows to be the same: into what it skips it does not look. That is
// most of a journal.
type scan struct {
	name []byte // of the member that it is at
	rest []byte
	err  error // the first
}

var errSyntax = errors.New("not a JSON object of ours")

// member goes to the next member of the object, and reports whether there is one.
func (s *scan) member() bool {
	switch s.peek() {
	case '{':
		s.rest = s.rest[1:]
		if s.peek() == '}' {
			s.rest = s.rest[1:]
			return false
		}
	case ',':
		s.rest = s.rest[1:]
	case '}':
		s.rest = s.rest[1:]
		return false
	default:
		s.fail(errSyntax)
		return false
	}
	s.peek()
	name := s.take(textEnd(s.rest))
	if s.peek() != ':' || len(name) == 0 {
		s.fail(errSyntax)
		return false
	}
	s.name, s.rest = name[1:len(name)-1], s.rest[1:]
	s.peek()
	return true
}

// element goes to the next value of an array, and reports whether there is one.
func (s *scan) element() bool {
	switch s.peek() {
	case '[':
		s.rest = s.rest[1:]
		if s.peek() != ']' {
			return true
		}
		s.rest = s.rest[1:]
	case ',':
		s.rest = s.rest[1:]
		s.peek()
		return true
	case ']':
		s.rest = s.rest[1:]
	default:
		s.fail(errSyntax)
	}
	return false
}

// peek passes white space, of which our own records have none, and returns what follows it; 0 at the
// end, and after a failure.
func (s *scan) peek() byte {
	for len(s.rest) > 0 {
		switch c := s.rest[0]; c {
		case ' ', '\n', '\t', '\r':
			s.rest = s.rest[1:]
		default:
			return c
		}
	}
	return 0
}

func (s *scan) take(n int) []byte {
	b := s.rest[:n]
	s.rest = s.rest[n:]
	return b
}

func (s *scan) fail(err error) {
	if s.err == nil && err != nil {
		s.err = fmt.Errorf("member %.40q: %w", s.name, err)
		s.rest = nil
	}
}

// end reports whether all went well, and nothing follows.
func (s *scan) end() error {
	if s.peek() != 0 {
		s.fail(errSyntax)
	}
	return s.err
}

// skip passes a value and returns its bytes.
func (s *scan) skip() []byte {
	n := valueEnd(s.rest)
	if n == 0 {
		s.fail(errSyntax)
	}
	return s.take(n)
}

// text reads a string.
func (s *scan) text() string {
	b := s.take(textEnd(s.rest))
	switch {
	case len(b) == 0:
		s.fail(errors.New("not a string"))
		return ""
	case bytes.IndexByte(b, '\\') < 0 && utf8.Valid(b):
		return string(b[1 : len(b)-1])
	}
	text, err := jsontext.AppendUnquote(nil, b)
	s.fail(err)
	return string(text)
}

// number reads an integer.
func (s *scan) number() int64 {
	n, err := strconv.ParseInt(string(s.skip()), 10, 64)
	s.fail(err)
	return n
}

// flag reads true or false.
func (s *scan) flag() bool {
	b, err := strconv.ParseBool(string(s.skip()))
	s.fail(err)
	return b
}

// into has the parser read a value.
func (s *scan) into(v any) {
	if b := s.skip(); s.err == nil {
		s.fail(json.Unmarshal(b, v, lax))
	}
}

// textEnd returns the length of the string that b begins with, or 0.
func textEnd(b []byte) int {
	if len(b) == 0 || b[0] != '"' {
		return 0
	}
	for i := 1; ; i++ {
		n := bytes.IndexByte(b[i:], '"')
		if n < 0 {
			return 0
		}
		i += n
		escapes := 0
		for b[i-1-escapes] == '\\' {
			escapes++
		}
		if escapes%2 == 0 {
			return i + 1
		}
	}
}

// valueEnd returns the length of the value that b begins with, or 0.
func valueEnd(b []byte) int {
	depth := 0
	for i := 0; i < len(b); i++ {
		switch b[i] {
		case '"':
			n := textEnd(b[i:])
			if n == 0 {
				return 0
			}
			if i += n - 1; depth == 0 {
				return i + 1
			}
		case '{', '[':
			depth++
		case '}', ']':
			if depth == 0 {
				return i
			}
			if depth--; depth == 0 {
				return i + 1
			}
		case ',', ' ', '\n', '\t', '\r':
			if depth == 0 {
				return i
			}
		}
	}
	return 0
}
