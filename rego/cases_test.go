package rego_test

import (
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"pgregory.net/rapid"

	"github.com/stockade-dev/stockade/policies"
	"github.com/stockade-dev/stockade/rego"
	"github.com/stockade-dev/stockade/sandbox"
	"github.com/stockade-dev/stockade/supervisor/api"
)

// TestCases (T113, CVE-2025-53110; T178): requests as they come over the socket, and what the library says of them. Each that
// is refused has a twin that only looks like it and is allowed, or the other way round.
func TestCases(t *testing.T) {
	text, err := os.ReadFile("testdata/cases.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		Description string            `json:"description"`
		Allowed     bool              `json:"allowed"`
		Kind        api.Op            `json:"kind"`
		Request     jsontext.Value    `json:"request"`
		UID         *uint32           `json:"uid"`      // absent is the session's owner, 1000
		Resolved    map[string]string `json:"resolved"` // of host paths that are links
		Owners      map[string]uint32 `json:"owners"`   // of host paths that are not the caller's
	}
	if err := json.Unmarshal(text, &cases, json.RejectUnknownMembers(true)); err != nil {
		t.Fatal(err)
	}
	e := load(t, policies.FS, rego.Options{})
	session := execInput(t, e).Session
	verdicts := map[api.Op][2]int{}
	for _, c := range cases {
		req := &api.Request{Op: c.Kind, Principal: api.Principal{UID: 1000, GID: 1000}, Facade: "http"}
		if c.UID != nil {
			req.Principal.UID = *c.UID
		}
		if _, err := req.SetParameters(c.Request); err != nil {
			t.Fatalf("%s: %v", c.Description, err)
		}
		if err := req.Validate(); err != nil {
			t.Fatalf("%s: %v", c.Description, err)
		}
		in := rego.Input{Request: req, Facts: rego.Facts{Sources: map[string]rego.Source{}}, Ceiling: sandbox.DefaultCeiling(), NowNS: 1_700_000_000_000_000_000}
		for _, p := range rego.HostPaths(req) {
			found := &rego.Found{Resolved: p, Kind: "dir", Ino: 1, OwnerUID: 1000, Mode: 0o755}
			if to, ok := c.Resolved[p]; ok {
				found.Resolved = to
			}
			if uid, ok := c.Owners[p]; ok {
				found.OwnerUID = uid
			}
			in.Facts.Sources[p] = rego.Source{Found: found}
		}
		if req.InSession() != "" {
			in.Session = session
		}
		ref, ok := rego.Entrypoint(c.Kind)
		if !ok {
			t.Fatalf("%s: %s has no entry point", c.Description, c.Kind)
		}
		d := e.Decide(t.Context(), ref, in)
		allowed, deny := d.Allow, d.Deny
		if d.Allow && d.Grant != nil {
			_, _, deny = rego.Meet(req.Open, *d.Grant, in.Ceiling)
			allowed = len(deny) == 0
		}
		if allowed != c.Allowed {
			t.Errorf("%s: %v %v", c.Description, allowed, deny)
		}
		n := verdicts[c.Kind]
		if c.Allowed {
			n[0]++
		} else {
			n[1]++
		}
		verdicts[c.Kind] = n
	}
	for op, n := range verdicts {
		if n[0] == 0 || n[1] == 0 {
			t.Errorf("%s has %d allowed and %d refused: a twin is missing", op, n[0], n[1])
		}
	}
}

