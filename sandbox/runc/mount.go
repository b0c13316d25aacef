package runc

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/sandbox"
)

// attachment is one entry of a session's file system: a detached mount, complete
// with its flags and id mapping, and the inside path where it belongs.
type attachment struct {
	target   string
	tree     *os.File
	dir      bool // whether the mount point is a directory
	readOnly bool
	idmapped bool
	part     bool   // of the one above it: a guard that comes along with it
	origin   string // for messages
}

// cloneMount makes a detached mount of what f leads to: of that directory or file
// only, without what is mounted below it, so that nothing comes along that was not
// judged, and nothing follows it that the host mounts there later (T013). The flags are set before anybody can reach it; once the session's own
// mount namespace holds it, they are locked.
func cloneMount(f *os.File, readOnly bool, idmap *os.File) (*os.File, error) {
	fd, err := unix.OpenTree(int(f.Fd()), "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH)
	if err != nil {
		return nil, fmt.Errorf("open_tree %s: %w", f.Name(), err)
	}
	tree := os.NewFile(uintptr(fd), f.Name())
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV, Propagation: unix.MS_PRIVATE}
	if readOnly {
		attr.Attr_set |= unix.MOUNT_ATTR_RDONLY
	}
	if idmap != nil {
		attr.Attr_set |= unix.MOUNT_ATTR_IDMAP
		attr.Userns_fd = uint64(idmap.Fd())
	}
	if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, &attr); err != nil {
		defer tree.Close()
		if idmap != nil && (errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EPERM)) {
			return nil, sandbox.Errorf(sandbox.CodeUnsupported, "%s: %s cannot map the owners of its files to a session", f.Name(), fileSystem(f))
		}
		return nil, fmt.Errorf("mount_setattr %s: %w", f.Name(), err)
	}
	return tree, nil
}

// fileSystem names the type of the file system that f is on, for messages.
func fileSystem(f *os.File) string {
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &st); err != nil {
		return "its file system"
	}
	names := map[int64]string{
		unix.OVERLAYFS_SUPER_MAGIC: "overlay",
		unix.TMPFS_MAGIC:           "tmpfs (before Linux 6.3)",
		unix.V9FS_MAGIC:            "9p",
		unix.NFS_SUPER_MAGIC:       "nfs",
		unix.PROC_SUPER_MAGIC:      "proc",
		unix.SYSFS_MAGIC:           "sysfs",
		unix.FUSE_SUPER_MAGIC:      "fuse",
		unix.RAMFS_MAGIC:           "ramfs",
		unix.CGROUP2_SUPER_MAGIC:   "cgroup2",
	}
	if n, ok := names[int64(st.Type)]; ok {
		return n
	}
	return fmt.Sprintf("its file system (type %#x)", st.Type)
}
