package workbench

import (
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
