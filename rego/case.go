package rego

import (
	"context"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/topdown"

	"github.com/stockade-dev/stockade/supervisor/api"
)

// Case is a document that a policy is asked about: a fixture, or what was recorded. It need not be what
// the supervisor could say: the tests of a policy leave much out.
type Case struct {
	Name       string         `json:"name"`
	Entrypoint string         `json:"entrypoint"`
	Input      jsontext.Value `json:"input"`
}

// Typed is the question as the supervisor would put it; an error when it is none of the supervisor's.
func (c Case) Typed() (Input, error) {
	var in Input
	err := json.Unmarshal(c.Input, &in, json.RejectUnknownMembers(true))
	return in, err
}

// CaseOf is the question that an input puts.
func CaseOf(name string, in Input) (Case, error) {
	text, err := in.canonical()
	if err != nil {
		return Case{}, err
	}
	ref, _ := Entrypoint(in.Request.Op)
	return Case{Name: name, Entrypoint: ref, Input: text}, nil
}

// EntrypointFor finds the entry point that a document would be put to, by its request.op.
func EntrypointFor(input jsontext.Value) string {
	var in struct {
		Request struct {
			Op api.Op `json:"op"`
		} `json:"request"`
	}
	if err := json.Unmarshal(input, &in); err != nil {
		return ""
	}
	ref, _ := Entrypoint(in.Request.Op)
	return ref
}

// Cases are those that the bundle's own tests put to its entry points, each once. What a test puts in the
// place of data (with data.x as y) is not part of them.
func (b *Bundle) Cases(ctx context.Context) ([]Case, error) {
	h := &hearing{seen: map[string]bool{}}
	if _, err := b.runTests(ctx, TestOptions{}, h); err != nil {
		return nil, err
	}
	return h.heard, nil
}

// hearing listens to what tests ask.
type hearing struct {
	test  string
	seen  map[string]bool
	heard []Case
}

func (h *hearing) Enabled() bool { return true }

func (h *hearing) Config() topdown.TraceConfig { return topdown.TraceConfig{} }

func (h *hearing) TraceEvent(ev topdown.Event) {
	rule, ok := ev.Node.(*ast.Rule)
	if !ok || ev.Op != topdown.EnterOp {
		return
	}
	if strings.HasPrefix(string(rule.Head.Name), "test_") {
		h.test = string(rule.Head.Name)
		return
	}
	if rule.Head.Name != "decision" || rule.Module == nil || ev.Input() == nil {
		return
	}
	i := slices.IndexFunc(entrypoints, func(e entrypoint) bool { return rule.Module.Package.Path.Equal(e.pkg()) })
	if i < 0 {
		return
	}
	text, err := appendJSON(nil, ev.Input().Value)
	if key := entrypoints[i].ref + string(text); err == nil && !h.seen[key] {
		h.seen[key] = true
		h.heard = append(h.heard, Case{Name: h.test, Entrypoint: entrypoints[i].ref, Input: text})
	}
}
