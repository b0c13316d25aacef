package integration

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/stockade-dev/stockade/supervisor/api"
	"github.com/stockade-dev/stockade/supervisor/rpc"
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

// A client in Go goes on by its tokens and cursors when the daemon was killed and another serves: what was written meanwhile is there, once,
// with its exit code, and no event comes twice. The runner has held the session.
func TestGRPCOverRestart(t *testing.T) {
	d := start(t, "--long-running", "600ms", "--load-interval", "100ms")
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: &protocols, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", d.Socket)
	}}
	defer transport.CloseIdleConnections()
	c := rpc.NewSessionServiceClient(&http.Client{Transport: transport}, "http://localhost", connect.WithGRPC())
	ctx, cancel := context.WithTimeout(t.Context(), atMost)
	defer cancel()
	made, err := c.CreateSession(ctx, &rpc.CreateSessionRequest{AgentId: "outsider", Argv: []string{"/bin/bash", "--norc", "-i"}})
	if err != nil {
		t.Fatal(err)
	}
	id, token := made.SessionId, made.Token
	typed := func(line string) string {
		r, err := c.SendInput(ctx, &rpc.SendInputRequest{SessionId: id, Data: []byte(line)})
		if err != nil || !r.Accepted {
			t.Fatalf("%q: %v, %v", line, r, err)
		}
		return r.CommandId
	}
	var out strings.Builder
	codes := map[string]uint32{}
	until := func(command string) {
		for {
			if _, ended := codes[command]; ended {
				return
			}
			r, err := c.ReadOutput(ctx, &rpc.ReadOutputRequest{SessionId: id, Since: token, WaitTimeoutMs: 1000})
			if err != nil || r.Truncated {
				t.Fatalf("%v %v", r, err)
			}
			token = r.Token
			for _, chunk := range r.Chunks {
				out.Write(chunk.Payload)
				if chunk.ExitCode != nil {
					codes[chunk.CommandId] = *chunk.ExitCode
				}
			}
		}
	}
	until(typed("echo before-$((6*7)); sleep 1\n"))
	events, err := c.SubscribeSessionEvents(ctx, &rpc.SubscribeSessionEventsRequest{SessionId: id})
	if err != nil || !events.Receive() {
		t.Fatalf("%v %v", err, events.Err())
	}
	first := events.Msg()
	if first.Type != rpc.SessionEvent_RESOURCE_THRESHOLD || first.Reason != "long_running" || first.Cursor == "" {
		t.Errorf("%v", first)
	}
	away := typed("sleep 0.4; echo meanwhile-$((6*9)); (exit 9)\n")
	runner := d.Runner()
	d.Kill()
	for events.Receive() {
		t.Errorf("of a daemon that was killed: %v", events.Msg())
	}
	if events.Err() == nil {
		t.Error("the stream ended as if nothing followed")
	}
	events.Close()
	time.Sleep(time.Second) // it is written, and nobody serves
	if err := d.Start(); err != nil {
		t.Fatal(err)
	}
	if d.Runner() != runner {
		t.Errorf("the runner is another: %d, and was %d", d.Runner(), runner)
	}
	until(away)
	until(typed("echo after-$((6*8))\n"))
	for _, want := range []string{"before-42\r\n", "meanwhile-54\r\n", "after-48\r\n"} {
		if strings.Count(out.String(), want) != 1 {
			t.Errorf("%q is not there once: %q", want, out.String())
		}
	}
	if codes[away] != 9 {
		t.Errorf("exit codes are %v", codes)
	}
	if events, err = c.SubscribeSessionEvents(ctx, &rpc.SubscribeSessionEventsRequest{SessionId: id, After: first.Cursor}); err != nil {
		t.Fatal(err)
	}
	if r, err := c.CloseSession(ctx, &rpc.CloseSessionRequest{SessionId: id, Mode: rpc.CloseMode_FORCE}); err != nil || r.FinalState == rpc.SessionState_RUNNING {
		t.Errorf("%v %v", r, err)
	}
	var told []rpc.SessionEvent_Type
	for events.Receive() {
		if told = append(told, events.Msg().Type); events.Msg().Cursor == first.Cursor {
			t.Error("what was seen comes again")
		}
	}
	if want := []rpc.SessionEvent_Type{rpc.SessionEvent_SESSION_CLOSED}; events.Err() != nil || !slices.Equal(told, want) {
		t.Errorf("%v %v", told, events.Err())
	}
	events.Close()
}

// inOrder checks that the output of a program has all that is wanted, in this order.
func inOrder(t *testing.T, text string, wanted ...string) {
	t.Helper()
	for _, want := range wanted {
		_, after, found := strings.Cut(text, want)
		if !found {
			t.Errorf("it says no %q after what came before it", want)
			continue
		}
		text = after
	}
}
