package supervisor

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stockade-dev/stockade/supervisor/api"
)

func init() {
	// name writes its own id, so many times.
	commands["name"] = func(p *process) exit {
		var n int
		fmt.Sscan(p.exec.Argv[1], &n)
		for i := range n {
			time.Sleep(10 * time.Millisecond)
			to := p.stdout
			if i%2 == 1 {
				to = p.stderr
			}
			fmt.Fprintln(to, p.exec.ID)
		}
		return exit{}
	}
}

// C4, C14, R119, R121, R131, R139, R229, R230, R245: many executions of two principals, each watched by four. What anybody
// gets, frame, byte or event, is of what he watches, and all of it; also beside readers that take the first
// and then nothing.
func TestStreamsStayApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := startOn(t, newFake(), t.TempDir()+"/state", func(c *Config) { c.Defaults.Progress = 20 * time.Millisecond })
		defer b.stop()
		const watchers, names = 4, 8
		release := make(chan struct{})
		var slow, all sync.WaitGroup
		var mu sync.Mutex
		owner := map[string]api.Scope{} // of an execution
		states := map[string]string{}   // that the events tell of it
		for _, who := range []api.Principal{alice, {UID: 1000, GID: 1000, Scope: api.Scope{AgentID: "other"}}} {
			follow := func(emit func(api.Notice)) {
				_, err := b.FollowEvents(t.Context(), &api.Request{Op: api.OpEvents, Principal: who, Read: &api.Read{}}, emit)
				if code(err) != api.CodeShuttingDown {
					t.Error(err)
				}
			}
			var seq int64
			go follow(func(n api.Notice) {
				mu.Lock()
				defer mu.Unlock()
				if seq++; n.Seq != seq || n.ExecID != "" && owner[n.ExecID] != who.Scope {
					t.Errorf("%s gets %+v", who.Scope.AgentID, n)
				}
				if n.Kind == api.NoticeProcess {
					states[n.ExecID] += n.State + " "
				}
			})
			go follow(func(api.Notice) { <-release })
			for range 5 {
				open := b.do(api.Request{Op: api.OpSessionOpen, Principal: who, Open: &api.SessionOpen{Target: api.Target{Local: &api.Local{}}}})
				for range 5 {
					no := false
					mu.Lock()
					p, _, err := b.Start(t.Context(), &api.Request{Op: api.OpExec, Principal: who, Exec: &api.Exec{
						SessionID: open.SessionID, Argv: []string{"name", fmt.Sprint(names)}, Wait: &no,
					}})
					if err == nil {
						owner[p.ExecID] = who.Scope
					}
					mu.Unlock()
					if err != nil {
						t.Fatal(err)
					}
					watch := func(emit func(api.Event)) {
						r, _, err := b.Watch(t.Context(), &api.Request{Op: api.OpProcessWatch, Principal: who, Read: &api.Read{ExecID: p.ExecID}}, emit)
						if err != nil || r.ExecID != p.ExecID || r.IntentID != p.IntentID {
							t.Errorf("%+v %v", r, err)
						}
					}
					for range watchers {
						all.Go(func() {
							var events []api.Event
							watch(func(e api.Event) {
								if e.ExecID != p.ExecID || e.IntentID != p.IntentID || e.Frame != nil && (e.Frame.IntentID != p.IntentID || e.Frame.Payload.ExecID != p.ExecID) {
									t.Errorf("%s gets %+v", p.ExecID, e)
								}
								events = append(events, e)
							})
							frames, stdout, stderr := transcript(events)
							if want := strings.Repeat(p.ExecID+"\n", names/2); stdout != want || stderr != want {
								t.Errorf("%s: %q %q", p.ExecID, stdout, stderr)
							}
							// One for its start, its turn, and each interval: none for what it writes.
							if n := len(frames); n < 3 || n > 6 || frames[n-1] != int64(n) {
								t.Errorf("%s: frames %v", p.ExecID, frames)
							}
						})
					}
					slow.Go(func() { watch(func(api.Event) { <-release }) })
				}
			}
		}
		all.Wait()
		synctest.Wait()
		mu.Lock()
		for exec := range owner {
			if s := states[exec]; s != "queued starting running completed " && s != "starting running completed " {
				t.Errorf("%s: %s", exec, s)
			}
		}
		if len(states) != len(owner) || len(owner) != 50 {
			t.Errorf("events of %d executions, of %d", len(states), len(owner))
		}
		mu.Unlock()
		close(release)
		slow.Wait()
	})
}

