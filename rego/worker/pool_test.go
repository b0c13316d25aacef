package worker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/policies"
	"github.com/stockade-dev/stockade/rego"
	"github.com/stockade-dev/stockade/sandbox"
	"github.com/stockade-dev/stockade/supervisor/api"
)

// tree is a policy whose open says what is given; the other entry points allow.
func tree(open string) fstest.MapFS {
	files := fstest.MapFS{"open.rego": {Data: []byte("package stockade.open\n\n" + open)}}
	for _, name := range []string{"exec", "signal", "blob", "read"} {
		files[name+".rego"] = &fstest.MapFile{Data: fmt.Appendf(nil, "package stockade.%s\n\ndecision := {\"allow\": true, \"deny\": []}\n", name)}
	}
	return files
}

// patient are options for a machine that may be busy: only what is said to be late is.
func patient(o Options) Options {
	if o.Deadline == 0 {
		o.Deadline = 30 * time.Second
	}
	if o.CPU == 0 {
		o.CPU = 30 * time.Second
	}
	return o
}

func load(t testing.TB, fsys fstest.MapFS, o Options) *Pool {
	t.Helper()
	p, err := Load(fsys, patient(o))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// full waits until all workers wait, the spare among them.
func full(t testing.TB, p *Pool) {
	t.Helper()
	for end := time.Now().Add(startWithin); !atEase(p); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%+v", p.State())
		}
	}
}

// atEase reports whether all workers wait that there are, and there are enough.
func atEase(p *Pool) bool {
	s := p.State()
	return s.Ready >= atRest && len(s.PIDs) == s.Ready
}

// occupied has a pool so busy that it has all the workers that it may have.
func occupied(t testing.TB, p *Pool) {
	t.Helper()
	var held []*process
	for range p.options.Size + 1 {
		w, err := p.take(t.Context(), 0, startWithin)
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, w)
	}
	for _, w := range held {
		p.give(w)
	}
}

// input asks for a session with so many mounts of the caller's own directories.
func input(mounts int) rego.Input {
	open := &api.SessionOpen{Target: api.Target{Local: &api.Local{}}}
	in := rego.Input{
		Request: &api.Request{Op: api.OpSessionOpen, Principal: api.Principal{UID: 1000, GID: 1000}, Facade: "http", Open: open},
		Facts:   rego.Facts{Sources: map[string]rego.Source{}},
		Ceiling: sandbox.DefaultCeiling(),
		NowNS:   1_700_000_000_000_000_000,
	}
	for i := range mounts {
		host := fmt.Sprintf("/home/alice/%d", i)
		open.Target.Local.Mounts = append(open.Target.Local.Mounts, api.Mount{HostPath: host, GuestPath: fmt.Sprintf("/workspace/%d", i), Mode: "rw"})
		in.Facts.Sources[host] = rego.Source{Found: &rego.Found{Resolved: host, Kind: "dir", Dev: 1, Ino: 100, OwnerUID: 1000, Mode: 0o755}}
	}
	return in
}

// decider is what both an engine and a pool are.
type decider interface {
	Decide(ctx context.Context, ref string, in rego.Input) rego.Decision
}

// executing asks to execute something in a session that p grants.
func executing(t testing.TB, p decider) rego.Input {
	t.Helper()
	in := input(1)
	d := p.Decide(t.Context(), rego.Open, in)
	if !d.Allow {
		t.Fatal(d.Deny)
	}
	in.Session = &rego.Session{SessionID: "s1", Profile: "workspace", Principal: in.Request.Principal, Grant: d.Grant, StartedAtNS: in.NowNS}
	in.Request = &api.Request{Op: api.OpExec, Principal: in.Request.Principal, Facade: "http", Exec: &api.Exec{
		SessionID: "s1",
		Argv:      []string{"go", "test", "./..."},
		EnvPatch:  map[string]api.EnvValue{"GOFLAGS": {Text: "-mod=mod"}},
	}}
	in.Facts = rego.Facts{}
	return in
}

