package filetool

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/sandbox/file"
)

// rounds is how many flips each tool is raced with.
func rounds() int64 {
	if n, err := strconv.ParseInt(os.Getenv("STOCKADE_ROUNDS"), 10, 64); err == nil {
		return n
	}
	return 10_000
}

// T114, T116, T139: every tool, while what it walks over changes places with links to a canary: a directory with a link to the
// canary's directory, a file with a link to the canary, and the parent of both with a link to another tree of the same names. The canary
// is neither read, listed, found, written, moved nor removed.
// Pitfall 9 of part 4: nothing is judged by one lookup and opened by another.
func TestRaces(t *testing.T) {
	type tool struct {
		name string
		do   func(b *box, i int) *file.Result
	}
	ask := func(r file.Request) func(*box, int) *file.Result {
		return func(b *box, _ int) *file.Result { return b.Do(context.Background(), &r) }
	}
	paths := []string{"p/d/f", "p/f", "p/d/new"}
	// What an rg says that has looked at another moment, or lies.
	named := func(b *box, _ int) *file.Result {
		b.named = []string{"p/d/f", "p/f", "p/l-d/f", "p/l-f", "l-p/f", "p/d/sub/f", "p/d/l-sub/f"}
		defer func() { b.named = nil }()
		return b.Do(context.Background(), &file.Request{Op: file.OpGrep, Grep: &file.Grep{Pattern: "."}})
	}
	tools := []tool{
		{"grep of what is named", named},
		{"grep", ask(file.Request{Op: file.OpGrep, Grep: &file.Grep{Pattern: "."}})},
		{"glob", ask(file.Request{Op: file.OpGlob, Glob: &file.Glob{Pattern: "**"}})},
		{"grep below", ask(file.Request{Op: file.OpGrep, Grep: &file.Grep{Target: at("p/d"), Pattern: "."}})},
		{"list", ask(file.Request{Op: file.OpList, List: &file.List{Target: at("p/d")}})},
		{"read", func(b *box, i int) *file.Result {
			return b.do(file.Request{Op: file.OpRead, Read: &file.Read{Target: at(paths[i%2])}})
		}},
		{"stat", func(b *box, i int) *file.Result {
			return b.do(file.Request{Op: file.OpStat, Stat: &file.Stat{Target: at(paths[i%2])}})
		}},
		{"write", func(b *box, i int) *file.Result {
			return b.do(file.Request{Op: file.OpWrite, Write: &file.Write{Target: at(paths[i%3]), Content: text("mine\n")}})
		}},
		{"edit", func(b *box, i int) *file.Result {
			return b.do(file.Request{Op: file.OpEdit, Edit: &file.Edit{Target: at(paths[i%2]), OldString: "mine", NewString: "mine", ReplaceAll: true}})
		}},
		{"patch", func(b *box, i int) *file.Result {
			text := "*** Begin Patch\n*** Update File: p/d/f\n@@\n-mine\n+mine\n+more\n*** Update File: p/f\n@@\n-mine\n+mine\n+more\n*** End Patch\n"
			return b.do(file.Request{Op: file.OpPatch, Patch: &file.Patch{Patch: file.PatchText{InlineText: &file.InlineText{Text: text}}}})
		}},
		{"create", func(b *box, i int) *file.Result {
			return b.do(file.Request{Op: file.OpWrite, Write: &file.Write{Target: at("p/d/made/f"), Content: text("mine\n"), Mode: "create_new", CreateParents: true}})
		}},
		{"patch that adds, moves and deletes", func(b *box, i int) *file.Result {
			text := "*** Begin Patch\n*** Add File: p/d/added/f\n+mine\n*** Update File: p/d/f\n*** Move to: p/d/new\n@@\n-mine\n+mine\n+more\n*** Delete File: p/f\n*** End Patch\n"
			return b.do(file.Request{Op: file.OpPatch, Patch: &file.Patch{Patch: file.PatchText{InlineText: &file.InlineText{Text: text}}}})
		}},
		{"remove", func(b *box, i int) *file.Result {
			return b.do(file.Request{Op: file.OpRemove, Remove: &file.Remove{Target: at(paths[i%3])}})
		}},
		{"remove -r", func(b *box, i int) *file.Result {
			return b.do(file.Request{Op: file.OpRemove, Remove: &file.Remove{Target: at("p/d/sub"), Recursive: true}})
		}},
		{"mkdir", func(b *box, i int) *file.Result {
			return b.do(file.Request{Op: file.OpMkdir, Mkdir: &file.Mkdir{Target: at("p/d/sub/x"), CreateParents: true}})
		}},
		{"move", func(b *box, i int) *file.Result {
			return b.do(file.Request{Op: file.OpMove, Move: &file.Move{Target: at("p/d/new"), To: "p/new", Overwrite: true}})
		}},
	}
	each := rounds()
	var flips atomic.Int64
	for _, policy := range []string{file.FollowDeny, file.FollowWithin, file.FollowAllow} {
		b := newFastBox(t, file.Caps{Roots: []string{"/work"}, FollowSymlinks: policy})
		b.believe()
		setUpRace(b)
		before := canaries(b)
		for _, tool := range tools {
			share := flips.Load() + each/3
			stop := make(chan struct{})
			var flipping sync.WaitGroup
			flipping.Go(func() { flip(b, &flips, stop) })
			for calls := 0; calls < 64 || flips.Load() < share; calls++ {
				if calls%8 == 0 || strings.HasPrefix(tool.name, "remove") {
					restore(b)
				}
				if s := fmt.Sprint(shownOf(tool.do(b, calls))); strings.Contains(s, "canary") {
					t.Errorf("%s, %s: %.300s", tool.name, policy, s)
					break
				}
			}
			close(stop)
			flipping.Wait()
			if after := canaries(b); after != before {
				t.Fatalf("%s, %s: outside is now\n%s\nwas\n%s", tool.name, policy, after, before)
			}
			restore(b)
		}
	}
	t.Logf("%d flips", flips.Load())
}

