package main

import (
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/stockade-dev/stockade/supervisor/api"
)

// Exit statuses of our own. They stay clear of what shells and programs use most
// (1, 2, 125 to 127, and 128 and more for signals); 124 is what timeout(1) uses.
const (
	exitFinding     = 1
	exitRunning     = 119
	exitDenied      = 120
	exitUnavailable = 121
	exitUsage       = 122
	exitDiffers     = 123
	exitTimeout     = 124
	exitSignal      = 128 // plus the number of the signal
)

const exitHelp = `Exit status of run, exec and wait:
  0-255  the command's own
  119    it goes on: the time to wait (--wait, wait --timeout) is over
  120    denied: policy or a ceiling said no; the reasons are on stderr
  121    the supervisor could not carry it out or cannot be reached
  122    the command line is wrong
  123    --twice: the two runs gave different outputs
  124    the command ran out of time, its own or its session's, and was ended
  128+n  signal n ended the command; 137 with a message when memory ran out
The other commands use 0, 120, 121 and 122: 121 also for an id that names nothing, 122 for
the beginning of one that names two things. diff --exit-code uses 1 for changes; fs 1 for what a file
tool says no to (no such file, a text that is not there, nothing found), and 120 for what is forbidden; receipts verify, fsck, prove and check use 1 for
what does not verify; policy, replay and fsck 1 for what they find and 2 when they cannot
look; quiescence, and a strict policy activate, 119 for a supervisor that is not quiet. A receipt (--json, --receipt) tells
them apart beyond doubt.`

// exitError ends the program with a status. A nil cause is silent.
type exitError struct {
	status int
	cause  error
}

func (e *exitError) Error() string {
	if e.cause == nil {
		return fmt.Sprintf("exit status %d", e.status)
	}
	return e.cause.Error()
}

func (e *exitError) Unwrap() error { return e.cause }

func usage(format string, args ...any) error {
	return &exitError{exitUsage, fmt.Errorf(format, args...)}
}

// report writes what a person should know about err and returns the exit status.
func (c *cli) report(err error) int {
	if err == nil {
		return 0
	}
	exit, ok := errors.AsType[*exitError](err)
	if !ok {
		exit = &exitError{exitUnavailable, err}
		if strings.HasPrefix(err.Error(), "unknown command") {
			exit.status = exitUsage
		}
	}
	if exit.cause != nil {
		c.say("%v", exit.cause)
	}
	if _, ok := errors.AsType[*net.OpError](err); ok {
		c.say("no supervisor answers at %s: start one with stockaded --socket %[1]s, or name another with --socket", c.socket)
	}
	return exit.status
}

// say writes one of our own lines to stderr. What it quotes may come from a sandbox:
// control characters must not reach a terminal.
func (c *cli) say(format string, args ...any) {
	text := strings.ReplaceAll(fmt.Sprintf(format, args...), "\t", "  ")
	for line := range strings.SplitSeq(text, "\n") {
		if line != "" {
			fmt.Fprintf(c.stderr, "stockade: %s\n", printable(line))
		}
	}
}

// settled turns the settlement of an operation into an error: nil when it took place.
// Warnings and clamps are told in every case.
func (c *cli) settled(r *api.Receipt) error {
	for _, w := range r.Warn {
		c.say("warning: %s", w)
	}
	for _, l := range r.Clamped {
		c.say("clamped: %s: asked %d, got %d (%s)", l.Field, l.Requested, l.Effective, l.Source)
	}
	switch r.Outcome {
	case api.OutcomeOK:
		return nil
	case api.OutcomeDenied:
		return &exitError{exitDenied, errors.New(denial(r))}
	}
	text := fmt.Sprintf("%s: %s: %s", r.Op, r.ErrorCode, r.ErrorMessage)
	if hint := hints[r.ErrorCode]; hint != "" {
		text += "\n  " + hint
	}
	return &exitError{exitUnavailable, errors.New(text)}
}

// hints say what would help.
var hints = map[api.Code]string{
	api.CodeStdinClosed:       "stdin stays open for input with stockade exec --stdin-open, until it is closed",
	api.CodeSessionPaused:     "stockade resume lets the session go on",
	api.CodeExecActive:        "stockade cancel ends it first, or stockade rm --force",
	api.CodeKeyInFlight:       "stockade intents --active shows it, and stockade wait waits for it",
	api.CodeQueueFull:         "stockade ps shows what runs and waits",
	api.CodeNoOverlay:         "stockade show lists the overlays of a session, and --at names one",
	api.CodeCommitConflict:    "stockade diff lists what is not committed; a commit of other PATHs, or the same again, goes on",
	api.CodeUnsupportedByHost: "stockade doctor says what is missing, and what would grant it",
}

// answer is settled for an operation whose receipt is the result that --json writes.
func (c *cli) answer(r *api.Receipt) error {
	if c.json {
		if err := document(c.stdout, r); err != nil {
			return err
		}
	}
	return c.settled(r)
}

// denial is a refusal with its reasons, one per line.
func denial(r *api.Receipt) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s denied", r.Op)
	if len(r.Deny) == 0 {
		fmt.Fprintf(&b, ": %s: %s", r.ErrorCode, r.ErrorMessage)
	}
	for _, d := range r.Deny {
		fmt.Fprintf(&b, "\n  %s", d.Code)
		if d.Subject != "" {
			fmt.Fprintf(&b, "  %s", d.Subject)
		}
		if d.Message != "" {
			fmt.Fprintf(&b, "  %s", d.Message)
		}
	}
	fmt.Fprintf(&b, "\n  receipt %s", r.IntentID)
	return b.String()
}
