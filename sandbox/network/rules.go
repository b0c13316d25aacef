package network

import (
	"errors"
	"fmt"
	"net"
	"reflect"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/sandbox"
)

// tableName is that of the one table of the namespace.
const tableName = "stockade"

// chain is one of ours, with its rules in order. The text of a rule is nft's.
type chain struct {
	name     string
	kind     nftables.ChainType
	priority *nftables.ChainPriority
	policy   nftables.ChainPolicy
	text     string
	rules    []rule
}

type rule struct {
	text  string
	exprs []expr.Any
}

// chains lead what a session sends to the relay, and drop what is left. They are asked in the order of their priorities, so
// that each sees where the one before has led a packet to. A packet that is dropped is EPERM for whoever sent it; the first of a connection of TCP
// the kernel sends again after a second.
//
// What the kernel notes of a connection is nobody's memory: no group is charged for it. So of what stays inside nothing is noted, and of
// what is led to the relay only so much in a second: 44 thousand notes (17 MiB) at most, which go after 30 s (UDP) or 120 s (TCP).
var chains = []chain{
	{"spare", nftables.ChainTypeFilter, nftables.ChainPriorityRaw, nftables.ChainPolicyAccept, "type filter hook output priority -300; policy accept", []rule{
		{"tcp dport 53 accept", slices.Concat(questions(unix.IPPROTO_TCP, 2), []expr.Any{accept})},
		{"udp dport 53 accept", slices.Concat(questions(unix.IPPROTO_UDP, 2), []expr.Any{accept})},
		// Answers of the relay find their way back by the note.
		{"tcp sport 53 accept", slices.Concat(questions(unix.IPPROTO_TCP, 0), []expr.Any{accept})},
		{"udp sport 53 accept", slices.Concat(questions(unix.IPPROTO_UDP, 0), []expr.Any{accept})},
		{"tcp sport 1 accept", []expr.Any{load(expr.MetaKeyL4PROTO), is(unix.IPPROTO_TCP), field(expr.PayloadBaseTransportHeader, 0, 2), is(port(portTCP)...), accept}},
		// An error is told to whom it is about by the note of that.
		{"meta l4proto icmp accept", []expr.Any{load(expr.MetaKeyL4PROTO), is(unix.IPPROTO_ICMP), accept}},
		{"meta l4proto ipv6-icmp accept", []expr.Any{load(expr.MetaKeyL4PROTO), is(unix.IPPROTO_ICMPV6), accept}},
		{"ip daddr 127.0.0.0/8 notrack", slices.Concat(loopback4, []expr.Any{&expr.Notrack{}})},
		{"ip6 daddr ::1 notrack", slices.Concat(loopback6, []expr.Any{&expr.Notrack{}})},
	}},
	{"lead", nftables.ChainTypeNAT, nftables.ChainPriorityNATDest, nftables.ChainPolicyAccept, "type nat hook output priority -100; policy accept", []rule{
		// Only the first packet of a connection comes here.
		{"meta l4proto tcp limit rate over 200/second burst 2048 packets drop", []expr.Any{load(expr.MetaKeyL4PROTO), is(unix.IPPROTO_TCP), more(200), drop}},
		{"meta l4proto udp limit rate over 500/second burst 2048 packets drop", []expr.Any{load(expr.MetaKeyL4PROTO), is(unix.IPPROTO_UDP), more(500), drop}},
		// Also on the loopback, where the stubs of resolvers listen that the session's resolv.conf may name.
		{"tcp dport 53 redirect to :53", slices.Concat(questions(unix.IPPROTO_TCP, 2), []expr.Any{number(portDNS), redirect})},
		{"udp dport 53 redirect to :53", slices.Concat(questions(unix.IPPROTO_UDP, 2), []expr.Any{number(portDNS), redirect})},
		{"ip daddr 127.0.0.0/8 accept", slices.Concat(loopback4, []expr.Any{accept})},
		{"ip6 daddr ::1 accept", slices.Concat(loopback6, []expr.Any{accept})},
		{"meta l4proto tcp redirect to :1", []expr.Any{load(expr.MetaKeyL4PROTO), is(unix.IPPROTO_TCP), number(portTCP), redirect}},
	}},
	{"keep", nftables.ChainTypeFilter, nftables.ChainPriorityFilter, nftables.ChainPolicyDrop, "type filter hook output priority 0; policy drop", []rule{
		{"ip daddr 127.0.0.0/8 accept", slices.Concat(loopback4, []expr.Any{accept})},
		{"ip6 daddr ::1 accept", slices.Concat(loopback6, []expr.Any{accept})},
	}},
}

