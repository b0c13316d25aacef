package ledger

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/stockade-dev/stockade/supervisor/api"
)

var (
	alice = api.Principal{UID: 1000, GID: 1000, Groups: []uint32{4, 1000}}
	agent = api.Principal{UID: 1000, GID: 1000, Scope: api.Scope{AgentID: "a/1", ChatID: "c"}}
	bob   = api.Principal{UID: 1001, GID: 1001}
)

// A story draws records: most of what a supervisor writes, and among it what it never should.
type story struct {
	t        *rapid.T
	state    *State // that the records are applied to as they are drawn
	at       int64
	intents  []drawn
	sessions []string
	execs    []string
	waits    []string
}

type drawn struct {
	id   string
	op   api.Op
	who  api.Principal
	exec string
	ses  string
}

func (y *story) one(name string, of ...string) string { return rapid.SampledFrom(of).Draw(y.t, name) }

func (y *story) some(name string, of []string) string {
	if len(of) == 0 || rapid.IntRange(0, 19).Draw(y.t, "stranger") == 0 {
		return "stranger"
	}
	// Something recent: that is where things can still happen.
	return of[len(of)-1-min(rapid.IntRange(0, 3).Draw(y.t, name), len(of)-1)]
}

func (y *story) head() Header {
	y.at += int64(rapid.IntRange(0, 3).Draw(y.t, "later"))
	return Header{AtNS: y.at}
}

func (y *story) draw() Record {
	return rapid.SampledFrom([]func() Record{
		y.intent, y.intent, y.intent, y.receipt, y.receipt, y.frame, y.frame, y.frame, y.frame, y.frame, y.seldom,
	}).Draw(y.t, "record")()
}

func (y *story) intent() Record {
	who := rapid.SampledFrom([]api.Principal{alice, agent, bob}).Draw(y.t, "who")
	d := drawn{id: fmt.Sprintf("i%d", len(y.intents)), who: who}
	req := api.Request{Principal: who, Facade: "http", Key: y.one("key", "", "", "k1", "k2")}
	r := &Intent{Header: y.head(), IntentID: d.id, Nonce: "n", Key: req.Key}
	switch d.op = api.Op(y.one("op", "host.session.open", "host.exec", "host.exec", "host.process.delete", "blob.put")); d.op {
	case api.OpSessionOpen:
		d.ses = fmt.Sprintf("s%d", len(y.sessions))
		y.sessions = append(y.sessions, d.ses)
		req.Open = &api.SessionOpen{Labels: map[string]string{"l": "1", "k": "2"},
			Target: api.Target{Local: &api.Local{Env: map[string]api.EnvValue{"B": {Text: "b"}, "A": {Secret: true, SecretDigest: "hmac"}}}}}
		r.SessionID = d.ses
	case api.OpExec:
		d.ses, d.exec = y.some("session", y.sessions), fmt.Sprintf("x%d", len(y.execs))
		if ses, ok := y.state.Session(d.ses); ok && rapid.IntRange(0, 9).Draw(y.t, "foreign") > 0 {
			who, d.who, req.Principal = ses.Principal, ses.Principal, ses.Principal
		}
		if rapid.IntRange(0, 9).Draw(y.t, "again") == 0 {
			d.exec = y.some("exec", y.execs)
		}
		y.execs = append(y.execs, d.exec)
		req.Exec = &api.Exec{SessionID: d.ses, Argv: []string{"sleep", "1"}, StdinOpen: true, Labels: map[string]string{"l": "1"}, StdinRef: "sha256:in"}
		r.SessionID, r.ExecID, r.Queued = d.ses, d.exec, rapid.Bool().Draw(y.t, "queued")
	case api.OpProcessDelete:
		d.exec = y.some("exec", y.execs)
		req.Process = &api.ProcessTarget{ProcessRef: api.ProcessRef{ExecID: d.exec}}
		r.ExecID = d.exec
	case api.OpBlobPut:
		req.Blob = &api.BlobPut{SizeBytes: 3}
	}
	req.Op = d.op
	b, err := api.Encode(&req)
	if err != nil {
		y.t.Fatal(err)
	}
	r.Request = b
	if rapid.IntRange(0, 19).Draw(y.t, "large") == 0 {
		r.Large = &Large{Op: d.op, Principal: who, Key: req.Key, SizeBytes: int64(len(b)), Digest: Digest(b)}
		r.Request = nil
	}
	y.intents = append(y.intents, d)
	return r
}

func (y *story) seldom() Record {
	return rapid.SampledFrom([]func() Record{y.notice, y.notice, y.end, y.rest, y.rest}).Draw(y.t, "seldom")()
}

func (y *story) known() drawn {
	if len(y.intents) == 0 {
		return drawn{id: "stranger"}
	}
	return y.intents[len(y.intents)-1-min(rapid.IntRange(0, 4).Draw(y.t, "intent"), len(y.intents)-1)]
}

