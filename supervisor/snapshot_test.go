package supervisor

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stockade-dev/stockade/internal/journal"
	"github.com/stockade-dev/stockade/supervisor/api"
	"github.com/stockade-dev/stockade/supervisor/ledger"
)

// live does something at random: mostly executions, of one session or another.
func (b *bench) live(random *rand.Rand, sessions *[]string, execs *[]string) {
	pick := func(of []string) string { return of[random.IntN(len(of))] }
	switch n := random.IntN(20); {
	case n < 2 || len(*sessions) == 0:
		*sessions = append(*sessions, b.session(func(o *api.SessionOpen) { o.Labels = map[string]string{"n": fmt.Sprint(len(*sessions))} }))
	case n == 2:
		b.open(func(o *api.SessionOpen) { o.Profile = "forbidden" })
	case n == 3:
		b.close(pick(*sessions))
	case n == 4 && len(*execs) > 0:
		b.control(api.OpProcessDelete, pick(*execs))
	case n == 5:
		ref := b.put("content " + fmt.Sprint(random.IntN(5)))
		b.execute(api.Exec{SessionID: pick(*sessions), Argv: []string{"cat"}, StdinRef: ref})
	case n == 6:
		key := fmt.Sprint("key", random.IntN(4))
		b.Do(context.Background(), &api.Request{Op: api.OpExec, Principal: alice, Key: key, Exec: &api.Exec{SessionID: (*sessions)[0], Argv: []string{"echo", key}}}, nil)
	case n == 7:
		b.execute(api.Exec{SessionID: pick(*sessions), Argv: []string{"true"}, StdinRef: "sha256:" + strings.Repeat("0", 64)}) // which is not there
	default:
		argv := [][]string{{"true"}, {"both"}, {"nope"}, {"flood", "20000"}, {"exit", "3"}, {"true", "forbidden"}, {"for", "8ms"}}[random.IntN(7)]
		if r := b.exec(pick(*sessions), argv...); r.ExecID != "" {
			*execs = append(*execs, r.ExecID)
		}
	}
}

func (b *bench) put(content string) (ref string) {
	b.t.Helper()
	r, err := b.PutBlob(context.Background(), &api.Request{Op: api.OpBlobPut, Principal: alice, Blob: &api.BlobPut{SizeBytes: int64(len(content))}}, strings.NewReader(content))
	if err != nil || r.Outcome != api.OutcomeOK {
		b.t.Fatal(r, err)
	}
	return r.Payload.Blob.BlobRef
}

// kill ends the supervisor as a kill does, as far as its files go.
func (b *bench) kill() {
	b.die()
	b.stopPolicy()
}

