package journal

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-json-experiment/json"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/internal/durable"
)

// small makes files, and with them segments, that a test can try every byte of.
var small = Options{Origin: "test", SegmentBytes: 1 << 10}

func open(t testing.TB, dir string, opt Options) *Journal {
	t.Helper()
	j, err := Open(dir, opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { j.Close() })
	return j
}

func fresh(t testing.TB) string { return filepath.Join(t.TempDir(), "journal") }

func record(i int) []byte { return fmt.Appendf(nil, `{"n":%d,"text":"%0*d"}`, i, i%40, i) }

// fill appends records from..to-1, one by one.
func fill(t testing.TB, j *Journal, from, to int) {
	t.Helper()
	for i := from; i < to; i++ {
		if seq, err := j.Append(context.Background(), record(i)); err != nil || seq != int64(i) {
			t.Fatalf("append %d: %d, %v", i, seq, err)
		}
	}
}

// expect checks that j holds exactly the records 0..n-1, but for those that were trimmed.
func expect(t testing.TB, j *Journal, n int) {
	t.Helper()
	seen := int(j.First())
	err := j.Read(j.First(), func(seq int64, rec []byte) error {
		if int(seq) != seen || string(rec) != string(record(seen)) {
			return fmt.Errorf("record %d is %q, want %d", seq, rec, seen)
		}
		seen++
		return nil
	})
	if err != nil || seen != n || j.Next() != int64(n) {
		t.Fatalf("read %d of %d records, length %d: %v", seen, n, j.Next(), err)
	}
}

func verifiers(t testing.TB, dir string) note.Verifiers {
	t.Helper()
	v, err := ReadPublicKey(filepath.Join(dir, publicKeyFile))
	if err != nil {
		t.Fatal(err)
	}
	return note.VerifierList(v)
}

// R247, R254: what was appended is there after a restart, over many segments, and verifies.
func TestReopen(t *testing.T) {
	dir := fresh(t)
	for n := 0; n < 100; n += 20 {
		j := open(t, dir, small)
		expect(t, j, n)
		fill(t, j, n, n+20)
		expect(t, j, n+20)
		if _, err := Open(dir, small); !errors.Is(err, durable.ErrLocked) {
			t.Fatalf("second opener: %v", err)
		}
		if r, err := Verify(dir, verifiers(t, dir)); err != nil || r.Records != int64(n+20) || r.TailBytes != 0 {
			t.Fatalf("verify while open: %+v, %v", r, err)
		}
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
	}
	r, err := Verify(dir, verifiers(t, dir))
	if err != nil || r.Records != 100 || r.Signed != 100 || r.Checkpoints != 5 || r.Segments < 3 {
		t.Fatalf("%+v, %v", r, err)
	}
	j := open(t, dir, small)
	for _, seq := range []int64{0, 1, 50, 99} {
		if rec, err := j.Get(seq); err != nil || string(rec) != string(record(int(seq))) {
			t.Errorf("get %d: %q, %v", seq, rec, err)
		}
	}
	for _, seq := range []int64{-1, 100} {
		if _, err := j.Get(seq); !errors.Is(err, ErrNotFound) {
			t.Errorf("get %d: %v", seq, err)
		}
	}
}

