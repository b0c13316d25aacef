package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/stockade-dev/stockade/supervisor/api"
)

func (c *cli) showCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "show SESSION|EXEC|INTENT",
		Short: "Show one session, execution or intent",
		Long: `show shows a session with its grant and what it used, an execution with its state, or
an intent (sha256:…) with how far it has come. Its receipt is shown by stockade receipts show.`,
		Example: `  stockade show "$id"
  stockade show --json "$id" | jq .grant
  stockade show "$x"`,
		Args:              arguments(cobra.ExactArgs(1)),
		ValidArgsFunction: atMost(1, c.targets),
		RunE:              func(cmd *cobra.Command, args []string) error { return c.show(cmd.Context(), args[0]) },
	}
}

func (c *cli) show(ctx context.Context, word string) error {
	switch {
	case strings.HasPrefix(word, execPrefix):
		return c.showExecution(ctx, word)
	case strings.HasPrefix(word, intentPrefix):
		return c.showIntent(ctx, word)
	}
	return c.showSession(ctx, word)
}

func (c *cli) showSession(ctx context.Context, word string) error {
	id, err := c.sessionID(ctx, word)
	if err != nil {
		return err
	}
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
		{"principal", principal(s.Principal)},
		{"intent", s.OpenIntent},
		{"started", s.StartedAt},
		{"expires", s.ExpiresAt},
		{"executions", fmt.Sprintf("%d, %d live", s.Executions, s.Live)},
		{"events", strconv.FormatInt(s.Events, 10)},
		{"used", fmt.Sprintf("cpu %s, peak memory %s", span(s.Usage.CPUNS), amount(s.Usage.PeakMemoryBytes))},
		{"labels", pairs(s.Labels)},
		{"policy", s.PolicyDigest},
	}
	if s.Network != nil {
		rows = append(rows, []string{"traffic", trafficText(s.Network)})
	}
	for _, l := range s.Degraded {
		rows = append(rows, []string{"without", l})
	}
	if len(s.Silent) > 0 {
		rows = append(rows, []string{"unreported", strings.Join(s.Silent, ", ") + ": they cannot say what they refuse"})
	}
	if s.IdleAtNS != 0 {
		rows = append(rows, []string{"idle end", stamp(s.IdleAtNS) + " if nothing happens"})
	}
	return table(c.stdout, append(rows, grantRows(s.Grant)...))
}

func (c *cli) showExecution(ctx context.Context, word string) error {
	id, err := c.execID(ctx, word)
	if err != nil {
		return err
	}
	p, err := c.client().Process(ctx, id)
	if err != nil {
		return err
	}
	if c.json {
		return document(c.stdout, p)
	}
	rows := [][]string{
		{"execution", p.ExecID},
		{"state", c.status(p)},
		{"command", commandLine(p.Argv)},
		{"session", p.SessionID},
		{"intent", p.IntentID},
		{"principal", principal(p.Principal)},
		{"labels", pairs(p.Labels)},
		{"queued", p.QueuedAt},
		{"started", p.StartedAt},
		{"ended", p.EndedAt},
		{"output", fmt.Sprintf("stdout %s, stderr %s", amount(p.StdoutBytes), amount(p.StderrBytes))},
		{"frames", strconv.FormatInt(p.FrameSeq, 10)},
	}
	if p.State.Final() {
		rows = append(rows, []string{"used", fmt.Sprintf("wall %s, cpu %s, peak memory %s", span(p.DurationNS), span(p.Usage.CPUNS), amount(p.Usage.PeakMemoryBytes))})
	} else {
		rows = append(rows, []string{"can", followUps})
	}
	return table(c.stdout, rows)
}

func (c *cli) showIntent(ctx context.Context, word string) error {
	id, err := c.find(ctx, intentKind, word)
	if err != nil {
		return err
	}
	in, err := c.client().Intent(ctx, id)
	if err != nil {
		return err
	}
	if c.json {
		return document(c.stdout, in)
	}
	return table(c.stdout, [][]string{
		{"intent", in.IntentID},
		{"operation", string(in.Op)},
		{"outcome", settlement(in)},
		{"principal", principal(in.Principal)},
		{"session", in.SessionID},
		{"execution", in.ExecID},
		{"key", in.Key},
		{"admitted", in.AdmittedAt},
		{"settled", in.SettledAt},
		{"record", strconv.FormatInt(in.EmittedAtSeq, 10)},
		{"frames", strconv.FormatInt(in.FrameSeq, 10)},
	})
}

// principal is who did something, in words.
func principal(p api.Principal) string {
	scope := scopeFlag(p.Scope)
	return strings.TrimSpace(fmt.Sprintf("uid %d gid %d %s", p.UID, p.GID, scope.String()))
}

// grantRows is a grant for people: what the session may be.
func grantRows(g *api.Grant) [][]string {
	if g == nil {
		return nil
	}
	rows := [][]string{
		{"root", g.Root},
		{"workdir", g.Workdir},
		{"network", reach(g.Network)},
		{"identity", fmt.Sprintf("uid %d gid %d, capabilities %v", g.Identity.UID, g.Identity.GID, g.Identity.Capabilities)},
		{"ceilings", fmt.Sprintf("memory %s, cpu %dm, pids %d, output %s", amount(g.Ceilings.MemoryBytes), g.Ceilings.CPUMillis, g.Ceilings.PIDs, amount(g.Ceilings.OutputBytes))},
	}
	for _, m := range g.Mounts {
		mode := m.Mode
		if m.Mode == api.ModeOverlay {
			mode += ", room for " + amount(m.Bytes)
		}
		if len(m.Protect) > 0 {
			mode += ", protected: " + strings.Join(m.Protect, " ")
		}
		rows = append(rows, []string{"mount", fmt.Sprintf("%s on %s (%s)", m.HostPath, m.GuestPath, mode)})
	}
	for _, s := range g.Scratch {
		rows = append(rows, []string{"scratch", fmt.Sprintf("%s (%s)", s.GuestPath, amount(s.Bytes))})
	}
	return rows
}
