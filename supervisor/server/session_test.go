package server

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"connectrpc.com/connect"
	"connectrpc.com/grpcreflect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/stockade-dev/stockade/rego"
	"github.com/stockade-dev/stockade/supervisor"
	"github.com/stockade-dev/stockade/supervisor/api"
	"github.com/stockade-dev/stockade/supervisor/rpc"
	"github.com/stockade-dev/stockade/supervisor/telemetry"
)

// remoteProtocols are the ways to ask for a remote procedure.
var remoteProtocols = []struct {
	name    string
	options []connect.ClientOption
}{
	{"grpc", []connect.ClientOption{connect.WithGRPC()}},
	{"grpc-web", []connect.ClientOption{connect.WithGRPCWeb()}},
	{"json", []connect.ClientOption{connect.WithProtoJSON()}},
}

// overH2C is an HTTP/2 client without any help.
func (b *box) overH2C(t testing.TB) *http.Client {
	tr := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return net.Dial("unix", b.socket) }}
	tr.Protocols = new(http.Protocols)
	tr.Protocols.SetUnencryptedHTTP2(true)
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

// remote is a client of S1's service, by gRPC unless the options say otherwise.
func (b *box) remote(t testing.TB, options ...connect.ClientOption) rpc.SessionServiceClient {
	if options == nil {
		options = remoteProtocols[0].options
	}
	return rpc.NewSessionServiceClient(b.overH2C(t), "http://localhost", options...)
}

// declaring is a context whose calls have headers.
func declaring(ctx context.Context, header ...string) context.Context {
	ctx, info := connect.NewClientContext(ctx)
	for i := 0; i < len(header); i += 2 {
		info.RequestHeader().Add(header[i], header[i+1])
	}
	return ctx
}

