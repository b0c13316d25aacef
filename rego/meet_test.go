package rego_test

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/stockade-dev/stockade/rego"
	"github.com/stockade-dev/stockade/sandbox"
	"github.com/stockade-dev/stockade/supervisor/api"
)

// The properties of the meet: nothing widens, and order does not matter (R053, R084, R086, R092, R099, C17).

var (
	paths    = []string{"/a", "/b", "/c"}
	restarts = []string{"", "adopt", "terminate"}
	modes    = []string{"ro", "overlay", "rw"}
	places   = []api.Destination{
		{Name: "*.a.org"}, {Name: "x.a.org", Ports: []uint16{443}}, {Name: "b.org", Protocol: "tcp"}, {Name: "b.org", Ports: []uint16{80, 443}},
		{CIDR: "8.8.0.0/16"}, {CIDR: "8.8.8.0/24", Ports: []uint16{53}}, {CIDR: "10.0.0.0/8"}, {CIDR: "10.1.0.0/16", Ports: []uint16{22}},
	}
	layers = []string{"landlock", "time namespace"}
)

func destinations() *rapid.Generator[[]api.Destination] {
	return rapid.SliceOfNDistinct(rapid.SampledFrom(places), 0, 4, func(d api.Destination) string { return fmt.Sprint(d) })
}

func bound() *rapid.Generator[int64] {
	return rapid.OneOf(rapid.Just[int64](0), rapid.Int64Range(1, 8))
}

func optional(names ...string) *rapid.Generator[[]string] {
	return rapid.Custom(func(t *rapid.T) []string {
		if rapid.Bool().Draw(t, "absent") {
			return nil
		}
		return append([]string{}, rapid.SliceOfDistinct(rapid.SampledFrom(names), rapid.ID).Draw(t, "names")...)
	})
}

func anAsk() *rapid.Generator[*api.SessionOpen] {
	return rapid.Custom(func(t *rapid.T) *api.SessionOpen {
		local := &api.Local{
			NetworkMode: rapid.SampledFrom([]string{"", "none", "egress", "full"}).Draw(t, "network"),
			Workdir:     rapid.SampledFrom([]string{"", "/w"}).Draw(t, "workdir"),
		}
		switch rapid.IntRange(0, 2).Draw(t, "root") {
		case 1:
			local.Root.Host = &struct{}{}
		case 2:
			local.Root.Dir = &api.RootDir{Path: "/r"}
		}
		for _, p := range rapid.SliceOfDistinct(rapid.SampledFrom(paths), rapid.ID).Draw(t, "mounts") {
			m := api.Mount{HostPath: "/host" + p, GuestPath: p, Mode: rapid.SampledFrom(modes).Draw(t, "mode")}
			if m.Mode == "overlay" {
				m.Bytes, m.Inodes = bound().Draw(t, "bytes"), bound().Draw(t, "inodes")
			}
			local.Mounts = append(local.Mounts, m)
		}
		if local.NetworkMode == "egress" || local.NetworkMode == "full" {
			local.Egress = destinations().Draw(t, "egress")
		}
		local.Env = map[string]api.EnvValue{}
		for _, name := range rapid.SliceOfDistinct(rapid.SampledFrom([]string{"A", "B_C"}), rapid.ID).Draw(t, "env") {
			local.Env[name] = api.EnvValue{Text: "x"}
		}
		ask := &api.SessionOpen{Target: api.Target{Local: local}, SessionTTLNS: bound().Draw(t, "ttl")}
		ask.IdleNS = bound().Draw(t, "idle")
		ask.OnRestart = rapid.SampledFrom(restarts).Draw(t, "on restart")
		ask.Limits = api.Limits{
			MemoryBytes: bound().Draw(t, "memory"), CPUMillis: bound().Draw(t, "cpu"),
			PIDs: bound().Draw(t, "pids"), OutputBytes: bound().Draw(t, "output"), Files: bound().Draw(t, "files"),
			CPUTimeNS: bound().Draw(t, "cpu time"), CPUWeight: bound().Draw(t, "weight"), IOBytesPerSecond: bound().Draw(t, "io"),
			DiskBytes: bound().Draw(t, "disk"), DiskInodes: bound().Draw(t, "disk inodes"),
		}
		ask.Degraded = rapid.SliceOfDistinct(rapid.SampledFrom(layers), rapid.ID).Draw(t, "degraded")
		ask.Verify = rapid.SampledFrom([]string{"", "canary"}).Draw(t, "verify")
		if rapid.Bool().Draw(t, "says background") {
			b := rapid.Bool().Draw(t, "background")
			ask.Background = &b
		}
		return ask
	})
}

