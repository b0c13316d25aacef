package main

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/stockade-dev/stockade/sandbox"
	"github.com/stockade-dev/stockade/supervisor/api"
)

// hostile is text that somebody inside has chosen to drive a terminal.
const hostile = "a\x1b[2J\r\nb"

func TestDiff(t *testing.T) {
	f := newFake(t)
	pages := map[string]api.SpaceResult{
		"": {Status: "ok", GuestPath: "/work", More: true, Changes: []api.Change{
			{Path: "a", Kind: "added", Type: "file"}, {Path: "d", Kind: "deleted", Type: "dir"}}},
		"d": {Status: "ok", GuestPath: "/work", More: true, Changes: []api.Change{{Path: "e\uFFFD", PathBytes: []byte("e\xff"), Kind: "added", Type: "file"}}},
		"e\uFFFD": {Status: "ok", GuestPath: "/work", Changes: []api.Change{
			{Path: hostile, Kind: "modified", Type: "file"}, {Path: "l", Kind: "added", Type: "symlink", Link: "/etc/shadow"}}},
	}
	f.mux.HandleFunc("GET /v1/sessions/"+sessionOne+"/diff", func(w http.ResponseWriter, r *http.Request) {
		reply(w, http.StatusOK, pages[r.URL.Query().Get("after")])
	})
	f.answers("GET /v1/sessions/"+sessionTwo+"/diff", api.SpaceResult{Status: "ok", GuestPath: "/w"})
	r := f.run(t, "", "diff", sessionOne)
	if want := "A a\nD d/\nA e\uFFFD\nM a\uFFFD[2J\uFFFD\uFFFDb\nA l -> /etc/shadow\n"; r.status != 0 || r.stdout != want || r.stderr != "" {
		t.Errorf("%+v", r)
	}
	if len(f.said("after=d", "guest_path=%2Fwork")) != 1 || len(f.said("after=e%EF%BF%BD", "after_bytes=Zf8%3D")) != 1 {
		t.Errorf("%v", f.said("diff"))
	}
	if r := f.run(t, "", "diff", "--exit-code", sessionOne); r.status != 1 || r.stderr != "" {
		t.Errorf("%+v", r)
	}
	if r := f.run(t, "", "diff", "--exit-code", sessionTwo); r.status != 0 || r.stdout != "" {
		t.Errorf("%+v", r)
	}
	if r := f.run(t, "", "diff", "--json", sessionOne); r.status != 0 || strings.Count(r.stdout, `"kind"`) != 5 || !strings.Contains(r.stdout, `"path_bytes": "Zf8="`) {
		t.Errorf("%+v", r)
	}
}

func TestCommitAndDiscard(t *testing.T) {
	f := newFake(t)
	f.does(api.OpWorkspaceCommit, api.Receipt{Payload: api.Payload{Space: &api.SpaceResult{Status: "committed", GuestPath: "/work", Applied: 3, Left: []string{"no" + hostile}, Dropped: 2}}})
	f.does(api.OpWorkspaceDiscard, api.Receipt{Outcome: api.OutcomeFaulted, ErrorCode: api.CodeExecActive, ErrorMessage: "1 live", Payload: api.Payload{Space: &api.SpaceResult{Status: "error"}}})
	r := f.run(t, "", "commit", "--at", "/work", "--key", "k", sessionOne, "src", "no")
	if r.status != 0 || r.stdout != "/work committed 3\n" || r.stderr != "stockade: unchanged: noa\uFFFD[2J\uFFFD\uFFFDb\nstockade: and 2 more\n" {
		t.Errorf("%+v", r)
	}
	if len(f.said(`{"session_id":"`+sessionOne+`","guest_path":"/work","paths":["src","no"]}`)) != 1 {
		t.Errorf("%v", f.said("commit"))
	}
	f.run(t, "", "commit", sessionOne, "src", "e\xff")
	if len(f.said(`{"session_id":"`+sessionOne+`","paths":["src","e`+"\uFFFD"+`"],"paths_bytes":["","Zf8="]}`)) != 1 {
		t.Errorf("%q", f.said("commit"))
	}
	if r := f.run(t, "", "discard", sessionOne); r.status != exitUnavailable || r.stdout != "" || !strings.Contains(r.stderr, "active_process_conflict") {
		t.Errorf("%+v", r)
	}
}