// The disk is full: new work is refused, what is under way can still be recorded out of
// the reserve, readers are served, and when there is room again all goes on.
func TestFullDisk(t *testing.T) {
	dir := clone(t, seedJournal(t))
	noRoom := false
	d := watch(dir, func(_ int, kind string) error {
		if noRoom && (kind == "allocate" || kind == "create") {
			return unix.ENOSPC
		}
		return nil
	})
	j := open(t, dir, storyOptions(d.disk()))
	ctx := context.Background()
	fill(t, j, 0, 1)
	noRoom = true
	n := 1
	for ; ; n++ {
		if _, err := j.Append(ctx, record(n)); errors.Is(err, ErrFull) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	settled := n
	for ; ; settled++ {
		if _, err := j.Settle(ctx, record(settled)); errors.Is(err, ErrFull) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if room := int64(settled-n) * framed(len(record(0))); room < j.opt.ReserveBytes/2 {
		t.Errorf("%d records in the reserve of %d bytes", settled-n, j.opt.ReserveBytes)
	}
	expect(t, j, settled)
	noRoom = false
	fill(t, j, settled, settled+30)
	expect(t, j, settled+30)
}

// A caller that stops waiting before its turn leaves nothing behind; one whose turn has
// come gets the outcome.
func TestCancel(t *testing.T) {
	dir := clone(t, seedJournal(t))
	real := watch(dir, nil).disk()
	stall := make(chan struct{})
	stalled := make(chan struct{}, 100)
	slow := *real
	slow.sync = func(f *os.File) error {
		stalled <- struct{}{}
		<-stall
		return real.sync(f)
	}
	opt := storyOptions(real)
	j := open(t, dir, opt)
	j.disk = &slow
	ctx, cancel := context.WithCancel(context.Background())
	var first, second error
	var waiting sync.WaitGroup
	waiting.Go(func() { _, first = j.Append(ctx, record(0)) })
	<-stalled
	waiting.Go(func() { _, second = j.Append(ctx, []byte("never")) })
	for queued := 0; queued == 0; runtime.Gosched() {
		j.mu.Lock()
		queued = len(j.queue)
		j.mu.Unlock()
	}
	cancel()
	for queued := 1; queued == 1; runtime.Gosched() {
		j.mu.Lock()
		queued = len(j.queue)
		j.mu.Unlock()
	}
	close(stall)
	waiting.Wait()
	if first != nil || !errors.Is(second, context.Canceled) {
		t.Errorf("first %v, second %v", first, second)
	}
	expect(t, j, 1)
}

func TestRefusals(t *testing.T) {
	j := open(t, fresh(t), small)
	ctx := context.Background()
	rows := []struct {
		name string
		recs [][]byte
		want error // nil: any
	}{
		{"nothing", nil, nil},
		{"empty record", [][]byte{record(0), nil}, nil},
		{"more than a segment", [][]byte{make([]byte, 1<<10)}, ErrTooLarge},
		{"more than a segment together", [][]byte{make([]byte, 500), make([]byte, 500)}, ErrTooLarge},
		{"more than a record", [][]byte{make([]byte, MaxRecord+1)}, ErrTooLarge},
	}
	for _, row := range rows {
		if _, err := j.Append(ctx, row.recs...); err == nil || row.want != nil && !errors.Is(err, row.want) {
			t.Errorf("%s: %v", row.name, err)
		}
	}
	fill(t, j, 0, 1)
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	if err := j.Close(); err != nil {
		t.Errorf("second close: %v", err)
	}
	if _, err := j.Append(ctx, record(1)); !errors.Is(err, ErrClosed) {
		t.Errorf("append after close: %v", err)
	}
	if _, err := j.Checkpoint(); !errors.Is(err, ErrClosed) {
		t.Errorf("checkpoint after close: %v", err)
	}
	stop := errors.New("stop")
	if err := j.Read(0, func(int64, []byte) error { return stop }); err != stop {
		t.Errorf("the reader's error: %v", err)
	}
}

// A record of the largest size goes through, and a group across what one write takes.
func TestLargeRecords(t *testing.T) {
	j := open(t, fresh(t), Options{})
	large := make([]byte, MaxRecord)
	copy(large, "large")
	if _, err := j.Append(context.Background(), large, record(1)); err != nil {
		t.Fatal(err)
	}
	if got, err := j.Get(0); err != nil || string(got) != string(large) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

// Records get signed when enough of them wait, when they are old enough, and at Close;
// without new records nothing is signed again.
func TestCheckpointCadence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := fresh(t)
		opt := Options{Origin: "test", SegmentBytes: 1 << 10, CheckpointEvery: 4, CheckpointAfter: time.Minute}
		j, err := Open(dir, opt)
		if err != nil {
			t.Fatal(err)
		}
		signed := func(notes int, records int64) {
			t.Helper()
			synctest.Wait()
			r, err := Verify(dir, verifiers(t, dir))
			if err != nil || r.Checkpoints != notes || r.Signed != records || r.Signed+r.Unsigned != r.Records {
				t.Errorf("want %d notes for %d records: %+v, %v", notes, records, r, err)
			}
		}
		fill(t, j, 0, 3)
		signed(0, 0)
		fill(t, j, 3, 4)
		signed(1, 4)
		fill(t, j, 4, 5)
		signed(1, 4)
		time.Sleep(time.Minute)
		signed(2, 5)
		time.Sleep(time.Hour)
		signed(2, 5)
		fill(t, j, 5, 6)
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
		signed(3, 6)
	})
}