func aGrant() *rapid.Generator[api.Grant] {
	return rapid.Custom(func(t *rapid.T) api.Grant {
		g := api.Grant{
			Root: rapid.SampledFrom([]string{"host", "dir"}).Draw(t, "root"),
			Identity: api.Identity{
				UID: 1000, GID: rapid.SampledFrom([]uint32{0, 1000}).Draw(t, "gid"),
				Capabilities: optional("CAP_NET_RAW", "CAP_SYS_ADMIN").Draw(t, "capabilities"),
			},
			Ceilings: api.Ceilings{
				MemoryBytes: bound().Draw(t, "memory"), CPUMillis: bound().Draw(t, "cpu"), PIDs: bound().Draw(t, "pids"),
				Files: bound().Draw(t, "files"), OutputBytes: bound().Draw(t, "output"), Executions: bound().Draw(t, "executions"),
				CPUTimeNS: bound().Draw(t, "cpu time"), CPUWeight: bound().Draw(t, "weight"), IOBytesPerSecond: bound().Draw(t, "io"),
				DiskBytes: bound().Draw(t, "disk"), DiskInodes: bound().Draw(t, "disk inodes"),
			},
			Seccomp: "default", Network: api.GrantNetwork{Mode: rapid.SampledFrom([]string{"none", "egress", "full"}).Draw(t, "network")},
			Degraded: rapid.SliceOfDistinct(rapid.SampledFrom(layers), rapid.ID).Draw(t, "degraded"),
			Verify:   rapid.SampledFrom([]string{"", "canary"}).Draw(t, "verify"),
			Env:      api.GrantEnv{Allow: optional("A", "B_*").Draw(t, "allow"), Max: bound().Draw(t, "max")},
			Exec:     api.GrantExec{MaxTimeoutNS: bound().Draw(t, "timeout"), DefaultTimeoutNS: bound().Draw(t, "default timeout"), Background: rapid.Bool().Draw(t, "background")},
			TTLNS:    bound().Draw(t, "ttl"), IdleNS: bound().Draw(t, "idle"), OnRestart: rapid.SampledFrom(restarts).Draw(t, "on restart"),
		}
		for _, p := range rapid.SliceOfDistinct(rapid.SampledFrom(paths), rapid.ID).Draw(t, "mounts") {
			m := api.GrantMount{HostPath: "/host" + p, GuestPath: p, Mode: rapid.SampledFrom(modes).Draw(t, "mode")}
			if m.Mode == "overlay" {
				m.Bytes, m.Inodes = rapid.Int64Range(1, 8).Draw(t, "bytes"), rapid.Int64Range(1, 8).Draw(t, "inodes")
			}
			g.Mounts = append(g.Mounts, m)
		}
		for range rapid.IntRange(0, 1).Draw(t, "scratch") {
			g.Scratch = append(g.Scratch, api.GrantScratch{GuestPath: "/tmp", Bytes: 4, Inodes: 4})
		}
		if g.Network.Mode != "none" {
			g.Network.Allow = destinations().Draw(t, "allow")
		}
		return g
	})
}

