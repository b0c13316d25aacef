package main

import (
	"fmt"
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
	state := filepath.Join(dir, "state")
	file := filepath.Join(dir, "stockaded.json")
	ceiling := filepath.Join(dir, "ceiling.json")
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(ceiling, `{`)
	if err := os.MkdirAll(filepath.Join(state, "policy"), 0o700); err != nil {
		t.Fatal(err)
	}
	write(filepath.Join(state, "policy", "active.json"), `{"digest": "sha256:00", "source": ""}`) // the shipped one is what decides
	c := config{state: state, socket: "/run/s", args: []string{"--config", file, "--socket", "/run/s", "--drain", "3s"}}
	var said strings.Builder
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
		{"less than nothing", `{"retain-every": "-1s"}`, "retain-every"},
		{"no word for open sessions", `{"policy-live": "freeze"}`, "policy-live"},
		{"no place for metrics", `{"metrics": "0.0.0.0:1"}`, "metrics"},
		{"no endpoint", `{"otlp-endpoint": "gopher://canary-7c1@x"}`, "traces"},
		{"no endpoint at all", `{"otlp-endpoint": {"canary-7c1": 1}}`, "otlp-endpoint"},
		{"no program to search with", `{"ripgrep": "` + dir + `/none"}`, "none"},
		{"a policy that is not there", `{"policy": "` + dir + `/none"}`, "policy"},
		{"a policy that is none", `{"policy": "` + dir + `"}`, "policy"},
		{"another state directory", `{"state": "/var/lib/other"}`, "changes state"},
		{"another runner, and another user", `{"runner": "/run/r", "user": "nobody"}`, "changes runner, user"},
	} {
		text := row.text
		if !strings.Contains(text, `"state"`) {
			text = strings.Replace(text, "{", `{"state": "`+state+`", `, 1)
		}
		write(file, text)
		err := c.reread(t.Context())
		fmt.Fprintln(&said, err)
		switch {
		case row.refused == "" && err != nil:
			t.Errorf("%s: %v", row.name, err)
		case row.refused != "" && (err == nil || !strings.Contains(err.Error(), row.refused)):
			t.Errorf("%s: %v, want %q", row.name, err, row.refused)
		}
	}
	if strings.Contains(said.String(), "canary-7c1") {
		t.Errorf("what could let somebody in is quoted: %s", said.String())
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if err := c.reread(t.Context()); err == nil {
		t.Error("a file that is gone")
	}
}
