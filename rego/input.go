package rego

import (
	"crypto/sha256"
	"encoding/hex"

	"github.com/stockade-dev/stockade/sandbox"
	"github.com/stockade-dev/stockade/supervisor/api"
)

// Input is everything that a policy is told: the document called input. Secrets are
// the caller's to remove before ([api.Request.Redact]); what stands here is journaled.
type Input struct {
	Request  *api.Request    `json:"request"`
	Session  *Session        `json:"session,omitzero"`  // of an operation in one; absent for an open, blobs and lists
	Process  *Process        `json:"process,omitzero"`  // of an operation on one execution; absent otherwise
	Approval *Waiting        `json:"approval,omitzero"` // of an operation on what waits for leave; absent otherwise
	File     *File           `json:"file,omitzero"`     // of a file tool; absent otherwise
	Facts    Facts           `json:"facts"`
	Ceiling  sandbox.Ceiling `json:"ceiling"`
	NowNS    int64           `json:"now_ns"`
}

// Session is what a policy is told about the session that an operation is about.
type Session struct {
	SessionID      string            `json:"session_id"`
	Profile        string            `json:"profile"`
	Labels         map[string]string `json:"labels"`
	Principal      api.Principal     `json:"principal"`
	Grant          *api.Grant        `json:"grant"`
	Executions     int64             `json:"executions"`
	LiveExecutions int64             `json:"live_executions"`
	StartedAtNS    int64             `json:"started_at_ns"`
	ExpiresAtNS    int64             `json:"expires_at_ns"` // 0 = never
}

// Process is what a policy is told about the execution that an operation is on.
type Process struct {
	ExecID      string            `json:"exec_id"`
	IntentID    string            `json:"intent_id"` // that started it
	State       api.State         `json:"state"`
	Argv        []string          `json:"argv"` // the beginning of it, as get and list show it
	Labels      map[string]string `json:"labels"`
	QueuedAtNS  int64             `json:"queued_at_ns"`
	StartedAtNS int64             `json:"started_at_ns"` // 0 = not yet
}

// Waiting is what a policy is told about an operation that waits for leave, when somebody wants to see it or to
// decide about it.
type Waiting struct {
	ApprovalID string            `json:"approval_id"`
	IntentID   string            `json:"intent_id"` // of the operation
	Op         api.Op            `json:"op"`
	Principal  api.Principal     `json:"principal"` // who asks for leave
	SessionID  string            `json:"session_id,omitempty"`
	Argv       []string          `json:"argv,omitempty"` // of an exec: the beginning of it
	State      api.ApprovalState `json:"state"`
	Reason     string            `json:"reason"`
	Approvers  *api.Approvers    `json:"approvers,omitzero"`
	Own        bool              `json:"allow_own,omitzero"`
	AskedAtNS  int64             `json:"asked_at_ns"`
	DeadlineNS int64             `json:"deadline_ns"`
}

// WaitingOf is the part of an approval that policy judges.
func WaitingOf(a api.Approval) *Waiting {
	return &Waiting{
		ApprovalID: a.ApprovalID,
		IntentID:   a.IntentID,
		Op:         a.Op,
		Principal:  a.Principal,
		SessionID:  a.SessionID,
		Argv:       a.Argv,
		State:      a.State,
		Reason:     a.Reason,
		Approvers:  a.Approvers,
		Own:        a.Own,
		AskedAtNS:  a.AskedAtNS,
		DeadlineNS: a.DeadlineNS,
	}
}

// File is what a file tool is about to do, in the words of the grant's fs. What it names has been looked
// at inside, so paths are facts here as they are elsewhere.
type File struct {
	Op           string     `json:"op"`             // read, write, edit, patch, search, list or stat (C20)
	Paths        []FilePath `json:"paths"`          // all that it reads, makes, changes, moves or removes (R114)
	Bytes        int64      `json:"bytes,omitzero"` // of new content, or of a patch
	PatchFormat  string     `json:"patch_format,omitempty"`
	ChangedFiles int64      `json:"changed_files,omitzero"` // by a patch
	Replacements int64      `json:"replacements,omitzero"`  // by an edit
}

// FilePath is a path inside that a file tool names.
type FilePath struct {
	Path     string `json:"path"`
	Resolved string `json:"resolved"`              // after symbolic links; of what is made, its directory's and its name
	Link     bool   `json:"through_link,omitzero"` // a symbolic link is on the way
	Write    bool   `json:"write,omitzero"`        // it is made, changed, moved or removed
}

// ProcessOf is the part of an execution's record that policy judges.
func ProcessOf(p api.Process) *Process {
	return &Process{
		ExecID:      p.ExecID,
		IntentID:    p.IntentID,
		State:       p.State,
		Argv:        p.Argv,
		Labels:      p.Labels,
		QueuedAtNS:  p.QueuedAtNS,
		StartedAtNS: p.StartedAtNS,
	}
}

// Facts are what the supervisor found out about the objects that a request names.
type Facts struct {
	Sources map[string]Source `json:"sources,omitzero"` // of an open: by path as asked
}

// Source is a host path as the runner resolved it under the caller's identity:
// either what it led to, or why it led nowhere.
type Source struct {
	*Found
	Error api.Code `json:"error,omitzero"`
}

// Found is the object that a host path led to.
type Found struct {
	Resolved string `json:"resolved"` // after symbolic links
	Kind     string `json:"kind"`     // "dir" or "file"
	Dev      uint64 `json:"dev"`
	Ino      uint64 `json:"ino"`
	OwnerUID uint32 `json:"owner_uid"`
	Mode     uint32 `json:"mode"` // permission bits
}

// canonical returns the bytes that are judged and recorded.
func (in Input) canonical() ([]byte, error) { return api.Encode(in) }

// digestOf names bytes by content.
func digestOf(b []byte) string {
	sum := sha256.Sum256(b)
	return "sha256:" + hex.EncodeToString(sum[:])
}
