package filetool

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/sandbox/file"
)

// patchCase is one file of testdata/patches: a first line "FORMAT STATUS [CODE]", the patch, the files before, and, of a patch
// that applies, the files after. \r, \t, \0, \x.. and \\ stand for what an editor would lose.
type patchCase struct {
	format        string
	status        file.Status
	code          file.Code
	patch         string
	before, after map[string]string
}

func patchCases(t testing.TB) map[string]patchCase {
	names, err := filepath.Glob("testdata/patches/*.txtar")
	if err != nil || len(names) < 60 {
		t.Fatalf("%d cases: %v", len(names), err)
	}
	cases := map[string]patchCase{}
	for _, name := range names {
		a, err := txtar.ParseFile(name)
		if err != nil {
			t.Fatal(err)
		}
		c := patchCase{before: map[string]string{}, after: map[string]string{}}
		head, _, _ := strings.Cut(string(a.Comment), "\n")
		words := append(strings.Fields(head), "")
		c.format, c.status, c.code = words[0], file.Status(words[1]), file.Code(words[2])
		for _, f := range a.Files {
			at, open := strings.CutSuffix(f.Name, " (no newline)")
			data := unescape(t, string(f.Data))
			if open {
				data = strings.TrimSuffix(data, "\n")
			}
			kind, rel, _ := strings.Cut(unescape(t, at), "/")
			switch kind {
			case "patch":
				c.patch = data
			case "before":
				c.before[rel] = data
			case "after":
				c.after[rel] = data
			}
		}
		cases[strings.TrimSuffix(filepath.Base(name), ".txtar")] = c
	}
	return cases
}

func unescape(t testing.TB, s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' {
			b.WriteByte(s[i])
			continue
		}
		i++
		switch s[i] {
		case 'r':
			b.WriteByte('\r')
		case 't':
			b.WriteByte('\t')
		case '0':
			b.WriteByte(0)
		case '\\':
			b.WriteByte('\\')
		case 'x':
			c, err := strconv.ParseUint(s[i+1:i+3], 16, 8)
			if err != nil {
				t.Fatal(err)
			}
			b.WriteByte(byte(c))
			i += 2
		default:
			t.Fatalf("escape \\%c", s[i])
		}
	}
	return b.String()
}

// state is what a tree holds: path, relative to the working directory, to mode and content.
func (b *box) state() map[string]string {
	b.t.Helper()
	m := map[string]string{}
	err := filepath.WalkDir(b.dir, func(at string, d fs.DirEntry, err error) error {
		if err != nil || at == b.dir || at == filepath.Join(b.dir, "work") {
			return err
		}
		rel, ok := strings.CutPrefix(at, filepath.Join(b.dir, "work")+"/")
		if !ok {
			rel = strings.TrimPrefix(at, b.dir)
		}
		if d.Type().IsRegular() {
			data, err := os.ReadFile(at)
			m[rel] = string(data)
			return err
		}
		m[rel] = d.Type().String()
		return nil
	})
	if err != nil {
		b.t.Fatal(err)
	}
	return m
}

// stamps are the times and numbers of all that a tree holds.
func (b *box) stamps() map[string]string {
	m := map[string]string{}
	for name := range b.state() {
		var st unix.Stat_t
		if err := unix.Lstat(b.at(name), &st); err != nil {
			b.t.Fatal(err)
		}
		m[name] = fmt.Sprint(st.Ino, st.Mtim, st.Ctim)
	}
	return m
}

