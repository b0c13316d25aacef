package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/stockade-dev/stockade/supervisor/api"
)

func (c *cli) policyStatusCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Say which revisions of the policy decide, and why the last candidate does not",
		Long: `status names the revision that judges what is opened now, those by which open sessions are judged, and
why the last candidate was refused, if it was.`,
		Example: `  stockade policy status
  stockade policy status --json | jq -r .active.digest`,
		Args: arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return c.policyStatus(cmd.Context()) },
	}
}

func (c *cli) policyStatus(ctx context.Context) error {
	s, err := c.client().PolicyStatus(ctx)
	if err != nil {
		return err
	}
	if c.json {
		return document(c.stdout, s)
	}
	rows := [][]string{{"", "REVISION", "DIGEST", "SESSIONS", "SIGNED BY", "SOURCE"}, revisionRow("active", s.Active)}
	for _, r := range s.Pinned {
		rows = append(rows, revisionRow("pinned", r))
	}
	if err := table(c.stdout, rows); err != nil {
		return err
	}
	if s.Source != "" {
		fmt.Fprintf(c.stdout, "the next one is read from %s\n", printable(s.Source))
	}
	if r := s.Refused; r != nil {
		fmt.Fprintf(c.stdout, "refused at %s (%s): %s: %s\n", stamp(r.AtNS), printable(r.Trigger), r.Code, printable(r.Message))
	}
	return nil
}

func revisionRow(state string, r api.PolicyRevision) []string {
	return []string{state, optionalNumber(r.Number), r.Digest, strconv.FormatInt(r.Sessions, 10), orDash(r.SignedBy), orDash(r.Source)}
}

func optionalNumber(n int64) string {
	if n == 0 {
		return "-"
	}
	return strconv.FormatInt(n, 10)
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func (c *cli) policyActivateCommand() *cobra.Command {
	var ask api.PolicyActivate
	var preview bool
	cmd := &cobra.Command{
		Use:   "activate [flags]",
		Short: "Have the policy that is there now decide, once it has been validated",
		Long: `activate has the supervisor read its policy again (stockaded --policy): signature, number, compilation,
entry points and the policy's own tests. When all is well it decides from then on; when anything is not, nothing
changes. Sessions that are open go on under the revision under which they were opened.

--strict waits for no intent: while one is open the policy is not activated, and the exit status is 119.
--live says what becomes of an open session that would get less under the new policy: keep it, narrow it (or end it,
where what it would lose cannot be taken away while it runs), or terminate it. Without it, the policy says.
--preview changes nothing: it validates the policy and lists what it would mean to the open sessions.

Exit status: 0 it decides, or did already; 1 it is refused, or (--preview) a session would not be kept as it is;
119 intents are open; 120 policy does not let you.`,
		Example: `  stockade policy activate --preview --live narrow
  stockade policy activate --strict
  stockade policy activate --digest "$(stockade policy check --json my-policy | jq -r .digest)"`,
		Args: arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if preview {
				return c.previewPolicy(cmd.Context(), ask)
			}
			return c.activatePolicy(cmd.Context(), ask)
		},
	}
	f := cmd.Flags()
	f.BoolVar(&ask.Strict, "strict", false, "only while no intent is open")
	f.BoolVar(&preview, "preview", false, "change nothing, and say what would change")
	f.StringVar(&ask.Live, "live", "", "what becomes of open sessions that would get less: keep, narrow or terminate")
	f.StringVar(&ask.Digest, "digest", "", "the revision that is meant; another one is refused")
	return cmd
}

func (c *cli) previewPolicy(ctx context.Context, ask api.PolicyActivate) error {
	p, err := c.client().PolicyPreview(ctx, ask)
	if err != nil {
		return refusedPolicy(err)
	}
	if c.json {
		err = document(c.stdout, p)
	} else {
		err = c.tellPreview(p)
	}
	switch {
	case err != nil:
		return err
	case p.Blocking != nil:
		return &exitError{exitRunning, nil}
	case p.More > 0 || slices.ContainsFunc(p.Sessions, func(s api.PolicySession) bool { return s.Action != api.LiveKeep }):
		return &exitError{exitFinding, nil}
	}
	return nil
}

func (c *cli) tellPreview(p *api.PolicyPreview) error {
	if p.Candidate.Digest == p.Active.Digest {
		fmt.Fprintf(c.stdout, "%s decides already\n", p.Active.Digest)
	} else {
		fmt.Fprintf(c.stdout, "%s would decide, instead of %s\n", p.Candidate.Digest, p.Active.Digest)
	}
	if err := c.tellSessions(p.Sessions, p.More); err != nil {
		return err
	}
	return c.tellBlocking(p.Blocking)
}

func (c *cli) activatePolicy(ctx context.Context, ask api.PolicyActivate) error {
	r, err := c.client().ActivatePolicy(ctx, ask)
	if err != nil {
		return err
	}
	if c.json {
		if err := document(c.stdout, r); err != nil {
			return err
		}
	}
	done := r.Payload.Policy
	if done == nil {
		return errors.Join(c.settled(r), errors.New("activate: the receipt has no result"))
	}
	if !c.json {
		if done.Revision != nil {
			fmt.Fprintf(c.stdout, "%s: %s\n", done.Status, done.Revision.Digest)
		}
		if err := errors.Join(c.tellSessions(done.Sessions, done.More), c.tellBlocking(done.Blocking)); err != nil {
			return err
		}
	}
	if err := c.settled(r); err != nil {
		return refusedPolicy(err, r.ErrorCode)
	}
	return nil
}

// tellSessions says what a revision means to open sessions, and in what.
func (c *cli) tellSessions(list []api.PolicySession, more int64) error {
	if len(list) == 0 {
		return nil
	}
	rows := [][]string{{"SESSION", "PROFILE", "VERDICT", "ACTION", "WHAT"}}
	for _, s := range list {
		action := s.Action
		if s.Status != "" {
			action = s.Status
		}
		rows = append(rows, []string{s.SessionID, orDash(s.Profile), s.Verdict, action, differing(s)})
	}
	if err := table(c.stdout, rows); err != nil {
		return err
	}
	if more > 0 {
		fmt.Fprintf(c.stdout, "and %d more\n", more)
	}
	return nil
}

// differing is in what a session would get less, or why it would get nothing.
func differing(s api.PolicySession) string {
	var what string
	add := func(text string) {
		if what != "" {
			what += "; "
		}
		what += text
	}
	for _, d := range s.Deny {
		add(string(d.Code) + " " + d.Subject)
	}
	for _, ch := range s.Changes {
		add(fmt.Sprintf("%s %s: %s → %s", ch.Effect, ch.Field, ch.Before, ch.After))
	}
	return what
}

func (c *cli) tellBlocking(q *api.Quiescence) error {
	if q == nil {
		return nil
	}
	return c.tellQuiescence(q)
}

// refusedPolicy gives what is wrong with the candidate, and not with the supervisor, a status of its own.
func refusedPolicy(err error, code ...api.Code) error {
	if e, ok := errors.AsType[*api.Error](err); ok {
		code = append(code, e.Code)
	}
	for _, one := range code {
		switch one {
		case api.CodePolicyRefused, api.CodePolicyUntrusted, api.CodePolicyRollback, api.CodePolicyChanged:
			return &exitError{exitFinding, err}
		case api.CodePolicyBlocked:
			return &exitError{exitRunning, err}
		}
	}
	return err
}
