// Package memfile makes files that have no name and cannot be changed any more, for content that crosses from one process to another
// and for programs of which there is to be no file.
//
// It promises that whoever holds such a file, its maker included, can neither write to it nor change its size, and that what [Size]
// accepts is one: a read of it neither waits nor sees something else later. It limits nothing: how much content there is, is its caller's
// matter.
//
// It is linked into stockade-init: standard library and x/sys only, no fmt.
package memfile

import (
	"errors"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// seals make a constant of it.
const seals = unix.F_SEAL_SEAL | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_WRITE

// Of returns a file with what is left in content, and its size. Its offset is its end: seek, or read by offset. The caller closes it.
func Of(name string, content io.Reader) (*os.File, int64, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, 0, os.NewSyscallError("memfd_create", err)
	}
	f := os.NewFile(uintptr(fd), name)
	n, err := io.Copy(f, content)
	if err == nil {
		err = seal(f)
	}
	if err != nil {
		f.Close()
		return nil, 0, err
	}
	return f, n, nil
}

// OfProgram is Of for a program, whoever is to execute it.
func OfProgram(name string, content []byte, mode fs.FileMode) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING|unix.MFD_EXEC)
	if errors.Is(err, unix.EINVAL) { // before Linux 6.3 every one is executable
		fd, err = unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	}
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	f := os.NewFile(uintptr(fd), name)
	_, err = f.Write(content)
	if err == nil {
		err = f.Chmod(mode)
	}
	if err == nil {
		err = seal(f)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func seal(f *os.File) error {
	_, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, seals)
	return os.NewSyscallError("seal memory file", err)
}

// ErrNotSealed is that a descriptor is not of such a file.
var ErrNotSealed = errors.New("no sealed memory file")

// Size is how much there is in a file that somebody else sends and says to have made so. Anything else is refused before it is read: a read
// from a FIFO, or from a FUSE file, would wait.
func Size(fd int) (int64, error) {
	got, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil || got&seals != seals {
		return 0, ErrNotSealed
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return 0, os.NewSyscallError("fstat", err)
	}
	return st.Size, nil
}
