package supervisor

import (
	"context"
	"os"
	"slices"
	"strings"

	"github.com/stockade-dev/stockade/internal/prompt"
	"github.com/stockade-dev/stockade/sandbox"
	"github.com/stockade-dev/stockade/sandbox/pty"
	"github.com/stockade-dev/stockade/supervisor/api"
)

// What waits to be typed into one shell is bounded: whoever comes beyond is told so at once (R149).
const (
	mostKeys  = 64
	keysBytes = 1 << 20
)

// hook has a shell that is known say where its commands begin and end.
func (x *execution) hook() (script string) {
	hooks, ok := prompt.HooksOf(x.plan.exec.Argv, x.plan.exec.Env, x.shell.nonce, sandbox.ScriptFD)
	if !ok {
		return ""
	}
	x.plan.exec.Env = withEnv(x.plan.exec.Env, hooks.Env)
	return hooks.Script
}

// withEnv is an environment in which some names have another value.
func withEnv(env, patch []string) []string {
	out := slices.DeleteFunc(slices.Clone(env), func(e string) bool {
		name, _, _ := strings.Cut(e, "=")
		return slices.ContainsFunc(patch, func(p string) bool { return strings.HasPrefix(p, name+"=") })
	})
	return append(out, patch...)
}

var errNoShell = api.Errorf(api.CodeNoShell, "the execution has no terminal")

// shellResult is the payload of an operation on a shell.
func (s *Supervisor) shellResult(c *call) *api.ShellResult {
	r := &api.ShellResult{ExecID: c.subject.ExecID, SessionID: c.subject.SessionID}
	r.Status, r.Cols, r.Rows = s.shellStatus(c.req.Principal, c.subject.ExecID)
	r.Number = r.Status.Number()
	return r
}

// shellStatus is where a shell is, live or ended.
func (s *Supervisor) shellStatus(p api.Principal, exec string) (status api.ShellState, cols, rows int) {
	ref := api.ProcessRef{ExecID: exec}
	if x := s.registry.execution(p, ref); x != nil && x.shell != nil && !isClosed(x.call.done) {
		x.shell.mu.Lock()
		defer x.shell.mu.Unlock()
		return x.shell.status, x.shell.cols, x.shell.rows
	}
	record, ok := s.chronicle.process(p, ref)
	if !ok {
		return api.ShellUnknown, 0, 0
	}
	return endedStatus(record), 0, 0
}

// endedStatus is how the end of a shell reads. One that ended of itself, or because somebody wanted it to, is closed.
func endedStatus(p api.Process) api.ShellState {
	switch {
	case !p.State.Final():
		return api.ShellRunning
	case p.State == api.StateCanceled, p.State == api.StateTimedOut, p.ExitCode != nil && p.ErrorCode == "":
		return api.ShellClosed
	}
	return api.ShellError
}

func failedShell(code api.Code, _ string) api.Payload {
	return api.Payload{Shell: &api.ShellResult{Status: api.ShellUnknown, ErrorCode: code}}
}

func (s *Supervisor) faultedShell(c *call, fault *api.Error) (api.Payload, *api.Error) {
	r := s.shellResult(c)
	r.ErrorCode = fault.Code
	return api.Payload{Shell: r}, fault
}

// keys are what an input or a resize does.
func keysOf(r *api.Request) *api.ShellInput {
	if r.Run != nil {
		return &api.ShellInput{Data: &api.Stdin{InlineText: &api.InlineText{Text: r.Run.Command}}}
	}
	if r.Resize != nil {
		return &api.ShellInput{Actions: []api.ShellAction{{Type: api.ActionResize, Cols: r.Resize.Cols, Rows: r.Resize.Rows}}}
	}
	return r.Keys
}

// planKeys takes the place in the queue, if there is one.
func planKeys(s *Supervisor, c *call) *refusal {
	x := c.control.target
	switch {
	case x == nil:
		return nil // it has ended; act says so
	case x.shell == nil:
		return faulted(errNoShell)
	}
	for _, a := range keysOf(c.req).Actions {
		if sig := signals[a.Type]; sig != "" {
			if why := signalGranted(c, sig); why != nil {
				return why
			}
		}
	}
	var ok bool
	if c.control.turn, ok = x.input.join(int64(len(inputBytes(keysOf(c.req).Data))), mostKeys, keysBytes); !ok {
		return faulted(api.Errorf(api.CodeQueueFull, "%d requests or %d bytes wait to be typed into %s already", mostKeys, keysBytes, x.id))
	}
	return nil
}

