// Command stockaded is the supervisor: it serves the socket, asks policy, keeps the
// journal and the blobs, and has the runner build what policy granted.
//
// It needs no privilege but the runner's socket. Started as root without --runner, it
// starts stockade-run itself; that runner ends when it leaves nothing behind.
package main

import (
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/stockade-dev/stockade/rego/workbench"
	"github.com/stockade-dev/stockade/rego/worker"
	"github.com/stockade-dev/stockade/supervisor"
	"github.com/stockade-dev/stockade/supervisor/client"
)

// Where things are unless a flag says otherwise.
const (
	defaultSocket = "/run/stockade/stockade.sock"
	defaultState  = "/var/lib/stockade"
)

// version is set by the build.
var version = "devel"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	err := root().ExecuteContext(ctx)
	if err != nil && err != workbench.ErrFinding {
		fmt.Fprintln(os.Stderr, "stockaded:", err)
	}
	os.Exit(workbench.ExitCode(err))
}

func root() *cobra.Command {
	var c config
	var tellFormats bool
	cmd := &cobra.Command{
		Use:   "stockaded",
		Short: "Supervise sandboxes that a policy granted",
		Long: `stockaded serves a unix socket. A caller asks for a session, a Rego policy answers
with a grant, the runner builds exactly that, and every operation ends in a receipt.

It prints "ready" once it serves. SIGTERM and SIGINT end every session, let what is
in flight settle, and stop it. SIGHUP has it execute the program that now is in its place, which goes
on with every session and execution; so does a stockaded that is started within --hold after one was killed.
SIGUSR2 has it end and leave every session to the runner, which holds them for as long (--hold).
SIGUSR1 has it look whether there is another policy, as stockade policy activate does.`,
		Example: `  stockaded --state /var/lib/stockade
  stockaded --state ./state --socket ./stockade.sock --policy ./my-policy
  stockaded --config /etc/stockade/stockaded.json
  stockaded policy check ./my-policy`,
		Version:       version,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if tellFormats {
				return printFormats(cmd.OutOrStdout())
			}
			if c.printConfig {
				return printConfiguration(cmd.OutOrStdout())
			}
			if err := configure(cmd, c.config); err != nil {
				return err
			}
			if err := inOrder(cmd.Flags()); err != nil {
				return err
			}
			if err := c.become(); err != nil {
				return err
			}
			c.told = settingsOf(cmd.Flags(), os.Environ())
			c.program, c.args = program(), os.Args[1:]
			loosen()
			collectLess()
			return c.serve(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	cmd.Flags().AddFlagSet(c.flags())
	cmd.Flags().BoolVar(&tellFormats, "formats", false, "only print which version of the messages with the runner this program speaks: what is asked at SIGHUP of the one that is to follow")
	policy := workbench.Command(workbench.Options{Records: recorded, All: eachRecorded, Policy: kept, Dial: dial, Socket: listensAt(), StateDir: defaultState})
	policy.AddCommand(decisionsCommand())
	cmd.AddCommand(workerCommand(), policy, replayCommand(), fsckCommand(), backupCommand())
	return cmd
}

// flags are those of the supervisor itself.
func (c *config) flags() *pflag.FlagSet {
	socket := listensAt()
	f := pflag.NewFlagSet("stockaded", pflag.ContinueOnError)
	f.StringVar(&c.config, "config", "", "file of settings, each named as its flag is; a flag holds over it")
	f.BoolVar(&c.printConfig, "print-config", false, "print such a file, with every setting and its default as a comment")
	f.StringVar(&c.state, "state", defaultState, "directory of the journal, the blobs and the keys")
	f.StringVar(&c.socket, "socket", socket, "where to serve (STOCKADE_SOCKET)")
	f.StringVar(&c.policy, "policy", "", "the policy: a directory, or a bundle (.tar.gz); without it the shipped one decides")
	f.StringArrayVar(&c.policyKeys, "policy-key", nil, "file with a public key, one of which must have signed the policy")
	f.StringVar(&c.policyWatch, "policy-watch", "auto", "take up a change of the policy by itself: on, off, or auto: unless it is a directory without a signature")
	f.StringVar(&c.live, "policy-live", "", "what a new policy does to open sessions that would get less under it: keep, narrow or terminate; without it as the policy says")
	f.IntVar(&c.policyWorkers, "policy-workers", 0, "processes that evaluate the policy at a time, started when they are needed, besides one that waits to take another's place; 0 is one for each processor, at most 8")
	f.DurationVar(&c.policyTime, "policy-time", worker.DefaultCPU, "processor time that one evaluation of the policy may take, after which it is a denial; more is for machines much slower than others, such as emulated ones")
	f.StringVar(&c.ceiling, "ceiling", "", "file of the operator's ceiling; without it the default one")
	f.StringVar(&c.runner, "runner", "", "socket of a runner that is already there; without it one is started, which takes root")
	f.StringVar(&c.runnerBinary, "runner-binary", "", "stockade-run; without it the one beside this program, then PATH")
	f.StringVar(&c.initBinary, "init-binary", "", "stockade-init; without it the one beside this program, then PATH")
	f.StringVar(&c.ripgrep, "ripgrep", "", "a statically linked rg with which file tools may search inside sessions; without it they search by themselves")
	f.StringVar(&c.user, "user", "", "user to run as, when started as root beside a --runner: the socket is made first, and root given up for good")
	f.StringVar(&c.cgroupParent, "cgroup-parent", "", "control group below which the started runner builds; without it our own")
	f.TextVar(&c.logLevel, "log-level", c.logLevel, "debug, info, warn or error")
	f.StringVar(&c.logFormat, "log-format", "text", "text or json")
	f.StringVar(&c.metrics, "metrics", "", "serve metrics in Prometheus's text form: unix:PATH, or a port of the loopback such as 127.0.0.1:9464; without it they are not served")
	f.StringVar(&c.traces, "otlp-endpoint", "", "URL of an OpenTelemetry collector that takes traces over HTTP; without it OTEL_EXPORTER_OTLP_ENDPOINT, and without that none are made")
	f.DurationVar(&c.defaults.LoadInterval, "load-interval", 0, "time between two looks at what a session uses while something runs in it (default 5s)")
	f.DurationVar(&c.defaults.LongRunning, "long-running", 0, "after how long an execution is said to run for long (default 10m)")
	f.DurationVar(&c.hold, "hold", 30*time.Second, "how long the runner keeps the sessions when this program is killed; 0 ends them at once")
	f.DurationVar(&c.drain, "drain", 20*time.Second, "how long what is in flight may take to settle when stopping")
	retentionFlags(f, &c.defaults)
	return f
}

// listensAt is where a supervisor serves that is not told.
func listensAt() string { return cmp.Or(os.Getenv("STOCKADE_SOCKET"), defaultSocket) }

// workerCommand is what this program is started as by its own pool of policy workers. The argument is for who looks at processes:
// the state directory of the supervisor that they belong to.
func workerCommand() *cobra.Command {
	return &cobra.Command{
		Use:    worker.Argument + " STATE",
		Short:  "Evaluate policy for the supervisor that started it",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE:   func(*cobra.Command, []string) error { return worker.Main() },
	}
}

// kept is a revision of the policy for "policy why".
func kept(stateDir, digest string) (fs.FS, error) {
	r, err := supervisor.KeptPolicy(stateDir, digest)
	if err != nil {
		return nil, err
	}
	return r.FS, nil
}

// dial is a supervisor for "policy learn".
func dial(socket string) workbench.Sessions { return client.New(socket) }

// recorded finds the decision about an intent for "policy why".
func recorded(stateDir, intentID string) (workbench.Record, error) {
	r, err := supervisor.ReadDecision(stateDir, intentID)
	if err != nil {
		return workbench.Record{}, err
	}
	return record(r), nil
}

// eachRecorded rebuilds every decision for "policy replay" and its like.
func eachRecorded(stateDir string, fn func(workbench.Record) error) (int64, error) {
	return supervisor.EachDecision(stateDir, func(r *supervisor.Recorded) error { return fn(record(r)) })
}

func record(r *supervisor.Recorded) workbench.Record {
	return workbench.Record{
		IntentID: r.IntentID, Entrypoint: r.Entrypoint, PolicyDigest: r.PolicyDigest,
		Input: r.Input, InputDigest: r.InputDigest, Decision: r.Decision,
	}
}
