package supervisor

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/stockade-dev/stockade/internal/prompt"
	"github.com/stockade-dev/stockade/supervisor/api"
	"github.com/stockade-dev/stockade/supervisor/ledger"
	"github.com/stockade-dev/stockade/supervisor/telemetry"
)

// shell opens a shell in a session, and returns its id.
func (b *bench) shell(session string) string {
	b.t.Helper()
	return b.program(session, "bash").ExecID
}

// program opens a program as a shell.
func (b *bench) program(session string, argv ...string) *api.Shell {
	b.t.Helper()
	s, r, err := b.OpenShell(b.t.Context(), &api.Request{Op: api.OpShellOpen, Principal: alice, Facade: "test", Exec: &api.Exec{
		SessionID: session, Argv: argv, StdinOpen: true, Terminal: &api.Terminal{Cols: 80, Rows: 24},
	}})
	if err != nil || s == nil {
		b.t.Fatalf("%+v, %v", r, err)
	}
	return s
}

// states are the changes of a shell's state, each with its command and exit code, as its frames have them.
func (b *bench) states(exec string) (all []string) {
	b.t.Helper()
	p, _ := b.chronicle.process(alice, api.ProcessRef{ExecID: exec})
	list, _, err := b.Frames(b.t.Context(), &api.Request{Op: api.OpIntentFrames, Principal: alice, Facade: "test", Read: &api.Read{IntentID: p.IntentID}})
	if err != nil {
		b.t.Fatal(err)
	}
	for _, f := range list.Frames {
		if f.Kind != api.FrameShell {
			continue
		}
		line := fmt.Sprint(f.Payload.Status, " ", f.Payload.CommandID)
		if f.Payload.ExitCode != nil {
			line += fmt.Sprint(" ", *f.Payload.ExitCode)
		}
		all = append(all, strings.TrimSpace(line))
	}
	return all
}

// shellOf is a shell as get shows it.
func (b *bench) shellOf(exec string) *api.Shell {
	b.t.Helper()
	s, r, err := b.Shell(b.t.Context(), &api.Request{Op: api.OpShellGet, Principal: alice, Facade: "test", Read: &api.Read{ExecID: exec}})
	if err != nil || s == nil {
		b.t.Fatalf("%+v, %v", r, err)
	}
	return s
}

func (b *bench) types(exec, text string) *api.ShellResult {
	b.t.Helper()
	r := b.do(api.Request{Op: api.OpShellInput, Keys: &api.ShellInput{
		ProcessRef: api.ProcessRef{ExecID: exec}, Data: &api.Stdin{InlineText: &api.InlineText{Text: text}},
	}})
	return r.Payload.Shell
}

// only are the events of a session itself.
func only(list []string) []string {
	return slices.DeleteFunc(list, func(s string) bool {
		return strings.HasPrefix(s, "PROCESS_STATE") || strings.HasPrefix(s, "OUTPUT_AVAILABLE")
	})
}

// R021, R164: a shell that waits at its prompt is no activity, one that runs a command is, and what is typed is. It ends with its session.
func TestShellIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t)
		defer b.stop()
		id := b.session(func(o *api.SessionOpen) { // a command of this policy's has a minute
			o.Labels = map[string]string{"idle": strconv.FormatInt(int64(10*time.Second), 10)}
		})
		x := b.shell(id)
		time.Sleep(9 * time.Second)
		if r := b.types(x, "sleep\n"); !r.Accepted || r.Status != api.ShellBusy {
			t.Fatalf("%+v", r)
		}
		time.Sleep(20 * time.Second)
		synctest.Wait()
		if d := b.shown(id); d.State != stateReady || d.IdleAtNS != 0 {
			t.Fatalf("while a command runs: %+v", d)
		}
		b.types(x, "\n")
		synctest.Wait()
		if got := only(b.notices(id)); len(got) != 1 {
			t.Errorf("early: %v", got)
		}
		if got := time.Until(time.Unix(0, b.shown(id).IdleAtNS)); got != 15*time.Second {
			t.Errorf("at its prompt it is idle in %v", got)
		}
		time.Sleep(20 * time.Second)
		synctest.Wait()
		want := []string{"SESSION_STATE ready", "IDLE_WARNING", "IDLE_TIMEOUT", "SESSION_STATE closed"}
		if diff := cmp.Diff(want, only(b.notices(id))); diff != "" {
			t.Error(diff)
		}
		p, ok := b.chronicle.process(alice, api.ProcessRef{ExecID: x})
		if !ok || p.State != api.StateTimedOut || p.Reason != string(api.CodeSessionIdle) || endedStatus(p) != api.ShellClosed {
			t.Errorf("%+v", p)
		}
	})
}

