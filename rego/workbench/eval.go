package workbench

import (
	"crypto/rand"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/spf13/cobra"

	"github.com/stockade-dev/stockade/rego"
	"github.com/stockade-dev/stockade/sandbox"
	"github.com/stockade-dev/stockade/supervisor/api"
)

// judged is the result of eval and why.
type judged struct {
	Allow       bool             `json:"allow"`
	Deny        []api.Deny       `json:"deny,omitempty"`
	Warn        []string         `json:"warn,omitempty"`
	Grant       *api.Grant       `json:"grant,omitzero"`     // as policy gave it
	Effective   *api.Grant       `json:"effective,omitzero"` // met with the request and the ceiling
	Clamped     []api.Clamp      `json:"clamped,omitempty"`
	Limits      rego.ExecLimits  `json:"limits,omitzero"`
	Obligations rego.Obligations `json:"obligations,omitzero"`
	Policy      api.PolicyRef    `json:"policy"`
	InputDigest string           `json:"input_digest,omitempty"`
	ElapsedNS   int64            `json:"elapsed_ns"`
	Reasons     []rego.Reason    `json:"reasons,omitempty"`
	Notes       []string         `json:"notes,omitempty"`
	Replay      *replayed        `json:"replay,omitzero"`    // of why
	Recorded    *judged          `json:"recorded,omitzero"`  // of why, when another policy is asked
	Smallest    []rego.Least     `json:"smallest,omitempty"` // with which it would be allowed
	GivenUp     []rego.GivenUp   `json:"given_up,omitempty"` // searches for such, of which it is not known whether there is one
}

// question is what the flags of eval say.
type question struct {
	policy, request, op string
	ceiling, facts      string
	session, process    string
	uid, gid            uint32
	now                 int64
}

