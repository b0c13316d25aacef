package filetool

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/bmatcuk/doublestar/v4"
	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/internal/filetool/ripgrep"
	"github.com/stockade-dev/stockade/internal/filetool/search"
	"github.com/stockade-dev/stockade/internal/filetool/stage"
	"github.com/stockade-dev/stockade/sandbox/file"
)

// rgPath is the rg that is installed here.
func rgPath(t testing.TB) string {
	t.Helper()
	rg, err := exec.LookPath("rg")
	if err != nil {
		if os.Getenv("STOCKADE_NOSKIP") == "1" {
			t.Fatal("ripgrep is not installed: apt-get install ripgrep")
		}
		t.Skip("ripgrep is not installed: apt-get install ripgrep")
	}
	return rg
}

// through has searches be asked of a program, by a helper as a worker has one.
func through(t testing.TB, program string) func(*Config) {
	t.Helper()
	f, err := os.Open(program)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	finder, err := ripgrep.Start("/proc/self/exe", "search", f)
	if err != nil {
		t.Fatal(err)
	}
	return func(c *Config) { c.Ripgrep = finder.Names }
}

// believe has searches be told the names that the box has, if it has any.
func (b *box) believe() {
	b.config.Ripgrep = func(context.Context, int, string) ([]string, error) {
		if b.named == nil {
			return nil, ripgrep.ErrGone
		}
		return b.named, nil
	}
}

// What ripgrep names is looked at by the rules of a walk, and by them only: nothing that a lie says is read, listed or waited for, nothing comes twice,
// nothing out of order, and nothing that does not match.
func TestRipgrepIsNotBelieved(t *testing.T) {
	b := newBox(t, file.Caps{Roots: []string{"/work"}})
	b.file("a/f", "hit\n")
	b.file("a.b", "hit\n")
	b.file("other", "nothing\n")
	b.file("binary", "hit\n\x00")
	b.file(".stockade-staged", "hit\n")
	b.file("/canary/f", "hit canary\n")
	b.link("../canary", "d.link")
	b.link("../canary/f", "f.link")
	b.link("a", "inside")
	unix.Mkfifo(b.at("fifo"), 0o644)
	b.believe()
	b.named = []string{"a.b", "../canary/f", "/canary/f", "canary/f", "a/../../canary/f", "d.link/f", "f.link", "inside/f", "fifo", "a", "a/", "", ".", "..", "./a/f",
		"a//f", "other", "binary", ".stockade-staged", "nowhere", "a.b", "a/f", "a\x00b", "\xff", strings.Repeat("x/", 300) + "f", strings.Repeat("x", 300)}
	start := time.Now()
	g := b.grepFor(file.Grep{Pattern: "hit"})
	if got, want := whole(b, g.Matches), "a/f:1:hit\na.b:1:hit\n"; got != want || g.Backend != "ripgrep" || g.Reason != "provided" || *g.MatchCount != 2 || time.Since(start) > 5*time.Second {
		t.Errorf("%q, want %q: %+v", got, want, g)
	}
	if g := b.grepFor(file.Grep{Pattern: "hit", GlobFilter: "*.b"}); whole(b, g.Matches) != "a.b:1:hit\n" || g.Backend != "ripgrep" {
		t.Errorf("the filter: %+v", g)
	}
	if g := b.grepFor(file.Grep{Pattern: "hit", Target: at("/canary")}); g.Status != file.Forbidden {
		t.Errorf("another root: %+v", g)
	}
}

