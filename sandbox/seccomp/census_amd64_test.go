package seccomp

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// census is the last number that is asked for.
const census = 600

// bad is an argument that no call takes for a descriptor, a pointer or a size.
const bad = ^uint64(0)

// T043: the answer of every profile to every number, as a file that a review reads: with arguments
// that are all zero and, where that makes a difference, all bad. The same numbers under i386
// and x32 end the process (CVE-2015-2830). Control: who does not look at the architecture takes hundreds of them for calls that are allowed.
func TestCensus(t *testing.T) {
	names := make(map[int]string) // of calls in rows: the others' depend on libseccomp's age
	for _, r := range rows {
		for name := range strings.FieldsSeq(r.calls) {
			if n, err := number(name); err == nil {
				names[int(n)] = name
			}
		}
	}
	var b strings.Builder
	mistaken := 0
	fmt.Fprintf(&b, "# number name %s\n", strings.Join(Profiles, " "))
	for nr := range uint32(census + 1) {
		cells := []string{strconv.Itoa(int(nr)), names[int(nr)]}
		if cells[1] == "" {
			cells[1] = "-"
		}
		for _, profile := range Profiles {
			p := program(t, profile)
			zero := verdictOf(run(t, p, call{nr: nr, arch: archAMD64}))
			if bad := verdictOf(run(t, p, badly(nr))); bad != zero {
				zero += "/" + bad
			}
			cells = append(cells, zero)
			if zero == "allow" {
				mistaken++
			}
			for _, report := range []bool{false, true} {
				p := variantOf(t, profile, report)
				for _, other := range []call{{nr: nr, arch: archI386}, {nr: nr | x32, arch: archAMD64}} {
					if got := verdictOf(run(t, p, other)); got != "kill" {
						t.Errorf("%s: %d of %#x: %s", profile, other.nr, other.arch, got)
					}
				}
			}
		}
		b.WriteString(strings.Join(cells, " ") + "\n")
	}
	if mistaken < 500 {
		t.Errorf("control: %d numbers are allowed in all: nothing could be mistaken for them", mistaken)
	}
	golden(t, "testdata/census.golden", b.String())
}

func badly(nr uint32) call {
	return call{nr: nr, arch: archAMD64, args: [6]uint64{bad, bad, bad, bad, bad, bad}}
}

// unasked are the numbers that are interpreted but not called.
var unasked = map[int]string{
	unix.SYS_VFORK:        "the child would run on its parent's stack",
	unix.SYS_PAUSE:        "waits for ever",
	unix.SYS_RT_SIGRETURN: "takes the stack for a signal's",
	unix.SYS_SYNC:         "waits for the host's disks",
	335:                   "uretprobe: the kernel filters it not (6.14), and ends whoever calls it",
	336:                   "uprobe: as uretprobe (6.18)",
}

// T043: what the programs say is what the kernel does. Every number is called under every profile, in a
// process of its own, with bad arguments: what is refused answers as the census says, and
// what is allowed as it does without a profile (the negative control).
func TestCensusCalled(t *testing.T) {
	bare := called(t, "census", "")
	differ := 0
	for _, profile := range Profiles {
		got := called(t, "census", profile)
		for nr := range uint32(census + 1) {
			if _, skip := unasked[int(nr)]; skip {
				continue
			}
			want := verdictOf(run(t, program(t, profile), badly(nr)))
			if want == "allow" {
				want = bare[int(nr)]
			} else if bare[int(nr)] != want {
				differ++
			}
			if got[int(nr)] != want {
				t.Errorf("%s: %d (%s): %s, want %s", profile, nr, nameOf(int(nr)), got[int(nr)], want)
			}
		}
	}
	if differ < 100 {
		t.Errorf("only %d answers were the profiles': the proof proves nothing", differ)
	}
}

// T043: by x32's numbers and by i386's, with int 0x80, every call ends the process. Without
// a profile getpid of both does not.
func TestOtherNumbersKilled(t *testing.T) {
	for role, control := range map[string][]string{"x32": {"ok", "ENOSYS"}, "i386": {"ok"}} { // few kernels have x32 turned on
		for _, profile := range Profiles {
			for nr, answer := range called(t, role, profile) {
				if answer != "SIGSYS" {
					t.Errorf("%s: %d of %s: %s", profile, nr, role, answer)
				}
			}
		}
		for nr, answer := range called(t, role+" control", "") {
			if !slices.Contains(control, answer) {
				t.Errorf("%d of %s without a profile: %s: the proof proves nothing", nr, role, answer)
			}
		}
	}
}

