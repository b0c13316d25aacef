package rego

import (
	"context"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/open-policy-agent/opa/v1/ast"
	opa "github.com/open-policy-agent/opa/v1/rego"
	"github.com/open-policy-agent/opa/v1/storage/inmem"
	"github.com/open-policy-agent/opa/v1/test/cases"
	"github.com/open-policy-agent/opa/v1/test/cases/testdata"
	"github.com/open-policy-agent/opa/v1/topdown"
	"github.com/open-policy-agent/opa/v1/util"
)

var updateConformance = flag.Bool("update-conformance", false, "write testdata/conformance.golden anew")

// TestConformance runs OPA's own case files under our list of builtins and with the options of our evaluations. Each case
// comes out as OPA says it must, or calls a builtin that the list leaves out; those are in the golden file, by builtin. A
// builtin that a new OPA brings, and its cases, are a difference of that file that somebody has to look at.
func TestConformance(t *testing.T) {
	missing := map[string][]string{} // notes of cases, by builtin
	passed, total := 0, 0
	for _, c := range opaCases(t) {
		total++
		builtins, err := conforms(t, c)
		switch {
		case err != nil:
			t.Errorf("%s (%s): %v", c.Note, c.Filename, err)
		case len(builtins) == 0:
			passed++
		}
		for _, name := range builtins {
			missing[name] = append(missing[name], c.Note)
		}
	}
	t.Logf("%d cases, %d as OPA says, the others call one of %d builtins that are not available", total, passed, len(missing))
	if passed < 1000 {
		t.Errorf("%d cases of %d prove little", passed, total)
	}
	var golden strings.Builder
	for _, name := range slices.Sorted(maps.Keys(missing)) {
		fmt.Fprintf(&golden, "%s\n", name)
		slices.Sort(missing[name])
		for _, note := range slices.Compact(missing[name]) {
			fmt.Fprintf(&golden, "\t%s\n", note)
		}
	}
	const file = "testdata/conformance.golden"
	if *updateConformance {
		if err := os.WriteFile(file, []byte(golden.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := gocmp.Diff(string(want), golden.String()); diff != "" {
		t.Errorf("other builtins are missing than before; look at them, then run with -update-conformance:\n%s", diff)
	}
}

// opaCases are the cases of the version of Rego that policies are written in.
func opaCases(t *testing.T) []cases.TestCase {
	t.Helper()
	var all []cases.TestCase
	err := fs.WalkDir(testdata.V1, "v1", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := testdata.V1.ReadFile(name)
		if err != nil {
			return err
		}
		var set cases.Set
		if err := util.Unmarshal(text, &set); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		for _, c := range set.Cases {
			c.Filename = name
			all = append(all, c)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// conforms runs one case. It returns the builtins that it lacks, or what is otherwise than it must be.
func conforms(t *testing.T, c cases.TestCase) (missing []string, err error) {
	for name, value := range c.Env {
		t.Setenv(name, value)
	}
	query, compiler, err := prepared(c, nil)
	if err != nil {
		return lacking(c, err)
	}
	var failed []topdown.Error
	var tracker topdown.EvaluatedRuleTracker
	data := base{ast.NewObject()}
	if c.Data != nil {
		data.data = ast.MustInterfaceToValue(*c.Data).(ast.Object)
	}
	options := []opa.EvalOption{opa.EvalExternalCancel(topdown.NewCancel()), opa.EvalBuiltinErrorList(&failed), opa.EvalEvaluatedRuleTracker(&tracker), opa.EvalBaseCache(data)}
	switch {
	case c.InputTerm != nil:
		term, err := ast.ParseTerm(*c.InputTerm)
		if err != nil {
			return nil, err
		}
		options = append(options, opa.EvalParsedInput(term.Value))
	case c.Input != nil:
		options = append(options, opa.EvalParsedInput(ast.MustInterfaceToValue(*c.Input)))
	}
	fixed := constantsOf(compiler)
	for range 2 { // the second time with what the first one learned
		failed = nil
		results := takeResults(fixed)
		rs, err := query.Eval(context.Background(), append(options, opa.EvalVirtualCache(results))...)
		if err == nil && len(failed) == 0 {
			fixed.learn(results)
		}
		results.rest()
		if err == nil && c.StrictError && len(failed) > 0 {
			err = &failed[0] // as we do
		}
		if err := verify(c, rs, err); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// prepared is the query of a case under our capabilities, and more builtins.
func prepared(c cases.TestCase, more []*ast.Builtin) (query opa.PreparedEvalQuery, compiler *ast.Compiler, err error) {
	capabilities := Capabilities()
	if c.ExperimentalKeywords {
		with := ast.CapabilitiesForThisVersion(ast.CapabilitiesExperimentalKeywords(true))
		with.Builtins, with.AllowNet = capabilities.Builtins, capabilities.AllowNet
		capabilities = with
	}
	capabilities.Builtins = append(slices.Clone(capabilities.Builtins), more...)
	modules := map[string]*ast.Module{}
	for i, text := range c.Modules {
		name := fmt.Sprintf("test-%d.rego", i)
		if modules[name], err = ast.ParseModuleWithOpts(name, text, ast.ParserOptions{RegoVersion: ast.RegoV1, Capabilities: capabilities, ProcessAnnotation: true}); err != nil {
			return query, nil, err
		}
	}
	// Not strict, and without the schema of our input: both refuse what a policy may not say, and change no result.
	compiler = ast.NewCompiler().WithCapabilities(capabilities).WithDefaultRegoVersion(ast.RegoV1)
	if compiler.Compile(modules); compiler.Failed() {
		return query, nil, compiler.Errors
	}
	store := inmem.New()
	if c.Data != nil {
		store = inmem.NewFromObject(*c.Data)
	}
	query, err = opa.New(opa.Query(c.Query), opa.Compiler(compiler), opa.Store(store), opa.Capabilities(capabilities),
		opa.GenerateJSON(func(t *ast.Term, _ *opa.EvalContext) (any, error) { return t.Value, nil })).PrepareForEval(context.Background())
	return query, compiler, err
}

// lacking are the builtins that stand in a case and that our list leaves out, if with them it is accepted. Otherwise what
// was not accepted stays an error.
func lacking(c cases.TestCase, why error) (missing []string, err error) {
	const theirs = "test.sleep" // of OPA's test program
	if strings.Contains(why.Error(), "undefined function "+theirs) {
		return []string{theirs}, nil
	}
	text := strings.Join(append(slices.Clone(c.Modules), c.Query), "\n")
	var more []*ast.Builtin
	for _, b := range ast.CapabilitiesForThisVersion().Builtins {
		if !slices.Contains(allowed, b.Name) && regexp.MustCompile(`\b`+regexp.QuoteMeta(b.Name)+`\b`).MatchString(text) {
			more = append(more, b)
		}
	}
	if _, _, err := prepared(c, more); err != nil {
		return nil, fmt.Errorf("%w; with every builtin that it names: %w", why, err)
	}
	for _, b := range slices.Clone(more) {
		without := slices.DeleteFunc(slices.Clone(more), func(other *ast.Builtin) bool { return other == b })
		if _, _, err := prepared(c, without); err == nil { // a word that is no call
			more = without
			continue
		}
		missing = append(missing, b.Name)
	}
	return missing, nil
}

// verify compares what came out with what the case wants.
func verify(c cases.TestCase, rs opa.ResultSet, err error) error {
	switch {
	case c.WantError != nil:
		if err == nil || !strings.Contains(err.Error(), *c.WantError) {
			return fmt.Errorf("%v, not %q", err, *c.WantError)
		}
		return nil
	case c.WantErrorCode != nil:
		e, ok := err.(*topdown.Error)
		if !ok || e.Code != *c.WantErrorCode {
			return fmt.Errorf("%v, not %s", err, *c.WantErrorCode)
		}
		return nil
	case err != nil:
		return err
	case c.WantResult == nil:
		return fmt.Errorf("it wants nothing")
	}
	want, got := ast.NewSet(), ast.NewSet()
	for _, bindings := range *c.WantResult {
		o := ast.NewObject()
		for name, v := range bindings {
			o.Insert(ast.StringTerm(name), ast.NewTerm(ast.MustInterfaceToValue(v)))
		}
		want.Add(ast.NewTerm(o))
	}
	for _, r := range rs {
		o := ast.NewObject()
		for name, value := range r.Bindings {
			v, err := ast.JSON(value.(ast.Value))
			if err != nil {
				return err
			}
			if list, ok := v.([]any); ok && c.SortBindings {
				slices.SortFunc(list, util.Compare)
			}
			o.Insert(ast.StringTerm(name), ast.NewTerm(ast.MustInterfaceToValue(v)))
		}
		got.Add(ast.NewTerm(o))
	}
	if want.Compare(got) != 0 {
		return fmt.Errorf("%v, not %v", got, want)
	}
	return nil
}
