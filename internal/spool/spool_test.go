package spool

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

// C13, R154: whatever the pieces in which two pipes are written, and whenever readers come, each byte up to the limit is
// there once, at its offset, and the rest is counted.
func TestInterleaving(t *testing.T) {
	for round := range 30 {
		rng := rand.New(rand.NewPCG(3, uint64(round)))
		limit := int64(1 + rng.IntN(1<<rng.IntN(21)))
		var size [len(streams)]int64
		s := fresh(t)
		l := create(t, s, "x", limit)
		var ends sync.WaitGroup
		var drained sync.WaitGroup
		for _, st := range streams {
			size[st] = int64(rng.IntN(1 << rng.IntN(21)))
			r, w := pipe(t)
			seed := rng.Uint64()
			drained.Go(func() {
				if err := l.Drain(st, r); err != nil {
					t.Error(err)
				}
			})
			ends.Go(func() {
				rng := rand.New(rand.NewPCG(4, seed))
				for off := int64(0); off < size[st]; {
					n := min(size[st]-off, int64(1+rng.IntN(1<<rng.IntN(17))))
					w.Write(sequence(st, off, n))
					off += n
					if rng.IntN(4) == 0 {
						time.Sleep(time.Duration(rng.IntN(1000)) * time.Microsecond)
					}
				}
				w.Close()
			})
		}
		for range 3 {
			ends.Go(func() { follow(t, l) })
		}
		drained.Wait()
		l.Seal()
		ends.Wait()
		follow(t, l) // a late one
		check(t, l)
		for _, st := range streams {
			if l.Total(st) != size[st] || l.Kept(st) != min(size[st], limit) || l.Err(st) != nil {
				t.Fatalf("round %d, %s: %d of %d, want %d up to %d; %v", round, st, l.Kept(st), l.Total(st), size[st], limit, l.Err(st))
			}
			if want := fmt.Sprintf("sha256:%x", sha256.Sum256(sequence(st, 0, l.Kept(st)))); digest(t, l, st) != want {
				t.Errorf("digest %s, want %s", digest(t, l, st), want)
			}
		}
		l.Close()
	}
}

// follow reads a log as a client does, by chunks from its offsets on, until the end.
func follow(t *testing.T, l *Log) {
	var have [len(streams)]int64
	buf := make([]byte, 10_000)
	for {
		changed, over := l.Changed(), sealed(l)
		chunks := l.Chunks(l.Position(have[Stdout], have[Stderr]), 2)
		for _, c := range chunks {
			skip := have[c.Stream] - c.Offset
			if c.Dropped || skip >= c.Length {
				continue
			}
			if skip < 0 {
				t.Errorf("at %d: %+v", have, c)
				return
			}
			p := buf[:min(int64(len(buf)), c.Length-skip)]
			if _, err := l.ReadAt(c.Stream, p, c.Offset+skip); err != nil || !bytes.Equal(p, sequence(c.Stream, c.Offset+skip, int64(len(p)))) {
				t.Errorf("%+v from %d: %v", c, skip, err)
				return
			}
			have[c.Stream] += int64(len(p))
			if int64(len(p)) < c.Length-skip {
				break // the rest comes before what follows
			}
		}
		if len(chunks) > 0 {
			continue
		}
		if over {
			break
		}
		<-changed
	}
	for _, st := range streams {
		if have[st] != l.Kept(st) {
			t.Errorf("%s ended at %d of %d", st, have[st], l.Kept(st))
		}
	}
}

// What comes after the seal is drained, so that nobody gets stuck, and changes nothing.
func TestSeal(t *testing.T) {
	s := fresh(t)
	l := create(t, s, "x", 1<<20)
	r, w := pipe(t)
	done := make(chan error)
	go func() { done <- l.Drain(Stdout, r) }()
	changed := l.Changed()
	w.Write(sequence(Stdout, 0, 10))
	<-changed
	changed = l.Changed()
	l.Seal()
	<-changed
	w.Write(make([]byte, 1<<20))
	w.Close()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if l.Kept(Stdout) != 10 || l.Total(Stdout) != 10 || !sealed(l) {
		t.Errorf("%d of %d", l.Kept(Stdout), l.Total(Stdout))
	}
	check(t, l)
}

// A pipe can be closed under a drain, idle or flooded.
func TestClosedPipe(t *testing.T) {
	for _, flood := range []bool{false, true} {
		l := create(t, fresh(t), "x", 1000)
		r, w := pipe(t)
		if flood {
			go func() {
				for {
					if _, err := w.Write(make([]byte, 1<<16)); err != nil {
						return
					}
				}
			}()
		}
		done := make(chan error)
		go func() { done <- l.Drain(Stdout, r) }()
		time.Sleep(5 * time.Millisecond)
		r.Close()
		if err := <-done; !errors.Is(err, os.ErrClosed) {
			t.Errorf("flood %v: %v", flood, err)
		}
	}
}

