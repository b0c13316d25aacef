package supervisor

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"github.com/stockade-dev/stockade/rego"
	"github.com/stockade-dev/stockade/sandbox"
	"github.com/stockade-dev/stockade/supervisor/api"
)

var update = flag.Bool("update", false, "write the golden files")

func found(resolved, kind string, ino uint64) rego.Source {
	return rego.Source{Found: &rego.Found{Resolved: resolved, Kind: kind, Dev: 8, Ino: ino, OwnerUID: 1000, Mode: 0o755}}
}

// What each grant becomes: the file to read when plan changes.
func TestPlan(t *testing.T) {
	grant := func(change func(*api.Grant)) *api.Grant {
		g := &api.Grant{
			Root: "host", Seccomp: "default", Workdir: "/", Hostname: "box", Network: api.GrantNetwork{Mode: "none"},
			Identity: api.Identity{UID: 1000, GID: 1000},
			Ceilings: api.Ceilings{MemoryBytes: 64 << 20, CPUMillis: 500, PIDs: 16, Files: 128, OutputBytes: 1 << 20, Executions: 4},
		}
		change(g)
		return g
	}
	for _, tt := range []struct {
		name  string
		root  api.Root
		grant *api.Grant
		facts map[string]rego.Source
		host  []sandbox.Layer
	}{
		{name: "host", grant: grant(func(*api.Grant) {})},
		{
			name: "workspace",
			grant: grant(func(g *api.Grant) {
				g.Mounts = []api.GrantMount{
					{HostPath: "/home/a/src", GuestPath: "/work", Mode: "rw", Class: "workspace"},
					{HostPath: "/opt/tool", GuestPath: "/opt/tool", Mode: "ro"},
				}
				g.Scratch = []api.GrantScratch{{GuestPath: "/tmp", Bytes: 1 << 20, Inodes: 100}}
				g.Workdir = "/work"
				g.Identity = api.Identity{UID: 7, GID: 8, Groups: []uint32{9}, Capabilities: []string{"CAP_NET_BIND_SERVICE"}}
			}),
			facts: map[string]rego.Source{"/home/a/src": found("/data/src", "dir", 1), "/opt/tool": found("/opt/tool", "file", 2)},
		},
		{
			name:  "dir",
			root:  api.Root{Dir: &api.RootDir{Path: "/images/debian"}},
			grant: grant(func(g *api.Grant) { g.Root, g.Seccomp = "dir", "strict" }),
			facts: map[string]rego.Source{"/images/debian": found("/images/debian-12", "dir", 3)},
		},
		{
			name: "hermetic",
			root: api.Root{Paths: &api.RootPaths{Paths: []string{"/usr/lib/go", "/bin/sh"}}},
			grant: grant(func(g *api.Grant) {
				g.Root = "paths"
				g.Mounts = []api.GrantMount{{HostPath: "/src", GuestPath: "/src", Mode: "ro", Class: "input"}}
			}),
			facts: map[string]rego.Source{"/usr/lib/go": found("/usr/lib/go", "dir", 4), "/bin/sh": found("/usr/bin/dash", "file", 5), "/src": found("/src", "dir", 6)},
		},
		{
			name: "isolated", // R086: every ceiling; overlays, protected paths, a network, and a layer that this host has
			grant: grant(func(g *api.Grant) {
				g.Mounts = []api.GrantMount{
					{HostPath: "/src", GuestPath: "/work", Mode: "overlay", Protect: []string{".git/hooks", ".vscode"}, Bytes: 1 << 20, Inodes: 100},
					{HostPath: "/data", GuestPath: "/data", Mode: "rw", Protect: []string{".envrc"}},
					{HostPath: "/ref", GuestPath: "/ref", Mode: "Overlay"}, // no mode: nothing is written to it
				}
				g.Network = api.GrantNetwork{Mode: "egress", Allow: []api.Destination{
					{Name: "*.example.org", Ports: []uint16{443}}, {Name: "db.example.org", Protocol: "tcp"}, {CIDR: "192.0.2.0/24"},
				}}
				g.Ceilings.CPUWeight, g.Ceilings.CPUTimeNS, g.Ceilings.IOBytesPerSecond = 50, 1e9, 1<<20
				g.Degraded = []string{sandbox.LayerLandlock, sandbox.LayerTimeNS}
				g.Verify = "canary"
			}),
			facts: map[string]rego.Source{"/src": found("/src", "dir", 6), "/data": found("/data", "dir", 7), "/ref": found("/ref", "dir", 8)},
			host:  []sandbox.Layer{{Name: sandbox.LayerLandlock, State: "missing", Required: true}, {Name: sandbox.LayerTimeNS, State: "present"}},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			req := &api.Request{
				Op: api.OpSessionOpen, Principal: api.Principal{UID: 1000, GID: 100, Groups: []uint32{27}},
				Open: &api.SessionOpen{Target: api.Target{Local: &api.Local{Root: tt.root}}},
			}
			host := newFake().host
			host.Layers = append(host.Layers, tt.host...)
			spec, err := plan(req, tt.grant, rego.Facts{Sources: tt.facts}, host)
			if err != nil {
				t.Fatal(err)
			}
			spec.Session = "s-1"
			if err := spec.Validate(); err != nil {
				t.Errorf("the runner would refuse it: %v", err)
			}
			golden(t, tt.name, spec)
		})
	}
}

