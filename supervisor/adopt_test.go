package supervisor

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stockade-dev/stockade/sandbox"
	"github.com/stockade-dev/stockade/supervisor/api"
	"github.com/stockade-dev/stockade/supervisor/ledger"
)

// restart has the supervisor leave what lives to the runner, and another one take over.
func (b *bench) restart() *bench {
	b.t.Helper()
	before := b.digest()
	if err := b.Leave(context.Background()); err != nil {
		b.t.Fatal(err)
	}
	next := startOn(b.t, b.fake, b.state, func(c *Config) {
		c.Policy, c.Policies, c.Defaults = b.cfg.Policy, b.cfg.Policies, b.cfg.Defaults
	})
	next.closers = b.closers
	if got := next.replayedTo(before.records); got != before.digest {
		b.t.Errorf("replayed to %d records the state is %s, and was %s", before.records, got, before.digest)
	}
	return next
}

type stateDigest struct {
	records int64
	digest  string
}

// digest is that of the live state.
func (b *bench) digest() (d stateDigest) {
	b.chronicle.read(func(state *ledger.State) {
		content, err := state.Snapshot()
		if err != nil {
			b.t.Error(err)
		}
		d = stateDigest{state.Records(), ledger.Digest(content)}
	})
	return d
}

// replayedTo is the state that the first records of the journal make.
func (b *bench) replayedTo(records int64) string {
	state := ledger.New()
	err := b.journal.Read(0, func(seq int64, rec []byte) error {
		if seq >= records {
			return nil
		}
		r, err := ledger.Decode(rec)
		if err != nil {
			return err
		}
		return state.Apply(seq, r)
	})
	if err != nil {
		b.t.Error(err)
	}
	content, err := state.Snapshot()
	if err != nil {
		b.t.Error(err)
	}
	return ledger.Digest(content)
}

// launch begins an execution that is not waited for.
func (b *bench) launch(x api.Exec) *api.Pending {
	b.t.Helper()
	no := false
	x.Wait = &no
	p, r, err := b.Start(context.Background(), &api.Request{Op: api.OpExec, Principal: alice, Exec: &x})
	if err != nil || r != nil {
		b.t.Fatalf("%+v %v", r, err)
	}
	return p
}

// ends waits for the end of an execution and returns its receipt.
func (b *bench) ends(exec string) *api.Receipt {
	b.t.Helper()
	_, r := b.outputOf(exec, cursor{})
	return r
}

// C26: what runs goes on over restarts, with its output, its environment, its time limits and
// its true end; what it wrote in between is there once.
func TestAdoption(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t)
		env := map[string]api.EnvValue{"A": {Text: "plain"}, "S": {Text: "secret", Secret: true}}
		id := b.session(func(o *api.SessionOpen) { o.Target.Local.Env = env })
		began := time.Now()
		running := b.launch(api.Exec{SessionID: id, Argv: []string{"count", "8", "1s", "7"}})
		limited := b.launch(api.Exec{SessionID: id, Argv: []string{"stubborn"}, TimeoutNS: int64(4500 * time.Millisecond)})
		ended := b.launch(api.Exec{SessionID: id, Argv: []string{"exit", "3"}})
		for range 3 {
			time.Sleep(1500 * time.Millisecond)
			synctest.Wait()
			b = b.restart()
		}
		defer b.stop()
		if got, r := b.outputOf(running.ExecID, cursor{}); got["stdout"] != "1 2 3 4 5 6 7 8 " || r.Payload.Exec.ExitCode != 7 || r.Outcome != api.OutcomeOK {
			t.Errorf("running: %q %+v", got, r)
		}
		if took := time.Since(began); took != 8*time.Second {
			t.Errorf("it took %v", took)
		}
		if r := b.ends(limited.ExecID); r.ErrorCode != api.CodeTimeout || r.Payload.Exec.Usage.WallNS != int64(6500*time.Millisecond) {
			t.Errorf("limited: %+v %+v", r, r.Payload.Exec)
		}
		if r := b.ends(ended.ExecID); r.Payload.Exec.ExitCode != 3 {
			t.Errorf("ended: %+v", r)
		}
		r := b.exec(id, "env")
		if got := text(r.Payload.Exec.Stdout); got != "A=plain\nFIXED=policy\nPATH="+defaultPath+"\nS=secret" {
			t.Errorf("environment: %q", got)
		}
		p, _, err := b.Process(t.Context(), &api.Request{Op: api.OpProcessGet, Principal: alice, Read: &api.Read{ExecID: running.ExecID}})
		if err != nil || p.State != api.StateFailed || p.Reason != "non_zero_exit" || *p.ExitCode != 7 {
			t.Errorf("%+v %v", p, err)
		}
		if c := b.close(id); c.Outcome != api.OutcomeOK {
			t.Errorf("%+v", c)
		}
	})
}

