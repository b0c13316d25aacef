package supervisor

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/stockade-dev/stockade/rego"
	"github.com/stockade-dev/stockade/sandbox"
	"github.com/stockade-dev/stockade/supervisor/api"
)

func admitOpen(s *Supervisor, c *call) *refusal {
	if s.draining.Load() {
		return faulted(errDraining)
	}
	ses := newSession(c.req.Principal, c.req.Open)
	ses.intent = c.intent
	s.policies.pin(ses)
	if err := s.registry.add(ses, s.ceiling); err != nil {
		s.policies.unpin(ses)
		return faulted(err)
	}
	c.session = ses
	return nil
}

func planOpen(s *Supervisor, c *call) *refusal {
	grant, clamped, deny := rego.Meet(c.req.Open, *c.decision.Grant, s.ceiling)
	c.clamped = clamped
	if len(deny) > 0 {
		return denied(deny...)
	}
	grant = *completed(grant)
	if end := expiry(&grant, c.judging); !end.IsZero() && !end.After(c.judging) {
		return denied(api.Deny{Code: api.CodeExpired, Subject: "grant"})
	}
	spec, err := plan(c.req, &grant, c.facts, s.host)
	if err != nil {
		return faulted(err)
	}
	spec.Session = c.session.id
	spec.WithDaemon = grant.OnRestart == "terminate"
	if spec.Keep, err = c.session.keep(); err != nil {
		return faulted(err)
	}
	if err := spec.Validate(); err != nil {
		return faulted(invalid(err))
	}
	c.grant, c.spec = &grant, spec
	return nil
}

// completed is a grant with what neither policy nor the caller says.
func completed(g api.Grant) *api.Grant {
	g.Hostname = cmp.Or(g.Hostname, "stockade")
	g.Workdir = cmp.Or(g.Workdir, "/")
	return &g
}

// invalid is a Spec or Exec that is not well formed, before the runner sees it: it is
// what the caller asked for that no kernel can bear.
func invalid(err error) *api.Error {
	if e, ok := errors.AsType[*sandbox.Error](err); ok {
		return api.Errorf(api.CodeInvalidParams, "%s", e.Msg)
	}
	return api.Errorf(api.CodeInvalidParams, "%v", err)
}

func abandonOpen(s *Supervisor, c *call) {
	if c.session != nil {
		s.registry.remove(c.session)
		s.policies.unpin(c.session)
		c.session = nil
	}
}

// How long a session may take to be built, which takes milliseconds: and with inputs to be
// digested, which can be whole file systems.
const (
	buildLimit  = 30 * time.Second
	digestLimit = 30 * time.Minute
)

func actOpen(ctx context.Context, s *Supervisor, c *call) (api.Payload, *api.Error) {
	limit := buildLimit
	if digests(&c.spec) {
		limit = digestLimit
	}
	building, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	enforced, err := s.launcher.Open(building, c.spec)
	if errors.Is(err, context.DeadlineExceeded) {
		err = sandbox.Errorf(sandbox.CodeInternal, "the session was not built within %v", limit)
		// It may have been finished at the last moment.
		if _, cerr := s.launcher.Close(ctx, c.session.id); cerr != nil && !gone(cerr) {
			s.log.Warn("close session", "session_id", c.session.id, "error", cerr)
		}
	}
	c.watch.lap("build")
	for _, t := range enforced.Timings {
		c.watch.laps = append(c.watch.laps, api.Timing{Stage: "build." + t.Step, NS: int64(t.Took)})
	}
	if err != nil {
		fault := runnerError(err)
		abandonOpen(s, c)
		return failedOpen(fault.Code, fault.Message), fault
	}
	started := s.now()
	r := &api.OpenResult{
		SessionID: c.session.id,
		Status:    "ready",
		Grant:     c.grant,
		Enforced:  evidence(enforced),
	}
	for _, d := range enforced.Inputs {
		r.Inputs = append(r.Inputs, api.Digest{Path: d.Path, Digest: d.Digest, Files: d.Files, SizeBytes: d.Bytes})
	}
	r.StartedAtNS, r.StartedAt = stamp(started)
	r.ExpiresAtNS, r.ExpiresAt = stamp(expiry(c.grant, started))
	c.session.started = started // nobody else knows the session yet
	c.session.degraded, c.session.silent = enforced.Degraded, r.Enforced.Silent()
	return api.Payload{Open: r}, nil
}

// digests reports whether the content of inputs is read while the session is built.
func digests(spec *sandbox.Spec) bool {
	return len(spec.Root.Paths) > 0 || slices.ContainsFunc(spec.Mounts, func(m sandbox.Mount) bool { return m.Digest })
}

func evidence(e sandbox.Enforced) *api.Enforced {
	out := &api.Enforced{
		Namespaces:   e.Namespaces,
		NoNewPrivs:   e.NoNewPrivs,
		Seccomp:      e.Seccomp,
		Capabilities: strconv.FormatUint(e.Capabilities, 16),
		MemoryBytes:  e.MemoryBytes,
		SwapBytes:    e.SwapBytes,
		CPUMillis:    e.CPUMillis,
		PIDs:         e.PIDs,
		Mounts:       e.Mounts,
		Cgroup:       e.Cgroup,
		Devices:      e.Devices,
		Rlimits:      e.Rlimits,
		Filter:       e.Filter,
		Landlock:     e.Landlock,
		UserNS:       e.UserNS,
		Network:      e.Network,
		Degraded:     e.Degraded,
		Reports:      e.Reports,
	}
	for _, f := range e.Ceilings {
		out.Ceilings = append(out.Ceilings, api.CgroupFile(f))
	}
	for _, c := range e.Canaries {
		out.Canaries = append(out.Canaries, api.Canary(c))
	}
	return out
}

func failedOpen(code api.Code, message string) api.Payload {
	return api.Payload{Open: &api.OpenResult{Status: "error", ErrorCode: code, ErrorMessage: message}}
}

// settledOpen puts the session into service once its receipt is durable, or tears it
// down: a session that no record knows must not live.
func settledOpen(s *Supervisor, c *call) {
	ses := c.session
	if ses == nil {
		return
	}
	if ses.started.IsZero() { // it was not built, by a bug
		abandonOpen(s, c)
		return
	}
	s.serve(ses, c.grant)
	if c.receipt == nil || c.receipt.Outcome != api.OutcomeOK {
		s.endSession(ses, endUnrecorded, 0)
		return
	}
	s.follow(ses)
	select {
	case <-s.launcher.Done(): // after watchRunner had looked for sessions to end
		s.endSession(ses, endRunnerGone, 0)
	default:
	}
}

// serve puts a session into service, and ends it when its time is over.
func (s *Supervisor) serve(ses *session, grant *api.Grant) {
	// What a timer begins is work like any other: it is not begun when the supervisor closes, and
	// waited for otherwise.
	timed := func(work func()) func() {
		return func() {
			if s.admission.enter() {
				defer s.admission.leave()
				work()
			}
		}
	}
	ses.forget = s.secrets.Hold(ses.secrets()...)
	idle := idleClock{
		after: time.Duration(grant.IdleNS),
		grace: cmp.Or(s.defaults.IdleGrace, min(30*time.Second, time.Duration(grant.IdleNS)/2)),
		fire:  timed(func() { s.idle(ses) }),
	}
	load := loadWatch{interval: s.defaults.LoadInterval, fire: timed(func() { s.lookAtLoad(ses) })}
	ses.ready(grant, s.now(), timed(func() { s.endSession(ses, endExpired, s.defaults.Grace) }), idle, load)
}
