package tools

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/stockade-dev/stockade/supervisor/api"
)

// Kind is the type of an argument.
type Kind int

// The kinds.
const (
	Text Kind = iota
	Number
	Flag
	Texts
	Numbers
	Object // of whatever members
)

// Arg is one argument of a tool. The schema that a model is given and the check of what it sends are both made of
// this, so they cannot differ.
type Arg struct {
	Name     string
	Kind     Kind
	Required bool
	Text     string   // what a model is told of it
	OneOf    []string // of a text: all that it can be; nil is anything
	Min, Max int64    // of a number; both 0 is any
	Default  any      // that the schema tells; what acts knows it too
	Count    int      // of a list of numbers: as many, no more and no fewer
}

// schema is the JSON Schema of arguments, in the order of the table.
func schema(args []Arg) jsontext.Value {
	var b bytes.Buffer
	e := document{jsontext.NewEncoder(&b)}
	e.open('{')
	e.text("type", "object")
	e.open('{', "properties")
	for _, a := range args {
		e.open('{', a.Name)
		a.describe(e)
		e.close('}')
	}
	e.close('}')
	e.open('[', "required")
	for _, a := range args {
		if a.Required {
			e.token(jsontext.String(a.Name))
		}
	}
	e.close(']')
	e.token(jsontext.String("additionalProperties"), jsontext.False)
	e.close('}')
	return jsontext.Value(bytes.TrimSpace(b.Bytes()))
}

func (a Arg) describe(e document) {
	switch a.Kind {
	case Text:
		e.text("type", "string")
		if a.OneOf != nil {
			e.open('[', "enum")
			for _, v := range a.OneOf {
				e.token(jsontext.String(v))
			}
			e.close(']')
		}
	case Number:
		e.text("type", "integer")
		if a.Min != 0 || a.Max != 0 {
			e.token(jsontext.String("minimum"), jsontext.Int(a.Min))
		}
		if a.Max != 0 {
			e.token(jsontext.String("maximum"), jsontext.Int(a.Max))
		}
	case Flag:
		e.text("type", "boolean")
	case Object:
		e.text("type", "object")
	case Texts, Numbers:
		e.text("type", "array")
		e.open('{', "items")
		e.text("type", map[Kind]string{Texts: "string", Numbers: "integer"}[a.Kind])
		e.close('}')
		if a.Count != 0 {
			e.token(jsontext.String("minItems"), jsontext.Int(int64(a.Count)), jsontext.String("maxItems"), jsontext.Int(int64(a.Count)))
		}
	}
	if a.Text != "" {
		e.text("description", a.Text)
	}
	switch v := a.Default.(type) {
	case int:
		e.token(jsontext.String("default"), jsontext.Int(int64(v)))
	case bool:
		e.token(jsontext.String("default"), jsontext.Bool(v))
	case string:
		e.text("default", v)
	}
}

// document writes a JSON document whose form is right by construction.
type document struct{ *jsontext.Encoder }

func (d document) token(tokens ...jsontext.Token) {
	for _, t := range tokens {
		if err := d.WriteToken(t); err != nil {
			panic(fmt.Sprintf("bug: a schema: %v", err))
		}
	}
}

func (d document) open(delim jsontext.Kind, name ...string) {
	for _, n := range name {
		d.token(jsontext.String(n))
	}
	d.token(map[jsontext.Kind]jsontext.Token{'{': jsontext.BeginObject, '[': jsontext.BeginArray}[delim])
}

func (d document) close(delim jsontext.Kind) {
	d.token(map[jsontext.Kind]jsontext.Token{'}': jsontext.EndObject, ']': jsontext.EndArray}[delim])
}

func (d document) text(name, value string) { d.token(jsontext.String(name), jsontext.String(value)) }

// values are arguments that were checked against their table.
type values map[string]any

func (v values) has(name string) bool       { _, ok := v[name]; return ok }
func (v values) text(name string) string    { s, _ := v[name].(string); return s }
func (v values) flag(name string) bool      { b, _ := v[name].(bool); return b }
func (v values) texts(name string) []string { l, _ := v[name].([]string); return l }
func (v values) numbers(name string) []int64 {
	l, _ := v[name].([]int64)
	return l
}

// number is an argument, or what stands in for one that is not there.
func (v values) number(name string, otherwise int64) int64 {
	if n, ok := v[name].(int64); ok {
		return n
	}
	return otherwise
}

// either is a flag that is on where nothing is said.
func (v values) either(name string, otherwise bool) bool {
	if b, ok := v[name].(bool); ok {
		return b
	}
	return otherwise
}

// decode reads arguments. It refuses what their table does not have, a name that occurs twice, another type, a value out of
// range, and anything behind them. Null leaves out what may be left out: that is how models that have to name every
// argument do it.
func decode(doc []byte, args []Arg) (values, *api.Error) {
	if len(doc) > api.MaxBody {
		return nil, api.Errorf(api.CodeTooLarge, "the arguments have %d bytes, the limit is %d", len(doc), api.MaxBody)
	}
	dec := jsontext.NewDecoder(bytes.NewReader(doc))
	switch t, err := dec.ReadToken(); {
	case err != nil:
		return nil, malformed(err)
	case t.Kind() != '{':
		return nil, api.Errorf(api.CodeDecodeError, "the arguments are no JSON object")
	}
	out := values{}
	for dec.PeekKind() == '"' {
		t, err := dec.ReadToken()
		if err != nil {
			return nil, malformed(err)
		}
		name := t.String()
		at := slices.IndexFunc(args, func(a Arg) bool { return a.Name == name })
		if at < 0 {
			return nil, api.Errorf(api.CodeUnknownMember, "there is no argument %.80q; there are %s", name, names(args))
		}
		v, fault := args[at].read(dec)
		if fault != nil {
			return nil, fault
		}
		if v != nil {
			out[name] = v
		}
	}
	if _, err := dec.ReadToken(); err != nil {
		return nil, malformed(err)
	}
	if _, err := dec.ReadToken(); err != io.EOF {
		return nil, api.Errorf(api.CodeDecodeError, "something follows the arguments")
	}
	for _, a := range args {
		if a.Required && !out.has(a.Name) {
			return nil, api.Errorf(api.CodeInvalidParams, "the argument %s is missing", a.Name)
		}
	}
	return out, nil
}

