package rego_test

import (
	"strings"
	"testing"

	"github.com/stockade-dev/stockade/policies"
	"github.com/stockade-dev/stockade/rego"
	"github.com/stockade-dev/stockade/supervisor/api"
)

// TestExplain is R107 for a person: each denial has its rule, and the remedies were tried.
func TestExplain(t *testing.T) {
	e := load(t, policies.FS, rego.Options{})
	for _, row := range []struct {
		name   string
		change func(*rego.Input, *api.Local)
		code   api.Code
		file   string
		remedy string
	}{
		{"another's directory", func(in *rego.Input, _ *api.Local) { in.Facts.Sources["/home/alice/0"].Found.OwnerUID = 33 }, api.CodeMountHostPath, "open/mounts.rego:", "belong to uid 1000"},
		{"where writing is not permitted", func(in *rego.Input, _ *api.Local) { in.Ceiling.ReadWrite = []string{"/srv"} }, api.CodeMountModeNotAllowed, "open/mounts.rego:", "mount /home/alice/0 ro"},
		{"over the system", func(_ *rego.Input, l *api.Local) { l.Mounts[0].GuestPath = "/usr/lib" }, api.CodeMountGuestPath, "open/mounts.rego:", "mount it at /mnt/lib"},
		{"too many", func(in *rego.Input, _ *api.Local) { *in = openInput(65) }, api.CodeMountLimit, "open/mounts.rego:", "at most 64"},
		{"a network", func(_ *rego.Input, l *api.Local) { l.NetworkMode = "full" }, api.CodeNetworkNotAllowed, "open/network.rego:", "network_mode none"},
		{"a destination", func(_ *rego.Input, l *api.Local) {
			l.NetworkMode, l.Egress = "egress", []api.Destination{{Name: "example.org", Ports: []uint16{443}}}
		}, api.CodeDestination, "open/network.rego:", "leave example.org:443 out of egress"},
		{"a prefix", func(_ *rego.Input, l *api.Local) {
			l.NetworkMode, l.Egress = "egress", []api.Destination{{CIDR: "2001:db8::/32", Ports: []uint16{443}}}
		}, api.CodeDestination, "open/network.rego:", "leave 2001:db8::/32:443 out of egress"},
		{"a wall of a hermetic session", func(in *rego.Input, l *api.Local) {
			in.Request.Open.Profile, in.Request.Open.Degraded = "hermetic", []string{"landlock"}
			l.Mounts[0].Mode, l.Root.Dir = "ro", &api.RootDir{Path: "/home/alice/0"}
		}, api.CodeDegradedNotAllowed, "open/proof.rego:", "out of accept_degraded"},
		{"a loader variable", func(_ *rego.Input, l *api.Local) { l.Env = map[string]api.EnvValue{"LD_PRELOAD": {Text: "x"}} }, api.CodeEnvVarNotAllowed, "open/env.rego:", "leave out the variable LD_PRELOAD"},
		{"a hermetic host", func(in *rego.Input, l *api.Local) {
			in.Request.Open.Profile = "hermetic"
			l.Mounts = nil
		}, api.CodeHermeticRoot, "open/root.rego:", "use profile workspace"},
		{"no such profile", func(in *rego.Input, _ *api.Local) { in.Request.Open.Profile = "x" }, api.CodeProfileNotAllowed, "open/profile.rego:", "leave out profile"},
		{"in /proc", func(_ *rego.Input, l *api.Local) { l.Workdir = "/proc" }, api.CodeWorkdirNotAllowed, "open/place.rego:", "leave out workdir"},
	} {
		in := openInput(1)
		row.change(&in, in.Request.Open.Target.Local)
		d, reasons := e.Explain(t.Context(), rego.Open, in)
		if d.Allow || len(reasons) != 1 {
			t.Errorf("%s: allow %v, %+v", row.name, d.Allow, reasons)
			continue
		}
		r := reasons[0]
		if r.Deny.Code != row.code || !strings.HasPrefix(r.Rule, row.file) || r.Title == "" || r.Text == "" {
			t.Errorf("%s: %+v", row.name, r)
		}
		if len(r.Remedies) == 0 || !strings.Contains(r.Remedies[0].Change, row.remedy) || !r.Remedies[0].Sufficient {
			t.Errorf("%s: remedies %+v", row.name, r.Remedies)
		}
	}
	if d, reasons := e.Explain(t.Context(), rego.Open, openInput(1)); !d.Allow || reasons != nil {
		t.Errorf("%v %v", d.Deny, reasons)
	}
}

// TestExplainExec is the same inside a session: a remedy can be another grant of its open.
func TestExplainExec(t *testing.T) {
	e := load(t, policies.FS, rego.Options{})
	for _, row := range []struct {
		name   string
		change func(*api.Exec, *api.Grant)
		code   api.Code
		remedy string
	}{
		{"arguments", func(_ *api.Exec, g *api.Grant) { g.Exec.MaxArgv = 2 }, api.CodeArgvLimit, "exec.max_argv is at least 3"},
		{"a long argument", func(_ *api.Exec, g *api.Grant) { g.Exec.MaxArgBytes = 4 }, api.CodeArgLength, "exec.max_arg_bytes is at least 5"},
		{"variables", func(x *api.Exec, g *api.Grant) { x.EnvPatch["A"], g.Env.Max = api.EnvValue{}, 1 }, api.CodeEnvPatchLimit, "env.max is at least 2"},
		{"a variable", func(_ *api.Exec, g *api.Grant) { g.Env.Allow = []string{"A"} }, api.CodeEnvVarNotAllowed, "leave out the variable GOFLAGS"},
		{"an output mode", func(_ *api.Exec, g *api.Grant) { g.Exec.OutputModes = []string{"require_inline"} }, api.CodeOutputModeNotAllowed, "exec.output_modes includes auto"},
		{"a directory", func(x *api.Exec, g *api.Grant) { x.Cwd, g.Exec.CwdPrefixes = "/srv", []string{"/work"} }, api.CodeCwdNotAllowed, "leave out cwd"},
		{"an artifact", func(x *api.Exec, g *api.Grant) {
			x.Outputs, g.Exec.OutputPrefixes = []string{"/srv/a"}, []string{"/work"}
		}, api.CodeOutputNotAllowed, "exec.output_prefixes includes /srv"},
	} {
		in := execInput(t, e)
		row.change(in.Request.Exec, in.Session.Grant)
		d, reasons := e.Explain(t.Context(), rego.Exec, in)
		if d.Allow || len(reasons) != 1 || reasons[0].Deny.Code != row.code {
			t.Errorf("%s: allow %v, %+v", row.name, d.Allow, reasons)
			continue
		}
		if r := reasons[0].Remedies; len(r) == 0 || !strings.Contains(r[0].Change, row.remedy) || !r[0].Sufficient {
			t.Errorf("%s: remedies %+v", row.name, r)
		}
	}
}

// TestExplainUndefined names what kept a grant from being defined.
func TestExplainUndefined(t *testing.T) {
	e := load(t, tree(`default decision := {"allow": false, "deny": [{"code": "policy.undefined", "subject": "session"}]}
decision := {"allow": true, "deny": [], "grant": grant}
grant := {"root": "host", "hostname": hostname}
hostname := input.request.open.target.local.hostname`), rego.Options{})
	_, reasons := e.Explain(t.Context(), rego.Open, openInput(0))
	if len(reasons) != 1 || len(reasons[0].Missing) == 0 || !strings.Contains(reasons[0].Missing[0], "hostname") {
		t.Errorf("%+v", reasons)
	}
}
