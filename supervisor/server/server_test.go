package server

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stockade-dev/stockade/supervisor/api"
	"github.com/stockade-dev/stockade/supervisor/client"
)

// A life of a session through the client: every method, every route.
func TestLife(t *testing.T) {
	b, ctx := newBox(t, Options{}), t.Context()
	open, err := b.Open(ctx, api.SessionOpen{Target: api.Target{Local: &api.Local{}}, Labels: map[string]string{"team": "a"}})
	if err != nil || open.Payload.Open.Status != "ready" {
		t.Fatalf("open: %+v %v", open, err)
	}
	if open.Principal.UID != uint32(os.Geteuid()) || open.Principal.GID != uint32(os.Getegid()) { // R260
		t.Errorf("principal %+v", open.Principal)
	}
	id := open.SessionID
	ran, err := b.Exec(ctx, api.Exec{SessionID: id, Argv: []string{"echo", "hello"}})
	if err != nil || ran.Payload.Exec.Stdout.InlineText.Text != "hello\n" {
		t.Fatalf("exec: %+v %v", ran, err)
	}
	var kinds []string
	streamed, err := b.ExecStream(ctx, api.Exec{SessionID: id, Argv: []string{"echo", "hello"}}, func(e api.Event) error {
		if e.Kind != "frame" { // when it is told of the start is its own affair
			kinds = append(kinds, string(e.Kind)+":"+string(e.Bytes))
		}
		return nil
	})
	if err != nil || streamed.Outcome != api.OutcomeOK || fmt.Sprint(kinds) != "[accepted: output:hello\n receipt:]" {
		t.Fatalf("stream: %+v %v %q", streamed, err, kinds)
	}
	if streamed.ExecID == "" || streamed.IntentID == "" {
		t.Errorf("ids of %+v", streamed)
	}
	var again bytes.Buffer
	followed, err := b.Watch(ctx, streamed.ExecID, "0.2.0", func(e api.Event) error {
		again.Write(e.Bytes)
		return nil
	})
	if err != nil || followed.IntentID != streamed.IntentID || again.String() != "llo\n" {
		t.Fatalf("follow: %+v %v %q", followed, err, &again)
	}
	blob, err := b.PutBlob(ctx, strings.NewReader("content"), "") // R067
	if err != nil || blob.Payload.Blob.SizeBytes != 7 {
		t.Fatalf("put: %+v %v", blob, err)
	}
	content, size, err := b.Blob(ctx, blob.Payload.Blob.BlobRef)
	if err != nil || size != 7 {
		t.Fatalf("get: %d %v", size, err)
	}
	if text, err := io.ReadAll(content); err != nil || string(text) != "content" {
		t.Fatalf("get: %q %v", text, err)
	}
	content.Close()
	if r, err := b.PutBlob(ctx, io.MultiReader(strings.NewReader("other")), blob.Payload.Blob.BlobRef); err != nil || r.ErrorCode != api.CodeBlobMismatch {
		t.Errorf("put of other content: %+v %v", r, err)
	}
	session, err := b.Session(ctx, id)
	if err != nil || session.State != "ready" || session.Executions != 2 {
		t.Errorf("session: %+v %v", session, err)
	}
	for filter, want := range map[string]int{"a": 1, "b": 0} { // R012, R019
		list, err := b.Sessions(ctx, api.Read{Labels: map[string]string{"team": filter}, State: "ready"})
		if err != nil || len(list) != want {
			t.Errorf("sessions of team %s: %+v %v", filter, list, err)
		}
	}
	receipt, err := b.Receipt(ctx, ran.IntentID)
	if err != nil || receipt.ExecID != ran.ExecID {
		t.Errorf("receipt: %+v %v", receipt, err)
	}
	receipts, err := b.Receipts(ctx, api.Read{SessionID: id, Op: api.OpExec, Limit: 1})
	if err != nil || len(receipts) != 1 || receipts[0].IntentID != streamed.IntentID {
		t.Errorf("receipts: %+v %v", receipts, err)
	}
	decision, err := b.Decide(ctx, api.Request{Op: api.OpSessionOpen, Open: &api.SessionOpen{Target: api.Target{Local: &api.Local{}}, Profile: "forbidden"}})
	if err != nil || decision.Allow || decision.Deny[0].Code != "profile_not_allowed" { // R111
		t.Errorf("decide: %+v %v", decision, err)
	}
	host, err := b.Host(ctx)
	if err != nil || host.Host.Kernel != "6.18" || host.JournalKey == "" {
		t.Errorf("host: %+v %v", host, err)
	}
	version, err := b.Version(ctx)
	if err != nil || version.API != 1 || len(version.Operations) == 0 {
		t.Errorf("version: %+v %v", version, err)
	}
	signal, err := b.Signal(ctx, api.SessionSignal{SessionID: id, Signal: "INT"})
	if err != nil || signal.Payload.Signal.Status != "signaled" {
		t.Errorf("signal: %+v %v", signal, err)
	}
	closed, err := b.Close(ctx, api.SessionClose{SessionID: id})
	if err != nil || closed.Payload.Close.Status != "closed" {
		t.Errorf("close: %+v %v", closed, err)
	}
}

