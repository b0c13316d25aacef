package runc

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/sandbox"
	"github.com/stockade-dev/stockade/sandbox/cgroup"
)

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

// stage builds the file system of a session, and no session, and calls fn with where it is.
func stage(r *Runner, spec sandbox.Spec, fn func(root string) error) error {
	const base = sandbox.FirstHostID
	l, err := r.gather(spec, base)
	if err != nil {
		return err
	}
	defer l.abandon()
	defer r.placeholders.Release(spec.Session)
	return apart(func() error {
		if err := l.build(r.place); err != nil {
			return err
		}
		return fn(r.place)
	})
}

// mountedAt are the places below root at which this thread sees mounts.
func mountedAt(root string) (targets []string, err error) {
	data, err := os.ReadFile("/proc/thread-self/mountinfo")
	for line := range strings.Lines(string(data)) {
		if target := unescape(strings.Fields(line)[4]); sandbox.Within(target, root) {
			targets = append(targets, strings.TrimPrefix(target, root))
		}
	}
	return targets, err
}

// TestDisks: whatever of the host's is attached counts to the disks that a ceiling of bytes per second is for, the
// system directories among it; what is in memory does not (T068, R053).
func TestDisks(t *testing.T) {
	r := newRunner(t)
	shared := sharedDir(t)
	write(t, filepath.Join(shared, "file"), "", 0o644, 0)
	src := source(t, r, sandbox.Caller{}, shared)
	host := hostSpec("disks")
	dir, paths, mounted := host, host, host
	dir.Root = sandbox.Root{Kind: sandbox.RootDir, Dir: &src}
	paths.Root = sandbox.Root{Kind: sandbox.RootPaths, Paths: []sandbox.Source{src}}
	mounted.Root = sandbox.Root{Kind: sandbox.RootPaths}
	mounted.Mounts = []sandbox.Mount{{Source: src, Target: "/work", ReadOnly: true}}
	for _, row := range []struct {
		name string
		spec sandbox.Spec
		on   string
	}{
		{"the host's directories", host, "/usr"},
		{"an unpacked root", dir, shared},
		{"declared paths", paths, shared},
		{"a mount", mounted, shared},
	} {
		l, err := r.gather(row.spec, sandbox.FirstHostID)
		if err != nil {
			t.Fatalf("%s: %v", row.name, err)
		}
		l.abandon()
		var st unix.Stat_t
		if err := unix.Stat(row.on, &st); err != nil || !slices.Contains(l.devices, st.Dev) {
			t.Errorf("%s: %x, without %x of %s: %v", row.name, l.devices, st.Dev, row.on, err)
		}
	}

	memory := mkdir(t, filepath.Join(t.TempDir(), "memory"), 0o755, 0)
	if err := unix.Mount("tmpfs", memory, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Unmount(memory, unix.MNT_DETACH) })
	var disk, none unix.Stat_t
	if err := errors.Join(unix.Stat("/usr", &disk), unix.Stat(memory, &none)); err != nil {
		t.Fatal(err)
	}
	if disks, err := disksOf([]uint64{disk.Dev, none.Dev}); err != nil || !slices.Equal(disks, []uint64{disk.Dev}) {
		t.Errorf("disks among %x and memory %x: %x %v", disk.Dev, none.Dev, disks, err)
	}
}

