package workbench

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/stockade-dev/stockade/rego"
)

func (b *bench) audit() *cobra.Command {
	var f from
	var strict, thorough bool
	cmd := &cobra.Command{
		Use:   "audit [DIR]",
		Short: "Look for what a request gains by leaving something out, or saying it in another form",
		Long: `audit takes cases apart: in each it deletes, retypes, negates, enlarges, empties and doubles
every member of the request, and of what the supervisor says of the session, the execution
and the facts; it puts other directories in the place of paths; and it asks the policy again. What
was denied and is now allowed, or gets a wider grant than by asking for it, is a hole: an
error, with the rule that fell silent. One that the engine refuses all the same, because a
builtin fails or the answer is malformed, is a warning. What a rule's METADATA accepts
(custom: {audit: {/request/open/labels/team: "why"}}) is shown, and no finding.

The cases are those that the policy's tests ask, those of DIR/fixtures/*.jsonl, some that are usual,
and with --state or --records those that were recorded. Without DIR it looks at the shipped library.

Exit codes: 0 no error, 1 an error (with --strict, or a warning), 2 it could not be done.`,
		Example: `  stockade policy audit my-policy
  stockade policy audit --thorough my-policy
  stockade policy audit --strict --json my-policy
  stockade policy audit --state /var/lib/stockade --fixtures my-policy`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			b.stderr = cmd.ErrOrStderr()
			engine, fsys, err := loadTree(arg(args))
			if err != nil {
				return err
			}
			defer engine.Close()
			all, err := b.cases(cmd.Context(), f, fsys, cmd.InOrStdin())
			if err != nil {
				return err
			}
			if len(all) == 0 {
				return fmt.Errorf("audit: there is no case to look at")
			}
			got, err := engine.Audit(cmd.Context(), distinct(all), rego.AuditOptions{Thorough: thorough, Progress: b.progress("case")})
			if err != nil {
				return err
			}
			if err := b.print(cmd, got, func() { auditText(cmd.OutOrStdout(), got) }); err != nil {
				return err
			}
			if slices.ContainsFunc(got.Holes, func(h rego.Hole) bool { return h.Level == "error" || strict && h.Level == "warning" }) {
				return ErrFinding
			}
			return nil
		},
	}
	f.flags(cmd, b, true)
	cmd.Flags().BoolVar(&thorough, "thorough", false, "do the same to the same value again where another case is denied for the same reason")
	cmd.Flags().BoolVar(&strict, "strict", false, "warnings are findings too")
	return cmd
}

// distinct leaves out cases that are the same but for names and times, which records are full of.
func distinct(all []aCase) []rego.Case {
	seen := map[string]bool{}
	var cases []rego.Case
	for _, c := range all {
		key := c.Entrypoint + string(c.Input)
		if in, err := c.Typed(); err == nil && in.Request != nil && c.was != nil {
			in.NowNS = 0
			if in.Session != nil {
				in.Session.SessionID, in.Session.StartedAtNS, in.Session.ExpiresAtNS = "", 0, 0
				in.Session.Executions, in.Session.LiveExecutions = 0, 0
			}
			if in.Process != nil {
				in.Process.ExecID, in.Process.IntentID, in.Process.QueuedAtNS, in.Process.StartedAtNS = "", "", 0, 0
			}
			if x := in.Request.Exec; x != nil {
				x.SessionID, in.Request.Key = "", ""
			}
			if anonymous, err := rego.CaseOf("", in); err == nil {
				key = c.Entrypoint + string(anonymous.Input)
			}
		}
		if !seen[key] {
			seen[key] = true
			cases = append(cases, c.Case)
		}
	}
	return cases
}

func auditText(out io.Writer, got rego.Audited) {
	errs, accepted := 0, 0
	for _, h := range got.Holes {
		at, _, _ := strings.Cut(h.Rule, " ")
		if at == "" {
			at = "policy"
		}
		fmt.Fprintf(out, "%s: %s: %s %s (%s)\n", at, h.Level, h.Effect, h.Field, strings.Join(h.Change, ", "))
		if h.Title != "" {
			fmt.Fprintf(out, "    rule: %s\n", h.Title)
		}
		fmt.Fprintf(out, "    %s\n", h.Message)
		for _, d := range h.Wider {
			fmt.Fprintf(out, "    %s\n", d)
		}
		switch h.Level {
		case "error":
			errs++
		case "accepted":
			accepted++
			fmt.Fprintf(out, "    accepted: %s\n", h.Reason)
		default:
			fmt.Fprintf(out, "    the engine refuses it: %s\n", h.Caught)
		}
		fmt.Fprintf(out, "    as in: %s (%d)\n", h.Case, h.Count)
	}
	fmt.Fprintf(out, "%d cases, %d questions, %d errors, %d warnings, %d accepted\n", got.Cases, got.Questions, errs, len(got.Holes)-errs-accepted, accepted)
}
