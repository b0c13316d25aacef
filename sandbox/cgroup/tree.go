// Package cgroup needs root; it is linked only into stockade-run. It builds, bounds,
// measures, freezes, kills and removes the control groups of sessions, on cgroup v1, v2 and both.
//
//	S          session: ceilings of memory (no swap), cpu, pids and io; root of its cgroup namespace
//	S/init     init
//	S/x        every execution, with the pids that were granted; one write kills them all and never init
//	S/x/N      one execution, born there with CLONE_INTO_CGROUP; its own ceilings, if it has some
//
// That tree stands in the unified hierarchy, which exists on hybrid hosts too: killing a
// whole tree, the notice that it is empty, and CPU accounting work there without any
// controller. A controller that the host keeps on v1 has a group S of its own with the same
// processes in it; below that, pids has x, and an execution with ceilings of its own a group
// for each.
//
// Promise: it writes to no group but the instance's own, the runner's own (on v2, to hand
// controllers down) and the one that the operator named; what [Tree.Create] makes,
// [Session.Remove] takes away in every hierarchy, and [Tree.Sweep] does when nobody did.
//
// Non-goals: wall time and open files, which are no group's; saying what a command died of (it counts).
//
// A session's ceilings are written by containerd/cgroups, and read back by nobody's library:
// see ceiling.go. The unified tree is plain files, of which that library knows too little and,
// enabling controllers upwards from the mount point, writes too many.
package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/internal/cleanup"
)

// Options say where an instance's groups stand. The zero value suits a runner that has
// been started in a group of its own.
type Options struct {
	Parent     string // group below which they stand, in every hierarchy, such as "/stockade.slice"; processes in it move to its child "supervisor"; "" means the runner's own
	Unified    string // directory, removed afterwards, on which the unified hierarchy is mounted, for this process's mount namespace, when the host (pure v1) has not; "" means do not
	Companions []int  // processes that may be moved with the runner on v2, such as the daemon that started it; in a group that was given to us, everybody may
}

// Tree is the groups of one instance in every hierarchy that matters.
type Tree struct {
	instance string
	host     Hierarchies
	mounted  string // where we mounted the unified hierarchy; empty where the host did
	unified  group
	v1       []group // one per controller that the host keeps on v1
	watch    *watcher
}

// group is one directory of a hierarchy, and the way to it below the mount point.
type group struct {
	hierarchy
	rel string // "/stockade-I/S"; empty for the mount's own root
}

func (g group) dir() string             { return g.mount + g.rel }
func (g group) child(name string) group { return group{g.hierarchy, g.rel + "/" + name} }
func (g group) file(name string) string { return g.dir() + "/" + name }
func (g group) mkdir() error            { return os.Mkdir(g.dir(), 0o755) }
func (g group) write(file, v string) error {
	return writeFile(g.file(file), v)
}

// Open finds the hierarchies and makes the instance's group in each. The caller closes
// the Tree. One instance has one Tree at a time; the daemon's lock on its state sees to that.
func Open(instance string, opts Options) (*Tree, error) {
	if !plainName(instance) {
		return nil, fmt.Errorf("cgroup instance %q: not a plain name", instance)
	}
	var undo cleanup.Stack
	defer undo.Run()
	if err := opts.Mount(); err != nil {
		return nil, err
	}
	host, err := Discover(opts)
	if err != nil {
		return nil, err
	}
	var mounted string
	if host.Layout == "v1" {
		mounted = opts.Unified
		undo.Add(func() { unmount(mounted) })
	}
	if err := host.site(opts).refusal(); err != nil {
		return nil, err
	}

	t := &Tree{instance: instance, host: host, mounted: mounted}
	if err := host.delegate(opts); err != nil {
		return nil, err
	}
	name := "stockade-" + instance
	for _, h := range append([]hierarchy{host.unified}, host.v1...) {
		g := group{h, h.parent}.child(name)
		if err := os.MkdirAll(g.dir(), 0o755); err != nil {
			return nil, fmt.Errorf("cgroup %s: %w", g.dir(), err)
		}
		undo.Add(func() { os.Remove(g.dir()) }) // fails, rightly, where an earlier runner left sessions
		if h.controller == "" {
			t.unified = g
		} else {
			t.v1 = append(t.v1, g)
		}
	}
	if err := enable(t.unified.dir(), host.handed()); err != nil {
		return nil, err
	}
	if t.watch, err = newWatcher(); err != nil {
		return nil, err
	}
	undo.Release()
	return t, nil
}

// Dir is the instance's own group in the unified hierarchy.
func (t *Tree) Dir() string { return t.unified.dir() }

// Layout is "v1", "v2" or "hybrid".
func (t *Tree) Layout() string { return t.host.Layout }

