package main

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/stockade-dev/stockade/supervisor/api"
)

// What tools sends, writes and ends with: a call that was refused is told as such, whatever its provider's form.
func TestToolCommands(t *testing.T) {
	const call = `{"type":"tool_use","id":"1","name":"bash","input":{}}`
	for _, row := range []struct {
		args   []string
		stdin  string
		a      api.ToolAnswer
		status int
		stderr string
	}{
		{[]string{sessionOne, call}, "", api.ToolAnswer{OK: true, Status: "ok"}, 0, ""},
		{[]string{sessionOne}, call, api.ToolAnswer{OK: true, Status: "running"}, 0, ""},
		{[]string{sessionOne, call}, "", api.ToolAnswer{Status: "denied", ErrorCode: "house_rule", Message: "no"}, exitDenied, "bash: denied: house_rule: no"},
		{[]string{sessionOne, call}, "", api.ToolAnswer{Status: "forbidden", ErrorCode: "protected_path"}, exitDenied, "protected_path"},
		{[]string{sessionOne, call}, "", api.ToolAnswer{Status: "not_found", ErrorCode: "path_not_found"}, exitFinding, "path_not_found"},
		{[]string{sessionOne, call}, "", api.ToolAnswer{Status: "error", ErrorCode: "session_closed"}, exitUnavailable, "session_closed"},
		{[]string{sessionOne, "{"}, "", api.ToolAnswer{}, exitUsage, "not JSON"},
		{[]string{sessionOne}, "", api.ToolAnswer{}, exitUsage, "not JSON"},
		{nil, "", api.ToolAnswer{}, exitUsage, ""},
	} {
		f := newFake(t)
		row.a.Result, row.a.Tool, row.a.Receipts = jsontext.Value(`{"type":"tool_result"}`), "bash", []api.Receipt{}
		f.answers("POST /v1/tools/call", row.a)
		got := f.run(t, row.stdin, append([]string{"tools", "call", "--profile", "anthropic"}, row.args...)...)
		if got.status != row.status || !strings.Contains(got.stderr, row.stderr) {
			t.Errorf("%q: %+v, want %d %q", row.args, got, row.status, row.stderr)
		}
		sent := f.said("POST /v1/tools/call", `{"profile":"anthropic","session_id":"`+sessionOne+`","call":`+call)
		if want := row.status != exitUsage; want != (len(sent) == 1) || want && got.stdout != "{\"type\":\"tool_result\"}\n" {
			t.Errorf("%q: sent %q, wrote %q", row.args, sent, got.stdout)
		}
	}
	f := newFake(t)
	f.answers("GET /v1/tools", api.ToolCatalogue{Profile: "codex", Tools: []api.Tool{{Name: "apply_patch", Description: "Change files. All or nothing.", InputSchema: jsontext.Value(`{}`), Definition: jsontext.Value(`{}`), Operations: []api.Op{api.OpFilePatch}}}})
	if got := f.run(t, "", "tools", "ls", "codex"); got.status != 0 || !strings.Contains(got.stdout, "apply_patch  fs.apply_patch  Change files\n") {
		t.Errorf("%+v", got)
	}
	if got := f.run(t, "", "tools", "call", sessionOne, call); got.status != exitUsage {
		t.Errorf("without a profile: %+v", got)
	}
}

// A server of MCP has a session of its own, which it ends, or serves one that is there, which it does not.
func TestMCPCommand(t *testing.T) {
	const hello = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}` + "\n" +
		`{"jsonrpc":"2.0","method":"notifications/initialized"}` + "\n" + `{"jsonrpc":"2.0","id":2,"method":"tools/list"}` + "\n"
	serve := func() *fake {
		f := newFake(t)
		f.answers("POST /v1/sessions", api.Receipt{IntentID: intentOpen, Op: api.OpSessionOpen, SessionID: sessionOne, Outcome: api.OutcomeOK})
		f.answers("GET /v1/sessions/"+sessionOne, api.Session{SessionID: sessionOne})
		f.answers("POST /v1/close", api.Receipt{IntentID: intentRuns, Op: api.OpSessionClose, Outcome: api.OutcomeOK})
		return f
	}
	// talk is a host that hangs up when it has been answered.
	talk := func(f *fake, args ...string) ran {
		t.Helper()
		in, host := io.Pipe()
		tr := &transcript{}
		said := func() string {
			tr.mu.Lock()
			defer tr.mu.Unlock()
			return tr.out.String()
		}
		go func() {
			io.WriteString(host, hello)
			for end := time.Now().Add(10 * time.Second); !strings.Contains(said(), `"id":2`) && time.Now().Before(end); {
				time.Sleep(time.Millisecond)
			}
			host.Close()
		}()
		c := &cli{stdin: in, stdout: side{tr, "stdout", &tr.out}, stderr: side{tr, "stderr", &tr.err}}
		status := c.run(t.Context(), append([]string{"--socket", f.socket, "mcp"}, args...))
		return ran{status: status, stdout: said(), stderr: tr.err.String()}
	}
	f := serve()
	got := talk(f, "--mount", "/srv:/work", "--tools", "codex")
	if got.status != 0 || !strings.Contains(got.stdout, `"name":"apply_patch"`) || strings.Contains(got.stdout, "exec_command") || !strings.Contains(got.stderr, "serving session "+sessionOne) {
		t.Errorf("%+v", got)
	}
	for line := range strings.Lines(got.stdout) { // nothing else is on stdout
		if !jsontext.Value(line).IsValid() {
			t.Errorf("%q", line)
		}
	}
	if len(f.said("POST /v1/close", sessionOne)) != 1 || len(f.said("POST /v1/sessions", `"guest_path":"/work"`)) != 1 {
		t.Errorf("%q", f.calls)
	}
	f = serve()
	if got := talk(f, "--session", sessionOne); got.status != 0 || len(f.said("POST ")) != 0 || !strings.Contains(got.stdout, "str_replace_based_edit_tool") {
		t.Errorf("%+v %q", got, f.calls)
	}
	for _, args := range [][]string{{"--session", sessionOne, "--mount", "/srv"}, {"--tools", "none"}, {"extra"}} {
		f := serve()
		if got := f.run(t, hello, append([]string{"mcp"}, args...)...); got.status != exitUsage || got.stdout != "" || len(f.calls) != 0 {
			t.Errorf("%q: %+v %q", args, got, f.calls)
		}
	}
	f = newFake(t)
	f.mux.HandleFunc("POST /v1/sessions", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, http.StatusForbidden, api.Receipt{IntentID: intentOpen, Op: api.OpSessionOpen, Outcome: api.OutcomeDenied, Deny: []api.Deny{{Code: "profile_not_allowed"}}})
	})
	if got := f.run(t, hello, "mcp"); got.status != exitDenied || !strings.Contains(got.stderr, "profile_not_allowed") || got.stdout != "" {
		t.Errorf("%+v", got)
	}
}