// When ripgrep is not asked, or not heard, the native engine searches, and the answer says why.
func TestWhoSearches(t *testing.T) {
	one := int64(1)
	for _, row := range []struct {
		reason string
		ask    file.Grep
		caps   file.Caps
		err    error
		named  []string
	}{
		{reason: "provided", ask: file.Grep{Pattern: "hit"}, named: []string{"f"}},
		{reason: "one_file", ask: file.Grep{Pattern: "hit", Target: at("f")}, named: []string{"f"}},
		{reason: "pattern", ask: file.Grep{Pattern: "hit", Multiline: true}, named: []string{"f"}},
		{reason: "ignore_files", ask: file.Grep{Pattern: "hit", RespectIgnore: true}, named: []string{"f"}},
		{reason: "scan_ceiling", ask: file.Grep{Pattern: "hit"}, caps: file.Caps{MaxScanFiles: ptr(int64(1))}, named: []string{"f"}},
		{reason: "scan_ceiling", ask: file.Grep{Pattern: "hit"}, caps: file.Caps{MaxScanBytes: ptr(int64(7))}, named: []string{"f"}},
		{reason: "provided", ask: file.Grep{Pattern: "hit"}, caps: file.Caps{MaxScanFiles: ptr(int64(2)), MaxScanBytes: ptr(int64(8))}, named: []string{"f"}},
		{reason: "kernel_files", ask: file.Grep{Pattern: "hit", Target: at("/")}, named: []string{"work/f"}},
		{reason: "helper_gone", ask: file.Grep{Pattern: "hit"}, err: ripgrep.ErrGone},
		{reason: "ripgrep_failed", ask: file.Grep{Pattern: "hit"}, err: unix.EIO},
		{reason: "change_unfinished", ask: file.Grep{Pattern: "hit"}, named: []string{"sub/.stockade-journal"}},
	} {
		b := newBox(t, row.caps)
		b.file("f", "hit\n")
		b.file("g", "not\n")
		asked := ""
		b.config.Ripgrep = func(_ context.Context, _ int, pattern string) ([]string, error) {
			asked = pattern
			return row.named, row.err
		}
		row.ask.MaxResults = &one
		g := b.grepFor(row.ask)
		if !strings.HasSuffix(whole(b, g.Matches), "f:1:hit\n") || g.Reason != row.reason || (g.Backend == "ripgrep") != (row.reason == "provided") {
			t.Errorf("%+v: %+v", row, g)
		}
		if (row.reason == "provided" || row.err != nil) && !strings.HasSuffix(asked, "|"+stage.JournalLine) {
			t.Errorf("%s: asked for %q", row.reason, asked)
		}
	}
}

// Every journal that matters has a line by which ripgrep names it.
func TestRipgrepFindsJournals(t *testing.T) {
	var b *box
	line, seen := regexp.MustCompile("(?m)"+stage.JournalLine), 0
	b = newBox(t, file.Caps{}, func(c *Config) {
		c.hook = func(string) error {
			if data, err := os.ReadFile(b.at(stage.Journal)); err == nil && len(data) > 0 {
				if seen++; !line.Match(data) {
					t.Errorf("%q", data)
				}
			}
			return nil
		}
	})
	b.file("f", "1\n")
	if p := b.applyPatch("*** Begin Patch\n*** Update File: f\n@@\n-1\n+2\n*** Add File: g\n+1\n*** End Patch\n"); p.Status != file.OK || seen == 0 {
		t.Errorf("%d journals: %+v", seen, p.Outcome)
	}
}

// nastyTree fills the working directory with n files, the same ones every time.
func nastyTree(b *box, n int) {
	r := rand.New(rand.NewPCG(1, 2))
	words := []string{"foo", "Foo", "FOO", "bar", "baz", "func", "needle", "NEEDLE", "Kelvin", "\u212aelvin", "ſharp", "über", "日本", "\xff", "\xc3", "é", "x", "", "\t", "(", "[a]", "a.b", "\r", "\u2028", "\x85", "0", "42", "_", "foobar", "foo bar", "\xed\xa0\x80", "\xf0\x9f\x98", "😀"}
	seps := []string{" ", " ", " ", "", "\t", "-"}
	ends := []string{"\n", "\n", "\n", "\n", "\r\n", "\n\n", "\r", ""}
	odd := []string{"a b", "-n", "new\nline", "tab\t", "bad\xff", `back\slash`, ".hidden", "日本", "é", "[x]", "{y}", "*", ":1:", "a", "a.b", "a-b", "A", "WARNING"}
	dirs := []string{"."}
	for i := range n {
		dir := dirs[r.IntN(len(dirs))]
		if r.IntN(12) == 0 && strings.Count(dir, "/") < 8 {
			dir += "/" + odd[r.IntN(len(odd))] + fmt.Sprint(r.IntN(50))
			dirs = append(dirs, dir)
		}
		name := fmt.Sprintf("%s/f%d.%s", dir, i, []string{"go", "txt", "rs", "md"}[r.IntN(4)])
		if r.IntN(10) == 0 {
			name = fmt.Sprintf("%s/%s%d", dir, odd[r.IntN(len(odd))], i)
		}
		var c bytes.Buffer
		for range r.IntN(20) * r.IntN(4) {
			for range r.IntN(8) {
				c.WriteString(words[r.IntN(len(words))] + seps[r.IntN(len(seps))])
			}
			c.WriteString(ends[r.IntN(len(ends))])
		}
		switch r.IntN(40) {
		case 0: // binary, early, late, beyond the first buffer
			c.WriteString("foo\x00\nfoo\n")
		case 1:
			c.WriteString(strings.Repeat("foo needle\n", 7000) + "\x00")
		case 2:
			c.WriteString(strings.Repeat("long foo ", 20000))
		case 3:
			c.Reset()
		case 4:
			c.WriteString(strings.Repeat("\nneedle\n\n\n", 30))
		case 5:
			c.WriteString("\xef\xbb\xbffoo\nfoo\n")
		}
		b.file(name, c.String())
		if r.IntN(60) == 0 {
			b.link("../../canary", name+".link")
		}
		if r.IntN(200) == 0 {
			unix.Mkfifo(b.at(name+".fifo"), 0o644)
		}
	}
	b.file("/canary/f", "foo needle canary\n")
	b.link(".", "loop")
	b.link("loop/../loop", "d.loop")
}

