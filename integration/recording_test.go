package integration

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stockade-dev/stockade/internal/testbox"
	"github.com/stockade-dev/stockade/supervisor/api"
	"github.com/stockade-dev/stockade/supervisor/client"
)

// withProfile starts a daemon whose workspace profile has these members instead.
func withProfile(t *testing.T, members map[string]any) *testbox.Daemon {
	t.Helper()
	policy := t.TempDir()
	if err := initPolicy(bin, policy); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(policy, "profiles/workspace/data.json")
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	var profile map[string]any
	if err := json.Unmarshal(b, &profile); err != nil {
		t.Fatal(err)
	}
	for path, value := range members {
		in := profile
		above, last, nested := strings.Cut(path, ".")
		if !nested {
			last = above
		} else {
			in = profile[above].(map[string]any)
		}
		in[last] = value
	}
	if b, err = json.Marshal(profile); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, b, 0o644); err != nil {
		t.Fatal(err)
	}
	return start(t, "--policy", policy)
}

// castFile is an asciicast v2, read as its description has it: a header in one line, then one event in each, whose times do not go back.
type castFile struct {
	header struct {
		Version   int               `json:"version"`
		Width     int               `json:"width"`
		Height    int               `json:"height"`
		Timestamp int64             `json:"timestamp"`
		Env       map[string]string `json:"env"`
	}
	events []castEvent
}

type castEvent struct {
	at         float64
	kind, data string
}

func parseCast(t *testing.T, b []byte) (f castFile) {
	t.Helper()
	if !utf8.Valid(b) || len(b) == 0 || b[len(b)-1] != '\n' {
		t.Fatalf("not lines of UTF-8: %q", b)
	}
	lines := strings.Split(strings.TrimSuffix(string(b), "\n"), "\n")
	if err := json.Unmarshal([]byte(lines[0]), &f.header); err != nil || f.header.Version != 2 || f.header.Width < 1 || f.header.Height < 1 {
		t.Fatalf("header %s: %v", lines[0], err)
	}
	last := 0.0
	for n, line := range lines[1:] {
		var e [3]any
		d := json.NewDecoder(strings.NewReader(line))
		if err := d.Decode(&e); err != nil || d.More() {
			t.Fatalf("line %d: %q: %v", n+2, line, err)
		}
		at, timed := e[0].(float64)
		kind, ok := e[1].(string)
		data, text := e[2].(string)
		if !timed || !ok || !text || at < last || !strings.Contains("oirm", kind) {
			t.Fatalf("line %d: %q", n+2, line)
		}
		if kind == "r" && !regexp.MustCompile(`^[1-9]\d*x[1-9]\d*$`).MatchString(data) {
			t.Errorf("a size is %q", data)
		}
		last = at
		f.events = append(f.events, castEvent{at, kind, data})
	}
	return f
}

// text is all of one kind.
func (f castFile) text(kind string) string {
	var all strings.Builder
	for _, e := range f.events {
		if e.kind == kind {
			all.WriteString(e.data)
		}
	}
	return all.String()
}

