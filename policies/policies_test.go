package policies_test

import (
	"slices"
	"testing"

	"github.com/go-json-experiment/json"

	"github.com/stockade-dev/stockade/policies"
	"github.com/stockade-dev/stockade/rego"
	"github.com/stockade-dev/stockade/sandbox"
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

// TestReserved: the library and the relay mean the same ranges.
func TestReserved(t *testing.T) {
	text, err := policies.FS.ReadFile("network/data.json")
	if err != nil {
		t.Fatal(err)
	}
	var data struct {
		Reserved []string `json:"reserved"`
	}
	if err := json.Unmarshal(text, &data, json.RejectUnknownMembers(true)); err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, p := range sandbox.Reserved() {
		want = append(want, p.String())
	}
	slices.Sort(want)
	slices.Sort(data.Reserved)
	if !slices.Equal(want, data.Reserved) {
		t.Errorf("network/data.json has %v, package sandbox %v", data.Reserved, want)
	}
}
