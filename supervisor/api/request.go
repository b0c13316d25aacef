package api

import "github.com/stockade-dev/stockade/sandbox/file"

// Request is one operation as asked: who asks, for what. Exactly one of the
// parameter members is set, the one that Op names. Its canonical bytes are what
// policy judges and what the journal keeps, after [Request.Redact].
type Request struct {
	Op            Op        `json:"op"`
	RequestedKind Op        `json:"requested_kind,omitzero"` // the alias that was used, if one was
	Principal     Principal `json:"principal"`
	Facade        string    `json:"facade"` // "http"; other facades name themselves

	// Key makes an operation with effect happen once: asked again with the same key, scope and
	// content, the answer is the first one's receipt, also across a restart.
	Key string `json:"idempotency_key,omitempty"`

	Open    *SessionOpen    `json:"open,omitzero"`
	Exec    *Exec           `json:"exec,omitzero"`
	Signal  *SessionSignal  `json:"signal,omitzero"`
	Session *SessionTarget  `json:"session,omitzero"` // host.session.pause and resume
	Close   *SessionClose   `json:"close,omitzero"`
	Input   *ProcessInput   `json:"input,omitzero"`
	Deliver *ProcessSignal  `json:"deliver,omitzero"` // host.process.signal
	Modify  *ProcessModify  `json:"modify,omitzero"`
	Process *ProcessTarget  `json:"process,omitzero"` // host.process.pause, resume and delete
	Cancel  *ProcessCancel  `json:"cancel,omitzero"`
	Stop    *ProcessStop    `json:"stop,omitzero"`
	Keys    *ShellInput     `json:"shell_input,omitzero"`
	Resize  *ShellResize    `json:"shell_resize,omitzero"`
	Hangup  *ShellClose     `json:"shell_close,omitzero"`
	Attach  *ShellAttach    `json:"shell_attach,omitzero"`
	Run     *ShellRun       `json:"shell_run,omitzero"`
	Drain   *Drain          `json:"drain,omitzero"`
	Log     *LogLevel       `json:"log,omitzero"`
	Space   *Workspace      `json:"workspace,omitzero"` // host.workspace.diff, commit and discard
	Narrow  *SessionNarrow  `json:"narrow,omitzero"`
	Forward *SessionForward `json:"forward,omitzero"`
	File    *FileTool       `json:"file,omitzero"`    // host.fs.*
	Verdict *Verdict        `json:"verdict,omitzero"` // host.approval.approve and deny

	Activate *PolicyActivate `json:"activate,omitzero"` // admin.policy.activate and preview

	Blob *BlobPut `json:"blob,omitzero"`
	Read *Read    `json:"read,omitzero"` // of every other operation without effect
}

// Principal is who asks: the peer of the socket by the kernel's word, plus the
// scope that the caller declares. A declared scope alone never grants anything (R090).
type Principal struct {
	UID    uint32   `json:"uid"`
	GID    uint32   `json:"gid"`
	Groups []uint32 `json:"groups,omitempty"`
	Scope  Scope    `json:"scope,omitzero"`
}

// Scope tells apart the agents that one host process serves. It is fixed when a
// session is opened; later operations carry it in the Stockade-Scope header or the
// body's scope member, and must match.
type Scope struct {
	AgentID string `json:"agent_id,omitempty"`
	WorldID string `json:"world_id,omitempty"`
	ChatID  string `json:"chat_id,omitempty"`
}

// SessionOpen asks for a session (host.session.open).
type SessionOpen struct {
	Target       Target            `json:"target"`
	Profile      string            `json:"profile,omitempty"`       // a profile of the policy library; "" lets policy choose
	SessionTTLNS int64             `json:"session_ttl_ns,omitzero"` // nanoseconds; 0 means the grant's
	Labels       map[string]string `json:"labels,omitempty"`        // shown to policy, filterable
	Scope        Scope             `json:"scope,omitzero"`
	Limits       Limits            `json:"limits,omitzero"`
	Background   *bool             `json:"allow_background_processes,omitzero"` // absent means the grant's
	IdleNS       int64             `json:"idle_timeout_ns,omitzero"`            // without activity for so long, the session ends; 0 means the grant's
	OnRestart    string            `json:"on_restart,omitempty"`                // when the supervisor restarts: "adopt" (default) or "terminate"
	Degraded     []string          `json:"accept_degraded,omitempty"`           // layers that the caller does without where the host lacks them
	Verify       string            `json:"verify,omitempty"`                    // "canary": what must fail is tried from inside first
}

