// Package stage gives names new content: one file at a time, or many that change together or not at all.
//
// New content is written beside the old one, under a name that begins with [Prefix], gets the old one's mode, owner and
// attributes, is synced, and takes the name in one rename. Where the old content was a reason for the new one, the two change places
// (RENAME_EXCHANGE), and what has come out is compared with what was judged: another editor's work is put back, and the
// change is a conflict. The original is untouched until that rename, whatever fails before.
//
// Many files: see [All]. A name of ours that a crash left is found by the next change in its place.
package stage

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/internal/filetool/tree"
	"github.com/stockade-dev/stockade/sandbox/file"
)

// Prefix begins every name of ours. Tools that walk do not show them.
const Prefix = ".stockade-"

// Hook is told of each step before it is done, and can have it fail. nil is none.
type Hook func(step string) error

func (h Hook) step(name string) error {
	if h == nil {
		return nil
	}
	return h(name)
}

// Change is what becomes of one name.
type Change struct {
	Place  *tree.Place
	Remove bool

	Content []byte    // or, when it is large, Source
	Source  io.Reader // read once

	// Of a file that is replaced.
	Old    *os.File    // open for reading: attributes come from it; nil is a file that does not exist yet
	Stat   unix.Stat_t // of Old
	Judged bool        // Old was read: what is replaced must be that
	Before string      // its digest, when Judged and it is known

	// Of a file that is not there yet, but has the attributes of another: a move.
	Like     *os.File
	LikeStat unix.Stat_t

	New  bool  // there must be nothing
	Exec *bool // set or take the executable bits; nil leaves them

	// What came of it.
	After   string // digest
	Written int64
	MtimeNS int64

	tmp     string
	staged  *os.File // locked, so that nobody takes it for abandoned; nil in a transaction once it is written, whose journal is locked
	ino     uint64   // of the staged file
	done    bool     // the name has been given
	kept    bool     // what lies under tmp is somebody else's, who would miss it
	late    bool     // synced when all of a transaction is written
	madeDir []made
}

// made is a directory that a change made on its way.
type made struct {
	parent int
	name   string
}

// Put does one change. On a failure nothing has changed.
func Put(c *Change, hook Hook) *file.Fault {
	if err := c.makeParents(hook); err != nil {
		c.unmake()
		return tree.Fault(c.Place.Path, err)
	}
	defer c.closeStaged()
	fault := c.put(hook)
	if fault != nil {
		c.unmake()
	}
	c.closeMade()
	return fault
}

func (c *Change) put(hook Hook) *file.Fault {
	if fault := c.stage(hook, fixed(c.Place.Name)); fault != nil {
		return fault
	}
	if fault := c.give(hook, true); fault != nil {
		return fault
	}
	// The name is given: that it may not survive a power cut is no reason to say that nothing happened.
	if err := syncDir(c.Place.Dir, hook); err != nil {
		return &file.Fault{Status: file.Error, Code: file.CodeIOError, Message: file.Quote(c.Place.Path) + ": written, but its directory could not be synced: " + err.Error()}
	}
	return nil
}

