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
	owner := ledger.OwnerOf(c.req.Principal)
	digest := ledger.Digest(c.request)
	same := func(other string) error {
		if other != digest {
			return api.Errorf(api.CodeKeyConflict, "idempotency key %q was used for another request", c.req.Key)
		}
		return nil
	}
	s.registry.mu.Lock()
	defer s.registry.mu.Unlock()
	// In this order: a call in flight may be settled between two looks, and is then found by the second.
	if other := s.registry.keys[ownedKey{owner, c.req.Key}]; other != nil {
		return other, same(ledger.Digest(other.request))
	}
	var entry ledger.KeyEntry
	var known bool
	s.chronicle.read(func(state *ledger.State) { entry, known = state.Key(owner, c.req.Key) })
	if !known {
		s.registry.keys[ownedKey{owner, c.req.Key}] = c
		return nil, nil
	}
	if err := same(entry.RequestDigest); err != nil {
		return nil, err
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

// ownedKey is an idempotency key: each principal has its own.
type ownedKey struct {
	owner ledger.Owner
	key   string
}
