package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A SIGHUP takes the configuration up as a whole or not at all: what a successor could not be, or must not, is found before
// anything is given up.
func TestReread(t *testing.T) {
	t.Setenv("STOCKADE_SOCKET", "")
	dir := t.TempDir()
	file := filepath.Join(dir, "stockaded.json")
	ceiling := filepath.Join(dir, "ceiling.json")
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(ceiling, `{`)
	c := config{state: "/var/lib/stockade", socket: "/run/s", args: []string{"--config", file, "--socket", "/run/s", "--drain", "3s"}}
	for _, row := range []struct{ name, text, refused string }{
		{"nothing", `{}`, ""},
		{"another level, and another time to settle", `{"log-level": "debug", "hold": "1m"}`, ""},
		{"what the command line says holds", `{"socket": "/run/other"}`, ""},
		{"no JSON", `{`, "EOF"},
		{"no setting", `{"log-levle": "debug"}`, "no setting"},
		{"no level", `{"log-level": "loud"}`, "log-level"},
		{"no form", `{"log-format": "xml"}`, "xml"},
		{"no way to watch", `{"policy": "/p", "policy-watch": "perhaps"}`, "perhaps"},
		{"no ceiling", `{"ceiling": "` + ceiling + `"}`, "ceiling"},
		{"no key", `{"policy": "/p", "policy-key": ["` + dir + `/none"]}`, "none"},
		{"another state directory", `{"state": "/var/lib/other"}`, "changes state"},
		{"another runner, and another user", `{"runner": "/run/r", "user": "nobody"}`, "changes runner, user"},
	} {
		write(file, row.text)
		switch err := c.reread(); {
		case row.refused == "" && err != nil:
			t.Errorf("%s: %v", row.name, err)
		case row.refused != "" && (err == nil || !strings.Contains(err.Error(), row.refused)):
			t.Errorf("%s: %v, want %q", row.name, err, row.refused)
		}
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if err := c.reread(); err == nil {
		t.Error("a file that is gone")
	}
}
