package workbench

import (
	"fmt"

	"github.com/stockade-dev/stockade/rego"
	"github.com/stockade-dev/stockade/sandbox"
	"github.com/stockade-dev/stockade/supervisor/api"
)

// usualCases are questions that every policy is asked: one for each operation, opens of some kinds, and what
// should be denied. A policy is measured with them, and taken apart, before it has cases of its own.
func usualCases() ([]aCase, error) {
	var cases []aCase
	for _, u := range usual {
		in := rego.Input{
			Request: &api.Request{Op: u.op, Principal: api.Principal{UID: 1000, GID: 1000, Groups: []uint32{1000}}, Facade: "http"},
			Ceiling: sandbox.DefaultCeiling(),
			NowNS:   someTime,
		}
		if err := u.ask(in.Request); err != nil {
			return nil, fmt.Errorf("bug: usual case %s: %w", u.name, err)
		}
		for _, p := range rego.HostPaths(in.Request) {
			if in.Facts.Sources == nil {
				in.Facts.Sources = map[string]rego.Source{}
			}
			in.Facts.Sources[p] = rego.Source{Found: &rego.Found{Resolved: p, Kind: "dir", Dev: 1, Ino: 100, OwnerUID: 1000, Mode: 0o755}}
		}
		if in.Request.InSession() != "" || u.process {
			in.Session = usualSession()
		}
		if u.process {
			in.Process = &rego.Process{
				ExecID: "x-usual", IntentID: "sha256:usual", State: "running", Argv: []string{"sleep", "60"},
				Labels: map[string]string{"role": "job"}, QueuedAtNS: someTime, StartedAtNS: someTime,
			}
		}
		c, err := rego.CaseOf("usual: "+u.name, in)
		if err != nil {
			return nil, err
		}
		cases = append(cases, aCase{Case: c})
	}
	return cases, nil
}

type usualCase struct {
	name    string
	op      api.Op
	process bool // it is on an execution
	body    string
}

func (u usualCase) ask(r *api.Request) error {
	if _, err := r.SetParameters([]byte(u.body)); err != nil {
		return err
	}
	if err := r.Validate(); err != nil {
		return err
	}
	return nil
}

var usual = []usualCase{
	{"open", api.OpSessionOpen, false, `{"target": {"local": {}}}`},
	{"open, with a directory", api.OpSessionOpen, false, `{"target": {"local": {"mounts": [
		{"host_path": "/home/alice/project", "guest_path": "/workspace", "mode": "rw"}], "env": {"LANG": "C"}}},
		"labels": {"team": "red"}, "limits": {"memory_bytes": 268435456, "pids": 64}, "session_ttl_ns": 600000000000}`},
	{"open, with an overlay", api.OpSessionOpen, false, `{"target": {"local": {"mounts": [
		{"host_path": "/home/alice/project", "guest_path": "/workspace", "mode": "overlay", "bytes": 1048576, "inodes": 1000}]}}}`},
	{"open, with 20 mounts", api.OpSessionOpen, false, `{"target": {"local": {"mounts": ` + manyMounts(20) + `}}}`},
	{"open, hermetic", api.OpSessionOpen, false, `{"profile": "hermetic", "target": {"local": {"root": {"dir": {"path": "/srv/root"}},
		"mounts": [{"host_path": "/srv/source", "guest_path": "/src", "mode": "ro"}]}}}`},
	{"open, with a network", api.OpSessionOpen, false, `{"target": {"local": {"network_mode": "egress"}}}`},
	{"open, with all of the network", api.OpSessionOpen, false, `{"target": {"local": {"network_mode": "full"}}}`},
	{"open, with a destination", api.OpSessionOpen, false, `{"target": {"local": {"network_mode": "egress", "egress": [{"name": "example.org", "ports": [443]}]}}}`},
	{"open, of the host's state", api.OpSessionOpen, false, `{"target": {"local": {"mounts": [{"host_path": "/etc/ssh", "guest_path": "/workspace", "mode": "ro"}]}}}`},
	{"open, over the system", api.OpSessionOpen, false, `{"target": {"local": {"mounts": [{"host_path": "/home/alice/project", "guest_path": "/usr/lib", "mode": "ro"}]}}}`},
	{"open, with more than there is", api.OpSessionOpen, false, `{"target": {"local": {}}, "limits": {"memory_bytes": 1125899906842624, "cpu_millis": 1000000, "pids": 1000000, "files": 10000000}}`},
	{"open, with a loader variable", api.OpSessionOpen, false, `{"target": {"local": {"env": {"LD_PRELOAD": "/tmp/x.so"}}}}`},
	{"exec", api.OpExec, false, `{"session_id": "s-usual", "argv": ["/bin/sh", "-c", "make test"], "cwd": "/workspace", "env_patch": {"A": "b"}, "timeout_ns": 60000000000}`},
	{"exec, with more arguments than there may be", api.OpExec, false, `{"session_id": "s-usual", "argv": ["a", "b", "c", "d", "e", "f", "g", "h", "i"]}`},
	{"exec, elsewhere", api.OpExec, false, `{"session_id": "s-usual", "argv": ["true"], "cwd": "/etc"}`},
	{"exec, with a file from elsewhere", api.OpExec, false, `{"session_id": "s-usual", "argv": ["true"], "outputs": ["/etc/passwd"]}`},
	{"signal", api.OpSessionSignal, false, `{"session_id": "s-usual", "signal": "TERM"}`},
	{"signal that is not granted", api.OpSessionSignal, false, `{"session_id": "s-usual", "signal": "USR1"}`},
	{"pause", api.OpSessionPause, false, `{"session_id": "s-usual"}`},
	{"close", api.OpSessionClose, false, `{"session_id": "s-usual"}`},
	{"narrow", api.OpSessionNarrow, false, `{"session_id": "s-usual", "network": {"mode": "none"}}`},
	{"input", api.OpProcessInput, true, `{"exec_id": "x-usual", "data": {"inline_text": {"text": "y"}}}`},
	{"signal to an execution", api.OpProcessSignal, true, `{"exec_id": "x-usual", "signal": "TERM"}`},
	{"modify", api.OpProcessModify, true, `{"exec_id": "x-usual", "timeout_ns": 1000000000}`},
	{"cancel", api.OpProcessCancel, true, `{"exec_id": "x-usual"}`},
	{"stop", api.OpProcessStop, false, `{"labels": {"role": "job"}}`},
	{"drain", api.OpDrain, false, `{}`},
	{"commit", api.OpWorkspaceCommit, false, `{"session_id": "s-usual", "paths": ["a/b"]}`},
	{"discard", api.OpWorkspaceDiscard, false, `{"session_id": "s-usual"}`},
	{"put a blob", api.OpBlobPut, false, `{"size_bytes": 100}`},
	{"read a session", api.OpSessionGet, false, `{"session_id": "s-usual"}`},
	{"list sessions", api.OpSessionList, false, `{}`},
	{"read what is everybody's", api.OpQuiescence, false, `{}`},
}

