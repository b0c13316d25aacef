package supervisor

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"

	"github.com/stockade-dev/stockade/rego"
	"github.com/stockade-dev/stockade/rego/bundle"
	"github.com/stockade-dev/stockade/sandbox"
	"github.com/stockade-dev/stockade/supervisor/api"
	"github.com/stockade-dev/stockade/supervisor/ledger"
)

// admin.policy.preview

// PolicyPreview validates the policy that is there now, and says what its activation would do to the sessions that are
// open. It changes nothing.
func (s *Supervisor) PolicyPreview(ctx context.Context, req *api.Request) (*api.PolicyPreview, *api.Receipt, error) {
	if denial, err := s.permitRead(req, nil); denial != nil || err != nil {
		return nil, denial, err
	}
	p := &s.policies
	p.one.Lock()
	defer p.one.Unlock()
	ask := req.Activate
	r, b, fault := s.candidate(ctx)
	if fault != nil {
		return nil, nil, fault
	}
	defer p.leave(r)
	if ask.Digest != "" && ask.Digest != b.Digest {
		return nil, nil, api.Errorf(api.CodePolicyChanged, "there is %s, which is not the one that was meant", b.Digest)
	}
	d := &api.PolicyPreview{Active: p.active(), Candidate: describe(r.Policy, b, instant(0)), Sessions: []api.PolicySession{}}
	for _, ses := range s.outdated(b.Digest) {
		v, _ := s.foresee(ctx, r.Policy, b, word(ask.Live, p.from.Live), ses)
		d.Sessions = append(d.Sessions, v)
	}
	d.Sessions, d.More = foremost(d.Sessions)
	if q := s.inFlight(nil); ask.Strict && !q.Quiet {
		d.Blocking = q
	}
	return d, nil, nil
}

// word is what becomes of open sessions, as the first says that says something; "" leaves it to the policy.
func word(asked, configured string) string { return cmp.Or(asked, configured) }

// outdated are the sessions that are open and judged by another revision.
func (s *Supervisor) outdated(digest string) []*session {
	return slices.DeleteFunc(s.registry.all(), func(ses *session) bool {
		return ses.policy == digest || ses.usable(s.now()) != nil
	})
}

// foresee says what a policy means to a session: its open is asked again, as it was asked then. left is the network that
// remains when the session is to be narrowed.
func (s *Supervisor) foresee(ctx context.Context, policy Policy, b *bundle.Revision, live string, ses *session) (v api.PolicySession, left api.GrantNetwork) {
	has := ses.granted()
	v = api.PolicySession{SessionID: ses.id, Principal: ses.principal, Profile: has.Profile, PolicyDigest: ses.policy, Verdict: api.VerdictUnknown}
	gets, deny, err := s.reopen(ctx, policy, ses)
	switch {
	case err != nil:
		s.log.Warn("policy: a session cannot be asked about again", "session_id", ses.id, "error", err)
		v.ErrorCode = api.CodeMissingDependency
	case len(deny) > 0:
		v.Verdict, v.Deny = api.VerdictDenied, deny
	default:
		v.Verdict = api.VerdictSame
		for _, d := range rego.CompareGrants(has, gets) {
			v.Changes = append(v.Changes, api.GrantChange{Field: d.Field, Before: d.Before, After: d.After, Effect: string(d.Effect)})
			switch {
			case d.Effect != rego.Wider: // what cannot be compared may be less
				v.Verdict = api.VerdictNarrower
			case v.Verdict == api.VerdictSame:
				v.Verdict = api.VerdictWider
			}
		}
	}
	v.Action = api.LiveKeep
	if v.Verdict == api.VerdictSame || v.Verdict == api.VerdictWider {
		return v, left
	}
	if live == "" && b != nil {
		live = b.Live.Of(has.Profile)
	}
	v.Action = cmp.Or(live, api.LiveKeep)
	left, ok := narrower(has, gets, v)
	if v.Action == api.LiveNarrow && !ok {
		v.Action = api.LiveTerminate
	}
	return v, left
}

// reopen asks a policy about the open of a session: with what was known then, at the time that it was then.
func (s *Supervisor) reopen(ctx context.Context, policy Policy, ses *session) (*api.Grant, []api.Deny, error) {
	var seq int64
	var ok bool
	s.chronicle.read(func(state *ledger.State) { seq, ok = state.OpenedBy(ses.id) })
	if !ok {
		return nil, nil, errors.New("no record of its open")
	}
	req, decision, err := s.intentAt(seq)
	if err != nil {
		return nil, nil, err
	}
	if decision == nil || req.Open == nil {
		return nil, nil, errors.New("no record of the decision about its open")
	}
	d := policy.Decide(ctx, rego.Open, rego.Input{Request: req, Facts: decision.Facts, Ceiling: s.ceiling, NowNS: decision.NowNS})
	if !d.Allow {
		return nil, d.Deny, nil
	}
	grant, _, deny := rego.Meet(req.Open, *d.Grant, s.ceiling)
	if !slices.ContainsFunc(deny, func(d api.Deny) bool { return d.Code != api.CodeDestination && d.Code != api.CodeNetworkNotAllowed }) && len(deny) > 0 {
		// A caller that names a destination gets it or no session. To one that is open it can be said: not that one any more.
		grant.Network, deny = d.Grant.Network, nil
	}
	return completed(grant), deny, nil
}

