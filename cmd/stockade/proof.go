package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/spf13/cobra"

	"github.com/stockade-dev/stockade/internal/journal"
	"github.com/stockade-dev/stockade/supervisor/api"
)

func (c *cli) receiptsProveCommand() *cobra.Command {
	var state, key string
	cmd := &cobra.Command{
		Use:   "prove --state DIR INTENT|RECORD",
		Short: "Prove that a receipt is in the journal, to somebody who has only the public key",
		Long: `prove writes a proof that one record is in the journal: the record, the hashes that lead
from it to the root, and the signed checkpoint over the root. The record is the receipt of
INTENT, or the one with the number RECORD. "stockade receipts check" checks it with the public
key and nothing else. A receipt that no checkpoint signs yet cannot be proved: see "stockade receipts
checkpoint".`,
		Example: `  stockade receipts checkpoint > checkpoint
  stockade receipts prove --state /var/lib/stockade "$intent" > proof.json
  stockade receipts check --key stockade.pub proof.json`,
		Args:              arguments(cobra.ExactArgs(1)),
		ValidArgsFunction: atMost(1, c.intents),
		RunE:              func(_ *cobra.Command, args []string) error { return c.prove(state, key, args[0]) },
	}
	cmd.Flags().StringVar(&state, "state", "", "the supervisor's state directory")
	cmd.Flags().StringVar(&key, "key", "", "public key of the journal (default: journal/key.pub in the state directory)")
	return cmd
}

func (c *cli) prove(state, key, what string) error {
	if state == "" {
		return usage("receipts prove: say --state DIR")
	}
	known, err := c.journalKey(state, key)
	if err != nil {
		return err
	}
	seq, err := strconv.ParseInt(what, 10, 64)
	if err != nil {
		if seq, err = receiptRecord(state, what); err != nil {
			return err
		}
	}
	p, err := journal.ProveRecord(filepath.Join(state, "journal"), known, seq)
	bad, corrupt := errors.AsType[*journal.CorruptError](err)
	switch {
	case corrupt:
		return &exitError{exitBad, bad}
	case errors.Is(err, journal.ErrUnsigned):
		return &exitError{exitBad, fmt.Errorf("%w; have one made with stockade receipts checkpoint", err)}
	case err != nil:
		return err
	}
	return document(c.stdout, p)
}

// receiptRecord finds the record that is the receipt of an intent.
func receiptRecord(state, intent string) (int64, error) {
	found := int64(-1)
	err := journal.Scan(filepath.Join(state, "journal"), func(seq int64, rec []byte) error {
		var r struct {
			Type    string `json:"type"`
			Receipt struct {
				IntentID string `json:"intent_id"`
			} `json:"receipt"`
		}
		if err := json.Unmarshal(rec, &r); err != nil {
			return fmt.Errorf("record %d: %w", seq, err)
		}
		if r.Type == "receipt" && r.Receipt.IntentID == intent {
			found = seq
		}
		return nil
	})
	if err == nil && found < 0 {
		err = fmt.Errorf("receipt %s: not in the journal of %s", intent, state)
	}
	return found, err
}

func (c *cli) receiptsCheckCommand() *cobra.Command {
	var key string
	cmd := &cobra.Command{
		Use:   "check --key FILE PROOF|-",
		Short: "Check a proof with the public key, and show what it proves",
		Long: `check says whether a journal that the key signs has the record of a proof, and prints
the record. It needs nothing else: neither the journal nor a supervisor. Exit status 1 means
that the proof proves nothing.`,
		Example: `  stockade receipts check --key stockade.pub proof.json
  stockade receipts check --key stockade.pub --json - < proof.json | jq .receipt`,
		Args: arguments(cobra.ExactArgs(1)),
		RunE: func(_ *cobra.Command, args []string) error { return c.checkProof(key, args[0]) },
	}
	cmd.Flags().StringVar(&key, "key", "", "public key of the journal")
	return cmd
}

