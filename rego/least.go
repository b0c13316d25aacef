package rego

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/open-policy-agent/opa/v1/ast"
	opa "github.com/open-policy-agent/opa/v1/rego"
	"github.com/open-policy-agent/opa/v1/storage"
	"github.com/open-policy-agent/opa/v1/storage/inmem"
	"github.com/open-policy-agent/opa/v1/topdown"

	"github.com/stockade-dev/stockade/supervisor/api"
)

// Least is a smallest change, of one kind, with which an operation that was denied is allowed. It was found by
// trying: with it the whole decision allows, the meet included. One step is named where one is enough; of more, none
// can be left out. A number cannot be nearer to what it was, and what is added to a list is the most specific that does.
type Least struct {
	Of      string       `json:"of"` // what is changed: "request", "grant" of the session, "data" of the policy, "ceiling", or "data and ceiling"
	Changes []Patch      `json:"changes"`
	Grant   *api.Grant   `json:"grant,omitzero"`    // of an open: what would have been in force
	Differs []Difference `json:"differs,omitempty"` // of an open: in what this grant differs from that of the smallest request
	Tried   int          `json:"tried"`             // how many changes were tried
}

// GivenUp is a search for a smallest change of one kind that came to its bound, in time or in what is tried, before it was
// known whether there is one.
type GivenUp struct {
	Of    string `json:"of"`
	Tried int    `json:"tried"`
}

// Patch is one step of RFC 6902, with what was there before.
type Patch struct {
	Op    string         `json:"op"`
	Path  string         `json:"path"`
	Value jsontext.Value `json:"value,omitzero"`
	Was   jsontext.Value `json:"was,omitzero"`
}

func (p Patch) String() string {
	name := strings.ReplaceAll(strings.TrimSuffix(strings.TrimPrefix(p.Path, "/"), "/-"), "/", ".")
	name = strings.NewReplacer("~1", "/", "~0", "~").Replace(name)
	switch {
	case p.Op == "remove":
		return fmt.Sprintf("%s: without %s", name, shown(p.Was))
	case p.Op == "add" && strings.HasSuffix(p.Path, "/-"):
		return fmt.Sprintf("%s: add %s", name, p.Value)
	case p.Op == "add":
		return fmt.Sprintf("%s: %s", name, p.Value)
	}
	return fmt.Sprintf("%s: %s in place of %s", name, p.Value, shown(p.Was))
}

// maxTried bounds the search for one kind of change.
const maxTried = 5000

// Least searches for the smallest changes with which a denied operation would have been allowed, of each kind
// that has one, and says for which kinds it does not know. Both are empty for one that is allowed.
func (e *Engine) Least(ctx context.Context, ref string, in Input) (found []Least, given []GivenUp, err error) {
	canonical, err := in.canonical()
	if err != nil {
		return nil, nil, err
	}
	doc, err := parseJSON(canonical)
	if err != nil {
		return nil, nil, err
	}
	s, err := e.search(ctx, ref, doc)
	if err != nil {
		return nil, nil, err
	}
	if s.denials(nil) == nil {
		return nil, nil, nil
	}
	for _, of := range []string{"request", "grant", "data", "ceiling", "data and ceiling"} {
		if strings.Contains(of, "ceiling") && slices.ContainsFunc(found, func(l Least) bool { return l.Of != "request" }) {
			continue // the operator has nothing against it
		}
		s.tried, s.until = 0, time.Now().Add(cmp.Or(e.opts.Search, searchTime))
		steps, whole := s.smallest(trees[of])
		if err := ctx.Err(); err != nil {
			return nil, nil, err
		}
		if !whole {
			given = append(given, GivenUp{Of: of, Tried: s.tried})
		}
		if steps == nil {
			continue
		}
		l := Least{Of: of, Tried: s.tried, Grant: s.granted(steps)}
		for _, step := range steps {
			l.Changes = append(l.Changes, step.patch(s.whole(step.data)))
		}
		if l.Grant != nil && found != nil && found[0].Of == "request" && found[0].Grant != nil {
			l.Differs = CompareGrants(found[0].Grant, l.Grant)
		}
		found = append(found, l)
	}
	return found, given, nil
}

// searchTime bounds the search for one kind of change, as maxTried does, where [Options] say nothing.
const searchTime = 20 * time.Second

// trees are what may be changed, by kind: places in the input, or nil for the data.
var trees = map[string][][]string{
	"request":          {{"request"}},
	"grant":            {{"session", "grant"}},
	"data":             {nil},
	"ceiling":          {{"ceiling"}},
	"data and ceiling": {nil, {"ceiling"}},
}

