package server

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/stockade-dev/stockade/supervisor/api"
)

// operate serves an operation whose parameters are the body.
func operate(c *call) {
	req, err := c.fromBody(c.row.op)
	c.serve(req, err)
}

// control serves an operation on what the path names.
func control(c *call) {
	req, err := c.fromPath()
	c.serve(req, err)
}

// serve does what the operation of the row is.
func (c *call) serve(req *api.Request, err *api.Error) {
	if err != nil {
		c.fail(err)
		return
	}
	c.server.named[c.row.op](c, req)
}

// exec starts a command and waits for it as long as its caller wants to. What the body says
// about waiting counts more than the Accept header, in which some clients name all they know.
func (c *call) exec(req *api.Request) {
	if w := req.Exec.Wait; (w == nil || *w) && req.Exec.WaitMS == 0 {
		c.carryOut(req)
		return
	}
	c.start(req)
}

// start answers with the receipt, or with where the operation is by now.
func (c *call) start(req *api.Request) {
	pending, receipt, err := c.server.sup.Start(c.r.Context(), req)
	if err != nil || receipt != nil {
		c.receipt(receipt, err)
		return
	}
	c.write(http.StatusAccepted, pending)
}

// prefersAsync reports whether the caller would rather not wait for somebody's leave (RFC 7240).
func (c *call) prefersAsync() bool {
	for _, prefer := range c.r.Header["Prefer"] {
		for one := range strings.SplitSeq(prefer, ",") {
			if strings.EqualFold(strings.TrimSpace(one), "respond-async") {
				return true
			}
		}
	}
	return false
}

// carryOut does an operation and answers with its receipt, after its events if the
// caller wants them. The end of the connection ends the waiting, never the work.
func (c *call) carryOut(req *api.Request) {
	f, ok := c.format()
	switch {
	case ok:
	case req.Exec == nil && c.prefersAsync():
		c.start(req)
		return
	default:
		c.receipt(c.server.sup.Do(c.r.Context(), req, nil))
		return
	}
	c.stream(f, req, func(ctx context.Context, e *events) (*api.Receipt, *api.Receipt, error) {
		r, err := c.server.sup.Do(ctx, req, func(event api.Event) { e.event(event) })
		return r, nil, err
	})
}

// stream hands out events as they come and the receipt, if there is one, last. What ended before
// its first event has an ordinary answer, with a status.
func (c *call) stream(f format, req *api.Request, follow func(context.Context, *events) (receipt, denial *api.Receipt, err error)) {
	ctx, cancel := context.WithCancel(c.r.Context())
	defer cancel()
	e := newEvents(c.w, f, req.Read != nil, cancel, c.server.options)
	receipt, denial, err := func() (*api.Receipt, *api.Receipt, error) {
		defer e.close()
		return follow(ctx, e)
	}()
	if denial != nil {
		receipt = denial
	}
	switch {
	case err != nil && e.begun:
		c.server.options.Log.Info("a stream was cut", "path", c.r.URL.Path, "error", err)
		panic(http.ErrAbortHandler) // an end that looks like one would be a lie
	case err != nil:
		c.fail(err)
	case receipt == nil:
		e.end()
	case !e.begun && (denial != nil || receipt.Outcome != api.OutcomeOK):
		c.write(receiptStatus(receipt), receipt)
	default:
		e.event(api.Event{Kind: "receipt", IntentID: receipt.IntentID, ExecID: receipt.ExecID, Receipt: receipt})
	}
}

