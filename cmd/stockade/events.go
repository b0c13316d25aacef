package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/stockade-dev/stockade/supervisor/api"
)

type eventsOptions struct {
	follow bool
	after  int64
	tail   int
	kinds  []string
}

func (c *cli) eventsCommand() *cobra.Command {
	var o eventsOptions
	cmd := &cobra.Command{
		Use:   "events [flags] [SESSION]",
		Short: "List or follow the events of a session, or all of yours",
		Long: `events writes an event log, a line for each event: that of a session, or, without one,
that of everything that is yours. Events are numbered from 1 without gaps and are kept over
a restart of the supervisor; the oldest are dropped in time, which is said on stderr.
With --follow it goes on until the session has ended, or until it is interrupted.

Kinds: ` + strings.Join(noticeKinds, ", ") + `.`,
		Example: `  stockade events "$id"
  stockade events -f --kind PROCESS_STATE --kind IDLE_WARNING
  stockade events --json --after 42 "$id"`,
		Args:              arguments(cobra.MaximumNArgs(1)),
		ValidArgsFunction: atMost(1, c.sessions),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.events(cmd.Context(), &o, strings.Join(args, ""))
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.BoolVarP(&o.follow, "follow", "f", false, "go on with what comes")
	flags.Int64Var(&o.after, "after", 0, "begin behind the event with this number")
	flags.IntVarP(&o.tail, "tail", "n", -1, "begin with the last N of what there is")
	flags.StringArrayVar(&o.kinds, "kind", nil, "only of this kind (repeatable)")
	completeFlag(cmd, "kind", cobra.FixedCompletions(noticeKinds, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

var noticeKinds = []string{
	string(api.NoticeSession), string(api.NoticeProcess), string(api.NoticeOutput), string(api.NoticeViolation),
	string(api.NoticeThreshold), string(api.NoticeNetwork), string(api.NoticePolicy), string(api.NoticeIdle), string(api.NoticeConfiguration), string(api.NoticeTimeout),
	string(api.NoticeApproval), string(api.NoticeDiagnostic),
}

func (c *cli) events(ctx context.Context, o *eventsOptions, word string) error {
	wanted := map[api.NoticeKind]bool{}
	for _, k := range o.kinds {
		k = strings.ToUpper(k)
		if !slices.Contains(noticeKinds, k) {
			return usage("--kind %q: want one of %s", k, strings.Join(noticeKinds, ", "))
		}
		wanted[api.NoticeKind(k)] = true
	}
	session, err := c.sessionID(ctx, word)
	if err != nil {
		return err
	}
	var kept []api.Notice // with --tail
	take := func(n api.Notice) error {
		if len(wanted) > 0 && !wanted[n.Kind] {
			return nil
		}
		if o.tail >= 0 {
			kept = append(kept, n)
			kept = kept[max(0, len(kept)-o.tail):]
			return nil
		}
		return c.notice(&n)
	}
	for at := o.after; ; {
		list, err := c.client().Events(ctx, api.Read{SessionID: session, After: position(at), Limit: most})
		if err != nil {
			return err
		}
		if list.Gone != nil {
			if at, err = c.available(list.Gone, at); err != nil {
				return err
			}
			continue
		}
		for _, n := range list.Events {
			if err := take(n); err != nil {
				return err
			}
			at = n.Seq
		}
		if len(list.Events) > 0 {
			continue
		}
		for i := range kept {
			if err := c.notice(&kept[i]); err != nil {
				return err
			}
		}
		if !o.follow {
			return nil
		}
		o.tail, kept = -1, nil
		err = c.patient("").FollowEvents(ctx, session, at, func(n api.Notice) error { at = n.Seq; return take(n) })
		if e, ok := errors.AsType[*api.Error](err); !ok || e.Code != api.CodeGone {
			return err
		}
	}
}

// available is where a log that is not kept from at on begins.
func (c *cli) available(g *api.Gone, at int64) (int64, error) {
	c.gone(g)
	first, err := strconv.ParseInt(g.FirstAvailable, 10, 64)
	if err != nil || first <= at {
		return 0, api.Errorf(api.CodeGone, "what follows %s is not kept any more", g.From)
	}
	return first, nil
}

func position(seq int64) string {
	if seq == 0 {
		return ""
	}
	return strconv.FormatInt(seq, 10)
}

// notice writes one event as a line.
func (c *cli) notice(n *api.Notice) error {
	if c.json {
		return c.line(n)
	}
	_, err := fmt.Fprintln(c.stdout, printable(fmt.Sprintf("%6d  %s  %-18s  %s", n.Seq, stamp(n.AtNS), n.Kind, happened(n))))
	return err
}

// happened is an event in words: about what, what it is now, and why.
func happened(n *api.Notice) string {
	words := []string{n.ExecID}
	if n.Approval != "" {
		words[0] = n.Approval + "  " + string(n.Op)
	} else if n.ExecID == "" {
		words[0] = n.SessionID
	}
	if n.State == "" { // a state says what it is of
		words = append(words, string(n.Op))
	}
	words = append(words, n.State, n.Reason, n.Detail)
	if n.Stdout+n.Stderr > 0 {
		words = append(words, totals(n.Stdout, n.Stderr))
	}
	return join(words)
}

func totals(stdout, stderr int64) string {
	return fmt.Sprintf("stdout %s, stderr %s", amount(stdout), amount(stderr))
}

// join puts two spaces between the words that are there.
func join(words []string) string {
	var there []string
	for _, w := range words {
		if w != "" {
			there = append(there, w)
		}
	}
	return strings.Join(there, "  ")
}
