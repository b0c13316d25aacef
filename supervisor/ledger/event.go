package ledger

import "github.com/stockade-dev/stockade/supervisor/api"

// events are the newest events of all logs, by user: as in [shared], they go where there are most. Each is in
// the log of its owner and, when it is about a session, in that of the session.
type events struct {
	byUser map[uint32]*userEvents
	size   int
}

// userEvents are those of one user, oldest first.
type userEvents struct {
	first int64 // number of the oldest that is kept, among all that there ever were
	kept  ring[event]
}

// of returns the events of a user.
func (e *events) of(uid uint32) *userEvents {
	if e.byUser == nil {
		e.byUser = map[uint32]*userEvents{}
	}
	u := e.byUser[uid]
	if u == nil {
		u = new(userEvents)
		e.byUser[uid] = u
	}
	return u
}

func (u *userEvents) len() int { return u.kept.len }

// since is when the oldest was.
func (u *userEvents) since() int64 { return u.kept.at(0).AtNS }

// at returns the event with a number that a log has.
func (u *userEvents) at(n int64) *event { return u.kept.at(int(n - u.first)) }

// event is a notice; its Seq is that in the log of the owner.
type event struct {
	api.Notice
	owner     *owner
	inSession int64 // its number in the log of the session; 0: in none, or none that is kept
}

// log is the events of one owner or session.
type log struct {
	last int64   // number of the newest event
	at   []int64 // where the events that are kept are among the user's; their numbers end with last
}

func (l *log) add(at int64) int64 {
	l.at = append(l.at, at)
	l.last++
	return l.last
}

// note makes an event of owner o's. It is one of the session too, if that is o's.
func (s *State) note(o *owner, n api.Notice) {
	u := s.events.of(o.UID)
	at := u.first + int64(u.kept.len)
	e := event{Notice: n, owner: o}
	e.Seq = o.log.add(at)
	if ses := s.sessions[n.SessionID]; ses != nil && ses.owner == o {
		e.inSession = ses.log.add(at)
	}
	u.kept.push(e)
	s.events.size++
}

// dropEvent forgets the oldest event of a user's.
func (s *State) dropEvent(uid uint32) {
	u := s.events.byUser[uid]
	e := u.kept.at(0)
	e.owner.log.at = e.owner.log.at[1:]
	if e.inSession != 0 {
		log := &s.sessions[e.SessionID].log
		log.at = log.at[1:]
	}
	u.kept.pop()
	u.first++
	if s.events.size--; u.kept.len == 0 {
		delete(s.events.byUser, uid)
	}
}

// diagnosis is what is wrong with a frame, a receipt or a change of state: one of the codes, and
// what was expected instead. The zero value is nothing.
type diagnosis struct{ code, detail string }

// The codes.
const (
	unknownIntent     = "stream.unknown_intent"    // R123: nobody can be told
	identityMismatch  = "stream.identity_mismatch" // R124
	nonMonotonic      = "stream.non_monotonic"     // R125
	late              = "stream.late"              // R133: after the receipt
	gap               = "stream_gap"               // R127: taken nevertheless
	illegalTransition = "illegal_transition"       // R227
	duplicateReceipt  = "receipt.duplicate"        // R116
)

// diagnose makes an event of what is wrong, for the owner of the intent.
func (s *State) diagnose(it *intent, at int64, wrong diagnosis) {
	s.note(it.owner, api.Notice{
		Kind:      api.NoticeDiagnostic,
		AtNS:      at,
		SessionID: it.SessionID,
		ExecID:    it.ExecID,
		IntentID:  it.IntentID,
		Op:        it.Op,
		Reason:    wrong.code,
		Detail:    shorten(wrong.detail, keptText),
	})
}

// keptText is how many bytes of a text that a caller has chosen an event holds.
const keptText = 256

// Notices returns events after the one with number after, oldest first: of an owner's session, or, when
// session is "", all of the owner's. first and last are the numbers of the oldest event that is kept and
// of the newest; what lies between after and first is gone. first is last+1 when none is kept.
func (s *State) Notices(o Owner, session string, after int64, limit int) (list []api.Notice, first, last int64) {
	who := s.owners[o]
	if who == nil {
		return nil, 1, 0
	}
	l := &who.log
	if session != "" {
		ses := s.sessions[session]
		if ses == nil || ses.owner != who {
			return nil, 1, 0
		}
		l = &ses.log
	}
	first, last = l.last-int64(len(l.at))+1, l.last
	for seq := max(after+1, first); seq <= last && len(list) < limit; seq++ {
		n := s.events.byUser[o.UID].at(l.at[seq-first]).Notice
		n.Seq = seq
		n.At = rfc3339(n.AtNS)
		list = append(list, n)
	}
	return list, first, last
}
