package integration

import (
	"bytes"
	"errors"
	"flag"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write golden files")

// make install puts there what the list says, with these modes, and what is generated from the commands; what the operator
// has changed is left as it is; make uninstall leaves nothing. make test-install goes on in a Debian of its own.
func TestInstall(t *testing.T) {
	needRoot(t)
	generated, dest := os.Getenv("STOCKADE_GENERATED"), filepath.Join(t.TempDir(), "dest")
	do := func(script string, args ...string) string {
		t.Helper()
		cmd := exec.Command("bash", append([]string{filepath.Join("..", "scripts", script)}, args...)...)
		cmd.Env = append(os.Environ(), "BIN="+bin, "GENERATED="+generated, "DESTDIR="+dest, "PREFIX=/usr/local", "SYSCONFDIR=/etc")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s %v: %v\n%s", script, args, err, out)
		}
		return string(out)
	}
	if generated == "" { // make test has it made
		generated = t.TempDir()
		do("generated")
	}
	do("install", "install")

	var list bytes.Buffer
	pages := map[string]bool{}
	err := filepath.WalkDir(dest, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if filepath.Base(filepath.Dir(path)) == "man1" || filepath.Base(filepath.Dir(path)) == "man8" {
			pages[d.Name()] = true
			return nil
		}
		info, err := d.Info()
		if err == nil {
			list.WriteString(info.Mode().String() + " /" + strings.TrimPrefix(strings.TrimPrefix(path, dest), "/") + "\n")
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	golden := filepath.Join("testdata", "installed")
	if *update {
		if err := os.WriteFile(golden, list.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), list.String()); diff != "" {
		t.Error(diff)
	}
	for _, page := range []string{"stockade.1", "stockade-exec.1", "stockade-receipts-verify.1", "stockaded.8", "stockaded-policy-why.8", "stockade-run.8"} {
		if !pages[page] {
			t.Errorf("no page %s", page)
		}
	}
	// Units name what is installed.
	unit, err := os.ReadFile(filepath.Join(dest, "usr/local/lib/systemd/system/stockade-run.service"))
	if err != nil || !bytes.Contains(unit, []byte("ExecStart=/usr/local/libexec/stockade/stockade-run ")) || bytes.Contains(unit, []byte("@")) {
		t.Errorf("%v\n%s", err, unit)
	}

	ceiling, ours := filepath.Join(dest, "etc/stockade/ceiling.json"), filepath.Join(dest, "etc/stockade/policy/ours")
	for _, name := range []string{ceiling, ours} {
		if err := os.WriteFile(name, []byte("{}\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if out := do("install", "install"); !strings.Contains(out, "/etc/stockade/ceiling.json is there already") {
		t.Errorf("installed again: %s", out)
	}
	if text, err := os.ReadFile(ceiling); err != nil || string(text) != "{}\n" {
		t.Errorf("the operator's ceiling: %q %v", text, err)
	}
	// What somebody else has put there is not ours to remove, and is told.
	out := do("install", "uninstall")
	if !strings.Contains(out, "/etc/stockade/policy/ has something that was not installed") || strings.Count(out, "was changed, and stays") != 1 ||
		!strings.Contains(out, "/etc/stockade/ceiling.json was changed, and stays") {
		t.Errorf("uninstalled: %s", out)
	}
	if text, err := os.ReadFile(ceiling); err != nil || string(text) != "{}\n" {
		t.Errorf("the operator's ceiling: %q %v", text, err)
	}
	if _, err := os.Stat(filepath.Join(dest, "etc/stockade/stockaded.json")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("settings that nobody has changed: %v", err)
	}
	if err := os.Remove(ours); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(dest); err != nil {
		t.Fatal(err)
	}
	do("install", "install")
	do("install", "uninstall")
	if left, err := os.ReadDir(dest); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}

// make uninstall of this machine refuses before it has stopped anything: the services go on whatever is in its way.
func TestUninstallRefuses(t *testing.T) {
	needRoot(t)
	fake := t.TempDir()
	if err := os.WriteFile(filepath.Join(fake, "systemctl"), []byte("#!/bin/sh\necho systemctl \"$@\"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	const held = "; exec 9<"
	for _, row := range []struct{ name, setup, want string }{
		{"journal", "mkdir /var/lib/stockade/journal", "/var/lib/stockade has a journal: move it"},
		{"supervisor", "touch /var/lib/stockade/lock" + held + "/var/lib/stockade/lock; flock 9", "a supervisor uses /var/lib/stockade: end what it runs, and say: systemctl disable --now"},
		{"runner", "mkdir /run/stockade/main" + held + "/run/stockade/main; flock 9", "a runner uses /run/stockade/main/: end what it runs"},
		{"none of them", ":", "systemctl disable --now --quiet stockaded.socket stockaded.service stockade-run.service\n"},
	} {
		t.Run(row.name, func(t *testing.T) {
			cmd := exec.Command("unshare", "--mount", "sh", "-c", `set -e
for dir in /run /var/lib; do mount -t tmpfs none $dir; done
mkdir -p /run/systemd/system /run/stockade /var/lib/stockade
`+row.setup+`
PATH=$1:$PATH exec bash ../scripts/install uninstall`, "sh", fake)
			prefix := t.TempDir()
			if err := errors.Join(os.MkdirAll(filepath.Join(prefix, "share/stockade"), 0o755), os.WriteFile(filepath.Join(prefix, "share/stockade/installed"), nil, 0o644)); err != nil {
				t.Fatal(err)
			}
			cmd.Env = append(os.Environ(), "PREFIX="+prefix)
			out, err := cmd.CombinedOutput()
			goes := row.setup == ":"
			if (err == nil) != goes || !strings.Contains(string(out), row.want) || strings.Contains(string(out), "systemctl disable --now --quiet") != goes {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}
