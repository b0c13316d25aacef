package api

import (
	"fmt"

	"github.com/stockade-dev/stockade/sandbox/file"
)

// Code is a stable, machine-readable error or denial code. Codes are never
// reused for another meaning. Policies may deny with codes of their own; those of
// this package are in [Codes].
type Code string

// The codes.
const (
	// Documents: what does not decode is answered with these and leaves no record.
	CodeDecodeError          Code = "decode_error"
	CodeUnknownMember        Code = "unknown_member"
	CodeDuplicateMember      Code = "duplicate_member"
	CodeTooLarge             Code = "too_large"
	CodeTooDeep              Code = "too_deep"
	CodeLengthRequired       Code = "length_required"
	CodeInvalidHeader        Code = "invalid_header"
	CodeUnsupportedMediaType Code = "unsupported_media_type"
	CodeUnknownMethod        Code = "unknown_method"
	CodeMethodNotAllowed     Code = "method_not_allowed"
	CodeNotFound             Code = "not_found"
	CodeUnauthenticated      Code = "unauthenticated"
	CodeTooManyConnections   Code = "too_many_connections"
	CodeTooManyRequests      Code = "too_many_requests"
	CodeShuttingDown         Code = "shutting_down"
	CodeInternalError        Code = "internal_error"

	// Requests: well formed, but not something that can be done.
	CodeInvalidParams      Code = "invalid_params"
	CodeUnsupportedTarget  Code = "unsupported_target"
	CodeInvalidNetworkMode Code = "invalid_network_mode"
	CodeInvalidRoot        Code = "invalid_root"
	CodeInvalidMount       Code = "invalid_mount"
	CodeInvalidWorkdir     Code = "invalid_workdir"
	CodeInvalidEnv         Code = "invalid_env"
	CodeInvalidLabel       Code = "invalid_label"
	CodeArgvEmpty          Code = "argv_empty"
	CodeArgvInvalid        Code = "argv_invalid"
	CodeInvalidCwd         Code = "invalid_cwd"
	CodeInvalidOutputMode  Code = "invalid_output_mode"
	CodeInvalidStdin       Code = "invalid_stdin"
	CodeInvalidStdinRef    Code = "invalid_stdin_ref"
	CodeInvalidBlobRef     Code = "invalid_blob_ref"
	CodeInvalidSignal      Code = "invalid_signal"
	CodeInvalidMode        Code = "invalid_mode"
	CodeStdinRefNotFound   Code = "stdin_ref_not_found"
	CodeBlobMismatch       Code = "blob_mismatch"
	CodeSessionNotFound    Code = "session_not_found"
	CodeSessionClosed      Code = "session_closed"
	CodeSessionExpired     Code = "session_expired"
	CodeSessionLimit       Code = "session_limit_exceeded"
	CodeExecLimit          Code = "exec_limit_exceeded"
	CodeExecNotFound       Code = "exec_not_found"
	CodeExecEnded          Code = "exec_ended"
	CodeExecNotStarted     Code = "exec_not_started"
	CodeExecActive         Code = "active_process_conflict"
	CodeQueueFull          Code = "queue_full"
	CodeSessionPaused      Code = "session_paused"
	CodeStdinClosed        Code = "stdin_closed"
	CodeStdinFull          Code = "stdin_full"
	CodeNoShell            Code = "no_shell"
	CodeNotRecorded        Code = "not_recorded"
	CodeNotListening       Code = "not_listening"
	CodeForwardEnded       Code = "forward_ended"
	CodeShellClosed        Code = "shell_closed"
	CodeWriterHeld         Code = "writer_held"
	CodeShellBusy          Code = "shell_busy"
	CodeInvalidToken       Code = "invalid_token"
	CodeTerminalFailed     Code = "terminal_failed"
	CodeKeyConflict        Code = "idempotency_conflict"
	CodeKeyInFlight        Code = "idempotency_in_flight"
	CodeDraining           Code = "draining"
	CodeLogFixed           Code = "log_fixed"
	CodeApprovalNotFound   Code = "approval_not_found"
	CodeApprovalSettled    Code = "approval_settled"
	CodeApprovalReview     Code = "approval_review_mismatch"
	CodeApprovalLimit      Code = "approval_limit_exceeded"
	CodeInvalidCursor      Code = "invalid_cursor"
	CodeGone               Code = "gone"
	CodeUnknownTool        Code = "unknown_tool"
	CodePolicyFixed        Code = "policy_fixed"
	CodePolicyRefused      Code = "policy_refused"
	CodePolicyUntrusted    Code = "policy_untrusted"
	CodePolicyRollback     Code = "policy_rollback"
	CodePolicyChanged      Code = "policy_changed"
	CodePolicyBlocked      Code = "policy_blocked"

	// Executions: it started, or should have.
	CodeSpawnFailed            Code = "spawn_failed"
	CodeTimeout                Code = "timeout"
	CodeOOMKilled              Code = "oom_killed"
	CodePIDsExceeded           Code = "pids_exceeded"
	CodeCPUTimeExceeded        Code = "cpu_time_exceeded"
	CodeDiskExceeded           Code = "disk_exceeded"
	CodeOutputExceeded         Code = "output_exceeded"
	CodeInlineRequiredTooLarge Code = "inline_required_too_large"
	CodeInlineForbidden        Code = "inline_forbidden_by_policy"
	CodeOutputStoreFailed      Code = "output_store_failed"
	CodeWaitFailed             Code = "wait_failed"
	CodeCanceled               Code = "canceled"
	CodeSessionIdle            Code = "session_idle"
	CodeLost                   Code = "lost"
	CodeMissingDependency      Code = "missing_cas_dependency"
	CodeSupervisorRestarted    Code = "supervisor_restarted"
	CodeJournalFailed          Code = "journal_failed"
	CodeBlobFailed             Code = "blob_failed"
	CodeInvalidPayload         Code = "receipt.invalid_payload"

	// Artifacts: why a path of outputs did not come back.
	CodeNotRegular   Code = "not_regular"
	CodePathNotFound Code = "path_not_found"

	// File tools. The others are those of package file.
	CodeFileWorker Code = "file_worker_lost"

	// Runner: what the privileged side refuses or fails at.
	CodeInvalidSpec        Code = "invalid_spec"
	CodeCeilingExceeded    Code = "ceiling_exceeded"
	CodeMountSource        Code = "mount_source"
	CodeMountSourceChanged Code = "mount_source_changed"
	CodeMountTarget        Code = "mount_target"
	CodeUnsupportedByHost  Code = "unsupported_by_host"
	CodeNotEnforced        Code = "not_enforced"
	CodeProtectedPath      Code = "protected_path"
	CodeNoOverlay          Code = "no_overlay"
	CodeCommitConflict     Code = "commit_conflict"
	CodeNetworkFailed      Code = "network_failed"
	CodeRunnerFailed       Code = "runner_failed"
	CodeRunnerUnavailable  Code = "runner_unavailable"

	// Denials: policy or the ceiling said no, and nothing was started.
	CodeApprovalDenied       Code = "approval_denied"
	CodeApprovalTimeout      Code = "approval_timeout"
	CodeApprovalStale        Code = "approval_stale"
	CodeApprovalOwn          Code = "approval_own_request"
	CodeApproverNotAllowed   Code = "approver_not_allowed"
	CodePolicyDenied         Code = "policy.denied"
	CodePolicyUndefined      Code = "policy.undefined"
	CodePolicyError          Code = "policy.error"
	CodePolicyTimeout        Code = "policy.timeout"
	CodePolicyQuarantined    Code = "policy.quarantined"
	CodePolicyWorker         Code = "policy.worker"
	CodePolicyBuiltinError   Code = "policy.builtin_error"
	CodePolicyNotOneResult   Code = "policy.not_one_result"
	CodePolicyResult         Code = "policy.malformed_result"
	CodePolicyLost           Code = "policy.revision_lost"
	CodePolicyInput          Code = "policy.malformed_input"
	CodePolicyInputTooLarge  Code = "policy.input_too_large"
	CodePolicyNoGrant        Code = "policy.no_grant"
	CodeGrantExceeds         Code = "policy.grant_exceeds"
	CodeGrantIncomplete      Code = "policy.grant_incomplete"
	CodeExpired              Code = "expired"
	CodeTargetNotAllowed     Code = "target_not_allowed"
	CodeRootNotAllowed       Code = "root_not_allowed"
	CodeNetworkNotAllowed    Code = "network_mode_not_allowed"
	CodeMountLimit           Code = "mount_limit_exceeded"
	CodeMountModeNotAllowed  Code = "mount_mode_not_allowed"
	CodeMountHostPath        Code = "mount_host_path_not_allowed"
	CodeMountGuestPath       Code = "mount_guest_path_not_allowed"
	CodeWorkdirNotAllowed    Code = "workdir_not_allowed"
	CodeEnvLimit             Code = "env_limit_exceeded"
	CodeEnvPatchLimit        Code = "env_patch_limit_exceeded"
	CodeEnvVarNotAllowed     Code = "env_var_not_allowed"
	CodeArgvLimit            Code = "argv_limit_exceeded"
	CodeArgLength            Code = "arg_length_exceeded"
	CodeCwdNotAllowed        Code = "cwd_not_allowed"
	CodeOutputModeNotAllowed Code = "output_mode_not_allowed"
	CodeOutputNotAllowed     Code = "output_not_allowed"
	CodeSignalNotAllowed     Code = "signal_not_allowed"
	CodeForwardNotAllowed    Code = "forward_not_allowed"
	CodeShellNotAllowed      Code = "shell_not_allowed"
	CodeScopeRequired        Code = "scope_required"
	CodeBackgroundNotAllowed Code = "background_not_allowed"
	CodeProfileNotAllowed    Code = "profile_not_allowed"
	CodeHostnameNotAllowed   Code = "hostname_not_allowed"
	CodeOperationNotAllowed  Code = "operation_not_allowed"
	CodeDestination          Code = "destination_not_allowed"
	CodeDegradedNotAllowed   Code = "degraded_not_allowed"
	CodeNotNarrower          Code = "not_narrower"
	CodeHermeticRoot         Code = "hermetic_root"
	CodeEscalation           Code = "escalation_not_allowed"
)

