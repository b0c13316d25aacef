package rego_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/stockade-dev/stockade/policies"
	"github.com/stockade-dev/stockade/rego"
	"github.com/stockade-dev/stockade/sandbox"
	"github.com/stockade-dev/stockade/supervisor/api"
)

// FuzzLibrary (R080, R083 to R090, R092, R108) asks the shipped library whatever decodes, whether or not it is meant well. However
// it is asked: there is one answer, an allowance or at least one reason; the same question has the same answer; and what
// an open comes to is no wider than the request, what policy granted, or the ceiling.
func FuzzLibrary(f *testing.F) {
	text, err := os.ReadFile("testdata/cases.json")
	if err != nil {
		f.Fatal(err)
	}
	var cases []struct {
		Kind     api.Op            `json:"kind"`
		Request  jsontext.Value    `json:"request"`
		Resolved map[string]string `json:"resolved"`
	}
	if err := json.Unmarshal(text, &cases); err != nil {
		f.Fatal(err)
	}
	for _, c := range cases {
		f.Add(string(c.Kind), []byte(c.Request), uint32(1000), uint32(1000), "", int64(1_700_000_000_000_000_000))
		for _, to := range c.Resolved {
			f.Add(string(c.Kind), []byte(c.Request), uint32(0), uint32(0), to, int64(1))
		}
	}
	for _, a := range attacks {
		f.Add(string(a.op), []byte(a.body), a.uid, a.owner, a.resolved, int64(1_700_000_000_000_000_000))
	}
	e := load(f, policies.FS, rego.Options{})
	session := execInput(f, e).Session
	f.Fuzz(func(t *testing.T, op string, body []byte, uid, owner uint32, resolved string, now int64) {
		in, ref, ok := asked(api.Op(op), body, uid, owner, resolved, now)
		if !ok {
			return
		}
		if in.Request.Open == nil && in.Request.InSession() != "" || in.Request.Ref() != nil {
			in.Session = session
		}
		d := e.Decide(t.Context(), ref, in)
		again := e.Decide(t.Context(), ref, in)
		first, _ := api.Encode(map[string]any{"a": d.Allow, "d": d.Deny, "g": d.Grant, "l": d.Limits})
		second, _ := api.Encode(map[string]any{"a": again.Allow, "d": again.Deny, "g": again.Grant, "l": again.Limits})
		switch {
		case string(first) != string(second):
			t.Fatalf("two answers:\n%s\n%s", first, second)
		case d.Allow != (len(d.Deny) == 0):
			t.Fatalf("allowed %v, with reasons %v", d.Allow, d.Deny)
		case (d.Grant != nil) != (d.Allow && ref == rego.Open):
			t.Fatalf("%s: allowed %v, with the grant %+v", ref, d.Allow, d.Grant)
		}
		if !d.Allow {
			return
		}
		switch {
		case in.Request.Open != nil:
			if neverWidens(t, in.Request.Open, *d.Grant, in.Ceiling) {
				g, _, _ := rego.Meet(in.Request.Open, *d.Grant, in.Ceiling)
				shipped(t, in, g)
			}
		case in.Request.Exec != nil:
			limits, _ := rego.MeetExec(in.Request.Exec, *session.Grant, d.Limits)
			within(t, "timeout", limits.TimeoutNS, session.Grant.Exec.MaxTimeoutNS)
			within(t, "memory", limits.MemoryBytes, session.Grant.Ceilings.MemoryBytes)
			within(t, "output", limits.OutputBytes, session.Grant.Ceilings.OutputBytes)
			if in.Session.Principal.UID != uid {
				t.Fatalf("a command of uid %d in the session of %d", uid, in.Session.Principal.UID)
			}
		}
	})
}

// asked is the question that a body puts, when it decodes. Each host path leads to itself, or to resolved, which is owner's.
func asked(op api.Op, body []byte, uid, owner uint32, resolved string, now int64) (in rego.Input, ref string, ok bool) {
	ref, ok = rego.Entrypoint(op)
	if !ok {
		return in, "", false
	}
	req := &api.Request{Op: op.Canonical(), Principal: api.Principal{UID: uid, GID: uid}, Facade: "http"}
	scope, refused := req.SetParameters(body)
	if refused != nil {
		return in, "", false
	}
	req.Principal.Scope = scope
	*req = req.Redact([]byte("salt"))
	in = rego.Input{Request: req, Facts: rego.Facts{Sources: map[string]rego.Source{}}, Ceiling: sandbox.DefaultCeiling(), NowNS: now}
	for _, p := range rego.HostPaths(req) {
		found := &rego.Found{Resolved: p, Kind: "dir", Ino: 1, OwnerUID: owner, Mode: 0o755}
		if resolved != "" {
			found.Resolved = resolved
		}
		in.Facts.Sources[p] = rego.Source{Found: found}
	}
	return in, ref, true
}

