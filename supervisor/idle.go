package supervisor

import (
	"fmt"
	"time"

	"github.com/stockade-dev/stockade/supervisor/api"
	"github.com/stockade-dev/stockade/supervisor/ledger"
)

// idleClock ends a session in which nothing happens (R021, C5). Activity is whatever names the
// session or an execution of it, and every execution that lives: with it its input and its output. A shell that waits at
// its prompt is none. It
// stands still while the session is paused (R079). Its session's mu guards it.
//
//	activity ──after──▶ IDLE_WARNING ──grace──▶ IDLE_TIMEOUT, closing
//	    ▲                    │
//	    └──── activity ──────┘
type idleClock struct {
	after, grace time.Duration // after 0: never
	fire         func()        // when the timer goes off

	last   time.Time // activity
	warned bool      // there was none since the warning
	timer  *time.Timer
}

// touch notes activity.
func (s *session) touch(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.touchLocked(now)
}

func (s *session) touchLocked(now time.Time) {
	s.idle.last, s.idle.warned = now, false
	if s.idle.timer == nil && s.canIdle() { // an armed timer finds out when it goes off
		s.rouseIn(s.idle.after)
	}
}

// canIdle reports whether the clock runs.
func (s *session) canIdle() bool {
	if s.idle.after <= 0 || s.state != stateReady || s.paused {
		return false
	}
	for _, x := range s.live {
		if !x.shell.idle() { // one that waits at its prompt is no activity
			return false
		}
	}
	return true
}

// rouseIn arms the timer.
func (s *session) rouseIn(d time.Duration) { s.idle.timer = time.AfterFunc(d, s.idle.fire) }

// idleAt is when the session ends if nothing happens; zero when it does not.
func (s *session) idleAt() time.Time {
	if !s.canIdle() {
		return time.Time{}
	}
	return s.idle.last.Add(s.idle.after + s.idle.grace)
}

// idleStep is what there is to do when the timer has gone off: to warn, to end, or nothing. The end has
// begun when it returns, so that nothing can come in between.
func (s *session) idleStep(now time.Time) (warn, end bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.idle.timer = nil
	if !s.canIdle() {
		return false, false // the next activity arms it
	}
	rest := s.idle.last.Add(s.idle.after).Sub(now)
	switch {
	case s.idle.warned:
		s.closeLocked(endIdle)
		return false, true
	case rest > 0:
		s.rouseIn(rest)
		return false, false
	}
	s.idle.warned = true
	return true, false
}

// warnedOf begins the grace, once the warning can be seen; there may have been activity.
func (s *session) warnedOf() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.idle.timer == nil && s.canIdle() {
		s.rouseIn(s.idle.grace)
	}
}

// idle warns that a session is about to end, and ends it if nobody minds (R022, R023).
func (s *Supervisor) idle(ses *session) {
	warn, end := ses.idleStep(s.now())
	switch {
	case warn:
		detail := fmt.Sprintf("no activity for %v; the session ends in %v", ses.idle.after, ses.idle.grace)
		if err := s.notice(ses, &ledger.Notice{Kind: api.NoticeIdle, Detail: detail}); err == nil {
			ses.warnedOf()
		} else {
			ses.touch(s.now()) // nobody could be warned
		}
	case end:
		_ = s.notice(ses, &ledger.Notice{Kind: api.NoticeTimeout, Detail: fmt.Sprintf("no activity for %v", ses.idle.after+ses.idle.grace)})
		for _, x := range ses.executing() { // shells that waited
			x.stop(endIdle.cause, s.defaults.Grace, s.now())
		}
		s.finishSession(ses)
	}
}
