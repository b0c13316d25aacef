package runc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/sandbox"
	"github.com/stockade-dev/stockade/sandbox/launch"
)

// Resolve looks at host paths as the caller would. A path that the caller cannot
// reach, or whose object it cannot read (and enter), has an error code in its place.
func (r *Runner) Resolve(_ context.Context, caller sandbox.Caller, paths []string) ([]launch.Resolved, error) {
	out := make([]launch.Resolved, len(paths))
	err := as(caller, func() error {
		for i, path := range paths {
			f, src, err := lookUp(path)
			if err == nil {
				err = permits(f, src.Kind, false)
				f.Close()
			}
			if err != nil {
				code := resolveCode(err)
				out[i].Err = sandbox.Errorf(code, "%s: %s", path, code)
				continue
			}
			out[i].Source = src
		}
		return nil
	})
	return out, err
}

var (
	errKind = errors.New("neither a directory nor a regular file")
	errName = errors.New("its name is not UTF-8") // no policy can be asked about it, and no record name it
)

// lookUp opens path as a location, not for reading, and says what it led to. It is
// called on a thread that has the caller's identity. Symbolic links are followed:
// the caller could follow them too. Magic links of /proc are not: they lead where
// no path of the caller's leads.
func lookUp(path string) (*os.File, sandbox.Source, error) {
	src := sandbox.Source{Path: path}
	fd, err := unix.Openat2(unix.AT_FDCWD, path, &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return nil, src, err
	}
	f := os.NewFile(uintptr(fd), path)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		f.Close()
		return nil, src, err
	}
	src.Dev, src.Ino, src.OwnerUID, src.Mode = st.Dev, st.Ino, st.Uid, st.Mode&0o7777
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		src.Kind = "dir"
	case unix.S_IFREG:
		src.Kind = "file"
	default:
		f.Close()
		return nil, src, errKind
	}
	src.Resolved, err = os.Readlink(procFD(f))
	if err == nil && !utf8.ValidString(src.Resolved) {
		err = errName
	}
	if err != nil {
		f.Close()
		return nil, src, err
	}
	return f, src, nil
}

// permits reports whether the identity of the calling thread may read the object,
// enter it when it is a directory, and write it when that is asked for.
func permits(f *os.File, kind string, write bool) error {
	mode := uint32(unix.R_OK)
	if kind == "dir" {
		mode |= unix.X_OK
	}
	if write {
		mode |= unix.W_OK
	}
	return unix.Faccessat2(int(f.Fd()), "", mode, unix.AT_EMPTY_PATH|unix.AT_EACCESS)
}

// resolveCode names the reasons for which a path leads nowhere.
func resolveCode(err error) string {
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR):
		return "not_found"
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		return "permission_denied"
	case errors.Is(err, unix.ELOOP):
		return "symlink_loop"
	case errors.Is(err, unix.EROFS):
		return "read_only"
	case errors.Is(err, unix.ENAMETOOLONG):
		return "name_too_long"
	default:
		return "not_supported"
	}
}

// reopen leads from what was judged to the object itself: it resolves the path
// again, under the caller's identity, and refuses when it finds another object.
func reopen(want sandbox.Source, write bool) (*os.File, error) {
	f, got, err := lookUp(want.Path)
	if err != nil {
		return nil, sandbox.Errorf(sandbox.CodeMountSource, "%s: %s", want.Path, resolveCode(err))
	}
	if got.Dev != want.Dev || got.Ino != want.Ino || got.Kind != want.Kind || got.Resolved != want.Resolved {
		f.Close()
		return nil, sandbox.Errorf(sandbox.CodeSourceChanged, "%s is not the object that was judged", want.Path)
	}
	if err := permits(f, got.Kind, write); err != nil {
		f.Close()
		return nil, sandbox.Errorf(sandbox.CodeMountSource, "%s: %s", want.Path, resolveCode(err))
	}
	return f, nil
}

func procFD(f *os.File) string { return "/proc/self/fd/" + strconv.Itoa(int(f.Fd())) }

// ownFD is procFD for another process to open: a path that leads to our descriptor.
func ownFD(f *os.File) string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), f.Fd()) }
