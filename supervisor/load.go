package supervisor

import (
	"context"
	"sync"
	"time"

	"github.com/stockade-dev/stockade/sandbox"
	"github.com/stockade-dev/stockade/supervisor/api"
)

// What a session uses is read when somebody asks for the session, within these bounds: whoever polls costs the
// runner so much and no more, however many poll.
const (
	loadAge     = 500 * time.Millisecond // what was read so short a time ago is not read again
	loadWait    = 250 * time.Millisecond // how long an answer waits; what is not there then is told as it was read last
	loadReaders = 8                      // readings at a time
)

// refreshLoads reads what sessions use, where that can have changed, and counts what they have written.
func (s *Supervisor) refreshLoads(ctx context.Context, of []*session) {
	now := s.now()
	due := make(chan *session, len(of))
	for _, ses := range of {
		if ses.loadDue(now) {
			due <- ses
		}
	}
	close(due)
	ctx, cancel := context.WithTimeout(ctx, loadWait)
	defer cancel()
	var readers sync.WaitGroup
	for range min(len(due), loadReaders) {
		readers.Go(func() {
			for ses := range due {
				if ctx.Err() == nil {
					_, _ = s.readLoad(ctx, ses) // what was read before stays, with its time
				}
			}
		})
	}
	readers.Wait()
	live, _ := s.registry.underway()
	for _, x := range live {
		s.countOutput(x)
	}
}

// readLoad reads what a session uses.
func (s *Supervisor) readLoad(ctx context.Context, ses *session) (sandbox.Load, error) {
	now, err := s.launcher.Load(ctx, ses.id)
	if err != nil {
		if !gone(err) {
			s.log.Debug("load", "session_id", ses.id, "error", err)
		}
		return now, err
	}
	ses.mu.Lock()
	defer ses.mu.Unlock()
	ses.load.last, ses.load.at = now, s.now()
	return now, nil
}

// loadDue reports whether it is time to read what the session uses, and takes it that it is read then. What was read
// of one in which nothing was left, and nothing happened since, still holds.
func (s *session) loadDue(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	still := len(s.live) == 0 && s.load.last.PIDs == 0 && s.load.at.After(s.idle.last)
	if s.state != stateReady || still || now.Sub(s.load.asked) < loadAge {
		return false
	}
	s.load.asked = now
	return true
}

// uses is what a session that lives is known to use; nil of another.
func (s *session) uses() *api.Load {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state != stateReady && s.state != stateClosing {
		return nil
	}
	l := &api.Load{
		MemoryBytes: s.load.last.MemoryBytes, PIDs: s.load.last.PIDs, CPUNS: s.load.last.CPUNS,
		OutputBytes: s.load.output, Denied: s.load.denied, Refused: s.load.refused,
	}
	l.SampledAtNS, _ = stamp(s.load.at)
	return l
}

// sawRefusals counts what was refused to a session: an operation to its owner, and the rest to its processes.
func (s *session) sawRefusals(r *api.Receipt) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.Outcome == api.OutcomeDenied {
		s.load.denied++
	}
	if x := r.Payload.Exec; x != nil {
		s.load.refused += x.Dropped
		for _, d := range x.Denials {
			if d.Rule != sandbox.RuleNetworkLost { // which nobody's policy refused
				s.load.refused += d.Count
			}
		}
	}
}
