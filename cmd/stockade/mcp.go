package main

import (
	"cmp"
	"context"
	"errors"
	"io"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/stockade-dev/stockade/supervisor/api"
	"github.com/stockade-dev/stockade/supervisor/mcp"
	"github.com/stockade-dev/stockade/supervisor/tools"
)

func (c *cli) mcpCommand() *cobra.Command {
	var f sessionFlags
	var session, profile string
	cmd := &cobra.Command{
		Use:   "mcp [flags]",
		Short: "Serve a session to an agent host over the Model Context Protocol, on stdin and stdout",
		Long: `mcp serves one session: commands (exec, process_output, process_input, process_cancel) and the file
tools of a profile. Without --session it opens one of its own, as open would, and closes it when
a signal comes or stdin ends; what was asked before that end has five seconds to be answered.
Canceling a call ends the command that it started.`,
		Example: `  stockade mcp --mount .:/work:rw --workdir /work
  stockade mcp --session "$id" --tools gemini`,
		Args: arguments(cobra.NoArgs),
	}
	f.register(cmd)
	var ofOpen []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { ofOpen = append(ofOpen, f.Name) })
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if at := slices.IndexFunc(ofOpen, cmd.Flags().Changed); at >= 0 && session != "" {
			return usage("--%s is of a session that is opened; --session names one", ofOpen[at])
		}
		return c.mcp(cmd.Context(), &f, session, profile)
	}
	cmd.Flags().StringVar(&session, "session", "", "session to serve, which stays open (default: one of its own)")
	cmd.Flags().StringVar(&profile, "tools", "anthropic", "whose file tools: "+listed(tools.Names()))
	completeFlag(cmd, "tools", cobra.FixedCompletions(tools.Names(), cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// closeWithin is how long the end of a session of our own may take.
const closeWithin = 30 * time.Second

func (c *cli) mcp(ctx context.Context, f *sessionFlags, session, profile string) (err error) {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	p, fault := tools.Named(profile)
	if fault != nil {
		return usage("--tools: %s", fault.Message)
	}
	if session != "" {
		if session, err = c.sessionID(ctx, session); err != nil {
			return err
		}
	} else {
		ask, err := f.request()
		if err != nil {
			return err
		}
		r, err := c.client().Open(ctx, *ask)
		if err != nil {
			return err
		}
		if err := c.settled(r); err != nil {
			return err
		}
		session = r.SessionID
		defer func() { err = cmp.Or(err, c.closeOwn(session)) }()
	}
	s, err := c.client().Session(ctx, session)
	if err != nil {
		return err
	}
	server, err := mcp.New(mcp.Config{
		Host: c.client(), SessionID: session, Profile: p, Version: built(), Network: s.Grant != nil && s.Grant.Network.Mode != "none",
	})
	if err != nil {
		return err
	}
	c.say("serving session %s", session)
	err = server.Run(ctx, stdio{in: c.stdin, out: c.stdout})
	if ctx.Err() != nil || errors.Is(err, io.EOF) {
		return nil // the host is done with us
	}
	return err
}

// closeOwn ends a session of our own, also when we were told to end.
func (c *cli) closeOwn(session string) error {
	ctx, cancel := context.WithTimeout(context.Background(), closeWithin)
	defer cancel()
	now := int64(0)
	r, err := c.client().Close(ctx, api.SessionClose{SessionID: session, GraceNS: &now})
	if err != nil {
		return err
	}
	return c.settled(r)
}
