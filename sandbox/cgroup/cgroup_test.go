package cgroup_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/sandbox"
	"github.com/stockade-dev/stockade/sandbox/cgroup"
)

// A test that needs a process re-runs this binary as one.
func TestMain(m *testing.M) {
	if role := os.Getenv("CGROUP_TEST_ROLE"); role != "" {
		if err := roles[role](); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

var eaten [][]byte // so that it is not garbage

var roles = map[string]func() error{
	// wait lives until its standard input ends.
	"wait": func() error {
		fmt.Println("ready")
		io.Copy(io.Discard, os.Stdin)
		return nil
	},
	"where": where,
	// eat touches memory without end, or as many MiB as it is told, once told to.
	"eat": func() error {
		fmt.Println("ready")
		io.Copy(io.Discard, os.Stdin)
		most, _ := strconv.Atoi(os.Getenv("CGROUP_TEST_EAT"))
		for {
			if most > 0 && len(eaten) >= most {
				time.Sleep(time.Hour)
			}
			b := make([]byte, 1<<20)
			for i := 0; i < len(b); i += 4096 {
				b[i] = 1
			}
			eaten = append(eaten, b)
		}
	},
	// fork starts processes until it cannot, once told to.
	"fork": func() error {
		fmt.Println("ready")
		io.Copy(io.Discard, os.Stdin)
		for n := range 1000 {
			// The parent stays small: only children add up.
			if _, err := syscall.ForkExec("/bin/sleep", []string{"sleep", "60"}, nil); err != nil {
				fmt.Println(n, err)
				return nil
			}
		}
		return errors.New("1000 processes")
	},
	"v1":         pureV1,
	"delegation": delegation,
	"container":  container,
	// spawn clones a child into the group of descriptor 3.
	"spawn": func() error {
		cmd := role("where")
		cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: 3}
		out, err := cmd.Output()
		fmt.Print(string(out))
		return err
	},
}

// where prints its unified group, as its cgroup namespace shows it.
func where() error {
	data, err := os.ReadFile("/proc/self/cgroup")
	_, unified, _ := strings.Cut(string(data), "0::")
	fmt.Print(unified)
	return err
}

// pureV1 lives where the host has mounted no unified hierarchy.
func pureV1() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	if err := unix.Unmount("/sys/fs/cgroup/unified", 0); err != nil {
		return err
	}
	instance := fmt.Sprintf("test-v1-%d", os.Getpid())
	if _, err := cgroup.Open(instance, cgroup.Options{}); err == nil || !strings.Contains(err.Error(), "mount -t cgroup2") {
		return fmt.Errorf("without a unified hierarchy: %v", err)
	}
	dir := os.Getenv("CGROUP_TEST_DIR")
	tree, err := cgroup.Open(instance, cgroup.Options{Unified: dir})
	if err != nil {
		return err
	}
	if tree.Layout() != "v1" {
		return fmt.Errorf("layout %s", tree.Layout())
	}
	s, err := tree.Create("s1")
	if err != nil {
		return err
	}
	if err := s.Bound(limits); err != nil {
		return err
	}
	leaf, err := s.Leaf()
	if err != nil {
		return err
	}
	fd := leaf.FD()
	cmd := exec.Command("/bin/sleep", "60")
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(fd.Fd())}
	if err := cmd.Start(); err != nil {
		return err
	}
	fd.Close()
	if err := leaf.Kill(); err != nil {
		return err
	}
	if err := leaf.Wait(context.Background()); err != nil {
		return err
	}
	cmd.Wait()
	if err := errors.Join(leaf.Remove(), s.Remove(), tree.Close()); err != nil {
		return err
	}
	if _, err := os.Lstat(dir); !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("left %s: %v", dir, err)
	}
	return nil
}

