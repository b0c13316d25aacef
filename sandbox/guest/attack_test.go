package guest

import (
	"bufio"
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
	// Every attack on init, and on who is entering, again and again, until stdin ends.
	"again": func(string) error {
		return untilStdinEnds(1, func() error {
			for _, a := range attacks {
				if err := a.try(1); err != a.want {
					return fmt.Errorf("%s of init: got %v, want %v", a.name, err, a.want)
				}
			}
			return nil
		})
	},
	// On who enters from somebody else than init.
	"again-from": func(starter string) error {
		pid, err := strconv.Atoi(starter)
		if err != nil {
			return err
		}
		return untilStdinEnds(pid, func() error { return nil })
	},
	// Executions by somebody who lets others read his memory, until stdin ends.
	"careless": func(string) error {
		fmt.Println(os.Getpid())
		for ended := stdinEnds(); ; {
			select {
			case <-ended:
				return nil
			default:
			}
			if err := exec.Command("/bin/true").Run(); err != nil {
				return err
			}
		}
	},
}

// untilStdinEnds makes attempts, and each time upon who is entering, too. It says the first time that it has met one, and what came of it in the end.
func untilStdinEnds(starter int, attempt func() error) error {
	runtime.LockOSThread()
	e, err := newEntering(starter)
	if err != nil {
		return err
	}
	met := false
	ended := stdinEnds()
	for rounds := 1; ; rounds++ {
		if err := attempt(); err != nil {
			return err
		}
		if err := e.look(); err != nil {
			return err
		}
		if !met && e.refused+e.read > 0 {
			met = true
			fmt.Println("met")
		}
		select {
		case <-ended:
			fmt.Printf("%d rounds, %d refused, %d read\n", rounds, e.refused, e.read)
			return nil
		default:
		}
	}
}

func stdinEnds() <-chan struct{} {
	ended := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(ended)
	}()
	return ended
}

// entering is who was started last and still has the memory of who starts him (CVE-2016-9962). By the time that he is a program of the
// host's there is nothing at the address: only our static programs are linked there.
type entering struct {
	starter       int
	loadavg       int // its last word is the last pid that was given out in the namespace of who asks
	refused, read int
}

