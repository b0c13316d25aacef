package seccomp

import (
	"fmt"
	"maps"
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

	"github.com/stockade-dev/stockade/sandbox/notify"
)

// reported runs a child under a program that reports, and answers as the runner does. It
// returns what the child printed and what was notified.
func reported(t *testing.T, role, profile string) (out string, told []Verdict) {
	t.Helper()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	ours, theirs := os.NewFile(uintptr(pair[0]), "ours"), os.NewFile(uintptr(pair[1]), "theirs")
	defer ours.Close()
	defer theirs.Close()
	cmd := command(t, role, profile)
	cmd.Env = append(cmd.Env, "SECCOMP_TEST_REPORT=1")
	cmd.ExtraFiles = []*os.File{theirs}
	var printed strings.Builder
	cmd.Stdout, cmd.Stderr = &printed, &printed
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	theirs.Close()

	var mu sync.Mutex
	server, err := notify.Serve(received(t, ours), func(c notify.Call) unix.Errno {
		v, named := Lookup(profile, c.NR, c.Args)
		if !named || v.Allowed {
			t.Errorf("%s: notified of %+v, which Lookup does not explain: %+v", profile, c, v)
		}
		mu.Lock()
		defer mu.Unlock()
		told = append(told, v)
		return v.Errno
	})
	if err != nil {
		cmd.Process.Kill()
		t.Fatal(err)
	}
	err = cmd.Wait()
	server.Close()
	if err != nil {
		t.Fatalf("%s under %s: %v\n%s", role, profile, err, printed.String())
	}
	return printed.String(), told
}