// R172, R153: each change of state is a frame, in order, with the command that it is about.
func TestShellFrames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t)
		defer b.stop()
		x := b.shell(b.session())
		synctest.Wait()
		for _, line := range []string{"one\n", "\n", "two\n", "exit\n"} {
			b.types(x, line)
			synctest.Wait()
		}
		p, _ := b.chronicle.process(alice, api.ProcessRef{ExecID: x})
		want := []string{"IDLE", "BUSY c-1", "IDLE c-1 7", "BUSY c-2", "IDLE", "BUSY c-3", "IDLE c-3 7", "BUSY c-4"}
		if diff := cmp.Diff(want, b.states(x)); diff != "" {
			t.Error(diff)
		}
		if endedStatus(p) != api.ShellClosed || p.ExitCode == nil || *p.ExitCode != 3 {
			t.Errorf("%+v", p)
		}
	})
}

// R174: one command per call, on a shell that is kept.
func TestShellRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t)
		defer b.stop()
		x := b.shell(b.session())
		run := func(command, id string, timeout time.Duration) *api.ShellResult {
			return b.do(api.Request{Op: api.OpShellRun, Run: &api.ShellRun{
				ProcessRef: api.ProcessRef{ExecID: x}, Command: command, InputID: id, TimeoutNS: int64(timeout),
			}}).Payload.Shell
		}
		r := run("one", "1", 0)
		if !r.Accepted || r.ExitCode == nil || *r.ExitCode != 7 || r.Stdout.InlineText.Text != "ran one\n" || r.TimedOut {
			t.Errorf("%+v", r)
		}
		if r := run("one", "1", 0); !r.Duplicate || r.Stdout != nil {
			t.Errorf("again: %+v", r)
		}
		if r := run("sleep", "", 10*time.Second); !r.TimedOut || r.ExitCode != nil {
			t.Errorf("%+v", r)
		}
		if r := run("two", "", time.Second); r.ErrorCode != api.CodeShellBusy {
			t.Errorf("while another runs: %+v", r)
		}
	})
}

