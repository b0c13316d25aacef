package workbench

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The contract and its schemas can be read where there is no source tree.
func TestSchema(t *testing.T) {
	out, code := run(t, Options{}, "schema")
	if code != 0 || !strings.Contains(out, "data.stockade.open.decision") || !strings.Contains(out, "host.process.cancel") {
		t.Errorf("%d %s", code, out)
	}
	if out, code := run(t, Options{}, "schema", "--json"); code != 0 || !strings.Contains(out, `"contract": 3`) {
		t.Errorf("%d %s", code, out)
	}
	if out, code := run(t, Options{}, "schema", "open_result"); code != 0 || !strings.Contains(out, `"http://json-schema.org/draft-07/schema#"`) || !strings.Contains(out, "egress") {
		t.Errorf("%d %s", code, out)
	}
	if out, code := run(t, Options{}, "schema", "shut_input"); code != 2 || !strings.Contains(out, "exec_input") {
		t.Errorf("%d %s", code, out)
	}
	dir := filepath.Join(t.TempDir(), "schemas")
	if out, code := run(t, Options{}, "schema", "--dir", dir); code != 0 {
		t.Errorf("%d %s", code, out)
	}
	if _, err := os.Stat(filepath.Join(dir, "exec_input.json")); err != nil {
		t.Error(err)
	}
}

// What OPA's own tools are told is what there is: our functions, and none that a policy may not call.
func TestCapabilities(t *testing.T) {
	out, code := run(t, Options{}, "capabilities")
	var c struct {
		Builtins []struct {
			Name string
			Decl struct{ Args []any }
		}
	}
	if err := json.Unmarshal([]byte(out), &c); code != 0 || err != nil {
		t.Fatalf("%d %v %s", code, err, out)
	}
	known := map[string]int{}
	for _, b := range c.Builtins {
		known[b.Name] = len(b.Decl.Args)
	}
	if known["stockade.below"] != 2 || known["startswith"] != 2 {
		t.Errorf("%v", known)
	}
	if _, ok := known["http.send"]; ok || len(known) < 50 {
		t.Errorf("%d, http.send among them: %v", len(known), ok)
	}
}
