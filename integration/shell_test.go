package integration

import (
	"fmt"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stockade-dev/stockade/internal/testbox"
	"github.com/stockade-dev/stockade/supervisor/api"
	"github.com/stockade-dev/stockade/supervisor/client"
)

// keyboard is somebody at a shell who has nothing but the API.
type keyboard struct {
	testing.TB
	c      *client.Client
	exec   string
	token  string
	seen   strings.Builder // what came so far
	past   int             // how much of it expect has gone past
	status api.ShellState
	codes  []string // of commands that ended: "ID CODE"
	asked  []string // prompts
}

func openShell(t testing.TB, c *client.Client, ask api.Exec) *keyboard {
	t.Helper()
	s, r, err := c.OpenShell(t.Context(), ask)
	if err == nil && s == nil && r.Outcome == api.OutcomeOK { // it has ended by now
		return &keyboard{TB: t, c: c, exec: r.ExecID}
	}
	if err != nil || s == nil {
		t.Fatalf("open shell: %v, %+v", err, r)
	}
	return &keyboard{TB: t, c: c, exec: s.ExecID, token: s.First, status: s.Status}
}

// read takes what comes next, or another state.
func (d *keyboard) read(wait time.Duration) *api.ShellOutput {
	d.Helper()
	o, err := d.c.ShellOutput(d.Context(), d.exec, api.Read{After: d.token, WaitMS: wait.Milliseconds()})
	if err != nil {
		d.Fatalf("output after %s: %v", d.token, err)
	}
	for _, c := range o.Chunks {
		d.seen.Write(c.Bytes)
		if c.ExitCode != nil {
			d.codes = append(d.codes, fmt.Sprintf("%s %d", c.CommandID, *c.ExitCode))
		}
		if c.Prompt != nil {
			d.asked = append(d.asked, c.Prompt.Text)
		}
	}
	d.token, d.status = o.Token, o.Status
	return o
}

// atMost is how long anything may take here.
const atMost = 20 * time.Second

// expect waits for a pattern in what has not been gone past, and goes past it.
func (d *keyboard) expect(pattern string) string {
	d.Helper()
	re := regexp.MustCompile(pattern)
	for until := time.Now().Add(atMost); ; {
		rest := d.seen.String()[d.past:]
		if at := re.FindStringIndex(rest); at != nil {
			d.past += at[1]
			return rest[:at[1]]
		}
		if time.Now().After(until) {
			d.Fatalf("no %q in %q (%s)", pattern, rest, d.status)
		}
		if o := d.read(time.Second); o.End {
			rest := d.seen.String()[d.past:]
			if at := re.FindStringIndex(rest); at != nil {
				d.past += at[1]
				return rest[:at[1]]
			}
			d.Fatalf("it ended without %q: %q", pattern, rest)
		}
	}
}

// input types, and returns what was said of it.
func (d *keyboard) input(in api.ShellInput) *api.ShellResult {
	d.Helper()
	in.ExecID = d.exec
	r, err := d.c.Type(d.Context(), in)
	if err != nil {
		d.Fatal(err)
	}
	if r.Payload.Shell == nil {
		d.Fatalf("%+v", r)
	}
	return r.Payload.Shell
}

func (d *keyboard) keys(text string) *api.ShellResult {
	d.Helper()
	r := d.input(api.ShellInput{Data: &api.Stdin{InlineBytes: &api.InlineBytes{Bytes: []byte(text)}}})
	if !r.Accepted {
		d.Fatalf("%q: %+v", text, r)
	}
	return r
}

func (d *keyboard) actions(types ...api.ShellActionType) *api.ShellResult {
	d.Helper()
	var in api.ShellInput
	for _, a := range types {
		in.Actions = append(in.Actions, api.ShellAction{Type: a})
	}
	return d.input(in)
}

// idle waits for the prompt.
func (d *keyboard) idle() {
	d.Helper()
	for until := time.Now().Add(atMost); d.status != api.ShellIdle; {
		if time.Now().After(until) {
			d.Fatalf("it stays %s: %q", d.status, d.seen.String()[d.past:])
		}
		d.read(time.Second)
	}
}

// run types a command, waits for its end, and returns what it wrote and its exit code.
func (d *keyboard) run(command string) (output, code string) {
	d.Helper()
	d.idle()
	from := d.seen.Len()
	id := d.keys(command + "\n").CommandID
	d.status = api.ShellBusy // what was read before this says nothing
	before := len(d.codes)
	for until := time.Now().Add(atMost); ; {
		for _, c := range d.codes[before:] {
			if name, n, _ := strings.Cut(c, " "); name == id {
				d.idle()
				d.past = d.seen.Len()
				return strings.ReplaceAll(d.seen.String()[from:], "\r\n", "\n"), n
			}
		}
		if time.Now().After(until) {
			d.Fatalf("%q does not end: %q, %v", command, d.seen.String()[from:], d.codes)
		}
		d.read(time.Second)
	}
}

// commandRow is a command, a part of what it writes, and its exit code.
type commandRow struct{ command, out, code string }