// R209–R212, C22, T147: what ripgrep finds by the command line that we give it is what the native engine finds, byte for byte.
func TestRipgrepFindsTheSame(t *testing.T) {
	rg := rgPath(t)
	n := 800
	if os.Getenv("STOCKADE_SOAK") != "" {
		n = 20000
	}
	b := newFastBox(t, file.Caps{})
	nastyTree(b, n)
	other := &box{t: t, dir: b.dir, blobs: map[string][]byte{}}
	other.open(file.Caps{Roots: []string{"/work"}}, through(t, rg))
	asks := []file.Grep{
		{Pattern: "foo"}, {Pattern: "foo", CaseInsensitive: true}, {Pattern: "kelvin", CaseInsensitive: true}, {Pattern: "SHARP", CaseInsensitive: true},
		{Pattern: "."}, {Pattern: "^"}, {Pattern: "$"}, {Pattern: "^foo$"}, {Pattern: "^$"}, {Pattern: "x*"}, {Pattern: `\bfoo\b`}, {Pattern: `\w+\s\w+`},
		{Pattern: `\d+`}, {Pattern: `[^a-z]foo`}, {Pattern: `foo|bar|needle`}, {Pattern: `(?i)foo|bar`}, {Pattern: `é`}, {Pattern: `\pL+`}, {Pattern: `[[:alpha:]]{3,4}`},
		{Pattern: `\x{FFFD}`}, {Pattern: `\W\W`}, {Pattern: `foo\s*$`}, {Pattern: `\A foo`}, {Pattern: `needle\z`}, {Pattern: "a.b", FixedStrings: true}, {Pattern: "[a]", FixedStrings: true},
		{Pattern: "(", FixedStrings: true}, {Pattern: "foo", Before: 1, After: 2}, {Pattern: "needle", Before: 3, After: 3}, {Pattern: "needle", Before: 2, MaxPerFile: 3},
		{Pattern: "^.{3}$", Before: 1}, {Pattern: "foo", GlobFilter: "*.go"}, {Pattern: "foo", GlobFilter: "!*.go"}, {Pattern: "foo", GlobFilter: "**/a*/*.{rs,md}"},
		{Pattern: "foo", MaxPerFile: 1}, {Pattern: "nowhere to be found"}, {Pattern: `(foo){2,3}|(ba[rz] ?)+`}, {Pattern: "\t"}, {Pattern: "\r"}, {Pattern: `\n`}, {Pattern: `[\n]`},
		{Pattern: `😀`}, {Pattern: `[😀-😂]`}, {Pattern: `foo.*bar`}, {Pattern: `^\s*func`}, {Pattern: `(?:)`},
	}
	limit := int64(100_000_000)
	fast := 0
	for _, ask := range asks {
		for _, results := range []int64{limit, 7} {
			ask.MaxResults = &results
			native, rg := b.grepFor(ask), other.grepFor(ask)
			a, z := whole(b, native.Matches), whole(other, rg.Matches)
			if a != z || native.Outcome.Status != rg.Outcome.Status || *native.MatchCount != *rg.MatchCount || native.Truncated != rg.Truncated {
				t.Errorf("%+v: native %d bytes, %d matches; %s %d bytes, %d matches\n%s", ask, len(a), *native.MatchCount, rg.Backend, len(z), *rg.MatchCount, firstDifference(a, z))
			}
			if rg.Backend == "ripgrep" && rg.Reason == "provided" {
				fast++
			} else if rg.Reason == "" || native.Backend != "native" || native.Reason != "" {
				t.Errorf("%+v: %s %q, %s %q", ask, native.Backend, native.Reason, rg.Backend, rg.Reason)
			}
			if strings.Contains(a, "canary") {
				t.Errorf("%+v has followed a link", ask)
			}
		}
	}
	if fast < len(asks) {
		t.Errorf("only %d of %d searches were ripgrep's", fast, 2*len(asks))
	}
	printsTheSame(t, rg, b.at("."), b, asks)
}

