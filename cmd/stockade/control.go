package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/stockade-dev/stockade/supervisor/api"
	"github.com/stockade-dev/stockade/supervisor/client"
)

// controlled answers with what an operation on something that runs came to, which is told whether it
// is what was wanted or not.
func (c *cli) controlled(subject string, r *api.Receipt, err error) error {
	if err != nil {
		return err
	}
	done := r.Payload.Control
	if !c.json && done != nil && done.Status != api.ControlError {
		fmt.Fprintf(c.stdout, "%s %s\n", subject, done.Status)
	}
	if err := c.answer(r); err != nil {
		return err
	}
	if done == nil {
		return fmt.Errorf("%s: the receipt has no result", r.Op)
	}
	switch done.Status {
	case api.ControlNotFound, api.ControlNotCancellable, api.ControlConflict, api.ControlError:
		return fmt.Errorf("%s: %s", subject, done.Status)
	}
	return nil
}

// graceFlag is the time between TERM and KILL.
type graceFlag struct {
	cmd   *cobra.Command
	value time.Duration
}

func (g *graceFlag) register(cmd *cobra.Command) {
	g.cmd = cmd
	cmd.Flags().DurationVar(&g.value, "grace", 0, "time between TERM and KILL; 0s kills at once (default: the supervisor's)")
}

// ns is nil unless the flag was given.
func (g *graceFlag) ns() *int64 {
	if !g.cmd.Flags().Changed("grace") {
		return nil
	}
	return new(int64(g.value))
}

func (c *cli) cancelCommand() *cobra.Command {
	var grace graceFlag
	var noWait bool
	cmd := &cobra.Command{
		Use:   "cancel [flags] EXEC…",
		Short: "End executions with everything that they started",
		Long: `cancel ends the whole tree of an execution: TERM, and KILL after the grace time. One
that is queued never starts. It returns when the end is certain, and says what it was:
canceled, already_finished, or not_cancellable. To cancel twice does no harm.`,
		Example: `  stockade cancel "$x"
  stockade cancel --grace 0s $(stockade ps --quiet --session "$id")`,
		Args:              arguments(cobra.MinimumNArgs(1)),
		ValidArgsFunction: c.executions(true),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.each(args, func(word string) error {
				return c.cancel(cmd.Context(), word, api.ProcessCancel{GraceNS: grace.ns(), Wait: waiting(noWait)})
			})
		},
	}
	grace.register(cmd)
	cmd.Flags().BoolVar(&noWait, "no-wait", false, "do not wait for the end: cancel_requested")
	return cmd
}

func waiting(not bool) *bool {
	if not {
		return new(false)
	}
	return nil
}

func (c *cli) cancel(ctx context.Context, word string, ask api.ProcessCancel) error {
	exec, err := c.execID(ctx, word)
	if err != nil {
		return err
	}
	ask.ExecID = exec
	r, err := c.client().Cancel(ctx, ask)
	return c.controlled(exec, r, err)
}

func (c *cli) pauseCommand() *cobra.Command {
	return c.freezing("pause", "Freeze executions or sessions, until they are resumed",
		`pause freezes every process of an execution, or of a whole session. What is frozen keeps
its memory and its time limit, which goes on.`,
		(*client.Client).Pause, (*client.Client).PauseSession)
}

func (c *cli) resumeCommand() *cobra.Command {
	return c.freezing("resume", "Let paused executions or sessions go on",
		"resume lets go on what stockade pause froze.", (*client.Client).Resume, (*client.Client).ResumeSession)
}

// freezing is pause or resume, of an execution or of a session.
func (c *cli) freezing(name, summary, long string,
	exec func(*client.Client, context.Context, api.ProcessTarget) (*api.Receipt, error),
	session func(*client.Client, context.Context, api.SessionTarget) (*api.Receipt, error)) *cobra.Command {
	one := func(ctx context.Context, word string) error {
		s, x, err := c.target(ctx, word)
		if err != nil {
			return err
		}
		var r *api.Receipt
		if x != "" {
			r, err = exec(c.client(), ctx, api.ProcessTarget{ProcessRef: api.ProcessRef{ExecID: x}})
		} else {
			r, err = session(c.client(), ctx, api.SessionTarget{SessionID: s})
		}
		return c.controlled(s+x, r, err)
	}
	return &cobra.Command{
		Use:               name + " EXEC|SESSION…",
		Short:             summary,
		Long:              long,
		Example:           fmt.Sprintf("  stockade %s \"$x\"\n  stockade %[1]s \"$id\"", name),
		Args:              arguments(cobra.MinimumNArgs(1)),
		ValidArgsFunction: c.targets,
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.each(args, func(word string) error { return one(cmd.Context(), word) })
		},
	}
}

