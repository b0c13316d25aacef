package server

import (
	"bytes"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/stockade-dev/stockade/supervisor/api"
)

// Each field of each request deleted, retyped, doubled, miscased, oversized, and each
// document with something behind it or too deep inside: refused with a stable code,
// never with a 5xx, and nothing is started (T162, R001, R003, R009, R034, R044, R075, R260).
func TestHostileRequests(t *testing.T) {
	b := newBox(t, Options{})
	session := b.open(t)
	cat := b.begin(t, api.Exec{SessionID: b.open(t), Argv: []string{"cat"}, StdinOpen: true}).ExecID
	b.until(t, cat, api.StateRunning)
	docs := []struct {
		method, path, body string
		optional           []string // members without which the request is still in order
		accepted           []string // pointer and type that are in order although not those of the example
	}{
		{"POST", "/v1/sessions", `{"target":{"local":{"root":{"dir":{"path":"/srv/root"}},"mounts":[{"host_path":"/srv/w","guest_path":"/w","mode":"ro"}],` +
			`"workdir":"/tmp","env":{"A":"x","B":{"secret":"y"}},"network_mode":"none","hostname":"h"}},"profile":"p","session_ttl_ns":1000000000,"labels":{"a":"b"},` +
			`"scope":{"agent_id":"a","world_id":"w","chat_id":"c"},"limits":{"memory_bytes":33554432,"cpu_millis":500,"pids":8,"output_bytes":1000},"allow_background_processes":true}`,
			[]string{"/target/local/root", "/target/local/root/dir", "/target/local/mounts", "/target/local/mounts/0", "/target/local/workdir", "/target/local/env",
				"/target/local/env/A", "/target/local/env/B", "/target/local/network_mode", "/target/local/hostname", "/profile", "/session_ttl_ns", "/labels", "/labels/a",
				"/scope", "/scope/agent_id", "/scope/world_id", "/scope/chat_id", "/limits", "/limits/memory_bytes", "/limits/cpu_millis", "/limits/pids", "/limits/output_bytes",
				"/allow_background_processes"},
			[]string{"/target/local/env/B string"}},
		{"POST", "/v1/exec", `{"session_id":"` + session + `","argv":["echo","x"],"cwd":"/tmp","env_patch":{"A":"x","B":{"secret":"y"}},"stdin":{"inline_text":{"text":"x"}},` +
			`"timeout_ns":1000000000,"output_mode":"auto","max_inline_bytes":1,"limits":{"output_bytes":1000},"outputs":["/tmp/x"],"scope":{}}`,
			[]string{"/argv/0", "/argv/1", "/stdin/inline_text/text", "/cwd", "/env_patch", "/env_patch/A", "/env_patch/B", "/stdin", "/timeout_ns", "/output_mode", "/max_inline_bytes", "/limits", "/limits/output_bytes",
				"/outputs", "/outputs/0", "/scope"},
			[]string{"/env_patch/A null", "/env_patch/B null", "/env_patch/B string"}},
		{"POST", "/v1/signal", `{"session_id":"` + session + `","signal":"int","grace_timeout_ns":1,"scope":{}}`,
			[]string{"/grace_timeout_ns", "/scope"}, []string{"/signal number"}},
		{"POST", "/v1/close", `{"session_id":"s-none","mode":"graceful","grace_timeout_ns":1,"scope":{}}`, nil, nil},
		{"POST", "/v1/decide", `{"op":"host.exec","exec":{"session_id":"` + session + `","argv":["echo"]}}`, nil, nil},
		{"POST", "/v1/ops/host.session.list", `{"labels":{"a":"b"},"state":"ready","limit":1}`,
			[]string{"/labels", "/labels/a", "/state", "/limit"}, nil},
		{"POST", "/v1/ops/receipt.list", `{"session_id":"` + session + `","limit":1}`, []string{"/session_id", "/limit"}, nil},
		{"POST", "/v1/executions/" + cat + "/input", `{"exec_id":"` + cat + `","input_id":"a","data":{"inline_text":{"text":"x"}},"scope":{}}`,
			[]string{"/exec_id", "/input_id", "/data/inline_text/text", "/scope"}, nil},
		{"POST", "/v1/executions/" + cat + "/modify", `{"timeout_ns":9000000000,"scope":{}}`, []string{"/scope"}, nil},
		{"POST", "/v1/executions/" + cat + "/pause", `{"exec_id":"` + cat + `","scope":{}}`, []string{"/exec_id", "/scope", ""}, []string{" empty"}},
		{"POST", "/v1/executions/" + cat + "/resume", `{"scope":{}}`, []string{"/scope"}, []string{" empty"}},
		{"POST", "/v1/sessions/" + session + "/resume", `{"session_id":"` + session + `","scope":{}}`, []string{"/session_id", "/scope"}, []string{" empty"}},
		{"POST", "/v1/executions/stop", `{"session_id":"` + session + `","labels":{"a":"b"},"grace_timeout_ns":1,"scope":{}}`,
			[]string{"/session_id", "/labels", "/labels/a", "/grace_timeout_ns", "/scope"}, nil},
		{"POST", "/v1/ops/host.process.list", `{"session_id":"` + session + `","state":"running","active":true,"labels":{"a":"b"},"limit":1}`,
			[]string{"/session_id", "/state", "/active", "/labels", "/labels/a", "/limit"}, []string{"/active boolean"}},
		{"POST", "/v1/ops/host.process.output", `{"exec_id":"` + cat + `","after":"0.0.0","wait_ms":1,"max_bytes":1}`, []string{"/after", "/wait_ms", "/max_bytes"}, nil},
		{"POST", "/v1/ops/host.events", `{"after":"1","wait_ms":1,"limit":1}`, []string{"/after", "/wait_ms", "/limit"}, nil},
		{"POST", "/v1/executions/" + cat + "/cancel", `{"grace_timeout_ns":0,"wait":true,"scope":{}}`, []string{"/grace_timeout_ns", "/wait", "/scope"}, []string{" empty"}},
		{"POST", "/v1/ops/process.exec", `{"session_id":"` + session + `","argv":["echo"]}`, nil, nil},
		{"POST", "/v1/log/level", `{"level":"info","scope":{}}`, []string{"/scope"}, nil},
		{"POST", "/v1/drain", `{"undo":true,"scope":{}}`, []string{"/scope", "/undo"}, nil}, // the last: nothing starts after it
	}
	for _, doc := range docs {
		t.Run(doc.path, func(t *testing.T) {
			for _, m := range mutations(t, doc.body) {
				inOrder := m.kind == "delete" && slices.Contains(doc.optional, m.at) || slices.Contains(doc.accepted, m.at+" "+m.kind)
				before := b.fake.opened.Load() + b.fake.started.Load()
				status, body := b.do(t, doc.method, doc.path, m.body, "Content-Type", "application/json")
				switch {
				case status >= 500:
					t.Errorf("%s %s: %d %.200s", m.kind, m.at, status, body)
				case status >= 400 && !codePattern.MatchString(body):
					t.Errorf("%s %s: %d without a code: %.200s", m.kind, m.at, status, body)
				case status < 400 && !inOrder:
					t.Errorf("%s %s is accepted: %.200s", m.kind, m.at, body)
				case status >= 400 && inOrder:
					t.Errorf("%s %s is refused: %.300s", m.kind, m.at, body)
				}
				if after := b.fake.opened.Load() + b.fake.started.Load(); after != before && !inOrder {
					t.Errorf("%s %s started something", m.kind, m.at)
				}
			}
		})
	}
}

