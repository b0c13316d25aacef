package policies_test

import (
	"testing"

	"github.com/stockade-dev/stockade/policies"
	"github.com/stockade-dev/stockade/rego"
)

// TestLibrary runs the Rego tests of the library (R080 to R090, R107 to R109): one that
// allows and one that denies beside each rule.
func TestLibrary(t *testing.T) {
	b, err := rego.ReadBundle(policies.FS)
	if err != nil {
		t.Fatal(err)
	}
	results, report, err := b.Test(t.Context(), rego.TestOptions{Coverage: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range results {
		if !r.Pass() {
			t.Errorf("%s: %s: %v %s", r.Location, r.Name, r.Error, r.Output)
		}
	}
	if len(results) < 80 {
		t.Errorf("%d tests ran", len(results))
	}
	for name, file := range report.Files {
		for _, r := range file.NotCovered {
			t.Logf("%s:%d-%d is not covered", name, r.Start.Row, r.End.Row)
		}
	}
	if report.Coverage < 95 {
		t.Errorf("%.1f %% of the library is covered", report.Coverage)
	}
}
