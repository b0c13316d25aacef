package api

// RequireApproval is what policy says of an operation that it allows, and that may not be carried out before
// somebody gives leave (R091). Until then its intent waits.
type RequireApproval struct {
	Reason    string     `json:"reason"`             // shown to who is to decide
	TimeoutNS int64      `json:"timeout_ns"`         // from the request; who has not decided by then has denied
	Approvers *Approvers `json:"approvers,omitzero"` // whose leave counts; absent leaves it to the policy of approvals
	Own       bool       `json:"allow_own,omitzero"` // the user who asks may give himself leave
}

// Approvers names users. The policy of approvals is asked as well.
type Approvers struct {
	UIDs []uint32 `json:"uids,omitempty"`
	GIDs []uint32 `json:"gids,omitempty"` // primary or supplementary
}

// Verdict decides about an operation that waits (host.approval.approve and deny).
type Verdict struct {
	ApprovalID string `json:"approval_id"`
	Review     string `json:"review,omitempty"` // token of what was reviewed; approve needs it
	Comment    string `json:"comment,omitempty"`
	Scope      Scope  `json:"scope,omitzero"`
}

// ApprovalState is where the wait for leave stands. The first is not final.
type ApprovalState string

// The states.
const (
	ApprovalWaiting  ApprovalState = "waiting"
	ApprovalApproved ApprovalState = "approved"
	ApprovalDenied   ApprovalState = "denied"
	ApprovalTimedOut ApprovalState = "timed_out"
	ApprovalCanceled ApprovalState = "canceled" // by who asked, or with the end of the session
	ApprovalVoid     ApprovalState = "void"     // what was reviewed is not what would be done any more
)

// Approval is an operation that waits for leave, or waited for it.
type Approval struct {
	ApprovalID  string        `json:"approval_id"`
	IntentID    string        `json:"intent_id"`
	Op          Op            `json:"op"`
	Principal   Principal     `json:"principal"` // who asks
	SessionID   string        `json:"session_id,omitempty"`
	ExecID      string        `json:"exec_id,omitempty"`
	State       ApprovalState `json:"state"`
	Reason      string        `json:"reason"`             // policy's, for asking
	Review      string        `json:"review"`             // sha256:<hex> of what leave is asked for: request, facts, policy and what it would give
	Approvers   *Approvers    `json:"approvers,omitzero"` // absent: policy knows
	Own         bool          `json:"allow_own,omitzero"` // who asks may decide
	Argv        []string      `json:"argv,omitempty"`     // of an exec: the beginning
	AskedAtNS   int64         `json:"asked_at_ns"`
	AskedAt     string        `json:"asked_at"`
	DeadlineNS  int64         `json:"deadline_ns"`
	Deadline    string        `json:"deadline"`
	DecidedBy   *Principal    `json:"decided_by,omitzero"`  // absent where nobody did: time or the end of a session
	DecidedIn   string        `json:"decided_in,omitempty"` // intent of the decision
	Comment     string        `json:"comment,omitempty"`
	DecidedAtNS int64         `json:"decided_at_ns,omitzero"`
	DecidedAt   string        `json:"decided_at,omitempty"`
	Reviewed    *Reviewed     `json:"reviewed,omitzero"` // of host.approval.get
}

// Reviewed is what leave is asked for. Its canonical digest is the review token.
type Reviewed struct {
	IntentID      string            `json:"intent_id"`
	Request       *Request          `json:"request"`           // secrets replaced by digests
	Sources       map[string]Source `json:"sources,omitempty"` // what its host paths lead to
	Files         []ReviewedFile    `json:"files,omitempty"`   // of a file tool: what its paths lead to
	Policy        string            `json:"policy_digest"`
	CeilingDigest string            `json:"ceiling_digest"`
	Grant         *Grant            `json:"grant,omitzero"`   // of an open: the effective one
	Limits        map[string]int64  `json:"limits,omitempty"` // of an exec: tighter than the session's
	Output        string            `json:"output,omitempty"` // of an exec: how it is kept
	Require       RequireApproval   `json:"require_approval"`
}

// ReviewedFile is a path inside as it was found.
type ReviewedFile struct {
	Path     string `json:"path"`
	Resolved string `json:"resolved"` // after symbolic links
	Link     bool   `json:"through_link,omitzero"`
	Write    bool   `json:"write,omitzero"` // it is made, changed, moved or removed
}

// Source is a host path as it was found under the caller's identity: what it led to, or why nowhere.
type Source struct {
	Resolved string `json:"resolved,omitempty"` // after symbolic links
	Kind     string `json:"kind,omitempty"`     // "dir" or "file"
	Dev      uint64 `json:"dev,omitzero"`
	Ino      uint64 `json:"ino,omitzero"`
	OwnerUID uint32 `json:"owner_uid,omitzero"`
	Mode     uint32 `json:"mode,omitzero"` // permission bits
	Error    Code   `json:"error,omitzero"`
}

// ApprovalList is a page of approvals, in the order in which they last changed. Next is the number to read after: what
// has changed since then comes next.
type ApprovalList struct {
	Approvals []Approval `json:"approvals"`
	Next      string     `json:"next"`
}

// VerdictResult is the payload of host.approval.approve and deny.
type VerdictResult struct {
	ApprovalID string        `json:"approval_id"`
	IntentID   string        `json:"intent_id,omitempty"` // of what waited
	State      ApprovalState `json:"state,omitempty"`     // that it has now
	Again      bool          `json:"again,omitzero"`      // it had been decided so before
	DecidedBy  *Principal    `json:"decided_by,omitzero"`
	Error      Code          `json:"error_code,omitzero"`
}
