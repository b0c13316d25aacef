// Package seccomp compiles the named system call profiles to BPF. It links libseccomp by
// cgo, so it is linked only into stockade-run; it needs no privilege and installs nothing.
//
// A profile is a list of reviewed rows ([rows], explained in PROFILES.md). What no row
// names is answered with ENOSYS, as by a kernel that is older than the program, so that
// programs take their other way; a number that is newer than this list is no hole.
//
// Init installs the program on all its threads and every execution inherits it: a profile
// has to let a Go PID 1 live. That includes clone3, whose flags no filter can read; nested
// user namespaces are closed by user.max_user_namespaces = 0 instead, and the other kinds
// by missing capabilities.
//
// A refusal can be told as well as answered: with report, what a row refuses becomes a
// notification (SECCOMP_RET_USER_NOTIF) that somebody must answer (sandbox/notify), and
// [Lookup] says with what. What answers ENOSYS is never told: every C library asks for a
// dozen of such calls, and takes its other way. Nor is what is answered as if it had been done.
//
// Non-goals: answering notifications, per-execution filters, 32-bit programs (killed, as
// x32 ones are).
package seccomp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"

	libseccomp "github.com/seccomp/libseccomp-golang"
	"golang.org/x/sys/unix"
)

// Profiles are the names that Compile knows, the widest first. Strict is within both
// others; build has less than default, and a personality that default has not.
var Profiles = []string{"default", "build", "strict"}

// MaxInstructions is the kernel's bound on one program (BPF_MAXINSNS).
const MaxInstructions = 4096

// Compile returns the program of a profile: an array of struct sock_filter in the bytes
// of this machine, ready for seccomp(2). With report, refusals that a row names are
// notified: such a program needs a listener, without which the kernel answers ENOSYS. It
// takes 2 ms once, and nothing afterwards.
func Compile(profile string, report bool) ([]byte, error) {
	once, ok := compiled[variant{profile, report}]
	if !ok {
		return nil, fmt.Errorf("seccomp profile %q: unknown", profile)
	}
	program, err := once()
	if err != nil {
		return nil, fmt.Errorf("seccomp profile %s: %w", profile, err)
	}
	return slices.Clone(program), nil
}

// variant is one program of a profile.
type variant struct {
	profile string
	report  bool
}

var compiled = func() map[variant]func() ([]byte, error) {
	m := make(map[variant]func() ([]byte, error))
	for _, profile := range Profiles {
		for _, report := range []bool{false, true} {
			v := variant{profile, report}
			m[v] = sync.OnceValues(v.assemble)
		}
	}
	return m
}()

// assemble joins the stages of a program.
//
// libseccomp lets a call have one action without conditions, or conditional actions that
// never overlap. A profile wants three answers in order, so it is three filters, chained:
//
//	refuse what a row names by its arguments   (an ioctl, a mode with setuid)
//	   → allow what a row names                (socket, of three families)
//	   → refuse the rest of what is known      (socket, of any other family), ENOSYS the unknown
//
// The first two answer what they do not decide with a marker, and the marker is then
// rewritten to a jump. Calls that are allowed whatever their arguments stay visible as such
// to the kernel (5.11), which then skips the program altogether.
func (v variant) assemble() ([]byte, error) {
	var program []byte
	for stage := range stages {
		part, err := v.compile(stage)
		if err != nil {
			return nil, err
		}
		if stage < last {
			part = chain(part)
		}
		program = append(program, part...)
	}
	if n := len(program) / instruction; n > MaxInstructions {
		return nil, fmt.Errorf("%d instructions, more than %d", n, MaxInstructions)
	}
	return program, nil
}

// The stages of a profile.
const (
	refuseArguments = iota
	allow
	last
	stages
)

// marker is an answer that no row gives: "not decided in this stage".
var marker = libseccomp.ActTrace.SetReturnCode(0x5ade)

const (
	markerValue = unix.SECCOMP_RET_TRACE | 0x5ade
	instruction = 8 // bytes of a struct sock_filter: code u16, jt u8, jf u8, k u32
)

