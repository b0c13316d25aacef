package journal

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// R254, T191: on a real file system of 4 MiB that is full, new work is refused, what is under
// way can be recorded and everything can be read; it goes on when records are trimmed, and
// when others give room back; over restarts too.
func TestFullFileSystem(t *testing.T) {
	onTinyFileSystem(t, 4<<20, testFullFileSystem)
}

func testFullFileSystem(t *testing.T, mount string) {
	dir := filepath.Join(mount, "journal")
	opt := Options{SegmentBytes: 1 << 20}
	j := open(t, dir, opt)
	ctx := context.Background()
	n := 0
	// more appends or settles until the disk is full, and says how many.
	more := func(do func(context.Context, ...[]byte) (int64, error)) (count int) {
		t.Helper()
		for ; ; count++ {
			group := make([][]byte, 10)
			for i := range group {
				group[i] = record(n + i)
			}
			if _, err := do(ctx, group...); errors.Is(err, ErrFull) {
				return count
			} else if err != nil {
				t.Fatal(err)
			}
			n += len(group)
		}
	}
	full := func() {
		t.Helper()
		if more(j.Append) != 0 {
			t.Fatal("an append is refused, and the next is not")
		}
		expect(t, j, n)
		if r, err := Check(dir, verifiers(t, dir)); err != nil || r.Bad != nil || r.Records != int64(n) {
			t.Fatalf("check on a full disk: %+v, %v", r, err)
		}
	}
	if more(j.Append) == 0 {
		t.Fatal("nothing fits")
	}
	full()
	if _, err := j.Settle(ctx, record(n)); err != nil {
		t.Fatalf("settle on a full disk: %v", err)
	}
	n++
	if room := int64(more(j.Settle)) * 10 * framed(len(record(0))); room < j.opt.ReserveBytes/2 {
		t.Errorf("%d bytes were settled in a reserve of %d", room, j.opt.ReserveBytes)
	}
	full()

	// Records are trimmed.
	if _, err := j.Checkpoint(); err != nil && !errors.Is(err, ErrFull) {
		t.Fatal(err)
	}
	first, err := j.Trim(int64(n))
	if err != nil || first == 0 {
		t.Fatalf("trim: %d, %v", first, err)
	}
	if more(j.Append) == 0 {
		t.Error("trimmed, and nothing fits")
	}
	full()

	// Somebody else takes the last page, and a trim finds no room for its anchor.
	ballast := func() {
		t.Helper()
		f, err := os.Create(filepath.Join(mount, "ballast"))
		if err != nil {
			return // not even that
		}
		defer f.Close()
		for chunk := make([]byte, 4<<10); err == nil; _, err = f.Write(chunk) {
		}
	}
	ballast()
	if again, err := j.Trim(int64(n)); !errors.Is(err, ErrFull) || again != first {
		t.Errorf("trim without a page left: %d, %v", again, err)
	}
	full()
	if _, err := j.Settle(ctx, record(n)); err != nil {
		t.Errorf("settle without a page left: %v", err)
	}
	n++
	if err := j.Close(); err != nil && !errors.Is(err, ErrFull) {
		t.Fatal(err)
	}
	ballast() // what closing gave back
	j = open(t, dir, opt)
	full()
	if err := os.Remove(filepath.Join(mount, "ballast")); err != nil {
		t.Fatal(err)
	}
	if _, err := j.Trim(int64(n)); err != nil {
		t.Error(err)
	}
	if more(j.Append) == 0 {
		t.Error("there is room, and nothing fits")
	}
	full()
	if err := j.Close(); err != nil && !errors.Is(err, ErrFull) {
		t.Fatal(err)
	}
}

// onTinyFileSystem runs test with a tmpfs, in a child that has a mount namespace of its own:
// all threads of it see the mount, and nobody else does.
func onTinyFileSystem(t *testing.T, bytes int, test func(t *testing.T, mount string)) {
	t.Helper()
	const inChild = "JOURNAL_TINY_FILE_SYSTEM"
	if dir := os.Getenv(inChild); dir != "" {
		if err := unix.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d,mode=0700", bytes)); err != nil {
			t.Fatal(err)
		}
		defer unix.Unmount(dir, unix.MNT_DETACH)
		test(t, dir)
		return
	}
	child := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	child.Env = append(os.Environ(), inChild+"="+t.TempDir())
	child.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	out, err := child.CombinedOutput()
	if errors.Is(err, unix.EPERM) {
		if os.Getenv("STOCKADE_NOSKIP") == "1" {
			t.Fatal(err)
		}
		t.Skipf("a mount namespace needs CAP_SYS_ADMIN: %v", err)
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// T073: a moment without descriptors, in which the next segment is due, refuses what comes in it and
// is no failure of the storage: what comes later is taken.
func TestNoDescriptors(t *testing.T) {
	dir := fresh(t)
	j := open(t, dir, Options{SegmentBytes: 1 << 10, ReserveBytes: 1})
	var held []*os.File
	exhaust := func() (restore func()) {
		var before syscall.Rlimit
		if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(os.DevNull)
		if err != nil {
			t.Fatal(err)
		}
		less := before
		less.Cur = uint64(f.Fd()) // the lowest that is free is the first that is refused
		f.Close()
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &less); err != nil {
			t.Fatal(err)
		}
		for {
			f, err := os.Open(os.DevNull)
			if err != nil {
				break
			}
			held = append(held, f)
		}
		return func() {
			if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
				t.Fatal(err)
			}
			for _, f := range held {
				f.Close()
			}
			held = nil
		}
	}
	n, refused := 0, 0
	for round := range 20 {
		restore := exhaust()
		for range 10 {
			_, err := j.Append(t.Context(), record(n))
			if err == nil {
				n++
				continue
			}
			refused++
			if errors.Is(err, ErrFailed) || !errors.Is(err, syscall.EMFILE) {
				restore()
				t.Fatalf("record %d: %v", n, err)
			}
		}
		restore()
		if _, err := j.Append(t.Context(), record(n)); err != nil {
			t.Fatalf("round %d, afterwards: %v", round, err)
		}
		n++
	}
	if refused == 0 {
		t.Error("nothing was refused: the test tests nothing")
	}
	expect(t, j, n)
}
