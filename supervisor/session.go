package supervisor

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/stockade-dev/stockade/rego"
	"github.com/stockade-dev/stockade/sandbox"
	"github.com/stockade-dev/stockade/supervisor/api"
)

// The states of a session: creating → ready → closing → closed, and error when it
// ended otherwise than by being closed.
const (
	stateCreating = "creating"
	stateReady    = "ready"
	stateQuiesced = "quiesced" // ready, and paused
	stateClosing  = "closing"
	stateClosed   = "closed"
	stateError    = "error"
)

// A session is one sandbox and what belongs to it. What stands above mu never changes
// once the session is in the registry.
type session struct {
	id        string
	principal api.Principal
	labels    map[string]string
	env       map[string]string // with secrets: never shown, never recorded
	secret    []string          // names of those; nil where that is not known
	forget    func()            // gives them up to the log; nil while nobody holds them
	intent    string            // of the open
	policy    string            // digest
	pinned    *revision         // that judges what is done in it, until it has ended; guarded by revisions.mu

	silent   []string // layers that cannot say what they refuse
	degraded []string // layers that it is without

	mu         sync.Mutex
	grant      *api.Grant // effective; what it points to is never changed
	narrowed   int64      // how often it was replaced by one with less of a network
	state      string
	end        ending
	started    time.Time
	expires    time.Time // zero: never
	ended      time.Time
	usage      api.Usage
	executions int64
	live       map[string]*execution
	running    int                       // of them, those that need not wait
	waiting    []*execution              // the others, in order of arrival
	pipes      map[*sandbox.Process]bool // that are being drained
	paused     bool
	timer      *time.Timer
	idle       idleClock
	load       loadWatch
	tally      tally
	cut        context.CancelFunc // of what is done to an overlay; nil when nothing is

	freezing  sync.Mutex   // held while all of it is frozen or thawed
	narrowing sync.Mutex   // held while a part of its network is taken away
	space     sync.RWMutex // held while an overlay is committed or discarded; to read, while something is started

	files fileDesk
	lanes []*lane // that are open; guarded by mu

	settling sync.WaitGroup // live executions
	closed   chan struct{}  // closed when the end is recorded
}

func newSession(p api.Principal, open *api.SessionOpen) *session {
	s := &session{
		id:        newID("s-"),
		principal: p,
		labels:    open.Labels,
		env:       map[string]string{},
		secret:    []string{},
		state:     stateCreating,
		live:      map[string]*execution{},
		closed:    make(chan struct{}),
	}
	for name, value := range open.Target.Local.Env {
		s.env[name] = value.Text
		if value.Secret {
			s.secret = append(s.secret, name)
		}
	}
	return s
}

// secrets are the secret values of the environment: where it is not known which they are, all.
func (s *session) secrets() []string {
	var values []string
	for name, value := range s.env {
		if s.secret == nil || slices.Contains(s.secret, name) {
			values = append(values, value)
		}
	}
	return values
}

// newID returns an id that nobody can guess (R016); it can name a cgroup.
func newID(prefix string) string { return prefix + strings.ToLower(rand.Text()) }

// owns reports whether p may know that the session exists: it is the same user, in the
// same scope (R033). Groups do not count; they may change during a session's life.
func owns(owner, p api.Principal) bool { return owner.UID == p.UID && owner.Scope == p.Scope }

// expired reports whether the session's time was over at some moment.
func (s *session) expired(at time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.expires.IsZero() && !at.Before(s.expires)
}

// ready puts a built session into service. From here on its timers run (R021, R024).
func (s *session) ready(grant *api.Grant, now time.Time, expire func(), idle idleClock, load loadWatch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.idle, s.load = idle, load
	s.grant = grant
	s.expires = expiry(grant, s.started)
	if !s.expires.IsZero() {
		s.timer = time.AfterFunc(s.expires.Sub(now), expire)
	}
	s.state = stateReady
	s.touchLocked(now)
	s.watchLoad()
}

// expiry is when a session ends by itself: start and ttl (R010), or earlier when the
// grant itself ends (R109); zero when nobody bounds its life (R011).
func expiry(g *api.Grant, started time.Time) time.Time {
	var at time.Time
	if g.TTLNS > 0 {
		at = started.Add(time.Duration(g.TTLNS))
	}
	if g.ExpiresNS > 0 {
		if end := time.Unix(0, g.ExpiresNS); at.IsZero() || end.Before(at) {
			at = end
		}
	}
	return at
}

// usable says why the session takes no operation, or nil (R025).
func (s *session) usable(now time.Time) *api.Error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.usableLocked(now)
}

func (s *session) usableLocked(now time.Time) *api.Error {
	switch {
	case s.state == stateReady && (s.expires.IsZero() || now.Before(s.expires)):
		return nil
	case s.state == stateReady, s.end.cause == api.CodeSessionExpired:
		return api.Errorf(api.CodeSessionExpired, "session %s has expired", s.id)
	}
	return api.Errorf(api.CodeSessionClosed, "session %s has ended: %s", s.id, s.end.reason)
}

