package spool

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"strings"
	"sync"

	"github.com/stockade-dev/stockade/internal/blob"
	"github.com/stockade-dev/stockade/internal/failpoint"
)

// Log is the output of one execution. Its methods may be called at the same time, and there
// is one Drain for each stream at a time. Whoever made it closes it.
type Log struct {
	store *Store
	id    string
	limit int64 // bytes of one stream that are kept

	// Locks are taken in this order: committing, moving, hashing, reading, mu.
	streams [len(streams)]stream
	reading sync.RWMutex // held while a file is in use; by Close alone

	mu      sync.Mutex // guards what follows, and files, counts and errors of the streams
	order   order
	ring    ring
	notes   notes
	changed chan struct{} // nil while nobody waits
	sealed  bool          // written under every stream's moving as well
	closed  bool          // likewise
}

// stream is what came from one pipe.
type stream struct {
	moving sync.Mutex // held while bytes move

	hashing sync.Mutex // guards the sum
	sum     hash.Hash  // of the first hashed bytes
	hashed  int64

	committing sync.Mutex
	ref        string // once it is a blob

	// Written under moving and Log.mu.
	file    *os.File // nil before the first byte
	final   bool     // an earlier process made it final: nothing is added
	kept    int64
	dropped int64
	err     error // why nothing more is kept
}

// Create begins the log of an execution that has none. Up to limit bytes of each stream are
// kept. No file is made before there are bytes for it, so that a silent command costs none;
// what is wrong with id or the disk shows in [Log.Err] when bytes come.
func (s *Store) Create(id string, limit int64) *Log {
	l := &Log{store: s, id: id, limit: limit}
	l.order.create = func() (*os.File, error) { return s.create(id, chunksSuffix) }
	l.order.ended = !s.enter(id) // what another log tells of is not written over
	return l
}

// Kept is how many bytes of a stream can be read, from offset 0.
func (l *Log) Kept(st Stream) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.streams[st].kept
}

// Total is how many bytes of a stream came out of the pipe. What a process that was killed
// dropped last may be missing in it, or counted twice, but where something was dropped the
// total is larger than what is kept.
func (l *Log) Total(st Stream) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.streams[st].kept + l.streams[st].dropped
}

// Err says why a stream is no longer kept, other than for its limit. Its pipe is drained
// nevertheless.
func (l *Log) Err(st Stream) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.streams[st].err
}

// ReadAt reads kept bytes. [io.EOF] means that there are no more of them: for now, or for
// good once the log is sealed.
func (l *Log) ReadAt(st Stream, p []byte, off int64) (int, error) {
	l.reading.RLock()
	defer l.reading.RUnlock()
	file, kept, err := l.file(st)
	if err == nil && off < 0 {
		err = errors.New("negative offset")
	}
	if err != nil {
		return 0, fmt.Errorf("read %s of %s: %w", st, l.id, err)
	}
	if off < l.First(st) {
		if kept, _ = l.Recorded(); off >= kept {
			return 0, fmt.Errorf("read %s of %s at %d: %w", st, l.id, off, ErrGone)
		}
	}
	if off >= kept {
		return 0, io.EOF
	}
	want := p[:min(int64(len(p)), kept-off)]
	n, err := file.ReadAt(want, off)
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF // somebody has shortened the file
	}
	if err != nil {
		return n, fmt.Errorf("read %s of %s: %w", st, l.id, err)
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// file gives the file of a stream and how much of it counts. The caller holds reading.
func (l *Log) file(st Stream) (*os.File, int64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, 0, os.ErrClosed
	}
	return l.streams[st].file, l.streams[st].kept, nil
}

// Chunk is a run of bytes of one stream that came together. The last chunk of a stream may grow: a reader
// goes on by the offsets that it has reached ([Log.Position]), not by Seq.
type Chunk struct {
	Seq     int64 // from 1, in order of arrival, without gaps
	Stream  Stream
	Offset  int64 // in what the process wrote
	Length  int64
	AtNS    int64 // when its first byte came, in Unix time
	Dropped bool  // the bytes were not kept, and none that follow in this stream are
}

// Chunks gives up to max chunks from Seq from on.
func (l *Log) Chunks(from int64, max int) []Chunk {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.order.chunks(from, max)
}

