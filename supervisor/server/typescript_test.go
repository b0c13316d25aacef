package server

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
)

// The types of the TypeScript client, and the tables by which it reads documents, are made from the contract.
//
// openapi-typescript was tried on paper: it makes every integer a number and every text a string, so times would be rounded
// and bytes stay base64; and types alone do not decode anything.
func TestTypeScript(t *testing.T) {
	contract, err := os.ReadFile("openapi.json") // as TestOpenAPI has just written it, when it does
	if err != nil {
		t.Fatal(err)
	}
	var doc schemaDocument
	if err := json.Unmarshal(contract, &doc); err != nil {
		t.Fatal(err)
	}
	got := doc.typescript()
	const golden = "../../clients/typescript/src/schema.ts"
	if *update {
		if err := os.WriteFile(golden, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if want, err := os.ReadFile(golden); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s is not what the contract says (%v); run go test ./supervisor/server -update", golden, err)
	}
}

// schemaDocument is as much of OpenAPI as our document uses.
type schemaDocument struct {
	Paths      map[string]map[string]operationOf `json:"paths"`
	Components struct {
		Schemas map[string]*schema `json:"schemas"`
	} `json:"components"`
	Words map[string]map[string]string `json:"x-stockade-words"`
	Codes map[string]struct {
		Status  int    `json:"status"`
		Meaning string `json:"meaning"`
	} `json:"x-stockade-codes"`
}

type operationOf struct {
	Summary    string             `json:"summary"`
	Parameters []parameterOf      `json:"parameters"`
	Body       *bodyOf            `json:"requestBody"`
	Responses  map[string]*bodyOf `json:"responses"`
	Operation  string             `json:"x-stockade-operation"`
}

type parameterOf struct {
	Name     string  `json:"name"`
	In       string  `json:"in"`
	Required bool    `json:"required"`
	Schema   *schema `json:"schema"`
}

type bodyOf struct {
	Description string `json:"description"`
	Content     map[string]struct {
		Schema *schema `json:"schema"`
	} `json:"content"`
}

// media is the schema of one media type: nil where it has none.
func (b *bodyOf) media(name string) (s *schema, there bool) {
	if b == nil {
		return nil, false
	}
	m, ok := b.Content[name]
	return m.Schema, ok
}

type schema struct {
	Ref         string             `json:"$ref"`
	Type        string             `json:"type"`
	Format      string             `json:"format"`
	Encoding    string             `json:"contentEncoding"`
	Words       string             `json:"x-stockade-words"`
	Description string             `json:"description"`
	Properties  map[string]*schema `json:"properties"`
	Required    []string           `json:"required"`
	Items       *schema            `json:"items"`
	Additional  *schema            `json:"additionalProperties"`
	OneOf       []*schema          `json:"oneOf"`
	never       bool
}

// UnmarshalJSON also takes true and false, which are schemas.
func (s *schema) UnmarshalJSON(b []byte) error {
	switch string(b) {
	case "true":
		return nil
	case "false":
		s.never = true
		return nil
	}
	type plain schema
	return json.Unmarshal(b, (*plain)(s))
}

func (s *schema) name() string { return strings.TrimPrefix(s.Ref, "#/components/schemas/") }

// typescript is the module.
func (d *schemaDocument) typescript() []byte {
	var b bytes.Buffer
	b.WriteString("// Made from docs/api/openapi.json by `go test ./supervisor/server -update`.\n\n" +
		"/** An integer of 64 bits: a bigint where a number could not hold it. */\nexport type Int64 = number | bigint;\n\n" +
		"/** Nanoseconds; of a time, since 1970. Always a bigint. */\nexport type Nanoseconds = bigint;\n")
	words := maps.Clone(d.Words)
	words["Code"] = map[string]string{}
	for code, c := range d.Codes {
		words["Code"][code] = c.Meaning
	}
	for _, name := range slices.Sorted(maps.Keys(words)) {
		b.WriteString("\n/** More may be added within v1. */\nexport type " + name + " =")
		for _, word := range slices.Sorted(maps.Keys(words[name])) {
			fmt.Fprintf(&b, "\n%s  | %q", docComment("  ", words[name][word]), word)
		}
		b.WriteString("\n  | (string & {});\n")
	}
	b.WriteString("\n/** What the supervisor says of each code: its status, and its meaning. */\nexport const codes: Readonly<Record<string, { status: number; meaning: string }>> = {\n")
	for _, code := range slices.Sorted(maps.Keys(d.Codes)) {
		fmt.Fprintf(&b, "  %q: { status: %d, meaning: %q },\n", code, d.Codes[code].Status, d.Codes[code].Meaning)
	}
	b.WriteString("};\n")
	for _, name := range slices.Sorted(maps.Keys(d.Components.Schemas)) {
		s := d.Components.Schemas[name]
		fmt.Fprintf(&b, "\n%sexport interface %s %s\n", docComment("", s.Description), name, d.members(s, ""))
	}
	b.WriteString("\n/** Every route: what its path, URL and body take, and what answers with which status. */\nexport interface Routes {")
	for _, r := range d.operations() {
		fmt.Fprintf(&b, "\n%s  %q: {\n    path: %s;\n    query: %s;\n    body: %s;\n    replies: {%s };\n    event: %s;\n  };\n",
			docComment("  ", r.Summary), r.name, d.parameters(r, "path"), d.parameters(r, "query"), d.body(r), d.replies(r), d.event(r))
	}
	b.WriteString("}\n\n" +
		"/** What a client has to know of a route: whether it takes a key, whether it can be asked again as it is, and what it answers with. */\n" +
		"export interface Route {\n  readonly key: boolean;\n  readonly repeatable: boolean;\n  readonly body?: string;\n  readonly replies: Readonly<Record<number, string>>;\n  readonly event?: string;\n}\n\n" +
		"export const routes: Readonly<Record<keyof Routes, Route>> = {\n")
	for _, r := range d.operations() {
		fmt.Fprintf(&b, "  %q: { key: %v, repeatable: %v, replies: {", r.name, r.keyed(), !r.keyed() && r.Operation != "" || r.method == "GET")
		for _, status := range slices.Sorted(maps.Keys(r.Responses)) {
			if name := replyName(r.Responses[status]); status != "default" && name != "" {
				fmt.Fprintf(&b, " %s: %q,", status, name)
			}
		}
		b.WriteString(" }")
		if in := replyName(r.Body); in != "" {
			fmt.Fprintf(&b, ", body: %q", in)
		}
		if e, ok := r.Responses["200"].media("application/x-ndjson"); ok {
			fmt.Fprintf(&b, ", event: %q", e.name())
		}
		b.WriteString(" },\n")
	}
	b.WriteString("};\n\n" +
		"/** Where documents have what JSON has no word for: nanoseconds and bytes, also in lists ([]) and by name ({}). */\n" +
		"export const shapes: Readonly<Record<string, Readonly<Record<string, string>>>> = {\n")
	shapes := d.shapes()
	for _, name := range slices.Sorted(maps.Keys(shapes)) {
		fmt.Fprintf(&b, "  %s: {", name)
		for _, member := range slices.Sorted(maps.Keys(shapes[name])) {
			fmt.Fprintf(&b, " %s: %q,", member, shapes[name][member])
		}
		b.WriteString(" },\n")
	}
	b.WriteString("};\n")
	return b.Bytes()
}

// docComment is what is said about something, above it.
func docComment(indent, text string) string {
	if text == "" {
		return ""
	}
	return indent + "/** " + strings.ReplaceAll(strings.Join(strings.Fields(text), " "), "*/", "* /") + " */\n"
}

var identifier = regexp.MustCompile(`^[A-Za-z_]\w*$`)

// members is an object type.
func (d *schemaDocument) members(s *schema, indent string) string {
	var b strings.Builder
	b.WriteString("{\n")
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		p, optional := s.Properties[name], "?"
		if slices.Contains(s.Required, name) {
			optional = ""
		}
		quoted := name
		if !identifier.MatchString(name) {
			quoted = fmt.Sprintf("%q", name)
		}
		fmt.Fprintf(&b, "%s%s  %s%s: %s;\n", docComment(indent+"  ", p.Description), indent, quoted, optional, d.typeOf(p, name, indent+"  "))
	}
	b.WriteString(indent + "}")
	return b.String()
}

