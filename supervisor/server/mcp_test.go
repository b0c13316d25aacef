package server

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/stockade-dev/stockade/supervisor/api"
	"github.com/stockade-dev/stockade/supervisor/mcp"
	"github.com/stockade-dev/stockade/supervisor/tools"
)

// host is an agent host that speaks MCP, with a session.
type host struct {
	*sdk.ClientSession
	t       *testing.T
	box     *box
	session string

	mu   sync.Mutex
	told []sdk.ProgressNotificationParams
}

func newHost(t *testing.T, profile string) *host {
	t.Helper()
	b := newBox(t, Options{}, judging(t))
	if err := os.MkdirAll(filepath.Join(b.fake.files, "tmp/src"), 0o777); err != nil {
		t.Fatal(err)
	}
	p, fault := tools.Named(profile)
	if fault != nil {
		t.Fatal(fault)
	}
	h := &host{t: t, box: b, session: b.open(t)}
	server, err := mcp.New(mcp.Config{Host: b.Client, SessionID: h.session, Profile: p, Version: "1", Network: true})
	if err != nil {
		t.Fatal(err)
	}
	ours, theirs := sdk.NewInMemoryTransports()
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { server.Run(ctx, theirs); close(done) }()
	t.Cleanup(func() { stop(); <-done })
	client := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, &sdk.ClientOptions{
		ProgressNotificationHandler: func(_ context.Context, n *sdk.ProgressNotificationClientRequest) {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.told = append(h.told, *n.Params)
		},
	})
	if h.ClientSession, err = client.Connect(t.Context(), ours, nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	return h
}

// result is an answer, as a host reads it.
type result struct {
	text string
	err  bool
	data map[string]any
}

func (h *host) call(ctx context.Context, tool string, args any, meta sdk.Meta) (result, error) {
	r, err := h.CallTool(ctx, &sdk.CallToolParams{Name: tool, Arguments: args, Meta: meta})
	if err != nil {
		return result{}, err
	}
	out := result{err: r.IsError}
	for _, c := range r.Content {
		out.text += c.(*sdk.TextContent).Text
	}
	out.data, _ = r.StructuredContent.(map[string]any)
	if out.data["ok"] != !r.IsError || out.data["status"] == "" {
		h.t.Errorf("%s: the structure says otherwise: %+v", tool, out)
	}
	return out, nil
}

func (h *host) does(tool string, args any) result {
	h.t.Helper()
	r, err := h.call(h.t.Context(), tool, args, nil)
	if err != nil {
		h.t.Fatalf("%s: %v", tool, err)
	}
	return r
}

type arguments = map[string]any

