package integration

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/internal/testbox"
	"github.com/stockade-dev/stockade/supervisor/api"
	"github.com/stockade-dev/stockade/supervisor/client"
)

// A restart is a way for a daemon to be replaced by another of the same state directory under live
// sessions.
type restart struct {
	name string
	do   func(t *testing.T, d *testbox.Daemon)
}

var restarts = []restart{
	{"killed", func(t *testing.T, d *testbox.Daemon) {
		d.Kill()
		time.Sleep(300 * time.Millisecond) // nobody is there for a while
		again(t, d)
	}},
	{"left", func(t *testing.T, d *testbox.Daemon) {
		if err := unix.Kill(d.PID(), unix.SIGUSR2); err != nil {
			t.Fatal(err)
		}
		if !d.Ended(comesAbout) || d.Killed() {
			t.Fatalf("it does not leave\n%s", d.Log())
		}
		again(t, d)
	}},
	{"replaced", func(t *testing.T, d *testbox.Daemon) { replaced(t, d) }},
	{"runner replaced", func(t *testing.T, d *testbox.Daemon) {
		if err := unix.Kill(d.Runner(), unix.SIGHUP); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the runner is replaced", func() bool { return strings.Contains(d.Log(), "stockade-run: replaced") })
	}},
}

// again starts a daemon on the same directory.
func again(t testing.TB, d *testbox.Daemon) {
	t.Helper()
	d.Client().CloseIdle()
	if err := d.Start(); err != nil {
		t.Fatal(err)
	}
}

// replaced has the daemon execute its successor, in the same process.
func replaced(t testing.TB, d *testbox.Daemon) {
	t.Helper()
	serving := func() int { return strings.Count(d.Log(), "msg=serving") }
	before := serving()
	if err := d.Hangup(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a successor serves", func() bool { return serving() > before })
}

// TestOrderedMeanwhile: what an operator says to a daemon that is giving way to its successor is done, by the one or by the other.
func TestOrderedMeanwhile(t *testing.T) {
	for _, order := range []struct {
		name          string
		signal        unix.Signal
		state, reason string // of its session, for the next one
	}{
		{"leave", unix.SIGUSR2, "ready", ""},
		{"end", unix.SIGTERM, "closed", "shutdown"},
	} {
		t.Run(order.name, func(t *testing.T) {
			t.Parallel()
			d := start(t)
			id := opened(t, d.Client(), nil).SessionID
			if err := d.Hangup(); err != nil {
				t.Fatal(err)
			}
			for end := time.Now().Add(comesAbout); !strings.Contains(d.Log(), "giving way"); time.Sleep(time.Millisecond) {
				if time.Now().After(end) {
					t.Fatalf("it does not give way\n%s", d.Log())
				}
			}
			if err := unix.Kill(d.PID(), order.signal); err != nil {
				t.Fatal(err)
			}
			if !d.Ended(comesAbout) || d.Killed() {
				t.Fatalf("it goes on, or died of the signal\n%s", d.Log())
			}
			again(t, d)
			s, err := d.Client().Session(t.Context(), id)
			if err != nil || s.State != order.state || s.Reason != order.reason {
				t.Errorf("the session is %+v, %v", s, err)
			}
		})
	}
}

// comesAbout is how long whatever is bound to happen is waited for.
var comesAbout = testbox.Patience(20 * time.Second)

// eventually waits for something that may take a moment.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(comesAbout); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it never came about: %s", what)
		}
	}
}

// begun starts a script without waiting for it.
func begun(t testing.TB, c *client.Client, ask api.Exec, script string) string {
	t.Helper()
	ask.Argv = []string{"sh", "-c", script}
	p, r, err := c.Start(t.Context(), ask)
	if err != nil || p == nil {
		t.Fatalf("start %q: %+v, %v", script, r, err)
	}
	return p.ExecID
}

// wrote waits until an execution has written something.
func wrote(t testing.TB, c *client.Client, exec string) {
	t.Helper()
	if p, err := c.Output(t.Context(), exec, api.Read{WaitMS: 20_000}); err != nil || len(p.Output) == 0 {
		t.Fatalf("%s wrote nothing: %+v, %v", exec, p, err)
	}
}

