package workspace

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/internal/thread"
	"github.com/stockade-dev/stockade/sandbox"
)

// layers are what an overlay consists of. Nobody but the kernel sees them.
type layers struct {
	lower *os.File // the caller's directory: a detached mount, read-only and idmapped
	store *os.File // a detached tmpfs with two directories
}

// The directories of a store.
const (
	upperName = "upper" // what was written
	workName  = "work"  // the kernel's own
	lowerName = "lower" // where the other layer is attached when they are named by path
)

// OwnInodes is how many inodes of a store are not the session's: its root, the three directories, what the kernel
// makes in work, and since Linux 6.6 the room of what it notes, which counts like an inode.
const OwnInodes = 6

// newStore makes the layer that is written to. The root directory of the overlay is the
// upper layer's: it belongs to the session, with the permissions of the directory below.
func newStore(target string, size sandbox.Overlay, owner Owner, lower *os.File) (*os.File, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(lower.Fd()), &st); err != nil {
		return nil, fmt.Errorf("stat %s: %w", lower.Name(), err)
	}
	store, err := Tmpfs(target, size.Bytes, size.Inodes+OwnInodes, "0700", 0)
	if err != nil {
		return nil, err
	}
	at := int(store.Fd())
	err = errors.Join(
		unix.Mkdirat(at, workName, 0o700),
		unix.Mkdirat(at, lowerName, 0o700),
		unix.Mkdirat(at, upperName, 0o700),
		unix.Fchownat(at, upperName, int(owner.UID), int(owner.GID), unix.AT_SYMLINK_NOFOLLOW),
		unix.Fchmodat(at, upperName, st.Mode&0o777|0o700, 0), // the process's umask has a say in mkdirat
	)
	if err != nil {
		store.Close()
		return nil, fmt.Errorf("layers of %s: %w", target, err)
	}
	return store, nil
}

// overlayOptions keep an overlay to the simplest of what it can be: a directory below is never renamed (rename(2) says EXDEV, which
// mv and every build tool that moves between file systems understand), a file is copied up whole, and the layer below is never
// believed when it says that its content is elsewhere. What the kernel notes in the upper layer it notes in trusted.*,
// which nobody inside can write; in user.* the session, and whoever wrote the directory below, could forge it.
var overlayOptions = [][2]string{
	{"source", "stockade"},
	{"redirect_dir", "nofollow"},
	{"metacopy", "off"},
	{"index", "off"},
	{"xino", "off"},
}

// mount makes the overlay, detached. Linux takes layers by descriptor since 6.13, and detached ones since 6.15; before 6.5
// overlays are configured by text alone, which is another errno.
func (l *layers) mount(target, place string) (tree *os.File, err error) {
	tree, err = l.byDescriptor(target)
	if old := errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EBADF) || errors.Is(err, unix.EOPNOTSUPP); err != nil && !old {
		return nil, err
	}
	if err != nil {
		tree, err = l.byName(target, place)
	}
	if errors.Is(err, unix.EINVAL) {
		return nil, sandbox.Errorf(sandbox.CodeUnsupported, "%s: the file system of %s cannot be below an overlay", target, l.lower.Name())
	}
	return tree, err
}

// layersByDescriptor is false in tests of what older kernels need.
var layersByDescriptor = true

func (l *layers) byDescriptor(target string) (*os.File, error) {
	if !layersByDescriptor {
		return nil, unix.EINVAL
	}
	return overlay(target, func(ctx int) error {
		for _, layer := range []struct {
			key, name string
			at        *os.File
		}{{"lowerdir+", ".", l.lower}, {"upperdir", upperName, l.store}, {"workdir", workName, l.store}} {
			fd, err := unix.Openat(int(layer.at.Fd()), layer.name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
			if err != nil {
				return fmt.Errorf("open %s: %w", layer.key, err)
			}
			err = unix.FsconfigSetFd(ctx, layer.key, fd)
			unix.Close(fd)
			if err != nil {
				return fmt.Errorf("%s: %w", layer.key, err)
			}
		}
		return nil
	})
}

// byName attaches the layers where nobody else sees them, on place, for as long as it takes to mount the
// overlay: it has clones of its own from then on. So have we: what is attached goes with the namespace.
func (l *layers) byName(target, place string) (tree *os.File, err error) {
	var kept [2]*os.File
	err = thread.Apart(func() error {
		lower := place + "/" + lowerName
		if err := mountAt(l.store, place); err != nil {
			return fmt.Errorf("attach upper layer of %s: %w", target, err)
		}
		if err := mountAt(l.lower, lower); err != nil {
			return fmt.Errorf("attach lower layer of %s: %w", target, err)
		}
		for i, f := range []*os.File{l.lower, l.store} {
			if kept[i], err = clone(f, 0); err != nil {
				return err
			}
		}
		tree, err = overlay(target, func(ctx int) error {
			for _, o := range [][2]string{{"lowerdir", lower}, {"upperdir", place + "/" + upperName}, {"workdir", place + "/" + workName}} {
				if err := unix.FsconfigSetString(ctx, o[0], o[1]); err != nil {
					return fmt.Errorf("%s: %w", o[0], err)
				}
			}
			return nil
		})
		return err
	})
	if err != nil {
		closeAll(kept[:]...)
		return nil, err
	}
	closeAll(l.lower, l.store)
	l.lower, l.store = kept[0], kept[1]
	return tree, nil
}

func closeAll(files ...*os.File) {
	for _, f := range files {
		f.Close() // of a nil *os.File that is an error, and nothing else
	}
}

// overlay mounts one whose layers are set by set.
func overlay(target string, set func(ctx int) error) (*os.File, error) {
	ctx, err := unix.Fsopen("overlay", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("fsopen overlay: %w", err)
	}
	defer unix.Close(ctx)
	if err := set(ctx); err != nil {
		return nil, fmt.Errorf("overlay %s: %w", target, err)
	}
	for _, o := range overlayOptions {
		if err := unix.FsconfigSetString(ctx, o[0], o[1]); err != nil {
			return nil, fmt.Errorf("overlay %s: %s=%s: %w", target, o[0], o[1], err)
		}
	}
	if err := unix.FsconfigCreate(ctx); err != nil {
		return nil, fmt.Errorf("overlay %s: %w", target, err)
	}
	fd, err := unix.Fsmount(ctx, unix.FSMOUNT_CLOEXEC, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV)
	if err != nil {
		return nil, fmt.Errorf("fsmount overlay %s: %w", target, err)
	}
	return os.NewFile(uintptr(fd), target), nil
}

// mountAt attaches a detached mount.
func mountAt(tree *os.File, place string) error {
	return unix.MoveMount(int(tree.Fd()), "", unix.AT_FDCWD, place, unix.MOVE_MOUNT_F_EMPTY_PATH)
}

// clone makes a detached mount of what f leads to; with AT_RECURSIVE, of what is mounted below it too.
func clone(f *os.File, flags uint) (*os.File, error) {
	fd, err := unix.OpenTree(int(f.Fd()), "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH|flags)
	if err != nil {
		return nil, fmt.Errorf("open_tree %s: %w", f.Name(), err)
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}
