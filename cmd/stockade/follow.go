package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/supervisor/api"
	"github.com/stockade-dev/stockade/supervisor/client"
)

// follower copies what an execution writes to our own streams as it comes, and tells its milestones
// apart from that on stderr.
type follower struct {
	c        *cli
	quiet    bool // the output is not wanted
	progress bool
	past     bool   // it is read, not run: a terminal is to show it, and not to act on it
	stamps   bool   // each line begins with the time of its arrival
	cursor   string // of the last event

	accepted func(exec string) // called once, with the first event that names the execution
	exec     string
	seen     map[string]bool // streams of which something came
	inLine   map[string]bool // streams that wrote a part of a line
	texts    map[string]io.Writer
}

// progressFlag says whether progress is told. Unless somebody asks, it is told to a person who sees
// nothing of the output.
type progressFlag struct {
	set, on bool
}

func (p *progressFlag) String() string {
	if !p.set {
		return "" // help says what that means
	}
	return strconv.FormatBool(p.on)
}

func (p *progressFlag) Set(text string) (err error) {
	p.set = true
	p.on, err = strconv.ParseBool(text)
	return err
}

func (*progressFlag) Type() string     { return "bool" }
func (*progressFlag) IsBoolFlag() bool { return true }

// wanted says whether progress is told.
func (c *cli) wanted(p progressFlag) bool {
	if p.set {
		return p.on
	}
	return terminal(c.stderr) && !terminal(c.stdout)
}

// terminal says whether w is one.
func terminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// event takes one event. A stream of ours that is closed does not end the command.
func (f *follower) event(e api.Event) error {
	if e.ExecID != "" {
		f.accept(e.ExecID)
	}
	if e.Approval != "" {
		f.c.say("it waits for leave: stockade approvals show %s", e.Approval)
	}
	if e.Cursor != "" {
		f.cursor = e.Cursor
	}
	switch {
	case e.Gone != nil:
		f.c.gone(e.Gone)
	case e.Kind == "output" && !f.quiet:
		f.write(e.Stream, e.Bytes, e.AtNS)
	case e.Frame != nil && f.progress:
		f.c.milestone(e.Frame)
	}
	return nil
}

// accept takes the id of the execution when it is known.
func (f *follower) accept(exec string) {
	if f.exec != "" {
		return
	}
	if f.exec = exec; f.accepted != nil {
		f.accepted(exec)
	}
}

// gone says that output or events are not kept any more.
func (c *cli) gone(g *api.Gone) {
	if g.FirstAvailable == "" {
		c.say("nothing behind %q is kept any more", g.From)
		return
	}
	c.say("what lies between %q and %q is not kept any more", g.From, g.FirstAvailable)
}

// to is where a stream is written. What is read of the past is shown; who runs a command has the terminal for it.
func (f *follower) to(stream string) io.Writer {
	if !f.past {
		return f.c.stream(stream)
	}
	if f.texts == nil {
		f.texts = map[string]io.Writer{}
	}
	if f.texts[stream] == nil {
		f.texts[stream] = shown(f.c.stream(stream))
	}
	return f.texts[stream]
}

func (f *follower) write(stream string, b []byte, atNS int64) {
	if f.seen == nil {
		f.seen, f.inLine = map[string]bool{}, map[string]bool{}
	}
	f.seen[stream] = true
	to := f.to(stream)
	if !f.stamps {
		to.Write(b)
		return
	}
	for line := range bytes.Lines(b) {
		if !f.inLine[stream] {
			fmt.Fprint(to, stamp(atNS), " ")
		}
		to.Write(line)
		f.inLine[stream] = line[len(line)-1] != '\n'
	}
}

// rest writes the output in a receipt that did not come as events: that of a command that an
// idempotency key found finished.
func (f *follower) rest(ctx context.Context, r *api.Receipt) error {
	if f.quiet || r.Payload.Exec == nil {
		return nil
	}
	for _, s := range []struct {
		name string
		out  *api.Output
	}{{"stdout", r.Payload.Exec.Stdout}, {"stderr", r.Payload.Exec.Stderr}} {
		if s.out == nil || f.seen[s.name] {
			continue
		}
		to := f.to(s.name)
		switch {
		case s.out.InlineText != nil:
			io.WriteString(to, s.out.InlineText.Text)
		case s.out.InlineBytes != nil:
			to.Write(s.out.InlineBytes.Bytes)
		case s.out.Blob != nil:
			if err := f.c.copyBlob(ctx, s.out.Blob.BlobRef, to); err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
		}
	}
	return nil
}

// milestone tells a frame: what the command is doing, apart from what it writes and from its receipt.
func (c *cli) milestone(f *api.Frame) {
	text := fmt.Sprintf("%s  %s", milestones[f.Kind], details(f))
	if terminal(c.stderr) && os.Getenv("NO_COLOR") == "" {
		fmt.Fprintf(c.stderr, "\x1b[2mstockade: %s\x1b[0m\n", printable(text))
		return
	}
	c.say("%s", text)
}

// milestones are the kinds of frames in a word.
var milestones = map[api.FrameKind]string{
	api.FrameStarting: "starting",
	api.FrameStarted:  "started",
	api.FrameProgress: "running",
	api.FramePaused:   "paused",
	api.FrameResumed:  "resumed",
	api.FrameModified: "modified",
	api.FrameInput:    "input",
	api.FrameAdopted:  "adopted",
}

// patient is a client that tells a person, once, that the connection was lost and is sought.
func (c *cli) patient(key string) *client.Client {
	var once sync.Once
	return c.client().WithKey(key).WithLost(func(err error) {
		once.Do(func() {
			c.say("the connection to the supervisor was lost (%v); the command goes on, and so do we when it is back", err)
		})
	})
}

// stamp is an instant as lines of logs and events have it: sortable, and of one width.
func stamp(ns int64) string { return time.Unix(0, ns).UTC().Format("2006-01-02T15:04:05.000000Z") }
