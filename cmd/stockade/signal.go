package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/stockade-dev/stockade/supervisor/api"
)

func (c *cli) signalCommand() *cobra.Command {
	var grace time.Duration
	cmd := &cobra.Command{
		Use:   "signal SESSION SIGNAL",
		Short: "Send a signal to every live execution of a session",
		Long: `signal delivers a signal to every live execution of a session. term and kill also
end the session: term lets it go on for the grace time, kill does not.`,
		Example: `  stockade signal "$id" int
  stockade signal --grace 2s "$id" term`,
		Args:              arguments(cobra.ExactArgs(2)),
		ValidArgsFunction: c.sessions,
		RunE: func(cmd *cobra.Command, args []string) error {
			name, ok := api.ParseSignal(args[1])
			if !ok {
				return usage("signal %q: no such signal", args[1])
			}
			ask := api.SessionSignal{SessionID: args[0], Signal: name}
			if cmd.Flags().Changed("grace") {
				ask.GraceNS = new(int64(grace))
			}
			return c.signal(cmd.Context(), ask)
		},
	}
	cmd.Flags().DurationVar(&grace, "grace", 0, "time between term and kill (default: the supervisor's)")
	return cmd
}

func (c *cli) signal(ctx context.Context, ask api.SessionSignal) error {
	r, err := c.client().Signal(ctx, ask)
	if err != nil {
		return err
	}
	if err := c.answer(r); err != nil {
		return err
	}
	if !c.json && r.Payload.Signal != nil {
		fmt.Fprintln(c.stdout, r.Payload.Signal.Status)
	}
	return nil
}