// actKeys types, and does what a hand does beside it, with nobody else's between (R146). What is not done because an
// earlier part failed is said by how much was.
func actKeys(ctx context.Context, s *Supervisor, c *call) (api.Payload, *api.Error) {
	ask, x := keysOf(c.req), c.control.target
	defer abandonInput(s, c)
	if s.hasEnded(c) {
		if x == nil && !c.subject.Shell {
			return s.faultedShell(c, errNoShell)
		}
		return s.shellEnded(c)
	}
	ctx, cancel := context.WithTimeout(ctx, inputLimit)
	defer cancel()
	defer context.AfterFunc(s.closing, cancel)()
	in := x.input
	if err := in.await(ctx, c.control.turn); err != nil {
		if err == errEnded {
			return s.shellEnded(c)
		}
		return s.faultedShell(c, err)
	}
	switch {
	case ask.InputID != "" && in.seen[ask.InputID]:
		r := s.shellResult(c)
		r.Accepted, r.Duplicate = true, true
		return api.Payload{Shell: r}, nil
	case in.closed:
		return s.faultedShell(c, errStdinClosed)
	}
	if err := x.shell.hold(ask.Takeover, typesKeys(ask)); err != nil {
		return s.faultedShell(c, err)
	}
	done := typing{s: s, x: x}
	err := done.all(ctx, ask)
	if ask.InputID != "" && (done.bytes > 0 || err == nil) {
		in.note(ask.InputID)
	}
	if ask.InputID != "" || done.bytes > 0 {
		x.frame(s, api.FrameInput, api.FramePayload{InputID: ask.InputID, InputBytes: in.total, CommandID: done.command})
	}
	if err == errEnded {
		p, err := s.shellEnded(c)
		p.Shell.Bytes, p.Shell.Actions = done.bytes, done.actions
		return p, err
	}
	r := s.shellResult(c)
	r.Accepted, r.Bytes, r.Actions, r.CommandID = err == nil, done.bytes, done.actions, done.command
	r.Token = token(x.id, done.from)
	if err != nil {
		r.ErrorCode = err.Code
	}
	return api.Payload{Shell: r}, err
}

// shellEnded is the answer about a shell that is no more.
func (s *Supervisor) shellEnded(c *call) (api.Payload, *api.Error) {
	_, err := s.tooLate(c) // waits for its receipt
	r := s.shellResult(c)
	r.ErrorCode = err.Code
	return api.Payload{Shell: r}, err
}

// typing is one request on its way into a terminal. Whose turn it is has it.
type typing struct {
	s       *Supervisor
	x       *execution
	from    int64 // end of the output when it began
	bytes   int64
	actions int
	command string
}

func (t *typing) all(ctx context.Context, ask *api.ShellInput) *api.Error {
	t.from, _ = t.x.written()
	if b := inputBytes(ask.Data); len(b) > 0 {
		if err := t.write(ctx, b, ask.InputID, ask.Data.SecretText != nil); err != nil {
			return err
		}
	}
	for _, a := range ask.Actions {
		if err := t.act(ctx, a); err != nil {
			return err
		}
		t.actions++
	}
	return nil
}

func (t *typing) write(ctx context.Context, b []byte, id string, secret bool) *api.Error {
	if command := t.x.shell.typed(b, id, t.s.now()); command != "" {
		t.command = command
	}
	typed := t.x.noteTyping(t.s, b, secret)
	n, err := t.x.input.write(ctx, b)
	typed(n)
	t.bytes += n
	t.x.input.total += n
	return err
}

// typesKeys reports whether a request types: CTRL_C and CTRL_D are keys as others are. A size and a signal are not typed.
func typesKeys(ask *api.ShellInput) bool {
	return ask.Data != nil || slices.ContainsFunc(ask.Actions, func(a api.ShellAction) bool {
		return a.Type == api.ActionCtrlC || a.Type == api.ActionCtrlD
	})
}

// signals are the actions that reach whoever is in the foreground.
var signals = map[api.ShellActionType]api.SignalName{
	api.ActionSIGINT:  "INT",
	api.ActionSIGTERM: "TERM",
	api.ActionSIGKILL: "KILL",
}

func (t *typing) act(ctx context.Context, a api.ShellAction) *api.Error {
	switch a.Type {
	case api.ActionCtrlC:
		return t.write(ctx, []byte{0x03}, "", false)
	case api.ActionCtrlD:
		return t.write(ctx, []byte{0x04}, "", false)
	case api.ActionResize:
		if err := resize(t.x.input.pipe, a.Cols, a.Rows); err != nil {
			return api.Errorf(api.CodeTerminalFailed, "resize: %v", err)
		}
		if t.x.shell.resized(a.Cols, a.Rows) {
			t.x.noteResized(t.s, a.Cols, a.Rows)
		}
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, deliverLimit)
	defer cancel()
	err := t.s.launcher.Foreground(ctx, t.x.session.id, t.x.id, signals[a.Type].Number())
	if err != nil && gone(err) {
		return errEnded
	}
	if err != nil {
		return runnerError(err)
	}
	return nil
}

// resizer is a terminal that is none of the kernel's.
type resizer interface{ Resize(cols, rows int) error }

func resize(master sandbox.Inlet, cols, rows int) error {
	switch t := master.(type) {
	case *os.File:
		return pty.Resize(t, cols, rows)
	case resizer:
		return t.Resize(cols, rows)
	}
	return os.ErrInvalid
}

// host.shell.close

// actHangup ends a shell, and says how it ended: the same, however often it is asked.
func actHangup(_ context.Context, s *Supervisor, c *call) (api.Payload, *api.Error) {
	x := c.control.target
	switch {
	case !c.subject.Shell:
		return s.faultedShell(c, errNoShell)
	case !s.hasEnded(c):
		grace := s.grace(c.req.Hangup.GraceNS)
		if c.req.Hangup.Mode == "force" {
			grace = 0
		}
		x.stop(api.CodeShellClosed, grace, s.now())
		if cause, at := x.stopping(); grace > 0 && x.hasStarted() { // see actCancel
			x.tell(s)
			x.frame(s, api.FrameStopping, api.FramePayload{Cause: cause, KillAtNS: at.UnixNano()})
		}
		if err := s.untilEnd(x, grace); err != nil {
			return api.Payload{}, err
		}
	}
	r := s.shellResult(c)
	r.Accepted = true
	if record, ok := s.chronicle.process(c.req.Principal, api.ProcessRef{ExecID: r.ExecID}); ok {
		r.Summary = howEnded(record)
	}
	return api.Payload{Shell: r}, nil
}
