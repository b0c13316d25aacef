package supervisor

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/stockade-dev/stockade/internal/journal"
	"github.com/stockade-dev/stockade/rego"
	"github.com/stockade-dev/stockade/rego/bundle"
	"github.com/stockade-dev/stockade/supervisor/api"
)

// ExportOptions choose what Export writes.
type ExportOptions struct {
	Since  time.Time        // decisions from then on; zero: all
	Follow bool             // go on with those that come
	Policy *bundle.Revision // that says what is masked; nil is the one that was active last
	Log    *slog.Logger     // for what cannot be masked; nil discards
}

// LogEvent is a decision in the form of OPA's decision log. What is ours is in Custom.
type LogEvent struct {
	Labels      map[string]string    `json:"labels"`
	DecisionID  string               `json:"decision_id"` // the intent's
	Bundles     map[string]LogBundle `json:"bundles,omitempty"`
	Path        string               `json:"path"`
	Input       jsontext.Value       `json:"input"`
	Result      jsontext.Value       `json:"result"`
	RequestedBy string               `json:"requested_by"`
	Timestamp   string               `json:"timestamp"`
	Metrics     map[string]int64     `json:"metrics"`
	Custom      struct {
		Stockade LogCustom `json:"stockade"`
	} `json:"custom"`
}

// LogBundle names the revision that decided.
type LogBundle struct {
	Revision string `json:"revision,omitempty"`
}

// LogCustom is what OPA's log has no member for.
type LogCustom struct {
	Seq                int64             `json:"seq"` // of the record in the journal
	Op                 api.Op            `json:"op"`
	SessionID          string            `json:"session_id,omitempty"`
	PolicyDigest       string            `json:"policy_digest"`
	DataDigest         string            `json:"data_digest,omitempty"`
	CapabilitiesDigest string            `json:"capabilities_digest,omitempty"`
	Contract           int64             `json:"contract,omitzero"`
	SignedBy           string            `json:"signed_by,omitempty"`
	EvaluatedAtNS      int64             `json:"evaluated_at_ns"` // the time that policy was told
	Rules              []string          `json:"rules,omitempty"`
	Clamped            []api.Clamp       `json:"clamped,omitempty"`
	InputDigest        string            `json:"input_digest"`             // of the input before masking
	MaskedDigests      map[string]string `json:"masked_digests,omitempty"` // by path: of what was there, under the supervisor's salt
}

// said is the result of a decision as policy gave it.
type said struct {
	Allow       bool             `json:"allow"`
	Deny        []api.Deny       `json:"deny"`
	Warn        []string         `json:"warn,omitempty"`
	Grant       *api.Grant       `json:"grant,omitzero"`
	Limits      *rego.ExecLimits `json:"limits,omitzero"`
	Obligations rego.Obligations `json:"obligations,omitzero"`
}

// Export gives emit the decisions of a state directory, one JSON document each, in the form of OPA's decision log
// and without what the policy masks. When it cannot be found out what that is, input and result are left out. It needs no supervisor, and
// disturbs none. left counts those that cannot be rebuilt.
func Export(ctx context.Context, stateDir string, o ExportOptions, emit func([]byte) error) (left int64, err error) {
	x := exporter{options: o, emit: emit}
	if x.options.Log == nil {
		x.options.Log = slog.New(slog.DiscardHandler)
	}
	if x.salt, err = os.ReadFile(filepath.Join(stateDir, "salt")); err != nil {
		return 0, fmt.Errorf("salt: %w", err)
	}
	for {
		begin := time.Now()
		if err := x.masks(stateDir); err != nil {
			return 0, err
		}
		left, err = EachDecision(stateDir, func(r *Recorded) error { return x.decision(ctx, r) })
		if trimmed := (*journal.TrimmedError)(nil); errors.As(err, &trimmed) && o.Follow {
			err = nil // under us; from what is left we go on
		}
		if err != nil || !o.Follow {
			return left, err
		}
		// The journal is read from its beginning each time, and most of the time not.
		select {
		case <-ctx.Done():
			return left, nil
		case <-time.After(max(time.Second, 10*time.Since(begin))):
		}
	}
}

type exporter struct {
	options ExportOptions
	emit    func([]byte) error
	salt    []byte
	next    int64 // number of the first record that has not been told of

	policy string // by whose masks
	masker *rego.Masker
	broken error // why there is none
}

