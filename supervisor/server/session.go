package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/stockade-dev/stockade/supervisor/api"
	"github.com/stockade-dev/stockade/supervisor/rpc"
)

// facadeRPC is what requests that a remote procedure led to say.
const facadeRPC = "rpc"

// sessionService is S1's service. What S1 calls a session is a shell of ours and, where CreateSession opened it, the session
// that it is in. It has no state: a session id is that of the shell, with "@" and the agent behind it where one was named, and
// whether a session was opened for its shell says a label. Each procedure is operations of the caller's like any others, which
// are admitted, judged and recorded each.
type sessionService struct{}

// serviceLabel marks a session that was opened for its shell, and ends with it.
const serviceLabel, servedBy = "stockade/opened-by", rpc.SessionServiceName

// shellOf takes a session id apart.
func shellOf(id string) (exec, agent string) {
	exec, agent, _ = strings.Cut(id, "@")
	return exec, agent
}

func idOf(exec, agent string) string {
	if agent == "" {
		return exec
	}
	return exec + "@" + agent
}

// operation is one with its parameters, which pass the same decoder as if they had come in a body of their own. What a session
// id says of the agent is as good as a header, which is nothing but the caller's word.
func (c *call) operation(op api.Op, agent string, parameters any) (*api.Request, error) {
	body, err := api.Encode(parameters)
	if err != nil {
		return nil, api.Errorf(api.CodeInvalidParams, "the parameters are not UTF-8")
	}
	req, bad := c.request(op)
	if bad != nil {
		return nil, bad
	}
	req.Facade = facadeRPC
	switch scope := &req.Principal.Scope; {
	case scope.AgentID == "":
		scope.AgentID = agent
	case agent != "" && scope.AgentID != agent:
		return nil, api.Errorf(api.CodeInvalidHeader, "the Stockade-Scope header and the session name different agents")
	}
	if _, bad := req.SetParameters(body); bad != nil {
		return nil, bad
	}
	if req.Reads() {
		return req, nil
	}
	if bad := c.keyed(req); bad != nil {
		return nil, bad
	}
	return req, nil
}

// effect carries an operation out. A call that leads to two of them asks for each under a key of its own, made of the caller's.
func (c *call) effect(ctx context.Context, op api.Op, agent, part string, parameters any) (*api.Receipt, error) {
	req, err := c.operation(op, agent, parameters)
	if err != nil {
		return nil, c.failed(ctx, err)
	}
	if req.Key != "" {
		req.Key += part
	}
	r, err := c.server.sup.Do(ctx, req, nil)
	if err != nil {
		return nil, c.failed(ctx, err)
	}
	return r, nil
}

// lookUp is a read. One that is denied is an error: what was to be read is not there.
func lookUp[T any](ctx context.Context, c *call, op api.Op, agent string, ask api.Read, read func(Supervisor, context.Context, *api.Request) (*T, *api.Receipt, error)) (*T, error) {
	req, err := c.operation(op, agent, ask)
	if err != nil {
		return nil, c.failed(ctx, err)
	}
	v, denial, err := read(c.server.sup, ctx, req)
	switch {
	case err != nil:
		return nil, c.failed(ctx, err)
	case denial != nil:
		return nil, remoteReceipt(denial)
	}
	return v, nil
}

// unkeyedRead refuses a key where it would mean nothing.
func (c *call) unkeyedRead() error {
	if err := c.unkeyed(); err != nil {
		return remoteError(err)
	}
	return nil
}

// answer counts an answer, which may be large and be taken slowly, as what its caller has under way.
func answer[T proto.Message](c *call, m T) (T, error) {
	if !c.weigh(load{bytes: int64(proto.Size(m))}) {
		var none T
		return none, remoteError(errTooMuch)
	}
	return m, nil
}

// CreateSession

// workspaceInside is where an agent's workspace is.
const workspaceInside = "/workspace"

