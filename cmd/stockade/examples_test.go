package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// TestExamples: every command line of a document is one that this program takes, with flags and a number of arguments that there are;
// and so is every example of its own help. What the lines do is for the tests that run them.
func TestExamples(t *testing.T) {
	documents, err := filepath.Glob("../../docs/*.md")
	if err != nil || len(documents) < 10 {
		t.Fatalf("%d documents, %v", len(documents), err)
	}
	found := 0
	for _, name := range append(documents, "../../README.md", "../../policies/README.md") {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range blocks(string(text)) {
			for _, words := range invocations(line) {
				found++
				if why := taken(words); why != "" {
					t.Errorf("%s: %s: %s", filepath.Base(name), line, why)
				}
			}
		}
	}
	if found < 100 {
		t.Errorf("only %d examples were found", found)
	}
	var each func(*cobra.Command)
	each = func(cmd *cobra.Command) {
		for line := range strings.Lines(cmd.Example) {
			for _, words := range invocations(line) {
				if why := taken(words); why != "" {
					t.Errorf("help of %s: %s: %s", cmd.CommandPath(), strings.TrimSpace(line), why)
				}
			}
		}
		for _, sub := range cmd.Commands() {
			each(sub)
		}
	}
	each(new(cli).root())
}

// Lines that are wrong are found.
func TestExamplesThatAreWrong(t *testing.T) {
	for line, want := range map[string]string{
		"stockade rum -- true":                       "unknown command",
		"x=$(stockade run --muont a:b -- true) && y": "unknown flag",
		"stockade close":                             "arg",
		"sudo stockade receipts gets":                "unknown command",
	} {
		list := invocations(line)
		if len(list) != 1 {
			t.Errorf("%s: %d invocations", line, len(list))
			continue
		}
		if why := taken(list[0]); !strings.Contains(why, want) {
			t.Errorf("%s: %q", line, why)
		}
	}
}

// blocks are the lines of the code of a document, a line that goes on as one.
func blocks(text string) (lines []string) {
	within := false
	joined := ""
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			within = !within
			continue
		}
		if !within && !strings.HasPrefix(line, "    ") {
			continue
		}
		if rest, more := strings.CutSuffix(line, `\`); more {
			joined += rest
			continue
		}
		lines = append(lines, strings.TrimSpace(joined+line))
		joined = ""
	}
	return lines
}

var (
	// invoked is where this program is named as a command: first, or behind what can stand before a command.
	invoked = regexp.MustCompile(`(?:^|[|;&(]\s*|\bsudo |\bthen |\bdo |^\$ |^# )((?:[A-Z_]+=\S* )*)stockade (?:[a-z-]|--)`)
	word    = regexp.MustCompile(`'[^']*'|"(?:[^"\\]|\\.)*"|\$\([^()]*\)|[^\s'"|;&<>()]+|[|;&<>()]`)
)

// invocations are the arguments of each call of this program in a line of a shell.
func invocations(line string) (list [][]string) {
	line, _, _ = strings.Cut(line, " # ")
	for _, at := range invoked.FindAllStringSubmatchIndex(line, -1) {
		rest := line[at[3]:]
		var words []string
		glued, last := "", -1
		for _, w := range word.FindAllStringIndex(rest, -1) {
			text := rest[w[0]:w[1]]
			if strings.ContainsAny(text, "|;&<>()") && len(text) == 1 {
				break
			}
			if w[0] != last && glued != "" {
				words, glued = append(words, glued), ""
			}
			glued, last = glued+strings.Trim(text, `'"`), w[1]
		}
		if glued != "" {
			words = append(words, glued)
		}
		list = append(list, words[1:])
	}
	return list
}

// taken says why a command line is not one of this program's, or nothing.
func taken(words []string) string {
	if slices.ContainsFunc(words, func(w string) bool { return strings.HasPrefix(w, "[") || w == "…" || w == "..." }) {
		return "" // a pattern, and no command
	}
	root := new(cli).root()
	cmd, rest, err := root.Find(words)
	if err != nil {
		return err.Error()
	}
	if err := cmd.ParseFlags(rest); err != nil {
		return err.Error()
	}
	if help, _ := cmd.Flags().GetBool("help"); help {
		return ""
	}
	if !cmd.Runnable() && len(cmd.Flags().Args()) > 0 {
		return "unknown command " + cmd.Flags().Arg(0)
	}
	if err := cmd.ValidateArgs(cmd.Flags().Args()); err != nil {
		return err.Error()
	}
	return ""
}
