package runc

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/sandbox"
)

// evidence reads back from the kernel what is in force and compares it with the
// Spec. A difference is a refusal, whatever its cause.
func (s *session) evidence(attached []attachment) (sandbox.Enforced, error) {
	var e sandbox.Enforced
	dir := "/proc/" + strconv.Itoa(s.box.pid)
	for _, check := range []func(string, *sandbox.Enforced) error{
		s.namespaces,
		s.privileges,
		func(dir string, e *sandbox.Enforced) error { return s.mounts(dir, e, attached) },
		s.ceilings,
	} {
		if err := check(dir, &e); err != nil {
			return e, sandbox.Errorf(sandbox.CodeNotEnforced, "%v", err)
		}
	}
	return e, nil
}

// namespaces must all be other ones than the runner's.
func (s *session) namespaces(dir string, e *sandbox.Enforced) error {
	e.Namespaces = map[string]uint64{}
	for _, kind := range []string{"cgroup", "ipc", "mnt", "net", "pid", "user", "uts"} {
		theirs, err := os.Readlink(dir + "/ns/" + kind)
		if err != nil {
			return err
		}
		ours, err := os.Readlink("/proc/self/ns/" + kind)
		if err != nil {
			return err
		}
		if theirs == ours {
			return fmt.Errorf("%s namespace is the runner's", kind)
		}
		if _, err := fmt.Sscanf(theirs, kind+":[%d]", new(uint64)); err != nil {
			return fmt.Errorf("%s namespace %q: %w", kind, theirs, err)
		}
		e.Namespaces[kind], _ = strconv.ParseUint(strings.Trim(theirs[len(kind)+1:], "[]"), 10, 64)
	}
	want := fmt.Sprintf("0 %d %d", s.base, sandbox.IDs)
	for _, name := range []string{"uid_map", "gid_map"} {
		data, err := os.ReadFile(dir + "/" + name)
		if err != nil {
			return err
		}
		if got := strings.Join(strings.Fields(string(data)), " "); got != want {
			return fmt.Errorf("%s is %q, not %q", name, got, want)
		}
	}
	return nil
}

// initCapabilities are what init keeps; CAP_SETPCAP only on threads other than the one
// that makes executions. Said once more than by init itself: evidence that takes its
// subject's word is none.
const initCapabilities = 1<<unix.CAP_KILL | 1<<unix.CAP_SETGID | 1<<unix.CAP_SETUID | 1<<unix.CAP_SETPCAP

// privileges are read of every thread of init. Executions are cloned from the main
// thread: its bounding set is theirs.
func (s *session) privileges(dir string, e *sandbox.Enforced) error {
	tasks, err := os.ReadDir(dir + "/task")
	if err != nil {
		return err
	}
	granted := s.spec.Identity.CapabilityMask()
	host := strconv.Itoa(int(s.base + sandbox.InitUID))
	for _, task := range tasks {
		status, err := status(dir + "/task/" + task.Name() + "/status")
		if errors.Is(err, os.ErrNotExist) {
			continue // the Go runtime ends a thread now and then
		}
		if err != nil {
			return err
		}
		for _, c := range []struct{ field, want string }{
			{"NoNewPrivs", "1"},
			{"Seccomp", "2"},
			{"Uid", strings.Join([]string{host, host, host, host}, "\t")},
		} {
			if got := status[c.field]; got != c.want {
				return fmt.Errorf("%s of thread %s of init is %q, not %q", c.field, task.Name(), got, c.want)
			}
		}
		effective, err := strconv.ParseUint(status["CapEff"], 16, 64)
		if err != nil {
			return err
		}
		if extra := effective &^ (granted | initCapabilities); extra != 0 {
			return fmt.Errorf("thread %s of init has capabilities %#x beyond its own", task.Name(), extra)
		}
		if task.Name() != path.Base(dir) {
			continue
		}
		if e.Capabilities, err = strconv.ParseUint(status["CapBnd"], 16, 64); err != nil {
			return err
		}
		if e.Capabilities != granted {
			return fmt.Errorf("bounding set of executions is %#x, not %#x", e.Capabilities, granted)
		}
	}
	e.NoNewPrivs, e.Seccomp = true, 2
	return nil
}

// status reads a file of "Name:\tvalue" lines.
func status(path string) (map[string]string, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	fields := map[string]string{}
	for line := range bytes.Lines(data) {
		name, value, _ := strings.Cut(string(line), ":")
		fields[name] = strings.TrimSpace(value)
	}
	return fields, nil
}

// mounts must be those that were attached, with their flags, and the kernel's own;
// nothing of the host's may be left.
func (s *session) mounts(dir string, e *sandbox.Enforced, attached []attachment) error {
	data, err := os.ReadFile(dir + "/mountinfo")
	if err != nil {
		return err
	}
	flags := map[string][]string{} // of the topmost mount at each place
	for line := range strings.Lines(string(data)) {
		f := strings.Fields(line)
		dash := slices.Index(f, "-")
		if len(f) < 10 || dash < 6 || len(f) < dash+2 {
			return fmt.Errorf("mountinfo line %q", line)
		}
		target := unescape(f[4])
		flags[target] = strings.Split(f[5], ",")
		e.Mounts = append(e.Mounts, target+" "+f[dash+1]+" "+f[5])
	}
	slices.Sort(e.Mounts)
	want := map[string][]string{"/": {"ro", "nosuid", "nodev"}}
	for _, a := range attached {
		want[a.target] = []string{"rw", "nosuid", "nodev"}
		if a.readOnly {
			want[a.target][0] = "ro"
		}
	}
	for target, options := range want {
		for _, o := range options {
			if !slices.Contains(flags[target], o) {
				return fmt.Errorf("mount %s is %q, without %s", target, strings.Join(flags[target], ","), o)
			}
		}
	}
	for target := range flags {
		if want[target] != nil || slices.ContainsFunc([]string{"/proc", "/sys", "/dev"}, func(d string) bool { return sandbox.Within(target, d) }) {
			continue
		}
		return fmt.Errorf("mount %s is not one of the session's", target)
	}
	return nil
}

// unescape undoes the octal escapes of mountinfo: space, tab, newline and backslash.
func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}

// ceilings are those of the session's groups, and init must be in them.
func (s *session) ceilings(dir string, e *sandbox.Enforced) error {
	limits, swap, err := s.groups.Limits() // compares with what was asked for
	if err != nil {
		return err
	}
	e.MemoryBytes, e.CPUMillis, e.PIDs, e.SwapBytes = limits.MemoryBytes, limits.CPUMillis, limits.PIDs, swap
	for controller, group := range s.groups.Paths() {
		if controller == "" {
			group += "/init"
		}
		data, err := os.ReadFile(group + "/cgroup.procs")
		if err != nil {
			return err
		}
		if !slices.Contains(strings.Fields(string(data)), strconv.Itoa(s.box.pid)) {
			return fmt.Errorf("init is not in %s", group)
		}
	}
	return nil
}
