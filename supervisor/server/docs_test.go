package server

import (
	"bytes"
	"fmt"
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/stockade-dev/stockade/rego"
	"github.com/stockade-dev/stockade/rego/bundle"
	"github.com/stockade-dev/stockade/supervisor"
	"github.com/stockade-dev/stockade/supervisor/api"
)

// Every route with a request, its reply and an error, as a server really gives them.
// What differs from run to run (ids, times, who runs the test) is replaced.
func TestDocs(t *testing.T) {
	there := policy
	b := newBox(t, Options{}, func(c *supervisor.Config) {
		c.Policy, c.Policies = nil, supervisor.Policies{
			Source: "/etc/stockade/policy.tar.gz",
			Open: func() (*bundle.Revision, error) {
				r, err := bundle.Of(there)
				if err == nil {
					r.Source = "/etc/stockade/policy.tar.gz"
				}
				return r, err
			},
			Load: func(r *bundle.Revision) (supervisor.Policy, error) {
				return rego.Load(r.FS, rego.Options{Deadline: 5 * time.Second})
			},
		}
	})
	d := &docs{t: t, box: b, covered: map[string]int{}}
	d.text("# Routes\n\nMade by `go test ./supervisor/server -update` from a running server; the contract itself is\n" +
		"[openapi.json](openapi.json), the codes are in [errors.md](errors.md). An operation with effect answers with a\n" +
		"receipt: 200 when its outcome is ok, 403 when it was denied, and the status of its code when it faulted.\n" +
		"Everything else that goes wrong is an `error` with a code. A declared scope travels in the `Stockade-Scope` header,\n" +
		"or in the body's `scope`.\n\n" +
		"```sh\ncurl --unix-socket /run/stockade/stockade.sock -H 'Content-Type: application/json' \\\n" +
		"     -d '{\"target\":{\"local\":{}}}' http://localhost/v1/sessions\n```\n")

	open := d.show("POST /v1/sessions", "/v1/sessions", `{"target":{"local":{"mounts":[{"host_path":"/srv/work","guest_path":"/work","mode":"overlay","bytes":268435456,"inodes":10000}],"network_mode":"egress","egress":[{"name":"example.org","ports":[443]},{"cidr":"192.0.2.0/24"}],"env":{"TOKEN":{"secret":"hunter2"}}}},"labels":{"team":"build"}}`)
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
	b.fake.pace = make(chan struct{}, 1)
	go func() { // it writes once its start has been told of, so that the events have one order
		b.untilAny(t, api.StateRunning)
		b.fake.pace <- struct{}{}
	}()
	d.show("POST /v1/exec", "/v1/exec", `{"session_id":"`+session+`","argv":["chatter","1"]}`, "Accept", "text/event-stream")
	d.show("POST /v1/exec", "/v1/exec", `{"session_id":"`+session+`","argv":["reach"],"limits":{"cpu_time_ns":10000000000}}`)
	d.show("POST /v1/exec", "/v1/exec", `{"session_id":"`+session+`","argv":[]}`)
	went := d.show("POST /v1/exec", "/v1/exec", `{"session_id":"`+session+`","argv":["cat"],"stdin_open":true,"wait":false}`, "Idempotency-Key", "build-17")
	running, of := regexp.MustCompile(`x-[a-z0-9]{26}`).FindString(went), "/v1/executions/"
	b.until(t, running, api.StateRunning)
	d.show("GET /v1/executions", of[:len(of)-1]+"?active=true&limit=10", "")
	d.show("GET /v1/executions", of[:len(of)-1]+"?state=asleep", "")
	d.show("GET /v1/executions/{exec_id}", of+exec, "")
	d.show("GET /v1/executions/{exec_id}", of+"x-unknown", "")
	d.show("POST /v1/executions/{exec_id}/modify", of+running+"/modify", `{"timeout_ns":20000000000}`)
	d.show("POST /v1/executions/{exec_id}/modify", of+running+"/modify", `{"timeout_ns":0}`)
	d.show("POST /v1/executions/{exec_id}/pause", of+running+"/pause", ``)
	d.show("POST /v1/executions/{exec_id}/pause", of+running+"/pause", `{"exec_id":"x-other"}`)
	d.show("POST /v1/executions/{exec_id}/resume", of+running+"/resume", ``)
	d.show("POST /v1/executions/{exec_id}/resume", of+"x-unknown/resume", ``)
	d.show("DELETE /v1/executions/{exec_id}", of+running, "")
	d.show("POST /v1/executions/{exec_id}/input", of+running+"/input", `{"input_id":"1","data":{"inline_text":{"text":"hello\n"}}}`)
	if _, err := b.Input(t.Context(), api.ProcessInput{ProcessRef: api.ProcessRef{ExecID: running}, Close: true}); err != nil {
		t.Fatal(err)
	}
	d.show("GET /v1/executions/{exec_id}/wait", of+running+"/wait?wait_ms=10000", "")
	d.show("GET /v1/executions/{exec_id}/wait", of+running+"/wait?wait_ms=86400000", "")
	d.show("POST /v1/executions/{exec_id}/input", of+running+"/input", `{"data":{"inline_text":{"text":"more"}}}`)
	d.show("GET /v1/executions/{exec_id}/output", of+running+"/output?max_bytes=3", "")
	d.show("GET /v1/executions/{exec_id}/output", of+exec+"/output?stdout=2", "", "Accept", "application/x-ndjson")
	d.show("GET /v1/executions/{exec_id}/output", of+"x-unknown/output", "")
	d.show("POST /v1/executions/{exec_id}/signal", of+running+"/signal", `{"signal":"USR1"}`)
	d.show("POST /v1/executions/{exec_id}/signal", of+running+"/signal", `{"signal":"SIGNOPE"}`)
	d.show("POST /v1/executions/{exec_id}/cancel", of+running+"/cancel", ``)
	d.show("POST /v1/executions/{exec_id}/cancel", of+running+"/cancel", `{"pid":1}`)
	d.show("DELETE /v1/executions/{exec_id}", of+running, "")
	d.show("POST /v1/shells", "/v1/shells", `{"session_id":"`+session+`","argv":["/nonesuch"],"terminal":{"cols":80000,"rows":24}}`)
	typing := regexp.MustCompile(`x-[a-z0-9]{26}`).FindString(d.show("POST /v1/shells", "/v1/shells", `{"session_id":"`+session+`","terminal":{"cols":100,"rows":30}}`))
	of = "/v1/shells/" + typing
	d.show("POST /v1/shells/{exec_id}/input", of+"/input", `{"data":{"inline_text":{"text":"make test\n"}}}`)
	b.untilIdle(t, typing)
	d.show("POST /v1/shells/{exec_id}/input", of+"/input", `{"actions":[{"type":"CTRL_Z"}]}`)
	d.show("POST /v1/shells/{exec_id}/run", of+"/run", `{"command":"git status"}`)
	d.show("POST /v1/shells/{exec_id}/run", of+"/run", `{"command":""}`)
	d.show("GET /v1/shells/{exec_id}", of, "")
	d.show("GET /v1/shells/{exec_id}", "/v1/shells/x-unknown", "")
	d.show("GET /v1/shells/{exec_id}/output", of+"/output?wait_ms=1000&max_bytes=4096", "")
	d.show("GET /v1/shells/{exec_id}/output", of+"/output?after=x", "")
	d.show("POST /v1/shells/{exec_id}/resize", of+"/resize", `{"cols":132,"rows":50}`)
	d.show("POST /v1/shells/{exec_id}/resize", of+"/resize", `{"cols":0,"rows":50}`)
	d.show("GET /v1/shells/{exec_id}/attach", of+"/attach?observe=perhaps", "")
	d.show("GET /v1/shells/{exec_id}/attach", "/v1/shells/x-unknown/attach", "")
	d.show("GET /v1/shells/{exec_id}/recording", of+"/recording", "")
	d.show("GET /v1/shells/{exec_id}/recording", of+"/recording?input=perhaps", "")
	d.show("GET /v1/sessions/{session_id}/forward", "/v1/sessions/"+session+"/forward?port=8000", "")
	d.show("GET /v1/sessions/{session_id}/forward", "/v1/sessions/"+session+"/forward?of=sha256:unknown", "")
	d.show("POST /v1/shells/{exec_id}/close", of+"/close", `{"mode":"force"}`)
	d.show("POST /v1/shells/{exec_id}/close", of+"/close", `{"mode":"softly"}`)
	of = "/v1/executions/"
	d.show("POST /v1/executions/stop", "/v1/executions/stop", `{"session_id":"`+session+`"}`)
	d.show("POST /v1/executions/stop", "/v1/executions/stop", ``)
	d.show("POST /v1/sessions/{session_id}/pause", "/v1/sessions/"+session+"/pause", ``)
	d.show("POST /v1/sessions/{session_id}/pause", "/v1/sessions/s-unknown/pause", ``)
	d.show("POST /v1/sessions/{session_id}/resume", "/v1/sessions/"+session+"/resume", ``)
	d.show("POST /v1/sessions/{session_id}/resume", "/v1/sessions/"+session+"/resume", `{"session_id":"s-other"}`)
	of = "/v1/sessions/" + session
	d.show("POST /v1/sessions/{session_id}/narrow", of+"/narrow", `{"network":{"mode":"egress","allow":[{"name":"example.org","ports":[443]}]}}`)
	d.show("POST /v1/sessions/{session_id}/narrow", of+"/narrow", `{"network":{"mode":"egress","allow":[{"name":"example.org"}]}}`)
	d.show("GET /v1/sessions/{session_id}/diff", of+"/diff?guest_path=/work&limit=100", "")
	d.show("GET /v1/sessions/{session_id}/diff", of+"/diff?guest_path=/tmp", "")
	d.show("POST /v1/sessions/{session_id}/commit", of+"/commit", `{"paths":["main.go"]}`)
	d.show("POST /v1/sessions/{session_id}/commit", of+"/commit", `{"paths":["../main.go"]}`)
	d.show("POST /v1/sessions/{session_id}/commit", of+"/commit", `{"paths":["main.go","caf\uFFFD.txt"],"paths_bytes":["","Y2Fm6S50eHQ="]}`)
	d.show("POST /v1/sessions/{session_id}/discard", of+"/discard", `{"guest_path":"/work"}`)
	d.show("POST /v1/sessions/{session_id}/discard", of+"/discard", `{"paths":["main.go"]}`)
	if err := os.MkdirAll(b.fake.files+"/tmp/src", 0o755); err != nil {
		t.Fatal(err)
	}
	for _, x := range [][2]string{
		{"write_file", `{"path":"src/main.go","content":{"inline_text":{"text":"package main\n\nfunc main() {}\n"}}}`},
		{"write_file", `{"path":"main.go","content":{"inline_text":{"text":""}}}`},
		{"read_file", `{"path":"src/main.go"}`},
		{"read_file", `{"path":"src/main.go","lines":3}`},
		{"edit_file", `{"path":"src/main.go","old_string":"main() {}","new_string":"main() { run() }"}`},
		{"edit_file", `{"path":"src/main.go","old_string":"func run","new_string":"func start"}`},
		{"apply_patch", `{"patch":{"inline_text":{"text":"*** Begin Patch\n*** Add File: src/run.go\n+package main\n+\n+func run() {}\n*** End Patch\n"}}}`},
		{"apply_patch", `{"patch":{"inline_text":{"text":"*** Begin Patch\n*** Update File: src/run.go\n@@\n-func walk() {}\n+func fly() {}\n*** End Patch\n"}}}`},
		{"grep", `{"pattern":"func \\w+","path":"src"}`},
		{"grep", `{"pattern":"("}`},
		{"glob", `{"pattern":"src/r*.go"}`},
		{"glob", `{"pattern":""}`},
		{"stat", `{"path":"src/nothing.go"}`},
		{"stat", `{"path":""}`},
		{"exists", `{"path":"src/run.go"}`},
		{"exists", `{"path":"src/run.go/x/..","link":"yes"}`},
		{"list_dir", `{"path":"src"}`},
		{"list_dir", `{"path":"src/run.go"}`},
		{"mkdir", `{"path":"src/deep/er","create_parents":true}`},
		{"mkdir", `{"path":"docs"}`},
		{"move", `{"path":"src/run.go","to":"src/deep/run.go"}`},
		{"move", `{"path":"src/run.go","to":"src/again.go"}`},
		{"remove", `{"path":"src/deep"}`},
		{"remove", `{"path":"src/deep","recursive":true}`},
	} {
		d.show("POST /v1/sessions/{session_id}/fs/"+x[0], of+"/fs/"+x[0], x[1])
	}
	d.show("GET /v1/tools", "/v1/tools?profile=anthropic", "")
	d.show("GET /v1/tools", "/v1/tools?profile=none", "")
	for _, call := range []string{
		`"profile":"anthropic","call":{"type":"tool_use","id":"toolu_1","name":"str_replace_based_edit_tool","input":{"command":"view","path":"src/main.go"}}`,
		`"profile":"openai","call":{"type":"function_call","call_id":"call_1","name":"read_file","arguments":"{\"path\":\"src/main.go\"}"}`,
		`"profile":"gemini","call":{"functionCall":{"name":"write_file","args":{"file_path":"main.go","content":""}}}`,
	} {
		d.show("POST /v1/tools/call", "/v1/tools/call", `{"session_id":"`+session+`",`+call+`}`)
	}
	waits := func() (approval, review string) {
		said := d.show("POST /v1/exec", "/v1/exec", `{"session_id":"`+session+`","argv":["publish"],"wait":false}`)
		approval = regexp.MustCompile(`a-[a-z2-7]{26}`).FindString(said)
		_, shown := b.do(t, "GET", "/v1/approvals/"+approval, "")
		review = regexp.MustCompile(`"review":"(sha256:[0-9a-f]{64})"`).FindStringSubmatch(shown)[1]
		d.named.stable(said) // the execution has its name before
		d.named.name(review, fmt.Sprintf("sha256:%064x", 0xd0+len(d.named.seen)))
		return approval, review
	}
	approval, review := waits()
	d.show("GET /v1/approvals", "/v1/approvals?state=waiting&limit=10", "")
	d.show("GET /v1/approvals", "/v1/approvals?state=open", "")
	d.show("GET /v1/approvals/{approval_id}", "/v1/approvals/"+approval, "")
	d.show("GET /v1/approvals/{approval_id}", "/v1/approvals/a-unknown", "")
	d.show("POST /v1/approvals/{approval_id}/approve", "/v1/approvals/"+approval+"/approve", `{"comment":"as announced"}`)
	d.show("POST /v1/approvals/{approval_id}/approve", "/v1/approvals/"+approval+"/approve", `{"review":"`+review+`","comment":"as announced"}`)
	approval, _ = waits()
	d.show("POST /v1/approvals/{approval_id}/deny", "/v1/approvals/"+approval+"/deny", `{"comment":"not today"}`)
	d.show("POST /v1/approvals/{approval_id}/deny", "/v1/approvals/a-unknown/deny", `{}`)
	d.show("GET /v1/intents", "/v1/intents?session_id="+session+"&limit=2", "")
	d.show("GET /v1/intents", "/v1/intents?limit=100000", "")
	d.show("GET /v1/intents/{intent_id}", "/v1/intents/"+intent, "")
	d.show("GET /v1/intents/{intent_id}", "/v1/intents/sha256:00", "")
	d.show("GET /v1/intents/{intent_id}/frames", "/v1/intents/"+intent+"/frames", "")
	d.show("GET /v1/intents/{intent_id}/frames", "/v1/intents/"+intent+"/frames?after=x", "")
	d.show("GET /v1/sessions/{session_id}/events", "/v1/sessions/"+session+"/events?limit=3", "")
	d.show("GET /v1/sessions/{session_id}/events", "/v1/sessions/s-unknown/events", "")
	d.show("GET /v1/events", "/v1/events?after=2&limit=1&wait_ms=1000", "")
	d.show("GET /v1/events", "/v1/events?after=-1", "")
	d.show("POST /v1/signal", "/v1/signal", `{"session_id":"`+session+`","signal":"SIGINT"}`)
	d.show("POST /v1/signal", "/v1/signal", `{"session_id":"`+session+`","signal":"SIGNOPE"}`)
	stored := d.show("PUT /v1/blobs", "/v1/blobs", "some content")
	ref := regexp.MustCompile(`sha256:[0-9a-f]{64}`).FindString(stored[strings.Index(stored, `"blob_ref"`):])
	d.show("PUT /v1/blobs", "/v1/blobs?blob_ref=sha256:"+strings.Repeat("0", 64), "some content")
	d.show("GET /v1/blobs/{blob_ref}", "/v1/blobs/"+ref, "")
	d.show("GET /v1/blobs/{blob_ref}", "/v1/blobs/sha256:"+strings.Repeat("0", 64), "")
	d.show("GET /v1/receipts", "/v1/receipts?op=host.session.signal&outcome=ok", "")
	d.show("GET /v1/receipts", "/v1/receipts?limits=1", "")
	d.show("GET /v1/receipts", "/v1/receipts?order=oldest&after=4&limit=1&code=operation_not_allowed&path=/etc", "")
	d.show("GET /v1/audit", "/v1/audit?outcome=denied&limit=1&rule=decision", "")
	d.show("GET /v1/audit", "/v1/audit?path=etc", "")
	d.show("GET /v1/receipts/{intent_id}", "/v1/receipts/"+intent, "")
	d.show("GET /v1/receipts/{intent_id}", "/v1/receipts/sha256:00", "")
	d.show("GET /v1/checkpoint", "/v1/checkpoint", "")
	d.show("GET /v1/checkpoint", "/v1/checkpoint?seq=1", "")
	d.show("POST /v1/decide", "/v1/decide", `{"op":"host.session.open","open":{"target":{"local":{}},"profile":"forbidden"}}`)
	d.show("POST /v1/decide", "/v1/decide", `{"op":"host.info"}`)
	d.show("GET /v1/host", "/v1/host", "")
	d.show("GET /v1/host", "/v1/host", "", "Stockade-Scope", `{"agent_id":"blind"}`)
	d.show("GET /v1/capabilities", "/v1/capabilities", "")
	d.show("GET /v1/capabilities", "/v1/capabilities", "", "Stockade-Scope", `{"agent_id":"blind"}`)
	d.show("GET /v1/quiescence", "/v1/quiescence", "")
	d.show("GET /v1/quiescence", "/v1/quiescence", "", "Stockade-Scope", `{"agent_id":"blind"}`)
	d.show("GET /v1/snapshot", "/v1/snapshot", "")
	d.show("GET /v1/snapshot", "/v1/snapshot?at=1", "")
	d.show("POST /v1/drain", "/v1/drain", `{}`)
	d.show("POST /v1/drain", "/v1/drain", `{"undo":"yes"}`)
	d.show("POST /v1/drain", "/v1/drain", `{"undo":true}`)
	d.show("GET /v1/settings", "/v1/settings", "")
	d.show("GET /v1/settings", "/v1/settings", "", "Stockade-Scope", `{"agent_id":"blind"}`)
	d.show("POST /v1/log/level", "/v1/log/level", `{"level":"debug"}`)
	d.show("POST /v1/log/level", "/v1/log/level", `{"level":"loud"}`)
	d.show("GET /v1/policy", "/v1/policy", "")
	d.show("GET /v1/policy", "/v1/policy", "", "Stockade-Scope", `{"agent_id":"blind"}`)
	there = maps.Clone(policy)
	there["open.rego"] = &fstest.MapFile{Data: bytes.Replace(policy["open.rego"].Data, []byte(`"pids": 32`), []byte(`"pids": 16`), 1)}
	d.show("POST /v1/policy/preview", "/v1/policy/preview", `{"live":"terminate"}`)
	d.show("POST /v1/policy/preview", "/v1/policy/preview", `{"live":"frozen"}`)
	d.show("POST /v1/policy/activate", "/v1/policy/activate", `{"live":"keep"}`)
	there = fstest.MapFS{"open.rego": {Data: []byte("package stockade.open\n\ndecision {")}}
	d.show("POST /v1/policy/activate", "/v1/policy/activate", `{"strict":true}`)
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

// until waits until an execution is in a state.
func (b *box) until(t testing.TB, exec string, state api.State) {
	t.Helper()
	for range 500 {
		p, err := b.Process(t.Context(), exec)
		if err != nil {
			t.Fatal(err)
		}
		if p.State == state {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("%s does not come to be %s", exec, state)
}

// untilAny waits until there is an execution in a state.
func (b *box) untilAny(t testing.TB, state api.State) {
	for range 500 {
		if list, err := b.Processes(t.Context(), api.Read{State: string(state)}); err == nil && len(list.Processes) > 0 {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("nothing comes to be %s", state)
}

func (b *box) untilIdle(t testing.TB, shell string) {
	for range 500 {
		if s, err := b.Shell(t.Context(), shell); err == nil && s.Status == api.ShellIdle && s.Queue.Requests == 0 && len(s.Commands) > 0 {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("the shell does not come to its prompt")
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
	for _, id := range regexp.MustCompile(`\b[sxa]-[a-z2-7]{26}\b`).FindAllString(s, -1) {
		r.name(id, fmt.Sprintf("%s-%026d", id[:1], len(r.seen)))
	}
	for id, name := range r.seen {
		s = strings.ReplaceAll(s, id, name)
	}
	for _, rule := range []struct{ pattern, with string }{
		{`"capabilities_digest":"sha256:[0-9a-f]{64}"`, `"capabilities_digest":"sha256:` + strings.Repeat("c", 64) + `"`},
		{`"((?:\w*_)?at_ns)":[0-9]+`, `"$1":1767225600000000000`},
		{`"((?:\w*_)?at)":"[^"]*"`, `"$1":"2026-01-01T00:00:00Z"`},
		{`"deadline_ns":[0-9]+`, `"deadline_ns":1767226500000000000`},
		{`"deadline":"[^"]*"`, `"deadline":"2026-01-01T00:15:00Z"`},
		{`"(next|head)":"[0-9]+"`, `"$1":"42"`},
		{`"(wall_ns|cpu_ns|duration_ns|elapsed_ns|age_ns|ns|mtime_ns|new_mtime_ns)":[0-9]+`, `"$1":1000000`},
		{`"uid":` + strconv.Itoa(os.Geteuid()) + `,"gid":` + strconv.Itoa(os.Getegid()) + `(,"groups":\[[0-9,]*\])?`, `"uid":1000,"gid":1000`},
		{`"frame_seq":[0-9]+`, `"frame_seq":3`}, // a frame of what has just ended may be too late
		{`"emitted_at_seq":[0-9]+`, `"emitted_at_seq":42`},
		{`,"timings":\[[^\]]*\]`, ``}, // which stages are worth a line differs
		{`"note":"(\w+ \w+/\w+)\\n[^"]*"`, `"note":"$1\n42\n…\n\n— local …\n"`},
		{`"records":\d+,"digest":"sha256:[0-9a-f]{64}","size_bytes":\d+`, `"records":42,"digest":"sha256:…","size_bytes":4242`},
		{`"journal_key":"[^"]*"`, `"journal_key":"stockade-…"`},
		{` in [0-9.]+m?s; ended`, ` in 1ms; ended`},
		{` after [0-9.]+m?s, `, ` after 1ms, `},
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