// A denial is a receipt, not a Go error; of a read it is an *api.Error.
func TestDenied(t *testing.T) {
	b, ctx := newBox(t, Options{}), t.Context()
	r, err := b.Open(ctx, api.SessionOpen{Target: api.Target{Local: &api.Local{}}, Profile: "forbidden"})
	if err != nil || r.Outcome != api.OutcomeDenied || r.Deny[0].Code != "profile_not_allowed" {
		t.Fatalf("open: %+v %v", r, err)
	}
	_, err = b.WithScope(api.Scope{AgentID: "blind"}).Sessions(ctx, api.Read{})
	if e, ok := errors.AsType[*api.Error](err); !ok || e.Code != "operation_not_allowed" {
		t.Fatalf("list: %v", err)
	}
	_, err = b.Session(ctx, "s-unknown") // R018
	if e, ok := errors.AsType[*api.Error](err); !ok || e.Code != api.CodeSessionNotFound {
		t.Fatalf("get: %v", err)
	}
}

// A scope is part of who asks: another one does not see the session (R033, C3).
func TestScope(t *testing.T) {
	b, ctx := newBox(t, Options{}), t.Context()
	mine := b.WithScope(api.Scope{AgentID: "a", ChatID: "1"})
	r, err := mine.Open(ctx, api.SessionOpen{Target: api.Target{Local: &api.Local{}}})
	if err != nil || r.Outcome != api.OutcomeOK || r.Principal.Scope.AgentID != "a" {
		t.Fatalf("open: %+v %v", r, err)
	}
	for name, other := range map[string]*client.Client{"none": b.Client, "other": b.WithScope(api.Scope{AgentID: "a", ChatID: "2"})} {
		x, err := other.Exec(ctx, api.Exec{SessionID: r.SessionID, Argv: []string{"echo"}})
		if err != nil || x.ErrorCode != api.CodeSessionNotFound {
			t.Errorf("exec with scope %s: %+v %v", name, x, err)
		}
	}
	x, err := b.Exec(ctx, api.Exec{SessionID: r.SessionID, Argv: []string{"echo"}, Scope: api.Scope{AgentID: "a", ChatID: "1"}})
	if err != nil || x.Outcome != api.OutcomeOK {
		t.Errorf("exec with the scope in the body: %+v %v", x, err)
	}
	_, err = mine.Exec(ctx, api.Exec{SessionID: r.SessionID, Argv: []string{"echo"}, Scope: api.Scope{AgentID: "b"}})
	if e, ok := errors.AsType[*api.Error](err); !ok || e.Code != api.CodeInvalidHeader {
		t.Errorf("exec with two scopes: %v", err)
	}
}

