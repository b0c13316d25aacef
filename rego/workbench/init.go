package workbench

import (
	"embed"
	"fmt"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	"github.com/stockade-dev/stockade/policies"
)

// scaffold is the example of a customisation that init adds to the library.
//
//go:embed scaffold
var scaffold embed.FS

func (b *bench) init() *cobra.Command {
	return &cobra.Command{
		Use:   "init DIR",
		Short: "Start a policy of your own: the shipped library and an example rule with its tests",
		Long: `init copies the shipped library into DIR, which must not exist or be empty, and adds
open/local.rego, an example of a rule of your own, with its tests and its data.
Serve it with: stockaded --policy DIR`,
		Example: `  stockade policy init my-policy
  stockade policy test my-policy`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			dir := args[0]
			if entries, err := os.ReadDir(dir); err == nil && len(entries) > 0 {
				return fmt.Errorf("%s is not empty", dir)
			}
			example, err := fs.Sub(scaffold, "scaffold")
			if err != nil {
				return err
			}
			for _, from := range []fs.FS{policies.FS, example} {
				if err := os.CopyFS(dir, from); err != nil {
					return fmt.Errorf("init %s: %w", dir, err)
				}
			}
			return b.print(cmd, map[string]string{"dir": dir}, func() {
				fmt.Fprintf(cmd.OutOrStdout(), "%s: the library and an example, open/local.rego; README.md says how to go on\n", dir)
			})
		},
	}
}
