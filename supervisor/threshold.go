package supervisor

import (
	"context"
	"fmt"
	"time"

	"github.com/stockade-dev/stockade/sandbox"
	"github.com/stockade-dev/stockade/supervisor/api"
	"github.com/stockade-dev/stockade/supervisor/ledger"
)

// A session is said to be near a ceiling once it uses more than so many percent of it, and again only
// after it used less than so many.
const (
	nearCeiling = 90
	farFromIt   = 80
)

// loadWatch looks at what a session uses, now and then while something runs in it. Its session's
// mu guards it.
type loadWatch struct {
	interval time.Duration
	fire     func()

	timer *time.Timer     // nil while nothing runs
	last  sandbox.Load    // as it was seen last
	near  map[string]bool // ceilings that it is said to be near
	lost  bool            // it is said that its network is lost
}

// watchLoad begins to look, if something runs.
func (s *session) watchLoad() {
	if s.load.timer == nil && s.load.fire != nil && len(s.live) > 0 {
		s.load.timer = time.AfterFunc(s.load.interval, s.load.fire)
	}
}

// lookAtLoad says so when a session has come near a ceiling, and looks again later.
func (s *Supervisor) lookAtLoad(ses *session) {
	ses.mu.Lock()
	ses.load.timer = nil
	busy, most := len(ses.live) > 0 && ses.state == stateReady, ses.grant.Ceilings
	ses.mu.Unlock()
	if !busy {
		return // the next execution has it begin again
	}
	ctx, cancel := context.WithTimeout(s.ctx, s.defaults.LoadInterval)
	defer cancel()
	now, err := s.launcher.Load(ctx, ses.id)
	if err == nil {
		ses.sawLoad(now)
		if now.NetworkLost {
			s.networkLost(ses)
		}
		for _, use := range []struct {
			what       string
			used, most int64
		}{
			{"memory", now.MemoryBytes, most.MemoryBytes},
			{"pids", now.PIDs, most.PIDs},
		} {
			if ses.cameNear(use.what, use.used, use.most) {
				_ = s.notice(ses, &ledger.Notice{
					Kind:   api.NoticeThreshold,
					Reason: use.what,
					Detail: fmt.Sprintf("%d of %d", use.used, use.most),
				})
			}
		}
	} else if !gone(err) {
		s.log.Debug("load", "session_id", ses.id, "error", err)
	}
	ses.mu.Lock()
	defer ses.mu.Unlock()
	if ses.state == stateReady {
		ses.watchLoad()
	}
}

func (s *session) sawLoad(l sandbox.Load) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.load.last = l
}

// networkLost says, once, that a session has lost its network. A supervisor that comes later says it again.
func (s *Supervisor) networkLost(ses *session) {
	ses.mu.Lock()
	said := ses.load.lost
	ses.load.lost = true
	ses.mu.Unlock()
	if !said {
		_ = s.notice(ses, &ledger.Notice{Kind: api.NoticeNetwork, Reason: string(api.CodeNetworkFailed), Detail: "the relay has ended; open another session to go on"})
	}
}

// cameNear reports whether the session has come near a ceiling and was not near it before.
func (s *session) cameNear(what string, used, most int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.load.near == nil {
		s.load.near = map[string]bool{}
	}
	switch {
	case most <= 0:
	case used > most/100*nearCeiling+most%100*nearCeiling/100:
		was := s.load.near[what]
		s.load.near[what] = true
		return !was
	case used < most/100*farFromIt+most%100*farFromIt/100:
		delete(s.load.near, what)
	}
	return false
}
