package ledger

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/stockade-dev/stockade/sandbox"
	"github.com/stockade-dev/stockade/supervisor/api"
)

// process is the record of an execution.
type process struct {
	api.Process // without the RFC 3339 twins
	owner       *owner
	seq         int64    // number of its intent's record
	opened      int64    // and of that of its session's open
	receipt     int64    // and of its receipt's, once it has ended
	session     *session // while it lives
	blobs       []string // that its request and its receipt name
	told        int64    // bytes of output, when somebody was last told of any
	progress    Progress // while it lives
}

// follows is the life of an execution (R226). What is not here cannot happen (R227).
var follows = map[api.State][]api.State{
	api.StateQueued:   {api.StateStarting, api.StateFailed, api.StateCanceled, api.StateTimedOut},
	api.StateStarting: {api.StateRunning, api.StateFailed, api.StateCanceled, api.StateTimedOut},
	api.StateRunning:  {api.StateCompleted, api.StateFailed, api.StateCanceled, api.StateTimedOut},
}

// Of a command, so much is shown.
const (
	keptArgs     = 16
	keptArgument = 256 // bytes
)

// enqueue makes the record of an execution that its session took in.
func (s *State) enqueue(it *intent, r *Intent, ask *requestExec) {
	ses := s.sessions[r.SessionID]
	if ses == nil || ses.owner != it.owner || ses.over() || s.processes[r.ExecID] != nil {
		s.refuse()
		return
	}
	p := &process{
		Process: api.Process{
			ExecID:     r.ExecID,
			IntentID:   it.IntentID,
			SessionID:  ses.SessionID,
			Principal:  it.Principal,
			Argv:       ask.Argv,
			Labels:     ask.Labels,
			StdinOpen:  ask.StdinOpen,
			Shell:      it.Op == api.OpShellOpen,
			QueuedAtNS: r.AtNS,
		},
		owner:   it.owner,
		seq:     it.EmittedAtSeq,
		opened:  ses.seq,
		session: ses,
		blobs:   ask.blobs(),
	}
	s.processes[p.ExecID], s.startedBy[p.IntentID] = p, p
	s.queue.add(p.seq, p)
	ses.Executions++
	ses.Live++
	p.State = api.StateQueued
	s.transition(p, r.AtNS)
	if !r.Queued {
		s.become(p, api.StateStarting, r.AtNS)
	}
}

// become moves an execution to a state, if that can follow.
func (s *State) become(p *process, to api.State, at int64) bool {
	if !slices.Contains(follows[p.State], to) {
		s.illegal(p, string(to), at)
		return false
	}
	p.State = to
	s.transition(p, at)
	return true
}

// illegal refuses what does not follow from the state of an execution (R227).
func (s *State) illegal(p *process, what string, at int64) {
	s.refuse()
	if it := s.intents[p.IntentID]; it != nil {
		s.diagnose(it, at, diagnosis{illegalTransition, what + " while " + string(p.State)})
	}
}

// transition tells of the state that an execution has now: once for each, in order (R229).
func (s *State) transition(p *process, at int64) {
	s.note(p.owner, p.event(api.NoticeProcess, at))
}

func (p *process) op() api.Op {
	if p.Shell {
		return api.OpShellOpen
	}
	return api.OpExec
}

func (p *process) event(kind api.NoticeKind, at int64) api.Notice {
	n := api.Notice{Kind: kind, AtNS: at, SessionID: p.SessionID, ExecID: p.ExecID, IntentID: p.IntentID, Op: p.op()}
	switch kind {
	case api.NoticeProcess:
		n.State, n.Reason = string(p.State), p.Reason
	case api.NoticeOutput:
		n.Stdout, n.Stderr = p.StdoutBytes, p.StderrBytes
	}
	return n
}

