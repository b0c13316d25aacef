package rego_test

import (
	"testing"

	"github.com/stockade-dev/stockade/rego"
	"github.com/stockade-dev/stockade/supervisor/api"
)

// TestCompareGrants: each field of a grant, what a change of it means, and that the way back means the opposite.
func TestCompareGrants(t *testing.T) {
	base := func() *api.Grant {
		return &api.Grant{
			Root: "host", Seccomp: "default", Workdir: "/w", Hostname: "h", TTLNS: 100, OnRestart: "adopt",
			Mounts:   []api.GrantMount{{HostPath: "/a", GuestPath: "/w", Mode: "overlay", Bytes: 10, Inodes: 10, Protect: []string{".git/hooks"}}},
			Scratch:  []api.GrantScratch{{GuestPath: "/tmp", Bytes: 10, Inodes: 10}},
			Identity: api.Identity{UID: 1000, GID: 1000},
			Ceilings: api.Ceilings{MemoryBytes: 10, CPUMillis: 10, PIDs: 10, Files: 10, OutputBytes: 10, Executions: 10, Queued: 10},
			Network:  api.GrantNetwork{Mode: "egress", Allow: []api.Destination{{Name: "*.example.org", Ports: []uint16{443}}}},
			Env:      api.GrantEnv{Allow: []string{"GO*"}, Set: map[string]string{"TZ": "UTC"}, Max: 5},
			Exec:     api.GrantExec{MaxArgv: 5, Signals: []string{"TERM"}, CwdPrefixes: []string{"/w"}},
		}
	}
	for _, row := range []struct {
		field  string
		change func(*api.Grant)
		effect rego.Effect
	}{
		{"ceilings.pids", func(g *api.Grant) { g.Ceilings.PIDs = 11 }, rego.Wider},
		{"ceilings.pids", func(g *api.Grant) { g.Ceilings.PIDs = 0 }, rego.Wider}, // no bound
		{"ceilings.memory_bytes", func(g *api.Grant) { g.Ceilings.MemoryBytes = -1 }, rego.Wider},
		{"ceilings.cpu_weight", func(g *api.Grant) { g.Ceilings.CPUWeight = 101 }, rego.Wider}, // absent is 100
		{"ceilings.cpu_weight", func(g *api.Grant) { g.Ceilings.CPUWeight = 99 }, rego.Narrower},
		{"ceilings.queued", func(g *api.Grant) { g.Ceilings.Queued = 0 }, rego.Wider}, // 64
		{"ttl_ns", func(g *api.Grant) { g.TTLNS = 99 }, rego.Narrower},
		{"expires_at_ns", func(g *api.Grant) { g.ExpiresNS = 5 }, rego.Narrower},
		{"root", func(g *api.Grant) { g.Root = "dir" }, rego.Other},
		{"seccomp", func(g *api.Grant) { g.Seccomp = "build" }, rego.Wider},
		{"seccomp", func(g *api.Grant) { g.Seccomp = "strict" }, rego.Narrower},
		{"seccomp", func(g *api.Grant) { g.Seccomp = "unheard of" }, rego.Wider},
		{"on_restart", func(g *api.Grant) { g.OnRestart = "terminate" }, rego.Narrower},
		{"verify", func(g *api.Grant) { g.Verify = "canary" }, rego.Narrower},
		{"accept_degraded", func(g *api.Grant) { g.Degraded = []string{"landlock"} }, rego.Wider},
		{"workdir", func(g *api.Grant) { g.Workdir = "/x" }, rego.Other},
		{"mounts./w.mode", func(g *api.Grant) { g.Mounts[0].Mode = "rw" }, rego.Wider},
		{"mounts./w.host_path", func(g *api.Grant) { g.Mounts[0].HostPath = "/b" }, rego.Wider},
		{"mounts./w.protect", func(g *api.Grant) { g.Mounts[0].Protect = nil }, rego.Wider},
		{"mounts./w.bytes", func(g *api.Grant) { g.Mounts[0].Bytes = 11 }, rego.Wider},
		{"mounts./w", func(g *api.Grant) { g.Mounts = nil }, rego.Narrower},
		{"scratch./tmp.inodes", func(g *api.Grant) { g.Scratch[0].Inodes = 9 }, rego.Narrower},
		{"scratch./x", func(g *api.Grant) { g.Scratch = append(g.Scratch, api.GrantScratch{GuestPath: "/x"}) }, rego.Wider},
		{"identity.uid", func(g *api.Grant) { g.Identity.UID = 1 }, rego.Other},
		{"identity.capabilities", func(g *api.Grant) { g.Identity.Capabilities = []string{"CAP_KILL"} }, rego.Wider},
		{"identity.groups", func(g *api.Grant) { g.Identity.Groups = []uint32{5} }, rego.Wider},
		{"network.mode", func(g *api.Grant) { g.Network.Mode = "full" }, rego.Wider},
		{"network.allow", func(g *api.Grant) { g.Network.Allow[0].Name = "a.example.org" }, rego.Narrower},
		{"network.allow", func(g *api.Grant) { g.Network.Allow[0].Ports = nil }, rego.Wider},
		{"env.allow", func(g *api.Grant) { g.Env.Allow = nil }, rego.Wider},
		{"env.allow", func(g *api.Grant) { g.Env.Allow = []string{"GOFLAGS"} }, rego.Narrower},
		{"env.set.TZ", func(g *api.Grant) { g.Env.Set = nil }, rego.Wider},
		{"env.set.TZ", func(g *api.Grant) { g.Env.Set["TZ"] = "CET" }, rego.Other},
		{"exec.signals", func(g *api.Grant) { g.Exec.Signals = []string{} }, rego.Narrower},
		{"exec.cwd_prefixes", func(g *api.Grant) { g.Exec.CwdPrefixes = []string{"/"} }, rego.Wider},
		{"exec.output_prefixes", func(g *api.Grant) { g.Exec.OutputPrefixes = []string{"/w"} }, rego.Narrower},
		{"exec.background", func(g *api.Grant) { g.Exec.Background = true }, rego.Wider},
		{"exec.queue", func(g *api.Grant) { no := false; g.Exec.Queue = &no }, rego.Narrower},
	} {
		after := base()
		row.change(after)
		got := rego.CompareGrants(base(), after)
		has := func(list []rego.Difference, effect rego.Effect) bool {
			for _, d := range list {
				if d.Field == row.field && d.Effect == effect {
					return true
				}
			}
			return false
		}
		if !has(got, row.effect) {
			t.Errorf("%s, %s: %v", row.field, row.effect, got)
		}
		if back := rego.CompareGrants(after, base()); row.effect == rego.Narrower && !has(back, rego.Wider) || row.effect == rego.Narrower && rego.IsWider(got) {
			t.Errorf("%s: %v, and back %v", row.field, got, back)
		}
	}
	if got := rego.CompareGrants(base(), base()); got != nil {
		t.Errorf("the same: %v", got)
	}
}

