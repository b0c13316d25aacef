package journal

import (
	"bytes"
	"context"
	"errors"
	"math/bits"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// trimmed is a small closed journal that begins at an anchor.
func trimmed(t testing.TB, records int, before int64) (dir string, first int64) {
	t.Helper()
	dir = clone(t, seedJournal(t))
	j := open(t, dir, storyOptions(watch(dir, nil).disk()))
	fill(t, j, 0, records)
	first, err := j.Trim(before)
	if err != nil || first == 0 || first > before {
		t.Fatalf("trim below %d: %d, %v", before, first, err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	return dir, first
}

// R240: a journal that is trimmed step by step, over restarts, stays one in every respect.
func TestTrim(t *testing.T) {
	dir := fresh(t)
	j := open(t, dir, small)
	fill(t, j, 0, 10)
	early, err := j.Checkpoint()
	if err != nil {
		t.Fatal(err)
	}
	old, err := ProveRecord(dir, verifiers(t, dir), 3)
	if err != nil {
		t.Fatal(err)
	}
	known := verifiers(t, dir)
	n := 10
	for last := int64(0); n < 90; n += 8 {
		fill(t, j, n, n+8)
		size := j.Size()
		before := int64(n) - 4
		first, err := j.Trim(before)
		if err != nil || first < last || first > before || first != j.First() || first > last && j.Size() >= size {
			t.Fatalf("trim below %d: %d after %d, %v", before, first, last, err)
		}
		last = first
		if first > before-8 {
			if entries, _ := filepath.Glob(filepath.Join(dir, "*.seg")); filepath.Base(entries[0]) != segmentName(first) {
				t.Fatalf("the first segment is %s", entries[0])
			}
		}
		examine(t, j, dir, n+8)
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
		if j = open(t, dir, small); j.First() != first {
			t.Fatalf("reopened, the journal begins with %d, not with %d", j.First(), first)
		}
		examine(t, j, dir, n+8)
	}
	first := j.First()
	for _, before := range []int64{-1, 0, first} {
		if got, err := j.Trim(before); err != nil || got != first {
			t.Errorf("trim below %d: %d, %v", before, got, err)
		}
	}
	// The last segment stays, whatever is asked.
	if got, err := j.Trim(1 << 60); err != nil || got != j.snapshot()[0].first || len(j.snapshot()) != 1 {
		t.Errorf("trim below everything: %d, %v", got, err)
	}
	examine(t, j, dir, n)

	// What somebody kept of the trimmed records is as good as before; the journal does not
	// know of them any more, and says so.
	if err := old.check(known); err != nil {
		t.Errorf("a proof that was kept: %v", err)
	}
	report, err := Verify(dir, known, early)
	gone, ok := errors.AsType[*TrimmedError](err)
	if !ok || gone.First != j.First() || errors.Is(err, ErrRolledBack) || report.Bad != nil || report.Records != int64(n) {
		t.Errorf("verify with a checkpoint over trimmed records: %+v, %v", report, err)
	}
	if r, err := Verify(dir, known); err != nil || r.Checkpoints > 3 {
		t.Errorf("the notes over trimmed records are still there: %+v, %v", r, err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := j.Trim(0); !errors.Is(err, ErrClosed) {
		t.Errorf("trim after close: %v", err)
	}
}

// examine looks at a journal with n records from every side.
func examine(t *testing.T, j *Journal, dir string, n int) {
	t.Helper()
	expect(t, j, n)
	known, first := verifiers(t, dir), j.First()
	if _, err := j.Checkpoint(); err != nil {
		t.Fatal(err)
	}
	if r, err := Verify(dir, known); err != nil || r.First != first || r.Records != int64(n) || r.Signed != int64(n) || r.TailBytes != 0 {
		t.Fatalf("verify: %+v, %v", r, err)
	}
	if r, err := Check(dir, known); err != nil || r.Bad != nil || (first > 0) != (r.Files.Anchor != nil) {
		t.Fatalf("check: %+v, %v", r, err)
	}
	msg, err := LastCheckpoint(dir, known)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Verify(dir, known, msg); err != nil {
		t.Fatalf("verify with the last checkpoint: %v", err)
	}
	due := first
	if err := Scan(dir, func(seq int64, rec []byte) error {
		if seq != due || string(rec) != string(record(int(seq))) {
			t.Fatalf("scan: record %d is %q, want %d", seq, rec, due)
		}
		due++
		return nil
	}); err != nil || due != int64(n) {
		t.Fatalf("scanned up to %d of %d: %v", due, n, err)
	}
	for seq := range int64(n) {
		_, getErr := j.Get(seq)
		p, err := ProveRecord(dir, known, seq)
		if seq < first {
			for _, err := range []error{getErr, err, j.Read(seq, nil)} {
				if gone, ok := errors.AsType[*TrimmedError](err); !ok || gone.First != first || !errors.Is(err, ErrTrimmed) {
					t.Fatalf("record %d of %d..: %v", seq, first, err)
				}
			}
			continue
		}
		if getErr != nil || err != nil {
			t.Fatalf("record %d: %v, %v", seq, getErr, err)
		}
		if err := p.check(known); err != nil || p.Seq != seq || p.Size != int64(n) || string(p.Record) != string(record(int(seq))) {
			t.Fatalf("record %d of %d.. is not proved: %+v, %v", seq, first, p, err)
		}
	}
}

// T195: what somebody can do to an anchor who cannot sign.
func TestAnchorTampering(t *testing.T) {
	read := func(t *testing.T, dir, name string) []byte { return mustRead(t, filepath.Join(dir, name)) }
	rows := []struct {
		name   string
		tamper func(t *testing.T, dir string)
		file   string // where it is found
	}{
		{"removed", func(t *testing.T, dir string) { os.Remove(filepath.Join(dir, anchorFile)) }, ".seg"},
		{"emptied", func(t *testing.T, dir string) { write(t, filepath.Join(dir, anchorFile), nil) }, anchorFile},
		{"a checkpoint in its place", func(t *testing.T, dir string) {
			msg, err := LastCheckpoint(dir, verifiers(t, dir))
			if err != nil {
				t.Fatal(err)
			}
			write(t, filepath.Join(dir, anchorFile), msg)
		}, anchorFile},
		{"of another journal", func(t *testing.T, dir string) {
			other, _ := trimmed(t, 40, 20)
			write(t, filepath.Join(dir, anchorFile), bytes.Replace(read(t, other, anchorFile), []byte("\n20\n"), []byte("\n21\n"), 1))
		}, anchorFile},
		{"an older one", func(t *testing.T, dir string) {
			older := read(t, dir, anchorFile)
			j := open(t, dir, small)
			if _, err := j.Trim(35); err != nil {
				t.Fatal(err)
			}
			j.Close()
			write(t, filepath.Join(dir, anchorFile), older)
		}, ".seg"},
		{"no checkpoint over what was trimmed", func(t *testing.T, dir string) {
			write(t, filepath.Join(dir, checkpointFile), nil)
		}, checkpointFile},
		{"a segment moved to its place", func(t *testing.T, dir string) {
			names, _ := segmentNames(dir)
			os.Rename(filepath.Join(dir, names[1]), filepath.Join(dir, names[0]))
		}, ".seg"},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			dir, _ := trimmed(t, 40, 20)
			row.tamper(t, dir)
			report, err := Verify(dir, verifiers(t, dir))
			if report.Bad == nil || !strings.HasSuffix(report.Bad.File, row.file) {
				t.Errorf("verify: %+v, %v", report, err)
			}
			if _, err := Open(dir, small); err == nil {
				t.Error("it opens")
			}
		})
	}
	t.Run("an edge that is not the root's", func(t *testing.T) {
		dir, _ := trimmed(t, 40, 20)
		signer, _, err := readKey(dir)
		if err != nil {
			t.Fatal(err)
		}
		a, err := readAnchor(dir, verifiers(t, dir))
		if err != nil {
			t.Fatal(err)
		}
		a.tree.edge[bits.Len64(uint64(a.size))-1][0] ^= 1
		msg, err := a.sign(signer)
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, anchorFile), msg)
		if r, err := Verify(dir, verifiers(t, dir)); err == nil || r.Bad.File != anchorFile {
			t.Errorf("verify: %+v, %v", r, err)
		}
		if bad, ok := errors.AsType[*CorruptError](Scan(dir, nil)); !ok || bad.File != anchorFile {
			t.Errorf("scan: %v", bad)
		}
	})
	t.Run("any bit", func(t *testing.T) {
		dir, _ := trimmed(t, 40, 20)
		known, path := verifiers(t, dir), filepath.Join(dir, anchorFile)
		content := read(t, dir, anchorFile)
		for bit := range 8 * len(content) {
			changed := bytes.Clone(content)
			changed[bit/8] ^= 1 << (bit % 8)
			if a, err := openAnchor(changed, known); err == nil {
				t.Fatalf("bit %d: believed: %+v", bit, a)
			}
			if bit%64 == 0 {
				write(t, path, changed)
				if r, err := Verify(dir, known); err == nil || r.Bad.File != anchorFile {
					t.Fatalf("bit %d: %+v, %v", bit, r, err)
				}
				if bad, ok := errors.AsType[*CorruptError](openError(dir)); !ok || bad.File != anchorFile {
					t.Fatalf("bit %d: open: %v", bit, bad)
				}
			}
		}
	})
}

func openError(dir string) error {
	j, err := Open(dir, small)
	if err == nil {
		j.Close()
	}
	return err
}

// A kept checkpoint tells a trimmed journal that was rolled back from one that was not.
func TestTrimmedAndRolledBack(t *testing.T) {
	dir, first := trimmed(t, 40, 20)
	before := clone(t, dir)
	j := open(t, dir, small)
	fill(t, j, 40, 45)
	kept, err := j.Checkpoint()
	if err != nil {
		t.Fatal(err)
	}
	j.Close()
	if r, err := Verify(dir, verifiers(t, dir), kept); err != nil || r.First != first {
		t.Errorf("%+v, %v", r, err)
	}
	if _, err := Verify(before, verifiers(t, dir), kept); !errors.Is(err, ErrRolledBack) || errors.Is(err, ErrTrimmed) {
		t.Errorf("an older state of the directory: %v", err)
	}
}

// T197: a full disk refuses a trim and nothing else; a segment that cannot be unlinked is
// said, is not part of the journal, and goes at the next start.
func TestTrimFaults(t *testing.T) {
	dir := clone(t, seedJournal(t))
	var refuse string
	var errno error
	d := watch(dir, func(_ int, kind string) error {
		if kind == refuse {
			return errno
		}
		return nil
	})
	j := open(t, dir, storyOptions(d.disk()))
	fill(t, j, 0, 40)
	if _, err := j.Checkpoint(); err != nil {
		t.Fatal(err)
	}
	refuse, errno = "create", unix.ENOSPC
	if first, err := j.Trim(20); !errors.Is(err, ErrFull) || first != 0 {
		t.Errorf("trim on a full disk: %d, %v", first, err)
	}
	expect(t, j, 40)
	refuse, errno = "remove", unix.EPERM
	first, err := j.Trim(20)
	if !errors.Is(err, unix.EPERM) || first != j.First() || first == 0 {
		t.Errorf("trim of what cannot be unlinked: %d, %v", first, err)
	}
	if r, err := Check(dir, verifiers(t, dir)); err != nil || r.Bad != nil || r.Files.Segments[0].State != SegmentTrimmed {
		t.Errorf("%+v, %v", r, err)
	}
	refuse = ""
	if again, err := j.Trim(30); err != nil || again <= first {
		t.Errorf("trim: %d, %v", again, err)
	} else if lost := mustNames(t, d.powerCut(t, nil)); !slices.Contains(lost, segmentName(again)) || slices.Contains(lost, segmentName(first)) {
		t.Errorf("trimmed from %d to %d, a power cut leaves %v", first, again, lost)
	}
	first = j.First()
	fill(t, j, 40, 41)
	examine(t, j, dir, 41)
	j.Close()
	j = open(t, dir, small)
	examine(t, j, dir, 41)
	if names := mustNames(t, dir); names[0] != segmentName(first) {
		t.Errorf("%v", names)
	}
}

// T190: any failure of a trim but to unlink is final. The daemon that starts then finishes what was
// begun, or forgets it; and the power may fail when it has.
func TestTrimFailure(t *testing.T) {
	seed := seedJournal(t)
	for k := 0; ; k++ {
		dir := clone(t, seed)
		failAt, failed := -1, ""
		d := watch(dir, func(op int, kind string) error {
			if op == failAt {
				failed = kind
				return unix.EIO
			}
			return nil
		})
		j := open(t, dir, storyOptions(d.disk()))
		for j.Next() < 40 {
			if _, err := j.Append(context.Background(), storyGroup(int(j.Next()))...); err != nil {
				t.Fatal(err)
			}
		}
		n := j.Next()
		failAt = d.ops + k
		_, err := j.Trim(20)
		if failed == "" {
			if err != nil || k < 10 {
				t.Errorf("a trim of %d operations: %v", k, err)
			}
			return
		}
		if err == nil {
			t.Errorf("nobody is told that %s %d fails", failed, k)
		}
		if _, err := j.Append(context.Background(), record(0)); (failed != "remove") != errors.Is(err, ErrFailed) {
			t.Errorf("append after %s %d of a trim failed: %v", failed, k, err)
		} else if err == nil {
			continue
		}
		j.Close()
		open(t, dir, storyOptions(d.disk()))
		for i := range uint64(soak(8, 100)) {
			recovered(t, d.powerCut(t, rand.New(rand.NewPCG(uint64(k), i))), said{acked: int(n), asked: 20})
		}
		if t.Failed() {
			t.Fatalf("%s, operation %d of a trim", failed, k)
		}
	}
}

// Who reads while records are trimmed gets what is there, or is told that it is gone:
// damage is never reported.
func TestReadersOfATrimmedJournal(t *testing.T) {
	dir := fresh(t)
	opt := small
	opt.CheckpointEvery = 10
	j := open(t, dir, opt)
	known := verifiers(t, dir)
	fill(t, j, 0, 20)
	done := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() {
		defer close(done)
		for n := 20; n < soak(600, 20_000); n++ {
			if _, err := j.Append(context.Background(), record(n)); err != nil {
				t.Error(err)
			}
			if n%5 == 0 {
				if _, err := j.Trim(int64(n - 10)); err != nil {
					t.Error(err)
				}
			}
		}
	})
	none := func(int64, []byte) error { return nil }
	readers := map[string]func() error{
		"verify": func() error { _, err := Verify(dir, known); return err },
		"check": func() error {
			r, err := Check(dir, known)
			if err == nil && r.Bad != nil {
				err = r.Bad
			}
			return err
		},
		"scan":  func() error { return gone(Scan(dir, none)) },
		"read":  func() error { return gone(j.Read(j.First(), none)) },
		"get":   func() error { _, err := j.Get(j.First()); return gone(err) },
		"prove": func() error { _, err := ProveRecord(dir, known, j.First()); return gone(err) },
		"last":  func() error { _, err := LastCheckpoint(dir, known); return err },
	}
	for name, read := range readers {
		running.Go(func() {
			for {
				if err := read(); err != nil {
					t.Errorf("%s: %v", name, err)
					return
				}
				select {
				case <-done:
					return
				default:
					runtime.Gosched()
				}
			}
		})
	}
	running.Wait()
}