// compile builds one stage.
func (v variant) compile(stage int) ([]byte, error) {
	otherwise := marker
	if stage == last {
		otherwise = errno(unix.ENOSYS)
	}
	f, err := libseccomp.NewFilter(otherwise)
	if err != nil {
		return nil, err
	}
	defer f.Release()
	// A call under another architecture's numbers (i386, x32) must not be read with ours (CVE-2015-2830).
	if err := f.SetBadArchAction(libseccomp.ActKillProcess); err != nil {
		return nil, err
	}
	// A binary tree: the kernel walks it once per call to see which are always allowed, and
	// at run time for the others.
	if err := f.SetOptimize(2); err != nil {
		return nil, err
	}
	for _, r := range rows {
		if !r.in(v.profile) {
			continue
		}
		for _, rule := range r.rules(stage, v.report) {
			for name := range strings.FieldsSeq(r.calls) {
				if err := add(f, name, rule); err != nil {
					return nil, fmt.Errorf("%s: %w", name, err)
				}
			}
		}
	}
	return export(f)
}

// rule is one action under conditions that must all hold.
type rule struct {
	action libseccomp.ScmpAction
	when   []condition
}

// condition compares 32 or 64 bits of one argument: arg & mask == value.
type condition struct {
	arg   uint
	mask  uint64
	value uint64
}

func errno(e unix.Errno) libseccomp.ScmpAction { return libseccomp.ActErrno.SetReturnCode(int16(e)) }

// rules are what a row adds to a stage.
func (r row) rules(stage int, report bool) []rule {
	refuse := errno(r.answer())
	if report && r.tells() {
		refuse = libseccomp.ActNotify
	}
	var out []rule
	switch {
	case stage == refuseArguments:
		for _, c := range r.unless {
			out = append(out, rule{refuse, c})
		}
	case stage == allow && r.verdict == allowed:
		if r.only == nil {
			return []rule{{libseccomp.ActAllow, nil}}
		}
		for _, c := range r.only {
			out = append(out, rule{libseccomp.ActAllow, c})
		}
	case stage == last && (r.verdict == refused || r.only != nil):
		if r.answer() != unix.ENOSYS { // which the stage answers anyway
			return []rule{{refuse, nil}}
		}
	}
	return out
}

// add adds a rule for one call. A call that this architecture never had (open on arm64)
// resolves to a negative number, and libseccomp leaves it out.
func add(f *libseccomp.ScmpFilter, name string, r rule) error {
	call, err := number(name)
	if err != nil {
		return err
	}
	var conds []libseccomp.ScmpCondition
	for _, c := range r.when {
		cond, err := libseccomp.MakeCondition(c.arg, libseccomp.CompareMaskedEqual, c.mask, c.value)
		if err != nil {
			return err
		}
		conds = append(conds, cond)
	}
	if conds == nil {
		return f.AddRule(call, r.action)
	}
	return f.AddRuleConditional(call, r.action, conds)
}

// number resolves a name: through libseccomp, and for the calls that are younger than
// Debian 12's 2.5.4 through our own list.
func number(name string) (libseccomp.ScmpSyscall, error) {
	if call, err := libseccomp.GetSyscallFromName(name); err == nil {
		return call, nil
	}
	if n, ok := young[name]; ok {
		return libseccomp.ScmpSyscall(n), nil
	}
	return 0, errors.New("no such system call")
}

// export reads the program through a memfd: libseccomp 2.5 only writes to a descriptor.
func export(f *libseccomp.ScmpFilter) ([]byte, error) {
	fd, err := unix.MemfdCreate("seccomp", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("memfd_create: %w", err)
	}
	file := os.NewFile(uintptr(fd), "seccomp")
	defer file.Close()
	if err := f.ExportBPF(file); err != nil {
		return nil, fmt.Errorf("export: %w", err)
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	return io.ReadAll(file)
}

// chain turns every "return marker" of a stage into a jump to its end, where the next stage
// begins. An unconditional jump reaches 2³² instructions, so nothing has to move.
func chain(part []byte) []byte {
	for at := 0; at < len(part); at += instruction {
		code := binary.NativeEndian.Uint16(part[at:])
		k := binary.NativeEndian.Uint32(part[at+4:])
		if code == unix.BPF_RET|unix.BPF_K && k == markerValue {
			binary.NativeEndian.PutUint16(part[at:], unix.BPF_JMP|unix.BPF_JA)
			binary.NativeEndian.PutUint32(part[at+4:], uint32((len(part)-at)/instruction-1))
		}
	}
	return part
}
