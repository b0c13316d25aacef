package launch

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/stockade-dev/stockade/internal/failpoint"
)

// Succession says how a runner goes from one daemon to the next.
type Succession struct {
	Hold   time.Duration // how long what a daemon left waits for the next one; 0 is not at all
	Follow bool          // end once a daemon has left and nothing is held any more
	Lost   func(error)   // told why a connection ended badly; nil is nobody
}

// patience is how long a daemon may have to wait while another is connected. One that was
// killed a moment ago may still be in the middle of dying, and its successor there already.
const patience = time.Second

// Serve serves one daemon at a time, and closes the listener. It returns when ctx has ended or,
// under Follow, when nobody is left to be served. What h holds then is the caller's to end. After Suspend
// it returns ErrSuspended and leaves everything as it is; called again, it goes on.
func (l *Listener) Serve(ctx context.Context, h Handler, o Succession) (err error) {
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()
	arrivals, failed := l.accept()
	defer func() {
		if err == ErrSuspended {
			l.rest(arrivals)
			l.pending.done <- nil
			l.pending = nil
			return
		}
		l.Close()
		for conn := range arrivals {
			conn.Close()
		}
		if l.pending != nil {
			l.pending.done <- net.ErrClosed
		}
	}()

	for {
		if l.pending != nil && l.current == nil {
			if err = l.shared.idle(l.pending.ctx); err == nil {
				return ErrSuspended
			}
			l.pending.done <- err
			l.pending = nil
		}
		if l.current == nil && l.next == nil {
			var abandoned <-chan time.Time
			if len(h.Sessions()) > 0 {
				failpoint.Hit("runner.hold")
				abandoned = time.After(o.Hold)
			}
			select {
			case conn, ok := <-arrivals:
				if !ok {
					return *failed
				}
				l.next = conn
			case <-abandoned:
				h.Abandoned()
				if o.Follow {
					return nil
				}
			case s := <-l.asked():
				l.pending = &s
			}
			continue
		}
		if l.current == nil {
			l.current, err = serverOn(l.next, h, l.shared)
			if l.next = nil; err != nil {
				continue // it has been closed
			}
		}
		err = l.serve(ctx, arrivals)
		if err == ErrSuspended {
			return err
		}
		l.current = nil
		if err != nil && o.Lost != nil {
			o.Lost(err)
		}
		if ctx.Err() != nil {
			if l.next != nil {
				l.next.Close()
			}
			return nil
		}
		if o.Hold == 0 {
			h.Abandoned()
		}
		if l.next == nil && o.Follow && len(h.Sessions()) == 0 {
			return nil
		}
	}
}

// accept accepts connections until the listener is closed or has a deadline. Why it failed, if
// it did, is there once the channel is closed.
func (l *Listener) accept() (<-chan *net.UnixConn, *error) {
	arrivals := make(chan *net.UnixConn)
	failed := new(error)
	go func() {
		defer close(arrivals)
		for {
			conn, err := l.admit()
			if err != nil {
				if !errors.Is(err, net.ErrClosed) {
					*failed = err
				}
				return
			}
			arrivals <- conn
		}
	}()
	return arrivals, failed
}

// rest accepts nobody for the time being: who connects waits in the socket. One that has just
// been accepted is next; who comes behind is turned away.
func (l *Listener) rest(arrivals <-chan *net.UnixConn) {
	_ = l.socket.SetDeadline(time.Unix(1, 0))
	for conn := range arrivals {
		if l.next == nil {
			l.next = conn
		} else {
			conn.Close()
		}
	}
	_ = l.socket.SetDeadline(time.Time{})
}

// serve serves the current daemon to its end, and keeps the connection of another that has come
// meanwhile. Who comes while the first is there, and stays there, is turned away; who comes when it has
// left waits until what it left in progress has come to its end.
func (l *Listener) serve(ctx context.Context, arrivals <-chan *net.UnixConn) error {
	left := make(chan struct{})
	done := make(chan error, 1)
	go func() { done <- l.current.serve(ctx, func() { close(left) }) }()
	leaving := false
	var impatient <-chan time.Time
	if l.next != nil {
		impatient = time.After(patience)
	}
	for {
		select {
		case err := <-done:
			return err
		case <-left:
			leaving, left, impatient = true, nil, nil
		case <-impatient:
			l.next.Close()
			l.next, impatient = nil, nil
		case s := <-l.asked():
			l.pending = &s
			l.current.pause(&s)
		case err := <-l.current.refused:
			l.pending.done <- err
			l.pending = nil
		case c, ok := <-arrivals:
			switch {
			case !ok:
				arrivals = nil
			case l.next != nil:
				c.Close()
			default:
				l.next = c
				if !leaving {
					impatient = time.After(patience)
				}
			}
		}
	}
}
