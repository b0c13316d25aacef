package network

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/sandbox"
	"github.com/stockade-dev/stockade/sandbox/relay"
)

// The tests run in a network namespace of their own, which plays the host: every address is answered there, so that
// what is refused would have been reached. The test's binary is the relay, too.
func TestMain(m *testing.M) {
	switch {
	case os.Args[0] == "stockade-relay":
		os.Exit(relay.Run())
	case os.Getenv("STOCKADE_TEST_HOST") == "" && os.Geteuid() == 0:
		cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
		cmd.Env = append(os.Environ(), "STOCKADE_TEST_HOST=1")
		cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET}
		if err := cmd.Run(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	case os.Geteuid() == 0:
		if err := playHost(); err != nil {
			fmt.Fprintln(os.Stderr, "the host's part:", err)
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}

// playHost answers for every address, without having them.
func playHost() error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		return err
	}
	for everything, src := range map[string]string{"0.0.0.0/0": "127.0.0.1", "::/0": "::1"} {
		_, dst, _ := net.ParseCIDR(everything)
		// From the loopback, or it would be taken for an address of the host's.
		if err := netlink.RouteAdd(&netlink.Route{LinkIndex: lo.Attrs().Index, Dst: dst, Src: net.ParseIP(src), Type: unix.RTN_LOCAL, Scope: netlink.SCOPE_HOST, Table: unix.RT_TABLE_MAIN}); err != nil {
			return err
		}
	}
	return nil
}

func needRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		if os.Getenv("STOCKADE_NOSKIP") == "1" {
			t.Fatal("takes root")
		}
		t.Skip("takes root: network namespaces and nftables")
	}
}

// The addresses of the test's internet.
const (
	resolverAddr = "11.0.0.53:53"
	alpha        = "11.0.0.1" // alpha.test, and shared.test
	alpha6       = "2600::1"
	beta         = "11.0.0.2"
	metadata     = "169.254.169.254"
)

// internet is what there is outside: it answers on every address.
type internet struct {
	mu    sync.Mutex
	asked []string
	names map[string][]string
}

var outside = sync.OnceValue(func() *internet {
	i := &internet{names: map[string][]string{
		"alpha.test": {alpha, alpha6}, "shared.test": {alpha}, "beta.test": {beta}, "sub.wild.test": {beta},
		"rebound.test": {metadata}, "loop.test": {"127.0.0.1"}, "half.test": {"10.1.2.3", beta}, "alias.test": {"cname:beta.test"},
	}}
	go i.dns()
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %s %d", r.Host, r.Context().Value(http.LocalAddrContextKey), len(body))
	})
	plain := httptest.NewUnstartedServer(handler)
	plain.Listener.Close()
	plain.Listener = i.listen(":80")
	plain.Start()
	secure := httptest.NewUnstartedServer(handler)
	secure.Listener.Close()
	secure.Listener = i.listen(":443")
	secure.StartTLS()
	go i.echo(i.listen(":7"))
	go i.echo(i.listen(":22"))
	return i
})

func (i *internet) listen(at string) net.Listener {
	l, err := net.Listen("tcp", at)
	if err != nil {
		panic(err)
	}
	return l
}

// echo says where it was reached, and gives back what it gets.
func (i *internet) echo(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			fmt.Fprintf(c, "%s\n", c.LocalAddr())
			io.Copy(c, c)
		}()
	}
}

