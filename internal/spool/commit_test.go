package spool

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stockade-dev/stockade/internal/blob"
)

// state is a spool beside a store of blobs, as in a state directory.
func state(t testing.TB) (*Store, *blob.Store) {
	t.Helper()
	dir := t.TempDir()
	blobs, err := blob.Open(filepath.Join(dir, "blobs"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { blobs.Close() })
	return open(t, filepath.Join(dir, "spool")), blobs
}

func blobContent(t testing.TB, blobs *blob.Store, ref string) []byte {
	t.Helper()
	r, _, err := blobs.Reader(ref)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// R061: the file of a stream becomes the blob, as it is; readers go on; a process that dies before it has written
// the reference down finds everything as it was, and adds nothing to what may be a blob.
func TestCommit(t *testing.T) {
	s, blobs := state(t)
	l := create(t, s, "x", 1<<20)
	want := sequence(Stdout, 0, 300_000)
	spooled(t, l, Stdout, want)
	if _, _, err := l.Commit(Stdout, blobs); err == nil {
		t.Error("an open log is committed")
	}
	l.Seal()
	before := digest(t, l, Stdout)
	var refs [4]string
	var all sync.WaitGroup
	for i := range refs {
		all.Go(func() {
			ref, size, err := l.Commit(Stdout, blobs)
			if err != nil || size != int64(len(want)) {
				t.Errorf("%d, %v", size, err)
			}
			refs[i] = ref
		})
	}
	all.Wait()
	for _, ref := range refs {
		if ref != before {
			t.Errorf("%s, digest %s", ref, before)
		}
	}
	check(t, l)
	ours, _ := os.Stat(filepath.Join(s.path, "x.stdout"))
	f, _, err := blobs.Open(before)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if theirs, err := f.Stat(); err != nil || !os.SameFile(ours, theirs) || theirs.Mode() != 0o400 {
		t.Errorf("the blob is a copy, or writable: %v, %v", theirs.Mode(), err)
	}

	// A process dies, and another goes on.
	l.Close()
	later := recovered(t, s, "x", 1<<20)
	spooled(t, later, Stdout, []byte("late"))
	spooled(t, later, Stderr, sequence(Stderr, 0, 10))
	check(t, later)
	later.Seal()
	if ref, size, err := later.Commit(Stdout, blobs); err != nil || ref != before || size != int64(len(want)) {
		t.Errorf("again: %s, %d, %v", ref, size, err)
	}

	// A power cut may take the mode back.
	later.Close()
	if err := os.Chmod(filepath.Join(s.path, "x.stdout"), 0o600); err != nil {
		t.Fatal(err)
	}
	later = recovered(t, s, "x", 1<<20)
	spooled(t, later, Stdout, []byte("late"))
	check(t, later)
	later.Close()
	if err := s.Remove("x"); err != nil {
		t.Fatal(err)
	}
	if got := blobContent(t, blobs, before); !bytes.Equal(got, want) {
		t.Error("the blob has changed")
	}
	if len(s.spares.names) != 2 { // of stderr and the order
		t.Errorf("spares: %v", s.spares.names)
	}
}

// The same output twice is one blob; a damaged one is healed; an empty one is one too.
func TestCommitSame(t *testing.T) {
	s, blobs := state(t)
	commit := func(id string, content []byte) string {
		t.Helper()
		l := create(t, s, id, 1<<20)
		spooled(t, l, Stdout, content)
		l.Seal()
		ref, size, err := l.Commit(Stdout, blobs)
		if err != nil || size != int64(len(content)) || !bytes.Equal(blobContent(t, blobs, ref), content) {
			t.Fatal(ref, size, err)
		}
		l.Close()
		if err := s.Remove(id); err != nil {
			t.Fatal(err)
		}
		return ref
	}
	want := sequence(Stdout, 0, 100_000)
	ref := commit("a", want)
	if again := commit("b", want); again != ref {
		t.Errorf("%s and %s", ref, again)
	}
	f, _, err := blobs.Open(ref)
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	if err := os.Truncate(f.Name(), 5); err != nil {
		t.Fatal(err)
	}
	commit("c", want)
	commit("d", nil)
}

// What cannot become a blob is an error, and stays where it is.
func TestCommitFails(t *testing.T) {
	s, blobs := state(t)
	l := create(t, s, "x", 1<<20)
	spooled(t, l, Stdout, sequence(Stdout, 0, 10))
	l.Seal()
	other := open(t, filepath.Join(t.TempDir(), "spool")).path
	name := filepath.Join(s.path, "x.stdout")
	if err := os.Rename(name, filepath.Join(other, "x.stdout")); err != nil {
		t.Fatal(err)
	}
	if _, _, err := l.Commit(Stdout, blobs); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without its name: %v", err)
	}
	if err := os.WriteFile(name, []byte("0123456789"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := l.Commit(Stdout, blobs); !errors.Is(err, blob.ErrMismatch) || blobs.Has(digest(t, l, Stdout)) {
		t.Errorf("another file of its name: %v", err)
	}
	check(t, l)
	l.Close()
	if _, _, err := l.Commit(Stdout, blobs); !errors.Is(err, os.ErrClosed) {
		t.Errorf("closed: %v", err)
	}
}
