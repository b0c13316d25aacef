package rego

import (
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
)

// mutation is one way to spoil a value.
type mutation struct {
	kind  string
	value *ast.Term // nil deletes
	twice bool      // of an element: there is one more of it
}

// enormous is a number that fits 64 bits and bounds nothing; overlong does not fit.
const (
	enormous = "4611686018427387904"
	overlong = "1000000000000000000000000000000"
)

func mutations(v ast.Value) []mutation {
	t := ast.NewTerm(v)
	one := func(kind string, value ast.Value) mutation { return mutation{kind: kind, value: ast.NewTerm(value)} }
	list := []mutation{
		{kind: "delete"},
		one("null", ast.NullValue),
		{kind: "duplicate", twice: true},
		one("duplicate", ast.NewArray(t, t)),
	}
	object := ast.NewObject()
	switch v := v.(type) {
	case ast.String:
		list = append(list,
			one("retype", ast.Number("1")), one("retype", ast.Boolean(true)), one("retype", ast.NewArray(t)), one("retype", object),
			one("empty", ast.String("")), one("oversize", ast.String(string(v)+strings.Repeat("x", 8192))), one("unknown", ast.String(unknown)))
	case ast.Number:
		negative := ast.Number("-1")
		if !strings.HasPrefix(string(v), "-") && v != "0" {
			negative = "-" + v
		}
		list = append(list,
			one("retype", ast.String(v)), one("retype", ast.Boolean(true)), one("retype", ast.NewArray(t)), one("retype", object),
			one("negate", negative), one("negate", ast.Number("-1")), one("oversize", ast.Number(enormous)), one("oversize", ast.Number(overlong)))
	case ast.Boolean:
		list = append(list,
			one("retype", ast.String(v.String())), one("retype", ast.Number("1")), one("retype", ast.NewArray(t)), one("negate", !v))
	case *ast.Array:
		list = append(list, one("retype", object), one("retype", ast.Number("1")), one("retype", ast.String("x")))
		if v.Len() > 0 {
			list = append(list, one("empty", ast.NewArray()), one("retype", v.Elem(0).Value))
		}
	case ast.Object:
		list = append(list, one("retype", ast.NewArray()), one("retype", ast.Number("1")), one("retype", ast.String("x")))
		if v.Len() > 0 {
			list = append(list, one("empty", object))
		}
	}
	return list
}

// unknown is a word that no list has.
const unknown = "zzz9"

// apply spoils one place of a document; false when that is not possible.
func (m mutation) apply(doc ast.Value, path []string) (ast.Value, bool) {
	if !m.twice {
		return edit(doc, path, func(*ast.Term) *ast.Term { return m.value }), true
	}
	parent := at(doc, path[:len(path)-1])
	list, ok := parent.Value.(*ast.Array)
	if !ok {
		return nil, false
	}
	return put(doc, path[:len(path)-1], list.Append(at(doc, path))), true
}

// otherThan is a value of the same form that means something else.
func otherThan(v ast.Value) ast.Value {
	switch v := v.(type) {
	case ast.String:
		return ast.String(unknown)
	case ast.Number:
		return ast.Number("1" + strings.TrimPrefix(string(v), "-"))
	case ast.Boolean:
		return !v
	case *ast.Array:
		var items []*ast.Term
		for i := range v.Len() {
			items = append(items, ast.NewTerm(otherThan(v.Elem(i).Value)))
		}
		return ast.NewArray(items...)
	case ast.Object:
		var members [][2]*ast.Term
		v.Foreach(func(k, v *ast.Term) { members = append(members, [2]*ast.Term{k, ast.NewTerm(otherThan(v.Value))}) })
		return ast.NewObject(members...)
	}
	return v
}

// move puts one path in the place of another, wherever it stands.
func move(v ast.Value, from, to string) ast.Value {
	switch v := v.(type) {
	case ast.String:
		if string(v) == from {
			return ast.String(to)
		}
	case *ast.Array:
		var items []*ast.Term
		for i := range v.Len() {
			items = append(items, ast.NewTerm(move(v.Elem(i).Value, from, to)))
		}
		return ast.NewArray(items...)
	case ast.Object:
		var members [][2]*ast.Term
		v.Foreach(func(k, member *ast.Term) {
			switch {
			case k.Equal(ast.InternedTerm("ceiling")), k.Equal(ast.InternedTerm("grant")):
			case k.Equal(ast.StringTerm(from)):
				k, member = ast.StringTerm(to), ast.NewTerm(move(member.Value, from, to))
			default:
				member = ast.NewTerm(move(member.Value, from, to))
			}
			members = append(members, [2]*ast.Term{k, member})
		})
		return ast.NewObject(members...)
	}
	return v
}
