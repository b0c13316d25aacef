package integration

import (
	"bufio"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/supervisor/api"
	"github.com/stockade-dev/stockade/supervisor/client"
)

// terminalThreats aim at terminals, the session's and the operator's (T101 to T109).
var terminalThreats = []threat{
	{id: "T101", what: "something is typed into a terminal from inside it", try: typedInside, control: typedOutside},
	{id: "T103", what: "a terminal is stolen, or its driver changed", shown: "sandbox/seccomp TestVerdicts"},
	{id: "T104", what: "terminals of the host are seen", try: otherTerminals, control: sharedTerminals},
	{id: "T105", what: "whoever hangs up leaves somebody at a terminal", try: hungUp, control: deafToAll},
	{id: "T107", what: "a terminal is given an impossible size", try: impossibleSizes, control: sizesOfTheKernel},
	{id: "T108", what: "output of a terminal loses bytes", try: losslessTerminal, control: cookedTerminal},
	{id: "T110", what: "terminals are left over", shown: "sandbox/runc TestTerminalsEnd"},
	{id: "T111", what: "who does not read one terminal delays the others", try: slowReader, control: stalledByOthers},
	{id: "T109", what: "output of a session drives the operator's terminal", try: drivenTerminal, control: driving},
}

// terminal is one of the host's, with nobody at it.
func terminal(t *testing.T) (master, slave *os.File) {
	t.Helper()
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	master = os.NewFile(uintptr(fd), "ptmx")
	t.Cleanup(func() { master.Close() })
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	peer, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.TIOCGPTPEER, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC)
	if errno != 0 {
		t.Fatal(errno)
	}
	slave = os.NewFile(peer, "pts")
	t.Cleanup(func() { slave.Close() })
	return master, slave
}

// at starts a command at a terminal, which is its controlling one. It is killed when the test ends.
func (s *siege) at(terminal *os.File, argv ...string) *exec.Cmd {
	s.Helper()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = terminal, terminal, terminal
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return cmd
}

const terminals = "ls /dev/pts"

// otherTerminals: /dev/pts is an instance of the session's own, with no terminal of anybody else's.
func otherTerminals(s *siege) {
	terminal(s.T) // that nobody is to see
	session := s.session(nil)
	s.want("terminals inside", shellAnswer(s, session, terminals), "ptmx")
	s.want("the first terminal of a session", s.probe(session, "pty"), "0")
	s.want("the first terminal of another", s.probe(s.session(nil), "pty"), "0")
}

// sharedTerminals: who has no instance of his own sees what is open.
func sharedTerminals(s *siege) {
	master, _ := terminal(s.T)
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		s.Fatal(err)
	}
	out, err := exec.Command("sh", "-c", terminals).Output()
	if err != nil || !slices.Contains(strings.Fields(string(out)), fmt.Sprint(n)) {
		s.Errorf("control: %d is not among %q, %v", n, out, err)
	}
}

const hostile = "\x1b]0;owned\x07\x1b[2Jx\u009b31m"

// drives reports whether a terminal would act on a text.
func drives(text string) bool { return strings.ContainsAny(text, "\x1b\x07\u009b") }

// drivenTerminal: what a session writes reaches stdout as it is, which is what pipes are for; what we say about it ourselves,
// on stderr, in lists and in the daemon's log, has no control characters of its.
func drivenTerminal(s *siege) {
	session := s.session(func(o *api.SessionOpen) { o.Labels = map[string]string{"job": "1"} })
	sh := openShell(s.T, s.c, api.Exec{SessionID: session, Argv: []string{"/bin/bash", "--norc", "-i"}, EnvPatch: map[string]api.EnvValue{"PS1": {Text: hostile + "$ "}}})
	defer sh.close("force")
	sh.run("true " + hostile[:4])
	ran, err := s.c.Exec(s.Context(), api.Exec{SessionID: session, Argv: []string{hostile}})
	if err != nil {
		s.Fatal(err)
	}
	if ran.ErrorCode != api.CodeSpawnFailed {
		s.Fatalf("%s %s", ran.Outcome, ran.ErrorCode)
	}
	for _, args := range [][]string{
		{"exec", session, "--", hostile}, {"exec", "--cwd", "/" + hostile, session, "--", "true"}, {"ps", "--all"}, {"receipts", "list"}, {"show", ran.ExecID},
		{"events", session}, {"exec", hostile, "--", "true"}, {"ps", "--all", "--json"}, {"show", "--json", ran.ExecID}, {"show", sh.exec}, {"show", "--json", sh.exec},
		{"receipts", "list", "--json"}, {"shell", "play", hostile}, {"shell", "--observe", hostile},
	} {
		out := s.commandLine(args...)
		if len(out) == 0 {
			s.Errorf("%q says nothing", args)
		}
		if drives(out) {
			s.Errorf("%q: %q", args, out)
		}
	}
	if drives(s.d.Log()) {
		s.Error("the log has control characters")
	}
}

