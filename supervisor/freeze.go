package supervisor

import (
	"context"
	"time"

	"github.com/stockade-dev/stockade/internal/failpoint"
	"github.com/stockade-dev/stockade/supervisor/api"
	"github.com/stockade-dev/stockade/supervisor/ledger"
)

// freezeLimit is how long a tree may take to stop where it is: a process that waits for a disk
// does not stop.
const freezeLimit = 5 * time.Second

// host.process.pause and resume

func actPause(ctx context.Context, s *Supervisor, c *call) (api.Payload, *api.Error) {
	return s.freeze(ctx, c, true)
}

func actResume(ctx context.Context, s *Supervisor, c *call) (api.Payload, *api.Error) {
	return s.freeze(ctx, c, false)
}

// freeze stops an execution where it stands, or lets it go on. Its time limit goes on either way.
func (s *Supervisor) freeze(ctx context.Context, c *call, frozen bool) (api.Payload, *api.Error) {
	if s.hasEnded(c) {
		return s.tooLate(c)
	}
	x := c.control.target
	ctx, cancel := context.WithTimeout(ctx, freezeLimit)
	defer cancel()
	if !x.lockFreezer(ctx) {
		return s.faultedControl(c, api.Errorf(api.CodeWaitFailed, "the execution was not to be had within %v", freezeLimit))
	}
	defer x.unlockFreezer()
	status, kind := api.ControlResumed, api.FrameResumed
	if frozen {
		status, kind = api.ControlPaused, api.FramePaused
	}
	switch cause, _ := x.stopping(); {
	case !x.hasStarted():
		return s.faultedControl(c, errNotStarted)
	case frozen && cause != "": // it has to hear that it is to end
		return s.tooLate(c)
	case x.isPaused() == frozen:
		return s.controlled(c, status), nil
	}
	x.tell(s) // paused is what runs
	if err := s.launcher.Freeze(ctx, x.session.id, x.id, frozen); err != nil {
		if gone(err) {
			return s.tooLate(c)
		}
		if frozen { // a part of it may have stopped
			s.thaw(x.session.id, x.id)
		}
		return s.faultedControl(c, runnerError(err))
	}
	x.setPaused(frozen)
	failpoint.Hit("supervisor.exec.frozen")
	x.frame(s, kind, x.totals())
	return s.controlled(c, status), nil
}

// thaw undoes a freeze, of an execution or with exec "" of a session.
func (s *Supervisor) thaw(session, exec string) {
	ctx, cancel := context.WithTimeout(s.ctx, freezeLimit)
	defer cancel()
	if err := s.launcher.Freeze(ctx, session, exec, false); err != nil && !gone(err) {
		s.log.Warn("thaw", "session_id", session, "exec_id", exec, "error", err)
	}
}

// thaw lets the execution go on, if it is paused. Who pauses it now has seen that it is to end.
func (x *execution) thaw(ctx context.Context, s *Supervisor) {
	if !x.lockFreezer(ctx) {
		return
	}
	defer x.unlockFreezer()
	if !x.isPaused() {
		return
	}
	if err := s.launcher.Freeze(ctx, x.session.id, x.id, false); err != nil {
		s.log.Debug("thaw", "session_id", x.session.id, "exec_id", x.id, "error", err)
		return
	}
	x.setPaused(false)
}

// lockFreezer keeps others from freezing and thawing the execution. It reports false when ctx ended first.
func (x *execution) lockFreezer(ctx context.Context) bool {
	select {
	case x.freezer <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

func (x *execution) unlockFreezer() { <-x.freezer }

func (x *execution) isPaused() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.paused
}

func (x *execution) setPaused(paused bool) {
	x.mu.Lock()
	x.paused = paused
	x.mu.Unlock()
}

// host.session.pause and resume

func actSessionPause(ctx context.Context, s *Supervisor, c *call) (api.Payload, *api.Error) {
	return s.freezeSession(ctx, c, true)
}

func actSessionResume(ctx context.Context, s *Supervisor, c *call) (api.Payload, *api.Error) {
	return s.freezeSession(ctx, c, false)
}

// freezeSession stops all that runs in a session where it stands, or lets it go on (R079). Nothing is
// started meanwhile; what waits for its turn goes on waiting.
func (s *Supervisor) freezeSession(ctx context.Context, c *call, frozen bool) (api.Payload, *api.Error) {
	ses := c.session
	fail := func(fault *api.Error) (api.Payload, *api.Error) { return failedControl(fault.Code, ""), fault }
	ses.freezing.Lock()
	defer ses.freezing.Unlock()
	status, state := api.ControlResumed, stateReady
	if frozen {
		status, state = api.ControlPaused, stateQuiesced
	}
	done := api.Payload{Control: &api.ControlResult{Status: status}}
	if fault := ses.usable(s.now()); fault != nil {
		return fail(fault)
	}
	if ses.isPaused() == frozen {
		return done, nil
	}
	if frozen {
		ses.setPaused(true, s.now()) // nothing is started from here on
	}
	ctx, cancel := context.WithTimeout(ctx, freezeLimit)
	defer cancel()
	if err := s.launcher.Freeze(ctx, ses.id, "", frozen); err != nil {
		if frozen { // a part of it may have stopped
			s.thaw(ses.id, "")
			ses.setPaused(false, s.now())
		}
		return fail(runnerError(err))
	}
	if !frozen {
		ses.setPaused(false, s.now())
	}
	failpoint.Hit("supervisor.session.frozen")
	if err := s.notice(ses, &ledger.Notice{Kind: api.NoticeSession, State: state}); err != nil {
		return fail(faultOf(err))
	}
	return done, nil
}

func (s *session) isPaused() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.paused
}

// setPaused keeps the session from starting anything, or no longer.
func (s *session) setPaused(paused bool, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.paused = paused
	s.touchLocked(now) // frozen time is not idle (R079)
	s.proceed()
}

// thawToEnd lets what is frozen hear that it is to end. Nothing is frozen after it: the session is not
// usable any more.
func (s *Supervisor) thawToEnd(ses *session) {
	ses.freezing.Lock()
	defer ses.freezing.Unlock()
	if ses.isPaused() {
		s.thaw(ses.id, "")
	}
}
