package supervisor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/stockade-dev/stockade/internal/durable"
	"github.com/stockade-dev/stockade/internal/failpoint"
	"github.com/stockade-dev/stockade/rego"
	"github.com/stockade-dev/stockade/rego/bundle"
	"github.com/stockade-dev/stockade/supervisor/api"
	"github.com/stockade-dev/stockade/supervisor/ledger"
)

// Policy is one revision of a policy, ready to be asked: a [rego.Engine] of this process, or processes that hold
// one each. A failure is a denial: Decide has no error result.
type Policy interface {
	Decide(ctx context.Context, entrypoint string, in rego.Input) rego.Decision
	Digest() string
	Defines(entrypoint string) bool
	Close() // when the last decision has been given
}

// What a Policy in processes of its own has besides.
type processes interface {
	Current(is bool) // whether it is asked about what is new
	Workers() api.PolicyWorkers
}

// Policies is where revisions of the policy come from.
type Policies struct {
	Open func() (*bundle.Revision, error)              // reads and verifies what is there now
	Load func(*bundle.Revision) (Policy, error)        // makes it answer; what does not load is no policy
	Test func(context.Context, *bundle.Revision) error // runs its own tests; nil runs none

	Source string   // what Open reads, for people; "" when it comes with the program and never changes
	Keys   []string // one of which must have signed it, for people
	Live   string   // what becomes of open sessions when nobody says so with an activation; "" leaves it to the policy

	first  *chosen
	served []api.Op // set by Choose
}

// A revision is a Policy that decides something: what is opened now, or in sessions that were opened under it.
type revision struct {
	Policy
	bundle    *bundle.Revision // nil for the one of [Config.Policy]
	activated time.Time
	live      string // what becomes of sessions of others, as its activation said; "" leaves it to the policy
	users     int    // sessions, questions under way, and its being current; guarded by revisions.mu
	sessions  int    // of them
}

// revisions are the revisions that decide, and how another one comes to. A session is judged by the one under which it was
// opened until it ends, also by a later supervisor: so their files are kept in the state directory.
//
//	verified ──▶ validated ──▶ files durable ──▶ remembered, recorded ──▶ current
//
// A crash before the last step leaves files that nobody needs, and a number that has been used.
type revisions struct {
	from  Policies
	store *bundle.Store // nil: there is one policy, and there will be no other
	one   sync.Mutex    // one candidate is looked at at a time

	mu       sync.Mutex
	current  *revision
	loaded   map[string]*revision // by digest
	entering int                  // operations with effect that are not in the registry yet
	refused  *api.PolicyRefusal   // the last candidate, if it was not taken

	closing sync.WaitGroup // of revisions: their processes take a moment to end, for which no decision waits
}

// keptRevisions is how many revisions that decide nothing any more are kept for those who ask why something was decided.
const keptRevisions = 8

// A chosen policy is the policy that decides from a start on.
type chosen struct {
	policy  Policy
	bundle  *bundle.Revision
	last    bundle.Active // before it
	refused *api.PolicyRefusal
}

// Choose finds the policy that will decide from the start on, for a supervisor of the state directory: what is wrong with it is
// known then before anything else is touched. [New] does it where nobody has. drop gives it up again, if there is no supervisor.
func (p *Policies) Choose(ctx context.Context, state string, log *slog.Logger) (drop func(), err error) {
	store, err := openStore(state)
	if err != nil {
		return nil, err
	}
	last, err := store.Active()
	if err != nil {
		return nil, err
	}
	first := &chosen{last: last}
	p.served = Operations()
	b, fault := p.read(last)
	if fault == nil {
		// What was active when the last supervisor ended has passed its tests.
		first.policy, fault = p.ready(ctx, b, b.Files != last.Files)
	}
	first.bundle = b
	if fault != nil {
		// Where a supervisor was killed or gave way, sessions may live, and what was active goes on until there is something
		// better, as when that happens later. After one that has ended in order nothing waits, and an older policy is not what its operator
		// has put there; nor is that of another place.
		if last.Digest == "" || last.Over || last.Source != p.Source {
			return nil, fmt.Errorf("policy: %s", fault.Message)
		}
		log.Error("policy: it is not taken, and the last one that was active goes on", "error", fault, "digest", last.Digest)
		first.refused = refusedPolicy(ledger.TriggerStart, b, fault, time.Now())
		if first.bundle, err = store.Get(last.Digest); err != nil {
			return nil, fmt.Errorf("policy: %s; and the last one: %w", fault.Message, err)
		}
		if first.policy, fault = p.ready(ctx, first.bundle, false); fault != nil {
			return nil, fmt.Errorf("policy: the last one: %s", fault.Message)
		}
	}
	p.first = first
	return first.policy.Close, nil
}

