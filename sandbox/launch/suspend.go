package launch

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"
)

// ErrSuspended is what [Listener.Serve] returns after [Listener.Suspend].
var ErrSuspended = errors.New("launch: suspended")

// Version is that of the messages. A daemon that is connected goes on with the program that
// takes the runner's place only if both speak the same one.
const Version = version

// suspension is a wish to suspend.
type suspension struct {
	ctx  context.Context
	done chan error // capacity 1
}

// Suspend makes Serve return, between two messages and once every call in progress has been
// answered, and none is left behind: execve waits for threads that wait for a file system. If that is not so when ctx ends, Serve goes on. Daemons notice nothing but that
// answers take longer.
func (l *Listener) Suspend(ctx context.Context) error {
	s := suspension{ctx, make(chan error, 1)}
	select {
	case l.suspensions <- s:
		return <-s.done
	case <-ctx.Done():
		return fmt.Errorf("suspend: nobody is served: %w", ctx.Err())
	}
}

// asked is where wishes come from: one at a time.
func (l *Listener) asked() <-chan suspension {
	if l.pending != nil {
		return nil
	}
	return l.suspensions
}

// pause lets serve read no further. It either returns ErrSuspended, or goes on and says why in refused.
func (s *server) pause(p *suspension) {
	s.mu.Lock()
	s.pausing = p
	s.mu.Unlock()
	_ = s.conn.SetReadDeadline(time.Unix(1, 0)) // fails when it is closed, and serve ends of that
}

// paused waits for the calls in progress, with nothing being read, and reports whether
// there is none any more.
func (s *server) paused() bool {
	s.mu.Lock()
	p := s.pausing
	s.pausing = nil
	s.mu.Unlock()
	_ = s.conn.SetReadDeadline(time.Time{})
	if err := s.shared.idle(p.ctx); err != nil {
		s.refused <- err
		return false
	}
	return true
}

// idle waits until no call is in progress: whoever has all slots knows that nobody has one.
func (p *progress) idle(ctx context.Context) (err error) {
	n := 0
	for n < maxCalls && err == nil {
		select {
		case p.slots <- struct{}{}:
			n++
		case <-ctx.Done():
			err = fmt.Errorf("suspend: %d calls are in progress: %w", len(p.slots)-n, ctx.Err())
		}
	}
	for range n {
		<-p.slots
	}
	return err
}

// State is what a Listener knows beyond its sockets, while it is suspended.
type State struct {
	Connected bool                 // a daemon is, by the second socket
	Waiting   bool                 // another is to be served next, by the last socket
	Greeted   bool                 // the one that is connected has said hello,
	Version   int                  // and speaks this version
	Watched   map[uint64]Execution // what it has yet to be told the end of, by its calls
}

// Execution names one.
type Execution struct{ Session, Exec string }

// Save returns the state of a suspended Listener, and its sockets: the listening one
// and those of State. They are duplicates, which the caller closes. Ends of executions may still
// be told until nobody can report one any more; it is called when that is so.
func (l *Listener) Save() (st State, sockets []*os.File, err error) {
	defer func() {
		if err != nil {
			closeAll(sockets)
		}
	}()
	all := []filer{l.socket}
	if s := l.current; s != nil {
		st = State{Connected: true, Greeted: s.greeted, Version: version, Watched: map[uint64]Execution{}}
		s.mu.Lock()
		for id, t := range s.watched {
			st.Watched[id] = Execution(t)
		}
		s.mu.Unlock()
		all = append(all, s.conn)
	}
	if l.next != nil {
		st.Waiting = true
		all = append(all, l.next)
	}
	for _, s := range all {
		f, err := s.File()
		if err != nil {
			return st, sockets, fmt.Errorf("save socket: %w", err)
		}
		sockets = append(sockets, f)
	}
	return st, sockets, nil
}

type filer interface{ File() (*os.File, error) }

// Resume returns a Listener that goes on where another was suspended. It owns the sockets, whatever
// it returns. The daemon that is connected is told the end of what it waits for by h, which has to
// know those executions.
func Resume(st State, sockets []*os.File, uid uint32, h Handler) (_ *Listener, err error) {
	defer closeAll(sockets) // what is used has been duplicated
	want := 1
	for _, there := range []bool{st.Connected, st.Waiting} {
		if there {
			want++
		}
	}
	if len(sockets) != want {
		return nil, fmt.Errorf("resume: %d sockets, not %d", len(sockets), want)
	}
	if st.Connected && st.Version != version {
		return nil, fmt.Errorf("resume: the daemon speaks version %d, this runner %d", st.Version, version)
	}
	found, err := net.FileListener(sockets[0])
	if err != nil {
		return nil, fmt.Errorf("resume: %w", err)
	}
	socket, ok := found.(*net.UnixListener)
	if !ok {
		found.Close()
		return nil, fmt.Errorf("resume: listener of %s", found.Addr().Network())
	}
	socket.SetUnlinkOnClose(true) // as the one that made it
	l := newListener(socket, uid)
	var conns []*net.UnixConn
	for _, f := range sockets[1:] {
		conn, err := net.FileConn(f)
		if err != nil {
			l.abandon(conns)
			return nil, fmt.Errorf("resume: %w", err)
		}
		c, ok := conn.(*net.UnixConn)
		if !ok {
			conn.Close()
			l.abandon(conns)
			return nil, fmt.Errorf("resume: connection over %s", conn.LocalAddr().Network())
		}
		conns = append(conns, c)
	}
	if st.Waiting {
		l.next = conns[len(conns)-1]
	}
	if !st.Connected {
		return l, nil
	}
	s, err := serverOn(conns[0], h, l.shared)
	if err != nil {
		l.abandon(conns)
		return nil, fmt.Errorf("resume: %w", err)
	}
	s.greeted = st.Greeted
	for id, x := range st.Watched {
		s.resume(id, target(x))
	}
	l.current = s
	return l, nil
}

// resume watches an execution again on behalf of the call that did.
func (s *server) resume(id uint64, t target) {
	x := s.watch(id, t)
	x.replied()
	streams, err := s.handler.Attach(t.Session, t.Exec, x.exited)
	if err != nil { // forgotten, before it ended
		s.unwatch(id)
		return
	}
	streams.Close() // the daemon has its own
}

// abandon closes what was resumed in vain.
func (l *Listener) abandon(conns []*net.UnixConn) {
	for _, c := range conns {
		c.Close()
	}
	l.socket.SetUnlinkOnClose(false)
	l.Close()
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}