// Aliases are accepted, and the record keeps the name that was used (C1).
func TestNamedOperations(t *testing.T) {
	b := newBox(t, Options{})
	id := b.open(t)
	for _, row := range []struct {
		op, body string
		status   int
		says     string
	}{
		{"host.exec", `{"session_id":"` + id + `","argv":["echo"]}`, 200, `"op":"host.exec","principal"`},
		{"process.exec", `{"session_id":"` + id + `","argv":["echo"]}`, 200, `"op":"host.exec","requested_kind":"process.exec"`},
		{"process.session.signal", `{"session_id":"` + id + `","signal":"int"}`, 200, `"signal":"INT"`},
		{"host.session.get", `{"session_id":"` + id + `"}`, 200, `"state":"ready"`},
		{"host.session.list", `{}`, 200, id},
		{"host.info", `{}`, 200, `"kernel"`},
		{"receipt.checkpoint", `{}`, 200, `{"note":"stockade journal/local`},
		{"receipt.list", `{"limit":1}`, 200, `"receipts":[{`},
		{"blob.put", `{}`, 404, `unknown_method`},
		{"policy.decide", `{}`, 404, `unknown_method`},
		{"host.reboot", `{}`, 404, `unknown_method`},
		{"%ff", `{}`, 400, `invalid_header`},
	} {
		status, body := b.do(t, "POST", "/v1/ops/"+row.op, row.body, "Content-Type", "application/json")
		if status != row.status || !strings.Contains(body, row.says) {
			t.Errorf("%s: %d %s", row.op, status, body)
		}
	}
}

