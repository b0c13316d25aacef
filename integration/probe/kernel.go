package main

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// zeros is an argument for TIOCSTI (a NUL is typed) and TIOCSETD (the discipline that a terminal has anyway); screen is one for TIOCLINUX: a harmless query.
var zeros, screen = new([4]byte), &[4]byte{6}

// terminal makes a terminal, the controlling one of a session of ours, and sends it the
// request: with its own terminal a process needs no privilege to push input. At is what the argument points to, or nil for
// the number 1: by force.
func terminal(request uint, at *[4]byte) error {
	signal.Ignore(unix.SIGHUP) // what closing the master sends to us
	if _, err := unix.Setsid(); err != nil && err != unix.EPERM {
		return err
	}
	master, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("ptmx: %w", err)
	}
	defer unix.Close(master)
	if err := unix.IoctlSetPointerInt(master, unix.TIOCSPTLCK, 0); err != nil {
		return fmt.Errorf("unlock: %w", err)
	}
	slave, err := unix.IoctlRetInt(master, unix.TIOCGPTPEER) // the argument 0 opens it for reading
	if err != nil {
		return fmt.Errorf("peer: %w", err)
	}
	defer unix.Close(slave)
	if err := unix.IoctlSetInt(slave, unix.TIOCSCTTY, 0); err != nil {
		return fmt.Errorf("ctty: %w", err)
	}
	if at == nil {
		return raw(unix.SYS_IOCTL, uintptr(slave), uintptr(request), 1)
	}
	return raw(unix.SYS_IOCTL, uintptr(slave), uintptr(request), uintptr(unsafe.Pointer(at)))
}

func keyctl([]string) (string, error) {
	_, err := unix.KeyctlGetKeyringID(unix.KEY_SPEC_PROCESS_KEYRING, true)
	return "", err
}

func addKey([]string) (string, error) {
	_, err := unix.AddKey("user", "probe", []byte("x"), unix.KEY_SPEC_PROCESS_KEYRING)
	return "", err
}

func ioUring([]string) (string, error) {
	var params [120]byte // struct io_uring_params
	fd, _, errno := unix.Syscall(unix.SYS_IO_URING_SETUP, 1, uintptr(unsafe.Pointer(&params[0])), 0)
	if errno != 0 {
		return "", errno
	}
	return "", unix.Close(int(fd))
}

// ioUringOpen opens a file through a ring where a filter refuses every openat: the kernel opens it, and no call is made that a filter sees.
func ioUringOpen(args []string) (string, error) {
	runtime.LockOSThread()
	var params [120]byte
	at := func(offset int) uint32 { return binary.NativeEndian.Uint32(params[offset:]) }
	ring, _, errno := unix.Syscall(unix.SYS_IO_URING_SETUP, 1, uintptr(unsafe.Pointer(&params[0])), 0)
	if errno != 0 {
		return "", errno
	}
	// The two queues share a mapping since 5.4. Offsets are of sq_off and cq_off; an entry has 64 bytes, its answer 16.
	const tailOf, arrayOf, answersOf = 40 + 4, 40 + 24, 80 + 20
	queues, err := unix.Mmap(int(ring), 0, int(max(at(arrayOf)+4, at(answersOf)+2*16)), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE)
	if err != nil {
		return "", err
	}
	entry, err := unix.Mmap(int(ring), 0x10000000, 64, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE)
	if err != nil {
		return "", err
	}
	path, err := unix.BytePtrFromString(args[0])
	if err != nil {
		return "", err
	}
	entry[0] = 18 // IORING_OP_OPENAT
	here := int32(unix.AT_FDCWD)
	binary.NativeEndian.PutUint32(entry[4:], uint32(here))
	binary.NativeEndian.PutUint64(entry[16:], uint64(uintptr(unsafe.Pointer(path))))
	binary.NativeEndian.PutUint32(queues[at(arrayOf):], 0)
	atomic.StoreUint32((*uint32)(unsafe.Pointer(&queues[at(tailOf)])), 1)
	if err := refuseOpenat(); err != nil {
		return "", err
	}
	if err := open(args[0], unix.O_RDONLY); err != unix.EXDEV {
		return "", fmt.Errorf("with the filter: %w", err)
	}
	_, _, errno = unix.Syscall6(unix.SYS_IO_URING_ENTER, ring, 1, 1, 1, 0, 0) // one is submitted, and waited for
	runtime.KeepAlive(path)
	if errno != 0 {
		return "", errno
	}
	if res := int32(binary.NativeEndian.Uint32(queues[at(answersOf)+8:])); res < 0 {
		return "", syscall.Errno(-res)
	}
	return "", nil
}

// refuseOpenat has the thread's openat fail with an error that it never has otherwise.
func refuseOpenat() error {
	program := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0}, // the number of the call
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_OPENAT, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EXDEV)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	return raw(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]})))
}

func bpf([]string) (string, error) {
	attr := struct{ kind, key, value, entries, flags uint32 }{2, 4, 4, 1, 0} // an array of one
	fd, _, errno := unix.Syscall(unix.SYS_BPF, 0, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr))
	if errno != 0 {
		return "", errno
	}
	return "", unix.Close(int(fd))
}

