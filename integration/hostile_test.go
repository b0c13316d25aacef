package integration

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stockade-dev/stockade/internal/testbox"
	"github.com/stockade-dev/stockade/supervisor/api"
)

// onTerminal runs stockade with a terminal for its output, and returns what came to it.
func onTerminal(t *testing.T, d *testbox.Daemon, args ...string) string {
	t.Helper()
	quoted := filepath.Join(bin, "stockade")
	for _, a := range args {
		quoted += " '" + strings.ReplaceAll(a, "'", `'\''`) + "'"
	}
	cmd := exec.Command("script", "-qec", quoted, "/dev/null")
	cmd.Env = append(os.Environ(), "STOCKADE_SOCKET="+d.Socket, "NO_COLOR=1", "TERM=xterm", "SHELL=/bin/sh")
	out, _ := cmd.CombinedOutput() // that of a refusal is wanted, too
	return string(out)
}

// What a session chooses (arguments, names of files and what is in them, output, reasons) reaches a terminal as text, in every
// list, log and error: no sequence that it would act on, in either form.
func TestHostileText(t *testing.T) {
	if _, err := exec.LookPath("script"); err != nil {
		skip(t, "needs script (util-linux): it gives a command a terminal")
	}
	d := start(t)
	c := d.Client()
	const evil = "\x1b]0;owned\a\x1b[2J\u009b31mred"
	if r, err := c.Open(t.Context(), api.SessionOpen{Profile: "workspace", Labels: map[string]string{"job": evil}, Target: api.Target{Local: &api.Local{}}}); err != nil || r.ErrorCode != api.CodeInvalidLabel {
		t.Errorf("a label: %+v, %v", r, err)
	}
	session := opened(t, c, nil).SessionID
	r, err := c.Exec(t.Context(), api.Exec{
		SessionID: session, Argv: []string{"sh", "-c", "printf '%s\\n' \"$1\"; echo \"$1\" >&2; printf '%s\\n' \"$1\" > \"/tmp/$1\"; exit 3", "sh", evil},
	})
	settled(t, r, err)
	refused, err := c.Exec(t.Context(), api.Exec{SessionID: session, Argv: []string{"true"}, Cwd: "/" + evil})
	if err != nil {
		t.Fatal(err)
	}
	s := openShell(t, c, api.Exec{SessionID: session, Argv: []string{"sh", "-c", "printf '%s\\n' \"$1\"; sleep 100", "sh", evil}, WaitMS: 1})
	s.expect("owned")
	s.close("force")
	for _, args := range [][]string{
		{"ls"}, {"ls", "--all"}, {"show", session}, {"show", r.ExecID}, {"show", s.exec},
		{"ps", "--all"}, {"logs", r.ExecID}, {"logs", "--timestamps", r.ExecID}, {"logs", s.exec}, {"wait", r.ExecID},
		{"events", session}, {"events"}, {"intents"}, {"frames", r.IntentID}, {"receipts", "list"}, {"receipts", "show", r.IntentID}, {"receipts", "show", refused.IntentID},
		{"policy", "why", "--state", filepath.Join(d.Dir, "state"), refused.IntentID},
		{"fs", "ls", session, "/tmp"}, {"fs", "grep", session, "owned", "/tmp"}, {"fs", "glob", session, "*", "/tmp"},
		{"fs", "read", session, "/tmp/" + evil}, {"fs", "stat", session, "/tmp/" + evil}, {"fs", "read", session, "/tmp/none" + evil},
		{"exec", "--cwd", "/" + evil, session, "--", "true"}, {"exec", session, "--", "/no" + evil}, {"forward", session, evil}, {"show", evil}, {"shell", "export", evil},
	} {
		out := onTerminal(t, d, args...)
		if at := strings.IndexAny(out, "\x1b\a\u009b"); at >= 0 || strings.Contains(out, "\x9b") && !strings.Contains(out, "\u009b") && strings.ToValidUTF8(out, "") != out {
			t.Errorf("%q has a terminal act on %q", args, out[max(0, at-20):min(len(out), max(0, at)+40)])
		}
	}
	if out := onTerminal(t, d, "logs", r.ExecID); !strings.Contains(out, "owned") || !strings.Contains(out, "red") {
		t.Errorf("the text itself is not there: %q", out)
	}
	if out := onTerminal(t, d, "exec", session, "--", "printf", "\\033[1mbold"); !strings.Contains(out, "\x1b[1mbold") {
		t.Errorf("who runs a command has the terminal for it: %q", out)
	}
}