func manyMounts(n int) string {
	list := "["
	for i := range n {
		if i > 0 {
			list += ","
		}
		list += fmt.Sprintf(`{"host_path": "/home/alice/%d", "guest_path": "/workspace/%[1]d", "mode": "rw"}`, i)
	}
	return list + "]"
}

func usualSession() *rego.Session {
	return &rego.Session{
		SessionID: "s-usual", Profile: "workspace", Labels: map[string]string{"team": "red"},
		Principal: api.Principal{UID: 1000, GID: 1000, Groups: []uint32{1000}}, Executions: 1, LiveExecutions: 1,
		StartedAtNS: someTime - 1, ExpiresAtNS: someTime + 3_600_000_000_000,
		Grant: &api.Grant{
			Profile: "workspace", Root: "host", Seccomp: "default", Workdir: "/workspace", Hostname: "sandbox", TTLNS: 3_600_000_000_000,
			Identity: api.Identity{UID: 1000, GID: 1000},
			Mounts:   []api.GrantMount{{HostPath: "/home/alice/project", GuestPath: "/workspace", Mode: "rw", Class: "workspace"}},
			Scratch:  []api.GrantScratch{{GuestPath: "/tmp", Bytes: 1 << 28, Inodes: 65536}},
			Ceilings: api.Ceilings{MemoryBytes: 1 << 30, CPUMillis: 2000, PIDs: 128, Files: 1024, OutputBytes: 1 << 26, Executions: 64},
			Network:  api.GrantNetwork{Mode: "none"},
			Env:      api.GrantEnv{Allow: []string{"A", "B*"}, Set: map[string]string{"TZ": "UTC"}, Max: 16},
			Exec: api.GrantExec{
				MaxTimeoutNS: 3_600_000_000_000, DefaultTimeoutNS: 600_000_000_000, MaxArgv: 8, MaxArgBytes: 4096, MaxInlineBytes: 1 << 20,
				OutputModes: []string{"auto"}, Signals: []string{"TERM", "KILL"}, CwdPrefixes: []string{"/workspace"}, OutputPrefixes: []string{"/workspace"},
			},
			ExpiresNS: someTime + 3_600_000_000_000,
		},
	}
}
