package workspace

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/internal/thread"
	"github.com/stockade-dev/stockade/sandbox"
)

// Commit makes the changes of the overlay to its directory: those at and below paths, or with none all. source is that
// directory, as the caller reached it and as it was judged; the rights are the caller's, and what is made
// belongs to the caller.
//
// Each change is whole or not made: a file gets its content under another name, reaches the disk, and takes the place of
// the old one at once; a directory that goes is renamed before it is emptied. What comes is made first, in the order
// of [Space.Changes], what goes is removed last. Not committed: protected paths, sockets, owners, set-id bits, extended attributes, and
// that two names were one file.
//
// Whatever is under another name has one and the same, in one directory at a time. note is called before that is another one, under
// the caller's identity, and with "" when nothing is under it any more: who remembers the last can remove what a commit leaves that is killed, or
// fails. Rejected: files without a name (O_TMPFILE). To
// take the place of another they need a name first, and directories have one always.
//
// CodeConflict says what cannot be written over: something that the host has changed since the overlay was
// made, that has become something else, or that the caller has no right to change. What was done until then is said
// beside the error, and is done.
func (s *Space) Commit(ctx context.Context, caller sandbox.Caller, source *os.File, paths []string, note func(temp, in string) error) (sandbox.Committed, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	s.committing.Lock()
	defer s.committing.Unlock()
	upper, err := below{root: s.layers.store}.open(upperName, unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return sandbox.Committed{}, fmt.Errorf("commit %s: %w", s.o.Target, err)
	}
	defer upper.Close()
	c := &commit{
		walk:    walk{ctx: ctx, upper: below{root: upper}, lower: below{root: source}},
		paths:   paths,
		reached: make([]bool, len(paths)),
		opened:  s.opened,
		commits: s.commits,
		modes:   map[string]uint32{},
		temp:    temporary(),
		note:    note,
	}
	c.skip = func(at string) bool { return s.protects(at) || !c.selects(at) && !c.leads(at) }
	began := now(unix.CLOCK_REALTIME_COARSE) // which files are stamped with
	err = thread.As(caller, c.run)
	if err == nil && c.in != "" {
		// Where it was noted last somebody may make something of that name, which is not ours to remove.
		_ = note(c.temp, "") // what cannot be noted costs one look
	}
	ended := time.Now().UnixNano()
	s.commits = append(s.commits, span{began, ended})
	passed(ended)
	out := sandbox.Committed{Applied: c.applied}
	for i, path := range paths {
		if !c.reached[i] {
			out.Left = append(out.Left, path)
		}
	}
	return out, err
}

