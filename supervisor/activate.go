package supervisor

import (
	"context"
	"time"

	"github.com/stockade-dev/stockade/internal/failpoint"
	"github.com/stockade-dev/stockade/rego/bundle"
	"github.com/stockade-dev/stockade/supervisor/api"
	"github.com/stockade-dev/stockade/supervisor/ledger"
)

// admin.policy.activate

// What has a revision of the policy looked at.
const (
	TriggerFile   = "file"   // where it is read has changed
	TriggerSignal = "signal" // somebody sent one
	triggerAPI    = "api"
)

func actActivate(ctx context.Context, s *Supervisor, c *call) (api.Payload, *api.Error) {
	r, fault := s.activate(ctx, triggerAPI, c.req.Principal, *c.req.Activate, c)
	return api.Payload{Policy: r}, fault
}

func failedActivate(code api.Code, _ string) api.Payload {
	return api.Payload{Policy: &api.PolicyResult{Status: api.PolicyError, ErrorCode: code}}
}

// Reload looks at the policy that is there now, and has it decide from here on if it is one. trigger says why. Policy is
// not asked: whoever can write it, or signal us, is above it.
func (s *Supervisor) Reload(ctx context.Context, trigger string) (*api.PolicyResult, error) {
	if !s.admission.enter() {
		return nil, api.Errorf(api.CodeShuttingDown, "the supervisor is shutting down")
	}
	defer s.admission.leave()
	r, fault := s.activate(ctx, trigger, ownPrincipal(), api.PolicyActivate{}, nil)
	if fault != nil {
		return r, fault
	}
	return r, nil
}

// activate makes the policy that is there now the one that decides. A candidate that is no policy changes nothing, and is
// told about. own is the operation that asks for it, if one does.
func (s *Supervisor) activate(ctx context.Context, trigger string, by api.Principal, ask api.PolicyActivate, own *call) (*api.PolicyResult, *api.Error) {
	p := &s.policies
	p.one.Lock()
	defer p.one.Unlock()
	r, b, fault := s.candidate(ctx)
	if fault == nil && ask.Digest != "" && ask.Digest != b.Digest {
		p.leave(r)
		fault = api.Errorf(api.CodePolicyChanged, "there is %s, which is not the one that was meant", b.Digest)
	}
	if fault != nil {
		s.refusePolicy(refusedPolicy(trigger, b, fault, s.now()), by)
		return &api.PolicyResult{Status: api.PolicyRefused, ErrorCode: fault.Code}, fault
	}
	before := p.active()
	if before.Digest == b.Digest && before.Number == b.Number {
		p.leave(r)
		p.forgive()
		return &api.PolicyResult{Status: api.PolicyUnchanged, Revision: &before}, nil
	}
	result := &api.PolicyResult{Status: api.PolicyActivated, Previous: before.Digest}
	live := word(ask.Live, p.from.Live)
	record := &ledger.Policy{
		Header: ledger.At(s.now()), State: ledger.PolicyActive, Trigger: trigger, Principal: by,
		Revision: describe(r.Policy, b, s.now()), Previous: before.Digest,
	}
	if blocking, err := s.change(ctx, r, b, live, ask.Strict, own, record); err != nil || blocking != nil {
		p.leave(r)
		if err != nil {
			fault = faultOf(err)
			s.log.Error("policy", "error", err)
			return &api.PolicyResult{Status: api.PolicyError, ErrorCode: fault.Code}, fault
		}
		fault = api.Errorf(api.CodePolicyBlocked, "%d intents are open", len(blocking.Intents))
		return &api.PolicyResult{Status: api.PolicyBlocked, Blocking: blocking, ErrorCode: fault.Code}, fault
	}
	s.log.Info("policy: another revision decides", "digest", b.Digest, "revision", b.Number, "signed_by", b.SignedBy, "previous", before.Digest, "trigger", trigger)
	now := p.active()
	result.Revision = &now
	result.Sessions, result.More = s.consequences(ctx, r)
	return result, nil
}

