package integration

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/supervisor/api"
)

// answer judges what the probe printed.
type answer struct {
	text string
	ok   func(string) bool
}

func is(list ...string) answer {
	return answer{strings.Join(list, " or "), func(s string) bool { return slices.Contains(list, s) }}
}

func not(s string) answer {
	return answer{"anything but " + s, func(got string) bool { return got != s }}
}

func without(s string) answer {
	return answer{"nothing of " + s, func(got string) bool { return !strings.Contains(got, s) }}
}

func with(s string) answer {
	return answer{"something of " + s, func(got string) bool { return strings.Contains(got, s) }}
}

// control is a place outside the session where the protection of a row is off.
type control struct {
	name string
	attr func() *syscall.SysProcAttr
}

var (
	// plain is the host itself, as root.
	plain = control{"host", func() *syscall.SysProcAttr { return &syscall.SysProcAttr{} }}
	// apart is root in mount, IPC, UTS and cgroup namespaces of its own, so that what succeeds is
	// thrown away. (A cgroup2 that is mounted in the first cgroup namespace gives its options to
	// every mount of it: the host would lose systemd's nsdelegate.)
	apart = control{"root apart", func() *syscall.SysProcAttr {
		return &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP}
	}}
	// unfiltered has the namespaces of a session, its missing privilege, and no seccomp filter.
	unfiltered = control{"session without seccomp", func() *syscall.SysProcAttr { return inNamespaces(1000) }}
	// capable has the namespaces of a session and every capability in them, and no seccomp filter.
	capable = control{"session with capabilities, without seccomp", func() *syscall.SysProcAttr { return inNamespaces(0) }}
	// user is an ordinary user of the host.
	user = control{"ordinary user", func() *syscall.SysProcAttr {
		return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: ordinary, Gid: ordinary}}
	}}
)

// ordinary is a uid without privilege; hostIDs are ids of the host for the controls'
// own user namespaces, outside the range of any session.
const (
	ordinary = 1001
	hostIDs  = 0x6fff0000
)

func inNamespaces(uid uint32) *syscall.SysProcAttr {
	ids := []syscall.SysProcIDMap{{ContainerID: 0, HostID: hostIDs, Size: 65536}}
	return &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET |
			unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP,
		UidMappings: ids, GidMappings: ids,
		Credential: &syscall.Credential{Uid: uid, Gid: uid},
	}
}

// row is one attempt. Words that begin with $ stand for another thing inside and
// outside: see places.
type row struct {
	id      string // of the attacks that it belongs to
	attempt string
	inside  answer
	outside answer
	control control
}

var denied = is("EPERM", "EACCES", "ENOSYS", "ENOSPC")

