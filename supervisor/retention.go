package supervisor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/stockade-dev/stockade/internal/failpoint"
	"github.com/stockade-dev/stockade/internal/spool"
	"github.com/stockade-dev/stockade/supervisor/ledger"
)

// Retention goes in rounds, beside the work. What it takes away, it takes in this order:
//
//	from view    what ended long ago (a record says so)
//	output       beside receipts: of what is not in view, and of sessions that have too much of it
//	records      that nothing in view needs, if the operator lets records go at all
//	blobs        that neither a record nor the view names
//
// Each step rests on what is durable, and each removal is whole by itself: a crash between any two leaves what the
// next round finds.

// retention makes a round at the start and then from time to time, and snapshots and room for output in
// between, when they are due.
func (s *Supervisor) retention() {
	round := time.NewTicker(s.defaults.RetainEvery)
	defer round.Stop()
	due := s.taken.due
	for first := true; ; first = false {
		var err error
		if first {
			err = s.retain(s.ctx)
		} else {
			select {
			case <-s.ctx.Done():
				return
			case <-round.C:
				due = s.taken.due
				err = s.retain(s.ctx)
			case <-due:
				if err = s.take(s.ctx); err != nil {
					due = nil // not at every record: the next round lets it try again
				}
			case <-s.spilled.due:
				err = s.retainOutput()
			}
		}
		if err != nil && s.ctx.Err() == nil {
			s.log.Warn("retention", "error", err)
		}
	}
}

// retain makes one round.
func (s *Supervisor) retain(ctx context.Context) error {
	err := s.retire(ctx)
	err = errors.Join(err, s.retainOutput())
	err = errors.Join(err, s.retainRecords(ctx))
	err = errors.Join(err, s.policies.collect())
	return errors.Join(err, s.retainBlobs(ctx))
}

// retire takes out of view what ended long ago (R240).
func (s *Supervisor) retire(ctx context.Context) error {
	before := s.now().Add(-s.defaults.HistoryAge)
	var overdue bool
	s.chronicle.read(func(state *ledger.State) { overdue = state.Overdue(before.UnixNano()) })
	if overdue {
		if _, err := s.record(ctx, s.journal.Append, &ledger.Retired{Header: ledger.At(s.now()), BeforeNS: before.UnixNano()}); err != nil {
			return fmt.Errorf("retire: %w", err)
		}
		failpoint.Hit("supervisor.retain.retired")
	}
	s.registry.retireBefore(before)
	return nil
}

// spill is how much output has come to rest beside receipts since somebody looked.
type spill struct {
	bytes atomic.Int64
	due   chan struct{}
}

// add counts the output of an execution that has ended.
func (p *spill) add(n, most int64) {
	if p.bytes.Add(n) <= most {
		return
	}
	select {
	case p.due <- struct{}{}:
	default:
	}
}

// retainOutput removes the files of executions that are not in view, and of each session the oldest of
// what has ended beyond its limit. What a receipt holds, inline or as a blob, can still be read.
func (s *Supervisor) retainOutput() error {
	s.spilled.bytes.Store(0)
	all, err := s.spool.List()
	if err != nil {
		return err
	}
	// After the list: an execution has a record and is in the registry before it has output.
	var errs []error
	for _, id := range s.excess(all) {
		errs = append(errs, s.spool.Remove(id))
		failpoint.Hit("supervisor.retain.output")
	}
	return errors.Join(errs...)
}

// excess are the executions whose output goes.
func (s *Supervisor) excess(all []spool.Kept) (ids []string) {
	type ended struct {
		spool.Kept
		at int64
	}
	bySession := map[string][]ended{}
	s.registry.mu.Lock()
	live := func(id string) bool { return s.registry.execs[id] != nil }
	s.chronicle.read(func(state *ledger.State) {
		for _, k := range all {
			p, ok := state.Process(k.ID)
			switch {
			case live(k.ID) || ok && !p.State.Final():
			case !ok:
				ids = append(ids, k.ID)
			default:
				bySession[p.SessionID] = append(bySession[p.SessionID], ended{k, p.EndedAtNS})
			}
		}
	})
	s.registry.mu.Unlock()
	for _, list := range bySession {
		slices.SortFunc(list, func(a, b ended) int { return cmp.Compare(b.at, a.at) })
		var sum int64
		for _, e := range list {
			if sum += e.Bytes; sum > s.defaults.OutputPerSession {
				ids = append(ids, e.ID)
			}
		}
	}
	return ids
}

// retainRecords trims the journal where the operator has set a limit. No record goes that something live or
// in view rests on, nor one that both snapshots do not cover.
func (s *Supervisor) retainRecords(ctx context.Context) error {
	for ctx.Err() == nil {
		before, ok := s.journal.Cut()
		if !ok || !s.overdue(before) {
			return nil
		}
		var oldest int64
		s.chronicle.read(func(state *ledger.State) { oldest, _ = state.Retained() })
		if oldest < before {
			return nil
		}
		if s.taken.behind() < before {
			last := s.taken.newest.Load()
			if err := s.take(ctx); err != nil {
				return err
			}
			if s.taken.newest.Load() == last {
				return nil // nothing has happened since the last one; the next round sees
			}
			continue
		}
		if err := s.trim(ctx, before); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// overdue reports whether the records before that one are older, or the journal larger, than it may be.
func (s *Supervisor) overdue(before int64) bool {
	if most := s.defaults.JournalBytes; most > 0 && s.journal.Size() > most {
		return true
	}
	if s.defaults.JournalAge == 0 {
		return false
	}
	var last ledger.Header
	err := s.recordAt(before-1, &last)
	return err == nil && last.AtNS < s.now().Add(-s.defaults.JournalAge).UnixNano()
}

// trim gives up the records before that one. What the decisions of this run rest on is said again
// before it goes.
func (s *Supervisor) trim(ctx context.Context, before int64) error {
	if s.declared.Load() < before {
		if err := s.declare(ctx); err != nil {
			return err
		}
		failpoint.Hit("supervisor.retain.declared")
	}
	first, err := s.journal.Trim(before)
	if err != nil {
		return err
	}
	failpoint.Hit("supervisor.retain.trimmed")
	s.chronicle.trim(first)
	s.log.Info("records were trimmed", "first", first)
	return nil
}

// retainBlobs removes content that no record of the journal and nothing in view names (R251). Content that was put
// a moment ago may be named in a moment: it has some time.
func (s *Supervisor) retainBlobs(ctx context.Context) error {
	olderThan := s.now().Add(-s.defaults.BlobGrace)
	inView := map[string]bool{}
	s.chronicle.read(func(state *ledger.State) {
		_, refs := state.Retained()
		for _, ref := range refs {
			inView[ref] = true
		}
	})
	removed, bytes, err := s.blobs.Sweep(ctx, func(ref string) bool { return inView[ref] || s.chronicle.names.has(ref) }, olderThan)
	if removed > 0 {
		s.log.Info("blobs that nothing names were removed", "blobs", removed, "bytes", bytes)
	}
	return err
}