var codePattern = regexp.MustCompile(`"(code|error_code)":"[a-z_.]+"`)

type mutation struct{ kind, at, body string }

// mutations are all the ways in which a document can be wrong in one place.
func mutations(t *testing.T, doc string) (out []mutation) {
	out = append(out,
		mutation{"trailing", "", doc + `{}`}, mutation{"trailing text", "", doc + ` x`}, mutation{"half", "", doc[:len(doc)/2]},
		mutation{"empty", "", ""}, mutation{"null", "", "null"}, mutation{"array", "", "[" + doc + "]"}, mutation{"text", "", `"x"`},
		mutation{"bom", "", "\ufeff" + doc}, mutation{"utf-16", "", "\xff\xfe{\x00}\x00"}, mutation{"comment", "", "/**/" + doc},
		mutation{"unknown member", "", `{"x":1,` + doc[1:]},
		mutation{"deep", "", strings.Repeat(`{"target":`, 1000) + `{}` + strings.Repeat(`}`, 1000)},
	)
	var root any
	if err := json.Unmarshal([]byte(doc), &root); err != nil {
		t.Fatal(err)
	}
	walk(root, "", func(v any, at string, with func(kind, raw string)) {
		for kind, raw := range map[string]string{
			"null": "null", "boolean": "false", "number": "2", "fraction": "1.5", "exponent": "1e1", "negative": "-9", "overflow": "9223372036854775808",
			"string": `"x/../y"`, "array": `[{}]`, "object": `{"x":{}}`, "NUL": `"\u0000"`, "surrogate": `"\ud800"`, "not utf-8": "\"\xff\"",
			"long": `"` + strings.Repeat("x", 300<<10) + `"`, "deep": strings.Repeat("[", 1000) + strings.Repeat("]", 1000), "huge": strings.Repeat("9", 5000),
		} {
			if sameType(v, kind) || kind == "long" && textual[at] || kind == "string" && textual[at] || kind == "NUL" && strings.HasSuffix(at, "/inline_text/text") {
				continue // another value of the same kind, not another kind
			}
			with(kind, raw)
		}
	}, func(kind, at, body string) { out = append(out, mutation{kind, at, body}) }, func(v any) string {
		b, err := json.Marshal(v, json.Deterministic(true))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	})
	return out
}

