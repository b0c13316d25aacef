// Command stockade is the command line of a Stockade supervisor: it opens sessions,
// runs commands in them, and reads the receipts that prove what happened. It holds
// no privilege and decides nothing; everything goes over the supervisor's socket
// with the caller's own identity. Policy evaluation is not linked: `stockade policy`
// executes stockaded.
//
// Rules of the interface:
//
//   - stdout carries the result and nothing else: the command's own output for run and
//     exec, a table or a word for the rest, one JSON document with --json
//     (blob get and completion write the content itself, in any case).
//   - stderr carries what a person should know: the command's stderr, refusals with
//     their reasons, clamps, warnings. Every line of ours begins with "stockade:".
//   - the exit status tells the cases apart: see codes in exit.go. It is the command's
//     own when there was one.
//   - what follows something (logs, events, frames) writes with --json one document per line.
//   - nothing is asked interactively, and nothing is coloured, but by top, which has the screen to itself; progress is
//     dim on a terminal.
package main

import (
	"context"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/stockade-dev/stockade/supervisor/api"
	"github.com/stockade-dev/stockade/supervisor/client"
)

// DefaultSocket is where the supervisor listens unless told otherwise.
const DefaultSocket = "/run/stockade/stockade.sock"

// cli is what every command shares: where to talk to and where to write.
type cli struct {
	socket string
	scope  scopeFlag
	json   bool

	stdin          io.Reader
	stdout, stderr io.Writer
	clock          func() time.Time // of a test; nil is ours
}

func (c *cli) client() *client.Client { return client.New(c.socket).WithScope(api.Scope(c.scope)) }

func (c *cli) now() time.Time {
	if c.clock != nil {
		return c.clock()
	}
	return time.Now()
}

func main() {
	c := &cli{stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr}
	os.Exit(c.run(context.Background(), os.Args[1:]))
}

// run executes one command line and returns the exit status.
func (c *cli) run(ctx context.Context, args []string) int {
	root := c.root()
	root.SetArgs(args)
	return c.report(root.ExecuteContext(ctx))
}

func (c *cli) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "stockade",
		Short: "Run commands in sandboxes that a policy granted, and prove it",
		Long: `stockade talks to a Stockade supervisor (stockaded) over its unix socket.

A policy written in Rego decides what a session may be; the supervisor builds
exactly that, runs commands in it, and answers with receipts.

` + exitHelp,
		Example: `  stockade run --mount .:/work:rw -- make test
  stockade run --profile hermetic --root paths:/usr,/lib64 --output out.bin -- ./build.sh
  stockade doctor`,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	socket := os.Getenv("STOCKADE_SOCKET")
	if socket == "" {
		socket = DefaultSocket
	}
	root.PersistentFlags().StringVar(&c.socket, "socket", socket, "the supervisor's socket (STOCKADE_SOCKET)")
	if err := c.scope.Set(os.Getenv("STOCKADE_SCOPE")); err != nil {
		root.PersistentPreRunE = func(*cobra.Command, []string) error { return usage("STOCKADE_SCOPE: %v", err) }
	}
	root.PersistentFlags().Var(&c.scope, "scope", "whose work this is among the agents of one user: agent_id=…,world_id=…,chat_id=… (STOCKADE_SCOPE)")
	root.PersistentFlags().BoolVar(&c.json, "json", false, "write the result as one JSON document, and what is followed as one per line (blob get and completion: the content itself, in any case)")
	root.SetOut(c.stdout)
	root.SetErr(c.stderr)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usage("%v", err) })
	root.AddGroup(
		&cobra.Group{ID: "work", Title: "Work:"},
		&cobra.Group{ID: "control", Title: "What runs:"},
		&cobra.Group{ID: "proof", Title: "What happened, and the proof:"},
		&cobra.Group{ID: "place", Title: "Policy and place:"},
	)
	for group, commands := range map[string][]*cobra.Command{
		"work":    {c.runCommand(), c.openCommand(), c.execCommand(), c.shellCommand(), c.forwardCommand(), c.fsCommand(), c.cpCommand(), c.toolsCommand(), c.mcpCommand(), c.diffCommand(), c.commitCommand(), c.discardCommand(), c.closeCommand(), c.lsCommand(), c.showCommand(), c.blobCommand()},
		"control": {c.psCommand(), c.topCommand(), c.logsCommand(), c.waitCommand(), c.inputCommand(), c.signalCommand(), c.cancelCommand(), c.stopCommand(), c.pauseCommand(), c.resumeCommand(), c.modifyCommand(), c.approvalsCommand(), c.narrowCommand(), c.rmCommand()},
		"proof":   {c.eventsCommand(), c.intentsCommand(), c.framesCommand(), c.receiptsCommand(), c.auditCommand(), c.snapshotCommand(), c.replayCommand(), c.fsckCommand(), c.backupCommand()},
		"place":   {c.policyCommand(), c.doctorCommand(), c.quiescenceCommand(), c.drainCommand(), c.logLevelCommand(), c.supportBundleCommand(), c.versionCommand()},
	} {
		for _, cmd := range commands {
			cmd.GroupID = group
			root.AddCommand(cmd)
		}
	}
	return root
}

// arguments makes cobra's own complaints about the number of arguments usage errors.
func arguments(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return usage("%s: %v", cmd.CommandPath(), err)
		}
		return nil
	}
}
