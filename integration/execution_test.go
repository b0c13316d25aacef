package integration

import (
	"crypto/sha256"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stockade-dev/stockade/internal/testbox"
	"github.com/stockade-dev/stockade/supervisor/api"
	"github.com/stockade-dev/stockade/supervisor/client"
)

// opened is a session of the profile workspace, as the caller changes the question.
func opened(t *testing.T, c *client.Client, change func(*api.SessionOpen)) *api.Receipt {
	t.Helper()
	ask := api.SessionOpen{Profile: "workspace", Target: api.Target{Local: &api.Local{}}, Degraded: degraded()}
	if change != nil {
		change(&ask)
	}
	r, err := c.Open(t.Context(), ask)
	return settled(t, r, err)
}

// initOf is a session's init, as the host numbers it.
func initOf(t *testing.T, open *api.Receipt) int {
	t.Helper()
	pid, err := testbox.Init(open.Payload.Open.Enforced.Namespaces["pid"])
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

// shell runs a script in a session; it is for the caller to judge how it ended.
func shell(t *testing.T, c *client.Client, session, script string) *api.Receipt {
	t.Helper()
	r, err := c.Exec(t.Context(), api.Exec{SessionID: session, Argv: []string{"sh", "-c", script}})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestBackground: what a command leaves behind ends with it, unless policy lets it live;
// then it ends with the session, which the leak check sees (R027, R028).
func TestBackground(t *testing.T) {
	d := start(t)
	c := d.Client()
	yes, no := true, false
	for _, k := range []struct {
		name  string
		asked *bool
		lives bool
	}{{"not asked for", nil, false}, {"refused", &no, false}, {"asked for", &yes, true}} {
		t.Run(k.name, func(t *testing.T) {
			session := opened(t, c, func(o *api.SessionOpen) { o.Background = k.asked }).SessionID
			pid := strings.TrimSpace(text(shell(t, c, session, "setsid sleep 1000 >/dev/null 2>&1 & echo $!").Payload.Exec.Stdout))
			if lives := shell(t, c, session, "kill -0 "+pid).Payload.Exec.ExitCode == 0; lives != k.lives {
				t.Errorf("process %s lives on: %v, want %v", pid, lives, k.lives)
			}
		})
	}
	r, err := c.Open(t.Context(), api.SessionOpen{
		Profile: "hermetic", Background: &yes, Target: api.Target{Local: &api.Local{Root: api.Root{Paths: &api.RootPaths{Paths: []string{"/bin/sh"}}}}},
	})
	if err != nil || r.Outcome != api.OutcomeDenied || len(r.Deny) != 1 || r.Deny[0].Code != api.CodeBackgroundNotAllowed {
		t.Errorf("hermetic: %+v, %v", r, err)
	}
}

// TestOutputForms: which form an output has depends on its bytes and the limit, and
// nothing else; inline that was required and does not fit is an error with the real status
// (R058 to R064).
func TestOutputForms(t *testing.T) {
	c := start(t).Client()
	session := opened(t, c, nil).SessionID
	for _, k := range []struct {
		name, script string
		mode         string
		limit        int64
		form         string
	}{
		{"text", "printf 'h\\303\\251'", "auto", 0, "text 3"},
		{"not UTF-8", "printf 'h\\303'", "auto", 0, "bytes 2"},
		{"empty", ":", "auto", 0, "none"},
		{"at the limit", "printf 12345678", "auto", 8, "text 8"},
		{"over the limit", "printf 123456789", "auto", 8, "blob 9"},
		{"over, not UTF-8", "printf 12345678'\\377'", "auto", 8, "blob 9"},
		{"large", "head -c 3000000 /dev/zero", "auto", 0, "blob 3000000"},
		{"required, text", "printf 12345678", "require_inline", 8, "text 8"},
		{"required, not UTF-8", "printf '\\377'", "require_inline", 8, "bytes 1"},
		{"required, over the limit", "printf 123456789; exit 7", "require_inline", 8, "overflow stdout 9 8, 7"},
	} {
		t.Run(k.name, func(t *testing.T) {
			r, err := c.Exec(t.Context(), api.Exec{SessionID: session, Argv: []string{"sh", "-c", k.script}, OutputMode: k.mode, MaxInline: k.limit})
			if err != nil {
				t.Fatal(err)
			}
			if got := form(t, c, r); got != k.form {
				t.Errorf("%s, want %s", got, k.form)
			}
		})
	}
}

// form describes stdout. Of a blob, what the store gives has the digest that the receipt names.
func form(t *testing.T, c *client.Client, r *api.Receipt) string {
	x := r.Payload.Exec
	if r.ErrorCode == api.CodeInlineRequiredTooLarge {
		if x.Stdout != nil || x.Status != "error" {
			t.Errorf("status %s, stdout %+v", x.Status, x.Stdout)
		}
		return fmt.Sprintf("overflow %s %d %d, %d", x.Overflow.Stream, x.Overflow.SizeBytes, x.Overflow.LimitBytes, x.ExitCode)
	}
	switch o := settled(t, r, nil).Payload.Exec.Stdout; {
	case o == nil:
		return "none"
	case o.InlineText != nil:
		return fmt.Sprintf("text %d", len(o.InlineText.Text))
	case o.InlineBytes != nil:
		return fmt.Sprintf("bytes %d", len(o.InlineBytes.Bytes))
	default:
		content, size, err := c.Blob(t.Context(), o.Blob.BlobRef)
		if err != nil {
			t.Fatal(err)
		}
		defer content.Close()
		h := sha256.New()
		n, err := io.Copy(h, content)
		if err != nil || n != size || n != o.Blob.SizeBytes || fmt.Sprintf("sha256:%x", h.Sum(nil)) != o.Blob.BlobRef {
			t.Errorf("blob %+v: %d bytes of %d, digest %x, %v", o.Blob, n, size, h.Sum(nil), err)
		}
		return fmt.Sprintf("blob %d", o.Blob.SizeBytes)
	}
}

// TestTimeLimit: a command that is over its time ends, with all that it has started, whoever holds its output and whatever it has
// not read (R045, R046; pitfalls 7 and 8 of part 4). What it gets is its session's, mounts too, and of the daemon no environment and no directory
// (pitfall 5); and its arguments are arguments (pitfall 15).
func TestTimeLimit(t *testing.T) {
	c := start(t).Client() // with CANARY in its environment
	dir := shared(t)
	session := opened(t, c, func(o *api.SessionOpen) {
		o.Target.Local.Workdir = "/work"
		o.Target.Local.Mounts = []api.Mount{{HostPath: dir, GuestPath: "/work", Mode: "rw"}}
	}).SessionID
	for name, x := range map[string]api.Exec{
		"a grandchild holds the output": {Argv: []string{"sh", "-c", `echo up; setsid sh -c 'trap "" TERM HUP; while :; do sleep 1; done' & exec sleep 1000`}},
		"stdin is not read":             {Argv: []string{"sh", "-c", "echo up; exec sleep 1000"}, Stdin: &api.Stdin{InlineText: &api.InlineText{Text: strings.Repeat("x", 100_000)}}}, // more than a pipe holds
	} {
		x.SessionID, x.TimeoutNS = session, int64(time.Second)
		begun := time.Now()
		r, err := c.Exec(t.Context(), x)
		if err != nil {
			t.Fatal(name, err)
		}
		if took := time.Since(begun); r.Status != "timeout" || r.ErrorCode != api.CodeTimeout || text(r.Payload.Exec.Stdout) != "up\n" || took > 15*time.Second {
			t.Errorf("%s: %s %s %q after %v", name, r.Status, r.ErrorCode, text(r.Payload.Exec.Stdout), took)
		}
		if left := text(shell(t, c, session, "cat /proc/[0-9]*/comm | grep -c sleep").Payload.Exec.Stdout); left != "0\n" {
			t.Errorf("%s: left: %s", name, left)
		}
	}
	if got := text(shell(t, c, session, "env | grep -c CANARY; pwd; [ -w . ] && echo mounted").Payload.Exec.Stdout); got != "0\n/work\nmounted\n" {
		t.Errorf("a command has %q", got)
	}
	r, err := c.Exec(t.Context(), api.Exec{SessionID: session, Argv: []string{"printf", "%s|", "$(id)", "a b", "';id;'"}})
	if err != nil || text(r.Payload.Exec.Stdout) != "$(id)|a b|';id;'|" {
		t.Errorf("%v %q", err, text(r.Payload.Exec.Stdout))
	}
}

// TestTogether runs commands in one session that can only end when all of them run at the
// same time (R051).
func TestTogether(t *testing.T) {
	c := start(t).Client()
	session := opened(t, c, nil).SessionID
	const meet = `: >/tmp/here.$1; set -- /tmp/here.*; until [ $# -ge 20 ]; do sleep 0.05; set -- /tmp/here.*; done`
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			r, err := c.Exec(t.Context(), api.Exec{SessionID: session, Argv: []string{"sh", "-c", meet, "sh", fmt.Sprint(i)}, TimeoutNS: int64(30 * time.Second)})
			if err := happened(r, err); err != nil {
				t.Error(err)
			} else if x := r.Payload.Exec; x.Status != "ok" {
				t.Errorf("%s %d %s", x.Status, x.ExitCode, text(x.Stderr))
			}
		})
	}
	all.Wait()
}

