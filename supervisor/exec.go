package supervisor

import (
	"context"

	"github.com/stockade-dev/stockade/supervisor/api"
	"github.com/stockade-dev/stockade/supervisor/ledger"
)

func admitExec(s *Supervisor, c *call) *refusal {
	if why := admitSession(s, c); why != nil {
		return why
	}
	ses := c.session
	if s.draining.Load() {
		return faulted(errDraining)
	}
	if err := s.registry.enlist(c, s.ceiling); err != nil {
		return faulted(err)
	}
	x := newExecution(c, ses, c.req.Exec)
	if err := ses.admit(x, c.at, s.defaults.Queue); err != nil {
		s.registry.delist(c)
		return faulted(err)
	}
	c.execution = x
	return nil
}

var errDraining = api.Errorf(api.CodeDraining, "the supervisor is being drained and takes no new work")

func planExecution(s *Supervisor, c *call) *refusal {
	ses := c.session
	p, deny, err := planExec(c.req.Exec, ses.granted(), ses.env, *c.decision, s.defaults, ses.left(c.at), s.host)
	switch {
	case len(deny) > 0:
		return denied(deny...)
	case err != nil:
		return faulted(err)
	}
	c.clamped = p.clamped
	if err := c.execution.prepare(p, s); err != nil {
		return faulted(err)
	}
	if err := c.execution.plan.exec.Validate(); err != nil {
		return faulted(invalid(err))
	}
	return nil
}

func abandonExec(s *Supervisor, c *call) {
	if c.execution != nil {
		c.execution.abandon()
		s.dismiss(c.execution, true)
		c.execution = nil
	}
}

func actExec(ctx context.Context, s *Supervisor, c *call) (api.Payload, *api.Error) {
	carry := c.execution.run
	if c.execution.held {
		carry = c.execution.resume
	}
	result, fault := carry(ctx, s, &c.watch)
	if fault != nil && result != nil {
		result.ErrorMessage = fault.Message
	}
	return api.Payload{Exec: result}, fault
}

// settleExecution says that the command ran, if that has not been said, and how it ended.
func (s *Supervisor) settleExecution(c *call, r *api.Receipt) {
	x := c.execution
	x.framing.Lock()
	defer x.framing.Unlock()
	var before []ledger.Record
	if !x.told && r.Payload.Exec != nil && r.Payload.Exec.StartedAtNS != 0 {
		x.told = true
		if f := x.newFrame(s, api.FrameStarted, api.FramePayload{}); f != nil {
			before = append(before, f)
		}
	}
	s.chronicle.read(func(state *ledger.State) {
		if next, ok := state.NextFrame(c.intent); ok {
			r.FrameSeq = next.Seq - 1 + int64(len(before))
		}
	})
	s.settle(c, r, s.journal.Settle, before...)
	s.spilled.add(x.kept(), s.defaults.OutputPerSession)
	x.wake.all()
	if x.drained == nil || isClosed(x.drained) {
		s.launcher.Forget(c.session.id, x.id)
		return
	}
	s.background.Go(func() { // what it left in the background keeps its pipes, whoever the supervisor is
		<-x.drained
		if !isClosed(s.left) {
			s.launcher.Forget(c.session.id, x.id)
		}
	})
}

func settledExec(s *Supervisor, c *call) {
	if c.execution != nil {
		s.dismiss(c.execution, false)
	}
}

func (s *Supervisor) dismiss(x *execution, refused bool) {
	x.session.dismiss(x, refused, s.now())
	s.registry.delist(x.call)
}

func failedExec(code api.Code, message string) api.Payload {
	return api.Payload{Exec: &api.ExecResult{Status: "error", ExitCode: -1, ErrorCode: code, ErrorMessage: message}}
}