// makeParents makes the directories that are missing and has Place be in the last of them.
func (c *Change) makeParents(hook Hook) error {
	p := c.Place
	for len(p.Missing) > 0 {
		if err := hook.step("mkdir"); err != nil {
			return err
		}
		err := unix.Mkdirat(p.Dir, p.Missing[0], 0o777)
		if err != nil && !errors.Is(err, unix.EEXIST) {
			return err
		}
		fd, openErr := unix.Openat(p.Dir, p.Missing[0], unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if openErr != nil {
			if err == nil {
				unix.Unlinkat(p.Dir, p.Missing[0], unix.AT_REMOVEDIR)
			}
			return openErr
		}
		if err == nil {
			c.madeDir = append(c.madeDir, made{p.Dir, p.Missing[0]})
		} else {
			unix.Close(p.Dir)
		}
		p.Dir, p.Missing = fd, p.Missing[1:]
	}
	p.Name = p.Last
	return nil
}

// unmake takes the directories away that were made, if nobody has put anything there.
func (c *Change) unmake() {
	for i := len(c.madeDir) - 1; i >= 0; i-- {
		unix.Unlinkat(c.madeDir[i].parent, c.madeDir[i].name, unix.AT_REMOVEDIR)
	}
	c.closeMade()
}

func (c *Change) closeMade() {
	for _, m := range c.madeDir {
		unix.Close(m.parent)
	}
	c.madeDir = nil
}

// fixed is the name beside a file under which its next content is written: always the same, so
// that what a crash left there is found by the next change.
func fixed(name string) string {
	sum := sha256.Sum256([]byte(name))
	return Prefix + strings.ToLower(base32.StdEncoding.EncodeToString(sum[:10]))
}

func random() string { return Prefix + strings.ToLower(rand.Text()) }

// create makes the file for new content. It is locked until it has its name, or is gone.
func (c *Change) create(name string) error {
	mode := uint32(0o600)
	if c.Old == nil && c.Like == nil {
		mode = 0o666 // less the umask, by the kernel
	}
	// The file is made and locked in one step, for those who look whether it is abandoned.
	unlock, fault := lock(c.Place.Dir, c.Place.Path)
	if fault != nil {
		return fault
	}
	defer unlock()
	for try := range 4 {
		fd, err := unix.Openat(c.Place.Dir, name, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, mode)
		if err == nil {
			unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB)
			c.tmp, c.staged = name, os.NewFile(uintptr(fd), name)
			return nil
		}
		if !errors.Is(err, unix.EEXIST) {
			return err
		}
		if try > 0 || !abandoned(c.Place.Dir, name) {
			name = random()
		}
	}
	return unix.EEXIST
}

func (c *Change) closeStaged() {
	if c.staged != nil {
		c.staged.Close()
		c.staged = nil
	}
}

// abandoned removes a file of ours whose writer is gone, and reports whether it did.
func abandoned(dir int, name string) bool {
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFREG || unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) != nil {
		return false
	}
	return unix.Unlinkat(dir, name, 0) == nil
}

// stage writes the content beside the name.
func (c *Change) stage(hook Hook, name string) (fault *file.Fault) {
	failed := func(err error) *file.Fault {
		f := tree.Fault(c.Place.Path, err)
		if f.Code == file.CodeIOError {
			f.Code = file.CodeWriteFailed
		}
		return f
	}
	if c.Old != nil {
		// Who may not write a file may not replace it either, whatever the directory permits.
		if err := unix.Faccessat2(c.Place.Dir, c.Place.Name, unix.W_OK, unix.AT_EACCESS|unix.AT_SYMLINK_NOFOLLOW); err != nil && !errors.Is(err, unix.ENOSYS) {
			return failed(err)
		}
	}
	if err := hook.step("create"); err != nil {
		return failed(err)
	}
	err := c.create(name)
	if err != nil {
		return failed(err)
	}
	f := c.staged
	defer func() {
		if fault != nil {
			unix.Unlinkat(c.Place.Dir, c.tmp, 0)
		}
		if fault != nil || c.late {
			c.closeStaged()
		}
	}()
	if err := hook.step("write"); err != nil {
		return failed(err)
	}
	sum := sha256.New()
	if c.Source != nil {
		c.Written, err = io.Copy(io.MultiWriter(f, sum), c.Source)
	} else {
		var n int
		n, err = f.Write(c.Content)
		c.Written = int64(n)
		sum.Write(c.Content)
	}
	if err != nil {
		return failed(err)
	}
	c.After = hex.EncodeToString(sum.Sum(nil))
	if err := hook.step("attributes"); err != nil {
		return failed(err)
	}
	if err := c.attributes(f); err != nil {
		return &file.Fault{Status: file.Error, Code: file.CodeNotKept, Message: file.Quote(c.Place.Path) + ": " + err.Error()}
	}
	if !c.late {
		if err := hook.step("sync"); err != nil {
			return failed(err)
		}
		if err := f.Sync(); err != nil {
			return failed(err)
		}
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return failed(err)
	}
	c.ino, c.MtimeNS = st.Ino, st.Mtim.Nano()
	return nil
}

