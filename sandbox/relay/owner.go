package relay

import (
	"encoding/binary"
	"net/netip"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// diag asks the kernel about sockets of the session's namespace (sock_diag(7)), through a socket that was opened
// there. Since Linux 5.8 the answer has the group in which a socket was made.
type diag struct {
	mu   sync.Mutex
	file *os.File
	raw  syscall.RawConn
	seq  uint32
	buf  [16 << 10]byte
}

func newDiag(f *os.File) (*diag, error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return nil, err
	}
	return &diag{file: f, raw: raw}, nil
}

// linux/inet_diag.h
const (
	requestSize  = 56 // struct inet_diag_req_v2
	messageSize  = 72 // struct inet_diag_msg
	attrCgroupID = 21 // INET_DIAG_CGROUP_ID
	stateListen  = 10
)

// tcp is the group of the socket with these ends, 0 when there is none: a program may have closed it, or
// the rules have given it another port because two sockets shared one.
func (d *diag) tcp(local, remote netip.AddrPort) uint64 {
	return d.ask(unix.IPPROTO_TCP, family(local.Addr()), 0, local, remote)
}

// udp is the group of the socket that sent from a port. Where to is not known: the rules have changed it. So
// the sockets with that port are listed, an IPv6 one may send IPv4.
func (d *diag) udp(local netip.AddrPort) uint64 {
	any := netip.AddrPort{}
	if local.Addr().Is4() {
		if group := d.ask(unix.IPPROTO_UDP, unix.AF_INET, unix.NLM_F_DUMP, netip.AddrPortFrom(any.Addr(), local.Port()), any); group != 0 {
			return group
		}
	}
	return d.ask(unix.IPPROTO_UDP, unix.AF_INET6, unix.NLM_F_DUMP, netip.AddrPortFrom(any.Addr(), local.Port()), any)
}

func family(a netip.Addr) byte {
	if a.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}

// ask returns the group of the first socket that the kernel names.
func (d *diag) ask(protocol, family byte, flags uint16, local, remote netip.AddrPort) (group uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.seq++
	n := binary.NativeEndian
	q := make([]byte, 0, unix.SizeofNlMsghdr+requestSize)
	q = n.AppendUint32(q, unix.SizeofNlMsghdr+requestSize)
	q = n.AppendUint16(q, unix.SOCK_DIAG_BY_FAMILY)
	q = n.AppendUint16(q, unix.NLM_F_REQUEST|flags)
	q = n.AppendUint32(q, d.seq)
	q = n.AppendUint32(q, 0)
	q = append(q, family, protocol, 0, 0)
	q = n.AppendUint32(q, 1<<32-1) // every state
	q = binary.BigEndian.AppendUint16(q, local.Port())
	q = binary.BigEndian.AppendUint16(q, remote.Port())
	q = appendAddr(q, local.Addr())
	q = appendAddr(q, remote.Addr())
	q = n.AppendUint32(q, 0)       // interface
	q = n.AppendUint64(q, 1<<64-1) // no cookie
	err := d.raw.Control(func(fd uintptr) {
		if unix.Sendto(int(fd), q, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}) != nil {
			return
		}
		// The kernel answers while it is asked, and goes on with a list while it is read.
		for {
			size, _, err := unix.Recvfrom(int(fd), d.buf[:], unix.MSG_DONTWAIT)
			if err == unix.EINTR {
				continue
			}
			if err != nil {
				return
			}
			found, more := d.read(d.buf[:size])
			if group == 0 {
				group = found
			}
			if !more {
				return
			}
		}
	})
	if err != nil {
		return 0
	}
	return group
}

func appendAddr(b []byte, a netip.Addr) []byte {
	var field [16]byte
	copy(field[:], a.AsSlice())
	return append(b, field[:]...)
}

// read finds a group in messages, and says whether more will come.
func (d *diag) read(b []byte) (group uint64, more bool) {
	n := binary.NativeEndian
	for len(b) >= unix.SizeofNlMsghdr {
		size := int(n.Uint32(b))
		if size < unix.SizeofNlMsghdr || size > len(b) {
			return group, false
		}
		kind, flags, seq := n.Uint16(b[4:]), n.Uint16(b[6:]), n.Uint32(b[8:])
		body := b[unix.SizeofNlMsghdr:size]
		b = b[min(len(b), (size+3)&^3):]
		switch {
		case seq != d.seq: // of a question that was given up
			more = true
			continue
		case kind == unix.NLMSG_DONE || kind == unix.NLMSG_ERROR:
			return group, false
		}
		more = flags&unix.NLM_F_MULTI != 0
		if kind == unix.SOCK_DIAG_BY_FAMILY && len(body) >= messageSize && body[1] != stateListen && group == 0 {
			group = cgroupID(body[messageSize:])
		}
	}
	return group, more
}

func cgroupID(attrs []byte) uint64 {
	n := binary.NativeEndian
	for len(attrs) >= 4 {
		size, kind := int(n.Uint16(attrs)), n.Uint16(attrs[2:])
		if size < 4 || size > len(attrs) {
			return 0
		}
		if kind == attrCgroupID && size == 12 {
			return n.Uint64(attrs[4:])
		}
		attrs = attrs[min(len(attrs), (size+3)&^3):]
	}
	return 0
}
