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
}

// HostInfo is the answer of host.info: the machine, the operator's ceiling, and the
// policy in force.
type HostInfo struct {
	Version      Version         `json:"version"`
	Host         sandbox.Host    `json:"host"`
	Ceiling      sandbox.Ceiling `json:"ceiling"`
	PolicyDigest string          `json:"policy_digest"`
	JournalKey   string          `json:"journal_key,omitempty"` // public key of the journal's checkpoints, in note form
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
	Op     Op             `json:"op"`
	Open   *SessionOpen   `json:"open,omitzero"`
	Exec   *Exec          `json:"exec,omitzero"`
	Signal *SessionSignal `json:"signal,omitzero"`
	Close  *SessionClose  `json:"close,omitzero"`
}
