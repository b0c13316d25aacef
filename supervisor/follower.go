package supervisor

import (
	"context"
	"slices"

	"github.com/stockade-dev/stockade/supervisor/api"
)

// A follower reads the output of an execution while it is being written. It must be
// run, or left.
type follower struct {
	x       *execution
	intent  string
	cursors [2]cursor
}

type cursor struct {
	*stream
	offset int64
	end    bool
}

// follow returns a follower from the offsets on, or nil when the streams are sealed:
// what they held is in the receipt.
func (x *execution) follow(intent string, from api.Offsets) *follower {
	f := &follower{x, intent, [2]cursor{{x.stdout, from.Stdout, false}, {x.stderr, from.Stderr, false}}}
	if !x.stdout.follow() {
		return nil
	}
	if !x.stderr.follow() {
		x.stdout.leave()
		return nil
	}
	return f
}

func (f *follower) leave() {
	for _, c := range f.cursors {
		c.leave()
	}
}

// run hands output to emit, each stream in order, until both have ended or ctx has.
func (f *follower) run(ctx context.Context, emit func(api.Event)) {
	defer f.leave()
	buf := make([]byte, 32<<10)
	for ctx.Err() == nil {
		next, moved := f.x.wake.next(), false
		for i := range f.cursors {
			c := &f.cursors[i]
			if c.end {
				continue
			}
			n, end, err := c.readAt(buf, c.offset)
			c.end = end || err != nil
			if n > 0 {
				emit(api.Event{Kind: "output", IntentID: f.intent, ExecID: f.x.id, Stream: c.name, Offset: c.offset, Bytes: slices.Clone(buf[:n])})
				c.offset += int64(n)
				moved = true
			}
		}
		if f.cursors[0].end && f.cursors[1].end {
			return
		}
		if !moved {
			select {
			case <-next:
			case <-ctx.Done():
			}
		}
	}
}
