package main

import (
	"context"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
)

// orders are what an operator says by signals while this program serves. They are heard from the beginning: one that arrives while nothing
// is served yet, or nothing any more, is obeyed by this program or its successor as soon as that can be done.
type orders struct {
	upgrade, look, leave chan os.Signal
	end                  bool // was said to the program before, which could no longer do it
}

// envEnd tells a successor that the end was ordered when its predecessor had let go of the sessions. Only who holds them can end them
// with their receipts.
const envEnd = "STOCKADED_END"

func hear() *orders {
	o := &orders{make(chan os.Signal, 1), make(chan os.Signal, 1), make(chan os.Signal, 1), os.Getenv(envEnd) != ""}
	os.Unsetenv(envEnd)
	signal.Notify(o.upgrade, unix.SIGHUP)
	signal.Notify(o.look, unix.SIGUSR1)
	signal.Notify(o.leave, unix.SIGUSR2)
	return o
}

func (o *orders) stop() {
	for _, c := range []chan os.Signal{o.upgrade, o.look, o.leave} {
		signal.Stop(c)
	}
}

// toLeave reports whether somebody has this program leave.
func (o *orders) toLeave() bool {
	select {
	case <-o.leave:
		return true
	default:
		return false
	}
}

// handOver leaves to the program that this process executes next what it can do better: it reads everything anew, and can end sessions.
func (o *orders) handOver(ctx context.Context) {
	signal.Ignore(unix.SIGHUP) // until it hears: it would end it
	if ctx.Err() != nil {
		os.Setenv(envEnd, "1")
	}
}
