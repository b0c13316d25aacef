package tools

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/stockade-dev/stockade/supervisor/api"
)

// labelTool is the label of executions that a tool started: which one.
const labelTool = "stockade.tool"

const (
	// promptly is how long a start waits for the end itself: most commands are over by then.
	promptly = time.Second
	// turn is how long one look at an output may take.
	turn = 20 * time.Second
	// pageBytes is how much of an output is asked for at a time.
	pageBytes = 256 << 10
	// startLimit is how long a start may take whose caller may have gone meanwhile.
	startLimit = 30 * time.Second
	// cancelLimit is how long the end of what is canceled is waited for.
	cancelLimit = 15 * time.Second
)

// command is an execution as a model asks for it.
type command struct {
	exec   api.Exec
	yield  time.Duration // how long its end is waited for; 0 is until it comes
	budget int64         // bytes of output
}

// outcome is what came of one.
type outcome struct {
	execID  string
	cursor  string // what follows text
	text    string
	cut     bool
	gone    bool // a part of the output is not kept any more
	running bool
	waits   string // the approval that it waits for
	result  *api.ExecResult
	failure *failure
	took    time.Duration
}

// script is the argv of a shell that runs a text.
func script(shell, flags, text string) []string { return []string{shell, flags, text} }

// runCommand starts a command and waits for it as long as it may.
func (r *run) runCommand(c command) outcome {
	began := time.Now()
	x := c.exec
	x.SessionID = r.call.SessionID
	x.Labels = map[string]string{labelTool: r.call.Profile.Name + "." + r.call.Tool.Name}
	x.WaitMS = promptly.Milliseconds()
	if c.yield > 0 {
		x.WaitMS = min(x.WaitMS, c.yield.Milliseconds())
	}
	out := &clip{limit: c.budget}
	o := outcome{}
	ctx := r.ctx
	if r.call.Cancel { // what is to be ended has to be known: the start is not given up half-way
		x.WaitMS, x.Wait = 0, new(bool)
		var stop context.CancelFunc
		ctx, stop = context.WithTimeout(context.WithoutCancel(ctx), startLimit)
		defer stop()
	}
	pending, receipt, err := r.host.Start(ctx, x)
	switch {
	case err != nil:
		o.failure = r.refused(err)
	case receipt != nil:
		o.execID = receipt.ExecID
		r.end(&o, receipt, out)
	default:
		o.execID, o.cursor, o.waits = pending.ExecID, pending.Cursor, pending.Approval
		write(out, pending.Output)
		var until time.Time
		if c.yield > 0 {
			until = began.Add(c.yield)
		}
		r.follow(&o, out, until, nil)
	}
	o.text, o.cut = out.text()
	o.took = time.Since(began)
	return o
}

// end takes over how an execution ended. Its output is in the receipt where there is one stream of it; of two, only the log says
// in which order they came.
func (r *run) end(o *outcome, receipt *api.Receipt, out *clip) {
	o.failure, o.result = r.settled(receipt), receipt.Payload.Exec
	if o.result == nil || o.failure != nil && o.result.StartedAtNS == 0 {
		return
	}
	var only *api.Output
	switch {
	case o.result.StdoutBytes == 0 && o.result.StderrBytes == 0:
		return
	case o.result.StderrBytes == 0:
		only = o.result.Stdout
	case o.result.StdoutBytes == 0:
		only = o.result.Stderr
	}
	if only != nil && only.Blob == nil {
		if only.InlineText != nil {
			io.WriteString(out, only.InlineText.Text)
		} else if only.InlineBytes != nil {
			out.Write(only.InlineBytes.Bytes)
		}
		return
	}
	ended := *o
	r.follow(&ended, out, time.Time{}, nil)
	o.cursor, o.gone = ended.cursor, ended.gone
}

