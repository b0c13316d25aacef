package rego_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/stockade-dev/stockade/rego"
	"github.com/stockade-dev/stockade/sandbox"
	"github.com/stockade-dev/stockade/supervisor/api"
)

// answered is a decision about ask by a policy that answers so, met as the supervisor meets it, with every denial that there is.
func answered(in rego.Input, answer string) (rego.Decision, api.Grant, []api.Deny) {
	d := rego.Decide(rego.Open, "sha256:x", 1<<20, in, func([]byte) rego.Answer { return rego.Answer{Result: []byte(answer)} })
	if !d.Allow {
		return d, api.Grant{}, d.Deny
	}
	g, _, deny := rego.Meet(in.Request.Open, *d.Grant, in.Ceiling)
	return d, g, deny
}

// asking is an open as it reaches a policy, with facts about what it names.
func asking(ask *api.SessionOpen, ceiling sandbox.Ceiling) rego.Input {
	in := openInput(0)
	in.Request.Open, in.Ceiling = ask, ceiling
	for _, p := range rego.HostPaths(in.Request) {
		in.Facts.Sources[p] = rego.Source{Found: &rego.Found{Resolved: p, Kind: "dir", OwnerUID: 1000, Mode: 0o755}}
	}
	return in
}

func denials() *rapid.Generator[[]api.Deny] {
	return rapid.SliceOfNDistinct(rapid.Custom(func(t *rapid.T) api.Deny {
		return api.Deny{Code: api.Code(rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "code")), Subject: rapid.SampledFrom([]string{"", "x", "y"}).Draw(t, "subject")}
	}), 0, 4, rapid.ID)
}

func answer(t *rapid.T, deny []api.Deny, grant api.Grant) string {
	list, err := api.Encode(append([]api.Deny{}, deny...))
	if err != nil {
		t.Fatal(err)
	}
	text, err := api.Encode(grant)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf(`{"allow": true, "deny": %s, "grant": %s}`, list, text)
}

// fitting grants what was asked for, or less, where the ceiling has room: few grants that are drawn without a thought do.
func fitting(t *rapid.T, ask *api.SessionOpen) api.Grant {
	local := ask.Target.Local
	g := api.Grant{
		Root: "host", Identity: api.Identity{UID: 1000, GID: 1000}, Seccomp: "default", Network: api.GrantNetwork{Mode: "none"}, Workdir: "/w",
		Ceilings: api.Ceilings{
			MemoryBytes: rapid.Int64Range(1, 8).Draw(t, "memory"), CPUMillis: 1, PIDs: 1, Files: 1, OutputBytes: 1, Executions: 1,
		},
	}
	if local.Root.Dir != nil {
		g.Root = "dir"
	}
	for _, m := range local.Mounts {
		g.Mounts = append(g.Mounts, api.GrantMount{HostPath: m.HostPath, GuestPath: m.GuestPath, Mode: "ro"})
	}
	return g
}

// TestDenialsAreAUnion: one denial more never allows more, each is told, and neither their order nor that of what is granted
// changes a decision or what is in force after it.
func TestDenialsAreAUnion(t *testing.T) {
	allowed := 0
	rapid.Check(t, func(t *rapid.T) {
		in := asking(anAsk().Draw(t, "ask"), aCeiling().Draw(t, "ceiling"))
		grant, deny, more := aGrant().Draw(t, "grant"), denials().Draw(t, "deny"), denials().Draw(t, "more")
		if rapid.Bool().Draw(t, "fitting") {
			grant = fitting(t, in.Request.Open)
		}
		d, inForce, all := answered(in, answer(t, deny, grant))
		if d.Allow && len(deny) > 0 {
			t.Fatalf("allowed beside %v", deny)
		}
		if d.Allow {
			allowed++
		}
		if len(deny) > 0 && !slices.Equal(d.Deny, deny) {
			t.Fatalf("denied for %v, not %v", d.Deny, deny)
		}
		if with, _, _ := answered(in, answer(t, append(slices.Clone(deny), more...), grant)); with.Allow && !d.Allow {
			t.Fatal("more denials allowed more")
		}

		other := grant
		other.Mounts, other.Network.Allow, other.Degraded = reversed(grant.Mounts), reversed(grant.Network.Allow), reversed(grant.Degraded)
		back, backInForce, backAll := answered(in, answer(t, reversed(deny), other))
		if back.Allow != d.Allow || !gocmp.Equal(sorted(all), sorted(backAll)) {
			t.Fatalf("%v %v, in another order %v %v", d.Allow, all, back.Allow, backAll)
		}
		backInForce.Network.Allow, backInForce.Degraded = reversed(backInForce.Network.Allow), reversed(backInForce.Degraded)
		same(t, "in another order", inForce, backInForce)
	})
	if allowed == 0 {
		t.Error("nothing was ever allowed: it proves nothing")
	}
}

func reversed[T any](list []T) []T {
	list = slices.Clone(list)
	slices.Reverse(list)
	return list
}

func sorted(deny []api.Deny) []string {
	var list []string
	for _, d := range deny {
		list = append(list, string(d.Code)+" "+d.Subject)
	}
	slices.Sort(list)
	return list
}

// FuzzResult: whatever bytes an evaluation answers with, they allow nothing that the ceiling rules out, that was not asked for, or
// that comes with a denial, and do no other harm.
func FuzzResult(f *testing.F) {
	f.Add([]byte(`{"allow": true, "deny": [], "grant": ` + strings.ReplaceAll(grantText, `"hostname": "h",`, `"hostname": "h"`) + `}`))
	f.Add([]byte(`{"allow": true, "deny": [{"code": "x"}]}`))
	f.Add([]byte(`[[[[`))
	f.Fuzz(func(t *testing.T, result []byte) {
		in := openInput(1)
		in.Ceiling.MemoryBytes, in.Ceiling.PIDs = 1<<20, 100
		d, g, deny := answered(in, string(result))
		if !d.Allow {
			if d.Grant != nil || len(d.Deny) == 0 {
				t.Fatalf("%+v", d)
			}
			return
		}
		if len(deny) > 0 {
			return
		}
		if g.Ceilings.MemoryBytes > 1<<20 || g.Ceilings.PIDs > 100 || len(g.Mounts) > 1 || g.Network.Mode != "none" || len(g.Identity.Capabilities) > 0 || g.Identity.UID == 0 {
			t.Fatalf("in force: %+v", g)
		}
	})
}
