package filetool

import (
	"context"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/internal/filetool/ripgrep"
	"github.com/stockade-dev/stockade/sandbox/file"
)

// manyFiles is a patch of n files that updates, adds, deletes and moves, with the tree before and after.
func manyFiles(n int) (patch string, before, after map[string]string) {
	var b strings.Builder
	b.WriteString("*** Begin Patch\n")
	before, after = map[string]string{"untouched": "same\n"}, map[string]string{"untouched": "same\n"}
	for i := range n {
		name := fmt.Sprintf("d%d/f%d", i%3, i)
		switch i % 5 {
		default:
			before[name], after[name] = "old\n", "new\n"
			fmt.Fprintf(&b, "*** Update File: %s\n@@\n-old\n+new\n", name)
		case 1:
			after["x/y/"+name] = "fresh\n"
			fmt.Fprintf(&b, "*** Add File: x/y/%s\n+fresh\n", name)
		case 2:
			before[name] = "gone\n"
			fmt.Fprintf(&b, "*** Delete File: %s\n", name)
		case 3:
			before[name], after["z/"+name] = "a\nb\n", "a\nc\n"
			fmt.Fprintf(&b, "*** Update File: %s\n*** Move to: z/%s\n@@\n-b\n+c\n", name, name)
		}
	}
	b.WriteString("*** End Patch\n")
	return b.String(), before, after
}

func (b *box) fill(m map[string]string) {
	for name, content := range m {
		b.file(name, content)
	}
}

// R203, R204, T132, T134: a failure at each step, with each reason: the original is intact, and nothing of ours is
// left. After the last rename a failure cannot be undone, and is not one: the change has happened.
func TestFailuresAtEachStep(t *testing.T) {
	patch, before, after := manyFiles(7)
	changes := map[string]func(b *box) file.Outcome{
		"write": func(b *box) file.Outcome {
			return b.writeFile(file.Write{Target: at("d0/f0"), Content: text("new\n")}).Outcome
		},
		"create": func(b *box) file.Outcome {
			return b.writeFile(file.Write{Target: at("p/q/r"), Content: text("new\n"), CreateParents: true}).Outcome
		},
		"expected": func(b *box) file.Outcome {
			return b.writeFile(file.Write{Target: at("d0/f0"), Content: text("new\n"), ExpectedSHA256: hash("old\n")}).Outcome
		},
		"edit": func(b *box) file.Outcome {
			return b.editFile(file.Edit{Target: at("d0/f0"), OldString: "old", NewString: "new"}).Outcome
		},
		"patch": func(b *box) file.Outcome { return b.applyPatch(patch).Outcome },
	}
	done := map[string]map[string]string{"patch": after}
	for name := range changes {
		if name != "patch" {
			m := maps.Clone(before)
			m["d0/f0"] = "new\n"
			if name == "create" {
				m["d0/f0"], m["p/q/r"] = "old\n", "new\n"
			}
			done[name] = m
		}
	}
	steps := 0
	for name, change := range changes {
		for _, errno := range []unix.Errno{unix.ENOSPC, unix.EDQUOT, unix.EIO} {
			for n := 1; ; n++ {
				count, failed := 0, ""
				b := newFastBox(t, file.Caps{}, func(c *Config) {
					c.hook = func(step string) error {
						if count++; count == n {
							failed = step
							return errno
						}
						return nil
					}
				})
				b.fill(before)
				whole := b.state()
				o := change(b)
				if failed == "" {
					break
				}
				steps++
				switch got := b.state(); {
				case o.Status == file.OK || strings.Contains(o.Message, "could not be synced"):
					if d := difference(names(got), done[name]); d != "" {
						t.Errorf("%s, %v at %d (%s): it says %s, but\n%s", name, errno, n, failed, o.Status, d)
					}
				default:
					if d := difference(got, whole); d != "" {
						t.Errorf("%s, %v at %d (%s): not as before\n%s", name, errno, n, failed, d)
					}
					codes := []file.Code{file.CodeNoSpace, file.CodeNotKept}
					if errno == unix.EIO {
						codes = []file.Code{file.CodeIOError, file.CodeWriteFailed, file.CodeNotKept}
					}
					if o.Status != file.Error || !slices.Contains(codes, o.Code) {
						t.Errorf("%s, %v at %s: %s %s", name, errno, failed, o.Status, o.Code)
					}
				}
				// What could not be removed is found by the next change.
				b.config.hook = nil
				b.applyPatch("*** Begin Patch\n*** Update File: untouched\n@@\n-same\n+other\n*** Add File: more\n+x\n*** End Patch\n")
				for at := range b.state() {
					if strings.Contains(at, ".stockade-journal") {
						t.Errorf("%s, %v at %s: a journal is left", name, errno, failed)
					}
				}
			}
		}
	}
	t.Logf("%d failures", steps)
}

