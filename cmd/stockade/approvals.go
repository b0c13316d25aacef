package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/stockade-dev/stockade/supervisor/api"
)

const approvalPrefix = "a-"

var approvalKind = kind{"approval", approvalPrefix, idLength, api.CodeApprovalNotFound, func(ctx context.Context, c *cli) (ids []string, err error) {
	list, err := c.client().Approvals(ctx, api.Read{Limit: most})
	if err != nil {
		return nil, err
	}
	for _, a := range list.Approvals {
		ids = append(ids, a.ApprovalID)
	}
	return ids, nil
}}

func (c *cli) approvalsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "approvals",
		Short: "See what waits for leave, and give or deny it",
		Long: `Policy can have an operation wait until somebody gives leave: the caller's request is
recorded, and nothing is done before. What leave is asked for is fixed by a review token: the
request, what its paths lead to, and what policy would give. What is not that any more, when
leave comes, is not done.`,
		Example: `  stockade approvals ls
  stockade approvals show a-3kfj
  stockade approvals approve a-3kfj --comment "as discussed"
  stockade approvals deny a-3kfj --comment "not on a Friday"`,
		Args: arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(c.approvalsListCommand(), c.approvalsShowCommand(), c.verdictCommand(true), c.verdictCommand(false))
	return cmd
}

func (c *cli) approvalsListCommand() *cobra.Command {
	var all, follow bool
	cmd := &cobra.Command{
		Use:   "ls [flags]",
		Short: "List what waits for leave: yours, and what you may decide",
		Example: `  stockade approvals ls
  stockade approvals ls --all
  stockade approvals ls -f --json | jq --unbuffered -r 'select(.state == "waiting") | .approval_id'`,
		Args: arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return c.approvals(cmd.Context(), all, follow) },
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.BoolVarP(&all, "all", "a", false, "those that are decided too")
	flags.BoolVarP(&follow, "follow", "f", false, "go on with what changes, a line each")
	return cmd
}

// followTurn is how long one request waits for a change.
const followTurn = 30 * time.Second

func (c *cli) approvals(ctx context.Context, all, follow bool) error {
	ask := api.Read{Limit: most}
	if !all && !follow {
		ask.State = string(api.ApprovalWaiting)
	}
	shown := api.ApprovalList{Approvals: []api.Approval{}}
	for first := true; ; first = false {
		page, err := c.client().Approvals(ctx, ask)
		if err != nil {
			return err
		}
		for i := range page.Approvals {
			a := &page.Approvals[i]
			if first && !all && a.State != api.ApprovalWaiting {
				continue
			}
			if !follow {
				shown.Approvals = append(shown.Approvals, *a)
			} else if err := c.approvalLine(a); err != nil {
				return err
			}
		}
		ask.After, shown.Next = page.Next, page.Next
		switch {
		case follow:
			ask.WaitMS = followTurn.Milliseconds()
		case len(page.Approvals) == 0:
			return c.approvalTable(shown)
		}
	}
}

// approvalLine writes one change as a line.
func (c *cli) approvalLine(a *api.Approval) error {
	if c.json {
		return c.line(a)
	}
	_, err := fmt.Fprintln(c.stdout, printable(join([]string{a.ApprovalID, string(a.State), principal(a.Principal), string(a.Op), approvalSubject(a), a.Reason, a.Comment})))
	return err
}

func (c *cli) approvalTable(list api.ApprovalList) error {
	if c.json {
		return document(c.stdout, list)
	}
	rows := [][]string{{"APPROVAL", "STATE", "WHO", "OPERATION", "SUBJECT", "LEFT", "REASON"}}
	for i := range list.Approvals {
		a := &list.Approvals[i]
		rows = append(rows, []string{a.ApprovalID, string(a.State), principal(a.Principal), string(a.Op), approvalSubject(a), c.left(a), a.Reason})
	}
	return table(c.stdout, rows)
}

func approvalSubject(a *api.Approval) string {
	switch {
	case len(a.Argv) > 0:
		return commandLine(a.Argv)
	case a.Op != api.OpSessionOpen:
		return a.SessionID
	}
	return ""
}

// left is how long an approval can still be given.
func (c *cli) left(a *api.Approval) string {
	if a.State != api.ApprovalWaiting {
		return ""
	}
	return span(max(0, a.DeadlineNS-c.now().UnixNano()))
}

func (c *cli) approvalsShowCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "show APPROVAL",
		Short: "Show what leave is asked for",
		Example: `  stockade approvals show a-3kfj
  stockade approvals show --json a-3kfj | jq .reviewed.request`,
		Args:              arguments(cobra.ExactArgs(1)),
		ValidArgsFunction: atMost(1, c.waiting),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := c.approval(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if c.json {
				return document(c.stdout, a)
			}
			return c.showApproval(a)
		},
	}
}

func (c *cli) approval(ctx context.Context, word string) (*api.Approval, error) {
	id, err := c.find(ctx, approvalKind, word)
	if err != nil {
		return nil, err
	}
	return c.client().Approval(ctx, id)
}

