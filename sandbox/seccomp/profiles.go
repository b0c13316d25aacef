package seccomp

import (
	"slices"

	"golang.org/x/sys/unix"
)

// row is one reviewed decision about a group of calls.
type row struct {
	title    string // what it is about, in the words of a denial: stable, because receipts have them
	calls    string // names, separated by spaces
	verdict  verdict
	only     [][]condition // allowed only when one of these holds; nil means whatever the arguments
	unless   [][]condition // and not when one of these does
	errno    unix.Errno    // the refusal; 0 means EPERM, and unchanged that nothing is done and no error told
	profiles []string      // nil means every one
	args     string        // what only and unless mean, in words
	why      string
}

type verdict bool

const (
	allowed verdict = true
	refused verdict = false
)

func (r row) in(profile string) bool {
	return r.profiles == nil || slices.Contains(r.profiles, profile)
}

func (r row) answer() unix.Errno {
	switch r.errno {
	case 0:
		return unix.EPERM
	case unchanged:
		return 0
	}
	return r.errno
}

// tells reports whether a refusal of the row is news to anybody.
func (r row) tells() bool { return r.answer() != unix.ENOSYS && r.answer() != 0 }

var (
	general = []string{"default"}
	wide    = []string{"default", "build"}
	builds  = []string{"build"}
	bare    = []string{"default", "strict"}
	narrow  = []string{"strict"}
)

// low is a comparison of the 32 bits that the kernel reads of an int: with the upper half
// in it, 1<<32|TIOCSTI would not be TIOCSTI to us and still be to the kernel (CVE-2019-10063).
const low = 1<<32 - 1

// Values that x/sys/unix does not have in this form.
const (
	tmpfileBit      = 0o20000000 // __O_TMPFILE, without O_DIRECTORY
	personalityGet  = 0xffffffff
	perLinux32      = 0x0008
	addrNoRandomize = 0x0040000
	cloneNew        = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC |
		unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET // CLONE_NEWTIME is part of clone's exit signal
	unshareHarmless = unix.CLONE_FS | unix.CLONE_FILES | unix.CLONE_SYSVSEM
	setid           = unix.S_ISUID | unix.S_ISGID
	tioclinux       = 0x541c
	unchanged       = unix.Errno(1 << 16) // of a row: beyond every errno
)

// limits are all but RLIMIT_CORE. The kernel knows no more.
var limits = []uint64{unix.RLIMIT_CPU, unix.RLIMIT_FSIZE, unix.RLIMIT_DATA, unix.RLIMIT_STACK, unix.RLIMIT_RSS, unix.RLIMIT_NPROC, unix.RLIMIT_NOFILE,
	unix.RLIMIT_MEMLOCK, unix.RLIMIT_AS, unix.RLIMIT_LOCKS, unix.RLIMIT_SIGPENDING, unix.RLIMIT_MSGQUEUE, unix.RLIMIT_NICE, unix.RLIMIT_RTPRIO, unix.RLIMIT_RTTIME}

// none is the condition "no bit of mask is set in arg".
func none(arg uint, mask uint64) [][]condition { return [][]condition{{{arg, mask, 0}}} }

// equal are the conditions "arg, as an int, is one of values".
func equal(arg uint, values ...uint64) [][]condition {
	var out [][]condition
	for _, v := range values {
		out = append(out, []condition{{arg, low, v}})
	}
	return out
}

// creates are the conditions "flags create a file, and its mode has a set-id bit". Without
// O_CREAT and O_TMPFILE the mode is whatever was in the register.
func creates(flags, mode uint) [][]condition {
	var out [][]condition
	for _, create := range []uint64{unix.O_CREAT, tmpfileBit} {
		for _, bit := range []uint64{unix.S_ISUID, unix.S_ISGID} {
			out = append(out, []condition{{flags, create, create}, {mode, bit, bit}})
		}
	}
	return out
}

