package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/stockade-dev/stockade/sandbox"
)

func (c *cli) doctorCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "doctor",
		Short: "Say what this kernel and this place offer, layer by layer",
		Long: `doctor asks the supervisor what this kernel and this place offer: every layer that
a session rests on, whether it can be had here, and what would grant one that is
missing. It exits with 121 when a required layer is missing or no supervisor answers.`,
		Example: "  stockade doctor --json | jq '.host.layers[] | select(.state != \"present\")'",
		Args:    arguments(cobra.NoArgs),
		RunE:    func(cmd *cobra.Command, _ []string) error { return c.doctor(cmd.Context()) },
	}
}

func (c *cli) doctor(ctx context.Context) error {
	info, err := c.client().Host(ctx)
	if err != nil {
		return err
	}
	h := info.Host
	if c.json {
		if err := document(c.stdout, info); err != nil {
			return err
		}
		return missing(h)
	}
	fmt.Fprintf(c.stdout, "supervisor %s, policy %s\n", info.Version.Version, info.PolicyDigest)
	fmt.Fprintf(c.stdout, "kernel %s on %s, cgroups %s, %d CPUs, %s of memory\n\n", printable(h.Kernel), h.Arch, h.Cgroup, h.CPUs, amount(h.Memory))
	rows := [][]string{{"LAYER", "STATE", "FOUND"}}
	for _, l := range h.Layers {
		state := l.State
		if l.Required && l.State != "present" {
			state += " (required)"
		}
		rows = append(rows, []string{l.Name, state, l.Detail})
		if l.State != "present" && l.Remedy != "" {
			rows = append(rows, []string{"", "", "to have it: " + l.Remedy})
		}
	}
	if err := table(c.stdout, rows); err != nil {
		return err
	}
	return missing(h)
}

func missing(h sandbox.Host) error {
	if m := h.Missing(); len(m) > 0 {
		return fmt.Errorf("%d required layer(s) missing: sessions cannot be opened here", len(m))
	}
	return nil
}
