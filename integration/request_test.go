package integration

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"github.com/stockade-dev/stockade/supervisor/api"
)

// TestHostileRequests sends the real supervisor what no client of ours would send: each is
// refused with its code, leaves no record, and starts nothing. What a document can
// be wrong in is tested in supervisor/server (T162, R260).
func TestHostileRequests(t *testing.T) {
	d := start(t)
	c := d.Client()
	session := opened(t, c, nil).SessionID
	const kind = "application/json"
	exec := `{"session_id":"` + session + `","argv":["touch","/tmp/ran"]`
	for _, k := range []struct {
		name, method, path, kind, body string
		code                           api.Code
	}{
		{"unknown member", "POST", "/v1/exec", kind, exec + `,"x":1}`, api.CodeUnknownMember},
		{"miscased member", "POST", "/v1/exec", kind, exec + `,"Timeout_ns":1}`, api.CodeUnknownMember},
		{"doubled member", "POST", "/v1/exec", kind, exec + `,"argv":["touch","/tmp/ran"]}`, api.CodeDuplicateMember},
		{"trailing document", "POST", "/v1/exec", kind, exec + `}{}`, api.CodeDecodeError},
		{"half a document", "POST", "/v1/exec", kind, exec, api.CodeDecodeError},
		{"not UTF-8", "POST", "/v1/exec", kind, exec + ",\"cwd\":\"\xff\"}", api.CodeDecodeError},
		{"a number that is a text", "POST", "/v1/exec", kind, exec + `,"timeout_ns":"1"}`, api.CodeDecodeError},
		{"nested deep", "POST", "/v1/exec", kind, exec + `,"limits":` + strings.Repeat("[", 10_000) + strings.Repeat("]", 10_000) + `}`, api.CodeTooDeep},
		{"9 MiB", "POST", "/v1/exec", kind, exec + `,"cwd":"` + strings.Repeat("x", 9<<20) + `"}`, api.CodeTooLarge},
		{"another content type", "POST", "/v1/exec", "text/plain", exec + `}`, api.CodeUnsupportedMediaType},
		{"a form", "POST", "/v1/exec", "application/x-www-form-urlencoded", exec + `}`, api.CodeUnsupportedMediaType},
		{"no such route", "POST", "/v1/run", kind, exec + `}`, api.CodeUnknownMethod},
		{"no such operation", "POST", "/v1/ops/host.root", kind, exec + `}`, api.CodeUnknownMethod},
		{"another verb", "PUT", "/v1/exec", kind, exec + `}`, api.CodeMethodNotAllowed},
	} {
		t.Run(k.name, func(t *testing.T) {
			req, err := http.NewRequestWithContext(t.Context(), k.method, "http://stockade"+k.path, strings.NewReader(k.body))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Content-Type", k.kind)
			req.Close = true
			conn, err := net.Dial("unix", d.Socket)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			// Who is refused half read is cut off while it writes: net/http's client would report that
			// and not always the answer.
			go req.Write(conn)
			resp, err := http.ReadResponse(bufio.NewReader(conn), req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			body, err := io.ReadAll(resp.Body)
			if err != nil {
				t.Fatal(err)
			}
			var got api.ErrorBody
			if err := json.Unmarshal(body, &got); err != nil || got.Error.Code != k.code || resp.StatusCode != k.code.Status() {
				t.Errorf("%d %.300s, want %d %s", resp.StatusCode, body, k.code.Status(), k.code)
			}
		})
	}
	receipts, err := c.Receipts(t.Context(), api.Read{SessionID: session, Op: api.OpExec})
	if err != nil || len(receipts) > 0 {
		t.Errorf("%d executions are on record, %v", len(receipts), err)
	}
	if r := shell(t, c, session, "test -e /tmp/ran"); r.Payload.Exec.ExitCode != 1 {
		t.Error("one of them ran")
	}
}
