package thread

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/sandbox"
)

// As calls fn under the file system identity of c: its groups, fsgid and fsuid.
// Leaving fsuid 0 takes the file capabilities out of the effective set, so the
// kernel answers fn as it would answer the caller; a caller that is root keeps
// them. CAP_SYS_ADMIN stays: it is ours to mount with, and no path is checked by it.
func As(c sandbox.Caller, fn func() error) error {
	return apart(func() error {
		if err := assume(c); err != nil {
			return fmt.Errorf("assume uid %d: %w", c.UID, err)
		}
		return nil
	}, fn)
}

// assume gives the calling thread, and only it, the identity of c. The raw calls
// are needed because the syscall package changes all threads of the process.
func assume(c sandbox.Caller) error {
	if err := setgroups(c.Groups); err != nil {
		return fmt.Errorf("setgroups: %w", err)
	}
	// Neither reports failure; asking for an invalid id reports what is in force.
	for _, id := range []struct {
		call uintptr
		name string
		want uint32
	}{
		{unix.SYS_SETFSGID, "setfsgid", c.GID},
		{unix.SYS_SETFSUID, "setfsuid", c.UID},
	} {
		_, _, _ = unix.RawSyscall(id.call, uintptr(id.want), 0, 0)
		if now, _, _ := unix.RawSyscall(id.call, ^uintptr(0), 0, 0); uint32(now) != id.want {
			return fmt.Errorf("%s %d: still %d", id.name, id.want, uint32(now))
		}
	}
	if c.UID == 0 {
		return nil
	}
	// With it the caller would write into blocks that are reserved for root, and past his quota.
	if err := effective(func(set, _ uint64) uint64 { return set &^ (1 << unix.CAP_SYS_RESOURCE) }); err != nil {
		return fmt.Errorf("give up CAP_SYS_RESOURCE: %w", err)
	}
	return nil
}

// setgroups changes the supplementary groups of the calling thread only.
func setgroups(groups []uint32) error {
	var p unsafe.Pointer
	if len(groups) > 0 {
		p = unsafe.Pointer(&groups[0])
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(groups)), uintptr(p), 0); errno != 0 {
		return errno
	}
	return nil
}

// Searching calls fn with the right to read and search everything that it can reach, on a thread of
// As: for what is ours and not the identity's. What fn opens stays open.
func Searching(fn func() error) error {
	var before uint64
	err := effective(func(set, _ uint64) uint64 { before = set; return set | 1<<unix.CAP_DAC_READ_SEARCH })
	if err != nil {
		return fmt.Errorf("raise CAP_DAC_READ_SEARCH: %w", err)
	}
	defer func() {
		if err := effective(func(_, _ uint64) uint64 { return before }); err != nil {
			panic(fmt.Sprintf("bug: a capability cannot be given up: %v", err))
		}
	}()
	return fn()
}

// Owning calls fn as uid, with every capability that the process may have: user namespaces that are made there are owned by uid, and
// what is counted in them is counted as that user's outside. A process that is started there has uid for its real and effective one.
func Owning(uid uint32, fn func() error) error {
	return apart(func() error {
		// Saved, 0 keeps the permitted capabilities.
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, uintptr(uid), uintptr(uid), 0); errno != 0 {
			return fmt.Errorf("become uid %d: %w", uid, errno)
		}
		if err := effective(func(_, permitted uint64) uint64 { return permitted }); err != nil {
			return fmt.Errorf("become uid %d: %w", uid, err)
		}
		return nil
	}, fn)
}

// effective changes the effective capabilities of the calling thread.
func effective(change func(now, permitted uint64) uint64) error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return err
	}
	set := uint64(data[1].Effective)<<32 | uint64(data[0].Effective)
	now := change(set, uint64(data[1].Permitted)<<32|uint64(data[0].Permitted))
	if now == set {
		return nil
	}
	data[0].Effective, data[1].Effective = uint32(now), uint32(now>>32)
	return unix.Capset(&header, &data[0])
}
