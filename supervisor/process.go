package supervisor

import (
	"cmp"
	"context"
	"time"

	"github.com/stockade-dev/stockade/supervisor/api"
	"github.com/stockade-dev/stockade/supervisor/ledger"
)

// Process returns one execution of the caller's, live or in view.
func (s *Supervisor) Process(ctx context.Context, req *api.Request) (*api.Process, *api.Receipt, error) {
	p, denial, err := s.permitProcess(req)
	if denial != nil || err != nil {
		return nil, denial, err
	}
	return s.current(p), nil, nil
}

// permitProcess asks whether the caller may look at an execution, and returns its record.
func (s *Supervisor) permitProcess(req *api.Request) (p api.Process, denial *api.Receipt, err error) {
	ref := api.ProcessRef{ExecID: req.Read.ExecID, IntentID: req.Read.IntentID}
	denial, err = s.permitRead(req, func(c *call) *api.Error {
		var ok bool
		if p, ok = s.chronicle.process(req.Principal, ref); !ok {
			return unknownExecution(ref)
		}
		c.subject = &p
		c.session, _ = s.registry.find(req.Principal, p.SessionID) // nil once it is history
		return nil
	})
	return p, denial, err
}

// unknownExecution is the answer to an id that does not exist, and to one of somebody else's.
func unknownExecution(ref api.ProcessRef) *api.Error {
	return api.Errorf(api.CodeExecNotFound, "there is no execution %.80s", cmp.Or(ref.ExecID, ref.IntentID))
}

// current adds to a record what no journal has: how much the command has written by now.
func (s *Supervisor) current(p api.Process) *api.Process {
	if x := s.registry.execution(p.Principal, api.ProcessRef{ExecID: p.ExecID}); x != nil {
		p.StdoutBytes, p.StderrBytes = x.written()
		if p.StartedAtNS != 0 {
			p.DurationNS = s.now().UnixNano() - p.StartedAtNS
		}
	}
	return &p
}

// Processes lists the caller's executions, newest first, a page at a time (R239).
func (s *Supervisor) Processes(ctx context.Context, req *api.Request) (*api.ProcessList, *api.Receipt, error) {
	if denial, err := s.permitRead(req, nil); denial != nil || err != nil {
		return nil, denial, err
	}
	list := &api.ProcessList{}
	var err error
	s.chronicle.read(func(state *ledger.State) {
		list.Processes, list.Next, err = state.Processes(ledger.OwnerOf(req.Principal), req.Read, limit(req.Read.Limit))
	})
	if err != nil {
		return nil, nil, err
	}
	for i, p := range list.Processes {
		list.Processes[i] = *s.current(p)
	}
	return list, nil, nil
}

// Wait waits until an execution has ended, for as long as WaitMS says or else for the longest
// that a caller may ask for, and says where it is then.
func (s *Supervisor) Wait(ctx context.Context, req *api.Request) (*api.Process, *api.Receipt, error) {
	p, denial, err := s.permitProcess(req)
	if denial != nil || err != nil {
		return nil, denial, err
	}
	if x := s.registry.execution(req.Principal, api.ProcessRef{ExecID: p.ExecID}); x != nil {
		if err := patiently(ctx, x.call.done, req.Read.WaitMS); err != nil {
			return nil, nil, err
		}
	}
	if now, ok := s.chronicle.process(req.Principal, api.ProcessRef{ExecID: p.ExecID}); ok {
		p = now // it may have been deleted meanwhile
	}
	return s.current(p), nil, nil
}

// longestWait is how long an answer is waited for when the caller does not say.
const longestWait = 30_000 // ms

// patiently waits for done, for ms milliseconds (0: the longest) at most. It fails when the caller has gone.
func patiently(ctx context.Context, done <-chan struct{}, ms int64) error {
	t := time.NewTimer(time.Duration(cmp.Or(ms, longestWait)) * time.Millisecond)
	defer t.Stop()
	select {
	case <-done:
	case <-t.C:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}
