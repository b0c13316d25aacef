package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/stockade-dev/stockade/supervisor/api"
)

func (c *cli) receiptsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "receipts",
		Short: "List, show, verify and prove receipts",
		Long: `receipts reads the receipts of a supervisor: over its socket, or with --state from
the journal in its state directory, where no supervisor needs to run.`,
	}
	cmd.AddCommand(c.receiptsListCommand(), c.receiptsShowCommand(), c.receiptsVerifyCommand(), c.receiptsCheckpointCommand(),
		c.receiptsProveCommand(), c.receiptsCheckCommand(), c.receiptsFsckCommand())
	return cmd
}

func (c *cli) receiptsListCommand() *cobra.Command {
	q := receiptQuery{newest: true}
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List receipts, newest first",
		Long: `list writes the caller's receipts that fit every filter, newest first; with --state all that are
in the files, whose order and chain are checked, and no signature: "stockade audit --state" checks
those too.` + filterHelp,
		Example: `  stockade receipts list --session "$id"
  stockade receipts list --outcome denied --since 2h --path /etc
  stockade receipts list --follow --output jsonl
  stockade receipts list --state build/state --limit 20`,
		Args: arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := q.complete(c); err != nil {
				return err
			}
			if q.state != "" {
				return c.recordedReceipts(&q)
			}
			return c.pages(cmd.Context(), &q, c.client().ReceiptPage)
		},
	}
	q.register(c, cmd)
	cmd.Flags().StringVar(&q.state, "state", "", "read the journal in this state directory")
	cmd.Flags().Int64Var(&q.limit, "limit", 100, "how many at most; 0 is all")
	return cmd
}

// summary is a receipt in a few words.
func summary(r *api.Receipt) string {
	if r.Outcome != api.OutcomeOK {
		var codes []string
		for _, d := range r.Deny {
			codes = append(codes, string(d.Code))
		}
		if len(codes) == 0 {
			codes = []string{string(r.ErrorCode)}
		}
		return strings.Join(codes, ",")
	}
	switch p := r.Payload; {
	case p.Open != nil:
		return p.Open.Status
	case p.Exec != nil && p.Exec.Signal != "":
		return p.Exec.Status + " SIG" + strings.TrimPrefix(p.Exec.Signal, "SIG")
	case p.Exec != nil:
		return fmt.Sprintf("%s %d", p.Exec.Status, p.Exec.ExitCode)
	case p.Signal != nil:
		return p.Signal.Status
	case p.Close != nil:
		return p.Close.Status
	case p.Control != nil:
		return p.Control.Status
	case p.Space != nil:
		return p.Space.Status
	case p.File != nil && p.File.Outcome() != nil:
		out := p.File.Outcome()
		return strings.TrimSpace(string(out.Status) + " " + string(out.Code))
	case p.Blob != nil:
		return p.Blob.BlobRef
	}
	return ""
}

// digestOr is a digest of a file, or that there was none.
func digestOr(digest string) string {
	if digest == "" {
		return "none"
	}
	return digest
}

func (c *cli) receiptsShowCommand() *cobra.Command {
	var state string
	cmd := &cobra.Command{
		Use:   "show RECEIPT",
		Short: "Show one receipt",
		Example: `  stockade receipts show "$intent"
  stockade receipts show --json --state build/state "$intent"`,
		Args: arguments(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error { return c.receiptsShow(cmd.Context(), state, args[0]) },
	}
	cmd.Flags().StringVar(&state, "state", "", "read the journal in this state directory")
	return cmd
}

func (c *cli) receiptsShow(ctx context.Context, state, id string) error {
	r, err := c.receipt(ctx, state, id)
	if err != nil {
		return err
	}
	if c.json {
		return document(c.stdout, r)
	}
	return table(c.stdout, receiptRows(r))
}

func (c *cli) receipt(ctx context.Context, state, id string) (*api.Receipt, error) {
	if state == "" {
		return c.client().Receipt(ctx, id)
	}
	list, err := recorded(state, &receiptQuery{filter: api.Read{IntentID: id}})
	if err != nil {
		return nil, err
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("receipt %s: not in the journal of %s", id, state)
	}
	return &list[0], nil
}

// receiptRows is a receipt for people; --json has the rest.
func receiptRows(r *api.Receipt) [][]string {
	rows := [][]string{
		{"receipt", r.IntentID},
		{"operation", string(r.Op)},
		{"outcome", strings.TrimSpace(string(r.Outcome) + "  " + summary(r))},
		{"principal", fmt.Sprintf("uid %d gid %d", r.Principal.UID, r.Principal.GID)},
		{"session", r.SessionID},
		{"execution", r.ExecID},
		{"key", r.Key},
		{"frames", strconv.FormatInt(r.FrameSeq, 10)},
		{"settled", r.SettledAt},
		{"policy", r.Policy.Digest},
		{"asked", r.Policy.Entrypoint},
	}
	for _, rule := range r.Policy.Rules {
		rows = append(rows, []string{"rule", rule})
	}
	for _, d := range r.Deny {
		rows = append(rows, []string{"denied", fmt.Sprintf("%s  %s  %s", d.Code, d.Subject, d.Message)})
	}
	if r.ErrorCode != "" {
		rows = append(rows, []string{"error", fmt.Sprintf("%s: %s", r.ErrorCode, r.ErrorMessage)})
	}
	for _, l := range r.Clamped {
		rows = append(rows, []string{"clamped", fmt.Sprintf("%s: asked %d, got %d (%s)", l.Field, l.Requested, l.Effective, l.Source)})
	}
	if o := r.Payload.Open; o != nil {
		rows = append(rows, grantRows(o.Grant)...)
		rows = append(rows, enforcedRows(o.Enforced)...)
		for _, d := range o.Inputs {
			rows = append(rows, []string{"input", fmt.Sprintf("%s  %s  %d files  %s", d.Path, d.Digest, d.Files, amount(d.SizeBytes))})
		}
	}
	if x := r.Payload.Exec; x != nil {
		rows = append(rows, []string{"used", fmt.Sprintf("wall %s, cpu %s, peak memory %s", span(x.Usage.WallNS), span(x.Usage.CPUNS), amount(x.Usage.PeakMemoryBytes))})
		rows = append(rows, evidenceRows(x)...)
		for _, a := range x.Outputs {
			rows = append(rows, []string{"output", fmt.Sprintf("%s  %s  %s", a.Path, a.BlobRef, amount(a.SizeBytes))})
		}
	}
	if s := r.Payload.Space; s != nil {
		rows = append(rows, []string{"overlay", fmt.Sprintf("%s, %d changes", s.GuestPath, s.Applied)})
		for _, path := range s.Left {
			rows = append(rows, []string{"unchanged", path})
		}
	}
	if f := r.Payload.File; f != nil {
		for _, change := range f.Changes() {
			rows = append(rows, []string{"file", fmt.Sprintf("%s %s  %s -> %s  %s", change.Kind, change.Path, digestOr(change.Before), digestOr(change.After), amount(change.SizeBytes))})
		}
	}
	for _, t := range r.Timings {
		rows = append(rows, []string{"timing", fmt.Sprintf("%-10s %s", t.Stage, span(t.NS))})
	}
	return rows
}
