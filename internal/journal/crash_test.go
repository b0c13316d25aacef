package journal

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// said is what a journal has told its user.
type said struct {
	acked int   // records that are durable
	first int64 // Trim returned it
	asked int64 // Trim was to cut here, at the most
	errs  []error
	trims int // that cut something
}

// story appends and settles groups of one to three records, with a checkpoint after every
// seventh and a trim after every ninth, over several segments, until something fails for
// good, and closes. It returns what was said last.
func story(t testing.TB, dir string, d *disk, then said) said {
	t.Helper()
	j, err := Open(dir, storyOptions(d))
	if err != nil {
		then.errs = append(then.errs, err)
		return then
	}
	n := int(j.Next())
	if n < then.acked {
		t.Errorf("%d records were acknowledged, %d after a restart", then.acked, n)
	}
	then.acked = n
	for step := range 25 {
		group := storyGroup(n)
		appendOrSettle := j.Append
		if step%4 == 3 {
			appendOrSettle = j.Settle
		}
		first, err := appendOrSettle(context.Background(), group...)
		then.heard(err)
		if errors.Is(err, ErrFull) {
			continue // nothing was written; the next is the same group
		}
		if err != nil {
			if !errors.Is(err, ErrFailed) {
				t.Errorf("append: %v", err)
			}
			break
		}
		if int(first) != n {
			t.Errorf("record %d got number %d", n, first)
		}
		n += len(group)
		then.acked = n
		if step%7 == 6 {
			_, err := j.Checkpoint()
			then.heard(err)
			if err != nil && !errors.Is(err, ErrFull) {
				break
			}
		}
		if step%9 == 8 {
			before := int64(n - 3)
			then.asked = max(then.asked, before)
			first, err := j.Trim(before)
			then.heard(err)
			if err == nil && first > then.first {
				then.trims++
			}
			if err == nil && (first < then.first || first > before) {
				t.Errorf("trim below %d: the journal begins with %d, and did with %d", before, first, then.first)
			}
			if err == nil {
				then.first = first
			} else if j.failure() != nil {
				break
			}
		}
	}
	failed := j.failure() != nil
	if failed { // the first is final, whatever the disk says now
		if _, err := j.Append(context.Background(), record(0)); !errors.Is(err, ErrFailed) {
			t.Errorf("append after a failure: %v", err)
		}
		if _, err := j.Checkpoint(); !errors.Is(err, ErrFailed) {
			t.Errorf("checkpoint after a failure: %v", err)
		}
		if _, err := j.Trim(int64(n)); !errors.Is(err, ErrFailed) {
			t.Errorf("trim after a failure: %v", err)
		}
	}
	err = j.Close()
	then.heard(err)
	if failed && !errors.Is(err, ErrFailed) {
		t.Errorf("close after a failure: %v", err)
	}
	return then
}

func (s *said) heard(err error) {
	if err != nil {
		s.errs = append(s.errs, err)
	}
}

// soak is how often a test does something: as long as `make test` has time for it, or
// longer in `make soak`.
func soak(short, long int) int {
	if os.Getenv("STOCKADE_SOAK") == "1" {
		return long
	}
	return short
}

func storyOptions(d *disk) Options {
	opt := small
	opt.disk, opt.CheckpointEvery = d, 1<<40 // only where the story says
	return opt
}

func storyGroup(first int) [][]byte {
	var group [][]byte
	for i := range 1 + first%3 {
		group = append(group, record(first+i))
	}
	return group
}

// recovered opens what a crash left and checks it: every acknowledged record is there
// that was not to be trimmed, in its place, nothing else but whole groups behind them, and
// it goes on.
func recovered(t testing.TB, dir string, then said) {
	t.Helper()
	acked := then.acked
	opt := storyOptions(watch(dir, nil).disk())
	j, err := Open(dir, opt)
	if err != nil {
		t.Errorf("open after a crash with %d acknowledged: %v", acked, err)
		return
	}
	defer j.Close()
	n := int(j.Next())
	if n < acked {
		t.Errorf("%d records were acknowledged and %d are left", acked, n)
	}
	if first := j.First(); first < then.first || first > then.asked {
		t.Errorf("the journal begins with %d, was trimmed to %d and was to be to %d", first, then.first, then.asked)
	}
	expect(t, j, n)
	boundary := 0
	for boundary < n {
		boundary += len(storyGroup(boundary))
	}
	if boundary != n {
		t.Errorf("%d records: an append is there in part", n)
	}
	fill(t, j, n, n+3)
	j.Close()
	if r, err := Verify(dir, verifiers(t, dir)); err != nil || r.TailBytes != 0 || r.Signed != int64(n+3) {
		t.Errorf("verify after recovery: %+v, %v", r, err)
	}
}