// receipt answers with a receipt, or with why there is none.
func (c *call) receipt(r *api.Receipt, err error) {
	if err != nil {
		c.fail(err)
		return
	}
	c.write(receiptStatus(r), r)
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
		api.OpSessionOpen:    (*call).carryOut,
		api.OpSessionGet:     show(Supervisor.Session),
		api.OpSessionList:    show(Supervisor.Sessions),
		api.OpSessionEvents:  (*call).events,
		api.OpSessionSignal:  (*call).carryOut,
		api.OpSessionPause:   (*call).carryOut,
		api.OpSessionResume:  (*call).carryOut,
		api.OpSessionNarrow:  (*call).carryOut,
		api.OpSessionClose:   (*call).carryOut,
		api.OpExec:           (*call).exec,
		api.OpShellOpen:      (*call).openShell,
		api.OpShellGet:       show(Supervisor.Shell),
		api.OpShellOutput:    (*call).shell,
		api.OpShellRecording: (*call).recording,
		api.OpShellInput:     (*call).carryOut,
		api.OpShellResize:    (*call).carryOut,
		api.OpShellClose:     (*call).carryOut,
		api.OpShellRun:       (*call).carryOut,
		api.OpProcessGet:     show(Supervisor.Process),
		api.OpProcessList:    show(Supervisor.Processes),
		api.OpProcessWait:    show(Supervisor.Wait),
		api.OpProcessWatch:   (*call).watch,
		api.OpOutput:         (*call).output,
		api.OpProcessInput:   (*call).carryOut,
		api.OpProcessSignal:  (*call).carryOut,
		api.OpProcessModify:  (*call).carryOut,
		api.OpProcessPause:   (*call).carryOut,
		api.OpProcessResume:  (*call).carryOut,
		api.OpProcessCancel:  (*call).carryOut,
		api.OpProcessDelete:  (*call).carryOut,
		api.OpProcessStop:    (*call).carryOut,
		api.OpApprovalList:   show(Supervisor.Approvals),
		api.OpApprovalGet:    show(Supervisor.Approval),
		api.OpApprove:        (*call).carryOut,
		api.OpDeny:           (*call).carryOut,
		api.OpEvents:         (*call).events,
		api.OpIntentGet:      show(Supervisor.Intent),
		api.OpIntentList:     show(Supervisor.Intents),
		api.OpIntentFrames:   (*call).frames,
		api.OpReceiptGet:     show(Supervisor.Receipt),
		api.OpReceiptList:    show(Supervisor.Receipts),
		api.OpCheckpoint:     show(Supervisor.Checkpoint),
		api.OpBlobGet:        (*call).blob,
		api.OpHostInfo:       show(Supervisor.HostInfo),
		api.OpCapabilities:   show(Supervisor.Capabilities),
		api.OpQuiescence:     show(Supervisor.Quiescence),
		api.OpSnapshot:       show(Supervisor.Snapshot),
		api.OpAudit:          show(Supervisor.Audit),
		api.OpDrain:          (*call).carryOut,
		api.OpLogLevel:       (*call).carryOut,
		api.OpSettings:       show(Supervisor.Settings),

		api.OpPolicyStatus:   show(Supervisor.PolicyStatus),
		api.OpPolicyPreview:  show(Supervisor.PolicyPreview),
		api.OpPolicyActivate: (*call).carryOut,

		api.OpFileRead:   (*call).carryOut,
		api.OpFileWrite:  (*call).carryOut,
		api.OpFileEdit:   (*call).carryOut,
		api.OpFilePatch:  (*call).carryOut,
		api.OpFileGrep:   (*call).carryOut,
		api.OpFileGlob:   (*call).carryOut,
		api.OpFileStat:   (*call).carryOut,
		api.OpFileExists: (*call).carryOut,
		api.OpFileList:   (*call).carryOut,
		api.OpFileMkdir:  (*call).carryOut,
		api.OpFileMove:   (*call).carryOut,
		api.OpFileRemove: (*call).carryOut,

		api.OpWorkspaceDiff:    show(Supervisor.Diff),
		api.OpWorkspaceCommit:  (*call).carryOut,
		api.OpWorkspaceDiscard: (*call).carryOut,
	}
}

// read serves a read whose parameters are in the URL.
func read(c *call) {
	req, err := c.fromURL()
	c.serve(req, err)
}

// readDiff serves the diff of an overlay by its URL.
func readDiff(c *call) {
	req, err := c.fromURL()
	if err == nil {
		r, after := req.Read, []byte(nil)
		after, err = c.bytes("after_bytes")
		req.Read, req.Space = nil, &api.Workspace{SessionID: r.SessionID, GuestPath: c.query.Get("guest_path"), After: r.After, AfterBytes: after, Limit: r.Limit}
	}
	c.serve(req, err)
}

// show serves a read that is answered with one document.
func show[T any](ask func(Supervisor, context.Context, *api.Request) (*T, *api.Receipt, error)) func(*call, *api.Request) {
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
		c.write(receiptStatus(denial), denial)
	default:
		c.show(v)
	}
}

// show writes what was read. It may be large, and whoever asked for it take it slowly: until he has it, it counts
// as what he has under way.
func (c *call) show(v any) {
	body, err := api.Encode(v)
	if err != nil {
		panic(err) // as in writeJSON
	}
	if !c.weigh(load{bytes: int64(len(body))}) {
		c.fail(errTooMuch)
		return
	}
	c.write(http.StatusOK, jsontext.Value(body))
}

// decide serves POST /v1/decide.
func decide(c *call) {
	req, err := c.request(api.OpDecide)
	if err == nil {
		err = c.unkeyed()
	}
	if err != nil {
		c.fail(err)
		return
	}
	ask, err := asked[api.Ask](c)
	if err != nil {
		c.fail(err)
		return
	}
	ask.Into(req)
	for _, scope := range ask.Scopes() {
		if err := declare(req, scope); err != nil {
			c.fail(err)
			return
		}
	}
	v, denial, failed := c.server.sup.Decide(c.r.Context(), req)
	document(c, v, denial, failed)
}

// readOutput serves the output of an execution by its URL, which may say the position as the offsets
// of the two streams.
func readOutput(c *call) {
	req, err := c.fromURL()
	if err == nil && (c.query.Has("stdout") || c.query.Has("stderr")) {
		err = c.offsets(req)
	}
	c.serve(req, err)
}

// offsets makes a cursor of two offsets: the one behind no frame.
func (c *call) offsets(req *api.Request) *api.Error {
	if req.Read.After != "" {
		return api.Errorf(api.CodeInvalidHeader, "after says the offsets, too; leave stdout and stderr out")
	}
	stdout, err := c.number("stdout")
	if err != nil {
		return err
	}
	stderr, err := c.number("stderr")
	if err != nil {
		return err
	}
	req.Read.After = fmt.Sprintf("0.%d.%d", stdout, stderr)
	return nil
}