func (c *cli) showApproval(a *api.Approval) error {
	rows := [][]string{
		{"approval", a.ApprovalID},
		{"state", string(a.State)},
		{"operation", string(a.Op)},
		{"by", principal(a.Principal)},
		{"reason", a.Reason},
		{"intent", a.IntentID},
		{"session", a.SessionID},
		{"asked", a.AskedAt},
		{"deadline", strings.TrimSpace(a.Deadline + " " + c.left(a))},
		{"review", a.Review},
	}
	if a.DecidedAtNS != 0 {
		rows = append(rows, []string{"decided", a.DecidedAt})
		if a.DecidedBy != nil {
			rows = append(rows, []string{"decided by", principal(*a.DecidedBy)}, []string{"comment", a.Comment})
		}
	}
	r := a.Reviewed
	if r == nil {
		return table(c.stdout, append(rows, []string{"reviewed", "is not kept any more"}))
	}
	rows = append(rows, []string{"policy", r.Policy})
	if x := r.Request.Exec; x != nil {
		rows = append(rows, []string{"command", commandLine(x.Argv)}, []string{"directory", x.Cwd})
		for _, name := range slices.Sorted(maps.Keys(x.EnvPatch)) {
			rows = append(rows, []string{"env", name})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.Limits)) {
		rows = append(rows, []string{"limit", name + " " + strconv.FormatInt(r.Limits[name], 10)})
	}
	for _, path := range slices.Sorted(maps.Keys(r.Sources)) {
		s := r.Sources[path]
		text := path + " is " + s.Kind + " " + s.Resolved
		if s.Error != "" {
			text = path + " leads nowhere: " + string(s.Error)
		}
		rows = append(rows, []string{"source", text})
	}
	for _, f := range r.Files {
		how := "looks at "
		if f.Write {
			how = "changes "
		}
		rows = append(rows, []string{"file", how + f.Resolved})
	}
	return table(c.stdout, append(rows, grantRows(r.Grant)...))
}

func (c *cli) verdictCommand(approve bool) *cobra.Command {
	var verdict api.Verdict
	cmd := &cobra.Command{
		Use:   "deny [flags] APPROVAL",
		Short: "Deny leave; or take your own request back",
		Example: `  stockade approvals deny a-3kfj
  stockade approvals deny a-3kfj --comment "use the mirror"`,
	}
	if approve {
		cmd = &cobra.Command{
			Use:   "approve [flags] APPROVAL",
			Short: "Give leave to what is shown",
			Long: `approve gives leave to what show says at that moment, or with --review to what you have
reviewed before: a token of something else is refused. What would be done must still be that when
leave is given, or it is not done.`,
			Example: `  stockade approvals approve a-3kfj --comment "ticket 42"
  token=$(stockade approvals show --json a-3kfj | jq -r .review)
  stockade approvals approve a-3kfj --review "$token"`,
		}
		cmd.Flags().StringVar(&verdict.Review, "review", "", "token of what you reviewed (default: of what there is now)")
	}
	cmd.Flags().StringVar(&verdict.Comment, "comment", "", "said in the receipt")
	cmd.Args, cmd.ValidArgsFunction = arguments(cobra.ExactArgs(1)), atMost(1, c.waiting)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return c.decide(cmd.Context(), approve, args[0], verdict)
	}
	return cmd
}

func (c *cli) decide(ctx context.Context, approve bool, word string, verdict api.Verdict) error {
	id, err := c.find(ctx, approvalKind, word)
	if err != nil {
		return err
	}
	verdict.ApprovalID = id
	give := c.client().Deny
	if approve {
		give = c.client().Approve
		if verdict.Review == "" {
			a, err := c.client().Approval(ctx, id)
			if err != nil {
				return err
			}
			verdict.Review = a.Review
		}
	}
	r, err := give(ctx, verdict)
	if err != nil {
		return err
	}
	if v := r.Payload.Verdict; v != nil && !c.json && r.Outcome == api.OutcomeOK {
		fmt.Fprintln(c.stdout, printable(v.ApprovalID+" "+string(v.State)))
	}
	return c.answer(r)
}

// waiting completes ids of what waits for leave.
func (c *cli) waiting(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	list, err := c.client().Approvals(cmd.Context(), api.Read{State: string(api.ApprovalWaiting), Limit: most})
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var ids []string
	for _, a := range list.Approvals {
		ids = append(ids, a.ApprovalID+"\t"+a.Reason)
	}
	return ids, cobra.ShellCompDirectiveNoFileComp
}

// leave waits for the receipt of an operation that waits for leave, or with noWait says that it does.
func (c *cli) leave(ctx context.Context, noWait bool, p *api.Pending, r *api.Receipt, err error) (*api.Receipt, error) {
	if err != nil || p == nil {
		return r, err
	}
	c.say("it waits for leave: stockade approvals show %s", p.Approval)
	if !noWait {
		return c.patient("").FollowFrames(ctx, p.IntentID, 0, func(api.Frame) error { return nil })
	}
	if c.json {
		err = document(c.stdout, p)
	} else {
		_, err = fmt.Fprintln(c.stdout, p.IntentID)
	}
	if err == nil {
		err = &exitError{exitRunning, nil}
	}
	return nil, err
}

// noWaitFlag says whether leave is waited for.
func noWaitFlag(cmd *cobra.Command, noWait *bool) {
	cmd.Flags().BoolVar(noWait, "no-wait", false, "where policy wants somebody's leave, print the intent and end with 119")
}
