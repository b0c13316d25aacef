package testbox

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"
)

// An Internet is a network namespace to start a daemon in. It answers for every address, so that what a session
// does not reach would have been there to be reached: HTTP on port 80, what comes back on port 7, datagrams to port 7, and a
// resolver, which /etc/resolv.conf names in the mount namespace that goes with it.
type Internet struct {
	names map[string][]string // to addresses
	calls chan func()

	mu     sync.Mutex
	met    []string
	closes []io.Closer
}

const resolver = "11.0.0.53"

// NewInternet makes one that knows the names. The caller closes it.
func NewInternet(names map[string][]string) (*Internet, error) {
	i := &Internet{names: names, calls: make(chan func())}
	go i.live()
	if err := i.Within(i.furnish); err != nil {
		i.Close()
		return nil, fmt.Errorf("internet: %w", err)
	}
	return i, nil
}

// live has a thread of its own, whose namespaces nobody else may get: it ends with it. The main one would not end, and is the one by
// which /proc/self tells of the process: while that is held, another is found.
func (i *Internet) live() {
	runtime.LockOSThread()
	if unix.Gettid() == unix.Getpid() {
		defer runtime.UnlockOSThread()
		done := make(chan struct{})
		go func() {
			defer close(done)
			i.live()
		}()
		<-done
		return
	}
	for call := range i.calls {
		call()
	}
}

// Within calls fn on a thread that is in it. What fn starts is in it, too.
func (i *Internet) Within(fn func() error) error {
	done := make(chan error)
	i.calls <- func() { done <- fn() }
	return <-done
}

// Close ends its servers. Whatever was started in it should have ended before.
func (i *Internet) Close() {
	for _, c := range i.closes {
		c.Close()
	}
	close(i.calls)
}

// Met is who has come by, in the order in which they did, each once: "tcp ADDRESS:PORT", "udp" or "dns NAME".
func (i *Internet) Met() []string {
	i.mu.Lock()
	defer i.mu.Unlock()
	return slices.Clone(i.met)
}

func (i *Internet) note(who string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if !slices.Contains(i.met, who) {
		i.met = append(i.met, who)
	}
}

func (i *Internet) furnish() error {
	if err := unix.Unshare(unix.CLONE_NEWNET | unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("unshare: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_PRIVATE|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := resolvConf(); err != nil {
		return err
	}
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		return err
	}
	// Routes, and from the loopback: an address of the host's own is another thing to a relay.
	for all, src := range map[string]string{"0.0.0.0/0": "127.0.0.1", "::/0": "::1"} {
		_, to, err := net.ParseCIDR(all)
		if err != nil {
			return err
		}
		err = netlink.RouteAdd(&netlink.Route{LinkIndex: lo.Attrs().Index, Dst: to, Src: net.ParseIP(src), Type: unix.RTN_LOCAL, Scope: netlink.SCOPE_HOST, Table: unix.RT_TABLE_MAIN})
		if err != nil {
			return fmt.Errorf("route to %s: %w", all, err)
		}
	}
	return i.serve()
}

// resolvConf names our resolver in this mount namespace.
func resolvConf() error {
	f, err := os.CreateTemp("", "resolv-*.conf")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = fmt.Fprintln(f, "nameserver", resolver)
	if err := errors.Join(err, f.Chmod(0o644), f.Close()); err != nil {
		return err
	}
	if err := unix.Mount(f.Name(), "/etc/resolv.conf", "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("bind resolv.conf: %w", err)
	}
	return nil
}

func (i *Internet) serve() error {
	web, err := net.Listen("tcp", ":80")
	if err != nil {
		return err
	}
	echo, err := net.Listen("tcp", ":7")
	if err != nil {
		return err
	}
	datagrams, err := net.ListenPacket("udp", ":7")
	if err != nil {
		return err
	}
	questions, err := net.ListenPacket("udp", resolver+":53")
	if err != nil {
		return err
	}
	i.closes = []io.Closer{web, echo, datagrams, questions}
	server := http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s at %s\n", r.Host, r.Context().Value(http.LocalAddrContextKey))
	}), ReadHeaderTimeout: time.Minute}
	go server.Serve(&noting{web, i})
	go i.echo(&noting{echo, i})
	go i.take(datagrams)
	go i.answer(questions)
	return nil
}

// noting takes down who connects.
type noting struct {
	net.Listener
	i *Internet
}

func (n *noting) Accept() (net.Conn, error) {
	c, err := n.Listener.Accept()
	if err == nil {
		n.i.note("tcp " + plain(c.LocalAddr()))
	}
	return c, err
}

// plain is an address without the form that it has on a socket of both families.
func plain(a net.Addr) string {
	ap, err := netip.ParseAddrPort(a.String())
	if err != nil {
		return a.String()
	}
	return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port()).String()
}

func (i *Internet) echo(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			io.Copy(c, c)
		}()
	}
}

func (i *Internet) take(c net.PacketConn) {
	buf := make([]byte, 2048)
	for {
		if _, _, err := c.ReadFrom(buf); err != nil {
			return
		}
		i.note("udp")
	}
}

func (i *Internet) answer(c net.PacketConn) {
	buf := make([]byte, 4096)
	for {
		n, from, err := c.ReadFrom(buf)
		if err != nil {
			return
		}
		var q dnsmessage.Message
		if q.Unpack(buf[:n]) != nil || len(q.Questions) != 1 {
			continue
		}
		if b, err := i.reply(q); err == nil {
			c.WriteTo(b, from)
		}
	}
}

func (i *Internet) reply(q dnsmessage.Message) ([]byte, error) {
	asked := q.Questions[0]
	name := strings.TrimSuffix(asked.Name.String(), ".")
	i.note("dns " + name)
	addrs, known := i.names[name]
	a := dnsmessage.Message{Header: dnsmessage.Header{ID: q.ID, Response: true, RecursionAvailable: true}, Questions: q.Questions}
	if !known {
		a.RCode = dnsmessage.RCodeNameError
	}
	for _, text := range addrs {
		head := dnsmessage.ResourceHeader{Name: asked.Name, Class: dnsmessage.ClassINET, TTL: 5}
		switch addr := netip.MustParseAddr(text); {
		case addr.Is4() && asked.Type == dnsmessage.TypeA:
			a.Answers = append(a.Answers, dnsmessage.Resource{Header: head, Body: &dnsmessage.AResource{A: addr.As4()}})
		case addr.Is6() && asked.Type == dnsmessage.TypeAAAA:
			a.Answers = append(a.Answers, dnsmessage.Resource{Header: head, Body: &dnsmessage.AAAAResource{AAAA: addr.As16()}})
		}
	}
	return a.Pack()
}
