package supervisor

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stockade-dev/stockade/supervisor/api"
)

// aging is a bench with a clock that can be put forward, and rounds of retention only when they are asked for.
type aging struct {
	*bench
	ahead *atomic.Int64 // ns
}

func startAging(t *testing.T, change func(*Config)) *aging {
	return (&aging{bench: &bench{t: t, fake: newFake(), state: t.TempDir() + "/state"}, ahead: new(atomic.Int64)}).startAgain(change)
}

// startAgain begins another supervisor on the same directory and runner.
func (a *aging) startAgain(change func(*Config)) *aging {
	a.t.Helper()
	a.fake.now = func() time.Time { return time.Now().Add(time.Duration(a.ahead.Load())) }
	b := startOn(a.t, a.fake, a.state, func(c *Config) {
		c.Now = a.fake.now
		c.Defaults.RetainEvery = time.Hour
		c.Defaults.SnapshotEvery = 1 << 40
		if change != nil {
			change(c)
		}
	})
	return &aging{b, a.ahead}
}

// age puts the clock, and the time of every blob, by so much apart.
func (a *aging) age(d time.Duration) {
	a.t.Helper()
	a.ahead.Add(int64(d))
}

func (a *aging) round() {
	a.t.Helper()
	if err := a.retain(a.t.Context()); err != nil {
		a.t.Error(err)
	}
}

func (a *aging) spooled() (ids []string) {
	a.t.Helper()
	all, err := a.spool.List()
	if err != nil {
		a.t.Error(err)
	}
	for _, k := range all {
		ids = append(ids, k.ID)
	}
	return ids
}

// removed waits until an execution's output is: a round that was due, for much output, goes beside the test's.
func (a *aging) removed(id string) {
	a.t.Helper()
	for limit := time.Now().Add(10 * time.Second); slices.Contains(a.spooled(), id); time.Sleep(time.Millisecond) {
		if time.Now().After(limit) {
			a.t.Fatalf("the output of %s is still there", id)
		}
	}
}

// sound replays and checks the files.
func (a *aging) sound() *FsckReport {
	a.t.Helper()
	r, err := Fsck(a.state, FsckOptions{Deep: true})
	if err != nil || !r.OK {
		a.t.Errorf("%+v %v", r, err)
	}
	return r
}

func (a *aging) receipt(intent string) (*api.Receipt, error) {
	r, _, err := a.Receipt(a.t.Context(), &api.Request{Op: api.OpReceiptGet, Principal: alice, Read: &api.Read{IntentID: intent}})
	return r, err
}

// R240: what ended long ago leaves the view, with its output and its session; what lives stays, however old. Once
// there is nothing old, nothing is recorded.
func TestHistoryAge(t *testing.T) {
	a := startAging(t, func(c *Config) { c.Defaults.HistoryAge = 20 * time.Minute })
	defer a.stop()
	alive, over := a.session(), a.session()
	running := a.launch(api.Exec{SessionID: alive, Argv: []string{"sleep"}})
	old := a.exec(alive, "echo", "old")
	a.exec(over, "true")
	a.close(over)
	a.age(21 * time.Minute) // the sessions may live for an hour
	fresh := a.exec(alive, "echo", "fresh")
	a.round()
	for _, c := range []struct {
		exec string
		code api.Code
	}{{running.ExecID, ""}, {old.ExecID, api.CodeExecNotFound}, {fresh.ExecID, ""}} {
		_, _, err := a.Process(t.Context(), &api.Request{Op: api.OpProcessGet, Principal: alice, Read: &api.Read{ExecID: c.exec}})
		if code(err) != c.code {
			t.Errorf("%s: %v", c.exec, err)
		}
	}
	for id, want := range map[string]api.Code{alive: "", over: api.CodeSessionNotFound} {
		if _, _, err := a.Session(t.Context(), &api.Request{Op: api.OpSessionGet, Principal: alice, Read: &api.Read{SessionID: id}}); code(err) != want {
			t.Errorf("%s: %v", id, err)
		}
	}
	if ids := a.spooled(); slices.Contains(ids, old.ExecID) || !slices.Contains(ids, fresh.ExecID) || !slices.Contains(ids, running.ExecID) {
		t.Errorf("output of %v", ids)
	}
	if got, _ := a.outputOf(old.ExecID, cursor{}); got["stdout"] != "old" { // its receipt has it
		t.Errorf("%q", got)
	}
	if r, err := a.receipt(old.IntentID); err != nil || r.ExecID != old.ExecID {
		t.Errorf("%+v %v", r, err)
	}
	for a.frames(running.IntentID) == "" { // that it has started is written a moment later
		time.Sleep(time.Millisecond)
	}
	next := a.journal.Next()
	a.round()
	if a.journal.Next() != next {
		t.Error("a round that found nothing has recorded something")
	}
	a.sound()
	a.signal(alive, "KILL")
}

