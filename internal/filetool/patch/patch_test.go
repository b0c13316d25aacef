package patch

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"
	"pgregory.net/rapid"

	"github.com/stockade-dev/stockade/sandbox/file"
)

// diff writes the patch that leads from old to fresh: the longest common lines stay, and context lines surround the rest.
func diff(old, fresh []string, context int, unified bool) string {
	// keep[i] of old is line j of fresh, or -1.
	table := make([][]int, len(old)+1)
	for i := range table {
		table[i] = make([]int, len(fresh)+1)
	}
	for i := len(old) - 1; i >= 0; i-- {
		for j := len(fresh) - 1; j >= 0; j-- {
			if old[i] == fresh[j] {
				table[i][j] = table[i+1][j+1] + 1
			} else {
				table[i][j] = max(table[i+1][j], table[i][j+1])
			}
		}
	}
	type op struct {
		kind byte
		text string
		i, j int
	}
	var ops []op
	for i, j := 0, 0; i < len(old) || j < len(fresh); {
		switch {
		case i < len(old) && j < len(fresh) && old[i] == fresh[j]:
			ops = append(ops, op{' ', old[i], i, j})
			i, j = i+1, j+1
		case i < len(old) && (j == len(fresh) || table[i+1][j] >= table[i][j+1]):
			ops = append(ops, op{'-', old[i], i, j})
			i++
		default:
			ops = append(ops, op{'+', fresh[j], i, j})
			j++
		}
	}
	near := func(k int) bool {
		for d := -context; d <= context; d++ {
			if k+d >= 0 && k+d < len(ops) && ops[k+d].kind != ' ' {
				return true
			}
		}
		return false
	}
	var b strings.Builder
	for k := 0; k < len(ops); {
		if !near(k) {
			k++
			continue
		}
		end := k
		var body strings.Builder
		a, z := 0, 0
		for end < len(ops) && near(end) {
			fmt.Fprintf(&body, "%c%s\n", ops[end].kind, ops[end].text)
			if ops[end].kind != '+' {
				a++
			}
			if ops[end].kind != '-' {
				z++
			}
			end++
		}
		if unified {
			i, j := ops[k].i+1, ops[k].j+1
			if a == 0 {
				i--
			}
			if z == 0 {
				j--
			}
			fmt.Fprintf(&b, "@@ -%d,%d +%d,%d @@\n", i, a, j, z)
		} else {
			b.WriteString("@@\n")
		}
		b.WriteString(body.String())
		k = end
	}
	return b.String()
}

func join(lines []string) string {
	if len(lines) == 0 {
		return ""
	}
	return strings.Join(lines, "\n") + "\n"
}

// apply ∘ diff = identity, for unified diff with any context, over lines that repeat.
func TestApplyUndoesDiff(t *testing.T) {
	line := rapid.SampledFrom([]string{"a", "b", "c", "", " ", "\ta", "a ", "- x", "+ y", "@@", "*** End Patch", "--- a/f", "+++ b/f", "é", `\ No newline`, "diff --git a b"})
	rapid.Check(t, func(t *rapid.T) {
		old := rapid.SliceOfN(line, 0, 30).Draw(t, "old")
		fresh := rapid.SliceOfN(line, 0, 30).Draw(t, "fresh")
		if rapid.Bool().Draw(t, "near") { // most patches change little
			fresh = append([]string{}, old...)
			for range rapid.IntRange(0, 4).Draw(t, "edits") {
				if len(fresh) > 0 {
					i := rapid.IntRange(0, len(fresh)-1).Draw(t, "at")
					switch rapid.IntRange(0, 2).Draw(t, "how") {
					case 0:
						fresh[i] = line.Draw(t, "line")
					case 1:
						fresh = append(fresh[:i], fresh[i+1:]...)
					case 2:
						fresh = append(fresh[:i], append([]string{line.Draw(t, "line")}, fresh[i:]...)...)
					}
				}
			}
		}
		body := diff(old, fresh, rapid.IntRange(0, 4).Draw(t, "context"), true)
		if body == "" {
			return
		}
		text := "--- a/f\n+++ b/f\n" + body
		p, bad := Parse("unified", text)
		if bad != nil {
			t.Fatalf("%+v\n%s", bad, text)
		}
		got, bad := p.Files[0].Apply(join(old))
		if bad != nil || got != join(fresh) {
			t.Fatalf("%+v\n%q\nwant %q\n%s", bad, got, join(fresh), text)
		}
	})
}

