package api

import "github.com/go-json-experiment/json/jsontext"

// PolicyActivate asks that the policy which is there now be the one that decides (admin.policy.activate), or what would
// become of that (admin.policy.preview). Sessions that are open go on being judged by the revision under which they were
// opened.
type PolicyActivate struct {
	Strict bool   `json:"strict,omitzero"`  // only while no intent is open; otherwise any time, for what is opened from then on
	Live   string `json:"live,omitempty"`   // what becomes of a session that would get less today: "keep", "narrow" (or end, where it cannot be narrowed) or "terminate"; "" leaves it to the policy
	Digest string `json:"digest,omitempty"` // of the revision that is meant: another one is refused
	Scope  Scope  `json:"scope,omitzero"`
}

// PolicyRevision is one revision of the policy.
type PolicyRevision struct {
	Digest             string `json:"digest"` // of the files that decide: what receipts name
	DataDigest         string `json:"data_digest,omitempty"`
	CapabilitiesDigest string `json:"capabilities_digest,omitempty"` // of the builtins that it may call
	Number             int64  `json:"revision,omitzero"`             // its manifest's; 0 = it has none
	Contract           int64  `json:"contract,omitzero"`             // with the supervisor
	SignedBy           string `json:"signed_by,omitempty"`           // sha256:<hex> of the public key; absent = no signature was asked for
	Source             string `json:"source,omitempty"`              // where it was read; absent = it came with the supervisor
	ActivatedAtNS      int64  `json:"activated_at_ns,omitzero"`      // by this supervisor
	ActivatedAt        string `json:"activated_at,omitempty"`
	Sessions           int64  `json:"sessions,omitzero"` // that are judged by it until they end
}

// PolicyStatus is the answer of admin.policy.status.
type PolicyStatus struct {
	Active  PolicyRevision   `json:"active"`            // judges what is opened now, and everything outside of sessions
	Pinned  []PolicyRevision `json:"pinned"`            // others, by which open sessions are judged
	Source  string           `json:"source,omitempty"`  // where the next one is read; absent = there is none
	Keys    []string         `json:"keys,omitempty"`    // one of which must have signed it
	Highest int64            `json:"highest,omitzero"`  // number that was ever active: nothing older is taken
	Refused *PolicyRefusal   `json:"refused,omitempty"` // the last candidate, if it was not taken
}

// PolicyRefusal says why a candidate is not the policy.
type PolicyRefusal struct {
	Digest  string `json:"digest,omitempty"` // absent when it could not be read
	Number  int64  `json:"revision,omitzero"`
	Code    Code   `json:"error_code"`
	Message string `json:"error_message"`
	Trigger string `json:"trigger"` // start, file, signal or api
	AtNS    int64  `json:"at_ns"`
	At      string `json:"at"`
}

// PolicyPreview is the answer of admin.policy.preview: the candidate, which was validated, and what its activation would do.
type PolicyPreview struct {
	Active    PolicyRevision  `json:"active"`
	Candidate PolicyRevision  `json:"candidate"`
	Sessions  []PolicySession `json:"sessions"` // that are open: those that would get less first
	More      int64           `json:"sessions_dropped,omitzero"`
	Blocking  *Quiescence     `json:"blocking,omitzero"` // of strict: what keeps it from being activated now
}

// PolicyResult is the payload of admin.policy.activate.
type PolicyResult struct {
	Status    string          `json:"status"` // activated, unchanged, blocked, refused, error
	Revision  *PolicyRevision `json:"revision,omitzero"`
	Previous  string          `json:"previous,omitempty"` // digest
	Sessions  []PolicySession `json:"sessions,omitempty"` // that did not stay as they were, the first of them
	More      int64           `json:"sessions_dropped,omitzero"`
	Blocking  *Quiescence     `json:"blocking,omitzero"`
	ErrorCode Code            `json:"error_code,omitzero"`
}

// PolicySession is what a candidate means to an open session: its open was asked again.
type PolicySession struct {
	SessionID    string        `json:"session_id"`
	Principal    Principal     `json:"principal"`
	Profile      string        `json:"profile,omitempty"`
	PolicyDigest string        `json:"policy_digest"`     // that it is judged by
	Verdict      string        `json:"verdict"`           // same, wider, narrower, denied, or unknown: it could not be asked again
	Action       string        `json:"action"`            // keep, narrow, terminate
	Status       string        `json:"status,omitempty"`  // of activate: kept, narrowed, terminated, error
	Changes      []GrantChange `json:"changes,omitempty"` // from what it has to what it would get
	Deny         []Deny        `json:"deny,omitempty"`    // why it would not be opened
	ErrorCode    Code          `json:"error_code,omitzero"`
}

// GrantChange is one field in which two grants differ.
type GrantChange struct {
	Field  string         `json:"field"`
	Before jsontext.Value `json:"before"` // null is absent
	After  jsontext.Value `json:"after"`
	Effect string         `json:"effect"` // wider, narrower, other
}

// What becomes of a session that would get less under another revision.
const (
	LiveKeep      = "keep"
	LiveNarrow    = "narrow"
	LiveTerminate = "terminate"
)

// The statuses of a PolicyResult.
const (
	PolicyActivated = "activated"
	PolicyUnchanged = "unchanged"
	PolicyBlocked   = "blocked"
	PolicyRefused   = "refused"
	PolicyError     = "error"
)

// The verdicts about a session.
const (
	VerdictSame     = "same"
	VerdictWider    = "wider"
	VerdictNarrower = "narrower"
	VerdictDenied   = "denied"
	VerdictUnknown  = "unknown"
)
