package runc

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/internal/openat2"
	"github.com/stockade-dev/stockade/sandbox"
	"github.com/stockade-dev/stockade/sandbox/workspace"
)

// layout is everything that the file system of a session consists of. It is
// gathered before the staging begins: nothing below here looks at a host path.
type layout struct {
	owner  uint32            // host id of inside uid 0
	dirs   []string          // made in our own root
	links  map[string]string // symbolic links in our own root: path to target
	files  map[string]string // files in our own root: path to content
	attach []attachment      // attached in order of target, so that parents come first
	group  string            // an empty one of the unified hierarchy, as a path

	devices []uint64                    // st_dev of the host's files among what is attached
	spaces  map[string]*workspace.Space // overlays by target, among what is attached: the session's, once it is there
}

// The root file system itself holds mount points, symbolic links and a handful of
// small files. It is read-only once staged; the bound is for the staging itself.
const (
	rootBytes  = 4 << 20
	rootInodes = 4096
)

// staged calls fn with the session's root mounted at the path that fn is given.
func staged(place string, l layout, fn func(root string) error) error {
	return apart(func() error {
		if err := l.build(place); err != nil {
			return err
		}
		if err := bindGroups(l.group); err != nil {
			return err
		}
		return fn(place)
	})
}

// build mounts the root at place and puts everything into it.
func (l *layout) build(place string) error {
	tmpfs, err := workspace.Tmpfs("root", rootBytes, rootInodes, "0755", l.owner)
	if err != nil {
		return err
	}
	defer tmpfs.Close()
	if err := l.populate(&rootDir{dir: tmpfs, owner: int(l.owner)}); err != nil {
		return err
	}
	// Files were written through the mount at hand, and a process that another thread is
	// forking just now may hold one of them open for writing: that mount could not be made
	// read-only. So a second mount of the same file system becomes the root. The first has to be
	// attached while it is cloned: Linux clones a detached mount since 6.15 only.
	if err := mountAt(int(tmpfs.Fd()), place); err != nil {
		return fmt.Errorf("mount root: %w", err)
	}
	fd, err := unix.OpenTree(int(tmpfs.Fd()), "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH)
	if err != nil {
		return fmt.Errorf("clone root: %w", err)
	}
	if err = unix.Unmount(place, unix.MNT_DETACH); err == nil {
		err = mountAt(fd, place)
	}
	unix.Close(fd)
	if err != nil {
		return fmt.Errorf("mount root: %w", err)
	}
	if fd, err = unix.Open(place, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0); err != nil {
		return fmt.Errorf("open root: %w", err)
	}
	root := &rootDir{dir: os.NewFile(uintptr(fd), place), owner: int(l.owner)}
	defer root.dir.Close()

	slices.SortStableFunc(l.attach, func(a, b attachment) int { return strings.Compare(a.target, b.target) })
	for _, a := range l.attach {
		if a.part {
			continue
		}
		if err := root.attach(a); err != nil {
			return err
		}
	}
	// Last, because mount points were made in it until now.
	if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}); err != nil {
		return fmt.Errorf("make root read-only: %w", err)
	}
	return nil
}

// mountAt attaches a detached mount.
func mountAt(fd int, place string) error {
	return unix.MoveMount(fd, "", unix.AT_FDCWD, place, unix.MOVE_MOUNT_F_EMPTY_PATH)
}

// populate makes what is in the root itself.
func (l *layout) populate(root *rootDir) error {
	for _, d := range l.dirs {
		if err := root.mkdir(d); err != nil {
			return err
		}
	}
	for path, target := range l.links {
		if err := root.symlink(path, target); err != nil {
			return err
		}
	}
	for path, content := range l.files {
		if err := root.write(path, content); err != nil {
			return err
		}
	}
	return nil
}

// rootDir is the root directory. Paths are walked one name at a time from its
// descriptor, never through a symbolic link.
type rootDir struct {
	dir   *os.File
	owner int
}