// milestone is what a frame says about an execution.
func (s *State) milestone(p *process, r *Frame) {
	f := &r.Frame
	p.FrameSeq = f.Seq
	p.StdoutBytes = max(p.StdoutBytes, f.Payload.StdoutBytes)
	p.StderrBytes = max(p.StderrBytes, f.Payload.StderrBytes)
	switch f.Kind {
	case api.FrameStarting:
		s.become(p, api.StateStarting, r.AtNS)
	case api.FrameStarted:
		if s.become(p, api.StateRunning, r.AtNS) {
			p.StartedAtNS = f.AtNS
		}
	case api.FrameProgress:
		s.output(p, r.AtNS)
	case api.FramePaused, api.FrameResumed:
		pause := f.Kind == api.FramePaused
		if p.State != api.StateRunning || p.Paused == pause {
			s.illegal(p, string(f.Kind), r.AtNS)
			return
		}
		p.Paused = pause
	case api.FrameModified:
		p.progress.TimeoutNS = f.Payload.TimeoutNS
	case api.FrameStopping:
		p.progress.Cause, p.progress.KillAtNS = f.Payload.Cause, f.Payload.KillAtNS
	case api.FrameInput:
		p.progress.input(&f.Payload)
		p.StdinOpen = p.StdinOpen && !f.Payload.InputClosed
	}
}

// output tells of output that nobody was told of.
func (s *State) output(p *process, at int64) {
	if total := p.StdoutBytes + p.StderrBytes; total > p.told {
		p.told = total
		s.note(p.owner, p.event(api.NoticeOutput, at))
	}
}

// conclude is the end of an execution. What the receipt knows to have been before is made up
// for: a command that ended did run.
func (s *State) conclude(seq int64, p *process, rec *Settled) {
	x := rec.Receipt.Payload.Exec
	if x == nil {
		x = &api.ExecResult{ExitCode: -1}
	}
	code := cmp.Or(rec.Receipt.ErrorCode, x.ErrorCode)
	state, reason := final(x, code)
	if state == api.StateCompleted || x.StartedAtNS != 0 {
		for _, before := range []api.State{api.StateStarting, api.StateRunning} {
			if slices.Contains(follows[p.State], before) {
				s.become(p, before, rec.AtNS)
			}
		}
		p.StartedAtNS = cmp.Or(x.StartedAtNS, p.StartedAtNS)
		if x.ExitCode >= 0 {
			exit := x.ExitCode
			p.ExitCode = &exit
		}
	}
	p.Signal, p.ErrorCode, p.Usage = x.Signal, code, x.Usage
	// Output that fits nowhere is in no receipt, and was written nevertheless.
	p.StdoutBytes = max(p.StdoutBytes, x.StdoutBytes, size(x.Stdout))
	p.StderrBytes = max(p.StderrBytes, x.StderrBytes, size(x.Stderr))
	p.EndedAtNS = cmp.Or(x.EndedAtNS, rec.AtNS)
	if p.StartedAtNS != 0 {
		p.DurationNS = p.EndedAtNS - p.StartedAtNS
	}
	refs := slices.Clone(p.blobs) // a capture may hold the old one
	for _, b := range x.Blobs() {
		refs = append(refs, b.BlobRef)
	}
	p.blobs = unique(refs)
	p.Paused, p.StdinOpen, p.progress = false, false, Progress{}
	p.receipt = seq
	p.Reason = reason
	s.output(p, rec.AtNS)
	s.breaches(p, x, code, rec.AtNS)
	s.become(p, state, rec.AtNS)
	s.ended.add(p.owner.UID, seq, p)
	if p.session != nil { // it may be out of view
		p.session.Live--
		p.session.account(x)
		p.session = nil
	}
}

// breaches tells of the ceilings that a command reached, each once, and of what was refused to it, once (R113).
func (s *State) breaches(p *process, x *api.ExecResult, code api.Code, at int64) {
	told := map[api.Code]bool{api.CodeTimeout: true, api.CodeSessionExpired: true} // those are its state
	tell := func(code api.Code, detail string) {
		if told[code] {
			return
		}
		told[code] = true
		n := p.event(api.NoticeThreshold, at)
		n.Reason, n.Detail = shorten(string(code), keptText), shorten(detail, keptText)
		s.note(p.owner, n)
	}
	for _, h := range x.LimitsHit {
		tell(h.Code, h.Scope+" "+h.Ceiling)
	}
	if x.Usage.OOMKills > 0 || code == api.CodeOOMKilled {
		tell(api.CodeOOMKilled, "")
	}
	first := slices.IndexFunc(x.Denials, func(d api.Denial) bool { return d.Rule != sandbox.RuleNetworkLost }) // which nobody's policy refused
	if first < 0 {
		return
	}
	d, n := x.Denials[first], p.event(api.NoticeViolation, at)
	n.Reason = shorten(d.Layer, keptText)
	n.Detail = shorten(strings.TrimSpace(d.Rule+" "+d.Object+" "+d.Syscall), keptText)
	s.note(p.owner, n)
}