func exported(t *testing.T, c *client.Client, exec string, input bool) []byte {
	t.Helper()
	r, err := c.Recording(t.Context(), exec, input)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// R171: a shell is recorded as its grant says: what came out, its sizes, what was typed where nothing was to be hidden; bounded, and
// over the end of the supervisor. The receipt has the digest of what is exported.
func TestRecording(t *testing.T) {
	const limit = 60_000
	d := withProfile(t, map[string]any{"exec.record": map[string]any{"bytes": limit, "input": true}})
	c := d.Client()
	session := opened(t, c, func(o *api.SessionOpen) { o.Target.Local.Env = map[string]api.EnvValue{"PS1": {Text: "$ "}} }).SessionID
	s := openShell(t, c, api.Exec{SessionID: session, Argv: []string{"/bin/bash", "--norc", "-i"}, Terminal: &api.Terminal{Cols: 90, Rows: 30}})
	s.idle()
	s.run("printf 'gr\\303\\274n \\342\\202'; sleep 0.05; printf '\\254 \\377 end\\n'")
	s.input(api.ShellInput{Actions: []api.ShellAction{{Type: api.ActionResize, Cols: 100, Rows: 40}}})
	s.run("stty size")
	s.keys("read -s word\n")
	time.Sleep(200 * time.Millisecond) // until it is read, the terminal still shows what is typed
	s.keys("of-a-person\n")
	s.status = api.ShellBusy // what was read before this says nothing
	s.idle()
	s.keys("cat > /dev/null\n")
	s.input(api.ShellInput{Data: &api.Stdin{SecretText: &api.InlineText{Text: "of-a-machine\n"}}})
	s.actions(api.ActionCtrlD)
	s.status = api.ShellBusy
	s.idle()
	replaced(t, d)
	s.run("echo on the other side")
	live := parseCast(t, exported(t, c, s.exec, true))
	s.keys("exit 3\n")
	for !s.read(time.Second).End {
	}
	whole := exported(t, c, s.exec, true)
	f := parseCast(t, whole)
	p := s.get()
	r, err := c.Receipt(t.Context(), p.IntentID)
	if err != nil || r.Payload.Exec == nil || r.Payload.Exec.Recording == nil {
		t.Fatalf("%+v, %v", r, err)
	}
	rec := r.Payload.Exec.Recording
	sum := sha256.Sum256(whole)
	s.want("digest", rec.Digest, "sha256:"+hex.EncodeToString(sum[:]))
	s.want("size", fmt.Sprint(f.header.Width, f.header.Height), "90 30")
	s.want("terminal", f.header.Env["TERM"], "dumb")
	s.want("sizes", f.text("r"), "100x40")
	s.want("events", rec.Events, len(f.events))
	s.want("truncated", rec.Truncated, false)
	out, in := f.text("o"), f.text("i")
	for _, want := range []string{"grün € \uFFFD end\r\n", "40 100\r\n", "on the other side\r\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in %q", want, out)
		}
	}
	for _, want := range []string{"stty size\n", "read -s word\n", "[not recorded]", "exit 3\n"} {
		if !strings.Contains(in, want) {
			t.Errorf("no %q was typed: %q", want, in)
		}
	}
	for _, secret := range []string{"of-a-person", "of-a-machine", "\x1b]133;"} {
		if strings.Contains(in, secret) || secret[0] == 0x1b && strings.Contains(out, secret) {
			t.Errorf("%q is recorded", secret)
		}
	}
	if !strings.HasPrefix(out, live.text("o")) {
		t.Errorf("it was %q while it lived", live.text("o"))
	}
	// What was typed is for who asks for it.
	without := parseCast(t, exported(t, c, s.exec, false))
	s.want("without input", without.text("i")+without.text("o"), out)

	t.Run("asciinema", func(t *testing.T) { asciinemaReads(t, whole) })
	stockade := func(args ...string) string {
		cmd := exec.Command(filepath.Join(bin, "stockade"), args...)
		cmd.Env = append(os.Environ(), "STOCKADE_SOCKET="+d.Socket)
		out, err := cmd.Output()
		if err != nil {
			t.Errorf("%q: %v", args, err)
		}
		return string(out)
	}
	s.want("export", stockade("shell", "export", "--input", s.exec) == string(whole), true)
	lines := stockade("shell", "play", s.exec, "--grep", "other|green|^40")
	if !regexp.MustCompile(`^\d:00:\d\d\.\d{3}  40 100\n\d:00:\d\d\.\d{3}  (\$ )?echo on the other side\n\d:00:\d\d\.\d{3}  on the other side\n$`).MatchString(lines) {
		t.Errorf("lines: %q", lines)
	}

	// One that writes more than there is room for has its beginning, and says so; its output as such has its end.
	s = openShell(t, c, api.Exec{SessionID: session, Argv: []string{"/bin/sh", "-c", "seq 1 100000; echo end"}, WaitMS: 1})
	for !s.read(5 * time.Second).End {
	}
	f = parseCast(t, exported(t, c, s.exec, true))
	if n := len(f.text("o")); n > limit || n < limit-64 || !strings.Contains(f.text("m"), "truncated: ") {
		t.Errorf("%d bytes, and %q", n, f.text("m"))
	}
	// It is kept by its digest, which fsck and the proof look at.
	if r, err = c.Receipt(t.Context(), s.get().IntentID); err != nil || !r.Payload.Exec.Recording.Truncated || r.Payload.Exec.Recording.Cast.Blob == nil {
		t.Errorf("%+v, %v", r.Payload.Exec.Recording, err)
	}
	fsck := func() ([]byte, error) {
		return exec.Command(filepath.Join(bin, "stockaded"), "fsck", "--state", d.State).CombinedOutput()
	}
	if out, err := fsck(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	sha := strings.TrimPrefix(r.Payload.Exec.Recording.Cast.Blob.BlobRef, "sha256:")
	name := filepath.Join(d.State, "blobs", sha[:2], sha)
	if err := os.Rename(name, name+".tmp"); err != nil {
		t.Fatal(err)
	}
	if out, err := fsck(); err == nil || !strings.Contains(string(out), "missing_cas_dependency") || !strings.Contains(string(out), sha) {
		t.Errorf("without the recording: %v: %s", err, out)
	}
	if err := os.Rename(name+".tmp", name); err != nil {
		t.Fatal(err)
	}
	t.Run("asciinema of what is truncated", func(t *testing.T) { asciinemaReads(t, exported(t, c, s.exec, true)) })
}

