package network

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// The relay's ports in the session's namespace. They are below 1024, so that nothing of the session can take them
// when the relay has died, and none of the ports that programs like to have.
const (
	portTCP = 1
	portDNS = 53
)

// within runs do on a thread of the namespace, which ends with it.
func within(ns *os.File, do func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: nothing else may run in there
		if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
			done <- fmt.Errorf("enter network namespace: %w", err)
			return
		}
		done <- do()
	}()
	return <-done
}

// setUp makes routes, rules and sockets, in this order: a rule before there is a route drops packets, a
// socket on the loopback needs its address. It runs in the namespace.
func setUp() (sockets []*os.File, ipv6 bool, err error) {
	if err := applyRules(); err != nil {
		return nil, false, err
	}
	if err := loopback(true); err != nil {
		return nil, false, err
	}
	return openSockets()
}

// openSockets opens what the relay is given, in the order of relay.Config.
func openSockets() (sockets []*os.File, ipv6 bool, err error) {
	defer func() {
		if err != nil {
			closeAll(sockets)
			sockets = nil
		}
	}()
	diag, err := socket(unix.AF_NETLINK, unix.SOCK_DGRAM, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return sockets, false, fmt.Errorf("sock_diag: %w", err)
	}
	sockets = append(sockets, diag)
	for _, addr := range []string{"127.0.0.1", "::1"} {
		for _, l := range []struct {
			kind int
			port uint16
		}{{unix.SOCK_STREAM, portTCP}, {unix.SOCK_STREAM, portDNS}, {unix.SOCK_DGRAM, portDNS}} {
			f, err := listen(netip.AddrPortFrom(netip.MustParseAddr(addr), l.port), l.kind)
			// A host without IPv6 has no ::1: nothing of it leads out either.
			if addr == "::1" && (errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EADDRNOTAVAIL)) {
				return sockets, false, nil
			}
			if err != nil {
				return sockets, false, fmt.Errorf("listen on %s:%d: %w", addr, l.port, err)
			}
			sockets = append(sockets, f)
		}
	}
	return sockets, true, nil
}

// loopback brings the one interface up, and with everywhere makes every address one that it leads to.
func loopback(everywhere bool) error {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("route netlink: %w", err)
	}
	defer h.Close()
	lo, err := h.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("interface lo: %w", err)
	}
	if err := h.LinkSetUp(lo); err != nil {
		return fmt.Errorf("interface lo: %w", err)
	}
	if !everywhere {
		return nil
	}
	for _, r := range defaults {
		err := h.RouteAdd(&netlink.Route{
			LinkIndex: lo.Attrs().Index, Dst: r.dst, Src: r.src, Type: unix.RTN_LOCAL, Scope: netlink.SCOPE_HOST, Table: unix.RT_TABLE_MAIN,
		})
		if r.optional && (errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EACCES)) {
			continue // a host without IPv6: nothing of it leads anywhere
		}
		if err != nil {
			return fmt.Errorf("route %s: %w", r.dst, err)
		}
	}
	return nil
}

// defaults lead everything to the loopback. With a source address, programs see that of the loopback as their own,
// and not the one that they connect to, which is local here as well; IPv6 takes ::1 by itself.
var defaults = []struct {
	dst      *net.IPNet
	src      net.IP
	optional bool
}{
	{&net.IPNet{IP: net.IPv4zero.To4(), Mask: net.CIDRMask(0, 32)}, net.IPv4(127, 0, 0, 1), false},
	{&net.IPNet{IP: net.IPv6zero, Mask: net.CIDRMask(0, 128)}, nil, true},
}

// listen opens a socket of the namespace that the thread is in, which it stays in wherever it goes.
func listen(at netip.AddrPort, kind int) (_ *os.File, err error) {
	domain, addr := unix.AF_INET, unix.Sockaddr(nil)
	if at.Addr().Is4() {
		addr = &unix.SockaddrInet4{Port: int(at.Port()), Addr: at.Addr().As4()}
	} else {
		domain, addr = unix.AF_INET6, &unix.SockaddrInet6{Port: int(at.Port()), Addr: at.Addr().As16()}
	}
	f, err := socket(domain, kind, 0)
	if err != nil {
		return nil, err
	}
	fd := int(f.Fd())
	if err = unix.Bind(fd, addr); err == nil && kind == unix.SOCK_STREAM {
		err = unix.Listen(fd, 1024)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func socket(domain, kind, protocol int) (*os.File, error) {
	fd, err := unix.Socket(domain, kind|unix.SOCK_CLOEXEC, protocol)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), "socket"), nil
}