func golden(t *testing.T, name string, v any) {
	t.Helper()
	durations := json.MarshalToFunc(func(enc *jsontext.Encoder, d time.Duration) error { return enc.WriteToken(jsontext.String(d.String())) })
	got, err := json.Marshal(v, json.Deterministic(true), json.WithMarshalers(durations), jsontext.WithIndent("  "))
	if err != nil {
		t.Fatal(err)
	}
	got = append(got, '\n')
	file := filepath.Join("testdata", "plan", name+".json")
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (-update writes it anew): %s", file, diff)
	}
}

// What cannot be planned is refused with a code.
func TestPlanRefuses(t *testing.T) {
	missing := newFake().host
	missing.Layers = []sandbox.Layer{{Name: "seccomp", State: "missing", Required: true}}
	mount := &api.Grant{Root: "host", Mounts: []api.GrantMount{{HostPath: "/x", GuestPath: "/x", Mode: "ro"}}}
	without := func(layer string) sandbox.Host {
		host := newFake().host
		host.Layers = []sandbox.Layer{{Name: layer, State: "missing"}}
		return host
	}
	overlay := &api.Grant{Root: "host", Network: api.GrantNetwork{Mode: "none"}, Mounts: []api.GrantMount{{HostPath: "/x", GuestPath: "/x", Mode: "overlay"}}}
	network := &api.Grant{Root: "host", Network: api.GrantNetwork{Mode: "egress"}}
	rate := &api.Grant{Root: "host", Network: api.GrantNetwork{Mode: "none"}, Ceilings: api.Ceilings{IOBytesPerSecond: 1}}
	for _, tt := range []struct {
		name  string
		code  api.Code
		grant *api.Grant
		facts rego.Facts
		host  sandbox.Host
	}{
		{"an overlay without overlayfs", api.CodeUnsupportedByHost, overlay, rego.Facts{}, without(sandbox.LayerOverlay)},
		{"a network without its rules", api.CodeUnsupportedByHost, network, rego.Facts{}, without(sandbox.LayerNetwork)},
		{"a rate that nothing holds", api.CodeUnsupportedByHost, rate, rego.Facts{}, without(sandbox.LayerIO)},
		{"a host without a required layer", api.CodeUnsupportedByHost, &api.Grant{Root: "host"}, rego.Facts{}, missing},
		{"a source that cannot be reached", api.CodeMountSource, mount, rego.Facts{Sources: map[string]rego.Source{"/x": {Error: "mount_source"}}}, newFake().host},
		{"a source that was not looked at", "", mount, rego.Facts{}, newFake().host},
		{"an arm that was not asked for", api.CodeInvalidRoot, &api.Grant{Root: "dir"}, rego.Facts{}, newFake().host},
		{"no such arm", api.CodeInvalidRoot, &api.Grant{Root: "moon"}, rego.Facts{}, newFake().host},
	} {
		req := &api.Request{Op: api.OpSessionOpen, Open: &api.SessionOpen{Target: api.Target{Local: &api.Local{}}}}
		_, err := plan(req, tt.grant, tt.facts, tt.host)
		e, ok := errors.AsType[*api.Error](err)
		if err == nil || ok != (tt.code != "") || ok && e.Code != tt.code {
			t.Errorf("%s: %v", tt.name, err)
		}
		if tt.code == api.CodeUnsupportedByHost && !strings.Contains(err.Error(), tt.host.Layers[0].Name) {
			t.Errorf("%s: %v does not name the layer", tt.name, err)
		}
	}
}