// masks takes the masks of the policy that is to mask.
func (x *exporter) masks(stateDir string) error {
	r := x.options.Policy
	if r == nil {
		store, err := openStore(stateDir)
		if err != nil {
			return err
		}
		last, err := store.Active()
		if err != nil || last.Digest == x.policy {
			return err
		}
		if r, err = store.Get(last.Digest); err != nil {
			x.broken = err
			return nil
		}
	}
	b, err := rego.ReadBundle(r.FS)
	if err == nil {
		x.masker, err = b.Masker()
	}
	x.policy, x.broken = r.Digest, err
	return nil
}

func (x *exporter) decision(ctx context.Context, r *Recorded) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if r.Seq < x.next {
		return nil
	}
	x.next = r.Seq + 1
	if r.Input.NowNS < x.options.Since.UnixNano() && !x.options.Since.IsZero() {
		return nil
	}
	event, err := logEvent(r)
	if err != nil {
		return err
	}
	text, err := api.Encode(event)
	if err != nil {
		return err
	}
	if text, err = x.masked(ctx, text); err != nil {
		return err
	}
	return x.emit(text)
}

// logEvent is a recorded decision as an event.
func logEvent(r *Recorded) (LogEvent, error) {
	in, d := r.Input, r.Decision
	e := LogEvent{
		Labels:      map[string]string{"id": "stockade"},
		DecisionID:  r.IntentID,
		Bundles:     map[string]LogBundle{"stockade": {}},
		Path:        strings.ReplaceAll(strings.TrimPrefix(r.Entrypoint, "data."), ".", "/"),
		RequestedBy: fmt.Sprintf("uid:%d", in.Request.Principal.UID),
		Metrics:     map[string]int64{"timer_rego_query_eval_ns": int64(r.Elapsed)},
	}
	if n := r.Revision.Number; n > 0 {
		e.Bundles["stockade"] = LogBundle{Revision: fmt.Sprint(n)}
	}
	_, e.Timestamp = stamp(time.Unix(0, in.NowNS))
	result := said{Allow: d.Allow, Deny: d.Deny, Warn: d.Warn, Grant: d.Grant, Obligations: d.Obligations}
	if result.Deny == nil {
		result.Deny = []api.Deny{}
	}
	if d.Limits != (rego.ExecLimits{}) {
		result.Limits = &d.Limits
	}
	var err error
	if e.Input, err = api.Encode(in); err != nil {
		return e, err
	}
	if e.Result, err = api.Encode(result); err != nil {
		return e, err
	}
	e.Custom.Stockade = LogCustom{
		Seq: r.Seq, Op: in.Request.Op, PolicyDigest: r.PolicyDigest, DataDigest: r.Revision.DataDigest,
		CapabilitiesDigest: r.Revision.CapabilitiesDigest, Contract: r.Revision.Contract, SignedBy: r.Revision.SignedBy,
		EvaluatedAtNS: in.NowNS, Rules: d.Policy.Rules, Clamped: r.Clamped, InputDigest: r.InputDigest,
	}
	if in.Session != nil {
		e.Custom.Stockade.SessionID = in.Session.SessionID
	}
	return e, nil
}

// masked is an event without what is not for the log.
func (x *exporter) masked(ctx context.Context, event []byte) ([]byte, error) {
	m, err := rego.Masked{}, x.broken
	if err == nil {
		m, err = x.masker.Mask(ctx, event)
	}
	if err != nil {
		x.options.Log.Error("what is to be masked cannot be found out: input and result are left out", "error", err)
		if m, err = (*rego.Masker)(nil).Mask(ctx, event); err != nil {
			return nil, err
		}
		for _, part := range []string{"input", "result"} {
			delete(m.Event, part)
			m.Removed = append(m.Removed, "/"+part)
		}
	}
	if len(m.Removed) > 0 {
		m.Event["erased"] = m.Removed
	}
	if len(m.Changed) > 0 {
		m.Event["masked"] = m.Changed
	}
	if len(m.Values) > 0 {
		digests := map[string]string{}
		for _, path := range slices.Sorted(maps.Keys(m.Values)) {
			mac := hmac.New(sha256.New, x.salt)
			mac.Write(m.Values[path])
			digests[path] = "hmac-sha256:" + hex.EncodeToString(mac.Sum(nil))
		}
		m.Event["custom"].(map[string]any)["stockade"].(map[string]any)["masked_digests"] = digests
	}
	var text bytes.Buffer
	enc := stdjson.NewEncoder(&text) // which keeps the digits of numbers, and sorts members
	enc.SetEscapeHTML(false)
	if err := enc.Encode(m.Event); err != nil {
		return nil, fmt.Errorf("event: %w", err)
	}
	return bytes.TrimSuffix(text.Bytes(), []byte("\n")), nil
}
