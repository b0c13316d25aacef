package main

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/supervisor/server"
)

// become makes a process that root has started the user's that --user names, where no service manager has done
// so: it makes the socket, which lies in a directory that the user cannot write, gives everything up that root has, and executes this program again
// with the socket as a service manager would have passed it. It returns in the process that is the user's already.
func (c *config) become() error {
	if c.user == "" {
		return nil
	}
	u, err := user.Lookup(c.user)
	if err != nil {
		return fmt.Errorf("--user: %w", err)
	}
	uid, gid, groups, err := numbers(u)
	if err != nil {
		return fmt.Errorf("--user %s: %w", c.user, err)
	}
	switch {
	case uid == 0:
		return fmt.Errorf("--user %s is root", c.user)
	case os.Geteuid() == uid:
		return nil
	case os.Geteuid() != 0:
		return fmt.Errorf("--user %s takes root to become it", c.user)
	case c.runner == "":
		return errors.New("--user goes with --runner: starting a runner takes root")
	}
	if os.Getenv(envTarget) != strconv.Itoa(os.Getpid()) {
		ln, err := server.Listen(c.socket)
		if err != nil {
			return err
		}
		socket, err := server.Keep(ln)
		if err != nil {
			return err
		}
		if err := pass(socket, ""); err != nil {
			return err
		}
	}
	// What a thread is, the program that it executes is.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := giveUp(uid, gid, groups); err != nil {
		return fmt.Errorf("become %s: %w", c.user, err)
	}
	err = unix.Exec("/proc/self/exe", os.Args, os.Environ())
	return fmt.Errorf("execute this program again: %w", err)
}

func numbers(u *user.User) (uid, gid int, groups []int, err error) {
	uid, err = strconv.Atoi(u.Uid)
	if err != nil {
		return 0, 0, nil, err
	}
	if gid, err = strconv.Atoi(u.Gid); err != nil {
		return 0, 0, nil, err
	}
	ids, err := u.GroupIds()
	if err != nil {
		return 0, 0, nil, err
	}
	for _, id := range ids {
		n, err := strconv.Atoi(id)
		if err != nil {
			return 0, 0, nil, err
		}
		groups = append(groups, n)
	}
	return uid, gid, groups, nil
}

// giveUp makes this thread an ordinary user's, and tries to take root back.
func giveUp(uid, gid int, groups []int) error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("no_new_privs: %w", err)
	}
	for c := uintptr(0); ; c++ {
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); errors.Is(err, unix.EINVAL) {
			break // no such capability: that was all
		} else if err != nil {
			return fmt.Errorf("drop capability %d: %w", c, err)
		}
	}
	if err := unix.Setgroups(groups); err != nil {
		return fmt.Errorf("setgroups: %w", err)
	}
	if err := unix.Setresgid(gid, gid, gid); err != nil {
		return fmt.Errorf("setresgid: %w", err)
	}
	if err := unix.Setresuid(uid, uid, uid); err != nil {
		return fmt.Errorf("setresuid: %w", err)
	}
	if unix.Setresuid(0, 0, 0) == nil {
		return errors.New("bug: root could be taken back")
	}
	return nil
}
