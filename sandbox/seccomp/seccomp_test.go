package seccomp

import (
	"encoding/binary"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// call is a struct seccomp_data.
type call struct {
	nr   uint32
	arch uint32
	args [6]uint64
}

func (c call) word(at uint32) uint32 {
	var b [64]byte
	binary.NativeEndian.PutUint32(b[0:], c.nr)
	binary.NativeEndian.PutUint32(b[4:], c.arch)
	for i, a := range c.args {
		binary.NativeEndian.PutUint64(b[16+8*i:], a)
	}
	return binary.NativeEndian.Uint32(b[at:])
}

// run interprets the subset of BPF that seccomp programs here use, and fails on any other.
func run(t *testing.T, program []byte, c call) uint32 {
	t.Helper()
	var a uint32
	for pc := 0; ; pc++ {
		in := program[8*pc:]
		code, jt, jf, k := binary.NativeEndian.Uint16(in), in[2], in[3], binary.NativeEndian.Uint32(in[4:])
		var yes bool
		switch code {
		case unix.BPF_LD | unix.BPF_W | unix.BPF_ABS:
			a = c.word(k)
			continue
		case unix.BPF_ALU | unix.BPF_AND | unix.BPF_K:
			a &= k
			continue
		case unix.BPF_RET | unix.BPF_K:
			return k
		case unix.BPF_JMP | unix.BPF_JA:
			pc += int(k)
			continue
		case unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K:
			yes = a == k
		case unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K:
			yes = a >= k
		case unix.BPF_JMP | unix.BPF_JGT | unix.BPF_K:
			yes = a > k
		default:
			t.Fatalf("instruction %d: code %#x", pc, code)
		}
		if yes {
			pc += int(jt)
		} else {
			pc += int(jf)
		}
	}
}

const (
	archAMD64 = 0xc000003e
	archI386  = 0x40000003
	x32       = 0x40000000
)

func program(t *testing.T, profile string) []byte {
	t.Helper()
	p, err := Compile(profile)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// verdictOf reads an answer.
func verdictOf(answer uint32) string {
	switch answer & unix.SECCOMP_RET_ACTION_FULL {
	case unix.SECCOMP_RET_ALLOW:
		return "allow"
	case unix.SECCOMP_RET_ERRNO:
		return unix.ErrnoName(unix.Errno(answer & unix.SECCOMP_RET_DATA))
	case unix.SECCOMP_RET_KILL_PROCESS:
		return "kill"
	}
	return fmt.Sprintf("%#x", answer)
}

// T032 T043 T045 T047 T048 T049 T050 T101 T102 T103: calls by their arguments, in both profiles.
func TestVerdicts(t *testing.T) {
	if native(t) != archAMD64 {
		t.Skip("the rows use amd64 numbers")
	}
	const garbage = 0xdeadbeef << 32
	programs := map[string][]byte{"default": program(t, "default"), "strict": program(t, "strict")}
	for _, row := range []struct {
		name string
		nr   int
		args []uint64
		want string // of both, or of default and strict with a slash between
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
		{"mknod fifo", unix.SYS_MKNOD, []uint64{0, unix.S_IFIFO | 0o644}, "allow/EPERM"},
		{"mknod 04755", unix.SYS_MKNOD, []uint64{0, unix.S_IFREG | 0o4755}, "EPERM"},
		{"mknodat fifo", unix.SYS_MKNODAT, []uint64{0, 0, unix.S_IFIFO | 0o644}, "allow/EPERM"},
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

		{"socket inet", unix.SYS_SOCKET, []uint64{unix.AF_INET, unix.SOCK_STREAM}, "allow/EAFNOSUPPORT"},
		{"socket inet6", unix.SYS_SOCKET, []uint64{unix.AF_INET6}, "allow/EAFNOSUPPORT"},
		{"socket unix", unix.SYS_SOCKET, []uint64{unix.AF_UNIX}, "allow"},
		{"socket netlink route", unix.SYS_SOCKET, []uint64{unix.AF_NETLINK, unix.SOCK_RAW, 0}, "allow/EAFNOSUPPORT"},
		{"socket netlink netfilter", unix.SYS_SOCKET, []uint64{unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_NETFILTER}, "EAFNOSUPPORT"},
		{"socket vsock", unix.SYS_SOCKET, []uint64{unix.AF_VSOCK}, "EAFNOSUPPORT"},
		{"socket vsock, garbage above", unix.SYS_SOCKET, []uint64{garbage | unix.AF_VSOCK}, "EAFNOSUPPORT"},
		{"socketpair unix", unix.SYS_SOCKETPAIR, []uint64{unix.AF_UNIX}, "allow"},
		{"socketpair tipc", unix.SYS_SOCKETPAIR, []uint64{unix.AF_TIPC}, "EAFNOSUPPORT"},

		{"personality 0", unix.SYS_PERSONALITY, []uint64{0}, "allow"},
		{"personality query", unix.SYS_PERSONALITY, []uint64{0xffffffff}, "allow"},
		{"personality READ_IMPLIES_EXEC", unix.SYS_PERSONALITY, []uint64{0x400000}, "EPERM"},
		{"personality ADDR_NO_RANDOMIZE", unix.SYS_PERSONALITY, []uint64{0x40000}, "EPERM"},

		{"ptrace", unix.SYS_PTRACE, nil, "EPERM"},
		{"io_uring_setup", unix.SYS_IO_URING_SETUP, nil, "ENOSYS"},
		{"bpf", unix.SYS_BPF, nil, "EPERM"},
		{"keyctl", unix.SYS_KEYCTL, nil, "EPERM"},
		{"mount", unix.SYS_MOUNT, nil, "EPERM"},
		{"open_tree_attr, by number", 467, nil, "EPERM"},
		{"mseal, by number", 462, nil, "allow"},
		{"sync", unix.SYS_SYNC, nil, "allow/ENOSYS"},
		{"shmget", unix.SYS_SHMGET, nil, "allow/ENOSYS"},
		{"number 600", 600, nil, "ENOSYS"},
		{"number -1", -1, nil, "ENOSYS"},
	} {
		t.Run(row.name, func(t *testing.T) {
			wide, narrow, two := strings.Cut(row.want, "/")
			if !two {
				narrow = wide
			}
			c := call{nr: uint32(row.nr), arch: archAMD64}
			copy(c.args[:], row.args)
			for profile, want := range map[string]string{"default": wide, "strict": narrow} {
				if got := verdictOf(run(t, programs[profile], c)); got != want {
					t.Errorf("%s: %s, want %s", profile, got, want)
				}
			}
		})
	}
}

// T043: every number to 600 gets what its row says and every other one ENOSYS; the same
// numbers under i386 and x32 end the process (CVE-2015-2830); strict is within default.
func TestCensus(t *testing.T) {
	arch := native(t)
	byNumber := make(map[string]map[int]row)
	for _, profile := range Profiles {
		byNumber[profile] = make(map[int]row)
		for _, r := range rows {
			if !r.in(profile) {
				continue
			}
			for name := range strings.FieldsSeq(r.calls) {
				n, err := number(name)
				if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				if earlier, twice := byNumber[profile][int(n)]; twice {
					t.Errorf("%s: %s is in two rows: %s and %s", profile, name, earlier.why, r.why)
				}
				byNumber[profile][int(n)] = r
			}
		}
		p := program(t, profile)
		for nr := range uint32(601) {
			r, known := byNumber[profile][int(nr)]
			want := "ENOSYS"
			switch {
			case known && r.verdict == allowed && r.only == nil:
				want = "allow"
			case known && r.only == nil:
				want = unix.ErrnoName(r.answer())
			}
			if r.only == nil { // the rows of TestVerdicts know the others
				if got := verdictOf(run(t, p, call{nr: nr, arch: arch})); got != want {
					t.Errorf("%s: %d: %s, want %s", profile, nr, got, want)
				}
			}
			for _, other := range []call{{nr: nr, arch: archI386}, {nr: nr | x32, arch: archAMD64}} {
				if arch == archAMD64 && verdictOf(run(t, p, other)) != "kill" {
					t.Errorf("%s: %d of %#x is not killed", profile, other.nr, other.arch)
				}
			}
		}
	}

	wide, narrow := program(t, "default"), program(t, "strict")
	for nr := range uint32(601) {
		for _, args := range [][6]uint64{{}, {1, 1, 1}, {2, 0o1000}, {16}, {10}} {
			c := call{nr: nr, arch: arch, args: args}
			if verdictOf(run(t, narrow, c)) == "allow" && verdictOf(run(t, wide, c)) != "allow" {
				t.Errorf("%d: strict allows what default does not", nr)
			}
		}
	}
}

func TestUnknownProfile(t *testing.T) {
	for _, name := range []string{"", "none", "Default"} {
		if _, err := Compile(name); err == nil {
			t.Errorf("%q was compiled", name)
		}
	}
}

// native is this machine's architecture as the kernel names it.
func native(t *testing.T) uint32 {
	t.Helper()
	p := program(t, "default")
	return binary.NativeEndian.Uint32(p[8+4:]) // every program begins: load arch, compare
}

var update = flag.Bool("update", false, "write PROFILES.md anew")

// The document is the rows: reviewed there, generated here.
func TestProfilesDocument(t *testing.T) {
	var b strings.Builder
	b.WriteString("# Seccomp profiles\n\nGenerated from `profiles.go` (`go test ./sandbox/seccomp -update`). " +
		"What no row names answers ENOSYS; i386 and x32 calls end the process. " +
		"A dash is a row that the profile does not have: ENOSYS, unless another row of it names the call.\n\n" +
		"| calls | default | strict | when | why |\n|---|---|---|---|---|\n")
	for _, r := range rows {
		answer := "allowed"
		switch {
		case r.verdict == refused:
			answer = unix.ErrnoName(r.answer())
		case r.args != "":
			answer = "allowed, else " + unix.ErrnoName(r.answer())
		}
		cells := []string{strings.Join(strings.Fields(r.calls), " ")}
		for _, profile := range Profiles {
			if r.in(profile) {
				cells = append(cells, answer)
			} else {
				cells = append(cells, "–")
			}
		}
		cells = append(cells, strings.ReplaceAll(r.args, "*", `\*`), r.why)
		fmt.Fprintf(&b, "| %s |\n", strings.Join(cells, " | "))
	}
	if *update {
		if err := os.WriteFile("PROFILES.md", []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile("PROFILES.md")
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != b.String() {
		t.Error("PROFILES.md is not what the rows say: go test ./sandbox/seccomp -update")
	}
}

func BenchmarkAssemble(b *testing.B) {
	for b.Loop() {
		if _, err := assemble("default"); err != nil {
			b.Fatal(err)
		}
	}
}
