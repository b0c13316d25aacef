package integration

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stockade-dev/stockade/supervisor/api"
)

// TestTopAtATerminal is issue 8's `stockade top`, on a screen: a session that computes and one that prints, what they use and may
// use, inspecting, canceling and closing with a question before it, a supervisor that goes away and comes back, and a terminal that
// is as it was.
func TestTopAtATerminal(t *testing.T) {
	d := start(t)
	c := d.Client()
	busy := opened(t, c, func(o *api.SessionOpen) { o.Labels = map[string]string{"job": "busy"}; o.Limits.MemoryBytes = 64 << 20 }).SessionID
	loud := opened(t, c, func(o *api.SessionOpen) { o.Labels = map[string]string{"job": "loud"} }).SessionID
	run := func(session string, argv ...string) string {
		t.Helper()
		x, r, err := c.Start(t.Context(), api.Exec{SessionID: session, Argv: argv})
		if err != nil || x == nil {
			t.Fatalf("%+v, %v", r, err)
		}
		return x.ExecID
	}
	spin := run(busy, "sh", "-c", "while :; do :; done", "\x1b[2Jevil")
	yes := run(loud, "sh", "-c", "while echo something; do sleep 0.05; done")
	if r, err := c.Exec(t.Context(), api.Exec{SessionID: loud, Argv: []string{"true"}, EnvPatch: map[string]api.EnvValue{"LD_PRELOAD": {Text: "/x"}}}); err != nil || r.Outcome != api.OutcomeDenied {
		t.Fatalf("%+v, %v", r, err)
	}

	p := openPane(t, "STOCKADE_SOCKET="+d.Socket)
	p.tmux("resize-window", "-x", "130", "-y", "14")
	p.screen(`host>$`)
	before := strings.TrimSpace(p.typed("stty -a"))
	pid := filepath.Join(t.TempDir(), "pid")
	top := "clear; sh -c 'echo $$ >" + pid + "; exec stockade top -i 500ms'"
	p.keys(top, "Enter")
	// What computes is first, with its ceilings and what it runs; what prints has a rate, and what was refused.
	p.screen(`(?s)2 sessions, 2 executions, every 500ms, by cpu\n +ID +STATE +USER +AGE +CPU% +MEM +PIDS +OUT/s +REFUSED +COMMAND\n` +
		`> ` + busy[:12] + ` +ready +\S+ +\S+ +[1-9][0-9]*/\d+ +[0-9.]+[KM]iB/64MiB +[1-9]\d*/\d+ +0B +0 +workspace job=busy\n` +
		` +` + spin[:12] + ` +running +[^\n]*sh -c "while :; do :; done" .*evil.*\n` +
		`  ` + loud[:12] + ` +ready +[^\n]* [1-9]\d*B +1 +workspace job=loud\n +` + yes[:12] + ` +running [^\n]* [1-9]\d*B +- +sh -c`)
	p.keys("o")
	p.screen(`(?s)by output\n.*\n  ` + loud[:12] + `.*\n> ` + busy[:12])
	p.tmux("resize-window", "-x", "130", "-y", "8")
	if text := p.screen(`by output(?s).*> ` + busy[:12] + `.*q quit$`); strings.Count(text, "\n") != 7 {
		t.Errorf("after the resize:\n%s", text)
	}
	p.tmux("resize-window", "-x", "130", "-y", "14")
	p.keys("c", "j", "Enter")
	p.screen(`(?s)^` + spin + `\nexecution +` + spin + `\nstate +running.*command +sh -c`)
	p.keys("q", "x")
	p.screen(`cancel ` + spin[:12] + ` \(sh -c .*\)\? y/n$`)
	p.keys("n")
	p.screen(`(?s)> +` + spin[:12] + ` +running.*nothing was done$`)
	p.keys("x", "y")
	p.screen(`(?s)1 executions.*` + spin + ` canceled$`)
	if got, err := c.Process(t.Context(), spin); err != nil || got.State != api.StateCanceled {
		t.Errorf("%+v, %v", got, err)
	}

	// The supervisor is away, and comes back.
	d.Kill()
	p.screen(`(?s)^no news for .*asking again: .*` + loud[:12])
	if err := d.Start(); err != nil {
		t.Fatal(err)
	}
	p.screen(`(?s)^2 sessions, 1 executions, .*> `)

	p.keys("k", "k", "k", "k", "j", "j", "X")
	p.screen(`close session (` + busy[:12] + `|` + loud[:12] + `) with \d execution`)
	p.keys("y")
	p.screen(`(?s)^1 sessions, .*closed: \d execution`)
	p.keys("q")
	p.screen(`^host>$`)
	if after := strings.TrimSpace(p.typed("stty -a")); after != before {
		t.Errorf("the terminal was\n%s\nand is\n%s", before, after)
	}

	// Told to end by a signal, it leaves the terminal as it was, too.
	p.keys(top, "Enter")
	p.screen(`^1 sessions, `)
	number, err := os.ReadFile(pid)
	if err != nil {
		t.Fatal(err)
	}
	id, err := strconv.Atoi(strings.TrimSpace(string(number)))
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(id, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	p.screen(`^host>$`)
	p.keys("echo status=$?", "Enter")
	p.screen(`status=143\nhost>$`)
	if after := strings.TrimSpace(p.typed("stty -a")); after != before {
		t.Errorf("after a signal the terminal was\n%s\nand is\n%s", before, after)
	}
}

// typed is what a command prints on a cleared screen, which is as it was afterwards.
func (p *pane) typed(command string) string {
	p.Helper()
	p.keys("clear; "+command+"; echo the-end", "Enter")
	text, _, _ := strings.Cut(p.screen(`(?s)\nthe-end\nhost>$`), "the-end")
	p.keys("clear", "Enter")
	p.screen(`^host>$`)
	return text
}
