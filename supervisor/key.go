package supervisor

import (
	"github.com/stockade-dev/stockade/supervisor/api"
	"github.com/stockade-dev/stockade/supervisor/ledger"
)

// claim takes the idempotency key of a call that has one. With a key that was used before, for
// the same request, it returns the call that has it, in flight or settled, by this supervisor or
// an earlier one; for another request the error says so. An error leaves no record: nothing was
// asked that had not been asked before.
func (s *Supervisor) claim(c *call) (earlier *call, err error) {
	if c.req.Key == "" {
		return nil, nil
	}
	c.digest = ledger.Digest(c.request)
	earlier, entry, err := s.registry.claim(c, s.chronicle)
	if err != nil || earlier != nil || entry.Intent == "" {
		return earlier, err
	}
	place, ok := s.chronicle.receipts.intent(c.req.Principal, entry.Intent)
	if !ok {
		return nil, api.Errorf(api.CodeKeyInFlight, "intent %s has no receipt yet", entry.Intent)
	}
	r, err := s.receiptAt(place.seq)
	if err != nil {
		return nil, err
	}
	earlier = &call{operation: c.operation, req: c.req, intent: entry.Intent, admitted: make(chan struct{}), done: make(chan struct{}), receipt: r}
	close(earlier.done)
	return earlier, nil
}

// claim gives the key to c, unless a call in flight has it, or what the chronicle says. It reads and hashes nothing:
// requests and receipts can be megabytes, and the registry is everybody's.
func (r *registry) claim(c *call, told *chronicle) (earlier *call, entry ledger.KeyEntry, err error) {
	same := func(digest string) error {
		if digest != c.digest {
			return api.Errorf(api.CodeKeyConflict, "idempotency key %q was used for another request", c.req.Key)
		}
		return nil
	}
	name := ownedKey{ledger.OwnerOf(c.req.Principal), c.req.Key}
	r.mu.Lock()
	defer r.mu.Unlock()
	// In this order: a call in flight may be settled between two looks, and is then found by the second.
	if other := r.keys[name]; other != nil {
		return other, entry, same(other.digest)
	}
	var known bool
	told.read(func(state *ledger.State) { entry, known = state.Key(name.owner, name.key) })
	if !known {
		r.keys[name] = c
		return nil, entry, nil
	}
	return nil, entry, same(entry.RequestDigest)
}

// ownedKey is an idempotency key: each principal has its own.
type ownedKey struct {
	owner ledger.Owner
	key   string
}
