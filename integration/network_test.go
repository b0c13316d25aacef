package integration

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"

	"github.com/stockade-dev/stockade/internal/testbox"
	"github.com/stockade-dev/stockade/supervisor/api"
)

// names are those of the tests' internet.
var names = map[string][]string{
	"alpha.test": {"11.0.0.1"}, "shared.test": {"11.0.0.1"}, // two names of one address
	"example.org": {"11.0.0.4"}, "example.com": {"11.0.0.5"}, // of the documents
	"beta.test": {"11.0.0.2"}, "deep.wild.test": {"11.0.0.3"},
	"metadata.test": {"169.254.169.254"}, "inner.test": {"10.1.2.3"}, "loop.test": {"127.0.0.1"},
}

// listedEgress is what the tests' policy lets a session reach.
const listedEgress = `{"name": "alpha.test", "ports": [80]}, {"name": "metadata.test", "ports": [80]}, {"name": "beta.test", "ports": [7], "protocol": "tcp"},
	{"cidr": "10.2.0.0/16", "ports": [7]}`

// startOutside is start in an internet of its own, with a policy that lists some of it.
func startOutside(t testing.TB, args ...string) (*testbox.Daemon, *testbox.Internet) {
	t.Helper()
	needRoot(t)
	outside, err := testbox.NewInternet(names)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(outside.Close)
	policy := filepath.Join(t.TempDir(), "policy")
	if err := initPolicy(bin, policy); err != nil {
		t.Fatal(err)
	}
	profile := filepath.Join(policy, "profiles/workspace/data.json")
	data, err := os.ReadFile(profile)
	if err != nil {
		t.Fatal(err)
	}
	const none = `"egress": []`
	if !strings.Contains(string(data), none) {
		t.Fatalf("%s lists destinations", profile)
	}
	data = []byte(strings.Replace(string(data), none, `"egress": [`+listedEgress+`]`, 1))
	if err := os.WriteFile(profile, data, 0o644); err != nil {
		t.Fatal(err)
	}
	return startWithin(t, bin, outside.Within, append([]string{"--policy", policy}, args...)...), outside
}

// way is one attempt of a session to reach something: what comes of it inside and, for the control, outside, and what
// the receipt says of it ("" is nothing): layer, rule and the least grant.
type way struct {
	id, attempt     string
	inside, outside answer
	denial          string
}

func page(host, at string) answer { return is(host + " at " + at) }

var ways = []way{
	// What is granted, by name, whatever address the program chooses.
	{"T031", "fetch 11.0.0.1:80 alpha.test", page("alpha.test", "11.0.0.1:80"), page("alpha.test", "11.0.0.1:80"), ""},
	{"T031", "echo beta.test:7", is("ok"), is("ok"), ""},
	{"T031", "echo 10.2.0.1:7", is("ok"), is("ok"), ""},
	{"T031", "resolve alpha.test", is("11.0.0.1"), is("11.0.0.1"), ""},

	// Another name of the same address, another port, another address.
	{"T031", "fetch 11.0.0.1:80 shared.test", is("ECONNRESET"), page("shared.test", "11.0.0.1:80"), "network; not granted; network:egress shared.test:80"},
	{"T031", "echo 11.0.0.1:7", is("ECONNRESET"), is("ok"), "network; not granted; network:egress alpha.test:7"},
	{"T031", "echo 10.3.0.1:7", is("ECONNRESET"), is("ok"), "network; denied range; "},
	{"T031", "resolve shared.test", is("no answer"), is("11.0.0.1"), "dns; not granted; network:egress shared.test"},

	// The host's loopback is another one; the machine that knows secrets, and the machines next door.
	{"T031", "echo 127.0.0.1:7", is("ECONNREFUSED"), is("ok"), ""},
	{"T031", "echo [::1]:7", is("ECONNREFUSED"), is("ok"), ""},
	{"T031", "fetch 169.254.169.254:80 alpha.test", is("ECONNRESET"), page("alpha.test", "169.254.169.254:80"), "network; denied range; "},
	{"T031", "fetch 169.254.169.254:80 metadata.test", is("ECONNRESET"), page("metadata.test", "169.254.169.254:80"), "network; denied range; "},
	{"T031", "resolve metadata.test", is("no answer", "no such name"), is("169.254.169.254"), "dns; denied range; "}, // refused for IPv4, empty for IPv6, and either answer may come first
	{"T031", "echo 192.168.1.1:7", is("ECONNRESET"), is("ok"), "network; denied range; "},
	{"T031", "echo 172.16.0.1:7", is("ECONNRESET"), is("ok"), "network; denied range; "},
	{"T031", "echo 100.64.0.1:7", is("ECONNRESET"), is("ok"), "network; denied range; "},
	{"T031", "echo [fd00::1]:7", is("ECONNRESET"), is("ok"), "network; denied range; "},
	{"T031", "echo [::ffff:169.254.169.254]:7", is("ECONNRESET"), is("ok"), "network; denied range; "},

	// Other protocols, other families.
	{"T032", "datagram 11.0.0.2:7", is("EPERM"), is("ok"), ""},
	{"T032", "datagram 169.254.169.254:7", is("EPERM"), is("ok"), ""},
	{"T032", "socket raw", is("EPERM"), is("ok"), ""}, // the capability is missing, which nobody tells
	{"T032", "socket packet", is("EAFNOSUPPORT"), is("ok"), "seccomp; socket family; "},
	{"T032", "interfaces", is("lo"), is("lo"), ""},
	{"T033", "connect-abstract $ABSTRACT", is("ECONNREFUSED", "EPERM"), is("ok"), ""},
}

