package rego

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	opa "github.com/open-policy-agent/opa/v1/rego"
	"github.com/open-policy-agent/opa/v1/storage/inmem"
	"github.com/open-policy-agent/opa/v1/topdown"
)

// maskRule is the rule that says what of a decision is not for its log, in the form that OPA gave it: a set of paths such as
// "/input/request/exec/argv", or of objects {"op": "remove" or "upsert", "path": …, "value": …}. Its input is the event.
const maskRule = "data.system.log.mask"

// masks reports a module that is about the log, and not about decisions: input is another document there.
func masks(m *ast.Module) bool {
	return m.Package.Path.HasPrefix(dotted("data.system.log"))
}

// Masker takes out of the log of decisions what a policy says is not for it. The nil Masker takes out nothing.
type Masker struct{ query opa.PreparedEvalQuery }

// maskDeadline is how long the rule may take about one event.
const maskDeadline = time.Second

// Masker returns what masks the log of decisions: nil when the policy has no rule for that.
func (b *Bundle) Masker() (*Masker, error) {
	if !slices.ContainsFunc(slices.Collect(maps.Values(b.Modules)), masks) {
		return nil, nil
	}
	store := inmem.NewFromASTObject(b.Data)
	c := ast.NewCompiler().WithCapabilities(capabilities()).WithDefaultRegoVersion(ast.RegoV1).WithStrict(true)
	modules := map[string]*ast.Module{}
	for name, m := range b.Modules {
		modules[name] = m.Copy()
	}
	if c.Compile(modules); c.Failed() {
		return nil, sourceError(c.Errors)
	}
	if len(c.GetRulesExact(dotted(maskRule))) == 0 {
		return nil, fmt.Errorf("package system.log has no rule mask")
	}
	query, err := opa.New(opa.Query(maskRule), opa.Compiler(c), opa.Store(store), opa.Capabilities(capabilities())).PrepareForEval(context.Background())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", maskRule, err)
	}
	return &Masker{query}, nil
}

// Masked is an event from which something was taken.
type Masked struct {
	Event   map[string]any
	Removed []string                   // paths
	Changed []string                   // paths
	Values  map[string]json.RawMessage // what was there, by path
}

// Mask takes out of an event what is not for the log. An error is about the rule; then nobody knows what is.
func (m *Masker) Mask(ctx context.Context, event []byte) (Masked, error) {
	out := Masked{Values: map[string]json.RawMessage{}}
	document, err := decodeNumbers(event)
	if err != nil {
		return out, err
	}
	var ok bool
	if out.Event, ok = document.(map[string]any); !ok {
		return out, errors.New("an event is an object")
	}
	if m == nil {
		return out, nil
	}
	ctx, cancel := context.WithTimeout(ctx, maskDeadline)
	defer cancel()
	var failed []topdown.Error
	rs, err := m.query.Eval(ctx, opa.EvalInput(document), opa.EvalBuiltinErrorList(&failed))
	switch {
	case err != nil:
		return out, err
	case len(failed) > 0:
		return out, &failed[0]
	case len(rs) == 0:
		return out, nil // undefined: nothing is to be taken out
	}
	rules, ok := rs[0].Expressions[0].Value.([]any)
	if !ok {
		return out, fmt.Errorf("%s is no set", maskRule)
	}
	for _, rule := range rules {
		if err := out.apply(rule); err != nil {
			return out, err
		}
	}
	slices.Sort(out.Removed)
	slices.Sort(out.Changed)
	return out, nil
}

func decodeNumbers(text []byte) (v any, err error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err = d.Decode(&v); err == nil {
		if _, more := d.Token(); more != io.EOF {
			err = errors.New("more than one JSON document")
		}
	}
	return v, err
}

// apply carries out one element of the set.
func (m *Masked) apply(rule any) error {
	op, path, value := "remove", "", any(nil)
	switch r := rule.(type) {
	case string:
		path = r
	case map[string]any:
		var named bool
		if path, named = r["path"].(string); !named {
			return fmt.Errorf("%s: an object without a path", maskRule)
		}
		if said, ok := r["op"].(string); ok {
			op = said
		}
		value = r["value"]
	default:
		return fmt.Errorf("%s: %v is neither a path nor an object", maskRule, rule)
	}
	parts := strings.Split(strings.TrimPrefix(path, "/"), "/")
	if !strings.HasPrefix(path, "/") || parts[0] != "input" && parts[0] != "result" {
		return fmt.Errorf("%s: %q begins neither with /input nor with /result", maskRule, path)
	}
	before, there := found(m.Event, parts)
	switch op {
	case "remove":
		if !there {
			return nil
		}
		remove(m.Event, parts)
		m.Removed = append(m.Removed, path)
	case "upsert":
		if !upsert(m.Event, parts, value) {
			return nil
		}
		m.Changed = append(m.Changed, path)
	default:
		return fmt.Errorf("%s: %q is neither remove nor upsert", maskRule, op)
	}
	if there {
		text, err := json.Marshal(before) // members in order: the same value is the same text
		if err != nil {
			return err
		}
		m.Values[path] = text
	}
	return nil
}

// found is what stands at a path.
func found(v any, path []string) (any, bool) {
	for _, name := range path {
		switch node := v.(type) {
		case map[string]any:
			next, ok := node[name]
			if !ok {
				return nil, false
			}
			v = next
		case []any:
			i, err := strconv.Atoi(name)
			if err != nil || i < 0 || i >= len(node) {
				return nil, false
			}
			v = node[i]
		default:
			return nil, false
		}
	}
	return v, true
}

// remove takes out what is at a path. Of a list the place stays, as null: other rules of the set name places of the list as it was.
func remove(v any, path []string) {
	last := len(path) - 1
	parent, ok := found(v, path[:last])
	if !ok {
		return
	}
	switch node := parent.(type) {
	case map[string]any:
		delete(node, path[last])
	case []any:
		if i, err := strconv.Atoi(path[last]); err == nil && i >= 0 && i < len(node) {
			node[i] = nil
		}
	}
}

// upsert puts a value at a path, with the objects that lead there; it reports whether there is such a place.
func upsert(v map[string]any, path []string, value any) bool {
	last := len(path) - 1
	var node any = v
	for _, name := range path[:last] {
		next, ok := found(node, []string{name})
		if !ok {
			object, can := node.(map[string]any)
			if !can {
				return false
			}
			next = map[string]any{}
			object[name] = next
		}
		node = next
	}
	switch node := node.(type) {
	case map[string]any:
		node[path[last]] = value
		return true
	case []any:
		i, err := strconv.Atoi(path[last])
		if err != nil || i < 0 || i >= len(node) {
			return false
		}
		node[i] = value
		return true
	}
	return false
}