// shipped fails when a session is more than any profile of the library gives, in sentences that do not know how it is written.
func shipped(t testing.TB, in rego.Input, g api.Grant) {
	t.Helper()
	for _, m := range g.Mounts {
		source := in.Facts.Sources[m.HostPath]
		if m.Mode != "ro" && source.OwnerUID != in.Request.Principal.UID {
			t.Fatalf("%s of uid %d is written by uid %d", source.Resolved, source.OwnerUID, in.Request.Principal.UID)
		}
		for _, secret := range []string{"/etc/", "/proc/", "/sys/", "/dev/", "/run/", "/.ssh/", "/.aws/", "/.config/gh/"} {
			if strings.Contains(source.Resolved+"/", secret) && (secret[1] == '.' || strings.HasPrefix(source.Resolved+"/", secret)) &&
				!slices.ContainsFunc([]string{"/etc/alternatives", "/etc/ssl/certs", "/etc/ca-certificates", "/etc/ld.so.c", "/etc/mime.types", "/etc/protocols", "/etc/services"}, func(p string) bool { return strings.HasPrefix(source.Resolved, p) }) {
				t.Fatalf("%s is mounted", source.Resolved)
			}
		}
	}
	if g.Network.Mode == "full" || len(g.Network.Allow) > 0 {
		t.Fatalf("the shipped lists are empty, and %+v is reached", g.Network)
	}
	if g.Identity.UID == 0 || g.Identity.GID == 0 || len(g.Identity.Capabilities) > 0 {
		t.Fatalf("an identity of %+v", g.Identity)
	}
	if g.TTLNS <= 0 || g.TTLNS > in.Ceiling.TTLNS || g.Ceilings.CPUWeight > 100 {
		t.Fatalf("a life of %d, a share of %d", g.TTLNS, g.Ceilings.CPUWeight)
	}
}

// An attack is a request that a caller writes to get more than the library means to give: as uid, about paths that lead to
// resolved, which is owner's.
type attack struct {
	name       string
	op         api.Op
	body       string
	uid, owner uint32
	resolved   string
}

