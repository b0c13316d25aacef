package files

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/internal/filetool"
	"github.com/stockade-dev/stockade/internal/memfile"
	"github.com/stockade-dev/stockade/internal/packet"
	"github.com/stockade-dev/stockade/sandbox/file"
)

// worker serves in a directory of the test's.
func worker(t *testing.T, c Config) (*Conn, string, <-chan int) {
	t.Helper()
	dir := t.TempDir()
	ours, theirs, err := Pair()
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan int, 1)
	go func() {
		root, _ := os.Open(dir)
		defer root.Close()
		status := Serve(int(theirs.Fd()), func(c Config, _ *os.File, s *Store) (Tools, error) {
			return filetool.Open(filetool.Config{Root: root, Workdir: c.Workdir, Caps: c.Caps, Store: s.Put, Load: s.Get})
		})
		theirs.Close()
		ended <- status
	}()
	conn, err := Open(t.Context(), ours, c, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn, dir, ended
}

func TestARequestAndItsAnswer(t *testing.T) {
	conn, dir, ended := worker(t, Config{Workdir: "/"})
	ask := &file.Request{Op: file.OpWrite, Write: &file.Write{Target: file.Target{Path: "a"}, Content: file.Content{InlineText: &file.InlineText{Text: "hello"}}}}
	sight, fault, err := conn.Look(t.Context(), ask, nil)
	if err != nil || fault != nil || len(sight.Paths) != 1 || sight.Paths[0] != (file.Seen{Path: "a", Resolved: "/a", Write: true}) {
		t.Fatalf("%+v %v %v", sight, fault, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "a")); err == nil {
		t.Error("a look has made it")
	}
	res, content, err := conn.Do(t.Context(), ask, nil)
	if err != nil || content != nil || res.Write == nil || res.Write.Status != file.OK {
		t.Fatalf("%+v %v %v", res, content, err)
	}
	if b, _ := os.ReadFile(filepath.Join(dir, "a")); string(b) != "hello" {
		t.Errorf("%q", b)
	}
	conn.Close()
	if status := <-ended; status != 0 {
		t.Errorf("ended with %d", status)
	}
	if _, _, err := conn.Do(t.Context(), ask, nil); !errors.Is(err, ErrGone) {
		t.Error(err)
	}
}

// What is large travels beside the documents, both ways, and is what it is called.
func TestContents(t *testing.T) {
	conn, dir, _ := worker(t, Config{Workdir: "/"})
	text := strings.Repeat("0123456789abcdef", 1<<16)
	sum := sha256.Sum256([]byte(text))
	ref := "sha256:" + hex.EncodeToString(sum[:])
	blob, n, err := memfile.Of("content", strings.NewReader(text))
	if err != nil || n != int64(len(text)) {
		t.Fatal(n, err)
	}
	defer blob.Close()
	write := &file.Request{Op: file.OpWrite, Write: &file.Write{Target: file.Target{Path: "large"}, Content: file.Content{BlobRef: &file.BlobRef{BlobRef: ref}}}}
	if res, _, err := conn.Do(t.Context(), write, map[string]*os.File{ref: blob}); err != nil || res.Write.Status != file.OK {
		t.Fatalf("%+v %v", res, err)
	}
	if b, _ := os.ReadFile(filepath.Join(dir, "large")); string(b) != text {
		t.Errorf("%d bytes", len(b))
	}
	// It was there for the one request.
	if res, _, err := conn.Do(t.Context(), write, nil); err != nil || res.Write.Status == file.OK {
		t.Errorf("%+v %v", res, err)
	}
	for range 3 {
		res, content, err := conn.Do(t.Context(), &file.Request{Op: file.OpRead, Read: &file.Read{Target: file.Target{Path: "large"}}}, nil)
		if err != nil || content == nil || res.Blob().BlobRef != ref {
			t.Fatalf("%+v %v", res, err)
		}
		if b, _ := io.ReadAll(content); string(b) != text {
			t.Errorf("%d bytes", len(b))
		}
		content.Close()
	}
	inline := &file.Request{Op: file.OpWrite, Write: &file.Write{Target: file.Target{Path: "inline"}, Content: file.Content{InlineText: &file.InlineText{Text: text}}}}
	if res, _, err := conn.Do(t.Context(), inline, nil); err != nil || res.Write.Status != file.OK {
		t.Errorf("%+v %v", res, err)
	}
}