// ended is the receipt of an execution, once it has ended.
func ended(t testing.TB, c *client.Client, exec string) *api.Receipt {
	t.Helper()
	p, err := c.WaitProcess(t.Context(), exec, 0)
	if err != nil {
		t.Fatal(err)
	}
	r, err := c.Receipt(t.Context(), p.IntentID)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestAdopted replaces the daemon, and the runner, under a session in which everything goes on that
// can: executions with their output, status and input; what is paused; who follows. The session is
// bounded as before: by its ceilings, its environment, its policy and its end (item 6 of the contract, R133, R238 to R255).
func TestAdopted(t *testing.T) {
	for _, way := range restarts {
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			adopted(t, way)
		})
	}
}

func adopted(t *testing.T, way restart) {
	d := start(t)
	c := d.Client()
	open := opened(t, c, func(o *api.SessionOpen) {
		o.Limits = api.Limits{PIDs: 32, MemoryBytes: 64 << 20}
		o.Target.Local.Env = map[string]api.EnvValue{"TOKEN": {Text: "canary", Secret: true}, "PLAIN": {Text: "plain"}}
	})
	id := open.SessionID
	limited := opened(t, c, func(o *api.SessionOpen) { o.SessionTTLNS = int64(6 * time.Second) }).SessionID

	counter := begun(t, c, api.Exec{SessionID: id}, "i=0; while [ $i -lt 60 ]; do i=$((i+1)); echo $i; echo e$i >&2; sleep 0.02; done; exit 7")
	short := begun(t, c, api.Exec{SessionID: id}, "echo begun; sleep 0.2; echo while nobody was there; exit 5") // ends while there is no daemon
	killed := begun(t, c, api.Exec{SessionID: id}, "echo begun; sleep 0.1; kill -USR1 $$")
	reader := begun(t, c, api.Exec{SessionID: id, StdinOpen: true}, "cat; echo end; exit 3")
	paused := begun(t, c, api.Exec{SessionID: id}, "echo begun; while [ ! -e /tmp/go ]; do sleep 0.02; done; exit 4")
	bounded := begun(t, c, api.Exec{SessionID: id, TimeoutNS: int64(5 * time.Second)}, "echo begun; sleep 1000")
	beyond := begun(t, c, api.Exec{SessionID: limited}, "echo begun; sleep 1000")
	for _, x := range []string{counter, short, killed, paused, bounded, beyond} {
		wrote(t, c, x)
	}
	input := func(id, data string, end bool) string {
		r, err := c.Input(t.Context(), api.ProcessInput{ProcessRef: api.ProcessRef{ExecID: reader}, InputID: id, Close: end,
			Data: &api.Stdin{InlineText: &api.InlineText{Text: data}}})
		return settled(t, r, err).Payload.Control.Status
	}
	input("1", "one\n", false)
	r, err := c.Pause(t.Context(), api.ProcessTarget{ProcessRef: api.ProcessRef{ExecID: paused}})
	settled(t, r, err)
	keyed := c.WithKey("once")
	count := api.Exec{SessionID: id, Argv: []string{"sh", "-c", "echo x >>/tmp/count; wc -l </tmp/count"}}
	first, err := keyed.Exec(t.Context(), count)
	settled(t, first, err)

	// Who follows sees every byte once, at its place, and the receipt.
	var followed [2]strings.Builder
	var end *api.Receipt
	var following sync.WaitGroup
	follows := make(chan struct{})
	follow := sync.OnceFunc(func() { close(follows) })
	following.Go(func() {
		defer follow()
		var err error
		end, err = c.Watch(t.Context(), counter, "", func(e api.Event) error {
			follow()
			if e.Kind != "output" {
				return nil
			}
			s := &followed[map[string]int{"stdout": 0, "stderr": 1}[e.Stream]]
			if int64(s.Len()) != e.Offset {
				return fmt.Errorf("%s: bytes at %d come after %d", e.Stream, e.Offset, s.Len())
			}
			s.Write(e.Bytes)
			return nil
		})
		if err != nil {
			t.Errorf("follow: %v", err)
		}
	})

	<-follows
	way.do(t, d)

	if p, err := c.Process(t.Context(), paused); err != nil || p.State != api.StateRunning || !p.Paused {
		t.Errorf("what was paused is %+v, %v", p, err)
	}
	following.Wait()
	var want [2]strings.Builder
	for i := range 60 {
		fmt.Fprintln(&want[0], i+1)
		fmt.Fprintf(&want[1], "e%d\n", i+1)
	}
	if followed[0].String() != want[0].String() || followed[1].String() != want[1].String() {
		t.Errorf("followed: %d and %d bytes, want %d and %d", followed[0].Len(), followed[1].Len(), want[0].Len(), want[1].Len())
	}
	for _, k := range []struct {
		name, exec     string
		exit           int
		signal, stdout string
	}{
		{"counter", counter, 7, "", want[0].String()},
		{"ended meanwhile", short, 5, "", "begun\nwhile nobody was there\n"},
		{"died of a signal", killed, -1, "USR1", "begun\n"},
	} {
		r := ended(t, c, k.exec)
		if x := settled(t, r, nil).Payload.Exec; x.ExitCode != k.exit || x.Signal != k.signal || text(x.Stdout) != k.stdout {
			t.Errorf("%s: exit %d, signal %q, stdout %q", k.name, x.ExitCode, x.Signal, text(x.Stdout))
		}
	}
	if end == nil || end.Payload.Exec.ExitCode != 7 {
		t.Errorf("the follower got %+v", end)
	}

	// Input goes on, and knows what was written.
	if status := input("1", "one\n", false); status != api.ControlDuplicate {
		t.Errorf("an input that was written before is %s", status)
	}
	input("2", "two\n", true)
	if x := ended(t, c, reader).Payload.Exec; x == nil || text(x.Stdout) != "one\ntwo\nend\n" || x.ExitCode != 3 {
		t.Errorf("the reader: %+v", x)
	}
	r, err = c.Resume(t.Context(), api.ProcessTarget{ProcessRef: api.ProcessRef{ExecID: paused}})
	settled(t, r, err)
	shell(t, c, id, ": >/tmp/go")
	if x := ended(t, c, paused).Payload.Exec; x == nil || x.ExitCode != 4 {
		t.Errorf("what was paused ended as %+v", x)
	}

	// A key is a key, whoever the supervisor is.
	if r, err := keyed.Exec(t.Context(), count); err != nil || r.IntentID != first.IntentID || text(r.Payload.Exec.Stdout) != "1\n" {
		t.Errorf("the same again: %+v, %v", r, err)
	}

	// The session is what it was.
	if x := shell(t, c, id, "echo $TOKEN $PLAIN").Payload.Exec; text(x.Stdout) != "canary plain\n" {
		t.Errorf("environment: %q", text(x.Stdout))
	}
	if _, err := testbox.Init(open.Payload.Open.Enforced.Namespaces["pid"]); err != nil {
		t.Errorf("the session's init: %v", err)
	}
	if x := shell(t, c, id, "x=$(head -c 200000000 /dev/zero | tr '\\0' x); echo $x | wc -c").Payload.Exec; x.ErrorCode != api.CodeOOMKilled {
		t.Errorf("memory: %+v", x)
	}
	if x := shell(t, c, id, "i=0; while [ $i -lt 40 ]; do sleep 5 & i=$((i+1)); done").Payload.Exec; x.ExitCode == 0 {
		t.Error("processes: there are more than the ceiling says")
	}
	if r, err := c.Exec(t.Context(), api.Exec{SessionID: id, Argv: []string{"true"}, EnvPatch: map[string]api.EnvValue{"LD_PRELOAD": {Text: "x"}}}); err != nil || r.Outcome != api.OutcomeDenied {
		t.Errorf("policy: %+v, %v", r, err)
	}
	if x := ended(t, c, bounded).Payload.Exec; x == nil || x.Status != "timeout" || x.ErrorCode != api.CodeTimeout {
		t.Errorf("the time limit: %+v", x)
	}
	if x := ended(t, c, beyond).Payload.Exec; x == nil || x.ErrorCode != api.CodeSessionExpired {
		t.Errorf("the end of the session: %+v", x)
	}
	settledOnceAfter(t, d)
}

