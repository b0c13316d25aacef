package supervisor

import (
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/stockade-dev/stockade/internal/blob"
	"github.com/stockade-dev/stockade/internal/memfile"
	"github.com/stockade-dev/stockade/rego"
	"github.com/stockade-dev/stockade/sandbox"
	"github.com/stockade-dev/stockade/sandbox/file"
	"github.com/stockade-dev/stockade/sandbox/files"
	"github.com/stockade-dev/stockade/supervisor/api"
)

const (
	// lookLimit is how long the look at the paths of a file tool may take, with the start of the worker.
	lookLimit = 10 * time.Second
	// fileLimit is how long a file tool may take. What is inside can make any file system slow.
	fileLimit = 2 * time.Minute
)

// fileTool is an operation that the worker inside a session carries out.
func fileTool(op file.Op) operation {
	return operation{
		admit: admitFile, plan: planFile, abandon: abandonFile, act: actFile, settled: abandonFile,
		failed: func(code api.Code, message string) api.Payload {
			r := file.Empty(op)
			r.Outcome().Fail(file.Error, file.Code(code), message)
			return api.Payload{File: r}
		},
	}
}

// fileCall is what belongs to a call that is one.
type fileCall struct {
	facts *rego.File          // as policy is told
	blobs map[string]*os.File // contents that the request names, sealed
	held  int64               // of the budget of memory
}

func admitFile(s *Supervisor, c *call) *refusal {
	if why := admitSession(s, c); why != nil {
		return why
	}
	if fault := c.session.answers(s.now()); fault != nil {
		return faulted(fault)
	}
	return nil
}

// answers says why the session's file tools do not answer, or nil. What is paused would hold its caller up.
func (s *session) answers(now time.Time) *api.Error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usableLocked(now); err != nil {
		return err
	}
	if s.paused {
		return api.Errorf(api.CodeSessionPaused, "session %s is paused", s.id)
	}
	return nil
}

// lookFile finds out what the paths of a file tool lead to, for policy. A session without a grant of the tool
// has nothing started in it.
func lookFile(s *Supervisor, c *call) *refusal {
	ask, g := &c.req.File.Request, c.session.granted()
	f := &rego.File{Op: string(ask.Op.Class()), Bytes: ask.Bytes()}
	c.file.facts = f
	if ask.Patch != nil {
		f.PatchFormat = cmp.Or(ask.Patch.Format, "v4a")
	}
	if !fileGranted(g, ask.Op) {
		f.Paths = []rego.FilePath{{Path: ".", Resolved: g.Workdir}}
		return nil
	}
	if err := c.loadBlobs(s); err != nil {
		return faulted(err)
	}
	for _, content := range c.file.blobs {
		if st, err := content.Stat(); err == nil {
			f.Bytes += st.Size()
		}
	}
	// Nobody waits here: a policy that is to be activated would wait too.
	if !c.session.space.TryRLock() {
		return faulted(api.Errorf(api.CodeSessionPaused, "session %s stands still while an overlay is committed or emptied", c.session.id))
	}
	defer c.session.space.RUnlock()
	ctx, cancel := context.WithTimeout(s.ctx, lookLimit)
	defer cancel()
	var sight file.Sight
	look := func(conn *files.Conn) (fault *file.Fault, err error) {
		sight, fault, err = conn.Look(ctx, ask, c.file.blobs)
		return fault, err
	}
	fault, err := s.withFiles(ctx, c.session, look)
	if err != nil && faultOf(err).Code == api.CodeFileWorker && ctx.Err() == nil { // somebody inside has killed it since it was last asked; a look can be had again
		fault, err = s.withFiles(ctx, c.session, look)
	}
	switch {
	case err != nil:
		return faulted(err)
	case fault != nil:
		return faulted(api.Errorf(api.Code(fault.Code), "%s", fault.Message))
	}
	f.ChangedFiles = sight.Patched
	for _, p := range sight.Paths {
		f.Paths = append(f.Paths, rego.FilePath{Path: p.Path, Resolved: p.Resolved, Link: p.Link, Write: p.Write})
	}
	return nil
}

