package workbench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/stockade-dev/stockade/sandbox"
	"github.com/stockade-dev/stockade/supervisor/api"
)

// Sessions is the part of a supervisor's client that learn works with.
type Sessions interface {
	Open(context.Context, api.SessionOpen) (*api.Receipt, error)
	Exec(context.Context, api.Exec) (*api.Receipt, error)
	Narrow(context.Context, api.SessionNarrow) (*api.Receipt, error)
	Changes(context.Context, api.Workspace) iter.Seq2[api.Change, error]
	Close(context.Context, api.SessionClose) (*api.Receipt, error)
}

// learned is the result of learn.
type learned struct {
	Name     string          `json:"name"`
	Dir      string          `json:"dir"`
	Command  []string        `json:"command"`
	Runs     int             `json:"runs"`
	Observed observed        `json:"observed"`
	Request  api.SessionOpen `json:"request"` // with which the command runs under the policy that was written
	Run      string          `json:"run"`     // the same as a command line
	Tests    []string        `json:"tests"`   // what is tested: what must be allowed, and what must not
}

// observed is what was seen of a command, and by what.
type observed struct {
	Mounts       []seenMount       `json:"mounts,omitempty"`
	Destinations []api.Destination `json:"destinations,omitempty"`
	Refused      []string          `json:"refused,omitempty"` // of the network: not even the broad grant has it
	Denials      []api.Denial      `json:"denials,omitempty"` // what other layers refused although the command ended well
	LimitsHit    []api.LimitHit    `json:"limits_hit,omitempty"`
	MemoryBytes  int64             `json:"peak_memory_bytes"`
	PIDs         int64             `json:"pids"` // with fewer it does not end well; 0: not tried
	WallNS       int64             `json:"wall_ns"`
	CPUNS        int64             `json:"cpu_ns"`
	OutputBytes  int64             `json:"output_bytes"`
	Unobserved   []string          `json:"unobserved"` // what no layer reports, and what is granted in its stead
}

// seenMount is a mount of the broad grant.
type seenMount struct {
	HostPath  string `json:"host_path"`
	GuestPath string `json:"guest_path"`
	Needed    bool   `json:"needed"` // without it the command ends otherwise; true where that was not tried
	Changes   int64  `json:"changes"`
	Bytes     int64  `json:"bytes"` // of what was written
}

// learning is one run of learn.
type learning struct {
	*bench
	sessions Sessions
	ctx      context.Context
	name     string
	profile  string
	mounts   []string
	network  string
	workdir  string
	timeout  time.Duration
	trials   bool
	argv     []string
	runs     int
}

var learnedName = regexp.MustCompile(`^[a-z][a-z0-9_]{0,31}$`)

