package rego_test

import (
	"bytes"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/open-policy-agent/opa/v1/ast"
	opa "github.com/open-policy-agent/opa/v1/rego"

	"github.com/stockade-dev/stockade/policies"
	"github.com/stockade-dev/stockade/rego"
	"github.com/stockade-dev/stockade/supervisor/api"
)

// whole is a policy that answers every question of the newest contract, and denies.
func whole() fstest.MapFS {
	files := fstest.MapFS{"data.json": {Data: fmt.Appendf(nil, `{"stockade_contract": %d}`, rego.Contract)}}
	for _, q := range rego.Questions() {
		if q.Since > rego.Contract {
			continue
		}
		pkg := strings.TrimSuffix(strings.TrimPrefix(q.Entrypoint, "data."), ".decision")
		files[pkg+".rego"] = &fstest.MapFile{Data: fmt.Appendf(nil, "package %s\n\ndefault decision := {\"allow\": false, \"deny\": [{\"code\": \"no\"}]}\n", pkg)}
	}
	return files
}

// R110: a bundle that says which contract it is written for has all that the contract asks for.
func TestContract(t *testing.T) {
	load(t, whole(), rego.Options{})
	for _, q := range rego.Questions() {
		if q.Since > rego.Contract {
			continue
		}
		file := strings.TrimSuffix(strings.TrimPrefix(q.Entrypoint, "data."), ".decision") + ".rego"
		lacking := whole()
		delete(lacking, file)
		refused(t, lacking, q.Entrypoint+" is not defined")

		partial := whole()
		partial[file] = &fstest.MapFile{Data: []byte(strings.Replace(string(partial[file].Data), "default ", "", 1))}
		refused(t, partial, q.Entrypoint+" has no default")

		older := whole()
		older["data.json"] = &fstest.MapFile{Data: []byte(`{"stockade_contract": 1}`)}
		delete(older, file)
		if q.Since == 1 {
			refused(t, older, q.Entrypoint+" is not defined")
		} else if e := load(t, older, rego.Options{}); e.Defines(q.Entrypoint) {
			t.Errorf("%s is defined", q.Entrypoint)
		}
	}
	for _, version := range []string{"0", "-1", "1.5", "2.0", "1e0", `"2"`, "null", "[2]", "true", fmt.Sprint(rego.Contract + 1), "99999999999999999999"} {
		files := whole()
		files["data.json"] = &fstest.MapFile{Data: []byte(`{"stockade_contract": ` + version + `}`)}
		refused(t, files, "data.stockade_contract")
	}
}

func refused(t *testing.T, files fstest.MapFS, why string) {
	t.Helper()
	e, err := rego.Load(files, rego.Options{})
	if err == nil {
		e.Close()
		t.Errorf("loaded, although %s", why)
	} else if !strings.Contains(err.Error(), why) {
		t.Errorf("refused with %v, not %s", err, why)
	}
}

// The library is written for the newest contract, and a bundle that says nothing for the first.
func TestContractOf(t *testing.T) {
	b, err := rego.ReadBundle(policies.FS)
	if err != nil {
		t.Fatal(err)
	}
	if v, err := rego.ContractOf(b); v != rego.Contract || err != nil {
		t.Errorf("the library has contract %d, %v", v, err)
	}
	b, err = rego.ReadBundle(tree("decision := {}"))
	if err != nil {
		t.Fatal(err)
	}
	if v, err := rego.ContractOf(b); v != 1 || err != nil {
		t.Errorf("a bundle without a word has contract %d, %v", v, err)
	}
}

// Every operation asks one question, under its own name (R081, R088).
func TestQuestions(t *testing.T) {
	var asked []api.Op
	for _, q := range rego.Questions() {
		if (len(q.Operations) == 0) != (q.Since > rego.Contract) {
			t.Errorf("%s is asked at %v and in contract %d", q.Entrypoint, q.Operations, q.Since)
		}
		asked = append(asked, q.Operations...)
	}
	slices.Sort(asked)
	if len(slices.Compact(slices.Clone(asked))) != len(asked) {
		t.Errorf("an operation asks two questions: %v", asked)
	}
	for _, op := range asked {
		if ref, ok := rego.Entrypoint(op); !ok || ref == "" {
			t.Errorf("%s asks nothing", op)
		}
	}
}

// What is told and answered fits the schemas that authors have: the input of each entry point, and the
// result for which a decision was made.
func TestSchemasFit(t *testing.T) {
	e := load(t, policies.FS, rego.Options{})
	q, err := opa.New(opa.Query("x := json.match_schema(input.document, input.schema)")).PrepareForEval(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	fits := func(document []byte, name string) bool {
		t.Helper()
		schema, err := fs.ReadFile(rego.Schemas(), name+".json")
		if err != nil {
			t.Fatal(err)
		}
		text := fmt.Appendf(nil, `{"document": %s, "schema": %s}`, document, schema)
		v, err := ast.ValueFromReader(bytes.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		rs, err := q.Eval(t.Context(), opa.EvalParsedInput(v))
		if err != nil || len(rs) != 1 {
			t.Fatalf("%s: %v %v", name, rs, err)
		}
		answer := rs[0].Bindings["x"].([]any)
		if answer[0] != true {
			t.Log(name, answer[1])
		}
		return answer[0] == true
	}
	control := controlInput(t, e, api.Request{Op: api.OpProcessCancel, Cancel: &api.ProcessCancel{ProcessRef: api.ProcessRef{ExecID: "x1"}}})
	read := readInput()
	read.Facts = rego.Facts{}
	for ref, in := range map[string]rego.Input{rego.Open: openInput(3), rego.Exec: execInput(t, e), rego.Signal: control, rego.Read: read} {
		d := e.Decide(t.Context(), ref, in)
		if !d.Allow {
			t.Fatal(d.Deny)
		}
		name := strings.TrimSuffix(strings.TrimPrefix(ref, "data.stockade."), ".decision")
		if !fits(d.Input, name+"_input") || !fits(d.Input, "input") {
			t.Errorf("the input of %s is not what its schema says", ref)
		}
		if ref == rego.Exec && fits(d.Input, "open_input") {
			t.Error("an exec fits the schema of an open")
		}
		result, err := api.Encode(map[string]any{"allow": d.Allow, "deny": []string{}, "grant": d.Grant})
		if err != nil {
			t.Fatal(err)
		}
		if fits(result, name+"_result") != (ref == rego.Open) {
			t.Errorf("%s: the schema of the result is wrong about a grant", ref)
		}
	}
}