// R204: a change that fails in the middle, and of which a step back fails too (a directory that has become read-only, a disk that reads only).
// It is said, and whoever uses a tool next finds all of it as it was.
func TestFailuresOfSteppingBack(t *testing.T) {
	patch, before, _ := manyFiles(7)
	stuck := 0
	for failing := 1; ; failing++ { // which change fails
		for n := 1; ; n++ { // which step back
			changes, backs, failed := 0, 0, false
			b := newFastBox(t, file.Caps{}, func(c *Config) {
				c.hook = func(step string) error {
					switch step {
					case "rename", "take":
						if changes++; changes == failing {
							failed = true
							return unix.EIO
						}
					case "back":
						if backs++; backs == n {
							return unix.EACCES
						}
					}
					return nil
				}
			})
			b.fill(before)
			whole := b.state()
			o := b.applyPatch(patch).Outcome
			if !failed {
				if failing < 3 || stuck == 0 {
					t.Fatalf("%d changes, %d steps back", failing, stuck)
				}
				return
			}
			if backs < n {
				break
			}
			stuck++
			if o.Status != file.Error || !strings.Contains(o.Message, "could not be undone") {
				t.Errorf("change %d, step back %d: %+v", failing, n, o)
			}
			if difference(b.state(), whole) == "" {
				t.Errorf("change %d, step back %d: nothing is left to undo", failing, n)
			}
			b.config.hook = nil
			b.readFile(file.Read{Target: at("untouched")})
			b.globFor(file.Glob{Target: at("/"), Pattern: "**"})
			if d := difference(b.state(), whole); d != "" {
				t.Errorf("change %d, step back %d: not as before\n%s", failing, n, d)
			}
		}
	}
}

// names are the files that are not ours: old contents whose removal failed are left to the next use.
func names(m map[string]string) map[string]string {
	out := files(m)
	maps.DeleteFunc(out, func(k, _ string) bool { return strings.HasPrefix(filepath.Base(k), ".stockade-") })
	return out
}

// TestMain lets a test run itself as the process that is killed.
func TestMain(m *testing.M) {
	if dir := os.Getenv("FILETOOL_VICTIM"); dir != "" {
		victim(dir)
		return
	}
	if dir := os.Getenv("FILETOOL_DIR"); dir != "" {
		breakdown(dir)
		return
	}
	if os.Getenv("FILETOOL_STRANGER") != "" {
		stranger()
		return
	}
	if len(os.Args) == 2 && os.Args[1] == "search" {
		os.Exit(ripgrep.Serve())
	}
	status := m.Run()
	if missing := unreached(); status == 0 && len(missing) > 0 {
		fmt.Println("FAIL: no test has seen\n\t" + strings.Join(missing, "\n\t"))
		status = 1
	}
	os.Exit(status)
}

func victim(dir string) {
	n, _ := strconv.Atoi(os.Getenv("FILETOOL_STEP"))
	root, err := os.Open(dir)
	if err != nil {
		os.Exit(2)
	}
	count := 0
	tools, err := Open(Config{Root: root, Workdir: "/work", hook: func(string) error {
		if count++; count == n {
			syscall.Kill(os.Getpid(), syscall.SIGKILL)
			time.Sleep(time.Hour)
		}
		return nil
	}})
	if err != nil {
		os.Exit(2)
	}
	patch, _, _ := manyFiles(50)
	r := tools.Do(context.Background(), &file.Request{Op: file.OpPatch, Patch: &file.Patch{Patch: file.PatchText{InlineText: &file.InlineText{Text: patch}}}})
	if r.Patch.Status != file.OK {
		fmt.Println(r.Patch.Outcome)
		os.Exit(3)
	}
	os.Exit(0)
}

