package cgroup_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/sandbox"
	"github.com/stockade-dev/stockade/sandbox/cgroup"
)

// The spawner clones from its main thread, as init does.
func init() {
	if os.Getenv("CGROUP_TEST_ROLE") == "spawner" {
		runtime.LockOSThread()
	}
	roles["spawner"] = spawner
}

// spawner is like init: it has made its threads, clones commands into the group of descriptor 3 until
// it cannot, and says how many there were. Then it needs threads that it has not: a runtime that gets
// none ends the process.
func spawner() error {
	if err := threads(4); err != nil {
		return err
	}
	if os.Getenv("CGROUP_TEST_REPLACED") == "" {
		return bomb()
	}
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		name := [16]byte{'s', 'p', 'a', 'w', 'n', 'e', 'r'}
		if err := unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(&name)), 0, 0, 0); err != nil {
			done <- err
			return
		}
		done <- bomb()
	}()
	return <-done
}

func bomb() error {
	fmt.Println("ready")
	io.Copy(io.Discard, os.Stdin)
	attr := &syscall.ProcAttr{Sys: &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: 3}}
	n := 0
	for ; n < 1000; n++ {
		_, err := syscall.ForkExec("/bin/sleep", []string{"sleep", "60"}, attr)
		if err != nil {
			break
		}
	}
	fmt.Println(n)
	if err := threads(8); err != nil {
		return err
	}
	fmt.Println("alive")
	return nil
}

// threads holds so many at once.
func threads(n int) error {
	var held, done sync.WaitGroup
	held.Add(n)
	release := make(chan struct{})
	for range n {
		done.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			held.Done()
			<-release
		})
	}
	held.Wait()
	close(release)
	done.Wait()
	return nil
}

// spawn stands a spawner up as the session's init.
func spawn(t *testing.T, s *cgroup.Session, leaf *cgroup.Leaf) (*exec.Cmd, io.Closer) {
	t.Helper()
	cmd := role("spawner")
	cmd.Env = append(os.Environ(), "CGROUP_TEST_ROLE=spawner", "GOMAXPROCS=2", "GOTRACEBACK=none")
	cmd.ExtraFiles = []*os.File{leaf.FD()}
	told := begin(t, cmd)
	if err := errors.Join(s.JoinRoot(cmd.Process.Pid), s.JoinInit(cmd.Process.Pid)); err != nil {
		t.Fatal(err)
	}
	return cmd, told
}

