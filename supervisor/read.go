package supervisor

import (
	"cmp"
	"context"
	"io"

	"github.com/stockade-dev/stockade/rego"
	"github.com/stockade-dev/stockade/supervisor/api"
	"github.com/stockade-dev/stockade/supervisor/ledger"
)

// reads are the operations without effect. Policy is asked about each. One that is
// allowed leaves no record; one that is denied returns its receipt as the second result
// and nothing else. An error is an *api.Error, or the context's of a caller that waited.
var reads = []api.Op{
	api.OpSessionGet, api.OpSessionList, api.OpSessionEvents, api.OpEvents,
	api.OpProcessGet, api.OpProcessList, api.OpProcessWait, api.OpProcessWatch, api.OpOutput, api.OpShellGet, api.OpShellOutput, api.OpShellRecording,
	api.OpIntentGet, api.OpIntentList, api.OpIntentFrames,
	api.OpBlobGet, api.OpReceiptGet, api.OpReceiptList, api.OpCheckpoint, api.OpDecide, api.OpHostInfo,
	api.OpApprovalGet, api.OpApprovalList,
	api.OpQuiescence, api.OpSnapshot, api.OpAudit, api.OpWorkspaceDiff, api.OpCapabilities, api.OpPolicyStatus, api.OpPolicyPreview,
	api.OpSettings,
}

// page is how many elements a list returns when the caller does not say.
// [api.Request.Validate] bounds what he says.
const page = 100

func limit(asked int64) int { return int(cmp.Or(asked, page)) }

// permitRead asks policy about a read. find, if not nil, looks for the object first: one
// that the caller may not know of is not a question for policy.
func (s *Supervisor) permitRead(req *api.Request, find func(*call) *api.Error) (denial *api.Receipt, err error) {
	if err := req.Validate(); err != nil {
		return nil, err
	}
	c, err := s.newRead(req)
	if err != nil {
		return nil, err
	}
	defer s.admission.leave()
	if find != nil {
		if err := find(c); err != nil {
			return nil, err
		}
	}
	if why := decide(s, c); why != nil {
		s.refuse(c, why)
		return c.receipt, c.err
	}
	return nil, nil
}

var readOperation = operation{
	abandon: nothing,
	failed:  func(api.Code, string) api.Payload { return api.Payload{} },
}

func (s *Supervisor) newRead(req *api.Request) (*call, error) {
	if _, ok := rego.Entrypoint(req.Op); !ok || operations[req.Op].act != nil {
		return nil, api.Errorf(api.CodeUnknownMethod, "%.80q is not a read", string(req.Op))
	}
	return s.enter(req, readOperation)
}

// Session returns one session of the caller's.
func (s *Supervisor) Session(ctx context.Context, req *api.Request) (*api.Session, *api.Receipt, error) {
	var ses *session
	denial, err := s.permitRead(req, func(c *call) *api.Error {
		var err *api.Error
		ses, err = s.registry.find(req.Principal, req.Read.SessionID)
		if err == nil {
			c.session = ses
		}
		return err
	})
	if denial != nil || err != nil {
		return nil, denial, err
	}
	s.refreshLoads(ctx, []*session{ses})
	d := ses.document()
	d.Load = ses.uses()
	s.chronicle.read(func(state *ledger.State) { soFar(state, &d) })
	return &d, nil, nil
}

// Sessions lists the caller's sessions, newest first; Labels, State and Limit of the
// request's Read filter.
func (s *Supervisor) Sessions(ctx context.Context, req *api.Request) (*api.SessionList, *api.Receipt, error) {
	if denial, err := s.permitRead(req, nil); denial != nil || err != nil {
		return nil, denial, err
	}
	list := &api.SessionList{Sessions: []api.Session{}}
	var of []*session
	all := s.registry.all()
	for i := len(all) - 1; i >= 0 && len(list.Sessions) < limit(req.Read.Limit); i-- {
		ses := all[i]
		if !owns(ses.principal, req.Principal) || !ses.visible() || !labelled(ses.labels, req.Read.Labels) {
			continue
		}
		if d := ses.document(); fits(req.Read.State, d.State) {
			list.Sessions, of = append(list.Sessions, d), append(of, ses)
		}
	}
	s.refreshLoads(ctx, of)
	for i, ses := range of {
		list.Sessions[i].Load = ses.uses()
	}
	s.chronicle.read(func(state *ledger.State) {
		for i := range list.Sessions {
			soFar(state, &list.Sessions[i])
		}
	})
	return list, nil, nil
}

// soFar adds to a session what its log and the receipts of its executions say.
func soFar(state *ledger.State, d *api.Session) {
	known, ok := state.Session(d.SessionID)
	if !ok {
		return
	}
	d.Events, d.Network = known.Events, known.Network
	if d.EndedAtNS == 0 {
		d.Usage = known.Usage
	}
}

