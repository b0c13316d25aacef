package ledger

import "github.com/stockade-dev/stockade/supervisor/api"

// session is a session that came to be.
type session struct {
	api.Session // without the RFC 3339 twins
	owner       *owner
	log         log
	seq         int64 // number of the record of its open's intent
	receipt     int64 // and of the open's receipt
	end         int64 // and of its end's
}

// The states of a session here: before it is ready, nobody knows it.
const (
	sessionReady    = "ready"
	sessionQuiesced = "quiesced"
	sessionClosing  = "closing"
	sessionClosed   = "closed"
	sessionError    = "error"
)

// moves is how a session's state can change while it lives.
var moves = map[string][2]string{
	sessionReady:    {sessionQuiesced, sessionClosing},
	sessionQuiesced: {sessionReady, sessionClosing},
}

// reasons is why an event says that a session has come to a state by a record that gives no reason.
var reasons = map[string]string{
	sessionReady:    "resumed",
	sessionQuiesced: "paused",
}

func (ses *session) over() bool { return ses.State == sessionClosed || ses.State == sessionError }

// openSession makes the record of a session from the receipt of its open.
func (s *State) openSession(seq int64, it *intent, rec *Settled) {
	r := rec.Receipt
	open := r.Payload.Open
	if open.SessionID == "" || s.sessions[open.SessionID] != nil {
		s.refuse()
		return
	}
	ses := &session{
		Session: api.Session{
			SessionID:    open.SessionID,
			State:        sessionReady,
			Principal:    it.Principal,
			PolicyDigest: r.Policy.Digest,
			Grant:        open.Grant,
			OpenIntent:   it.IntentID,
			StartedAtNS:  open.StartedAtNS,
			ExpiresAtNS:  open.ExpiresAtNS,
		},
		owner:   it.owner,
		seq:     it.EmittedAtSeq,
		receipt: seq,
	}
	if it.open != nil {
		ses.Labels, ses.EnvNames = it.open.Labels, it.open.EnvNames
	}
	if open.Grant != nil {
		ses.Profile, ses.Workdir = open.Grant.Profile, open.Grant.Workdir
	}
	if open.Enforced != nil {
		ses.Degraded, ses.Silent = open.Enforced.Degraded, open.Enforced.Silent()
	}
	it.SessionID = ses.SessionID
	s.sessions[ses.SessionID] = ses
	s.opened.add(seq, ses)
	n := ses.event(rec.AtNS, "opened")
	n.IntentID, n.Op = it.IntentID, it.Op
	s.note(ses.owner, n)
}

// event is one that says in what state the session is.
func (ses *session) event(at int64, reason string) api.Notice {
	return api.Notice{Kind: api.NoticeSession, AtNS: at, SessionID: ses.SessionID, State: ses.State, Reason: reason}
}

// living returns a session that has not ended, or counts that there is none.
func (s *State) living(id string) *session {
	ses := s.sessions[id]
	if ses == nil || ses.over() {
		s.refuse()
		return nil
	}
	return ses
}

// notice is an event that nothing else says.
func (s *State) notice(r *Notice) {
	ses := s.living(r.SessionID)
	if ses == nil {
		return
	}
	if r.Kind != api.NoticeSession {
		s.note(ses.owner, api.Notice{
			Kind:      r.Kind,
			AtNS:      r.AtNS,
			SessionID: r.SessionID,
			ExecID:    r.ExecID,
			State:     r.State,
			Reason:    r.Reason,
			Detail:    r.Detail,
		})
		return
	}
	if to := moves[ses.State]; r.State == "" || r.State != to[0] && r.State != to[1] {
		s.refuse()
		return
	}
	ses.State = r.State
	n := ses.event(r.AtNS, r.Reason)
	if n.Reason == "" {
		n.Reason = reasons[ses.State]
	}
	n.Detail = r.Detail
	s.note(ses.owner, n)
}

// narrow leaves a session less of a network. A capture may hold the grant that it had.
func (s *State) narrow(r *Narrowed) {
	ses := s.living(r.SessionID)
	if ses == nil {
		return
	}
	if ses.Grant != nil {
		grant := *ses.Grant
		grant.Network = r.Network
		ses.Grant = &grant
	}
	ses.Narrowed++
	n := ses.event(r.AtNS, "narrowed")
	n.Detail = r.Network.Mode
	s.note(ses.owner, n)
}

// account adds what an execution used, as its receipt says. A capture may hold the sums so far.
func (ses *session) account(x *api.ExecResult) {
	u := &ses.Usage
	u.CPUNS += x.Usage.CPUNS
	u.PeakMemoryBytes = max(u.PeakMemoryBytes, x.Usage.PeakMemoryBytes)
	u.OOMKills += x.Usage.OOMKills
	if x.Network == nil {
		return
	}
	var sum api.Traffic
	if ses.Network != nil {
		sum = *ses.Network
	}
	sum.Connections += x.Network.Connections
	sum.Refused += x.Network.Refused
	sum.Questions += x.Network.Questions
	sum.Sent += x.Network.Sent
	sum.Received += x.Network.Received
	ses.Network = &sum
}

func (s *State) endSession(seq int64, r *SessionEnd) {
	ses := s.living(r.SessionID)
	if ses == nil {
		return
	}
	ses.State, ses.Reason, ses.Usage = r.State, r.Reason, r.Usage
	ses.EndedAtNS, ses.end = r.AtNS, seq
	s.closed.add(ses.owner.UID, seq, ses)
	s.note(ses.owner, ses.event(r.AtNS, r.Reason))
}

// adopt tells each session that another supervisor goes on with it. Of an execution its frame says so.
func (s *State) adopt(r *Adopted) {
	for _, id := range r.Sessions {
		if ses := s.living(id); ses != nil {
			s.note(ses.owner, ses.event(r.AtNS, "adopted"))
		}
	}
}

// dropSession takes a session out of the view, and its log. Its events stay in that of its owner.
func (s *State) dropSession(ses *session) {
	for _, at := range ses.log.at {
		s.events.byUser[ses.owner.UID].at(at).inSession = 0
	}
	delete(s.sessions, ses.SessionID)
	s.opened.remove(ses.receipt)
	s.closed.remove(ses.owner.UID, ses.end)
}

// Session returns a session, live or among the last that ended.
func (s *State) Session(id string) (api.Session, bool) {
	ses := s.sessions[id]
	if ses == nil {
		return api.Session{}, false
	}
	return ses.document(), true
}

// OpenedBy is the number of the record of the intent that opened a session.
func (s *State) OpenedBy(id string) (seq int64, ok bool) {
	ses := s.sessions[id]
	if ses == nil {
		return 0, false
	}
	return ses.seq, true
}

// LiveSessions returns every session that has not ended, oldest first.
func (s *State) LiveSessions() []api.Session { return s.sessionsThat(false) }

// EndedSessions returns every session that has ended and is in view, oldest first.
func (s *State) EndedSessions() []api.Session { return s.sessionsThat(true) }

func (s *State) sessionsThat(over bool) []api.Session {
	var list []api.Session
	for ses := range s.opened.upward() {
		if ses.over() == over {
			list = append(list, ses.document())
		}
	}
	return list
}

func (ses *session) document() api.Session {
	d := ses.Session
	d.Events = ses.log.last
	d.StartedAt, d.ExpiresAt, d.EndedAt = rfc3339(d.StartedAtNS), rfc3339(d.ExpiresAtNS), rfc3339(d.EndedAtNS)
	return d
}
