package supervisor

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/stockade-dev/stockade/sandbox"
	"github.com/stockade-dev/stockade/supervisor/api"
)

// How long the look at an overlay may take, and its commit: what lies below may be a file system that hangs.
const (
	diffLimit   = 30 * time.Second
	commitLimit = 10 * time.Minute
)

// diffPage is how many changes one answer has when the caller does not say.
const diffPage = 1000

// overlayOf is the overlay that a caller means, by its inside path; "" means the only one.
func overlayOf(g *api.Grant, asked string) (string, *api.Error) {
	var all []string
	for _, m := range g.Mounts {
		if m.Mode == api.ModeOverlay {
			all = append(all, m.GuestPath)
		}
	}
	switch {
	case slices.Contains(all, asked):
		return asked, nil
	case asked != "":
		return "", api.Errorf(api.CodeNoOverlay, "%s is no overlay of the session", asked)
	case len(all) == 0:
		return "", api.Errorf(api.CodeNoOverlay, "the session has no overlay")
	case len(all) > 1:
		return "", api.Errorf(api.CodeNoOverlay, "the session has %d overlays; guest_path is one of %s", len(all), strings.Join(all, ", "))
	}
	return all[0], nil
}

// host.workspace.diff

// Diff says what an overlay of the caller's has that lies not below it: a page, in order of paths. It changes nothing.
func (s *Supervisor) Diff(ctx context.Context, req *api.Request) (*api.SpaceResult, *api.Receipt, error) {
	var ses *session
	denial, err := s.permitRead(req, func(c *call) (err *api.Error) {
		if ses, err = s.registry.find(req.Principal, req.Space.SessionID); err == nil {
			c.session = ses
		}
		return err
	})
	if denial != nil || err != nil {
		return nil, denial, err
	}
	if fault := ses.usable(s.now()); fault != nil {
		return nil, nil, fault
	}
	target, fault := overlayOf(ses.granted(), req.Space.GuestPath)
	if fault != nil {
		return nil, nil, fault
	}
	looking, cancel := context.WithTimeout(ctx, diffLimit)
	defer cancel()
	changes, more, err := s.launcher.Changes(looking, ses.id, target, req.Space.Last(), int(cmp.Or(req.Space.Limit, diffPage)))
	switch {
	case err == nil:
	case ctx.Err() != nil:
		return nil, nil, context.Cause(ctx)
	case errors.Is(err, context.DeadlineExceeded):
		return nil, nil, api.Errorf(api.CodeRunnerFailed, "the overlay was not read within %v", diffLimit)
	default:
		return nil, nil, runnerError(err)
	}
	r := &api.SpaceResult{Status: "ok", GuestPath: target, More: more, Changes: []api.Change{}}
	for _, c := range changes {
		told := api.Change{Kind: c.Kind, Type: c.Type, Mode: c.Mode, Size: c.Size}
		told.Path, told.PathBytes = api.Spell(c.Path)
		told.Link, told.LinkBytes = api.Spell(c.Link)
		r.Changes = append(r.Changes, told)
	}
	return r, nil, nil
}

// host.workspace.commit and discard

func planSpace(_ *Supervisor, c *call) *refusal {
	var fault *api.Error
	if c.control.overlay, fault = overlayOf(c.session.granted(), c.req.Space.GuestPath); fault != nil {
		return faulted(fault)
	}
	return nil
}

func failedSpace(code api.Code, _ string) api.Payload {
	return api.Payload{Space: &api.SpaceResult{Status: "error", ErrorCode: code}}
}

// withSpace does something to an overlay while nothing starts in the session, and nobody freezes or thaws it.
func (s *Supervisor) withSpace(ctx context.Context, c *call, do func(context.Context, *api.SpaceResult) *api.Error) (api.Payload, *api.Error) {
	ses := c.session
	ses.freezing.Lock()
	defer ses.freezing.Unlock()
	ses.space.Lock()
	defer ses.space.Unlock()
	r := &api.SpaceResult{GuestPath: c.control.overlay}
	fault := ses.usable(s.now())
	if fault == nil {
		ctx, cancel := context.WithTimeout(ctx, commitLimit)
		ses.interruptible(cancel)
		fault = do(ctx, r)
		ses.interruptible(nil)
		cancel()
	}
	if fault != nil {
		r.Status, r.ErrorCode = cmp.Or(r.Status, "error"), fault.Code
	}
	return api.Payload{Space: r}, fault
}

