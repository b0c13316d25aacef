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
// under Follow, when nobody is left to be served. What h holds then is the caller's to end.
func (l *Listener) Serve(ctx context.Context, h Handler, o Succession) error {
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()
	arrivals := make(chan *net.UnixConn)
	var failed error // why there are no more of them
	go func() {
		defer close(arrivals)
		for {
			conn, err := l.Accept()
			if err != nil {
				if !errors.Is(err, net.ErrClosed) {
					failed = err
				}
				return
			}
			arrivals <- conn
		}
	}()
	defer func() {
		l.Close()
		for conn := range arrivals {
			conn.Close()
		}
	}()

	var conn *net.UnixConn
	for {
		if conn == nil {
			var abandoned <-chan time.Time
			if len(h.Sessions()) > 0 {
				failpoint.Hit("runner.hold")
				abandoned = time.After(o.Hold)
			}
			var ok bool
			select {
			case conn, ok = <-arrivals:
				if !ok {
					return failed
				}
			case <-abandoned:
				h.Abandoned()
				if o.Follow {
					return nil
				}
				continue
			}
		}
		next, err := l.serve(ctx, conn, h, arrivals)
		if err != nil && o.Lost != nil {
			o.Lost(err)
		}
		if ctx.Err() != nil {
			if next != nil {
				next.Close()
			}
			return nil
		}
		if o.Hold == 0 {
			h.Abandoned()
		}
		if conn = next; conn == nil && o.Follow && len(h.Sessions()) == 0 {
			return nil
		}
	}
}

// serve serves one daemon to its end, and returns the connection of another that has come
// meanwhile. Who comes while the first is there, and stays there, is turned away; who comes when it has
// left waits until what it left in progress has come to its end.
func (l *Listener) serve(ctx context.Context, conn *net.UnixConn, h Handler, arrivals <-chan *net.UnixConn) (next *net.UnixConn, err error) {
	left := make(chan struct{})
	done := make(chan error, 1)
	go func() { done <- serve(ctx, conn, h, func() { close(left) }) }()
	leaving := false
	var impatient <-chan time.Time
	for {
		select {
		case err := <-done:
			return next, err
		case <-left:
			leaving, left, impatient = true, nil, nil
		case <-impatient:
			next.Close()
			next, impatient = nil, nil
		case c, ok := <-arrivals:
			switch {
			case !ok:
				arrivals = nil
			case next != nil:
				c.Close()
			default:
				next = c
				if !leaving {
					impatient = time.After(patience)
				}
			}
		}
	}
}
