package rego

import (
	"fmt"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/stockade-dev/stockade/supervisor/api"
)

// Decision is what policy said. A zero Decision denies.
type Decision struct {
	Allow       bool
	Deny        []api.Deny // why not; never empty when Allow is false
	Warn        []string
	Grant       *api.Grant // of an allowed open; already within the ceiling, not yet met with the request
	Limits      ExecLimits // of an allowed exec: tighter than the session's grant
	Obligations Obligations
	Policy      api.PolicyRef
	Input       []byte // canonical: what was judged; records hold its parts and its digest
	InputDigest string // sha256:<hex> of Input
	Elapsed     time.Duration
}

// ExecLimits tighten one execution. Zero means the session's.
type ExecLimits struct {
	TimeoutNS      int64 `json:"timeout_ns,omitzero"`
	OutputBytes    int64 `json:"output_bytes,omitzero"`
	MaxInlineBytes int64 `json:"max_inline_bytes,omitzero"`
	MemoryBytes    int64 `json:"memory_bytes,omitzero"`
	CPUMillis      int64 `json:"cpu_millis,omitzero"`
	PIDs           int64 `json:"pids,omitzero"`
	Files          int64 `json:"files,omitzero"`
	CPUTimeNS      int64 `json:"cpu_time_ns,omitzero"`
}

// Obligations are what the supervisor must do with an allowed operation.
type Obligations struct {
	Output          string               `json:"output,omitempty"`          // "blob": output is stored, never inline (R068)
	RequireApproval *api.RequireApproval `json:"require_approval,omitzero"` // it waits until somebody gives leave (R091)
}

// maxApproval is how long an operation can wait for leave: who has not looked in a week does not.
const maxApproval = 7 * 24 * time.Hour

// maxReason bounds what is shown to an approver, and maxApprovers whom an event is for.
const (
	maxReason    = 1024
	maxApprovers = 64
)

// checkApproval refuses an obligation that cannot be kept: nothing waits for ever, or for nobody.
func checkApproval(a *api.RequireApproval) error {
	switch {
	case a.TimeoutNS <= 0 || a.TimeoutNS > int64(maxApproval):
		return fmt.Errorf("timeout_ns %d is not between 1 and %d", a.TimeoutNS, int64(maxApproval))
	case len(a.Reason) > maxReason || a.Reason == "":
		return fmt.Errorf("the reason has %d bytes, not 1 to %d", len(a.Reason), maxReason)
	case a.Approvers != nil && len(a.Approvers.UIDs)+len(a.Approvers.GIDs) == 0:
		return fmt.Errorf("approvers names nobody; absent leaves it to the policy of approvals")
	case a.Approvers != nil && len(a.Approvers.UIDs)+len(a.Approvers.GIDs) > maxApprovers:
		return fmt.Errorf("approvers names more than %d; name a group", maxApprovers)
	}
	return nil
}

// refuse makes d a denial for one reason.
func (d Decision) refuse(code api.Code, subject, format string, args ...any) Decision {
	d.Allow, d.Grant = false, nil
	d.Deny = []api.Deny{{Code: code, Subject: subject, Message: fmt.Sprintf(format, args...)}}
	return d
}

// result is the closed object that an entry point answers with.
type result struct {
	Allow       *bool        `json:"allow"`
	Deny        []api.Deny   `json:"deny"`
	Warn        []string     `json:"warn"`
	Grant       *api.Grant   `json:"grant"`
	Limits      *ExecLimits  `json:"limits"`
	Obligations *Obligations `json:"obligations"`
}

func decodeResult(text []byte) (r result, err error) {
	return r, json.Unmarshal(text, &r, json.RejectUnknownMembers(true))
}

// narrowed says which mounts are granted with less than was asked for: a caller that takes an overlay
// for its own directory would look for its work in the wrong place.
func narrowed(g *api.Grant, r *api.Request) []string {
	var said []string
	asked := askedMounts(r)
	for _, m := range g.Mounts {
		if ask := asked[[2]string{m.HostPath, m.GuestPath}]; wider(ask.Mode, m.Mode) {
			said = append(said, fmt.Sprintf("mount %s: asked for %s, granted %s", m.GuestPath, ask.Mode, m.Mode))
		}
	}
	return said
}

// judge turns an answer into a decision: pure, and the only place where Allow
// becomes true.
func (d Decision) judge(e entrypoint, r result, in Input) Decision {
	d.Warn = r.Warn
	for i, deny := range r.Deny {
		if deny.Code == "" {
			return d.refuse(api.CodePolicyResult, fmt.Sprintf("deny[%d]", i), "a denial without a code")
		}
	}
	switch {
	case r.Allow == nil:
		return d.refuse(api.CodePolicyResult, "allow", "the answer has no allow")
	case len(r.Deny) > 0:
		d.Deny = r.Deny
		return d
	case !*r.Allow:
		return d.refuse(api.CodePolicyDenied, "", "the policy denies without a reason")
	case r.Grant != nil && !e.grants:
		return d.refuse(api.CodePolicyResult, "grant", "%s gives no grant", e.ref)
	case r.Limits != nil && !e.limits:
		return d.refuse(api.CodePolicyResult, "limits", "%s gives no limits", e.ref)
	case r.Obligations != nil && r.Obligations.Output != "" && !e.limits:
		return d.refuse(api.CodePolicyResult, "obligations.output", "%s keeps no output", e.ref)
	case r.Obligations != nil && r.Obligations.RequireApproval != nil && !e.waits:
		return d.refuse(api.CodePolicyResult, "obligations.require_approval", "nothing that %s decides waits for leave", e.ref)
	case r.Grant == nil && e.grants:
		return d.refuse(api.CodePolicyNoGrant, "grant", "the policy allows but grants nothing")
	}
	if e.grants {
		if err := checkGrant(r.Grant); err != nil {
			return d.refuse(api.CodePolicyResult, "grant", "%v", err)
		}
		if over := exceeds(r.Grant, in); len(over) > 0 {
			d.Deny = over
			return d
		}
		d.Grant = r.Grant
		d.Warn = append(d.Warn, narrowed(r.Grant, in.Request)...)
	}
	if r.Limits != nil {
		if err := checkLimits(*r.Limits, in.Session); err != nil {
			return d.refuse(api.CodeGrantExceeds, "limits", "%v", err)
		}
		d.Limits = *r.Limits
	}
	if r.Obligations != nil {
		if o := r.Obligations.Output; o != "" && o != "blob" {
			return d.refuse(api.CodePolicyResult, "obligations.output", "%q is not an obligation", o)
		}
		if a := r.Obligations.RequireApproval; a != nil {
			if err := checkApproval(a); err != nil {
				return d.refuse(api.CodePolicyResult, "obligations.require_approval", "%v", err)
			}
		}
		d.Obligations = *r.Obligations
	}
	d.Allow = true
	return d
}