// R053 R054 R099 C17 C18: a ceiling of one execution that is below its session's becomes one of its own, one that is not
// is the session's, and what was cut is said with whose bound it was.
func TestPlanExecLimits(t *testing.T) {
	session := api.Ceilings{MemoryBytes: 100 << 20, CPUMillis: 1000, PIDs: 10, Files: 100, OutputBytes: 1000, Executions: 1}
	for _, tt := range []struct {
		name    string
		ask     api.Limits
		policy  rego.ExecLimits
		want    sandbox.ExecLimits
		clamped []api.Clamp
	}{
		{name: "nothing asked"},
		{name: "the session's own", ask: api.Limits{MemoryBytes: 100 << 20, CPUMillis: 1000, PIDs: 10, Files: 100}},
		{
			name: "tighter",
			ask:  api.Limits{MemoryBytes: 10 << 20, CPUMillis: 500, PIDs: 5, Files: 50, CPUTimeNS: 1e9},
			want: sandbox.ExecLimits{MemoryBytes: 10 << 20, CPUMillis: 500, PIDs: 5, Files: 50, CPUTime: time.Second},
		},
		{
			name: "looser is never granted",
			ask:  api.Limits{MemoryBytes: 200 << 20, PIDs: 11},
			clamped: []api.Clamp{
				{Field: "limits.memory_bytes", Requested: 200 << 20, Effective: 100 << 20, Source: "policy"},
				{Field: "limits.pids", Requested: 11, Effective: 10, Source: "policy"},
			},
		},
		{
			name:   "policy tightens what nobody asked for",
			policy: rego.ExecLimits{MemoryBytes: 50 << 20, CPUTimeNS: 5e9},
			want:   sandbox.ExecLimits{MemoryBytes: 50 << 20, CPUTime: 5 * time.Second},
		},
		{
			name:    "policy's is less than what is asked for",
			ask:     api.Limits{MemoryBytes: 80 << 20},
			policy:  rego.ExecLimits{MemoryBytes: 50 << 20},
			want:    sandbox.ExecLimits{MemoryBytes: 50 << 20},
			clamped: []api.Clamp{{Field: "limits.memory_bytes", Requested: 80 << 20, Effective: 50 << 20, Source: "policy"}},
		},
	} {
		x := &api.Exec{Argv: []string{"true"}, Limits: tt.ask}
		g := &api.Grant{Ceilings: session, Workdir: "/"}
		p, deny, err := planExec(x, g, nil, rego.Decision{Allow: true, Limits: tt.policy}, Defaults{}, 0, newFake().host)
		if err != nil || len(deny) > 0 {
			t.Errorf("%s: %v %v", tt.name, deny, err)
			continue
		}
		if diff := cmp.Diff(tt.want, p.exec.Limits); diff != "" {
			t.Errorf("%s: %s", tt.name, diff)
		}
		if diff := cmp.Diff(tt.clamped, p.clamped); diff != "" {
			t.Errorf("%s: %s", tt.name, diff)
		}
	}
}

// A group of an execution's own is refused by name where there is none, and only who needs one is refused.
func TestPlanExecNeedsGroups(t *testing.T) {
	host := newFake().host
	host.Layers = []sandbox.Layer{{Name: sandbox.LayerExecLimits, State: "missing"}}
	for _, tt := range []struct {
		ask     api.Limits
		refused bool
	}{
		{api.Limits{MemoryBytes: 1 << 20}, true}, {api.Limits{CPUMillis: 10}, true}, {api.Limits{PIDs: 1}, true},
		{api.Limits{Files: 16}, false}, {api.Limits{CPUTimeNS: 1}, false}, {api.Limits{MemoryBytes: 1 << 40}, false}, {api.Limits{}, false},
	} {
		x := &api.Exec{Argv: []string{"true"}, Limits: tt.ask}
		g := &api.Grant{Ceilings: api.Ceilings{MemoryBytes: 100 << 20, CPUMillis: 1000, PIDs: 10, Files: 100}, Workdir: "/"}
		_, _, err := planExec(x, g, nil, rego.Decision{Allow: true}, Defaults{}, 0, host)
		e, _ := errors.AsType[*api.Error](err)
		if refused := e != nil && e.Code == api.CodeUnsupportedByHost && strings.Contains(e.Message, sandbox.LayerExecLimits); refused != tt.refused {
			t.Errorf("%+v: %v", tt.ask, err)
		}
	}
}