// The same for v4a, which has no line numbers: with lines that do not repeat, any context finds its place; and the line
// endings of the file are kept whatever the patch has.
func TestApplyUndoesDiffWithoutNumbers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 40).Draw(t, "lines")
		eol := rapid.SampledFrom([]string{"\n", "\r\n"}).Draw(t, "eol")
		var old, fresh []string
		for i := range n {
			l := fmt.Sprintf("%s%d", rapid.SampledFrom([]string{"", "  ", "\t"}).Draw(t, "indent"), i)
			old = append(old, l)
			switch rapid.IntRange(0, 6).Draw(t, "how") {
			case 0:
			case 1:
				fresh = append(fresh, l+"x")
			case 2:
				fresh = append(fresh, fmt.Sprintf("new %d", i), l)
			default:
				fresh = append(fresh, l)
			}
		}
		body := diff(old, fresh, rapid.IntRange(1, 3).Draw(t, "context"), false)
		if body == "" {
			return
		}
		text := "*** Begin Patch\n*** Update File: f\n" + body + "*** End Patch\n"
		if rapid.Bool().Draw(t, "crlf patch") {
			text = strings.ReplaceAll(text, "\n", "\r\n")
		}
		p, bad := Parse("v4a", text)
		if bad != nil {
			t.Fatalf("%+v\n%s", bad, text)
		}
		got, bad := p.Files[0].Apply(strings.ReplaceAll(join(old), "\n", eol))
		if want := strings.ReplaceAll(join(fresh), "\n", eol); bad != nil || got != want {
			t.Fatalf("%+v\n%q\nwant %q\n%s", bad, got, want, text)
		}
	})
}

// Git's own diffs, of files with and without a newline at their end.
func TestAppliesWhatGitWrites(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("git is not installed")
	}
	rapid.Check(t, func(t *rapid.T) {
		line := rapid.SampledFrom([]string{"a\n", "b\n", "c\n", "\n", "x\r\n", "-- \n"})
		last := rapid.SampledFrom([]string{"", "", "z", "a"})
		old := strings.Join(rapid.SliceOfN(line, 1, 20).Draw(t, "old"), "") + last.Draw(t, "last")
		fresh := strings.Join(rapid.SliceOfN(line, 1, 20).Draw(t, "fresh"), "") + last.Draw(t, "last")
		if old == fresh {
			return
		}
		text := gitDiff(t, old, fresh)
		p, bad := Parse("unified", text)
		if bad != nil {
			t.Fatalf("%+v\n%s", bad, text)
		}
		got, bad := p.Files[0].Apply(old)
		if bad != nil || strings.ReplaceAll(got, "\r", "") != strings.ReplaceAll(fresh, "\r", "") {
			t.Fatalf("%+v\n%q\nwant %q\n%s", bad, got, fresh, text)
		}
	})
}

// T143: patches that are made to be slow are bounded.
func TestBombs(t *testing.T) {
	many := strings.Repeat("a\n", 100_000)
	for name, c := range map[string]struct{ format, patch, content string }{
		"hunks":     {"v4a", "*** Begin Patch\n*** Update File: f\n" + strings.Repeat("@@\n-a\n+b\n", 1_000_000) + "*** End Patch\n", many},
		"quadratic": {"v4a", "*** Begin Patch\n*** Update File: f\n@@\n" + strings.Repeat(" a\n", 50_000) + "-b\n+c\n*** End Patch\n", many},
		"hints":     {"v4a", "*** Begin Patch\n*** Update File: f\n" + strings.Repeat("@@ q\n", 100_000) + "-a\n+b\n*** End Patch\n", many},
		"unified":   {"unified", "--- a/f\n+++ b/f\n@@ -50000,50001 +1,50001 @@\n" + strings.Repeat(" a\n", 50_000) + "-b\n+c\n", many},
		"long line": {"v4a", "*** Begin Patch\n*** Update File: f\n@@ " + strings.Repeat("x", 10<<20) + "\n-a\n+b\n*** End Patch\n", many},
		"files":     {"v4a", "*** Begin Patch\n" + strings.Repeat("*** Add File: f\n", 500_000) + "*** End Patch\n", ""},
	} {
		start := time.Now()
		p, bad := Parse(c.format, c.patch)
		if bad == nil && c.content != "" {
			_, bad = p.Files[0].Apply(c.content)
		}
		if d := time.Since(start); d > 5*time.Second {
			t.Errorf("%s: %v", name, d)
		}
		if bad == nil && name != "files" {
			t.Errorf("%s: it applies", name)
		}
		if bad != nil && (len(bad.Message) > 4096 || len(bad.Expected) > shownLines) {
			t.Errorf("%s: the error has %d bytes", name, len(bad.Message))
		}
	}
}

