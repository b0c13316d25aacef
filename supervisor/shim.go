package supervisor

import (
	"cmp"
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/stockade-dev/stockade/internal/prompt"
	"github.com/stockade-dev/stockade/internal/spool"
	"github.com/stockade-dev/stockade/supervisor/api"
)

// host.shell.run: one command per call, for callers who know nothing of terminals (R174). The shell is what is kept
// between two calls: its directory, its variables, its jobs.

const (
	runWithin    = 10 * time.Minute // where nobody says
	interrupting = 2 * time.Second  // from CTRL_C to the word that it had no effect
	mostLine     = 4000             // bytes that a terminal takes as one line where no editor reads it
)

// actRun types one command when the shell is at its prompt, and waits for its end.
func actRun(ctx context.Context, s *Supervisor, c *call) (api.Payload, *api.Error) {
	ask, x := c.req.Run, c.control.target
	defer abandonInput(s, c)
	if s.hasEnded(c) {
		if x == nil && !c.subject.Shell {
			return s.faultedShell(c, errNoShell)
		}
		return s.shellEnded(c)
	}
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(time.Duration(ask.TimeoutNS), runWithin))
	defer cancel()
	defer context.AfterFunc(s.closing, cancel)()
	in, sh := x.input, x.shell
	if err := in.await(ctx, c.control.turn); err != nil {
		if err == errEnded {
			return s.shellEnded(c)
		}
		return s.faultedShell(c, err)
	}
	if ask.InputID != "" && in.seen[ask.InputID] {
		r := s.shellResult(c)
		r.Accepted, r.Duplicate = true, true
		return api.Payload{Shell: r}, nil
	}
	if !sh.until(ctx, x, func() bool { return sh.marked && sh.status == api.ShellIdle }) {
		return s.faultedShell(c, api.Errorf(api.CodeShellBusy, "the shell was not at its prompt in time, or does not say where that is"))
	}
	sh.mu.Lock()
	begins := sh.begins
	sh.mu.Unlock()
	line := asLine(ask.Command)
	if !begins { // it does so itself, behind the echo
		line = prompt.Begin + line
	}
	if !begins && slices.ContainsFunc(strings.Split(line, "\n"), func(l string) bool { return len(l) > mostLine }) {
		return s.faultedShell(c, api.Errorf(api.CodeInvalidParams, "this shell reads lines of at most %d bytes", mostLine))
	}
	if err := sh.hold(false, true); err != nil {
		return s.faultedShell(c, err)
	}
	t := typing{s: s, x: x}
	if err := t.write(ctx, []byte(line), ask.InputID, false); err != nil {
		return s.faultedShell(c, err)
	}
	if ask.InputID != "" {
		in.note(ask.InputID)
	}
	x.frame(s, api.FrameInput, api.FramePayload{InputID: ask.InputID, InputBytes: in.total, CommandID: t.command})
	abandonInput(s, c) // others may answer what it asks
	r := s.shellResult(c)
	r.Accepted, r.Bytes, r.CommandID = true, t.bytes, t.command
	over := func() bool { return sh.find(t.command) != nil }
	if !sh.until(ctx, x, over) && !isClosed(x.input.ended) {
		r.TimedOut = true
		s.interrupt(x)
		again, cancel := context.WithTimeout(context.WithoutCancel(ctx), interrupting)
		defer cancel()
		sh.until(again, x, over)
	}
	if err := s.ran(x, r); err != nil {
		r.ErrorCode = err.Code
		return api.Payload{Shell: r}, err
	}
	r.Status = sh.state()
	r.Number = r.Status.Number()
	return api.Payload{Shell: r}, nil
}

// asLine is a command as one that a shell reads whole: what is unfinished is an error of the command, and not a prompt for more.
func asLine(command string) string {
	if !strings.ContainsAny(command, "\n'\"`\\$(){}<>|&;#!") {
		return command + "\n"
	}
	return "eval '" + strings.ReplaceAll(command, "'", `'\''`) + "'\n"
}

// until waits for something to be true of a shell, and reports whether it came to be. so is called with mu held.
func (sh *shell) until(ctx context.Context, x *execution, so func() bool) bool {
	for {
		changed := sh.changed.next()
		sh.mu.Lock()
		is := so()
		sh.mu.Unlock()
		if is {
			return true
		}
		select {
		case <-changed:
		case <-x.input.ended:
			return false
		case <-ctx.Done():
			return false
		}
	}
}

// find is a command that has ended, or nil. The caller holds mu.
func (sh *shell) find(command string) *api.ShellCommand {
	for i := range sh.ended {
		if sh.ended[i].CommandID == command && sh.status != api.ShellBusy {
			return &sh.ended[i]
		}
	}
	return nil
}

// interrupt is CTRL_C, behind what others type.
func (s *Supervisor) interrupt(x *execution) {
	ctx, cancel := context.WithTimeout(s.ctx, interrupting)
	defer cancel()
	turn := x.input.take()
	defer x.input.give(turn)
	if x.input.await(ctx, turn) == nil {
		t := typing{s: s, x: x}
		_ = t.act(ctx, api.ShellAction{Type: api.ActionCtrlC}) // it shows whether that had an effect
	}
}

// ran says what a command wrote, and how it ended if it has.
func (s *Supervisor) ran(x *execution, r *api.ShellResult) *api.Error {
	sh := x.shell
	sh.mu.Lock()
	var c api.ShellCommand
	if found := sh.find(r.CommandID); found != nil {
		c = *found
	} else if sh.current != nil && sh.current.CommandID == r.CommandID {
		c = *sh.current
	}
	sh.mu.Unlock()
	if c.CommandID == "" || !x.follow() {
		return nil // it has not begun, or the shell has ended with it
	}
	defer x.leave()
	r.ExitCode = c.ExitCode
	end := c.To
	if end == 0 {
		end = x.log.Kept(spool.Stdout)
	}
	first := min(max(c.From, x.log.First(spool.Stdout)), end) // of what is kept: others may have written on
	b := make([]byte, min(end-first, mostInline))
	n, err := x.log.ReadAt(spool.Stdout, b, first)
	if errors.Is(err, spool.ErrGone) { // since a moment ago
		b, n, err = nil, 0, nil
	}
	if err != nil && err != io.EOF {
		return api.Errorf(api.CodeBlobFailed, "output: %v", err)
	}
	text := strings.ReplaceAll(string(b[:n]), "\r\n", "\n")
	out := &api.Output{Truncated: end-c.From > int64(len(b))}
	if out.Truncated {
		out.TotalBytes = end - c.From
	}
	switch {
	case text == "" && !out.Truncated:
		return nil
	case utf8.ValidString(text):
		out.InlineText = &api.InlineText{Text: text}
	default:
		out.InlineBytes = &api.InlineBytes{Bytes: []byte(text)}
	}
	r.Stdout = out
	return nil
}
