package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/spf13/cobra"
	"golang.org/x/mod/sumdb/note"

	"github.com/stockade-dev/stockade/internal/journal"
	"github.com/stockade-dev/stockade/supervisor/api"
)

// exitBad is the status of receipts verify and checkpoint for a journal that does not verify.
const exitBad = 1

// recorded reads receipts from the journal below a state directory, newest first.
func recorded(state string, q *receiptQuery) ([]api.Receipt, error) {
	last := lastReceipts{limit: int(q.limit)}
	if err := journal.Scan(filepath.Join(state, "journal"), receiptsIn(q, last.add)); err != nil {
		return nil, err
	}
	out := last.all()
	slices.Reverse(out)
	return out, nil
}

// lastReceipts are the newest of what is added, oldest first; without a limit, all of it.
type lastReceipts struct {
	limit int
	kept  []api.Receipt
}

func (l *lastReceipts) add(r *api.Receipt) error {
	l.kept = append(l.kept, *r)
	if l.limit > 0 && len(l.kept) > 2*l.limit {
		l.kept = slices.Delete(l.kept, 0, l.limit)
	}
	return nil
}

func (l *lastReceipts) all() []api.Receipt {
	if l.limit == 0 {
		return l.kept
	}
	return l.kept[max(0, len(l.kept)-l.limit):]
}

// receiptsIn reads records, and gives fn the receipts that fit.
func receiptsIn(q *receiptQuery, fn func(*api.Receipt) error) func(int64, []byte) error {
	return func(seq int64, rec []byte) error {
		var r struct {
			Type    string      `json:"type"`
			Receipt api.Receipt `json:"receipt"`
		}
		if err := json.Unmarshal(rec, &r); err != nil {
			return fmt.Errorf("record %d: %w", seq, err)
		}
		if r.Type == "receipt" && q.filter.Fits(&r.Receipt) {
			return fn(&r.Receipt)
		}
		return nil
	}
}

// verifyOptions say what a journal is verified against.
type verifyOptions struct {
	state, key  string
	checkpoints []string // files with notes that were kept elsewhere
	strict      bool
}

func (c *cli) receiptsVerifyCommand() *cobra.Command {
	var o verifyOptions
	cmd := &cobra.Command{
		Use:   "verify --state DIR",
		Short: "Verify the journal below a state directory",
		Long: `verify checks every record of a journal: frames, checksums, order, hash chain, and
the Merkle root under every signed checkpoint. It needs the public key and no
supervisor. Exit status 1 means that the journal does not verify; the first bad record
is named. A journal with records of which none is signed does not verify either.

Records behind the last checkpoint are chained and not signed: whoever can write the
directory could have written or removed them. A supervisor that runs, or was killed, has
such records; they are told on stderr. --strict makes them a failure.

The key and the checkpoints beside the journal prove nothing against somebody who can
write there. Keep a copy of the key elsewhere and name it with --key; keep what
"stockade receipts checkpoint" prints from time to time and name it with --checkpoint:
then a journal that was rolled back, or replaced, does not verify.`,
		Example: `  stockade receipts verify --state /var/lib/stockade --key stockade.pub
  stockade receipts verify --state /var/lib/stockade --key stockade.pub --checkpoint yesterday --strict`,
		Args: arguments(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error { return c.receiptsVerify(&o) },
	}
	cmd.Flags().StringVar(&o.state, "state", "", "the supervisor's state directory")
	o.register(cmd)
	return cmd
}

// register adds the flags that say against what.
func (o *verifyOptions) register(cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.key, "key", "", "public key of the journal (default: journal/key.pub in the state directory)")
	cmd.Flags().StringArrayVar(&o.checkpoints, "checkpoint", nil, "FILE with a checkpoint that was kept elsewhere (repeatable)")
	cmd.Flags().BoolVar(&o.strict, "strict", false, "fail if the last records are not signed")
}

func (c *cli) receiptsVerify(o *verifyOptions) error {
	if o.state == "" {
		return usage("receipts verify: say --state DIR")
	}
	report, err := c.verified(o, nil)
	if err != nil {
		return err
	}
	if c.json {
		if err := document(c.stdout, report); err != nil {
			return err
		}
	} else if report.Bad == nil {
		fmt.Fprintf(c.stdout, "%d records, %d signed by %d checkpoint(s), root %s\n", report.Records, report.Signed, report.Checkpoints, report.Root)
	}
	return c.judge(report, o.strict)
}

