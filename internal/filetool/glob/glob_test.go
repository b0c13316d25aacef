package glob

import (
	"strings"
	"testing"

	"github.com/bmatcuk/doublestar/v4"
	"pgregory.net/rapid"
)

// The language is doublestar's, where a class does not meet a slash.
func TestMatchesAsDoublestarDoes(t *testing.T) {
	part := rapid.SampledFrom([]string{"a", "b", "ab", "*", "**", "?", "[ab]", "[!a]", "[a-c]", "{a,b}", "{a,*}", "{,b}", `\*`, ".", "é", "{a/b,c}", "/", "/", "/**/", "**/"})
	name := rapid.SampledFrom([]string{"a", "b", "c", "*", ".", "é", "ab", "/", "/"})
	rapid.Check(t, func(t *rapid.T) {
		pattern := strings.Join(rapid.SliceOfN(part, 1, 7).Draw(t, "pattern"), "")
		path := strings.Join(rapid.SliceOfN(name, 1, 8).Draw(t, "path"), "")
		for strings.Contains(path, "//") {
			path = strings.ReplaceAll(path, "//", "/")
		}
		if path = strings.Trim(path, "/"); path == "" {
			return
		}
		for strings.Contains(pattern, "//") {
			pattern = strings.ReplaceAll(pattern, "//", "/")
		}
		if pattern = strings.Trim(pattern, "/"); pattern == "" || strings.Contains(pattern, "[!") && strings.Contains(path, "/") {
			return
		}
		if strings.Contains(pattern, "***") { // which doublestar does not let be nothing
			return
		}
		want, err := doublestar.Match(pattern, path)
		p, mine := Compile(pattern, false)
		if (err != nil) != (mine != nil) {
			t.Fatalf("%s: %v, doublestar %v", pattern, mine, err)
		}
		if err != nil {
			return
		}
		if got := p.Match(path); got != want && !braced(pattern) && !(got && nothing(pattern)) {
			t.Fatalf("%s, %s: %v, doublestar %v", pattern, path, got, want)
		}
		// Whoever is told not to go into a directory misses nothing in it.
		if i := strings.IndexByte(path, '/'); i > 0 && p.Match(path) && !p.Leads(path[:i]) {
			t.Fatalf("%s does not lead into %s, but matches %s", pattern, path[:i], path)
		}
	})
}

// nothing tells patterns at whose end ** may be no component at all: here always, in doublestar not behind a *.
func nothing(p string) bool { return strings.HasSuffix(p, "*/**") }

// braced tells patterns whose ** begins or ends in a brace: what stands beside it is another component for one of the two.
func braced(p string) bool {
	return strings.Contains(p, "{") && (strings.Contains(p, "**") || strings.Contains(p, "{,") || strings.Contains(p, ",*}"))
}

func FuzzCompile(f *testing.F) {
	for _, p := range []string{"**/*.{go,md}", "[!a-z]?", `\{a`, "{a,{b,c}}", "[", "{", "**"} {
		f.Add(p, "a/b.go")
	}
	f.Fuzz(func(t *testing.T, pattern, path string) {
		if p, err := Compile(pattern, len(pattern)%2 == 0); err == nil {
			p.Match(path)
			p.Leads(path)
		}
	})
}
