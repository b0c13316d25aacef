package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/stockade-dev/stockade/supervisor/api"
)

// The beginnings by which ids tell what they are of, and the lengths of whole ones.
const (
	sessionPrefix = "s-"
	execPrefix    = "x-"
	intentPrefix  = "sha256:"

	idLength     = 2 + 26
	intentLength = len(intentPrefix) + 64
)

// fewest is how many characters of an id, behind what it begins with anyway, name it when no other
// id begins so.
const fewest = 4

// most is how many objects a beginning is looked for in: as many as one page of a list has.
const most = 1000

// kind is a kind of object that a command line can name by the beginning of its id.
type kind struct {
	name    string
	prefix  string
	length  int
	unknown api.Code
	list    func(context.Context, *cli) ([]string, error)
}

var (
	sessionKind = kind{"session", sessionPrefix, idLength, api.CodeSessionNotFound, func(ctx context.Context, c *cli) (ids []string, err error) {
		list, err := c.client().Sessions(ctx, api.Read{Limit: most})
		for _, s := range list {
			ids = append(ids, s.SessionID)
		}
		return ids, err
	}}
	execKind = kind{"execution", execPrefix, idLength, api.CodeExecNotFound, func(ctx context.Context, c *cli) (ids []string, err error) {
		list, err := c.processes(ctx, api.Read{}, most)
		for _, p := range list {
			ids = append(ids, p.ExecID)
		}
		return ids, err
	}}
	intentKind = kind{"intent", intentPrefix, intentLength, api.CodeNotFound, func(ctx context.Context, c *cli) (ids []string, err error) {
		list, err := c.client().Intents(ctx, api.Read{Limit: most})
		for _, i := range list {
			ids = append(ids, i.IntentID)
		}
		return ids, err
	}}
)

// find returns the id that a word is, or is the beginning of. A whole id is taken at its word: the
// supervisor says whether it exists.
func (c *cli) find(ctx context.Context, k kind, word string) (string, error) {
	if !strings.HasPrefix(word, k.prefix) || len(word) >= k.length {
		return word, nil
	}
	if len(word) < len(k.prefix)+fewest {
		return "", usage("%q: the beginning of a %s id has at least %d characters behind %s", word, k.name, fewest, k.prefix)
	}
	ids, err := k.list(ctx, c)
	if err != nil {
		return "", err
	}
	var found []string
	for _, id := range ids {
		if strings.HasPrefix(id, word) {
			found = append(found, id)
		}
	}
	switch len(found) {
	case 0:
		return "", api.Errorf(k.unknown, "none of your %ss begins with %s", k.name, word)
	case 1:
		return found[0], nil
	}
	return "", usage("%q is the beginning of %d %s ids:\n  %s", word, len(found), k.name, strings.Join(found, "\n  "))
}

// session returns the id of the session that a word names.
func (c *cli) sessionID(ctx context.Context, word string) (string, error) {
	return c.find(ctx, sessionKind, word)
}

// execID returns the id of the execution that a word names: by its own id, or by that of the
// intent that started it.
func (c *cli) execID(ctx context.Context, word string) (string, error) {
	if strings.HasPrefix(word, sessionPrefix) {
		return "", usage("%s is a session; stockade ps --session %[1]s has its executions", word)
	}
	if !strings.HasPrefix(word, intentPrefix) {
		return c.find(ctx, execKind, word)
	}
	id, err := c.find(ctx, intentKind, word)
	if err != nil {
		return "", err
	}
	in, err := c.client().Intent(ctx, id)
	if err != nil {
		return "", err
	}
	if in.ExecID == "" {
		return "", usage("%s is a %s, which started no execution", word, in.Op)
	}
	return in.ExecID, nil
}

// intentID returns the id of the intent that a word names: by its own id, or by that of the
// execution that it started.
func (c *cli) intentID(ctx context.Context, word string) (string, error) {
	if !strings.HasPrefix(word, execPrefix) {
		return c.find(ctx, intentKind, word)
	}
	id, err := c.find(ctx, execKind, word)
	if err != nil {
		return "", err
	}
	p, err := c.client().Process(ctx, id)
	if err != nil {
		return "", err
	}
	return p.IntentID, nil
}

// target returns the id of the session or the execution that a word names; the other is "".
func (c *cli) target(ctx context.Context, word string) (session, exec string, err error) {
	switch {
	case strings.HasPrefix(word, execPrefix), strings.HasPrefix(word, intentPrefix):
		exec, err = c.execID(ctx, word)
	case strings.HasPrefix(word, sessionPrefix):
		session, err = c.sessionID(ctx, word)
	default:
		err = usage("%q is neither a session (%s…) nor an execution (%s…, or its intent)", word, sessionPrefix, execPrefix)
	}
	return session, exec, err
}

// each does one thing to everything that a command line names, in its order. What fails does not keep
// the rest from being done; the status is that of the first failure.
func (c *cli) each(words []string, do func(word string) error) error {
	if len(words) == 1 {
		return do(words[0])
	}
	status := 0
	for _, word := range words {
		if err := do(word); err != nil {
			if s := c.report(err); status == 0 {
				status = s
			}
		}
	}
	if status != 0 {
		return &exitError{status, nil}
	}
	return nil
}

// processes lists executions, newest first, as many pages as it takes.
func (c *cli) processes(ctx context.Context, filter api.Read, limit int64) (all []api.Process, err error) {
	for {
		filter.Limit = min(limit-int64(len(all)), most)
		page, err := c.client().Processes(ctx, filter)
		if err != nil {
			return nil, err
		}
		all = append(all, page.Processes...)
		if page.Next == "" || int64(len(all)) >= limit {
			return all, nil
		}
		filter.After = page.Next
	}
}

// completion completes ids from what the supervisor shows us.
type completion = func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective)

// atMost completes the first n arguments; what follows them is not ours.
func atMost(n int, complete completion) completion {
	return func(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
		if len(args) >= n {
			return nil, cobra.ShellCompDirectiveDefault
		}
		return complete(cmd, args, word)
	}
}

// sessions completes sessions that have not ended.
func (c *cli) sessions(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	list, err := c.client().Sessions(cmd.Context(), api.Read{Limit: most})
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var ids []string
	for _, s := range list {
		if s.EndedAtNS == 0 {
			ids = append(ids, fmt.Sprintf("%s\t%s %s", s.SessionID, s.State, pairs(s.Labels)))
		}
	}
	return ids, cobra.ShellCompDirectiveNoFileComp
}

// executions completes executions, or only those that have not ended.
func (c *cli) executions(active bool) completion {
	return func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		list, err := c.processes(cmd.Context(), api.Read{Active: active}, most)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var ids []string
		for _, p := range list {
			ids = append(ids, fmt.Sprintf("%s\t%s %s", p.ExecID, p.State, shortCommand(p.Argv)))
		}
		return ids, cobra.ShellCompDirectiveNoFileComp
	}
}

// targets completes what lives: executions and sessions.
func (c *cli) targets(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
	executions, _ := c.executions(true)(cmd, args, word)
	sessions, directive := c.sessions(cmd, args, word)
	return append(executions, sessions...), directive
}

// intents completes intents, the newest.
func (c *cli) intents(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	list, err := c.client().Intents(cmd.Context(), api.Read{})
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var ids []string
	for _, i := range list {
		// A colon would end the word in some shells; cobra's scripts see to it.
		ids = append(ids, fmt.Sprintf("%s\t%s %s", i.IntentID, i.Op, i.Outcome))
	}
	return ids, cobra.ShellCompDirectiveNoFileComp
}
