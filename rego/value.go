package rego

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
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
	r := readers.Get().(*reader)
	defer r.rest()
	if m == nil {
		r.terms = nil // what may be kept shares its memory with nothing
	}
	r.memo, r.text = m, *bytes.NewBuffer(text)
	r.Reset(&r.text, jsontext.AllowDuplicateNames(m != nil))
	v, err := r.read()
	if err != nil {
		return nil, err
	}
	if _, err := r.ReadToken(); err != io.EOF {
		return nil, errors.New("more than one JSON document")
	}
	return v, nil
}

// reader reads one document. It is used again, with the room that it has for what it is about to put into lists and objects.
type reader struct {
	jsontext.Decoder
	memo    *memo
	text    bytes.Buffer
	terms   []ast.Term // not yet used
	items   []*ast.Term
	members [][2]*ast.Term
}

var readers = sync.Pool{New: func() any { return &reader{} }}

// maxRoom bounds what a reader keeps of its room.
const maxRoom = 4096

func (r *reader) rest() {
	if r.memo == nil {
		r.terms = nil
	}
	r.memo, r.text = nil, bytes.Buffer{}
	r.Reset(&r.text)
	if cap(r.items) > maxRoom || cap(r.members) > maxRoom {
		return
	}
	clear(r.items[:cap(r.items)])
	clear(r.members[:cap(r.members)])
	r.items, r.members = r.items[:0], r.members[:0]
	readers.Put(r)
}

// term is one of many that are made together.
func (r *reader) term(v ast.Value) *ast.Term {
	if len(r.terms) == 0 {
		r.terms = make([]ast.Term, 16)
	}
	t := &r.terms[0]
	r.terms = r.terms[1:]
	t.Value = v
	return t
}

func (r *reader) read() (ast.Value, error) {
	tok, err := r.ReadToken()
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
		from := len(r.items)
		for r.PeekKind() != ']' {
			v, err := r.read()
			if err != nil {
				return nil, err
			}
			r.items = append(r.items, r.term(v))
		}
		_, err = r.ReadToken()
		items := slices.Clone(r.items[from:]) // an array keeps what it is given
		r.items = r.items[:from]
		return ast.NewArray(items...), err
	default: // '{'; the decoder gives a closing token only where we looked for one
		from := len(r.members)
		for r.PeekKind() != '}' {
			quoted, err := r.ReadValue()
			if err != nil {
				return nil, err
			}
			key, err := r.memo.name(quoted)
			if err != nil {
				return nil, err
			}
			v, err := r.member(string(key.Value.(ast.String)))
			if err != nil {
				return nil, err
			}
			r.members = append(r.members, [2]*ast.Term{key, r.term(v)})
		}
		_, err = r.ReadToken()
		object := ast.NewObject(r.members[from:]...) // an object copies them
		r.members = r.members[:from]
		return object, err
	}
}

func (r *reader) member(name string) (ast.Value, error) {
	if r.memo == nil || r.StackDepth() > 2 || !kept[name] {
		return r.read()
	}
	raw, err := r.ReadValue()
	if err != nil {
		return nil, err
	}
	return r.memo.value(raw)
}

// appendJSON writes a Rego value as JSON. Sets become arrays, in Rego's order, so
// that a policy may answer with either.
func appendJSON(b []byte, v ast.Value) ([]byte, error) {
	w := jsonText{b: b}
	w.element, w.member = w.writeElement, w.writeMember
	w.write(v)
	return w.b, w.err
}

// jsonText is JSON that is being written, up to the first error. Its two functions are made once, and not for each list and object.
type jsonText struct {
	b       []byte
	err     error
	element func(*ast.Term)
	member  func(name, value *ast.Term)
}

func (w *jsonText) write(v ast.Value) {
	switch v := v.(type) {
	case ast.Null:
		w.b = append(w.b, "null"...)
	case ast.Boolean:
		w.b = strconv.AppendBool(w.b, bool(v))
	case ast.Number:
		w.b = append(w.b, string(v)...)
	case ast.String:
		w.quote(string(v))
	case *ast.Array:
		w.b = append(w.b, '[')
		v.Foreach(w.element)
		w.end(']')
	case ast.Set:
		w.b = append(w.b, '[')
		v.Foreach(w.element)
		w.end(']')
	case ast.Object:
		w.b = append(w.b, '{')
		v.Foreach(w.member)
		w.end('}')
	default:
		w.fail(fmt.Errorf("%s is not a JSON value", ast.ValueName(v)))
	}
}

// writeElement writes an element and a comma, which end takes off the last one.
func (w *jsonText) writeElement(t *ast.Term) {
	if w.err == nil {
		w.write(t.Value)
		w.b = append(w.b, ',')
	}
}

func (w *jsonText) writeMember(name, value *ast.Term) {
	text, ok := name.Value.(ast.String)
	switch {
	case w.err != nil:
	case !ok:
		w.fail(fmt.Errorf("object key %v is not a string", name))
	default:
		w.quote(string(text))
		w.b = append(w.b, ':')
		w.writeElement(value)
	}
}

func (w *jsonText) end(bracket byte) {
	if last := len(w.b) - 1; w.b[last] == ',' {
		w.b[last] = bracket
		return
	}
	w.b = append(w.b, bracket)
}

func (w *jsonText) quote(text string) {
	var err error
	if w.b, err = jsontext.AppendQuote(w.b, text); err != nil {
		w.fail(err)
	}
}

func (w *jsonText) fail(err error) {
	if w.err == nil {
		w.err = err
	}
}
