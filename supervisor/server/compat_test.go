package server

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
)

var release = flag.Bool("release", false, "make the present contract the released one; refused where that would break it")

const (
	released = "../../docs/api/v1.json"
	reworded = "../../docs/api/reworded.json"
)

// What was released within v1 stays as it was: whoever was written for it is served as before. More may come. docs/api/README.md
// has the rules, and how a text is mended whose meaning stays.
func TestCompatible(t *testing.T) {
	present, err := os.ReadFile("openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(released)
	if os.IsNotExist(err) && *release {
		if err := os.WriteFile(released, present, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	var mended []rewording
	list, err := os.ReadFile(reworded)
	if err == nil {
		err = json.Unmarshal(list, &mended, json.RejectUnknownMembers(true))
	}
	if err != nil {
		t.Fatal(err)
	}
	broken := breaks(objectOf(t, before), objectOf(t, present), mended)
	for _, what := range broken {
		t.Errorf("breaks what v1 promises: %s", what)
	}
	if *release && len(broken) == 0 {
		if err := os.WriteFile(released, present, 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(reworded, []byte("[]\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// rewording is another text at a place, for the same meaning.
type rewording struct {
	Place string `json:"place"`
	Now   string `json:"now"`
	Why   string `json:"why"`
}

// Each kind of break is seen, and said; what only adds is none.
func TestBreaks(t *testing.T) {
	contract, err := os.ReadFile("openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	schema := func(name string, members ...string) []string {
		return append([]string{"components", "schemas", name}, members...)
	}
	exec := func(members ...string) []string { return append([]string{"paths", "/v1/exec", "post"}, members...) }
	for _, row := range []struct {
		name string
		at   []string // of the document
		to   any      // nil takes it away
		want string   // "" is none
	}{
		{"nothing", []string{"info", "version"}, "1", ""},
		{"a route", []string{"paths", "/v1/checkpoint"}, nil, "GET /v1/checkpoint is gone"},
		{"what policy is asked", exec("x-stockade-operation"), "host.run", "POST /v1/exec: x-stockade-operation was"},
		{"what a route does", exec("summary"), "Forget a command.", "POST /v1/exec: it said"},
		{"a status", exec("responses", "202"), nil, "POST /v1/exec: status 202 is gone"},
		{"a form of a reply", exec("responses", "200", "content", "application/x-ndjson"), nil, "POST /v1/exec: status 200: application/x-ndjson is gone"},
		{"a reply of another type", exec("responses", "202", "content", "application/json", "schema", "$ref"), "#/components/schemas/Receipt", "status 202: application/json: was"},
		{"a body", exec("requestBody", "content", "application/json", "schema", "$ref"), "#/components/schemas/SessionOpen", "body: application/json: was"},
		{"a key", exec("parameters"), []any{}, "POST /v1/exec: parameter header Idempotency-Key is gone"},
		{"another parameter that must be there", exec("parameters"), append(parameters(t, contract, exec("parameters")), object{"name": "dry", "in": "query", "required": true, "schema": object{"type": "string"}}), "parameter query dry must be there now"},
		{"another parameter", exec("parameters"), append(parameters(t, contract, exec("parameters")), object{"name": "dry", "in": "query", "schema": object{"type": "string"}}), ""},
		{"a member of a request", schema("Exec", "properties", "cwd"), nil, "Exec.cwd is gone"},
		{"a member of a reply", schema("Receipt", "properties", "policy"), nil, "Receipt.policy is gone"},
		{"its name", schema("Receipt", "properties", "outcome"), nil, "Receipt.outcome is gone"},
		{"its type", schema("Exec", "properties", "timeout_ns"), object{"type": "string", "description": "nanoseconds of wall time; 0 means the grant's"}, "Exec.timeout_ns: type was integer and is string"},
		{"its bounds", schema("Exec", "properties", "timeout_ns", "format"), "int32", "Exec.timeout_ns: format was int64 and is int32"},
		{"its encoding", schema("InlineBytes", "properties", "bytes", "contentEncoding"), "base16", "InlineBytes.bytes: contentEncoding was base64"},
		{"the elements of a list", schema("Exec", "properties", "argv", "items", "type"), "integer", "Exec.argv[]: type was string"},
		{"its words", schema("Receipt", "properties", "outcome", "x-stockade-words"), "State", "Receipt.outcome: x-stockade-words was Outcome"},
		{"its meaning", schema("Exec", "properties", "cwd", "description"), "relative resolves under /", "Exec.cwd: it said"},
		{"what a request must say", schema("Exec", "required"), []any{"session_id", "argv", "cwd"}, "Exec.cwd must be said now"},
		{"what a reply always says", schema("Pending", "required"), []any{"exec_id"}, "Pending.cursor need not be there any more"},
		{"an arm", schema("Target", "properties", "local"), nil, "Target.local is gone"},
		{"how many arms", schema("Stdin", "minProperties"), 2, "Stdin: minProperties was 1 and is 2"},
		{"what else an object may have", schema("Exec", "properties", "labels", "additionalProperties", "type"), "integer", "Exec.labels{}: type was string"},
		{"a type", schema("LimitHit"), nil, "LimitHit is gone"},
		{"a code", []string{"x-stockade-codes", "oom_killed"}, nil, "code oom_killed is gone"},
		{"the status of a code", []string{"x-stockade-codes", "not_found", "status"}, 410, "code not_found: status was 404"},
		{"the meaning of a code", []string{"x-stockade-codes", "not_found", "meaning"}, "It never was.", "code not_found: it said"},
		{"an event", []string{"x-stockade-words", "NoticeKind", "IDLE_WARNING"}, nil, "NoticeKind IDLE_WARNING is gone"},
		{"the meaning of an event", []string{"x-stockade-words", "EventKind", "receipt"}, "the beginning", "EventKind receipt: it said"},
		{"the meaning of a frame", []string{"x-stockade-words", "FrameKind", "host.exec.adopted"}, "", "FrameKind host.exec.adopted: it said"},
		{"another member of a request", schema("Exec", "properties", "nice"), object{"type": "integer"}, ""},
		{"another member of a reply", schema("Receipt", "properties", "mood"), object{"type": "string"}, ""},
		{"what a reply always says from now on", schema("Pending", "required"), []any{"intent_id", "exec_id", "session_id", "state", "cursor", "end"}, ""},
		{"another code", []string{"x-stockade-codes", "tired"}, object{"status": 503, "meaning": "It is."}, ""},
		{"another event", []string{"x-stockade-words", "NoticeKind", "SUNRISE"}, "every day", ""},
		{"another route", []string{"paths", "/v1/dance"}, object{"post": object{}}, ""},
		{"another status", exec("responses", "207"), object{"description": "Much."}, ""},
		{"a meaning that was not said", schema("Exec", "properties", "argv", "description"), "the command", ""},
	} {
		present := objectOf(t, contract)
		if !set(present, row.to, row.at...) {
			t.Errorf("%s: there is no %s", row.name, strings.Join(row.at, "/"))
			continue
		}
		got := breaks(objectOf(t, contract), present, nil)
		switch {
		case row.want == "" && len(got) > 0:
			t.Errorf("%s: %q", row.name, got)
		case row.want != "" && !strings.Contains(strings.Join(got, "\n"), row.want):
			t.Errorf("%s: %q does not say %q", row.name, got, row.want)
		}
	}

	present := objectOf(t, contract)
	set(present, "below the working directory", schema("Exec", "properties", "cwd", "description")...)
	for _, row := range []struct {
		mended []rewording
		want   int
	}{
		{[]rewording{{"Exec.cwd", "below the working directory", "the same, in plainer words"}}, 0},
		{[]rewording{{"Exec.cwd", "below the working directory", ""}}, 1}, // says no reason
		{[]rewording{{"Exec.cwd", "below something", "the same"}}, 2},     // is of another text
		{[]rewording{{"Exec.cwd", "below the working directory", "the same"}, {"Exec.argv", "x", "for nothing"}}, 1},
	} {
		if got := breaks(objectOf(t, contract), present, row.mended); len(got) != row.want {
			t.Errorf("%+v: %q", row.mended, got)
		}
	}
}

func objectOf(t *testing.T, b []byte) object {
	t.Helper()
	var o object
	if err := json.Unmarshal(b, &o); err != nil {
		t.Fatal(err)
	}
	return o
}

func parameters(t *testing.T, contract []byte, at []string) []any {
	o := objectOf(t, contract)
	for _, name := range at[:len(at)-1] {
		o = o[name].(object)
	}
	return o[at[len(at)-1]].([]any)
}

// set puts v where a path leads, or takes away what is there. It reports whether the path leads anywhere.
func set(o object, v any, at ...string) bool {
	for _, name := range at[:len(at)-1] {
		next, ok := o[name].(object)
		if !ok {
			return false
		}
		o = next
	}
	last := at[len(at)-1]
	if v == nil {
		_, ok := o[last]
		delete(o, last)
		return ok
	}
	b, err := json.Marshal(v) // as the document would have it
	if err != nil {
		panic(err)
	}
	var plain any
	if err := json.Unmarshal(b, &plain); err != nil {
		panic(err)
	}
	o[last] = plain
	return true
}

// comparison is of a released contract with another.
type comparison struct {
	before, now object
	asked, told *reach // from requests, and from replies
	mended      map[string]rewording
	used        map[string]bool
	broken      []string
}

// reach is the types that are reached from one side.
type reach struct {
	requests bool
	seen     map[string]bool
}

// breaks says what of the released contract is not so any more.
func breaks(before, now object, mended []rewording) []string {
	c := &comparison{before: before, now: now, asked: &reach{true, map[string]bool{}}, told: &reach{false, map[string]bool{}}, mended: map[string]rewording{}, used: map[string]bool{}}
	for _, m := range mended {
		c.mended[m.Place] = m
	}
	c.routes()
	c.schemas()
	c.words()
	for _, place := range slices.Sorted(maps.Keys(c.mended)) {
		if !c.used[place] {
			c.say("%s says %s was reworded, and it was not", reworded, place)
		}
	}
	slices.Sort(c.broken) // what is reached from both sides is said once
	return slices.Compact(c.broken)
}

func (c *comparison) say(format string, args ...any) {
	c.broken = append(c.broken, fmt.Sprintf(format, args...))
}

// member is an object that is a member of another; an empty one where there is none.
func member(o object, names ...string) object {
	for _, name := range names {
		o, _ = o[name].(object)
	}
	return o
}

// text compares what is said of something. What was not said may be; what was stays, but for other words.
func (c *comparison) text(place string, before, now any) {
	old, _ := before.(string)
	new, _ := now.(string)
	m, ok := c.mended[place]
	if ok && m.Now == new && old != new {
		c.used[place] = true
		if m.Why == "" {
			c.say("%s was reworded without a reason", place)
		}
		return
	}
	if old != "" && old != new {
		c.say("%s: it said %q and says %q; where the meaning is the same, add {\"place\": %q, \"now\": …, \"why\": …} to %s", place, old, new, place, reworded)
	}
}

func (c *comparison) routes() {
	for _, path := range sorted(member(c.before, "paths")) {
		for _, method := range sorted(member(c.before, "paths", path)) {
			name := strings.ToUpper(method) + " " + path
			old, new := member(c.before, "paths", path, method), member(c.now, "paths", path, method)
			if new == nil {
				c.say("%s is gone", name)
				continue
			}
			c.text(name, old["summary"], new["summary"])
			c.same(name, "x-stockade-operation", old, new)
			c.same(name, "operationId", old, new)
			c.parameters(name, old, new)
			c.contents(name+": body", member(old, "requestBody"), member(new, "requestBody"), c.asked)
			if member(old, "requestBody")["required"] != true && member(new, "requestBody")["required"] == true {
				c.say("%s: the body must be there now", name)
			}
			for _, status := range sorted(member(old, "responses")) {
				if member(new, "responses", status) == nil {
					c.say("%s: status %s is gone", name, status)
					continue
				}
				c.contents(name+": status "+status, member(old, "responses", status), member(new, "responses", status), c.told)
			}
		}
	}
}

func (c *comparison) parameters(name string, old, new object) {
	all := func(o object) map[string]object {
		out := map[string]object{}
		list, _ := o["parameters"].([]any)
		for _, p := range list {
			out[fmt.Sprint(p.(object)["in"], " ", p.(object)["name"])] = p.(object)
		}
		return out
	}
	before, now := all(old), all(new)
	for _, p := range slices.Sorted(maps.Keys(before)) {
		place := name + ": parameter " + p
		if now[p] == nil {
			c.say("%s is gone", place)
			continue
		}
		c.text(place, before[p]["description"], now[p]["description"])
		c.value(place, before[p]["schema"], now[p]["schema"], c.asked)
	}
	for _, p := range slices.Sorted(maps.Keys(now)) {
		if now[p]["required"] == true && (before[p] == nil || before[p]["required"] != true) {
			c.say("%s: parameter %s must be there now", name, p)
		}
	}
}

func (c *comparison) contents(place string, old, new object, reached *reach) {
	for _, media := range sorted(member(old, "content")) {
		now := member(new, "content", media)
		if now == nil {
			c.say("%s: %s is gone", place, media)
			continue
		}
		c.value(place+": "+media, member(old, "content", media)["schema"], now["schema"], reached)
	}
}

// same compares one member of two schemas.
func (c *comparison) same(place, name string, old, new object) {
	if a, b := fmt.Sprint(old[name]), fmt.Sprint(new[name]); a != b {
		c.say("%s: %s was %s and is %s", place, name, a, b)
	}
}

// value compares two schemas where they are used, and notes which types are reached.
func (c *comparison) value(place string, before, now any, reached *reach) {
	old, isOld := before.(object)
	new, isNew := now.(object)
	if !isOld || !isNew { // true, false, or none
		if fmt.Sprint(before) != fmt.Sprint(now) && isOld != isNew {
			c.say("%s: was %v and is %v", place, before, now)
		}
		return
	}
	if ref, _ := old["$ref"].(string); ref != "" {
		if new["$ref"] != ref {
			c.say("%s: was %v and is %v", place, ref, new["$ref"])
			return
		}
		c.follow(strings.TrimPrefix(ref, "#/components/schemas/"), reached)
		return
	}
	for _, name := range []string{"type", "format", "contentEncoding", "x-stockade-words", "pattern", "minLength", "maxLength", "minimum", "maximum", "minItems", "maxItems", "$ref"} {
		c.same(place, name, old, new)
	}
	c.value(place+"[]", old["items"], new["items"], reached)
	c.value(place+"{}", old["additionalProperties"], new["additionalProperties"], reached)
	c.members(place, old, new, reached)
	olds, _ := old["oneOf"].([]any)
	news, _ := new["oneOf"].([]any)
	if len(news) < len(olds) {
		c.say("%s: there were %d forms, and there are %d", place, len(olds), len(news))
		return
	}
	for i := range olds {
		c.value(fmt.Sprintf("%s|%d", place, i), olds[i], news[i], reached)
	}
}

// follow notes that a type is used, and follows it once for requests and once for replies.
func (c *comparison) follow(name string, reached *reach) {
	if reached.seen[name] {
		return
	}
	reached.seen[name] = true
	old, new := member(c.before, "components", "schemas", name), member(c.now, "components", "schemas", name)
	if new == nil {
		return // said by schemas
	}
	c.members(name, old, new, reached)
}

// members compares the members of an object.
func (c *comparison) members(place string, old, new object, reached *reach) {
	for _, name := range sorted(member(old, "properties")) {
		at := place + "." + name
		now, ok := member(new, "properties")[name]
		if !ok {
			c.say("%s is gone", at)
			continue
		}
		before := member(old, "properties")[name]
		b, _ := before.(object)
		n, _ := now.(object)
		c.text(at, b["description"], n["description"])
		c.value(at, before, now, reached)
	}
	required := func(o object) []string {
		var out []string
		list, _ := o["required"].([]any)
		for _, r := range list {
			out = append(out, r.(string))
		}
		return out
	}
	for _, name := range required(new) {
		if reached.requests && !slices.Contains(required(old), name) {
			c.say("%s.%s must be said now", place, name)
		}
	}
	for _, name := range required(old) {
		if !reached.requests && member(new, "properties")[name] != nil && !slices.Contains(required(new), name) {
			c.say("%s.%s need not be there any more", place, name)
		}
	}
	for _, bound := range []string{"minProperties", "maxProperties"} {
		c.same(place, bound, old, new)
	}
}

func (c *comparison) schemas() {
	for _, name := range sorted(member(c.before, "components", "schemas")) {
		if member(c.now, "components", "schemas", name) == nil {
			c.say("%s is gone", name)
		}
	}
}

func (c *comparison) words() {
	for _, kind := range sorted(member(c.before, "x-stockade-words")) {
		for _, word := range sorted(member(c.before, "x-stockade-words", kind)) {
			now, ok := member(c.now, "x-stockade-words", kind)[word]
			if !ok {
				c.say("%s %s is gone", kind, word)
				continue
			}
			c.text(kind+" "+word, member(c.before, "x-stockade-words", kind)[word], now)
		}
	}
	for _, code := range sorted(member(c.before, "x-stockade-codes")) {
		old, new := member(c.before, "x-stockade-codes", code), member(c.now, "x-stockade-codes", code)
		if new == nil {
			c.say("code %s is gone", code)
			continue
		}
		c.same("code "+code, "status", old, new)
		c.text("code "+code, old["meaning"], new["meaning"])
	}
}

func sorted(o object) []string { return slices.Sorted(maps.Keys(o)) }