// Who types beside somebody who is attached needs takeover, and whom it was taken from types no more.
func TestShellSeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t)
		defer b.stop()
		x := b.shell(b.session())
		attach := func(takeover bool) (moves chan *api.ShellInput, news chan string, over chan *api.Receipt) {
			moves, news, over = make(chan *api.ShellInput), make(chan string, 4), make(chan *api.Receipt, 1)
			go func() {
				r, err := b.AttachShell(t.Context(), &api.Request{Op: api.OpShellAttach, Principal: alice, Facade: "test", Attach: &api.ShellAttach{
					ProcessRef: api.ProcessRef{ExecID: x}, Takeover: takeover,
				}}, moves, func(n string) { news <- n })
				if err != nil {
					t.Error(err)
				}
				over <- r
			}()
			return moves, news, over
		}
		text := func(s string) *api.ShellInput {
			return &api.ShellInput{Data: &api.Stdin{InlineText: &api.InlineText{Text: s}}}
		}
		first, news, over := attach(false)
		if n := <-news; n != SeatTaken {
			t.Fatal(n)
		}
		first <- text("hi\n")
		synctest.Wait()
		if r := b.types(x, "no\n"); r.ErrorCode != api.CodeWriterHeld || r.Bytes != 0 {
			t.Errorf("beside: %+v", r)
		}
		for _, action := range []api.ShellAction{{Type: api.ActionCtrlC}, {Type: api.ActionCtrlD}, {Type: api.ActionResize, Cols: 90, Rows: 30}} {
			r := b.do(api.Request{Op: api.OpShellInput, Keys: &api.ShellInput{
				ProcessRef: api.ProcessRef{ExecID: x}, Actions: []api.ShellAction{action},
			}}).Payload.Shell
			if typed := action.Type != api.ActionResize; r.Accepted == typed || (r.ErrorCode == api.CodeWriterHeld) != typed || r.Bytes != 0 {
				t.Errorf("%s beside: %+v", action.Type, r)
			}
		}
		_, _, refused := attach(false)
		if r := <-refused; r.ErrorCode != api.CodeWriterHeld {
			t.Errorf("%s", r.ErrorCode)
		}
		second, _, secondOver := attach(true)
		if n := <-news; n != SeatLost {
			t.Error(n)
		}
		first <- text("lost\n")
		close(first)
		if r := <-over; r.Payload.Shell.Bytes != 3 || r.Payload.Shell.Typed != "sha256:98ea6e4f216f2fb4b69fff9b3a44842c38686ca685f3f55dc48c5d3fb1107be4" {
			t.Errorf("%+v", r.Payload.Shell)
		}
		close(second)
		<-secondOver
		if r := b.types(x, "yes\n"); !r.Accepted {
			t.Errorf("afterwards: %+v", r)
		}
	})
}

