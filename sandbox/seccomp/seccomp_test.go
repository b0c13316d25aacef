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

// Architectures as seccomp sees them, and the bit of x32's numbers.
const (
	archAMD64 = 0xc000003e
	archI386  = 0x40000003
	x32       = 0x40000000
)

func program(t *testing.T, profile string) []byte {
	t.Helper()
	p, err := Compile(profile, false)
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

var update = flag.Bool("update", false, "write PROFILES.md anew")

// The document is the rows: reviewed there, generated here.
func TestProfilesDocument(t *testing.T) {
	var b strings.Builder
	b.WriteString("# Seccomp profiles\n\nGenerated from `profiles.go` (`go test ./sandbox/seccomp -update`). " +
		"What no row names answers ENOSYS; i386 and x32 calls end the process. " +
		"A dash is a row that the profile does not have: ENOSYS, unless another row of it names the call.\n\n" +
		"Set-id bits cannot be put on a file, and a write takes them off one that has them. A store to a shared mapping of it does not: " +
		"in a set-id file that lies in a caller's writable directory before the session, the session can change the content under the bits " +
		"if the file's mode or owner lets the caller write it. For root as the caller that is a set-id root program of the session's.\n\n" +
		"| calls | " + strings.Join(Profiles, " | ") + " | when | why |\n|---|" + strings.Repeat("---|", len(Profiles)) + "---|---|\n")
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
		if _, err := (variant{"default", true}).assemble(); err != nil {
			b.Fatal(err)
		}
	}
}
