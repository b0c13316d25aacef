package rego

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/topdown"

	"github.com/stockade-dev/stockade/supervisor/api"
)

// AuditOptions tune an audit.
type AuditOptions struct {
	Thorough bool                // do the same to the same value again where the same was denied: most cases have most in common
	Progress func(done, all int) // nil: nobody wants to know
}

// Audited is the result of an audit.
type Audited struct {
	Cases     int    `json:"cases"`
	Questions int    `json:"questions"` // how often policy was asked
	Holes     []Hole `json:"holes,omitempty"`
}

// Audit takes cases apart: it deletes, retypes, negates, enlarges, empties and doubles every member of the
// request, of what the supervisor says about the session, the execution and the facts, and asks again. What was
// denied must stay denied, and what was granted must not grow, unless a caller gets as much by asking for it.
//
// What is judged is the policy's own answer. That the engine refuses the result of a failed builtin, or a
// grant beyond the ceiling, is a second wall: a hole is reported although it holds, and says so.
func (e *Engine) Audit(ctx context.Context, cases []Case, opts AuditOptions) (Audited, error) {
	a := &auditor{engine: e, quick: !opts.Thorough, tried: map[string]bool{}, known: map[string]verdict{}, holes: map[string]*Hole{}, labels: e.selfDeclared()}
	report := Audited{Cases: len(cases)}
	next := make(chan Case)
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for c := range next {
				a.take(ctx, c)
				a.mu.Lock()
				a.done++
				if opts.Progress != nil {
					opts.Progress(a.done, len(cases))
				}
				a.mu.Unlock()
			}
		})
	}
	for _, c := range cases {
		if ctx.Err() != nil {
			break
		}
		next <- c
	}
	close(next)
	wg.Wait()
	report.Questions = a.asked
	for _, h := range a.holes {
		slices.Sort(h.Change)
		report.Holes = append(report.Holes, *h)
	}
	slices.SortFunc(report.Holes, func(a, b Hole) int {
		return cmp.Or(strings.Compare(a.Rule, b.Rule), strings.Compare(a.Field, b.Field), strings.Compare(a.Effect, b.Effect))
	})
	return report, ctx.Err()
}

type auditor struct {
	engine *Engine
	quick  bool
	labels [][]string // places of the request that callers fill in about themselves, and the policy asks for

	mu    sync.Mutex
	asked int
	done  int
	tried map[string]bool    // what was done already, if it is to be quick
	known map[string]verdict // by question: cases have much in common
	holes map[string]*Hole
}

// verdict is what the policy itself says.
type verdict struct {
	allow  bool
	deny   []api.Deny
	grant  *api.Grant
	limits ExecLimits
	duties Obligations
	caught string // although it allows, the engine does not, and why
}

func (v verdict) decision() Decision {
	return Decision{Allow: v.allow, Deny: v.deny, Grant: v.grant, Limits: v.limits, Obligations: v.duties}
}

// auditTime bounds one question of an audit.
const auditTime = 10 * time.Second

// ask has the policy answer about a document, well formed or not.
func (a *auditor) ask(ctx context.Context, ref string, doc ast.Value, watch *exits) verdict {
	q, ok := a.engine.queries[ref]
	if !ok {
		return verdict{}
	}
	text, err := appendJSON([]byte(ref), doc)
	if err != nil {
		return verdict{}
	}
	key := digestOf(text)
	a.mu.Lock()
	v, known := a.known[key]
	a.mu.Unlock()
	if known && watch == nil {
		return v
	}
	v = a.evaluate(ctx, q, doc, watch)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asked++
	a.known[key] = v
	return v
}