func (sessionService) CreateSession(ctx context.Context, ask *rpc.CreateSessionRequest) (*rpc.CreateSessionResponse, error) {
	c := arrived(ctx)
	open, shell, bad := creation(ask)
	if bad != nil {
		return nil, remoteError(bad)
	}
	if open != nil {
		r, err := c.effect(ctx, api.OpSessionOpen, ask.AgentId, "/session", open)
		if err != nil {
			return nil, err
		}
		if r.Outcome != api.OutcomeOK {
			return nil, remoteReceipt(r)
		}
		shell.SessionID = r.SessionID
	}
	s, code, refused := c.openIn(ctx, ask.AgentId, shell)
	if refused != nil {
		// Where another call has the key, the session is that call's.
		if open != nil && ctx.Err() == nil && code != api.CodeKeyConflict && code != api.CodeKeyInFlight {
			c.discard(ctx, ask.AgentId, shell.SessionID)
		}
		return nil, refused
	}
	out := &rpc.CreateSessionResponse{
		SessionId: idOf(s.ExecID, ask.AgentId), Token: tokenOf(s.Token), State: stateOf(s.Status), Metadata: c.metadata(ctx, ask.AgentId, s),
	}
	if s.Prompt != nil {
		out.Prompt = s.Prompt.Text
	}
	return out, nil
}

// creation is what a request asks for: a session, unless there is one, and the shell in it.
func creation(ask *rpc.CreateSessionRequest) (*api.SessionOpen, *api.Exec, *api.Error) {
	env := map[string]api.EnvValue{}
	for name, value := range ask.Environment {
		env[name] = api.EnvValue{Text: value}
	}
	for name, value := range ask.SecretEnvironment {
		if _, twice := env[name]; twice {
			return nil, nil, api.Errorf(api.CodeInvalidEnv, "%.80q is in environment and in secret_environment", name)
		}
		env[name] = api.EnvValue{Text: value, Secret: true}
	}
	shell := &api.Exec{Argv: ask.Argv, Terminal: &api.Terminal{Cols: size(ask.Cols), Rows: size(ask.Rows)}}
	policy := ask.Policy
	if ask.HostSessionId != "" {
		if policy != nil || ask.Profile != "" || ask.Workspace != "" || len(ask.Labels) > 0 {
			return nil, nil, api.Errorf(api.CodeInvalidParams, "%s is open: policy, profile, workspace and labels are what it has", ask.HostSessionId)
		}
		shell.SessionID, shell.Cwd, shell.EnvPatch = ask.HostSessionId, ask.InitialCwd, env
		return nil, shell, nil
	}
	local := &api.Local{Workdir: ask.InitialCwd, Env: env}
	open := &api.SessionOpen{Target: api.Target{Local: local}, Profile: ask.Profile, Labels: map[string]string{serviceLabel: servedBy}}
	for name, value := range ask.Labels {
		if name == serviceLabel {
			return nil, nil, api.Errorf(api.CodeInvalidLabel, "%s says who opened a session, and is not to be chosen", name)
		}
		open.Labels[name] = value
	}
	if policy.GetInheritAgentWorkspace() != (ask.Workspace != "") {
		return nil, nil, api.Errorf(api.CodeInvalidParams, "inherit_agent_workspace and workspace, the directory on the host, need each other")
	}
	if ask.Workspace != "" {
		local.Mounts = []api.Mount{{HostPath: ask.Workspace, GuestPath: workspaceInside, Mode: "rw"}}
		local.Workdir = cmp.Or(local.Workdir, workspaceInside)
	}
	if policy != nil {
		open.IdleNS, open.SessionTTLNS = seconds(policy.IdleTimeoutSeconds), seconds(policy.MaxLifetimeSeconds)
		open.Background = &policy.AllowBackgroundProcesses
	}
	return open, shell, nil
}

func seconds(n uint32) int64 { return int64(n) * int64(time.Second) }

// size is a number of columns or rows; one that no terminal has stays one.
func size(n uint32) int { return int(min(n, math.MaxInt32)) }

