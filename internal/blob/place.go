package blob

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/internal/durable"
	"github.com/stockade-dev/stockade/internal/failpoint"
)

// Take makes the file of another directory content under ref, which the caller has computed, and
// size, without copying it. The file is the one of f's name; it keeps that name too, and from now on must
// never be written: the two are one. Where content and name are durable Take returns nil. A
// file on another file system is copied.
func (s *Store) Take(f *os.File, ref string, size int64) error {
	digest, err := Digest(ref)
	if err != nil {
		return err
	}
	if err := s.take(f, digest, size); err != nil {
		return fmt.Errorf("take %s as blob: %w", f.Name(), err)
	}
	return nil
}

func (s *Store) take(f *os.File, digest string, size int64) error {
	if there, err := s.renew(digest); there {
		return err
	}
	if err := f.Chmod(0o400); err != nil {
		return err
	}
	if err := f.Sync(); err != nil { // not SyncData: the mode must last too
		return err
	}
	failpoint.Hit("blob.synced")
	temp := s.temporary()
	err := os.Link(f.Name(), temp)
	if errors.Is(err, unix.EXDEV) {
		_, _, err := s.Put(io.NewSectionReader(f, 0, size), scheme+digest)
		return err
	}
	if err != nil {
		return err
	}
	// Of the same file already under this digest, rename makes nothing and leaves the new name.
	defer os.Remove(temp)
	if err := same(f, temp, size); err != nil {
		return err
	}
	failpoint.Hit("blob.linked")
	return s.place(temp, digest)
}

// same checks that name is f, and as long as it should be.
func same(f *os.File, name string, size int64) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	named, err := os.Lstat(name)
	if err != nil {
		return err
	}
	if !os.SameFile(info, named) || info.Size() != size {
		return fmt.Errorf("%w: the file has changed", ErrMismatch)
	}
	return nil
}

// renew makes content that is there already, whole, as young as if it were put now, and its name durable.
// It reports whether the content is there.
func (s *Store) renew(digest string) (there bool, err error) {
	if s.Verify(scheme+digest) != nil {
		return false, nil
	}
	final := s.path(digest)
	mu := &s.fan(digest).mu
	mu.Lock()
	err = touch(final)
	mu.Unlock()
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil // swept since it was read
	}
	if err != nil {
		return true, err
	}
	// It may be there by the rename of another writer whose directory sync is
	// still under way: durable only after ours.
	return true, durable.SyncDir(filepath.Dir(final))
}

// place gives the content of temp, which is durable, its name.
func (s *Store) place(temp, digest string) error {
	if err := s.makeFan(digest); err != nil {
		return err
	}
	if err := touch(temp); err != nil { // it may have been written long ago
		return err
	}
	final := s.path(digest)
	mu := &s.fan(digest).mu
	mu.Lock()
	// A rename, not a link: damaged content under this name is healed, and of many
	// writers of the same content the last one wins without a difference.
	err := os.Rename(temp, final)
	mu.Unlock()
	if err != nil {
		return err
	}
	failpoint.Hit("blob.named")
	return durable.SyncDir(filepath.Dir(final))
}

// touch sets the time from which the age of content counts to now.
func touch(name string) error {
	now := []unix.Timespec{{Nsec: unix.UTIME_NOW}, {Nsec: unix.UTIME_NOW}}
	if err := unix.UtimesNanoAt(unix.AT_FDCWD, name, now, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return &fs.PathError{Op: "utimensat", Path: name, Err: err}
	}
	return nil
}

// Touch makes content that is there as young as if it were put now. Who is about to name content
// that was put long ago does it before he looks at it: then no [Store.Sweep] takes it before it is named.
func (s *Store) Touch(ref string) error {
	digest, err := Digest(ref)
	if err != nil {
		return err
	}
	mu := &s.fan(digest).mu
	mu.Lock()
	defer mu.Unlock()
	if err := touch(s.path(digest)); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %s", ErrNotFound, ref)
	} else if err != nil {
		return fmt.Errorf("touch blob: %w", err)
	}
	return nil
}

// fan is the directory that digest belongs into.
func (s *Store) fan(digest string) *fan {
	i, err := strconv.ParseUint(digest[:2], 16, 8)
	if err != nil {
		panic("bug: not a digest: " + digest)
	}
	return &s.fans[i]
}

// makeFan makes the directory that digest belongs into, durably.
func (s *Store) makeFan(digest string) error {
	fan := s.fan(digest)
	if fan.made.Load() {
		return nil
	}
	if err := durable.PrivateDir(filepath.Join(s.dir, digest[:2])); err != nil {
		return err
	}
	// It may have been made by another writer that has not synced it yet.
	if err := durable.SyncDir(s.dir); err != nil {
		return err
	}
	fan.made.Store(true)
	return nil
}
