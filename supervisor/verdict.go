package supervisor

import (
	"cmp"
	"context"
	"io"
	"slices"
	"time"

	"github.com/stockade-dev/stockade/internal/spool"
	"github.com/stockade-dev/stockade/sandbox"
	"github.com/stockade-dev/stockade/supervisor/api"
)

// conclude is the verdict with the outputs filled in.
func (x *execution) conclude(res sandbox.Result, how fate, s *Supervisor) (*api.ExecResult, *api.Error) {
	x.mu.Lock()
	cause, sent := x.cause, x.signal
	x.mu.Unlock()
	if how == reaped && sent == "" && x.held {
		cause, sent = x.endedBefore(res)
	}
	r, fault := verdict(res, how, cause, sent)
	x.log.Seal()
	r.StdoutBytes, r.StderrBytes = x.written()
	if x.shell != nil && fault == nil {
		r.Commands = x.shell.commands()
		if r.Transcript, fault = transcriptOf(x.log); fault != nil {
			r.Transcript = ""
		}
	}
	if recording, e := x.recorded(s); e != nil && fault == nil {
		fault = e
	} else {
		r.Recording = recording
	}
	x.testify(r, res)
	for _, o := range []struct {
		stream spool.Stream
		output **api.Output
	}{{spool.Stdout, &r.Stdout}, {spool.Stderr, &r.Stderr}} {
		out, over, err := materialize(x.log, o.stream, x.plan.form, s.blobs)
		*o.output = out
		switch {
		case err != nil:
			fault = api.Errorf(api.CodeOutputStoreFailed, "%s: %v", o.stream, err)
		case over != nil && fault == nil:
			r.Overflow = over
			fault = api.Errorf(api.CodeInlineRequiredTooLarge, "%s has %d bytes, inline are at most %d", over.Stream, over.SizeBytes, over.LimitBytes)
		}
	}
	if fault != nil {
		r.Status, r.ErrorCode, r.ErrorMessage = "error", fault.Code, fault.Message
	}
	if r.Status != "ok" || r.ExitCode != 0 {
		r.Silent = x.session.silent
	}
	return r, fault
}

// endedBefore is why the supervisor before this one ended the command, when it was killed before it had the end recorded, or even the
// reason: what died of such a signal when its time or its session's was over, died of that.
func (x *execution) endedBefore(res sandbox.Result) (cause api.Code, sent string) {
	name, _ := api.SignalOf(res.Signal)
	if !slices.Contains([]api.SignalName{"TERM", "HUP", "KILL"}, name) || res.OOM {
		return "", ""
	}
	switch {
	case x.progressed.Cause != "":
		return x.progressed.Cause, string(name)
	case x.timeout > 0 && res.Ended.Sub(res.Started) >= x.timeout:
		return api.CodeTimeout, string(name)
	case x.session.expired(res.Ended):
		return api.CodeSessionExpired, string(name)
	}
	return "", ""
}

// transcriptOf is the digest of all that came out of a terminal.
func transcriptOf(log *spool.Log) (string, *api.Error) {
	sum, err := log.Sum()
	if err != nil {
		return "", api.Errorf(api.CodeOutputStoreFailed, "transcript: %v", err)
	}
	return sum, nil
}

// testify adds to a result what the layers say: which ceilings were reached, what was refused, and what went
// through the relay.
func (x *execution) testify(r *api.ExecResult, res sandbox.Result) {
	r.LimitsHit = x.hits(res, r.ErrorCode, time.Duration(r.Usage.WallNS))
	r.Denials, r.Dropped = refused(res)
	r.Network = traffic(res.Network, x.session.granted().Network)
	explain(r, res)
}

