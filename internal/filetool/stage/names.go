package stage

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/internal/filetool/tree"
	"github.com/stockade-dev/stockade/sandbox/file"
)

// Mkdir makes the directory at a place, and those that are missing before it. created is false when somebody
// else has made it meanwhile.
func Mkdir(p *tree.Place, hook Hook) (created bool, fault *file.Fault) {
	c := &Change{Place: p}
	err := c.makeParents(hook)
	if err == nil {
		if err = hook.step("mkdir"); err == nil {
			err = unix.Mkdirat(p.Dir, p.Name, 0o777)
		}
	}
	if errors.Is(err, unix.EEXIST) {
		var st unix.Stat_t
		if unix.Fstatat(p.Dir, p.Name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR {
			c.closeMade()
			return false, nil
		}
	}
	if err != nil {
		c.unmake()
		return false, tree.Fault(p.Path, err)
	}
	c.closeMade()
	return true, Sync(p, hook)
}

// Move renames what is at a place. Without overwrite nothing is replaced; with it, nothing but what is no directory.
func Move(from, to *tree.Place, overwrite bool, hook Hook) *file.Fault {
	if err := hook.step("rename"); err != nil {
		return tree.Fault(from.Path, err)
	}
	var err error
	if overwrite {
		err = unix.Renameat(from.Dir, from.Name, to.Dir, to.Name)
	} else {
		err = unix.Renameat2(from.Dir, from.Name, to.Dir, to.Name, unix.RENAME_NOREPLACE)
	}
	if err != nil {
		at := to.Path
		if errors.Is(err, unix.ENOENT) {
			at = from.Path
		}
		return tree.Fault(at, err)
	}
	if fault := Sync(to, hook); fault != nil {
		return fault
	}
	return Sync(from, hook)
}

// Sync makes the names around a place durable.
func Sync(p *tree.Place, hook Hook) *file.Fault {
	if err := syncDir(p.Dir, hook); err != nil {
		return &file.Fault{Status: file.Error, Code: file.CodeIOError, Message: file.Quote(p.Path) + ": done, but its directory could not be synced: " + err.Error()}
	}
	return nil
}