// The states that a shell goes through are a function of what comes out and what is typed.
func TestShellStates(t *testing.T) {
	const nonce = "n"
	mark := func(kind string) string { return "\x1b]133;n;" + kind + "\a" }
	ask := mark("A") + "$ " + mark("B")
	for _, tt := range []struct {
		name   string
		script []string // "> " is typed, others come out
		want   string   // state, commands that ended
	}{
		{"nothing yet", []string{"welcome\r\n"}, "RUNNING []"},
		{"a prompt", []string{mark("N;C") + ask}, "IDLE []"},
		{"typed", []string{mark("N;C") + ask, "> ls\n"}, "BUSY []"},
		{"half a line", []string{mark("N;C") + ask, "> l"}, "IDLE []"},
		{"done", []string{mark("N;C") + ask, "> ls\n", mark("C") + "x" + mark("D;1") + ask}, "IDLE [c-1:1]"},
		{"done, and no prompt yet", []string{mark("N;C") + ask, "> ls\n", mark("C") + mark("D;1")}, "BUSY [c-1:1]"},
		{"an empty line", []string{mark("N;C") + ask, "> \n", mark("D;0") + ask, "> x\n", mark("C") + mark("D;2") + ask}, "IDLE [c-2:2]"},
		{"typed ahead", []string{mark("N;C") + ask, "> a\n", mark("C"), "> b\n", mark("D;0") + ask + mark("C") + mark("D;3") + ask}, "IDLE [c-1:0 c-2:3]"},
		{"two at once", []string{mark("N;C") + ask, "> a\nb\n", mark("C") + mark("D;0") + ask + mark("C") + mark("D;4") + ask}, "IDLE [c-1:0 c-2:4]"},
		{"a prompt within a command", []string{mark("N;C") + ask, "> python\n", mark("C") + ">>> "}, "BUSY []"},
		{"without beginnings", []string{mark("N;") + ask, "> a\n", "x" + mark("D;5") + ask}, "IDLE [c-1:5]"},
		{"without beginnings, typed ahead", []string{mark("N;") + ask, "> a\n", "> b\n", mark("D;5") + ask}, "BUSY [c-1:5]"},
		{"a prompt drawn again", []string{mark("N;C") + ask, "\r$ " + mark("B"), "> a\n", "\r$ " + mark("B") + mark("C") + mark("D;6") + ask}, "IDLE [c-1:6]"},
		{"a prompt drawn again, typed ahead", []string{mark("N;C") + ask, "> a\n", mark("C"), "> b\n", mark("D;0") + ask + "\r$ " + mark("B") + mark("C") + mark("D;7") + ask}, "IDLE [c-1:0 c-2:7]"},
		{"a prompt drawn again over what is not read", []string{mark("N;C") + ask, "> a\n", "\r$ " + mark("B")}, "BUSY []"},
		{"the beginning is not kept", []string{mark("D;0") + ask, "> a\n", mark("C"), "> b\n", mark("D;0") + ask}, "IDLE [c-1:0]"},
		{"marks of others", []string{"\x1b]133;A\a$ \x1b]133;B\a\x1b]133;m;B\a"}, "RUNNING []"},
	} {
		sh := newShell(nonce, &api.Terminal{})
		sh.starts = true
		var all []byte
		for _, step := range tt.script {
			if text, ok := strings.CutPrefix(step, "> "); ok {
				sh.typed([]byte(text), "", time.Now())
				continue
			}
			for rest := []byte(step); len(rest) > 0; {
				text, m, n := prompt.Next(nonce, rest, true)
				sh.take(piece{offset: int64(len(all)), next: int64(len(all) + n), bytes: text, mark: m}, time.Now())
				all, rest = append(all, rest[:n]...), rest[n:]
			}
		}
		ended := []string{}
		for _, c := range sh.ended {
			ended = append(ended, fmt.Sprintf("%s:%d", c.CommandID, *c.ExitCode))
		}
		if got := fmt.Sprint(sh.status, " ", ended); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}

// T109: what is told of output in lists has no escape sequence of it.
func TestReadable(t *testing.T) {
	for in, want := range map[string]string{
		"\x1b[31mroot\x1b[0m@h:~# ":                  "root@h:~# ",
		"\x1b]0;owned\a$ ":                           "$ ",
		"\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\> ": "link> ",
		"old\rnew$ ":                                 "new$ ",
		"\x1b":                                       "",
		"x\u009b31m$ ":                               "x31m$ ",
		"caf\u00e9 \u202e$ ":                         "caf\u00e9 $ ",
	} {
		if got := readable([]byte(in)); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
	for line, prompt := range map[string]bool{
		">>> ": true, "... ": true, "$ ": true, "root@host:/# ": true, "In [3]: ": true, "Password: ": true, "Continue? [y/N]? ": true, "mysql> ": true,
		"": false, "compiling": false, "a sentence. ": false, "x=": false,
	} {
		if got := looks([]byte(line)) != nil; got != prompt {
			t.Errorf("%q: %v", line, got)
		}
	}
}

// R153, R162: output says which command ended with it: while the shell lives, to a supervisor that comes later, and when it has ended.
func TestShellCommandsRecalled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t)
		defer func() { b.stop() }()
		x := b.shell(b.session())
		synctest.Wait()
		for _, line := range []string{"one\n", "\n", "two\n"} {
			b.types(x, line)
			synctest.Wait()
		}
		told := func() (all []string) {
			page, _, err := b.ShellOutput(t.Context(), &api.Request{Op: api.OpShellOutput, Principal: alice, Facade: "test", Read: &api.Read{ExecID: x}})
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range page.Chunks {
				if c.ExitCode != nil && c.CommandID != "" {
					all = append(all, fmt.Sprint(c.CommandID, ":", *c.ExitCode))
				}
			}
			return all
		}
		frames := func() int { return len(b.states(x)) }
		want := []string{"c-1:7", "c-3:7"}
		if diff := cmp.Diff(want, told()); diff != "" {
			t.Errorf("live: %s", diff)
		}
		b.types(x, "sleep\n")
		synctest.Wait()
		before := frames()
		b = b.restart()
		synctest.Wait()
		if got := frames(); got != before {
			t.Errorf("%d frames of states after a restart that changed none, and %d before", got, before)
		}
		b.types(x, "\n")
		synctest.Wait()
		if r := b.types(x, "three\n"); r.CommandID != "c-6" {
			t.Errorf("the next command: %+v", r)
		}
		synctest.Wait()
		want = append(want, "c-4:0", "c-6:7")
		if diff := cmp.Diff(want, told()); diff != "" {
			t.Errorf("after a restart: %s", diff)
		}
		b.types(x, "exit\n")
		synctest.Wait()
		if diff := cmp.Diff(want, told()); diff != "" {
			t.Errorf("ended: %s", diff)
		}
		b = b.restart()
		if diff := cmp.Diff(want, told()); diff != "" {
			t.Errorf("ended, after a restart: %s", diff)
		}
	})
}