// What no honest client sends is refused with a code, before any operation (T159, T160,
// T163, T169, R260).
func TestRefusals(t *testing.T) {
	b := newBox(t, Options{MaxBlobBytes: 100})
	json := []string{"Content-Type", "application/json"}
	exec := `{"session_id":"s","argv":["echo"]}`
	for _, row := range []struct {
		name, method, path, body string
		header                   []string
		status                   int
		code                     api.Code
	}{
		{"no route", "GET", "/", "", nil, 404, api.CodeUnknownMethod},
		{"no version", "POST", "/v2/exec", exec, json, 404, api.CodeUnknownMethod},
		{"trailing slash", "POST", "/v1/exec/", exec, json, 404, api.CodeUnknownMethod},
		{"doubled slash", "POST", "//v1/exec", exec, json, 404, api.CodeUnknownMethod},
		{"dots", "POST", "/v1/../v1/exec", exec, json, 404, api.CodeUnknownMethod},
		{"wrong verb", "GET", "/v1/exec", "", nil, 405, api.CodeMethodNotAllowed},
		{"head", "HEAD", "/v1/version", "", nil, 405, ""},
		{"delete", "DELETE", "/v1/sessions/s", "", nil, 405, api.CodeMethodNotAllowed},
		{"host", "POST", "/v1/exec", exec, []string{"Host", "evil.example"}, 400, api.CodeInvalidHeader},
		{"origin", "POST", "/v1/exec", exec, []string{"Origin", "https://evil.example"}, 400, api.CodeInvalidHeader},
		{"gzip", "POST", "/v1/exec", exec, []string{"Content-Encoding", "gzip"}, 415, api.CodeUnsupportedMediaType},
		{"form", "POST", "/v1/exec", exec, []string{"Content-Type", "application/x-www-form-urlencoded"}, 415, api.CodeUnsupportedMediaType},
		{"charset", "POST", "/v1/exec", exec, []string{"Content-Type", "application/json; charset=utf-16"}, 415, api.CodeUnsupportedMediaType},
		{"two types", "POST", "/v1/exec", exec, []string{"Content-Type", "application/json", "Content-Type", "text/plain"}, 415, api.CodeUnsupportedMediaType},
		{"no body", "POST", "/v1/exec", "", json, 400, api.CodeDecodeError},
		{"query of a body", "POST", "/v1/exec?session_id=s", exec, json, 400, api.CodeInvalidHeader},
		{"unknown query", "GET", "/v1/sessions?limits=1", "", nil, 400, api.CodeInvalidHeader},
		{"doubled query", "GET", "/v1/sessions?limit=1&limit=2", "", nil, 400, api.CodeInvalidHeader},
		{"malformed query", "GET", "/v1/sessions?limit=%", "", nil, 400, api.CodeInvalidHeader},
		{"negative", "GET", "/v1/sessions?limit=-1", "", nil, 400, api.CodeInvalidHeader},
		{"huge", "GET", "/v1/sessions?limit=100000", "", nil, 400, api.CodeInvalidParams},
		{"label", "GET", "/v1/sessions?label=a", "", nil, 400, api.CodeInvalidHeader},
		{"label not utf-8", "GET", "/v1/sessions?label=a=%ff", "", nil, 400, api.CodeInvalidHeader},
		{"state", "GET", "/v1/sessions?state=dead", "", nil, 400, api.CodeInvalidParams},
		{"id not utf-8", "GET", "/v1/receipts/%ff", "", nil, 400, api.CodeInvalidHeader},
		{"id with a slash", "GET", "/v1/sessions/a%2fb", "", nil, 404, api.CodeSessionNotFound},
		{"no receipt", "GET", "/v1/receipts/sha256:00", "", nil, 404, api.CodeNotFound},
		{"no blob", "GET", "/v1/blobs/sha256:" + strings.Repeat("0", 64), "", nil, 404, api.CodeNotFound},
		{"no blob ref", "GET", "/v1/blobs/x", "", nil, 400, api.CodeInvalidBlobRef},
		{"no execution", "GET", "/v1/executions/x-none/output", "", nil, 404, api.CodeExecNotFound},
		{"scope", "GET", "/v1/sessions", "", []string{"Stockade-Scope", "agent"}, 400, api.CodeInvalidHeader},
		{"two scopes", "GET", "/v1/sessions", "", []string{"Stockade-Scope", `{}`, "Stockade-Scope", `{}`}, 400, api.CodeInvalidHeader},
		{"scope member", "GET", "/v1/sessions", "", []string{"Stockade-Scope", `{"Agent_id":"a"}`}, 400, api.CodeInvalidHeader},
		{"scope control", "GET", "/v1/sessions", "", []string{"Stockade-Scope", `{"agent_id":"\u0000"}`}, 400, api.CodeInvalidLabel},
		{"large", "POST", "/v1/exec", strings.Repeat(" ", api.MaxBody+1), json, 413, api.CodeTooLarge},
		{"large blob", "PUT", "/v1/blobs", strings.Repeat(" ", 101), nil, 413, api.CodeTooLarge},
		{"blob as json", "PUT", "/v1/blobs", "{}", json, 415, api.CodeUnsupportedMediaType},
	} {
		t.Run(row.name, func(t *testing.T) {
			status, body := b.do(t, row.method, row.path, row.body, row.header...)
			if status != row.status || row.code != "" && !strings.HasPrefix(body, `{"error":{"code":"`+string(row.code)+`","message":"`) {
				t.Errorf("%d %.300s", status, body)
			}
		})
	}
	for name, lines := range map[string]string{
		"absolute uri": "POST http://localhost/v1/exec HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n",
		"connect":      "CONNECT localhost:80 HTTP/1.1\r\nHost: localhost\r\n\r\n",
		"two hosts":    "GET /v1/version HTTP/1.1\r\nHost: localhost\r\nHost: evil\r\n\r\n",
		"two lengths":  "POST /v1/exec HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n  ",
		"asterisk":     "OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n",
		"chunked blob": "PUT /v1/blobs HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
		"header bomb":  "GET /v1/version HTTP/1.1\r\nHost: localhost\r\nX: " + strings.Repeat("x", 100<<10) + "\r\n\r\n",
	} {
		if status := b.wire(t, lines); status < 400 || status >= 500 {
			if name == "asterisk" && status == 200 {
				continue // net/http answers it itself, with nothing
			}
			t.Errorf("%s: %d", name, status)
		}
	}
	if b.fake.opened.Load()+b.fake.started.Load() != 0 {
		t.Error("something was started")
	}
}