// asciinema is the player that people have, as a command line of sh, with a locale without which it does not run.
func asciinema(t *testing.T, args string) string {
	t.Helper()
	program, err := exec.LookPath("asciinema")
	if err != nil {
		skip(t, "asciinema is not installed: scripts/setup tests would do it")
	}
	return "LC_ALL=C.UTF-8 ASCIINEMA_CONFIG_HOME=" + t.TempDir() + " " + program + " " + args
}

// asciinemaReads has asciinema read an export: what it has of it is every byte of the output, and nothing else.
func asciinemaReads(t *testing.T, cast []byte) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "session.cast")
	if err := os.WriteFile(file, cast, 0o644); err != nil {
		t.Fatal(err)
	}
	// It does not run without a terminal, on which it writes nothing here.
	line := asciinema(t, "cat "+file+" >"+file+".out")
	said, err := exec.CommandContext(t.Context(), "script", "-qec", line, "/dev/null").CombinedOutput()
	got, failed := os.ReadFile(file + ".out")
	if want := parseCast(t, cast).text("o"); err != nil || failed != nil || len(said) > 0 || string(got) != want || want == "" {
		t.Errorf("asciinema has %d bytes %.200q, want %d bytes %.200q: %v, %v, %s", len(got), got, len(want), want, err, failed, said)
	}
}

func codeIs(err error, code api.Code) bool {
	e, ok := err.(*api.Error)
	return ok && e.Code == code
}

