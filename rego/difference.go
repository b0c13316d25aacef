package rego

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/stockade-dev/stockade/sandbox"
	"github.com/stockade-dev/stockade/supervisor/api"
)

// Effect is what a difference between two answers means to the session.
type Effect string

// A session may do more after a Wider difference than before it, and less after a Narrower one. What is
// neither, such as another host name, or cannot be compared is Other.
const (
	Wider    Effect = "wider"
	Narrower Effect = "narrower"
	Other    Effect = "other"
)

// Difference is one field in which two answers of policy differ.
type Difference struct {
	Field  string         `json:"field"`
	Before jsontext.Value `json:"before"` // null is absent
	After  jsontext.Value `json:"after"`
	Effect Effect         `json:"effect"`
}

func (d Difference) String() string {
	return fmt.Sprintf("%s %s: %s → %s", d.Effect, d.Field, shown(d.Before), shown(d.After))
}

// shown is a value for a person.
func shown(v jsontext.Value) string {
	if len(v) == 0 || v.Kind() == 'n' {
		return "none"
	}
	if len(v) > shownBytes {
		return strings.ToValidUTF8(string(v[:shownBytes]), "") + "…"
	}
	return string(v)
}

const shownBytes = 160

// IsWider reports whether any difference lets a session do more.
func IsWider(differences []Difference) bool {
	return slices.ContainsFunc(differences, func(d Difference) bool { return d.Effect == Wider })
}

// Flip is the difference between an answer that allows and one that does not; nil when both do the same.
func Flip(before, after Decision) *Difference {
	if before.Allow == after.Allow {
		return nil
	}
	effect := Narrower
	if after.Allow {
		effect = Wider
	}
	return &Difference{Field: "allow", Before: encoded(before.Allow), After: encoded(after.Allow), Effect: effect}
}

// Compare gives the fields in which two decisions about the same question differ, with what each means. Of
// denials it compares nothing but that they deny: reasons may be put in other words.
func Compare(before, after Decision) []Difference {
	if flip := Flip(before, after); flip != nil {
		return []Difference{*flip}
	}
	if !before.Allow {
		return nil
	}
	var c comparison
	if before.Grant != nil && after.Grant != nil {
		c.grants(before.Grant, after.Grant)
	}
	c.limits(before.Limits, after.Limits)
	c.obligations(before.Obligations, after.Obligations)
	return c.found
}

// CompareGrants is [Compare] of two grants alone.
func CompareGrants(before, after *api.Grant) []Difference {
	var c comparison
	c.grants(before, after)
	return c.found
}

type comparison struct{ found []Difference }

func (c *comparison) add(effect Effect, field string, before, after any) {
	c.found = append(c.found, Difference{field, encoded(before), encoded(after), effect})
}

func encoded(v any) jsontext.Value {
	text, err := api.Encode(v)
	if err != nil {
		return nil // text that is not UTF-8 comes out of no answer
	}
	return text
}

// boundless are the numbers of which 0 says something else than "no bound", and what it says.
var boundless = map[string]int64{"ceilings.cpu_weight": usualWeight, "ceilings.queued": 64}

// bounded compares two bounds, of which 0 is none. A negative one is none either: whoever reads it takes it
// for 0, or for a very large number without a sign.
func (c *comparison) bounded(field string, before, after int64) {
	if before == after {
		return
	}
	weight := func(n int64) uint64 {
		if n == 0 {
			n = boundless[field]
		}
		return uint64(n - 1) // the bound of 0, and every negative one, is above all others
	}
	effect := Narrower
	if weight(after) > weight(before) {
		effect = Wider
	}
	show := func(n int64) any {
		if n == 0 {
			return nil
		}
		return n
	}
	c.add(effect, field, show(before), show(after))
}

// chosen compares two choices that are in an order of what they let a session do; without one they are just different.
func (c *comparison) chosen(field, before, after string, order ...string) {
	if before == after {
		return
	}
	effect := Other
	if b, a := slices.Index(order, before), slices.Index(order, after); b >= 0 && a >= 0 {
		if effect = Narrower; a > b {
			effect = Wider
		}
	} else if a < 0 && len(order) > 0 {
		effect = Wider // nobody knows what it lets a session do
	}
	if effect == Other || before != after {
		c.add(effect, field, before, after)
	}
}

// enabled compares two switches that let a session do more when they are on.
func (c *comparison) enabled(field string, before, after bool) {
	if before != after {
		effect := Narrower
		if after {
			effect = Wider
		}
		c.add(effect, field, before, after)
	}
}