// gone takes for an answer that records were trimmed, or are not signed yet.
func gone(err error) error {
	if errors.Is(err, ErrTrimmed) || errors.Is(err, ErrUnsigned) {
		return nil
	}
	return err
}

// A last segment without records, on a disk that was full at the start, is replaced when
// there is room, under the same name: a trim must not remove it as its own predecessor.
func TestTrimBesideReplaced(t *testing.T) {
	dir := clone(t, seedJournal(t))
	noRoom := true
	d := watch(dir, func(_ int, kind string) error {
		if noRoom && kind == "allocate" {
			return unix.ENOSPC
		}
		return nil
	})
	j := open(t, dir, storyOptions(d.disk()))
	if _, err := j.Append(context.Background(), record(0)); !errors.Is(err, ErrFull) {
		t.Fatalf("append on a full disk: %v", err)
	}
	noRoom = false
	fill(t, j, 0, 3)
	if first, err := j.Trim(3); err != nil || first != 0 {
		t.Fatal(first, err)
	}
	examine(t, j, dir, 3)
}

// Each hears at the start what Read would say afterwards: no record of an Append that was
// interrupted, none that was trimmed.
func TestEach(t *testing.T) {
	dir := clone(t, seedJournal(t))
	j := open(t, dir, storyOptions(watch(dir, nil).disk()))
	for j.Next() < 40 {
		if _, err := j.Append(context.Background(), storyGroup(int(j.Next()))...); err != nil {
			t.Fatal(err)
		}
		if n := j.Next(); n >= 20 && n < 23 {
			if _, err := j.Checkpoint(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if first, err := j.Trim(20); err != nil || first == 0 {
		t.Fatal(first, err)
	}
	crashed := clone(t, dir)
	segments := j.snapshot()
	last := segments[len(segments)-1]
	path := filepath.Join(crashed, last.name)
	for size := int64(segmentHeader); size <= last.end; size += 8 {
		content, err := os.ReadFile(filepath.Join(dir, last.name))
		if err != nil {
			t.Fatal(err)
		}
		write(t, path, content[:size])
		var told [][]byte
		due := j.First()
		opt := storyOptions(watch(crashed, nil).disk())
		opt.Each = func(seq int64, rec []byte) error {
			if seq != due {
				t.Fatalf("record %d, want %d", seq, due)
			}
			due++
			told = append(told, bytes.Clone(rec))
			return nil
		}
		j, err := Open(crashed, opt)
		if err != nil {
			t.Fatal(err)
		}
		var read [][]byte
		if err := j.Read(j.First(), func(_ int64, rec []byte) error { read = append(read, rec); return nil }); err != nil {
			t.Fatal(err)
		}
		if !slices.EqualFunc(told, read, bytes.Equal) {
			t.Fatalf("cut at %d: %d records were told, %d are there", size, len(told), len(read))
		}
		j.Close()
		// Close has signed what is longer or shorter than what comes next.
		write(t, filepath.Join(crashed, checkpointFile), mustRead(t, filepath.Join(dir, checkpointFile)))
	}
	stop := errors.New("stop")
	opt := small
	opt.Each = func(int64, []byte) error { return stop }
	j.Close()
	if _, err := Open(dir, opt); !errors.Is(err, stop) {
		t.Errorf("the replayer's error: %v", err)
	}
}

func mustNames(t testing.TB, dir string) []string {
	t.Helper()
	names, err := segmentNames(dir)
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func mustRead(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Cut says what the least trim takes.
func TestCut(t *testing.T) {
	j := open(t, fresh(t), Options{SegmentBytes: 4 << 10})
	defer j.Close()
	if before, ok := j.Cut(); ok {
		t.Errorf("a journal of one file can be trimmed before %d", before)
	}
	for n := range 60 {
		if _, err := j.Append(t.Context(), record(n)); err != nil {
			t.Fatal(err)
		}
	}
	for {
		before, ok := j.Cut()
		if !ok {
			break
		}
		if first, err := j.Trim(before - 1); err != nil || first >= before-1 {
			t.Fatalf("trimmed before %d: %d, %v", before-1, first, err)
		}
		if first, err := j.Trim(before); err != nil || first != before {
			t.Fatalf("trimmed before %d: %d, %v", before, first, err)
		}
	}
	if j.First() == 0 {
		t.Error("nothing was trimmed")
	}
}
