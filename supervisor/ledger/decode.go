package ledger

import (
	"bytes"
	"fmt"
	"maps"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/stockade-dev/stockade/supervisor/api"
)

// Decode reads one record of the journal. It has what a State looks at, and no more: a
// decision is its type, and a receipt its ids, principal, operation, outcome and codes, the open
// with its grant, the execution without its output, and what a control operation and a blob.put did. Who
// needs all of a record unmarshals it.
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
	TypeFrame:      whole[Frame],
	TypeDiagnostic: whole[Diagnostic],
	TypeNotice:     whole[Notice],
	TypeSessionEnd: whole[SessionEnd],
	TypeAdopted:    whole[Adopted],
	TypeRetired:    whole[Retired],
	TypeSnapshot:   whole[SnapshotTaken],
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
	Op            api.Op        `json:"op"`
	RequestedKind api.Op        `json:"requested_kind"`
	Principal     api.Principal `json:"principal"`
	Open          *requestOpen  `json:"open"`
	Exec          *requestExec  `json:"exec"`
}

type requestOpen struct {
	Labels    map[string]string `json:"labels"`
	OnRestart string            `json:"on_restart"`
	Target    struct {
		Local struct {
			Env map[string]ignored `json:"env"`
		} `json:"local"`
	} `json:"target"`
}

type requestExec struct {
	Argv      command           `json:"argv"`
	Labels    map[string]string `json:"labels"`
	StdinOpen bool              `json:"stdin_open"`
	StdinRef  string            `json:"stdin_ref"`
	Stdin     struct {
		BlobRef api.BlobRef `json:"blob_ref"`
	} `json:"stdin"`
}

// ignored is a value that is not for the record: that of an environment variable.
type ignored struct{}

// UnmarshalJSONFrom skips it.
func (ignored) UnmarshalJSONFrom(dec *jsontext.Decoder) error { return dec.SkipValue() }

// command is the beginning of an argv.
type command []string

// UnmarshalJSONFrom reads as much as is shown.
func (c *command) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	if dec.PeekKind() != '[' {
		return dec.SkipValue()
	}
	if _, err := dec.ReadToken(); err != nil {
		return err
	}
	for dec.PeekKind() != ']' {
		if len(*c) == keptArgs || dec.PeekKind() != '"' {
			if err := dec.SkipValue(); err != nil {
				return err
			}
			continue
		}
		arg, err := dec.ReadToken()
		if err != nil {
			return err
		}
		*c = append(*c, shorten(arg.String(), keptArgument))
	}
	_, err := dec.ReadToken()
	return err
}

func decodeIntent(b []byte) (Record, error) {
	r := new(Intent)
	if err := json.Unmarshal(b, r, lax); err != nil {
		return nil, err
	}
	return r, nil
}

// asked returns what was asked for.
func (r *Intent) asked() (*request, error) {
	if r.Large != nil {
		return &request{Op: r.Large.Op, Principal: r.Large.Principal}, nil
	}
	ask := new(request)
	if err := json.Unmarshal(r.Request, ask, lax); err != nil {
		return nil, fmt.Errorf("request of intent %s: %w", r.IntentID, err)
	}
	return ask, nil
}

func (ask *request) digest(r *Intent) string {
	if r.Large != nil {
		return r.Large.Digest
	}
	return Digest(r.Request)
}