// listed compares two lists of which each element lets a session do more, element by element; covers says that
// one element holds another. Where unbounded is set, an absent list is everything (C19).
func (c *comparison) listed(field string, before, after []string, unbounded bool, covers func(wide, narrow string) bool) {
	switch {
	case unbounded && before == nil && after == nil:
	case unbounded && after == nil:
		c.add(Wider, field, before, nil)
	case unbounded && before == nil:
		c.add(Narrower, field, nil, after)
	default:
		for _, a := range after {
			if !slices.ContainsFunc(before, func(b string) bool { return covers(b, a) }) {
				c.add(Wider, field, nil, a)
			}
		}
		for _, b := range before {
			if !slices.ContainsFunc(after, func(a string) bool { return covers(a, b) }) {
				c.add(Narrower, field, b, nil)
			}
		}
	}
}

func same(wide, narrow string) bool { return wide == narrow }

// below reports a directory that holds another.
func below(wide, narrow string) bool { return Below(narrow, wide) }

func variable(wide, narrow string) bool {
	prefix, pattern := strings.CutSuffix(wide, "*")
	return wide == narrow || pattern && strings.HasPrefix(narrow, prefix)
}

func (c *comparison) grants(before, after *api.Grant) {
	numbers := func(g *api.Grant) map[string]int64 {
		return map[string]int64{
			"ceilings.memory_bytes":        g.Ceilings.MemoryBytes,
			"ceilings.cpu_millis":          g.Ceilings.CPUMillis,
			"ceilings.pids":                g.Ceilings.PIDs,
			"ceilings.files":               g.Ceilings.Files,
			"ceilings.output_bytes":        g.Ceilings.OutputBytes,
			"ceilings.executions":          g.Ceilings.Executions,
			"ceilings.queued":              g.Ceilings.Queued,
			"ceilings.cpu_weight":          g.Ceilings.CPUWeight,
			"ceilings.cpu_time_ns":         g.Ceilings.CPUTimeNS,
			"ceilings.io_bytes_per_second": g.Ceilings.IOBytesPerSecond,
			"ceilings.disk_bytes":          g.Ceilings.DiskBytes,
			"ceilings.disk_inodes":         g.Ceilings.DiskInodes,
			"env.max":                      g.Env.Max,
			"exec.max_timeout_ns":          g.Exec.MaxTimeoutNS,
			"exec.default_timeout_ns":      g.Exec.DefaultTimeoutNS,
			"exec.max_argv":                g.Exec.MaxArgv,
			"exec.max_arg_bytes":           g.Exec.MaxArgBytes,
			"exec.max_inline_bytes":        g.Exec.MaxInlineBytes,
			"ttl_ns":                       g.TTLNS,
			"idle_timeout_ns":              g.IdleNS,
			"expires_at_ns":                g.ExpiresNS,
		}
	}
	b, a := numbers(before), numbers(after)
	for _, field := range slices.Sorted(maps.Keys(b)) {
		c.bounded(field, b[field], a[field])
	}
	c.chosen("profile", before.Profile, after.Profile)
	c.chosen("root", before.Root, after.Root)
	c.chosen("workdir", before.Workdir, after.Workdir)
	c.chosen("hostname", before.Hostname, after.Hostname)
	c.chosen("seccomp", before.Seccomp, after.Seccomp, "strict", "default", "build")
	c.chosen("on_restart", cmp.Or(before.OnRestart, "adopt"), cmp.Or(after.OnRestart, "adopt"), restartTerminate, "adopt")
	c.chosen("verify", before.Verify, after.Verify, verifyCanary, "")
	c.listed("accept_degraded", before.Degraded, after.Degraded, false, same)
	c.mounts(before.Mounts, after.Mounts)
	c.scratch(before.Scratch, after.Scratch)
	c.identity(before.Identity, after.Identity)
	c.network(before.Network, after.Network)
	c.listed("env.allow", before.Env.Allow, after.Env.Allow, true, variable)
	c.assigned("env.set", before.Env.Set, after.Env.Set)
	c.exec(before.Exec, after.Exec)
}

func (c *comparison) exec(before, after api.GrantExec) {
	c.listed("exec.output_modes", before.OutputModes, after.OutputModes, true, same)
	c.listed("exec.signals", before.Signals, after.Signals, true, same)
	c.listed("exec.cwd_prefixes", before.CwdPrefixes, after.CwdPrefixes, true, below)
	c.listed("exec.output_prefixes", before.OutputPrefixes, after.OutputPrefixes, true, below)
	c.enabled("exec.background", before.Background, after.Background)
	queues := func(q *bool) bool { return q == nil || *q }
	c.enabled("exec.queue", queues(before.Queue), queues(after.Queue))
	c.enabled("exec.shells", queues(before.Shells), queues(after.Shells))
	recorded := func(r *api.GrantRecord) api.GrantRecord {
		if r == nil {
			return api.GrantRecord{}
		}
		return *r
	}
	// Less of a record is no less of what may be done: neither more nor less.
	if b, a := recorded(before.Record), recorded(after.Record); b != a {
		c.add(Other, "exec.record", before.Record, after.Record)
	}
}