// openIn opens a shell, or returns the code of the refusal with the error that the caller gets. A shell that has ended by now was
// there, and what it wrote can be read.
func (c *call) openIn(ctx context.Context, agent string, shell *api.Exec) (*api.Shell, api.Code, error) {
	failed := func(err error) (*api.Shell, api.Code, error) {
		var code api.Code
		if e, ok := errors.AsType[*api.Error](err); ok {
			code = e.Code
		}
		return nil, code, c.failed(ctx, err)
	}
	req, err := c.operation(api.OpShellOpen, agent, shell)
	if err != nil {
		return failed(err)
	}
	if req.Key != "" {
		req.Key += "/shell"
	}
	s, r, err := c.server.sup.OpenShell(ctx, req)
	switch {
	case err != nil:
		return failed(err)
	case s != nil:
		return s, "", nil
	case r.Outcome != api.OutcomeOK || r.Payload.Exec == nil:
		return nil, r.ErrorCode, remoteReceipt(r)
	}
	s = &api.Shell{Status: api.ShellClosed, Process: api.Process{
		ExecID: r.ExecID, SessionID: r.SessionID, Principal: r.Principal, Argv: shell.Argv, QueuedAtNS: r.AdmittedAtNS,
	}}
	if r.Payload.Exec.ExitCode < 0 || r.Payload.Exec.ErrorCode != "" {
		s.Status = api.ShellError
	}
	return s, "", nil
}

// discard ends a session whose shell could not be had. Its own receipt says how that went.
func (c *call) discard(ctx context.Context, agent, session string) {
	req, err := c.operation(api.OpSessionClose, agent, api.SessionClose{SessionID: session, Mode: "force"})
	if err == nil {
		req.Key = "" // it is another operation at each attempt
		_, err = c.server.sup.Do(context.WithoutCancel(ctx), req, nil)
	}
	if err != nil {
		c.server.options.Log.Warn("a session without its shell stays open", "session_id", session, "error", err)
	}
}

// metadata is what the caller may know of a session beside its state: where policy does not let him see it, it says what is
// known of the shell.
func (c *call) metadata(ctx context.Context, agent string, s *api.Shell) *rpc.SessionMetadata {
	m := &rpc.SessionMetadata{
		AgentId: s.Principal.Scope.AgentID, Argv: s.Argv, Cols: uint32(s.Cols), Rows: uint32(s.Rows),
		HostSessionId: s.SessionID, ExecId: s.ExecID, CreatedAt: timeOf(s.QueuedAtNS),
	}
	ses, err := lookUp(ctx, c, api.OpSessionGet, agent, api.Read{SessionID: s.SessionID}, Supervisor.Session)
	if err != nil {
		return m
	}
	m.Cwd, m.Environment, m.SandboxMode, m.PolicyDigest = ses.Workdir, ses.EnvNames, ses.Profile, ses.PolicyDigest
	m.ExpiresAt, m.IdleAt = timeOf(ses.ExpiresAtNS), timeOf(ses.IdleAtNS)
	if g := ses.Grant; g != nil {
		m.Cwd = cmp.Or(m.Cwd, g.Workdir)
		m.Policy = &rpc.SessionPolicy{
			IdleTimeoutSeconds: wholeSeconds(g.IdleNS), MaxLifetimeSeconds: wholeSeconds(g.TTLNS), AllowBackgroundProcesses: g.Exec.Background,
		}
		for _, mount := range g.Mounts {
			if mount.GuestPath == workspaceInside && mount.Mode == "rw" {
				m.Policy.InheritAgentWorkspace = true
			}
		}
	}
	return m
}

// wholeSeconds is a duration that is at least one second, if it is any.
func wholeSeconds(ns int64) uint32 {
	return uint32(min((ns+int64(time.Second)-1)/int64(time.Second), math.MaxUint32))
}

func timeOf(ns int64) *timestamppb.Timestamp {
	if ns == 0 {
		return nil
	}
	return timestamppb.New(time.Unix(0, ns))
}

func stateOf(s api.ShellState) rpc.SessionState { return rpc.SessionState(s.Number()) }

