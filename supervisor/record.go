package supervisor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/stockade-dev/stockade/internal/journal"
	"github.com/stockade-dev/stockade/supervisor/api"
	"github.com/stockade-dev/stockade/supervisor/ledger"
)

// writer is Append or Settle of the journal.
type writer func(context.Context, ...[]byte) (first int64, err error)

// record writes records that belong together with one call of write. When it returns they are
// durable, and the chronicle has them.
func (s *Supervisor) record(ctx context.Context, write writer, records ...ledger.Record) (first int64, err error) {
	encoded := make([][]byte, len(records))
	for i, r := range records {
		if encoded[i], err = ledger.Encode(r); err != nil {
			s.log.Error("a record cannot be written down", "error", err)
			return 0, errNoRecord
		}
	}
	began := time.Now()
	first, err = write(ctx, encoded...)
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) { // withdrawn: nothing was written, and nothing is wrong with the journal
		s.log.Info("a record was withdrawn", "error", err)
		return 0, api.Errorf(api.CodeJournalFailed, "the record was withdrawn: %v", ctx.Err())
	}
	s.metrics.Appended(size(encoded), time.Since(began), err)
	if errors.Is(err, journal.ErrTooLarge) {
		return 0, errTooLarge
	}
	if errors.Is(err, journal.ErrFull) {
		s.log.Error("journal", "error", err)
		return 0, api.Errorf(api.CodeJournalFailed, "the journal takes nothing new: the disk is full")
	}
	if err != nil {
		s.log.Error("journal", "error", err)
		return 0, api.Errorf(api.CodeJournalFailed, "the journal cannot be written")
	}
	for i, b := range encoded {
		s.chronicle.names.add(first+int64(i), b)
	}
	if err := s.chronicle.add(first, records); err != nil {
		s.log.Error("bug: a record of ours contradicts the format", "first", first, "error", err)
	}
	s.taken.recorded(first+int64(len(records)), s.defaults.SnapshotEvery)
	return first, nil
}

func size(records [][]byte) (n int) {
	for _, r := range records {
		n += len(r)
	}
	return n
}

// What no journal takes; nothing was written.
var (
	errTooLarge = api.Errorf(api.CodeJournalFailed, "the record is larger than %d bytes", journal.MaxRecord)
	errNoRecord = api.Errorf(api.CodeJournalFailed, "the record holds text that is not UTF-8")
)

func (s *Supervisor) recordAt(seq int64, into ledger.Record) error {
	b, err := s.journal.Get(seq)
	if err == nil {
		err = json.Unmarshal(b, into)
	}
	if err != nil {
		return fmt.Errorf("record %d: %w", seq, err)
	}
	return nil
}

// intentAt reads an intent, and the decision that was written with it.
func (s *Supervisor) intentAt(seq int64) (*api.Request, *ledger.Decision, error) {
	var intent ledger.Intent
	if err := s.recordAt(seq, &intent); err != nil {
		return nil, nil, err
	}
	var req api.Request
	if err := json.Unmarshal(intent.Request, &req); err != nil {
		return nil, nil, fmt.Errorf("intent %s: %w", intent.IntentID, err)
	}
	var decision ledger.Decision
	if err := s.recordAt(seq+1, &decision); err != nil || decision.IntentID != intent.IntentID {
		return &req, nil, nil // nothing was started without one
	}
	return &req, &decision, nil
}
