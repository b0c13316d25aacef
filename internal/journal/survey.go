package journal

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

// CorruptError says that stored bytes are not those that were acknowledged, and where
// the first wrong one is. Nothing is repaired or cut.
type CorruptError struct {
	File   string `json:"file"`   // name in the journal's directory
	Seq    int64  `json:"seq"`    // the first bad record; -1 when it is not in a record
	Offset int64  `json:"offset"` // of that record, or of the checkpoint, in the file
	Reason string `json:"reason"`

	cause error
}

func (e *CorruptError) Error() string {
	if e.Seq < 0 {
		return fmt.Sprintf("journal is damaged: %s, offset %d: %s", e.File, e.Offset, e.Reason)
	}
	return fmt.Sprintf("journal is damaged: record %d (%s, offset %d): %s", e.Seq, e.File, e.Offset, e.Reason)
}

// Unwrap gives [ErrRolledBack] when that is what happened.
func (e *CorruptError) Unwrap() error { return e.cause }

// survey is one pass over everything that is stored: what Open starts from, and what
// Verify reports.
type survey struct {
	begin  *anchor      // nil for a journal that has its first record
	signed []checkpoint // by size; compared with the records on the way
	due    int          // the first of them not yet compared
	each   func(seq int64, rec []byte) error
	alone  bool // the segment is looked at by itself, wherever it belongs

	notes    notes // as they are stored
	unsigned error // what is wrong with them
	early    bool  // one that was kept elsewhere is over fewer records than were trimmed

	segments []*segment
	trimmed  []string // segments before the anchor, which nobody has removed yet
	tree     tree
	chain    digest
	tail     int64    // bytes behind the last record that belong to none: an interrupted write
	whole    *edge    // the last place between two Appends, while the pass is inside one
	held     [][]byte // records since then, for each
}

// edge is a place between two records to which a survey can go back.
type edge struct {
	tree  tree
	chain digest
	end   int64
}

// surveyFiles goes over a journal from its files alone, whether or not somebody has it
// open. Without verifiers (nil) no signature is looked at, and no checkpoint.
func surveyFiles(dir string, known note.Verifiers, kept ...[]byte) (*survey, error) {
	for seen := int64(0); ; {
		s := &survey{}
		err := s.files(dir, known, kept)
		if err == nil {
			return s, nil
		}
		// Records that are trimmed while we read are no damage: there is a new anchor then.
		now, readErr := readAnchor(dir, nil)
		if readErr != nil || now == nil || now.size <= max(seen, s.first()) {
			return s, err
		}
		seen = now.size
	}
}

// files goes over everything, in an order in which what is added meanwhile is not missed,
// and what is trimmed meanwhile is: the anchor, the checkpoints, the records.
func (s *survey) files(dir string, known note.Verifiers, kept [][]byte) (err error) {
	if s.begin, err = readAnchor(dir, known); err != nil {
		return err
	}
	if known != nil {
		s.unsigned = s.checkpoints(dir, known)
	}
	if err := s.add(kept, known); err != nil {
		return err
	}
	if err := s.run(dir); err != nil {
		return err // a bad record is the better finding
	}
	return s.unsigned
}

func (s *survey) checkpoints(dir string, known note.Verifiers) (err error) {
	s.notes, err = readCheckpoints(dir, known)
	s.signed = s.notes.signed
	if err != nil || s.begin == nil {
		return err
	}
	bad := &CorruptError{File: checkpointFile, Seq: -1}
	switch {
	case s.lastSigned() < s.begin.size: // Trim signs first
		bad.cause, bad.Reason = ErrRolledBack, fmt.Sprintf("no checkpoint covers the %d records that were trimmed", s.begin.size)
	case s.signed[0].origin != s.begin.origin:
		bad.Reason = "the anchor is of another journal"
	default:
		return nil
	}
	return bad
}

// add puts checkpoints that were kept elsewhere among those of the journal.
func (s *survey) add(kept [][]byte, known note.Verifiers) error {
	for _, msg := range kept {
		c, err := openCheckpoint(msg, known)
		if err == nil && len(s.signed) > 0 && c.origin != s.signed[0].origin {
			err = fmt.Errorf("it is of %q", c.origin)
		}
		if err != nil {
			return fmt.Errorf("%w: %w", ErrForeign, err)
		}
		if c.size < s.first() {
			s.early = true
			continue
		}
		s.signed = append(s.signed, c)
	}
	slices.SortStableFunc(s.signed, func(a, b checkpoint) int { return cmp.Compare(a.size, b.size) })
	return nil
}

