package supervisor

import (
	"fmt"
	"time"

	"github.com/stockade-dev/stockade/supervisor/api"
	"github.com/stockade-dev/stockade/supervisor/ledger"
	"github.com/stockade-dev/stockade/supervisor/telemetry"
)

// What the metrics count of an operation, and what they find when they are asked for: no caller waits
// for either, but for what he can ask for next.

// countFor counts what its session is shown with, before the caller can look.
func (s *Supervisor) countFor(c *call, r *api.Receipt) {
	if c.execution != nil {
		s.countOutput(c.execution)
	}
	if c.session != nil {
		c.session.sawRefusals(r)
	}
}

// account counts an operation that is over.
func (s *Supervisor) account(c *call, r *api.Receipt) {
	s.metrics.Settled(r)
	s.traces.Settled(c.parent, r)
	if c.session == nil || c.session.over() {
		return
	}
	switch {
	case c.execution != nil && r.ErrorCode == api.CodeWaitFailed:
		s.metrics.Alert(telemetry.Orphans)
		_ = s.notice(c.session, &ledger.Notice{Kind: api.NoticeThreshold, ExecID: r.ExecID, Reason: "orphans", Detail: "processes were killed and have not ended"})
	case c.session.fails(r.Outcome == api.OutcomeFaulted):
		s.metrics.Alert(telemetry.FailureRate)
		_ = s.notice(c.session, &ledger.Notice{Kind: api.NoticeThreshold, Reason: "failure_rate", Detail: fmt.Sprintf("of the last %d operations half or more were faulted", tallied)})
	}
}

// tallied is how many operations of a session are looked at together: enough that a few faults are none.
const tallied = 20

// fails counts an operation, and reports whether those since the last time that were looked at failed too often, and those before
// them had not.
func (s *session) fails(fault bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := &s.tally
	t.operations++
	if fault {
		t.faults++
	}
	if t.operations < tallied {
		return false
	}
	often, was := 2*t.faults >= t.operations, t.often
	*t = tally{often: often}
	return often && !was
}

// tally is how operations of a session went of late.
type tally struct {
	operations, faults int
	often              bool // it is said that they fail
}

// countOutput counts what was read of an execution since it was counted last.
func (s *Supervisor) countOutput(x *execution) {
	x.mu.Lock()
	stdout, stderr := x.written()
	before := x.counted
	x.counted.stdout, x.counted.stderr = stdout, stderr
	x.mu.Unlock()
	s.metrics.Output(stdout-before.stdout, stderr-before.stderr)
	x.session.mu.Lock()
	defer x.session.mu.Unlock()
	x.session.load.output += stdout - before.stdout + stderr - before.stderr
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
		if _, ran := x.lasts(now); ran > s.defaults.LongRunning {
			st.LongRunning++
		}
	}
	st.InFlight, st.Queues["approval"] = int64(s.registry.others(nil)), waiting
	return st
}

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

// lasts is for how long an execution has run; 0 before it does. Of a shell that says where its commands begin and end it is the one that
// runs: the shell itself may wait for its user for days.
func (x *execution) lasts(now time.Time) (what string, ran time.Duration) {
	if command, ran, known := x.shell.works(now); known {
		if command != "" {
			what = "command " + command + " "
		}
		return what, ran
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.started.IsZero() {
		return "", 0
	}
	return "", now.Sub(x.started)
}