func (c *comparison) mounts(before, after []api.GrantMount) {
	matched(c, "mounts.", before, after, func(m api.GrantMount) string { return m.GuestPath }, func(field string, b, m api.GrantMount) {
		if b.HostPath != m.HostPath {
			c.add(Wider, field+".host_path", b.HostPath, m.HostPath) // something that was not there
		}
		c.chosen(field+".mode", b.Mode, m.Mode, modes...)
		c.chosen(field+".class", b.Class, m.Class)
		if b.Mode == m.Mode {
			c.listed(field+".protect", m.Protect, b.Protect, false, same) // the fewer, the wider
		}
		if b.Mode == api.ModeOverlay && m.Mode == api.ModeOverlay {
			c.bounded(field+".bytes", b.Bytes, m.Bytes)
			c.bounded(field+".inodes", b.Inodes, m.Inodes)
		}
	})
}

func (c *comparison) scratch(before, after []api.GrantScratch) {
	matched(c, "scratch.", before, after, func(s api.GrantScratch) string { return s.GuestPath }, func(field string, b, s api.GrantScratch) {
		c.bounded(field+".bytes", b.Bytes, s.Bytes)
		c.bounded(field+".inodes", b.Inodes, s.Inodes)
	})
}

// matched compares what is at the same place before and after: what came is wider, what went is narrower.
func matched[T any](c *comparison, prefix string, before, after []T, place func(T) string, both func(field string, before, after T)) {
	earlier := map[string]T{}
	for _, b := range before {
		earlier[place(b)] = b
	}
	for _, a := range after {
		field := prefix + place(a)
		b, ok := earlier[place(a)]
		if !ok {
			c.add(Wider, field, nil, a)
			continue
		}
		delete(earlier, place(a))
		both(field, b, a)
	}
	for _, at := range slices.Sorted(maps.Keys(earlier)) {
		c.add(Narrower, prefix+at, earlier[at], nil)
	}
}

func (c *comparison) identity(before, after api.Identity) {
	for _, id := range []struct {
		name          string
		before, after uint32
	}{{"uid", before.UID, after.UID}, {"gid", before.GID, after.GID}} {
		if id.before != id.after {
			c.add(Other, "identity."+id.name, id.before, id.after)
		}
	}
	groups := func(ids []uint32) []string {
		var names []string
		for _, id := range ids {
			names = append(names, fmt.Sprint(id))
		}
		return names
	}
	c.listed("identity.groups", groups(before.Groups), groups(after.Groups), false, same)
	c.listed("identity.capabilities", before.Capabilities, after.Capabilities, false, same)
}

func (c *comparison) network(before, after api.GrantNetwork) {
	c.chosen("network.mode", cmp.Or(before.Mode, "none"), cmp.Or(after.Mode, "none"), "none", "egress", "full")
	covered := func(list []api.Destination, d api.Destination) bool {
		return slices.ContainsFunc(list, func(w api.Destination) bool {
			return sandbox.Destination(w).Covers(sandbox.Destination(d)) || reflect.DeepEqual(w, d)
		})
	}
	for _, d := range after.Allow {
		if !covered(before.Allow, d) {
			c.add(Wider, "network.allow", nil, d)
		}
	}
	for _, d := range before.Allow {
		if !covered(after.Allow, d) {
			c.add(Narrower, "network.allow", d, nil)
		}
	}
	opens := func(f *api.GrantForward) []string {
		switch {
		case f == nil:
			return []string{}
		case f.Ports == nil:
			return nil
		}
		names := []string{}
		for _, port := range f.Ports {
			names = append(names, fmt.Sprint(port))
		}
		return names
	}
	c.listed("network.forward", opens(before.Forward), opens(after.Forward), true, same)
}

// assigned compares what is set for the session: another value is neither more nor less.
func (c *comparison) assigned(field string, before, after map[string]string) {
	names := maps.Clone(before)
	if names == nil {
		names = map[string]string{}
	}
	maps.Copy(names, after)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		b, hadIt := before[name]
		a, hasIt := after[name]
		switch {
		case !hadIt:
			c.add(Other, field+"."+name, nil, a)
		case !hasIt:
			c.add(Wider, field+"."+name, b, nil) // the caller may set it now
		case b != a:
			c.add(Other, field+"."+name, b, a)
		}
	}
}