// Examine reports why a supervisor of the state directory could not begin with this policy. Nothing comes of it. Where the policy is
// read from the same place as before, what was active goes on, and there is nothing to look at.
func (p *Policies) Examine(ctx context.Context, state string) error {
	store, err := openStore(state)
	if err != nil {
		return err
	}
	last, err := store.Active()
	if err != nil {
		return err
	}
	if last.Digest != "" && !last.Over && last.Source == p.Source {
		return nil
	}
	p.served = Operations()
	b, fault := p.read(last)
	if fault == nil {
		var policy Policy
		if policy, fault = p.ready(ctx, b, b.Files != last.Files); fault == nil {
			policy.Close()
			return nil
		}
	}
	return fmt.Errorf("policy: %s", fault.Message)
}

func openStore(state string) (*bundle.Store, error) {
	if err := durable.PrivateDir(state); err != nil {
		return nil, fmt.Errorf("state directory: %w", err)
	}
	return bundle.OpenStore(filepath.Join(state, "policy"))
}

// read is the policy that is there now, verified, and newer than what was active.
func (p *Policies) read(last bundle.Active) (*bundle.Revision, *api.Error) {
	b, err := p.Open()
	if errors.Is(err, bundle.ErrUntrusted) {
		return nil, api.Errorf(api.CodePolicyUntrusted, "%v", err)
	}
	if err != nil {
		return nil, api.Errorf(api.CodePolicyRefused, "%v", err)
	}
	if err := last.Newer(b); err != nil {
		return b, api.Errorf(api.CodePolicyRollback, "%v", err)
	}
	return b, nil
}

// ready makes a policy answer that does not contradict itself in anything that is served.
func (p *Policies) ready(ctx context.Context, b *bundle.Revision, test bool) (Policy, *api.Error) {
	policy, err := p.Load(b)
	if err != nil {
		return nil, api.Errorf(api.CodePolicyRefused, "%v", err)
	}
	if err = preflight(policy, p.served); err == nil && test && p.Test != nil {
		err = p.Test(ctx, b)
	}
	if err == nil && policy.Digest() != b.Digest {
		err = fmt.Errorf("bug: %s was loaded from %s", policy.Digest(), b.Digest)
	}
	if err != nil {
		policy.Close()
		return nil, api.Errorf(api.CodePolicyRefused, "%v", err)
	}
	return policy, nil
}

// openPolicy has a policy decide.
func (s *Supervisor) openPolicy(ctx context.Context, cfg Config) (err error) {
	p := &s.policies
	p.from, p.loaded = cfg.Policies, map[string]*revision{}
	if cfg.Policy != nil {
		p.install(p.add(cfg.Policy, nil), nil, "", s.now())
		return preflight(cfg.Policy, Operations())
	}
	if p.from.first == nil {
		if _, err := p.from.Choose(ctx, cfg.State, s.log); err != nil {
			return err
		}
	}
	first := p.from.first
	p.from.first, p.refused = nil, first.refused
	r := p.add(first.policy, first.bundle)
	if p.store, err = openStore(cfg.State); err != nil {
		return err
	}
	if err := p.keep(first.bundle); err != nil {
		return fmt.Errorf("policy: %w", err)
	}
	live := p.from.Live
	if first.last.Digest == first.bundle.Digest {
		live = api.LiveKeep // what this one means to them, sessions have been told before
	}
	p.install(r, first.bundle, live, s.now())
	return nil
}

// candidate reads, verifies and validates the policy that is there now: what answers by it, which its caller leaves, and its
// files, also of one that is refused.
func (s *Supervisor) candidate(ctx context.Context) (*revision, *bundle.Revision, *api.Error) {
	p := &s.policies
	if p.store == nil {
		return nil, nil, api.Errorf(api.CodePolicyFixed, "the policy of this supervisor does not change")
	}
	last, err := p.store.Active()
	if err != nil {
		return nil, nil, faultOf(err)
	}
	b, fault := p.from.read(last)
	if fault != nil {
		return nil, b, fault
	}
	if known := p.use(b.Digest); known != nil {
		// It answers. Its tests, which decide nothing, may be others.
		if p.from.Test != nil && b.Files != last.Files {
			if err := p.from.Test(ctx, b); err != nil {
				p.leave(known)
				return nil, b, api.Errorf(api.CodePolicyRefused, "%v", err)
			}
		}
		return known, b, nil
	}
	policy, fault := p.from.ready(ctx, b, true)
	if fault != nil {
		return nil, b, fault
	}
	return p.add(policy, b), b, nil
}

// load makes a revision answer that is kept. Its caller leaves it.
func (p *revisions) load(digest string) (*revision, error) {
	b, err := p.store.Get(digest)
	if err != nil {
		return nil, err
	}
	policy, err := p.from.Load(b)
	if err != nil {
		return nil, err
	}
	return p.add(policy, b), nil
}

