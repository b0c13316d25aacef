package workspace

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/internal/thread"
	"github.com/stockade-dev/stockade/sandbox"
)

func init() { runtime.LockOSThread() } // a thread that ends must not be the main one

func TestMain(m *testing.M) {
	if os.Getenv(attackEnv) != "" {
		attack()
		return
	}
	if dir := os.Getenv(commitEnv); dir != "" {
		commitForever(dir)
	}
	os.Exit(m.Run())
}

// The session's identity, in ids of the host. Its files have the same owner below, so that no mapping is needed.
var owner = Owner{sandbox.FirstHostID + 7*sandbox.IDs + 1000, sandbox.FirstHostID + 7*sandbox.IDs + 1000}

const mnt = "/mnt"

func needRoot(t testing.TB) {
	t.Helper()
	if os.Getuid() == 0 {
		return
	}
	if os.Getenv("STOCKADE_NOSKIP") == "1" {
		t.Fatal("needs root")
	}
	t.Skip("needs root: it mounts")
}

// patience is for what has to happen once, on a machine that others have.
const patience = 2 * time.Minute

// rounds is how many rounds of a race are run.
func rounds(t *testing.T) int {
	if os.Getenv("STOCKADE_ROUNDS") == "" {
		return 500
	}
	n, err := strconv.Atoi(os.Getenv("STOCKADE_ROUNDS"))
	if err != nil || n < 1 {
		t.Fatalf("STOCKADE_ROUNDS: %q", os.Getenv("STOCKADE_ROUNDS"))
	}
	return n
}

// sourceDir is a caller's directory with files in it: a name that ends in / is a directory, content that begins
// with -> a symbolic link.
func sourceDir(t testing.TB, files map[string]string) string {
	t.Helper()
	needRoot(t)
	dir, err := os.MkdirTemp("", "workspace-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	for _, name := range slices.Sorted(func(yield func(string) bool) {
		for name := range files {
			if !yield(name) {
				return
			}
		}
	}) {
		plant(t, filepath.Join(dir, name), files[name], strings.HasSuffix(name, "/"))
	}
	if err := chownAll(dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

func plant(t testing.TB, at, content string, dir bool) {
	t.Helper()
	err := os.MkdirAll(filepath.Dir(at), 0o755)
	to, link := strings.CutPrefix(content, "->")
	switch {
	case dir:
		err = errors.Join(err, os.MkdirAll(at, 0o755))
	case link:
		err = errors.Join(err, os.Symlink(to, at))
	default:
		err = errors.Join(err, os.WriteFile(at, []byte(content), 0o644))
	}
	if err != nil {
		t.Fatal(err)
	}
}

func chownAll(dir string) error {
	return filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		return errors.Join(err, os.Lchown(path, int(owner.UID), int(owner.GID)))
	})
}

func openDir(t testing.TB, path string) *os.File {
	t.Helper()
	fd, err := unix.Open(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), path)
	t.Cleanup(func() { f.Close() })
	return f
}

// detached is a mount of a directory, as the runner makes it.
func detached(t testing.TB, path string, readOnly bool) *os.File {
	t.Helper()
	tree, err := clone(openDir(t, path), 0)
	if err != nil {
		t.Fatal(err)
	}
	// The runner's own mounts are no peers of the host's: what is mounted on a clone of one stays there.
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV, Propagation: unix.MS_PRIVATE}
	if readOnly {
		attr.Attr_set |= unix.MOUNT_ATTR_RDONLY
	}
	if err := unix.MountSetattr(int(tree.Fd()), "", unix.AT_EMPTY_PATH, &attr); err != nil {
		t.Fatal(err)
	}
	return tree
}

// box is an overlay over a directory of the test's, and who would be inside.
type box struct {
	*Space
	Mounted
	dir    string
	source *os.File
}

func newBox(t testing.TB, dir string, change func(*Options)) *box {
	t.Helper()
	o := Options{Target: "/work", Size: sandbox.Overlay{Bytes: 16 << 20, Inodes: 1000}, Owner: owner, Place: mnt}
	if change != nil {
		change(&o)
	}
	space, mounted, err := Overlay(detached(t, dir, true), o)
	if err != nil {
		t.Fatal(err)
	}
	b := &box{space, mounted, dir, openDir(t, dir)}
	t.Cleanup(b.close)
	return b
}