// rows is the escape table. Every row is an attempt that a session must refuse, what the
// kernel then says, and the place without the protection where it must succeed: an
// attempt that cannot succeed proves nothing (security.md 2b.1).
var rows = slices.Concat([]row{
	// The host's files (T014). Protection: a root of our own.
	{"T014", "read $HOSTFILE", is("ENOENT"), is("ok"), plain},
	{"T014", "read /proc/$INIT/root$HOSTFILE", is("EACCES"), is("ok"), plain},
	{"T014", "read /proc/self/root$HOSTFILE", is("ENOENT"), is("ok"), plain},
	{"T014", "connect-path $SOCKET", is("ENOENT"), is("ok"), plain},

	// The host's processes (T017, T050, T051). Protection: the pid namespace.
	{"T017 T050 T051", "signal0 $CANARY", is("ESRCH"), is("ok"), plain},
	{"T017 T050 T051", "processes", is("0 others"), not("0 others"), plain},

	// Init, and /proc/1/exe (T001, T003, T050, T051). Protection: init's own uid, undumpable.
	{"T001 T003 T050 T051", "kill $INIT", is("EPERM"), is("ok"), plain},
	{"T001 T003 T050 T051", "ptrace $INIT", is("EPERM", "ENOSYS"), is("ok"), plain},
	{"T001 T003 T050 T051", "prlimit $INIT", is("EPERM"), is("ok"), plain},
	{"T001 T003 T050 T051", "vm-read $INIT", is("EPERM", "ENOSYS"), is("ok"), plain},
	{"T001 T003 T050 T051", "pidfd-get $INIT", is("EPERM", "ENOSYS"), is("ok"), plain},
	{"T001 T003 T050 T051", "execute /proc/$INIT/exe", is("EACCES", "EPERM"), is("ok"), plain},
	{"T001 T003 T050 T051", "read /proc/$INIT/exe", is("EACCES", "EPERM"), is("ok"), plain},
	{"T001 T003 T050 T051", "readlink /proc/$INIT/exe", is("EACCES", "EPERM"), not("EACCES"), plain},
	{"T001 T003 T050 T051", "readlink /proc/$INIT/cwd", is("EACCES", "EPERM"), not("EACCES"), plain},
	{"T001 T003 T050 T051", "readlink /proc/$INIT/fd/0", is("EACCES", "EPERM"), not("EACCES"), plain},
	{"T001 T003 T050 T051", "readlink /proc/$INIT/ns/user", is("EACCES", "EPERM"), not("EACCES"), plain},
	{"T001 T003 T050 T051", "write /proc/$INIT/mem", is("EACCES", "EPERM"), is("ok"), plain},
	{"T001 T003 T050 T051", "read /proc/$INIT/environ", is("EACCES", "EPERM"), is("ok"), plain},
	{"T001 T003 T050 T051", "content /proc/$INIT/maps", is("EACCES", "EPERM", "empty"), is("ok"), plain},

	// Device nodes (T023, T024). Protection: no CAP_MKNOD over the host's devices, nodev, our own /dev. Landlock is asked
	// before the capability is, and says EACCES.
	{"T023 T024", "mknod $TMP/node c 1 3", is("EPERM", "EACCES"), is("ok"), apart},
	{"T023 T024", "mknod $TMP/node b 8 0", is("EPERM", "EACCES"), is("ok"), apart},
	{"T023 T024", "mknod $WORK/node c 1 3", is("EPERM", "EACCES"), is("ok"), apart},
	{"T023 T024", "read $WORK/zero", is("EACCES"), is("ok"), plain},
	{"T023 T024", "read /dev/kmsg", is("ENOENT", "EACCES", "EPERM"), is("ok"), plain},

	// Mounts (T013, T015, T020, T048). Protection: no CAP_SYS_ADMIN, and seccomp.
	{"T013 T015 T020 T048", "mount-tmpfs $TMP", denied, is("ok"), capable},
	{"T013 T015 T020 T048", "mount-bind $TMP", denied, is("ok"), apart},
	{"T013 T015 T020 T048", "mount-proc $TMP", denied, is("ok"), apart},
	{"T013 T015 T020 T048", "mount-cgroup $TMP", denied, is("ok"), apart},
	{"T013 T015 T020 T048", "remount-rw /", denied, is("ok"), apart},
	{"T013 T015 T020 T048", "umount /proc", denied, is("ok"), apart},
	{"T013 T015 T020 T048", "pivot-root $TMP", denied, is("EBUSY"), apart}, // EBUSY: past the permission, nothing to pivot to
	{"T013 T015 T020 T048", "chroot $TMP", denied, is("ok"), capable},
	{"T013 T015 T020 T048", "fsopen", denied, is("ok"), capable},
	{"T013 T015 T020 T048", "open-tree $TMP", denied, is("ok"), apart},
	{"T013 T015 T020 T048", "mount-setattr /", denied, is("ok"), apart},
	{"T013 T015 T020 T048", "sethostname probe", denied, is("ok"), capable},

	// Set-id bits and file capabilities, left in the caller's directory (T025). Protection: seccomp.
	{"T025", "chmod-suid $WORK/bit", is("EPERM"), is("ok"), user},
	{"T025", "chmod-sgid $WORK/bit", is("EPERM"), is("ok"), user},
	{"T025", "fchmod-suid $WORK/bit", is("EPERM"), is("ok"), user},
	{"T025", "fchmodat-suid $WORK/bit", is("EPERM"), is("ok"), user},
	{"T025", "fchmodat2-suid $WORK/bit", is("EPERM", "ENOSYS"), is("ok", "ENOSYS"), user}, // the call came with 6.6
	{"T025", "open-suid $WORK/bit", is("EPERM"), is("ok"), user},
	{"T025", "openat2-suid $WORK/bit", is("EPERM", "ENOSYS"), is("ok"), user},
	{"T025", "creat-suid $WORK/bit", is("EPERM"), is("ok"), user},
	{"T025", "tmpfile-suid $WORK", is("EPERM"), is("ok"), user},
	{"T025", "mkdir-sgid $WORK/bit", is("EPERM"), is("ok"), user},
	{"T025", "mknod-suid $WORK/bit", is("EPERM"), is("ok"), user},
	{"T025", "filecap $WORK/bit", is("EPERM", "ENOSYS", "EOPNOTSUPP"), is("ok"), apart},

	// Set-id bits and file capabilities, used (T025). Protection: nosuid, no_new_privs.
	{"T025", "$WORK/suid euid", not("0"), is("0"), user},
	{"T025", "$WORK/cap status CapEff", is("0000000000000000"), is("0000000000000080"), user},

	// Control groups (T020, T021). Protection: no cgroup file system inside.
	{"T020 T021", "write $CGROUP/cgroup.procs", is("ENOENT", "EACCES", "EROFS"), is("ok"), plain},
	{"T020 T021", "clone-into-cgroup $CGROUP", is("ENOENT", "EACCES", "EPERM", "EBADF", "ENOSYS"), is("ok"), plain},
	{"T020 T021", "read $UNIFIED/cgroup.procs", is("ENOENT"), is("ok"), plain},
	{"T020 T021", "write $SIBLING/cgroup.procs", is("ENOENT"), is("ok"), plain},
	{"T020 T021", "write $SIBLING/cgroup.kill", is("ENOENT"), is("ok"), plain},
	{"T020 T021", "clone-into-cgroup $SIBLING", is("ENOENT"), is("ok"), plain},

	// Our own socket, to which a file in the caller's directory leads. Protection: a session's
	// user is turned away before it has said anything (DESIGN.md, The socket).
	{"T020 T021", "ask $WORK/door", is("EOF", "EPIPE", "ECONNRESET"), is("200"), user},

	// Pushing input into a terminal (T101, T102). Protection: seccomp.
	{"T101 T102", "tiocsti", is("EPERM"), is("ok", "EIO"), unfiltered}, // EIO: sysctl dev.tty.legacy_tiocsti is 0, as by default since 6.2
	{"T101 T102", "tioclinux", is("EPERM"), is("ENOTTY"), unfiltered},  // ENOTTY: asked of a driver that has no screen

	// Another discipline for a terminal, and one that is taken from somebody (T103). Protection: seccomp.
	{"T103", "tiocsetd", is("EPERM"), is("ok"), unfiltered},
	{"T103", "tiocsctty", is("EPERM"), is("ok"), unfiltered},

	// Surface of the kernel (T047 to T049, T032). Protection: seccomp, and for some the missing capability too.
	{"T047 T048 T049 T032", "keyctl", denied, is("ok"), unfiltered},
	{"T047 T048 T049 T032", "add-key", denied, is("ok"), unfiltered},
	{"T047 T048 T049 T032", "io-uring", denied, is("ok"), unfiltered},
	{"T047 T048 T049 T032", "io-uring-open $HOSTFILE", denied, is("ok"), unfiltered}, // past a filter that refuses to open
	{"T047 T048 T049 T032", "userfaultfd", denied, is("ok"), unfiltered},
	{"T047 T048 T049 T032", "name-to-handle /", denied, is("ok"), unfiltered},
	{"T047 T048 T049 T032", "bpf", denied, is("ok"), apart},
	{"T047 T048 T049 T032", "perf", denied, is("ok"), apart},
	{"T047 T048 T049 T032", "syslog", denied, is("ok"), apart},
	{"T047 T048 T049 T032", "swapon", denied, is("EFAULT"), apart},       // EFAULT: past the permission
	{"T047 T048 T049 T032", "settimeofday", denied, is("EFAULT"), apart}, // likewise
	{"T047 T048 T049 T032", "socket vsock", is("EPERM", "EACCES", "EAFNOSUPPORT"), is("ok"), unfiltered},
	{"T047 T048 T049 T032", "socket packet", is("EPERM", "EACCES", "EAFNOSUPPORT"), is("ok"), capable},
	{"T047 T048 T049 T032", "socket xdp", is("EPERM", "EACCES", "EAFNOSUPPORT"), is("ok"), capable},
	{"T047 T048 T049 T032", "socket netlink", is("EAFNOSUPPORT"), is("ok"), unfiltered},             // netfilter's
	{"T047 T048 T049 T032", "socket alg", is("EAFNOSUPPORT"), is("ok", "EAFNOSUPPORT"), unfiltered}, // a kernel may be without: sandbox/seccomp TestFamilies
	{"T047 T048 T049 T032", "socket key", is("EAFNOSUPPORT"), is("ok", "EAFNOSUPPORT"), capable},    // likewise
	{"T047 T048 T049 T032", "socket raw", is("EPERM", "EACCES", "EAFNOSUPPORT"), is("ok"), capable},

	// What listens on the host, what it shares (T030, T031, T033). Protection: network and IPC namespaces.
	{"T030 T031 T033", "connect-tcp $TCP", is("ECONNREFUSED", "ENETUNREACH"), is("ok"), plain},
	{"T030 T031 T033", "connect-abstract $ABSTRACT", is("ECONNREFUSED"), is("ok"), plain},
	{"T030 T031 T033", "shm $SHMKEY", is("ENOENT", "EPERM", "ENOSYS"), is("ok"), plain},
	{"T030 T031 T033", "sem $SHMKEY", is("ENOENT", "EPERM", "ENOSYS"), is("ok"), plain},
	{"T030 T031 T033", "msg $SHMKEY", is("ENOENT", "EPERM", "ENOSYS"), is("ok"), plain},
	{"T030 T031 T033", "mq $MQ", is("ENOENT", "EACCES", "EPERM", "ENOSYS"), is("ok"), plain},
	{"T030 T031 T033", "interfaces", is("lo"), not("lo"), plain},

	// Kernel files (T017, T018, T019). Protection: read-only, masked, or not there.
	{"T017 T018 T019", "writable /proc/sys", is("none"), not("none"), apart},
	{"T017 T018 T019", "content /proc/keys", is("empty", "ENOENT", "EACCES", "EPERM"), is("ok"), plain},
	{"T017 T018 T019", "content /proc/timer_list", is("empty", "ENOENT", "EACCES", "EPERM"), is("ok"), plain},

	{"T017 T018 T019", "content /proc/key-users", is("empty", "ENOENT", "EACCES", "EPERM"), is("ok"), plain},
	{"T017 T018 T019", "content /proc/interrupts", is("empty", "ENOENT", "EACCES", "EPERM"), is("ok"), plain},
	{"T017 T018 T019", "content /sys/kernel/notes", is("ENOENT"), is("ok"), plain},
	{"T017 T018 T019", "write /sys/power/state", is("ENOENT", "EROFS", "EACCES"), is("ok"), plain}, // opened, and nothing written

	// What came in from outside (T003, T026, T040, T046).
	{"T003 T026 T040 T046", "descriptors", is("0 1 2"), not("0 1 2"), plain},
	{"T003 T026 T040 T046", "environ", without("CANARY"), with("CANARY"), plain},
	{"T003 T026 T040 T046", "status CapInh CapPrm CapEff CapBnd CapAmb NoNewPrivs Seccomp",
		is(strings.Repeat("0000000000000000 ", 5) + "1 2"), not(strings.Repeat("0000000000000000 ", 5) + "1 2"), plain},
}, namespaceRows())

