package integration

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/internal/testbox"
	"github.com/stockade-dev/stockade/sandbox"
	"github.com/stockade-dev/stockade/supervisor/api"
)

// setupThreats aim at the moment in which a session is built: roots, mounts, namespaces (T001 to T042).
var setupThreats = []threat{
	{id: "T001", what: "programs of the host are overwritten through proc", try: overwrite, control: overwritten},
	{id: "T003", what: "descriptors that the daemon inherited come along", try: inheritedDescriptors, control: inheritedByAChild},
	{id: "T004", what: "a leaked descriptor is executed or entered", try: leakedDescriptor, control: leakedByName},
	{id: "T005 T007", what: "proc, sys, dev and the null device of the root are swapped under the masks, and to have the set-up write elsewhere", try: systemSwap, control: systemByName},
	{id: "T006", what: "the terminal's node is swapped", try: swappedTerminal, control: swappedByName},
	{id: "T008", what: "dev of the root is a link to the host", try: linked("dev"), control: devByName},
	{id: "T009", what: "a directory on the way to a target is swapped for a link", try: targetSwap, control: mountedByName},
	{id: "T010", what: "the source of a mount is a link, or becomes one", try: sourceSwap, control: boundByName},
	{id: "T011", what: "a target leads through a dangling link", try: danglingTarget, control: madeByName},
	{id: "T012", what: "proc and sys of the root are links", try: linked("proc", "sys"), control: procByName},
	{id: "T016", what: "a mount has other flags than decided", try: mountFlags, control: flagsOfNobody},
	{id: "T022", what: "what forks at once is born outside the group", try: bornInside, control: bornOutside},
	{id: "T023", what: "devices, past one of two hierarchies", try: devices, control: devicesOfTheHost},
	{id: "T028", what: "ids that are read as others", shown: "rego TestIdentities"},
	{id: "T029", what: "id maps that overlap", shown: "sandbox/runc TestIDRanges"},
	{id: "T030", what: "what one session leaves, another finds", try: apartFromOthers, control: together},
	{id: "T036", what: "a step of the set-up fails", shown: "integration TestSetupFaults"},
	{id: "T037", what: "a layer that the kernel lacks", shown: "sandbox/runc TestMissingLayer"},
	{id: "T038", what: "an older Landlock", shown: "sandbox/guest TestLandlock"},
	{id: "T039", what: "Landlock that fails", shown: "sandbox/guest TestLandlockErrors"},
	{id: "T041", what: "libraries of the root are loaded by a helper of the host", try: loadedLibraries, control: loadedByAHelper},
	{id: "T042", what: "a crash inside is handed to a program of the host", try: crash, control: crashOutside},
}

// attempt runs an open that must be refused or harmless, and closes what it opened.
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

// overwrite (CVE-2019-5736): a program in a loop holds what every process near it executes, and opens it for
// writing, while a script whose interpreter is /proc/self/exe is executed again and again. Init is no file of the host's: what it
// executes is in memory, and nobody writes to it.
func overwrite(s *siege) {
	open := s.opened(func(o *api.SessionOpen) { o.Background = new(bool); *o.Background = true })
	session := open.SessionID
	defer s.close(session)
	s.sealed(initOf(s.T, open))
	shell(s.T, s.c, session, "setsid /mnt/probe/probe overwrite-exe >/tmp/overwritten 2>/tmp/errors & printf '#!/proc/self/exe\n' >/tmp/script; chmod 755 /tmp/script")
	n, _ := s.repeat(func() bool {
		if _, err := s.c.Exec(s.Context(), api.Exec{SessionID: session, Argv: []string{"/tmp/script"}}); err != nil {
			s.Fatal(err)
		}
		return true
	})
	s.want("what could be opened for writing", strings.TrimSpace(text(shell(s.T, s.c, session, "cat /tmp/overwritten /tmp/errors").Payload.Exec.Stdout)), "")
	s.Logf("%d executions", n)
}

// sealed looks at what a process executes, from the host.
func (s *siege) sealed(pid int) {
	s.Helper()
	exe := fmt.Sprintf("/proc/%d/exe", pid)
	if to, err := os.Readlink(exe); err != nil || !strings.HasPrefix(to, "/memfd:") {
		s.Errorf("process %d executes %q, %v", pid, to, err)
	}
	f, err := os.Open(exe)
	if err != nil {
		s.Fatal(err)
	}
	defer f.Close()
	const all = unix.F_SEAL_SEAL | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_WRITE
	if seals, err := unix.FcntlInt(f.Fd(), unix.F_GET_SEALS, 0); err != nil || seals&all != all {
		s.Errorf("what process %d executes has the seals %#x of %#x, %v", pid, seals, all, err)
	}
}