var (
	redirect  = &expr.Redir{RegisterProtoMin: 1, RegisterProtoMax: 1, Flags: unix.NF_NAT_RANGE_PROTO_SPECIFIED}
	accept    = &expr.Verdict{Kind: expr.VerdictAccept}
	drop      = &expr.Verdict{Kind: expr.VerdictDrop}
	loopback4 = []expr.Any{
		load(expr.MetaKeyNFPROTO), is(unix.NFPROTO_IPV4), field(expr.PayloadBaseNetworkHeader, 16, 4),
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: []byte{255, 0, 0, 0}, Xor: make([]byte, 4)}, is(127, 0, 0, 0),
	}
	loopback6 = []expr.Any{
		load(expr.MetaKeyNFPROTO), is(unix.NFPROTO_IPV6), field(expr.PayloadBaseNetworkHeader, 24, 16), is(net.IPv6loopback...),
	}
)

// questions are those to DNS, or with the offset of the source port their answers.
func questions(protocol byte, offset uint32) []expr.Any {
	return []expr.Any{load(expr.MetaKeyL4PROTO), is(protocol), field(expr.PayloadBaseTransportHeader, offset, 2), is(port(portDNS)...)}
}

// more than so many in a second, beyond a burst.
func more(rate uint64) expr.Any {
	return &expr.Limit{Type: expr.LimitTypePkts, Rate: rate, Unit: expr.LimitTimeSecond, Burst: 2048, Over: true}
}

func load(key expr.MetaKey) expr.Any { return &expr.Meta{Key: key, Register: 1} }

func is(b ...byte) expr.Any { return &expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: b} }

func field(base expr.PayloadBase, offset, size uint32) expr.Any {
	return &expr.Payload{DestRegister: 1, Base: base, Offset: offset, Len: size}
}

func port(n uint16) []byte { return binaryutil.BigEndian.PutUint16(n) }

func number(n uint16) expr.Any { return &expr.Immediate{Register: 1, Data: port(n)} }

// applyRules makes the table, in one transaction.
func applyRules() error {
	c, err := nftables.New()
	if err != nil {
		return fmt.Errorf("nftables: %w", err)
	}
	table := c.AddTable(&nftables.Table{Name: tableName, Family: nftables.TableFamilyINet})
	for _, row := range chains {
		policy := row.policy
		chain := c.AddChain(&nftables.Chain{
			Name: row.name, Table: table, Type: row.kind, Hooknum: nftables.ChainHookOutput, Priority: row.priority, Policy: &policy,
		})
		for _, r := range row.rules {
			c.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: r.exprs})
		}
	}
	err = c.Flush()
	for _, missing := range []error{unix.ENOENT, unix.EOPNOTSUPP, unix.EPROTONOSUPPORT, unix.EAFNOSUPPORT} {
		if errors.Is(err, missing) {
			return sandbox.Errorf(sandbox.CodeUnsupported, "nftables: %v: this kernel lacks nf_tables, its nat chains, redirect, limits or notrack: modprobe -a nf_tables nft_chain_nat nft_redir nft_limit nft_ct, or build them in", err)
		}
	}
	if err != nil {
		return fmt.Errorf("nftables: %w", err)
	}
	return nil
}

// readRules lists the rules that the kernel has, as text, and refuses what is not ours.
func readRules() ([]string, error) {
	c, err := nftables.New()
	if err != nil {
		return nil, fmt.Errorf("nftables: %w", err)
	}
	found, err := c.ListChains()
	if err != nil {
		return nil, fmt.Errorf("list nftables: %w", err)
	}
	if len(found) != len(chains) {
		return nil, notEnforced("%d chains of nftables, not %d", len(found), len(chains))
	}
	var out []string
	for _, row := range chains {
		lines, err := row.read(c, found)
		if err != nil {
			return nil, err
		}
		out = append(out, lines...)
	}
	return out, nil
}

// read finds a chain among others, and compares it.
func (row chain) read(c *nftables.Conn, found []*nftables.Chain) ([]string, error) {
	for _, f := range found {
		if f.Name != row.name || f.Table.Name != tableName || f.Table.Family != nftables.TableFamilyINet {
			continue
		}
		if f.Type != row.kind || f.Hooknum == nil || *f.Hooknum != *nftables.ChainHookOutput || f.Priority == nil || *f.Priority != *row.priority ||
			f.Policy == nil || *f.Policy != row.policy {
			return nil, notEnforced("chain %s is not: %s", row.name, row.text)
		}
		rules, err := c.GetRules(f.Table, f)
		if err != nil {
			return nil, fmt.Errorf("list chain %s: %w", row.name, err)
		}
		if len(rules) != len(row.rules) {
			return nil, notEnforced("chain %s has %d rules, not %d", row.name, len(rules), len(row.rules))
		}
		out := []string{fmt.Sprintf("chain %s: %s", row.name, row.text)}
		for i, r := range rules {
			if !reflect.DeepEqual(r.Exprs, row.rules[i].exprs) {
				return nil, notEnforced("rule %d of chain %s is not: %s", i, row.name, row.rules[i].text)
			}
			out = append(out, fmt.Sprintf("rule %s %d: %s", row.name, i, row.rules[i].text))
		}
		return out, nil
	}
	return nil, notEnforced("there is no chain %s", row.name)
}

func notEnforced(format string, args ...any) error {
	return sandbox.Errorf(sandbox.CodeNotEnforced, "network: "+format, args...)
}
