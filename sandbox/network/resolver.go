package network

import (
	"bufio"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
)

// resolver is the one that is named, or the host's first. A host without one is no error: its sessions
// reach addresses.
func resolver(named string) (netip.AddrPort, error) {
	if named != "" {
		a, err := netip.ParseAddrPort(named)
		if err != nil {
			return a, fmt.Errorf("resolver: %w", err)
		}
		return a, nil
	}
	f, err := os.Open("/etc/resolv.conf")
	if err != nil {
		return netip.AddrPort{}, nil
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 2 || fields[0] != "nameserver" {
			continue
		}
		if a, err := netip.ParseAddr(fields[1]); err == nil {
			return netip.AddrPortFrom(a, portDNS), nil
		}
	}
	return netip.AddrPort{}, nil
}

// hostAddresses are the host's own at this moment. What listens on one is the host's own business, public or not: it takes a
// destination that is exactly that address.
func hostAddresses() ([]netip.Prefix, error) {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("the host's addresses: %w", err)
	}
	var out []netip.Prefix
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok {
			if ip, ok := netip.AddrFromSlice(n.IP); ok {
				ip = ip.Unmap()
				out = append(out, netip.PrefixFrom(ip, ip.BitLen()))
			}
		}
	}
	return out, nil
}