// change has r, whose files are b, decide from one instant on: what is asked before it is judged by the revision before, and what
// is asked after it by this one. When that is to be strict, it is an instant in which nothing is open; where there is none, blocking
// says why.
func (s *Supervisor) change(ctx context.Context, r *revision, b *bundle.Revision, live string, strict bool, own *call, record *ledger.Policy) (blocking *api.Quiescence, err error) {
	p := &s.policies
	if err := p.store.Put(b); err != nil {
		return nil, err
	}
	failpoint.Hit("supervisor.policy.kept")
	if strict {
		if blocking = s.hold(own); blocking != nil {
			return blocking, nil
		}
		defer p.mu.Unlock()
	}
	if err := p.store.Activate(b); err != nil {
		return nil, err
	}
	failpoint.Hit("supervisor.policy.remembered")
	if _, err := s.record(ctx, s.journal.Append, record); err != nil {
		return nil, err
	}
	failpoint.Hit("supervisor.policy.recorded")
	if !strict {
		p.mu.Lock()
		defer p.mu.Unlock()
	}
	p.installLocked(r, b, live, s.now())
	return nil, nil
}

// hold keeps everything away from the policies, in an instant in which no intent is open but own; or it says which are. What is on its
// way into the registry has a moment to arrive.
func (s *Supervisor) hold(own *call) (blocking *api.Quiescence) {
	const moment = time.Second
	for until := time.Now().Add(moment); ; time.Sleep(2 * time.Millisecond) {
		s.policies.mu.Lock()
		open := s.registry.others(own)
		if open == 0 && s.policies.entering == 0 {
			return nil
		}
		s.policies.mu.Unlock()
		if open > 0 || time.Now().After(until) {
			return s.inFlight(own)
		}
	}
}

// refusedPolicy is why a candidate is not taken.
func refusedPolicy(trigger string, b *bundle.Revision, why *api.Error, now time.Time) *api.PolicyRefusal {
	r := &api.PolicyRefusal{Code: why.Code, Message: why.Message, Trigger: trigger}
	if b != nil {
		r.Digest, r.Number = b.Digest, b.Number
	}
	r.AtNS, r.At = stamp(now)
	return r
}

// refusePolicy says why a candidate is not taken: in the log, as an event and in the status. The same again, which a directory
// can say at any change of it, is not another record.
func (s *Supervisor) refusePolicy(r *api.PolicyRefusal, by api.Principal) {
	p := &s.policies
	p.mu.Lock()
	last := p.refused
	p.refused = r
	p.mu.Unlock()
	if last != nil && r.Trigger == TriggerFile && last.Code == r.Code && last.Message == r.Message {
		return
	}
	s.log.Error("policy: a candidate is refused, and nothing has changed", "trigger", r.Trigger, "error_code", r.Code, "error", r.Message)
	s.recordRefusal(s.ctx, r, by)
}

// RefuseReload says that a configuration was not taken up: in the log, and as an event of the supervisor's own user. why is for
// people, and journaled: it holds nothing that could let somebody in somewhere.
func (s *Supervisor) RefuseReload(trigger string, why error) {
	s.log.Error("the configuration is refused, and nothing has changed", "trigger", trigger, "error", why)
	if !s.admission.enter() {
		return // it is told by the log alone
	}
	defer s.admission.leave()
	record := &ledger.Reload{Header: ledger.At(s.now()), Principal: ownPrincipal(), Trigger: trigger, Message: short(why.Error())}
	if _, err := s.record(s.ctx, s.journal.Append, record); err != nil {
		s.log.Error("configuration", "error", err)
	}
}

func (s *Supervisor) recordRefusal(ctx context.Context, r *api.PolicyRefusal, by api.Principal) {
	record := &ledger.Policy{
		Header: ledger.At(time.Unix(0, r.AtNS)), State: ledger.PolicyRefused, Trigger: r.Trigger, Principal: by,
		Revision: api.PolicyRevision{Digest: r.Digest, Number: r.Number}, Previous: s.policies.active().Digest,
		ErrorCode: r.Code, Message: short(r.Message),
	}
	if _, err := s.record(ctx, s.journal.Append, record); err != nil {
		s.log.Error("policy", "error", err)
	}
}