// passed waits until files are stamped with a later time: the kernel does that with the time of its last
// tick, so that what is done just after t may look as if it had been done before. Ticks are 10 ms apart at most; a clock
// that is set back is not waited for.
func passed(t int64) {
	for range 20 {
		if now(unix.CLOCK_REALTIME_COARSE) > t {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

func now(clock int32) int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(clock, &ts); err != nil {
		panic(fmt.Sprintf("bug: clock %d: %v", clock, err))
	}
	return ts.Nano()
}

// commit is one that is under way, on a thread with the caller's identity.
type commit struct {
	walk
	paths   []string
	reached []bool
	opened  int64
	commits []span
	modes   map[string]uint32 // of directories that what is in them has yet to come to
	touched *os.File          // the directory that was changed last
	applied int64

	temp string // what is not whole yet, or not gone yet, is called
	in   string // the directory that this was noted for; "" at first
	note func(temp, in string) error
}

func (c *commit) run() (err error) {
	defer func() { err = errors.Join(err, c.touch(nil)) }()
	c.found, c.leave = c.comes, c.left
	if err := c.dir(".", false, nil); err != nil {
		return err
	}
	c.found, c.leave, c.gone = c.goes, nil, true
	return c.dir(".", false, nil)
}

// selects reports whether a path is one of those to be committed, or below one.
func (c *commit) selects(at string) bool {
	return len(c.paths) == 0 || slices.ContainsFunc(c.paths, func(p string) bool { return within(at, path.Clean(p)) })
}

// leads reports whether something that is to be committed may be below a path.
func (c *commit) leads(at string) bool {
	return slices.ContainsFunc(c.paths, func(p string) bool { return within(path.Clean(p), at) })
}

// done counts a change, and notes who asked for it.
func (c *commit) done(at string) {
	c.applied++
	for i, p := range c.paths {
		c.reached[i] = c.reached[i] || within(at, path.Clean(p))
	}
}

// comes makes what is new or has changed. A directory that only leads to something is made if it is missing, and else left alone.
func (c *commit) comes(d difference) error {
	if d.kind == deleted || !c.selects(d.path) && (d.kind != added || d.typ() != "dir") {
		return nil
	}
	parent, name, err := c.parent(d.path)
	if err != nil {
		return err
	}
	defer parent.Close()
	if err := c.unchanged(d); err != nil {
		return err
	}
	p := place{parent, name}
	if d.typ() == "dir" && kindOf(d.lower.Mode) == "dir" {
		c.modes[d.path] = d.upper.Mode & 0o777
		_ = below{root: parent}.chmod(name, "dir", d.lower.Mode&0o7777|0o700) // something may have to come into it
		return nil
	}
	temp, err := c.beside(parent, d.path)
	if err != nil {
		return err
	}
	if err := c.build(temp, d); err != nil {
		if errors.Is(err, errLeft) {
			return nil
		}
		return refusal(d.path, err)
	}
	if err := c.put(p, temp.name, d); err != nil {
		_ = discard(c.ctx, temp, d.typ() == "dir")
		return refusal(d.path, err)
	}
	if d.typ() == "dir" {
		c.modes[d.path] = d.upper.Mode & 0o777
	} else {
		c.done(d.path)
	}
	return c.touch(parent)
}

// place is a name in a directory.
type place struct {
	dir  *os.File
	name string
}

// beside returns the temporary name in the directory of a path, when it is noted that something may be there.
func (c *commit) beside(parent *os.File, at string) (place, error) {
	if in := path.Dir(at); in != c.in {
		if err := c.note(c.temp, in); err != nil {
			return place{}, err
		}
		c.in = in
	}
	return place{parent, c.temp}, nil
}

// parent opens the directory in the source that a path lies in.
func (c *commit) parent(at string) (*os.File, string, error) {
	dir, name, err := c.lower.parent(at)
	if err != nil {
		return nil, "", sandbox.Errorf(sandbox.CodeConflict, "%.1024q: the directory that it is in: %v", at, err)
	}
	return dir, name, nil
}

// unchanged refuses what the host has changed since the overlay was made. Of a directory it is what is in it that counts.
func (c *commit) unchanged(d difference) error {
	if d.kind == added {
		return nil // and stays so until it has its name: see put
	}
	if kindOf(d.lower.Mode) != "dir" {
		return c.old(d.path, d.lower)
	}
	if d.typ() == "dir" && d.kind == modified {
		return nil
	}
	return c.oldTree(d.path)
}

// old compares the time of the last change, which nobody but the kernel sets, with the times that
// count: the overlay was made, and we changed things ourselves.
func (c *commit) old(at string, st unix.Stat_t) error {
	changed := st.Ctim.Nano()
	if changed <= c.opened || slices.ContainsFunc(c.commits, func(s span) bool { return s.From <= changed && changed <= s.To }) {
		return nil
	}
	return sandbox.Errorf(sandbox.CodeConflict, "%.1024q has been changed outside", at)
}

// oldTree looks at everything in a directory that is to go, before any of it does.
func (c *commit) oldTree(at string) error {
	for from := ""; ; {
		dir, err := c.lower.open(at, unix.O_RDONLY|unix.O_DIRECTORY)
		if err != nil {
			return refusal(at, err)
		}
		names, more, err := least(c.ctx, dir, from, batch)
		dir.Close()
		if err != nil {
			return refusal(at, err)
		}
		for _, name := range names {
			here := path.Join(at, name)
			st, err := c.lower.stat(here)
			switch {
			case isAbsent(err):
				continue
			case err != nil:
				return refusal(here, err)
			case kindOf(st.Mode) == "dir":
				err = c.oldTree(here)
			default:
				err = c.old(here, st)
			}
			if err != nil {
				return err
			}
			if err := c.ctx.Err(); err != nil {
				return err
			}
		}
		if !more {
			return nil
		}
		from = names[len(names)-1] + "\x00"
	}
}

var errLeft = errors.New("is no longer there")

// build makes what there is in the overlay under another name. A directory is empty, and open to its owner until
// what is in it has come.
func (c *commit) build(p place, d difference) error {
	at, mode := int(p.dir.Fd()), d.upper.Mode&0o777
	switch d.typ() {
	case "file":
		return c.copy(p, d)
	case "dir":
		return unix.Mkdirat(at, p.name, 0o700)
	case "symlink":
		to, err := c.readlink(d.path)
		if err != nil {
			return errLeft
		}
		return unix.Symlinkat(to, at, p.name)
	default:
		if err := unix.Mknodat(at, p.name, unix.S_IFIFO|mode, 0); err != nil {
			return err
		}
		return below{root: p.dir}.chmod(p.name, "fifo", mode) // the process's umask has had its say
	}
}

// copy copies a file: its content, its holes as holes, its permissions without set-id bits, and the time of its change.
func (c *commit) copy(p place, d difference) (err error) {
	var from *os.File
	err = thread.Searching(func() (err error) {
		from, err = c.upper.open(d.path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY)
		return err
	})
	if err != nil {
		return errLeft
	}
	defer from.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(from.Fd()), &st); err != nil {
		return err
	}
	if kindOf(st.Mode) != "file" {
		return errLeft
	}
	fd, err := unix.Openat(int(p.dir.Fd()), p.name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	to := os.NewFile(uintptr(fd), p.name)
	defer func() {
		to.Close()
		if err != nil {
			_ = remove(p.dir, p.name, false)
		}
	}()
	if err := c.content(to, from, st.Size); err != nil {
		return err
	}
	times := []unix.Timespec{{Nsec: unix.UTIME_OMIT}, st.Mtim}
	err = errors.Join(
		unix.Fchmod(fd, st.Mode&0o777),
		unix.UtimesNanoAt(fd, "", times, unix.AT_EMPTY_PATH),
		to.Sync(),
		to.Close(),
	)
	if err == nil {
		c.quiet(p)
	}
	return err
}

// quiet waits until nobody has a file open for writing that we have closed. A process that was started meanwhile has
// inherited it, and drops it in its execve only; as long, nobody could execute the file (ETXTBSY). The kernel grants a read lease when there is no
// writer. Where it grants none, or somebody holds on to it, there is nothing to wait for.
func (c *commit) quiet(p place) {
	f, err := below{root: p.dir}.open(p.name, unix.O_RDONLY|unix.O_NONBLOCK) // a fifo that has come to be there would be waited for
	if err != nil {
		return
	}
	defer f.Close()
	for wait := 50 * time.Microsecond; wait < time.Second; wait *= 2 {
		if _, err := unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_RDLCK); !errors.Is(err, unix.EAGAIN) {
			_, _ = unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_UNLCK)
			return
		}
		time.Sleep(wait)
	}
}