func newEntering(starter int) (*entering, error) {
	fd, err := unix.Open("/proc/loadavg", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	return &entering{starter: starter, loadavg: fd}, err
}

func (e *entering) look() error {
	var text [128]byte
	n, err := unix.Pread(e.loadavg, text[:], 0)
	if err != nil {
		return fmt.Errorf("loadavg: %w", err)
	}
	words := strings.Fields(string(text[:n]))
	last, err := strconv.Atoi(words[len(words)-1])
	if err != nil {
		return err
	}
	for pid := last; pid > max(1, last-4); pid-- {
		if e.thread(pid) {
			continue
		}
		var b [1]byte
		local := []unix.Iovec{{Base: &b[0], Len: 1}}
		_, err := unix.ProcessVMReadv(pid, local, []unix.RemoteIovec{{Base: 0x400000, Len: 1}}, 0)
		switch err {
		case nil:
			if !e.thread(pid) { // it had a number before it was one
				e.read++
			}
		case unix.EPERM:
			e.refused++
		case unix.ESRCH, unix.EFAULT: // it has ended, or is a program of the host's
		default:
			return fmt.Errorf("process_vm_readv of %d: %w", pid, err)
		}
	}
	return nil
}

// thread says whether that is one of ours, or of the starter's.
func (e *entering) thread(pid int) bool {
	return unix.Tgkill(os.Getpid(), pid, 0) != unix.ESRCH || unix.Tgkill(e.starter, pid, 0) != unix.ESRCH
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

// T050: the same while executions enter, and upon them: each has init's memory until it executes (CVE-2016-9962). Control: of executions
// whose starter does nothing about it, the memory is read in the same way.
func TestInitCannotBeTouchedMeanwhile(t *testing.T) {
	b := start(t, baseline())
	n := rounds(t)
	attacker := b.begin(command(bin+"/attacker", "attack", "again", ""))
	executions, nothing := 0, null(t)
	for end := time.Now().Add(patience); executions < n || !attacker.said("met") && time.Now().Before(end); executions++ {
		p, err := b.Spawn(t.Context(), command("/bin/true"), Streams{Stdin: nothing, Stdout: nothing, Stderr: nothing})
		if err != nil {
			t.Fatal(err)
		}
		<-p.Exited
	}
	var rounds, refused, read int
	said := attacker.end()
	if _, err := fmt.Sscanf(said, "met\n%d rounds, %d refused, %d read", &rounds, &refused, &read); err != nil || refused == 0 || read > 0 {
		t.Errorf("%q, %v", said, err)
	}
	t.Logf("%d executions, %d rounds of attacks, %d looks at who was on his way in", executions, rounds, refused)

	careless := b.begin(command(bin+"/attacker", "attack", "careless", ""))
	attacker = b.begin(command(bin+"/attacker", "attack", "again-from", careless.line()))
	for end := time.Now().Add(patience); !attacker.said("met") && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	said = attacker.end()
	if _, err := fmt.Sscanf(said, "met\n%d rounds, %d refused, %d read", &rounds, &refused, &read); err != nil || read == 0 {
		t.Errorf("control: %q, %v", said, err)
	}
	t.Logf("control: %d read", read)
	careless.end()
}

// rounds is how many rounds of a race are run.
func rounds(t *testing.T) int {
	if os.Getenv("STOCKADE_ROUNDS") == "" {
		return 500
	}
	n, err := strconv.Atoi(os.Getenv("STOCKADE_ROUNDS"))
	if err != nil || n < 1 {
		t.Fatalf("STOCKADE_ROUNDS: %q", os.Getenv("STOCKADE_ROUNDS"))
	}
	return n
}

// patience is how long what has to happen once in a while is waited for, because others may have the machine.
const patience = 2 * time.Minute

// beginning is an execution that ends with its input, and what it has written so far.
type beginning struct {
	t     testing.TB
	p     *Process
	stdin *os.File
	ended chan struct{} // it writes no more
	mu    sync.Mutex
	text  string
}

func (b *box) begin(cmd Command) *beginning {
	b.t.Helper()
	stdin, w, err := os.Pipe()
	if err != nil {
		b.t.Fatal(err)
	}
	defer stdin.Close()
	b.t.Cleanup(func() { w.Close() })
	r, stdout, err := os.Pipe()
	if err != nil {
		b.t.Fatal(err)
	}
	defer stdout.Close()
	p, err := b.Spawn(b.t.Context(), cmd, Streams{Stdin: stdin, Stdout: stdout, Stderr: stdout})
	if err != nil {
		b.t.Fatal(err)
	}
	x := &beginning{t: b.t, p: p, stdin: w, ended: make(chan struct{})}
	go func() {
		defer close(x.ended)
		defer r.Close()
		for lines := bufio.NewReader(r); ; {
			line, err := lines.ReadString('\n')
			x.mu.Lock()
			x.text += line
			x.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	return x
}

// said reports whether it has written this, or writes no more.
func (x *beginning) said(word string) bool {
	select {
	case <-x.ended:
		return true
	default:
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	return strings.Contains(x.text, word)
}

// line waits for its first line.
func (x *beginning) line() string {
	x.t.Helper()
	for end := time.Now().Add(patience); !x.said("\n"); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			x.t.Fatal("it writes nothing")
		}
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	first, _, _ := strings.Cut(x.text, "\n")
	return first
}

// end ends it, and is all that it wrote.
func (x *beginning) end() string {
	x.t.Helper()
	x.stdin.Close()
	<-x.ended
	if e := <-x.p.Exited; e.Status != 0 {
		x.t.Errorf("%q, %#x", x.text, e.Status)
	}
	return x.text
}
