package ledger

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/stockade-dev/stockade/supervisor/api"
)

// Decode reads one record of the journal. It has what a State looks at, and no more: a decision is
// its type, an intent is without its request, and a receipt is its ids, principal, operation, outcome
// and codes, the open with its grant, the execution without its output, and what a control operation and
// a blob.put did. Who needs all of a record unmarshals it.
func Decode(b []byte) (Record, error) {
	t, ok := typed(b)
	if !ok {
		var h Header
		if err := json.Unmarshal(b, &h); err != nil {
			return nil, fmt.Errorf("record: %w", err)
		}
		t = []byte(h.Type)
	}
	decode := decoders[string(t)]
	if decode == nil {
		return nil, fmt.Errorf("record: no type %.40q", t)
	}
	r, err := decode(b)
	if err != nil {
		return nil, fmt.Errorf("record of type %s: %w", t, err)
	}
	return r, nil
}

// typed returns the type of a record of ours: it comes first.
func typed(b []byte) ([]byte, bool) {
	rest, ok := bytes.CutPrefix(b, []byte(`{"type":"`))
	if !ok {
		return nil, false
	}
	t, _, ok := bytes.Cut(rest[:min(len(rest), 40)], []byte(`"`))
	return t, ok && !bytes.ContainsRune(t, '\\')
}

// The records are a third decisions, which say nothing about the state of anything and are the largest.
var decoders = map[string]func([]byte) (Record, error){
	TypeDecision:   func([]byte) (Record, error) { return &Decision{Header: Header{Type: TypeDecision}}, nil },
	TypeReceipt:    decodeSettled,
	TypeIntent:     decodeIntent,
	TypeStart:      whole[Start],
	TypeWaiting:    whole[Waiting],
	TypeVerdict:    whole[Verdict],
	TypeFrame:      whole[Frame],
	TypeNotice:     whole[Notice],
	TypeNarrowed:   whole[Narrowed],
	TypeSessionEnd: whole[SessionEnd],
	TypeAdopted:    whole[Adopted],
	TypeRetired:    whole[Retired],
	TypeSnapshot:   whole[SnapshotTaken],
	TypePolicy:     whole[Policy],
	TypeReload:     whole[Reload],
}

// lax is for what we have written ourselves, strictly: the journal knows that it is the same.
var lax = jsontext.AllowDuplicateNames(true)

func whole[T any, P interface {
	*T
	Record
}](b []byte) (Record, error) {
	r := P(new(T))
	return r, json.Unmarshal(b, r, lax)
}

// request is what a State looks at of an api.Request.
type request struct {
	Op            api.Op
	RequestedKind api.Op
	Principal     api.Principal
	Open          *requestOpen
	Exec          *requestExec

	digest string // if there is a key: of all of it
}

type requestOpen struct {
	Labels map[string]string `json:"labels"`
	Target struct {
		Local struct {
			Env map[string]ignored `json:"env"`
		} `json:"local"`
	} `json:"target"`
}

// ignored is a value that is not for the record: that of an environment variable.
type ignored struct{}

// UnmarshalJSONFrom skips it.
func (ignored) UnmarshalJSONFrom(dec *jsontext.Decoder) error { return dec.SkipValue() }

type requestExec struct {
	Argv      []string // the beginning
	Labels    map[string]string
	StdinOpen bool
	StdinRef  string
	Stdin     struct {
		BlobRef api.BlobRef `json:"blob_ref"`
	}
}

func decodeIntent(b []byte) (Record, error) {
	r := new(Intent)
	s := scan{rest: b}
	var asked []byte
	for s.member() {
		switch string(s.name) {
		case "type":
			r.Type = s.text()
		case "at_ns":
			r.AtNS = s.number()
		case "intent_id":
			r.IntentID = s.text()
		case "nonce":
			r.Nonce = s.text()
		case "session_id":
			r.SessionID = s.text()
		case "exec_id":
			r.ExecID = s.text()
		case "idempotency_key":
			r.Key = s.text()
		case "queued":
			r.Queued = s.flag()
		case "request":
			asked = s.rest
			r.ask = s.request()
			asked = asked[:len(asked)-len(s.rest)]
		case "large_request":
			s.into(&r.Large)
		default:
			s.skip()
		}
	}
	if r.ask != nil && r.Key != "" {
		r.ask.digest = Digest(asked)
	}
	return r, s.end()
}