// What is in a pipe is ahead of what has come out of it, until it has.
func TestAhead(t *testing.T) {
	l := create(t, fresh(t), "x", 3) // what is not kept counts as well
	r, w := pipe(t)
	if _, err := w.WriteString("words"); err != nil {
		t.Fatal(err)
	}
	if total, ahead := l.Total(Stdout), l.Ahead(Stdout, r); total != 0 || ahead != 5 {
		t.Errorf("in the pipe: %d, ahead %d", total, ahead)
	}
	w.Close()
	if err := l.Drain(Stdout, r); err != nil {
		t.Fatal(err)
	}
	if total, ahead := l.Total(Stdout), l.Ahead(Stdout, r); total != 5 || ahead != 5 {
		t.Errorf("out of it: %d, ahead %d", total, ahead)
	}
	r.Close()
	if ahead := l.Ahead(Stdout, r); ahead != 5 {
		t.Errorf("closed: %d", ahead)
	}
}

// A silent command costs no file, one of a single chunk one.
func TestFiles(t *testing.T) {
	s := fresh(t)
	l := create(t, s, "x", 15)
	names := func() (out []string) {
		entries, err := os.ReadDir(s.path)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			out = append(out, e.Name())
		}
		return out
	}
	steps := []struct {
		st   Stream
		n    int64
		want []string
	}{
		{Stdout, 0, nil},
		{Stderr, 10, []string{"x.stderr"}},
		{Stdout, 1, []string{"x.chunks", "x.stderr", "x.stdout"}},
	}
	for _, step := range steps {
		spooled(t, l, step.st, sequence(step.st, 0, step.n))
		if got := names(); !slices.Equal(got, step.want) {
			t.Errorf("after %d bytes of %s: %v", step.n, step.st, got)
		}
	}
	list, err := s.List()
	if err != nil || len(list) != 1 || list[0].ID != "x" || list[0].Bytes != 11+headerSize+2*recordSize || time.Since(list[0].Modified) > time.Minute {
		t.Errorf("%+v, %v", list, err)
	}
	full := create(t, s, "y", 10)
	spooled(t, full, Stdout, sequence(Stdout, 0, 11))
	if got := names(); !slices.Contains(got, "y.chunks") {
		t.Errorf("nothing tells of dropped bytes: %v", got)
	}
	l.Close()
	full.Close()
	for _, id := range []string{"x", "y", "x", "never"} {
		if err := s.Remove(id); err != nil {
			t.Error(err)
		}
	}
	if list, err := s.List(); err != nil || len(list) != 0 {
		t.Errorf("%+v, %v", list, err)
	}
}

// Only ids are part of a name; nothing else reaches a file, and no link is followed.
func TestIDs(t *testing.T) {
	s := fresh(t)
	for _, id := range []string{"", ".", "..", "a/b", "../a", "A", "a.b", "a\x00", "é", strings.Repeat("a", 65)} {
		l := create(t, s, id, 100)
		spooled(t, l, Stdout, []byte("x"))
		if err := l.Err(Stdout); !errors.Is(err, errID) || l.Kept(Stdout) != 0 || l.Total(Stdout) != 1 {
			t.Errorf("create %q: %v", id, err)
		}
		if _, err := s.Recover(id, 100); !errors.Is(err, errID) {
			t.Errorf("recover %q: %v", id, err)
		}
		if err := s.Remove(id); !errors.Is(err, errID) {
			t.Errorf("remove %q: %v", id, err)
		}
	}
	if entries, err := os.ReadDir(s.path); err != nil || len(entries) != 0 {
		t.Errorf("%v, %v", entries, err)
	}
	target := filepath.Join(t.TempDir(), "target")
	if err := errors.Join(os.WriteFile(target, []byte("secret"), 0o600), os.Symlink(target, filepath.Join(s.path, "a.stdout"))); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Recover("a", 100); err == nil {
		t.Error("a link is recovered")
	}
	l := create(t, s, "a", 100)
	spooled(t, l, Stdout, []byte("x"))
	if got, _ := os.ReadFile(target); l.Err(Stdout) == nil || string(got) != "secret" {
		t.Errorf("a link is written through: %q, %v", got, l.Err(Stdout))
	}
	if id := strings.Repeat("z", 64); !wellFormed(id) || !wellFormed("exec_01-a") {
		t.Error("an id is refused")
	}
}

// A log of an id that has files already keeps nothing in them.
func TestCreateTwice(t *testing.T) {
	s := fresh(t)
	first := create(t, s, "x", 100)
	spooled(t, first, Stdout, sequence(Stdout, 0, 10))
	second := create(t, s, "x", 100)
	spooled(t, second, Stdout, []byte("other"))
	if !errors.Is(second.Err(Stdout), unix.EEXIST) || second.Total(Stdout) != 5 {
		t.Errorf("%v", second.Err(Stdout))
	}
	check(t, first)
}

