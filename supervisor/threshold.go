package supervisor

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/stockade-dev/stockade/sandbox"
	"github.com/stockade-dev/stockade/supervisor/api"
	"github.com/stockade-dev/stockade/supervisor/ledger"
	"github.com/stockade-dev/stockade/supervisor/telemetry"
)

// What is near a ceiling is said once when it comes to use so many percent of it, and again only after it used less by
// rearm percent.
var nearCeiling = []int64{80, 95}

const rearm = 10

// loadWatch looks at what a session uses, now and then while something runs in it. Its session's
// mu guards it.
type loadWatch struct {
	interval time.Duration
	fire     func()

	timer *time.Timer   // nil while nothing runs
	last  sandbox.Load  // as it was seen last
	at    time.Time     // when that was; zero: never
	asked time.Time     // when somebody asked for it to be seen
	near  map[bound]int // how many of nearCeiling it is said to have come to
	lost  bool          // it is said that its network is lost

	output          int64 // bytes that its executions wrote, since this supervisor has it
	denied, refused int64 // see api.Load
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
	busy, frozen, most := len(ses.live) > 0 && ses.state == stateReady, ses.paused, ses.grant.Ceilings
	ses.mu.Unlock()
	if !busy {
		return // the next execution has it begin again
	}
	if !frozen { // what stands still uses no more than it did
		s.lookAtSession(ses, most)
		s.lookAtExecutions(ses, most)
	}
	ses.mu.Lock()
	defer ses.mu.Unlock()
	if ses.state == stateReady {
		ses.watchLoad()
	}
}

func (s *Supervisor) lookAtSession(ses *session, most api.Ceilings) {
	ctx, cancel := context.WithTimeout(s.ctx, s.defaults.LoadInterval)
	defer cancel()
	now, err := s.readLoad(ctx, ses)
	if err != nil {
		return
	}
	if now.NetworkLost {
		s.networkLost(ses)
	}
	s.compare(ses, bound{what: "memory"}, now.MemoryBytes, most.MemoryBytes)
	s.compare(ses, bound{what: "pids"}, now.PIDs, most.PIDs)
	s.compare(ses, bound{what: "cpu_time"}, now.CPUNS, most.CPUTimeNS)
	s.compare(ses, bound{what: "disk_bytes"}, now.DiskBytes.Used, now.DiskBytes.Limit)
	s.compare(ses, bound{what: "disk_inodes"}, now.DiskInodes.Used, now.DiskInodes.Limit)
}

// lookAtExecutions looks at what is each execution's own: its output, and for how long it runs.
func (s *Supervisor) lookAtExecutions(ses *session, most api.Ceilings) {
	now := s.now()
	live, _ := s.registry.underway()
	for _, x := range live {
		if x.session != ses {
			continue
		}
		if x.shell == nil { // of which the end is kept, however much it is
			stdout, stderr := x.written()
			s.compare(ses, bound{"output_bytes", x.id}, max(stdout, stderr), x.plan.output)
		}
		what, ran := x.lasts(now)
		long := 0
		if ran > s.defaults.LongRunning {
			long = 1
		}
		if ses.comesTo(bound{"long_running", x.id}, long) {
			s.metrics.Alert(telemetry.LongRunning)
			_ = s.notice(ses, &ledger.Notice{Kind: api.NoticeThreshold, ExecID: x.id, Reason: "long_running", Detail: fmt.Sprintf("%sruns for %v", what, ran.Round(time.Second))})
		}
	}
	ses.forgetCeilings(live)
}

// A bound is a session's, or one of an execution of it.
type bound struct{ what, exec string }

// compare says so when something has come near a ceiling.
func (s *Supervisor) compare(ses *session, c bound, used, most int64) {
	if most <= 0 {
		return
	}
	percent := int64(float64(used) / float64(most) * 100)
	level, was := 0, ses.cameTo(c)
	for i, at := range nearCeiling {
		if percent >= at || was > i && percent >= at-rearm {
			level = i + 1
		}
	}
	if !ses.comesTo(c, level) {
		return
	}
	at := nearCeiling[level-1]
	s.metrics.Near(c.what, strconv.FormatInt(at, 10))
	if level == len(nearCeiling) {
		s.metrics.Alert(telemetry.AbnormalUsage)
	}
	_ = s.notice(ses, &ledger.Notice{
		Kind: api.NoticeThreshold, ExecID: c.exec, Reason: c.what, Detail: fmt.Sprintf("%d of %d, which is %d %% or more", used, most, at),
	})
}

// cameTo is the level that a session is said to have come to.
func (s *session) cameTo(c bound) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.load.near[c]
}

// comesTo notes the level, and reports whether it is a higher one than before.
func (s *session) comesTo(c bound, level int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.load.near == nil {
		s.load.near = map[bound]int{}
	}
	was := s.load.near[c]
	if s.load.near[c] = level; level == 0 {
		delete(s.load.near, c)
	}
	return level > was
}

// forgetCeilings drops those of executions that are over.
func (s *session) forgetCeilings(live []*execution) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.load.near {
		if c.exec != "" && !slices.ContainsFunc(live, func(x *execution) bool { return x.id == c.exec }) {
			delete(s.load.near, c)
		}
	}
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