func (s *scan) request() *request {
	ask := new(request)
	for s.member() {
		switch string(s.name) {
		case "op":
			ask.Op = api.Op(s.text())
		case "requested_kind":
			ask.RequestedKind = api.Op(s.text())
		case "principal":
			s.principal(&ask.Principal)
		case "open":
			s.into(&ask.Open)
		case "exec":
			ask.Exec = s.exec()
		default:
			s.skip()
		}
	}
	return ask
}

func (s *scan) exec() *requestExec {
	x := new(requestExec)
	for s.member() {
		switch string(s.name) {
		case "argv":
			x.Argv = s.command()
		case "labels":
			s.into(&x.Labels)
		case "stdin_open":
			x.StdinOpen = s.flag()
		case "stdin_ref":
			x.StdinRef = s.text()
		case "stdin":
			s.into(&x.Stdin)
		default:
			s.skip()
		}
	}
	return x
}

// command reads as much of an argv as is shown.
func (s *scan) command() []string {
	var argv []string
	for s.element() {
		if len(argv) == keptArgs {
			s.skip()
			continue
		}
		argv = append(argv, shorten(s.text(), keptArgument))
	}
	return argv
}

func (s *scan) principal(p *api.Principal) {
	for s.member() {
		switch string(s.name) {
		case "uid":
			p.UID = uint32(s.number())
		case "gid":
			p.GID = uint32(s.number())
		case "groups":
			for s.element() {
				p.Groups = append(p.Groups, uint32(s.number()))
			}
		case "scope":
			s.into(&p.Scope)
		default:
			s.skip()
		}
	}
}

// asked returns what was asked for.
func (r *Intent) asked() (*request, error) {
	switch {
	case r.Large != nil:
		return &request{Op: r.Large.Op, Principal: r.Large.Principal, digest: r.Large.Digest}, nil
	case r.ask != nil:
		return r.ask, nil
	}
	s := scan{rest: r.Request}
	ask := s.request()
	if err := s.end(); err != nil {
		return nil, fmt.Errorf("request of intent %s: %w", r.IntentID, err)
	}
	if r.Key != "" {
		ask.digest = Digest(r.Request)
	}
	return ask, nil
}

func (ask *request) opening() *opening {
	if ask.Open == nil {
		return nil
	}
	return &opening{
		Labels:   ask.Open.Labels,
		EnvNames: slices.Sorted(maps.Keys(ask.Open.Target.Local.Env)),
	}
}

func (ask *requestExec) blobs() []string {
	var refs []string
	for _, ref := range []string{ask.StdinRef, ask.Stdin.BlobRef.BlobRef} {
		if ref != "" {
			refs = append(refs, ref)
		}
	}
	return unique(refs)
}

func decodeSettled(b []byte) (Record, error) {
	r := new(Settled)
	s := scan{rest: b}
	for s.member() {
		switch string(s.name) {
		case "type":
			r.Type = s.text()
		case "at_ns":
			r.AtNS = s.number()
		case "receipt":
			r.Receipt = new(api.Receipt)
			s.receipt(r.Receipt)
		default:
			s.skip()
		}
	}
	return r, s.end()
}

func (s *scan) receipt(r *api.Receipt) {
	for s.member() {
		switch string(s.name) {
		case "intent_id":
			r.IntentID = s.text()
		case "op":
			r.Op = api.Op(s.text())
		case "idempotency_key":
			r.Key = s.text()
		case "principal":
			s.principal(&r.Principal)
		case "session_id":
			r.SessionID = s.text()
		case "exec_id":
			r.ExecID = s.text()
		case "frame_seq":
			r.FrameSeq = s.number()
		case "outcome":
			r.Outcome = api.Outcome(s.text())
		case "error_code":
			r.ErrorCode = api.Code(s.text())
		case "deny":
			s.into(&r.Deny)
		case "policy":
			s.policy(&r.Policy)
		case "payload":
			s.payload(&r.Payload)
		case "admitted_at_ns":
			r.AdmittedAtNS = s.number()
		case "settled_at_ns":
			r.SettledAtNS = s.number()
		default:
			s.skip()
		}
	}
}

