package policies_test

import (
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/format"

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
	// A busy machine, and tests that look through all data again and again.
	results, report, err := b.Test(t.Context(), rego.TestOptions{Coverage: true, Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range results {
		if !r.Pass() {
			t.Errorf("%s: %s: %v %s", r.Location, r.Name, r.Error, r.Output)
		}
	}
	if len(results) < 200 {
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

// modules are those of the library, tests left out or only them.
func modules(t *testing.T, tests bool) map[string]*ast.Module {
	found := map[string]*ast.Module{}
	err := fs.WalkDir(policies.FS, ".", func(name string, _ fs.DirEntry, err error) error {
		if err != nil || path.Ext(name) != ".rego" || strings.HasSuffix(name, "_test.rego") != tests {
			return err
		}
		text, err := fs.ReadFile(policies.FS, name)
		if err != nil {
			return err
		}
		formatted, err := format.SourceWithOpts(name, text, format.Opts{})
		if err != nil {
			return err
		}
		if string(formatted) != string(text) {
			t.Errorf("%s is not as opa fmt has it", name)
		}
		found[name], err = ast.ParseModuleWithOpts(name, string(text), ast.ParserOptions{ProcessAnnotation: true})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// TestStrict is "opa check --strict --capabilities capabilities.json -s schemas/input.json", and "opa fmt": the library is for whoever has OPA's own tools.
func TestStrict(t *testing.T) {
	text, err := fs.ReadFile(rego.Schemas(), "input.json")
	if err != nil {
		t.Fatal(err)
	}
	var schema any
	if err := json.Unmarshal(text, &schema); err != nil {
		t.Fatal(err)
	}
	set := ast.NewSchemaSet()
	set.Put(ast.SchemaRootRef, schema)
	all := modules(t, false)
	for name, m := range modules(t, true) {
		all[name] = m
	}
	compile := func() error {
		c := ast.NewCompiler().WithStrict(true).WithCapabilities(rego.Capabilities()).WithSchemas(set).WithUseTypeCheckAnnotations(true)
		if c.Compile(all); c.Failed() {
			return c.Errors
		}
		return nil
	}
	if err := compile(); err != nil {
		t.Error(err)
	}
	all["odd.rego"] = ast.MustParseModule("package odd\n\nx if {\n\ty := input.request.opne\n\ttrue\n}")
	if err := compile(); err == nil || !strings.Contains(err.Error(), "opne") || !strings.Contains(err.Error(), "unused") {
		t.Errorf("the check does not see what it is for: %v", err)
	}
}

// TestMetadata: every file is small, every package says what it is about, and every rule that speaks in a decision has a
// title and a label of what it is about.
func TestMetadata(t *testing.T) {
	speaking := 0
	set, errs := ast.BuildAnnotationSet(slices.Collect(maps.Values(modules(t, false))))
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	for name, m := range modules(t, false) {
		titles := map[string]bool{}
		for _, r := range m.Rules {
			for _, a := range r.Annotations {
				titles[r.Head.Ref().String()] = titles[r.Head.Ref().String()] || a.Title != ""
			}
			if r.Head.Name != "decision" && r.Head.Name != "grant" && (r.Head.Key == nil || r.Head.Value != nil) {
				continue
			}
			speaking++
			labels, _ := set.MergedLabels(r)
			if len(r.Annotations) == 0 || r.Annotations[0].Title == "" || len(r.Annotations[0].Labels) == 0 || labels["concern"] == nil {
				t.Errorf("%s:%d: %s has no title, or no label", name, r.Location.Row, r.Head.Name)
			}
		}
		if lines := m.Rules[len(m.Rules)-1].Location.Row; lines > 300 {
			t.Errorf("%s has more than %d lines", name, lines)
		}
	}
	if speaking < 80 {
		t.Errorf("%d rules speak: the test does not see them", speaking)
	}
}

// TestProfiles holds each shipped profile to what it is for.
func TestProfiles(t *testing.T) {
	type profile struct {
		Networks   []string `json:"networks"`
		Seccomp    string   `json:"seccomp"`
		Degradable []string `json:"degradable"`
		Commit     *bool    `json:"commit"`
		Verify     string   `json:"verify"`
		OnRestart  string   `json:"on_restart"`
		Mounts     struct {
			Modes   []string          `json:"modes"`
			Protect map[string]string `json:"protect"`
		} `json:"mounts"`
		FS *struct {
			Ops []string `json:"ops"`
		} `json:"fs"`
	}
	profiles := map[string]profile{}
	for _, name := range []string{"workspace", "hermetic", "readonly-review", "interactive", "locked"} {
		text, err := policies.FS.ReadFile("profiles/" + name + "/data.json")
		if err != nil {
			t.Fatal(err)
		}
		var p profile
		if err := json.Unmarshal(text, &p); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		profiles[name] = p
		if slices.Contains(p.Networks, "full") {
			t.Errorf("%s grants the whole internet", name)
		}
		if slices.Contains(p.Mounts.Modes, "rw") && len(p.Mounts.Protect) < 10 {
			t.Errorf("%s writes in place and protects %d paths", name, len(p.Mounts.Protect))
		}
	}
	if entries, err := fs.ReadDir(policies.FS, "profiles"); err != nil || len(entries) != len(profiles) {
		t.Errorf("there are %d profiles: %v", len(entries), err)
	}
	if !maps.Equal(profiles["workspace"].Mounts.Protect, profiles["interactive"].Mounts.Protect) {
		t.Error("workspace and interactive protect different paths")
	}
	none := []string{"none"}
	for _, name := range []string{"hermetic", "readonly-review", "locked"} {
		p := profiles[name]
		if !slices.Equal(p.Networks, none) || slices.Contains(p.Mounts.Modes, "rw") {
			t.Errorf("%s reaches the network, or writes in place", name)
		}
	}
	if c := profiles["readonly-review"].Commit; c == nil || *c {
		t.Error("a review is committed")
	}
	if l := profiles["locked"]; l.Seccomp != "strict" || len(l.Degradable) > 0 || l.Verify != "canary" || l.OnRestart != "terminate" || !slices.Equal(l.Mounts.Modes, []string{"ro"}) {
		t.Errorf("locked is %+v", l)
	}
	for _, name := range []string{"readonly-review", "locked"} {
		if f := profiles[name].FS; f == nil || slices.Contains(f.Ops, "write") || slices.Contains(f.Ops, "patch") || slices.Contains(f.Ops, "edit") {
			t.Errorf("%s has tools that write", name)
		}
	}
}
