package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/stockade-dev/stockade/sandbox"
	"github.com/stockade-dev/stockade/supervisor/api"
)

func (c *cli) doctorCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "doctor",
		Short: "Say what can be enforced here, layer by layer",
		Long: `doctor asks the supervisor what this kernel and this place offer: every layer that
a session rests on, whether it can be had here, and what would grant one that is
missing; then which networks, mounts and ceilings a session can be asked for. It exits
with 121 when a required layer is missing or no supervisor answers.`,
		Example: `  stockade doctor
  stockade doctor --json | jq '.host.layers[] | select(.state != "present")'
  stockade doctor --json | jq '.capabilities.ceilings'`,
		Args: arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return c.doctor(cmd.Context()) },
	}
}

// diagnosis is what --json writes.
type diagnosis struct {
	api.HostInfo
	Capabilities *api.Capabilities `json:"capabilities,omitzero"`
}

func (c *cli) doctor(ctx context.Context) error {
	info, err := c.client().Host(ctx)
	if err != nil {
		return err
	}
	h := info.Host
	can, err := c.client().Capabilities(ctx)
	if err != nil { // a policy of before the question was there
		c.say("what can be asked for is not told: %v", err)
	}
	if c.json {
		if err := document(c.stdout, diagnosis{*info, can}); err != nil {
			return err
		}
		return missing(h)
	}
	fmt.Fprintf(c.stdout, "supervisor %s, policy %s\n", info.Version.Version, info.PolicyDigest)
	if w := info.Workers; w != nil {
		fmt.Fprintf(c.stdout, "policy is evaluated in %d processes (%s; %s of memory each), %d replaced\n", w.Processes, printable(strings.Join(w.Walls, ", ")), amount(w.MemoryBytes), w.Replaced)
		if w.Trouble != "" {
			fmt.Fprintf(c.stdout, "  the last one could not be started: %s\n", printable(w.Trouble))
		}
	}
	fmt.Fprintf(c.stdout, "kernel %s on %s, cgroups %s, %d CPUs, %s of memory\n\n", printable(h.Kernel), h.Arch, h.Cgroup, h.CPUs, amount(h.Memory))
	if err := table(c.stdout, layerRows(h)); err != nil {
		return err
	}
	if can != nil {
		fmt.Fprintln(c.stdout)
		if err := table(c.stdout, capabilityRows(can)); err != nil {
			return err
		}
		fmt.Fprintln(c.stdout)
		if err := table(c.stdout, ceilingRows(can.Ceilings)); err != nil {
			return err
		}
	}
	return missing(h)
}

func layerRows(h sandbox.Host) [][]string {
	rows := [][]string{{"LAYER", "STATE", "FOUND"}}
	for _, l := range h.Layers {
		state := l.State
		switch {
		case l.State == "present" || !l.Required:
		case slices.Contains(sandbox.Degradable, l.Name):
			state += " (required, or --accept-degraded)"
		default:
			state += " (required)"
		}
		rows = append(rows, []string{l.Name, state, l.Detail})
		if l.State != "present" && l.Remedy != "" {
			rows = append(rows, []string{"", "", "to have it: " + l.Remedy})
		}
	}
	return rows
}

func capabilityRows(can *api.Capabilities) [][]string {
	return [][]string{
		{"roots", strings.Join(can.Roots, " ")},
		{"mounts", strings.Join(can.MountModes, " ")},
		{"networks", strings.Join(can.Networks, " ")},
		{"seccomp", strings.Join(can.Profiles, " ")},
	}
}

func ceilingRows(kinds []api.CeilingKind) [][]string {
	yes := map[bool]string{true: "yes", false: "no"}
	rows := [][]string{{"CEILING", "SESSION", "EXECUTION", "OPERATOR'S MOST", ""}}
	for _, k := range kinds {
		most := ""
		if k.Max > 0 {
			most = fmt.Sprint(k.Max)
		}
		rows = append(rows, []string{k.Name, yes[k.Session], yes[k.Execution], most, k.Detail})
	}
	return rows
}

func missing(h sandbox.Host) error {
	if m := h.Missing(sandbox.Degradable...); len(m) > 0 {
		return fmt.Errorf("%d required layer(s) missing: sessions cannot be opened here", len(m))
	}
	if m := h.Missing(); len(m) > 0 {
		names := make([]string, len(m))
		for i, l := range m {
			names[i] = l.Name
		}
		return fmt.Errorf("%d layer(s) missing: sessions can be opened here only with --accept-degraded %q", len(m), strings.Join(names, ","))
	}
	return nil
}
