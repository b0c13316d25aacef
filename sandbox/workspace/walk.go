package workspace

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/internal/thread"
	"github.com/stockade-dev/stockade/sandbox"
)

// difference is one thing in which an overlay is not what lies below it.
type difference struct {
	path  string
	kind  string      // as in sandbox.Change
	upper unix.Stat_t // what is there now; zero for what was deleted
	lower unix.Stat_t // what is below; zero for what was added
}

// typ is the type of what is there now, or was.
func (d difference) typ() string {
	if d.kind == deleted {
		return kindOf(d.lower.Mode)
	}
	return kindOf(d.upper.Mode)
}

// The kinds of a Change.
const (
	added    = "added"
	modified = "modified"
	deleted  = "deleted"
)

// walk compares an upper layer with what lies below it, in the order of comparePaths. Names are read in batches and
// nothing is held open while it descends: neither the number of entries nor their depth costs
// memory beyond maxHeld names. It runs on a thread of thread.As; the upper layer is read with a right of its own, what lies below with
// the thread's.
type walk struct {
	ctx          context.Context
	upper, lower below
	skip         func(path string) bool // what is not looked at, nor what is in it
	found        func(difference) error
	leave        func(path string) error // a directory, after what is in it; nil if nobody wants to know
	gone         bool                    // only what was deleted is asked for
	held         int                     // names that wait, of all directories on the way
}

const (
	batch   = 4096
	maxHeld = 16 * batch
)

// dir walks one directory of the upper layer. alone says that nothing of the same directory below is
// visible; from is where to begin, name by name: a path whose difference is known already.
func (w *walk) dir(at string, alone bool, from []string) error {
	next, skipFirst := "", len(from) > 0
	if skipFirst {
		next = from[0]
	}
	for {
		names, more, opaque, err := w.names(at, alone, next)
		if err != nil {
			return err
		}
		for i, name := range names {
			if err := w.ctx.Err(); err != nil {
				return err
			}
			here := path.Join(at, name)
			if len(here) >= unix.PathMax { // nobody can name it: not the session, not the host
				return sandbox.Errorf(sandbox.CodeConflict, "%.100q…: deeper than a path can say", here)
			}
			if w.skip(here) {
				continue
			}
			known := skipFirst && name == from[0]
			d, err := w.compare(here)
			if err != nil {
				return fmt.Errorf("%q: %w", here, err)
			}
			if d.kind != "" && !known {
				if err := w.found(d); err != nil {
					return err
				}
			}
			if d.kind == deleted || kindOf(d.upper.Mode) != "dir" {
				continue
			}
			var rest []string
			if known {
				rest = from[1:]
			}
			waiting := len(names) - i - 1
			forget := w.held+waiting > maxHeld // and read them again
			if forget {
				names, more, waiting = names[:i+1], true, 0
			}
			w.held += waiting
			err = w.dir(here, opaque || kindOf(d.lower.Mode) != "dir", rest)
			w.held -= waiting
			if err == nil && w.leave != nil {
				err = w.leave(here)
			}
			if err != nil {
				return err
			}
			if forget {
				break
			}
		}
		if !more || len(names) == 0 {
			return nil
		}
		next, skipFirst = names[len(names)-1]+"\x00", false // the least name that is greater
	}
}

// names returns some of the names in a directory, in order, none of which is less than from: of the upper
// layer's, and where nothing of the lower one is visible of that one's too, since those were deleted.
func (w *walk) names(at string, alone bool, from string) (names []string, more, opaque bool, err error) {
	err = thread.Searching(func() error {
		dir, err := w.upper.open(at, unix.O_RDONLY|unix.O_DIRECTORY)
		if err != nil {
			return err
		}
		defer dir.Close()
		if opaque = alone; !opaque {
			if opaque, err = isOpaque(dir); err != nil {
				return err
			}
		}
		names, more, err = least(w.ctx, dir, from, batch)
		return err
	})
	if isAbsent(err) { // it was removed while we walked
		return nil, false, false, nil
	}
	if err != nil {
		return nil, false, false, fmt.Errorf("read %q: %w", at, err)
	}
	if !opaque {
		return names, more, opaque, nil
	}
	dir, err := w.lower.open(at, unix.O_RDONLY|unix.O_DIRECTORY)
	if isAbsent(err) || errors.Is(err, unix.EACCES) || errors.Is(err, unix.ELOOP) {
		return names, more, opaque, nil
	}
	if err != nil {
		return nil, false, false, fmt.Errorf("read %q: %w", at, err)
	}
	defer dir.Close()
	others, moreOthers, err := least(w.ctx, dir, from, batch)
	if err != nil {
		return nil, false, false, fmt.Errorf("read %q: %w", at, err)
	}
	// The first of both are among the first of each.
	names = append(names, others...)
	slices.Sort(names)
	names = slices.Compact(names)
	if len(names) > batch {
		names, more = names[:batch], true
	}
	return names, more || moreOthers, opaque, nil
}