// driving: the one thing that is handed on as it is, and what the supervisor knows: the words were hostile, and are as long as nobody turns them into text.
func driving(s *siege) {
	session := s.session(nil)
	if out := s.commandLine("exec", session, "--", "printf", "%s", hostile); !drives(out) {
		s.Errorf("control: %q", out)
	}
	ran, err := s.c.Exec(s.Context(), api.Exec{SessionID: session, Argv: []string{hostile}})
	if err != nil {
		s.Fatal(err)
	}
	p, err := s.c.Process(s.Context(), ran.ExecID)
	if err != nil || !drives(strings.Join(p.Argv, " ")) {
		s.Errorf("control: %+v, %v", p, err)
	}
}

// commandLine is what a command says to this supervisor, on stdout and stderr. Many fail, and say so.
func (s *siege) commandLine(args ...string) string {
	cmd := exec.Command(filepath.Join(s.d.Bin, "stockade"), args...)
	cmd.Env = []string{"STOCKADE_SOCKET=" + s.d.Socket}
	out, _ := cmd.CombinedOutput()
	return string(out)
}

// typing tries to type into its own terminal, and to take it and the console, by each descriptor that it has.
const typing = `
import fcntl, os, glob
def refused(name, fd, request, arg):
    try:
        fcntl.ioctl(fd, request, arg)
        print(name, "done")
    except OSError as e:
        print(name, e.errno)
tty = os.open("/dev/tty", os.O_RDWR)
for name, fd in ("stdin", 0), ("tty", tty), ("inherited", os.dup(1)):
    refused(name + " TIOCSTI", fd, 0x5412, b"x")
    refused(name + " TIOCLINUX", fd, 0x541c, b"\x03")
    refused(name + " TIOCSETD", fd, 0x5423, b"\x00\x00\x00\x00")
    refused(name + " TIOCSCTTY", fd, 0x540e, 1)
    refused(name + " TIOCCONS", fd, 0x541d, 0)
masters = [p for p in glob.glob("/proc/[0-9]*/fd/*") if os.path.islink(p) and "ptmx" in os.readlink(p)]
print("masters", masters)
`

// typedInside: TIOCSTI and TIOCLINUX are refused from stdin, from /dev/tty and from a descriptor that was inherited, and the
// master of the terminal is nowhere inside (CVE-2017-5226, CVE-2023-28100).
func typedInside(s *siege) {
	session := s.session(nil)
	t := openShell(s.T, s.c, api.Exec{SessionID: session, Argv: []string{"python3", "-c", typing}})
	for !t.read(time.Second).End {
	}
	out := t.seen.String()
	for _, from := range []string{"stdin", "tty", "inherited"} {
		for _, request := range []string{"TIOCSTI", "TIOCLINUX", "TIOCSETD", "TIOCSCTTY", "TIOCCONS"} {
			if !strings.Contains(out, from+" "+request+" 1\r\n") { // EPERM
				s.Errorf("%s %s: %q", from, request, out)
			}
		}
	}
	if !strings.Contains(out, "masters []") {
		s.Errorf("%q", out)
	}
}