func (c *comparison) limits(before, after ExecLimits) {
	for _, l := range []struct {
		name          string
		before, after int64
	}{
		{"timeout_ns", before.TimeoutNS, after.TimeoutNS},
		{"output_bytes", before.OutputBytes, after.OutputBytes},
		{"max_inline_bytes", before.MaxInlineBytes, after.MaxInlineBytes},
		{"memory_bytes", before.MemoryBytes, after.MemoryBytes},
		{"cpu_millis", before.CPUMillis, after.CPUMillis},
		{"pids", before.PIDs, after.PIDs},
		{"files", before.Files, after.Files},
		{"cpu_time_ns", before.CPUTimeNS, after.CPUTimeNS},
	} {
		c.bounded("limits."+l.name, l.before, l.after)
	}
}

// obligations compares duties, whatever they are: one less is wider.
func (c *comparison) obligations(before, after Obligations) {
	duties := func(o Obligations) map[string]jsontext.Value {
		m := map[string]jsontext.Value{}
		if err := json.Unmarshal(encoded(o), &m); err != nil {
			m["bug"] = encoded(err.Error())
		}
		return m
	}
	b, a := duties(before), duties(after)
	all := maps.Clone(b)
	maps.Copy(all, a)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		switch {
		case b[name] == nil:
			c.add(Narrower, "obligations."+name, nil, a[name])
		case a[name] == nil:
			c.add(Wider, "obligations."+name, b[name], nil)
		case !slices.Equal(a[name], b[name]):
			c.add(Other, "obligations."+name, b[name], a[name])
		}
	}
}

// SourceChange is a rule or a member of data that two revisions do not have in common.
type SourceChange struct {
	What   string `json:"what"` // "package.rule" or "data.path"
	At     string `json:"at,omitempty"`
	Change string `json:"change"` // added, removed, changed

	Before jsontext.Value `json:"before,omitzero"`
	After  jsontext.Value `json:"after,omitzero"`
}

// DiffBundles lists the rules and the data in which two revisions differ. Comments and places do not count.
func DiffBundles(before, after *Bundle) []SourceChange {
	var changes []SourceChange
	b, a := before.ruleTexts(), after.ruleTexts()
	all := maps.Clone(b)
	maps.Copy(all, a)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		was, is := b[name], a[name]
		switch {
		case was.text == is.text:
		case was.text == "":
			changes = append(changes, SourceChange{What: name, At: is.at, Change: "added"})
		case is.text == "":
			changes = append(changes, SourceChange{What: name, At: was.at, Change: "removed"})
		default:
			changes = append(changes, SourceChange{What: name, At: is.at, Change: "changed"})
		}
	}
	return append(changes, diffData(nil, ast.NewTerm(before.Data), ast.NewTerm(after.Data))...)
}

type ruleText struct{ text, at string }

// ruleTexts are the rules of a name, all together: their order within a file is part of what they say only
// where else is, and that is within one rule.
func (b *Bundle) ruleTexts() map[string]ruleText {
	rules := map[string][]string{}
	places := map[string]string{}
	for _, file := range slices.Sorted(maps.Keys(b.Modules)) {
		m := b.Modules[file]
		for _, r := range m.Rules {
			name := strings.TrimPrefix(m.Package.Path.String(), "data.") + "." + r.Head.Ref().GroundPrefix().String()
			rules[name] = append(rules[name], r.String())
			if places[name] == "" {
				places[name] = fmt.Sprintf("%s:%d", r.Location.File, r.Location.Row)
			}
		}
	}
	texts := map[string]ruleText{}
	for name, list := range rules {
		slices.Sort(list)
		texts[name] = ruleText{strings.Join(list, "\n"), places[name]}
	}
	return texts
}

func diffData(path []string, before, after *ast.Term) []SourceChange {
	b, bok := before.Value.(ast.Object)
	a, aok := after.Value.(ast.Object)
	if !bok || !aok {
		if before.Equal(after) {
			return nil
		}
		return []SourceChange{{What: "data." + strings.Join(path, "."), Change: "changed", Before: plain(before), After: plain(after)}}
	}
	keys := map[string]*ast.Term{}
	for _, o := range []ast.Object{b, a} {
		o.Foreach(func(k, _ *ast.Term) { keys[string(k.Value.(ast.String))] = k })
	}
	var changes []SourceChange
	for _, name := range slices.Sorted(maps.Keys(keys)) {
		was, is := b.Get(keys[name]), a.Get(keys[name])
		at := append(slices.Clone(path), name)
		switch {
		case was == nil:
			changes = append(changes, SourceChange{What: "data." + strings.Join(at, "."), Change: "added", After: plain(is)})
		case is == nil:
			changes = append(changes, SourceChange{What: "data." + strings.Join(at, "."), Change: "removed", Before: plain(was)})
		default:
			changes = append(changes, diffData(at, was, is)...)
		}
	}
	return changes
}

// plain is a value of data as JSON.
func plain(t *ast.Term) jsontext.Value {
	text, err := appendJSON(nil, t.Value)
	if err != nil {
		return encoded(t.String())
	}
	return text
}
