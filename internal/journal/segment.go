package journal

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// segment is one file of records.
type segment struct {
	name    string
	first   int64
	seed    uint32
	before  *edge    // what the records before it come to
	offsets []uint32 // where each record's frame begins
	end     int64    // where the next one goes
}

// segmentName sorts by the sequence number of the first record.
func segmentName(first int64) string { return fmt.Sprintf("%020d.seg", first) }

// segmentNames lists the segments of a journal in order.
func segmentNames(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries { // ReadDir sorts
		digits, ok := strings.CutSuffix(e.Name(), ".seg")
		if first, err := strconv.ParseInt(digits, 10, 64); ok && err == nil && segmentName(first) == e.Name() {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// offset is where record seq begins; the first record of the segment stands in for one
// of an earlier segment.
func (g *segment) offset(seq int64) int64 {
	if seq < g.first || seq-g.first >= int64(len(g.offsets)) {
		return segmentHeader
	}
	return int64(g.offsets[seq-g.first])
}

// lastWrite is where the write began that brought the last record.
func (g *segment) lastWrite(f io.ReaderAt) (int64, error) {
	head := make([]byte, frameHeader)
	if _, err := f.ReadAt(head, int64(g.offsets[len(g.offsets)-1])); err != nil {
		return 0, err
	}
	h, ok := decodeFrame(head, g.seed)
	if !ok {
		return 0, flawHeader
	}
	return g.offset(h.base()), nil
}

// next is the sequence number of the first record that is not in the segment any more.
func (g *segment) next() int64 { return g.first + int64(len(g.offsets)) }

// read calls fn with the records from number from on.
func (g *segment) read(dir string, from int64, fn func(int64, []byte) error) error {
	if from >= g.next() {
		return nil
	}
	f, err := g.open(dir)
	if err != nil {
		return err
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

// open opens the file. One that has been trimmed since we knew of it is [ErrTrimmed].
func (g *segment) open(dir string) (*os.File, error) {
	f, err := os.Open(filepath.Join(dir, g.name))
	if errors.Is(err, fs.ErrNotExist) {
		if a, readErr := readAnchor(dir, nil); readErr == nil && a != nil && a.size > g.first {
			err = &TrimmedError{First: a.size}
		}
	}
	if err != nil {
		return nil, fmt.Errorf("read: %w", err)
	}
	return f, nil
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
