package workbench

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/stockade-dev/stockade/rego"
)

// checked is the result of check.
type checked struct {
	Digest   string         `json:"digest,omitempty"`
	Modules  int            `json:"modules"`
	Tests    int            `json:"tests"`
	Findings []rego.Finding `json:"findings,omitempty"`
}

func (b *bench) check() *cobra.Command {
	var strict bool
	cmd := &cobra.Command{
		Use:   "check [DIR]",
		Short: "Parse and compile a policy as the supervisor does, and look for what goes wrong in practice",
		Long: `check reports what would keep the policy from loading (syntax, builtins that are not
available, missing entry points) as errors, and what loads but goes wrong in practice
as warnings: an entry point without a default, a denial without a code, a rule
without METADATA, and a negation around something that may be undefined.
Without DIR it checks the shipped library.`,
		Example: `  stockade policy check my-policy
  stockade policy check --strict --json my-policy`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			fsys, err := tree(arg(args))
			if err != nil {
				return err
			}
			var c checked
			bundle, err := rego.ReadBundle(fsys) // its tests too, which an engine has no use for
			if err == nil {
				c.Digest, c.Modules, c.Tests = bundle.Digest, len(bundle.Modules), len(bundle.Tests)
				c.Findings = bundle.Lint()
				var engine *rego.Engine
				if engine, err = rego.Load(fsys, rego.Options{}); err == nil {
					engine.Close()
				}
			}
			failed := err != nil || strict && len(c.Findings) > 0
			for _, e := range split(err) {
				c.Findings = append(c.Findings, rego.Finding{Level: "error", Message: e.Error()})
			}
			err = b.print(cmd, c, func() {
				for _, f := range c.Findings {
					fmt.Fprintln(cmd.OutOrStdout(), f)
				}
				if !failed {
					fmt.Fprintf(cmd.OutOrStdout(), "%d modules, %d with tests, %s\n", c.Modules, c.Tests, c.Digest)
				}
			})
			if err == nil && failed {
				return ErrFinding
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&strict, "strict", false, "warnings are findings too")
	return cmd
}

func arg(args []string) string {
	if len(args) == 0 {
		return ""
	}
	return args[0]
}

// split undoes errors.Join.
func split(err error) []error {
	if err == nil {
		return nil
	}
	var joined interface{ Unwrap() []error }
	if !errors.As(err, &joined) {
		return []error{err}
	}
	var all []error
	for _, e := range joined.Unwrap() {
		all = append(all, split(e)...)
	}
	return all
}