func names(args []Arg) string {
	list := make([]string, len(args))
	for i, a := range args {
		list[i] = a.Name
	}
	return strings.Join(list, ", ")
}

func malformed(err error) *api.Error {
	if errors.Is(err, jsontext.ErrDuplicateName) {
		return api.Errorf(api.CodeDuplicateMember, "an argument occurs twice")
	}
	if errors.Is(err, io.ErrUnexpectedEOF) || err == io.EOF {
		return api.Errorf(api.CodeDecodeError, "the arguments end too early")
	}
	text := err.Error()
	return api.Errorf(api.CodeDecodeError, "the arguments are not JSON: %s", text[:min(len(text), 200)])
}

// read reads the value of an argument; nil is null.
func (a Arg) read(dec *jsontext.Decoder) (any, *api.Error) {
	wrong := func(why string) *api.Error {
		return api.Errorf(api.CodeInvalidParams, "the argument %s %s", a.Name, why)
	}
	kind := dec.PeekKind()
	if kind != 'n' && kind != a.json() && !(a.Kind == Flag && kind == 'f') && kind != 0 {
		return nil, wrong("is to be " + a.noun())
	}
	raw, err := dec.ReadValue()
	if err != nil {
		return nil, malformed(err)
	}
	if kind == 'n' {
		if a.Required {
			return nil, wrong("is null, and it is required")
		}
		return nil, nil
	}
	switch a.Kind {
	case Text:
		s, why := text(raw)
		if why == "" && a.OneOf != nil && !slices.Contains(a.OneOf, s) {
			why = "is none of " + strings.Join(a.OneOf, ", ")
		}
		if why != "" {
			return nil, wrong(why)
		}
		return s, nil
	case Flag:
		return raw.Kind() == 't', nil
	case Object:
		return raw.Clone(), nil
	case Number:
		n, ok := whole(raw)
		switch {
		case !ok:
			return nil, wrong("is no whole number of 64 bits")
		case (a.Min != 0 || a.Max != 0) && n < a.Min:
			return nil, wrong(fmt.Sprintf("is less than %d", a.Min))
		case a.Max != 0 && n > a.Max:
			return nil, wrong(fmt.Sprintf("is more than %d", a.Max))
		}
		return n, nil
	case Texts:
		list := []string{}
		for v := range elements(raw) {
			s, why := text(v)
			if v.Kind() != '"' || why != "" {
				return nil, wrong("is to be a list of strings")
			}
			list = append(list, s)
		}
		return list, nil
	}
	list := []int64{}
	for v := range elements(raw) {
		n, ok := whole(v)
		if !ok {
			return nil, wrong("is to be a list of whole numbers")
		}
		list = append(list, n)
	}
	if a.Count != 0 && len(list) != a.Count {
		return nil, wrong(fmt.Sprintf("has %d elements, and is to have %d", len(list), a.Count))
	}
	return list, nil
}

func (a Arg) json() jsontext.Kind {
	return map[Kind]jsontext.Kind{Text: '"', Number: '0', Flag: 't', Texts: '[', Numbers: '[', Object: '{'}[a.Kind]
}

func (a Arg) noun() string {
	return map[Kind]string{Text: "a string", Number: "a whole number", Flag: "true or false", Texts: "a list of strings", Numbers: "a list of whole numbers", Object: "an object"}[a.Kind]
}

func text(raw jsontext.Value) (s, why string) {
	if raw.Kind() != '"' {
		return "", "is to be a string"
	}
	b, err := jsontext.AppendUnquote(nil, raw)
	if err != nil {
		return "", "is no text in UTF-8"
	}
	return string(b), ""
}

// whole reads a whole number, also one that is written with a fraction of nothing, as some providers do.
func whole(raw jsontext.Value) (int64, bool) {
	if raw.Kind() != '0' {
		return 0, false
	}
	if n, err := strconv.ParseInt(string(raw), 10, 64); err == nil {
		return n, true
	}
	f, err := strconv.ParseFloat(string(raw), 64)
	if err != nil || f != math.Trunc(f) || math.Abs(f) > 1<<53 {
		return 0, false
	}
	return int64(f), true
}

// elements are those of an array that was read whole, and so is well formed.
func elements(raw jsontext.Value) func(func(jsontext.Value) bool) {
	return func(yield func(jsontext.Value) bool) {
		dec := jsontext.NewDecoder(bytes.NewReader(raw))
		if _, err := dec.ReadToken(); err != nil {
			return
		}
		for dec.PeekKind() != ']' {
			v, err := dec.ReadValue()
			if err != nil || !yield(v.Clone()) {
				return
			}
		}
	}
}