// shownOf is everything that a result tells of content and names.
func shownOf(r *file.Result) (all []string) {
	switch {
	case r.Read != nil:
		all = append(all, out(r.Read.Content))
	case r.Grep != nil:
		all = append(all, out(r.Grep.Matches))
	case r.Glob != nil:
		all = append(all, out(r.Glob.Paths))
	case r.List != nil:
		all = append(all, out(r.List.Entries))
	case r.Stat != nil && r.Stat.SizeBytes != nil && *r.Stat.SizeBytes == 777:
		all = append(all, "canary by its size")
	}
	return all
}

func setUpRace(b *box) {
	b.file("p/d/sub/f", "mine\n")
	canary := "canary" + strings.Repeat("!", 770) + "\n"
	for _, name := range []string{"f", "new", "d/f", "d/new", "canary-name", "d/sub/x/f", "sub/f"} {
		b.file("/canary/"+name, canary)
	}
	restore(b)
	b.link("../../canary", "p/l-d")   // changes places with p/d
	b.link("../../canary/f", "p/l-f") // with p/f
	b.link("../canary", "l-p")        // with p
	b.link("../../../canary/sub", "p/d/l-sub")
}

// restore brings back what the tools have taken away, without following what has been put there.
func restore(b *box) {
	for _, name := range []string{"p/f", "p/d/f", "p/d/new", "p/d/sub/f"} {
		parts := strings.Split(name, "/")
		for i := range parts {
			at := b.at(strings.Join(parts[:i+1], "/"))
			dir, err := unix.Openat2(unix.AT_FDCWD, at[:strings.LastIndexByte(at, '/')], &unix.OpenHow{Flags: unix.O_PATH | unix.O_DIRECTORY, Resolve: unix.RESOLVE_NO_SYMLINKS})
			if err != nil {
				break
			}
			if i < len(parts)-1 {
				unix.Mkdirat(dir, parts[i], 0o755)
			} else if fd, err := unix.Openat(dir, parts[i], unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW, 0o644); err == nil {
				unix.Write(fd, []byte("mine\n"))
				unix.Close(fd)
			}
			unix.Close(dir)
		}
	}
}

// flip makes exchanges until told to stop, in pairs, so that everything is at its place afterwards, and counts them.
func flip(b *box, flips *atomic.Int64, stop chan struct{}) {
	pairs := [][2]string{{"p/d", "p/l-d"}, {"p/f", "p/l-f"}, {"p", "l-p"}, {"p/d/sub", "p/d/l-sub"}}
	work, err := unix.Open(b.at("."), unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		b.t.Error(err)
		return
	}
	defer unix.Close(work)
	for i := 0; ; i++ {
		select {
		case <-stop:
			return
		default:
		}
		p := pairs[i%len(pairs)]
		if unix.Renameat2(work, p[0], work, p[1], unix.RENAME_EXCHANGE) != nil {
			continue
		}
		flips.Add(2)
		// A tool may have one of the two for a moment, or have removed it.
		for try := 0; unix.Renameat2(work, p[0], work, p[1], unix.RENAME_EXCHANGE) != nil && try < 1000; try++ {
		}
	}
}

func canaries(b *box) string {
	var s strings.Builder
	var walk func(dir string)
	walk = func(dir string) {
		entries, err := os.ReadDir(dir)
		if err != nil {
			fmt.Fprintln(&s, err)
		}
		for _, e := range entries {
			at := dir + "/" + e.Name()
			if e.IsDir() {
				walk(at)
				continue
			}
			data, _ := os.ReadFile(at)
			fmt.Fprintln(&s, strings.TrimPrefix(at, b.dir), len(data), hash(string(data))[:8])
		}
	}
	walk(b.at("/canary"))
	return s.String()
}
