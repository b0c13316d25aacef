package tools

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/stockade-dev/stockade/supervisor/api"
)

// ofSession says why an id is none of a command of this session. Ids name commands of all sessions of a caller, and a model has the one that
// it was given.
func (r *run) ofSession(execID string) *failure {
	p, err := r.host.Process(r.ctx, execID)
	if err != nil {
		return r.refused(err)
	}
	if p.SessionID != r.call.SessionID {
		return &failure{status: "error", code: api.CodeExecNotFound, message: "no command of this session has this id"}
	}
	return nil
}

// Commands are tools of nobody's in particular: they start a command, poll it, write to it and end it, by the supervisor's own ids.
// Whoever speaks a protocol with them has progress and cancellation from it.
func Commands() []Tool {
	id := Arg{Name: "exec_id", Required: true, Text: "Of the command, from exec."}
	return []Tool{
		{
			Name: "exec", Text: "Run a command. With wait_ms, what has not ended by then goes on: process_output polls it, process_input writes to it and process_cancel ends it.",
			Ops: execOps, Destructive: true,
			Args: []Arg{
				{Name: "command", Text: "A script for bash; or argv."},
				{Name: "argv", Kind: Texts, Text: "A program and its arguments; or command."},
				{Name: "cwd", Text: "Directory to run in; the session's own if it is not said."},
				{Name: "stdin", Text: "What the command reads."},
				{Name: "stdin_open", Kind: Flag, Default: false, Text: "Keep stdin open for process_input."},
				{Name: "timeout_ms", Kind: Number, Min: 1, Max: 24 * 3600 * 1000, Text: "Milliseconds after which the command is ended."},
				{Name: "wait_ms", Kind: Number, Min: 1, Max: math.MaxInt32, Text: "Milliseconds to wait for its end; if it is not said, until it comes."},
			},
			do: func(r *run, v values) *Answer {
				if v.has("command") == v.has("argv") {
					return r.failed(failure{status: "error", code: api.CodeInvalidParams, message: "a command is said by either command or argv"})
				}
				x := api.Exec{Argv: v.texts("argv"), Cwd: v.text("cwd"), StdinOpen: v.flag("stdin_open"), TimeoutNS: v.number("timeout_ms", 0) * 1e6}
				if v.has("command") {
					x.Argv = script("bash", "-c", v.text("command"))
				}
				if text := v.text("stdin"); text != "" {
					x.Stdin = &api.Stdin{InlineText: &api.InlineText{Text: text}}
				}
				return r.answer(r.runCommand(command{exec: x, yield: time.Duration(v.number("wait_ms", 0)) * time.Millisecond, budget: r.call.Profile.Budget}), plain)
			},
		},
		{
			Name: "process_output", Text: "Read what a command has written behind a cursor, and whether it has ended.", Ops: []api.Op{api.OpProcessGet, api.OpOutput}, ReadOnly: true, Idempotent: true,
			Args: []Arg{
				id,
				{Name: "after", Text: "The cursor of an earlier answer; the beginning if it is not said."},
				{Name: "wait_ms", Kind: Number, Min: 0, Max: math.MaxInt32, Default: 0, Text: "Milliseconds to wait for the end."},
			},
			do: func(r *run, v values) *Answer {
				if f := r.ofSession(v.text("exec_id")); f != nil {
					return r.failed(*f)
				}
				o := outcome{execID: v.text("exec_id"), cursor: v.text("after")}
				out := &clip{limit: r.call.Profile.Budget}
				began := time.Now()
				r.call.Cancel = false // it is somebody else's
				r.follow(&o, out, began.Add(time.Duration(v.number("wait_ms", 0))*time.Millisecond), nil)
				o.text, o.cut = out.text()
				return r.answer(o, plain)
			},
		},
		{
			Name: "process_input", Text: "Write to a command that was started with stdin_open, or end its input.", Ops: []api.Op{api.OpProcessGet, api.OpProcessInput}, Destructive: true,
			Args: []Arg{
				id,
				{Name: "text", Text: "What to write."},
				{Name: "close", Kind: Flag, Default: false, Text: "End of file behind it."},
			},
			do: func(r *run, v values) *Answer {
				ask := api.ProcessInput{ProcessRef: api.ProcessRef{ExecID: v.text("exec_id")}, Close: v.flag("close")}
				if text := v.text("text"); text != "" {
					ask.Data = &api.Stdin{InlineText: &api.InlineText{Text: text}}
				}
				return r.control(api.OpProcessInput, ask, ask.ExecID, func(c *api.ControlResult) string { return fmt.Sprintf("%d bytes written.", c.Bytes) })
			},
		},
		{
			Name: "process_cancel", Text: "End a command with all that it started: TERM, then KILL.", Ops: []api.Op{api.OpProcessGet, api.OpProcessCancel}, Destructive: true, Idempotent: true,
			Args: []Arg{id},
			do: func(r *run, v values) *Answer {
				ask := api.ProcessCancel{ProcessRef: api.ProcessRef{ExecID: v.text("exec_id")}}
				return r.control(api.OpProcessCancel, ask, ask.ExecID, func(c *api.ControlResult) string {
					return fmt.Sprintf("%s; the command is %s.", strings.ReplaceAll(c.Status, "_", " "), c.State)
				})
			},
		},
	}
}

// control is an operation on an execution.
func (r *run) control(op api.Op, ask any, execID string, text func(*api.ControlResult) string) *Answer {
	if f := r.ofSession(execID); f != nil {
		return r.failed(*f)
	}
	receipt, f := r.do(op, ask)
	if f != nil {
		a := r.failed(*f)
		a.ExecID = execID
		return a
	}
	c := receipt.Payload.Control
	if c == nil {
		return r.failed(failure{status: "error", code: api.CodeInvalidPayload, message: "the receipt has no result"})
	}
	a := done(text(c))
	a.ExecID, a.Running = execID, !c.State.Final()
	return a
}

// plain is the answer of exec and process_output: the output, and behind it how it ended.
func plain(o outcome) string {
	text := strings.TrimSuffix(o.text, "\n")
	note := func(format string, args ...any) { text += fmt.Sprintf("\n["+format+"]", args...) }
	switch why := how(o); {
	case why != "":
		note("%s", why)
	case o.running:
		note("running: exec_id %s, after %s", o.execID, o.cursor)
	case o.result != nil && o.result.ExitCode != 0:
		note("exit status %d", o.result.ExitCode)
	}
	return strings.TrimPrefix(text, "\n")
}