func (i *internet) dns() {
	c, err := net.ListenPacket("udp", resolverAddr)
	if err != nil {
		panic(err)
	}
	buf := make([]byte, 4096)
	for {
		n, from, err := c.ReadFrom(buf)
		if err != nil {
			return
		}
		var q dnsmessage.Message
		if q.Unpack(buf[:n]) != nil {
			continue
		}
		asked := q.Questions[0]
		name := strings.TrimSuffix(asked.Name.String(), ".")
		i.mu.Lock()
		i.asked = append(i.asked, name)
		addrs, found := i.names[name]
		i.mu.Unlock()
		a := dnsmessage.Message{Header: dnsmessage.Header{ID: q.ID, Response: true, RecursionAvailable: true}, Questions: q.Questions}
		if !found {
			a.RCode = dnsmessage.RCodeNameError
		}
		owner := asked.Name
		for _, text := range addrs {
			if alias, ok := strings.CutPrefix(text, "cname:"); ok {
				target := dnsmessage.MustNewName(alias + ".")
				a.Answers = append(a.Answers, dnsmessage.Resource{Header: dnsmessage.ResourceHeader{Name: owner, Class: dnsmessage.ClassINET, TTL: 5}, Body: &dnsmessage.CNAMEResource{CNAME: target}})
				owner, text = target, i.names[alias][0]
			}
			head := dnsmessage.ResourceHeader{Name: owner, Class: dnsmessage.ClassINET, TTL: 5}
			addr := netip.MustParseAddr(text)
			switch {
			case addr.Is4() && asked.Type == dnsmessage.TypeA:
				a.Answers = append(a.Answers, dnsmessage.Resource{Header: head, Body: &dnsmessage.AResource{A: addr.As4()}})
			case addr.Is6() && asked.Type == dnsmessage.TypeAAAA:
				a.Answers = append(a.Answers, dnsmessage.Resource{Header: head, Body: &dnsmessage.AAAAResource{AAAA: addr.As16()}})
			}
		}
		if b, err := a.Pack(); err == nil {
			c.WriteTo(b, from)
		}
	}
}

// wasAsked says whether the host's resolver saw a name.
func (i *internet) wasAsked(name string) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, a := range i.asked {
		if a == name {
			return true
		}
	}
	return false
}

// box is a session as far as its network goes.
type box struct {
	*Session
	t      testing.TB
	ns     *os.File
	mu     sync.Mutex
	events []Event
}

// newNS makes a network namespace.
func newNS(t testing.TB) *os.File {
	t.Helper()
	needRoot(t)
	ns, err := newNamespace()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ns.Close() })
	return ns
}

var relayBinary = sync.OnceValue(func() *os.File {
	content, err := os.ReadFile("/proc/self/exe")
	if path := os.Getenv("STOCKADE_BIN"); path != "" {
		content, err = os.ReadFile(filepath.Join(path, "stockade-relay"))
	}
	if err != nil {
		panic(err)
	}
	fd, err := unix.MemfdCreate("stockade-relay", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		panic(err)
	}
	f := os.NewFile(uintptr(fd), "stockade-relay")
	if _, err := f.Write(content); err != nil {
		panic(err)
	}
	if err := f.Chmod(0o555); err != nil {
		panic(err)
	}
	if _, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_SEAL|unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_WRITE); err != nil {
		panic(err)
	}
	return f
})

// relayUID is of the range that sessions have.
const relayUID = sandbox.FirstHostID + sandbox.InitUID

