package api

import (
	"slices"

	"github.com/stockade-dev/stockade/sandbox"
)

// check is one rule about requests of one operation. fault returns what is wrong, or "".
type check struct {
	code  Code
	fault func(*Request) string
}

// checks are the rules by operation, in the order in which they are reported. They
// ask nothing of the machine or of policy: a request that fails one is wrong
// everywhere. The parameters that an operation names are there when its checks run.
var checks = map[Op][]check{
	OpSessionOpen: {
		{CodeUnsupportedTarget, func(r *Request) string { return targetFault(r.Open.Target) }},
		{CodeInvalidParams, func(r *Request) string { return negative("session_ttl_ns", r.Open.SessionTTLNS) }},
		{CodeInvalidParams, func(r *Request) string { return negative("idle_timeout_ns", r.Open.IdleNS) }},
		{CodeInvalidParams, func(r *Request) string { return unlisted("on_restart", r.Open.OnRestart, "", "adopt", "terminate") }},
		{CodeInvalidParams, func(r *Request) string { return limitsFault(r.Open.Limits) }},
		{CodeInvalidParams, func(r *Request) string { return degradedFault(r.Open.Degraded) }},
		{CodeInvalidParams, func(r *Request) string { return unlisted("verify", r.Open.Verify, "", "canary") }},
		{CodeInvalidParams, func(r *Request) string { return mismatch("profile", r.Open.Profile, profilePattern) }},
		{CodeInvalidParams, func(r *Request) string { return mismatch("hostname", r.Open.Target.Local.Hostname, hostnamePattern) }},
		{CodeInvalidLabel, func(r *Request) string { return labelsFault(r.Open.Labels) }},
		{CodeInvalidLabel, func(r *Request) string { return scopeFault(r.Open.Scope) }},
		{CodeInvalidRoot, func(r *Request) string { return rootFault(r.Open.Target.Local.Root) }},
		{CodeInvalidMount, func(r *Request) string { return mountsFault(r.Open.Target.Local.Mounts) }},
		{CodeInvalidWorkdir, func(r *Request) string { return optional("workdir", r.Open.Target.Local.Workdir, absFault) }},
		{CodeInvalidEnv, func(r *Request) string { return envFault(r.Open.Target.Local.Env, false) }},
		{CodeInvalidNetworkMode, func(r *Request) string {
			return unlisted("network_mode", r.Open.Target.Local.NetworkMode, append([]string{""}, sandbox.NetworkModes...)...)
		}},
		{CodeInvalidParams, func(r *Request) string {
			return destinationsFault("egress", r.Open.Target.Local.NetworkMode, r.Open.Target.Local.Egress)
		}},
	},
	OpExec: append([]check{{CodeInvalidParams, func(r *Request) string {
		return needless("terminal", r.Exec.Terminal != nil)
	}}}, execChecks...),
	OpShellOpen: append([]check{
		{CodeInvalidParams, func(r *Request) string {
			if r.Exec.Terminal == nil || !r.Exec.StdinOpen {
				return "a shell has a terminal, and what it reads stays open"
			}
			return sizeFault(r.Exec.Terminal.Cols, r.Exec.Terminal.Rows)
		}},
		{CodeInvalidParams, func(r *Request) string { return mismatch("terminal.term", r.Exec.Terminal.Term, termPattern) }},
		{CodeInvalidParams, func(r *Request) string {
			return needless("stdin, stdin_ref and outputs", r.Exec.Stdin != nil || r.Exec.StdinRef != "" || len(r.Exec.Outputs) > 0)
		}},
		{CodeInvalidParams, func(r *Request) string { return needless("wait", r.Exec.Wait != nil) }},
	}, execChecks...),
	OpShellInput: control(
		check{CodeInvalidStdin, func(r *Request) string { return keysFault(r.Keys) }},
		check{CodeInvalidParams, func(r *Request) string { return actionsFault(r.Keys.Actions) }},
		check{CodeInvalidParams, func(r *Request) string { return optional("input_id", r.Keys.InputID, keyFault) }}),
	OpShellResize: control(check{CodeInvalidParams, func(r *Request) string { return sizeFault(r.Resize.Cols, r.Resize.Rows) }}),
	OpShellAttach: control(check{CodeInvalidParams, func(r *Request) string {
		if r.Attach.Cols == 0 && r.Attach.Rows == 0 {
			return ""
		}
		return sizeFault(r.Attach.Cols, r.Attach.Rows)
	}}),
	OpShellRun: control(
		check{CodeInvalidParams, func(r *Request) string { return commandFault(r.Run.Command) }},
		check{CodeInvalidParams, func(r *Request) string { return negative("timeout_ns", r.Run.TimeoutNS) }},
		check{CodeInvalidParams, func(r *Request) string { return optional("input_id", r.Run.InputID, keyFault) }}),
	OpShellClose: control(
		check{CodeInvalidMode, func(r *Request) string { return unlisted("mode", r.Hangup.Mode, "", "graceful", "force") }},
		check{CodeInvalidParams, func(r *Request) string { return graceFault(r.Hangup.GraceNS) }}),
	OpSessionSignal: {
		{CodeSessionNotFound, func(r *Request) string { return idFault("session_id", r.Signal.SessionID) }},
		{CodeInvalidLabel, func(r *Request) string { return scopeFault(r.Signal.Scope) }},
		{CodeInvalidSignal, func(r *Request) string {
			return signalFault(r.Signal.Signal)
		}},
		{CodeInvalidParams, func(r *Request) string { return graceFault(r.Signal.GraceNS) }},
	},
	OpSessionClose: {
		{CodeSessionNotFound, func(r *Request) string { return idFault("session_id", r.Close.SessionID) }},
		{CodeInvalidLabel, func(r *Request) string { return scopeFault(r.Close.Scope) }},
		{CodeInvalidMode, func(r *Request) string { return unlisted("mode", r.Close.Mode, "", "graceful", "force") }},
		{CodeInvalidParams, func(r *Request) string { return graceFault(r.Close.GraceNS) }},
	},
	OpSessionPause:  sessionChecks,
	OpSessionResume: sessionChecks,
	OpSessionNarrow: {
		{CodeSessionNotFound, func(r *Request) string { return idFault("session_id", r.Narrow.SessionID) }},
		{CodeInvalidLabel, func(r *Request) string { return scopeFault(r.Narrow.Scope) }},
		{CodeInvalidNetworkMode, func(r *Request) string {
			return unlisted("network.mode", r.Narrow.Network.Mode, sandbox.NetworkModes...)
		}},
		{CodeInvalidParams, func(r *Request) string {
			return destinationsFault("network.allow", r.Narrow.Network.Mode, r.Narrow.Network.Allow)
		}},
	},
	OpSessionForward: {
		{CodeSessionNotFound, func(r *Request) string { return idFault("session_id", r.Forward.SessionID) }},
		{CodeInvalidLabel, func(r *Request) string { return scopeFault(r.Forward.Scope) }},
		{CodeInvalidParams, func(r *Request) string {
			if r.Forward.Port == 0 {
				return "port is not a number from 1 on"
			}
			return ""
		}},
	},
	OpWorkspaceDiff: space(
		check{CodeInvalidParams, func(r *Request) string { return pageFault(r.Space.Limit) }},
		check{CodeInvalidParams, func(r *Request) string { return optional("after", r.Space.Last(), relFault) }},
		check{CodeInvalidParams, func(r *Request) string { return spellingFault("after_bytes", r.Space.After, r.Space.AfterBytes) }},
		check{CodeInvalidParams, func(r *Request) string { return needless("paths", r.Space.named()) }}),
	OpWorkspaceCommit: space(
		check{CodeInvalidParams, func(r *Request) string { return spellingsFault(r.Space) }},
		check{CodeInvalidParams, func(r *Request) string { return eachFault("paths", r.Space.Names(), relFault) }},
		check{CodeInvalidParams, func(r *Request) string {
			return needless("limit and after", r.Space.paged())
		}}),
	OpWorkspaceDiscard: space(check{CodeInvalidParams, func(r *Request) string {
		return needless("paths, limit and after", r.Space.named() || r.Space.paged())
	}}),
	OpFileRead:   fileChecks,
	OpFileWrite:  fileChecks,
	OpFileEdit:   fileChecks,
	OpFilePatch:  fileChecks,
	OpFileGrep:   fileChecks,
	OpFileGlob:   fileChecks,
	OpFileStat:   fileChecks,
	OpFileExists: fileChecks,
	OpFileList:   fileChecks,
	OpFileMkdir:  fileChecks,
	OpFileMove:   fileChecks,
	OpFileRemove: fileChecks,
	OpProcessInput: control(
		check{CodeInvalidStdin, func(r *Request) string { return inputFault(r.Input) }},
		check{CodeInvalidParams, func(r *Request) string { return optional("input_id", r.Input.InputID, keyFault) }}),
	OpProcessSignal: control(check{CodeInvalidSignal, func(r *Request) string { return signalFault(r.Deliver.Signal) }}),
	OpProcessModify: control(check{CodeInvalidParams, func(r *Request) string {
		if r.Modify.TimeoutNS <= 0 {
			return "timeout_ns is not a number from 1 on"
		}
		return ""
	}}),
	OpProcessPause:  control(),
	OpProcessResume: control(),
	OpProcessDelete: control(),
	OpProcessCancel: control(check{CodeInvalidParams, func(r *Request) string { return graceFault(r.Cancel.GraceNS) }}),
	OpProcessStop: {
		{CodeSessionNotFound, func(r *Request) string { return optional("session_id", r.Stop.SessionID, idFault) }},
		{CodeInvalidLabel, func(r *Request) string { return labelsFault(r.Stop.Labels) }},
		{CodeInvalidLabel, func(r *Request) string { return scopeFault(r.Stop.Scope) }},
		{CodeInvalidParams, func(r *Request) string { return graceFault(r.Stop.GraceNS) }},
	},
	OpDrain: {{CodeInvalidLabel, func(r *Request) string { return scopeFault(r.Drain.Scope) }}},
	OpLogLevel: {
		{CodeInvalidLabel, func(r *Request) string { return scopeFault(r.Log.Scope) }},
		{CodeInvalidParams, func(r *Request) string { return unlisted("level", r.Log.Level, LogLevels...) }},
	},
	OpSettings:       {},
	OpPolicyPreview:  activateChecks,
	OpPolicyActivate: activateChecks,
	OpPolicyStatus:   {},
	OpBlobPut: {
		{CodeInvalidBlobRef, func(r *Request) string { return mismatch("blob_ref", r.Blob.BlobRef, blobPattern) }},
		{CodeInvalidParams, func(r *Request) string { return negative("size_bytes", r.Blob.SizeBytes) }},
	},
	OpBlobGet: {
		{CodeInvalidBlobRef, func(r *Request) string { return required("blob_ref", r.Read.BlobRef, blobPattern) }},
	},
	OpSessionGet: {
		{CodeSessionNotFound, func(r *Request) string { return idFault("session_id", r.Read.SessionID) }},
	},
	OpSessionList: {
		{CodeInvalidLabel, func(r *Request) string { return labelsFault(r.Read.Labels) }},
		{CodeInvalidParams, func(r *Request) string {
			return unlisted("state", r.Read.State, "", "ready", "quiesced", "closing", "closed", "error")
		}},
		{CodeInvalidParams, func(r *Request) string { return pageFault(r.Read.Limit) }},
	},
	OpOutput:         processReadChecks,
	OpShellGet:       processReadChecks,
	OpShellOutput:    processReadChecks,
	OpShellRecording: processReadChecks,
	OpProcessGet:     processReadChecks,
	OpProcessWait:    processReadChecks,
	OpProcessWatch:   processReadChecks,
	OpProcessList: {
		{CodeSessionNotFound, func(r *Request) string { return optional("session_id", r.Read.SessionID, idFault) }},
		{CodeInvalidLabel, func(r *Request) string { return labelsFault(r.Read.Labels) }},
		{CodeInvalidParams, func(r *Request) string {
			return unlisted("state", r.Read.State, "", string(StateQueued), string(StateStarting), string(StateRunning),
				string(StateCompleted), string(StateFailed), string(StateCanceled), string(StateTimedOut))
		}},
		{CodeInvalidParams, func(r *Request) string { return pageFault(r.Read.Limit) }},
	},
	OpSessionEvents: {
		{CodeSessionNotFound, func(r *Request) string { return idFault("session_id", r.Read.SessionID) }},
		{CodeInvalidParams, func(r *Request) string { return pageFault(r.Read.Limit) }},
		{CodeInvalidParams, func(r *Request) string { return waitFault(r.Read.WaitMS) }},
	},
	OpEvents: {
		{CodeInvalidParams, func(r *Request) string { return pageFault(r.Read.Limit) }},
		{CodeInvalidParams, func(r *Request) string { return waitFault(r.Read.WaitMS) }},
	},
	OpIntentGet:    intentReadChecks,
	OpIntentFrames: intentReadChecks,
	OpIntentList: {
		{CodeSessionNotFound, func(r *Request) string { return optional("session_id", r.Read.SessionID, idFault) }},
		{CodeInvalidParams, func(r *Request) string { return pageFault(r.Read.Limit) }},
	},
	OpApprovalList: {
		{CodeInvalidParams, func(r *Request) string {
			return unlisted("state", r.Read.State, "", string(ApprovalWaiting), string(ApprovalApproved), string(ApprovalDenied),
				string(ApprovalTimedOut), string(ApprovalCanceled), string(ApprovalVoid))
		}},
		{CodeInvalidParams, func(r *Request) string { return pageFault(r.Read.Limit) }},
		{CodeInvalidParams, func(r *Request) string { return waitFault(r.Read.WaitMS) }},
	},
	OpApprovalGet: {{CodeApprovalNotFound, func(r *Request) string { return idFault("approval_id", r.Read.Approval) }}},
	OpApprove:     verdict(check{CodeInvalidParams, func(r *Request) string { return required("review", r.Verdict.Review, blobPattern) }}),
	OpDeny:        verdict(check{CodeInvalidParams, func(r *Request) string { return mismatch("review", r.Verdict.Review, blobPattern) }}),

	OpQuiescence: {},
	OpSnapshot:   {},
	OpReceiptGet: {
		{CodeNotFound, func(r *Request) string { return intentFault(r.Read.IntentID) }},
	},
	OpReceiptList:  receiptChecks,
	OpAudit:        receiptChecks,
	OpCheckpoint:   {},
	OpDecide:       {},
	OpHostInfo:     {},
	OpCapabilities: {},
}

