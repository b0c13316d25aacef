package main

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

func ptrace(args []string) (string, error) {
	runtime.LockOSThread() // the tracer is a thread
	pid := number(args[0])
	if err := unix.PtraceSeize(pid); err != nil {
		return "", err
	}
	return "", nil // detached by our end
}

func prlimit(args []string) (string, error) {
	var old unix.Rlimit
	if err := unix.Prlimit(number(args[0]), unix.RLIMIT_NOFILE, nil, &old); err != nil {
		return "", err
	}
	return "", unix.Prlimit(number(args[0]), unix.RLIMIT_NOFILE, &old, nil)
}

func vmRead(args []string) (string, error) {
	buf := make([]byte, 1)
	local := []unix.Iovec{{Base: &buf[0], Len: 1}}
	remote := []unix.RemoteIovec{{Base: uintptr(0x400000), Len: 1}} // where our static binaries are linked
	_, err := unix.ProcessVMReadv(number(args[0]), local, remote, 0)
	if errors.Is(err, unix.EFAULT) {
		return "", nil // past the permission check
	}
	return "", err
}

func pidfdGet(args []string) (string, error) {
	pidfd, err := unix.PidfdOpen(number(args[0]), 0)
	if err != nil {
		return "", err
	}
	fd, err := unix.PidfdGetfd(pidfd, 0, 0)
	if err != nil {
		return "", err
	}
	return "", unix.Close(fd)
}

// execute starts a program; how it ends does not matter.
func execute(path string) error {
	cmd := exec.Command(path)
	if err := cmd.Start(); err != nil {
		return err
	}
	cmd.Wait()
	return nil
}

// crash has a command crash in a directory, with as much of a core as it may have.
func crash(args []string) (string, error) {
	cmd := exec.Command("/bin/sh", "-c", "ulimit -c unlimited; kill -SEGV $$")
	cmd.Dir = args[0]
	var ended *exec.ExitError
	if err := cmd.Run(); !errors.As(err, &ended) {
		return "", err
	}
	ws := ended.Sys().(syscall.WaitStatus)
	switch {
	case ws.CoreDump():
		return "core", nil
	case ws.Signal() == unix.SIGSEGV:
		return "no core", nil
	}
	return "", ended
}

// flags are the namespaces by name.
var flags = map[string]uintptr{
	"user": unix.CLONE_NEWUSER, "mnt": unix.CLONE_NEWNS, "pid": unix.CLONE_NEWPID, "net": unix.CLONE_NEWNET,
	"ipc": unix.CLONE_NEWIPC, "uts": unix.CLONE_NEWUTS, "cgroup": unix.CLONE_NEWCGROUP, "time": unix.CLONE_NEWTIME,
}

// child runs one system call in a process of its own with a single thread: several namespaces
// refuse a caller that has more, and ours has. The child only makes raw system calls,
// as it may, and its exit status is the error.
//
//go:norace
func child(nr, a, b uintptr) error {
	pid, _, errno := unix.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
	if errno != 0 {
		return errno
	}
	if pid == 0 {
		_, _, errno = unix.RawSyscall(nr, a, b, 0)
		for {
			unix.RawSyscall(unix.SYS_EXIT_GROUP, uintptr(errno), 0, 0)
		}
	}
	return reaped(int(pid))
}

// reaped waits for a child whose exit status is an errno.
func reaped(pid int) error {
	var ws unix.WaitStatus
	if _, err := unix.Wait4(pid, &ws, unix.WALL, nil); err != nil {
		return err
	}
	if ws.Signaled() {
		return errors.New("signal " + ws.Signal().String())
	}
	if n := ws.ExitStatus(); n != 0 {
		return syscall.Errno(n)
	}
	return nil
}

func unshare(args []string) (string, error) { return "", child(unix.SYS_UNSHARE, flags[args[0]], 0) }

// setns enters a namespace that we are in already, which takes the same right.
func setns(args []string) (string, error) {
	fd, err := unix.Open("/proc/self/ns/"+args[0], unix.O_RDONLY, 0)
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	return "", child(unix.SYS_SETNS, uintptr(fd), flags[args[0]])
}

//go:norace
func clone(args []string) (string, error) {
	flag := flags[args[0]]
	pid, _, errno := unix.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD)|flag, 0, 0, 0, 0, 0)
	if errno != 0 {
		return "", errno
	}
	if pid == 0 {
		for {
			unix.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
		}
	}
	return "", reaped(int(pid))
}

// cloneArgs is struct clone_args of the kernel, version 2.
type cloneArgs struct {
	flags, pidfd, childTID, parentTID, exitSignal, stack, stackSize, tls, setTID, setTIDSize, cgroup uint64
}

func clone3(args []string) (string, error) {
	return "", clone3With(&cloneArgs{flags: uint64(flags[args[0]]), exitSignal: uint64(unix.SIGCHLD)})
}

//go:norace
func clone3With(ca *cloneArgs) error {
	pid, _, errno := unix.RawSyscall(unix.SYS_CLONE3, uintptr(unsafe.Pointer(ca)), unsafe.Sizeof(*ca), 0)
	if errno != 0 {
		return errno
	}
	if pid == 0 {
		for {
			unix.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
		}
	}
	return reaped(int(pid))
}