// What is served says of itself what it does.
func TestMCPTools(t *testing.T) {
	t.Parallel()
	for _, profile := range tools.Names() {
		h := newHost(t, profile)
		list, err := h.ListTools(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, tool := range list.Tools {
			names = append(names, tool.Name)
			a := tool.Annotations
			if tool.InputSchema == nil || tool.OutputSchema == nil || a == nil || a.DestructiveHint == nil || a.OpenWorldHint == nil {
				t.Errorf("%s: %+v", tool.Name, tool)
				continue
			}
			if a.ReadOnlyHint && *a.DestructiveHint || *a.OpenWorldHint != (tool.Name == "exec") {
				t.Errorf("%s: %+v", tool.Name, a)
			}
		}
		p, _ := tools.Named(profile)
		for _, want := range append([]string{"exec", "process_output", "process_input", "process_cancel"}, fileNames(p)...) {
			if !slices.Contains(names, want) {
				t.Errorf("%s: no %s in %v", profile, want, names)
			}
		}
		for _, unwanted := range []string{"bash", "shell", "exec_command", "run_shell_command"} {
			if slices.Contains(names, unwanted) {
				t.Errorf("%s serves %s", profile, unwanted)
			}
		}
	}
}

func fileNames(p *tools.Profile) (names []string) {
	for _, t := range p.Files() {
		names = append(names, t.Name)
	}
	return names
}

// Files are written and read, and commands see them; a denial and a failure are errors of the tool, with their codes.
func TestMCPFiles(t *testing.T) {
	t.Parallel()
	h := newHost(t, "anthropic")
	const editor = "str_replace_based_edit_tool"
	if r := h.does(editor, arguments{"command": "create", "path": "src/a.txt", "file_text": "one\n"}); r.err {
		t.Error(r)
	}
	if r := h.does("exec", arguments{"command": "cat src/a.txt; exit 3"}); r.err || r.text != "one\n[exit status 3]" || r.data["exit_code"] != 3.0 {
		t.Errorf("%+v", r)
	}
	r := h.does(editor, arguments{"command": "create", "path": "a.txt", "file_text": "x"})
	if allowed, _ := r.data["allowed"].(map[string]any); !r.err || r.data["error_code"] != "path_not_allowed" || allowed["fs.write_roots"] == nil || !strings.Contains(r.text, `allowed: fs.write_roots = ["/tmp/src/","/memories/"]`) {
		t.Errorf("%+v", r)
	}
	r = h.does("exec", arguments{"argv": []string{"forbidden"}})
	deny, _ := r.data["deny"].([]any)
	if !r.err || r.data["status"] != "denied" || len(deny) != 1 || !strings.Contains(r.text, "house_rule") || !strings.Contains(r.text, "the house does not allow it") {
		t.Errorf("%+v", r)
	}
	receipts := r.data["receipts"].([]any)
	kept, err := h.box.Receipt(t.Context(), receipts[0].(map[string]any)["intent_id"].(string))
	if err != nil || kept.Outcome != api.OutcomeDenied {
		t.Errorf("%+v %v", kept, err)
	}
	for _, args := range []any{arguments{"command": "ls", "argv": []string{"ls"}}, arguments{}, arguments{"command": "ls", "root": true}, arguments{"command": 7}} {
		if r := h.does("exec", args); !r.err || r.data["error_code"] == nil {
			t.Errorf("%v: %+v", args, r)
		}
	}
	if _, err := h.call(t.Context(), "reboot", arguments{}, nil); err == nil {
		t.Error("a tool that there is not was called")
	}
}

// A long command is started, polled, written to and ended.
func TestMCPProcess(t *testing.T) {
	t.Parallel()
	h := newHost(t, "codex")
	r := h.does("exec", arguments{"command": `echo ready; while read l; do echo got $l; done; exit 4`, "stdin_open": true, "wait_ms": 300})
	id, cursor := r.data["exec_id"], r.data["cursor"]
	if r.err || r.data["running"] != true || !strings.HasPrefix(r.text, "ready\n[running: ") || id == nil || cursor == nil {
		t.Fatalf("%+v", r)
	}
	if r := h.does("process_input", arguments{"exec_id": id, "text": "one\n"}); r.err || r.text != "4 bytes written." {
		t.Errorf("%+v", r)
	}
	for end := time.Now().Add(10 * time.Second); ; {
		r = h.does("process_output", arguments{"exec_id": id, "after": cursor, "wait_ms": 100})
		if strings.HasPrefix(r.text, "got one\n") {
			break
		}
		if r.err || time.Now().After(end) {
			t.Fatalf("%+v", r)
		}
	}
	if r := h.does("process_input", arguments{"exec_id": id, "text": "forbidden"}); !r.err || r.data["status"] != "denied" {
		t.Errorf("%+v", r)
	}
	if r := h.does("process_input", arguments{"exec_id": id, "close": true}); r.err {
		t.Errorf("%+v", r)
	}
	if r := h.does("process_output", arguments{"exec_id": id, "wait_ms": 10000}); r.err || r.data["running"] == true || r.data["exit_code"] != 4.0 || !strings.HasPrefix(r.text, "ready\ngot one\n") {
		t.Errorf("%+v", r)
	}
	r = h.does("exec", arguments{"argv": []string{"sleep"}, "wait_ms": 100})
	if r.data["running"] != true {
		t.Fatalf("%+v", r)
	}
	if r := h.does("process_cancel", arguments{"exec_id": r.data["exec_id"]}); r.err || !strings.Contains(r.text, "canceled") {
		t.Errorf("%+v", r)
	}
	if r := h.does("process_cancel", arguments{"exec_id": "x-unknown"}); !r.err || r.data["error_code"] != "exec_not_found" {
		t.Errorf("%+v", r)
	}
}

// A command of another session is none, though it is the same caller's.
func TestMCPStaysInItsSession(t *testing.T) {
	t.Parallel()
	h := newHost(t, "openai")
	p, _, err := h.box.Start(t.Context(), api.Exec{SessionID: h.box.open(t), Argv: []string{"cat"}, StdinOpen: true})
	if err != nil {
		t.Fatal(err)
	}
	for tool, args := range map[string]arguments{"process_output": {}, "process_input": {"text": "x"}, "process_cancel": {}} {
		args["exec_id"] = p.ExecID
		if r := h.does(tool, args); !r.err || r.data["error_code"] != "exec_not_found" {
			t.Errorf("%s: %+v", tool, r)
		}
	}
	if p, err := h.box.Process(t.Context(), p.ExecID); err != nil || p.State.Final() {
		t.Errorf("%+v %v", p, err)
	}
}

// Who cancels a call ends the command that it started, and no other; polling is not starting.
func TestMCPCancel(t *testing.T) {
	t.Parallel()
	h := newHost(t, "openai")
	r := h.does("exec", arguments{"argv": []string{"sleep"}, "wait_ms": 50})
	other := r.data["exec_id"].(string)
	for _, call := range []struct {
		tool  string
		args  arguments
		after time.Duration
	}{
		{"exec", arguments{"argv": []string{"sleep"}}, 20 * time.Millisecond}, // it has hardly been started
		{"exec", arguments{"argv": []string{"sleep"}}, 1500 * time.Millisecond},
		{"process_output", arguments{"exec_id": other, "wait_ms": 60_000}, 100 * time.Millisecond},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		gone := make(chan error)
		go func() {
			_, err := h.call(ctx, call.tool, call.args, nil)
			gone <- err
		}()
		time.Sleep(call.after)
		cancel()
		if err := <-gone; err == nil {
			t.Errorf("%s was answered", call.tool)
		}
	}
	still := 0 // what should not end has had the time to
	for end := time.Now().Add(10 * time.Second); still < 10; time.Sleep(20 * time.Millisecond) {
		list, err := h.box.Processes(t.Context(), api.Read{SessionID: h.session})
		if err != nil {
			t.Fatal(err)
		}
		states := map[api.State][]string{}
		for _, p := range list.Processes {
			states[p.State] = append(states[p.State], p.ExecID)
		}
		if len(states[api.StateCanceled]) == 2 && slices.Equal(states[api.StateRunning], []string{other}) {
			still++
			continue
		}
		if time.Now().After(end) {
			t.Fatalf("%v", states)
		}
	}
}

// A host that asks for progress is told, in numbers that grow; one that does not is not.
func TestMCPProgress(t *testing.T) {
	t.Parallel()
	h := newHost(t, "gemini")
	script := arguments{"command": `for i in 1 2 3 4; do printf "step $i\n"; sleep 0.25; done`}
	if r, err := h.call(t.Context(), "exec", script, nil); err != nil || r.err || r.text != "step 1\nstep 2\nstep 3\nstep 4" {
		t.Fatalf("%+v %v", r, err)
	}
	h.mu.Lock()
	if len(h.told) != 0 {
		t.Errorf("told unasked: %+v", h.told)
	}
	h.mu.Unlock()
	script["command"] = `sleep 1; ` + script["command"].(string)
	if r, err := h.call(t.Context(), "exec", script, sdk.Meta{"progressToken": "p1"}); err != nil || r.err {
		t.Fatalf("%+v %v", r, err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	last, lines := 0.0, ""
	for _, n := range h.told {
		if n.ProgressToken != "p1" || n.Progress <= last {
			t.Errorf("%+v after %v", n, last)
		}
		last = n.Progress
		lines += n.Message + "\n"
	}
	if len(h.told) < 2 || !strings.Contains(lines, "step 3") {
		t.Errorf("%+v", h.told)
	}
}

// A supervisor that is gone is told to the model, not to nobody.
func TestMCPWithoutSupervisor(t *testing.T) {
	t.Parallel()
	h := newHost(t, "openai")
	h.box.stop(h.box.sup.Close)
	h.box.stop = func(func(context.Context) error) {}
	if r := h.does("exec", arguments{"command": "true"}); !r.err || r.data["error_code"] != "lost" || !strings.Contains(r.text, "cannot be reached") {
		t.Errorf("%+v", r)
	}
}
