package main

import (
	"bytes"
	"context"
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/spf13/cobra"

	"github.com/stockade-dev/stockade/supervisor/api"
)

type logsOptions struct {
	follow   bool
	status   bool
	stamps   bool
	tail     int
	since    string
	progress progressFlag
}

func (c *cli) logsCommand() *cobra.Command {
	var o logsOptions
	cmd := &cobra.Command{
		Use:   "logs [flags] EXEC",
		Short: "Write what an execution has written so far, or follow it",
		Long: `logs writes what a command wrote: its stdout to our stdout, its stderr to our stderr,
in the order in which it arrived. With --follow it goes on until the command has ended,
also over a restart of the supervisor: nothing is left out and nothing comes twice. What
is not kept any more is said on stderr, with the position from which on it is.

With --json each line is one event: output with its stream, offset and bytes (base64),
frames, and the receipt last. The cursor of an event is where --since-cursor goes on.`,
		Example: `  stockade logs "$x"
  stockade logs -f --timestamps "$x"
  stockade logs --tail 20 -f --exit-status "$x"; echo $?
  stockade logs -f --json --since-cursor 3.4096.0 "$x"`,
		Args:              arguments(cobra.ExactArgs(1)),
		ValidArgsFunction: atMost(1, c.executions(false)),
		RunE:              func(cmd *cobra.Command, args []string) error { return c.logs(cmd.Context(), &o, args[0]) },
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.BoolVarP(&o.follow, "follow", "f", false, "go on until the command has ended")
	flags.IntVarP(&o.tail, "tail", "n", -1, "begin with the last N lines of what there is")
	flags.BoolVarP(&o.stamps, "timestamps", "t", false, "begin each line with the time at which it arrived")
	flags.StringVar(&o.since, "since-cursor", "", "begin behind this position, which an earlier --json gave")
	flags.BoolVar(&o.status, "exit-status", false, "with --follow: end with the status of the command")
	flags.Var(&o.progress, "progress", "tell on stderr how the command comes along (default: on a terminal, when the output goes elsewhere)")
	flags.Lookup("progress").NoOptDefVal = "true"
	return cmd
}

func (c *cli) logs(ctx context.Context, o *logsOptions, word string) error {
	if o.status && !o.follow {
		return usage("--exit-status: a command that may not have ended has none; add --follow")
	}
	exec, err := c.execID(ctx, word)
	if err != nil {
		return err
	}
	f := &follower{c: c, past: true, progress: c.wanted(o.progress), stamps: o.stamps, cursor: o.since}
	take := f.event
	if c.json {
		take = c.eventLine
	}
	if !o.follow || o.tail >= 0 {
		p, err := c.soFar(ctx, exec, o, f, take)
		if err != nil || !o.follow {
			return err
		}
		if p.End && p.Receipt != nil {
			return c.followed(o, p.Receipt)
		}
		f.cursor = p.Cursor
	}
	r, err := c.patient("").Watch(ctx, exec, f.cursor, take)
	if err != nil {
		return err
	}
	return c.followed(o, r)
}

// followed is the end of a command that was followed.
func (c *cli) followed(o *logsOptions, r *api.Receipt) error {
	if o.status {
		return c.ended(r)
	}
	return nil
}

// soFar hands out what an execution has written until now, or the last lines of it.
func (c *cli) soFar(ctx context.Context, exec string, o *logsOptions, f *follower, take func(api.Event) error) (*api.Pending, error) {
	var last *tail
	if o.tail >= 0 {
		last = &tail{lines: o.tail}
	}
	at := f.cursor
	for {
		p, err := c.client().Output(ctx, exec, api.Read{After: at})
		if err != nil {
			return nil, err
		}
		if p.Gone != nil {
			c.gone(p.Gone)
			if p.Gone.FirstAvailable == "" || p.Gone.FirstAvailable == at {
				return p, nil
			}
			at = p.Gone.FirstAvailable
			continue
		}
		events := outputEvents(p)
		for _, e := range events {
			if last != nil {
				last.add(e)
			} else if err := take(e); err != nil {
				return nil, err
			}
		}
		if len(events) > 0 && !p.End {
			at = p.Cursor
			continue
		}
		if last != nil {
			for _, e := range last.end() {
				if err := take(e); err != nil {
					return nil, err
				}
			}
		}
		if p.End && p.Receipt != nil {
			err = take(api.Event{Kind: "receipt", IntentID: p.IntentID, ExecID: p.ExecID, Receipt: p.Receipt})
		}
		return p, err
	}
}

// outputEvents is a page of output as the events that a stream would have had. The cursor stands
// behind the last.
func outputEvents(p *api.Pending) []api.Event {
	var events []api.Event
	for _, chunk := range p.Output {
		events = append(events, api.Event{
			Kind: "output", IntentID: p.IntentID, ExecID: p.ExecID,
			Stream: chunk.Stream, Offset: chunk.Offset, Bytes: chunk.Bytes, AtNS: chunk.AtNS,
		})
	}
	if n := len(events); n > 0 {
		events[n-1].Cursor = p.Cursor
	}
	return events
}

// eventLine writes one event as one line.
func (c *cli) eventLine(e api.Event) error {
	if e.Kind == "keepalive" {
		return nil
	}
	return c.line(e)
}

// line writes one document on one line.
func (c *cli) line(v any) error {
	b, err := json.Marshal(v, json.Deterministic(true))
	if err != nil {
		return fmt.Errorf("encode %T: %w", v, err)
	}
	_, err = c.stdout.Write(append(inert(b), '\n'))
	return err
}

// tail keeps the last lines of both streams, in the order in which they were completed. It reads all
// there is: where the last lines begin is known only then.
type tail struct {
	lines   int
	kept    []api.Event // one line each
	partial [2]api.Event
}

func (t *tail) add(e api.Event) {
	begun := &t.partial[0]
	if e.Stream == "stderr" {
		begun = &t.partial[1]
	}
	at := e.Offset
	for line := range bytes.Lines(e.Bytes) {
		if len(begun.Bytes) == 0 {
			*begun = e
			begun.Bytes, begun.Cursor, begun.Offset = nil, "", at
		}
		at += int64(len(line))
		begun.Bytes = append(begun.Bytes, line...)
		if line[len(line)-1] == '\n' {
			t.keep(*begun)
			*begun = api.Event{}
		}
	}
}

func (t *tail) keep(line api.Event) {
	t.kept = append(t.kept, line)
	if over := len(t.kept) - t.lines; over > 0 {
		clear(t.kept[:over])
		t.kept = t.kept[over:]
	}
}

// end returns the last lines, of which one of each stream may be without an end.
func (t *tail) end() []api.Event {
	for _, begun := range t.partial {
		if len(begun.Bytes) > 0 {
			t.keep(begun)
		}
	}
	return t.kept
}
