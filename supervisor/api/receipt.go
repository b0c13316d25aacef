package api

import (
	"slices"
	"strings"

	"github.com/stockade-dev/stockade/sandbox/file"
)

// Receipt is the one terminal answer to an operation, journaled before the caller
// sees it.
type Receipt struct {
	Version       int       `json:"version"` // 1
	IntentID      string    `json:"intent_id"`
	Op            Op        `json:"op"`
	RequestedKind Op        `json:"requested_kind,omitzero"`
	Key           string    `json:"idempotency_key,omitempty"`
	Principal     Principal `json:"principal"`
	SessionID     string    `json:"session_id,omitempty"`
	ExecID        string    `json:"exec_id,omitempty"`
	FrameSeq      int64     `json:"frame_seq,omitzero"` // of its last frame: there are so many
	Outcome       Outcome   `json:"outcome"`
	Status        string    `json:"receipt_status"` // derived for agent-os clients: ok, error, timeout (C11)
	ErrorCode     Code      `json:"error_code,omitzero"`
	ErrorMessage  string    `json:"error_message,omitempty"`
	Deny          []Deny    `json:"deny,omitempty"`
	Warn          []string  `json:"warn,omitempty"`
	Policy        PolicyRef `json:"policy,omitzero"`
	Clamped       []Clamp   `json:"clamped,omitempty"`
	Approval      *Approval `json:"approval,omitzero"` // of one that had to wait for leave: who decided, and when
	Payload       Payload   `json:"payload,omitzero"`
	AdmittedAtNS  int64     `json:"admitted_at_ns"`
	AdmittedAt    string    `json:"admitted_at"`
	SettledAtNS   int64     `json:"settled_at_ns"`
	SettledAt     string    `json:"settled_at"`
	Timings       []Timing  `json:"timings,omitempty"`
}

// Outcome is the settlement class of an intent.
type Outcome string

// The outcomes.
const (
	OutcomeOK      Outcome = "ok"      // the operation took place; its payload says how it went
	OutcomeDenied  Outcome = "denied"  // policy or a ceiling said no; nothing was started
	OutcomeFaulted Outcome = "faulted" // the operation could not be carried out
)

// Deny is one reason of a denial.
type Deny struct {
	Code    Code   `json:"code"`
	Subject string `json:"subject,omitempty"` // the object that was refused, e.g. "mount:/etc"
	Message string `json:"message,omitempty"`
}

// PolicyRef says which policy decided and by which rules.
type PolicyRef struct {
	Digest     string   `json:"digest"`            // of the bundle's files: sha256:<hex>
	Revision   int64    `json:"revision,omitzero"` // number of the bundle, if it has one
	Entrypoint string   `json:"entrypoint"`        // e.g. data.stockade.open.decision
	Rules      []string `json:"rules,omitempty"`   // rules that were evaluated to a value: "file:line package.rule"
	Labels     []string `json:"labels,omitempty"`  // of the METADATA of these rules and their packages: "name=value"
}

// Clamp says that a request-level limit was lowered (C17).
type Clamp struct {
	Field     string `json:"field"` // e.g. "limits.memory_bytes"
	Requested int64  `json:"requested"`
	Effective int64  `json:"effective"`
	Source    string `json:"source"` // "policy", "ceiling" or "runtime"
}

// Timing is how long one stage took. One called a.b is a part of stage a.
type Timing struct {
	Stage string `json:"stage"` // admit, resolve, policy, plan, intent, build, spawn, run, store
	NS    int64  `json:"ns"`
}

// Payload is the operation's own result: a tagged variant, the arm that Op names.
type Payload struct {
	Open    *OpenResult    `json:"open,omitzero"`
	Exec    *ExecResult    `json:"exec,omitzero"`
	Signal  *SignalResult  `json:"signal,omitzero"`
	Close   *CloseResult   `json:"close,omitzero"`
	Control *ControlResult `json:"control,omitzero"`
	Shell   *ShellResult   `json:"shell,omitzero"`
	Space   *SpaceResult   `json:"workspace,omitzero"`
	Forward *ForwardResult `json:"forward,omitzero"`
	File    *file.Result   `json:"file,omitzero"`
	Blob    *BlobResult    `json:"blob,omitzero"`
	Verdict *VerdictResult `json:"verdict,omitzero"`
	Policy  *PolicyResult  `json:"policy,omitzero"`
}

