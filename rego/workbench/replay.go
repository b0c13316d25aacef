package workbench

import (
	"context"
	"fmt"
	"io"
	"slices"
	"sort"
	"strings"

	"github.com/spf13/cobra"

	"github.com/stockade-dev/stockade/rego"
	"github.com/stockade-dev/stockade/supervisor/api"
)

// compared is the result of replay and diff.
type compared struct {
	Before    string              `json:"before,omitempty"` // digest
	After     string              `json:"after"`
	Decisions int                 `json:"decisions"`
	Same      int                 `json:"same"`
	Opened    int                 `json:"deny_to_allow"`
	Closed    int                 `json:"allow_to_deny"`
	Wider     int                 `json:"wider"` // of those that both allow
	Narrower  int                 `json:"narrower"`
	Other     int                 `json:"other"`
	Fields    []fieldCount        `json:"fields,omitempty"`
	Changes   []changed           `json:"changes,omitempty"`
	Sources   []rego.SourceChange `json:"sources,omitempty"` // of diff
}

// fieldCount is in how many decisions one field differs.
type fieldCount struct {
	Field  string      `json:"field"`
	Effect rego.Effect `json:"effect"`
	Count  int         `json:"count"`
}

// changed is one decision that would be another one.
type changed struct {
	Case        string            `json:"case"` // intent id, or name of a fixture
	Op          api.Op            `json:"op,omitempty"`
	UID         uint32            `json:"uid"`
	Effect      rego.Effect       `json:"effect"`
	Differences []rego.Difference `json:"differences"`
	Deny        []api.Deny        `json:"deny,omitempty"` // of whichever of the two denies
}

// effective is a decision as the session would know it: a grant met with its request and the ceiling.
func effective(in rego.Input, d rego.Decision) rego.Decision {
	if !d.Allow || d.Grant == nil || in.Request == nil || in.Request.Open == nil {
		return d
	}
	grant, _, deny := rego.Meet(in.Request.Open, *d.Grant, in.Ceiling)
	if len(deny) > 0 {
		return rego.Decision{Deny: deny}
	}
	d.Grant = &grant
	return d
}

func (c *compared) add(name string, in rego.Input, before, after rego.Decision) {
	c.Decisions++
	before, after = effective(in, before), effective(in, after)
	differences := rego.Compare(before, after)
	if len(differences) == 0 {
		c.Same++
		return
	}
	ch := changed{Case: name, Effect: effectOf(differences), Differences: differences, Deny: append(before.Deny, after.Deny...)}
	if in.Request != nil {
		ch.Op, ch.UID = in.Request.Op, in.Request.Principal.UID
	}
	switch {
	case !before.Allow && after.Allow:
		c.Opened++
	case before.Allow && !after.Allow:
		c.Closed++
	case ch.Effect == rego.Wider:
		c.Wider++
	case ch.Effect == rego.Narrower:
		c.Narrower++
	default:
		c.Other++
	}
	c.Changes = append(c.Changes, ch)
	for _, d := range differences {
		i := slices.IndexFunc(c.Fields, func(f fieldCount) bool { return f.Field == d.Field && f.Effect == d.Effect })
		if i < 0 {
			i = len(c.Fields)
			c.Fields = append(c.Fields, fieldCount{Field: d.Field, Effect: d.Effect})
		}
		c.Fields[i].Count++
	}
}

// effectOf is the worst of some differences.
func effectOf(differences []rego.Difference) rego.Effect {
	for _, effect := range []rego.Effect{rego.Wider, rego.Other} {
		if slices.ContainsFunc(differences, func(d rego.Difference) bool { return d.Effect == effect }) {
			return effect
		}
	}
	return rego.Narrower
}

// failing are the ways to fail on a comparison.
var failing = map[string]func(*compared) bool{
	"widen": func(c *compared) bool { return c.Wider+c.Opened > 0 },
	"flip":  func(c *compared) bool { return c.Opened+c.Closed > 0 },
	"any":   func(c *compared) bool { return c.Same != c.Decisions },
}

func fails(failOn []string, c *compared) (bool, error) {
	failed := false
	for _, name := range failOn {
		f, ok := failing[name]
		if !ok {
			return false, fmt.Errorf("--fail-on: %q is none of widen, flip, any", name)
		}
		failed = failed || f(c)
	}
	return failed, nil
}

