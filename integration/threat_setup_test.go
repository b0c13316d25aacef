package integration

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/internal/testbox"
	"github.com/stockade-dev/stockade/sandbox"
	"github.com/stockade-dev/stockade/supervisor/api"
)

// setupThreats aim at the moment in which a session is built: roots, mounts, namespaces (T001 to T042).
var setupThreats = []threat{
	{id: "T001", what: "programs of the host are overwritten through proc", try: overwrite},
	{id: "T003", what: "descriptors that the daemon inherited come along", try: inheritedDescriptors},
	{id: "T004", what: "a leaked descriptor is executed or entered", try: leakedDescriptor},
	{id: "T005", what: "dev of the root is swapped under the masks", try: devSwap},
	{id: "T006", what: "the terminal's node is swapped", try: swappedTerminal},
	{id: "T007", what: "mount targets are swapped to write to proc", try: targetSwap},
	{id: "T008", what: "dev of the root is a link to the host", try: linkedSystem},
	{id: "T009", what: "a directory on the way to a target is swapped for a link", try: targetSwap},
	{id: "T010", what: "the source of a mount is a link, or becomes one", try: sourceSwap},
	{id: "T011", what: "a target leads through a dangling link", try: danglingTarget},
	{id: "T012", what: "proc and sys of the root are links", try: linkedSystem},
	{id: "T016", what: "a mount has other flags than decided", try: mountFlags},
	{id: "T022", what: "what forks at once is born outside the group", try: bornInside},
	{id: "T023", what: "devices, past one of two hierarchies", try: devices},
	{id: "T028", what: "ids that are read as others", shown: "sandbox TestSpecValidate"},
	{id: "T029", what: "id maps that overlap", shown: "sandbox/runc TestIDRanges"},
	{id: "T036", what: "a step of the set-up fails", shown: "integration TestSetupFaults"},
	{id: "T037", what: "a layer that the kernel lacks", shown: "sandbox/runc TestMissingLayer"},
	{id: "T038", what: "an older Landlock", shown: "sandbox/guest TestLandlock"},
	{id: "T039", what: "Landlock that fails", shown: "sandbox/guest TestLandlockErrors"},
	{id: "T041", what: "libraries of the root are loaded by a helper of the host", try: loadedLibraries},
	{id: "T042", what: "a crash inside is handed to a program of the host", try: crash},
}

// fails runs an open that must be refused or harmless, and closes what it opened.
func (s *siege) attempt(ask api.Local) *api.Receipt {
	s.Helper()
	r, err := s.c.Open(s.Context(), api.SessionOpen{Profile: "workspace", Target: api.Target{Local: &ask}})
	if err != nil {
		s.Fatal(err)
	}
	if r.Outcome == api.OutcomeOK {
		s.close(r.SessionID)
	}
	return r
}

func (s *siege) close(session string) {
	s.Helper()
	r, err := s.c.Close(s.Context(), api.SessionClose{SessionID: session, Mode: "force"})
	settled(s.T, r, err)
}

// swap exchanges two names as fast as it can until stopped.
func (s *siege) swap(a, b string) (stop func() int) {
	done := make(chan struct{})
	var n int
	var wait sync.WaitGroup
	wait.Go(func() {
		for !isClosed(done) {
			if err := unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE); err != nil {
				s.Errorf("exchange: %v", err)
				return
			}
			n++
			time.Sleep(20 * time.Microsecond) // the processors are for those that are to be caught
		}
	})
	return func() int { close(done); wait.Wait(); return n }
}

// overwrite (CVE-2019-5736): a program in a loop opens what every process near it executes, for
// writing, while a script whose interpreter is /proc/self/exe is executed again and again.
func overwrite(s *siege) {
	session := s.session(func(o *api.SessionOpen) { o.Background = new(bool); *o.Background = true })
	shell(s.T, s.c, session, "setsid /mnt/probe/probe overwrite-exe >/tmp/overwritten 2>/tmp/errors & printf '#!/proc/self/exe\n' >/tmp/script; chmod 755 /tmp/script")
	n := rounds(s.T) / 5
	for range n {
		if _, err := s.c.Exec(s.Context(), api.Exec{SessionID: session, Argv: []string{"/tmp/script"}}); err != nil {
			s.Fatal(err)
		}
	}
	s.want("what could be opened for writing", strings.TrimSpace(text(shell(s.T, s.c, session, "cat /tmp/overwritten").Payload.Exec.Stdout)), "")
	s.Logf("%d executions", n)

	// The control: the same program on the host, beside a copy of a command that has just ended.
	victim := filepath.Join(shared(s.T), "victim")
	clone(s.T, filepath.Join(s.probes, "probe"), victim, 0o755)
	if got := onHost(s, "write", victim); got != "ok" {
		s.Errorf("control: %s", got)
	}
}

