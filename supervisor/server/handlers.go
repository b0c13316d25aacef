package server

import (
	"context"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/stockade-dev/stockade/supervisor"
	"github.com/stockade-dev/stockade/supervisor/api"
)

// operate serves an operation with effect, whose parameters are the body.
func operate(c *call) {
	req, err := c.fromBody(c.row.op)
	if err != nil {
		c.fail(err)
		return
	}
	c.carryOut(req)
}

// carryOut does an operation and answers with its receipt, after its events if the
// caller wants them. The end of the connection ends the waiting, never the work.
func (c *call) carryOut(req *api.Request) {
	f, ok := c.format()
	if !ok {
		c.receipt(c.server.sup.Do(c.r.Context(), req, nil))
		return
	}
	c.stream(f, func(ctx context.Context, emit func(api.Event)) (*api.Receipt, *api.Receipt, error) {
		r, err := c.server.sup.Do(ctx, req, emit)
		return r, nil, err
	})
}

// stream hands out events as they come and the receipt last. What ended before its
// first event has an ordinary answer, with a status.
func (c *call) stream(f format, follow func(context.Context, func(api.Event)) (receipt, denial *api.Receipt, err error)) {
	ctx, cancel := context.WithCancel(c.r.Context())
	defer cancel()
	e := newEvents(c.w, f, c.server.options)
	defer e.close()
	receipt, denial, err := follow(ctx, func(event api.Event) {
		if e.send(event) != nil {
			cancel() // nobody reads; stop following
		}
	})
	switch {
	case denial != nil:
		receipt = denial
	case err != nil && e.started():
		c.server.options.Log.Info("a stream ended without a receipt", "path", c.r.URL.Path, "error", err)
		panic(http.ErrAbortHandler) // an end that looks like one would be a lie
	case err != nil:
		c.fail(err)
		return
	}
	if denial != nil || receipt.Outcome != api.OutcomeOK && !e.started() {
		writeJSON(c.w, receiptStatus(receipt), receipt)
		return
	}
	e.send(api.Event{Kind: "receipt", IntentID: receipt.IntentID, ExecID: receipt.ExecID, Receipt: receipt})
}

// receipt answers with a receipt, or with why there is none.
func (c *call) receipt(r *api.Receipt, err error) {
	if err != nil {
		c.fail(err)
		return
	}
	writeJSON(c.w, receiptStatus(r), r)
}

// operateNamed serves POST /v1/ops/{op}: any operation by its name or alias, which the
// record keeps (C1). The content of blobs has a route of its own, which is not JSON.
func operateNamed(c *call) {
	op := api.Op(c.r.PathValue("op"))
	serve, ok := c.server.named[op.Canonical()]
	if !ok {
		c.fail(api.Errorf(api.CodeUnknownMethod, "no operation %.80q takes its parameters as a body", string(op)))
		return
	}
	req, err := c.fromBody(op)
	if err != nil {
		c.fail(err)
		return
	}
	serve(c, req)
}

// named are the operations that take their parameters as a body.
func named() map[api.Op]func(*call, *api.Request) {
	return map[api.Op]func(*call, *api.Request){
		api.OpSessionOpen:   (*call).carryOut,
		api.OpExec:          (*call).carryOut,
		api.OpSessionSignal: (*call).carryOut,
		api.OpSessionClose:  (*call).carryOut,
		api.OpSessionGet:    show((*supervisor.Supervisor).Session),
		api.OpSessionList:   show((*supervisor.Supervisor).Sessions),
		api.OpReceiptGet:    show((*supervisor.Supervisor).Receipt),
		api.OpReceiptList:   show((*supervisor.Supervisor).Receipts),
		api.OpCheckpoint:    show((*supervisor.Supervisor).Checkpoint),
		api.OpBlobGet:       (*call).blob,
		api.OpHostInfo:      show((*supervisor.Supervisor).HostInfo),
		api.OpOutput:        func(c *call, req *api.Request) { c.output(req, api.Offsets{}) },
	}
}

// read serves a read whose parameters are in the URL.
func read(serve func(*call, *api.Request)) func(*call) {
	return func(c *call) {
		req, err := c.fromURL()
		if err != nil {
			c.fail(err)
			return
		}
		serve(c, req)
	}
}

// show serves a read that is answered with one document.
func show[T any](ask func(*supervisor.Supervisor, context.Context, *api.Request) (*T, *api.Receipt, error)) func(*call, *api.Request) {
	return func(c *call, req *api.Request) {
		v, denial, err := ask(c.server.sup, c.r.Context(), req)
		document(c, v, denial, err)
	}
}

