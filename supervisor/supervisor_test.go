package supervisor

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
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
		if err := preflight(policy, Operations()); err == nil || !strings.Contains(err.Error(), "data.stockade."+name+".decision has no answer") {
			t.Errorf("%s: %v", name, err)
		}
		policy.Close()
	}
}

// The way through the package that doc.go shows leads past every file, and to none that is not there.
func TestReadingOrder(t *testing.T) {
	text, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	named := map[string]bool{"doc.go": true}
	for _, file := range regexp.MustCompile(`[a-z]+\.go\b`).FindAllString(string(text), -1) {
		named[file] = true
	}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if !strings.HasSuffix(file, "_test.go") && !named[file] {
			t.Errorf("%s is not in it", file)
		}
		delete(named, file)
	}
	for file := range named {
		t.Errorf("there is no %s", file)
	}
}
