package rego_test

import (
	"context"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/stockade-dev/stockade/policies"
	"github.com/stockade-dev/stockade/rego"
	"github.com/stockade-dev/stockade/sandbox"
	"github.com/stockade-dev/stockade/supervisor/api"
)

// tree is a policy whose open says what is given; the other entry points allow.
func tree(open string) fstest.MapFS {
	files := fstest.MapFS{"open.rego": {Data: []byte("package stockade.open\n\n" + open)}}
	for _, name := range []string{"exec", "signal", "blob", "read"} {
		files[name+".rego"] = &fstest.MapFile{Data: fmt.Appendf(nil, "package stockade.%s\n\ndecision := {\"allow\": true, \"deny\": []}\n", name)}
	}
	return files
}

func load(t testing.TB, fsys fs.FS, opts rego.Options) *rego.Engine {
	t.Helper()
	if opts.Deadline == 0 {
		opts.Deadline = 10 * time.Second // this machine may be busy; one test is about deadlines
	}
	e, err := rego.Load(fsys, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return e
}

// openInput asks for a session with so many mounts of the caller's own directories.
func openInput(mounts int) rego.Input {
	open := &api.SessionOpen{Target: api.Target{Local: &api.Local{}}}
	in := rego.Input{
		Request: &api.Request{Op: api.OpSessionOpen, Principal: api.Principal{UID: 1000, GID: 1000}, Facade: "http", Open: open},
		Facts:   rego.Facts{Sources: map[string]rego.Source{}},
		Ceiling: sandbox.DefaultCeiling(),
		NowNS:   1_700_000_000_000_000_000,
	}
	for i := range mounts {
		host := fmt.Sprintf("/home/alice/%d", i)
		open.Target.Local.Mounts = append(open.Target.Local.Mounts, api.Mount{HostPath: host, GuestPath: fmt.Sprintf("/workspace/%d", i), Mode: "rw"})
		in.Facts.Sources[host] = rego.Source{Found: &rego.Found{Resolved: host, Kind: "dir", Dev: 1, Ino: 100, OwnerUID: 1000, Mode: 0o755}}
	}
	return in
}

// grantText is a grant that is well formed and within the default ceiling.
const grantText = `{
	"root": "host", "mounts": [], "scratch": [], "identity": {"uid": 1000, "gid": 1000},
	"ceilings": {"memory_bytes": 1000, "cpu_millis": 100, "pids": 10, "files": 10, "output_bytes": 100, "executions": 1},
	"seccomp": "default", "network": {"mode": "none"}, "env": {}, "exec": {}, "workdir": "/", "hostname": "h",
}`

// TestFailuresAreDenials is R108: whatever goes wrong with a policy, the answer is a
// denial with a code of its own.
func TestFailuresAreDenials(t *testing.T) {
	grantWith := func(member, value string) string {
		g := `json.patch(` + grantText + `, [{"op": "add", "path": "` + member + `", "value": ` + value + `}])`
		return `decision := {"allow": true, "deny": [], "grant": ` + g + `}`
	}
	for _, row := range []struct {
		name, open string
		code       api.Code
	}{
		{"allowed", `decision := {"allow": true, "deny": [], "grant": ` + grantText + `}`, ""},
		{"undefined", `decision := {"allow": true} if input.session.session_id == "x"`, api.CodePolicyUndefined},
		{"false", `decision := false`, api.CodePolicyResult},
		{"a string", `decision := "yes"`, api.CodePolicyResult},
		{"no allow", `decision := {"deny": []}`, api.CodePolicyResult},
		{"allow is a string", `decision := {"allow": "true", "deny": []}`, api.CodePolicyResult},
		{"allow is null", `decision := {"allow": null, "deny": []}`, api.CodePolicyResult},
		{"unknown member", `decision := {"allow": true, "deny": [], "grants": {}}`, api.CodePolicyResult},
		{"wrong case", `decision := {"Allow": true, "deny": []}`, api.CodePolicyResult},
		{"two answers", "decision := {\"allow\": true} if input.now_ns > 0\ndecision := {\"allow\": false} if input.now_ns > 1", api.CodePolicyNotOneResult},
		{"a builtin fails", `decision := {"allow": true, "deny": [], "grant": ` + grantText + `} if not net.cidr_contains("10.0.0.0/8", "10.0.0.300")`, api.CodePolicyBuiltinError},
		{"no grant", `decision := {"allow": true, "deny": []}`, api.CodePolicyNoGrant},
		{"denied without a reason", `decision := {"allow": false, "deny": []}`, api.CodePolicyDenied},
		{"a reason without a code", `decision := {"allow": false, "deny": [{"message": "no"}]}`, api.CodePolicyResult},
		{"allowed with a reason against it", `decision := {"allow": true, "deny": {{"code": "x"}}, "grant": ` + grantText + `}`, "x"},
		{"limits of an open", `decision := {"allow": true, "deny": [], "limits": {}, "grant": ` + grantText + `}`, api.CodePolicyResult},
		{"unknown member of the grant", grantWith("/privileged", "true"), api.CodePolicyResult},
		{"unknown member deep in the grant", grantWith("/identity/root", "true"), api.CodePolicyResult},
		{"negative number", grantWith("/ceilings/pids", "-1"), api.CodePolicyResult},
		{"fraction", grantWith("/ceilings/pids", "1.5"), api.CodePolicyResult},
		{"beyond 64 bits", grantWith("/ceilings/pids", "99999999999999999999"), api.CodePolicyResult},
		{"mode of a mount", grantWith("/mounts", `[{"host_path": "/a", "guest_path": "/b", "mode": "rwx"}]`), api.CodePolicyResult},
		{"relative mount", grantWith("/mounts", `[{"host_path": "a", "guest_path": "/b", "mode": "ro"}]`), api.CodePolicyResult},
		{"climbing mount", grantWith("/mounts", `[{"host_path": "/a/../b", "guest_path": "/b", "mode": "ro"}]`), api.CodePolicyResult},
		{"unknown root", grantWith("/root", `"image"`), api.CodePolicyResult},
		{"scratch without a size", grantWith("/scratch", `[{"guest_path": "/tmp", "bytes": 0, "inodes": 1}]`), api.CodePolicyResult},
		{"a name that is none", grantWith("/env/set", `{"A=B": "x"}`), api.CodePolicyResult},
		{"an idle time", grantWith("/idle_timeout_ns", "99"), ""},
		{"negative idle time", grantWith("/idle_timeout_ns", "-1"), api.CodePolicyResult},
		{"negative queue", grantWith("/ceilings/queued", "-1"), api.CodePolicyResult},
		{"no queue", grantWith("/exec/queue", "false"), ""},
		{"unknown fate at a restart", grantWith("/on_restart", `"keep"`), api.CodePolicyResult},
		{"ended at a restart", grantWith("/on_restart", `"terminate"`), ""},
		{"an overlay without room", grantWith("/mounts", `[{"host_path": "/a", "guest_path": "/b", "mode": "overlay"}]`), api.CodePolicyResult},
		{"an overlay without inodes", grantWith("/mounts", `[{"host_path": "/a", "guest_path": "/b", "mode": "overlay", "bytes": 1}]`), api.CodePolicyResult},
		{"room of what is no overlay", grantWith("/mounts", `[{"host_path": "/a", "guest_path": "/b", "mode": "rw", "bytes": 1}]`), api.CodePolicyResult},
		{"paths protected from nobody", grantWith("/mounts", `[{"host_path": "/a", "guest_path": "/b", "mode": "ro", "protect": ["x"]}]`), api.CodePolicyResult},
		{"a protected path that climbs", grantWith("/mounts", `[{"host_path": "/a", "guest_path": "/b", "mode": "rw", "protect": ["../x"]}]`), api.CodePolicyResult},
		{"a protected path that is not relative", grantWith("/mounts", `[{"host_path": "/a", "guest_path": "/b", "mode": "rw", "protect": ["/x"]}]`), api.CodePolicyResult},
		{"a protected path twice", grantWith("/mounts", `[{"host_path": "/a", "guest_path": "/b", "mode": "rw", "protect": ["x", "x"]}]`), api.CodePolicyResult},
		{"a path protected as nothing", grantWith("/mounts", `[{"host_path": "/a", "guest_path": "/b", "mode": "rw", "protect": [""]}]`), api.CodePolicyResult},
		{"destinations of no network", grantWith("/network", `{"mode": "none", "allow": [{"name": "example.org"}]}`), api.CodePolicyResult},
		{"a destination that is none", grantWith("/network", `{"mode": "egress", "allow": [{"name": "127.1"}]}`), api.CodePolicyResult},
		{"the names of everybody", grantWith("/network", `{"mode": "egress", "allow": [{"name": "*.co.uk"}]}`), api.CodePolicyResult},
		{"a prefix that is not masked", grantWith("/network", `{"mode": "egress", "allow": [{"cidr": "192.0.2.1/24"}]}`), api.CodePolicyResult},
		{"ports that name nothing", grantWith("/network", `{"mode": "egress", "allow": [{"name": "example.org", "ports": []}]}`), api.CodePolicyResult},
		{"a port beyond 16 bits", grantWith("/network", `{"mode": "egress", "allow": [{"name": "example.org", "ports": [65536]}]}`), api.CodePolicyResult},
		{"without a wall that is none", grantWith("/accept_degraded", `["seccomp filter"]`), api.CodePolicyResult},
		{"proof of another kind", grantWith("/verify", `"all"`), api.CodePolicyResult},
		{"proof that nobody asked for", grantWith("/verify", `"canary"`), ""},
		{"negative disk", grantWith("/ceilings/disk_bytes", "-1"), api.CodePolicyResult},
		{"disk that is enough", grantWith("/ceilings/disk_bytes", "1"), ""},

		{"more memory", grantWith("/ceilings/memory_bytes", "9000000000"), api.CodeGrantExceeds},
		{"more processes", grantWith("/ceilings/pids", "5000"), api.CodeGrantExceeds},
		{"longer life", grantWith("/ttl_ns", "999999999999999"), api.CodeGrantExceeds},
		{"longer timeout", grantWith("/exec/max_timeout_ns", "999999999999999"), api.CodeGrantExceeds},
		{"more scratch in sum", grantWith("/scratch", `[{"guest_path": "/a", "bytes": 5000000000, "inodes": 1}, {"guest_path": "/b", "bytes": 5000000000, "inodes": 1}]`), api.CodeGrantExceeds},
		{"a network", grantWith("/network/mode", `"full"`), api.CodeGrantExceeds},
		{"a network that was not asked for", grantWith("/network", `{"mode": "egress", "allow": [{"name": "example.org"}]}`), api.CodeGrantExceeds},
		{"without a wall that the caller wants", grantWith("/accept_degraded", `["landlock"]`), api.CodeGrantExceeds},
		{"scratch beyond its own ceiling", "decision := {\"allow\": true, \"deny\": [], \"grant\": json.patch(" + grantText + `, [
			{"op": "add", "path": "/scratch", "value": [{"guest_path": "/a", "bytes": 5, "inodes": 5}, {"guest_path": "/b", "bytes": 5, "inodes": 5}]},
			{"op": "add", "path": "/ceilings/disk_inodes", "value": 9}])}`, api.CodeGrantExceeds},
		{"no seccomp profile", grantWith("/seccomp", `""`), api.CodeGrantExceeds},
		{"a capability", grantWith("/identity/capabilities", `["CAP_NET_RAW"]`), api.CodeGrantExceeds},
		{"uid 0", grantWith("/identity/uid", "0"), api.CodeGrantExceeds},
		{"init's uid", grantWith("/identity/uid", "65535"), api.CodeGrantExceeds},
		{"group 0", grantWith("/identity/groups", "[0]"), api.CodeGrantExceeds},
		{"a mount that was not asked for", grantWith("/mounts", `[{"host_path": "/a", "guest_path": "/b", "mode": "ro"}]`), api.CodeGrantExceeds},
	} {
		t.Run(row.name, func(t *testing.T) {
			d := load(t, tree(row.open), rego.Options{}).Decide(t.Context(), rego.Open, openInput(0))
			if d.Allow != (row.code == "") || d.Allow != (d.Grant != nil) {
				t.Fatalf("allow %v, grant %v, deny %v", d.Allow, d.Grant, d.Deny)
			}
			if row.code != "" && (len(d.Deny) == 0 || d.Deny[0].Code != row.code) {
				t.Errorf("denied with %v, not %s", d.Deny, row.code)
			}
		})
	}
}

// TestIdentities: who somebody is inside is one number within the range of a session's, and nothing that others read as one (T028,
// CVE-2016-3697, CVE-2024-40635). Control: the number of an ordinary user in the same place is granted, and what is left of some of the others in
// 32 bits is root.
func TestIdentities(t *testing.T) {
	granted := func(uid string) rego.Decision {
		policy := `decision := {"allow": true, "deny": [], "grant": object.union(` + grantText + `, {"identity": {"uid": ` + uid + `, "gid": 1000}})}`
		return load(t, tree(policy), rego.Options{}).Decide(t.Context(), rego.Open, openInput(0))
	}
	roots := 0
	for _, uid := range []string{"4294967296", "2147483648", "-1", "0", "65535", "65536", "1000.5", "1e20", "null", `"4294967296"`, `"1000"`, `"0x0"`, `"root"`, `"1000:0"`, `"١٠٠٠"`, `[1000]`} {
		d := granted(uid)
		if d.Allow || len(d.Deny) == 0 || d.Deny[0].Code != api.CodePolicyResult && d.Deny[0].Code != api.CodeGrantExceeds {
			t.Errorf("uid %s: %v %+v", uid, d.Allow, d.Deny)
		}
		if n, err := strconv.ParseInt(strings.Trim(uid, `"`), 0, 64); err == nil && uint32(n) == 0 {
			roots++
		}
	}
	if d := granted("1000"); !d.Allow || roots < 4 {
		t.Errorf("control: %+v, and %d are root elsewhere", d.Deny, roots)
	}
}

// TestGrantOfMounts is the ceiling on host paths: facts count, not names.
func TestGrantOfMounts(t *testing.T) {
	policy := `decision := {"allow": true, "deny": [], "grant": object.union(` + grantText + `, {"mounts": input.request.open.target.local.mounts})}`
	e := load(t, tree(policy), rego.Options{})
	for _, row := range []struct {
		name   string
		change func(*rego.Input)
		allow  bool
	}{
		{"as it is", func(*rego.Input) {}, true},
		{"outside the mount roots", func(in *rego.Input) { in.Ceiling.MountRoots = []string{"/srv", "/home/alice/00"} }, false},
		{"inside the mount roots", func(in *rego.Input) { in.Ceiling.MountRoots = []string{"/home"} }, true},
		{"no mount roots at all", func(in *rego.Input) { in.Ceiling.MountRoots = []string{} }, false},
		{"mount roots unconstrained", func(in *rego.Input) { in.Ceiling.MountRoots = nil }, true},
		{"rw outside read_write", func(in *rego.Input) { in.Ceiling.ReadWrite = []string{"/srv"} }, false},
		{"a link to elsewhere", func(in *rego.Input) { in.Facts.Sources["/home/alice/0"].Found.Resolved = "/proc/1/root" }, false},
		{"above what is denied", func(in *rego.Input) { in.Facts.Sources["/home/alice/0"].Found.Resolved = "/" }, false},
		{"not resolved", func(in *rego.Input) { in.Facts.Sources["/home/alice/0"] = rego.Source{Error: "mount_source"} }, false},
		{"no facts", func(in *rego.Input) { in.Facts.Sources = nil }, false},
		{"too many", func(in *rego.Input) { *in = openInput(65) }, false},
	} {
		in := openInput(1)
		row.change(&in)
		if d := e.Decide(t.Context(), rego.Open, in); d.Allow != row.allow {
			t.Errorf("%s: allow %v %v", row.name, d.Allow, d.Deny)
		}
	}
}

// TestGrantOfModes (R083, R086): what a policy may make of a mount that was asked for, and what the disk bounds.
func TestGrantOfModes(t *testing.T) {
	const room = `, "bytes": 10, "inodes": 10`
	for _, row := range []struct {
		name, asked, mount string // the granted mount's mode and what follows it
		ceilings           string // "" is none
		allow              bool
		warn               string
	}{
		{"rw as asked", "rw", `"rw"`, "", true, ""},
		{"an overlay in place of rw", "rw", `"overlay"` + room, "", true, "mount /workspace/0: asked for rw, granted overlay"},
		{"ro in place of rw", "rw", `"ro"`, "", true, "asked for rw, granted ro"},
		{"an overlay as asked", "overlay", `"overlay"` + room, "", true, ""},
		{"ro in place of an overlay", "overlay", `"ro"`, "", true, "asked for overlay, granted ro"},
		{"rw in place of an overlay", "overlay", `"rw"`, "", false, ""},
		{"rw in place of ro", "ro", `"rw"`, "", false, ""},
		{"an overlay in place of ro", "ro", `"overlay"` + room, "", false, ""},
		{"an overlay within the disk", "overlay", `"overlay"` + room, `{"disk_bytes": 10, "disk_inodes": 10}`, true, ""},
		{"an overlay beyond the disk", "overlay", `"overlay"` + room, `{"disk_bytes": 9}`, false, ""},
		{"an overlay beyond the inodes", "overlay", `"overlay"` + room, `{"disk_inodes": 9}`, false, ""},
		{"rw beside a ceiling of disk, which nothing holds", "rw", `"rw"`, `{"disk_bytes": 1000}`, false, ""},
		{"ro beside a ceiling of disk", "rw", `"ro"`, `{"disk_bytes": 1000}`, true, "granted ro"},
	} {
		ceilings := row.ceilings
		if ceilings == "" {
			ceilings = "{}"
		}
		policy := `grant := object.union(` + grantText + `, {"mounts": [{"host_path": "/home/alice/0", "guest_path": "/workspace/0", "mode": ` + row.mount + `}], "ceilings": ` + ceilings + `})
decision := {"allow": true, "deny": [], "grant": grant}`
		in := openInput(1)
		in.Request.Open.Target.Local.Mounts[0].Mode = row.asked
		d := load(t, tree(policy), rego.Options{}).Decide(t.Context(), rego.Open, in)
		if d.Allow != row.allow || !d.Allow && d.Deny[0].Code != api.CodeGrantExceeds {
			t.Errorf("%s: %v %v", row.name, d.Allow, d.Deny)
		}
		if warned := strings.Join(d.Warn, "\n"); !strings.Contains(warned, row.warn) || row.warn == "" && warned != "" {
			t.Errorf("%s: warns %q", row.name, warned)
		}
		if !d.Allow && row.ceilings != "" && !strings.Contains(d.Deny[0].Message, "overlay") {
			t.Errorf("%s: %q does not help", row.name, d.Deny[0].Message)
		}
	}
}

// TestGrantOfNetworks (R084): a policy grants destinations that were asked for, or parts of them, none of a range
// that the operator denies, and no mode above the ceiling's.
func TestGrantOfNetworks(t *testing.T) {
	for _, row := range []struct {
		name    string
		mode    string
		asked   []api.Destination
		granted string
		allow   bool
	}{
		{"what was asked for", "egress", []api.Destination{{Name: "a.org"}}, `{"mode": "egress", "allow": [{"name": "a.org"}]}`, true},
		{"a part of it", "egress", []api.Destination{{Name: "*.a.org"}}, `{"mode": "egress", "allow": [{"name": "x.a.org", "ports": [443]}]}`, true},
		{"more than it", "egress", []api.Destination{{Name: "x.a.org"}}, `{"mode": "egress", "allow": [{"name": "*.a.org"}]}`, false},
		{"something beside it", "egress", []api.Destination{{Name: "a.org"}}, `{"mode": "egress", "allow": [{"name": "a.org"}, {"name": "b.org"}]}`, false},
		{"anything, when nothing is named", "egress", nil, `{"mode": "egress", "allow": [{"name": "b.org"}]}`, true},
		{"less than was asked for", "egress", []api.Destination{{Name: "a.org"}}, `{"mode": "none"}`, true}, // and refused by the meet
		{"by address alone", "egress", []api.Destination{{Name: "a.org"}}, `{"mode": "egress", "allow": [{"name": "a.org", "protocol": "tcp"}]}`, false},
		{"all of the internet", "egress", nil, `{"mode": "egress", "allow": [{"cidr": "0.0.0.0/0"}]}`, true},
		{"the host's loopback", "egress", nil, `{"mode": "egress", "allow": [{"cidr": "127.0.0.0/8"}]}`, false},
		{"the provider's metadata", "egress", nil, `{"mode": "egress", "allow": [{"cidr": "169.254.169.254/32"}]}`, false},
		{"a private range that nobody denies", "egress", nil, `{"mode": "egress", "allow": [{"cidr": "10.0.0.0/8"}]}`, true},
		{"a mode above the one asked for", "egress", nil, `{"mode": "full"}`, false},
		{"a mode above the ceiling's", "full", nil, `{"mode": "full"}`, false},
		{"no mode", "none", nil, `{"mode": ""}`, false},
	} {
		policy := `decision := {"allow": true, "deny": [], "grant": object.union(` + grantText + `, {"network": ` + row.granted + `})}`
		in := openInput(0)
		in.Request.Open.Target.Local.NetworkMode, in.Request.Open.Target.Local.Egress = row.mode, row.asked
		if d := load(t, tree(policy), rego.Options{}).Decide(t.Context(), rego.Open, in); d.Allow != row.allow {
			t.Errorf("%s: %v %v", row.name, d.Allow, d.Deny)
		}
	}
}

// TestProtectedSources (T178): a path that is protected below a mount is not got at by mounting it, or what leads
// to it, by itself; each has a twin that only looks like it.
func TestProtectedSources(t *testing.T) {
	e := load(t, policies.FS, rego.Options{})
	for resolved, refused := range map[string]bool{
		"/home/alice/p":                 false,
		"/home/alice/p/.git":            true,
		"/home/alice/p/.gitea":          false,
		"/home/alice/p/x.git":           false,
		"/home/alice/p/.git/hooks":      true,
		"/home/alice/p/.git/hooks/deep": true,
		"/home/alice/p/.git/hooks.d":    false,
		"/home/alice/p/.git/refs":       false,
		"/home/alice/p/.vscode":         true,
		"/home/alice/p/a/.vscode/b":     true,
		"/home/alice/p/.vscodex":        false,
		"/home/alice/p/.envrc":          true,
		"/home/alice/p/mise.toml.d":     false,
	} {
		for _, mode := range []string{"ro", "rw", "overlay"} {
			for _, kind := range []string{"dir", "file"} {
				in := openInput(1)
				in.Request.Open.Target.Local.Mounts[0].Mode = mode
				in.Facts.Sources["/home/alice/0"].Found.Resolved, in.Facts.Sources["/home/alice/0"].Found.Kind = resolved, kind
				d := e.Decide(t.Context(), rego.Open, in)
				if want := mode == "ro" || !refused && !(mode == "overlay" && kind == "file"); d.Allow != want {
					t.Errorf("%s %s %s: %v %v", mode, kind, resolved, d.Allow, d.Deny)
				} else if !want && d.Deny[0].Code != api.CodeMountModeNotAllowed {
					t.Errorf("%s %s %s: %v", mode, kind, resolved, d.Deny)
				}
			}
		}
	}
}

// TestPolicyOfBefore: a policy that was written before there were overlays decides as it did, and denies what it
// was never asked about.
func TestPolicyOfBefore(t *testing.T) {
	e := load(t, tree(`decision := {"allow": true, "deny": [], "grant": `+grantText+`}`), rego.Options{})
	if d := e.Decide(t.Context(), rego.Open, openInput(0)); !d.Allow {
		t.Error(d.Deny)
	}
	d := e.Decide(t.Context(), rego.Workspace, rego.Input{Request: &api.Request{Op: api.OpWorkspaceCommit}})
	if d.Allow || d.Deny[0].Code != api.CodePolicyUndefined {
		t.Errorf("%v %v", d.Allow, d.Deny)
	}
}

func TestExecLimits(t *testing.T) {
	files := tree(`decision := {"allow": false, "deny": []}`)
	grant := &api.Grant{Exec: api.GrantExec{MaxTimeoutNS: 100}, Ceilings: api.Ceilings{MemoryBytes: 10, PIDs: 10}}
	for answer, code := range map[string]api.Code{
		`{"allow": true, "deny": [], "limits": {"timeout_ns": 100}, "obligations": {"output": "blob"}}`: "",
		`{"allow": true, "deny": [], "limits": {"timeout_ns": 101}}`:                                    api.CodeGrantExceeds,
		`{"allow": true, "deny": [], "limits": {"memory_bytes": 11}}`:                                   api.CodeGrantExceeds,
		`{"allow": true, "deny": [], "limits": {"timeout_ns": 100, "pids": 11}}`:                        api.CodeGrantExceeds,
		`{"allow": true, "deny": [], "limits": {"cpu_time_ns": -1}}`:                                    api.CodeGrantExceeds,
		`{"allow": true, "deny": [], "limits": {"timeout_ns": -1}}`:                                     api.CodeGrantExceeds,
		`{"allow": true, "deny": [], "obligations": {"output": "discard"}}`:                             api.CodePolicyResult,
		`{"allow": true, "deny": [], "grant": ` + grantText + `}`:                                       api.CodePolicyResult,
	} {
		files["exec.rego"] = &fstest.MapFile{Data: []byte("package stockade.exec\n\ndecision := " + answer)}
		d := load(t, files, rego.Options{}).Decide(t.Context(), rego.Exec, rego.Input{Request: &api.Request{Op: api.OpExec}, Session: &rego.Session{Grant: grant}})
		if d.Allow != (code == "") || code != "" && d.Deny[0].Code != code {
			t.Errorf("%s: %v %v", answer, d.Allow, d.Deny)
		}
		if d.Allow && (d.Limits.TimeoutNS != 100 || d.Obligations.Output != "blob") {
			t.Errorf("%+v", d)
		}
	}
}

// R091: an obligation to wait is closed, bounded, and for what can wait.
func TestRequireApproval(t *testing.T) {
	grant := &api.Grant{Exec: api.GrantExec{MaxTimeoutNS: 100}}
	const whole = `{"reason": "r", "timeout_ns": 1000, "approvers": {"uids": [0], "gids": [4]}, "allow_own": true}`
	for _, row := range []struct{ pkg, require string }{
		{"exec", ""}, {"signal", ""}, {"workspace", ""},
		{"exec", `{"reason": "r", "timeout_ns": 1}`},
		{"exec", `{"reason": "r", "timeout_ns": 0}`},
		{"exec", `{"reason": "r", "timeout_ns": -1}`},
		{"exec", `{"reason": "r", "timeout_ns": 604800000000001}`},
		{"exec", `{"reason": "r"}`},
		{"exec", `{"reason": "", "timeout_ns": 1}`},
		{"exec", `{"reason": 7, "timeout_ns": 1}`},
		{"exec", `{"reason": "r", "timeout_ns": 1, "approvers": {}}`},
		{"exec", `{"reason": "r", "timeout_ns": 1, "approvers": {"uids": [-1]}}`},
		{"exec", `{"reason": "r", "timeout_ns": 1, "approvers": {"users": ["root"]}}`},
		{"exec", `{"reason": "r", "timeout_ns": 1, "approvers": {"uids": [` + strings.Repeat("1, ", 64) + `1]}}`},
		{"exec", `{"reason": "r", "timeout_ns": 1, "own": true}`},
		{"exec", `true`},
		{"read", whole}, {"blob", whole}, {"approval", whole},
	} {
		fine := row.require == "" || row.require == `{"reason": "r", "timeout_ns": 1}`
		require := row.require
		if require == "" {
			require = whole
		}
		files := tree(`decision := {"allow": false, "deny": []}`)
		files[row.pkg+".rego"] = &fstest.MapFile{Data: []byte("package stockade." + row.pkg + "\n\ndecision := {\"allow\": true, \"deny\": [], \"obligations\": {\"require_approval\": " + require + "}}")}
		d := load(t, files, rego.Options{}).Decide(t.Context(), "data.stockade."+row.pkg+".decision", rego.Input{Request: &api.Request{}, Session: &rego.Session{Grant: grant}})
		if d.Allow != fine || !fine && d.Deny[0].Code != api.CodePolicyResult || fine != (d.Obligations.RequireApproval != nil) {
			t.Errorf("%s %s: %v %v", row.pkg, row.require, d.Allow, d.Deny)
		}
	}
}

func TestLoad(t *testing.T) {
	allow := `decision := {"allow": true}`
	for _, row := range []struct {
		name   string
		change func(fstest.MapFS)
		says   string
	}{
		{"syntax", func(f fstest.MapFS) { f["x.rego"] = &fstest.MapFile{Data: []byte("package x\n\nallow if {")} }, "x.rego:3"},
		{"Rego v0", func(f fstest.MapFS) { f["x.rego"] = &fstest.MapFile{Data: []byte("package x\n\nallow { true }")} }, "x.rego:3"},
		{"forbidden builtin", func(f fstest.MapFS) { f["x.rego"] = &fstest.MapFile{Data: []byte("package x\n\ny := opa.runtime()")} }, "x.rego:3: builtin opa.runtime is not available"},
		{"misspelt member of the input", func(f fstest.MapFS) {
			f["x.rego"] = &fstest.MapFile{Data: []byte("package x\n\ny if input.request.open.lables.x")}
		}, "x.rego:3: undefined ref: input.request.open.lables.x"},
		{"entry point missing", func(f fstest.MapFS) { delete(f, "exec.rego") }, "entry point data.stockade.exec.decision is not defined"},
		{"entry point elsewhere", func(f fstest.MapFS) {
			f["exec.rego"] = &fstest.MapFile{Data: []byte("package stockade.exec\n\nanswer := 1")}
		}, "data.stockade.exec.decision"},
		{"data that is no object", func(f fstest.MapFS) { f["d/data.json"] = &fstest.MapFile{Data: []byte("[]")} }, "d/data.json: data must be an object"},
		{"doubled member", func(f fstest.MapFS) { f["d/data.json"] = &fstest.MapFile{Data: []byte(`{"a": 1, "a": 2}`)} }, "d/data.json"},
		{"two documents", func(f fstest.MapFS) { f["d/data.json"] = &fstest.MapFile{Data: []byte(`{} {}`)} }, "d/data.json"},
		{"data set twice", func(f fstest.MapFS) {
			f["d/a.json"] = &fstest.MapFile{Data: []byte(`{"a": 1}`)}
			f["d/b.json"] = &fstest.MapFile{Data: []byte(`{"a": 2}`)}
		}, "d/b.json: sets a member of data that another file sets"},
		{"data over rules", func(f fstest.MapFS) {
			f["stockade/open/data.json"] = &fstest.MapFile{Data: []byte(`{"decision": {"allow": true}}`)}
		}, "open.rego:3"},
	} {
		f := tree(allow)
		row.change(f)
		if _, err := rego.Load(f, rego.Options{}); err == nil || !strings.Contains(err.Error(), row.says) {
			t.Errorf("%s: %v", row.name, err)
		}
	}
}

// TestNothingLeavesTheEvaluation names builtins that must never be available.
func TestNothingLeavesTheEvaluation(t *testing.T) {
	have := map[string]bool{}
	for _, b := range rego.Capabilities().Builtins {
		have[b.Name] = true
	}
	for _, name := range strings.Fields(`http.send net.lookup_ip_addr opa.runtime rand.intn uuid.rfc4122 crypto.sha256
		crypto.hmac.sha256 io.jwt.decode providers.aws.sign_req json.match_schema graph.reachable_paths bits.lsh
		regex.find_n regex.find_all_string_submatch_n regex.split regex.replace regex.globs_match net.cidr_expand
		numbers.range yaml.unmarshal graphql.parse strings.render_template rego.parse_module trace`) {
		if have[name] {
			t.Errorf("%s is available", name)
		}
	}
	if !have["sprintf"] || !have["time.now_ns"] {
		t.Error("the list of builtins is broken")
	}
}

func TestDigest(t *testing.T) {
	allow := tree(`decision := {"allow": true}`)
	first := load(t, allow, rego.Options{}).Digest()
	if again := load(t, allow, rego.Options{}).Digest(); again != first || !strings.HasPrefix(first, "sha256:") {
		t.Errorf("%s and %s", first, again)
	}
	allow["x_test.rego"] = &fstest.MapFile{Data: []byte("package x_test\n\ntest_x := true")}
	allow["notes.txt"] = &fstest.MapFile{Data: []byte("x")}
	if with := load(t, allow, rego.Options{}).Digest(); with != first {
		t.Error("what does not decide changes the digest")
	}
	allow["d/data.json"] = &fstest.MapFile{Data: []byte("{}")}
	if with := load(t, allow, rego.Options{}).Digest(); with == first {
		t.Error("data does not change the digest")
	}
}

// TestSameInputSameDecision is R080: there is no clock but the one in the input.
func TestSameInputSameDecision(t *testing.T) {
	e := load(t, tree(`decision := {"allow": false, "deny": [{"code": sprintf("at_%d", [time.now_ns()])}]}`), rego.Options{})
	in := openInput(3)
	first := e.Decide(t.Context(), rego.Open, in)
	if first.Deny[0].Code != "at_1700000000000000000" {
		t.Errorf("%v", first.Deny)
	}
	var decoded rego.Input
	if err := json.Unmarshal(first.Input, &decoded, json.RejectUnknownMembers(true)); err != nil {
		t.Fatal(err)
	}
	again := e.Decide(t.Context(), rego.Open, decoded)
	if again.InputDigest != first.InputDigest || again.Deny[0] != first.Deny[0] {
		t.Errorf("decided again from its record: %v, not %v", again.Deny, first.Deny)
	}
}

func TestRulesAreNamed(t *testing.T) {
	e := load(t, policies.FS, rego.Options{})
	d := e.Decide(t.Context(), rego.Open, openInput(1))
	if !d.Allow {
		t.Fatal(d.Deny)
	}
	rules := strings.Join(d.Policy.Rules, "\n")
	for _, name := range []string{"stockade.open.decision", "stockade.open.grant"} {
		if !strings.Contains(rules, " "+name) {
			t.Errorf("%s is not among the rules that were evaluated:\n%s", name, rules)
		}
	}
	in := openInput(1)
	in.Request.Open.Target.Local.NetworkMode = "host"
	denied := strings.Join(e.Decide(t.Context(), rego.Open, in).Policy.Rules, "\n")
	if !strings.Contains(denied, "open/network.rego:") {
		t.Errorf("the rule that denied is not among %s", denied)
	}
	if d.Policy.Digest != e.Digest() || d.Policy.Entrypoint != rego.Open {
		t.Errorf("%+v", d.Policy)
	}
}

func TestInput(t *testing.T) {
	e := load(t, policies.FS, rego.Options{MaxInput: 4096})
	in := openInput(1)
	in.Request.Open.Labels = map[string]string{"x": strings.Repeat("a", 4096)}
	if d := e.Decide(t.Context(), rego.Open, in); d.Deny[0].Code != api.CodePolicyInputTooLarge {
		t.Errorf("%v", d.Deny)
	}
	in = openInput(1)
	in.Request.Open.Labels = map[string]string{"x": "\xff"}
	if d := e.Decide(t.Context(), rego.Open, in); d.Deny[0].Code != api.CodePolicyInput {
		t.Errorf("%v", d.Deny)
	}
	if d := e.Decide(t.Context(), "data.stockade.other", openInput(1)); d.Allow || d.Deny[0].Code != api.CodePolicyError {
		t.Errorf("%v", d.Deny)
	}
}

// TestDeadline has a builtin run on for seconds after its cancellation. Decide must not.
func TestDeadline(t *testing.T) {
	slow := `decision := {"allow": true, "deny": []} if regex.match("(a?){1000}b", input.request.open.labels.x)`
	e := load(t, tree(slow), rego.Options{Deadline: 30 * time.Millisecond, MaxOverruns: 2})
	in := openInput(0)
	in.Request.Open.Labels = map[string]string{"x": strings.Repeat("a", 50_000)}
	for range 2 {
		if e.Quarantined() {
			t.Error("quarantined too soon")
		}
		d := e.Decide(t.Context(), rego.Open, in)
		if d.Allow || d.Deny[0].Code != api.CodePolicyTimeout {
			t.Fatalf("%v", d.Deny)
		}
		if d.Elapsed > time.Second {
			t.Errorf("answered after %v", d.Elapsed)
		}
	}
	d := e.Decide(t.Context(), rego.Exec, openInput(0))
	if d.Allow || d.Deny[0].Code != api.CodePolicyQuarantined {
		t.Errorf("after two overruns: %v", d.Deny)
	}
}

func TestCallerGoesAway(t *testing.T) {
	e := load(t, policies.FS, rego.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	// Either answer is right: the decision may have been made already.
	if d := e.Decide(ctx, rego.Open, openInput(1)); !d.Allow && d.Deny[0].Code != api.CodePolicyError {
		t.Errorf("%v", d.Deny)
	}
	if e.Quarantined() {
		t.Error("a caller that goes away counts against the policy")
	}
}

// TestHostileRequests deletes each member of a request, and what remains never opens
// more than the request itself did (R090, R108).
func TestHostileRequests(t *testing.T) {
	e := load(t, policies.FS, rego.Options{})
	for name, change := range map[string]func(*rego.Input){
		"no request":    func(in *rego.Input) { in.Request = &api.Request{} },
		"no parameters": func(in *rego.Input) { in.Request.Open = nil },
		"no target":     func(in *rego.Input) { in.Request.Open.Target.Local = nil },
		"no host path":  func(in *rego.Input) { in.Request.Open.Target.Local.Mounts[0].HostPath = "" },
		"no guest path": func(in *rego.Input) { in.Request.Open.Target.Local.Mounts[0].GuestPath = "" },
		"no mode":       func(in *rego.Input) { in.Request.Open.Target.Local.Mounts[0].Mode = "" },
		"no facts":      func(in *rego.Input) { in.Facts = rego.Facts{} },
		"an exec":       func(in *rego.Input) { in.Request.Op = api.OpExec },
	} {
		in := openInput(2)
		change(&in)
		if d := e.Decide(t.Context(), rego.Open, in); d.Allow || len(d.Deny) == 0 {
			t.Errorf("%s: %v %v", name, d.Allow, d.Deny)
		}
	}
}