// follow reads the output of an execution behind the cursor of o, until it has ended, the time is over, or enough says so.
func (r *run) follow(o *outcome, out io.Writer, until time.Time, enough func() bool) {
	o.running = true
	tail := lastLine{}
	for {
		wait := cmp.Or(r.turn, turn)
		if !until.IsZero() {
			wait = min(wait, max(0, time.Until(until)))
		}
		page, err := r.host.Output(r.ctx, o.execID, api.Read{After: o.cursor, WaitMS: wait.Milliseconds(), MaxBytes: pageBytes})
		if r.ctx.Err() != nil {
			r.leave(o)
			return
		}
		if err != nil {
			o.failure = r.refused(err)
			return
		}
		if page.Gone != nil {
			o.gone, o.cursor = true, page.Gone.FirstAvailable
			if o.cursor == "" { // nothing of it is kept; how it ended is
				r.conclude(o, page)
				return
			}
			continue
		}
		write(out, page.Output)
		o.cursor, o.waits = cmp.Or(page.Cursor, o.cursor), page.Approval
		tail.add(page.Output)
		if r.call.Progress != nil && (len(page.Output) > 0 || page.State == api.StateRunning) {
			r.call.Progress(Progress{ExecID: o.execID, Bytes: tail.bytes, Line: tail.text()})
		}
		switch {
		case page.Receipt != nil && (page.End || len(page.Output) == 0):
			r.conclude(o, page)
			return
		case enough != nil && enough():
			return
		case !until.IsZero() && !time.Now().Before(until) && len(page.Output) == 0:
			return
		}
	}
}

// conclude takes over the receipt of an execution that has ended.
func (r *run) conclude(o *outcome, page *api.Pending) {
	if page.Receipt == nil {
		return
	}
	o.running = false
	o.failure, o.result = r.settled(page.Receipt), page.Receipt.Payload.Exec
}

// leave is the end of the caller's patience: what he started is ended with it if he wants that, and goes on otherwise.
func (r *run) leave(o *outcome) {
	if !r.call.Cancel {
		r.lost = context.Cause(r.ctx)
		o.failure = &failure{status: "error", code: api.CodeCanceled, message: "nobody waits any more"}
		return
	}
	o.failure = r.cancel(o.execID, &failure{status: "canceled", code: api.CodeCanceled, message: "the call was canceled, and the command with it"})
	o.running = false
}

// cancel ends an execution, whatever has become of the caller, and returns why unless that failed.
func (r *run) cancel(execID string, why *failure) *failure {
	ctx := r.ctx
	defer func() { r.ctx = ctx }()
	var stop context.CancelFunc
	r.ctx, stop = context.WithTimeout(context.WithoutCancel(ctx), cancelLimit)
	defer stop()
	if _, f := r.do(api.OpProcessCancel, api.ProcessCancel{ProcessRef: api.ProcessRef{ExecID: execID}}); f != nil && f.code != api.CodeExecEnded {
		return f
	}
	return why
}

func write(out io.Writer, chunks []api.Chunk) {
	for _, c := range chunks {
		out.Write(c.Bytes)
	}
}

// lastLine is the end of an output, for who watches it.
type lastLine struct {
	bytes int64
	kept  []byte
}

const lineBytes = 400

func (l *lastLine) add(chunks []api.Chunk) {
	for _, c := range chunks {
		l.bytes += int64(len(c.Bytes))
		l.kept = append(l.kept, c.Bytes[max(0, len(c.Bytes)-2*lineBytes):]...)
	}
	l.kept = l.kept[max(0, len(l.kept)-2*lineBytes):]
}

func (l *lastLine) text() string {
	text := strings.TrimRight(legible(bytes.TrimRight(l.kept, "\r\n")), " ")
	if at := strings.LastIndexAny(text, "\r\n"); at >= 0 {
		text = text[at+1:]
	}
	text, _ = shorten(text, lineBytes)
	return text
}

// answer is the answer to a command, with the text that its profile makes of it.
func (r *run) answer(o outcome, text func(outcome) string) *Answer {
	if o.failure != nil && (o.result == nil || o.result.StartedAtNS == 0) && o.failure.status != "canceled" {
		a := r.failed(*o.failure)
		a.ExecID = o.execID
		return a
	}
	a := &Answer{OK: true, Status: "ok", ExecID: o.execID, Cursor: o.cursor, Running: o.running, Truncated: o.cut || o.gone}
	switch x := o.result; {
	case o.failure != nil:
		a.OK, a.Status, a.Code, a.Message = false, o.failure.status, o.failure.code, o.failure.message
	case o.running:
		a.Status = "running"
	case x.Status != "ok":
		a.OK, a.Status, a.Code, a.Message = false, x.Status, x.ErrorCode, cmp.Or(x.ErrorMessage, x.ErrorCode.Text())
	}
	if x := o.result; x != nil && !o.running && x.ExitCode >= 0 {
		a.ExitCode = &x.ExitCode
	}
	a.Truncated = a.Truncated || o.result != nil && (truncated(o.result.Stdout) || truncated(o.result.Stderr))
	o.text += r.notes(o)
	a.Text = text(o)
	return a
}