// TestAdoptedIsolation replaces the daemon, and the runner, under a session with an overlay, protected paths and a network: the
// connections of the relay go on, ceilings of running executions hold and are told, so are refusals from before and after; what
// was written is there to be looked at and committed; what stood for protected paths goes with the session (R133, R255).
func TestAdoptedIsolation(t *testing.T) {
	for _, way := range restarts {
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			adoptedIsolation(t, way)
		})
	}
}

func adoptedIsolation(t *testing.T, way restart) {
	d, _ := startOutside(t)
	c := d.Client()
	probes, over, shared := shared(t), shared(t), shared(t)
	build(t, filepath.Join(probes, "probe"), "./probe")
	if err := os.WriteFile(filepath.Join(over, "old"), []byte("old\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	id := opened(t, c, func(o *api.SessionOpen) {
		o.Target.Local.NetworkMode = "egress"
		o.Target.Local.Mounts = []api.Mount{
			{HostPath: probes, GuestPath: "/mnt/probe", Mode: "ro"}, {HostPath: over, GuestPath: "/data/over", Mode: "overlay"}, {HostPath: shared, GuestPath: "/data/shared", Mode: "rw"},
		}
	}).SessionID
	const until = "echo begun; while [ ! -e /tmp/go ]; do sleep 0.02; done; "
	running := map[string]string{}
	for name, ask := range map[string]struct {
		limits api.Limits
		script string
	}{
		"memory":   {api.Limits{MemoryBytes: 32 << 20}, until + "head -c 99M /dev/zero | tail; exit 5"},
		"pids":     {api.Limits{PIDs: 8}, until + "for i in 1 2 3 4 5 6 7 8 9 10 11 12; do sleep 0.2 & done; exit 0"},
		"cpu_time": {api.Limits{CPUTimeNS: int64(time.Second)}, until + "while :; do :; done"},
		"refused":  {api.Limits{}, "unshare -U true; " + until + "unshare -U true; /mnt/probe/probe echo 11.0.0.9:7; exit 6"},
		"holds":    {api.Limits{}, "exec /mnt/probe/probe hold beta.test:7"},
	} {
		running[name] = begun(t, c, api.Exec{SessionID: id, Limits: ask.limits}, ask.script)
	}
	for _, x := range running {
		wrote(t, c, x)
	}
	shell(t, c, id, "echo new >/data/over/old; echo before >/data/over/before")

	way.do(t, d)

	held := func() int {
		p, err := c.Output(t.Context(), running["holds"], api.Read{})
		if err != nil || p.End {
			t.Fatalf("the connection: %+v, %v", p, err)
		}
		var n int
		for _, chunk := range p.Output {
			n += len(chunk.Bytes)
		}
		return n
	}
	was := held()
	eventually(t, "the connection is used", func() bool { return held() > was })
	shell(t, c, id, "echo after >/data/over/after; echo pwned >/data/over/.envrc; echo pwned >/data/shared/.envrc; : >/tmp/go")

	for _, ceiling := range []string{"memory", "pids", "cpu_time"} {
		x := ended(t, c, running[ceiling]).Payload.Exec
		if x == nil || !slices.ContainsFunc(x.LimitsHit, func(h api.LimitHit) bool { return h.Ceiling == ceiling && h.Scope == "execution" }) {
			t.Errorf("the ceiling of %s: %+v", ceiling, x)
		}
	}
	told := map[string]int64{}
	for _, r := range ended(t, c, running["refused"]).Payload.Exec.Denials {
		told[r.Layer] += r.Count
	}
	if told["seccomp"] != 2 || told["network"] != 1 {
		t.Errorf("refusals from before and after: %v", told)
	}

	r, err := c.Narrow(t.Context(), api.SessionNarrow{SessionID: id, Network: api.GrantNetwork{Mode: "none"}})
	settled(t, r, err)
	if x := ended(t, c, running["holds"]).Payload.Exec; !slices.ContainsFunc(x.Denials, func(d api.Denial) bool { return d.Rule == "narrowed" }) || x.Network == nil || x.Network.Connections != 1 {
		t.Errorf("the connection ended as %+v", x)
	}

	diff, err := c.Diff(t.Context(), api.Workspace{SessionID: id})
	if err != nil {
		t.Fatal(err)
	}
	var changes []string
	for _, ch := range diff.Changes {
		changes = append(changes, ch.Kind+" "+ch.Path)
	}
	if want := []string{"added after", "added before", "modified old"}; !slices.Equal(changes, want) {
		t.Errorf("changes %q, want %q", changes, want)
	}
	if old, err := os.ReadFile(filepath.Join(over, "old")); err != nil || string(old) != "old\n" {
		t.Errorf("outside before the commit: %q, %v", old, err)
	}
	r, err = c.Commit(t.Context(), api.Workspace{SessionID: id, Paths: []string{"old", "after"}})
	settled(t, r, err)
	for name, want := range map[string]string{"old": "new\n", "after": "after\n", "before": "", ".envrc": ""} {
		if got, err := os.ReadFile(filepath.Join(over, name)); string(got) != want || (err != nil) != (want == "") {
			t.Errorf("%s outside: %q, %v", name, got, err)
		}
	}
	if reserved, err := os.ReadFile(filepath.Join(shared, ".envrc")); err != nil || len(reserved) > 0 {
		t.Errorf("what stands for a protected path: %q, %v", reserved, err)
	}
	settledOnceAfter(t, d)
	if left, err := os.ReadDir(shared); err != nil || len(left) > 0 {
		t.Errorf("left in the caller's directory: %v, %v", left, err)
	}
}