func (b *box) close() {
	b.Mounted.Close()
	b.Space.Close()
	b.source.Close()
}

// act does something inside: with the overlay at mnt, as the session's identity.
func (b *box) act(t testing.TB, fn func(at func(string) string) error) {
	t.Helper()
	if err := inside(b.Tree, fn); err != nil {
		t.Fatal(err)
	}
}

// inside attaches a tree for as long as fn runs. Before Linux 6.15 nothing clones what is attached nowhere: so
// it is the tree that is attached, and the clone takes its place.
func inside(tree *os.File, fn func(at func(string) string) error) error {
	return thread.Apart(func() error {
		if err := mountAt(tree, mnt); err != nil {
			return err
		}
		top, err := clone(tree, unix.AT_RECURSIVE)
		if err != nil {
			return err
		}
		defer top.Close()
		if err := unix.Dup3(int(top.Fd()), int(tree.Fd()), unix.O_CLOEXEC); err != nil {
			return err
		}
		become()
		return fn(func(name string) string { return filepath.Join(mnt, name) })
	})
}

// session attaches a tree in a mount namespace, as the runner does in a session's, for as long as fn runs.
func session(t *testing.T, tree *os.File, fn func(ns *os.File)) {
	t.Helper()
	entered, end, done := make(chan *os.File), make(chan struct{}), make(chan error, 1)
	go func() {
		done <- thread.Apart(func() error {
			defer close(entered)
			if err := mountAt(tree, mnt); err != nil {
				return err
			}
			ns, err := os.Open("/proc/thread-self/ns/mnt")
			if err != nil {
				return err
			}
			defer ns.Close()
			entered <- ns
			<-end
			return nil
		})
	}()
	defer func() {
		close(end)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}()
	if ns := <-entered; ns != nil {
		fn(ns)
	}
}

// become takes the session's identity, for the rest of a thread.
func become() {
	for _, call := range []struct{ number, id uintptr }{{unix.SYS_SETFSGID, uintptr(owner.GID)}, {unix.SYS_SETFSUID, uintptr(owner.UID)}} {
		_, _, _ = unix.RawSyscall(call.number, call.id, 0, 0)
	}
}

func (b *box) changes(t testing.TB) []string {
	t.Helper()
	changes, more, err := b.Changes(context.Background(), "", 1<<20)
	if err != nil || more {
		t.Fatal(more, err)
	}
	return told(changes)
}

func told(changes []sandbox.Change) (out []string) {
	for _, c := range changes {
		line := fmt.Sprintf("%s %s %s", c.Kind, c.Type, c.Path)
		if c.Link != "" {
			line += " -> " + c.Link
		}
		out = append(out, line)
	}
	return out
}

// unnoted is for commits that nobody cleans up after.
func unnoted(string, string) error { return nil }

func (b *box) commit(t testing.TB, paths ...string) sandbox.Committed {
	t.Helper()
	c, err := b.Commit(context.Background(), owner.caller(), b.source, paths, unnoted)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func equal(t testing.TB, what string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s\ngot  %q\nwant %q", what, got, want)
	}
}

// content is what is in a directory, one line each.
func content(t testing.TB, dir string) (out []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		name, _ := filepath.Rel(dir, path)
		if err != nil || name == "." {
			return err
		}
		switch {
		case d.IsDir():
			name += "/"
		case d.Type() == fs.ModeSymlink:
			to, _ := os.Readlink(path)
			name += " -> " + to
		case d.Type().IsRegular():
			data, _ := os.ReadFile(path)
			name += " = " + string(data)
		default:
			name += " " + d.Type().String()
		}
		out = append(out, name)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func codeOf(err error) string {
	var e *sandbox.Error
	if errors.As(err, &e) {
		return e.Code
	}
	return fmt.Sprint(err)
}

// everyWay runs a test with layers by descriptor, and by name as older kernels need them.
func everyWay(t *testing.T, fn func(t *testing.T)) {
	t.Helper()
	needRoot(t)
	for name, by := range map[string]bool{"by descriptor": true, "by name": false} {
		t.Run(name, func(t *testing.T) {
			layersByDescriptor = by
			defer func() { layersByDescriptor = true }()
			fn(t)
		})
	}
}

// must is the first of several things that went wrong.
func must(errs ...error) error { return errors.Join(errs...) }
