package rego

import (
	"fmt"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
)

// Finding is something in a policy that an author should look at.
type Finding struct {
	File    string `json:"file,omitempty"`
	Line    int    `json:"line,omitzero"`
	Level   string `json:"level"` // "error" or "warning"
	Message string `json:"message"`
}

func (f Finding) String() string {
	if f.File == "" {
		return f.Level + ": " + f.Message
	}
	return fmt.Sprintf("%s:%d: %s: %s", f.File, f.Line, f.Level, f.Message)
}

// Lint names what loads but goes wrong in practice, in the order of the files.
func (b *Bundle) Lint() []Finding {
	var found []Finding
	warn := func(at *ast.Location, format string, args ...any) {
		found = append(found, Finding{at.File, at.Row, "warning", fmt.Sprintf(format, args...)})
	}
	defaults := map[string]bool{}
	for _, m := range b.Modules {
		for _, r := range m.Rules {
			at := m.Package.Path.Extend(r.Head.Ref()).String()
			defaults[at] = defaults[at] || r.Default
			lintRule(r, warn)
		}
	}
	slices.SortFunc(found, func(a, b Finding) int { return strings.Compare(a.String(), b.String()) })
	slices.SortStableFunc(found, func(a, b Finding) int {
		if a.File != b.File {
			return strings.Compare(a.File, b.File)
		}
		return a.Line - b.Line
	})
	for _, e := range entrypoints {
		switch _, defined := defaults[e.ref]; {
		case defined && !defaults[e.ref]:
			found = append(found, Finding{Level: "warning", Message: e.ref + " has no default: a request that no rule fits gets no reason"})
		case !defined && e.since > 1 && e.since <= Contract:
			found = append(found, Finding{Level: "warning", Message: e.ref + " is not defined: what it would be asked is denied"})
		}
	}
	return found
}

func lintRule(r *ast.Rule, warn func(*ast.Location, string, ...any)) {
	if len(r.Annotations) == 0 && (r.Head.Key != nil || r.Head.Name == "decision" || r.Head.Name == "grant") && !passesOn(r) {
		warn(r.Location, "%s has no METADATA: records and explanations show its title", r.Head.Name)
	}
	if r.Head.Name == "deny" && r.Head.Key != nil {
		if obj, ok := r.Head.Key.Value.(ast.Object); ok {
			for _, member := range []string{"code", "subject", "message"} {
				if obj.Get(ast.InternedTerm(member)) == nil {
					warn(r.Location, "a denial without %s", member)
				}
			}
		}
	}
	ast.WalkBodies(r, func(body ast.Body) bool {
		for i, expr := range body {
			if !expr.Negated {
				continue
			}
			for _, ref := range hoisted(expr) {
				if !established(body[:i], ref) {
					warn(expr.Location, "%s is evaluated before the negation around it: when it is undefined, so is the whole body; ask by a rule or function instead", ref)
				}
			}
		}
		return false
	})
}

// passesOn reports a rule that only hands elements from one set to another.
func passesOn(r *ast.Rule) bool {
	if r.Head.Key == nil {
		return false
	}
	_, ok := r.Head.Key.Value.(ast.Var)
	return ok
}

// hoisted are the references to the input inside a negated expression that the
// compiler moves in front of the negation: operands of calls and indexes, but neither the
// outermost reference itself nor the two sides of ==, which stay where they are.
func hoisted(expr *ast.Expr) []ast.Ref {
	var refs []ast.Ref
	visit := func(t *ast.Term) {
		ast.WalkRefs(t, func(ref ast.Ref) bool {
			if ref.HasPrefix(ast.InputRootRef) && len(ref) > 1 {
				refs = append(refs, ref)
			}
			return false
		})
	}
	outermost := func(t *ast.Term) {
		ref, ok := t.Value.(ast.Ref)
		if !ok {
			visit(t)
			return
		}
		for _, t := range ref[1:] {
			visit(t)
		}
	}
	switch terms := expr.Terms.(type) {
	case []*ast.Term: // a call: the first is the operator
		each := visit
		if operator := expr.Operator(); operator.Equal(ast.Equal.Ref()) || operator.Equal(ast.Equality.Ref()) {
			each = outermost
		}
		for _, t := range terms[1:] {
			each(t)
		}
	case *ast.Term:
		outermost(terms)
	}
	return refs
}

// established reports that an earlier expression of the body is undefined when ref is.
func established(before ast.Body, ref ast.Ref) bool {
	return slices.ContainsFunc(before, func(e *ast.Expr) bool {
		if e.Negated {
			return false
		}
		found := false
		ast.WalkRefs(e, func(r ast.Ref) bool {
			found = found || r.HasPrefix(ref)
			return found
		})
		return found
	})
}