// textual are members that take any text, within their bounds of length.
var textual = map[string]bool{
	"/argv/0": true, "/argv/1": true, "/exec/argv/0": true, "/stdin/inline_text/text": true, "/cwd": true,
	"/target/local/env/A": true, "/target/local/env/B/secret": true, "/env_patch/A": true, "/env_patch/B/secret": true,
	"/data/inline_text/text": true, "/input_id": true, "/labels/a": true, "/scope/agent_id": true, "/scope/world_id": true, "/scope/chat_id": true,
}

func sameType(v any, kind string) bool {
	switch v.(type) {
	case bool:
		return kind == "boolean"
	case float64:
		return kind == "number"
	}
	return false
}

// walk visits every member of every object and every element of every array below root.
// visit gets each value and a function that records the document with raw in its place;
// deletion, doubling and miscasing are recorded for members without being asked.
func walk(root any, at string, visit func(v any, at string, with func(kind, raw string)), record func(kind, at, body string), encode func(any) string) {
	var down func(v any, at string, rebuild func(raw string) string)
	each := func(v any, at string, rebuild func(raw string) string) {
		visit(v, at, func(kind, raw string) { record(kind, at, rebuild(raw)) })
		down(v, at, rebuild)
	}
	down = func(v any, at string, rebuild func(raw string) string) {
		switch v := v.(type) {
		case map[string]any:
			names := slices.Sorted(maps.Keys(v))
			object := func(skip string, extra ...string) string {
				var parts []string
				for _, n := range names {
					if n != skip {
						parts = append(parts, quote(n)+":"+encode(v[n]))
					}
				}
				return "{" + strings.Join(append(parts, extra...), ",") + "}"
			}
			for _, n := range names {
				p, value := at+"/"+n, encode(v[n])
				record("delete", p, rebuild(object(n)))
				record("double", p, rebuild(object("", quote(n)+":"+value)))
				if !anyName[at] {
					record("miscase", p, rebuild(object(n, quote(strings.ToUpper(n[:1])+n[1:])+":"+value)))
				}
				each(v[n], p, func(raw string) string { return rebuild(object(n, quote(n)+":"+raw)) })
			}
		case []any:
			for i := range v {
				array := func(raw ...string) string {
					var parts []string
					for j := range v {
						if j == i {
							parts = append(parts, raw...)
							continue
						}
						parts = append(parts, encode(v[j]))
					}
					return "[" + strings.Join(parts, ",") + "]"
				}
				p := fmt.Sprintf("%s/%d", at, i)
				record("delete", p, rebuild(array()))
				each(v[i], p, func(raw string) string { return rebuild(array(raw)) })
			}
		}
	}
	down(root, at, func(raw string) string { return raw })
}

