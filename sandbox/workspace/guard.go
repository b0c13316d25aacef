package workspace

import (
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/internal/cleanup"
	"github.com/stockade-dev/stockade/internal/thread"
	"github.com/stockade-dev/stockade/sandbox"
)

// Owner is what executions of a session run as, in ids of the host.
type Owner struct{ UID, GID uint32 }

// caller is the identity for lookups. The groups of executions are left out: what is looked up, or made, is what the owner could make.
func (o Owner) caller() sandbox.Caller { return sandbox.Caller{UID: o.UID, GID: o.GID} }

// Guard is a mount over a protected path, or over a directory on the way to one. The kernel
// lets nobody rename, remove or replace a mount point, and nothing through a read-only mount.
type Guard struct {
	Path     string // below the mount that it guards, relative and clean
	ReadOnly bool   // it is the path itself, and what is below it; a directory on the way stays as it is, and writable
	Dir      bool
	Mount    *os.File // the mount itself, O_PATH
}

// Guards are closed by whoever got them; the mounts stay.
type Guards []Guard

// Close closes the descriptors.
func (g Guards) Close() {
	for _, one := range g {
		one.Mount.Close()
	}
}

// readOnly are the paths that nobody inside changes.
func (g Guards) readOnly() (paths []string) {
	for _, one := range g {
		if one.ReadOnly {
			paths = append(paths, one.Path)
		}
	}
	return paths
}

// Protection says what is protected, for whom.
type Protection struct {
	Paths []string // relative, clean
	Owner Owner    // of what is missing and has to be reserved
	Place string   // a directory to mount on, where nobody else sees it

	// Reserve makes what is missing, when the tree is somebody's directory; without it what is missing is made and stays.
	Reserve *Reservation
}