// searching is one search: a question, and a copy of the policy's data that can be changed.
type searching struct {
	ctx      context.Context
	engine   *Engine
	ref      string
	doc      ast.Value
	data     ast.Value
	store    storage.Store
	prepared opa.PreparedEvalQuery
	tried    int
	until    time.Time
}

func (e *Engine) search(ctx context.Context, ref string, doc ast.Value) (*searching, error) {
	raw, err := e.store.Read(ctx, e.txn, storage.Path{})
	if err != nil {
		return nil, fmt.Errorf("policy data: %w", err)
	}
	data, ok := raw.(ast.Object)
	if !ok {
		return nil, fmt.Errorf("bug: the data of a policy are %T", raw)
	}
	s := &searching{ctx: ctx, engine: e, ref: ref, doc: doc, data: data, store: inmem.NewFromASTObject(data.Copy().(ast.Object))}
	s.prepared, err = opa.New(
		opa.Query(ref), opa.Compiler(e.compiler), opa.Store(s.store), opa.Capabilities(capabilities()),
		opa.GenerateJSON(func(t *ast.Term, _ *opa.EvalContext) (any, error) { return t.Value, nil }),
	).PrepareForEval(ctx)
	return s, err
}

// whole is the document that a step is of.
func (s *searching) whole(data bool) ast.Value {
	if data {
		return s.data
	}
	return s.doc
}

// step is one change of one place.
type step struct {
	data  bool // of the data, and not of the input
	path  []string
	value ast.Value // nil removes
	add   bool      // to the array at path
	rank  int       // of two steps that do, the lower one is the lesser change
}

func (p step) patch(tree ast.Value) Patch {
	patch := Patch{Op: "replace", Path: pointer(p.path)}
	if was := at(tree, p.path); was != nil && !p.add {
		patch.Was = plain(was)
	}
	switch {
	case p.value == nil:
		patch.Op = "remove"
		return patch
	case p.add:
		patch.Op, patch.Path = "add", patch.Path+"/-"
	case patch.Was == nil:
		patch.Op = "add"
	}
	patch.Value = plain(ast.NewTerm(p.value))
	return patch
}

func (p step) apply(v ast.Value) ast.Value {
	return edit(v, p.path, func(was *ast.Term) *ast.Term {
		switch {
		case p.value == nil:
			return nil
		case p.add:
			list, ok := was.Value.(*ast.Array)
			if !ok {
				return was
			}
			return ast.NewTerm(list.Append(ast.NewTerm(p.value)))
		}
		return ast.NewTerm(p.value)
	})
}

// decide asks the question with some changes made.
func (s *searching) decide(steps []step) (Decision, Input, bool) {
	s.tried++
	doc, data, changed := s.doc, s.data, false
	for _, p := range steps {
		if p.data {
			data, changed = p.apply(data), true
		} else {
			doc = p.apply(doc)
		}
	}
	text, err := appendJSON(nil, doc)
	if err != nil {
		return Decision{}, Input{}, false
	}
	var in Input
	if err := json.Unmarshal(text, &in, json.RejectUnknownMembers(true)); err != nil || in.Request == nil || validate(in.Request) != nil {
		return Decision{}, Input{}, false // no caller could ask that
	}
	d := Decide(s.ref, s.engine.digest, s.engine.opts.MaxInput, in, func(canonical []byte) Answer {
		return s.answer(canonical, in.NowNS, data, changed)
	})
	if d.Allow && d.Grant != nil && in.Request.Open != nil {
		grant, _, deny := Meet(in.Request.Open, *d.Grant, in.Ceiling)
		if len(deny) > 0 {
			return Decision{Deny: deny}, in, true
		}
		d.Grant = &grant
	}
	return d, in, true
}

