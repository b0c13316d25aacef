package blob

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// outside writes a file that is in no store.
func outside(t testing.TB, dir string, content []byte) *os.File {
	t.Helper()
	f, err := os.CreateTemp(dir, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	if _, err := f.Write(content); err != nil {
		t.Fatal(err)
	}
	return f
}

func refOf(content []byte) string {
	return fmt.Sprintf("sha256:%x", sha256.Sum256(content))
}

func list(t testing.TB, s *Store) (refs []string) {
	t.Helper()
	for i := range s.fans {
		entries, err := s.entries(i)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if e.size < 1 || time.Since(e.modified) > time.Minute {
				t.Errorf("%+v", e)
			}
			refs = append(refs, e.ref)
		}
	}
	return refs
}

// A file of another directory becomes a blob: the same file where that can be, and a copy on
// another file system.
func TestTake(t *testing.T) {
	s := fresh(t)
	dirs := map[string]bool{filepath.Dir(s.dir): true}
	if here, there := device(t, s.dir), device(t, "/dev/shm"); here != there {
		dir, err := os.MkdirTemp("/dev/shm", "stockade-blob-")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		dirs[dir] = false
	}
	for dir, linked := range dirs {
		for _, size := range sizes {
			content := append(pattern(size), dir...)
			f, ref := outside(t, dir, content), refOf(content)
			for range 2 { // the second finds it there
				if err := s.Take(f, ref, int64(len(content))); err != nil {
					t.Fatal(err)
				}
			}
			if got, err := get(s, ref); err != nil || !bytes.Equal(got, content) {
				t.Errorf("%d bytes: %d, %v", len(content), len(got), err)
			}
			ours, _ := f.Stat()
			theirs, err := os.Stat(s.path(ref[len(scheme):]))
			if err != nil || os.SameFile(ours, theirs) != linked || theirs.Mode() != 0o400 {
				t.Errorf("%v, %v", theirs, err)
			}
		}
	}
	if got := files(t, s); len(got) != len(dirs)*len(sizes) {
		t.Errorf("%v", got)
	}
	f := outside(t, filepath.Dir(s.dir), []byte("x"))
	if err := s.Take(f, refOf([]byte("x")), 2); !errors.Is(err, ErrMismatch) {
		t.Errorf("another length: %v", err)
	}
	if err := s.Take(f, "sha256:x", 1); !errors.Is(err, ErrMalformed) {
		t.Errorf("no reference: %v", err)
	}
	if got := files(t, s); len(got) != len(dirs)*len(sizes) {
		t.Errorf("left behind: %v", got)
	}
}

func device(t *testing.T, name string) uint64 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(name, &st); err != nil {
		t.Fatal(err)
	}
	return st.Dev
}

// What is there is found, and what is not ours passed over.
func TestEntries(t *testing.T) {
	s := fresh(t)
	var want []string
	for i := range 300 {
		want = append(want, put(t, s, fmt.Append(nil, i)))
	}
	slices.Sort(want)
	other := filepath.Join(s.dir, want[0][len(scheme):][:2], "note")
	if err := os.WriteFile(other, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := list(t, s); !slices.Equal(got, want) {
		t.Errorf("%d listed", len(got))
	}
	if !s.Has(want[8]) || s.Has(want[8][:70]+"x") || s.Has("note") {
		t.Error("what there is has changed")
	}
}

// R251: a sweep removes what is old and not wanted; who puts content again makes it young, however he does.
func TestSweep(t *testing.T) {
	s := fresh(t)
	old := time.Now().Add(-48 * time.Hour)
	refs := map[string]string{}
	for _, name := range []string{"old", "old, kept", "young", "put again", "taken again"} {
		refs[name] = put(t, s, []byte(name))
		if name != "young" {
			os.Chtimes(s.path(refs[name][len(scheme):]), old, old)
		}
	}
	put(t, s, []byte("put again"))
	taken := outside(t, filepath.Dir(s.dir), []byte("taken again"))
	os.Chtimes(taken.Name(), old, old)
	if err := s.Take(taken, refs["taken again"], int64(len("taken again"))); err != nil {
		t.Fatal(err)
	}
	silent := outside(t, filepath.Dir(s.dir), []byte("taken"))
	os.Chtimes(silent.Name(), old, old) // a command that was silent for two days before it ended
	refs["taken"] = refOf([]byte("taken"))
	if err := s.Take(silent, refs["taken"], 5); err != nil {
		t.Fatal(err)
	}
	keep := func(ref string) bool { return ref == refs["old, kept"] }
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	if n, _, err := s.Sweep(canceled, keep, time.Now().Add(-time.Hour)); n != 0 || !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %d, %v", n, err)
	}
	n, bytes, err := s.Sweep(t.Context(), keep, time.Now().Add(-time.Hour))
	if err != nil || n != 1 || bytes != 3 || s.Has(refs["old"]) {
		t.Errorf("%d, %d, %v", n, bytes, err)
	}
	for name, ref := range refs {
		if name != "old" && !s.Has(ref) {
			t.Errorf("%s is gone", name)
		}
	}
}

// Content that is put while it is swept is there when the put returns, and stays.
func TestSweepRace(t *testing.T) {
	s := fresh(t)
	old := time.Now().Add(-48 * time.Hour)
	contents := make([][]byte, 20)
	for i := range contents {
		contents[i] = fmt.Append(nil, "content ", i)
	}
	var ended atomic.Bool
	var sweeping sync.WaitGroup
	none := func(string) bool { return false }
	swept := 0
	sweeping.Go(func() {
		for !ended.Load() {
			n, _, err := s.Sweep(context.Background(), none, time.Now().Add(-time.Hour))
			if err != nil {
				t.Error(err)
			}
			swept += n
		}
	})
	var putting sync.WaitGroup
	for i, content := range contents {
		putting.Go(func() {
			rng := rand.New(rand.NewPCG(8, uint64(i)))
			ref := refOf(content)
			for range 40 {
				switch rng.IntN(2) {
				case 0:
					if _, _, err := s.Put(bytes.NewReader(content), ref); err != nil {
						t.Error(err)
					}
				case 1:
					f := outside(t, filepath.Dir(s.dir), content)
					if err := s.Take(f, ref, int64(len(content))); err != nil {
						t.Error(err)
					}
				}
				if !s.Has(ref) {
					t.Error("it is gone")
				}
				os.Chtimes(s.path(ref[len(scheme):]), old, old)
				time.Sleep(time.Duration(rng.IntN(500)) * time.Microsecond)
			}
		})
	}
	putting.Wait()
	ended.Store(true)
	sweeping.Wait()
	if swept == 0 {
		t.Error("nothing was ever swept")
	}
	if got := files(t, s); slices.ContainsFunc(got, func(n string) bool { return strings.HasPrefix(n, "incoming") }) {
		t.Errorf("left behind: %v", got)
	}
}