// overwritten: a runtime that is a file, and root inside too, is held while it executes the script, and written to when it has ended.
func overwritten(s *siege) {
	dir := shared(s.T)
	victim := filepath.Join(dir, "runtime")
	clone(s.T, filepath.Join(s.probes, "probe"), victim, 0o755)
	script := filepath.Join(dir, "script")
	if err := os.WriteFile(script, []byte("#!/proc/self/exe\n"), 0o755); err != nil {
		s.Fatal(err)
	}
	out := s.alone(`"$1" overwrite-exe >"$3.out" & "$2" naive-exec "$3" 20 >"$3.ended"; for i in $(seq 200); do [ -s "$3.out" ] && break; sleep 0.05; done; head -n 1 "$3.out"`, victim, script)
	s.want("what could be opened for writing", out, victim)
}

// onHost makes an attempt outside, as root.
func onHost(s *siege, args ...string) string {
	s.Helper()
	p := places{probes: s.probes}
	return p.outside(s.T, strings.Join(args, " "), plain)
}

// inheritedDescriptors: the daemon was started with twenty files open that stay so across an exec. Nobody in a session has one, nor has
// any of our processes but those two that are trusted with the host.
func inheritedDescriptors(s *siege) {
	canary, files := inheritance(s)
	ceiling := filepath.Join(shared(s.T), "ceiling.json")
	if err := os.WriteFile(ceiling, []byte(`{"sessions": 600, "sessions_per_principal": 600}`), 0o644); err != nil {
		s.Fatal(err)
	}
	d := startWith(s.T, bin, testbox.Options{Files: files, Args: []string{"--ceiling", ceiling}})
	s.d, s.c = d, d.Client()
	others := s.many(20, 500)
	for range others {
		opened(s.T, s.c, nil)
	}
	open := s.opened(nil)
	session := open.SessionID
	s.want("descriptors of a command", s.probe(session, "descriptors"), "0 1 2")
	s.want("descriptors of init", s.probe(session, "readlink", "/proc/1/fd/0"), "EACCES", "EPERM")
	s.ofInit(open)
	s.Logf("beside %d other sessions", others)
	holders := holding(s, canary)
	if n := holders[d.PID()]; n != len(files) {
		s.Errorf("the daemon has %d of the files: the attack was none", n)
	}
	delete(holders, d.PID())
	delete(holders, d.Runner())
	for pid := range holders {
		if comm, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid)); strings.HasPrefix(string(comm), "stockade") {
			s.Errorf("process %d, %s, has it open", pid, comm)
		}
	}
}

// ofInit reads what init has open, from the host.
func (s *siege) ofInit(open *api.Receipt) {
	s.Helper()
	links, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", initOf(s.T, open)))
	if err != nil {
		s.Fatal(err)
	}
	for _, link := range links {
		to, err := os.Readlink(link)
		if kind := unnumbered.ReplaceAllString(to, ""); err != nil || !slices.Contains(initOpens, kind) {
			s.Errorf("init has %q open, %v", to, err)
		}
	}
}

// initOpens is what init may have open, without the numbers of the kernel's.
var initOpens = []string{"/dev/null", "/proc/1/oom_score_adj", "anon_inode:[landlock-ruleset]", "socket"}

var unnumbered = regexp.MustCompile(`:\[[0-9]+\]$`)

// inheritedByAChild: the same files, and a child that nobody looked after.
func inheritedByAChild(s *siege) {
	canary, files := inheritance(s)
	cmd := exec.Command(filepath.Join(s.probes, "probe"), "descriptors")
	cmd.ExtraFiles = files
	out, err := cmd.Output()
	if got := strings.Fields(string(out)); err != nil || len(got) < 3+len(files) {
		s.Errorf("control: %q, %v", got, err)
	}
	if n := holding(s, canary)[os.Getpid()]; n != len(files) {
		s.Errorf("control: %d of our own %d files are found", n, len(files))
	}
}

// inheritance is a file that is open twenty times.
func inheritance(s *siege) (canary string, files []*os.File) {
	s.Helper()
	canary = filepath.Join(shared(s.T), "inherited")
	if err := os.WriteFile(canary, []byte("canary"), 0o644); err != nil {
		s.Fatal(err)
	}
	for range 20 {
		f, err := os.Open(canary)
		if err != nil {
			s.Fatal(err)
		}
		s.Cleanup(func() { f.Close() })
		files = append(files, f)
	}
	return canary, files
}