// namespaceRows is every kind of namespace by every door (T035, T045; the way to CVE-2022-0492). Making a user
// namespace needs no privilege: there the protection is seccomp and, for clone3, whose
// arguments a filter cannot see, the session's own user.max_user_namespaces.
func namespaceRows() []row {
	var out []row
	for _, kind := range []string{"user", "mnt", "pid", "net", "ipc", "uts", "cgroup", "time"} {
		without := capable
		if kind == "user" {
			without = unfiltered
		}
		for _, door := range []string{"unshare", "clone", "clone3"} {
			if door == "clone" && kind == "time" {
				continue // clone(2) has no bit for it
			}
			out = append(out, row{"T035 T045", door + " " + kind, denied, is("ok"), without})
		}
		enter := row{"T035 T045", "setns " + kind, denied, is("ok"), capable}
		switch kind {
		case "user":
			enter.outside = is("EINVAL") // past the filter: nobody enters the one that he is in
		case "time":
			enter.control = apart // the control's is the host's
		}
		out = append(out, enter)
	}
	return out
}

func TestEscapes(t *testing.T) {
	d := start(t)
	c := d.Client()
	// Without a second wall the first ones hold all of it (T038).
	r, err := c.Open(t.Context(), api.SessionOpen{Profile: "workspace", Target: api.Target{Local: &api.Local{}}, Degraded: degraded()})
	p := newPlaces(t, d.Socket, leaf(t, settled(t, r, err)))
	r, err = c.Open(t.Context(), api.SessionOpen{Profile: "workspace", Degraded: degraded(), Target: api.Target{Local: &api.Local{
		Mounts: []api.Mount{
			{HostPath: p.probes, GuestPath: "/mnt/probe", Mode: "ro"},
			{HostPath: p.work, GuestPath: "/work", Mode: "rw"},
		},
		Workdir: "/work",
	}}})
	session := settled(t, r, err).SessionID
	k := newCanaries(t, d)

	for _, r := range rows {
		t.Run(r.id+" "+strings.ReplaceAll(r.attempt, "/", "∕"), func(t *testing.T) {
			argv := p.inside(r.attempt)
			x, err := c.Exec(t.Context(), api.Exec{SessionID: session, Argv: argv})
			if got := printed(settled(t, x, err)); !r.inside.ok(got) {
				t.Errorf("inside: %q, want %s", got, r.inside.text)
			}
			k.unchanged(t)
			if got := p.outside(t, r.attempt, r.control); !r.outside.ok(got) {
				t.Errorf("negative control (%s): %q, want %s: this row proves nothing here", r.control.name, got, r.outside.text)
			}
		})
	}
	k.unchanged(t)
	if left := p.privileged(); len(left) > 0 {
		t.Errorf("left in the caller's directory: %v", left)
	}
}