// evaluate has the policy answer.
func (a *auditor) evaluate(ctx context.Context, q query, doc ast.Value, watch *exits) verdict {
	ctx, cancel := context.WithTimeout(ctx, auditTime)
	defer cancel()
	var now int64
	if t := at(doc, []string{"now_ns"}); t != nil {
		if n, ok := t.Value.(ast.Number); ok {
			now, _ = n.Int64()
		}
	}
	question := evaluation{txn: a.engine.txn, input: doc, nowNS: now, cancel: topdown.NewCancel(), base: a.engine.base}
	defer context.AfterFunc(ctx, question.cancel.Cancel)()
	if watch != nil {
		question.tracer = watch
	}
	value, failed, err := q.ask(question)
	if err != nil || value == nil {
		return verdict{}
	}
	v := verdict{allow: says(value)}
	text, err := appendJSON(nil, value)
	if err != nil {
		return verdict{}
	}
	r, err := decodeResult(text)
	if err != nil {
		v.caught = "the answer is malformed: " + err.Error()
		return v
	}
	v.deny, v.grant = r.Deny, r.Grant
	if r.Limits != nil {
		v.limits = *r.Limits
	}
	if r.Obligations != nil {
		v.duties = *r.Obligations
	}
	switch {
	case len(failed) > 0:
		v.caught = builtinFails + failed[0].Error()
	case v.allow && q.grants && r.Grant == nil:
		v.allow = false
	case v.allow && q.grants:
		if err := checkGrant(r.Grant); err != nil {
			v.caught = "the grant is malformed: " + err.Error()
		}
	}
	return v
}

// builtinFails begins to say what the engine denies although the policy allows.
const builtinFails = "a builtin fails: "

// says reports an answer that allows, and denies nothing, whatever else is in it.
func says(answer ast.Value) bool {
	o, ok := answer.(ast.Object)
	if !ok {
		return false
	}
	allow := o.Get(ast.InternedTerm("allow"))
	if allow == nil || !allow.Equal(ast.BooleanTerm(true)) {
		return false
	}
	if deny := o.Get(ast.InternedTerm("deny")); deny != nil {
		switch d := deny.Value.(type) {
		case ast.Set:
			return d.Len() == 0
		case *ast.Array:
			return d.Len() == 0
		}
		return false
	}
	return true
}

// specimen is a case under audit.
type specimen struct {
	Case
	doc     ast.Value
	base    verdict
	defects map[string]string
}

func (a *auditor) take(ctx context.Context, c Case) {
	doc, err := parseJSON(c.Input)
	if err != nil {
		return // a question that is no JSON is put to nobody
	}
	s := &specimen{Case: c, doc: doc, base: a.ask(ctx, c.Entrypoint, doc, nil)}
	if s.base.caught != "" {
		s.base.allow = false
	}
	places(doc, nil, func(path []string, v ast.Value) {
		if path[0] == "ceiling" || ctx.Err() != nil {
			return // the operator's own word
		}
		if a.quick && a.repeats(s, path, v) {
			return
		}
		for _, m := range mutations(v) {
			a.try(ctx, s, path, v, m)
		}
	})
	a.tryPaths(ctx, s)
	a.tryUndeclared(ctx, s)
}

