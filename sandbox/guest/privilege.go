package guest

import (
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// scope is the set of threads that a system call changes. Credentials belong to threads.
type scope func(trap, a1, a2, a3 uintptr) (r1, r2 uintptr, err syscall.Errno)

var (
	thisThread scope = syscall.RawSyscall
	allThreads scope = syscall.AllThreadsSyscall // without cgo only
)

// capset sets the effective and permitted sets to held and the inheritable set to
// inheritable. What leaves the inheritable set leaves the ambient set too.
func capset(threads scope, held, inheritable uint64) error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	data := [2]unix.CapUserData{
		{Effective: uint32(held), Permitted: uint32(held), Inheritable: uint32(inheritable)},
		{Effective: uint32(held >> 32), Permitted: uint32(held >> 32), Inheritable: uint32(inheritable >> 32)},
	}
	_, _, err := threads(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&data)), 0)
	runtime.KeepAlive(&header)
	runtime.KeepAlive(&data)
	return asError(err)
}

// setgroups sets the supplementary groups of the calling thread.
func setgroups(groups []uint32) error {
	var first *uint32
	if len(groups) > 0 {
		first = &groups[0]
	}
	_, _, err := syscall.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(groups)), uintptr(unsafe.Pointer(first)), 0)
	return asError(err)
}

// setfsuid and setfsgid change the calling thread. The system calls return the old id
// and never an error; asking for the impossible -1 shows what is in force.
func setfsuid(id uint32) error { return setfs(unix.SYS_SETFSUID, id) }
func setfsgid(id uint32) error { return setfs(unix.SYS_SETFSGID, id) }

func setfs(trap uintptr, id uint32) error {
	syscall.RawSyscall(trap, uintptr(id), 0, 0)
	now, _, _ := syscall.RawSyscall(trap, uintptr(^uint32(0)), 0, 0)
	if uint32(now) != id {
		return syscall.EPERM
	}
	return nil
}

// bound drops from the calling thread's bounding set whatever is not kept.
func bound(keep uint64) error {
	return eachCapability(func(c uintptr, bit uint64) error {
		if keep&bit != 0 {
			return nil
		}
		return unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0)
	})
}

// raiseAmbient makes execve keep the capabilities.
func raiseAmbient(caps uint64) error {
	return eachCapability(func(c uintptr, bit uint64) error {
		if caps&bit == 0 {
			return nil
		}
		return unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_RAISE, c, 0, 0)
	})
}

// eachCapability calls do for every capability of this kernel.
func eachCapability(do func(c uintptr, bit uint64) error) error {
	for c := uintptr(0); c < 64; c++ {
		switch _, err := inBounds(c); err {
		case nil:
		case syscall.EINVAL: // past the last
			return nil
		default:
			return err
		}
		if err := do(c, 1<<c); err != nil {
			return err
		}
	}
	return nil
}

func inBounds(c uintptr) (bool, error) {
	r, _, err := syscall.RawSyscall(unix.SYS_PRCTL, unix.PR_CAPBSET_READ, c, 0)
	return r == 1, asError(err)
}

// securebits, from linux/securebits.h, which x/sys does not have. Uid 0 is like any other
// to execve, and no capability becomes ambient any more. The fix-up of setuid stays as
// programs expect it. Everything is locked.
const securebits = 1<<0 | 1<<1 | // NOROOT, locked
	1<<3 | // NO_SETUID_FIXUP locked, unset
	1<<5 | // KEEP_CAPS locked, unset
	1<<6 | 1<<7 // NO_CAP_AMBIENT_RAISE, locked

// idleThreads is how many threads init makes ahead of need: the runtime ends the process
// when it cannot make one, and a fork bomb may hold every pid by then.
const idleThreads = 4

// warm makes them: each goroutine holds a thread until all have one. The runtime keeps
// the threads.
func warm() error {
	var held, done sync.WaitGroup
	held.Add(idleThreads)
	release := make(chan struct{})
	for range idleThreads {
		done.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			held.Done()
			<-release
		})
	}
	held.Wait()
	close(release)
	done.Wait()
	return nil
}

// minProcesses is the least RLIMIT_NPROC: init's own threads are counted under its
// uid as an execution's processes are under theirs.
const minProcesses = 16

// limit lowers resource limits of the process, that on processes no further than given. A limit
// is never raised: the runner may lack CAP_SYS_RESOURCE, and init does.
func limit(limits []Rlimit, processes uint64) error {
	for _, l := range limits {
		if l.Resource == unix.RLIMIT_NPROC {
			l.Cur, l.Max = max(l.Cur, processes), max(l.Max, processes)
		}
		var now syscall.Rlimit
		if err := syscall.Getrlimit(int(l.Resource), &now); err != nil {
			return err
		}
		now.Max = min(now.Max, l.Max)
		now.Cur = min(now.Max, l.Cur)
		// Of package syscall: it keeps a soft RLIMIT_NOFILE of its own for children.
		if err := syscall.Setrlimit(int(l.Resource), &now); err != nil {
			return err
		}
	}
	return nil
}

