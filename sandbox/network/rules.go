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
// that each sees where the one before has led a packet to. A packet that is dropped is EPERM for whoever sent it.
//
// Whatever is led has an entry in the kernel's table of connections, for 120 s at most after its end. Entries are counted for each
// namespace, but their memory (256 bytes) is nobody's, and the table is the host's: where too many share a bucket,
// the host's own connections fail. So what stays inside has no entry, and of what is led so many begin in a second:
// 65,000 entries of a session are the most there can be.
var chains = []chain{
	{"spare", nftables.ChainTypeFilter, nftables.ChainPriorityRaw, nftables.ChainPolicyAccept, "type filter hook output priority -300; policy accept", []rule{
		// What ICMP says of a packet that was led is led back with it.
		{"meta l4proto icmp accept", []expr.Any{load(expr.MetaKeyL4PROTO), is(unix.IPPROTO_ICMP), accept}},
		{"meta l4proto ipv6-icmp accept", []expr.Any{load(expr.MetaKeyL4PROTO), is(unix.IPPROTO_ICMPV6), accept}},
		{"th sport 1 accept", []expr.Any{field(expr.PayloadBaseTransportHeader, 0, 2), is(port(portTCP)...), accept}},
		{"th sport 53 accept", []expr.Any{field(expr.PayloadBaseTransportHeader, 0, 2), is(port(portDNS)...), accept}},
		{"th dport 1 accept", []expr.Any{field(expr.PayloadBaseTransportHeader, 2, 2), is(port(portTCP)...), accept}},
		{"th dport 53 accept", []expr.Any{field(expr.PayloadBaseTransportHeader, 2, 2), is(port(portDNS)...), accept}},
		{"ip daddr 127.0.0.0/8 notrack", to(loopback4, untracked)},
		{"ip6 daddr ::1 notrack", to(loopback6, untracked)},
	}},
	{"lead", nftables.ChainTypeNAT, nftables.ChainPriorityNATDest, nftables.ChainPolicyAccept, "type nat hook output priority -100; policy accept", []rule{
		{"limit rate over 500/second burst 5000 packets drop", []expr.Any{
			&expr.Limit{Type: expr.LimitTypePkts, Rate: 500, Unit: expr.LimitTimeSecond, Burst: 5000, Over: true}, drop,
		}},
		// Also on the loopback, where the stubs of resolvers listen that the session's resolv.conf may name.
		{"tcp dport 53 redirect to :53", []expr.Any{load(expr.MetaKeyL4PROTO), is(unix.IPPROTO_TCP), field(expr.PayloadBaseTransportHeader, 2, 2), is(port(53)...), number(portDNS), redirect}},
		{"udp dport 53 redirect to :53", []expr.Any{load(expr.MetaKeyL4PROTO), is(unix.IPPROTO_UDP), field(expr.PayloadBaseTransportHeader, 2, 2), is(port(53)...), number(portDNS), redirect}},
		{"ip daddr 127.0.0.0/8 accept", to(loopback4, accept)},
		{"ip6 daddr ::1 accept", to(loopback6, accept)},
		{"meta l4proto tcp redirect to :1", []expr.Any{load(expr.MetaKeyL4PROTO), is(unix.IPPROTO_TCP), number(portTCP), redirect}},
	}},
	{"keep", nftables.ChainTypeFilter, nftables.ChainPriorityFilter, nftables.ChainPolicyDrop, "type filter hook output priority 0; policy drop", []rule{
		{"ip daddr 127.0.0.0/8 accept", to(loopback4, accept)},
		{"ip6 daddr ::1 accept", to(loopback6, accept)},
	}},
}

var (
	redirect  = &expr.Redir{RegisterProtoMin: 1, RegisterProtoMax: 1, Flags: unix.NF_NAT_RANGE_PROTO_SPECIFIED}
	accept    = &expr.Verdict{Kind: expr.VerdictAccept}
	drop      = &expr.Verdict{Kind: expr.VerdictDrop}
	untracked = &expr.Notrack{}
	loopback4 = []expr.Any{
		load(expr.MetaKeyNFPROTO), is(unix.NFPROTO_IPV4), field(expr.PayloadBaseNetworkHeader, 16, 4),
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: []byte{255, 0, 0, 0}, Xor: make([]byte, 4)}, is(127, 0, 0, 0),
	}
	loopback6 = []expr.Any{
		load(expr.MetaKeyNFPROTO), is(unix.NFPROTO_IPV6), field(expr.PayloadBaseNetworkHeader, 24, 16), is(net.IPv6loopback...),
	}
)

// to says what becomes of what matches.
func to(match []expr.Any, what expr.Any) []expr.Any { return append(slices.Clip(match), what) }

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
			return sandbox.Errorf(sandbox.CodeUnsupported, "nftables: %v: this kernel lacks nf_tables, its nat chains, redirect, notrack or limit: modprobe -a nf_tables nft_chain_nat nft_redir nft_ct nft_limit, or build them in", err)
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
