package supervisor

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/stockade-dev/stockade/rego"
	"github.com/stockade-dev/stockade/sandbox"
	"github.com/stockade-dev/stockade/supervisor/api"
)

// The journal's records. Each is one canonical JSON object that says its own type and
// time; whoever reads the journal needs nothing else. An intent is followed by at most
// one decision and exactly one receipt, which carry its id.
const (
	typeStart      = "start"
	typeIntent     = "intent"
	typeDecision   = "decision"
	typeReceipt    = "receipt"
	typeSessionEnd = "session_end"
)

// header is the beginning of every record.
type header struct {
	Type string `json:"type"`
	AtNS int64  `json:"at_ns"`
}

// startRecord is written when a supervisor begins: what its decisions rest on.
type startRecord struct {
	header
	Version       string          `json:"version,omitempty"`
	PolicyDigest  string          `json:"policy_digest"`
	Ceiling       sandbox.Ceiling `json:"ceiling"`
	CeilingDigest string          `json:"ceiling_digest"`
}

// intentRecord is durable before anything happens. Its id is the digest of nonce and
// request, so that neither can be replaced afterwards.
type intentRecord struct {
	header
	IntentID  string         `json:"intent_id"`
	Nonce     string         `json:"nonce"`
	SessionID string         `json:"session_id,omitempty"`
	ExecID    string         `json:"exec_id,omitempty"`
	Request   jsontext.Value `json:"request,omitzero"` // api.Request, redacted
	Large     *largeRequest  `json:"large_request,omitzero"`
}

// keptRequest is how much of a request is recorded when it is refused. What is carried out is
// recorded whole: it needs a grant. A refusal needs none, and must not fill the disk.
const keptRequest = 64 << 10

// largeRequest stands for the request of a refusal that is larger than that. Who has the
// request, redacted and canonical, can show that it is the one: by the digest, and by the
// intent's id.
type largeRequest struct {
	Op        api.Op        `json:"op"`
	Principal api.Principal `json:"principal"`
	SizeBytes int64         `json:"size_bytes"`
	Digest    string        `json:"digest"`
}

// Of the reasons of such a refusal, which may be as many as the request has parts.
const (
	keptReasons = 32
	keptText    = 512 // bytes of each of their texts
)

// fewer returns the first reasons, short, and how many there were beyond.
func fewer(deny []api.Deny) (kept []api.Deny, left int) {
	for _, d := range deny[:min(len(deny), keptReasons)] {
		kept = append(kept, api.Deny{Code: api.Code(short(string(d.Code))), Subject: short(d.Subject), Message: short(d.Message)})
	}
	return kept, len(deny) - len(kept)
}

func short(s string) string {
	if len(s) <= keptText {
		return s
	}
	return strings.ToValidUTF8(s[:keptText], "") + "…"
}

// decisionRecord is what policy was asked and what it said. With the intent, the start
// record of the ceiling and the receipt of the session's open, it gives the policy input
// back byte for byte: see [ReadDecision].
type decisionRecord struct {
	header
	IntentID      string           `json:"intent_id"`
	Policy        api.PolicyRef    `json:"policy"`
	InputDigest   string           `json:"input_digest"`
	CeilingDigest string           `json:"ceiling_digest"`
	NowNS         int64            `json:"now_ns"`
	Facts         rego.Facts       `json:"facts,omitzero"`
	Session       *sessionCounts   `json:"session,omitzero"`
	Allow         bool             `json:"allow"`
	Deny          []api.Deny       `json:"deny,omitempty"`
	Warn          []string         `json:"warn,omitempty"`
	Grant         *api.Grant       `json:"grant,omitzero"` // as policy gave it, before the meet
	Limits        rego.ExecLimits  `json:"limits,omitzero"`
	Obligations   rego.Obligations `json:"obligations,omitzero"`
}

// sessionCounts is what changes about a session; the rest is in its open's receipt.
type sessionCounts struct {
	SessionID      string `json:"session_id"`
	Executions     int64  `json:"executions"`
	LiveExecutions int64  `json:"live_executions"`
}

// receiptRecord is durable before the caller sees the receipt.
type receiptRecord struct {
	header
	Receipt *api.Receipt `json:"receipt"`
}

// sessionEndRecord is the end of a session, however it came about.
type sessionEndRecord struct {
	header
	SessionID string    `json:"session_id"`
	State     string    `json:"state"`  // closed or error
	Reason    string    `json:"reason"` // closed, signal, expired, shutdown, …
	Usage     api.Usage `json:"usage,omitzero"`
}

// intentID names an intent by content.
func intentID(nonce string, request jsontext.Value) string {
	h := sha256.New()
	fmt.Fprintf(h, `{"nonce":%q,"request":%s}`, nonce, []byte(request))
	return "sha256:" + hex.EncodeToString(h.Sum(nil))
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return "sha256:" + hex.EncodeToString(sum[:])
}