var (
	execChecks = []check{
		{CodeSessionNotFound, func(r *Request) string { return idFault("session_id", r.Exec.SessionID) }},
		{CodeInvalidLabel, func(r *Request) string { return scopeFault(r.Exec.Scope) }},
		{CodeArgvEmpty, func(r *Request) string {
			if len(r.Exec.Argv) == 0 || r.Exec.Argv[0] == "" {
				return "argv needs a first element that is not empty"
			}
			return ""
		}},
		{CodeArgvInvalid, func(r *Request) string { return argvFault(r.Exec.Argv) }},
		{CodeInvalidCwd, func(r *Request) string { return optional("cwd", r.Exec.Cwd, pathFault) }},
		{CodeInvalidEnv, func(r *Request) string { return envFault(r.Exec.EnvPatch, true) }},
		{CodeInvalidStdin, func(r *Request) string { return stdinFault(r.Exec) }},
		{CodeInvalidStdinRef, func(r *Request) string { return mismatch("stdin_ref", r.Exec.stdinRef(), blobPattern) }},
		{CodeInvalidParams, func(r *Request) string { return negative("timeout_ns", r.Exec.TimeoutNS) }},
		{CodeInvalidParams, func(r *Request) string { return negative("max_inline_bytes", r.Exec.MaxInline) }},
		{CodeInvalidParams, func(r *Request) string { return limitsFault(r.Exec.Limits) }},
		{CodeInvalidParams, func(r *Request) string { return sessionLimitsFault(r.Exec.Limits) }},
		{CodeInvalidOutputMode, func(r *Request) string {
			return unlisted("output_mode", r.Exec.OutputMode, "", "auto", "require_inline")
		}},
		{CodeInvalidParams, func(r *Request) string { return pathsFault("outputs", r.Exec.Outputs) }},
		{CodeInvalidLabel, func(r *Request) string { return labelsFault(r.Exec.Labels) }},
		{CodeInvalidParams, func(r *Request) string { return waitFault(r.Exec.WaitMS) }},
		{CodeInvalidParams, func(r *Request) string {
			if r.Exec.Wait != nil && r.Exec.WaitMS != 0 {
				return "wait and wait_ms contradict each other"
			}
			return ""
		}},
	}
	sessionChecks = []check{
		{CodeSessionNotFound, func(r *Request) string { return idFault("session_id", r.Session.SessionID) }},
		{CodeInvalidLabel, func(r *Request) string { return scopeFault(r.Session.Scope) }},
	}
	activateChecks = []check{
		{CodeInvalidMode, func(r *Request) string {
			return unlisted("live", r.Activate.Live, "", LiveKeep, LiveNarrow, LiveTerminate)
		}},
		{CodeInvalidParams, func(r *Request) string { return mismatch("digest", r.Activate.Digest, blobPattern) }},
		{CodeInvalidLabel, func(r *Request) string { return scopeFault(r.Activate.Scope) }},
	}
	processReadChecks = []check{
		{CodeExecNotFound, func(r *Request) string { return refFault(&ProcessRef{r.Read.ExecID, r.Read.IntentID}) }},
		{CodeInvalidParams, func(r *Request) string { return waitFault(r.Read.WaitMS) }},
		{CodeInvalidParams, func(r *Request) string { return negative("max_bytes", r.Read.MaxBytes) }},
	}
	receiptChecks = []check{
		{CodeSessionNotFound, func(r *Request) string { return optional("session_id", r.Read.SessionID, idFault) }},
		{CodeExecNotFound, func(r *Request) string { return optional("exec_id", r.Read.ExecID, idFault) }},
		{CodeInvalidParams, func(r *Request) string {
			return unlisted("outcome", string(r.Read.Outcome), "", string(OutcomeOK), string(OutcomeDenied), string(OutcomeFaulted))
		}},
		{CodeInvalidParams, func(r *Request) string { return textFault("op", string(r.Read.Op), maxName) }},
		{CodeInvalidParams, func(r *Request) string { return textFault("code", string(r.Read.Code), maxName) }},
		{CodeInvalidParams, func(r *Request) string { return textFault("rule", r.Read.Rule, maxPath) }},
		{CodeInvalidParams, func(r *Request) string { return optional("path", r.Read.Path, absFault) }},
		{CodeInvalidParams, func(r *Request) string { return unlisted("order", r.Read.Order, "", NewestFirst, OldestFirst) }},
		{CodeInvalidParams, func(r *Request) string { return negative("since_ns", r.Read.SinceNS) }},
		{CodeInvalidParams, func(r *Request) string { return negative("until_ns", r.Read.UntilNS) }},
		{CodeInvalidParams, func(r *Request) string {
			return scopeFault(Scope{AgentID: r.Read.AgentID, WorldID: r.Read.WorldID, ChatID: r.Read.ChatID})
		}},
		{CodeInvalidParams, func(r *Request) string { return pageFault(r.Read.Limit) }},
	}
	intentReadChecks = []check{
		{CodeNotFound, func(r *Request) string { return intentFault(r.Read.IntentID) }},
		{CodeInvalidParams, func(r *Request) string { return waitFault(r.Read.WaitMS) }},
		{CodeInvalidParams, func(r *Request) string { return pageFault(r.Read.Limit) }},
	}
)