// output serves what an execution writes: a page of it, or a stream if the caller accepts one.
func (c *call) output(req *api.Request) {
	if _, ok := c.format(); ok {
		c.watch(req)
		return
	}
	v, denial, err := c.server.sup.Output(c.r.Context(), req)
	if v != nil && v.Gone != nil {
		c.write(http.StatusGone, v)
		return
	}
	document(c, v, denial, err)
}

// openShell answers when the shell is ready for its first command, or how it ended.
func (c *call) openShell(req *api.Request) {
	shell, receipt, err := c.server.sup.OpenShell(c.r.Context(), req)
	if err != nil || receipt != nil {
		c.receipt(receipt, err)
		return
	}
	c.write(http.StatusAccepted, shell)
}

// shell serves what comes out of a shell: a page of it, or a stream if the caller accepts one.
func (c *call) shell(req *api.Request) {
	if _, ok := c.format(); !ok {
		v, denial, err := c.server.sup.ShellOutput(c.r.Context(), req)
		document(c, v, denial, err)
		return
	}
	c.follow(req, func(ctx context.Context, e *events) (*api.Receipt, *api.Receipt, error) {
		denial, err := c.server.sup.FollowShell(ctx, req, func(o *api.ShellOutput) { e.send(o.Token, "output", o) })
		return nil, denial, err
	})
}

// watch serves the same as a stream, whatever the caller accepts.
func (c *call) watch(req *api.Request) {
	c.follow(req, func(ctx context.Context, e *events) (*api.Receipt, *api.Receipt, error) {
		return c.server.sup.Watch(ctx, req, func(event api.Event) { e.event(event) })
	})
}

// follow is a stream of a read, from where the reader was.
func (c *call) follow(req *api.Request, follow func(context.Context, *events) (receipt, denial *api.Receipt, err error)) {
	f, ok := c.format()
	if !ok {
		f = formats[0]
	}
	if err := c.resume(req); err != nil {
		c.fail(err)
		return
	}
	c.stream(f, req, follow)
}

// events serves an event log: a page of it, or a stream if the caller accepts one.
func (c *call) events(req *api.Request) {
	if _, ok := c.format(); ok {
		c.follow(req, func(ctx context.Context, e *events) (*api.Receipt, *api.Receipt, error) {
			denial, err := c.server.sup.FollowEvents(ctx, req, func(n api.Notice) {
				e.send(strconv.FormatInt(n.Seq, 10), string(n.Kind), n)
			})
			return nil, denial, err
		})
		return
	}
	v, denial, err := c.server.sup.Events(c.r.Context(), req)
	if v != nil && v.Gone != nil {
		c.write(http.StatusGone, v)
		return
	}
	document(c, v, denial, err)
}

// frames serves the frames of an intent: a page of them, or a stream if the caller accepts one.
func (c *call) frames(req *api.Request) {
	if _, ok := c.format(); !ok {
		v, denial, err := c.server.sup.Frames(c.r.Context(), req)
		if v != nil && v.Gone != nil {
			c.write(http.StatusGone, v)
			return
		}
		document(c, v, denial, err)
		return
	}
	c.follow(req, func(ctx context.Context, e *events) (*api.Receipt, *api.Receipt, error) {
		if err := req.Validate(); err != nil {
			return nil, nil, err
		}
		req.Read.WaitMS = framesTurn.Milliseconds()
		for ctx.Err() == nil {
			page, denial, err := c.server.sup.Frames(ctx, req)
			if denial != nil || err != nil {
				return nil, denial, err
			}
			if page.Gone != nil {
				return nil, nil, page.Gone.Error("frames")
			}
			for _, f := range page.Frames {
				at := strconv.FormatInt(f.Seq, 10)
				e.event(api.Event{Kind: "frame", Cursor: at, IntentID: f.IntentID, ExecID: f.Payload.ExecID, Frame: &f})
				req.Read.After = at
			}
			if page.Receipt != nil {
				return page.Receipt, nil, nil
			}
		}
		return nil, nil, ctx.Err()
	})
}

// framesTurn is how long one look for frames of a stream may take.
const framesTurn = 30 * time.Second

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
	if err := c.keyed(req); err != nil {
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

// recording serves the asciicast of a shell.
func (c *call) recording(req *api.Request) {
	content, denial, err := c.server.sup.OpenRecording(c.r.Context(), req)
	if err != nil || denial != nil {
		document[struct{}](c, nil, denial, err)
		return
	}
	defer content.Close()
	h := c.w.Header()
	h.Set("Content-Type", "application/x-asciicast")
	h.Set("X-Content-Type-Options", "nosniff")
	c.w.WriteHeader(http.StatusOK)
	if _, err := io.Copy(patientWriter{c}, content); err != nil {
		c.server.options.Log.Info("a recording was not delivered", "exec_id", req.Read.ExecID, "error", err)
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
	c.write(http.StatusOK, c.server.sup.Version())
}
