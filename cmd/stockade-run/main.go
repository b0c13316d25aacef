// Stockade-run is the runner: the only part of Stockade that holds root. It listens
// on a socket for one supervisor at a time, checks what it is asked against the
// operator's ceiling, and builds, holds and destroys sessions. When its supervisor
// leaves, they wait for the next one, and end when none comes.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/spf13/cobra"

	"github.com/stockade-dev/stockade/sandbox"
	"github.com/stockade-dev/stockade/sandbox/host"
	"github.com/stockade-dev/stockade/sandbox/launch"
	"github.com/stockade-dev/stockade/sandbox/runc"
)

func main() {
	if err := root().Execute(); err != nil {
		say("%v", err)
		os.Exit(1)
	}
}

// config is what the flags say.
type config struct {
	socket  string
	uid     uint32
	ceiling string
	check   bool
	launch.Succession
	runc.Options
}

// uid is a user on a command line.
type uid uint32

func (u *uid) String() string { return strconv.FormatUint(uint64(*u), 10) }

func (*uid) Type() string { return "user" }

func (u *uid) Set(text string) error {
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		known, lerr := user.Lookup(text)
		if lerr != nil {
			return lerr
		}
		if n, err = strconv.ParseUint(known.Uid, 10, 32); err != nil {
			return err
		}
	}
	*u = uid(n)
	return nil
}

func root() *cobra.Command {
	var c config
	cmd := &cobra.Command{
		Use:   "stockade-run",
		Short: "Build sandboxes for one supervisor",
		Long: `stockade-run is the privileged half of Stockade. It listens on a unix socket that
only the supervisor's user can connect to, and builds the sessions that it is asked for, within the
operator's ceiling. When the supervisor leaves, they wait for the next one: their commands go on, with
their output in pipes, and how they ended is kept. When none comes, or SIGTERM arrives, all are destroyed.

At SIGHUP the program that is now where this one was found takes its place, with every session, every
connection and the same flags. When it cannot, the runner says why and goes on.`,
		Example: `  stockade-run --socket /run/stockade/runner.sock --uid stockade --state /run/stockade/main \
      --instance main --init /usr/libexec/stockade/stockade-init --ceiling /etc/stockade/ceiling.json`,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE:          func(*cobra.Command, []string) error { return c.run() },
	}
	f := cmd.Flags()
	f.StringVar(&c.socket, "socket", "", "where to listen")
	f.Var((*uid)(&c.uid), "uid", "the supervisor's user, by number or by name: beside root the only one that may connect")
	f.StringVar(&c.State, "state", "", "directory of this instance")
	f.StringVar(&c.ceiling, "ceiling", "", "the operator's ceiling, a file; without it the default one")
	f.StringVar(&c.Instance, "instance", "", "name of this instance, which its groups carry")
	f.StringVar(&c.Init, "init", "", "the stockade-init binary")
	f.StringVar(&c.Relay, "relay", "", "the stockade-relay binary; without it the one beside init's, and if there is none, sessions have no network")
	f.StringVar(&c.Cgroup.Parent, "cgroup-parent", "", "group below which the sessions' stand; without it the runner's own")
	f.IntVar(&c.Stock, "stock", 2, "for how many sessions to come the ids, groups and namespaces are kept ready")
	f.DurationVar(&c.Hold, "hold", 30*time.Second, "how long the sessions of a supervisor that has left wait for the next one; 0 is not at all")
	f.BoolVar(&c.Follow, "follow", false, "end when a supervisor has left and nothing is held any more")
	f.BoolVar(&c.check, "check", false, "only say whether this program could take over from a runner with these flags: capabilities, flags, ceiling and init are right, and the formats it reads are printed")
	for _, name := range []string{"socket", "state", "instance", "init"} {
		_ = cmd.MarkFlagRequired(name)
	}
	cmd.AddCommand(probeCommand())
	cmd.CompletionOptions.DisableDefaultCmd = true
	return cmd
}

func (c *config) run() error {
	if os.Geteuid() != 0 {
		return errors.New("takes root")
	}
	if c.check {
		return c.checked()
	}
	// Before it is known how: the program that was replaced ignored it.
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	if err := runc.Isolate(); err != nil {
		return err
	}
	// Before sessions are taken over: SIGTERM meanwhile ends them in order, once they are.
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	before := inherited()
	// Everything that we make is for us alone, unless it says otherwise.
	syscall.Umask(0o077)
	if err := c.settle(); err != nil {
		return err
	}
	if c.Follow {
		// On v2 a group that has groups below it holds no process: the supervisor that
		// started us, and shares ours, moves with us.
		c.Cgroup.Companions = []int{os.Getppid()}
	}
	// A host of v1 alone gets the hierarchy that it lacks in our mount namespace, before it
	// is asked what it has.
	c.Cgroup.Unified = filepath.Join(c.State, "unified")
	if err := c.Cgroup.Mount(); err != nil {
		return err
	}
	c.Host = host.Probe(c.Cgroup)
	runner, listener, err := c.start(before)
	if err != nil {
		return err
	}
	_, _ = daemon.SdNotify(false, daemon.SdNotifyReady) // a service manager that there is, or is not
	c.Lost = func(err error) { say("supervisor: %v", err) }
	u := &upgrade{listener: listener, runner: runner, hangup: hangup, ready: make(chan *successor)}
	err = u.serve(ctx, c.Succession)
	return errors.Join(err, runner.Shutdown())
}

// settle completes what the flags say.
func (c *config) settle() (err error) {
	if c.Ceiling, err = sandbox.LoadCeiling(c.ceiling); err != nil {
		return err
	}
	if c.Relay == "" {
		beside := filepath.Join(filepath.Dir(c.Init), "stockade-relay")
		if info, err := os.Stat(beside); err == nil && info.Mode().IsRegular() {
			c.Relay = beside
		}
	}
	c.Tell = say
	c.State, err = filepath.Abs(c.State)
	return err
}

// start makes what is served, and what serves: anew, or of what the program before left.
func (c *config) start(before *inheritance) (*runc.Runner, *launch.Listener, error) {
	if before != nil {
		return c.resume(before)
	}
	runner, err := runc.New(c.Options)
	if err != nil {
		return nil, nil, err
	}
	listener, err := launch.Listen(c.socket, c.uid)
	if err != nil {
		return nil, nil, errors.Join(err, runner.Shutdown())
	}
	return runner, listener, nil
}

// say writes a line for the operator.
func say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "stockade-run: "+format+"\n", args...)
}