func tokenOf(t string) *rpc.OutputToken {
	if t == "" {
		return nil
	}
	return &rpc.OutputToken{Value: t}
}

func promptOf(p *api.ShellPrompt) *rpc.PromptInfo {
	if p == nil {
		return nil
	}
	return &rpc.PromptInfo{Text: p.Text, Marked: p.Source == "mark"}
}

func exitOf(code *int) *uint32 {
	if code == nil || *code < 0 {
		return nil
	}
	return proto.Uint32(uint32(*code))
}

// SendInput

func (sessionService) SendInput(ctx context.Context, ask *rpc.SendInputRequest) (*rpc.SendInputResponse, error) {
	c := arrived(ctx)
	exec, agent := shellOf(ask.SessionId)
	in := api.ShellInput{ProcessRef: api.ProcessRef{ExecID: exec}, InputID: ask.InputId, Takeover: ask.Takeover}
	switch {
	case ask.Secret:
		in.Data = &api.Stdin{SecretText: &api.InlineText{Text: string(ask.Data)}}
	case len(ask.Data) > 0:
		in.Data = &api.Stdin{InlineBytes: &api.InlineBytes{Bytes: ask.Data}}
	}
	for _, a := range ask.Actions {
		// A number that S1 does not have becomes a name that nothing has, and is refused as such.
		in.Actions = append(in.Actions, api.ShellAction{Type: api.ShellActionType(a.GetType().String()), Cols: size(a.GetCols()), Rows: size(a.GetRows())})
	}
	r, err := c.effect(ctx, api.OpShellInput, agent, "", in)
	if err != nil {
		return nil, err
	}
	typed := r.Payload.Shell
	switch {
	case r.Outcome == api.OutcomeOK && typed != nil:
	case typed != nil && notNow(r.ErrorCode):
		if s, err := lookUp(ctx, c, api.OpShellGet, agent, api.Read{ExecID: exec}, Supervisor.Shell); err == nil {
			typed.Status = s.Status // one that was turned away at the queue has seen none
		}
	default:
		return nil, remoteReceipt(r)
	}
	out := &rpc.SendInputResponse{
		Accepted: typed.Accepted, CommandId: typed.CommandID, State: stateOf(typed.Status), Bytes: uint64(typed.Bytes), Actions: uint32(typed.Actions),
		Duplicate: typed.Duplicate, Token: tokenOf(typed.Token), ReceiptId: r.IntentID,
	}
	if !typed.Accepted {
		out.ErrorCode = string(r.ErrorCode)
	}
	return out, nil
}

// notNow reports whether the same could be typed at another time: S1 answers that, and makes no error of it (R149).
func notNow(code api.Code) bool {
	return code == api.CodeQueueFull || code == api.CodeStdinFull || code == api.CodeWriterHeld
}

// ReadOutput

func (sessionService) ReadOutput(ctx context.Context, ask *rpc.ReadOutputRequest) (*rpc.ReadOutputResponse, error) {
	c := arrived(ctx)
	if err := c.unkeyedRead(); err != nil {
		return nil, err
	}
	exec, agent := shellOf(ask.SessionId)
	o, err := lookUp(ctx, c, api.OpShellOutput, agent, api.Read{
		ExecID: exec, After: ask.Since.GetValue(), MaxBytes: int64(ask.MaxBytes), WaitMS: int64(ask.WaitTimeoutMs),
	}, Supervisor.ShellOutput)
	if err != nil {
		return nil, err
	}
	out := &rpc.ReadOutputResponse{State: stateOf(o.Status), Token: tokenOf(o.Token), Truncated: o.Truncated, End: o.End}
	for _, k := range o.Chunks {
		out.Chunks = append(out.Chunks, &rpc.OutputChunk{
			SessionId: ask.SessionId, Token: tokenOf(k.Token), Payload: k.Bytes, Truncated: k.Truncated, ExitCode: exitOf(k.ExitCode),
			Prompt: promptOf(k.Prompt), CommandId: k.CommandID, Offset: uint64(k.Offset), At: timeOf(k.AtNS),
		})
	}
	return answer(c, out)
}

