package rego

import (
	"bytes"
	"cmp"
	"flag"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/invopop/jsonschema"

	"github.com/stockade-dev/stockade/supervisor/api"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// TestSchemas: the shipped schemas are what the Go types say.
func TestSchemas(t *testing.T) {
	want := map[string][]byte{}
	r := reflector(t)
	put := func(name string, schema object) {
		text, err := json.Marshal(schema, json.Deterministic(true), jsontext.WithIndent("  "))
		if err != nil {
			t.Fatal(err)
		}
		want[name] = append(text, '\n')
	}
	put("input.json", document(t, r, Input{}, "What a policy is told, whatever it is asked."))
	for _, e := range entrypoints {
		put(e.name()+"_input.json", e.input(t, document(t, r, Input{}, "What "+e.ref+" is told.")))
		put(e.name()+"_result.json", e.result(document(t, r, result{}, "What "+e.ref+" answers.")))
	}
	if *update {
		for name, text := range want {
			if err := os.WriteFile(filepath.Join("schemas", name), text, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	entries, err := os.ReadDir("schemas")
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		got, err := os.ReadFile(filepath.Join("schemas", entry.Name()))
		if err != nil || !bytes.Equal(got, want[entry.Name()]) {
			t.Errorf("schemas/%s is not what the types say (%v); run go test ./rego -run TestSchemas -update", entry.Name(), err)
		}
		delete(want, entry.Name())
	}
	for name := range want {
		t.Errorf("schemas/%s is missing; run go test ./rego -run TestSchemas -update", name)
	}
}

type object = map[string]any

// shared are the nouns that commands and file tools have in common.
var shared = map[reflect.Type]string{
	reflect.TypeFor[api.InlineText]():  "InlineText",
	reflect.TypeFor[api.InlineBytes](): "InlineBytes",
	reflect.TypeFor[api.BlobRef]():     "BlobRef",
	reflect.TypeFor[api.BlobOutput]():  "BlobOutput",
}

func reflector(t *testing.T) *jsonschema.Reflector {
	r := &jsonschema.Reflector{Mapper: func(t reflect.Type) *jsonschema.Schema {
		switch t {
		case reflect.TypeFor[api.SignalName]():
			return &jsonschema.Schema{Type: "string", Description: "A signal, such as TERM."}
		case reflect.TypeFor[api.EnvValue]():
			return &jsonschema.Schema{Description: `A string; {"secret_digest": …} in place of a secret; in an env_patch, null to remove the variable.`}
		}
		return nil
	}}
	r.Namer = func(t reflect.Type) string { // two packages have nouns of one name
		if !strings.HasSuffix(t.PkgPath(), "/sandbox/file") {
			return ""
		}
		return cmp.Or(shared[t], "Tool"+t.Name())
	}
	t.Chdir("..") // comments are found by the path below the module
	for _, dir := range []string{"rego", "supervisor/api", "sandbox"} {
		if err := r.AddGoComments("github.com/stockade-dev/stockade", dir); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir("rego")
	return r
}

// document is the schema of v in the dialect that OPA reads.
func document(t *testing.T, r *jsonschema.Reflector, v any, title string) object {
	text, err := r.Reflect(v).MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	var o object
	if err := json.Unmarshal(bytes.ReplaceAll(text, []byte(`"#/$defs/`), []byte(`"#/definitions/`)), &o); err != nil {
		t.Fatal(err)
	}
	definitions := o["$defs"].(object)
	root := reflect.TypeOf(v).Name()
	o = definitions[root].(object)
	delete(definitions, root)
	if source, ok := definitions["Source"].(object); ok {
		delete(source, "required") // what was found, or why not
	}
	o["$schema"], o["title"], o["definitions"] = "http://json-schema.org/draft-07/schema#", title, definitions
	return o
}

// input leaves of the whole input what an entry point can be told.
func (e entrypoint) input(t *testing.T, o object) object {
	members := o["properties"].(object)
	maps.DeleteFunc(members, func(name string, _ any) bool {
		return !slices.Contains(append([]string{"request", "facts", "ceiling", "now_ns"}, e.about...), name)
	})
	if !slices.Contains(e.about, "facts") {
		members["facts"] = object{"type": "object", "additionalProperties": false, "properties": object{}}
	}
	if slices.Contains(e.about, "session") && !slices.Contains(e.about, "process") && e.ref != Read {
		o["required"] = append(o["required"].([]any), "session")
	}
	request := o["definitions"].(object)["Request"].(object)
	asked, used := request["properties"].(object), map[string]bool{}
	operations := []any{}
	for _, q := range Questions() {
		if q.Entrypoint != e.ref {
			continue
		}
		for _, op := range q.Operations {
			operations = append(operations, string(op))
			used[parameters(t, op)] = true
		}
	}
	maps.DeleteFunc(asked, func(name string, _ any) bool {
		return !used[name] && !slices.Contains([]string{"op", "requested_kind", "principal", "facade", "idempotency_key"}, name)
	})
	if len(operations) > 0 {
		asked["op"].(object)["enum"] = operations
	}
	return swept(o)
}

// parameters is the member of a request that holds what an operation asks for.
func parameters(t *testing.T, op api.Op) string {
	r := &api.Request{Op: op}
	if _, err := r.SetParameters([]byte("{}")); err != nil {
		t.Fatal(err)
	}
	v := reflect.ValueOf(r).Elem()
	for i := range v.NumField() {
		if f := v.Field(i); f.Kind() == reflect.Pointer && !f.IsNil() {
			name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
			return name
		}
	}
	t.Fatalf("%s has no parameters", op)
	return ""
}

// result leaves of the whole result what an entry point may answer.
func (e entrypoint) result(o object) object {
	members := o["properties"].(object)
	if !e.grants {
		delete(members, "grant")
	}
	if !e.limits {
		delete(members, "limits")
		delete(members, "obligations")
	}
	o["required"] = []any{"allow"}
	return swept(o)
}

// swept removes the definitions that nothing refers to.
func swept(o object) object {
	definitions := o["definitions"].(object)
	used := map[string]bool{}
	var look func(any)
	look = func(v any) {
		switch v := v.(type) {
		case object:
			if ref, ok := v["$ref"].(string); ok {
				name := strings.TrimPrefix(ref, "#/definitions/")
				if !used[name] {
					used[name] = true
					look(definitions[name])
				}
			}
			for _, member := range v {
				look(member)
			}
		case []any:
			for _, e := range v {
				look(e)
			}
		}
	}
	for name, member := range o {
		if name != "definitions" {
			look(member)
		}
	}
	maps.DeleteFunc(definitions, func(name string, _ any) bool { return !used[name] })
	return o
}

// TestClosedInput: what an input never has does not compile, by entry point.
func TestClosedInput(t *testing.T) {
	for rule, fits := range map[string]bool{
		"package stockade.open\n\nx := input.request.open.target.local.mounts[0].mode":  true,
		"package stockade.open\n\nx := input.facts.sources[p].owner_uid if p := \"/\"":  true,
		"package stockade.open\n\nx := input.request.open.labels.anything":              true,
		"package stockade.open\n\nx := input.request.open.target.local.mount[0].mode":   false,
		"package stockade.open\n\nx := input.request.exec.argv":                         false,
		"package stockade.open\n\nx := input.session.session_id":                        false,
		"package stockade.exec\n\nx := input.request.exec.argv":                         true,
		"package stockade.exec\n\nx := input.session.grant.ceilings.memory_bytes":       true,
		"package stockade.exec\n\nx := input.process.exec_id":                           false,
		"package stockade.exec\n\nx := input.request.exec.env_patch.A.secret_digest":    true,
		"package stockade.signal\n\nx := input.process.labels.role":                     true,
		"package stockade.signal\n\nx := input.request.workspace.paths":                 false,
		"package stockade.workspace\n\nx := input.request.workspace.paths":              true,
		"package stockade.read\n\nx := input.request.read.limit":                        true,
		"package stockade.blob\n\nx := input.session":                                   false,
		"package helper\n\nx := input.request.exec.argv if input.request.open.profile":  true,
		"package helper\n\nx := input.request.exec.arguments":                           false,
		"package stockade.open\n\nx := count(input.request.open.target.local.env.HOME)": true,
	} {
		pkg, _, _ := strings.Cut(rule, "\n")
		b, err := ReadBundle(fstest.MapFS{"x.rego": {Data: []byte(rule)}, "a/a.rego": {Data: []byte(pkg)}, "y.rego": {Data: []byte(pkg)}, "data.json": {Data: []byte(`{"stockade_contract": 2}`)}})
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := b.Compile(); (err == nil) != fits {
			t.Errorf("%s: %v", rule, err)
		}
	}
}

// Every object whose members have names is closed.
func TestSchemasAreClosed(t *testing.T) {
	err := fs.WalkDir(Schemas(), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := fs.ReadFile(Schemas(), name)
		if err != nil {
			return err
		}
		var o object
		if err := json.Unmarshal(text, &o); err != nil {
			return err
		}
		var look func(at string, v any)
		look = func(at string, v any) {
			if o, ok := v.(object); ok {
				if _, has := o["properties"]; has && o["type"] == "object" && o["additionalProperties"] != false {
					t.Errorf("%s%s is open", name, at)
				}
				for member, v := range o {
					look(at+"/"+member, v)
				}
			}
		}
		look("", o)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
