// Package workbench is the author's side of policy, as the commands of "stockade
// policy": write a policy, check it, test it, ask it for one decision, and ask why it
// decided as it did.
//
// It promises that a policy is judged here as it will be in the supervisor: the same
// engine, the same builtins, the same digest. Only learn talks to a supervisor.
package workbench

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"github.com/stockade-dev/stockade/policies"
	"github.com/stockade-dev/stockade/rego"
	"github.com/stockade-dev/stockade/rego/bundle"
)

// ErrFinding is why a command ends with exit code 1: it did its work, and printed
// something that is not fine: a lint, a failed test, a denial.
var ErrFinding = errors.New("the policy needs a look")

// ExitCode is 0 for nil, 1 for a finding and 2 for everything else.
func ExitCode(err error) int {
	switch {
	case err == nil:
		return 0
	case errors.Is(err, ErrFinding):
		return 1
	}
	return 2
}

// Record is a decision as it was recorded.
type Record struct {
	IntentID     string
	Entrypoint   string
	PolicyDigest string
	Input        rego.Input
	InputDigest  string // of the canonical bytes of Input
	Decision     rego.Decision
}

// RecordSource finds the decision about an intent in a state directory.
type RecordSource func(stateDir, intentID string) (Record, error)

// PolicySource finds a revision that a state directory keeps, by its digest.
type PolicySource func(stateDir, digest string) (fs.FS, error)

// EachRecord calls fn with every decision in a state directory that can be rebuilt, and counts the others.
type EachRecord func(stateDir string, fn func(Record) error) (left int64, err error)

// Options of the commands.
type Options struct {
	Records  RecordSource                 // nil: why explains receipts only
	All      EachRecord                   // nil: replay and audit know exports only
	Policy   PolicySource                 // nil: why knows the revisions that it is shown only
	Dial     func(socket string) Sessions // nil: there is no learn
	Socket   string                       // default of --socket
	StateDir string                       // default of --state
}

// Command returns the command "policy".
func Command(opts Options) *cobra.Command {
	b := &bench{opts: opts}
	cmd := &cobra.Command{
		Use:   "policy",
		Short: "Write, check, test and question policy",
		Long: `The commands judge a policy as the supervisor will: the same engine, the same
builtins, the same digest. Exit codes: 0 fine, 1 a finding (a lint, a failed test, a
denial), 2 the command could not do its work.`,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	cmd.PersistentFlags().BoolVar(&b.json, "json", false, "print one JSON document")
	cmd.AddCommand(
		b.init(), b.check(), b.test(), b.eval(), b.why(), b.schema(), b.capabilities(), b.audit(), b.replay(), b.diff(), b.bench(), b.learn(),
		b.keygen(), b.sign(),
	)
	return cmd
}

type bench struct {
	opts   Options
	json   bool
	stderr io.Writer // for what is not the result; nil before a command runs
}

// print writes v as JSON, or has text write it for a person.
func (b *bench) print(cmd *cobra.Command, v any, text func()) error {
	if !b.json {
		text()
		return nil
	}
	out := cmd.OutOrStdout()
	if err := json.MarshalWrite(out, v, json.Deterministic(true), jsontext.WithIndent("  ")); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	fmt.Fprintln(out)
	return nil
}

// loadTree loads the policy in dir, or the shipped library.
func loadTree(dir string) (*rego.Engine, fs.FS, error) {
	fsys, err := tree(dir)
	if err != nil {
		return nil, nil, err
	}
	engine, err := load(dir)
	return engine, fsys, err
}

// tree is the policy in dir, which may be a bundle's tarball, or the shipped library.
func tree(dir string) (fs.FS, error) {
	if dir == "" {
		return policies.FS, nil
	}
	if info, err := os.Stat(dir); err != nil {
		return nil, err
	} else if info.IsDir() {
		return os.DirFS(dir), nil
	}
	r, err := bundle.Open(dir, bundle.Trust{Owner: uint32(os.Geteuid())})
	if err != nil {
		return nil, err
	}
	return r.FS, nil
}