// attributes gives the file the mode, the owner and the extended attributes of the one that it follows.
func (c *Change) attributes(f *os.File) error {
	from, st := c.Old, c.Stat
	if from == nil {
		from, st = c.Like, c.LikeStat
	}
	var own unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &own); err != nil {
		return err
	}
	mode := own.Mode & 0o7777
	if from != nil {
		// Owner first: a change of it clears bits of the mode. Set-id bits are not kept, as the kernel does
		// not keep them when a file is written.
		if own.Uid != st.Uid || own.Gid != st.Gid {
			if err := f.Chown(int(st.Uid), int(st.Gid)); err != nil {
				return err
			}
		}
		if err := copyXattrs(f, from); err != nil {
			return err
		}
		mode = st.Mode & 0o1777
	}
	if c.Exec != nil {
		if *c.Exec {
			mode |= mode & 0o444 >> 2
		} else {
			mode &^= 0o111
		}
	}
	if mode != own.Mode&0o7777 {
		return unix.Fchmod(int(f.Fd()), mode)
	}
	return nil
}

// copyXattrs copies the attributes that are a file's own. Those of the security modules are theirs to give, and a file
// capability does not survive a write.
func copyXattrs(to, from *os.File) error {
	buf := make([]byte, 4096)
	n, err := unix.Flistxattr(int(from.Fd()), buf)
	if errors.Is(err, unix.ERANGE) {
		buf = make([]byte, 64<<10)
		n, err = unix.Flistxattr(int(from.Fd()), buf)
	}
	if errors.Is(err, unix.ENOTSUP) || errors.Is(err, unix.ENOSYS) {
		return nil
	}
	if err != nil {
		return err
	}
	for name := range bytes.SplitSeq(buf[:n], []byte{0}) {
		key := string(name)
		if key == "" || strings.HasPrefix(key, "security.") || strings.HasPrefix(key, "trusted.") || strings.HasPrefix(key, "system.nfs4") {
			continue
		}
		value := make([]byte, 64<<10)
		n, err := unix.Fgetxattr(int(from.Fd()), key, value)
		if errors.Is(err, unix.ENODATA) {
			continue
		}
		if err != nil {
			return errors.New(file.Quote(key) + ": " + err.Error())
		}
		if err := unix.Fsetxattr(int(to.Fd()), key, value[:n], 0); err != nil {
			return errors.New(file.Quote(key) + ": " + err.Error())
		}
	}
	return nil
}

// give gives the staged file its name. With clean nothing is left under the name of ours, whatever comes of it: that too
// happens under the directory's lock, because the next change in this place may take the name as soon as it is free.
func (c *Change) give(hook Hook, clean bool) (fault *file.Fault) {
	dir, name := c.Place.Dir, c.Place.Name
	err := hook.step("rename")
	if err == nil {
		var unlock func()
		if unlock, fault = lock(dir, c.Place.Path); fault == nil {
			defer unlock()
		}
	} else {
		fault = tree.Fault(c.Place.Path, err)
	}
	if clean {
		defer func() {
			if !c.kept {
				unix.Unlinkat(dir, c.tmp, 0)
			}
		}()
	}
	if fault != nil {
		return fault
	}
	// Locks are between tools. A command that takes the name of ours away has its reasons, and does not give the file its content.
	if ino, _ := look(dir, c.tmp); ino != c.ino {
		c.kept = true
		return changed(c.Place.Path)
	}
	switch {
	case c.New || c.Old == nil:
		err = unix.Renameat2(dir, c.tmp, dir, name, unix.RENAME_NOREPLACE)
		if errors.Is(err, unix.EINVAL) { // a file system without it; link(2) does not replace either
			if err = unix.Linkat(dir, c.tmp, dir, name, 0); err == nil {
				err = unix.Unlinkat(dir, c.tmp, 0)
			}
		}
		if errors.Is(err, unix.EEXIST) {
			return &file.Fault{Status: file.Conflict, Code: file.CodeFileExists, Message: file.Quote(c.Place.Path) + " exists"}
		}
	case c.Judged:
		err = unix.Renameat2(dir, c.tmp, dir, name, unix.RENAME_EXCHANGE)
		if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) {
			return c.replace(dir, name)
		}
		if errors.Is(err, unix.ENOENT) {
			return changed(c.Place.Path)
		}
		if err == nil {
			if !c.original(dir, c.tmp) {
				c.kept = !c.exchangeBack()
				return changed(c.Place.Path)
			}
			c.done = true
			return nil
		}
	default:
		err = unix.Renameat(dir, c.tmp, dir, name)
	}
	if err != nil {
		f := tree.Fault(c.Place.Path, err)
		if f.Code == file.CodeIOError {
			f.Code = file.CodeWriteFailed
		}
		return f
	}
	c.done = true
	return nil
}