// anyName are objects whose members are named by the caller.
var anyName = map[string]bool{"/labels": true, "/target/local/env": true, "/env_patch": true}

func quote(s string) string {
	var b bytes.Buffer
	enc := jsontext.NewEncoder(&b)
	if err := enc.WriteToken(jsontext.String(s)); err != nil {
		panic(err)
	}
	return strings.TrimSpace(b.String())
}

// Positions, numbers and ids that nobody was given, in URLs and headers: refused with a code or
// answered with nothing, never a 5xx, and nothing of them comes back as a header or as an event
// (T159, T160, T169).
func TestHostilePositions(t *testing.T) {
	b := newBox(t, Options{})
	session := b.open(t)
	ran, err := b.Exec(t.Context(), api.Exec{SessionID: session, Argv: []string{"echo", "x"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Client.Close(t.Context(), api.SessionClose{SessionID: session}); err != nil { // so that its log ends
		t.Fatal(err)
	}
	values := []string{
		"-1", "%2D1.0.0", "0.0", "0.0.0.0", "0.0.0%00", "00.0.0", "1e3", "0x1", "1.-2.3", "9223372036854775808", "0.0.9223372036854775808", "%ff", "%C3",
		"a%0d%0aX-Evil:%201", "1%0aevent:%20receipt%0adata:%20{}", "%E2%80%A8", "null", "{}", strings.Repeat("9", 60<<10),
	}
	huge := []string{"9223372036854775807", "9223372036854775807.9223372036854775807.9223372036854775807", "0.9223372036854775807.0"}
	routes := map[string][]string{ // and the parameters that are numbers
		"/v1/executions/" + ran.ExecID + "/output": {"stdout", "stderr", "max_bytes", "wait_ms"},
		"/v1/intents/" + ran.IntentID + "/frames":  {"limit", "wait_ms"},
		"/v1/sessions/" + session + "/events":      {"limit", "wait_ms"},
		"/v1/executions":                           {"limit"},
	}
	for path, numbers := range routes {
		for _, accept := range []string{"application/json", "text/event-stream", "application/x-ndjson"} {
			try := func(query string, refused bool, header ...string) {
				t.Helper()
				status, body := b.do(t, "GET", path+query, "", append([]string{"Accept", accept}, header...)...)
				name := fmt.Sprintf("%s%.60s %s %.60q", path, query, accept, header)
				switch {
				case status >= 500, refused && status < 400:
					t.Errorf("%s: %d %.300s", name, status, body)
				case status >= 400 && !codePattern.MatchString(body):
					t.Errorf("%s: %d without a code: %.300s", name, status, body)
				}
			}
			for _, v := range values {
				if decoded, err := url.PathUnescape(v); err == nil && path != "/v1/executions" && accept != "application/json" && !strings.ContainsAny(decoded, "\r\n\x00") {
					try("", true, "Last-Event-ID", decoded)
				}
				try("?after="+v, true)
				for _, n := range numbers {
					try("?"+n+"="+v, true)
				}
			}
			for _, v := range huge {
				try("?after="+v, false)
			}
			for _, n := range numbers {
				if n != "stdout" && n != "stderr" && n != "max_bytes" {
					try("?"+n+"=9223372036854775807", true)
				}
			}
		}
	}
}

// A code of the answer is one that the table knows: clients can rely on docs/api/errors.md.
func TestRefusalCodesAreDocumented(t *testing.T) {
	b := newBox(t, Options{})
	known := map[string]bool{}
	for _, c := range api.Codes {
		known[string(c.Code)] = true
	}
	for _, m := range mutations(t, `{"session_id":"s-none","argv":["echo"],"timeout_ns":1}`) {
		_, body := b.do(t, "POST", "/v1/exec", m.body, "Content-Type", "application/json")
		found := regexp.MustCompile(`"(?:code|error_code)":"([^"]*)"`).FindStringSubmatch(body)
		if found == nil || !known[found[1]] {
			t.Errorf("%s %s: %.200s", m.kind, m.at, body)
		}
	}
}