// typedOutside: the same in the namespaces of a session, with its lack of privilege, without the filter, and with the master in the next
// process. To have the console, a terminal would have to be the host's: the kernel asks for a right over the host, and says so; that the filter does not
// let it be asked is in TestVerdicts.
func typedOutside(s *siege) {
	file := filepath.Join(shared(s.T), "typing.py")
	if err := os.WriteFile(file, []byte(typing), 0o644); err != nil {
		s.Fatal(err)
	}
	cmd := exec.Command("script", "-qec", "exec /usr/bin/python3 "+file, "/dev/null")
	cmd.Env = []string{"PATH=/usr/bin:/bin", "SHELL=/bin/sh", "TERM=dumb"}
	cmd.Dir = "/"
	cmd.SysProcAttr = unfiltered.attr()
	out, err := cmd.CombinedOutput()
	if err != nil {
		s.Errorf("control: %v: %s", err, out)
	}
	for _, from := range []string{"stdin", "tty", "inherited"} {
		for request, answers := range map[string][]string{
			"TIOCSTI":   {"done", "5"}, // EIO: sysctl dev.tty.legacy_tiocsti is 0
			"TIOCLINUX": {"25"},        // ENOTTY: asked of a driver that has no screen
			"TIOCSETD":  {"done"}, "TIOCSCTTY": {"done"}, "TIOCCONS": {"1"},
		} {
			if !slices.ContainsFunc(answers, func(a string) bool { return strings.Contains(string(out), from+" "+request+" "+a+"\r\n") }) {
				s.Errorf("control: %s %s: %q, want %q", from, request, out, answers)
			}
		}
	}
	if !strings.Contains(string(out), "masters [") || strings.Contains(string(out), "masters []") {
		s.Errorf("control: %q", out)
	}
}

// hungUp: what listens to a terminal is told when that is closed, what does not care is killed, and nobody is left.
func hungUp(s *siege) {
	session := s.session(nil)
	t := openShell(s.T, s.c, api.Exec{SessionID: session, Argv: []string{"/bin/bash", "--norc", "-i"}})
	t.idle()
	t.keys("sh -c 'trap \"echo told >/tmp/told; exit\" HUP; echo listening; while :; do sleep 0.05; done'\n")
	t.expect("listening\r\n")
	t.close("")
	r := shell(s.T, s.c, session, "cat /tmp/told; for p in /proc/[0-9]*; do readlink $p/fd/0; done | grep -c pts")
	if out := text(r.Payload.Exec.Stdout); out != "told\n0\n" {
		s.Errorf("the foreground, and who is left at a terminal: %q", out)
	}
	t = openShell(s.T, s.c, api.Exec{SessionID: session, Argv: []string{"sh", "-c", deafScript}})
	t.expect("deaf\r\n")
	begun := time.Now()
	s.want("closed", string(t.close("").Status), string(api.ShellClosed))
	if took := time.Since(begun); took > 10*time.Second {
		s.Errorf("what does not listen took %v", took)
	}
}

const deafScript = "trap '' HUP TERM INT; echo deaf; while :; do sleep 0.05; done"

// deafToAll: the kernel alone tells him that his terminal is gone, and he stays.
func deafToAll(s *siege) {
	master, slave := terminal(s.T)
	cmd := s.at(slave, "sh", "-c", deafScript)
	slave.Close()
	if said, err := bufio.NewReader(master).ReadString('\n'); err != nil || said != "deaf\r\n" {
		s.Fatalf("control: %q, %v", said, err)
	}
	master.Close()
	time.Sleep(300 * time.Millisecond)
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", cmd.Process.Pid))
	if err != nil || strings.Contains(string(status), "State:\tZ") {
		s.Errorf("control: he has ended: %v", err)
	}
}

var sizes = [][2]int{{0, 0}, {0, 24}, {80, 0}, {-1, 24}, {65535, 65535}, {4097, 24}, {1 << 31, 24}}

