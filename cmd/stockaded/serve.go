package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/policies"
	"github.com/stockade-dev/stockade/rego"
	"github.com/stockade-dev/stockade/rego/worker"
	"github.com/stockade-dev/stockade/sandbox"
	"github.com/stockade-dev/stockade/supervisor"
	"github.com/stockade-dev/stockade/supervisor/server"
)

// policyDeadline is against machines that are busy: there an answer of half a millisecond can wait for a
// processor a hundred times as long, and a refusal would be wrong. A policy that runs away is stopped by the
// processor time that it takes ([worker.Options]).
const policyDeadline = 2 * time.Second

// config is what the flags say.
type config struct {
	state, socket, policy, ceiling   string
	runner, runnerBinary, initBinary string
	program                          string // our own
	cgroupParent                     string
	logLevel                         slog.Level
	drain, hold                      time.Duration
	defaults                         supervisor.Defaults
}

// serve runs the supervisor until ctx ends, and returns when nothing of it is left.
func (c *config) serve(ctx context.Context, stdout, stderr io.Writer) error {
	log := slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: c.logLevel}))
	state, err := filepath.Abs(c.state)
	if err != nil {
		return err
	}
	// What can be wrong without the runner is found out before it is started.
	ceiling, err := sandbox.LoadCeiling(c.ceiling)
	if err != nil {
		return err
	}
	if ceiling.MountDenied, err = withoutOurs(ceiling.MountDenied, state, c.socket); err != nil {
		return err
	}
	policy, err := worker.Load(c.policyTree(), worker.Options{
		Options: rego.Options{Deadline: policyDeadline},
		Program: []string{"/proc/self/exe", worker.Argument, state},
	})
	if err != nil {
		return fmt.Errorf("policy: %w", err)
	}
	defer policy.Close()
	if err := supervisor.Available(state); err != nil {
		return err // its supervisor is there, with its runner
	}
	runner, err := c.connect(ctx, state, stderr)
	if err != nil {
		return err
	}
	keep := false // of the runner, with what lives in it
	defer func() {
		if !keep {
			runner.close()
		}
	}()

	sup, err := supervisor.New(ctx, supervisor.Config{
		State: state, Policy: policy, Ceiling: ceiling, Launcher: runner, Defaults: c.defaults, Version: version, Log: log,
	})
	if err != nil {
		return err
	}
	srv, err := server.New(sup, server.Options{Log: log})
	if err != nil {
		return errors.Join(err, sup.Close(ctx))
	}
	ln, err := c.listen()
	if err != nil {
		return errors.Join(err, sup.Close(ctx))
	}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(ln) }()
	fmt.Fprintln(stdout, "ready")
	notify("READY=1")
	log.Info("serving", "socket", c.socket, "state", state, "policy", policy.Digest())

	upgrade := make(chan os.Signal, 1)
	signal.Notify(upgrade, unix.SIGHUP)
	defer signal.Stop(upgrade)
	var cause error
	for stop := false; !stop; {
		select {
		case <-upgrade:
			if err := c.ready(); err != nil {
				log.Error("no successor: going on as before", "error", err)
				continue
			}
			notify("RELOADING=1\nMONOTONIC_USEC=" + monotonic())
			log.Info("giving way to a successor in this process")
			keep = true
			return c.succeed(srv, sup, ln, runner, policy)
		case <-ctx.Done():
		case cause = <-served:
		case <-runner.Done():
			cause = errors.New("the runner is gone")
		}
		stop = true
	}
	notify("STOPPING=1")
	log.Info("stopping", "cause", cause)
	return errors.Join(cause, c.stop(srv, sup))
}

// stop settles what is in flight. The supervisor goes first: answers that are waited
// for come from it, and the server waits for the answers.
func (c *config) stop(srv *server.Server, sup *supervisor.Supervisor) error {
	ctx, cancel := context.WithTimeout(context.Background(), c.drain)
	defer cancel()
	stopped := make(chan error, 1)
	go func() { stopped <- srv.Shutdown(ctx) }()
	return errors.Join(sup.Close(ctx), <-stopped)
}

// withoutOurs adds what the supervisor is made of to the directories that no source may
// reach: a command that can write the journal, or reach the socket, is no longer under it.
func withoutOurs(denied []string, ours ...string) ([]string, error) {
	denied = slices.Clone(denied)
	for _, path := range ours {
		abs, err := filepath.Abs(path)
		if err != nil {
			return nil, err
		}
		denied = append(denied, resolved(abs))
	}
	return denied, nil
}

// resolved follows the links of as much of a path as exists: sources are judged resolved too.
func resolved(path string) string {
	if p, err := filepath.EvalSymlinks(path); err == nil {
		return p
	}
	dir := filepath.Dir(path)
	if dir == path {
		return path
	}
	return filepath.Join(resolved(dir), filepath.Base(path))
}

func (c *config) policyTree() fs.FS {
	if c.policy == "" {
		return policies.FS
	}
	return os.DirFS(c.policy)
}

// notify tells the service manager, if there is one (sd_notify(3)).
func notify(state string) {
	name := os.Getenv("NOTIFY_SOCKET")
	if name == "" {
		return
	}
	conn, err := net.Dial("unixgram", name)
	if err != nil {
		return // it will notice by itself
	}
	defer conn.Close()
	io.WriteString(conn, state)
}
