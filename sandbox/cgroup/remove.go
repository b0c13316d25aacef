package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// removeFor bounds how long a group may stay busy. A killed process leaves its group when it
// has exited, which takes as long as freeing its memory does.
const removeFor = 5 * time.Second

// remove takes a group and everything below it away.
func remove(dir string) error {
	deadline := time.Now().Add(removeFor)
	for pause := 200 * time.Microsecond; ; pause = min(2*pause, 50*time.Millisecond) {
		err := rmdirs(dir)
		if err == nil || !errors.Is(err, unix.EBUSY) || time.Now().After(deadline) {
			return err
		}
		time.Sleep(pause)
	}
}

func rmdirs(dir string) error {
	err := unix.Rmdir(dir)
	if err == nil || gone(err) {
		return nil
	}
	// Busy with processes or with groups of its own.
	children, lerr := subgroups(dir)
	if lerr != nil {
		return lerr
	}
	for _, child := range children {
		if err := rmdirs(child); err != nil {
			return err
		}
	}
	if len(children) > 0 {
		if err = unix.Rmdir(dir); err == nil || gone(err) {
			return nil
		}
	}
	return fmt.Errorf("rmdir %s: %w", dir, err)
}

func subgroups(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		if gone(err) {
			return nil, nil
		}
		return nil, err
	}
	var dirs []string
	for _, e := range entries {
		if e.IsDir() {
			dirs = append(dirs, dir+"/"+e.Name())
		}
	}
	return dirs, nil
}

// find returns the groups of a name, wherever they stand in a hierarchy.
func find(mount, name string) ([]string, error) {
	var found []string
	err := filepath.WalkDir(mount, func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil && gone(err): // somebody else's group went meanwhile
			return nil
		case err != nil:
			return err
		case e.IsDir() && e.Name() == name:
			found = append(found, path)
			return fs.SkipDir
		}
		return nil
	})
	return found, err
}

// killMembers kills the processes of a v1 group and of those below it, which have no cgroup.kill. A
// pidfd holds the process while its membership is asked again, so that the number cannot be
// somebody else's.
func killMembers(dir string) error {
	children, err := subgroups(dir)
	if err != nil {
		return err
	}
	for _, child := range children {
		if err := killMembers(child); err != nil && !gone(err) {
			return err
		}
	}
	pids, err := members(dir)
	if err != nil {
		return err
	}
	for _, pid := range pids {
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			continue // it has ended
		}
		again, err := members(dir)
		if err == nil && slices.Contains(again, pid) {
			err = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
		}
		unix.Close(fd)
		if err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("kill process %d of cgroup %s: %w", pid, dir, err)
		}
	}
	return nil
}

func members(dir string) ([]int, error) {
	data, err := os.ReadFile(dir + "/cgroup.procs")
	if err != nil {
		return nil, err
	}
	var pids []int
	for field := range strings.FieldsSeq(string(data)) {
		pid, err := strconv.Atoi(field)
		if err != nil {
			return nil, fmt.Errorf("%s/cgroup.procs: %w", dir, err)
		}
		pids = append(pids, pid)
	}
	return pids, nil
}