func truncated(out *api.Output) bool { return out != nil && out.Truncated }

// notes are what a model has to know of a command beside its output: what cut it, what it was refused, and what would have allowed it.
func (r *run) notes(o outcome) string {
	var b strings.Builder
	note := func(format string, args ...any) { fmt.Fprintf(&b, "\n[%s]", fmt.Sprintf(format, args...)) }
	if o.waits != "" {
		note("waits for leave: approval %s", o.waits)
	}
	if o.gone {
		note("the beginning of the output is not kept any more")
	}
	x := o.result
	if x == nil {
		return b.String()
	}
	for _, s := range []struct {
		name string
		out  *api.Output
	}{{"stdout", x.Stdout}, {"stderr", x.Stderr}} {
		if truncated(s.out) {
			note("%s was cut at the output ceiling: %d bytes of %d are kept", s.name, s.out.Kept(), s.out.TotalBytes)
		}
	}
	for _, h := range x.LimitsHit {
		note("ceiling reached: %s (%s); %s", h.Ceiling, h.Code, h.Hint)
	}
	for _, d := range x.Denials {
		text := fmt.Sprintf("refused at run time: %s %s %s: %s", d.Layer, d.Rule, d.Object, d.Errno)
		if d.Grant != "" {
			text += "; would be allowed by " + d.Grant
		}
		note("%s", text)
	}
	return b.String()
}

// how says how a command ended, in a few words; "" for an ordinary end.
func how(o outcome) string {
	switch x := o.result; {
	case o.failure != nil:
		return string(o.failure.code) + ": " + o.failure.message
	case x == nil:
		return ""
	case x.Status == "timeout":
		return fmt.Sprintf("%s: the command ran out of time and was ended", cmp.Or(x.ErrorCode, api.CodeTimeout))
	case x.Status == "signaled":
		return strings.TrimSuffix(fmt.Sprintf("ended by signal %s: %s", x.Signal, x.ErrorCode), ": ")
	case x.Status != "ok":
		return fmt.Sprintf("%s: %s", x.ErrorCode, cmp.Or(x.ErrorMessage, x.ErrorCode.Text()))
	}
	return ""
}

// handle is the number by which a model that knows executions as numbers names one. It is made of the id, so nobody has to keep a
// table of them.
func handle(execID string) int64 {
	sum := sha256.Sum256([]byte(execID))
	return int64(binary.BigEndian.Uint32(sum[:])>>1) + 1
}

// mostExecutions is how many of a session's executions a number is looked for in: the newest.
const mostExecutions = 1000

// byHandle finds the execution that a number names. Two that have the same number are none.
func (r *run) byHandle(number int64) (string, *failure) {
	list, err := r.host.Processes(r.ctx, api.Read{SessionID: r.call.SessionID, Limit: mostExecutions})
	if err != nil {
		return "", r.refused(err)
	}
	var found []string
	for _, p := range list.Processes {
		if handle(p.ExecID) == number {
			found = append(found, p.ExecID)
		}
	}
	if len(found) != 1 {
		return "", &failure{status: "not_found", code: api.CodeExecNotFound, message: fmt.Sprintf("no command of this session has the number %d", number)}
	}
	return found[0], nil
}

// tellFrom is the cursor behind what has been told of an execution; "" is its beginning.
func (d *Desk) tellFrom(execID string) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.told[execID]
}

// hasTold remembers how far an execution has been told. One that has ended need not be.
func (d *Desk) hasTold(execID, cursor string, running bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.told == nil {
		d.told = map[string]string{}
	}
	if _, ok := d.told[execID]; !ok && running {
		if d.order = append(d.order, execID); len(d.order) > keptCursors {
			delete(d.told, d.order[0])
			d.order = d.order[1:]
		}
	}
	if running {
		d.told[execID] = cursor
		return
	}
	delete(d.told, execID)
	if at := slices.Index(d.order, execID); at >= 0 {
		d.order = slices.Delete(d.order, at, at+1)
	}
}