func fileGranted(g *api.Grant, op file.Op) bool {
	return g.FS != nil && slices.Contains(g.FS.Ops, string(op.Class()))
}

// loadBlobs copies the contents that the request names into memory files: the file of a blob would show the
// session a path of the host's.
func (c *call) loadBlobs(s *Supervisor) error {
	for _, ref := range c.req.File.Blobs() {
		// The record that names it comes after this look: retention must leave it until then.
		err := s.blobs.Touch(ref)
		var content io.ReadCloser
		var size int64
		if err == nil {
			content, size, err = s.blobs.Reader(ref)
		}
		switch {
		case errors.Is(err, blob.ErrNotFound):
			return api.Errorf(api.CodeNotFound, "there is no blob %s", ref)
		case err != nil:
			return api.Errorf(api.CodeBlobFailed, "%v", err)
		}
		defer content.Close()
		if !s.stdins.take(size) {
			return api.Errorf(api.CodeTooManyRequests, "the contents of blobs that are under way are too large together")
		}
		c.file.held += size
		f, _, err := memfile.Of("content", content)
		if err != nil {
			return api.Errorf(api.CodeBlobFailed, "%v", err)
		}
		if c.file.blobs == nil {
			c.file.blobs = map[string]*os.File{}
		}
		c.file.blobs[ref] = f
	}
	return nil
}

// planFile holds what was asked against the grant, whatever policy has said of it. What depends on the object itself is the worker's.
func planFile(_ *Supervisor, c *call) *refusal {
	if op := c.req.File.Request.Op; !fileGranted(c.session.granted(), op) {
		return denied(api.Deny{Code: api.Code(file.CodeOpNotAllowed), Subject: "fs:" + string(op.Class()), Message: "no file tool of this class is granted"})
	}
	return nil
}

// abandonFile gives back what was held for a file tool.
func abandonFile(s *Supervisor, c *call) {
	for _, f := range c.file.blobs {
		f.Close()
	}
	s.stdins.used.Add(-c.file.held)
	c.file.blobs, c.file.held = nil, 0
}

// actFile has the worker do it. What the worker says is believed of this session's files, and of nothing else.
func actFile(ctx context.Context, s *Supervisor, c *call) (api.Payload, *api.Error) {
	ses, ask := c.session, &c.req.File.Request
	failed := func(err error) (api.Payload, *api.Error) {
		fault := faultOf(err)
		return c.operation.failed(fault.Code, fault.Message), fault
	}
	ses.space.RLock() // it would stand still with the session while an overlay is committed
	defer ses.space.RUnlock()
	if fault := ses.answers(s.now()); fault != nil {
		return failed(fault)
	}
	ctx, cancel := context.WithTimeout(ctx, fileLimit)
	defer cancel()
	var result *file.Result
	var content *os.File
	_, err := s.withFiles(ctx, ses, func(conn *files.Conn) (_ *file.Fault, err error) {
		result, content, err = conn.Do(ctx, ask, c.file.blobs)
		return nil, err
	})
	c.watch.lap("run")
	if err != nil {
		if faultOf(err).Code == api.CodeFileWorker && ask.Op.Changes() {
			s.mendFiles(ses, c)
		}
		return failed(err)
	}
	if content != nil {
		defer content.Close()
		stored := result.Blob()
		if _, _, err := s.blobs.Put(content, stored.BlobRef); err != nil {
			return failed(api.Errorf(api.CodeOutputStoreFailed, "%v", err))
		}
		c.watch.lap("store")
	}
	if out := result.Outcome(); out.Status == file.Error {
		return api.Payload{File: result}, api.Errorf(api.Code(out.Code), "%s", out.Message)
	}
	return api.Payload{File: result}, nil
}