// narrower is the network that is left to a session which is to be narrowed, when the network is all in which it would get less:
// nothing else of a session that is open can be taken away.
func narrower(has, gets *api.Grant, v api.PolicySession) (api.GrantNetwork, bool) {
	if gets == nil {
		return api.GrantNetwork{}, false
	}
	for _, c := range v.Changes {
		if c.Effect != string(rego.Wider) && c.Field != "network" && !strings.HasPrefix(c.Field, "network.") {
			return api.GrantNetwork{}, false
		}
	}
	left := common(has.Network, gets.Network)
	return left, beyond(has.Network, left) == "" && beyond(gets.Network, left) == ""
}

// common is what two networks have in common.
func common(a, b api.GrantNetwork) api.GrantNetwork {
	if a.Mode == "none" || b.Mode == "none" {
		return api.GrantNetwork{Mode: "none"}
	}
	n := api.GrantNetwork{Mode: "egress"}
	if a.Mode == b.Mode {
		n.Mode = a.Mode
	}
	for _, side := range [2][2]api.GrantNetwork{{a, b}, {b, a}} {
		outer := side[1].Spec()
		for _, d := range side[0].Allow {
			one := sandbox.Network{Mode: "egress", Allow: []sandbox.Destination{sandbox.Destination(d)}}
			if one.Within(outer) && !slices.ContainsFunc(n.Allow, func(have api.Destination) bool { return sandbox.Destination(have).Covers(sandbox.Destination(d)) }) {
				n.Allow = append(n.Allow, d)
			}
		}
	}
	return n
}

// consequences has the revision that decides now take from open sessions what it takes, and says what became of those that
// did not stay as they were. Each is a work of its own: the end of one waits for its grace.
func (s *Supervisor) consequences(ctx context.Context, r *revision) ([]api.PolicySession, int64) {
	var mu sync.Mutex
	var told []api.PolicySession
	var each sync.WaitGroup
	for _, ses := range s.outdated(r.Digest()) {
		each.Go(func() {
			if v := s.catchUp(ctx, r, ses); v.Action != api.LiveKeep {
				mu.Lock()
				defer mu.Unlock()
				told = append(told, v)
			}
		})
	}
	each.Wait()
	return foremost(told)
}

// catchUp takes from a session what it would not get under r.
func (s *Supervisor) catchUp(ctx context.Context, r *revision, ses *session) api.PolicySession {
	b, live := s.policies.terms(r)
	v, left := s.foresee(ctx, r.Policy, b, live, ses)
	switch v.Action {
	case api.LiveKeep:
		v.Status = "kept"
	case api.LiveNarrow:
		if _, fault := s.narrowTo(ctx, ses, left); fault == nil {
			v.Status = "narrowed"
			return v
		}
		fallthrough // more than that it must not have
	default:
		s.log.Info("policy: a session ends that would not be opened so any more", "session_id", ses.id, "verdict", v.Verdict)
		s.endSession(ses, endPolicy, s.defaults.Grace)
		v.Status = "terminated"
	}
	return v
}

// follow sees to a session that comes to life after the revision that decides now: it was being opened, or comes from an
// earlier supervisor. Where what judges it is lost, it ends.
func (s *Supervisor) follow(ses *session) {
	if !s.admission.enter() {
		return
	}
	r, gone := s.policies.behind(ses)
	if r == nil && !gone {
		s.admission.leave()
		return
	}
	go func() {
		defer s.admission.leave()
		if gone {
			s.endSession(ses, endPolicyLost, s.defaults.Grace)
			return
		}
		defer s.policies.leave(r)
		s.catchUp(s.ctx, r, ses)
	}()
}

// keptVerdicts bounds what one answer has of sessions: a receipt is a record.
const keptVerdicts = 256

// foremost are the first of them, those that would get less before others, and how many there are beyond.
func foremost(list []api.PolicySession) (kept []api.PolicySession, more int64) {
	order := []string{api.VerdictDenied, api.VerdictNarrower, api.VerdictUnknown, api.VerdictWider, api.VerdictSame}
	slices.SortStableFunc(list, func(a, b api.PolicySession) int {
		return cmp.Or(cmp.Compare(slices.Index(order, a.Verdict), slices.Index(order, b.Verdict)), strings.Compare(a.SessionID, b.SessionID))
	})
	kept = list[:min(len(list), keptVerdicts)]
	return kept, int64(len(list) - len(kept))
}
