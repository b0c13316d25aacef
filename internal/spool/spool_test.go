package spool

import (
	"bytes"
	"fmt"
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

// pipe is as the runner makes it: the read end is nonblocking and in the poller.
func pipe(t testing.TB) (r, w *os.File) {
	t.Helper()
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		t.Fatal(err)
	}
	r, w = os.NewFile(uintptr(fds[0]), "r"), os.NewFile(uintptr(fds[1]), "w")
	t.Cleanup(func() { r.Close(); w.Close() })
	return r, w
}

func pattern(size int) []byte {
	content := make([]byte, size)
	for i := range content {
		content[i] = byte(i % 251)
	}
	return content
}

func content(t testing.TB, l *Log, st Stream) []byte {
	t.Helper()
	b, err := io.ReadAll(io.NewSectionReader(readerAt{l, st}, 0, 1<<40))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

type readerAt struct {
	l  *Log
	st Stream
}

func (r readerAt) ReadAt(p []byte, off int64) (int, error) { return r.l.ReadAt(r.st, p, off) }

func TestDrain(t *testing.T) {
	s := fresh(t)
	l := s.Create("a", 1<<20)
	defer l.Close()
	r, w := pipe(t)
	done := make(chan error)
	go func() { done <- l.Drain(Stdout, r) }()
	want := pattern(3 << 20)
	if _, err := w.Write(want); err != nil {
		t.Fatal(err)
	}
	w.Close()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if got := content(t, l, Stdout); !bytes.Equal(got, want[:1<<20]) || l.Total(Stdout) != 3<<20 {
		t.Errorf("%d bytes of %d", len(got), l.Total(Stdout))
	}
	fmt.Println(l.Chunks(0, 10))
}

func BenchmarkSmall(b *testing.B) {
	s := fresh(b)
	buf := make([]byte, 100)
	for i := 0; b.Loop(); i++ {
		r, w := pipe(b)
		id := fmt.Sprint(i)
		l := s.Create(id, 1<<20)
		w.WriteString("0123456789")
		w.Close()
		l.Drain(Stdout, r)
		r.Close()
		l.Seal()
		l.ReadAt(Stdout, buf, 0)
		l.Close()
		s.Remove(id)
	}
}
