// Package mcp serves a session over the Model Context Protocol: commands that can be polled,
// written to and ended, and the file tools of a profile.
//
// It is a facade: what a call leads to are operations of whoever runs it, by supervisor/tools, and it has no authority and no state
// of its own. A denial is a tool error with its code, its reasons and what would have been allowed; canceling a call ends what it
// started; progress tells how long a command runs, and its last line.
package mcp

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/stockade-dev/stockade/supervisor/api"
	"github.com/stockade-dev/stockade/supervisor/tools"
)

// Config is what is served.
type Config struct {
	Host      tools.Host
	SessionID string
	Profile   *tools.Profile // whose file tools
	Version   string
	Network   bool // the session reaches something outside
}

// Result is the structured content of every answer.
type Result struct {
	OK        bool           `json:"ok" jsonschema:"what was asked for was done; a command that ended with a status of its own was run"`
	Status    string         `json:"status" jsonschema:"ok, running, denied, error, or the status of the operation that says no"`
	Code      api.Code       `json:"error_code,omitempty" jsonschema:"stable"`
	Message   string         `json:"error_message,omitempty"`
	Truncated bool           `json:"truncated,omitempty" jsonschema:"the text leaves something out"`
	ExecID    string         `json:"exec_id,omitempty"`
	Running   bool           `json:"running,omitempty" jsonschema:"the execution goes on"`
	Cursor    string         `json:"cursor,omitempty" jsonschema:"of the output: what follows the text"`
	ExitCode  *int           `json:"exit_code,omitempty"`
	Deny      []api.Deny     `json:"deny,omitempty" jsonschema:"the reasons of a denial"`
	Allowed   map[string]any `json:"allowed,omitempty" jsonschema:"what the session's grant has of what was asked, by member"`
	Receipts  []Receipt      `json:"receipts" jsonschema:"of the operations that the call led to; the supervisor has the whole of each"`
}

// Receipt names one.
type Receipt struct {
	IntentID string      `json:"intent_id"`
	Op       api.Op      `json:"op"`
	Outcome  api.Outcome `json:"outcome"`
	Code     api.Code    `json:"error_code,omitempty"`
}

// New returns a server that is not serving yet.
func New(c Config) (*mcp.Server, error) {
	output, err := jsonschema.For[Result](nil)
	if err != nil {
		return nil, err
	}
	s := mcp.NewServer(&mcp.Implementation{Name: "stockade", Title: "Stockade", Version: c.Version}, &mcp.ServerOptions{
		Capabilities: &mcp.ServerCapabilities{Tools: &mcp.ToolCapabilities{}},
		Instructions: "Tools of one sandbox session. What policy does not grant is refused with a code, a reason and what would be allowed; asking again does not change that.",
	})
	desk := &tools.Desk{}
	for _, t := range slices.Concat(tools.Commands(), c.Profile.Files()) {
		world, destructive := c.Network && slices.Contains(t.Ops, api.OpExec), t.Destructive
		s.AddTool(&mcp.Tool{
			Name: t.Name, Description: t.Text, InputSchema: t.Schema(), OutputSchema: output,
			Annotations: &mcp.ToolAnnotations{ReadOnlyHint: t.ReadOnly, DestructiveHint: &destructive, IdempotentHint: t.Idempotent, OpenWorldHint: &world},
		}, func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return c.call(ctx, desk, &t, req), nil
		})
	}
	return s, nil
}

// call carries one call out. Whatever comes of it is for the model: an error of the protocol would be for nobody.
func (c Config) call(ctx context.Context, desk *tools.Desk, t *tools.Tool, req *mcp.CallToolRequest) *mcp.CallToolResult {
	p := progress{ctx: ctx, session: req.Session, token: req.Params.GetProgressToken(), began: time.Now()}
	a, err := desk.Call(ctx, c.Host, tools.Call{
		Profile: c.Profile, Tool: t, SessionID: c.SessionID, Arguments: req.Params.Arguments, Cancel: true, Progress: p.tell,
	})
	if err != nil {
		a = &tools.Answer{Status: "error", Code: api.CodeLost, Message: err.Error(),
			Text: "Error: the supervisor cannot be reached, and what was asked may have taken place: " + err.Error()}
	}
	r := Result{OK: a.OK, Status: a.Status, Code: a.Code, Message: a.Message, Truncated: a.Truncated, ExecID: a.ExecID, Running: a.Running,
		Cursor: a.Cursor, ExitCode: a.ExitCode, Deny: a.Deny, Allowed: a.Allowed, Receipts: []Receipt{}}
	for _, one := range a.Receipts {
		r.Receipts = append(r.Receipts, Receipt{one.IntentID, one.Op, one.Outcome, one.ErrorCode})
	}
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: a.Text}}, StructuredContent: r, IsError: !a.OK}
}

// tellEvery is how often progress is told at most.
const tellEvery = 200 * time.Millisecond

// progress tells a client that asked for it how a command goes on. What it counts is time, which always grows, as the protocol
// wants it; bytes do not.
type progress struct {
	ctx     context.Context
	session *mcp.ServerSession
	token   any
	began   time.Time

	mu   sync.Mutex
	last time.Time
}

func (p *progress) tell(now tools.Progress) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.token == nil || time.Since(p.last) < tellEvery {
		return
	}
	p.last = time.Now()
	// A client that does not take it is gone, or will be told of the end.
	_ = p.session.NotifyProgress(p.ctx, &mcp.ProgressNotificationParams{ProgressToken: p.token, Progress: time.Since(p.began).Seconds(), Message: now.Line})
}