// answer evaluates under changed data, which nobody else sees.
func (s *searching) answer(canonical []byte, nowNS int64, data ast.Value, changed bool) Answer {
	value, err := parseJSON(canonical)
	if err != nil {
		return Failed(api.CodePolicyInput, "%v", err)
	}
	txn, err := s.store.NewTransaction(s.ctx, storage.WriteParams)
	if err != nil {
		return Failed(api.CodePolicyError, "%v", err)
	}
	defer s.store.Abort(s.ctx, txn)
	if changed {
		if err := s.store.Write(s.ctx, txn, storage.ReplaceOp, storage.Path{}, data); err != nil {
			return Failed(api.CodePolicyError, "%v", err)
		}
	}
	var failed []topdown.Error
	rs, err := s.prepared.Eval(s.ctx, opa.EvalTransaction(txn), opa.EvalParsedInput(value),
		opa.EvalTime(time.Unix(0, nowNS).UTC()), opa.EvalBuiltinErrorList(&failed))
	switch {
	case err != nil:
		return Failed(api.CodePolicyError, "%v", err)
	case len(failed) > 0:
		return Failed(api.CodePolicyBuiltinError, "%v", failed[0].Error())
	case len(rs) != 1 || len(rs[0].Expressions) != 1:
		return Failed(api.CodePolicyUndefined, "%s is undefined", s.ref)
	}
	v, ok := rs[0].Expressions[0].Value.(ast.Value)
	if !ok {
		return Failed(api.CodePolicyError, "bug: an answer is %T", rs[0].Expressions[0].Value)
	}
	text, err := appendJSON(nil, v)
	if err != nil {
		return Failed(api.CodePolicyResult, "%v", err)
	}
	return Answer{Result: text}
}

// denials are what speaks against the operation with some changes made; nil when nothing does.
func (s *searching) denials(steps []step) []string {
	d, _, ok := s.decide(steps)
	if !ok {
		return []string{impossible}
	}
	if d.Allow {
		return nil
	}
	var list []string
	for _, deny := range d.Deny {
		list = append(list, string(deny.Code)+" "+deny.Subject)
	}
	return list
}

func (s *searching) granted(steps []step) *api.Grant {
	d, _, ok := s.decide(steps)
	if !ok {
		return nil
	}
	return d.Grant
}

// smallest finds the fewest steps that allow the operation; nil when there are none. Where whole is false, it was given up
// before that was known.
func (s *searching) smallest(roots [][]string) (steps []step, whole bool) {
	var taken []step
	against := s.denials(nil)
	for range 8 { // more reasons than that are another request
		var best step
		var left []string
		helps := func(p step) ([]string, bool) {
			after := s.denials(append(slices.Clone(taken), p))
			return after, after == nil || len(missing(against, after)) > 0 && !slices.Contains(after, impossible)
		}
		var groups []group
		for _, root := range roots {
			groups = append(groups, s.groups(root, taken)...)
		}
		for _, g := range groups {
			if s.tried > maxTried || s.ctx.Err() != nil || time.Now().After(s.until) {
				return nil, false
			}
			if g.whole != nil {
				if _, ok := helps(*g.whole); !ok {
					continue // all together do nothing, so none does
				}
			}
			for _, p := range g.steps {
				after, ok := helps(p)
				if !ok {
					continue
				}
				p = s.nearest(taken, p, after)
				if best.path == nil || better(p, after, best, left) {
					best, left = p, after
				}
			}
		}
		if best.path == nil {
			return nil, true
		}
		taken = append(taken, best)
		if against = left; against == nil {
			return s.needed(taken), true
		}
	}
	return nil, false
}

// impossible is what speaks against a question that nobody could put.
const impossible = "no caller could ask that"

// missing are the elements of a list that another one has not.
func missing(list, from []string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(e string) bool { return slices.Contains(from, e) })
}

// better compares two steps by how many reasons they leave, then by their ranks, then by how little they say.
func better(p step, after []string, best step, left []string) bool {
	solved := func(list []string) int {
		if list == nil {
			return -1
		}
		return len(list)
	}
	return cmp.Or(
		cmp.Compare(solved(after), solved(left)),
		cmp.Compare(p.rank, best.rank),
		cmp.Compare(-specific(p), -specific(best)),
		cmp.Compare(len(p.path), len(best.path)),
	) < 0
}

// specific is how narrow the value of a step is: the longest path, or the most members.
func specific(p step) int {
	if p.value == nil {
		return 0
	}
	text, err := appendJSON(nil, p.value)
	if err != nil {
		return 0
	}
	return len(text)
}

// needed leaves out the steps without which it is allowed as well.
func (s *searching) needed(taken []step) []step {
	for i := 0; i < len(taken) && len(taken) > 1; {
		fewer := slices.Delete(slices.Clone(taken), i, i+1)
		if s.denials(fewer) == nil {
			taken = fewer
		} else {
			i++
		}
	}
	return taken
}

// nearest moves a number towards what it was for as long as the step does as much.
func (s *searching) nearest(taken []step, p step, after []string) step {
	far, ok := p.value.(ast.Number)
	was := at(s.whole(p.data), p.path)
	if !ok || was == nil {
		return p
	}
	near, ok := was.Value.(ast.Number)
	if !ok {
		return p
	}
	low, lok := near.Int64()
	high, hok := far.Int64()
	if !lok || !hok {
		return p
	}
	for d := high - low; d > 1 || d < -1; d = high - low {
		middle := low + d/2
		try := p
		try.value = ast.Number(strconv.FormatInt(middle, 10))
		if slices.Equal(s.denials(append(slices.Clone(taken), try)), after) {
			high, p = middle, try
		} else {
			low = middle
		}
	}
	return p
}

