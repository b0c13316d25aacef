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

// loopback connects to whoever listens, in the one version of the protocol or the other. It waits for nothing: on the loopback a
// connection stands or is refused at once, unless more wait than the listener wants to.
func loopback(port uint32) (socket int, refused *Error) {
	if port == 0 || port > 0xffff {
		return -1, &Error{StageConnect, "connect", syscall.EINVAL}
	}
	for _, to := range []unix.Sockaddr{
		&unix.SockaddrInet4{Port: int(port), Addr: [4]byte{127, 0, 0, 1}},
		&unix.SockaddrInet6{Port: int(port), Addr: [16]byte{15: 1}},
	} {
		family := unix.AF_INET
		if _, six := to.(*unix.SockaddrInet6); six {
			family = unix.AF_INET6
		}
		fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			return -1, first(refused, &Error{StageConnect, "socket", errno(err)})
		}
		if err = unix.Connect(fd, to); err == nil || err == unix.EINPROGRESS {
			return fd, nil
		}
		unix.Close(fd)
		refused = first(refused, &Error{StageConnect, "connect", errno(err)})
	}
	return -1, refused
}

// first is the earlier of two refusals.
func first(earlier, later *Error) *Error {
	if earlier != nil {
		return earlier
	}
	return later
}
