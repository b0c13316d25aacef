package supervisor

import (
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stockade-dev/stockade/supervisor/api"
)

// Forwarding lets the owner of a session reach a port on its loopback. What connects is a descriptor: init makes the
// connection inside, and its bytes are relayed by whoever has the other end of the caller's. No address of the host's is
// bound, routed or translated here, and nothing outside the session can be reached through it.
//
//	caller ── attached ──▶ lane ── one operation: policy, intent, receipt ──┐
//	  └────── joined, once for each connection ──▶ init connects inside ────┘ counted, and cut with the lane

// mostJoined is how many connections one lane carries at a time.
const mostJoined = 128

// A lane is one forwarding that is open.
type lane struct {
	session *session
	port    uint16
	cut     chan struct{} // closed when it ends

	once        sync.Once
	mu          sync.Mutex
	live        map[net.Conn]bool // nil once it has ended
	joined      sync.WaitGroup
	connections atomic.Int64
	refused     atomic.Int64
	sent        atomic.Int64 // into the session
	received    atomic.Int64
}

// end cuts every connection off, and returns how many that were.
func (l *lane) end() (cut int64) {
	l.once.Do(func() {
		close(l.cut)
		l.mu.Lock()
		defer l.mu.Unlock()
		for conn := range l.live {
			conn.Close()
			cut++
		}
		l.live = nil
	})
	return cut
}

// enter counts a connection that is about to be made.
func (l *lane) enter() *api.Error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.live == nil:
		return errNoLane
	case len(l.live) >= mostJoined:
		return api.Errorf(api.CodeTooManyRequests, "%d connections are carried already", mostJoined)
	}
	l.joined.Add(1)
	return nil
}

// carries notes a connection that was made; it reports false where the lane has ended meanwhile.
func (l *lane) carries(conn net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.live == nil {
		return false
	}
	l.live[conn] = true
	return true
}

func (l *lane) leave(conn net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.live, conn)
}

var errNoLane = api.Errorf(api.CodeForwardEnded, "the forwarding has ended, or never was")

// door is who has a lane open.
type door struct {
	closed <-chan struct{}     // when he leaves
	tell   func(intent string) // that it is open; it must not wait
}

// Forward is Do of a host.session.forward: it is open until closed is, and its receipt is the end of it. tell gets the name under
// which connections join it ([Supervisor.Join]).
func (s *Supervisor) Forward(ctx context.Context, req *api.Request, closed <-chan struct{}, tell func(intent string)) (*api.Receipt, error) {
	c, err := s.begin(ctx, req, brought{door: &door{closed, tell}})
	if err != nil {
		return nil, err
	}
	return s.await(context.WithoutCancel(ctx), c, nil) // it ends with closed, which is the caller's
}

// planForward refuses a port that the session's grant does not open, whatever policy says of the operation.
func planForward(_ *Supervisor, c *call) *refusal {
	ask := c.req.Forward
	if g := c.session.granted().Network.Forward; !g.Admits(ask.Port) {
		return denied(api.Deny{Code: api.CodeForwardNotAllowed, Subject: fmt.Sprintf("forward:%d", ask.Port), Message: "the grant of the session does not open it"})
	}
	return nil
}

func failedForward(code api.Code, _ string) api.Payload {
	return api.Payload{Forward: &api.ForwardResult{Status: "error", ErrorCode: code}}
}

func actForward(ctx context.Context, s *Supervisor, c *call) (api.Payload, *api.Error) {
	d := c.brought.door
	if d == nil { // by name, or gone on with after a restart: nobody is there to carry for
		e := api.Errorf(api.CodeInvalidParams, "who forwards keeps a connection for it")
		return failedForward(e.Code, ""), e
	}
	l := &lane{session: c.session, port: c.req.Forward.Port, cut: make(chan struct{}), live: map[net.Conn]bool{}}
	if fault := c.session.admitLane(l, s.now()); fault != nil {
		return failedForward(fault.Code, ""), fault
	}
	defer c.session.dismissLane(l)
	s.lanes.Store(c.intent, l)
	defer s.lanes.Delete(c.intent)
	d.tell(c.intent)
	reason := ""
	select {
	case <-d.closed:
	case <-l.cut:
		reason = "cut"
	case <-s.closing.Done():
	case <-s.left:
	case <-ctx.Done():
	}
	l.end()
	l.joined.Wait()
	return api.Payload{Forward: &api.ForwardResult{
		Status: "closed", Port: l.port, Reason: reason, Connections: l.connections.Load(), Refused: l.refused.Load(),
		Sent: l.sent.Load(), Received: l.received.Load(),
	}}, nil
}

// Join makes a connection inside, for a lane of the caller's. He relays, and closes it. It can be half closed, as one over TCP.
func (s *Supervisor) Join(ctx context.Context, p api.Principal, intent string) (net.Conn, error) {
	v, _ := s.lanes.Load(intent)
	l, ok := v.(*lane)
	if !ok || !owns(l.session.principal, p) {
		return nil, errNoLane
	}
	if err := l.enter(); err != nil {
		return nil, err
	}
	conn, err := s.launcher.Connect(ctx, l.session.id, l.port)
	switch {
	case err != nil:
		l.refused.Add(1)
		l.joined.Done()
		return nil, runnerError(err)
	case !l.carries(conn):
		conn.Close()
		l.joined.Done()
		return nil, errNoLane
	}
	l.connections.Add(1)
	l.session.touch(s.now())
	return &joined{Conn: conn, lane: l}, nil
}

// joined is one connection into a session. Its counts are its lane's.
type joined struct {
	net.Conn
	lane *lane
	gone sync.Once
}

func (j *joined) Read(b []byte) (int, error) {
	n, err := j.Conn.Read(b)
	j.lane.received.Add(int64(n))
	return n, err
}

func (j *joined) Write(b []byte) (int, error) {
	n, err := j.Conn.Write(b)
	j.lane.sent.Add(int64(n))
	return n, err
}

// CloseWrite tells who is inside that nothing follows.
func (j *joined) CloseWrite() error {
	if half, ok := j.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return io.ErrClosedPipe
}

func (j *joined) Close() error {
	err := j.Conn.Close()
	j.gone.Do(func() {
		j.lane.leave(j.Conn)
		j.lane.joined.Done()
	})
	return err
}

// admitLane has a session know of a lane, which ends before it does.
func (s *session) admitLane(l *lane, now time.Time) *api.Error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch fault := s.usableLocked(now); {
	case fault != nil:
		return fault
	case !s.grant.Network.Forward.Admits(l.port): // it was narrowed meanwhile
		return api.Errorf(api.CodeForwardEnded, "the session has been narrowed, and does not open port %d any more", l.port)
	}
	s.lanes = append(s.lanes, l)
	s.settling.Add(1)
	return nil
}

func (s *session) dismissLane(l *lane) {
	l.end()
	s.mu.Lock()
	defer s.mu.Unlock()
	if at := slices.Index(s.lanes, l); at >= 0 {
		s.lanes = slices.Delete(s.lanes, at, at+1)
	}
	s.settling.Done()
}

// cutLanes ends the lanes that a network does not open, and returns how many connections that cut off.
func (s *session) cutLanes(n api.GrantNetwork) (cut int64) {
	s.mu.Lock()
	lanes := slices.Clone(s.lanes)
	s.mu.Unlock()
	for _, l := range lanes {
		if !n.Forward.Admits(l.port) {
			cut += l.end()
		}
	}
	return cut
}
