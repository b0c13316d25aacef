package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/stockade-dev/stockade/supervisor/api"
)

func (c *cli) closeCommand() *cobra.Command {
	var force bool
	var grace graceFlag
	cmd := &cobra.Command{
		Use:   "close SESSION…",
		Short: "End sessions and everything in them",
		Example: `  stockade close "$id"
  stockade close --force "$id"`,
		Args:              arguments(cobra.MinimumNArgs(1)),
		ValidArgsFunction: c.sessions,
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.each(args, func(word string) error {
				ask := api.SessionClose{GraceNS: grace.ns()}
				if force {
					ask.Mode = "force"
				}
				return c.close(cmd.Context(), word, ask)
			})
		},
	}
	cmd.Flags().BoolVar(&force, "force", false, "kill at once instead of asking first")
	grace.register(cmd)
	return cmd
}

func (c *cli) close(ctx context.Context, word string, ask api.SessionClose) (err error) {
	if ask.SessionID, err = c.sessionID(ctx, word); err != nil {
		return err
	}
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
