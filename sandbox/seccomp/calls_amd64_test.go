package seccomp

import (
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// T032 T043 T045 T047 T048 T049 T050 T101 T102 T103, CVE-2019-10063 (garbage above an argument of 32 bits), CVE-2021-41133 (the
// other interface for mounts): calls by their arguments, in every profile, as the programs answer them and as Lookup explains them. Control: without the stage that refuses by arguments, a program
// allows every ioctl that it is to refuse; in the kernel, integration/escape_test.go makes such calls without any filter.
func TestVerdicts(t *testing.T) {
	const garbage = 0xdeadbeef << 32
	var without [][]byte // that stage, of each profile
	for _, profile := range Profiles {
		v := variant{profile: profile}
		first, err := v.compile(allow)
		if err != nil {
			t.Fatal(err)
		}
		second, err := v.compile(last)
		if err != nil {
			t.Fatal(err)
		}
		without = append(without, append(chain(first), second...))
	}
	for _, row := range []struct {
		name string
		nr   int
		args []uint64
		want string // of each profile, with slashes between, or one for all
	}{
		{"read", unix.SYS_READ, nil, "allow"},
		{"clone3", unix.SYS_CLONE3, nil, "allow"},
		{"clone, a thread", unix.SYS_CLONE, []uint64{0x3d0f00}, "allow"},
		{"clone, a process", unix.SYS_CLONE, []uint64{uint64(unix.SIGCHLD)}, "allow"},
		{"clone newuser", unix.SYS_CLONE, []uint64{unix.CLONE_NEWUSER | uint64(unix.SIGCHLD)}, "EPERM"},
		{"clone newns", unix.SYS_CLONE, []uint64{unix.CLONE_NEWNS}, "EPERM"},
		{"clone newcgroup", unix.SYS_CLONE, []uint64{unix.CLONE_NEWCGROUP}, "EPERM"},
		{"clone newuts", unix.SYS_CLONE, []uint64{unix.CLONE_NEWUTS}, "EPERM"},
		{"clone newipc", unix.SYS_CLONE, []uint64{unix.CLONE_NEWIPC}, "EPERM"},
		{"clone newpid", unix.SYS_CLONE, []uint64{unix.CLONE_NEWPID}, "EPERM"},
		{"clone newnet, garbage above", unix.SYS_CLONE, []uint64{garbage | unix.CLONE_NEWNET}, "EPERM"},
		{"unshare fs", unix.SYS_UNSHARE, []uint64{unix.CLONE_FS}, "allow"},
		{"unshare newuser", unix.SYS_UNSHARE, []uint64{unix.CLONE_NEWUSER}, "EPERM"},
		{"unshare newtime", unix.SYS_UNSHARE, []uint64{unix.CLONE_NEWTIME | unix.CLONE_FS}, "EPERM"},
		{"unshare, garbage above", unix.SYS_UNSHARE, []uint64{garbage | unix.CLONE_NEWUSER}, "EPERM"},
		{"setns", unix.SYS_SETNS, nil, "EPERM"},

		{"chmod 0755", unix.SYS_CHMOD, []uint64{0, 0o755}, "allow"},
		{"chmod 01777", unix.SYS_CHMOD, []uint64{0, 0o1777}, "allow"},
		{"chmod 04755", unix.SYS_CHMOD, []uint64{0, 0o4755}, "EPERM"},
		{"chmod 02755", unix.SYS_CHMOD, []uint64{0, 0o2755}, "EPERM"},
		{"chmod 06000, garbage above", unix.SYS_CHMOD, []uint64{0, garbage | 0o6000}, "EPERM"},
		{"fchmod 04755", unix.SYS_FCHMOD, []uint64{0, 0o4755}, "EPERM"},
		{"fchmodat 04755", unix.SYS_FCHMODAT, []uint64{0, 0, 0o4755}, "EPERM"},
		{"fchmodat 0755", unix.SYS_FCHMODAT, []uint64{0, 0, 0o755}, "allow"},
		{"fchmodat2 04755", unix.SYS_FCHMODAT2, []uint64{0, 0, 0o4755}, "EPERM"},
		{"fchmodat2 0755", unix.SYS_FCHMODAT2, []uint64{0, 0, 0o755}, "allow"},
		{"creat 04755", unix.SYS_CREAT, []uint64{0, 0o4755}, "EPERM"},
		{"creat 0644", unix.SYS_CREAT, []uint64{0, 0o644}, "allow"},
		{"mkdir 02755", unix.SYS_MKDIR, []uint64{0, 0o2755}, "EPERM"},
		{"mkdir 0755", unix.SYS_MKDIR, []uint64{0, 0o755}, "allow"},
		{"mkdirat 02755", unix.SYS_MKDIRAT, []uint64{0, 0, 0o2755}, "EPERM"},
		{"mkdirat 0755", unix.SYS_MKDIRAT, []uint64{0, 0, 0o755}, "allow"},
		{"mknod fifo", unix.SYS_MKNOD, []uint64{0, unix.S_IFIFO | 0o644}, "allow/allow/EPERM"},
		{"mknod 04755", unix.SYS_MKNOD, []uint64{0, unix.S_IFREG | 0o4755}, "EPERM"},
		{"mknodat fifo", unix.SYS_MKNODAT, []uint64{0, 0, unix.S_IFIFO | 0o644}, "allow/allow/EPERM"},
		{"mknodat 02755", unix.SYS_MKNODAT, []uint64{0, 0, unix.S_IFREG | 0o2755}, "EPERM"},
		{"open creat 04755", unix.SYS_OPEN, []uint64{0, unix.O_CREAT | unix.O_WRONLY, 0o4755}, "EPERM"},
		{"open creat 02755", unix.SYS_OPEN, []uint64{0, unix.O_CREAT, 0o2755}, "EPERM"},
		{"open creat 0755", unix.SYS_OPEN, []uint64{0, unix.O_CREAT, 0o755}, "allow"},
		{"open, garbage for a mode", unix.SYS_OPEN, []uint64{0, unix.O_RDONLY, 0o7777}, "allow"},
		{"openat creat 04755", unix.SYS_OPENAT, []uint64{0, 0, unix.O_CREAT, 0o4755}, "EPERM"},
		{"openat tmpfile 04755", unix.SYS_OPENAT, []uint64{0, 0, unix.O_TMPFILE | unix.O_RDWR, 0o4755}, "EPERM"},
		{"openat creat 06755, garbage above", unix.SYS_OPENAT, []uint64{0, 0, garbage | unix.O_CREAT, garbage | 0o6755}, "EPERM"},
		{"openat creat 0600", unix.SYS_OPENAT, []uint64{0, 0, unix.O_CREAT, 0o600}, "allow"},
		{"openat directory, garbage for a mode", unix.SYS_OPENAT, []uint64{0, 0, unix.O_DIRECTORY, ^uint64(0)}, "allow"},
		{"openat2", unix.SYS_OPENAT2, nil, "ENOSYS"},

		{"ioctl TCGETS", unix.SYS_IOCTL, []uint64{0, unix.TCGETS}, "allow"},
		{"ioctl TIOCSTI", unix.SYS_IOCTL, []uint64{0, unix.TIOCSTI}, "EPERM"},
		{"ioctl TIOCSTI, garbage above", unix.SYS_IOCTL, []uint64{0, garbage | unix.TIOCSTI}, "EPERM"},
		{"ioctl TIOCLINUX", unix.SYS_IOCTL, []uint64{0, 0x541c}, "EPERM"},
		{"ioctl TIOCSETD", unix.SYS_IOCTL, []uint64{0, unix.TIOCSETD}, "EPERM"},
		{"ioctl TIOCCONS", unix.SYS_IOCTL, []uint64{0, unix.TIOCCONS}, "EPERM"},
		{"ioctl TIOCSCTTY", unix.SYS_IOCTL, []uint64{0, unix.TIOCSCTTY, 0}, "allow"},
		{"ioctl TIOCSCTTY, by force", unix.SYS_IOCTL, []uint64{0, unix.TIOCSCTTY, 1}, "EPERM"},
		{"ioctl KDSKBENT", unix.SYS_IOCTL, []uint64{0, 0x4b47}, "EPERM"},
		{"ioctl VT_ACTIVATE", unix.SYS_IOCTL, []uint64{0, 0x5606}, "EPERM"},

		{"socket inet", unix.SYS_SOCKET, []uint64{unix.AF_INET, unix.SOCK_STREAM}, "allow/allow/EAFNOSUPPORT"},
		{"socket inet6", unix.SYS_SOCKET, []uint64{unix.AF_INET6}, "allow/allow/EAFNOSUPPORT"},
		{"socket unix", unix.SYS_SOCKET, []uint64{unix.AF_UNIX}, "allow"},
		{"socket netlink route", unix.SYS_SOCKET, []uint64{unix.AF_NETLINK, unix.SOCK_RAW, 0}, "allow/allow/EAFNOSUPPORT"},
		{"socket netlink netfilter", unix.SYS_SOCKET, []uint64{unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_NETFILTER}, "EAFNOSUPPORT"},
		{"socket vsock", unix.SYS_SOCKET, []uint64{unix.AF_VSOCK}, "EAFNOSUPPORT"},
		{"socket vsock, garbage above", unix.SYS_SOCKET, []uint64{garbage | unix.AF_VSOCK}, "EAFNOSUPPORT"},
		{"socketpair unix", unix.SYS_SOCKETPAIR, []uint64{unix.AF_UNIX}, "allow"},
		{"socketpair tipc", unix.SYS_SOCKETPAIR, []uint64{unix.AF_TIPC}, "EAFNOSUPPORT"},

		{"personality 0", unix.SYS_PERSONALITY, []uint64{0}, "allow"},
		{"personality query", unix.SYS_PERSONALITY, []uint64{0xffffffff}, "allow"},
		{"personality READ_IMPLIES_EXEC", unix.SYS_PERSONALITY, []uint64{0x400000}, "EPERM"},
		{"personality ADDR_NO_RANDOMIZE", unix.SYS_PERSONALITY, []uint64{0x40000}, "EPERM/allow/EPERM"},
		{"personality PER_LINUX32", unix.SYS_PERSONALITY, []uint64{0x8}, "EPERM/allow/EPERM"},
		{"personality both, garbage above", unix.SYS_PERSONALITY, []uint64{garbage | 0x40008}, "EPERM/allow/EPERM"},
		{"personality ADDR_NO_RANDOMIZE and READ_IMPLIES_EXEC", unix.SYS_PERSONALITY, []uint64{0x440000}, "EPERM"},
		{"personality UNAME26", unix.SYS_PERSONALITY, []uint64{0x20000}, "EPERM"},

		{"seccomp, a filter", unix.SYS_SECCOMP, []uint64{unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC}, "allow"},
		{"seccomp, a listener", unix.SYS_SECCOMP, []uint64{unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_NEW_LISTENER | unix.SECCOMP_FILTER_FLAG_TSYNC_ESRCH}, "ENOSYS"},

		{"ptrace", unix.SYS_PTRACE, nil, "EPERM"},
		{"io_uring_setup", unix.SYS_IO_URING_SETUP, nil, "ENOSYS"},
		{"bpf", unix.SYS_BPF, nil, "EPERM"},
		{"keyctl", unix.SYS_KEYCTL, nil, "EPERM"},
		{"mount", unix.SYS_MOUNT, nil, "EPERM"},
		{"open_tree_attr, by number", 467, nil, "EPERM"},
		{"mseal, by number", 462, nil, "allow"},
		{"sync", unix.SYS_SYNC, nil, "allow/ENOSYS/ENOSYS"},
		{"shmget", unix.SYS_SHMGET, nil, "allow/ENOSYS/ENOSYS"},
		{"msgget", unix.SYS_MSGGET, nil, "allow/allow/ENOSYS"},
		{"setpriority", unix.SYS_SETPRIORITY, nil, "allow/allow/ENOSYS"},
		{"setxattr", unix.SYS_SETXATTR, nil, "allow/ENOSYS/ENOSYS"},
		{"number 600", 600, nil, "ENOSYS"},
		{"number -1", -1, nil, "ENOSYS"},
	} {
		t.Run(row.name, func(t *testing.T) {
			want := strings.Split(row.want, "/")
			c := call{nr: uint32(row.nr), arch: archAMD64}
			copy(c.args[:], row.args)
			for i, profile := range Profiles {
				want := want[min(i, len(want)-1)]
				if got := verdictOf(run(t, program(t, profile), c)); got != want {
					t.Errorf("%s: %s, want %s", profile, got, want)
				}
				if got := verdictOf(run(t, without[i], c)); row.nr == unix.SYS_IOCTL && got != "allow" {
					t.Errorf("control: %s: %s", profile, got)
				}
				if got := explained(profile, c); got != want {
					t.Errorf("%s: Lookup says %s, want %s", profile, got, want)
				}
			}
		})
	}
}

// T032: every family from 0 to 45, as the programs answer for it: a kernel that lacks one says the same as the programs do. What kernels have of them
// integration/escape_test.go asks for without any filter.
func TestFamilies(t *testing.T) {
	wide := []uint64{unix.AF_UNIX, unix.AF_INET, unix.AF_INET6, unix.AF_NETLINK}
	for profile, granted := range map[string][]uint64{"default": wide, "build": wide, "strict": {unix.AF_UNIX}} {
		p := program(t, profile)
		for family := range uint64(46) {
			known := slices.Contains(granted, family)
			for _, row := range []struct {
				nr   uint32
				args [6]uint64
				ok   bool
			}{
				{unix.SYS_SOCKET, [6]uint64{family, unix.SOCK_STREAM | unix.SOCK_CLOEXEC}, known},
				{unix.SYS_SOCKET, [6]uint64{family, unix.SOCK_RAW}, known},
				{unix.SYS_SOCKET, [6]uint64{family, unix.SOCK_RAW, unix.NETLINK_NETFILTER}, known && family != unix.AF_NETLINK},
				{unix.SYS_SOCKETPAIR, [6]uint64{family, unix.SOCK_STREAM}, family == unix.AF_UNIX},
			} {
				want := "EAFNOSUPPORT"
				if row.ok {
					want = "allow"
				}
				if got := verdictOf(run(t, p, call{nr: row.nr, arch: archAMD64, args: row.args})); got != want {
					t.Errorf("%s: call %d, family %d, protocol %d: %s, want %s", profile, row.nr, family, row.args[2], got, want)
				}
			}
		}
	}
}
