package api

// Frame is a durable milestone of an intent (R118): journaled before anybody sees it, and seen
// by all who look, in the order of Seq.
type Frame struct {
	OriginModule   string       `json:"origin_module_id"`    // "stockade"
	OriginInstance string       `json:"origin_instance_key"` // whose intent it is: uid and scope
	IntentID       string       `json:"intent_id"`
	EffectKind     Op           `json:"effect_kind"`
	EmittedAtSeq   int64        `json:"emitted_at_seq"` // number of the intent's record in the journal: the fence
	Seq            int64        `json:"seq"`            // from 1, per intent
	Kind           FrameKind    `json:"kind"`
	AtNS           int64        `json:"at_ns"`
	At             string       `json:"at"`
	Payload        FramePayload `json:"payload,omitzero"`
}

// FrameKind says what a frame tells.
type FrameKind string

// The kinds.
const (
	FrameStarting FrameKind = "host.exec.starting" // its turn has come, if it had to wait
	FrameStarted  FrameKind = "host.exec.started"
	FrameProgress FrameKind = "host.exec.progress" // once an interval, while it runs
	FramePaused   FrameKind = "host.exec.paused"
	FrameResumed  FrameKind = "host.exec.resumed"
	FrameModified FrameKind = "host.exec.modified"
	FrameInput    FrameKind = "host.exec.input"    // input was written
	FrameStopping FrameKind = "host.exec.stopping" // it was asked to end, and is killed when it does not
	FrameAdopted  FrameKind = "host.exec.adopted"  // a supervisor that came later goes on with it
	FrameShell    FrameKind = "host.shell.state"   // of a shell, from here on
)

// FramePayload is what a frame carries: totals, never the bytes themselves (R121, R122).
type FramePayload struct {
	ExecID      string `json:"exec_id,omitempty"`
	SessionID   string `json:"session_id,omitempty"`
	StdoutBytes int64  `json:"stdout_bytes,omitzero"`
	StderrBytes int64  `json:"stderr_bytes,omitzero"`
	ElapsedNS   int64  `json:"elapsed_ns,omitzero"`
	InputID     string `json:"input_id,omitempty"`
	InputBytes  int64  `json:"input_bytes,omitzero"` // all that was written so far
	InputClosed bool   `json:"input_closed,omitzero"`
	TimeoutNS   int64  `json:"timeout_ns,omitzero"`
	Cause       Code   `json:"cause,omitzero"`      // of its end
	KillAtNS    int64  `json:"kill_at_ns,omitzero"` // when TERM becomes KILL

	// Of a shell.
	Status    ShellState `json:"status,omitempty"`
	CommandID string     `json:"command_id,omitempty"` // that begins, or has ended
	ExitCode  *int       `json:"exit_code,omitzero"`
	Commands  int64      `json:"commands,omitzero"` // that have ended so far
	Offset    int64      `json:"offset,omitzero"`   // in its output: where that of the command ended, or its prompt is there
	Skipped   int64      `json:"skipped,omitzero"`  // changes of state since the last frame that have none of their own
	Cols      int        `json:"cols,omitzero"`
	Rows      int        `json:"rows,omitzero"`
}

// FrameList is a page of the frames of one intent, in order. Receipt is there once it is settled and
// no frame follows those of the page.
type FrameList struct {
	Frames  []Frame  `json:"frames"`
	Gone    *Gone    `json:"gone,omitzero"` // what was asked for is not kept any more
	Receipt *Receipt `json:"receipt,omitzero"`
}

// Event is one event of a stream, as SSE data or as one NDJSON line. Cursor resumes the stream
// after it: as Last-Event-ID or after.
type Event struct {
	Kind     EventKind `json:"kind"`
	Cursor   string    `json:"cursor,omitempty"`
	IntentID string    `json:"intent_id,omitempty"`
	ExecID   string    `json:"exec_id,omitempty"`
	Approval string    `json:"approval_id,omitempty"` // of accepted: it waits for leave
	Stream   string    `json:"stream,omitempty"`      // stdout or stderr
	Offset   int64     `json:"offset,omitzero"`       // of the first byte of Bytes in its stream
	Bytes    []byte    `json:"bytes,omitempty"`
	AtNS     int64     `json:"at_ns,omitzero"` // when the bytes arrived at the supervisor
	Frame    *Frame    `json:"frame,omitzero"`
	Lagged   *Lagged   `json:"lagged,omitzero"` // the reader is behind; nothing is left out
	Gone     *Gone     `json:"gone,omitzero"`
	Receipt  *Receipt  `json:"receipt,omitzero"`
}

