package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"regexp"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/stockade-dev/stockade/internal/escape"
)

func (c *cli) exportCommand() *cobra.Command {
	var input bool
	cmd := &cobra.Command{
		Use:   "export [flags] SHELL",
		Short: "Write the recording of a shell, as an asciicast",
		Long: `export writes what a shell looked like, from its beginning on, as an asciicast v2, which any asciinema player
plays. Of a shell that goes on it is what there is. That of one that has ended is named by the digest in its receipt
(payload.exec.recording): with --input, where that was recorded, sha256sum says the same.

Shells are recorded where the grant of their session says so (exec.record).`,
		Example: `  stockade shell export x-4u2d > session.cast
  asciinema play session.cast`,
		Args:              arguments(cobra.ExactArgs(1)),
		ValidArgsFunction: atMost(1, c.executions(false)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if f, ok := c.stdout.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
				return usage("shell export: it is not for a terminal; write it to a file, or use stockade shell play")
			}
			r, err := c.recording(cmd.Context(), args[0], input)
			if err != nil {
				return err
			}
			defer r.Close()
			_, err = io.Copy(c.stdout, r)
			return err
		},
	}
	cmd.Flags().BoolVar(&input, "input", false, "with what was typed, where that was recorded")
	return cmd
}

func (c *cli) recording(ctx context.Context, word string, input bool) (io.ReadCloser, error) {
	id, err := c.execID(ctx, word)
	if err != nil {
		return nil, err
	}
	return c.client().Recording(ctx, id, input)
}

type playOptions struct {
	from  time.Duration
	to    time.Duration
	grep  string
	speed float64
	idle  time.Duration
}

