package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/stockade-dev/stockade/supervisor/api"
)

type execOptions struct {
	exec    execFlags
	cwd     string
	env     []string
	secrets []string
	limits  limitFlags
	labels  []string
	key     string
	open    bool // --stdin-open
	detach  bool
	wait    time.Duration
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

SIGTERM to us cancels the command; so does the third Ctrl-C in two seconds, at once. Our
death does not: the command goes on, and stockade logs follows it. Nor does the end of
the supervisor: exec goes on where it was when the supervisor is back.

--detach prints the id of the execution and returns. What can be done with it then:
` + followUps + `.

` + exitHelp,
		Example: `  id=$(stockade open --mount .:/work:rw --workdir /work)
  stockade exec "$id" -- go build ./...
  echo 'print(1+1)' | stockade exec --stdin - "$id" -- python3
  stockade exec -i "$id" -- sh < script.sh
  x=$(stockade exec --detach --label step=serve "$id" -- ./server)
  stockade exec --wait 10s --key build-42 "$id" -- make
  stockade exec --memory 64M --pids 8 --cpu-time 10s "$id" -- ./untrusted
  stockade close "$id"`,
		Args:              arguments(cobra.MinimumNArgs(2)),
		ValidArgsFunction: atMost(1, c.sessions),
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
	flags.BoolVarP(&o.detach, "detach", "d", false, "do not wait: print the id of the execution")
	flags.DurationVar(&o.wait, "wait", 0, "wait so long for the end, such as 10s; after that the command goes on, and the exit status is 119")
	flags.BoolVar(&o.open, "stdin-open", false, "leave the command's stdin open, for stockade input")
	flags.StringVar(&o.key, "key", "", "idempotency key: the same command with the same key runs once, and is answered with one receipt")
	flags.StringArrayVar(&o.labels, "label", nil, "K=V, shown to policy and in lists (repeatable)")
	flags.StringArrayVar(&o.env, "env", nil, "K=V, or K to hand on our own value (repeatable)")
	flags.StringArrayVar(&o.secrets, "secret", nil, "K=FILE: content of FILE as a secret value of K (repeatable)")
	o.limits.register(cmd, false)
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
	if err := o.check(); err != nil {
		return err
	}
	ask, wanted, err := o.exec.request(ctx, c, "", argv)
	if err != nil {
		return err
	}
	ask.Cwd, ask.StdinOpen = o.cwd, ask.StdinOpen || o.open
	if ask.EnvPatch, err = environment(o.env, o.secrets); err != nil {
		return err
	}
	if ask.Limits, err = o.limits.limits(); err != nil {
		return err
	}
	if ask.Labels, err = labels(o.labels); err != nil {
		return err
	}
	if ask.SessionID, err = c.sessionID(ctx, session); err != nil {
		return err
	}
	if o.detach || o.wait > 0 && c.json {
		return c.execPending(ctx, o, ask, wanted)
	}
	a := o.exec.attachment(c, c.json)
	a.key, a.wait = o.key, o.wait
	r, err := c.execute(ctx, ask, a)
	if err != nil {
		return err
	}
	return c.concluded(ctx, wanted, r)
}

func (o *execOptions) check() error {
	switch {
	case o.wait < 0:
		return usage("--wait %v: want a positive duration", o.wait)
	case o.detach && o.wait > 0:
		return usage("--detach and --wait contradict each other")
	case o.exec.interactive && (o.detach || o.wait > 0):
		return usage("--interactive needs the whole run of the command; with --detach or --wait say --stdin-open, and then stockade input")
	case o.detach && slices.ContainsFunc(o.exec.outputs, func(s string) bool { return strings.Contains(s, ":") }):
		return usage("--detach: nobody waits to write an output to its DEST; its reference will be in the receipt")
	}
	return nil
}

// concluded writes what a command that has ended leaves for its caller.
func (c *cli) concluded(ctx context.Context, wanted []artifact, r *api.Receipt) error {
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

// execPending starts a command, and answers with its ids, or with how far it has come when the time
// to wait is over.
func (c *cli) execPending(ctx context.Context, o *execOptions, ask *api.Exec, wanted []artifact) error {
	until := time.Now().Add(o.wait)
	ask.WaitMS = min(o.wait, longestAnswer).Milliseconds()
	p, r, err := c.client().WithKey(o.key).Start(ctx, *ask)
	if err == nil && r == nil && o.wait > longestAnswer {
		p, err = c.pending(ctx, p.ExecID, time.Until(until))
		if err == nil {
			r = p.Receipt
		}
	}
	switch {
	case err != nil:
		return err
	case r != nil:
		return c.concluded(ctx, wanted, r)
	case c.json:
		err = document(c.stdout, p)
	default:
		_, err = fmt.Fprintln(c.stdout, p.ExecID)
	}
	if err != nil {
		return err
	}
	c.tellFollowUps(p, ask.StdinOpen)
	if o.wait > 0 {
		return &exitError{exitRunning, nil}
	}
	return nil
}

// longestAnswer is how long the supervisor lets one request wait.
const longestAnswer = time.Minute

// pending waits for the end of an execution, and says where it is then.
func (c *cli) pending(ctx context.Context, exec string, wait time.Duration) (*api.Pending, error) {
	if _, err := c.client().WaitProcess(ctx, exec, max(wait, time.Millisecond)); err != nil {
		return nil, err
	}
	return c.client().Output(ctx, exec, api.Read{})
}
