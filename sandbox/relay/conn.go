package relay

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"
)

// reset is what a program sees of a connection that is refused after the kernel has accepted it for us.
const reset = "ECONNRESET"

// basis is why a connection was let through, so that it can be asked again.
type basis struct {
	name string // "" is by address
	raw  bool
	port uint16 // that was granted
	addr netip.Addr
}

func (b basis) holds(p *policy) bool {
	if b.name != "" && p.named(b.name, b.port, b.raw) && p.reaches(b.addr, b.port) {
		return true
	}
	return b.name == "" && p.addressed(b.addr, b.port)
}

// conn is a connection that has been let through.
type conn struct {
	in, out *net.TCPConn
	group   uint64
	object  string
	basis   basis
	over    bool // has been cut; under the relay's mu
}

// refusal is why a connection is not let through.
type refusal struct{ rule, object string }

func (r *refusal) Error() string { return r.rule + ": " + r.object }

// firsts are buffers for first bytes.
var firsts = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, maxFirst) }}

// serve judges one connection, and carries it to its end.
func (r *relay) serve(in *net.TCPConn) {
	dst, err := originalDst(in)
	if self := addrPort(in.LocalAddr()); err != nil || dst == self { // somebody inside has found the listener
		r.refuse(0, Event{Object: in.LocalAddr().String(), Rule: RuleNotGranted, Errno: reset})
		abort(in)
		return
	}
	source := addrPort(in.RemoteAddr())
	group := r.owners.tcp(source, dst)
	if err := r.carry(in, dst, group); err != nil {
		var no *refusal
		if !errors.As(err, &no) {
			no = &refusal{RuleUnreachable, dst.String()}
		}
		e := Event{Object: no.object, Rule: no.rule, Errno: reset}
		if no.rule == RuleUnreachable {
			e.Group, e.Allowed = group, true
			r.tell(e)
		} else {
			r.refuse(group, e)
		}
		abort(in)
	}
}

// carry decides by what the connection goes: by its address, by a name whose addresses are enough, or by
// the name in its first bytes.
func (r *relay) carry(in *net.TCPConn, dst netip.AddrPort, group uint64) error {
	p := r.policy.Load()
	known := r.names.of(dst.Addr())
	object := dst.String()
	if len(known) > 0 {
		object = join(known[0], dst.Port())
	}
	for _, name := range known {
		if p.named(name, dst.Port(), true) {
			return r.raw(in, group, basis{name: name, raw: true, port: dst.Port()}, dst, join(name, dst.Port()), nil)
		}
	}
	if p.addressed(dst.Addr(), dst.Port()) {
		return r.raw(in, group, basis{port: dst.Port(), addr: dst.Addr()}, dst, object, nil)
	}
	switch {
	case !p.reaches(dst.Addr(), dst.Port()): // no name that we answered for has led there
		return &refusal{RuleDenied, object}
	case !p.sniffs(dst.Port()):
		return &refusal{RuleNotGranted, object}
	}
	first := firsts.Get().(*bufio.Reader)
	defer firsts.Put(first)
	first.Reset(in)
	defer first.Reset(nil)
	in.SetReadDeadline(time.Now().Add(firstWithin))
	return r.named(in, first, dst, object, group)
}

// named reads first bytes until they have a name.
func (r *relay) named(in *net.TCPConn, first *bufio.Reader, dst netip.AddrPort, object string, group uint64) error {
	b, err := first.Peek(1)
	if err != nil {
		return &refusal{RuleNoName, object}
	}
	if isTLS(b[0]) {
		return r.tls(in, first, dst, object, group, "")
	}
	var req request
	n, err := peek(first, func(b []byte) (n int, err error) {
		req, n, err = parseRequest(b)
		return n, err
	})
	if err != nil {
		return refusalOf(err, object)
	}
	port := dst.Port()
	if req.connect {
		port = req.port
	}
	switch {
	case req.host == "":
		return &refusal{RuleNoName, object}
	case req.port != 0 && req.port != port:
		return &refusal{RuleMismatch, join(req.host, req.port)}
	case !r.policy.Load().named(req.host, port, false):
		return &refusal{RuleNotGranted, join(req.host, port)}
	}
	first.Discard(n)
	if !req.connect {
		return r.http(in, first, req, netip.AddrPortFrom(dst.Addr(), port), group)
	}
	if _, err := io.WriteString(in, "HTTP/1.1 200 OK\r\n\r\n"); err != nil {
		return err
	}
	to := netip.AddrPortFrom(dst.Addr(), port)
	if r.policy.Load().named(req.host, port, true) {
		return r.raw(in, group, basis{name: req.host, raw: true, port: port}, to, join(req.host, port), first)
	}
	return r.tls(in, first, to, join(req.host, port), group, req.host)
}

// tls carries what begins with a ClientHello: for the name, if it is known already.
func (r *relay) tls(in *net.TCPConn, first *bufio.Reader, dst netip.AddrPort, object string, group uint64, expected string) error {
	var name string
	_, err := peek(first, func(b []byte) (n int, err error) {
		name, err = serverName(b)
		return 0, err
	})
	switch {
	case err != nil:
		return refusalOf(err, object)
	case expected != "" && name != expected:
		return &refusal{RuleMismatch, join(name, dst.Port())}
	case !r.policy.Load().named(name, dst.Port(), false):
		return &refusal{RuleNotGranted, join(name, dst.Port())}
	}
	return r.raw(in, group, basis{name: name, port: dst.Port()}, dst, join(name, dst.Port()), first)
}

