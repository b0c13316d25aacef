package worker

import (
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stockade-dev/stockade/policies"
)

// The tests that a policy brings along are run where it is evaluated: those that fail are named, and one that takes the memory or never
// ends is its own end only.
func TestTests(t *testing.T) {
	with := func(test string) fstest.MapFS {
		files := tree("decision := {\"allow\": false}")
		files["own_test.rego"] = &fstest.MapFile{Data: []byte("package own_test\n\n" + test)}
		return files
	}
	for name, row := range map[string]struct{ test, want string }{
		"passes":   {"test_a if true", ""},
		"fails":    {"test_a if false\n\ntest_b if true", "own_test.rego:3: test test_a fails"},
		"wrong":    {"test_a if", "own_test.rego"},
		"too much": {"test_a if { count([x | some a in big; some b in big; some c in big; some d in big; x := [a, b, c, d]]) > 0 }\n\nbig := [i | some i in split(replace(replace(\"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\", \"x\", \"yyyyyyyyyyyyyyyy\"), \"y\", \"1,2,3,\"), \",\")]", "test"},
	} {
		err := Test(t.Context(), with(row.test), Options{})
		if row.want == "" && err != nil || row.want != "" && (err == nil || !strings.Contains(err.Error(), row.want)) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := Test(t.Context(), policies.FS, Options{}); err != nil {
		t.Errorf("the shipped library: %v", err)
	}
}