// filter installs a seccomp program on every thread. With report it returns the listener of
// its notifications, which is the caller's to close; otherwise -1.
func filter(program []byte, report bool) (listener int, err error) {
	const size = unix.SizeofSockFilter
	if len(program) == 0 {
		return -1, nil
	}
	if len(program)%size != 0 || len(program)/size > 4096 { // BPF_MAXINSNS
		return -1, syscall.EINVAL
	}
	prog := unix.SockFprog{
		Len:    uint16(len(program) / size),
		Filter: (*unix.SockFilter)(unsafe.Pointer(&program[0])),
	}
	install := func(flags uintptr) (uintptr, syscall.Errno) {
		r, _, e := syscall.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags, uintptr(unsafe.Pointer(&prog)))
		return r, e
	}
	defer runtime.KeepAlive(&prog)
	if !report {
		tid, e := install(unix.SECCOMP_FILTER_FLAG_TSYNC)
		if e == 0 && tid != 0 { // a thread could not be synchronised
			e = syscall.ESRCH
		}
		return -1, asError(e)
	}
	// TSYNC_ESRCH: the descriptor takes the place of the thread in the result (5.7).
	const listening = unix.SECCOMP_FILTER_FLAG_TSYNC | unix.SECCOMP_FILTER_FLAG_TSYNC_ESRCH | unix.SECCOMP_FILTER_FLAG_NEW_LISTENER
	// A call that has been taken notice of ends for a fatal signal only, not for any, which
	// would have it notified once more when it is made again (5.19).
	fd, e := install(listening | unix.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV)
	if e == syscall.EINVAL {
		fd, e = install(listening)
	}
	if e != 0 {
		return -1, e
	}
	return int(fd), nil
}

// verify reads back what executions will inherit from the calling thread, and tries to
// regain what was given up.
func verify(s *Setup) error {
	err := eachCapability(func(c uintptr, bit uint64) error {
		if in, err := inBounds(c); err != nil || in != (s.Capabilities&bit != 0) {
			return syscall.EPERM
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, is := range []struct {
		option int
		want   uintptr
	}{
		{unix.PR_GET_DUMPABLE, 0},
		{unix.PR_GET_NO_NEW_PRIVS, 1},
		{unix.PR_GET_SECUREBITS, securebits},
	} {
		if got, _, err := syscall.RawSyscall6(unix.SYS_PRCTL, uintptr(is.option), 0, 0, 0, 0, 0); err != 0 || got != is.want {
			return syscall.EPERM
		}
	}
	if capset(thisThread, initCaps|s.Capabilities, s.Capabilities) == nil {
		return syscall.EPERM
	}
	if unix.Prctl(unix.PR_SET_SECUREBITS, 0, 0, 0, 0) == nil {
		return syscall.EPERM
	}
	return nil
}

// filtered says whether the calling thread has the filter. It asks by a call that every profile
// allows: nobody answers notifications yet.
func filtered(program []byte) error {
	if len(program) == 0 {
		return nil
	}
	if mode, _, _ := syscall.RawSyscall(unix.SYS_PRCTL, unix.PR_GET_SECCOMP, 0, 0); mode != unix.SECCOMP_MODE_FILTER {
		return syscall.EPERM
	}
	return nil
}

// readOOM learns init's own oom_score_adj, which comes back after every clone.
func (g *guestInit) readOOM() error {
	if g.setup.OOMScoreAdj == 0 {
		return nil
	}
	var b [8]byte
	n, err := unix.Pread(g.oomFD, b[:], 0)
	if err != nil {
		return err
	}
	g.ownOOM = []byte(strings.TrimSpace(string(b[:n])))
	g.execOOM = strconv.AppendInt(nil, int64(g.setup.OOMScoreAdj), 10)
	return nil
}

// adjustOOM makes the child a likelier victim than init. A child inherits the score, and
// init cannot write another one: the child's files in /proc are not init's.
func (g *guestInit) adjustOOM(score []byte) {
	if score != nil {
		// As readOOM did: it cannot fail, and a score is no boundary.
		_, _ = unix.Pwrite(g.oomFD, score, 0)
	}
}

func asError(e syscall.Errno) error {
	if e != 0 {
		return e
	}
	return nil
}

// errno returns the errno in an error of a system call.
func errno(err error) syscall.Errno {
	if e, ok := err.(syscall.Errno); ok {
		return e
	}
	return syscall.EIO
}
