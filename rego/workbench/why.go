package workbench

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/go-json-experiment/json"
	"github.com/spf13/cobra"

	"github.com/stockade-dev/stockade/rego"
	"github.com/stockade-dev/stockade/supervisor/api"
)

func (b *bench) why() *cobra.Command {
	var policy, state string
	var smallest bool
	cmd := &cobra.Command{
		Use:   "why INTENT_ID | RECEIPT.json | -",
		Short: "Explain a recorded decision: each denial, its rule, and what would have helped",
		Long: `why takes the id of an intent, or a receipt as a file or on standard input. With the
state directory of the supervisor it asks the policy the recorded question again and
explains the answer; without it, it says what the receipt itself knows.

The policy must be the one that decided: the one that --policy names, or the revision that the
state directory keeps, or the shipped library. Then the decision is replayed, and why says that input and answer are the
recorded ones bit for bit. If the digest is another one it does not pretend: it shows what was recorded, and what
this policy would decide.

Of a denial it names the smallest changes, of the request, the session's grant or the policy's data, with
which it would have been allowed. They are searched for: each was tried with the whole of the decision.`,
		Example: `  stockade policy why --state /var/lib/stockade sha256:3f5a…
  stockade exec --json s1 -- true | stockade policy why -
  stockade policy why --policy my-policy receipt.json`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			receipt, err := readReceipt(cmd, args[0])
			if err != nil {
				return err
			}
			intent := args[0]
			if receipt != nil {
				intent = receipt.IntentID
			}
			record, err := b.record(state, intent)
			switch {
			case err == nil:
				return b.explain(cmd, policy, state, record, smallest)
			case receipt == nil:
				return fmt.Errorf("why %s: %w", intent, err)
			}
			d := rego.Decision{
				Allow: receipt.Outcome != api.OutcomeDenied, Deny: receipt.Deny, Warn: receipt.Warn, Policy: receipt.Policy,
			}
			j := b.judge(rego.Input{}, d, nil)
			j.Notes = []string{fmt.Sprintf("from the receipt alone (%v)", err)}
			return b.show(cmd, j)
		},
	}
	cmd.Flags().StringVar(&policy, "policy", "", "directory of the policy; the shipped library without it")
	cmd.Flags().BoolVar(&smallest, "smallest", true, "search for the smallest changes with which it would have been allowed")
	cmd.Flags().StringVar(&state, "state", b.opts.StateDir, "state directory of the supervisor")
	return cmd
}

// explain asks the recorded question again.
func (b *bench) explain(cmd *cobra.Command, policy, state string, record Record, smallest bool) error {
	engine, err := b.decider(policy, state, record.PolicyDigest)
	if err != nil {
		return err
	}
	defer engine.Close()
	d, reasons := engine.Explain(cmd.Context(), record.Entrypoint, record.Input)
	j := b.judge(record.Input, d, reasons)
	r := replayed{Policy: record.PolicyDigest, Input: record.InputDigest}
	switch {
	case engine.Digest() != record.PolicyDigest:
		r.Why = "another policy is asked: name the one that decided with --policy to have it replayed"
		was := b.judge(record.Input, record.Decision, nil)
		was.Policy.Digest, was.InputDigest = record.PolicyDigest, record.InputDigest
		j.Recorded = &was
		j.Notes = append(j.Notes, fmt.Sprintf("the policy that decided was %s; this is not a replay, but what %s would say", record.PolicyDigest, engine.Digest()))
	case record.InputDigest != "" && d.InputDigest != record.InputDigest:
		r.Why = fmt.Sprintf("the input is %s, recorded is %s", d.InputDigest, record.InputDigest)
	default:
		r.Why = unlike(record.Decision, d)
		r.Identical = r.Why == ""
	}
	j.Replay = &r
	if smallest && !d.Allow {
		if j.Smallest, j.GivenUp, err = engine.Least(cmd.Context(), record.Entrypoint, record.Input); err != nil {
			return err
		}
	}
	return b.show(cmd, j)
}

// replayed says whether a recorded decision was repeated.
type replayed struct {
	Identical bool   `json:"identical"` // input and answer are the recorded ones, bit for bit
	Why       string `json:"why,omitempty"`
	Policy    string `json:"policy_digest"`
	Input     string `json:"input_digest"`
}

// unlike says in what a decision differs from the recorded one; "" when it is the same, bit for bit.
func unlike(recorded, d rego.Decision) string {
	for _, part := range []struct {
		name     string
		was, now any
	}{
		{"allow", recorded.Allow, d.Allow},
		{"deny", recorded.Deny, d.Deny},
		{"warn", recorded.Warn, d.Warn},
		{"grant", recorded.Grant, d.Grant},
		{"limits", recorded.Limits, d.Limits},
		{"obligations", recorded.Obligations, d.Obligations},
		{"rules", recorded.Policy.Rules, d.Policy.Rules},
	} {
		was, err := api.Encode(part.was)
		if err != nil {
			return err.Error()
		}
		now, err := api.Encode(part.now)
		if err != nil {
			return err.Error()
		}
		if !bytes.Equal(was, now) {
			return fmt.Sprintf("bug: %s was %.200s and is %.200s", part.name, was, now)
		}
	}
	return ""
}

// decider is the policy that is to explain: the one that is named, else the revision that decided, if it is kept, else
// the shipped library.
func (b *bench) decider(policy, state, digest string) (*rego.Engine, error) {
	if policy == "" && b.opts.Policy != nil && state != "" && digest != "" {
		switch fsys, err := b.opts.Policy(state, digest); {
		case err == nil:
			return loadFS(fsys)
		case !errors.Is(err, fs.ErrNotExist):
			return nil, err
		}
	}
	return load(policy)
}

var errNoState = errors.New("there is no state directory to look it up in: see --state")

func (b *bench) record(state, intent string) (Record, error) {
	if b.opts.Records == nil || state == "" {
		return Record{}, errNoState
	}
	return b.opts.Records(state, intent)
}

// readReceipt reads a receipt from a file or standard input; nil when the argument is no
// file, and so an id. Members of a later version are no reason to refuse it.
func readReceipt(cmd *cobra.Command, name string) (*api.Receipt, error) {
	text, err := read(name, cmd.InOrStdin())
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, os.ErrInvalid) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var receipt api.Receipt
	if err := json.Unmarshal(bytes.TrimSpace(text), &receipt); err != nil {
		return nil, fmt.Errorf("%s is not a receipt: %w", name, err)
	}
	return &receipt, nil
}
