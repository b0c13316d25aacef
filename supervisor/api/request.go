package api

// Request is one operation as asked: who asks, for what. Exactly one of the
// parameter members is set, the one that Op names. Its canonical bytes are what
// policy judges and what the journal keeps, after [Request.Redact].
type Request struct {
	Op            Op        `json:"op"`
	RequestedKind Op        `json:"requested_kind,omitzero"` // the alias that was used, if one was
	Principal     Principal `json:"principal"`
	Facade        string    `json:"facade"` // "http"; other facades name themselves

	Open   *SessionOpen   `json:"open,omitzero"`
	Exec   *Exec          `json:"exec,omitzero"`
	Signal *SessionSignal `json:"signal,omitzero"`
	Close  *SessionClose  `json:"close,omitzero"`
	Blob   *BlobPut       `json:"blob,omitzero"`
	Read   *Read          `json:"read,omitzero"` // get, list, output, blob.get, receipts, checkpoint, host.info
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
	NetworkMode string              `json:"network_mode,omitempty"` // "none"; "full" and "egress" are refused until they exist
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
	Mode      string `json:"mode"` // "ro" or "rw"
}

// Limits are ceilings that the caller asks for, below those of the grant. Zero
// means the grant's; more than the grant is clamped and said so (C17).
type Limits struct {
	MemoryBytes int64 `json:"memory_bytes,omitzero"`
	CPUMillis   int64 `json:"cpu_millis,omitzero"` // thousandths of one CPU
	PIDs        int64 `json:"pids,omitzero"`
	OutputBytes int64 `json:"output_bytes,omitzero"` // per stream of one execution
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

// Exec asks for one command in a session (host.exec).
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
	Limits     Limits              `json:"limits,omitzero"`   // only output_bytes can be below the session's: one execution has no other ceiling of its own (R053)
	Outputs    []string            `json:"outputs,omitempty"` // inside paths returned as blobs once the command has ended
	Scope      Scope               `json:"scope,omitzero"`
}

// Stdin is what the command reads: a tagged variant. Absent means end of file at once.
type Stdin struct {
	InlineText   *InlineText  `json:"inline_text,omitzero"`
	InlineBytes  *InlineBytes `json:"inline_bytes,omitzero"`
	BlobRef      *BlobRef     `json:"blob_ref,omitzero"`
	SecretText   *InlineText  `json:"secret_text,omitzero"`    // reaches the process and nothing else
	SecretDigest string       `json:"secret_digest,omitempty"` // set by Redact. Refused on input.
}

// InlineText is UTF-8 text in the document itself.
type InlineText struct {
	Text string `json:"text"`
}

// InlineBytes is bytes in the document itself, base64 on the wire.
type InlineBytes struct {
	Bytes []byte `json:"bytes"`
}

// BlobRef names a blob by content.
type BlobRef struct {
	BlobRef string `json:"blob_ref"` // sha256:<64 hex>
}

// SessionSignal delivers a signal to every live execution of a session; term and
// kill also end the session (C7).
type SessionSignal struct {
	SessionID string     `json:"session_id"`
	Signal    SignalName `json:"signal"`
	GraceNS   *int64     `json:"grace_timeout_ns,omitzero"` // TERM to KILL; absent means the default, 0 at once
	Scope     Scope      `json:"scope,omitzero"`
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

// Read is the object of an operation without effect.
type Read struct {
	SessionID string            `json:"session_id,omitempty"`
	ExecID    string            `json:"exec_id,omitempty"`
	IntentID  string            `json:"intent_id,omitempty"`
	BlobRef   string            `json:"blob_ref,omitempty"`
	Labels    map[string]string `json:"labels,omitempty"`  // list filter
	State     string            `json:"state,omitempty"`   // list filter
	Op        Op                `json:"op,omitempty"`      // list filter
	Outcome   Outcome           `json:"outcome,omitempty"` // list filter
	Limit     int64             `json:"limit,omitzero"`
}