// The errors of hunks without a place say what would mend them.
func TestErrorsHelp(t *testing.T) {
	content := "package a\n\nfunc A() int {\n\treturn 1\n}\n\nfunc B() int {\n\treturn 2\n}\n"
	for _, row := range []struct {
		hunk    string
		nearest int64
		text    string
		message string
	}{
		{"@@\n func A() int {\n-\treturn 3\n+\treturn 4\n }\n", 3, "func A() int {", "these lines are not behind line 0"},
		{"@@ func C() int {\n-\treturn 3\n+\treturn 4\n", 0, "", "the line that @@ names is not behind line 0"},
		{"@@\n func B() int {\n-\treturn 2\n+\treturn 3\n@@\n func A() int {\n-\treturn 1\n+\treturn 0\n", 3, "func A() int {", "these lines are not behind line 8; they are at an earlier line, so the hunks are not in the order of the file"},
	} {
		p, bad := Parse("", "*** Begin Patch\n*** Update File: a.go\n"+row.hunk+"*** End Patch\n")
		if bad != nil {
			t.Fatal(bad)
		}
		_, bad = p.Files[0].Apply(content)
		if bad == nil || bad.Code != file.CodeHunkRejected || bad.Message != row.message || bad.Path != "a.go" || bad.PatchLine < 3 || len(bad.Expected) == 0 {
			t.Errorf("%q: %+v", row.hunk, bad)
			continue
		}
		if row.nearest == 0 && bad.Nearest != nil || row.nearest != 0 && (bad.Nearest == nil || bad.Nearest.Line != row.nearest || bad.Nearest.Text != row.text || len(bad.Actual) == 0) {
			t.Errorf("%q: nearest %+v", row.hunk, bad.Nearest)
		}
	}
}

func seeds(f *testing.F) {
	names, _ := filepath.Glob("../testdata/patches/*.txtar")
	for _, name := range names {
		a, err := txtar.ParseFile(name)
		if err != nil {
			f.Fatal(err)
		}
		for _, part := range a.Files {
			if strings.HasPrefix(part.Name, "patch") {
				f.Add(string(part.Data), "one\ntwo\nthree\nx\n")
			}
		}
	}
}

// fuzz: whatever the text, nothing panics, what is parsed has paths and bounded errors, and lines that a hunk keeps are in the result.
func fuzz(f *testing.F, format string) {
	seeds(f)
	f.Fuzz(func(t *testing.T, text, content string) {
		p, bad := Parse(format, text)
		if (p == nil) == (bad == nil) {
			t.Fatal("neither patch nor error, or both")
		}
		if bad != nil {
			if bad.Code == "" || bad.Message == "" || len(bad.Message) > 8192 {
				t.Fatalf("%+v", bad)
			}
			return
		}
		for _, c := range p.Files {
			if msg := file.NameFault(c.Path, true); msg != "" {
				t.Fatalf("%q: %s", c.Path, msg)
			}
			if c.Kind == Add {
				continue
			}
			out, bad := c.Apply(content)
			if bad != nil {
				continue
			}
			again, bad := c.Apply(content)
			if bad != nil || out != again {
				t.Fatal("not the same twice")
			}
			if len(c.Hunks) == 0 && out != content {
				t.Fatal("no hunk, and a change")
			}
			if len(out) > len(content)+2*len(text)+2*strings.Count(text, "\n")+2 {
				t.Fatalf("%d bytes of %d and a patch of %d", len(out), len(content), len(text))
			}
		}
	})
}

func FuzzV4A(f *testing.F)     { fuzz(f, "v4a") }
func FuzzUnified(f *testing.F) { fuzz(f, "unified") }
