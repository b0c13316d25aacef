package workbench

import (
	"github.com/spf13/cobra"
	"io/fs"

	"github.com/stockade-dev/stockade/rego"
)

func (b *bench) diff() *cobra.Command {
	var f from
	var failOn []string
	cmd := &cobra.Command{
		Use:   "diff BEFORE [AFTER]",
		Short: "Compare two revisions: rules, data, and what they answer, field by field",
		Long: `diff lists the rules and the data in which two policies differ, and puts the same
questions to both: those that the tests and fixtures of AFTER and BEFORE ask, some that are usual, or with
--state or --records those that were recorded. Of what both allow it compares the grants field
by field. Without AFTER the shipped library is AFTER.

Exit codes: 0 done, 1 what --fail-on names has happened, 2 it could not be done.`,
		Example: `  stockade policy diff active my-policy
  stockade policy diff --fail-on=widen --json active my-policy
  stockade policy diff --state /var/lib/stockade active my-policy`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			b.stderr = cmd.ErrOrStderr()
			if _, err := fails(failOn, &compared{}); err != nil {
				return err
			}
			before, beforeFS, err := loadTree(args[0])
			if err != nil {
				return err
			}
			defer before.Close()
			after, afterFS, err := loadTree(arg(args[1:]))
			if err != nil {
				return err
			}
			defer after.Close()
			cases, err := b.cases(cmd.Context(), f, afterFS, cmd.InOrStdin())
			if err != nil {
				return err
			}
			if !f.recordedOnly() { // what BEFORE has tests of may be what AFTER has forgotten
				more, err := b.cases(cmd.Context(), from{}, beforeFS, nil)
				if err != nil {
					return err
				}
				cases = append(cases, more...)
			}
			c := compared{Before: before.Digest(), After: after.Digest()}
			if c.Sources, err = sources(beforeFS, afterFS); err != nil {
				return err
			}
			seen := map[string]bool{}
			for _, a := range cases {
				in, err := a.Typed()
				if err != nil || in.Request == nil || seen[a.Entrypoint+string(a.Input)] {
					continue // a test's own idea of an input, or the same again
				}
				seen[a.Entrypoint+string(a.Input)] = true
				ctx := cmd.Context()
				c.add(a.Name, in, before.Decide(ctx, a.Entrypoint, in), after.Decide(ctx, a.Entrypoint, in))
			}
			return b.judgeCompared(cmd, &c, failOn)
		},
	}
	f.flags(cmd, b, true)
	failOnFlag(cmd, &failOn)
	return cmd
}

func sources(before, after fs.FS) ([]rego.SourceChange, error) {
	b, err := rego.ReadBundle(before)
	if err != nil {
		return nil, err
	}
	a, err := rego.ReadBundle(after)
	if err != nil {
		return nil, err
	}
	return rego.DiffBundles(b, a), nil
}
