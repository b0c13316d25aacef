package supervisor

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"testing"

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
	} {
		t.Run(tt.name, func(t *testing.T) {
			req := &api.Request{
				Op: api.OpSessionOpen, Principal: api.Principal{UID: 1000, GID: 100, Groups: []uint32{27}},
				Open: &api.SessionOpen{Target: api.Target{Local: &api.Local{Root: tt.root}}},
			}
			spec, err := plan(req, tt.grant, rego.Facts{Sources: tt.facts}, newFake().host)
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
	got, err := json.Marshal(v, json.Deterministic(true), jsontext.WithIndent("  "))
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
	for _, tt := range []struct {
		name  string
		code  api.Code
		grant *api.Grant
		facts rego.Facts
		host  sandbox.Host
	}{
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
	}
}
