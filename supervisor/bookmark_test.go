package supervisor

import (
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/stockade-dev/stockade/supervisor/api"
)

// framesOf are frames of a shell, numbered from 1, the output of each command of which is ten bytes; between them are some that
// tell of no command.
func framesOf(commands int) (all []api.Frame) {
	add := func(kind api.FrameKind, p api.FramePayload) {
		all = append(all, api.Frame{Seq: int64(len(all) + 1), Kind: kind, Payload: p})
	}
	for i := range commands {
		name := fmt.Sprint("c-", i+1)
		add(api.FrameInput, api.FramePayload{InputBytes: int64(i)})
		add(api.FrameShell, api.FramePayload{Status: api.ShellBusy, CommandID: name})
		add(api.FrameShell, api.FramePayload{Status: api.ShellIdle, CommandID: name, Offset: int64(10 * (i + 1))})
		add(api.FrameShell, api.FramePayload{Status: api.ShellIdle, Offset: int64(10*(i+1) + 5)}) // an empty line
	}
	return all
}

// R153: pages of a long transcript have each frame read about once between them, in whatever pieces they are asked for; and they
// say the same as one that has all of it.
func TestEndings(t *testing.T) {
	const commands = 4000
	frames := framesOf(commands)
	for _, per := range []int{1, 7, 100} {
		var b bookmarks
		read := 0
		page := func(from int64) *endings {
			return &endings{passed: b.before("x", from), read: func(after int64) ([]api.Frame, error) {
				batch := frames[after:min(int(after)+framesAtOnce, len(frames))]
				read += len(batch)
				return batch, nil
			}}
		}
		pages := 0
		var at int64
		for i := 0; i < commands; i += per {
			e := page(at)
			for j := i; j < min(i+per, commands); j++ {
				end := int64(10 * (j + 1))
				if got, known, err := e.at(end); err != nil || !known || got != fmt.Sprint("c-", j+1) {
					t.Fatalf("at %d: %q, %v, %v", end, got, known, err)
				}
				at = end + 5
				if got, known, _ := e.at(at); known {
					t.Fatalf("an empty line at %d is %q", at, got)
				}
			}
			b.put(bookmark{"x", at, e.passed})
			b.put(bookmark{"another", at, int64(len(frames))})
			pages++
		}
		if most := len(frames) + pages*framesAtOnce; read > most {
			t.Errorf("%d pages read %d frames of %d, more than %d", pages, read, len(frames), most)
		}
		if len(b.kept) > keptBookmarks {
			t.Errorf("%d bookmarks", len(b.kept))
		}
		read = 0
		if got, _, _ := page(10 * 17).at(10 * 18); got != "c-18" { // whose bookmark is not there, or not any more
			t.Errorf("without a bookmark: %q", got)
		}
	}
}

// R153: a reader who goes on from a token is told what one is told who reads all at once, and leaves a bookmark.
func TestTranscriptInPages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t)
		defer b.stop()
		x := b.shell(b.session())
		synctest.Wait()
		for i := range keptCommands + 20 {
			b.types(x, fmt.Sprint("line", i, "\n"))
			synctest.Wait()
		}
		read := func(most int64) (all []string, pages int) {
			for at := ""; ; pages++ {
				page, _, err := b.ShellOutput(t.Context(), &api.Request{
					Op: api.OpShellOutput, Principal: alice, Facade: "test", Read: &api.Read{ExecID: x, After: at, MaxBytes: most},
				})
				if err != nil {
					t.Fatal(err)
				}
				for _, c := range page.Chunks {
					if c.CommandID != "" {
						all = append(all, c.CommandID)
					}
				}
				if at = page.Token; page.End || len(page.Chunks) == 0 {
					return all, pages
				}
			}
		}
		check := func(when string) {
			whole, _ := read(1 << 20)
			parts, pages := read(300)
			if len(whole) != keptCommands+20 || fmt.Sprint(whole) != fmt.Sprint(parts) || pages < 10 {
				t.Errorf("%s: at once %v; in %d pages %v", when, whole, pages, parts)
			}
		}
		check("live")
		b.types(x, "exit\n")
		synctest.Wait()
		check("ended")
		last := b.bookmarks.before(x, 1<<60)
		if last < keptCommands {
			t.Errorf("the bookmarks end at frame %d", last)
		}
	})
}