// R255: what a restart finds and cannot go on with is settled, once: a command that waited for its
// turn was not started, and one whose session is gone has ended somehow.
func TestRestartSettlesWhatCannotGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t)
		id := b.session()
		var all []*api.Pending
		for range 5 { // of which the grant lets four run
			all = append(all, b.launch(api.Exec{SessionID: id, Argv: []string{"for", "10s"}}))
		}
		time.Sleep(time.Second)
		synctest.Wait()
		b = b.restart()
		if r := b.ends(all[4].ExecID); r.ErrorCode != api.CodeSupervisorRestarted || r.Outcome != api.OutcomeFaulted {
			t.Errorf("waiting: %+v", r)
		}
		if err := b.Leave(t.Context()); err != nil {
			t.Fatal(err)
		}
		b.fake.lose()
		f := newFake() // another runner, which has nothing
		defer b.stopPolicy()
		b = startOn(t, f, b.state, func(c *Config) { c.Policy = b.cfg.Policy })
		defer b.stop()
		for i := range 4 {
			if r := b.ends(all[i].ExecID); r.ErrorCode != api.CodeSupervisorRestarted || r.Payload.Exec.ExitCode != -1 {
				t.Errorf("running: %+v", r)
			}
		}
		ses, _, err := b.Session(t.Context(), &api.Request{Op: api.OpSessionGet, Principal: alice, Read: &api.Read{SessionID: id}})
		if err != nil || ses.State != "closed" || ses.Reason != "supervisor_restarted" {
			t.Errorf("%+v %v", ses, err)
		}
		receipts := map[string]int{}
		for _, r := range b.records() {
			if r.Receipt != nil {
				receipts[r.Receipt.IntentID]++
			}
		}
		for intent, n := range receipts {
			if n != 1 {
				t.Errorf("%s has %d receipts", intent, n)
			}
		}
	})
}

// A session that the runner has and no receipt names was never acknowledged: it is closed.
func TestUnknownSessionIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t)
		b.session()
		b.fake.specs["s-stray"] = sandbox.Spec{}
		b = b.restart()
		defer b.stop()
		if _, ok := b.fake.specs["s-stray"]; ok || len(b.fake.specs) != 1 {
			t.Errorf("%d sessions are left", len(b.fake.specs))
		}
	})
}

// A session's end comes at its time, whoever the supervisor is.
func TestAdoptedSessionExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t)
		id := b.session(func(o *api.SessionOpen) { o.SessionTTLNS = int64(10 * time.Second) })
		x := b.launch(api.Exec{SessionID: id, Argv: []string{"sleep"}})
		time.Sleep(4 * time.Second)
		b = b.restart()
		defer b.stop()
		began := time.Now()
		if r := b.ends(x.ExecID); r.ErrorCode != api.CodeSessionExpired {
			t.Errorf("%+v", r)
		}
		if took := time.Since(began); took != 6*time.Second {
			t.Errorf("after %v", took)
		}
	})
}

