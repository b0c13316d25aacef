package rego

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/stockade-dev/stockade/supervisor/api"
)

// defects says where a document has not the form of an [Input], by JSON pointer, and at "" what is wrong with
// what its request means. The supervisor puts no such question: decoding refuses the request before.
func defects(v ast.Value) map[string]string {
	found := map[string]string{}
	formOf(found, "", v, reflect.TypeFor[Input]())
	text, err := appendJSON(nil, v)
	if err != nil {
		found[""] = err.Error()
		return found
	}
	var in Input
	if err := json.Unmarshal(text, &in, json.RejectUnknownMembers(true)); err != nil || in.Request == nil {
		return found // said above, by its place
	}
	if err := validate(in.Request); err != nil {
		found[""] = err.Error()
	}
	return found
}

// validate is [api.Request.Validate], which counts on the parameters that op names being there.
func validate(r *api.Request) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the parameters of %s are missing", r.Op)
		}
	}()
	if fault := r.Validate(); fault != nil {
		return fault
	}
	return nil
}

// formOf compares a value with the type that it is decoded into.
func formOf(found map[string]string, at string, v ast.Value, t reflect.Type) {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == reflect.TypeFor[api.EnvValue]() {
		switch v.(type) {
		case ast.String, ast.Object, ast.Null:
		default:
			found[at] = "is no value of a variable"
		}
		return
	}
	switch t.Kind() {
	case reflect.Bool:
		if _, ok := v.(ast.Boolean); !ok {
			found[at] = "is not true or false"
		}
	case reflect.String:
		if _, ok := v.(ast.String); !ok {
			found[at] = "is not a string"
		}
	case reflect.Slice, reflect.Array:
		formOfList(found, at, v, t)
	case reflect.Map:
		o, ok := v.(ast.Object)
		if !ok {
			found[at] = "is not an object"
			return
		}
		o.Foreach(func(k, v *ast.Term) { formOf(found, at+"/"+escape(keyOf(k)), v.Value, t.Elem()) })
	case reflect.Struct:
		formOfObject(found, at, v, t)
	default:
		n, ok := v.(ast.Number)
		if !ok {
			found[at] = "is not a number"
			return
		}
		var err error
		if t.Kind() >= reflect.Uint && t.Kind() <= reflect.Uint64 {
			_, err = strconv.ParseUint(string(n), 10, t.Bits())
		} else {
			_, err = strconv.ParseInt(string(n), 10, t.Bits())
		}
		if err != nil {
			found[at] = fmt.Sprintf("is not a whole number of %d bits", t.Bits())
		}
	}
}

func formOfList(found map[string]string, at string, v ast.Value, t reflect.Type) {
	if t.Elem().Kind() == reflect.Uint8 { // bytes, as base64
		if _, ok := v.(ast.String); !ok {
			found[at] = "is not a string"
		}
		return
	}
	list, ok := v.(*ast.Array)
	if !ok {
		found[at] = "is not an array"
		return
	}
	for i := range list.Len() {
		formOf(found, fmt.Sprintf("%s/%d", at, i), list.Elem(i).Value, t.Elem())
	}
}

func formOfObject(found map[string]string, at string, v ast.Value, t reflect.Type) {
	o, ok := v.(ast.Object)
	if !ok {
		found[at] = "is not an object"
		return
	}
	fields := map[string]field{}
	addFields(fields, t, true)
	o.Foreach(func(k, v *ast.Term) {
		f, ok := fields[keyOf(k)]
		if !ok {
			found[at+"/"+escape(keyOf(k))] = "is unknown"
			return
		}
		formOf(found, at+"/"+escape(keyOf(k)), v.Value, f.t)
	})
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if fields[name].required && o.Get(ast.StringTerm(name)) == nil {
			found[at+"/"+escape(name)] = "is missing"
		}
	}
}

type field struct {
	t        reflect.Type
	required bool
}

// addFields are the members of the wire form of a struct. Those of an embedded pointer are there or are not, all
// together, and are not required.
func addFields(fields map[string]field, t reflect.Type, required bool) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && name == "":
			e := f.Type
			if e.Kind() == reflect.Pointer {
				addFields(fields, e.Elem(), false)
			} else {
				addFields(fields, e, required)
			}
		case name != "" && name != "-":
			fields[name] = field{f.Type, required && options == ""}
		}
	}
}

func keyOf(k *ast.Term) string {
	s, ok := k.Value.(ast.String)
	if !ok {
		return k.Value.String()
	}
	return string(s)
}

var pointerEscapes = strings.NewReplacer("~", "~0", "/", "~1")

// escape makes a member's name an element of a JSON pointer.
func escape(name string) string { return pointerEscapes.Replace(name) }

// pointer is the JSON pointer of a path.
func pointer(path []string) string {
	var b strings.Builder
	for _, element := range path {
		b.WriteByte('/')
		b.WriteString(escape(element))
	}
	return b.String()
}

// at returns the value that a path leads to; nil when there is none.
func at(v ast.Value, path []string) *ast.Term {
	t := ast.NewTerm(v)
	for _, element := range path {
		switch c := t.Value.(type) {
		case ast.Object:
			t = c.Get(ast.StringTerm(element))
		case *ast.Array:
			i, err := strconv.Atoi(element)
			if err != nil || i < 0 || i >= c.Len() {
				return nil
			}
			t = c.Elem(i)
		default:
			return nil
		}
		if t == nil {
			return nil
		}
	}
	return t
}

// edit returns a document with one place changed; v itself stays as it is. change is given nil where nothing is,
// and returns nil for nothing.
func edit(v ast.Value, path []string, change func(*ast.Term) *ast.Term) ast.Value {
	if len(path) == 0 {
		t := change(ast.NewTerm(v))
		if t == nil {
			return ast.NewObject()
		}
		return t.Value
	}
	inner := func(old *ast.Term) *ast.Term {
		if len(path) == 1 {
			return change(old)
		}
		if old == nil {
			old = ast.ObjectTerm()
		}
		return ast.NewTerm(edit(old.Value, path[1:], change))
	}
	switch c := v.(type) {
	case ast.Object:
		key := ast.StringTerm(path[0])
		var members [][2]*ast.Term
		c.Foreach(func(k, v *ast.Term) {
			if !k.Equal(key) {
				members = append(members, [2]*ast.Term{k, v})
			}
		})
		if t := inner(c.Get(key)); t != nil {
			members = append(members, [2]*ast.Term{key, t})
		}
		return ast.NewObject(members...)
	case *ast.Array:
		i, err := strconv.Atoi(path[0])
		if err != nil {
			return v
		}
		var items []*ast.Term
		for j := range c.Len() {
			t := c.Elem(j)
			if j == i {
				t = inner(t)
			}
			if t != nil {
				items = append(items, t)
			}
		}
		return ast.NewArray(items...)
	}
	return v
}

// put is edit with a value.
func put(v ast.Value, path []string, value ast.Value) ast.Value {
	return edit(v, path, func(*ast.Term) *ast.Term { return ast.NewTerm(value) })
}

// places calls fn with every place of a document but its top, outer ones first.
func places(v ast.Value, path []string, fn func(path []string, v ast.Value)) {
	below := func(name string, v ast.Value) {
		path := append(slices.Clone(path), name)
		fn(path, v)
		places(v, path, fn)
	}
	switch c := v.(type) {
	case ast.Object:
		c.Foreach(func(k, v *ast.Term) { below(keyOf(k), v.Value) })
	case *ast.Array:
		for i := range c.Len() {
			below(strconv.Itoa(i), c.Elem(i).Value)
		}
	}
}