// Protect mounts guards on paths of a detached mount, and returns it with them as one detached
// mount, which takes the place of tree. What does not exist is reserved: made empty, or as contents has it, and guarded. A symbolic
// link on the way, or at the end, is refused with CodeProtected, and so is a file that has other names: by one of them it could be written.
func Protect(tree *os.File, p Protection) (guarded *os.File, guards Guards, err error) {
	var undo cleanup.Stack
	defer undo.Run()
	plan, err := p.plan(below{root: tree})
	if err != nil {
		return nil, nil, err
	}
	// A clone of a mount that systemd shares with everybody is its peer: the host would get our guards, too.
	if err := unix.MountSetattr(int(tree.Fd()), "", unix.AT_EMPTY_PATH, &unix.MountAttr{Propagation: unix.MS_PRIVATE}); err != nil {
		return nil, nil, fmt.Errorf("make %s private: %w", tree.Name(), err)
	}
	err = thread.Apart(func() error {
		if err := mountAt(tree, p.Place); err != nil {
			return fmt.Errorf("attach %s: %w", tree.Name(), err)
		}
		fd, err := unix.Open(p.Place, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("open %s: %w", tree.Name(), err)
		}
		top := os.NewFile(uintptr(fd), tree.Name())
		defer top.Close()
		for _, g := range plan {
			if err := g.mount(top); err != nil {
				return err
			}
		}
		// Attached mounts go with this namespace: the clone of all of them does not.
		guarded, err = clone(top, unix.AT_RECURSIVE)
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	made := guarded // which a return of nil leaves as it is
	undo.Add(func() { made.Close() })
	for _, g := range plan {
		mount, err := g.verify(guarded)
		if err != nil {
			guards.Close()
			return nil, nil, err
		}
		guards = append(guards, Guard{Path: g.path, ReadOnly: g.readOnly, Dir: g.dir, Mount: mount})
	}
	undo.Release()
	tree.Close()
	return guarded, guards, nil
}

// planned is a guard that is to be mounted on what was found, or made, at its path.
type planned struct {
	path          string
	dir, readOnly bool
	dev, ino      uint64
}

// Renew mounts guards again that are not there any more, on target in the mount namespace of a session. Whoever replaces or removes a mount
// point outside takes the mount away everywhere, and that is how git, and most editors, write: what was done outside while a command ran is
// unprotected until the next one begins. root is the session's root directory. What cannot be protected any more is
// refused with CodeProtected.
func (p Protection) Renew(root, ns *os.File, target string) error {
	tree, err := through(root).open(target[1:], unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return sandbox.Errorf(sandbox.CodeProtected, "%s: %v", target, err)
	}
	defer tree.Close()
	// Where the mount is in another one that is written to, somebody inside may have moved what leads to it, and put something in its place.
	var st unix.Stat_t
	if err := unix.Fstat(int(tree.Fd()), &st); err != nil || st.Dev != p.Reserve.Source.Dev || st.Ino != p.Reserve.Source.Ino {
		return sandbox.Errorf(sandbox.CodeProtected, "%s: is not what was mounted there", target)
	}
	plan, err := p.plan(through(tree))
	if err != nil {
		return err
	}
	var lost []planned
	for _, g := range plan {
		if mount, err := g.verify(tree); err != nil {
			lost = append(lost, g)
		} else {
			mount.Close()
		}
	}
	if len(lost) == 0 {
		return nil
	}
	return thread.Enter(ns, func() error {
		for _, g := range lost {
			if err := g.mount(tree); err != nil {
				return err
			}
			mount, err := g.verify(tree)
			if err != nil {
				return err
			}
			mount.Close()
		}
		return nil
	})
}

// plan says what is to be mounted on what, parents first, and makes what is missing. It looks
// under the identity that the guards are against: what that one cannot find or make, it cannot change either, unless it gives
// itself the right to, and so it is refused.
func (p Protection) plan(at below) (plan []planned, err error) {
	paths := slices.Clone(p.Paths)
	slices.SortFunc(paths, comparePaths)
	err = thread.As(p.Owner.caller(), func() error {
		for _, path := range slices.Compact(paths) {
			if plan, err = p.lead(at, path, plan); err != nil {
				return err
			}
		}
		return nil
	})
	return plan, err
}

// lead adds the guards of one path: of each directory that leads to it, and of itself.
func (p Protection) lead(at below, protected string, plan []planned) ([]planned, error) {
	names := strings.Split(protected, "/")
	for i := range names {
		here, last := path.Join(names[:i+1]...), i == len(names)-1
		if n := slices.IndexFunc(plan, func(g planned) bool { return g.path == here }); n >= 0 {
			plan[n].readOnly = plan[n].readOnly || last
			if plan[n].readOnly {
				return plan, nil // and with it everything below
			}
			continue
		}
		st, made, err := p.look(at, here, !last || !namesFile(here))
		if err != nil {
			return nil, sandbox.Errorf(sandbox.CodeProtected, "%s: %s: %v", protected, here, err)
		}
		kind := kindOf(st.Mode)
		switch {
		case kind == "file" && st.Nlink > 1 && p.Reserve != nil: // an overlay gives each name a file of its own
			return nil, sandbox.Errorf(sandbox.CodeProtected, "%s: %s has other names", protected, here)
		case kind != "file" && kind != "dir":
			return nil, sandbox.Errorf(sandbox.CodeProtected, "%s: %s is neither a directory nor a regular file", protected, here)
		}
		// A file on the way ends it, as the .git of a worktree: what it leads to is elsewhere.
		last = last || made || kind == "file"
		plan = append(plan, planned{path: here, dir: kind == "dir", readOnly: last, dev: st.Dev, ino: st.Ino})
		if last {
			break
		}
	}
	return plan, nil
}

// looks is how often a path may come to be there, or go, while we look at it: sessions that open together make each
// path once. Whoever does so all the time is refused.
const looks = 1000

// look finds what is at a path, or makes it. What was made stays as it is: nothing below it is looked at.
func (p Protection) look(at below, path string, dir bool) (st unix.Stat_t, made bool, err error) {
	for range looks {
		seen := p.Reserve.seen()
		st, err = at.stat(path)
		if errors.Is(err, unix.ENOENT) {
			if st, err = p.make(at, path, dir); errors.Is(err, unix.EEXIST) {
				continue // another session was quicker
			}
			return st, true, err
		}
		if err != nil || p.Reserve == nil {
			return st, false, err
		}
		if p.Reserve.has(path, st) { // from before, when guards are renewed
			return st, true, nil
		}
		if same, err := p.Reserve.share(path, st, seen); err != nil || same {
			return st, false, err
		}
	}
	return st, false, fmt.Errorf("%s comes and goes", path)
}

// namesFile decides what a missing path is reserved as: a file if its name has an extension, or ends as the names of
// files do that programs read at their start; a directory otherwise. An empty file is a valid one for most of them, and the
// others have a row in contents.
func namesFile(at string) bool {
	if contentOf(at) != "" {
		return true
	}
	name := path.Base(at)
	if strings.LastIndexByte(name, '.') > 0 {
		return !strings.HasSuffix(name, ".d")
	}
	return slices.ContainsFunc(fileEndings, func(end string) bool { return strings.HasSuffix(name, end) })
}

var fileEndings = []string{"rc", "config", "profile", "env", "login", "logout", "modules", "attributes", "ignore", "file", "HEAD"}

// contents are what a missing file is reserved with where an empty one is an error to who reads it, by the end of its path. They say what
// is true without the file.
var contents = []struct{ end, content string }{
	// Where git has hooks, configuration and references, seen from .git: there. (Written by somebody inside, it has git
	// on the host run what he likes; empty, it stops git.)
	{".git/commondir", ".\n"},
}

func contentOf(at string) string {
	for _, c := range contents {
		if strings.HasSuffix("/"+at, "/"+c.end) {
			return c.content
		}
	}
	return ""
}

// make reserves a missing path: it comes to be there whole, and by nobody else's hand.
func (p Protection) make(at below, missing string, dir bool) (st unix.Stat_t, err error) {
	parent, name, err := at.parent(missing)
	if err != nil {
		return st, err
	}
	defer parent.Close()
	temp := temporary()
	if p.Reserve != nil {
		if err := p.Reserve.begin(missing, temp, dir); err != nil {
			return st, err
		}
	}
	if st, err = makeReserved(parent, temp, dir, contentOf(missing)); err != nil {
		return st, fmt.Errorf("reserve: %w", err)
	}
	if p.Reserve != nil {
		if err := p.Reserve.made(missing, temp, dir, st); err != nil {
			return st, err
		}
	}
	if err := unix.Renameat2(int(parent.Fd()), temp, int(parent.Fd()), name, unix.RENAME_NOREPLACE); err != nil {
		if p.Reserve != nil {
			err = errors.Join(err, p.Reserve.unmade(missing, temp, dir))
		}
		_ = remove(parent, temp, dir)
		return st, fmt.Errorf("reserve: %w", err)
	}
	return st, nil
}

// makeReserved makes an empty directory, or a file, that everybody may read.
func makeReserved(parent *os.File, name string, dir bool, content string) (st unix.Stat_t, err error) {
	at, kind, mode := int(parent.Fd()), uint32(unix.S_IFREG), uint32(0o644)
	switch {
	case dir:
		kind, mode = unix.S_IFDIR, 0o755
		err = unix.Mkdirat(at, name, mode)
	case content != "":
		err = fill(parent, name, content)
	default:
		err = unix.Mknodat(at, name, kind|mode, 0) // never open for writing
	}
	if err != nil {
		return st, err
	}
	if err = (below{root: parent}).chmod(name, kindOf(kind), mode); err == nil { // the process's umask has had its say
		err = unix.Fstatat(at, name, &st, unix.AT_SYMLINK_NOFOLLOW)
	}
	if err != nil {
		_ = remove(parent, name, dir)
	}
	return st, err
}

// fill makes a file with a content. What has taken its name meanwhile is not written to.
func fill(parent *os.File, name, content string) error {
	fd, err := unix.Openat(int(parent.Fd()), name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o644)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), name)
	_, err = f.WriteString(content)
	if err = errors.Join(err, f.Close()); err != nil {
		_ = remove(parent, name, false)
	}
	return err
}

