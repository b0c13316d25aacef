package spool

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/internal/blob"
)

// TestMain is also the process that is killed.
func TestMain(m *testing.M) {
	if dir := os.Getenv("STOCKADE_SPOOL_CHILD"); dir != "" {
		drainForParent(dir)
	}
	os.Exit(m.Run())
}

// drainForParent drains descriptors 3 and 4 until it is killed, into a log that may have been begun by another.
func drainForParent(dir string) {
	limit, err := strconv.ParseInt(os.Getenv("STOCKADE_SPOOL_LIMIT"), 10, 64)
	if err != nil {
		panic(err)
	}
	s, err := Open(dir)
	if err != nil {
		panic(err)
	}
	l, err := s.Recover("x", limit)
	if err != nil {
		panic(err)
	}
	if size := os.Getenv("STOCKADE_SPOOL_FSIZE"); size != "" {
		n, _ := strconv.ParseUint(size, 10, 64)
		if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: n, Max: n}); err != nil {
			panic(err)
		}
	}
	for i, st := range streams {
		go l.Drain(st, os.NewFile(uintptr(3+i), st.String()))
	}
	os.Stdout.WriteString("draining\n")
	io.Copy(io.Discard, os.Stdin) // the parent's end closes with the parent
	os.Exit(0)
}

// child starts a process that drains r, and gives what ends it with SIGKILL.
func child(t *testing.T, dir string, r [len(streams)]*os.File, limit int64, env ...string) (kill func()) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "STOCKADE_SPOOL_CHILD="+dir, fmt.Sprint("STOCKADE_SPOOL_LIMIT=", limit))
	cmd.Env = append(cmd.Env, env...)
	cmd.ExtraFiles = r[:]
	cmd.Stderr = os.Stderr
	in, inErr := cmd.StdinPipe()
	out, outErr := cmd.StdoutPipe()
	if err := errors.Join(inErr, outErr, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(out, make([]byte, len("draining\n"))); err != nil {
		t.Fatal(err)
	}
	return func() {
		cmd.Process.Kill()
		cmd.Wait()
		in.Close()
	}
}

// writers writes to both pipes until stop, which says how much went in.
func writers(t *testing.T, rng *rand.Rand, w [len(streams)]*os.File, from [len(streams)]int64) (stop func() [len(streams)]int64) {
	done := make(chan [2]int64)
	for _, st := range streams {
		w[st].SetWriteDeadline(time.Time{})
		largest, pause, seed := 1<<rng.IntN(18), rng.IntN(500), rng.Uint64()
		go func() {
			rng := rand.New(rand.NewPCG(5, seed))
			off := from[st]
			for {
				n, err := w[st].Write(sequence(st, off, int64(1+rng.IntN(largest))))
				off += int64(n)
				if err != nil {
					done <- [2]int64{int64(st), off}
					return
				}
				if pause > 100 {
					time.Sleep(time.Duration(rng.IntN(pause)) * time.Microsecond)
				}
			}
		}()
	}
	return func() (wrote [len(streams)]int64) {
		for _, st := range streams {
			w[st].SetWriteDeadline(time.Now())
		}
		for range streams {
			end := <-done
			wrote[end[0]] = end[1]
		}
		return wrote
	}
}