// do has a script do something and returns the first reason why it was denied.
func do(t testing.TB, p *Pool, deed string) api.Deny {
	t.Helper()
	in := input(0)
	in.Request.Open.Profile = deed
	d := p.Decide(t.Context(), rego.Open, in)
	if d.Allow || d.Grant != nil || len(d.Deny) == 0 {
		t.Fatalf("%s: %+v", deed, d)
	}
	return d.Deny[0]
}

// TestSameAsEngine: a decision is the same whichever process evaluates it, rules and bytes included.
func TestSameAsEngine(t *testing.T) {
	engine, err := rego.Load(policies.FS, rego.Options{Deadline: 30 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer engine.Close()
	pool, err := Load(policies.FS, patient(Options{}))
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	if pool.Digest() != engine.Digest() {
		t.Errorf("%s and %s", pool.Digest(), engine.Digest())
	}
	for _, q := range rego.Questions() {
		if pool.Defines(q.Entrypoint) != engine.Defines(q.Entrypoint) {
			t.Errorf("%s: only one defines it", q.Entrypoint)
		}
	}
	denied := input(1)
	denied.Request.Open.Target.Local.NetworkMode = "full"
	large := input(0)
	large.Request.Open.Labels = map[string]string{"x": strings.Repeat("x", 1<<20)}
	for _, question := range []struct {
		name, ref string
		in        rego.Input
		allow     bool
	}{
		{"an open", rego.Open, input(20), true},
		{"a denied one", rego.Open, denied, false},
		{"an exec", rego.Exec, executing(t, engine), true},
		{"no entry point", "data.stockade.none.decision", input(0), false},
		{"too large", rego.Open, large, false},
	} {
		want, got := engine.Decide(t.Context(), question.ref, question.in), pool.Decide(t.Context(), question.ref, question.in)
		want.Elapsed, got.Elapsed = 0, 0
		if diff := gocmp.Diff(want, got); diff != "" || got.Allow != question.allow {
			t.Errorf("%s: %v %v %s", question.name, got.Allow, got.Deny, diff)
		}
		if question.allow && len(got.Policy.Rules) == 0 {
			t.Errorf("%s: no rule", question.name)
		}
	}
}

// TestLoadRefuses: what keeps a policy from loading is said as the engine says it, and a host, or a program, with which workers
// cannot be confined has no pool.
func TestLoadRefuses(t *testing.T) {
	lacking := tree("decision := {}")
	delete(lacking, "exec.rego")
	for name, fsys := range map[string]fstest.MapFS{
		"syntax":      tree("no"),
		"builtin":     tree(`decision := http.send({"method": "get", "url": "http://localhost"})`),
		"entry point": lacking,
		"data":        {"data.json": {Data: []byte("{")}},
	} {
		_, want := rego.Load(fsys, rego.Options{})
		p, err := Load(fsys, Options{})
		if err == nil {
			p.Close()
		}
		if want == nil || err == nil || err.Error() != want.Error() {
			t.Errorf("%s: %v, not %v", name, err, want)
		}
	}
	for name, row := range map[string]struct{ program, want []string }{
		"no program":            {[]string{"/none"}, []string{"no such file"}},
		"no worker":             {as("ends"), []string{"the process has ended: exit status 1"}},
		"one that cannot":       {as("unwilling"), []string{""}},
		"one that is not":       {as("bare"), []string{"confine: ", "the kernel says", "descriptor"}},
		"one of another policy": {as("stranger"), []string{"it has read"}},
	} {
		p, err := Load(tree("decision := {}"), patient(Options{Program: row.program}))
		if err == nil {
			p.Close()
		}
		if err == nil || !slices.ContainsFunc(row.want, func(w string) bool { return strings.Contains(err.Error(), w) }) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestAttempts (R109): what a worker that has been taken over tries ends it, and that request alone. The same attempts
// end differently where no filter is.
func TestAttempts(t *testing.T) {
	out, err := exec.Command("/proc/self/exe", Argument, "acts").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for what := range attempts {
		if !strings.Contains(string(out), what+": ") {
			t.Errorf("%s ends a process without a filter as well: the proof proves nothing\n%s", what, out)
		}
	}
	p := load(t, tree(""), Options{Program: as("script"), Options: rego.Options{MaxOverruns: 1000}})
	for what := range attempts {
		full(t, p)
		before := p.State()
		deny := do(t, p, "try "+what)
		if deny.Code != api.CodePolicyWorker {
			t.Errorf("%s: %v", what, deny)
		}
		if deny := do(t, p, "say still"); deny.Code != "still" {
			t.Errorf("after %s: %v", what, deny)
		}
		full(t, p)
		if after := p.State(); after.Replaced != before.Replaced+1 {
			t.Errorf("%s: %+v, then %+v", what, before, after)
		}
	}
	// What has no file left is there all the same: time zones.
	if deny := do(t, p, "zone Asia/Tokyo"); deny.Code != "09:00" {
		t.Errorf("time zone: %v", deny)
	}
}

// TestConfined: each wall stands, by the kernel's word, in every worker that waits. confined is what Load asks; the roles of
// TestLoadRefuses are its negative control.
func TestConfined(t *testing.T) {
	inherited, err := os.Open("/etc/passwd")
	if err != nil {
		t.Fatal(err)
	}
	defer inherited.Close()
	if _, err := unix.FcntlInt(inherited.Fd(), unix.F_SETFD, 0); err != nil { // as whoever starts a daemon may leave it
		t.Fatal(err)
	}
	p := load(t, tree("decision := {}"), Options{})
	full(t, p)
	seen := map[string]bool{}
	for _, pid := range p.State().PIDs {
		o := order{Apart: isRoot(), UID: firstUID + uint32(pid)}
		if err := confined(pid, o); err != nil {
			t.Errorf("%d: %v", pid, err)
		}
		if !o.Apart {
			continue
		}
		limits, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", pid))
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range []string{"Max core file size        0 ", "Max file size             0 ", "Max open files            16 ", "Max processes             64 "} {
			if !strings.Contains(string(limits), line) {
				t.Errorf("%d: no %q in\n%s", pid, line, limits)
			}
		}
		for _, kind := range []string{"mnt", "net", "pid", "ipc", "uts", "cgroup"} {
			ours, _ := os.Readlink("/proc/self/ns/" + kind)
			theirs, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", pid, kind))
			if err != nil || theirs == ours || seen[theirs] {
				t.Errorf("%d: namespace %s is %s, not its own: %v", pid, kind, theirs, err)
			}
			seen[theirs] = true
		}
	}
	if !isRoot() {
		t.Log("not root: no namespaces, no identity, no empty root to look at")
	}
}

// TestMemory: a worker that wants more than it may have ends; with more, the same is no trouble.
func TestMemory(t *testing.T) {
	for _, row := range []struct {
		memory int64
		code   api.Code
	}{{128 << 20, api.CodePolicyWorker}, {2 << 30, "hoarded"}} {
		p := load(t, tree(""), Options{Program: as("script"), Size: 1, Memory: row.memory})
		if deny := do(t, p, "hoard 400"); deny.Code != row.code {
			t.Errorf("%d MiB: %v", row.memory>>20, deny)
		}
		if deny := do(t, p, "say next"); deny.Code != "next" {
			t.Errorf("%d MiB: %v", row.memory>>20, deny)
		}
	}
}

// TestEndsMidDecision: a worker that dies, hangs or is stopped over a question denies that one, with a code of its own,
// and the next is answered.
func TestEndsMidDecision(t *testing.T) {
	p := load(t, tree(""), Options{Program: as("script"), Options: rego.Options{MaxOverruns: 1000}})
	killed := func(sig unix.Signal) func(*testing.T) api.Deny {
		return func(t *testing.T) api.Deny {
			waiting := p.State()
			answer := make(chan api.Deny)
			go func() { answer <- do(t, p, "sleep") }()
			for p.State().Ready == waiting.Ready {
				time.Sleep(time.Millisecond)
			}
			p.mu.Lock()
			for w := range p.live { // the one that does not wait
				if !slices.Contains(p.ready, w) {
					unix.Kill(w.os.Pid, sig)
				}
			}
			p.mu.Unlock()
			return <-answer
		}
	}
	for _, row := range []struct {
		name     string
		deadline time.Duration // 0: more than enough
		deny     func(*testing.T) api.Deny
		code     api.Code
	}{
		{"it is killed", 0, killed(unix.SIGKILL), api.CodePolicyWorker},
		{"it is stopped", 200 * time.Millisecond, killed(unix.SIGSTOP), api.CodePolicyTimeout},
		{"it exits", 0, func(t *testing.T) api.Deny { return do(t, p, "exit") }, api.CodePolicyWorker},
		{"it panics", 0, func(t *testing.T) api.Deny { return do(t, p, "panic") }, api.CodePolicyWorker},
		{"its stack overflows", 0, func(t *testing.T) api.Deny { return do(t, p, "recurse") }, api.CodePolicyWorker},
		{"it sleeps", 200 * time.Millisecond, func(t *testing.T) api.Deny { return do(t, p, "sleep") }, api.CodePolicyTimeout},
		{"it spins", 200 * time.Millisecond, func(t *testing.T) api.Deny { return do(t, p, "spin") }, api.CodePolicyTimeout},
	} {
		t.Run(row.name, func(t *testing.T) {
			full(t, p)
			p.options.Deadline = 30 * time.Second
			if row.deadline != 0 {
				p.options.Deadline = row.deadline
			}
			if deny := row.deny(t); deny.Code != row.code {
				t.Errorf("%v", deny)
			}
			p.options.Deadline = 30 * time.Second
			if deny := do(t, p, "say next"); deny.Code != "next" {
				t.Errorf("the next: %v", deny)
			}
			full(t, p)
		})
	}
}

// TestProcessorTime: a runaway evaluation is stopped by what it takes of the processor, long before its deadline; one that
// waits is not.
func TestProcessorTime(t *testing.T) {
	p := load(t, tree(""), Options{Program: as("script"), CPU: 100 * time.Millisecond})
	begin := time.Now()
	if deny := do(t, p, "spin"); deny.Code != api.CodePolicyTimeout || !strings.Contains(deny.Message, "processor") {
		t.Errorf("%v", deny)
	}
	if took := time.Since(begin); took > p.options.Deadline/2 {
		t.Errorf("it took %v", took)
	}
	p.options.Deadline = 500 * time.Millisecond
	if deny := do(t, p, "sleep"); deny.Code != api.CodePolicyTimeout || strings.Contains(deny.Message, "processor") {
		t.Errorf("%v", deny)
	}
}

// TestIdleWorkerEnds: a worker that ends while nobody has it is replaced, and nobody is denied for it.
func TestIdleWorkerEnds(t *testing.T) {
	p := load(t, tree(""), Options{Program: as("script")})
	for range 20 {
		full(t, p)
		pids := p.State().PIDs
		for _, pid := range pids {
			unix.Kill(pid, unix.SIGKILL)
		}
		gone(t, pids...)
		if deny := do(t, p, "say unharmed"); deny.Code != "unharmed" {
			t.Fatal(deny)
		}
	}
	full(t, p)
	if s := p.State(); s.Trouble != nil {
		t.Errorf("%+v", s)
	}
}

// TestQuarantine: a row of evaluations that end badly closes the revision; one that does not, in between, does not.
func TestQuarantine(t *testing.T) {
	p := load(t, tree(""), Options{Program: as("script"), Options: rego.Options{MaxOverruns: 2}})
	for range 4 {
		do(t, p, "exit")
		if deny := do(t, p, "say fine"); deny.Code != "fine" {
			t.Fatal(deny)
		}
	}
	do(t, p, "exit")
	do(t, p, "panic")
	if deny := do(t, p, "say fine"); deny.Code != api.CodePolicyQuarantined || deny.Subject != p.Digest() || !p.Quarantined() {
		t.Error(deny)
	}
}

// TestOwnAnswers: of many questions at once, each has its own answer, and more than there are workers wait for their turn.
func TestOwnAnswers(t *testing.T) {
	p := load(t, tree(""), Options{Program: as("script")})
	var all sync.WaitGroup
	for caller := range 16 {
		all.Go(func() {
			for i := range 100 {
				word := fmt.Sprintf("c%d.%d", caller, i)
				in := input(0)
				in.Request.Open.Profile = "say " + word
				if d := p.Decide(t.Context(), rego.Open, in); d.Allow || len(d.Deny) != 1 || d.Deny[0].Code != api.Code(word) {
					t.Errorf("%s: %v", word, d.Deny)
					return
				}
			}
		})
	}
	all.Wait()
	if s := p.State(); s.Replaced != 0 {
		t.Errorf("%+v", s)
	}
}

// TestNoWorkerIsFree: who waits for a worker waits no longer than an evaluation may take, or its caller wants.
func TestNoWorkerIsFree(t *testing.T) {
	p := load(t, tree(""), Options{Program: as("script"), Size: 1})
	full(t, p)
	ctx, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	defer all.Wait()
	defer stop()
	in := input(0)
	in.Request.Open.Profile = "sleep"
	for range p.options.Size + 1 {
		all.Go(func() {
			if d := p.Decide(ctx, rego.Open, in); d.Allow || d.Deny[0].Code != api.CodePolicyError {
				t.Errorf("%+v", d.Deny)
			}
		})
	}
	for p.State().Ready > 0 {
		time.Sleep(time.Millisecond)
	}
	w, err := p.take(t.Context(), 0, 50*time.Millisecond)
	if w != nil || err == nil || !strings.Contains(err.Error(), "no worker was free") {
		t.Errorf("%v %v", w, err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if w, err := p.take(gone, 0, time.Hour); w != nil || !errors.Is(err, context.Canceled) {
		t.Errorf("%v %v", w, err)
	}
}

// TestLastWorker: who had a worker end waits where others are served, and no longer than until there are two again.
func TestLastWorker(t *testing.T) {
	p := load(t, tree(""), Options{Program: as("script"), Size: 1})
	full(t, p)
	do(t, p, "exit") // by uid 1000
	full(t, p)
	held, err := p.take(t.Context(), 0, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if w, err := p.take(t.Context(), 1000, 20*time.Millisecond); err == nil || w != nil {
		t.Errorf("the last one: %v", err)
	}
	other, err := p.take(t.Context(), 1001, time.Minute)
	if err != nil {
		t.Fatalf("another: %v", err)
	}
	answer := make(chan api.Deny)
	go func() { answer <- do(t, p, "say patience") }()
	p.give(other)
	p.give(held)
	if deny := <-answer; deny.Code != "patience" {
		t.Error(deny)
	}
}

// TestCurrent: a revision has the processes that it needs, beginning with two. One that is asked no more about what is new has no more than
// these, answers, and has the others back when it needs them again.
func TestCurrent(t *testing.T) {
	p := load(t, tree(""), Options{Program: as("script"), Size: 4})
	settle := func(n int) {
		t.Helper()
		for end := time.Now().Add(startWithin); ; time.Sleep(time.Millisecond) {
			if s := p.State(); s.Ready == n && len(s.PIDs) == n {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("%+v, not %d", p.State(), n)
			}
		}
	}
	p.Current(true) // while they start
	settle(atRest)
	for range 3 {
		occupied(t, p)
		settle(5)
		p.Current(false)
		p.Current(false)
		settle(atRest)
		do(t, p, "exit")
		settle(atRest)
		if deny := do(t, p, "say old"); deny.Code != "old" {
			t.Error(deny)
		}
		p.Current(true)
	}
	occupied(t, p)
	held, err := p.take(t.Context(), 0, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	p.Current(false)
	p.give(held)
	settle(atRest)
	if w := p.Workers(); w.Processes != atRest || w.Replaced != 3 || len(w.Walls) < shared || w.Trouble != "" {
		t.Errorf("%+v", w)
	}
}

// TestClose: nothing of a pool stays, neither processes nor descriptors nor a wait, whatever was under way.
func TestClose(t *testing.T) {
	open := func() int {
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(entries)
	}
	var before int
	for round := range 3 {
		p, err := Load(tree(""), patient(Options{Program: as("script")}))
		if err != nil {
			t.Fatal(err)
		}
		if round > 0 { // otherwise while the others start
			full(t, p)
		}
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() { do(t, p, "sleep") })
		}
		if round > 0 {
			for p.State().Ready > 0 {
				time.Sleep(time.Millisecond)
			}
		}
		pids := p.State().PIDs
		p.Close()
		all.Wait()
		p.Close()
		for _, pid := range pids {
			if err := unix.Kill(pid, 0); err != unix.ESRCH {
				t.Errorf("%d is there: %v", pid, err)
			}
		}
		if deny := do(t, p, "say no"); deny.Code != api.CodePolicyWorker {
			t.Error(deny)
		}
		if round == 0 {
			before = open()
		} else if now := open(); now > before {
			t.Errorf("%d descriptors, then %d", before, now)
		}
	}
}

// TestEndsWithDaemon: no worker outlives the process that it belongs to, killed while some wait and some evaluate what does not
// end. Each of the two ways in which a worker notices is enough alone.
func TestEndsWithDaemon(t *testing.T) {
	t.Run("killed", func(t *testing.T) {
		cmd := exec.Command("/proc/self/exe", Argument, "daemon", "script", "spin", "sleep")
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		line := make([]byte, 256)
		n, _ := out.Read(line)
		cmd.Process.Kill()
		cmd.Wait()
		var pids []int
		for _, s := range strings.Fields(strings.Trim(string(line[:n]), "[]\n")) {
			var pid int
			fmt.Sscan(s, &pid)
			pids = append(pids, pid)
		}
		if len(pids) < 3 {
			t.Fatalf("%q", line[:n])
		}
		gone(t, pids...)
	})
	// Its thread lives, its socket does not.
	t.Run("socket", func(t *testing.T) {
		p := load(t, tree(""), Options{Program: as("script")})
		w, err := p.take(t.Context(), 0, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		for _, deed := range []string{"spin", ""} {
			if deed != "" {
				in := input(0)
				in.Request.Open.Profile = deed
				canonical, err := api.Encode(in)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := w.ask(t.Context(), rego.Open, canonical, 0, bounds{wall: 2 * tick}); !errors.Is(err, errLate) {
					t.Fatal(err)
				}
			}
			w.close()
			gone(t, w.os.Pid)
			if w, err = p.take(t.Context(), 0, time.Minute); err != nil {
				t.Fatal(err)
			}
		}
		p.give(w)
	})
	// Its socket is held open, its thread ends.
	t.Run("thread", func(t *testing.T) {
		started := make(chan *process)
		end := make(chan struct{})
		go func() {
			runtime.LockOSThread() // for ever
			w, err := spawn(as("script"))
			if err != nil {
				t.Error(err)
			}
			started <- w
			<-end
		}()
		w := <-started
		go w.wait()
		pack, err := pack(tree(""))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.prepare(t.Context(), 256<<20, false, pack); err != nil {
			t.Fatal(err)
		}
		close(end)
		gone(t, w.os.Pid)
		w.close()
	})
}

// gone waits for the end of processes, zombies included.
func gone(t *testing.T, pids ...int) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		pids = slices.DeleteFunc(pids, func(pid int) bool { return unix.Kill(pid, 0) == unix.ESRCH })
		if len(pids) == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("still there: %v", pids)
		}
	}
}

// TestServiceManager: TERM to all of a unit does not take the workers from decisions that are still to be given.
func TestServiceManager(t *testing.T) {
	p := load(t, tree(""), Options{Program: as("script")})
	full(t, p)
	before := p.State().PIDs
	for _, pid := range before {
		for _, sig := range []unix.Signal{unix.SIGTERM, unix.SIGINT, unix.SIGHUP} {
			unix.Kill(pid, sig)
		}
	}
	if deny := do(t, p, "say still here"); deny.Code != "still here" {
		t.Error(deny)
	}
	if s := p.State(); !slices.Equal(s.PIDs, before) {
		t.Errorf("%v, then %+v", before, s)
	}
}
