package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/stockade-dev/stockade/supervisor/api"
	"github.com/stockade-dev/stockade/supervisor/client"
)

type shellOptions struct {
	session  sessionFlags
	observe  bool
	takeover bool
	detach   string
	labels   []string
}

func (c *cli) shellCommand() *cobra.Command {
	var o shellOptions
	cmd := &cobra.Command{
		Use:   "shell [flags] [SESSION|SHELL] [-- CMD [ARG…]]",
		Short: "Sit down at a shell in a session",
		Long: `shell opens a shell in SESSION, on a terminal of its own, and attaches ours to it. With SHELL,
the id of one that goes on, it attaches to that; without either it opens a session, and closes it when the
shell has ended. CMD is any program; by default it is ` + strings.Join(api.DefaultShell, " ") + `.

The detach keys (ctrl-p ctrl-q) leave the shell to itself; it goes on, and what it writes meanwhile is kept.
One at a time types: --takeover takes that from somebody else, who becomes an observer. --observe
types nothing. The end of the supervisor is no end of a shell: shell goes on when it is back.

` + exitHelp,
		Example: `  stockade shell --mount .:/work:rw --workdir /work
  stockade shell "$id"
  stockade shell "$id" -- python3
  stockade shell x-4u2d
  stockade shell --observe x-4u2d`,
		ValidArgsFunction: atMost(1, c.sessions),
		RunE: func(cmd *cobra.Command, args []string) error {
			var argv []string
			if dash := cmd.ArgsLenAtDash(); dash >= 0 {
				args, argv = args[:dash], args[dash:]
			}
			if len(args) > 1 {
				return usage("shell: at most one SESSION or SHELL; the program comes behind --")
			}
			return c.shell(cmd.Context(), &o, strings.Join(args, ""), argv)
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.BoolVar(&o.observe, "observe", false, "watch, and type nothing")
	flags.BoolVar(&o.takeover, "takeover", false, "type, also where somebody else does")
	flags.StringVar(&o.detach, "detach-keys", "ctrl-p,ctrl-q", "what leaves the shell to itself: keys, such as ctrl-x, with commas between; \"\" is nothing")
	flags.StringArrayVar(&o.labels, "label-shell", nil, "K=V of the shell, shown to policy and in lists (repeatable)")
	o.session.register(cmd)
	cmd.AddCommand(c.exportCommand(), c.playCommand())
	return cmd
}

func (c *cli) shell(ctx context.Context, o *shellOptions, word string, argv []string) (err error) {
	detach, err := parseKeys(o.detach)
	if err != nil {
		return err
	}
	d := &desk{c: c, o: o, detach: detach, watches: o.observe}
	d.in, _ = c.stdin.(*os.File)
	d.out, _ = c.stdout.(*os.File)
	d.raw = d.in != nil && d.out != nil && term.IsTerminal(int(d.in.Fd())) && term.IsTerminal(int(d.out.Fd()))
	if strings.HasPrefix(word, execPrefix) {
		if len(argv) > 0 {
			return usage("shell: %s is a shell already", word)
		}
		if d.exec, err = c.execID(ctx, word); err != nil {
			return err
		}
		d.again = true
		return d.attend(ctx)
	}
	if o.observe || o.takeover {
		return usage("--observe and --takeover are for a shell that goes on: name it")
	}
	session := ""
	if word != "" {
		if session, err = c.sessionID(ctx, word); err != nil {
			return err
		}
	} else {
		if session, err = c.openFor(ctx, &o.session); err != nil {
			return err
		}
		defer func() {
			if d.detached {
				c.say("session %s goes on; stockade close ends it", session)
				return
			}
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closing)
			defer cancel()
			_, cerr := c.client().Close(ctx, api.SessionClose{SessionID: session})
			err = errors.Join(err, cerr)
		}()
	}
	if d.exec, err = c.openShell(ctx, o, session, argv, d); err != nil {
		return err
	}
	return d.attend(ctx)
}

// openFor opens the session of one shell.
func (c *cli) openFor(ctx context.Context, f *sessionFlags) (string, error) {
	ask, err := f.request()
	if err != nil {
		return "", err
	}
	r, err := c.client().Open(ctx, *ask)
	if err != nil {
		return "", err
	}
	if err := c.settled(r); err != nil {
		return "", err
	}
	return r.SessionID, nil
}

func (c *cli) openShell(ctx context.Context, o *shellOptions, session string, argv []string, d *desk) (string, error) {
	ask := api.Exec{SessionID: session, Argv: argv, WaitMS: 1}
	var err error
	if ask.Labels, err = labels(o.labels); err != nil {
		return "", err
	}
	if d.raw {
		cols, rows, err := term.GetSize(int(d.out.Fd()))
		if err == nil && cols > 0 && rows > 0 {
			ask.Terminal = &api.Terminal{Cols: cols, Rows: rows, Term: os.Getenv("TERM")}
		}
	}
	s, r, err := c.client().OpenShell(ctx, ask)
	if err != nil {
		return "", err
	}
	if r != nil {
		return "", c.ended(r)
	}
	return s.ExecID, nil
}

// parseKeys reads what detaches.
func parseKeys(text string) ([]byte, error) {
	var keys []byte
	if text == "" {
		return nil, nil
	}
	for key := range strings.SplitSeq(text, ",") {
		name, ctrl := strings.CutPrefix(key, "ctrl-")
		switch {
		case len(name) != 1 || name[0] < ' ' || name[0] > '~':
			return nil, usage("--detach-keys: %q is no key", key)
		case ctrl && (name[0]&^0x20 < '@' || name[0]&^0x20 > '_'):
			return nil, usage("--detach-keys: %q is no key", key)
		case ctrl:
			keys = append(keys, name[0]&0x1f)
		default:
			keys = append(keys, name[0])
		}
	}
	return keys, nil
}

// desk is where a person sits at a shell.
type desk struct {
	c        *cli
	o        *shellOptions
	exec     string
	in, out  *os.File
	raw      bool // both are a terminal
	again    bool // it is not new to us, and has to be shown anew
	detach   []byte
	detached bool
	ended    bool
	watches  bool // what is typed goes nowhere
	token    string
	pressed  int // how many of the detach keys were
}

// leftModes puts a terminal back into the modes of a line, whatever the program in the shell has left it in.
const leftModes = "\x1b[?1049l\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l\x1b[?2004l\x1b[?1l\x1b>\x1b[?25h\x1b[0m"

// attend attaches until the shell ends, or we are sent away.
func (d *desk) attend(ctx context.Context) error {
	err := d.attached(ctx)
	switch {
	case err != nil:
		return err
	case d.detached:
		d.c.say("detached from %s", d.exec)
		return nil
	}
	return d.conclude(ctx)
}

// attached is the time in which our terminal is that of the shell.
func (d *desk) attached(ctx context.Context) error {
	if d.raw {
		was, err := term.MakeRaw(int(d.in.Fd()))
		if err != nil {
			return err
		}
		defer func() {
			if !d.ended {
				io.WriteString(d.c.stdout, leftModes+"\r\n")
			}
			term.Restore(int(d.in.Fd()), was)
		}()
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	keys := make(chan []byte)
	go d.listen(ctx, keys)
	err := d.sit(ctx, keys)
	for until := time.Now().Add(reattaching); err != nil && lostAgain(err) && time.Now().Before(until); {
		time.Sleep(200 * time.Millisecond)
		before := d.token
		if err = d.sit(ctx, keys); d.token != before {
			until = time.Now().Add(reattaching)
		}
	}
	return err
}

// reattaching is how long a supervisor may be away.
const reattaching = 15 * time.Second

// lostAgain reports whether the connection was lost, or the supervisor is not there: both may be over in a moment.
func lostAgain(err error) bool {
	if e, ok := errors.AsType[*api.Error](err); ok {
		return e.Code == api.CodeShuttingDown
	}
	return true
}

// listen reads what is typed.
func (d *desk) listen(ctx context.Context, keys chan<- []byte) {
	buf := make([]byte, 4<<10)
	for {
		n, err := d.c.stdin.Read(buf)
		if n > 0 {
			select {
			case keys <- bytes.Clone(buf[:n]):
			case <-ctx.Done():
				return
			}
		}
		if err != nil {
			close(keys)
			return
		}
	}
}

// sit is one connection.
func (d *desk) sit(ctx context.Context, keys <-chan []byte) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	seat := client.Seat{After: d.token, Observe: d.watches, Takeover: d.o.takeover && !d.watches}
	if !d.again && d.token == "" {
		s, err := d.c.client().Shell(ctx, d.exec)
		if err != nil {
			return err
		}
		seat.After = s.First // a new one is shown from its beginning
	}
	a, err := d.c.client().Attach(ctx, d.exec, seat)
	if over(nil, err) && !d.watches && seat.After != "" { // it ended before we sat, or came back: what it still said is read
		d.watches = true
		return d.sit(ctx, keys)
	}
	if err != nil {
		return err
	}
	defer a.Close()
	if d.raw && !d.watches {
		resized := make(chan os.Signal, 1)
		signal.Notify(resized, unix.SIGWINCH)
		defer signal.Stop(resized)
		if d.again {
			d.size(ctx, a, 1) // another size first: what is on the screen is drawn anew
		}
		d.size(ctx, a, 0)
		go func() {
			for {
				select {
				case <-resized:
					d.size(ctx, a, 0)
				case <-ctx.Done():
					return
				}
			}
		}()
	}
	over := make(chan error, 1)
	go func() { over <- d.show(ctx, a) }()
	late := time.NewTimer(detachWithin)
	defer late.Stop()
	for {
		select {
		case err := <-over:
			return err
		case <-late.C:
			if send := d.release(); len(send) > 0 && !d.watches {
				if err := a.Keys(ctx, send); err != nil {
					return <-over
				}
			}
		case b, ok := <-keys:
			if !ok {
				keys = nil
				if !d.watches && !d.raw {
					err = a.Act(ctx, api.ShellAction{Type: api.ActionCtrlD}) // the end of our stdin is that of its
				}
				continue
			}
			send, away := d.press(b)
			late.Reset(detachWithin)
			if len(send) > 0 && !d.watches {
				if err := a.Keys(ctx, send); err != nil {
					return <-over
				}
			}
			if away {
				d.detached = true
				return nil
			}
		}
	}
}

// press looks for the detach keys in what is typed, and returns what is for the shell.
func (d *desk) press(b []byte) (send []byte, away bool) {
	if d.o.observe && bytes.IndexByte(b, 'q') >= 0 || d.o.observe && bytes.IndexByte(b, 3) >= 0 {
		return nil, true
	}
	if len(d.detach) == 0 || !d.raw {
		return b, false
	}
	for _, k := range b {
		switch {
		case k == d.detach[d.pressed]:
			if d.pressed++; d.pressed == len(d.detach) {
				d.pressed = 0
				return send, true
			}
		default:
			send = append(send, d.detach[:d.pressed]...) // it was another key that they were for
			d.pressed = 0
			if k == d.detach[0] {
				d.pressed = 1
				continue
			}
			send = append(send, k)
		}
	}
	return send, false
}

// detachWithin is how long the next of the detach keys may take: those before it are the shell's otherwise.
const detachWithin = 500 * time.Millisecond

// release gives the shell the keys that came to nothing.
func (d *desk) release() []byte {
	send := d.detach[:d.pressed]
	d.pressed = 0
	return send
}

// size tells the shell the size of our terminal, less so many rows.
func (d *desk) size(ctx context.Context, a *client.Attachment, less int) {
	cols, rows, err := term.GetSize(int(d.out.Fd()))
	if err == nil && cols > 0 && rows-less > 0 {
		// If this fails, the connection has, and show says so.
		_ = a.Act(ctx, api.ShellAction{Type: api.ActionResize, Cols: cols, Rows: rows - less})
	}
}

// show writes what comes out, until the shell has ended.
func (d *desk) show(ctx context.Context, a *client.Attachment) error {
	for {
		s, err := a.Next(ctx)
		switch {
		case err == io.EOF:
			d.ended = true
			return nil
		case err != nil:
			return err
		case s.Output != nil:
			d.token = s.Output.Token
			if s.Output.End {
				d.ended = true
				return nil
			}
		case s.News == "observer":
			d.o.observe, d.watches = true, true
			fmt.Fprint(d.c.stderr, "stockade: somebody else types now; you watch (q leaves)\r\n")
		default:
			if _, err := d.c.stdout.Write(s.Bytes); err != nil {
				return err
			}
		}
	}
}

// conclude ends as the shell did.
func (d *desk) conclude(ctx context.Context) error {
	p, err := d.c.client().WaitProcess(ctx, d.exec, time.Minute)
	switch {
	case err != nil:
		return err
	case d.o.observe:
		return nil
	case p.ErrorCode != "":
		return &exitError{exitSignal + 1, fmt.Errorf("the shell ended: %s", p.ErrorCode)}
	case p.ExitCode != nil && *p.ExitCode != 0:
		return &exitError{*p.ExitCode, nil}
	case p.Signal != "":
		return &exitError{exitSignal + api.SignalName(p.Signal).Number(), fmt.Errorf("the shell was killed by SIG%s", p.Signal)}
	}
	return nil
}
