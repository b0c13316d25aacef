package server

import (
	"bytes"
	"cmp"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/invopop/jsonschema"

	"github.com/stockade-dev/stockade/supervisor/api"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// The served document is made from the routes and the Go types, comments included.
//
// invopop/jsonschema makes the schemas: it writes JSON Schema 2020-12, which OpenAPI 3.1
// takes as it is, reads the json tags that the decoder reads, and takes descriptions
// from comments. swaggest/openapi-go would write paths too, but wants the routes told a
// second time, as structures with its own tags. Only this test links it.
func TestOpenAPI(t *testing.T) {
	got, err := json.Marshal(openAPI(t), json.Deterministic(true), jsontext.WithIndent("  "))
	if err != nil {
		t.Fatal(err)
	}
	got = append(got, '\n')
	const golden = "openapi.json"
	if *update {
		if err := os.WriteFile(golden, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil || !bytes.Equal(got, want) {
		t.Fatalf("%s is not what the types say (%v); run go test ./supervisor/server -update", golden, err)
	}
	for _, ref := range regexp.MustCompile(`"\$ref": "#/components/schemas/([^"]+)"`).FindAllSubmatch(got, -1) {
		if !bytes.Contains(got, fmt.Appendf(nil, "\n      %q: {", ref[1])) {
			t.Errorf("%s is referred to and not defined", ref[1])
		}
	}
	if !*update && !bytes.Equal(contract, got) {
		t.Error("the embedded document is another one; build again")
	}
}

// object is a JSON object under construction.
type object = map[string]any

// openAPI is the whole document.
func openAPI(t *testing.T) object {
	s := newSchemas(t)
	paths := map[string]object{}
	for _, r := range routes() {
		if paths[r.path] == nil {
			paths[r.path] = object{}
		}
		paths[r.path][strings.ToLower(r.method)] = operationObject(r, s)
	}
	return object{
		"openapi": "3.1.0",
		"info": object{
			"title":       "Stockade",
			"version":     "1",
			"description": "The supervisor's interface on its unix socket. Identity is the peer of the socket; integers are exact 64-bit integers.",
		},
		"servers":    []object{{"url": "http://localhost", "description": "over the unix socket"}},
		"paths":      paths,
		"components": object{"schemas": s.defs},

		// What stands for something in a text, with its meaning: clients make types of it, and a release keeps it.
		"x-stockade-words": s.words,
		"x-stockade-codes": codes(),
	}
}

// codes is the table of error and denial codes.
func codes() object {
	out := object{}
	for _, c := range api.Codes {
		out[string(c.Code)] = object{"status": c.Status, "meaning": c.Text}
	}
	return out
}

// words are the texts that stand for something, by their type: the typed constants of the packages of wire types, and what is
// said behind each. Codes have a table of their own.
func words(t *testing.T) object {
	out, literal := object{}, map[string]string{} // by "package.Name"
	var later []func()
	for _, dir := range []string{"sandbox/file", "supervisor/api"} {
		parsed, err := parser.ParseDir(token.NewFileSet(), filepath.Join("../..", dir), func(f fs.FileInfo) bool { return !strings.HasSuffix(f.Name(), "_test.go") }, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		for name, pkg := range parsed {
			ast.Inspect(pkg, func(n ast.Node) bool {
				spec, ok := n.(*ast.ValueSpec)
				if !ok || len(spec.Names) != 1 || len(spec.Values) != 1 || !spec.Names[0].IsExported() {
					return true
				}
				kind, typed := spec.Type.(*ast.Ident)
				if !typed || kind.Name == "Code" {
					return true
				}
				later = append(later, func() {
					word, ok := literal[name+"."+spec.Names[0].Name]
					if name != "api" || !ok {
						return
					}
					if out[kind.Name] == nil {
						out[kind.Name] = object{}
					}
					out[kind.Name].(object)[word] = strings.TrimSpace(cmp.Or(spec.Comment.Text(), spec.Doc.Text()))
				})
				switch v := spec.Values[0].(type) {
				case *ast.BasicLit:
					if word, err := strconv.Unquote(v.Value); err == nil && v.Kind == token.STRING {
						literal[name+"."+spec.Names[0].Name] = word
					}
				case *ast.CallExpr: // Op(file.OpRead)
					if other, ok := v.Args[0].(*ast.SelectorExpr); ok {
						literal[name+"."+spec.Names[0].Name] = literal[other.X.(*ast.Ident).Name+"."+other.Sel.Name]
					}
				}
				return true
			})
		}
	}
	for _, add := range later {
		add()
	}
	return out
}

func operationObject(r route, s *schemas) object {
	op := object{
		"operationId": operationID(r),
		"summary":     r.summary,
		"responses":   responses(r, s),
	}
	if r.op != public && r.op != derived {
		op["x-stockade-operation"] = r.op
	}
	if in := body(r, s); in != nil {
		op["requestBody"] = object{"required": !strings.Contains(r.path, "_id}"), "content": in}
	}
	if params := parametersOf(r, s); len(params) > 0 {
		op["parameters"] = params
	}
	return op
}

// body is what an operation takes. A shell is an execution of which the command need not be said.
func body(r route, s *schemas) object {
	if r.op != api.OpShellOpen {
		return content(r.in, s)
	}
	s.ref(r.in)
	shell := maps.Clone(s.defs["Exec"].(object))
	shell["description"] = "An Exec of which the command need not be said: without one it is " + strings.Join(api.DefaultShell, " ") + "."
	shell["required"] = slices.DeleteFunc(slices.Clone(shell["required"].([]any)), func(name any) bool { return name == "argv" })
	s.defs["ShellOpen"] = shell
	return object{"application/json": object{"schema": object{"$ref": "#/components/schemas/ShellOpen"}}}
}

// operationID is the name that generated clients use: get_v1_sessions_session_id.
func operationID(r route) string {
	words := regexp.MustCompile(`[a-z0-9_]+`).FindAllString(r.path, -1)
	return strings.ToLower(r.method) + "_" + strings.Join(words[1:], "_")
}

func parametersOf(r route, s *schemas) []object {
	var params []object
	for _, m := range regexp.MustCompile(`\{(\w+)\}`).FindAllStringSubmatch(r.path, -1) {
		params = append(params, object{"name": m[1], "in": "path", "required": true, "schema": object{"type": "string"}})
	}
	for _, name := range r.query {
		schema := object{"type": "string"}
		switch name {
		case "limit", "stdout", "stderr", "wait_ms", "max_bytes":
			schema = object{"type": "integer", "minimum": 0}
		case "after_bytes":
			schema["contentEncoding"] = "base64"
		case "active":
			schema = object{"type": "boolean"}
		case "label":
			schema = object{"type": "array", "items": object{"type": "string", "pattern": "^[^=]+="}}
		}
		params = append(params, object{"name": name, "in": "query", "schema": schema})
	}
	if _, ok := streams[r.op]; ok && r.method == "GET" {
		params = append(params, object{
			"name": "Last-Event-ID", "in": "header", "schema": object{"type": "string"},
			"description": "Of a stream: the cursor of the last event that the reader has. It counts more than after.",
		})
	}
	if takesKey(r) {
		params = append(params, object{
			"name": "Idempotency-Key", "in": "header", "schema": object{"type": "string", "minLength": 1, "maxLength": 128, "pattern": "^[ -~]+$"},
			"description": "The operation takes place once for each key; asked again, the answer is the same receipt.",
		})
	}
	if canWait(r) {
		params = append(params, object{
			"name": "Prefer", "in": "header", "schema": object{"type": "string"},
			"description": "respond-async: where policy wants somebody's leave, the answer is 202 and under which approval it waits.",
		})
	}
	if r.op != public {
		params = append(params, object{
			"name": "Stockade-Scope", "in": "header", "description": "The declared scope, as JSON; a body may carry it instead.",
			"content": object{"application/json": object{"schema": s.ref(api.Scope{})}},
		})
	}
	return params
}

// takesKey reports whether an operation takes place once for each key.
func takesKey(r route) bool {
	_, isReceipt := r.out.(api.Receipt)
	return isReceipt && r.method != "GET" || r.op == api.OpShellOpen
}

// canWait reports whether an operation, with its parameters in a body, can be made to wait for leave.
func canWait(r route) bool {
	_, isReceipt := r.out.(api.Receipt)
	_, isContent := r.in.([]byte)
	return isReceipt && r.method != "GET" && r.op != derived && !isContent && r.op != api.OpExec && r.op != api.OpApprove && r.op != api.OpDeny
}

// streams are the operations that can be answered with events, and what the events are.
var streams = map[api.Op]any{
	api.OpExec: api.Event{}, api.OpOutput: api.Event{}, api.OpIntentFrames: api.Event{}, api.OpEvents: api.Notice{}, api.OpSessionEvents: api.Notice{},
	api.OpShellOutput: api.ShellOutput{},
}

func responses(r route, s *schemas) object {
	ok := object{"description": "Done.", "content": content(r.out, s)}
	if r.path == "/v1/openapi.json" {
		ok["description"] = "This document."
	}
	failed := content(api.ErrorBody{}, s)
	out := object{"200": ok, "default": object{"description": "Not an operation: a code and a sentence.", "content": failed}}
	if event, ok := streams[r.op]; ok {
		media := out["200"].(object)["content"].(object)
		lines := s.ref(event)
		media["text/event-stream"] = object{"schema": object{"type": "string", "description": "Server-sent events; the data of each is one of the lines of application/x-ndjson."}}
		media["application/x-ndjson"] = object{"schema": lines}
	}
	switch r.op {
	case api.OpExec:
		out["202"] = object{"description": "It goes on: the body said wait false, or wait_ms is over.", "content": content(api.Pending{}, s)}
	case api.OpOutput, api.OpEvents, api.OpSessionEvents:
		out["410"] = object{"description": "The position is not kept any more; gone says what is.", "content": content(r.out, s)}
	}
	if canWait(r) {
		out["202"] = object{"description": "It waits for leave, and the caller prefers not to.", "content": content(api.Pending{}, s)}
	}
	if r.op == api.OpShellOpen {
		out["200"] = object{"description": "It has ended already.", "content": content(api.Receipt{}, s)}
		out["202"] = object{"description": "Its prompt is there, or wait_ms is over.", "content": content(api.Shell{}, s)}
	}
	if r.op != public && !takesKey(r) {
		out["403"] = object{"description": "Denied, with the reasons.", "content": content(api.Receipt{}, s)}
	}
	if takesKey(r) {
		out["403"] = object{"description": "Denied, with the reasons.", "content": content(api.Receipt{}, s)}
		out["default"] = object{
			"description": "Faulted, with a receipt; or not an operation, with an error.",
			"content":     object{"application/json": object{"schema": object{"oneOf": []any{s.ref(api.Receipt{}), s.ref(api.ErrorBody{})}}}},
		}
	}
	return out
}

func content(v any, s *schemas) object {
	switch v.(type) {
	case nil:
		return nil
	case []byte:
		return object{"application/octet-stream": object{}}
	}
	return object{"application/json": object{"schema": s.ref(v)}}
}

// schemas collects the types that are referred to.
type schemas struct {
	t     *testing.T
	r     jsonschema.Reflector
	defs  object
	words object
}

// shared are the nouns that commands and file tools have in common.
var shared = map[reflect.Type]string{
	reflect.TypeFor[api.InlineText]():  "InlineText",
	reflect.TypeFor[api.InlineBytes](): "InlineBytes",
	reflect.TypeFor[api.BlobRef]():     "BlobRef",
	reflect.TypeFor[api.BlobOutput]():  "BlobOutput",
}

func newSchemas(t *testing.T) *schemas {
	s := &schemas{t: t, defs: object{}, words: words(t)}
	s.r.Mapper = func(t reflect.Type) *jsonschema.Schema {
		if own := custom(t); own != nil {
			return own
		}
		if t.Kind() == reflect.String && t.PkgPath() != "" && (s.words[t.Name()] != nil || t.Name() == "Code") {
			return &jsonschema.Schema{Type: "string", Extras: map[string]any{"x-stockade-words": t.Name()}}
		}
		return number(t)
	}
	s.r.Namer = func(t reflect.Type) string { // two packages have nouns of one name
		if !strings.HasSuffix(t.PkgPath(), "/sandbox/file") {
			return ""
		}
		return cmp.Or(shared[t], "Tool"+t.Name())
	}
	for _, dir := range []string{"supervisor/api", "sandbox"} {
		t.Chdir("../..") // comments are found by the path below the module
		if err := s.r.AddGoComments("github.com/stockade-dev/stockade", dir); err != nil {
			t.Fatal(err)
		}
		t.Chdir("supervisor/server")
	}
	return s
}

// variants are the types of which a document has so many arms.
var variants = map[string][2]int{"Target": {1, 1}, "Root": {0, 1}, "Stdin": {1, 1}, "Payload": {0, 1},
	"ToolContent": {1, 1}, "ToolPatchText": {1, 1}, "ToolOutput": {1, 1}}

// ref returns a reference to the schema of v's type, and sees to its definition.
func (s *schemas) ref(v any) object {
	if reflect.TypeOf(v).Kind() == reflect.Map {
		return object{"type": "object"}
	}
	schema := s.r.Reflect(v)
	for name, def := range schema.Definitions {
		b, err := def.MarshalJSON()
		if err != nil {
			s.t.Fatal(err)
		}
		b = bytes.ReplaceAll(b, []byte(`"#/$defs/`), []byte(`"#/components/schemas/`))
		var o object
		if err := json.Unmarshal(b, &o); err != nil {
			s.t.Fatal(err)
		}
		exact(o)
		if arms, ok := variants[name]; ok {
			o["minProperties"], o["maxProperties"] = arms[0], arms[1]
		}
		s.defs[name] = o
	}
	return object{"$ref": "#/components/schemas/" + reflect.TypeOf(v).Name()}
}

// number is an integer with the bounds of its Go type, where those are not the ones of 64 bits with a sign.
func number(t reflect.Type) *jsonschema.Schema {
	switch t.Kind() {
	case reflect.Int, reflect.Int32:
		return &jsonschema.Schema{Type: "integer", Format: "int32"}
	case reflect.Uint16, reflect.Uint32:
		return &jsonschema.Schema{Type: "integer", Format: "uint32"}
	case reflect.Uint64:
		return &jsonschema.Schema{Type: "integer", Format: "uint64"}
	}
	return nil
}

// exact says of every other integer that it has 64 bits, which a generator would otherwise
// read as a float in JavaScript and as 32 bits elsewhere.
func exact(o object) {
	if o["type"] == "integer" && o["format"] == nil {
		o["format"] = "int64"
	}
	for _, v := range o {
		switch v := v.(type) {
		case object:
			exact(v)
		case []any:
			for _, e := range v {
				if e, ok := e.(object); ok {
					exact(e)
				}
			}
		}
	}
}

// custom are the types whose JSON is not that of their Go type.
func custom(t reflect.Type) *jsonschema.Schema {
	str := func(description string) *jsonschema.Schema {
		return &jsonschema.Schema{Type: "string", Description: description}
	}
	one := func(name, description string) *jsonschema.Schema {
		props := jsonschema.NewProperties()
		props.Set(name, str(description))
		return &jsonschema.Schema{Type: "object", Properties: props, Required: []string{name}, AdditionalProperties: jsonschema.FalseSchema}
	}
	switch t {
	case reflect.TypeFor[jsontext.Value]():
		return &jsonschema.Schema{Description: "Any JSON."}
	case reflect.TypeFor[api.SignalName]():
		return str("A signal: TERM. Also accepted: term, SIGTERM, 15.")
	case reflect.TypeFor[api.EnvValue]():
		return &jsonschema.Schema{OneOf: []*jsonschema.Schema{
			str("The value."),
			one("secret", "The value; it reaches the process and nothing else."),
			one("secret_digest", "In records, in place of a secret: its salted digest."),
			{Type: "null", Description: "In an env_patch: remove the variable."},
		}}
	}
	return nil
}

// R137, R140, R244: a process id of the kernel's is in no document that is taken or given, and nothing that comes from
// outside is a frame.
func TestNoHandles(t *testing.T) {
	for _, name := range regexp.MustCompile(`(?m)^ *"([^"]+)": \{$`).FindAllSubmatch(contract, -1) {
		if handle.Match(name[1]) {
			t.Errorf("the contract has a member %s", name[1])
		}
	}
	for _, member := range []string{"pid", "host_pid", "pgid", "pidfd"} {
		if !handle.MatchString(member) {
			t.Errorf("the test does not see %s", member)
		}
	}
	for _, r := range routes() {
		if strings.Contains(r.path, "frames") && r.method != "GET" {
			t.Errorf("%s %s", r.method, r.path)
		}
		if in := reflect.TypeOf(r.in); in != nil && (holds(in, reflect.TypeFor[api.Frame]()) || holds(in, reflect.TypeFor[api.Receipt]())) {
			t.Errorf("%s %s takes a %v with frames or receipts in it", r.method, r.path, in)
		}
	}
	if !holds(reflect.TypeFor[api.FrameList](), reflect.TypeFor[api.Frame]()) {
		t.Error("the test does not see frames")
	}
}

// handle is the name of what only this kernel knows; pids is a number of them.
var handle = regexp.MustCompile(`(^|_)(p?pid|pidfd|pgid|pgrp|sid|tid)($|_)`)

// holds reports whether a value of type t can have one of type what in it.
func holds(t, what reflect.Type) bool {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
		return holds(t.Elem(), what)
	case reflect.Struct:
		if t == what {
			return true
		}
		for _, f := range reflect.VisibleFields(t) {
			if f.IsExported() && f.Type != t && holds(f.Type, what) {
				return true
			}
		}
	}
	return false
}

// Every status of the table of codes is one that HTTP knows.
func TestStatuses(t *testing.T) {
	for _, c := range api.Codes {
		if http.StatusText(c.Status) == "" {
			t.Errorf("%s: status %s", c.Code, strconv.Itoa(c.Status))
		}
	}
}