// Position is the Seq of the first chunk of kept bytes that is not wholly before these offsets: where a
// reader that has so much of each stream goes on. It is one past the last chunk when there is
// nothing to read yet.
func (l *Log) Position(stdout, stderr int64) (seq int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.order.position([len(streams)]int64{stdout, stderr})
}

// Changed returns a channel that is closed at the next change: bytes, a failure, the end.
// Take it before looking.
func (l *Log) Changed() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.changed == nil {
		l.changed = make(chan struct{})
	}
	return l.changed
}

// wake tells everybody who waits. The caller holds mu.
func (l *Log) wake() {
	if l.changed != nil {
		close(l.changed)
		l.changed = nil
	}
}

// hold stops the streams between two movements.
func (l *Log) hold() (release func()) {
	for i := range l.streams {
		l.streams[i].moving.Lock()
	}
	return func() {
		for i := range l.streams {
			l.streams[i].moving.Unlock()
		}
	}
}

// Seal ends the log: the command has ended. What comes later is drained, and neither kept
// nor counted. It is not written down: a log that is recovered is open again, but for
// streams that were committed.
func (l *Log) Seal() {
	defer l.hold()()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sealed = true
	l.order.close()
	l.wake()
}

// Close gives the descriptors up; the files stay until [Store.Remove]. Nothing can be read
// any more, and what still comes is drained and dropped.
func (l *Log) Close() {
	defer l.hold()()
	l.reading.Lock() // what is closed may be given to another execution
	defer l.reading.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	l.sealed, l.closed = true, true
	l.order.close()
	for i := range l.streams {
		if f := l.streams[i].file; f != nil {
			f.Close()
		}
	}
	if l.ring.file != nil {
		l.ring.file.Close()
	}
	if l.notes.file != nil {
		l.notes.file.Close()
	}
	l.wake()
	l.store.leave(l.id)
}

// Commit makes what is kept of a stream a blob, without copying it: the file gets a second
// name in the store of blobs, and keeps its own until [Store.Remove], so that a process that
// dies before the reference is written down finds everything as it was. The blob is durable when
// Commit returns. The log must be sealed; readers of it go on.
func (l *Log) Commit(st Stream, blobs *blob.Store) (ref string, size int64, err error) {
	s := &l.streams[st]
	s.committing.Lock()
	defer s.committing.Unlock()
	if s.ref == "" {
		if s.ref, err = l.commit(st, blobs); err != nil {
			return "", 0, fmt.Errorf("commit %s of %s: %w", st, l.id, err)
		}
	}
	return s.ref, l.Kept(st), nil
}

func (l *Log) commit(st Stream, blobs *blob.Store) (ref string, err error) {
	l.mu.Lock()
	sealed := l.sealed
	l.mu.Unlock()
	if !sealed {
		return "", errors.New("bug: the log is not sealed")
	}
	if l.First(st) > 0 {
		return "", fmt.Errorf("the beginning: %w", ErrGone)
	}
	if ref, err = l.hash(st); err != nil {
		return "", err
	}
	l.reading.RLock()
	defer l.reading.RUnlock()
	file, kept, err := l.file(st)
	if err != nil {
		return "", err
	}
	if file == nil {
		ref, _, err := blobs.Put(strings.NewReader(""), "")
		return ref, err
	}
	// Before the second name is there: no process that comes later may add to a blob.
	if err := file.Chmod(modeFinal); err != nil {
		return "", err
	}
	failpoint.Hit("spool.final")
	if err := blobs.Take(file, ref, kept); err != nil {
		return "", err
	}
	failpoint.Hit("spool.committed")
	return ref, nil
}

// hash brings the sum of a stream up to what is kept, and gives its reference. It reads the file, of which nothing
// has left the page cache yet, so that what is hashed is what a reader gets.
func (l *Log) hash(st Stream) (ref string, err error) {
	s := &l.streams[st]
	s.hashing.Lock()
	defer s.hashing.Unlock()
	if s.sum == nil {
		s.sum = sha256.New()
	}
	buf := buffers.Get().(*[]byte)
	defer buffers.Put(buf)
	for {
		n, err := l.ReadAt(st, *buf, s.hashed)
		s.sum.Write((*buf)[:n])
		s.hashed += int64(n)
		if err == io.EOF {
			return hashedRef(s.sum.Sum(nil)), nil
		}
		if err != nil {
			return "", err
		}
	}
}

var buffers = sync.Pool{New: func() any { b := make([]byte, 64<<10); return &b }}