func (c *commit) content(to, from *os.File, size int64) error {
	if err := to.Truncate(size); err != nil {
		return err
	}
	block := make([]byte, 256<<10)
	for at := int64(0); at < size; {
		data, err := unix.Seek(int(from.Fd()), at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			return nil // a hole to the end
		}
		if err != nil {
			return err
		}
		hole, err := unix.Seek(int(from.Fd()), data, unix.SEEK_HOLE)
		if err != nil {
			return err
		}
		for at = data; at < min(hole, size); {
			if err := c.ctx.Err(); err != nil {
				return err
			}
			n, err := from.ReadAt(block[:min(int64(len(block)), min(hole, size)-at)], at)
			if n == 0 && errors.Is(err, io.EOF) {
				return to.Truncate(at) // it has become shorter
			}
			if err != nil && !errors.Is(err, io.EOF) {
				return err
			}
			if _, err := to.WriteAt(block[:n], at); err != nil {
				return err
			}
			at += int64(n)
		}
	}
	return nil
}

// put gives what was built its place. What is there must be what was compared: nothing, or the same object as it was.
func (c *commit) put(p place, temp string, d difference) error {
	at := int(p.dir.Fd())
	if d.kind == added {
		return unix.Renameat2(at, temp, at, p.name, unix.RENAME_NOREPLACE)
	}
	var st unix.Stat_t
	if err := unix.Fstatat(at, p.name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	if st.Dev != d.lower.Dev || st.Ino != d.lower.Ino || st.Ctim != d.lower.Ctim {
		return errors.New("has just been changed outside")
	}
	if d.typ() != "dir" && kindOf(st.Mode) != "dir" {
		return unix.Renameat(at, temp, at, p.name)
	}
	// A directory comes, or goes: the two change places, and the old one is removed.
	if err := unix.Renameat2(at, temp, at, p.name, unix.RENAME_EXCHANGE); err != nil {
		return err
	}
	return discard(c.ctx, place{p.dir, temp}, kindOf(st.Mode) == "dir")
}

// left gives a directory its permissions, when everything that comes into it has come.
func (c *commit) left(at string) error {
	mode, changed := c.modes[at]
	if !changed {
		return nil
	}
	delete(c.modes, at)
	dir, err := c.lower.open(at, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return refusal(at, err)
	}
	defer dir.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(dir.Fd()), &st); err != nil {
		return refusal(at, err)
	}
	// Bits beyond permissions are the directory's own: inherited, or the caller's.
	if err := unix.Fchmod(int(dir.Fd()), st.Mode&0o7000|mode); err != nil {
		return refusal(at, err)
	}
	c.done(at)
	return nil
}

