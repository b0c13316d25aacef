package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
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
missing; then which networks, mounts and ceilings a session can be asked for. Where none answers it looks
itself, by stockade-run, which starts nothing: in a container that withholds something it names each
missing piece, and the flag of docker run or podman run that grants it. It exits with 121 when a
required layer is missing or no supervisor answers.`,
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
	if _, unanswered := errors.AsType[*net.OpError](err); unanswered {
		return errors.Join(err, c.diagnose(ctx))
	}
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

// placeProbe is what "stockade-run probe" says of a place.
type placeProbe struct {
	Host  sandbox.Host `json:"host"`
	Lacks []struct {
		What  string `json:"what"`
		Found string `json:"found"`
		Flag  string `json:"flag"`
	} `json:"lacks"`
}

// diagnose says what this place withholds from a runner, where none could tell: a container first of all.
func (c *cli) diagnose(ctx context.Context) error {
	program, err := runnerProgram()
	if err != nil {
		return err
	}
	var said bytes.Buffer
	cmd := exec.CommandContext(ctx, program, "probe")
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("%s probe: %w: %.300s", program, err, said.String())
	}
	var p placeProbe
	if err := json.Unmarshal(out, &p); err != nil {
		return fmt.Errorf("%s probe: %w", program, err)
	}
	if c.json {
		return document(c.stdout, p)
	}
	if len(p.Lacks) == 0 {
		fmt.Fprint(c.stdout, "no supervisor answers; nothing around us keeps a runner from starting here\n\n")
	} else {
		fmt.Fprint(c.stdout, "no supervisor answers; what a runner would lack here, and the flag of the container that grants it:\n\n")
		rows := [][]string{{"LACKS", "FLAG", "FOUND"}}
		for _, l := range p.Lacks {
			rows = append(rows, []string{l.What, l.Flag, l.Found})
		}
		if err := table(c.stdout, rows); err != nil {
			return err
		}
		fmt.Fprintln(c.stdout)
	}
	return table(c.stdout, layerRows(p.Host))
}

// runnerProgram finds stockade-run where it is installed with this program.
func runnerProgram() (string, error) {
	if self, err := os.Executable(); err == nil {
		for _, place := range []string{".", "../libexec/stockade"} {
			path := filepath.Join(filepath.Dir(self), place, "stockade-run")
			if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
				return path, nil
			}
		}
	}
	path, err := exec.LookPath("stockade-run")
	if err != nil {
		return "", errors.New("stockade-run, which could tell what is missing here, is neither beside this program, nor in ../libexec/stockade, nor in PATH")
	}
	return path, nil
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