// ofSessions is the policy of the tests, with a program that is for nobody, and processes in the background for who asks for them.
func ofSessions(t testing.TB) func(*supervisor.Config) {
	t.Helper()
	text := func(name, old, new string) *fstest.MapFile {
		before := string(policy[name].Data)
		after := strings.Replace(before, old, new, 1)
		if after == before {
			t.Fatalf("%s has no %q", name, old)
		}
		return &fstest.MapFile{Data: []byte(after)}
	}
	files := maps.Clone(policy)
	files["open.rego"] = text("open.rego", `"exec": {`, `"exec": {"background": object.get(input.request.open, "allow_background_processes", false), `)
	files["exec.rego"] = text("exec.rego", "package stockade.exec", `package stockade.exec
decision := {"allow": false, "deny": [{"code": "operation_not_allowed", "subject": "argv"}], "warn": []} if input.request.exec.argv[0] == "forbidden"
decision := {"allow": false, "deny": [{"code": "corp.curfew", "message": "it is late"}], "warn": []} if input.request.exec.argv[0] == "late"`)
	engine, err := rego.Load(files, rego.Options{Deadline: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	return func(c *supervisor.Config) { c.Policy = engine }
}

// told is the code of gRPC of an error, and what its details say: the first reason is the error's, the others are denials.
func told(err error) (code connect.Code, reasons []string, receipt string) {
	if err == nil {
		return 0, nil, ""
	}
	var e *connect.Error
	if !errors.As(err, &e) {
		return connect.CodeUnknown, []string{err.Error()}, ""
	}
	for _, d := range e.Details() {
		v, err := d.Value()
		if err != nil {
			return e.Code(), []string{err.Error()}, ""
		}
		info := v.(*errdetails.ErrorInfo)
		reasons = append(reasons, info.Reason)
		if info.Domain != errorDomain {
			reasons = append(reasons, "of "+info.Domain)
		}
		if id := info.Metadata["receipt_id"]; id != "" {
			receipt = id
		}
	}
	return e.Code(), reasons, receipt
}

// lived is a session of S1's, and who lives in it.
type lived struct {
	testing.TB
	rpc.SessionServiceClient
	id    string
	token *rpc.OutputToken
	state rpc.SessionState
}

func (b *box) live(t testing.TB, c rpc.SessionServiceClient, ask *rpc.CreateSessionRequest) *lived {
	t.Helper()
	s, err := c.CreateSession(t.Context(), ask)
	if err != nil {
		t.Fatal(err)
	}
	return &lived{t, c, s.SessionId, s.Token, s.State}
}

// ends types a line and reads until its command has ended: what came out, and the exit code.
func (l *lived) ends(line string) (out string, code uint32) {
	l.Helper()
	typed, err := l.SendInput(l.Context(), &rpc.SendInputRequest{SessionId: l.id, Data: []byte(line + "\n")})
	if err != nil || !typed.Accepted || typed.CommandId == "" {
		l.Fatalf("%v %v", typed, err)
	}
	over := false
	for until := time.Now().Add(10 * time.Second); !over || l.state != rpc.SessionState_IDLE; {
		if time.Now().After(until) {
			l.Fatalf("%q does not end: %q, %v", line, out, l.state)
		}
		o, err := l.ReadOutput(l.Context(), &rpc.ReadOutputRequest{SessionId: l.id, Since: l.token, WaitTimeoutMs: 1000})
		if err != nil {
			l.Fatal(err)
		}
		for _, k := range o.Chunks {
			out += string(k.Payload)
			if k.ExitCode != nil && k.CommandId == typed.CommandId {
				over, code = true, *k.ExitCode
			}
		}
		l.token, l.state = o.Token, o.State
	}
	return out, code
}

// S1's flow, by every protocol: each procedure is operations of the caller's with receipts, and leaves nothing behind (R143, R152,
// R162, R163).
func TestSessionService(t *testing.T) {
	b := newBox(t, Options{})
	for _, p := range remoteProtocols {
		t.Run(p.name, func(t *testing.T) {
			c := b.remote(t, p.options...)
			created, err := c.CreateSession(t.Context(), &rpc.CreateSessionRequest{AgentId: "agent-" + p.name, InitialCwd: "/tmp", Environment: map[string]string{"COLOR": "red"}})
			if err != nil {
				t.Fatal(err)
			}
			m := created.Metadata
			if created.Prompt != "$ " || created.State != rpc.SessionState_IDLE || created.SessionId != m.ExecId+"@agent-"+p.name ||
				m.AgentId != "agent-"+p.name || m.Cwd != "/tmp" || m.SandboxMode != "test" || !slices.Equal(m.Argv, api.DefaultShell) ||
				m.Cols != 80 || m.Rows != 24 || m.Policy.GetMaxLifetimeSeconds() != 3600 || m.PolicyDigest == "" ||
				time.Since(m.CreatedAt.AsTime()) > time.Minute {
				t.Errorf("%v", created)
			}
			l := &lived{t, c, created.SessionId, created.Token, created.State}
			if out, code := l.ends("hello"); out != "hello\r\nran hello\r\n$ " || code != 0 {
				t.Errorf("%q %d", out, code)
			}
			got, err := c.GetSession(t.Context(), &rpc.GetSessionRequest{SessionId: l.id})
			if err != nil || got.State != rpc.SessionState_IDLE || !got.Prompt.GetMarked() || len(got.Commands) != 1 || got.Commands[0].GetExitCode() != 0 ||
				got.Metadata.HostSessionId != m.HostSessionId || got.Token.GetValue() != l.token.GetValue() {
				t.Errorf("%v %v", got, err)
			}
			// From the beginning of what is kept it is the same again, in small pieces, without the marks.
			var all string
			for at := new(rpc.OutputToken); ; {
				o, err := c.ReadOutput(t.Context(), &rpc.ReadOutputRequest{SessionId: l.id, Since: at, MaxBytes: 3})
				if err != nil {
					t.Fatal(err)
				}
				for _, k := range o.Chunks {
					if all += string(k.Payload); len(k.Payload) > 3 || k.At == nil || k.SessionId != l.id {
						t.Errorf("%v", k)
					}
				}
				if at = o.Token; len(o.Chunks) == 0 {
					break
				}
			}
			if all != "$ hello\r\nran hello\r\n$ " {
				t.Errorf("%q", all)
			}
			closed, err := c.CloseSession(t.Context(), &rpc.CloseSessionRequest{SessionId: l.id})
			if err != nil || closed.FinalState != rpc.SessionState_CLOSED || !strings.Contains(closed.Summary, "has ended") {
				t.Errorf("%v %v", closed, err)
			}
			again, err := c.CloseSession(t.Context(), &rpc.CloseSessionRequest{SessionId: l.id, Mode: rpc.CloseMode_FORCE})
			if err != nil || again.FinalState != closed.FinalState {
				t.Errorf("again: %v %v", again, err)
			}
			list, err := b.WithScope(api.Scope{AgentID: "agent-" + p.name}).Receipts(t.Context(), api.Read{})
			if err != nil {
				t.Fatal(err)
			}
			var ops []string
			for _, r := range list {
				ops = append(ops, string(r.Op))
				if r.Principal.UID != uint32(os.Getuid()) || r.Outcome != api.OutcomeOK {
					t.Errorf("%+v", r)
				}
			}
			want := []string{"host.shell.close", "host.session.close", "host.shell.close", "host.shell.open", "host.shell.input", "host.session.open"}
			slices.Sort(ops)
			slices.Sort(want)
			if !slices.Equal(ops, want) {
				t.Errorf("receipts %v", ops)
			}
		})
	}
}

// JSON over HTTP/1.1, as curl would.
func TestSessionServiceByCurl(t *testing.T) {
	b := newBox(t, Options{})
	const service = "/stockade.shell.v1.SessionService/"
	for _, row := range []struct {
		name, procedure, body string
		header                []string
		status                int
		want                  string
	}{
		{"create", "CreateSession", `{"agentId":"a","policy":{"maxLifetimeSeconds":60}}`, nil, 200, `"prompt":"$ "`},
		{"create, by the names of the .proto", "CreateSession", `{"agent_id":"a"}`, nil, 200, `"state":"IDLE"`},
		{"charset", "CreateSession", `{}`, []string{"Content-Type", "application/json; charset=utf-8"}, 200, `"prompt":"$ "`},
		{"denied", "CreateSession", `{"profile":"forbidden"}`, nil, 403, `"code":"permission_denied"`},
		{"not found", "GetSession", `{"sessionId":"x-nobody"}`, nil, 404, `"reason":"exec_not_found"`},
		{"unknown member", "CreateSession", `{"agentID":"a"}`, nil, 400, `unknown field`},
		{"member twice", "CreateSession", `{"agentId":"a","agentId":"b"}`, nil, 400, `duplicate field`},
		{"no document", "CreateSession", ``, nil, 400, `not a JSON document`},
		{"no such procedure", "Destroy", `{}`, nil, 404, ``},
		{"not a number of S1's", "SendInput", `{"sessionId":"x-nobody","actions":[{"type":17}]}`, nil, 400, `"reason":"invalid_params"`},
		{"parameter in the URL", "GetSession?sessionId=x", `{}`, nil, 400, `"reason":"invalid_header"`},
		{"encoded", "GetSession", `{}`, []string{"Content-Encoding", "gzip"}, 415, `unsupported_media_type`},
		{"another media type", "GetSession", `{}`, []string{"Content-Type", "text/plain"}, 415, ``},
		{"of a web page", "GetSession", `{}`, []string{"Origin", "https://example.org"}, 400, `invalid_header`},
		{"of somebody's proxy", "GetSession", `{}`, []string{"Host", "example.org"}, 400, `invalid_header`},
	} {
		t.Run(row.name, func(t *testing.T) {
			header := row.header
			if !slices.Contains(header, "Content-Type") {
				header = append(header, "Content-Type", "application/json")
			}
			status, body := b.do(t, "POST", service+row.procedure, row.body, header...)
			if status != row.status || !strings.Contains(body, row.want) {
				t.Errorf("%d %s", status, body)
			}
		})
	}
	if status, _ := b.do(t, "GET", service+"GetSession", ""); status != 405 {
		t.Errorf("GET: %d", status)
	}
}

// What is refused is refused as over HTTP: with a code of gRPC, ours as the reason, and the receipt where there is one.
func TestSessionServiceErrors(t *testing.T) {
	b := newBox(t, Options{})
	c := b.remote(t)
	l := b.live(t, c, &rpc.CreateSessionRequest{AgentId: "a"})
	ended := b.live(t, c, &rpc.CreateSessionRequest{})
	if _, err := c.CloseSession(t.Context(), &rpc.CloseSessionRequest{SessionId: ended.id}); err != nil {
		t.Fatal(err)
	}
	command := b.begin(t, api.Exec{SessionID: b.open(t), Argv: []string{"sleep"}}).ExecID
	exec, _ := shellOf(l.id)
	get := func(id string, header ...string) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := c.GetSession(declaring(ctx, header...), &rpc.GetSessionRequest{SessionId: id})
			return err
		}
	}
	read := func(ask *rpc.ReadOutputRequest, header ...string) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := c.ReadOutput(declaring(ctx, header...), ask)
			return err
		}
	}
	create := func(ask *rpc.CreateSessionRequest, header ...string) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := c.CreateSession(declaring(ctx, header...), ask)
			return err
		}
	}
	send := func(ask *rpc.SendInputRequest, header ...string) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := c.SendInput(declaring(ctx, header...), ask)
			return err
		}
	}
	closing := func(ask *rpc.CloseSessionRequest) func(context.Context) error {
		return func(ctx context.Context) error { _, err := c.CloseSession(ctx, ask); return err }
	}
	events := func(ask *rpc.SubscribeSessionEventsRequest) func(context.Context) error {
		return func(ctx context.Context) error {
			s, err := c.SubscribeSessionEvents(ctx, ask)
			if err != nil {
				return err
			}
			defer s.Close()
			for s.Receive() {
			}
			return s.Err()
		}
	}
	keyed := send(&rpc.SendInputRequest{SessionId: l.id, Data: []byte("x")}, "Idempotency-Key", "once")
	if err := keyed(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		name    string
		ask     func(context.Context) error
		code    connect.Code
		reason  api.Code
		receipt bool // it was an operation
	}{
		{"no id", get(""), connect.CodeNotFound, api.CodeExecNotFound, false},
		{"nobody's id", get("x-nobody"), connect.CodeNotFound, api.CodeExecNotFound, false},
		{"another agent's", get(exec + "@b"), connect.CodeNotFound, api.CodeExecNotFound, false},
		{"an agent's, without saying so", get(exec), connect.CodeNotFound, api.CodeExecNotFound, false},
		{"an agent's, by the header", get(exec, "Stockade-Scope", `{"agent_id":"a"}`), 0, "", false},
		{"both", get(l.id, "Stockade-Scope", `{"agent_id":"a"}`), 0, "", false},
		{"two agents", get(l.id, "Stockade-Scope", `{"agent_id":"b"}`), connect.CodeInvalidArgument, api.CodeInvalidHeader, false},
		{"no scope", get(l.id, "Stockade-Scope", `{"agent":"b"}`), connect.CodeInvalidArgument, api.CodeInvalidHeader, false},
		{"the agent's world, which it was not opened in", get(l.id, "Stockade-Scope", `{"world_id":"w"}`), connect.CodeNotFound, api.CodeExecNotFound, false},
		{"a command that is no shell", get(command), connect.CodeFailedPrecondition, api.CodeNoShell, false},
		{"typing into no shell", send(&rpc.SendInputRequest{SessionId: command, Data: []byte("x")}), connect.CodeFailedPrecondition, api.CodeNoShell, true},
		{"a key where it means nothing", get(l.id, "Idempotency-Key", "k"), connect.CodeInvalidArgument, api.CodeInvalidHeader, false},
		{"reading by nobody's token", read(&rpc.ReadOutputRequest{SessionId: l.id, Since: &rpc.OutputToken{Value: "nobody~0"}}), connect.CodeInvalidArgument, api.CodeInvalidToken, false},
		{"by another session's", read(&rpc.ReadOutputRequest{SessionId: l.id, Since: ended.token}), connect.CodeInvalidArgument, api.CodeInvalidToken, false},
		{"by one of the future", read(&rpc.ReadOutputRequest{SessionId: l.id, Since: &rpc.OutputToken{Value: exec + "~zzzz"}}), connect.CodeInvalidArgument, api.CodeInvalidToken, false},
		{"waiting for ever", read(&rpc.ReadOutputRequest{SessionId: l.id, WaitTimeoutMs: 1 << 31}), connect.CodeInvalidArgument, api.CodeInvalidParams, false},
		{"a profile that is for nobody", create(&rpc.CreateSessionRequest{Profile: "forbidden"}), connect.CodePermissionDenied, api.CodeProfileNotAllowed, true},
		{"a directory that is none", create(&rpc.CreateSessionRequest{InitialCwd: "here"}), connect.CodeInvalidArgument, api.CodeInvalidWorkdir, true},
		{"a name that is none", create(&rpc.CreateSessionRequest{Environment: map[string]string{"A=": "b"}}), connect.CodeInvalidArgument, api.CodeInvalidEnv, true},
		{"secret and not", create(&rpc.CreateSessionRequest{Environment: map[string]string{"A": "b"}, SecretEnvironment: map[string]string{"A": "b"}}), connect.CodeInvalidArgument, api.CodeInvalidEnv, false},
		{"a workspace that nobody names", create(&rpc.CreateSessionRequest{Policy: &rpc.SessionPolicy{InheritAgentWorkspace: true}}), connect.CodeInvalidArgument, api.CodeInvalidParams, false},
		{"the label of those that the service opens", create(&rpc.CreateSessionRequest{Labels: map[string]string{serviceLabel: "me"}}), connect.CodeInvalidArgument, api.CodeInvalidLabel, false},
		{"in nobody's session", create(&rpc.CreateSessionRequest{HostSessionId: "s-nobody"}), connect.CodeNotFound, api.CodeSessionNotFound, true},
		{"another policy for one that is open", create(&rpc.CreateSessionRequest{HostSessionId: "s-nobody", Profile: "test"}), connect.CodeInvalidArgument, api.CodeInvalidParams, false},
		{"a size that no terminal has", create(&rpc.CreateSessionRequest{Cols: 1 << 31}), connect.CodeInvalidArgument, api.CodeInvalidParams, true},
		{"nothing to type", send(&rpc.SendInputRequest{SessionId: l.id}), connect.CodeInvalidArgument, api.CodeInvalidStdin, true},
		{"resize to nothing", send(&rpc.SendInputRequest{SessionId: l.id, Actions: []*rpc.ControlAction{{Type: rpc.ControlAction_RESIZE}}}), connect.CodeInvalidArgument, api.CodeInvalidParams, true},
		{"a secret that is no text", send(&rpc.SendInputRequest{SessionId: l.id, Data: []byte("\xff"), Secret: true}), connect.CodeInvalidArgument, api.CodeInvalidParams, false},
		{"typing into one that has ended", send(&rpc.SendInputRequest{SessionId: ended.id, Data: []byte("x")}), connect.CodeFailedPrecondition, api.CodeExecEnded, true},
		{"another request under the key", send(&rpc.SendInputRequest{SessionId: l.id, Data: []byte("y")}, "Idempotency-Key", "once"), connect.CodeAlreadyExists, api.CodeKeyConflict, false},
		{"the same under the key", keyed, 0, "", false},
		{"a mode that S1 has not", closing(&rpc.CloseSessionRequest{SessionId: l.id, Mode: 7}), connect.CodeInvalidArgument, api.CodeInvalidMode, true},
		{"closing nobody's", closing(&rpc.CloseSessionRequest{SessionId: "x-nobody"}), connect.CodeNotFound, api.CodeExecNotFound, true},
		{"events of nobody's", events(&rpc.SubscribeSessionEventsRequest{SessionId: "x-nobody"}), connect.CodeNotFound, api.CodeExecNotFound, false},
		{"events after nothing that was", events(&rpc.SubscribeSessionEventsRequest{SessionId: l.id, After: "yesterday"}), connect.CodeInvalidArgument, api.CodeInvalidCursor, false},
		{"reading what policy does not let be read", read(&rpc.ReadOutputRequest{SessionId: exec + "@blind"}), connect.CodeNotFound, api.CodeExecNotFound, false},
		{"too much", send(&rpc.SendInputRequest{SessionId: l.id, Data: make([]byte, api.MaxBody)}), connect.CodeResourceExhausted, "", false},
	} {
		t.Run(row.name, func(t *testing.T) {
			code, reasons, receipt := told(row.ask(t.Context()))
			if code != row.code || row.reason != "" && (len(reasons) == 0 || reasons[0] != string(row.reason)) || (receipt != "") != row.receipt {
				t.Errorf("%v %v, receipt %q", code, reasons, receipt)
			}
			if receipt == "" {
				return
			}
			r, err := b.Receipt(t.Context(), receipt)
			if err != nil {
				r, err = b.WithScope(api.Scope{AgentID: "a"}).Receipt(t.Context(), receipt)
			}
			if err != nil || r.ErrorCode != row.reason {
				t.Errorf("its receipt: %+v %v", r, err)
			}
		})
	}
}