// holding says for every process of the machine how often it has a file open.
func holding(s *siege, file string) map[int]int {
	s.Helper()
	links, err := filepath.Glob("/proc/[0-9]*/fd/*")
	if err != nil {
		s.Fatal(err)
	}
	holders := map[int]int{}
	for _, link := range links {
		var pid int
		if to, err := os.Readlink(link); err != nil || to != file {
			continue // it has ended, or another
		}
		if _, err := fmt.Sscanf(link, "/proc/%d/", &pid); err != nil {
			s.Fatal(err)
		}
		holders[pid]++
	}
	return holders
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

// leakedByName: who enters a root with a directory of the host still open, and does not look where he is, is outside by the name of the
// descriptor; and a program of the host is executed by it.
func leakedByName(s *siege) {
	root, host := s.unpacked(), shared(s.T)
	if err := os.WriteFile(filepath.Join(host, "canary"), nil, 0o644); err != nil {
		s.Fatal(err)
	}
	clone(s.T, filepath.Join(s.probes, "probe"), filepath.Join(host, "program"), 0o755)
	var read, executed []int
	for fd := range 12 {
		path := fmt.Sprintf("/proc/self/fd/%d", fd)
		if s.outside(apart, "naive", root, "proc:proc", "leak:"+host, "cwd:"+path, "--", "/bin/probe", "read", "canary") == "ok" {
			read = append(read, fd)
		}
		if s.outside(apart, "naive", root, "proc:proc", "leak:"+filepath.Join(host, "program"), "--", path, "euid") == "0" {
			executed = append(executed, fd)
		}
	}
	if len(read) != 1 || len(executed) != 1 {
		s.Errorf("control: entered by %v, executed by %v", read, executed)
	}
}

// unpacked is a small root file system that runs the probe.
func (s *siege) unpacked() string {
	s.Helper()
	root := filepath.Join(shared(s.T), "root")
	for _, dir := range []string{"", "bin", "dev", "etc", "mnt/probe", "proc", "sys", "work"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			s.Fatal(err)
		}
	}
	clone(s.T, filepath.Join(s.probes, "probe"), filepath.Join(root, "bin/probe"), 0o755)
	return root
}

// linked (CVE-2026-41579, T012): /dev, /proc and /sys of the root lead to the host. They are always
// ours: nothing of the root's is used, made, or written.
func linked(names ...string) func(*siege) {
	return func(s *siege) {
		for _, name := range names {
			for _, kind := range []string{"link", "file"} {
				root, trap := s.trapped(name)
				if kind == "file" {
					if err := errors.Join(os.Remove(filepath.Join(root, name)), os.WriteFile(filepath.Join(root, name), nil, 0o644)); err != nil {
						s.Fatal(err)
					}
				}
				before := listing(s, trap)
				r, err := s.c.Open(s.Context(), api.SessionOpen{Profile: "workspace", Target: rootDir(root)})
				session := settled(s.T, r, err).SessionID
				if !lies(r.Payload.Open.Enforced.Mounts, "/"+name) {
					s.Errorf("%s as a %s: mounts: %q", name, kind, r.Payload.Open.Enforced.Mounts)
				}
				x, err := s.c.Exec(s.Context(), api.Exec{SessionID: session, Argv: []string{"/bin/probe", "descriptors"}})
				s.want(name+" as a "+kind, printed(settled(s.T, x, err)), "0 1 2")
				s.close(session)
				if after := listing(s, trap); after != before {
					s.Errorf("%s as a %s: the directory that it leads to held %s, and holds %s", name, kind, before, after)
				}
			}
		}
	}
}

// trapped is a root in which a name leads to a directory of the host.
func (s *siege) trapped(name string) (root, trap string) {
	s.Helper()
	root, trap = s.unpacked(), filepath.Join(shared(s.T), "trap")
	err := errors.Join(os.Mkdir(trap, 0o777), os.WriteFile(filepath.Join(trap, "ptmx"), []byte("canary"), 0o666),
		os.Remove(filepath.Join(root, name)), os.Symlink(trap, filepath.Join(root, name)))
	if err != nil {
		s.Fatal(err)
	}
	return root, trap
}

func rootDir(path string) api.Target {
	return api.Target{Local: &api.Local{Root: api.Root{Dir: &api.RootDir{Path: path}}}}
}

// lies reports whether one of these mounts, a line for each, lies at a path.
func lies(mounts []string, path string) bool {
	return slices.ContainsFunc(mounts, func(m string) bool { return strings.HasPrefix(m, path+" ") })
}

// devByName: who makes devices by name makes them on the host.
func devByName(s *siege) {
	root, trap := s.trapped("dev")
	before := listing(s, trap)
	s.outside(apart, "naive", root, "null:dev/null")
	if listing(s, trap) == before {
		s.Error("control: nothing was made in the directory that dev leads to")
	}
}

// procByName: who mounts by name mounts elsewhere, and what he masks afterwards is something else.
func procByName(s *siege) {
	for _, name := range []string{"proc", "sys"} {
		root, trap := s.trapped(name)
		made := strings.Split(s.outside(apart, "naive", root, name+":"+name), "\n")
		if lies(made, filepath.Join(root, name)) || !lies(made, trap) {
			s.Errorf("control: %s has come to lie at %q", name, made)
		}
	}
}

// listing is a tree of the host as one line.
func listing(s *siege, dir string) string {
	s.Helper()
	var out []string
	err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		out = append(out, fmt.Sprint(path[len(dir):], " ", digest(path)))
		return nil
	})
	if err != nil {
		s.Fatal(err)
	}
	return strings.Join(out, "; ")
}

