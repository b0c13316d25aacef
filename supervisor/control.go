package supervisor

import (
	"context"
	"log/slog"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/stockade-dev/stockade/internal/failpoint"
	"github.com/stockade-dev/stockade/rego"
	"github.com/stockade-dev/stockade/supervisor/api"
	"github.com/stockade-dev/stockade/supervisor/ledger"
)

// control is what an operation on something that is there already has of it, on its way through the
// pipeline.
type control struct {
	target  *execution // nil once it has ended: then there is its record only
	overlay string     // of a workspace operation: its inside path
	turn    *turn      // of an input
	timeout int64      // of a modify: effective
	doomed  bool       // of a delete: the record is this one's to take out of view
}

// admitControl finds the execution that an operation is on, live or ended. Its record and its
// session are what policy judges it by.
func admitControl(s *Supervisor, c *call) *refusal {
	ref := *c.req.Ref()
	record, ok := s.chronicle.process(c.req.Principal, ref)
	if !ok {
		return faulted(unknownExecution(ref))
	}
	byID := api.ProcessRef{ExecID: record.ExecID}
	// What has a record that is not final is in the registry, unless it ended just now.
	if c.control.target = s.registry.execution(c.req.Principal, byID); c.control.target == nil && !record.State.Final() {
		if record, ok = s.chronicle.process(c.req.Principal, byID); !ok {
			return faulted(unknownExecution(ref))
		}
	}
	c.subject = &record
	c.session, _ = s.registry.find(c.req.Principal, record.SessionID) // nil once it is history
	return nil
}

// hasEnded reports whether the receipt of the execution is there.
func (s *Supervisor) hasEnded(c *call) bool {
	return c.control.target == nil || isClosed(c.control.target.call.done)
}

// controlled is the payload of an operation on an execution.
func (s *Supervisor) controlled(c *call, status string) api.Payload {
	r := &api.ControlResult{ExecID: c.subject.ExecID, IntentID: c.subject.IntentID, Status: status, State: c.subject.State}
	if now, ok := s.chronicle.process(c.req.Principal, api.ProcessRef{ExecID: r.ExecID}); ok {
		r.State = now.State
	}
	return api.Payload{Control: r}
}

// faultedControl is what there is to say of an operation on an execution that failed.
func (s *Supervisor) faultedControl(c *call, fault *api.Error) (api.Payload, *api.Error) {
	p := s.controlled(c, api.ControlError)
	p.Control.ErrorCode = fault.Code
	return p, fault
}

// tooLate is the answer about an execution that has ended. Where only its receipt is missing, that
// is a moment to wait in: who was told that it has ended must not read that it runs.
func (s *Supervisor) tooLate(c *call) (api.Payload, *api.Error) {
	if x := c.control.target; x != nil {
		limit := time.NewTimer(2 * drainLimit)
		defer limit.Stop()
		select {
		case <-x.call.done:
		case <-limit.C:
		case <-s.left:
		}
	}
	p := s.controlled(c, api.ControlFinished)
	p.Control.ErrorCode = api.CodeExecEnded
	return p, errEnded
}

// failedControl is the payload when nothing was done.
func failedControl(code api.Code, _ string) api.Payload {
	r := &api.ControlResult{Status: api.ControlError, ErrorCode: code}
	if code == api.CodeExecNotFound || code == api.CodeSessionNotFound {
		r.Status = api.ControlNotFound
	}
	return api.Payload{Control: r}
}

// host.process.signal

// deliverLimit is how long a signal may take: init, which delivers it, can be kept from it.
const deliverLimit = 5 * time.Second

func planDeliver(_ *Supervisor, c *call) *refusal { return signalGranted(c, c.req.Deliver.Signal) }

// actDeliver delivers one signal, and promises nothing more (C7). One that is frozen gets it when
// it goes on.
func actDeliver(ctx context.Context, s *Supervisor, c *call) (api.Payload, *api.Error) {
	finished := func() (api.Payload, *api.Error) {
		p, _ := s.tooLate(c)
		p.Control.ErrorCode = ""
		return p, nil // as for a session: that it ended is no fault of a signal's
	}
	x := c.control.target
	switch {
	case s.hasEnded(c):
		return finished()
	case !x.hasStarted():
		return s.faultedControl(c, errNotStarted)
	}
	ctx, cancel := context.WithTimeout(ctx, deliverLimit)
	defer cancel()
	err := s.launcher.Signal(ctx, x.session.id, x.id, c.req.Deliver.Signal.Number())
	switch {
	case err == nil:
		return s.controlled(c, api.ControlSignaled), nil
	case gone(err):
		return finished()
	}
	return s.faultedControl(c, runnerError(err))
}

var errNotStarted = api.Errorf(api.CodeExecNotStarted, "the execution has not been started yet")

