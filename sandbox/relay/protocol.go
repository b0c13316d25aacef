package relay

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
)

// Control is the descriptor of the control socket (SOCK_SEQPACKET, see internal/packet) in the relay.
//
//	parent                                relay
//	  │  Order{Start} + descriptors ──────▶ │  it listens
//	  │ ◀──────────────── Notice{Call: 0}   │  ready
//	  │ ◀─────────────── Notice{Event}      │  what happens, in order
//	  │  Order{Call, Narrow | Traffic} ───▶ │
//	  │ ◀────────────────── Notice{Call}    │  the answer, after every event before it
//	  │  end of the socket ───────────────▶ │  it exits
const Control = 3

// Order is a message to the relay: one of its arms.
type Order struct {
	Call    uint64  `json:"call,omitempty"` // which the answer repeats; 0 has none but of Start
	Start   *Config `json:"start,omitempty"`
	Narrow  *Rules  `json:"narrow,omitempty"`
	Traffic *uint64 `json:"traffic,omitempty"` // of a group, 0 of all
	Forget  *uint64 `json:"forget,omitempty"`
}

// Notice is a message from the relay.
type Notice struct {
	Call    uint64   `json:"call,omitempty"`
	Event   *Event   `json:"event,omitempty"`
	Cut     int      `json:"cut,omitempty"`
	Traffic *Traffic `json:"traffic,omitempty"`
}

// Config is what a relay is told at its start. With it come the descriptors, in the order of their kinds
// below; those of IPv6 only with IPv6.
type Config struct {
	Rules    Rules          `json:"rules"`
	Denied   []netip.Prefix `json:"denied"`   // never reached
	Reserved []netip.Prefix `json:"reserved"` // reached only by a granted prefix that lies within
	Resolver netip.AddrPort `json:"resolver"`
	IPv6     bool           `json:"ipv6"`
}

// The descriptors of a Config.
const (
	fileDiag = iota // NETLINK_SOCK_DIAG of the session's namespace
	fileTCP4
	fileQuestions4 // DNS over TCP
	fileUDP4       // DNS
	fileTCP6
	fileQuestions6
	fileUDP6
)

// Files is how many descriptors come with a Config.
func (c *Config) Files() int {
	if c.IPv6 {
		return fileUDP6 + 1
	}
	return fileUDP4 + 1
}

// Rules are what may be reached.
type Rules struct {
	Mode  string        `json:"mode"` // "none", "egress" or "full"
	Allow []Destination `json:"allow"`
}

// Destination is as sandbox.Destination.
type Destination struct {
	Name     string   `json:"name,omitempty"`
	CIDR     string   `json:"cidr,omitempty"`
	Ports    []uint16 `json:"ports,omitempty"`
	Protocol string   `json:"protocol,omitempty"`
}

// Event is something that the relay has to tell. Of many in a short time not all are told; they are counted.
type Event struct {
	Group    uint64 `json:"group,omitempty"`  // cgroup id of the socket that it is about, which is its execution's; 0 is not known
	Object   string `json:"object,omitempty"` // "example.org:443", or of a question "example.org"; "" when the relay has ended
	Rule     string `json:"rule,omitempty"`   // see the Rule constants; "" of a connection that went well, at its end
	Errno    string `json:"errno,omitempty"`  // as the program saw it; "" where it saw an answer of DNS
	Allowed  bool   `json:"allowed,omitempty"`
	Sent     int64  `json:"sent,omitempty"` // bytes, by what is inside
	Received int64  `json:"received,omitempty"`
	DNS      bool   `json:"dns,omitempty"`
}

// Rules of an Event.
const (
	RuleNotGranted  = "not granted"   // no destination of the grant has this name, address or port
	RuleDenied      = "denied range"  // the address, or every address of the name, is one that the grant does not reach
	RuleNoName      = "no name"       // the grant is by name, and the first bytes have none
	RuleMismatch    = "name mismatch" // the first bytes name two hosts, or another port
	RuleMalformed   = "malformed"     // the first bytes can be read in two ways, and are not read
	RuleTooMany     = "too many"      // connections or questions at once
	RuleNarrowed    = "narrowed"      // let through before, and not granted any more
	RuleUnreachable = "unreachable"   // allowed, and nobody answered there: no refusal
	RuleEnded       = "relay ended"   // the relay has died: the session has no network any more
)

// Traffic is as sandbox.Traffic.
type Traffic struct {
	Connections int64
	Refused     int64
	Questions   int64
	Sent        int64
	Received    int64
}

func (t *Traffic) add(o Traffic) {
	t.Connections += o.Connections
	t.Refused += o.Refused
	t.Questions += o.Questions
	t.Sent += o.Sent
	t.Received += o.Received
}

// Encode returns the bytes of an Order or a Notice.
func Encode(message any) ([]byte, error) { return json.Marshal(message) }

// Decode reads one of them, and nothing else.
func Decode(b []byte, message any) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(message); err != nil {
		return fmt.Errorf("relay message: %w", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return errors.New("relay message: more than one")
	}
	return nil
}