// impossibleSizes: none is taken.
func impossibleSizes(s *siege) {
	t := openShell(s.T, s.c, api.Exec{SessionID: s.session(nil), Argv: []string{"cat"}})
	for _, size := range sizes {
		r, err := s.c.ResizeShell(s.Context(), api.ShellResize{ProcessRef: api.ProcessRef{ExecID: t.exec}, Cols: size[0], Rows: size[1]})
		if err != nil || r.ErrorCode != api.CodeInvalidParams {
			s.Errorf("%v: %+v, %v", size, r, err)
		}
	}
	s.want("its size", fmt.Sprint(t.get().Cols, "x", t.get().Rows), "80x24")
	t.close("force")
}

// sizesOfTheKernel: it takes each, or what is left of it in sixteen bits.
func sizesOfTheKernel(s *siege) {
	master, _ := terminal(s.T)
	for _, size := range sizes {
		set := &unix.Winsize{Col: uint16(size[0]), Row: uint16(size[1])}
		if err := unix.IoctlSetWinsize(int(master.Fd()), unix.TIOCSWINSZ, set); err != nil {
			s.Errorf("control: %v: %v", size, err)
		}
		if got, err := unix.IoctlGetWinsize(int(master.Fd()), unix.TIOCGWINSZ); err != nil || *got != *set {
			s.Errorf("control: %v: %+v, %v", size, got, err)
		}
	}
}

// losslessTerminal: bytes come out as they were written, text or not.
func losslessTerminal(s *siege) {
	if n, same := s.written("tty.setraw(1)"); !same {
		s.Errorf("%d bytes, others than were written", n)
	}
}

// cookedTerminal: one that is left to make line ends of what it is given is seen to.
func cookedTerminal(s *siege) {
	if _, same := s.written("pass"); same {
		s.Error("control: what is changed on the way is taken for the same")
	}
}

// written has a command write any bytes to its terminal, and says how many come out and whether they are those.
func (s *siege) written(before string) (n int, same bool) {
	s.Helper()
	write := "import sys, tty; " + before + "; b = bytes((i * i >> 3) & 255 for i in range(300000)); sys.stdout.buffer.write(b); sys.stdout.flush()"
	t := openShell(s.T, s.c, api.Exec{SessionID: s.session(nil), Argv: []string{"python3", "-c", write}})
	for !t.read(time.Second).End {
	}
	want := make([]byte, 300000)
	for i := range want {
		want[i] = byte((i * i) >> 3)
	}
	return t.seen.Len(), sha256.Sum256(want) == sha256.Sum256([]byte(t.seen.String()))
}

// slowReader: nobody reads the output of one shell that floods; another answers as ever.
func slowReader(s *siege) {
	session := s.session(nil)
	flood := openShell(s.T, s.c, api.Exec{SessionID: session, Argv: []string{"yes"}, Limits: api.Limits{OutputBytes: 1 << 20}})
	defer flood.close("force")
	watch, err := s.c.Attach(s.Context(), flood.exec, client.Seat{Observe: true}) // and never reads
	if err != nil {
		s.Fatal(err)
	}
	defer watch.Close()
	t := openShell(s.T, s.c, api.Exec{SessionID: session, Argv: []string{"/bin/bash", "--norc", "-i"}})
	defer t.close("force")
	for range 5 {
		begun := time.Now()
		t.run("echo here")
		if took := time.Since(begun); took > 3*time.Second {
			s.Errorf("beside a flood a command takes %v", took)
		}
	}
}

// stalledByOthers: who shares a terminal with a flood that nobody reads does not come to say anything.
func stalledByOthers(s *siege) {
	_, slave := terminal(s.T)
	s.at(slave, "yes")
	s.race("control: who says something waits", func() bool { // once it is full
		cmd := exec.Command("echo", "here")
		cmd.Stdout = slave
		if err := cmd.Start(); err != nil {
			s.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- cmd.Wait() }()
		select {
		case <-done:
			return false
		case <-time.After(300 * time.Millisecond):
			call, err := os.ReadFile(fmt.Sprintf("/proc/%d/syscall", cmd.Process.Pid))
			_ = cmd.Process.Kill()
			<-done
			return err == nil && strings.HasPrefix(string(call), fmt.Sprint(unix.SYS_WRITE, " "))
		}
	})
}
