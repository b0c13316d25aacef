package workbench

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"maps"
	"regexp"
	"slices"

	"github.com/spf13/cobra"

	"github.com/stockade-dev/stockade/rego"
)

// tested is the result of test.
type tested struct {
	Passed     int       `json:"passed"`
	Failed     int       `json:"failed"`
	Skipped    int       `json:"skipped,omitzero"`
	Tests      []outcome `json:"tests"`
	Coverage   float64   `json:"coverage,omitzero"`    // per cent of the expressions
	NotCovered []string  `json:"not_covered,omitzero"` // file:line
}

type outcome struct {
	Name    string `json:"name"`
	At      string `json:"at"` // file:line
	Outcome string `json:"outcome"`
	Error   string `json:"error,omitempty"`
	Output  string `json:"output,omitempty"` // of print
	NS      int64  `json:"ns"`
}

func (b *bench) test() *cobra.Command {
	var opts rego.TestOptions
	var verbose bool
	var under float64
	cmd := &cobra.Command{
		Use:   "test [DIR]",
		Short: "Run the tests of a policy (*_test.rego) under the rules by which it decides",
		Long: `test runs every rule whose name begins with test_. The builtins are those that a policy
may call, and one that fails makes its test fail, because it makes a decision a denial.
A line of DIR/fixtures/*.jsonl that says "allow" is a test as well.
Without DIR it tests the shipped library.`,
		Example: `  stockade policy test my-policy
  stockade policy test --fail-under 90 my-policy
  stockade policy test --run 'mount' --coverage my-policy`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			opts.Coverage = opts.Coverage || under > 0
			fsys, err := tree(arg(args))
			if err != nil {
				return err
			}
			bundle, err := rego.ReadBundle(fsys)
			if err != nil {
				return err
			}
			results, report, err := bundle.Test(cmd.Context(), opts)
			if err != nil {
				return err
			}
			t := tested{Tests: []outcome{}}
			for _, r := range results {
				o := outcome{
					Name: r.Package[len("data."):] + "." + r.Name, At: fmt.Sprintf("%s:%d", r.Location.File, r.Location.Row),
					Outcome: "pass", Output: string(r.Output), NS: int64(r.Duration),
				}
				switch {
				case r.Skip:
					o.Outcome = "skip"
					t.Skipped++
				case r.Pass():
					t.Passed++
				default:
					o.Outcome = "fail"
					t.Failed++
				}
				if r.Error != nil {
					o.Error = r.Error.Error()
				}
				t.Tests = append(t.Tests, o)
			}
			for _, o := range fixtureOutcomes(cmd.Context(), fsys, opts.Run) {
				if o.Outcome == "pass" {
					t.Passed++
				} else {
					t.Failed++
				}
				t.Tests = append(t.Tests, o)
			}
			if report != nil {
				t.Coverage = report.Coverage
				for _, name := range slices.Sorted(maps.Keys(report.Files)) {
					for _, r := range report.Files[name].NotCovered {
						t.NotCovered = append(t.NotCovered, fmt.Sprintf("%s:%d", name, r.Start.Row))
					}
				}
				t.NotCovered = slices.Compact(t.NotCovered)
			}
			err = b.print(cmd, t, func() { t.text(cmd, verbose, opts.Coverage) })
			short := opts.Coverage && t.Coverage < under
			if short && !b.json {
				fmt.Fprintf(cmd.OutOrStdout(), "%.1f %% is under the %.1f %% that are asked for\n", t.Coverage, under)
			}
			if err == nil && (t.Failed > 0 || len(t.Tests) == 0 || short) { // no test is no proof
				return ErrFinding
			}
			return err
		},
	}
	cmd.Flags().StringVar(&opts.Run, "run", "", "regular expression on the names of tests")
	cmd.Flags().BoolVar(&opts.Coverage, "coverage", false, "say which lines no test reaches")
	cmd.Flags().Float64Var(&under, "fail-under", 0, "the least per cent of the expressions that tests must reach; less is exit code 1")
	cmd.Flags().BoolVarP(&verbose, "verbose", "v", false, "name the tests that pass, too")
	return cmd
}

// fixtureOutcomes asks the fixtures that say what the answer must be.
func fixtureOutcomes(ctx context.Context, fsys fs.FS, run string) []outcome {
	fail := func(name string, err error) []outcome {
		return []outcome{{Name: name, At: name, Outcome: "fail", Error: err.Error()}}
	}
	pattern, err := regexp.Compile(run)
	if err != nil {
		return fail("--run", err)
	}
	files, err := fs.Glob(fsys, fixturesDir+"/*.jsonl")
	if err != nil {
		return fail(fixturesDir, err)
	}
	if len(files) == 0 {
		return nil
	}
	engine, err := loadFS(fsys)
	if err != nil {
		return fail(fixturesDir, err)
	}
	defer engine.Close()
	var list []outcome
	for _, file := range files {
		text, err := fs.ReadFile(fsys, file)
		if err != nil {
			return fail(file, err)
		}
		cases, _, err := readCases(file, bytes.NewReader(text))
		if err != nil {
			return fail(file, err)
		}
		for i, c := range cases {
			o := outcome{Name: "fixture " + c.Name, At: fmt.Sprintf("%s:%d", file, i+1), Outcome: "pass"}
			if c.allow == nil || !pattern.MatchString(o.Name) {
				continue
			}
			in, err := c.Typed()
			d := effective(in, engine.Decide(ctx, c.Entrypoint, in))
			o.NS = int64(d.Elapsed)
			switch {
			case err != nil:
				o.Outcome, o.Error = "fail", err.Error()
			case d.Allow != *c.allow:
				o.Outcome, o.Error = "fail", fmt.Sprintf("allow is %t: %v", d.Allow, d.Deny)
			}
			list = append(list, o)
		}
	}
	return list
}

func (t tested) text(cmd *cobra.Command, verbose, coverage bool) {
	out := cmd.OutOrStdout()
	for _, o := range t.Tests {
		if o.Outcome != "fail" && !verbose {
			continue
		}
		fmt.Fprintf(out, "%s %s %s\n", o.Outcome, o.At, o.Name)
		for _, s := range []string{o.Error, o.Output} {
			if s != "" {
				fmt.Fprintf(out, "     %s\n", s)
			}
		}
	}
	for _, at := range t.NotCovered {
		fmt.Fprintf(out, "not covered: %s\n", at)
	}
	fmt.Fprintf(out, "%d passed, %d failed", t.Passed, t.Failed)
	if coverage {
		fmt.Fprintf(out, ", %.1f %% covered", t.Coverage)
	}
	fmt.Fprintln(out)
}