// GetSession

func (sessionService) GetSession(ctx context.Context, ask *rpc.GetSessionRequest) (*rpc.GetSessionResponse, error) {
	c := arrived(ctx)
	if err := c.unkeyedRead(); err != nil {
		return nil, err
	}
	exec, agent := shellOf(ask.SessionId)
	s, err := lookUp(ctx, c, api.OpShellGet, agent, api.Read{ExecID: exec}, Supervisor.Shell)
	if err != nil {
		return nil, err
	}
	out := &rpc.GetSessionResponse{
		Metadata: c.metadata(ctx, agent, s), State: stateOf(s.Status), Prompt: promptOf(s.Prompt), Command: commandOf(s.Command),
		QueuedRequests: uint32(s.Queue.Requests), QueuedBytes: uint64(s.Queue.Bytes), Token: tokenOf(s.Token), FirstToken: tokenOf(s.First),
	}
	for _, k := range s.Commands {
		out.Commands = append(out.Commands, commandOf(&k))
	}
	return answer(c, out)
}

func commandOf(k *api.ShellCommand) *rpc.Command {
	if k == nil {
		return nil
	}
	return &rpc.Command{CommandId: k.CommandID, InputId: k.InputID, StartedAt: timeOf(k.StartedAtNS), EndedAt: timeOf(k.EndedAtNS), ExitCode: exitOf(k.ExitCode)}
}

// CloseSession

func (sessionService) CloseSession(ctx context.Context, ask *rpc.CloseSessionRequest) (*rpc.CloseSessionResponse, error) {
	c := arrived(ctx)
	exec, agent := shellOf(ask.SessionId)
	mode := strings.ToLower(ask.Mode.String()) // a number that is no mode is none of the names
	r, err := c.effect(ctx, api.OpShellClose, agent, "/shell", api.ShellClose{ProcessRef: api.ProcessRef{ExecID: exec}, Mode: mode})
	if err != nil {
		return nil, err
	}
	ended := r.Payload.Shell
	if r.Outcome != api.OutcomeOK || ended == nil {
		return nil, remoteReceipt(r)
	}
	left, err := c.closeOpened(ctx, agent, ended.SessionID, mode)
	if err != nil {
		return nil, err
	}
	return &rpc.CloseSessionResponse{FinalState: stateOf(ended.Status), Summary: ended.Summary + left, ReceiptId: r.IntentID}, nil
}

// closeOpened ends the session that was opened for a shell, and says what became of it. One that may have processes in the
// background goes on with them when its shell was closed gracefully, as long as it may: until it is idle, expires, or is closed by force.
func (c *call) closeOpened(ctx context.Context, agent, session, mode string) (became string, err error) {
	s, err := lookUp(ctx, c, api.OpSessionGet, agent, api.Read{SessionID: session}, Supervisor.Session)
	if err != nil {
		return "", err
	}
	switch {
	case s.Labels[serviceLabel] != servedBy:
		return "; " + session + " was not opened for it", nil
	case s.EndedAtNS != 0:
		return "; " + session + " has ended", nil
	case mode != "force" && s.Grant != nil && s.Grant.Exec.Background:
		return "; " + session + " goes on, for what runs in the background", nil
	}
	r, err := c.effect(ctx, api.OpSessionClose, agent, "/session", api.SessionClose{SessionID: session, Mode: mode})
	switch {
	case err != nil:
		return "", err
	case r.Outcome != api.OutcomeOK && r.ErrorCode != api.CodeSessionClosed && r.ErrorCode != api.CodeSessionExpired:
		return "", remoteReceipt(r)
	}
	return "; " + session + " has ended", nil
}

// SubscribeSessionEvents