// passOver reads the journal of a state directory from a snapshot on, or from the first record (nil).
func passOver(t *testing.T, state string, base *snapshotFile) *pass {
	t.Helper()
	p, err := newPass(base)
	if err == nil {
		err = journal.Scan(filepath.Join(state, "journal"), p.each)
	}
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// known is all that a chronicle knows, in a form that can be compared.
func known(t *testing.T, c *chronicle) map[string]any {
	t.Helper()
	content, err := c.state.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	var entries []string
	for _, e := range c.receipts.entries {
		at, ok := c.receipts.byExec[e.exec]
		entries = append(entries, fmt.Sprintf("%d %s %+v %s %s %s %s %t, found by intent %d, by execution %d %t",
			e.seq, e.intent, *e.owner, e.op, e.outcome, e.session, e.exec, e.deleted, c.receipts.byIntent[e.intent], at, ok))
	}
	var frames []string
	for _, intent := range c.frames.order {
		frames = append(frames, fmt.Sprintf("%s %+v", intent, c.frames.places[intent]))
	}
	return map[string]any{"state": string(content), "next": c.next, "receipts": entries, "frames": frames, "names": maps.Clone(c.names.last)}
}

// R249, R250: whatever happened, a start from any stored snapshot knows what a start from the first record does, to the
// byte: the state, and where receipts, frames and named blobs are.
func TestSnapshotAndTailIsReplay(t *testing.T) {
	policy := loadPolicy(t)
	defer policy.Close()
	for seed := range uint64(8) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 1))
			f, state := newFake(), t.TempDir()+"/state"
			kept := map[int64][]byte{} // the snapshots that there ever were
			var sessions, execs []string
			for range 3 {
				b := startOn(t, f, state, func(c *Config) {
					c.Policy = policy
					c.Defaults.History = ledger.Limits{History: 10, Sessions: 3, Intents: 30, Notices: 60, Keys: 3}
				})
				for range 25 {
					b.live(random, &sessions, &execs)
					if random.IntN(10) == 0 {
						if err := b.take(t.Context()); err != nil {
							t.Fatal(err)
						}
						for _, records := range b.taken.kept {
							kept[records], _ = os.ReadFile(b.taken.dir.name(records))
						}
					}
				}
				live := b.digest()
				if got := b.replayedTo(live.records); got != live.digest {
					t.Fatalf("replayed: %s, live: %s", got, live.digest)
				}
				switch random.IntN(3) {
				case 0:
					b.stop()
					f, sessions = newFake(), nil
				case 1:
					if err := b.Leave(context.Background()); err != nil {
						t.Fatal(err)
					}
				default:
					b.kill()
				}
				genesis := known(t, passOver(t, state, nil).into)
				for records, file := range kept {
					base, err := parseSnapshot(file)
					if err != nil {
						t.Fatal(err)
					}
					p := passOver(t, state, base)
					if err := p.end(genesis["next"].(int64)); err != nil {
						t.Errorf("snapshot of %d records: %v", records, err)
					}
					if diff := cmp.Diff(genesis, known(t, p.into)); diff != "" {
						t.Fatalf("snapshot of %d records: %s", records, diff)
					}
				}
			}
			if r, err := Replay(state, ReplayOptions{Verify: true}); err != nil || !r.OK() {
				t.Errorf("%+v %v", r, err)
			}
		})
	}
}