func aCeiling() *rapid.Generator[sandbox.Ceiling] {
	return rapid.Custom(func(t *rapid.T) sandbox.Ceiling {
		c := sandbox.Ceiling{
			Capabilities:  optional("CAP_NET_RAW", "CAP_SYS_ADMIN").Draw(t, "capabilities"),
			Seccomp:       optional("default", "strict").Draw(t, "seccomp"),
			Networks:      optional("none", "egress", "full").Draw(t, "networks"),
			NetworkDenied: optional("10.0.0.0/8").Draw(t, "denied"), CPUTimeNS: bound().Draw(t, "cpu time"), ScratchBytes: bound().Draw(t, "scratch"),
			MemoryBytes: bound().Draw(t, "memory"), CPUMillis: bound().Draw(t, "cpu"), PIDs: bound().Draw(t, "pids"),
			Files: bound().Draw(t, "files"), OutputBytes: bound().Draw(t, "output"), Executions: bound().Draw(t, "executions"),
			TTLNS: bound().Draw(t, "ttl"), IdleNS: bound().Draw(t, "idle"), TimeoutNS: bound().Draw(t, "timeout"), Mounts: bound().Draw(t, "mounts"),
		}
		for _, r := range optional("host", "dir").Draw(t, "roots") {
			c.Roots = append(c.Roots, sandbox.RootKind(r))
		}
		return c
	})
}

// within fails when got is more than a bound; 0 is no bound.
func within(t rapid.TB, what string, got int64, bounds ...int64) {
	for _, b := range bounds {
		if b != 0 && (got == 0 || got > b) {
			t.Fatalf("%s: %d is more than %d", what, got, b)
		}
	}
}

func TestMeetNeverWidens(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		neverWidens(t, anAsk().Draw(t, "ask"), aGrant().Draw(t, "grant"), aCeiling().Draw(t, "ceiling"))
	})
}