// R204, T132, T141: kill -9 at each step of a patch of 50 files. After the next use of the tools, whichever it is, the tree is the old one
// or the new one, whole, and nothing of ours is in it.
func TestKillAtEachStep(t *testing.T) {
	_, before, after := manyFiles(50)
	stride := 7 // every step in the long form
	if os.Getenv("STOCKADE_SOAK") != "" {
		stride = 1
	}
	kills, old, fresh := 0, 0, 0
	for n := 1; ; n += stride {
		b := newFastBox(t, file.Caps{})
		b.fill(before)
		cmd := exec.Command("/proc/self/exe")
		cmd.Env = append(os.Environ(), "FILETOOL_VICTIM="+b.dir, "FILETOOL_STEP="+strconv.Itoa(n))
		out, err := cmd.CombinedOutput()
		if err == nil {
			break
		}
		if cmd.ProcessState.ExitCode() != -1 {
			t.Fatalf("step %d: %v %s", n, err, out)
		}
		kills++
		switch n / stride % 4 { // next use
		case 3:
			b.globFor(file.Glob{Target: at("/"), Pattern: "**"})
		case 0:
			b.readFile(file.Read{Target: at("untouched")})
		case 1:
			b.writeFile(file.Write{Target: at("untouched"), Content: text("same\n")})
		case 2:
			b.Close()
			b.open(file.Caps{})
		}
		got := files(b.state())
		dNew, dOld := difference(got, after), difference(got, before)
		switch {
		case dOld == "":
			old++
		case dNew == "":
			fresh++
		default:
			t.Fatalf("killed at step %d: neither old\n%s\nnor new\n%s", n, dOld, dNew)
		}
	}
	t.Logf("%d kills: %d times the old tree, %d times the new one", kills, old, fresh)
	if old == 0 || fresh == 0 {
		t.Error("the kills have not been on both sides of the commit")
	}
}

// A kill in the middle of a single write leaves at most one name of ours, which the next write of the file takes.
func TestKilledWriteLeavesNothingForLong(t *testing.T) {
	b := newBox(t, file.Caps{}, func(c *Config) {
		c.hook = func(step string) error {
			if step == "rename" {
				panic("killed")
			}
			return nil
		}
	})
	b.file("f", "old")
	func() {
		defer func() { recover() }()
		b.writeFile(file.Write{Target: at("f"), Content: text("new")})
	}()
	if b.content("f") != "old" {
		t.Errorf("f is %q", b.content("f"))
	}
	b.config.hook = nil
	want(t, "write", b.writeFile(file.Write{Target: at("f"), Content: text("newer")}).Outcome, file.OK, "")
	if m := b.state(); len(m) != 1 || m["f"] != "newer" {
		t.Errorf("%v", m)
	}
}

// A journal that somebody has put there does nothing that its author could not do: it stays below its directory, moves
// only names of ours, and obeys the rules of whoever finds it.
func TestForgedJournals(t *testing.T) {
	b := newBox(t, file.Caps{ProtectedPaths: []string{"/work/guarded"}})
	b.file("guarded", "safe")
	b.file("plain", "safe")
	b.file("/outside", "safe")
	b.link("/", "root")
	patch := func(rel, tmp string) string {
		st, _ := os.Stat(b.at("evil"))
		ino := st.Sys().(*syscall.Stat_t).Ino
		return fmt.Sprintf("put 0 %q %q -\nlisted\n|staged 0 %d\ncommit\n", rel, tmp, ino)
	}
	for _, rel := range []string{"../outside", "root/outside", "guarded", "plain", "/outside", ""} {
		for _, tmp := range []string{"evil", ".stockade-evil", "../x", ".stockade-journal"} {
			b.file("evil", "evil")
			b.file(".stockade-evil", "evil")
			var j strings.Builder
			for note := range strings.SplitSeq(patch(rel, tmp), "|") {
				fmt.Fprintf(&j, "%ssum %08x\n", note, crc32.ChecksumIEEE([]byte(note)))
			}
			if err := os.WriteFile(b.at(".stockade-journal"), []byte(j.String()), 0o600); err != nil {
				t.Fatal(err)
			}
			b.readFile(file.Read{Target: at("plain")})
			for _, name := range []string{"guarded", "plain", "/outside"} {
				if b.content(name) != "safe" {
					t.Errorf("%s by %q %q: %q", name, rel, tmp, b.content(name))
				}
			}
			if b.content(".stockade-journal") != "-" {
				t.Error("the journal is still there")
			}
		}
	}
}