// outcomes is how the end of an execution reads in its record, by error code. A code that is
// not here is a failure for that reason.
var outcomes = map[api.Code]struct {
	state  api.State
	reason string
}{
	api.CodeTimeout:             {api.StateTimedOut, string(api.CodeTimeout)},
	api.CodeSessionExpired:      {api.StateTimedOut, string(api.CodeSessionExpired)},
	api.CodeSessionIdle:         {api.StateTimedOut, string(api.CodeSessionIdle)},
	api.CodeCanceled:            {api.StateCanceled, string(api.CodeCanceled)},
	api.CodeShellClosed:         {api.StateCanceled, string(api.CodeShellClosed)},
	api.CodeSessionClosed:       {api.StateCanceled, string(api.CodeSessionClosed)},
	api.CodeOOMKilled:           {api.StateFailed, "oom"},
	api.CodeCPUTimeExceeded:     {api.StateFailed, "cpu_time"},
	api.CodeSpawnFailed:         {api.StateFailed, "spawn"},
	api.CodeSupervisorRestarted: {api.StateFailed, "lost"},
	api.CodeLost:                {api.StateFailed, "lost"},
	api.CodeRunnerUnavailable:   {api.StateFailed, "lost"},
	api.CodeWaitFailed:          {api.StateFailed, "lost"},
}

// FinalState is the state of an execution that has this receipt.
func FinalState(r *api.Receipt) api.State {
	x := r.Payload.Exec
	if x == nil {
		x = &api.ExecResult{ExitCode: -1}
	}
	state, _ := final(x, cmp.Or(r.ErrorCode, x.ErrorCode))
	return state
}

// final is the state that an execution ended in, and why (C11, C12).
func final(x *api.ExecResult, code api.Code) (api.State, string) {
	if o, ok := outcomes[code]; ok {
		return o.state, o.reason
	}
	switch {
	case code != "" && code != api.CodeInlineRequiredTooLarge: // that one hides no exit (C21)
		return api.StateFailed, shorten(string(code), keptText)
	case x.Signal != "":
		return api.StateFailed, "signal"
	case x.ExitCode == 0:
		return api.StateCompleted, ""
	case x.ExitCode > 0:
		return api.StateFailed, "non_zero_exit"
	}
	return api.StateFailed, string(api.CodeInternalError)
}

// size is how much a process wrote to a stream.
func size(o *api.Output) int64 {
	switch {
	case o == nil:
		return 0
	case o.TotalBytes != 0:
		return o.TotalBytes
	case o.Blob != nil:
		return o.Blob.SizeBytes
	}
	var n int
	if o.InlineText != nil {
		n += len(o.InlineText.Text)
	}
	if o.InlineBytes != nil {
		n += len(o.InlineBytes.Bytes)
	}
	return int64(n)
}

// delete takes an execution out of the view for good. Its receipts stay (C10).
func (s *State) delete(it *intent, exec string) {
	p := s.processes[exec]
	if p == nil || p.owner != it.owner || !p.State.Final() { // R237, R238, R243
		s.refuse()
		return
	}
	s.dropProcess(p)
}

func (s *State) dropProcess(p *process) {
	delete(s.processes, p.ExecID)
	delete(s.startedBy, p.IntentID)
	s.queue.remove(p.seq)
	s.ended.remove(p.owner.UID, p.receipt)
}

// Process returns an execution by its id.
func (s *State) Process(exec string) (api.Process, bool) { return s.processes[exec].found(s) }

// ProcessOf returns the execution that an intent started.
func (s *State) ProcessOf(intent string) (api.Process, bool) { return s.startedBy[intent].found(s) }

