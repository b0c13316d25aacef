package relay

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// originalDst is where a program wanted to go before the rules led it here.
func originalDst(c *net.TCPConn) (dst netip.AddrPort, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return dst, err
	}
	v4 := addrPort(c.LocalAddr()).Addr().Is4()
	cerr := raw.Control(func(fd uintptr) {
		// These calls are taken for the size of what they return: sockaddr_in and sockaddr_in6.
		if v4 {
			var a *unix.IPv6Mreq
			if a, err = unix.GetsockoptIPv6Mreq(int(fd), unix.SOL_IP, unix.SO_ORIGINAL_DST); err == nil {
				dst = netip.AddrPortFrom(netip.AddrFrom4([4]byte(a.Multiaddr[4:8])), binary.BigEndian.Uint16(a.Multiaddr[2:]))
			}
			return
		}
		var a *unix.IPv6MTUInfo
		if a, err = unix.GetsockoptIPv6MTUInfo(int(fd), unix.SOL_IPV6, unix.SO_ORIGINAL_DST); err == nil {
			port := binary.BigEndian.Uint16(binary.NativeEndian.AppendUint16(nil, a.Addr.Port))
			dst = netip.AddrPortFrom(netip.AddrFrom16(a.Addr.Addr), port)
		}
	})
	return dst, errors.Join(err, cerr)
}

// moved is what a live connection has carried, by the word of the kernel.
func (c *conn) moved() (sent, received int64) {
	info := tcpInfo(c.in)
	if info == nil {
		return 0, 0
	}
	sent = int64(info.Bytes_received)
	if info.State == unix.BPF_TCP_CLOSE_WAIT || info.State == unix.BPF_TCP_LAST_ACK { // the end counts like a byte
		sent--
	}
	return sent, int64(info.Bytes_sent - info.Bytes_retrans)
}

// idle is how long nothing has come from either end.
func (c *conn) idle() time.Duration {
	least := time.Duration(-1)
	for _, end := range []*net.TCPConn{c.in, c.out} {
		if info := tcpInfo(end); info != nil {
			since := time.Duration(info.Last_data_recv) * time.Millisecond
			if least < 0 || since < least {
				least = since
			}
		}
	}
	return least
}

func tcpInfo(c *net.TCPConn) (info *unix.TCPInfo) {
	if raw, err := c.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) {
			info, _ = unix.GetsockoptTCPInfo(int(fd), unix.SOL_TCP, unix.TCP_INFO)
		})
	}
	return info
}

// passes reports whether a listener that failed will work again.
func passes(err error) bool {
	for _, e := range []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.ECONNABORTED} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

func addrPort(a net.Addr) netip.AddrPort {
	switch a := a.(type) {
	case *net.TCPAddr:
		return unmapped(a.AddrPort())
	case *net.UDPAddr:
		return unmapped(a.AddrPort())
	}
	return netip.AddrPort{}
}

func unmapped(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
}

func itoa(port uint16) string { return strconv.Itoa(int(port)) }
