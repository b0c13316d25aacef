package server

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
)

// Every route with a request, its reply and an error, as a server really gives them.
// What differs from run to run (ids, times, who runs the test) is replaced.
func TestDocs(t *testing.T) {
	b := newBox(t, Options{})
	d := &docs{t: t, box: b, covered: map[string]int{}}
	d.text("# Routes\n\nMade by `go test ./supervisor/server -update` from a running server; the contract itself is\n" +
		"[openapi.json](openapi.json), the codes are in [errors.md](errors.md). An operation with effect answers with a\n" +
		"receipt: 200 when its outcome is ok, 403 when it was denied, and the status of its code when it faulted.\n" +
		"Everything else that goes wrong is an `error` with a code. A declared scope travels in the `Stockade-Scope` header,\n" +
		"or in the body's `scope`.\n\n" +
		"```\ncurl --unix-socket /run/stockade/stockade.sock -H 'Content-Type: application/json' \\\n" +
		"     -d '{\"target\":{\"local\":{}}}' http://localhost/v1/sessions\n```\n")

	open := d.show("POST /v1/sessions", "/v1/sessions", `{"target":{"local":{"mounts":[{"host_path":"/srv/work","guest_path":"/work","mode":"rw"}],"env":{"TOKEN":{"secret":"hunter2"}}}},"labels":{"team":"build"}}`)
	d.show("POST /v1/sessions", "/v1/sessions", `{"target":{"local":{}},"profile":"forbidden"}`)
	d.show("POST /v1/sessions", "/v1/sessions", `{"target":{"local":{}},"Labels":{}}`)
	session := regexp.MustCompile(`s-[a-z0-9]{26}`).FindString(open)
	if session == "" {
		t.Fatalf("open: %s", open)
	}
	d.show("GET /v1/sessions", "/v1/sessions?label=team%3Dbuild&state=ready&limit=1", "")
	d.show("GET /v1/sessions", "/v1/sessions?state=dead", "")
	d.show("GET /v1/sessions/{session_id}", "/v1/sessions/"+session, "")
	d.show("GET /v1/sessions/{session_id}", "/v1/sessions/s-unknown", "")
	ran := d.show("POST /v1/exec", "/v1/exec", `{"session_id":"`+session+`","argv":["echo","hello"],"timeout_ns":5000000000}`)
	exec, intent := regexp.MustCompile(`x-[a-z0-9]{26}`).FindString(ran), regexp.MustCompile(`"intent_id":"([^"]+)"`).FindStringSubmatch(ran)[1]
	d.show("POST /v1/exec", "/v1/exec", `{"session_id":"`+session+`","argv":["echo","hello"]}`, "Accept", "text/event-stream")
	d.show("POST /v1/exec", "/v1/exec", `{"session_id":"`+session+`","argv":[]}`)
	d.show("GET /v1/executions/{exec_id}/output", "/v1/executions/"+exec+"/output?stdout=2", "", "Accept", "application/x-ndjson")
	d.show("GET /v1/executions/{exec_id}/output", "/v1/executions/x-unknown/output", "")
	d.show("POST /v1/signal", "/v1/signal", `{"session_id":"`+session+`","signal":"SIGINT"}`)
	d.show("POST /v1/signal", "/v1/signal", `{"session_id":"`+session+`","signal":"SIGNOPE"}`)
	stored := d.show("PUT /v1/blobs", "/v1/blobs", "some content")
	ref := regexp.MustCompile(`sha256:[0-9a-f]{64}`).FindString(stored[strings.Index(stored, `"blob_ref"`):])
	d.show("PUT /v1/blobs", "/v1/blobs?blob_ref=sha256:"+strings.Repeat("0", 64), "some content")
	d.show("GET /v1/blobs/{blob_ref}", "/v1/blobs/"+ref, "")
	d.show("GET /v1/blobs/{blob_ref}", "/v1/blobs/sha256:"+strings.Repeat("0", 64), "")
	d.show("GET /v1/receipts", "/v1/receipts?op=host.session.signal&outcome=ok", "")
	d.show("GET /v1/receipts", "/v1/receipts?limits=1", "")
	d.show("GET /v1/receipts/{intent_id}", "/v1/receipts/"+intent, "")
	d.show("GET /v1/receipts/{intent_id}", "/v1/receipts/sha256:00", "")
	d.show("GET /v1/checkpoint", "/v1/checkpoint", "")
	d.show("GET /v1/checkpoint", "/v1/checkpoint?seq=1", "")
	d.show("POST /v1/decide", "/v1/decide", `{"op":"host.session.open","open":{"target":{"local":{}},"profile":"forbidden"}}`)
	d.show("POST /v1/decide", "/v1/decide", `{"op":"host.info"}`)
	d.show("GET /v1/host", "/v1/host", "")
	d.show("GET /v1/host", "/v1/host", "", "Stockade-Scope", `{"agent_id":"blind"}`)
	d.show("GET /v1/version", "/v1/version", "")
	d.show("GET /v1/version", "/v1/version?verbose=1", "")
	d.show("POST /v1/ops/{op}", "/v1/ops/process.session.signal", `{"session_id":"`+session+`","signal":15}`)
	d.show("POST /v1/ops/{op}", "/v1/ops/host.reboot", `{}`)
	d.show("POST /v1/close", "/v1/close", `{"session_id":"`+session+`"}`)
	d.show("POST /v1/close", "/v1/close", `{"session_id":"s-unknown"}`)

	for _, r := range routes() {
		name := r.method + " " + r.path
		if r.path != "/v1/openapi.json" && d.covered[name] < 2 {
			t.Errorf("%s has %d examples", name, d.covered[name])
		}
	}
	const golden = "../../docs/api/routes.md"
	if *update {
		if err := os.WriteFile(golden, d.out.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil || !bytes.Equal(want, d.out.Bytes()) {
		os.WriteFile(t.ArtifactDir()+"/routes.md", d.out.Bytes(), 0o644)
		t.Errorf("%s is not what the server says (%v); run with -update", golden, err)
	}
}

// docs writes the document.
type docs struct {
	t       *testing.T
	box     *box
	out     bytes.Buffer
	covered map[string]int
	named   replacer
}

func (d *docs) text(s string) { d.out.WriteString(s) }

// show makes one request and writes it down with its reply, which it returns.
func (d *docs) show(name, target, body string, header ...string) string {
	d.t.Helper()
	i := slices.IndexFunc(routes(), func(r route) bool { return r.method+" "+r.path == name })
	if i < 0 {
		d.t.Fatalf("no route %s", name)
	}
	row := routes()[i]
	if d.covered[name]++; d.covered[name] == 1 {
		d.text("\n## " + name + "\n\n" + row.summary)
		if row.op != public && row.op != derived {
			d.text(" Policy is asked for `" + string(row.op) + "`.")
		}
		d.text("\n")
	}
	if _, isContent := row.in.([]byte); body != "" && !isContent {
		header = append([]string{"Content-Type", "application/json"}, header...)
	}
	status, answer := d.box.do(d.t, row.method, target, body, header...)
	if strings.Contains(answer, "hunter2") {
		d.t.Errorf("%s: a secret in the answer", name)
	}
	d.text("\n```http\n" + row.method + " " + d.named.stable(target) + "\n")
	for i := 0; i < len(header); i += 2 {
		d.text(header[i] + ": " + header[i+1] + "\n")
	}
	if body != "" {
		d.text("\n" + d.named.stable(body) + "\n")
	}
	d.text(fmt.Sprintf("```\n```http\n%d %s\n\n%s\n```\n", status, http.StatusText(status), strings.TrimSuffix(pretty(d.named.stable(answer)), "\n")))
	return answer
}

// pretty indents a document, and leaves everything else alone.
func pretty(s string) string {
	v := jsontext.Value(s)
	if len(s) < 300 || v.Indent(jsontext.WithIndent("  ")) != nil {
		return s
	}
	return string(v)
}

// replacer gives what differs from run to run a name by order of appearance.
type replacer struct {
	seen map[string]string
}

func (r *replacer) stable(s string) string {
	if r.seen == nil {
		r.seen = map[string]string{}
	}
	for _, m := range regexp.MustCompile(`"(?:open_)?intent_id":"(sha256:[0-9a-f]{64})"`).FindAllStringSubmatch(s, -1) {
		r.name(m[1], fmt.Sprintf("sha256:%064x", 0xa0+len(r.seen)))
	}
	for _, id := range regexp.MustCompile(`\b[sx]-[a-z2-7]{26}\b`).FindAllString(s, -1) {
		r.name(id, fmt.Sprintf("%s-%026d", id[:1], len(r.seen)))
	}
	for id, name := range r.seen {
		s = strings.ReplaceAll(s, id, name)
	}
	for _, rule := range []struct{ pattern, with string }{
		{`"(\w*_at_ns)":[0-9]+`, `"$1":1767225600000000000`},
		{`"(\w*_at)":"[^"]*"`, `"$1":"2026-01-01T00:00:00Z"`},
		{`"(wall_ns|cpu_ns|ns)":[0-9]+`, `"$1":1000000`},
		{`"uid":` + strconv.Itoa(os.Geteuid()) + `,"gid":` + strconv.Itoa(os.Getegid()) + `(,"groups":\[[0-9,]*\])?`, `"uid":1000,"gid":1000`},
		{`,"timings":\[[^\]]*\]`, ``}, // which stages are worth a line differs
		{`"note":"(\w+ \w+/\w+)\\n[^"]*"`, `"note":"$1\n42\n…\n\n— local …\n"`},
		{`"journal_key":"[^"]*"`, `"journal_key":"stockade-…"`},
		{` in [0-9.]+m?s; ended`, ` in 1ms; ended`},
	} {
		s = regexp.MustCompile(rule.pattern).ReplaceAllString(s, rule.with)
	}
	return s
}

func (r *replacer) name(id, name string) {
	if _, ok := r.seen[id]; !ok {
		r.seen[id] = name
	}
}
