package main

import (
	"context"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
)

// notify tells the service manager, if there is one (sd_notify(3)). One that cannot be told notices by itself.
func notify(state string) { _, _ = daemon.SdNotify(false, state) }

// alive tells the service manager, as often as it wants to hear it, that the supervisor answers: a question that goes the way
// of every caller's read, through its locks. One that does not answer is not told of, and so is started anew; what runs goes on meanwhile.
//
// Where ctx ends, a question that has been put is still waited for. One that was given up would be left in the queue of a
// socket that is the service manager's, which starts the service for whoever waits there: right after it was told to end.
func alive(ctx context.Context, answers func(context.Context) error) {
	within, err := daemon.SdWatchdogEnabled(false)
	if err != nil || within <= 0 {
		return
	}
	tick := time.NewTicker(within / 3)
	defer tick.Stop()
	for {
		asked, cancel := context.WithTimeout(context.WithoutCancel(ctx), within/3)
		if answers(asked) == nil {
			notify(daemon.SdNotifyWatchdog)
		}
		cancel()
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
