package rego

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/cover"
	"github.com/open-policy-agent/opa/v1/storage"
	"github.com/open-policy-agent/opa/v1/storage/inmem"
	"github.com/open-policy-agent/opa/v1/tester"
	"github.com/open-policy-agent/opa/v1/topdown"
)

// TestOptions choose what Test runs.
type TestOptions struct {
	Run      string // regular expression on the full names of tests; "" means all
	Coverage bool
	Timeout  time.Duration // of one test; 0 means 30 s: a machine that is busy must not refuse a good revision
}

// Test runs the tests of a bundle under the rules by which it decides: the same
// language, the same builtins, and a builtin that fails is a failure. The results are
// sorted by place; the report is nil without Coverage.
func (b *Bundle) Test(ctx context.Context, opts TestOptions) ([]*tester.Result, *cover.Report, error) {
	if !opts.Coverage {
		results, err := b.runTests(ctx, opts, nil)
		return results, nil, err
	}
	coverage := cover.New()
	results, err := b.runTests(ctx, opts, coverage)
	if err != nil {
		return nil, nil, err
	}
	report := coverage.Report(b.Modules)
	return results, &report, nil
}

// runTests runs tests, one after the other if somebody watches.
func (b *Bundle) runTests(ctx context.Context, opts TestOptions, watch topdown.QueryTracer) ([]*tester.Result, error) {
	store := inmem.NewFromASTObject(b.Data)
	modules := map[string]*ast.Module{}
	for _, set := range []map[string]*ast.Module{b.Modules, b.Tests} {
		for name, m := range set {
			modules[name] = m.Copy()
		}
	}
	if opts.Timeout == 0 {
		opts.Timeout = 30 * time.Second
	}
	runner := tester.NewRunner().
		SetCompiler(newCompiler(store).WithEnablePrintStatements(true)).
		SetStore(store).
		SetModules(modules).
		SetTimeout(opts.Timeout).
		RaiseBuiltinErrors(true).
		CapturePrintOutput(true).
		Filter(opts.Run)
	if watch != nil {
		runner.SetCoverageQueryTracer(watch).SetParallel(1)
	}
	var results []*tester.Result
	err := storage.Txn(ctx, store, storage.TransactionParams{}, func(txn storage.Transaction) error {
		ch, err := runner.RunTests(ctx, txn)
		if err != nil {
			return sourceError(err)
		}
		for r := range ch {
			results = append(results, r)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("test policy: %w", err)
	}
	slices.SortFunc(results, func(a, b *tester.Result) int { return a.Location.Compare(b.Location) })
	return results, nil
}
