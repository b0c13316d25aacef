package rego

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/topdown"

	"github.com/stockade-dev/stockade/supervisor/api"
)

// Reason explains one denial.
type Reason struct {
	Deny     api.Deny `json:"deny"`
	Rule     string   `json:"rule,omitempty"`     // "file:line package.rule"; absent when the engine itself refused
	Title    string   `json:"title,omitempty"`    // of the rule's METADATA
	Text     string   `json:"text,omitempty"`     // what the code means
	Missing  []string `json:"missing,omitempty"`  // what was undefined, when nothing was defined
	Remedies []Remedy `json:"remedies,omitempty"` // each was tried, and each alone removes this denial
}

// Remedy is one change to the request, the grant or the facts.
type Remedy struct {
	Change     string `json:"change"`
	Sufficient bool   `json:"sufficient"` // with it the whole operation is allowed
}

// Explain decides again, slowly, and says of each denial which rule made it, about
// what, and which change would have removed it.
func (e *Engine) Explain(ctx context.Context, ref string, in Input) (Decision, []Reason) {
	d := e.Decide(ctx, ref, in)
	if d.Allow {
		return d, nil
	}
	trace := e.trace(ref, d.Input, in.NowNS)
	reasons := make([]Reason, 0, len(d.Deny))
	for _, deny := range d.Deny {
		r := Reason{Deny: deny, Text: deny.Code.Text()}
		if deny.Code == api.CodePolicyUndefined {
			r.Missing = trace.missing
		}
		if rule := trace.rule(deny); rule != nil {
			r.Rule = ruleName(rule)
			r.Title = e.titles[r.Rule]
		}
		r.Remedies = e.remedies(ctx, ref, d.Input, deny)
		reasons = append(reasons, r)
	}
	return d, reasons
}

// tracing collects what an explanation needs while a query runs.
type tracing struct {
	made    []made
	bodies  map[uint64]*ast.Rule // by query
	missing []string
}

// made is an element that a rule put into a set.
type made struct {
	rule  *ast.Rule
	value ast.Value
}

func (e *Engine) trace(ref string, canonical []byte, nowNS int64) *tracing {
	t := &tracing{bodies: map[uint64]*ast.Rule{}}
	value, err := parseJSON(canonical)
	if q, ok := e.queries[ref]; ok && err == nil {
		cancel := topdown.NewCancel()
		late := time.AfterFunc(100*q.deadline, cancel.Cancel) // a tracer is slow; who explains waits
		defer late.Stop()
		// What is missing of the trace says itself that the evaluation did not end.
		_, _, _ = q.ask(evaluation{txn: e.txn, input: value, nowNS: nowNS, cancel: cancel, tracer: t, base: e.base})
	}
	return t
}

func (t *tracing) Enabled() bool { return true }

func (t *tracing) Config() topdown.TraceConfig { return topdown.TraceConfig{} }

func (t *tracing) TraceEvent(ev topdown.Event) {
	switch ev.Op {
	case topdown.EnterOp:
		if rule, ok := ev.Node.(*ast.Rule); ok {
			t.bodies[ev.QueryID] = rule
		}
	case topdown.ExitOp:
		if rule, ok := ev.Node.(*ast.Rule); ok && rule.Head.Key != nil {
			t.made = append(t.made, made{rule, ev.Plug(rule.Head.Key).Value})
		}
	case topdown.FailOp:
		// A grant is undefined because one of its parts is: name the part.
		rule, expr := t.bodies[ev.QueryID], ev.Node
		if rule != nil && rule.Head.Name == "grant" && expr.Loc() != nil {
			at := fmt.Sprintf("%s:%d %s", expr.Loc().File, expr.Loc().Row, expr.Loc().Text)
			if !slices.Contains(t.missing, at) {
				t.missing = append(t.missing, at)
			}
		}
	}
}

// rule returns the first rule that made the denial: one that only passes it on exits later.
func (t *tracing) rule(deny api.Deny) *ast.Rule {
	for _, m := range t.made {
		if obj, ok := m.value.(ast.Object); ok && text(obj, "code") == string(deny.Code) && text(obj, "subject") == deny.Subject {
			return m.rule
		}
	}
	return nil
}

func text(obj ast.Object, name string) string {
	t := obj.Get(ast.InternedTerm(name))
	if t == nil {
		return ""
	}
	s, _ := t.Value.(ast.String)
	return string(s)
}

// remedies tries the changes that a code suggests and keeps those that help.
func (e *Engine) remedies(ctx context.Context, ref string, canonical []byte, deny api.Deny) []Remedy {
	var helped []Remedy
	for _, c := range changes[deny.Code] {
		var in Input // each change gets one of its own
		if err := json.Unmarshal(canonical, &in, json.RejectUnknownMembers(true)); err != nil || in.Request == nil {
			return nil
		}
		_, object, _ := strings.Cut(deny.Subject, ":")
		said := c(&in, object)
		if said == "" {
			continue
		}
		d := e.Decide(ctx, ref, in)
		if d.Allow || !engineRefused(d) && !slices.ContainsFunc(d.Deny, func(o api.Deny) bool { return o.Code == deny.Code && o.Subject == deny.Subject }) {
			helped = append(helped, Remedy{said, d.Allow})
		}
	}
	return helped
}