var attacks = []attack{
	{"a profile with a path for a name", api.OpSessionOpen, `{"target":{"local":{}},"profile":"../workspace"}`, 1000, 1000, ""},
	{"a profile called like a member of its data", api.OpSessionOpen, `{"target":{"local":{}},"profile":"mounts"}`, 1000, 1000, ""},
	{"a profile that looks like one", api.OpSessionOpen, `{"target":{"local":{}},"profile":"workspacе"}`, 1000, 1000, ""},
	{"a climb in a guest path", api.OpSessionOpen, `{"target":{"local":{"mounts":[{"host_path":"/srv/a","guest_path":"/workspace/../etc","mode":"ro"}]}}}`, 1000, 1000, ""},
	{"doubled slashes in a guest path", api.OpSessionOpen, `{"target":{"local":{"mounts":[{"host_path":"/srv/a","guest_path":"/workspace//x","mode":"ro"}]}}}`, 1000, 1000, ""},
	{"two mounts at one place", api.OpSessionOpen, `{"target":{"local":{"mounts":[{"host_path":"/srv/a","guest_path":"/workspace","mode":"ro"},{"host_path":"/srv/b","guest_path":"/workspace","mode":"rw"}]}}}`, 1000, 1000, ""},
	{"a mode of both", api.OpSessionOpen, `{"target":{"local":{"mounts":[{"host_path":"/srv/a","guest_path":"/workspace","mode":"ro,rw"}]}}}`, 1000, 1000, ""},
	{"a mode in capitals", api.OpSessionOpen, `{"target":{"local":{"mounts":[{"host_path":"/srv/a","guest_path":"/workspace","mode":"RW"}]}}}`, 1000, 1000, ""},
	{"a negative room", api.OpSessionOpen, `{"target":{"local":{"mounts":[{"host_path":"/srv/a","guest_path":"/workspace","mode":"overlay","bytes":-1}]}}}`, 1000, 1000, ""},
	{"a room beyond every disk", api.OpSessionOpen, `{"target":{"local":{"mounts":[{"host_path":"/a","guest_path":"/workspace/a","mode":"overlay","bytes":9223372036854775807},{"host_path":"/b","guest_path":"/workspace/b","mode":"overlay","bytes":9223372036854775807},{"host_path":"/c","guest_path":"/workspace/c","mode":"overlay","bytes":9223372036854775807}]}}}`, 1000, 1000, ""},
	{"a path that leads to the kernel", api.OpSessionOpen, `{"target":{"local":{"mounts":[{"host_path":"/srv/a","guest_path":"/workspace","mode":"ro"}]}}}`, 0, 0, "/proc/1/root"},
	{"a path that leads nowhere absolute", api.OpSessionOpen, `{"target":{"local":{"mounts":[{"host_path":"/srv/a","guest_path":"/workspace","mode":"ro"}]}}}`, 1000, 1000, "home/alice/project"},
	{"a path that leads to nothing", api.OpSessionOpen, `{"target":{"local":{"mounts":[{"host_path":"/srv/a","guest_path":"/workspace","mode":"rw"}]}}}`, 0, 0, "/"},
	{"a deleted directory", api.OpSessionOpen, `{"target":{"local":{"mounts":[{"host_path":"/srv/a","guest_path":"/workspace","mode":"rw"}]}}}`, 1000, 1000, "/etc (deleted)/../etc"},
	{"somebody else's, by the highest uid", api.OpSessionOpen, `{"target":{"local":{"mounts":[{"host_path":"/srv/a","guest_path":"/workspace","mode":"rw"}]}}}`, 4294967295, 1000, ""},
	{"credentials in capitals", api.OpSessionOpen, `{"target":{"local":{"mounts":[{"host_path":"/srv/a","guest_path":"/workspace","mode":"ro"}]}}}`, 1000, 1000, "/mnt/usb/.SSH"},
	{"all that a user has configured", api.OpSessionOpen, `{"target":{"local":{"mounts":[{"host_path":"/srv/a","guest_path":"/workspace","mode":"ro"}]}}}`, 1000, 1000, "/home/alice/.config"},
	{"what the login shell runs", api.OpSessionOpen, `{"target":{"local":{"mounts":[{"host_path":"/srv/a","guest_path":"/workspace/rc","mode":"rw"}]}}}`, 1000, 1000, "/home/alice/.bashrc"},
	{"a scope that names a right", api.OpSessionOpen, `{"target":{"local":{"network_mode":"full"}},"scope":{"agent_id":"root"}}`, 1000, 1000, ""},
	{"labels that name a right", api.OpSessionOpen, `{"target":{"local":{"network_mode":"full"}},"labels":{"tenant":"admin","uid":"0","profile":"full","administrator":"true"}}`, 1000, 1000, ""},
	{"a network that only looks like one", api.OpSessionOpen, `{"target":{"local":{"network_mode":"Egress"}}}`, 1000, 1000, ""},
	{"everything as a prefix", api.OpSessionOpen, `{"target":{"local":{"network_mode":"egress","egress":[{"cidr":"0.0.0.0/0"}]}}}`, 1000, 1000, ""},
	{"no name at all", api.OpSessionOpen, `{"target":{"local":{"network_mode":"egress","egress":[{}]}}}`, 1000, 1000, ""},
	{"a name with a port in it", api.OpSessionOpen, `{"target":{"local":{"network_mode":"egress","egress":[{"name":"api.example.org:443"}]}}}`, 1000, 1000, ""},
	{"a loader in the environment", api.OpSessionOpen, `{"target":{"local":{"env":{"LD_PRELOAD":{"secret":"x"}}}}}`, 1000, 1000, ""},
	{"a name with an equals sign", api.OpSessionOpen, `{"target":{"local":{"env":{"A=LD_PRELOAD":"x"}}}}`, 1000, 1000, ""},
	{"a life of three centuries", api.OpSessionOpen, `{"target":{"local":{"network_mode":"full"}},"session_ttl_ns":9223372036854775807,"idle_timeout_ns":9223372036854775807}`, 1000, 1000, ""},
	{"negative limits", api.OpSessionOpen, `{"target":{"local":{"hostname":"h"}},"limits":{"memory_bytes":-1,"pids":-9223372036854775808},"profile":"locked"}`, 1000, 1000, ""},
	{"another target", api.OpSessionOpen, `{"target":{"remote":{}}}`, 1000, 1000, ""},
	{"a place of the kernel's to work in", api.OpSessionOpen, `{"target":{"local":{"workdir":"/proc/self"}}}`, 1000, 1000, ""},
	{"a place of the kernel's, by a climb", api.OpSessionOpen, `{"target":{"local":{"workdir":"/workspace/../proc/self"}}}`, 1000, 1000, ""},
	{"the host to a hermetic build", api.OpSessionOpen, `{"target":{"local":{"root":{"host":{}}}},"profile":"hermetic"}`, 1000, 1000, ""},
	{"two roots at once", api.OpSessionOpen, `{"target":{"local":{"root":{"dir":{"path":"/srv/root"},"host":{}}}},"profile":"hermetic"}`, 1000, 1000, ""},
	{"without walls", api.OpSessionOpen, `{"target":{"local":{}},"accept_degraded":["seccomp","landlock "]}`, 1000, 1000, ""},
	{"a host name of a fixed one", api.OpSessionOpen, `{"target":{"local":{"hostname":"other"}},"profile":"locked"}`, 1000, 1000, ""},
	{"in somebody else's session", api.OpExec, `{"session_id":"s1","argv":["id"]}`, 1001, 1000, ""},
	{"no command", api.OpExec, `{"session_id":"s1","argv":[]}`, 1000, 1000, ""},
	{"up from the directory", api.OpExec, `{"session_id":"s1","argv":["id"],"cwd":"a/../../etc"}`, 1000, 1000, ""},
	{"the loader, in a patch", api.OpExec, `{"session_id":"s1","argv":["id"],"env_patch":{"LD_AUDIT":"x"}}`, 1000, 1000, ""},
	{"an artifact from above", api.OpExec, `{"session_id":"s1","argv":["id"],"outputs":["/workspace/../etc/shadow"]}`, 1000, 1000, ""},
	{"a signal that is none", api.OpSessionSignal, `{"session_id":"s1","signal":"PWR"}`, 1000, 1000, ""},
	{"a signal to somebody else's", api.OpSessionSignal, `{"session_id":"s1","signal":"TERM"}`, 1001, 1000, ""},
	{"everybody out", api.OpDrain, `{}`, 1000, 1000, ""},
	{"everybody's log", api.OpLogLevel, `{"level":"debug"}`, 1000, 1000, ""},
	{"how it was set up", api.OpSettings, `{}`, 1000, 1000, ""},
	{"what everybody has", api.OpQuiescence, `{}`, 1000, 1000, ""},
}