func (s *scan) policy(p *api.PolicyRef) {
	for s.member() {
		switch string(s.name) {
		case "digest":
			p.Digest = s.text()
		default:
			s.skip()
		}
	}
}

func (s *scan) payload(p *api.Payload) {
	for s.member() {
		switch string(s.name) {
		case "open":
			p.Open = new(api.OpenResult)
			s.open(p.Open)
		case "exec":
			p.Exec = new(api.ExecResult)
			s.result(p.Exec)
		case "control":
			s.into(&p.Control)
		case "blob":
			s.into(&p.Blob)
		default:
			s.skip()
		}
	}
}

func (s *scan) open(o *api.OpenResult) {
	for s.member() {
		switch string(s.name) {
		case "session_id":
			o.SessionID = s.text()
		case "grant":
			s.into(&o.Grant)
		case "enforced":
			o.Enforced = s.enforced()
		case "started_at_ns":
			o.StartedAtNS = s.number()
		case "expires_at_ns":
			o.ExpiresAtNS = s.number()
		default:
			s.skip()
		}
	}
}

// enforced reads what a session goes without.
func (s *scan) enforced() *api.Enforced {
	e := new(api.Enforced)
	for s.member() {
		switch string(s.name) {
		case "degraded":
			s.into(&e.Degraded)
		case "reports":
			s.into(&e.Reports)
		default:
			s.skip()
		}
	}
	return e
}

func (s *scan) result(x *api.ExecResult) {
	for s.member() {
		switch string(s.name) {
		case "status":
			x.Status = s.text()
		case "exit_code":
			x.ExitCode = int(s.number())
		case "signal":
			x.Signal = s.text()
		case "stdout":
			x.Stdout = s.output()
		case "stderr":
			x.Stderr = s.output()
		case "stdout_bytes":
			x.StdoutBytes = s.number()
		case "stderr_bytes":
			x.StderrBytes = s.number()
		case "outputs":
			s.into(&x.Outputs)
		case "limits_hit":
			s.into(&x.LimitsHit)
		case "denials":
			s.into(&x.Denials)
		case "denials_dropped":
			x.Dropped = s.number()
		case "network":
			s.into(&x.Network)
		case "usage":
			s.usage(&x.Usage)
		case "started_at_ns":
			x.StartedAtNS = s.number()
		case "ended_at_ns":
			x.EndedAtNS = s.number()
		case "error_code":
			x.ErrorCode = api.Code(s.text())
		default:
			s.skip()
		}
	}
}

func (s *scan) usage(u *api.Usage) {
	for s.member() {
		switch string(s.name) {
		case "wall_ns":
			u.WallNS = s.number()
		case "cpu_ns":
			u.CPUNS = s.number()
		case "peak_memory_bytes":
			u.PeakMemoryBytes = s.number()
		case "oom_kills":
			u.OOMKills = s.number()
		case "executions":
			u.Executions = s.number()
		default:
			s.skip()
		}
	}
}

// output reads how much output there is, and where it is: not what.
func (s *scan) output() *api.Output {
	var o api.Output
	var inline int64
	for s.member() {
		switch string(s.name) {
		case "inline_text":
			inline += int64(len(s.only()))
		case "inline_bytes":
			inline += base64Size(s.only())
		case "blob":
			o.Blob = new(api.BlobOutput)
			s.blob(o.Blob)
		case "total_bytes":
			o.TotalBytes = s.number()
		default:
			s.skip()
		}
	}
	if o.TotalBytes == 0 && o.Blob == nil {
		o.TotalBytes = inline
	}
	return &o
}

// only reads the one text that an object has.
func (s *scan) only() (text string) {
	for s.member() {
		text = s.text()
	}
	return text
}

func (s *scan) blob(b *api.BlobOutput) {
	for s.member() {
		switch string(s.name) {
		case "blob_ref":
			b.BlobRef = s.text()
		case "size_bytes":
			b.SizeBytes = s.number()
		default:
			s.skip()
		}
	}
}

// base64Size is the size of what a base64 text stands for.
func base64Size(text string) int64 { return int64(len(strings.TrimRight(text, "="))) * 3 / 4 }