// printsTheSame holds what the native engine answers against what ripgrep itself prints, line by line: what it names says nothing of lines. It
// leaves out the patterns that are two things in the two languages, and globs with **, which goes over no newline in a name there (ripgrep 13).
func printsTheSame(t *testing.T, rg, dir string, b *box, asks []file.Grep) {
	t.Helper()
	two := []string{`\b`, `\w`, `\W`, `\s`, `\d`, `[^`, `\x{FFFD}`, `\A`, `\z`, `\pL`, `\n`, "\r", "."}
	compared, limit := 0, int64(100_000_000)
	b.config.Runtime.Results, b.config.Runtime.OutputBytes = limit, 1<<40
	for _, ask := range asks {
		if ask.Multiline || strings.Contains(ask.GlobFilter, "**") || !ask.FixedStrings && slices.ContainsFunc(two, func(s string) bool { return strings.Contains(ask.Pattern, s) }) {
			continue
		}
		ask.MaxResults = &limit
		got, want := whole(b, b.grepFor(ask).Matches), printed(t, rg, dir, ask)
		if got != want {
			t.Errorf("%+v: %d bytes, ripgrep prints %d\n%s", ask, len(got), len(want), firstDifference(got, want))
		}
		if want != "" {
			compared++
		}
	}
	if compared < len(asks)/3 {
		t.Errorf("ripgrep has printed something of %d of %d", compared, len(asks))
	}
}

// shortened is what an answer has of a line.
func shortened(line []byte) string {
	if len(line) <= search.MaxLine {
		return strings.ToValidUTF8(string(line), "\uFFFD")
	}
	at := search.MaxLine
	for at > search.MaxLine-utf8.UTFMax+1 && !utf8.RuneStart(line[at]) {
		at--
	}
	return strings.ToValidUTF8(string(line[:at]), "\uFFFD") + fmt.Sprintf("[… %d bytes]", len(line)-at)
}

