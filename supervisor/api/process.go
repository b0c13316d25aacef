package api

// State is where an execution is in its life (R226). The first three are live, the others
// final.
type State string

// The states.
const (
	StateQueued    State = "queued"
	StateStarting  State = "starting"
	StateRunning   State = "running"
	StateCompleted State = "completed"
	StateFailed    State = "failed"
	StateCanceled  State = "canceled"
	StateTimedOut  State = "timed_out"
)

// Final reports whether no other state follows.
func (s State) Final() bool {
	return s == StateCompleted || s == StateFailed || s == StateCanceled || s == StateTimedOut
}

// Process is the record of an execution as get and list show it (R228).
type Process struct {
	ExecID      string            `json:"exec_id"`
	IntentID    string            `json:"intent_id"`
	SessionID   string            `json:"session_id"`
	Principal   Principal         `json:"principal"`
	State       State             `json:"state"`
	Paused      bool              `json:"paused,omitzero"`
	ApprovalID  string            `json:"approval_id,omitempty"` // it waited for leave, or waits
	Reason      string            `json:"reason,omitempty"`      // of a final state: non_zero_exit, signal, oom, cpu_time, spawn, lost, or an error code
	Argv        []string          `json:"argv"`                  // the beginning of it
	Labels      map[string]string `json:"labels,omitempty"`
	StdinOpen   bool              `json:"stdin_open,omitzero"`
	Shell       bool              `json:"shell,omitzero"`     // it has a terminal
	ExitCode    *int              `json:"exit_code,omitzero"` // once it has exited by itself
	Signal      string            `json:"signal,omitempty"`
	ErrorCode   Code              `json:"error_code,omitzero"`
	StdoutBytes int64             `json:"stdout_bytes,omitzero"` // written so far, or in all
	StderrBytes int64             `json:"stderr_bytes,omitzero"`
	FrameSeq    int64             `json:"frame_seq,omitzero"` // of its last frame
	QueuedAtNS  int64             `json:"queued_at_ns"`
	QueuedAt    string            `json:"queued_at"`
	StartedAtNS int64             `json:"started_at_ns,omitzero"`
	StartedAt   string            `json:"started_at,omitempty"`
	EndedAtNS   int64             `json:"ended_at_ns,omitzero"`
	EndedAt     string            `json:"ended_at,omitempty"`
	DurationNS  int64             `json:"duration_ns,omitzero"`
	Usage       Usage             `json:"usage,omitzero"`
}

// ProcessList is a page of executions, newest first.
type ProcessList struct {
	Processes []Process `json:"processes"`
	Next      string    `json:"next,omitempty"` // cursor of the next page; absent on the last
}

// Pending is the answer about an execution that goes on: to host.exec with wait false or wait_ms,
// and to host.process.output. Receipt is there once it has ended. It is also that about an operation of any kind that
// waits for leave, when its caller prefers not to: then its state is queued.
type Pending struct {
	IntentID  string   `json:"intent_id"`
	ExecID    string   `json:"exec_id"`
	SessionID string   `json:"session_id"`
	Approval  string   `json:"approval_id,omitempty"` // it waits for leave
	State     State    `json:"state"`
	Output    []Chunk  `json:"output,omitempty"` // in order of arrival
	Cursor    string   `json:"cursor"`           // what follows Output, for after
	End       bool     `json:"end,omitzero"`     // nothing follows Output, ever
	Gone      *Gone    `json:"gone,omitzero"`
	Receipt   *Receipt `json:"receipt,omitzero"`
}

// Chunk is bytes of one stream, and where they belong. Chunks of both streams are numbered and
// given in order of arrival at the supervisor.
type Chunk struct {
	Seq    int64  `json:"seq"`    // of the arrival that it is a part of; from 1
	Stream string `json:"stream"` // stdout or stderr
	Offset int64  `json:"offset"` // of the first byte in its stream
	Bytes  []byte `json:"bytes"`
	AtNS   int64  `json:"at_ns,omitzero"`
}

