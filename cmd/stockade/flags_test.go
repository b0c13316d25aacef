package main

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/spf13/cobra"

	"github.com/stockade-dev/stockade/supervisor/api"
)

func TestSize(t *testing.T) {
	rows := []struct {
		in   string
		want int64 // 0: refused
	}{
		{"512M", 512 << 20}, {"512MiB", 512 << 20}, {"1.5G", 3 << 29}, {"4096", 4096}, {"1k", 1024},
		{"", 0}, {"0", 0}, {"-1", 0}, {"-1M", 0}, {"M", 0}, {"12Q", 0}, {"1e400", 0}, {"NaN", 0},
	}
	for _, row := range rows {
		got, err := size(row.in)
		if (err == nil) != (row.want > 0) || err == nil && got != row.want {
			t.Errorf("size(%q) = %d, %v; want %d", row.in, got, err, row.want)
		}
	}
}

func TestCPUs(t *testing.T) {
	rows := []struct {
		in   string
		want int64 // 0: refused
	}{
		{"1", 1000}, {"0.5", 500}, {"2.25", 2250}, {"0.001", 1},
		{"", 0}, {"0", 0}, {"-1", 0}, {"NaN", 0}, {"Inf", 0}, {"1e300", 0}, {"0.0001", 0},
	}
	for _, row := range rows {
		got, err := cpus(row.in)
		if (err == nil) != (row.want > 0) || err == nil && got != row.want {
			t.Errorf("cpus(%q) = %d, %v; want %d", row.in, got, err, row.want)
		}
	}
}

// Relative host paths are relative to the caller, not to the supervisor.
func TestMount(t *testing.T) {
	t.Chdir(t.TempDir())
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	rows := []struct {
		in   string
		want api.Mount // zero: refused
	}{
		{"/a:/b:rw", api.Mount{HostPath: "/a", GuestPath: "/b", Mode: "rw"}},
		{"/a:/b", api.Mount{HostPath: "/a", GuestPath: "/b", Mode: "ro"}},
		{"/a:/b:overlay", api.Mount{HostPath: "/a", GuestPath: "/b", Mode: "overlay"}},
		{"/a", api.Mount{HostPath: "/a", GuestPath: "/a", Mode: "ro"}},
		{"/a::rw", api.Mount{HostPath: "/a", GuestPath: "/a", Mode: "rw"}},
		{".:/b:rw", api.Mount{HostPath: here, GuestPath: "/b", Mode: "rw"}},
		{"sub/../x:/b", api.Mount{HostPath: filepath.Join(here, "x"), GuestPath: "/b", Mode: "ro"}},
		{"", api.Mount{}}, {":/b", api.Mount{}}, {"/a:/b:rwx", api.Mount{}}, {"/a:/b:rw:x", api.Mount{}},
	}
	for _, row := range rows {
		got, err := mount(row.in)
		if (err == nil) != (row.want != api.Mount{}) || got != row.want && err == nil {
			t.Errorf("mount(%q) = %+v, %v; want %+v", row.in, got, err, row.want)
		}
	}
}

func TestOverlayFlag(t *testing.T) {
	t.Chdir(t.TempDir())
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	rows := []struct {
		in   string
		want api.Mount // zero: refused
	}{
		{"/a:/b:256M", api.Mount{HostPath: "/a", GuestPath: "/b", Mode: "overlay", Bytes: 256 << 20}},
		{"/a:/b", api.Mount{HostPath: "/a", GuestPath: "/b", Mode: "overlay"}},
		{".:/b", api.Mount{HostPath: here, GuestPath: "/b", Mode: "overlay"}},
		{"/a", api.Mount{HostPath: "/a", GuestPath: "/a", Mode: "overlay"}},
		{"", api.Mount{}}, {":/b", api.Mount{}}, {"/a:/b:rw", api.Mount{}}, {"/a:/b:1M:x", api.Mount{}},
	}
	for _, row := range rows {
		got, err := overlay(row.in)
		if (err == nil) != (row.want != api.Mount{}) || got != row.want && err == nil {
			t.Errorf("overlay(%q) = %+v, %v; want %+v", row.in, got, err, row.want)
		}
	}
}

