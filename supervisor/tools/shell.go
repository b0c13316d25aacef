package tools

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/stockade-dev/stockade/supervisor/api"
)

// A shell that stays: one execution of bash, which reads commands from its stdin, each behind a word of its own and
// ended by NUL, runs them in itself, and writes the word and the status behind the output of each.
//
//	tool            stdin                    bash                         stdout
//	mark, command ─▶ mark NUL command NUL ─▶ eval command ─▶ output ─▶  … LF mark SP status LF
//
// The word is new for each command and not exported, so no program that a command runs can end the output early. A
// command reads nothing: its stdin is the null device.
//
// The word is written where the loop begins again, so that a command that says continue is told to have ended, too; one that says
// break ends the shell.
const driver = `exec 3<&0 4>&1 </dev/null 2>&1
__mark=
while __status=$?
	[ -z "$__mark" ] || builtin printf '\n%s %d\n' "$__mark" "$__status" >&4
	IFS= builtin read -r -d '' -u 3 __mark && IFS= builtin read -r -d '' -u 3 __text
do
	builtin eval "$__text" 3<&- 4>&-
done`

const (
	shellDefault = 2 * time.Minute  // of one command
	shellMost    = 30 * time.Minute // likewise
	// shellTurn is how often it is looked whether the shell has said more than is kept.
	shellTurn = 2 * time.Second
	// shellLife is what the shell itself asks for; the grant says how long that is.
	shellLife = 24 * time.Hour
)

// bash runs a command in the shell of the session, which is started when there is none.
func bash(r *run, v values) *Answer {
	leave, f := r.desk.enter(r)
	if f != nil {
		return r.failed(*f)
	}
	defer leave()
	id, f := r.shell()
	if f != nil {
		return r.failed(*f)
	}
	if v.flag("restart") {
		if v.has("command") {
			return r.failed(failure{status: "error", code: api.CodeInvalidParams, message: "restart and command are two calls"})
		}
		if id != "" {
			if f := r.cancel(id, nil); f != nil {
				return r.failed(*f)
			}
			r.desk.hasTold(id, "", false)
		}
		if id, f = r.openShell(); f != nil {
			return r.failed(*f)
		}
		a := done("The shell has been restarted.")
		a.ExecID = id
		return a
	}
	text := v.text("command")
	switch {
	case !v.has("command"):
		return r.failed(failure{status: "error", code: api.CodeInvalidParams, message: "the argument command is missing"})
	case strings.Contains(text, "\x00"):
		return r.failed(failure{status: "error", code: api.CodeInvalidParams, message: "the command has a NUL"})
	}
	if id == "" {
		if id, f = r.openShell(); f != nil {
			return r.failed(*f)
		}
	}
	return r.inShell(id, text, time.Duration(v.number("timeout_ms", shellDefault.Milliseconds()))*time.Millisecond)
}

// shell finds the shell of the session; "" if there is none.
func (r *run) shell() (string, *failure) {
	list, err := r.host.Processes(r.ctx, api.Read{SessionID: r.call.SessionID, Active: true, Labels: map[string]string{labelTool: labelShell}, Limit: 1})
	if err != nil {
		return "", r.refused(err)
	}
	for _, p := range list.Processes {
		if p.State == api.StateQueued && p.ApprovalID != "" {
			return "", waiting(p.ApprovalID)
		}
		return p.ExecID, nil
	}
	return "", nil
}

// waiting is a shell that somebody has to give leave to.
func waiting(approval string) *failure {
	return &failure{status: "queued", code: api.CodeExecNotStarted, message: "the shell waits for leave (approval " + approval + "); when it has it, call again"}
}

const labelShell = "shell"

func (r *run) openShell() (string, *failure) {
	pending, receipt, err := r.host.Start(r.ctx, api.Exec{
		SessionID: r.call.SessionID, Argv: []string{"bash", "--noprofile", "--norc", "-c", driver, "bash"},
		StdinOpen: true, TimeoutNS: int64(shellLife), Wait: new(bool), Labels: map[string]string{labelTool: labelShell},
	})
	switch {
	case err != nil:
		return "", r.refused(err)
	case pending != nil && pending.Approval != "":
		return "", waiting(pending.Approval)
	case pending != nil:
		return pending.ExecID, nil
	}
	if f := r.settled(receipt); f != nil {
		return "", f
	}
	return "", &failure{status: "error", code: api.CodeExecEnded, message: "the shell ended at once"}
}