// rows is the whole of all profiles. A call is named in one row of a profile.
var rows = []row{
	// Files.
	{title: "reading files", calls: `access faccessat faccessat2 close close_range read readv pread64 preadv preadv2 lseek _llseek
		stat fstat lstat newfstatat statx statfs fstatfs readlink readlinkat getdents getdents64 getcwd chdir fchdir
		readahead fadvise64 cachestat umask dup dup2 dup3 fcntl flock
		getxattr lgetxattr fgetxattr getxattrat listxattr llistxattr flistxattr listxattrat`,
		verdict: allowed, why: "reading files and descriptors; the mounts and the ids say which"},
	{title: "writing files", calls: `write writev pwrite64 pwritev pwritev2 truncate ftruncate fallocate rename renameat renameat2
		link linkat symlink symlinkat unlink unlinkat rmdir utime utimes utimensat futimesat
		fsync fdatasync syncfs sync_file_range copy_file_range sendfile splice tee
		chown fchown lchown fchownat`,
		verdict: allowed, why: "writing files"},
	{title: "attributes", calls: `setxattr lsetxattr fsetxattr setxattrat removexattr lremovexattr fremovexattr removexattrat`,
		verdict: allowed, profiles: general, why: "security.capability needs CAP_SETFCAP, which is never granted; what a build makes is bytes and modes, and tools that copy attributes take ENOSYS for a file system without them"},
	{title: "sync", calls: `sync`, verdict: allowed, profiles: general, why: "scripts use it; it makes the whole host wait for its disks, so only in default"},
	{title: "set-id mode", calls: `chmod fchmod`, verdict: allowed, only: none(1, setid), args: "mode without set-id bits",
		why: "a set-id file on a mounted directory would outlive the session, owned by the caller, root included"},
	{title: "set-id mode", calls: `fchmodat fchmodat2`, verdict: allowed, only: none(2, setid), args: "mode without set-id bits", why: "as chmod"},
	{title: "set-id mode", calls: `mkdir creat`, verdict: allowed, only: none(1, setid), args: "mode without set-id bits", why: "as chmod"},
	{title: "set-id mode", calls: `mkdirat`, verdict: allowed, only: none(2, setid), args: "mode without set-id bits", why: "as chmod"},
	{title: "set-id mode", calls: `mknod`, verdict: allowed, only: none(1, setid), args: "mode without set-id bits", profiles: wide,
		why: "fifos, which make hands out jobs by; as chmod. Devices need a capability of the host's own user namespace"},
	{title: "set-id mode", calls: `mknodat`, verdict: allowed, only: none(2, setid), args: "mode without set-id bits", profiles: wide, why: "as mknod"},
	{title: "named pipes", calls: `mknod mknodat`, verdict: refused, profiles: narrow, why: "no fifos by name in strict"},
	{title: "set-id mode", calls: `open`, verdict: allowed, unless: creates(1, 2), args: "not O_CREAT or O_TMPFILE with set-id bits", why: "as chmod"},
	{title: "set-id mode", calls: `openat`, verdict: allowed, unless: creates(2, 3), args: "not O_CREAT or O_TMPFILE with set-id bits", why: "as chmod"},
	{title: "openat2", calls: `openat2`, verdict: refused, errno: unix.ENOSYS, why: "its mode is in memory, where a filter cannot look; libraries fall back to openat"},
	{title: "file handles", calls: `name_to_handle_at open_by_handle_at`, verdict: refused, why: "files by handle, past every mount and directory permission"},
	{title: "inode flags", calls: `file_getattr file_setattr`, verdict: refused, errno: unix.ENOSYS, why: "inode flags by a young interface (6.17); ioctl does the same where it is allowed"},

	// Mounts.
	{title: "mounts", calls: `mount umount2 pivot_root chroot swapon swapoff`, verdict: refused, why: "mounts; a root of one's own"},
	{title: "mounts", calls: `fsopen fsconfig fsmount fspick open_tree open_tree_attr move_mount mount_setattr statmount listmount`,
		verdict: refused, why: "mounts by the interface of 5.2 and later (CVE-2021-41133: a filter that forgot it)"},
	{title: "whole file systems", calls: `fanotify_init fanotify_mark quotactl quotactl_fd`, verdict: refused, why: "whole file systems, beyond the mounts of the session"},

	// Memory.
	{title: "own memory", calls: `mmap munmap mremap mprotect madvise brk msync mincore membarrier memfd_create
		pkey_alloc pkey_free pkey_mprotect mseal map_shadow_stack get_mempolicy`,
		verdict: allowed, why: "a process's own memory"},
	{title: "locked memory", calls: `mlock mlock2 munlock mlockall munlockall`, verdict: allowed, profiles: general, why: "bounded by RLIMIT_MEMLOCK and the memory ceiling; a build has no secret to keep from swap"},
	{title: "memory placement", calls: `mbind set_mempolicy set_mempolicy_home_node move_pages migrate_pages`, verdict: refused, errno: unix.ENOSYS, why: "placement on the host's nodes; ENOSYS is the answer of a kernel without nodes, and libnuma asks in every program that has it (ps)"},
	{title: "kernel surface", calls: `userfaultfd memfd_secret vmsplice`, verdict: refused, why: "kernel surface that exploits lean on, of no use to a sandboxed program"},
	{title: "others' memory", calls: `process_vm_readv process_vm_writev process_madvise process_mrelease`, verdict: refused, why: "other processes' memory"},

	// Processes.
	{title: "namespaces", calls: `clone`, verdict: allowed, only: none(0, cloneNew), args: "flags without CLONE_NEW*", why: "processes and threads, no namespaces"},
	{title: "processes", calls: `clone3`, verdict: allowed, why: "CLONE_INTO_CGROUP and current C libraries need it; its flags are out of a filter's sight: namespaces fail by user.max_user_namespaces = 0 and missing capabilities"},
	{title: "namespaces", calls: `unshare`, verdict: allowed, only: none(0, ^uint64(unshareHarmless)), args: "only CLONE_FS, CLONE_FILES, CLONE_SYSVSEM", why: "threads that part with a working directory; no namespaces"},
	{title: "namespaces", calls: `setns`, verdict: refused, why: "namespaces of others"},
	{title: "processes", calls: `fork vfork execve execveat exit exit_group wait4 waitid getpid getppid gettid getpgid getpgrp setpgid getsid setsid
		kill tkill tgkill pidfd_open pidfd_send_signal getrusage times getrlimit
		set_tid_address set_robust_list get_robust_list futex futex_waitv futex_wake futex_wait futex_requeue
		rseq arch_prctl prctl restart_syscall getcpu
		sched_yield sched_getaffinity sched_setaffinity sched_getparam sched_getscheduler sched_get_priority_max
		sched_get_priority_min sched_rr_get_interval sched_getattr getpriority ioprio_get`,
		verdict: allowed, why: "the life of processes and threads of one's own; ids and the pid namespace bound the rest"},
	{title: "core dumps", calls: `setrlimit`, verdict: allowed, errno: unchanged, only: equal(0, limits...), args: "any limit but RLIMIT_CORE",
		why: "at the limit of 1 that a session begins with, a crash is given to no program of the host's core_pattern; at 0 it is. Whoever sets it means to have no cores, and has none: he is told that it was done, because ssh-agent and gpg end when it was not"},
	{title: "core dumps", calls: `prlimit64`, verdict: allowed, errno: unchanged, only: append(equal(1, limits...), []condition{{2, ^uint64(0), 0}}), args: "any limit but RLIMIT_CORE, or a query", why: "as setrlimit"},
	{title: "priorities", calls: `setpriority ioprio_set sched_setparam sched_setscheduler sched_setattr`, verdict: allowed, profiles: wide,
		why: "being nicer, which builds are; real-time classes need CAP_SYS_NICE"},
	{title: "own restrictions", calls: `landlock_create_ruleset landlock_add_rule landlock_restrict_self`, verdict: allowed,
		why: "giving up more; programs sandbox their children"},
	{title: "own restrictions", calls: `seccomp`, verdict: allowed, errno: unix.ENOSYS, only: none(1, unix.SECCOMP_FILTER_FLAG_NEW_LISTENER), args: "without SECCOMP_FILTER_FLAG_NEW_LISTENER",
		why: "giving up more; programs sandbox their children. But the newest listener answers first, and can let a call continue that an earlier one is told of. ENOSYS, because libseccomp asks for it in every program that has it"},
	{title: "personality", calls: `personality`, verdict: allowed, only: equal(0, 0, personalityGet), args: "0, or a query", profiles: bare,
		why: "READ_IMPLIES_EXEC and ADDR_NO_RANDOMIZE undo hardening; sanitizers and debuggers that want the latter go without"},
	{title: "personality", calls: `personality`, verdict: allowed, profiles: builds,
		only: equal(0, 0, personalityGet, perLinux32, addrNoRandomize, perLinux32|addrNoRandomize), args: "0, a query, PER_LINUX32, ADDR_NO_RANDOMIZE",
		why: "uname -m that says i686, and the same addresses in every run, for what dumps its heap into its output (Emacs, SBCL); both change the caller only, and READ_IMPLIES_EXEC stays refused"},
	{title: "other processes", calls: `ptrace kcmp pidfd_getfd`, verdict: refused, why: "other processes; a debugger is not worth a way into init"},
	{title: "identity", calls: `getuid geteuid getgid getegid getresuid getresgid getgroups capget capset
		setuid setgid setreuid setregid setresuid setresgid setfsuid setfsgid setgroups`,
		verdict: allowed, why: "init becomes the session's identity with them; without capabilities they change nothing"},
	{title: "signals and time", calls: `rt_sigaction rt_sigprocmask rt_sigreturn rt_sigpending rt_sigsuspend rt_sigtimedwait rt_sigqueueinfo rt_tgsigqueueinfo
		sigaltstack signalfd signalfd4 pause alarm getitimer setitimer
		timer_create timer_settime timer_gettime timer_getoverrun timer_delete timerfd_create timerfd_settime timerfd_gettime
		nanosleep clock_nanosleep clock_gettime clock_getres gettimeofday time`,
		verdict: allowed, why: "signals, timers, reading clocks"},

	// Waiting and talking.
	{title: "waiting", calls: `poll ppoll select pselect6 epoll_create epoll_create1 epoll_ctl epoll_wait epoll_pwait epoll_pwait2
		eventfd eventfd2 pipe pipe2 inotify_init inotify_init1 inotify_add_watch inotify_rm_watch`,
		verdict: allowed, why: "waiting for descriptors"},
	{title: "asynchronous I/O", calls: `io_setup io_submit io_getevents io_pgetevents io_cancel io_destroy`, verdict: refused, errno: unix.ENOSYS,
		why: "one session can take all of the host's fs.aio-max-nr, which no namespace or group divides; databases fall back to threads"},
	{title: "io_uring", calls: `io_uring_setup io_uring_enter io_uring_register`, verdict: refused, errno: unix.ENOSYS,
		why: "it opens files and sockets past every filter, and is the kernel's busiest source of exploits; libraries fall back on ENOSYS"},
	{title: "talking", calls: `bind connect listen accept accept4 getsockname getpeername setsockopt getsockopt
		sendto recvfrom sendmsg recvmsg sendmmsg recvmmsg shutdown`,
		verdict: allowed, why: "sockets that the next rows let exist, in a network namespace of the session's own"},
	{title: "socket family", calls: `socket`, verdict: allowed, profiles: wide, errno: unix.EAFNOSUPPORT,
		only: append(equal(0, unix.AF_UNIX, unix.AF_INET, unix.AF_INET6), []condition{{0, low, unix.AF_NETLINK}, {2, low, unix.NETLINK_ROUTE}}),
		args: "AF_UNIX, AF_INET, AF_INET6; AF_NETLINK of NETLINK_ROUTE",
		why:  "the grant of a network says who is reached, and tests of a build talk to themselves through the loopback. AF_VSOCK is in no namespace; AF_ALG, AF_PACKET, AF_XDP, netfilter's netlink and forty more are kernel surface"},
	{title: "socket family", calls: `socket`, verdict: allowed, profiles: narrow, errno: unix.EAFNOSUPPORT,
		only: equal(0, unix.AF_UNIX), args: "AF_UNIX", why: "no network at all in strict, loopback included"},
	{title: "socket family", calls: `socketpair`, verdict: allowed, errno: unix.EAFNOSUPPORT, only: equal(0, unix.AF_UNIX), args: "AF_UNIX", why: "no other family makes pairs that programs use"},
	{title: "shared objects", calls: `semget semop semtimedop semctl msgget msgsnd msgrcv msgctl`, verdict: allowed, profiles: wide,
		why: "System V objects, in an IPC namespace of the session's own; fakeroot talks to its daemon through them"},
	{title: "shared objects", calls: `shmget shmat shmdt shmctl mq_open mq_unlink mq_timedsend mq_timedreceive mq_notify mq_getsetattr`,
		verdict: allowed, profiles: general, why: "as above, for databases and displays; no build tool asks for them (POSIX shared memory is files)"},
	{title: "terminal", calls: `ioctl`, verdict: allowed, args: "not one of the terminal's and console's that reach other processes, nor TIOCSCTTY with force",
		unless: slices.Concat(
			equal(1, unix.TIOCSTI, tioclinux, unix.TIOCSETD, unix.TIOCCONS, unix.TIOCVHANGUP),
			[][]condition{
				{{1, low, unix.TIOCSCTTY}, {2, 1, 1}},                  // steal it from its session
				{{1, low &^ 0xff, 0x4b00}}, {{1, low &^ 0xff, 0x5600}}, // 'K' and 'V': keyboard, font and console ioctls
			}),
		why: "TIOCSTI and TIOCLINUX type into the caller's terminal (CVE-2017-5226, CVE-2023-28100); line disciplines (TIOCSETD) are drivers of doubtful age"},
	{title: "terminal", calls: `vhangup`, verdict: refused, why: "the terminal of others"},

	// The machine.
	{title: "the machine", calls: `uname sysinfo getrandom`, verdict: allowed, why: "reading what the machine is"},
	{title: "host name", calls: `sethostname setdomainname`, verdict: refused, why: "the name is the session's, decided when it was opened"},
	{title: "clock", calls: `settimeofday clock_settime clock_adjtime adjtimex stime`, verdict: refused, why: "the host's clock"},
	{title: "kernel programs", calls: `bpf perf_event_open lookup_dcookie`, verdict: refused, why: "programs in the kernel, and counters that see other processes"},
	{title: "keyrings", calls: `add_key keyctl request_key`, verdict: refused, why: "keyrings are counted and found across namespaces"},
	{title: "the kernel", calls: `kexec_load kexec_file_load init_module finit_module delete_module reboot acct nfsservctl syslog`,
		verdict: refused, why: "the kernel itself"},
	{title: "the processor", calls: `iopl ioperm modify_ldt`, verdict: refused, why: "ports and segments of the processor"},
	{title: "security labels", calls: `lsm_set_self_attr`, verdict: refused, why: "labels are the host's to set"},
}

// young are calls that libseccomp 2.5.4 cannot name. All architectures share numbers from
// 424 up.
var young = map[string]int{
	"cachestat": 451, "fchmodat2": 452, "map_shadow_stack": 453,
	"futex_wake": 454, "futex_wait": 455, "futex_requeue": 456,
	"statmount": 457, "listmount": 458,
	"lsm_set_self_attr": 460, "mseal": 462,
	"setxattrat": 463, "getxattrat": 464, "listxattrat": 465, "removexattrat": 466,
	"open_tree_attr": 467, "file_getattr": 468, "file_setattr": 469,
}