// runs has each row run.
func (d *keyboard) runs(rows []commandRow) {
	d.Helper()
	for _, k := range rows {
		out, code := d.run(k.command)
		if code != k.code || !strings.Contains(out, k.out) {
			d.Errorf("%q: %q, %s", k.command, out, code)
		}
	}
}

func (d *keyboard) get() *api.Shell {
	d.Helper()
	s, err := d.c.Shell(d.Context(), d.exec)
	if err != nil {
		d.Fatal(err)
	}
	return s
}

func (d *keyboard) close(mode string) *api.ShellResult {
	d.Helper()
	r, err := d.c.CloseShell(d.Context(), api.ShellClose{ProcessRef: api.ProcessRef{ExecID: d.exec}, Mode: mode})
	if err != nil {
		d.Fatal(err)
	}
	return r.Payload.Shell
}

func (d *keyboard) want(what string, got, want any) {
	d.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		d.Errorf("%s: %v, want %v", what, got, want)
	}
}

// TestShell is S1's list of tests, each by its name.
// Pitfall 14 of part 4: "commands" and "marks cannot be forged" are what asking the shell for its status gets wrong.
func TestShell(t *testing.T) {
	d := start(t)
	c := d.Client()
	session := opened(t, c, func(o *api.SessionOpen) { o.Target.Local.Env = map[string]api.EnvValue{"PS1": {Text: "$ "}} }).SessionID
	bash := api.Exec{SessionID: session, Argv: []string{"/bin/bash", "--norc", "-i"}}
	for _, k := range []struct {
		name string
		do   func(*testing.T)
	}{
		{"happy path", func(t *testing.T) { happyPath(t, c, session) }},
		{"interactive prompt", func(t *testing.T) { interactivePrompt(t, c, bash) }},
		{"long-running", func(t *testing.T) { longRunning(t, c, bash) }},
		{"background clean-up", func(t *testing.T) { backgroundCleanup(t, c, bash) }},
		{"background kept", func(t *testing.T) { backgroundKept(t, c) }},
		{"crash", func(t *testing.T) { shellCrash(t, c, bash) }},
		{"token monotonicity", func(t *testing.T) { tokens(t, c, bash) }},
		{"truncation", func(t *testing.T) { truncation(t, c, bash) }},
		{"concurrent callers", func(t *testing.T) { concurrentCallers(t, c, bash) }},
		{"partial writes", func(t *testing.T) { partialWrites(t, c, bash) }},
		{"commands", func(t *testing.T) { shellCommands(t, c, bash) }},
		{"as a command", func(t *testing.T) { shellAsCommand(t, c, bash) }},
		{"other programs", func(t *testing.T) { otherPrograms(t, c, session) }},
		{"marks cannot be forged", func(t *testing.T) { forgedMarks(t, c, bash) }},
		{"sh", func(t *testing.T) { posixShell(t, c, session) }},
		{"actions", func(t *testing.T) { shellActions(t, c, bash) }},
		{"one command per call", func(t *testing.T) { shim(t, c, bash) }},
		{"people", func(t *testing.T) { people(t, c, bash) }},
		{"attach", func(t *testing.T) { attachments(t, c, bash) }},
		{"reconnect", func(t *testing.T) { reconnect(t, d, c, bash) }},
	} {
		t.Run(k.name, k.do)
	}
}

// happyPath: create a session, run a command, read its output, close (R141, R143, R144, R152, R153, R164).
func happyPath(t *testing.T, c *client.Client, session string) {
	s := openShell(t, c, api.Exec{SessionID: session})
	first := s.get()
	s.want("status", first.Status, api.ShellIdle)
	s.want("argv", first.Argv, api.DefaultShell)
	s.want("size", fmt.Sprint(first.Cols, "x", first.Rows), "80x24")
	if first.Prompt == nil || first.Prompt.Source != "mark" || !first.Marked {
		t.Errorf("prompt: %+v", first.Prompt)
	}
	out, code := s.run("test -t 0 && echo terminal; shopt -q login_shell && echo login; stty size; (exit 3)")
	s.want("code", code, 3)
	if !strings.Contains(out, "\nterminal\nlogin\n24 80\n") {
		t.Errorf("%q", out)
	}
	r := s.close("")
	s.want("final state", r.Status, api.ShellClosed)
	if r.Summary == "" {
		t.Error("no summary")
	}
	s.want("closed again", s.close("").Status, api.ShellClosed)
	p, err := c.Process(t.Context(), s.exec)
	if err != nil || p.State != api.StateCanceled || p.Reason != string(api.CodeShellClosed) {
		t.Errorf("%+v, %v", p, err)
	}
	// What it said is still there to be read, and in the receipt.
	again := &keyboard{TB: t, c: c, exec: s.exec}
	for !again.read(0).End {
	}
	if !strings.Contains(again.seen.String(), "terminal\r\nlogin\r\n") {
		t.Errorf("afterwards: %q", again.seen.String())
	}
	receipt, err := c.Receipt(t.Context(), p.IntentID)
	if err != nil || receipt.Payload.Exec.Commands != 1 || !strings.HasPrefix(receipt.Payload.Exec.Transcript, "sha256:") {
		t.Errorf("receipt: %+v, %v", receipt.Payload.Exec, err)
	}
}