func (ask *request) opening() *opening {
	if ask.Open == nil {
		return nil
	}
	return &opening{
		Labels:    ask.Open.Labels,
		EnvNames:  slices.Sorted(maps.Keys(ask.Open.Target.Local.Env)),
		OnRestart: ask.Open.OnRestart,
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

// receipt is what Decode reads of an api.Receipt.
type receipt struct {
	IntentID     string        `json:"intent_id"`
	Op           api.Op        `json:"op"`
	Key          string        `json:"idempotency_key"`
	Principal    api.Principal `json:"principal"`
	SessionID    string        `json:"session_id"`
	ExecID       string        `json:"exec_id"`
	FrameSeq     int64         `json:"frame_seq"`
	Outcome      api.Outcome   `json:"outcome"`
	ErrorCode    api.Code      `json:"error_code"`
	Deny         []api.Deny    `json:"deny"`
	Policy       policy        `json:"policy"`
	Payload      payload       `json:"payload"`
	AdmittedAtNS int64         `json:"admitted_at_ns"`
	SettledAtNS  int64         `json:"settled_at_ns"`
}

type policy struct {
	Digest string `json:"digest"`
}

type payload struct {
	Open    *openResult        `json:"open"`
	Exec    *execResult        `json:"exec"`
	Control *api.ControlResult `json:"control"`
	Blob    *api.BlobResult    `json:"blob"`
}

type openResult struct {
	SessionID   string     `json:"session_id"`
	Grant       *api.Grant `json:"grant"`
	StartedAtNS int64      `json:"started_at_ns"`
	ExpiresAtNS int64      `json:"expires_at_ns"`
}

type execResult struct {
	Status      string         `json:"status"`
	ExitCode    int            `json:"exit_code"`
	Signal      string         `json:"signal"`
	Stdout      *output        `json:"stdout"`
	Stderr      *output        `json:"stderr"`
	Outputs     []api.Artifact `json:"outputs"`
	Usage       api.Usage      `json:"usage"`
	StartedAtNS int64          `json:"started_at_ns"`
	EndedAtNS   int64          `json:"ended_at_ns"`
	ErrorCode   api.Code       `json:"error_code"`
}

// output is how much there was of it, and where it is.
type output struct {
	InlineText struct {
		Text textSize `json:"text"`
	} `json:"inline_text"`
	InlineBytes struct {
		Bytes base64Size `json:"bytes"`
	} `json:"inline_bytes"`
	Blob *struct {
		BlobRef   string `json:"blob_ref"`
		SizeBytes int64  `json:"size_bytes"`
	} `json:"blob"`
	TotalBytes int64 `json:"total_bytes"`
}

// textSize is the size of a text, in bytes.
type textSize int64

// UnmarshalJSONFrom measures it.
func (n *textSize) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	v, err := dec.ReadValue()
	if err != nil || v.Kind() != '"' {
		return err
	}
	if len(v) > 1 && bytes.IndexByte(v, '\\') < 0 {
		*n = textSize(len(v) - 2)
		return nil
	}
	text, err := jsontext.AppendUnquote(nil, v)
	*n = textSize(len(text))
	return err
}

// base64Size is the size of what a base64 text stands for.
type base64Size int64

// UnmarshalJSONFrom measures it.
func (n *base64Size) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	v, err := dec.ReadValue()
	if err != nil || v.Kind() != '"' {
		return err
	}
	*n = base64Size(len(bytes.TrimRight(bytes.Trim(v, `"`), "=")) * 3 / 4)
	return nil
}

func (o *output) output() *api.Output {
	if o == nil {
		return nil
	}
	out := &api.Output{TotalBytes: o.TotalBytes}
	if o.Blob != nil {
		out.Blob = &api.BlobOutput{BlobRef: o.Blob.BlobRef, SizeBytes: o.Blob.SizeBytes}
	}
	if out.TotalBytes == 0 && out.Blob == nil {
		out.TotalBytes = int64(o.InlineText.Text) + int64(o.InlineBytes.Bytes)
	}
	return out
}

func decodeSettled(b []byte) (Record, error) {
	var rec struct {
		Header
		Receipt *receipt `json:"receipt"`
	}
	if err := json.Unmarshal(b, &rec, lax); err != nil {
		return nil, err
	}
	s := &Settled{Header: rec.Header}
	r := rec.Receipt
	if r == nil {
		return s, nil
	}
	s.Receipt = &api.Receipt{
		IntentID:     r.IntentID,
		Op:           r.Op,
		Key:          r.Key,
		Principal:    r.Principal,
		SessionID:    r.SessionID,
		ExecID:       r.ExecID,
		FrameSeq:     r.FrameSeq,
		Outcome:      r.Outcome,
		ErrorCode:    r.ErrorCode,
		Deny:         r.Deny,
		Policy:       api.PolicyRef{Digest: r.Policy.Digest},
		Payload:      api.Payload{Control: r.Payload.Control, Blob: r.Payload.Blob},
		AdmittedAtNS: r.AdmittedAtNS,
		SettledAtNS:  r.SettledAtNS,
	}
	if o := r.Payload.Open; o != nil {
		s.Receipt.Payload.Open = &api.OpenResult{SessionID: o.SessionID, Grant: o.Grant, StartedAtNS: o.StartedAtNS, ExpiresAtNS: o.ExpiresAtNS}
	}
	if x := r.Payload.Exec; x != nil {
		s.Receipt.Payload.Exec = &api.ExecResult{
			Status:      x.Status,
			ExitCode:    x.ExitCode,
			Signal:      x.Signal,
			Stdout:      x.Stdout.output(),
			Stderr:      x.Stderr.output(),
			Outputs:     x.Outputs,
			Usage:       x.Usage,
			StartedAtNS: x.StartedAtNS,
			EndedAtNS:   x.EndedAtNS,
			ErrorCode:   x.ErrorCode,
		}
	}
	return s, nil
}
