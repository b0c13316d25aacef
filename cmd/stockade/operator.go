package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/stockade-dev/stockade/supervisor/api"
)

func (c *cli) quiescenceCommand() *cobra.Command {
	var wait time.Duration
	cmd := &cobra.Command{
		Use:   "quiescence [flags]",
		Short: "Say whether the supervisor is quiet, and what keeps it from it",
		Long: `quiescence says what is in flight, of every principal: with nothing, the exit status is
0, and otherwise 119. Before an upgrade, drain first.`,
		Example: `  stockade drain && stockade quiescence --wait 5m`,
		Args:    arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if wait < 0 {
				return usage("--wait %v: want a positive duration", wait)
			}
			return c.quiescence(cmd.Context(), wait)
		},
	}
	cmd.Flags().DurationVar(&wait, "wait", 0, "wait so long for it to become quiet")
	return cmd
}

func (c *cli) quiescence(ctx context.Context, wait time.Duration) error {
	q, err := c.quiet(ctx, time.Now().Add(wait))
	if err != nil {
		return err
	}
	if c.json {
		err = document(c.stdout, q)
	} else {
		err = c.tellQuiescence(q)
	}
	if err == nil && !q.Quiet {
		err = &exitError{exitRunning, nil}
	}
	return err
}

// quiet asks until the supervisor is quiet or the time is over.
func (c *cli) quiet(ctx context.Context, until time.Time) (*api.Quiescence, error) {
	for {
		q, err := c.client().Quiescence(ctx)
		if err != nil || q.Quiet || !time.Now().Before(until) {
			return q, err
		}
		if err := sleep(ctx, min(200*time.Millisecond, time.Until(until))); err != nil {
			return nil, err
		}
	}
}

func (c *cli) tellQuiescence(q *api.Quiescence) error {
	state := "quiet"
	if !q.Quiet {
		state = "not quiet"
	}
	if q.Draining {
		state += ", draining"
	}
	fmt.Fprintf(c.stdout, "%s: %d intent(s) in flight, %d session(s), %d execution(s)\n", state, len(q.Intents), q.Sessions, q.Executions)
	if len(q.Intents) == 0 {
		return nil
	}
	return table(c.stdout, intentRows(q.Intents, true))
}

func (c *cli) drainCommand() *cobra.Command {
	var undo bool
	cmd := &cobra.Command{
		Use:   "drain [--undo]",
		Short: "Have the supervisor take no new sessions and executions",
		Long: `drain has the supervisor refuse new sessions and executions; what runs goes on. With
--undo it takes them again.`,
		Example: `  stockade drain
  stockade drain --undo`,
		Args: arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return c.drain(cmd.Context(), undo) },
	}
	cmd.Flags().BoolVar(&undo, "undo", false, "take new sessions and executions again")
	return cmd
}

func (c *cli) drain(ctx context.Context, undo bool) error {
	r, err := c.client().Drain(ctx, api.Drain{Undo: undo})
	if err != nil {
		return err
	}
	if err := c.answer(r); err != nil || c.json {
		return err
	}
	if r.Payload.Control == nil {
		return errors.New("drain: the receipt has no result")
	}
	_, err = fmt.Fprintln(c.stdout, r.Payload.Control.Status)
	return err
}

func (c *cli) logLevelCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "log-level [debug|info|warn|error]",
		Short: "Say which level the supervisor's log has, or give it another",
		Long: `log-level says from which level on the supervisor writes its log, and with a level gives it that one: at
once, under everything that runs, with a receipt. It is for the administrators that the policy names. The next
start of the supervisor, and the next time it reads its configuration, have the level that stands there again.`,
		Example: `  stockade log-level
  stockade log-level debug
  stockade log-level info`,
		Args:      arguments(cobra.MaximumNArgs(1)),
		ValidArgs: api.LogLevels,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return c.tellLogLevel(cmd.Context())
			}
			return c.setLogLevel(cmd.Context(), args[0])
		},
	}
}

func (c *cli) tellLogLevel(ctx context.Context) error {
	s, err := c.client().Settings(ctx)
	if err != nil {
		return err
	}
	if c.json {
		return document(c.stdout, map[string]string{"log_level": s.LogLevel})
	}
	_, err = fmt.Fprintln(c.stdout, s.LogLevel)
	return err
}

func (c *cli) setLogLevel(ctx context.Context, level string) error {
	if !slices.Contains(api.LogLevels, level) {
		return usage("log-level %q: want one of %s", level, strings.Join(api.LogLevels, ", "))
	}
	r, err := c.client().LogLevel(ctx, api.LogLevel{Level: level})
	if err != nil {
		return err
	}
	if err := c.answer(r); err != nil || c.json {
		return err
	}
	if r.Payload.Control == nil {
		return errors.New("log-level: the receipt has no result")
	}
	_, err = fmt.Fprintf(c.stdout, "%s (was %s)\n", r.Payload.Control.LogLevel, r.Payload.Control.Previous)
	return err
}

func (c *cli) snapshotCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "snapshot",
		Short: "Digest everything that the supervisor knows",
		Long: `snapshot prints how many records of the journal the supervisor's state is made of, and
the digest of that state. Whoever has the journal can compute it again: stockade replay.`,
		Example: `  stockade snapshot --json | jq -r .digest`,
		Args:    arguments(cobra.NoArgs),
		RunE:    func(cmd *cobra.Command, _ []string) error { return c.snapshot(cmd.Context()) },
	}
}

func (c *cli) snapshot(ctx context.Context) error {
	s, err := c.client().Snapshot(ctx)
	if err != nil {
		return err
	}
	if c.json {
		return document(c.stdout, s)
	}
	_, err = fmt.Fprintf(c.stdout, "%d records  %s  %s\n", s.Records, s.Digest, amount(s.SizeBytes))
	return err
}