// aWish is a request of anybody's for anything that could be built, well formed or only nearly so, with facts about
// it. What is right comes more often than what is wrong, or nothing would be right in all.
func aWish() *rapid.Generator[rego.Input] {
	return rapid.Custom(func(t *rapid.T) rego.Input {
		sample := func(what string, values ...string) string { return rapid.SampledFrom(values).Draw(t, what) }
		in := openInput(0)
		in.Request.Principal.UID = rapid.SampledFrom([]uint32{1000, 1000, 0}).Draw(t, "uid")
		open, local := in.Request.Open, in.Request.Open.Target.Local
		open.Profile = sample("profile", "", "", "", "workspace", "workspace", "workspace", "hermetic", "none")
		open.Verify = sample("verify", "", "canary")
		open.Degraded = rapid.SampledFrom([][]string{nil, nil, nil, layers, {"landlock"}, {"seccomp filter"}}).Draw(t, "degraded")
		local.NetworkMode = sample("network", "", "none", "none", "egress", "egress", "egress", "full", "host")
		if local.NetworkMode == "egress" || local.NetworkMode == "full" {
			local.Egress = rapid.SampledFrom([][]api.Destination{nil, nil, {places[0]}, {places[1], places[5]}, {places[4]}, {places[2]}, {places[6]}, places}).Draw(t, "egress")
		}
		open.Limits.DiskBytes = rapid.SampledFrom([]int64{0, 0, 0, 0, 0, 0, 1 << 20, 1 << 40}).Draw(t, "disk")
		open.Limits.CPUWeight = rapid.SampledFrom([]int64{0, 50, 10_000}).Draw(t, "weight")
		if open.Profile == "hermetic" || rapid.IntRange(0, 3).Draw(t, "dir") == 0 {
			local.Root.Dir = &api.RootDir{Path: "/srv/root"}
			in.Facts.Sources["/srv/root"] = rego.Source{Found: &rego.Found{Resolved: sample("root", "/srv/root", "/srv/root", "/etc", "/"), Kind: "dir", Ino: 1, Mode: 0o755}}
		}
		for i := range rapid.IntRange(0, 2).Draw(t, "mounts") {
			m := api.Mount{
				HostPath:  fmt.Sprintf("/host/%d", i),
				GuestPath: sample("guest", "/workspace", "/workspace/v", "/workspace/w", "/workspace/x", "/workspace/y", "/workspace/z", "/tmp/x", "/workspacex"),
				Mode:      sample("mode", "ro", "rw", "rw", "rw", "overlay", "overlay", "rwx"),
			}
			if m.Mode == "overlay" {
				m.Bytes = rapid.SampledFrom([]int64{0, 1 << 20, 1 << 40}).Draw(t, "bytes")
			}
			local.Mounts = append(local.Mounts, m)
			in.Facts.Sources[m.HostPath] = rego.Source{Found: &rego.Found{
				Resolved: sample("resolved", "/home/alice/p", "/home/alice/q", "/srv/w", "/srv/x", "/srv/y", "/srv/z", "/home/alice/p/.git", "/home/alice/p/.vscode/x", "/home/alice/.ssh", "/home/alice", "/usr/lib", "/etc", "/"),
				Kind:     sample("kind", "dir", "dir", "file"), Ino: 1, Mode: 0o755,
				OwnerUID: rapid.SampledFrom([]uint32{in.Request.Principal.UID, in.Request.Principal.UID, in.Request.Principal.UID, 33}).Draw(t, "owner"),
			}}
		}
		return in
	})
}

