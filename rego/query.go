package rego

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/metrics"
	"github.com/open-policy-agent/opa/v1/storage"
	"github.com/open-policy-agent/opa/v1/topdown"
)

// query is an entry point of a compiled policy, ready to be asked. It asks OPA's evaluator itself: what its package rego has
// around it (a context of options, results as Go values) took a fifth of the time of a small decision.
type query struct {
	entrypoint
	body     ast.Body // answer = data.stockade.….decision
	compiled ast.QueryCompiler
	compiler *ast.Compiler
	store    storage.Store
	labels   map[string][]string // of METADATA, by name of the rule
}

// answerVar is what the body of a query gives the answer to.
const answerVar = ast.Var("answer")

func prepare(e entrypoint, c *ast.Compiler, store storage.Store, labels map[string][]string) (query, error) {
	q := query{entrypoint: e, compiler: c, store: store, labels: labels, compiled: c.QueryCompiler()}
	var err error
	q.body, err = q.compiled.Compile(ast.NewBody(ast.Equality.Expr(ast.NewTerm(answerVar), ast.NewTerm(dotted(e.ref)))))
	if err != nil {
		return q, fmt.Errorf("entry point %s: %w", e.ref, err)
	}
	return q, nil
}

// evaluation is what a query is asked about, and under what.
type evaluation struct {
	txn    storage.Transaction
	input  ast.Value
	nowNS  int64
	cancel topdown.Cancel
	tracer topdown.QueryTracer // nil without one

	// What follows may be nil.
	results topdown.VirtualCache
	base    topdown.BaseCache
	rules   *topdown.EvaluatedRuleTracker
}

// ask has the policy answer: nil when it is undefined. failed are the builtins that failed on the way.
func (q query) ask(a evaluation) (answer ast.Value, failed []topdown.Error, err error) {
	t := topdown.NewQuery(q.body).
		WithQueryCompiler(q.compiled).
		WithCompiler(q.compiler).
		WithStore(q.store).
		WithTransaction(a.txn).
		WithInput(ast.NewTerm(a.input)).
		WithTime(time.Unix(0, a.nowNS).UTC()).
		WithCancel(a.cancel).
		WithMetrics(metrics.NoOp()).
		WithBuiltinErrorList(&failed).
		WithEvaluatedRuleTracker(a.rules)
	if a.tracer != nil {
		t.WithQueryTracer(a.tracer)
	}
	if a.results != nil {
		t.WithVirtualCache(a.results)
	}
	if a.base != nil {
		t.WithBaseCache(a.base)
	}
	n := 0
	err = t.Iter(context.Background(), func(r topdown.QueryResult) error {
		n++
		answer = r[answerVar].Value
		return nil
	})
	if err == nil && n > 1 {
		err = fmt.Errorf("%s has %d results: %w", q.ref, n, errNotOne)
	}
	return answer, failed, err
}

// errNotOne is more than one answer.
var errNotOne = errors.New("not one answer")
