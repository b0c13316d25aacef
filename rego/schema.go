package rego

import (
	"embed"
	"fmt"
	"io/fs"
	"strings"
	"sync"

	"github.com/go-json-experiment/json"
	"github.com/open-policy-agent/opa/v1/ast"
)

// schemas are made from the Go types by a test, comments included, as the document of the
// API is: for each entry point its input and its result, for rules that several entry points
// ask input.json with all that an input can hold.
//
//go:embed schemas
var schemas embed.FS

// Schemas are the JSON Schemas (draft 7) of what policy is told and answers: input.json, and
// open_input.json, open_result.json and so on. "opa check -s" takes the directory of them, or one input.
func Schemas() fs.FS {
	sub, err := fs.Sub(schemas, "schemas")
	if err != nil {
		panic("bug: " + err.Error()) // the name is well formed
	}
	return sub
}

// inputSchema is the shape of the document input: a rule that names a member which can never be there
// does not compile. A misspelt member is undefined in every decision, and a denial that rests on it never happens.
var inputSchema = sync.OnceValue(func() *ast.SchemaSet {
	set := ast.NewSchemaSet()
	set.Put(ast.SchemaRootRef, schema("input.json"))
	for _, e := range entrypoints {
		set.Put(e.schemaRef(), schema(e.name()+"_input.json"))
	}
	return set
})

func schema(name string) any {
	text, err := schemas.ReadFile("schemas/" + name)
	if err != nil {
		panic("bug: " + err.Error())
	}
	var doc any
	if err := json.Unmarshal(text, &doc); err != nil {
		panic(fmt.Sprintf("bug: %s: %v", name, err))
	}
	return doc
}

// name is the last word of an entry point's package, such as open.
func (e entrypoint) name() string {
	return strings.TrimSuffix(strings.TrimPrefix(e.ref, "data.stockade."), ".decision")
}

func (e entrypoint) schemaRef() ast.Ref {
	return ast.SchemaRootRef.Append(ast.StringTerm(e.name() + "_input"))
}

// typed says of a module in the package of an entry point that its input is that entry point's, and no other's.
func (e entrypoint) typed(m *ast.Module) *ast.Annotations {
	return (&ast.Annotations{
		Scope:    "package",
		Location: m.Package.Location,
		Schemas:  []*ast.SchemaAnnotation{{Path: ast.InputRootRef, Schema: e.schemaRef()}},
	}).Copy(m.Package)
}
