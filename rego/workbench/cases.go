package workbench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"github.com/stockade-dev/stockade/rego"
	"github.com/stockade-dev/stockade/sandbox"
	"github.com/stockade-dev/stockade/supervisor/api"
)

// fixturesDir is where a policy keeps questions beside its tests: files of JSON lines, each
// {"name": …, "input": {…}, "allow": true}. They decide nothing, and are not part of its digest.
const fixturesDir = "fixtures"

// aCase is a question and, where somebody has said so, what the answer must be.
type aCase struct {
	rego.Case
	allow *bool
	was   *rego.Decision // as it was recorded
}

// line is a case in a file: of ours, or of a decision log as it is exported.
type line struct {
	Name       string         `json:"name"`
	Allow      *bool          `json:"allow"`
	Input      jsontext.Value `json:"input"`
	IntentID   string         `json:"intent_id"`
	DecisionID string         `json:"decision_id"`
	Result     *recorded      `json:"result"`
	Masked     []string       `json:"masked"`
	Erased     []string       `json:"erased"`
}

// recorded is the result of a decision in a decision log.
type recorded struct {
	Allow       bool             `json:"allow"`
	Deny        []api.Deny       `json:"deny"`
	Warn        []string         `json:"warn"`
	Grant       *api.Grant       `json:"grant"`
	Limits      rego.ExecLimits  `json:"limits"`
	Obligations rego.Obligations `json:"obligations"`
}

// readCases reads JSON lines. Those of which something was masked are left out, and counted: they cannot be asked again. What is left out of the input is what every request has.
func readCases(name string, r io.Reader) (cases []aCase, masked int64, err error) {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 16<<20)
	for n := 1; lines.Scan(); n++ {
		if strings.TrimSpace(lines.Text()) == "" {
			continue
		}
		var l line
		if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
			return nil, 0, fmt.Errorf("%s:%d: %w", name, n, err)
		}
		if len(l.Masked)+len(l.Erased) > 0 {
			masked++ // what policy was told is not there any more
			continue
		}
		c := aCase{allow: l.Allow}
		c.Name = firstOf(l.Name, l.IntentID, l.DecisionID, fmt.Sprintf("%s:%d", name, n))
		c.Input, c.Entrypoint = l.Input, rego.EntrypointFor(l.Input)
		if c.Entrypoint == "" {
			return nil, 0, fmt.Errorf("%s:%d: the input has no request.op that policy is asked about", name, n)
		}
		if in, err := c.Typed(); err == nil && in.Request != nil {
			if c.Input, err = completed(in); err != nil {
				return nil, 0, fmt.Errorf("%s:%d: %w", name, n, err)
			}
		}
		if l.Result != nil {
			c.was = &rego.Decision{
				Allow: l.Result.Allow, Deny: l.Result.Deny, Warn: l.Result.Warn,
				Grant: l.Result.Grant, Limits: l.Result.Limits, Obligations: l.Result.Obligations,
			}
		}
		cases = append(cases, c)
	}
	if err := lines.Err(); err != nil {
		return nil, 0, fmt.Errorf("%s: %w", name, err)
	}
	return cases, masked, nil
}

func firstOf(names ...string) string {
	i := slices.IndexFunc(names, func(n string) bool { return n != "" })
	return names[i]
}

// completed is an input with the operator's usual ceiling and a time, where it says nothing of them.
func completed(in rego.Input) (jsontext.Value, error) {
	if none, err := api.Encode(in.Ceiling); err == nil && string(none) == noCeiling {
		in.Ceiling = sandbox.DefaultCeiling()
	}
	if in.NowNS == 0 {
		in.NowNS = someTime
	}
	if in.Request.Facade == "" {
		in.Request.Facade = "http"
	}
	return api.Encode(in)
}

// someTime is when the cases take place that do not say when.
const someTime = 1_700_000_000_000_000_000

var noCeiling = func() string {
	text, err := api.Encode(sandbox.Ceiling{})
	if err != nil {
		panic("bug: " + err.Error())
	}
	return string(text)
}()