func (c *cli) modifyCommand() *cobra.Command {
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "modify --timeout DURATION EXEC",
		Short: "Change the time limit of an execution that runs",
		Long: `modify sets the wall time that an execution may take, counted from its start. The grant
bounds it: what is more is lowered, and said.`,
		Example:           `  stockade modify --timeout 10m "$x"`,
		Args:              arguments(cobra.ExactArgs(1)),
		ValidArgsFunction: atMost(1, c.executions(true)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if timeout <= 0 {
				return usage("modify: say --timeout with a positive duration")
			}
			return c.modify(cmd.Context(), args[0], timeout)
		},
	}
	cmd.Flags().DurationVar(&timeout, "timeout", 0, "wall time from the start of the execution, such as 10m")
	return cmd
}

func (c *cli) modify(ctx context.Context, word string, timeout time.Duration) error {
	exec, err := c.execID(ctx, word)
	if err != nil {
		return err
	}
	r, err := c.client().Modify(ctx, api.ProcessModify{ProcessRef: api.ProcessRef{ExecID: exec}, TimeoutNS: int64(timeout)})
	if err == nil && r.Payload.Control != nil && r.Payload.Control.TimeoutNS > 0 {
		exec += " timeout " + time.Duration(r.Payload.Control.TimeoutNS).String()
	}
	return c.controlled(exec, r, err)
}

func (c *cli) rmCommand() *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use:   "rm [flags] EXEC…",
		Short: "Forget executions that have ended",
		Long: `rm takes executions that have ended out of the lists, and their output with them. Their
receipts stay in the journal. One that has not ended is left alone, unless --force
cancels it first.`,
		Example: `  stockade rm "$x"
  stockade rm $(stockade ps --quiet --all --state completed)`,
		Args:              arguments(cobra.MinimumNArgs(1)),
		ValidArgsFunction: c.executions(false),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.each(args, func(word string) error { return c.rm(cmd.Context(), word, force) })
		},
	}
	cmd.Flags().BoolVarP(&force, "force", "f", false, "cancel it first, with KILL, if it has not ended")
	return cmd
}

func (c *cli) rm(ctx context.Context, word string, force bool) error {
	exec, err := c.execID(ctx, word)
	if err != nil {
		return err
	}
	ref := api.ProcessRef{ExecID: exec}
	if force {
		r, err := c.client().Cancel(ctx, api.ProcessCancel{ProcessRef: ref, GraceNS: new(int64(0))})
		if err == nil {
			err = c.settled(r)
		}
		if err != nil {
			return err
		}
	}
	r, err := c.client().Delete(ctx, api.ProcessTarget{ProcessRef: ref})
	return c.controlled(exec, r, err)
}

func (c *cli) stopCommand() *cobra.Command {
	var grace graceFlag
	var session string
	var only []string
	var all bool
	cmd := &cobra.Command{
		Use:   "stop [flags]",
		Short: "Cancel every execution of yours that fits",
		Long: `stop cancels every live execution of yours: of one session, with certain labels, or,
with --all, every one of the scope. The sessions stay open.`,
		Example: `  stockade stop --session "$id"
  stockade stop --label step=test --grace 2s
  stockade stop --all --scope agent_id=a`,
		Args: arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if session == "" && len(only) == 0 && !all {
				return usage("stop: say which with --session or --label, or --all")
			}
			filter, err := labels(only)
			if err != nil {
				return err
			}
			id, err := c.sessionID(cmd.Context(), session)
			if err != nil {
				return err
			}
			return c.stop(cmd.Context(), api.ProcessStop{SessionID: id, Labels: filter, GraceNS: grace.ns()})
		},
	}
	flags := cmd.Flags()
	flags.StringVarP(&session, "session", "s", "", "those of this session")
	flags.StringArrayVar(&only, "label", nil, "those that carry K=V (repeatable)")
	flags.BoolVar(&all, "all", false, "all of them")
	grace.register(cmd)
	completeFlag(cmd, "session", c.sessions)
	return cmd
}

func (c *cli) stop(ctx context.Context, ask api.ProcessStop) error {
	r, err := c.client().Stop(ctx, ask)
	if err != nil {
		return err
	}
	if err := c.answer(r); err != nil || c.json {
		return err
	}
	if r.Payload.Control == nil {
		return errors.New("stop: the receipt has no result")
	}
	_, err = fmt.Fprintf(c.stdout, "%s %d\n", r.Payload.Control.Status, r.Payload.Control.Count)
	return err
}