func (p *process) found(s *State) (api.Process, bool) {
	if p == nil {
		return api.Process{}, false
	}
	return s.document(p), true
}

// Processes returns an owner's executions that fit f (session, execution, intent, state, labels, active),
// newest first. f.After is the next of the page before; "" is the first page. next is "" on the last. No
// execution that was there at the first page is left out or comes twice, whatever begins or ends
// meanwhile. An error is an [*api.Error].
func (s *State) Processes(o Owner, f *api.Read, limit int) (page []api.Process, next string, err error) {
	below := int64(math.MaxInt64)
	if f.After != "" {
		if below, err = strconv.ParseInt(f.After, 10, 64); err != nil || below < 0 {
			return nil, "", api.Errorf(api.CodeInvalidCursor, "after is not a cursor of this list")
		}
	}
	who := s.owners[o]
	var last int64
	for p := range s.queue.downward(below) {
		if p.owner != who || !p.fits(f) {
			continue
		}
		if len(page) >= limit {
			return page, itoa(last), nil
		}
		page = append(page, s.document(p))
		last = p.seq
	}
	return page, "", nil
}

func (p *process) fits(f *api.Read) bool {
	return fits(f.SessionID, p.SessionID) && fits(f.ExecID, p.ExecID) && fits(f.IntentID, p.IntentID) &&
		fits(f.State, string(p.State)) && (!f.Active || !p.State.Final()) && labelled(f.Labels, p.Labels)
}

func (s *State) document(p *process) api.Process {
	d := p.Process
	d.QueuedAt, d.StartedAt, d.EndedAt = rfc3339(d.QueuedAtNS), rfc3339(d.StartedAtNS), rfc3339(d.EndedAtNS)
	if d.ExitCode != nil {
		exit := *d.ExitCode
		d.ExitCode = &exit
	}
	return d
}

// Progress is what operations on a live execution have done to it, for who goes on with it.
type Progress struct {
	InputIDs   []string `json:"input_ids,omitempty"` // the last that were written, oldest first
	InputBytes int64    `json:"input_bytes,omitzero"`
	TimeoutNS  int64    `json:"timeout_ns,omitzero"` // as modified; 0 means that it was not
	Cause      api.Code `json:"cause,omitzero"`      // why it is being ended; "" means that it is not
	KillAtNS   int64    `json:"kill_at_ns,omitzero"` // when, if not before
}

// KeptInputs is how many input ids of an execution are known: a caller that repeats one does so
// because it saw no answer.
const KeptInputs = 1024

func (g *Progress) input(f *api.FramePayload) {
	g.InputBytes = max(g.InputBytes, f.InputBytes)
	if f.InputID == "" {
		return
	}
	g.InputIDs = append(g.InputIDs, f.InputID)
	if excess := len(g.InputIDs) - KeptInputs; excess > 0 {
		g.InputIDs = slices.Clone(g.InputIDs[excess:])
	}
}

// Progress returns what was done to a live execution.
func (s *State) Progress(exec string) (Progress, bool) {
	p := s.processes[exec]
	if p == nil || p.State.Final() {
		return Progress{}, false
	}
	g := p.progress
	g.InputIDs = slices.Clone(g.InputIDs)
	return g, true
}

// Retained returns what retention must leave: the records from oldest on, and these blobs.
func (s *State) Retained() (oldest int64, blobs []string) {
	oldest = s.next
	refs := map[string]bool{}
	for it := range s.admitted.upward() {
		if it.Outcome == "" {
			oldest = min(oldest, it.EmittedAtSeq)
		}
		if it.blob != "" {
			refs[it.blob] = true
		}
	}
	for ses := range s.opened.upward() {
		oldest = min(oldest, ses.seq)
	}
	for p := range s.queue.upward() {
		oldest = min(oldest, p.seq, p.opened)
		for _, ref := range p.blobs {
			refs[ref] = true
		}
	}
	for _, k := range s.keys { // the answer to one that is used again is the receipt
		oldest = min(oldest, k.seq)
	}
	return oldest, slices.Sorted(maps.Keys(refs))
}