// T136: two editors with one precondition: exactly one of them wins, through one Tools and through two.
func TestTwoEditors(t *testing.T) {
	for round := range 30 {
		b := newBox(t, file.Caps{})
		b.file("f", "0\n")
		other := *b
		other.open(file.Caps{})
		var wg sync.WaitGroup
		results := make([]file.Outcome, 4)
		for i := range results {
			tools := b.Tools
			if i%2 == 1 {
				tools = other.Tools
			}
			wg.Go(func() {
				r := tools.Do(context.Background(), &file.Request{Op: file.OpWrite, Write: &file.Write{Target: at("f"), Content: text(fmt.Sprint(i+1, "\n")), ExpectedSHA256: hash("0\n")}})
				results[i] = r.Write.Outcome
			})
		}
		wg.Wait()
		wins := 0
		for i, o := range results {
			if o.Status == file.OK {
				wins++
				if b.content("f") != fmt.Sprint(i+1, "\n") {
					t.Errorf("round %d: %d has won, the file is %q", round, i+1, b.content("f"))
				}
			} else if o.Status != file.Conflict {
				t.Errorf("round %d: %+v", round, o)
			}
		}
		if wins != 1 {
			t.Errorf("round %d: %d have won: %+v", round, wins, results)
		}
		if m := b.state(); len(m) != 1 {
			t.Errorf("round %d: %v", round, m)
		}
	}
}

// Two editors of one file, the second of whom begins when the first has written his content and goes on when the first is through:
// each gives the file what he has written himself, and takes nothing of the other's for abandoned (R203).
func TestStagedIsNotAbandoned(t *testing.T) {
	for name, expected := range map[string]string{"judged": hash("0\n"), "blind": ""} {
		t.Run(name, func(t *testing.T) {
			b := newBox(t, file.Caps{})
			b.file("f", "0\n")
			other := *b
			other.open(file.Caps{})
			write := func(tools *Tools, content string) file.Outcome {
				r := tools.Do(context.Background(), &file.Request{Op: file.OpWrite, Write: &file.Write{Target: at("f"), Content: text(content), ExpectedSHA256: expected}})
				return r.Write.Outcome
			}
			begun, goOn, late := make(chan struct{}), make(chan struct{}), make(chan file.Outcome, 1)
			other.config.hook = func(step string) error {
				if step == "write" {
					close(begun)
					<-goOn
				}
				return nil
			}
			b.config.hook = func(step string) error {
				if step == "rename" {
					go func() { late <- write(other.Tools, "2\n") }()
					<-begun
				}
				return nil
			}
			if first := write(b.Tools, "1\n"); first.Status != file.OK || b.content("f") != "1\n" {
				t.Errorf("%+v: the file is %q", first, b.content("f"))
			}
			close(goOn)
			second, want := <-late, "1\n"
			if expected == "" {
				want = "2\n"
			}
			if (second.Status == file.OK) != (expected == "") || b.content("f") != want {
				t.Errorf("%+v: the file is %q", second, b.content("f"))
			}
			if m := b.state(); len(m) != 1 {
				t.Error(m)
			}
		})
	}
}

// Who does not say what he replaces is not in the way of others who do not: all succeed, and nothing of ours stays.
func TestManyWriters(t *testing.T) {
	b := newBox(t, file.Caps{})
	b.file("f", "0\n")
	var wg sync.WaitGroup
	for i := range 4 {
		other := *b
		other.open(file.Caps{})
		wg.Go(func() {
			for range 25 {
				r := other.Tools.Do(context.Background(), &file.Request{Op: file.OpWrite, Write: &file.Write{Target: at("f"), Content: text(fmt.Sprint(i, "\n"))}})
				if r.Write.Status != file.OK {
					t.Errorf("%+v", r.Write.Outcome)
				}
			}
		})
	}
	wg.Wait()
	if m := b.state(); len(m) != 1 || len(b.content("f")) != 2 {
		t.Error(m)
	}
}

