package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/stockade-dev/stockade/supervisor/api"
)

// closing is how long a session may take to close once we no longer wait for it.
const closing = 30 * time.Second

// record is the whole of one run: what --receipt writes and --json prints.
type record struct {
	Open *api.Receipt `json:"open,omitzero"`
	Exec *api.Receipt `json:"exec,omitzero"`

	Commit []*api.Receipt `json:"commit,omitempty"` // of each overlay
	Close  *api.Receipt   `json:"close,omitzero"`
}

type runOptions struct {
	session sessionFlags
	exec    execFlags
	twice   bool
	commit  bool
	receipt string
}

func (c *cli) runCommand() *cobra.Command {
	var o runOptions
	cmd := &cobra.Command{
		Use:   "run [flags] -- CMD [ARG…]",
		Short: "Open a session, run one command in it, close it",
		Long: `run opens a session, runs one command in it and closes it. Output is written as
it comes, signals are passed on, and the exit status is the command's own.

` + exitHelp,
		Example: `  # an agent's command in a checkout that it may change
  stockade run --profile workspace --mount .:/work:rw --workdir /work -- make test

  # a build that sees the declared inputs and nothing else, twice, with its artifact
  stockade run --profile hermetic --root paths:/usr/bin,/lib64 --mount src:/src:ro \
      --output /tmp/out.tar:out.tar --twice -- /src/build.sh

  # the same in an overlay: the checkout changes when the tests have passed, or not at all
  stockade run --overlay .:/work:256M --workdir /work --commit -- make test

  # nothing of the network but one name, which policy has to list
  stockade run --allow example.org:443 -- curl -sS https://example.org/

  # a secret that appears in no record
  stockade run --secret TOKEN=token.txt -- ./publish`,
		Args: arguments(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error { return c.runOnce(cmd.Context(), &o, args) },
	}
	cmd.Flags().SetInterspersed(false)
	o.session.register(cmd)
	o.exec.register(cmd)
	cmd.Flags().BoolVar(&o.twice, "twice", false, "run again in a new session and compare the digests of the outputs")
	cmd.Flags().BoolVar(&o.commit, "commit", false, "commit the overlays when the command ends with 0; otherwise what it wrote there is gone")
	cmd.Flags().StringVar(&o.receipt, "receipt", "", "write the receipts of open, exec and close to FILE")
	return cmd
}

func (c *cli) runOnce(ctx context.Context, o *runOptions, argv []string) error {
	switch {
	case o.twice && len(o.exec.outputs) == 0:
		return usage("--twice compares outputs: name one with --output")
	case o.commit && len(o.session.overlays) == 0:
		return usage("--commit: there is no --overlay")
	case o.commit && o.twice:
		return usage("--commit and --twice contradict each other: the second run would not be of the same files")
	}
	first, wanted, err := c.session(ctx, o, argv, c.json)
	if werr := c.keep(o.receipt, first); werr != nil {
		err = errors.Join(err, werr)
	}
	if err != nil {
		return err
	}
	ended := c.ended(first.Exec)
	c.tellMemory(first)
	if err := c.fetch(ctx, wanted, first.Exec); err != nil && ended == nil {
		ended = err
	}
	if !o.twice || ended != nil {
		return ended
	}
	second, _, err := c.session(ctx, o, argv, true)
	if err != nil {
		return err
	}
	if err := c.ended(second.Exec); err != nil {
		return err
	}
	if diff := differences(first.Exec.Payload.Exec.Outputs, second.Exec.Payload.Exec.Outputs); len(diff) > 0 {
		return &exitError{exitDiffers, fmt.Errorf("outputs differ between two runs:\n  %s", strings.Join(diff, "\n  "))}
	}
	c.say("outputs are the same in two runs")
	return nil
}

// session is one whole session: open, exec, close. The session is closed whatever
// happens to us, short of SIGKILL; then its ttl ends it.
func (c *cli) session(ctx context.Context, o *runOptions, argv []string, quiet bool) (*record, []artifact, error) {
	var rec record
	open, err := o.session.request()
	if err != nil {
		return &rec, nil, err
	}
	// Made before the session, so that a wrong flag or an unreadable --stdin opens none.
	ask, wanted, err := o.exec.request(ctx, c, "", argv)
	if err != nil {
		return &rec, nil, err
	}
	if rec.Open, err = c.client().Open(ctx, *open); err != nil {
		return &rec, nil, err
	}
	if err := c.settled(rec.Open); err != nil {
		return &rec, nil, err
	}
	ask.SessionID = rec.Open.SessionID
	rec.Exec, err = c.execute(ctx, ask, o.exec.attachment(c, quiet))
	if o.commit && err == nil && succeeded(rec.Exec) {
		err = c.commitAll(ctx, &rec, open.Target.Local.Mounts)
	}

	grace := int64(0)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closing)
	defer cancel()
	closed, cerr := c.client().Close(ctx, api.SessionClose{SessionID: ask.SessionID, GraceNS: &grace})
	rec.Close = closed
	return &rec, wanted, errors.Join(err, cerr)
}

// succeeded reports whether a command ran, and ended with 0.
func succeeded(r *api.Receipt) bool {
	x := r.Payload.Exec
	return r.Outcome == api.OutcomeOK && x != nil && x.Status == "ok" && x.ExitCode == 0
}

// commitAll commits every overlay of the session, in their order, up to the first that cannot be.
func (c *cli) commitAll(ctx context.Context, rec *record, mounts []api.Mount) error {
	for _, m := range mounts {
		if m.Mode != api.ModeOverlay {
			continue
		}
		r, err := c.client().Commit(ctx, api.Workspace{SessionID: rec.Open.SessionID, GuestPath: m.GuestPath})
		if err != nil {
			return err
		}
		rec.Commit = append(rec.Commit, r)
		if err := c.settled(r); err != nil {
			return err
		}
		c.say("committed %d changes of %s", r.Payload.Space.Applied, m.GuestPath)
	}
	return nil
}

// tellMemory says that memory ran out below the command: then the command's own end does
// not show it.
func (c *cli) tellMemory(rec *record) {
	if rec.Close == nil || rec.Close.Payload.Close == nil || rec.Exec.Payload.Exec.ErrorCode == api.CodeOOMKilled {
		return
	}
	if n := rec.Close.Payload.Close.Usage.OOMKills; n > 0 {
		c.say("out of memory: the session's memory ceiling was reached and the kernel killed %d of its processes", n)
	}
}

// keep writes the receipts where they were asked for.
func (c *cli) keep(file string, rec *record) error {
	if c.json {
		if err := document(c.stdout, rec); err != nil {
			return err
		}
	}
	if file == "" {
		return nil
	}
	f, err := os.Create(file)
	if err != nil {
		return usage("--receipt: %v", err)
	}
	defer f.Close()
	if err := document(f, rec); err != nil {
		return fmt.Errorf("receipt %s: %w", file, err)
	}
	return f.Close()
}
