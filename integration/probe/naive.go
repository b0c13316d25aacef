package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// naive builds a root and enters it as runtimes did before they were attacked: each place by its name, again at each step, and what is
// open stays open. What sessions hold off, it falls for: that is what it is for. It wants a mount namespace of its own. Without a
// program it prints the mounts that it has made, one in a line, where they have come to lie.
//
//	naive ROOT STEP… [-- PROGRAM [ARG…]]
//
// A step is a word of naiveSteps with its arguments behind colons; a path that is relative is one in the root.
func naive(args []string) (string, error) {
	root, rest := args[0], args[1:]
	var program []string
	if i := slices.Index(rest, "--"); i >= 0 {
		rest, program = rest[:i], rest[i+1:]
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return "", fmt.Errorf("private: %w", err)
	}
	before, err := mounted()
	if err != nil {
		return "", err
	}
	cwd := "/"
	for _, step := range rest {
		words := strings.Split(step, ":")
		if words[0] == "cwd" {
			cwd = words[1]
			continue
		}
		for i, w := range words[1:] {
			if !filepath.IsAbs(w) {
				words[1+i] = filepath.Join(root, w)
			}
		}
		if err := naiveSteps[words[0]](words[1:]); err != nil {
			return "", fmt.Errorf("%s: %w", step, err)
		}
	}
	if program == nil {
		after, err := mounted()
		made := slices.DeleteFunc(after, func(m string) bool { return slices.Contains(before, m) })
		return strings.Join(made, "\n"), err
	}
	if err := unix.Chroot(root); err != nil {
		return "", err
	}
	if err := unix.Chdir(cwd); err != nil {
		return "", err
	}
	return "", syscall.Exec(program[0], program, os.Environ())
}

var naiveSteps = map[string]func([]string) error{
	"look": func(a []string) error { // as one looks who does not know that it may be another once he has decided
		info, err := os.Lstat(a[0])
		if err == nil && info.Mode()&os.ModeSymlink != 0 {
			err = unix.ELOOP
		}
		time.Sleep(time.Millisecond)
		return err
	},
	"make":  func(a []string) error { return makeThroughLinks(a[0]) },
	"bind":  func(a []string) error { return unix.Mount(a[0], a[1], "", unix.MS_BIND, "") },
	"proc":  func(a []string) error { return unix.Mount("proc", a[0], "proc", 0, "") },
	"sys":   func(a []string) error { return unix.Mount("sysfs", a[0], "sysfs", 0, "") },
	"null":  func(a []string) error { return unix.Mknod(a[0], unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))) },
	"write": func(a []string) error { return os.WriteFile(a[0], []byte("naive"), 0) },
	"leak": func(a []string) error { // without O_CLOEXEC
		_, err := unix.Open(a[0], unix.O_PATH, 0)
		return err
	},
}

// makeThroughLinks makes a directory and what is missing above it, wherever links lead.
func makeThroughLinks(path string) error {
	if to, err := os.Readlink(path); err == nil {
		return makeThroughLinks(to)
	}
	parent, name := filepath.Split(path)
	parent = filepath.Clean(parent)
	if parent != "/" {
		if err := makeThroughLinks(parent); err != nil {
			return err
		}
	}
	if to, err := os.Readlink(parent); err == nil {
		path = filepath.Join(to, name)
	}
	if err := unix.Mkdir(path, 0o755); err != nil && err != unix.EEXIST {
		return err
	}
	return nil
}

// mounted is the mount table: where, what, with which flags.
func mounted() (lines []string, err error) {
	b, err := os.ReadFile("/proc/self/mountinfo")
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if dash := slices.Index(f, "-"); dash > 0 {
			lines = append(lines, f[4]+" "+f[dash+1]+" "+f[5])
		}
	}
	return lines, err
}

// naiveExec starts a program so many times, as a runtime does that is not in memory of its own: a script whose interpreter is
// /proc/self/exe has the runtime for one (CVE-2019-5736).
func naiveExec(args []string) (string, error) {
	for range number(args[1]) {
		_ = exec.Command(args[0]).Run() // what it does as an interpreter does not matter
	}
	return "", nil
}