// TestForkBomb lets a session meet its ceiling while another one is answered as ever. The
// bombed session's init is the same afterwards, and takes commands (R055, T059).
func TestForkBomb(t *testing.T) {
	c := start(t).Client()
	open := opened(t, c, func(o *api.SessionOpen) { o.Limits = api.Limits{PIDs: 64, CPUMillis: 500} })
	bombed, other := open.SessionID, opened(t, c, nil).SessionID
	init := initOf(t, open)
	ended := make(chan *api.Receipt, 1)
	go func() {
		r, _ := c.Exec(t.Context(), api.Exec{
			SessionID: bombed, Argv: []string{"sh", "-c", "bomb() { bomb | bomb & }; (bomb) & exec sleep 1000"},
			TimeoutNS: int64(2 * time.Second), Limits: api.Limits{OutputBytes: 4096}, // it complains as long as it lives
		})
		ended <- r
	}()
	answers := 0
	for {
		select {
		case r := <-ended:
			if r == nil || r.Payload.Exec.Status != "timeout" || !strings.Contains(text(r.Payload.Exec.Stderr), "fork") {
				t.Errorf("the bomb did not meet its ceiling: %+v", r)
			}
			if answers < 2 {
				t.Errorf("%d answers of the other session while the bomb went off", answers)
			}
			if x := shell(t, c, bombed, "echo alive").Payload.Exec; x == nil || text(x.Stdout) != "alive\n" {
				t.Errorf("after the bomb: %+v", x)
			}
			if now, err := testbox.Init(open.Payload.Open.Enforced.Namespaces["pid"]); err != nil || now != init {
				t.Errorf("init is %d, was %d, %v", now, init, err)
			}
			return
		default:
			if x := shell(t, c, other, "echo answer | cat").Payload.Exec; x == nil || text(x.Stdout) != "answer\n" {
				t.Fatalf("the other session: %+v", x)
			}
			answers++
		}
	}
}