// CodeInfo says what a code means.
type CodeInfo struct {
	Code   Code
	Status int    // of the HTTP answer when this code is why the operation failed
	Text   string // one sentence
}

// Codes is the table of codes; docs/api/errors.md is made from it.
var Codes = []CodeInfo{
	// Documents: what does not decode is answered with these and leaves no record.
	{CodeDecodeError, 400, "The body is not a JSON document of the expected shape; the message names the place."},
	{CodeUnknownMember, 400, "An object has a member that its type does not have. Names are case-sensitive."},
	{CodeDuplicateMember, 400, "An object has the same member twice."},
	{CodeTooLarge, 413, "The body is larger than the limit."},
	{CodeTooDeep, 400, "Objects and arrays are nested deeper than the limit."},
	{CodeLengthRequired, 411, "The size of the content has to be announced."},
	{CodeInvalidHeader, 400, "A header, or a parameter of the URL, cannot be used as it stands."},
	{CodeUnsupportedMediaType, 415, "The content type or content encoding is not accepted."},
	{CodeUnknownMethod, 404, "There is no such route or operation."},
	{CodeMethodNotAllowed, 405, "The route exists, but not with this verb."},
	{CodeNotFound, 404, "There is no such object, or it belongs to somebody else."},
	{CodeUnauthenticated, 401, "The kernel did not say who the peer is."},
	{CodeTooManyConnections, 503, "The limit of connections is reached."},
	{CodeTooManyRequests, 429, "The caller has as many requests under way, or as many bytes of them, as one user may; there is room when some are answered."},
	{CodeShuttingDown, 503, "The supervisor is stopping and takes no new work."},
	{CodeInternalError, 500, "The supervisor failed; its log says more. The operation is settled as faulted."},

	// Requests: well formed, but not something that can be done.
	{CodeInvalidParams, 400, "A parameter has a value that it cannot have; the message names it."},
	{CodeUnsupportedTarget, 422, "The target names no arm, or one that this version does not build."},
	{CodeInvalidNetworkMode, 400, "The network mode is none of none, egress and full."},
	{CodeInvalidRoot, 400, "The root has two arms, or a path that cannot be a root."},
	{CodeInvalidMount, 400, "A mount is not ro, rw or overlay between two absolute, clean paths, or a target occurs twice."},
	{CodeInvalidWorkdir, 400, "The working directory is not an absolute path, or does not exist inside."},
	{CodeInvalidEnv, 400, "An environment name or value cannot be passed to a process."},
	{CodeInvalidLabel, 400, "Labels or scope are too many, too long, or contain characters that labels cannot."},
	{CodeArgvEmpty, 400, "argv is empty, or its first element is."},
	{CodeArgvInvalid, 400, "An element of argv contains a NUL byte."},
	{CodeInvalidCwd, 400, "The working directory of the execution cannot be used."},
	{CodeInvalidOutputMode, 400, "output_mode is neither auto nor require_inline."},
	{CodeInvalidStdin, 400, "stdin has no arm, or more than one, or contradicts stdin_ref."},
	{CodeInvalidStdinRef, 400, "The reference of stdin is not sha256: and 64 hexadecimal digits."},
	{CodeInvalidBlobRef, 400, "The reference is not sha256: and 64 hexadecimal digits."},
	{CodeInvalidSignal, 400, "There is no signal of this name or number."},
	{CodeInvalidMode, 400, "The mode is none of those that the operation has."},
	{CodeStdinRefNotFound, 404, "There is no blob with the reference of stdin."},
	{CodeBlobMismatch, 409, "The content does not have the digest that was announced."},
	{CodeSessionNotFound, 404, "There is no such session, or it belongs to somebody else."},
	{CodeSessionClosed, 409, "The session has ended."},
	{CodeSessionExpired, 409, "The session has reached the end of its life."},
	{CodeSessionLimit, 429, "The limit of live sessions is reached."},
	{CodeExecLimit, 429, "A session, or a user over all sessions, has as many executions at once as it may, or their requests are too large together."},
	{CodeExecNotFound, 404, "There is no such execution, or it belongs to somebody else."},
	{CodeExecEnded, 409, "The execution has ended."},
	{CodeExecNotStarted, 409, "The execution waits for its turn, or has not come to run yet."},
	{CodeExecActive, 409, "The execution has not ended; cancel it first."},
	{CodeQueueFull, 429, "The session runs as many executions as it may, and as many as may wait are waiting; or as much waits to be typed into a shell as may."},
	{CodeSessionPaused, 409, "The session is paused; resume it first."},
	{CodeStdinClosed, 409, "The execution was not started with stdin_open, or its stdin has been closed."},
	{CodeStdinFull, 429, "The command does not read; a part of the input was written, and the payload says how much."},
	{CodeNotListening, 409, "Nothing listens on the port inside the session."},
	{CodeForwardEnded, 404, "The forwarding has ended, or there never was one of this name."},
	{CodeNotRecorded, 404, "The shell was not recorded, or its recording is not kept any more."},
	{CodeNoShell, 409, "The execution is not a shell: it has no terminal."},
	{CodeWriterHeld, 409, "Somebody is attached to the shell and types; takeover makes him an observer."},
	{CodeShellBusy, 409, "The shell was not at its prompt in time, or does not say when it is."},
	{CodeInvalidToken, 400, "The token is not one that was given out for this shell."},
	{CodeKeyConflict, 409, "The idempotency key was used for another request."},
	{CodeKeyInFlight, 409, "The request with this idempotency key is in flight; its receipt can be waited for."},
	{CodePolicyFixed, 409, "The policy came with the supervisor, or with its start, and there is no place to read another from."},
	{CodePolicyRefused, 422, "The candidate does not load, lacks what its contract asks for, or fails its own tests. Nothing has changed."},
	{CodePolicyUntrusted, 422, "The candidate is not signed by a key that is trusted, or somebody else could have written it. Nothing has changed."},
	{CodePolicyRollback, 409, "The candidate is older than a revision that was active. Nothing has changed."},
	{CodePolicyChanged, 409, "The candidate is another one than was meant. Nothing has changed."},
	{CodePolicyBlocked, 409, "Open intents keep the candidate from being activated strictly; the payload says which. Nothing has changed."},
	{CodeDraining, 503, "The supervisor is being drained and takes no new sessions and executions."},
	{CodeLogFixed, 409, "The log was set up by whoever embeds the supervisor, and its level does not change."},
	{CodeApprovalNotFound, 404, "There is no such approval, or it is not for the caller to see."},
	{CodeApprovalSettled, 409, "It has been decided already, and otherwise; the payload says how."},
	{CodeApprovalReview, 409, "The review token is not that of what waits; look at it again."},
	{CodeApprovalLimit, 429, "As many operations of the user wait for leave as may, or he has asked for leave too often in a short time."},
	{CodeInvalidCursor, 400, "The cursor is not one that was given out for this stream."},
	{CodeGone, 410, "The position is not kept any more; the answer says what is."},
	{CodeUnknownTool, 404, "The profile has no tool of this name."},

	// Executions: it started, or should have.
	{CodeSpawnFailed, 422, "The command could not be started inside; the message has the reason."},
	{CodeTimeout, 200, "The execution reached its time limit and was killed with its whole tree."},
	{CodeOOMKilled, 200, "The execution was killed by the memory ceiling."},
	{CodePIDsExceeded, 200, "The execution could not make a process: the ceiling of processes was reached."},
	{CodeCPUTimeExceeded, 200, "The execution used as much processor time as it, or its session, may, and was killed."},
	{CodeDiskExceeded, 200, "A private file system of the session was full."},
	{CodeOutputExceeded, 200, "The execution wrote more than is kept; the rest was counted and dropped."},
	{CodeInlineRequiredTooLarge, 422, "The output does not fit inline, although inline was required; the exit code is real."},
	{CodeInlineForbidden, 403, "Inline was required, but policy wants blobs."},
	{CodeOutputStoreFailed, 500, "The output could not be stored."},
	{CodeWaitFailed, 502, "The supervisor lost track of the execution; how it ended is unknown."},
	{CodeShellClosed, 200, "The shell was closed by host.shell.close."},
	{CodeCanceled, 200, "The caller canceled the execution."},
	{CodeSessionIdle, 200, "The session was idle for too long, and the execution ended with it."},
	{CodeLost, 503, "The supervisor restarted, and the runner no longer had the execution; how it ended is unknown."},
	{CodeMissingDependency, 500, "A record names a blob that is not there."},
	{CodeSupervisorRestarted, 503, "The supervisor restarted while the operation was in flight."},
	{CodeJournalFailed, 503, "The journal cannot be written; no further work is taken."},
	{CodeBlobFailed, 500, "The blob store failed."},
	{CodeInvalidPayload, 500, "What the operation returned cannot be recorded. It took place, and its receipt says no more."},

	// Artifacts: why a path of outputs did not come back.
	{CodeNotRegular, 422, "The path inside is not a regular file."},
	{CodePathNotFound, 404, "The path does not exist inside."},

	// File tools: what they answer, and why they could not.
	{CodeFileWorker, 503, "What serves the file tools inside ended, or could not be started; a change that was under way is whole or has not happened."},
	{Code(file.CodeInvalidPath), 400, "The path is empty, too long, or has a NUL."},
	{Code(file.CodeInvalidEncoding), 400, "The encoding is neither utf8 nor bytes."},
	{Code(file.CodeInvalidContent), 400, "The content has no arm, or more than one."},
	{Code(file.CodeInvalidUTF8), 422, "The file, or the range of it, is no UTF-8 text."},
	{Code(file.CodeForbidden), 403, "The file system refuses it to the identity of the session."},
	{Code(file.CodePathForbidden), 403, "A path of the patch is not allowed."},
	{Code(file.CodeParentMissing), 404, "The directory of the path does not exist, and was not to be made."},
	{Code(file.CodeNotDirectory), 422, "A component of the path, or what is at it, is no directory."},
	{Code(file.CodeIsDirectory), 422, "What is at the path is a directory."},
	{Code(file.CodeFileExists), 409, "There is something at the path already."},
	{Code(file.CodeNotEmpty), 409, "The directory is not empty."},
	{Code(file.CodeHashMismatch), 409, "The file does not have the digest that was expected."},
	{Code(file.CodeChanged), 409, "Somebody else changed the file meanwhile; nothing was written."},
	{Code(file.CodeReadFailed), 500, "The file could not be read."},
	{Code(file.CodeWriteFailed), 500, "The file could not be written; it is what it was."},
	{Code(file.CodeDeleteFailed), 500, "The file could not be removed."},
	{Code(file.CodeNoSpace), 507, "The file system is full, or a quota is reached; the file is what it was."},
	{Code(file.CodeReadOnly), 403, "The file system is read-only."},
	{Code(file.CodeNotKept), 422, "Owner, mode or attributes of the file cannot be given to its successor; the file is what it was."},
	{Code(file.CodeIOError), 500, "The file system failed."},
	{Code(file.CodeCrossDevice), 422, "The two paths are on different file systems."},
	{Code(file.CodeTooLarge), 413, "The file is too large for a tool that needs the whole of it."},
	{Code(file.CodeEmptyOldString), 400, "The text to be replaced is empty."},
	{Code(file.CodeEditNotFound), 404, "The text to be replaced is not in the file; the payload names what comes nearest."},
	{Code(file.CodeAmbiguous), 409, "The text to be replaced is in the file more than once; the payload says where."},
	{Code(file.CodePatchFormat), 400, "The format of a patch is neither v4a nor unified."},
	{Code(file.CodeInvalidPatch), 400, "The patch is no text."},
	{Code(file.CodePatchEmpty), 400, "The patch is empty."},
	{Code(file.CodePatchParse), 422, "The patch cannot be read; the payload says where."},
	{Code(file.CodeAddExists), 409, "A file that the patch adds is there already."},
	{Code(file.CodeDeleteNotFound), 404, "A file that the patch deletes is not there."},
	{Code(file.CodeUpdateNotFound), 404, "A file that the patch updates is not there."},
	{Code(file.CodeUpdateNotUTF8), 422, "A file that the patch updates is no UTF-8 text."},
	{Code(file.CodeHunkRejected), 409, "A hunk of the patch does not fit its file; the payload says where. Nothing was written."},
	{Code(file.CodeMoveExists), 409, "Where the patch moves a file to, there is one already."},
	{Code(file.CodeInvalidRegex), 400, "The pattern is no regular expression."},
	{Code(file.CodeInvalidGlobFilter), 400, "The filter is no glob."},
	{Code(file.CodeInvalidPattern), 400, "The pattern is no glob."},
	{Code(file.CodeGrepFailed), 500, "The search could not be carried out."},
	{Code(file.CodeGlobFailed), 500, "The search could not be carried out."},
	{Code(file.CodeStatFailed), 500, "What is at the path could not be looked at."},
	{Code(file.CodeListFailed), 500, "The directory could not be listed."},
	{Code(file.CodeScanFiles), 403, "The search would look at more files than granted; what was found until then is told."},
	{Code(file.CodeScanBytes), 403, "The search would look at more bytes than granted; what was found until then is told."},
	{Code(file.CodeOpNotAllowed), 403, "No file tool of this class is granted."},
	{Code(file.CodePathNotAllowed), 403, "The path leads out of the roots that are granted, or where nothing may be changed."},
	{Code(file.CodeLinkNotAllowed), 403, "A symbolic link is on the way, and it is not followed."},
	{Code(file.CodeFormatNotAllowed), 403, "The format of the patch is not granted."},
	{Code(file.CodeWriteBytes), 403, "More bytes than granted to one file."},
	{Code(file.CodePatchBytes), 403, "The patch is larger than granted."},
	{Code(file.CodeChangedFiles), 403, "The patch changes more files than granted."},
	{Code(file.CodeReplacements), 403, "The edit replaces more than granted."},
	{Code(file.CodeInvalidFollow), 400, "The policy of symbolic links is none of deny, within_root_only and allow."},

	// Runner: what the privileged side refuses or fails at.
	{CodeInvalidSpec, 500, "The runner was asked for a sandbox that is not well formed; this is a fault of the supervisor."},
	{CodeCeilingExceeded, 403, "More than the operator's ceiling, whatever policy says."},
	{CodeMountSource, 422, "A host path cannot be reached under the caller's own identity."},
	{CodeMountSourceChanged, 409, "A host path is no longer the object that was judged."},
	{CodeMountTarget, 422, "A path inside cannot be a mount target."},
	{CodeUnsupportedByHost, 501, "The kernel lacks what the grant demands; nothing was downgraded."},
	{CodeNotEnforced, 502, "Read back from the kernel, a layer was not in force; the session was torn down."},
	{CodeTerminalFailed, 429, "No terminal can be had: the session has as many as it may, or the host has."},
	{CodeProtectedPath, 422, "A path that must be protected cannot be: it is a symbolic link or a device, or cannot be reserved."},
	{CodeNoOverlay, 404, "There is no overlay at this path inside, or more than one and none was named."},
	{CodeCommitConflict, 409, "What lies below the overlay has changed in a way that cannot be written over; the payload says how far the commit came."},
	{CodeNetworkFailed, 502, "The network of the session could not be had."},
	{CodeRunnerFailed, 502, "A step of building the sandbox failed; the message says which."},
	{CodeRunnerUnavailable, 503, "The runner cannot be reached, and with it every session is gone."},

	// Denials: policy or the ceiling said no, and nothing was started.
	{CodeApprovalDenied, 403, "Somebody whose leave it needed has denied it; the receipt says who."},
	{CodeApprovalTimeout, 403, "Nobody gave leave in time."},
	{CodeApprovalStale, 403, "Leave was given, and what would be done is not any more what was reviewed; ask again."},
	{CodeApprovalOwn, 403, "Nobody gives himself leave."},
	{CodeApproverNotAllowed, 403, "The caller is none of those whose leave it needs."},
	{CodePolicyDenied, 403, "Policy did not allow it and gave no reason of its own."},
	{CodePolicyUndefined, 403, "Policy has no answer to the question."},
	{CodePolicyError, 403, "The evaluation of policy failed."},
	{CodePolicyTimeout, 403, "The evaluation of policy took too long."},
	{CodePolicyQuarantined, 403, "The policy was late too often and is not asked until it is replaced."},
	{CodePolicyLost, 403, "The revision of the policy by which the session is judged is not there any more."},
	{CodePolicyWorker, 403, "The process that evaluates policy ended over the question, gave what is no answer, or none was free."},
	{CodePolicyBuiltinError, 403, "A builtin function failed during the evaluation, so its result is not trusted."},
	{CodePolicyNotOneResult, 403, "Rules of the policy contradict each other."},
	{CodePolicyResult, 403, "The answer of policy has an unknown member, a wrong type or a value out of range."},
	{CodePolicyInput, 403, "The request cannot be shown to policy."},
	{CodePolicyInputTooLarge, 403, "The request is larger than policy judges."},
	{CodePolicyNoGrant, 403, "Policy allowed the session but granted nothing."},
	{CodeGrantExceeds, 403, "Policy granted more than the operator's ceiling, or more than was asked for."},
	{CodeGrantIncomplete, 403, "Neither policy nor the ceiling bounds something that every session has bounded."},
	{CodeExpired, 403, "The grant has ended."},
	{CodeTargetNotAllowed, 403, "The target is not granted."},
	{CodeRootNotAllowed, 403, "The root is not granted."},
	{CodeNetworkNotAllowed, 403, "The network mode is not granted."},
	{CodeMountLimit, 403, "More mounts than granted."},
	{CodeMountModeNotAllowed, 403, "The mode of a mount is not granted."},
	{CodeMountHostPath, 403, "The host path of a mount is not granted."},
	{CodeMountGuestPath, 403, "The inside path of a mount is not granted."},
	{CodeWorkdirNotAllowed, 403, "The working directory is not granted."},
	{CodeEnvLimit, 403, "More environment variables than granted."},
	{CodeEnvPatchLimit, 403, "More environment variables than granted to an execution."},
	{CodeEnvVarNotAllowed, 403, "The name of an environment variable is not granted."},
	{CodeArgvLimit, 403, "More arguments than granted."},
	{CodeArgLength, 403, "An argument is longer than granted."},
	{CodeCwdNotAllowed, 403, "The working directory of the execution is not granted."},
	{CodeOutputModeNotAllowed, 403, "The output mode is not granted."},
	{CodeOutputNotAllowed, 403, "A path of outputs is not granted."},
	{CodeForwardNotAllowed, 403, "The port is not one that the grant opens to the owner of the session."},
	{CodeShellNotAllowed, 403, "The grant has no shells; commands are another thing."},
	{CodeSignalNotAllowed, 403, "The signal is not granted."},
	{CodeScopeRequired, 403, "Policy requires a scope, and none was declared."},
	{CodeBackgroundNotAllowed, 403, "Processes may not outlive the execution that started them."},
	{CodeProfileNotAllowed, 403, "There is no such profile, or the principal may not use it."},
	{CodeHostnameNotAllowed, 403, "The host name is not granted."},
	{CodeOperationNotAllowed, 403, "The operation is not granted."},
	{CodeDestination, 403, "A destination of the network is not granted."},
	{CodeDegradedNotAllowed, 403, "Policy does not let the session do without this layer."},
	{CodeNotNarrower, 403, "What was asked for is more than the session has."},
	{CodeHermeticRoot, 403, "A hermetic session needs a root that its receipt can vouch for: dir or paths."},
	{CodeEscalation, 403, "A call asked to be carried out outside of the sandbox."},
}

