package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
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
	timeout     time.Duration
	stdin       string
	interactive bool
	outputs     []string
	dir         string // --output-dir
	progress    progressFlag
}

func (f *execFlags) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.DurationVar(&f.timeout, "timeout", 0, "wall time after which the whole tree is killed, such as 5m (default: the grant's)")
	flags.StringVar(&f.stdin, "stdin", "", "FILE to be read by the command, or - for our own stdin, read to its end first (default: empty)")
	flags.BoolVarP(&f.interactive, "interactive", "i", false, "pass our stdin on as it comes, and close the command's when ours ends")
	flags.StringArrayVar(&f.outputs, "output", nil, "PATH[:DEST]: file inside to bring out when the command has ended, as a digested blob and as the file DEST (repeatable)")
	flags.StringVar(&f.dir, "output-dir", ".", "directory for outputs that have no DEST of their own")
	flags.Var(&f.progress, "progress", "tell on stderr how the command comes along (default: on a terminal, when the output goes elsewhere)")
	flags.Lookup("progress").NoOptDefVal = "true"
}

// request is the flags and the command as the document that is sent.
func (f *execFlags) request(ctx context.Context, c *cli, session string, argv []string) (*api.Exec, []artifact, error) {
	if len(argv) == 0 {
		return nil, nil, usage("no command: say -- CMD…")
	}
	if f.timeout < 0 {
		return nil, nil, usage("--timeout %v: want a positive duration", f.timeout)
	}
	if f.interactive && f.stdin == "-" {
		return nil, nil, usage("--interactive and --stdin - both want our stdin")
	}
	wanted, err := artifacts(f.outputs, f.dir)
	if err != nil {
		return nil, nil, err
	}
	ask := &api.Exec{SessionID: session, Argv: argv, TimeoutNS: int64(f.timeout), StdinOpen: f.interactive}
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

// attachment is how a command is followed.
type attachment struct {
	quiet       bool // its output is not wanted
	progress    bool
	interactive bool // it reads our stdin
	key         string
	wait        time.Duration // how long; 0 means until it has ended
}

func (f *execFlags) attachment(c *cli, quiet bool) attachment {
	return attachment{quiet: quiet, progress: c.wanted(f.progress), interactive: f.interactive}
}

// execute runs one command to its end. Its output is copied as it comes; our stdin, if it is wanted,
// and signals that reach us meanwhile are passed on.
func (c *cli) execute(ctx context.Context, ask *api.Exec, a attachment) (*api.Receipt, error) {
	ctx, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	r := c.relay(ctx, giveUp)
	defer r.stop()
	f := &follower{c: c, quiet: a.quiet, progress: a.progress, accepted: func(exec string) {
		r.to(exec)
		if a.interactive {
			// Not waited for: nothing ends a read of a terminal, and when the command has ended nobody
			// wants what it would bring.
			go c.feed(ctx, exec)
		}
	}}
	follow := c.follow
	if a.wait > 0 {
		follow = c.followFor
	}
	receipt, err := follow(ctx, ask, a, f)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			return nil, cause
		}
		return nil, err
	}
	return receipt, f.rest(ctx, receipt)
}

// follow follows a command to its end.
func (c *cli) follow(ctx context.Context, ask *api.Exec, a attachment, f *follower) (*api.Receipt, error) {
	return c.patient(a.key).ExecStream(ctx, *ask, f.event)
}

// followFor follows a command for so long as the caller wants to.
func (c *cli) followFor(ctx context.Context, ask *api.Exec, a attachment, f *follower) (*api.Receipt, error) {
	p, r, err := c.client().WithKey(a.key).Start(ctx, *ask)
	if err != nil || r != nil {
		return r, err
	}
	if p.Approval != "" {
		c.say("it waits for leave: stockade approvals show %s", p.Approval)
	}
	f.accept(p.ExecID)
	until, cancel := context.WithTimeout(ctx, a.wait)
	defer cancel()
	r, err = c.patient("").Watch(until, p.ExecID, "", f.event)
	if err != nil && until.Err() != nil && ctx.Err() == nil {
		c.tellFollowUps(p, ask.StdinOpen)
		return nil, &exitError{exitRunning, fmt.Errorf("%s goes on after %v", p.ExecID, a.wait)}
	}
	return r, err
}

func (c *cli) stream(name string) io.Writer {
	if name == "stderr" {
		return c.stderr
	}
	return c.stdout
}

// relayed are the signals that are passed on.
var relayed = []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2}

// impatience is how close together three interrupts are of somebody who wants an end of it.
const impatience = 2 * time.Second

// relay passes our signals on to one execution.
//
//	INT, HUP, QUIT, USR1, USR2   delivered
//	TERM                         cancel: TERM to the whole tree, KILL after the grace time
//	the third INT in 2 s         cancel: KILL at once
//
// Before the execution has an id they wait; with the second one, whoever sends them is tired of waiting
// for the supervisor, and so are we.
type relay struct {
	c          *cli
	caught     chan os.Signal
	exec       chan string
	done       chan struct{}
	interrupts []time.Time
}

