package api

import "github.com/stockade-dev/stockade/sandbox"

// Decision is the answer of policy.decide: what would become of the operation, and
// why. Nothing is started and nothing but the question itself is recorded.
type Decision struct {
	Op      Op        `json:"op"`
	Allow   bool      `json:"allow"`
	Deny    []Deny    `json:"deny,omitempty"`
	Warn    []string  `json:"warn,omitempty"`
	Policy  PolicyRef `json:"policy"`
	Grant   *Grant    `json:"grant,omitzero"` // of an open: the effective one
	Clamped []Clamp   `json:"clamped,omitempty"`

	Approval *RequireApproval `json:"require_approval,omitzero"` // it would wait for somebody's leave
}

// HostInfo is the answer of host.info: the machine, the operator's ceiling, and the
// policy in force.
type HostInfo struct {
	Version      Version         `json:"version"`
	Host         sandbox.Host    `json:"host"`
	Ceiling      sandbox.Ceiling `json:"ceiling"`
	PolicyDigest string          `json:"policy_digest"`
	Workers      *PolicyWorkers  `json:"policy_workers,omitzero"` // absent: policy is evaluated by the supervisor itself
	JournalKey   string          `json:"journal_key,omitempty"`   // public key of the journal's checkpoints, in note form
}

// PolicyWorkers are the processes that evaluate the policy in force, and nothing else.
type PolicyWorkers struct {
	Processes   int64    `json:"processes"`
	Replaced    int64    `json:"replaced"`          // that were ended, or ended, since the revision was loaded
	MemoryBytes int64    `json:"memory_bytes"`      // that each may take beyond what it began with
	CPUTimeNS   int64    `json:"cpu_time_ns"`       // that one decision may take
	Walls       []string `json:"walls"`             // around each: seccomp, no_new_privs, …
	Trouble     string   `json:"trouble,omitempty"` // why the last start of one failed
}

// Capabilities is the answer of host.capabilities: what a session can be held by here, before one is asked for.
// What the host can do and what the operator allows are met; what policy grants it says itself (policy.decide).
type Capabilities struct {
	Kernel     string          `json:"kernel"`
	Arch       string          `json:"arch"`
	Cgroup     string          `json:"cgroup"`   // layout: "v1", "v2" or "hybrid"
	Sessions   bool            `json:"sessions"` // no required layer is missing
	Layers     []sandbox.Layer `json:"layers"`
	Missing    []string        `json:"missing,omitempty"`  // required layers that are not there: each open is refused
	Degradable []string        `json:"degradable"`         // layers that a session may be without, if its caller and policy accept it
	Degraded   []string        `json:"degraded,omitempty"` // those of them that are not there: an open has to accept them
	Roots      []string        `json:"roots"`              // kinds
	Profiles   []string        `json:"seccomp_profiles"`
	Networks   []string        `json:"networks"`    // modes
	MountModes []string        `json:"mount_modes"` // "overlay" among them
	Ceilings   []CeilingKind   `json:"ceilings"`    // each that a session or an execution can have
}

// CeilingKind says whether a ceiling can be armed here.
type CeilingKind struct {
	Name      string `json:"name"`             // the member of limits that asks for it
	Session   bool   `json:"session"`          // of a session
	Execution bool   `json:"execution"`        // of one execution, tighter than its session's
	Max       int64  `json:"max,omitzero"`     // the operator's; 0 is none
	Detail    string `json:"detail,omitempty"` // why it cannot, or at what cost it can
}

// Checkpoint is the answer of receipt.checkpoint: what the journal's key has signed, to be kept
// where the supervisor cannot write. It finds a journal that was rolled back.
type Checkpoint struct {
	Note string `json:"note"` // signed note: number and Merkle root of all records so far
}

// Version says which supervisor answers and what it serves. It asks no policy.
type Version struct {
	Version    string `json:"version"`
	API        int    `json:"api"` // 1
	Operations []Op   `json:"operations"`
}

// Ask is the body of policy.decide: an operation and its parameters. The principal
// is the peer, as always.
type Ask struct {
	Op      Op              `json:"op"`
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
	Drain   *Drain          `json:"drain,omitzero"`
	Log     *LogLevel       `json:"log,omitzero"`
	Space   *Workspace      `json:"workspace,omitzero"` // host.workspace.diff, commit and discard
	Narrow  *SessionNarrow  `json:"narrow,omitzero"`
	Forward *SessionForward `json:"forward,omitzero"`
	Verdict *Verdict        `json:"verdict,omitzero"` // host.approval.approve and deny

	Activate *PolicyActivate `json:"activate,omitzero"` // admin.policy.activate and preview
}

// AskOf is the question about an operation.
func AskOf(r *Request) Ask {
	return Ask{
		Op: r.Op, Open: r.Open, Exec: r.Exec, Signal: r.Signal, Session: r.Session, Close: r.Close, Input: r.Input,
		Deliver: r.Deliver, Modify: r.Modify, Process: r.Process, Cancel: r.Cancel, Stop: r.Stop, Drain: r.Drain,
		Space: r.Space, Narrow: r.Narrow, Verdict: r.Verdict, Activate: r.Activate, Forward: r.Forward, Log: r.Log,
	}
}

// Into makes r, which has a principal, the operation that is asked about.
func (a *Ask) Into(r *Request) {
	r.Op = a.Op.Canonical()
	if r.Op != a.Op {
		r.RequestedKind = a.Op
	}
	if a.Op == "effect.close" && a.Input != nil {
		closing := *a.Input
		closing.Close = true
		a.Input = &closing
	}
	r.Open, r.Exec, r.Signal, r.Session, r.Close, r.Input = a.Open, a.Exec, a.Signal, a.Session, a.Close, a.Input
	r.Deliver, r.Modify, r.Process, r.Cancel, r.Stop, r.Drain = a.Deliver, a.Modify, a.Process, a.Cancel, a.Stop, a.Drain
	r.Space, r.Narrow, r.Verdict, r.Activate, r.Forward, r.Log = a.Space, a.Narrow, a.Verdict, a.Activate, a.Forward, a.Log
}

// Scopes are those that the parameters of the question declare.
func (a *Ask) Scopes() []Scope {
	var scopes []Scope
	add := func(declared bool, scope func() Scope) {
		if declared {
			scopes = append(scopes, scope())
		}
	}
	add(a.Open != nil, func() Scope { return a.Open.Scope })
	add(a.Exec != nil, func() Scope { return a.Exec.Scope })
	add(a.Signal != nil, func() Scope { return a.Signal.Scope })
	add(a.Session != nil, func() Scope { return a.Session.Scope })
	add(a.Close != nil, func() Scope { return a.Close.Scope })
	add(a.Input != nil, func() Scope { return a.Input.Scope })
	add(a.Deliver != nil, func() Scope { return a.Deliver.Scope })
	add(a.Modify != nil, func() Scope { return a.Modify.Scope })
	add(a.Process != nil, func() Scope { return a.Process.Scope })
	add(a.Cancel != nil, func() Scope { return a.Cancel.Scope })
	add(a.Stop != nil, func() Scope { return a.Stop.Scope })
	add(a.Drain != nil, func() Scope { return a.Drain.Scope })
	add(a.Space != nil, func() Scope { return a.Space.Scope })
	add(a.Narrow != nil, func() Scope { return a.Narrow.Scope })
	add(a.Forward != nil, func() Scope { return a.Forward.Scope })
	add(a.Verdict != nil, func() Scope { return a.Verdict.Scope })
	add(a.Log != nil, func() Scope { return a.Log.Scope })
	add(a.Activate != nil, func() Scope { return a.Activate.Scope })
	return scopes
}
