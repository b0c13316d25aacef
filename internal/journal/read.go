package journal

import (
	"fmt"
	"io"
	"sort"
)

// Read calls fn with every durable record from sequence number from on, in order, up
// to the end as it was when Read was called. The bytes are the caller's. An error of fn
// ends it and is returned as it is; a record that changed on the disk is a [*CorruptError];
// records that were trimmed, before the call or under it, are a [*TrimmedError].
func (j *Journal) Read(from int64, fn func(seq int64, rec []byte) error) error {
	return j.extent().read(from, fn)
}

// Get returns one durable record. The error is [ErrNotFound] when there is none yet, and
// a [*TrimmedError] when there is none any more.
func (j *Journal) Get(seq int64) ([]byte, error) {
	return j.extent().get(seq)
}

// extent is the records of a journal as they were at one moment.
type extent struct {
	dir      string
	segments []segment // at least one
}

func (j *Journal) extent() extent { return extent{j.dir, j.snapshot()} }

// snapshot is the segments as they are now. What it refers to is only ever appended to.
func (j *Journal) snapshot() []segment {
	j.mu.Lock()
	defer j.mu.Unlock()
	segments := make([]segment, len(j.segments))
	for i, seg := range j.segments {
		segments[i] = *seg
	}
	return segments
}

// from says whether there can be a record seq.
func (e extent) from(seq int64) error {
	if seq < 0 {
		return fmt.Errorf("read: %w: %d", ErrNotFound, seq)
	}
	if first := e.segments[0].first; seq < first {
		return fmt.Errorf("read record %d: %w", seq, &TrimmedError{First: first})
	}
	return nil
}

func (e extent) read(from int64, fn func(seq int64, rec []byte) error) error {
	if err := e.from(from); err != nil {
		return err
	}
	for _, seg := range e.segments[holding(e.segments, from):] {
		if err := seg.read(e.dir, max(from, seg.first), fn); err != nil {
			return err
		}
	}
	return nil
}

// holding is the index of the segment with record seq, or of the end when there is none.
func holding(segments []segment, seq int64) int {
	return sort.Search(len(segments), func(i int) bool { return segments[i].next() > seq })
}

func (e extent) get(seq int64) ([]byte, error) {
	if err := e.from(seq); err != nil {
		return nil, err
	}
	i := holding(e.segments, seq)
	if i == len(e.segments) {
		return nil, fmt.Errorf("read: %w: %d", ErrNotFound, seq)
	}
	seg := &e.segments[i]
	f, err := seg.open(e.dir)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	off := seg.offset(seq)
	return seg.record(io.NewSectionReader(f, off, seg.end-off), seq)
}

// Scan calls fn with every record of a journal from its files alone, in order, whether
// or not somebody has it open. It checks what [Verify] checks, but for signatures, before
// the first call. An error of fn ends it and is returned as it is; records that are trimmed
// under it are a [*TrimmedError].
func Scan(dir string, fn func(seq int64, rec []byte) error) error {
	s, err := surveyFiles(dir, nil)
	if err != nil {
		return fmt.Errorf("scan journal: %w", err)
	}
	for _, seg := range s.segments {
		if err := seg.read(dir, seg.first, fn); err != nil {
			return err
		}
	}
	return nil
}