// The rules hold, and what cannot be served with is said.
func TestRules(t *testing.T) {
	conn, _, _ := worker(t, Config{Workdir: "/", Caps: file.Caps{Ops: []file.Class{file.ClassRead}}})
	res, _, err := conn.Do(t.Context(), &file.Request{Op: file.OpRemove, Remove: &file.Remove{Target: file.Target{Path: "a"}}}, nil)
	if err != nil || res.Change.Code != file.CodeOpNotAllowed {
		t.Errorf("%+v %v", res, err)
	}
	ours, theirs, _ := Pair()
	go Serve(int(theirs.Fd()), func(Config, *os.File, *Store) (Tools, error) { return nil, errors.New("no such place") })
	defer theirs.Close()
	if _, err := Open(t.Context(), ours, Config{}, nil); err == nil || !strings.Contains(err.Error(), "no such place") {
		t.Error(err)
	}
}

// slow never answers before it is told to give up.
type slow struct{ asked chan struct{} }

func (s slow) Do(ctx context.Context, r *file.Request) *file.Result {
	s.asked <- struct{}{}
	<-ctx.Done()
	return file.Empty(r.Op)
}

func (slow) Mend(*file.Request) {}

func (slow) Look(*file.Request) (file.Sight, *file.Fault) { return file.Sight{}, nil }

func TestWhoGivesUpIsNotWaitedFor(t *testing.T) {
	ours, theirs, _ := Pair()
	tools := slow{make(chan struct{}, 1)}
	ended := make(chan int, 1)
	go func() {
		ended <- Serve(int(theirs.Fd()), func(Config, *os.File, *Store) (Tools, error) { return tools, nil })
	}()
	conn, err := Open(t.Context(), ours, Config{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-tools.asked; cancel() }()
	stat := &file.Request{Op: file.OpStat, Stat: &file.Stat{Target: file.Target{Path: "a"}}}
	if _, _, err := conn.Do(ctx, stat, nil); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if _, _, err := conn.Look(t.Context(), stat, nil); err != nil { // it goes on
		t.Error(err)
	}
	go func() { conn.Do(t.Context(), stat, nil) }()
	<-tools.asked
	conn.Close()
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		t.Error("the end of the socket does not end what is under way")
	}
	theirs.Close()
}

// stuck waits for what never answers, and cannot be called back.
type stuck struct{ asked chan struct{} }

func (s stuck) Do(context.Context, *file.Request) *file.Result {
	s.asked <- struct{}{}
	select {}
}

func (stuck) Mend(*file.Request) {}

func (stuck) Look(*file.Request) (file.Sight, *file.Fault) { return file.Sight{}, nil }

// T151: what cannot be called back ends the worker soon after its caller has left; what can be, and what is still in line, does not. Who
// else was waiting is told at once. With a real file system that does not answer it is integration TestHungFileSystem.
func TestWhatCannotBeCalledBackEndsTheWorker(t *testing.T) {
	stat := &file.Request{Op: file.OpStat, Stat: &file.Stat{Target: file.Target{Path: "a"}}}
	for name, c := range map[string]struct {
		tools func(asked chan struct{}) Tools
		ends  bool
	}{
		"stuck":                {func(asked chan struct{}) Tools { return stuck{asked} }, true},
		"control: called back": {func(asked chan struct{}) Tools { return slow{asked} }, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			asked := make(chan struct{}, atOnce)
			ours, theirs, _ := Pair()
			ended := make(chan int, 1)
			go func() {
				ended <- Serve(int(theirs.Fd()), func(Config, *os.File, *Store) (Tools, error) { return c.tools(asked), nil })
			}()
			conn, err := Open(t.Context(), ours, Config{}, nil)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			gone := make(chan error, atOnce+1)
			for range atOnce + 1 { // the last one is in line
				go func() {
					_, _, err := conn.Do(ctx, stat, nil)
					gone <- err
				}()
			}
			for range atOnce {
				<-asked
			}
			cancel()
			for range atOnce + 1 {
				if err := <-gone; !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
			}
			select {
			case status := <-ended:
				if _, _, err := conn.Do(t.Context(), stat, nil); !c.ends || status == 0 || !errors.Is(err, ErrGone) {
					t.Errorf("it ended with %d, and says %v", status, err)
				}
			case <-time.After(giveUpAfter + 2*time.Second):
				if _, _, err := conn.Look(t.Context(), stat, nil); c.ends || err != nil {
					t.Errorf("it is still there (%v)", err)
				}
			}
			conn.Close()
			if !c.ends { // who reads from a number that is somebody else's by now takes his messages
				<-ended
				theirs.Close()
			} else { // whatever is stuck shuts the socket down by its number, each at its time
				time.AfterFunc(time.Minute, func() { theirs.Close() })
			}
		})
	}
}