// TestAttacks: each of these is denied. Whoever takes a rule away, or finds one that lets something through, adds a row.
func TestAttacks(t *testing.T) {
	e := load(t, policies.FS, rego.Options{})
	session := execInput(t, e).Session
	undecoded := 0
	for _, a := range attacks {
		in, ref, ok := asked(a.op, []byte(a.body), a.uid, a.owner, a.resolved, 1_700_000_000_000_000_000)
		if !ok {
			undecoded++
			continue
		}
		if a.op != api.OpSessionOpen && !strings.HasPrefix(string(a.op), "admin.") {
			in.Session = session
		}
		if in.Request.Validate() != nil {
			continue // policy is not asked; FuzzLibrary asks it all the same
		}
		d := e.Decide(t.Context(), ref, in)
		deny := d.Deny
		if d.Allow && d.Grant != nil {
			_, _, deny = rego.Meet(in.Request.Open, *d.Grant, in.Ceiling)
		}
		if d.Allow && len(deny) == 0 {
			t.Errorf("%s: allowed: %+v", a.name, d.Grant)
		}
	}
	if undecoded > len(attacks)/5 {
		t.Errorf("%d of %d do not even decode: the rows are no attacks", undecoded, len(attacks))
	}
}

// TestClaimsGrantNothing (R090): the same request with every claim that a caller can make gets no more than without.
func TestClaimsGrantNothing(t *testing.T) {
	e := load(t, policies.FS, rego.Options{})
	plain := openInput(2)
	before := e.Decide(t.Context(), rego.Open, plain)
	for _, claim := range []func(*api.SessionOpen, *api.Principal){
		func(o *api.SessionOpen, p *api.Principal) {
			o.Scope = api.Scope{AgentID: "0", WorldID: "admin", ChatID: "root"}
			p.Scope = o.Scope
		},
		func(o *api.SessionOpen, p *api.Principal) {
			o.Labels = map[string]string{"uid": "0", "tenant": "any", "profile": "interactive"}
		},
		func(_ *api.SessionOpen, p *api.Principal) { p.Groups = []uint32{0, 27, 999} },
	} {
		in := openInput(2)
		claim(in.Request.Open, &in.Request.Principal)
		after := e.Decide(t.Context(), rego.Open, in)
		was, _ := api.Encode(before.Grant)
		is, _ := api.Encode(after.Grant)
		if !before.Allow || !after.Allow || string(was) != string(is) {
			t.Errorf("%+v\nchanges\n%s\nto\n%s %v", in.Request.Open, was, is, after.Deny)
		}
	}
}