// isOpaque reports whether the kernel has noted that nothing of the directory below is visible.
func isOpaque(dir *os.File) (bool, error) {
	var value [2]byte
	n, err := unix.Fgetxattr(int(dir.Fd()), "trusted.overlay.opaque", value[:])
	if errors.Is(err, unix.ENODATA) {
		return false, nil
	}
	return err == nil && n == 1 && value[0] == 'y', err
}

// least returns the n least names of a directory that are not less than from, and whether there are more.
func least(ctx context.Context, dir *os.File, from string, n int) (names []string, more bool, err error) {
	cut := func() {
		slices.Sort(names)
		if len(names) > n {
			clear(names[n:])
			names, more = names[:n], true
		}
	}
	for {
		some, err := dir.Readdirnames(1024)
		for _, name := range some {
			if name >= from && (!more || name < names[n-1]) {
				names = append(names, name)
			}
		}
		if len(names) >= 2*n {
			cut()
		}
		if errors.Is(err, io.EOF) {
			cut()
			return names, more, nil
		}
		if err != nil {
			return nil, false, err
		}
		if err := ctx.Err(); err != nil {
			return nil, false, err
		}
	}
}

// compare says how a path differs, if it does.
func (w *walk) compare(at string) (d difference, err error) {
	d.path = at
	err = thread.Searching(func() error {
		d.upper, err = w.upper.stat(at)
		return err
	})
	if err != nil && !isAbsent(err) {
		return d, err
	}
	// The kernel's mark of a deletion is a device that nobody inside can make.
	there := err == nil && d.upper.Mode&unix.S_IFMT != unix.S_IFCHR && kindOf(d.upper.Mode) != ""
	gone := err != nil || d.upper.Mode&unix.S_IFMT == unix.S_IFCHR && d.upper.Rdev == 0
	d.lower, err = w.lower.stat(at)
	if err != nil && !isAbsent(err) && !errors.Is(err, unix.EACCES) && !errors.Is(err, unix.ELOOP) && !errors.Is(err, unix.EXDEV) {
		return d, err
	}
	exists := err == nil && kindOf(d.lower.Mode) != ""
	switch {
	case gone && exists:
		d.kind, d.upper = deleted, unix.Stat_t{}
	case !there: // a socket, or nothing on either side
		d.upper = unix.Stat_t{}
	case !exists:
		d.kind, d.lower = added, unix.Stat_t{}
	case !w.gone:
		same, err := w.same(d)
		if err != nil {
			return d, err
		}
		if !same {
			d.kind = modified
		}
	}
	return d, nil
}

// same reports whether what was copied up is still what is below. A file with the same size, permissions and time is
// read: a session can set a time.
func (w *walk) same(d difference) (bool, error) {
	const permissions = 0o777
	kind := kindOf(d.upper.Mode)
	if kind != kindOf(d.lower.Mode) || d.upper.Mode&permissions != d.lower.Mode&permissions {
		return false, nil
	}
	switch kind {
	case "file":
		if d.upper.Size != d.lower.Size || d.upper.Mtim != d.lower.Mtim {
			return false, nil
		}
		return w.sameContent(d.path)
	case "symlink":
		to, err := w.readlink(d.path)
		if err != nil {
			return false, nil
		}
		from, err := w.lower.readlink(d.path)
		return err == nil && to == from, nil
	default:
		return true, nil
	}
}

// readlink says where a symbolic link of the upper layer leads.
func (w *walk) readlink(at string) (to string, err error) {
	err = thread.Searching(func() error {
		to, err = w.upper.readlink(at)
		return err
	})
	return to, err
}

func (w *walk) sameContent(at string) (bool, error) {
	var files [2]*os.File
	defer func() { closeAll(files[:]...) }()
	err := thread.Searching(func() (err error) {
		files[0], err = w.upper.open(at, unix.O_RDONLY|unix.O_NONBLOCK)
		return err
	})
	if err != nil {
		return false, err
	}
	if files[1], err = w.lower.open(at, unix.O_RDONLY|unix.O_NONBLOCK); err != nil {
		return false, nil // whose identity may not read it; it is told as modified
	}
	var blocks [2][64 << 10]byte
	for {
		if err := w.ctx.Err(); err != nil {
			return false, err
		}
		n, errA := io.ReadFull(files[0], blocks[0][:])
		m, errB := io.ReadFull(files[1], blocks[1][:])
		if !bytes.Equal(blocks[0][:n], blocks[1][:m]) {
			return false, nil
		}
		if errA != nil || errB != nil {
			return ended(errA) && ended(errB), nil
		}
	}
}

func ended(err error) bool { return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) }