// A snapshot is believed when the journal says that it is the one, and whole.
func TestTamperedSnapshot(t *testing.T) {
	policy := loadPolicy(t)
	defer policy.Close()
	state := t.TempDir() + "/state"
	with := func(c *Config) { c.Policy = policy }
	b := startOn(t, newFake(), state, with)
	id := b.session()
	first := b.exec(id, "echo", "one")
	if err := b.take(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.exec(id, "echo", "two")
	b.stop()
	dir := snapshots(filepath.Join(state, "snapshots"))
	list, err := dir.list()
	if err != nil || len(list) != 2 {
		t.Fatal(list, err)
	}
	whole, err := os.ReadFile(dir.name(list[0]))
	if err != nil {
		t.Fatal(err)
	}
	older, err := os.ReadFile(dir.name(list[1]))
	if err != nil {
		t.Fatal(err)
	}
	base, err := parseSnapshot(whole)
	if err != nil {
		t.Fatal(err)
	}
	// resigned is a file that contradicts itself in nothing.
	resigned := func(content []byte) []byte {
		line, err := api.Encode(snapshotHead{snapshotVersion, base.Records, ledger.Digest(content), int64(len(content))})
		if err != nil {
			t.Fatal(err)
		}
		return slices.Concat(line, []byte("\n"), content)
	}
	changed := bytes.Replace(base.content, []byte(`"uid":1000`), []byte(`"uid":1001`), -1)
	// What a program before wrote is not compared: what this one makes of the same records has other bytes.
	before := filepath.Join(t.TempDir(), "state")
	if err := os.CopyFS(before, os.DirFS(state)); err != nil {
		t.Fatal(err)
	}
	last := regexp.MustCompile(`^\{"version":\d+`).ReplaceAll(base.content, []byte(`{"version":4`))
	if err := os.WriteFile(snapshots(filepath.Join(before, "snapshots")).name(list[0]), resigned(last), 0o600); err != nil {
		t.Fatal(err)
	}
	if r, err := Replay(before, ReplayOptions{Verify: true}); err != nil || !r.OK() {
		t.Errorf("%+v %v", r, err)
	}
	cases := map[string][]byte{
		"torn":            whole[:len(whole)/2],
		"empty":           {},
		"without content": whole[:bytes.IndexByte(whole, '\n')+1],
		"another version": bytes.Replace(whole, []byte(`"version":1`), []byte(`"version":2`), 1),
		"another state":   resigned(changed),
		"no state":        resigned([]byte(`{}`)),
		"the older one":   older,
	}
	for name := range 40 {
		at := name * len(whole) / 40
		flipped := slices.Clone(whole)
		flipped[at] ^= 1
		cases[fmt.Sprint("bit at ", at)] = flipped
	}
	for name, content := range cases {
		t.Run(name, func(t *testing.T) {
			at := filepath.Join(t.TempDir(), "state")
			if err := os.CopyFS(at, os.DirFS(state)); err != nil {
				t.Fatal(err)
			}
			private(t, at)
			dir := snapshots(filepath.Join(at, "snapshots"))
			if err := os.WriteFile(dir.name(list[0]), content, 0o600); err != nil {
				t.Fatal(err)
			}
			b := startOn(t, newFake(), at, with)
			defer b.stop()
			if slices.Contains(b.taken.kept, list[0]) {
				t.Error("it was believed")
			}
			before := b.digest()
			if got := b.replayedTo(before.records); got != before.digest {
				t.Error("the state is not the journal's")
			}
			r, _, err := b.Receipt(t.Context(), &api.Request{Op: api.OpReceiptGet, Principal: alice, Read: &api.Read{IntentID: first.IntentID}})
			if err != nil || r.ExecID != first.ExecID {
				t.Errorf("%+v %v", r, err)
			}
			if r, err := Replay(state, ReplayOptions{Verify: true}); err != nil || !r.OK() {
				t.Errorf("the original: %+v %v", r, err)
			}
		})
	}
}

// private gives a copied state directory its modes.
func private(t *testing.T, state string) {
	t.Helper()
	err := filepath.WalkDir(state, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			err = os.Chmod(path, 0o700)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A snapshot that was stored and not recorded is nobody's, and goes.
func TestUnrecordedSnapshot(t *testing.T) {
	b := start(t)
	id := b.session()
	b.exec(id, "true")
	if err := b.take(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.exec(id, "true")
	var c ledger.Capture
	b.chronicle.read(func(state *ledger.State) { c = state.Capture() })
	if _, err := b.taken.dir.write(c); err != nil {
		t.Fatal(err)
	}
	confirmed := slices.Clone(b.taken.kept)
	b.die()
	r, err := Replay(b.state, ReplayOptions{Verify: true})
	if err != nil || !r.OK() || len(r.Findings) != 1 || r.Findings[0].Code != FindingUnconfirmed {
		t.Errorf("%+v %v", r, err)
	}
	next := startOn(t, newFake(), b.state, func(c *Config) { c.Policy = b.cfg.Policy })
	defer b.stopPolicy()
	defer next.stop()
	if list, err := next.taken.dir.list(); err != nil || !slices.Equal(list, confirmed) {
		t.Errorf("%v, and confirmed are %v: %v", list, confirmed, err)
	}
}

// Snapshots are taken when enough was recorded, off the path of those who record.
func TestSnapshotEvery(t *testing.T) {
	b := startOn(t, newFake(), t.TempDir()+"/state", func(c *Config) { c.Defaults.SnapshotEvery = 20 })
	defer b.stop()
	id := b.session()
	for range 20 {
		b.exec(id, "true")
	}
	// Until none is due: two that are taken while it is compared would have those that were there before removed, and
	// what is removed is passed over.
	for limit := time.Now().Add(time.Minute); b.taken.newest.Load() < 40 || b.journal.Next()-b.taken.newest.Load() >= 20; time.Sleep(time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatalf("the newest is of %d records, of %d", b.taken.newest.Load(), b.journal.Next())
		}
	}
	if r, err := Replay(b.state, ReplayOptions{Verify: true}); err != nil || !r.OK() || r.Snapshots == 0 {
		t.Errorf("%+v %v", r, err)
	}
}
