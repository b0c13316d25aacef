package cgroup

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sys/unix"
)

// Clear takes the leaf away with whatever is in it, and with what comes into it meanwhile: a
// process that is being cloned into it is born before the group goes, and killed, or not at all.
func (l *Leaf) Clear(ctx context.Context) error {
	l.fd.Close()
	for pause := 100 * time.Microsecond; ; pause = min(2*pause, 10*time.Millisecond) {
		err := rmdirs(l.group.dir())
		if !errors.Is(err, unix.EBUSY) {
			return err
		}
		if err := l.Kill(); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(pause):
		}
	}
}