// A pure v1 host: the Tree mounts the unified hierarchy for itself and takes it away again.
// Where the host has mounted one, that one is used.
func TestUnifiedOfOurOwn(t *testing.T) {
	tree := open(t)
	if tree.Layout() == "hybrid" {
		cmd := role("v1")
		cmd.Env = append(cmd.Env, "CGROUP_TEST_DIR="+t.TempDir()+"/unified")
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	}
	dir := t.TempDir()
	second, err := cgroup.Open(fmt.Sprintf("test-second-%d", os.Getpid()), cgroup.Options{Unified: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("mounted in spite of the host's: %v", err)
	}
}

// delegation is the life of a runner in a group of a certain kind: it is started in there,
// and says where it ended up.
func delegation() error {
	tree, err := cgroup.Open(fmt.Sprintf("test-delegation-%d", os.Getpid()), cgroup.Options{Parent: os.Getenv("CGROUP_TEST_PARENT")})
	if err != nil {
		fmt.Println("refused:", err)
		return nil
	}
	defer tree.Close()
	s, err := tree.Create("s1")
	if err != nil {
		return err
	}
	if err := s.Bound(limits); err != nil {
		return err
	}
	defer s.Remove()
	init := exec.Command("/bin/sleep", "60")
	if err := init.Start(); err != nil {
		return err
	}
	defer init.Wait()
	defer s.Kill()
	if err := errors.Join(s.JoinRoot(init.Process.Pid), s.JoinInit(init.Process.Pid)); err != nil {
		init.Process.Kill()
		return err
	}
	if _, _, err := s.Limits(); err != nil {
		return err
	}
	return where()
}

// container goes on as delegation where the own group is the root of what is to be seen.
func container() error {
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP); err != nil {
		return err
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	at := os.Getenv("CGROUP_TEST_MOUNT")
	if err := unix.Unmount(at, 0); err != nil {
		return err
	}
	if err := unix.Mount("cgroup2", at, "cgroup2", 0, ""); err != nil {
		return err
	}
	os.Setenv("CGROUP_TEST_ROLE", "delegation")
	return unix.Exec("/proc/self/exe", os.Args, os.Environ())
}

// On v2 the runner leaves the group that it builds upon, and takes along only whom it may;
// with the controllers on v1 it stays where it is.
func TestDelegation(t *testing.T) {
	layout := open(t).Layout()
	mount := map[string]string{"v2": "/sys/fs/cgroup", "hybrid": "/sys/fs/cgroup/unified"}[layout]
	for _, row := range []struct {
		name     string
		role     string
		stranger bool
		delegate bool
		parent   string
		v2       string // what the runner says there
	}{
		{"alone", "delegation", false, false, "", "/supervisor"},
		{"with a stranger", "delegation", true, false, "", "refused"},
		{"with a stranger, delegated", "delegation", true, true, "", "/supervisor"},
		{"container, alone", "container", false, false, "", "/supervisor"},
		{"container, with a stranger", "container", true, false, "", "refused"},
		{"container, with a stranger, delegated", "container", true, true, "", "/supervisor"},
		{"container, with a stranger, named", "container", true, false, "/", "/supervisor"},
	} {
		t.Run(row.name, func(t *testing.T) {
			if row.role == "container" && layout != "v2" {
				return // its v1 hierarchies would go on to show all
			}
			group := fmt.Sprintf("%s/stockade-test-own-%d", mount, os.Getpid())
			if err := os.Mkdir(group, 0o755); err != nil {
				t.Fatal(err)
			}
			defer func() {
				os.Remove(group + "/supervisor")
				if err := os.Remove(group); err != nil {
					t.Error(err)
				}
			}()
			if row.delegate {
				if err := unix.Setxattr(group, "trusted.delegate", []byte("1"), 0); err != nil {
					t.Fatal(err)
				}
			}
			fd, err := os.Open(group)
			if err != nil {
				t.Fatal(err)
			}
			defer fd.Close()
			inside := &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(fd.Fd())}
			if row.stranger {
				cmd, in := start(t, "wait", inside)
				defer cmd.Wait()
				defer in.Close()
			}
			cmd := role(row.role)
			cmd.Env = append(cmd.Env, "CGROUP_TEST_PARENT="+row.parent, "CGROUP_TEST_MOUNT="+mount)
			cmd.SysProcAttr = inside
			out, err := cmd.CombinedOutput()
			want := filepath.Base(group) + "\n"
			if layout == "v2" {
				want = row.v2
			}
			if err != nil || !strings.Contains(string(out), want) {
				t.Errorf("%v: %s, want %s", err, out, want)
			}
		})
	}
}