// CreateSession with a key happens once: the same request has the same session for its answer, and another request under the key changes
// nothing, the session least of all.
func TestSessionServiceKeys(t *testing.T) {
	b := newBox(t, Options{}, ofSessions(t))
	c := b.remote(t)
	create := func(cols uint32) (*rpc.CreateSessionResponse, error) {
		return c.CreateSession(declaring(t.Context(), "Idempotency-Key", "once"), &rpc.CreateSessionRequest{Cols: cols})
	}
	first, err := create(80)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := create(80); err != nil || again.SessionId != first.SessionId {
		t.Errorf("%v %v, the first was %v", again, err, first)
	}
	if _, err := create(100); connect.CodeOf(err) != connect.CodeAlreadyExists {
		t.Errorf("another size under the key: %v", err)
	}
	sessions, err := b.Sessions(t.Context(), api.Read{})
	if err != nil || len(sessions) != 1 || sessions[0].EndedAtNS != 0 {
		t.Errorf("%+v %v", sessions, err)
	}
}

// What a procedure does is below the span of who called it (R257).
func TestSessionServiceSpans(t *testing.T) {
	var sent []string
	var mu sync.Mutex
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		sent = append(sent, string(body))
	}))
	defer collector.Close()
	traces, err := telemetry.OpenTraces(collector.URL, "1", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	b := newBox(t, Options{Traces: traces}, ofSessions(t), func(c *supervisor.Config) { c.Traces = traces })
	ctx := declaring(t.Context(), "Traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
	if _, err := b.remote(t).CreateSession(ctx, &rpc.CreateSessionRequest{}); err != nil {
		t.Fatal(err)
	}
	if err := traces.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	all := strings.Join(sent, "\n")
	for _, want := range []string{`"name":"` + rpc.SessionServiceName + `"`, `"parentSpanId":"00f067aa0ba902b7"`, `"name":"host.session.open"`} {
		if !strings.Contains(all, want) {
			t.Errorf("no %s in %s", want, all)
		}
	}
	for _, m := range regexp.MustCompile(`"traceId":"([0-9a-f]*)"`).FindAllStringSubmatch(all, -1) {
		if m[1] != "4bf92f3577b34da6a3ce929d0e0e4736" {
			t.Errorf("a span is in trace %s", m[1])
		}
	}
}

// A read that policy denies is refused with its receipt, and what CreateSession opened for a shell that is denied is closed again.
func TestSessionServiceDenials(t *testing.T) {
	b := newBox(t, Options{}, ofSessions(t))
	c := b.remote(t)
	_, err := c.CreateSession(t.Context(), &rpc.CreateSessionRequest{Argv: []string{"forbidden"}})
	code, reasons, receipt := told(err)
	if code != connect.CodePermissionDenied || !slices.Equal(reasons, []string{"operation_not_allowed", "operation_not_allowed"}) || receipt == "" {
		t.Errorf("%v %v %q", code, reasons, receipt)
	}
	_, err = c.CreateSession(t.Context(), &rpc.CreateSessionRequest{Argv: []string{"late"}}) // by a code that is none of ours
	if code, reasons, _ := told(err); code != connect.CodePermissionDenied || reasons[0] != "corp.curfew" {
		t.Errorf("%v %v", code, reasons)
	}
	sessions, err := b.Sessions(t.Context(), api.Read{})
	if err != nil || len(sessions) != 2 || sessions[0].EndedAtNS == 0 || sessions[1].EndedAtNS == 0 || sessions[0].Labels[serviceLabel] != servedBy {
		t.Errorf("%+v %v", sessions, err)
	}
	// Who may open, and not look, has the session, and nothing is told of it that he would have to look for.
	l, err := c.CreateSession(t.Context(), &rpc.CreateSessionRequest{AgentId: "blind"})
	if err != nil || l.Prompt != "$ " || l.Metadata.ExecId == "" || l.Metadata.Policy != nil {
		t.Fatalf("%v %v", l, err)
	}
	for _, ask := range []func() error{
		func() error {
			_, err := c.GetSession(t.Context(), &rpc.GetSessionRequest{SessionId: l.SessionId})
			return err
		},
		func() error {
			_, err := c.ReadOutput(t.Context(), &rpc.ReadOutputRequest{SessionId: l.SessionId})
			return err
		},
	} {
		if code, reasons, receipt := told(ask()); code != connect.CodePermissionDenied || reasons[0] != "operation_not_allowed" || receipt == "" {
			t.Errorf("%v %v %q", code, reasons, receipt)
		}
	}
}

// Who knows nothing finds the service and its whole contract by reflection.
func TestReflection(t *testing.T) {
	b := newBox(t, Options{})
	c := grpcreflect.NewClient(b.overH2C(t), "http://localhost", connect.WithGRPC())
	stream := c.NewStream(t.Context())
	defer stream.Close()
	names, err := stream.ListServices()
	if err != nil || !slices.Equal(names, []protoreflect.FullName{rpc.SessionServiceName}) {
		t.Fatalf("%v %v", names, err)
	}
	files, err := stream.FileContainingSymbol(names[0])
	if err != nil {
		t.Fatal(err)
	}
	want := protodesc.ToFileDescriptorProto(rpc.File_stockade_shell_v1_session_proto)
	if !slices.ContainsFunc(files, func(f *descriptorpb.FileDescriptorProto) bool { return proto.Equal(f, want) }) {
		t.Errorf("%d files, and session.proto is none of them", len(files))
	}
	if _, err := stream.FileContainingSymbol("stockade.shell.v1.Nothing"); err == nil {
		t.Error("there is nothing of this name")
	}
}

// What is not compressed, known and whole is a message; nothing else is (T157).
func TestStrictMessages(t *testing.T) {
	known, err := proto.Marshal(&rpc.SendInputRequest{SessionId: "x-1", Actions: []*rpc.ControlAction{{Type: rpc.ControlAction_CTRL_C}}})
	if err != nil {
		t.Fatal(err)
	}
	more := protowire.AppendVarint(protowire.AppendTag(nil, 999, protowire.VarintType), 1)
	action := protowire.AppendBytes(protowire.AppendTag(nil, 3, protowire.BytesType), more)
	value := protowire.AppendBytes(protowire.AppendTag(nil, 4, protowire.BytesType), more)
	for _, row := range []struct {
		name  string
		bytes []byte
		into  proto.Message
		ok    bool
	}{
		{"as it should be", known, new(rpc.SendInputRequest), true},
		{"a field that nobody knows", slices.Concat(known, more), new(rpc.SendInputRequest), false},
		{"one in an element of a list", slices.Concat(known, action), new(rpc.SendInputRequest), false},
		{"one in a message within", value, new(rpc.CreateSessionRequest), false},
		{"cut short", known[:len(known)-1], new(rpc.SendInputRequest), false},
	} {
		if err := (strictProto{}).Unmarshal(row.bytes, row.into); (err == nil) != row.ok {
			t.Errorf("%s: %v", row.name, err)
		}
	}
	got, err := strictJSON{"json"}.Marshal(&rpc.CreateSessionRequest{AgentId: "a", Cols: 3, Labels: map[string]string{"a": "b"}})
	if want := `{"agentId":"a","cols":3,"labels":{"a":"b"}}`; err != nil || string(got) != want {
		t.Errorf("%s %v", got, err)
	}
	b := newBox(t, Options{})
	squeezed := b.remote(t, connect.WithGRPC(), connect.WithSendGzip())
	_, err = squeezed.GetSession(t.Context(), &rpc.GetSessionRequest{})
	if code, reasons, _ := told(err); code != connect.CodeUnimplemented {
		t.Errorf("%v %v", code, reasons)
	}
}

// Every code that we have is one of gRPC's by its status, and not by default.
func TestRemoteCodes(t *testing.T) {
	for _, info := range api.Codes {
		if _, ok := remoteCodes[info.Status]; !ok {
			t.Errorf("%s: status %d has no code of gRPC", info.Code, info.Status)
		}
	}
}

// The same call under the same key has one session, whatever of it was lost; another key has another (R041).
func TestSessionServiceOnce(t *testing.T) {
	b := newBox(t, Options{})
	c := b.remote(t)
	var ids []string
	for _, key := range []string{"k", "k", "l"} {
		s, err := c.CreateSession(declaring(t.Context(), "Idempotency-Key", key), &rpc.CreateSessionRequest{AgentId: "a"})
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, s.SessionId)
	}
	if ids[0] != ids[1] || ids[1] == ids[2] || b.fake.opened.Load() != 2 {
		t.Errorf("%v, %d sessions", ids, b.fake.opened.Load())
	}
	typed := func() *rpc.SendInputResponse {
		r, err := c.SendInput(t.Context(), &rpc.SendInputRequest{SessionId: ids[0], Data: []byte("x\n"), InputId: "1"})
		if err != nil || !r.Accepted {
			t.Fatal(r, err)
		}
		return r
	}
	var closed []string
	for range 2 {
		r, err := c.CloseSession(declaring(t.Context(), "Idempotency-Key", "m"), &rpc.CloseSessionRequest{SessionId: ids[2]})
		if err != nil {
			t.Fatal(err)
		}
		closed = append(closed, r.FinalState.String()+r.ReceiptId)
	}
	if closed[0] != closed[1] {
		t.Error(closed)
	}
	if first, again := typed(), typed(); first.Duplicate || !again.Duplicate || again.Bytes != 0 { // R176
		t.Errorf("%v %v", first, again)
	}
}

