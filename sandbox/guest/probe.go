package guest

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// What the canaries do. Whatever succeeds is undone, and ends with the process that tries.

// errEmpty is the end of reading what has nothing in it.
var errEmpty = errors.New("empty")

// tryWrite makes a file in a directory, or touches a file.
func tryWrite(path string) error {
	if err := makeFile(path); err != unix.ENOTDIR {
		return err
	}
	return unix.UtimesNanoAt(unix.AT_FDCWD, path, nil, 0)
}

func tryOpen(path string) error {
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err == nil {
		unix.Close(fd)
	}
	return err
}

// tryRead reads from a file, or lists a directory. What does not exist shows nothing either.
func tryRead(path string) error {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err == unix.ENOENT {
		return errEmpty
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var b [1024]byte
	n, err := unix.Read(fd, b[:])
	if err == unix.EISDIR {
		if n, err = unix.Getdents(fd, b[:]); err == nil {
			n = len(names(b[:n]))
		}
	}
	if err == nil && n == 0 {
		return errEmpty
	}
	return err
}

// names are those in the answer of getdents.
func names(dirents []byte) []string {
	_, _, names := unix.ParseDirent(dirents, -1, nil)
	return names
}

// tryMknod makes the node of /dev/mem.
func tryMknod(dir string) error {
	name := dir + "/stockade-proof"
	if err := unix.Mknod(name, unix.S_IFCHR|0o600, int(unix.Mkdev(1, 1))); err != nil {
		return err
	}
	return unix.Unlink(name)
}

func tryKeyctl(string) error {
	_, err := unix.KeyctlGetKeyringID(unix.KEY_SPEC_PROCESS_KEYRING, true)
	return err
}

func tryIOUring(string) error { return invoke(unix.SYS_IO_URING_SETUP, 1, 0) }

// tryBPF asks for what no kernel knows: who may load programs is not asked first, which many hosts refuse to everybody.
func tryBPF(string) error { return invoke(unix.SYS_BPF, 1<<16, 0) }

// invoke makes a system call that cannot succeed.
func invoke(trap, a1, a2 uintptr) error {
	_, _, e := syscall.Syscall(trap, a1, a2, 0)
	return asError(e)
}

func trySetID(string) error {
	fd, err := unix.MemfdCreate("canary", unix.MFD_CLOEXEC)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Fchmod(fd, 0o600|unix.S_ISUID)
}

// tryVsock asks for it with a flag that there is not, which every kernel refuses before it looks whether it has the family.
func tryVsock(string) error {
	fd, err := unix.Socket(unix.AF_VSOCK, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|1<<16, 0)
	if err == nil {
		unix.Close(fd)
	}
	return err
}

func tryMount(string) error { return unix.Mount("canary", "/", "tmpfs", 0, "") }

func tryUnshare(string) error { return unix.Unshare(unix.CLONE_NEWUSER) }

// tryClone3 makes a process in a user namespace of its own, which ends at once.
func tryClone3(string) error {
	args := struct{ flags, pidfd, childTID, parentTID, exitSignal, stack, stackSize, tls uint64 }{
		flags: unix.CLONE_NEWUSER, exitSignal: uint64(unix.SIGCHLD),
	}
	pid, _, e := syscall.RawSyscall(unix.SYS_CLONE3, uintptr(unsafe.Pointer(&args)), unsafe.Sizeof(args), 0)
	if e != 0 {
		return e
	}
	if pid == 0 {
		syscall.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
	}
	_, err := syscall.Wait4(int(pid), nil, 0, nil)
	return err
}

func tryCapset(string) error { return capset(thisThread, 1<<unix.CAP_SYS_ADMIN, 0) }

func tryRaise(string) error {
	var now unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &now); err != nil {
		return err
	}
	return unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: now.Cur, Max: now.Max + 1})
}

func tryKill(pid string) error {
	n, err := strconv.Atoi(pid)
	if err != nil {
		return err
	}
	return unix.Kill(n, 0)
}

func tryTrace(pid string) error {
	n, err := strconv.Atoi(pid)
	if err != nil {
		return err
	}
	return invoke(unix.SYS_PTRACE, unix.PTRACE_SEIZE, uintptr(n))
}

// tryInterfaces looks for an interface that is up beyond the loopback: without one there is no way out, whatever a connection
// ends with. Some kernels have more in every namespace, which are down.
func tryInterfaces(string) error {
	data, err := os.ReadFile("/proc/self/net/dev")
	if err != nil {
		return err
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	for line := range strings.Lines(string(data)) {
		name, _, ok := strings.Cut(strings.TrimSpace(line), ":")
		if !ok || name == "lo" {
			continue
		}
		flags, err := unix.NewIfreq(name)
		if err != nil {
			return err
		}
		if err := unix.IoctlIfreq(fd, unix.SIOCGIFFLAGS, flags); err != nil {
			return err
		}
		if flags.Uint16()&unix.IFF_UP != 0 {
			return nil
		}
	}
	return errEmpty
}

// connectPatience is how long a connection to nowhere may take to be refused.
const connectPatience = time.Second

// tryConnect connects to an address of TEST-NET-1. A relay refuses what it has accepted by ending it.
func tryConnect(string) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	patience := unix.NsecToTimeval(int64(connectPatience))
	for _, option := range []int{unix.SO_SNDTIMEO, unix.SO_RCVTIMEO} {
		if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, option, &patience); err != nil {
			return err
		}
	}
	switch err := unix.Connect(fd, &unix.SockaddrInet4{Port: 80, Addr: [4]byte{192, 0, 2, 1}}); err {
	case nil:
	case unix.ECONNRESET: // the relay was faster than we are
		return unix.ECONNREFUSED
	default:
		return err
	}
	var b [1]byte
	n, err := unix.Read(fd, b[:])
	if n == 0 && err == nil || err == unix.ECONNRESET {
		return unix.ECONNREFUSED
	}
	return nil // there is somebody
}

// tryFork makes one process more than the number, unless it is refused one. Each waits for
// the end of file.
func tryFork(number string) error {
	most, err := strconv.Atoi(number)
	if err != nil {
		return err
	}
	var ends [2]int
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC); err != nil {
		return err
	}
	var pids []int
	for len(pids) <= most && err == nil {
		pid, _, e := syscall.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
		switch {
		case e != 0:
			err = e
		case pid == 0:
			// One thread of the runtime's is here: nothing but system calls.
			var b [1]byte
			syscall.RawSyscall(unix.SYS_CLOSE, uintptr(ends[1]), 0, 0)
			syscall.RawSyscall(unix.SYS_READ, uintptr(ends[0]), uintptr(unsafe.Pointer(&b)), 1)
			syscall.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
		default:
			pids = append(pids, int(pid))
		}
	}
	unix.Close(ends[1])
	unix.Close(ends[0])
	for _, pid := range pids {
		if _, err := syscall.Wait4(pid, nil, 0, nil); err != nil {
			return err
		}
	}
	return err
}
