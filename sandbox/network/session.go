package network

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/internal/cleanup"
	"github.com/stockade-dev/stockade/sandbox"
	"github.com/stockade-dev/stockade/sandbox/relay"
)

// Version changes with what is said between runner and relay: a runner that takes over from another
// speaks with relays that were started by that.
const Version = 1

// Options of a session's network. Of those of mode "none" only the namespace matters.
type Options struct {
	Relay    *os.File            // the stockade-relay binary, in a sealed memfd; stays the caller's
	Denied   []netip.Prefix      // the operator's: reached by no name and no address, whatever is granted
	Resolver string              // "IP:port" of the host's resolver; "" is the first of /etc/resolv.conf
	UID      int                 // host id, user and group, that the relay runs as
	Group    *os.File            // directory of the unified group that the relay is born in; nil is the caller's own; stays the caller's
	Place    func(pid int) error // moves the relay to the groups of v1, before it has anything to do; nil moves nothing
	Report   func(Event)         // told of what happens, one after the other; nil is nobody
}

// Event is something that the relay has to tell. Of many in a short time not all are told; Traffic
// counts them.
type Event = relay.Event

// Rules of an Event. One that is Allowed is no refusal.
const (
	RuleNotGranted  = relay.RuleNotGranted
	RuleDenied      = relay.RuleDenied
	RuleNoName      = relay.RuleNoName
	RuleMismatch    = relay.RuleMismatch
	RuleMalformed   = relay.RuleMalformed
	RuleTooMany     = relay.RuleTooMany
	RuleNarrowed    = relay.RuleNarrowed
	RuleUnreachable = relay.RuleUnreachable
	RuleEnded       = relay.RuleEnded
)

// Session is the network of one session. Its methods may be called from many goroutines.
type Session struct {
	ns    *os.File // ours
	ipv6  bool
	relay *process // nil of mode "none"

	mu      sync.Mutex
	network sandbox.Network
}

// Open sets up the network namespace ns, which must be new, and starts the relay. The caller closes the Session; ns stays the
// caller's. An error is a *sandbox.Error.
func Open(ctx context.Context, ns *os.File, network sandbox.Network, o Options) (_ *Session, err error) {
	var undo cleanup.Stack
	defer undo.Run()
	s := &Session{network: network}
	if s.ns, err = duplicate(ns); err != nil {
		return nil, failed(err)
	}
	undo.Add(func() { s.ns.Close() })
	if network.Mode == "none" {
		if err := within(s.ns, func() error { return loopback(false) }); err != nil {
			return nil, failed(err)
		}
		undo.Release()
		return s, nil
	}
	// First of all, because an executable takes its time to begin, and needs nothing for it.
	if s.relay, err = start(o); err != nil {
		return nil, failed(err)
	}
	undo.Add(s.relay.close)
	var sockets []*os.File
	if err := within(s.ns, func() error { sockets, s.ipv6, err = setUp(); return err }); err != nil {
		return nil, failed(err)
	}
	defer closeAll(sockets)
	config, err := configure(network, o, s.ipv6)
	if err != nil {
		return nil, failed(err)
	}
	if err := s.relay.begin(ctx, config, sockets); err != nil {
		return nil, failed(err)
	}
	undo.Release()
	return s, nil
}

// failed makes an error that a caller may see.
func failed(err error) error {
	var known *sandbox.Error
	if errors.As(err, &known) {
		return known
	}
	return sandbox.Errorf(sandbox.CodeNetwork, "%v", err)
}

// configure is what the relay has to know.
func configure(network sandbox.Network, o Options, ipv6 bool) (*relay.Config, error) {
	own, err := hostAddresses()
	if err != nil {
		return nil, err
	}
	c := &relay.Config{Rules: rulesOf(network), Denied: o.Denied, Reserved: append(sandbox.Reserved(), own...), IPv6: ipv6}
	c.Resolver, err = resolver(o.Resolver)
	return c, err
}

func rulesOf(network sandbox.Network) relay.Rules {
	r := relay.Rules{Mode: network.Mode}
	for _, d := range network.Allow {
		r.Allow = append(r.Allow, relay.Destination(d))
	}
	return r
}

// Network is what the session reaches now.
func (s *Session) Network() sandbox.Network {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.network
}

// Narrow takes away what network does not have, and cuts connections that are not allowed any more. When it
// returns, they have failed. More than there is is refused, with CodeInvalidSpec.
func (s *Session) Narrow(ctx context.Context, network sandbox.Network) (cut int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !network.Within(s.network) {
		return 0, sandbox.Errorf(sandbox.CodeInvalidSpec, "network: asks for more than the session has")
	}
	if s.relay != nil {
		rules := rulesOf(network)
		answer, err := s.relay.call(ctx, relay.Order{Narrow: &rules})
		if err != nil && !errors.Is(err, errEnded) { // without a relay nothing is reached
			return 0, failed(err)
		}
		cut = answer.Cut
	}
	s.network = network
	return cut, nil
}

// Traffic is what went through so far: of the sockets of one group, or with 0 of all. When it returns, everything
// that had happened before has been reported.
func (s *Session) Traffic(ctx context.Context, group uint64) (sandbox.Traffic, error) {
	if s.relay == nil {
		return sandbox.Traffic{}, nil
	}
	answer, err := s.relay.call(ctx, relay.Order{Traffic: &group})
	if err != nil {
		return sandbox.Traffic{}, failed(err)
	}
	return sandbox.Traffic(*answer.Traffic), nil
}

// Lost reports whether the session had a relay that has ended: nothing is reached any more.
func (s *Session) Lost() bool { return s.relay != nil && s.relay.lost() }

// Forget gives up what is counted for a group that has ended. It stays in the sum of all.
func (s *Session) Forget(group uint64) {
	if s.relay != nil {
		s.relay.say(relay.Order{Forget: &group})
	}
}

// Close takes the network away: connections are cut, and nobody is told. It does not wait for what the kernel has to do.
func (s *Session) Close() {
	if s.relay != nil {
		s.relay.close()
	}
	s.ns.Close()
}

func duplicate(f *os.File) (*os.File, error) {
	raw, err := f.SyscallConn() // Fd would make it blocking
	if err != nil {
		return nil, err
	}
	dup := -1
	cerr := raw.Control(func(fd uintptr) { dup, err = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0) })
	if err := errors.Join(err, cerr); err != nil {
		return nil, fmt.Errorf("duplicate %s: %w", f.Name(), err)
	}
	return os.NewFile(uintptr(dup), f.Name()), nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}
