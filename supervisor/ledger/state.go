package ledger

import "github.com/stockade-dev/stockade/supervisor/api"

// Limits bound what a State keeps of what is over. What lives is never dropped (R240). 0 means
// the default.
type Limits struct {
	History  int `json:"history,omitzero"`  // executions that have ended; 2000
	Sessions int `json:"sessions,omitzero"` // sessions that have ended; 2000
	Intents  int `json:"intents,omitzero"`  // intents that are settled; 10000
	Notices  int `json:"notices,omitzero"`  // events, of all logs; 65536
	Keys     int `json:"keys,omitzero"`     // idempotency keys of settled intents; 100000
}

// Owner is a principal as far as ownership goes. Groups do not count; they may change while
// what it owns lives.
type Owner struct {
	UID   uint32    `json:"uid"`
	Scope api.Scope `json:"scope,omitzero"`
}

// OwnerOf returns whose p's things are.
func OwnerOf(p api.Principal) Owner { return Owner{p.UID, p.Scope} }

// State is the fold.
type State struct{}

// New returns the state before the first record.
func New() *State { panic("bug: unwritten") }

// Apply takes record seq of the journal in. Records come in order; the caller must not change r, nor
// what it points to, afterwards. It fails only for a record that contradicts the format, and then
// nothing has changed.
func (s *State) Apply(seq int64, r Record) error { panic("bug: unwritten") }

// Records is the number of the record that comes next: so many has the state seen, or left to
// the snapshot that it came from.
func (s *State) Records() int64 { panic("bug: unwritten") }

// Offer judges a frame before it is journaled (R123 to R128, R133). ok says that it is taken;
// what, if not nil, belongs into the journal beside it, or in its place.
func (s *State) Offer(f *api.Frame) (what *Diagnostic, ok bool) { panic("bug: unwritten") }

// NextFrame begins the frame that comes next of an intent in flight: everything but its kind, time
// and payload. ok is false when there is no such intent, or no longer.
func (s *State) NextFrame(intent string) (f api.Frame, ok bool) { panic("bug: unwritten") }

// Snapshot returns the canonical bytes of the state: equal states have equal bytes.
func (s *State) Snapshot() ([]byte, error) { panic("bug: unwritten") }

// Restore returns the state of which b is the snapshot. It takes nothing that Snapshot does not
// make, but whether b is the right one only the journal knows: see [SnapshotTaken].
func Restore(b []byte) (*State, error) { panic("bug: unwritten") }

// Decode reads one record of the journal. It has what a State looks at, and no more: a
// decision is its type, and a receipt its ids, principal, operation, outcome and codes, the open
// with its grant, the execution without its output, and what a control operation did. Who needs all
// of a record unmarshals it.
func Decode(b []byte) (Record, error) { panic("bug: unwritten") }