// Target is what a session is built on: a tagged variant with one arm so far.
// {"local": {…}} is the stated form; {"$tag": "local", "$value": {…}} is accepted.
type Target struct {
	Local   *Local `json:"local,omitzero"`
	Unknown string `json:"-"` // the arm that was named, when it is none of the above: always refused (R001)
}

// Local builds the session from namespaces of this kernel.
type Local struct {
	Root        Root                `json:"root,omitzero"`
	Mounts      []Mount             `json:"mounts,omitempty"`
	Workdir     string              `json:"workdir,omitempty"` // absolute inside path; "" means the grant's
	Env         map[string]EnvValue `json:"env,omitempty"`
	NetworkMode string              `json:"network_mode,omitempty"` // "none" (default), "egress" or "full"
	Egress      []Destination       `json:"egress,omitempty"`       // of egress and full: what is wanted, and no more is granted; absent leaves it to policy
	Hostname    string              `json:"hostname,omitempty"`
}

// Root chooses the root file system: a tagged variant. No arm means the grant's default.
type Root struct {
	Host  *struct{}  `json:"host,omitzero"`  // read-only view of the host's system directories
	Dir   *RootDir   `json:"dir,omitzero"`   // an unpacked root
	Paths *RootPaths `json:"paths,omitzero"` // only the named host paths, each digested
}

// RootDir is an unpacked root file system on the host, used read-only.
type RootDir struct {
	Path string `json:"path"`
}

// RootPaths names host paths that alone exist inside, at the same place, read-only.
type RootPaths struct {
	Paths []string `json:"paths"`
}

// Mount binds a host path into the session.
type Mount struct {
	HostPath  string `json:"host_path"`
	GuestPath string `json:"guest_path"`
	Mode      string `json:"mode"`           // "ro", "rw" or "overlay"
	Bytes     int64  `json:"bytes,omitzero"` // of an overlay: the room for what is written; 0 means the grant's
	Inodes    int64  `json:"inodes,omitzero"`
}

// Limits are ceilings that the caller asks for, below those of the grant. Zero
// means the grant's; more than the grant is clamped and said so (C17).
type Limits struct {
	MemoryBytes int64 `json:"memory_bytes,omitzero"`
	CPUMillis   int64 `json:"cpu_millis,omitzero"` // thousandths of one CPU
	PIDs        int64 `json:"pids,omitzero"`
	OutputBytes int64 `json:"output_bytes,omitzero"` // per stream of one execution
	Files       int64 `json:"files,omitzero"`        // open files of one process
	CPUTimeNS   int64 `json:"cpu_time_ns,omitzero"`  // user and system time of the whole tree

	// Of a session only.
	CPUWeight        int64 `json:"cpu_weight,omitzero"`
	IOBytesPerSecond int64 `json:"io_bytes_per_second,omitzero"`
	DiskBytes        int64 `json:"disk_bytes,omitzero"`
	DiskInodes       int64 `json:"disk_inodes,omitzero"`
}

// EnvValue is an environment value: a plain string, or {"secret": "…"}. A secret
// reaches the process and nothing else: records and policy input show
// {"secret_digest": "hmac-sha256:…"} in its place.
type EnvValue struct {
	Text         string
	Secret       bool   // Text is secret
	SecretDigest string // set by Redact; Text is then empty. Refused on input.
	Unset        bool   // JSON null, in an env_patch only: remove the variable
}

// Exec asks for one command in a session (host.exec), or for a shell: a command on a terminal (host.shell.open).
type Exec struct {
	SessionID  string              `json:"session_id"`
	Argv       []string            `json:"argv"`
	Cwd        string              `json:"cwd,omitempty"` // relative resolves under the session's workdir
	EnvPatch   map[string]EnvValue `json:"env_patch,omitempty"`
	Stdin      *Stdin              `json:"stdin,omitzero"`
	StdinRef   string              `json:"stdin_ref,omitempty"` // alias of stdin.blob_ref (C28)
	TimeoutNS  int64               `json:"timeout_ns,omitzero"` // nanoseconds of wall time; 0 means the grant's
	OutputMode string              `json:"output_mode,omitempty"`
	MaxInline  int64               `json:"max_inline_bytes,omitzero"`
	Limits     Limits              `json:"limits,omitzero"`     // below the session's (R053)
	Outputs    []string            `json:"outputs,omitempty"`   // inside paths returned as blobs once the command has ended
	Labels     map[string]string   `json:"labels,omitempty"`    // shown to policy, filterable
	StdinOpen  bool                `json:"stdin_open,omitzero"` // stdin stays open after what Stdin says, for host.process.input
	Terminal   *Terminal           `json:"terminal,omitzero"`   // of host.shell.open alone
	Wait       *bool               `json:"wait,omitzero"`       // false: answer with the ids as soon as the intent is durable
	WaitMS     int64               `json:"wait_ms,omitzero"`    // answer with the receipt, or after so long with the ids and the output so far
	Scope      Scope               `json:"scope,omitzero"`
}