// Gone says that what was asked for is not kept any more, and what is.
type Gone struct {
	From           string `json:"from"`                      // the position that was asked for
	FirstAvailable string `json:"first_available,omitempty"` // cursor; absent when nothing is
}

// ControlResult is the payload of the operations on an execution and of session pause, resume and narrow.
type ControlResult struct {
	ExecID    string `json:"exec_id,omitempty"`
	IntentID  string `json:"intent_id,omitempty"` // that started it
	Status    string `json:"status"`              // see the operation
	State     State  `json:"state,omitempty"`     // afterwards
	Bytes     int64  `json:"bytes,omitzero"`      // of input that was written
	TimeoutNS int64  `json:"timeout_ns,omitzero"` // effective
	Count     int64  `json:"count,omitzero"`      // of host.process.stop: how many were ended; of session.narrow: connections that it cut off
	LogLevel  string `json:"log_level,omitempty"` // of admin.log.level: from here on
	Previous  string `json:"previous,omitempty"`  // of admin.log.level: what it was before
	ErrorCode Code   `json:"error_code,omitzero"`
}

// The statuses of a ControlResult.
const (
	ControlAccepted        = "accepted"                // input, modify
	ControlDuplicate       = "duplicate"               // input: this input_id was written before
	ControlSignaled        = "signaled"                // signal
	ControlPaused          = "paused"                  // pause
	ControlResumed         = "resumed"                 // resume
	ControlCanceled        = "canceled"                // cancel: it was ended, and is
	ControlCancelRequested = "cancel_requested"        // cancel without waiting
	ControlFinished        = "already_finished"        // anything, of what has ended
	ControlNotCancellable  = "not_cancellable"         // cancel: killing it had no effect
	ControlDeleted         = "deleted"                 // delete
	ControlConflict        = "active_process_conflict" // delete, of what lives
	ControlStopped         = "stopped"                 // stop
	ControlNotFound        = "not_found"
	ControlDraining        = "draining" // drain
	ControlServing         = "serving"  // drain with undo
	ControlNarrowed        = "narrowed" // session.narrow
	ControlSet             = "set"      // admin.log.level
	ControlError           = "error"
)

// Intent is an operation with effect, in flight or settled.
type Intent struct {
	IntentID      string    `json:"intent_id"`
	Op            Op        `json:"op"`
	RequestedKind Op        `json:"requested_kind,omitzero"`
	Principal     Principal `json:"principal"`
	SessionID     string    `json:"session_id,omitempty"`
	ExecID        string    `json:"exec_id,omitempty"`
	Key           string    `json:"idempotency_key,omitempty"`
	EmittedAtSeq  int64     `json:"emitted_at_seq"`        // number of its record in the journal
	FrameSeq      int64     `json:"frame_seq"`             // of its last frame
	State         State     `json:"state,omitempty"`       // queued, while it waits for leave
	ApprovalID    string    `json:"approval_id,omitempty"` // it waited for leave, or waits
	AdmittedAtNS  int64     `json:"admitted_at_ns"`
	AdmittedAt    string    `json:"admitted_at"`
	AgeNS         int64     `json:"age_ns,omitzero"` // while in flight
	Outcome       Outcome   `json:"outcome,omitzero"`
	SettledAtNS   int64     `json:"settled_at_ns,omitzero"`
	SettledAt     string    `json:"settled_at,omitempty"`
}

// IntentList is a page of intents, newest first.
type IntentList struct {
	Intents []Intent `json:"intents"`
}

// Quiescence says what keeps the supervisor from being quiet (R134, R135).
type Quiescence struct {
	Quiet      bool     `json:"quiet"`
	Draining   bool     `json:"draining,omitzero"`
	Intents    []Intent `json:"intents"` // in flight, oldest first, of every principal
	Sessions   int64    `json:"sessions"`
	Executions int64    `json:"executions"`
}

// Snapshot is what the journal amounts to at one of its records: the digest of the canonical state, which
// anybody who has the journal can compute again.
type Snapshot struct {
	Records   int64  `json:"records"` // of the journal that it covers
	Digest    string `json:"digest"`  // sha256:<hex> of the state
	SizeBytes int64  `json:"size_bytes"`
}