// keep has a revision there for whoever is pinned to it, and remembers that it is active.
func (p *revisions) keep(b *bundle.Revision) error {
	if err := p.store.Put(b); err != nil {
		return err
	}
	failpoint.Hit("supervisor.policy.kept")
	if err := p.store.Activate(b); err != nil {
		return err
	}
	failpoint.Hit("supervisor.policy.remembered")
	return nil
}

// add takes in a policy that can be asked now. Its caller leaves it.
func (p *revisions) add(policy Policy, b *bundle.Revision) *revision {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := &revision{Policy: policy, bundle: b, users: 1}
	p.loaded[r.Digest()] = r
	return r
}

// use is a revision that is loaded, or nil. Whoever has it leaves it.
func (p *revisions) use(digest string) *revision {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.loaded[digest]
	if r != nil {
		r.users++
	}
	return r
}

// install makes r the revision that decides. b are its files: the same as those that it was loaded from, maybe under another
// number. The use that its caller has becomes that of its being current.
func (p *revisions) install(r *revision, b *bundle.Revision, live string, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.installLocked(r, b, live, now)
}

func (p *revisions) installLocked(r *revision, b *bundle.Revision, live string, now time.Time) {
	before := p.current
	p.current = r
	r.asked(true)
	r.bundle, r.live, r.activated = b, live, now
	if before != nil { // not the refusal of a start
		p.refused = nil
	}
	if before != nil {
		before.asked(before == r)
		p.leaveLocked(before)
	}
}

// asked says whether a revision is asked about what is new.
func (r *revision) asked(is bool) {
	if in, ok := r.Policy.(processes); ok {
		in.Current(is)
	}
}

// workers are the processes that evaluate the current revision; nil if it is this one.
func (p *revisions) workers() *api.PolicyWorkers {
	p.mu.Lock()
	defer p.mu.Unlock()
	in, ok := p.current.Policy.(processes)
	if !ok {
		return nil
	}
	w := in.Workers()
	return &w
}

// of is the revision that judges what is done in a session, or outside of any, and its number. Whoever has it leaves it.
func (p *revisions) of(ses *session) (*revision, int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.current
	if ses != nil && ses.pinned != nil {
		r = ses.pinned
	}
	r.users++
	return r, r.number()
}

func (p *revisions) leave(r *revision) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.leaveLocked(r)
}

func (p *revisions) leaveLocked(r *revision) {
	if r.users--; r.users > 0 {
		return
	}
	if p.loaded[r.Digest()] == r {
		delete(p.loaded, r.Digest())
	}
	p.closing.Go(r.Close)
}

// pin has the current revision judge what is done in a session, until unpin.
func (p *revisions) pin(ses *session) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pinLocked(ses, p.current)
}

func (p *revisions) pinLocked(ses *session, r *revision) {
	r.users++
	r.sessions++
	ses.pinned, ses.policy = r, r.Digest()
}

// repin has a session judged by the revision under which an earlier supervisor opened it. Where that is lost nothing more is
// allowed in it: to go on under another one would be to decide anew.
func (p *revisions) repin(ses *session) (err error) {
	digest := ses.policy
	r := p.use(digest)
	switch {
	case r != nil:
	case p.store == nil: // there is one policy
		r, _ = p.of(nil)
	default:
		if r, err = p.load(digest); err != nil {
			r = p.add(lostRevision(digest), nil)
		}
	}
	if _, gone := r.Policy.(lostRevision); gone && err == nil {
		err = fmt.Errorf("revision %s is lost", digest)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pinLocked(ses, r)
	p.leaveLocked(r)
	ses.policy = digest
	return err
}

// unpin is for a session that has ended, or never came to be.
func (p *revisions) unpin(ses *session) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r := ses.pinned; r != nil {
		ses.pinned = nil
		r.sessions--
		p.leaveLocked(r)
	}
}

// collect forgets the files of revisions that decide nothing any more, but of the last ones.
func (p *revisions) collect() error {
	if p.store == nil {
		return nil
	}
	p.one.Lock() // not between the files of a candidate and its being current
	defer p.one.Unlock()
	kept, err := p.store.List()
	if err != nil {
		return err
	}
	idle := 0
	for _, digest := range kept {
		p.mu.Lock()
		_, decides := p.loaded[digest]
		p.mu.Unlock()
		if decides {
			continue
		}
		if idle++; idle > keptRevisions {
			err = errors.Join(err, p.store.Remove(digest))
		}
	}
	return err
}

// finish says that nothing is left to decide.
func (p *revisions) finish() error {
	if p.store == nil {
		return nil
	}
	return p.store.Finish()
}