// seedJournal is a journal with its keys, to copy.
func seedJournal(t testing.TB) string {
	dir := fresh(t)
	j := open(t, dir, storyOptions(nil))
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	return dir
}

// R254, T187: the power fails at the k-th operation, for every k, and the machine is switched
// on again, several times over with a different rest of what was not synced.
func TestPowerCut(t *testing.T) {
	t.Parallel()
	seed := seedJournal(t)
	for k := 0; ; k++ {
		dir := clone(t, seed)
		d := watch(dir, func(op int, _ string) error {
			if op >= k {
				return errors.New("no power")
			}
			return nil
		})
		then := story(t, dir, d.disk(), said{})
		recovered(t, d.powerCut(t, nil), then)
		for i := range soak(2, 40) {
			recovered(t, d.powerCut(t, rand.New(rand.NewPCG(uint64(k), uint64(i)))), then)
		}
		if t.Failed() {
			t.Fatalf("at operation %d", k)
		}
		if d.ops <= k { // the story came to its end
			if then.trims < 2 || len(then.errs) > 0 {
				t.Errorf("without a fault: %d trims, %v", then.trims, then.errs)
			}
			t.Logf("%d operations", d.ops)
			return
		}
	}
}

// R247, T189, T190: every operation fails once, with each of the errors that disks give, and goes
// half-way if it is a write. Nothing is acknowledged that is not there afterwards,
// neither after a restart of the daemon nor after one of the machine.
func TestDiskFaults(t *testing.T) {
	t.Parallel()
	seed := seedJournal(t)
	for _, errno := range []error{unix.EIO, unix.ENOSPC, unix.EDQUOT, unix.EINTR, io.ErrShortWrite} {
		for k := 0; ; k++ {
			dir := clone(t, seed)
			well := false
			d := watch(dir, func(op int, _ string) error {
				if op == k && !well {
					return errno
				}
				return nil
			})
			then := story(t, dir, d.disk(), said{})
			last := d.ops <= k // the story came to its end
			well = true
			// A full disk can be got along with here and there; no other error can.
			if !last && len(then.errs) == 0 && !full(errno) {
				t.Errorf("nobody was told")
			}
			recovered(t, d.powerCut(t, nil), then)
			// Only the daemon starts anew. What the failed sync dropped is still to be
			// read, and must not be built upon without being written again.
			again := story(t, dir, d.disk(), then)
			recovered(t, d.powerCut(t, nil), again)
			if t.Failed() {
				t.Fatalf("%v at operation %d", errno, k)
			}
			if last {
				break
			}
		}
	}
}

// R247: an acknowledgement never precedes the sync that covers it, and one sync covers
// many: each caller looks, at the moment of its answer, at what is synced.
func TestAckOrder(t *testing.T) {
	dir := clone(t, seedJournal(t))
	d := watch(dir, nil)
	real := d.disk()
	slow := *real
	slow.sync = func(f *os.File) error {
		time.Sleep(100 * time.Microsecond) // long enough for others to queue up
		return real.sync(f)
	}
	opt := storyOptions(&slow)
	opt.SegmentBytes = 64 << 10
	j := open(t, dir, opt)
	const callers, each = 32, 50
	var running sync.WaitGroup
	for c := range callers {
		running.Go(func() {
			for i := range each {
				rec := fmt.Appendf(nil, "caller %d record %d", c, i)
				seq, err := j.Append(context.Background(), rec)
				if err != nil {
					t.Error(err)
					return
				}
				segments := j.snapshot()
				seg := segments[holding(segments, seq)]
				if got := d.synced(seg.name)[seg.offset(seq)+frameHeader:]; string(got[:len(rec)]) != string(rec) {
					t.Errorf("record %d was acknowledged and is not synced", seq)
				}
			}
		})
	}
	running.Wait()
	if j.Next() != callers*each {
		t.Errorf("%d records", j.Next())
	}
	if syncs := d.kinds["sync"]; syncs > callers*each/2 {
		t.Errorf("%d syncs for %d appends: they do not share", syncs, callers*each)
	}
}