func perf([]string) (string, error) {
	attr := unix.PerfEventAttr{Type: unix.PERF_TYPE_SOFTWARE, Config: unix.PERF_COUNT_SW_DUMMY, Size: uint32(unsafe.Sizeof(unix.PerfEventAttr{}))}
	fd, err := unix.PerfEventOpen(&attr, 0, -1, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if err != nil {
		return "", err
	}
	return "", unix.Close(fd)
}

func userfaultfd([]string) (string, error) {
	fd, _, errno := unix.Syscall(unix.SYS_USERFAULTFD, unix.O_CLOEXEC|1, 0, 0) // 1: UFFD_USER_MODE_ONLY
	if errno != 0 {
		return "", errno
	}
	return "", unix.Close(int(fd))
}

func syslog([]string) (string, error) {
	_, err := unix.Klogctl(10, nil) // SYSLOG_ACTION_SIZE_BUFFER
	return "", err
}

func nameToHandle(args []string) (string, error) {
	_, _, err := unix.NameToHandleAt(unix.AT_FDCWD, args[0], 0)
	return "", err
}

// families are address families that a session has no use for, each with a type and a protocol that it has.
var families = map[string][3]int{
	"vsock": {unix.AF_VSOCK, unix.SOCK_STREAM, 0}, "packet": {unix.AF_PACKET, unix.SOCK_RAW, 0}, "alg": {unix.AF_ALG, unix.SOCK_SEQPACKET, 0},
	"xdp": {unix.AF_XDP, unix.SOCK_RAW, 0}, "raw": {unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP}, "netlink": {unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_NETFILTER},
	"key": {unix.AF_KEY, unix.SOCK_RAW, pfKeyV2}, "inet": {unix.AF_INET, unix.SOCK_STREAM, 0},
}

const pfKeyV2 = 2 // PF_KEY_V2, RFC 2367

func socket(args []string) (string, error) {
	f := families[args[0]]
	fd, err := unix.Socket(f[0], f[1]|unix.SOCK_CLOEXEC, f[2])
	if err != nil {
		return "", err
	}
	return "", unix.Close(fd)
}

func connectTCP(args []string) (string, error) { return connect("tcp", args[0]) }

func connectAbstract(args []string) (string, error) { return connect("unix", "@"+args[0]) }

func connectPath(args []string) (string, error) { return connect("unix", args[0]) }

// ask asks a supervisor for its version, and gives the status of the answer.
func ask(args []string) (string, error) {
	c, err := net.Dial("unix", args[0])
	if err != nil {
		return "", err
	}
	defer c.Close()
	if _, err := io.WriteString(c, "GET /v1/version HTTP/1.0\r\n\r\n"); err != nil {
		return "", err
	}
	var protocol, status string
	_, err = fmt.Fscan(c, &protocol, &status)
	return status, err
}

func connect(network, address string) (string, error) {
	c, err := net.Dial(network, address)
	if err != nil {
		return "", err
	}
	return "", c.Close()
}

// shm looks for a segment of shared memory by its key.
func shm(args []string) (string, error) {
	return "", raw(unix.SYS_SHMGET, uintptr(number(args[0])), 0, 0)
}

// makeShm makes a segment that lives until somebody removes it, or its namespace.
func makeShm(args []string) (string, error) {
	return "", raw(unix.SYS_SHMGET, uintptr(number(args[0])), 4096, unix.IPC_CREAT|0o600)
}

// makeSem and makeMsg make what lives as long.
func makeSem(args []string) (string, error) {
	return "", raw(unix.SYS_SEMGET, uintptr(number(args[0])), 1, unix.IPC_CREAT|0o600)
}

func makeMsg(args []string) (string, error) {
	return "", raw(unix.SYS_MSGGET, uintptr(number(args[0])), unix.IPC_CREAT|0o600, 0)
}

// openMQ opens a message queue of POSIX's, which may be made.
func openMQ(name string, flags uintptr) error {
	path, err := unix.BytePtrFromString(name)
	if err != nil {
		return err
	}
	fd, _, errno := unix.Syscall6(unix.SYS_MQ_OPEN, uintptr(unsafe.Pointer(path)), flags, 0o600, 0, 0, 0)
	if errno != 0 {
		return errno
	}
	return unix.Close(int(fd))
}

// descriptors lists what we were born with. The one that lists is not counted.
func descriptors([]string) (string, error) {
	dir, err := unix.Open("/proc/self/fd", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	f := os.NewFile(uintptr(dir), "fd")
	defer f.Close()
	names, err := f.Readdirnames(-1)
	if err != nil {
		return "", err
	}
	var out []string
	for _, n := range names {
		target, err := os.Readlink("/proc/self/fd/" + n)
		// The runtime of Go makes these two for itself, after we were born.
		if err != nil || number(n) == dir || target == "anon_inode:[eventpoll]" || target == "anon_inode:[eventfd]" {
			continue
		}
		out = append(out, n)
	}
	slices.Sort(out)
	return strings.Join(out, " "), nil
}

func environ([]string) (string, error) {
	var names []string
	for _, kv := range os.Environ() {
		name, _, _ := strings.Cut(kv, "=")
		names = append(names, name)
	}
	slices.Sort(names)
	return strings.Join(names, " "), nil
}

// processes counts the processes that /proc shows and that are neither init, nor we, nor
// our threads.
func processes([]string) (string, error) {
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return "", err
	}
	others := 0
	for _, d := range dirs {
		if pid := number(filepath.Base(d)); pid != 1 && pid != os.Getpid() {
			others++
		}
	}
	return fmt.Sprintf("%d others", others), nil
}

func interfaces([]string) (string, error) {
	list, err := net.Interfaces()
	if err != nil {
		return "", err
	}
	var out []string
	for _, i := range list {
		out = append(out, i.Name)
	}
	return strings.Join(out, " "), nil
}

// writable walks a tree of the kernel's and names the files that open for writing. Nothing
// is written.
func writable(args []string) (string, error) {
	var out []string
	err := filepath.WalkDir(args[0], func(path string, d os.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() && open(path, unix.O_WRONLY) == nil {
			out = append(out, path)
		}
		return nil
	})
	if err != nil {
		return "", err
	}
	if len(out) == 0 {
		return "none", nil
	}
	return strings.Join(out, " "), nil
}
