package rego

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/open-policy-agent/opa/v1/ast"
)

// parseJSON reads one JSON document into a Rego value. Numbers keep their digits,
// duplicate names and invalid UTF-8 are errors.
func parseJSON(text []byte) (ast.Value, error) { return (*memo)(nil).parse(text) }

// memo keeps the values of the parts of an input that hardly change between decisions: the
// ceiling, and the grant and the principal of a session. Their bytes are the key, so nothing
// can be stale. The nil memo keeps nothing.
//
// It also keeps the terms of member names, of which most inputs have the same.
type memo struct {
	mu     sync.Mutex
	values map[string]ast.Value
	names  map[string]*ast.Term // by name as it is quoted
}

// kept are the members, at the top of the input or one level below, that a memo keeps.
var kept = map[string]bool{"ceiling": true, "grant": true, "principal": true}

// maxKept bounds a memo: two entries per live session, and the ceiling.
const maxKept = 4096

func (m *memo) value(raw []byte) (ast.Value, error) {
	m.mu.Lock()
	v, ok := m.values[string(raw)]
	m.mu.Unlock()
	if ok {
		return v, nil
	}
	v, err := parseJSON(raw)
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.values == nil || len(m.values) >= maxKept {
		m.values = map[string]ast.Value{}
	}
	m.values[string(raw)] = v
	return v, nil
}

// name is the term of a member name. A memo that has no room for one more keeps those that it has: they are of the
// types of the input, which come first; what callers name their variables comes after.
func (m *memo) name(quoted []byte) (*ast.Term, error) {
	if m == nil {
		return newName(quoted)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if t := m.names[string(quoted)]; t != nil {
		return t, nil
	}
	t, err := newName(quoted)
	if err != nil || len(m.names) >= maxNames || len(quoted) > maxName {
		return t, err
	}
	if m.names == nil {
		m.names = map[string]*ast.Term{}
	}
	m.names[string(quoted)] = t
	return t, nil
}

// Bounds of what is kept of names.
const (
	maxNames = 1024
	maxName  = 64
)

func newName(quoted []byte) (*ast.Term, error) {
	name, err := jsontext.AppendUnquote(nil, quoted)
	if err != nil {
		return nil, err
	}
	return ast.InternedTerm(string(name)), nil
}

func (m *memo) parse(text []byte) (ast.Value, error) {
	// What a memo is given has been encoded by us, from types and maps: no name is twice in it, and looking for one would cost
	// more than everything else here.
	dec := jsontext.NewDecoder(bytes.NewBuffer(text), jsontext.AllowDuplicateNames(m != nil))
	v, err := m.read(dec)
	if err != nil {
		return nil, err
	}
	if _, err := dec.ReadToken(); err != io.EOF {
		return nil, errors.New("more than one JSON document")
	}
	return v, nil
}

func (m *memo) read(dec *jsontext.Decoder) (ast.Value, error) {
	tok, err := dec.ReadToken()
	if err != nil {
		return nil, err
	}
	switch tok.Kind() {
	case 'n':
		return ast.NullValue, nil
	case 't', 'f':
		return ast.InternedTerm(tok.Bool()).Value, nil
	case '"':
		return ast.String(tok.String()), nil
	case '0':
		return ast.Number(tok.String()), nil
	case '[':
		var items []*ast.Term
		for dec.PeekKind() != ']' {
			v, err := m.read(dec)
			if err != nil {
				return nil, err
			}
			items = append(items, ast.NewTerm(v))
		}
		_, err = dec.ReadToken()
		return ast.NewArray(items...), err
	default: // '{'; the decoder gives a closing token only where we looked for one
		var members [][2]*ast.Term
		for dec.PeekKind() != '}' {
			quoted, err := dec.ReadValue()
			if err != nil {
				return nil, err
			}
			key, err := m.name(quoted)
			if err != nil {
				return nil, err
			}
			v, err := m.member(dec, string(key.Value.(ast.String)))
			if err != nil {
				return nil, err
			}
			members = append(members, [2]*ast.Term{key, ast.NewTerm(v)})
		}
		_, err = dec.ReadToken()
		return ast.NewObject(members...), err
	}
}

func (m *memo) member(dec *jsontext.Decoder, name string) (ast.Value, error) {
	if m == nil || dec.StackDepth() > 2 || !kept[name] {
		return m.read(dec)
	}
	raw, err := dec.ReadValue()
	if err != nil {
		return nil, err
	}
	return m.value(raw)
}

// appendJSON writes a Rego value as JSON. Sets become arrays, in Rego's order, so
// that a policy may answer with either.
func appendJSON(b []byte, v ast.Value) ([]byte, error) {
	switch v := v.(type) {
	case ast.Null:
		return append(b, "null"...), nil
	case ast.Boolean:
		return strconv.AppendBool(b, bool(v)), nil
	case ast.Number:
		return append(b, string(v)...), nil
	case ast.String:
		return jsontext.AppendQuote(b, string(v))
	case *ast.Array:
		return appendList(b, v.Len(), v.Foreach)
	case ast.Set:
		return appendList(b, v.Len(), v.Foreach)
	case ast.Object:
		b = append(b, '{')
		var err error
		first := true
		v.Foreach(func(key, value *ast.Term) {
			name, ok := key.Value.(ast.String)
			if !ok && err == nil {
				err = fmt.Errorf("object key %v is not a string", key)
			}
			if err != nil {
				return
			}
			if !first {
				b = append(b, ',')
			}
			first = false
			if b, err = jsontext.AppendQuote(b, string(name)); err == nil {
				b, err = appendJSON(append(b, ':'), value.Value)
			}
		})
		return append(b, '}'), err
	default:
		return b, fmt.Errorf("%s is not a JSON value", ast.ValueName(v))
	}
}

func appendList(b []byte, n int, each func(func(*ast.Term))) ([]byte, error) {
	b = append(b, '[')
	var err error
	i := 0
	each(func(t *ast.Term) {
		if err != nil {
			return
		}
		if i++; i > 1 {
			b = append(b, ',')
		}
		b, err = appendJSON(b, t.Value)
	})
	return append(b, ']'), err
}