// A worker that has been taken over says what it likes. Nothing of it is believed that does not have its form.
func TestALyingWorker(t *testing.T) {
	result := func(ref string, size int64) []byte {
		res := file.Result{Op: file.OpRead, Read: &file.ReadResult{Outcome: file.Outcome{Status: file.OK}, Content: &file.Output{Blob: &file.Blob{BlobRef: ref, SizeBytes: size}}}}
		msg, _ := encode(kindDone, 1, done{res})
		return msg
	}
	other, _ := encode(kindDone, 1, done{file.Result{Op: file.OpRemove, Change: &file.ChangeResult{}}})
	armless, _ := encode(kindDone, 1, done{file.Result{Op: file.OpRead}})
	wrong, _ := encode(kindSeen, 1, seen{})
	open, _ := unix.MemfdCreate("open", unix.MFD_CLOEXEC)
	defer unix.Close(open)
	sealed, _, _ := memfile.Of("content", strings.NewReader("abc"))
	defer sealed.Close()
	const huge = maxContent + 1
	zeros, _ := unix.MemfdCreate("zeros", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	defer unix.Close(zeros)
	if err := unix.Ftruncate(zeros, huge); err != nil {
		t.Fatal(err)
	}
	if _, err := unix.FcntlInt(uintptr(zeros), unix.F_ADD_SEALS, unix.F_SEAL_SEAL|unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_WRITE); err != nil {
		t.Fatal(err)
	}
	for name, answer := range map[string]func(fd int){
		"a content of zeros":   func(fd int) { packet.Send(fd, result("sha256:00", huge), zeros) },
		"nothing":              func(fd int) { packet.Send(fd, nil) },
		"no document":          func(fd int) { packet.Send(fd, append(other[:9:9], '{')) },
		"another operation":    func(fd int) { packet.Send(fd, other) },
		"no arm":               func(fd int) { packet.Send(fd, armless) },
		"another kind":         func(fd int) { packet.Send(fd, wrong) },
		"a blob without one":   func(fd int) { packet.Send(fd, result("sha256:00", 3)) },
		"a content to change":  func(fd int) { packet.Send(fd, result("sha256:00", 0), open) },
		"a content of another": func(fd int) { packet.Send(fd, result("sha256:00", 4), int(sealed.Fd())) },
	} {
		ours, theirs, _ := Pair()
		said := make(chan struct{})
		go func() {
			defer close(said)
			buf := new(packet.Buffer)
			buf.Receive(int(theirs.Fd()))
			ready, _ := encode(kindReady, 0, struct{}{})
			packet.Send(int(theirs.Fd()), ready)
			buf.Receive(int(theirs.Fd()))
			answer(int(theirs.Fd()))
			buf.Receive(int(theirs.Fd()))
			theirs.Close()
		}()
		conn, err := Open(t.Context(), ours, Config{}, nil)
		if err != nil {
			t.Fatal(name, err)
		}
		if res, _, err := conn.Do(t.Context(), &file.Request{Op: file.OpRead, Read: &file.Read{Target: file.Target{Path: "a"}}}, nil); err == nil {
			t.Errorf("%s: %+v", name, res)
		}
		conn.Close()
		<-said
	}
}
