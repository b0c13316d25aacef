package main

import (
	"context"
	"strings"

	"github.com/spf13/cobra"
)

type execOptions struct {
	exec    execFlags
	cwd     string
	env     []string
	secrets []string
	memory  string
	cpus    string
	pids    int64
}

func (c *cli) execCommand() *cobra.Command {
	var o execOptions
	cmd := &cobra.Command{
		Use:   "exec [flags] SESSION [flags] -- CMD [ARG…]",
		Short: "Run one command in an open session",
		Long: `exec runs one command in a session that is open. Output is written as it comes,
signals are passed on, and the exit status is the command's own. Flags may stand
before and after SESSION. The command begins after --, or with the first word after
SESSION that is not a flag; everything from there on is the command's.

` + exitHelp,
		Example: `  id=$(stockade open --mount .:/work:rw --workdir /work)
  stockade exec "$id" -- go build ./...
  echo 'print(1+1)' | stockade exec --stdin - "$id" -- python3
  stockade close "$id"`,
		Args:              arguments(cobra.MinimumNArgs(2)),
		ValidArgsFunction: c.sessions,
		RunE: func(cmd *cobra.Command, args []string) error {
			argv, err := command(cmd, args[1:])
			if err != nil || argv == nil {
				return err
			}
			return c.exec(cmd.Context(), &o, args[0], argv)
		},
	}
	flags := cmd.Flags()
	flags.SetInterspersed(false)
	flags.SortFlags = false
	flags.StringVar(&o.cwd, "cwd", "", "directory inside; relative to the session's workdir")
	flags.StringArrayVar(&o.env, "env", nil, "K=V, or K to hand on our own value (repeatable)")
	flags.StringArrayVar(&o.secrets, "secret", nil, "K=FILE: content of FILE as a secret value of K (repeatable)")
	flags.StringVar(&o.memory, "memory", "", "memory ceiling of this execution, tighter than the session's")
	flags.StringVar(&o.cpus, "cpus", "", "CPU ceiling of this execution")
	flags.Int64Var(&o.pids, "pids", 0, "process ceiling of this execution")
	o.exec.register(cmd)
	return cmd
}

// command takes our own flags from what follows SESSION: cobra has parsed up to there and
// no further, because the flags of the command are not ours. It is nil when help was all
// that was wanted.
func command(cmd *cobra.Command, rest []string) ([]string, error) {
	if !strings.HasPrefix(rest[0], "-") {
		return rest, nil
	}
	flags := cmd.Flags()
	if err := flags.Parse(rest); err != nil {
		return nil, usage("%v", err)
	}
	if help, err := flags.GetBool("help"); err == nil && help {
		return nil, cmd.Help()
	}
	return flags.Args(), nil
}

func (c *cli) exec(ctx context.Context, o *execOptions, session string, argv []string) error {
	ask, wanted, err := o.exec.request(ctx, c, session, argv)
	if err != nil {
		return err
	}
	ask.Cwd = o.cwd
	if ask.EnvPatch, err = environment(o.env, o.secrets); err != nil {
		return err
	}
	if ask.Limits, err = limits(o.memory, o.cpus, o.pids); err != nil {
		return err
	}
	r, err := c.execute(ctx, ask, c.json)
	if err != nil {
		return err
	}
	if c.json {
		if err := document(c.stdout, r); err != nil {
			return err
		}
	}
	ended := c.ended(r)
	if err := c.fetch(ctx, wanted, r); err != nil && ended == nil {
		ended = err
	}
	return ended
}