// inShell has the shell run one command, and returns its output and its status.
func (r *run) inShell(id, text string, limit time.Duration) *Answer {
	began := time.Now()
	o := outcome{execID: id, cursor: r.desk.tellFrom(id)}
	if o.cursor == "" { // what it has written for others is theirs
		p, err := r.host.Process(r.ctx, id)
		if err != nil {
			return r.failed(*r.refused(err))
		}
		o.cursor = fmt.Sprintf("%d.%d.%d", p.FrameSeq, p.StdoutBytes, p.StderrBytes)
	}
	out := &clip{limit: r.call.Profile.Budget}
	to := &until{out: out, mark: markPrefix + mark(rand.Text())}
	input := api.ProcessInput{ProcessRef: api.ProcessRef{ExecID: id}, Data: &api.Stdin{InlineText: &api.InlineText{Text: string(to.mark) + "\x00" + text + "\x00"}}}
	_, f := r.do(api.OpProcessInput, input)
	if f != nil && f.code != api.CodeExecEnded {
		return r.failed(*f)
	}
	r.turn = shellTurn
	r.follow(&o, to, began.Add(limit), func() bool { return to.found || r.overflows(&o, to) })
	r.desk.hasTold(id, o.cursor, o.running)
	o.took = time.Since(began)
	if !to.found {
		to.flush()
	}
	o.text, o.cut = out.text()
	o.text = abandoned.ReplaceAllString(o.text, "[an earlier command ended with status $1]")
	a := &Answer{OK: true, Status: "ok", ExecID: id, Text: o.text, Truncated: o.cut || o.gone}
	fail := func(f failure) *Answer {
		a.OK, a.Status, a.Code, a.Message, a.Deny = false, f.status, f.code, f.message, f.deny
		a.Text = strings.TrimSuffix(a.Text, "\n") + fmt.Sprintf("\nError: %s: %s", f.code, f.message)
		return a
	}
	switch {
	case to.found:
		a.ExitCode = &to.status
		a.Text = strings.TrimSuffix(a.Text, "\n")
		if to.status != 0 {
			a.Text += fmt.Sprintf("\n[exit status %d]", to.status)
		}
		a.Text += r.notes(outcome{gone: o.gone})
		return a
	case o.failure != nil:
		return fail(*o.failure)
	case !o.running:
		a.Text += r.notes(o)
		if x := o.result; x.Status == "ok" {
			a.ExitCode = &x.ExitCode
			return fail(failure{status: "ended", code: api.CodeExecEnded, message: fmt.Sprintf("the shell ended with status %d; the next command starts another", x.ExitCode)})
		}
		return fail(failure{status: o.result.Status, code: o.result.ErrorCode, message: how(o) + "; the next command starts another shell"})
	}
	// What has not come to its end cannot be told from what comes next: the shell ends with it.
	why := &failure{status: "timeout", code: api.CodeTimeout, message: fmt.Sprintf("the command did not end within %v", limit)}
	if to.overflow {
		why = &failure{status: "error", code: api.CodeOutputExceeded, message: "the output ceiling of the shell is reached"}
	}
	why.message += "; the shell was ended, and the next command starts another"
	r.desk.hasTold(id, "", false)
	return fail(*r.cancel(id, why))
}

// overflows finds out whether the shell has written more than is kept: then the end of the command will not be seen.
func (r *run) overflows(o *outcome, to *until) bool {
	if to.grown {
		to.grown = false
		return false
	}
	p, err := r.host.Process(r.ctx, o.execID)
	if err != nil {
		return false
	}
	var frame, stdout, stderr int64
	if _, err := fmt.Sscanf(o.cursor, "%d.%d.%d", &frame, &stdout, &stderr); err != nil {
		return false
	}
	// What is written in this moment is no overflow: it is there at the next look.
	to.overflow = to.behind && p.StdoutBytes > stdout
	to.behind = p.StdoutBytes > stdout
	return to.overflow
}

// mark is the word behind the output of a command.
type mark string

const markPrefix = "stockade:"

// abandoned is the end of a command that nobody waited for any more: what it said until then comes before what the next one says.
var abandoned = regexp.MustCompile(`(?m)\n?^stockade:[A-Z2-7]{26} ([0-9]{1,3})$`)

// until hands on what is written to it, up to the mark.
type until struct {
	out      io.Writer
	mark     mark
	held     []byte // that may be the beginning of the mark
	found    bool
	status   int
	grown    bool // since it was last looked at
	behind   bool
	overflow bool
}

// marked is what the driver writes behind the mark.
var marked = regexp.MustCompile(`^ ([0-9]{1,3})\n`)

const longestStatus = len(" 255\n")

func (u *until) Write(b []byte) (int, error) {
	n := len(b)
	u.grown = true
	if u.found {
		return n, nil // what a process in the background says is told with the next command
	}
	u.held = append(u.held, b...)
	word := []byte("\n" + string(u.mark))
	for {
		at := bytes.Index(u.held, word)
		if at < 0 {
			u.release(len(u.held) - len(word))
			return n, nil
		}
		u.release(at)
		rest := u.held[len(word):]
		if m := marked.FindSubmatch(rest); m != nil {
			u.status, _ = strconv.Atoi(string(m[1]))
			u.found, u.held = true, nil
			return n, nil
		}
		if len(rest) < longestStatus {
			return n, nil // the rest of it is under way
		}
		u.release(1) // the command says the word itself
	}
}

// release hands on the first bytes of what was held.
func (u *until) release(n int) {
	if n > 0 {
		u.out.Write(u.held[:n])
		u.held = append(u.held[:0], u.held[n:]...)
	}
}

// flush hands on all that was held.
func (u *until) flush() { u.release(len(u.held)) }

// turnKey is a session of a caller's: what others say about it is about nothing that exists.
type turnKey struct{ caller, session string }

// enter waits for the shell of a session: it runs one command at a time.
func (d *Desk) enter(r *run) (leave func(), f *failure) {
	key := turnKey{r.call.Caller, r.call.SessionID}
	for {
		d.mu.Lock()
		if d.turns == nil {
			d.turns = map[turnKey]chan struct{}{}
		}
		busy, taken := d.turns[key]
		if !taken {
			mine := make(chan struct{})
			d.turns[key] = mine
			d.mu.Unlock()
			return func() {
				d.mu.Lock()
				defer d.mu.Unlock()
				delete(d.turns, key)
				close(mine)
			}, nil
		}
		d.mu.Unlock()
		select {
		case <-busy:
		case <-r.ctx.Done():
			if !r.call.Cancel {
				r.lost = r.ctx.Err()
			}
			return nil, &failure{status: "canceled", code: api.CodeCanceled, message: "the shell was busy until nobody waited any more"}
		}
	}
}
