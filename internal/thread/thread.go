// Package thread calls functions on a thread that has what the process has not: another identity
// towards file systems, or another namespace. It needs root, and is linked only into
// stockade-run.
//
// It promises that nothing else ever runs on such a thread: its goroutine ends without unlocking it,
// which ends the thread. A program keeps its main thread for main (runtime.LockOSThread in an init
// function), because that one the runtime would park instead.
//
// Non-goals: threads that stay; a function that starts goroutines must not expect them to be where it is.
package thread

import (
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// apart calls fn, after prepare, on a thread of its own.
func apart(prepare, fn func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // for ever: the thread dies with this goroutine
		if err := prepare(); err != nil {
			done <- err
			return
		}
		done <- fn()
	}()
	return <-done
}

// Apart calls fn in a mount namespace of its own. When fn returns, the namespace and
// every mount in it are gone: there is nothing to undo, and nobody else has seen it.
func Apart(fn func() error) error {
	return apart(func() error {
		if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS); err != nil {
			return fmt.Errorf("unshare mount namespace: %w", err)
		}
		// Of this thread alone, like its mounts: what is made here is for everybody inside.
		unix.Umask(0o022)
		// The process's namespace still receives the host's mounts; this one does not.
		if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
			return fmt.Errorf("make mounts private: %w", err)
		}
		return nil
	}, fn)
}

// Within calls fn in the namespace ns, which is of a kind that unix.CLONE_NEW* names. Of a mount namespace that is Enter.
func Within(ns *os.File, kind int, fn func() error) error {
	return apart(func() error {
		if err := unix.Setns(int(ns.Fd()), kind); err != nil {
			return fmt.Errorf("enter %s: %w", ns.Name(), err)
		}
		return nil
	}, fn)
}

// Enter calls fn in the mount namespace ns, whose root directory is the thread's.
func Enter(ns *os.File, fn func() error) error {
	return apart(func() error {
		// A namespace is not entered by a thread that shares its directories with others.
		if err := unix.Unshare(unix.CLONE_FS); err != nil {
			return fmt.Errorf("unshare directories: %w", err)
		}
		if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNS); err != nil {
			return fmt.Errorf("enter mount namespace: %w", err)
		}
		return nil
	}, fn)
}