// TestIOCeiling: a session on the host's directories alone is held to the ceiling on their disk, or refused (T068, R053).
func TestIOCeiling(t *testing.T) {
	r := newRunner(t)
	spec := hostSpec("io")
	spec.Limits.IOBytesPerSecond = 1 << 20
	e, err := r.Open(t.Context(), spec)
	if layout, lerr := cgroup.Discover(cgroup.Options{}); lerr != nil || layout.IO() != nil {
		var refusal *sandbox.Error
		if lerr != nil || !errors.As(err, &refusal) || refusal.Code != sandbox.CodeUnsupported {
			t.Errorf("without an io controller on v2: %v, %v", err, lerr)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	defer closeSession(t, r, "io")
	if !slices.ContainsFunc(e.Ceilings, func(f sandbox.CgroupFile) bool {
		return f.File == "io.max" && strings.Contains(f.Value, "rbps=1048576 wbps=1048576")
	}) {
		t.Errorf("%+v", e.Ceilings)
	}
}

// TestSwappedTargets mounts below a directory of the caller's in which a parent of the place is, now and then, a symbolic
// link out of the sandbox. What is mounted is mounted where it belongs, or nothing is; nothing is made outside (T009, T010, T011).
func TestSwappedTargets(t *testing.T) {
	r := newRunner(t)
	shared := sharedDir(t)
	outside := mkdir(t, filepath.Join(shared, "outside"), 0o755, 0)
	work, input := mkdir(t, filepath.Join(shared, "work"), 0o755, 0), mkdir(t, filepath.Join(shared, "input"), 0o755, 0)
	mkdir(t, filepath.Join(work, "dir/place"), 0o755, 0)
	mkdir(t, filepath.Join(outside, "place"), 0o755, 0)
	for name, to := range map[string]string{"link": outside, "dangling": filepath.Join(outside, "made"), "up": "../../../.."} {
		if err := os.Symlink(to, filepath.Join(work, name)); err != nil {
			t.Fatal(err)
		}
	}
	with := func(target string) sandbox.Spec {
		spec := hostSpec("swap")
		spec.Mounts = []sandbox.Mount{{Source: source(t, r, spec.Caller, work), Target: "/work"}, {Source: source(t, r, spec.Caller, input), Target: target, ReadOnly: true}}
		return spec
	}
	for _, target := range []string{"/work/link/place", "/work/link", "/work/dangling", "/work/dangling/x", "/work/up/mnt", "/work/missing"} {
		if err := stage(r, with(target), func(string) error { return nil }); codeOf(err) != sandbox.CodeMountTarget {
			t.Errorf("%s: %v", target, err)
		}
	}
	spec := with("/work/dir/place")
	var end atomic.Bool
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for !end.Load() {
			_ = unix.Renameat2(unix.AT_FDCWD, filepath.Join(work, "dir"), unix.AT_FDCWD, filepath.Join(work, "link"), unix.RENAME_EXCHANGE)
			runtime.Gosched()
		}
	}()
	defer func() { end.Store(true); <-ended }()
	const patience = 2 * time.Minute // on a machine that others have
	n, refused := 0, 0
	for least, end := rounds(t), time.Now().Add(patience); n < least || (refused == 0 || refused == n) && time.Now().Before(end); n++ {
		err := stage(r, spec, func(root string) error {
			targets, err := mountedAt(root)
			for _, target := range targets {
				// The kernel shows a mount where its directory is now called: here, or by the name that it was given meanwhile.
				if strings.HasSuffix(target, "/place") && target != "/work/dir/place" && target != "/work/link/place" {
					t.Errorf("mounted at %s", target)
				}
			}
			return err
		})
		if err != nil {
			if codeOf(err) != sandbox.CodeMountTarget {
				t.Fatal(err)
			}
			refused++
		}
	}
	t.Logf("%d of %d refused", refused, n)
	if refused == 0 || refused == n {
		t.Error("the race did not meet")
	}
	if names, err := os.ReadDir(outside); err != nil || len(names) != 1 {
		t.Errorf("outside there is %v %v", names, err)
	}
}

// TestForgedRoot unpacks a root whose /dev, /proc, /sys and /tmp lead out or are files. None of them is used (T008, T012).
func TestForgedRoot(t *testing.T) {
	r := newRunner(t)
	shared := sharedDir(t)
	canary := mkdir(t, filepath.Join(shared, "canary"), 0o755, 0)
	write(t, filepath.Join(canary, "ptmx"), "canary", 0o644, 0)
	root := mkdir(t, filepath.Join(shared, "root"), 0o755, 0)
	write(t, filepath.Join(root, "sys"), "", 0o644, 0)
	for _, name := range []string{"dev", "proc", "tmp"} {
		if err := os.Symlink(canary, filepath.Join(root, name)); err != nil {
			t.Fatal(err)
		}
	}
	spec := hostSpec("forged")
	src := source(t, r, spec.Caller, root)
	spec.Root = sandbox.Root{Kind: sandbox.RootDir, Dir: &src}
	err := stage(r, spec, func(root string) error {
		for _, name := range ours {
			st, err := os.Lstat(root + name)
			if err != nil || !st.IsDir() {
				t.Errorf("%s: %v %v", name, st, err)
			}
			if _, err := os.Lstat(filepath.Join(root, name, "ptmx")); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the canary is in %s: %v", name, err)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(filepath.Join(canary, "ptmx")); err != nil || string(data) != "canary" {
		t.Errorf("canary: %q %v", data, err)
	}
}