func (b *bench) learn() *cobra.Command {
	l := learning{bench: b}
	var dir, base, socket string
	cmd := &cobra.Command{
		Use:   "learn NAME --out DIR [flags] -- CMD [ARG…]",
		Short: "Run a command under a broad grant, and write the policy that it needs",
		Long: `learn opens sessions at a running supervisor, whose policy has to grant what the command may
need: it asks for the mounts as overlays, so that nothing outside changes, and runs the command
in them, several times. From the receipts it takes what was written, which destinations were
reached, and the peaks; a mount, and a number of processes, are needed if the command does not end well without
them. What no layer reports is said, and granted as it was in the broad session.

DIR becomes a policy: the rules of the shipped library, or of --base, with a profile NAME that is
every principal's only one, tests and fixtures, of which some must be denied. Only data and tests are written, no
rules; the tests of the base, which are of its data, are left out. The new ones have run when learn ends.

The command has to end with 0, and to be one that can run more than once.`,
		Example: `  stockade policy learn build --mount .:/work --workdir /work --out build-policy -- make test
  stockade policy learn fetch --network egress --out fetch-policy -- curl -sS https://example.org/`,
		Args: cobra.MinimumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			b.stderr = cmd.ErrOrStderr()
			l.name, l.argv, l.ctx = args[0], args[1:], cmd.Context()
			switch {
			case !learnedName.MatchString(l.name):
				return fmt.Errorf("learn %q: a name is lower case letters, digits and _", l.name)
			case dir == "":
				return errors.New("learn: name the policy to write with --out")
			case b.opts.Dial == nil:
				return errors.New("learn: this program speaks to no supervisor: use stockaded")
			}
			if entries, err := os.ReadDir(dir); err == nil && len(entries) > 0 {
				return fmt.Errorf("%s is not empty", dir)
			}
			fsys, err := tree(base)
			if err != nil {
				return err
			}
			l.sessions = b.opts.Dial(cmp.Or(socket, b.opts.Socket))
			got, ask, err := l.observe()
			if err != nil {
				return fmt.Errorf("learn: %w", err)
			}
			result, err := l.write(dir, fsys, got, ask)
			if err != nil {
				return fmt.Errorf("learn: %w", err)
			}
			return b.print(cmd, result, func() { result.text(cmd.OutOrStdout()) })
		},
	}
	f := cmd.Flags()
	f.StringVar(&dir, "out", "", "directory of the policy that is written")
	f.StringVar(&base, "base", "", "policy to which the profile is added; the shipped library without it")
	f.StringVar(&socket, "socket", "", "the supervisor's socket (STOCKADE_SOCKET)")
	f.StringVar(&l.profile, "profile", "", "profile of the broad sessions (default: policy chooses)")
	f.StringArrayVar(&l.mounts, "mount", nil, "host directory that the command may need, SRC[:DST]; seen as an overlay (repeatable)")
	f.StringVar(&l.workdir, "workdir", "", "directory inside in which the command starts")
	f.StringVar(&l.network, "network", "none", "what of the network the command may need: none, or egress, of what the broad profile lists")
	f.DurationVar(&l.timeout, "timeout", 0, "of one run (default: the grant's)")
	f.BoolVar(&l.trials, "trials", true, "run again without each mount, and with fewer processes")
	_ = cmd.RegisterFlagCompletionFunc("network", cobra.FixedCompletions([]string{"none", "egress"}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// ask is the request of the broad session.
func (l *learning) ask() (api.SessionOpen, error) {
	local := &api.Local{Workdir: l.workdir}
	if l.network != "none" {
		local.NetworkMode = l.network
	}
	for _, m := range l.mounts {
		source, target, ok := strings.Cut(m, ":")
		host, err := filepath.Abs(source)
		if err != nil {
			return api.SessionOpen{}, err
		}
		if !ok {
			target = host
		}
		local.Mounts = append(local.Mounts, api.Mount{HostPath: host, GuestPath: target, Mode: api.ModeOverlay})
	}
	return api.SessionOpen{Profile: l.profile, Target: api.Target{Local: local}, Labels: map[string]string{"stockade.learn": l.name}}, nil
}

// seen is what one run of the command showed.
type seen struct {
	result  *api.ExecResult
	grant   *api.Grant
	changes map[string][2]int64 // by inside path of the mount: how many, and their bytes
}

func (s *seen) ok() bool { return s.result.Status == "ok" && s.result.ExitCode == 0 }

// observe runs the command until nothing new is seen, and then with less, to see what it needs.
func (l *learning) observe() (*observed, api.SessionOpen, error) {
	ask, err := l.ask()
	if err != nil {
		return nil, ask, err
	}
	got := &observed{}
	s, err := l.reach(got, ask)
	if err != nil {
		return nil, ask, err
	}
	if !s.ok() {
		return nil, ask, fmt.Errorf("with all of the broad grant the command ends with status %s, exit code %d: %s%s",
			s.result.Status, s.result.ExitCode, s.result.ErrorMessage, tail(s.result.Stderr))
	}
	if l.network != "none" {
		ask.Target.Local.Egress = got.Destinations
		if len(got.Destinations) == 0 {
			ask.Target.Local.NetworkMode = ""
		}
	}
	for _, m := range ask.Target.Local.Mounts {
		written := s.changes[m.GuestPath]
		got.Mounts = append(got.Mounts, seenMount{HostPath: m.HostPath, GuestPath: m.GuestPath, Needed: true, Changes: written[0], Bytes: written[1]})
	}
	r := s.result
	got.MemoryBytes, got.WallNS, got.CPUNS = r.Usage.PeakMemoryBytes, r.Usage.WallNS, r.Usage.CPUNS
	got.OutputBytes, got.LimitsHit = max(r.StdoutBytes, r.StderrBytes), r.LimitsHit
	for _, d := range r.Denials {
		if d.Layer != "network" && d.Layer != "dns" {
			got.Denials = append(got.Denials, d)
		}
	}
	got.Unobserved = []string{
		"files: no layer reports what was only read; a mount is granted whole",
		"system calls: only refusals are reported; the seccomp profile is that of the broad grant",
	}
	if !l.trials {
		got.Unobserved = append(got.Unobserved, "mounts, processes: not tried without; granted as in the broad session")
		return got, ask, nil
	}
	if err := l.tryWithout(got, &ask); err != nil {
		return nil, ask, err
	}
	return got, ask, l.tryFewer(got, ask, s.grant.Ceilings.PIDs)
}

// maxRounds bounds how often the command is run to find where it connects to: once for each destination that it
// learns of only from another.
const maxRounds = 16

// reach runs the command, and where it may reach the network, again and again with what it was refused and the broad
// grant has. A connection that is allowed is counted by the relay, and not named: only a refusal has a name.
func (l *learning) reach(got *observed, ask api.SessionOpen) (*seen, error) {
	if l.network == "none" {
		return l.run(ask, nil, 0)
	}
	for range maxRounds {
		s, err := l.run(ask, &got.Destinations, 0)
		if err != nil {
			return nil, err
		}
		more := false
		for _, d := range s.result.Denials {
			if d.Layer != "network" && d.Layer != "dns" {
				continue
			}
			wanted, ok := destinationOf(d)
			listed := slices.IndexFunc(s.grant.Network.Allow, func(w api.Destination) bool { return ok && covers(w, wanted) })
			switch {
			case listed < 0:
				if !slices.Contains(got.Refused, d.Object) {
					got.Refused = append(got.Refused, d.Object)
				}
			case !slices.ContainsFunc(got.Destinations, func(k api.Destination) bool { return k.Name+k.CIDR == wanted.Name+wanted.CIDR && covers(k, wanted) }):
				wide := s.grant.Network.Allow[listed]
				if wanted.Name != "" {
					wanted.Ports, wanted.Protocol = wide.Ports, wide.Protocol
					if wide.Ports == nil {
						got.Unobserved = append(got.Unobserved, "ports of "+wanted.Name+": the relay names a refused question, and no port; every port is granted, as the broad grant has it")
					}
				}
				got.Destinations = append(got.Destinations, wanted)
				more = true
			}
		}
		if d := left(s.grant.Network.Allow); len(got.Destinations) == 0 && d != nil && s.result.Network != nil && s.result.Network.Connections > 0 {
			got.Destinations, more = append(got.Destinations, *d), true // it was all that there was
		}
		if !more {
			return s, nil
		}
	}
	return nil, fmt.Errorf("after %d runs the command still asks for other destinations", maxRounds)
}

// destinationOf is what a refusal of the network was about.
func destinationOf(d api.Denial) (api.Destination, bool) {
	if place, err := netip.ParseAddrPort(d.Object); err == nil {
		prefix := netip.PrefixFrom(place.Addr(), place.Addr().BitLen())
		return api.Destination{CIDR: prefix.String(), Ports: []uint16{place.Port()}}, true
	}
	wanted := api.Destination{Name: strings.TrimSuffix(d.Object, "."), Ports: nil}
	return wanted, wanted.Validate() == nil
}

func covers(wide, d api.Destination) bool {
	if d.Name != "" {
		d.Ports, d.Protocol = wide.Ports, wide.Protocol // a question has none
	}
	return sandbox.Destination(wide).Covers(sandbox.Destination(d))
}

// run runs the command once in a session of its own. reachable, if not nil, is what it reaches of the network: the
// rest of what is granted is taken away first.
func (l *learning) run(ask api.SessionOpen, reachable *[]api.Destination, pids int64) (s *seen, err error) {
	l.runs++
	l.note("run %d of %s", l.runs, l.argv[0])
	ctx := l.ctx
	receipt, err := l.sessions.Open(ctx, ask)
	if err != nil {
		return nil, err
	}
	if receipt.Payload.Open == nil || receipt.Outcome != api.OutcomeOK {
		return nil, fmt.Errorf("the supervisor's policy does not grant so much: %s", reasons(receipt))
	}
	open := receipt.Payload.Open
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		if _, cerr := l.sessions.Close(closing, api.SessionClose{SessionID: open.SessionID, Mode: "force"}); err == nil && cerr != nil {
			err = cerr
		}
	}()
	if reachable != nil && open.Grant.Network.Mode == "egress" && len(open.Grant.Network.Allow) > 0 {
		network := api.GrantNetwork{Mode: "egress", Allow: *reachable}
		if len(*reachable) == 0 {
			network.Allow = []api.Destination{nowhere(open.Grant.Network.Allow)}
		}
		narrowed, err := l.sessions.Narrow(ctx, api.SessionNarrow{SessionID: open.SessionID, Network: network})
		if err != nil {
			return nil, err
		}
		if narrowed.Outcome != api.OutcomeOK {
			return nil, fmt.Errorf("take the network away to see what is missed: %s", reasons(narrowed))
		}
	}
	exec := api.Exec{SessionID: open.SessionID, Argv: l.argv, TimeoutNS: int64(l.timeout), Limits: api.Limits{PIDs: pids}}
	if receipt, err = l.sessions.Exec(ctx, exec); err != nil {
		return nil, err
	}
	s = &seen{result: receipt.Payload.Exec, grant: open.Grant, changes: map[string][2]int64{}}
	if s.result == nil || receipt.Outcome == api.OutcomeDenied {
		return nil, fmt.Errorf("the command was not run: %s", reasons(receipt))
	}
	for _, m := range open.Grant.Mounts {
		if m.Mode != api.ModeOverlay {
			continue
		}
		for change, err := range l.sessions.Changes(ctx, api.Workspace{SessionID: open.SessionID, GuestPath: m.GuestPath}) {
			if err != nil {
				return nil, fmt.Errorf("look at what was written to %s: %w", m.GuestPath, err)
			}
			n := s.changes[m.GuestPath]
			s.changes[m.GuestPath] = [2]int64{n[0] + 1, n[1] + change.Size}
		}
	}
	return s, nil
}

// nowhere is a part of what is granted that no command means, or at least one port of one destination.
func nowhere(list []api.Destination) api.Destination {
	d := list[0]
	for _, wide := range list {
		if below, ok := strings.CutPrefix(wide.Name, "*."); ok {
			d = wide
			d.Name = "learns-nothing-here." + below
			break
		}
	}
	if d.Ports == nil {
		d.Ports = []uint16{1}
	} else {
		d.Ports = d.Ports[:1]
	}
	return d
}

// left is what nowhere leaves of a list, if that is a destination that somebody listed.
func left(list []api.Destination) *api.Destination {
	if len(list) == 0 || slices.ContainsFunc(list, func(d api.Destination) bool { return strings.HasPrefix(d.Name, "*.") }) {
		return nil
	}
	d := nowhere(list)
	return &d
}

// tryWithout runs the command without each mount that nothing was written to, and leaves out those without which it ends well.
func (l *learning) tryWithout(got *observed, ask *api.SessionOpen) error {
	for i := range got.Mounts {
		m := &got.Mounts[i]
		if m.Changes > 0 || l.workdir != "" && (l.workdir == m.GuestPath || strings.HasPrefix(l.workdir, m.GuestPath+"/")) {
			continue
		}
		less := *ask
		local := *ask.Target.Local
		local.Mounts = slices.DeleteFunc(slices.Clone(local.Mounts), func(a api.Mount) bool { return a.GuestPath == m.GuestPath })
		less.Target.Local = &local
		s, err := l.run(less, nil, 0)
		if err != nil {
			return err
		}
		if s.ok() {
			m.Needed = false
			*ask = less
		}
	}
	return nil
}

// tryFewer finds with how few processes the command ends well.
func (l *learning) tryFewer(got *observed, ask api.SessionOpen, granted int64) error {
	low, high := int64(0), granted // low is too few, high is enough
	for high-low > 1 {
		middle := (low + high) / 2
		if low == 0 {
			middle = min(8, middle) // most commands need few
		}
		s, err := l.run(ask, nil, middle)
		if err != nil {
			return err
		}
		hit := slices.ContainsFunc(s.result.LimitsHit, func(h api.LimitHit) bool { return h.Ceiling == "pids" })
		if s.ok() && !hit {
			high = middle
		} else {
			low = middle
		}
	}
	got.PIDs = high
	return nil
}

func reasons(r *api.Receipt) string {
	var list []string
	for _, d := range r.Deny {
		list = append(list, fmt.Sprintf("%s %s: %s", d.Code, d.Subject, d.Message))
	}
	if len(list) == 0 {
		list = append(list, fmt.Sprintf("%s: %s", r.ErrorCode, r.ErrorMessage))
	}
	return strings.Join(list, "; ")
}

// tail is the end of an output, for an error.
func tail(o *api.Output) string {
	if o == nil || o.InlineText == nil {
		return ""
	}
	text := o.InlineText.Text
	return "\n" + text[max(0, len(text)-500):]
}

func (l *learned) text(out io.Writer) {
	o := l.Observed
	for _, m := range o.Mounts {
		what := "read only"
		switch {
		case !m.Needed:
			what = "not needed"
		case m.Changes > 0:
			what = fmt.Sprintf("written: %d changes, %d bytes", m.Changes, m.Bytes)
		}
		fmt.Fprintf(out, "mount %s at %s: %s\n", m.HostPath, m.GuestPath, what)
	}
	for _, d := range o.Destinations {
		fmt.Fprintf(out, "reached: %s%s %v\n", d.Name, d.CIDR, d.Ports)
	}
	for _, r := range o.Refused {
		fmt.Fprintf(out, "refused, and not in the broad grant: %s\n", r)
	}
	for _, d := range o.Denials {
		fmt.Fprintf(out, "refused by %s: %s %s\n", d.Layer, d.Syscall, d.Object)
	}
	fmt.Fprintf(out, "peaks: %d bytes of memory, %d processes, %v of time\n", o.MemoryBytes, o.PIDs, time.Duration(o.WallNS).Round(time.Millisecond))
	for _, u := range o.Unobserved {
		fmt.Fprintln(out, "not observed:", u)
	}
	fmt.Fprintf(out, "%s: profile %s, after %d runs; %d tests pass\n", l.Dir, l.Name, l.Runs, len(l.Tests))
	fmt.Fprintln(out, "it runs with:", l.Run)
}
