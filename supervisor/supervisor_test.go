package supervisor

import (
	"maps"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stockade-dev/stockade/rego"
)

// A policy that has a rule for everything that is served, and no answer, is found at the
// start, not by the first caller.
func TestPreflight(t *testing.T) {
	for file := range testPolicy {
		name := strings.TrimSuffix(file, ".rego")
		silent := maps.Clone(testPolicy)
		silent[file] = &fstest.MapFile{Data: []byte("package stockade." + name + "\n\ndecision := {\"allow\": true} if input.now_ns < 0")}
		policy, err := rego.Load(silent, rego.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if err := preflight(policy); err == nil || !strings.Contains(err.Error(), "data.stockade."+name+".decision has no answer") {
			t.Errorf("%s: %v", name, err)
		}
		policy.Close()
	}
}