// exchangeBack puts what has come out at its name again, unless somebody has put something there meanwhile: that stays, and
// would have replaced it. It reports whether nobody misses what is under the name of ours now.
func (c *Change) exchangeBack() bool {
	dir, name := c.Place.Dir, c.Place.Name
	if ino, _ := look(dir, name); ino != c.ino {
		return true
	}
	if unix.Renameat2(dir, c.tmp, dir, name, unix.RENAME_EXCHANGE) != nil {
		return false
	}
	if ino, _ := look(dir, c.tmp); ino != c.ino { // it came between look and exchange
		return unix.Renameat2(dir, c.tmp, dir, name, unix.RENAME_EXCHANGE) == nil
	}
	return true
}

// patience is how long another change in the same directory is waited for. Its lock is held for a few system calls.
const patience = 5 * time.Second

// lock keeps other tools, in this process and in others, from changing names in a directory. Three that exchange at a time
// could not undo what they did. Who holds it for ever only keeps the tools of his own directory from working.
func lock(dir int, at string) (unlock func(), fault *file.Fault) {
	fd, err := unix.Openat(dir, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil { // a directory that may be searched and not read
		return func() {}, nil
	}
	for start := time.Now(); ; time.Sleep(200 * time.Microsecond) {
		switch err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB); {
		case err == nil:
			return func() { unix.Close(fd) }, nil
		case !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR): // a file system without locks
			return func() { unix.Close(fd) }, nil
		case time.Since(start) > patience:
			unix.Close(fd)
			return nil, &file.Fault{Status: file.Conflict, Code: file.CodeChanged, Message: "the directory of " + file.Quote(at) + " is locked by another change"}
		}
	}
}

// replace is give where the file system cannot exchange names: the look comes before, and what happens in between is lost.
func (c *Change) replace(dir int, name string) *file.Fault {
	if !c.original(dir, name) {
		return changed(c.Place.Path)
	}
	if err := unix.Renameat(dir, c.tmp, dir, name); err != nil {
		return tree.Fault(c.Place.Path, err)
	}
	c.done = true
	return nil
}

func changed(at string) *file.Fault {
	return &file.Fault{Status: file.Conflict, Code: file.CodeChanged, Message: file.Quote(at) + " was changed by somebody else meanwhile"}
}

// original reports whether a name is the file that was judged, with the content that was judged.
func (c *Change) original(dir int, name string) bool {
	var st unix.Stat_t
	if unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
		return false
	}
	if st.Dev != c.Stat.Dev || st.Ino != c.Stat.Ino || st.Size != c.Stat.Size || st.Mtim != c.Stat.Mtim {
		return false
	}
	// Two writes within one tick of the clock have one time: content decides, where that is cheap.
	if c.Before == "" || c.Old == nil || st.Size > 4<<20 {
		return true
	}
	sum := sha256.New()
	if _, err := io.Copy(sum, io.NewSectionReader(c.Old, 0, st.Size+1)); err != nil {
		return false
	}
	return hex.EncodeToString(sum.Sum(nil)) == c.Before
}

// syncDir makes the names in a directory durable.
func syncDir(dir int, hook Hook) error {
	if err := hook.step("syncdir"); err != nil {
		return err
	}
	fd, err := unix.Openat(dir, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.EACCES) {
		return nil // searched and written, but not read: the file system syncs it in its time
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.Fsync(fd); err != nil && !errors.Is(err, unix.EINVAL) {
		return err
	}
	return nil
}
