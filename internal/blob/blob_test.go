package blob

import (
	"bytes"
	"errors"
	"io"
	"testing"
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

// R067: what was put is what is got, in memory and through a file.
func TestRoundTrip(t *testing.T) {
	s := open(t, t.TempDir()+"/b")
	for _, size := range []int{0, 1, spill - 1, spill, spill + 1, 3 * spill} {
		content := bytes.Repeat([]byte("x"), size)
		ref, n, err := s.Put(bytes.NewReader(content), "")
		if err != nil || n != int64(size) {
			t.Fatalf("put %d bytes: %d, %v", size, n, err)
		}
		r, n, err := s.Reader(ref)
		if err != nil || n != int64(size) {
			t.Fatalf("reader of %d bytes: %d, %v", size, n, err)
		}
		got, err := io.ReadAll(r)
		r.Close()
		if err != nil || !bytes.Equal(got, content) {
			t.Fatalf("read of %d bytes: %d, %v", size, len(got), err)
		}
	}
	if _, _, err := s.Open("sha256:nonsense"); !errors.Is(err, ErrMalformed) {
		t.Fatal(err)
	}
}
