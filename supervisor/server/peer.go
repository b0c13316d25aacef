package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/sandbox"
	"github.com/stockade-dev/stockade/supervisor/api"
)

// userOf returns whose connection it is, by the kernel's word: the credentials at the time of
// connect(2). The pid is not part of it, because pids are reused.
func userOf(fd int) (p api.Principal, err error) {
	cred, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return p, os.NewSyscallError("SO_PEERCRED", err)
	}
	p.UID, p.GID = cred.Uid, cred.Gid
	return p, nil
}

// peerGroups returns the supplementary groups of the peer (Linux 4.13). x/sys has the
// number of the option but no call that returns a list.
func peerGroups(fd int) ([]uint32, error) {
	groups := make([]uint32, 64)
	for {
		size := uint32(len(groups) * 4)
		_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_PEERGROUPS,
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
	file           *os.File // the listener's socket: what package net accepts costs more than who is turned away may
	raw            syscall.RawConn
	total, perUser int
	closed         atomic.Bool

	mu    sync.Mutex
	held  map[uint32]int
	all   int
	paced map[uint32]*pace
}

// admit bounds who is accepted from ln.
func admit(ln net.Listener, o Options) (*admission, error) {
	socket, ok := ln.(interface{ File() (*os.File, error) })
	if !ok {
		return nil, fmt.Errorf("%T is no socket: nobody knows who its peers are", ln)
	}
	file, err := socket.File()
	if err != nil {
		return nil, err
	}
	raw, err := file.SyscallConn()
	if err != nil {
		file.Close()
		return nil, err
	}
	return &admission{Listener: ln, file: file, raw: raw, total: o.Conns, perUser: o.ConnsPerUser, held: map[uint32]int{}, paced: map[uint32]*pace{}}, nil
}

// Close ends Accept.
func (a *admission) Close() error {
	a.closed.Store(true)
	return errors.Join(a.file.Close(), a.Listener.Close())
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
		var c caller
		var failed error
		if err := a.raw.Read(func(ln uintptr) (done bool) { c, failed = a.next(int(ln)); return failed != unix.EAGAIN }); err != nil {
			failed = err
		}
		if failed == errFlood {
			c, failed = a.nextOfFlood()
		}
		switch {
		case failed != nil && a.closed.Load(): // by its own name for it, the file says so in another
			return nil, net.ErrClosed
		case failed == unix.EAGAIN: // the flood has ended
			continue
		case failed != nil:
			return nil, &net.OpError{Op: "accept", Net: "unix", Addr: a.Addr(), Err: os.NewSyscallError("accept4", failed)}
		}
		release := sync.OnceFunc(func() { a.give(c.peer.UID) })
		conn, err := stay(c.fd, &c.peer)
		if err != nil { // gone already, or there is no descriptor for it
			release()
			continue
		}
		return &peerConn{Conn: conn, peer: c.peer, release: release}, nil
	}
}

// caller is who has connected.
type caller struct {
	fd   int
	peer api.Principal
}

// row is how many connections are turned away one after the other before it is a flood.
const row = 16

var errFlood = errors.New("nobody of a row of connections may stay")

// next takes connections from the queue until one may stay; errFlood is a row of those that may not. Who is turned
// away is known to nothing but the kernel: neither the runtime's poller nor a goroutine hears of him.
func (a *admission) next(ln int) (c caller, err error) {
	for range row {
		fd, _, err := unix.Accept4(ln, unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK)
		if err == unix.EINTR || err == unix.ECONNABORTED {
			continue
		}
		if err != nil {
			return c, err
		}
		peer, err := userOf(fd)
		// A command of a session, to which somebody gave a way to the socket, would ask for more than its own
		// session is, in nobody's name.
		if err == nil && !sandbox.Inside(peer.UID) {
			if a.take(peer.UID) {
				return caller{fd, peer}, nil
			}
			_, _ = unix.Write(fd, refusal)
		}
		unix.Close(fd)
	}
	return c, errFlood
}

// floodNice is how much whoever turns a flood away yields to everybody else, and calm how long nobody comes when it is over.
const (
	floodNice = 10
	calm      = 20 * time.Millisecond
)

// nextOfFlood is next while connections are turned away as fast as they come, on a thread that yields to those who
// answer the others. It returns EAGAIN when the flood is over.
func (a *admission) nextOfFlood() (c caller, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // for good: the thread ends with its priority
		_ = unix.Setpriority(unix.PRIO_PROCESS, 0, floodNice)
		failed := a.raw.Control(func(ln uintptr) {
			for !a.closed.Load() {
				c, err = a.next(int(ln))
				if err == unix.EAGAIN {
					if n, _ := unix.Poll([]unix.PollFd{{Fd: int32(ln), Events: unix.POLLIN}}, int(calm.Milliseconds())); n > 0 {
						continue
					}
				}
				if err != errFlood {
					return
				}
			}
			err = net.ErrClosed
		})
		err = cmp.Or(failed, err)
	}()
	<-done
	return c, err
}

// stay makes a connection of a descriptor, and knows the groups of its peer. It takes another descriptor for a
// moment: whoever cannot have that is told to come again.
func stay(fd int, peer *api.Principal) (net.Conn, error) {
	f := os.NewFile(uintptr(fd), "connection")
	defer f.Close()
	groups, err := peerGroups(fd)
	if err != nil {
		return nil, err
	}
	peer.Groups = groups
	conn, err := net.FileConn(f)
	if errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) {
		_, _ = unix.Write(fd, refusal)
	}
	return conn, err
}

func (a *admission) take(uid uint32) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.all >= min(a.total, forConnections()) || a.held[uid] >= a.perUser || !a.steady(uid, time.Now()) {
		return false
	}
	a.all++
	a.held[uid]++
	return true
}

// forConnections is half of the descriptors that the process may have: who connects must leave enough of them for executions,
// for the journal, and for those who are there already.
func forConnections() int {
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err != nil {
		return 0
	}
	return int(min(files.Cur/2, math.MaxInt32))
}

func (a *admission) give(uid uint32) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.all--
	if a.held[uid]--; a.held[uid] == 0 {
		delete(a.held, uid)
	}
}

// refusal is an answer without a question: the reader of an HTTP client understands it. It is made once and fits into any
// socket's buffer: whoever connects in a loop must not cost more than he pays.
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
