package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stockade-dev/stockade/supervisor/api"
)

// operatorsRipgrep is a statically linked rg, as an operator would provide it.
func operatorsRipgrep(t *testing.T) string {
	t.Helper()
	arch := map[string]string{"amd64": "x64", "arm64": "arm64"}[runtime.GOARCH]
	return filepath.Join(packages(t, "ripgrep"), "node_modules/@vscode/ripgrep-linux-"+arch, "bin/rg")
}

// grepped is what a grep answers, and who has searched.
func (d *desk) grepped(ask string) (text, backend, reason string) {
	d.Helper()
	got, r := d.use("grep", ask)
	g := r.Payload.File
	if got != "ok ok" || g == nil || g.Grep == nil {
		d.Fatalf("%s: %s %s", ask, got, r.ErrorMessage)
	}
	text = fmt.Sprint(*g.Grep.MatchCount, g.Grep.Truncated, "\n")
	if m := g.Grep.Matches; m != nil && m.InlineText != nil {
		text += m.InlineText.Text
	} else if m != nil {
		text += m.Blob.BlobRef
	}
	return text, g.Grep.Backend, g.Grep.Reason
}

// TestRipgrepInside (R209 to R212, C22): with the rg that an operator names, searches inside answer in the same bytes as without, and the receipt
// names who has searched, and why. Nothing is found through a link, or in what another one's user may read.
// S3 §6.4: grep, the path of rg; the native one is in TestFileRequirements.
func TestRipgrepInside(t *testing.T) {
	needRoot(t)
	c := start(t, "--ripgrep", operatorsRipgrep(t)).Client()
	dir := shared(t)
	tree := filepath.Join(dir, "tree")
	contents := []string{"hit one\nnone\n", "x\r\nhit\r\n", "hit\n\x00", "Hit \xff\n", "", "no", "hit", strings.Repeat("\nhit me\n", 300), "über hit\n\u212aelvin\n"}
	for i, name := range []string{"a.go", "a/b.go", "a-b", "a b/c", "-n", "bad\xff/f", "new\nline", ".hidden/x", "a/ignored", "z/z/z/z", "日本/é"} {
		for n := range 20 {
			at := filepath.Join(tree, name)
			if n > 0 {
				at += fmt.Sprint(n)
			}
			if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(at, []byte(contents[(i+n)%len(contents)]), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	for link, to := range map[string]string{"loop": ".", "out": "../../canary", "etc": "/etc"} {
		if err := os.Symlink(to, filepath.Join(tree, link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(tree, "secret"), []byte("hit canary\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	open := opened(t, c, func(o *api.SessionOpen) {
		o.Target.Local.Workdir = "/work/tree"
		o.Target.Local.Mounts = []api.Mount{{HostPath: dir, GuestPath: "/work", Mode: "rw"}}
	})
	d := &desk{t, c, open.SessionID}
	// The session may not read it, whoever searches.
	if r := shell(t, c, d.session, "chmod 0 secret"); r.Payload.Exec.ExitCode != 0 {
		t.Fatal(text(r.Payload.Exec.Stderr))
	}
	for _, ask := range []string{
		`"pattern":"hit"`, `"pattern":"HIT","case_insensitive":true`, `"pattern":"kelvin","case_insensitive":true`, `"pattern":"^hit$"`, `"pattern":"hit","before":2,"after":1`,
		`"pattern":".","max_per_file":2`, `"pattern":"hit","glob_filter":"*.go"`, `"pattern":"hit","max_results":7`, `"pattern":"nowhere at all"`, `"pattern":"\\bone\\b|me$"`, `"pattern":"h(i)t","path":"a"`,
	} {
		fast, backend, reason := d.grepped("{" + ask + "}")
		slow, native, why := d.grepped("{" + ask + `,"respect_ignore":true}`) // there is no ignore file
		if backend != "ripgrep" || reason != "provided" || native != "native" || why != "ignore_files" {
			t.Errorf("%s: %s (%s) and %s (%s)", ask, backend, reason, native, why)
		}
		if fast != slow {
			t.Errorf("%s: ripgrep\n%s\nnative\n%s", ask, fast, slow)
		}
		if strings.Contains(fast, "canary") {
			t.Errorf("%s: %s", ask, fast)
		}
	}
}

// TestRipgrepIsConfined: what the operator names runs as commands of the session run, and is believed in nothing but what it leaves out. The
// probe stands in for it: it leaves in the directory what it is, and names what it may not.
func TestRipgrepIsConfined(t *testing.T) {
	needRoot(t)
	dir := shared(t)
	probe := filepath.Join(dir, "probe")
	build(t, probe, "./probe")
	c := start(t, "--ripgrep", probe).Client()
	tree := filepath.Join(dir, "work/tree")
	if err := os.MkdirAll(tree, 0o777); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{"f": "hit\n", "../canary": "hit canary\n"} {
		if err := os.WriteFile(filepath.Join(tree, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("..", filepath.Join(tree, "up")); err != nil {
		t.Fatal(err)
	}
	open := opened(t, c, func(o *api.SessionOpen) {
		o.Target.Local.Workdir = "/work/tree"
		o.Target.Local.Mounts = []api.Mount{{HostPath: filepath.Join(dir, "work"), GuestPath: "/work", Mode: "rw"}}
	})
	d := &desk{t, c, open.SessionID}
	if got, backend, reason := d.grepped(`{"pattern":"hit"}`); got != "1 false\nf:1:hit\n" || backend != "ripgrep" {
		t.Errorf("%s by %s (%s)", got, backend, reason)
	}
	what, err := os.ReadFile(filepath.Join(tree, "what"))
	if err != nil {
		t.Fatal(err)
	}
	command := text(shell(t, c, d.session, "grep -E '^(Uid|Gid|Groups|NoNewPrivs|CapInh|CapPrm|CapEff|CapBnd|CapAmb):' /proc/self/status; cat /proc/self/cgroup | sed 's,/x/.*,/x/,'").Payload.Exec.Stdout)
	if got, _, _ := strings.Cut(string(what), "descriptors"); got != command || command == "" {
		t.Errorf("it is\n%s\nand a command is\n%s", got, command)
	}
	for _, line := range []string{"descriptors 0 1 2\n", "environment 0\n", "openat2 ENOSYS\n", "socket "} {
		if !strings.Contains(string(what), line) {
			t.Errorf("no %q in %s", line, what)
		}
	}
	if _, err := os.Stat(filepath.Join(tree, "ran")); err == nil {
		t.Error("an option of the caller's has reached it")
	}
	// It has the session's memory and processes to itself no more than others, and ends with the worker.
	if left := text(shell(t, c, d.session, "cat /proc/[0-9]*/comm | grep -cx rg").Payload.Exec.Stdout); left != "0\n" {
		t.Errorf("left: %s", left)
	}
}
