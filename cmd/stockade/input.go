package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/stockade-dev/stockade/supervisor/api"
)

type inputOptions struct {
	id     string
	close  bool
	secret bool
}

func (c *cli) inputCommand() *cobra.Command {
	var o inputOptions
	cmd := &cobra.Command{
		Use:   "input [flags] EXEC [LINE…|-]",
		Short: "Write to the stdin of an execution, or close it",
		Long: `input writes to a command that was started with exec --stdin-open. Each LINE is
written with a newline behind it; - stands for our own stdin, which is passed on as it
comes. It returns when the bytes are in the command's pipe.

With --id the same input happens once, however often it is sent: the answer to the
second is "duplicate". What is sent with --secret appears in no record.`,
		Example: `  x=$(stockade exec --detach --stdin-open "$id" -- sh)
  stockade input "$x" 'echo hello' 'date'
  stockade input "$x" - < script.sh
  stockade input --close "$x"`,
		Args:              arguments(cobra.MinimumNArgs(1)),
		ValidArgsFunction: atMost(1, c.executions(true)),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.input(cmd.Context(), &o, args[0], args[1:])
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.BoolVar(&o.close, "close", false, "end of file, after what is written")
	flags.StringVar(&o.id, "id", "", "name of this input: it is written once")
	flags.BoolVar(&o.secret, "secret", false, "keep it out of every record")
	return cmd
}

func (c *cli) input(ctx context.Context, o *inputOptions, word string, text []string) error {
	pass := len(text) == 1 && text[0] == "-"
	if len(text) == 0 && !o.close {
		return usage("input: say what to write (LINE…, or - for our stdin), or --close")
	}
	if pass && (o.id != "" || o.secret) {
		// They are about one input, which has to be whole before it is sent.
		b, err := io.ReadAll(io.LimitReader(c.stdin, inputAtOnce+1))
		if err != nil {
			return usage("stdin: %v", err)
		}
		if len(b) > inputAtOnce {
			return usage("with --id or --secret our stdin may have %s at most", amount(inputAtOnce))
		}
		return c.inputOnce(ctx, o, word, b)
	}
	if !pass {
		var b []byte
		for _, line := range text {
			b = append(append(b, line...), '\n')
		}
		return c.inputOnce(ctx, o, word, b)
	}
	exec, err := c.execID(ctx, word)
	if err != nil {
		return err
	}
	f := &feeder{c: c, ref: api.ProcessRef{ExecID: exec}, id: rand.Text(), open: !o.close}
	if err := f.copy(ctx, c.stdin); err != nil {
		return err
	}
	if c.json {
		return document(c.stdout, f.last)
	}
	_, err = fmt.Fprintf(c.stdout, "%s %d bytes\n", api.ControlAccepted, f.written)
	return err
}

// inputOnce is one input, whose receipt is the result.
func (c *cli) inputOnce(ctx context.Context, o *inputOptions, word string, b []byte) error {
	ask := api.ProcessInput{InputID: o.id, Close: o.close}
	switch {
	case o.secret && !utf8.Valid(b):
		return usage("--secret: the input is not UTF-8")
	case o.secret:
		ask.Data = &api.Stdin{SecretText: &api.InlineText{Text: string(b)}}
	case len(b) > 0:
		ask.Data = inline(b)
	}
	exec, err := c.execID(ctx, word)
	if err != nil {
		return err
	}
	ask.ExecID = exec
	r, err := c.client().Input(ctx, ask)
	if err != nil {
		return err
	}
	if err := c.answer(r); err != nil || c.json || r.Payload.Control == nil {
		return err
	}
	_, err = fmt.Fprintf(c.stdout, "%s %d bytes\n", r.Payload.Control.Status, r.Payload.Control.Bytes)
	return err
}

func inline(b []byte) *api.Stdin { return &api.Stdin{InlineBytes: &api.InlineBytes{Bytes: b}} }

// inputAtOnce is how much travels in one input. Each is an operation with a receipt.
const inputAtOnce = 64 << 10

// feeder passes a stream on to the stdin of an execution. Each part has an id, so that it can be
// sent again when the answer was lost.
type feeder struct {
	c       *cli
	ref     api.ProcessRef
	id      string // what the ids of the parts begin with
	open    bool   // the command's stdin stays open at the end
	met     bool   // the supervisor was there before, so it will be again
	parts   int
	written int64
	last    *api.Receipt
}

// copy passes on all there is. A read that brings something is passed on at once: somebody may
// be typing.
func (f *feeder) copy(ctx context.Context, from io.Reader) error {
	buf := make([]byte, inputAtOnce)
	for {
		n, err := from.Read(buf)
		end := err != nil
		if err != nil && err != io.EOF {
			f.c.say("stdin: %v", err)
		}
		if n > 0 || end && !f.open {
			if err := f.write(ctx, buf[:n], end && !f.open); err != nil {
				return err
			}
		}
		if end {
			return nil
		}
	}
}

// write passes one part on, however long the command takes to read it.
func (f *feeder) write(ctx context.Context, b []byte, close bool) error {
	for pause := 100 * time.Millisecond; ; pause = min(2*pause, 5*time.Second) {
		f.parts++
		ask := api.ProcessInput{ProcessRef: f.ref, InputID: fmt.Sprintf("%s.%d", f.id, f.parts), Close: close}
		if len(b) > 0 {
			ask.Data = inline(b)
		}
		r, err := f.send(ctx, ask)
		if err != nil {
			return err
		}
		f.last = r
		done := r.Payload.Control
		if done != nil {
			f.written += done.Bytes
		}
		if r.ErrorCode != api.CodeStdinFull || done == nil {
			return f.c.settled(r)
		}
		if b = b[min(done.Bytes, int64(len(b))):]; done.Bytes > 0 {
			pause = 100 * time.Millisecond
		}
		if err := sleep(ctx, pause); err != nil {
			return err
		}
	}
}

// send sends one part until there is an answer, for as long as a supervisor takes to restart.
func (f *feeder) send(ctx context.Context, ask api.ProcessInput) (*api.Receipt, error) {
	const attempts = 40
	for i := 0; ; i++ {
		r, err := f.c.client().Input(ctx, ask)
		e, coded := errors.AsType[*api.Error](err)
		if err == nil || !f.met || i == attempts || coded && e.Code != api.CodeShuttingDown {
			f.met = f.met || err == nil
			return r, err
		}
		if err := sleep(ctx, 250*time.Millisecond); err != nil {
			return nil, err
		}
	}
}

// deaf reports whether the command reads no more: it has ended, or its stdin is closed.
func (f *feeder) deaf(err error) bool {
	code := api.Code("")
	if f.last != nil {
		code = f.last.ErrorCode
	}
	if e, ok := errors.AsType[*api.Error](err); ok {
		code = e.Code
	}
	return code == api.CodeExecEnded || code == api.CodeStdinClosed
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
