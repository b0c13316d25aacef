package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/stockade-dev/stockade/internal/filetool/ripgrep"
	"github.com/stockade-dev/stockade/sandbox"
	"github.com/stockade-dev/stockade/supervisor"
	"github.com/stockade-dev/stockade/supervisor/api"
	"github.com/stockade-dev/stockade/supervisor/client"
	"github.com/stockade-dev/stockade/supervisor/server"
)

// policyDeadline is against machines that are busy: there an answer of half a millisecond can wait for a
// processor a hundred times as long, and a refusal would be wrong. A policy that runs away is stopped by the
// processor time that it takes (--policy-time), of which it may have to wait for each part so many times as long.
const (
	policyDeadline = 2 * time.Second
	policyWait     = 8
)

// config is what the flags say.
type config struct {
	state, socket, policy, ceiling   string
	runner, runnerBinary, initBinary string
	program                          string   // our own
	args                             []string // of the command line
	config, user                     string
	printConfig                      bool
	cgroupParent, ripgrep            string
	logLevel                         slog.Level
	logFormat, metrics, traces       string
	drain, hold                      time.Duration
	policyKeys                       []string
	policyWatch, live                string
	policyWorkers                    int
	policyTime                       time.Duration
	defaults                         supervisor.Defaults
	told                             api.Settings // of all this, to whoever may ask
}

// serve runs the supervisor until ctx ends, and returns when nothing of it is left.
func (c *config) serve(ctx context.Context, stdout, stderr io.Writer) error {
	said := hear()
	defer said.stop()
	seen, log, err := c.observe(stderr)
	if err != nil {
		return err
	}
	defer seen.close()
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
	source, err := c.policySource(state)
	if err != nil {
		return err
	}
	watched, err := c.watched()
	if err != nil {
		return err
	}
	var search *os.File
	if c.ripgrep != "" {
		of := ""
		if search, of, err = ripgrep.Program(ctx, c.ripgrep); err != nil {
			return err
		}
		defer search.Close()
		log.Info("file tools may search with ripgrep", "path", c.ripgrep, "version", of)
	}
	if err := supervisor.Available(state); err != nil {
		return err // its supervisor is there, with its runner
	}
	drop, err := source.Choose(ctx, state, log)
	if err != nil {
		return err
	}
	defer func() {
		if drop != nil {
			drop()
		}
	}()
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
		State: state, Policies: source, Ceiling: ceiling, Launcher: runner, Defaults: c.defaults, Version: version, Ripgrep: search, Log: log,
		LogLevel: &seen.level, Settings: c.told,
		Secrets: &seen.secrets, Metrics: seen.metrics, Traces: seen.traces,
	})
	if err != nil {
		return err
	}
	drop = nil // it is the supervisor's
	srv, err := server.New(sup, server.Options{Log: log, Traces: seen.traces})
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
	log.Info("serving", "socket", c.socket, "state", state, "policy", c.policy)

	var watching sync.WaitGroup
	defer watching.Wait()
	serving, ended := context.WithCancel(ctx)
	defer ended()
	watching.Go(func() {
		alive(serving, func(ctx context.Context) error {
			_, err := client.New(c.socket).Version(ctx)
			sup.Answers()
			return err
		})
	})
	if watched {
		watching.Go(func() {
			if err := watch(serving, source.Source, log, func() { reload(serving, sup, supervisor.TriggerFile, log) }); err != nil {
				log.Error("the policy is not watched: SIGUSR1 or stockade policy activate takes up a change", "error", err)
			}
		})
	}
	var cause error
	for stop := said.end; !stop; {
		select {
		case <-said.upgrade:
			if err := c.ready(ctx); err != nil {
				sup.RefuseReload(supervisor.TriggerSignal, err)
				continue
			}
			notify("RELOADING=1\nMONOTONIC_USEC=" + monotonic())
			log.Info("giving way to a successor in this process")
			keep = true
			ended()
			watching.Wait()
			seen.close() // for the successor to serve
			return c.succeed(ctx, said, srv, sup, ln, runner)
		case <-said.leave:
			notify("STOPPING=1")
			log.Info("leaving what lives to the runner")
			keep = true
			ended()
			watching.Wait()
			return c.leave(srv, sup, runner)
		case <-said.look:
			watching.Go(func() { reload(serving, sup, supervisor.TriggerSignal, log) })
			continue
		case <-ctx.Done():
		case cause = <-served:
		case <-runner.Done():
			cause = errors.New("the runner is gone")
		}
		stop = true
	}
	notify("STOPPING=1")
	log.Info("stopping", "cause", cause)
	ended()
	watching.Wait() // nothing of ours asks while nobody answers any more
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