// verified verifies a journal; what is wrong with it is in the report. With fn it goes on, when nothing is, to every record.
func (c *cli) verified(o *verifyOptions, fn func(seq int64, rec []byte) error) (*journal.Report, error) {
	known, err := c.journalKey(o.state, o.key)
	if err != nil {
		return nil, err
	}
	var kept [][]byte
	for _, file := range o.checkpoints {
		msg, err := os.ReadFile(file)
		if err != nil {
			return nil, usage("--checkpoint: %v", err)
		}
		kept = append(kept, msg)
	}
	dir := filepath.Join(o.state, "journal")
	var report journal.Report
	if fn == nil {
		report, err = journal.Verify(dir, known, kept...)
	} else {
		report, err = journal.VerifyEach(dir, known, fn, kept...)
	}
	switch {
	case errors.Is(err, journal.ErrForeign):
		return nil, &exitError{exitBad, fmt.Errorf("--checkpoint: %w", err)}
	case errors.Is(err, fs.ErrNotExist):
		return nil, usage("--state: %v", err)
	case err != nil && report.Bad == nil:
		return nil, err
	}
	return &report, nil
}

// judge turns a report into our exit status, and tells what is not signed.
func (c *cli) judge(r *journal.Report, strict bool) error {
	if r.Bad != nil {
		return &exitError{exitBad, r.Bad}
	}
	if r.Records > 0 && r.Signed == 0 {
		return &exitError{exitBad, fmt.Errorf("no checkpoint signs any of the %d records: nothing says that they are the supervisor's", r.Records)}
	}
	if r.Unsigned > 0 {
		c.say("the last %d of %d records are under no checkpoint yet: nothing but the chain speaks for them", r.Unsigned, r.Records)
	}
	if r.TailBytes > 0 {
		c.say("behind the last record there are %d bytes of a write that was interrupted, or is under way", r.TailBytes)
	}
	if strict && (r.Unsigned > 0 || r.TailBytes > 0) {
		return &exitError{exitBad, errors.New("--strict: the journal does not end with a checkpoint")}
	}
	return nil
}

// journalKey reads the public key of a journal.
func (c *cli) journalKey(state, file string) (note.Verifiers, error) {
	if file == "" {
		file = filepath.Join(state, "journal", "key.pub")
		c.say("using the key beside the journal; --key names a copy that was kept elsewhere")
	}
	known, err := journal.ReadPublicKey(file)
	if err != nil {
		return nil, usage("--key: %v", err)
	}
	return note.VerifierList(known), nil
}

func (c *cli) receiptsCheckpointCommand() *cobra.Command {
	var state, key string
	cmd := &cobra.Command{
		Use:   "checkpoint",
		Short: "Print the journal's signed checkpoint, to be kept elsewhere",
		Long: `checkpoint has the supervisor sign all records that its journal has, and prints the
signed note. With --state it prints the last one from the files. Kept where the
supervisor's machine cannot write, it finds a journal that was rolled back: see
"stockade receipts verify --checkpoint".`,
		Example: `  stockade receipts checkpoint > checkpoint-$(date +%F)
  stockade receipts checkpoint --state /var/lib/stockade --key stockade.pub`,
		Args: arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return c.receiptsCheckpoint(cmd.Context(), state, key) },
	}
	cmd.Flags().StringVar(&state, "state", "", "print the last checkpoint in this state directory")
	cmd.Flags().StringVar(&key, "key", "", "public key of the journal (default: journal/key.pub in the state directory)")
	return cmd
}

func (c *cli) receiptsCheckpoint(ctx context.Context, state, key string) error {
	checkpoint, err := c.checkpoint(ctx, state, key)
	if err != nil {
		return err
	}
	if c.json {
		return document(c.stdout, checkpoint)
	}
	_, err = io.WriteString(c.stdout, checkpoint.Note)
	return err
}

func (c *cli) checkpoint(ctx context.Context, state, key string) (*api.Checkpoint, error) {
	if state == "" {
		return c.client().Checkpoint(ctx)
	}
	known, err := c.journalKey(state, key)
	if err != nil {
		return nil, err
	}
	msg, err := journal.LastCheckpoint(filepath.Join(state, "journal"), known)
	if err != nil {
		return nil, &exitError{exitBad, err}
	}
	return &api.Checkpoint{Note: string(msg)}, nil
}
