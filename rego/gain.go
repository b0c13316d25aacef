package rego

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/stockade-dev/stockade/supervisor/api"
)

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
