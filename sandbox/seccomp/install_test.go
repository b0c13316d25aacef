package seccomp

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A filter cannot be taken off again: every test of the real thing is a child of its own.
func TestMain(m *testing.M) {
	if role := os.Getenv("SECCOMP_TEST_ROLE"); role != "" {
		if role == "cores" { // as a session has it; where that cannot be, the test says so
			unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{Cur: 1, Max: 1})
		}
		if profile := os.Getenv("SECCOMP_TEST_PROFILE"); profile != "" {
			if err := install(profile, os.Getenv("SECCOMP_TEST_REPORT") != ""); err != nil {
				fmt.Println("install:", err)
				os.Exit(1)
			}
		}
		roles[role]()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// install is what init does: no_new_privs, then the program on every thread. With report,
// the listener goes through the socket that is descriptor 3.
func install(profile string, report bool) error {
	p, err := Compile(profile, report)
	if err != nil {
		return err
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	prog := unix.SockFprog{Len: uint16(len(p) / instruction), Filter: (*unix.SockFilter)(unsafe.Pointer(&p[0]))}
	flags := uintptr(unix.SECCOMP_FILTER_FLAG_TSYNC)
	if report {
		flags |= unix.SECCOMP_FILTER_FLAG_NEW_LISTENER | unix.SECCOMP_FILTER_FLAG_TSYNC_ESRCH
	}
	got, _, e := syscall.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags, uintptr(unsafe.Pointer(&prog)))
	if e != 0 || (got != 0 && !report) {
		return fmt.Errorf("seccomp: %d, %w", got, e)
	}
	if !report {
		return nil
	}
	defer unix.Close(int(got))
	return unix.Sendmsg(3, []byte{0}, unix.UnixRights(int(got)), nil, 0)
}

var roles = map[string]func(){
	"tries":    tries,
	"families": families,
	"works":    works,
	"cores":    cores,
	"true":     func() {},
}

// tries are calls that a profile refuses and that have an effect without it.
func tries() {
	dir := os.Getenv("SECCOMP_TEST_DIR")
	path := func(name string) uintptr {
		p, _ := unix.BytePtrFromString(filepath.Join(dir, name))
		return uintptr(unsafe.Pointer(p))
	}
	os.WriteFile(filepath.Join(dir, "file"), nil, 0o644)
	here := unix.AT_FDCWD
	for _, try := range []struct {
		name string
		nr   uintptr
		args [4]uintptr
	}{
		{"chmod u+s", unix.SYS_FCHMODAT, [4]uintptr{uintptr(here), path("file"), 0o4755}},
		{"fchmodat2 g+s", unix.SYS_FCHMODAT2, [4]uintptr{uintptr(here), path("file"), 0o2755}},
		{"open O_CREAT 04755", unix.SYS_OPENAT, [4]uintptr{uintptr(here), path("created"), unix.O_CREAT | unix.O_WRONLY, 0o4755}},
		{"open O_TMPFILE 04755", unix.SYS_OPENAT, [4]uintptr{uintptr(here), path("."), unix.O_TMPFILE | unix.O_WRONLY, 0o4755}},
		{"mkdir 02755", unix.SYS_MKDIRAT, [4]uintptr{uintptr(here), path("dir"), 0o2755}},
		{"mknod 04755", unix.SYS_MKNODAT, [4]uintptr{uintptr(here), path("node"), unix.S_IFREG | 0o4755}},
		{"openat2", unix.SYS_OPENAT2, [4]uintptr{uintptr(here), path("file"), path("."), 0}},
		{"setns", unix.SYS_SETNS, [4]uintptr{^uintptr(0), 0}},
		{"ioctl TIOCSTI, garbage above", unix.SYS_IOCTL, [4]uintptr{0, 1<<40 | unix.TIOCSTI, path("x")}},
		{"personality READ_IMPLIES_EXEC", unix.SYS_PERSONALITY, [4]uintptr{0x400000}},
		{"keyctl", unix.SYS_KEYCTL, [4]uintptr{0, ^uintptr(2), 0}},
		{"ptrace", unix.SYS_PTRACE, [4]uintptr{unix.PTRACE_PEEKTEXT, 0, 0, 0}},
		{"bpf", unix.SYS_BPF, [4]uintptr{999, 0, 0}},
		{"mount", unix.SYS_MOUNT, [4]uintptr{0, 0, 0, 0}},
		{"umount2", unix.SYS_UMOUNT2, [4]uintptr{path("missing"), 0}},
		{"io_uring_setup", unix.SYS_IO_URING_SETUP, [4]uintptr{1, 0}},
		{"unshare newuser", unix.SYS_UNSHARE, [4]uintptr{unix.CLONE_NEWUSER}},
	} {
		_, _, e := syscall.Syscall6(try.nr, try.args[0], try.args[1], try.args[2], try.args[3], 0, 0)
		fmt.Printf("%s: %s\n", try.name, name(e))
	}
}

func name(e syscall.Errno) string {
	if e == 0 {
		return "ok"
	}
	return unix.ErrnoName(e)
}

// R261 T035 T048 T049 T050 T101: the installed program refuses, and without it the same
// calls are answered otherwise (the negative control).
func TestInstalledRefuses(t *testing.T) {
	bare := answers(t, "tries", "")
	for _, profile := range Profiles {
		got := answers(t, "tries", profile)
		if len(got) != 17 {
			t.Fatalf("%s: %d answers: %v", profile, len(got), got) // one per try
		}
		for try, answer := range got {
			want := "EPERM"
			if try == "openat2" || try == "io_uring_setup" {
				want = "ENOSYS"
			}
			if answer != want {
				t.Errorf("%s: %s: %s, want %s", profile, try, answer, want)
			}
			if bare[try] == answer {
				t.Errorf("%s: %s without the program: the proof proves nothing", try, bare[try])
			}
		}
	}
}

// families asks for a socket of each family.
func families() {
	for family := range 46 {
		fd, err := unix.Socket(family, unix.SOCK_STREAM, 0)
		if err != nil {
			fd, err = unix.Socket(family, unix.SOCK_RAW, 0)
		}
		if err == nil {
			unix.Close(fd)
		}
		e, _ := err.(syscall.Errno)
		fmt.Printf("%d: %s\n", family, name(e))
	}
}

// T032: of 46 socket families, those that are granted.
func TestSocketFamilies(t *testing.T) {
	for profile, granted := range map[string][]int{
		"default": {unix.AF_UNIX, unix.AF_INET, unix.AF_INET6, unix.AF_NETLINK},
		"strict":  {unix.AF_UNIX},
	} {
		want := make(map[string]bool)
		for _, f := range granted {
			want[fmt.Sprint(f)] = true
		}
		for family, answer := range answers(t, "families", profile) {
			if want[family] && answer == "EAFNOSUPPORT" && profile == "default" && family == fmt.Sprint(unix.AF_INET6) {
				t.Log("this kernel has no IPv6")
				continue
			}
			if refused := answer == "EAFNOSUPPORT"; refused == want[family] {
				t.Errorf("%s: family %s: %s", profile, family, answer)
			}
		}
	}
}

// cores lowers the limit of cores by every door, and says what it is then.
func cores() {
	var none, old unix.Rlimit
	for _, door := range []struct {
		name     string
		nr       uintptr
		resource uintptr
		args     [2]uintptr
	}{
		{"setrlimit", unix.SYS_SETRLIMIT, unix.RLIMIT_CORE, [2]uintptr{uintptr(unsafe.Pointer(&none))}},
		{"setrlimit, garbage above", unix.SYS_SETRLIMIT, 1<<40 | unix.RLIMIT_CORE, [2]uintptr{uintptr(unsafe.Pointer(&none))}},
		{"prlimit64", unix.SYS_PRLIMIT64, unix.RLIMIT_CORE, [2]uintptr{uintptr(unsafe.Pointer(&none)), uintptr(unsafe.Pointer(&old))}},
		{"prlimit64, garbage above", unix.SYS_PRLIMIT64, 1<<40 | unix.RLIMIT_CORE, [2]uintptr{uintptr(unsafe.Pointer(&none))}},
	} {
		args := [3]uintptr{door.resource, door.args[0]}
		if door.nr == unix.SYS_PRLIMIT64 {
			args = [3]uintptr{0, door.resource, door.args[0]}
		}
		_, _, e := syscall.Syscall6(door.nr, args[0], args[1], args[2], door.args[1], 0, 0)
		fmt.Printf("%s: %s\n", door.name, name(e))
	}
	var now unix.Rlimit
	if err := unix.Prlimit(0, unix.RLIMIT_CORE, nil, &now); err != nil {
		fmt.Println("query:", err)
	}
	fmt.Printf("left: %d %d\n", now.Cur, now.Max)
	fmt.Printf("other limits: %v\n", unix.Setrlimit(unix.RLIMIT_CPU, &unix.Rlimit{Cur: 1000, Max: 1000}))
}

// T042: at a limit of 1 the kernel hands a core to no program, at 0 it does: nobody comes there, nor is anybody told that he
// has not.
func TestCoresStay(t *testing.T) {
	for profile, left := range map[string]string{"": "0 0", "default": "1 1", "build": "1 1", "strict": "1 1"} {
		got := answers(t, "cores", profile)
		if profile == "" && got["setrlimit"] != "ok" {
			t.Skip("the limit of cores cannot be 1 here: ", got)
		}
		for what, answer := range got {
			want := "ok"
			switch what {
			case "left":
				want = left
			case "other limits":
				want = "<nil>"
			}
			if answer != want {
				t.Errorf("%q: %s: %s, want %s", profile, what, answer, want)
			}
		}
		if len(got) != 6 {
			t.Errorf("%q: %v", profile, got)
		}
	}
}

// works is the ordinary life of a Go PID 1 and of what it executes.
func works() {
	dir := os.Getenv("SECCOMP_TEST_DIR")
	check := func(what string, err error) {
		if err != nil {
			fmt.Printf("%s: %v\n", what, err)
		}
	}
	var wg sync.WaitGroup // threads that begin after the program was installed
	for range 4 {
		wg.Go(func() {
			runtime.LockOSThread()
			status, err := os.ReadFile(fmt.Sprintf("/proc/self/task/%d/status", unix.Gettid()))
			check("thread", err)
			if !bytes.Contains(status, []byte("Seccomp:\t2")) {
				fmt.Println("a thread without the filter")
			}
		})
	}
	wg.Wait()

	check("mkdir", os.Mkdir(filepath.Join(dir, "d"), 0o755))
	check("create", os.WriteFile(filepath.Join(dir, "d/f"), []byte("x"), 0o644))
	check("chmod", os.Chmod(filepath.Join(dir, "d/f"), 0o755))
	check("chmod sticky", os.Chmod(filepath.Join(dir, "d"), 0o777|os.ModeSticky))
	check("rename", os.Rename(filepath.Join(dir, "d/f"), filepath.Join(dir, "d/g")))
	check("remove", os.RemoveAll(filepath.Join(dir, "d")))

	r, w, err := os.Pipe()
	check("pipe", err)
	go w.Write([]byte("x"))
	_, err = r.Read(make([]byte, 1)) // through the runtime's epoll
	check("read", err)

	pidfd := -1
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = []string{"SECCOMP_TEST_ROLE=true"}
	cmd.SysProcAttr = &syscall.SysProcAttr{PidFD: &pidfd, Setsid: true}
	check("execute", cmd.Start())
	check("pidfd", unix.Waitid(unix.P_PIDFD, pidfd, nil, unix.WEXITED|unix.WNOWAIT, nil))
	check("wait", cmd.Wait())

	// A shell and what it starts: dynamic linking, fork, pipes, wait.
	out, err := exec.Command("/bin/sh", "-c", "echo $(ls / | sort | head -1) | tr a-z A-Z; umask 022; true & wait").CombinedOutput()
	check("shell", err)
	if len(out) < 2 {
		fmt.Printf("shell: %q\n", out)
	}

	// EINVAL is the kernel's word about the arguments: the call passed. What it does with
	// good ones is shown where executions are cloned into their groups.
	if _, _, e := syscall.RawSyscall(unix.SYS_CLONE3, 0, 0, 0); e != unix.EINVAL {
		fmt.Println("clone3:", name(e))
	}
	check("unshare fs", func() error {
		errs := make(chan error)
		go func() { runtime.LockOSThread(); errs <- unix.Unshare(unix.CLONE_FS) }() // the thread ends with it
		return <-errs
	}())
	check("no_new_privs", unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
	check("setgroups", ignoring(unix.Setgroups(nil), unix.EPERM))
	check("setresuid", unix.Setresuid(-1, -1, -1))
	check("rlimit", unix.Prlimit(0, unix.RLIMIT_CORE, &unix.Rlimit{}, nil))
}

func ignoring(err, target error) error {
	if err == target {
		return nil
	}
	return err
}

// R014 T046: everything that init and ordinary programs need is there, on every thread.
func TestInstalledWorks(t *testing.T) {
	for _, profile := range Profiles {
		if out := child(t, "works", profile); len(out) > 0 {
			t.Errorf("%s:\n%s", profile, out)
		}
	}
}

func command(t *testing.T, role, profile string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), "SECCOMP_TEST_ROLE="+role, "SECCOMP_TEST_PROFILE="+profile, "SECCOMP_TEST_DIR="+t.TempDir())
	return cmd
}

func child(t *testing.T, role, profile string) string {
	t.Helper()
	out, err := command(t, role, profile).CombinedOutput()
	if err != nil {
		t.Fatalf("%s under %q: %v\n%s", role, profile, err, out)
	}
	return string(out)
}

// answers are a child's lines "what: errno".
func answers(t *testing.T, role, profile string) map[string]string {
	t.Helper()
	got := make(map[string]string)
	for lines := bufio.NewScanner(strings.NewReader(child(t, role, profile))); lines.Scan(); {
		what, answer, _ := strings.Cut(lines.Text(), ": ")
		got[what] = answer
	}
	return got
}