// forHours has executions and sessions of the tests' policy last for hours, and not for a minute.
var forHours = map[string]string{
	`"max_timeout_ns": 60000000000`: "000", `"default_timeout_ns": 10000000000`: "000", `"ttl_ns": 3600000000000`: "0",
}

// R164, 1.6: of a program that says nothing of its prompts the last line is taken for one when nothing follows it. That ends a command, without
// an exit code; it is no reason to think that nobody needs the session.
func TestShellGuessed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := granting(t, forHours)
		defer func() { b.stop() }()
		id := b.session(func(o *api.SessionOpen) {
			o.Labels = map[string]string{"idle": strconv.FormatInt(int64(10*time.Second), 10)}
		})
		begun := time.Now()
		opened := b.program(id, "repl")
		x := opened.ExecID
		if took := time.Since(begun); opened.Status != api.ShellIdle || opened.Marked || took >= promptWithin {
			t.Errorf("%s after %v", opened.Status, took)
		}
		if p := opened.Prompt; p == nil || p.Text != ">>> " || p.Source != "pattern" {
			t.Errorf("prompt: %+v", p)
		}
		if r := b.types(x, "one\n"); r.Status != api.ShellBusy || r.CommandID != "c-1" {
			t.Errorf("%+v", r)
		}
		time.Sleep(guessAfter - time.Millisecond)
		if s := b.shellOf(x); s.Status != api.ShellBusy || s.Command == nil || s.Command.CommandID != "c-1" {
			t.Errorf("before it is quiet: %s, %+v", s.Status, s.Command)
		}
		time.Sleep(time.Second)
		if s := b.shellOf(x); s.Status != api.ShellIdle || s.Command != nil || len(s.Commands) != 1 || s.Commands[0].CommandID != "c-1" || s.Commands[0].ExitCode != nil {
			t.Errorf("%s, %+v", s.Status, s.Commands)
		}
		b.types(x, "think\n")
		time.Sleep(50 * time.Second)
		if s := b.shellOf(x); s.Status != api.ShellBusy || b.shown(id).State != stateReady {
			t.Errorf("while it thinks: %s", s.Status)
		}
		time.Sleep(time.Minute)
		if s, d := b.shellOf(x), b.shown(id); s.Status != api.ShellIdle || d.State != stateReady || d.IdleAtNS != 0 {
			t.Errorf("a guess ends a session: %s, %+v", s.Status, d)
		}
		b.types(x, "...\n") // which is no prompt
		time.Sleep(time.Minute)
		want := []string{"IDLE", "BUSY c-1", "IDLE c-1", "BUSY c-2", "IDLE c-2", "BUSY c-3"}
		if diff := cmp.Diff(want, b.states(x)); diff != "" {
			t.Error(diff)
		}
		b.types(x, "four\n")
		time.Sleep(time.Second)
		want = append(want, "IDLE c-3") // what was typed then was for it
		b = b.restart()
		time.Sleep(time.Second)
		if s := b.shellOf(x); s.Status != api.ShellIdle {
			t.Errorf("after a restart: %s", s.Status)
		}
		b.types(x, "five\n")
		time.Sleep(time.Second)
		want = append(want, "BUSY c-5", "IDLE c-5")
		if diff := cmp.Diff(want, b.states(x)); diff != "" {
			t.Errorf("after a restart: %s", diff)
		}
		r := b.do(api.Request{Op: api.OpShellRun, Run: &api.ShellRun{ProcessRef: api.ProcessRef{ExecID: x}, Command: "x", TimeoutNS: int64(time.Second)}})
		if r.ErrorCode != api.CodeShellBusy {
			t.Errorf("a run, of which nobody would know the end: %s", r.ErrorCode)
		}
		b.scraped(`stockade_sessions_active{state="ready"} 1`)
		if strings.Contains(b.scrape(), telemetry.InShell) {
			t.Error("the time of a command is counted that nobody knows")
		}
	})
}

