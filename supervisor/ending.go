package supervisor

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/stockade-dev/stockade/supervisor/api"
	"github.com/stockade-dev/stockade/supervisor/ledger"
)

// ending is a reason for the end of a session, and what it means for executions that
// are still running.
type ending struct {
	reason string
	state  string
	cause  api.Code // error_code of the executions that it ends
}

var (
	endClosed     = ending{"closed", stateClosed, api.CodeSessionClosed}
	endSignal     = ending{"signal", stateClosed, api.CodeSessionClosed}
	endExpired    = ending{"expired", stateClosed, api.CodeSessionExpired}
	endPolicy     = ending{"policy", stateClosed, api.CodeSessionClosed}
	endPolicyLost = ending{"policy_lost", stateError, api.CodePolicyLost}
	endIdle       = ending{"idle", stateClosed, api.CodeSessionIdle}
	endShutdown   = ending{"shutdown", stateClosed, api.CodeSessionClosed}
	endRestarted  = ending{"supervisor_restarted", stateClosed, api.CodeSupervisorRestarted}
	endRunnerGone = ending{"runner_unavailable", stateError, api.CodeRunnerUnavailable}
	endUnrecorded = ending{"journal_failed", stateError, api.CodeJournalFailed}
)

// host.session.close

// actClose ends the session, or reports how it ended: the answer is the same every
// time (R030).
func actClose(_ context.Context, s *Supervisor, c *call) (api.Payload, *api.Error) {
	grace := s.grace(c.req.Close.GraceNS)
	if c.req.Close.Mode == "force" {
		grace = 0
	}
	s.endSession(c.session, endClosed, grace)
	return api.Payload{Close: c.session.result()}, nil
}

func failedClose(code api.Code, _ string) api.Payload {
	status := "error"
	if code == api.CodeSessionNotFound {
		status = "not_found"
	}
	return api.Payload{Close: &api.CloseResult{Status: status}}
}

// host.session.signal

func planSignal(_ *Supervisor, c *call) *refusal { return signalGranted(c, c.req.Signal.Signal) }

// signalGranted refuses a signal that the session's grant does not have.
func signalGranted(c *call, asked api.SignalName) *refusal {
	if c.session == nil {
		return nil // it is history, and nothing is there to be signaled
	}
	allowed := c.session.granted().Exec.Signals
	ok := slices.ContainsFunc(allowed, func(entry string) bool {
		granted, _ := api.ParseSignal(entry)
		return granted == asked
	})
	if allowed != nil && !ok {
		return denied(api.Deny{Code: api.CodeSignalNotAllowed, Subject: fmt.Sprintf("signal:%s", asked)})
	}
	return nil
}

// actSignal delivers to every live execution; term and kill also end the session (C7).
func actSignal(ctx context.Context, s *Supervisor, c *call) (api.Payload, *api.Error) {
	ask, ses := c.req.Signal, c.session
	r := &api.SignalResult{Status: "signaled", Signal: string(ask.Signal)}
	over := ses.usable(s.now()) != nil
	if over {
		r.Status = "already_exited"
	}
	switch {
	case ask.Signal == "TERM":
		s.endSession(ses, endSignal, s.grace(ask.GraceNS))
	case ask.Signal == "KILL":
		s.endSession(ses, endSignal, 0)
	case over:
		<-ses.closed
	default:
		for _, x := range ses.executing() {
			if err := s.launcher.Signal(ctx, ses.id, x.id, ask.Signal.Number()); err != nil && !gone(err) {
				fault := runnerError(err)
				return failedSignal(fault.Code, ""), fault
			}
		}
		return api.Payload{Signal: r}, nil
	}
	end := ses.result()
	r.EndedAtNS, r.EndedAt = end.EndedAtNS, end.EndedAt
	return api.Payload{Signal: r}, nil
}

func failedSignal(code api.Code, _ string) api.Payload {
	status := "error"
	if code == api.CodeSessionNotFound {
		status = "not_found"
	}
	return api.Payload{Signal: &api.SignalResult{Status: status, ErrorCode: code}}
}

func (s *Supervisor) grace(asked *int64) time.Duration {
	if asked == nil {
		return s.defaults.Grace
	}
	return time.Duration(*asked)
}

// endSession ends a session in the one order that leaves nothing behind: executions
// first, then the sandbox, then the record. It returns when the end is recorded,
// whoever began it; a call that comes later can only shorten the grace.
func (s *Supervisor) endSession(ses *session, why ending, grace time.Duration) {
	live, first := ses.close(why)
	for _, x := range live {
		x.stop(why.cause, grace, s.now())
	}
	// A commit has the same grace: its receipt says how far it came.
	late := time.AfterFunc(grace, ses.interrupt)
	defer late.Stop()
	if !first {
		if ses.visible() {
			<-ses.closed
		}
		return // a session that is still being built is ended by whoever builds it
	}
	s.thawToEnd(ses)
	s.finishSession(ses)
}

// finishSession is the rest of the end, for whom it is to do: there is one.
func (s *Supervisor) finishSession(ses *session) {
	defer close(ses.closed)
	ses.settling.Wait()
	used, err := s.launcher.Close(s.ctx, ses.id)
	if err != nil && !gone(err) {
		s.log.Warn("close session", "session_id", ses.id, "error", err)
	}
	ses.releaseAll()
	if ses.forget != nil {
		defer ses.forget()
	}
	ses.finish(s.now(), usage(used))
	s.registry.retire(ses)
	s.policies.unpin(ses)
	d := ses.document()
	_, err = s.record(s.ctx, s.journal.Settle, &ledger.SessionEnd{
		Header:    ledger.At(s.now()),
		SessionID: ses.id,
		State:     d.State,
		Reason:    d.Reason,
		Usage:     d.Usage,
	})
	s.metrics.Ended(d.Reason, time.Duration(d.EndedAtNS-d.StartedAtNS))
	s.log.Info("session ended", "session_id", ses.id, "reason", d.Reason, "executions", d.Executions, "recorded", err == nil)
}

// watchRunner ends every session when the runner is gone: nothing of them is left.
func (s *Supervisor) watchRunner() {
	select {
	case <-s.ctx.Done():
		return
	case <-s.launcher.Done():
	}
	s.log.Error("the runner is gone, and with it every session")
	for _, ses := range s.registry.all() {
		s.endSession(ses, endRunnerGone, 0)
	}
}