func TestDestination(t *testing.T) {
	rows := []struct {
		in   string
		want api.Destination
		ok   bool
	}{
		{"example.org", api.Destination{Name: "example.org"}, true},
		{"Example.ORG:443", api.Destination{Name: "example.org", Ports: []uint16{443}}, true},
		{"*.example.org:80,443", api.Destination{Name: "*.example.org", Ports: []uint16{80, 443}}, true},
		{"db.example.org:5432/tcp", api.Destination{Name: "db.example.org", Ports: []uint16{5432}, Protocol: "tcp"}, true},
		{"192.0.2.0/24", api.Destination{CIDR: "192.0.2.0/24"}, true},
		{"192.0.2.7/24:22", api.Destination{CIDR: "192.0.2.0/24", Ports: []uint16{22}}, true},
		{"192.0.2.7", api.Destination{CIDR: "192.0.2.7/32"}, true},
		{"192.0.2.7:22", api.Destination{CIDR: "192.0.2.7/32", Ports: []uint16{22}}, true},
		{"2001:db8::/32", api.Destination{CIDR: "2001:db8::/32"}, true},
		{"2001:db8::/32:443", api.Destination{CIDR: "2001:db8::/32", Ports: []uint16{443}}, true},
		{"[2001:db8::1]:443", api.Destination{CIDR: "2001:db8::1/128", Ports: []uint16{443}}, true},
		{"", api.Destination{}, false}, {":443", api.Destination{}, false}, {"example.org:", api.Destination{}, false},
		{"example.org:0", api.Destination{}, false}, {"example.org:65536", api.Destination{}, false}, {"example.org:https", api.Destination{}, false},
		{"192.0.2.0/33", api.Destination{}, false}, {"192.0.2.0/24/tcp", api.Destination{}, false},
	}
	for _, row := range rows {
		got, err := destination(row.in)
		if (err == nil) != row.ok || row.ok && cmp.Diff(row.want, got) != "" {
			t.Errorf("destination(%q) = %+v, %v; want %+v", row.in, got, err, row.want)
		}
		if row.ok {
			if again, err := destination(strings.TrimPrefix(reach(api.GrantNetwork{Mode: "egress", Allow: []api.Destination{got}}), "egress ")); err != nil || cmp.Diff(got, again) != "" {
				t.Errorf("%q does not read back: %+v %v", row.in, again, err)
			}
		}
	}
}

func TestRoot(t *testing.T) {
	rows := []struct {
		in   string
		want api.Root
		ok   bool
	}{
		{"", api.Root{}, true},
		{"host", api.Root{Host: &struct{}{}}, true},
		{"dir:/r", api.Root{Dir: &api.RootDir{Path: "/r"}}, true},
		{"paths:/usr,/lib64", api.Root{Paths: &api.RootPaths{Paths: []string{"/usr", "/lib64"}}}, true},
		{"dir:", api.Root{}, false}, {"paths:", api.Root{}, false}, {"oci:x", api.Root{}, false}, {"hosts", api.Root{}, false},
	}
	for _, row := range rows {
		got, err := root(row.in)
		if (err == nil) != row.ok || row.ok && cmp.Diff(row.want, got) != "" {
			t.Errorf("root(%q) = %+v, %v; want %+v", row.in, got, err, row.want)
		}
	}
}

func TestEnvironment(t *testing.T) {
	t.Setenv("OURS", "value")
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("canary\n\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := environment([]string{"A=1", "B=", "OURS", "NOT_SET_ANYWHERE", "C=x=y"}, []string{"S=" + secret})
	want := map[string]api.EnvValue{"A": {Text: "1"}, "B": {}, "OURS": {Text: "value"}, "C": {Text: "x=y"}, "S": {Text: "canary\n", Secret: true}}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v, %s", err, diff)
	}
	for _, bad := range [][2][]string{{{"=1"}, nil}, {{""}, nil}, {nil, {"S"}}, {nil, {"=f"}}, {nil, {"S=/does/not/exist"}}} {
		if _, err := environment(bad[0], bad[1]); err == nil {
			t.Errorf("environment(%q): accepted", bad)
		}
	}
}

