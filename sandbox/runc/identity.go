package runc

import (
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/sandbox"
)

// as calls fn under the file system identity of c: its groups, fsgid and fsuid.
// Leaving fsuid 0 takes the file capabilities out of the effective set, so the
// kernel answers fn as it would answer the caller; a caller that is root keeps
// them. CAP_SYS_ADMIN stays: it is ours to mount with, and no path is checked by it.
//
// The thread that carries the identity is never used for anything else: its
// goroutine ends without unlocking it, which ends the thread.
func as(c sandbox.Caller, fn func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		if err := assume(c); err != nil {
			done <- fmt.Errorf("assume uid %d: %w", c.UID, err)
			return
		}
		done <- fn()
	}()
	return <-done
}

// assume gives the calling thread, and only it, the identity of c. The raw calls
// are needed because the syscall package changes all threads of the process.
func assume(c sandbox.Caller) error {
	if err := setgroups(c.Groups); err != nil {
		return fmt.Errorf("setgroups: %w", err)
	}
	// setfsgid before setfsuid, which gives up the right to do it. Neither reports
	// failure; asking for an invalid id reports what is in force.
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