// What waits to be typed is bounded, and S1 answers that: no error (R149).
func TestSessionServiceQueueFull(t *testing.T) {
	codes := []api.Code{api.CodeQueueFull, api.CodeStdinFull, api.CodeWriterHeld}
	for _, code := range codes {
		b := serve(t, &script{
			do: func(*api.Request) (*api.Receipt, error) {
				return &api.Receipt{IntentID: "i", Outcome: api.OutcomeFaulted, ErrorCode: code, Payload: api.Payload{Shell: &api.ShellResult{Bytes: 3, ErrorCode: code}}}, nil
			},
			shell: func(*api.Request) (*api.Shell, *api.Receipt, error) {
				return &api.Shell{Status: api.ShellBusy}, nil, nil
			},
		}, Options{})
		r, err := b.remote(t).SendInput(t.Context(), &rpc.SendInputRequest{SessionId: "x-1", Data: []byte("abcdef")})
		if err != nil || r.Accepted || r.ErrorCode != string(code) || r.State != rpc.SessionState_BUSY || r.Bytes != 3 || r.ReceiptId != "i" {
			t.Errorf("%s: %v %v", code, r, err)
		}
	}
}

// In a session that somebody has opened otherwise, the shell is all that is closed; one that may have processes in the background goes on with
// them, until it is closed by force (R168, R169).
func TestSessionServiceLeaves(t *testing.T) {
	b := newBox(t, Options{}, ofSessions(t))
	c := b.remote(t)
	state := func(id string) string {
		s, err := b.Session(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		return s.State
	}
	end := func(l *lived, mode rpc.CloseMode) *rpc.CloseSessionResponse {
		r, err := c.CloseSession(t.Context(), &rpc.CloseSessionRequest{SessionId: l.id, Mode: mode})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	id := b.open(t)
	for _, mode := range []rpc.CloseMode{rpc.CloseMode_GRACEFUL, rpc.CloseMode_FORCE} {
		r := end(b.live(t, c, &rpc.CreateSessionRequest{HostSessionId: id, Environment: map[string]string{"A": "b"}, InitialCwd: "src"}), mode)
		if state(id) != "ready" || !strings.Contains(r.Summary, id+" was not opened for it") {
			t.Errorf("%v: %s, %s", mode, state(id), r.Summary)
		}
	}
	l := b.live(t, c, &rpc.CreateSessionRequest{Policy: &rpc.SessionPolicy{AllowBackgroundProcesses: true}})
	got, err := c.GetSession(t.Context(), &rpc.GetSessionRequest{SessionId: l.id})
	if err != nil || !got.Metadata.Policy.AllowBackgroundProcesses {
		t.Fatalf("%v %v", got, err)
	}
	id = got.Metadata.HostSessionId
	if r := end(l, rpc.CloseMode_GRACEFUL); state(id) != "ready" || !strings.Contains(r.Summary, "goes on") {
		t.Errorf("%s, %s", state(id), r.Summary)
	}
	if r := end(l, rpc.CloseMode_FORCE); state(id) != "closed" || r.FinalState != rpc.SessionState_CLOSED {
		t.Errorf("%s, %s", state(id), r.Summary)
	}
}

// Events are those that S1 has, of this session, from a cursor on, until it is closed (R173).
func TestSessionServiceEvents(t *testing.T) {
	notices := []api.Notice{
		{Kind: api.NoticeViolation, AtNS: 5, Detail: "before the shell"},
		{Kind: api.NoticeSession, State: "ready", AtNS: 10},
		{Kind: api.NoticeIdle, AtNS: 11, Detail: "no activity"},
		{Kind: api.NoticeViolation, AtNS: 12, Op: api.OpExec, Reason: "argv_not_allowed", IntentID: "i-9"},
		{Kind: api.NoticeViolation, AtNS: 12, ExecID: "x-2", Reason: "another's"},
		{Kind: api.NoticeOutput, AtNS: 13, ExecID: "x-1"},
		{Kind: api.NoticeThreshold, AtNS: 14, Reason: "memory", Detail: "95 of 100"},
		{Kind: api.NoticeNetwork, AtNS: 14},
		{Kind: api.NoticeTimeout, AtNS: 15},
		{Kind: api.NoticeProcess, AtNS: 15, ExecID: "x-2", State: "completed"},
		{Kind: api.NoticeProcess, AtNS: 16, ExecID: "x-1", State: "running"},
		{Kind: api.NoticeProcess, AtNS: 17, ExecID: "x-1", State: "timed_out", Reason: "session_idle"},
		{Kind: api.NoticeSession, AtNS: 18, State: "closed"},
	}
	for i := range notices {
		notices[i].Seq = int64(i + 1)
	}
	live := api.StateRunning
	b := serve(t, &script{
		shell: func(*api.Request) (*api.Shell, *api.Receipt, error) {
			return &api.Shell{Process: api.Process{ExecID: "x-1", SessionID: "s-1", QueuedAtNS: 10, State: live}}, nil, nil
		},
		follow: func(ctx context.Context, req *api.Request, emit func(api.Notice)) (*api.Receipt, error) {
			if req.Read.SessionID != "s-1" || req.Facade != facadeRPC {
				t.Errorf("%+v", req.Read)
			}
			var after int
			fmt.Sscan(req.Read.After, &after)
			if after == 99 {
				return nil, api.Errorf(api.CodeGone, "not kept")
			}
			for _, n := range notices[after:] {
				emit(n)
			}
			<-ctx.Done() // it would go on
			return nil, context.Cause(ctx)
		},
		events: func(_ context.Context, req *api.Request) (*api.NoticeList, *api.Receipt, error) {
			var after int
			fmt.Sscan(req.Read.After, &after)
			last := min(after+5, len(notices))
			return &api.NoticeList{Events: notices[after:last], Next: int64(last)}, nil, nil
		},
	}, Options{})
	c := b.remote(t)
	follow := func(after string) (seen []string, err error) {
		s, err := c.SubscribeSessionEvents(t.Context(), &rpc.SubscribeSessionEventsRequest{SessionId: "x-1", After: after})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		for s.Receive() {
			e := s.Msg()
			if e.SessionId != "x-1" || e.At == nil {
				t.Errorf("%v", e)
			}
			seen = append(seen, strings.TrimSpace(fmt.Sprintf("%s %v %s %s", e.Cursor, e.Type, e.Reason, e.ReceiptId)))
		}
		return seen, s.Err()
	}
	want := []string{"3 IDLE_WARNING", "4 POLICY_VIOLATION argv_not_allowed i-9", "7 RESOURCE_THRESHOLD memory", "9 IDLE_TIMEOUT", "12 SESSION_CLOSED session_idle"}
	for _, state := range []api.State{api.StateRunning, api.StateTimedOut} {
		live = state
		for skip, after := range []string{"", "3", "6", "7", "11"} {
			if seen, err := follow(after); err != nil || !slices.Equal(seen, want[skip:]) {
				t.Errorf("%s, after %q: %q %v", state, after, seen, err)
			}
		}
	}
	if seen, err := follow("13"); err != nil || len(seen) > 0 { // behind the last of one that has ended nothing follows
		t.Errorf("%q %v", seen, err)
	}
	live = api.StateRunning
	_, err := follow("99")
	if code, reasons, _ := told(err); code != connect.CodeOutOfRange || reasons[0] != "gone" {
		t.Errorf("%v %v", code, reasons)
	}
}

// Who does not listen any more, or not in time, is not told: the stream ends, and nothing else does.
func TestSessionServiceListeners(t *testing.T) {
	began, left := make(chan bool, 1), make(chan error, 1)
	b := serve(t, &script{
		shell: func(*api.Request) (*api.Shell, *api.Receipt, error) {
			return &api.Shell{Process: api.Process{ExecID: "x-1", State: api.StateRunning}}, nil, nil
		},
		follow: func(ctx context.Context, req *api.Request, emit func(api.Notice)) (*api.Receipt, error) {
			began <- true
			for i := int64(1); ctx.Err() == nil && req.Read.After == "flood"; i++ {
				emit(api.Notice{Seq: i, Kind: api.NoticeIdle, Detail: strings.Repeat("x", 64<<10)})
			}
			<-ctx.Done()
			left <- context.Cause(ctx)
			return nil, ctx.Err()
		},
	}, Options{WriteTimeout: 200 * time.Millisecond})
	gone := func(what string) {
		t.Helper()
		select {
		case <-left:
		case <-time.After(10 * time.Second):
			t.Fatalf("%s: the stream goes on", what)
		}
	}
	c := b.remote(t)
	ctx, cancel := context.WithCancel(t.Context())
	s, err := c.SubscribeSessionEvents(ctx, &rpc.SubscribeSessionEventsRequest{SessionId: "x-1"})
	if err != nil {
		t.Fatal(err)
	}
	<-began
	cancel()
	gone("canceled")
	if s.Receive() || connect.CodeOf(s.Err()) != connect.CodeCanceled {
		t.Error(s.Err())
	}
	ctx, cancel = context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if s, err = c.SubscribeSessionEvents(ctx, &rpc.SubscribeSessionEventsRequest{SessionId: "x-1"}); err != nil {
		t.Fatal(err)
	}
	if s.Receive() || connect.CodeOf(s.Err()) != connect.CodeDeadlineExceeded {
		t.Error(s.Err())
	}
	<-began
	gone("late")
	if _, err = c.SubscribeSessionEvents(t.Context(), &rpc.SubscribeSessionEventsRequest{SessionId: "x-1", After: "flood"}); err != nil {
		t.Fatal(err)
	}
	<-began
	gone("not read")
}

// A call counts as what its caller has under way, and its message comes in time (T156, T157).
func TestSessionServiceBounds(t *testing.T) {
	b := serve(t, &script{
		shell: func(*api.Request) (*api.Shell, *api.Receipt, error) {
			return &api.Shell{Process: api.Process{ExecID: "x-1", State: api.StateRunning}}, nil, nil
		},
		follow: func(ctx context.Context, _ *api.Request, _ func(api.Notice)) (*api.Receipt, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		},
	}, Options{Requests: 3})
	c := b.remote(t)
	for range 3 {
		s, err := c.SubscribeSessionEvents(t.Context(), &rpc.SubscribeSessionEventsRequest{SessionId: "x-1"})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
	}
	_, err := c.GetSession(t.Context(), &rpc.GetSessionRequest{SessionId: "x-1"})
	if code, reasons, _ := told(err); code != connect.CodeResourceExhausted || reasons[0] != "too_many_requests" {
		t.Errorf("%v %v", code, reasons)
	}

	// Bodies that do not come are counted, by the most that they may be: with room for two, one of three is refused. They are
	// not waited for either.
	for _, c := range []struct {
		bounds   Options
		answered int
	}{
		{Options{BodyTimeout: time.Minute, BodyBytes: 2 * api.MaxBody}, 1},
		{Options{BodyTimeout: 200 * time.Millisecond}, 3},
	} {
		client := serve(t, &script{}, c.bounds).overH2C(t)
		statuses := make(chan string, 3)
		for _, path := range []string{
			"/stockade.shell.v1.SessionService/GetSession", "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
			"/stockade.shell.v1.SessionService/GetSession",
		} {
			body, never := io.Pipe()
			defer never.Close()
			req, err := http.NewRequestWithContext(t.Context(), "POST", "http://localhost"+path, body)
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Content-Type", "application/grpc")
			go func() {
				resp, err := client.Do(req)
				if err != nil {
					statuses <- err.Error()
					return
				}
				io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
				details, _ := base64.RawStdEncoding.DecodeString(resp.Header.Get("Grpc-Status-Details-Bin") + resp.Trailer.Get("Grpc-Status-Details-Bin"))
				statuses <- resp.Header.Get("Grpc-Status") + resp.Trailer.Get("Grpc-Status") + string(details)
			}()
		}
		for range c.answered {
			select {
			case status := <-statuses:
				if status == "" || status == "0" || c.bounds.BodyBytes > 0 && !strings.Contains(status, "too_many_requests") {
					t.Errorf("%+v: status %q", c.bounds, status)
				}
			case <-time.After(20 * time.Second):
				t.Fatalf("%+v: a body that does not come is not counted, or is waited for", c.bounds)
			}
		}
	}
}