// neverWidens meets the three, fails where what is in force is more than one of them, and says whether it is denied.
func neverWidens(t rapid.TB, ask *api.SessionOpen, grant api.Grant, ceiling sandbox.Ceiling) (allowed bool) {
	before, _ := api.Encode(grant)
	got, clamps, deny := rego.Meet(ask, grant, ceiling)
	if after, _ := api.Encode(grant); string(after) != string(before) {
		t.Fatal("the grant was changed in place")
	}

	g, c := grant.Ceilings, ceiling
	within(t, "memory", got.Ceilings.MemoryBytes, ask.Limits.MemoryBytes, g.MemoryBytes, c.MemoryBytes)
	within(t, "cpu", got.Ceilings.CPUMillis, ask.Limits.CPUMillis, g.CPUMillis, c.CPUMillis)
	within(t, "pids", got.Ceilings.PIDs, ask.Limits.PIDs, g.PIDs, c.PIDs)
	within(t, "output", got.Ceilings.OutputBytes, ask.Limits.OutputBytes, g.OutputBytes, c.OutputBytes)
	within(t, "files", got.Ceilings.Files, ask.Limits.Files, g.Files, c.Files)
	within(t, "cpu time", got.Ceilings.CPUTimeNS, ask.Limits.CPUTimeNS, g.CPUTimeNS, c.CPUTimeNS)
	within(t, "weight", got.Ceilings.CPUWeight, ask.Limits.CPUWeight, g.CPUWeight)
	within(t, "io", got.Ceilings.IOBytesPerSecond, ask.Limits.IOBytesPerSecond, g.IOBytesPerSecond)
	within(t, "disk", got.Ceilings.DiskBytes, ask.Limits.DiskBytes, g.DiskBytes)
	within(t, "disk inodes", got.Ceilings.DiskInodes, ask.Limits.DiskInodes, g.DiskInodes)
	within(t, "executions", got.Ceilings.Executions, g.Executions, c.Executions)
	within(t, "ttl", got.TTLNS, ask.SessionTTLNS, grant.TTLNS, c.TTLNS)
	within(t, "idle", got.IdleNS, ask.IdleNS, grant.IdleNS, c.IdleNS)
	if (got.OnRestart == "terminate") != (ask.OnRestart == "terminate" || grant.OnRestart == "terminate") {
		t.Fatalf("%q asked, %q granted, %q in force", ask.OnRestart, grant.OnRestart, got.OnRestart)
	}
	within(t, "timeout", got.Exec.MaxTimeoutNS, grant.Exec.MaxTimeoutNS, c.TimeoutNS)
	if got.Exec.DefaultTimeoutNS != 0 {
		within(t, "default timeout", got.Exec.DefaultTimeoutNS, got.Exec.MaxTimeoutNS)
	}
	if got.Exec.Background && (!grant.Exec.Background || ask.Background != nil && !*ask.Background) {
		t.Fatal("background processes out of nothing")
	}
	for _, cl := range clamps {
		if cl.Effective >= cl.Requested {
			t.Fatalf("%+v is no clamp", cl)
		}
	}
	for _, m := range got.Mounts {
		asked := slices.IndexFunc(ask.Target.Local.Mounts, func(a api.Mount) bool { return a.HostPath == m.HostPath && a.GuestPath == m.GuestPath })
		granted := slices.IndexFunc(grant.Mounts, func(a api.GrantMount) bool { return a.HostPath == m.HostPath && a.GuestPath == m.GuestPath })
		if asked < 0 || granted < 0 {
			t.Fatalf("%+v out of nothing", m)
		}
		for _, mode := range []string{ask.Target.Local.Mounts[asked].Mode, grant.Mounts[granted].Mode} {
			if slices.Index(modes, m.Mode) > slices.Index(modes, mode) {
				t.Fatalf("%+v is wider than asked or granted", m)
			}
		}
		if m.Mode == "overlay" {
			within(t, "room", m.Bytes, ask.Target.Local.Mounts[asked].Bytes, grant.Mounts[granted].Bytes)
			within(t, "inodes", m.Inodes, ask.Target.Local.Mounts[asked].Inodes, grant.Mounts[granted].Inodes)
		}
	}
	for _, layer := range got.Degraded {
		if !slices.Contains(ask.Degraded, layer) || !slices.Contains(grant.Degraded, layer) {
			t.Fatalf("without %s, which somebody wants", layer)
		}
	}
	if (got.Verify == "canary") != (ask.Verify == "canary" || grant.Verify == "canary") {
		t.Fatalf("%q asked, %q granted, %q in force", ask.Verify, grant.Verify, got.Verify)
	}
	if len(deny) > 0 {
		return false
	}
	// What is not denied is what was asked for, as far as it has no lesser form.
	if len(got.Mounts) != len(ask.Target.Local.Mounts) {
		t.Fatal("a mount that was asked for is missing, and nothing says so")
	}
	network := got.Network.Spec()
	if !network.Within(grant.Network.Spec()) {
		t.Fatalf("%+v is more than was granted", network)
	}
	wanted := api.GrantNetwork{Mode: cmp.Or(ask.Target.Local.NetworkMode, "none"), Allow: ask.Target.Local.Egress}.Spec()
	if len(wanted.Allow) > 0 && !network.Within(wanted) || !(sandbox.Network{Mode: network.Mode}).Within(wanted) {
		t.Fatalf("%+v is more than was asked for", network)
	}
	if len(network.Allow) > 0 && c.Denies(network.Allow[0]) {
		t.Fatal("a range that is never reached")
	}
	var bytes, inodes int64
	for _, s := range got.Scratch {
		bytes, inodes = bytes+s.Bytes, inodes+s.Inodes
	}
	for _, m := range got.Mounts {
		bytes, inodes = bytes+m.Bytes, inodes+m.Inodes
		if m.Mode == "rw" && (got.Ceilings.DiskBytes != 0 || got.Ceilings.DiskInodes != 0) {
			t.Fatal("a ceiling of disk that nothing holds")
		}
	}
	if bytes > 0 {
		within(t, "private bytes", bytes, got.Ceilings.DiskBytes, c.ScratchBytes)
		within(t, "private inodes", inodes, got.Ceilings.DiskInodes)
	}
	for name := range maps.Keys(ask.Target.Local.Env) {
		if !rego.EnvAllowed(grant.Env.Allow, name) {
			t.Fatalf("%s is not granted", name)
		}
	}
	if slices.Contains(got.Identity.Capabilities, "CAP_SYS_ADMIN") || got.Identity.GID == 0 {
		t.Fatal("what is never granted")
	}
	if c.Networks != nil && !slices.Contains(c.Networks, got.Network.Mode) || c.Seccomp != nil && !slices.Contains(c.Seccomp, got.Seccomp) {
		t.Fatal("outside the ceiling's lists")
	}
	if slices.Contains([]int64{got.Ceilings.MemoryBytes, got.Ceilings.CPUMillis, got.Ceilings.PIDs, got.Ceilings.Files, got.Ceilings.OutputBytes, got.Ceilings.Executions}, 0) {
		t.Fatal("an open ceiling")
	}
	return true
}

func TestMeetOrderDoesNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ask, grant := anAsk().Draw(t, "ask"), aGrant().Draw(t, "grant")
		one, two := aCeiling().Draw(t, "one"), aCeiling().Draw(t, "two")
		first, _, deny := rego.Meet(ask, grant, one)
		again, clamps, _ := rego.Meet(ask, first, one)
		same(t, "twice is once", first, again)
		for _, c := range clamps {
			if c.Effective > c.Requested {
				t.Fatalf("%+v", c)
			}
		}
		onetwo, _, _ := rego.Meet(ask, first, two)
		second, _, _ := rego.Meet(ask, grant, two)
		twoone, _, _ := rego.Meet(ask, second, one)
		same(t, "one ceiling then the other", onetwo, twoone)

		slices.Reverse(ask.Target.Local.Mounts)
		slices.Reverse(grant.Mounts)
		reversed, _, reversedDeny := rego.Meet(ask, grant, one)
		same(t, "mounts in another order", first, reversed)
		if diff := gocmp.Diff(deny, reversedDeny); diff != "" {
			t.Fatal(diff)
		}
	})
}

func same(t *rapid.T, what string, a, b api.Grant) {
	if diff := gocmp.Diff(a, b, cmpopts.EquateEmpty()); diff != "" {
		t.Fatalf("%s: %s", what, diff)
	}
}

// TestClamps is C17: the caller sees what it did not get, and whose bound it was.
func TestClamps(t *testing.T) {
	grant := api.Grant{
		Root: "host", Identity: api.Identity{UID: 1, GID: 1}, Seccomp: "default", Network: api.GrantNetwork{Mode: "none"}, TTLNS: 100,
		Ceilings: api.Ceilings{MemoryBytes: 100, CPUMillis: 100, PIDs: 100, Files: 100, OutputBytes: 100, Executions: 1},
		IdleNS:   50,
	}
	ask := &api.SessionOpen{
		Target: api.Target{Local: &api.Local{}}, SessionTTLNS: 200, IdleNS: 60,
		Limits: api.Limits{MemoryBytes: 200, CPUMillis: 50, PIDs: 100, OutputBytes: 80},
	}
	got, clamps, deny := rego.Meet(ask, grant, sandbox.Ceiling{TTLNS: 70, OutputBytes: 60})
	if len(deny) > 0 {
		t.Fatal(deny)
	}
	want := []api.Clamp{
		{Field: "limits.memory_bytes", Requested: 200, Effective: 100, Source: "policy"},
		{Field: "limits.output_bytes", Requested: 80, Effective: 60, Source: "ceiling"},
		{Field: "session_ttl_ns", Requested: 200, Effective: 70, Source: "ceiling"},
		{Field: "idle_timeout_ns", Requested: 60, Effective: 50, Source: "policy"},
	}
	if diff := gocmp.Diff(want, clamps); diff != "" {
		t.Error(diff)
	}
	if got.Ceilings.CPUMillis != 50 || got.Ceilings.PIDs != 100 || got.TTLNS != 70 {
		t.Errorf("%+v", got)
	}
}