// first is the number of the first record.
func (s *survey) first() int64 {
	if s.begin == nil {
		return 0
	}
	return s.begin.size
}

// run reads all segments. The signed checkpoints must have been read before, so that a
// journal that grows meanwhile is never too short for them.
func (s *survey) run(dir string) error {
	names, err := segmentNames(dir)
	if err != nil {
		return err
	}
	if s.begin != nil {
		s.tree, s.chain = s.begin.tree, s.begin.chain
		kept, _ := slices.BinarySearch(names, segmentName(s.begin.size))
		s.trimmed, names = names[:kept:kept], names[kept:]
	}
	for s.due < len(s.signed) && s.signed[s.due].size < s.first() {
		s.due++
	}
	for i, name := range names {
		if err := s.file(dir, name, i == len(names)-1); err != nil {
			return err
		}
	}
	if last := s.lastSigned(); last > s.tree.n {
		where := &CorruptError{File: checkpointFile, Seq: s.tree.n, cause: ErrRolledBack,
			Reason: fmt.Sprintf("the journal ends here, but a checkpoint signs %d records", last)}
		if len(s.segments) > 0 {
			seg := s.segments[len(s.segments)-1]
			where.File, where.Offset = seg.name, seg.end
		}
		return where
	}
	return nil
}

func (s *survey) lastSigned() int64 {
	if len(s.signed) == 0 {
		return 0
	}
	return s.signed[len(s.signed)-1].size
}

func (s *survey) file(dir, name string, last bool) error {
	f, err := os.Open(filepath.Join(dir, name))
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	return s.read(f, info.Size(), name, last)
}

// read goes through one segment. A flaw is the end of a write that a crash interrupted
// only if it is in the last segment, if nothing behind it was written by somebody who
// knew that this record was durable, and if no signed checkpoint covers it.
func (s *survey) read(f io.ReaderAt, size int64, name string, last bool) error {
	bad := func(seq, off int64, err error) error {
		if fl, ok := errors.AsType[flaw](err); ok {
			return &CorruptError{File: name, Seq: seq, Offset: off, Reason: fl.Error()}
		}
		return fmt.Errorf("segment %s: %w", name, err)
	}
	head := make([]byte, segmentHeader)
	if n, err := f.ReadAt(head, 0); err != nil && err != io.EOF {
		return bad(0, 0, err)
	} else {
		head = head[:n]
	}
	o, err := decodeOpening(head)
	if err != nil {
		return bad(s.tree.n, 0, err)
	}
	if s.alone {
		s.tree.n, s.chain = o.first, o.chain
	}
	if o.first != s.tree.n || name != segmentName(o.first) {
		return bad(s.tree.n, 0, flaw(fmt.Sprintf("the segment begins with record %d", o.first)))
	}
	if o.chain != s.chain {
		return bad(s.tree.n, 0, flaw("the segment does not continue the chain"))
	}

	seg := &segment{name: name, first: o.first, seed: o.seed(), end: segmentHeader}
	seg.before = &edge{tree: s.tree, chain: s.chain, end: segmentHeader}
	s.segments = append(s.segments, seg)
	if err := s.compare(seg); err != nil { // a checkpoint over no records
		return err
	}
	r := newFrames(f, seg.end, size)
	reread := false
	var buf []byte
	for left := uint32(0); ; {
		seq := s.tree.n
		h, rec, err := readFrame(r, size-seg.end, seg.seed, buf)
		if err == nil {
			buf = rec
			var leaf tlog.Hash
			if leaf, err = s.check(&h, rec, left); err == nil {
				s.take(seg, &h, leaf)
				if err := s.compare(seg); err != nil {
					return err
				}
				if err := s.tell(&h, rec); err != nil {
					return err
				}
				left, reread = h.left, false
				continue
			}
		}
		_, isFlaw := errors.AsType[flaw](err)
		if err != io.EOF && !isFlaw {
			return bad(seq, seg.end, err)
		}
		written, later, failed := beyond(f, seg.end, size, seg.seed, seq)
		if failed != nil {
			return bad(seq, seg.end, failed)
		}
		if later && !reread {
			// A journal in use may have got this record after we looked for it.
			r, reread = newFrames(f, seg.end, size), true
			continue
		}
		if err == io.EOF && written > 0 {
			err = flawHole
		}
		if fl, ok := errors.AsType[flaw](err); ok && (!last || later || !fl.tearable() || seq < s.lastSigned()) {
			return bad(seq, seg.end, fl)
		}
		if !last && left > 0 {
			return bad(seq, seg.end, flaw("the rest of an append is missing"))
		}
		s.tail = written
		s.back(seg)
		return nil
	}
}