func (y *story) receipt() Record {
	d := y.known()
	rec := &Settled{Header: y.head()}
	r := &api.Receipt{Version: 1, IntentID: d.id, Op: d.op, Principal: d.who, SessionID: d.ses, ExecID: d.exec,
		Outcome: api.Outcome(y.one("outcome", "ok", "ok", "ok", "ok", "faulted", "denied")), SettledAtNS: rec.AtNS}
	rec.Receipt = r
	if r.Outcome != api.OutcomeOK {
		r.ErrorCode = api.CodePolicyDenied
		r.Deny = []api.Deny{{Code: api.CodePolicyDenied, Subject: "a", Message: "m"}, {Code: "b"}}
	}
	switch d.op {
	case api.OpSessionOpen:
		r.Payload.Open = &api.OpenResult{SessionID: d.ses, Status: "ready", StartedAtNS: rec.AtNS, ExpiresAtNS: rec.AtNS + 9,
			Grant:    &api.Grant{Profile: "p", Root: "host", Workdir: "/w", Ceilings: api.Ceilings{Executions: 4}, Network: api.GrantNetwork{Mode: "egress"}},
			Enforced: &api.Enforced{Degraded: []string{"landlock"}, Reports: map[string]string{"seccomp": "notification", "mounts": "", "capabilities": ""}}}
	case api.OpExec:
		x := &api.ExecResult{Status: "ok", ExitCode: rapid.IntRange(-1, 2).Draw(y.t, "exit"), Signal: y.one("signal", "", "", "KILL"),
			Usage: api.Usage{CPUNS: 5, OOMKills: int64(rapid.IntRange(0, 1).Draw(y.t, "oom"))}}
		x.ErrorCode = api.Code(y.one("code", "", "", "timeout", "canceled", "spawn_failed", "inline_required_too_large", "oom_killed", "lost"))
		if rapid.Bool().Draw(y.t, "started") {
			x.StartedAtNS, x.EndedAtNS = rec.AtNS-1, rec.AtNS
		}
		x.Stdout = rapid.SampledFrom([]*api.Output{nil, {InlineText: &api.InlineText{Text: "a\n\"é\""}}, {InlineBytes: &api.InlineBytes{Bytes: []byte{0, 1, 2, 3}}},
			{Blob: &api.BlobOutput{BlobRef: "sha256:out", SizeBytes: 70, PreviewBytes: []byte("p")}}, {InlineText: &api.InlineText{Text: "cut"}, Truncated: true, TotalBytes: 900}}).Draw(y.t, "stdout")
		x.Outputs = []api.Artifact{{Path: "/a", BlobRef: "sha256:art", SizeBytes: 1}, {Path: "/b", ErrorCode: "path_not_found"}}
		if rapid.Bool().Draw(y.t, "refused") {
			x.Denials = []api.Denial{{Layer: "network", Rule: "not granted", Object: "example.org:443\n", Errno: "ECONNREFUSED", Count: 2}}
			x.Dropped, x.Network = 1, &api.Traffic{Connections: 1, Refused: 2, Sent: 3}
			x.LimitsHit = []api.LimitHit{{Ceiling: "pids", Code: api.CodePIDsExceeded, Scope: "session", Limit: 9}, {Ceiling: "memory", Code: api.CodeOOMKilled, Scope: "execution"}}
		}
		r.Payload.Exec = x
	case api.OpProcessDelete:
		r.Payload.Control = &api.ControlResult{ExecID: d.exec, Status: y.one("status", api.ControlDeleted, api.ControlConflict)}
	case api.OpBlobPut:
		r.Payload.Blob = &api.BlobResult{BlobRef: "sha256:put", SizeBytes: 3}
	}
	return rec
}

func (y *story) frame() Record {
	d := y.known()
	f, ok := y.state.NextFrame(d.id)
	if !ok {
		f = api.Frame{IntentID: d.id, Seq: 1}
	}
	switch rapid.IntRange(0, 12).Draw(y.t, "wrong") {
	case 0:
		f.Seq += 2
	case 1:
		f.Seq--
	case 2:
		f.EmittedAtSeq++
	case 3:
		f.OriginInstance = "else"
	}
	f.Kind = api.FrameKind(y.one("kind", "host.exec.started", "host.exec.started", "host.exec.starting", "host.exec.progress", "host.exec.paused",
		"host.exec.resumed", "host.exec.modified", "host.exec.stopping", "host.exec.input", "host.exec.adopted"))
	r := &Frame{Header: y.head(), Frame: f}
	r.Frame.AtNS = r.AtNS
	r.Frame.Payload = api.FramePayload{ExecID: d.exec, SessionID: d.ses}
	switch f.Kind {
	case api.FrameProgress:
		r.Frame.Payload.StdoutBytes = int64(rapid.IntRange(0, 50).Draw(y.t, "bytes"))
	case api.FrameModified:
		r.Frame.Payload.TimeoutNS = 7
	case api.FrameStopping:
		r.Frame.Payload.Cause, r.Frame.Payload.KillAtNS = api.CodeCanceled, 9
	case api.FrameInput:
		r.Frame.Payload.InputID, r.Frame.Payload.InputBytes, r.Frame.Payload.InputClosed = "in", 3, rapid.Bool().Draw(y.t, "closed")
	}
	return r
}

