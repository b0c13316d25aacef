package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/internal/cleanup"
)

// Try does in an empty group of the unified hierarchy, which is gone when it returns, what
// every session rests on, and reports for each whether it worked: killing a group by one
// write (5.14), and cloning into one by a descriptor that leads nowhere else (5.7).
func (h Hierarchies) Try() (kill, clone error) {
	var undo cleanup.Stack
	defer undo.Run()
	at := group{h.unified, h.unified.existing()}
	for name := range strings.FieldsFuncSeq(strings.TrimPrefix(h.unified.parent, at.rel), func(r rune) bool { return r == '/' }) {
		at = at.child(name)
		made := at.dir()
		if err := at.mkdir(); err != nil && !errors.Is(err, os.ErrExist) { // another instance's, meanwhile
			err = fmt.Errorf("cgroup: %w", err)
			return err, err
		}
		undo.Add(func() { os.Remove(made) }) // fails, rightly, where somebody has built in it
	}
	g := at.child("stockade-try-" + strconv.Itoa(os.Getpid()))
	if err := g.mkdir(); err != nil {
		err = fmt.Errorf("cgroup: %w", err)
		return err, err
	}
	undo.Add(func() { remove(g.dir()) })

	fd, err := unix.OpenTree(unix.AT_FDCWD, g.dir(), unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		clone = fmt.Errorf("open_tree: %w", err)
	} else {
		undo.Add(func() { unix.Close(fd) })
		// A program that does not exist: the child is born in the group, and that is all.
		_, err = syscall.ForkExec("", nil, &syscall.ProcAttr{Sys: &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: fd}})
		if !errors.Is(err, unix.ENOENT) {
			clone = fmt.Errorf("clone3: %w", err)
		}
	}
	return g.write("cgroup.kill", "1"), clone
}

// existing is the parent, or what there is above one that the operator named and nobody has
// made yet.
func (h hierarchy) existing() string {
	at := h.parent
	for at != "" && !exists(h.mount+at) {
		at = strings.TrimSuffix(path.Dir(at), "/")
	}
	return at
}

// AccountsSwap reports whether the groups of this host account swap, so that it can be
// bounded.
func (h Hierarchies) AccountsSwap() bool {
	for _, x := range h.v1 {
		if x.controller == "memory" {
			return exists(x.mount + x.existing() + memsw)
		}
	}
	// The root of a v2 hierarchy has no such file; every other group of a kernel that accounts has.
	above := h.unified.existing()
	return above == "" || exists(h.unified.mount+above+"/memory.swap.max")
}