func newFrames(f io.ReaderAt, from, size int64) *bufio.Reader {
	left := max(0, size-from)
	return bufio.NewReaderSize(io.NewSectionReader(f, from, left), int(min(left, 256<<10)))
}

// check looks at what a good checksum does not prove: that the record belongs here.
func (s *survey) check(h *frame, rec []byte, left uint32) (tlog.Hash, error) {
	leaf := tlog.RecordHash(rec)
	switch {
	case h.seq != s.tree.n:
		return leaf, flaw(fmt.Sprintf("record %d stands here", h.seq))
	case left > 0 && h.left != left-1:
		return leaf, flaw("record does not continue the append before it")
	case h.chain != link(s.chain, leaf):
		return leaf, flaw("record does not continue the chain")
	}
	return leaf, nil
}

// take makes a good record part of what was found.
func (s *survey) take(seg *segment, h *frame, leaf tlog.Hash) {
	if h.left > 0 && s.whole == nil {
		s.whole = &edge{s.tree, s.chain, seg.end}
	} else if h.left == 0 {
		s.whole = nil
	}
	seg.offsets = append(seg.offsets, uint32(seg.end))
	seg.end += framed(int(h.size))
	s.tree.append(leaf)
	s.chain = h.chain
}

// tell gives a record to who wants them all, when it is certain: when the Append that
// brought it is there to its end.
func (s *survey) tell(h *frame, rec []byte) error {
	if s.each == nil {
		return nil
	}
	if h.left > 0 {
		n := len(s.held)
		s.held = slices.Grow(s.held, 1)[:n+1]
		s.held[n] = append(s.held[n][:0], rec...) // in what an earlier one was held in
		return nil
	}
	for i, held := range s.held {
		if err := s.each(h.seq-int64(len(s.held)-i), held); err != nil {
			return err
		}
	}
	s.held = s.held[:0]
	return s.each(h.seq, rec)
}

// compare holds the records so far against the checkpoints that were signed over them.
func (s *survey) compare(seg *segment) error {
	for ; s.due < len(s.signed) && s.signed[s.due].size == s.tree.n; s.due++ {
		if s.signed[s.due].root == s.tree.root() {
			continue
		}
		proven := s.first()
		for _, c := range s.signed[:s.due] {
			if c.size < s.tree.n {
				proven = max(proven, c.size)
			}
		}
		return &CorruptError{File: seg.name, Seq: proven, Offset: seg.offset(proven),
			Reason: fmt.Sprintf("one of the records %d to %d is not the one that was signed", proven, s.tree.n-1)}
	}
	return nil
}

// back drops the beginning of an Append whose end never came: it was not acknowledged,
// and its records hold together.
func (s *survey) back(seg *segment) {
	if s.whole == nil {
		return
	}
	s.tail += seg.end - s.whole.end
	s.tree, s.chain, seg.end = s.whole.tree, s.whole.chain, s.whole.end
	seg.offsets = seg.offsets[:s.tree.n-seg.first]
	s.whole = nil
}

// beyond looks at everything from off to the end of a segment: how far there is anything
// but zeros, and whether there is a frame that was written after record seq had become
// durable. Frames are searched at every place where one can begin, because a damaged
// length hides where the next one is.
func beyond(f io.ReaderAt, off, size int64, seed uint32, seq int64) (written int64, later bool, err error) {
	const most = 1 << 20
	step := min(most, (size-off+frameAlign-1)&^(frameAlign-1))
	buf, zeros := make([]byte, step+frameHeader), make([]byte, step+frameHeader)
	for at := off; at < size; at += step {
		n, err := f.ReadAt(buf[:min(int64(len(buf)), size-at)], at)
		if err != nil && err != io.EOF {
			return 0, false, err
		}
		if bytes.Equal(buf[:n], zeros[:n]) {
			continue // the usual case: 64 MiB of preallocated zeros
		}
		written = at + int64(len(bytes.TrimRight(buf[:n], "\x00"))) - off
		for i := 0; i < int(step) && i+frameHeader <= n; i += frameAlign {
			if buf[i] != frameMagic[0] {
				continue
			}
			if h, ok := decodeFrame(buf[i:i+frameHeader], seed); ok && h.base() > seq {
				later = true
			}
		}
	}
	return written, later, nil
}
