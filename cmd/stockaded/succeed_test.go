package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stockade-dev/stockade/sandbox/launch"
)

// A successor that speaks with the runner in another way than this program, or does not say, is none: the runner would not have it, and
// what it holds would end.
func TestUnderstands(t *testing.T) {
	var ours bytes.Buffer
	cmd := root()
	cmd.SetArgs([]string{"--formats"})
	cmd.SetOut(&ours)
	if err := cmd.Execute(); err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct{ name, script, refused string }{
		{"this one", "printf '%s' '" + ours.String() + "'", ""},
		{"another version", fmt.Sprintf(`echo '{"Launch":%d}'`, launch.Version+1), fmt.Sprintf("speaks version %d", launch.Version+1)},
		{"more than that", fmt.Sprintf(`echo '{"Launch":%d,"Other":1}'`, launch.Version), ""},
		{"nothing", "", "--formats"},
		{"something else", "echo stockaded version 9", "--formats"},
		{"one that does not know the question", "echo 'unknown flag: --formats' >&2; exit 1", "unknown flag"},
		{"one that is killed", "kill -KILL $$", "killed"},
	} {
		program := filepath.Join(t.TempDir(), "next")
		if err := os.WriteFile(program, []byte("#!/bin/sh\n[ \"$*\" = --formats ] || exit 7\n"+row.script+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
		c := config{program: program}
		switch err := c.understands(t.Context()); {
		case row.refused == "" && err != nil:
			t.Errorf("%s: %v", row.name, err)
		case row.refused != "" && (err == nil || !strings.Contains(err.Error(), row.refused)):
			t.Errorf("%s: %v, want %q", row.name, err, row.refused)
		}
	}
}