// repeats reports a value that was spoiled already, at the same place and where the same was denied.
func (a *auditor) repeats(s *specimen, path []string, v ast.Value) bool {
	key := fmt.Sprint(s.Entrypoint, s.base.allow, pattern(s.doc, path), v)
	for _, deny := range s.base.deny {
		key += string(deny.Code)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	known := a.tried[key]
	a.tried[key] = true
	return known
}

// region is what a place of the input is: only of what is asked for can be said that a caller wants less.
type region int

const (
	asked    region = iota // parameters of the operation
	declared               // what a caller says of itself: labels, scope
	evidence               // what the supervisor says: who asks, the session, the execution, the facts, the time
	ofGrant                // the grant of a session, where absent members are no bound (C19)
)

func regionOf(path []string) region {
	switch {
	case path[0] == "session" && len(path) > 2 && path[1] == "grant":
		return ofGrant
	case path[0] == "file":
		return asked
	case path[0] != "request" || len(path) < 2:
		return evidence
	case path[1] == "principal" && len(path) > 2 && path[2] == "scope":
		return declared
	case path[1] == "principal" || path[1] == "op" || path[1] == "facade":
		return evidence
	case len(path) > 2 && (path[2] == "labels" || path[2] == "scope"):
		return declared
	}
	return asked
}

// try spoils one place and judges what comes of it.
func (a *auditor) try(ctx context.Context, s *specimen, path []string, was ast.Value, m mutation) {
	doc, ok := m.apply(s.doc, path)
	if !ok {
		return
	}
	v := a.ask(ctx, s.Entrypoint, doc, nil)
	if !v.allow {
		return
	}
	if !s.base.allow {
		if why := a.opened(ctx, s, path, was, m, doc, v); why != "" {
			a.report(ctx, s, spoiled{m.kind, path, doc, v, nil, why, nil})
		}
		return
	}
	if v.caught != "" {
		return // it is denied now
	}
	if more, why := a.widened(ctx, s, path, was, m, doc, v); why != "" {
		a.report(ctx, s, spoiled{m.kind, path, doc, v, more, why, nil})
	}
}

// fresh are the defects of a document that the specimen has not.
func (a *auditor) fresh(s *specimen, doc ast.Value) string {
	if s.defects == nil {
		s.defects = defects(s.doc)
	}
	for at, what := range defects(doc) {
		switch {
		case s.defects[at] == what:
		case at == "" && len(s.defects) > 0 && s.defects[""] == "": // it was no request before either, so nobody looked at its meaning
		default:
			return strings.TrimSpace(at + " " + what)
		}
	}
	return ""
}

// opened says why what is allowed now, and was denied, is a hole; "" when it is none.
func (a *auditor) opened(ctx context.Context, s *specimen, path []string, was ast.Value, m mutation, doc ast.Value, v verdict) string {
	if strings.HasPrefix(v.caught, builtinFails) {
		return "a builtin fails on it, and the denial with it"
	}
	region := regionOf(path)
	if region == ofGrant && m.kind == "oversize" {
		return "" // more of a bound
	}
	if defect := a.fresh(s, doc); defect != "" {
		if text, ok := was.(ast.String); ok && m.kind == "oversize" && a.ask(ctx, s.Entrypoint, put(s.doc, path, text+"x"), nil).allow {
			return "" // it need not be long: it is another value
		}
		return "malformed, it is allowed: " + defect
	}
	switch {
	case region == ofGrant:
		return ""
	case m.kind == "duplicate" || m.kind == "oversize" && region == asked && isNumber(was):
		return "asking for more of it is allowed where less is denied"
	case m.kind != "delete" && m.kind != "empty":
		return "" // another value is another question
	case region == asked:
		if given := gives(v.grant, path, was); given != "" {
			return "left out, it is granted all the same: " + given
		}
		return ""
	}
	if other := a.ask(ctx, s.Entrypoint, put(s.doc, path, otherThan(was)), nil); other.allow {
		return "" // it was denied for this one value
	}
	return "left out, it is allowed; with any other value it is denied"
}

// selfDeclared are the labels and the parts of a scope that the policy asks for by name.
func (e *Engine) selfDeclared() [][]string {
	var found [][]string
	for _, m := range e.compiler.Modules {
		ast.WalkRefs(m, func(ref ast.Ref) bool {
			if !ref.HasPrefix(ast.InputRootRef) {
				return false
			}
			var path []string
			for _, t := range ref[1:] {
				s, ok := t.Value.(ast.String)
				if !ok {
					return false
				}
				path = append(path, string(s))
			}
			if len(path) >= 4 && regionOf(path) == declared && !slices.ContainsFunc(found, func(p []string) bool { return slices.Equal(p, path) }) {
				found = append(found, path)
			}
			return false
		})
	}
	return found
}

// tryUndeclared adds what callers say of themselves, with a word that nobody knows. What is then denied, or gets
// less, is asked of those who speak, and not of those who are silent.
func (a *auditor) tryUndeclared(ctx context.Context, s *specimen) {
	if !s.base.allow {
		return
	}
	for _, path := range a.labels {
		if at(s.doc, path) != nil || at(s.doc, path[:2]) == nil {
			continue
		}
		doc := put(s.doc, path, ast.String(unknown))
		v := a.ask(ctx, s.Entrypoint, doc, nil)
		spoken := &specimen{Case: s.Case, doc: doc, base: v, defects: nil}
		if !v.allow {
			a.report(ctx, spoken, spoiled{"delete", path, s.doc, s.base, nil, "left out, it is allowed; with a value that nobody knows it is denied", nil})
		} else if more := gains(v, s.base); len(more) > 0 {
			a.report(ctx, spoken, spoiled{"delete", path, s.doc, s.base, more, "left out, it gets more than with a value that nobody knows", nil})
		}
	}
}