func TestArtifacts(t *testing.T) {
	got, err := artifacts([]string{"/tmp/a", "/tmp/b:out/b"}, "dir")
	want := []artifact{{"/tmp/a", "dir/a"}, {"/tmp/b", "out/b"}}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(artifact{})); err != nil || diff != "" {
		t.Errorf("%v, %s", err, diff)
	}
	for _, bad := range [][]string{{""}, {":x"}, {"/a:"}, {"/a/f", "/b/f"}} {
		if _, err := artifacts(bad, "."); err == nil {
			t.Errorf("artifacts(%q): accepted", bad)
		}
	}
}

// A scope is declared whole or not at all; one that is not understood is refused (R020, R090).
func TestScope(t *testing.T) {
	rows := []struct {
		env, flag string
		want      api.Scope
		ok        bool
	}{
		{"", "", api.Scope{}, true},
		{"", "agent_id=a,world_id=w,chat_id=c", api.Scope{AgentID: "a", WorldID: "w", ChatID: "c"}, true},
		{"", "chat_id=x=y", api.Scope{ChatID: "x=y"}, true},
		{"agent_id=a", "chat_id=c", api.Scope{ChatID: "c"}, true},
		{"", "agent_id", api.Scope{}, false}, {"", "agent_id=", api.Scope{}, false}, {"", "agent=a", api.Scope{}, false},
		{"", "agent_id=a,", api.Scope{}, false}, {"", "agent_id=a,agent_id=b", api.Scope{}, false}, {"nonsense", "", api.Scope{}, false},
	}
	for _, row := range rows {
		t.Setenv("STOCKADE_SCOPE", row.env)
		var stderr strings.Builder
		c := &cli{stdout: io.Discard, stderr: &stderr}
		args := []string{"version"}
		if row.flag != "" {
			args = append(args, "--scope", row.flag)
		}
		status := c.run(t.Context(), args)
		if (status == 0) != row.ok || !row.ok && status != exitUsage || row.ok && api.Scope(c.scope) != row.want {
			t.Errorf("%+v: status %d, scope %+v, stderr %q", row, status, c.scope, stderr.String())
		}
	}
}

