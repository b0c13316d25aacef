package integration

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/stockade-dev/stockade/supervisor/api"
)

// processThreats aim at processes and system calls (T043 to T058).
var processThreats = []threat{
	{id: "T043", what: "system calls that nobody has looked at", shown: "sandbox/seccomp TestCensus"},
	{id: "T052", what: "descriptors are sent to the daemon's sockets", try: sentDescriptors},
	{id: "T053", what: "keyrings are shared", try: keyrings},
	{id: "T054", what: "priorities are raised", try: priorities},
	{id: "T055", what: "clocks are changed", try: clocks},
	{id: "T056", what: "arguments change while a call is judged", shown: "sandbox/notify TestJudge"},
	{id: "T057", what: "a loader runs what may not be executed", try: loaders},
	{id: "T058", what: "a program is copied in and executed at once", try: copyAndExecute},
}

// sentDescriptors: a session does not come to say anything at the daemon's socket, so no descriptor arrives there; a caller of
// the host's may, and the daemon has as many descriptors afterwards as before.
func sentDescriptors(s *siege) {
	before := open(s, s.d.PID())
	for range 20 {
		s.want("253 descriptors", onHost(s, "send-descriptors", s.d.Socket, "253"), "ok", "EPIPE", "ECONNRESET")
	}
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		n := open(s, s.d.PID())
		if n <= before+5 {
			break
		}
		if time.Now().After(end) {
			s.Fatalf("the daemon had %d descriptors, and has %d", before, n)
		}
	}
}

func keyrings(s *siege) {
	session := s.session(nil)
	s.want("keyctl", s.probe(session, "keyctl"), "EPERM", "ENOSYS")
	s.want("/proc/keys", s.probe(session, "content", "/proc/keys"), "empty", "ENOENT", "EACCES", "EPERM")
	s.want("control", onHost(s, "content", "/proc/key-users"), "ok")
}

func priorities(s *siege) {
	session := s.session(nil)
	for _, attempt := range []string{"nice", "realtime", "ioprio-realtime", "mbind"} {
		s.want(attempt, s.probe(session, attempt), "EPERM", "EACCES", "ENOSYS")
		s.want("control: "+attempt, onHost(s, attempt), "ok")
	}
}

// clocks: no clock can be set, and the session's own count from its beginning: the host's uptime is not told.
func clocks(s *siege) {
	begin := time.Now()
	session := s.session(nil)
	for _, attempt := range []string{"settimeofday", "clock-settime", "adjtime"} {
		s.want(attempt, s.probe(session, attempt), "EPERM", "ENOSYS")
	}
	var inside, outside float64
	if _, err := fmt.Sscan(text(shell(s.T, s.c, session, "cat /proc/uptime").Payload.Exec.Stdout), &inside); err != nil {
		s.Fatal(err)
	}
	host, err := os.ReadFile("/proc/uptime")
	if err != nil {
		s.Fatal(err)
	}
	if _, err := fmt.Sscan(string(host), &outside); err != nil {
		s.Fatal(err)
	}
	if most := time.Since(begin).Seconds() + 1; inside > most || outside <= most {
		s.Errorf("up for %v s inside, and the session for %v; the host for %v", inside, most, outside)
	}
}

// loaders: nothing that can be written or read inside is more than the session's own right to run programs: a memory file and the
// loader run as the same identity under the same filter. docs/isolation.md says so.
func loaders(s *siege) {
	session := s.session(nil)
	s.want("a memory file", s.probe(session, "execute-memfd", "/mnt/probe/probe", "status", "CapEff", "Seccomp", "NoNewPrivs"), "0000000000000000 2 1")
	r := shell(s.T, s.c, session, "cp /bin/true /tmp/t && chmod 644 /tmp/t && /lib64/ld-linux-x86-64.so.2 /tmp/t && grep -h Seccomp: /proc/self/status")
	if got := strings.Fields(text(r.Payload.Exec.Stdout)); len(got) != 2 || got[1] != "2" {
		s.Errorf("through the loader: %q %q", got, text(r.Payload.Exec.Stderr))
	}
}

// copyAndExecute: nobody in the runner or init holds a file of the session's open for writing while another command is cloned.
func copyAndExecute(s *siege) {
	session := s.session(func(o *api.SessionOpen) { o.Limits.PIDs = 512 })
	n := rounds(s.T)
	const side = 8
	errs := make(chan string, side)
	for i := range side {
		go func() {
			for k := range n / side {
				x, err := s.c.Exec(s.Context(), api.Exec{SessionID: session, Argv: []string{"sh", "-c", fmt.Sprintf("cp /bin/true /tmp/copy.%d && exec /tmp/copy.%d", i, i)}})
				if err != nil || x.Outcome != api.OutcomeOK || x.Payload.Exec.ExitCode != 0 {
					errs <- fmt.Sprintf("%d: %v %+v", k, err, x)
					return
				}
			}
			errs <- ""
		}()
	}
	for range side {
		if err := <-errs; err != "" {
			s.Error(err)
		}
	}
	s.Logf("%d copies, %d at a time", n, side)
}
