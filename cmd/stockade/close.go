package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/stockade-dev/stockade/supervisor/api"
)

func (c *cli) closeCommand() *cobra.Command {
	var force bool
	var grace time.Duration
	cmd := &cobra.Command{
		Use:   "close SESSION…",
		Short: "End sessions and everything in them",
		Example: `  stockade close "$id"
  stockade close --force "$id"`,
		Args:              arguments(cobra.MinimumNArgs(1)),
		ValidArgsFunction: c.sessions,
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, id := range args {
				ask := api.SessionClose{SessionID: id}
				if force {
					ask.Mode = "force"
				}
				if cmd.Flags().Changed("grace") {
					ask.GraceNS = new(int64(grace))
				}
				if err := c.close(cmd.Context(), ask); err != nil {
					return err
				}
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&force, "force", false, "kill at once instead of asking first")
	cmd.Flags().DurationVar(&grace, "grace", 0, "time between asking and killing (default: the supervisor's)")
	return cmd
}

func (c *cli) close(ctx context.Context, ask api.SessionClose) error {
	r, err := c.client().Close(ctx, ask)
	if err != nil {
		return err
	}
	if err := c.answer(r); err != nil {
		return err
	}
	if done := r.Payload.Close; !c.json && done != nil {
		fmt.Fprintf(c.stdout, "%s %s: %d execution(s), cpu %s, peak memory %s\n",
			ask.SessionID, done.Status, done.Usage.Executions, span(done.Usage.CPUNS), amount(done.Usage.PeakMemoryBytes))
	}
	return nil
}
