package spool

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func open(t testing.TB, dir string) *Store {
	t.Helper()
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func fresh(t testing.TB) *Store { return open(t, filepath.Join(t.TempDir(), "spool")) }

func create(t testing.TB, s *Store, id string, limit int64) *Log {
	l := s.Create(id, limit)
	t.Cleanup(l.Close)
	return l
}

func recovered(t testing.TB, s *Store, id string, limit int64) *Log {
	t.Helper()
	l, err := s.Recover(id, limit)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	return l
}

// pipe is as the runner makes it: the read end is nonblocking and in the poller.
func pipe(t testing.TB) (r, w *os.File) {
	t.Helper()
	var fds [2]int
	if err := errors.Join(unix.Pipe2(fds[:], unix.O_CLOEXEC), unix.SetNonblock(fds[0], true)); err != nil {
		t.Fatal(err)
	}
	r, w = os.NewFile(uintptr(fds[0]), "r"), os.NewFile(uintptr(fds[1]), "w")
	t.Cleanup(func() { r.Close(); w.Close() })
	return r, w
}

// spooled writes content to a stream, in one piece.
func spooled(t testing.TB, l *Log, st Stream, content []byte) {
	t.Helper()
	r, w := pipe(t)
	go func() { w.Write(content); w.Close() }()
	if err := l.Drain(st, r); err != nil {
		t.Fatal(err)
	}
	r.Close()
}

// sequence is what the streams of these tests consist of: a byte depends on its position and its
// stream, so that none can be missing, doubled or elsewhere unseen.
func sequence(st Stream, from, n int64) []byte {
	b := make([]byte, n)
	for i := range b {
		x := uint64(from) + uint64(i) + uint64(st)<<40
		x *= 0x9e3779b97f4a7c15
		b[i] = byte(x >> 56)
	}
	return b
}

func sealed(l *Log) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sealed
}

// digest is the reference of what is kept now.
func digest(t testing.TB, l *Log, st Stream) string {
	t.Helper()
	ref, err := l.hash(st)
	if err != nil {
		t.Fatal(err)
	}
	return ref
}

type reader struct {
	l  *Log
	st Stream
}

func (r reader) ReadAt(p []byte, off int64) (int, error) { return r.l.ReadAt(r.st, p, off) }

func content(t testing.TB, l *Log, st Stream) []byte {
	t.Helper()
	b, err := io.ReadAll(io.NewSectionReader(reader{l, st}, 0, 1<<62))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// check compares what a log says in its several ways: bytes are those of the sequence, and chunks cover them and what was
// dropped, without gap or overlap.
func check(t testing.TB, l *Log) {
	t.Helper()
	for _, st := range streams {
		got := content(t, l, st)
		if int64(len(got)) != l.Kept(st) || !bytes.Equal(got, sequence(st, 0, int64(len(got)))) {
			t.Fatalf("%s: %d bytes, %d kept, or others than were written", st, len(got), l.Kept(st))
		}
	}
	var next [len(streams)]int64
	for i, c := range l.Chunks(1, 1<<30) {
		if c.Seq != int64(i)+1 || c.Offset != next[c.Stream] || c.Length < 1 || c.AtNS == 0 {
			t.Fatalf("chunk %d: %+v, want offset %d", i+1, c, next[c.Stream])
		}
		if kept := l.Kept(c.Stream); c.Dropped != (c.Offset >= kept) || !c.Dropped && c.Offset+c.Length > kept {
			t.Fatalf("chunk %d: %+v of %d kept", i+1, c, kept)
		}
		next[c.Stream] += c.Length
	}
	for _, st := range streams {
		if next[st] != l.Total(st) {
			t.Fatalf("%s: chunks of %d bytes of %d", st, next[st], l.Total(st))
		}
	}
}