// What somebody else does between judgement and rename is not lost, and the whole change is a conflict.
func TestChangedMeanwhile(t *testing.T) {
	others := map[string]func(b *box){
		"written": func(b *box) { os.WriteFile(b.at("f"), []byte("theirs\n"), 0o644) },
		"same size": func(b *box) {
			st, _ := os.Stat(b.at("f"))
			os.WriteFile(b.at("f"), []byte("OLD\n"), 0o644)
			os.Chtimes(b.at("f"), st.ModTime(), st.ModTime())
		},
		"replaced": func(b *box) { b.file("x", "theirs\n"); os.Rename(b.at("x"), b.at("f")) },
		"link":     func(b *box) { b.link("/canary", "x"); os.Rename(b.at("x"), b.at("f")) },
		"removed":  func(b *box) { os.Remove(b.at("f")) },
	}
	changes := map[string]func(b *box) file.Outcome{
		"rename edit": func(b *box) file.Outcome {
			return b.editFile(file.Edit{Target: at("f"), OldString: "old", NewString: "new"}).Outcome
		},
		"rename write": func(b *box) file.Outcome {
			return b.writeFile(file.Write{Target: at("f"), Content: text("new"), ExpectedSHA256: hash("old\n")}).Outcome
		},
		"rename patch": func(b *box) file.Outcome {
			return b.applyPatch("*** Begin Patch\n*** Update File: a\n@@\n-1\n+2\n*** Delete File: b\n*** Update File: f\n@@\n-old\n+new\n*** Add File: c\n+x\n*** End Patch\n").Outcome
		},
		"take patch": func(b *box) file.Outcome {
			return b.applyPatch("*** Begin Patch\n*** Update File: a\n@@\n-1\n+2\n*** Add File: c\n+x\n*** Delete File: f\n*** End Patch\n").Outcome
		},
	}
	for how, other := range others {
		for name, change := range changes {
			step, _, _ := strings.Cut(name, " ")
			var b *box
			done := false
			b = newFastBox(t, file.Caps{}, func(c *Config) {
				c.hook = func(s string) error {
					if s == step && !done {
						done = true
						other(b)
					}
					return nil
				}
			})
			b.fill(map[string]string{"a": "1\n", "b": "1\n", "f": "old\n", "/canary": "canary"})
			o := change(b)
			if o.Code != file.CodeChanged {
				t.Errorf("%s, %s: %s %s (%s)", how, name, o.Status, o.Code, o.Message)
			}
			done = false
			expect := newFastBox(t, file.Caps{})
			expect.fill(map[string]string{"a": "1\n", "b": "1\n", "f": "old\n", "/canary": "canary"})
			other(expect)
			if d := difference(b.state(), expect.state()); d != "" {
				t.Errorf("%s, %s:\n%s", how, name, d)
			}
		}
	}
}

// A directory that becomes a link just before a removal goes into it.
func TestRemovalGoesIntoNoLink(t *testing.T) {
	b := newFastBox(t, file.Caps{})
	b.file("d/f", "1")
	b.file("/canary/f", "canary")
	b.link("../canary", "x")
	b.config.hook = func(step string) error {
		if step == "enter" {
			os.Rename(b.at("d"), b.at("moved"))
			os.Rename(b.at("x"), b.at("d"))
		}
		return nil
	}
	o := b.do(file.Request{Op: file.OpRemove, Remove: &file.Remove{Target: at("d"), Recursive: true}}).Change
	if o.Status == file.OK || b.content("/canary/f") != "canary" || b.content("moved/f") != "1" {
		t.Errorf("%+v, canary %q", o, b.content("/canary/f"))
	}
}

