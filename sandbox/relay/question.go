package relay

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// serveUDP answers questions that come as datagrams, until the socket fails.
func (r *relay) serveUDP(c *net.UDPConn) error {
	buf := make([]byte, maxMessage)
	for {
		n, from, err := c.ReadFromUDPAddrPort(buf)
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return err
			}
			continue // an ICMP error for an answer that nobody waited for
		}
		q := append([]byte(nil), buf[:n]...)
		select {
		case r.questions <- struct{}{}:
			go func() {
				defer func() { <-r.questions }()
				if a := r.answer(q, func() uint64 { return r.owners.udp(unmapped(from)) }); a != nil {
					c.WriteToUDPAddrPort(a, from)
				}
			}()
		default:
			r.refuse(0, Event{Rule: RuleTooMany, DNS: true})
			if a := failure(q, dnsmessage.RCodeServerFailure); a != nil {
				c.WriteToUDPAddrPort(a, from)
			}
		}
	}
}

// serveQuestions answers questions on a connection.
func (r *relay) serveQuestions(c *net.TCPConn) {
	defer c.Close()
	to, err := originalDst(c)
	if err != nil {
		to = addrPort(c.LocalAddr())
	}
	group := r.owners.tcp(addrPort(c.RemoteAddr()), to)
	buf := make([]byte, maxMessage)
	for {
		c.SetDeadline(time.Now().Add(firstWithin))
		q, err := readFramed(c, buf)
		if err != nil {
			return
		}
		r.questions <- struct{}{}
		a := r.answer(q, func() uint64 { return group })
		<-r.questions
		if a == nil || writeFramed(c, a) != nil {
			return
		}
	}
}

// answer answers one question, and returns nil for what is none.
func (r *relay) answer(q []byte, whose func() uint64) []byte {
	var p dnsmessage.Parser
	h, err := p.Start(q)
	if err != nil || h.Response {
		return nil
	}
	asked, err := p.Question()
	if err != nil || h.OpCode != 0 {
		return failure(q, dnsmessage.RCodeNotImplemented)
	}
	if _, err := p.Question(); err != dnsmessage.ErrSectionDone || asked.Class != dnsmessage.ClassINET {
		return failure(q, dnsmessage.RCodeRefused)
	}
	group := whose()
	r.count(group, Traffic{Questions: 1})
	name := hostname(asked.Name.String())
	if name == "" || !r.policy.Load().resolves(name) {
		r.refuse(group, Event{Object: printable(asked.Name.String()), Rule: RuleNotGranted, DNS: true})
		return failure(q, dnsmessage.RCodeRefused)
	}
	if asked.Type != dnsmessage.TypeA && asked.Type != dnsmessage.TypeAAAA {
		return reply(h.ID, asked, answer{}) // the name is there, what was asked for is not
	}
	ctx, cancel := context.WithTimeout(context.Background(), 3*askWithin)
	defer cancel()
	a, denied, err := r.lookup(ctx, name, asked.Type)
	switch {
	case err != nil:
		return failure(q, dnsmessage.RCodeServerFailure)
	case denied:
		r.refuse(group, Event{Object: name, Rule: RuleDenied, DNS: true})
		return failure(q, dnsmessage.RCodeRefused)
	case a.rcode != dnsmessage.RCodeSuccess:
		return failure(q, a.rcode)
	}
	return reply(h.ID, asked, a)
}

// reply is the answer with addresses. It fits 512 bytes.
func reply(id uint16, asked dnsmessage.Question, a answer) []byte {
	b := dnsmessage.NewBuilder(nil, dnsmessage.Header{ID: id, Response: true, RecursionDesired: true, RecursionAvailable: true})
	b.EnableCompression()
	err := errors.Join(b.StartQuestions(), b.Question(asked), b.StartAnswers())
	head := dnsmessage.ResourceHeader{Name: asked.Name, Class: asked.Class, TTL: a.ttl}
	for _, addr := range a.addrs {
		err = errors.Join(err, add(&b, head, addr))
	}
	out, ferr := b.Finish()
	if err != nil || ferr != nil {
		return nil
	}
	return out
}

func add(b *dnsmessage.Builder, head dnsmessage.ResourceHeader, addr netip.Addr) error {
	if addr.Is4() {
		return b.AResource(head, dnsmessage.AResource{A: addr.As4()})
	}
	return b.AAAAResource(head, dnsmessage.AAAAResource{AAAA: addr.As16()})
}

// failure is an answer without any.
func failure(q []byte, code dnsmessage.RCode) []byte {
	var p dnsmessage.Parser
	h, err := p.Start(q)
	if err != nil {
		return nil
	}
	b := dnsmessage.NewBuilder(nil, dnsmessage.Header{ID: h.ID, Response: true, OpCode: h.OpCode, RecursionDesired: h.RecursionDesired, RecursionAvailable: true, RCode: code})
	if asked, err := p.Question(); err == nil {
		if errors.Join(b.StartQuestions(), b.Question(asked)) != nil {
			return nil
		}
	}
	out, err := b.Finish()
	if err != nil {
		return nil
	}
	return out
}

// printable makes of a name what may be shown: a session chooses its bytes.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r <= 0x20 || r >= 0x7f {
			return '?'
		}
		return r
	}, strings.TrimSuffix(s, "."))
}
