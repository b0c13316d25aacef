package workspace

import (
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// Tmpfs makes a detached, private, empty file system of bounded size. owner is
// the host id of its root directory.
func Tmpfs(name string, bytes, inodes int64, mode string, owner uint32) (*os.File, error) {
	ctx, err := unix.Fsopen("tmpfs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("fsopen tmpfs: %w", err)
	}
	defer unix.Close(ctx)
	id := strconv.FormatUint(uint64(owner), 10)
	for _, o := range [][2]string{
		{"source", "stockade"},
		{"size", strconv.FormatInt(bytes, 10)},
		{"nr_inodes", strconv.FormatInt(inodes, 10)},
		{"mode", mode},
		{"uid", id},
		{"gid", id},
	} {
		if err := unix.FsconfigSetString(ctx, o[0], o[1]); err != nil {
			return nil, fmt.Errorf("tmpfs %s: %s=%s: %w", name, o[0], o[1], err)
		}
	}
	if err := unix.FsconfigCreate(ctx); err != nil {
		return nil, fmt.Errorf("tmpfs %s: %w", name, err)
	}
	fd, err := unix.Fsmount(ctx, unix.FSMOUNT_CLOEXEC, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV)
	if err != nil {
		return nil, fmt.Errorf("fsmount %s: %w", name, err)
	}
	return os.NewFile(uintptr(fd), name), nil
}