// mendFiles has another worker end what the change of a lost one has left, before anybody is told: commands that come next see
// all of it or nothing. If there can be none, the next tool that comes by does it.
func (s *Supervisor) mendFiles(ses *session, c *call) {
	ctx, cancel := context.WithTimeout(s.ctx, lookLimit)
	defer cancel()
	_, err := s.withFiles(ctx, ses, func(conn *files.Conn) (*file.Fault, error) {
		return nil, conn.Mend(ctx, &c.req.File.Request, c.file.blobs)
	})
	if err != nil {
		s.log.Warn("what a lost file worker left could not be ended", "session_id", ses.id, "error", err)
	}
}

// fileCaps are the rules of the worker: the grant's, and what nobody changes inside.
func fileCaps(g *api.Grant) file.Caps {
	fs := g.FS
	caps := file.Caps{
		Roots: directories(fs.Roots), WriteRoots: directories(fs.WriteRoots), FollowSymlinks: fs.FollowSymlinks, PatchFormats: fs.PatchFormats,
		Ops: []file.Class{}, OutputModes: g.Exec.OutputModes,
	}
	for _, class := range fs.Ops {
		caps.Ops = append(caps.Ops, file.Class(class))
	}
	if caps.PatchFormats == nil {
		caps.PatchFormats = []string{"v4a"}
	}
	for _, l := range []struct {
		granted int64
		cap     **int64
	}{
		{fs.MaxReadBytes, &caps.MaxReadBytes}, {fs.MaxWriteBytes, &caps.MaxWriteBytes}, {fs.MaxPatchBytes, &caps.MaxPatchBytes},
		{fs.MaxInlineBytes, &caps.MaxInlineBytes}, {fs.MaxGrepResults, &caps.MaxGrepResults}, {fs.MaxGlobResults, &caps.MaxGlobResults},
		{fs.MaxScanFiles, &caps.MaxScanFiles}, {fs.MaxScanBytes, &caps.MaxScanBytes}, {fs.MaxChangedFiles, &caps.MaxChangedFiles},
		{fs.MaxReplacements, &caps.MaxReplacements},
	} {
		if l.granted != 0 {
			*l.cap = &l.granted
		}
	}
	for _, m := range g.Mounts {
		for _, p := range m.Protect {
			caps.ProtectedPaths = append(caps.ProtectedPaths, path.Join(m.GuestPath, p))
		}
	}
	return caps
}

// directories are roots as the worker has them, without the slash at their end.
func directories(list []string) []string {
	out := slices.Clone(list)
	for i, dir := range out {
		if dir != "/" {
			out[i] = strings.TrimSuffix(dir, "/")
		}
	}
	return out
}

// fileConfig bounds the worker by the memory that it shares with the commands of its session.
func fileConfig(g *api.Grant) files.Config {
	share := max(1<<20, g.Ceilings.MemoryBytes/8)
	return files.Config{
		Workdir: cmp.Or(g.Workdir, "/"), Caps: fileCaps(g),
		WholeBytes: min(64<<20, share/2), ReadBytes: min(1<<30, 2*share), WriteBytes: min(1<<30, 2*share), PatchBytes: min(16<<20, share), TextBytes: min(32<<20, share), HeapBytes: 4 * share,
	}
}

// fileDesk is the worker of a session: started on first use and kept, and started again when it has ended.
type fileDesk struct {
	starting sync.Mutex // one at a time
	worker   *fileWorker
}

type fileWorker struct {
	id   string
	conn *files.Conn
	over chan struct{}  // closed when it has been reaped, or nobody waits for that any more
	how  sandbox.Result // once over; ExitCode -1 and no Signal when that is not known
}