// peek shows what has come to parse, and waits for more as long as that is what it needs.
func peek(first *bufio.Reader, parse func([]byte) (int, error)) (int, error) {
	for {
		b, _ := first.Peek(first.Buffered())
		n, err := parse(b)
		if !errors.Is(err, errShort) {
			return n, err
		}
		if len(b) == maxFirst {
			return 0, errMalformed
		}
		if _, err := first.Peek(len(b) + 1); err != nil {
			return 0, errNoName
		}
	}
}

func refusalOf(err error, object string) *refusal {
	rule := RuleMalformed
	switch {
	case errors.Is(err, errNoName):
		rule = RuleNoName
	case errors.Is(err, errMismatch):
		rule = RuleMismatch
	}
	return &refusal{rule, object}
}

// raw carries bytes both ways until both ends have had enough. What first has is the beginning.
func (r *relay) raw(in *net.TCPConn, group uint64, why basis, dst netip.AddrPort, object string, first *bufio.Reader) error {
	c, err := r.open(in, group, why, dst, object)
	if err != nil {
		return err
	}
	var sent, received int64
	defer func() { r.close(c, sent, received) }()
	if first != nil {
		n, err := flush(c.out, first)
		if sent += n; err != nil {
			c.cut()
			return nil
		}
	}
	in.SetReadDeadline(time.Time{})
	var both sync.WaitGroup
	both.Go(func() { sent += c.copy(c.out, c.in) })
	received = c.copy(c.in, c.out)
	both.Wait()
	return nil
}

// flush sends what a reader holds.
func flush(out *net.TCPConn, first *bufio.Reader) (int64, error) {
	b, _ := first.Peek(first.Buffered())
	n, err := out.Write(b)
	first.Discard(n)
	return int64(n), err
}

// copy carries one direction to its end. The kernel splices.
func (c *conn) copy(to, from *net.TCPConn) int64 {
	n, err := io.Copy(to, from)
	if err != nil || to.CloseWrite() != nil {
		c.cut()
	}
	return n
}

// open dials, and enters the connection among those that can be cut.
func (r *relay) open(in *net.TCPConn, group uint64, why basis, dst netip.AddrPort, object string) (*conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*dialWithin)
	defer cancel()
	addrs := []netip.Addr{dst.Addr()}
	if why.name != "" {
		var no *refusal
		if addrs, no = r.addresses(ctx, why.name, dst); no != nil {
			return nil, no
		}
	}
	var out *net.TCPConn
	no := &refusal{RuleUnreachable, object}
	for _, addr := range addrs {
		c, err := r.dial(ctx, netip.AddrPortFrom(addr, dst.Port()))
		if err != nil {
			continue
		}
		if toHost(c) && !r.policy.Load().opens(netip.PrefixFrom(addr, addr.BitLen()), addr, dst.Port()) {
			abort(c)
			no = &refusal{RuleDenied, object}
			continue
		}
		out, why.addr = c, addr
		break
	}
	if out == nil {
		return nil, no
	}
	c := &conn{in: in, out: out, group: group, object: object, basis: why}
	r.mu.Lock()
	if !why.holds(r.policy.Load()) { // narrowed meanwhile
		r.mu.Unlock()
		out.Close()
		return nil, &refusal{RuleNotGranted, object}
	}
	r.live[c] = struct{}{}
	r.mu.Unlock()
	r.count(group, Traffic{Connections: 1})
	return c, nil
}

// toHost reports whether a connection leads to an address of the host's: it comes from there too. Those that the host had when the session was
// opened are reserved, and not dialed; it may have got another since, or answer for more than it has.
func toHost(c *net.TCPConn) bool {
	return addrPort(c.LocalAddr()).Addr() == addrPort(c.RemoteAddr()).Addr()
}

// addresses are those of a name that it may lead to: first the one that the program chose, if it is one of them.
func (r *relay) addresses(ctx context.Context, name string, dst netip.AddrPort) ([]netip.Addr, *refusal) {
	object := join(name, dst.Port())
	all, denied, err := r.resolve(ctx, name)
	switch {
	case denied:
		return nil, &refusal{RuleDenied, object}
	case err != nil || len(all) == 0:
		return nil, &refusal{RuleUnreachable, object}
	}
	p := r.policy.Load()
	var out []netip.Addr
	for _, a := range all {
		switch {
		case !p.reaches(a, dst.Port()):
		case a == dst.Addr():
			out = append([]netip.Addr{a}, out...)
		default:
			out = append(out, a)
		}
	}
	if len(out) == 0 {
		return nil, &refusal{RuleDenied, object}
	}
	return out, nil
}

// close ends what open began. The event is told before the program can see the end.
func (r *relay) close(c *conn, sent, received int64) {
	r.mu.Lock()
	delete(r.live, c)
	r.countLocked(c.group, Traffic{Sent: sent, Received: received})
	r.mu.Unlock()
	r.tell(Event{Group: c.group, Object: c.object, Allowed: true, Sent: sent, Received: received})
	c.in.Close()
	c.out.Close()
}

// cut ends a connection at once, for both ends.
func (c *conn) cut() {
	abort(c.in)
	abort(c.out)
}

// abort closes with a reset: a program that waits for an answer knows at once.
func abort(c *net.TCPConn) {
	c.SetLinger(0)
	c.Close()
}

func join(name string, port uint16) string {
	return net.JoinHostPort(name, itoa(port))
}