// verdict are the checks of a decision about what waits for leave, and its own.
func verdict(own ...check) []check {
	return append([]check{
		{CodeApprovalNotFound, func(r *Request) string { return idFault("approval_id", r.Verdict.ApprovalID) }},
		{CodeInvalidLabel, func(r *Request) string { return scopeFault(r.Verdict.Scope) }},
		{CodeInvalidParams, func(r *Request) string { return textFault("comment", r.Verdict.Comment, maxComment) }},
	}, own...)
}

// control are the checks of an operation on one execution, and its own.
func control(own ...check) []check {
	return append([]check{{CodeExecNotFound, func(r *Request) string { return refFault(r.Ref()) }}}, own...)
}

// space are the checks of an operation on an overlay, and its own.
func space(own ...check) []check {
	return append([]check{
		{CodeSessionNotFound, func(r *Request) string { return idFault("session_id", r.Space.SessionID) }},
		{CodeInvalidLabel, func(r *Request) string { return scopeFault(r.Space.Scope) }},
		{CodeInvalidParams, func(r *Request) string { return optional("guest_path", r.Space.GuestPath, absFault) }},
	}, own...)
}

// Validate returns the first thing that is wrong with r whatever policy says, or nil.
func (r *Request) Validate() *Error {
	rows, ok := checks[r.Op]
	if !ok {
		return Errorf(CodeUnknownMethod, "there is no operation %.80q", string(r.Op))
	}
	if !r.parametersMatch() {
		return Errorf(CodeInvalidParams, "%s needs its own parameters and no others", r.Op)
	}
	if fault := scopeFault(r.Principal.Scope); fault != "" {
		return Errorf(CodeInvalidLabel, "%s", fault)
	}
	if fault := optional("idempotency_key", r.Key, keyFault); fault != "" {
		return Errorf(CodeInvalidParams, "%s", fault)
	}
	for _, c := range rows {
		if fault := c.fault(r); fault != "" {
			return Errorf(c.code, "%s", fault)
		}
	}
	if r.File != nil {
		if err := r.File.fault(); err != nil {
			return err
		}
	}
	return nil
}

