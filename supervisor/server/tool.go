package server

import (
	"context"
	"fmt"
	"io"
	"net/http"

	"github.com/stockade-dev/stockade/supervisor/api"
	"github.com/stockade-dev/stockade/supervisor/tools"
)

// facadeTools is what requests say that a call of a tool led to.
const facadeTools = "tools"

// getTools serves GET /v1/tools.
func getTools(c *call) {
	p, err := tools.Named(c.query.Get("profile"))
	if err != nil {
		c.fail(err)
		return
	}
	c.write(http.StatusOK, p.Catalogue())
}

// callTool serves POST /v1/tools/call. What the call leads to are operations of the caller's like any others; the answer to the
// call is one also where they were refused. The end of the connection ends the waiting, never the work.
func callTool(c *call) {
	err := c.unkeyed() // a call can be several operations, and what it does depends on what it finds
	if err != nil {
		c.fail(err)
		return
	}
	ask, err := asked[api.ToolCall](c)
	if err != nil {
		c.fail(err)
		return
	}
	req, err := c.request(api.OpExec) // for the scope that the header declares
	if err == nil {
		err = declare(req, ask.Scope)
	}
	if err != nil {
		c.fail(err)
		return
	}
	p, err := tools.Named(ask.Profile)
	if err != nil {
		c.fail(err)
		return
	}
	in, err := p.Parse(ask.Call)
	if err != nil {
		c.fail(err)
		return
	}
	var a *tools.Answer
	if t, unknown := p.Tool(in.Tool); unknown != nil { // models make names up: it is them who must be told
		a = p.Refuse(unknown)
	} else {
		var failed error
		a, failed = c.server.desk.Call(c.r.Context(), operator{c, req.Principal}, tools.Call{Profile: p, Tool: t, SessionID: ask.SessionID, Caller: fmt.Sprintf("%d %q", req.Principal.UID, req.Principal.Scope), Arguments: in.Arguments})
		if failed != nil {
			c.fail(failed)
			return
		}
	}
	if a.Receipts == nil {
		a.Receipts = []api.Receipt{}
	}
	c.show(api.ToolAnswer{
		Result: p.Render(in, a), Tool: in.Tool, OK: a.OK, Status: a.Status, ErrorCode: a.Code, Message: a.Message, Truncated: a.Truncated,
		ExecID: a.ExecID, Running: a.Running, ExitCode: a.ExitCode, Deny: a.Deny, Allowed: a.Allowed, Receipts: a.Receipts,
	})
}

// operator carries out what the call of a tool leads to, for whom the connection is from.
type operator struct {
	c         *call
	principal api.Principal
}

// request is an operation with its parameters, which pass the same decoder as if they had come in a body of their own.
func (o operator) request(op api.Op, parameters any) (*api.Request, error) {
	body, err := api.Encode(parameters)
	if err != nil {
		return nil, api.Errorf(api.CodeInvalidParams, "the arguments are not UTF-8")
	}
	req := &api.Request{Op: op, Principal: o.principal, Facade: facadeTools}
	if _, err := req.SetParameters(body); err != nil {
		return nil, err
	}
	return req, nil
}

func (o operator) Do(ctx context.Context, op api.Op, parameters any) (*api.Receipt, error) {
	req, err := o.request(op, parameters)
	if err != nil {
		return nil, err
	}
	return o.c.server.sup.Do(ctx, req, nil)
}

func (o operator) Start(ctx context.Context, exec api.Exec) (*api.Pending, *api.Receipt, error) {
	req, err := o.request(api.OpExec, exec)
	if err != nil {
		return nil, nil, err
	}
	return o.c.server.sup.Start(ctx, req)
}

func (o operator) Output(ctx context.Context, execID string, page api.Read) (*api.Pending, error) {
	page.ExecID = execID
	return look(ctx, o, api.OpOutput, page, Supervisor.Output)
}

func (o operator) Process(ctx context.Context, execID string) (*api.Process, error) {
	return look(ctx, o, api.OpProcessGet, api.Read{ExecID: execID}, Supervisor.Process)
}

func (o operator) Processes(ctx context.Context, filter api.Read) (*api.ProcessList, error) {
	return look(ctx, o, api.OpProcessList, filter, Supervisor.Processes)
}

func (o operator) Session(ctx context.Context, id string) (*api.Session, error) {
	return look(ctx, o, api.OpSessionGet, api.Read{SessionID: id}, Supervisor.Session)
}

func (o operator) Blob(ctx context.Context, ref string) (io.ReadCloser, int64, error) {
	req, err := o.request(api.OpBlobGet, api.Read{BlobRef: ref})
	if err != nil {
		return nil, 0, err
	}
	content, size, denial, err := o.c.server.sup.OpenBlob(ctx, req)
	if err == nil && denial != nil {
		err = api.Errorf(denial.ErrorCode, "%s", denial.ErrorMessage)
	}
	return content, size, err
}

// look is a read. One that is denied is an error: what was to be read is not there.
func look[T any](ctx context.Context, o operator, op api.Op, ask api.Read, read func(Supervisor, context.Context, *api.Request) (*T, *api.Receipt, error)) (*T, error) {
	req, err := o.request(op, ask)
	if err != nil {
		return nil, err
	}
	v, denial, err := read(o.c.server.sup, ctx, req)
	if err == nil && denial != nil {
		err = api.Errorf(denial.ErrorCode, "%s", denial.ErrorMessage)
	}
	return v, err
}