// interactivePrompt: a REPL inside the shell has prompts of its own, and none of them ends the command that it is (R165).
func interactivePrompt(t *testing.T, c *client.Client, bash api.Exec) {
	s := openShell(t, c, bash)
	defer s.close("force")
	s.idle()
	id := s.keys("PYTHONSTARTUP= TERM=dumb python3 -q -i\n").CommandID
	s.expect(`>>> $`)
	s.want("in the REPL", s.get().Status, api.ShellBusy)
	s.want("its prompt", s.get().Prompt.Text, ">>> ")
	s.keys("6*7\n")
	s.expect(`(?s)42.*>>> $`)
	s.keys("for i in range(3):\n    print('line', i)\n\n")
	s.expect(`(?s)line 0\s+line 1\s+line 2.*>>> $`)
	s.want("codes so far", len(s.codes), 0)
	s.keys("raise SystemExit(5)\n")
	s.idle()
	s.want("codes", s.codes, []string{id + " 5"})
	if got := strings.Join(s.asked, ""); !strings.Contains(got, ">>> ") {
		t.Errorf("prompts: %q", s.asked)
	}
}

// longRunning: a command streams while it runs, and CTRL_C ends it (R166, R167).
func longRunning(t *testing.T, c *client.Client, bash api.Exec) {
	s := openShell(t, c, bash)
	defer s.close("force")
	s.idle()
	s.keys("i=0; while :; do echo tick $((i=i+1)); sleep 0.05; done\n")
	s.expect(`tick 3\r\n`)
	s.want("meanwhile", s.get().Status, api.ShellBusy)
	s.expect(`tick 6\r\n`)
	s.actions(api.ActionCtrlC)
	s.idle()
	begun := time.Now()
	s.keys("sleep 10\n")
	time.Sleep(100 * time.Millisecond)
	s.status = api.ShellBusy
	s.actions(api.ActionCtrlC)
	s.idle()
	if took := time.Since(begun); took > 5*time.Second {
		t.Errorf("sleep 10 took %v", took)
	}
	s.want("its code", s.codes[len(s.codes)-1], fmt.Sprint(s.get().Commands[len(s.get().Commands)-1].CommandID, " 130"))
}

// backgroundCleanup: a job goes on behind the prompt, and ends with the shell (R168, R169).
func backgroundCleanup(t *testing.T, c *client.Client, bash api.Exec) {
	s := openShell(t, c, bash)
	s.run("sleep 1000 & disown; setsid sleep 1001 </dev/null >/dev/null 2>&1 &")
	out, _ := s.run("pgrep -c sleep")
	if !strings.Contains(out, "\n2\n") {
		t.Errorf("in the background: %q", out)
	}
	s.want("status", s.get().Status, api.ShellIdle)
	s.close("")
	r := shell(t, c, bash.SessionID, "pgrep -x sleep")
	s.want("afterwards", r.Payload.Exec.ExitCode, 1)
}

// backgroundKept: where policy lets processes live in the background, a job goes on behind its shell, is told that the terminal is gone, and ends
// with the session (R028, R168, R169).
func backgroundKept(t *testing.T, c *client.Client) {
	background := true
	session := opened(t, c, func(o *api.SessionOpen) {
		o.Background = &background
		o.Target.Local.Env = map[string]api.EnvValue{"PS1": {Text: "$ "}}
	}).SessionID
	s := openShell(t, c, api.Exec{SessionID: session, Argv: []string{"/bin/bash", "--norc", "-i"}})
	s.run("setsid nohup sleep 1002 </dev/null >/dev/null 2>&1 & sleep 1003 &")
	s.run("until pgrep -fx 'sleep 1002'; do sleep 0.01; done") // until then a hang-up would reach it
	s.want("final state", s.close("").Status, api.ShellClosed)
	r := shell(t, c, session, "pgrep -fx 'sleep 1002'")
	s.want("what was detached", r.Payload.Exec.ExitCode, 0)
	closed, err := c.Close(t.Context(), api.SessionClose{SessionID: session, Mode: "force"})
	if err != nil || closed.Outcome != api.OutcomeOK {
		t.Errorf("%+v, %v", closed, err)
	}
}

// shellCrash: a shell that is killed is in error, its end is on record, and closing it still works (R170).
func shellCrash(t *testing.T, c *client.Client, bash api.Exec) {
	s := openShell(t, c, bash)
	s.idle()
	s.keys("kill -SEGV $$\n")
	for until := time.Now().Add(atMost); s.get().Status != api.ShellError; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("%+v", s.get())
		}
	}
	s.want("process", s.get().State, api.StateFailed)
	s.want("signal", s.get().Signal, "SEGV")
	s.want("closing it", s.close("").Status, api.ShellError)
	r := s.input(api.ShellInput{Data: &api.Stdin{InlineText: &api.InlineText{Text: "x\n"}}})
	s.want("typing", fmt.Sprintf("%v %s", r.Accepted, r.ErrorCode), "false exec_ended")
}

