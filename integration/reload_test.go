package integration

import (
	"os"
	"path/filepath"
	"strings"
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
	says(`{"log-level": "info", "log-levle": "debug"}`)
	if err := d.Hangup(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the file is refused", func() bool { return strings.Contains(d.Log(), "log-levle") })
	if n := debugged(); n == 0 {
		t.Error("a file that was refused decides")
	}
}
