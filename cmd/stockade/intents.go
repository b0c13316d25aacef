package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/stockade-dev/stockade/supervisor/api"
)

func (c *cli) intentsCommand() *cobra.Command {
	var active bool
	var session string
	var limit int64
	cmd := &cobra.Command{
		Use:   "intents [flags]",
		Short: "List your operations, in flight and settled",
		Long: `intents lists what you asked for that has an effect, newest first: each has an id from
the moment at which it is admitted, frames while it is carried out, and one receipt.`,
		Example: `  stockade intents --active
  stockade intents --session "$id" --limit 20`,
		Args: arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if limit <= 0 || limit > most {
				return usage("--limit %d: want a number from 1 to %d", limit, most)
			}
			return c.intentList(cmd.Context(), session, active, limit)
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.BoolVar(&active, "active", false, "only those in flight")
	flags.StringVarP(&session, "session", "s", "", "only of this session")
	flags.Int64VarP(&limit, "limit", "n", 100, "how many at most")
	completeFlag(cmd, "session", c.sessions)
	return cmd
}

func (c *cli) intentList(ctx context.Context, session string, active bool, limit int64) error {
	id, err := c.sessionID(ctx, session)
	if err != nil {
		return err
	}
	ask := api.Read{SessionID: id, Limit: limit}
	if active {
		ask.Limit = most // what is in flight may be older than much that is settled
	}
	list, err := c.client().Intents(ctx, ask)
	if err != nil {
		return err
	}
	if active {
		list = slices.DeleteFunc(list, func(in api.Intent) bool { return in.Outcome != "" })
		list = list[:min(int64(len(list)), limit)]
	}
	if c.json {
		return document(c.stdout, api.IntentList{Intents: list})
	}
	return table(c.stdout, intentRows(list, false))
}

// intentRows is a table of intents, with their owners or without.
func intentRows(list []api.Intent, owners bool) [][]string {
	rows := [][]string{{"INTENT", "OPERATION", "OUTCOME", "ADMITTED", "FRAMES", "SUBJECT", "KEY"}}
	for i := range list {
		in := &list[i]
		subject := in.ExecID
		if subject == "" {
			subject = in.SessionID
		}
		rows = append(rows, []string{in.IntentID, string(in.Op), settlement(in), when(in.AdmittedAtNS), strconv.FormatInt(in.FrameSeq, 10), subject, in.Key})
	}
	if owners {
		rows[0] = append(rows[0], "OWNER")
		for i := range list {
			rows[i+1] = append(rows[i+1], principal(list[i].Principal))
		}
	}
	return rows
}

// settlement is the outcome of an intent, or since when it has none.
func settlement(in *api.Intent) string {
	if in.Outcome == "" {
		return "in flight " + span(in.AgeNS)
	}
	return string(in.Outcome)
}

func (c *cli) framesCommand() *cobra.Command {
	var follow bool
	var after int64
	cmd := &cobra.Command{
		Use:   "frames [flags] INTENT|EXEC",
		Short: "Show the milestones of an operation, or follow them",
		Long: `frames writes the frames of an intent, a line for each: what was durable on the way to
its receipt. They are the same for everybody who looks, and after a restart. The receipt is
no frame: it is told on stderr, or with --json as the last line.`,
		Example: `  stockade frames "$x"
  stockade frames -f --json "$intent"`,
		Args:              arguments(cobra.ExactArgs(1)),
		ValidArgsFunction: atMost(1, c.intents),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.frames(cmd.Context(), args[0], follow, after)
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.BoolVarP(&follow, "follow", "f", false, "go on until the receipt")
	flags.Int64Var(&after, "after", 0, "begin behind the frame with this number")
	return cmd
}

func (c *cli) frames(ctx context.Context, word string, follow bool, after int64) error {
	id, err := c.intentID(ctx, word)
	if err != nil {
		return err
	}
	var r *api.Receipt
	if follow {
		r, err = c.patient("").FollowFrames(ctx, id, after, func(f api.Frame) error { return c.frame(&f) })
	} else {
		r, err = c.framesSoFar(ctx, id, after)
	}
	switch {
	case err != nil || r == nil:
		return err
	case c.json:
		return c.line(api.Event{Kind: "receipt", IntentID: r.IntentID, ExecID: r.ExecID, Receipt: r})
	}
	c.say("receipt: %s", join([]string{string(r.Outcome), summary(r)}))
	return nil
}

// framesSoFar writes the frames that there are, and returns the receipt if it is there.
func (c *cli) framesSoFar(ctx context.Context, id string, after int64) (*api.Receipt, error) {
	for {
		page, err := c.client().Frames(ctx, id, api.Read{After: position(after), Limit: most})
		if err == nil && page.Gone != nil {
			if after, err = c.available(page.Gone, after); err == nil {
				continue
			}
		}
		if err != nil || len(page.Frames) == 0 {
			return receiptOf(page), err
		}
		for i := range page.Frames {
			if err := c.frame(&page.Frames[i]); err != nil {
				return nil, err
			}
			after = page.Frames[i].Seq
		}
		if page.Receipt != nil {
			return page.Receipt, nil
		}
	}
}

func receiptOf(page *api.FrameList) *api.Receipt {
	if page == nil {
		return nil
	}
	return page.Receipt
}

// frame writes one frame as a line.
func (c *cli) frame(f *api.Frame) error {
	if c.json {
		return c.line(api.Event{Kind: "frame", Cursor: strconv.FormatInt(f.Seq, 10), IntentID: f.IntentID, ExecID: f.Payload.ExecID, Frame: f})
	}
	_, err := fmt.Fprintln(c.stdout, printable(fmt.Sprintf("%4d  %s  %-18s  %s", f.Seq, stamp(f.AtNS), f.Kind, details(f))))
	return err
}

// details is what a frame carries, in words.
func details(f *api.Frame) string {
	p := &f.Payload
	var words []string
	if p.ElapsedNS > 0 {
		words = append(words, span(p.ElapsedNS))
	}
	if p.StdoutBytes+p.StderrBytes > 0 || f.Kind == api.FrameProgress {
		words = append(words, totals(p.StdoutBytes, p.StderrBytes))
	}
	if p.InputBytes > 0 {
		words = append(words, amount(p.InputBytes)+" of input")
	}
	if p.InputClosed {
		words = append(words, "end of input")
	}
	if p.InputID != "" {
		words = append(words, "input "+p.InputID)
	}
	if p.TimeoutNS > 0 {
		words = append(words, "timeout "+span(p.TimeoutNS))
	}
	return join(words)
}