// tokens: they only move on, the same one is the same place, what follows one is exactly the later bytes, and one of another
// shell is refused (R156, R157, R159, R160).
func tokens(t *testing.T, c *client.Client, bash api.Exec) {
	s := openShell(t, c, bash)
	defer s.close("force")
	s.run("seq 1 2000")
	all := s.seen.String()
	var pieces strings.Builder
	at := ""
	seen := map[string]bool{}
	for {
		o, err := c.ShellOutput(t.Context(), s.exec, api.Read{After: at, MaxBytes: 777})
		if err != nil {
			t.Fatal(err)
		}
		if len(o.Chunks) == 0 {
			break
		}
		n := 0
		for _, ch := range o.Chunks {
			pieces.Write(ch.Bytes)
			n += len(ch.Bytes)
		}
		if n > 777 {
			t.Errorf("%d bytes at once", n)
		}
		if seen[o.Token] {
			t.Fatalf("token %s twice", o.Token)
		}
		seen[o.Token] = true
		at = o.Token
	}
	if pieces.String() != all {
		t.Errorf("in pieces %d bytes, at once %d", pieces.Len(), len(all))
	}
	other := openShell(t, c, bash)
	defer other.close("force")
	for _, bad := range []string{other.token, "x", s.exec + "~zzzzzzz", s.exec + "~-1", s.exec + "~01"} {
		_, err := c.ShellOutput(t.Context(), s.exec, api.Read{After: bad})
		if e, ok := err.(*api.Error); !ok || e.Code != api.CodeInvalidToken {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

// truncation: what is overwritten is said to be, with the first place that is kept (R154, R155, R158).
func truncation(t *testing.T, c *client.Client, bash api.Exec) {
	bash.Limits.OutputBytes = 64 << 10
	s := openShell(t, c, bash)
	defer s.close("force")
	begin := s.token
	s.idle()
	s.keys("yes $(printf %0200d 7) | head -c 3000000; echo; echo the-end\n")
	s.token = s.get().Token
	s.status = api.ShellBusy
	s.idle()
	o, err := c.ShellOutput(t.Context(), s.exec, api.Read{After: begin})
	if err != nil || !o.Truncated || len(o.Chunks) == 0 || !o.Chunks[0].Truncated || o.Chunks[0].Offset == 0 {
		t.Fatalf("%+v, %v", o, err)
	}
	first := s.get().First
	from, err := c.ShellOutput(t.Context(), s.exec, api.Read{After: first})
	if err != nil || from.Truncated || from.Chunks[0].Offset != o.Chunks[0].Offset {
		t.Errorf("from the first token: %+v, %v", from.Truncated, err)
	}
	rest := &keyboard{TB: t, c: c, exec: s.exec, token: first}
	rest.expect("the-end\r\n")
	if n := rest.seen.Len(); n < 64<<10 || n > 1<<20 {
		t.Errorf("%d bytes are kept", n)
	}
}

// concurrentCallers: each request is typed whole, and in the order in which they are accepted (R146, R147, R176).
func concurrentCallers(t *testing.T, c *client.Client, bash api.Exec) {
	s := openShell(t, c, api.Exec{SessionID: bash.SessionID, Argv: []string{"sh", "-c", "stty -echo; echo ready; cat >/tmp/typed; echo got $(wc -c </tmp/typed)"}})
	defer s.close("force")
	s.expect("ready\r\n")
	const callers, each = 8, 5
	line := func(caller, n int) string {
		return strings.Repeat(string(rune('a'+caller)), 400) + fmt.Sprintf("-%02d\n", n)
	}
	var all sync.WaitGroup
	for caller := range callers {
		all.Go(func() {
			for n := range each {
				in := api.ShellInput{InputID: fmt.Sprint(caller, "-", n), Data: &api.Stdin{InlineText: &api.InlineText{Text: line(caller, n)}}}
				for range 2 { // the second changes nothing
					if r := s.input(in); !r.Accepted {
						t.Errorf("%+v", r)
					}
				}
			}
		})
	}
	all.Wait()
	s.actions(api.ActionCtrlD)
	s.expect(fmt.Sprintf("got %d\r\n", callers*each*len(line(0, 0))))
	out := text(shell(t, c, bash.SessionID, "sort -c -t- -k2,2 -s /dev/null; cut -c1,401-403 /tmp/typed; grep -cvxE '(a{400}|b{400}|c{400}|d{400}|e{400}|f{400}|g{400}|h{400})-[0-9]{2}' /tmp/typed").Payload.Exec.Stdout)
	next := map[byte]int{}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	for _, l := range lines[:len(lines)-1] {
		if want := fmt.Sprintf("%c-%02d", l[0], next[l[0]]); l != want {
			t.Fatalf("%q where %q belongs", l, want)
		}
		next[l[0]]++
	}
	s.want("lines that are of two", lines[len(lines)-1], 0)
}

// partialWrites: what a program does not read is said to be missing, by the byte; and a queue that is full is said to be
// (R148, R149, R150).
func partialWrites(t *testing.T, c *client.Client, bash api.Exec) {
	s := openShell(t, c, api.Exec{SessionID: bash.SessionID, Argv: []string{"sh", "-c", "stty raw -echo; echo ready; exec sleep 1000"}})
	s.expect("ready")
	raw := make([]byte, 250_000)
	for i := range raw {
		raw[i] = byte(i * 7)
	}
	const callers = 6
	answers := make(chan *api.ShellResult, callers)
	for range callers {
		go func() {
			answers <- s.input(api.ShellInput{Data: &api.Stdin{InlineBytes: &api.InlineBytes{Bytes: raw}}})
		}()
	}
	// One waits within the terminal, four in the queue; the sixth would be more than a MiB.
	if r := <-answers; r.Accepted || r.ErrorCode != api.CodeQueueFull || r.Bytes != 0 {
		t.Errorf("%+v", r)
	}
	q := s.get().Queue
	s.want("queue", q, api.ShellQueue{State: "busy", Requests: 4, Bytes: 4 * int64(len(raw))})
	s.close("force")
	partial := 0
	for range callers - 1 {
		r := <-answers
		if r.Accepted {
			t.Errorf("%+v", r)
		}
		if 0 < r.Bytes && r.Bytes < int64(len(raw)) {
			partial++
		}
	}
	s.want("written in part", partial, 1)
}

// shellCommands: what shells do to confuse whoever watches their commands (R164).
func shellCommands(t *testing.T, c *client.Client, bash api.Exec) {
	s := openShell(t, c, bash)
	defer s.close("force")
	s.runs([]commandRow{
		{"true", "", "0"},
		{"false", "", "1"},
		{"cat <<END\nin\nhere\nEND", "in\nhere\n", "0"},
		{"for i in 1 2; do\necho $i\ndone", "1\n2\n", "0"},
		{"echo a\\\nb", "ab\n", "0"},
		{"f() { return 9; }; f", "", "9"},
		{"bash --norc -c 'exit 4'", "", "4"},
		{"printf 'no newline'", "no newline", "0"},
		{"sh -c 'kill -TERM $$'", "", "143"},
		{"nonesuch", "not found", "127"},
		{"set -u; echo x$nonesuch", "unbound variable", "1"},
		{"set +u; PS1='% '", "", "0"},
		{"PS0='go '; echo on", "on\n", "0"},
		{"export PS1 PS0; env | grep -c '\\]133;'", "0\n", "1"},
	})
	// set -e ends the shell with what fails, and not with what is allowed to.
	s.run("set -e; false || true; if false; then :; fi; ! true")
	s.want("alive", s.get().Status, api.ShellIdle)
	s.keys("false\n")
	for !s.read(time.Second).End {
	}
	s.want("its end", fmt.Sprintf("%s %d", s.get().Status, *s.get().ExitCode), "CLOSED 1")

	// Another shell in its place is one of which nothing is known but what it looks like.
	s = openShell(t, c, bash)
	defer s.close("force")
	s.idle()
	s.keys("exec sh\n")
	s.expect(`\$ $`)
	s.keys("echo in-sh\n")
	s.expect(`in-sh\r\n`)
	s.want("exec", s.get().Status, api.ShellBusy)
	s.keys("exit 6\n")
	for !s.read(time.Second).End {
	}
	s.want("its end", fmt.Sprintf("%s %d", s.get().Status, *s.get().ExitCode), "CLOSED 6")
}

// shellAsCommand: a shell has the identity, filter, capabilities, limits, groups and mounts of any command of its session, and its
// environment is overlaid as theirs (R142).
func shellAsCommand(t *testing.T, c *client.Client, bash api.Exec) {
	const look = `grep -E '^(Uid|Gid|Groups|NoNewPrivs|Seccomp|Seccomp_filters|Cap.*):' /proc/self/status; ulimit -a; ` +
		`sed 's|/x/[0-9]*$|/x|' /proc/self/cgroup; cut -d' ' -f4- /proc/self/mountinfo; for n in user mnt pid net ipc uts cgroup time; do readlink /proc/self/ns/$n; done; echo $MINE`
	patch := map[string]api.EnvValue{"MINE": {Text: "overlaid"}}
	ran, err := c.Exec(t.Context(), api.Exec{SessionID: bash.SessionID, Argv: []string{"/bin/bash", "-c", look}, EnvPatch: patch})
	if err != nil || ran.Outcome != api.OutcomeOK {
		t.Fatalf("%+v, %v", ran, err)
	}
	want := text(ran.Payload.Exec.Stdout)
	s := openShell(t, c, api.Exec{SessionID: bash.SessionID, Argv: []string{"/bin/bash", "-c", look}, EnvPatch: patch})
	for s.exec != "" && !s.read(time.Second).End {
	}
	got := strings.ReplaceAll(s.seen.String(), "\r\n", "\n")
	if got != want || !strings.HasSuffix(got, "\noverlaid\n") || strings.Count(got, "\n") < 40 {
		t.Errorf("in a shell:\n%s\nas a command:\n%s", got, want)
	}
}

// otherPrograms: one that says nothing of its prompts has them told by their looks, and the end of a line by the next, without an exit
// code (1.6).
func otherPrograms(t *testing.T, c *client.Client, session string) {
	s := openShell(t, c, api.Exec{SessionID: session, Argv: []string{"python3", "-q", "-i"}, EnvPatch: map[string]api.EnvValue{"TERM": {Text: "dumb"}}})
	defer s.close("force")
	s.idle()
	now := s.get()
	if now.Marked || now.Prompt == nil || now.Prompt.Text != ">>> " || now.Prompt.Source != "pattern" {
		t.Errorf("%+v, %+v", now, now.Prompt)
	}
	id := s.keys("import time; time.sleep(0.6); print(6*7)\n").CommandID
	s.want("while it runs", s.get().Status, api.ShellBusy)
	s.want("what runs", s.get().Command.CommandID, id)
	s.status = api.ShellBusy
	s.expect(`42\r\n`)
	s.idle()
	if ended := s.get().Commands; len(ended) != 1 || ended[0].CommandID != id || ended[0].ExitCode != nil {
		t.Errorf("%+v", ended)
	}
	s.want("codes", len(s.codes), 0)
	s.keys("exit(4)\n")
	for !s.read(time.Second).End {
	}
	s.want("its end", fmt.Sprintf("%s %d", s.get().Status, *s.get().ExitCode), "CLOSED 4")

	// The files of a user's that leave nothing of the hooks leave him a shell that is known by its looks.
	shell(t, c, session, `echo "PROMPT_COMMAND='true'; PS1='own> '" >~/.bashrc`)
	defer shell(t, c, session, "rm ~/.bashrc")
	s = openShell(t, c, api.Exec{SessionID: session, Argv: []string{"/bin/bash", "-i"}, EnvPatch: map[string]api.EnvValue{"TERM": {Text: "dumb"}}})
	defer s.close("force")
	s.expect(`own> $`)
	s.idle()
	s.want("marked", s.get().Marked, false)
}

// forgedMarks: what a program prints is no mark, and what the shell's children can see has no nonce (1.6).
func forgedMarks(t *testing.T, c *client.Client, bash api.Exec) {
	s := openShell(t, c, bash)
	defer s.close("force")
	s.idle()
	s.keys(`for k in A B C 'D;0'; do printf '\033]133;%s\a' "$k"; printf '\033]133;00000000000000000000000000000000;%s\a' "$k"; done; sleep 1; echo over` + "\n")
	s.expect(`133;D;0`)
	s.want("while it runs", s.get().Status, api.ShellBusy)
	s.want("codes", len(s.codes), 0)
	s.expect(`over\r\n`)
	s.idle()
	out, _ := s.run("cat /proc/$$/environ /proc/$$/cmdline /proc/self/environ | tr '\\0' '\\n'; ls -l /proc/self/fd; set | grep -c __stockade_mark")
	if strings.Contains(out, "\x1b]133;") || regexp.MustCompile(`[0-9a-f]{32}`).MatchString(out) || strings.Contains(out, " 9 ->") {
		t.Errorf("a child sees: %q", out)
	}
	if strings.Contains(s.seen.String(), "__stockade") && strings.Contains(s.seen.String(), "\x1b]133;A") == false {
		t.Error("the forged marks are not output")
	}
}

// posixShell: a shell without hooks but its prompt says how its commands end.
func posixShell(t *testing.T, c *client.Client, session string) {
	s := openShell(t, c, api.Exec{SessionID: session, Argv: []string{"/bin/sh", "-i"}})
	defer s.close("force")
	s.runs([]commandRow{
		{"echo one", "one\n", "0"},
		{"(exit 12)", "", "12"},
		{"cat <<E\nx\nE", "x\n", "0"},
	})
}

// shellActions: several in one request are done in their order, after the data; a byte and a signal differ where the terminal makes
// nothing of bytes (C8, R145, R151).
func shellActions(t *testing.T, c *client.Client, bash api.Exec) {
	s := openShell(t, c, bash)
	defer s.close("force")
	s.idle()
	s.keys("echo now; cat; stty size\n")
	s.expect(`now\r\nnow\r\n|\nnow\r\n`)
	s.status = api.ShellBusy
	r := s.input(api.ShellInput{
		Data: &api.Stdin{InlineText: &api.InlineText{Text: "typed\n"}},
		Actions: []api.ShellAction{
			{Type: api.ActionResize, Cols: 132, Rows: 50}, {Type: api.ActionResize, Cols: 101, Rows: 41}, {Type: api.ActionCtrlD},
		},
	})
	s.want("done", fmt.Sprint(r.Accepted, r.Bytes, r.Actions, r.Cols, r.Rows), "true 7 3 101 41")
	s.expect(`typed\r\ntyped\r\n41 101\r\n`)
	s.idle()
	// Raw, ^C is a byte. SIGINT is not.
	s.keys("python3 -c 'import sys,tty,signal,os; tty.setraw(0); print(\"raw\", end=\"\\r\\n\", flush=True); print(os.read(0,1), end=\"\\r\\n\", flush=True); signal.pause()'; stty sane\n")
	s.expect(`raw\r\n`)
	s.actions(api.ActionCtrlC)
	s.expect(`b'\\x03'`)
	s.want("alive", s.get().Status, api.ShellBusy)
	s.status = api.ShellBusy
	s.actions(api.ActionSIGINT)
	s.expect(`KeyboardInterrupt`)
	s.idle()
	s.keys("sleep 100\n")
	time.Sleep(100 * time.Millisecond)
	s.status = api.ShellBusy
	s.actions(api.ActionSIGTERM)
	s.idle()
	if last := s.codes[len(s.codes)-1]; !strings.HasSuffix(last, " 143") {
		t.Errorf("SIGTERM: %s", last)
	}
	s.keys("trap '' INT TERM; sh -c 'trap \"\" INT TERM; while :; do sleep 1; done'\n")
	time.Sleep(100 * time.Millisecond)
	s.status = api.ShellBusy
	s.actions(api.ActionSIGINT, api.ActionSIGTERM, api.ActionSIGKILL)
	s.idle()
	if last := s.codes[len(s.codes)-1]; !strings.HasSuffix(last, " 137") {
		t.Errorf("SIGKILL: %s", last)
	}
	// An end of file is the end of the shell.
	s.actions(api.ActionCtrlD)
	for !s.read(time.Second).End {
	}
	s.want("after CTRL_D", s.get().Status, api.ShellClosed)
}

// reconnect: a shell outlives the daemon, with its screen, its state and its history (R156, C26).
func reconnect(t *testing.T, d *testbox.Daemon, c *client.Client, bash api.Exec) {
	for _, how := range restarts {
		t.Run(how.name, func(t *testing.T) {
			s := openShell(t, c, bash)
			defer s.close("force")
			out, code := s.run("x=kept; echo before")
			s.want("before", code, 0)
			before := s.seen.String()
			s.keys("sleep 1; echo during\n")
			how.do(t, d)
			s.expect(`during\r\n`)
			s.idle()
			out, code = s.run("echo $x; (exit 8)")
			if !strings.Contains(out, "kept\n") || code != "8" {
				t.Errorf("%q, %s", out, code)
			}
			again := &keyboard{TB: t, c: c, exec: s.exec}
			again.read(0)
			if !strings.HasPrefix(again.seen.String(), before) {
				t.Errorf("from the beginning: %q", again.seen.String())
			}
		})
	}
}

// shim: one command per call on a shell that is kept (R174).
func shim(t *testing.T, c *client.Client, bash api.Exec) {
	for _, argv := range [][]string{bash.Argv, {"/bin/sh", "-i"}} {
		s := openShell(t, c, api.Exec{SessionID: bash.SessionID, Argv: argv})
		run := func(command string, timeout time.Duration) *api.ShellResult {
			t.Helper()
			r, err := c.RunInShell(t.Context(), api.ShellRun{ProcessRef: api.ProcessRef{ExecID: s.exec}, Command: command, TimeoutNS: int64(timeout)})
			if err != nil || r.Payload.Shell == nil {
				t.Fatalf("%q: %+v, %v", command, r, err)
			}
			return r.Payload.Shell
		}
		for _, k := range []commandRow{
			{"cd /usr", "", "0"},
			{"pwd", "/usr\n", "0"},
			{"x='a b'\nfor i in 1 2; do\n  echo \"$i $x\"\ndone\n(exit 9)", "1 a b\n2 a b\n", "9"},
			{"cat <<'E'\n$x 'y'\nE", "$x 'y'\n", "0"},
			{"echo 'unfinished", "", ""},
			{"printf 'no end'", "no end", "0"},
		} {
			r := run(k.command, 0)
			out := ""
			if r.Stdout != nil && r.Stdout.InlineText != nil {
				out = r.Stdout.InlineText.Text
			}
			if r.ExitCode == nil || k.code != "" && (fmt.Sprint(*r.ExitCode) != k.code || out != k.out) || k.code == "" && *r.ExitCode == 0 || r.TimedOut {
				t.Errorf("%s: %q: %q, %+v", argv[0], k.command, out, r)
			}
		}
		r := run("echo begun; sleep 100", 300*time.Millisecond)
		if !r.TimedOut || r.ExitCode == nil || *r.ExitCode != 130 || r.Stdout == nil || !strings.HasPrefix(r.Stdout.InlineText.Text, "begun\n") {
			t.Errorf("%s: %+v, %+v", argv[0], r, r.Stdout)
		}
		s.want("still there", run("pwd", 0).Stdout.InlineText.Text, "/usr\n")
		s.close("force")
	}
}

// people: what people do at a terminal, by the API alone: a full-screen editor, a rebase with one, a build under a storm of
// resizes.
func people(t *testing.T, c *client.Client, bash api.Exec) {
	s := openShell(t, c, bash)
	defer s.close("force")
	s.run("mkdir -p /tmp/repo && cd /tmp/repo && export HOME=/tmp EDITOR=vi GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b")
	s.idle()
	s.keys("vi hello\n")
	s.expect(`\x1b\[\?1049h|"hello"`)
	s.keys("ione\x1b")
	time.Sleep(300 * time.Millisecond) // an escape alone is one when nothing follows
	s.status = api.ShellBusy
	s.keys(":wq\r")
	s.idle()
	if out, code := s.run("cat hello"); !strings.Contains(out, "\none\n") || code != "0" {
		t.Errorf("%q, %s", out, code)
	}
	out, code := s.run("git init -q . && for i in a b c; do echo $i >$i; git add $i; git commit -qm $i; done; git log --format=%s | tr '\\n' ' '")
	if !strings.Contains(out, "c b a ") || code != "0" {
		t.Fatalf("%q, %s", out, code)
	}
	s.keys("git rebase -i HEAD~2\n")
	s.expect(`pick [0-9a-f]+ `)
	s.keys("ddp")
	time.Sleep(200 * time.Millisecond)
	s.status = api.ShellBusy
	s.keys(":wq\r")
	s.idle()
	if out, code := s.run("git log --format=%s | tr '\\n' ' '"); !strings.Contains(out, "b c a ") || code != "0" {
		t.Errorf("%q, %s", out, code)
	}
	out, code = s.run(`printf 'all: $(addprefix t,$(shell seq 40))\nt%%:\n\t@echo made $@ $$(stty size); sleep 0.01\n' >Makefile; echo ok`)
	if code != "0" {
		t.Fatalf("%q", out)
	}
	s.status = api.ShellBusy
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range 200 {
			r, err := c.ResizeShell(t.Context(), api.ShellResize{ProcessRef: api.ProcessRef{ExecID: s.exec}, Cols: 60 + i%80, Rows: 20 + i%30})
			if err != nil || !r.Payload.Shell.Accepted {
				t.Errorf("%+v, %v", r, err)
				return
			}
		}
	}()
	out, code = s.run("make -j4")
	<-done
	if strings.Count(out, "made t") != 40 || code != "0" {
		t.Errorf("%d of 40, %s", strings.Count(out, "made t"), code)
	}
	if out, _ := s.run("stty size"); !strings.Contains(out, "\n39 99\n") {
		t.Errorf("after the storm: %q", out)
	}
}

// attachments: one types and others watch; who takes over types, and who left does not.
func attachments(t *testing.T, c *client.Client, bash api.Exec) {
	s := openShell(t, c, bash)
	defer s.close("force")
	s.run("echo before-we-came")
	first, err := c.Attach(t.Context(), s.exec, client.Seat{Cols: 90, Rows: 33})
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	watcher, err := c.Attach(t.Context(), s.exec, client.Seat{Observe: true})
	if err != nil {
		t.Fatal(err)
	}
	defer watcher.Close()
	until := func(a *client.Attachment, text string) {
		t.Helper()
		var seen strings.Builder
		for !strings.Contains(seen.String(), text) {
			m, err := a.Next(t.Context())
			if err != nil {
				t.Fatalf("%v; there was %q", err, seen.String())
			}
			seen.Write(m.Bytes)
			seen.WriteString(m.News)
		}
		if strings.Contains(seen.String(), "\x1b]133;") {
			t.Errorf("marks: %q", seen.String())
		}
	}
	until(first, "before-we-came")
	until(watcher, "before-we-came")
	if err := first.Keys(t.Context(), []byte("stty size\n")); err != nil {
		t.Fatal(err)
	}
	until(first, "33 90")
	until(watcher, "33 90")
	s.want("who is there", fmt.Sprint(s.get().Writer, s.get().Observers), "uid 00")
	_, err = c.Attach(t.Context(), s.exec, client.Seat{})
	if e, ok := err.(*api.Error); !ok || e.Code != api.CodeWriterHeld {
		t.Errorf("beside the first: %v", err)
	}
	second, err := c.Attach(t.Context(), s.exec, client.Seat{Takeover: true})
	if err != nil {
		t.Fatal(err)
	}
	until(first, "observer")
	first.Keys(t.Context(), []byte("echo no-more\n"))
	second.Keys(t.Context(), []byte("echo by-the-second\n"))
	until(watcher, "by-the-second\r\n")
	if out, err := c.ShellOutput(t.Context(), s.exec, api.Read{}); err != nil || strings.Contains(fmt.Sprint(out.Chunks), "no-more") {
		t.Errorf("%v", err)
	}
	second.Close()
	s.idle()
	for until := time.Now().Add(atMost); s.get().Writer != ""; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatal("who has left still types")
		}
	}
	s.keys("exit\n")
	for {
		if _, err := watcher.Next(t.Context()); err != nil {
			s.want("the end", err, "EOF")
			break
		}
	}
	list, err := c.Receipts(t.Context(), api.Read{Op: api.OpShellAttach, Outcome: api.OutcomeOK})
	if err != nil || len(list) < 2 || list[0].Payload.Shell.Typed == "" {
		t.Errorf("%d receipts, %v", len(list), err)
	}
}