// flip has a place change with a link to another, as fast as it can until it is stopped, wherever the directory goes that the place is in.
func (s *siege) flip(place, to string) (stop func() int) {
	s.Helper()
	dir, err := os.Open(filepath.Dir(place))
	if err != nil {
		s.Fatal(err)
	}
	if err := os.Symlink(to, place+".swapped"); err != nil {
		s.Fatal(err)
	}
	name, other, at := filepath.Base(place), filepath.Base(place)+".swapped", int(dir.Fd())
	done := make(chan struct{})
	var n int
	var wait sync.WaitGroup
	wait.Go(func() {
		defer dir.Close()
		for !isClosed(done) {
			if err := unix.Renameat2(at, name, at, other, unix.RENAME_EXCHANGE); err != nil {
				s.Errorf("exchange: %v", err)
				return
			}
			n++
			time.Sleep(20 * time.Microsecond) // the processors are for those that are to be caught
		}
	})
	return func() int { close(done); wait.Wait(); return n }
}

const masked = "/proc/timer_list"

// systemSwap (CVE-2025-31133, CVE-2025-52881): what the root has for /proc, /sys and /dev flips with links to directories that have the files
// which a set-up writes to, settings and labels; and the null device, with which a masked file may be covered, with a link to what somebody wants to
// have there. None of them is written to, nor are the host's settings, which are canaries; inside is proc and sysfs, and what is masked is.
func systemSwap(s *siege) {
	root, secret := s.maskable()
	var exchanges []func() int
	defer func() {
		for _, stop := range exchanges {
			if stop() == 0 {
				s.Error("something was never exchanged")
			}
		}
	}()
	exchanges = append(exchanges, s.flip(filepath.Join(root, "dev/null"), secret))
	traps := map[string]string{secret: listing(s, secret)}
	for _, name := range []string{"proc", "sys", "dev"} {
		trap := s.trap()
		traps[trap] = listing(s, trap)
		exchanges = append(exchanges, s.flip(filepath.Join(root, name), trap))
	}
	n, opened := s.repeat(func() bool {
		r, err := s.c.Open(s.Context(), api.SessionOpen{Profile: "workspace", Target: rootDir(root)})
		if err != nil {
			s.Fatal(err)
		}
		if r.Outcome != api.OutcomeOK {
			return false
		}
		for _, line := range []string{"/proc proc", "/sys sysfs", "/dev tmpfs"} {
			if !lies(r.Payload.Open.Enforced.Mounts, line) {
				s.Errorf("no %s: %q", line, r.Payload.Open.Enforced.Mounts)
			}
		}
		x, err := s.c.Exec(s.Context(), api.Exec{SessionID: r.SessionID, Argv: []string{"/bin/probe", "content", masked}})
		s.want("a masked file", printed(settled(s.T, x, err)), "empty", "ENOENT", "EACCES", "EPERM")
		s.close(r.SessionID)
		return true
	})
	for trap, before := range traps {
		if after := listing(s, trap); after != before {
			s.Errorf("%s held %s, and holds %s", trap, before, after)
		}
	}
	s.Logf("%d sessions opened of %d", opened, n)
	if opened == 0 {
		s.Error("no session was opened: nothing was attacked")
	}
}

// maskable is a root with a null device of its own, and a file that is to be seen in place of a masked one.
func (s *siege) maskable() (root, secret string) {
	s.Helper()
	root, secret = s.unpacked(), filepath.Join(shared(s.T), "secret")
	if err := errors.Join(os.WriteFile(filepath.Join(root, "dev/null"), nil, 0o666), os.WriteFile(secret, []byte("canary"), 0o666)); err != nil {
		s.Fatal(err)
	}
	return root, secret
}

// trap is a directory that has what set-ups write to.
func (s *siege) trap() string {
	s.Helper()
	dir := filepath.Join(shared(s.T), "trap")
	for _, name := range settings {
		file := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o777), os.WriteFile(file, []byte("canary"), 0o666)); err != nil {
			s.Fatal(err)
		}
	}
	return dir
}

// systemByName: what is mounted over a masked file is what its name has come to lead to, and so is what is written to.
func systemByName(s *siege) {
	root, secret := s.maskable()
	stop := s.flip(filepath.Join(root, "dev/null"), secret)
	s.race("control: something else is mounted over what is masked", func() bool {
		return s.outside(apart, "naive", root, "look:dev/null", "proc:proc", "bind:dev/null:"+masked[1:], "--", "/bin/probe", "content", masked) == "ok"
	})
	stop()
	trap := s.trap()
	before := listing(s, trap)
	stop = s.flip(filepath.Join(root, "proc"), trap)
	defer stop()
	s.race("control: a setting is written elsewhere", func() bool {
		s.outside(apart, "naive", root, "proc:proc", "look:proc", "write:proc/self/comm")
		return listing(s, trap) != before
	})
}

// settings are what set-ups write to, below proc and sys.
var settings = []string{"self/comm", "self/oom_score_adj", "self/attr/exec", "self/uid_map", "self/setgroups", "sys/kernel/hostname", "sys/user/max_user_namespaces", "sysrq-trigger", "null", "ptmx"}