func remove(parent *os.File, name string, dir bool) error {
	flags := 0
	if dir {
		flags = unix.AT_REMOVEDIR
	}
	return unix.Unlinkat(int(parent.Fd()), name, flags)
}

// through looks below a mount that has guards on it.
func through(root *os.File) below { return below{root: root, across: true} }

// mount mounts what is at the path on itself.
func (g planned) mount(root *os.File) error {
	f, err := g.find(root)
	if err != nil {
		return err
	}
	defer f.Close()
	mount, err := clone(f, 0)
	if err != nil {
		return fmt.Errorf("guard %s: %w", g.path, err)
	}
	defer mount.Close()
	if g.readOnly {
		attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
		if err := unix.MountSetattr(int(mount.Fd()), "", unix.AT_EMPTY_PATH, &attr); err != nil {
			return fmt.Errorf("guard %s: %w", g.path, err)
		}
	}
	if err := unix.MoveMount(int(mount.Fd()), "", int(f.Fd()), "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH); err != nil {
		return fmt.Errorf("guard %s: %w", g.path, err)
	}
	return nil
}

// find opens what was planned, and refuses anything else that has come to be there.
func (g planned) find(root *os.File) (*os.File, error) {
	f, err := through(root).open(g.path, unix.O_PATH)
	if err != nil {
		return nil, sandbox.Errorf(sandbox.CodeSourceChanged, "protected %s: %v", g.path, err)
	}
	var st unix.Stat_t
	err = unix.Fstat(int(f.Fd()), &st)
	if err == nil && (st.Dev != g.dev || st.Ino != g.ino) {
		err = sandbox.Errorf(sandbox.CodeSourceChanged, "protected %s is another object now", g.path)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// verify asks the kernel whether the guard is there: a mount of its own, on what was planned, read-only where
// that is what protects.
func (g planned) verify(root *os.File) (*os.File, error) {
	f, err := g.find(root)
	if err != nil {
		return nil, err
	}
	var stx unix.Statx_t
	var fs unix.Statfs_t
	err = errors.Join(unix.Statx(int(f.Fd()), "", unix.AT_EMPTY_PATH, 0, &stx), unix.Fstatfs(int(f.Fd()), &fs))
	readOnly := fs.Flags&unix.ST_RDONLY != 0
	if err == nil && (stx.Attributes&unix.STATX_ATTR_MOUNT_ROOT == 0 || g.readOnly && !readOnly) {
		err = sandbox.Errorf(sandbox.CodeNotEnforced, "protected %s is not guarded", g.path)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}