func (c *cli) playCommand() *cobra.Command {
	var o playOptions
	cmd := &cobra.Command{
		Use:   "play [flags] SHELL|FILE",
		Short: "Play the recording of a shell",
		Long: `play shows, on a terminal, what a shell looked like, in its time; FILE is what export has written. It is the one command that
has a terminal act on what came out of a session. What is before --from is shown at once, so that the screen is
what it was. With --grep, what is around lines that match is played in its time, and the rest is shown at once.

Where its output is no terminal, or with --json, it writes the lines instead, each with its time and without escape sequences:
those that match, with --grep.`,
		Example: `  stockade shell play x-4u2d --from 1m30s --speed 2
  stockade shell play x-4u2d --grep 'error:' | less`,
		Args:              arguments(cobra.ExactArgs(1)),
		ValidArgsFunction: atMost(1, c.executions(false)),
		RunE:              func(cmd *cobra.Command, args []string) error { return c.play(cmd.Context(), args[0], &o) },
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.DurationVar(&o.from, "from", 0, "begin there, such as 1m30s")
	flags.DurationVar(&o.to, "to", math.MaxInt64, "end there")
	flags.StringVar(&o.grep, "grep", "", "what a line has to match: a regular expression (RE2)")
	flags.Float64Var(&o.speed, "speed", 1, "so many times as fast")
	flags.DurationVar(&o.idle, "idle-limit", 0, "no pause is longer; 0 leaves them")
	flags.Lookup("to").DefValue = ""
	return cmd
}

// around is what is played of a recording beside a line that matches.
const around = 2 * time.Second

func (c *cli) play(ctx context.Context, word string, o *playOptions) error {
	if o.speed <= 0 {
		return usage("--speed %v: want a number above 0", o.speed)
	}
	pattern, err := regexp.Compile(o.grep)
	if err != nil {
		return usage("--grep: %v", err)
	}
	if o.grep == "" {
		pattern = nil
	}
	var r io.ReadCloser
	if strings.ContainsAny(word, "/.") {
		r, err = os.Open(word)
	} else {
		r, err = c.recording(ctx, word, false)
	}
	if err != nil {
		return err
	}
	defer r.Close()
	t, err := readCast(r)
	if err != nil {
		return err
	}
	out, _ := c.stdout.(*os.File)
	if c.json || out == nil || !term.IsTerminal(int(out.Fd())) {
		return c.castLines(t, pattern, o)
	}
	return c.playBack(ctx, t, pattern, o)
}

// tapeEvent is one event of an asciicast.
type tapeEvent struct {
	at   time.Duration
	kind string
	data string
}

// mostCast is how large an asciicast may be that is played.
const mostCast = 1 << 30

// readCast reads an asciicast v2. What it is of may be hostile; so may be a file.
func readCast(r io.Reader) ([]tapeEvent, error) {
	in := bufio.NewReader(io.LimitReader(r, mostCast))
	line, err := in.ReadBytes('\n')
	var header struct {
		Version int `json:"version"`
	}
	if err != nil && err != io.EOF {
		return nil, err
	}
	if err := json.Unmarshal(line, &header); err != nil || header.Version != 2 {
		return nil, errors.New("this is no asciicast v2")
	}
	var events []tapeEvent
	for n := 2; ; n++ {
		line, err := in.ReadBytes('\n')
		if len(line) > 0 {
			e, ok := castEvent(line)
			if !ok {
				return nil, fmt.Errorf("line %d of the asciicast is no event", n)
			}
			events = append(events, e)
		}
		if err == io.EOF {
			return events, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// castEvent reads [TIME, KIND, DATA].
func castEvent(line []byte) (e tapeEvent, ok bool) {
	var parts []any
	if json.Unmarshal(line, &parts, jsontext.AllowInvalidUTF8(true)) != nil || len(parts) != 3 {
		return e, false
	}
	at, timed := parts[0].(float64)
	kind, named := parts[1].(string)
	data, told := parts[2].(string)
	const longest = 1e9 // seconds
	return tapeEvent{time.Duration(at * float64(time.Second)), kind, data}, timed && named && told && at >= 0 && at <= longest
}

// playBack plays on a terminal.
func (c *cli) playBack(ctx context.Context, events []tapeEvent, pattern *regexp.Regexp, o *playOptions) error {
	var matches []time.Duration
	if pattern != nil {
		for _, l := range plainLines(events) {
			if pattern.MatchString(l.text) && l.at >= o.from {
				matches = append(matches, l.at)
			}
		}
		if len(matches) == 0 {
			return &exitError{1, errors.New("no line matches")}
		}
	}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt)
	defer stop()
	defer io.WriteString(c.stdout, leftModes+"\r\n")
	last := time.Duration(0)
	for _, e := range events {
		if e.at > o.to {
			break
		}
		wait := e.at - max(last, o.from)
		last = e.at
		for len(matches) > 0 && e.at > matches[0]+around {
			matches = matches[1:]
		}
		if pattern != nil && (len(matches) == 0 || e.at < matches[0]-around) {
			wait = 0
		}
		if o.idle > 0 {
			wait = min(wait, o.idle)
		}
		if wait > 0 {
			select {
			case <-time.After(time.Duration(float64(wait) / o.speed)):
			case <-ctx.Done():
				return nil // the interrupt key ends it
			}
		}
		switch e.kind {
		case "o":
			io.WriteString(c.stdout, e.data)
		case "m":
			c.say("%s", e.data)
		}
	}
	return nil
}

// plainLine is a line of a recording without what a terminal would act on, and when it began.
type plainLine struct {
	at   time.Duration
	text string
}

// longestLine is what is kept of one line.
const longestLine = 64 << 10

// plainLines are the lines of a recording as they would be read.
func plainLines(events []tapeEvent) (all []plainLine) {
	var line strings.Builder
	begun := time.Duration(0)
	end := func() {
		text := strings.TrimRight(escape.Strip(line.String()), "\r\n")
		if at := strings.LastIndexByte(text, '\r'); at >= 0 {
			text = text[at+1:] // what was written over
		}
		text = printable(strings.ReplaceAll(text, "\t", "        "))
		if text != "" {
			all = append(all, plainLine{begun, text})
		}
		line.Reset()
	}
	for _, e := range events {
		if e.kind != "o" {
			continue
		}
		for part := range strings.SplitAfterSeq(e.data, "\n") {
			if line.Len() == 0 {
				begun = e.at
			}
			if line.Len()+len(part) <= longestLine {
				line.WriteString(part)
			}
			if strings.HasSuffix(part, "\n") {
				end()
			}
		}
	}
	end()
	return all
}

// castLines writes what would be read.
func (c *cli) castLines(events []tapeEvent, pattern *regexp.Regexp, o *playOptions) error {
	found := false
	out := bufio.NewWriter(c.stdout)
	for _, l := range plainLines(events) {
		if l.at < o.from || l.at > o.to || pattern != nil && !pattern.MatchString(l.text) {
			continue
		}
		found = true
		if c.json {
			if err := c.line(struct {
				AtNS int64  `json:"at_ns"`
				Text string `json:"text"`
			}{int64(l.at), l.text}); err != nil {
				return err
			}
			continue
		}
		fmt.Fprintf(out, "%s  %s\n", clock(l.at), l.text)
	}
	if err := out.Flush(); err != nil {
		return err
	}
	if pattern != nil && !found {
		return &exitError{1, nil}
	}
	return nil
}

// clock is a time of a recording: 0:01:30.250.
func clock(d time.Duration) string {
	return fmt.Sprintf("%d:%02d:%02d.%03d", int(d.Hours()), int(d.Minutes())%60, int(d.Seconds())%60, d.Milliseconds()%1000)
}