// printed is what ripgrep prints, in our form of names and lines, without the files that have a NUL, of which it prints what comes before that.
func printed(t *testing.T, rg, dir string, ask file.Grep) string {
	t.Helper()
	args := []string{"--no-config", "--no-ignore", "--hidden", "--no-follow", "--encoding=none", "--no-mmap", "--text", "--crlf", "--sort=path", "--color=never", "--no-heading",
		"--line-number", "--with-filename", "--null", fmt.Sprint("--before-context=", ask.Before), fmt.Sprint("--after-context=", ask.After)}
	for _, option := range []struct {
		arg  string
		said bool
	}{
		{"--ignore-case", ask.CaseInsensitive}, {"--fixed-strings", ask.FixedStrings}, {fmt.Sprint("--max-count=", ask.MaxPerFile), ask.MaxPerFile > 0}, {"--glob=" + ask.GlobFilter, ask.GlobFilter != ""},
	} {
		if option.said {
			args = append(args, option.arg)
		}
	}
	cmd := exec.Command(rg, append(args, "--regexp="+ask.Pattern, "./")...)
	cmd.Dir = dir
	out, err := cmd.Output()
	if err != nil && cmd.ProcessState.ExitCode() != 1 {
		t.Fatal(args, err)
	}
	binary, open := map[string]bool{}, map[string]int{} // open: the number of a last line that has no end
	var s strings.Builder
	var last string
	apart := false
	for len(out) > 0 {
		if rest, is := bytes.CutPrefix(out, []byte("--\r\n")); is {
			out, apart = rest, true
			continue
		}
		name, rest, _ := bytes.Cut(out, []byte{0})
		line, after, _ := bytes.Cut(rest, []byte("\n"))
		out = after
		at := strings.TrimPrefix(string(name), "./")
		if _, known := binary[at]; !known {
			data, err := os.ReadFile(filepath.Join(dir, at))
			if err != nil {
				t.Fatal(err)
			}
			binary[at] = bytes.IndexByte(data, 0) >= 0
			if !bytes.HasSuffix(data, []byte("\n")) {
				open[at] = bytes.Count(data, []byte("\n")) + 1
			}
		}
		if binary[at] {
			continue
		}
		digits := bytes.IndexFunc(line, func(r rune) bool { return r < '0' || r > '9' })
		if ask.Before+ask.After > 0 && s.Len() > 0 && (apart || at != last) {
			s.WriteString("--\n")
		}
		apart, last = false, at
		number, sep, text := string(line[:digits]), line[digits:digits+1], bytes.TrimSuffix(line[digits+1:], []byte("\r"))
		if number == fmt.Sprint(open[at]) { // ripgrep has given it an end
			text = bytes.TrimSuffix(text, []byte("\r"))
		}
		fmt.Fprintf(&s, "%s%s%s%s%s\n", file.Quote(at), sep, number, sep, shortened(text))
	}
	return s.String()
}

// whole is an output in full.
func whole(b *box, o *file.Output) string {
	if o != nil && o.Blob != nil {
		return string(b.blobs[o.Blob.BlobRef])
	}
	return strings.TrimPrefix(out(o), "text:")
}

func firstDifference(a, b string) string {
	x, y := strings.Split(a, "\n"), strings.Split(b, "\n")
	for i := range min(len(x), len(y)) {
		if x[i] != y[i] {
			return fmt.Sprintf("line %d: %q\n        %q", i+1, x[i], y[i])
		}
	}
	return fmt.Sprintf("%d and %d lines", len(x), len(y))
}

// T128: lines without an end, and more context than is held. Of a long line the beginning counts; what comes behind it is found, with its number; nothing is
// taken for a binary file for its length. Across lines a file that is too large is told of.
func TestLongLines(t *testing.T) {
	b := newFastBox(t, file.Caps{})
	const window = search.MaxWindow
	long := strings.Repeat("x", window+1<<20+12345)
	b.file("long", "one\nneedle "+long+" late\nneedle behind\nlast\n")
	b.file("open", "one\n"+long+"needle")
	b.file("two", long+"\n"+long+"\nneedle behind\n")
	b.file("nul", "needle "+long+"\x00\n")
	shown := func(prefix string) string {
		return prefix + strings.Repeat("x", search.MaxLine-len(prefix)) + fmt.Sprintf("[… more than %d bytes]", window-search.MaxLine)
	}
	for _, row := range []struct {
		ask  file.Grep
		want string
	}{
		{file.Grep{Pattern: "needle"}, "long:2:" + shown("needle ") + "\nlong:3:needle behind\ntwo:3:needle behind\n"},
		{file.Grep{Pattern: "behind", Before: 1, After: 1}, "long-2-" + shown("needle ") + "\nlong:3:needle behind\nlong-4-last\n--\ntwo-2-" + shown("") + "\ntwo:3:needle behind\n"},
		{file.Grep{Pattern: "^one", After: 2, Target: at("long")}, "long:1:one\nlong-2-" + shown("needle ") + "\nlong-3-needle behind\n"},
		{file.Grep{Pattern: "late|last", Target: at("long")}, "long:4:last\n"},
		{file.Grep{Pattern: "^one|^needle", After: 1, Target: at("long")}, "long:1:one\nlong:2:" + shown("needle ") + "\nlong:3:needle behind\nlong-4-last\n"},
	} {
		g := b.grepFor(row.ask)
		if got := whole(b, g.Matches); got != row.want || g.Status != file.OK || g.Truncated {
			t.Errorf("%+v: %s truncated %v\n%.200q, want\n%.200q", row.ask, g.Code, g.Truncated, got, row.want)
		}
	}
	// 900 lines of context of 30 KiB each are more than is held; the line is found all the same.
	b.file("wide", strings.Repeat(strings.Repeat("y", 30<<10)+"\n", 1000)+"sought\n")
	g := b.grepFor(file.Grep{Pattern: "sought", Before: 900, Target: at("wide")})
	if got := whole(b, g.Matches); !strings.HasSuffix(got, "\nwide:1001:sought\n") || *g.MatchCount != 1 || strings.Count(got, "\n") < 200 {
		t.Errorf("%d lines, %d matches", strings.Count(got, "\n"), *g.MatchCount)
	}
	for _, target := range []string{"", "wide"} {
		g := b.grepFor(file.Grep{Pattern: "sought", Multiline: true, Target: at(target)})
		if g.Status != file.OK || !g.Truncated || g.Code != file.CodeTooLarge || *g.MatchCount != 0 {
			t.Errorf("across lines, %q: %+v", target, g)
		}
	}
	b.file("exact", strings.Repeat("z", window-2)+"!\n")
	if g := b.grepFor(file.Grep{Pattern: "!\n", Multiline: true, Target: at("exact")}); *g.MatchCount != 1 || g.Truncated {
		t.Errorf("a file that just fits: %+v", g)
	}
}