// Workspace names an overlay of a session, and paths in it (host.workspace.diff, commit and discard).
type Workspace struct {
	SessionID  string   `json:"session_id"`
	GuestPath  string   `json:"guest_path,omitempty"`  // of the mount; "" where the session has one overlay
	Paths      []string `json:"paths,omitempty"`       // of commit: relative to it, and all that is below them; absent is everything
	PathsBytes [][]byte `json:"paths_bytes,omitempty"` // of commit: one beside each of paths, "" where that is UTF-8; paths have U+FFFD for what is not
	Limit      int64    `json:"limit,omitzero"`        // of diff: how many changes in one answer; 0 means 1000
	After      string   `json:"after,omitempty"`       // of diff: the last path of the answer before
	AfterBytes []byte   `json:"after_bytes,omitempty"` // of diff: its path_bytes, if it has them
	Scope      Scope    `json:"scope,omitzero"`
}

// SessionNarrow takes a part of a live session's network away (host.session.narrow). What is
// reached through it is cut off at once.
type SessionNarrow struct {
	SessionID string       `json:"session_id"`
	Network   GrantNetwork `json:"network"` // no more than the session has
	Scope     Scope        `json:"scope,omitzero"`
}

// SessionForward lets its caller reach a port on the loopback of a session (host.session.forward). It is open as long as the
// connection that it comes by.
type SessionForward struct {
	SessionID string `json:"session_id"`
	Port      uint16 `json:"port"`
	Scope     Scope  `json:"scope,omitzero"`
}

// Stdin is what the command reads: a tagged variant. Absent means end of file at once.
type Stdin struct {
	InlineText   *InlineText  `json:"inline_text,omitzero"`
	InlineBytes  *InlineBytes `json:"inline_bytes,omitzero"`
	BlobRef      *BlobRef     `json:"blob_ref,omitzero"`
	SecretText   *InlineText  `json:"secret_text,omitzero"`    // reaches the process and nothing else
	SecretDigest string       `json:"secret_digest,omitempty"` // set by Redact. Refused on input.
}

// What is in a document, or named by it, is the same for commands and for file tools.
type (
	InlineText  = file.InlineText
	InlineBytes = file.InlineBytes
	BlobRef     = file.BlobRef
	BlobOutput  = file.Blob
)

// SessionSignal delivers a signal to every live execution of a session; term and
// kill also end the session (C7).
type SessionSignal struct {
	SessionID string     `json:"session_id"`
	Signal    SignalName `json:"signal"`
	GraceNS   *int64     `json:"grace_timeout_ns,omitzero"` // TERM to KILL; absent means the default, 0 at once
	Scope     Scope      `json:"scope,omitzero"`
}

// SessionTarget names a session: what host.session.pause freezes and resume thaws.
type SessionTarget struct {
	SessionID string `json:"session_id"`
	Scope     Scope  `json:"scope,omitzero"`
}

// ProcessRef names an execution by exactly one of its two ids: its own, and that of the intent
// that started it. A process id of the kernel's names nothing here (R244).
type ProcessRef struct {
	ExecID   string `json:"exec_id,omitempty"`
	IntentID string `json:"intent_id,omitempty"`
}

// ProcessInput writes to the stdin of an execution that was started with stdin_open
// (host.process.input). It is settled when the bytes are in the pipe.
type ProcessInput struct {
	ProcessRef
	InputID string `json:"input_id,omitempty"` // the same again is written once: the answer says duplicate
	Data    *Stdin `json:"data,omitzero"`      // inline_text, inline_bytes or secret_text
	Close   bool   `json:"close,omitzero"`     // end of file after Data
	Scope   Scope  `json:"scope,omitzero"`
}

