package guest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// T038: what is handled grows with the ABI, and never contains what the kernel would not know.
func TestHandled(t *testing.T) {
	for abi, want := range map[int]unix.LandlockRulesetAttr{
		1: {Handled_access_fs: 0x1fff},
		2: {Handled_access_fs: 0x3fff},
		3: {Handled_access_fs: 0x7fff},
		4: {Handled_access_fs: 0x7fff}, // TCP is the network's
		5: {Handled_access_fs: 0xffff},
		6: {Handled_access_fs: 0xffff, Scoped: 3},
		7: {Handled_access_fs: 0xffff, Scoped: 3},
		8: {Handled_access_fs: 0xffff, Scoped: 3},
	} {
		if got := handled(abi); got != want {
			t.Errorf("ABI %d: got %+v, want %+v", abi, got, want)
		}
	}
}

// Nobody may make device nodes, and only what is writable is written.
func TestRights(t *testing.T) {
	const write, device, nodes = unix.LANDLOCK_ACCESS_FS_WRITE_FILE, unix.LANDLOCK_ACCESS_FS_IOCTL_DEV,
		unix.LANDLOCK_ACCESS_FS_MAKE_CHAR | unix.LANDLOCK_ACCESS_FS_MAKE_BLOCK
	for _, tt := range []struct {
		access Access
		has    uint64 // of the three above and MAKE_REG
	}{
		{Access{}, 0},
		{Access{Write: true}, write | unix.LANDLOCK_ACCESS_FS_MAKE_REG},
		{Access{Device: true}, write | device},
		{Access{Write: true, Device: true}, write | device | unix.LANDLOCK_ACCESS_FS_MAKE_REG},
	} {
		if got := tt.access.rights() & (write | device | nodes | unix.LANDLOCK_ACCESS_FS_MAKE_REG); got != tt.has {
			t.Errorf("%+v: got %#x, want %#x", tt.access, got, tt.has)
		}
	}
}

// ground are directories that anybody may write, as far as modes are concerned.
type ground struct {
	dir  string // nobody may, as far as Landlock is concerned
	work string // a writable mount
	file string // in dir, world-writable
}