func (c *cli) checkProof(key, file string) error {
	if key == "" {
		return usage("receipts check: say --key FILE")
	}
	known, err := c.journalKey("", key)
	if err != nil {
		return err
	}
	var data []byte
	if file == "-" {
		data, err = io.ReadAll(c.stdin)
	} else {
		data, err = os.ReadFile(file)
	}
	if err != nil {
		return usage("%v", err)
	}
	p, err := journal.CheckProof(data, known)
	if err != nil {
		return &exitError{exitBad, err}
	}
	var record struct {
		Type    string       `json:"type"`
		Receipt *api.Receipt `json:"receipt"`
	}
	if c.json || json.Unmarshal(p.Record, &record) != nil {
		_, err = fmt.Fprintf(c.stdout, "%s\n", p.Record)
		return err
	}
	fmt.Fprintf(c.stdout, "record %d of %d, under a signed checkpoint: %s\n", p.Seq, p.Size, printable(record.Type))
	if record.Receipt == nil {
		return nil
	}
	return table(c.stdout, receiptRows(record.Receipt))
}

func (c *cli) receiptsFsckCommand() *cobra.Command {
	var state, key string
	cmd := &cobra.Command{
		Use:   "fsck --state DIR",
		Short: "Look at the journal file by file",
		Long: `fsck checks a journal as verify does, and says of each file what it holds and in what
state it is: good, torn (behind the last record there is a write that was interrupted, which
the next start cuts off), damaged, apart (good in itself, but behind damage), or trimmed. It
changes nothing. Exit status 1 means damage.`,
		Example: `  stockade receipts fsck --state /var/lib/stockade
  stockade receipts fsck --state /var/lib/stockade --json | jq '.files.segments[] | select(.state != "good")'`,
		Args: arguments(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error { return c.fsck(state, key) },
	}
	cmd.Flags().StringVar(&state, "state", "", "the supervisor's state directory")
	cmd.Flags().StringVar(&key, "key", "", "public key of the journal (default: journal/key.pub in the state directory)")
	return cmd
}

func (c *cli) fsck(state, key string) error {
	if state == "" {
		return usage("receipts fsck: say --state DIR")
	}
	known, err := c.journalKey(state, key)
	if err != nil {
		return err
	}
	report, err := journal.Check(filepath.Join(state, "journal"), known)
	if errors.Is(err, fs.ErrNotExist) {
		return usage("--state: %v", err)
	}
	if err != nil {
		return err
	}
	if c.json {
		err = document(c.stdout, report)
	} else {
		err = table(c.stdout, fileRows(report))
	}
	if err == nil && report.Bad != nil {
		err = &exitError{exitBad, report.Bad}
	}
	return err
}

// fileRows is the journal's directory as a table.
func fileRows(r *journal.Report) [][]string {
	rows := [][]string{{"FILE", "STATE", "FIRST", "RECORDS", "BYTES", "REMARK"}}
	row := func(name, state string, first, records, bytes int64, remark string) {
		rows = append(rows, []string{name, state, strconv.FormatInt(first, 10), strconv.FormatInt(records, 10), amount(bytes), remark})
	}
	files := r.Files
	if a := files.Anchor; a != nil {
		row("anchor", found(a.Bad), 0, a.First, 0, remark(a.Bad, "what was before record "+strconv.FormatInt(a.First, 10)+" is trimmed"))
	}
	for _, g := range files.Segments {
		text := ""
		if g.TailBytes > 0 {
			text = fmt.Sprintf("%d bytes of an interrupted write", g.TailBytes)
		}
		row(g.Name, string(g.State), g.First, g.Records, g.Bytes, remark(g.Bad, text))
	}
	k := files.Checkpoints
	row("checkpoints", found(k.Bad), 0, k.Signed, k.Bytes, remark(k.Bad, fmt.Sprintf("%d signed notes, %d records behind the last", k.Notes, r.Unsigned)))
	for _, name := range files.Unfinished {
		row(name, "unfinished", 0, 0, 0, "left by a crash; of no meaning")
	}
	for _, name := range files.Unknown {
		row(name, "unknown", 0, 0, 0, "not the journal's")
	}
	return rows
}

// found is the state of a file that is good or bad.
func found(bad *journal.CorruptError) string {
	if bad != nil {
		return string(journal.SegmentDamaged)
	}
	return string(journal.SegmentGood)
}

func remark(bad *journal.CorruptError, text string) string {
	if bad != nil {
		return bad.Error()
	}
	return text
}
