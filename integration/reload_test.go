package integration

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stockade-dev/stockade/supervisor/api"
)

// TestConfigurationIsReadAgain: a SIGHUP takes up what the file says by then, the log's level among it, under a session that
// goes on; a file that is wrong is refused whole, and the old one goes on deciding.
func TestConfigurationIsReadAgain(t *testing.T) {
	needRoot(t)
	file := filepath.Join(t.TempDir(), "stockaded.json")
	says := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	says(`{"log-level": "info"}`)
	d := start(t, "--config", file)
	c := d.Client()
	session := opened(t, c, nil).SessionID
	debugged := func() int {
		t.Helper()
		before := strings.Count(d.Log(), "level=DEBUG")
		r, err := c.Exec(t.Context(), api.Exec{SessionID: session, Argv: []string{"true"}})
		settled(t, r, err)
		time.Sleep(100 * time.Millisecond) // what is said of it is said after the answer
		return strings.Count(d.Log(), "level=DEBUG") - before
	}
	if n := debugged(); n > 0 {
		t.Fatalf("%d lines of debug at level info", n)
	}
	says(`{"log-level": "debug"}`)
	replaced(t, d)
	if n := debugged(); n == 0 {
		t.Error("no line of debug at level debug")
	}
	// What a successor could not be is found before anything is given up: it is said in the log and as an event, and the old one goes on.
	broken := filepath.Join(t.TempDir(), "policy")
	if err := os.MkdirAll(broken, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(broken, "x.rego"), []byte("package stockade.open\n\ndecision {"), 0o600); err != nil {
		t.Fatal(err)
	}
	before, err := c.PolicyStatus(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i, row := range []struct{ text, why string }{
		{`{"log-level": "info", "log-levle": "debug"}`, "log-levle"},
		{`{"log-level": "info", "retain-every": "-1s"}`, "retain-every"},
		{`{"log-level": "info", "policy": "` + broken + `"}`, "x.rego"},
	} {
		says(row.text)
		if err := d.Hangup(); err != nil {
			t.Fatal(err)
		}
		var told []api.Notice
		eventually(t, "an event says that it is refused: "+row.why, func() bool {
			list, err := c.Events(t.Context(), api.Read{Limit: 1000})
			if err != nil {
				t.Fatal(err)
			}
			told = slices.DeleteFunc(list.Events, func(n api.Notice) bool { return n.Kind != api.NoticeConfiguration })
			return len(told) == i+1
		})
		if n := told[i]; n.State != "refused" || n.Reason != "signal" || !strings.Contains(n.Detail, row.why) {
			t.Errorf("%+v, want %s", n, row.why)
		}
		if said := d.Log(); strings.Count(said, "the configuration is refused, and nothing has changed") != i+1 || !strings.Contains(said, row.why) {
			t.Errorf("the log does not say that it is refused for %s", row.why)
		}
		if n := debugged(); n == 0 {
			t.Errorf("a file that was refused decides: %s", row.text)
		}
	}
	after, err := c.PolicyStatus(t.Context())
	if err != nil || after.Active.Digest != before.Active.Digest {
		t.Errorf("%v: %+v decides, and before %+v", err, after, before)
	}
}

// TestLogLevelAtRunTime: an administrator gives a supervisor that runs another level, with a receipt; nobody else does; what the
// configuration says holds again when it is read again.
func TestLogLevelAtRunTime(t *testing.T) {
	needRoot(t)
	d := start(t)
	c := d.Client()
	session := opened(t, c, nil).SessionID
	debugged := func() bool {
		t.Helper()
		before := strings.Count(d.Log(), "level=DEBUG")
		r, err := c.Exec(t.Context(), api.Exec{SessionID: session, Argv: []string{"true"}})
		settled(t, r, err)
		time.Sleep(100 * time.Millisecond) // what is said of it is said after the answer
		return strings.Count(d.Log(), "level=DEBUG") > before
	}
	command := func(uid uint32, args ...string) (string, int) {
		t.Helper()
		cmd := exec.Command(filepath.Join(bin, "stockade"), append([]string{"--socket", d.Socket}, args...)...)
		if uid != 0 {
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: 0}} // the socket's group
		}
		out, _ := cmd.CombinedOutput()
		return string(out), cmd.ProcessState.ExitCode()
	}
	for _, row := range []struct {
		uid     uint32
		args    []string
		says    string
		status  int
		debugs  bool
		receipt bool
	}{
		{0, []string{"log-level"}, "info\n", 0, false, false},
		{0, []string{"log-level", "debug"}, "debug (was info)\n", 0, true, true},
		{0, []string{"log-level"}, "debug\n", 0, true, false},
		{12345, []string{"log-level", "error"}, "operation_not_allowed", 120, true, false},
		{12345, []string{"log-level"}, "operation_not_allowed", 121, true, false},
		{0, []string{"log-level", "loud"}, "want one of", 122, true, false},
		{0, []string{"log-level", "info"}, "info (was debug)\n", 0, false, true},
		{0, []string{"log-level", "debug"}, "debug (was info)\n", 0, true, true},
	} {
		was, err := c.ReceiptPage(t.Context(), api.Read{Op: api.OpLogLevel})
		if err != nil {
			t.Fatal(err)
		}
		if out, status := command(row.uid, row.args...); status != row.status || !strings.Contains(out, row.says) {
			t.Errorf("%v of %d: %d %q", row.args, row.uid, status, out)
		}
		if debugs := debugged(); debugs != row.debugs {
			t.Errorf("behind %v there are lines of debug: %v", row.args, debugs)
		}
		is, err := c.ReceiptPage(t.Context(), api.Read{Op: api.OpLogLevel})
		if err != nil || len(is.Receipts) > len(was.Receipts) != row.receipt {
			t.Errorf("%v: %v, %d receipts more", row.args, err, len(is.Receipts)-len(was.Receipts))
		}
	}
	replaced(t, d)
	if debugged() {
		t.Error("a level outlives the supervisor that it was given to")
	}
}
