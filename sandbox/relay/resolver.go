package relay

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"

	"golang.org/x/net/dns/dnsmessage"
)

// resolver asks the host's resolver, each question from a port and with a number of its own.
type resolver struct{ server netip.AddrPort }

// answer is what became of a question.
type answer struct {
	rcode dnsmessage.RCode
	addrs []netip.Addr
	ttl   uint32
}

const maxMessage = 4096

// ask asks for the addresses of one kind.
func (r *resolver) ask(ctx context.Context, name string, kind dnsmessage.Type) (answer, error) {
	if !r.server.IsValid() {
		return answer{}, errors.New("the host has no resolver")
	}
	id := make([]byte, 2)
	rand.Read(id)
	q, err := questionFor(binary.BigEndian.Uint16(id), name, kind)
	if err != nil {
		return answer{}, err
	}
	for _, network := range []string{"udp", "udp", "tcp"} {
		var msg dnsmessage.Message
		if msg, err = r.exchange(ctx, network, q); err != nil {
			continue
		}
		if msg.Truncated && network != "tcp" {
			if msg, err = r.exchange(ctx, "tcp", q); err != nil {
				continue
			}
		}
		return answer{msg.RCode, nil, 0}.read(msg, kind), nil
	}
	return answer{}, fmt.Errorf("resolve %s: %w", name, err)
}

func questionFor(id uint16, name string, kind dnsmessage.Type) ([]byte, error) {
	n, err := dnsmessage.NewName(name + ".")
	if err != nil {
		return nil, err
	}
	b := dnsmessage.NewBuilder(nil, dnsmessage.Header{ID: id, RecursionDesired: true})
	var h dnsmessage.ResourceHeader
	if err := h.SetEDNS0(1232, dnsmessage.RCodeSuccess, false); err != nil {
		return nil, err
	}
	if err := errors.Join(
		b.StartQuestions(),
		b.Question(dnsmessage.Question{Name: n, Type: kind, Class: dnsmessage.ClassINET}),
		b.StartAdditionals(),
		b.OPTResource(h, dnsmessage.OPTResource{}),
	); err != nil {
		return nil, err
	}
	return b.Finish()
}

// exchange sends a question and waits for its answer: what else comes is not looked at.
func (r *resolver) exchange(ctx context.Context, network string, q []byte) (msg dnsmessage.Message, err error) {
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	var d net.Dialer
	c, err := d.DialContext(ctx, network, r.server.String())
	if err != nil {
		return msg, err
	}
	defer c.Close()
	deadline, _ := ctx.Deadline()
	c.SetDeadline(deadline)
	if network == "tcp" {
		if err := writeFramed(c, q); err != nil {
			return msg, err
		}
	} else if _, err := c.Write(q); err != nil {
		return msg, err
	}
	buf := make([]byte, maxMessage)
	for {
		var b []byte
		if network == "tcp" {
			b, err = readFramed(c, buf)
		} else {
			var n int
			n, err = c.Read(buf)
			b = buf[:n]
		}
		if err != nil {
			return msg, err
		}
		if err := msg.Unpack(b); err == nil && answers(msg, q) {
			return msg, nil
		}
	}
}

// answers reports whether a message is the answer to a question.
func answers(msg dnsmessage.Message, q []byte) bool {
	var p dnsmessage.Parser
	h, err := p.Start(q)
	if err != nil {
		return false
	}
	asked, err := p.Question()
	return err == nil && msg.Response && msg.ID == h.ID && len(msg.Questions) == 1 &&
		msg.Questions[0].Type == asked.Type && msg.Questions[0].Class == asked.Class && strings.EqualFold(msg.Questions[0].Name.String(), asked.Name.String())
}

// read follows the aliases from the name that was asked for to its addresses.
func (a answer) read(msg dnsmessage.Message, kind dnsmessage.Type) answer {
	a.ttl = 3600
	name := strings.ToLower(msg.Questions[0].Name.String())
	for range 16 {
		alias := ""
		for _, res := range msg.Answers {
			if strings.ToLower(res.Header.Name.String()) != name || res.Header.Class != dnsmessage.ClassINET {
				continue
			}
			switch body := res.Body.(type) {
			case *dnsmessage.AResource:
				if kind == dnsmessage.TypeA {
					a.addrs = append(a.addrs, netip.AddrFrom4(body.A))
				}
			case *dnsmessage.AAAAResource:
				if kind == dnsmessage.TypeAAAA {
					a.addrs = append(a.addrs, netip.AddrFrom16(body.AAAA))
				}
			case *dnsmessage.CNAMEResource:
				alias = strings.ToLower(body.CNAME.String())
			default:
				continue
			}
			a.ttl = min(a.ttl, res.Header.TTL)
		}
		if alias == "" || len(a.addrs) > 0 {
			break
		}
		name = alias
	}
	return a
}

func writeFramed(w io.Writer, b []byte) error {
	_, err := w.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(b))), b...))
	return err
}

func readFramed(r io.Reader, buf []byte) ([]byte, error) {
	var size [2]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return nil, err
	}
	n := int(binary.BigEndian.Uint16(size[:]))
	if n > len(buf) {
		return nil, errMalformed
	}
	_, err := io.ReadFull(r, buf[:n])
	return buf[:n], err
}

// lookup asks for addresses of one kind, unless it is known: those that the policy reaches, and whether there were others.
func (r *relay) lookup(ctx context.Context, name string, kind dnsmessage.Type) (a answer, denied bool, err error) {
	key := nameKey{name, kind}
	if addrs, ttl, ok := r.names.get(key); ok {
		a = answer{addrs: addrs, ttl: ttl}
	} else if a, err = r.resolver.ask(ctx, name, kind); err != nil {
		return a, false, err
	}
	p := r.policy.Load()
	var reached []netip.Addr
	for _, addr := range a.addrs {
		if p.reaches(addr, 0) {
			reached = append(reached, addr)
		}
	}
	denied = len(reached) < len(a.addrs)
	a.addrs = reached[:min(len(reached), maxAddresses)]
	if len(a.addrs) > 0 {
		r.names.put(key, a.addrs, a.ttl)
	}
	return a, denied && len(a.addrs) == 0, nil
}

// resolve returns the addresses of both kinds, IPv4 first.
func (r *relay) resolve(ctx context.Context, name string) (all []netip.Addr, denied bool, err error) {
	kinds := []dnsmessage.Type{dnsmessage.TypeA, dnsmessage.TypeAAAA}
	answers, refused, errs := make([]answer, len(kinds)), make([]bool, len(kinds)), make([]error, len(kinds))
	var both sync.WaitGroup
	for i, kind := range kinds {
		both.Go(func() { answers[i], refused[i], errs[i] = r.lookup(ctx, name, kind) })
	}
	both.Wait()
	for i := range kinds {
		all = append(all, answers[i].addrs...)
		denied = denied || refused[i]
	}
	if len(all) == 0 && errs[0] != nil {
		return nil, denied, errs[0]
	}
	return all, denied && len(all) == 0, nil
}
