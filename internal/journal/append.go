package journal

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/mod/sumdb/tlog"
)

// Append adds recs, in order and with nothing between them, and returns the sequence
// number of the first when all are durable. After a crash there are all of them or none.
// Sequence numbers begin with 0.
//
// ctx ends the wait for the disk's turn. Once the turn has come, Append waits for the
// outcome, however long the disk takes: the caller must know it. After any error but
// [ErrFailed] nothing was written; after ErrFailed the records may or may not be there
// when the journal is opened anew.
//
// When the disk is nearly full, Append fails with [ErrFull] while [Journal.Settle] still
// finds room.
func (j *Journal) Append(ctx context.Context, recs ...[]byte) (first int64, err error) {
	return j.submit(ctx, recs, false)
}

// Settle is Append for records that end what earlier records began, receipts of work
// that is under way above all: it may use the disk space that is kept in reserve.
func (j *Journal) Settle(ctx context.Context, recs ...[]byte) (first int64, err error) {
	return j.submit(ctx, recs, true)
}

// request is the records of one Append on their way.
type request struct {
	recs   [][]byte
	leaves []tlog.Hash
	size   int64 // framed
	settle bool

	first int64
	err   error
	done  chan struct{} // closed when first and err are set
}

func (r *request) finish(first int64, err error) {
	r.first, r.err = first, err
	close(r.done)
}

func (j *Journal) submit(ctx context.Context, recs [][]byte, settle bool) (int64, error) {
	r, err := j.request(recs, settle)
	if err != nil {
		return 0, fmt.Errorf("append: %w", err)
	}
	if err := j.enqueue(r); err != nil {
		return 0, fmt.Errorf("append: %w", err)
	}
	cancelled := ctx.Done()
	for {
		select {
		case j.lead <- struct{}{}:
			j.commit(j.take())
			<-j.lead
			cancelled = nil // ours is done, by us or by the leader before
		case <-r.done:
			if r.err != nil {
				return 0, fmt.Errorf("append: %w", r.err)
			}
			return r.first, nil
		case <-cancelled:
			if j.withdraw(r) {
				return 0, fmt.Errorf("append: %w", ctx.Err())
			}
			cancelled = nil
		}
	}
}

// request does what needs no turn: the hashing of content.
func (j *Journal) request(recs [][]byte, settle bool) (*request, error) {
	r := &request{recs: recs, leaves: make([]tlog.Hash, len(recs)), settle: settle, done: make(chan struct{})}
	for i, rec := range recs {
		if len(rec) == 0 {
			return nil, errors.New("a record is empty")
		}
		if len(rec) > MaxRecord {
			return nil, fmt.Errorf("%w: %d bytes", ErrTooLarge, len(rec))
		}
		r.leaves[i] = tlog.RecordHash(rec)
		r.size += framed(len(rec))
	}
	if len(recs) == 0 {
		return nil, errors.New("no records")
	}
	if r.size > j.opt.SegmentBytes-segmentHeader {
		return nil, fmt.Errorf("%w: %d bytes in one append, and a segment has %d", ErrTooLarge, r.size, j.opt.SegmentBytes)
	}
	return r, nil
}

func (j *Journal) enqueue(r *request) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.closed {
		return ErrClosed
	}
	if j.failed != nil {
		return j.failed
	}
	j.queue = append(j.queue, r)
	return nil
}

func (j *Journal) take() []*request {
	j.mu.Lock()
	defer j.mu.Unlock()
	batch := j.queue
	j.queue = nil
	return batch
}

// withdraw reports whether r could be taken back before its turn came.
func (j *Journal) withdraw(r *request) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	i := slices.Index(j.queue, r)
	if i < 0 {
		return false
	}
	j.queue = slices.Delete(j.queue, i, i+1)
	return true
}