// T137: what others plant in a sticky directory that everybody may write to, on a machine whose fs.protected_* are 0 (those of this one are logged): no
// tool follows their links out, waits for their FIFO, writes into their file, or takes over what a hard link shares.
func TestStickyDirectory(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("takes root, to be two users")
	}
	for _, name := range []string{"symlinks", "fifos", "hardlinks", "regular"} {
		is, err := os.ReadFile("/proc/sys/fs/protected_" + name)
		t.Logf("protected_%s is %s (%v)", name, strings.TrimSpace(string(is)), err)
	}
	b := newBox(t, file.Caps{Roots: []string{"/work"}, FollowSymlinks: file.FollowWithin})
	const stranger = 54321
	b.file("/canary", "canary\n")
	dir := b.at(".")
	if err := os.Chmod(dir, 0o1777); err != nil {
		t.Fatal(err)
	}
	plant := map[string]func(at string) error{
		"link":     func(at string) error { return os.Symlink("../canary", at) },
		"dangling": func(at string) error { return os.Symlink("../made", at) },
		"fifo":     func(at string) error { return unix.Mkfifo(at, 0o666) },
		"file":     func(at string) error { return os.WriteFile(at, []byte("theirs\n"), 0o666) },
		"hardlink": func(at string) error { return os.Link(b.at("/canary"), at) },
	}
	for kind, plant := range plant {
		for _, tool := range []string{"read", "write", "create", "edit", "patch", "grep", "stat"} {
			name := kind + "-" + tool
			if err := plant(b.at(name)); err != nil {
				t.Fatal(err)
			}
			if kind != "hardlink" { // whose owner is the canary's
				if err := os.Lchown(b.at(name), stranger, stranger); err != nil {
					t.Fatal(err)
				}
			}
			theirs, _ := os.OpenFile(b.at(name), os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0) // the stranger keeps his file open
			began := time.Now()
			var res *file.Result
			switch tool {
			case "read":
				res = b.do(file.Request{Op: file.OpRead, Read: &file.Read{Target: at(name)}})
			case "write":
				res = b.do(file.Request{Op: file.OpWrite, Write: &file.Write{Target: at(name), Content: text("secret\n")}})
			case "create":
				res = b.do(file.Request{Op: file.OpWrite, Write: &file.Write{Target: at(name), Content: text("secret\n"), Mode: "create_new"}})
				if kind != "dangling" && res.Outcome().Status == file.OK {
					t.Errorf("%s: what was there was created", name)
				}
			case "edit":
				res = b.do(file.Request{Op: file.OpEdit, Edit: &file.Edit{Target: at(name), OldString: "theirs", NewString: "secret"}})
			case "patch":
				res = b.do(file.Request{Op: file.OpPatch, Patch: &file.Patch{Patch: file.PatchText{InlineText: &file.InlineText{
					Text: "*** Begin Patch\n*** Update File: " + name + "\n@@\n-canary\n+secret\n*** End Patch\n"}}}})
			case "grep":
				res = b.do(file.Request{Op: file.OpGrep, Grep: &file.Grep{Target: at(name), Pattern: "."}})
			case "stat":
				res = b.do(file.Request{Op: file.OpStat, Stat: &file.Stat{Target: at(name)}})
			}
			if took := time.Since(began); took > 20*time.Second {
				t.Errorf("%s took %v", name, took)
			}
			if kind != "hardlink" && strings.Contains(fmt.Sprint(shownOf(res)), "canary") {
				t.Errorf("%s shows the canary: %+v", name, res.Outcome())
			}
			if kind == "link" || kind == "dangling" {
				if status := res.Outcome().Status; status != file.Forbidden {
					t.Errorf("%s: %s, want it forbidden: it leads out of the root", name, status)
				}
			}
			if theirs != nil {
				got, _ := io.ReadAll(theirs)
				if strings.Contains(string(got), "secret") {
					t.Errorf("%s: the stranger reads %q", name, got)
				}
				theirs.Close()
			}
			if got, err := os.ReadFile(b.at("/canary")); err != nil || string(got) != "canary\n" {
				t.Fatalf("%s: the canary is %q (%v)", name, got, err)
			}
			if _, err := os.Lstat(b.at("/made")); err == nil {
				t.Fatalf("%s made something outside", name)
			}
		}
	}
}
