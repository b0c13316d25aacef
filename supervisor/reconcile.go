package supervisor

import (
	"context"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/stockade-dev/stockade/internal/failpoint"
	"github.com/stockade-dev/stockade/internal/spool"
	"github.com/stockade-dev/stockade/sandbox"
	"github.com/stockade-dev/stockade/supervisor/api"
	"github.com/stockade-dev/stockade/supervisor/ledger"
)

// reconcile compares what the journal says with what the runner has. What both know goes on;
// what only the journal knows has ended, and is settled, once (R255); what only the runner
// knows was never acknowledged, and is closed.
func (s *Supervisor) reconcile(ctx context.Context) error {
	held, err := s.held(ctx)
	if err != nil {
		return err
	}
	var live []api.Session
	var flying []api.Intent
	s.chronicle.read(func(state *ledger.State) {
		live, flying = state.LiveSessions(), state.InFlight()
		for _, d := range state.EndedSessions() {
			s.registry.restore(endedSession(d))
		}
	})
	var records []ledger.Record
	adopted := &ledger.Adopted{Header: ledger.At(s.now())}
	for _, d := range live {
		ses, err := adoptedSession(d, held[d.SessionID])
		if err == nil {
			s.registry.adopt(ses)
			if err := s.policies.repin(ses); err != nil {
				s.log.Error("a session ends, because what judges it cannot be had", "session_id", ses.id, "policy", ses.policy, "error", err)
			}
			adopted.Sessions = append(adopted.Sessions, ses.id)
			continue
		}
		s.log.Warn("a session did not outlive the restart", "session_id", d.SessionID, "reason", err)
		ended := endedSession(d)
		ended.end = endRestarted
		ended.finish(s.now(), api.Usage{})
		records = append(records, &ledger.SessionEnd{
			Header: ledger.At(s.now()), SessionID: ended.id, State: ended.state, Reason: ended.end.reason, Usage: ended.usage,
		})
		s.registry.restore(ended)
	}
	var going []*call
	waiting := 0
	for _, in := range flying {
		if c, err := s.waitingCall(in); err == nil {
			going = append(going, c)
			waiting++
			continue
		} else if in.State == api.StateQueued {
			s.log.Warn("what waited for leave cannot go on", "intent_id", in.IntentID, "reason", err)
		}
		c, err := s.adoptedCall(in, held)
		if err == nil {
			going = append(going, c)
			adopted.Executions = append(adopted.Executions, in.ExecID)
			continue
		}
		r, err := s.interrupted(in, err.Error(), held[in.SessionID] != nil)
		if err != nil {
			return fmt.Errorf("replay: %w", err)
		}
		records = append(records, &ledger.Settled{Header: ledger.At(s.now()), Receipt: r})
	}
	settled := len(records)
	if len(adopted.Sessions) > 0 {
		records = append(records, adopted)
	}
	// In parts, because one Append has a limit and a crash may have left many. A crash
	// between two of them leaves the rest for the next replay.
	for part := range slices.Chunk(records, appendAtOnce) {
		failpoint.Hit("supervisor.reconcile")
		if _, err := s.record(ctx, s.journal.Settle, part...); err != nil {
			return fmt.Errorf("replay: %w", err)
		}
	}
	if len(records) > 0 || waiting > 0 {
		s.log.Warn("took over from an earlier supervisor", "settled", settled, "waiting_for_leave", waiting, "sessions", len(adopted.Sessions), "executions", len(adopted.Executions))
	}
	s.metrics.Adopted(len(adopted.Sessions), len(adopted.Executions))
	s.closeUnknown(ctx, held, live)
	s.goOn(live, going)
	return nil
}

// appendAtOnce is how many records of a reconciliation go into one Append.
const appendAtOnce = 256

// held is what the runner has, by session.
func (s *Supervisor) held(ctx context.Context) (map[string]*sandbox.Held, error) {
	list, err := s.launcher.Sessions(ctx)
	if err != nil {
		return nil, fmt.Errorf("ask the runner for its sessions: %w", err)
	}
	held := make(map[string]*sandbox.Held, len(list))
	for i := range list {
		held[list[i].Session] = &list[i]
	}
	return held, nil
}

