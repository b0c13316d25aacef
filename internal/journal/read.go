package journal

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sort"
)

// Read calls fn with every durable record from sequence number from on, in order, up
// to the end as it was when Read was called. The bytes are the caller's. An error of fn
// ends it and is returned as it is; a record that changed on the disk is a [*CorruptError].
func (j *Journal) Read(from int64, fn func(seq int64, rec []byte) error) error {
	if from < 0 {
		return fmt.Errorf("read: %w: %d", ErrNotFound, from)
	}
	segments := j.snapshot()
	for _, seg := range segments[holding(segments, from):] {
		if err := seg.read(j.dir, max(from, seg.first), fn); err != nil {
			return err
		}
	}
	return nil
}

// holding is the index of the segment with record seq, or of the end when there is none.
func holding(segments []segment, seq int64) int {
	return sort.Search(len(segments), func(i int) bool { return segments[i].next() > seq })
}

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

// next is the sequence number of the first record that is not in the segment any more.
func (g *segment) next() int64 { return g.first + int64(len(g.offsets)) }

func (g *segment) read(dir string, from int64, fn func(int64, []byte) error) error {
	if from >= g.next() {
		return nil
	}
	f, err := os.Open(filepath.Join(dir, g.name))
	if err != nil {
		return fmt.Errorf("read: %w", err)
	}
	defer f.Close()
	r := newFrames(f, g.offset(from), g.end)
	for seq := from; seq < g.next(); seq++ {
		rec, err := g.record(r, seq)
		if err != nil {
			return err
		}
		if err := fn(seq, rec); err != nil {
			return err
		}
	}
	return nil
}

// record reads record seq, at which r must stand.
func (g *segment) record(r io.Reader, seq int64) ([]byte, error) {
	off := g.offset(seq)
	h, rec, err := readFrame(r, g.end-off, g.seed, nil)
	if err == io.EOF {
		err = flaw("record is gone")
	}
	if err == nil && h.seq != seq {
		err = flaw(fmt.Sprintf("record %d stands here", h.seq))
	}
	if fl, ok := errors.AsType[flaw](err); ok {
		err = &CorruptError{File: g.name, Seq: seq, Offset: off, Reason: fl.Error()}
	}
	if err != nil {
		return nil, fmt.Errorf("read: %w", err)
	}
	return rec, nil
}

// Get returns one durable record. The error is [ErrNotFound] when there is none.
func (j *Journal) Get(seq int64) ([]byte, error) {
	segments := j.snapshot()
	i := holding(segments, seq)
	if seq < 0 || i == len(segments) {
		return nil, fmt.Errorf("read: %w: %d", ErrNotFound, seq)
	}
	seg := &segments[i]
	f, err := os.Open(filepath.Join(j.dir, seg.name))
	if err != nil {
		return nil, fmt.Errorf("read: %w", err)
	}
	defer f.Close()
	off := seg.offset(seq)
	return seg.record(io.NewSectionReader(f, off, seg.end-off), seq)
}

// Scan calls fn with every record of a journal from its files alone, in order, whether
// or not somebody has it open. It checks what [Verify] checks, but for signatures, before
// the first call. An error of fn ends it and is returned as it is.
func Scan(dir string, fn func(seq int64, rec []byte) error) error {
	var s survey
	if err := s.run(dir); err != nil {
		return fmt.Errorf("scan journal: %w", err)
	}
	for _, seg := range s.segments {
		if err := seg.read(dir, seg.first, fn); err != nil {
			return err
		}
	}
	return nil
}
