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
	cmd := &cobra.Command{
		Use:   "why INTENT_ID | RECEIPT.json | -",
		Short: "Explain a recorded decision: each denial, its rule, and what would have helped",
		Long: `why takes the id of an intent, or a receipt as a file or on standard input. With the
state directory of the supervisor it asks the policy the recorded question again and
explains the answer; without it, it says what the receipt itself knows.

The policy must be the one that decided. If its digest is another one, why says so, and
explains what this policy would decide today.`,
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
				return b.explain(cmd, policy, record)
			case receipt == nil:
				return fmt.Errorf("why %s: %w", intent, err)
			}
			d := rego.Decision{
				Allow: receipt.Outcome != api.OutcomeDenied, Deny: receipt.Deny, Warn: receipt.Warn, Policy: receipt.Policy,
			}
			return b.verdict(cmd, rego.Input{}, d, nil, []string{fmt.Sprintf("from the receipt alone (%v)", err)})
		},
	}
	cmd.Flags().StringVar(&policy, "policy", "", "directory of the policy; the shipped library without it")
	cmd.Flags().StringVar(&state, "state", b.opts.StateDir, "state directory of the supervisor")
	return cmd
}

// explain asks the recorded question again.
func (b *bench) explain(cmd *cobra.Command, policy string, record Record) error {
	engine, err := load(policy)
	if err != nil {
		return err
	}
	defer engine.Close()
	var notes []string
	if engine.Digest() != record.PolicyDigest {
		notes = append(notes, fmt.Sprintf("the policy that decided was %s", record.PolicyDigest))
	}
	d, reasons := engine.Explain(cmd.Context(), record.Entrypoint, record.Input)
	if d.Allow != record.Decision.Allow {
		notes = append(notes, fmt.Sprintf("recorded was allow=%t", record.Decision.Allow))
	}
	return b.verdict(cmd, record.Input, d, reasons, notes)
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
