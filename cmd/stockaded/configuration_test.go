package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
)

// What is in the file is named as the flags are, and all of it is looked at before any of it counts.
func TestParseConfiguration(t *testing.T) {
	for _, row := range []struct {
		name, text string
		want       []setting
		refused    string
	}{
		{"nothing", `{}`, nil, ""},
		{"comments, and a comma too many", "// ours\n{\"hold\": \"1m\", /* or */ \"history\": 7,}\n", []setting{{"history", []string{"7"}}, {"hold", []string{"1m"}}}, ""},
		{"a list", `{"policy-key": ["a,b", "c"]}`, []setting{{"policy-key", []string{"a,b", "c"}}}, ""},
		{"no flag", `{"hodl": "1m"}`, nil, `"hodl" is no setting`},
		{"another case", `{"Hold": "1m"}`, nil, `"Hold" is no setting`},
		{"about the file itself", `{"config": "x"}`, nil, `"config" is no setting`},
		{"twice", `{"hold": "1m", "hold": "2m"}`, nil, "duplicate"},
		{"no value of the flag", `{"hold": "soon"}`, nil, "hold: "},
		{"one that is right, and one that is not", `{"drain": "1s", "history": "many"}`, nil, "history: "},
		{"null", `{"hold": null}`, nil, "want a value"},
		{"a list where there is one", `{"hold": ["1m"]}`, nil, "want a value"},
		{"one where there is a list", `{"policy-key": "a"}`, nil, "want a list"},
		{"a list in a list", `{"policy-key": [["a"]]}`, nil, "want a value"},
		{"no object", `[]`, nil, "array"},
		{"null instead", `null`, nil, "want an object"},
		{"two", `{}{}`, nil, "invalid"},
		{"half of one", `{"hold": `, nil, "EOF"},
	} {
		t.Run(row.name, func(t *testing.T) {
			got, err := parseConfiguration([]byte(row.text), serveFlags)
			switch {
			case row.refused == "" && err != nil:
				t.Error(err)
			case row.refused != "" && (err == nil || !strings.Contains(err.Error(), row.refused)):
				t.Errorf("%v, want %s", err, row.refused)
			case row.refused == "" && !cmp.Equal(got, row.want):
				t.Error(cmp.Diff(row.want, got))
			}
		})
	}
}

// The file that is printed says what holds without it: read with its comments taken away, it changes nothing.
func TestPrintedConfiguration(t *testing.T) {
	t.Setenv("STOCKADE_SOCKET", "")
	var out bytes.Buffer
	if err := printConfiguration(&out); err != nil {
		t.Fatal(err)
	}
	if settings, err := parseConfiguration(out.Bytes(), serveFlags); err != nil || len(settings) > 0 {
		t.Errorf("as printed: %v %v", settings, err)
	}
	spoken := regexp.MustCompile(`(?m)^  // (".*,)$`).ReplaceAll(out.Bytes(), []byte("  $1"))
	settings, err := parseConfiguration(spoken, serveFlags)
	if err != nil {
		t.Fatal(err)
	}
	flags := serveFlags()
	if err := applySettings(flags, settings, nil); err != nil {
		t.Fatal(err)
	}
	named := 0
	flags.VisitAll(func(f *pflag.Flag) {
		if slices.Contains(notInFile, f.Name) {
			return
		}
		named++
		if f.Value.String() != f.DefValue {
			t.Errorf("%s: %s, and the default is %s", f.Name, f.Value, f.DefValue)
		}
	})
	if named != len(settings) || named < 20 {
		t.Errorf("%d flags, and %d settings in the file", named, len(settings))
	}
}

// A flag holds over the environment, that over the file, and the file over the default.
func TestConfigure(t *testing.T) {
	name := filepath.Join(t.TempDir(), "stockaded.json")
	write := func(text string, mode os.FileMode) {
		t.Helper()
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(name, mode); err != nil {
			t.Fatal(err)
		}
	}
	var c config
	configured := func(args ...string) error {
		c = config{}
		cmd := root()
		cmd.ResetFlags()
		cmd.Flags().AddFlagSet(c.flags())
		if err := cmd.ParseFlags(append(args, "--config", name)); err != nil {
			t.Fatal(err)
		}
		return configure(cmd, c.config)
	}
	t.Setenv("STOCKADE_SOCKET", "/of/the/environment")
	write(`{"hold": "1m", "drain": "2m", "socket": "/of/the/file", "policy-key": ["k"]}`, 0o644)
	if err := configured("--hold", "3m"); err != nil {
		t.Fatal(err)
	}
	if c.hold != 3*time.Minute || c.drain != 2*time.Minute || c.socket != "/of/the/environment" || !slices.Equal(c.policyKeys, []string{"k"}) {
		t.Errorf("%+v", c)
	}
	t.Setenv("STOCKADE_SOCKET", "")
	if err := configured(); err != nil || c.socket != "/of/the/file" || c.hold != time.Minute {
		t.Errorf("%v %+v", err, c)
	}
	write(`{}`, 0o664)
	if err := configured(); err == nil || !strings.Contains(err.Error(), "could have written it") {
		t.Errorf("a file that the group can write: %v", err)
	}
	write(`{`+strings.Repeat(" ", configurationLimit)+`}`, 0o600)
	if err := configured(); err == nil || !strings.Contains(err.Error(), "larger") {
		t.Errorf("a file without an end: %v", err)
	}
}