// targetSwap (CVE-2021-30465): a mount goes below another mount of the caller's, in which
// a directory on the way flips with a link to the host's. What is mounted is inside, or the open is refused.
func targetSwap(s *siege) {
	work, trap := s.onTheWay()
	stop := s.flip(filepath.Join(work, "a"), trap)
	attempt := func() bool {
		before := hostMounts(s)
		r, err := s.c.Open(s.Context(), api.SessionOpen{Profile: "workspace", Target: api.Target{Local: &api.Local{
			Mounts: []api.Mount{{HostPath: work, GuestPath: "/work", Mode: "rw"}, {HostPath: s.probes, GuestPath: "/work/a/b", Mode: "ro"}},
		}}})
		if err != nil {
			s.Fatal(err)
		}
		if r.Outcome == api.OutcomeOK {
			if !lies(r.Payload.Open.Enforced.Mounts, "/work/a/b") {
				s.Errorf("mounts: %q", r.Payload.Open.Enforced.Mounts)
			}
			s.close(r.SessionID)
		} else if !slices.Contains([]api.Code{api.CodeMountTarget, api.CodeNotEnforced}, r.ErrorCode) {
			s.Errorf("%s %s", r.ErrorCode, r.ErrorMessage)
		}
		if after := hostMounts(s); after != before {
			s.Fatalf("mounts of the host: %s\nbefore: %s", after, before)
		}
		return r.Outcome == api.OutcomeOK
	}
	n, opened := s.bothWays(attempt)
	s.Logf("%d sessions opened of %d, %d exchanges", opened, n, stop())
}

// onTheWay is a directory of a caller's with a/b in it, and one of the host's with a b.
func (s *siege) onTheWay() (work, trap string) {
	s.Helper()
	base := shared(s.T)
	work, trap = filepath.Join(base, "work"), filepath.Join(base, "trap")
	if err := errors.Join(os.MkdirAll(filepath.Join(work, "a/b"), 0o755), os.MkdirAll(filepath.Join(trap, "b"), 0o755)); err != nil {
		s.Fatal(err)
	}
	return work, trap
}