// closeUnknown closes what the runner has and no receipt names, and forgets executions whose
// receipts are durable.
func (s *Supervisor) closeUnknown(ctx context.Context, held map[string]*sandbox.Held, live []api.Session) {
	known := map[string]bool{}
	for _, d := range live {
		known[d.SessionID] = true
	}
	for _, id := range slices.Sorted(maps.Keys(held)) {
		if !known[id] {
			if _, err := s.launcher.Close(ctx, id); err != nil && !gone(err) {
				s.log.Warn("close session", "session_id", id, "error", err)
			}
			continue
		}
		for _, x := range held[id].Execs {
			if s.registry.execs[x.ID] == nil {
				s.discard(ctx, id, x.ID)
			}
		}
	}
}

// discard has the runner forget an execution whose receipt is durable. What it left in the
// background keeps its pipes.
func (s *Supervisor) discard(ctx context.Context, session, exec string) {
	defer s.launcher.Forget(session, exec)
	s.registry.mu.Lock()
	ses := s.registry.sessions[session]
	s.registry.mu.Unlock()
	if ses == nil || !ses.granted().Exec.Background {
		return
	}
	proc, err := s.launcher.Attach(ctx, session, exec)
	if err != nil {
		return // nothing is left of it
	}
	ses.hold(proc)
	s.background.Go(func() {
		var both sync.WaitGroup
		both.Go(func() { io.Copy(io.Discard, proc.Stdout) })
		io.Copy(io.Discard, proc.Stderr)
		both.Wait()
		ses.release(proc)
	})
}

// interrupted is the receipt of an operation that a restart cut off. stands says that the runner has its session.
func (s *Supervisor) interrupted(in api.Intent, why string, stands bool) (*api.Receipt, error) {
	req, _, err := s.intentAt(in.EmittedAtSeq)
	if err != nil {
		return nil, err
	}
	r := &api.Receipt{
		Version:       1,
		IntentID:      in.IntentID,
		Op:            in.Op,
		RequestedKind: req.RequestedKind,
		Key:           in.Key,
		Principal:     in.Principal,
		SessionID:     in.SessionID,
		ExecID:        in.ExecID,
		FrameSeq:      in.FrameSeq,
		Outcome:       api.OutcomeFaulted,
		Status:        "error",
		ErrorCode:     api.CodeSupervisorRestarted,
		ErrorMessage:  why + "; " + leftOpen(in.Op, stands),
	}
	if op, ok := operations[in.Op]; ok {
		r.Payload = op.failed(api.CodeSupervisorRestarted, r.ErrorMessage)
	}
	if r.Payload.Exec != nil {
		// What it wrote has been read by whoever followed it, and is still there.
		if log, err := s.spool.Recover(in.ExecID, math.MaxInt64); err == nil {
			r.Payload.Exec.StdoutBytes, r.Payload.Exec.StderrBytes = log.Total(spool.Stdout), log.Total(spool.Stderr)
			log.Close()
		}
	}
	s.decidedBefore(in, r)
	r.AdmittedAtNS, r.AdmittedAt = in.AdmittedAtNS, in.AdmittedAt
	r.SettledAtNS, r.SettledAt = stamp(s.now())
	return r, nil
}

// leftOpen is what a restart in the middle of an operation leaves open, for its receipt to say: what is known of whether it began, and
// of what it may have done. Of an execution the reason says it, by what the runner has.
func leftOpen(op api.Op, stands bool) string {
	if by, ok := tellsItself[op]; ok {
		return by[stands]
	}
	return torn[op]
}

// tellsItself are the operations of which the runner knows whether they began, by whether it has the session.
var tellsItself = map[api.Op]map[bool]string{
	api.OpSessionOpen: {
		true:  "the session had been built, and is closed: it was nobody's yet",
		false: "the session was not known to have been built, and nothing of it is left",
	},
	api.OpSessionClose: {
		true:  "the session is still there: the close had not begun, or not come to its end",
		false: "the session has ended",
	},
}