func TestNarrow(t *testing.T) {
	f := newFake(t)
	f.does(api.OpSessionNarrow, api.Receipt{Payload: api.Payload{Control: &api.ControlResult{Status: api.ControlNarrowed, Count: 2}}})
	r := f.run(t, "", "narrow", "--allow", "example.org:443", sessionOne)
	if r.status != 0 || r.stdout != sessionOne+" narrowed\n" || r.stderr != "stockade: 2 connection(s) cut off\n" {
		t.Errorf("%+v", r)
	}
	if len(f.said(`"network":{"mode":"egress","allow":[{"name":"example.org","ports":[443]}]}`)) != 1 {
		t.Errorf("%v", f.said("narrow"))
	}
}

// What is asked for is what the flags say; a session is committed when its command ended well, and then only.
func TestRunWithOverlay(t *testing.T) {
	for _, row := range []struct {
		code    int
		commits int
	}{{0, 1}, {3, 0}} {
		f := newFake(t)
		f.answers("POST /v1/sessions", api.Receipt{IntentID: intentOpen, Op: api.OpSessionOpen, Outcome: api.OutcomeOK, SessionID: sessionOne})
		f.mux.HandleFunc("POST /v1/exec", func(w http.ResponseWriter, _ *http.Request) { stream(w, theEnd(row.code)) })
		f.does(api.OpWorkspaceCommit, api.Receipt{Payload: api.Payload{Space: &api.SpaceResult{Status: "committed", GuestPath: "/work", Applied: 3}}})
		f.answers("POST /v1/close", api.Receipt{IntentID: intentOpen, Op: api.OpSessionClose, Outcome: api.OutcomeOK})
		receipts := filepath.Join(t.TempDir(), "receipts")
		r := f.run(t, "", "run", "--overlay", "/src:/work:1M", "--allow", "example.org:443", "--accept-degraded", "landlock", "--verify", "--cpu-time", "10s",
			"--cpu-weight", "50", "--io", "1M", "--files", "9", "--disk", "2M", "--inodes", "7", "--commit", "--receipt", receipts, "--", "true")
		if r.status != row.code || len(f.said("host.workspace.commit", `"guest_path":"/work"`)) != row.commits || len(f.said("/v1/close")) != 1 {
			t.Errorf("%+v", r)
		}
		for _, part := range []string{
			`"mounts":[{"host_path":"/src","guest_path":"/work","mode":"overlay","bytes":1048576}]`,
			`"network_mode":"egress","egress":[{"name":"example.org","ports":[443]}]`,
			`"limits":{"files":9,"cpu_time_ns":10000000000,"cpu_weight":50,"io_bytes_per_second":1048576,"disk_bytes":2097152,"disk_inodes":7}`,
			`"accept_degraded":["landlock"],"verify":"canary"`,
		} {
			if len(f.said("POST /v1/sessions", part)) != 1 {
				t.Errorf("not asked for %s: %v", part, f.said("POST /v1/sessions"))
			}
		}
		if b, err := os.ReadFile(receipts); err != nil || strings.Contains(string(b), `"committed"`) != (row.commits > 0) {
			t.Errorf("%s %v", b, err)
		}
	}
}