// settledOnceAfter stops the daemon, and looks at what it leaves on the disk.
func settledOnceAfter(t *testing.T, d *testbox.Daemon) (interrupted int) {
	t.Helper()
	if err := closeAll(d); err != nil {
		t.Error(err)
	}
	if err := d.Stop(); err != nil {
		t.Fatal(err)
	}
	verified(t, d)
	return settledOnce(t, d.State)
}

// TestHangup replaces the daemon again and again while callers connect: it is the same process,
// nobody is refused, every operation with a key takes place once, and the program is the one
// that lies there by then.
func TestHangup(t *testing.T) {
	needRoot(t)
	// A place of its own for the commands, which are replaced, too.
	own, err := os.MkdirTemp("", "stockade-bin-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(own) })
	chmod(t, own, 0o755)
	install := func() {
		for _, name := range []string{"stockade", "stockaded", "stockade-run", "stockade-init"} {
			copied(t, filepath.Join(bin, name), filepath.Join(own, name))
		}
	}
	install()
	d := startIn(t, own)
	c := d.Client()
	id := opened(t, c, nil).SessionID
	pid := d.PID()

	ctx, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	var asked atomic.Int64
	for i := range 4 {
		all.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				conn, err := net.Dial("unix", d.Socket)
				if err != nil {
					t.Errorf("connect: %v", err)
					return
				}
				conn.Close()
				word := fmt.Sprintf("%d-%d", i, n)
				if err := insisted(c.WithKey(word), api.Exec{SessionID: id, Argv: []string{"sh", "-c", "echo " + word + " >>/tmp/ran; echo " + word}}, word+"\n"); err != nil {
					t.Error(err)
					return
				}
				asked.Add(1)
			}
		})
	}
	const times = 5
	for range times {
		time.Sleep(100 * time.Millisecond)
		install()
		replaced(t, d)
		same, err := sameFile(fmt.Sprintf("/proc/%d/exe", pid), filepath.Join(own, "stockaded"))
		if err != nil || !same {
			t.Errorf("the process does not run the program that lies there: %v", err)
		}
	}
	stop()
	all.Wait()
	if d.PID() != pid || !d.Running() {
		t.Error("the process is another")
	}
	x := shell(t, c, id, "sort /tmp/ran | uniq | wc -l; wc -l </tmp/ran").Payload.Exec
	if want := fmt.Sprintf("%d\n%d\n", asked.Load(), asked.Load()); text(x.Stdout) != want {
		t.Errorf("ran %q, asked %q", text(x.Stdout), want)
	}
	t.Logf("%d commands over %d replacements", asked.Load(), times)
	settledOnceAfter(t, d)
}