// walled returns a setup with Landlock, over places of the test's own.
func walled(t testing.TB) (Setup, ground) {
	t.Helper()
	if _, err := landlockABI(); err != nil {
		if os.Getenv("STOCKADE_NOSKIP") == "1" {
			t.Fatal("no Landlock: ", err)
		}
		t.Skip("this kernel has no Landlock: ", err)
	}
	dir, err := os.MkdirTemp(bin, "ground-")
	if err != nil {
		t.Fatal(err)
	}
	g := ground{dir: dir, work: dir + "/work", file: dir + "/file"}
	for _, err := range []error{
		os.Mkdir(g.work, 0o700), os.WriteFile(g.file, []byte("content\n"), 0o600),
		os.Chmod(dir, 0o777), os.Chmod(g.work, 0o777), os.Chmod(g.file, 0o666),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	s := baseline()
	s.Landlock = []Access{{Path: "/"}, {Path: "/proc", Device: true}, {Path: "/dev", Device: true}, {Path: g.work, Write: true}}
	s.Proof = dir
	return s, g
}

// listenIn listens on an abstract socket in a session's network namespace, outside of its domain.
func listenIn(t *testing.T, b *box, name string) {
	t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // in another namespace, and never unlocked
		ns, err := os.Open("/proc/" + strconv.Itoa(b.pid) + "/ns/net")
		if err == nil {
			defer ns.Close()
			err = unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET)
		}
		if err == nil {
			err = listenAbstract(name)
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

func landlockABI() (int, error) {
	n, _, e := syscall.RawSyscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	return int(n), asError(e)
}

// T038: Landlock refuses what the mounts and the modes allow. Control: without it, every row goes through. Rows with an ABI are Landlock's from that one on.
func TestLandlock(t *testing.T) {
	s, g := walled(t)
	kernel, _ := landlockABI()
	rows := []struct {
		name   string
		script string
		abi    int
	}{
		{"make a file", "echo >$DIR/new && rm $DIR/new", 1},
		{"write a file", "echo content >>$DIR/file", 1},
		{"make a directory", "mkdir $DIR/sub && rmdir $DIR/sub", 1},
		{"make a link", "ln -s x $DIR/link && rm $DIR/link", 1},
		{"make a fifo", "mkfifo $DIR/fifo && rm $DIR/fifo", 1},
		{"remove", "touch $DIR/work/x && mv $DIR/work/x $DIR/x && rm $DIR/x", 1},
		{"make a whiteout", "mknod $DIR/node c 0 0 && rm $DIR/node", 1}, // the one device that anybody can make; to kernels of 2026 it is a file
		{"truncate", "truncate -s 1 $DIR/file", 1},                      // opens for writing
		{"truncate by path", bin + "/attacker attack truncate $DIR/file", 3},
		{"abstract socket of others", bin + "/attacker attack connect stockade-outside", 6},
	}
	// What has to work all the same.
	work := []string{
		"cd $DIR/work; echo a >a && mkdir b && mv a b/a && ln b/a c && ln -s a d && mkfifo e && rm -r b c d e",
		"cat $DIR/file >/dev/null; echo x >/dev/null; echo 600 >/proc/self/oom_score_adj; echo name >/proc/self/comm",
		"sleep 100 & kill $!; wait; true",
		// A socket of another execution, and a terminal of one's own.
		bin + "/attacker attack listen inside >/dev/null & for i in 1 2 3 4 5 6 7 8 9; do " + bin + "/attacker attack connect inside && r=1 && break; sleep 0.1; done; kill $!; test $r",
		"script -qc true /dev/null </dev/null",
	}
	run := func(t *testing.T, b *box, script string) (string, bool) {
		t.Helper()
		cmd := shell(script)
		cmd.Env = append(cmd.Env, "DIR="+g.dir)
		out, e := b.output(cmd)
		return out, e.Status == 0
	}
	for abi := range kernel + 1 { // 0: without
		s := s
		s.LandlockABI = uint32(abi)
		if abi == 0 {
			s.Landlock = nil
		}
		b := startRaw(t)
		ready, err := b.Setup(t.Context(), s)
		if err != nil || ready.Landlock != abi || ready.Listener != nil {
			t.Fatalf("ABI %d: %+v, %v", abi, ready, err)
		}
		listenIn(t, b, "stockade-outside")
		for _, r := range rows {
			out, ok := run(t, b, r.script)
			if want := abi < r.abi; ok != want {
				t.Errorf("ABI %d: %s: went through: %v, want %v: %s", abi, r.name, ok, want, out)
			}
			_ = os.WriteFile(g.file, []byte("content\n"), 0)
		}
		for _, script := range work {
			if abi == 1 && strings.Contains(script, "mv") {
				continue // no REFER: nothing moves between directories
			}
			if out, ok := run(t, b, script); !ok {
				t.Errorf("ABI %d: %s: %s", abi, script, out)
			}
		}
		// Init signals executions, whatever the scope of signals.
		p := b.spawn(command("sleep", "1000"))
		if err := p.Signal(t.Context(), syscall.SIGKILL); err != nil {
			t.Errorf("ABI %d: %v", abi, err)
		}
		<-p.Exited
		b.Close()
	}
}

// T039: Landlock that cannot be had is a failure, and so is one that does not do what it is for. Control: the same with nothing in
// its way is none.
func TestLandlockErrors(t *testing.T) {
	s, g := walled(t)
	open := func(s *Setup) { s.Landlock = append(s.Landlock, Access{Path: g.dir, Write: true}) }
	if err := os.Symlink(g.work, g.dir+"/link"); err != nil {
		t.Fatal(err)
	}
	if _, err := startRaw(t).Setup(t.Context(), s); err != nil {
		t.Errorf("control: %v", err)
	}
	for _, tt := range []struct {
		name   string
		before func(t *testing.T) // to the thread that init is cloned from
		change func(*Setup)
		errno  syscall.Errno
		op     string
	}{
		{"17th layer", layers, nil, syscall.E2BIG, "landlock"},
		{"disabled at boot", func(t *testing.T) { refuseLandlock(t, unix.EOPNOTSUPP) }, nil, syscall.EOPNOTSUPP, "landlock"},
		{"not built", func(t *testing.T) { refuseLandlock(t, unix.ENOSYS) }, nil, syscall.ENOSYS, "landlock"},
		{"wall with a gap", nil, open, syscall.EPERM, "landlock does not hold in " + g.dir},
		{"proof that proves nothing", nil, func(s *Setup) { s.Proof = "/proc" }, syscall.ENOENT, "make a file in /proc"},
		{"place missing", nil, func(s *Setup) { s.Landlock[0].Path = "/nowhere" }, syscall.ENOENT, "landlock /nowhere"},
		{"place by a link", nil, func(s *Setup) { s.Landlock[0].Path = g.dir + "/link" }, syscall.ELOOP, "landlock " + g.dir + "/link"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := s
			s.Landlock = append([]Access(nil), s.Landlock...)
			if tt.change != nil {
				tt.change(&s)
			}
			runtime.LockOSThread() // a changed thread ends with the goroutine
			if tt.before != nil {
				tt.before(t)
			} else {
				defer runtime.UnlockOSThread()
			}
			_, err := startRaw(t).Setup(t.Context(), s)
			var e *Error
			if !errors.As(err, &e) || e.Stage != StageSetup || e.Errno != tt.errno || e.Op != tt.op {
				t.Errorf("got %v, want %s: %v", err, tt.op, tt.errno)
			}
		})
	}
}

// layers puts the calling thread into as many domains as there can be.
func layers(t *testing.T) {
	attr := unix.LandlockRulesetAttr{Handled_access_fs: unix.LANDLOCK_ACCESS_FS_MAKE_BLOCK}
	fd, _, e := syscall.RawSyscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr), 0)
	if e != 0 {
		t.Fatal(e)
	}
	defer unix.Close(int(fd))
	d := &domain{fd: int(fd)}
	for range 16 {
		if err := d.enter(); err != nil {
			t.Fatal(err)
		}
	}
}

