package spool

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"
)

// A log that is recorded keeps its beginning, too, and what happened beside its output: notes, each with the time and the place in
// the output at which it was made. What a note means is its maker's. Both are bounded by one number, which the file of the notes has,
// so that whoever opens the log later needs no other; see FORMAT.md.

// Note is one of them.
type Note struct {
	Kind byte // above 0
	AtNS int64
	At   int64 // offset in stdout: what came before it is before the note
	Data []byte
}

const (
	notesSuffix  = "notes"
	notesMagic   = "STKNOTE\n"
	notesHeader  = 20
	noteHeader   = 24 // of a note, before its data; a checksum of four bytes follows that
	largestNote  = 1 << 20
	recordedPace = 10 * time.Millisecond // what came together, where times are for playing back
)

// notes is what a log has that is recorded. Log.mu guards it.
type notes struct {
	limit int64    // of the beginning that is kept, and of the notes; 0: the log is not recorded
	file  *os.File // open to be added to
	size  int64
	full  bool // a note was not kept: none is from then on
	err   error
}

// Record has the first limit bytes of stdout kept whatever a ring lets go of, and notes of as many bytes. It comes before the
// first Drain.
func (l *Log) Record(limit int64) error {
	if limit <= 0 {
		return fmt.Errorf("record %s: a limit of %d bytes", l.id, limit)
	}
	file, err := l.store.create(l.id, notesSuffix)
	if err != nil {
		return fmt.Errorf("record %s: %w", l.id, err)
	}
	b := binary.LittleEndian.AppendUint64([]byte(notesMagic), uint64(limit))
	b = binary.LittleEndian.AppendUint32(b, checksum(b))
	if _, err := file.WriteAt(b, 0); err != nil {
		file.Close()
		return fmt.Errorf("record %s: %w", l.id, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.notes = notes{limit: limit, file: file, size: notesHeader}
	l.order.pace = recordedPace
	return nil
}

// Recorded is how much of the beginning of stdout stays; ok is false for a log that is not recorded.
func (l *Log) Recorded() (bytes int64, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return min(l.streams[Stdout].kept, l.notes.limit), l.notes.limit > 0
}

// Note adds a note. Beyond the limit none is kept any more, which [Log.Notes] says.
func (l *Log) Note(note Note) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	n, kind, data := &l.notes, note.Kind, note.Data
	switch {
	case n.limit == 0 || n.file == nil || l.sealed || n.full:
		return n.err
	case len(data) > largestNote:
		return fmt.Errorf("note of %s: %d bytes", l.id, len(data))
	}
	if n.size+int64(noteHeader+len(data)+4) > notesHeader+n.limit {
		kind, data, n.full = 0, nil, true // the last: that there were more
	}
	b := binary.LittleEndian.AppendUint64(make([]byte, 0, noteHeader+len(data)+4), uint64(note.AtNS))
	b = binary.LittleEndian.AppendUint64(b, uint64(note.At))
	b = append(b, kind, 0, 0, 0)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(data)))
	b = append(b, data...)
	b = binary.LittleEndian.AppendUint32(b, checksum(b))
	if _, err := n.file.WriteAt(b, n.size); err != nil {
		n.full, n.err = true, fmt.Errorf("note of %s: %w", l.id, err)
		return n.err
	}
	n.size += int64(len(b))
	return nil
}

// Notes hands out what was noted, in order. whole is false where there was more than could be kept. fn may read the log.
func (l *Log) Notes(fn func(Note) error) (whole bool, err error) {
	l.mu.Lock()
	file, size, whole, closed := l.notes.file, l.notes.size, !l.notes.full, l.closed
	l.mu.Unlock()
	switch {
	case closed:
		return false, fmt.Errorf("notes of %s: %w", l.id, os.ErrClosed)
	case file == nil:
		return true, nil
	}
	_, full, err := readNotes(io.NewSectionReader(openNotes{l, file}, 0, size), fn)
	return whole && !full, err
}

// openNotes is the file of notes of a log, as long as the log is open: nobody who reads holds that up for longer than a read.
type openNotes struct {
	log  *Log
	file *os.File
}

func (n openNotes) ReadAt(b []byte, off int64) (int, error) {
	n.log.reading.RLock()
	defer n.log.reading.RUnlock()
	n.log.mu.Lock()
	closed := n.log.closed
	n.log.mu.Unlock()
	if closed {
		return 0, fmt.Errorf("notes of %s: %w", n.log.id, os.ErrClosed)
	}
	return n.file.ReadAt(b, off)
}

// readNotes reads notes up to the first that is not whole: a process that is killed leaves whole ones.
func readNotes(file *io.SectionReader, fn func(Note) error) (size int64, full bool, err error) {
	head := make([]byte, noteHeader)
	for size = notesHeader; ; {
		if _, err := file.ReadAt(head, size); err != nil {
			return size, full, notEOF(err)
		}
		length := binary.LittleEndian.Uint32(head[20:])
		if length > largestNote {
			return size, full, nil
		}
		b := make([]byte, noteHeader+int(length)+4)
		if _, err := file.ReadAt(b, size); err != nil && err != io.EOF {
			return size, full, err
		}
		if !summed(b) {
			return size, full, nil
		}
		size += int64(len(b))
		if full = b[16] == 0; full {
			continue
		}
		n := Note{Kind: b[16], AtNS: int64(binary.LittleEndian.Uint64(b)), At: int64(binary.LittleEndian.Uint64(b[8:])), Data: b[noteHeader : len(b)-4]}
		if err := fn(n); err != nil {
			return size, full, err
		}
	}
}

func notEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// recoverNotes opens the notes that an earlier process left. A log without the file is not recorded.
func (l *Log) recoverNotes() error {
	file, info, err := l.store.reopen(l.id + "." + notesSuffix)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	l.notes.file = file
	b := make([]byte, notesHeader)
	if _, err := file.ReadAt(b, 0); err != nil || string(b[:len(notesMagic)]) != notesMagic || !summed(b) {
		return errors.New("damaged notes")
	}
	l.notes.limit = int64(binary.LittleEndian.Uint64(b[len(notesMagic):]))
	l.order.pace = recordedPace
	l.notes.size, l.notes.full, err = readNotes(io.NewSectionReader(file, 0, info.Size), func(Note) error { return nil })
	return err
}