// cloneIntoCgroup is born into the group that a directory is.
func cloneIntoCgroup(args []string) (string, error) {
	fd, err := unix.Open(args[0], unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	return "", clone3With(&cloneArgs{flags: unix.CLONE_INTO_CGROUP, exitSignal: uint64(unix.SIGCHLD), cgroup: uint64(fd)})
}

func mountTmpfs(args []string) (string, error) {
	return "", unix.Mount("none", args[0], "tmpfs", 0, "")
}

func pivotRoot(args []string) (string, error) {
	if err := os.Chdir(args[0]); err != nil {
		return "", err
	}
	return "", unix.PivotRoot(".", ".")
}

func fsopen([]string) (string, error) {
	fd, err := unix.Fsopen("tmpfs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return "", err
	}
	return "", unix.Close(fd)
}

func openTree(args []string) (string, error) {
	fd, err := unix.OpenTree(unix.AT_FDCWD, args[0], unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return "", err
	}
	return "", unix.Close(fd)
}

// mountSetattr takes the read-only flag off a mount.
func mountSetattr(args []string) (string, error) {
	return "", unix.MountSetattr(unix.AT_FDCWD, args[0], 0, &unix.MountAttr{Attr_clr: unix.MOUNT_ATTR_RDONLY})
}

// wait is somebody upon whom attempts are made; it ends with its input.
func wait([]string) (string, error) {
	_, err := io.Copy(io.Discard, os.Stdin)
	return "", err
}

// writeWorker tries for a while to write to the memory of whoever serves file tools, from its first moment on, and has it started again by
// killing it: SECONDS. Most of them die while they start, and each tenth has the time to serve. It answers "ok" when it could.
func writeWorker(args []string) (string, error) {
	const early, late = 50, 1000 // tries
	tried, killed, until, self := 0, 0, early, os.Getpid()
	for end := time.Now().Add(time.Duration(number(args[0])) * time.Second); time.Now().Before(end); {
		entries, err := os.ReadDir("/proc")
		if err != nil {
			return "", err
		}
		for _, e := range entries {
			pid, err := strconv.Atoi(e.Name())
			if err != nil || pid == 1 || pid == self {
				continue
			}
			// By what it executes: a command that is about to be one is looked at as well.
			mem, err := unix.Open("/proc/"+e.Name()+"/mem", unix.O_RDWR|unix.O_CLOEXEC, 0)
			line, _ := os.ReadFile("/proc/" + e.Name() + "/cmdline")
			if !strings.HasPrefix(string(line), "stockade-init\x00files") {
				unix.Close(mem)
				continue
			}
			if err == nil {
				return "ok", nil
			}
			if tried++; tried < until {
				continue
			}
			unix.Kill(pid, unix.SIGKILL)
			if killed++; killed%10 == 0 {
				until = tried + late
			} else {
				until = tried + early
			}
		}
	}
	if tried == 0 {
		return "none seen", nil
	}
	return "", unix.EACCES
}

// aim sends SIGTERM to a process in one of the ways that there are. The last of them says nothing where it is not permitted.
func aim(args []string) (string, error) { return "", ways[args[0]](number(args[1])) }

var ways = map[string]func(pid int) error{
	"kill":   func(pid int) error { return unix.Kill(pid, unix.SIGTERM) },
	"tgkill": func(pid int) error { return unix.Tgkill(pid, pid, unix.SIGTERM) },
	"sigqueue": func(pid int) error {
		info := [128]byte{}
		*(*[3]int32)(unsafe.Pointer(&info)) = [3]int32{int32(unix.SIGTERM), 0, -1} // signal, errno, SI_QUEUE
		return raw(unix.SYS_RT_SIGQUEUEINFO, uintptr(pid), uintptr(unix.SIGTERM), uintptr(unsafe.Pointer(&info)))
	},
	"pidfd": func(pid int) error {
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		return unix.PidfdSendSignal(fd, unix.SIGTERM, nil, 0)
	},
	"sigio": func(pid int) error {
		pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(pair[0])
		defer unix.Close(pair[1])
		for _, set := range []struct{ what, to int }{{unix.F_SETSIG, int(unix.SIGTERM)}, {unix.F_SETOWN, pid}, {unix.F_SETFL, unix.O_ASYNC}} {
			if _, err := unix.FcntlInt(uintptr(pair[0]), set.what, set.to); err != nil {
				return err
			}
		}
		_, err = unix.Write(pair[1], []byte{0})
		return err
	},
}

// pdeathsig has a child that asks for a signal at the end of its parent, which is a thread of ours, and tells what the child ended of.
func pdeathsig([]string) (string, error) {
	cmd := exec.Command("/proc/self/exe", "sleep")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGTERM}
	began := make(chan error)
	runtime.LockOSThread() // the main thread, which does not end
	go func() {
		runtime.LockOSThread() // and never unlocked: it ends with us
		began <- cmd.Start()
	}()
	if err := <-began; err != nil {
		return "", err
	}
	var ended *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &ended) {
		return "", err
	}
	return ended.Sys().(syscall.WaitStatus).Signal().String(), nil
}