// wire sends bytes as they are and returns the status of the answer.
func (b *box) wire(t *testing.T, lines string) int {
	t.Helper()
	conn, err := net.Dial("unix", b.socket)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(5 * time.Second))
	go io.WriteString(conn, lines)
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	return resp.StatusCode
}

// Both stream formats, and what ends before its first event.
func TestStreamFormats(t *testing.T) {
	b := newBox(t, Options{})
	id := b.open(t)
	body := `{"session_id":"` + id + `","argv":["echo","a"]}`
	json := []string{"Content-Type", "application/json", "Accept"}
	status, sse := b.do(t, "POST", "/v1/exec", body, append(json, "text/event-stream")...)
	if status != 200 || !strings.HasPrefix(sse, "retry: 1000\n\nid: 0.0.0\nevent: accepted\ndata: {\"kind\":\"accepted\",") ||
		!strings.Contains(sse, "event: output\ndata: {") || !strings.Contains(sse, "\n\nevent: receipt\ndata: {") || !strings.HasSuffix(sse, "}\n\n") {
		t.Errorf("%d %s", status, sse)
	}
	status, lines := b.do(t, "POST", "/v1/exec", body, append(json, "application/json;q=0.5, application/x-ndjson")...)
	if status != 200 || strings.Count(lines, "\n") != 4 || !strings.HasPrefix(lines, `{"kind":"accepted",`) {
		t.Errorf("%d %s", status, lines)
	}
	status, refused := b.do(t, "POST", "/v1/exec", `{"session_id":"s","argv":["a"]}`, append(json, "text/event-stream")...)
	if status != 404 || !strings.Contains(refused, `"outcome":"faulted"`) || !strings.Contains(refused, `"error_code":"session_not_found"`) {
		t.Errorf("%d %s", status, refused)
	}
}

// A quiet stream shows that it lives.
func TestKeepalive(t *testing.T) {
	b := newBox(t, Options{Keepalive: 10 * time.Millisecond})
	id, alive := b.open(t), false
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	_, err := b.ExecStream(ctx, api.Exec{SessionID: id, Argv: []string{"sleep"}}, func(e api.Event) error {
		if e.Kind == "keepalive" && !alive {
			alive = true
			go b.Close(ctx, api.SessionClose{SessionID: id, Mode: "force"})
		}
		return nil
	})
	if err != nil || !alive {
		t.Errorf("alive %t, %v", alive, err)
	}
}

