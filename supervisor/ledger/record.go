package ledger

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/stockade-dev/stockade/rego"
	"github.com/stockade-dev/stockade/sandbox"
	"github.com/stockade-dev/stockade/supervisor/api"
)

// The types of records. An intent is followed by at most one decision and exactly one
// receipt, which carry its id. One that waits for leave has a second decision, which was
// made when leave was given.
const (
	TypeStart      = "start"
	TypeIntent     = "intent"
	TypeDecision   = "decision"
	TypeWaiting    = "waiting"
	TypeVerdict    = "verdict"
	TypeFrame      = "frame"
	TypeReceipt    = "receipt"
	TypeNotice     = "notice"
	TypeNarrowed   = "narrowed"
	TypeSessionEnd = "session_end"
	TypeAdopted    = "adopted"
	TypeRetired    = "retired"
	TypeSnapshot   = "snapshot"
	TypePolicy     = "policy"
	TypeReload     = "reload"
)

// Record is a pointer to one of the types of this file. Each is one canonical JSON object
// that says its own type and time; whoever reads the journal needs nothing else.
type Record interface {
	head() *Header
}

// Header is the beginning of every record.
type Header struct {
	Type string `json:"type"` // set by Encode
	AtNS int64  `json:"at_ns"`
}

// At is the header of a record that is made now.
func At(now time.Time) Header { return Header{AtNS: now.UnixNano()} }

func (h *Header) head() *Header { return h }

// Start is written when a supervisor begins: what its decisions rest on, and how much of
// the past it keeps in view.
type Start struct {
	Header
	Version       string          `json:"version,omitempty"`
	PolicyDigest  string          `json:"policy_digest"`
	Ceiling       sandbox.Ceiling `json:"ceiling"`
	CeilingDigest string          `json:"ceiling_digest"`
	Limits        Limits          `json:"limits,omitzero"`
}

// Intent is durable before anything happens. Its id is the digest of nonce and request, so
// that neither can be replaced afterwards. That of an execution has ExecID if the session
// took it in, and then there is a record of the execution: what was refused before has none.
type Intent struct {
	Header
	IntentID  string         `json:"intent_id"`
	Nonce     string         `json:"nonce"`
	SessionID string         `json:"session_id,omitempty"`
	ExecID    string         `json:"exec_id,omitempty"`
	Key       string         `json:"idempotency_key,omitempty"`
	Queued    bool           `json:"queued,omitzero"`  // an execution that waits for its turn
	Request   jsontext.Value `json:"request,omitzero"` // api.Request, redacted
	Large     *Large         `json:"large_request,omitzero"`

	ask *request // what is looked at of Request, if Decode has it
}

// Large stands for the request of a refusal that is too large to be kept. Who has the
// request, redacted and canonical, can show that it is the one: by the digest, and by the
// intent's id.
type Large struct {
	Op        api.Op        `json:"op"`
	Principal api.Principal `json:"principal"`
	Key       string        `json:"idempotency_key,omitempty"`
	SizeBytes int64         `json:"size_bytes"`
	Digest    string        `json:"digest"`
}

// Decision is what policy was asked and what it said. With the intent, the start record of
// the ceiling and the receipt of the session's open, it gives the policy input back byte for
// byte.
type Decision struct {
	Header
	IntentID      string           `json:"intent_id"`
	Policy        api.PolicyRef    `json:"policy"`
	InputDigest   string           `json:"input_digest"`
	CeilingDigest string           `json:"ceiling_digest"`
	NowNS         int64            `json:"now_ns"`
	Facts         rego.Facts       `json:"facts,omitzero"`
	Session       *SessionCounts   `json:"session,omitzero"`
	Process       *rego.Process    `json:"process,omitzero"` // as it was then: it goes on changing
	Approval      *rego.Waiting    `json:"approval,omitzero"`
	File          *rego.File       `json:"file,omitzero"` // what its paths led to then
	Allow         bool             `json:"allow"`
	Deny          []api.Deny       `json:"deny,omitempty"`
	Warn          []string         `json:"warn,omitempty"`
	Grant         *api.Grant       `json:"grant,omitzero"` // as policy gave it, before the meet
	Limits        rego.ExecLimits  `json:"limits,omitzero"`
	Obligations   rego.Obligations `json:"obligations,omitzero"`
	Clamped       []api.Clamp      `json:"clamped,omitempty"`   // limits of the request that were lowered
	ElapsedNS     int64            `json:"elapsed_ns,omitzero"` // that the answer took
}

// SessionCounts is what changes about a session; the rest is in its open's receipt.
type SessionCounts struct {
	SessionID      string `json:"session_id"`
	Executions     int64  `json:"executions"`
	LiveExecutions int64  `json:"live_executions"`
	Narrowed       int64  `json:"narrowed,omitzero"` // its grant is that of its open after so many records of type narrowed
}

// Waiting says that an intent, whose decision comes before it, waits for leave, and of what. What is reviewed is in the
// intent, in the decision and here; its digest is the review token.
type Waiting struct {
	Header
	Approval api.Approval `json:"approval"`
	Grant    *api.Grant   `json:"grant,omitzero"` // of an open: the effective one
}

