package integration

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/stockade-dev/stockade/internal/testbox"
	"github.com/stockade-dev/stockade/supervisor/api"
)

// How much there is to stream; STOCKADE_SOAK=1 has the second number.
var (
	streamBytes   = int64(soak(4_000_000, 100_000_000)) // of each
	shortCommands = soak(5_000, 100_000)
)

const (
	streams      = 64
	streamMemory = 256 << 20 // that a daemon may take for all of it
)

// A stream is what one command writes: a line, again and again. Its length is odd and differs from stream to stream, so
// that no byte of another place, or of another stream, is the one that belongs there.
type stream struct {
	exec string
	line string
}

// at is what stands at an offset.
func (s *stream) at(offset int64, n int) []byte {
	begin := int(offset % int64(len(s.line)))
	return []byte(strings.Repeat(s.line, (begin+n)/len(s.line)+1)[begin : begin+n])
}

// A reader takes in a stream from its beginning, and checks each byte.
type reader struct {
	*stream
	have int64
}

func (r *reader) take(e api.Event) error {
	if e.Gone != nil {
		return fmt.Errorf("%s is gone from %s on", r.exec, e.Gone.From)
	}
	if e.Kind != "output" {
		return nil
	}
	switch {
	case e.Stream != "stdout":
		return fmt.Errorf("%s: %q of %s", r.exec, e.Bytes, e.Stream)
	case e.Offset != r.have:
		return fmt.Errorf("%s: %d bytes at %d, after %d", r.exec, len(e.Bytes), e.Offset, r.have)
	case !bytes.Equal(e.Bytes, r.at(r.have, len(e.Bytes))):
		return fmt.Errorf("%s: %d bytes at %d are not what was written there", r.exec, len(e.Bytes), r.have)
	}
	r.have += int64(len(e.Bytes))
	return nil
}

// TestStreams has many commands write at once, and readers of every kind: who keeps up, who comes far
// behind, who goes away and comes back with his cursor or his last event, and who stops and never
// reads on. Each of those who read gets every byte once, at its place; who stops keeps neither the command
// nor anybody else waiting; and the daemon does not grow (T069, R141 to R150, C13, C23). Control: with what is written
// once more in its memory, it would have taken more than it may.
func TestStreams(t *testing.T) {
	var args []string
	if streamBytes > 64<<20 {
		args = []string{"--policy", generous(t, 2*streamBytes)}
	}
	d := start(t, args...)
	c := d.Client()
	if idle, err := d.Memory(); err != nil || idle+streams*streamBytes < streamMemory {
		t.Errorf("control: with %d bytes, and all that is written, a daemon has no more than it may: %v", idle, err)
	}
	var all [streams]stream
	sessions := make([]string, 4)
	for i := range sessions {
		sessions[i] = opened(t, c, func(o *api.SessionOpen) { o.Limits.OutputBytes = 2 * streamBytes }).SessionID
	}
	for i := range all {
		s := &all[i]
		s.line = fmt.Sprintf("%0*d\n", 1008+2*i, i)
		ask := api.Exec{SessionID: sessions[i%len(sessions)], TimeoutNS: int64(20 * time.Minute),
			Argv: []string{"sh", "-c", `yes "$1" | head -c "$2"`, "sh", strings.TrimSpace(s.line), fmt.Sprint(streamBytes)}}
		p, r, err := c.Start(t.Context(), ask)
		switch {
		case err != nil:
			t.Fatal(err)
		case p != nil:
			s.exec = p.ExecID
		default:
			s.exec = settled(t, r, nil).ExecID
		}
	}
	// Who stops has got as far as the socket takes; he is there until everything is over.
	stopped, leave := context.WithCancel(t.Context())
	var stopping, reading sync.WaitGroup
	for i := range all {
		if i%4 == 0 {
			stopping.Go(func() {
				c.Watch(stopped, all[i].exec, "", func(e api.Event) error {
					if e.Kind == "output" {
						<-stopped.Done()
						return stopped.Err()
					}
					return nil
				})
			})
		}
	}
	kinds := []struct {
		name string
		read func(context.Context, *testbox.Daemon, *reader) error
	}{{"keeps up", keepUp}, {"lags", lag}, {"comes back with his cursor", comeBack}, {"comes back with his last event", lastEvent}}
	begin := time.Now()
	for i := range all {
		k := kinds[i%len(kinds)]
		reading.Go(func() {
			r := &reader{stream: &all[i]}
			if err := k.read(t.Context(), d, r); err != nil {
				t.Errorf("who %s: %v", k.name, err)
			}
			if r.have != streamBytes {
				t.Errorf("who %s has %d bytes of %d", k.name, r.have, streamBytes)
			}
		})
	}
	for i := range all {
		r := settled(t, ended(t, c, all[i].exec), nil)
		if x := r.Payload.Exec; x.ExitCode != 0 || x.StdoutBytes != streamBytes || x.Stdout.Truncated {
			t.Errorf("stream %d: exit %d, %d bytes", i, x.ExitCode, x.StdoutBytes)
		}
	}
	written := time.Since(begin)
	reading.Wait()
	leave()
	stopping.Wait()
	memory, err := d.Memory()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d streams of %d bytes: written in %v, read in %v, at most %d MiB in the daemon", streams, streamBytes,
		written.Round(time.Millisecond), time.Since(begin).Round(time.Millisecond), memory>>20)
	if memory > streamMemory {
		t.Errorf("the daemon took %d MiB", memory>>20)
	}
}

