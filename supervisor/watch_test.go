package supervisor

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stockade-dev/stockade/supervisor/api"
)

// follow watches an execution from a cursor on, and stops after so many events (0: at its end).
func (b *bench) follow(exec, after string, most int) (events []api.Event) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	b.Watch(ctx, &api.Request{Op: api.OpProcessWatch, Principal: alice, Read: &api.Read{ExecID: exec, After: after}}, func(e api.Event) {
		if most > 0 && len(events) == most {
			return // it was on its way when the reader left
		}
		events = append(events, e)
		if len(events) == most {
			cancel()
		}
	})
	return events
}

// transcript is what a reader has: the frames and the bytes, each with where it was.
func transcript(events []api.Event) (frames []int64, stdout, stderr string) {
	for _, e := range events {
		switch {
		case e.Frame != nil:
			frames = append(frames, e.Frame.Seq)
		case e.Stream == "stdout" && e.Offset == int64(len(stdout)):
			stdout += string(e.Bytes)
		case e.Stream == "stderr" && e.Offset == int64(len(stderr)):
			stderr += string(e.Bytes)
		default:
			stdout += fmt.Sprintf("!%s@%d!", e.Stream, e.Offset)
		}
	}
	return frames, stdout, stderr
}

// R139, C16: a reader that leaves anywhere and resumes from the cursor that it had gets the rest, once;
// while the command runs, over restarts and after its end; and every reader gets the same.
func TestResume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := startOn(t, newFake(), t.TempDir()+"/state", func(c *Config) { c.Defaults.Progress = time.Second })
		id := b.session()
		x := b.launch(api.Exec{SessionID: id, Argv: []string{"both", "30", "300ms"}})
		random := rand.New(rand.NewPCG(1, 2))
		var readers [8][]api.Event
		for i := 0; ; i++ {
			r := &readers[i%len(readers)]
			after := ""
			if n := len(*r); n > 0 {
				after = (*r)[n-1].Cursor
			}
			p, _, err := b.Process(t.Context(), &api.Request{Op: api.OpProcessGet, Principal: alice, Read: &api.Read{ExecID: x.ExecID}})
			if err != nil {
				t.Fatal(err)
			}
			if p.State.Final() {
				break
			}
			*r = append(*r, b.follow(x.ExecID, after, 1+random.IntN(5))...)
			if i%20 == 7 {
				b = b.restart()
			}
		}
		defer b.stop()
		var wantOut, wantErr string
		for i := range 30 {
			wantOut += fmt.Sprintf("out %d\n", i)
			wantErr += fmt.Sprintf("err %d\n", i)
		}
		var all []int64
		for i := range readers {
			after := ""
			if n := len(readers[i]); n > 0 {
				after = readers[i][n-1].Cursor
			}
			frames, stdout, stderr := transcript(append(readers[i], b.follow(x.ExecID, after, 0)...))
			if stdout != wantOut || stderr != wantErr {
				t.Errorf("reader %d: %q %q", i, stdout, stderr)
			}
			for n, seq := range frames {
				if seq != int64(n+1) {
					t.Errorf("reader %d: frames %v", i, frames)
					break
				}
			}
			if i == 0 {
				all = frames
			} else if diff := cmp.Diff(all, frames); diff != "" {
				t.Errorf("reader %d: %s", i, diff)
			}
		}
		if len(all) < 9 { // started, progress each second, adopted
			t.Errorf("only %d frames", len(all))
		}
		if _, bad := parseCursor("1.2"); bad == nil || bad.Code != api.CodeInvalidCursor {
			t.Errorf("%v", bad)
		}
	})
}