// group is some changes of one place. When whole, which is all of them at once, does not help, none does.
type group struct {
	whole *step
	steps []step
}

// groups are the changes that could help, by place.
func (s *searching) groups(root []string, taken []step) []group {
	t := at(s.whole(root == nil), root)
	if t == nil {
		return nil
	}
	from, asked := t.Value, len(root) == 1 && root[0] == "request"
	w := s.words()
	var list []group
	add := func(g group) {
		g.steps = slices.DeleteFunc(g.steps, func(p step) bool {
			return slices.ContainsFunc(taken, func(t step) bool { return slices.Equal(t.path, p.path) && !p.add })
		})
		for i := range g.steps {
			g.steps[i].data = root == nil
		}
		if g.whole != nil {
			g.whole.data = root == nil
		}
		if len(g.steps) > 0 {
			list = append(list, g)
		}
	}
	var skip [][]string
	places(from, slices.Clone(root), func(path []string, v ast.Value) {
		if slices.ContainsFunc(skip, func(p []string) bool { return len(path) > len(p) && slices.Equal(path[:len(p)], p) }) || asked && fixed(path) {
			return
		}
		if _, object := v.(ast.Object); object && root == nil && len(path) == 2 && s.idle(path) {
			skip = append(skip, path)
			return
		}
		if asked {
			add(lessen(path, v, w))
			return
		}
		for _, g := range widen(path, v, w) {
			add(g)
		}
		if list, ok := v.(*ast.Array); ok && (list.Len() == 0 || !isObject(list.Elem(0).Value)) {
			skip = append(skip, path) // its elements were looked at
		}
	})
	return list
}

// fixed are the places of a request that are not the caller's to choose.
func fixed(path []string) bool {
	return len(path) < 3 || path[1] == "principal" || path[2] == "session_id" || path[2] == "exec_id" || path[2] == "intent_id"
}

// idle reports an entry of a map, such as another profile, without which the answer is the same.
func (s *searching) idle(path []string) bool {
	with, _, _ := s.decide(nil)
	without, _, _ := s.decide([]step{{data: true, path: path}})
	return slices.Equal(with.Deny, without.Deny)
}

// words are what a question is made of: what could stand in a list, or in a number's place.
type words struct {
	texts     []ast.Value
	constants []ast.Value // texts that the rules of the policy have
	objects   []ast.Value
	numbers   []int64
}

// integers are the numbers as values.
func (w words) integers() []ast.Value {
	var list []ast.Value
	for _, n := range w.numbers {
		list = append(list, ast.Number(strconv.FormatInt(n, 10)))
	}
	return list
}

// words collects them from the request and the facts, with the directories that paths lie in.
func (s *searching) words() words {
	texts, numbers := map[string]bool{}, map[int64]bool{}
	var objects []ast.Value
	note := func(name string) {
		texts[name] = true
		for dir := name; strings.HasPrefix(dir, "/"); dir = path.Dir(dir) {
			texts[dir], texts[strings.TrimSuffix(dir, "/")+"/"] = true, true
			if dir == "/" {
				break
			}
		}
	}
	for _, root := range []string{"request", "facts", "ceiling", "session"} {
		t := at(s.doc, []string{root})
		if t == nil {
			continue
		}
		places(t.Value, []string{root}, func(path []string, v ast.Value) {
			switch v := v.(type) {
			case ast.String:
				if root == "request" || root == "facts" {
					note(string(v))
				}
				numbers[int64(len(v))] = true
			case ast.Number:
				if n, ok := v.Int64(); ok {
					numbers[n] = true
				}
			case *ast.Array:
				numbers[int64(v.Len())] = true
			case ast.Object:
				numbers[int64(v.Len())] = true
				if root == "request" && len(path) > 2 {
					objects = append(objects, v)
					v.Foreach(func(k, _ *ast.Term) { texts[keyOf(k)] = true })
				}
			}
		})
	}
	w := words{objects: objects, numbers: append(slices.Sorted(maps.Keys(numbers)), 1<<62)}
	for _, text := range slices.Sorted(maps.Keys(texts)) {
		w.texts = append(w.texts, ast.String(text))
	}
	constants := map[string]bool{}
	for _, m := range s.engine.compiler.Modules {
		for _, r := range m.Rules {
			ast.WalkExprs(r, func(x *ast.Expr) bool {
				if op := x.OperatorTerm(); x.IsEquality() || op != nil && op.Equal(ast.NewTerm(ast.Equal.Ref())) {
					for _, t := range x.Operands() {
						if text, ok := t.Value.(ast.String); ok {
							constants[string(text)] = true
						}
					}
				}
				return false
			})
		}
	}
	for _, text := range slices.Sorted(maps.Keys(constants)) {
		w.constants = append(w.constants, ast.String(text))
	}
	return w
}

