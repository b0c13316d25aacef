package supervisor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/stockade-dev/stockade/internal/spool"
	"github.com/stockade-dev/stockade/rego"
	"github.com/stockade-dev/stockade/sandbox"
	"github.com/stockade-dev/stockade/supervisor/api"
	"github.com/stockade-dev/stockade/supervisor/ledger"
)

// kept is what the runner holds for us of a session, and no record has: the values of its
// environment, which may be secret.
type kept struct {
	Env    map[string]string `json:"env"`
	Secret []string          `json:"secret"` // names of those whose values are
}

func (s *session) keep() ([]byte, error) { return api.Encode(kept{s.env, s.secret}) }

// adoptedSession is a session that an earlier supervisor opened, or why it cannot go on.
func adoptedSession(d api.Session, held *sandbox.Held) (*session, error) {
	if held == nil {
		return nil, errors.New("the runner does not have it")
	}
	var k kept
	if err := json.Unmarshal(held.Keep, &k); err != nil {
		return nil, fmt.Errorf("what the runner kept of it: %w", err)
	}
	ses := endedSession(d)
	ses.env, ses.secret, ses.closed, ses.end = k.Env, k.Secret, make(chan struct{}), ending{}
	ses.executions = d.Executions
	ses.paused = d.State == stateQuiesced
	return ses, nil
}

// adoptedCall is an execution in flight that the runner has, as the call that carries it on, or why
// there is none. Its plan is made again from what was asked and what was decided.
func (s *Supervisor) adoptedCall(in api.Intent, held map[string]*sandbox.Held) (*call, error) {
	if in.Op != api.OpExec && in.Op != api.OpShellOpen || in.ExecID == "" {
		return nil, errors.New("the supervisor restarted while the operation was in flight")
	}
	ses, _ := s.registry.find(in.Principal, in.SessionID)
	has := func(x sandbox.HeldExec) bool { return x.ID == in.ExecID }
	switch {
	case ses == nil || ses.over():
		return nil, errors.New("the supervisor restarted, and the session ended with what ran in it; how the command ended is unknown")
	case !slices.ContainsFunc(held[ses.id].Execs, has):
		return nil, errors.New("the supervisor restarted before the command was known to have started")
	}
	req, decision, err := s.intentAt(in.EmittedAtSeq)
	if err != nil {
		return nil, err
	}
	if decision == nil || req.Exec == nil {
		return nil, errors.New("the record of its decision is not there")
	}
	c := &call{
		operation: operations[in.Op],
		req:       req,
		intent:    in.IntentID,
		at:        time.Unix(0, in.AdmittedAtNS),
		session:   ses,
		decision: &rego.Decision{
			Allow: true, Warn: decision.Warn, Limits: decision.Limits, Obligations: decision.Obligations, Policy: decision.Policy,
		},
		admitted: make(chan struct{}),
		done:     make(chan struct{}),
	}
	if c.request, err = api.Encode(req); err != nil {
		return nil, err
	}
	c.watch.start()
	p, deny, err := planExec(req.Exec, ses.granted(), nil, *c.decision, s.defaults, ses.left(c.at), s.host)
	if len(deny) > 0 || err != nil {
		return nil, fmt.Errorf("bug: what was allowed is not any more: %v %v", deny, err)
	}
	c.clamped = p.clamped
	x := newExecution(c, ses, req.Exec)
	x.id, x.held, x.stdin = in.ExecID, true, &stdin{}
	x.follows(p)
	x.onTerminal(s)
	if x.shell != nil {
		var noted *recollection
		if noted, err = s.recollection(in.IntentID); err != nil {
			return nil, err
		}
		x.shell.recall(noted)
		if x.log, err = s.spool.RecoverRing(x.id, p.output); err == nil {
			x.shell.past = x.log.Kept(spool.Stdout)
		}
	} else {
		x.log, err = s.spool.Recover(x.id, p.output)
	}
	if err != nil {
		return nil, fmt.Errorf("its output: %w", err)
	}
	s.chronicle.read(func(state *ledger.State) {
		record, _ := state.Process(x.id)
		x.told, x.paused = record.State == api.StateRunning, record.Paused
		x.progressed, _ = state.Progress(x.id)
	})
	x.counted.stdout, x.counted.stderr = x.written() // by the supervisor before
	if t := x.progressed.TimeoutNS; t > 0 {
		x.timeout = time.Duration(t)
	}
	c.execution = x
	close(c.admitted)
	s.registry.relist(c) // it is there, whatever the ceiling says by now
	ses.adopt(x)
	s.registry.carry(c)
	s.registry.rekey(c)
	return c, nil
}

// rekey gives a call the idempotency key back that it had before a restart. Nobody else asks yet.
func (r *registry) rekey(c *call) {
	if c.req.Key != "" {
		c.digest = ledger.Digest(c.request)
		r.keys[ownedKey{ledger.OwnerOf(c.req.Principal), c.req.Key}] = c
	}
}

// goOn puts adopted sessions into service again, and carries adopted executions on.
func (s *Supervisor) goOn(live []api.Session, going []*call) {
	for _, d := range live {
		if ses, err := s.registry.find(d.Principal, d.SessionID); err == nil && !ses.over() {
			s.serve(ses, ses.granted())
			s.follow(ses)
		}
	}
	for _, c := range going {
		s.admission.enter() // it has just been made, and is open
		go func() {
			defer s.admission.leave()
			s.carry(c)
		}()
	}
}

// resume takes over a command that an earlier supervisor started, and follows it to its end.
func (x *execution) resume(ctx context.Context, s *Supervisor, watch *stopwatch) (*api.ExecResult, *api.Error) {
	defer x.retire()
	proc, err := s.launcher.Attach(ctx, x.session.id, x.id)
	if err != nil {
		e := api.Errorf(api.CodeLost, "the supervisor restarted, and the runner no longer has the command: %v", err)
		return execFailed(e.Code), e
	}
	x.frame(s, api.FrameAdopted, x.totals())
	if so := x.progressed; so.Cause != "" {
		now := s.now()
		x.stop(so.Cause, max(0, time.Unix(0, so.KillAtNS).Sub(now)), now)
	}
	if x.cutOff(proc) {
		x.stop(api.CodeSupervisorRestarted, 0, s.now())
	}
	result, fault := x.finish(ctx, s, proc, watch)
	if fault == nil && result.ErrorCode == api.CodeSupervisorRestarted {
		fault = api.Errorf(api.CodeSupervisorRestarted, "the supervisor restarted while the command was being fed its stdin; it was killed, lest it take a part for the whole")
		result.Status, result.ErrorMessage = "error", fault.Message
	}
	return result, fault
}

// cutOff reports whether the earlier supervisor fed the command what it reads, and had not come to the
// end. How far it had come nobody knows.
func (x *execution) cutOff(proc *sandbox.Process) bool {
	switch {
	case proc.Stdin == nil:
		return false // it was closed behind the last byte
	case x.input == nil:
		proc.Stdin.Close()
		return true
	}
	return (x.req.Stdin != nil || x.req.StdinRef != "") && x.progressed.InputBytes == 0
}