// Frames that are not found any more are said to be gone, to who follows what runs too, and those that are follow.
func TestFramesGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := startOn(t, newFake(), t.TempDir()+"/state", func(c *Config) { c.Defaults.Progress = time.Second })
		defer b.stop()
		x := b.launch(api.Exec{SessionID: b.session(), Argv: []string{"for", "9500ms"}})
		time.Sleep(5500 * time.Millisecond)
		places, _ := b.chronicle.framePlaces(x.IntentID, 0, 100)
		if len(places) != 6 {
			t.Fatalf("%d frames", len(places))
		}
		forget := func(before int64) {
			b.chronicle.mu.Lock()
			defer b.chronicle.mu.Unlock()
			b.chronicle.frames.trim(before)
		}
		forget(places[3])
		check := func(what string, gone api.Gone, first, last int64) {
			t.Helper()
			events := b.follow(x.ExecID, "", int(last-first)+2)
			frames, _, _ := transcript(events[1:])
			if events[0].Gone == nil || *events[0].Gone != gone || len(frames) != int(last-first)+1 || frames[0] != first || frames[len(frames)-1] != last {
				t.Errorf("%s: %+v %v", what, events[0], frames)
			}
		}
		page := func(after string) *api.FrameList {
			t.Helper()
			list, _, err := b.Frames(t.Context(), &api.Request{Op: api.OpIntentFrames, Principal: alice, Read: &api.Read{IntentID: x.IntentID, After: after}})
			if err != nil {
				t.Fatal(err)
			}
			return list
		}
		check("while it runs", api.Gone{From: "0.0.0", FirstAvailable: "3.0.0"}, 4, 6)
		if p := page("2"); len(p.Frames) != 0 || p.Gone == nil || *p.Gone != (api.Gone{From: "2", FirstAvailable: "3"}) {
			t.Errorf("%+v", p)
		}
		if p := page("3"); len(p.Frames) != 3 || p.Gone != nil {
			t.Errorf("%+v", p)
		}
		time.Sleep(5 * time.Second)
		check("when it has ended", api.Gone{From: "0.0.0", FirstAvailable: "3.0.0"}, 4, 10)
		forget(1 << 62)
		if events := b.follow(x.ExecID, "", 0); len(events) != 1 || events[0].Gone == nil || events[0].Gone.FirstAvailable != "10.0.0" {
			t.Errorf("%+v", events)
		}
		if p := page(""); p.Gone == nil || p.Gone.FirstAvailable != "10" || p.Receipt != nil {
			t.Errorf("%+v", p)
		}
		if p := page("10"); p.Gone != nil || p.Receipt == nil {
			t.Errorf("%+v", p)
		}
	})
}

// R136: no progress before the first interval, one an interval, none twice at the end.
func TestProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := startOn(t, newFake(), t.TempDir()+"/state", func(c *Config) { c.Defaults.Progress = time.Second })
		defer b.stop()
		id := b.session()
		for command, want := range map[string][]string{
			"100ms":  {"host.exec.started"},
			"900ms":  {"host.exec.started"},
			"2500ms": {"host.exec.started", "host.exec.progress", "host.exec.progress"},
		} {
			r := b.exec(id, "for", command)
			list, _, err := b.Frames(t.Context(), &api.Request{Op: api.OpIntentFrames, Principal: alice, Read: &api.Read{IntentID: r.IntentID}})
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for i, f := range list.Frames {
				got = append(got, string(f.Kind))
				if f.Seq != int64(i+1) || f.EffectKind != api.OpExec || f.OriginModule != "stockade" || f.OriginInstance != "1000" || f.EmittedAtSeq == 0 {
					t.Errorf("%+v", f) // R118, R128
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s: %s", command, diff)
			}
			if r.FrameSeq != int64(len(want)) {
				t.Errorf("%s: the receipt says %d", command, r.FrameSeq)
			}
		}
	})
}

func init() {
	// both writes a line to each stream, so many times at an interval.
	one := commands["both"]
	commands["both"] = func(p *process) exit {
		if len(p.exec.Argv) < 3 {
			return one(p)
		}
		var n int
		fmt.Sscan(p.exec.Argv[1], &n)
		every, _ := time.ParseDuration(p.exec.Argv[2])
		for i := range n {
			time.Sleep(every)
			fmt.Fprintf(p.stdout, "out %d\n", i)
			fmt.Fprintf(p.stderr, "err %d\n", i)
		}
		return exit{}
	}
}

// A command that is over before its output can be followed has been followed all the same.
func TestStreamOfShortCommands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t)
		defer b.stop()
		id := b.session()
		for i := range 200 {
			var events []api.Event
			want := fmt.Sprint("number ", i)
			r, err := b.Do(t.Context(), &api.Request{Op: api.OpExec, Principal: alice, Exec: &api.Exec{SessionID: id, Argv: []string{"echo", want}}}, func(e api.Event) {
				if e.Kind != "accepted" {
					events = append(events, e)
				}
			})
			if err != nil {
				t.Fatal(err)
			}
			if frames, stdout, _ := transcript(events); stdout != want || int64(len(frames)) != r.FrameSeq {
				t.Fatalf("%q and %d of %d frames", stdout, len(frames), r.FrameSeq)
			}
		}
	})
}
