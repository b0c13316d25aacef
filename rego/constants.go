package rego

import (
	"sync"
	"sync/atomic"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/util"
)

// constants keep, from one evaluation to the next, what those rules have for results that rest on data and on rules of their
// own kind, and on nothing that a question brings: lists of the policy in the form in which its rules want them. The data of
// an engine never change, so nothing can be stale. Rules that speak for a decision are evaluated each time, to be
// attributed.
//
// OPA empties the cache of results where "with" puts something else in the place of data or input; constants are not
// consulted there, and nothing is learned there.
type constants struct {
	rules *frame // the references of such rules; without values
	mu    sync.Mutex
	known atomic.Pointer[frame] // replaced, never written to
}

// constantsOf finds the constant rules of a compiled policy. It says nothing of their values.
func constantsOf(c *ast.Compiler) *constants {
	known := map[*ast.Rule]bool{}
	k := &constants{rules: newFrame()}
	k.known.Store(newFrame())
	for _, m := range c.Modules {
		speaking := entryPackage(m)
		for _, r := range m.Rules {
			if speaking && speaks(r) || len(r.Head.Args) > 0 || !r.Head.Ref().IsGround() {
				continue
			}
			ref := r.Ref()
			if hash := hashOf(ref); k.rules.find(ref, hash) == nil && allConstant(c, ref, known) {
				k.rules.add(ref, hash)
			}
		}
	}
	return k
}

// allConstant reports whether all rules of a document are constant, and no rule is of a part of it.
func allConstant(c *ast.Compiler, ref ast.Ref, known map[*ast.Rule]bool) bool {
	rules := c.GetRulesExact(ref)
	if len(rules) == 0 || len(c.GetRules(ref)) != len(rules) {
		return false
	}
	for _, r := range rules {
		if !constant(c, r, known) {
			return false
		}
	}
	return true
}

func constant(c *ast.Compiler, r *ast.Rule, known map[*ast.Rule]bool) bool {
	if is, ok := known[r]; ok {
		return is
	}
	is := !brought(r)
	if is {
		for next := range c.Graph.Dependencies(util.T(r)) {
			if !constant(c, next.(*ast.Rule), known) {
				is = false
				break
			}
		}
	}
	if is && r.Else != nil {
		is = constant(c, r.Else, known)
	}
	known[r] = is
	return is
}

// brought reports a rule that looks at what comes with the question, or puts something in the place of a document.
func brought(r *ast.Rule) bool {
	found := false
	nondeterministic := func(operator ast.Ref) bool {
		b := ast.BuiltinMap[operator.String()]
		return b != nil && b.Nondeterministic
	}
	ast.NewGenericVisitor(func(x any) bool {
		switch x := x.(type) {
		case *ast.With:
			found = true
		case *ast.Expr:
			found = found || x.IsCall() && nondeterministic(x.Operator())
		case *ast.Term:
			switch v := x.Value.(type) {
			case ast.Var:
				found = found || v.Equal(ast.InputRootDocument.Value)
			case ast.Call:
				operator, _ := v[0].Value.(ast.Ref)
				found = found || nondeterministic(operator)
			}
		}
		return found
	}).Walk(r)
	return found
}

// find is what is known of a reference; nil is nothing.
func (k *constants) find(ref ast.Ref, hash uint64) *entry {
	if k == nil {
		return nil
	}
	return k.known.Load().find(ref, hash)
}

// learn keeps what an evaluation, which has ended and of which no builtin failed, found out about constant rules.
func (k *constants) learn(r *results) {
	if k == nil || len(r.frames) != 1 {
		return
	}
	var more *frame
	f := r.frames[0]
	for i := range f.entries {
		e := &f.entries[i]
		ref := ast.Ref(f.terms[e.from:e.to])
		hash := hashOf(ref)
		if k.rules.find(ref, hash) == nil || k.find(ref, hash) != nil {
			continue
		}
		if more == nil {
			k.mu.Lock()
			defer k.mu.Unlock()
			more = k.known.Load().copy()
		}
		if more.find(ref, hash) == nil { // another evaluation may have been faster
			added := more.add(ref, hash)
			added.value, added.undefined = e.value, e.undefined
		}
	}
	if more != nil {
		k.known.Store(more)
	}
}

// base gives an evaluation the base documents of a policy where they stand. OPA's own cache would collect them again for each one.
type base struct{ data ast.Object }

// Get is what data have at a reference. The root is left to OPA, which takes data.system out of it.
func (b base) Get(ref ast.Ref) ast.Value {
	if len(ref) < 2 {
		return nil
	}
	v, err := b.data.Find(ref[1:])
	if err != nil {
		return nil
	}
	return v
}

// Put has nothing to keep.
func (b base) Put(ast.Ref, ast.Value) {}