// goes removes what was deleted.
func (c *commit) goes(d difference) error {
	if d.kind != deleted || !c.selects(d.path) {
		return nil
	}
	parent, name, err := c.parent(d.path)
	if err != nil {
		return err
	}
	defer parent.Close()
	if err := c.unchanged(d); err != nil {
		return err
	}
	p, dir := place{parent, name}, d.typ() == "dir"
	if dir { // at once for whoever looks, whole if it cannot be
		if p, err = c.beside(parent, d.path); err != nil {
			return err
		}
		if err := unix.Renameat2(int(parent.Fd()), name, int(parent.Fd()), p.name, unix.RENAME_NOREPLACE); err != nil {
			return refusal(d.path, err)
		}
	}
	if err := discard(c.ctx, p, dir); err != nil {
		return refusal(d.path, err)
	}
	c.done(d.path)
	return c.touch(parent)
}

// discard removes a file, or a directory with everything in it.
func discard(ctx context.Context, p place, dir bool) error {
	if !dir {
		return remove(p.dir, p.name, false)
	}
	_ = below{root: p.dir}.chmod(p.name, "dir", 0o700) // it has no other name any more
	f, err := below{root: p.dir}.open(p.name, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := empty(ctx, f); err != nil {
		return err
	}
	return remove(p.dir, p.name, true)
}

// touch sees to it that the names in a directory reach the disk, once another one is changed.
func (c *commit) touch(dir *os.File) error {
	if c.touched != nil && dir != nil && sameFile(c.touched, dir) {
		return nil
	}
	var err error
	if c.touched != nil {
		err = c.touched.Sync()
		c.touched.Close()
		c.touched = nil
	}
	if dir != nil && err == nil {
		// Who may write to it and not read it does without.
		c.touched, _ = below{root: dir}.open(".", unix.O_RDONLY|unix.O_DIRECTORY)
	}
	return err
}

func sameFile(a, b *os.File) bool {
	var x, y unix.Stat_t
	return unix.Fstat(int(a.Fd()), &x) == nil && unix.Fstat(int(b.Fd()), &y) == nil && x.Dev == y.Dev && x.Ino == y.Ino
}

// refusal is the error for a change that cannot be made.
func refusal(at string, err error) error {
	var known *sandbox.Error
	if errors.As(err, &known) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return sandbox.Errorf(sandbox.CodeConflict, "%.1024q: %v", at, err)
}
