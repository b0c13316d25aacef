package worker

import (
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// verdict is what becomes of one system call: it is allowed, or answered with an error. It holds where all of its conditions do,
// and elsewhere the call is as one that is not in the table.
type verdict struct {
	call   uintptr
	answer unix.Errno // 0 allows
	where  []condition
}

// condition compares the low half of an argument, masked. To the kernel, all that are compared have no more.
type condition struct {
	arg         int
	mask, value uint32
}

const newNamespaces = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC | unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET

// verdicts are all that a worker may call: what the Go runtime does to live, and reading and writing. Whatever is not
// in the table kills the process. What is answered with an error is what the runtime tries and does without.
func verdicts(pid int) []verdict {
	return []verdict{
		// The socket. There is no call left that makes a descriptor of a name or of another one's.
		{call: unix.SYS_READ},
		{call: unix.SYS_WRITE},
		{call: unix.SYS_PPOLL},

		// Memory: none that is executable, and none that RLIMIT_DATA does not count.
		{call: unix.SYS_MMAP, where: []condition{{2, unix.PROT_EXEC, 0}, {3, unix.MAP_SHARED | unix.MAP_GROWSDOWN, 0}}},
		{call: unix.SYS_MPROTECT, where: []condition{{2, unix.PROT_EXEC, 0}}},
		{call: unix.SYS_MUNMAP},
		{call: unix.SYS_MADVISE},
		{call: unix.SYS_MINCORE},
		{call: unix.SYS_BRK},

		// Threads of this process. Of clone3 no filter sees the arguments; C libraries then take clone.
		{call: unix.SYS_CLONE, where: []condition{{0, unix.CLONE_THREAD | newNamespaces, unix.CLONE_THREAD}}},
		{call: unix.SYS_CLONE3, answer: unix.ENOSYS},
		{call: unix.SYS_RSEQ},
		{call: unix.SYS_SET_ROBUST_LIST},
		{call: unix.SYS_FUTEX},
		{call: unix.SYS_SCHED_YIELD},
		{call: unix.SYS_SCHED_GETAFFINITY},
		{call: unix.SYS_GETPID},
		{call: unix.SYS_GETTID},
		{call: unix.SYS_EXIT},
		{call: unix.SYS_EXIT_GROUP},

		// Signals to itself: preemption of goroutines.
		{call: unix.SYS_TGKILL, where: []condition{{0, ^uint32(0), uint32(pid)}}},
		{call: unix.SYS_RT_SIGACTION},
		{call: unix.SYS_RT_SIGPROCMASK},
		{call: unix.SYS_RT_SIGRETURN},
		{call: unix.SYS_SIGALTSTACK},
		{call: unix.SYS_RESTART_SYSCALL},

		// Time and chance.
		{call: unix.SYS_NANOSLEEP},
		{call: unix.SYS_CLOCK_NANOSLEEP},
		{call: unix.SYS_CLOCK_GETTIME},
		{call: unix.SYS_GETTIMEOFDAY},
		{call: unix.SYS_GETRANDOM},

		// The runtime's poller, which has nothing to wait for but timers.
		{call: unix.SYS_EPOLL_CREATE1},
		{call: unix.SYS_EPOLL_CTL},
		{call: unix.SYS_EPOLL_PWAIT},
		{call: unix.SYS_EVENTFD2},

		// What is asked of a machine that has nothing: time zones come from the program itself.
		{call: unix.SYS_OPENAT, answer: unix.ENOENT},
		{call: unix.SYS_READLINKAT, answer: unix.ENOENT},
		{call: unix.SYS_PRCTL, answer: unix.EPERM},
		{call: unix.SYS_PRLIMIT64, answer: unix.EPERM},
	}
}

// arches are the kernel's names of the architectures whose numbers the table has.
var arches = map[string]uint32{"amd64": unix.AUDIT_ARCH_X86_64, "arm64": unix.AUDIT_ARCH_AARCH64}

// Offsets in struct seccomp_data.
const (
	offsetCall = 0
	offsetArch = 4
	offsetArgs = 16
)

// program compiles the table. A call under another architecture's numbers must not be read with ours (CVE-2015-2830);
// those of x32 have a bit that no row has.
func program(table []verdict) ([]unix.SockFilter, error) {
	arch, ok := arches[runtime.GOARCH]
	if !ok {
		return nil, fmt.Errorf("no filter for %s", runtime.GOARCH)
	}
	load := func(offset uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset}
	}
	equal := func(k uint32, then, otherwise uint8) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: k, Jt: then, Jf: otherwise}
	}
	answer := func(k uint32) unix.SockFilter { return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: k} }
	p := []unix.SockFilter{
		load(offsetArch),
		equal(arch, 1, 0),
		answer(unix.SECCOMP_RET_KILL_PROCESS),
		load(offsetCall),
	}
	for _, v := range table {
		result := answer(unix.SECCOMP_RET_ALLOW)
		if v.answer != 0 {
			result = answer(unix.SECCOMP_RET_ERRNO | uint32(v.answer))
		}
		const each = 3 // instructions of a condition
		p = append(p, equal(uint32(v.call), 0, uint8(each*len(v.where)+1+min(len(v.where), 1))))
		for i, c := range v.where {
			p = append(p,
				load(offsetArgs+8*uint32(c.arg)), // little-endian: the low half comes first
				unix.SockFilter{Code: unix.BPF_ALU | unix.BPF_AND | unix.BPF_K, K: c.mask},
				equal(c.value, 0, uint8(each*(len(v.where)-i-1)+1)))
		}
		p = append(p, result)
		if len(v.where) > 0 {
			p = append(p, answer(unix.SECCOMP_RET_KILL_PROCESS))
		}
	}
	return append(p, answer(unix.SECCOMP_RET_KILL_PROCESS)), nil
}

// install puts the program on every thread, with no_new_privs on every thread.
func install(p []unix.SockFilter) error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("no_new_privs: %w", err)
	}
	prog := unix.SockFprog{Len: uint16(len(p)), Filter: &p[0]}
	// TSYNC synchronises no_new_privs, too.
	tid, _, e := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&prog)))
	runtime.KeepAlive(&prog)
	runtime.KeepAlive(p)
	if e != 0 {
		return fmt.Errorf("seccomp: %w", e)
	}
	if tid != 0 {
		return fmt.Errorf("seccomp: thread %d could not be filtered", tid)
	}
	return nil
}