// What is secret, and what is evidence, is the owner's; the public key is to be copied.
func TestModes(t *testing.T) {
	dir := fresh(t)
	j := open(t, dir, small)
	fill(t, j, 0, 1)
	j.Close()
	want := map[string]os.FileMode{keyFile: 0o600, publicKeyFile: 0o644, checkpointFile: 0o600, segmentName(0): 0o600, ".": 0o700}
	for name, mode := range want {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: %v, %v; want %v", name, info.Mode(), err, mode)
		}
	}
}

// The private key is private, the public key is the journal's, and a note that
// Checkpoint returns names journal and size.
func TestKey(t *testing.T) {
	dir := fresh(t)
	j := open(t, dir, small)
	fill(t, j, 0, 3)
	info, err := os.Stat(filepath.Join(dir, keyFile))
	if err != nil || info.Mode() != fs.FileMode(0o600) {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	public, err := os.ReadFile(filepath.Join(dir, publicKeyFile))
	if err != nil || strings.TrimSpace(string(public)) != j.PublicKey() {
		t.Errorf("%s is not %s: %v", public, j.PublicKey(), err)
	}
	msg, err := j.Checkpoint()
	if err != nil || !strings.HasPrefix(string(msg), "stockade journal/test\n3\n") {
		t.Errorf("%s, %v", msg, err)
	}
	if _, err := openCheckpoint(msg, verifiers(t, dir)); err != nil {
		t.Error(err)
	}
}

// Verify and Read work while the journal is written, and never see damage that is not there.
func TestReadersOfALiveJournal(t *testing.T) {
	dir := fresh(t)
	opt := small
	opt.CheckpointEvery = 10
	j := open(t, dir, opt)
	known := verifiers(t, dir)
	done := make(chan struct{})
	var running sync.WaitGroup
	for range 4 {
		running.Go(func() {
			for range 100 {
				if _, err := j.Append(context.Background(), record(0), record(1)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	go func() { running.Wait(); close(done) }()
	for verified := 0; ; verified++ {
		if r, err := Verify(dir, known); err != nil {
			t.Fatalf("verification %d: %+v, %v", verified, r, err)
		}
		durable, seen := j.Next(), int64(0)
		if err := j.Read(0, func(int64, []byte) error { seen++; return nil }); err != nil || seen < durable {
			t.Fatalf("read %d of %d: %v", seen, durable, err)
		}
		select {
		case <-done:
			return
		default:
		}
	}
}

// Every record of a journal can be proved with the public key alone, and nothing else can.
func TestProof(t *testing.T) {
	dir := fresh(t)
	j := open(t, dir, small)
	const n = 13
	fill(t, j, 0, n)
	known := verifiers(t, dir)
	if _, err := ProveRecord(dir, known, 0); !errors.Is(err, ErrUnsigned) {
		t.Error(err)
	}
	if _, err := j.Checkpoint(); err != nil {
		t.Fatal(err)
	}
	for seq := range int64(n) {
		p, err := ProveRecord(dir, known, seq)
		if err != nil {
			t.Fatal(err)
		}
		data, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		back, err := CheckProof(data, known)
		if err != nil || back.Seq != seq || string(back.Record) != string(record(int(seq))) {
			t.Fatalf("record %d: %+v, %v", seq, back, err)
		}
		forgeries := map[string]func(p *Proof){
			"another record":     func(p *Proof) { p.Record = record(n) },
			"another number":     func(p *Proof) { p.Seq = (p.Seq + 1) % n },
			"another path":       func(p *Proof) { p.Hashes[0][0] ^= 1 },
			"another checkpoint": func(p *Proof) { p.Checkpoint = strings.Replace(p.Checkpoint, "13", "14", 1) },
			"a negative number":  func(p *Proof) { p.Seq = -1 },
		}
		for name, forge := range forgeries {
			forged := *back
			forged.Hashes = append(forged.Hashes[:0:0], back.Hashes...)
			forge(&forged)
			data, err := json.Marshal(forged)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := CheckProof(data, known); err == nil {
				t.Errorf("record %d: %s is proved", seq, name)
			}
		}
	}
	if _, err := ProveRecord(dir, known, n); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
}