// T037: what the host offers is found by doing it, and leaves nothing.
func TestTry(t *testing.T) {
	needRoot(t)
	h, err := cgroup.Discover(cgroup.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if len(h.Missing) > 0 || h.Version["memory"] == "" {
		t.Errorf("controllers %v, missing %v", h.Version, h.Missing)
	}
	if tried := h.Try(); tried.Kill != nil || tried.Clone != nil || tried.Ceilings != nil || tried.Devices != nil || !strings.HasPrefix(tried.How, "bpf") {
		t.Errorf("%+v", tried)
	}
	nothingLeft(t, fmt.Sprintf("stockade-try-%d", os.Getpid()))
}

func role(name string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), "CGROUP_TEST_ROLE="+name, "GOMAXPROCS=1")
	return cmd
}

var limits = sandbox.Limits{MemoryBytes: 64 << 20, CPUMillis: 1500, PIDs: 32, Files: 64}

// R014 R053 R086 C18: every ceiling that was asked for is in force before a process is in,
// and what the kernel holds is what the evidence says.
func TestCreateReadsBack(t *testing.T) {
	tree := open(t)
	s := create(t, tree, "s1", sandbox.Limits{MemoryBytes: 64<<20 + 5, CPUMillis: 1500, PIDs: 32, Files: 64})
	stand(t, s)
	got, swap, err := s.Limits()
	if err != nil {
		t.Fatal(err)
	}
	if want := (sandbox.Limits{MemoryBytes: 64 << 20, CPUMillis: 1500, PIDs: 32}); got != want || swap != 0 {
		t.Errorf("got %+v and %d bytes of swap, want %+v and none", got, swap, want)
	}

	// The evidence is the kernel's word, not ours: change what the kernel holds.
	for controller, dir := range s.Paths() {
		if controller == "pids" || controller == "" && tree.Layout() == "v2" {
			if err := os.WriteFile(dir+"/pids.max", []byte("1000"), 0); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, _, err := s.Limits(); err == nil {
		t.Error("a loosened ceiling reads back as in force")
	}
}

// R015 T077: a step of the making that fails leaves nothing.
func TestCreateFails(t *testing.T) {
	tree := open(t)
	s, err := tree.Create("bad")
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.Limits(); err == nil {
		t.Error("groups without ceilings read back as if they had some")
	}
	if err := s.Bound(sandbox.Limits{MemoryBytes: 64 << 20, CPUMillis: 0, PIDs: 1}); err == nil {
		t.Error("a quota of nothing was accepted")
	}
	if err := s.Remove(); err != nil {
		t.Fatal(err)
	}
	create(t, tree, "bad", limits) // the name is free

	if _, err := tree.Create("bad"); !errors.Is(err, os.ErrExist) {
		t.Errorf("the same name twice: %v", err)
	}
	for _, name := range []string{"", ".", "..", "a/b"} {
		if _, err := tree.Create(name); err == nil {
			t.Errorf("%q was accepted", name)
		}
		if _, err := cgroup.Open(name, cgroup.Options{}); err == nil {
			t.Errorf("instance %q was accepted", name)
		}
	}
}

// R241 T079 T022: a process that joins is in every hierarchy, dies with the session, and
// leaves groups that can be removed.
func TestJoinKillRemove(t *testing.T) {
	tree := open(t)
	s := create(t, tree, "s1", limits)
	cmd, _ := start(t, "wait", nil)
	if err := s.JoinRoot(cmd.Process.Pid); err != nil {
		t.Fatal(err)
	}
	for controller, dir := range s.Paths() {
		if !member(t, dir, cmd.Process.Pid) {
			t.Errorf("not in S of %q", controller)
		}
	}
	if err := s.JoinInit(cmd.Process.Pid); err != nil {
		t.Fatal(err)
	}
	if !member(t, s.Paths()[""]+"/init", cmd.Process.Pid) {
		t.Error("not in S/init")
	}

	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := s.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Wait with a process alive: %v", err)
	}
	if err := s.KillExecutions(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("KillExecutions reached init: %v", err)
	}
	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := s.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	cmd.Wait()
	for range 2 { // removing twice is no error
		if err := s.Remove(); err != nil {
			t.Fatal(err)
		}
	}
	for controller, dir := range s.Paths() {
		if _, err := os.Stat(dir); err == nil {
			t.Errorf("%q: %s is left", controller, dir)
		}
	}
}

// R027 R070 T099: an execution is born in its leaf; the leaf counts, kills, and tells when
// it is empty.
func TestLeaf(t *testing.T) {
	tree := open(t)
	s := create(t, tree, "s1", limits)
	leaf, err := s.Leaf()
	if err != nil {
		t.Fatal(err)
	}
	fd := leaf.FD()
	defer fd.Close()

	var parent, self unix.Stat_t
	if err := unix.Fstatat(int(fd.Fd()), "..", &parent, 0); err != nil {
		t.Fatal(err)
	}
	if err := unix.Fstatat(int(fd.Fd()), ".", &self, 0); err != nil {
		t.Fatal(err)
	}
	if parent.Ino != self.Ino {
		t.Error("the descriptor walks up")
	}

	cmd, in := start(t, "wait", &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(fd.Fd())})
	if !member(t, s.Paths()[""]+"/x/1", cmd.Process.Pid) {
		t.Error("not born in the leaf")
	}
	if empty, err := leaf.Empty(); empty || err != nil {
		t.Errorf("with a process in: empty %v, %v", empty, err)
	}

	// The notice, not the first looks: it ends long after those.
	go func() {
		time.Sleep(100 * time.Millisecond)
		in.Close()
	}()
	if err := leaf.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	cmd.Wait()
	if u, err := leaf.Usage(); err != nil || u.CPU <= 0 || u.CPU > 10*time.Second {
		t.Errorf("usage %+v, %v", u, err)
	}
	if err := leaf.Remove(); err != nil {
		t.Fatal(err)
	}
	if err := leaf.Wait(t.Context()); err != nil {
		t.Errorf("a leaf that is gone is empty: %v", err)
	}
	if err := leaf.Kill(); err != nil {
		t.Errorf("a leaf that is gone has been killed: %v", err)
	}

	// A whole tree dies by one write.
	leaf, err = s.Leaf()
	if err != nil {
		t.Fatal(err)
	}
	fd2 := leaf.FD()
	defer fd2.Close()
	sh := exec.Command("/bin/sh", "-c", "setsid sleep 60 & (trap '' TERM HUP; sleep 60 & sleep 60) & wait")
	sh.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(fd2.Fd())}
	if err := sh.Start(); err != nil {
		t.Fatal(err)
	}
	if err := leaf.Kill(); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if err := leaf.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Logf("empty %v after the kill", time.Since(began))
	sh.Wait()
	if err := leaf.Remove(); err != nil {
		t.Fatal(err)
	}
}

