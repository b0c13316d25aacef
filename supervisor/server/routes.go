package server

import (
	"fmt"

	"github.com/stockade-dev/stockade/supervisor"
	"github.com/stockade-dev/stockade/supervisor/api"
)

// A route is one row of the table.
type route struct {
	method, path string
	op           api.Op // what policy is asked
	serve        func(*call)
	summary      string
	query        []string // parameters of the URL that it takes
	in, out      any      // types of the body and of the answer; nil means none, []byte means content
}

// Routes that ask policy nothing, or something that only the request says.
const (
	public  api.Op = "(public)"  // who answers, and by which contract
	derived api.Op = "(derived)" // the operation that the path names, asked as its own route would
)

// routes is the whole interface.
func routes() []route {
	return []route{
		{"POST", "/v1/sessions", api.OpSessionOpen, operate, "Open a session.", nil, api.SessionOpen{}, api.Receipt{}},
		{"GET", "/v1/sessions", api.OpSessionList, read(show((*supervisor.Supervisor).Sessions)), "List the caller's sessions, newest first.",
			[]string{"label", "state", "limit"}, nil, api.SessionList{}},
		{"GET", "/v1/sessions/{session_id}", api.OpSessionGet, read(show((*supervisor.Supervisor).Session)), "Show a session.", nil, nil, api.Session{}},
		{"POST", "/v1/exec", api.OpExec, operate,
			"Run a command in a session. With Accept: text/event-stream or application/x-ndjson its output comes as events, and the receipt last.",
			nil, api.Exec{}, api.Receipt{}},
		{"GET", "/v1/executions/{exec_id}/output", api.OpOutput, followOutput,
			"Follow the output of an execution from two offsets on, as events, and the receipt last.",
			[]string{"stdout", "stderr"}, nil, api.Event{}},
		{"POST", "/v1/signal", api.OpSessionSignal, operate, "Deliver a signal to every live execution of a session.", nil, api.SessionSignal{}, api.Receipt{}},
		{"POST", "/v1/close", api.OpSessionClose, operate, "End a session.", nil, api.SessionClose{}, api.Receipt{}},
		{"PUT", "/v1/blobs", api.OpBlobPut, putBlob, "Store content, which is the body.", []string{"blob_ref"}, []byte{}, api.Receipt{}},
		{"GET", "/v1/blobs/{blob_ref}", api.OpBlobGet, read((*call).blob), "Get the content of a blob.", nil, nil, []byte{}},
		{"GET", "/v1/receipts", api.OpReceiptList, read(show((*supervisor.Supervisor).Receipts)), "List the caller's receipts, newest first.",
			[]string{"session_id", "exec_id", "op", "outcome", "limit"}, nil, api.ReceiptList{}},
		{"GET", "/v1/receipts/{intent_id}", api.OpReceiptGet, read(show((*supervisor.Supervisor).Receipt)), "Show a receipt.", nil, nil, api.Receipt{}},
		{"GET", "/v1/checkpoint", api.OpCheckpoint, read(show((*supervisor.Supervisor).Checkpoint)),
			"Sign all that the journal has so far. Kept elsewhere, the note finds a journal that was rolled back.", nil, nil, api.Checkpoint{}},
		{"POST", "/v1/decide", api.OpDecide, decide, "Ask what policy would say to an operation. Nothing is started.", nil, api.Ask{}, api.Decision{}},
		{"GET", "/v1/host", api.OpHostInfo, read(show((*supervisor.Supervisor).HostInfo)), "Show what the machine offers and the operator allows.", nil, nil, api.HostInfo{}},
		{"GET", "/v1/version", public, getVersion, "Say who answers and what it serves.", nil, nil, api.Version{}},
		{"GET", "/v1/openapi.json", public, getOpenAPI, "Get this document.", nil, nil, map[string]any{}},
		{"POST", "/v1/ops/{op}", derived, operateNamed, "Carry out an operation by its name or alias; the body is its parameters.", nil, map[string]any{}, api.Receipt{}},
	}
}

// check refuses a row that could be served without policy being asked.
func (r route) check() error {
	switch {
	case r.op == "":
		return fmt.Errorf("bug: route %s %s names no operation", r.method, r.path)
	case r.op != public && r.op != derived && r.op != r.op.Canonical():
		return fmt.Errorf("bug: route %s %s names an alias", r.method, r.path)
	case r.serve == nil:
		return fmt.Errorf("bug: route %s %s has no handler", r.method, r.path)
	}
	return nil
}
