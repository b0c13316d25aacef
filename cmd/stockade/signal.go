package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/stockade-dev/stockade/supervisor/api"
)

func (c *cli) signalCommand() *cobra.Command {
	var grace graceFlag
	cmd := &cobra.Command{
		Use:   "signal [flags] EXEC|SESSION SIGNAL",
		Short: "Send a signal to one execution, or to all of a session",
		Long: `signal delivers a signal to an execution and promises nothing more: use cancel to be
certain of its end. To a session, it delivers it to every live execution; term and kill
also end the session: term lets it go on for the grace time, kill does not.`,
		Example: `  stockade signal "$x" usr1
  stockade signal --grace 2s "$id" term`,
		Args:              arguments(cobra.ExactArgs(2)),
		ValidArgsFunction: atMost(1, c.targets),
		RunE: func(cmd *cobra.Command, args []string) error {
			name, ok := api.ParseSignal(args[1])
			if !ok {
				return usage("signal %q: no such signal", args[1])
			}
			return c.signal(cmd.Context(), args[0], name, grace.ns())
		},
	}
	grace.register(cmd)
	cmd.Flags().Lookup("grace").Usage = "of a session: time between term and kill (default: the supervisor's)"
	return cmd
}

func (c *cli) signal(ctx context.Context, word string, name api.SignalName, grace *int64) error {
	session, exec, err := c.target(ctx, word)
	if err != nil {
		return err
	}
	if exec != "" {
		if grace != nil {
			return usage("--grace is for a session; an execution is ended by stockade cancel --grace")
		}
		r, err := c.client().SignalProcess(ctx, api.ProcessSignal{ProcessRef: api.ProcessRef{ExecID: exec}, Signal: name})
		return c.controlled(exec, r, err)
	}
	r, err := c.client().Signal(ctx, api.SessionSignal{SessionID: session, Signal: name, GraceNS: grace})
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