func TestMeetExec(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ask := &api.Exec{TimeoutNS: bound().Draw(t, "timeout"), MaxInline: bound().Draw(t, "inline"), Limits: api.Limits{
			OutputBytes: bound().Draw(t, "output"), MemoryBytes: bound().Draw(t, "memory"), CPUMillis: bound().Draw(t, "cpu"),
			PIDs: bound().Draw(t, "pids"), Files: bound().Draw(t, "files"), CPUTimeNS: bound().Draw(t, "cpu time"),
		}}
		grant := aGrant().Draw(t, "grant")
		tighter := rego.ExecLimits{TimeoutNS: bound().Draw(t, "tighter"), OutputBytes: bound().Draw(t, "less output"), MemoryBytes: bound().Draw(t, "less memory")}
		got, clamps := rego.MeetExec(ask, grant, tighter)
		within(t, "timeout", got.TimeoutNS, ask.TimeoutNS, grant.Exec.MaxTimeoutNS, tighter.TimeoutNS)
		within(t, "output", got.OutputBytes, ask.Limits.OutputBytes, grant.Ceilings.OutputBytes, tighter.OutputBytes)
		within(t, "inline", got.MaxInlineBytes, ask.MaxInline, grant.Exec.MaxInlineBytes)
		c := grant.Ceilings
		within(t, "memory", got.MemoryBytes, ask.Limits.MemoryBytes, c.MemoryBytes, tighter.MemoryBytes)
		within(t, "cpu", got.CPUMillis, ask.Limits.CPUMillis, c.CPUMillis)
		within(t, "pids", got.PIDs, ask.Limits.PIDs, c.PIDs)
		within(t, "files", got.Files, ask.Limits.Files, c.Files)
		within(t, "cpu time", got.CPUTimeNS, ask.Limits.CPUTimeNS, c.CPUTimeNS)
		for _, c := range clamps {
			if c.Effective >= c.Requested {
				t.Fatalf("%+v is no clamp", c)
			}
		}
	})
}

// TestMeetModify: a command whose time is changed gets no more than if it had asked at first.
func TestMeetModify(t *testing.T) {
	for _, row := range []struct {
		name                   string
		asked, granted, policy int64
		want                   int64
		clamped                bool
	}{
		{"less", 30, 100, 0, 30, false},
		{"as much as the grant has", 100, 100, 0, 100, false},
		{"more than the grant has", 101, 100, 0, 100, true},
		{"more than policy gave this command", 90, 100, 60, 60, true},
		{"nobody bounds it", 1000, 0, 0, 1000, false},
	} {
		grant := api.Grant{Exec: api.GrantExec{MaxTimeoutNS: row.granted, DefaultTimeoutNS: 10}}
		got, clamps := rego.MeetModify(row.asked, grant, rego.ExecLimits{TimeoutNS: row.policy})
		if got != row.want {
			t.Errorf("%s: %d, not %d", row.name, got, row.want)
		}
		var want []api.Clamp
		if row.clamped {
			want = []api.Clamp{{Field: "timeout_ns", Requested: row.asked, Effective: row.want, Source: "policy"}}
		}
		if diff := gocmp.Diff(want, clamps); diff != "" {
			t.Errorf("%s: %s", row.name, diff)
		}
	}
}

// TestMoreDenialsNeverAllowMore: a policy with one more rule that denies allows nothing
// that it did not allow before.
func TestMoreDenialsNeverAllowMore(t *testing.T) {
	policy := func(rules string) *rego.Engine {
		return load(t, tree(`default decision := {"allow": false, "deny": []}
decision := {"allow": count(deny) == 0, "deny": deny, "grant": `+grantText+`}
deny contains {"code": "long"} if input.request.open.session_ttl_ns > 4
`+rules), rego.Options{})
	}
	less, more := policy(""), policy(`deny contains {"code": "odd"} if input.request.open.session_ttl_ns % 2 == 1`)
	rapid.Check(t, func(r *rapid.T) {
		in := openInput(0)
		in.Request.Open.SessionTTLNS = bound().Draw(r, "ttl")
		if more.Decide(t.Context(), rego.Open, in).Allow && !less.Decide(t.Context(), rego.Open, in).Allow {
			r.Fatal("one more denial allowed something")
		}
	})
}
