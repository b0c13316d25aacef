package archtest

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ +(.+)$`)
	code    = regexp.MustCompile("(?s)```.*?```|`[^`\n]*`")
)

// guides are the tree's own; what tools put beside them is not.
func guides(t *testing.T) (names []string) {
	t.Helper()
	err := filepath.WalkDir("../..", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "build" || d.Name() == ".git" || d.Name() == "node_modules"):
			return fs.SkipDir
		case strings.HasSuffix(name, ".md"):
			names = append(names, name)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// broken are the links of a document that lead nowhere in the tree.
func broken(t *testing.T, name, text string) (bad []string) {
	t.Helper()
	for _, m := range link.FindAllStringSubmatch(code.ReplaceAllString(text, ""), -1) {
		path, anchor, _ := strings.Cut(m[1], "#")
		if strings.Contains(path, "://") || strings.HasPrefix(path, "mailto:") {
			continue
		}
		to := name
		if path != "" {
			to = filepath.Join(filepath.Dir(name), path)
		}
		info, err := os.Stat(to)
		if err != nil {
			bad = append(bad, m[1])
			continue
		}
		if anchor == "" || info.IsDir() || !strings.HasSuffix(to, ".md") {
			continue
		}
		b, err := os.ReadFile(to)
		if err != nil {
			t.Fatal(err)
		}
		if !anchors(string(b))[anchor] {
			bad = append(bad, m[1])
		}
	}
	return bad
}

// anchors are the names of headings, as the usual renderers make them.
func anchors(text string) map[string]bool {
	out := map[string]bool{}
	for _, h := range heading.FindAllStringSubmatch(text, -1) {
		name := strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-' || r == '_' || r > 127 || '0' <= r && r <= '9' || 'a' <= r && r <= 'z':
				return r
			}
			return -1
		}, strings.ToLower(h[1]))
		out[name] = true
	}
	return out
}

// A document sends nobody where nothing is.
func TestLinks(t *testing.T) {
	names := guides(t)
	if len(names) < 10 {
		t.Fatalf("only %v", names)
	}
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range broken(t, name, string(b)) {
			t.Errorf("%s: %s leads nowhere", name, l)
		}
	}
	if bad := broken(t, "../../README.md", "[a](docs/none.md) [b](docs/security.md#none) [c](docs/security.md#what-is-promised) `[d](none)`"); len(bad) != 2 {
		t.Errorf("of two that lead nowhere: %v", bad)
	}
}