// Why a command failed, one line for each ceiling and refusal; what a sandbox chose of it drives no terminal.
func TestEvidenceIsTold(t *testing.T) {
	x := api.ExecResult{Status: "ok", ExitCode: 137, ErrorCode: api.CodeOOMKilled, Usage: api.Usage{PeakMemoryBytes: 1 << 20}, Dropped: 1,
		LimitsHit: []api.LimitHit{
			{Ceiling: "memory", Code: api.CodeOOMKilled, Scope: "execution", Limit: 32 << 20, Peak: 32 << 20, Count: 2, Hint: "ask for more"},
			{Ceiling: "disk_bytes", Code: api.CodeDiskExceeded, Scope: "session", Object: "/tmp", Limit: 1 << 20, Hint: "h"},
			{Ceiling: "output_bytes", Code: api.CodeOutputExceeded},
		},
		Silent: []string{"mounts"}, Network: &api.Traffic{Connections: 1, Refused: 2, Questions: 3, Sent: 4096},
		Denials: []api.Denial{
			{Layer: "seccomp", Rule: "mount", Syscall: "mount", Errno: "EPERM", Count: 3},
			{Layer: "network", Rule: "not granted", Object: hostile, Errno: "ECONNREFUSED", Grant: "network:egress x", Count: 1},
			{Layer: "dns", Rule: "denied range", Object: "db.test", Count: 1},
			{Layer: "network", Rule: "too many", Errno: "ECONNRESET", Count: 1},
		}}
	var stderr strings.Builder
	c := &cli{stderr: &stderr}
	c.ended(&api.Receipt{Op: api.OpExec, Outcome: api.OutcomeOK, Payload: api.Payload{Exec: &x}})
	want := "stockade: out of memory: the execution's memory ceiling was reached\n" +
		"stockade: limit: execution memory 32MiB, peak 32MiB, 2 times; ask for more\n" +
		"stockade: limit: session disk_bytes 1MiB at /tmp; h\n" +
		"stockade: refused: seccomp  mount (EPERM), 3 times; nothing that can be granted allows it\n" +
		"stockade: refused: network  not granted  a\uFFFD[2J\uFFFD\uFFFDb (ECONNREFUSED); allowed by network:egress x\n" +
		"stockade: refused: dns  denied range  db.test; allowed by a prefix of its own, granted beside the name, unless the operator denies it\n" +
		"stockade: refused: network  too many (ECONNRESET)\n" +
		"stockade: and 1 more kinds of refusals\n"
	if diff := cmp.Diff(want, stderr.String()); diff != "" {
		t.Error(diff)
	}
	var out strings.Builder
	if err := table(&out, evidenceRows(&x)); err != nil || strings.ContainsAny(out.String(), "\x1b\r") || strings.Count(out.String(), "\n") != 10 {
		t.Errorf("%v\n%s", err, out.String())
	}
	stderr.Reset()
	x.ExitCode, x.ErrorCode, x.LimitsHit = 0, "", nil
	c.ended(&api.Receipt{Op: api.OpExec, Outcome: api.OutcomeOK, Payload: api.Payload{Exec: &x}})
	if stderr.String() != "" {
		t.Errorf("told of a success: %s", stderr.String())
	}
}

// T037: what cannot be had is said with its remedy, and whether a session can do without it.
func TestDoctor(t *testing.T) {
	layers := []sandbox.Layer{
		{Name: "user namespace", State: "present", Required: true},
		{Name: "landlock", State: "missing", Required: true, Detail: "ENOSYS", Remedy: "lsm=landlock"},
	}
	f := newFake(t)
	f.answers("GET /v1/host", api.HostInfo{Host: sandbox.Host{Kernel: "6.1", Cgroup: "v2", Layers: layers}})
	f.answers("GET /v1/capabilities", api.Capabilities{Networks: []string{"none", "egress"}, Ceilings: []api.CeilingKind{{Name: "io_bytes_per_second", Detail: "this host lacks: io controller"}}})
	r := f.run(t, "", "doctor")
	for _, part := range []string{"landlock", "to have it: lsm=landlock", "(required, or --accept-degraded)", "none egress", "io_bytes_per_second  no"} {
		if !strings.Contains(r.stdout, part) {
			t.Errorf("no %q in\n%s", part, r.stdout)
		}
	}
	if r.status != exitUnavailable || !strings.Contains(r.stderr, `--accept-degraded "landlock"`) {
		t.Errorf("%+v", r)
	}
	if r := f.run(t, "", "doctor", "--json"); !strings.Contains(r.stdout, `"capabilities"`) || !strings.Contains(r.stdout, `"host"`) {
		t.Errorf("%s", r.stdout)
	}
}