// Each wrong command line is refused with its own status before anything is sent: there is
// no supervisor here to send it to.
func TestUsage(t *testing.T) {
	rows := [][]string{
		{"frob"}, {"--frob"}, {"run"}, {"run", "--"}, {"run", "--frob", "--", "true"},
		{"run", "--memory", "lots", "--", "true"}, {"run", "--pids", "-1", "--", "true"},
		{"run", "--twice", "--", "true"}, {"run", "--mount", "/a:/b:x", "--", "true"},
		{"run", "--timeout", "-1s", "--", "true"}, {"run", "--root", "oci:x", "--", "true"},
		{"exec"}, {"exec", "s"}, {"exec", "s", "--"}, {"exec", "s", "--json"}, {"exec", "s", "--frob", "--", "true"},
		{"exec", "s", "--timeout", "-1s", "--", "true"}, {"signal", "s"}, {"signal", "s", "NOSUCH"}, {"close"}, {"show"}, {"ls", "x"},
		{"blob", "put"}, {"blob", "get"}, {"receipts", "show"}, {"receipts", "verify"},
		{"receipts", "checkpoint", "--state", "/nonexistent"},
		{"run", "--on-restart", "pray", "--", "true"}, {"run", "--idle", "-1s", "--", "true"},
		{"run", "-i", "--stdin", "-", "--", "true"},
		{"run", "--commit", "--", "true"}, {"run", "--overlay", "/a:/b:rw", "--", "true"}, {"run", "--network", "some", "--", "true"},
		{"run", "--network", "none", "--allow", "example.org", "--", "true"}, {"run", "--allow", "x:0", "--", "true"},
		{"run", "--overlay", "/a", "--commit", "--twice", "--output", "/b", "--", "true"}, {"run", "--cpu-time", "-1s", "--", "true"},
		{"exec", "--files", "-1", "s", "true"}, {"exec", "--disk", "1M", "s", "true"}, {"open", "--io", "lots"},
		{"diff"}, {"commit"}, {"discard"}, {"narrow", "s-1"}, {"narrow", "--network", "all", "s-1"},
		{"exec", "-d", "--wait", "1s", "s", "true"}, {"exec", "-d", "-i", "s", "true"}, {"exec", "--wait", "-1s", "s", "true"},
		{"exec", "-d", "--output", "/a:b", "s", "true"}, {"exec", "--label", "x", "s", "true"},
		{"ps", "x"}, {"ps", "--limit", "0"}, {"ps", "--label", "x"}, {"logs"}, {"logs", "--exit-status", "x-1"}, {"logs", "x-1"},
		{"wait"}, {"wait", "--timeout", "-1s", "x-1"}, {"input"}, {"input", "x-1"}, {"cancel"}, {"cancel", "x-1"}, {"rm"},
		{"pause"}, {"pause", "what"}, {"resume", "what"}, {"signal", "what", "term"}, {"stop"}, {"stop", "--label", "x"},
		{"modify", "x-1"}, {"modify", "--timeout", "0s", "x-1"}, {"events", "--kind", "GOSSIP"}, {"intents", "--limit", "0"}, {"frames"},
		{"quiescence", "--wait", "-1s"}, {"drain", "x"}, {"receipts", "prove", "1"}, {"receipts", "fsck"}, {"receipts", "check", "f"},
		{"receipts", "fsck", "--state", "/nonexistent"}, {"receipts", "check", "--key", "/nonexistent", "f"},
	}
	for _, args := range rows {
		var stderr strings.Builder
		c := &cli{stdin: strings.NewReader(""), stdout: io.Discard, stderr: &stderr}
		status := c.run(t.Context(), append([]string{"--socket", "/nonexistent/socket"}, args...))
		if status != exitUsage || !strings.HasPrefix(stderr.String(), "stockade: ") {
			t.Errorf("stockade %s: status %d, stderr %q", strings.Join(args, " "), status, stderr.String())
		}
	}
}

// Flags of ours end where the command begins, on whichever side of SESSION they stand.
func TestFlagsAroundSession(t *testing.T) {
	type parsed struct {
		Argv, Env []string
		JSON      bool
		Timeout   time.Duration
	}
	rows := []struct {
		in   string
		want parsed
	}{
		{"s true", parsed{Argv: []string{"true"}}},
		{"s ls --json -l", parsed{Argv: []string{"ls", "--json", "-l"}}},
		{"s grep -- word", parsed{Argv: []string{"grep", "--", "word"}}},
		{"s -- ls --json", parsed{Argv: []string{"ls", "--json"}}},
		{"s -- --json", parsed{Argv: []string{"--json"}}},
		{"--json s -- ls", parsed{Argv: []string{"ls"}, JSON: true}},
		{"s --json -- ls -l", parsed{Argv: []string{"ls", "-l"}, JSON: true}},
		{"s --json ls -l", parsed{Argv: []string{"ls", "-l"}, JSON: true}},
		{"--env A=1 s --env B=2 --timeout 5s -- ls", parsed{Argv: []string{"ls"}, Env: []string{"A=1", "B=2"}, Timeout: 5 * time.Second}},
		{"s --help -- ls", parsed{}},
	}
	for _, row := range rows {
		c := &cli{stdout: io.Discard, stderr: io.Discard}
		root := c.root()
		cmd, _, err := root.Find([]string{"exec"})
		if err != nil {
			t.Fatal(err)
		}
		var got parsed
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			argv, err := command(cmd, args[1:])
			got.Argv, got.JSON = argv, c.json
			got.Timeout, _ = cmd.Flags().GetDuration("timeout")
			got.Env, _ = cmd.Flags().GetStringArray("env")
			return err
		}
		root.SetArgs(append([]string{"exec"}, strings.Fields(row.in)...))
		err = root.Execute()
		if diff := cmp.Diff(row.want, got, cmpopts.EquateEmpty()); err != nil || diff != "" {
			t.Errorf("exec %s: %v, %s", row.in, err, diff)
		}
	}
}

