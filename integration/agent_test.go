package integration

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stockade-dev/stockade/sandbox/file"
	"github.com/stockade-dev/stockade/supervisor/api"
	"github.com/stockade-dev/stockade/supervisor/client"
)

// TestAgent is issue 8's loop of an agent, with the client in Go: small commands and changes of files, each with an effect of its own, while the
// supervisor is killed three times. The client sends an operation once; the agent asks again with the same key. Each effect is there
// once, and what goes wrong is what the contract names. The clients for Python and Node have the same loop in their own tests.
func TestAgent(t *testing.T) {
	t.Parallel()
	const agents, kills = 4, 3
	calls := soak(200, 1000)
	d := start(t)
	c := d.Client()
	tree := t.TempDir()
	session := opened(t, c, func(o *api.SessionOpen) {
		o.Target.Local.Mounts = []api.Mount{{HostPath: tree, GuestPath: "/work", Mode: "rw"}}
		o.Target.Local.Workdir = "/work"
	}).SessionID
	var done, lost, cut atomic.Int64
	var all sync.WaitGroup
	for n := range agents {
		all.Go(func() {
			log := fmt.Sprintf("log-%d", n)
			content := ""
			for i := n; i < calls; i += agents {
				line := fmt.Sprintln(i)
				ask := func(c *client.Client) (*api.Receipt, error) {
					return c.Exec(t.Context(), api.Exec{SessionID: session, Argv: []string{"sh", "-c", fmt.Sprintf("echo %d >>%s", i, log)}})
				}
				if i%8 >= agents {
					ask = func(c *client.Client) (*api.Receipt, error) {
						return c.WriteFile(t.Context(), api.FileWrite{SessionID: session, Write: file.Write{Target: file.Target{Path: log}, Content: file.Content{InlineText: &file.InlineText{Text: content + line}}}})
					}
				}
				for attempt, until := 0, time.Now().Add(atMost); ; {
					r, err := ask(c.WithKey(fmt.Sprintf("agent-%d-%d", i, attempt)))
					if err == nil && r.Outcome == api.OutcomeOK {
						break
					}
					if err != nil { // whether it took place is asked by the same key
						lost.Add(1)
						if e, ok := errors.AsType[*api.Error](err); ok && e.Code != api.CodeShuttingDown && e.Code != api.CodeKeyInFlight || time.Now().After(until) {
							t.Errorf("call %d: %v", i, err)
							return
						}
						time.Sleep(20 * time.Millisecond)
						continue
					}
					if r.ErrorCode != api.CodeSupervisorRestarted {
						t.Errorf("call %d: %s %s %s", i, r.Outcome, r.ErrorCode, r.ErrorMessage)
						return
					}
					cut.Add(1)
					if there, err := os.ReadFile(filepath.Join(tree, log)); err == nil && string(there) == content+line {
						break
					}
					attempt++
				}
				content += line
				if there, err := os.ReadFile(filepath.Join(tree, log)); err != nil || string(there) != content {
					t.Errorf("after call %d: %v, %q, want %q", i, err, there, content)
					return
				}
				done.Add(1)
			}
		})
	}
	finished := make(chan struct{})
	go func() { all.Wait(); close(finished) }()
	for k := 1; k <= kills; k++ {
		for done.Load() < int64(calls*k/(kills+1)) && !t.Failed() {
			time.Sleep(2 * time.Millisecond)
		}
		d.Kill()
		if err := d.Start(); err != nil {
			t.Error(err)
			break
		}
	}
	<-finished
	if lost.Load() < kills || done.Load() != int64(calls) {
		t.Errorf("%d calls, %d answers lost in %d kills", done.Load(), lost.Load(), kills)
	}
	t.Logf("%d calls, %d kills, %d answers lost, %d operations cut off and told so", calls, kills, lost.Load(), cut.Load())
}
