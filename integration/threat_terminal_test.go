package integration

import (
	"crypto/sha256"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/stockade-dev/stockade/supervisor/api"
	"github.com/stockade-dev/stockade/supervisor/client"
)

// terminalThreats aim at terminals, the session's and the operator's (T101 to T109).
var terminalThreats = []threat{
	{id: "T101", what: "something is typed into a terminal from inside it", try: typedInside},
	{id: "T103", what: "a terminal is stolen, or its driver changed", shown: "sandbox/seccomp TestVerdicts"},
	{id: "T104", what: "terminals of the host are seen", try: otherTerminals},
	{id: "T105", what: "whoever hangs up leaves somebody at a terminal", try: hungUp},
	{id: "T107", what: "a terminal is given an impossible size", try: impossibleSizes},
	{id: "T108", what: "output of a terminal loses bytes", try: losslessTerminal},
	{id: "T110", what: "terminals are left over", shown: "sandbox/runc TestTerminalsEnd"},
	{id: "T111", what: "who does not read one terminal delays the others", try: slowReader},
	{id: "T109", what: "output of a session drives the operator's terminal", try: drivenTerminal},
}

// otherTerminals: /dev/pts is an instance of the session's own, with no terminal of anybody else's.
func otherTerminals(s *siege) {
	session := s.session(nil)
	r := shell(s.T, s.c, session, "ls /dev/pts; ls -l /dev/ptmx; grep ' /dev/pts ' /proc/self/mountinfo")
	out := text(r.Payload.Exec.Stdout)
	if fields := strings.Fields(out); len(fields) == 0 || fields[0] != "ptmx" {
		s.Errorf("terminals inside: %q", out)
	}
	first, second := s.probe(session, "pty"), s.probe(s.session(nil), "pty")
	s.want("the first terminal of a session", first, "0")
	s.want("the first terminal of another", second, "0")
}

// drivenTerminal: what a session writes reaches stdout as it is, which is what pipes are for; what we say about it ourselves,
// on stderr, in lists and in the daemon's log, has no control characters of its.
func drivenTerminal(s *siege) {
	const hostile = "\x1b]0;owned\x07\x1b[2Jx\u009b31m"
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
		cmd := exec.Command(filepath.Join(s.d.Bin, "stockade"), args...)
		cmd.Env = []string{"STOCKADE_SOCKET=" + s.d.Socket}
		out, _ := cmd.CombinedOutput() // many of them fail, and say so
		if len(out) == 0 {
			s.Errorf("%q says nothing", args)
		}
		if strings.ContainsAny(string(out), "\x1b\x07\u009b") {
			s.Errorf("%q: %q", args, out)
		}
	}
	if strings.ContainsAny(s.d.Log(), "\x1b\x07") {
		s.Error("the log has control characters")
	}
}

// typedInside: TIOCSTI and TIOCLINUX are refused from stdin, from /dev/tty and from a descriptor that was inherited, and the
// master of the terminal is nowhere inside (CVE-2017-5226, CVE-2023-28100).
func typedInside(s *siege) {
	const try = `
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
    refused(name + " TIOCLINUX", fd, 0x541c, b"\\x03")
    refused(name + " TIOCSETD", fd, 0x5423, b"\\x00\\x00\\x00\\x00")
    refused(name + " TIOCSCTTY", fd, 0x540e, 1)
    refused(name + " TIOCCONS", fd, 0x541d, 0)
masters = [p for p in glob.glob("/proc/[0-9]*/fd/*") if os.path.islink(p) and "ptmx" in os.readlink(p)]
print("masters", masters)
`
	session := s.session(nil)
	t := openShell(s.T, s.c, api.Exec{SessionID: session, Argv: []string{"python3", "-c", try}})
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
	t = openShell(s.T, s.c, api.Exec{SessionID: session, Argv: []string{"sh", "-c", "trap '' HUP TERM INT; echo deaf; while :; do sleep 0.05; done"}})
	t.expect("deaf\r\n")
	begun := time.Now()
	s.want("closed", string(t.close("").Status), string(api.ShellClosed))
	if took := time.Since(begun); took > 10*time.Second {
		s.Errorf("what does not listen took %v", took)
	}
}

// impossibleSizes: none is taken.
func impossibleSizes(s *siege) {
	t := openShell(s.T, s.c, api.Exec{SessionID: s.session(nil), Argv: []string{"cat"}})
	for _, size := range [][2]int{{0, 0}, {0, 24}, {80, 0}, {-1, 24}, {65535, 65535}, {4097, 24}, {1 << 31, 24}} {
		r, err := s.c.ResizeShell(s.Context(), api.ShellResize{ProcessRef: api.ProcessRef{ExecID: t.exec}, Cols: size[0], Rows: size[1]})
		if err != nil || r.ErrorCode != api.CodeInvalidParams {
			s.Errorf("%v: %+v, %v", size, r, err)
		}
	}
	s.want("its size", fmt.Sprint(t.get().Cols, "x", t.get().Rows), "80x24")
	t.close("force")
}

// losslessTerminal: bytes come out as they were written, text or not.
func losslessTerminal(s *siege) {
	const write = `import sys, tty; tty.setraw(1); b = bytes((i * i >> 3) & 255 for i in range(300000)); sys.stdout.buffer.write(b); sys.stdout.flush()`
	t := openShell(s.T, s.c, api.Exec{SessionID: s.session(nil), Argv: []string{"python3", "-c", write}})
	for !t.read(time.Second).End {
	}
	want := make([]byte, 300000)
	for i := range want {
		want[i] = byte((i * i) >> 3)
	}
	if sha256.Sum256(want) != sha256.Sum256([]byte(t.seen.String())) {
		s.Errorf("%d bytes, others than were written", t.seen.Len())
	}
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