// generous is the shipped policy with another ceiling for output.
func generous(t *testing.T, output int64) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("../policies")); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "profiles/workspace/data.json")
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	const usual = `"output_bytes": 67108864`
	if !bytes.Contains(data, []byte(usual)) {
		t.Fatalf("%s has no %s", file, usual)
	}
	data = bytes.ReplaceAll(data, []byte(usual), fmt.Appendf(nil, `"output_bytes": %d`, output))
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

func keepUp(ctx context.Context, d *testbox.Daemon, r *reader) error {
	_, err := d.Client().Watch(ctx, r.exec, "", r.take)
	return err
}

// lag reads a piece and rests, so that he is behind all the time.
func lag(ctx context.Context, d *testbox.Daemon, r *reader) error {
	rested := int64(0)
	_, err := d.Client().Watch(ctx, r.exec, "", func(e api.Event) error {
		if r.have-rested > streamBytes/20 {
			rested = r.have
			time.Sleep(50 * time.Millisecond)
		}
		return r.take(e)
	})
	return err
}

var errAway = errors.New("away for a while")

// comeBack goes away in the middle of it, again and again.
func comeBack(ctx context.Context, d *testbox.Daemon, r *reader) error {
	for after := ""; ; {
		left := r.have
		_, err := d.Client().Watch(ctx, r.exec, after, func(e api.Event) error {
			if err := r.take(e); err != nil {
				return err
			}
			if e.Cursor != "" {
				after = e.Cursor
			}
			if r.have-left > streamBytes/7 {
				return errAway
			}
			return nil
		})
		if !errors.Is(err, errAway) {
			return err
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// lastEvent is a browser's way: server-sent events, and the id of the last one when the connection was lost.
func lastEvent(ctx context.Context, d *testbox.Daemon, r *reader) error {
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", d.Socket)
	}}
	defer transport.CloseIdleConnections()
	for last := ""; ; {
		enough := r.have + streamBytes/5
		end, err := func() (bool, error) {
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://stockade/v1/executions/"+r.exec+"/output", nil)
			if err != nil {
				return false, err
			}
			req.Header.Set("Accept", "text/event-stream")
			if last != "" {
				req.Header.Set("Last-Event-ID", last)
			}
			resp, err := transport.RoundTrip(req)
			if err != nil {
				return false, err
			}
			defer resp.Body.Close()
			if resp.StatusCode != http.StatusOK {
				return false, errors.New(resp.Status)
			}
			for lines := bufio.NewReader(resp.Body); r.have < enough; {
				line, err := lines.ReadString('\n')
				if err != nil {
					return false, err
				}
				if id, ok := strings.CutPrefix(line, "id: "); ok {
					last = strings.TrimSpace(id)
				}
				data, ok := strings.CutPrefix(line, "data: ")
				if !ok {
					continue
				}
				var e api.Event
				if err := json.Unmarshal([]byte(data), &e); err != nil {
					return false, err
				}
				if err := r.take(e); err != nil || e.Receipt != nil {
					return e.Receipt != nil, err
				}
			}
			return false, nil
		}()
		if end || err != nil {
			return err
		}
	}
}

// TestShortCommands runs many commands that print something of their own and exit with a status of
// their own. None loses a byte or gets another's status; and the daemon has no more of anything when they are
// over, but for a bounded past (R045, R046, R240).
func TestShortCommands(t *testing.T) {
	const callers, past = 16, 500
	d := start(t, "--history", fmt.Sprint(past), "--retain-every", "500ms")
	if err := d.Stop(); err != nil {
		t.Fatal(err)
	}
	d.Env = []string{"GOGC=100"} // what it holds is what counts here, not what it might have collected
	again(t, d)
	c := d.Client()
	before, err := d.Used(t.Context(), func(ctx context.Context) error { return once(ctx, d) })
	if err != nil {
		t.Fatal(err)
	}
	var sessions []string
	for range 4 {
		sessions = append(sessions, opened(t, c, nil).SessionID)
	}
	begin := time.Now()
	var next atomic.Int64
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			for i := int(next.Add(1)); i <= shortCommands && !t.Failed(); i = int(next.Add(1)) {
				word, status := fmt.Sprintf("command %d of %d", i, shortCommands), i%256
				r, err := c.Exec(t.Context(), api.Exec{SessionID: sessions[i%len(sessions)],
					Argv: []string{"sh", "-c", `echo "$0"; echo "$0" >&2; exit $1`, word, fmt.Sprint(status)}})
				if err := happened(r, err); err != nil {
					t.Errorf("%s: %v", word, err)
				} else if x := r.Payload.Exec; x.ExitCode != status || text(x.Stdout) != word+"\n" || text(x.Stderr) != word+"\n" {
					t.Errorf("%s: exit %d, stdout %q, stderr %q", word, x.ExitCode, text(x.Stdout), text(x.Stderr))
				}
			}
		})
	}
	all.Wait()
	took := time.Since(begin)
	t.Logf("%d commands in %v: %.0f a second", shortCommands, took.Round(time.Millisecond), float64(shortCommands)/took.Seconds())

	if err := closeAll(d); err != nil {
		t.Error(err)
	}
	left, err := d.Scope().Settle(before, testbox.SettleWithin)
	if err != nil || len(left) > 0 {
		t.Errorf("it holds more than it held: %q, %v", left, err)
	}
	eventually(t, "the past is bounded", func() bool {
		kept := map[string]bool{}
		err := filepath.WalkDir(filepath.Join(d.State, "spool"), func(path string, e fs.DirEntry, err error) error {
			if name := filepath.Base(path); strings.HasPrefix(name, "x-") {
				id, _, _ := strings.Cut(name, ".")
				kept[id] = true
			}
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			return err
		})
		return err == nil && len(kept) <= past
	})
	memory, err := d.Memory()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("at most %d MiB in the daemon", memory>>20)
	if memory > 2*streamMemory { // the places of all receipts are held, and two heaps at the worst
		t.Errorf("the daemon took %d MiB", memory>>20)
	}
	if n, err := d.Goroutines(); err != nil || n > 100 {
		t.Errorf("%d goroutines, %v", n, err)
	}
	again(t, d)
}