// R254, T181: the last segment ends at any byte of what was written: the journal recovers to
// exactly the records that are whole, and goes on.
func TestTruncateEverywhere(t *testing.T) {
	t.Parallel()
	dir := clone(t, seedJournal(t))
	opt := storyOptions(watch(dir, nil).disk())
	opt.SegmentBytes = 2 << 10
	j := open(t, dir, opt)
	fill(t, j, 0, 7)
	crashed := clone(t, dir)
	seg := j.snapshot()[0]
	content, err := os.ReadFile(filepath.Join(crashed, seg.name))
	if err != nil {
		t.Fatal(err)
	}
	for size := int64(segmentHeader); size <= seg.end; size++ {
		whole := 0
		for whole < len(seg.offsets) && seg.offset(int64(whole))+framed(len(record(whole))) <= size {
			whole++
		}
		for _, zeros := range []bool{false, true} { // the file got shorter, or was never filled
			cut := clone(t, crashed)
			image := content[:size]
			if zeros {
				image = append(append([]byte{}, image...), make([]byte, len(content)-int(size))...)
			}
			write(t, filepath.Join(cut, seg.name), image)
			opt.disk = watch(cut, nil).disk()
			j, err := Open(cut, opt)
			if err != nil {
				t.Fatalf("cut at %d: %v", size, err)
			}
			expect(t, j, int(j.Next()))
			// Zeros at the end of a record may have been zeros all along.
			if n := int(j.Next()); n != whole && !(zeros && n == whole+1) {
				t.Fatalf("cut at %d: %d records, want %d", size, n, whole)
			}
			fill(t, j, int(j.Next()), 9)
			j.Close()
		}
	}
}

// R247, R254: a process that appends from eight goroutines is killed at random; every
// record that it said was durable is there. One segment holds few records, so that it
// dies in rotations too.
func TestKill(t *testing.T) {
	if dir := os.Getenv("JOURNAL_KILL_DIR"); dir != "" {
		appendForever(dir)
	}
	t.Parallel()
	dir := fresh(t)
	if err := open(t, dir, small).Close(); err != nil { // a busy machine kills the first before it has a key
		t.Fatal(err)
	}
	acked := map[string]bool{}
	deadline := time.Now().Add(2 * time.Second)
	for round := 0; time.Now().Before(deadline); round++ {
		child := exec.Command(os.Args[0], "-test.run=^TestKill$")
		child.Env = append(os.Environ(), "JOURNAL_KILL_DIR="+dir, fmt.Sprintf("JOURNAL_KILL_ROUND=%d", round))
		child.Stderr = os.Stderr
		out, err := child.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		timer := time.AfterFunc(time.Duration(20+rand.IntN(60))*time.Millisecond, func() { child.Process.Kill() })
		lines := bufio.NewReader(out)
		for {
			line, err := lines.ReadString('\n')
			if err != nil {
				break
			}
			acked[strings.TrimSuffix(line, "\n")] = true
		}
		timer.Stop()
		child.Wait()

		if r, err := Verify(dir, verifiers(t, dir)); err != nil {
			t.Fatalf("round %d: %+v, %v", round, r, err)
		}
		j := open(t, dir, small)
		found := map[string]bool{}
		if err := j.Read(0, func(seq int64, rec []byte) error {
			found[string(rec)] = true
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
		for rec := range acked {
			if !found[rec] {
				t.Fatalf("round %d: %q was acknowledged and is gone", round, rec)
			}
		}
	}
	if len(acked) == 0 {
		t.Fatal("no child appended anything")
	}
	t.Logf("%d records acknowledged", len(acked))
}

// appendForever is the child: it says what is durable, until it is killed.
func appendForever(dir string) {
	j, err := Open(dir, small)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	for c := range 8 {
		go func() {
			for i := 0; ; i++ {
				rec := fmt.Sprintf("round %s caller %d record %d", os.Getenv("JOURNAL_KILL_ROUND"), c, i)
				if _, err := j.Append(context.Background(), []byte(rec)); err != nil {
					fmt.Fprintln(os.Stderr, err)
					os.Exit(1)
				}
				fmt.Println(rec)
			}
		}()
	}
	time.Sleep(time.Hour)
}