func (sessionService) SubscribeSessionEvents(ctx context.Context, ask *rpc.SubscribeSessionEventsRequest, out *connect.ServerStream[rpc.SessionEvent]) error {
	c := arrived(ctx)
	if err := c.unkeyedRead(); err != nil {
		return err
	}
	exec, agent := shellOf(ask.SessionId)
	s, err := lookUp(ctx, c, api.OpShellGet, agent, api.Read{ExecID: exec}, Supervisor.Shell)
	if err != nil {
		return err
	}
	req, err := c.operation(api.OpSessionEvents, agent, api.Read{SessionID: s.SessionID, After: ask.After})
	if err != nil {
		return c.failed(ctx, err)
	}
	if err := out.Send(nil); err != nil { // the header says that it has begun
		return err
	}
	follow, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	emit := func(n api.Notice) {
		e := eventOf(s, n)
		if e == nil || follow.Err() != nil {
			return
		}
		e.SessionId = ask.SessionId
		if err := out.Send(e); err != nil {
			stop(err)
		} else if e.Type == rpc.SessionEvent_SESSION_CLOSED {
			stop(errClosed)
		}
	}
	denial, err := c.eventsOf(follow, s, req, emit)
	switch cause := context.Cause(follow); {
	case cause == errClosed:
		return nil
	case cause != nil && ctx.Err() == nil: // the reader does not take what it is sent
		return cause
	case err != nil:
		return c.failed(ctx, err)
	case denial != nil:
		return remoteReceipt(denial)
	}
	return nil
}

// errClosed ends a stream of events behind the last.
var errClosed = errors.New("the session is closed")

// eventsOf hands out events as long as any can come: of a shell that has ended all of them are there.
func (c *call) eventsOf(ctx context.Context, s *api.Shell, req *api.Request, emit func(api.Notice)) (*api.Receipt, error) {
	if !s.State.Final() {
		return c.server.sup.FollowEvents(ctx, req, emit)
	}
	for ctx.Err() == nil {
		page, denial, err := c.server.sup.Events(ctx, req)
		switch {
		case err != nil || denial != nil:
			return denial, err
		case page.Gone != nil:
			return nil, page.Gone.Error("events")
		case len(page.Events) == 0:
			return nil, nil
		}
		for _, n := range page.Events {
			emit(n)
		}
		next := *req.Read
		next.After = strconv.FormatInt(page.Next, 10)
		req.Read = &next
	}
	return nil, ctx.Err()
}

// eventOf is an event as S1 has it, or nil: those of other executions are not this session's, those from before the shell
// neither, and what else the log tells S1 has no type for.
func eventOf(s *api.Shell, n api.Notice) *rpc.SessionEvent {
	if n.ExecID != "" && n.ExecID != s.ExecID || n.AtNS < s.QueuedAtNS {
		return nil
	}
	e := &rpc.SessionEvent{Detail: n.Detail, Reason: n.Reason, Cursor: strconv.FormatInt(n.Seq, 10), At: timeOf(n.AtNS)}
	switch n.Kind {
	case api.NoticeIdle:
		e.Type = rpc.SessionEvent_IDLE_WARNING
	case api.NoticeTimeout:
		e.Type = rpc.SessionEvent_IDLE_TIMEOUT
	case api.NoticeThreshold:
		e.Type = rpc.SessionEvent_RESOURCE_THRESHOLD
	case api.NoticeViolation:
		e.Type, e.ReceiptId = rpc.SessionEvent_POLICY_VIOLATION, n.IntentID
		e.Detail = cmp.Or(n.Detail, fmt.Sprintf("%s was denied: %s", n.Op, n.Reason))
	case api.NoticeProcess:
		if n.ExecID == "" || !api.State(n.State).Final() {
			return nil
		}
		e.Type = rpc.SessionEvent_SESSION_CLOSED
		e.Detail = cmp.Or(n.Detail, "the shell has ended: "+n.State)
	case api.NoticeSession:
		if n.State != "closed" && n.State != "error" {
			return nil
		}
		e.Type = rpc.SessionEvent_SESSION_CLOSED
		e.Detail = cmp.Or(n.Detail, "the session has ended: "+n.State)
	default:
		return nil
	}
	return e
}