func (b *bench) replay() *cobra.Command {
	var f from
	var failOn []string
	cmd := &cobra.Command{
		Use:   "replay --state DIR|--records FILE [POLICY]",
		Short: "Ask a candidate what was recorded, and say what would have been otherwise",
		Long: `replay puts every recorded question to the candidate, with the facts, the ceiling and the
time of then, and compares what it says with what was said: flips, and of what both allow each
field of the grant (as it is in force, met with the request and the ceiling) that would be
wider or narrower. Nothing is carried out.

Exit codes: 0 fine, 1 what --fail-on names has happened, 2 it could not be done.
  --fail-on=widen   a denial became an allowance, or a grant grew
  --fail-on=flip    a denial became an allowance, or the other way round
  --fail-on=any     any difference`,
		Example: `  stockade policy replay --state /var/lib/stockade my-policy
  stockade policy replay --records yesterday.jsonl --fail-on=widen my-policy
  stockade receipts export | stockade policy replay --records - --json my-policy`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			b.stderr = cmd.ErrOrStderr()
			if f.state == "" && len(f.files) == 0 {
				f.state = b.opts.StateDir
			}
			if _, err := fails(failOn, &compared{}); err != nil {
				return err
			}
			engine, _, err := loadTree(arg(args))
			if err != nil {
				return err
			}
			defer engine.Close()
			c := compared{After: engine.Digest()}
			show := b.progress("decision")
			err = b.eachRecorded(f, cmd.InOrStdin(), func(a aCase) error {
				if err := cmd.Context().Err(); err != nil {
					return context.Cause(cmd.Context())
				}
				if a.was == nil {
					return fmt.Errorf("%s: what was decided is not recorded", a.Name)
				}
				in, err := a.Typed()
				if err != nil {
					return fmt.Errorf("%s: %w", a.Name, err)
				}
				c.add(a.Name, in, *a.was, engine.Decide(cmd.Context(), a.Entrypoint, in))
				if show != nil {
					show(c.Decisions, c.Decisions+1)
				}
				return nil
			})
			if err != nil {
				return err
			}
			return b.judgeCompared(cmd, &c, failOn)
		},
	}
	f.flags(cmd, b, false)
	failOnFlag(cmd, &failOn)
	return cmd
}

func failOnFlag(cmd *cobra.Command, failOn *[]string) {
	cmd.Flags().StringSliceVar(failOn, "fail-on", nil, "end with 1 on: widen, flip, any")
	_ = cmd.RegisterFlagCompletionFunc("fail-on", cobra.FixedCompletions([]string{"widen", "flip", "any"}, cobra.ShellCompDirectiveNoFileComp))
}

func (b *bench) judgeCompared(cmd *cobra.Command, c *compared, failOn []string) error {
	sort.Slice(c.Fields, func(i, j int) bool { return c.Fields[i].Field < c.Fields[j].Field })
	failed, err := fails(failOn, c)
	if err != nil {
		return err
	}
	if err := b.print(cmd, c, func() { c.text(cmd.OutOrStdout()) }); err != nil {
		return err
	}
	if failed {
		return ErrFinding
	}
	return nil
}

// shownChanges bounds what a person is shown; --json has all.
const shownChanges = 20

func (c *compared) text(out io.Writer) {
	for _, s := range c.Sources {
		fmt.Fprintf(out, "%s %s", s.Change, s.What)
		if s.At != "" {
			fmt.Fprintf(out, " (%s)", s.At)
		}
		if len(s.Before)+len(s.After) > 0 && len(s.Before)+len(s.After) < 200 {
			fmt.Fprintf(out, ": %s → %s", orNone(string(s.Before)), orNone(string(s.After)))
		}
		fmt.Fprintln(out)
	}
	for i, ch := range c.Changes {
		if i == shownChanges {
			fmt.Fprintf(out, "… and %d more (see --json)\n", len(c.Changes)-i)
			break
		}
		fmt.Fprintf(out, "%s %s uid %d\n", ch.Case, ch.Op, ch.UID)
		for _, d := range ch.Differences {
			fmt.Fprintf(out, "    %s\n", d)
		}
		for _, d := range ch.Deny {
			fmt.Fprintf(out, "    denied: %s %s\n", d.Code, d.Subject)
		}
	}
	for _, f := range c.Fields {
		fmt.Fprintf(out, "%6d × %s %s\n", f.Count, f.Effect, f.Field)
	}
	fmt.Fprintf(out, "%d decisions: %d the same, %d denied → allowed, %d allowed → denied, %d wider, %d narrower, %d other\n",
		c.Decisions, c.Same, c.Opened, c.Closed, c.Wider, c.Narrower, c.Other)
}

func orNone(s string) string {
	if strings.TrimSpace(s) == "" {
		return "none"
	}
	return s
}
