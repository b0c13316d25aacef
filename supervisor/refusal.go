package supervisor

import (
	"errors"
	"fmt"
	"strings"

	"github.com/stockade-dev/stockade/rego"
	"github.com/stockade-dev/stockade/sandbox"
	"github.com/stockade-dev/stockade/supervisor/api"
	"github.com/stockade-dev/stockade/supervisor/ledger"
)

// refusal is why an operation does not take place: reasons of a denial, or a fault.
type refusal struct {
	deny  []api.Deny
	fault *api.Error
}

func denied(deny ...api.Deny) *refusal { return &refusal{deny: deny} }

func faulted(err error) *refusal { return &refusal{fault: faultOf(err)} }

// faultOf gives any error a code that a caller can act on.
func faultOf(err error) *api.Error {
	if e, ok := errors.AsType[*api.Error](err); ok {
		return e
	}
	if e, ok := errors.AsType[*sandbox.Error](err); ok {
		return runnerError(e)
	}
	return api.Errorf(api.CodeInternalError, "%v", err)
}

// refuse settles an operation that does not take place. Its intent, its decision and
// its receipt become durable together.
func (s *Supervisor) refuse(c *call, why *refusal) {
	c.operation.abandon(s, c)
	if len(c.request) > keptRequest {
		why = c.abridge(why)
	}
	// Nothing is under way: it may wait for room on the disk.
	s.settle(c, c.refused(why), s.journal.Append, s.records(c)...)
}

// refused is the receipt of a call that is not carried out.
func (c *call) refused(why *refusal) *api.Receipt {
	r := c.newReceipt()
	var code api.Code
	switch {
	case why.fault != nil:
		r.Outcome, code, r.ErrorMessage = api.OutcomeFaulted, why.fault.Code, why.fault.Message
	default:
		r.Outcome, r.Deny, code = api.OutcomeDenied, why.deny, why.deny[0].Code
		r.ErrorMessage = why.deny[0].Message
	}
	r.ErrorCode, r.Status = code, "error"
	r.Payload = c.operation.failed(code, r.ErrorMessage)
	return r
}

// abridge keeps the records and the receipt of a refusal small, whatever was asked. What
// policy was asked cannot be rebuilt from them; its digest stays.
func (c *call) abridge(why *refusal) *refusal {
	c.large = &ledger.Large{Op: c.req.Op, Principal: c.req.Principal, Key: c.req.Key, SizeBytes: int64(len(c.request)), Digest: ledger.Digest(c.request)}
	c.facts, c.file.facts = rego.Facts{}, nil
	if c.decision != nil {
		d := *c.decision
		d.Grant = nil
		d.Deny, _ = fewer(d.Deny)
		d.Warn = nil
		c.decision = &d
	}
	if why.fault != nil {
		return faulted(api.Errorf(why.fault.Code, "%s", short(why.fault.Message)))
	}
	deny, left := fewer(why.deny)
	if left > 0 && c.decision != nil {
		c.decision.Warn = []string{fmt.Sprintf("%d more reasons are not kept: the request has %d bytes", left, len(c.request))}
	}
	return denied(deny...)
}

// keptRequest is how much of a request is recorded when it is refused. What is carried out is
// recorded whole: it needs a grant. A refusal needs none, and must not fill the disk.
const keptRequest = 64 << 10

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
