package workspace

import (
	"crypto/rand"
	"errors"
	"os"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/internal/openat2"
)

// below is a directory under which paths are looked up: relative, clean, "." for itself. No lookup leaves it, follows a
// symbolic link or goes into another mount, whoever moves things about meanwhile.
type below struct {
	root   *os.File
	across bool // other mounts are gone through: the guards
}

const beneath = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV

// open opens what is at a path. With O_PATH a symbolic link at its end is opened itself.
func (b below) open(at string, flags uint64) (*os.File, error) {
	how := unix.OpenHow{Flags: flags | unix.O_NOFOLLOW | unix.O_CLOEXEC, Resolve: beneath}
	if b.across {
		how.Resolve &^= unix.RESOLVE_NO_XDEV
	}
	fd, err := openat2.Open(int(b.root.Fd()), at, &how)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), at), nil
}

// stat says what is at a path.
func (b below) stat(at string) (st unix.Stat_t, err error) {
	f, err := b.open(at, unix.O_PATH)
	if err != nil {
		return st, err
	}
	defer f.Close()
	return st, unix.Fstat(int(f.Fd()), &st)
}

// parent opens the directory that a path lies in, and gives the path's last name.
func (b below) parent(at string) (dir *os.File, name string, err error) {
	dir, err = b.open(path.Dir(at), unix.O_PATH|unix.O_DIRECTORY)
	return dir, path.Base(at), err
}

// chmod sets the permissions of what is at a path, if it is of that kind: never, as fchmodat(2) does, of what a symbolic link leads to
// that somebody has put there meanwhile. fchmodat2, which would do, has come with Linux 6.6.
func (b below) chmod(at, kind string, mode uint32) error {
	f, err := b.open(at, unix.O_PATH)
	if err != nil {
		return err
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return err
	}
	if kindOf(st.Mode) != kind {
		return errReplaced
	}
	return unix.Chmod("/proc/self/fd/"+strconv.Itoa(int(f.Fd())), mode)
}

var errReplaced = errors.New("is another object now")

// readlink says where the symbolic link at a path leads.
func (b below) readlink(at string) (string, error) {
	f, err := b.open(at, unix.O_PATH)
	if err != nil {
		return "", err
	}
	defer f.Close()
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(int(f.Fd()), "", buf)
	if err != nil {
		return "", err
	}
	return string(buf[:n]), nil
}

// isAbsent reports that there is nothing at a path, not even a directory that it could be in.
func isAbsent(err error) bool { return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) }

// within reports whether relative path p is dir or lies below it.
func within(p, dir string) bool { return dir == "." || p == dir || strings.HasPrefix(p, dir+"/") }

// comparePaths orders paths by their components: what is in a directory follows it, before its next neighbour.
func comparePaths(a, b string) int {
	for {
		x, restA, moreA := strings.Cut(a, "/")
		y, restB, moreB := strings.Cut(b, "/")
		switch {
		case x != y:
			return strings.Compare(x, y)
		case !moreA && !moreB:
			return 0
		case !moreA:
			return -1
		case !moreB:
			return 1
		}
		a, b = restA, restB
	}
}

// kindOf names a type of file; "" is one that a workspace has nothing to do with.
func kindOf(mode uint32) string {
	switch mode & unix.S_IFMT {
	case unix.S_IFREG:
		return "file"
	case unix.S_IFDIR:
		return "dir"
	case unix.S_IFLNK:
		return "symlink"
	case unix.S_IFIFO:
		return "fifo"
	default:
		return ""
	}
}

// temporary is a name that nobody else chooses.
func temporary() string { return ".stockade-" + rand.Text() }
