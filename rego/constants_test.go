package rego

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/open-policy-agent/opa/v1/ast"
)

// What rests on data alone is found out once; what rests on a question, on the time or on a document that "with" puts in
// the place of another is found out each time, and so is what fails. OPA's own cases say the same of all of Rego
// (TestConformance runs each of them twice).
func TestConstants(t *testing.T) {
	const module = `package stockade.exec

default decision := {"allow": false, "deny": [{"code": "none"}]}

decision := {"allow": true, "warn": warn} if count(deny) == 0

list := {w | some w in data.list}

derived := {upper(w) | some w in list}

absent if "c" in list

asked := input.request.op

clock := time.now_ns()

replaced := said if said := sprintf("%v", [derived]) with data.list as ["z"]

fails := to_number(data.list[0])

function(x) := x

called := function("a")

warn := [sprintf("%v", [x]) | some x in [list, derived, asked, clock, replaced, called]]

deny contains {"code": "absent"} if absent

deny contains {"code": "fails"} if {
	asked == "host.exec"
	input.request.principal.uid == 7
	fails
}
`
	files := fstest.MapFS{
		"data.json":      {Data: []byte(`{"list": ["a", "b"]}`)},
		"exec/exec.rego": {Data: []byte(module)},
	}
	for _, name := range []string{"open", "signal", "blob", "read"} {
		files[name+".rego"] = &fstest.MapFile{Data: []byte("package stockade." + name + "\n\ndefault decision := {\"allow\": false, \"deny\": [{\"code\": \"none\"}]}\n")}
	}
	e, err := Load(files, Options{})
	if err != nil {
		t.Fatal(err)
	}
	ask := func(op string, uid, now int64) Answer {
		return e.Evaluate(Exec, fmt.Appendf(nil, `{"request":{"op":%q,"principal":{"uid":%d}},"now_ns":%d}`, op, uid, now), now)
	}
	var all sync.WaitGroup // learning at once
	for i := range 8 {
		all.Go(func() {
			for range 20 {
				if a := ask("one", 1, int64(i)); a.Code != "" {
					t.Error(a.Message)
				}
			}
		})
	}
	all.Wait()
	for i, want := range []string{
		`{"allow":true,"warn":["{\"a\", \"b\"}","{\"A\", \"B\"}","one","1","{\"Z\"}","a"]}`,
		`{"allow":true,"warn":["{\"a\", \"b\"}","{\"A\", \"B\"}","two","2","{\"Z\"}","a"]}`,
	} {
		a := ask([]string{"one", "two"}[i], 1, int64(i+1))
		if got := string(a.Result); got != want {
			t.Errorf("question %d: %s %s\nwant %s", i, got, a.Message, want)
		}
		if !slices.ContainsFunc(a.Rules, func(name string) bool { return strings.HasSuffix(name, "stockade.exec.decision") }) {
			t.Errorf("question %d: rules %q", i, a.Rules)
		}
	}
	// A builtin that fails, fails each time.
	for range 2 {
		if a := ask("host.exec", 7, 1); a.Code != "policy.builtin_error" {
			t.Errorf("fails: %+v", a)
		}
	}
	var kept []string
	for _, entry := range e.fixed.known.Load().entries {
		ref := ast.Ref(e.fixed.known.Load().terms[entry.from:entry.to])
		kept = append(kept, strings.TrimPrefix(ref.String(), "data.stockade.exec."))
	}
	slices.Sort(kept)
	if got, want := strings.Join(kept, " "), "absent called derived list"; got != want {
		t.Errorf("kept are %s, want %s", got, want)
	}
}