// TestWaysOut: with a relay a session reaches what it was granted and nothing else, each refusal is in the receipt with its rule and
// with the least that would have allowed it; outside each of them is there to be reached (T031, T032, T033, R031). None of the host's rules and
// settings is another afterwards, neither where the daemon is nor where we are.
func TestWaysOut(t *testing.T) {
	needRoot(t)
	ours := networking(t)
	d, outside := startOutside(t)
	c := d.Client()
	var theirs, after map[string]string
	if err := outside.Within(func() error { theirs = networking(t); return nil }); err != nil {
		t.Fatal(err)
	}
	p := &places{probes: shared(t), out: map[string]string{"$ABSTRACT": fmt.Sprintf("stockade-out-%d", os.Getpid())}}
	build(t, filepath.Join(p.probes, "probe"), "./probe")
	p.in = strings.NewReplacer("$ABSTRACT", p.out["$ABSTRACT"])
	var abstract net.Listener
	if err := outside.Within(func() (err error) { abstract, err = net.Listen("unix", "@"+p.out["$ABSTRACT"]); return err }); err != nil {
		t.Fatal(err)
	}
	defer abstract.Close()
	open := opened(t, c, func(o *api.SessionOpen) {
		o.Target.Local.NetworkMode = "egress"
		o.Target.Local.Mounts = []api.Mount{{HostPath: p.probes, GuestPath: "/mnt/probe", Mode: "ro"}}
	})
	for _, w := range ways {
		t.Run(w.id+" "+w.attempt, func(t *testing.T) {
			r, err := c.Exec(t.Context(), api.Exec{SessionID: open.SessionID, Argv: p.inside(w.attempt)})
			if got := printed(settled(t, r, err)); !w.inside.ok(got) {
				t.Errorf("inside: %q, want %s", got, w.inside.text)
			}
			var told []string
			for _, d := range r.Payload.Exec.Denials {
				told = append(told, fmt.Sprintf("%s; %s; %s", d.Layer, d.Rule, d.Grant))
				if d.Errno == "" && d.Layer != "dns" || d.Count < 1 || d.Object+d.Syscall == "" {
					t.Errorf("%+v", d)
				}
			}
			if want := w.denial; (want == "") != (len(told) == 0) || want != "" && !slices.Contains(told, want) {
				t.Errorf("the receipt tells %q, want %q", told, want)
			}
		})
	}
	r, err := c.Close(t.Context(), api.SessionClose{SessionID: open.SessionID, Mode: "force"})
	settled(t, r, err)
	if err := outside.Within(func() error { after = networking(t); return nil }); err != nil {
		t.Fatal(err)
	}
	for _, now := range []struct{ before, after map[string]string }{{ours, networking(t)}, {theirs, after}} {
		for name, was := range now.before {
			if is, there := now.after[name]; !there || is != was {
				t.Errorf("%s of the host was %q, and is %q", name, was, is)
			}
		}
		for name, is := range now.after {
			// The first who notes connections has the kernel load what does it, and that shows its settings everywhere.
			if _, there := now.before[name]; !there && !strings.HasPrefix(name, "/proc/sys/net/netfilter/") && name != "/proc/sys/net/nf_conntrack_max" {
				t.Errorf("the host has got %s, %q", name, is)
			}
		}
	}
	// Nothing but what was granted has arrived anywhere.
	granted := []string{"dns alpha.test", "dns metadata.test", "dns beta.test", "tcp 11.0.0.1:80", "tcp 11.0.0.2:7", "tcp 10.2.0.1:7"}
	for _, met := range outside.Met() {
		if !slices.Contains(granted, met) {
			t.Errorf("it reached %s", met)
		}
	}
	defer func() {
		if !slices.Contains(outside.Met(), "udp") {
			t.Error("control: no datagram has arrived")
		}
	}()
	const forward = "/proc/sys/net/ipv4/ip_forward"
	err = outside.Within(func() error {
		conn, err := nftables.New()
		if err != nil {
			return err
		}
		table := conn.AddTable(&nftables.Table{Family: nftables.TableFamilyINet, Name: "control"})
		chain := conn.AddChain(&nftables.Chain{Table: table, Name: "control"})
		conn.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: []expr.Any{&expr.Counter{}}})
		other := "1"
		if after[forward] == "1\n" {
			other = "0"
		}
		return errors.Join(conn.Flush(), os.WriteFile(forward, []byte(other), 0))
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := outside.Within(func() error { theirs = networking(t); return nil }); err != nil {
		t.Fatal(err)
	}
	if theirs[forward] == after[forward] || len(theirs) != len(after)+2 { // the table and the chain, which has a rule
		t.Errorf("control: of a change of the host's is seen: %q, and %d lines more", theirs[forward], len(theirs)-len(after))
	}
	for _, w := range ways {
		t.Run("control "+w.attempt, func(t *testing.T) {
			var got string
			if err := outside.Within(func() error { got = p.outside(t, w.attempt, plain); return nil }); err != nil {
				t.Fatal(err)
			}
			if !w.outside.ok(got) {
				t.Errorf("%q, want %s: the row proves nothing here", got, w.outside.text)
			}
		})
	}
}

