package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/stockade-dev/stockade/supervisor/api"
)

func (c *cli) topCommand() *cobra.Command {
	var interval time.Duration
	var once bool
	cmd := &cobra.Command{
		Use:   "top [flags]",
		Short: "Watch your sessions and executions, and act on them",
		Long: `top shows your sessions that live, each with its executions below it: how they stand, the
processor time, memory and processes that a session uses against its ceilings, how much they
write, and how often something was refused. A processor is 100 %. What is refused to processes
is counted when their execution ends.

  j, k, arrows   select             x   cancel the execution, once you have said y
  Enter          show it all        X   close the session, once you have said y
  c, m, o        the most CPU, memory or output first
  q, Ctrl-C      quit

A supervisor that is away is said on the screen; top goes on when it is back. NO_COLOR leaves
colours out.`,
		Example: `  stockade top
  stockade top --interval 500ms
  stockade top --once
  stockade top --once --json | jq '.sessions[] | select(.cpu_percent > 90) | .id'`,
		Args: arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if interval < shortestPoll {
				return usage("--interval %v: want %v or more", interval, shortestPoll)
			}
			return c.top(cmd.Context(), interval, once)
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.DurationVarP(&interval, "interval", "i", 2*time.Second, "time between two looks")
	flags.BoolVar(&once, "once", false, "look twice, an interval apart, print one table and end")
	return cmd
}

// shortestPoll is as often as anybody may look: a session is not read anew more often.
const shortestPoll = 500 * time.Millisecond

func (c *cli) top(ctx context.Context, interval time.Duration, once bool) error {
	in, _ := c.stdin.(*os.File)
	out, _ := c.stdout.(*os.File)
	switch {
	case once:
		return c.topOnce(ctx, interval)
	case c.json:
		return c.topLines(ctx, interval)
	case in == nil || out == nil || !term.IsTerminal(int(in.Fd())) || !term.IsTerminal(int(out.Fd())):
		return usage("top: it needs a terminal; --once prints one table, and --json one document per line")
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	was, err := term.MakeRaw(int(in.Fd()))
	if err != nil {
		return err
	}
	defer term.Restore(int(in.Fd()), was)
	t := &board{
		c: c, in: in, out: out, interval: interval, colour: os.Getenv("NO_COLOR") == "",
		view:  view{by: byCPU, every: interval},
		keys:  make(chan string),
		polls: make(chan func(*board)),
		fault: make(chan any, 1),
	}
	defer out.WriteString(leaveScreen)
	if _, err := out.WriteString(enterScreen); err != nil {
		return err
	}
	return t.run(ctx)
}

// topOnce prints one table.
func (c *cli) topOnce(ctx context.Context, interval time.Duration) error {
	before, err := c.poll(ctx)
	if err != nil {
		return err
	}
	select {
	case <-time.After(interval):
	case <-ctx.Done():
		return ctx.Err()
	}
	now, err := c.poll(ctx)
	if err != nil {
		return err
	}
	v := now.survey(before)
	if c.json {
		return document(c.stdout, v)
	}
	rows := [][]string{columns}
	for _, s := range v.rows(byCPU) {
		rows = append(rows, s.cells())
	}
	return table(c.stdout, rows)
}

// topLines writes one document per line, until it is told to end or nobody reads.
func (c *cli) topLines(ctx context.Context, interval time.Duration) error {
	var before *poll
	away := false
	for tick := time.NewTicker(interval); ; {
		now, err := c.poll(ctx)
		switch {
		case err == nil:
			if err := c.line(now.survey(before)); err != nil {
				return err
			}
			before, away = now, false
		case ctx.Err() != nil:
			return ctx.Err()
		case !lostAgain(err) || before == nil:
			return err
		case !away:
			c.say("%v; top goes on when it is back", err)
			away = true
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// board is top on a terminal. Only run touches what it shows.
type board struct {
	c        *cli
	in, out  *os.File
	interval time.Duration
	colour   bool
	view     view
	last     *poll
	polling  bool

	keys  chan string
	polls chan func(*board) // what somebody else found out, for run to take in
	fault chan any          // of somebody else's panic
}

// run shows, looks and listens until somebody quits.
func (t *board) run(ctx context.Context) error {
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGWINCH, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(signals)
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	t.spawn(func() { t.listen(ctx) })
	tick := time.NewTicker(t.interval)
	defer tick.Stop()
	t.look(ctx)
	for {
		if err := t.draw(); err != nil {
			return err
		}
		select {
		case s := <-signals:
			if s != syscall.SIGWINCH {
				return &exitError{exitSignal + int(s.(syscall.Signal)), nil}
			}
		case key, ok := <-t.keys:
			if !ok {
				return nil // nobody is there
			}
			do := t.view.press(key)
			if do.quit {
				return nil
			}
			t.act(ctx, do)
		case found := <-t.polls:
			found(t)
		case p := <-t.fault:
			panic(p) // here, where the terminal is put back
		case <-tick.C:
			t.look(ctx)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// spawn does something on the side; its panic becomes ours.
func (t *board) spawn(do func()) {
	go func() {
		defer func() {
			if p := recover(); p != nil {
				t.fault <- fmt.Sprintf("%v\n%s", p, debug.Stack())
			}
		}()
		do()
	}()
}

// tell has run take something in.
func (t *board) tell(ctx context.Context, found func(*board)) {
	select {
	case t.polls <- found:
	case <-ctx.Done():
	}
}

// listen reads what is typed.
func (t *board) listen(ctx context.Context) {
	defer close(t.keys)
	buf := make([]byte, 256)
	for {
		n, err := t.in.Read(buf)
		for _, key := range parseTyped(string(buf[:n])) {
			select {
			case t.keys <- key:
			case <-ctx.Done():
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// look asks the supervisor how everything stands, unless it is still being asked.
func (t *board) look(ctx context.Context) {
	if t.polling {
		return
	}
	t.polling = true
	t.spawn(func() {
		ctx, cancel := context.WithTimeout(ctx, pollWait)
		p, err := t.c.poll(ctx)
		cancel()
		t.tell(context.WithoutCancel(ctx), func(t *board) {
			t.polling = false
			if err != nil {
				t.view.lost(err, t.c.now())
				return
			}
			t.view.show(p.survey(t.last))
			t.last = p
		})
	})
}

// pollWait is how long a supervisor may take to answer before it is said to be away.
const pollWait = 10 * time.Second

// act does what was asked for with a key.
func (t *board) act(ctx context.Context, do deed) {
	var quiet strings.Builder
	inner := &cli{socket: t.c.socket, scope: t.c.scope, stdin: strings.NewReader(""), stdout: &quiet, stderr: &quiet, clock: t.c.clock}
	var run func() error
	switch {
	case do.show != "":
		run = func() error { return inner.show(ctx, do.show) }
	case do.cancel != "":
		run = func() error { return inner.cancel(ctx, do.cancel, api.ProcessCancel{}) }
	case do.close != "":
		run = func() error { return inner.close(ctx, do.close, api.SessionClose{}) }
	default:
		return
	}
	t.spawn(func() {
		inner.report(run())
		t.tell(ctx, func(t *board) {
			if do.show != "" {
				t.view.inspect(do.show, slices.Collect(strings.Lines(quiet.String())))
			} else {
				t.view.said = strings.Join(strings.Fields(quiet.String()), " ")
				t.look(ctx)
			}
		})
	})
}

// draw writes the screen as it is now, in one write.
func (t *board) draw() error {
	width, height, err := term.GetSize(int(t.out.Fd()))
	if err != nil {
		return err
	}
	_, err = t.out.WriteString(paint(t.view.frame(width, height, t.c.now()), t.colour))
	return err
}