func (c *cli) relay(ctx context.Context, giveUp context.CancelCauseFunc) *relay {
	r := &relay{c: c, caught: make(chan os.Signal, 8), exec: make(chan string, 1), done: make(chan struct{})}
	signal.Notify(r.caught, relayed...)
	go r.run(ctx, giveUp)
	return r
}

// to names the execution.
func (r *relay) to(exec string) { r.exec <- exec }

// stop ends the relay. Signals have their usual effect again.
func (r *relay) stop() {
	signal.Stop(r.caught)
	close(r.caught)
	<-r.done
}

func (r *relay) run(ctx context.Context, giveUp context.CancelCauseFunc) {
	defer close(r.done)
	var exec string
	var waiting []syscall.Signal
	for {
		select {
		case exec = <-r.exec:
			for _, sig := range waiting {
				r.deliver(ctx, exec, sig)
			}
		case caught, ok := <-r.caught:
			if !ok {
				return
			}
			sig := caught.(syscall.Signal)
			if exec != "" {
				r.deliver(ctx, exec, sig)
				continue
			}
			if waiting = append(waiting, sig); len(waiting) > 1 {
				giveUp(&exitError{exitSignal + int(sig), errors.New("interrupted before the supervisor answered; it may have taken the command all the same: see stockade ps")})
			}
		}
	}
}

// deliver passes one signal on. A supervisor that refuses it says so on stderr, and the command goes on.
func (r *relay) deliver(ctx context.Context, exec string, sig syscall.Signal) {
	name, _ := api.SignalOf(int(sig))
	ref := api.ProcessRef{ExecID: exec}
	var receipt *api.Receipt
	var err error
	switch {
	case sig == syscall.SIGTERM:
		receipt, err = r.c.client().Cancel(ctx, api.ProcessCancel{ProcessRef: ref, Wait: new(false)})
	case sig == syscall.SIGINT && r.impatient():
		receipt, err = r.c.client().Cancel(ctx, api.ProcessCancel{ProcessRef: ref, Wait: new(false), GraceNS: new(int64(0))})
	default:
		receipt, err = r.c.client().SignalProcess(ctx, api.ProcessSignal{ProcessRef: ref, Signal: name})
	}
	if err == nil {
		err = r.c.settled(receipt)
	}
	if err != nil && !over(receipt, err) {
		r.c.say("signal %s: %v", name, err)
	}
}

// impatient reports whether this interrupt is the third in a short time.
func (r *relay) impatient() bool {
	r.interrupts = append(r.interrupts, time.Now())
	n := len(r.interrupts)
	return n >= 3 && r.interrupts[n-1].Sub(r.interrupts[n-3]) < impatience
}

// over reports whether an operation failed because the execution had ended.
func over(r *api.Receipt, err error) bool {
	if r != nil {
		return r.ErrorCode == api.CodeExecEnded
	}
	e, ok := errors.AsType[*api.Error](err)
	return ok && e.Code == api.CodeExecEnded
}

// tellFollowUps says what can be done with a command that runs.
func (c *cli) tellFollowUps(p *api.Pending, stdinOpen bool) {
	c.say("%s is %s, of intent %s", p.ExecID, p.State, p.IntentID)
	can := followUps
	if !stdinOpen {
		can = strings.ReplaceAll(can, "input, ", "")
	}
	c.say("what can be done with it: stockade %s", can)
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
		c.say("out of memory: the %s's memory ceiling was reached", memoryScope(x))
	}
	c.tellEvidence(x)
	switch {
	case x.ErrorCode == api.CodeSessionExpired:
		return &exitError{exitTimeout, fmt.Errorf("the session expired %s after the command began, and ended it", span(x.Usage.WallNS))}
	case x.ErrorCode == api.CodeSessionIdle:
		return &exitError{exitTimeout, fmt.Errorf("the session was idle for too long, and ended the command after %s", span(x.Usage.WallNS))}
	case x.Status == "timeout":
		return &exitError{exitTimeout, fmt.Errorf("timed out after %s", span(x.Usage.WallNS))}
	case x.Signal != "":
		name, _ := api.ParseSignal(x.Signal)
		return &exitError{exitSignal + name.Number(), nil}
	case x.ExitCode > 0:
		return &exitError{x.ExitCode, nil}
	case x.ErrorCode == api.CodeCanceled: // before it began, or it took the signal for its success
		return &exitError{exitSignal + int(syscall.SIGTERM), errors.New("canceled")}
	case x.ExitCode < 0:
		return fmt.Errorf("exec: %s: %s", x.ErrorCode, x.ErrorMessage)
	}
	return nil
}

// feed passes our stdin on to an execution until one of the two ends.
func (c *cli) feed(ctx context.Context, exec string) {
	f := &feeder{c: c, ref: api.ProcessRef{ExecID: exec}, id: rand.Text(), met: true}
	if err := f.copy(ctx, c.stdin); err != nil && !f.deaf(err) && ctx.Err() == nil {
		c.say("stdin: %v", err)
	}
}