// document answers with what was read, with the receipt of a denial, or with an error.
func document[T any](c *call, v *T, denial *api.Receipt, err error) {
	switch {
	case err != nil:
		c.fail(err)
	case denial != nil:
		writeJSON(c.w, receiptStatus(denial), denial)
	default:
		writeJSON(c.w, http.StatusOK, v)
	}
}

// decide serves POST /v1/decide.
func decide(c *call) {
	req, err := c.request(api.OpDecide)
	if err != nil {
		c.fail(err)
		return
	}
	body, err := c.body()
	if err != nil {
		c.fail(err)
		return
	}
	ask, err := api.Decode[api.Ask](body)
	if err != nil {
		c.fail(err)
		return
	}
	req.Op, req.Open, req.Exec, req.Signal, req.Close = ask.Op.Canonical(), ask.Open, ask.Exec, ask.Signal, ask.Close
	if req.Op != ask.Op {
		req.RequestedKind = ask.Op
	}
	for _, scope := range declared(req) {
		if err := declare(req, scope); err != nil {
			c.fail(err)
			return
		}
	}
	v, denial, failed := c.server.sup.Decide(c.r.Context(), req)
	document(c, v, denial, failed)
}

// declared are the scopes that the parameters of a request declare.
func declared(req *api.Request) (scopes []api.Scope) {
	if req.Open != nil {
		scopes = append(scopes, req.Open.Scope)
	}
	if req.Exec != nil {
		scopes = append(scopes, req.Exec.Scope)
	}
	if req.Signal != nil {
		scopes = append(scopes, req.Signal.Scope)
	}
	if req.Close != nil {
		scopes = append(scopes, req.Close.Scope)
	}
	return scopes
}

// followOutput serves the output of an execution from two offsets on.
func followOutput(c *call) {
	req, err := c.fromURL()
	if err != nil {
		c.fail(err)
		return
	}
	var from api.Offsets
	if from.Stdout, err = c.number("stdout"); err == nil {
		from.Stderr, err = c.number("stderr")
	}
	if err != nil {
		c.fail(err)
		return
	}
	c.output(req, from)
}

func (c *call) output(req *api.Request, from api.Offsets) {
	f, ok := c.format()
	if !ok {
		f = formats[0] // the answer can be nothing else
	}
	c.stream(f, func(ctx context.Context, emit func(api.Event)) (*api.Receipt, *api.Receipt, error) {
		return c.server.sup.Output(ctx, req, from, emit)
	})
}

// putBlob serves PUT /v1/blobs. The size is announced, because policy judges it before
// the content travels.
func putBlob(c *call) {
	req, err := c.request(api.OpBlobPut)
	if err != nil {
		c.fail(err)
		return
	}
	switch size := c.r.ContentLength; {
	case size < 0:
		err = api.Errorf(api.CodeLengthRequired, "say Content-Length; policy judges the size first")
	case size > c.server.options.MaxBlobBytes:
		err = api.Errorf(api.CodeTooLarge, "the content is larger than %d bytes", c.server.options.MaxBlobBytes)
	default:
		err = c.contentType("application/octet-stream")
	}
	if err != nil {
		c.fail(err)
		return
	}
	req.Blob = &api.BlobPut{BlobRef: c.query.Get("blob_ref"), SizeBytes: c.r.ContentLength}
	c.receipt(c.server.sup.PutBlob(c.r.Context(), req, patient{c, c.r.Body}))
}

// blob answers with the content of a blob. Content that turns out to be damaged breaks
// the connection: the size was promised already.
func (c *call) blob(req *api.Request) {
	content, size, denial, err := c.server.sup.OpenBlob(c.r.Context(), req)
	if err != nil || denial != nil {
		document[struct{}](c, nil, denial, err)
		return
	}
	defer content.Close()
	h := c.w.Header()
	h.Set("Content-Type", "application/octet-stream")
	h.Set("Content-Length", strconv.FormatInt(size, 10))
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("ETag", strconv.Quote(req.Read.BlobRef))
	c.w.WriteHeader(http.StatusOK)
	if _, err := io.Copy(patientWriter{c}, content); err != nil {
		c.server.options.Log.Info("a blob was not delivered", "blob_ref", req.Read.BlobRef, "error", err)
		panic(http.ErrAbortHandler)
	}
}

// patientWriter writes a long body: each part may take the answer's time.
type patientWriter struct{ c *call }

func (p patientWriter) Write(b []byte) (int, error) {
	p.c.control.SetWriteDeadline(time.Now().Add(p.c.server.options.WriteTimeout))
	return p.c.w.Write(b)
}

// getVersion serves GET /v1/version.
func getVersion(c *call) {
	writeJSON(c.w, http.StatusOK, c.server.sup.Version())
}
