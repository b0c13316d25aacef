package seccomp

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
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

// Architectures as seccomp sees them, and the bit of x32's numbers.
const (
	archAMD64 = 0xc000003e
	archI386  = 0x40000003
	x32       = 0x40000000
)

func program(t *testing.T, profile string) []byte { return variantOf(t, profile, false) }

func variantOf(t *testing.T, profile string, report bool) []byte {
	t.Helper()
	p, err := Compile(profile, report)
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
		return name(unix.Errno(answer & unix.SECCOMP_RET_DATA))
	case unix.SECCOMP_RET_KILL_PROCESS:
		return "kill"
	case unix.SECCOMP_RET_USER_NOTIF:
		return "notify"
	}
	return fmt.Sprintf("%#x", answer)
}

// explained is what Lookup says of a call, as verdictOf says it of an answer.
func explained(profile string, c call) string {
	switch v, _ := Lookup(profile, int(int32(c.nr)), c.args); {
	case v.Allowed:
		return "allow"
	default:
		return name(v.Errno)
	}
}

// A call is named in one row of a profile, and every row has what a reader needs.
func TestRows(t *testing.T) {
	for _, profile := range Profiles {
		named := make(map[string]row)
		for _, r := range rows {
			if r.title == "" || r.why == "" || (r.args == "") != (r.only == nil && r.unless == nil) {
				t.Errorf("%s: a row without title, why or args", r.calls)
			}
			if !r.in(profile) {
				continue
			}
			for name := range strings.FieldsSeq(r.calls) {
				if _, err := number(name); err != nil {
					t.Errorf("%s: %v", name, err)
				}
				if earlier, twice := named[name]; twice {
					t.Errorf("%s: %s is in two rows: %s and %s", profile, name, earlier.why, r.why)
				}
				named[name] = r
			}
		}
	}
}

// aCall draws one, with the numbers and argument values that rows are about, and others.
func aCall(arch uint32) *rapid.Generator[call] {
	values := []uint64{0, 1, 2, 8, 10, 16, 38, 40, 0o1000, 0o4755, 0o2000, 0o100, tmpfileBit, 0x40008, 0xffffffff, ^uint64(0), unix.CLONE_NEWNS, unix.CLONE_FS,
		unix.TIOCSTI, unix.TIOCSCTTY, 0x4b47, 0x5606}
	value := rapid.Custom(func(t *rapid.T) uint64 {
		v := rapid.OneOf(rapid.SampledFrom(values), rapid.Uint64()).Draw(t, "value")
		return v | uint64(rapid.SampledFrom([]uint32{0, 0, 1, 1 << 31}).Draw(t, "above"))<<32
	})
	return rapid.Custom(func(t *rapid.T) call {
		c := call{nr: uint32(rapid.IntRange(-1, 600).Draw(t, "number")), arch: arch}
		for i := range c.args {
			c.args[i] = value.Draw(t, "argument")
		}
		return c
	})
}

// Whatever is called, the program answers what Lookup says; with report, a row's refusal is
// notified, unless it is ENOSYS or told as done; strict is within the other profiles; and no profile that is
// narrower than the least one allows the call.
func TestLookup(t *testing.T) {
	arch := native(t)
	draw := aCall(arch)
	rapid.Check(t, func(rt *rapid.T) {
		c := draw.Draw(rt, "call")
		got := make(map[string]string)
		least := ""
		for _, profile := range Profiles {
			got[profile] = verdictOf(run(t, program(t, profile), c))
			if want := explained(profile, c); got[profile] != want {
				rt.Errorf("%s: %s, and Lookup says %s", profile, got[profile], want)
			}
			want := got[profile]
			if want != "allow" && want != "ENOSYS" && want != "ok" {
				want = "notify"
			}
			if told := verdictOf(run(t, variantOf(t, profile, true), c)); told != want {
				rt.Errorf("%s, with report: %s, want %s", profile, told, want)
			}
			if got[profile] == "allow" {
				least = profile
			}
		}
		for _, wider := range []string{"default", "build"} {
			if got["strict"] == "allow" && got[wider] != "allow" {
				rt.Errorf("strict allows what %s does not", wider)
			}
		}
		v, named := Lookup("strict", int(int32(c.nr)), c.args)
		if v.Least != least {
			rt.Errorf("least %q, want %q", v.Least, least)
		}
		if named != (v.Rule != "") || (named && v.Syscall == "") {
			rt.Errorf("named %v: %+v", named, v)
		}
	})
}

// What a denial says of a call.
func TestVerdict(t *testing.T) {
	for _, row := range []struct {
		profile, call string
		args          [6]uint64
		want          Verdict
		named         bool
	}{
		{"default", "mount", [6]uint64{}, Verdict{Syscall: "mount", Errno: unix.EPERM, Rule: "mounts"}, true},
		{"default", "chmod", [6]uint64{0, 0o4755}, Verdict{Syscall: "chmod", Errno: unix.EPERM, Rule: "set-id mode", Object: "04755"}, true},
		{"strict", "socket", [6]uint64{unix.AF_INET}, Verdict{Syscall: "socket", Errno: unix.EAFNOSUPPORT, Rule: "socket family", Object: "AF_INET", Least: "build"}, true},
		{"default", "personality", [6]uint64{addrNoRandomize}, Verdict{Syscall: "personality", Errno: unix.EPERM, Rule: "personality", Object: "ADDR_NO_RANDOMIZE", Least: "build"}, true},
		{"strict", "sync", [6]uint64{}, Verdict{Syscall: "sync", Errno: unix.ENOSYS, Least: "default"}, false},
		{"strict", "read", [6]uint64{}, Verdict{Syscall: "read", Allowed: true, Rule: "reading files", Least: "strict"}, true},
		{"default", "open_tree_attr", [6]uint64{}, Verdict{Syscall: "open_tree_attr", Errno: unix.EPERM, Rule: "mounts"}, true},
		{"none", "read", [6]uint64{}, Verdict{Syscall: "read", Errno: unix.ENOSYS, Least: "strict"}, false},
	} {
		nr, err := number(row.call)
		if err != nil {
			t.Fatal(err)
		}
		if got, named := Lookup(row.profile, int(nr), row.args); got != row.want || named != row.named {
			t.Errorf("%s: %s%v: %+v %v, want %+v", row.profile, row.call, row.args, got, named, row.want)
		}
	}
	if v, named := Lookup("default", 600, [6]uint64{}); (v != Verdict{Errno: unix.ENOSYS}) || named {
		t.Errorf("number 600: %+v %v", v, named)
	}
}

func TestUnknownProfile(t *testing.T) {
	for _, name := range []string{"", "none", "Default"} {
		if _, err := Compile(name, false); err == nil {
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

func BenchmarkAssemble(b *testing.B) {
	for b.Loop() {
		if _, err := (variant{"default", true}).assemble(); err != nil {
			b.Fatal(err)
		}
	}
}
