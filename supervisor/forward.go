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
	live        map[*joined]bool // nil once it has ended
	entering    int              // connections that are being made
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
		live := l.live
		l.live = nil
		l.mu.Unlock()
		for j := range live {
			j.Close()
			cut++
		}
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
	case len(l.live)+l.entering >= mostJoined:
		return api.Errorf(api.CodeTooManyRequests, "%d connections are carried already", mostJoined)
	}
	l.entering++
	l.joined.Add(1)
	return nil
}

// failed is that none was made.
func (l *lane) failed() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.entering--
	l.joined.Done()
}

// carries notes a connection that was made; it reports false where the lane has ended meanwhile.
func (l *lane) carries(j *joined) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.entering--
	if l.live == nil {
		l.joined.Done()
		return false
	}
	l.live[j] = true
	return true
}

func (l *lane) leave(j *joined) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.live, j)
	l.joined.Done()
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
	l := &lane{session: c.session, port: c.req.Forward.Port, cut: make(chan struct{}), live: map[*joined]bool{}}
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

// Join makes a connection inside, for a lane of the caller's. He relays, and closes it. When the lane ends, which waits for nobody, it is
// closed under his hands, and so is cut.
func (s *Supervisor) Join(ctx context.Context, p api.Principal, intent string) (conn Joined, cut <-chan struct{}, err error) {
	v, _ := s.lanes.Load(intent)
	l, ok := v.(*lane)
	if !ok || !owns(l.session.principal, p) {
		return nil, nil, errNoLane
	}
	if err := l.enter(); err != nil {
		return nil, nil, err
	}
	inside, err := s.launcher.Connect(ctx, l.session.id, l.port)
	if err != nil {
		l.refused.Add(1)
		l.failed()
		return nil, nil, runnerError(err)
	}
	j := &joined{Conn: inside, lane: l}
	if !l.carries(j) {
		inside.Close()
		return nil, nil, errNoLane
	}
	l.connections.Add(1)
	l.session.touch(s.now())
	return j, l.cut, nil
}

// Joined is a connection into a session, for who relays it. It is an alias: who serves does not import this package.
type Joined = interface {
	net.Conn
	CloseWrite() error // what is inside is told that nothing follows
}

// joined is one connection into a session. Its counts are its lane's. It can be half closed, as one over TCP.
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
	j.gone.Do(func() { j.lane.leave(j) })
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