// onHost makes an attempt outside, as root.
func onHost(s *siege, args ...string) string {
	s.Helper()
	p := places{probes: s.probes}
	return p.outside(s.T, strings.Join(args, " "), plain)
}

// inheritedDescriptors: the daemon has files open that it inherited without close-on-exec; neither
// init nor a command has one.
func inheritedDescriptors(s *siege) {
	session := s.session(nil)
	s.want("descriptors of a command", s.probe(session, "descriptors"), "0 1 2")
	s.want("descriptors of init", s.probe(session, "readlink", "/proc/1/fd/0"), "EACCES", "EPERM")
	if got := onHost(s, "descriptors"); got == "0 1 2" {
		s.Errorf("control: %s", got)
	}
}

// leakedDescriptor (CVE-2024-21626): every number is executed, and is tried as a working directory.
func leakedDescriptor(s *siege) {
	session := s.session(nil)
	for fd := range 12 {
		path := fmt.Sprintf("/proc/self/fd/%d", fd)
		r, err := s.c.Exec(s.Context(), api.Exec{SessionID: session, Argv: []string{path}})
		if err != nil {
			s.Fatal(err)
		}
		if r.ErrorCode != api.CodeSpawnFailed {
			s.Errorf("%s was executed: %s %s", path, r.Outcome, r.ErrorCode)
		}
		for _, cwd := range []string{path, path + "/..", "/proc/1/cwd", "/proc/self/cwd/../.."} {
			r, err := s.c.Exec(s.Context(), api.Exec{SessionID: session, Argv: []string{"pwd"}, Cwd: cwd})
			if err != nil {
				s.Fatal(err)
			}
			if r.Outcome == api.OutcomeOK && strings.TrimSpace(text(r.Payload.Exec.Stdout)) != "/" {
				s.Errorf("cwd %s: %s", cwd, text(r.Payload.Exec.Stdout))
			}
		}
	}
}

// unpacked is a small root file system that runs the probe.
func (s *siege) unpacked() string {
	s.Helper()
	root := filepath.Join(shared(s.T), "root")
	for _, dir := range []string{"", "bin", "etc", "mnt/probe"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			s.Fatal(err)
		}
	}
	clone(s.T, filepath.Join(s.probes, "probe"), filepath.Join(root, "bin/probe"), 0o755)
	return root
}

// linkedSystem (CVE-2026-41579, T012): /dev, /proc and /sys of the root lead to the host. They are always
// ours: nothing of the root's is used, made, or written.
func linkedSystem(s *siege) {
	for _, name := range []string{"dev", "proc", "sys"} {
		for _, kind := range []string{"link", "file"} {
			root := s.unpacked()
			trap := filepath.Join(shared(s.T), "trap")
			err := os.Mkdir(trap, 0o777)
			if kind == "link" {
				err = errors.Join(err, os.WriteFile(filepath.Join(trap, "ptmx"), []byte("canary"), 0o666), os.Symlink(trap, filepath.Join(root, name)))
			} else {
				err = errors.Join(err, os.WriteFile(filepath.Join(root, name), nil, 0o644))
			}
			if err != nil {
				s.Fatal(err)
			}
			before := listing(s, trap)
			r, err := s.c.Open(s.Context(), api.SessionOpen{Profile: "workspace", Target: api.Target{Local: &api.Local{Root: api.Root{Dir: &api.RootDir{Path: root}}}}})
			session := settled(s.T, r, err).SessionID
			x, err := s.c.Exec(s.Context(), api.Exec{SessionID: session, Argv: []string{"/bin/probe", "descriptors"}})
			s.want(name+" as a "+kind, printed(settled(s.T, x, err)), "0 1 2")
			s.close(session)
			if after := listing(s, trap); after != before {
				s.Errorf("%s as a %s: the directory that it leads to held %s, and holds %s", name, kind, before, after)
			}
		}
	}
}

// listing is a directory of the host as one line.
func listing(s *siege, dir string) string {
	s.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err.Error()
	}
	var out []string
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			s.Fatal(err)
		}
		out = append(out, fmt.Sprint(e.Name(), info.Mode(), info.Size(), info.ModTime()))
	}
	return strings.Join(out, "; ")
}

