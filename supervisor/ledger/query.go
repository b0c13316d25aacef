package ledger

import "github.com/stockade-dev/stockade/supervisor/api"

// What queries return is the caller's. Only maps, slices and the grant in it are shared, with the
// state and with other answers; nobody changes them.

// Intent returns an intent, in flight or among the last that were settled.
func (s *State) Intent(id string) (api.Intent, bool) { panic("bug: unwritten") }

// Intents returns an owner's intents that fit f (session, execution, operation, outcome, active),
// newest first.
func (s *State) Intents(o Owner, f *api.Read, limit int) []api.Intent { panic("bug: unwritten") }

// InFlight returns every intent without a receipt, oldest first. EmittedAtSeq finds its record.
func (s *State) InFlight() []api.Intent { panic("bug: unwritten") }

// Process returns an execution by its id.
func (s *State) Process(exec string) (api.Process, bool) { panic("bug: unwritten") }

// ProcessOf returns the execution that an intent started.
func (s *State) ProcessOf(intent string) (api.Process, bool) { panic("bug: unwritten") }

// Processes returns an owner's executions that fit f (session, execution, intent, state, labels, active),
// newest first. f.After is the next of the page before; "" is the first page. next is "" on the last. No
// execution that was there at the first page is left out or comes twice, whatever begins or ends
// meanwhile. An error is an [*api.Error].
func (s *State) Processes(o Owner, f *api.Read, limit int) (page []api.Process, next string, err error) {
	panic("bug: unwritten")
}

// Progress is what operations on a live execution have done to it, for who goes on with it.
type Progress struct {
	InputIDs   []string // the last that were written
	InputBytes int64
	TimeoutNS  int64 // as modified; 0 means that it was not
}

// Progress returns what was done to a live execution.
func (s *State) Progress(exec string) (Progress, bool) { panic("bug: unwritten") }

// Session returns a session, live or among the last that ended.
func (s *State) Session(id string) (api.Session, bool) { panic("bug: unwritten") }

// Sessions returns an owner's sessions that fit f (session, state, labels, active), newest first.
func (s *State) Sessions(o Owner, f *api.Read, limit int) []api.Session { panic("bug: unwritten") }

// LiveSession is a session that has not ended, for who goes on with it.
type LiveSession struct {
	api.Session
	OpenedAtSeq int64  // number of the record of its open's intent
	ReceiptSeq  int64  // and of its receipt
	OnRestart   string // as asked
	IdleNS      int64  // as asked
}

// LiveSessions returns every session that has not ended, oldest first.
func (s *State) LiveSessions() []LiveSession { panic("bug: unwritten") }

// KeyEntry is what an idempotency key was used for.
type KeyEntry struct {
	Intent        string
	RequestDigest string // of the redacted request's canonical bytes
	Settled       bool
}

// Key returns what an owner used an idempotency key for.
func (s *State) Key(o Owner, key string) (KeyEntry, bool) { panic("bug: unwritten") }

// Notices returns events after the one with number after, oldest first: of an owner's session, or, when
// session is "", all of the owner's. first and last are the numbers of the oldest event that is kept and
// of the newest; what lies between after and first is gone. first is last+1 when none is kept.
func (s *State) Notices(o Owner, session string, after int64, limit int) (list []api.Notice, first, last int64) {
	panic("bug: unwritten")
}

// Retained returns what retention must leave: the records from oldest on, and these blobs.
func (s *State) Retained() (oldest int64, blobs []string) { panic("bug: unwritten") }

// Counts are totals since the first record.
type Counts struct {
	Refused int64 `json:"refused,omitzero"` // records that asked for what cannot be (R116, R227)
	Deleted int64 `json:"deleted,omitzero"` // executions that their owner deleted
	Evicted int64 `json:"evicted,omitzero"` // executions that left the view by limit or age
}

// Counts returns the totals.
func (s *State) Counts() Counts { panic("bug: unwritten") }