func printed(r *api.Receipt) string {
	x := r.Payload.Exec
	if x.Stdout == nil {
		return fmt.Sprintf("(%s %d %s: %s)", x.Status, x.ExitCode, x.Signal, text(x.Stderr))
	}
	return strings.TrimSpace(text(x.Stdout))
}

// places is what the words of the table stand for, inside and outside.
type places struct {
	probes string // the probe, for everybody
	work   string // a caller's directory, with set-id files and a device node in it
	in     *strings.Replacer
	out    map[string]string
}

func newPlaces(t *testing.T, socket, sibling string) *places {
	base := t.TempDir()
	chmod(t, filepath.Dir(base), 0o755)
	chmod(t, base, 0o755)
	p := &places{probes: filepath.Join(base, "probe"), work: filepath.Join(base, "work")}
	for _, dir := range []string{p.probes, p.work, filepath.Join(base, "tmp")} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	probe := filepath.Join(p.probes, "probe")
	build(t, probe, "./probe")
	clone(t, probe, filepath.Join(p.work, "suid"), 0o755|os.ModeSetuid)
	clone(t, probe, filepath.Join(p.work, "cap"), 0o755)
	// cap_setuid+ep: struct vfs_cap_data, revision 2.
	capability := []byte{1, 0, 0, 2, 1 << 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}
	if err := unix.Setxattr(filepath.Join(p.work, "cap"), "security.capability", capability, 0); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mknod(filepath.Join(p.work, "zero"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 5))); err != nil {
		t.Fatal(err)
	}
	chmod(t, p.work, 0o777)
	chmod(t, filepath.Join(base, "tmp"), 0o777)

	file := filepath.Join(base, "canary")
	if err := os.WriteFile(file, []byte("canary"), 0o644); err != nil {
		t.Fatal(err)
	}
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tcp.Close() })
	name := fmt.Sprintf("stockade-canary-%d", os.Getpid())
	abstract, err := net.Listen("unix", "@"+name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { abstract.Close() })
	// The door is open for everybody, so that who is turned away is turned away by us. Where there is a group of ours it is the
	// socket's, and a file of a group that a session does not know is closed to it.
	if err := os.Lchown(socket, 0, 0); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(socket, filepath.Join(p.work, "door")); err != nil {
		t.Fatal(err)
	}
	chmod(t, socket, 0o666)
	group := filepath.Join(unified(t), fmt.Sprintf("stockade-test-%d", os.Getpid()))
	if err := os.Mkdir(group, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Rmdir(group) })
	key := 0x5c0c0000 + os.Getpid()&0xffff
	shm, err := unix.SysvShmGet(key, 4096, unix.IPC_CREAT|0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.SysvShmCtl(shm, unix.IPC_RMID, nil) })

	sem, _, errno := unix.Syscall(unix.SYS_SEMGET, uintptr(key), 1, unix.IPC_CREAT|0o600)
	if errno != 0 {
		t.Fatal(errno)
	}
	t.Cleanup(func() { unix.Syscall(unix.SYS_SEMCTL, sem, 0, unix.IPC_RMID) })
	msg, _, errno := unix.Syscall(unix.SYS_MSGGET, uintptr(key), unix.IPC_CREAT|0o600, 0)
	if errno != 0 {
		t.Fatal(errno)
	}
	t.Cleanup(func() { unix.Syscall(unix.SYS_MSGCTL, msg, unix.IPC_RMID, 0) })
	queue, err := unix.BytePtrFromString(name)
	if err != nil {
		t.Fatal(err)
	}
	mq, _, errno := unix.Syscall6(unix.SYS_MQ_OPEN, uintptr(unsafe.Pointer(queue)), unix.O_CREAT|unix.O_RDWR|unix.O_CLOEXEC, 0o600, 0, 0, 0)
	if errno != 0 {
		t.Fatal(errno)
	}
	t.Cleanup(func() {
		unix.Close(int(mq))
		unix.Syscall(unix.SYS_MQ_UNLINK, uintptr(unsafe.Pointer(queue)), 0, 0)
	})

	p.out = map[string]string{
		"$HOSTFILE": file, "$SOCKET": socket, "$TMP": filepath.Join(base, "tmp"), "$WORK": p.work, "$CGROUP": group,
		"$TCP": tcp.Addr().String(), "$ABSTRACT": name, "$SHMKEY": fmt.Sprint(key), "$MQ": name, "$PROBES": p.probes,
		"$UNIFIED": unified(t), "$SIBLING": sibling,
	}
	canary := p.victim(t)
	p.out["$CANARY"] = fmt.Sprint(canary)
	in := []string{"$TMP", "/tmp", "$WORK", "/work", "$CGROUP", "/sys/fs/cgroup", "$INIT", "1"}
	for word, value := range p.out {
		in = append(in, word, value)
	}
	p.in = strings.NewReplacer(in...)
	return p
}

