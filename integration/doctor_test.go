package integration

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// TestDoctorInContainer: where no runner can be started, because a container withholds something, doctor names each missing piece
// and the flag that grants it; where that is granted, it does not. The pieces are really taken away, each alone and all together.
func TestDoctorInContainer(t *testing.T) {
	needRoot(t)
	if os.Getenv("DOCTOR_FILTER") != "" {
		refuseNamespaces()
	}
	const (
		readOnly = `for m in $(awk '$3=="cgroup"||$3=="cgroup2"{print $2}' /proc/mounts); do mount -o remount,bind,ro $m || exit 1; done; `
		masked   = `mount --bind /dev/null /proc/timer_list 2>/dev/null || mount --bind /dev/null /proc/keys || exit 1; `
	)
	pieces := []struct{ name, set, drop, says string }{
		{"everything is granted", "", "", ""},
		{"no CAP_SYS_ADMIN", "", "setpriv --bounding-set=-sys_admin", "--cap-add SYS_ADMIN"},
		{"no CAP_SETFCAP", "", "setpriv --bounding-set=-setfcap", "--cap-add SETFCAP"},
		{"no root", "", "setpriv --reuid=65534 --clear-groups", "--user 0"},
		{"a seccomp filter", "", "env DOCTOR_FILTER=1 " + testProgram(t) + " -test.run=^TestDoctorInContainer$", "--security-opt seccomp=unconfined"},
		{"control groups to read", readOnly, "", "--security-opt unmask=/sys/fs/cgroup"},
		{"a /proc with something over it", masked, "", "--security-opt systempaths=unconfined"},
		{"the groups and a capability", readOnly, "setpriv --bounding-set=-sys_admin", "--cap-add SYS_ADMIN"},
	}
	for _, p := range pieces {
		t.Run(p.name, func(t *testing.T) {
			cmd := exec.Command("unshare", "--mount", "--propagation", "private", "sh", "-c", p.set+"exec "+p.drop+` "$@"`, "sh",
				filepath.Join(bin, "stockade"), "--socket", "/nonexistent/socket", "doctor")
			if strings.Contains(p.drop, "DOCTOR_FILTER") { // it executes the same by itself
				cmd.Args = cmd.Args[:7]
				cmd.Args[6] = p.set + "exec " + p.drop
			}
			out, err := cmd.CombinedOutput()
			said := string(out)
			if cmd.ProcessState.ExitCode() != 121 || !strings.Contains(said, "no supervisor answers at") {
				t.Fatalf("%v: %s", err, said)
			}
			for _, other := range pieces {
				if other.says == "" {
					continue
				}
				withheld := other.says == p.says || p.set == readOnly && strings.HasSuffix(other.says, "cgroup")
				if p.says == "--user 0" && strings.HasPrefix(other.says, "--cap-add") {
					continue // who is not root has none
				}
				if got := strings.Contains(said, other.says); got != withheld {
					t.Errorf("%s is named: %v\n%s", other.says, got, said)
				}
			}
		})
	}
}

func testProgram(t *testing.T) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return self
}

// refuseNamespaces puts a filter on this process that refuses what the default profiles of container engines refuse whoever has no
// CAP_SYS_ADMIN, and becomes doctor.
func refuseNamespaces() {
	runtime.LockOSThread()
	const number, firstArgument = 0, 16 // offsets in struct seccomp_data
	refuse := uint32(unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM))
	load := func(at uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: at}
	}
	program := []unix.SockFilter{
		load(number),
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_UNSHARE, Jt: 5},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_MOUNT, Jt: 4},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_CLONE, Jf: 2},
		load(firstArgument),
		{Code: unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K, K: unix.CLONE_NEWUSER, Jt: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
		{Code: unix.BPF_RET | unix.BPF_K, K: refuse},
	}
	filter := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	err := unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&filter)), 0, 0)
	if err == nil {
		err = syscall.Exec(filepath.Join(bin, "stockade"), []string{"stockade", "--socket", "/nonexistent/socket", "doctor"}, os.Environ())
	}
	fmt.Fprintln(os.Stderr, "filter:", err)
	os.Exit(1)
}