// R261, escapes: init clones executions from its own user namespace into leaves that it
// owns, and into no others.
func TestChownLetsInitClone(t *testing.T) {
	tree := open(t)
	const host = 200000
	for _, row := range []struct {
		name  string
		chown bool
	}{{"owned", true}, {"not owned", false}} {
		t.Run(row.name, func(t *testing.T) {
			s := create(t, tree, "chown", limits)
			if row.chown {
				if err := s.Chown(host, host); err != nil {
					t.Fatal(err)
				}
			}
			leaf, err := s.Leaf()
			if err != nil {
				t.Fatal(err)
			}
			fd := leaf.FD()
			defer fd.Close()
			initFD, err := os.Open(s.Paths()[""] + "/init")
			if err != nil {
				t.Fatal(err)
			}
			defer initFD.Close()

			cmd := role("spawn")
			cmd.Path = testBinary(t)
			cmd.ExtraFiles = []*os.File{fd}
			cmd.SysProcAttr = &syscall.SysProcAttr{
				Cloneflags:  syscall.CLONE_NEWUSER,
				UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: host, Size: 10}},
				GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: host, Size: 10}},
				Credential:  &syscall.Credential{NoSetGroups: true}, // 0 inside, or it stays the host's root
				UseCgroupFD: true,
				CgroupFD:    int(initFD.Fd()),
			}
			out, err := cmd.CombinedOutput()
			if row.chown && (err != nil || !strings.Contains(string(out), "/x/1")) {
				t.Errorf("could not clone into its leaf: %v: %s", err, out)
			}
			if !row.chown && (err == nil || !strings.Contains(string(out), "permission denied")) {
				t.Errorf("cloned into a leaf that it does not own: %v: %s", err, out)
			}
			if err := s.Remove(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// T061: the memory ceiling kills inside, and is counted.
func TestMemoryCeiling(t *testing.T) {
	tree := open(t)
	s := create(t, tree, "oom", limits)
	cmd, in := start(t, "eat", nil)
	if err := s.JoinRoot(cmd.Process.Pid); err != nil {
		t.Fatal(err)
	}
	in.Close()
	err := cmd.Wait()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Fatalf("ended by %v, not SIGKILL", err)
	}
	u, err := s.Stats()
	if err != nil {
		t.Fatal(err)
	}
	if u.OOMKills != 1 || u.PeakMemory < limits.MemoryBytes*9/10 || u.PeakMemory > limits.MemoryBytes+1<<20 || u.CPU <= 0 {
		t.Errorf("usage %+v", u)
	}
}