// torn says the same of those of which nobody does: a mark that they began would be a write more for each.
var torn = map[api.Op]string{
	api.OpExec:             "nothing is started by a restart",
	api.OpShellOpen:        "nothing is started by a restart",
	api.OpWorkspaceCommit:  "it may have been applied in part: each file is the old one or the new one",
	api.OpWorkspaceDiscard: "the overlay may have been emptied",
	api.OpFileRead:         changesNothing,
	api.OpFileGrep:         changesNothing,
	api.OpFileGlob:         changesNothing,
	api.OpFileStat:         changesNothing,
	api.OpFileExists:       changesNothing,
	api.OpFileList:         changesNothing,
	api.OpFileWrite:        wholeOrNot,
	api.OpFileEdit:         wholeOrNot,
	api.OpFilePatch:        wholeOrNot,
	api.OpFileMkdir:        wholeOrNot,
	api.OpFileMove:         wholeOrNot,
	api.OpFileRemove:       "a part of what was below the directory may be removed",
	api.OpSessionNarrow:    "the network may be as narrow as was asked for; ask again to be certain",
	api.OpSessionForward:   "its connections have been cut off",
	api.OpSessionSignal:    "the signal may have been delivered",
	api.OpSessionPause:     "the session shows whether it is paused",
	api.OpSessionResume:    "the session shows whether it is paused",
	api.OpProcessSignal:    "the signal may have been delivered",
	api.OpProcessInput:     "what was sent may have been written, in part",
	api.OpProcessModify:    "the time limit is the old one or the new one",
	api.OpProcessPause:     "the execution shows whether it is paused",
	api.OpProcessResume:    "the execution shows whether it is paused",
	api.OpProcessCancel:    "the execution may be ending",
	api.OpProcessStop:      "some of the executions may be ending",
	api.OpProcessDelete:    "nothing has been deleted: the receipt would have done it",
	api.OpShellInput:       "what was sent may have been typed, in part",
	api.OpShellRun:         "the command may have been typed, and may go on",
	api.OpShellResize:      "the terminal has the old size or the new one",
	api.OpShellAttach:      "what was typed until then was typed",
	api.OpShellClose:       "the shell may be ending",
	api.OpApprove:          "what waited for leave shows whether it was given",
	api.OpDeny:             "what waited for leave shows whether it was denied",
	api.OpDrain:            "a supervisor that drained has ended",
	api.OpLogLevel:         "the level was that of a supervisor that has ended",
	api.OpPolicyActivate:   "the status of the policy shows which revision decides",
	api.OpBlobPut:          "the content may have been stored: to put it again changes nothing",
}

const (
	wholeOrNot     = "the change is whole or has not happened"
	changesNothing = "it changes nothing: ask again"
)

// endedSession is a session of the past as the registry has it.
func endedSession(d api.Session) *session {
	ses := &session{
		id:         d.SessionID,
		principal:  d.Principal,
		labels:     d.Labels,
		intent:     d.OpenIntent,
		policy:     d.PolicyDigest,
		grant:      d.Grant,
		state:      d.State,
		end:        ending{reason: d.Reason, state: d.State},
		started:    time.Unix(0, d.StartedAtNS),
		expires:    instant(d.ExpiresAtNS),
		ended:      instant(d.EndedAtNS),
		executions: d.Executions,
		usage:      d.Usage,
		narrowed:   d.Narrowed,
		silent:     d.Silent,
		degraded:   d.Degraded,
		live:       map[string]*execution{},
		closed:     make(chan struct{}),
	}
	for _, why := range []ending{endExpired, endIdle} {
		if d.Reason == why.reason {
			ses.end = why
		}
	}
	close(ses.closed)
	return ses
}

// instant is the inverse of stamp.
func instant(ns int64) time.Time {
	if ns == 0 {
		return time.Time{}
	}
	return time.Unix(0, ns)
}