// C13: of a session's ended executions so much output is kept, the newest; what a receipt holds can be read
// nevertheless, and what nothing holds any more is said to be gone.
func TestOutputPerSession(t *testing.T) {
	a := startAging(t, func(c *Config) { c.Defaults.OutputPerSession = 100_000 })
	defer a.stop()
	id, other := a.session(), a.session()
	running := a.launch(api.Exec{SessionID: id, Argv: []string{"sleep"}})
	elsewhere := a.exec(other, "flood", "90000")
	inline := a.exec(id, "both")
	blob := a.exec(id, "flood", "60000")
	// Neither inline nor a blob: the output is nowhere but in its file.
	overflow := a.execute(api.Exec{SessionID: id, Argv: []string{"flood", "30000"}, OutputMode: "require_inline"})
	if got, _ := a.outputOf(overflow.ExecID, cursor{}); got["stdout"] != string(pattern(30000)) {
		t.Fatalf("%d bytes", len(got["stdout"]))
	}
	newest := a.exec(id, "flood", "95000")
	a.round()
	a.removed(inline.ExecID) // of what goes, the last
	ids := a.spooled()
	for _, c := range []struct {
		exec   string
		stays  bool
		stdout string
	}{
		{elsewhere.ExecID, true, string(pattern(90000))},
		{newest.ExecID, true, string(pattern(95000))},
		{inline.ExecID, false, "out"},
		{blob.ExecID, false, string(pattern(60000))},
		{overflow.ExecID, false, ""},
	} {
		if slices.Contains(ids, c.exec) != c.stays {
			t.Errorf("%s: it is there: %t", c.exec, !c.stays)
		}
		if got, _ := a.outputOf(c.exec, cursor{}); got["stdout"] != c.stdout {
			t.Errorf("%s: %d bytes", c.exec, len(got["stdout"]))
		}
	}
	if !slices.Contains(ids, running.ExecID) {
		t.Error("the output of a live execution is gone")
	}
	page := func(after string) *api.Pending {
		t.Helper()
		p, _, err := a.Output(t.Context(), &api.Request{Op: api.OpOutput, Principal: alice, Read: &api.Read{ExecID: overflow.ExecID, After: after}})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	p := page("1.100.0")
	if p.Gone == nil || p.Gone.From != "1.100.0" || p.Gone.FirstAvailable != "1.30000.0" || len(p.Output) != 0 || p.End {
		t.Errorf("%+v %+v", p, p.Gone)
	}
	if p = page(p.Gone.FirstAvailable); p.Gone != nil || !p.End || p.Receipt == nil {
		t.Errorf("%+v", p)
	}
	events := a.follow(overflow.ExecID, "", 0)
	if last := events[len(events)-1]; last.Kind != "gone" || last.Cursor != "1.30000.0" || last.Gone.From != "1.0.0" {
		t.Errorf("%+v", events)
	}
	a.sound()
	a.signal(id, "KILL")
}

// When much output has come to rest nobody waits for the next round.
func TestOutputIsRemovedInBetween(t *testing.T) {
	a := startAging(t, func(c *Config) { c.Defaults.OutputPerSession = 100_000 })
	defer a.stop()
	id := a.session()
	first := a.exec(id, "flood", "90000")
	a.exec(id, "flood", "90000")
	a.removed(first.ExecID)
}

// A crash in the middle of a removal leaves a part of the output: it is not taken for all of it.
func TestOutputRemovedByHalf(t *testing.T) {
	a := startAging(t, nil)
	defer a.stop()
	x := a.exec(a.session(), "both")
	for _, name := range []string{"chunks", "stdout"} {
		if err := os.Remove(filepath.Join(a.state, "spool", x.ExecID+"."+name)); err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
	}
	if got, _ := a.outputOf(x.ExecID, cursor{}); got["stdout"] != "out" || got["stderr"] != "err" {
		t.Errorf("%q", got)
	}
}

// R251: a blob stays as long as a record names it, and while it may be about to be named.
func TestBlobRetention(t *testing.T) {
	a := startAging(t, nil)
	defer a.stop()
	id := a.session()
	read := a.put("read by a command")
	a.execute(api.Exec{SessionID: id, Argv: []string{"cat"}, StdinRef: read})
	written := a.exec(id, "flood", "50000").Payload.Exec.Stdout.Blob.BlobRef
	nobodys, _, err := a.blobs.Put(strings.NewReader("named by nobody"), "")
	if err != nil {
		t.Fatal(err)
	}
	a.round()
	if !a.blobs.Has(nobodys) {
		t.Error("content that was put a moment ago is gone")
	}
	a.age(8 * 24 * time.Hour) // out of view, and in the journal
	a.round()
	if a.blobs.Has(nobodys) {
		t.Error("content that nobody names is still there")
	}
	for _, ref := range []string{read, written} {
		if !a.blobs.Has(ref) {
			t.Errorf("%s is named, and gone", ref)
		}
	}
	a.sound()

	// Who is about to name content that nobody names makes it young first.
	late, _, err := a.blobs.Put(strings.NewReader("named late"), "")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(a.state, "blobs", late[7:9], late[7:])
	if err := os.Chtimes(file, time.Time{}, time.Now().Add(-time.Hour)); err != nil {
		t.Fatal(err)
	}
	in, err := openStdin(&api.Exec{StdinRef: late}, a.blobs, &a.stdins)
	if err != nil {
		t.Fatal(err)
	}
	defer in.end()
	if info, err := os.Stat(file); err != nil || time.Since(info.ModTime()) > time.Minute {
		t.Errorf("%v %v", info.ModTime(), err)
	}
}

// fill writes so many refusals that the journal goes on to its next files.
func (a *aging) fill(session string, files int) (intents []string) {
	a.t.Helper()
	before, _ := a.journal.Cut()
	for n := 0; n < files; {
		intents = append(intents, a.exec(session, "true", "forbidden").IntentID)
		if now := a.segments(); now > files {
			return intents
		}
		if len(intents) > 5000 {
			a.t.Fatalf("from %d on, nothing is there to be trimmed", before)
		}
	}
	return intents
}

func (a *aging) segments() int {
	names, err := filepath.Glob(filepath.Join(a.state, "journal", "*.seg"))
	if err != nil {
		a.t.Fatal(err)
	}
	return len(names)
}

func trimming(c *Config) {
	c.Defaults.SegmentBytes = 64 << 10
	c.Defaults.JournalAge = 30 * 24 * time.Hour
}

// Issue item 5: records go that are old and that nothing needs; whoever asks for them is told so, and everything
// else works, over restarts too. What nothing names any more goes with them.
func TestTrim(t *testing.T) {
	a := startAging(t, trimming)
	first := a.session()
	old := a.exec(first, "flood", "50000")
	oldBlob := old.Payload.Exec.Stdout.Blob.BlobRef
	a.close(first)
	id := a.session()
	lost := a.fill(id, 3)
	a.close(id)
	a.round()
	if a.journal.First() != 0 {
		t.Fatal("what is not old was trimmed")
	}
	a.age(31 * 24 * time.Hour)
	live := a.session()
	kept := a.exec(live, "flood", "60000")
	running := a.launch(api.Exec{SessionID: live, Argv: []string{"sleep"}})
	for range 3 {
		a.exec(live, "true")
		a.round()
	}
	cut := a.journal.First()
	if cut == 0 {
		t.Fatal("nothing was trimmed")
	}
	why := a.exec(live, "true")
	check := func(when string) {
		t.Helper()
		for _, intent := range []string{old.IntentID, lost[0]} {
			if _, err := a.receipt(intent); code(err) != api.CodeGone {
				t.Errorf("%s: the receipt of %s: %v", when, intent, err)
			}
		}
		if _, _, err := a.Watch(t.Context(), &api.Request{Op: api.OpProcessWatch, Principal: alice, Read: &api.Read{ExecID: old.ExecID}}, func(api.Event) {}); code(err) != api.CodeGone {
			t.Errorf("%s: the output of %s: %v", when, old.ExecID, err)
		}
		if r, err := a.receipt(kept.IntentID); err != nil || r.ExecID != kept.ExecID {
			t.Errorf("%s: %+v %v", when, r, err)
		}
		if got, _ := a.outputOf(kept.ExecID, cursor{}); got["stdout"] != string(pattern(60000)) {
			t.Errorf("%s: %d bytes of output", when, len(got["stdout"]))
		}
		if frames := a.frames(kept.IntentID); frames == "" {
			t.Errorf("%s: no frames", when)
		}
		if a.blobs.Has(oldBlob) || !a.blobs.Has(kept.Payload.Exec.Stdout.Blob.BlobRef) {
			t.Errorf("%s: the old blob is there: %t", when, a.blobs.Has(oldBlob))
		}
		list, _, err := a.Receipts(t.Context(), &api.Request{Op: api.OpReceiptList, Principal: alice, Read: &api.Read{Limit: 1000}})
		if err != nil || len(list.Receipts) < 5 {
			t.Errorf("%s: %v %v", when, list, err)
		}
		if d, err := ReadDecision(a.state, why.IntentID); err != nil || encode(t, d.Input.Ceiling) != encode(t, a.ceiling) {
			t.Errorf("%s: %+v %v", when, d, err)
		}
		if r := a.sound(); r.Replay.From == 0 || r.Replay.First != a.journal.First() {
			t.Errorf("%s: %+v", when, r.Replay)
		}
		if p, _, err := a.Process(t.Context(), &api.Request{Op: api.OpProcessGet, Principal: alice, Read: &api.Read{ExecID: running.ExecID}}); err != nil || p.State != api.StateRunning {
			t.Errorf("%s: %+v %v", when, p, err)
		}
	}
	check("trimmed")
	before := a.digest()
	if r, err := Replay(a.state, ReplayOptions{Records: before.records, Digest: before.digest, Verify: true}); err != nil || !r.OK() {
		t.Errorf("%+v %v", r, err)
	}
	if err := a.Leave(context.Background()); err != nil {
		t.Fatal(err)
	}
	a.stopPolicy()
	a = a.startAgain(trimming)
	check("started again")

	// With its snapshots the journal loses what stands for the records that went.
	a.signal(live, "KILL")
	a.stop()
	list, err := a.taken.dir.list()
	if err != nil || len(list) != 2 {
		t.Fatal(list, err)
	}
	if err := os.WriteFile(a.taken.dir.name(list[0]), []byte("damaged"), 0o600); err != nil {
		t.Fatal(err)
	}
	a = a.startAgain(trimming) // from the older one
	a.stop()
	if err := os.RemoveAll(filepath.Join(a.state, "snapshots")); err != nil {
		t.Fatal(err)
	}
	if _, err := New(t.Context(), a.cfg); err == nil || !strings.Contains(err.Error(), "no snapshot in") {
		t.Errorf("%v", err)
	}
	if _, err := Replay(a.state, ReplayOptions{}); err == nil || !strings.Contains(err.Error(), "no snapshot leads up to it") {
		t.Errorf("%v", err)
	}
	if r, err := Fsck(a.state, FsckOptions{}); err != nil || r.OK {
		t.Errorf("%+v %v", r, err)
	}
}

// What lives keeps its records, whatever their age and the size of the journal.
func TestTrimLeavesWhatLives(t *testing.T) {
	a := startAging(t, func(c *Config) {
		trimming(c)
		c.Defaults.JournalBytes = 64 << 10
	})
	defer a.stop()
	id := a.session()
	running := a.launch(api.Exec{SessionID: id, Argv: []string{"sleep"}})
	a.fill(id, 4)
	a.age(365 * 24 * time.Hour)
	for range 3 {
		a.exec(id, "true", "forbidden")
		a.round()
	}
	if first := a.journal.First(); first != 0 {
		t.Errorf("the journal begins with %d", first)
	}
	a.signal(id, "KILL")
	if r := a.ends(running.ExecID); r == nil {
		t.Error("it has no receipt")
	}
	a.age(8 * 24 * time.Hour)
	for range 4 {
		a.exec(a.session(), "true", "forbidden")
		a.round()
	}
	if size := a.journal.Size(); size > 3*64<<10 {
		t.Errorf("the journal has %d bytes", size)
	}
	a.sound()
}

// R134, R135: what keeps the supervisor from being quiet is named, with owner, operation, age and the place in
// its stream, of every principal; when it has settled nothing is. While it is drained, nothing new begins.
func TestQuiescence(t *testing.T) {
	a := startAging(t, nil)
	defer a.stop()
	ask := func() *api.Quiescence {
		t.Helper()
		q, denial, err := a.Supervisor.Quiescence(t.Context(), &api.Request{Op: api.OpQuiescence, Principal: api.Principal{}, Read: &api.Read{}})
		if err != nil || denial != nil {
			t.Fatal(denial, err)
		}
		return q
	}
	if q := ask(); !q.Quiet || q.Draining || len(q.Intents) != 0 || q.Sessions != 0 {
		t.Errorf("%+v", q)
	}
	id := a.session()
	running := a.launch(api.Exec{SessionID: id, Argv: []string{"sleep"}})
	for limit := time.Now().Add(10 * time.Second); a.stateOf(running.ExecID) != api.StateRunning && time.Now().Before(limit); {
		time.Sleep(time.Millisecond)
	}
	if r := a.do(api.Request{Op: api.OpDrain, Drain: &api.Drain{}}); r.Outcome != api.OutcomeOK {
		t.Fatalf("%+v", r)
	}
	a.age(time.Minute)
	q := ask()
	if q.Quiet || !q.Draining || q.Sessions != 1 || q.Executions != 1 || len(q.Intents) != 1 {
		t.Fatalf("%+v", q)
	}
	if in := q.Intents[0]; in.IntentID != running.IntentID || in.Op != api.OpExec || in.Principal.UID != alice.UID || in.ExecID != running.ExecID ||
		in.AgeNS < int64(time.Minute) || in.FrameSeq != 1 || in.Outcome != "" {
		t.Errorf("%+v", in)
	}
	for what, r := range map[string]*api.Receipt{"open": a.open(), "exec": a.exec(id, "true")} {
		if r.ErrorCode != api.CodeDraining {
			t.Errorf("%s: %s", what, r.ErrorCode)
		}
	}
	a.signal(id, "KILL")
	a.ends(running.ExecID)
	if q := ask(); !q.Quiet || !q.Draining || len(q.Intents) != 0 || q.Executions != 0 {
		t.Errorf("%+v", q)
	}
	if r := a.do(api.Request{Op: api.OpDrain, Drain: &api.Drain{Undo: true}}); r.Outcome != api.OutcomeOK || ask().Draining {
		t.Errorf("%+v", r)
	}
	a.session()
}

// R252: a blob that a record rests on and that is not there, or is another, is found, in a fixed order; one that a
// refused request asked for is none. Nothing is changed and nothing is started.
func TestMissingBlobs(t *testing.T) {
	a := startAging(t, nil)
	id := a.session()
	in := a.put("in")
	none := "sha256:" + strings.Repeat("0", 64)
	if r := a.execute(api.Exec{SessionID: id, Argv: []string{"cat"}, StdinRef: none}); r.ErrorCode != api.CodeStdinRefNotFound {
		t.Fatalf("%+v", r)
	}
	a.execute(api.Exec{SessionID: id, Argv: []string{"cat"}, StdinRef: in})
	out := a.exec(id, "flood", "40000").Payload.Exec.Stdout.Blob.BlobRef
	before := a.digest()
	a.sound()
	a.stop()
	remove := func(ref string) {
		t.Helper()
		if err := os.Remove(filepath.Join(a.state, "blobs", ref[7:9], ref[7:])); err != nil {
			t.Fatal(err)
		}
	}
	remove(in)
	file := filepath.Join(a.state, "blobs", out[7:9], out[7:])
	if err := os.Chmod(file, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(file, 39999); err != nil {
		t.Fatal(err)
	}
	want := []string{in, out}
	slices.Sort(want)
	calls := len(a.fake.calls)
	for range 2 {
		r, err := Replay(a.state, ReplayOptions{Verify: true})
		if err != nil || r.OK() || len(r.Findings) != 2 {
			t.Fatalf("%+v %v", r, err)
		}
		for i, f := range r.Findings {
			if f.Code != "missing_cas_dependency" || f.Subject != want[i] || f.Seq == nil {
				t.Errorf("%+v", f)
			}
		}
	}
	r, err := Fsck(a.state, FsckOptions{Deep: true})
	if err != nil || r.OK || len(r.Findings) != 3 || r.Findings[2].Code != FindingBlob {
		t.Errorf("%+v %v", r, err)
	}
	if r, err := Replay(a.state, ReplayOptions{Records: before.records, Digest: before.digest}); err != nil || !r.OK() {
		t.Errorf("%+v %v", r, err)
	}
	if r, err := Replay(a.state, ReplayOptions{Records: before.records - 1, Digest: before.digest}); err != nil || r.OK() || r.Findings[0].Code != FindingDigest {
		t.Errorf("%+v %v", r, err)
	}
	if _, err := Replay(a.state, ReplayOptions{Records: before.records + 1000}); err == nil {
		t.Error("a journal is longer than it is")
	}
	if len(a.fake.calls) != calls {
		t.Errorf("replay called %v", a.fake.calls[calls:])
	}
}

// What fsck finds that is no loss, and what is.
func TestFsck(t *testing.T) {
	a := startAging(t, nil)
	a.exec(a.session(), "echo", "x")
	a.stop()
	stray := filepath.Join(a.state, "spool", "x-stray.stdout")
	for _, name := range []string{stray, filepath.Join(a.state, "journal", "notes.txt")} {
		if err := os.WriteFile(name, []byte("?"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r := a.sound()
	var codes []FindingCode
	for _, f := range r.Findings {
		codes = append(codes, f.Code)
	}
	if !slices.Equal(codes, []FindingCode{FindingUnknown, FindingSpool}) || r.Spool.Count != 2 || r.Replay.Snapshots != 1 || r.Journal.Unsigned != 0 {
		t.Errorf("%v %+v", codes, r)
	}
	a = a.startAgain(nil)
	a.round()
	a.stop()
	if _, err := os.Stat(stray); !os.IsNotExist(err) {
		t.Errorf("the stray: %v", err)
	}
	if err := os.WriteFile(filepath.Join(a.state, "salt"), []byte("short"), 0o600); err != nil {
		t.Fatal(err)
	}
	segments, err := filepath.Glob(filepath.Join(a.state, "journal", "*.seg"))
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(segments[0])
	if err != nil {
		t.Fatal(err)
	}
	b[300] ^= 1
	if err := os.WriteFile(segments[0], b, 0o600); err != nil {
		t.Fatal(err)
	}
	r, err = Fsck(a.state, FsckOptions{})
	if err != nil || r.OK || r.Replay != nil || r.Findings[0].Code != FindingJournal || !slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Code == FindingSalt }) {
		t.Errorf("%+v %v", r, err)
	}
	if _, err := Fsck(filepath.Join(a.state, "nowhere"), FsckOptions{}); err == nil {
		t.Error("a directory that is not there is sound")
	}
}
