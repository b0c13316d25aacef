// Package blob keeps content by its digest: sha256:<64 lower-case hex>. What Put returned a
// reference to, and what Take took, is on the disk, whole, also after a power cut; what is
// read through [Store.Reader] is what the reference says, or an error.
//
// It keeps no index, does not know who may read what, and removes what it is told to. It takes
// no content when the file system has little room left ([ErrFull]).
//
//	DIR/lock            held while the store is open
//	DIR/incoming/*      being written; removed at the next Open
//	DIR/ab/abcd…        content, read-only, named by its digest
package blob

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/internal/durable"
)

// What a caller can act on.
var (
	ErrNotFound  = errors.New("no such blob")
	ErrMalformed = errors.New("malformed blob reference")
	ErrMismatch  = errors.New("content does not match the reference expected")
	ErrCorrupt   = errors.New("stored content does not match its reference")
	ErrFull      = errors.New("no room for blobs")
)

// What is left of a file system for others, the journal above all: content is what callers
// and sandboxes can make much of, and it must not be what ends the records. The journal takes
// 64 MiB at a time.
const (
	floor      = 128 << 20
	floorShare = 8 // an eighth, where that is less
)

const scheme = "sha256:"

// Digest returns the hexadecimal half of a reference. Only the one canonical spelling
// of a reference is accepted, so that a reference can be compared and can be a file name.
func Digest(ref string) (string, error) {
	digest, ok := strings.CutPrefix(ref, scheme)
	if !ok || len(digest) != 2*sha256.Size || strings.Trim(digest, "0123456789abcdef") != "" {
		return "", fmt.Errorf("%w: %.80q", ErrMalformed, ref)
	}
	return digest, nil
}

// Store is a directory of blobs. Its methods may be called at the same time.
type Store struct {
	dir   string
	lock  *os.File
	files atomic.Int64 // names for incoming files
	fans  [256]fan
}

// fan is one of the directories that blobs are spread over.
type fan struct {
	made atomic.Bool // known to exist durably
	mu   sync.Mutex  // held while a name is given, made young, or taken away
}

// Open opens the store in dir, which it makes if need be, and removes what a crash
// left half-written. One store at a time can have the directory. The caller closes it.
func Open(dir string) (*Store, error) {
	if err := durable.PrivateDir(dir); err != nil {
		return nil, fmt.Errorf("blob store: %w", err)
	}
	lock, err := durable.Lock(dir)
	if err != nil {
		return nil, fmt.Errorf("blob store: %w", err)
	}
	s := &Store{dir: dir, lock: lock}
	// Under the lock nobody else is writing: whatever is there is a leftover.
	err = os.RemoveAll(s.incoming())
	if err == nil {
		err = durable.PrivateDir(s.incoming())
	}
	if err != nil {
		lock.Close()
		return nil, fmt.Errorf("blob store: %w", err)
	}
	return s, nil
}

// View is the store in dir for who only reads. It takes no lock, so that it can be used beside whoever
// has the store open, and changes nothing.
func View(dir string) *Store { return &Store{dir: dir} }

// Close gives the directory back. What is being put is lost.
func (s *Store) Close() error { return s.lock.Close() }

func (s *Store) room(size int64) error { return Room(int(s.lock.Fd()), size) }

// Room returns [ErrFull] when size bytes more would leave less than the floor on the file system of a
// descriptor. Writers at the same time may each find the same room: the floor is far above
// what one write takes.
func Room(fd int, size int64) error {
	var st unix.Statfs_t
	if err := unix.Fstatfs(fd, &st); err != nil {
		return fmt.Errorf("statfs: %w", err)
	}
	total, left := int64(st.Blocks)*st.Bsize, int64(st.Bavail)*st.Bsize
	if keep := min(floor, total/floorShare); total > 0 && left-size < keep { // some have no total to tell
		return fmt.Errorf("%w: %d bytes are left, of which %d are kept free", ErrFull, left, keep)
	}
	return nil
}

func (s *Store) incoming() string { return filepath.Join(s.dir, "incoming") }

// temporary is a name for a file that is not content yet.
func (s *Store) temporary() string {
	return filepath.Join(s.incoming(), strconv.FormatInt(s.files.Add(1), 10))
}

func (s *Store) path(digest string) string { return filepath.Join(s.dir, digest[:2], digest) }

// Put stores what r gives. When expected is not "" and the content is another, nothing
// is kept and the error is [ErrMismatch].
func (s *Store) Put(r io.Reader, expected string) (ref string, size int64, err error) {
	if expected != "" {
		if _, err := Digest(expected); err != nil {
			return "", 0, err
		}
	}
	w := s.writer()
	defer w.abort()
	if _, err := io.Copy(w, r); err != nil {
		return "", 0, fmt.Errorf("put blob: %w", err)
	}
	if got := reference(w.sum); expected != "" && got != expected {
		return "", 0, fmt.Errorf("put blob: %w: it is %s", ErrMismatch, got)
	}
	return w.commit()
}

// Has says whether content is there; it does not look whether it is whole.
func (s *Store) Has(ref string) bool {
	digest, err := Digest(ref)
	if err != nil {
		return false
	}
	_, err = os.Lstat(s.path(digest))
	return err == nil
}

// Open opens content for reading, and says how long it is. The bytes are as stored;
// [Store.Reader] also checks them.
func (s *Store) Open(ref string) (*os.File, int64, error) {
	digest, err := Digest(ref)
	if err != nil {
		return nil, 0, err
	}
	f, err := os.OpenFile(s.path(digest), os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, 0, fmt.Errorf("%w: %s", ErrNotFound, ref)
	}
	if err != nil {
		return nil, 0, fmt.Errorf("open blob: %w", err)
	}
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, 0, fmt.Errorf("open blob: %w", err)
	}
	return f, info.Size(), nil
}

// Reader reads content and checks it on the way: where the end of file would be, a
// digest that does not match gives [ErrCorrupt].
func (s *Store) Reader(ref string) (io.ReadCloser, int64, error) {
	f, size, err := s.Open(ref)
	if err != nil {
		return nil, 0, err
	}
	return &reader{f: f, ref: ref, sum: sha256.New()}, size, nil
}

type reader struct {
	f   *os.File
	ref string
	sum hash.Hash
}

func (r *reader) Read(p []byte) (int, error) {
	n, err := r.f.Read(p)
	r.sum.Write(p[:n])
	if err == io.EOF && reference(r.sum) != r.ref {
		return n, fmt.Errorf("read blob %s: %w", r.ref, ErrCorrupt)
	}
	return n, err
}

func (r *reader) Close() error { return r.f.Close() }

// Verify reads content to its end and checks it.
func (s *Store) Verify(ref string) error {
	r, _, err := s.Reader(ref)
	if err != nil {
		return err
	}
	defer r.Close()
	_, err = io.Copy(io.Discard, r)
	return err
}

func reference(sum hash.Hash) string { return scheme + hex.EncodeToString(sum.Sum(nil)) }