// verdict says how a command ended. cause is why the supervisor ended it,
// sent the last signal that it used.
func verdict(res sandbox.Result, how fate, cause api.Code, sent string) (*api.ExecResult, *api.Error) {
	if sent == "" {
		cause = "" // it ended by itself before the reason could take effect
	}
	r := &api.ExecResult{Status: "ok", ExitCode: res.ExitCode, Usage: usage(res.Usage)}
	r.StartedAtNS, r.StartedAt = stamp(res.Started)
	r.EndedAtNS, r.EndedAt = stamp(res.Ended)
	if how == reaped {
		r.Usage.WallNS = int64(res.Ended.Sub(res.Started))
	}
	if res.Signal != 0 {
		name, _ := api.SignalOf(res.Signal)
		r.Status, r.ExitCode, r.Signal = "signaled", -1, string(name)
	}
	switch {
	case how == stuck:
		r.ExitCode = -1
		return r, api.Errorf(api.CodeWaitFailed, "the tree was killed and did not end within %v", reapLimit)
	case how == lost:
		r.ExitCode = -1
		return r, api.Errorf(api.CodeRunnerUnavailable, "the runner was lost while the command ran; how it ended is unknown")
	case cause == api.CodeSpawnFailed:
		r.ExitCode = -1
		return r, api.Errorf(api.CodeSpawnFailed, "the command was kept from starting for %v and was killed", startLimit)
	case cause == api.CodeTimeout, cause == api.CodeSessionExpired, cause == api.CodeSessionIdle:
		r.Status, r.ExitCode, r.ErrorCode = "timeout", -1, cause
		r.Signal = cmp.Or(r.Signal, sent)
	case cause != "":
		r.Status, r.ExitCode, r.ErrorCode = "signaled", -1, cause
		r.Signal = cmp.Or(r.Signal, sent)
	case res.OOM && (res.Signal != 0 || res.ExitCode != 0):
		// A command that died of its child's death by the memory ceiling exits by
		// itself: its exit code stays, and the reason is named (R054).
		r.ErrorCode = api.CodeOOMKilled
	}
	return r, nil
}

func usage(u sandbox.Usage) api.Usage {
	return api.Usage{CPUNS: int64(u.CPU), PeakMemoryBytes: u.PeakMemory, OOMKills: u.OOMKills}
}

// execFailed is the result of a command that was not started.
func execFailed(code api.Code) *api.ExecResult {
	return &api.ExecResult{Status: "error", ExitCode: -1, ErrorCode: code}
}

// collect stores the files that the caller wants back. A path that cannot be had is
// said in its artifact; only a failing store is a fault. All of them together are no more
// than one stream may be: a file costs a session nothing to make large, and us its size.
func (x *execution) collect(ctx context.Context, s *Supervisor, r *api.ExecResult) *api.Error {
	if len(x.req.Outputs) == 0 {
		return nil
	}
	paths := make([]string, len(x.req.Outputs))
	for i, p := range x.req.Outputs {
		paths[i] = resolve(x.session.granted().Workdir, p)
	}
	files, err := s.launcher.Collect(ctx, x.session.id, paths)
	defer func() {
		for _, f := range files {
			if f.File != nil {
				f.File.Close()
			}
		}
	}()
	if err != nil {
		return runnerError(err)
	}
	room := x.plan.output
	for _, f := range files {
		a := api.Artifact{Path: f.Path, SizeBytes: f.Size, Mode: f.Mode, ErrorCode: api.Code(f.Err)}
		if a.ErrorCode == "not_found" {
			a.ErrorCode = api.CodePathNotFound
		}
		switch {
		case f.File == nil:
		case f.Size > room:
			a.ErrorCode = api.CodeTooLarge
		default:
			room -= f.Size
			// Not beyond the size that it had: something inside may be writing it for ever.
			if a.BlobRef, a.SizeBytes, err = s.blobs.Put(io.LimitReader(f.File, f.Size), ""); err != nil {
				return api.Errorf(api.CodeBlobFailed, "store %s: %v", f.Path, err)
			}
		}
		r.Outputs = append(r.Outputs, a)
	}
	return nil
}