// Close removes the instance's groups, which must hold no session any more.
func (t *Tree) Close() error {
	errs := []error{t.watch.close()}
	for _, g := range append([]group{t.unified}, t.v1...) {
		errs = append(errs, remove(g.dir()))
	}
	return errors.Join(append(errs, unmount(t.mounted))...)
}

// Sweep kills and removes every session that an earlier runner of this instance left, in
// every hierarchy. It goes by name, wherever the group stands: the earlier runner may have
// been started from another group.
func (t *Tree) Sweep() error {
	var errs []error
	for _, h := range append([]hierarchy{t.host.unified}, t.host.v1...) {
		found, err := find(h.mount, "stockade-"+t.instance)
		errs = append(errs, err)
		for _, dir := range found {
			errs = append(errs, sweep(dir, h.controller == "", dir == t.at(h)))
		}
	}
	return errors.Join(errs...)
}

// at is the instance's own group in a hierarchy.
func (t *Tree) at(h hierarchy) string { return h.mount + h.parent + "/stockade-" + t.instance }

// sweep empties one group of an instance, and removes it too unless it is in use.
func sweep(dir string, unified, keep bool) error {
	children, err := subgroups(dir)
	if err != nil {
		return err
	}
	for _, child := range children {
		if unified {
			err = writeFile(child+"/cgroup.kill", "1")
		} else {
			err = killMembers(child) // one that had been moved here and not yet in the unified tree
		}
		if err != nil && !gone(err) {
			return err
		}
		if err := remove(child); err != nil {
			return err
		}
	}
	if keep {
		return nil
	}
	return remove(dir)
}

// Create makes the groups of a session, without its ceilings: nothing of a caller's may
// enter before [Session.Bound]. The caller removes it.
func (t *Tree) Create(name string) (*Session, error) {
	if !plainName(name) {
		return nil, fmt.Errorf("cgroup session %q: not a plain name", name)
	}
	s := t.session(name)
	var undo cleanup.Stack
	defer undo.Run()
	for _, g := range s.all() {
		if err := g.mkdir(); err != nil {
			return nil, fmt.Errorf("cgroup %s: %w", g.dir(), err)
		}
		undo.Add(func() { os.Remove(g.dir()) })
	}
	undo.Release()
	return s, nil
}

// all are the groups of the session itself, those above before those below.
func (s *Session) all() []group {
	groups := []group{s.unified, s.unified.child("init"), s.unified.child("x")}
	for _, g := range s.v1 {
		groups = append(groups, g)
		if g.controller == "pids" {
			groups = append(groups, g.child("x"))
		}
	}
	return groups
}

// session names the groups of a session.
func (t *Tree) session(name string) *Session {
	s := &Session{tree: t, unified: t.unified.child(name), bounded: make(map[*Leaf]bool)}
	for _, g := range t.v1 {
		s.v1 = append(s.v1, g.child(name))
	}
	return s
}

// plainName admits one component that is no special directory.
func plainName(name string) bool {
	return name != "" && name != "." && name != ".." && !strings.ContainsAny(name, "/\x00\n")
}

func writeFile(path, value string) error {
	fd, err := open(path, unix.O_WRONLY)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if _, err := unix.Write(fd, []byte(value)); err != nil {
		return &fs.PathError{Op: "write", Path: path, Err: err}
	}
	return nil
}

// readFile reads a whole file.
func readFile(path string) (string, error) {
	fd, err := open(path, unix.O_RDONLY)
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	var buf [4096]byte
	var data []byte
	for {
		n, err := unix.Read(fd, buf[:])
		switch {
		case err == unix.EINTR:
		case err != nil:
			return "", &fs.PathError{Op: "read", Path: path, Err: err}
		case n == 0:
			return string(data), nil
		default:
			data = append(data, buf[:n]...)
		}
	}
}

// open opens a file of ours in a hierarchy without telling the runtime's poller, as
// os.OpenFile would. Such a file is always ready: each would wake the poller's thread twice,
// and an execution opens half a dozen.
func open(path string, flags int) (int, error) {
	for {
		fd, err := unix.Open(path, flags|unix.O_CLOEXEC, 0)
		switch err {
		case nil:
			return fd, nil
		case unix.EINTR:
		default:
			return -1, &fs.PathError{Op: "open", Path: path, Err: err}
		}
	}
}

// keyed reads one value of a file of "name value" lines.
func keyed(path, name string) (int64, error) {
	data, err := readFile(path)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(data) {
		if key, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " "); key == name {
			n, err := strconv.ParseInt(value, 10, 64)
			if err != nil {
				return 0, fmt.Errorf("%s: %w", filepath.Base(path), err)
			}
			return n, nil
		}
	}
	return 0, fmt.Errorf("%s: no %s", filepath.Base(path), name)
}

// exists is false only of what the kernel says that there is not: a file of which it says nothing is one that is
// done without by mistake.
func exists(path string) bool {
	_, err := os.Lstat(path)
	return !errors.Is(err, fs.ErrNotExist)
}
