package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// version is set by the linker for releases; a build from a checkout says what the
// go command recorded.
var version string

func (c *cli) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version",
		Example: "  stockade version --json",
		Args:    arguments(cobra.NoArgs),
		RunE:    func(*cobra.Command, []string) error { return c.printVersion() },
	}
}

func (c *cli) printVersion() error {
	out := struct {
		Version string `json:"version"`
		Go      string `json:"go"`
		OS      string `json:"os"`
		Arch    string `json:"arch"`
	}{built(), runtime.Version(), runtime.GOOS, runtime.GOARCH}
	if c.json {
		return document(c.stdout, out)
	}
	_, err := fmt.Fprintf(c.stdout, "stockade %s %s %s/%s\n", out.Version, out.Go, out.OS, out.Arch)
	return err
}

// built is the version that this is.
func built() string {
	if info, ok := debug.ReadBuildInfo(); ok && version == "" {
		return info.Main.Version
	}
	return version
}