// from says where cases come from.
type from struct {
	state    string
	files    []string
	fixtures bool // without the other two, and beside them when asked for
	most     int
}

func (f *from) flags(cmd *cobra.Command, b *bench, fixtures bool) {
	cmd.Flags().StringVar(&f.state, "state", "", "take the decisions that are recorded in this state directory")
	cmd.Flags().StringArrayVar(&f.files, "records", nil, "take the decisions of a file of JSON lines, as exported; - reads standard input")
	if fixtures {
		cmd.Flags().BoolVar(&f.fixtures, "fixtures", false, "take the policy's own cases too, beside those that are recorded")
	}
}

func (f from) recordedOnly() bool { return (f.state != "" || len(f.files) > 0) && !f.fixtures }

// cases collects them: what is recorded, and what the policy's tests and fixtures ask, with what is usual.
func (b *bench) cases(ctx context.Context, f from, fsys fs.FS, stdin io.Reader) ([]aCase, error) {
	var cases []aCase
	err := b.eachRecorded(f, stdin, func(c aCase) error {
		cases = append(cases, c)
		return nil
	})
	if err != nil || f.recordedOnly() {
		return cases, err
	}
	bundle, err := rego.ReadBundle(fsys)
	if err != nil {
		return nil, err
	}
	asked, err := bundle.Cases(ctx)
	if err != nil {
		return nil, err
	}
	for _, c := range asked {
		cases = append(cases, aCase{Case: c})
	}
	files, err := fs.Glob(fsys, fixturesDir+"/*.jsonl")
	if err != nil {
		return nil, err
	}
	for _, name := range files {
		file, err := fsys.Open(name)
		if err != nil {
			return nil, err
		}
		more, _, err := readCases(name, file)
		file.Close()
		if err != nil {
			return nil, err
		}
		cases = append(cases, more...)
	}
	usual, err := usualCases()
	return append(cases, usual...), err
}

var errNoRecords = errors.New("this program does not read state directories: use stockaded, or an export with --records")

// eachRecorded calls fn with what a state directory and files have.
func (b *bench) eachRecorded(f from, stdin io.Reader, fn func(aCase) error) error {
	if f.state != "" {
		if b.opts.All == nil {
			return errNoRecords
		}
		left, err := b.opts.All(f.state, func(r Record) error {
			c, err := rego.CaseOf(r.IntentID, r.Input)
			if err != nil {
				return err
			}
			c.Entrypoint = r.Entrypoint
			return fn(aCase{Case: c, was: &r.Decision})
		})
		if err != nil {
			return fmt.Errorf("records of %s: %w", f.state, err)
		}
		if left > 0 {
			b.note("%d recorded decisions are left out: too large to have been kept, or trimmed", left)
		}
	}
	for _, name := range f.files {
		r := io.NopCloser(stdin)
		if name != "-" {
			file, err := os.Open(name)
			if err != nil {
				return err
			}
			r = file
		}
		cases, masked, err := readCases(name, r)
		r.Close()
		if err != nil {
			return err
		}
		if masked > 0 {
			b.note("%d decisions of %s are left out: something of them was masked", masked, name)
		}
		for _, c := range cases {
			if err := fn(c); err != nil {
				return err
			}
		}
	}
	return nil
}

// note tells a person something that is not the result.
func (b *bench) note(format string, args ...any) {
	if b.stderr != nil {
		fmt.Fprintf(b.stderr, "note: "+format+"\n", args...)
	}
}

// progress tells a person at a terminal how far long work is.
func (b *bench) progress(what string) func(done, all int) {
	if b.stderr == nil || b.json || !terminal(b.stderr) {
		return nil
	}
	last := -1
	return func(done, all int) {
		if percent := done * 100 / max(all, 1); percent != last {
			last = percent
			end := "\r"
			if done == all {
				end = "\n"
			}
			fmt.Fprintf(b.stderr, "%s %d of %d%s", what, done, all, end)
		}
	}
}

func terminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