// copied puts a copy of a program in the place of another.
func copied(t testing.TB, from, to string) {
	t.Helper()
	program, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to+".new", program, 0o755)
	}
	if err == nil {
		err = os.Rename(to+".new", to)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func sameFile(a, b string) (bool, error) {
	x, err := os.Stat(a)
	if err != nil {
		return false, err
	}
	y, err := os.Stat(b)
	return err == nil && os.SameFile(x, y), err
}

// insisted carries out an exec with a key, however often the connection is lost.
func insisted(c *client.Client, ask api.Exec, stdout string) error {
	for end := time.Now().Add(comesAbout); ; time.Sleep(5 * time.Millisecond) {
		r, err := c.Exec(context.Background(), ask)
		if err == nil {
			if r.Outcome != api.OutcomeOK || text(r.Payload.Exec.Stdout) != stdout {
				return fmt.Errorf("%v: %s %s %s, stdout %q", ask.Argv, r.Outcome, r.ErrorCode, r.ErrorMessage, text(r.Payload.Exec.Stdout))
			}
			return nil
		}
		if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" || time.Now().After(end) {
			return err
		}
	}
}

// TestRunnerDies kills the runner under work of every kind. Whatever was in its sessions is dead, each
// open intent is settled faulted exactly once, by the daemon that saw it or by the next one, and
// the next one serves (item 6, R255).
func TestRunnerDies(t *testing.T) {
	for _, k := range []struct {
		name string
		kill func(*testing.T, *testbox.Daemon)
	}{
		{"under a daemon", func(t *testing.T, d *testbox.Daemon) {
			killRunner(t, d)
			if !d.Ended(comesAbout) {
				t.Error("the daemon goes on without a runner")
			}
		}},
		{"after its daemon", func(t *testing.T, d *testbox.Daemon) {
			d.Kill()
			killRunner(t, d)
		}},
		{"before its daemon", func(t *testing.T, d *testbox.Daemon) {
			killRunner(t, d)
			d.Kill()
		}},
	} {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			d := start(t)
			c := d.Client()
			var execs []string
			mine := shared(t)
			for range 3 {
				id := opened(t, c, func(o *api.SessionOpen) {
					o.Target.Local.Mounts = []api.Mount{{HostPath: mine, GuestPath: "/work", Mode: "rw"}}
				}).SessionID
				for range 2 {
					x := begun(t, c, api.Exec{SessionID: id}, "echo begun; sleep 1000")
					wrote(t, c, x)
					execs = append(execs, x)
				}
			}
			k.kill(t, d)
			again(t, d)
			for _, x := range execs {
				r := ended(t, c, x)
				if r.Outcome != api.OutcomeFaulted || r.Payload.Exec.ExitCode == 0 {
					t.Errorf("%s: %s %s, exit %d", x, r.Outcome, r.ErrorCode, r.Payload.Exec.ExitCode)
				}
				if p, err := c.Output(t.Context(), x, api.Read{}); err != nil || len(p.Output) != 1 || string(p.Output[0].Bytes) != "begun\n" || !p.End {
					t.Errorf("%s: what it wrote is %+v, %v", x, p, err)
				}
			}
			if list, err := c.Sessions(t.Context(), api.Read{State: "ready"}); err != nil || len(list) > 0 {
				t.Errorf("%d sessions outlived their runner, %v", len(list), err)
			}
			if left, err := os.ReadDir(mine); err != nil || len(left) > 0 { // the next runner has removed what stood for protected paths
				t.Errorf("left in the caller's directory: %v, %v", left, err)
			}
			if err := once(t.Context(), d); err != nil {
				t.Error(err)
			}
			settledOnceAfter(t, d)
		})
	}
}