// T059 T060 R053: executions have exactly the processes that they were granted, whatever init's own threads are; the
// kernel counts what it refuses; and init gets threads while they have all of theirs. The controls have the thread that clones
// where the rest of init is, on v1: then a fork bomb takes init's threads, and ends it.
func TestForkBomb(t *testing.T) {
	for _, row := range []struct {
		name     string
		spawner  bool
		replaced bool // by another thread than the main one
	}{{"spawner joined", true, false}, {"spawner replaced", true, true}, {"control", false, false}, {"control, replaced", false, true}} {
		t.Run(row.name, func(t *testing.T) {
			tree := open(t)
			if !row.spawner && tree.Layout() == "v2" {
				return // there a command is born where its leaf is
			}
			s := create(t, tree, "bomb", limits)
			// The leaf comes before JoinInit, and the ceiling of all executions with that.
			leaf, err := s.Leaf()
			if err != nil {
				t.Fatal(err)
			}
			if row.replaced {
				t.Setenv("CGROUP_TEST_REPLACED", "1")
			}
			cmd, told := spawn(t, s, leaf)
			if row.spawner || row.replaced {
				if err := s.JoinSpawner(cmd.Process.Pid); err != nil {
					t.Fatal(err)
				}
			}
			if row.spawner && row.replaced {
				if err := s.ReplaceSpawner(cmd.Process.Pid, "nobody"); err == nil && tree.Layout() != "v2" {
					t.Error("replaced by nobody")
				}
				if err := s.ReplaceSpawner(cmd.Process.Pid, "spawner"); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := s.Files(); err != nil {
				t.Fatal(err)
			}
			before, err := s.Events()
			if err != nil {
				t.Fatal(err)
			}
			told.Close()
			out := cmd.Stdout.(*lines)
			n, err := strconv.Atoi(out.next(t))
			if err != nil {
				t.Fatal(err)
			}
			last, _ := out.r.ReadString('\n')
			hits, err := leaf.Hits(before)
			if err != nil {
				t.Fatal(err)
			}
			if !row.spawner {
				if n <= int(limits.PIDs) || strings.TrimSpace(last) == "alive" {
					t.Errorf("%d processes, and init %q: nothing that JoinSpawner would be needed for", n, last)
				}
				return
			}
			if n != int(limits.PIDs) {
				t.Errorf("%d processes, not %d", n, limits.PIDs)
			}
			if strings.TrimSpace(last) != "alive" {
				t.Errorf("init: %q", last)
			}
			if len(hits) != 1 || hits[0].Ceiling != sandbox.HitPIDs || hits[0].Scope != "session" || hits[0].Limit != limits.PIDs || hits[0].Count < 1 || hits[0].Peak != limits.PIDs {
				t.Errorf("hits %+v", hits)
			}
			if load, err := s.Load(); err != nil || load.PIDs < limits.PIDs {
				t.Errorf("load %+v, %v", load, err)
			}
		})
	}
}

// T022: whatever forks at its first instruction, all of it is where the session's is: 250 commands, each with a child
// before it does anything else.
func TestForkAtOnce(t *testing.T) {
	tree := open(t)
	l := limits
	l.PIDs, l.MemoryBytes = 1200, 512<<20
	s := create(t, tree, "race", l)
	stand(t, s)
	leaf, err := s.Leaf()
	if err != nil {
		t.Fatal(err)
	}
	spawner := exec.Command("/proc/self/exe")
	spawner.Env = append(os.Environ(), "CGROUP_TEST_ROLE=crowd")
	spawner.ExtraFiles = []*os.File{leaf.FD()}
	in := begin(t, spawner)
	if err := errors.Join(s.JoinV1(spawner.Process.Pid), s.JoinSpawner(spawner.Process.Pid)); err != nil {
		t.Fatal(err)
	}
	in.Close()
	spawner.Stdout.(*lines).next(t) // all are there
	var pids []string
	if data, err := os.ReadFile(s.Paths()[""] + "/x/" + leaf.Name() + "/cgroup.procs"); err != nil {
		t.Fatal(err)
	} else if pids = strings.Fields(string(data)); len(pids) != 500 {
		t.Errorf("%d processes in the leaf, not 500", len(pids))
	}
	for controller, dir := range s.Paths() {
		if controller == "" {
			continue
		}
		if controller == "pids" {
			dir += "/x"
		}
		data, err := os.ReadFile(dir + "/cgroup.procs")
		if err != nil {
			t.Fatal(err)
		}
		there := make(map[string]bool)
		for pid := range strings.FieldsSeq(string(data)) {
			there[pid] = true
		}
		for _, pid := range pids {
			if !there[pid] {
				t.Errorf("process %s is not in %s", pid, dir)
			}
		}
	}
	if err := leaf.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := leaf.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func init() {
	if os.Getenv("CGROUP_TEST_ROLE") == "crowd" {
		runtime.LockOSThread()
	}
	roles["crowd"] = func() error {
		fmt.Println("ready")
		io.Copy(io.Discard, os.Stdin)
		var r [2]int
		if err := unix.Pipe(r[:]); err != nil {
			return err
		}
		attr := &syscall.ProcAttr{Files: []uintptr{0, uintptr(r[1])}, Sys: &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: 3}}
		for range 250 {
			if _, err := syscall.ForkExec("/bin/sh", []string{"sh", "-c", "sleep 1000 & echo; exec sleep 1000"}, attr); err != nil {
				return err
			}
		}
		b := make([]byte, 1)
		for range 250 {
			if _, err := unix.Read(r[0], b); err != nil {
				return err
			}
		}
		fmt.Println("all")
		time.Sleep(time.Minute)
		return nil
	}
}

// T075: a host that lets no more groups be made is a refusal that leaves nothing in any hierarchy.
func TestNoMoreGroups(t *testing.T) {
	tree := open(t)
	s := create(t, tree, "s1", limits)
	stand(t, s)
	leaves, err := s.Leaf()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(tree.Dir()+"/cgroup.max.descendants", []byte("5"), 0); err != nil {
		t.Fatal(err)
	}
	if _, err := tree.Create("s2"); !errors.Is(err, unix.EAGAIN) {
		t.Errorf("a session: %v", err)
	}
	for _, dir := range named(t, "s2") {
		if strings.Contains(dir, fmt.Sprintf("-%d/", os.Getpid())) {
			t.Errorf("%s is left", dir)
		}
	}
	for range 2 {
		if _, err = s.LeafWith(sandbox.ExecLimits{MemoryBytes: 16 << 20, PIDs: 4}); err != nil {
			break
		}
	}
	if !errors.Is(err, unix.EAGAIN) {
		t.Errorf("an execution: %v", err)
	}
	if err := leaves.Remove(); err != nil {
		t.Error(err)
	}
}
