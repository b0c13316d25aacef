package integration

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stockade-dev/stockade/supervisor/api"
)

// A client that is generated outside of the tree, from session.proto, and one that knows nothing but what reflection tells, live in a
// session of S1's: by tokens, with exit codes, actions, events and refusals; and go on after a restart of the supervisor (R143 to R165, R172, R173, R176).
func TestGRPC(t *testing.T) {
	needRoot(t)
	modules := packages(t, "grpc", "client.mjs")
	d := start(t)
	content, err := os.ReadFile("../supervisor/rpc/session.proto")
	if err != nil {
		t.Fatal(err)
	}
	proto := filepath.Join(t.TempDir(), "theirs.proto")
	if err := os.WriteFile(proto, content, 0o644); err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "node", append([]string{filepath.Join(modules, "client.mjs"), d.Socket, proto}, args...)...)
		cmd.WaitDelay = 10 * time.Second
		var failed bytes.Buffer
		cmd.Stderr = &failed
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%v\n%s%s", err, out, failed.Bytes())
		}
		return string(out)
	}
	seen := run()
	inOrder(t, seen, "created x-", "commands\n", "keys\n", "once\n", "refused\n", "event ", "reflected ", "place ")
	place := regexp.MustCompile(`place (\S+) (\S+) (\S+)`).FindStringSubmatch(seen)
	receipt := regexp.MustCompile(`event (\S+)`).FindStringSubmatch(seen)
	if place == nil || receipt == nil {
		t.Fatal(seen)
	}
	ctx, c := t.Context(), d.Client().WithScope(api.Scope{AgentID: "outsider"})
	if r, err := c.Receipt(ctx, receipt[1]); err != nil || r.Outcome != api.OutcomeDenied || r.Op != api.OpShellOpen {
		t.Errorf("%+v %v", r, err)
	}
	d.Kill()
	if err := d.Start(); err != nil {
		t.Fatal(err)
	}
	inOrder(t, run(place[1:]...), "went on", "has ended")
	exec, _, _ := strings.Cut(place[1], "@")
	s, err := c.Shell(ctx, exec)
	if err != nil || s.Status != api.ShellClosed {
		t.Fatalf("%+v %v", s, err)
	}
	if ses, err := c.Session(ctx, s.SessionID); err != nil || ses.State != "closed" || ses.Reason != "closed" {
		t.Errorf("%+v %v", ses, err)
	}
}

// TestGRPCGuide runs the commands of docs/grpc.md as they stand there.
func TestGRPCGuide(t *testing.T) {
	inOrder(t, guide(t, "../docs/grpc.md", "Try it"),
		`"state":"IDLE"`, `"accepted":true`, "\n42", `"state":"IDLE"`, `"finalState":"CLOSED"`, `"reason":"exec_not_found"`)
}
