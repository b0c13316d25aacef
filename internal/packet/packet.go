// Package packet moves one message and its file descriptors over a SOCK_SEQPACKET
// unix socket. It promises that a message arrives whole, without its descriptors if this process may have
// no more of them, which it says, or not at all, that every
// descriptor received is close-on-exec and either handed to the caller or closed,
// and that a message too large for the socket travels in a sealed memfd without
// the caller noticing. What the bytes mean is not its concern.
//
// It is linked into stockade-init: standard library and x/sys only, no fmt.
package packet

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/internal/memfile"
)

const (
	// Inline is the largest payload that travels in the message itself. The
	// kernel's default for a socket's buffer is 208 KiB, skb overhead included.
	Inline = 96 << 10
	// Large is the largest payload of all: execve accepts at most a quarter of
	// the stack limit, 6 MiB, for arguments and environment together.
	Large = 16 << 20
	// Descriptors is how many descriptors one message carries at most; the kernel's own
	// limit is 253 (SCM_MAX_FD).
	Descriptors = 64
)

// The first byte of every message says where its payload is.
const (
	inBody  = 0
	inMemfd = 1 // in the first descriptor
)

var (
	errTooLarge   = errors.New("packet: message too large")
	errTooManyFDs = errors.New("packet: too many descriptors")
	errTruncated  = errors.New("packet: message truncated")
	errMalformed  = errors.New("packet: malformed message")
)

// ErrDescriptors is beside a payload of which not all descriptors have arrived: it came with more than Descriptors, or this
// process has as many as it may. The conversation can go on: whose call it was can be told.
var ErrDescriptors = errors.New("packet: descriptors of a message are lost: too many open files")

// Send sends payload and descriptors over the socket fd. The descriptors stay the caller's.
func Send(fd int, payload []byte, fds ...int) error {
	m, err := newMessage(payload, fds)
	if err != nil {
		return err
	}
	defer m.release()
	return m.send(fd)
}

// Body is what Send sends of a payload of at most Inline bytes: for who makes the call himself.
func Body(payload []byte) []byte { return append([]byte{inBody}, payload...) }

// message is what one sendmsg needs.
type message struct {
	buffers [][]byte
	rights  []byte
	memfd   *os.File // nil unless the payload is in it
}

func newMessage(payload []byte, fds []int) (message, error) {
	if len(payload) > Large {
		return message{}, errTooLarge
	}
	if len(fds) > Descriptors {
		return message{}, errTooManyFDs
	}
	if len(payload) <= Inline {
		m := message{buffers: [][]byte{{inBody}, payload}}
		if len(fds) > 0 {
			m.rights = unix.UnixRights(fds...)
		}
		return m, nil
	}
	memfd, _, err := memfile.Of("stockade-message", bytes.NewReader(payload))
	if err != nil {
		return message{}, err
	}
	return message{
		buffers: [][]byte{{inMemfd}},
		rights:  unix.UnixRights(append([]int{int(memfd.Fd())}, fds...)...),
		memfd:   memfd,
	}, nil
}

func (m message) send(fd int) error {
	for {
		// MSG_NOSIGNAL: a closed peer is an error here, never SIGPIPE.
		_, err := unix.SendmsgBuffers(fd, m.buffers, m.rights, nil, unix.MSG_NOSIGNAL)
		if err != unix.EINTR {
			return err
		}
	}
}

func (m message) release() {
	if m.memfd != nil {
		m.memfd.Close()
	}
}

// unseal returns what a sealed memfd holds.
func unseal(fd int) ([]byte, error) {
	size, err := memfile.Size(fd)
	if err != nil {
		return nil, err
	}
	if size > Large {
		return nil, errTooLarge
	}
	b := make([]byte, size)
	for off := 0; off < len(b); {
		n, err := unix.Pread(fd, b[off:], int64(off))
		if err != nil {
			return nil, err
		}
		if n == 0 {
			return nil, errMalformed
		}
		off += n
	}
	return b, nil
}

// Buffer is what Receive reads into; its owner reuses it from call to call.
type Buffer struct {
	body   [1 + Inline]byte
	rights [rightsSize]byte
}

// rightsSize is CMSG_SPACE of the memfd and Descriptors more, as a constant: a header of 16 bytes and
// 4 for each, rounded up to 8.
const rightsSize = 16 + (4*(1+Descriptors)+7)/8*8

