package rego

import (
	"strings"
	"testing"
	"testing/fstest"
)

// What the linter says of a negation is what becomes of it where the input lacks what is named: the body is undefined, and a
// denial that rests on it never happens. The two sides of == stay in the negation.
func TestLintNegation(t *testing.T) {
	for _, row := range []struct {
		body string
		says bool // and the denial vanishes
	}{
		{`not input.request.op == "host.exec"`, false},
		{`not input.session.principal.uid == input.request.principal.uid`, false},
		{`not "a" == input.request.op`, false},
		{`not input.request.op != "other"`, true},
		{`not input.request.op in {"host.exec"}`, true},
		{`not startswith(input.request.op, "host.")`, true},
		{`not {"a": input.request.op} == {"a": "host.exec"}`, true},
		{`not input.request.exec.argv[input.request.exec.timeout_ns] == "a"`, true},
	} {
		files := fstest.MapFS{"exec.rego": {Data: []byte(`package stockade.exec

# METADATA
# title: said
decision := {"allow": count(deny) == 0, "deny": deny}

# METADATA
# title: said
deny contains {"code": "denied", "subject": "s", "message": "m"} if {
	` + row.body + `
}
`)}}
		for _, name := range []string{"open", "signal", "blob", "read"} {
			files[name+".rego"] = &fstest.MapFile{Data: []byte("package stockade." + name + "\n\n# METADATA\n# title: said\ndecision := {\"allow\": false}\n")}
		}
		b, err := ReadBundle(files)
		if err != nil {
			t.Fatal(err)
		}
		said := false
		for _, f := range b.Lint() {
			said = said || strings.Contains(f.Message, "before the negation")
		}
		e, err := Load(files, Options{})
		if err != nil {
			t.Fatal(err)
		}
		a := e.Evaluate(Exec, []byte(`{"request": {"exec": {"argv": ["b"]}}, "now_ns": 0}`), 0)
		if vanished := !strings.Contains(string(a.Result), "denied"); said != row.says || vanished != row.says {
			t.Errorf("%s: said %v, vanished %v, want %v; %s %s", row.body, said, vanished, row.says, a.Result, a.Message)
		}
	}
}
