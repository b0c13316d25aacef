package cgroup_test

import (
	"errors"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/sandbox/cgroup"
)

// R079: a frozen leaf stands still, a frozen session all of them, and each goes on when neither
// it nor its session is frozen.
func TestFreeze(t *testing.T) {
	tree := open(t)
	s := create(t, tree, "s1", limits)
	leaf := func() *cgroup.Leaf {
		l, err := s.Leaf()
		if err != nil {
			t.Fatal(err)
		}
		busy := exec.Command("/bin/sh", "-c", "while :; do :; done")
		busy.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(l.FD().Fd())}
		if err := busy.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			busy.Process.Kill()
			busy.Wait()
		})
		return l
	}
	one, two := leaf(), leaf()
	runs := func(l *cgroup.Leaf) bool {
		var used [2]time.Duration
		for i := range used {
			time.Sleep(50 * time.Millisecond)
			u, err := l.Usage()
			if err != nil {
				t.Fatal(err)
			}
			used[i] = u.CPU
		}
		return used[0] != used[1]
	}
	// A busy machine may not come to it at once.
	comesToRun := func(l *cgroup.Leaf) bool {
		for range 100 {
			if runs(l) {
				return true
			}
		}
		return false
	}
	for _, step := range []struct {
		what     string
		do       func() error
		one, two bool
	}{
		{"start", func() error { return nil }, true, true},
		{"freeze one", func() error { return one.Freeze(t.Context(), true) }, false, true},
		{"freeze all", func() error { return s.Freeze(t.Context(), true) }, false, false},
		{"thaw one", func() error { return one.Freeze(t.Context(), false) }, false, false},
		{"thaw all", func() error { return s.Freeze(t.Context(), false) }, true, true},
		{"freeze one again", func() error { return one.Freeze(t.Context(), true) }, false, true},
		{"thaw all again", func() error { return s.Freeze(t.Context(), false) }, false, true},
	} {
		if err := step.do(); err != nil {
			t.Fatalf("%s: %v", step.what, err)
		}
		for _, l := range []struct {
			leaf *cgroup.Leaf
			runs bool
		}{{one, step.one}, {two, step.two}} {
			if l.runs && !comesToRun(l.leaf) || !l.runs && runs(l.leaf) {
				t.Errorf("%s: leaf %s does not as it should (runs: %v)", step.what, l.leaf.Name(), l.runs)
			}
		}
	}
	if l, err := s.Load(); err != nil || l.MemoryBytes < 0 || l.PIDs < 0 {
		t.Errorf("%+v, %v", l, err)
	}
	for _, l := range []*cgroup.Leaf{one, two} { // one of them frozen
		if err := l.Clear(t.Context()); err != nil {
			t.Error(err)
		}
		if err := l.Freeze(t.Context(), true); err != nil {
			t.Errorf("a leaf that is gone stands still: %v", err)
		}
	}
}

// A leaf is cleared while processes are being born in it: all that are die, and then nobody
// can be any more.
func TestClear(t *testing.T) {
	tree := open(t)
	s := create(t, tree, "s1", limits)
	for range 20 {
		leaf, err := s.Leaf()
		if err != nil {
			t.Fatal(err)
		}
		fd, err := unix.FcntlInt(leaf.FD().Fd(), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		var all sync.WaitGroup
		refused := make(chan error, 1)
		all.Go(func() {
			for {
				cmd := exec.Command("/bin/sleep", "60")
				cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: fd}
				if err := cmd.Start(); err != nil {
					refused <- err
					return
				}
				all.Go(func() { cmd.Wait() })
			}
		})
		time.Sleep(2 * time.Millisecond)
		err = leaf.Clear(t.Context())
		if err != nil {
			t.Errorf("clear: %v", err)
		}
		if err := <-refused; !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ENODEV) {
			t.Errorf("born later: %v", err)
		}
		all.Wait() // none of them sleeps
		os.NewFile(uintptr(fd), "leaf").Close()
	}
}