// networking is what has been set in the network namespace of the caller's thread: every rule of nftables, and every file below /proc/sys/net
// but those that count.
func networking(t *testing.T) map[string]string {
	all := map[string]string{}
	err := filepath.WalkDir("/proc/sys/net", func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		switch content, err := os.ReadFile(path); {
		case path == "/proc/sys/net/netfilter/nf_conntrack_count": // the connections that are noted now
		case err != nil:
			all[path] = err.Error() // some are only written to
		default:
			all[path] = string(content)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	conn, err := nftables.New()
	if err != nil {
		t.Error(err)
		return all
	}
	chains, err := conn.ListChains()
	if err != nil {
		t.Error(err)
	}
	tables, err := conn.ListTables()
	if err != nil {
		t.Error(err)
	}
	for _, table := range tables {
		all[fmt.Sprintf("table %v %s", table.Family, table.Name)] = fmt.Sprint(table.Flags)
	}
	for _, chain := range chains {
		rules, err := conn.GetRules(chain.Table, chain)
		if err != nil {
			t.Error(err)
		}
		name := fmt.Sprintf("chain %v %s %s", chain.Table.Family, chain.Table.Name, chain.Name)
		for _, r := range rules {
			all[name] += fmt.Sprintf("rule %d of %d expressions; ", r.Handle, len(r.Exprs))
		}
	}
	return all
}

// TestNarrowUnderLoad: a connection that is in use is cut when its destination is taken away, while another goes on; and the
// session cannot bring it back (R031).
func TestNarrowUnderLoad(t *testing.T) {
	d, _ := startOutside(t)
	c := d.Client()
	probes := shared(t)
	build(t, filepath.Join(probes, "probe"), "./probe")
	id := opened(t, c, func(o *api.SessionOpen) {
		o.Target.Local.NetworkMode = "egress"
		o.Target.Local.Mounts = []api.Mount{{HostPath: probes, GuestPath: "/mnt/probe", Mode: "ro"}}
	}).SessionID
	stays := begun(t, c, api.Exec{SessionID: id}, "exec /mnt/probe/probe hold 10.2.0.1:7")
	goes := begun(t, c, api.Exec{SessionID: id}, "exec /mnt/probe/probe hold beta.test:7")
	wrote(t, c, stays)
	wrote(t, c, goes)
	r, err := c.Narrow(t.Context(), api.SessionNarrow{SessionID: id, Network: api.GrantNetwork{Mode: "egress", Allow: []api.Destination{{CIDR: "10.2.0.0/16", Ports: []uint16{7}}}}})
	settled(t, r, err)
	begin := time.Now()
	cut := ended(t, c, goes).Payload.Exec
	if got := text(cut.Stdout); !strings.HasSuffix(got, "ECONNRESET\n") && !strings.HasSuffix(got, "EPIPE\n") {
		t.Errorf("what was cut wrote %q", got)
	}
	if !slices.ContainsFunc(cut.Denials, func(d api.Denial) bool { return d.Rule == "narrowed" }) {
		t.Errorf("what was cut is told as %+v", cut.Denials)
	}
	if took := time.Since(begin); took > 5*time.Second {
		t.Errorf("it was cut after %v", took)
	}
	if p, err := c.Process(t.Context(), stays); err != nil || p.State != api.StateRunning {
		t.Errorf("what was not narrowed is %+v, %v", p, err)
	}
	r, err = c.Narrow(t.Context(), api.SessionNarrow{SessionID: id, Network: api.GrantNetwork{Mode: "none"}})
	settled(t, r, err)
	if x := ended(t, c, stays).Payload.Exec; !slices.ContainsFunc(x.Denials, func(d api.Denial) bool { return d.Rule == "narrowed" }) {
		t.Errorf("narrowed to nothing: %+v", x)
	}
	r, err = c.Narrow(t.Context(), api.SessionNarrow{SessionID: id, Network: api.GrantNetwork{Mode: "egress", Allow: []api.Destination{{CIDR: "10.2.0.0/16"}}}})
	if err != nil || r.Outcome == api.OutcomeOK {
		t.Errorf("widened: %+v, %v", r, err)
	}
}