// OpenResult is the payload of host.session.open.
type OpenResult struct {
	SessionID    string    `json:"session_id,omitempty"`
	Status       string    `json:"status"`         // "ready" or "error"
	Grant        *Grant    `json:"grant,omitzero"` // effective: the meet of request, policy and ceiling
	Enforced     *Enforced `json:"enforced,omitzero"`
	Inputs       []Digest  `json:"inputs,omitempty"` // digested root paths and inputs
	StartedAtNS  int64     `json:"started_at_ns,omitzero"`
	StartedAt    string    `json:"started_at,omitempty"`
	ExpiresAtNS  int64     `json:"expires_at_ns,omitzero"`
	ExpiresAt    string    `json:"expires_at,omitempty"`
	ErrorCode    Code      `json:"error_code,omitzero"`
	ErrorMessage string    `json:"error_message,omitempty"`
}

// Digest names a host path and the digest of its content.
type Digest struct {
	Path      string `json:"path"`
	Digest    string `json:"digest"` // sha256:<hex> of the tree, as sandbox.TreeDigest defines
	Files     int64  `json:"files"`
	SizeBytes int64  `json:"size_bytes"`
}

// Enforced is what the kernel says is in force, read back after the session was built.
type Enforced struct {
	Namespaces   map[string]uint64 `json:"namespaces"` // kind to inode, each different from the supervisor's
	NoNewPrivs   bool              `json:"no_new_privs"`
	Seccomp      int               `json:"seccomp"`      // 2 = filter
	Capabilities string            `json:"capabilities"` // bounding set of executions, hex
	MemoryBytes  int64             `json:"memory_bytes"`
	SwapBytes    int64             `json:"swap_bytes"`
	CPUMillis    int64             `json:"cpu_millis"`
	PIDs         int64             `json:"pids"`
	Mounts       []string          `json:"mounts"` // mountinfo of the session: "target type options"
	Cgroup       string            `json:"cgroup"` // layout: "v1", "v2" or "hybrid"

	Ceilings []CgroupFile      `json:"ceilings,omitempty"`       // each ceiling's file in each hierarchy
	Devices  string            `json:"devices,omitempty"`        // what holds the device allow-list: "bpf", or "bpf and devices"
	Rlimits  map[string]uint64 `json:"rlimits,omitempty"`        // hard limits of executions: "NOFILE", …
	Filter   string            `json:"seccomp_filter,omitempty"` // sha256:<hex> of the program that init was given; Seccomp says that one is in force
	Landlock int               `json:"landlock_abi"`             // whose rights are handled; 0 = no Landlock
	UserNS   int64             `json:"max_user_namespaces"`      // that can be made in the session's
	Network  []string          `json:"network,omitempty"`        // interfaces, routes and rules, as text
	Degraded []string          `json:"degraded,omitempty"`       // layers that the host lacks and the caller does without
	Reports  map[string]string `json:"reports,omitempty"`        // layer to how its refusals come to be told; "" when they do not
	Canaries []Canary          `json:"canaries,omitempty"`       // of verify
}

// Silent returns the layers that cannot say what they refuse, in order.
func (e *Enforced) Silent() []string {
	var silent []string
	for layer, how := range e.Reports {
		if how == "" {
			silent = append(silent, layer)
		}
	}
	slices.Sort(silent)
	return silent
}

// CgroupFile is one ceiling as the kernel holds it.
type CgroupFile struct {
	Controller string `json:"controller"`
	File       string `json:"file"`
	Value      string `json:"value"`
}

// Canary is one thing that was tried from inside before the session was ready.
type Canary struct {
	Name string `json:"name"`
	Want string `json:"want"` // an errno's name, "ok" or "empty"; or "left out: " and why it was not tried, in got too
	Got  string `json:"got"`
}

// LeftOut reports whether it was not tried after all: what the session grants, or lacks, would have made it show nothing.
func (c Canary) LeftOut() bool { return strings.HasPrefix(c.Want, "left out: ") }

