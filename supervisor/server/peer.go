package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/sandbox"
	"github.com/stockade-dev/stockade/supervisor/api"
)

// peerOf returns who connected, by the kernel's word: the credentials at the time of
// connect(2). The pid is not part of it, because pids are reused.
func peerOf(conn *net.UnixConn) (api.Principal, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return api.Principal{}, err
	}
	var p api.Principal
	var failed error
	err = raw.Control(func(fd uintptr) {
		var cred *unix.Ucred
		if cred, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); failed != nil {
			failed = os.NewSyscallError("SO_PEERCRED", failed)
			return
		}
		p.UID, p.GID = cred.Uid, cred.Gid
		p.Groups, failed = peerGroups(fd)
	})
	return p, errors.Join(err, failed)
}

// peerGroups returns the supplementary groups of the peer (Linux 4.13). x/sys has the
// number of the option but no call that returns a list.
func peerGroups(fd uintptr) ([]uint32, error) {
	groups := make([]uint32, 64)
	for {
		size := uint32(len(groups) * 4)
		_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, fd, unix.SOL_SOCKET, unix.SO_PEERGROUPS,
			uintptr(unsafe.Pointer(unsafe.SliceData(groups))), uintptr(unsafe.Pointer(&size)), 0)
		switch errno {
		case 0:
			return groups[: size/4 : size/4], nil
		case unix.ERANGE: // size is now what is needed
			groups = make([]uint32, size/4)
		default:
			return nil, os.NewSyscallError("SO_PEERGROUPS", errno)
		}
	}
}

// admission accepts connections, asks the kernel who is at the other end, and bounds
// how many each user and all users together hold, so that one caller's idle
// connections do not lock out the others (T155).
type admission struct {
	net.Listener
	total, perUser int

	mu    sync.Mutex
	held  map[uint32]int
	all   int
	paced map[uint32]*pace
}

// pace is how fast one user connects: a bucket of as many connections as he may hold, which fills again
// with connectRate.
type pace struct {
	left float64
	at   time.Time
}

// connectRate is how many connections a second one user may make for ever. What is beyond is turned away before it
// costs a goroutine: who connects in a loop would keep the others in the socket's queue.
const connectRate = 500

// steady reports whether another connection keeps the pace. The caller holds mu.
func (a *admission) steady(uid uint32, now time.Time) bool {
	if len(a.paced) > maxPaced {
		clear(a.paced) // every bucket full: the next second tells who is fast
	}
	p := a.paced[uid]
	if p == nil {
		p = &pace{left: float64(a.perUser), at: now}
		a.paced[uid] = p
	}
	p.left, p.at = min(float64(a.perUser), p.left+connectRate*now.Sub(p.at).Seconds()), now
	if p.left < 1 {
		return false
	}
	p.left--
	return true
}

// maxPaced bounds the buckets: there may be as many users as numbers.
const maxPaced = 4096

// Accept returns the next connection within the bounds, as a *peerConn.
func (a *admission) Accept() (net.Conn, error) {
	for {
		conn, err := a.Listener.Accept()
		if err != nil {
			return nil, err
		}
		unixConn, ok := conn.(*net.UnixConn)
		if !ok {
			conn.Close()
			return nil, fmt.Errorf("accept: %T is not a unix connection, nobody knows who its peer is", conn)
		}
		peer, err := peerOf(unixConn)
		// Gone already, or a command of a session, to which somebody gave a way to the socket:
		// it would ask for more than its own session is, in nobody's name.
		if err != nil || sandbox.Inside(peer.UID) {
			conn.Close()
			continue
		}
		if !a.take(peer.UID) {
			refuse(conn)
			continue
		}
		return &peerConn{Conn: conn, peer: peer, release: sync.OnceFunc(func() { a.give(peer.UID) })}, nil
	}
}

func (a *admission) take(uid uint32) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.all >= a.total || a.held[uid] >= a.perUser || !a.steady(uid, time.Now()) {
		return false
	}
	a.all++
	a.held[uid]++
	return true
}

func (a *admission) give(uid uint32) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.all--
	if a.held[uid]--; a.held[uid] == 0 {
		delete(a.held, uid)
	}
}

// refuse answers without reading: the reader of an HTTP client understands it. It is made once and fits into any
// socket's buffer: whoever connects in a loop must not cost more than he pays.
func refuse(conn net.Conn) {
	_, _ = conn.Write(refusal)
	conn.Close()
}

var refusal = func() []byte {
	body, _ := api.Encode(api.ErrorBody{Error: *api.Errorf(api.CodeTooManyConnections, "close some connections first")})
	return fmt.Appendf(nil, "HTTP/1.1 %d Service Unavailable\r\nContent-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s",
		api.CodeTooManyConnections.Status(), len(body), body)
}()

// peerConn is a connection that knows its peer.
type peerConn struct {
	net.Conn
	peer    api.Principal
	release func()
}

func (c *peerConn) Close() error {
	c.release()
	return c.Conn.Close()
}

type peerKey struct{}

// withPeer is http.Server's ConnContext.
func withPeer(ctx context.Context, conn net.Conn) context.Context {
	if c, ok := conn.(*peerConn); ok {
		return context.WithValue(ctx, peerKey{}, c.peer)
	}
	return ctx
}

// peer returns who is at the other end of a request's connection.
func peer(ctx context.Context) (api.Principal, bool) {
	p, ok := ctx.Value(peerKey{}).(api.Principal)
	return p, ok
}
