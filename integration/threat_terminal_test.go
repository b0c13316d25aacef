package integration

import (
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/stockade-dev/stockade/supervisor/api"
)

// terminalThreats aim at terminals, the session's and the operator's (T101 to T109).
var terminalThreats = []threat{
	{id: "T103", what: "a terminal is stolen, or its driver changed", shown: "sandbox/seccomp TestVerdicts"},
	{id: "T104", what: "terminals of the host are seen", try: otherTerminals},
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
	ran, err := s.c.Exec(s.Context(), api.Exec{SessionID: session, Argv: []string{hostile}})
	if err != nil {
		s.Fatal(err)
	}
	if ran.ErrorCode != api.CodeSpawnFailed {
		s.Fatalf("%s %s", ran.Outcome, ran.ErrorCode)
	}
	for _, args := range [][]string{
		{"exec", session, "--", hostile}, {"exec", "--cwd", "/" + hostile, session, "--", "true"}, {"ps", "--all"}, {"receipts", "list"}, {"show", ran.ExecID},
		{"events", session}, {"exec", hostile, "--", "true"},
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