func TestEveryCommandHasAnExample(t *testing.T) {
	c := &cli{stdout: io.Discard, stderr: io.Discard}
	for _, cmd := range c.root().Commands() {
		for _, leaf := range append(cmd.Commands(), cmd) {
			if leaf.Runnable() && leaf.Example == "" {
				t.Errorf("%s has no example", leaf.CommandPath())
			}
		}
	}
}

// The status of a settlement is the one that exit.go promises.
func TestStatusOfReceipts(t *testing.T) {
	exec := func(x api.ExecResult) *api.Receipt {
		return &api.Receipt{Op: api.OpExec, Outcome: api.OutcomeOK, Payload: api.Payload{Exec: &x}}
	}
	rows := []struct {
		name string
		in   *api.Receipt
		want int
	}{
		{"ok", exec(api.ExecResult{Status: "ok"}), 0},
		{"exit code", exec(api.ExecResult{Status: "ok", ExitCode: 7}), 7},
		{"signal", exec(api.ExecResult{Status: "signaled", ExitCode: -1, Signal: "KILL"}), 137},
		{"timeout", exec(api.ExecResult{Status: "timeout", ExitCode: -1, Signal: "KILL"}), exitTimeout},
		{"session's end", exec(api.ExecResult{Status: "timeout", ExitCode: -1, Signal: "KILL", ErrorCode: "session_expired"}), exitTimeout},
		{"idle session's end", exec(api.ExecResult{Status: "timeout", ExitCode: -1, Signal: "TERM", ErrorCode: "session_idle"}), exitTimeout},
		{"canceled", exec(api.ExecResult{Status: "signaled", ExitCode: -1, Signal: "TERM", ErrorCode: "canceled"}), 143},
		{"canceled, and said 0", exec(api.ExecResult{Status: "ok", ErrorCode: "canceled"}), 143},
		{"canceled, and said 3", exec(api.ExecResult{Status: "ok", ExitCode: 3, ErrorCode: "canceled"}), 3},
		{"no exit code", exec(api.ExecResult{Status: "error", ExitCode: -1, ErrorCode: "wait_failed"}), exitUnavailable},
		{"denied", &api.Receipt{Op: api.OpExec, Outcome: api.OutcomeDenied, Deny: []api.Deny{{Code: "argv_limit_exceeded"}}}, exitDenied},
		{"faulted", &api.Receipt{Op: api.OpExec, Outcome: api.OutcomeFaulted, ErrorCode: "spawn_failed"}, exitUnavailable},
	}
	for _, row := range rows {
		c := &cli{stdout: io.Discard, stderr: io.Discard}
		err := c.ended(row.in)
		got := 0
		if err != nil {
			got = c.report(err)
		}
		if got != row.want {
			t.Errorf("%s: status %d, want %d (%v)", row.name, got, row.want, err)
		}
	}
}

// Whose time it was is said: the remedy for the one is --timeout, for the other --ttl.
func TestWhoseTimeWasUp(t *testing.T) {
	for code, want := range map[api.Code]string{
		api.CodeTimeout:        "stockade: timed out after 1.99s\n",
		api.CodeSessionExpired: "stockade: the session expired 1.99s after the command began, and ended it\n",
	} {
		var stderr strings.Builder
		c := &cli{stdout: io.Discard, stderr: &stderr}
		c.report(c.ended(&api.Receipt{Op: api.OpExec, Outcome: api.OutcomeOK, Payload: api.Payload{Exec: &api.ExecResult{
			Status: "timeout", ExitCode: -1, Signal: "KILL", ErrorCode: code, Usage: api.Usage{WallNS: 1_990_000_000},
		}}}))
		if stderr.String() != want {
			t.Errorf("%s: %q, want %q", code, stderr.String(), want)
		}
	}
}

func TestOurLinesCannotDriveATerminal(t *testing.T) {
	var stderr strings.Builder
	c := &cli{stderr: &stderr}
	c.report(&exitError{1, errors.New("name \x1b[2J\x07\u009b1m evil\r")})
	if strings.ContainsAny(stderr.String(), "\x1b\x07\u009b\r") {
		t.Errorf("control characters reach the terminal: %q", stderr.String())
	}
}