func (r *rootDir) mkdir(path string) error {
	fd, err := r.walk(path, true)
	if err != nil {
		return fmt.Errorf("mkdir %s: %w", path, err)
	}
	return unix.Close(fd)
}

func (r *rootDir) symlink(path, target string) error {
	dir, name := split(path)
	at, err := r.walk(dir, true)
	if err != nil {
		return fmt.Errorf("symlink %s: %w", path, err)
	}
	defer unix.Close(at)
	if err = unix.Symlinkat(target, at, name); err == nil {
		err = unix.Fchownat(at, name, r.owner, r.owner, unix.AT_SYMLINK_NOFOLLOW)
	}
	if err != nil {
		return fmt.Errorf("symlink %s: %w", path, err)
	}
	return nil
}

func (r *rootDir) write(path, content string) error {
	dir, name := split(path)
	at, err := r.walk(dir, true)
	if err != nil {
		return fmt.Errorf("create %s: %w", path, err)
	}
	defer unix.Close(at)
	fd, err := unix.Openat(at, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0o644)
	if err != nil {
		return fmt.Errorf("create %s: %w", path, err)
	}
	f := os.NewFile(uintptr(fd), path)
	defer f.Close()
	if err := f.Chown(r.owner, r.owner); err != nil {
		return err
	}
	_, err = f.WriteString(content)
	return err
}

// attach moves the detached mount to its place, both given by descriptor.
func (r *rootDir) attach(a attachment) error {
	fd, err := r.walk(a.target, a.dir)
	if err != nil {
		return sandbox.Errorf(sandbox.CodeMountTarget, "%s: %v", a.target, err)
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fmt.Errorf("stat %s: %w", a.target, err)
	}
	if isDir := st.Mode&unix.S_IFMT == unix.S_IFDIR; isDir != a.dir || !isDir && st.Mode&unix.S_IFMT != unix.S_IFREG {
		return sandbox.Errorf(sandbox.CodeMountTarget, "%s: exists, and is not of the kind of what is mounted there", a.target)
	}
	if err := unix.MoveMount(int(a.tree.Fd()), "", fd, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH); err != nil {
		return fmt.Errorf("attach %s at %s: %w", a.origin, a.target, err)
	}
	return nil
}

var errForeign = errors.New("does not exist, and is not made inside what the caller mounts")

// walk returns a descriptor of path. What is missing is made, the last name as a
// directory or as an empty file, but only in our own file system: in one of the
// caller's nothing is ever created.
func (r *rootDir) walk(path string, dir bool) (int, error) {
	at, err := unix.FcntlInt(r.dir.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	names := strings.Split(strings.Trim(path, "/"), "/")
	for i, name := range names {
		if name == "" {
			continue
		}
		next, err := step(at, name)
		if errors.Is(err, unix.ENOENT) {
			if err = r.create(at, name, dir || i < len(names)-1); err == nil {
				next, err = step(at, name)
			}
		}
		unix.Close(at)
		if err != nil {
			return -1, err
		}
		at = next
	}
	return at, nil
}

func step(at int, name string) (int, error) {
	return openat2.Open(at, name, &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_CLOEXEC | unix.O_NOFOLLOW,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	})
}

func (r *rootDir) create(at int, name string, dir bool) error {
	var here, own unix.Stat_t
	if err := errors.Join(unix.Fstat(at, &here), unix.Fstat(int(r.dir.Fd()), &own)); err != nil {
		return err
	}
	if here.Dev != own.Dev {
		return errForeign
	}
	var err error
	if dir {
		err = unix.Mkdirat(at, name, 0o755)
	} else {
		err = unix.Mknodat(at, name, unix.S_IFREG|0o644, 0) // never open for writing: see build
	}
	if err != nil {
		return err
	}
	return unix.Fchownat(at, name, r.owner, r.owner, unix.AT_SYMLINK_NOFOLLOW)
}

// split cuts a clean absolute path into its directory and its last name.
func split(path string) (dir, name string) {
	i := strings.LastIndexByte(path, '/')
	return path[:i+1], path[i+1:]
}
