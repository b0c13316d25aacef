package network

import (
	"errors"
	"fmt"
	"net"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Evidence lists the interfaces, addresses, routes and rules that the kernel has, sorted. It is an error with
// CodeNotEnforced if they are not what was set up, or if the relay has ended.
func (s *Session) Evidence() (lines []string, err error) {
	if s.relay != nil {
		if err := s.relay.alive(); err != nil {
			return nil, notEnforced("%v", err)
		}
	}
	err = within(s.ns, func() error {
		if lines, err = readRoutes(s.relay != nil, s.ipv6); err != nil || s.relay == nil {
			return err
		}
		rules, err := readRules()
		lines = append(lines, rules...)
		return err
	})
	if err != nil {
		return nil, failed(err)
	}
	slices.Sort(lines)
	return lines, nil
}

// readRoutes lists interfaces, addresses and routes. None but lo may be up: where a module of tunnels is loaded,
// every new namespace has one of its interfaces, down.
func readRoutes(everywhere, ipv6 bool) (lines []string, err error) {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("route netlink: %w", err)
	}
	defer h.Close()
	links, err := h.LinkList()
	if err != nil {
		return nil, fmt.Errorf("list interfaces: %w", err)
	}
	lo := 0
	for _, l := range links {
		a := l.Attrs()
		up := a.Flags&net.FlagUp != 0
		if loopback := a.Flags&net.FlagLoopback != 0; loopback && up {
			lo = a.Index
		} else if up || loopback {
			return nil, notEnforced("interface %s is up, or a loopback that is not", a.Name)
		}
		lines = append(lines, fmt.Sprintf("link %s %s", a.Name, map[bool]string{true: "up", false: "down"}[up]))
	}
	addrs, err := h.AddrList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return nil, fmt.Errorf("list addresses: %w", err)
	}
	for _, a := range addrs {
		if a.LinkIndex != lo || !a.IP.IsLoopback() {
			return nil, notEnforced("address %s is not of the loopback", a.IPNet)
		}
		lines = append(lines, "address "+a.IPNet.String())
	}
	routes, err := h.RouteListFiltered(netlink.FAMILY_ALL, &netlink.Route{Table: unix.RT_TABLE_UNSPEC}, netlink.RT_FILTER_TABLE)
	if err != nil {
		return nil, fmt.Errorf("list routes: %w", err)
	}
	everything := 0
	for _, r := range routes {
		if r.LinkIndex != lo || r.Gw != nil || r.Via != nil || len(r.MultiPath) > 0 {
			return nil, notEnforced("route %s leads elsewhere", r)
		}
		if ones, bits := size(r.Dst); ones == 0 {
			if r.Type != unix.RTN_LOCAL || !everywhere {
				return nil, notEnforced("route %s leads everywhere", r)
			}
			everything += bits
		}
		lines = append(lines, routeText(r))
	}
	want := map[bool]int{true: 32 + 128, false: 32}[ipv6]
	if everywhere && everything != want || lo == 0 {
		return nil, notEnforced("not every address is on the loopback")
	}
	return lines, nil
}

func size(n *net.IPNet) (ones, bits int) {
	if n == nil { // the library's default route
		return 0, 0
	}
	return n.Mask.Size()
}

// kinds are the types of routes that a loopback has, as ip(8) calls them.
var kinds = map[int]string{unix.RTN_UNICAST: "unicast", unix.RTN_LOCAL: "local", unix.RTN_BROADCAST: "broadcast", unix.RTN_ANYCAST: "anycast", unix.RTN_MULTICAST: "multicast"}

func routeText(r netlink.Route) string {
	text := fmt.Sprintf("route %s %s table %d", kinds[r.Type], r.Dst, r.Table)
	if r.Src != nil {
		text += " src " + r.Src.String()
	}
	return text
}

// alive returns why the relay does not live.
func (p *process) alive() error {
	select {
	case <-p.ended:
		return errors.Join(errEnded, p.why())
	default:
		return nil
	}
}
