package supervisor

import (
	"time"

	"github.com/stockade-dev/stockade/supervisor/api"
	"github.com/stockade-dev/stockade/supervisor/telemetry"
)

// What the metrics count of an operation, and what they find when they are asked for: no caller waits
// for either.

// account counts an operation that is over.
func (s *Supervisor) account(c *call, r *api.Receipt) {
	s.metrics.Settled(r)
	s.traces.Settled(c.parent, r)
	if c.execution != nil {
		s.countOutput(c.execution)
	}
}

// countOutput counts what was read of an execution since it was counted last.
func (s *Supervisor) countOutput(x *execution) {
	x.mu.Lock()
	stdout, stderr := x.written()
	before := x.counted
	x.counted.stdout, x.counted.stderr = stdout, stderr
	x.mu.Unlock()
	s.metrics.Output(stdout-before.stdout, stderr-before.stderr)
}

// state is what is the case now, for a scrape.
func (s *Supervisor) state() telemetry.State {
	now := s.now()
	st := telemetry.State{
		Sessions: map[string]int64{}, Executions: map[string]int64{}, Queues: map[string]int64{},
		Records: s.journal.Next(), Bytes: s.journal.Size(), Draining: s.draining.Load(),
	}
	for _, ses := range s.registry.all() {
		ses.stands(now, &st)
	}
	live, waiting := s.registry.underway()
	for _, x := range live {
		s.countOutput(x)
		if x.lasts(now) > s.longRunning(x.session) {
			st.LongRunning++
		}
	}
	st.InFlight, st.Queues["approval"] = int64(s.registry.others(nil)), waiting
	return st
}

// longRunning is after how long an execution of a session runs for long.
func (s *Supervisor) longRunning(*session) time.Duration { return s.defaults.LongRunning }

// stands adds a session to the state.
func (s *session) stands(now time.Time, st *telemetry.State) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch s.state {
	case stateReady:
		if s.paused {
			st.Sessions[stateQuiesced]++
		} else {
			st.Sessions[stateReady]++
		}
	case stateClosing:
		st.Sessions[stateClosing]++
	default:
		return
	}
	if s.state == stateReady && len(s.live) == 0 {
		st.Idle++
		st.IdleLongest = max(st.IdleLongest, now.Sub(s.idle.last))
	}
	if len(s.live) > 0 {
		st.Processes += s.load.last.PIDs
		st.Memory += s.load.last.MemoryBytes
	}
	st.Queues["execution"] += int64(len(s.waiting))
	st.Executions["queued"] += int64(len(s.waiting))
	st.Executions["running"] += int64(len(s.live) - len(s.waiting))
}

// lasts is for how long an execution has run; 0 before it does.
func (x *execution) lasts(now time.Time) time.Duration {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.started.IsZero() {
		return 0
	}
	return now.Sub(x.started)
}