func mountedByName(s *siege) {
	root := s.unpacked()
	work, trap := s.onTheWay()
	stop := s.flip(filepath.Join(work, "a"), trap)
	defer stop()
	s.race("control: a mount comes to lie outside", func() bool {
		made := s.outside(apart, "naive", root, "bind:"+work+":work", "look:work/a", "bind:"+s.probes+":work/a/b")
		return lies(strings.Split(made, "\n"), filepath.Join(trap, "b"))
	})
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

// sourceSwap (CVE-2017-1002101, CVE-2021-25741): the source of a mount flips with a link to what policy gives to nobody, after policy
// has looked.
func sourceSwap(s *siege) {
	work, _ := s.sources()
	stop := s.flip(work, "/etc")
	n, opened := s.bothWays(func() bool {
		r, err := s.c.Open(s.Context(), api.SessionOpen{Profile: "workspace", Target: api.Target{Local: &api.Local{
			Mounts: []api.Mount{{HostPath: s.probes, GuestPath: "/mnt/probe", Mode: "ro"}, {HostPath: work, GuestPath: "/work", Mode: "ro"}},
		}}})
		if err != nil {
			s.Fatal(err)
		}
		if r.Outcome != api.OutcomeOK {
			return false
		}
		s.want("what was mounted", s.probe(r.SessionID, "read", "/work/ours"), "ok")
		s.want("the host's /etc", s.probe(r.SessionID, "read", "/work/passwd"), "ENOENT")
		s.close(r.SessionID)
		return true
	})
	s.Logf("%d sessions opened of %d, %d exchanges", opened, n, stop())
}

// sources are a directory to be mounted, and one that is not to be.
func (s *siege) sources() (work, secrets string) {
	s.Helper()
	base := shared(s.T)
	work, secrets = filepath.Join(base, "sub"), filepath.Join(base, "secrets")
	err := errors.Join(os.Mkdir(work, 0o755), os.WriteFile(filepath.Join(work, "ours"), nil, 0o644), os.Mkdir(secrets, 0o755), os.WriteFile(filepath.Join(secrets, "passwd"), nil, 0o644))
	if err != nil {
		s.Fatal(err)
	}
	return work, secrets
}

func boundByName(s *siege) {
	root := s.unpacked()
	work, secrets := s.sources()
	stop := s.flip(work, secrets)
	defer stop()
	s.race("control: something else is mounted than was looked at", func() bool {
		return s.outside(apart, "naive", root, "look:"+work, "bind:"+work+":work", "--", "/bin/probe", "read", "/work/passwd") == "ok"
	})
}

// danglingTarget (CVE-2024-45310): a component of the target is a link to a place of the host that does not exist.
func danglingTarget(s *siege) {
	work, outside := s.dangling()
	r := s.attempt(api.Local{Mounts: []api.Mount{{HostPath: work, GuestPath: "/work", Mode: "rw"}, {HostPath: s.probes, GuestPath: "/work/link/made", Mode: "ro"}}})
	if r.ErrorCode != api.CodeMountTarget {
		s.Errorf("%s %s %s", r.Outcome, r.ErrorCode, r.ErrorMessage)
	}
	if _, err := os.Lstat(outside); !errors.Is(err, os.ErrNotExist) {
		s.Errorf("%s: %v", outside, err)
	}
}

// dangling is a directory of a caller's with a link in it to what there is not.
func (s *siege) dangling() (work, outside string) {
	s.Helper()
	base := shared(s.T)
	work, outside = filepath.Join(base, "work"), filepath.Join(base, "outside")
	if err := errors.Join(os.Mkdir(work, 0o755), os.Symlink(outside, filepath.Join(work, "link"))); err != nil {
		s.Fatal(err)
	}
	return work, outside
}

func madeByName(s *siege) {
	root := s.unpacked()
	work, outside := s.dangling()
	s.outside(apart, "naive", root, "bind:"+work+":work", "make:work/link/made")
	if _, err := os.Lstat(filepath.Join(outside, "made")); err != nil {
		s.Errorf("control: %v", err)
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
		if dash != 6 {
			s.Errorf("%s takes part in propagation: %s", f[4], line)
		}
		seen = append(seen, f[4]+" "+f[dash+1]+" "+f[5])
	}
	slices.Sort(seen)
	if lax := lax(seen); len(lax) > 0 {
		s.Errorf("mounts with programs or devices of somebody's: %q", lax)
	}
	if !slices.Equal(seen, vouched) {
		s.Errorf("inside:\n%s\nin the receipt:\n%s", strings.Join(seen, "\n"), strings.Join(vouched, "\n"))
	}
	for path, mode := range map[string]string{"/work": "rw", "/mnt/probe": "ro", "/": "ro"} {
		if !slices.ContainsFunc(seen, func(m string) bool { return strings.HasPrefix(m, path+" ") && strings.Contains(m, " "+mode+",") }) {
			s.Errorf("%s is not %s", path, mode)
		}
	}
}

// lax are those mounts on which set-id bits or devices mean something.
func lax(mounts []string) (lax []string) {
	for _, m := range mounts {
		path, rest, _ := strings.Cut(m, " ")
		_, flags, _ := strings.Cut(rest, " ")
		// A mask is a device node of nobody's, or an empty directory: flags say nothing about it.
		masked := strings.HasPrefix(path, "/proc/") || strings.HasPrefix(path, "/sys/")
		device := sandbox.Within(path, "/dev") // each node is a mount of its own
		if list := strings.Split(flags, ","); !masked && !device && (!slices.Contains(list, "nosuid") || !slices.Contains(list, "nodev")) {
			lax = append(lax, m)
		}
	}
	return lax
}

// flagsOfNobody: who only mounts has what the host has.
func flagsOfNobody(s *siege) {
	root := s.unpacked()
	made := strings.Split(s.outside(apart, "naive", root, "bind:"+s.probes+":work", "proc:proc"), "\n")
	if len(made) != 2 || len(lax(made)) != 2 {
		s.Errorf("control: of %q these are lax: %q", made, lax(made))
	}
}

// bornInside: neither a command whose first instruction forks nor its child is outside its leaf in any hierarchy, each time that one is executed.
func bornInside(s *siege) {
	s.forking()
	session := s.session(nil)
	// What there is once an execution has been there for a while.
	want := inLeaf.ReplaceAllString(shellAnswer(s, session, "sleep 0.1; cat /proc/self/cgroup"), "a leaf")
	if !strings.Contains(want, "a leaf") || strings.Contains(want, "..") {
		s.Fatalf("groups of an execution: %q", want)
	}
	n, _ := s.repeat(func() bool {
		r, err := s.c.Exec(s.Context(), api.Exec{SessionID: session, Argv: []string{"/mnt/probe/forking"}})
		if err != nil {
			s.Fatal(err)
		}
		said := printed(r)
		one := said[:len(said)/2]
		if said != one+"\n"+one || inLeaf.ReplaceAllString(one, "a leaf") != want {
			s.Errorf("the groups of two: %q, where others have %q", said, want)
		}
		return true
	})
	s.Logf("%d executions that forked", n)
}

// inLeaf is the group of one execution, as it is seen inside.
var inLeaf = regexp.MustCompile(`/x/[^/\n]+`)

// forking puts a program beside the probe whose first instruction forks, and of which each of both then writes in which groups it is.
func (s *siege) forking() (program string) {
	s.Helper()
	code := []byte{
		0xb8, 57, 0, 0, 0, // mov eax, fork
		0x0f, 0x05, // syscall
		0x48, 0x8d, 0x3d, 74, 0, 0, 0, // lea rdi, [the path]
		0x31, 0xf6, // xor esi, esi: O_RDONLY
		0xb8, 2, 0, 0, 0, // mov eax, open
		0x0f, 0x05,
		0x89, 0xc7, // mov edi, eax
		0x48, 0x81, 0xec, 0, 0x10, 0, 0, // sub rsp, 4096
		0x48, 0x89, 0xe6, // mov rsi, rsp
		0xba, 0, 0x10, 0, 0, // mov edx, 4096
		0x31, 0xc0, // xor eax, eax: read
		0x0f, 0x05,
		0x89, 0xc2, // mov edx, eax
		0xbf, 1, 0, 0, 0, // mov edi, 1
		0xb8, 1, 0, 0, 0, // mov eax, write
		0x0f, 0x05,
		0x48, 0xc7, 0xc7, 0xff, 0xff, 0xff, 0xff, // mov rdi, -1: any child, of which one of both has none
		0x31, 0xf6, 0x31, 0xd2, // xor esi, esi; xor edx, edx
		0x45, 0x31, 0xd2, // xor r10d, r10d
		0xb8, 61, 0, 0, 0, // mov eax, wait4
		0x0f, 0x05,
		0x31, 0xff, // xor edi, edi
		0xb8, 60, 0, 0, 0, // mov eax, exit
		0x0f, 0x05,
	}
	code = append(code, "/proc/self/cgroup\x00"...)
	const at, headers = 0x400000, 64 + 56
	var b bytes.Buffer
	err := errors.Join(
		binary.Write(&b, binary.LittleEndian, elf.Header64{
			Ident: [elf.EI_NIDENT]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)},
			Type:  uint16(elf.ET_EXEC), Machine: uint16(elf.EM_X86_64), Version: uint32(elf.EV_CURRENT), Entry: at + headers, Phoff: 64, Ehsize: 64, Phentsize: 56, Phnum: 1,
		}),
		binary.Write(&b, binary.LittleEndian, elf.Prog64{
			Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_R | elf.PF_X), Vaddr: at, Filesz: uint64(headers + len(code)), Memsz: uint64(headers + len(code)), Align: 4096,
		}),
	)
	program = filepath.Join(s.probes, "forking")
	if err := errors.Join(err, os.WriteFile(program, append(b.Bytes(), code...), 0o755)); err != nil {
		s.Fatal(err)
	}
	return program
}