func killRunner(t *testing.T, d *testbox.Daemon) {
	t.Helper()
	runner := d.Runner()
	if runner == 0 {
		t.Fatal("there is no runner")
	}
	if err := unix.Kill(runner, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the runner is dead", func() bool { return d.Runner() != runner })
}

// TestNotAdopted: a session that was to end with its supervisor has ended, and all have where nobody
// came in time. Their executions are settled, and nothing of them is left while there is no daemon.
func TestNotAdopted(t *testing.T) {
	for _, k := range []struct {
		name     string
		hold     string
		restart  string // on_restart
		lives    bool
		patience time.Duration
	}{
		{"adopt", "10s", "adopt", true, 0},
		{"terminate", "10s", "terminate", false, 0},
		{"in time", "10s", "", true, 500 * time.Millisecond},
		{"too late", "200ms", "", false, time.Minute},
		{"not held", "0s", "", false, time.Minute},
	} {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			d := start(t, "--hold", k.hold)
			c := d.Client()
			id := opened(t, c, func(o *api.SessionOpen) { o.OnRestart = k.restart }).SessionID
			x := begun(t, c, api.Exec{SessionID: id}, "echo begun; sleep 1000")
			wrote(t, c, x)
			d.Kill()
			if !k.lives && k.patience > 0 {
				os.Remove(d.Socket) // a kill leaves the name, and nothing else
				left, err := d.Left()
				if err != nil || len(left) > 0 {
					t.Errorf("without a daemon, after %s: %q, %v", k.hold, left, err)
				}
			} else {
				time.Sleep(k.patience)
			}
			again(t, d)
			if k.lives {
				eventually(t, "the command is known to run", func() bool {
					p, err := c.Process(t.Context(), x)
					return err == nil && p.State == api.StateRunning
				})
			} else if r := ended(t, c, x); r.Outcome != api.OutcomeFaulted || r.ErrorCode != api.CodeSupervisorRestarted {
				t.Errorf("the command ended as %s %s", r.Outcome, r.ErrorCode)
			}
			s, err := c.Session(t.Context(), id)
			if err != nil || (s.State == "ready") != k.lives {
				t.Errorf("the session is %+v, %v", s, err)
			}
			settledOnceAfter(t, d)
		})
	}
}