// T146: bombs too. The semantics, against the simplest program that has them.
func TestGrepFindsWhatItShould(t *testing.T) {
	b := newBox(t, file.Caps{})
	b.file("a.go", "one\ntwo\nthree\nfour\nfive\n")
	b.file("a/b.go", "two\n")
	b.file("c", "x\r\ntwo\r\n")
	b.file("bin", "two\n\x00")
	b.file(".hidden/d", "two")
	b.file(".gitignore", "a/\n")
	for _, row := range []struct {
		ask  file.Grep
		want string
	}{
		{file.Grep{Pattern: "two"}, ".hidden/d:1:two\na/b.go:1:two\na.go:2:two\nc:2:two\n"},
		{file.Grep{Pattern: "two", RespectIgnore: true}, ".hidden/d:1:two\na.go:2:two\nc:2:two\n"},
		{file.Grep{Pattern: "two$", Target: at("c")}, "c:2:two\n"},
		{file.Grep{Pattern: "two", Target: at("bin")}, ""},
		{file.Grep{Pattern: "t", Target: at("a.go"), Before: 1, After: 1}, "a.go-1-one\na.go:2:two\na.go:3:three\na.go-4-four\n"},
		{file.Grep{Pattern: "one|five", Target: at("a.go"), After: 1}, "a.go:1:one\na.go-2-two\n--\na.go:5:five\n"},
		{file.Grep{Pattern: "two.three", Target: at("a.go"), Multiline: true}, "a.go:2:two\na.go:3:three\n"},
		{file.Grep{Pattern: "o\nt|^four$", Target: at("a.go"), Multiline: true, After: 1}, "a.go:2:two\na.go:3:three\na.go:4:four\na.go-5-five\n"},
		{file.Grep{Pattern: "x*", Target: at("a/b.go"), Multiline: true}, "a/b.go:1:two\n"},
		{file.Grep{Pattern: "two", GlobFilter: "*.go"}, "a/b.go:1:two\na.go:2:two\n"},
		{file.Grep{Pattern: "two", GlobFilter: "a/*.go"}, "a/b.go:1:two\n"},
		{file.Grep{Pattern: "two", Target: at("/work/a")}, "a/b.go:1:two\n"},
		{file.Grep{Pattern: "two", Target: at("/")}, "/work/.hidden/d:1:two\n/work/a/b.go:1:two\n/work/a.go:2:two\n/work/c:2:two\n"},
		{file.Grep{Pattern: "t", MaxResults: ptr(int64(2)), Target: at("a.go"), After: 1}, "a.go:2:two\na.go:3:three\na.go-4-four\n"},
		{file.Grep{Pattern: "t", MaxResults: ptr(int64(0))}, ""},
	} {
		g := b.grepFor(row.ask)
		if got := whole(b, g.Matches); got != row.want || g.Status != file.OK {
			t.Errorf("%+v: %s\n%q, want\n%q", row.ask, g.Code, got, row.want)
		}
	}
	want(t, "regex", b.grepFor(file.Grep{Pattern: "("}).Outcome, file.InvalidRegex, file.CodeInvalidRegex)
	want(t, "bad UTF-8", b.grepFor(file.Grep{Pattern: "\xff"}).Outcome, file.InvalidRegex, file.CodeInvalidRegex)
	want(t, "filter", b.grepFor(file.Grep{Pattern: "x", GlobFilter: "{a"}).Outcome, file.Error, file.CodeInvalidGlobFilter)
	want(t, "missing", b.grepFor(file.Grep{Pattern: "x", Target: at("nothing")}).Outcome, file.NotFound, file.CodePathNotFound)
	if g := b.grepFor(file.Grep{Pattern: "nowhere"}); g.Status != file.OK || *g.MatchCount != 0 || g.Summary != "No matches found" {
		t.Errorf("%+v", g)
	}
	// T146: bombs are linear or refused.
	b.file("aaa", strings.Repeat("a", 100_000)+"!\n")
	for _, p := range []string{"(a+)+$", "(a|a)*b", "(x{1000}){1000}", strings.Repeat("(a?)", 500) + strings.Repeat("a", 500), strings.Repeat("a", 1<<17)} {
		start := time.Now()
		g := b.grepFor(file.Grep{Pattern: p})
		if d := time.Since(start); d > 5*time.Second {
			t.Errorf("%.20s: %v %s", p, d, g.Code)
		}
	}
}