// actCommit makes the changes of an overlay to what lies below. What fails on the way leaves a part of them, and is told
// with how many those are.
func actCommit(ctx context.Context, s *Supervisor, c *call) (api.Payload, *api.Error) {
	return s.withSpace(ctx, c, func(ctx context.Context, r *api.SpaceResult) *api.Error {
		done, err := s.launcher.Commit(ctx, c.session.id, r.GuestPath, c.req.Space.Names())
		r.Status, r.Applied = "committed", done.Applied
		r.Left, r.Dropped = some(done.Left)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, context.DeadlineExceeded):
			r.Status = "partial" // for all that we know
			return api.Errorf(api.CodeRunnerFailed, "the commit was not done within %v; a part of it may be", commitLimit)
		case errors.Is(err, context.Canceled):
			r.Status = "partial"
			return api.Errorf(api.CodeSessionClosed, "the session ended during the commit; a part of it may be done")
		}
		fault := spaceError(err)
		r.Status = "error"
		if done.Applied > 0 || fault.Code == api.CodeRunnerUnavailable {
			r.Status = "partial"
			fault = api.Errorf(fault.Code, "%s; %d changes were made before", fault.Message, done.Applied)
		}
		return fault
	})
}

// keptLeft bounds what a receipt has of the paths that did not change: those are the caller's own words, and he may have
// said a thousand long ones.
const keptLeft = 256

func some(paths []string) (kept []string, dropped int64) {
	for _, p := range paths[:min(len(paths), keptLeft)] {
		kept = append(kept, strings.ToValidUTF8(p, "\uFFFD"))
	}
	return kept, int64(len(paths) - len(kept))
}

// actDiscard empties an overlay. What runs has files of it open, so nothing may run.
func actDiscard(ctx context.Context, s *Supervisor, c *call) (api.Payload, *api.Error) {
	return s.withSpace(ctx, c, func(ctx context.Context, r *api.SpaceResult) *api.Error {
		if live := c.session.busy(); live > 0 {
			return api.Errorf(api.CodeExecActive, "session %s has %d live executions, which may have files of the overlay open; cancel them first", c.session.id, live)
		}
		c.session.files.end() // as with commands: what is mounted now over the place lets only those in that begin later
		err := s.launcher.Discard(ctx, c.session.id, r.GuestPath)
		switch {
		case errors.Is(err, context.DeadlineExceeded):
			return api.Errorf(api.CodeRunnerFailed, "the overlay was not emptied within %v", commitLimit)
		case errors.Is(err, context.Canceled):
			return api.Errorf(api.CodeSessionClosed, "the session ended, and its overlays with it")
		case err != nil:
			return spaceError(err)
		}
		r.Status = "discarded"
		return nil
	})
}

// spaceError is an error of an overlay as the caller sees it.
func spaceError(err error) *api.Error {
	if e, ok := errors.AsType[*sandbox.Error](err); ok && e.Code == sandbox.CodeGone {
		return api.Errorf(api.CodeRunnerUnavailable, "the runner was lost on the way; what became of the overlay is unknown")
	}
	return runnerError(err)
}

// interruptible says how what is done to an overlay is cut short; nil is when nothing is.
func (s *session) interruptible(cancel context.CancelFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cut = cancel; cancel != nil && s.state != stateReady {
		cancel() // the end has begun since it was looked at
	}
}

// interrupt cuts short what is done to an overlay of a session that ends.
func (s *session) interrupt() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cut != nil {
		s.cut()
	}
}

// busy is how many executions live in the session, those that wait for their turn and those that left a process with their
// output included.
func (s *session) busy() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return max(len(s.live), len(s.pipes))
}
