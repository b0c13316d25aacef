package main

import (
	"context"
	"testing"
)

// A watchdog's question is answered before the socket is left alone, whatever ends meanwhile; none is put after it.
func TestAliveAsksToTheEnd(t *testing.T) {
	t.Setenv("WATCHDOG_USEC", "60000000")
	t.Setenv("WATCHDOG_PID", "")
	t.Setenv("NOTIFY_SOCKET", "")
	ctx, end := context.WithCancel(t.Context())
	var asked int
	alive(ctx, func(ctx context.Context) error {
		asked++
		end()
		if err := ctx.Err(); err != nil {
			t.Errorf("the question was given up: %v", err)
		}
		if _, ok := ctx.Deadline(); !ok {
			t.Error("it is waited for without end")
		}
		return nil
	})
	if asked != 1 {
		t.Errorf("asked %d times", asked)
	}
}