// withFiles asks the worker of a session. One that has ended since it was last asked is started anew.
func (s *Supervisor) withFiles(ctx context.Context, ses *session, do func(*files.Conn) (*file.Fault, error)) (*file.Fault, error) {
	w, err := s.files(ctx, ses)
	if err != nil {
		return nil, err
	}
	fault, err := do(w.conn)
	switch {
	case err == nil:
		return fault, nil
	case errors.Is(err, files.ErrGone):
		return nil, s.lostFiles(ses, w)
	case ctx.Err() != nil && s.ctx.Err() == nil:
		return nil, api.Errorf(api.CodeFileWorker, "the file tool did not answer in time; a change is whole or has not happened")
	}
	// It does not speak as it should. What it is is not known any more.
	w.conn.Close()
	return nil, api.Errorf(api.CodeFileWorker, "%v", err)
}

// files returns the worker of a session.
func (s *Supervisor) files(ctx context.Context, ses *session) (*fileWorker, error) {
	desk := &ses.files
	desk.starting.Lock()
	defer desk.starting.Unlock()
	if w := desk.worker; w != nil && !isClosed(w.conn.Gone()) && !isClosed(w.over) {
		return w, nil
	}
	w := &fileWorker{id: newID("f-"), over: make(chan struct{}), how: sandbox.Result{ExitCode: -1}}
	ours, theirs, err := files.Pair()
	if err != nil {
		return nil, err
	}
	proc, err := s.launcher.Start(ctx, sandbox.Exec{Session: ses.id, ID: w.id, Cwd: "/", Files: true}, theirs)
	theirs.Close()
	if err != nil {
		ours.Close()
		return nil, runnerError(err)
	}
	s.background.Go(func() {
		defer ours.Close() // whoever still waits for an answer is told
		s.followFiles(ses, w, proc)
	})
	if w.conn, err = files.Open(ctx, ours, fileConfig(ses.granted()), s.ripgrep); err != nil {
		if errors.Is(err, files.ErrGone) {
			return nil, s.lostFiles(ses, w)
		}
		return nil, api.Errorf(api.CodeFileWorker, "%v", err)
	}
	desk.worker = w
	return w, nil
}

// end ends the worker, if there is one; the next tool starts another.
func (d *fileDesk) end() {
	d.starting.Lock()
	defer d.starting.Unlock()
	if d.worker != nil {
		d.worker.conn.Close()
		d.worker = nil
	}
}

// followFiles waits for the end of a worker: it ends with its socket, with its session, or is killed.
func (s *Supervisor) followFiles(ses *session, w *fileWorker, proc *sandbox.Process) {
	defer close(w.over)
	// Both end with the pipe, at the latest when we close it. It is no execution of the caller's: it takes nobody's place.
	defer proc.Stdout.Close()
	defer proc.Stderr.Close()
	said := make(chan string, 1)
	s.background.Go(func() { _, _ = io.Copy(io.Discard, proc.Stdout) })
	s.background.Go(func() {
		text, _ := io.ReadAll(io.LimitReader(proc.Stderr, keptText))
		said <- string(text)
		_, _ = io.Copy(io.Discard, proc.Stderr)
	})
	select {
	case res, ok := <-proc.Done:
		if ok {
			w.how = res
		}
	case <-ses.closed: // and everything in it has ended
		return
	case <-s.left:
		return
	}
	s.launcher.Forget(ses.id, w.id)
	if w.how.ExitCode != 0 && ses.usable(s.now()) == nil {
		text := ""
		select {
		case text = <-said:
		case <-time.After(drainBackground):
		}
		s.log.Warn("a file worker ended", "session_id", ses.id, "exit_code", w.how.ExitCode, "signal", w.how.Signal, "oom", w.how.OOM, "said", text)
	}
}

// lostFiles says why a worker ended while it was asked.
func (s *Supervisor) lostFiles(ses *session, w *fileWorker) error {
	select {
	case <-w.over:
	case <-time.After(drainLimit):
	}
	if fault := ses.usable(s.now()); fault != nil {
		return fault
	}
	why := "it ended"
	if w.how.OOM {
		why = "it was killed by the memory ceiling of the session"
	} else if w.how.Signal != 0 {
		why = "it was killed"
	}
	return api.Errorf(api.CodeFileWorker, "the worker of the file tools was lost: %s; a change is whole or has not happened", why)
}