func (y *story) notice() Record {
	return &Notice{Header: y.head(), SessionID: y.some("session", y.sessions), Kind: api.NoticeKind(y.one("kind", "SESSION_STATE", "SESSION_STATE", "IDLE_WARNING")),
		State: y.one("state", "", "ready", "quiesced", "closing", "closed"), Reason: y.one("reason", "", "because")}
}

func (y *story) end() Record {
	return &SessionEnd{Header: y.head(), SessionID: y.some("session", y.sessions), State: y.one("state", "closed", "error"), Reason: "closed", Usage: api.Usage{Executions: 2}}
}

// rest is what seldom comes.
func (y *story) rest() Record {
	switch y.one("rest", "start", "decision", "waiting", "verdict", "waiting", "verdict", "adopted", "retired", "snapshot", "narrowed", "policy", "reload") {
	case "start":
		small := func(name string) int { return rapid.IntRange(0, 4).Draw(y.t, name) }
		return &Start{Header: y.head(), Limits: Limits{History: small("history"), Sessions: small("sessions"), Intents: small("intents"), Notices: 10 * small("notices"), Keys: small("keys")}}
	case "decision":
		return &Decision{Header: y.head(), IntentID: y.known().id, Allow: true}
	case "waiting":
		id := fmt.Sprintf("a%d", len(y.waits))
		y.waits = append(y.waits, id)
		return &Waiting{Header: y.head(), Approval: api.Approval{ApprovalID: id, IntentID: y.known().id, Reason: "r", Review: "sha256:v", DeadlineNS: 9,
			Approvers: &api.Approvers{UIDs: []uint32{1001, 1000, 1001, 7}}}}
	case "verdict":
		return &Verdict{Header: y.head(), ApprovalID: y.some("approval", y.waits), By: &bob,
			State: api.ApprovalState(y.one("state", "approved", "denied", "timed_out", "canceled", "void"))}
	case "narrowed":
		return &Narrowed{Header: y.head(), SessionID: y.some("session", y.sessions), Network: api.GrantNetwork{Mode: y.one("mode", "none", "egress")}}
	case "policy":
		return &Policy{
			Header: y.head(), State: y.one("state", PolicyActive, PolicyRefused), Trigger: y.one("trigger", "file", TriggerStart, TriggerDeclared),
			Principal: api.Principal{UID: 1000}, Revision: api.PolicyRevision{Digest: "sha256:p"}, Message: "why",
		}
	case "reload":
		return &Reload{Header: y.head(), Principal: api.Principal{UID: 1000}, Trigger: "signal", Message: "why"}
	case "adopted":
		return &Adopted{Header: y.head(), Sessions: []string{y.some("session", y.sessions)}, Executions: []string{y.some("exec", y.execs)}}
	case "retired":
		return &Retired{Header: y.head(), BeforeNS: y.at - int64(rapid.IntRange(0, 30).Draw(y.t, "age")), Executions: []string{y.some("exec", y.execs)}, Sessions: []string{y.some("session", y.sessions)}}
	}
	return &SnapshotTaken{Header: y.head(), Records: y.state.Records(), Digest: "sha256:0"}
}

func snapshotOf(t rapid.TB, s *State) []byte {
	t.Helper()
	b, err := s.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func applied(t rapid.TB, s *State, seq int64, b []byte) {
	t.Helper()
	r, err := Decode(b)
	if err == nil {
		err = s.Apply(seq, r)
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, b)
	}
}