// Receive receives one message from the socket fd. The payload is valid until the
// next Receive into the same buffer; the descriptors are the caller's, and beside ErrDescriptors there are none. At the end
// of the connection the error is io.EOF.
func (b *Buffer) Receive(fd int) (payload []byte, fds []int, err error) {
	n, nrights, flags, err := b.recvmsg(fd, 0)
	// Without waiting the kernel looks for a message first, and for the end then: what came with the
	// end, between the two, is still there. So is what was sent by a peer that ended without having read
	// everything itself: the kernel says that once, and it may do so after the end. After an end nothing comes.
	for again := 0; again < 2 && (n == 0 && err == nil || err == unix.ECONNRESET); again++ {
		if n, nrights, flags, err = b.recvmsg(fd, unix.MSG_DONTWAIT); err == unix.EAGAIN { // it was a message of nothing
			return nil, nil, io.EOF
		}
	}
	if err != nil {
		return nil, nil, err
	}
	fds, err = parseRights(b.rights[:nrights])
	if err != nil {
		CloseAll(fds)
		return nil, nil, err
	}
	lost := flags&unix.MSG_CTRUNC != 0
	if flags&unix.MSG_TRUNC != 0 || lost && n > 0 && b.body[0] == inMemfd && len(fds) == 0 {
		CloseAll(fds)
		return nil, nil, errTruncated
	}
	if n == 0 { // no message of ours is empty
		CloseAll(fds)
		return nil, nil, io.EOF
	}
	switch {
	case b.body[0] == inBody && lost:
		CloseAll(fds)
		return b.body[1:n], nil, ErrDescriptors
	case b.body[0] == inBody && len(fds) <= Descriptors:
		return b.body[1:n], fds, nil
	case b.body[0] == inMemfd && n == 1 && len(fds) > 0:
		payload, err := unseal(fds[0])
		unix.Close(fds[0])
		if err != nil {
			CloseAll(fds[1:])
			return nil, nil, err
		}
		if lost {
			CloseAll(fds[1:])
			return payload, nil, ErrDescriptors
		}
		return payload, fds[1:], nil
	}
	CloseAll(fds)
	return nil, nil, errMalformed
}

func (b *Buffer) recvmsg(fd, how int) (n, nrights, flags int, err error) {
	for {
		n, nrights, flags, _, err = unix.Recvmsg(fd, b.body[:], b.rights[:], unix.MSG_CMSG_CLOEXEC|how)
		if err != unix.EINTR {
			return n, nrights, flags, err
		}
	}
}

// parseRights returns every descriptor in a control buffer, also beside an error.
func parseRights(b []byte) ([]int, error) {
	if len(b) == 0 {
		return nil, nil
	}
	controls, err := unix.ParseSocketControlMessage(b)
	if err != nil {
		return nil, err
	}
	var all []int
	for i := range controls {
		if controls[i].Header.Level != unix.SOL_SOCKET || controls[i].Header.Type != unix.SCM_RIGHTS {
			continue
		}
		fds, perr := unix.ParseUnixRights(&controls[i])
		all = append(all, fds...)
		if perr != nil {
			err = perr
		}
	}
	return all, err
}

// CloseAll closes descriptors.
func CloseAll(fds []int) {
	for _, fd := range fds {
		unix.Close(fd)
	}
}

// Socket is anything with a socket below it: a *net.UnixConn, an *os.File. It must
// be in non-blocking mode.
type Socket interface {
	io.Closer
	SyscallConn() (syscall.RawConn, error)
}

// Conn sends and receives through the runtime's poller. Send may be called from
// many goroutines, Receive from one.
type Conn struct {
	socket Socket
	raw    syscall.RawConn
	buf    *Buffer
	close  sync.Once
}

// NewConn returns a Conn over s. Closing it closes s.
func NewConn(s Socket) (*Conn, error) {
	raw, err := s.SyscallConn()
	if err != nil {
		return nil, err
	}
	return &Conn{socket: s, raw: raw, buf: new(Buffer)}, nil
}

// Send is as the function Send.
func (c *Conn) Send(payload []byte, fds ...int) error {
	m, err := newMessage(payload, fds)
	if err != nil {
		return err
	}
	defer m.release()
	cerr := c.raw.Write(func(fd uintptr) bool {
		err = m.send(int(fd))
		return err != unix.EAGAIN
	})
	if cerr != nil {
		return closed(cerr)
	}
	return err
}

// Receive is as Buffer.Receive.
func (c *Conn) Receive() (payload []byte, fds []int, err error) {
	cerr := c.raw.Read(func(fd uintptr) bool {
		payload, fds, err = c.buf.Receive(int(fd))
		return err != unix.EAGAIN
	})
	if cerr != nil {
		return nil, nil, closed(cerr)
	}
	return payload, fds, err
}

// closed is os.ErrClosed, as every other call on a file has it, where a raw one was refused for that.
func closed(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return err
	}
	return fmt.Errorf("%w: %w", os.ErrClosed, err)
}

// Close closes the socket. A Receive in progress returns an error.
func (c *Conn) Close() (err error) {
	c.close.Do(func() { err = c.socket.Close() })
	return err
}