// bornOutside: who is put into his group once he runs has a child that was born elsewhere.
func bornOutside(s *siege) {
	group := filepath.Join(unified(s.T), fmt.Sprintf("stockade-test-late-%d", os.Getpid()))
	if err := os.Mkdir(group, 0o755); err != nil {
		s.Fatal(err)
	}
	defer unix.Rmdir(group)
	program := s.forking()
	s.race("control: both are elsewhere", func() bool {
		cmd := exec.Command(program)
		var out strings.Builder
		cmd.Stdout = &out
		if err := cmd.Start(); err != nil {
			s.Fatal(err)
		}
		_ = os.WriteFile(filepath.Join(group, "cgroup.procs"), []byte(fmt.Sprint(cmd.Process.Pid)), 0) // it may have ended
		return cmd.Wait() == nil && strings.Count(out.String(), "0::/") == 2 && !strings.Contains(out.String(), filepath.Base(group))
	})
}

// devices: whoever is in the groups of a session opens what the list has and nothing else, also as root of the host, and each
// hierarchy refuses by itself.
func devices(s *siege) {
	groups, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", initOf(s.T, opened(s.T, s.c, nil))))
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
	if tried < 2 {
		s.Errorf("groups: %q", groups)
	}
}

// devicesOfTheHost: the same opens in no group of ours.
func devicesOfTheHost(s *siege) {
	s.want("control: /dev/null", onHost(s, "read", "/dev/null"), "ok")
	s.want("control: /dev/kmsg", onHost(s, "read", "/dev/kmsg"), "ok")
}

// leaving leaves something in each place that sessions could share; finding looks for it, a line for each place.
const (
	leaving = `for f in /dev/shm/canary /tmp/canary /home/sandbox/canary; do echo canary >$f; done; for k in shm sem msg; do /mnt/probe/probe $k-make 1545; done`
	finding = `for f in /dev/shm/canary /tmp/canary /home/sandbox/canary; do /mnt/probe/probe read $f; done; for k in shm sem msg; do /mnt/probe/probe $k 1545; done`
)

// apartFromOthers: nothing of one session is in another, nor in one that is opened when it has ended. A message queue of POSIX's and a
// host name can be left in none.
func apartFromOthers(s *siege) {
	first, second := s.session(nil), s.session(nil)
	s.want("left", shellAnswer(s, first, leaving), "ok\nok\nok")
	s.want("a message queue", s.probe(first, "mq-make", "canary"), "EACCES", "EPERM", "ENOSYS")
	s.want("a host name", s.probe(first, "sethostname", "canary"), "EPERM")
	const nothing = "ENOENT\nENOENT\nENOENT\nENOENT\nENOENT\nENOENT"
	s.want("in another session", shellAnswer(s, second, finding), nothing)
	s.close(first)
	s.want("in a later one", shellAnswer(s, s.session(nil), finding), nothing)
}