// ExecResult is the payload of host.exec.
type ExecResult struct {
	Status       string     `json:"status"`    // ok, timeout, signaled, error
	ExitCode     int        `json:"exit_code"` // -1 when there is none
	Signal       string     `json:"signal,omitempty"`
	Stdout       *Output    `json:"stdout,omitzero"`
	Stderr       *Output    `json:"stderr,omitzero"`
	StdoutBytes  int64      `json:"stdout_bytes,omitzero"` // written by the process, kept or not
	StderrBytes  int64      `json:"stderr_bytes,omitzero"`
	Overflow     *Overflow  `json:"overflow,omitzero"`
	Outputs      []Artifact `json:"outputs,omitempty"`
	Usage        Usage      `json:"usage,omitzero"`
	LimitsHit    []LimitHit `json:"limits_hit,omitempty"` // ceilings that were reached, whatever the command made of it
	Denials      []Denial   `json:"denials,omitempty"`    // what was refused to it at run time: the first of each kind
	Dropped      int64      `json:"denials_dropped,omitzero"`
	Silent       []string   `json:"unreported_layers,omitempty"` // that cannot say what they refuse; of a command that failed
	Network      *Traffic   `json:"network,omitzero"`            // through the relay
	Transcript   string     `json:"transcript,omitempty"`        // of a shell: sha256:<hex> of all that came out of its terminal, kept or not, marks included
	Recording    *Recording `json:"recording,omitzero"`          // of a shell that was recorded
	Commands     int64      `json:"commands,omitzero"`           // of a shell: how many it said had ended
	StartedAtNS  int64      `json:"started_at_ns,omitzero"`
	StartedAt    string     `json:"started_at,omitempty"`
	EndedAtNS    int64      `json:"ended_at_ns,omitzero"`
	EndedAt      string     `json:"ended_at,omitempty"`
	ErrorCode    Code       `json:"error_code,omitzero"`
	ErrorMessage string     `json:"error_message,omitempty"`
}

// Blobs are those in which output, the recording and the files that were collected are.
func (x *ExecResult) Blobs() []BlobOutput {
	var blobs []BlobOutput
	outputs := []*Output{x.Stdout, x.Stderr}
	if x.Recording != nil {
		outputs = append(outputs, x.Recording.Cast)
	}
	for _, o := range outputs {
		if o != nil && o.Blob != nil {
			blobs = append(blobs, *o.Blob)
		}
	}
	for _, a := range x.Outputs {
		if a.BlobRef != "" {
			blobs = append(blobs, BlobOutput{BlobRef: a.BlobRef, SizeBytes: a.SizeBytes})
		}
	}
	return blobs
}

// Recording is what a shell looked like from its beginning on: an asciicast v2, for any player of those.
type Recording struct {
	Digest     string  `json:"digest"` // sha256:<hex> of the asciicast, with what was typed
	Cast       *Output `json:"cast"`   // the asciicast: inline_text or a blob
	Events     int64   `json:"events"`
	DurationNS int64   `json:"duration_ns"`        // until the last event
	Input      bool    `json:"input,omitzero"`     // what was typed was recorded
	Truncated  bool    `json:"truncated,omitzero"` // there was more than the grant has room for
}

// LimitHit is a ceiling that was reached while a command ran.
type LimitHit struct {
	Ceiling string `json:"ceiling"` // memory, pids, cpu_time, disk_bytes, disk_inodes, output_bytes, timeout
	Code    Code   `json:"code"`    // oom_killed, pids_exceeded, …
	Scope   string `json:"scope"`   // "execution", or "session" when the ceiling is shared
	Object  string `json:"object,omitempty"`
	Limit   int64  `json:"limit"`          // bytes, processes, nanoseconds or inodes
	Peak    int64  `json:"peak,omitzero"`  // 0 where the kernel does not say
	Count   int64  `json:"count,omitzero"` // how often
	Hint    string `json:"hint"`           // what would raise it
}

// Denial is something that a layer refused at run time, from that layer's own evidence.
type Denial struct {
	Layer   string `json:"layer"` // seccomp, network, dns
	Rule    string `json:"rule"`
	Object  string `json:"object,omitempty"`
	Syscall string `json:"syscall,omitempty"`
	Errno   string `json:"errno"`
	Grant   string `json:"grant,omitempty"` // the least that would have allowed it; absent where no one thing does
	Count   int64  `json:"count"`
	AtNS    int64  `json:"at_ns"`
	At      string `json:"at"`
}

// Traffic is what went through the relay of a session.
type Traffic struct {
	Connections int64 `json:"connections"`
	Refused     int64 `json:"refused"`
	Questions   int64 `json:"dns_questions"`
	Sent        int64 `json:"sent_bytes"`
	Received    int64 `json:"received_bytes"`
}

