package integration

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/internal/journal"
	"github.com/stockade-dev/stockade/internal/testbox"
	"github.com/stockade-dev/stockade/supervisor/api"
)

// How often daemon and runner are killed. STOCKADE_SOAK=1 has the second number.
var (
	atEachPoint = soak(20, 100)
	atRandom    = soak(200, 2000)
)

const (
	loads    = 6 // daemons at a time
	callers  = 3 // of each
	servesIn = 2 * time.Second
)

// soak is how much of something there is in an ordinary run, and in a long one.
func soak(ordinary, long int) int {
	if os.Getenv("STOCKADE_SOAK") == "1" {
		return long
	}
	return ordinary
}

// A batch is a number of kills of one kind, on one state directory, and what then must hold.
type batch struct {
	name    string
	point   string // "" is at random
	kills   int
	args    []string
	shipped bool // the policy is
	campaign
}

// campaign is who dies, and how.
type campaign struct {
	mortal    bool // the runner
	forgetful bool
	provoke   func(*testbox.Daemon) // what leads to the point, beyond the load
}

// small has everything that happens from time to time happen often, and compiles the policy no more than need be.
var small = []string{"--segment-bytes", "65536", "--snapshot-every", "100", "--policy-workers", "1"}

// trimmed has the past go, too.
var trimmed = []string{"--segment-bytes", "65536", "--snapshot-every", "100", "--policy-workers", "1", "--retain-every", "100ms", "--history-age", remembered.String(),
	"--journal-bytes", "100000", "--blob-grace", "1s", "--output-per-session", "50000"}

// TestCrashes kills daemon and runner under a load of every kind, at each failpoint and at random instants, and
// starts them again on the same directory each time. Whatever was answered stays as it was answered, to
// the byte, and once; a key stands for one receipt and for one run; a command has run when its receipt says so, once, with
// the status and the output that it had, and not when it says otherwise; nothing is left of what is over;
// the journal verifies; the next one serves in time (R110, R115 to R140, R248 to R255, T091). STOCKADE_CRASH
// chooses some of it, by a regular expression.
func TestCrashes(t *testing.T) {
	t.Parallel()
	needRoot(t)
	bin := crashing(t)
	var batches []batch
	for _, point := range failpoints(t) {
		if elsewhere[point] != "" {
			continue
		}
		b := batch{name: point, point: point, kills: atEachPoint, args: small}
		switch {
		case strings.HasPrefix(point, "runner."):
			b.campaign = campaign{mortal: true, provoke: provocations[point]}
		case strings.HasPrefix(point, "journal.trim."), strings.HasPrefix(point, "supervisor.retain."), point == "blob.swept":
			b.args, b.campaign = trimmed, campaign{forgetful: true}
		}
		batches = append(batches, b)
	}
	for n := range 8 {
		batches = append(batches, batch{name: fmt.Sprintf("random %d", n), kills: (atRandom + 7) / 8, args: small, shipped: n < 2})
	}
	// What takes long first, so that nobody waits for it in the end.
	slices.SortStableFunc(batches, func(a, b batch) int { return cmp.Compare(b.patience(), a.patience()) })
	var work sync.WaitGroup
	next := make(chan batch)
	var took sample
	for range loads {
		work.Go(func() {
			for b := range next {
				begin := time.Now()
				b.run(t, bin, &took)
				t.Logf("%s: %v", b.name, time.Since(begin).Round(time.Millisecond))
			}
		})
	}
	some := regexp.MustCompile(os.Getenv("STOCKADE_CRASH"))
	for _, b := range batches {
		if some.MatchString(b.name) {
			next <- b
		}
	}
	close(next)
	work.Wait()
	t.Logf("%d restarts: serving again after p50 %v, p99 %v, at most %v", len(took.all), took.at(0.5), took.at(0.99), took.at(1))
}

// elsewhere are points that no supervisor comes to, and why.
var elsewhere = map[string]string{
	"journal.trim.signed":        "it has its journal signed before it trims it; the tests of the journal come by there",
	"supervisor.policy.recorded": "another policy is activated now and then; TestPolicyFailpoints of the supervisor does nothing else",
}

// provocations lead to points that no caller leads to.
var provocations = map[string]func(*testbox.Daemon){
	"runner.hold":     func(d *testbox.Daemon) { d.Kill() },
	"runner.saved":    hangupRunner,
	"runner.replaced": hangupRunner,
}

