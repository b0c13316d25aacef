package rego

import (
	"reflect"

	"github.com/go-json-experiment/json"
	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/topdown"
	"github.com/open-policy-agent/opa/v1/types"

	"github.com/stockade-dev/stockade/supervisor/api"
)

// Builtins of ours, for what Rego says in many expressions per element. Each is a function of its arguments alone, total,
// and takes time in proportion to their size. [Capabilities] has them, and docs/policy.md.

// formed(document) says whether what there is of an input has the form of its types: a number where a number belongs, a
// list of objects where that belongs. What is absent or unknown has no form that could be wrong.
var formed = &ast.Builtin{
	Name:        "stockade.formed",
	Description: "Whether every member of a document that an input has too has the kind of value that it has there. Absent and unknown members do not matter.",
	Decl: types.NewFunction(
		types.Args(types.Named("document", types.A).Description("an input, or what seems to be one")),
		types.Named("result", types.B).Description("true if nothing in it is of another kind"),
	),
	CanSkipBctx: true,
}

func init() {
	ast.RegisterBuiltin(formed)
	topdown.RegisterBuiltinFunc(formed.Name, func(_ topdown.BuiltinContext, args []*ast.Term, iter func(*ast.Term) error) error {
		return iter(ast.InternedTerm(inputForm.fits(args[0].Value)))
	})
}

// inputForm is the form of an [Input].
var inputForm = formOfType(reflect.TypeFor[Input](), map[reflect.Type]*form{})

// form is what a type looks like as JSON. The zero form is anything.
type form struct {
	kind     reflect.Kind // Bool, String, Int64 (a number), Slice, Struct, Map; Invalid is anything
	nullable bool
	members  map[string]*form // of a Struct
	element  *form            // of a Slice or a Map
}

func formOfType(t reflect.Type, known map[reflect.Type]*form) *form {
	if f := known[t]; f != nil {
		return f
	}
	f := &form{}
	known[t] = f
	switch {
	case t.Kind() == reflect.Pointer:
		*f = *formOfType(t.Elem(), known)
		f.nullable = true
		return f
	case t == reflect.TypeFor[api.EnvValue](), t.Implements(reflect.TypeFor[json.MarshalerTo]()), t.Implements(reflect.TypeFor[json.Marshaler]()):
		return f
	}
	switch t.Kind() {
	case reflect.Bool, reflect.String:
		f.kind = t.Kind()
	case reflect.Slice, reflect.Array:
		f.kind = reflect.Slice
		if t.Elem().Kind() == reflect.Uint8 { // bytes, as base64
			f.kind = reflect.String
		}
		f.element = formOfType(t.Elem(), known)
	case reflect.Map:
		f.kind, f.element = reflect.Map, formOfType(t.Elem(), known)
	case reflect.Struct:
		f.kind, f.members = reflect.Struct, map[string]*form{}
		fields := map[string]field{}
		addFields(fields, t, true)
		for name, member := range fields {
			f.members[name] = formOfType(member.t, known)
		}
	case reflect.Interface:
	default:
		f.kind = reflect.Int64
	}
	return f
}

// fits reports a value of the form.
func (f *form) fits(v ast.Value) bool {
	var l fitting
	l.member = l.memberFits
	return l.fits(f, v)
}

// fitting compares a value with a form. Its function is made once, and not for each object.
type fitting struct {
	of     *form // the object whose members are looked at
	member func(name, value *ast.Term) (wrong bool)
}

func (l *fitting) fits(f *form, v ast.Value) bool {
	switch v := v.(type) {
	case ast.String:
		return f.kind == reflect.String || f.kind == reflect.Invalid
	case ast.Number:
		return f.kind == reflect.Int64 || f.kind == reflect.Invalid
	case ast.Boolean:
		return f.kind == reflect.Bool || f.kind == reflect.Invalid
	case ast.Null:
		return f.nullable || f.kind == reflect.Invalid
	case *ast.Array:
		if f.kind != reflect.Slice {
			return f.kind == reflect.Invalid
		}
		for i := range v.Len() {
			if !l.fits(f.element, v.Elem(i).Value) {
				return false
			}
		}
		return true
	case ast.Object:
		if f.kind != reflect.Struct && f.kind != reflect.Map {
			return f.kind == reflect.Invalid
		}
		outer := l.of
		l.of = f
		wrong := v.Until(l.member)
		l.of = outer
		return !wrong
	}
	return f.kind == reflect.Invalid
}

func (l *fitting) memberFits(name, value *ast.Term) (wrong bool) {
	member := l.of.element
	if l.of.kind == reflect.Struct {
		text, _ := name.Value.(ast.String)
		if member = l.of.members[string(text)]; member == nil {
			return false
		}
	}
	return !l.fits(member, value.Value)
}
