package blob

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/internal/durable"
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

func fresh(t testing.TB) *Store { return open(t, filepath.Join(t.TempDir(), "blobs")) }

func put(t testing.TB, s *Store, content []byte) (ref string) {
	t.Helper()
	ref, size, err := s.Put(bytes.NewReader(content), "")
	if err != nil || size != int64(len(content)) || ref != fmt.Sprintf("sha256:%x", sha256.Sum256(content)) {
		t.Fatalf("put %d bytes: %s, %d, %v", len(content), ref, size, err)
	}
	return ref
}

func get(s *Store, ref string) ([]byte, error) {
	r, _, err := s.Reader(ref)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(r)
}

// files lists what is in the store, without directories.
func files(t testing.TB, s *Store) (names []string) {
	t.Helper()
	err := filepath.WalkDir(s.dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() && e.Name() != "lock" {
			names = append(names, strings.TrimPrefix(path, s.dir+"/"))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func pattern(size int) []byte {
	content := make([]byte, size)
	for i := range content {
		content[i] = byte(i % 251)
	}
	return content
}

// sizes on both sides of where content gets a file.
var sizes = []int{0, 1, 100, spill - 1, spill, spill + 1, 5*spill + 3}

// R067, R251: what was put is what is got, also after the store was closed, and the
// file of it is read-only and named by its digest.
func TestPutGet(t *testing.T) {
	s := fresh(t)
	refs := map[string][]byte{}
	for _, size := range sizes {
		refs[put(t, s, pattern(size))] = pattern(size)
	}
	s.Close()
	s = open(t, s.dir)
	for ref, want := range refs {
		if got, err := get(s, ref); err != nil || !bytes.Equal(got, want) {
			t.Errorf("get %d bytes: %d, %v", len(want), len(got), err)
		}
		f, size, err := s.Open(ref)
		if err != nil || size != int64(len(want)) {
			t.Fatalf("open: %d, %v", size, err)
		}
		info, err := f.Stat()
		f.Close()
		if digest, _ := Digest(ref); err != nil || info.Mode() != 0o400 || info.Name() != digest {
			t.Errorf("%s, %v, %v", info.Name(), info.Mode(), err)
		}
	}
	if _, err := get(s, put(t, s, []byte("x"))[:70]+"0"); !errors.Is(err, ErrNotFound) {
		t.Errorf("unknown reference: %v", err)
	}
}

// Only the one spelling is a reference: nothing else becomes a path.
func TestMalformed(t *testing.T) {
	s := fresh(t)
	good := put(t, s, []byte("x"))
	digest := strings.TrimPrefix(good, scheme)
	rows := []string{
		"", scheme, digest, "sha512:" + digest, "SHA256:" + digest, scheme + strings.ToUpper(digest),
		good + "0", good[:len(good)-1], good + "\n", " " + good, scheme + strings.Repeat("g", 64),
		scheme + "../../../../etc/passwd", scheme + digest[:62] + "/.", scheme + digest[:63] + "\x00",
		scheme + strings.Repeat("é", 32), scheme + digest[:60] + "-" + digest[61:],
	}
	for _, ref := range rows {
		_, _, openErr := s.Open(ref)
		_, _, readErr := s.Reader(ref)
		var putErr error
		if ref != "" { // none expected
			_, _, putErr = s.Put(strings.NewReader("x"), ref)
		} else {
			putErr = ErrMalformed
		}
		for verb, err := range map[string]error{"open": openErr, "reader": readErr, "put": putErr, "verify": s.Verify(ref)} {
			if !errors.Is(err, ErrMalformed) {
				t.Errorf("%s %q: %v", verb, ref, err)
			}
		}
	}
}

// R067: content that is not what was promised is not kept.
func TestMismatch(t *testing.T) {
	s := fresh(t)
	for _, size := range sizes {
		content := pattern(size)
		wrong := fmt.Sprintf("sha256:%064x", size)
		if _, _, err := s.Put(bytes.NewReader(content), wrong); !errors.Is(err, ErrMismatch) {
			t.Errorf("%d bytes: %v", size, err)
		}
		if got := files(t, s); len(got) != 0 {
			t.Errorf("%d bytes: left behind: %v", size, got)
		}
		right := fmt.Sprintf("sha256:%x", sha256.Sum256(content))
		if ref, _, err := s.Put(bytes.NewReader(content), right); err != nil || ref != right {
			t.Errorf("%d bytes: %s, %v", size, ref, err)
		}
		if err := os.Remove(s.path(right[len(scheme):])); err != nil {
			t.Error(err)
		}
	}
}

// A hundred writers of the same content at once: one reference, one file.
func TestSameContent(t *testing.T) {
	for _, size := range []int{10, 2 * spill} {
		s := fresh(t)
		content := pattern(size)
		refs := make([]string, 100)
		var running sync.WaitGroup
		for i := range refs {
			running.Go(func() {
				var err error
				if refs[i], _, err = s.Put(bytes.NewReader(content), ""); err != nil {
					t.Error(err)
				} else if err := s.Verify(refs[i]); err != nil {
					t.Errorf("right after its commit: %v", err)
				}
			})
		}
		running.Wait()
		for _, ref := range refs {
			if ref != refs[0] {
				t.Fatalf("%s and %s", ref, refs[0])
			}
		}
		if got := files(t, s); len(got) != 1 {
			t.Errorf("%d bytes: %v", size, got)
		}
	}
}

// Content that changed on the disk is never read as if it were whole, and writing the
// same content again heals it.
func TestCorruption(t *testing.T) {
	s := fresh(t)
	damage := map[string]func(b []byte) []byte{
		"changed":   func(b []byte) []byte { b[len(b)/2] ^= 1; return b },
		"shortened": func(b []byte) []byte { return b[:len(b)-1] },
		"emptied":   func(b []byte) []byte { return nil },
		"extended":  func(b []byte) []byte { return append(b, 0) },
	}
	for name, change := range damage {
		for _, size := range []int{1, 2 * spill} {
			content := pattern(size)
			ref := put(t, s, content)
			path := s.path(ref[len(scheme):])
			os.Remove(path)
			if err := os.WriteFile(path, change(bytes.Clone(content)), 0o400); err != nil {
				t.Fatal(err)
			}
			if _, err := get(s, ref); !errors.Is(err, ErrCorrupt) {
				t.Errorf("%s: read: %v", name, err)
			}
			if err := s.Verify(ref); !errors.Is(err, ErrCorrupt) {
				t.Errorf("%s: verify: %v", name, err)
			}
			put(t, s, content)
			if err := s.Verify(ref); err != nil {
				t.Errorf("%s: after it was put again: %v", name, err)
			}
		}
	}
}

// A link that somebody placed is not followed.
func TestNoFollow(t *testing.T) {
	s := fresh(t)
	ref := put(t, s, []byte("x"))
	path := s.path(ref[len(scheme):])
	os.Remove(path)
	if err := os.Symlink("/etc/passwd", path); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.Open(ref); !errors.Is(err, unix.ELOOP) {
		t.Error(err)
	}
}

// Small content makes no file before it is committed, and none at all without.
func TestWriterInMemory(t *testing.T) {
	s := fresh(t)
	w := s.writer()
	w.Write(pattern(spill))
	if !bytes.Equal(w.buf, pattern(spill)) || w.size != spill || len(files(t, s)) != 0 {
		t.Errorf("%d bytes, length %d, files %v", len(w.buf), w.size, files(t, s))
	}
	w.Write([]byte("one more"))
	if w.file == nil || w.size != spill+8 || len(files(t, s)) != 1 {
		t.Errorf("%d bytes, length %d, files %v", len(w.buf), w.size, files(t, s))
	}
	w.abort()
	if got := files(t, s); len(got) != 0 {
		t.Errorf("after abort: %v", got)
	}
}

// What a crash left half-written is gone after the next Open; nobody opens a store that
// is in use, so that nothing of the living is removed.
func TestLeftovers(t *testing.T) {
	s := fresh(t)
	ref := put(t, s, []byte("kept"))
	s.writer().Write(pattern(2 * spill))
	if len(files(t, s)) != 2 {
		t.Fatal(files(t, s))
	}
	if _, err := Open(s.dir); !errors.Is(err, durable.ErrLocked) {
		t.Errorf("second opener: %v", err)
	}
	s.Close() // as the end of the process does
	s = open(t, s.dir)
	if got := files(t, s); len(got) != 1 || s.Verify(ref) != nil {
		t.Errorf("after a restart: %v", got)
	}
}

// A disk that is nearly full fails the write and leaves nothing; content that fits still goes
// in. An eighth stays free for others (T191).
func TestFullDisk(t *testing.T) {
	runtime.LockOSThread() // its mount namespace ends with the thread, which dies with the test
	mount := t.TempDir()
	err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS)
	if err == nil {
		err = unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
	}
	if err == nil {
		err = unix.Mount("tmpfs", mount, "tmpfs", 0, "size=256k,mode=0700")
	}
	if errors.Is(err, unix.EPERM) {
		if os.Getenv("STOCKADE_NOSKIP") == "1" {
			t.Fatal(err)
		}
		t.Skipf("mounting a tmpfs needs CAP_SYS_ADMIN: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Unmount(mount, unix.MNT_DETACH) })

	s := open(t, filepath.Join(mount, "blobs"))
	if _, _, err := s.Put(bytes.NewReader(pattern(1<<20)), ""); !errors.Is(err, ErrFull) {
		t.Errorf("more than fits: %v", err)
	}
	w := s.writer()
	for err == nil {
		_, err = w.Write(pattern(10_000))
	}
	var st unix.Statfs_t
	if err := unix.Statfs(mount, &st); err != nil || st.Bavail < st.Blocks/floorShare {
		t.Errorf("%d of %d blocks are left, %v", st.Bavail, st.Blocks, err)
	}
	if !errors.Is(err, ErrFull) {
		t.Errorf("the failed write: %v", err)
	}
	w.abort()
	if got := files(t, s); len(got) != 0 {
		t.Errorf("left behind: %v", got)
	}
	put(t, s, pattern(100<<10))
}

// BenchmarkCommit is the price of durable content, of which none is there yet.
func BenchmarkCommit(b *testing.B) {
	for _, size := range []int{100, 16 << 10, 1 << 20} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			s := fresh(b)
			content := pattern(size)
			b.SetBytes(int64(size))
			for i := 0; b.Loop(); i++ {
				copy(content, fmt.Sprint(i))
				if _, _, err := s.Put(bytes.NewReader(content), ""); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkFlood is a large output, hashed and stored, beside the same without a store.
func BenchmarkFlood(b *testing.B) {
	const size = 256 << 20
	chunk := pattern(64 << 10)
	b.Run("blob", func(b *testing.B) {
		s := fresh(b)
		b.SetBytes(size)
		for b.Loop() {
			w := s.writer()
			for range size / len(chunk) {
				if _, err := w.Write(chunk); err != nil {
					b.Fatal(err)
				}
			}
			w.abort()
		}
	})
	b.Run("file", func(b *testing.B) {
		name := filepath.Join(b.TempDir(), "file")
		b.SetBytes(size)
		for b.Loop() {
			f, err := os.Create(name)
			if err != nil {
				b.Fatal(err)
			}
			for range size / len(chunk) {
				if _, err := f.Write(chunk); err != nil {
					b.Fatal(err)
				}
			}
			f.Close()
			os.Remove(name)
		}
	})
}