func received(t *testing.T, socket *os.File) *os.File {
	t.Helper()
	oob := make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := unix.Recvmsg(int(socket.Fd()), make([]byte, 1), oob, unix.MSG_CMSG_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	messages, err := unix.ParseSocketControlMessage(oob[:n])
	if err != nil || len(messages) == 0 {
		t.Fatal("no listener came: ", err)
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil {
		t.Fatal(err)
	}
	return os.NewFile(uintptr(fds[0]), "listener")
}

// A refusal that is reported is the same refusal, and its row is told; ENOSYS is not.
func TestReported(t *testing.T) {
	for _, profile := range Profiles {
		silent := answers(t, "tries", profile)
		out, told := reported(t, "tries", profile)
		rules := make(map[string]string)
		for _, v := range told {
			rules[v.Syscall] += v.Rule
		}
		for line := range strings.Lines(out) {
			what, answer, _ := strings.Cut(strings.TrimSpace(line), ": ")
			if answer != silent[what] {
				t.Errorf("%s: %s: %s, and %s without report", profile, what, answer, silent[what])
			}
		}
		want := map[string]string{
			"fchmodat": "set-id mode", "fchmodat2": "set-id mode", "openat": "set-id modeset-id mode", "mkdirat": "set-id mode",
			"mknodat": "set-id mode", "setns": "namespaces", "unshare": "namespaces", "ioctl": "terminal", "personality": "personality",
			"keyctl": "keyrings", "ptrace": "other processes", "bpf": "kernel programs", "mount": "mounts", "umount2": "mounts",
		}
		if profile == "strict" {
			want["mknodat"] = "named pipes"
		}
		if fmt.Sprint(rules) != fmt.Sprint(want) {
			t.Errorf("%s: told %v, want %v", profile, rules, want)
		}
	}
}

// R014: what init and ordinary programs do is never notified: nobody waits for us who has not
// been refused something.
func TestReportedWorks(t *testing.T) {
	for _, profile := range Profiles {
		out, told := reported(t, "works", profile)
		if out != "" || len(told) > 0 {
			t.Errorf("%s: told %+v, and the program says:\n%s", profile, told, out)
		}
	}
}

// What the profile for builds is for, and what it leaves out.
func TestBuilds(t *testing.T) {
	for profile, want := range map[string]map[string]string{
		"default": {"no randomization": "EPERM", "i686": "EPERM", "message queue": "ok", "fifo": "ok", "shared memory": "ok", "attribute": "ok"},
		"build":   {"no randomization": "ok", "i686": "ok", "message queue": "ok", "fifo": "ok", "shared memory": "ENOSYS", "attribute": "ENOSYS"},
		"strict":  {"no randomization": "EPERM", "i686": "EPERM", "message queue": "ENOSYS", "fifo": "EPERM", "shared memory": "ENOSYS", "attribute": "ENOSYS"},
	} {
		if got := answers(t, "builds", profile); !maps.Equal(got, want) {
			t.Errorf("%s: %v, want %v", profile, got, want)
		}
	}
}

// T046: no process inside gets a listener, not when the supervisor's has been closed either. Of
// two filters that notify, the newer is asked, and may let the call continue: with a filter that does
// not refuse listeners, the refused call is carried out (the negative control).
func TestNoListenerInside(t *testing.T) {
	for _, profile := range Profiles {
		if got := child(t, "listener", profile); got != "ENOSYS\n" {
			t.Errorf("%s: %s", profile, got)
		}
		if got, _ := reported(t, "listener", profile); got != "ENOSYS\n" {
			t.Errorf("%s, with report: %s", profile, got)
		}
	}
	if got := child(t, "forsaken", ""); got != "ENOSYS\nok\n" {
		t.Errorf("a filter that notifies, whose listener is closed: %s", got)
	}
}

func init() {
	roles["builds"] = func() {
		dir := os.Getenv("SECCOMP_TEST_DIR")
		say := func(what string, e error) {
			errno, _ := e.(syscall.Errno)
			fmt.Printf("%s: %s\n", what, name(errno))
		}
		personality := func(p uintptr, program, want string) error {
			if _, _, e := syscall.RawSyscall(unix.SYS_PERSONALITY, p, 0, 0); e != 0 {
				return e
			}
			if out, err := exec.Command("/bin/sh", "-c", program).Output(); err != nil || strings.TrimSpace(string(out)) != want {
				fmt.Printf("%s: %s %v\n", program, out, err)
			}
			return nil
		}
		runtime.LockOSThread()
		say("no randomization", personality(addrNoRandomize, "cat /proc/self/personality", "00040000"))
		say("i686", personality(perLinux32|addrNoRandomize, "uname -m", "i686"))
		queue, _, e := syscall.Syscall(unix.SYS_MSGGET, unix.IPC_PRIVATE, 0o600, 0)
		if say("message queue", e); e == 0 {
			syscall.Syscall(unix.SYS_MSGCTL, queue, unix.IPC_RMID, 0)
		}
		say("fifo", unix.Mkfifo(filepath.Join(dir, "fifo"), 0o600))
		id, err := unix.SysvShmGet(unix.IPC_PRIVATE, 4096, 0o600)
		if say("shared memory", err); err == nil {
			unix.SysvShmCtl(id, unix.IPC_RMID, nil)
		}
		say("attribute", ignoring(unix.Setxattr(dir, "user.x", []byte("1"), 0), unix.ENOTSUP)) // a file system may have none
	}
	roles["listener"] = func() {
		_, e := listener(unix.SYS_ACCT)
		fmt.Println(name(e))
	}
	// The call is getppid: of no effect, and refused by a filter that reports.
	roles["forsaken"] = func() {
		fd, e := listener(unix.SYS_GETPPID)
		if e != 0 {
			fmt.Println(e)
			return
		}
		call := func() { _, _, e := syscall.Syscall(unix.SYS_GETPPID, 0, 0, 0); fmt.Println(name(e)) }
		unix.Close(fd)
		call()
		if fd, e = listener(unix.SYS_GETPPID); e != 0 {
			fmt.Println(e)
			return
		}
		go func() {
			var request [80]byte // struct seccomp_notif, which begins with its id, as the answer does
			if _, _, e := syscall.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SECCOMP_IOCTL_NOTIF_RECV, uintptr(unsafe.Pointer(&request))); e != 0 {
				fmt.Println(e)
			}
			answer := struct {
				id    [8]byte
				value int64
				errno int32
				flags uint32
			}{id: [8]byte(request[:8]), flags: unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE}
			if _, _, e := syscall.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SECCOMP_IOCTL_NOTIF_SEND, uintptr(unsafe.Pointer(&answer))); e != 0 {
				fmt.Println(e)
			}
		}()
		call()
	}
}

// listener puts a filter that notifies one call on every thread.
func listener(nr uint32) (fd int, e syscall.Errno) {
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: nr, Jt: 0, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_USER_NOTIF},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return -1, err.(syscall.Errno)
	}
	const flags = unix.SECCOMP_FILTER_FLAG_NEW_LISTENER | unix.SECCOMP_FILTER_FLAG_TSYNC | unix.SECCOMP_FILTER_FLAG_TSYNC_ESRCH
	r, _, e := syscall.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags, uintptr(unsafe.Pointer(&prog)))
	return int(r), e
}
