package server

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
)

// The commands of the page about streams, as a reader would type them one after the other, get
// the answers that it shows (R117, R129, R130).
func TestStreamsPage(t *testing.T) {
	b := newBox(t, Options{})
	page, err := os.ReadFile("../../docs/api/streams.md")
	if err != nil {
		t.Fatal(err)
	}
	vars := map[string]string{"S": b.socket, "SESSION": b.open(t)}
	commands := 0
	for _, block := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllSubmatch(page, -1) {
		lines := strings.Split(strings.TrimSpace(string(block[1])), "\n")
		if len(lines)%2 != 0 {
			t.Fatalf("each command has one line of answer: %q", lines)
		}
		for i := 0; i < len(lines); i += 2 {
			commands++
			method, target, body, header := curl(t, lines[i], vars)
			status, answer := b.do(t, method, target, body, header...)
			want, shape, _ := strings.Cut(strings.TrimPrefix(lines[i+1], "# "), " ")
			if fmt.Sprint(status) != want || !shaped(answer, shape) {
				t.Errorf("%s\n%s\n got %d %s", lines[i], lines[i+1], status, answer)
			}
			for name, pattern := range map[string]string{"EXEC": `"exec_id":"(x-[^"]+)"`, "INTENT": `"intent_id":"([^"]+)"`, "CURSOR": `"cursor":"([^"]+)"`} {
				// Operations on an execution have intents of their own; the page is about the first.
				if m := regexp.MustCompile(pattern).FindStringSubmatch(answer); m != nil && (name == "CURSOR" || vars[name] == "") {
					vars[name] = m[1]
				}
			}
		}
	}
	if commands < 20 {
		t.Errorf("%d commands", commands)
	}
	kinds := regexp.MustCompile("(?m)^\\| `(\\w+)` \\|").FindAllSubmatch(page, -1)
	said := map[string]bool{}
	for _, k := range kinds {
		said[string(k[1])] = true
	}
	for _, kind := range eventKinds(t) {
		if !said[kind] {
			t.Errorf("the page does not say what %s is", kind)
		}
	}
}

// eventKinds are all that an api.Event can be.
func eventKinds(t *testing.T) (kinds []string) {
	t.Helper()
	source, err := os.ReadFile("../api/frame.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`(?m)^\tEvent\w+ +EventKind = "(\w+)"`).FindAllSubmatch(source, -1) {
		kinds = append(kinds, string(m[1]))
	}
	if len(kinds) < 7 {
		t.Fatalf("only %v", kinds)
	}
	return kinds
}

// shaped reports whether the parts of shape between its dots occur in text, in order; the first
// begins it.
func shaped(text, shape string) bool {
	for i, part := range strings.Split(shape, "…") {
		at := strings.Index(text, part)
		if at < 0 || i == 0 && at > 0 {
			return false
		}
		text = text[at+len(part):]
	}
	return true
}

// curl reads a command line of the few options that the page uses.
func curl(t *testing.T, line string, vars map[string]string) (method, target, body string, header []string) {
	t.Helper()
	words := shellWords(t, line, vars)
	method = "GET"
	for i := 1; i < len(words); i++ {
		next := func() string { i++; return words[i] }
		switch w := words[i]; w {
		case "-s", "-N":
		case "--unix-socket":
			if next() != vars["S"] {
				t.Fatalf("another socket: %s", line)
			}
		case "-X":
			method = next()
		case "-H":
			name, value, _ := strings.Cut(next(), ": ")
			header = append(header, name, value)
		case "--json":
			method, body = "POST", next()
			header = append(header, "Content-Type", "application/json", "Accept", "application/json")
		default:
			path, ok := strings.CutPrefix(w, "http://stockade")
			if !ok {
				t.Fatalf("%q in %s", w, line)
			}
			target = path
		}
	}
	return method, target, body, header
}

// shellWords splits a line as a shell does: quotes of both kinds, and variables where they count.
func shellWords(t *testing.T, line string, vars map[string]string) (words []string) {
	t.Helper()
	line = strings.TrimSpace(line)
	expand := func(s string) string {
		return os.Expand(s, func(name string) string {
			if vars[name] == "" {
				t.Fatalf("$%s has no value in %s", name, line)
			}
			return vars[name]
		})
	}
	piece := regexp.MustCompile(`^(?:'([^']*)'|"([^"]*)"|([^\s'"]+))`)
	var word strings.Builder
	for line != "" {
		if line[0] == ' ' {
			words = append(words, word.String())
			word.Reset()
			line = strings.TrimLeft(line, " ")
			continue
		}
		m := piece.FindStringSubmatch(line)
		if m == nil {
			t.Fatalf("open quotes: %s", line)
		}
		word.WriteString(m[1] + expand(m[2]) + expand(m[3]))
		line = line[len(m[0]):]
	}
	return append(words, word.String())
}