// devSwap (CVE-2025-31133): /dev of the root flips between a directory and a link to /proc while sessions open.
func devSwap(s *siege) {
	root := s.unpacked()
	a, b := filepath.Join(root, "dev"), filepath.Join(root, "swapped")
	if err := errors.Join(os.Mkdir(a, 0o755), os.WriteFile(filepath.Join(a, "null"), nil, 0o666), os.Symlink("/proc", b)); err != nil {
		s.Fatal(err)
	}
	stop := s.swap(a, b)
	n := rounds(s.T) / 5
	opened := 0
	for range n {
		r, err := s.c.Open(s.Context(), api.SessionOpen{Profile: "workspace", Target: api.Target{Local: &api.Local{Root: api.Root{Dir: &api.RootDir{Path: root}}}}})
		if err != nil {
			s.Fatal(err)
		}
		if r.Outcome != api.OutcomeOK {
			continue
		}
		opened++
		x, err := s.c.Exec(s.Context(), api.Exec{SessionID: r.SessionID, Argv: []string{"/bin/probe", "content", "/proc/timer_list"}})
		s.want("a masked file", printed(settled(s.T, x, err)), "empty", "ENOENT", "EACCES", "EPERM")
		s.close(r.SessionID)
	}
	s.Logf("%d sessions opened of %d, %d exchanges", opened, n, stop())
}

// targetSwap (CVE-2021-30465, CVE-2025-52881): a mount goes below another mount of the caller's, in which
// a directory on the way flips with a link to the host's root. What is mounted is inside, or the open is refused.
func targetSwap(s *siege) {
	work := filepath.Join(shared(s.T), "work")
	if err := errors.Join(os.MkdirAll(filepath.Join(work, "a/b"), 0o755), os.Symlink("/", filepath.Join(work, "swapped"))); err != nil {
		s.Fatal(err)
	}
	stop := s.swap(filepath.Join(work, "a"), filepath.Join(work, "swapped"))
	n := rounds(s.T)
	opened := 0
	for range n {
		before := hostMounts(s)
		r, err := s.c.Open(s.Context(), api.SessionOpen{Profile: "workspace", Target: api.Target{Local: &api.Local{
			Mounts: []api.Mount{{HostPath: work, GuestPath: "/work", Mode: "rw"}, {HostPath: s.probes, GuestPath: "/work/a/b", Mode: "ro"}},
		}}})
		if err != nil {
			s.Fatal(err)
		}
		if r.Outcome == api.OutcomeOK {
			opened++
			if !slices.ContainsFunc(r.Payload.Open.Enforced.Mounts, func(m string) bool { return strings.HasPrefix(m, "/work/a/b ") }) {
				s.Errorf("mounts: %q", r.Payload.Open.Enforced.Mounts)
			}
			s.close(r.SessionID)
		} else if !slices.Contains([]api.Code{api.CodeMountTarget, api.CodeNotEnforced}, r.ErrorCode) {
			s.Errorf("%s %s", r.ErrorCode, r.ErrorMessage)
		}
		if after := hostMounts(s); after != before {
			s.Fatalf("mounts of the host: %s\nbefore: %s", after, before)
		}
	}
	swaps := stop()
	s.Logf("%d sessions opened of %d, %d exchanges", opened, n, swaps)
	if opened == 0 || opened == n {
		s.Errorf("%d of %d opened: the race did not meet", opened, n)
	}
}

// hostMounts is the mount table that we see.
func hostMounts(s *siege) string {
	s.Helper()
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		s.Fatal(err)
	}
	return string(b)
}

// sourceSwap (CVE-2017-1002101, CVE-2021-25741): the source of a mount flips with a link to /etc, after policy has looked.
func sourceSwap(s *siege) {
	base := shared(s.T)
	work := filepath.Join(base, "sub")
	if err := errors.Join(os.Mkdir(work, 0o755), os.WriteFile(filepath.Join(work, "ours"), nil, 0o644), os.Symlink("/etc", filepath.Join(base, "swapped"))); err != nil {
		s.Fatal(err)
	}
	stop := s.swap(work, filepath.Join(base, "swapped"))
	n := rounds(s.T)
	opened := 0
	for range n {
		r, err := s.c.Open(s.Context(), api.SessionOpen{Profile: "workspace", Target: api.Target{Local: &api.Local{
			Mounts: []api.Mount{{HostPath: s.probes, GuestPath: "/mnt/probe", Mode: "ro"}, {HostPath: work, GuestPath: "/work", Mode: "ro"}},
		}}})
		if err != nil {
			s.Fatal(err)
		}
		if r.Outcome != api.OutcomeOK {
			continue
		}
		opened++
		s.want("what was mounted", s.probe(r.SessionID, "read", "/work/ours"), "ok")
		s.want("the host's /etc", s.probe(r.SessionID, "read", "/work/passwd"), "ENOENT")
		s.close(r.SessionID)
	}
	s.Logf("%d sessions opened of %d, %d exchanges", opened, n, stop())
}