// ProcessSignal delivers one signal to one execution and promises nothing more
// (host.process.signal).
type ProcessSignal struct {
	ProcessRef
	Signal SignalName `json:"signal"`
	Scope  Scope      `json:"scope,omitzero"`
}

// ProcessModify changes a running execution (host.process.modify).
type ProcessModify struct {
	ProcessRef
	TimeoutNS int64 `json:"timeout_ns"` // nanoseconds from its start; bounded by the grant
	Scope     Scope `json:"scope,omitzero"`
}

// ProcessTarget names an execution (host.process.pause, resume and delete).
type ProcessTarget struct {
	ProcessRef
	Scope Scope `json:"scope,omitzero"`
}

// ProcessCancel ends the whole tree of an execution: TERM, then KILL (host.process.cancel).
type ProcessCancel struct {
	ProcessRef
	GraceNS *int64 `json:"grace_timeout_ns,omitzero"` // TERM to KILL; absent means the default, 0 at once
	Wait    *bool  `json:"wait,omitzero"`             // false: answer cancel_requested without waiting for the end
	Scope   Scope  `json:"scope,omitzero"`
}

// ProcessStop cancels every live execution of the caller's that fits (host.process.stop,
// R246). The scope is the caller's.
type ProcessStop struct {
	SessionID string            `json:"session_id,omitempty"`
	Labels    map[string]string `json:"labels,omitempty"`
	GraceNS   *int64            `json:"grace_timeout_ns,omitzero"`
	Scope     Scope             `json:"scope,omitzero"`
}

// Drain has the supervisor take no new sessions and executions (admin.drain), until it is undone.
type Drain struct {
	Undo  bool  `json:"undo,omitzero"`
	Scope Scope `json:"scope,omitzero"`
}

// LogLevel gives the supervisor's log another level (admin.log.level), until the supervisor starts or reads its configuration again.
type LogLevel struct {
	Level string `json:"level"` // debug, info, warn or error
	Scope Scope  `json:"scope,omitzero"`
}

// SessionClose ends a session: graceful is signal term, force is signal kill.
type SessionClose struct {
	SessionID string `json:"session_id"`
	Mode      string `json:"mode,omitempty"` // "graceful" (default) or "force"
	GraceNS   *int64 `json:"grace_timeout_ns,omitzero"`
	Scope     Scope  `json:"scope,omitzero"`
}

// BlobPut stores content. The content itself travels as the HTTP body and is not
// part of the request: records hold its digest and size.
type BlobPut struct {
	BlobRef   string `json:"blob_ref,omitempty"` // expected; a mismatch is refused
	SizeBytes int64  `json:"size_bytes"`
}

// Read is the object of an operation without effect, and the filters of lists.
type Read struct {
	SessionID string            `json:"session_id,omitempty"`
	ExecID    string            `json:"exec_id,omitempty"`
	IntentID  string            `json:"intent_id,omitempty"`
	BlobRef   string            `json:"blob_ref,omitempty"`
	Approval  string            `json:"approval_id,omitempty"`
	Labels    map[string]string `json:"labels,omitempty"`
	State     string            `json:"state,omitempty"`
	Active    bool              `json:"active,omitzero"` // only what has not ended
	Op        Op                `json:"op,omitempty"`
	Outcome   Outcome           `json:"outcome,omitempty"`
	Limit     int64             `json:"limit,omitzero"`
	After     string            `json:"after,omitempty"`    // cursor that an earlier answer gave: what follows it
	WaitMS    int64             `json:"wait_ms,omitzero"`   // long poll: how long to wait for something to say
	MaxBytes  int64             `json:"max_bytes,omitzero"` // of output in one answer
	Input     bool              `json:"input,omitzero"`     // of a recording: what was typed, too

	// Of receipts.
	Order   string `json:"order,omitempty"`    // newest (default) or oldest first
	SinceNS int64  `json:"since_ns,omitzero"`  // settled then or later
	UntilNS int64  `json:"until_ns,omitzero"`  // settled before
	UID     *int64 `json:"uid,omitzero"`       // of this user
	AgentID string `json:"agent_id,omitempty"` // of this scope, as far as it is said
	WorldID string `json:"world_id,omitempty"`
	ChatID  string `json:"chat_id,omitempty"`
	Code    Code   `json:"code,omitempty"` // why something was refused, failed or was ended
	Rule    string `json:"rule,omitempty"` // a part of the name of a rule that decided, or of the code of a denial
	Path    string `json:"path,omitempty"` // the receipt names it, or what lies below it
}
