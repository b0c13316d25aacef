package relay

import (
	"container/list"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// names is what has been resolved lately: for how long an answer is good, and a while longer which names an
// address was given out for. It is bounded; what was asked for last stays.
type names struct {
	mu    sync.Mutex
	known map[nameKey]*list.Element
	order *list.List // of *nameEntry, the last asked for first
	now   func() time.Time
}

type nameKey struct {
	name string
	kind dnsmessage.Type
}

type nameEntry struct {
	nameKey
	addrs   []netip.Addr
	expires time.Time
}

// A program looks a name up and connects, at times not at once.
const grace = time.Minute

func newNames() *names {
	return &names{known: map[nameKey]*list.Element{}, order: list.New(), now: time.Now}
}

// get returns an answer that is still good, and for how many seconds.
func (n *names) get(k nameKey) (addrs []netip.Addr, ttl uint32, ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	e := n.known[k]
	if e == nil {
		return nil, 0, false
	}
	left := e.Value.(*nameEntry).expires.Sub(n.now())
	if left < 0 {
		return nil, 0, false
	}
	n.order.MoveToFront(e)
	return e.Value.(*nameEntry).addrs, uint32(left / time.Second), true
}

func (n *names) put(k nameKey, addrs []netip.Addr, ttl uint32) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if old := n.known[k]; old != nil {
		n.order.Remove(old)
	}
	n.known[k] = n.order.PushFront(&nameEntry{k, addrs, n.now().Add(time.Duration(ttl) * time.Second)})
	if n.order.Len() > maxNames {
		last := n.order.Remove(n.order.Back()).(*nameEntry)
		delete(n.known, last.nameKey)
	}
}

// of returns the names that an address was given out for.
func (n *names) of(addr netip.Addr) (out []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for e := n.order.Front(); e != nil; e = e.Next() {
		entry := e.Value.(*nameEntry)
		if slices.Contains(entry.addrs, addr) && n.now().Before(entry.expires.Add(grace)) && !slices.Contains(out, entry.name) {
			out = append(out, entry.name)
		}
	}
	return out
}
