package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/stockade-dev/stockade/supervisor/api"
)

func (c *cli) waitCommand() *cobra.Command {
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "wait [flags] EXEC…",
		Short: "Wait until executions have ended, and end with their status",
		Long: `wait waits until every EXEC has ended, prints a line for each, and ends with the status
that exec would have ended with; of several, with the first that is not 0. It waits over
a restart of the supervisor, too.

` + exitHelp,
		Example: `  x=$(stockade exec --detach "$id" -- make test)
  stockade wait "$x"; echo $?
  stockade wait --timeout 10s "$x" || stockade cancel "$x"`,
		Args:              arguments(cobra.MinimumNArgs(1)),
		ValidArgsFunction: c.executions(true),
		RunE: func(cmd *cobra.Command, args []string) error {
			if timeout < 0 {
				return usage("--timeout %v: want a positive duration", timeout)
			}
			var until time.Time
			if timeout > 0 {
				until = time.Now().Add(timeout)
			}
			return c.each(args, func(word string) error { return c.wait(cmd.Context(), word, until) })
		},
	}
	cmd.Flags().DurationVar(&timeout, "timeout", 0, "how long to wait at most, such as 10s; then the exit status is 119 (default: until the end)")
	return cmd
}

// wait waits for the end of one execution. A zero until waits for ever.
func (c *cli) wait(ctx context.Context, word string, until time.Time) error {
	exec, err := c.execID(ctx, word)
	if err != nil {
		return err
	}
	var patience time.Duration
	if !until.IsZero() {
		patience = max(time.Until(until), time.Millisecond)
	}
	p, err := c.patient("").WaitProcess(ctx, exec, patience)
	if err != nil {
		return err
	}
	if c.json {
		err = document(c.stdout, p)
	} else {
		_, err = fmt.Fprintf(c.stdout, "%s %s\n", p.ExecID, outcome(p))
	}
	if err != nil {
		return err
	}
	if !p.State.Final() {
		return &exitError{exitRunning, fmt.Errorf("%s goes on", p.ExecID)}
	}
	r, err := c.client().Receipt(ctx, p.IntentID)
	if err != nil {
		return err
	}
	return c.ended(r)
}

// outcome is the state of an execution and how it ended.
func outcome(p *api.Process) string {
	if how := ending(p); how != "" {
		return fmt.Sprintf("%s (%s)", p.State, how)
	}
	return string(p.State)
}
