package integration

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/stockade-dev/stockade/supervisor/api"
)

// processThreats aim at processes and system calls (T043 to T058).
var processThreats = []threat{
	{id: "T043", what: "system calls that nobody has looked at", shown: "sandbox/seccomp TestCensus"},
	{id: "T050", what: "an execution is attacked on its way in", shown: "sandbox/guest TestInitCannotBeTouchedMeanwhile"},
	{id: "T051", what: "everybody is killed", try: killAll, control: killedAlone},
	{id: "T052", what: "descriptors are sent to the daemon's sockets", try: sentDescriptors, control: keptDescriptors},
	{id: "T053", what: "keyrings are shared", try: keyrings, control: hostKeyrings},
	{id: "T054", what: "priorities are raised", try: priorities, control: hostPriorities},
	{id: "T055", what: "clocks are changed", try: clocks, control: hostClocks},
	{id: "T056", what: "arguments change while a call is judged", shown: "sandbox/notify TestJudge"},
	{id: "T057", what: "a loader runs what may not be executed", try: loaders, control: loadersOutside},
	{id: "T058", what: "a program is copied in and executed at once", try: copyAndExecute, control: copyHeldOpen},
}

// killing aims at init, and at everybody but itself.
const killing = `sleep 100 & kill -STOP 1; kill -KILL 1; kill -KILL -1; wait $!; echo "$?"`

// senders are the ways of the probe to send a signal.
var senders = []string{"kill", "tgkill", "sigqueue", "pidfd", "sigio"}

// killAll: who kills everybody that he can kills what is his; the session goes on, and others and the supervisor know nothing of it.
// The numbers that these have on the host are nobody's inside.
func killAll(s *siege) {
	session := s.session(nil)
	other := opened(s.T, s.c, nil)
	begin := s.d.PID()
	s.want("what became of his own", shellAnswer(s, session, killing), "137")
	init := initOf(s.T, other)
	for _, way := range senders {
		for _, pid := range []int{s.d.PID(), s.d.Runner(), init} {
			s.want(fmt.Sprint(way, " to ", pid), s.probe(session, "aim", way, strconv.Itoa(pid)), "ESRCH")
		}
		answer := "EPERM"
		if way == "sigio" {
			answer = "ok" // the kernel judges when there is something to say, and then says nothing
		}
		s.want(way+" to init", s.probe(session, "aim", way, "1"), answer)
	}
	s.want("a signal at the end of a parent", s.probe(session, "pdeathsig"), "terminated")
	s.want("another session", shellAnswer(s, other.SessionID, "id -u"), "1000")
	s.works(session)
	if !s.d.Running() || s.d.PID() != begin {
		s.Error("the daemon has ended")
	}
}