func (x *execution) hasStarted() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return !x.started.IsZero()
}

// host.process.modify

// planModify bounds the new time limit as the first one was: by the session's grant, and by what
// policy said of this command.
func planModify(s *Supervisor, c *call) *refusal {
	x := c.control.target
	if x == nil || c.session == nil {
		return nil // there is nothing to modify; act says so
	}
	c.control.timeout, c.clamped = rego.MeetModify(c.req.Modify.TimeoutNS, *c.session.granted(), x.call.decision.Limits)
	if left := x.lifetime(c.at); 0 < left && int64(left) < c.control.timeout {
		p := execPlan{clamped: c.clamped}
		p.note("timeout_ns", c.req.Modify.TimeoutNS, int64(left))
		c.clamped = p.clamped
	}
	return nil
}

// lifetime is how long the execution can last from its start on before its session ends, or 0 when that
// has no end.
func (x *execution) lifetime(now time.Time) time.Duration {
	left := x.session.left(now)
	x.mu.Lock()
	defer x.mu.Unlock()
	if left > 0 && !x.started.IsZero() {
		left += now.Sub(x.started)
	}
	return left
}

func actModify(_ context.Context, s *Supervisor, c *call) (api.Payload, *api.Error) {
	if s.hasEnded(c) {
		return s.tooLate(c)
	}
	x, timeout := c.control.target, time.Duration(c.control.timeout)
	effective := timeout
	if left := x.lifetime(s.now()); 0 < left && left <= timeout {
		timeout, effective = 0, left // as in planExec: the session's end is its own
	}
	if !x.limit(timeout) {
		return s.tooLate(c)
	}
	if x.hasStarted() {
		x.tell(s) // what it was told comes after that it runs
	}
	x.frame(s, api.FrameModified, api.FramePayload{TimeoutNS: c.control.timeout})
	p := s.controlled(c, api.ControlAccepted)
	p.Control.TimeoutNS = int64(effective)
	return p, nil
}

// limit sets the time limit, of what is not being ended already.
func (x *execution) limit(timeout time.Duration) bool {
	x.mu.Lock()
	if x.cause != "" {
		x.mu.Unlock()
		return false
	}
	x.timeout = timeout
	x.mu.Unlock()
	x.notify()
	return true
}

// host.process.pause and resume

// host.process.cancel

// actCancel ends the whole tree of an execution, and waits until it has ended. Of a cancel and an end
// that come together one counts: the one that the receipt of the execution names, for both callers (R235).
func actCancel(_ context.Context, s *Supervisor, c *call) (api.Payload, *api.Error) {
	if s.hasEnded(c) {
		return s.canceled(c)
	}
	x, grace := c.control.target, s.grace(c.req.Cancel.GraceNS)
	x.stop(api.CodeCanceled, grace, s.now())
	if cause, at := x.stopping(); grace > 0 && x.hasStarted() { // whoever comes after us has to keep the promise
		x.tell(s)
		x.frame(s, api.FrameStopping, api.FramePayload{Cause: cause, KillAtNS: at.UnixNano()})
	}
	if wait := c.req.Cancel.Wait; wait != nil && !*wait {
		return s.controlled(c, api.ControlCancelRequested), nil
	}
	if err := s.untilEnd(x, grace); err != nil {
		return api.Payload{}, err
	}
	if !isClosed(x.call.done) { // its files are being collected, or the disk is slow: it will have been ended
		return s.controlled(c, api.ControlCancelRequested), nil
	}
	return s.canceled(c)
}

// untilEnd waits for the end of an execution that has so much grace, and not for ever.
func (s *Supervisor) untilEnd(x *execution, grace time.Duration) *api.Error {
	limit := time.NewTimer(endLimit(grace))
	defer limit.Stop()
	select {
	case <-x.call.done:
	case <-limit.C:
	case <-s.left:
		return errLeft
	}
	return nil
}

// endLimit is how long the end of an execution may take that has so much grace.
func endLimit(grace time.Duration) time.Duration {
	const more = reapLimit + drainLimit + time.Second
	return min(grace, math.MaxInt64-more) + more
}

// canceled is the outcome of a cancel, as the execution's receipt has it (C9, R233).
func (s *Supervisor) canceled(c *call) (api.Payload, *api.Error) {
	p := s.controlled(c, api.ControlFinished)
	state, code := c.subject.State, c.subject.ErrorCode
	if x := c.control.target; x != nil {
		if x.call.receipt == nil {
			return p, faultOf(x.call.err) // without a receipt nobody can be told how it ended
		}
		code = x.call.receipt.ErrorCode
		state = ledger.FinalState(x.call.receipt)
	}
	p.Control.State = state
	switch {
	case state == api.StateCanceled:
		p.Control.Status = api.ControlCanceled
	case code == api.CodeWaitFailed:
		p.Control.Status = api.ControlNotCancellable
	}
	return p, nil
}