func difference(got, want map[string]string) string {
	var out []string
	for k, v := range got {
		if w, ok := want[k]; !ok {
			out = append(out, fmt.Sprintf("+ %q: %.200q", k, v))
		} else if w != v {
			out = append(out, fmt.Sprintf("! %q: %.400q, want %.400q", k, v, w))
		}
	}
	for k := range want {
		if _, ok := got[k]; !ok {
			out = append(out, fmt.Sprintf("- %q", k))
		}
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}

// files leaves directories out.
func files(m map[string]string) map[string]string {
	out := map[string]string{}
	for k, v := range m {
		if v != fs.ModeDir.String() {
			out[k] = v
		}
	}
	return out
}

// R200–R206, T138–T142: patches as models write them. What does not apply changes nothing; what applies is told the same way by a
// dry run, which changes nothing either (R202).
func TestPatches(t *testing.T) {
	for name, c := range patchCases(t) {
		t.Run(name, func(t *testing.T) {
			b := newBox(t, file.Caps{})
			for at, content := range c.before {
				b.file(at, content)
			}
			before, stamps := b.state(), b.stamps()
			ask := file.Patch{Patch: file.PatchText{InlineText: &file.InlineText{Text: c.patch}}, Format: c.format, DryRun: true}
			dry := b.do(file.Request{Op: file.OpPatch, Patch: &ask}).Patch
			if d := difference(b.state(), before); d != "" {
				t.Fatalf("the dry run has changed\n%s", d)
			}
			if d := difference(b.stamps(), stamps); d != "" {
				t.Fatalf("the dry run has touched\n%s", d)
			}
			ask.DryRun = false
			p := b.do(file.Request{Op: file.OpPatch, Patch: &ask}).Patch
			want(t, "apply", p.Outcome, c.status, c.code)
			want(t, "dry run", dry.Outcome, c.status, c.code)
			if c.status != file.OK {
				if d := difference(b.state(), before); d != "" {
					t.Errorf("what was refused has changed\n%s", d)
				}
				if c.code != file.CodePatchEmpty && (len(p.Errors) == 0 || p.Errors[0].Code != p.Code) {
					t.Errorf("errors: %+v", p.Errors)
				}
				if p.FilesChanged != nil || p.Summary != "" {
					t.Errorf("a refused patch says %+v", p)
				}
				return
			}
			if d := difference(files(b.state()), c.after); d != "" {
				t.Errorf("after:\n%s", d)
			}
			if dry.Summary != strings.Replace(strings.Replace(p.Summary, "Applied patch:", "Patch dry-run:", 1), "changed", "would change", 1) {
				t.Errorf("dry run says %q, the patch %q", dry.Summary, p.Summary)
			}
			if !slices.Equal(dry.ChangedPaths, p.ChangedPaths) || int64(len(p.ChangedPaths)) != *p.FilesChanged {
				t.Errorf("changed paths %q, dry run %q", p.ChangedPaths, dry.ChangedPaths)
			}
		})
	}
}

// Git's diffs say which files are programs. Whoever may read a file of the owner, the group or all others may then run it, and nobody else.
func TestProgramsInPatches(t *testing.T) {
	b := newBox(t, file.Caps{})
	b.file("plain", "echo\n")
	b.file("program", "echo\n")
	b.file("private", "echo\n")
	for name, mode := range map[string]os.FileMode{"plain": 0o644, "program": 0o755, "private": 0o640} {
		if err := os.Chmod(b.at(name), mode); err != nil {
			t.Fatal(err)
		}
	}
	const text = "diff --git a/made b/made\nnew file mode 100755\nindex 0000000..1\n--- /dev/null\n+++ b/made\n@@ -0,0 +1 @@\n+echo\n" +
		"diff --git a/plain b/plain\nold mode 100644\nnew mode 100755\n" +
		"diff --git a/private b/private\nold mode 100644\nnew mode 100755\nindex 1..2\n--- a/private\n+++ b/private\n@@ -1 +1 @@\n-echo\n+exit\n" +
		"diff --git a/program b/program\nold mode 100755\nnew mode 100644\n"
	for _, dry := range []bool{true, false} {
		before := b.stamps()
		p := b.do(file.Request{Op: file.OpPatch, Patch: &file.Patch{Patch: file.PatchText{InlineText: &file.InlineText{Text: text}}, Format: "unified", DryRun: dry}}).Patch
		want(t, "patch", p.Outcome, file.OK, "")
		if *p.FilesChanged != 4 || *p.Ops != (file.PatchOps{Add: 1, Update: 3}) || dry && difference(b.stamps(), before) != "" {
			t.Errorf("dry %v: %+v", dry, p)
		}
	}
	for name, mode := range map[string]os.FileMode{"made": 0o755, "plain": 0o755, "private": 0o750, "program": 0o644} {
		if st, err := os.Stat(b.at(name)); err != nil || st.Mode() != mode {
			t.Errorf("%s: %v %v, want %v", name, st.Mode(), err, mode)
		}
	}
	if b.content("plain") != "echo\n" || b.content("private") != "exit\n" {
		t.Error("contents are not what they should be")
	}
}
