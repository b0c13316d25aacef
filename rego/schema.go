package rego

import (
	"reflect"
	"strings"
	"sync"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/stockade-dev/stockade/supervisor/api"
)

// inputSchema is the shape of the document input, made from [Input] itself: a rule that
// names a member which can never be there does not compile. A misspelt member is
// undefined in every decision, and a denial that rests on it never happens.
var inputSchema = sync.OnceValue(func() *ast.SchemaSet {
	set := ast.NewSchemaSet()
	set.Put(ast.SchemaRootRef, schemaOf(reflect.TypeFor[Input]()))
	return set
})

// schemaOf is the JSON Schema of the wire form of t, as far as the type checker reads it.
func schemaOf(t reflect.Type) map[string]any {
	switch t.Kind() {
	case reflect.Pointer:
		return schemaOf(t.Elem())
	case reflect.Bool:
		return map[string]any{"type": "boolean"}
	case reflect.String:
		return map[string]any{"type": "string"}
	case reflect.Slice, reflect.Array:
		if t.Elem().Kind() == reflect.Uint8 {
			return map[string]any{"type": "string"} // base64
		}
		return map[string]any{"type": "array", "items": schemaOf(t.Elem())}
	case reflect.Map:
		return map[string]any{"type": "object", "additionalProperties": schemaOf(t.Elem())}
	case reflect.Struct:
		if t == reflect.TypeFor[api.EnvValue]() {
			return map[string]any{} // a string, null, or an object
		}
		members := map[string]any{}
		addMembers(members, t)
		return map[string]any{"type": "object", "properties": members, "additionalProperties": false}
	default:
		return map[string]any{"type": "number"}
	}
}

func addMembers(members map[string]any, t reflect.Type) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && name == "":
			e := f.Type
			if e.Kind() == reflect.Pointer {
				e = e.Elem()
			}
			addMembers(members, e)
		case name != "" && name != "-":
			members[name] = schemaOf(f.Type)
		}
	}
}