// host.process.delete

// actDelete has the record of an execution go from view (C10). That is the receipt's doing, and the
// output goes after it.
func actDelete(_ context.Context, s *Supervisor, c *call) (api.Payload, *api.Error) {
	ref := api.ProcessRef{ExecID: c.subject.ExecID}
	record, ok := s.chronicle.process(c.req.Principal, ref)
	if ok && !record.State.Final() {
		p := s.controlled(c, api.ControlConflict)
		p.Control.ErrorCode = api.CodeExecActive
		return p, api.Errorf(api.CodeExecActive, "execution %s has not ended; cancel it first", ref.ExecID)
	}
	// Who is first has taken the record out of view when he gives it free.
	if c.control.doomed = s.registry.doom(ref.ExecID); c.control.doomed {
		_, ok = s.chronicle.process(c.req.Principal, ref)
	}
	if !ok || !c.control.doomed {
		p := s.controlled(c, api.ControlNotFound)
		p.Control.ErrorCode = api.CodeExecNotFound
		return p, unknownExecution(ref)
	}
	if x := c.control.target; x != nil {
		<-x.call.done // its receipt is durable
	}
	return s.controlled(c, api.ControlDeleted), nil
}

func settledDelete(s *Supervisor, c *call) {
	if !c.control.doomed {
		return
	}
	defer s.registry.spare(c.subject.ExecID)
	if c.receipt == nil || c.receipt.Outcome != api.OutcomeOK {
		return
	}
	failpoint.Hit("supervisor.exec.deleted")
	if err := s.spool.Remove(c.subject.ExecID); err != nil {
		s.log.Warn("delete", "exec_id", c.subject.ExecID, "error", err)
	}
}

// host.process.stop

func admitStop(s *Supervisor, c *call) *refusal {
	if c.req.InSession() == "" {
		return nil
	}
	return admitSession(s, c)
}

// actStop cancels every live execution of the caller's that fits, and says of how many the end was
// its doing (R246).
func actStop(_ context.Context, s *Supervisor, c *call) (api.Payload, *api.Error) {
	ask, grace := c.req.Stop, s.grace(c.req.Stop.GraceNS)
	chosen := slices.DeleteFunc(s.registry.executions(c.req.Principal), func(x *execution) bool {
		return !fits(ask.SessionID, x.session.id) || !labelled(x.req.Labels, ask.Labels)
	})
	for _, x := range chosen {
		x.stop(api.CodeCanceled, grace, s.now())
	}
	limit := time.After(endLimit(grace))
	r := &api.ControlResult{Status: api.ControlStopped}
	for _, x := range chosen {
		select {
		case <-x.call.done:
		case <-limit:
			limit = closedTime // of the others those that have ended
		case <-s.left:
			return api.Payload{}, errLeft
		}
		if isClosed(x.call.done) && x.call.receipt != nil && x.call.receipt.ErrorCode == api.CodeCanceled {
			r.Count++
		}
	}
	return api.Payload{Control: r}, nil
}

// closedTime is a time that has come for everybody.
var closedTime = func() <-chan time.Time { c := make(chan time.Time); close(c); return c }()

// host.session.pause and resume

// admin.drain

// actDrain keeps what is new away, until it is undone or the supervisor ends (R134).
func actDrain(_ context.Context, s *Supervisor, c *call) (api.Payload, *api.Error) {
	s.draining.Store(!c.req.Drain.Undo)
	r := &api.ControlResult{Status: api.ControlDraining}
	if c.req.Drain.Undo {
		r.Status = api.ControlServing
	}
	return api.Payload{Control: r}, nil
}

// admin.log.level

// actLogLevel has the log say more or less from here on. It is a state of the process, as draining is.
func actLogLevel(_ context.Context, s *Supervisor, c *call) (api.Payload, *api.Error) {
	if s.level == nil {
		return failedControl(api.CodeLogFixed, ""), api.Errorf(api.CodeLogFixed, "the level of this supervisor's log does not change")
	}
	before := s.level.Level()
	var level slog.Level
	if err := level.UnmarshalText([]byte(c.req.Log.Level)); err != nil {
		return failedControl(api.CodeInvalidParams, ""), api.Errorf(api.CodeInvalidParams, "%v", err)
	}
	s.level.Set(level)
	// By whom is said at a level at which every log says it.
	s.log.Log(context.Background(), max(level, before, slog.LevelInfo), "the log has another level", "level", levelName(level), "previous", levelName(before), "uid", c.req.Principal.UID)
	return api.Payload{Control: &api.ControlResult{Status: api.ControlSet, LogLevel: levelName(level), Previous: levelName(before)}}, nil
}

// levelName is a level as the interface says it.
func levelName(l slog.Level) string { return strings.ToLower(l.String()) }