// 1.5: whatever ends a shell, it is closing from then on until it has ended.
func TestShellClosing(t *testing.T) {
	const grace = 2 * time.Second
	ns := int64(grace)
	for _, tt := range []struct {
		name string
		end  func(b *bench, session, exec string)
	}{
		{"closed", func(b *bench, _, exec string) {
			b.do(api.Request{Op: api.OpShellClose, Hangup: &api.ShellClose{ProcessRef: api.ProcessRef{ExecID: exec}, GraceNS: &ns}})
		}},
		{"canceled", func(b *bench, _, exec string) { b.cancelling(exec, grace) }},
		{"its session is closed", func(b *bench, session, _ string) { b.close(session) }},
		{"its session has its signal", func(b *bench, session, _ string) { b.signal(session, "TERM", grace) }},
		{"its time is over", func(b *bench, _, exec string) { time.Sleep(time.Hour) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := start(t)
				defer b.stop()
				id := b.session()
				x := b.shell(id)
				synctest.Wait()
				tt.end(b, id, x)
				synctest.Wait()
				if diff := cmp.Diff([]string{"IDLE", "CLOSING"}, b.states(x)); diff != "" {
					t.Error(diff)
				}
				if s := b.shellOf(x); s.Status != api.ShellClosed || s.Alive {
					t.Errorf("at last: %s", s.Status)
				}
			})
		})
	}
}

// R161, R163: a read answers at once where it is not to wait, and otherwise with the first output, another state, or when its time is over.
func TestShellOutputWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t)
		defer b.stop()
		x := b.shell(b.session())
		synctest.Wait()
		after := b.shellOf(x).Token
		read := func(wait time.Duration) (*api.ShellOutput, time.Duration) {
			t.Helper()
			begun := time.Now()
			o, _, err := b.ShellOutput(t.Context(), &api.Request{Op: api.OpShellOutput, Principal: alice, Facade: "test",
				Read: &api.Read{ExecID: x, After: after, WaitMS: wait.Milliseconds()}})
			if err != nil {
				t.Fatal(err)
			}
			after = o.Token
			return o, time.Since(begun)
		}
		expect := func(what string, wait, takes time.Duration, bytes bool, status api.ShellState) {
			t.Helper()
			o, took := read(wait)
			if took != takes || (len(o.Chunks) > 0) != bytes || o.Status != status || o.Number != status.Number() {
				t.Errorf("%s: %d chunks, %s, after %v", what, len(o.Chunks), o.Status, took)
			}
		}
		expect("nothing, at once", 0, 0, false, api.ShellIdle)
		expect("nothing in time", 5*time.Second, 5*time.Second, false, api.ShellIdle)
		time.AfterFunc(2*time.Second, func() { b.types(x, "sleep\n") })
		expect("another state", time.Minute, 2*time.Second, false, api.ShellBusy)
		time.AfterFunc(3*time.Second, func() { b.types(x, "\n") })
		expect("output", time.Minute, 3*time.Second, true, api.ShellIdle)
		time.AfterFunc(4*time.Second, func() {
			b.do(api.Request{Op: api.OpShellClose, Hangup: &api.ShellClose{ProcessRef: api.ProcessRef{ExecID: x}}})
		})
		o, took := read(time.Minute)
		if took != 4*time.Second || o.Status != api.ShellClosing && o.Status != api.ShellClosed {
			t.Errorf("its end: %s after %v", o.Status, took)
		}
	})
}

