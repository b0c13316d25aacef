package rego

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/stockade-dev/stockade/supervisor/api"
)

// Answer is what became of one evaluation: the bytes of a result, or a code that says why there is none. It is not
// trusted: [Decide] judges it, and by itself it allows nothing.
type Answer struct {
	Result  []byte   // JSON
	Rules   []string // that were evaluated
	Labels  []string // of their METADATA
	Code    api.Code // "" beside a result
	Subject string
	Message string
}

// Failed is an answer without a result.
func Failed(code api.Code, format string, args ...any) Answer {
	return Answer{Code: code, Message: fmt.Sprintf(format, args...)}
}

// Undefined is the answer of a policy that lacks an entry point.
func Undefined(ref string) Answer {
	return Answer{Code: api.CodePolicyUndefined, Subject: ref, Message: "the policy does not define " + ref}
}

// Decide puts one question to a policy and judges what it answers, wherever it is evaluated: digest names the
// revision, evaluate is given the canonical bytes of in, of which there are no more than maxInput. Whoever evaluates
// can deny; what it allows goes through the same decoder, ceiling and request as any other result.
func Decide(ref, digest string, maxInput int, in Input, evaluate func(canonical []byte) Answer) (d Decision) {
	start := time.Now()
	defer func() { d.Elapsed = time.Since(start) }()
	d.Policy = api.PolicyRef{Digest: digest, Entrypoint: ref}
	e, ok := entrypointOf(ref)
	if !ok {
		return d.refuse(api.CodePolicyError, ref, "bug: %q is not an entry point", ref)
	}
	canonical, err := in.canonical()
	if err != nil {
		return d.refuse(api.CodePolicyInput, "", "%v", err)
	}
	d.Input, d.InputDigest = canonical, digestOf(canonical)
	if len(canonical) > maxInput {
		return d.refuse(api.CodePolicyInputTooLarge, "", "the request is %d bytes as policy input, at most %d are judged", len(canonical), maxInput)
	}
	a := evaluate(canonical)
	d.Policy.Rules, d.Policy.Labels = a.Rules, a.Labels
	if a.Code != "" {
		return d.refuse(a.Code, a.Subject, "%s", a.Message)
	}
	r, err := decodeResult(a.Result)
	if err != nil {
		return d.refuse(api.CodePolicyResult, "", "%v", err)
	}
	return d.judge(e, r, in)
}

// Breaker stops asking a revision that is late time after time. What it counts is a row of overruns, not their sum: a
// machine under load delays a good policy now and then, and a quarantine denies everything until the next revision.
type Breaker struct {
	Limit int // overruns in a row

	overruns atomic.Int64
}

// Late counts an evaluation that was not over in time.
func (b *Breaker) Late() { b.overruns.Add(1) }

// Punctual counts one that was.
func (b *Breaker) Punctual() {
	if b.overruns.Load() != 0 {
		b.overruns.Store(0)
	}
}

// Open reports whether the limit is reached.
func (b *Breaker) Open() bool { return b.overruns.Load() >= int64(b.Limit) }

// Refusal is the answer while it is open.
func (b *Breaker) Refusal(digest string) Answer {
	return Answer{Code: api.CodePolicyQuarantined, Subject: digest,
		Message: fmt.Sprintf("this policy was late %d times in a row and is not asked any more", b.overruns.Load())}
}
