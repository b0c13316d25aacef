package guest

import (
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// notification is struct seccomp_notif, and response struct seccomp_notif_resp.
type (
	notification struct {
		id    uint64
		pid   uint32
		flags uint32
		nr    int32
		arch  uint32
		ip    uint64
		args  [6]uint64
	}
	response struct {
		id    uint64
		val   int64
		error int32
		flags uint32
	}
)

const (
	notifRecv = 0xc0502100
	notifSend = 0xc0182101
)

// T046: with Report the listener comes to the runner, who answers; inside there is none, on any
// thread the filter is in force, and init has asked nothing that nobody would have answered.
func TestReport(t *testing.T) {
	s, _ := walled(t)
	s.Filter = refusing(unix.SECCOMP_RET_USER_NOTIF, unix.SYS_MKDIR, unix.SYS_MKDIRAT)
	s.Report = true
	b := startRaw(t)
	ready, err := b.Setup(t.Context(), s)
	if err != nil || ready.Listener == nil {
		t.Fatal(ready, err)
	}
	defer ready.Listener.Close()
	if n := received(t, ready.Listener, 0); n != 0 {
		t.Errorf("init has made %d calls that are notified", n)
	}
	for _, task := range glob(t, "/proc/"+strconv.Itoa(b.pid)+"/task/*/status") {
		text, err := os.ReadFile(task)
		if err != nil {
			t.Fatal(err)
		}
		if got := fields(string(text), "Seccomp", "NoNewPrivs"); got["Seccomp"] != "2" || got["NoNewPrivs"] != "1" {
			t.Errorf("%s: %v", task, got)
		}
	}
	if err := ping(t.Context(), b.Conn); err != nil { // it serves, and has let go of the listener before
		t.Error(err)
	}
	for _, fd := range glob(t, "/proc/"+strconv.Itoa(b.pid)+"/fd/*") {
		if to, _ := os.Readlink(fd); strings.Contains(to, "seccomp") {
			t.Errorf("init holds %s: %s", fd, to)
		}
	}
	for _, limits := range [][]Rlimit{nil, {{unix.RLIMIT_CORE, 0, 0}}} {
		cmd := shell("mkdir /tmp/x; ls -l /proc/self/fd")
		cmd.Rlimits = limits
		answered := make(chan int)
		go func() { answered <- answer1(t, ready.Listener, unix.EXDEV) }()
		out, _ := b.output(cmd)
		if nr := <-answered; nr != unix.SYS_MKDIR && nr != unix.SYS_MKDIRAT {
			t.Errorf("call %d was notified", nr)
		}
		if !strings.Contains(out, "Invalid cross-device link") || strings.Contains(out, "seccomp") {
			t.Error(out)
		}
	}
}

// Without Report there is no listener, and nobody to answer: the call is not implemented.
func TestNoReport(t *testing.T) {
	s := baseline()
	s.Filter = refusing(unix.SECCOMP_RET_USER_NOTIF, unix.SYS_MKDIR, unix.SYS_MKDIRAT)
	b := startRaw(t)
	ready, err := b.Setup(t.Context(), s)
	if err != nil || ready.Listener != nil {
		t.Fatal(ready, err)
	}
	if out, _ := b.output(shell("mkdir /tmp/x")); !strings.Contains(out, "Function not implemented") {
		t.Error(out)
	}
}

// received waits for a notification, and returns how many there are: 0 or 1.
func received(t *testing.T, listener *os.File, timeout int) int {
	t.Helper()
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(listener.Fd()), Events: unix.POLLIN}}, timeout)
	if err != nil {
		t.Error(err)
	}
	return n
}

// answer1 answers one notification, and returns the number of its call.
func answer1(t *testing.T, listener *os.File, errno unix.Errno) int {
	if received(t, listener, 10_000) == 0 {
		t.Error("nothing was notified")
		return -1
	}
	var n notification
	if _, _, e := syscall.Syscall(unix.SYS_IOCTL, listener.Fd(), notifRecv, uintptr(unsafe.Pointer(&n))); e != 0 {
		t.Error(e)
	}
	r := response{id: n.id, error: -int32(errno)}
	if _, _, e := syscall.Syscall(unix.SYS_IOCTL, listener.Fd(), notifSend, uintptr(unsafe.Pointer(&r))); e != 0 {
		t.Error(e)
	}
	return int(n.nr)
}