// Status returns the HTTP status of an answer that failed with c: 500 for a code
// that is not in the table.
func (c Code) Status() int {
	for _, info := range Codes {
		if info.Code == c {
			return info.Status
		}
	}
	return 500
}

// Text returns the sentence that says what c means: "" for a code that is not in the
// table, such as one that an author of policy made up.
func (c Code) Text() string {
	for _, info := range Codes {
		if info.Code == c {
			return info.Text
		}
	}
	return ""
}

// Error is an error that a caller sees: a stable code and a sentence.
type Error struct {
	Code    Code   `json:"code"`
	Message string `json:"message"`
	Gone    *Gone  `json:"-"` // with CodeGone, where it is known; see ErrorBody
}

func (e *Error) Error() string { return string(e.Code) + ": " + e.Message }

// Errorf returns an *Error.
func Errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// ErrorBody is the body of every answer that is not a receipt or a document.
type ErrorBody struct {
	Error Error `json:"error"`
	Gone  *Gone `json:"gone,omitzero"` // as the page from that position would have it
}

// Error is the refusal of a stream from a position that is not kept any more; what is what it has.
func (g *Gone) Error(what string) *Error {
	e := Errorf(CodeGone, "%s up to %s are not kept any more", what, g.FirstAvailable)
	e.Gone = g
	return e
}
