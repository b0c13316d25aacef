package server

import (
	"bytes"
	"fmt"
	"net/url"
	"os"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/stockade-dev/stockade/supervisor/api"
)

// Every golden request and reply of docs/api/routes.md through the types of the Go client and back: nothing is left out, nothing is
// added, and each reply comes out as the bytes that it was. The clients in Python and TypeScript do the same with the same file.
func TestGoldens(t *testing.T) {
	all := goldens(t)
	covered := map[string]int{}
	for _, g := range all {
		covered[g.route.method+" "+g.route.path]++
		name := fmt.Sprintf("%s %s: %d", g.route.method, g.target, g.status)
		if _, isContent := g.route.in.([]byte); g.body != "" && !isContent {
			if err := throughType(reflect.TypeOf(g.route.in), g.asked(), false); err != nil && g.status != 400 { // some are refused for their form
				t.Errorf("%s: the request: %v", name, err)
			}
		}
		if g.stream != nil {
			for _, line := range g.stream {
				if err := throughType(reflect.TypeOf(streams[g.route.op]), line, true); err != nil {
					t.Errorf("%s: an event: %v", name, err)
				}
			}
			continue
		}
		if of := g.replyType(); of != nil {
			if err := throughType(of, g.reply, true); err != nil {
				t.Errorf("%s: the reply: %v", name, err)
			}
		}
	}
	for _, r := range routes() {
		if name := r.method + " " + r.path; covered[name] < 2 && r.path != "/v1/openapi.json" {
			t.Errorf("%s has %d goldens", name, covered[name])
		}
	}
	// The check sees what it is for.
	for _, row := range []struct{ what, document string }{
		{"a member that the type has not", `{"exec_id":"x-1","session_id":"s-1","intent_id":"i","state":"running","cursor":"","more":1}`},
		{"a member that must be there", `{"exec_id":"x-1","session_id":"s-1","state":"running","cursor":""}`},
		{"another type", `{"exec_id":1,"session_id":"s-1","intent_id":"i","state":"running","cursor":""}`},
	} {
		if throughType(reflect.TypeFor[api.Pending](), row.document, true) == nil {
			t.Errorf("%s goes through", row.what)
		}
	}
}

// golden is a request with its reply.
type golden struct {
	route       route
	target      string
	body, reply string
	stream      []string // the events of a reply that is one
	status      int
}

var (
	goldenBlock = regexp.MustCompile("(?ms)^```http\n(.*?)\n```$")
	sseData     = regexp.MustCompile(`(?m)^data: (.*)$`)
)

// goldens reads docs/api/routes.md: a request and its reply in turn.
func goldens(t *testing.T) (all []golden) {
	t.Helper()
	text, err := os.ReadFile("../../docs/api/routes.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := goldenBlock.FindAllSubmatch(text, -1)
	if len(blocks) == 0 || len(blocks)%2 != 0 {
		t.Fatalf("%d blocks", len(blocks))
	}
	for i := 0; i < len(blocks); i += 2 {
		head, body, _ := strings.Cut(string(blocks[i][1]), "\n\n")
		status, reply, _ := strings.Cut(string(blocks[i+1][1]), "\n\n")
		first, headers, _ := strings.Cut(head, "\n")
		method, target, _ := strings.Cut(first, " ")
		g := golden{target: target, body: body, reply: reply, route: routeOf(t, method, target)}
		number, _, _ := strings.Cut(status, " ")
		if g.status, err = strconv.Atoi(number); err != nil {
			t.Fatal(err)
		}
		switch {
		case g.status != 200:
		case strings.Contains(headers, "Accept: application/x-ndjson"):
			g.stream = strings.Split(strings.TrimSpace(reply), "\n")
		case strings.Contains(headers, "Accept: text/event-stream"):
			for _, m := range sseData.FindAllStringSubmatch(reply, -1) {
				g.stream = append(g.stream, m[1])
			}
		}
		all = append(all, g)
	}
	return all
}

// routeOf is the route that a request is of; one whose path is said to the letter comes before one with a name in it.
func routeOf(t *testing.T, method, target string) (found route) {
	t.Helper()
	u, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	names := 100
	for _, r := range routes() {
		pattern := regexp.MustCompile(`\\\{\w+\\\}`).ReplaceAllString(regexp.QuoteMeta(r.path), `[^/]+`)
		if n := strings.Count(r.path, "{"); r.method == method && n < names && regexp.MustCompile(`^`+pattern+`$`).MatchString(u.Path) {
			found, names = r, n
		}
	}
	if names == 100 {
		t.Fatalf("no route of %s %s", method, target)
	}
	return found
}

// asked is the body with what the path names, as the server puts it together; a signal has its one name, and a shell without argv is
// the session's own.
func (g *golden) asked() string {
	body := strings.Replace(g.body, `"signal":"SIGINT"`, `"signal":"INT"`, 1)
	add := func(member string) {
		if strings.HasPrefix(body, "{}") {
			body = "{" + member + "}"
		} else {
			body = "{" + member + "," + strings.TrimPrefix(body, "{")
		}
	}
	zero, _ := api.Encode(reflect.Zero(reflect.TypeOf(g.route.in)).Interface())
	at := strings.Split(strings.SplitN(g.target, "?", 2)[0], "/")
	for i, part := range strings.Split(g.route.path, "/") {
		if name := strings.Trim(part, "{}"); name != part && bytes.Contains(zero, []byte(`"`+name+`":""`)) {
			add(fmt.Sprintf("%q:%q", name, at[i]))
		}
	}
	if g.route.op == api.OpShellOpen && !strings.Contains(body, `"argv"`) {
		add(`"argv":[]`)
	}
	return body
}

// replyType is what the reply is one of; nil of content.
func (g *golden) replyType() reflect.Type {
	var is struct {
		Error   jsontext.Value `json:"error"`
		Intent  string         `json:"intent_id"`
		Outcome string         `json:"outcome"`
	}
	_, isContent := g.route.out.([]byte)
	err := json.Unmarshal([]byte(g.reply), &is)
	switch {
	case err != nil && isContent && g.status == 200:
		return nil
	case is.Error != nil:
		return reflect.TypeFor[api.ErrorBody]()
	case is.Intent != "" && is.Outcome != "" && (takesKey(g.route) || g.status != 200):
		return reflect.TypeFor[api.Receipt]()
	case g.status == 202 && g.route.op != api.OpShellOpen:
		return reflect.TypeFor[api.Pending]()
	}
	return reflect.TypeOf(g.route.out)
}

// throughType decodes a document as a type, strictly, and encodes it again. To the byte, or but for the order of members.
func throughType(of reflect.Type, document string, exact bool) error {
	v := reflect.New(of)
	if err := json.Unmarshal([]byte(document), v.Interface(), json.RejectUnknownMembers(true)); err != nil {
		return err
	}
	got, err := api.Encode(v.Interface())
	if err != nil {
		return err
	}
	want, have := jsontext.Value(document), jsontext.Value(got)
	options := []jsontext.Options{jsontext.CanonicalizeRawInts(false), jsontext.CanonicalizeRawFloats(false), jsontext.ReorderRawObjects(!exact)}
	for _, value := range []*jsontext.Value{&want, &have} {
		if err := value.Format(append(options, jsontext.SpaceAfterColon(false), jsontext.SpaceAfterComma(false))...); err != nil {
			return err
		}
		if err := value.Compact(); err != nil {
			return err
		}
	}
	if !bytes.Equal(want, have) {
		return fmt.Errorf("%s became %s", want, have)
	}
	return nil
}