func labelled(labels, filter map[string]string) bool {
	for name, value := range filter {
		if got, ok := labels[name]; !ok || got != value {
			return false
		}
	}
	return true
}

// Decide says what would become of an operation, and changes nothing. req is the
// operation itself; whether the caller may ask is policy's too.
func (s *Supervisor) Decide(ctx context.Context, req *api.Request) (*api.Decision, *api.Receipt, error) {
	question := &api.Request{Op: api.OpDecide, Principal: req.Principal, Facade: req.Facade, Read: &api.Read{}}
	if denial, err := s.permitRead(question, nil); denial != nil || err != nil {
		return nil, denial, err
	}
	c, err := s.newCall(req)
	if err != nil {
		return nil, nil, err
	}
	defer s.admission.leave()
	why := s.permit(c)
	c.operation.abandon(s, c)
	c.giveUp()
	if why != nil && why.fault != nil {
		return nil, nil, why.fault
	}
	d := &api.Decision{Op: req.Op, Allow: why == nil, Warn: c.decision.Warn, Policy: c.decision.Policy, Grant: c.grant, Clamped: c.clamped}
	if why != nil {
		d.Deny = why.deny
	}
	if why == nil {
		d.Approval = c.decision.Obligations.RequireApproval
	}
	return d, nil, nil
}

// Checkpoint signs all that the journal has so far. It says how much that is, and nothing
// of what.
func (s *Supervisor) Checkpoint(ctx context.Context, req *api.Request) (*api.Checkpoint, *api.Receipt, error) {
	if denial, err := s.permitRead(req, nil); denial != nil || err != nil {
		return nil, denial, err
	}
	msg, err := s.journal.Checkpoint()
	if err != nil {
		s.log.Error("checkpoint", "error", err)
		return nil, nil, api.Errorf(api.CodeJournalFailed, "the checkpoint cannot be stored")
	}
	return &api.Checkpoint{Note: string(msg)}, nil, nil
}

// HostInfo returns the machine, the ceiling and the policy in force.
func (s *Supervisor) HostInfo(ctx context.Context, req *api.Request) (*api.HostInfo, *api.Receipt, error) {
	if denial, err := s.permitRead(req, nil); denial != nil || err != nil {
		return nil, denial, err
	}
	return &api.HostInfo{
		Version:      s.Version(),
		Host:         s.host,
		Ceiling:      s.ceiling,
		PolicyDigest: s.policies.digest(),
		Workers:      s.policies.workers(),
		JournalKey:   s.journal.PublicKey(),
	}, nil, nil
}

// Version says who answers. It asks no policy.
func (s *Supervisor) Version() api.Version {
	return api.Version{Version: s.version, API: 1, Operations: Operations()}
}

// Answers goes through the locks of every call, and returns once it has had them: what a watchdog asks. It tells nothing.
func (s *Supervisor) Answers() { s.inFlight(nil) }

// Quiescence says what is in flight, of every principal (R134, R135).
func (s *Supervisor) Quiescence(ctx context.Context, req *api.Request) (*api.Quiescence, *api.Receipt, error) {
	if denial, err := s.permitRead(req, nil); denial != nil || err != nil {
		return nil, denial, err
	}
	return s.inFlight(nil), nil, nil
}

// inFlight is what is in flight but one call.
func (s *Supervisor) inFlight(own *call) *api.Quiescence {
	q := &api.Quiescence{Draining: s.draining.Load(), Intents: []api.Intent{}}
	s.chronicle.read(func(state *ledger.State) {
		for _, in := range state.InFlight() {
			if own == nil || in.IntentID != own.intent {
				q.Intents = append(q.Intents, s.aged(in))
			}
		}
		q.Sessions = int64(len(state.LiveSessions()))
	})
	for _, ses := range s.registry.all() {
		q.Executions += int64(len(ses.executing()))
	}
	q.Quiet = len(q.Intents) == 0
	return q
}

// Settings says how the supervisor was set up, and what of it holds by now.
func (s *Supervisor) Settings(ctx context.Context, req *api.Request) (*api.Settings, *api.Receipt, error) {
	if denial, err := s.permitRead(req, nil); denial != nil || err != nil {
		return nil, denial, err
	}
	told := s.settings
	if s.level != nil {
		told.LogLevel = levelName(s.level.Level())
	}
	return &told, nil, nil
}

// Snapshot says what the journal amounts to now.
func (s *Supervisor) Snapshot(ctx context.Context, req *api.Request) (*api.Snapshot, *api.Receipt, error) {
	if denial, err := s.permitRead(req, nil); denial != nil || err != nil {
		return nil, denial, err
	}
	var c ledger.Capture
	s.chronicle.read(func(state *ledger.State) { c = state.Capture() })
	digest, size, err := c.Write(io.Discard)
	if err != nil {
		return nil, nil, api.Errorf(api.CodeInternalError, "%v", err)
	}
	return &api.Snapshot{Records: c.Records(), Digest: digest, SizeBytes: size}, nil, nil
}