// Verdict is the end of the wait. One that approves is durable before anything is done.
type Verdict struct {
	Header
	ApprovalID string            `json:"approval_id"`
	IntentID   string            `json:"intent_id"` // that waited
	State      api.ApprovalState `json:"state"`
	By         *api.Principal    `json:"by,omitzero"`
	In         string            `json:"in,omitempty"` // intent of the decision
	Comment    string            `json:"comment,omitempty"`
}

// Frame is a milestone, durable before anybody sees it (R118).
type Frame struct {
	Header
	Frame api.Frame `json:"frame"`
}

// Settled is the end of an intent, durable before the caller sees the receipt.
type Settled struct {
	Header
	Receipt *api.Receipt `json:"receipt"`
}

// Notice is an event of a session that nothing else says. One of kind SESSION_STATE moves
// the session to State, which is ready, quiesced or closing.
type Notice struct {
	Header
	SessionID string         `json:"session_id"`
	ExecID    string         `json:"exec_id,omitempty"`
	Kind      api.NoticeKind `json:"kind"`
	State     string         `json:"state,omitempty"`
	Reason    string         `json:"reason,omitempty"`
	Detail    string         `json:"detail,omitempty"`
}

// Narrowed says that a session has no more of a network than this from here on.
type Narrowed struct {
	Header
	SessionID string           `json:"session_id"`
	Network   api.GrantNetwork `json:"network"`
}

// SessionEnd is the end of a session, however it came about.
type SessionEnd struct {
	Header
	SessionID string    `json:"session_id"`
	State     string    `json:"state"`  // closed or error
	Reason    string    `json:"reason"` // closed, signal, expired, shutdown, …
	Usage     api.Usage `json:"usage,omitzero"`
}

// Adopted says what a supervisor found alive when it began, and goes on with.
type Adopted struct {
	Header
	Sessions   []string `json:"sessions,omitempty"`
	Executions []string `json:"executions,omitempty"`
}

// Retired takes out of view what ended before an instant, and what is named. What lives
// stays, named or not (R240).
type Retired struct {
	Header
	BeforeNS   int64    `json:"before_ns,omitzero"`
	Executions []string `json:"executions,omitempty"`
	Sessions   []string `json:"sessions,omitempty"`
}

// SnapshotTaken says that a snapshot was stored, and which, so that the file can be believed.
type SnapshotTaken struct {
	Header
	Records int64  `json:"records"` // that it covers
	Digest  string `json:"digest"`
}

// Policy says which policy is in force from here on, or which was refused. Decisions name it by its digest.
type Policy struct {
	Header
	State     string             `json:"state"`   // active; pinned: by sessions only; refused
	Trigger   string             `json:"trigger"` // start, file, signal or api; declared: nothing has changed
	Principal api.Principal      `json:"principal"`
	Revision  api.PolicyRevision `json:"policy"`
	Previous  string             `json:"previous,omitempty"` // digest
	ErrorCode api.Code           `json:"error_code,omitzero"`
	Message   string             `json:"error_message,omitempty"`
}

// Reload says that a configuration was not taken up, and that the one before goes on.
type Reload struct {
	Header
	Principal api.Principal `json:"principal"` // who is told
	Trigger   string        `json:"trigger"`
	Message   string        `json:"error_message"`
}

// The states of a policy, and the triggers that the ledger tells apart.
const (
	PolicyActive    = "active"
	PolicyPinned    = "pinned"
	PolicyRefused   = "refused"
	TriggerStart    = "start"
	TriggerDeclared = "declared"
)

// Encode gives the bytes of r in the journal, and sets its type.
func Encode(r Record) ([]byte, error) {
	t, err := typeOf(r)
	if err != nil {
		return nil, err
	}
	r.head().Type = t
	return api.Encode(r)
}

func typeOf(r Record) (string, error) {
	switch r.(type) {
	case *Start:
		return TypeStart, nil
	case *Intent:
		return TypeIntent, nil
	case *Decision:
		return TypeDecision, nil
	case *Waiting:
		return TypeWaiting, nil
	case *Verdict:
		return TypeVerdict, nil
	case *Frame:
		return TypeFrame, nil
	case *Settled:
		return TypeReceipt, nil
	case *Notice:
		return TypeNotice, nil
	case *Narrowed:
		return TypeNarrowed, nil
	case *SessionEnd:
		return TypeSessionEnd, nil
	case *Adopted:
		return TypeAdopted, nil
	case *Retired:
		return TypeRetired, nil
	case *SnapshotTaken:
		return TypeSnapshot, nil
	case *Policy:
		return TypePolicy, nil
	case *Reload:
		return TypeReload, nil
	}
	return "", fmt.Errorf("bug: %T is no record", r)
}

// IntentID names an intent by content.
func IntentID(nonce string, request jsontext.Value) string {
	h := sha256.New()
	fmt.Fprintf(h, `{"nonce":%q,"request":%s}`, nonce, []byte(request))
	return "sha256:" + hex.EncodeToString(h.Sum(nil))
}

// Digest names bytes by content.
func Digest(b []byte) string {
	h := sha256.New()
	h.Write(b)
	return digest(h)
}

func digest(h hash.Hash) string { return "sha256:" + hex.EncodeToString(h.Sum(nil)) }
