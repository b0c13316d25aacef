package guest

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
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
		defer unix.Close(fd)
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
		defer unix.Close(fd)
		_, err = unix.PidfdGetfd(fd, 0, 0)
		return err
	}, unix.EPERM},
	{"kcmp", func(pid int) error {
		_, _, e := syscall.Syscall6(unix.SYS_KCMP, uintptr(pid), uintptr(os.Getpid()), 1, 0, 0, 0) // KCMP_VM
		return asError(e)
	}, unix.EPERM},
	{"setpriority", func(pid int) error { return unix.Setpriority(unix.PRIO_PROCESS, pid, 19) }, unix.EPERM},
}

// tricks are what else the attacker can be told to do, where no program of the host's does it.
var tricks = map[string]func(arg string) error{
	"truncate": func(path string) error { return unix.Truncate(path, 1) },
	"connect": func(name string) error {
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
		if err != nil {
			return err
		}
		return unix.Connect(fd, &unix.SockaddrUnix{Name: "@" + name})
	},
	"listen": func(name string) error {
		if err := listenAbstract(name); err != nil {
			return err
		}
		fmt.Println("listening")
		time.Sleep(time.Hour)
		return nil
	},
	// Every attack on init, again and again, until stdin ends.
	"again": func(string) error {
		runtime.LockOSThread()
		ended := make(chan struct{})
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin)
			close(ended)
		}()
		for rounds := 0; ; rounds++ {
			for _, a := range attacks {
				if err := a.try(1); err != a.want {
					return fmt.Errorf("%s of init: got %v, want %v", a.name, err, a.want)
				}
			}
			select {
			case <-ended:
				fmt.Println(rounds, "rounds")
				return nil
			default:
			}
		}
	},
}

func listenAbstract(name string) error {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: "@" + name}); err != nil {
		return err
	}
	return unix.Listen(fd, 8)
}

// attack is the main function of the attacker. It prints the rows that went wrong.
func attack() {
	if len(os.Args) > 3 {
		if err := tricks[os.Args[2]](os.Args[3]); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		return
	}
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

// T050: the same while executions enter, 500 of them: each is init's memory until it executes (CVE-2016-9962).
func TestInitCannotBeTouchedMeanwhile(t *testing.T) {
	b := start(t, baseline())
	stdin, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer stdin.Close()
	r, stdout, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	p, err := b.Spawn(t.Context(), command(bin+"/attacker", "attack", "again", ""), Streams{Stdin: stdin, Stdout: stdout, Stderr: stdout})
	stdout.Close()
	if err != nil {
		t.Fatal(err)
	}
	for range 500 {
		<-b.spawn(command("/bin/true")).Exited
	}
	w.Close()
	out, err := io.ReadAll(r)
	if e := <-p.Exited; err != nil || e.Status != 0 || string(out) == "0 rounds\n" {
		t.Errorf("%s, %#x, %v", out, e.Status, err)
	}
}