// killedAlone: in one pid namespace everybody is everybody's, but for its init, which the kernel keeps.
func killedAlone(s *siege) {
	s.want("control", s.alone(`exec 2>/dev/null; sleep 100 & other=$!; sh -c "$2"; wait $other; echo "$?"`, killing), "137\n137")
	for _, way := range senders {
		s.want("control: "+way, s.alone(`exec 2>/dev/null; sleep 100 & "$1" aim "$2" $!; wait $!; echo "$?"`, way), "ok\n143")
	}
	s.want("control: a signal at the end of a parent", onHost(s, "pdeathsig"), "terminated")
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

// keptDescriptors: who takes what he is sent has it.
func keptDescriptors(s *siege) {
	socket := filepath.Join(shared(s.T), "s")
	cmd := exec.Command(filepath.Join(s.probes, "probe"), "take-descriptors", socket)
	if err := cmd.Start(); err != nil {
		s.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	s.race("control: 253 descriptors", func() bool {
		return onHost(s, "send-descriptors", socket, "253") == "ok" && open(s, cmd.Process.Pid) > 253
	})
}

func keyrings(s *siege) {
	session := s.session(nil)
	s.want("keyctl", s.probe(session, "keyctl"), "EPERM", "ENOSYS")
	s.want("/proc/keys", s.probe(session, "content", "/proc/keys"), "empty", "ENOENT", "EACCES", "EPERM")
}

func hostKeyrings(s *siege) {
	s.want("control: keyctl", s.outside(unfiltered, "keyctl"), "ok")
	s.want("control: /proc/key-users", onHost(s, "content", "/proc/key-users"), "ok")
}

var raised = []string{"nice", "realtime", "ioprio-realtime", "mbind"}

func priorities(s *siege) {
	session := s.session(nil)
	for _, attempt := range raised {
		s.want(attempt, s.probe(session, attempt), "EPERM", "EACCES", "ENOSYS")
	}
}

func hostPriorities(s *siege) {
	for _, attempt := range raised {
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
	if inside := shellAnswer(s, session, "cat /proc/uptime"); older(s, inside, begin) {
		s.Errorf("up for %s s inside, and the session for %v", inside, time.Since(begin))
	}
}

// hostClocks: root of the host gets past the permission (what it is asked for is nothing: no clock changes), and is told the host's uptime.
func hostClocks(s *siege) {
	for _, attempt := range []string{"settimeofday", "clock-settime", "adjtime"} {
		s.want("control: "+attempt, s.outside(apart, attempt), "EFAULT")
	}
	begin := time.Now()
	out, err := exec.Command("cat", "/proc/uptime").Output()
	if err != nil || !older(s, string(out), begin) {
		s.Errorf("control: the host is up for %s s, %v", out, err)
	}
}

// older reports whether an uptime is that of something which was there before, by more than a second.
func older(s *siege, uptime string, begin time.Time) bool {
	s.Helper()
	var seconds float64
	if _, err := fmt.Sscan(uptime, &seconds); err != nil {
		s.Fatal(err)
	}
	return seconds > time.Since(begin).Seconds()+1
}

// throughLoader has the loader run a copy that may not be executed, in $1: it prints the copy's own filter, and how often it could be executed by itself.
const throughLoader = `cp "$(command -v grep)" "$1/t" && chmod 644 "$1/t" && /lib64/ld-linux-x86-64.so.2 "$1/t" -h ^Seccomp: /proc/self/status; "$1/t" --version >/dev/null 2>&1 && echo executed`

// loaders: nothing that can be written or read inside is more than the session's own right to run programs: a memory file and the
// loader run as the same identity under the same filter. docs/isolation.md says so.
func loaders(s *siege) {
	session := s.session(nil)
	s.want("a memory file", s.probe(session, "execute-memfd", "/mnt/probe/probe", "status", "CapEff", "Seccomp", "NoNewPrivs"), "0000000000000000 2 1")
	r, err := s.c.Exec(s.Context(), api.Exec{SessionID: session, Argv: []string{"sh", "-c", throughLoader, "sh", "/tmp"}})
	s.want("through the loader", printed(settled(s.T, r, err)), "Seccomp:\t2")
}

// loadersOutside: the same ways, and no filter that comes along.
func loadersOutside(s *siege) {
	memory := onHost(s, "execute-memfd", filepath.Join(s.probes, "probe"), "status", "CapEff", "Seccomp", "NoNewPrivs")
	if f := strings.Fields(memory); len(f) != 3 || f[0] == "0000000000000000" || f[1] != "0" || f[2] != "0" {
		s.Errorf("control: a memory file: %q", memory)
	}
	out, err := exec.Command("sh", "-c", throughLoader, "sh", s.TempDir()).Output()
	if got := strings.TrimSpace(string(out)); got != "Seccomp:\t0" {
		s.Errorf("control: through the loader: %q, %v", got, err)
	}
}

const copyIn = `cp /bin/true "$1" && exec "$1"`

// copyAndExecute: nobody in the runner or init holds a file of the session's open for writing while another command is cloned.
func copyAndExecute(s *siege) {
	session := s.session(func(o *api.SessionOpen) { o.Limits.PIDs = 512 })
	const side = 8
	each := (rounds(s.T) + side - 1) / side
	errs := make(chan string, side)
	for i := range side {
		go func() {
			for k := range each {
				x, err := s.c.Exec(s.Context(), api.Exec{SessionID: session, Argv: []string{"sh", "-c", copyIn, "sh", fmt.Sprintf("/tmp/copy.%d", i)}})
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
	s.Logf("%d copies, %d at a time", each*side, side)
}

// copyHeldOpen: the same command, by somebody who has the file open for writing and leaves it so to what he starts.
func copyHeldOpen(s *siege) {
	file := filepath.Join(s.TempDir(), "copy")
	held, err := os.OpenFile(file, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		s.Fatal(err)
	}
	defer held.Close()
	cmd := exec.Command("sh", "-c", copyIn, "sh", file)
	cmd.ExtraFiles = []*os.File{held}
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "busy") {
		s.Errorf("control: %q, %v", out, err)
	}
}
