package spool

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// Recover opens what an earlier process left of an execution; streams without a file are
// empty. Drain goes on where that process ended, unless bytes of the stream are missing or it
// was committed: nothing is added then. Beside another open log of the same execution it is for
// reading only, and shows what was written until now.
func (s *Store) Recover(id string, limit int64) (*Log, error) {
	if !wellFormed(id) {
		return nil, fmt.Errorf("recover output: %w: %.80q", errID, id)
	}
	l := s.Create(id, limit)
	if err := l.recover(); err != nil {
		l.Close()
		return nil, fmt.Errorf("recover output of %s: %w", id, err)
	}
	return l, nil
}

func (l *Log) recover() error {
	var left [len(streams)]remains
	for _, st := range streams {
		if err := l.recoverStream(st, &left[st]); err != nil {
			return err
		}
	}
	if err := l.recoverOrder(left); err != nil {
		return err
	}
	if err := l.recoverRing(); err != nil {
		return err
	}
	if err := l.recoverNotes(); err != nil {
		return err
	}
	for i := range l.streams {
		s := &l.streams[i]
		if _, r := l.order.last(Stream(i)); r != nil && r.dropped {
			s.dropped = r.length
		}
		if s.file == nil && s.dropped > 0 && l.limit > 0 {
			s.err = errCut // the file could not even be made
		}
	}
	return nil
}

// remains is what the file of a stream says by itself.
type remains struct {
	kept int64
	at   int64 // when its last byte came
}

func (l *Log) recoverStream(st Stream, left *remains) error {
	s := &l.streams[st]
	file, info, err := l.store.reopen(l.id + "." + st.String())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	s.file, s.kept = file, info.Size
	switch info.Mode & 0o777 {
	case modeFinal:
		s.final = true
	case modeCut:
		s.err = errCut
	default:
		s.final = info.Nlink > 1 // a power cut may take the mode back, and leave the blob
	}
	*left = remains{kept: info.Size, at: unix.TimespecToNsec(info.Mtim)}
	return nil
}

func (l *Log) recoverOrder(left [len(streams)]remains) error {
	file, info, err := l.store.reopen(l.id + "." + chunksSuffix)
	if errors.Is(err, fs.ErrNotExist) {
		l.order.restore(nil, left)
		return nil
	}
	if err != nil {
		return err
	}
	l.order.file = file
	content := make([]byte, min(info.Size, headerSize+(most+2*int64(len(streams)))*recordSize))
	if _, err := io.ReadFull(io.NewSectionReader(file, 0, info.Size), content); err != nil {
		return err
	}
	if v, ok := parseHeader(content); ok && v != version {
		return fmt.Errorf("chunk log of version %d, not %d", v, version)
	}
	if l.order.restore(content, left) || l.order.ended {
		return nil
	}
	// Written over first and only then cut: a process that dies here leaves no less.
	if l.order.writeAt(l.order.records, 0); l.order.err != nil {
		return l.order.err
	}
	return file.Truncate(int64(headerSize + len(l.order.records)*recordSize))
}

// reopen opens a file of the store that an earlier process left.
func (s *Store) reopen(name string) (*os.File, unix.Stat_t, error) {
	info, err := s.stat(name)
	if err != nil {
		return nil, info, err
	}
	flags := os.O_RDWR
	if info.Mode&0o200 == 0 {
		flags = os.O_RDONLY
	}
	file, err := s.open(name, flags, 0)
	return file, info, err
}

func parseHeader(b []byte) (version uint32, ok bool) {
	if len(b) < headerSize || string(b[:len(magic)]) != magic || !summed(b[:headerSize]) {
		return 0, false
	}
	return binary.LittleEndian.Uint32(b[len(magic):]), true
}

// restore reads a chunk log up to where it is no longer sound or says what the files do not hold. The
// bytes that it does not tell of become one chunk of each stream, in the order of their last change. It reports whether the
// chunks are now exactly those in content.
func (o *order) restore(content []byte, left [len(streams)]remains) (same bool) {
	var have, dropped [len(streams)]int64
	_, sound := parseHeader(content)
	rest := content[min(len(content), headerSize):]
	for ; len(rest) > 0; rest = rest[min(len(rest), recordSize):] {
		var r record
		if !r.parse(rest) {
			sound = false
			continue
		}
		st := r.stream
		sound = sound && dropped[st] == 0 && r.offset == have[st] &&
			(r.dropped && r.offset == left[st].kept || !r.dropped && r.length <= left[st].kept-r.offset)
		switch {
		case r.dropped:
			// Believed wherever it stands: output of which bytes are missing is not whole.
			dropped[st] = max(dropped[st], r.length)
		case sound:
			have[st] += r.length
		}
		if sound {
			o.add(r)
		}
	}
	same = sound
	finals := streams
	if left[Stderr].at < left[Stdout].at {
		finals = [...]Stream{Stderr, Stdout}
	}
	ended := o.ended
	o.ended = true // nothing is written before all is known
	for _, st := range finals {
		if n := left[st].kept - have[st]; n > 0 {
			o.arrive(st, n, left[st].at)
			same = false
		}
		if _, r := o.last(st); dropped[st] > 0 && (r == nil || !r.dropped) {
			o.drop(st, left[st].kept, dropped[st], left[st].at)
			same = false
		}
	}
	o.ended = ended
	return same
}
