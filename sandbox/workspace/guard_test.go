package workspace

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/internal/thread"
	"github.com/stockade-dev/stockade/sandbox"
)

// project is a repository without what is protected although it is not there.
var project = map[string]string{
	".git/config": "[core]\n", ".git/HEAD": "ref: refs/heads/main\n", ".git/index": "i", ".git/hooks/pre-commit": "#!/bin/sh\n", ".git/objects/": "", ".git/refs/heads/main": "1",
	"src/main.go": "package main\n", "worktree/.git": "gitdir: ../.git\n",
}

var protected = []string{".git/config", ".git/hooks", ".git/commondir", ".mcp.json", ".claude/settings.json", "a/b/c", "worktree/.git/hooks"}

// attempts are what a session tries. Each begins with the tree as it is in project, as far as it is not
// protected: what others have done is undone by making the tree anew.
var attempts = []struct {
	name string
	do   func() error
}{
	{"write", func() error { return os.WriteFile(".git/config", []byte("x"), 0o644) }},
	{"append", func() error { return opens(".git/config", os.O_WRONLY|os.O_APPEND) }},
	{"truncate", func() error { return os.Truncate(".git/config", 0) }},
	{"chmod", func() error { return os.Chmod(".git/config", 0o777) }},
	{"set times", func() error { return unix.UtimesNanoAt(unix.AT_FDCWD, ".git/config", nil, 0) }},
	{"set attribute", func() error { return unix.Setxattr(".git/config", "user.x", []byte("x"), 0) }},
	{"unlink", func() error { return unix.Unlink(".git/config") }},
	{"rename", func() error { return unix.Rename(".git/config", ".git/config.old") }},
	{"rename onto", func() error {
		return must(os.WriteFile(".git/new", nil, 0o644), unix.Rename(".git/new", ".git/config"))
	}},
	{"exchange", func() error {
		return must(os.WriteFile(".git/new", nil, 0o644), unix.Renameat2(unix.AT_FDCWD, ".git/new", unix.AT_FDCWD, ".git/config", unix.RENAME_EXCHANGE))
	}},
	{"link from", func() error { return unix.Link(".git/config", ".git/other") }},
	{"link from, by descriptor", func() error {
		fd, err := unix.Open(".git/config", unix.O_PATH, 0)
		return must(err, unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", fd), unix.AT_FDCWD, ".git/other", unix.AT_SYMLINK_FOLLOW))
	}},
	{"open again for writing", func() error {
		fd, err := unix.Open(".git/config", unix.O_RDONLY, 0)
		return must(err, opens(fmt.Sprintf("/proc/self/fd/%d", fd), os.O_WRONLY))
	}},
	{"through a symbolic link", func() error { return must(os.Symlink(".git/config", "way"), os.WriteFile("way", []byte("x"), 0)) }},
	{"through ..", func() error { return os.WriteFile("src/../.git/config", []byte("x"), 0) }},
	{"create in a directory", func() error { return os.WriteFile(".git/hooks/post-checkout", nil, 0o755) }},
	{"write in a directory", func() error { return os.WriteFile(".git/hooks/pre-commit", nil, 0o755) }},
	{"unlink in a directory", func() error { return unix.Unlink(".git/hooks/pre-commit") }},
	{"rename into a directory", func() error { return unix.Rename("src/main.go", ".git/hooks/main.go") }},
	{"rename a directory", func() error { return unix.Rename(".git/hooks", ".git/hooks.old") }},
	{"unnamed file in a directory", func() error { return opens(".git/hooks", unix.O_TMPFILE|os.O_RDWR) }},
	{"unnamed file given the name", func() error {
		fd, err := unix.Open(".", unix.O_TMPFILE|unix.O_RDWR, 0o644)
		return must(err, unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", fd), unix.AT_FDCWD, ".mcp.json", unix.AT_SYMLINK_FOLLOW))
	}},
	{"rename the parent", func() error { return unix.Rename(".git", "git") }},
	{"exchange the parent", func() error {
		return must(os.Mkdir("fake", 0o755), unix.Renameat2(unix.AT_FDCWD, "fake", unix.AT_FDCWD, ".git", unix.RENAME_EXCHANGE))
	}},
	{"remove the parent", func() error { return os.RemoveAll(".git") }},
	{"create what is missing", func() error { return os.WriteFile(".mcp.json", []byte("{}"), 0o644) }},
	{"make a directory of what is missing", func() error { return os.Mkdir(".mcp.json", 0o755) }},
	{"make a symbolic link of what is missing", func() error { return os.Symlink("evil", ".mcp.json") }},
	{"rename to what is missing", func() error { return unix.Rename("src/main.go", ".mcp.json") }},
	{"link to what is missing", func() error { return unix.Link("src/main.go", ".mcp.json") }},
	{"create in a parent that is missing", func() error {
		return must(os.MkdirAll(".claude", 0o755), os.WriteFile(".claude/settings.json", nil, 0o644))
	}},
	{"rename a directory to a parent that is missing", func() error {
		return must(os.Mkdir("claude", 0o755), os.WriteFile("claude/settings.json", nil, 0o644), unix.Rename("claude", ".claude"))
	}},
	{"link a parent that is missing", func() error { return must(os.Mkdir("real", 0o755), os.Symlink("real", ".claude")) }},
	{"make all of it", func() error { return must(os.MkdirAll("a/b", 0o755), os.WriteFile("a/b/c", nil, 0o644)) }},
	{"replace the .git of a worktree", func() error { return os.WriteFile("worktree/.git", []byte("gitdir: ../evil\n"), 0o644) }},
	{"send git elsewhere", func() error { return os.WriteFile(".git/commondir", []byte("../src\n"), 0o644) }},
	{"rename a worktree", func() error { return unix.Rename("worktree", "worktree2") }},
}

// forbidden need a right that nobody inside has, protected or not.
var forbidden = []func() error{
	func() error { return unix.Mount("none", ".git/hooks", "tmpfs", 0, "") },
	func() error { return unix.Mount("src", ".git", "", unix.MS_BIND, "") },
	func() error { return unix.Mount("", ".git/config", "", unix.MS_REMOUNT|unix.MS_BIND, "") },
	func() error { return unix.Unmount(".git/config", unix.MNT_DETACH) },
	func() error {
		return unix.MountSetattr(unix.AT_FDCWD, ".git/config", 0, &unix.MountAttr{Attr_clr: unix.MOUNT_ATTR_RDONLY})
	},
	func() error {
		_, err := unix.OpenTree(unix.AT_FDCWD, ".git", unix.OPEN_TREE_CLONE)
		return err
	},
	func() error { return unix.Unshare(unix.CLONE_NEWNS) },
}

// ordinary is what git does all day.
func ordinary() error {
	return must(
		os.MkdirAll(".git/objects/ab", 0o755), os.WriteFile(".git/objects/ab/tmp", []byte("o"), 0o444), os.Rename(".git/objects/ab/tmp", ".git/objects/ab/cdef"),
		os.WriteFile(".git/index.lock", []byte("i2"), 0o644), os.Rename(".git/index.lock", ".git/index"),
		os.WriteFile(".git/refs/heads/main.lock", []byte("2"), 0o644), os.Rename(".git/refs/heads/main.lock", ".git/refs/heads/main"),
		os.WriteFile(".git/HEAD.lock", []byte("ref: refs/heads/other\n"), 0o644), os.Rename(".git/HEAD.lock", ".git/HEAD"),
		os.WriteFile("src/main.go", []byte("package other\n"), 0o644), os.Rename("src/main.go", "src/other.go"), os.Rename("src/other.go", "src/main.go"),
	)
}

func opens(name string, flags int) error {
	f, err := os.OpenFile(name, flags, 0o644)
	if err == nil {
		f.Close()
	}
	return err
}

// attackEnv has the test binary try things inside: in namespaces of its own, without capabilities. It names the attempt;
// what came of it is the output.
const attackEnv = "STOCKADE_WORKSPACE_ATTACK"

type verdict struct{ Name, Err string }

func attack() {
	err := os.Chdir(mnt)
	var out []verdict
	tell := func(name string, err error) {
		v := verdict{Name: name}
		if err != nil {
			v.Err = err.Error()
		}
		out = append(out, v)
	}
	// Of this thread, which the rest runs on: a session's executions have none.
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	if err = must(err, unix.Capset(&header, &none[0])); err != nil {
		tell("prepare", err)
	}
	if name := os.Getenv(attackEnv); name == "ordinary" {
		tell(name, ordinary())
	} else if name == "forbidden" {
		for i, do := range forbidden {
			tell(fmt.Sprint("forbidden ", i), do())
		}
	} else {
		for _, a := range attempts {
			if a.name == name || name == "all" {
				tell(a.name, a.do())
			}
		}
	}
	_ = json.NewEncoder(os.Stdout).Encode(out)
}

// try has somebody inside try something: who has the given uid there.
func try(t *testing.T, ns *os.File, uid int, what string) (out []verdict) {
	t.Helper()
	var stdout, stderr strings.Builder
	err := thread.Enter(ns, func() error {
		base := int(owner.UID) - 1000
		cmd := exec.Command("/proc/self/exe")
		cmd.Env = append(os.Environ(), attackEnv+"="+what)
		cmd.Dir, cmd.Stdout, cmd.Stderr = "/", &stdout, &stderr
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: base, Size: sandbox.IDs}},
			GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: base, Size: sandbox.IDs}},
			Credential:  &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)},
		}
		return cmd.Run()
	})
	if err == nil {
		err = json.Unmarshal([]byte(stdout.String()), &out)
	}
	if err != nil {
		t.Fatalf("%v\n%s%s", err, stdout.String(), stderr.String())
	}
	return out
}

