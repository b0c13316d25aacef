package network

import (
	"context"
	"net/netip"
	"os"

	"github.com/stockade-dev/stockade/sandbox"
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
	Report   func(Event)         // told of what happens, one after the other, in no hurry to return; nil is nobody
}

// Event is something that the relay has to tell.
type Event struct {
	Group          uint64 // cgroup id of the socket that it is about, which is its execution's; 0 is not known
	Object         string // "example.org:443", or of a question "example.org"; "" when the relay has ended
	Rule           string // why it was refused; "" of a connection that was let through, at its end
	Errno          string // as the program saw it; "" where it saw an answer of DNS
	Allowed        bool
	Sent, Received int64 // bytes, of a connection that was let through
	DNS            bool
}

// Rules of an Event that is not allowed.
const (
	RuleNotGranted  = "not granted"   // no destination of the grant has this name, address or port
	RuleDenied      = "denied range"  // the address, or every address of the name, is one that the grant does not reach
	RuleNoName      = "no name"       // the grant is by name, and the first bytes have none
	RuleMismatch    = "name mismatch" // the first bytes name two different hosts
	RuleMalformed   = "malformed"     // the first bytes are ambiguous, and so are refused
	RuleTooMany     = "too many"      // connections or questions at once
	RuleUnreachable = "unreachable"   // allowed, and nobody there
	RuleNarrowed    = "narrowed"      // let through before, and not granted any more
	RuleEnded       = "relay ended"   // the relay has died: the session has no network any more
)

// Session is the network of one session. Its methods may be called from many goroutines.
type Session struct{}

// Open sets up the network namespace ns, which must be new, and starts the relay. The caller closes the Session; ns stays the
// caller's. An error is a *sandbox.Error.
func Open(ctx context.Context, ns *os.File, network sandbox.Network, o Options) (*Session, error) {
	return nil, sandbox.Errorf(sandbox.CodeUnsupported, "network")
}

// Evidence lists the interfaces, routes and rules that the kernel has, sorted. It is an error with
// CodeNotEnforced if they are not what was set up, or if the relay has ended.
func (s *Session) Evidence() ([]string, error) { return nil, nil }

// Narrow takes away what network does not have, and cuts connections that are not allowed any more.
// Afterwards they have failed. It is an error to ask for more than there is.
func (s *Session) Narrow(ctx context.Context, network sandbox.Network) (cut int, err error) {
	return 0, nil
}

// Traffic is what went through so far: of the sockets of one group, or with 0 of all. When it returns, everything
// that had happened before has been reported.
func (s *Session) Traffic(ctx context.Context, group uint64) (sandbox.Traffic, error) {
	return sandbox.Traffic{}, nil
}

// Forget gives up what is counted for a group that has ended. It stays in the sum of all.
func (s *Session) Forget(group uint64) {}

// Network is what the session reaches now.
func (s *Session) Network() sandbox.Network { return sandbox.Network{} }

// Close takes the network away: connections are cut, and nobody is told. It does not wait for what the kernel has to do.
func (s *Session) Close() {}

// State is what another program in this process needs beside the files to go on with a Session.
type State struct {
	Network sandbox.Network // as narrowed
	PID     int             // of the relay, which stays a child of this process; 0 of mode "none"
	IPv6    bool
}

// Save stops the conversation with the relay, and returns what [Restore] needs. The files, whose order matters, stay the
// Session's. No call may follow but Continue and Close.
func (s *Session) Save() (State, []*os.File, error) { return State{}, nil, nil }

// Continue undoes Save.
func (s *Session) Continue() {}

// Restore goes on with what Save has returned in another program. It takes the files over, also if it fails: then the relay ends, and
// the session has no network. Of the options only Report matters.
func Restore(state State, files []*os.File, o Options) (*Session, error) { return nil, nil }