// granted is what the session may be now.
func (s *session) granted() *api.Grant {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.grant
}

// visible reports whether the session came to be: before that, it does not exist for anybody.
func (s *session) visible() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state != stateCreating
}

// over reports whether the session has ended.
func (s *session) over() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state == stateClosed || s.state == stateError
}

// endedBefore reports whether the session had ended at an instant.
func (s *session) endedBefore(at time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return (s.state == stateClosed || s.state == stateError) && s.ended.Before(at)
}

// unknownSession is the answer to an id that does not exist, and to one that belongs to
// somebody else: the two cannot be told apart.
func unknownSession(id string) *api.Error {
	return api.Errorf(api.CodeSessionNotFound, "there is no session %s", id)
}

// admit takes an execution in, if the session is usable. Where it runs as many as it may, one
// more waits for its turn, unless too many do or the grant lets none wait (R052). queue is how many
// may, where the grant does not say.
func (s *session) admit(x *execution, now time.Time, queue int64) *api.Error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usableLocked(now); err != nil {
		return err
	}
	queue = cmp.Or(s.grant.Ceilings.Queued, queue)
	mayWait := s.grant.Exec.Queue == nil || *s.grant.Exec.Queue
	switch {
	case s.paused:
		return api.Errorf(api.CodeSessionPaused, "session %s is paused", s.id)
	case s.hasRoom():
		s.running++
	case int64(s.running) < s.grant.Ceilings.Executions:
		// What holds the place is in the background, and may never end.
		return api.Errorf(api.CodeExecLimit, "session %s has %d executions at once, which is its limit, with those that left their output open", s.id, len(s.pipes))
	case !mayWait:
		return api.Errorf(api.CodeExecLimit, "session %s has %d executions at once, which is its limit", s.id, s.running)
	case int64(len(s.waiting)) >= queue:
		return api.Errorf(api.CodeQueueFull, "session %s runs %d executions at once, which is its limit, and %d wait", s.id, s.running, len(s.waiting))
	default:
		x.turn = make(chan struct{})
		s.waiting = append(s.waiting, x)
	}
	s.executions++
	s.enter(x)
	return nil
}

// adopt takes in an execution that an earlier supervisor started, and counted.
func (s *session) adopt(x *execution) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running++
	s.enter(x)
}

func (s *session) enter(x *execution) {
	s.live[x.id] = x
	s.settling.Add(1)
	s.watchLoad()
}

// withhold takes an execution's place back: it lives, and waits for leave before it waits for its turn.
func (s *session) withhold(x *execution) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if at := slices.Index(s.waiting, x); at >= 0 {
		s.waiting = slices.Delete(s.waiting, at, at+1)
	} else {
		s.running--
		x.turn = make(chan struct{})
	}
	x.withheld = true
	s.proceed()
}

// readmit gives an execution a place again, behind those who wait.
func (s *session) readmit(x *execution) {
	s.mu.Lock()
	defer s.mu.Unlock()
	x.withheld = false
	s.waiting = append(s.waiting, x)
	s.proceed()
}

// adoptWithheld takes in an execution that waited for leave when an earlier supervisor ended, and that it counted.
func (s *session) adoptWithheld(x *execution) {
	s.mu.Lock()
	defer s.mu.Unlock()
	x.withheld, x.turn = true, make(chan struct{})
	s.enter(x)
}

// hasRoom reports whether one more execution may run. One that left its pipes to a background
// process costs us what a live one does.
func (s *session) hasRoom() bool {
	most := s.grant.Ceilings.Executions
	return most == 0 || int64(max(s.running, len(s.pipes))) < most
}

// proceed gives turns to those who wait, first come, first served.
func (s *session) proceed() {
	for len(s.waiting) > 0 && s.state == stateReady && !s.paused && s.hasRoom() {
		x := s.waiting[0]
		s.waiting = s.waiting[1:]
		s.running++
		close(x.turn)
	}
}

// dismiss takes an execution out, once its receipt is durable. One that was refused
// never happened.
func (s *session) dismiss(x *execution, refused bool, now time.Time) {
	s.mu.Lock()
	delete(s.live, x.id)
	switch at := slices.Index(s.waiting, x); {
	case at >= 0:
		s.waiting = slices.Delete(s.waiting, at, at+1)
	case !x.withheld:
		s.running--
	}
	if refused {
		s.executions--
	}
	s.proceed()
	s.touchLocked(now)
	s.mu.Unlock()
	s.settling.Done()
}

// close begins the end and returns the executions that have to be stopped. first is
// false when the end had begun before: how it ends was decided then (R030).
func (s *session) close(why ending) (live []*execution, first bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if first = s.state == stateReady; first {
		s.closeLocked(why)
	}
	return slices.Collect(maps.Values(s.live)), first
}

