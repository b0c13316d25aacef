package main

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/stockade-dev/stockade/internal/filetool/ripgrep"
	"github.com/stockade-dev/stockade/sandbox"
	"github.com/stockade-dev/stockade/supervisor/telemetry"
)

// lasting are the settings that a successor in this process cannot have otherwise: what lives rests on them.
var lasting = []struct {
	name string
	of   func(*config) string
}{
	{"state", func(c *config) string { return c.state }},
	{"socket", func(c *config) string { return c.socket }},
	{"runner", func(c *config) string { return c.runner }},
	{"user", func(c *config) string { return c.user }},
}

// reread looks whether the successor can take what it is going to be told, by the same command line and by the files that this names as they
// are now. It looks at all of that before anything is given up, and changes nothing.
func (c *config) reread(ctx context.Context) error {
	var next config
	cmd := &cobra.Command{Use: "stockaded"}
	cmd.Flags().AddFlagSet(next.flags())
	if err := cmd.ParseFlags(c.args); err != nil {
		return err
	}
	if err := configure(cmd, next.config); err != nil {
		return err
	}
	if err := inOrder(cmd.Flags()); err != nil {
		return err
	}
	var changed []string
	for _, l := range lasting {
		if l.of(c) != l.of(&next) {
			changed = append(changed, l.name)
		}
	}
	if len(changed) > 0 {
		return fmt.Errorf("the configuration changes %s: that takes a restart", strings.Join(changed, ", "))
	}
	if _, err := telemetry.NewLog(io.Discard, next.logLevel, next.logFormat, nil); err != nil {
		return err
	}
	if _, err := sandbox.LoadCeiling(next.ceiling); err != nil {
		return err
	}
	if _, err := next.watched(); err != nil {
		return err
	}
	if err := telemetry.CheckEndpoint(next.traces); err != nil {
		return err
	}
	if next.metrics != "" && next.metrics != c.metrics { // ours are in the way of themselves
		ln, err := listenForScrapes(next.metrics)
		if err != nil {
			return fmt.Errorf("metrics: %w", err)
		}
		ln.Close()
	}
	if next.ripgrep != "" {
		program, _, err := ripgrep.Program(ctx, next.ripgrep)
		if err != nil {
			return err
		}
		program.Close()
	}
	state, err := filepath.Abs(next.state)
	if err != nil {
		return err
	}
	source, err := next.policySource(state)
	if err != nil {
		return err
	}
	return source.Examine(ctx, state)
}
