package runc

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/sandbox"
)

// TestOutOfDescriptors lets an open run out of descriptors at its first, its second,
// … until there are enough. Nothing may be left of any try (T036, T073, T077). Control: with enough it opens; and the limit
// is in the way at twenty steps at least.
func TestOutOfDescriptors(t *testing.T) {
	r := newRunner(t)
	dir := mkdir(t, filepath.Join(sharedDir(t), "work"), 0o755, 0)
	spec := hostSpec("s")
	spec.Mounts = []sandbox.Mount{{Source: source(t, r, sandbox.Caller{}, dir), Target: "/work"}}
	open(t, r, spec) // makes and keeps the id mapping
	closeSession(t, r, "s")

	var usual unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &usual); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	highest := 0
	for _, e := range entries {
		n, _ := strconv.Atoi(e.Name())
		highest = max(highest, n)
	}
	// No gaps: the limit is on the number, not on how many there are.
	null, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	for {
		fd, err := unix.FcntlInt(null.Fd(), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd)
		if fd > highest {
			highest = fd
			break
		}
	}
	before := residueOf(t, r)
	defer unix.Setrlimit(unix.RLIMIT_NOFILE, &usual)
	failed := 0
	for n := highest + 1; ; n++ {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: uint64(n), Max: usual.Max}); err != nil {
			t.Fatal(err)
		}
		_, err := r.Open(context.Background(), spec)
		unix.Setrlimit(unix.RLIMIT_NOFILE, &usual)
		if err == nil {
			break
		}
		failed++
		before.mustLeaveNothing(t, r)
		if failed > 500 || t.Failed() {
			t.Fatalf("%d descriptors: %v", n-highest, err)
		}
	}
	closeSession(t, r, "s")
	before.mustLeaveNothing(t, r)
	if failed < 20 {
		t.Errorf("failed at %d steps only: the limit does not bite", failed)
	}
	t.Logf("failed at %d different numbers of descriptors", failed)
}