// victim is a process of the host that an attempt may be made upon.
func (p *places) victim(t *testing.T) int {
	cmd := exec.Command(filepath.Join(p.probes, "probe"), "wait")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close(); cmd.Wait() })
	return cmd.Process.Pid
}

// command is an attempt as a command line. One that begins with a file runs that file.
func command(attempt, probe string) []string {
	words := strings.Fields(attempt)
	if !strings.HasPrefix(words[0], "$") {
		words = append([]string{probe}, words...)
	}
	return words
}

func (p *places) inside(attempt string) []string {
	argv := command(attempt, "/mnt/probe/probe")
	for i, w := range argv {
		argv[i] = p.in.Replace(w)
	}
	return argv
}

// outside makes the attempt where the protection is off. Init is then a process of the
// host that has none of init's own protection.
func (p *places) outside(t *testing.T, attempt string, c control) string {
	argv := command(attempt, filepath.Join(p.probes, "probe"))
	for i, w := range argv {
		for word, value := range p.out {
			w = strings.ReplaceAll(w, word, value)
		}
		if strings.Contains(w, "$INIT") {
			w = strings.ReplaceAll(w, "$INIT", fmt.Sprint(p.victim(t)))
		}
		argv[i] = w
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.SysProcAttr = c.attr()
	cmd.SysProcAttr.Setsid = true
	cmd.Env = []string{"CANARY=1"}
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	cmd.Stdin, cmd.ExtraFiles = null, []*os.File{null} // a descriptor that was not closed
	out, err := cmd.Output()
	if err != nil {
		return fmt.Sprintf("(%v)", err)
	}
	return strings.TrimSpace(string(out))
}

// privileged names what lies in the caller's directory with a set-id bit or a file
// capability and was not put there by the test.
func (p *places) privileged() []string {
	var out []string
	filepath.Walk(p.work, func(path string, info os.FileInfo, err error) error {
		if err != nil || slices.Contains([]string{"suid", "cap", "zero"}, info.Name()) {
			return err
		}
		n, xerr := unix.Lgetxattr(path, "security.capability", nil)
		if info.Mode()&(os.ModeSetuid|os.ModeSetgid|os.ModeDevice) != 0 || xerr == nil && n > 0 {
			out = append(out, fmt.Sprintf("%s %v", path, info.Mode()))
		}
		return nil
	})
	return out
}

// unified is where the v2 hierarchy is mounted: CLONE_INTO_CGROUP knows no other.
func unified(t *testing.T) string {
	for _, dir := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified"} {
		var st unix.Statfs_t
		if err := unix.Statfs(dir, &st); err == nil && st.Type == unix.CGROUP2_SUPER_MAGIC {
			return dir
		}
	}
	skip(t, "no cgroup v2 hierarchy is mounted")
	return ""
}

// leaf is the group in the v2 hierarchy of a session's init.
func leaf(t *testing.T, open *api.Receipt) string {
	groups, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", initOf(t, open)))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(groups)) {
		if path, ok := strings.CutPrefix(line, "0::"); ok {
			return filepath.Join(unified(t), strings.TrimSpace(path))
		}
	}
	t.Fatalf("no group in the v2 hierarchy:\n%s", groups)
	return ""
}

func chmod(t *testing.T, path string, mode os.FileMode) {
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}

func clone(t *testing.T, from, to string, mode os.FileMode) {
	b, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, b, 0o755); err != nil {
		t.Fatal(err)
	}
	chmod(t, to, mode)
}