// engineRefused reports that policy did not come to an answer, so that a denial that is
// gone means nothing.
func engineRefused(d Decision) bool {
	return len(d.Deny) == 1 && strings.HasPrefix(string(d.Deny[0].Code), "policy.")
}

// change alters an input to do without what was denied and says how; "" when it does
// not apply. object is what follows the colon in the subject of the denial.
type change func(in *Input, object string) string

// changes are the candidates by code, the smallest first.
var changes = map[api.Code][]change{
	api.CodeMountModeNotAllowed: {mountOverlay, mountReadOnly, ownSource, leaveOutMount},
	api.CodeMountHostPath:       {ownSource, leaveOutMount},
	api.CodeMountGuestPath:      {mountElsewhere, leaveOutMount},
	api.CodeMountLimit:          {fewerMounts},
	api.CodeHermeticRoot:        {onLocal("use profile workspace", func(in *Input, _ *api.Local, _ string) { in.Request.Open.Profile = "workspace" })},
	api.CodeRootNotAllowed:      {leaveOutRootPath, onLocal("use root host", func(_ *Input, l *api.Local, _ string) { l.Root = api.Root{Host: &struct{}{}} })},
	api.CodeNetworkNotAllowed:   {networkNone},
	api.CodeDestination:         {leaveOutDestinations},
	api.CodeDegradedNotAllowed: {onLocal("leave it out of accept_degraded", func(in *Input, _ *api.Local, layer string) {
		in.Request.Open.Degraded = slices.DeleteFunc(in.Request.Open.Degraded, func(l string) bool { return l == layer })
	})},
	api.CodeWorkdirNotAllowed:  {onLocal("leave out workdir", func(_ *Input, l *api.Local, _ string) { l.Workdir = "" })},
	api.CodeHostnameNotAllowed: {onLocal("leave out hostname", func(_ *Input, l *api.Local, _ string) { l.Hostname = "" })},
	api.CodeProfileNotAllowed:  {onLocal("leave out profile", func(in *Input, _ *api.Local, _ string) { in.Request.Open.Profile = "" })},
	api.CodeBackgroundNotAllowed: {onLocal("leave out allow_background_processes", func(in *Input, _ *api.Local, _ string) {
		in.Request.Open.Background = nil
	})},
	api.CodeScopeRequired: {onLocal("declare that member of scope", func(in *Input, _ *api.Local, _ string) {
		in.Request.Open.Scope = api.Scope{AgentID: "x", WorldID: "x", ChatID: "x"}
	})},
	api.CodeEnvVarNotAllowed: {leaveOutVariable, allowVariable},
	api.CodeArgvLimit: {onGrant("exec.max_argv", func(in *Input, _ string) string {
		return raise(&in.Session.Grant.Exec.MaxArgv, len(in.Request.Exec.Argv))
	})},
	api.CodeArgLength: {onGrant("exec.max_arg_bytes", longestArgument)},
	api.CodeEnvPatchLimit: {onGrant("env.max", func(in *Input, _ string) string {
		return raise(&in.Session.Grant.Env.Max, len(in.Request.Exec.EnvPatch))
	})},
	api.CodeOutputModeNotAllowed: {onGrant("exec.output_modes", func(in *Input, mode string) string { return include(&in.Session.Grant.Exec.OutputModes, mode) })},
	api.CodeSignalNotAllowed:     {onGrant("exec.signals", func(in *Input, name string) string { return include(&in.Session.Grant.Exec.Signals, name) })},
	api.CodeOutputNotAllowed:     {onGrant("exec.output_prefixes", func(in *Input, p string) string { return include(&in.Session.Grant.Exec.OutputPrefixes, path.Dir(p)) })},
	api.CodeCwdNotAllowed: {
		func(in *Input, _ string) string {
			if in.Request.Exec == nil {
				return ""
			}
			in.Request.Exec.Cwd = ""
			return "leave out cwd"
		},
		onGrant("exec.cwd_prefixes", func(in *Input, p string) string { return include(&in.Session.Grant.Exec.CwdPrefixes, p) }),
	},
}

func onLocal(said string, alter func(*Input, *api.Local, string)) change {
	return func(in *Input, object string) string {
		if in.Request.Open == nil || in.Request.Open.Target.Local == nil {
			return ""
		}
		alter(in, in.Request.Open.Target.Local, object)
		return said
	}
}