func hangupRunner(d *testbox.Daemon) {
	if runner := d.Runner(); runner != 0 {
		_ = unix.Kill(runner, unix.SIGHUP)
	}
}

// crashing are the commands with failpoints.
func crashing(t *testing.T) string {
	t.Helper()
	built := filepath.Join(bin, "failpoint")
	if _, err := os.Stat(built); err == nil {
		return built
	}
	dir, err := os.MkdirTemp("", "stockade-bin-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	chmod(t, dir, 0o755)
	if err := testbox.Build(dir, "failpoint"); err != nil {
		t.Fatal(err)
	}
	return dir
}

// failpoints are all that the tree has, found by reading it.
func failpoints(t *testing.T) []string {
	t.Helper()
	hit := regexp.MustCompile(`failpoint\.Hit\("([^"]+)"\)`)
	found := map[string]bool{}
	for _, top := range []string{"cmd", "internal", "sandbox", "supervisor"} {
		err := filepath.WalkDir(filepath.Join("..", top), func(path string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			source, err := os.ReadFile(path)
			for _, m := range hit.FindAllSubmatch(source, -1) {
				found[string(m[1])] = true
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if len(found) == 0 {
		t.Fatal("the tree has no failpoints")
	}
	return slices.Sorted(maps.Keys(found))
}

// run makes the kills of a batch, and then looks at everything that is left.
func (b batch) run(t *testing.T, bin string, took *sample) {
	var errs []error
	fail := func(err error) bool {
		if err != nil {
			errs = append(errs, err)
		}
		return err != nil
	}
	var dirs [3]string // of the daemon, of what its sessions see of the host, and of its policy
	for i := range dirs {
		var err error
		if dirs[i], err = os.MkdirTemp("", "stockade-"); err == nil {
			err = os.Chmod(dirs[i], 0o755)
		}
		if fail(err) {
			break
		}
		defer os.RemoveAll(dirs[i])
	}
	k := &killer{batch: b, took: took}
	if len(errs) == 0 && !fail(k.begin(bin, dirs[0], dirs[1], dirs[2])) {
		ctx, abort := context.WithCancel(context.Background())
		defer abort()
		enough := make(chan struct{})
		var load sync.WaitGroup
		load.Go(func() { k.load.run(ctx, callers, enough) })
		killed := !fail(k.kill())
		close(enough)
		if !killed {
			abort()
		}
		load.Wait()
		if killed {
			fail(k.audit())
		}
		for _, wrong := range k.load.faults() {
			fail(errors.New(wrong))
		}
		k.d.Kill()
	}
	if len(errs) > 0 {
		log := ""
		if k.d != nil {
			log = k.d.Log()
		}
		t.Errorf("%s: %d misses: %v\nthe end of the daemon's log:\n%s", b.name, k.missed, errors.Join(errs...), tail(log))
	}
}

// A killer kills one daemon, or its runner, again and again.
type killer struct {
	batch
	d      *testbox.Daemon
	load   *load
	took   *sample
	before testbox.Residue
	chosen string // file with the failpoint of the next runner
	missed int
}

func (k *killer) begin(bin, dir, work, rules string) (err error) {
	args := slices.Clone(k.args)
	policy, err := k.policy(bin, rules)
	if err != nil {
		return err
	}
	args = append(args, "--policy", policy)
	if k.mortal {
		// The failpoint is the runner's, and the daemon gives it no environment of its own.
		k.chosen = filepath.Join(work, "point")
		script := filepath.Join(work, "stockade-run")
		text := fmt.Sprintf("#!/bin/sh\nSTOCKADE_FAILPOINT=$(cat %s) exec %s/stockade-run \"$@\"\n", k.chosen, bin)
		if err := errors.Join(os.WriteFile(k.chosen, nil, 0o600), os.WriteFile(script, []byte(text), 0o700)); err != nil {
			return err
		}
		args = append(args, "--runner-binary", script)
	}
	if k.d, err = testbox.Start(bin, dir, testbox.Options{Args: args}); err != nil {
		return err
	}
	k.load = newLoad(k.d, work)
	if err := os.Mkdir(k.load.over(), 0o755); err != nil {
		return err
	}
	k.load.mortal, k.load.forgetful, k.load.favoured = k.mortal, k.forgetful, leading(k.point)
	if k.before, err = k.d.Used(context.Background(), func(ctx context.Context) error { return once(ctx, k.d) }); err != nil {
		k.d.Kill()
	}
	return err
}

// policy is one that wants leave for some commands: the shipped one, or one that loads in no time.
func (k *killer) policy(bin, dir string) (string, error) {
	policy := filepath.Join(dir, "policy")
	if !k.shipped {
		return policy, os.CopyFS(policy, os.DirFS("testdata/campaign"))
	}
	if err := initPolicy(bin, policy); err != nil {
		return "", err
	}
	data, err := json.Marshal(map[string]any{
		"timeout_ns": int64(time.Minute), "exec": []any{map[string]any{"argv": needsLeave}}, "mounts": []any{}, "networks": []any{}, "operations": []any{}, "files": []any{},
	})
	if err != nil {
		return "", err
	}
	return policy, os.WriteFile(filepath.Join(policy, "approval", "data.json"), data, 0o644)
}

// kill makes the kills, and leaves a daemon that serves.
func (k *killer) kill() error {
	time.Sleep(100 * time.Millisecond)
	k.d.Kill()
	most := 6 // hits of the point that a daemon may live through
	switch {
	case k.provoke != nil:
		most = 1
	case k.forgetful, strings.HasPrefix(k.point, "journal.roll."), strings.HasPrefix(k.point, "supervisor.snapshot."):
		most = 2 // it comes by from time to time only
	}
	for died := 0; died < k.kills; {
		nth := 1 + rand.IntN(most)
		hit, err := k.life(nth)
		if err != nil {
			return fmt.Errorf("kill %d, hit %d: %w", died, nth, err)
		}
		if hit {
			died++
			continue
		}
		if most = max(1, nth/2); k.missed > k.kills {
			return fmt.Errorf("the point was reached %d times, and missed %d", died, k.missed)
		}
		k.missed++
	}
	if err := k.sound(); err != nil {
		return fmt.Errorf("as the last kill left it: %w", err)
	}
	k.d.Env = nil
	if err := k.choose(""); err != nil {
		return err
	}
	return k.d.Start()
}

// sound checks everything on the disk that can be checked, as an operator can.
func (k *killer) sound() error {
	for _, check := range [][]string{{"stockade", "receipts", "verify"}, {"stockaded", "fsck", "--deep"}} {
		cmd := exec.Command(filepath.Join(k.d.Bin, check[0]), append(check[1:], "--state", k.d.State)...)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%q: %w\n%s", check, err, out)
		}
	}
	return nil
}

func (k *killer) choose(point string) error {
	if k.chosen == "" {
		return nil
	}
	return os.WriteFile(k.chosen, []byte(point), 0o600)
}

// patience is how long a point may take to be reached: what happens in time comes later than what callers do.
func (b batch) patience() time.Duration {
	if b.forgetful {
		return 15 * time.Second // a machine that is busy comes to a trim seldom
	}
	return 1500 * time.Millisecond
}

// life is one life of a daemon, from its start to its death. It reports whether it died as it should.
func (k *killer) life(nth int) (hit bool, err error) {
	if k.point != "" && !k.mortal {
		k.d.Env = []string{fmt.Sprintf("STOCKADE_FAILPOINT=%s:%d", k.point, nth)}
	}
	if err := k.choose(fmt.Sprintf("%s:%d", k.point, nth)); err != nil {
		return false, err
	}
	begin := time.Now()
	if err := k.d.Launch(); err != nil {
		return false, err
	}
	if k.point == "" && rand.IntN(4) == 0 { // before it serves
		time.Sleep(rand.N(80 * time.Millisecond))
		k.d.Kill()
		return true, nil
	}
	if err := k.d.Ready(); err != nil {
		if k.d.Killed() && k.point != "" {
			return true, nil
		}
		return false, err
	}
	if took := k.took.add(time.Since(begin)); took > 3*servesIn { // others may be at work here
		k.load.fault("it served after %v only", took)
	}
	switch {
	case k.mortal:
		return k.runnerLife()
	case k.point == "":
		k.load.recheck(context.Background())
		time.Sleep(rand.N(250 * time.Millisecond))
		k.d.Kill()
		return true, nil
	}
	go k.load.recheck(context.Background())
	if !k.d.Ended(k.patience()) {
		k.d.Kill()
		return false, nil
	}
	if !k.d.Killed() {
		return false, fmt.Errorf("it ended by itself:\n%s", tail(k.d.Log()))
	}
	return true, nil
}

// runnerLife waits for the death of a runner, after which its daemon ends by itself.
func (k *killer) runnerLife() (hit bool, err error) {
	runner := k.d.Runner()
	pidfd, err := unix.PidfdOpen(runner, 0)
	if err != nil {
		return false, fmt.Errorf("runner %d: %w", runner, err)
	}
	defer unix.Close(pidfd)
	if k.provoke != nil {
		time.Sleep(rand.N(200 * time.Millisecond))
		k.provoke(k.d)
	}
	dead := func() bool {
		poll := []unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}
		n, _ := unix.Poll(poll, 10)
		return n > 0
	}
	for end := time.Now().Add(k.patience()); !dead() && time.Now().Before(end); {
	}
	if hit = dead(); !hit {
		_ = unix.PidfdSendSignal(pidfd, unix.SIGKILL, nil, 0) // at random, then
	}
	if !k.d.Ended(20 * time.Second) {
		return false, errors.New("the daemon goes on without a runner")
	}
	return hit, nil
}

// audit looks at what a load leaves when all of it has come to its end, and at what a daemon leaves that
// was stopped in order then.
func (k *killer) audit() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	l, d := k.load, k.d
	var errs []error
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }

	l.mu.Lock()
	l.fresh = slices.Sorted(maps.Keys(l.kept))
	l.mu.Unlock()
	l.recheck(ctx)
	ran, err := l.ran()
	if err != nil {
		return err
	}
	for key, n := range ran {
		if n > 1 {
			fail("%s ran %d times", key, n)
		}
	}
	for key, r := range l.results {
		switch runs := ran[key]; {
		case r == nil || r.Outcome != api.OutcomeOK:
			if runs > 0 && !k.mortal {
				fail("%s ran, and its receipt says: %+v", key, r)
			}
		case runs != 1 && r.Payload.Exec.Signal == "": // what is killed may not come to its first line
			fail("%s ran %d times, and its receipt says: %+v", key, runs, r.Payload.Exec)
		}
	}
	for _, half := range l.halves() {
		fail("committed: %s", half)
	}
	if live := settle(func() []string { return k.orphans(ctx) }); len(live) > 0 {
		fail("orphans: %q", live)
	}
	if err := closeAll(d); err != nil {
		fail("%v", err)
	}
	l.http.CloseIdleConnections()
	if !k.mortal { // it is the same runner: it holds what it held
		left, err := d.Scope().Settle(k.before, testbox.SettleWithin)
		if err != nil || len(left) > 0 {
			fail("it holds more than it held: %q, %v", left, err)
		}
	}
	if err := d.Stop(); err != nil {
		fail("%v", err)
	}
	if left, err := d.Left(); err != nil || len(left) > 0 {
		fail("left behind: %q, %v", left, err)
	}
	if err := k.sound(); err != nil {
		fail("%v", err)
	}
	if _, err := audit(d.State, l.kept); err != nil {
		fail("%v", err)
	}
	for line := range strings.Lines(d.Log()) {
		if strings.Contains(line, "bug:") || strings.Contains(line, "panic") || strings.Contains(line, "level=ERROR") && !k.mortal {
			fail("log: %s", line)
		}
	}
	return errors.Join(errs...)
}

// orphans are what the runner has of sessions that nobody knows, and processes of commands that are over.
func (k *killer) orphans(ctx context.Context) (found []string) {
	known := map[string]bool{}
	sessions, err := live(ctx, k.d)
	if err != nil {
		return []string{err.Error()}
	}
	for _, s := range sessions {
		known[s.SessionID] = true
	}
	boxes, err := os.ReadDir(filepath.Join("/run/stockade", k.d.Instance(), "boxes"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return []string{err.Error()}
	}
	for _, b := range boxes {
		if !known[b.Name()] {
			found = append(found, "session "+b.Name())
		}
	}
	if len(boxes) != len(known) {
		found = append(found, fmt.Sprintf("%d sessions of which the runner has %d", len(known), len(boxes)))
	}
	return append(found, testbox.Executing(k.d.Instance())...)
}

// settle repeats a look until it finds nothing, or until that has taken too long.
func settle(look func() []string) []string {
	for end := time.Now().Add(testbox.SettleWithin); ; time.Sleep(20 * time.Millisecond) {
		if found := look(); len(found) == 0 || time.Now().After(end) {
			return found
		}
	}
}

// audit reads a journal that nobody writes: each intent that it has is settled, once, and each receipt that
// was answered is in it as it was answered, unless it was trimmed. It returns how many
// intents there are, and how many were cut off by a restart.
func audit(state string, answered map[string][]byte) (facts struct{ intents, interrupted int }, err error) {
	var errs []error
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	receipts := map[string]int{}
	var first struct{ seq, settled int64 } // of the records that there are
	first.seq = -1
	if err := journal.Scan(filepath.Join(state, "journal"), func(seq int64, rec []byte) error {
		var r struct {
			Type     string         `json:"type"`
			IntentID string         `json:"intent_id"`
			Receipt  jsontext.Value `json:"receipt"`
		}
		if err := json.Unmarshal(rec, &r); err != nil {
			return err
		}
		if first.seq < 0 {
			first.seq = seq
		}
		switch r.Type {
		case "intent":
			receipts[r.IntentID] += 0
		case "receipt":
			var settled struct {
				IntentID  string   `json:"intent_id"`
				ErrorCode api.Code `json:"error_code"`
				AtNS      int64    `json:"settled_at_ns"`
			}
			if err := json.Unmarshal(r.Receipt, &settled); err != nil {
				return err
			}
			first.settled = cmp.Or(first.settled, settled.AtNS)
			if _, asked := receipts[settled.IntentID]; !asked && first.seq == 0 {
				fail("record %d settles %q, which was not asked before", seq, settled.IntentID)
			}
			receipts[settled.IntentID]++
			if settled.ErrorCode == api.CodeSupervisorRestarted {
				facts.interrupted++
			}
			if told, ok := answered[settled.IntentID]; ok && !bytes.Equal(bytes.TrimSpace(told), r.Receipt) {
				fail("record %d is not what was answered:\n  %s\n  %s", seq, r.Receipt, told)
			}
		}
		return nil
	}); err != nil {
		return facts, err
	}
	for id, n := range receipts {
		if n != 1 {
			fail("%s has %d receipts", id, n)
		}
	}
	for id, told := range answered {
		if receipts[id] > 0 {
			continue
		}
		var r api.Receipt
		// Receipts get their times before their places: two that are settled at once may change places.
		if err := json.Unmarshal(told, &r); err != nil || first.seq == 0 || r.SettledAtNS > first.settled+int64(time.Second) {
			fail("%s was answered and is not on record: %s, %v", id, told, err)
		}
	}
	facts.intents = len(receipts)
	return facts, errors.Join(errs...)
}

// TestRestartBehindLongPast starts the real daemon on a journal with 100,000 receipts, from the first record and from
// a snapshot. The bar is two seconds on a machine that does nothing else; here others may be at work, and make bench
// has the figure. The receipts are there, and it serves.
func TestRestartBehindLongPast(t *testing.T) {
	const receipts, within = 100_000, 3 * servesIn
	d := start(t)
	if err := d.Past(t.Context(), receipts); err != nil {
		t.Fatal(err)
	}
	for _, from := range []string{"the first record", "a snapshot"} {
		begin := time.Now()
		again(t, d)
		took := time.Since(begin)
		t.Logf("from %s: %v", from, took.Round(time.Millisecond))
		if took > within {
			t.Errorf("from %s it served after %v", from, took)
		}
		list, err := d.Client().Receipts(t.Context(), api.Read{Op: api.OpExec, Limit: 1000})
		if err != nil || len(list) != 1000 {
			t.Errorf("%d receipts, %v", len(list), err)
		}
		if err := once(t.Context(), d); err != nil {
			t.Error(err)
		}
		if err := d.Stop(); err != nil { // which takes a snapshot
			t.Fatal(err)
		}
	}
	facts, err := audit(d.State, nil)
	if err != nil || facts.intents < receipts {
		t.Errorf("%d intents, %v", facts.intents, err)
	}
}

// A sample is how long things took.
type sample struct {
	mu  sync.Mutex
	all []time.Duration
}

func (s *sample) add(d time.Duration) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, d)
	return d
}

func (s *sample) at(quantile float64) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	slices.Sort(s.all)
	return at(s.all, quantile)
}
