package rego

import (
	"cmp"
	"context"
	"fmt"
	"path"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/topdown"

	"github.com/stockade-dev/stockade/supervisor/api"
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

// mutation is one way to spoil a value.
type mutation struct {
	kind  string
	value *ast.Term // nil deletes
	twice bool      // of an element: there is one more of it
}

// enormous is a number that fits 64 bits and bounds nothing; overlong does not fit.
const (
	enormous = "4611686018427387904"
	overlong = "1000000000000000000000000000000"
)

func mutations(v ast.Value) []mutation {
	t := ast.NewTerm(v)
	one := func(kind string, value ast.Value) mutation { return mutation{kind: kind, value: ast.NewTerm(value)} }
	list := []mutation{
		{kind: "delete"},
		one("null", ast.NullValue),
		{kind: "duplicate", twice: true},
		one("duplicate", ast.NewArray(t, t)),
	}
	object := ast.NewObject()
	switch v := v.(type) {
	case ast.String:
		list = append(list,
			one("retype", ast.Number("1")), one("retype", ast.Boolean(true)), one("retype", ast.NewArray(t)), one("retype", object),
			one("empty", ast.String("")), one("oversize", ast.String(string(v)+strings.Repeat("x", 8192))), one("unknown", ast.String(unknown)))
	case ast.Number:
		negative := ast.Number("-1")
		if !strings.HasPrefix(string(v), "-") && v != "0" {
			negative = "-" + v
		}
		list = append(list,
			one("retype", ast.String(v)), one("retype", ast.Boolean(true)), one("retype", ast.NewArray(t)), one("retype", object),
			one("negate", negative), one("negate", ast.Number("-1")), one("oversize", ast.Number(enormous)), one("oversize", ast.Number(overlong)))
	case ast.Boolean:
		list = append(list,
			one("retype", ast.String(v.String())), one("retype", ast.Number("1")), one("retype", ast.NewArray(t)), one("negate", !v))
	case *ast.Array:
		list = append(list, one("retype", object), one("retype", ast.Number("1")), one("retype", ast.String("x")))
		if v.Len() > 0 {
			list = append(list, one("empty", ast.NewArray()), one("retype", v.Elem(0).Value))
		}
	case ast.Object:
		list = append(list, one("retype", ast.NewArray()), one("retype", ast.Number("1")), one("retype", ast.String("x")))
		if v.Len() > 0 {
			list = append(list, one("empty", object))
		}
	}
	return list
}

// unknown is a word that no list has.
const unknown = "zzz9"

// apply spoils one place of a document; false when that is not possible.
func (m mutation) apply(doc ast.Value, path []string) (ast.Value, bool) {
	if !m.twice {
		return edit(doc, path, func(*ast.Term) *ast.Term { return m.value }), true
	}
	parent := at(doc, path[:len(path)-1])
	list, ok := parent.Value.(*ast.Array)
	if !ok {
		return nil, false
	}
	return put(doc, path[:len(path)-1], list.Append(at(doc, path))), true
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

// widened says what is granted more than before, and why that is a hole; "" when it is none.
func (a *auditor) widened(ctx context.Context, s *specimen, path []string, was ast.Value, m mutation, doc ast.Value, v verdict) ([]Difference, string) {
	more := gains(s.base, v)
	if len(more) == 0 {
		return nil, ""
	}
	region := regionOf(path)
	defect := a.fresh(s, doc)
	if text, ok := was.(ast.String); ok && m.kind == "oversize" {
		short := a.ask(ctx, s.Entrypoint, put(s.doc, path, text+"x"), nil)
		if short.allow && len(gains(s.base, short)) > 0 {
			return nil, "" // it need not be long: it is another value
		}
	}
	switch {
	case region == ofGrant && defect == "":
		return nil, ""
	case m.kind == "duplicate" && defect == "":
		return more, "named twice, it gets more"
	case m.kind == "oversize" && region == asked && isNumber(was):
		silent, _ := mutation{kind: "delete"}.apply(s.doc, path)
		more = slices.DeleteFunc(gains(a.ask(ctx, s.Entrypoint, silent, nil), v), func(d Difference) bool { return string(d.After) != enormous })
		if len(more) == 0 {
			return nil, ""
		}
		return more, "whatever number is asked for is granted: nothing of the policy bounds it"
	case defect == "" && m.kind != "delete" && m.kind != "empty":
		return nil, "" // another value is another question
	case region == asked:
		open := a.ask(ctx, s.Entrypoint, openly(s.doc, v.grant, more), nil)
		more = slices.DeleteFunc(without(more, gains(open, v), open.allow), func(d Difference) bool {
			return defect == "" && !askedFor(d.Field) || needless[d.Field] && d.After.Kind() == 'n'
		})
		if len(more) == 0 {
			return nil, ""
		}
		if defect != "" {
			return more, "malformed, it gets more than by asking for it: " + defect
		}
		return more, "left out, it gets more than by asking for it"
	case defect != "":
		return more, "malformed, it gets more: " + defect
	}
	other := a.ask(ctx, s.Entrypoint, put(s.doc, path, otherThan(was)), nil)
	if more = without(more, gains(other, v), other.allow); len(more) == 0 {
		return nil, ""
	}
	return more, "left out, it gets more than with any other value"
}

// needless are the ceilings that a session need not have: who asks for one takes it upon himself.
var needless = map[string]bool{
	"ceilings.cpu_weight": true, "ceilings.cpu_time_ns": true, "ceilings.io_bytes_per_second": true,
	"ceilings.disk_bytes": true, "ceilings.disk_inodes": true, "idle_timeout_ns": true,
}

// askedFor reports a field of a grant that a request can ask for.
func askedFor(field string) bool {
	_, known := requestFields[field]
	return known || strings.HasPrefix(field, "ceilings.") || strings.HasPrefix(field, "mounts.")
}

// without keeps the differences that are among others, too; all of them when there is nothing to compare with.
func without(more, still []Difference, comparable bool) []Difference {
	if !comparable {
		return more
	}
	return slices.DeleteFunc(more, func(d Difference) bool {
		return !slices.ContainsFunc(still, func(s Difference) bool { return s.Field == d.Field })
	})
}

func gains(before, after verdict) []Difference {
	return slices.DeleteFunc(Compare(before.decision(), after.decision()), func(d Difference) bool { return d.Effect != Wider })
}

func isNumber(v ast.Value) bool {
	_, ok := v.(ast.Number)
	return ok
}

// otherThan is a value of the same form that means something else.
func otherThan(v ast.Value) ast.Value {
	switch v := v.(type) {
	case ast.String:
		return ast.String(unknown)
	case ast.Number:
		return ast.Number("1" + strings.TrimPrefix(string(v), "-"))
	case ast.Boolean:
		return !v
	case *ast.Array:
		var items []*ast.Term
		for i := range v.Len() {
			items = append(items, ast.NewTerm(otherThan(v.Elem(i).Value)))
		}
		return ast.NewArray(items...)
	case ast.Object:
		var members [][2]*ast.Term
		v.Foreach(func(k, v *ast.Term) { members = append(members, [2]*ast.Term{k, ast.NewTerm(otherThan(v.Value))}) })
		return ast.NewObject(members...)
	}
	return v
}

// requestFields are the places of an open's request by which a field of a grant is asked for.
var requestFields = map[string][]string{
	"ttl_ns":          {"session_ttl_ns"},
	"idle_timeout_ns": {"idle_timeout_ns"},
	"exec.background": {"allow_background_processes"},
	"verify":          {"verify"},
	"on_restart":      {"on_restart"},
	"accept_degraded": {"accept_degraded"},
	"network.mode":    {"target", "local", "network_mode"},
	"network.allow":   {"target", "local", "egress"},
	"workdir":         {"target", "local", "workdir"},
	"hostname":        {"target", "local", "hostname"},
}

// openly is the request that asks for what was granted in silence.
func openly(doc ast.Value, g *api.Grant, more []Difference) ast.Value {
	if g == nil {
		return doc
	}
	open := []string{"request", "open"}
	set := func(path []string, value any) {
		if v, err := parseJSON(encoded(value)); err == nil {
			doc = put(doc, append(slices.Clone(open), path...), v)
		}
	}
	if g.Profile != "" {
		set([]string{"profile"}, g.Profile)
	}
	room := func(m *ast.Term) *ast.Term {
		for _, granted := range g.Mounts {
			if m.Get(ast.InternedTerm("guest_path")) == nil || !m.Get(ast.InternedTerm("guest_path")).Equal(ast.StringTerm(granted.GuestPath)) || granted.Bytes == 0 {
				continue
			}
			v := put(m.Value, []string{"bytes"}, ast.Number(fmt.Sprint(granted.Bytes)))
			return ast.NewTerm(put(v, []string{"inodes"}, ast.Number(fmt.Sprint(granted.Inodes))))
		}
		return m
	}
	if mounts := at(doc, []string{"request", "open", "target", "local", "mounts"}); mounts != nil {
		if list, ok := mounts.Value.(*ast.Array); ok {
			for i := range list.Len() {
				if _, ok := list.Elem(i).Value.(ast.Object); ok {
					doc = edit(doc, []string{"request", "open", "target", "local", "mounts", fmt.Sprint(i)}, room)
				}
			}
		}
	}
	for _, d := range more {
		name, isCeiling := strings.CutPrefix(d.Field, "ceilings.")
		field, known := requestFields[d.Field]
		switch {
		case isCeiling && d.After.Kind() == 'n': // no bound: nobody can ask for more than that
			doc = put(doc, append(slices.Clone(open), "limits", name), ast.Number(enormous))
		case isCeiling:
			set([]string{"limits", name}, d.After)
		case d.Field == "accept_degraded":
			set(field, g.Degraded)
		case d.Field == "network.allow":
			set(field, g.Network.Allow)
			set(requestFields["network.mode"], g.Network.Mode)
		case known && d.After.Kind() == 'n':
			doc = put(doc, append(slices.Clone(open), field...), ast.Number(enormous))
		case known:
			set(field, d.After)
		}
	}
	return doc
}

// gives says in what a grant holds what a place of a request had asked for; "" when it does not.
func gives(g *api.Grant, path []string, was ast.Value) string {
	if g == nil || len(path) < 3 || path[1] != "open" {
		return ""
	}
	asked, err := appendJSON(nil, was)
	if err != nil {
		return ""
	}
	name := strings.Join(path[2:], ".")
	var answer holding
	text, _ := was.(ast.String)
	switch {
	case strings.HasPrefix(name, "limits."):
		answer = numberOf("ceilings."+path[3], was, ceilingOf(g, path[3]))
	case name == "session_ttl_ns":
		answer = numberOf("ttl_ns", was, g.TTLNS)
	case name == "idle_timeout_ns":
		answer = numberOf("idle_timeout_ns", was, g.IdleNS)
	case name == "profile":
		answer = holding{"profile", g.Profile == string(text)}
	case name == "target.local.root" || strings.HasPrefix(name, "target.local.root."):
		o, ok := was.(ast.Object)
		answer = holding{"root", ok && o.Len() == 1 && o.Get(ast.StringTerm(g.Root)) != nil}
	case name == "target.local.network_mode":
		order := []string{"none", "egress", "full"}
		wanted := slices.Index(order, string(text))
		answer = holding{"network.mode", wanted > 0 && slices.Index(order, g.Network.Mode) >= wanted}
	case name == "target.local.workdir":
		answer = holding{"workdir", g.Workdir == string(text)}
	case name == "target.local.hostname":
		answer = holding{"hostname", g.Hostname == string(text)}
	case name == "allow_background_processes":
		answer = holding{"exec.background", g.Exec.Background && string(asked) == "true"}
	case name == "accept_degraded":
		list, ok := was.(*ast.Array)
		answer = holding{"accept_degraded", ok && list.Len() > 0 && list.Until(func(t *ast.Term) bool { return slices.Contains(g.Degraded, keyOf(t)) })}
	case strings.HasPrefix(name, "target.local.mounts") || strings.HasPrefix(name, "target.local.egress"):
		answer = holdsAny(g, was)
	}
	if !answer.held {
		return ""
	}
	return answer.field
}

// holding is a field of a grant that holds what was asked for, or does not.
type holding struct {
	field string
	held  bool
}

func numberOf(field string, was ast.Value, granted int64) holding {
	n, ok := was.(ast.Number)
	if !ok {
		return holding{field, false}
	}
	wanted, ok := n.Int64()
	return holding{field, ok && wanted > 0 && (granted <= 0 || granted >= wanted)}
}

func ceilingOf(g *api.Grant, name string) int64 {
	c := g.Ceilings
	return map[string]int64{
		"memory_bytes": c.MemoryBytes, "cpu_millis": c.CPUMillis, "pids": c.PIDs, "files": c.Files,
		"output_bytes": c.OutputBytes, "cpu_time_ns": c.CPUTimeNS, "cpu_weight": cmp.Or(c.CPUWeight, usualWeight),
		"io_bytes_per_second": c.IOBytesPerSecond, "disk_bytes": c.DiskBytes, "disk_inodes": c.DiskInodes,
	}[name]
}

// holdsAny looks for the host path or the destination that an element of a request names.
func holdsAny(g *api.Grant, was ast.Value) holding {
	switch was := was.(type) {
	case *ast.Array:
		for i := range was.Len() {
			if f := holdsAny(g, was.Elem(i).Value); f.held {
				return f
			}
		}
	case ast.Object:
		for _, m := range g.Mounts {
			if host := was.Get(ast.InternedTerm("host_path")); host != nil && host.Equal(ast.StringTerm(m.HostPath)) {
				return holding{"mounts " + m.HostPath, true}
			}
		}
		for _, d := range g.Network.Allow {
			for name, value := range map[string]string{"name": d.Name, "cidr": d.CIDR} {
				if wanted := was.Get(ast.StringTerm(name)); value != "" && wanted != nil && wanted.Equal(ast.StringTerm(value)) {
					return holding{"network.allow " + value, true}
				}
			}
		}
	}
	return holding{}
}

// tryPaths changes paths, in the request and in what was found out about them at once.
func (a *auditor) tryPaths(ctx context.Context, s *specimen) {
	seen := map[string]bool{}
	places(s.doc, nil, func(at []string, v ast.Value) {
		p, ok := v.(ast.String)
		if !ok || !strings.HasPrefix(string(p), "/") || seen[string(p)] || at[0] == "ceiling" || regionOf(at) == ofGrant || ctx.Err() != nil {
			return
		}
		seen[string(p)] = true
		if s.base.allow {
			a.trySiblings(ctx, s, at, string(p))
		} else if at[0] == "facts" {
			a.tryParents(ctx, s, at, string(p))
		}
	})
}

// trySiblings asks about a directory whose name begins like a granted one's. Where a stranger's is denied, it
// was granted for its first letters. A path that climbs out is no better than where it leads.
func (a *auditor) trySiblings(ctx context.Context, s *specimen, at []string, p string) {
	allowed := func(to string) (ast.Value, verdict) {
		doc := move(s.doc, p, to)
		return doc, a.ask(ctx, s.Entrypoint, doc, nil)
	}
	for dir, rest := p, ""; dir != "/" && dir != "."; dir, rest = path.Dir(dir), "/"+path.Base(dir)+rest {
		doc, v := allowed(dir + "x" + rest)
		if !v.allow || v.caught != "" {
			continue
		}
		if stranger, no := allowed(path.Join(path.Dir(dir), unknown) + rest); !no.allow {
			why := fmt.Sprintf("%s is allowed because it begins like %s: compare with a slash at the end of both", dir+"x"+rest, dir)
			a.report(ctx, s, spoiled{"sibling", at, doc, v, nil, why, stranger})
			return
		}
	}
	if at[0] != "request" {
		return // what was found out has no detours
	}
	out := p + strings.Repeat("/..", strings.Count(p, "/")) + "/etc"
	if doc, v := allowed(out); v.allow && v.caught == "" {
		if direct, no := allowed("/etc"); !no.allow {
			a.report(ctx, s, spoiled{"climb", at, doc, v, nil, out + " is allowed, and leads to /etc, which is denied", direct})
		}
	}
}

// tryParents asks for the directories that a denied source lies in.
func (a *auditor) tryParents(ctx context.Context, s *specimen, at []string, p string) {
	for dir := path.Dir(p); ; dir = path.Dir(dir) {
		doc := move(s.doc, p, dir)
		if v := a.ask(ctx, s.Entrypoint, doc, nil); v.allow && v.caught == "" {
			a.report(ctx, s, spoiled{"parent", at, doc, v, nil, fmt.Sprintf("%s is denied, and %s, which it lies in, is allowed", p, dir), nil})
			return
		}
		if dir == "/" || dir == "." {
			return
		}
	}
}

// move puts one path in the place of another, wherever it stands.
func move(v ast.Value, from, to string) ast.Value {
	switch v := v.(type) {
	case ast.String:
		if string(v) == from {
			return ast.String(to)
		}
	case *ast.Array:
		var items []*ast.Term
		for i := range v.Len() {
			items = append(items, ast.NewTerm(move(v.Elem(i).Value, from, to)))
		}
		return ast.NewArray(items...)
	case ast.Object:
		var members [][2]*ast.Term
		v.Foreach(func(k, member *ast.Term) {
			switch {
			case k.Equal(ast.InternedTerm("ceiling")), k.Equal(ast.InternedTerm("grant")):
			case k.Equal(ast.StringTerm(from)):
				k, member = ast.StringTerm(to), ast.NewTerm(move(member.Value, from, to))
			default:
				member = ast.NewTerm(move(member.Value, from, to))
			}
			members = append(members, [2]*ast.Term{k, member})
		})
		return ast.NewObject(members...)
	}
	return v
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