// parametersMatch reports whether exactly the member that Op names is set.
func (r *Request) parametersMatch() bool {
	set := map[Op]bool{
		OpSessionOpen:    r.Open != nil,
		OpSessionSignal:  r.Signal != nil,
		OpSessionClose:   r.Close != nil,
		OpProcessInput:   r.Input != nil,
		OpProcessSignal:  r.Deliver != nil,
		OpProcessModify:  r.Modify != nil,
		OpProcessCancel:  r.Cancel != nil,
		OpProcessStop:    r.Stop != nil,
		OpDrain:          r.Drain != nil,
		OpLogLevel:       r.Log != nil,
		OpSessionNarrow:  r.Narrow != nil,
		OpSessionForward: r.Forward != nil,
		OpBlobPut:        r.Blob != nil,
		OpShellInput:     r.Keys != nil,
		OpShellResize:    r.Resize != nil,
		OpShellClose:     r.Hangup != nil,
		OpShellAttach:    r.Attach != nil,
		OpShellRun:       r.Run != nil,
	}
	for _, group := range []struct {
		set bool
		ops []Op
	}{
		{r.Exec != nil, []Op{OpExec, OpShellOpen}},
		{r.Session != nil, []Op{OpSessionPause, OpSessionResume}},
		{r.Process != nil, []Op{OpProcessPause, OpProcessResume, OpProcessDelete}},
		{r.Verdict != nil, []Op{OpApprove, OpDeny}},
		{r.Space != nil, []Op{OpWorkspaceDiff, OpWorkspaceCommit, OpWorkspaceDiscard}},
		{r.Activate != nil, []Op{OpPolicyPreview, OpPolicyActivate}},
		{r.File != nil, fileOps},
	} {
		for _, op := range group.ops {
			set[op] = group.set && (op == r.Op || !slices.Contains(group.ops, r.Op))
		}
	}
	read := true // every other operation is a read
	for op, isSet := range set {
		if isSet != (op == r.Op) {
			return false
		}
		read = read && op != r.Op
	}
	return (r.Read != nil) == read
}
