// Package durable has the few file operations that survive a power cut. Each says what
// is on the disk when it returns and what is not; what a comment does not name is not
// promised.
//
// It knows nothing of formats and never retries a failed sync: after one, the kernel
// may have dropped the pages it could not write, and a second sync that succeeds
// proves nothing about them.
package durable

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// SyncDir makes the names in dir durable: entries created, renamed and removed before
// the call. It says nothing about the content of the files.
func SyncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}

// SyncData makes the content of f and its length durable. Its times and mode may be
// lost, and so may its name until [SyncDir].
func SyncData(f *os.File) error {
	err := retry(func() error { return unix.Fdatasync(int(f.Fd())) })
	if err != nil {
		return &fs.PathError{Op: "fdatasync", Path: f.Name(), Err: err}
	}
	return nil
}

// Allocate reserves disk space for the first size bytes of f and extends it to that
// length with zeros, so that writing there later does not fail for want of space (a
// copy-on-write file system gives no such promise). Nothing is durable yet.
func Allocate(f *os.File, size int64) error {
	err := retry(func() error { return unix.Fallocate(int(f.Fd()), 0, 0, size) })
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) {
		return writeZeros(f, size)
	}
	if err != nil {
		return &fs.PathError{Op: "fallocate", Path: f.Name(), Err: err}
	}
	return nil
}

// writeZeros is Allocate where the file system has no fallocate.
func writeZeros(f *os.File, size int64) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	zeros := make([]byte, 256<<10)
	for off := info.Size(); off < size; {
		n, err := f.WriteAt(zeros[:min(int64(len(zeros)), size-off)], off)
		if err != nil {
			return err
		}
		off += int64(n)
	}
	return nil
}

// retry repeats a system call that a signal interrupted before it did anything.
func retry(call func() error) error {
	for {
		if err := call(); err != unix.EINTR {
			return err
		}
	}
}

// Replace gives name the content data, whole: after a crash at any moment there is
// the old file or the new one. Content and name are durable when it returns.
func Replace(name string, data []byte, mode fs.FileMode) error {
	return publish(name, whole(data), mode, os.Rename)
}

// ReplaceWith is [Replace] for content that write writes, from an empty file on. After an error of its the old file is there.
func ReplaceWith(name string, write func(*os.File) error, mode fs.FileMode) error {
	return publish(name, write, mode, os.Rename)
}

// Create is [Replace] for a name that must not exist yet: otherwise the error is
// [fs.ErrExist], and the file is as it was.
func Create(name string, data []byte, mode fs.FileMode) error {
	return publish(name, whole(data), mode, os.Link)
}

func whole(data []byte) func(*os.File) error {
	return func(f *os.File) error {
		_, err := f.Write(data)
		return err
	}
}

// publish writes a hidden file beside name, makes it durable and gives it its name.
// The hidden name ends in ".tmp"; a crash may leave it behind.
func publish(name string, write func(*os.File) error, mode fs.FileMode, give func(from, to string) error) error {
	dir := filepath.Dir(name)
	f, err := os.CreateTemp(dir, "."+filepath.Base(name)+".*.tmp")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // already gone after a rename; a second name after a link
	defer f.Close()
	if err := f.Chmod(mode); err != nil {
		return err
	}
	if err := write(f); err != nil {
		return err
	}
	if err := f.Sync(); err != nil { // not SyncData: the mode must last too
		return err
	}
	if err := give(f.Name(), name); err != nil {
		return err
	}
	return SyncDir(dir)
}

// PrivateDir makes dir a directory that only this user can enter, durably, or checks
// that it is one already. A directory of somebody else, a symbolic link, or one that
// group or others can enter is refused, not repaired: what was readable until now may
// have been read or prepared (CVE-2021-41103, CVE-2024-25621). Parents must exist.
func PrivateDir(dir string) error {
	err := os.Mkdir(dir, 0o700)
	if err == nil {
		err = SyncDir(filepath.Dir(dir))
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return &fs.PathError{Op: "open", Path: dir, Err: err}
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return &fs.PathError{Op: "stat", Path: dir, Err: err}
	}
	if int(st.Uid) != os.Geteuid() {
		return fmt.Errorf("directory %s: %w: it belongs to uid %d", dir, ErrNotPrivate, st.Uid)
	}
	if st.Mode&0o077 != 0 {
		return fmt.Errorf("directory %s: %w: mode %04o, want 0700", dir, ErrNotPrivate, st.Mode&0o7777)
	}
	return nil
}

// ErrNotPrivate is the refusal of [PrivateDir].
var ErrNotPrivate = errors.New("not private")

// Lock takes dir for one owner, among processes and within one. Closing the file
// gives it back, and so does the end of the process; nothing stale can be left.
// The error is [ErrLocked] when somebody has it.
func Lock(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	err = retry(func() error { return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) })
	if err != nil {
		f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("lock %s: %w", dir, ErrLocked)
		}
		return nil, fmt.Errorf("lock %s: %w", dir, err)
	}
	return f, nil
}

// ErrLocked says that another owner has the directory.
var ErrLocked = errors.New("in use by another process")
