package rego_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stockade-dev/stockade/policies"
	"github.com/stockade-dev/stockade/rego"
	"github.com/stockade-dev/stockade/supervisor/api"
)

// TestLeast: the smallest change of each kind is found by trying, and is as small as it is said to be.
func TestLeast(t *testing.T) {
	e := load(t, policies.FS, rego.Options{Search: 5 * time.Minute}) // what is found is not to depend on who else computes
	for _, row := range []struct {
		name string
		open func(*rego.Input, *api.Local)
		exec func(*api.Exec, *api.Grant)
		want map[string][]string // by what is changed
	}{
		{name: "a destination", open: func(_ *rego.Input, l *api.Local) {
			l.NetworkMode, l.Egress = "egress", []api.Destination{{Name: "example.org", Ports: []uint16{443}}}
		}, want: map[string][]string{
			"request": {"request.open.target.local.egress"},
			"data":    {`profiles.workspace.egress: add {"name":"example.org","ports":[443]}`},
		}},
		{name: "a place inside", open: func(_ *rego.Input, l *api.Local) { l.Mounts[0].GuestPath = "/opt/x" }, want: map[string][]string{
			"request": {`request.open.target.local.mounts.0.guest_path: "/workspace/x" in place of "/opt/x"`},
			"data":    {`profiles.workspace.mounts.guest_prefixes: add "/opt/x/"`},
		}},
		{name: "the host's state", open: func(in *rego.Input, _ *api.Local) { in.Facts.Sources["/home/alice/0"].Found.Resolved = "/etc/ssh" }, want: map[string][]string{
			"request": {"request.open.target.local.mounts.0: without"},
			"data":    {`host_paths.public: add "/etc/ssh/"`},
		}},
		{name: "arguments and a directory", exec: func(x *api.Exec, g *api.Grant) {
			x.Argv, g.Exec.MaxArgv = []string{"a", "b", "c", "d"}, 2
			x.Cwd, g.Exec.CwdPrefixes = "/srv/x", []string{"/work"}
		}, want: map[string][]string{"grant": {`session.grant.exec.cwd_prefixes: add "/srv/x/"`, "session.grant.exec.max_argv: 4 in place of 2"}}},
		{name: "a file from elsewhere", exec: func(x *api.Exec, g *api.Grant) {
			x.Outputs, g.Exec.OutputPrefixes = []string{"/srv/a"}, []string{"/work"}
		},
			want: map[string][]string{"request": {`request.exec.outputs.0: without`}, "grant": {`session.grant.exec.output_prefixes: add "/srv/`}}},
	} {
		t.Run(row.name, func(t *testing.T) {
			in, ref := openInput(1), rego.Open
			if row.open != nil {
				row.open(&in, in.Request.Open.Target.Local)
			} else {
				in, ref = execInput(t, e), rego.Exec
				row.exec(in.Request.Exec, in.Session.Grant)
			}
			got, given, err := e.Least(t.Context(), ref, in)
			if err != nil {
				t.Fatal(err)
			}
			for _, g := range given {
				if row.want[g.Of] != nil {
					t.Errorf("given up: %+v", g)
				}
			}
			found := map[string][]string{}
			for _, l := range got {
				for _, c := range l.Changes {
					found[l.Of] = append(found[l.Of], c.String())
				}
			}
			for of, want := range row.want {
				if len(found[of]) != len(want) {
					t.Errorf("%s: %q", of, found[of])
					continue
				}
				for i := range want {
					if !strings.HasPrefix(found[of][i], want[i]) {
						t.Errorf("%s: %q, want %q", of, found[of][i], want[i])
					}
				}
			}
		})
	}
	if got, given, err := e.Least(t.Context(), rego.Open, openInput(1)); err != nil || got != nil || given != nil {
		t.Errorf("allowed as it is: %v %v %v", got, given, err)
	}
}

// A search that has no time says so, of each kind that an open has: that nothing was found is not that there is nothing.
func TestLeastGivenUp(t *testing.T) {
	e := load(t, policies.FS, rego.Options{Search: time.Nanosecond})
	in := openInput(1)
	in.Request.Open.Target.Local.Mounts[0].GuestPath = "/opt/x" // which has an answer: TestLeast
	found, given, err := e.Least(t.Context(), rego.Open, in)
	if err != nil || len(found) > 0 {
		t.Fatalf("%v, %v", found, err)
	}
	var of []string
	for _, g := range given {
		of = append(of, g.Of)
	}
	if want := "request, data, ceiling, data and ceiling"; strings.Join(of, ", ") != want {
		t.Errorf("given up: %q, want %s", of, want)
	}
}