func (s *session) closeLocked(why ending) {
	s.state, s.end = stateClosing, why
	for _, l := range s.lanes {
		l.end()
	}
	// That of its life goes on: however long a grace is, it ends then (C5).
	stopTimers(s.idle.timer, s.load.timer)
}

func stopTimers(timers ...*time.Timer) {
	for _, t := range timers {
		if t != nil {
			t.Stop()
		}
	}
}

// finish records the end.
func (s *session) finish(at time.Time, used api.Usage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state, s.ended, s.usage = s.end.state, at, used
	s.usage.Executions = s.executions
	s.usage.WallNS = int64(at.Sub(s.started))
	s.env = nil // secrets have no further use
	stopTimers(s.timer)
}

// hold keeps the pipes of a command until they have ended or the session has.
func (s *session) hold(p *sandbox.Process) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pipes == nil {
		s.pipes = map[*sandbox.Process]bool{}
	}
	s.pipes[p] = true
}

// release closes the pipes of a command.
func (s *session) release(p *sandbox.Process) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pipes[p] {
		delete(s.pipes, p)
		p.Stdout.Close()
		p.Stderr.Close()
		s.proceed()
	}
}

// releaseAll closes what is left of pipes: their writers are dead, or cannot be killed.
func (s *session) releaseAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for p := range s.pipes {
		p.Stdout.Close()
		p.Stderr.Close()
	}
	clear(s.pipes)
}

// leave ends what is ours of a session that goes on.
func (s *session) leave() {
	s.releaseAll()
	s.mu.Lock()
	defer s.mu.Unlock()
	stopTimers(s.timer, s.idle.timer, s.load.timer)
}

// executing returns the live executions.
func (s *session) executing() []*execution {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.live))
}

// left is the rest of the session's life, or 0 when it has no end.
func (s *session) left(now time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.expires.IsZero() {
		return 0
	}
	return max(s.expires.Sub(now), 1)
}

// judged is what policy is told about the session: its state without the execution
// that is being judged. narrowed tells which of its grants that is.
func (s *session) judged(self *execution) (j *rego.Session, narrowed int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	j = &rego.Session{
		SessionID:      s.id,
		Profile:        s.grant.Profile,
		Labels:         s.labels,
		Principal:      s.principal,
		Grant:          s.grant,
		Executions:     s.executions,
		LiveExecutions: int64(len(s.live)),
		StartedAtNS:    s.started.UnixNano(),
	}
	if !s.expires.IsZero() {
		j.ExpiresAtNS = s.expires.UnixNano()
	}
	if self != nil {
		j.Executions--
		j.LiveExecutions--
	}
	return j, s.narrowed
}

// document is the session as get and list show it.
func (s *session) document() api.Session {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := api.Session{
		SessionID:    s.id,
		State:        s.state,
		Labels:       s.labels,
		Principal:    s.principal,
		PolicyDigest: s.policy,
		Grant:        s.grant,
		Executions:   s.executions,
		Live:         int64(len(s.live)),
		OpenIntent:   s.intent,
		Reason:       s.end.reason,
		Usage:        s.usage,
		Narrowed:     s.narrowed,
		Degraded:     s.degraded,
		Silent:       s.silent,
	}
	d.EnvNames = slices.Sorted(maps.Keys(s.env))
	if s.state == stateReady {
		d.IdleAtNS, _ = stamp(s.idleAt())
		if s.paused {
			d.State = stateQuiesced
		}
	}
	if s.grant != nil {
		d.Profile, d.Workdir = s.grant.Profile, s.grant.Workdir
	}
	d.StartedAtNS, d.StartedAt = stamp(s.started)
	d.ExpiresAtNS, d.ExpiresAt = stamp(s.expires)
	d.EndedAtNS, d.EndedAt = stamp(s.ended)
	return d
}

// result is the end as close reports it, the same every time (R030, R031).
func (s *session) result() *api.CloseResult {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := &api.CloseResult{
		Status:     "closed",
		FinalState: s.state,
		Reason:     s.end.reason,
		Usage:      s.usage,
		Summary:    summary(s.end.reason, s.executions, s.ended.Sub(s.started)),
	}
	r.EndedAtNS, r.EndedAt = stamp(s.ended)
	return r
}

func summary(reason string, executions int64, life time.Duration) string {
	plural := "s"
	if executions == 1 {
		plural = ""
	}
	return fmt.Sprintf("%d execution%s in %s; ended: %s", executions, plural, life.Round(time.Millisecond), reason)
}

// stamp is an instant and its RFC 3339 twin; both are absent for the zero time.
func stamp(t time.Time) (int64, string) {
	if t.IsZero() {
		return 0, ""
	}
	return t.UnixNano(), t.UTC().Format(time.RFC3339Nano)
}
