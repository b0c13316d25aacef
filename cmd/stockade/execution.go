package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/stockade-dev/stockade/supervisor/api"
)

// inlineStdin is how much of --stdin travels in the request itself; more goes first
// into a blob.
const inlineStdin = 64 << 10

// execFlags describe one execution, for exec and run.
type execFlags struct {
	timeout time.Duration
	stdin   string
	outputs []string
	dir     string // --output-dir
}

func (f *execFlags) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.DurationVar(&f.timeout, "timeout", 0, "wall time after which the whole tree is killed, such as 5m (default: the grant's)")
	flags.StringVar(&f.stdin, "stdin", "", "FILE to be read by the command, or - for our own stdin, read to its end first (default: empty)")
	flags.StringArrayVar(&f.outputs, "output", nil, "PATH[:DEST]: file inside to bring out when the command has ended, as a digested blob and as the file DEST (repeatable)")
	flags.StringVar(&f.dir, "output-dir", ".", "directory for outputs that have no DEST of their own")
}

// request is the flags and the command as the document that is sent.
func (f *execFlags) request(ctx context.Context, c *cli, session string, argv []string) (*api.Exec, []artifact, error) {
	if len(argv) == 0 {
		return nil, nil, usage("no command: say -- CMD…")
	}
	if f.timeout < 0 {
		return nil, nil, usage("--timeout %v: want a positive duration", f.timeout)
	}
	wanted, err := artifacts(f.outputs, f.dir)
	if err != nil {
		return nil, nil, err
	}
	ask := &api.Exec{SessionID: session, Argv: argv, TimeoutNS: int64(f.timeout)}
	for _, a := range wanted {
		ask.Outputs = append(ask.Outputs, a.path)
	}
	ask.Stdin, err = f.input(ctx, c)
	return ask, wanted, err
}

func (f *execFlags) input(ctx context.Context, c *cli) (*api.Stdin, error) {
	var from io.Reader
	switch f.stdin {
	case "":
		return nil, nil
	case "-":
		from = c.stdin
	default:
		file, err := os.Open(f.stdin)
		if err != nil {
			return nil, usage("--stdin: %v", err)
		}
		defer file.Close()
		from = file
	}
	head, err := io.ReadAll(io.LimitReader(from, inlineStdin+1))
	if err != nil {
		return nil, usage("--stdin: %v", err)
	}
	if len(head) <= inlineStdin {
		return &api.Stdin{InlineBytes: &api.InlineBytes{Bytes: head}}, nil
	}
	ref, err := c.put(ctx, head, from)
	if err != nil {
		return nil, err
	}
	return &api.Stdin{BlobRef: &api.BlobRef{BlobRef: ref}}, nil
}

// execute runs one command to its end. Its output is copied as it comes, unless quiet;
// signals that reach us meanwhile are passed on to the session.
func (c *cli) execute(ctx context.Context, ask *api.Exec, quiet bool) (*api.Receipt, error) {
	stop := c.relay(ctx, ask.SessionID)
	defer stop()
	return c.client().ExecStream(ctx, *ask, func(e api.Event) error {
		if e.Kind == "output" && !quiet {
			c.stream(e.Stream).Write(e.Bytes) // a closed pipe of ours must not end the command
		}
		return nil
	})
}

func (c *cli) stream(name string) io.Writer {
	if name == "stderr" {
		return c.stderr
	}
	return c.stdout
}

// relayed are the signals that are passed on. SIGTERM ends the session as well, which is
// what the one who sends it to us wants.
var relayed = []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2}

// relay passes our signals on to the session until stop is called. A supervisor that
// refuses one says so on stderr, and the command goes on.
func (c *cli) relay(ctx context.Context, session string) (stop func()) {
	caught := make(chan os.Signal, 8)
	done := make(chan struct{})
	signal.Notify(caught, relayed...)
	go func() {
		defer close(done)
		for sig := range caught {
			name, _ := api.SignalOf(int(sig.(syscall.Signal)))
			r, err := c.client().Signal(ctx, api.SessionSignal{SessionID: session, Signal: name})
			if err == nil {
				err = c.settled(r)
			}
			if err != nil {
				c.say("signal %s: %v", name, err)
			}
		}
	}()
	return func() {
		signal.Stop(caught)
		close(caught)
		<-done
	}
}

// ended turns the end of a command into our own exit status.
func (c *cli) ended(r *api.Receipt) error {
	if err := c.settled(r); err != nil {
		return err
	}
	x := r.Payload.Exec
	if x == nil {
		return fmt.Errorf("%s: the receipt has no result", r.Op)
	}
	for name, out := range map[string]*api.Output{"stdout": x.Stdout, "stderr": x.Stderr} {
		if out != nil && out.Truncated {
			c.say("%s was cut at the output ceiling; the command wrote %s", name, amount(out.TotalBytes))
		}
	}
	if x.Overflow != nil {
		c.say("%s has %s, more than the %s that may be inline", x.Overflow.Stream, amount(x.Overflow.SizeBytes), amount(x.Overflow.LimitBytes))
	}
	if x.ErrorCode == api.CodeOOMKilled {
		c.say("out of memory: the session's memory ceiling was reached (peak %s)", amount(x.Usage.PeakMemoryBytes))
	}
	switch {
	case x.ErrorCode == api.CodeSessionExpired:
		return &exitError{exitTimeout, fmt.Errorf("the session expired %s after the command began, and ended it", span(x.Usage.WallNS))}
	case x.Status == "timeout":
		return &exitError{exitTimeout, fmt.Errorf("timed out after %s", span(x.Usage.WallNS))}
	case x.Signal != "":
		name, _ := api.ParseSignal(x.Signal)
		return &exitError{exitSignal + name.Number(), nil}
	case x.ExitCode > 0:
		return &exitError{x.ExitCode, nil}
	case x.ExitCode < 0:
		return fmt.Errorf("exec: %s: %s", x.ErrorCode, x.ErrorMessage)
	}
	return nil
}