// R176: an input is typed once, by whichever supervisor it is asked of.
func TestShellInputOnceOverRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t)
		defer func() { b.stop() }()
		x := b.shell(b.session())
		synctest.Wait()
		typed := func() *api.ShellResult {
			return b.do(api.Request{Op: api.OpShellInput, Keys: &api.ShellInput{
				ProcessRef: api.ProcessRef{ExecID: x}, InputID: "i-1", Data: &api.Stdin{InlineText: &api.InlineText{Text: "one\n"}},
			}}).Payload.Shell
		}
		if r := typed(); !r.Accepted || r.Duplicate || r.Bytes != 4 {
			t.Errorf("%+v", r)
		}
		synctest.Wait()
		for _, where := range []string{"here", "after a restart"} {
			if r := typed(); !r.Accepted || !r.Duplicate || r.Bytes != 0 {
				t.Errorf("%s: %+v", where, r)
			}
			if where == "here" {
				b = b.restart()
				synctest.Wait()
			}
		}
		if s := b.shellOf(x); len(s.Commands) != 1 {
			t.Errorf("%+v", s.Commands)
		}
	})
}

// R256, R259: a shell may wait for its user for as long as it likes; the command that runs in it runs for long when it does, and each
// command counts with its time. What is read again after a restart has the times that it had.
func TestShellCommandTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := granting(t, forHours)
		defer func() { b.stop() }()
		b.defaults.LongRunning = 30 * time.Second
		id := b.session()
		x := b.shell(id)
		time.Sleep(10 * time.Minute)
		b.scraped(`stockade_long_running 0`, `stockade_alerts_total{condition="long_running"} 0`)
		for n := range 2 {
			b.types(x, "sleep\n")
			time.Sleep(40 * time.Second)
			b.scraped(`stockade_long_running 1`, fmt.Sprintf(`stockade_alerts_total{condition="long_running"} %d`, n+1))
			b.types(x, "\n")
			time.Sleep(20 * time.Second)
			b.scraped(`stockade_long_running 0`, fmt.Sprintf(`stockade_command_latency_seconds_count{op="host.shell.command",status="ok"} %d`, n+1))
		}
		b.types(x, "at once\n")
		synctest.Wait()
		b.scraped(`stockade_command_latency_seconds_count{op="host.shell.command",status="ok"} 3`)
		b.scraped(`stockade_command_latency_seconds_sum{op="host.shell.command",status="ok"} 80`)
		b.chronicle.read(func(s *ledger.State) {
			list, _, _ := s.Notices(ledger.OwnerOf(alice), id, 0, 1000)
			var told []string
			for _, n := range list {
				if n.Kind == api.NoticeThreshold {
					told = append(told, n.Detail)
				}
			}
			if len(told) != 2 || !strings.HasPrefix(told[0], "command c-1 runs for 3") || !strings.HasPrefix(told[1], "command c-3 runs for 3") {
				t.Errorf("told: %q", told)
			}
		})
		want := b.shellOf(x).Commands
		b.types(x, "sleep\n")
		synctest.Wait()
		began := b.shellOf(x).Command.StartedAtNS
		time.Sleep(time.Hour)
		b = b.restart()
		synctest.Wait()
		s := b.shellOf(x)
		if diff := cmp.Diff(want, s.Commands, cmpopts.IgnoreFields(api.ShellCommand{}, "InputID")); diff != "" {
			t.Errorf("after a restart: %s", diff)
		}
		if s.Command == nil || s.Command.StartedAtNS != began {
			t.Errorf("what runs: %+v, began at %d", s.Command, began)
		}
		if n := strings.Count(b.scrape(), telemetry.InShell); n > 0 {
			t.Error("what was read again is counted again")
		}
	})
}