// called runs a census in namespaces of its own, where what is allowed reaches nobody.
func called(t *testing.T, role, profile string) map[int]string {
	t.Helper()
	cmd := command(t, role, profile)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWNET | unix.CLONE_NEWNS | unix.CLONE_NEWUTS,
		// No id is mapped to the host's root.
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: 65534, Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: 65534, Size: 1}},
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s under %q: %v\n%s", role, profile, err, out)
	}
	got := make(map[int]string)
	for line := range strings.Lines(string(out)) {
		nr, answer, ok := strings.Cut(strings.TrimSpace(line), ": ")
		n, err := strconv.Atoi(nr)
		if !ok || err != nil {
			t.Fatalf("%s under %q: %s", role, profile, line)
		}
		got[n] = answer
	}
	if len(got) == 0 {
		t.Fatalf("%s under %q: no answers", role, profile)
	}
	return got
}

func init() {
	each := func(call func(nr uintptr) unix.WaitStatus) func() {
		return func() {
			runtime.LockOSThread()
			unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) // some answers depend on it, and a profile comes with it
			unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)     // SIGSYS would leave a core
			for nr := range uintptr(census + 1) {
				if _, skip := unasked[int(nr)]; !skip {
					fmt.Printf("%d: %s\n", nr, ending(call(nr)))
				}
			}
		}
	}
	roles["census"] = each(func(nr uintptr) unix.WaitStatus { return inChild(nr, nil) })
	roles["x32"] = each(func(nr uintptr) unix.WaitStatus { return inChild(nr|x32, nil) })
	roles["i386"] = each(func(nr uintptr) unix.WaitStatus { return inChild(0, int80(nr)) })
	roles["x32 control"] = func() { fmt.Printf("%d: %s\n", unix.SYS_GETPID, ending(inChild(unix.SYS_GETPID|x32, nil))) }
	roles["i386 control"] = func() { fmt.Printf("20: %s\n", ending(inChild(0, int80(20)))) } // i386's getpid
}

// ending is what became of a call: the child's exit code is its errno.
func ending(s unix.WaitStatus) string {
	if s.Signaled() {
		return unix.SignalName(s.Signal())
	}
	if n := name(syscall.Errno(s.ExitStatus())); n != "" {
		return n
	}
	return fmt.Sprint("exit ", s.ExitStatus()) // of exit and exit_group
}

// inChild makes one call, or runs code, in a forked child, which does nothing else: it has
// one thread of a Go program, and may neither allocate nor be scheduled.
func inChild(nr uintptr, code func()) unix.WaitStatus {
	const b = uintptr(bad)
	pid, _, e := syscall.RawSyscall(unix.SYS_FORK, 0, 0, 0)
	if pid == 0 && e == 0 {
		if code != nil {
			code()
		} else {
			_, _, e = syscall.RawSyscall6(nr, b, b, b, b, b, b)
		}
		for {
			syscall.RawSyscall(unix.SYS_EXIT_GROUP, uintptr(e), 0, 0)
		}
	}
	if e != 0 {
		fmt.Println("fork:", e)
		os.Exit(1)
	}
	var status unix.WaitStatus
	if _, err := unix.Wait4(int(pid), &status, 0, nil); err != nil {
		fmt.Println("wait:", err)
		os.Exit(1)
	}
	return status
}

var page []byte

// int80 returns a function that makes a call through i386's door: mov eax, nr; int 0x80; ret.
func int80(nr uintptr) func() {
	if page == nil {
		var err error
		if page, err = unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE|unix.PROT_EXEC, unix.MAP_PRIVATE|unix.MAP_ANON); err != nil {
			fmt.Println("mmap:", err)
			os.Exit(1)
		}
	}
	copy(page, []byte{0xb8, byte(nr), byte(nr >> 8), 0, 0, 0xcd, 0x80, 0xc3})
	entry := unsafe.Pointer(&page[0])
	function := &entry // a func value points to the address of its code
	return *(*func())(unsafe.Pointer(&function))
}
