package spool

import (
	"crypto/sha256"
	"encoding"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// A ring is a log of which the end is kept. Offsets count from the first byte that ever came, and the file has each byte
// where its offset says: what goes is given back to the file system by a hole. What was in it stays part of the
// digest of all (Log.Sum), which is written down before the hole is made.
//
// The file of the ring, ID.ring, is rewritten by one call, and lies within a page; see FORMAT.md.

// ErrGone says that what was asked for is before the first byte that is kept.
var ErrGone = errors.New("not kept any more")

const (
	ringSuffix = "ring"
	ringMagic  = "STKRING\n"
	block      = 4096 // holes begin and end at multiples of it
	// overhang is how much more than its size a ring has before something goes.
	overhang = 256 << 10
)

// ring is what a log has that is one. Log.mu guards it.
type ring struct {
	size  int64 // 0: it is none
	first int64 // what is before it has gone
	file  *os.File
}

// CreateRing begins a log of which, of stdout, the last size bytes at least are kept, and not much more; of stderr
// nothing is expected, and the first size bytes are.
func (s *Store) CreateRing(id string, size int64) *Log {
	l := s.Create(id, size)
	l.ring.size = size
	return l
}

// RecoverRing is Recover of a ring.
func (s *Store) RecoverRing(id string, size int64) (*Log, error) {
	l, err := s.Recover(id, size)
	if err == nil {
		l.ring.size = size
	}
	return l, err
}

// First is the first offset that can be read.
func (l *Log) First(st Stream) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if st != Stdout {
		return 0
	}
	return l.ring.first
}

// Sum is the digest of all bytes of stdout that ever came, "sha256:<hex>". It knows those that have gone.
func (l *Log) Sum() (string, error) { return l.hash(Stdout) }

// bound is how many bytes the file of a stream may come to have.
func (l *Log) bound(st Stream) int64 {
	if l.ring.size > 0 && st == Stdout {
		return 1 << 62
	}
	return l.limit
}

// trim lets go of what a ring has too much. The caller holds moving.
func (d *drain) trim() error {
	l, s := d.log, d.stream
	if l.ring.size == 0 || d.st != Stdout || s.kept-l.ring.first < l.ring.size+overhang {
		return nil
	}
	first := (s.kept - l.ring.size) &^ (block - 1)
	if err := l.sumTo(first); err != nil {
		return err
	}
	if err := l.noteRing(first); err != nil {
		return err
	}
	l.mu.Lock()
	l.ring.first = first
	l.mu.Unlock()
	// From the beginning: a process that was killed may have noted a hole that it did not make.
	from := (l.notes.limit + block - 1) &^ (block - 1)
	if from >= first {
		return nil
	}
	if err := unix.Fallocate(int(s.file.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, from, first-from); err != nil {
		return os.NewSyscallError("fallocate", err)
	}
	return nil
}

// sumTo brings the sum of stdout to exactly first bytes, or beyond: it may be ahead.
func (l *Log) sumTo(first int64) error {
	s := &l.streams[Stdout]
	s.hashing.Lock()
	done := s.hashed >= first
	s.hashing.Unlock()
	if done {
		return nil
	}
	_, err := l.hash(Stdout)
	return err
}

// noteRing writes down where the ring is going to begin, and what it then knows of the rest.
func (l *Log) noteRing(first int64) error {
	s := &l.streams[Stdout]
	s.hashing.Lock()
	defer s.hashing.Unlock()
	if l.ring.file == nil {
		f, err := l.store.create(l.id, ringSuffix)
		if err != nil {
			return err
		}
		l.mu.Lock()
		l.ring.file = f
		l.mu.Unlock()
	}
	state, err := s.sum.(encoding.BinaryMarshaler).MarshalBinary()
	if err != nil {
		return fmt.Errorf("sum: %w", err)
	}
	b := append(make([]byte, 0, block), ringMagic...)
	b = binary.LittleEndian.AppendUint64(b, uint64(first))
	b = binary.LittleEndian.AppendUint64(b, uint64(s.hashed))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(state)))
	b = append(b, state...)
	b = binary.LittleEndian.AppendUint32(b, checksum(b))
	_, err = l.ring.file.WriteAt(b, 0)
	return err
}

// recoverRing reads where a ring begins. A log without the file has all.
func (l *Log) recoverRing() error {
	file, info, err := l.store.reopen(l.id + "." + ringSuffix)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	l.ring.file = file
	b := make([]byte, info.Size)
	if info.Size > block {
		return errors.New("damaged ring")
	}
	if _, err := io.ReadFull(io.NewSectionReader(file, 0, info.Size), b); err != nil {
		return err
	}
	const head = len(ringMagic) + 20
	if len(b) < head+4 || string(b[:len(ringMagic)]) != ringMagic || !summed(b) {
		return errors.New("damaged ring")
	}
	first := int64(binary.LittleEndian.Uint64(b[len(ringMagic):]))
	s := &l.streams[Stdout]
	s.hashed = int64(binary.LittleEndian.Uint64(b[len(ringMagic)+8:]))
	s.sum = sha256.New()
	if err := s.sum.(encoding.BinaryUnmarshaler).UnmarshalBinary(b[head : len(b)-4]); err != nil {
		return fmt.Errorf("damaged ring: %w", err)
	}
	if first < 0 || first > s.kept || s.hashed < first || s.hashed > s.kept {
		return errors.New("damaged ring: it is not that of its stream")
	}
	l.ring.first = first
	return nil
}

// hashedRef is the reference of a sum.
func hashedRef(sum []byte) string { return "sha256:" + hex.EncodeToString(sum) }
