// Package callfilter confines this process to a list of system calls: the helpers that serve what others send (a relay, a file
// worker, a policy worker) need few, know which, and have no libseccomp.
//
// It promises that a call is answered as the first row says that is about it and whose conditions hold, that one without such a row has
// the answer for all others, and that a call by the numbers of another architecture ends the process. It needs no_new_privs, which it
// does not set. The profiles of sessions are not made here: those have names, levels and rules by kernel, and are sandbox/seccomp's.
package callfilter

import (
	"fmt"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Row is what becomes of one system call, where all of Where hold. Rows of the same call are alternatives.
type Row struct {
	Call   uint32
	Answer Action // the zero allows
	Where  []Condition
}

// Condition compares the low half of an argument, masked. To the kernel, all that are compared have no more.
type Condition struct {
	Arg         int
	Mask, Value uint32
}

// Action is what becomes of a call.
type Action struct {
	errno unix.Errno
	kill  bool
}

// Kill ends the process.
var Kill = Action{kill: true}

// Errno answers with an error, and makes no call.
func Errno(e unix.Errno) Action { return Action{errno: e} }

func (a Action) code() uint32 {
	switch {
	case a.kill:
		return unix.SECCOMP_RET_KILL_PROCESS
	case a.errno != 0:
		return unix.SECCOMP_RET_ERRNO | uint32(a.errno)
	}
	return unix.SECCOMP_RET_ALLOW
}

// Allow is a row for each of some calls, whatever their arguments.
func Allow(calls ...uint32) (rows []Row) {
	for _, c := range calls {
		rows = append(rows, Row{Call: c})
	}
	return rows
}

// arches are the kernel's names of the architectures whose numbers callers have.
var arches = map[string]uint32{"amd64": unix.AUDIT_ARCH_X86_64, "arm64": unix.AUDIT_ARCH_AARCH64}

// Offsets in struct seccomp_data.
const (
	offsetCall = 0
	offsetArch = 4
	offsetArgs = 16
)

// compile makes a program of rows. A call under another architecture's numbers must not be read with ours (CVE-2015-2830);
// those of x32 have a bit that no row has. Rows that come first cost least.
func compile(rows []Row, others Action) ([]unix.SockFilter, error) {
	arch, ok := arches[runtime.GOARCH]
	if !ok {
		return nil, fmt.Errorf("there is none for %s", runtime.GOARCH)
	}
	load := func(offset uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset}
	}
	equal := func(k uint32, otherwise int) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: k, Jf: uint8(otherwise)}
	}
	answer := func(a Action) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: a.code()}
	}
	p := []unix.SockFilter{
		load(offsetArch),
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: arch, Jt: 1},
		answer(Kill),
		load(offsetCall),
	}
	const each = 3 // instructions of a condition
	for _, r := range rows {
		if len(r.Where) == 0 {
			p = append(p, equal(r.Call, 1), answer(r.Answer))
			continue
		}
		p = append(p, equal(r.Call, each*len(r.Where)+2))
		for i, c := range r.Where {
			p = append(p,
				load(offsetArgs+8*uint32(c.Arg)), // little-endian: the low half comes first
				unix.SockFilter{Code: unix.BPF_ALU | unix.BPF_AND | unix.BPF_K, K: c.Mask},
				equal(c.Value, each*(len(r.Where)-i-1)+1))
		}
		p = append(p, answer(r.Answer), load(offsetCall))
	}
	return append(p, answer(others)), nil
}

// Install puts the rows on every thread, those that are going to be among them; others is for every call that none is about. It is
// for good. Who calls it tries what it takes.
func Install(rows []Row, others Action) error {
	p, err := compile(rows, others)
	if err != nil {
		return fmt.Errorf("filter: %w", err)
	}
	prog := unix.SockFprog{Len: uint16(len(p)), Filter: &p[0]}
	thread, _, e := syscall.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&prog)))
	runtime.KeepAlive(p)
	switch {
	case e != 0:
		return fmt.Errorf("filter: %w", e)
	case thread != 0:
		return fmt.Errorf("filter: thread %d cannot have it", thread)
	}
	return nil
}