// close ends the policies, and returns when they have ended.
func (p *revisions) close() {
	defer p.closing.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.store == nil {
		return // it is not ours
	}
	for _, r := range p.loaded {
		p.closing.Go(r.Close)
	}
	clear(p.loaded)
}

// enter and entered frame the way of an operation with effect into the registry: strict activation waits for a moment
// in which nobody is on it.
func (p *revisions) enter() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.entering++
}

func (p *revisions) entered() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.entering--
}

// document is a revision for people and records.
func (r *revision) document() api.PolicyRevision {
	d := describe(r.Policy, r.bundle, r.activated)
	d.Sessions = int64(r.sessions)
	return d
}

// describe is a policy for people and records. b are its files, if they are known.
func describe(policy Policy, b *bundle.Revision, activated time.Time) api.PolicyRevision {
	d := api.PolicyRevision{Digest: policy.Digest(), CapabilitiesDigest: rego.CapabilitiesDigest()}
	if b != nil {
		d.DataDigest, d.Number, d.Contract, d.SignedBy, d.Source = b.Data, b.Number, int64(b.Contract), b.SignedBy, b.Source
	}
	d.ActivatedAtNS, d.ActivatedAt = stamp(activated)
	return d
}

// active is the revision that decides.
func (p *revisions) active() api.PolicyRevision {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.current.document()
}

// forgive forgets why a candidate was refused: there is a good one.
func (p *revisions) forgive() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refused = nil
}

// behind is the revision that decides now, when a session is judged by another one; whoever has it leaves it. gone is when that
// is lost.
func (p *revisions) behind(ses *session) (r *revision, gone bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if ses.pinned == nil || ses.pinned == p.current {
		return nil, false
	}
	if _, gone := ses.pinned.Policy.(lostRevision); gone {
		return nil, true
	}
	p.current.users++
	return p.current, false
}

// terms are what a revision, and its activation, say of sessions that are open.
func (p *revisions) terms(r *revision) (b *bundle.Revision, live string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return r.bundle, r.live
}

// number is the revision's own, or 0.
func (r *revision) number() int64 {
	if r.bundle == nil {
		return 0
	}
	return r.bundle.Number
}

// lostRevision is the digest of a revision whose files are gone. It denies.
type lostRevision string

func (l lostRevision) Decide(_ context.Context, entrypoint string, _ rego.Input) rego.Decision {
	return rego.Decision{
		Policy: api.PolicyRef{Digest: string(l), Entrypoint: entrypoint},
		Deny:   []api.Deny{{Code: api.CodePolicyLost, Subject: string(l), Message: "the session was opened under a revision that is not there any more"}},
	}
}

func (l lostRevision) Digest() string    { return string(l) }
func (lostRevision) Defines(string) bool { return true }
func (lostRevision) Close()              {}

// ownPrincipal is who does what nobody asked for over the socket: whoever can send the supervisor a signal, or write where its
// policy is read.
func ownPrincipal() api.Principal {
	return api.Principal{UID: uint32(os.Getuid()), GID: uint32(os.Getgid())}
}

// PolicyStatus says which revisions decide, and why the last candidate does not.
func (s *Supervisor) PolicyStatus(_ context.Context, req *api.Request) (*api.PolicyStatus, *api.Receipt, error) {
	if denial, err := s.permitRead(req, nil); denial != nil || err != nil {
		return nil, denial, err
	}
	p := &s.policies
	d := &api.PolicyStatus{Source: p.from.Source, Keys: p.from.Keys, Pinned: []api.PolicyRevision{}}
	if p.store != nil {
		last, err := p.store.Active()
		if err != nil {
			return nil, nil, api.Errorf(api.CodeInternalError, "%v", err)
		}
		d.Highest = last.Highest
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	d.Active, d.Refused = p.current.document(), p.refused
	for _, r := range p.loaded {
		if r != p.current && r.sessions > 0 {
			d.Pinned = append(d.Pinned, r.document())
		}
	}
	slices.SortFunc(d.Pinned, func(a, b api.PolicyRevision) int {
		return strings.Compare(a.Digest, b.Digest)
	})
	return d, nil, nil
}

// digest is that of the revision that decides.
func (p *revisions) digest() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.current.Digest()
}

// declaredPolicies say by which revisions is decided: decisions name them by their digests.
func (s *Supervisor) declaredPolicies() (records []ledger.Record) {
	p := &s.policies
	if p.store == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, digest := range slices.Sorted(maps.Keys(p.loaded)) {
		state := ledger.PolicyPinned
		if digest == p.current.Digest() {
			state = ledger.PolicyActive
		}
		records = append(records, &ledger.Policy{
			Header: ledger.At(s.now()), State: state, Trigger: ledger.TriggerDeclared, Principal: ownPrincipal(), Revision: p.loaded[digest].document(),
		})
	}
	return records
}