// typeOf is the type of a schema, as the value of a member with a name.
func (d *schemaDocument) typeOf(s *schema, member, indent string) string {
	switch {
	case s.never:
		return "never"
	case s.Ref != "":
		return s.name()
	case len(s.OneOf) > 0:
		var arms []string
		for _, arm := range s.OneOf {
			arms = append(arms, d.typeOf(arm, member, indent))
		}
		return strings.Join(arms, " | ")
	}
	switch s.Type {
	case "string":
		if s.Encoding == "base64" {
			return "Uint8Array"
		}
		return cmp.Or(s.Words, "string")
	case "integer":
		switch {
		case isTime(member):
			return "Nanoseconds"
		case s.Format == "int64" || s.Format == "uint64":
			return "Int64"
		}
		return "number"
	case "boolean", "number", "null":
		return s.Type
	case "array":
		of := d.typeOf(s.Items, member, indent)
		if strings.Contains(of, "|") {
			of = "(" + of + ")"
		}
		return of + "[]"
	case "object":
		switch {
		case len(s.Properties) > 0:
			return d.members(s, indent)
		case s.Additional == nil:
			return "{ [name: string]: unknown }"
		case s.Additional.never:
			return "Record<string, never>"
		}
		return "{ [name: string]: " + d.typeOf(s.Additional, "", indent) + " }"
	}
	return "unknown"
}