// EventKind is what an event of a stream is.
type EventKind string

// The kinds.
const (
	EventAccepted  EventKind = "accepted"  // the intent is durable; only the answer of the exec itself begins with it
	EventOutput    EventKind = "output"    // bytes of one stream, and their offset in it
	EventFrame     EventKind = "frame"     // a milestone, durable before it is shown
	EventLagged    EventKind = "lagged"    // the reader is behind the command; nothing is left out
	EventGone      EventKind = "gone"      // what was asked for is not kept any more, and from where on there is something
	EventReceipt   EventKind = "receipt"   // the end; nothing follows
	EventKeepalive EventKind = "keepalive" // nothing has happened
)

// Lagged says how far a reader of output is behind the process. The bytes between follow, from
// the disk.
type Lagged struct {
	Stream string `json:"stream"`
	From   int64  `json:"from"` // where the reader is
	To     int64  `json:"to"`   // where the process is
}

// Notice is one entry of the event log of a session or a principal. Seq is its number in that
// log, from 1 and without gaps.
type Notice struct {
	Seq       int64      `json:"seq"`
	Kind      NoticeKind `json:"kind"`
	AtNS      int64      `json:"at_ns"`
	At        string     `json:"at"`
	SessionID string     `json:"session_id,omitempty"`
	ExecID    string     `json:"exec_id,omitempty"`
	IntentID  string     `json:"intent_id,omitempty"`
	Approval  string     `json:"approval_id,omitempty"`
	Op        Op         `json:"op,omitempty"`
	State     string     `json:"state,omitempty"`  // of the session, the execution or the approval, from here on
	Reason    string     `json:"reason,omitempty"` // error or deny code, or why a session ended
	Detail    string     `json:"detail,omitempty"`
	Stdout    int64      `json:"stdout_bytes,omitzero"`
	Stderr    int64      `json:"stderr_bytes,omitzero"`
}

// NoticeKind is what an event is about: a closed list.
type NoticeKind string

// The kinds.
const (
	NoticeSession   NoticeKind = "SESSION_STATE"      // opened, paused, resumed, closing, closed, error, adopted
	NoticeProcess   NoticeKind = "PROCESS_STATE"      // one for each transition, in order (R229)
	NoticeOutput    NoticeKind = "OUTPUT_AVAILABLE"   // with each progress frame and at the end
	NoticeViolation NoticeKind = "POLICY_VIOLATION"   // an operation was denied
	NoticeThreshold NoticeKind = "RESOURCE_THRESHOLD" // the reason is a ceiling that is near or was reached, or long_running, failure_rate or orphans
	NoticeNetwork   NoticeKind = "NETWORK_LOST"       // the session's relay has died: it reaches nothing any more
	NoticePolicy    NoticeKind = "POLICY_REVISION"    // a revision of the policy is active, or was refused: to who activates, and otherwise to the supervisor's own user
	NoticeIdle      NoticeKind = "IDLE_WARNING"

	// A configuration that the supervisor was told to read again was refused, and the one before goes on: to its own user.
	NoticeConfiguration NoticeKind = "CONFIGURATION"

	NoticeTimeout NoticeKind = "IDLE_TIMEOUT"

	// An operation waits for leave, or does not any more: whose it is, and those who are named as approvers, are told.
	NoticeApproval NoticeKind = "APPROVAL"

	// A frame or a receipt was not taken, or came after a gap; the reason says which.
	NoticeDiagnostic NoticeKind = "DIAGNOSTIC"
)

// NoticeList is a page of an event log, in order. Next is the seq to read after.
type NoticeList struct {
	Events []Notice `json:"events"`
	Next   int64    `json:"next"`
	Gone   *Gone    `json:"gone,omitzero"`
}