// guardedTree is a project in one of the ways in which a session has it.
type guardedTree struct {
	tree   *os.File
	guards Guards
	dir    string
	free   func() error
}

// kinds are the ways to have a directory that can be written to.
var kinds = []struct {
	name string
	make func(t *testing.T, dir string, protected []string) guardedTree
}{
	{"shared", func(t *testing.T, dir string, protected []string) guardedTree {
		g := guardedTree{tree: detached(t, dir, false), dir: dir, free: func() error { return nil }}
		if protected == nil {
			return g
		}
		p := placeholders(t, filepath.Join(t.TempDir(), "placeholders"))
		reserve := &Reservation{Placeholders: p, Session: "s", Caller: owner.caller(), Source: sandbox.Source{Path: dir}}
		var err error
		if g.tree, g.guards, err = Protect(g.tree, Protection{Paths: protected, Owner: owner, Place: mnt, Reserve: reserve}); err != nil {
			t.Fatal(err)
		}
		g.free = func() error { return p.Release("s") }
		return g
	}},
	{"overlay", func(t *testing.T, dir string, protected []string) guardedTree {
		b := newBox(t, dir, func(o *Options) { o.Protected = protected })
		return guardedTree{tree: b.Tree, guards: b.Guards, dir: dir, free: func() error { return nil }}
	}},
	{"overlay by name", func(t *testing.T, dir string, protected []string) guardedTree {
		layersByDescriptor = false
		defer func() { layersByDescriptor = true }()
		b := newBox(t, dir, func(o *Options) { o.Protected = protected })
		return guardedTree{tree: b.Tree, guards: b.Guards, dir: dir, free: func() error { return nil }}
	}},
}

