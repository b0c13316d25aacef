package main

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/spf13/cobra"
	"golang.org/x/mod/sumdb/note"

	"github.com/stockade-dev/stockade/internal/journal"
	"github.com/stockade-dev/stockade/supervisor/api"
)

// exitBad is the status of receipts verify for a journal that does not verify.
const exitBad = 1

// recorded reads receipts from the journal below a state directory, newest first.
func recorded(state string, filter api.Read) ([]api.Receipt, error) {
	var out []api.Receipt
	err := journal.Scan(filepath.Join(state, "journal"), func(seq int64, rec []byte) error {
		var r struct {
			Type    string      `json:"type"`
			Receipt api.Receipt `json:"receipt"`
		}
		if err := json.Unmarshal(rec, &r); err != nil {
			return fmt.Errorf("record %d: %w", seq, err)
		}
		if r.Type == "receipt" && matches(&r.Receipt, filter) {
			out = append(out, r.Receipt)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	slices.Reverse(out)
	if filter.Limit > 0 && int64(len(out)) > filter.Limit {
		out = out[:filter.Limit]
	}
	return out, nil
}

func matches(r *api.Receipt, filter api.Read) bool {
	return (filter.IntentID == "" || r.IntentID == filter.IntentID) &&
		(filter.SessionID == "" || r.SessionID == filter.SessionID) &&
		(filter.ExecID == "" || r.ExecID == filter.ExecID)
}

func (c *cli) receiptsVerifyCommand() *cobra.Command {
	var state, key string
	cmd := &cobra.Command{
		Use:   "verify --state DIR",
		Short: "Verify the journal below a state directory",
		Long: `verify checks every record of a journal: frames, checksums, order, hash chain, and
the Merkle root under every signed checkpoint. It needs the public key and no
supervisor. The key beside the journal proves nothing against somebody who can write
there: keep a copy elsewhere and name it with --key. Exit status 1 means that the
journal does not verify; the first bad record is named.`,
		Example: `  stockade receipts verify --state /var/lib/stockade --key stockade.pub`,
		Args:    arguments(cobra.NoArgs),
		RunE:    func(*cobra.Command, []string) error { return c.receiptsVerify(state, key) },
	}
	cmd.Flags().StringVar(&state, "state", "", "the supervisor's state directory")
	cmd.Flags().StringVar(&key, "key", "", "public key of the journal (default: journal/key.pub in the state directory)")
	return cmd
}

func (c *cli) receiptsVerify(state, key string) error {
	if state == "" {
		return usage("receipts verify: say --state DIR")
	}
	dir := filepath.Join(state, "journal")
	if key == "" {
		key = filepath.Join(dir, "key.pub")
		c.say("using the key beside the journal; --key names a copy that was kept elsewhere")
	}
	known, err := journal.ReadPublicKey(key)
	if err != nil {
		return usage("--key: %v", err)
	}
	report, err := journal.Verify(dir, note.VerifierList(known))
	if err != nil && report.Bad == nil {
		if errors.Is(err, fs.ErrNotExist) {
			return usage("--state: %v", err)
		}
		return err
	}
	if c.json {
		if err := document(c.stdout, report); err != nil {
			return err
		}
	} else if report.Bad == nil {
		fmt.Fprintf(c.stdout, "%d records, %d signed by %d checkpoint(s), root %s\n", report.Records, report.Signed, report.Checkpoints, report.Root)
	}
	if report.Bad != nil {
		return &exitError{exitBad, report.Bad}
	}
	return nil
}