// Files go from one execution to the next, but none that anybody can still read, and nothing in them.
func TestSpares(t *testing.T) {
	s := fresh(t)
	read := create(t, s, "read", 100)
	spooled(t, read, Stdout, sequence(Stdout, 0, 100))
	done := create(t, s, "done", 100)
	spooled(t, done, Stdout, []byte("secret"))
	spooled(t, done, Stderr, []byte("secret"))
	done.Close()
	if err := errors.Join(s.Remove("read"), s.Remove("done")); err != nil {
		t.Fatal(err)
	}
	if len(s.spares.names) != 3 {
		t.Fatalf("spares: %v", s.spares.names)
	}
	if err := os.WriteFile(filepath.Join(s.path, sparePrefix+"9"), []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	s = open(t, s.path) // as the next process does
	if len(s.spares.names) != 3 || s.spares.next != 3 {
		t.Fatalf("adopted: %v, next %d", s.spares.names, s.spares.next)
	}
	for i := range 5 {
		l := create(t, s, fmt.Sprint("next", i), 100)
		spooled(t, l, Stdout, sequence(Stdout, 0, 3))
		spooled(t, l, Stderr, sequence(Stderr, 0, 3))
		check(t, l)
	}
	check(t, read)
	if len(s.spares.names) != 0 || len(s.spares.logs) != 5 {
		t.Errorf("%v, %v", s.spares.names, s.spares.logs)
	}
}

// Closing a log ends its readers before its files are another's.
func TestCloseUnderReaders(t *testing.T) {
	s := fresh(t)
	for i := range 200 {
		id := fmt.Sprint(i)
		l := s.Create(id, 100)
		spooled(t, l, Stdout, bytes.Repeat([]byte{byte(i)}, 100))
		var readers sync.WaitGroup
		for range 2 {
			readers.Go(func() {
				p := make([]byte, 100)
				for {
					n, err := l.ReadAt(Stdout, p, 0)
					if errors.Is(err, os.ErrClosed) {
						return
					}
					if n != 100 || p[0] != byte(i) || p[99] != byte(i) {
						t.Errorf("round %d: %d bytes, %v, %d", i, n, err, p[0])
						return
					}
				}
			})
		}
		runtime.Gosched()
		l.Close()
		if err := s.Remove(id); err != nil {
			t.Error(err)
		}
		readers.Wait()
	}
	if len(s.spares.logs) != 0 {
		t.Errorf("open: %v", s.spares.logs)
	}
}

// One who waits is woken by what comes after it took the channel.
func TestChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := create(t, fresh(t), "x", 100)
		before := l.Changed()
		if l.Changed() != before {
			t.Error("two readers wait for different things")
		}
		l.Seal()
		<-before
		select {
		case <-l.Changed():
			t.Error("changed without a change")
		default:
		}
		l.Close()
	})
}

// The memory of a log does not depend on what is written (64 streams at once).
func TestFlatMemory(t *testing.T) {
	s := fresh(t)
	const size = 4 << 20
	var peak uint64
	stop, watched := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(watched)
		for {
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			peak = max(peak, m.HeapAlloc)
			select {
			case <-stop:
				return
			case <-time.After(5 * time.Millisecond):
			}
		}
	}()
	flood(t, s, 32, size)
	close(stop)
	<-watched
	if peak > 64<<20 {
		t.Errorf("heap of %d MiB", peak>>20)
	}
}

// flood writes size bytes to both streams of n logs at once, each with a reader that comes to the end.
func flood(t testing.TB, s *Store, n int, size int64) {
	block := sequence(Stdout, 0, 64<<10)
	var running sync.WaitGroup
	for i := range n {
		l := s.Create(fmt.Sprint("flood", i), size)
		var drains sync.WaitGroup
		for _, st := range streams {
			r, w := pipe(t)
			running.Go(func() {
				defer w.Close()
				for range size / int64(len(block)) {
					w.Write(block)
				}
			})
			drains.Go(func() {
				if err := l.Drain(st, r); err != nil {
					t.Error(err)
				}
				r.Close()
			})
			running.Go(func() {
				sum := sha256.New()
				p := make([]byte, 64<<10)
				for off := int64(0); ; {
					changed, over := l.Changed(), sealed(l)
					n, err := l.ReadAt(st, p, off)
					sum.Write(p[:n])
					off += int64(n)
					if n > 0 {
						continue
					}
					if err != io.EOF {
						t.Error(err)
					}
					if over {
						break
					}
					<-changed
				}
				if got := fmt.Sprintf("sha256:%x", sum.Sum(nil)); got != digest(t, l, st) || l.Kept(st) != size {
					t.Errorf("%d bytes, read %s, digest %s", l.Kept(st), got, digest(t, l, st))
				}
			})
		}
		running.Go(func() { drains.Wait(); l.Seal() })
		defer s.Remove(fmt.Sprint("flood", i))
		defer l.Close()
	}
	running.Wait()
}