func placeholders(t testing.TB, dir string) *Placeholders {
	t.Helper()
	p, err := OpenPlaceholders(dir, func(s sandbox.Source) (*os.File, error) {
		fd, err := unix.Open(s.Path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		return os.NewFile(uintptr(fd), s.Path), err
	})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// T144, T076: sessions that open together, and end together, on one directory reserve each path once, for all of them.
func TestReservedTogether(t *testing.T) {
	needRoot(t)
	const sessions, rounds = 8, 20
	dir := sourceDir(t, nil)
	p := placeholders(t, filepath.Join(t.TempDir(), "remembered"))
	paths := []string{".envrc", ".git/config", ".git/hooks", ".vscode", ".mcp.json", ".claude/settings.json", ".idea", ".x.json"}
	var all sync.WaitGroup
	for i := range sessions {
		all.Go(func() {
			for n := range rounds {
				// Other paths each time: a number that is free again comes to be another path's.
				missing := slices.DeleteFunc(slices.Clone(paths), func(string) bool { return rand.IntN(2) == 0 })
				reserve := &Reservation{Placeholders: p, Session: fmt.Sprintf("s%d-%d", i, n), Caller: owner.caller(), Source: sandbox.Source{Path: dir}}
				fd, err := unix.OpenTree(unix.AT_FDCWD, dir, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
				if err != nil {
					t.Error(err)
					return
				}
				tree, _, err := Protect(os.NewFile(uintptr(fd), dir), Protection{Paths: missing, Owner: owner, Place: mnt, Reserve: reserve})
				if err != nil {
					t.Errorf("%s: %v", reserve.Session, err)
				} else {
					tree.Close()
				}
				if err := p.Release(reserve.Session); err != nil {
					t.Errorf("%s: %v", reserve.Session, err)
				}
			}
		})
	}
	all.Wait()
	if left := content(t, dir); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

// What was looked at may have gone since, and its number be another's already: that one is not shared in its place.
func TestNumberOfAnother(t *testing.T) {
	for _, path := range []string{".envrc", ".vscode"} {
		p := placeholders(t, filepath.Join(t.TempDir(), "remembered"))
		one, other := Reservation{Placeholders: p, Session: "one"}, Reservation{Placeholders: p, Session: "other"}
		st := unix.Stat_t{Dev: 1, Ino: 7}
		seen := one.seen() // and .envrc is looked at
		if err := other.made(path, "temporary", false, st); err != nil {
			t.Fatal(err)
		}
		if same, err := one.share(".envrc", st, seen); same || err != nil || len(p.held["one"]) > 0 {
			t.Errorf("%s made since, of the same number: same %v, %v, held %d", path, same, err, len(p.held["one"]))
		}
		if same, err := one.share(".envrc", st, one.seen()); !same || err != nil || len(p.held["one"]) != 1 {
			t.Errorf("looked at again: same %v, %v, held %d", same, err, len(p.held["one"]))
		}
	}
}

// T013: where mounts are shared with everybody, as under systemd, the guards of a session stay its own.
func TestSharedHost(t *testing.T) {
	needRoot(t)
	err := thread.Apart(func() error {
		host, err := Tmpfs("host", 1<<20, 100, "0777", 0)
		if err != nil {
			return err
		}
		defer host.Close()
		if err := must(mountAt(host, mnt), unix.Mount("", mnt, "", unix.MS_SHARED, "")); err != nil {
			return err
		}
		fd, err := unix.OpenTree(unix.AT_FDCWD, mnt, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
		if err != nil {
			return err
		}
		tree, guards, err := Protect(os.NewFile(uintptr(fd), mnt), Protection{Paths: []string{".envrc"}, Owner: owner, Place: mnt})
		if err != nil {
			return err
		}
		guards.Close()
		tree.Close()
		mounts, err := os.ReadFile("/proc/thread-self/mountinfo")
		if err == nil && strings.Contains(string(mounts), mnt+"/.envrc ") {
			t.Errorf("the host has a guard:\n%s", mounts)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// T144, CVE-2026-25725: what is protected is not written, created, replaced, moved or reached another way, by the
// session's identity or by root inside. Without the protection the same attempts succeed.
func TestProtected(t *testing.T) {
	needRoot(t)
	for _, kind := range kinds {
		t.Run(kind.name, func(t *testing.T) {
			for _, uid := range []int{1000, 0} {
				dir := sourceDir(t, project)
				if uid == 0 { // to whom the files belong, then
					owner.UID, owner.GID = owner.UID-1000, owner.GID-1000
					if err := chownAll(dir); err != nil {
						t.Fatal(err)
					}
				}
				g := kind.make(t, dir, protected)
				before := content(t, dir)
				if uid == 0 {
					owner.UID, owner.GID = owner.UID+1000, owner.GID+1000
				}
				session(t, g.tree, func(ns *os.File) {
					for _, v := range try(t, ns, uid, "ordinary") {
						if v.Err != "" {
							t.Errorf("uid %d: %s: %s", uid, v.Name, v.Err)
						}
					}
					for _, v := range try(t, ns, uid, "all") {
						if v.Err == "" {
							t.Errorf("uid %d: %s succeeded", uid, v.Name)
						}
					}
					for _, v := range try(t, ns, uid, "forbidden") {
						if !strings.Contains(v.Err, "operation not permitted") {
							t.Errorf("uid %d: %s: %q", uid, v.Name, v.Err)
						}
					}
				})
				after := content(t, dir)
				for _, line := range before {
					for _, p := range append([]string{".claude", "a", "worktree/.git"}, protected...) {
						if name, _, _ := strings.Cut(line, " "); within(strings.TrimSuffix(name, "/"), p) && !slices.Contains(after, line) {
							t.Errorf("uid %d: %q is gone", uid, line)
						}
					}
				}
				if err := g.free(); err != nil {
					t.Fatal(err)
				}
				for _, name := range []string{".mcp.json", ".claude", "a", ".git/commondir"} {
					if _, err := os.Lstat(filepath.Join(dir, name)); !errors.Is(err, os.ErrNotExist) {
						t.Errorf("placeholder %s is left: %v", name, err)
					}
				}
			}
		})
		t.Run(kind.name+", not protected", func(t *testing.T) {
			for _, a := range attempts {
				session(t, kind.make(t, sourceDir(t, project), nil).tree, func(ns *os.File) {
					for _, v := range try(t, ns, 1000, a.name) {
						// Directories below an overlay cannot be renamed anyway; before Linux 6.6 its files
						// have no attributes of users', and before 6.1 has none without a name.
						if v.Err != "" && !(kind.name != "shared" && (strings.Contains(v.Err, "cross-device") || strings.Contains(v.Err, "not supported"))) {
							t.Errorf("%s: %s", a.name, v.Err)
						}
					}
				})
			}
		})
	}
}

// What cannot be protected is refused: no way is left to say that it is.
func TestUnprotectable(t *testing.T) {
	needRoot(t)
	for _, c := range []struct{ name, path string }{
		{"a symbolic link", "link"}, {"below a symbolic link", "linkdir/x"}, {"a link that leads nowhere", "dangling"}, {"a FIFO", "fifo"}, {"a file with another name", "twice"},
		{"in a directory that is not the caller's", "theirs/new"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := sourceDir(t, map[string]string{"file": "", "link": "->file", "linkdir": "->dir", "dangling": "->x", "dir/": "", "twice": "t", "theirs/": ""})
			at := func(name string) string { return filepath.Join(dir, name) }
			if err := must(unix.Mkfifo(at("fifo"), 0o600), os.Link(at("twice"), at("second")), os.Chown(at("theirs"), 0, 0)); err != nil {
				t.Fatal(err)
			}
			p := placeholders(t, filepath.Join(t.TempDir(), "placeholders"))
			before := content(t, dir)
			tree := detached(t, dir, false)
			defer tree.Close()
			_, _, err := Protect(tree, Protection{Paths: []string{".mcp.json", c.path}, Owner: owner, Place: mnt,
				Reserve: &Reservation{Placeholders: p, Session: "s", Caller: owner.caller(), Source: sandbox.Source{Path: dir}}})
			if codeOf(err) != sandbox.CodeProtected {
				t.Errorf("%v", err)
			}
			if err := p.Release("s"); err != nil {
				t.Error(err)
			}
			equal(t, "the directory", content(t, dir), before)
		})
	}
}

// A placeholder is removed by the last session that needs it, or by the runner that comes after one that was killed; never if it is
// something else by then.
func TestPlaceholders(t *testing.T) {
	dir := sourceDir(t, project)
	state := filepath.Join(t.TempDir(), "placeholders")
	p := placeholders(t, state)
	reserve := func(session string, paths ...string) {
		t.Helper()
		tree, guards, err := Protect(detached(t, dir, false), Protection{Paths: paths, Owner: owner, Place: mnt,
			Reserve: &Reservation{Placeholders: p, Session: session, Caller: owner.caller(), Source: sandbox.Source{Path: dir}}})
		if err != nil {
			t.Fatal(err)
		}
		guards.Close()
		tree.Close()
	}
	there := func(want ...string) {
		t.Helper()
		var got []string
		for _, name := range []string{".mcp.json", ".claude", ".claude/settings.json", "x"} {
			if _, err := os.Lstat(filepath.Join(dir, name)); err == nil {
				got = append(got, name)
			}
		}
		equal(t, "there", got, want)
	}
	release := func(session string) {
		t.Helper()
		if err := p.Release(session); err != nil {
			t.Error(err)
		}
	}
	reserve("one", ".mcp.json", ".claude")
	reserve("two", ".mcp.json", ".claude/settings.json")
	there(".mcp.json", ".claude", ".claude/settings.json")
	release("one")
	there(".mcp.json", ".claude", ".claude/settings.json")
	release("two")
	there()

	// Somebody outside removes one, as git clean does, and the next session's has its number: to each session its own.
	for _, c := range []struct{ path, first, last string }{{".mcp.json", "one", "two"}, {".mcp.json", "two", "one"}, {"x", "one", "two"}, {"x", "two", "one"}} {
		reserve("one", ".mcp.json")
		if err := os.Remove(filepath.Join(dir, ".mcp.json")); err != nil {
			t.Fatal(err)
		}
		reserve("two", c.path)
		p.held["one"][0].Ino = p.held["two"][0].Ino
		release(c.first)
		if c.first == "one" {
			there(c.path)
		} else {
			there()
		}
		release(c.last)
		there()
	}

	reserve("one", ".mcp.json", "x")
	if err := os.WriteFile(filepath.Join(dir, "x", "of the host"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	// As a runner does that was killed, and the next.
	temp := item(t, p, "two", dir)
	p = placeholders(t, state)
	there(".mcp.json", "x")
	if err := p.Sweep(); err != nil {
		t.Error(err)
	}
	there("x")
	if _, err := os.Lstat(temp); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is left: %v", temp, err)
	}
	if _, err := os.Lstat(state); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is left: %v", state, err)
	}
}

// A source that is never found keeps neither the end of its session nor the beginning of the next runner waiting, nor those who
// share with it what is elsewhere. What is in it goes when it is found.
func TestPlaceholdersHang(t *testing.T) {
	defer func(before time.Duration) { answering = before }(answering)
	answering = 100 * time.Millisecond
	hung, shared, state := sourceDir(t, nil), sourceDir(t, nil), filepath.Join(t.TempDir(), "placeholders")
	answer, looks := make(chan struct{}), make(chan struct{}, 100)
	hangs := false
	opened := func() *Placeholders {
		p := placeholders(t, state)
		found := p.open
		p.open = func(s sandbox.Source) (*os.File, error) {
			if hangs && s.Path == hung {
				looks <- struct{}{}
				<-answer
			}
			return found(s)
		}
		return p
	}
	p := opened()
	reserve := func(session, dir string) {
		t.Helper()
		tree, guards, err := Protect(detached(t, dir, false), Protection{Paths: []string{"reserved"}, Owner: owner, Place: mnt,
			Reserve: &Reservation{Placeholders: p, Session: session, Caller: owner.caller(), Source: sandbox.Source{Path: dir}}})
		if err != nil {
			t.Fatal(err)
		}
		guards.Close()
		tree.Close()
	}
	release := func(session string, want error) {
		t.Helper()
		begun := time.Now()
		if err := p.Release(session); !errors.Is(err, want) || time.Since(begun) > 5*time.Second {
			t.Errorf("%s, after %v: %v", session, time.Since(begun), err)
		}
	}
	reserve("one", hung)
	reserve("one", shared)
	hangs = true
	release("one", errHangs)
	reserve("two", shared)
	release("two", nil)
	if now := content(t, hung); len(now) != 1 {
		t.Errorf("in what does not answer: %q", now)
	}
	p = opened() // as the next runner
	if err := p.Sweep(); !errors.Is(err, errHangs) {
		t.Errorf("sweep: %v", err)
	}
	for i := range 2 * maxHanging {
		reserve(fmt.Sprint("more-", i), hung)
	}
	var all sync.WaitGroup
	for i := range 2 * maxHanging { // all at once
		all.Go(func() { release(fmt.Sprint("more-", i), errHangs) })
	}
	all.Wait()
	if len(looks) != 1+maxHanging { // the first is of the runner before
		t.Errorf("%d look at once, at most %d may", len(looks)-1, maxHanging)
	}
	close(answer)
	for range 1000 {
		if p.Hanging() == 0 {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	for _, dir := range []string{hung, shared, filepath.Dir(state)} {
		if left := content(t, dir); len(left) > 0 {
			t.Errorf("left: %q", left)
		}
	}
}

// The host replaces what is protected, as git does, or removes it. In a shared directory that takes the guards away, until they are
// renewed; in an overlay it does not.
func TestRenew(t *testing.T) {
	needRoot(t)
	replace := func(dir string) {
		t.Helper()
		at := func(name string) string { return filepath.Join(dir, name) }
		if err := must(os.WriteFile(at("new"), []byte("host"), 0o644), os.Rename(at("new"), at(".git/config")), os.RemoveAll(at(".git/hooks")), chownAll(dir)); err != nil {
			t.Fatal(err)
		}
	}
	write := func(ns *os.File) (out []bool) {
		for _, name := range []string{".git/config", ".git/hooks/x"} {
			_ = thread.Enter(ns, func() error {
				become()
				_ = os.Mkdir(filepath.Join(mnt, filepath.Dir(name)), 0o755)
				out = append(out, os.WriteFile(filepath.Join(mnt, name), []byte("inside"), 0o644) == nil)
				return nil
			})
		}
		return out
	}
	paths := []string{".git/config", ".git/hooks", ".claude/settings.json"}
	t.Run("overlay", func(t *testing.T) {
		dir := sourceDir(t, project)
		b := newBox(t, dir, func(o *Options) { o.Protected = paths })
		session(t, b.Tree, func(ns *os.File) {
			replace(dir)
			if got := write(ns); got[0] || got[1] {
				t.Errorf("written: %v", got)
			}
		})
	})
	for _, renewed := range []bool{true, false} {
		t.Run(fmt.Sprintf("shared, renewed %v", renewed), func(t *testing.T) {
			dir := sourceDir(t, project)
			p := placeholders(t, filepath.Join(t.TempDir(), "placeholders"))
			var st unix.Stat_t
			if err := unix.Stat(dir, &st); err != nil {
				t.Fatal(err)
			}
			protection := Protection{Paths: paths, Owner: owner, Place: mnt,
				Reserve: &Reservation{Placeholders: p, Session: "s", Caller: owner.caller(), Source: sandbox.Source{Path: dir, Dev: st.Dev, Ino: st.Ino}}}
			tree, guards, err := Protect(detached(t, dir, false), protection)
			if err != nil {
				t.Fatal(err)
			}
			defer tree.Close()
			defer guards.Close()
			session(t, tree, func(ns *os.File) {
				var root *os.File
				if err := thread.Enter(ns, func() error { root = openDir(t, "/"); return nil }); err != nil {
					t.Fatal(err)
				}
				replace(dir)
				if renewed {
					for range 2 { // the second finds nothing to do
						if err := protection.Renew(root, ns, mnt); err != nil {
							t.Fatal(err)
						}
					}
				}
				if got := write(ns); got[0] == renewed || got[1] == renewed {
					t.Errorf("written: %v", got)
				}
				if err := must(os.Remove(filepath.Join(dir, ".git/config")), os.Symlink("HEAD", filepath.Join(dir, ".git/config"))); err != nil {
					t.Fatal(err)
				}
				if err := protection.Renew(root, ns, mnt); codeOf(err) != sandbox.CodeProtected {
					t.Errorf("a symbolic link: %v", err)
				}
			})
			if err := p.Release("s"); err != nil {
				t.Error(err)
			}
		})
	}
}

// item leaves a placeholder as a kill leaves it between being made and being looked at.
func item(t *testing.T, p *Placeholders, session, dir string) string {
	t.Helper()
	r := &Reservation{Placeholders: p, Session: session, Caller: owner.caller(), Source: sandbox.Source{Path: dir}}
	temp := filepath.Join(dir, ".stockade-temp")
	if err := must(r.begin("later", ".stockade-temp", false), os.WriteFile(temp, nil, 0o644), os.Chown(temp, int(owner.UID), int(owner.GID))); err != nil {
		t.Fatal(err)
	}
	return temp
}

// swapping exchanges two names, over and over, until it is told to stop.
func swapping(a, b string) (stop func()) {
	var end atomic.Bool
	done := make(chan struct{})
	go func() {
		defer close(done)
		for !end.Load() {
			_ = unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE)
			runtime.Gosched()
		}
	}()
	return func() { end.Store(true); <-done }
}

// T009 T010: while a directory is protected, or committed to, somebody exchanges a parent for a symbolic link that leads
// out. Nothing is ever made, changed or removed outside.
func TestSwappedParents(t *testing.T) {
	outside := sourceDir(t, map[string]string{"sub/file": "canary", "sub/gone": "canary", "sub/tree/x": "canary"})
	canary := content(t, outside)
	dir := sourceDir(t, map[string]string{"dir/sub/file": "old", "dir/sub/gone": "g", "dir/sub/tree/x": "x"})
	if err := os.Symlink(outside, filepath.Join(dir, "other")); err != nil {
		t.Fatal(err)
	}
	parent, link := filepath.Join(dir, "dir"), filepath.Join(dir, "other")
	p := placeholders(t, filepath.Join(t.TempDir(), "placeholders"))
	n, conflicts, refused := 0, 0, 0
	for least, end := rounds(t), time.Now().Add(patience); n < least || (conflicts == 0 || conflicts == n || refused == 0 || refused == n) && time.Now().Before(end); n++ {
		// There is something to be committed each time: what was is put back, by nobody's overlay.
		err := must(os.WriteFile(filepath.Join(parent, "sub/file"), []byte("old"), 0), os.WriteFile(filepath.Join(parent, "sub/gone"), []byte("g"), 0o644), os.RemoveAll(filepath.Join(parent, "sub/link")),
			os.Chown(filepath.Join(parent, "sub/gone"), int(owner.UID), int(owner.GID)))
		if err != nil {
			t.Fatal(err)
		}
		b := newBox(t, dir, nil)
		b.act(t, func(at func(string) string) error {
			return must(os.WriteFile(at("dir/sub/file"), []byte("new"), 0), os.Remove(at("dir/sub/gone")), os.RemoveAll(at("dir/sub/tree")), os.Mkdir(at("dir/sub/tree"), 0o755),
				os.WriteFile(at("dir/sub/tree/y"), nil, 0o644), os.Symlink("x", at("dir/sub/link")))
		})
		stop := swapping(parent, link)
		if _, err := b.Commit(t.Context(), owner.caller(), b.source, nil, unnoted); err != nil {
			if codeOf(err) != sandbox.CodeConflict {
				t.Fatal(err)
			}
			conflicts++
		}
		tree := detached(t, dir, false)
		guarded, guards, err := Protect(tree, Protection{Paths: []string{"dir/sub/file", "dir/sub/missing/x"}, Owner: owner, Place: mnt,
			Reserve: &Reservation{Placeholders: p, Session: "s", Caller: owner.caller(), Source: sandbox.Source{Path: dir}}})
		switch code := codeOf(err); {
		case err == nil:
			guards.Close()
			guarded.Close()
		case code == sandbox.CodeProtected, code == sandbox.CodeSourceChanged, code == sandbox.CodeNotEnforced:
			tree.Close()
			refused++
		default:
			t.Fatal(err)
		}
		stop()
		b.close()
		_ = p.Release("s")
		if st, err := os.Lstat(parent); err != nil {
			t.Fatal(err)
		} else if !st.IsDir() {
			if err := unix.Renameat2(unix.AT_FDCWD, parent, unix.AT_FDCWD, link, unix.RENAME_EXCHANGE); err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Logf("%d rounds, %d conflicts, %d not protected", n, conflicts, refused)
	if conflicts == 0 || conflicts == n || refused == 0 || refused == n {
		t.Error("the race did not meet")
	}
	equal(t, "outside", content(t, outside), canary)
}

// What cannot be looked at is not gone: whoever is to remove it hears of it.
func TestRemoveUnseen(t *testing.T) {
	source, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	long := strings.Repeat("x", unix.NAME_MAX+1)
	for name, h := range map[string]placeholder{"object": {Path: long}, "its other name": {Path: "x", Temp: long}, "of a commit": {In: []byte("."), Temp: long}} {
		if err := h.remove(source); !errors.Is(err, unix.ENAMETOOLONG) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := (&placeholder{Path: "x/y", Temp: "z"}).remove(source); err != nil {
		t.Errorf("nothing there: %v", err)
	}
}

// What the kernel does not say of a directory is no answer: what it replaced would be seen again.
func TestOpaqueUnsaid(t *testing.T) {
	dir := openDir(t, t.TempDir())
	defer dir.Close()
	if opaque, err := isOpaque(dir); err == nil { // a descriptor that is for its place only
		t.Errorf("opaque %v, and the kernel has not been asked", opaque)
	}
	asked, err := os.Open(dir.Name())
	if err != nil {
		t.Fatal(err)
	}
	defer asked.Close()
	if opaque, err := isOpaque(asked); opaque || err != nil {
		t.Errorf("an ordinary directory: opaque %v, %v", opaque, err)
	}
}