// ForwardResult is the payload of host.session.forward.
type ForwardResult struct {
	Status      string `json:"status"` // closed, error
	Port        uint16 `json:"port,omitzero"`
	Reason      string `json:"reason,omitempty"` // "cut": the session ended or was narrowed; otherwise its caller left
	Connections int64  `json:"connections"`      // that were made inside
	Refused     int64  `json:"refused"`          // that were not: nobody listened
	Sent        int64  `json:"sent_bytes"`       // into the session
	Received    int64  `json:"received_bytes"`
	ErrorCode   Code   `json:"error_code,omitzero"`
}

// ForwardEnded is the status with which a WebSocket is closed when the forwarding that it has open was cut.
const ForwardEnded = 4001

// ForwardMessage is the text message to who has a forwarding open.
type ForwardMessage struct {
	IntentID string `json:"intent_id"` // by which connections join
}

// SpaceResult is the payload of host.workspace.commit and discard, and the answer of diff.
type SpaceResult struct {
	Status    string   `json:"status"` // committed, partial, discarded, ok, error
	GuestPath string   `json:"guest_path,omitempty"`
	Changes   []Change `json:"changes,omitempty"`     // of diff
	More      bool     `json:"more,omitzero"`         // there are changes after the last
	Applied   int64    `json:"applied,omitzero"`      // of commit: changes that the source has now
	Left      []string `json:"left,omitempty"`        // of commit: paths that were asked for and did not change, the first of them
	Dropped   int64    `json:"left_dropped,omitzero"` // of commit: how many more of those
	ErrorCode Code     `json:"error_code,omitzero"`
}

// Change is one difference between an overlay and what lies below it.
type Change struct {
	Path      string `json:"path"`                 // relative to the mount
	PathBytes []byte `json:"path_bytes,omitempty"` // the path, when it is not UTF-8: then path has U+FFFD for what is not
	Kind      string `json:"kind"`                 // added, modified, deleted
	Type      string `json:"type"`                 // file, dir, symlink, fifo
	Mode      uint32 `json:"mode,omitzero"`
	Size      int64  `json:"size_bytes,omitzero"`
	Link      string `json:"link,omitempty"`
	LinkBytes []byte `json:"link_bytes,omitempty"` // as path_bytes
}

// Output is one stream of an execution: a tagged variant. Empty output is absent.
type Output struct {
	InlineText  *InlineText  `json:"inline_text,omitzero"`
	InlineBytes *InlineBytes `json:"inline_bytes,omitzero"`
	Blob        *BlobOutput  `json:"blob,omitzero"`
	Truncated   bool         `json:"truncated,omitzero"`   // the output ceiling cut it
	TotalBytes  int64        `json:"total_bytes,omitzero"` // written by the process, when truncated
	Offset      int64        `json:"offset,omitzero"`      // of a shell: where what is kept begins, the end of its output
}

// Kept is how many bytes of the stream there are to read: 0 of output that is absent.
func (o *Output) Kept() int64 {
	switch {
	case o == nil:
	case o.Blob != nil:
		return o.Blob.SizeBytes
	case o.InlineText != nil:
		return int64(len(o.InlineText.Text))
	case o.InlineBytes != nil:
		return int64(len(o.InlineBytes.Bytes))
	}
	return 0
}

// Overflow says which stream did not fit inline although inline was required.
type Overflow struct {
	Stream     string `json:"stream"`
	SizeBytes  int64  `json:"size_bytes"`
	LimitBytes int64  `json:"limit_bytes"`
}

// Artifact is a file of the session that was returned as a blob.
type Artifact struct {
	Path      string `json:"path"`
	BlobRef   string `json:"blob_ref,omitempty"`
	SizeBytes int64  `json:"size_bytes"`
	Mode      uint32 `json:"mode"` // permission bits
	ErrorCode Code   `json:"error_code,omitzero"`
}

// Usage is what an execution, or a session, used.
type Usage struct {
	WallNS          int64 `json:"wall_ns,omitzero"`
	CPUNS           int64 `json:"cpu_ns,omitzero"` // user and system time of the whole tree
	PeakMemoryBytes int64 `json:"peak_memory_bytes,omitzero"`
	OOMKills        int64 `json:"oom_kills,omitzero"`
	Executions      int64 `json:"executions,omitzero"` // sessions only
}

