package rego_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stockade-dev/stockade/rego"
	"github.com/stockade-dev/stockade/supervisor/api"
)

// around is what stands around a planted hole: an entry point that has a default, and denies what is in deny.
const around = `package stockade.%s

default decision := {"allow": false, "deny": [{"code": "policy.undefined", "subject": "x"}]}

decision := {"allow": true, "deny": []%s} if count(deny) == 0

decision := {"allow": false, "deny": deny} if count(deny) > 0

deny contains {"code": "operation", "subject": "x"} if not formed

formed if is_object(%[3]s)
`

const granting = `
grant := object.union(%s, {
	"ceilings": object.union({"cpu_millis": 100, "files": 10, "output_bytes": 100, "executions": 1}, bounds),
	"mounts": given,
	"ttl_ns": 100,
})

default bounds := {"memory_bytes": 1000, "pids": 10}

bounds := ceilings

default given := []

given := input.request.open.target.local.mounts
`

// planted is a policy with one file of testdata/holes.
func planted(t *testing.T, name string) fstest.MapFS {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata/holes", name))
	if err != nil {
		t.Fatal(err)
	}
	fsys := tree("")
	if strings.Contains(string(text), "package stockade.exec") {
		fsys["exec.rego"] = &fstest.MapFile{Data: fmt.Appendf(nil, around, "exec", "", "input.request.exec")}
		fsys["open.rego"] = &fstest.MapFile{Data: []byte("package stockade.open\n\ndecision := {\"allow\": false, \"deny\": [{\"code\": \"x\"}]}\n")}
	} else {
		more := granting
		if !strings.Contains(string(text), "\nceilings := ") {
			more = strings.Replace(more, "\nbounds := ceilings\n", "", 1)
		}
		fsys["open.rego"] = &fstest.MapFile{Data: fmt.Appendf(nil, around+strings.Replace(more, "%s", "%[4]s", 1), "open", `, "grant": grant`, "input.request.open.target.local", grantText)}
		if !strings.Contains(string(text), "deny contains") {
			fsys["none.rego"] = &fstest.MapFile{Data: []byte("package stockade.open\n\ndeny contains {\"code\": \"x\"} if input.request.op == \"another\"\n")}
		}
	}
	fsys["rule.rego"] = &fstest.MapFile{Data: text}
	return fsys
}

// specimens are questions that the planted policies allow, and some that they deny.
func specimens(t *testing.T) []rego.Case {
	t.Helper()
	var cases []rego.Case
	add := func(name string, in rego.Input) {
		c, err := rego.CaseOf(name, in)
		if err != nil {
			t.Fatal(err)
		}
		cases = append(cases, c)
	}
	open := func(name string, change func(*rego.Input, *api.SessionOpen)) {
		in := openInput(0)
		in.Request.Principal.Groups = []uint32{100}
		o := in.Request.Open
		o.Labels = map[string]string{"team": "red", "owner": "ann", "address": "192.0.2.1", "tier": "large"}
		o.Limits = api.Limits{PIDs: 5, MemoryBytes: 500}
		o.SessionTTLNS = 50
		o.Target.Local.Mounts = []api.Mount{{HostPath: "/srv/a", GuestPath: "/workspace", Mode: "ro"}}
		in.Facts.Sources["/srv/a"] = rego.Source{Found: &rego.Found{Resolved: "/srv/team/x", Kind: "dir", Ino: 1, OwnerUID: 1000}}
		if change != nil {
			change(&in, o)
		}
		add(name, in)
	}
	exec := func(name string, change func(*rego.Input, *api.Exec)) {
		in := rego.Input{
			Request: &api.Request{Op: api.OpExec, Principal: api.Principal{UID: 1000, GID: 1000}, Facade: "http", Exec: &api.Exec{SessionID: "s", Argv: []string{"/bin/true"}, Cwd: "/workspace/a"}},
			Session: &rego.Session{SessionID: "s", Labels: map[string]string{}, Principal: api.Principal{UID: 1000, GID: 1000}, Grant: &api.Grant{ExpiresNS: 100}},
			NowNS:   50,
		}
		if change != nil {
			change(&in, in.Request.Exec)
		}
		add(name, in)
	}
	open("fits", nil)
	open("blue", func(_ *rego.Input, o *api.SessionOpen) { o.Labels["team"] = "blue" })
	open("many", func(_ *rego.Input, o *api.SessionOpen) { o.Limits.PIDs = 100 })
	open("long", func(_ *rego.Input, o *api.SessionOpen) { o.SessionTTLNS = 200 })
	open("connected", func(_ *rego.Input, o *api.SessionOpen) { o.Target.Local.NetworkMode = "full" })
	open("inward", func(_ *rego.Input, o *api.SessionOpen) { o.Labels["address"] = "10.1.2.3" })
	open("elsewhere", func(in *rego.Input, _ *api.SessionOpen) { in.Facts.Sources["/srv/a"].Found.Resolved = "/srv/other/y" })
	open("background", func(_ *rego.Input, o *api.SessionOpen) { yes := true; o.Background = &yes })
	exec("fits", nil)
	exec("another's", func(in *rego.Input, _ *api.Exec) { in.Session.Principal.UID = 1001 })
	exec("another program", func(_ *rego.Input, x *api.Exec) { x.Argv = []string{"/bin/sh"} })
	exec("late", func(in *rego.Input, _ *api.Exec) { in.NowNS = 200 })
	return cases
}

