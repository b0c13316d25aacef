package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/stockade-dev/stockade/supervisor/api"
)

// atFlag says which overlay of a session is meant.
func atFlag(cmd *cobra.Command, at *string) {
	cmd.Flags().StringVar(at, "at", "", "inside path of the overlay (default: the session's only one)")
}

func (c *cli) diffCommand() *cobra.Command {
	var at string
	var exitCode bool
	cmd := &cobra.Command{
		Use:   "diff [flags] SESSION",
		Short: "List what a session wrote over a directory and has not committed",
		Long: `diff lists the changes that an overlay of a session has over what lies below it, one line
each: A added, M modified, D deleted. What runs goes on changing it: stockade pause holds it
still. The file contents are read inside (stockade exec … -- diff), or after a commit.`,
		Example: `  id=$(stockade open --overlay .:/work --workdir /work) && stockade exec "$id" -- make
  stockade diff "$id"
  stockade diff --exit-code "$id" || stockade commit "$id"
  stockade diff --json "$id" | jq -r '.changes[].path'`,
		Args:              arguments(cobra.ExactArgs(1)),
		ValidArgsFunction: atMost(1, c.sessions),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.diff(cmd.Context(), args[0], at, exitCode)
		},
	}
	atFlag(cmd, &at)
	cmd.Flags().BoolVar(&exitCode, "exit-code", false, "exit with 1 when there are changes")
	return cmd
}

// letters are how a change is listed.
var letters = map[string]string{"added": "A", "modified": "M", "deleted": "D"}

func (c *cli) diff(ctx context.Context, word, at string, exitCode bool) error {
	id, err := c.sessionID(ctx, word)
	if err != nil {
		return err
	}
	all := api.SpaceResult{Status: "ok", GuestPath: at}
	for change, err := range c.client().Changes(ctx, api.Workspace{SessionID: id, GuestPath: at}) {
		if err != nil {
			return err
		}
		all.Changes = append(all.Changes, change)
		if c.json {
			continue
		}
		path := change.Path
		if change.Type == "dir" {
			path += "/"
		}
		if change.Link != "" {
			path += " -> " + change.Link
		}
		if _, err := fmt.Fprintf(c.stdout, "%1s %s\n", letters[change.Kind], printable(path)); err != nil {
			return err
		}
	}
	if c.json {
		if err := document(c.stdout, all); err != nil {
			return err
		}
	}
	if exitCode && len(all.Changes) > 0 {
		return &exitError{1, nil}
	}
	return nil
}

func (c *cli) commitCommand() *cobra.Command {
	var at, key string
	var noWait bool
	cmd := &cobra.Command{
		Use:   "commit [flags] SESSION [PATH…]",
		Short: "Make what a session wrote over a directory that directory's",
		Long: `commit makes the changes of an overlay to what lies below it, with your own rights: all of
them, or those at and below each PATH, relative to the overlay. What runs in the session
stands still meanwhile. A file is replaced as a whole; a commit that is interrupted leaves
some files old and others new, never half of one, and can be asked for again.`,
		Example: `  stockade commit "$id"
  stockade commit "$id" src docs/index.md
  stockade commit --at /work --key build-42 "$id"`,
		Args:              arguments(cobra.MinimumNArgs(1)),
		ValidArgsFunction: atMost(1, c.sessions),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := c.sessionID(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			space := api.Workspace{SessionID: id, GuestPath: at}
			space.Paths, space.PathsBytes = api.SpellAll(args[1:]) // argv is bytes, as names are
			p, r, err := c.client().WithKey(key).Ask(cmd.Context(), api.OpWorkspaceCommit, space)
			r, err = c.leave(cmd.Context(), noWait, p, r, err)
			return c.spaced(r, err)
		},
	}
	atFlag(cmd, &at)
	noWaitFlag(cmd, &noWait)
	cmd.Flags().StringVar(&key, "key", "", "idempotency key: the same commit with the same key takes place once")
	return cmd
}

func (c *cli) discardCommand() *cobra.Command {
	var at string
	cmd := &cobra.Command{
		Use:   "discard [flags] SESSION",
		Short: "Throw away what a session wrote over a directory",
		Long: `discard empties an overlay of a session: everything inside is again as it is below it.
Nothing may run in the session.`,
		Example: `  stockade discard "$id"
  stockade stop --session "$id" && stockade discard --at /work "$id"`,
		Args:              arguments(cobra.ExactArgs(1)),
		ValidArgsFunction: atMost(1, c.sessions),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := c.sessionID(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			r, err := c.client().Discard(cmd.Context(), api.Workspace{SessionID: id, GuestPath: at})
			return c.spaced(r, err)
		},
	}
	atFlag(cmd, &at)
	return cmd
}

// spaced answers with what became of an overlay.
func (c *cli) spaced(r *api.Receipt, err error) error {
	if err != nil {
		return err
	}
	done := r.Payload.Space
	if done != nil && !c.json && done.Status != "error" {
		text := done.GuestPath + " " + done.Status
		if done.Status != "discarded" {
			text += fmt.Sprintf(" %d", done.Applied)
		}
		fmt.Fprintln(c.stdout, printable(text))
	}
	if err := c.answer(r); err != nil {
		return err
	}
	if done == nil {
		return errors.New("the receipt has no result")
	}
	for _, path := range done.Left {
		c.say("unchanged: %s", printable(path))
	}
	if done.Dropped > 0 {
		c.say("and %d more", done.Dropped)
	}
	return nil
}
