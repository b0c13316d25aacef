package guest

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// attacks are what an execution tries on init, and the errno that it gets (T050, T051). Each is tried
// on a process of its own too, where it has to work: the negative control.
var attacks = []struct {
	name string
	try  func(pid int) error
	want syscall.Errno
}{
	{"kill", func(pid int) error { return unix.Kill(pid, 0) }, unix.EPERM},
	{"tgkill", func(pid int) error { return unix.Tgkill(pid, pid, 0) }, unix.EPERM},
	{"pidfd_send_signal", func(pid int) error {
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			return err
		}
		return unix.PidfdSendSignal(fd, 0, nil, 0)
	}, unix.EPERM},
	{"prlimit", func(pid int) error {
		return unix.Prlimit(pid, unix.RLIMIT_CPU, nil, new(unix.Rlimit))
	}, unix.EPERM},
	{"ptrace seize", func(pid int) error {
		_, _, e := syscall.Syscall6(unix.SYS_PTRACE, unix.PTRACE_SEIZE, uintptr(pid), 0, 0, 0, 0)
		return asError(e)
	}, unix.EPERM},
	{"process_vm_readv", func(pid int) error {
		var b [1]byte
		local := []unix.Iovec{{Base: &b[0], Len: 1}}
		_, err := unix.ProcessVMReadv(pid, local, []unix.RemoteIovec{{Base: uintptr(unsafe.Pointer(&b[0])), Len: 1}}, 0)
		if err == unix.EFAULT { // permitted, nothing there
			return nil
		}
		return err
	}, unix.EPERM},
	{"pidfd_getfd", func(pid int) error {
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			return err
		}
		_, err = unix.PidfdGetfd(fd, 0, 0)
		return err
	}, unix.EPERM},
	{"setpriority", func(pid int) error { return unix.Setpriority(unix.PRIO_PROCESS, pid, 19) }, unix.EPERM},
}

// attack is the main function of the attacker. It prints the rows that went wrong.
func attack() {
	runtime.LockOSThread()
	// A process that sleeps until its stdin ends, which is ours to do with as we like.
	r, w, err := os.Pipe()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer w.Close()
	own, err := syscall.ForkExec("/bin/cat", []string{"cat"}, &syscall.ProcAttr{Files: []uintptr{r.Fd(), 1, 2}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer unix.Kill(own, unix.SIGKILL)
	for _, a := range attacks {
		if err := a.try(own); err != nil {
			fmt.Printf("control: %s: %v\n", a.name, err)
		}
		if err := a.try(1); err != a.want {
			fmt.Printf("%s of init: got %v, want %v\n", a.name, err, a.want)
		}
	}
	fmt.Println("done")
}

func TestInitCannotBeTouched(t *testing.T) {
	b := start(t, baseline())
	out, _ := b.output(command(bin+"/attacker", "attack"))
	if strings.TrimSpace(out) != "done" {
		t.Error(out)
	}
}
