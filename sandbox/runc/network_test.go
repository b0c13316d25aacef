package runc

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/sandbox"
	"github.com/stockade-dev/stockade/sandbox/network"
)

// hostAddress is one of this host's that is not on the loopback; there may be none.
func hostAddress(t *testing.T) string {
	t.Helper()
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addrs {
		if p, ok := a.(*net.IPNet); ok && p.IP.To4() != nil && !p.IP.IsLoopback() {
			return p.IP.String()
		}
	}
	return ""
}

// fetcher is a command that connects and reads: bash, which every session of root "host" has if the host does.
func fetcher(t *testing.T) func(address string, port int) string {
	t.Helper()
	if _, err := exec.LookPath("bash"); err != nil {
		t.Fatal("needs bash, which can connect")
	}
	return func(address string, port int) string {
		return fmt.Sprintf(`bash -c 'exec 3<>/dev/tcp/%s/%d && cat <&3'`, address, port)
	}
}

// TestNetwork reaches what is granted and nothing else, and tells each execution what was refused to it; narrowed, it reaches
// no more (T031).
func TestNetwork(t *testing.T) {
	r := newRunner(t)
	connect := fetcher(t)
	host := hostAddress(t)
	if host == "" {
		const why = "needs an address of the host's beside the loopback's, to listen on"
		if os.Getenv("STOCKADE_NOSKIP") == "1" {
			t.Fatal(why)
		}
		t.Skip(why)
	}
	l, err := net.Listen("tcp", host+":0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	port := l.Addr().(*net.TCPAddr).Port
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			fmt.Fprint(c, "hello\n")
			c.Close()
		}
	}()
	before := residueOf(t, r)
	spec := hostSpec("net")
	r.options.Ceiling.Networks = []string{"none", "egress"}
	spec.Network = sandbox.Network{Mode: "egress", Allow: []sandbox.Destination{{CIDR: host + "/32", Ports: []uint16{uint16(port)}}}}
	e := open(t, r, spec)
	if silent, known := e.Reports["packets"]; !known || silent != "" || e.Reports["network"] != "relay" || !slices.ContainsFunc(e.Network, func(s string) bool { return strings.Contains(s, "redirect") }) {
		t.Errorf("evidence %v %q", e.Reports, e.Network)
	}
	o := shell(t, r, "net", connect(host, port)+"; "+connect(host, 1)+"; "+connect("192.0.2.1", 80)+"; cat /etc/resolv.conf")
	if !strings.HasPrefix(o.stdout, "hello\n") || !strings.Contains(o.stdout, "nameserver") {
		t.Errorf("%q %q", o.stdout, o.stderr)
	}
	if o.Network.Connections != 1 || o.Network.Refused != 2 || o.Network.Received != 6 {
		t.Errorf("traffic %+v", o.Network)
	}
	var refused []string
	for _, d := range o.Denials {
		refused = append(refused, d.Layer+" "+d.Object)
		if d.Rule == "" || d.Errno == "" || d.Count != 1 {
			t.Errorf("%+v", d)
		}
	}
	slices.Sort(refused)
	if want := []string{"network 192.0.2.1:80", "network " + host + ":1"}; !slices.Equal(refused, want) {
		t.Errorf("refused %q, want %q", refused, want)
	}
	if o := shell(t, r, "net", "true"); len(o.Denials) != 0 || o.Network != (sandbox.Traffic{}) {
		t.Errorf("of another: %+v", o)
	}
	if _, err := r.Narrow(context.Background(), "net", sandbox.Network{Mode: "full"}); err == nil {
		t.Error("widened")
	}
	if _, err := r.Narrow(context.Background(), "net", sandbox.Network{Mode: "none"}); err != nil {
		t.Fatal(err)
	}
	if o := shell(t, r, "net", connect(host, port)); strings.Contains(o.stdout, "hello") || len(o.Denials) != 1 {
		t.Errorf("narrowed: %+v", o)
	}
	closeSession(t, r, "net")
	before.mustLeaveNothing(t, r)
}

// A session without a network has an interface to itself, and no relay; a runner without a relay builds no
// other (R031).
func TestNoNetwork(t *testing.T) {
	r := newRunner(t)
	e := open(t, r, hostSpec("none"))
	if len(e.Network) == 0 || slices.ContainsFunc(e.Network, func(s string) bool { return strings.Contains(s, "redirect") }) {
		t.Errorf("%q", e.Network)
	}
	if told, known := e.Reports["network"]; !known || told != "" { // a refused connection is nobody's news
		t.Errorf("reports %v", e.Reports)
	}
	o := shell(t, r, "none", fetcher(t)("192.0.2.1", 80))
	if o.ExitCode == 0 || len(o.Denials) != 0 || !strings.Contains(o.stderr, "unreachable") {
		t.Errorf("%+v", o)
	}
	closeSession(t, r, "none")

	relay := r.relay
	r.relay = nil
	defer func() { r.relay = relay }()
	spec := hostSpec("net")
	r.options.Ceiling.Networks = []string{"full"}
	spec.Network.Mode = "full"
	if _, err := r.Open(context.Background(), spec); codeOf(err) != sandbox.CodeUnsupported {
		t.Errorf("got %v", err)
	}
}

// killRelay kills the relay of a session, which is what is in init's group beside init, and waits for its end.
func killRelay(s *session) error {
	procs := s.groups.Paths()[""] + "/init/cgroup.procs"
	for range 1000 {
		data, err := os.ReadFile(procs)
		if err != nil {
			return err
		}
		pids := strings.Fields(string(data))
		for _, pid := range pids {
			if n, _ := strconv.Atoi(pid); n != s.box.pid {
				_ = unix.Kill(n, unix.SIGKILL)
			}
		}
		if _, err := s.network.Evidence(); len(pids) == 1 && err != nil {
			return nil
		}
		time.Sleep(time.Millisecond)
	}
	return errors.New("the relay lives")
}

// When its relay dies, a session has no network any more, and whoever runs in it is told why.
func TestRelayDies(t *testing.T) {
	r := newRunner(t)
	r.options.Ceiling.Networks = []string{"full"}
	told := make(chan string, 1)
	r.options.Tell = func(format string, args ...any) {
		select {
		case told <- fmt.Sprintf(format, args...):
		default:
		}
	}
	defer func() { r.options.Tell = func(string, ...any) {} }()
	spec := hostSpec("net")
	spec.Network.Mode = "full"
	open(t, r, spec)
	defer closeSession(t, r, "net")
	x := start(t, r, sandbox.Exec{Session: "net", Argv: []string{"/bin/sh", "-c", "sleep 1; " + fetcher(t)("192.0.2.1", 80)}}, nil)
	s, err := r.session("net")
	if err != nil {
		t.Fatal(err)
	}
	if err := killRelay(s); err != nil {
		t.Fatal(err)
	}
	select {
	case text := <-told:
		if !strings.Contains(text, "relay has ended") {
			t.Errorf("told %q", text)
		}
	case <-time.After(5 * time.Second):
		t.Error("nobody was told")
	}
	if load, err := r.Load("net"); err != nil || !load.NetworkLost {
		t.Errorf("%+v %v", load, err)
	}
	// One that ran when it died, and one that came later.
	for _, o := range []outcome{x.wait(), shell(t, r, "net", fetcher(t)("192.0.2.1", 80))} {
		if len(o.Denials) != 1 || o.Denials[0].Rule != sandbox.RuleNetworkLost || sandbox.RuleNetworkLost != network.RuleEnded || o.ExitCode == 0 {
			t.Errorf("%+v", o)
		}
	}
}