// T061: on v2 an execution that is out of memory dies as a whole, and its leaf knows; on v1
// the session's group counts. Init lives on either way.
func TestMemoryCeilingOfLeaf(t *testing.T) {
	tree := open(t)
	s := create(t, tree, "oom", limits)
	in, _ := start(t, "wait", nil)
	if err := s.JoinRoot(in.Process.Pid); err != nil {
		t.Fatal(err)
	}
	if err := s.JoinInit(in.Process.Pid); err != nil {
		t.Fatal(err)
	}
	leaf, err := s.Leaf()
	if err != nil {
		t.Fatal(err)
	}
	fd := leaf.FD()
	defer fd.Close()
	inside := &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(fd.Fd())}
	sibling, _ := start(t, "wait", inside)
	eater, told := start(t, "eat", inside)
	for _, cmd := range []*exec.Cmd{sibling, eater} {
		if err := s.JoinV1(cmd.Process.Pid); err != nil {
			t.Fatal(err)
		}
	}
	told.Close()
	eater.Wait()
	v2 := tree.Layout() == "v2"
	if v2 {
		sibling.Wait()
		if sibling.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
			t.Errorf("the sibling in the leaf: %v", sibling.ProcessState)
		}
	}
	u, err := leaf.Usage()
	if err != nil {
		t.Fatal(err)
	}
	total, err := s.Stats()
	if err != nil {
		t.Fatal(err)
	}
	if total.OOMKills < 1 || v2 != (u.OOMKills > 0) || v2 != (u.PeakMemory > 0) {
		t.Errorf("leaf %+v, session %+v", u, total)
	}
	if err := in.Process.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("init: %v", err)
	}
}

// T059: the pids ceiling is the grant and init's own allowance.
func TestPIDsCeiling(t *testing.T) {
	tree := open(t)
	s := create(t, tree, "pids", limits)
	cmd, in := start(t, "fork", nil)
	if err := s.JoinRoot(cmd.Process.Pid); err != nil {
		t.Fatal(err)
	}
	out := cmd.Stdout.(*lines)
	in.Close()
	n, msg, _ := strings.Cut(out.next(t), " ")
	count, _ := strconv.Atoi(n)
	if count < 16 || count >= int(limits.PIDs)+sandbox.InitPIDs || !strings.Contains(msg, "temporarily unavailable") {
		t.Errorf("after %d processes: %s", count, msg)
	}
	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	cmd.Wait()
	if err := s.Remove(); err != nil {
		t.Fatal(err)
	}
}