// refuseLandlock has landlock_create_ruleset fail on the calling thread.
func refuseLandlock(t *testing.T, e unix.Errno) {
	program := refusing(unix.SECCOMP_RET_ERRNO|uint32(e), unix.SYS_LANDLOCK_CREATE_RULESET, unix.SYS_LANDLOCK_CREATE_RULESET)
	prog := unix.SockFprog{Len: uint16(len(program) / unix.SizeofSockFilter), Filter: (*unix.SockFilter)(unsafe.Pointer(&program[0]))}
	_, _, errno := syscall.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&prog)))
	runtime.KeepAlive(&prog)
	if errno != 0 {
		t.Fatal(errno)
	}
}

// A mount over a place that may be written is another place, until Allow.
func TestAllow(t *testing.T) {
	s, g := walled(t)
	b := startRaw(t)
	if err := os.Mkdir(g.work+"/below", 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Setup(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	before := b.spawn(command("sleep", "1000"))
	// A directory that no rule is for stands for the mount.
	over := filepath.Join(g.dir, "over")
	if err := os.Mkdir(over, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(over, 0o777); err != nil {
		t.Fatal(err)
	}
	write := shell("echo x >" + over + "/x")
	if _, e := b.output(write); e.Status == 0 {
		t.Fatal("the control: it may be written without Allow")
	}
	tree, err := os.Open(over)
	if err != nil {
		t.Fatal(err)
	}
	defer tree.Close()
	for range 20 {
		named := 0
		err := b.Allow(t.Context(), tree, func() error {
			for _, comm := range glob(t, fmt.Sprintf("/proc/%d/task/*/comm", b.pid)) {
				if name, _ := os.ReadFile(comm); string(name) == SpawnerName+"\n" {
					named++
				}
			}
			return nil
		}, nil)
		if err != nil || named == 0 {
			t.Fatal(named, err)
		}
		if out, e := b.output(write); e.Status != 0 {
			t.Errorf("after Allow: %s", out)
		}
	}
	if n := len(glob(t, fmt.Sprintf("/proc/%d/task/*", b.pid))); n > minProcesses {
		t.Errorf("init has %d threads", n)
	}
	if _, e := b.output(shell("echo x >" + g.dir + "/x")); e.Status == 0 {
		t.Error("Allow allowed more than it was asked for")
	}
	got := status(t, b, "CapEff", "CapBnd", "NoNewPrivs", "Groups", "Uid")
	for name, want := range map[string]string{"CapEff": "0000000000000000", "CapBnd": "0000000000000000", "NoNewPrivs": "1", "Groups": "1002 1003", "Uid": "1000 1000 1000 1000"} {
		if got[name] != want {
			t.Errorf("%s of an execution: got %q, want %q", name, got[name], want)
		}
	}
	if out, _ := b.output(command("cat", "/proc/self/timerslack_ns")); out != "50000\n" {
		t.Errorf("slack %q", out)
	}
	// What was executed before can still be signalled by init.
	if err := before.Signal(t.Context(), syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	<-before.Exited
	b.Close()
	if err := b.cmd.Wait(); err != nil {
		t.Error(err)
	}
	// Without Landlock there is nothing to allow.
	plain := start(t, baseline())
	if err := plain.Allow(t.Context(), tree, func() error { t.Error("moved"); return nil }, nil); err != nil {
		t.Error(err)
	}
}

// A spawner that is not where it has to be clones nothing: init ends first, however it came to be left there.
func TestAllowFails(t *testing.T) {
	for name, allow := range map[string]func(b *box, tree *os.File, end func() error) error{
		"it cannot be moved": func(b *box, tree *os.File, end func() error) error {
			return b.Allow(t.Context(), tree, func() error { return unix.EACCES }, end)
		},
		"nobody has waited": func(b *box, tree *os.File, end func() error) error {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			return b.Allow(ctx, tree, func() error { t.Error("moved"); return nil }, end)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, g := walled(t)
			b := startRaw(t)
			if _, err := b.Setup(t.Context(), s); err != nil {
				t.Fatal(err)
			}
			tree, err := os.Open(g.work)
			if err != nil {
				t.Fatal(err)
			}
			defer tree.Close()
			spawned := make(chan error, 1)
			n, ended := null(t), false
			err = allow(b, tree, func() error {
				ended = true
				go func() {
					_, err := b.Spawn(t.Context(), command("true"), Streams{Stdin: n, Stdout: n, Stderr: n})
					spawned <- err
				}()
				select {
				case err := <-spawned:
					t.Errorf("it serves: %v", err)
					spawned <- err
				case <-time.After(200 * time.Millisecond):
				}
				return b.cmd.Process.Kill()
			})
			if err == nil || !ended {
				t.Fatal(ended, err)
			}
			if err := <-spawned; !errors.Is(err, ErrGone) {
				t.Errorf("afterwards: %v", err)
			}
		})
	}
}

// Where it cannot be ended, the conversation is over, and an init that is gone is not ended.
func TestAllowCannotEnd(t *testing.T) {
	s, g := walled(t)
	b := startRaw(t)
	if _, err := b.Setup(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	tree, err := os.Open(g.work)
	if err != nil {
		t.Fatal(err)
	}
	defer tree.Close()
	err = b.Allow(t.Context(), tree, func() error { return unix.EACCES }, func() error { return unix.EIO })
	if !errors.Is(err, unix.EACCES) || !errors.Is(err, unix.EIO) {
		t.Errorf("got %v", err)
	}
	n := null(t)
	if _, err := b.Spawn(t.Context(), command("true"), Streams{Stdin: n, Stdout: n, Stderr: n}); !errors.Is(err, ErrGone) {
		t.Errorf("a start: %v", err)
	}
	err = b.Allow(t.Context(), tree, func() error { t.Error("moved"); return nil }, func() error { t.Error("ended"); return nil })
	if !errors.Is(err, ErrGone) {
		t.Errorf("afterwards: %v", err)
	}
}

func glob(t *testing.T, pattern string) []string {
	t.Helper()
	all, err := filepath.Glob(pattern)
	if err != nil {
		t.Fatal(err)
	}
	return all
}