// R130: a caller acts on a frame, on this intent and with another, before the first has ended.
func TestActOnFrame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t)
		defer b.stop()
		id := b.session()
		acted := 0
		r, err := b.Do(t.Context(), &api.Request{Op: api.OpExec, Principal: alice, Exec: &api.Exec{SessionID: id, Argv: []string{"read"}, StdinOpen: true}}, func(e api.Event) {
			if e.Frame == nil || e.Frame.Kind != api.FrameStarted {
				return
			}
			acted++
			if other := b.exec(id, "echo", "another"); other.Outcome != api.OutcomeOK || other.IntentID == e.IntentID {
				t.Errorf("%+v", other)
			}
			if in, _ := b.intent(alice, e.IntentID); in.SettledAtNS != 0 {
				t.Errorf("%+v", in)
			}
			if r := b.input(e.ExecID, api.ProcessInput{Data: textInput("asked for"), Close: true}); r.Outcome != api.OutcomeOK {
				t.Errorf("%+v", r)
			}
		})
		if err != nil || acted != 1 || r.Payload.Exec.Stdout.InlineText.Text != "asked for" {
			t.Errorf("%d: %+v %v", acted, r, err)
		}
	})
}

// wait_ms gives the start, the wait and the output so far in one call; what ends within it is a receipt, and so is
// what it is called for again when it has ended.
func TestStartAndWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t)
		defer b.stop()
		id := b.session()
		ask := func(wait time.Duration, argv ...string) (*api.Pending, *api.Receipt) {
			t.Helper()
			began := time.Now()
			p, r, err := b.Start(t.Context(), &api.Request{Op: api.OpExec, Principal: alice, Key: argv[0], Exec: &api.Exec{
				SessionID: id, Argv: argv, WaitMS: wait.Milliseconds(),
			}})
			if took := time.Since(began); err != nil || (p == nil) == (r == nil) || p != nil && took != wait {
				t.Fatalf("%+v %+v %v after %v", p, r, err, took)
			}
			return p, r
		}
		p, _ := ask(25*time.Millisecond, "name", "8")
		if p.State != api.StateRunning || len(p.Output) != 2 || string(p.Output[0].Bytes)+string(p.Output[1].Bytes) != p.ExecID+"\n"+p.ExecID+"\n" {
			t.Errorf("%+v", p)
		}
		rest, _, err := b.Output(t.Context(), &api.Request{Op: api.OpOutput, Principal: alice, Read: &api.Read{ExecID: p.ExecID, After: p.Cursor, WaitMS: 1000}})
		if err != nil || len(rest.Output) != 1 || rest.Output[0].Stream != "stdout" || int(rest.Output[0].Offset) != len(p.ExecID)+1 {
			t.Errorf("%+v %v", rest, err)
		}
		// The same under its key, while it runs: where it is by then; and another request, at once: a conflict.
		if same, _ := ask(25*time.Millisecond, "name", "8"); same.IntentID != p.IntentID || len(same.Output) != 5 {
			t.Errorf("%+v", same)
		}
		if _, err := b.with("name", api.Exec{SessionID: id, Argv: []string{"name", "5"}}); code(err) != api.CodeKeyConflict {
			t.Error(err)
		}
		time.Sleep(time.Second)
		if _, r := ask(25*time.Millisecond, "name", "8"); r.IntentID != p.IntentID || r.Outcome != api.OutcomeOK {
			t.Errorf("%+v", r)
		}
		if _, r := ask(time.Second, "echo", "quick"); r.Payload.Exec.Stdout.InlineText.Text != "quick" {
			t.Errorf("%+v", r)
		}
		ctx, leave := context.WithCancel(t.Context())
		leave()
		if _, _, err := b.Start(ctx, &api.Request{Op: api.OpExec, Principal: alice, Exec: &api.Exec{SessionID: id, Argv: []string{"name", "4"}, WaitMS: 1000}}); err != context.Canceled {
			t.Error(err)
		}
	})
}
