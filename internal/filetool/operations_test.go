package filetool

import (
	"os"
	"testing"

	"github.com/stockade-dev/stockade/sandbox/file"
)

// Every operation once, as a caller does them one after the other.
func TestEveryOperation(t *testing.T) {
	b := newBox(t, file.Caps{})
	w := b.writeFile(file.Write{Target: at("src/a.go"), Content: text("package a\n\nfunc A() {}\n"), CreateParents: true})
	want(t, "write", w.Outcome, file.OK, "")
	if !*w.Created || *w.WrittenBytes != 23 || w.NewMtimeNS == 0 || w.Change.After != hash(b.content("src/a.go")) {
		t.Errorf("write: %+v %+v", w, w.Change)
	}
	r := b.readFile(file.Read{Target: at("/work/src/../src/a.go")})
	want(t, "read", r.Outcome, file.OK, "")
	if out(r.Content) != "text:package a\n\nfunc A() {}\n" || r.SHA256 != w.Change.After || r.Path != "/work/src/a.go" {
		t.Errorf("read: %+v", r)
	}
	e := b.editFile(file.Edit{Target: at("src/a.go"), OldString: "A()", NewString: "B()"})
	want(t, "edit", e.Outcome, file.OK, "")
	if e.Summary != "Updated src/a.go (1 replacement)" || *e.Replacements != 1 || !*e.Applied || e.Change.Before != w.Change.After {
		t.Errorf("edit: %+v", e)
	}
	p := b.applyPatch("*** Begin Patch\n*** Update File: src/a.go\n@@ package a\n \n-func B() {}\n+func C() {}\n*** Add File: new/b.txt\n+hello\n*** End Patch\n")
	want(t, "patch", p.Outcome, file.OK, "")
	if p.Summary != "Applied patch: 2 files changed (add=1 update=1 delete=0 move=0)" || b.content("new/b.txt") != "hello\n" || b.content("src/a.go") != "package a\n\nfunc C() {}\n" {
		t.Errorf("patch: %+v", p)
	}
	g := b.grepFor(file.Grep{Pattern: "func|hello"})
	want(t, "grep", g.Outcome, file.OK, "")
	if out(g.Matches) != "text:new/b.txt:1:hello\nsrc/a.go:3:func C() {}\n" || *g.MatchCount != 2 || g.Summary != "2 matches" {
		t.Errorf("grep: %q %+v", out(g.Matches), g)
	}
	gl := b.globFor(file.Glob{Pattern: "**/*.{go,txt}"})
	want(t, "glob", gl.Outcome, file.OK, "")
	if *gl.Count != 2 {
		t.Errorf("glob: %q", out(gl.Paths))
	}
	l := b.do(file.Request{Op: file.OpList, List: &file.List{}}).List
	want(t, "list", l.Outcome, file.OK, "")
	if out(l.Entries) != "text:new/\nsrc/\n" || l.Summary != "2 entries" {
		t.Errorf("list: %q", out(l.Entries))
	}
	s := b.do(file.Request{Op: file.OpStat, Stat: &file.Stat{Target: at("src")}}).Stat
	want(t, "stat", s.Outcome, file.OK, "")
	if !*s.IsDir || !*s.Exists || s.Kind != "dir" {
		t.Errorf("stat: %+v", s)
	}
	x := b.do(file.Request{Op: file.OpExists, Stat: &file.Stat{Target: at("nothing/here")}}).Stat
	want(t, "exists", x.Outcome, file.OK, "")
	if *x.Exists {
		t.Error("exists: what does not")
	}
	c := b.do(file.Request{Op: file.OpMkdir, Mkdir: &file.Mkdir{Target: at("x/y"), CreateParents: true}}).Change
	want(t, "mkdir", c.Outcome, file.OK, "")
	c = b.do(file.Request{Op: file.OpMove, Move: &file.Move{Target: at("new"), To: "x/z"}}).Change
	want(t, "move", c.Outcome, file.OK, "")
	c = b.do(file.Request{Op: file.OpRemove, Remove: &file.Remove{Target: at("x"), Recursive: true}}).Change
	want(t, "remove", c.Outcome, file.OK, "")
	if c.Removed != 4 {
		t.Errorf("remove: %d names", c.Removed)
	}
	// Nothing of ours is left.
	entries, err := os.ReadDir(b.at("."))
	if err != nil || len(entries) != 1 {
		t.Errorf("left: %v %v", entries, err)
	}
}