// onGrant says what a session's grant would have to hold.
func onGrant(member string, alter func(*Input, string) string) change {
	return func(in *Input, object string) string {
		if in.Session == nil || in.Session.Grant == nil {
			return ""
		}
		need := alter(in, object)
		if need == "" {
			return ""
		}
		return "open the session with a grant whose " + member + " " + need
	}
}

func raise(limit *int64, to int) string {
	*limit = int64(to)
	return "is at least " + strconv.Itoa(to)
}

func include(list *[]string, element string) string {
	*list = append(slices.Clone(*list), element)
	return "includes " + element
}

func longestArgument(in *Input, _ string) string {
	longest := 0
	for _, arg := range in.Request.Exec.Argv {
		longest = max(longest, len(arg))
	}
	return raise(&in.Session.Grant.Exec.MaxArgBytes, longest)
}

// mountOf finds the mount that a subject names by either of its paths.
func mountOf(in *Input, object string) (l *api.Local, i int) {
	if in.Request.Open == nil || in.Request.Open.Target.Local == nil {
		return nil, -1
	}
	l = in.Request.Open.Target.Local
	return l, slices.IndexFunc(l.Mounts, func(m api.Mount) bool { return m.HostPath == object || m.GuestPath == object })
}

func mountOverlay(in *Input, object string) string {
	l, i := mountOf(in, object)
	if i < 0 || l.Mounts[i].Mode != "rw" {
		return ""
	}
	l.Mounts[i].Mode = api.ModeOverlay
	return "mount " + object + " as an overlay"
}

func mountReadOnly(in *Input, object string) string {
	l, i := mountOf(in, object)
	if i < 0 || l.Mounts[i].Mode == "ro" {
		return ""
	}
	l.Mounts[i].Mode = "ro"
	return "mount " + object + " ro"
}

func mountElsewhere(in *Input, object string) string {
	l, i := mountOf(in, object)
	if i < 0 {
		return ""
	}
	l.Mounts[i].GuestPath = path.Join("/mnt", path.Base(object))
	return "mount it at " + l.Mounts[i].GuestPath
}

func leaveOutMount(in *Input, object string) string {
	l, i := mountOf(in, object)
	if i < 0 {
		return ""
	}
	l.Mounts = slices.Delete(l.Mounts, i, i+1)
	return "leave out the mount of " + object
}

func ownSource(in *Input, object string) string {
	s, ok := in.Facts.Sources[object]
	if !ok || s.Found == nil || s.OwnerUID == in.Request.Principal.UID {
		return ""
	}
	s.OwnerUID = in.Request.Principal.UID
	return fmt.Sprintf("let %s belong to uid %d", s.Resolved, s.OwnerUID)
}

func fewerMounts(in *Input, _ string) string {
	l, _ := mountOf(in, "")
	if l == nil || in.Ceiling.Mounts == 0 || int64(len(l.Mounts)) <= in.Ceiling.Mounts {
		return ""
	}
	l.Mounts = l.Mounts[:in.Ceiling.Mounts]
	return fmt.Sprintf("mount at most %d", in.Ceiling.Mounts)
}

func leaveOutRootPath(in *Input, object string) string {
	l, _ := mountOf(in, "")
	if l == nil || l.Root.Paths == nil || !slices.Contains(l.Root.Paths.Paths, object) {
		return ""
	}
	l.Root.Paths.Paths = slices.DeleteFunc(l.Root.Paths.Paths, func(p string) bool { return p == object })
	return "leave " + object + " out of the root's paths"
}

func networkNone(in *Input, _ string) string {
	l, _ := mountOf(in, "")
	if l == nil {
		return ""
	}
	l.NetworkMode, l.Egress = "none", nil
	return "ask for network_mode none"
}

func leaveOutDestinations(in *Input, object string) string {
	l, _ := mountOf(in, "")
	if l == nil || len(l.Egress) == 0 {
		return ""
	}
	place, _, _ := strings.Cut(object, ":") // of a name; a prefix of IPv6 is found whole
	l.Egress = slices.DeleteFunc(l.Egress, func(d api.Destination) bool {
		return d.Name != "" && d.Name == place || d.CIDR != "" && strings.HasPrefix(object, d.CIDR)
	})
	return "leave " + object + " out of egress"
}

func leaveOutVariable(in *Input, name string) string {
	switch {
	case in.Request.Exec != nil:
		delete(in.Request.Exec.EnvPatch, name)
	case in.Request.Open != nil && in.Request.Open.Target.Local != nil:
		delete(in.Request.Open.Target.Local.Env, name)
	default:
		return ""
	}
	return "leave out the variable " + name
}

func allowVariable(in *Input, name string) string {
	if in.Session == nil || in.Session.Grant == nil || in.Session.Grant.Env.Allow == nil {
		return ""
	}
	in.Session.Grant.Env.Allow = append(slices.Clone(in.Session.Grant.Env.Allow), name)
	return "open the session with a grant whose env.allow includes " + name
}
