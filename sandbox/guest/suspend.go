package guest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"
)

// ErrSuspended is what a call is answered between Suspend and Continue.
var ErrSuspended = errors.New("the conversation with init is suspended")

// State is what a Conn knows beyond its socket, between two messages. With the socket, which
// keeps what init says meanwhile, it makes a Conn in another program of the same process.
type State struct {
	Version int            // of the messages that this init understands
	Last    uint64         // call number given out last
	Live    map[uint64]int // call of the spawn to pid of the command, of those that have not been reported as ended
	Gone    bool           // init is; there is no socket any more
}

// Suspend stops the conversation between two messages, as soon as every call has been
// answered or given up, or fails with ctx. Until Continue nothing is received, and calls
// fail. The file stays the Conn's; it is nil when init is gone.
func (c *Conn) Suspend(ctx context.Context) (*os.File, State, error) {
	stopped, err := c.quiet(ctx)
	if err != nil {
		return nil, State{}, err
	}
	// In the past: a Receive in progress ends, and has received nothing.
	_ = c.file.SetReadDeadline(time.Unix(1, 0)) // fails when it is closed, and the reader ends of that
	<-stopped
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.held { // by Close, which let it continue to its end
		return nil, State{}, ErrGone
	}
	s := State{Version: Version, Last: c.last, Live: map[uint64]int{}, Gone: c.calls == nil}
	for id, w := range c.calls {
		if w.pid != 0 { // otherwise a spawn that was given up: its leaf is killed by whoever did
			s.Live[id] = w.pid
		}
	}
	if s.Gone {
		return nil, s, nil
	}
	return c.file, s, nil
}

// quiet lets no call begin any more, and waits for those that have. The reader closes stopped.
func (c *Conn) quiet(ctx context.Context) (stopped <-chan struct{}, err error) {
	c.mu.Lock()
	if c.held {
		c.mu.Unlock()
		return nil, ErrSuspended
	}
	c.held = true
	stopped = c.stopped
	idle := make(chan struct{})
	if c.pending > 0 {
		c.idle = idle
	} else {
		close(idle)
	}
	c.mu.Unlock()
	select {
	case <-idle:
		return stopped, nil
	case <-ctx.Done():
		c.mu.Lock()
		c.held, c.idle = false, nil
		c.mu.Unlock()
		return nil, fmt.Errorf("suspend: calls are unanswered: %w", ctx.Err())
	}
}

// Continue undoes Suspend.
func (c *Conn) Continue() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.held {
		return
	}
	select {
	case <-c.stopped:
	default: // Suspend is not through, and this is Close
		return
	}
	c.held = false
	if c.calls == nil {
		return
	}
	_ = c.file.SetReadDeadline(time.Time{})
	c.stopped = make(chan struct{})
	go c.receive()
}

// Ended is the process of a command whose end has been reported.
func (c *Conn) Ended(call uint64) *Process {
	exited := make(chan Exit)
	close(exited)
	return &Process{Exited: exited, conn: c, call: call}
}

// Resume takes a conversation up where Suspend left it, with the same socket, which the
// Conn owns from now on and which is in non-blocking mode. The processes are those that were
// live, by their calls.
func Resume(ours *os.File, s State) (*Conn, map[uint64]*Process, error) {
	if s.Version != Version {
		return nil, nil, fmt.Errorf("resume init: it speaks version %d, not %d", s.Version, Version)
	}
	if s.Gone {
		var theirs *os.File
		var err error
		if ours, theirs, err = Pair(); err != nil {
			return nil, nil, err
		}
		theirs.Close() // as init did
	}
	c, err := newConn(ours)
	if err != nil {
		ours.Close()
		return nil, nil, err
	}
	c.last = s.Last
	processes := make(map[uint64]*Process, len(s.Live))
	for id, pid := range s.Live {
		w := newCall()
		w.pid = pid
		c.calls[id] = w
		processes[id] = &Process{PID: pid, Exited: w.exit, conn: c, call: id}
	}
	go c.receive()
	return c, processes, nil
}