// widen are the changes of data, a grant or a ceiling that could let more through.
func widen(path []string, v ast.Value, w words) []group {
	var groups []group
	put := func(rank int, value ast.Value) step { return step{path: path, value: value, rank: rank} }
	switch v := v.(type) {
	case ast.Number:
		now, ok := v.Int64()
		raise, lower := group{whole: &step{path: path, value: ast.Number(enormous)}}, group{}
		for _, n := range w.numbers {
			switch {
			case !ok || n == now || n <= 0:
			case n > now:
				raise.steps = append(raise.steps, put(1, ast.Number(strconv.FormatInt(n, 10))))
			default:
				lower.steps = append(lower.steps, put(1, ast.Number(strconv.FormatInt(n, 10))))
			}
		}
		if len(lower.steps) > 0 { // if not the least, which?
			lower.whole = &lower.steps[0]
		}
		groups = append(groups, raise, lower)
	case ast.Boolean:
		groups = append(groups, group{steps: []step{put(2, !v)}})
	case ast.String:
		var g group
		for _, text := range append(slices.Clone(w.texts), w.constants...) {
			if text.Compare(v) != 0 {
				g.steps = append(g.steps, put(3, text))
			}
		}
		groups = append(groups, g)
	case *ast.Array:
		var more, fewer group
		all := v
		for _, candidate := range slices.Concat(w.texts, w.objects, w.integers()) {
			if v.Len() > 0 && ast.ValueName(v.Elem(0).Value) != ast.ValueName(candidate) || v.Until(func(t *ast.Term) bool { return t.Value.Compare(candidate) == 0 }) {
				continue
			}
			all = all.Append(ast.NewTerm(candidate))
			more.steps = append(more.steps, step{path: path, value: candidate, add: true, rank: 1})
		}
		if v.Len() > 0 {
			more.whole = &step{path: path, value: all}
		}
		for i := range v.Len() {
			fewer.steps = append(fewer.steps, step{path: append(slices.Clone(path), strconv.Itoa(i)), rank: 4})
		}
		if v.Len() > 1 {
			fewer.whole = &step{path: path, value: ast.NewArray()}
		}
		groups = append(groups, more, fewer)
	}
	if !isObject(v) && len(path) > 1 {
		groups = append(groups, group{steps: []step{{path: path, rank: 5}}})
	}
	return groups
}

func isObject(v ast.Value) bool {
	_, ok := v.(ast.Object)
	return ok
}

// lessen are the changes of a request that ask for less, or for something else.
func lessen(path []string, v ast.Value, w words) group {
	var g group
	put := func(rank int, value ast.Value) { g.steps = append(g.steps, step{path: path, value: value, rank: rank}) }
	name := path[len(path)-1]
	switch v := v.(type) {
	case ast.Number:
		now, ok := v.Int64()
		for _, n := range w.numbers {
			if ok && n < now && n > 0 {
				put(1, ast.Number(strconv.FormatInt(n, 10)))
			}
		}
	case ast.Boolean:
		put(2, !v)
	case ast.String:
		for _, choice := range choices[name] {
			if choice != string(v) {
				put(2, ast.String(choice))
			}
		}
		if name == "guest_path" {
			put(3, ast.String(elsewhere("/workspace", string(v))))
			put(3, ast.String(elsewhere("/mnt", string(v))))
		}
	}
	rank := 4
	switch v.(type) {
	case ast.Object, *ast.Array:
		if rank = 6; isElement(name) {
			rank = 5
		}
	}
	g.steps = append(g.steps, step{path: path, rank: rank})
	return g
}

func isElement(name string) bool {
	_, err := strconv.Atoi(name)
	return err == nil
}

// elsewhere is the last element of a path in another directory.
func elsewhere(dir, p string) string { return path.Join(dir, path.Base(p)) }

// choices are the words of which a member of a request is one, the lesser ones first.
var choices = map[string][]string{
	"mode":         {"ro", api.ModeOverlay},
	"network_mode": {"none", "egress"},
	"output_mode":  {"auto"},
	"signal":       {"TERM", "KILL"},
}