// danglingTarget (CVE-2024-45310): a component of the target is a link to a place of the host that does not exist.
func danglingTarget(s *siege) {
	base := shared(s.T)
	work, outside := filepath.Join(base, "work"), filepath.Join(base, "outside")
	if err := errors.Join(os.Mkdir(work, 0o755), os.Symlink(outside, filepath.Join(work, "link"))); err != nil {
		s.Fatal(err)
	}
	r := s.attempt(api.Local{Mounts: []api.Mount{{HostPath: work, GuestPath: "/work", Mode: "rw"}, {HostPath: s.probes, GuestPath: "/work/link/made", Mode: "ro"}}})
	if r.ErrorCode != api.CodeMountTarget {
		s.Errorf("%s %s %s", r.Outcome, r.ErrorCode, r.ErrorMessage)
	}
	if _, err := os.Lstat(outside); !errors.Is(err, os.ErrNotExist) {
		s.Errorf("%s: %v", outside, err)
	}
}

// mountFlags: every line of mountinfo inside is one that the receipt vouches for, and carries what was decided.
func mountFlags(s *siege) {
	work := filepath.Join(shared(s.T), "work")
	if err := os.Mkdir(work, 0o777); err != nil {
		s.Fatal(err)
	}
	r, err := s.c.Open(s.Context(), api.SessionOpen{Profile: "workspace", Target: api.Target{Local: &api.Local{
		Mounts: []api.Mount{{HostPath: work, GuestPath: "/work", Mode: "rw"}, {HostPath: s.probes, GuestPath: "/mnt/probe", Mode: "ro"}},
	}}})
	session := settled(s.T, r, err).SessionID
	vouched := r.Payload.Open.Enforced.Mounts
	var seen []string
	for line := range strings.Lines(text(shell(s.T, s.c, session, "cat /proc/self/mountinfo").Payload.Exec.Stdout)) {
		f := strings.Fields(line)
		dash := slices.Index(f, "-")
		if dash < 6 {
			s.Fatalf("mountinfo: %q", line)
		}
		// A mask is a device node of nobody's, or an empty directory: flags say nothing about it.
		masked := strings.HasPrefix(f[4], "/proc/") || strings.HasPrefix(f[4], "/sys/")
		device := sandbox.Within(f[4], "/dev") // each node is a mount of its own
		if flags := strings.Split(f[5], ","); !masked && !device && (!slices.Contains(flags, "nosuid") || !slices.Contains(flags, "nodev")) {
			s.Errorf("%s has %s", f[4], f[5])
		}
		if dash != 6 {
			s.Errorf("%s takes part in propagation: %s", f[4], line)
		}
		seen = append(seen, f[4]+" "+f[dash+1]+" "+f[5])
	}
	slices.Sort(seen)
	if !slices.Equal(seen, vouched) {
		s.Errorf("inside:\n%s\nin the receipt:\n%s", strings.Join(seen, "\n"), strings.Join(vouched, "\n"))
	}
	for path, mode := range map[string]string{"/work": "rw", "/mnt/probe": "ro", "/": "ro"} {
		if !slices.ContainsFunc(seen, func(m string) bool { return strings.HasPrefix(m, path+" ") && strings.Contains(m, " "+mode+",") }) {
			s.Errorf("%s is not %s", path, mode)
		}
	}
}

// bornInside: a command that forks with its first instruction has no child outside its session's groups.
func bornInside(s *siege) {
	session := s.session(nil)
	n := rounds(s.T)
	out := s.probe(session, "fork-cgroups", fmt.Sprint(n))
	s.want(fmt.Sprintf("groups of %d forks", n), out, "one")
}