// TestPlay: what a recording shows on a terminal is what the terminal showed, by whichever player.
func TestPlay(t *testing.T) {
	d := start(t)
	p := openPane(t, "STOCKADE_SOCKET="+d.Socket)
	p.screen(`host>$`)
	p.keys("stockade shell -- bash --norc", "Enter")
	p.screen(`[$#] ?$`)
	p.keys("PS1='in> '; clear", "Enter")
	p.screen(`^in>$`)
	p.keys("vi -u NONE /tmp/x", "Enter")
	p.screen(`~\n~\n`)
	p.keys("ihello from the editor", "Escape", "yy3p")
	was := p.screen(`^(hello from the editor\n){4}~`)
	c := d.Client()
	list, err := c.Processes(t.Context(), api.Read{Active: true})
	if err != nil || len(list.Processes) != 1 {
		t.Fatal(list, err)
	}
	x := list.Processes[0].ExecID
	file := filepath.Join(t.TempDir(), "x.cast")
	if err := os.WriteFile(file, exported(t, c, x, false), 0o644); err != nil {
		t.Fatal(err)
	}
	// cat shows what play writes, up to the end of the recording, without what play puts right behind it.
	q := openPane(t, "STOCKADE_SOCKET="+d.Socket)
	q.screen(`host>$`)
	var raw bytes.Buffer
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	raw.WriteString(parseCast(t, b).text("o"))
	if err := os.WriteFile(file+".raw", raw.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	q.keys("clear; cat "+file+".raw; read", "Enter")
	if got := q.screen(`^(hello from the editor\n){4}~`); got != was {
		t.Errorf("played:\n%s\nit was:\n%s", got, was)
	}
	blank := func() {
		q.keys("Enter", "reset; clear", "Enter")
		q.screen(`^host>$`)
	}
	blank()
	t.Run("asciinema", func(t *testing.T) {
		line := asciinema(t, "play --speed 1000 "+file)
		defer blank()
		q.keys("clear; "+line+"; echo played=$? >"+file+".told; read", "Enter")
		if got := q.screen(`^(hello from the editor\n){4}~`); got != was {
			t.Errorf("asciinema played:\n%s\nit was:\n%s", got, was)
		}
		for deadline := time.Now().Add(atMost); ; time.Sleep(20 * time.Millisecond) {
			told, err := os.ReadFile(file + ".told")
			if string(told) == "played=0\n" {
				break
			}
			if time.Now().After(deadline) || len(told) > 0 {
				t.Fatalf("asciinema: %q %v", told, err)
			}
		}
	})
	q.keys("stockade shell play --speed 1000 "+file+" --from 1h; echo played=$?", "Enter")
	q.screen(`played=0`)
	p.keys(":q!", "Enter")
	p.screen(`in>$`)
	p.keys("exit", "Enter")
	p.screen(`host>$`)
}

// S1's long-running flow: a server in a shell, reached from outside as policy lets it be, and stopped by its key. Nothing of the
// host's network changes, and nothing stays.
func TestForward(t *testing.T) {
	if _, err := os.Stat("/usr/bin/python3"); err != nil {
		skip(t, "needs python3 in /usr/bin: the server is one of its modules")
	}
	d := withProfile(t, map[string]any{"forward": map[string]any{"ports": []int{8000, 8001}}})
	c := d.Client()
	session := opened(t, c, func(o *api.SessionOpen) { o.Target.Local.Env = map[string]api.EnvValue{"PS1": {Text: "$ "}} }).SessionID
	s := openShell(t, c, api.Exec{SessionID: session, Argv: []string{"/bin/bash", "--norc", "-i"}})
	s.run("mkdir /tmp/w; cd /tmp/w; echo from inside > page; head -c 3000000 /dev/zero > large; head -c 50000000 /dev/zero > huge")

	if _, err := c.Forward(t.Context(), session, 9999); !codeIs(err, api.CodeForwardNotAllowed) {
		t.Errorf("a port that is not granted: %v", err)
	}
	before := listeners(t)
	dir := t.TempDir()
	forward := func(place string) (*exec.Cmd, *lineReader) {
		cmd := exec.Command(filepath.Join(bin, "stockade"), "forward", session, place)
		cmd.Env = append(os.Environ(), "STOCKADE_SOCKET="+d.Socket)
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		cmd.Stderr = w
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		w.Close()
		t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait(); r.Close() })
		return cmd, &lineReader{r: r}
	}
	first, said := forward("0:8000")
	m := regexp.MustCompile(`forwarding (127\.0\.0\.1:\d+) to port 8000 of s-`).FindStringSubmatch(said.until(t, "forwarding"))
	if m == nil {
		t.Fatalf("it says %q", said.all)
	}
	web := &http.Client{Timeout: atMost, Transport: &http.Transport{DisableKeepAlives: true}}
	if _, err := web.Get("http://" + m[1] + "/page"); err == nil {
		t.Error("nobody listens, and somebody answers")
	}
	said.until(t, "nothing listens on port 8000")

	s.keys("python3 -m http.server 8000 --bind 127.0.0.1\n")
	s.expect(`Serving HTTP`)
	get := func(path string) (string, error) {
		r, err := web.Get("http://" + m[1] + path)
		if err != nil {
			return "", err
		}
		defer r.Body.Close()
		b, err := io.ReadAll(r.Body)
		return string(b), err
	}
	if got, err := get("/page"); err != nil || got != "from inside\n" {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := get("/large"); err != nil || len(got) != 3_000_000 {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	s.expect(`GET /page`)
	s.want("busy", s.get().Status, api.ShellBusy)

	// Another, by a unix socket, is cut when the port is taken away.
	second, told := forward(filepath.Join(dir, "web.sock") + ":8000")
	told.until(t, "forwarding")
	if st, err := os.Stat(filepath.Join(dir, "web.sock")); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", st, err)
	}
	out, err := exec.Command("curl", "-sS", "--unix-socket", filepath.Join(dir, "web.sock"), "http://inside/page").CombinedOutput()
	if err != nil || string(out) != "from inside\n" {
		t.Errorf("curl: %q, %v", out, err)
	}
	r, err := c.Narrow(t.Context(), api.SessionNarrow{SessionID: session, Network: api.GrantNetwork{Mode: "none", Forward: &api.GrantForward{Ports: []uint16{8001}}}})
	if err != nil || r.Outcome != api.OutcomeOK {
		t.Fatalf("narrow: %+v, %v", r, err)
	}
	told.until(t, "has ended: cut")
	if err := second.Wait(); err == nil {
		t.Error("the end was none of its own, and it says 0")
	}
	said.until(t, "has ended: cut")
	if err := first.Wait(); err == nil {
		t.Error("likewise")
	}
	if _, err := c.Narrow(t.Context(), api.SessionNarrow{SessionID: session, Network: api.GrantNetwork{Mode: "none", Forward: &api.GrantForward{}}}); err != nil {
		t.Fatal(err)
	}

	// Stopped by its key; the prompt is back.
	s.actions(api.ActionCtrlC)
	s.idle()
	list, err := c.Receipts(t.Context(), api.Read{Op: api.OpSessionForward})
	if err != nil || len(list) != 3 {
		t.Fatalf("%d receipts, %v", len(list), err)
	}
	var connections, received int64
	for _, r := range list {
		if f := r.Payload.Forward; f != nil {
			connections, received = connections+f.Connections, received+f.Received
		}
	}
	if connections != 3 || received < 3_000_000 {
		t.Errorf("%d connections, %d bytes", connections, received)
	}
	third, told := forward("0:8001")
	told.until(t, "forwarding")
	third.Process.Signal(os.Interrupt)
	if err := third.Wait(); err != nil {
		t.Errorf("the interrupt key: %v %q", err, told.all)
	}

	// Who reads nothing of what comes is waited for by nobody: not by the end of the session either.
	s.keys("python3 -m http.server 8001 --bind 127.0.0.1\n")
	s.expect(`Serving HTTP`)
	fourth, told := forward("0:8001")
	if m = regexp.MustCompile(`forwarding (127\.0\.0\.1:\d+) to port`).FindStringSubmatch(told.until(t, "forwarding")); m == nil {
		t.Fatalf("it says %q", told.all)
	}
	idle, err := net.Dial("tcp", m[1])
	if err != nil {
		t.Fatal(err)
	}
	defer idle.Close()
	if _, err := idle.Write([]byte("GET /huge HTTP/1.0\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	s.expect(`GET /huge`)
	time.Sleep(300 * time.Millisecond) // every buffer on the way is full
	ctx, cancel := context.WithTimeout(t.Context(), atMost)
	defer cancel()
	if r, err := c.Close(ctx, api.SessionClose{SessionID: session, Mode: "force"}); err != nil || r.Outcome != api.OutcomeOK {
		t.Fatalf("%+v, %v", r, err)
	}
	told.until(t, "has ended")
	fourth.Wait()
	if now := listeners(t); now != before {
		t.Errorf("who listens on the host was\n%s and is\n%s", before, now)
	}
}

// lineReader reads what a command says, as it comes.
type lineReader struct {
	r   *os.File
	all string
	at  int
}

func (l *lineReader) until(t *testing.T, text string) string {
	t.Helper()
	buf := make([]byte, 4<<10)
	l.r.SetReadDeadline(time.Now().Add(atMost))
	for !strings.Contains(l.all[l.at:], text) {
		n, err := l.r.Read(buf)
		l.all += string(buf[:n])
		if err != nil && !strings.Contains(l.all[l.at:], text) {
			t.Fatalf("no %q in %q: %v", text, l.all[l.at:], err)
		}
	}
	from := l.at
	l.at += strings.Index(l.all[l.at:], text) + len(text)
	return l.all[from:]
}

// listeners are the ports of the host's loopback on which somebody listens.
func listeners(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("/proc/net/tcp")
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) > 3 && f[3] == "0A" && strings.HasPrefix(f[1], "0100007F:") {
			all = append(all, f[1])
		}
	}
	return fmt.Sprint(all)
}