// SignalResult is the payload of host.session.signal.
type SignalResult struct {
	Status    string `json:"status"` // signaled, not_found, already_exited, error
	Signal    string `json:"signal"` // canonical: "TERM"
	EndedAtNS int64  `json:"ended_at_ns,omitzero"`
	EndedAt   string `json:"ended_at,omitempty"`
	ErrorCode Code   `json:"error_code,omitzero"`
}

// CloseResult is the payload of host.session.close.
type CloseResult struct {
	Status     string `json:"status"` // closed, not_found
	FinalState string `json:"final_state,omitempty"`
	Reason     string `json:"reason,omitempty"` // closed, expired, signal, …
	Summary    string `json:"summary,omitempty"`
	Usage      Usage  `json:"usage,omitzero"`
	EndedAtNS  int64  `json:"ended_at_ns,omitzero"`
	EndedAt    string `json:"ended_at,omitempty"`
}

// BlobResult is the payload of blob.put.
type BlobResult struct {
	BlobRef   string `json:"blob_ref"`
	SizeBytes int64  `json:"size_bytes"`
}

// Session is a session as get and list show it. Environment values are not shown.
type Session struct {
	SessionID    string            `json:"session_id"`
	State        string            `json:"state"` // ready, quiesced (paused), closing, closed, error
	Profile      string            `json:"profile,omitempty"`
	Labels       map[string]string `json:"labels,omitempty"`
	Principal    Principal         `json:"principal"`
	PolicyDigest string            `json:"policy_digest"`
	Grant        *Grant            `json:"grant,omitzero"`
	EnvNames     []string          `json:"env_names,omitempty"`
	Workdir      string            `json:"workdir,omitempty"`
	Executions   int64             `json:"executions"`          // so far
	Live         int64             `json:"live_executions"`     // now, those that are queued included
	Events       int64             `json:"event_seq"`           // of its last event
	IdleAtNS     int64             `json:"idle_at_ns,omitzero"` // when it ends if nothing happens; grows with every activity
	OpenIntent   string            `json:"open_intent_id"`
	StartedAtNS  int64             `json:"started_at_ns"`
	StartedAt    string            `json:"started_at"`
	ExpiresAtNS  int64             `json:"expires_at_ns,omitzero"`
	ExpiresAt    string            `json:"expires_at,omitempty"`
	EndedAtNS    int64             `json:"ended_at_ns,omitzero"`
	EndedAt      string            `json:"ended_at,omitempty"`
	Reason       string            `json:"reason,omitempty"`
	Usage        Usage             `json:"usage,omitzero"`              // of the executions that have ended; of the whole session once it has
	Network      *Traffic          `json:"network,omitzero"`            // of the executions that have ended
	Narrowed     int64             `json:"narrowed,omitzero"`           // how often a part of its network was taken away
	Degraded     []string          `json:"degraded,omitempty"`          // layers that it is without
	Silent       []string          `json:"unreported_layers,omitempty"` // layers that cannot say what they refuse
	Load         *Load             `json:"load,omitzero"`               // what it uses now, while it lives
}

// Load is what a session uses at the moment at which it is asked for; its ceilings are in its grant. What is counted is
// counted since the supervisor that answers began, and begins again with the next.
type Load struct {
	SampledAtNS int64 `json:"sampled_at_ns,omitzero"` // when memory, pids and cpu were read; 0: not yet
	MemoryBytes int64 `json:"memory_bytes"`
	PIDs        int64 `json:"pids"`
	CPUNS       int64 `json:"cpu_ns"`       // that all executions have used, those that are over included
	OutputBytes int64 `json:"output_bytes"` // that executions wrote
	Denied      int64 `json:"denied"`       // operations on it that policy or a ceiling said no to
	Refused     int64 `json:"refused"`      // what its layers refused to executions that have ended
}

// SessionList is a page of sessions, newest first.
type SessionList struct {
	Sessions []Session `json:"sessions"`
}

// ReceiptList is a page of receipts, newest first unless the other order was asked for. One page looks at so many receipts
// at most, whether or not they fit: it can be empty and have more behind it.
type ReceiptList struct {
	Receipts []Receipt `json:"receipts"`
	Next     string    `json:"next,omitempty"` // cursor: how far this page has looked
	More     bool      `json:"more,omitzero"`  // there is something behind it
	Head     string    `json:"head,omitempty"` // cursor: behind it, oldest first, is what was settled later than all that there is
}