// isTime reports whether a member has nanoseconds, by its name.
func isTime(member string) bool { return member == "ns" || strings.HasSuffix(member, "_ns") }

// documented is one route of the document.
type documented struct {
	operationOf
	name, method, path string
}

// operations are the routes, in order.
func (d *schemaDocument) operations() (rows []documented) {
	for path, methods := range d.Paths {
		for method, op := range methods {
			rows = append(rows, documented{op, strings.ToUpper(method) + " " + path, strings.ToUpper(method), path})
		}
	}
	slices.SortFunc(rows, func(a, b documented) int {
		return cmp.Or(strings.Compare(a.path, b.path), strings.Compare(a.method, b.method))
	})
	return rows
}

func (r documented) keyed() bool {
	return slices.ContainsFunc(r.Parameters, func(p parameterOf) bool { return p.Name == "Idempotency-Key" })
}

func (d *schemaDocument) parameters(r documented, in string) string {
	var names []string
	for _, p := range r.Parameters {
		if p.In != in {
			continue
		}
		optional := "?"
		if p.Required {
			optional = ""
		}
		kind := d.typeOf(p.Schema, "", "")
		if p.Schema.Type == "integer" {
			kind = "Int64"
		}
		names = append(names, fmt.Sprintf("%s%s: %s", p.Name, optional, kind))
	}
	if len(names) == 0 {
		return "Record<string, never>"
	}
	return "{ " + strings.Join(names, "; ") + " }"
}

// body is what the body says; what the path says it leaves out.
func (d *schemaDocument) body(r documented) string {
	if s, ok := r.Body.media("application/json"); ok {
		name, left := d.typeOf(s, "", ""), []string{}
		for _, p := range r.Parameters {
			if p.In == "path" && s.Ref != "" && d.Components.Schemas[name].Properties[p.Name] != nil {
				left = append(left, fmt.Sprintf("%q", p.Name))
			}
		}
		if len(left) > 0 {
			return fmt.Sprintf("Omit<%s, %s>", name, strings.Join(left, " | "))
		}
		return name
	}
	if _, ok := r.Body.media("application/octet-stream"); ok {
		return "Uint8Array"
	}
	return "undefined"
}

// replyName is the schema of an answer, or of a body; "bytes" is content, and "*" any JSON.
func replyName(b *bodyOf) string {
	if s, ok := b.media("application/json"); ok {
		return cmp.Or(s.name(), "*")
	}
	if _, ok := b.media("application/octet-stream"); ok {
		return "bytes"
	}
	return ""
}

func (d *schemaDocument) replies(r documented) string {
	var b strings.Builder
	for _, status := range slices.Sorted(maps.Keys(r.Responses)) {
		if name := replyName(r.Responses[status]); status != "default" && name != "" {
			switch name {
			case "bytes":
				name = "Uint8Array"
			case "*":
				name = "unknown"
			}
			fmt.Fprintf(&b, " %s: %s;", status, name)
		}
	}
	return b.String()
}

func (d *schemaDocument) event(r documented) string {
	if e, ok := r.Responses["200"].media("application/x-ndjson"); ok {
		return e.name()
	}
	return "never"
}

// shapes are the members that need more than JSON says, and those that lead to some.
func (d *schemaDocument) shapes() map[string]map[string]string {
	shapes := map[string]map[string]string{}
	var kind func(s *schema, member string) string
	kind = func(s *schema, member string) string {
		switch {
		case s.Ref != "" && shapes[s.name()] != nil:
			return s.name()
		case s.Type == "string" && s.Encoding == "base64":
			return "bytes"
		case s.Type == "integer" && isTime(member):
			return "ns"
		case s.Type == "array" && kind(s.Items, member) != "":
			return "[]" + kind(s.Items, member)
		case s.Type == "object" && s.Additional != nil && kind(s.Additional, "") != "":
			return "{}" + kind(s.Additional, "")
		}
		return ""
	}
	for grown := true; grown; {
		grown = false
		for name, s := range d.Components.Schemas {
			for member, p := range s.Properties {
				if k := kind(p, member); k != "" && shapes[name][member] == "" {
					if shapes[name] == nil {
						shapes[name] = map[string]string{}
					}
					shapes[name][member], grown = k, true
				}
			}
		}
	}
	return shapes
}
