package main

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/stockade-dev/stockade/supervisor/api"
)

func (c *cli) lsCommand() *cobra.Command {
	var all bool
	var only []string
	cmd := &cobra.Command{
		Use:   "ls",
		Short: "List your sessions",
		Example: `  stockade ls
  stockade ls --all --label job=42`,
		Args: arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			filter, err := labels(only)
			if err != nil {
				return err
			}
			return c.ls(cmd.Context(), all, filter)
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "closed sessions too")
	cmd.Flags().StringArrayVar(&only, "label", nil, "K=V that a session must carry (repeatable)")
	return cmd
}

func (c *cli) ls(ctx context.Context, all bool, filter map[string]string) error {
	list, err := c.client().Sessions(ctx, api.Read{Labels: filter, Limit: most})
	if err != nil {
		return err
	}
	if !all {
		list = slices.DeleteFunc(list, func(s api.Session) bool { return s.EndedAtNS != 0 || s.State == "closing" })
	}
	if c.json {
		return document(c.stdout, api.SessionList{Sessions: list})
	}
	rows := [][]string{{"SESSION", "STATE", "PROFILE", "STARTED", "EXECS", "LIVE", "LABELS"}}
	for _, s := range list {
		rows = append(rows, []string{s.SessionID, s.State, s.Profile, when(s.StartedAtNS),
			strconv.FormatInt(s.Executions, 10), strconv.FormatInt(s.Live, 10), pairs(s.Labels)})
	}
	return table(c.stdout, rows)
}

func when(ns int64) string { return time.Unix(0, ns).Format(time.DateTime) }
