// Stockade-run is the runner: the only part of Stockade that holds root. It listens
// on a socket for one supervisor at a time, checks what it is asked against the
// operator's ceiling, and builds, holds and destroys sessions. When its supervisor
// leaves, every session ends.
package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/stockade-dev/stockade/sandbox"
	"github.com/stockade-dev/stockade/sandbox/host"
	"github.com/stockade-dev/stockade/sandbox/launch"
	"github.com/stockade-dev/stockade/sandbox/runc"
)

func main() {
	if err := root().Execute(); err != nil {
		fmt.Fprintln(os.Stderr, "stockade-run:", err)
		os.Exit(1)
	}
}

// config is what the flags say.
type config struct {
	socket  string
	uid     uint32
	ceiling string
	follow  bool
	runc.Options
}

func root() *cobra.Command {
	var c config
	cmd := &cobra.Command{
		Use:   "stockade-run",
		Short: "Build sandboxes for one supervisor",
		Long: `stockade-run is the privileged half of Stockade. It listens on a unix socket that
only the supervisor's user can connect to, builds the sessions that it is asked for, within the
operator's ceiling, and destroys them all when the supervisor leaves or SIGTERM arrives.`,
		Example: `  stockade-run --socket /run/stockade/runner.sock --uid 990 --state /run/stockade/runner \
      --instance main --init /usr/lib/stockade/stockade-init --ceiling /etc/stockade/ceiling.json`,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE:          func(*cobra.Command, []string) error { return c.run() },
	}
	f := cmd.Flags()
	f.StringVar(&c.socket, "socket", "", "where to listen")
	f.Uint32Var(&c.uid, "uid", 0, "the supervisor's user, beside root the only one that may connect")
	f.StringVar(&c.State, "state", "", "directory of this instance")
	f.StringVar(&c.ceiling, "ceiling", "", "the operator's ceiling, a file; without it the default one")
	f.StringVar(&c.Instance, "instance", "", "name of this instance, which its groups carry")
	f.StringVar(&c.Init, "init", "", "the stockade-init binary")
	f.StringVar(&c.Cgroup.Parent, "cgroup-parent", "", "group below which the sessions' stand; without it the runner's own")
	f.IntVar(&c.Stock, "stock", 2, "for how many sessions to come the ids, groups and namespaces are kept ready")
	f.BoolVar(&c.follow, "follow", false, "end when the first supervisor leaves")
	for _, name := range []string{"socket", "state", "instance", "init"} {
		_ = cmd.MarkFlagRequired(name)
	}
	return cmd
}

func (c *config) run() error {
	if os.Geteuid() != 0 {
		return errors.New("takes root")
	}
	if err := runc.Isolate(); err != nil {
		return err
	}
	// Everything that we make is for us alone, unless it says otherwise.
	syscall.Umask(0o077)
	var err error
	if c.Ceiling, err = sandbox.LoadCeiling(c.ceiling); err != nil {
		return err
	}
	if c.State, err = filepath.Abs(c.State); err != nil {
		return err
	}
	if c.follow {
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
	runner, err := runc.New(c.Options)
	if err != nil {
		return err
	}
	listener, err := launch.Listen(c.socket, c.uid)
	if err != nil {
		return errors.Join(err, runner.Shutdown())
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	context.AfterFunc(ctx, func() { listener.Close() })
	err = c.serve(ctx, listener, runner)
	listener.Close()
	return errors.Join(err, runner.Shutdown())
}

// serve answers supervisors one after the other. A second one, while the first is
// there, finds its connection closed.
func (c *config) serve(ctx context.Context, listener *launch.Listener, runner *runc.Runner) error {
	var busy atomic.Bool
	var serving sync.WaitGroup
	defer serving.Wait()
	for {
		conn, err := listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil // by a signal, which has ended the connection too, or by the end of the one that we follow
		}
		if err != nil {
			return err
		}
		if !busy.CompareAndSwap(false, true) {
			conn.Close()
			continue
		}
		serving.Go(func() {
			defer busy.Store(false)
			if err := launch.Serve(ctx, conn, runner); err != nil {
				fmt.Fprintln(os.Stderr, "stockade-run: supervisor:", err)
			}
			if c.follow {
				listener.Close()
			}
		})
	}
}