// TestAuditFindsPlantedHoles: each hole of testdata is found, at its field and its line, and in the policy beside
// it, which has none, none is.
func TestAuditFindsPlantedHoles(t *testing.T) {
	bad, err := filepath.Glob("testdata/holes/*.bad.rego")
	if err != nil || len(bad) < 10 {
		t.Fatalf("%d holes are planted: %v", len(bad), err)
	}
	all := specimens(t)
	for _, file := range bad {
		name := strings.TrimSuffix(filepath.Base(file), ".bad.rego")
		t.Run(name, func(t *testing.T) {
			fsys := planted(t, name+".bad.rego")
			lines := strings.Split(string(fsys["rule.rego"].Data), "\n")
			var cases []rego.Case
			for _, c := range all {
				if strings.Contains(lines[1], strings.Split(c.Entrypoint, ".")[2]) { // the other entry points have no rule of it
					cases = append(cases, c)
				}
			}
			field, effect, _ := strings.Cut(strings.TrimPrefix(lines[0], "# hole: "), " ")
			line := 0
			for i, l := range lines {
				if strings.Contains(l, "# HOLE") {
					line = i + 1
				}
			}
			got, err := load(t, fsys, rego.Options{}).Audit(t.Context(), cases, rego.AuditOptions{})
			if err != nil {
				t.Fatal(err)
			}
			found := false
			for _, h := range got.Holes {
				found = found || h.Field == field && h.Effect == effect && strings.HasPrefix(h.Rule, fmt.Sprintf("rule.rego:%d ", line))
			}
			if !found {
				t.Errorf("not found: %s %s at line %d, in %d", field, effect, line, len(got.Holes))
				for _, h := range got.Holes {
					t.Logf("%s %s %s %v: %s %s", h.Rule, h.Field, h.Effect, h.Change, h.Message, h.Caught)
				}
			}
			got, err = load(t, planted(t, name+".good.rego"), rego.Options{}).Audit(t.Context(), cases, rego.AuditOptions{})
			if err != nil {
				t.Fatal(err)
			}
			for _, h := range got.Holes {
				if h.Level == "error" && strings.HasPrefix(h.Rule, "rule.rego") {
					t.Errorf("where there is none: %s %s %s %v: %s %v", h.Rule, h.Field, h.Effect, h.Change, h.Message, h.Wider)
				}
			}
		})
	}
}
