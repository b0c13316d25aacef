package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/stockade-dev/stockade/supervisor/api"
)

func (c *cli) showCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "show SESSION",
		Short: "Show one session: its grant and what it used",
		Example: `  stockade show "$id"
  stockade show --json "$id" | jq .grant`,
		Args:              arguments(cobra.ExactArgs(1)),
		ValidArgsFunction: c.sessions,
		RunE:              func(cmd *cobra.Command, args []string) error { return c.show(cmd.Context(), args[0]) },
	}
}

func (c *cli) show(ctx context.Context, id string) error {
	s, err := c.client().Session(ctx, id)
	if err != nil {
		return err
	}
	if c.json {
		return document(c.stdout, s)
	}
	rows := [][]string{
		{"session", s.SessionID},
		{"state", strings.TrimSpace(s.State + " " + s.Reason)},
		{"profile", s.Profile},
		{"principal", fmt.Sprintf("uid %d gid %d", s.Principal.UID, s.Principal.GID)},
		{"started", s.StartedAt},
		{"expires", s.ExpiresAt},
		{"executions", fmt.Sprintf("%d, %d live", s.Executions, s.Live)},
		{"used", fmt.Sprintf("cpu %s, peak memory %s", span(s.Usage.CPUNS), amount(s.Usage.PeakMemoryBytes))},
		{"labels", pairs(s.Labels)},
		{"policy", s.PolicyDigest},
	}
	return table(c.stdout, append(rows, grantRows(s.Grant)...))
}

// grantRows is a grant for people: what the session may be.
func grantRows(g *api.Grant) [][]string {
	if g == nil {
		return nil
	}
	rows := [][]string{
		{"root", g.Root},
		{"workdir", g.Workdir},
		{"network", g.Network.Mode},
		{"identity", fmt.Sprintf("uid %d gid %d, capabilities %v", g.Identity.UID, g.Identity.GID, g.Identity.Capabilities)},
		{"ceilings", fmt.Sprintf("memory %s, cpu %dm, pids %d, output %s", amount(g.Ceilings.MemoryBytes), g.Ceilings.CPUMillis, g.Ceilings.PIDs, amount(g.Ceilings.OutputBytes))},
	}
	for _, m := range g.Mounts {
		rows = append(rows, []string{"mount", fmt.Sprintf("%s on %s (%s)", m.HostPath, m.GuestPath, m.Mode)})
	}
	for _, s := range g.Scratch {
		rows = append(rows, []string{"scratch", fmt.Sprintf("%s (%s)", s.GuestPath, amount(s.Bytes))})
	}
	return rows
}