// together: in one session it is found.
func together(s *siege) {
	session := s.session(nil)
	s.want("control: left", shellAnswer(s, session, leaving), "ok\nok\nok")
	s.want("control: found", shellAnswer(s, session, finding), "ok\nok\nok\nok\nok\nok")
	s.want("control: a message queue", s.outside(apart, "mq-make", "canary"), "ok")
	s.want("control: a host name", s.outside(apart, "sethostname", "canary"), "ok")
}

// loadedLibraries (CVE-2019-14271): a root has its own ld.so.preload and name service; who loads them runs inside, or not at all.
func loadedLibraries(s *siege) {
	root, read := s.preloading()
	r, err := s.c.Open(s.Context(), api.SessionOpen{Profile: "workspace", Target: rootDir(root)})
	session := settled(s.T, r, err).SessionID
	x, err := s.c.Exec(s.Context(), api.Exec{SessionID: session, Argv: []string{"/bin/probe", "euid"}})
	s.want("a static program", printed(settled(s.T, x, err)), "1000")
	if read() {
		s.Error("somebody opened the root's name service or loader files")
	}
	x, err = s.c.Exec(s.Context(), api.Exec{SessionID: session, Argv: []string{"/bin/probe", "read", "/etc/ld.so.preload"}})
	s.want("a command", printed(settled(s.T, x, err)), "ok")
	if !read() {
		s.Error("the watch does not see a session's own command")
	}
}

// preloading is a root with libraries of its own for everybody, and says whether somebody has looked at that since it was asked last.
func (s *siege) preloading() (root string, read func() bool) {
	s.Helper()
	root = s.unpacked()
	watch, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { unix.Close(watch) })
	for name, content := range map[string]string{"etc/ld.so.preload": "/lib/canary.so\n", "etc/nsswitch.conf": "passwd: canary\n", "etc/passwd": "canary:x:0:0::/:/bin/sh\n"} {
		file := filepath.Join(root, name)
		if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
			s.Fatal(err)
		}
		if _, err := unix.InotifyAddWatch(watch, file, unix.IN_OPEN|unix.IN_ACCESS); err != nil {
			s.Fatal(err)
		}
	}
	return root, func() bool {
		n, err := unix.Read(watch, make([]byte, 4096))
		return n > 0 && err == nil
	}
}

// loadedByAHelper: a program of the host's that is linked dynamically and has entered the root as root.
func loadedByAHelper(s *siege) {
	root, read := s.preloading()
	steps := []string{"naive", root}
	for _, dir := range []string{"usr", "lib", "lib64"} {
		steps = append(steps, "make:"+dir, "bind:/"+dir+":"+dir)
	}
	s.outside(apart, append(steps, "--", "/usr/bin/true")...)
	if !read() {
		s.Error("control: the loader has not looked")
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
	s.want("a crash that wants a core", s.probe(session, "crash", "/tmp"), "no core")
}

func crashOutside(s *siege) {
	s.want("control", onHost(s, "crash", shared(s.T)), "core")
}

// swappedTerminal (CVE-2025-52565): a program in a loop replaces what is in /dev/pts by links, while terminals are opened: what a command
// has for one is the one that was made for it. And no terminal is bound anywhere by name: there is no console to bind it on.
func swappedTerminal(s *siege) {
	session := s.session(func(o *api.SessionOpen) { o.Background = new(bool); *o.Background = true })
	defer s.close(session)
	s.want("/dev/console", s.probe(session, "read", "/dev/console"), "ENOENT")
	s.want("a terminal of the session's own", s.probe(session, "pty"), "0")
	shell(s.T, s.c, session, "setsid /mnt/probe/probe replace-all /dev/pts /etc/passwd 1000000000 >/tmp/replaced 2>&1 &")
	n := rounds(s.T)
	for range n {
		t := openShell(s.T, s.c, api.Exec{SessionID: session, Argv: []string{"sh", "-c", "test -t 0 && test -c $(readlink /proc/self/fd/0) && readlink /proc/self/fd/0"}})
		for !t.read(time.Second).End {
		}
		s.want("its terminal", strings.TrimSpace(t.seen.String()), "/dev/pts/0", "/dev/pts/1") // the one before may not be gone
	}
	s.want("what could be replaced", strings.TrimSpace(text(shell(s.T, s.c, session, "cat /tmp/replaced").Payload.Exec.Stdout)), "")
	s.Logf("%d terminals", n)
}

// swappedByName: the nodes of terminals lie in a directory that somebody else may write to, as where /dev is shared.
func swappedByName(s *siege) {
	dir, secret := shared(s.T), filepath.Join(shared(s.T), "secret")
	if err := errors.Join(unix.Mknod(filepath.Join(dir, "0"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))), os.WriteFile(secret, []byte("canary"), 0o644)); err != nil {
		s.Fatal(err)
	}
	s.want("control: what could be replaced", onHost(s, "replace-all", dir, secret, "1"), "0\nok")
	s.want("control: what the terminal then is", onHost(s, "content", filepath.Join(dir, "0")), "ok")
}
