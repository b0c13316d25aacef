package guest

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// A connection to the session's loopback is made inside, by init: the socket is of the session's network and counts with its
// memory, and whether there may be one its filter says. It leaves with the answer.

// connect answers with a socket that is connected to a port of the loopback, or about to be.
func (g *guestInit) connect(call uint64, port uint32) {
	socket := -1
	var refused *Error
	e := g.asIdentity(func() syscall.Errno {
		socket, refused = loopback(port)
		return 0
	})
	defer closeFDs(socket)
	switch {
	case e != 0:
		g.answer(call, &Error{StageConnect, "identity", e})
	case refused != nil:
		g.answer(call, refused)
	default:
		g.send(kindOpened, call, nil, socket)
	}
}

// settling is how long a connection on the loopback may take to stand or to be refused. It takes longer only where more wait than the
// listener wants to; whoever gets the socket then waits for the rest.
const settling = 10 // ms

// loopback connects to whoever listens, in the one version of the protocol or the other.
func loopback(port uint32) (socket int, refused *Error) {
	if port == 0 || port > 0xffff {
		return -1, &Error{StageConnect, "connect", syscall.EINVAL}
	}
	for _, to := range []struct {
		family  int
		address unix.Sockaddr
	}{
		{unix.AF_INET, &unix.SockaddrInet4{Port: int(port), Addr: [4]byte{127, 0, 0, 1}}},
		{unix.AF_INET6, &unix.SockaddrInet6{Port: int(port), Addr: [16]byte{15: 1}}},
	} {
		fd, e := dial(to.family, to.address)
		if e == nil {
			return fd, nil
		}
		if refused == nil { // where both refuse, the first is the one to tell of
			refused = e
		}
	}
	return -1, refused
}

func dial(family int, to unix.Sockaddr) (socket int, refused *Error) {
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return -1, &Error{StageConnect, "socket", errno(err)}
	}
	if err = unix.Connect(fd, to); err == unix.EINPROGRESS {
		p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
		unix.Poll(p, settling) // interrupted or late is as good: the error is looked at, and there may be none yet
		err = nil
		if code, failed := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR); failed != nil || code != 0 {
			err = syscall.Errno(code)
		}
	}
	if err != nil {
		unix.Close(fd)
		return -1, &Error{StageConnect, "connect", errno(err)}
	}
	return fd, nil
}