func (b *bench) eval() *cobra.Command {
	q := question{uid: uint32(os.Getuid()), gid: uint32(os.Getgid())}
	var smallest bool
	cmd := &cobra.Command{
		Use:   "eval --request FILE",
		Short: "Ask a policy for one decision, without a supervisor",
		Long: `eval reads the body of an operation as it would come over the socket, asks the policy,
and says what it grants or, for each denial, which rule made it and what would help.

Facts about host paths are those of --facts; without it the paths that the request
names are looked up here, as the user who runs this. An operation in a session needs the
session, one on an execution the execution too: --session and --process take the
documents that policy sees ({"principal": …, "grant": …} and {"exec_id": …, "state": …,
"argv": …, "labels": …}). A read or an operation without parameters has the body {}.`,
		Example: `  stockade policy eval --request open.json
  stockade policy eval --policy my-policy --uid 1000 --request - < open.json
  stockade policy eval --op host.exec --session session.json --request exec.json --json
  stockade policy eval --op host.process.cancel --session session.json --process process.json --request cancel.json
  stockade policy eval --op host.workspace.commit --session session.json --request commit.json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			engine, err := load(q.policy)
			if err != nil {
				return err
			}
			defer engine.Close()
			in, err := q.input(cmd.InOrStdin())
			if err != nil {
				return err
			}
			ref, ok := rego.Entrypoint(in.Request.Op)
			if !ok {
				return fmt.Errorf("eval: there is no operation %q", q.op)
			}
			d, reasons := engine.Explain(cmd.Context(), ref, in)
			j := b.judge(in, d, reasons)
			if smallest && !d.Allow {
				if j.Smallest, j.GivenUp, err = engine.Least(cmd.Context(), ref, in); err != nil {
					return err
				}
			}
			return b.show(cmd, j)
		},
	}
	f := cmd.Flags()
	f.StringVar(&q.request, "request", "", "the body of the operation; - reads standard input")
	f.StringVar(&q.op, "op", string(api.OpSessionOpen), "the operation")
	f.StringVar(&q.policy, "policy", "", "directory of the policy; the shipped library without it")
	f.StringVar(&q.ceiling, "ceiling", "", "the operator's ceiling; the default one without it")
	f.StringVar(&q.facts, "facts", "", `facts about host paths: {"sources": {PATH: {"resolved": …}}}`)
	f.StringVar(&q.session, "session", "", "the session, for operations in one")
	f.StringVar(&q.process, "process", "", "the execution, for operations on one")
	f.Uint32Var(&q.uid, "uid", q.uid, "uid of the principal")
	f.Uint32Var(&q.gid, "gid", q.gid, "gid of the principal")
	f.Int64Var(&q.now, "now-ns", 0, "time of the decision; the present without it")
	f.BoolVar(&smallest, "smallest", false, "of a denial, search for the smallest changes with which it would be allowed")
	_ = cmd.MarkFlagRequired("request") // fails only for a flag that does not exist
	return cmd
}

func load(dir string) (*rego.Engine, error) {
	fsys, err := tree(dir)
	if err != nil {
		return nil, err
	}
	return loadFS(fsys)
}

// loadFS loads a policy for a person, who waits gladly: the supervisor's deadlines are for bursts of callers.
func loadFS(fsys fs.FS) (*rego.Engine, error) {
	return rego.Load(fsys, rego.Options{Deadline: 5 * time.Second})
}

func (q question) input(stdin io.Reader) (rego.Input, error) {
	op := api.Op(q.op)
	req := &api.Request{Op: op.Canonical(), Principal: api.Principal{UID: q.uid, GID: q.gid}, Facade: "http"}
	if req.Op != op {
		req.RequestedKind = op
	}
	in := rego.Input{Request: req, NowNS: q.now}
	body, err := read(q.request, stdin)
	if err != nil {
		return in, err
	}
	scope, refused := req.SetParameters(body)
	if refused != nil {
		return in, fmt.Errorf("request: %w", refused)
	}
	req.Principal.Scope = scope
	if err := req.Validate(); err != nil {
		return in, fmt.Errorf("request: %w", err)
	}
	salt := make([]byte, 32)
	rand.Read(salt) // secrets of the request are shown to policy as the supervisor shows them
	*req = req.Redact(salt)
	if in.NowNS == 0 {
		in.NowNS = time.Now().UnixNano()
	}
	if in.Ceiling, err = sandbox.LoadCeiling(q.ceiling); err != nil {
		return in, err
	}
	for _, document := range []struct {
		name string
		into any
	}{{q.session, &in.Session}, {q.process, &in.Process}, {q.facts, &in.Facts}} {
		if document.name == "" {
			continue
		}
		if err := readJSON(document.name, document.into); err != nil {
			return in, err
		}
	}
	if q.facts == "" {
		in.Facts = lookUp(req)
	}
	return in, nil
}

// lookUp finds the host paths of an open as this process sees them: near enough to
// what the runner finds under the caller's identity to try a policy out.
func lookUp(req *api.Request) rego.Facts {
	facts := rego.Facts{Sources: map[string]rego.Source{}}
	for _, p := range rego.HostPaths(req) {
		resolved, err := filepath.EvalSymlinks(p)
		if err != nil {
			facts.Sources[p] = rego.Source{Error: api.CodeMountSource}
			continue
		}
		info, err := os.Stat(resolved)
		if err != nil {
			facts.Sources[p] = rego.Source{Error: api.CodeMountSource}
			continue
		}
		found := &rego.Found{Resolved: resolved, Kind: "file", Mode: uint32(info.Mode().Perm())}
		if info.IsDir() {
			found.Kind = "dir"
		}
		if st, ok := info.Sys().(*syscall.Stat_t); ok {
			found.Dev, found.Ino, found.OwnerUID = uint64(st.Dev), st.Ino, st.Uid
		}
		facts.Sources[p] = rego.Source{Found: found}
	}
	return facts
}

// judge is a decision for whoever reads it, with what would be in force.
func (b *bench) judge(in rego.Input, d rego.Decision, reasons []rego.Reason) judged {
	j := judged{
		Allow: d.Allow, Deny: d.Deny, Warn: d.Warn, Grant: d.Grant, Limits: d.Limits, Obligations: d.Obligations,
		Policy: d.Policy, InputDigest: d.InputDigest, ElapsedNS: int64(d.Elapsed), Reasons: reasons,
	}
	if d.Allow && d.Grant != nil {
		effective, clamped, deny := rego.Meet(in.Request.Open, *d.Grant, in.Ceiling)
		j.Effective, j.Clamped = &effective, clamped
		j.Allow, j.Deny = len(deny) == 0, deny
	}
	return j
}

// show prints a decision and ends with a finding when it denies.
func (b *bench) show(cmd *cobra.Command, j judged) error {
	if err := b.print(cmd, j, func() { j.text(cmd.OutOrStdout()) }); err != nil {
		return err
	}
	if !j.Allow {
		return ErrFinding
	}
	return nil
}

func (j judged) text(out io.Writer) {
	if r := j.Replay; r != nil && r.Identical {
		fmt.Fprintf(out, "replayed: input %s and answer are the recorded ones, bit for bit\n", r.Input)
	} else if r != nil {
		fmt.Fprintf(out, "not replayed: %s\n", r.Why)
	}
	for _, n := range j.Notes {
		fmt.Fprintln(out, "note:", n)
	}
	if j.Recorded != nil {
		fmt.Fprint(out, "recorded: ")
		j.Recorded.text(out)
		fmt.Fprint(out, "\nnow: ")
	}
	for _, w := range j.Warn {
		fmt.Fprintln(out, "warning:", w)
	}
	for _, c := range j.Clamped {
		fmt.Fprintf(out, "clamped: %s %d → %d (%s)\n", c.Field, c.Requested, c.Effective, c.Source)
	}
	if j.Allow {
		fmt.Fprintln(out, "allowed by", j.Policy.Digest)
		if a := j.Obligations.RequireApproval; a != nil {
			fmt.Fprintf(out, "when somebody gives leave within %v: %s\n", time.Duration(a.TimeoutNS), a.Reason)
		}
		if j.Effective != nil {
			grant, err := api.Encode(j.Effective)
			if err == nil {
				fmt.Fprintf(out, "grant: %s\n", grant)
			}
		}
		return
	}
	fmt.Fprintln(out, "denied by", j.Policy.Digest)
	explained := map[api.Deny]rego.Reason{}
	for _, r := range j.Reasons {
		explained[r.Deny] = r
	}
	for _, deny := range j.Deny {
		fmt.Fprintf(out, "\n%s %s\n    %s\n", deny.Code, deny.Subject, deny.Message)
		r := explained[deny]
		if r.Rule != "" {
			fmt.Fprintf(out, "    rule: %s", r.Rule)
			if r.Title != "" {
				fmt.Fprintf(out, " (%s)", r.Title)
			}
			fmt.Fprintln(out)
		} else if r.Text != "" {
			fmt.Fprintln(out, "    "+r.Text)
		}
		for _, m := range r.Missing {
			fmt.Fprintln(out, "    undefined:", m)
		}
		for _, remedy := range r.Remedies {
			enough := ""
			if remedy.Sufficient {
				enough = " (and all is allowed)"
			}
			fmt.Fprintf(out, "    would help: %s%s\n", remedy.Change, enough)
		}
	}
	for _, l := range j.Smallest {
		fmt.Fprintf(out, "\nallowed with a smallest change of the %s (found by trying %d):\n", l.Of, l.Tried)
		for _, c := range l.Changes {
			fmt.Fprintln(out, "   ", c)
		}
		for _, d := range l.Differs {
			fmt.Fprintf(out, "    the grant, beside that of the smallest request: %s\n", d)
		}
	}
	for _, g := range j.GivenUp {
		fmt.Fprintf(out, "\nthe search for a smallest change of the %s was given up after trying %d: there may be one\n", g.Of, g.Tried)
	}
	if len(j.Reasons) == 0 && len(j.Policy.Rules) > 0 {
		fmt.Fprintln(out, "\nrules that were evaluated:")
		for _, rule := range slices.Sorted(slices.Values(j.Policy.Rules)) {
			fmt.Fprintln(out, "   ", rule)
		}
	}
}

func read(name string, stdin io.Reader) ([]byte, error) {
	if name == "-" {
		return io.ReadAll(stdin)
	}
	return os.ReadFile(name)
}

func readJSON(name string, into any) error {
	text, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, into, json.RejectUnknownMembers(true)); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}