// R242 T091: a starting runner finds what an earlier one left, wherever it stood, kills it
// and removes it.
func TestSweep(t *testing.T) {
	needRoot(t)
	instance := fmt.Sprintf("test-sweep-%d", os.Getpid())
	elsewhere := fmt.Sprintf("/stockade-test-elsewhere-%d", os.Getpid())
	var left []*exec.Cmd
	for _, opts := range []cgroup.Options{{}, {Parent: elsewhere}} {
		tree, err := cgroup.Open(instance, opts)
		if err != nil {
			t.Fatal(err)
		}
		s, err := tree.Create("s1")
		if err != nil {
			t.Fatal(err)
		}
		cmd, _ := start(t, "wait", nil)
		if err := s.JoinRoot(cmd.Process.Pid); err != nil {
			t.Fatal(err)
		}
		if err := s.JoinInit(cmd.Process.Pid); err != nil {
			t.Fatal(err)
		}
		half, _ := start(t, "wait", nil) // one that reached the v1 groups only
		for controller, dir := range s.Paths() {
			if controller != "" {
				if err := os.WriteFile(dir+"/cgroup.procs", []byte(strconv.Itoa(half.Process.Pid)), 0); err != nil {
					t.Fatal(err)
				}
			}
		}
		left = append(left, cmd)
		if tree.Layout() != "v2" {
			left = append(left, half)
		}
	}

	tree, err := cgroup.Open(instance, cgroup.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := tree.Sweep(); err != nil {
		t.Fatal(err)
	}
	for _, cmd := range left {
		cmd.Wait()
		if cmd.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
			t.Errorf("process %d: %v", cmd.Process.Pid, cmd.ProcessState)
		}
	}
	if _, err := tree.Create("s1"); err != nil {
		t.Errorf("the swept Tree is usable: %v", err)
	}
	if err := tree.Sweep(); err != nil {
		t.Error(err)
	}
	if err := tree.Close(); err != nil {
		t.Error(err)
	}
	nothingLeft(t, "stockade-"+instance)
	for _, dir := range named(t, elsewhere[1:]) {
		if err := os.Remove(dir); err != nil {
			t.Error(err)
		}
	}
}

// open makes a Tree of the test's own and sees that nothing of it is left.
func open(t *testing.T) *cgroup.Tree {
	t.Helper()
	needRoot(t)
	instance := fmt.Sprintf("test-%s-%d", strings.ToLower(strings.NewReplacer("/", "-", " ", "-").Replace(t.Name())), os.Getpid())
	tree, err := cgroup.Open(instance, cgroup.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := tree.Sweep(); err != nil {
			t.Error(err)
		}
		if err := tree.Close(); err != nil {
			t.Error(err)
		}
		nothingLeft(t, "stockade-"+instance)
	})
	return tree
}

func create(t *testing.T, tree *cgroup.Tree, name string, l sandbox.Limits) *cgroup.Session {
	t.Helper()
	s, err := tree.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Bound(l); err != nil {
		t.Fatal(err)
	}
	return s
}

// start runs a role up to its first line.
func start(t *testing.T, name string, attr *syscall.SysProcAttr) (*exec.Cmd, io.Closer) {
	t.Helper()
	cmd := role(name)
	cmd.SysProcAttr = attr
	return cmd, begin(t, cmd)
}

// begin runs a role that has been prepared up to its first line.
func begin(t *testing.T, cmd *exec.Cmd) io.Closer {
	t.Helper()
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	out := &lines{File: w, r: bufio.NewReader(r)}
	cmd.Stdout = w
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	cmd.Stdout = out // for the test to read; the process has its own
	if line := out.next(t); line != "ready" {
		t.Fatal(line)
	}
	return in
}

type lines struct {
	*os.File
	r *bufio.Reader
}

func (l *lines) next(t *testing.T) string {
	t.Helper()
	line, err := l.r.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(line)
}

func member(t *testing.T, dir string, pid int) bool {
	t.Helper()
	data, err := os.ReadFile(dir + "/cgroup.procs")
	if err != nil {
		t.Fatal(err)
	}
	for field := range strings.FieldsSeq(string(data)) {
		if field == strconv.Itoa(pid) {
			return true
		}
	}
	return false
}

// testBinary is a copy that an unprivileged user can execute.
func testBinary(t *testing.T) string {
	t.Helper()
	data, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("/tmp", "stockade-cgroup-test")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "test")
	if err := os.WriteFile(file, data, 0o755); err != nil {
		t.Fatal(err)
	}
	return file
}

func nothingLeft(t *testing.T, name string) {
	t.Helper()
	for _, dir := range named(t, name) {
		t.Errorf("%s is left", dir)
	}
}

// named finds groups by name in every hierarchy.
func named(t *testing.T, name string) []string {
	t.Helper()
	out, err := exec.Command("find", "/sys/fs/cgroup", "-type", "d", "-name", name).Output()
	if err != nil {
		t.Logf("find: %v", err) // a group of another test went meanwhile
	}
	return strings.Fields(string(out))
}

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() == 0 {
		return
	}
	if os.Getenv("STOCKADE_NOSKIP") == "1" {
		t.Fatal("needs root")
	}
	t.Skip("needs root")
}
