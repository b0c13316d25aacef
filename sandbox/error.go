package sandbox

import "fmt"

// Error is a refusal or failure of the runner that a caller may see. Code is
// stable and becomes the error_code of the receipt.
type Error struct {
	Code string
	Msg  string
}

func (e *Error) Error() string { return e.Code + ": " + e.Msg }

// Errorf returns an *Error.
func Errorf(code, format string, args ...any) *Error {
	return &Error{Code: code, Msg: fmt.Sprintf(format, args...)}
}

// Codes of the runner.
const (
	CodeInvalidSpec    = "invalid_spec"         // the Spec or Exec is not well formed
	CodeCeiling        = "ceiling_exceeded"     // more than the operator's ceiling, whatever the daemon says
	CodeMountSource    = "mount_source"         // a host path cannot be reached under the caller's identity
	CodeSourceChanged  = "mount_source_changed" // it is not the object that was judged
	CodeMountTarget    = "mount_target"         // an inside path cannot be a mount target
	CodeInvalidWorkdir = "invalid_workdir"      // the workdir does not exist inside
	CodeUnsupported    = "unsupported_by_host"  // the kernel lacks what the Spec demands
	CodeNotEnforced    = "not_enforced"         // read back from the kernel, a layer is not in force
	CodeSpawn          = "spawn_failed"         // the command could not be started
	CodeTerminal       = "terminal_failed"      // no terminal can be had: the session has as many as it may, or the host
	CodeNoSession      = "session_not_found"
	CodeNoExec         = "exec_not_found"
	CodeFrozen         = "session_paused" // nothing starts in a session that is frozen
	CodeBusy           = "session_limit_exceeded"
	CodeRequests       = "too_many_requests"  // the runner has as many calls in progress as it can have
	CodeCPUTime        = "cpu_time_exceeded"  // the session has used as much processor time as it may
	CodeProtected      = "protected_path"     // a path that must be protected cannot be: a symbolic link, a device
	CodeNoOverlay      = "no_overlay"         // the path inside is not an overlay's
	CodeConflict       = "commit_conflict"    // what lies below an overlay has changed in a way that cannot be written over
	CodeNotListening   = "not_listening"      // nothing inside listens on a port that is to be reached
	CodeNetwork        = "network_failed"     // the network of the session cannot be had
	CodeInternal       = "runner_failed"      // a step of the set-up failed; the message says which
	CodeGone           = "runner_unavailable" // the runner cannot be reached
)
