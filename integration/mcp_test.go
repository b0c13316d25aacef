package integration

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stockade-dev/stockade/supervisor/api"
)

// The client of the TypeScript SDK drives `stockade mcp`: a coding flow, a command that is polled and written to, progress, a
// cancellation, and denials. What it claims to have seen the supervisor and the files say too.
func TestMCP(t *testing.T) {
	t.Parallel()
	needRoot(t)
	modules := packages(t, "mcp", "client.mjs")
	d := start(t)
	tree := t.TempDir()
	for name, content := range map[string]string{
		"add.sh":           "# adds\necho $(($1 - $2))\n",
		"test.sh":          "got=$(sh add.sh 2 2)\n[ \"$got\" = 4 ] && echo ok && exit\necho \"2 + 2 is $got, want 4\"\nexit 1\n",
		".git/hooks/.keep": "",
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(tree, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(tree, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), "node", filepath.Join(modules, "client.mjs"), filepath.Join(bin, "stockade"), tree)
	cmd.Env = append(os.Environ(), "STOCKADE_SOCKET="+d.Socket)
	cmd.WaitDelay = 10 * time.Second
	var failed bytes.Buffer
	cmd.Stderr = &failed
	out, err := cmd.Output()
	seen := string(out)
	if err != nil {
		t.Fatalf("%v\n%s%s", err, seen, failed.Bytes())
	}
	for _, what := range []string{"tools", "flow ", "process", "progress", "cancel", "denied ", "sessions ", "closed"} {
		if !strings.Contains(seen, "\n"+what) && !strings.HasPrefix(seen, what) {
			t.Errorf("no %q in\n%s", what, seen)
		}
	}
	for name, want := range map[string]string{"add.sh": "# adds\necho $(($1 + $2))\n", "docs/add.md": "# Add\nadd.sh adds.\n"} {
		if got, err := os.ReadFile(filepath.Join(tree, name)); err != nil || string(got) != want {
			t.Errorf("%s: %q %v", name, got, err)
		}
	}
	ctx, c := t.Context(), d.Client()
	for _, row := range []struct {
		pattern string
		outcome api.Outcome
	}{{`flow (\S+)`, api.OutcomeOK}, {`denied \S+ (\S+)`, api.OutcomeDenied}} {
		id := regexp.MustCompile(row.pattern).FindStringSubmatch(seen)[1]
		if r, err := c.Receipt(ctx, id); err != nil || r.Outcome != row.outcome {
			t.Errorf("%s: %+v %v", id, r, err)
		}
	}
	ids := regexp.MustCompile(`sessions (\S+) (\S+)`).FindStringSubmatch(seen)
	for _, id := range ids[1:] { // an end of stdin ends them; the client does not wait for that
		for end := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) {
			s, err := c.Session(ctx, id)
			if err != nil || s.State == "closed" && s.Reason == "closed" {
				break
			}
			if time.Now().After(end) {
				t.Errorf("%s is %s (%s)", id, s.State, s.Reason)
				break
			}
		}
	}
}

// What was asked before the end of stdin is answered, as in `stockade mcp <requests`; what takes too long is not waited for.
func TestMCPAtOnce(t *testing.T) {
	t.Parallel()
	needRoot(t)
	d := start(t)
	asked := func(command string) (answers map[int]string) {
		requests := strings.Join([]string{
			`{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "a file", "version": "1"}}}`,
			`{"jsonrpc": "2.0", "method": "notifications/initialized"}`,
			`{"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "exec", "arguments": {"argv": ["sh", "-c", "` + command + `"]}}}`,
		}, "\n")
		cmd := exec.CommandContext(t.Context(), filepath.Join(bin, "stockade"), "mcp")
		cmd.Env, cmd.Stdin = append(os.Environ(), "STOCKADE_SOCKET="+d.Socket), strings.NewReader(requests+"\n")
		var failed bytes.Buffer
		cmd.Stderr = &failed
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%v\n%s%s", err, out, failed.Bytes())
		}
		answers = map[int]string{}
		for line := range strings.Lines(string(out)) {
			var answer struct{ ID int }
			if err := json.Unmarshal([]byte(line), &answer); err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			answers[answer.ID] = line
		}
		return answers
	}
	if answers := asked("sleep 1; echo a$((40 + 2))"); !strings.Contains(answers[1], `"serverInfo"`) || !strings.Contains(answers[2], "a42") {
		t.Errorf("answers %v", answers)
	}
	if answers := asked("sleep 300"); !strings.Contains(answers[1], `"serverInfo"`) || strings.Contains(answers[2], `"result"`) {
		t.Errorf("answers %v", answers)
	}
	sessions, err := d.Client().Sessions(t.Context(), api.Read{State: "ready"})
	if err != nil || len(sessions) != 0 {
		t.Errorf("left: %+v, %v", sessions, err)
	}
}

// packages is a directory with a client of somebody else's libraries and what it needs, which is installed by the lock file, once: in build, where
// the next run finds it.
func packages(t *testing.T, name string, programs ...string) string {
	t.Helper()
	for _, program := range []string{"node", "npm"} {
		if _, err := exec.LookPath(program); err != nil {
			skip(t, program+" is not installed: scripts/setup would do it")
		}
	}
	lock, err := os.ReadFile(filepath.Join(name, "package-lock.json"))
	if err != nil {
		t.Fatal(err)
	}
	dir, err := filepath.Abs(fmt.Sprintf("../build/%s-%x", name, sha256.Sum256(lock)))
	if err != nil {
		t.Fatal(err)
	}
	dir = dir[:len(dir)-48]
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, file := range append([]string{"package.json", "package-lock.json"}, programs...) {
		content, err := os.ReadFile(filepath.Join(name, file))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, file), content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	installed := filepath.Join(dir, "installed")
	if _, err := os.Stat(installed); err == nil {
		return dir
	}
	npm := exec.CommandContext(t.Context(), "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error")
	npm.Dir = dir
	if out, err := npm.CombinedOutput(); err != nil {
		skip(t, fmt.Sprintf("the packages of %s cannot be installed: %v\n%s", name, err, out))
	}
	if err := os.WriteFile(installed, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}
