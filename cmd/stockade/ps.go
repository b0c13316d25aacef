package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/docker/go-units"
	"github.com/spf13/cobra"

	"github.com/stockade-dev/stockade/supervisor/api"
)

type psOptions struct {
	all     bool
	session string
	state   string
	labels  []string
	limit   int64
	quiet   bool
	whole   bool
}

func (c *cli) psCommand() *cobra.Command {
	var o psOptions
	cmd := &cobra.Command{
		Use:   "ps [flags]",
		Short: "List your executions",
		Long: `ps lists the executions of your sessions that have not ended, newest first; with
--all also those that have, as far as they are remembered. What has ended is forgotten
after a time (the receipt is not), or with stockade rm.

An execution is queued, starting, running, and at last completed (status 0), failed,
canceled or timed_out. What can be done with one that runs: ` + followUps + `.`,
		Example: `  stockade ps
  stockade ps --all --session "$id" --label step=test
  stockade cancel $(stockade ps --quiet --label step=test)`,
		Args: arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return c.ps(cmd.Context(), &o) },
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.BoolVarP(&o.all, "all", "a", false, "those that have ended, too")
	flags.StringVarP(&o.session, "session", "s", "", "only of this session")
	flags.StringVar(&o.state, "state", "", "only in this state")
	flags.StringArrayVar(&o.labels, "label", nil, "K=V that an execution must carry (repeatable)")
	flags.Int64VarP(&o.limit, "limit", "n", 100, "how many at most")
	flags.BoolVarP(&o.quiet, "quiet", "q", false, "print ids and nothing else")
	flags.BoolVar(&o.whole, "no-trunc", false, "print commands and session ids whole")
	completeFlag(cmd, "session", c.sessions)
	completeFlag(cmd, "state", cobra.FixedCompletions([]string{"queued", "starting", "running", "completed", "failed", "canceled", "timed_out"}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// followUps are the commands that act on an execution that runs (S2).
const followUps = "logs -f, wait, input, signal, modify, pause, resume, cancel"

func (c *cli) ps(ctx context.Context, o *psOptions) error {
	if o.limit <= 0 {
		return usage("--limit %d: want a positive number", o.limit)
	}
	filter := api.Read{State: o.state, Active: !o.all && o.state == ""}
	var err error
	if filter.Labels, err = labels(o.labels); err != nil {
		return err
	}
	if filter.SessionID, err = c.sessionID(ctx, o.session); err != nil {
		return err
	}
	list, err := c.processes(ctx, filter, o.limit)
	if err != nil {
		return err
	}
	switch {
	case c.json:
		return document(c.stdout, api.ProcessList{Processes: list})
	case o.quiet:
		for _, p := range list {
			fmt.Fprintln(c.stdout, p.ExecID)
		}
		return nil
	}
	rows := [][]string{{"EXEC", "SESSION", "COMMAND", "CREATED", "STATUS", "OUTPUT", "LABELS"}}
	for i := range list {
		p := &list[i]
		session, argv := short(p.SessionID), shortCommand(p.Argv)
		if o.whole {
			session, argv = p.SessionID, commandLine(p.Argv)
		}
		rows = append(rows, []string{p.ExecID, session, argv, c.ago(p.QueuedAtNS), c.status(p), amount(p.StdoutBytes + p.StderrBytes), pairs(p.Labels)})
	}
	return table(c.stdout, rows)
}

// status is the state of an execution in words: how it goes, or went, and since when.
func (c *cli) status(p *api.Process) string {
	words := string(p.State)
	if p.Paused {
		words += ", paused"
	}
	if how := ending(p); how != "" {
		words += " (" + how + ")"
	}
	switch {
	case p.State.Final():
		return words + " " + c.ago(p.EndedAtNS)
	case p.StartedAtNS != 0:
		return words + " " + c.since(p.StartedAtNS)
	}
	return words + " " + c.since(p.QueuedAtNS)
}

// ending is how an execution ended: its exit code or signal, and why if those do not say it.
func ending(p *api.Process) string {
	var parts []string
	switch {
	case p.ExitCode != nil:
		parts = append(parts, strconv.Itoa(*p.ExitCode))
	case p.Signal != "":
		parts = append(parts, "SIG"+strings.TrimPrefix(p.Signal, "SIG"))
	}
	if p.Reason != "" && p.Reason != "non_zero_exit" && p.Reason != "signal" && p.Reason != string(p.State) {
		parts = append(parts, p.Reason)
	}
	return strings.Join(parts, ", ")
}

func (c *cli) since(ns int64) string {
	return strings.ToLower(units.HumanDuration(c.now().Sub(time.Unix(0, ns))))
}

func (c *cli) ago(ns int64) string { return c.since(ns) + " ago" }

// short is the beginning of an id, enough to name it.
func short(id string) string { return id[:min(len(id), 12)] }

// shortCommand is a command cut to what a column may have.
func shortCommand(argv []string) string {
	const width = 30
	text := commandLine(argv)
	if utf8.RuneCountInString(text) > width {
		text = string([]rune(text)[:width-1]) + "…"
	}
	return text
}

// commandLine is a command as one would type it, more or less.
func commandLine(argv []string) string {
	words := make([]string, len(argv))
	for i, word := range argv {
		if word == "" || strings.ContainsFunc(word, func(r rune) bool { return r <= ' ' || strings.ContainsRune(`"'\$&|;<>()*?`+"`", r) }) {
			word = strconv.Quote(word)
		}
		words[i] = word
	}
	return strings.Join(words, " ")
}

// completeFlag completes the values of a flag.
func completeFlag(cmd *cobra.Command, name string, complete completion) {
	if err := cmd.RegisterFlagCompletionFunc(name, complete); err != nil {
		panic("bug: " + err.Error())
	}
}
