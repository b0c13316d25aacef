package supervisor

import (
	"slices"

	"github.com/go-json-experiment/json"

	"github.com/stockade-dev/stockade/rego"
	"github.com/stockade-dev/stockade/supervisor/api"
)

// reviewOf is all that leave is asked for: the request, what its paths lead to, and what policy would give.
func (s *Supervisor) reviewOf(c *call) *api.Reviewed {
	r := &api.Reviewed{
		IntentID:      c.intent,
		Request:       &c.redacted,
		Policy:        c.decision.Policy.Digest,
		CeilingDigest: s.ceilingDigest,
		Grant:         c.grant,
		Limits:        limitsOf(c.decision.Limits),
		Output:        c.decision.Obligations.Output,
		Require:       c.leave.require,
	}
	for path, source := range c.facts.Sources {
		if r.Sources == nil {
			r.Sources = map[string]api.Source{}
		}
		told := api.Source{Error: source.Error}
		if f := source.Found; f != nil {
			told = api.Source{Resolved: f.Resolved, Kind: f.Kind, Dev: f.Dev, Ino: f.Ino, OwnerUID: f.OwnerUID, Mode: f.Mode}
		}
		r.Sources[path] = told
	}
	if f := c.file.facts; f != nil {
		for _, p := range f.Paths {
			r.Files = append(r.Files, api.ReviewedFile{Path: p.Path, Resolved: p.Resolved, Link: p.Link, Write: p.Write})
		}
	}
	return r
}

// limitsOf is what an exec decision tightens, by name.
func limitsOf(l rego.ExecLimits) (limits map[string]int64) {
	b, err := api.Encode(l)
	if err == nil {
		err = json.Unmarshal(b, &limits)
	}
	if err != nil || len(limits) == 0 {
		return nil // eight numbers can be written down
	}
	return limits
}

// again looks once more at what was reviewed, when somebody gives leave: at what the paths lead to by now, at policy,
// and at the session. What would be done must be what was reviewed, to the byte.
func (s *Supervisor) again(c *call) (why *refusal) {
	defer func() {
		if p := recover(); p != nil {
			why = faulted(s.bug(c, p))
		}
	}()
	if c.leave.bound {
		if fault := c.session.usable(s.now()); fault != nil {
			return faulted(fault)
		}
	}
	admit, plan := c.operation.admit, c.operation.plan
	switch {
	case c.execution != nil:
		admit, plan = noRefusal, replan
	case c.req.Open != nil:
		if s.policies.digest() != c.session.policy { // it is judged by the one of then, and another one decides now
			return stale("policy")
		}
		admit = noRefusal // it has its place
	}
	first := c.decision
	defer func() { c.leave.second = c.decision != first }()
	c.judging = s.now()
	for _, stage := range []func(*Supervisor, *call) *refusal{admit, resolveFacts, decide, plan} {
		if why := stage(s, c); why != nil {
			return why
		}
	}
	if asked := c.decision.Obligations.RequireApproval; asked != nil && !sameRequirement(*asked, c.leave.require) {
		return stale("approvers")
	}
	if part := difference(c.leave.reviewed, s.reviewOf(c)); part != "" {
		return stale(part)
	}
	return nil
}

func stale(part string) *refusal {
	return denied(api.Deny{Code: api.CodeApprovalStale, Subject: part, Message: "it is not what was reviewed any more; ask again"})
}

func sameRequirement(a, b api.RequireApproval) bool {
	x, xerr := api.Encode(a)
	y, yerr := api.Encode(b)
	return xerr == nil && yerr == nil && slices.Equal(x, y)
}

// difference names what is not the same in two reviews of one intent; "" is nothing.
func difference(a, b *api.Reviewed) string {
	for _, part := range []struct {
		name string
		a, b any
	}{
		{"policy", a.Policy, b.Policy}, {"ceiling", a.CeilingDigest, b.CeilingDigest}, {"sources", a.Sources, b.Sources}, {"files", a.Files, b.Files},
		{"grant", a.Grant, b.Grant}, {"limits", a.Limits, b.Limits}, {"output", a.Output, b.Output}, {"review", a, b},
	} {
		x, xerr := api.Encode(part.a)
		y, yerr := api.Encode(part.b)
		if xerr != nil || yerr != nil || !slices.Equal(x, y) {
			return part.name
		}
	}
	return ""
}

// replan makes the plan of an execution again: its session's life has become shorter meanwhile. A time limit that was
// modified while it waited stays.
func replan(s *Supervisor, c *call) *refusal {
	p, deny, err := planExec(c.req.Exec, c.session.granted(), c.session.env, *c.decision, s.defaults, c.session.left(c.judging), s.host)
	switch {
	case len(deny) > 0:
		return denied(deny...)
	case err != nil:
		return faulted(err)
	}
	x := c.execution
	p.exec.StdinOpen = x.plan.exec.StdinOpen
	x.mu.Lock()
	modified := x.timeout != x.plan.timeout
	timeout := x.timeout
	x.follows(p)
	if modified {
		x.timeout = timeout
	}
	x.mu.Unlock()
	c.clamped = p.clamped
	return nil
}