// The same records give the same state while they are written, when they are read again, and from
// a snapshot at any point (R132, R249, R250). No record, possible or not, makes an execution do what
// cannot be done (R226, R227, R229, R235), drops what lives (R240), or leaves a gap in a log.
func TestTheStateIsTheRecords(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		live, replayed := New(), New()
		y := &story{t: t, state: live}
		w := &watch{seen: map[string]api.State{}, logs: map[string]int64{}}
		var records [][]byte
		var cuts [][]byte // the snapshot before each record
		n := rapid.SampledFrom([]int{1, 10, 60, 120}).Draw(t, "records")
		for seq := range int64(n) {
			r := y.draw()
			b, err := Encode(r)
			if err != nil {
				t.Fatal(err)
			}
			cuts = append(cuts, snapshotOf(t, live))
			records = append(records, b)
			w.before(live)
			if err := live.Apply(seq, r); err != nil {
				t.Fatal(err)
			}
			applied(t, replayed, seq, b)
			w.after(t, live, r)
		}
		want := snapshotOf(t, live)
		if got := snapshotOf(t, replayed); !bytes.Equal(got, want) {
			t.Fatalf("replayed\n%s\nlive\n%s", got, want)
		}
		for range 3 {
			cut := rapid.IntRange(0, n-1).Draw(t, "cut")
			restored, err := Restore(cuts[cut])
			if err != nil {
				t.Fatalf("%v\n%s", err, cuts[cut])
			}
			if got := snapshotOf(t, restored); !bytes.Equal(got, cuts[cut]) {
				t.Fatalf("restored\n%s\nsnapshot\n%s", got, cuts[cut])
			}
			for seq := restored.Records(); seq < int64(n); seq++ {
				applied(t, restored, seq, records[seq])
			}
			if got := snapshotOf(t, restored); !bytes.Equal(got, want) {
				t.Fatalf("restored before record %d\n%s\nlive\n%s", cut, got, want)
			}
		}
	})
}

// watch looks on from outside.
type watch struct {
	seen map[string]api.State // of each execution, from its events
	logs map[string]int64     // numbers of the last events that were seen
	live []string             // executions before the record
}

func (w *watch) before(s *State) {
	w.live = nil
	for id, p := range s.processes {
		if !p.State.Final() {
			w.live = append(w.live, id)
		}
	}
}

func (w *watch) after(t *rapid.T, s *State, r Record) {
	for _, id := range w.live {
		if _, ok := s.Process(id); !ok {
			t.Fatalf("%T dropped live execution %s", r, id)
		}
	}
	if s.ended.len() > s.limits.History || s.closed.len() > s.limits.Sessions || s.events.size > s.limits.Notices ||
		s.usedKeys.len() > s.limits.Keys || s.settled.len() > s.limits.Intents {
		t.Fatalf("%T: more is kept than the limits say", r)
	}
	for _, who := range []api.Principal{alice, agent, bob} {
		o := OwnerOf(who)
		list, whole := w.log(t, s, o, "")
		for _, n := range list {
			if n.Kind == api.NoticeProcess {
				w.transition(t, n, whole)
			}
		}
		for _, ses := range append(s.LiveSessions(), s.EndedSessions()...) {
			if OwnerOf(ses.Principal) != o {
				continue
			}
			w.log(t, s, o, ses.SessionID)
			page, _, _ := s.Processes(o, &api.Read{SessionID: ses.SessionID, Active: true}, 1000)
			if ses.Live != int64(len(page)) {
				t.Fatalf("session %s has %d live executions and says %d", ses.SessionID, len(page), ses.Live)
			}
		}
		page, _, _ := s.Processes(o, &api.Read{}, 1000)
		for _, p := range page {
			if OwnerOf(p.Principal) != o { // R243
				t.Fatalf("%v sees execution %s", o, p.ExecID)
			}
		}
		for _, it := range s.Intents(o, &api.Read{}, 1000) {
			if OwnerOf(it.Principal) != o {
				t.Fatalf("%v sees intent %s", o, it.IntentID)
			}
		}
	}
}

// log returns the new events of a log, which have the numbers that follow, and whether they are all: of one that is full, the
// first of several that a record has made may be gone.
func (w *watch) log(t *rapid.T, s *State, o Owner, session string) (list []api.Notice, whole bool) {
	name := o.Instance() + " " + session
	seen := w.logs[name]
	list, first, last := s.Notices(o, session, seen, 1000)
	if last < seen { // it was forgotten and has begun again
		list, first, last = s.Notices(o, session, 0, 1000)
		seen = 0
	}
	next := max(seen+1, first)
	whole = next == seen+1
	for _, n := range list {
		if n.Seq != next {
			t.Fatalf("log %q: event %d where %d follows", name, n.Seq, next)
		}
		next++
	}
	if next != last+1 {
		t.Fatalf("log %q ends with %d, not %d", name, next-1, last)
	}
	w.logs[name] = last
	return list, whole
}

// reaches reports whether a state may come after another, with some between them.
func reaches(from, to api.State) bool {
	return slices.ContainsFunc(follows[from], func(next api.State) bool { return next == to || reaches(next, to) })
}

func (w *watch) transition(t *rapid.T, n api.Notice, whole bool) {
	to := api.State(n.State)
	from, ok := w.seen[n.IntentID]
	legal := to == api.StateQueued || !whole
	if ok {
		legal = slices.Contains(follows[from], to) || !whole && reaches(from, to)
	}
	if !legal {
		t.Fatalf("execution %s became %q after %q", n.ExecID, to, from)
	}
	w.seen[n.IntentID] = to
}