// TestQueuedIsNotAdopted: what waited for its turn when the daemon was killed never started, and is
// settled so (R052).
func TestQueuedIsNotAdopted(t *testing.T) {
	d := start(t)
	c := d.Client()
	id := opened(t, c, nil).SessionID
	s, err := c.Session(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	var execs []string
	for range s.Grant.Ceilings.Executions {
		x := begun(t, c, api.Exec{SessionID: id}, "echo begun; sleep 1000")
		execs = append(execs, x)
	}
	for _, x := range execs {
		wrote(t, c, x)
	}
	waits := begun(t, c, api.Exec{SessionID: id}, ": >/tmp/ran")
	if p, err := c.Process(t.Context(), waits); err != nil || p.State != api.StateQueued {
		t.Fatalf("beyond the limit it is %+v, %v", p, err)
	}
	d.Kill()
	again(t, d)
	if r := ended(t, c, waits); r.Outcome != api.OutcomeFaulted || r.ErrorCode != api.CodeSupervisorRestarted {
		t.Errorf("what waited is %s %s", r.Outcome, r.ErrorCode)
	}
	r, err := c.Stop(t.Context(), api.ProcessStop{SessionID: id, GraceNS: new(int64)})
	if settled(t, r, err).Payload.Control.Count != int64(len(execs)) {
		t.Errorf("%d were stopped, not %d", r.Payload.Control.Count, len(execs))
	}
	if x := shell(t, c, id, "test -e /tmp/ran").Payload.Exec; x.ExitCode != 1 {
		t.Error("it ran")
	}
	settledOnceAfter(t, d)
}
