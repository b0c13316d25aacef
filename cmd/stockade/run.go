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
	Open  *api.Receipt `json:"open,omitzero"`
	Exec  *api.Receipt `json:"exec,omitzero"`
	Close *api.Receipt `json:"close,omitzero"`
}

type runOptions struct {
	session sessionFlags
	exec    execFlags
	twice   bool
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

  # a secret that appears in no record
  stockade run --secret TOKEN=token.txt -- ./publish`,
		Args: arguments(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error { return c.runOnce(cmd.Context(), &o, args) },
	}
	cmd.Flags().SetInterspersed(false)
	o.session.register(cmd)
	o.exec.register(cmd)
	cmd.Flags().BoolVar(&o.twice, "twice", false, "run again in a new session and compare the digests of the outputs")
	cmd.Flags().StringVar(&o.receipt, "receipt", "", "write the receipts of open, exec and close to FILE")
	return cmd
}

func (c *cli) runOnce(ctx context.Context, o *runOptions, argv []string) error {
	if o.twice && len(o.exec.outputs) == 0 {
		return usage("--twice compares outputs: name one with --output")
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

	grace := int64(0)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closing)
	defer cancel()
	closed, cerr := c.client().Close(ctx, api.SessionClose{SessionID: ask.SessionID, GraceNS: &grace})
	rec.Close = closed
	return &rec, wanted, errors.Join(err, cerr)
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