// R213–R216, T148: glob, against doublestar on the same tree, and newest first.
func TestGlobFindsTheSameAsDoublestar(t *testing.T) {
	b := newFastBox(t, file.Caps{})
	nastyTree(b, 600)
	var all []string
	filepath.WalkDir(b.at("."), func(at string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			all = append(all, strings.TrimPrefix(at, b.at(".")+"/"))
		}
		return nil
	})
	for _, p := range []string{
		"*", "**", "**/*", "*.go", "**/*.go", "**/*.{go,rs}", "{a,b}*/**", "**/a*/**/*.md", "*/*", "*/*/*", "**/f?.txt", "**/f[0-9][0-9].*", "**/[!f]*", "**/[^f]*", `**/\**`, `**/\[x\]*`,
		"**/{a,a.b,{日本,é}}*", "a*/**/f1*", "**/**/**/*", "**/", "f1**", "**f1*", "**/é*", "**/日*", "**/*\xff*", "{,**/}f1.go", "**/.hidden*/**", ".*", "", "a//b", "**/*[a-c]*", "**/{f1,f2}{3,4}.*", "**/-n*", `**/*\\*`,
	} {
		if p == "" {
			continue
		}
		var want []string
		for _, at := range all {
			if ok, err := doublestar.Match(p, at); err != nil {
				t.Fatal(p, err)
			} else if ok {
				want = append(want, at)
			}
		}
		limit := int64(1 << 30)
		g := b.globFor(file.Glob{Pattern: p, MaxResults: &limit})
		if g.Status == file.InvalidPattern && strings.Contains(p, "\xff") {
			continue // a request is UTF-8
		}
		var got []string
		for line := range strings.Lines(whole(b, g.Paths)) {
			name, _ := file.Unquote(strings.TrimSuffix(line, "\n"))
			got = append(got, name)
		}
		if int64(len(got)) != *g.Count {
			t.Errorf("%s: %d paths, count %d", p, len(got), *g.Count)
		}
		if !slices.IsSortedFunc(got, func(x, y string) int {
			var a, z unix.Stat_t
			unix.Lstat(b.at(x), &a)
			unix.Lstat(b.at(y), &z)
			if a.Mtim.Nano() != z.Mtim.Nano() {
				return int(z.Mtim.Nano() - a.Mtim.Nano())
			}
			return strings.Compare(x, y)
		}) {
			t.Errorf("%s: not newest first", p)
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%s: %d paths, doublestar has %d", p, len(got), len(want))
		}
	}
	for _, p := range []string{"{a", "a}", "[a", "[]", `a\`, "../x", "a/../b", "/etc/*", strings.Repeat("{a,b}", 30)} {
		start := time.Now()
		want(t, p, b.globFor(file.Glob{Pattern: p}).Outcome, file.InvalidPattern, file.CodeInvalidPattern)
		if d := time.Since(start); d > time.Second {
			t.Errorf("%.20q: %v", p, d)
		}
	}
	start := time.Now()
	for _, p := range []string{"**/**/**/**/x", strings.Repeat("**/*a", 50) + "b", strings.Repeat("*a", 100) + "b", strings.Repeat("{", 30) + "a" + strings.Repeat(",b}", 30)} {
		b.globFor(file.Glob{Pattern: p})
	}
	if d := time.Since(start); d > 5*time.Second {
		t.Errorf("bombs: %v", d)
	}
	if g := b.globFor(file.Glob{Pattern: "/work/*.GO", CaseInsensitive: true}); g.Status != file.OK || *g.Count == 0 {
		t.Errorf("absolute, any case: %+v", g)
	}
	if g := b.globFor(file.Glob{Pattern: "no*where"}); g.Summary != "No files matched" || *g.Count != 0 {
		t.Errorf("%+v", g)
	}
}

// Ignore files, against ripgrep's reading of them.
func TestIgnoreFiles(t *testing.T) {
	rg := rgPath(t)
	b := newFastBox(t, file.Caps{})
	for _, name := range []string{"a.log", "b.log", "keep.log", "x/a.log", "x/y/a.log", "x/keep.log", "build/a", "x/build/a", "src/build/z", "doc/a.txt", "doc/x/a.txt", "foo/bar/baz", "tmp", "x/tmp/q", "a b", "#c", "!d", "trail ", "abc/def/ghi", "abc/ghi"} {
		b.file(name, "hit\n")
	}
	b.file(".gitignore", "*.log\n!keep.log\n/build/\ndoc/*.txt\n**/baz\n# comment\n\\#c\n\\!d\na b  \nabc/**\n!abc/ghi\n")
	b.file("x/.gitignore", "!a.log\ntmp/\r\n")
	b.file("x/y/.ignore", "a.*\n")
	cmd := exec.Command(rg, "--no-config", "--hidden", "--no-require-git", "--no-ignore-global", "--no-ignore-parent", "--no-ignore-exclude", "--files", "--sort=path")
	cmd.Dir = b.at(".")
	files, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	g := b.grepFor(file.Grep{Pattern: "^", RespectIgnore: true, MaxPerFile: 1, MaxResults: ptr(int64(1000))})
	var got []string
	for line := range strings.Lines(whole(b, g.Matches)) {
		name, _, _ := strings.Cut(line, ":")
		got = append(got, name)
	}
	if strings.Join(got, "\n")+"\n" != string(files) {
		t.Errorf("%s\nripgrep:\n%s", strings.Join(got, "\n"), files)
	}
}

// The same in a tree that nobody made for the purpose: the sources of Go.
func TestRipgrepFindsTheSameInSources(t *testing.T) {
	path := rgPath(t)
	out, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Skip("the go command is not here: ", err)
	}
	b := &box{t: t, dir: strings.TrimSpace(string(out)), blobs: map[string][]byte{}}
	b.open(file.Caps{}, func(c *Config) { c.Workdir = "/src" })
	other := &box{t: t, dir: b.dir, blobs: map[string][]byte{}}
	other.open(file.Caps{}, through(t, path), func(c *Config) { c.Workdir = "/src" })
	limit := int64(100_000_000)
	asks := []file.Grep{
		{Pattern: "ErrNoProgress", Before: 2, After: 2}, {Pattern: "errbadpattern", CaseInsensitive: true}, {Pattern: `func \(\w+ \*?\w+\) Read\(`, GlobFilter: "*.go"},
		{Pattern: `[^\x00-\x7f]{3}`}, {Pattern: `\bgoto\b|\bfallthrough\b`, MaxPerFile: 2},
	}
	for _, ask := range asks {
		ask.MaxResults = &limit
		native, rg := b.grepFor(ask), other.grepFor(ask)
		if a, z := whole(b, native.Matches), whole(other, rg.Matches); a != z || *native.MatchCount != *rg.MatchCount || *native.MatchCount == 0 || rg.Backend != "ripgrep" {
			t.Errorf("%+v: native %d matches; %s %d\n%s", ask, *native.MatchCount, rg.Backend, *rg.MatchCount, firstDifference(a, z))
		}
	}
	printsTheSame(t, path, filepath.Join(b.dir, "src"), b, asks)
}