// TestCompareDecisions: flips, limits and duties.
func TestCompareDecisions(t *testing.T) {
	allow := rego.Decision{Allow: true, Limits: rego.ExecLimits{TimeoutNS: 5}, Obligations: rego.Obligations{Output: "blob"}}
	for _, row := range []struct {
		name   string
		after  rego.Decision
		field  string
		effect rego.Effect
	}{
		{"denied", rego.Decision{}, "allow", rego.Narrower},
		{"a limit less", rego.Decision{Allow: true, Obligations: allow.Obligations}, "limits.timeout_ns", rego.Wider},
		{"a duty less", rego.Decision{Allow: true, Limits: allow.Limits}, "obligations.output", rego.Wider},
	} {
		got := rego.Compare(allow, row.after)
		if len(got) != 1 || got[0].Field != row.field || got[0].Effect != row.effect {
			t.Errorf("%s: %v", row.name, got)
		}
	}
	if got := rego.Compare(rego.Decision{}, allow); len(got) != 1 || got[0].Effect != rego.Wider {
		t.Errorf("allowed now: %v", got)
	}
	if got := rego.Compare(rego.Decision{Deny: []api.Deny{{Code: "a"}}}, rego.Decision{Deny: []api.Deny{{Code: "b"}}}); got != nil {
		t.Errorf("two denials: %v", got)
	}
}
