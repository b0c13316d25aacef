package rego

import (
	"context"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/topdown"
)

// Hole is a change to a question that takes something away, or makes it malformed, and gets more for it.
type Hole struct {
	Rule    string       `json:"rule,omitempty"` // "file:line package.rule": what fell silent, or what gave more
	Title   string       `json:"title,omitempty"`
	Field   string       `json:"field"`              // JSON pointer into the input; * is any element
	Change  []string     `json:"changes"`            // what was done to it: delete, null, retype, negate, oversize, empty, duplicate, unknown, sibling, parent, climb
	Effect  string       `json:"effect"`             // "deny→allow" or "wider"
	Level   string       `json:"level"`              // "error", "warning" where the engine refuses it all the same, or "accepted"
	Reason  string       `json:"accepted,omitempty"` // why, as the rule's METADATA says: custom: {audit: {FIELD: REASON}}
	Message string       `json:"message"`
	Wider   []Difference `json:"wider,omitempty"`
	Caught  string       `json:"caught,omitempty"` // what of the engine refuses this one all the same
	Case    string       `json:"case"`             // one that shows it
	Count   int          `json:"count"`            // how many do
	Before  Case         `json:"before"`
	After   Case         `json:"after"`
}

// spoiled is a specimen after it was spoiled, and why that is a hole.
type spoiled struct {
	kind    string
	path    []string
	doc     ast.Value
	verdict verdict
	more    []Difference
	why     string
	against ast.Value // a document like it that is denied; nil is the specimen itself
}

// report keeps a hole, once for each rule and field.
func (a *auditor) report(ctx context.Context, s *specimen, x spoiled) {
	h := Hole{
		Field: pattern(s.doc, x.path), Change: []string{x.kind}, Effect: "deny→allow", Message: x.why,
		Wider: x.more, Caught: x.verdict.caught, Case: s.Name, Count: 1,
	}
	if s.base.allow {
		h.Effect = "wider"
	}
	if h.Level = "error"; h.Caught != "" {
		h.Level = "warning"
	}
	h.Rule = a.blame(ctx, s, x)
	if h.Reason = a.engine.accepted[h.Rule][h.Field]; h.Reason != "" {
		h.Level = "accepted"
	}
	h.Title = a.engine.titles[h.Rule]
	key := h.Rule + "\x00" + h.Field + "\x00" + h.Effect
	a.mu.Lock()
	defer a.mu.Unlock()
	if known, ok := a.holes[key]; ok {
		known.Count++
		if !slices.Contains(known.Change, x.kind) {
			known.Change = append(known.Change, x.kind)
		}
		if known.Caught == "" || h.Caught != "" {
			return
		}
		h.Change, h.Count = known.Change, known.Count // the worse example
	}
	h.Before, h.After = s.Case, Case{Name: s.Name, Entrypoint: s.Entrypoint}
	if text, err := appendJSON(nil, s.doc); err == nil {
		h.Before.Input = text
	}
	if text, err := appendJSON(nil, x.doc); err == nil {
		h.After.Input = text
	}
	a.holes[key] = &h
}

// pattern is a pointer with * for what is a matter of the case: indexes, and names of maps.
func pattern(doc ast.Value, path []string) string {
	shown := slices.Clone(path)
	for i := range path {
		if parent := at(doc, path[:i]); parent != nil {
			if _, ok := parent.Value.(*ast.Array); ok {
				shown[i] = "*"
			}
		}
		if i == 2 && path[0] == "facts" {
			shown[i] = "*"
		}
	}
	return pointer(shown)
}

// exits listens to which rules came to a result, and to which.
type exits struct {
	rules []made
	at    map[string]int // by name: where it stands
}

func (x *exits) Enabled() bool { return true }

func (x *exits) Config() topdown.TraceConfig { return topdown.TraceConfig{} }

func (x *exits) TraceEvent(ev topdown.Event) {
	rule, ok := ev.Node.(*ast.Rule)
	if !ok || ev.Op != topdown.ExitOp {
		return
	}
	value := rule.Head.Value
	if rule.Head.Key != nil && value == nil {
		value = rule.Head.Key
	}
	m := made{rule: rule}
	if value != nil {
		m.value = ev.Plug(value).Value
	}
	if _, known := x.at[ruleName(rule)]; !known {
		x.at[ruleName(rule)] = len(x.rules)
	}
	x.rules = append(x.rules, m)
}

func (a *auditor) watch(ctx context.Context, ref string, doc ast.Value) *exits {
	x := &exits{at: map[string]int{}}
	a.ask(ctx, ref, doc, x)
	return x
}

// blame finds the rule that a hole is in: the rule that gave more, the denial that fell silent, or what else has
// changed its mind.
func (a *auditor) blame(ctx context.Context, s *specimen, x spoiled) string {
	after := a.watch(ctx, s.Entrypoint, x.doc)
	for _, d := range x.more {
		if rule := after.gave(d); rule != "" {
			return rule
		}
	}
	if x.against == nil {
		x.against = s.doc
	}
	before := a.watch(ctx, s.Entrypoint, x.against)
	var changed string
	for _, m := range after.rules { // inner ones first
		if _, known := before.at[ruleName(m.rule)]; !known && m.rule.Head.Name != "decision" && m.rule.Head.Name != "grant" {
			changed = ruleName(m.rule)
			break
		}
	}
	if changed != "" && x.kind == "sibling" {
		return changed
	}
	for _, deny := range a.ask(ctx, s.Entrypoint, x.against, nil).deny {
		for _, m := range before.rules {
			if obj, ok := m.value.(ast.Object); ok && m.rule.Head.Key != nil && text(obj, "code") == string(deny.Code) && text(obj, "subject") == deny.Subject {
				return ruleName(m.rule)
			}
		}
	}
	if changed != "" {
		return changed
	}
	for _, m := range slices.Backward(after.rules) {
		if m.rule.Head.Name == "grant" || m.rule.Head.Name == "decision" {
			return ruleName(m.rule)
		}
	}
	return ""
}

// gave returns the innermost rule whose result holds the value of a difference under its name.
func (x *exits) gave(d Difference) string {
	name := d.Field[strings.LastIndexByte(d.Field, '.')+1:]
	wanted, err := parseJSON(d.After)
	for _, m := range x.rules {
		obj, ok := m.value.(ast.Object)
		if !ok {
			if err == nil && m.value != nil && string(m.rule.Head.Name) == name && m.value.Compare(wanted) == 0 {
				return ruleName(m.rule)
			}
			continue
		}
		switch value := obj.Get(ast.StringTerm(name)); {
		case err == nil && value != nil && value.Value.Compare(wanted) == 0:
			return ruleName(m.rule)
		case d.After.Kind() == 'n' && value == nil && m.rule.Head.Name == "grant":
			return ruleName(m.rule)
		}
	}
	return ""
}
