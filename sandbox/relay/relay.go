package relay

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

// Bounds of one relay. They are of the whole session: what it costs is the session's own memory.
const (
	maxConnections = 1024     // accepted at once, connections that ask DNS among them
	maxQuestions   = 64       // under way at once
	maxGroups      = 4096     // that are counted apart; of others only the sum
	maxFirst       = 17 << 10 // bytes of a connection that are held until there is a name: a TLS record, and its headers
	maxNotices     = 256      // waiting for the parent
	maxAddresses   = 8        // of a name: what fits an answer of 512 bytes
	maxNames       = 1024     // that are remembered
	firstWithin    = 5 * time.Second
	dialWithin     = 10 * time.Second // one address
	askWithin      = 2 * time.Second  // one try
	idleWithin     = time.Hour
	lookEvery      = 30 * time.Second
	lingerWithin   = 2 * time.Second // for what comes after the last byte that counts
	memory         = 48 << 20        // from here on the collector works harder
)

// Events are told in bursts of eventBurst, and eventRate a second in the long run.
const (
	eventBurst = 256
	eventRate  = 64
)

// relay is the state of the process.
type relay struct {
	config   Config
	policy   atomic.Pointer[policy]
	resolver *resolver
	names    *names
	owners   owners
	dial     func(context.Context, netip.AddrPort) (*net.TCPConn, error)
	notices  chan Notice

	slots     chan struct{} // connections
	questions chan struct{} // under way

	mu      sync.Mutex
	live    map[*conn]struct{}
	total   Traffic // of what has ended
	groups  map[uint64]*Traffic
	tokens  float64
	counted time.Time // when tokens were
}

// owners says whose a socket of the session is.
type owners interface {
	tcp(local, remote netip.AddrPort) uint64
	udp(local netip.AddrPort) uint64
}

func newRelay(c Config, whose owners) (*relay, error) {
	p, err := compile(c.Rules, c.Denied, c.Reserved)
	if err != nil {
		return nil, err
	}
	r := &relay{
		config: c, resolver: &resolver{server: c.Resolver}, names: newNames(), owners: whose, dial: dial,
		notices: make(chan Notice, maxNotices), slots: make(chan struct{}, maxConnections), questions: make(chan struct{}, maxQuestions),
		live: map[*conn]struct{}{}, groups: map[uint64]*Traffic{}, tokens: eventBurst, counted: time.Now(),
	}
	r.policy.Store(p)
	return r, nil
}

func dial(ctx context.Context, to netip.AddrPort) (*net.TCPConn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialWithin)
	defer cancel()
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", to.String())
	if err != nil {
		return nil, err
	}
	return c.(*net.TCPConn), nil
}

// accept serves a listener until it fails.
func (r *relay) accept(l *net.TCPListener, serve func(*net.TCPConn)) error {
	for {
		c, err := l.AcceptTCP()
		if err != nil {
			if passes(err) {
				time.Sleep(10 * time.Millisecond) // out of descriptors or memory: connections will end
				continue
			}
			return err
		}
		select {
		case r.slots <- struct{}{}:
			go func() {
				defer func() { <-r.slots }()
				serve(c)
			}()
		default:
			r.refuse(0, Event{Object: c.LocalAddr().String(), Rule: RuleTooMany, Errno: reset})
			abort(c)
		}
	}
}

// tell passes an event on, if there is room and it is not one of too many.
func (r *relay) tell(e Event) {
	r.mu.Lock()
	now := time.Now()
	r.tokens = min(eventBurst, r.tokens+eventRate*now.Sub(r.counted).Seconds())
	r.counted = now
	tell := r.tokens >= 1
	if tell {
		r.tokens--
	}
	r.mu.Unlock()
	if !tell {
		return
	}
	select {
	case r.notices <- Notice{Event: &e}:
	default:
	}
}

// refuse counts and tells a refusal. It is told before the program can see it.
func (r *relay) refuse(group uint64, e Event) {
	r.count(group, Traffic{Refused: 1})
	e.Group = group
	r.tell(e)
}

// count adds to what a group has had.
func (r *relay) count(group uint64, t Traffic) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.countLocked(group, t)
}

func (r *relay) countLocked(group uint64, t Traffic) {
	r.total.add(t)
	counts := r.groups[group]
	if counts == nil {
		if len(r.groups) >= maxGroups {
			return
		}
		counts = new(Traffic)
		r.groups[group] = counts
	}
	counts.add(t)
}

// traffic is what a group has had, live connections included; group 0 is all.
func (r *relay) traffic(group uint64) Traffic {
	r.mu.Lock()
	defer r.mu.Unlock()
	var t Traffic
	if group == 0 {
		t = r.total
	} else if counts := r.groups[group]; counts != nil {
		t = *counts
	}
	for c := range r.live {
		if group == 0 || c.group == group {
			sent, received := c.moved()
			t.add(Traffic{Sent: sent, Received: received})
		}
	}
	return t
}

func (r *relay) forget(group uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.groups, group)
}

// narrow puts new rules in force, and cuts what they do not allow.
func (r *relay) narrow(rules Rules) (cut int, err error) {
	p, err := compile(rules, r.config.Denied, r.config.Reserved)
	if err != nil {
		return 0, err
	}
	r.mu.Lock()
	r.policy.Store(p)
	var over []*conn
	for c := range r.live {
		if !c.over && !c.basis.holds(p) {
			c.over = true
			over = append(over, c)
		}
	}
	r.mu.Unlock()
	for _, c := range over {
		r.tell(Event{Group: c.group, Object: c.object, Rule: RuleNarrowed, Errno: reset})
		c.cut()
	}
	return len(over), nil
}

// look ends connections on which nothing has moved for long.
func (r *relay) look() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for c := range r.live {
		if c.idle() > idleWithin {
			c.cut()
		}
	}
}