func open(t testing.TB, network sandbox.Network, denied ...string) *box {
	t.Helper()
	b := &box{t: t, ns: newNS(t)}
	outside()
	o := Options{Relay: relayBinary(), Resolver: resolverAddr, UID: relayUID, Report: b.report}
	for _, d := range denied {
		o.Denied = append(o.Denied, netip.MustParsePrefix(d))
	}
	var err error
	if b.Session, err = Open(context.Background(), b.ns, network, o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b
}

func (b *box) report(e Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.events = append(b.events, e)
}

// told returns the events up to now.
func (b *box) told() []Event {
	b.t.Helper()
	if _, err := b.Traffic(context.Background(), 0); err != nil {
		b.t.Fatal(err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]Event(nil), b.events...)
}

// dial connects from inside.
func (b *box) dial(network, to string) (net.Conn, error) { return dialIn(b.ns, network, to) }

func dialIn(ns *os.File, network, to string) (c net.Conn, err error) {
	werr := within(ns, func() error {
		d := net.Dialer{Timeout: 5 * time.Second}
		c, err = d.Dial(network, to)
		return nil
	})
	if werr != nil {
		return nil, werr
	}
	if c != nil {
		c.SetDeadline(time.Now().Add(10 * time.Second))
	}
	return c, err
}

// line sends something, and returns the first line that comes back.
func line(c net.Conn, send string) (string, error) {
	if _, err := io.WriteString(c, send); err != nil {
		return "", err
	}
	s, err := bufio.NewReader(c).ReadString('\n')
	return strings.TrimSpace(s), err
}

// try does what a program inside would do, and says what came of it: "ok WHERE", or how it failed.
func (b *box) try(what, to, name string) string {
	b.t.Helper()
	c, err := b.dial("tcp", to)
	if err != nil {
		return errnoOf(err)
	}
	defer c.Close()
	switch what {
	case "raw":
		got, err := line(c, "")
		if err != nil {
			return errnoOf(err)
		}
		return "ok " + got
	case "http":
		return get(c, "http://"+name+"/")
	case "tls":
		secure := tls.Client(c, &tls.Config{ServerName: name, InsecureSkipVerify: true})
		if err := secure.Handshake(); err != nil {
			return errnoOf(err)
		}
		return get(secure, "http://"+name+"/")
	}
	panic(what)
}

func get(c net.Conn, url string) string {
	req, err := http.NewRequest("GET", url, nil)
	if err != nil {
		return err.Error()
	}
	if err := req.Write(c); err != nil {
		return errnoOf(err)
	}
	res, err := http.ReadResponse(bufio.NewReader(c), req)
	if err != nil {
		return errnoOf(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return errnoOf(err)
	}
	return "ok " + string(body)
}

// resolve asks as a program inside would, whatever server it thinks of.
func (b *box) resolve(network, server, name string, kind dnsmessage.Type) (string, error) {
	c, err := b.dial(network, server)
	if err != nil {
		return "", err
	}
	defer c.Close()
	q := dnsmessage.Message{Header: dnsmessage.Header{ID: 7, RecursionDesired: true}, Questions: []dnsmessage.Question{{Name: dnsmessage.MustNewName(name + "."), Type: kind, Class: dnsmessage.ClassINET}}}
	raw, err := q.Pack()
	if err != nil {
		return "", err
	}
	if network == "tcp" {
		raw = append([]byte{byte(len(raw) >> 8), byte(len(raw))}, raw...)
	}
	if _, err := c.Write(raw); err != nil {
		return errnoOf(err), nil
	}
	buf := make([]byte, 4096)
	n, err := c.Read(buf)
	if err != nil {
		return errnoOf(err), nil
	}
	if network == "tcp" {
		buf, n = buf[2:], n-2
	}
	var a dnsmessage.Message
	if err := a.Unpack(buf[:n]); err != nil {
		return "", err
	}
	if a.ID != 7 || a.RCode != dnsmessage.RCodeSuccess {
		return a.RCode.String(), nil
	}
	var out []string
	for _, r := range a.Answers {
		switch body := r.Body.(type) {
		case *dnsmessage.AResource:
			out = append(out, netip.AddrFrom4(body.A).String())
		case *dnsmessage.AAAAResource:
			out = append(out, netip.AddrFrom16(body.AAAA).String())
		}
	}
	return strings.Join(out, " "), nil
}

func errnoOf(err error) string {
	var errno syscall.Errno
	for e := err; e != nil; {
		if n, ok := e.(syscall.Errno); ok {
			errno = n
			break
		}
		u, ok := e.(interface{ Unwrap() error })
		if !ok {
			break
		}
		e = u.Unwrap()
	}
	if errno != 0 {
		return unix.ErrnoName(errno)
	}
	return err.Error()
}

// flushRules and addRule do what nobody inside could.
func flushRules() error {
	c, err := nftables.New()
	if err != nil {
		return err
	}
	c.FlushRuleset()
	return c.Flush()
}

func addRule() error {
	c, err := nftables.New()
	if err != nil {
		return err
	}
	table := &nftables.Table{Name: tableName, Family: nftables.TableFamilyINet}
	c.InsertRule(&nftables.Rule{Table: table, Chain: &nftables.Chain{Name: "keep", Table: table}, Exprs: []expr.Any{accept}})
	return c.Flush()
}