// A command that ended of its session's end, or of its own time's, while no supervisor was there to record it, has the reason all the
// same; one that died of a signal before its time has none.
func TestEndedBefore(t *testing.T) {
	for _, row := range []struct {
		name  string
		after time.Duration // of the signal
		exec  time.Duration // its time limit
		want  api.Code
	}{
		{"session", 11 * time.Second, 0, api.CodeSessionExpired},
		{"time limit", 8 * time.Second, 7 * time.Second, api.CodeTimeout},
		{"neither", 5 * time.Second, 7 * time.Second, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := start(t)
				id := b.session(func(o *api.SessionOpen) { o.SessionTTLNS = int64(10 * time.Second) })
				x := b.launch(api.Exec{SessionID: id, Argv: []string{"sleep"}, TimeoutNS: int64(row.exec)})
				if err := b.Leave(t.Context()); err != nil {
					t.Fatal(err)
				}
				time.Sleep(row.after)
				if err := b.fake.Signal(t.Context(), id, x.ExecID, 15); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				b = b.restart()
				defer b.stop()
				if r := b.ends(x.ExecID); r.Payload.Exec.ErrorCode != row.want || r.Payload.Exec.Signal != "TERM" {
					t.Errorf("%+v %+v", r, r.Payload.Exec)
				}
			})
		})
	}
}

// on_restart: terminate is told to the runner when the session is built.
func TestOnRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t)
		defer b.stop()
		for ask, want := range map[string]bool{"": false, "adopt": false, "terminate": true} {
			id := b.session(func(o *api.SessionOpen) { o.OnRestart = ask })
			if got := b.fake.specs[id].WithDaemon; got != want {
				t.Errorf("%q: %t", ask, got)
			}
		}
	})
}

func init() {
	// count prints numbers at an interval, then exits.
	commands["count"] = func(p *process) exit {
		var n, status int
		fmt.Sscan(p.exec.Argv[1], &n)
		fmt.Sscan(p.exec.Argv[3], &status)
		every, _ := time.ParseDuration(p.exec.Argv[2])
		for i := range n {
			time.Sleep(every)
			fmt.Fprintf(p.stdout, "%d ", i+1)
		}
		return exit{code: status}
	}
}

// A command that was being fed a blob when its supervisor went is ended, and its receipt is a fault: the
// end of what it had read was not the end of its input.
func TestRestartWhileFed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t)
		id := b.session()
		ref, _, err := b.blobs.Put(bytes.NewReader(pattern(stdinMemory+1)), "")
		if err != nil {
			t.Fatal(err)
		}
		whole := b.execute(api.Exec{SessionID: id, Argv: []string{"swallow"}, StdinRef: ref})
		if got := text(whole.Payload.Exec.Stdout); got != fmt.Sprint(stdinMemory+1) {
			t.Errorf("undisturbed it read %s: %+v", got, whole)
		}
		x := b.launch(api.Exec{SessionID: id, Argv: []string{"sip", "1000"}, StdinRef: ref})
		time.Sleep(time.Second)
		b = b.restart()
		defer b.stop()
		r := b.ends(x.ExecID)
		if r.Outcome != api.OutcomeFaulted || r.ErrorCode != api.CodeSupervisorRestarted || r.Payload.Exec.Signal != "KILL" {
			t.Errorf("%+v %+v", r, r.Payload.Exec)
		}
	})
}

// A cancel that was acknowledged ends the command when it said, whoever the supervisor is by then.
func TestCancelOverRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t)
		id := b.session()
		x := b.launch(api.Exec{SessionID: id, Argv: []string{"stubborn"}})
		time.Sleep(time.Second)
		no, grace := false, int64(5*time.Second)
		r := b.do(api.Request{Op: api.OpProcessCancel, Cancel: &api.ProcessCancel{ProcessRef: api.ProcessRef{ExecID: x.ExecID}, GraceNS: &grace, Wait: &no}})
		if r.Payload.Control.Status != api.ControlCancelRequested {
			t.Errorf("%+v", r)
		}
		began := time.Now()
		time.Sleep(2 * time.Second)
		b = b.restart()
		defer b.stop()
		if r := b.ends(x.ExecID); r.ErrorCode != api.CodeCanceled || r.Payload.Exec.Signal != "KILL" {
			t.Errorf("%+v", r)
		}
		if took := time.Since(began); took != 5*time.Second {
			t.Errorf("it was killed after %v", took)
		}
	})
}
