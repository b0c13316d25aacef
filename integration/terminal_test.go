package integration

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// pane is a terminal emulator in which a person sits: tmux, with a server of the test's own.
type pane struct {
	testing.TB
	name string
}

func openPane(t testing.TB, env ...string) *pane {
	t.Helper()
	if _, err := exec.LookPath("tmux"); err != nil {
		skip(t, "needs tmux: what a person sees is a screen")
	}
	p := &pane{t, "stockade-" + filepath.Base(t.TempDir()) + fmt.Sprint(time.Now().UnixNano())}
	p.tmux(append([]string{"-f", "/dev/null", "new-session", "-d", "-x", "100", "-y", "30", "env", "-i", "PS1=host> ", "TERM=screen", "PATH=" + bin + ":/usr/bin:/bin"}, append(env, "bash", "--norc", "--noprofile")...)...)
	t.Cleanup(func() { exec.Command("tmux", "-L", p.name, "kill-server").Run() })
	return p
}

func (p *pane) tmux(args ...string) string {
	p.Helper()
	out, err := exec.Command("tmux", append([]string{"-L", p.name}, args...)...).CombinedOutput()
	if err != nil {
		p.Fatalf("tmux %q: %v: %s", args, err, out)
	}
	return string(out)
}

func (p *pane) keys(keys ...string) {
	p.Helper()
	p.tmux(append([]string{"send-keys"}, keys...)...)
}

// screen waits until the screen is as wanted, and returns it.
func (p *pane) screen(pattern string) string {
	p.Helper()
	re := regexp.MustCompile(pattern)
	for until := time.Now().Add(atMost); ; time.Sleep(20 * time.Millisecond) {
		text := strings.TrimRight(p.tmux("capture-pane", "-p"), "\n")
		if re.MatchString(text) {
			return text
		}
		if time.Now().After(until) {
			p.Fatalf("no %q on the screen:\n%s", pattern, text)
		}
	}
}

// TestShellAtATerminal: a person at stockade shell has what ssh would give him: a full-screen program, the size of the window,
// leaving and coming back, watching, and the exit status.
func TestShellAtATerminal(t *testing.T) {
	d := start(t)
	p := openPane(t, "STOCKADE_SOCKET="+d.Socket)
	p.screen(`host>$`)
	p.keys("stockade shell", "Enter")
	p.screen(`[$#]$`)
	p.keys("PS1='in> '; clear", "Enter")
	p.screen(`^in>$`)
	p.keys("stty size; tty", "Enter")
	p.screen(`30 100\n/dev/pts/0\nin>$`)
	p.keys("C-p") // which is the first of the detach keys, and of more use to who edits a line
	p.screen(`\nin> stty size; tty$`)
	p.keys("C-u")
	p.screen(`in>$`)
	p.keys("vi /tmp/x", "Enter")
	p.screen(`~\n~\n`)
	p.keys("ihello from the editor", "Escape")
	p.screen(`^hello from the editor\n~`)
	p.tmux("resize-window", "-x", "90", "-y", "20")
	if text := p.screen(`(?s)^hello from the editor\n~.*1,2\d`); strings.Count(text, "\n") != 19 {
		t.Errorf("%d lines after the resize:\n%s", strings.Count(text, "\n"), text)
	}

	// Away and back: the screen is drawn anew.
	p.keys("C-p", "C-q")
	text := p.screen(`detached from (x-[a-z0-9]+)(?s).*host>$`)
	x := regexp.MustCompile(`x-[a-z0-9]+`).FindString(text)
	if strings.Contains(text, "hello from") {
		t.Errorf("the editor is left on the screen:\n%s", text)
	}
	watch := openPane(t, "STOCKADE_SOCKET="+d.Socket)
	watch.screen(`host>$`)
	p.keys("clear; stockade shell "+x, "Enter")
	p.screen(`^hello from the editor\n~`)
	watch.keys("stockade shell --observe "+x, "Enter")
	watch.screen(`hello from the editor`)
	watch.keys("x")
	p.keys(":wq", "Enter")
	p.screen(`in>$`)
	p.keys("cat /tmp/x; sleep 100", "Enter")
	watch.screen(`hello from the editor\nin>|hello from the editor`)
	p.keys("C-c")
	p.screen(`\^C\s+in>$`)

	// The supervisor is replaced under it.
	replaced(t, d)
	p.keys("echo still-$((40+2))", "Enter")
	p.screen(`still-42\nin>$`)
	p.keys("exit 7", "Enter")
	p.screen(`host>$`)
	p.keys("echo status=$?", "Enter")
	p.screen(`status=7\nhost>$`)
	watch.screen(`host>$`)
}

// A shell that ends at once, while we sit down or what we typed is on its way, ends as it did, with all that it wrote.
func TestShellEndsAtOnce(t *testing.T) {
	d := start(t)
	session := opened(t, d.Client(), nil).SessionID
	for i := range 10 {
		cmd := exec.CommandContext(t.Context(), filepath.Join(bin, "stockade"), "--socket", d.Socket, "shell", session, "--", "sh", "-c", "sleep 0.01; echo said; exit 3")
		cmd.Stdin = strings.NewReader("typed to nobody\n") // and its end, which is a key as well
		out, _ := cmd.CombinedOutput()
		if status := cmd.ProcessState.ExitCode(); status != 3 || strings.Count(string(out), "said") != 1 {
			t.Errorf("%d: status %d, %q", i, status, out)
		}
	}
}