// library is the shipped one with a profile workspace that has a network, so that there is something to allow; with
// something else in its data, and one more file.
func library(t testing.TB, old, new string, more map[string]string) *rego.Engine {
	const profile = "profiles/workspace/data.json"
	files := fstest.MapFS{}
	err := fs.WalkDir(policies.FS, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := fs.ReadFile(policies.FS, name)
		files[name] = &fstest.MapFile{Data: text}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, edit := range [][2]string{{`"egress": []`, `"egress": [{"name": "*.a.org"}, {"cidr": "8.8.0.0/16"}]`}, {old, new}} {
		text := string(files[profile].Data)
		if edit[0] != "" && strings.Count(text, edit[0]) != 1 {
			t.Fatalf("%s is in %s %d times", edit[0], profile, strings.Count(text, edit[0]))
		}
		files[profile].Data = []byte(strings.Replace(text, edit[0], edit[1], 1))
	}
	for name, text := range more {
		files[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return load(t, files, rego.Options{})
}

// TestNothingIsWronglyAllowed (R083, R084, R096, T179) looks for the request that the library allows and should not: whatever
// is asked, what comes out holds to a few sentences that do not know how the library is written.
func TestNothingIsWronglyAllowed(t *testing.T) {
	e := library(t, "", "", nil)
	allowed := 0
	rapid.Check(t, func(t *rapid.T) {
		for _, in := range rapid.SliceOfN(aWish(), 10, 10).Draw(t, "wishes") {
			d := e.Decide(t.Context(), rego.Open, in)
			if !d.Allow {
				continue
			}
			g, _, deny := rego.Meet(in.Request.Open, *d.Grant, in.Ceiling)
			if len(deny) == 0 {
				allowed++
				wrongly(t, in, g)
			}
		}
	})
	if allowed < 100 {
		t.Errorf("%d were allowed: the wishes are no test", allowed)
	}
}

// wrongly fails when a grant is more than the profile of [library] may give.
func wrongly(t *rapid.T, in rego.Input, g api.Grant) {
	listed := []sandbox.Destination{{Name: "*.a.org"}, {CIDR: "8.8.0.0/16"}}
	for _, m := range g.Mounts {
		source := in.Facts.Sources[m.HostPath]
		written := m.Mode != "ro"
		switch {
		case slices.Contains([]string{"/", "/etc", "/home/alice", "/home/alice/.ssh"}, source.Resolved):
			t.Fatalf("%s is mounted", source.Resolved)
		case written && source.OwnerUID != in.Request.Principal.UID:
			t.Fatalf("%s of uid %d is written", source.Resolved, source.OwnerUID)
		case written && (strings.Contains(source.Resolved, "/.git") || strings.Contains(source.Resolved, "/.vscode") || source.Resolved == "/usr/lib"):
			t.Fatalf("%s is written", source.Resolved)
		case written && !slices.Contains(m.Protect, ".git/hooks"):
			t.Fatalf("%+v protects nothing", m)
		case written && g.Profile == "hermetic":
			t.Fatal("a hermetic build writes to the host")
		case !strings.HasPrefix(m.GuestPath+"/", "/workspace/"):
			t.Fatalf("a mount at %s", m.GuestPath)
		case m.Mode == "overlay" && source.Kind != "dir":
			t.Fatal("an overlay over a file")
		}
	}
	if g.Profile == "hermetic" && (g.Network.Mode != "none" || len(g.Degraded) > 0 || g.Seccomp != "build" || g.Root == "host") {
		t.Fatalf("hermetic: %+v", g)
	}
	if !g.Network.Spec().Within(sandbox.Network{Mode: "egress", Allow: listed}) {
		t.Fatalf("a network of %+v", g.Network)
	}
	if g.Ceilings.CPUWeight > 100 {
		t.Fatalf("a weight of %d", g.Ceilings.CPUWeight)
	}
	if g.Identity.UID == 0 || len(g.Identity.Capabilities) > 0 {
		t.Fatalf("an identity of %+v", g.Identity)
	}
}

// TestLessPolicyNeverAllowsMore (T179): a rule more that denies, or something less that is listed, allows nothing that
// was not allowed before, and grants nothing wider.
func TestLessPolicyNeverAllowsMore(t *testing.T) {
	whole := library(t, "", "", nil)
	less := func(old, new string) *rego.Engine { return library(t, old, new, nil) }
	lesser := map[string]*rego.Engine{
		"one more denial": library(t, "", "", map[string]string{"open/odd.rego": `package stockade.open

deny contains {"code": "odd", "subject": "mounts", "message": "an odd number"} if count(mounts) == 1
`}),
		"no overlays":     less(`"modes": ["ro", "rw", "overlay"]`, `"modes": ["ro", "rw"]`),
		"no rw":           less(`"modes": ["ro", "rw", "overlay"]`, `"modes": ["ro", "overlay"]`),
		"no network":      less(`"networks": ["none", "egress"]`, `"networks": ["none"]`),
		"a name less":     less(`{"name": "*.a.org"}, `, ``),
		"all walls":       less(`"degradable": ["landlock", "time namespace", "seccomp notification"]`, `"degradable": []`),
		"fewer places":    less(`"/workspace/", `, ``),
		"overlays for rw": less(`"class": "workspace"`, `"rw_is": "overlay", "class": "workspace"`),
	}
	rapid.Check(t, func(t *rapid.T) {
		in := aWish().Draw(t, "wish")
		before := whole.Decide(t.Context(), rego.Open, in)
		for what, e := range lesser {
			d := e.Decide(t.Context(), rego.Open, in)
			if d.Allow && !before.Allow {
				if what == "overlays for rw" && boundless(before.Deny) { // an overlay is what the denial asks for
					continue
				}
				t.Fatalf("%s allows %v", what, before.Deny)
			}
			if d.Allow && !d.Grant.Network.Spec().Within(before.Grant.Network.Spec()) {
				t.Fatalf("%s grants %+v", what, d.Grant.Network)
			}
			if !d.Allow {
				continue
			}
			for i, m := range d.Grant.Mounts {
				if slices.Index(modes, m.Mode) > slices.Index(modes, before.Grant.Mounts[i].Mode) {
					t.Fatalf("%s grants %+v", what, m)
				}
			}
		}
	})
}

// boundless reports that all that speaks against a grant is a mount that nothing bounds.
func boundless(deny []api.Deny) bool {
	return !slices.ContainsFunc(deny, func(d api.Deny) bool { return !strings.HasPrefix(d.Message, "nothing bounds what is written") })
}