func pipes(t *testing.T) (r, w [len(streams)]*os.File) {
	for _, st := range streams {
		r[st], w[st] = pipe(t)
		if err := unix.SetNonblock(int(w[st].Fd()), true); err != nil {
			t.Fatal(err)
		}
		fd, err := unix.FcntlInt(w[st].Fd(), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		w[st].Close()
		w[st] = os.NewFile(uintptr(fd), "w") // in the poller: it has deadlines
		t.Cleanup(func() { w[st].Close() })
	}
	return r, w
}

// C26: fifty processes in a row drain the same pipes and are killed at any moment. What they left and what is
// still in the pipes is what was written, each byte once; what is recovered is what a
// later process goes on with.
func TestKill(t *testing.T) {
	rng := rand.New(rand.NewPCG(6, 7))
	for range 10 {
		s := fresh(t)
		r, w := pipes(t)
		limit := int64(1) << 40
		if rng.IntN(3) == 0 {
			limit = int64(rng.IntN(1 << 20))
		}
		var wrote [len(streams)]int64
		for range 5 {
			kill := child(t, s.path, r, limit)
			stop := writers(t, rng, w, wrote)
			time.Sleep(time.Duration(rng.IntN(15000)) * time.Microsecond)
			if rng.IntN(2) == 0 {
				kill()
				wrote = stop()
			} else {
				wrote = stop()
				kill()
			}
			l := recovered(t, s, "x", limit)
			check(t, l)
			for _, st := range streams {
				inPipe, err := unix.IoctlGetInt(int(r[st].Fd()), unix.TIOCINQ)
				if err != nil {
					t.Fatal(err)
				}
				unix.SetNonblock(int(r[st].Fd()), true) // Fd took it back
				total := l.Total(st) + int64(inPipe)
				if l.Kept(st) < limit && (total != wrote[st] || l.Kept(st) != l.Total(st)) {
					t.Fatalf("%s: %d kept of %d, and %d in the pipe, of %d", st, l.Kept(st), l.Total(st), inPipe, wrote[st])
				}
				if l.Kept(st) > limit || l.Kept(st)+int64(inPipe) < wrote[st] && l.Total(st) == l.Kept(st) {
					t.Fatalf("%s: %d kept of %d, and %d in the pipe, of %d: not said to be cut", st, l.Kept(st), l.Total(st), inPipe, wrote[st])
				}
			}
			l.Close()
		}
		l := recovered(t, s, "x", limit)
		for _, st := range streams {
			w[st].Close()
			if err := l.Drain(st, r[st]); err != nil {
				t.Fatal(err)
			}
			if l.Kept(st) != min(limit, wrote[st]) || l.Kept(st) < limit && l.Total(st) != wrote[st] {
				t.Fatalf("%s: %d of %d in the end, of %d", st, l.Kept(st), l.Total(st), wrote[st])
			}
		}
		check(t, l)
		l.Close()
	}
}

// sample is a log with both streams, several chunks, and dropped bytes of stderr.
func sample(t testing.TB, s *Store) (kept [len(streams)]int64) {
	t.Helper()
	l := create(t, s, "x", 100)
	for i, n := range []int64{10, 20, 30, 40, 50, 60} {
		st := streams[i%2]
		spooled(t, l, st, sequence(st, l.Total(st), n))
	}
	check(t, l)
	if n := len(l.Chunks(1, 100)); n != 7 || l.Total(Stderr) != 120 {
		t.Fatal(n, l.Chunks(1, 100))
	}
	l.Close()
	return [len(streams)]int64{l.Kept(Stdout), l.Kept(Stderr)}
}

// R155: a chunk log that is cut anywhere, or in which any bit is wrong, costs order at most. Bytes and
// counts of what was dropped are believed as far as anything tells of them.
func TestDamagedOrder(t *testing.T) {
	s := fresh(t)
	kept := sample(t, s)
	name := filepath.Join(s.path, "x.chunks")
	whole, err := os.ReadFile(name)
	if err != nil || len(whole) != headerSize+7*recordSize {
		t.Fatal(len(whole), err)
	}
	try := func(what string, damaged []byte, droppedLost bool) {
		t.Helper()
		if err := os.WriteFile(name, damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		var before []Chunk
		for range 2 { // the second finds what the first has mended
			l := recovered(t, s, "x", 100)
			check(t, l)
			if l.Kept(Stdout) != kept[Stdout] || l.Kept(Stderr) != kept[Stderr] || l.Total(Stderr) != 120 && !droppedLost {
				t.Fatalf("%s: %d, %d of %d", what, l.Kept(Stdout), l.Kept(Stderr), l.Total(Stderr))
			}
			chunks := l.Chunks(1, 100)
			if before != nil && !slices.Equal(chunks, before) {
				t.Fatalf("%s: %v, then %v", what, before, chunks)
			}
			before = chunks
			l.Close()
		}
	}
	try("whole", whole, false)
	if got, _ := os.ReadFile(name); !bytes.Equal(got, whole) {
		t.Error("a sound log is changed")
	}
	for n := range whole {
		try(fmt.Sprint("cut at ", n), whole[:n], true)
	}
	for i := range whole {
		damaged := bytes.Clone(whole)
		damaged[i] ^= 1 << (i % 8)
		last := i >= len(whole)-recordSize
		try(fmt.Sprint("bit of byte ", i), damaged, last)
	}
	try("garbage behind", append(bytes.Clone(whole), "0123456789"...), false)
	try("a record twice", slices.Concat(whole, whole[headerSize:]), false)
	try("an order of its own", slices.Concat(whole[:headerSize], whole[headerSize+recordSize:], whole[headerSize:headerSize+recordSize]), false)
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
	l := recovered(t, s, "x", 100)
	check(t, l)
}

// A chunk log of another version is not taken for a damaged one.
func TestVersion(t *testing.T) {
	s := fresh(t)
	sample(t, s)
	name := filepath.Join(s.path, "x.chunks")
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	header := binary.LittleEndian.AppendUint32(bytes.Clone(b[:len(magic)]), version+1)
	header = append(header, b[len(header):headerSize-4]...)
	header = binary.LittleEndian.AppendUint32(header, checksum(header))
	if err := os.WriteFile(name, append(header, b[headerSize:]...), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Recover("x", 100); err == nil {
		t.Error("it is read")
	}
}

// Records that claim more than there is, as after a power cut, are cut.
func TestShortFile(t *testing.T) {
	s := fresh(t)
	sample(t, s)
	for n := int64(89); n >= 0; n-- {
		if err := os.Truncate(filepath.Join(s.path, "x.stdout"), n); err != nil {
			t.Fatal(err)
		}
		l := recovered(t, s, "x", 100)
		check(t, l)
		if l.Kept(Stdout) != n || l.Total(Stderr) != 120 {
			t.Fatalf("%d: %d, %d", n, l.Kept(Stdout), l.Total(Stderr))
		}
		l.Close()
	}
}

// Without a chunk log, the stream that was written first comes first.
func TestOrderByTime(t *testing.T) {
	s := fresh(t)
	for _, st := range streams {
		if err := os.WriteFile(filepath.Join(s.path, "x."+st.String()), sequence(st, 0, 10), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	now := time.Now()
	for i, row := range []struct {
		stdout, stderr time.Time
		want           []Stream
	}{
		{now, now, []Stream{Stdout, Stderr}},
		{now, now.Add(time.Second), []Stream{Stdout, Stderr}},
		{now, now.Add(-time.Second), []Stream{Stderr, Stdout}},
	} {
		os.Chtimes(filepath.Join(s.path, "x.stdout"), row.stdout, row.stdout)
		os.Chtimes(filepath.Join(s.path, "x.stderr"), row.stderr, row.stderr)
		l := recovered(t, s, "x", 100)
		check(t, l)
		for j, c := range l.Chunks(1, 10) {
			if c.Stream != row.want[j] {
				t.Errorf("row %d: %v", i, l.Chunks(1, 10))
			}
		}
		l.Close()
	}
}

// A log that is recovered beside the one that is being written changes nothing for that one.
func TestRecoverBeside(t *testing.T) {
	s := fresh(t)
	l := create(t, s, "x", 1000)
	for i := range int64(10) {
		for _, st := range streams {
			spooled(t, l, st, sequence(st, 10*i, 10))
		}
		os.Truncate(filepath.Join(s.path, "x.chunks"), headerSize+i*recordSize) // as if it were behind
		beside := recovered(t, s, "x", 1000)
		check(t, beside)
		if n := beside.Kept(Stdout); n != 10*(i+1) {
			t.Errorf("%d bytes", n)
		}
		if info, err := os.Stat(filepath.Join(s.path, "x.chunks")); err != nil || info.Size() != headerSize+i*recordSize {
			t.Errorf("%v, %v", info, err)
		}
		beside.Close()
	}
	check(t, l)
}

// Nothing of an execution is an empty log.
func TestRecoverNothing(t *testing.T) {
	s := fresh(t)
	l := recovered(t, s, "x", 100)
	if l.Kept(Stdout) != 0 || l.Position(0, 0) != 1 || len(l.Chunks(1, 1)) != 0 || digest(t, l, Stderr) != "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855" {
		t.Error(l.Kept(Stdout), l.Position(0, 0), digest(t, l, Stderr))
	}
	if _, err := l.ReadAt(Stdout, make([]byte, 1), 0); err != io.EOF {
		t.Error(err)
	}
	spooled(t, l, Stdout, sequence(Stdout, 0, 10))
	check(t, l)
}

// R155: a file that takes no more bytes ends what is kept, not the command; that bytes are
// missing is known to every later process, and nothing is ever kept behind a gap.
func TestFailingFile(t *testing.T) {
	s := fresh(t)
	r, w := pipes(t)
	kill := child(t, s.path, r, 1<<40, "STOCKADE_SPOOL_FSIZE=100000")
	for _, st := range streams {
		w[st].SetWriteDeadline(time.Now().Add(10 * time.Second))
		if n, err := w[st].Write(sequence(st, 0, 1<<20)); err != nil {
			t.Fatalf("the writer is held up at %d: %v", n, err)
		}
	}
	for _, st := range streams {
		waitEmpty(t, r[st])
	}
	kill()
	for range 2 {
		l := recovered(t, s, "x", 1<<40)
		check(t, l)
		for _, st := range streams {
			before := l.Total(st)
			if l.Kept(st) != 100000 || before <= l.Kept(st) || !errors.Is(l.Err(st), errCut) {
				t.Errorf("%s: %d of %d, %v", st, l.Kept(st), before, l.Err(st))
			}
			spooled(t, l, st, make([]byte, 1000))
			if l.Kept(st) != 100000 || l.Total(st) != before+1000 {
				t.Errorf("%s: %d of %d after 1000 more", st, l.Kept(st), l.Total(st))
			}
		}
		l.Close()
		os.Remove(filepath.Join(s.path, "x.chunks")) // should it not have been written either
		l = recovered(t, s, "x", 1<<40)
		for _, st := range streams {
			if !errors.Is(l.Err(st), errCut) {
				t.Errorf("%s without a chunk log: %v", st, l.Err(st))
			}
			spooled(t, l, st, make([]byte, 1000))
			if l.Kept(st) != 100000 || l.Total(st) != 101000 {
				t.Errorf("%s: %d of %d after 1000 more", st, l.Kept(st), l.Total(st))
			}
		}
		l.Close()
	}
}

func waitEmpty(t *testing.T, r *os.File) {
	t.Helper()
	conn, err := r.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		left := -1
		conn.Control(func(fd uintptr) { left, err = unix.IoctlGetInt(int(fd), unix.TIOCINQ) })
		if err != nil || left == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d bytes stay in the pipe", left)
		}
	}
}

// tmpfs mounts a small file system that ends with the test's thread.
func tmpfs(t *testing.T, options string) string {
	t.Helper()
	runtime.LockOSThread()
	mount := t.TempDir()
	err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS)
	if err == nil {
		err = unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
	}
	if err == nil {
		err = unix.Mount("tmpfs", mount, "tmpfs", 0, options)
	}
	if errors.Is(err, unix.EPERM) && os.Getenv("STOCKADE_NOSKIP") != "1" {
		t.Skipf("mounting a tmpfs needs CAP_SYS_ADMIN: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Unmount(mount, unix.MNT_DETACH) })
	return mount
}

// T191: a disk that is nearly full ends what is kept before it is full.
func TestFullDisk(t *testing.T) {
	s := open(t, filepath.Join(tmpfs(t, "size=4m,mode=0700"), "spool"))
	l := s.Create("x", 1<<30)
	defer l.Close()
	early := s.Create("early", 100)
	defer early.Close()
	spooled(t, early, Stdout, []byte("x"))
	for range 8 {
		spooled(t, l, Stdout, sequence(Stdout, l.Total(Stdout), 1<<20))
	}
	if !errors.Is(l.Err(Stdout), blob.ErrFull) || l.Kept(Stdout) < 2<<20 || l.Total(Stdout) != 8<<20 {
		t.Errorf("%d of %d, %v", l.Kept(Stdout), l.Total(Stdout), l.Err(Stdout))
	}
	spooled(t, early, Stdout, nil)
	if err := early.Err(Stdout); err != nil {
		t.Errorf("nothing was lost: %v", err)
	}
	var st unix.Statfs_t
	if err := unix.Statfs(s.path, &st); err != nil || st.Bavail < st.Blocks/8 {
		t.Errorf("%d of %d blocks are left, %v", st.Bavail, st.Blocks, err)
	}
	check(t, l)
	spooled(t, l, Stderr, []byte("x"))
	if !errors.Is(l.Err(Stderr), blob.ErrFull) && l.Kept(Stderr) != 1 {
		t.Errorf("stderr: %d, %v", l.Kept(Stderr), l.Err(Stderr))
	}
}

// Where no file can be made at all, output is counted.
func TestNoFile(t *testing.T) {
	s := open(t, filepath.Join(tmpfs(t, "size=4m,nr_inodes=3,mode=0700"), "spool"))
	l := s.Create("x", 1<<30)
	defer l.Close()
	spooled(t, l, Stdout, sequence(Stdout, 0, 10))
	spooled(t, l, Stderr, sequence(Stderr, 0, 10))
	if l.Err(Stdout) != nil || !errors.Is(l.Err(Stderr), unix.ENOSPC) || l.Kept(Stderr) != 0 || l.Total(Stderr) != 10 {
		t.Errorf("%v, %v, %d of %d", l.Err(Stdout), l.Err(Stderr), l.Kept(Stderr), l.Total(Stderr))
	}
	check(t, l)
}