// A caller that goes away does not take its command along; whoever comes back finds it.
func TestDisconnect(t *testing.T) {
	b := newBox(t, Options{})
	id := b.open(t)
	gone := errors.New("gone")
	var exec string
	_, err := b.ExecStream(t.Context(), api.Exec{SessionID: id, Argv: []string{"sleep"}}, func(e api.Event) error {
		exec = e.ExecID
		return gone
	})
	if !errors.Is(err, gone) {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	var out bytes.Buffer
	r, err := b.Watch(ctx, exec, "", func(e api.Event) error {
		if out.Write(e.Bytes); out.String() == "sleeping\n" {
			go b.Close(ctx, api.SessionClose{SessionID: id, Mode: "force"})
		}
		return nil
	})
	if err != nil || r.ExecID != exec || r.Payload.Exec.Status != "signaled" {
		t.Fatalf("follow: %+v %v", r, err)
	}
}

// A reader that does not read is given up; the command, its receipt and the others do
// not wait for it (T158, R154).
func TestSlowReader(t *testing.T) {
	b := newBox(t, Options{WriteTimeout: 300 * time.Millisecond})
	id := b.open(t)
	conn, err := net.Dial("unix", b.socket)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	body := `{"session_id":"` + id + `","argv":["flood"]}`
	fmt.Fprintf(conn, "POST /v1/exec HTTP/1.1\r\nHost: localhost\r\nAccept: application/x-ndjson\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	deadline := time.Now().Add(10 * time.Second)
	for {
		list, err := b.Receipts(t.Context(), api.Read{SessionID: id, Op: api.OpExec})
		if err != nil {
			t.Fatal(err)
		}
		if len(list) == 1 {
			if out := list[0].Payload.Exec.Stdout; out.Blob == nil || out.Blob.SizeBytes != 8<<20 {
				t.Errorf("output %+v", out)
			}
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the receipt waits for the reader")
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// Slow headers, slow bodies and crowds end on their own (T155, T156, T157).
func TestSlowAndMany(t *testing.T) {
	b := newBox(t, Options{HeaderTimeout: 100 * time.Millisecond, BodyTimeout: 100 * time.Millisecond})
	for name, lines := range map[string]string{
		"header": "POST /v1/exec HTTP/1.1\r\nHost: loc",
		"body":   "POST /v1/exec HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{",
		"blob":   "PUT /v1/blobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{",
	} {
		conn, err := net.Dial("unix", b.socket)
		if err != nil {
			t.Fatal(err)
		}
		conn.SetDeadline(time.Now().Add(5 * time.Second))
		io.WriteString(conn, lines)
		if answer, err := io.ReadAll(conn); err != nil || strings.Contains(string(answer), " 500 ") {
			t.Errorf("%s: %s %v", name, answer, err)
		}
		conn.Close()
	}
	// Who is silent from the beginning is cut off, too: these are held by a server that is patient.
	b = newBox(t, Options{ConnsPerUser: 4})
	var idle []net.Conn
	for range 4 {
		conn, err := net.Dial("unix", b.socket)
		if err != nil {
			t.Fatal(err)
		}
		idle = append(idle, conn)
	}
	// They are accepted in the order in which they came.
	if status := b.wire(t, "GET /v1/version HTTP/1.1\r\nHost: localhost\r\n\r\n"); status != 503 {
		t.Errorf("one too many: %d", status)
	}
	for _, conn := range idle {
		conn.Close()
	}
	for limit := time.Now().Add(20 * time.Second); time.Now().Before(limit); time.Sleep(10 * time.Millisecond) {
		if _, err := b.Version(t.Context()); err == nil {
			return
		}
	}
	t.Error("connections are not given back")
}

// HTTP/2 without TLS, for clients that multiplex.
func TestH2C(t *testing.T) {
	b := newBox(t, Options{})
	tr := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return net.Dial("unix", b.socket) }}
	tr.Protocols = new(http.Protocols)
	tr.Protocols.SetUnencryptedHTTP2(true)
	resp, err := (&http.Client{Transport: tr}).Get("http://localhost/v1/version")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != 200 || resp.ProtoMajor != 2 {
		t.Errorf("%s %s", resp.Proto, resp.Status)
	}
	tr.CloseIdleConnections()
}

// R090 T155 T159: what one user has under way is bounded, over however many connections and under however many
// scopes: over HTTP/2 one connection carries hundreds of requests.
func TestUnderway(t *testing.T) {
	const most = 8
	b := newBox(t, Options{Requests: most, BodyBytes: 16384})
	tr := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return net.Dial("unix", b.socket) }}
	tr.Protocols = new(http.Protocols)
	tr.Protocols.SetUnencryptedHTTP2(true)
	defer tr.CloseIdleConnections()
	ask := func(ctx context.Context, method, path string, body io.Reader) (int, string) {
		req, err := http.NewRequestWithContext(ctx, method, "http://localhost"+path, body)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Stockade-Scope", fmt.Sprintf(`{"agent_id":"%d"}`, time.Now().UnixNano()))
		resp, err := tr.RoundTrip(req)
		if err != nil {
			return 0, err.Error()
		}
		defer resp.Body.Close()
		answer, err := io.ReadAll(resp.Body)
		if err != nil {
			return 0, err.Error()
		}
		return resp.StatusCode, string(answer)
	}
	polls, cancel := context.WithCancel(t.Context())
	defer cancel()
	var waiting sync.WaitGroup
	for range most {
		waiting.Go(func() {
			for polls.Err() == nil { // again where the question below had the place
				ask(polls, "GET", "/v1/events?wait_ms=60000", nil)
				time.Sleep(time.Millisecond)
			}
		})
	}
	full := func() bool {
		status, body := ask(t.Context(), "GET", "/v1/version", nil)
		return status == 429 && strings.Contains(body, string(api.CodeTooManyRequests))
	}
	eventually(t, "one too many is refused", full)
	cancel()
	waiting.Wait()
	eventually(t, "they are given back", func() bool { return !full() })

	for _, size := range []int{8192, 16385} {
		status, body := ask(t.Context(), "POST", "/v1/ops/host.info", strings.NewReader(strings.Repeat(" ", size-2)+"{}"))
		if want := size > 16384; (status == 429) != want {
			t.Errorf("a body of %d bytes: %d %s", size, status, body)
		}
	}
	hanging, hang := io.Pipe()
	defer hang.Close()
	slow, stop := context.WithCancel(t.Context())
	waiting.Go(func() {
		ask(slow, "POST", "/v1/exec", io.MultiReader(strings.NewReader(strings.Repeat(" ", 8192)), hanging))
	})
	if status, body := ask(t.Context(), "POST", "/v1/ops/host.info", struct{ io.Reader }{strings.NewReader("{}")}); status != 429 {
		t.Errorf("a body that does not say its size counts as the largest: %d %s", status, body)
	}
	stop()
	waiting.Wait()
	if status, body := ask(t.Context(), "POST", "/v1/ops/host.info", strings.NewReader("{}")); status != 200 {
		t.Errorf("afterwards: %d %s", status, body)
	}
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for range 500 {
		if ok() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Error("not so: " + what)
}

// A handler that panics is a 500, and the next request is served (T167).
func TestPanic(t *testing.T) {
	s := &Server{options: Options{}.withDefaults()}
	h := s.guard(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { panic("bug: of the test") }))
	w := &recorder{header: http.Header{}}
	h.ServeHTTP(w, &http.Request{Method: "GET", URL: &url.URL{Path: "/v1/version"}, Host: "localhost"})
	if w.status != 500 || !strings.Contains(w.body.String(), `"code":"internal_error"`) || strings.Contains(w.body.String(), "of the test") {
		t.Errorf("%d %s", w.status, &w.body)
	}
	began := s.guard(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(200); panic("bug: of the test") }))
	defer func() {
		if recover() != http.ErrAbortHandler {
			t.Error("an answer that had begun was completed")
		}
	}()
	began.ServeHTTP(&recorder{header: http.Header{}}, &http.Request{Method: "GET", URL: &url.URL{Path: "/v1/version"}, Host: "localhost"})
}

type recorder struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (r *recorder) Header() http.Header         { return r.header }
func (r *recorder) WriteHeader(status int)      { r.status = status }
func (r *recorder) Write(p []byte) (int, error) { return r.body.Write(p) }

// A row that policy would not be asked about is not served.
func TestRows(t *testing.T) {
	handler := func(*call) {}
	for _, row := range []route{
		{method: "GET", path: "/x", serve: handler},
		{method: "GET", path: "/x", serve: handler, op: "process.exec"},
		{method: "GET", path: "/x", op: api.OpExec},
	} {
		if row.check() == nil {
			t.Errorf("%+v is accepted", row)
		}
	}
}
