package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/stockade-dev/stockade/supervisor/api"
)

func (c *cli) openCommand() *cobra.Command {
	var f sessionFlags
	var noWait bool
	cmd := &cobra.Command{
		Use:   "open [flags]",
		Short: "Open a session and print its id",
		Example: `  stockade open --profile workspace --mount .:/work:rw --workdir /work
  stockade open --memory 512M --cpus 1 --pids 64 --cpu-time 10m --ttl 30m --label job=42
  stockade open --overlay .:/work:256M --workdir /work --allow proxy.golang.org:443
  stockade open --verify --json | jq .payload.open.enforced.canaries
  stockade open --json | jq .payload.open.enforced`,
		Args: arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return c.open(cmd.Context(), &f, noWait) },
	}
	f.register(cmd)
	noWaitFlag(cmd, &noWait)
	return cmd
}

func (c *cli) open(ctx context.Context, f *sessionFlags, noWait bool) error {
	ask, err := f.request()
	if err != nil {
		return err
	}
	p, r, err := c.client().Ask(ctx, api.OpSessionOpen, *ask)
	r, err = c.leave(ctx, noWait, p, r, err)
	if err != nil {
		return err
	}
	if err := c.answer(r); err != nil || c.json {
		return err
	}
	_, err = fmt.Fprintln(c.stdout, r.SessionID)
	return err
}
