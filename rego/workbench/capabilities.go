package workbench

import (
	"encoding/json"

	"github.com/spf13/cobra"

	"github.com/stockade-dev/stockade/rego"
)

func (b *bench) capabilities() *cobra.Command {
	return &cobra.Command{
		Use:   "capabilities",
		Short: "Print what a policy may call, for OPA's own tools",
		Long: `capabilities prints the builtin functions that a policy may call, in OPA's form. With it
OPA's own commands know the stockade.* functions, and refuse what a supervisor would.`,
		Example: `  stockade policy capabilities > capabilities.json
  opa check --strict --capabilities capabilities.json -s schemas/input.json my-policy`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			out := json.NewEncoder(cmd.OutOrStdout())
			out.SetIndent("", "  ")
			return out.Encode(rego.Capabilities())
		},
	}
}