// devices: whoever is in the groups of a session opens what the list has and nothing else, also as root of the host, and each
// hierarchy refuses by itself.
func devices(s *siege) {
	init, err := testbox.Init(opened(s.T, s.c, nil).Payload.Open.Enforced.Namespaces["pid"])
	if err != nil {
		s.Fatal(err)
	}
	groups, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", init))
	if err != nil {
		s.Fatal(err)
	}
	tried := 0
	for line := range strings.Lines(string(groups)) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		root := unified(s.T)
		if f[1] == "devices" {
			root = "/sys/fs/cgroup/devices"
		} else if f[0] != "0" {
			continue
		}
		for device, want := range map[string]string{"/dev/null": "ok", "/dev/kmsg": "EPERM", "/dev/mem": "EPERM", "/dev/fuse": "EPERM"} {
			if _, err := os.Stat(device); err != nil {
				continue
			}
			cmd := exec.Command("sh", "-c", `echo $$ >"$1/cgroup.procs" && exec "$2" read "$3"`, "sh", root+f[2], filepath.Join(s.probes, "probe"), device)
			out, err := cmd.CombinedOutput()
			if err != nil {
				s.Fatalf("in %s: %v\n%s", root+f[2], err, out)
			}
			s.want(device+" in "+f[1]+"'s group", strings.TrimSpace(string(out)), want)
			tried++
		}
	}
	s.want("control", onHost(s, "read", "/dev/kmsg"), "ok")
	if tried < 2 {
		s.Errorf("groups: %q", groups)
	}
}

// loadedLibraries (CVE-2019-14271): a root has its own ld.so.preload and name service; who loads them runs inside, or not at all.
func loadedLibraries(s *siege) {
	root := s.unpacked()
	for name, content := range map[string]string{"etc/ld.so.preload": "/lib/canary.so\n", "etc/nsswitch.conf": "passwd: canary\n", "etc/passwd": "canary:x:0:0::/:/bin/sh\n"} {
		if err := os.WriteFile(filepath.Join(root, name), []byte(content), 0o644); err != nil {
			s.Fatal(err)
		}
	}
	watch, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		s.Fatal(err)
	}
	defer unix.Close(watch)
	for _, name := range []string{"etc/ld.so.preload", "etc/nsswitch.conf", "etc/passwd"} {
		if _, err := unix.InotifyAddWatch(watch, filepath.Join(root, name), unix.IN_OPEN|unix.IN_ACCESS); err != nil {
			s.Fatal(err)
		}
	}
	opened := func() bool {
		n, err := unix.Read(watch, make([]byte, 4096))
		return n > 0 && err == nil
	}
	r, err := s.c.Open(s.Context(), api.SessionOpen{Profile: "workspace", Target: api.Target{Local: &api.Local{Root: api.Root{Dir: &api.RootDir{Path: root}}}}})
	session := settled(s.T, r, err).SessionID
	x, err := s.c.Exec(s.Context(), api.Exec{SessionID: session, Argv: []string{"/bin/probe", "euid"}})
	s.want("a static program", printed(settled(s.T, x, err)), "1000")
	if opened() {
		s.Error("somebody opened the root's name service or loader files")
	}
	x, err = s.c.Exec(s.Context(), api.Exec{SessionID: session, Argv: []string{"/bin/probe", "read", "/etc/ld.so.preload"}})
	s.want("control", printed(settled(s.T, x, err)), "ok")
	if !opened() {
		s.Error("control: the watch sees nothing")
	}
}

// crash: the limit of a core is 1, at which the kernel hands a crash to no program either (a limit of 0
// stops files only), and stays it.
func crash(s *siege) {
	session := s.session(nil)
	r := shell(s.T, s.c, session, "ulimit -c 0; cat /proc/self/limits | grep core; kill -SEGV $$")
	x := r.Payload.Exec
	if f := strings.Fields(text(x.Stdout)); len(f) < 6 || f[4] != "1" || f[5] != "1" {
		s.Errorf("limit of cores: %q", text(x.Stdout))
	}
	if x.Signal != "SEGV" {
		s.Errorf("%+v", x)
	}
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(unix.RLIMIT_CORE, &limit); err != nil || limit.Max == 1 {
		s.Errorf("control: %+v, %v", limit, err)
	}
}

// swappedTerminal (CVE-2025-52565): no terminal is bound anywhere by name: there is no console to bind it on.
func swappedTerminal(s *siege) {
	session := s.session(nil)
	s.want("/dev/console", s.probe(session, "read", "/dev/console"), "ENOENT")
	s.want("a terminal of the session's own", s.probe(session, "pty"), "0")
	if got := onHost(s, "read", "/dev/ptmx"); got != "ok" {
		s.Errorf("control: %s", got)
	}
}
